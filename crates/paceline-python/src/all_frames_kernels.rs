//! Kernels that compute one result for all frames, on NumPy arrays: sums over frames, pairs of
//! frames, and time series of particles.

use pyo3::prelude::*;

use super::errors::{Failure, Result};
use super::kernel_macro::kernels;
use super::types::{
    Array1, Array2, Array3, ArrayMut1, ArrayMut2, ArrayMut3, ArrayMutDyn, Indices, NewArray,
    Number, indices,
};
use paceline_kernels::correlation::{self, Correlated};
use paceline_kernels::transform_common::Refused;
use paceline_kernels::{
    Columns, covariance, density_profiles_and_grids, moments, pair_distances_and_contacts,
    projection, rdf, rmsd_matrix, site_pairs,
};

/// Merge the co-moments of the right-hand partial result into the left-hand one. Return the total
/// number of frames.
#[pyfunction]
pub(super) fn merge_covariance(
    py: Python<'_>,
    left_count: u64,
    mut left_mean: ArrayMut2<'_, f64>,
    mut left_products: ArrayMut1<'_, f64>,
    right_count: u64,
    right_mean: Array2<'_, f64>,
    right_products: Array1<'_, f64>,
) -> Result<u64> {
    let mut count = left_count;
    let (mean, products) = (&mut *left_mean, &mut *left_products);
    let (right_mean, right_products) = (&*right_mean, &*right_products);
    py.detach(|| {
        covariance::merge(
            mean,
            products,
            &mut count,
            right_mean,
            right_products,
            right_count,
        )
    })?;
    Ok(count)
}

/// Compute means and sums of squared deviations of the rows of some frames, in arrays of zeros.
/// Return the number of rows.
#[pyfunction]
pub(super) fn accumulate_rows(
    py: Python<'_>,
    rows: Array2<'_, f64>,
    mut mean: ArrayMut2<'_, f64>,
    mut squares: ArrayMut2<'_, f64>,
) -> Result<u64> {
    let (rows, mean, squares) = (&*rows, &mut *mean, &mut *squares);
    let mut count = 0;
    py.detach(|| moments::accumulate_rows(rows, mean, squares, &mut count))?;
    Ok(count)
}

/// Merge the moments of the right-hand partial result into the left-hand one. Return the total
/// number of frames.
#[pyfunction]
pub(super) fn merge_moments(
    py: Python<'_>,
    left_count: u64,
    mut left_mean: ArrayMut2<'_, f64>,
    mut left_squares: ArrayMut2<'_, f64>,
    right_count: u64,
    right_mean: Array2<'_, f64>,
    right_squares: Array2<'_, f64>,
) -> Result<u64> {
    let mut count = left_count;
    let (mean, squares) = (&mut *left_mean, &mut *left_squares);
    let (right_mean, right_squares) = (&*right_mean, &*right_squares);
    py.detach(|| {
        moments::merge(
            mean,
            squares,
            &mut count,
            right_mean,
            right_squares,
            right_count,
        )
    })?;
    Ok(count)
}

/// Add 1 to the count at each index.
#[pyfunction]
pub(super) fn count_indices(
    py: Python<'_>,
    indices: Array1<'_, u32>,
    mut counts: ArrayMut1<'_, u64>,
) -> Result<()> {
    let (indices, counts) = (&*indices, &mut *counts);
    Ok(py.detach(|| paceline_kernels::count_indices(indices, counts))?)
}

kernels! {
    /// Grid of voxels in which atoms are counted.
    pub(super) struct Voxels(density_profiles_and_grids::Voxels);

    new {
        (columns: Indices, x: Array1<'_, f64>, y: Array1<'_, f64>, z: Array1<'_, f64>) {
            density_profiles_and_grids::Voxels::new(&columns, [&x, &y, &z])
        }
    }

    methods {
        /// Return the voxel of each atom that is on the grid, in all frames. If a row cannot be
        /// counted, return the first such row and the reason.
        fn find(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
        ) -> Result<(NewArray<u32, 1>, Option<Refused>)> {
            let (n_atoms, positions) = (positions.shape()[1], &*positions);
            Ok(match py.detach(|| self.0.find(positions, n_atoms))? {
                Ok(voxels) => (voxels.into(), None),
                Err(refused) => (Vec::new().into(), Some(refused)),
            })
        }
    }
}

