//! Writing of frames whose atoms are distributed over ranks. One rank writes the headers of the
//! file, and the writing ranks write the atoms.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::communicator_from_python::PyCommunicator;
use super::errors::{Failure, Result};
use super::types::{Array1, Array2, ArrayMut1, alias, literal, narrowed};
use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::Cell;
use paceline_snapshot::atom_encoding::{Arrays, Float};
use paceline_snapshot::file::{self, Contents, Heading, Settings};
use paceline_snapshot::{
    self as core, Atoms, Batch, Cost, Job, Method, Records, Vectors, collective_writer,
};

narrowed! {
    /// Format of a snapshot.
    struct Kind(String): literal!("CONFIG", "REVCON", "HISTORY", "NetCDF", "DCD", "arrays")
}

narrowed! {
    /// Name of the method by which ranks write a frame.
    pub(super) struct MethodName(String): literal!("serial", "direct", "mpiio", "sorted")
}

/// Encoding of atoms in a format. It can be pickled.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct SnapshotFormat {
    made_of: (String, u8, (f64, f64, f64), String),
    records: Box<dyn Records + Send>,
}

#[pymethods]
impl SnapshotFormat {
    #[new]
    #[pyo3(signature = (kind, fields, *, factors=(1.0, 1.0, 1.0), dtype="<f4".into()))]
    fn new(kind: Kind, fields: u8, factors: (f64, f64, f64), dtype: String) -> Result<Self> {
        let (Kind(kind), held) = (kind, Fields::from_bits(fields));
        let float = Float::from_name(&dtype).ok_or_else(|| {
            Failure::argument(format!("dtype must be <f4, >f4, <f8 or >f8, not {dtype}"))
        })?;
        let records = match file::Kind::from_name(&kind) {
            Some(known) => known.records(held, false).map_err(Failure::unwritable)?,
            None if kind == "arrays" => Box::new(Arrays::new(held, float, factors.into())),
            None => return Err(Failure::argument(format!("unknown format {kind}"))),
        };
        Ok(SnapshotFormat {
            made_of: (kind, fields, factors, dtype),
            records,
        })
    }

    /// Return the arguments of `new`, for pickle.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((&str, u8), Bound<'py, PyDict>)> {
        let (kind, fields, factors, dtype) = &self.made_of;
        let named = PyDict::new(py);
        named.set_item("factors", factors)?;
        named.set_item("dtype", dtype)?;
        Ok(((kind, *fields), named))
    }

    /// Return the size of an atom in each section of a frame, bytes.
    #[getter]
    fn sections(&self) -> Vec<usize> {
        self.records.sections().to_vec()
    }

    /// Encode atoms into the bytes of one section, in the given order.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        section: usize,
        atoms: AtomArrays<'_>,
    ) -> Result<Bound<'py, PyBytes>> {
        let atoms = atoms.as_atoms()?;
        let n_bytes = self.size(section)? * atoms.len();
        Ok(PyBytes::new_with(py, n_bytes, |out| {
            py.detach(|| self.records.put(section, &Batch::from(&atoms), out));
            Ok(())
        })?)
    }

    /// Encode atoms like `encode`, into the array `out`.
    fn encode_into(
        &self,
        py: Python<'_>,
        section: usize,
        atoms: AtomArrays<'_>,
        mut out: ArrayMut1<'_, u8>,
    ) -> Result<()> {
        let atoms = atoms.as_atoms()?;
        let n_bytes = self.size(section)? * atoms.len();
        if out.shape() != [n_bytes] {
            return Err(misfit("out", &[n_bytes], out.shape()));
        }
        let out = &mut *out;
        py.detach(|| self.records.put(section, &Batch::from(&atoms), out));
        Ok(())
    }
}

impl SnapshotFormat {
    /// Return the size of an atom in a section, bytes.
    fn size(&self, section: usize) -> Result<usize> {
        let size = self.records.sections().get(section).copied();
        size.ok_or_else(|| Failure::argument(format!("section {section} is out of range")))
    }
}

type ArraysOfAtoms<'py> = (
    Array1<'py, i64>,
    VectorArray<'py>,
    Option<VectorArray<'py>>,
    Option<VectorArray<'py>>,
    Option<Array2<'py, u8>>,
    Option<Array1<'py, f64>>,
    Option<Array1<'py, f64>>,
);

