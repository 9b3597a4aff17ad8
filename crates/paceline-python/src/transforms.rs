//! Transformations of frames on NumPy arrays.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray3, PyReadwriteArray2, PyReadwriteArray3, PyUntypedArrayMethods, ToPyArray,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_formats::CELL_WIDTH;
use paceline_kernels::center_group::Center;
use paceline_kernels::fit_group::{Fit, Freedom};
use paceline_kernels::nojump::{self, molecules};
use paceline_kernels::placement::{Basis, PlacedFrames, change_placed};
use paceline_kernels::unwrap::Unwrap;
use paceline_kernels::wrap::Wrap;
use paceline_kernels::{transform, unwrap};

/// Weighted means (Å) of groups of atoms in each frame, shape (frames, groups, 3): `atoms` follow
/// each other, `sizes` of each group, and have one weight each.
#[pyfunction]
pub(super) fn centers<'py>(
    py: Python<'py>,
    positions: PyReadonlyArray3<'py, f32>,
    atoms: PyReadonlyArray1<'py, i64>,
    sizes: PyReadonlyArray1<'py, i64>,
    weights: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let shape = positions.shape();
    let (n_frames, n_atoms) = (shape[0], shape[1]);
    let (atoms, sizes) = (indices(atoms.as_slice()?)?, indices(sizes.as_slice()?)?);
    let (positions, weights) = (positions.as_slice()?, weights.as_slice()?);
    let found = py.detach(|| transform::centres(positions, n_atoms, &atoms, &sizes, weights));
    let found = found.or_raise(py)?.into_pyarray(py);
    found.reshape([n_frames, sizes.len(), 3])
}

/// Steps of molecules' centers (Å) from the first frame to each, in whole numbers of 2⁻²⁴ Å, given the
/// cells, none of which is missing.
#[pyfunction]
pub(super) fn molecule_steps<'py>(
    py: Python<'py>,
    centers: PyReadonlyArray3<'py, f64>,
    cells: PyReadonlyArray2<'py, f64>,
) -> PyResult<Bound<'py, PyArray3<i64>>> {
    let (shape, width) = (centers.shape().to_vec(), cells.shape()[1]);
    if shape[2] != 3 || width != CELL_WIDTH {
        return Err(PyValueError::new_err(format!(
            "expected centers in three dimensions and cells of {CELL_WIDTH} numbers, found arrays \
             of shapes {shape:?} and {:?}",
            cells.shape()
        )));
    }
    let (centers, _) = centers.as_slice()?.as_chunks();
    let (cells, _) = cells.as_slice()?.as_chunks();
    let steps = py
        .detach(|| molecules::steps(centers, cells))
        .or_raise(py)?;
    let steps = steps.into_flattened().into_pyarray(py);
    steps.reshape([shape[0], shape[1], 3])
}

/// Move molecules in some rows of a block (Å) by such steps: `atoms` follow each other, `sizes` of each
/// molecule.
#[pyfunction]
pub(super) fn move_molecules(
    py: Python<'_>,
    mut positions: PyReadwriteArray3<'_, f32>,
    rows: PyReadonlyArray1<'_, i64>,
    atoms: PyReadonlyArray1<'_, i64>,
    sizes: PyReadonlyArray1<'_, i64>,
    steps: PyReadonlyArray3<'_, i64>,
) -> PyResult<()> {
    let n_atoms = positions.shape()[1];
    check_atoms(positions.shape(), n_atoms)?;
    let [rows, atoms, sizes] = [&rows, &atoms, &sizes].map(|of| indices(of.as_slice()?));
    let (rows, atoms, sizes) = (rows?, atoms?, sizes?);
    let (steps, _) = steps.as_slice()?.as_chunks();
    let positions = positions.as_slice_mut()?;
    let moved =
        py.detach(|| molecules::move_by(steps, &rows, positions, n_atoms, (&atoms, &sizes)));
    moved.or_raise(py)
}

/// A change of all frames of a block, in place.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Transform(Box<dyn transform::Transform>);

impl Transform {
    fn new(task: impl transform::Transform + 'static) -> Self {
        Transform(Box::new(task))
    }
}

#[pymethods]
impl Transform {
    /// Molecules made whole along their bonds.
    #[staticmethod]
    fn unwrap(py: Python<'_>, n_atoms: usize, bonds: PyReadonlyArray2<'_, i64>) -> PyResult<Self> {
        let bonds = pairs(&bonds)?;
        let task = py.detach(|| Unwrap::new(n_atoms, &bonds));
        task.map(Self::new).or_raise(py)
    }

