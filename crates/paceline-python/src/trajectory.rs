//! A trajectory file and its frame index.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrays::{Array1, NewArray};
use super::errors::{Failure, Result};
use super::hints::{INT, OBJECT, callable, narrowed};
use super::reader::samples_from;
use paceline_formats::fingerprint::Fingerprint;
use paceline_formats::format::Clock;
use paceline_formats::index::{self, Index, OpenOptions, Origin};
use paceline_formats::registry::STANDARD;
use paceline_formats::source::{FileSource, Source};
use paceline_formats::{Format, error};

/// Offsets and sizes of frames.
type ExtentArrays = (NewArray<u64, 1>, NewArray<u64, 1>);

/// Times (ps) and steps of frames.
type TimeArrays = (NewArray<f64, 1>, NewArray<i64, 1>);

narrowed! {
    /// Function that is called with the bytes that are done, and all bytes.
    struct Progress(Py<PyAny>): callable!([INT, INT] -> OBJECT)
}

/// A trajectory file and its frame index.
#[pyclass(frozen, subclass, module = "paceline._core")]
pub(super) struct Trajectory {
    index: Index,
    path: PathBuf,
}

#[pymethods]
impl Trajectory {
    #[new]
    #[pyo3(signature = (
        path, *, cache_folder=None, refresh=false, sample=None, units=None, n_atoms=None, n_threads=1,
        progress=None
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "Python names all but one of them"
    )]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        cache_folder: Option<PathBuf>,
        refresh: bool,
        sample: Option<u64>,
        units: Option<String>,
        n_atoms: Option<usize>,
        n_threads: usize,
        progress: Option<Progress>,
    ) -> Result<Self> {
        let refused = Mutex::new(None);
        // Runs in this thread now and then, so that Ctrl-C ends a long scan.
        let report = |done: u64, total: u64| {
            Python::attach(|py| {
                let told = py.check_signals().and_then(|()| match &progress {
                    Some(Progress(progress)) => progress.call1(py, (done, total)).map(drop),
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
            let mut options = OpenOptions::new(&STANDARD);
            options.index_files = index::index_files(&path, cache_folder.as_deref());
            options.refresh = refresh;
            options.sample = sample;
            options.units = units.as_deref();
            options.n_atoms = n_atoms;
            options.n_threads = n_threads;
            options.progress = &report;
            index::open(&FileSource::open(&path)?, &options)
        });
        if let Some(error) = refused
            .into_inner()
            .unwrap_or_else(|lock| lock.into_inner())
        {
            return Err(error.into());
        }
        let index = opened?;
        Ok(Trajectory { index, path })
    }

    #[getter]
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    #[getter]
    fn format(&self) -> &'static str {
        self.index.layout().name()
    }

    #[getter]
    fn n_atoms(&self) -> usize {
        self.index.n_atoms()
    }

    /// Number of atoms in each frame (0 if it is unknown), or None if it is the same in all
    /// frames.
    #[getter]
    fn atom_counts(&self) -> Option<NewArray<u32, 1>> {
        self.index
            .atom_counts()
            .map(|counts| counts.to_vec().into())
    }

    /// Return in a sentence how the number of atoms varies; None where it does not.
    #[getter]
    fn varying(&self) -> Option<String> {
        self.index.varying()
    }

    /// Return how one frame is coded, and its number of atoms.
    fn layout_of<'py>(&self, py: Python<'py>, frame: u64) -> Result<(Bound<'py, PyBytes>, usize)> {
        self.check_frames(&[frame])?;
        let layout = py.detach(|| self.index.layout_of(&FileSource::open(&self.path)?, frame))?;
        Ok((PyBytes::new(py, &layout.to_bytes()), layout.n_atoms()))
    }

    #[getter]
    fn n_frames(&self) -> u64 {
        self.index.n_frames()
    }

    /// Return the fields that frames may hold, one bit a field.
    #[getter]
    fn fields(&self) -> u8 {
        self.index.layout().fields().bits()
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

    /// Return what workers need to recognise the parts of the file that they read.
    #[getter]
    fn samples<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.index.samples().to_bytes())
    }

    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.index.layout().to_bytes())
    }

    /// Return the notes on the file that a user should be told.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.index.notes().to_vec()
    }

    /// Frames that a scan found to be damaged; none where frames are found by arithmetic.
    #[getter]
    fn damaged(&self) -> Vec<u64> {
        self.index.damaged().to_vec()
    }

    /// Return the path at which the index is saved, if it is.
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
            Origin::Sampled => "sampled",
        }
    }

    /// Time between frames as the header has it, ps; None where only frames tell.
    #[getter]
    fn dt(&self) -> Option<f64> {
        self.index.layout().dt()
    }

    /// Return the number that the first frame counts as where times are numbers of frames.
    #[getter]
    fn first(&self) -> f64 {
        self.index.layout().first()
    }

    /// Why times are not known; None where they are.
    #[getter]
    fn time_doubt(&self) -> Option<String> {
        let clock = self.index.layout().clock();
        clock.doubt().map(str::to_owned)
    }

    /// True where the file has no times, and frames are counted.
    #[getter]
    fn frames_counted(&self) -> bool {
        matches!(self.index.layout().clock(), Clock::Counted(_))
    }

    /// Bytes and calls that opening took of the trajectory.
    #[getter]
    fn traffic(&self) -> (u64, u64) {
        let traffic = self.index.traffic();
        (traffic.bytes, traffic.calls)
    }

    fn extents(&self, frames: Array1<'_, u64>) -> Result<ExtentArrays> {
        self.check_frames(&frames)?;
        let (offsets, sizes): (Vec<u64>, Vec<u64>) =
            frames.iter().map(|&frame| self.index.extent(frame)).unzip();
        Ok((offsets.into(), sizes.into()))
    }

    /// Time (ps) and step of every frame.
    fn times(&self, py: Python<'_>) -> Result<TimeArrays> {
        let times = py.detach(|| self.index.times(&FileSource::open(&self.path)?))?;
        Ok((times.times.into(), times.steps.into()))
    }

    /// Return the traits that files must have in common for the frames of one to continue those of
    /// the other: name and value.
    #[getter]
    fn traits(&self) -> Vec<(&'static str, String)> {
        self.index.layout().traits()
    }

    /// Return the bytes that a file of `n_frames` of these frames, from number `first` on, begins
    /// with.
    fn head<'py>(&self, py: Python<'py>, first: u64, n_frames: u64) -> Result<Bound<'py, PyBytes>> {
        let head = py.detach(|| {
            self.index
                .head(&FileSource::open(&self.path)?, first, n_frames)
        });
        Ok(PyBytes::new(py, &head?))
    }

    /// Raise FileChangedError where the file of this name is not the one that was opened.
    fn verify(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| {
            let source = FileSource::open(&self.path)?;
            self.index.verify(&source)
        })?)
    }
}

