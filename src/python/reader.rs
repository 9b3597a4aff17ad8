//! One worker's hand on a trajectory file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use numpy::{PyReadonlyArray1, PyReadwriteArray1, PyReadwriteArray2, PyReadwriteArray3};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use crate::atoms::Atoms;
use crate::error::{Error, Result};
use crate::formats::Layout;
use crate::index::Fingerprint;
use crate::read::{BlockOut, BlockReader, Extents};
use crate::source::FileSource;

/// One worker's hand on a trajectory file.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Reader {
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
        py.detach(|| self.lock()?.read_ahead(extents)).or_raise(py)
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
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
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
    fn lock(&self) -> Result<MutexGuard<'_, BlockReader>> {
        self.blocks
            .try_lock()
            .map_err(|_| Error::Argument("a reader belongs to one worker at a time".into()))
    }
}