    /// A group of atoms brought to a point (Å; None: the middle of the cell), the others with it.
    #[staticmethod]
    fn center(
        py: Python<'_>,
        n_atoms: usize,
        atoms: PyReadonlyArray1<'_, i64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        point: Option<[f64; 3]>,
        wrap: bool,
    ) -> PyResult<Self> {
        let atoms = indices(atoms.as_slice()?)?;
        let weights = weights.as_ref().map(|w| w.as_slice()).transpose()?;
        let task = Center::new(n_atoms, &atoms, weights, point, wrap);
        task.map(Self::new).or_raise(py)
    }

    /// Compounds brought back into the cell: `sizes` are those of neighbours in `atoms`.
    #[staticmethod]
    fn wrap(
        py: Python<'_>,
        n_atoms: usize,
        atoms: PyReadonlyArray1<'_, i64>,
        sizes: PyReadonlyArray1<'_, i64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let atoms = indices(atoms.as_slice()?)?;
        let sizes = indices(sizes.as_slice()?)?;
        let weights = weights.as_ref().map(|w| w.as_slice()).transpose()?;
        let task = Wrap::new(n_atoms, &atoms, &sizes, weights);
        task.map(Self::new).or_raise(py)
    }

    /// All atoms moved as a rigid body, so that a group of them lies on its reference (Å).
    #[staticmethod]
    fn fit(
        py: Python<'_>,
        n_atoms: usize,
        atoms: PyReadonlyArray1<'_, i64>,
        reference: PyReadonlyArray2<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        rotation: bool,
        normal: Option<usize>,
    ) -> PyResult<Self> {
        if normal.is_some_and(|axis| axis > 2) {
            let reason = "the normal of a plane is axis 0, 1 or 2";
            return Err(PyValueError::new_err(reason));
        }
        let atoms = indices(atoms.as_slice()?)?;
        let reference = reference.as_slice()?;
        let weights = weights.as_ref().map(|w| w.as_slice()).transpose()?;
        let task = Fit::new(
            n_atoms,
            &atoms,
            reference,
            weights,
            Freedom { rotation, normal },
        );
        task.map(Self::new).or_raise(py)
    }

    /// Change positions (Å) of frames with these cells, and with them what turns with a frame: its
    /// cell, and `vectors` of its atoms. The rows that could not be changed, and why; and rows with
    /// bonds that are longer than half the cell afterwards.
    fn apply(
        &self,
        py: Python<'_>,
        mut positions: PyReadwriteArray3<'_, f32>,
        mut cells: PyReadwriteArray2<'_, f64>,
        mut vectors: Vec<PyReadwriteArray3<'_, f32>>,
    ) -> PyResult<(Vec<transform::Refused>, Vec<transform::LongBonds>)> {
        let n_atoms = self.0.n_atoms();
        check_atoms(positions.shape(), n_atoms)?;
        let positions = positions.as_slice_mut()?;
        let cells = cells.as_slice_mut()?;
        let mut notes = transform::Notes::default();
        let changed = py.detach(|| {
            let refused = transform::apply_in_cells(&*self.0, positions, cells, &mut notes)?;
            transform::turn_cells(cells, &notes.turns);
            Ok(refused)
        });
        let refused = changed.or_raise(py)?;
        for array in &mut vectors {
            check_atoms(array.shape(), n_atoms)?;
            let array = array.as_slice_mut()?;
            py.detach(|| transform::turn_vectors(array, n_atoms, &notes.turns));
        }
        Ok((refused, notes.long))
    }
}

pub(super) fn check_atoms(shape: &[usize], n_atoms: usize) -> PyResult<()> {
    if shape[1..] == [n_atoms, 3] {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "expected positions of {n_atoms} atoms, found an array of shape {shape:?}"
    )))
}

/// Atoms followed across the faces of the cell.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct NoJump(nojump::NoJump);

/// Images in the last frame, and in the frames that were asked for.
type Scanned<'py> = (Bound<'py, PyArray2<i16>>, Bound<'py, PyArray3<i16>>);

#[pymethods]
impl NoJump {
    #[new]
    fn new(py: Python<'_>, n_atoms: usize, atoms: PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let atoms = indices(atoms.as_slice()?)?;
        nojump::NoJump::new(n_atoms, &atoms).map(Self).or_raise(py)
    }

