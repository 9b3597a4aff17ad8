//! What is asked of a reader of chunks.

use super::slice::Slice;
use crate::Fields;
use crate::hdf5_chunks::{Dataset, Units};

/// A dataset, and what makes our units of its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    pub dataset: Dataset,
    pub units: Units,
}

/// Each frame's own numbers of its atoms, where these are in no fixed order.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    pub element: Element,
    /// The number of each of our atoms, rising.
    pub order: Vec<i64>,
}

/// What is read of each frame.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Numbers of the frames, for messages.
    pub frames: &'a [i64],
    /// Where their positions, velocities and forces are, and their atoms' numbers.
    pub slices: [Option<Slice<'a>>; 3],
    pub ids: Option<Slice<'a>>,
    /// What every frame must hold.
    pub required: Fields,
    /// Leave out frames that cannot be read.
    pub skip: bool,
    /// Prove every checksum, and that every stream ends where it should.
    pub whole: bool,
}

impl Request<'_> {
    /// What a frame holds of what is read.
    pub(super) fn held(&self, row: usize) -> Fields {
        let [positions, velocities, forces] = self
            .slices
            .map(|slice| slice.is_some_and(|slice| slice.rows[row] >= 0));
        Fields {
            positions,
            velocities,
            forces,
        }
    }
}
