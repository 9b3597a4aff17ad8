//! Transformations of frames on NumPy arrays.

use pyo3::prelude::*;

use super::errors::{Failure, Result};
use super::kernel_macro::kernels;
use super::types::{Array1, Array2, Array3, ArrayMut2, ArrayMut3, Indices, NewArray, indices};

use paceline_formats::{CELL_WIDTH, error};
use paceline_kernels::cells_in_standard_form::{Basis, PlacedFrames, change_placed};
use paceline_kernels::fit_group::{Fit, Freedom};
use paceline_kernels::nojump;
use paceline_kernels::unwrap::Unwrap;
use paceline_kernels::wrap::Center;
use paceline_kernels::wrap::Wrap;
use paceline_kernels::{transform_common, unwrap};

/// Return the weighted centers (Å) of groups of atoms in each frame, shape (frames, groups, 3).
/// `atoms` are sorted by group, with `sizes` atoms in each group, and one weight per atom.
#[pyfunction]
pub(super) fn centers(
    py: Python<'_>,
    positions: Array3<'_, f32>,
    atoms: Indices,
    sizes: Indices,
    weights: Array1<'_, f64>,
) -> Result<NewArray<f32, 3>> {
    let shape = positions.shape();
    let (n_frames, n_atoms) = (shape[0], shape[1]);
    let (positions, weights) = (&*positions, &*weights);
    let found =
        py.detach(|| transform_common::centres(positions, n_atoms, &atoms, &sizes, weights));
    Ok(NewArray::new(found?, [n_frames, sizes.len(), 3]))
}

/// For each frame and molecule, return the sum of cell vectors that unwraps the center of the
/// molecule since the first frame, in units of 2⁻²⁴ Å. `centers` are in Å. Every frame must have a
/// cell.
#[pyfunction]
pub(super) fn molecule_steps(
    py: Python<'_>,
    centers: Array3<'_, f64>,
    cells: Array2<'_, f64>,
) -> Result<NewArray<i64, 3>> {
    let (shape, width) = (centers.shape().to_vec(), cells.shape()[1]);
    if shape[2] != 3 || width != CELL_WIDTH {
        return Err(Failure::argument(format!(
            "expected centers in three dimensions and cells of {CELL_WIDTH} numbers, found arrays \
             of shapes {shape:?} and {:?}",
            cells.shape()
        )));
    }
    let (centers, _) = centers.as_chunks();
    let (cells, _) = cells.as_chunks();
    let steps = py.detach(|| nojump::molecule_steps(centers, cells))?;
    Ok(NewArray::new(
        steps.into_flattened(),
        [shape[0], shape[1], 3],
    ))
}

/// In some rows of a block (Å), translate molecules by the sums that `molecule_steps` returns.
/// `atoms` are sorted by molecule, with `sizes` atoms each.
#[pyfunction]
pub(super) fn move_molecules(
    py: Python<'_>,
    mut positions: ArrayMut3<'_, f32>,
    rows: Indices,
    atoms: Indices,
    sizes: Indices,
    steps: Array3<'_, i64>,
) -> Result<()> {
    let n_atoms = positions.shape()[1];
    check_atoms(positions.shape(), n_atoms)?;
    let (steps, _) = steps.as_chunks();
    let positions = &mut *positions;
    Ok(py.detach(|| nojump::move_molecules(steps, &rows, positions, n_atoms, (&atoms, &sizes)))?)
}

