//! Transformations of frames on NumPy arrays.

use numpy::{
    PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray3, PyUntypedArrayMethods,
    ToPyArray,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_kernels::center_group::Center;
use paceline_kernels::fit_group::{Fit, Freedom};
use paceline_kernels::unwrap::Unwrap;
use paceline_kernels::wrap::Wrap;
use paceline_kernels::{transform, unwrap};

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

    /// Change positions (Å) of frames with these cells (Å and degrees); the rows that could not be
    /// changed, and why; and rows with bonds that are longer than half the cell afterwards.
    fn apply(
        &self,
        py: Python<'_>,
        mut positions: PyReadwriteArray3<'_, f32>,
        dimensions: PyReadonlyArray2<'_, f32>,
    ) -> PyResult<(Vec<transform::Refused>, Vec<transform::LongBonds>)> {
        let n_atoms = self.0.n_atoms();
        if positions.shape()[1..] != [n_atoms, 3] {
            return Err(PyValueError::new_err(format!(
                "expected positions of {n_atoms} atoms, found an array of shape {:?}",
                positions.shape()
            )));
        }
        let (positions, dimensions) = (positions.as_slice_mut()?, dimensions.as_slice()?);
        let mut long = Vec::new();
        let refused = py.detach(|| self.0.apply_noting(positions, dimensions, &mut long));
        Ok((refused.or_raise(py)?, long))
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

fn pairs(bonds: &PyReadonlyArray2<'_, i64>) -> PyResult<Vec<[usize; 2]>> {
    if bonds.shape()[1] != 2 {
        return Err(PyValueError::new_err(format!(
            "expected two atoms a bond, found an array of shape {:?}",
            bonds.shape()
        )));
    }
    let atoms = indices(bonds.as_slice()?)?;
    Ok(atoms.as_chunks().0.to_vec())
}
