//! Frames of a file to the ranks that own their atoms.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use super::OrRaise;
use super::communicator::PyCommunicator;
use crate::error::{Error, Result};
use crate::formats::Fields;
use crate::snapshot::Communicator;
use crate::snapshot::reading::{
    ById, Grid, IDS, Moment, Owners, POSITIONS, ReadingCost, Settings, Supply, Table, distribute,
    widths,
};

/// What Python raised while the core called it.
type Raised = Mutex<Option<PyErr>>;

/// A `paceline.snapshot.moments.Moment`.
#[derive(FromPyObject)]
pub(super) struct Frame {
    path: PathBuf,
    frame: u64,
    /// What it holds, one bit a field.
    field_bits: u8,
    is_text: bool,
    has_masses: bool,
    /// Gives three arrays, or None, of atoms from a first to before a last.
    read: Py<PyAny>,
}

/// Who owns atoms.
#[derive(FromPyObject)]
pub(super) enum Whose {
    /// Domains along each vector; the vectors, Å; whether the cell is centred on the origin.
    Grid([u32; 3], [[f64; 3]; 3], bool),
    /// Gives ranks of ids and of the bytes of positions.
    #[pyo3(transparent)]
    Function(Py<PyAny>),
}

/// Bytes of all atoms in each column that is there.
type Columns<'py> = Vec<Option<Bound<'py, PyArray1<u8>>>>;

/// Seconds reading, sorting and communicating; messages, bytes sent, batches and the most memory.
type Cost = (f64, f64, f64, u64, u64, u64, usize);

/// Read one frame: this rank's atoms, or None where another rank failed.
#[pyfunction]
#[pyo3(signature = (comm, frame, whose, *, n_atoms, readers, buffer))]
#[expect(clippy::too_many_arguments, reason = "all but three are named")]
pub(super) fn read_snapshot<'py>(
    py: Python<'py>,
    comm: Bound<'py, PyAny>,
    frame: Frame,
    whose: Option<Whose>,
    n_atoms: u64,
    readers: Vec<usize>,
    buffer: usize,
) -> PyResult<Option<(Columns<'py>, Cost)>> {
    let comm = PyCommunicator::new(&comm)?;
    let raised = Raised::default();
    let moment = Moment {
        path: frame.path,
        frame: frame.frame,
    };
    let settings = Settings {
        moment: &moment,
        n_atoms,
        widths: widths(
            Fields::from_bits(frame.field_bits),
            frame.is_text,
            frame.has_masses,
        ),
        readers: &readers,
        buffer,
        ranges: whose.is_none(),
    };
    let read = py.detach(|| {
        let mut owners = owners_of(&whose, &moment, n_atoms, comm.size(), &raised)?;
        let mut supply = match readers.contains(&comm.rank()) {
            true => Some(Hand {
                read: &frame.read,
                raised: &raised,
            }),
            false => None,
        };
        let supply = supply.as_mut().map(|supply| supply as &mut dyn Supply);
        distribute(&comm, settings, supply, &mut *owners)
    });
    let raised = raised.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = raised.or_else(|| comm.raised()) {
        return Err(error);
    }
    let Some((table, cost)) = read.or_raise(py)? else {
        return Ok(None);
    };
    let widths = *table.widths();
    let columns = table.into_columns().into_iter().zip(widths);
    let columns =
        columns.map(|(column, width)| (width > 0).then(|| PyArray1::from_vec(py, column)));
    Ok(Some((columns.collect(), cost_of(cost))))
}

fn cost_of(cost: ReadingCost) -> Cost {
    (
        cost.read.as_secs_f64(),
        cost.sort.as_secs_f64(),
        cost.communicate.as_secs_f64(),
        cost.n_messages,
        cost.bytes_sent,
        cost.n_batches,
        cost.peak_buffer,
    )
}

fn owners_of<'a>(
    whose: &'a Option<Whose>,
    moment: &Moment,
    n_atoms: u64,
    n_ranks: usize,
    raised: &'a Raised,
) -> Result<Box<dyn Owners + 'a>> {
    Ok(match whose {
        None => Box::new(ById {
            n_atoms,
            n_ranks: n_ranks as u32,
        }),
        Some(Whose::Grid(shape, vectors, centred)) => {
            Box::new(Grid::new(moment.clone(), *shape, *vectors, *centred)?)
        }
        Some(Whose::Function(function)) => Box::new(Function { function, raised }),
    })
}

/// Keep what Python raised for those who called the core.
fn keep<T>(raised: &Raised, called: PyResult<T>) -> Result<T> {
    called.map_err(|error| {
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        Error::Interrupted
    })
}

/// Atoms of a frame, decoded in Python.
struct Hand<'a> {
    read: &'a Py<PyAny>,
    raised: &'a Raised,
}

impl Supply for Hand<'_> {
    fn read(&mut self, places: Range<u64>, table: &mut Table) -> Result<()> {
        let ids = table.column_mut(IDS);
        ids.extend((places.start + 1..=places.end).flat_map(u64::to_ne_bytes));
        let read = Python::attach(|py| {
            let arrays = self.read.bind(py).call1((places.start, places.end))?;
            let arrays: [Option<PyReadonlyArray2<'_, f32>>; 3] = arrays.extract()?;
            for (k, array) in arrays.iter().enumerate() {
                if let Some(array) = array {
                    let bytes = bytemuck::cast_slice(array.as_slice()?);
                    table.column_mut(POSITIONS + k).extend_from_slice(bytes);
                }
            }
            Ok(())
        });
        keep(self.raised, read)
    }
}

/// A user's function of positions.
struct Function<'a> {
    function: &'a Py<PyAny>,
    raised: &'a Raised,
}

impl Owners for Function<'_> {
    fn find(&mut self, table: &Table, ranks: &mut Vec<i64>) -> Result<()> {
        let called = Python::attach(|py| {
            let ids = PyArray1::from_iter(py, table.ids());
            let bytes = PyArray1::from_slice(py, table.column(POSITIONS));
            let found = self.function.bind(py).call1((ids, bytes))?;
            let found: PyReadonlyArray1<'_, i64> = found.extract()?;
            ranks.extend_from_slice(found.as_slice()?);
            Ok(())
        });
        keep(self.raised, called)
    }
}