    /// Refuse rows without a cell or with positions that are not finite, which become NaN.
    fn check(
        &self,
        py: Python<'_>,
        mut positions: PyReadwriteArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
    ) -> PyResult<Vec<transform::Refused>> {
        check_atoms(positions.shape(), transform::Transform::n_atoms(&self.0))?;
        let (positions, cells) = (positions.as_slice_mut()?, cells.as_slice()?);
        let mut notes = transform::Notes::default();
        py.detach(|| transform::apply_in_cells(&self.0, positions, cells, &mut notes))
            .or_raise(py)
    }

    /// Count images over frames, relative to the first of them; note them in some rows.
    fn scan<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray3<'py, f32>,
        cells: PyReadonlyArray2<'py, f64>,
        rows: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Scanned<'py>> {
        let n_atoms = transform::Transform::n_atoms(&self.0);
        check_atoms(positions.shape(), n_atoms)?;
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let rows = indices(rows.as_slice()?)?;
        let scan = py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Own)?;
            self.0.scan(&placed.positions, &placed.dimensions, &rows)
        });
        let scan = scan.or_raise(py)?;
        let n = self.0.n_followed();
        let (moved, noted) = (scan.moved.into_flattened(), scan.noted.into_flattened());
        Ok((
            moved.into_pyarray(py).reshape([n, 3])?,
            noted.into_pyarray(py).reshape([rows.len(), n, 3])?,
        ))
    }

    /// Move atoms (Å) to their images, which are those of each frame or of the first; the rows that
    /// could not be changed, and why.
    fn move_to(
        &self,
        py: Python<'_>,
        images: PyReadonlyArray3<'_, i16>,
        mut positions: PyReadwriteArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
    ) -> PyResult<Vec<transform::Refused>> {
        let n_atoms = transform::Transform::n_atoms(&self.0);
        check_atoms(positions.shape(), n_atoms)?;
        let (images, _) = images.as_slice()?.as_chunks();
        let (positions, cells) = (positions.as_slice_mut()?, cells.as_slice()?);
        let change = |positions: &mut [f32], dimensions: &[f32], _: &[_]| {
            self.0.move_to(images, positions, dimensions)
        };
        py.detach(|| change_placed(positions, n_atoms, cells, Some(Basis::Own), change))
            .or_raise(py)
    }
}

/// Atoms that are moved to their images, block after block, from the first frame of a trajectory on.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct NoJumpFollower(nojump::Follower);

#[pymethods]
impl NoJumpFollower {
    #[new]
    fn new(task: &NoJump, skip_damaged: bool) -> Self {
        Self(nojump::Follower::new(task.0.clone(), skip_damaged))
    }

    /// Move atoms (Å) in block `number` as those before it are moved, and note images in the first row
    /// that is changed; the rows that could not be, and why. None if the follower was closed.
    #[pyo3(signature = (number, positions, cells, begin=None))]
    fn move_on(
        &self,
        py: Python<'_>,
        number: usize,
        mut positions: PyReadwriteArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
        mut begin: Option<PyReadwriteArray2<'_, i16>>,
    ) -> PyResult<Option<Vec<transform::Refused>>> {
        let n_atoms = self.0.n_atoms();
        check_atoms(positions.shape(), n_atoms)?;
        let (positions, cells) = (positions.as_slice_mut()?, cells.as_slice()?);
        let begin = match &mut begin {
            Some(begin) => Some(begin.as_slice_mut()?.as_chunks_mut().0),
            None => None,
        };
        let change = |positions: &mut [f32], dimensions: &[f32], _: &[_]| {
            self.0.move_on(number, positions, dimensions, begin)
        };
        py.detach(|| change_placed(positions, n_atoms, cells, Some(Basis::Own), change))
            .or_raise(py)
    }

    /// Release the threads that wait; no other block is moved.
    fn close(&self) {
        self.0.close();
    }
}

/// Return the first atom of each atom's fragment.
#[pyfunction]
pub(super) fn fragments<'py>(
    py: Python<'py>,
    n_atoms: usize,
    bonds: PyReadonlyArray2<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let bonds = pairs(&bonds)?;
    let first = py.detach(|| unwrap::fragments(n_atoms, &bonds));
    let first: Vec<i64> = first
        .or_raise(py)?
        .into_iter()
        .map(|atom| atom as i64)
        .collect();
    Ok(first.to_pyarray(py))
}

pub(super) fn pairs(bonds: &PyReadonlyArray2<'_, i64>) -> PyResult<Vec<[usize; 2]>> {
    if bonds.shape()[1] != 2 {
        return Err(PyValueError::new_err(format!(
            "expected two atoms a bond, found an array of shape {:?}",
            bonds.shape()
        )));
    }
    let atoms = indices(bonds.as_slice()?)?;
    Ok(atoms.as_chunks().0.to_vec())
}
