//! Kernels over results from all frames of a trajectory: pairs of frames, and series of particles.

use pyo3::prelude::*;

use super::arrays::{Array1, Array2, Array3, ArrayMut3, ArrayMutDyn, Indices, NewArray, Number};
use super::errors::{Failure, Result};
use super::kernels::kernels;
use paceline_kernels::correlation::{self, Correlated};
use paceline_kernels::{Columns, rmsd_matrix};

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
        /// Fill the RMSD (Å) of each of the first frames from each of the second. RMSDs that are at
        /// most the cutoff become 0.
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

/// Copy a tile into a matrix of `n_frames`. `first` and `second` are its first row and column.
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

/// Copy atoms of each frame of a block to another block.
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

/// Function of the lag time, computed from series of particles.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Correlation {
    task: correlation::Correlation,
    n_frames: usize,
}

/// Values of particles, in single or double precision.
#[derive(FromPyObject)]
enum Series<'py> {
    Single(Array3<'py, f32>),
    Double(Array3<'py, f64>),
}

/// Rows of particles, and the sum of the rows.
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

    /// Compute the function of each particle, a number for each lag, and the sum over all
    /// particles.
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
