//! Files in which one rank writes the headers, and other ranks write the atoms.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::{Failure, Result};
use super::snapshot::failure_of;
use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::Cell;
use paceline_snapshot as core;
use paceline_snapshot::file::{self, Contents, Heading, Kind, Settings};
use paceline_snapshot::rank_choice;

/// Destination of a frame: current name of the file, offset of atom 1 in each section, and a
/// warning.
type Place = (PathBuf, Vec<u64>, Option<String>);

/// File that is being written, of a format whose frames are consecutive.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct SnapshotFile(Mutex<file::SnapshotFile>);

impl SnapshotFile {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut file::SnapshotFile) -> core::Result<T> + Send,
    ) -> Result<T> {
        py.detach(|| act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
            .map_err(failure_of)
    }
}

#[pymethods]
impl SnapshotFile {
    /// Open a file for writing; `append` extends an existing one.
    #[new]
    #[pyo3(signature = (kind, path, n_atoms, *, title, append, overwrite, dt, sync))]
    #[expect(clippy::too_many_arguments, reason = "Python names five of them")]
    fn new(
        py: Python<'_>,
        kind: &str,
        path: PathBuf,
        n_atoms: u64,
        title: String,
        append: bool,
        overwrite: bool,
        dt: Option<f64>,
        sync: bool,
    ) -> Result<Self> {
        let kind = Kind::from_name(kind)
            .ok_or_else(|| Failure::argument(format!("there is no format {kind}")))?;
        let settings = Settings {
            path,
            n_atoms,
            title,
            append,
            overwrite,
            dt,
            sync,
            n_frames: None,
            double: false,
        };
        let opened = py.detach(|| file::SnapshotFile::open(kind, settings));
        Ok(SnapshotFile(Mutex::new(opened.map_err(failure_of)?)))
    }

    /// Number of complete frames; for a CONFIG, number of frames written.
    #[getter]
    fn n_frames(&self, py: Python<'_>) -> Result<u64> {
        self.with(py, |file| Ok(file.n_frames()))
    }

    /// Allocate the next frame.
    #[pyo3(signature = (fields, *, step, time, cell))]
    fn place(
        &self,
        py: Python<'_>,
        fields: u8,
        step: i64,
        time: f64,
        cell: Option<Cell>,
    ) -> Result<Place> {
        let contents = Contents {
            fields: Fields::from_bits(fields),
            has_cell: cell.is_some(),
        };
        let heading = Heading { step, time, cell };
        self.with(py, |file| {
            let place = file.place(contents, &heading)?;
            Ok((place.path, place.starts, place.warning))
        })
    }

    /// Count the frame as complete, after its atoms were written.
    fn commit(&self, py: Python<'_>) -> Result<()> {
        self.with(py, file::SnapshotFile::commit)
    }

    /// Truncate the file to the committed frames.
    fn cut_back(&self, py: Python<'_>) -> Result<()> {
        self.with(py, file::SnapshotFile::cut_back)
    }

    /// Return the names of some atoms in an existing file, 8 bytes each.
    fn stored_names<'py>(
        &self,
        py: Python<'py>,
        first: u64,
        n_atoms: u64,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        let names = self.with(py, |file| file.stored_names(first..first + n_atoms))?;
        Ok(names.map(|names| PyBytes::new(py, &names)))
    }

    /// Close the file. A file without a complete frame is removed.
    fn close(&self, py: Python<'_>) -> Result<()> {
        self.with(py, file::SnapshotFile::close)
    }
}

/// Return lengths (Å) and angles (degrees) of the cell with these vectors.
#[pyfunction]
pub(super) fn cell_dimensions(cell: Cell) -> [f64; 6] {
    let (lengths, cosines) = file::lengths_and_cosines(&cell);
    let ([a, b, c], [alpha, beta, gamma]) = (lengths, file::angles(cosines));
    [a, b, c, alpha, beta, gamma]
}

/// Choose `n_ranks` ranks, spread evenly over the nodes and, on each node, over its ranks. `nodes`
/// contains the host name of each rank.
#[pyfunction]
pub(super) fn spread_ranks(nodes: Vec<String>, n_ranks: usize) -> Vec<usize> {
    rank_choice::spread(&nodes, n_ranks)
}

/// Choose the writing ranks of frames of `n_bytes` bytes.
#[pyfunction]
pub(super) fn choose_writers(nodes: Vec<String>, n_bytes: u64) -> Vec<usize> {
    rank_choice::choose_writers(&nodes, n_bytes)
}

/// Choose the reading ranks.
#[pyfunction]
#[pyo3(signature = (nodes, n_readers=None))]
pub(super) fn choose_readers(nodes: Vec<String>, n_readers: Option<i64>) -> Result<Vec<usize>> {
    // A negative number becomes 0, which is refused.
    let n_readers = n_readers.map(|n| usize::try_from(n).unwrap_or(0));
    rank_choice::choose_readers(&nodes, n_readers).map_err(Failure::Unsupported)
}
