//! Looks for molecules whose parts are in different images, on NumPy arrays.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray3, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

use super::transforms::{check_atoms, pairs};
use super::{OrRaise, indices};
use paceline_kernels::placement::{Basis, PlacedFrames};
use paceline_kernels::whole;

/// Pairs of atoms, the bonds of the path between each two, and atoms to be decoded for these.
type Links<'py> = (
    Bound<'py, PyArray2<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
);

/// Find the paths of at most `longest` bonds between wanted atoms.
#[pyfunction]
pub(super) fn links<'py>(
    py: Python<'py>,
    n_atoms: usize,
    bonds: PyReadonlyArray2<'py, i64>,
    wanted: PyReadonlyArray1<'py, i64>,
    longest: usize,
) -> PyResult<Links<'py>> {
    let (bonds, wanted) = (pairs(&bonds)?, indices(wanted.as_slice()?)?);
    let found = py.detach(|| whole::Links::new(n_atoms, &bonds, &wanted, longest));
    let whole::Links {
        pairs,
        lengths,
        added,
    } = found.or_raise(py)?;
    let signed = |values: &[usize]| -> Vec<i64> { values.iter().map(|&x| x as i64).collect() };
    Ok((
        signed(pairs.as_flattened())
            .into_pyarray(py)
            .reshape([pairs.len(), 2])?,
        signed(&lengths).into_pyarray(py),
        signed(&added).into_pyarray(py),
    ))
}

/// Groups of atoms, of whose molecules no two parts may be in different images.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Whole(whole::Whole);

#[pymethods]
impl Whole {
    /// `links` are pairs of atoms, of `lengths` bonds each; `contacts` are of different molecules.
    #[new]
    fn new(
        py: Python<'_>,
        n_atoms: usize,
        links: (PyReadonlyArray2<'_, i64>, PyReadonlyArray1<'_, i64>),
        longest: usize,
        groups: Vec<PyReadonlyArray1<'_, i64>>,
        contacts: PyReadonlyArray2<'_, i64>,
    ) -> PyResult<Self> {
        let (bonds, lengths) = (pairs(&links.0)?, indices(links.1.as_slice()?)?);
        let groups: PyResult<_> = groups.iter().map(|one| indices(one.as_slice()?)).collect();
        let (groups, contacts) = (groups?, pairs(&contacts)?);
        py.detach(|| whole::Whole::new(n_atoms, (&bonds, &lengths), longest, groups, contacts))
            .map(Self)
            .or_raise(py)
    }

    /// Rows of frames in which a molecule is broken, and of others in which a contact is; of each the
    /// two atoms that are farthest apart, and their distance, Å.
    fn look(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
    ) -> PyResult<(Vec<whole::Apart>, Vec<whole::Apart>)> {
        check_atoms(positions.shape(), self.0.n_atoms())?;
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let look = || {
            let placed = PlacedFrames::new(positions, self.0.n_atoms(), cells, Basis::Compact)?;
            self.0.look(&placed.positions, &placed.dimensions)
        };
        py.detach(look).or_raise(py)
    }
}
