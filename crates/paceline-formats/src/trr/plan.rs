//! Which bytes of a frame hold what is wanted, and where it goes.

use super::header::{Contents, HEADER_MAX};
use crate::atom_set::Atoms;
use crate::reading::Reading;
use crate::{Fields, Run};

/// What to read of a frame, and how to decode that.
#[derive(Debug)]
pub(super) struct Plan {
    /// The frames that this is the plan for.
    pub contents: Contents,
    pub runs: Vec<Run>,
    /// Bytes of all runs.
    pub len: u64,
    /// Where the box stands in the runs' bytes.
    cell: Option<usize>,
    /// Where the first wanted atom's positions, velocities and forces stand there, as far as they
    /// are wanted and the frame holds them.
    fields: [Option<usize>; 3],
    /// Bytes from the first wanted atom's numbers to the end of the last one's.
    span: usize,
    /// One field's wanted numbers, whose places are the same for all three.
    pieces: Vec<Piece>,
}

/// The numbers of atoms that are neighbours in the frame.
#[derive(Debug)]
struct Piece {
    /// Offset from the first wanted number of the same field.
    source: usize,
    n_atoms: usize,
}

impl Plan {
    /// Bytes that are at most `gap` apart are read together.
    pub fn new(contents: &Contents, atoms: &Atoms, wanted: Fields, gap: u64) -> Plan {
        let mut reading = Reading::new(gap);
        reading.want(0, contents.size.min(HEADER_MAX as u64));
        let cell = contents
            .cell
            .map(|start| reading.want(start, 9 * contents.width));
        let vector = 3 * contents.width;
        let wanted = [wanted.positions, wanted.velocities, wanted.forces];
        let mut pieces = Vec::new();
        let fields = [0, 1, 2].map(|field| {
            let start = contents.fields[field].filter(|_| wanted[field])?;
            // The wanted numbers have the same distances in every field.
            pieces.clear();
            let mut first = None;
            for &(atom, n_atoms) in atoms.runs() {
                let at = reading.want(start + vector * atom as u64, vector * n_atoms as u64);
                pieces.push(Piece {
                    source: at - *first.get_or_insert(at),
                    n_atoms,
                });
            }
            first
        });
        let len = |piece: &Piece| vector as usize * piece.n_atoms;
        Plan {
            contents: *contents,
            runs: reading.runs,
            len: reading.len,
            cell,
            fields,
            span: pieces.last().map_or(0, |last| last.source + len(last)),
            pieces,
        }
    }

    /// The box, nm; in single precision whatever the file's, as MDAnalysis has it.
    pub fn cell(&self, bytes: &[u8]) -> Option<[[f32; 3]; 3]> {
        let mut cell = [[0.0; 3]; 3];
        let numbers = &bytes[self.cell?..][..9 * self.contents.width as usize];
        match self.contents.width {
            8 => convert(numbers, double, 1.0, cell.as_flattened_mut()),
            _ => convert(numbers, f32::from_be_bytes, 1.0, cell.as_flattened_mut()),
        }
        Some(cell)
    }

    /// Take the wanted numbers of positions (0), velocities (1) or forces (2) in `unit`s.
    pub fn gather(&self, field: usize, bytes: &[u8], unit: f32, out: &mut [f32]) {
        let Some(start) = self.fields[field] else {
            return;
        };
        let numbers = &bytes[start..start + self.span];
        match self.contents.width {
            8 => gather(&self.pieces, numbers, double, unit, out),
            _ => gather(&self.pieces, numbers, f32::from_be_bytes, unit, out),
        }
    }
}

fn double(bytes: [u8; 8]) -> f32 {
    f64::from_be_bytes(bytes) as f32
}

fn gather<const WIDTH: usize>(
    pieces: &[Piece],
    bytes: &[u8],
    number: impl Fn([u8; WIDTH]) -> f32 + Copy,
    unit: f32,
    mut out: &mut [f32],
) {
    for &Piece { source, n_atoms } in pieces {
        let (atoms, behind) = out.split_at_mut(3 * n_atoms);
        let numbers = &bytes[source..source + 3 * WIDTH * n_atoms];
        convert(numbers, number, unit, atoms);
        out = behind;
    }
}

fn convert<const WIDTH: usize>(
    bytes: &[u8],
    number: impl Fn([u8; WIDTH]) -> f32,
    unit: f32,
    out: &mut [f32],
) {
    let (numbers, _) = bytes.as_chunks();
    for (out, &bytes) in out.iter_mut().zip(numbers) {
        *out = number(bytes) * unit;
    }
}