kernels! {
    /// Transformation of all frames of a block, in place.
    pub(super) struct Transform(Box<dyn transform_common::Transform>);

    static {
        /// Make molecules whole along their bonds.
        unwrap(py: Python<'_>, n_atoms: usize, bonds: Array2<'_, i64>) {
            let bonds = pairs(&bonds)?;
            py.detach(|| Unwrap::new(n_atoms, &bonds))
        }

        /// Translate all atoms so that a group is at a point (Å; None: the middle of the cell).
        center(
            n_atoms: usize,
            atoms: Indices,
            weights: Option<Array1<'_, f64>>,
            point: Option<[f64; 3]>,
            wrap: bool,
        ) {
            Center::new(n_atoms, &atoms, weights.as_deref(), point, wrap)
        }

        /// Wrap compounds into the cell. Compounds follow each other in `atoms`, with `sizes` atoms
        /// each.
        wrap(
            n_atoms: usize,
            atoms: Indices,
            sizes: Indices,
            weights: Option<Array1<'_, f64>>,
        ) {
            Wrap::new(n_atoms, &atoms, &sizes, weights.as_deref())
        }

        /// Move all atoms as one rigid body so that a group is superposed on its reference (Å).
        fit(
            n_atoms: usize,
            atoms: Indices,
            reference: Array2<'_, f64>,
            weights: Option<Array1<'_, f64>>,
            rotation: bool,
            normal: Option<usize>,
        ) {
            if normal.is_some_and(|axis| axis > 2) {
                return Err(Failure::argument("the normal of a plane is axis 0, 1 or 2"));
            }
            let freedom = Freedom { rotation, normal };
            Fit::new(n_atoms, &atoms, &reference, weights.as_deref(), freedom)
        }
    }

    methods {
        /// Change the positions (Å) of frames with these cells. A rotation also changes the cells
        /// and `vectors` of the atoms. Return the rows that could not be changed, with reasons, and
        /// the rows that then have bonds longer than half the cell.
        fn apply(
            &self,
            py: Python<'_>,
            mut positions: ArrayMut3<'_, f32>,
            mut cells: ArrayMut2<'_, f64>,
            mut vectors: Vec<ArrayMut3<'_, f32>>,
        ) -> Result<(Vec<transform_common::Refused>, Vec<transform_common::LongBonds>)> {
            let n_atoms = self.0.n_atoms();
            check_atoms(positions.shape(), n_atoms)?;
            let positions = &mut *positions;
            let cells = &mut *cells;
            let mut notes = transform_common::Notes::default();
            let changed = py.detach(|| -> error::Result<_> {
                let refused = transform_common::apply_in_cells(&*self.0, positions, cells, &mut notes)?;
                transform_common::rotate_cells(cells, &notes.rotations);
                Ok(refused)
            });
            let refused = changed?;
            for array in &mut vectors {
                check_atoms(array.shape(), n_atoms)?;
                let array = &mut **array;
                py.detach(|| transform_common::rotate_vectors(array, n_atoms, &notes.rotations));
            }
            Ok((refused, notes.long))
        }
    }
}

pub(super) fn check_atoms(shape: &[usize], n_atoms: usize) -> Result<()> {
    if shape[1..] == [n_atoms, 3] {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "expected positions of {n_atoms} atoms, found an array of shape {shape:?}"
    )))
}

/// Unwrapping of atoms across the faces of the cell.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct NoJump(nojump::NoJump);

/// Images in the last frame, and in the requested frames.
type Scanned = (NewArray<i16, 2>, NewArray<i16, 3>);

#[pymethods]
impl NoJump {
    #[new]
    fn new(n_atoms: usize, atoms: Indices) -> Result<Self> {
        Ok(Self(nojump::NoJump::new(n_atoms, &atoms)?))
    }

    /// Set the positions to NaN in rows without a cell, or with positions that are not finite.
    /// Return these rows, with reasons.
    fn check(
        &self,
        py: Python<'_>,
        mut positions: ArrayMut3<'_, f32>,
        cells: Array2<'_, f64>,
    ) -> Result<Vec<transform_common::Refused>> {
        check_atoms(
            positions.shape(),
            transform_common::Transform::n_atoms(&self.0),
        )?;
        let (positions, cells) = (&mut *positions, &*cells);
        let mut notes = transform_common::Notes::default();
        Ok(py.detach(|| transform_common::apply_in_cells(&self.0, positions, cells, &mut notes))?)
    }

