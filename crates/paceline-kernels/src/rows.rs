//! Common parts of the kernels that give a row of numbers for each frame.

use super::cell::{Cell, NoCell};
use super::transform::Refused;
use super::{check_len, frame_len};
use paceline_formats::error::Result;

/// The frames of a block: positions of all decoded atoms (Å), and cells (Å and degrees).
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    positions: &'a [f32],
    frame_len: usize,
    cells: &'a [[f32; 6]],
}

impl<'a> Frames<'a> {
    /// `positions` has the shape (frames, `n_atoms`, 3), `dimensions` (frames, 6).
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_formats::error::Error::Argument) where the slices do not hold
    /// the same number of whole frames.
    pub fn new(positions: &'a [f32], n_atoms: usize, dimensions: &'a [f32]) -> Result<Self> {
        let frame_len = frame_len(positions.len(), n_atoms)?;
        let expected = positions.len() / frame_len * 6;
        check_len("lengths and angles", dimensions.len(), expected)?;
        Ok(Frames {
            positions,
            frame_len,
            cells: dimensions.as_chunks().0,
        })
    }

    /// Atoms of a frame.
    pub fn n_atoms(&self) -> usize {
        self.frame_len / 3
    }

    /// Give each frame's positions and cell to `task`; the first frame that it cannot compute, and
    /// why.
    pub fn try_each(
        &self,
        mut task: impl FnMut(&[f32], [f32; 6]) -> Result<(), String>,
    ) -> Option<Refused> {
        let frames = self.positions.chunks_exact(self.frame_len).zip(self.cells);
        let tried = frames.map(|(frame, &dimensions)| task(frame, dimensions));
        tried
            .enumerate()
            .find_map(|(row, one)| Some((row, one.err()?)))
    }

    /// Fill a row of `n_columns` numbers for each frame; the first frame that `fill` cannot
    /// compute, and why. Rows of frames that were left out, of nothing but NaN, are NaN.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_formats::error::Error::Argument) where `out` has another size.
    pub fn fill_rows(
        &self,
        out: &mut [f64],
        n_columns: usize,
        mut fill: impl FnMut(&[f32], [f32; 6], &mut [f64]) -> Result<(), String>,
    ) -> Result<Option<Refused>> {
        check_len("numbers to fill", out.len(), self.cells.len() * n_columns)?;
        let frames = self.positions.chunks_exact(self.frame_len).zip(self.cells);
        let rows = out.chunks_exact_mut(n_columns.max(1));
        for (row, ((frame, &dimensions), numbers)) in frames.zip(rows).enumerate() {
            if frame.iter().all(|x| x.is_nan()) {
                numbers.fill(f64::NAN);
            } else if let Err(reason) = fill(frame, dimensions, numbers) {
                return Ok(Some((row, reason)));
            }
        }
        Ok(None)
    }
}

/// Computes a row of numbers for each frame of a block.
pub trait RowKernel: Send + Sync {
    /// Numbers of a row.
    fn n_columns(&self) -> usize;

    /// Fill one row a frame; the first frame that cannot be computed, and why.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_formats::error::Error::Argument) where the block, the kernel
    /// and `out` do not belong together.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>>;
}

/// The cell of a frame; none where it has none, and distances are not periodic.
///
/// # Errors
/// One sentence where lengths and angles make no cell.
pub fn cell_or_none(dimensions: [f32; 6], needed_by: &str) -> Result<Option<Cell>, String> {
    match Cell::new(dimensions) {
        Ok(cell) => Ok(Some(cell)),
        Err(NoCell::Missing) => Ok(None),
        Err(no_cell) => Err(no_cell.reason(needed_by)),
    }
}
