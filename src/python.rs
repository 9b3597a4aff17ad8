//! The only file that knows Python. Each call checks its arguments, takes slices, releases the
//! interpreter, calls plain Rust, and converts the error.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use numpy::{
    PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyReadwriteArray1,
    PyReadwriteArray2, PyReadwriteArray3, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::atoms::Atoms;
use crate::error::{Error, Result};
use crate::formats::{Format, Layout};
use crate::index::{self, Fingerprint, Index, OpenOptions, Origin};
use crate::kernels::rmsd::{self, Group};
use crate::kernels::{Columns, moments};
use crate::read::{BlockOut, BlockReader, Extents};
use crate::source::{FileSource, Source};

/// Raise the exception of `paceline.errors` or the built-in one that says the same.
fn raise(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    let ours = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        py.import("paceline.errors")?.getattr(name)?.call1((&text,))
    };
    let made = match error {
        Error::Damaged {
            path,
            frame,
            offset,
            expected,
            found,
        } => ours("DamagedFileError").and_then(|error| {
            error.setattr("path", path)?;
            error.setattr("frame", frame)?;
            error.setattr("offset", offset)?;
            error.setattr("expected", expected)?;
            error.setattr("found", found)?;
            Ok(error)
        }),
        Error::Unsupported { .. } => ours("UnsupportedError"),
        Error::Changed { .. } => ours("FileChangedError"),
        Error::Io {
            path,
            action,
            source,
        } => {
            // With an errno, Python makes a FileNotFoundError, PermissionError, … of it.
            let reason = format!("{action}: {source}");
            return match source.raw_os_error() {
                Some(errno) => PyOSError::new_err((errno, reason, path)),
                None => PyOSError::new_err(text),
            };
        }
        Error::Argument(reason) => return PyValueError::new_err(reason),
        Error::Interrupted => return PyKeyboardInterrupt::new_err(()),
    };
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, error))
    }
}

/// Offsets and sizes of frames.
type ExtentArrays<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>);

/// A trajectory file and its frame index.
#[pyclass(frozen, module = "paceline._core")]
struct Trajectory {
    index: Index,
    source: Arc<FileSource>,
    path: PathBuf,
}

#[pymethods]
impl Trajectory {
    #[staticmethod]
    #[pyo3(signature = (path, *, cache_folder=None, refresh=false, n_threads=1, progress=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        cache_folder: Option<PathBuf>,
        refresh: bool,
        n_threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let refused = Mutex::new(None);
        // Runs in this thread now and then, so that Ctrl-C ends a long scan.
        let report = |done: u64, total: u64| {
            Python::attach(|py| {
                let told = py.check_signals().and_then(|()| match &progress {
                    Some(progress) => progress.call1(py, (done, total)).map(drop),
                    None => Ok(()),
                });
                match told {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        *refused.lock().unwrap_or_else(|lock| lock.into_inner()) = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })
        };
        let opened = py.detach(|| {
            let source = Arc::new(FileSource::open(&path)?);
            let options = OpenOptions {
                index_files: index::index_files(&path, cache_folder.as_deref()),
                refresh,
                n_threads,
                progress: &report,
            };
            let index = index::open(source.clone(), &options)?;
            Ok((index, source))
        });
        if let Some(error) = refused
            .into_inner()
            .unwrap_or_else(|lock| lock.into_inner())
        {
            return Err(error);
        }
        let (index, source) = opened.or_raise(py)?;
        Ok(Trajectory {
            index,
            source,
            path,
        })
    }

    #[getter]
    fn path(&self) -> &std::path::Path {
        &self.path
    }

