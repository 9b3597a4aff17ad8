//! Kernels on NumPy arrays.

use numpy::{
    PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyReadwriteArray1, PyReadwriteArray2,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_kernels::rmsd::{self, Group};
use paceline_kernels::transform::Refused;
use paceline_kernels::{Columns, moments, rdf, rows};

/// Computes a row of numbers for each frame of a block.
///
/// Constructors take `columns`, those of the analysis's atoms in the block (None: all in order);
/// other indices count these atoms.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct RowKernel(Box<dyn rows::RowKernel>);

impl RowKernel {
    fn new(task: impl rows::RowKernel + 'static) -> Self {
        RowKernel(Box::new(task))
    }
}

/// Reference positions (Å) of a group, and its weights.
type GroupArrays<'py> = (
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray1<'py, f64>>,
);

#[pymethods]
impl RowKernel {
    /// RMSDs (Å) of groups, which follow each other; the others follow the motion of the first.
    #[staticmethod]
    fn rmsd(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        groups: Vec<GroupArrays<'_>>,
        superposition: bool,
    ) -> PyResult<Self> {
        let mut references = Vec::with_capacity(groups.len());
        for (reference, _) in &groups {
            references.push(reference.as_slice()?);
        }
        let n_columns = references.iter().map(|reference| reference.len() / 3).sum();
        let columns = all_columns(columns, n_columns)?;
        let mut rest = &columns[..];
        let mut slices = Vec::with_capacity(groups.len());
        for (reference, (_, weights)) in references.into_iter().zip(&groups) {
            let (columns, behind) = rest.split_at(reference.len() / 3);
            rest = behind;
            slices.push(Group {
                columns,
                reference,
                weights: weights
                    .as_ref()
                    .map(|weights| weights.as_slice())
                    .transpose()?,
            });
        }
        let task = rmsd::Rmsd::new(&slices, superposition);
        task.map(Self::new).or_raise(py)
    }

    /// Numbers of a row.
    #[getter]
    fn n_columns(&self) -> usize {
        self.0.n_columns()
    }

    /// Fill a row for each frame; the first that cannot be computed, and why.
    fn compute(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        dimensions: PyReadonlyArray2<'_, f32>,
        mut out: PyReadwriteArray2<'_, f64>,
    ) -> PyResult<Option<Refused>> {
        let n_atoms = positions.shape()[1];
        let (positions, dimensions) = (positions.as_slice()?, dimensions.as_slice()?);
        let out = out.as_slice_mut()?;
        py.detach(|| {
            let frames = rows::Frames::new(positions, n_atoms, dimensions)?;
            self.0.compute(&frames, out)
        })
        .or_raise(py)
    }
}

/// The columns of an analysis's atoms, of which there must be `n_atoms`.
fn all_columns(columns: Option<PyReadonlyArray1<'_, i64>>, n_atoms: usize) -> PyResult<Vec<usize>> {
    let Some(columns) = columns else {
        return Ok((0..n_atoms).collect());
    };
    let columns = indices(columns.as_slice()?)?;
    if columns.len() != n_atoms {
        return Err(PyValueError::new_err(format!(
            "expected {n_atoms} columns, found {}",
            columns.len()
        )));
    }
    Ok(columns)
}

/// Add a leaf's frames to mean (Å) and sums of squared deviations (Å²); the number of frames.
#[pyfunction]
pub(super) fn accumulate_moments(
    py: Python<'_>,
    positions: PyReadonlyArray3<'_, f32>,
    columns: Option<PyReadonlyArray1<'_, i64>>,
    mut mean: PyReadwriteArray2<'_, f64>,
    mut squares: PyReadwriteArray2<'_, f64>,
) -> PyResult<u64> {
    let n_atoms = positions.shape()[1];
    let columns = match columns {
        Some(columns) => Columns::new(&indices(columns.as_slice()?)?),
        None => Columns::Run(0..n_atoms),
    };
    let positions = positions.as_slice()?;
    let (mean, squares) = (mean.as_slice_mut()?, squares.as_slice_mut()?);
    let mut count = 0;
    py.detach(|| moments::accumulate(positions, n_atoms, &columns, mean, squares, &mut count))
        .or_raise(py)?;
    Ok(count)
}

/// Merge the moments of the right into those of the left; the number of frames of both.
#[pyfunction]
pub(super) fn merge_moments(
    py: Python<'_>,
    left_count: u64,
    mut left_mean: PyReadwriteArray2<'_, f64>,
    mut left_squares: PyReadwriteArray2<'_, f64>,
    right_count: u64,
    right_mean: PyReadonlyArray2<'_, f64>,
    right_squares: PyReadonlyArray2<'_, f64>,
) -> PyResult<u64> {
    let mut count = left_count;
    let (mean, squares) = (left_mean.as_slice_mut()?, left_squares.as_slice_mut()?);
    let (right_mean, right_squares) = (right_mean.as_slice()?, right_squares.as_slice()?);
    py.detach(|| {
        moments::merge(
            mean,
            squares,
            &mut count,
            right_mean,
            right_squares,
            right_count,
        )
    })
    .or_raise(py)?;
    Ok(count)
}

/// Bins of the distances between two groups of columns, or within one.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Rdf {
    task: rdf::Rdf,
}

/// Columns of a group, and a label of each: two atoms of the same label make no pair.
type LabelledColumns<'py> = (
    PyReadonlyArray1<'py, i64>,
    Option<PyReadonlyArray1<'py, u32>>,
);

#[pymethods]
impl Rdf {
    #[new]
    #[pyo3(signature = (edges, first, second, *, needs_cell))]
    fn new(
        py: Python<'_>,
        edges: PyReadonlyArray1<'_, f64>,
        first: LabelledColumns<'_>,
        second: Option<LabelledColumns<'_>>,
        needs_cell: bool,
    ) -> PyResult<Self> {
        let group = |(columns, labels): &LabelledColumns<'_>| {
            let labels = labels
                .as_ref()
                .map(|labels| labels.as_slice())
                .transpose()?;
            rdf::Group::new(&indices(columns.as_slice()?)?, labels).or_raise(py)
        };
        let second = second.as_ref().map(group).transpose()?;
        let task = rdf::Rdf::new(edges.as_slice()?, group(&first)?, second, needs_cell);
        Ok(Rdf {
            task: task.or_raise(py)?,
        })
    }

    /// Add the distances in a block's frames to `counts`; the sum of the cells' volumes (Å³), or
    /// the first row that cannot be counted, and why.
    fn count(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        dimensions: PyReadonlyArray2<'_, f32>,
        mut counts: PyReadwriteArray1<'_, u64>,
    ) -> PyResult<(f64, Option<Refused>)> {
        let n_atoms = positions.shape()[1];
        let (positions, dimensions) = (positions.as_slice()?, dimensions.as_slice()?);
        let counts = counts.as_slice_mut()?;
        let counted = py.detach(|| self.task.count(positions, n_atoms, dimensions, counts));
        Ok(match counted.or_raise(py)? {
            Ok(volume) => (volume, None),
            Err(refused) => (0.0, Some(refused)),
        })
    }
}