    /// Count the images of the atoms over frames, relative to the first frame. Return the images in
    /// the last frame, and those in `rows`.
    fn scan(
        &self,
        py: Python<'_>,
        positions: Array3<'_, f32>,
        cells: Array2<'_, f64>,
        rows: Indices,
    ) -> Result<Scanned> {
        let n_atoms = transform_common::Transform::n_atoms(&self.0);
        check_atoms(positions.shape(), n_atoms)?;
        let (positions, cells) = (&*positions, &*cells);
        let scan = py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Own)?;
            self.0.scan(&placed.positions, &placed.dimensions, &rows)
        });
        let scan = scan?;
        let n = self.0.n_followed();
        let (moved, noted) = (scan.moved.into_flattened(), scan.noted.into_flattened());
        Ok((
            NewArray::new(moved, [n, 3]),
            NewArray::new(noted, [rows.len(), n, 3]),
        ))
    }

    /// Move atoms (Å) to their images. `images` contains the images in every frame, or only in the
    /// first valid frame; the images in later frames are then counted. Return the rows that could
    /// not be changed, with reasons.
    fn move_to(
        &self,
        py: Python<'_>,
        images: Array3<'_, i16>,
        mut positions: ArrayMut3<'_, f32>,
        cells: Array2<'_, f64>,
    ) -> Result<Vec<transform_common::Refused>> {
        let n_atoms = transform_common::Transform::n_atoms(&self.0);
        check_atoms(positions.shape(), n_atoms)?;
        let (images, _) = images.as_chunks();
        let (positions, cells) = (&mut *positions, &*cells);
        let change = |positions: &mut [f32], dimensions: &[f32], _: &[_]| {
            self.0.move_to(images, positions, dimensions)
        };
        Ok(py.detach(|| change_placed(positions, n_atoms, cells, Some(Basis::Own), change))?)
    }
}

/// Unwrapping of atoms block by block, from the first frame of a trajectory.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct NoJumpFollower(nojump::Follower);

#[pymethods]
impl NoJumpFollower {
    #[new]
    fn new(task: &NoJump, skip_damaged: bool) -> Self {
        Self(nojump::Follower::new(task.0.clone(), skip_damaged))
    }

    /// Move the atoms of block `number` (Å) so that none jumps relative to the block before. Write
    /// the images at the beginning of the block to `begin`. Return the rows that could not be
    /// changed, with reasons; None if the follower was closed.
    #[pyo3(signature = (number, positions, cells, begin=None))]
    fn move_on(
        &self,
        py: Python<'_>,
        number: usize,
        mut positions: ArrayMut3<'_, f32>,
        cells: Array2<'_, f64>,
        mut begin: Option<ArrayMut2<'_, i16>>,
    ) -> Result<Option<Vec<transform_common::Refused>>> {
        let n_atoms = self.0.n_atoms();
        check_atoms(positions.shape(), n_atoms)?;
        let (positions, cells) = (&mut *positions, &*cells);
        let begin = begin.as_deref_mut().map(|begin| begin.as_chunks_mut().0);
        let change = |positions: &mut [f32], dimensions: &[f32], _: &[_]| {
            self.0.move_on(number, positions, dimensions, begin)
        };
        Ok(py.detach(|| change_placed(positions, n_atoms, cells, Some(Basis::Own), change))?)
    }

    /// Release waiting threads. No further block is moved.
    fn close(&self) {
        self.0.close();
    }
}

/// Return, for each atom, the first atom of its fragment.
#[pyfunction]
pub(super) fn fragments(
    py: Python<'_>,
    n_atoms: usize,
    bonds: Array2<'_, i64>,
) -> Result<NewArray<i64, 1>> {
    let bonds = pairs(&bonds)?;
    let first = py.detach(|| unwrap::fragments(n_atoms, &bonds));
    let first: Vec<i64> = first?.into_iter().map(|atom| atom as i64).collect();
    Ok(first.into())
}

pub(super) fn pairs(bonds: &Array2<'_, i64>) -> Result<Vec<[usize; 2]>> {
    if bonds.shape()[1] != 2 {
        return Err(Failure::argument(format!(
            "expected two atoms per bond, found an array of shape {:?}",
            bonds.shape()
        )));
    }
    let atoms = indices(bonds)?;
    Ok(atoms.as_chunks().0.to_vec())
}