narrowed! {
    /// Ids, positions, velocities, forces, names, masses and charges.
    pub(super) struct AtomArrays<'py>(ArraysOfAtoms<'py>): alias!("_SnapshotAtoms", ArraysOfAtoms::<'py>::INPUT_TYPE)
}

#[derive(FromPyObject)]
enum VectorArray<'py> {
    F32(Array2<'py, f32>),
    F64(Array2<'py, f64>),
}

impl VectorArray<'_> {
    fn as_vectors(&self, name: &str, n_atoms: usize) -> Result<Vectors<'_>> {
        let (shape, vectors) = match self {
            VectorArray::F32(array) => (array.shape(), Vectors::F32(array)),
            VectorArray::F64(array) => (array.shape(), Vectors::F64(array)),
        };
        match shape == [n_atoms, 3] {
            true => Ok(vectors),
            false => Err(misfit(name, &[n_atoms, 3], shape)),
        }
    }
}

impl AtomArrays<'_> {
    fn as_atoms(&self) -> Result<Atoms<'_>> {
        let AtomArrays((ids, positions, velocities, forces, names, masses, charges)) = self;
        let atoms = Atoms {
            ids,
            positions: positions.as_vectors("positions", ids.len())?,
            velocities: as_vectors(velocities, "velocities", ids.len())?,
            forces: as_vectors(forces, "forces", ids.len())?,
            names: as_names(names, ids.len())?,
            masses: as_numbers(masses, "masses", ids.len())?,
            charges: as_numbers(charges, "charges", ids.len())?,
        };
        let wide = |vectors: Vectors<'_>| matches!(vectors, Vectors::F64(_));
        let mut given = atoms
            .vectors()
            .into_iter()
            .filter_map(|(_, vectors)| vectors);
        match given.all(|vectors| wide(vectors) == atoms.is_wide()) {
            true => Ok(atoms),
            false => Err(Failure::argument(
                "positions, velocities and forces must have the same dtype",
            )),
        }
    }
}

fn as_vectors<'a>(
    array: &'a Option<VectorArray<'_>>,
    name: &str,
    n_atoms: usize,
) -> Result<Option<Vectors<'a>>> {
    let vectors = |array: &'a VectorArray<'_>| array.as_vectors(name, n_atoms);
    array.as_ref().map(vectors).transpose()
}

fn as_names<'a>(
    names: &'a Option<Array2<'_, u8>>,
    n_atoms: usize,
) -> Result<Option<&'a [[u8; 8]]>> {
    let Some(names) = names else {
        return Ok(None);
    };
    match names.shape() == [n_atoms, 8] {
        true => Ok(Some(names.as_chunks().0)),
        false => Err(misfit("names", &[n_atoms, 8], names.shape())),
    }
}

fn as_numbers<'a>(
    array: &'a Option<Array1<'_, f64>>,
    name: &str,
    n_atoms: usize,
) -> Result<Option<&'a [f64]>> {
    match array {
        Some(array) if array.shape() != [n_atoms] => Err(misfit(name, &[n_atoms], array.shape())),
        Some(array) => Ok(Some(array)),
        None => Ok(None),
    }
}

fn misfit(name: &str, expected: &[usize], found: &[usize]) -> Failure {
    Failure::argument(format!(
        "{name} must be an array of shape {expected:?}, not {found:?}"
    ))
}

/// Cost of a frame on one rank: times in seconds, and counts.
#[pyclass(frozen, get_all, module = "paceline._core")]
pub(super) struct SnapshotCost {
    communicate: f64,
    sort: f64,
    format: f64,
    write: f64,
    n_messages: u64,
    bytes_sent: u64,
    n_writes: u64,
    bytes_written: u64,
    n_batches: u64,
    peak_buffer: usize,
}

#[pymethods]
impl SnapshotCost {
    fn __repr__(&self) -> String {
        format!(
            "SnapshotCost(communicate={}, sort={}, format={}, write={}, n_messages={}, \
             bytes_sent={}, n_writes={}, bytes_written={}, n_batches={}, peak_buffer={})",
            self.communicate,
            self.sort,
            self.format,
            self.write,
            self.n_messages,
            self.bytes_sent,
            self.n_writes,
            self.bytes_written,
            self.n_batches,
            self.peak_buffer,
        )
    }
}

