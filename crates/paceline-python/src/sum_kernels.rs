//! Kernels that compute one result for all frames, on NumPy arrays.

use pyo3::prelude::*;

use super::arrays::{Array1, Array2, Array3, ArrayMut1, ArrayMut2, Indices, NewArray, indices};
use super::errors::{Failure, Result};
use super::kernels::kernels;
use paceline_kernels::transform_interface::Refused;
use paceline_kernels::{contacts, covariance, density, moments, projection, rdf, site_pairs};

/// Merge the co-moments of the right-hand partial result into the left-hand one. Return the number
/// of frames of both.
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

/// Add the rows of some frames to means and sums of squared deviations. Return the number of rows.
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

/// Merge the moments of the right-hand partial result into the left-hand one. Return the number of
/// frames of both.
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
    pub(super) struct Voxels(density::Voxels);

    new {
        (columns: Indices, x: Array1<'_, f64>, y: Array1<'_, f64>, z: Array1<'_, f64>) {
            density::Voxels::new(&columns, [&x, &y, &z])
        }
    }

    methods {
        /// Return the voxel of each atom on the grid, in all frames, or the first row that cannot
        /// be counted, with the reason.
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
    /// Counts of frames in which two groups have atoms within a cutoff (Å).
    pub(super) struct ContactMap(contacts::ContactMap);

    new {
        (columns: Indices, sizes: Indices, cutoff: f64, periodic: bool) {
            contacts::ContactMap::new(&columns, &sizes, cutoff, periodic)
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

/// Columns of a group, and labels. Two atoms with the same label are not a pair.
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
        /// volumes (Å³), or the first row that cannot be counted, with the reason.
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
        /// sum of the cell volumes (Å³). Indices count the bins of all pairs of atoms. If a row
        /// cannot be counted, return the first such row and the reason.
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
    /// Positions of some columns, with or without superposition.
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
        /// Add the frames of a partial result to means (Å) and sums of squared deviations (Å²).
        /// Return the number of frames, and the sum of their RMSDs (Å).
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

        /// Add the frames of a partial result to means (Å) and sums of products of deviations (Å²).
        /// Products fill the upper triangle, row by row. Return the number of frames.
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

/// Return positions relative to their mean. The mean is summed in order, like NumPy along the first
/// axis.
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
