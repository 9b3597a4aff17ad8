//! Which bytes of a frame hold the wanted atoms, where all lines have equal lengths.

use super::layout::{Layout, Widths};
use crate::Run;
use crate::atom_set::Atoms;
use crate::reading::Reading;
use crate::source::GAP;

/// What to read of a frame: what stands before its atoms, and the wanted ones.
#[derive(Debug)]
pub(super) struct Plan {
    pub runs: Vec<Run>,
    /// Bytes of all runs.
    pub len: u64,
    pub pieces: Vec<Piece>,
    /// Bytes of an atom.
    pub atom_size: usize,
}

/// Wanted atoms that are neighbours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Offset in the runs' bytes.
    pub source: usize,
    /// Place of the first one in the frame.
    pub place: usize,
    pub n: usize,
}

impl Plan {
    pub fn new(layout: &Layout, widths: Widths, atoms: &Atoms) -> Plan {
        let head = u64::from(widths.head);
        let size = layout.atom_size(widths);
        let mut reading = Reading::new(GAP);
        reading.want(0, head);
        let pieces = atoms.runs().iter().map(|&(place, n)| Piece {
            source: reading.want(head + place as u64 * size, n as u64 * size),
            place,
            n,
        });
        Plan {
            pieces: pieces.collect(),
            runs: reading.runs,
            len: reading.len,
            atom_size: size as usize,
        }
    }
}
