//! Writes frames whose atoms are spread over ranks.

use std::path::PathBuf;

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::communicator::PyCommunicator;
use super::encoder::unwritable;
use super::raise;
use paceline_formats::Fields;
use paceline_snapshot::formats::{Arrays, Float, Text};
use paceline_snapshot::{Atoms, Batch, Cost, Failure, Job, Method, Records, Vectors};

/// Records that a format makes of atoms.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct SnapshotFormat {
    made_of: (String, u8, (f64, f64, f64), String),
    records: Box<dyn Records + Send>,
}

#[pymethods]
impl SnapshotFormat {
    #[new]
    #[pyo3(signature = (kind, fields, *, factors=(1.0, 1.0, 1.0), dtype="<f4".into()))]
    fn new(
        py: Python<'_>,
        kind: String,
        fields: u8,
        factors: (f64, f64, f64),
        dtype: String,
    ) -> PyResult<Self> {
        let held = Fields::from_bits(fields);
        let text = |history| -> PyResult<Box<dyn Records + Send>> {
            let text = Text::new(history, held).map_err(|reason| unwritable(py, None, &reason))?;
            Ok(Box::new(text))
        };
        let float = Float::from_name(&dtype).ok_or_else(|| {
            PyValueError::new_err(format!("dtype must be <f4, >f4, <f8 or >f8, not {dtype}"))
        })?;
        let records = match &kind[..] {
            "CONFIG" => text(false)?,
            "HISTORY" => text(true)?,
            "DCD" if held == Fields::POSITIONS => Box::new(Arrays::coordinates(float)),
            "DCD" => return Err(unwritable(py, None, "DCD holds positions and nothing else")),
            "arrays" => Box::new(Arrays::new(held, float, factors.into())),
            _ => return Err(PyValueError::new_err(format!("there is no format {kind}"))),
        };
        Ok(SnapshotFormat {
            made_of: (kind, fields, factors, dtype),
            records,
        })
    }

    /// Return the arguments that `new` was given, for pickle.
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((&str, u8), Bound<'py, PyDict>)> {
        let (kind, fields, factors, dtype) = &self.made_of;
        let named = PyDict::new(py);
        named.set_item("factors", factors)?;
        named.set_item("dtype", dtype)?;
        Ok(((kind, *fields), named))
    }

    /// Bytes of an atom in each section of a frame.
    #[getter]
    fn sections(&self) -> Vec<usize> {
        self.records.sections().to_vec()
    }

    /// The bytes of atoms in one section, in the order in which they are given.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        section: usize,
        atoms: AtomArrays<'_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let atoms = atoms.as_atoms()?;
        PyBytes::new_with(py, self.size(section)? * atoms.len(), |out| {
            py.detach(|| self.records.put(section, &Batch::from(&atoms), out));
            Ok(())
        })
    }

    /// Write the same bytes over those of `out`.
    fn encode_into(
        &self,
        py: Python<'_>,
        section: usize,
        atoms: AtomArrays<'_>,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let atoms = atoms.as_atoms()?;
        let n_bytes = self.size(section)? * atoms.len();
        if out.shape() != [n_bytes] {
            return Err(misfit("out", &[n_bytes], out.shape()));
        }
        let out = out.as_slice_mut()?;
        py.detach(|| self.records.put(section, &Batch::from(&atoms), out));
        Ok(())
    }
}

impl SnapshotFormat {
    /// Bytes of an atom in a section.
    fn size(&self, section: usize) -> PyResult<usize> {
        let size = self.records.sections().get(section).copied();
        size.ok_or_else(|| PyValueError::new_err(format!("there is no section {section}")))
    }
}

/// Ids, positions, velocities, forces, names, masses and charges.
#[derive(FromPyObject)]
pub(super) struct AtomArrays<'py>(
    PyReadonlyArray1<'py, i64>,
    VectorArray<'py>,
    Option<VectorArray<'py>>,
    Option<VectorArray<'py>>,
    Option<PyReadonlyArray2<'py, u8>>,
    Option<PyReadonlyArray1<'py, f64>>,
    Option<PyReadonlyArray1<'py, f64>>,
);

