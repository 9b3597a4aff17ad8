//! Where the frames of a block are in one dataset.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::hdf5_chunks::Grid;

/// The part of a dataset's index that one block needs.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// Row of each frame; −1 where it has none.
    pub rows: &'a [i64],
    /// Indices along the first axis of the chunks that hold them: distinct, rising. Empty for a
    /// contiguous dataset.
    pub places: &'a [u64],
    /// Bytes of the chunks of these places; size 0 for one that was never written.
    pub offsets: &'a [u64],
    pub sizes: &'a [u64],
    /// Bit k: stage k of the filters was left out.
    pub masks: &'a [u32],
}

/// Where a chunk is, and which stages its bytes went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub offset: u64,
    pub size: u64,
    pub mask: u32,
}

/// A row of the dataset, and the row of the block that it goes to.
pub(super) type Wanted = (u64, usize);

impl Slice<'_> {
    /// # Errors
    /// [`Error::Argument`] where it does not fit the dataset or a block of `n` frames.
    pub(super) fn check(&self, grid: &Grid, is_chunked: bool, n: usize) -> Result<()> {
        let n_chunks = self.places.len().checked_mul(grid.n_columns);
        let lengths = [self.offsets.len(), self.sizes.len(), self.masks.len()];
        if self.rows.len() != n || lengths.map(Some) != [n_chunks; 3] {
            return Err(Error::Argument(format!(
                "expected {n} rows, and {} chunks in each of {} places, found {} rows and \
                 {lengths:?} offsets, sizes and masks",
                grid.n_columns,
                self.places.len(),
                self.rows.len(),
            )));
        }
        if !self.places.is_sorted_by(|a, b| a < b) {
            return Err(Error::Argument("places of chunks must rise".into()));
        }
        let known = |row: u64| {
            row < grid.n_rows
                && (!is_chunked || self.places.binary_search(&(row / grid.chunk_rows)).is_ok())
        };
        match self
            .rows
            .iter()
            .find(|&&row| row != -1 && !u64::try_from(row).is_ok_and(known))
        {
            Some(row) => Err(Error::Argument(format!(
                "row {row} is not within the dataset of {} rows, or its chunks are not given",
                grid.n_rows
            ))),
            None => Ok(()),
        }
    }

    /// Rows wanted by some frames of the block, rising; rows of the block count from its first.
    pub(super) fn wanted(&self, frames: Range<usize>, wanted: &mut Vec<Wanted>) {
        wanted.clear();
        let rows = self.rows[frames].iter().enumerate();
        wanted.extend(rows.filter_map(|(k, &row)| Some((u64::try_from(row).ok()?, k))));
        // Nearly always sorted already, which this finds out in one pass.
        wanted.sort();
    }

    /// A chunk of a place that is known to be there.
    pub(super) fn chunk(&self, grid: &Grid, place: u64, column: usize) -> Chunk {
        let slot = self.places.partition_point(|&other| other < place);
        let k = slot * grid.n_columns + column;
        Chunk {
            offset: self.offsets[k],
            size: self.sizes[k],
            mask: self.masks[k],
        }
    }
}
