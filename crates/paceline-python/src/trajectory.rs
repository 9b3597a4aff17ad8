//! Trajectory file and its frame index.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::byte_sources::{self, CacheSettings, samples_from};
use super::errors::{Failure, Result};
use super::types::{Array1, INT, NewArray, OBJECT, callable, narrowed};
use paceline_formats::fingerprint::Fingerprint;
use paceline_formats::format_interface::Clock;
use paceline_formats::format_list::STANDARD;
use paceline_formats::index::{self, Index, OpenOptions, Origin};
use paceline_formats::source::Source;
use paceline_formats::{Format, error};

/// Offsets and sizes of frames.
type ExtentArrays = (NewArray<u64, 1>, NewArray<u64, 1>);

/// Times (ps) and steps of frames.
type TimeArrays = (NewArray<f64, 1>, NewArray<i64, 1>);

narrowed! {
    /// Function that is called with the number of scanned bytes and the size of the file.
    struct Progress(Py<PyAny>): callable!([INT, INT] -> OBJECT)
}

/// Trajectory file and its frame index.
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
        progress=None, cache=None, is_one_of_many=false
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
        cache: Option<CacheSettings>,
        is_one_of_many: bool,
    ) -> Result<Self> {
        let refused = Mutex::new(None);
        // The callback runs in this thread from time to time, so that Ctrl-C interrupts a long
        // scan.
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
            let (source, index_files) =
                byte_sources::open_with_index(&path, cache_folder.as_deref(), is_one_of_many)?;
            options.index_files = index_files;
            options.cache = cache.map(CacheSettings::cache);
            options.refresh = refresh;
            options.sample = sample;
            options.units = units.as_deref();
            options.n_atoms = n_atoms;
            options.n_threads = n_threads;
            options.progress = &report;
            index::open(&source, &options)
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

    /// Return a message that describes how the number of atoms varies; None if it is constant.
    #[getter]
    fn varying(&self) -> Option<String> {
        self.index.varying()
    }

    /// Return the layout of one frame, as bytes, and its number of atoms.
    fn layout_of<'py>(&self, py: Python<'py>, frame: u64) -> Result<(Bound<'py, PyBytes>, usize)> {
        self.check_frames(&[frame])?;
        let layout = py.detach(|| self.index.layout_of(&self.source()?, frame))?;
        Ok((PyBytes::new(py, &layout.to_bytes()), layout.n_atoms()))
    }

    #[getter]
    fn n_frames(&self) -> u64 {
        self.index.n_frames()
    }

    /// Return the fields that frames may contain, as bits.
    #[getter]
    fn fields(&self) -> u8 {
        self.index.layout().fields().bits()
    }

    /// Size of the file when it was indexed, bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.index.fingerprint().size()
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.index.fingerprint().to_string()
    }

    /// Return the fingerprint of the file and hashes of its parts, as bytes. Workers verify the
    /// parts that they read with these hashes.
    #[getter]
    fn samples<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.index.samples().to_bytes())
    }

    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.index.layout().to_bytes())
    }

    /// Return notes on the file for the user.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.index.notes().to_vec()
    }

    /// Frames that a scan found to be damaged; empty if frame offsets were computed without a scan.
    #[getter]
    fn damaged(&self) -> Vec<u64> {
        self.index.damaged().to_vec()
    }

    /// Return the path of the saved index; None if it is not saved.
    #[getter]
    fn index_file(&self) -> Option<PathBuf> {
        self.index.index_file().map(PathBuf::from)
    }

    /// Origin of the index: computed, scanned, extended, loaded or sampled.
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

    /// Time between frames in the header, ps; None if the header does not contain it.
    #[getter]
    fn dt(&self) -> Option<f64> {
        self.index.layout().dt()
    }

    /// Return the number of the first frame, if times are frame numbers.
    #[getter]
    fn first(&self) -> f64 {
        self.index.layout().first()
    }

    /// Reason why times in ps are unknown; None if they are known.
    #[getter]
    fn time_doubt(&self) -> Option<String> {
        let clock = self.index.layout().clock();
        clock.doubt().map(str::to_owned)
    }

    /// Reason why lengths are only assumed to be in Å; None if their unit is known.
    #[getter]
    fn length_doubt(&self) -> Option<&'static str> {
        self.index.layout().length_doubt()
    }

    /// True if the file contains no times, so that times are frame numbers.
    #[getter]
    fn frames_counted(&self) -> bool {
        matches!(self.index.layout().clock(), Clock::Counted(_))
    }

    /// Number of bytes that were read to open the trajectory, and number of calls that read them.
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
        let times = py.detach(|| self.index.times(&self.source()?))?;
        Ok((times.times.into(), times.steps.into()))
    }

    /// Return the traits that two files must share to be parts of one trajectory: name and value.
    #[getter]
    fn traits(&self, py: Python<'_>) -> Result<Vec<(String, String)>> {
        let traits = py.detach(|| self.index.layout().traits(&self.source()?));
        Ok(traits?)
    }

    /// Return the header of a file that contains `n_frames` frames of this trajectory, beginning
    /// with frame `first`.
    fn head<'py>(&self, py: Python<'py>, first: u64, n_frames: u64) -> Result<Bound<'py, PyBytes>> {
        let head = py.detach(|| self.index.head(&self.source()?, first, n_frames));
        Ok(PyBytes::new(py, &head?))
    }

    /// Raise FileChangedError if the file at this path is not the file that was opened.
    fn verify(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| {
            let source = byte_sources::open(&self.path)?;
            self.index.verify(&source)
        })?)
    }
}

impl Trajectory {
    /// Open the version of the file that was indexed.
    fn source(&self) -> error::Result<Arc<dyn Source>> {
        byte_sources::open_version(&self.path, self.index.samples())
    }

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

/// Return the format of a file, found by its first bytes; None if it is unknown.
#[pyfunction]
pub(super) fn detect_format(py: Python<'_>, path: PathBuf) -> Result<Option<&'static str>> {
    Ok(py.detach(|| -> error::Result<_> {
        let source = byte_sources::open(&path)?;
        Ok(index::detect(&source, &STANDARD)?.map(Format::name))
    })?)
}

/// Return the fingerprint of a file and hashes of its parts, as bytes, to verify the file later.
#[pyfunction]
pub(super) fn samples_of(py: Python<'_>, path: PathBuf) -> Result<Bound<'_, PyBytes>> {
    let samples = py.detach(|| {
        let source = byte_sources::open(&path)?;
        STANDARD.samples(&source, source.size()?)
    });
    Ok(PyBytes::new(py, &samples?.to_bytes()))
}

/// Return the fingerprint that the result of `samples_of` contains.
#[pyfunction]
pub(super) fn fingerprint_of(samples: &[u8]) -> Result<String> {
    Ok(samples_from(samples)?.fingerprint.to_string())
}

/// Return the text by which a store identifies the version of an object, from the result of
/// `samples_of`. Return None for a local file, or if the store provides no such text.
#[pyfunction]
pub(super) fn identity_of(samples: &[u8]) -> Result<Option<String>> {
    Ok(samples_from(samples)?.identity().map(str::to_owned))
}

/// Raise FileChangedError if a file does not begin with the bytes that the fingerprint describes.
#[pyfunction]
pub(super) fn verify(py: Python<'_>, path: PathBuf, fingerprint: &str) -> Result<()> {
    let Ok(fingerprint) = fingerprint.parse::<Fingerprint>() else {
        return Err(Failure::argument("this text is not a fingerprint"));
    };
    Ok(py.detach(|| STANDARD.verify(&byte_sources::open(&path)?, &fingerprint))?)
}
