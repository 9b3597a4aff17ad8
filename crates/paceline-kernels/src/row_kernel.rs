//! Common parts of the kernels that compute a row of numbers for each frame.

use super::cell::{Cell, NoCell};
use super::cells_in_standard_form::{Basis, PlacedFrames, Placement};
use super::transform_common::Refused;
use super::{check_len, frame_len};
use paceline_base::UnitCell;
use paceline_base::error::Result;

/// Frames of a block: positions (Å) of all decoded atoms, and cells (lengths in Å, angles in
/// degrees).
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    positions: &'a [f32],
    frame_len: usize,
    cells: &'a [[f32; 6]],
    /// Positions as stored in the file, before conversion for the kernel.
    stored: &'a [f32],
    /// Conversion of each frame; empty if no frame of the block was converted.
    placements: &'a [Option<Placement>],
}

impl<'a> Frames<'a> {
    /// Create frames from slices. `positions` has the shape (frames, `n_atoms`, 3), and
    /// `dimensions` (frames, 6).
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if the slices do not contain the
    /// same number of whole frames.
    pub fn new(positions: &'a [f32], n_atoms: usize, dimensions: &'a [f32]) -> Result<Self> {
        let frame_len = frame_len(positions.len(), n_atoms)?;
        let expected = positions.len() / frame_len * 6;
        check_len("lengths and angles", dimensions.len(), expected)?;
        Ok(Frames {
            positions,
            frame_len,
            cells: dimensions.as_chunks().0,
            stored: positions,
            placements: &[],
        })
    }

    /// Create converted frames, together with their `stored` positions.
    ///
    /// # Errors
    /// As [`Frames::new`].
    pub fn placed(placed: &'a PlacedFrames<'_>, stored: &'a [f32], n_atoms: usize) -> Result<Self> {
        let frames = Frames::new(&placed.positions, n_atoms, &placed.dimensions)?;
        check_len("coordinates", stored.len(), placed.positions.len())?;
        Ok(Frames {
            stored,
            placements: &placed.placements,
            ..frames
        })
    }

    /// Return the positions (Å) of a frame before its conversion, and the conversion.
    pub(crate) fn before(&self, row: usize) -> (&'a [f32], Option<&'a Placement>) {
        let stored = &self.stored[row * self.frame_len..][..self.frame_len];
        (stored, self.placements.get(row).and_then(Option::as_ref))
    }

    /// Number of frames.
    pub fn n_frames(&self) -> usize {
        self.cells.len()
    }

    /// Number of atoms of a frame.
    pub fn n_atoms(&self) -> usize {
        self.frame_len / 3
    }

    /// Call `task` with the positions and the cell of each frame. Return the first frame for which
    /// `task` fails, with the reason.
    pub fn try_each(
        &self,
        mut task: impl FnMut(&[f32], [f32; 6]) -> Result<(), String>,
    ) -> Option<Refused> {
        self.try_each_row(|_, frame, dimensions| task(frame, dimensions))
    }

    /// Call `task` with the row number, the positions and the cell of each frame, like
    /// [`Frames::try_each`].
    pub(crate) fn try_each_row(
        &self,
        mut task: impl FnMut(usize, &[f32], [f32; 6]) -> Result<(), String>,
    ) -> Option<Refused> {
        let frames = self.positions.chunks_exact(self.frame_len).zip(self.cells);
        let mut frames = frames.enumerate();
        frames.find_map(|(row, (frame, &dimensions))| {
            let reason = task(row, frame, dimensions).err()?;
            Some((row, reason))
        })
    }

    /// Fill a row of `n_columns` numbers for each frame. Return the first frame for which `fill`
    /// fails, with the reason. A frame that contains only NaN was skipped earlier; its row becomes
    /// NaN.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if `out` has the wrong size.
    pub fn fill_rows(
        &self,
        out: &mut [f64],
        n_columns: usize,
        mut fill: impl FnMut(&[f32], [f32; 6], &mut [f64]) -> Result<(), String>,
    ) -> Result<Option<Refused>> {
        self.fill_each_row(out, n_columns, |_, frame, dimensions, numbers| {
            fill(frame, dimensions, numbers)
        })
    }