kernels! {
    /// Kernel that counts, for each pair of groups, the frames in which atoms of both groups are
    /// within a cutoff (Å).
    pub(super) struct ContactMap(pair_distances_and_contacts::ContactMap);

    new {
        (columns: Indices, sizes: Indices, cutoff: f64, periodic: bool) {
            pair_distances_and_contacts::ContactMap::new(&columns, &sizes, cutoff, periodic)
        }
    }

    frames {
        /// Add the contacts of a block to `counts`, one count for each pair of groups. Return the
        /// first row that cannot be counted, with the reason.
        count(|task, frames, _|, counts: ArrayMut1<'_, u64>) -> Option<Refused> {
            task.count(frames, counts)
        }
    }
}

/// Columns of the atoms of a group, and their labels. Two atoms with the same label are not a pair.
type LabelledColumns<'py> = (Indices, Option<Array1<'py, u32>>);

kernels! {
    /// Histogram of the distances between two groups of columns, or within one group.
    pub(super) struct Rdf(rdf::Rdf);

    new {
        #[pyo3(signature = (edges, first, second, *, needs_cell))]
        (
            edges: Array1<'_, f64>,
            first: LabelledColumns<'_>,
            second: Option<LabelledColumns<'_>>,
            needs_cell: bool,
        ) {
            let group = |(columns, labels): LabelledColumns<'_>| {
                rdf::Group::new(&columns, labels.as_deref())
            };
            rdf::Rdf::new(&edges, group(first)?, second.map(group).transpose()?, needs_cell)
        }
    }

    frames {
        /// Add the distances in the frames of a block to `counts`. Return the sum of the cell
        /// volumes (Å³). If a row cannot be counted, return the first such row and the reason.
        count(|task, frames, placed|, counts: ArrayMut1<'_, u64>) -> (f64, Option<Refused>) {
            let (positions, dimensions) = (&placed.positions, &placed.dimensions);
            Ok(match task.count(positions, frames.n_atoms(), dimensions, counts)? {
                Ok(volume) => (volume + placed.volume(), None),
                Err(refused) => (0.0, Some(refused)),
            })
        }
    }
}

kernels! {
    /// Histograms of the distances between single atoms, for pairs of groups.
    pub(super) struct SitePairs(site_pairs::SitePairs);

    new {
        #[pyo3(signature = (columns, sizes, pairs, range, nbins, *, needs_cell))]
        (
            columns: Indices,
            sizes: Indices,
            pairs: Array2<'_, i64>,
            range: (f64, f64),
            nbins: usize,
            needs_cell: bool,
        ) {
            let (pairs, bins) = (indices(&pairs)?, site_pairs::Bins::new(range, nbins)?);
            site_pairs::SitePairs::new(&columns, &sizes, &pairs, bins, needs_cell)
        }
    }

    frames {
        /// Return the index of the bin of each distance within the range, in all frames, and the
        /// sum of the cell volumes (Å³). Bins are numbered over all pairs of atoms. If a row cannot
        /// be counted, return the first such row and the reason.
        find(|task, frames, placed|) -> (NewArray<u32, 1>, f64, Option<Refused>) {
            Ok(match task.find(frames)? {
                Ok((found, volume)) => (found.into(), volume + placed.volume(), None),
                Err(refused) => (Vec::new().into(), 0.0, Some(refused)),
            })
        }
    }
}

/// Columns that are superposed, their reference positions (Å), and their weights.
type FitArrays<'py> = (Indices, Array2<'py, f64>, Option<Array1<'py, f64>>);

