//! Per-worker reader of a trajectory file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use numpy::{Element, PyReadonlyArray1, PyReadwriteArray1, PyReadwriteArray2, PyReadwriteArray3};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_formats::Fields;
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::{Error, Result};
use paceline_formats::fingerprint::{Samples, VerifiedSource};
use paceline_formats::reader::{BlockOut, BlockReader, BlockReport, Extents, Numbers};
use paceline_formats::registry::STANDARD;
use paceline_formats::source::FileSource;
use paceline_kernels::validity;

/// Per-worker reader of a trajectory file.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Reader {
    blocks: Mutex<BlockReader>,
}

/// Frames of one file: number, first byte and size of each.
#[derive(FromPyObject)]
struct ExtentArrays<'py> {
    frames: PyReadonlyArray1<'py, u64>,
    offsets: PyReadonlyArray1<'py, u64>,
    sizes: PyReadonlyArray1<'py, u64>,
}

impl ExtentArrays<'_> {
    fn as_slices(&self) -> PyResult<Extents<'_>> {
        Ok(Extents {
            frames: self.frames.as_slice()?,
            offsets: self.offsets.as_slice()?,
            sizes: self.sizes.as_slice()?,
        })
    }
}

/// Arrays that a block goes into; none for a field that is not wanted. With one for validity, the
/// fields need none.
#[derive(FromPyObject)]
pub(super) struct BlockArrays<'py> {
    positions: Option<PyReadwriteArray3<'py, f32>>,
    velocities: Option<PyReadwriteArray3<'py, f32>>,
    forces: Option<PyReadwriteArray3<'py, f32>>,
    validity: Option<PyReadwriteArray2<'py, f64>>,
    cells: PyReadwriteArray2<'py, f64>,
    times: PyReadwriteArray1<'py, f64>,
    steps: PyReadwriteArray1<'py, i64>,
    lambdas: PyReadwriteArray1<'py, f32>,
    fields: PyReadwriteArray1<'py, u8>,
}

impl BlockArrays<'_> {
    /// Read a block into the arrays, checking each frame where there is an array for that.
    pub(super) fn read(
        &mut self,
        py: Python<'_>,
        read: impl FnOnce(BlockOut<'_>) -> Result<BlockReport> + Send,
    ) -> PyResult<Cost> {
        let times = self.times.as_slice_mut()?;
        let validity = match &mut self.validity {
            Some(validity) => Some(rows_of(validity, "validity")?),
            None => None,
        };
        if validity
            .as_ref()
            .is_some_and(|rows| rows.len() != times.len())
        {
            return Err(PyValueError::new_err(
                "validity must have a row for each time",
            ));
        }
        let numbers = match validity {
            Some(rows) => Numbers::Visited(Box::new(move |row, numbers, held| {
                rows[row] = validity::check(numbers, held);
            })),
            None => Numbers::Kept {
                positions: slice_of(&mut self.positions)?,
                velocities: slice_of(&mut self.velocities)?,
                forces: slice_of(&mut self.forces)?,
            },
        };
        let out = BlockOut {
            numbers,
            cells: rows_of(&mut self.cells, "cells")?,
            times,
            steps: self.steps.as_slice_mut()?,
            lambdas: self.lambdas.as_slice_mut()?,
            fields: self.fields.as_slice_mut()?,
        };
        Ok(cost_of(py.detach(|| read(out)).or_raise(py)?))
    }
}

fn rows_of<'a, T: Element, const N: usize>(
    array: &'a mut PyReadwriteArray2<'_, T>,
    name: &str,
) -> PyResult<&'a mut [[T; N]]> {
    let (rows, rest) = array.as_slice_mut()?.as_chunks_mut();
    if !rest.is_empty() {
        return Err(PyValueError::new_err(format!(
            "{name} must have {N} columns"
        )));
    }
    Ok(rows)
}

fn slice_of<'a>(array: &'a mut Option<PyReadwriteArray3<'_, f32>>) -> PyResult<&'a mut [f32]> {
    match array {
        Some(array) => Ok(array.as_slice_mut()?),
        None => Ok(&mut []),
    }
}

/// Nanoseconds reading and decoding, bytes and calls, rows left out and why.
pub(super) type Cost = (u64, u64, u64, u64, Vec<(usize, String)>);

fn cost_of(report: BlockReport) -> Cost {
    let skipped = report.skipped.into_iter();
    let skipped = skipped
        .map(|(row, error)| (row, error.to_string()))
        .collect();
    let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
    (
        nanoseconds(report.read),
        nanoseconds(report.decode),
        report.bytes,
        report.calls,
        skipped,
    )
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (path, layout, samples, *, atoms=None, fields=1))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        layout: &[u8],
        samples: &[u8],
        atoms: Option<PyReadonlyArray1<'_, i64>>,
        fields: u8,
    ) -> PyResult<Self> {
        let Some(layout) = STANDARD.layout(layout) else {
            return Err(PyValueError::new_err("these bytes are no layout"));
        };
        let atoms = match atoms {
            None => Atoms::all(layout.n_atoms()),
            Some(atoms) => {
                Atoms::new(&indices(atoms.as_slice()?)?, layout.n_atoms()).or_raise(py)?
            }
        };
        let blocks = py
            .detach(|| {
                let source = Arc::new(open_verified(&path, samples)?);
                BlockReader::new(source, &layout, atoms, Fields::from_bits(fields))
            })
            .or_raise(py)?;
        Ok(Reader {
            blocks: Mutex::new(blocks),
        })
    }

    /// Ask for the bytes of a block that will be read soon.
    fn read_ahead(&self, py: Python<'_>, extents: ExtentArrays<'_>) -> PyResult<()> {
        let extents = extents.as_slices()?;
        py.detach(|| self.lock()?.read_ahead(extents)).or_raise(py)
    }

    /// Read and decode a block into the arrays given.
    #[pyo3(signature = (extents, block, *, required, skip))]
    fn read(
        &self,
        py: Python<'_>,
        extents: ExtentArrays<'_>,
        mut block: BlockArrays<'_>,
        required: u8,
        skip: bool,
    ) -> PyResult<Cost> {
        let extents = extents.as_slices()?;
        let required = Fields::from_bits(required);
        block.read(py, |out| self.lock()?.read(extents, out, required, skip))
    }
}

impl Reader {
    fn lock(&self) -> Result<MutexGuard<'_, BlockReader>> {
        self.blocks
            .try_lock()
            .map_err(|_| Error::Argument("a reader belongs to one worker at a time".into()))
    }
}

// Only what is still the file that was opened.

pub(super) fn samples_from(samples: &[u8]) -> Result<Samples> {
    Samples::from_bytes(samples)
        .ok_or_else(|| Error::Argument("these bytes are no samples of a file".into()))
}

/// Open the file that samples are of, to compare what is read with them.
pub(super) fn open_verified(path: &Path, samples: &[u8]) -> Result<VerifiedSource<FileSource>> {
    STANDARD.verified(FileSource::open(path)?, samples_from(samples)?)
}