    #[getter]
    fn format(&self) -> &'static str {
        self.index.layout().name()
    }

    #[getter]
    fn n_atoms(&self) -> usize {
        self.index.n_atoms()
    }

    #[getter]
    fn n_frames(&self) -> u64 {
        self.index.n_frames()
    }

    /// Bytes of the file when it was indexed.
    #[getter]
    fn size(&self) -> u64 {
        self.index.fingerprint().size()
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.index.fingerprint().to_string()
    }

    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.index.layout().to_bytes())
    }

    /// What a user should be told of the file.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.index.notes().to_vec()
    }

    /// Where the index is saved, if it is.
    #[getter]
    fn index_file(&self) -> Option<PathBuf> {
        self.index.index_file().map(PathBuf::from)
    }

    /// How the index came about.
    #[getter]
    fn index_origin(&self) -> &'static str {
        match self.index.origin() {
            Origin::Computed => "computed",
            Origin::Scanned => "scanned",
            Origin::Extended => "extended",
            Origin::Loaded => "loaded",
        }
    }

    /// Time between frames as the header has it, ps; None where only frames tell.
    #[getter]
    fn dt(&self) -> Option<f64> {
        match self.index.layout() {
            Layout::Xtc { .. } => None,
            Layout::Dcd(layout) => Some(layout.dt()),
        }
    }

    /// What the first frame counts as where times are numbers of frames.
    #[getter]
    fn first(&self) -> f64 {
        match self.index.layout() {
            Layout::Xtc { .. } => 0.0,
            Layout::Dcd(layout) => layout.first(),
        }
    }

    /// Bytes read from the trajectory so far, and calls made.
    #[getter]
    fn traffic(&self) -> (u64, u64) {
        let traffic = self.source.traffic();
        (traffic.bytes, traffic.calls)
    }

    fn extents<'py>(
        &self,
        py: Python<'py>,
        frames: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<ExtentArrays<'py>> {
        let n_frames = self.index.n_frames();
        let frames = frames.as_slice()?;
        if let Some(frame) = frames.iter().find(|&&frame| frame >= n_frames) {
            return Err(PyValueError::new_err(format!(
                "frame {frame} is out of range for {n_frames} frames"
            )));
        }
        let (offsets, sizes): (Vec<u64>, Vec<u64>) =
            frames.iter().map(|&frame| self.index.extent(frame)).unzip();
        Ok((
            PyArray1::from_vec(py, offsets),
            PyArray1::from_vec(py, sizes),
        ))
    }

    /// Time (ps) and step of every frame.
    fn times<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>)> {
        let times = py.detach(|| self.index.times()).or_raise(py)?;
        Ok((
            PyArray1::from_vec(py, times.times),
            PyArray1::from_vec(py, times.steps),
        ))
    }

    /// Raise FileChangedError where the file of this name is not the one that was opened.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let source = FileSource::open(&self.path)?;
            self.index.fingerprint().verify(&source)
        })
        .or_raise(py)
    }
}

/// The format of a file by its first bytes; None where it is none of ours.
#[pyfunction]
fn detect_format(py: Python<'_>, path: PathBuf) -> PyResult<Option<&'static str>> {
    py.detach(|| {
        let source = FileSource::open(&path)?;
        let mut head = vec![0; source.size()?.min(Format::HEAD_LEN as u64) as usize];
        source.read_at(0, &mut head)?;
        Ok(Format::detect(&head).map(Format::name))
    })
    .or_raise(py)
}

/// One worker's hand on a trajectory file.
#[pyclass(frozen, module = "paceline._core")]
struct Reader {
    blocks: Mutex<BlockReader>,
}

/// Nanoseconds reading and decoding, bytes and calls, rows left out and why.
type Cost = (u64, u64, u64, u64, Vec<(usize, String)>);

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (path, layout, fingerprint, *, atoms=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        layout: &[u8],
        fingerprint: &str,
        atoms: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<Self> {
        let Some(layout) = Layout::from_bytes(layout) else {
            return Err(PyValueError::new_err("these bytes are no layout"));
        };
        let Ok(fingerprint) = fingerprint.parse::<Fingerprint>() else {
            return Err(PyValueError::new_err("this text is no fingerprint"));
        };
        let atoms = match atoms {
            None => Atoms::all(layout.n_atoms()),
            Some(atoms) => {
                Atoms::new(&indices(atoms.as_slice()?)?, layout.n_atoms()).or_raise(py)?
            }
        };
        let blocks = py
            .detach(|| {
                let source = FileSource::open(&path)?;
                fingerprint.verify(&source)?;
                BlockReader::new(Arc::new(source), &layout, atoms)
            })
            .or_raise(py)?;
        Ok(Reader {
            blocks: Mutex::new(blocks),
        })
    }

    /// Ask for the bytes of a block that will be read soon.
    fn read_ahead(
        &self,
        py: Python<'_>,
        frames: PyReadonlyArray1<'_, u64>,
        offsets: PyReadonlyArray1<'_, u64>,
        sizes: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<()> {
        let extents = Extents {
            frames: frames.as_slice()?,
            offsets: offsets.as_slice()?,
            sizes: sizes.as_slice()?,
        };
        py.detach(|| self.lock().map(|mut blocks| blocks.read_ahead(extents)))
            .or_raise(py)
    }

    /// Read and decode a block into the arrays given.
    #[expect(clippy::too_many_arguments, reason = "one array a property of a frame")]
    #[pyo3(signature = (frames, offsets, sizes, positions, dimensions, times, steps, *, skip))]
    fn read(
        &self,
        py: Python<'_>,
        frames: PyReadonlyArray1<'_, u64>,
        offsets: PyReadonlyArray1<'_, u64>,
        sizes: PyReadonlyArray1<'_, u64>,
        mut positions: PyReadwriteArray3<'_, f32>,
        mut dimensions: PyReadwriteArray2<'_, f32>,
        mut times: PyReadwriteArray1<'_, f64>,
        mut steps: PyReadwriteArray1<'_, i64>,
        skip: bool,
    ) -> PyResult<Cost> {
        let extents = Extents {
            frames: frames.as_slice()?,
            offsets: offsets.as_slice()?,
            sizes: sizes.as_slice()?,
        };
        let (dimensions, rest) = dimensions.as_slice_mut()?.as_chunks_mut();
        if !rest.is_empty() {
            return Err(PyValueError::new_err("dimensions must have 6 columns"));
        }
        let out = BlockOut {
            positions: positions.as_slice_mut()?,
            dimensions,
            times: times.as_slice_mut()?,
            steps: steps.as_slice_mut()?,
        };
        let report = py
            .detach(|| self.lock()?.read(extents, out, skip))
            .or_raise(py)?;
        let skipped = report
            .skipped
            .into_iter()
            .map(|(row, error)| (row, error.to_string()))
            .collect();
        let nanoseconds = |duration: std::time::Duration| duration.as_nanos() as u64;
        Ok((
            nanoseconds(report.read),
            nanoseconds(report.decode),
            report.bytes,
            report.calls,
            skipped,
        ))
    }
}

impl Reader {
    fn lock(&self) -> Result<std::sync::MutexGuard<'_, BlockReader>> {
        self.blocks
            .try_lock()
            .map_err(|_| Error::Argument("a reader belongs to one worker at a time".into()))
    }
}

fn indices(values: &[i64]) -> PyResult<Vec<usize>> {
    values
        .iter()
        .map(|&value| {
            usize::try_from(value)
                .map_err(|_| PyValueError::new_err(format!("{value} is no index")))
        })
        .collect()
}

/// Columns of a block: those given, or all.
fn columns(given: Option<PyReadonlyArray1<'_, i64>>, n_atoms: usize) -> PyResult<Vec<usize>> {
    match given {
        Some(given) => indices(given.as_slice()?),
        None => Ok((0..n_atoms).collect()),
    }
}

/// A superposition bound to the columns of a block.
#[pyclass(frozen, module = "paceline._core")]
struct Rmsd {
    task: rmsd::Rmsd,
}

/// Reference positions (Å) of a group, and its weights.
type GroupArrays<'py> = (
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray1<'py, f64>>,
);