#[derive(FromPyObject)]
enum VectorArray<'py> {
    F32(PyReadonlyArray2<'py, f32>),
    F64(PyReadonlyArray2<'py, f64>),
}

impl VectorArray<'_> {
    fn as_vectors(&self, name: &str, n_atoms: usize) -> PyResult<Vectors<'_>> {
        let (shape, vectors) = match self {
            VectorArray::F32(array) => (array.shape(), Vectors::F32(array.as_slice()?)),
            VectorArray::F64(array) => (array.shape(), Vectors::F64(array.as_slice()?)),
        };
        match shape == [n_atoms, 3] {
            true => Ok(vectors),
            false => Err(misfit(name, &[n_atoms, 3], shape)),
        }
    }
}

impl AtomArrays<'_> {
    fn as_atoms(&self) -> PyResult<Atoms<'_>> {
        let AtomArrays(ids, positions, velocities, forces, names, masses, charges) = self;
        let ids = ids.as_slice()?;
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
            false => Err(PyValueError::new_err(
                "positions, velocities and forces must have one dtype",
            )),
        }
    }
}

fn as_vectors<'a>(
    array: &'a Option<VectorArray<'_>>,
    name: &str,
    n_atoms: usize,
) -> PyResult<Option<Vectors<'a>>> {
    let vectors = |array: &'a VectorArray<'_>| array.as_vectors(name, n_atoms);
    array.as_ref().map(vectors).transpose()
}

fn as_names<'a>(
    names: &'a Option<PyReadonlyArray2<'_, u8>>,
    n_atoms: usize,
) -> PyResult<Option<&'a [[u8; 8]]>> {
    let Some(names) = names else {
        return Ok(None);
    };
    match names.shape() == [n_atoms, 8] {
        true => Ok(Some(names.as_slice()?.as_chunks().0)),
        false => Err(misfit("names", &[n_atoms, 8], names.shape())),
    }
}

fn as_numbers<'a>(
    array: &'a Option<PyReadonlyArray1<'_, f64>>,
    name: &str,
    n_atoms: usize,
) -> PyResult<Option<&'a [f64]>> {
    match array {
        Some(array) if array.shape() != [n_atoms] => Err(misfit(name, &[n_atoms], array.shape())),
        Some(array) => Ok(Some(array.as_slice()?)),
        None => Ok(None),
    }
}

fn misfit(name: &str, expected: &[usize], found: &[usize]) -> PyErr {
    PyValueError::new_err(format!(
        "{name} must be an array of shape {expected:?}, not {found:?}"
    ))
}

/// Cost of a frame to one rank: seconds, and numbers of things.
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

/// Refuse a frame that cannot be written, on all ranks together.
#[pyfunction]
pub(super) fn check_snapshot(
    py: Python<'_>,
    comm: &Bound<'_, PyAny>,
    format: &SnapshotFormat,
    n_atoms: u64,
    atoms: AtomArrays<'_>,
) -> PyResult<()> {
    let comm = PyCommunicator::new(comm)?;
    let atoms = atoms.as_atoms()?;
    let checked = py.detach(|| paceline_snapshot::check(&comm, &*format.records, n_atoms, &atoms));
    checked.map_err(|failure| failed(py, comm, failure))
}

/// Write a frame that `check_snapshot` found good, on all ranks together.
#[pyfunction]
#[pyo3(signature = (
    comm, path, format, starts, n_atoms, atoms, *, method, writers, buffer, sync
))]
#[expect(clippy::too_many_arguments, reason = "Python names four of them")]
pub(super) fn write_snapshot(
    py: Python<'_>,
    comm: &Bound<'_, PyAny>,
    path: PathBuf,
    format: &SnapshotFormat,
    starts: Vec<u64>,
    n_atoms: u64,
    atoms: AtomArrays<'_>,
    method: &str,
    writers: Vec<usize>,
    buffer: usize,
    sync: bool,
) -> PyResult<SnapshotCost> {
    let Some(method) = Method::from_name(method) else {
        return Err(PyValueError::new_err(format!(
            "there is no method {method}"
        )));
    };
    let comm = PyCommunicator::new(comm)?;
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
    match py.detach(|| paceline_snapshot::write(&comm, &job)) {
        Ok(cost) => Ok(cost.into()),
        Err(failure) => Err(failed(py, comm, failure)),
    }
}

fn failed(py: Python<'_>, comm: PyCommunicator, failure: Failure) -> PyErr {
    match (comm.raised(), failure) {
        (Some(raised), _) => raised,
        (None, Failure::Unwritable(reason)) => unwritable(py, None, &reason),
        (None, Failure::Error(error)) => raise(py, error),
    }
}
