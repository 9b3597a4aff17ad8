//! Kernels that give one result for all frames, on NumPy arrays.

use numpy::{
    IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyReadwriteArray1,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_kernels::placement::{Basis, PlacedFrames};
use paceline_kernels::rows::Frames;
use paceline_kernels::transform::Refused;
use paceline_kernels::{contacts, covariance, density, moments, rdf, site_pairs, superposed};

/// Merge the co-moments of the right into those of the left; the number of frames of both.
#[pyfunction]
pub(super) fn merge_covariance(
    py: Python<'_>,
    left_count: u64,
    mut left_mean: PyReadwriteArray2<'_, f64>,
    mut left_products: PyReadwriteArray1<'_, f64>,
    right_count: u64,
    right_mean: PyReadonlyArray2<'_, f64>,
    right_products: PyReadonlyArray1<'_, f64>,
) -> PyResult<u64> {
    let mut count = left_count;
    let (mean, products) = (left_mean.as_slice_mut()?, left_products.as_slice_mut()?);
    let (right_mean, right_products) = (right_mean.as_slice()?, right_products.as_slice()?);
    py.detach(|| {
        covariance::merge(
            mean,
            products,
            &mut count,
            right_mean,
            right_products,
            right_count,
        )
    })
    .or_raise(py)?;
    Ok(count)
}

/// Add a leaf's rows to mean and sums of squared deviations; the number of rows.
#[pyfunction]
pub(super) fn accumulate_rows(
    py: Python<'_>,
    rows: PyReadonlyArray2<'_, f64>,
    mut mean: PyReadwriteArray2<'_, f64>,
    mut squares: PyReadwriteArray2<'_, f64>,
) -> PyResult<u64> {
    let rows = rows.as_slice()?;
    let (mean, squares) = (mean.as_slice_mut()?, squares.as_slice_mut()?);
    let mut count = 0;
    py.detach(|| moments::accumulate_rows(rows, mean, squares, &mut count))
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

/// Voxels of a grid, in which atoms are counted.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Voxels {
    task: density::Voxels,
}

#[pymethods]
impl Voxels {
    #[new]
    fn new(
        py: Python<'_>,
        columns: PyReadonlyArray1<'_, i64>,
        x: PyReadonlyArray1<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
        z: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<Self> {
        let edges = [x.as_slice()?, y.as_slice()?, z.as_slice()?];
        let task = density::Voxels::new(&indices(columns.as_slice()?)?, edges);
        Ok(Voxels {
            task: task.or_raise(py)?,
        })
    }

    /// The voxel of each atom that is on the grid, in all frames; or the first row that cannot be
    /// counted, and why.
    fn find<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray3<'py, f32>,
    ) -> PyResult<(Bound<'py, PyArray1<u32>>, Option<Refused>)> {
        let n_atoms = positions.shape()[1];
        let positions = positions.as_slice()?;
        let found = py.detach(|| self.task.find(positions, n_atoms));
        Ok(match found.or_raise(py)? {
            Ok(voxels) => (voxels.into_pyarray(py), None),
            Err(refused) => (Vec::new().into_pyarray(py), Some(refused)),
        })
    }
}

/// Add 1 to the count at each of some indices.
#[pyfunction]
pub(super) fn count_indices(
    py: Python<'_>,
    indices: PyReadonlyArray1<'_, u32>,
    mut counts: PyReadwriteArray1<'_, u64>,
) -> PyResult<()> {
    let (indices, counts) = (indices.as_slice()?, counts.as_slice_mut()?);
    py.detach(|| paceline_kernels::count_indices(indices, counts))
        .or_raise(py)
}

/// Frames in which two groups of columns have atoms within a cutoff (Å).
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct ContactMap {
    task: contacts::ContactMap,
}

#[pymethods]
impl ContactMap {
    #[new]
    fn new(
        py: Python<'_>,
        columns: PyReadonlyArray1<'_, i64>,
        sizes: PyReadonlyArray1<'_, i64>,
        cutoff: f64,
        periodic: bool,
    ) -> PyResult<Self> {
        let (columns, sizes) = (indices(columns.as_slice()?)?, indices(sizes.as_slice()?)?);
        let task = contacts::ContactMap::new(&columns, &sizes, cutoff, periodic).or_raise(py)?;
        Ok(ContactMap { task })
    }

    /// Add a block's contacts to `counts`, one for each pair of groups; the first row that cannot
    /// be counted, and why.
    fn count(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
        mut counts: PyReadwriteArray1<'_, u64>,
    ) -> PyResult<Option<Refused>> {
        let n_atoms = positions.shape()[1];
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let counts = counts.as_slice_mut()?;
        py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let frames = Frames::placed(&placed, positions, n_atoms)?;
            self.task.count(&frames, counts)
        })
        .or_raise(py)
    }
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
        cells: PyReadonlyArray2<'_, f64>,
        mut counts: PyReadwriteArray1<'_, u64>,
    ) -> PyResult<(f64, Option<Refused>)> {
        let n_atoms = positions.shape()[1];
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let counts = counts.as_slice_mut()?;
        let counted = py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let (positions, dimensions) = (&placed.positions, &placed.dimensions);
            let counted = self.task.count(positions, n_atoms, dimensions, counts)?;
            Ok(counted.map(|volume| volume + placed.volume()))
        });
        Ok(match counted.or_raise(py)? {
            Ok(volume) => (volume, None),
            Err(refused) => (0.0, Some(refused)),
        })
    }
}