#[pymethods]
impl Rmsd {
    #[new]
    #[pyo3(signature = (groups, columns, n_atoms, *, superposition))]
    fn new(
        py: Python<'_>,
        groups: Vec<GroupArrays<'_>>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        n_atoms: usize,
        superposition: bool,
    ) -> PyResult<Self> {
        let all = self::columns(columns, n_atoms)?;
        let mut rest = &all[..];
        let mut slices = Vec::with_capacity(groups.len());
        for (reference, weights) in &groups {
            let n = reference.shape()[0];
            let Some((columns, behind)) = rest.split_at_checked(n) else {
                return Err(PyValueError::new_err(
                    "fewer columns than reference positions",
                ));
            };
            rest = behind;
            slices.push(Group {
                columns,
                reference: reference.as_slice()?,
                weights: weights
                    .as_ref()
                    .map(|weights| weights.as_slice())
                    .transpose()?,
            });
        }
        let task = rmsd::Rmsd::new(&slices, superposition).or_raise(py)?;
        Ok(Rmsd { task })
    }

    /// RMSDs (Å) of a block's frames, one row a frame, one column a group.
    fn compute(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        mut out: PyReadwriteArray2<'_, f64>,
    ) -> PyResult<()> {
        let n_atoms = positions.shape()[1];
        let (positions, out) = (positions.as_slice()?, out.as_slice_mut()?);
        py.detach(|| rmsd::rmsd_block(positions, n_atoms, &self.task, out))
            .or_raise(py)
    }
}

/// Add a leaf's frames to mean (Å) and sums of squared deviations (Å²); the number of frames.
#[pyfunction]
fn accumulate_moments(
    py: Python<'_>,
    positions: PyReadonlyArray3<'_, f32>,
    columns: Option<PyReadonlyArray1<'_, i64>>,
    mut mean: PyReadwriteArray2<'_, f64>,
    mut squares: PyReadwriteArray2<'_, f64>,
) -> PyResult<u64> {
    let n_atoms = positions.shape()[1];
    let columns = Columns::new(&self::columns(columns, n_atoms)?);
    let positions = positions.as_slice()?;
    let (mean, squares) = (mean.as_slice_mut()?, squares.as_slice_mut()?);
    let mut count = 0;
    py.detach(|| moments::accumulate(positions, n_atoms, &columns, mean, squares, &mut count))
        .or_raise(py)?;
    Ok(count)
}

/// Merge the moments of the right into those of the left; the number of frames of both.
#[pyfunction]
fn merge_moments(
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

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::{Reader, Rmsd, Trajectory, accumulate_moments, detect_format, merge_moments};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