    /// Fill rows like [`Frames::fill_rows`], but also pass the row number of the frame to `fill`.
    ///
    /// # Errors
    /// As [`Frames::fill_rows`].
    pub(crate) fn fill_each_row(
        &self,
        out: &mut [f64],
        n_columns: usize,
        mut fill: impl FnMut(usize, &[f32], [f32; 6], &mut [f64]) -> Result<(), String>,
    ) -> Result<Option<Refused>> {
        check_len("numbers to fill", out.len(), self.cells.len() * n_columns)?;
        let frames = self.positions.chunks_exact(self.frame_len).zip(self.cells);
        let rows = out.chunks_exact_mut(n_columns.max(1));
        for (row, ((frame, &dimensions), numbers)) in frames.zip(rows).enumerate() {
            if frame.iter().all(|x| x.is_nan()) {
                numbers.fill(f64::NAN);
            } else if let Err(reason) = fill(row, frame, dimensions, numbers) {
                return Ok(Some((row, reason)));
            }
        }
        Ok(None)
    }
}

/// Conversion that a kernel requires for the frames of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameConversion {
    /// Frames are not converted: the kernel uses no periodic images.
    Stored,
    /// Frames need upright cells, because the kernel divides the cell along x, y and z.
    Upright,
    /// Frames are converted as in [`crate::cells_in_standard_form`], so that the kernel finds
    /// nearest images in any cell.
    Placed,
}

/// Kernel that computes a row of numbers for each frame of a block.
pub trait RowKernel: Send + Sync {
    /// Return the conversion that this kernel requires.
    fn conversion(&self) -> FrameConversion {
        FrameConversion::Placed
    }

    /// Return the number of values of a row.
    fn n_columns(&self) -> usize;

    /// Fill one row for each frame. Return the first frame that cannot be computed, with the
    /// reason.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if the sizes of the block, the
    /// kernel and `out` do not match.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>>;
}

/// Compute a kernel for a block of frames with cells of any kind.
///
/// # Errors
/// As [`RowKernel::compute`].
pub fn compute_in_cells(
    kernel: &dyn RowKernel,
    positions: &[f32],
    n_atoms: usize,
    cells: &[f64],
    out: &mut [f64],
) -> Result<Option<Refused>> {
    let (rows, _) = cells.as_chunks();
    let of_rows = || rows.iter().map(UnitCell::of_row);
    let is_moved = |cell: UnitCell| !cell.is_periodic() && cell.origin != [0.0; 3];
    let basis = match kernel.conversion() {
        FrameConversion::Placed => Some(Basis::Compact),
        FrameConversion::Upright => {
            if let Some(row) = of_rows().position(is_moved) {
                return Ok(Some((row, MOVED.to_string())));
            }
            let is_turned = of_rows().any(|cell| !cell.is_upright());
            is_turned.then_some(Basis::Own)
        }
        FrameConversion::Stored => None,
    };
    if let Some(basis) = basis {
        let placed = PlacedFrames::new(positions, n_atoms, cells, basis)?;
        return kernel.compute(&Frames::placed(&placed, positions, n_atoms)?, out);
    }
    let dimensions: Vec<f32> = of_rows().flat_map(|cell| cell.dimensions).collect();
    kernel.compute(&Frames::new(positions, n_atoms, &dimensions)?, out)
}

/// Message for a cell that cannot be divided along x, y and z.
const MOVED: &str = "a density along x, y and z needs a cell that is fixed along non-periodic \
                     axes, and the cell has moved since the first frame";

/// Return the cell of a frame; `None` if the frame has no cell, and so no periodic images.
///
/// # Errors
/// A message if the lengths and angles do not define a cell.
pub fn cell_or_none(dimensions: [f32; 6], needed_by: &str) -> Result<Option<Cell>, String> {
    match Cell::new(dimensions) {
        Ok(cell) => Ok(Some(cell)),
        Err(NoCell::Missing) => Ok(None),
        Err(no_cell) => Err(no_cell.reason(needed_by)),
    }
}