kernels! {
    /// Kernel that selects the positions of some columns, and superposes them if there is a `fit`.
    ///
    /// `fit` contains the columns that are superposed, their reference positions (Å), and weights
    /// or None.
    pub(super) struct Superposed(projection::Superposed);

    new {
        #[pyo3(signature = (columns, fit=None))]
        (columns: Indices, fit: Option<FitArrays<'_>>) {
            let fit = fit.as_ref().map(|(columns, reference, weights)| projection::Fit {
                columns,
                reference,
                weights: weights.as_deref(),
            });
            projection::Superposed::new(&columns, fit)
        }
    }

    methods {
        /// Compute means (Å) and sums of squared deviations (Å²) of the positions in some frames,
        /// in arrays of zeros. Return the number of frames, and the sum of their RMSDs (Å).
        fn add_to_moments(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            mut mean: ArrayMut2<'_, f64>,
            mut squares: ArrayMut2<'_, f64>,
        ) -> Result<(u64, f64)> {
            let n_atoms = positions.shape()[1];
            let (positions, mean, squares) = (&*positions, &mut *mean, &mut *squares);
            let mut count = 0;
            let rmsd = py.detach(|| {
                moments::accumulate(positions, n_atoms, &self.0, mean, squares, &mut count)
            });
            Ok((count, rmsd?))
        }

        /// Compute means (Å) and sums of products of deviations (Å²) of the positions in some
        /// frames, in arrays of zeros. Products fill the upper triangle, row by row. Return the
        /// number of frames.
        fn add_to_covariance(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            mut mean: ArrayMut2<'_, f64>,
            mut products: ArrayMut1<'_, f64>,
        ) -> Result<u64> {
            let n_atoms = positions.shape()[1];
            let (positions, mean, products) = (&*positions, &mut *mean, &mut *products);
            let mut count = 0;
            py.detach(|| {
                covariance::accumulate(positions, n_atoms, &self.0, mean, products, &mut count)
            })?;
            Ok(count)
        }
    }
}

/// Return positions relative to their mean. The mean is summed in order, as NumPy sums along the
/// first axis.
#[pyfunction]
pub(super) fn centered(positions: Array2<'_, f64>) -> Result<NewArray<f64, 2>> {
    let (rows, rest) = positions.as_chunks::<3>();
    if positions.shape()[1] != 3 || !rest.is_empty() {
        return Err(Failure::argument("positions must be of shape (n, 3)"));
    }
    let mut sum = [0.0; 3];
    for row in rows {
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum += value;
        }
    }
    let mean = sum.map(|sum| sum / rows.len() as f64);
    let centered = rows
        .iter()
        .flat_map(|row| [0, 1, 2].map(|k| row[k] - mean[k]));
    Ok(NewArray::new(centered.collect(), [rows.len(), 3]))
}

kernels! {
    /// RMSDs between pairs of frames.
    pub(super) struct PairRmsd(rmsd_matrix::PairRmsd);

    new {
        #[pyo3(signature = (n_atoms, weights, *, superposition))]
        (n_atoms: usize, weights: Option<Array1<'_, f64>>, superposition: bool) {
            rmsd_matrix::PairRmsd::new(n_atoms, weights.as_deref(), superposition)
        }
    }

    methods {
        /// Write the RMSD (Å) of each frame of `first` from each frame of `second` to `out`. RMSDs
        /// that are at most the cutoff become 0.
        fn fill(
            &self,
            py: Python<'_>,
            first: Array3<'_, f32>,
            second: Array3<'_, f32>,
            cutoff: f64,
            out: Distances<'_>,
        ) -> Result<()> {
            let (first, second) = (&*first, &*second);
            let cut = |x: f64| if x <= cutoff { 0.0 } else { x };
            match out {
                Distances::Single(mut out) => {
                    let out = &mut *out;
                    py.detach(|| self.0.fill(first, second, |x| cut(x) as f32, out))?;
                }
                Distances::Double(mut out) => {
                    let out = &mut *out;
                    py.detach(|| self.0.fill(first, second, cut, out))?;
                }
            }
            Ok(())
        }
    }
}