impl From<Cost> for SnapshotCost {
    fn from(cost: Cost) -> Self {
        SnapshotCost {
            communicate: cost.communicate.as_secs_f64(),
            sort: cost.sort.as_secs_f64(),
            format: cost.format.as_secs_f64(),
            write: cost.write.as_secs_f64(),
            n_messages: cost.n_messages,
            bytes_sent: cost.bytes_sent,
            n_writes: cost.n_writes,
            bytes_written: cost.bytes_written,
            n_batches: cost.n_batches,
            peak_buffer: cost.peak_buffer,
        }
    }
}

/// Refuse a frame that cannot be written. The call is collective.
#[pyfunction]
pub(super) fn check_snapshot(
    py: Python<'_>,
    comm: PyCommunicator,
    format: &SnapshotFormat,
    n_atoms: u64,
    atoms: AtomArrays<'_>,
) -> Result<()> {
    let atoms = atoms.as_atoms()?;
    let checked = py.detach(|| core::check(&comm, &*format.records, n_atoms, &atoms));
    checked.map_err(|failure| failed(comm, failure))
}

/// Write a frame that `check_snapshot` has accepted. The call is collective.
#[pyfunction]
#[pyo3(signature = (
    comm, path, format, starts, n_atoms, atoms, *, method, writers, buffer, sync
))]
#[expect(clippy::too_many_arguments, reason = "Python names four of them")]
pub(super) fn write_snapshot(
    py: Python<'_>,
    comm: PyCommunicator,
    path: PathBuf,
    format: &SnapshotFormat,
    starts: Vec<u64>,
    n_atoms: u64,
    atoms: AtomArrays<'_>,
    method: MethodName,
    writers: Vec<usize>,
    buffer: usize,
    sync: bool,
) -> Result<SnapshotCost> {
    let MethodName(name) = method;
    let Some(method) = Method::from_name(&name) else {
        return Err(Failure::argument(format!("unknown method {name}")));
    };
    let atoms = atoms.as_atoms()?;
    let job = Job {
        path: &path,
        records: &*format.records,
        starts: &starts,
        n_atoms,
        atoms: &atoms,
        method,
        writers: &writers,
        buffer,
        sync,
    };
    match py.detach(|| core::write(&comm, &job)) {
        Ok(cost) => Ok(cost.into()),
        Err(failure) => Err(failed(comm, failure)),
    }
}

fn failed(comm: PyCommunicator, failure: core::Failure) -> Failure {
    match comm.raised() {
        Some(raised) => Failure::Python(raised),
        None => failure_of(failure),
    }
}

pub(super) fn failure_of(failure: core::Failure) -> Failure {
    let text = failure.to_string();
    match failure {
        core::Failure::Unwritable(reason) => Failure::unwritable(reason),
        core::Failure::AtomCount { found, .. } => Failure::AtomCount(found, text),
        core::Failure::Agreed { .. } => Failure::argument(text),
        core::Failure::Error(error) => Failure::Core(error),
    }
}

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
        let kind = file::Kind::from_name(kind)
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

    /// Determine where the next frame is written. If no file is open, first create it with its
    /// header.
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

    /// Return the names of some atoms in an existing file, 8 bytes each; None if it contains none.
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
    collective_writer::spread(&nodes, n_ranks)
}

/// Choose the writing ranks for frames of `n_bytes` bytes. `nodes` contains the host name of each
/// rank.
#[pyfunction]
pub(super) fn choose_writers(nodes: Vec<String>, n_bytes: u64) -> Vec<usize> {
    collective_writer::choose_writers(&nodes, n_bytes)
}

/// Choose the ranks that read a snapshot. `nodes` contains the host name of each rank.
#[pyfunction]
#[pyo3(signature = (nodes, n_readers=None))]
pub(super) fn choose_readers(nodes: Vec<String>, n_readers: Option<i64>) -> Result<Vec<usize>> {
    // A negative number becomes 0, which is refused.
    let n_readers = n_readers.map(|n| usize::try_from(n).unwrap_or(0));
    collective_writer::choose_readers(&nodes, n_readers).map_err(Failure::Unsupported)
}
