//! A block's frames: where they are in the file, and where they go.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::formats::{Fields, FrameOut};

/// Where the frames of a block are: number, first byte and size of each, in the order wanted.
#[derive(Debug, Clone, Copy)]
pub struct Extents<'a> {
    pub frames: &'a [u64],
    pub offsets: &'a [u64],
    pub sizes: &'a [u64],
}

impl Extents<'_> {
    /// # Errors
    /// [`Error::Argument`] where a frame has no place, or one outside a file of `file_size` bytes.
    pub(super) fn check(&self, file_size: u64) -> Result<()> {
        let n = self.frames.len();
        if self.offsets.len() != n || self.sizes.len() != n {
            return Err(Error::Argument(format!(
                "expected {n} offsets and sizes, one for each frame, found {} and {}",
                self.offsets.len(),
                self.sizes.len()
            )));
        }
        for (&offset, &size) in self.offsets.iter().zip(self.sizes) {
            if offset.checked_add(size).is_none_or(|end| end > file_size) {
                return Err(Error::Argument(format!(
                    "{size} bytes from byte {offset} on are not within a file of {file_size} bytes"
                )));
            }
        }
        Ok(())
    }
}

/// Where a block goes: one row a frame. A field that is not wanted has no room.
#[derive(Debug)]
pub struct BlockOut<'a> {
    /// frames × atoms wanted × 3, Å.
    pub positions: &'a mut [f32],
    /// frames × atoms wanted × 3, Å/ps.
    pub velocities: &'a mut [f32],
    /// frames × atoms wanted × 3, kJ/(mol·Å).
    pub forces: &'a mut [f32],
    /// Å and degrees; zeros where a frame has no cell.
    pub dimensions: &'a mut [[f32; 6]],
    /// ps.
    pub times: &'a mut [f64],
    pub steps: &'a mut [i64],
    /// What each frame holds, as [`Fields::bits`]; 0 for one that could not be read.
    pub fields: &'a mut [u8],
}

/// What a block cost, and which of its frames could not be read.
#[derive(Debug, Default)]
pub struct BlockReport {
    pub read: Duration,
    pub decode: Duration,
    pub bytes: u64,
    pub calls: u64,
    /// Row in the block and reason; only where skipping was asked for.
    pub skipped: Vec<(usize, Error)>,
}

impl BlockOut<'_> {
    /// # Errors
    /// [`Error::Argument`] where there is no room for `n` frames of `n_wanted` atoms, or for more.
    pub(super) fn check(&self, n: usize, n_wanted: usize, wanted: Fields) -> Result<()> {
        let room = |wanted| if wanted { n * n_wanted * 3 } else { 0 };
        let fits = self.positions.len() == room(wanted.positions)
            && self.velocities.len() == room(wanted.velocities)
            && self.forces.len() == room(wanted.forces)
            && self.dimensions.len() == n
            && self.times.len() == n
            && self.steps.len() == n
            && self.fields.len() == n;
        if fits {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "the arrays of a block must all have {n} rows, and {n_wanted} atoms where they have \
             atoms"
        )))
    }

    pub(super) fn row<'a>(
        &'a mut self,
        row: usize,
        n_wanted: usize,
        held: &'a mut Fields,
    ) -> FrameOut<'a> {
        let width = 3 * n_wanted;
        FrameOut {
            positions: row_of(self.positions, row, width),
            velocities: row_of(self.velocities, row, width),
            forces: row_of(self.forces, row, width),
            dimensions: &mut self.dimensions[row],
            time: &mut self.times[row],
            step: &mut self.steps[row],
            fields: held,
        }
    }

    /// Note what a row's frame holds; NaN takes the place of what it does not.
    pub(super) fn keep(&mut self, row: usize, n_wanted: usize, held: Fields) {
        self.fields[row] = held.bits();
        let width = 3 * n_wanted;
        for (there, values) in [
            (held.positions, &mut *self.positions),
            (held.velocities, &mut *self.velocities),
            (held.forces, &mut *self.forces),
        ] {
            if !there {
                row_of(values, row, width).fill(f32::NAN);
            }
        }
    }

    /// Make a row say that nothing is known of its frame.
    pub(super) fn blank(&mut self, row: usize, n_wanted: usize) {
        self.keep(row, n_wanted, Fields::default());
        self.dimensions[row].fill(f32::NAN);
        self.times[row] = f64::NAN;
        self.steps[row] = i64::MIN;
    }
}

/// A row's part of an array that may have no room at all.
fn row_of(values: &mut [f32], row: usize, width: usize) -> &mut [f32] {
    values
        .get_mut(row * width..(row + 1) * width)
        .unwrap_or_default()
}