/// Distances of pairs of frames: a tile, or the matrix of all pairs. An array with one axis
/// contains only the pairs above the diagonal.
#[derive(FromPyObject)]
pub(super) enum Distances<'py> {
    Single(ArrayMutDyn<'py, f32>),
    Double(ArrayMutDyn<'py, f64>),
}

/// Distances between two sets of frames.
#[derive(FromPyObject)]
pub(super) enum Tile<'py> {
    Single(Array2<'py, f32>),
    Double(Array2<'py, f64>),
}

/// Copy a tile into a matrix of `n_frames` frames, beginning at row `first` and column `second`.
#[pyfunction]
pub(super) fn put_tile(
    py: Python<'_>,
    matrix: Distances<'_>,
    n_frames: usize,
    tile: Tile<'_>,
    first: usize,
    second: usize,
) -> Result<()> {
    let places = (n_frames, first, second);
    match (matrix, tile) {
        (Distances::Single(matrix), Tile::Single(tile)) => put(py, matrix, tile, places),
        (Distances::Double(matrix), Tile::Double(tile)) => put(py, matrix, tile, places),
        _ => Err(Failure::argument(
            "a tile must have the dtype of its matrix",
        )),
    }
}

/// Copy the given atoms of each frame of a block to the block `out`.
#[pyfunction]
pub(super) fn copy_atoms(
    py: Python<'_>,
    positions: Array3<'_, f32>,
    atoms: Indices,
    mut out: ArrayMut3<'_, f32>,
) -> Result<()> {
    let (n_atoms, columns) = (positions.shape()[1], Columns::new(&atoms));
    let (positions, out) = (&*positions, &mut *out);
    Ok(py.detach(|| columns.copy(positions, n_atoms, out))?)
}

/// Copy a tile into a matrix that has the same type of numbers.
fn put<T: Number>(
    py: Python<'_>,
    mut matrix: ArrayMutDyn<'_, T>,
    tile: Array2<'_, T>,
    (n_frames, first, second): (usize, usize, usize),
) -> Result<()> {
    let [height, width] = [tile.shape()[0], tile.shape()[1]];
    let (rows, columns) = (first..first + height, second..second + width);
    let shape = (n_frames, matrix.shape().len() == 1);
    let (all, tile) = (&mut *matrix, &*tile);
    Ok(py.detach(|| rmsd_matrix::put_tile(all, shape, tile, rows, columns))?)
}

/// Function of the lag time, computed from time series of particles.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Correlation {
    task: correlation::Correlation,
    n_frames: usize,
}

/// Time series of particles, shape (frames, particles, width), in single or double precision.
#[derive(FromPyObject)]
enum Series<'py> {
    Single(Array3<'py, f32>),
    Double(Array3<'py, f64>),
}

/// One row for each particle, and the sum of these rows.
type RowsAndSum = (NewArray<f64, 2>, NewArray<f64, 1>);

#[pymethods]
impl Correlation {
    #[new]
    #[pyo3(signature = (correlated, n_frames, width, axes, gaps, *, fft))]
    fn new(
        correlated: &str,
        n_frames: usize,
        width: usize,
        axes: Indices,
        gaps: Indices,
        fft: bool,
    ) -> Result<Self> {
        let correlated = match correlated {
            "displacement" => Correlated::Displacement,
            "product" => Correlated::Product,
            other => {
                return Err(Failure::argument(format!("unknown correlation {other:?}")));
            }
        };
        let task = correlation::Correlation::new(correlated, n_frames, width, &axes, &gaps, fft);
        Ok(Correlation {
            task: task?,
            n_frames,
        })
    }

    /// Compute the function of each particle (one number for each lag), and the sum of the
    /// functions of all particles.
    fn compute(&self, py: Python<'_>, series: Series<'_>) -> Result<RowsAndSum> {
        let n_particles = match &series {
            Series::Single(series) => series.shape()[1],
            Series::Double(series) => series.shape()[1],
        };
        let mut out = vec![0.0; n_particles * self.n_frames];
        let mut sum = vec![0.0; self.n_frames];
        match &series {
            Series::Single(series) => {
                let series = &**series;
                py.detach(|| self.task.fill(series, &mut out, &mut sum))
            }
            Series::Double(series) => {
                let series = &**series;
                py.detach(|| self.task.fill(series, &mut out, &mut sum))
            }
        }?;
        let rows = NewArray::new(out, [n_particles, self.n_frames]);
        Ok((rows, sum.into()))
    }
}
