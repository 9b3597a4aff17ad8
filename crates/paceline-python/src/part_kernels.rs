//! Kernels over parts of what the frames of a trajectory gave: pairs of frames, series of particles.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray3, PyReadwriteArrayDyn, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use paceline_kernels::correlation::{self, Correlated};
use paceline_kernels::rmsd_matrix;

use super::{OrRaise, indices};

/// RMSDs of frames from one another.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct PairRmsd {
    task: rmsd_matrix::PairRmsd,
}

#[pymethods]
impl PairRmsd {
    #[new]
    #[pyo3(signature = (n_atoms, weights, *, superposition))]
    fn new(
        py: Python<'_>,
        n_atoms: usize,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        superposition: bool,
    ) -> PyResult<Self> {
        let weights = weights
            .as_ref()
            .map(|weights| weights.as_slice())
            .transpose()?;
        let task = rmsd_matrix::PairRmsd::new(n_atoms, weights, superposition).or_raise(py)?;
        Ok(PairRmsd { task })
    }

    /// Fill the RMSD (Å) of each of the first frames from each of the second. Those that are not
    /// larger than the cutoff become 0.
    fn fill(
        &self,
        py: Python<'_>,
        first: PyReadonlyArray3<'_, f32>,
        second: PyReadonlyArray3<'_, f32>,
        cutoff: f64,
        out: Distances<'_>,
    ) -> PyResult<()> {
        let (first, second) = (first.as_slice()?, second.as_slice()?);
        let cut = |x: f64| if x <= cutoff { 0.0 } else { x };
        match out {
            Distances::Single(mut out) => {
                let out = out.as_slice_mut()?;
                py.detach(|| self.task.fill(first, second, |x| cut(x) as f32, out))
            }
            Distances::Double(mut out) => {
                let out = out.as_slice_mut()?;
                py.detach(|| self.task.fill(first, second, cut, out))
            }
        }
        .or_raise(py)
    }
}

/// Distances of pairs of frames: a tile, or the matrix of all pairs; with one axis, of those above
/// its diagonal.
#[derive(FromPyObject)]
pub(super) enum Distances<'py> {
    Single(PyReadwriteArrayDyn<'py, f32>),
    Double(PyReadwriteArrayDyn<'py, f64>),
}

/// Put a tile of frames from `first` and `second` on in a matrix of `n_frames`.
#[pyfunction]
pub(super) fn put_tile(
    py: Python<'_>,
    matrix: Distances<'_>,
    n_frames: usize,
    tile: &Bound<'_, PyAny>,
    first: usize,
    second: usize,
) -> PyResult<()> {
    match matrix {
        Distances::Single(matrix) => put(py, matrix, n_frames, tile, first, second),
        Distances::Double(matrix) => put(py, matrix, n_frames, tile, first, second),
    }
}

/// Put a tile in a matrix of its type.
fn put<T: numpy::Element + Copy + Send + Sync>(
    py: Python<'_>,
    mut matrix: PyReadwriteArrayDyn<'_, T>,
    n_frames: usize,
    tile: &Bound<'_, PyAny>,
    first: usize,
    second: usize,
) -> PyResult<()> {
    let tile: PyReadonlyArray2<'_, T> = tile.extract()?;
    let [height, width] = [tile.shape()[0], tile.shape()[1]];
    let (rows, columns) = (first..first + height, second..second + width);
    let shape = (n_frames, matrix.ndim() == 1);
    let (all, tile) = (matrix.as_slice_mut()?, tile.as_slice()?);
    py.detach(|| rmsd_matrix::put_tile(all, shape, tile, rows, columns))
        .or_raise(py)
}

/// A function of the time between frames, of series of particles.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Correlation {
    task: correlation::Correlation,
    n_frames: usize,
}

/// Values of particles, in single or double precision.
#[derive(FromPyObject)]
enum Series<'py> {
    Single(PyReadonlyArray3<'py, f32>),
    Double(PyReadonlyArray3<'py, f64>),
}

/// Rows of particles, and their sum.
type RowsAndSum<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>);

#[pymethods]
impl Correlation {
    #[new]
    #[pyo3(signature = (correlated, n_frames, width, axes, gaps, *, fft))]
    fn new(
        py: Python<'_>,
        correlated: &str,
        n_frames: usize,
        width: usize,
        axes: PyReadonlyArray1<'_, i64>,
        gaps: PyReadonlyArray1<'_, i64>,
        fft: bool,
    ) -> PyResult<Self> {
        let correlated = match correlated {
            "displacement" => Correlated::Displacement,
            "product" => Correlated::Product,
            other => {
                return Err(PyValueError::new_err(format!(
                    "{other:?} is no correlation"
                )));
            }
        };
        let (axes, gaps) = (indices(axes.as_slice()?)?, indices(gaps.as_slice()?)?);
        let task = correlation::Correlation::new(correlated, n_frames, width, &axes, &gaps, fft);
        Ok(Correlation {
            task: task.or_raise(py)?,
            n_frames,
        })
    }

    /// The function of each particle, a number for each distance in time, and the sum of all.
    fn compute<'py>(&self, py: Python<'py>, series: Series<'py>) -> PyResult<RowsAndSum<'py>> {
        let n_particles = match &series {
            Series::Single(series) => series.shape()[1],
            Series::Double(series) => series.shape()[1],
        };
        let mut out = vec![0.0; n_particles * self.n_frames];
        let mut sum = vec![0.0; self.n_frames];
        match &series {
            Series::Single(series) => {
                let series = series.as_slice()?;
                py.detach(|| self.task.fill(series, &mut out, &mut sum))
            }
            Series::Double(series) => {
                let series = series.as_slice()?;
                py.detach(|| self.task.fill(series, &mut out, &mut sum))
            }
        }
        .or_raise(py)?;
        let rows = out.into_pyarray(py).reshape([n_particles, self.n_frames])?;
        Ok((rows, sum.into_pyarray(py)))
    }
}