impl Trajectory {
    fn check_frames(&self, frames: &[u64]) -> Result<()> {
        let n_frames = self.index.n_frames();
        match frames.iter().find(|&&frame| frame >= n_frames) {
            Some(frame) => Err(Failure::argument(format!(
                "frame {frame} is out of range for {n_frames} frames"
            ))),
            None => Ok(()),
        }
    }
}

/// The format of a file by its first bytes; None where it is none of ours.
#[pyfunction]
pub(super) fn detect_format(py: Python<'_>, path: PathBuf) -> Result<Option<&'static str>> {
    Ok(py.detach(|| -> error::Result<_> {
        let source = FileSource::open(&path)?;
        Ok(index::detect(&source, &STANDARD)?.map(Format::name))
    })?)
}

/// Return the samples that a file, all of it, is recognised by.
#[pyfunction]
pub(super) fn samples_of(py: Python<'_>, path: PathBuf) -> Result<Bound<'_, PyBytes>> {
    let samples = py.detach(|| {
        let source = FileSource::open(&path)?;
        STANDARD.samples(&source, source.size()?)
    });
    Ok(PyBytes::new(py, &samples?.to_bytes()))
}

/// Return the fingerprint of the file that samples are of.
#[pyfunction]
pub(super) fn fingerprint_of(samples: &[u8]) -> Result<String> {
    Ok(samples_from(samples)?.fingerprint.to_string())
}

/// Raise FileChangedError where a file does not begin with what it was recognised by.
#[pyfunction]
pub(super) fn verify(py: Python<'_>, path: PathBuf, fingerprint: &str) -> Result<()> {
    let Ok(fingerprint) = fingerprint.parse::<Fingerprint>() else {
        return Err(Failure::argument("this text is no fingerprint"));
    };
    Ok(py.detach(|| STANDARD.verify(&FileSource::open(&path)?, &fingerprint))?)
}
