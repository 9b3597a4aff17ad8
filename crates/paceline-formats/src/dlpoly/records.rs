//! All that a file says of some atoms, in double precision.

use std::ops::Range;

use super::atom::NAME;
use super::encode::FORCE;
use super::frame_head::FrameHead;
use super::layout::{Kind, Layout, LineLengths};
use super::walk::Walk;
use crate::Fields;
use crate::error::Fault;

/// What a file says of an atom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// Filled up with blanks.
    pub name: [u8; NAME],
    /// From 1; nothing where the file does not say.
    pub id: Option<u64>,
    /// Da; NaN where the file does not say.
    pub mass: f64,
    /// e; NaN where the file does not say.
    pub charge: f64,
    /// Position (Å), velocity (Å/ps) and force (kJ/(mol·Å)); zeros for what the frame lacks.
    pub vectors: [[f64; 3]; 3],
}

/// Reads the atoms of a frame, one after another as they stand in the file.
#[derive(Debug)]
pub struct Records<'a> {
    walk: Walk<'a>,
    kind: Kind,
    /// Of the next atom.
    place: usize,
}

impl Layout {
    /// Whether atoms have masses and charges.
    pub fn has_masses(&self) -> bool {
        self.kind == Kind::History && self.level != super::layout::COMPRESSED
    }

    /// The number of the atom whose lines `bytes` begin with, where they say it.
    ///
    /// # Errors
    /// As for [`Records::next_atom`].
    pub fn id_of(&self, bytes: &[u8]) -> Result<Option<u64>, Fault> {
        let lines = Walk::over(*self, self.level, bytes, bytes.len() as u64).next();
        lines.map(|lines| lines.id())
    }

    /// Bytes of a frame that hold the atoms at these places; nothing where only a walk from the
    /// frame's beginning finds them.
    pub fn bytes_of(&self, places: Range<u64>) -> Option<Range<u64>> {
        match self.lines {
            LineLengths::Varying => None,
            LineLengths::Equal(widths) => {
                let at = |place: u64| u64::from(widths.head) + place * self.atom_size(widths);
                Some(at(places.start)..at(places.end))
            }
        }
    }
}

impl<'a> Records<'a> {
    /// The atoms whose lines `bytes` begin with, from the one at `place` on. Of the frame, whose
    /// head is `head`, `size` bytes are left from there on.
    pub fn new(
        layout: &Layout,
        head: &FrameHead,
        place: usize,
        bytes: &'a [u8],
        size: u64,
    ) -> Self {
        Records {
            walk: Walk::over(*layout, head.level, bytes, size),
            kind: layout.kind,
            place,
        }
    }

    /// Bytes of the atoms that were read.
    pub fn len(&self) -> usize {
        self.walk.at
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next atom.
    ///
    /// # Errors
    /// [`Fault::Bad`], counted from the first of the bytes, where there is none; [`Fault::Short`]
    /// where its lines go on behind them.
    pub fn next_atom(&mut self) -> Result<Record, Fault> {
        let lines = self.walk.next()?;
        let [position, velocity, force] = lines.read_vectors(Fields::ALL, self.place)?;
        // Behind the name and number of an atom of a CONFIG other programs write atomic numbers.
        let has_masses = self.kind == Kind::History;
        let label = lines.read_label(has_masses);
        self.place += 1;
        Ok(Record {
            name: label.name,
            id: label.id,
            mass: label.mass,
            charge: label.charge,
            vectors: [position, velocity, force.map(|value| value / FORCE)],
        })
    }
}