/// Bins of the distance of each atom of a group to each of another, for pairs of groups.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct SitePairs {
    task: site_pairs::SitePairs,
}

#[pymethods]
impl SitePairs {
    #[new]
    #[pyo3(signature = (columns, sizes, pairs, range, nbins, *, needs_cell))]
    fn new(
        py: Python<'_>,
        columns: PyReadonlyArray1<'_, i64>,
        sizes: PyReadonlyArray1<'_, i64>,
        pairs: PyReadonlyArray2<'_, i64>,
        range: (f64, f64),
        nbins: usize,
        needs_cell: bool,
    ) -> PyResult<Self> {
        let (columns, sizes) = (indices(columns.as_slice()?)?, indices(sizes.as_slice()?)?);
        let pairs = indices(pairs.as_slice()?)?;
        let bins = site_pairs::Bins::new(range, nbins).or_raise(py)?;
        let task = site_pairs::SitePairs::new(&columns, &sizes, &pairs, bins, needs_cell);
        Ok(SitePairs {
            task: task.or_raise(py)?,
        })
    }

    /// Of each distance within the bins, in all frames, the index among the bins of all pairs of
    /// atoms; the sum of the cells' volumes (Å³); or the first row that cannot be counted, and why.
    fn find<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray3<'py, f32>,
        cells: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<(Bound<'py, PyArray1<u32>>, f64, Option<Refused>)> {
        let n_atoms = positions.shape()[1];
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let found = py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let frames = Frames::placed(&placed, positions, n_atoms)?;
            let found = self.task.find(&frames)?;
            Ok(found.map(|(found, volume)| (found, volume + placed.volume())))
        });
        Ok(match found.or_raise(py)? {
            Ok((found, volume)) => (found.into_pyarray(py), volume, None),
            Err(refused) => (Vec::new().into_pyarray(py), 0.0, Some(refused)),
        })
    }
}

/// Positions of some columns, as they are or after a superposition.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Superposed(superposed::Superposed);

/// Columns that are superposed, their reference positions (Å), and their weights.
type FitArrays<'py> = (
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray1<'py, f64>>,
);

#[pymethods]
impl Superposed {
    #[new]
    #[pyo3(signature = (columns, fit=None))]
    fn new(
        py: Python<'_>,
        columns: PyReadonlyArray1<'_, i64>,
        fit: Option<FitArrays<'_>>,
    ) -> PyResult<Self> {
        let columns = indices(columns.as_slice()?)?;
        let made = match &fit {
            None => superposed::Superposed::new(&columns, None),
            Some((fitted, reference, weights)) => {
                let fit = superposed::Fit {
                    columns: &indices(fitted.as_slice()?)?,
                    reference: reference.as_slice()?,
                    weights: weights
                        .as_ref()
                        .map(|weights| weights.as_slice())
                        .transpose()?,
                };
                superposed::Superposed::new(&columns, Some(fit))
            }
        };
        made.map(Self).or_raise(py)
    }

    /// Add a leaf's frames to mean (Å) and sums of squared deviations (Å²); the number of frames,
    /// and the sum of their RMSDs (Å).
    fn add_to_moments(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        mut mean: PyReadwriteArray2<'_, f64>,
        mut squares: PyReadwriteArray2<'_, f64>,
    ) -> PyResult<(u64, f64)> {
        let n_atoms = positions.shape()[1];
        let positions = positions.as_slice()?;
        let (mean, squares) = (mean.as_slice_mut()?, squares.as_slice_mut()?);
        let mut count = 0;
        let rmsd = py
            .detach(|| moments::accumulate(positions, n_atoms, &self.0, mean, squares, &mut count))
            .or_raise(py)?;
        Ok((count, rmsd))
    }

    /// Add a leaf's frames to mean (Å) and products of deviations (Å²); the number of frames.
    fn add_to_covariance(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        mut mean: PyReadwriteArray2<'_, f64>,
        mut products: PyReadwriteArray1<'_, f64>,
    ) -> PyResult<u64> {
        let n_atoms = positions.shape()[1];
        let positions = positions.as_slice()?;
        let (mean, products) = (mean.as_slice_mut()?, products.as_slice_mut()?);
        let mut count = 0;
        py.detach(|| {
            covariance::accumulate(positions, n_atoms, &self.0, mean, products, &mut count)
        })
        .or_raise(py)?;
        Ok(count)
    }
}
