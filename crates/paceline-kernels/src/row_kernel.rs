//! Common parts of the kernels that compute a row of numbers for each frame.

use super::cell::{Cell, NoCell};
use super::placement::{Basis, PlacedFrames, Placement};
use super::transform::Refused;
use super::{check_len, frame_len};
use paceline_base::UnitCell;
use paceline_base::error::Result;

/// Frames of a block: positions of all decoded atoms (Å), and cells (Å and degrees).
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    positions: &'a [f32],
    frame_len: usize,
    cells: &'a [[f32; 6]],
    /// Positions before the placement of frames.
    stored: &'a [f32],
    /// Placement of each frame; empty if no frame was placed.
    placements: &'a [Option<Placement>],
}

impl<'a> Frames<'a> {
    /// `positions` has the shape (frames, `n_atoms`, 3), `dimensions` (frames, 6).
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if the slices do not hold the
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

    /// Make frames after placement, with their `stored` positions.
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

    /// Return the positions of a frame before placement, Å, and the placement.
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

    /// Call `task` with each frame's positions and cell; return the first frame that fails, with
    /// the reason.
    pub fn try_each(
        &self,
        mut task: impl FnMut(&[f32], [f32; 6]) -> Result<(), String>,
    ) -> Option<Refused> {
        self.try_each_row(|_, frame, dimensions| task(frame, dimensions))
    }

    /// Call `task` with each frame's row, positions and cell, like [`Frames::try_each`].
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

    /// Fill a row of `n_columns` numbers for each frame; return the first frame that `fill` cannot
    /// compute, with the reason. Rows of frames that were left out, which contain only NaN, are
    /// NaN.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if `out` has another size.
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

    /// The same, with the row of each frame.
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

/// Conversion of a block's frames for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Unchanged frames: the kernel uses no images.
    Stored,
    /// Frames with upright cells, which the kernel divides along x, y and z.
    Upright,
    /// Placed frames, so that the kernel finds images in any cell.
    Placed,
}

/// Computes a row of numbers for each frame of a block.
pub trait RowKernel: Send + Sync {
    /// Conversion of frames for this kernel.
    fn taken(&self) -> Taken {
        Taken::Placed
    }

    /// Number of values of a row.
    fn n_columns(&self) -> usize;

    /// Fill one row per frame; return the first frame that cannot be computed, with the reason.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if the sizes of the block, the
    /// kernel and `out` do not match.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>>;
}

/// Compute a kernel in a block of frames with cells of any kind, as [`RowKernel::compute`] does.
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
    let basis = match kernel.taken() {
        Taken::Placed => Some(Basis::Compact),
        Taken::Upright => {
            if let Some(row) = of_rows().position(is_moved) {
                return Ok(Some((row, MOVED.to_string())));
            }
            let is_turned = of_rows().any(|cell| !cell.is_upright());
            is_turned.then_some(Basis::Own)
        }
        Taken::Stored => None,
    };
    if let Some(basis) = basis {
        let placed = PlacedFrames::new(positions, n_atoms, cells, basis)?;
        return kernel.compute(&Frames::placed(&placed, positions, n_atoms)?, out);
    }
    let dimensions: Vec<f32> = of_rows().flat_map(|cell| cell.dimensions).collect();
    kernel.compute(&Frames::new(positions, n_atoms, &dimensions)?, out)
}

/// Reason why a cell cannot be divided along x, y and z.
const MOVED: &str = "a density along x, y and z needs a cell that stays where it is along axes that \
                     are not periodic, and the frame's has moved since the first one";

/// Return the cell of a frame; `None` if it has none, and distances are not periodic.
///
/// # Errors
/// Sentence about lengths and angles that do not define a cell.
pub fn cell_or_none(dimensions: [f32; 6], needed_by: &str) -> Result<Option<Cell>, String> {
    match Cell::new(dimensions) {
        Ok(cell) => Ok(Some(cell)),
        Err(NoCell::Missing) => Ok(None),
        Err(no_cell) => Err(no_cell.reason(needed_by)),
    }
}
