//! Distribution of the atoms of a file to the ranks that own them.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::byte_sources::open_verified;
use super::communicator_from_python::PyCommunicator;
use super::errors::Result;
use super::types::{Array1, Array2, INT, NewArray, Number, attributes, callable, narrowed};
use paceline_formats::dlpoly;
use paceline_formats::error::{self, Error};
use paceline_formats::format_list::STANDARD;
use paceline_formats::{Fields, Layout};
use paceline_snapshot::Communicator;
use paceline_snapshot::reading::{
    AtomSource, AtomTable, ById, CHARGES, Grid, Halo, IDS, Known, MASSES, Moment, NAMES, Owners,
    POSITIONS, ReadingCost, Settings, Text, distribute, widths,
};

/// Exception raised by Python code that the core called.
type Raised = Mutex<Option<PyErr>>;

attributes! {
    #[name = "_FrameInfo"]
    /// Frame of a file, as returned by `paceline.snapshot.frame_and_atom_locations`.
    pub(super) struct Frame {
        path: PathBuf,
        frame: u64,
        /// Fields of the frame, as bits.
        field_bits: u8,
        has_names: bool,
        has_masses: bool,
        has_charges: bool,
        /// Number of atom slots in the file. Some slots may contain no atom.
        n_places: u64,
        /// Range of the frame in a text file; None for other files. The Rust core decodes text.
        text: Option<TextFrameLocation>,
        read: Read,
    }
}

narrowed! {
    /// Function that returns the atoms of a range in the file, given the first index and the end.
    struct Read(Py<PyAny>): callable!([INT, INT] -> Decoded::INPUT_TYPE)
}

attributes! {
    #[name = "_TextFrame"]
    /// Range of a frame in a text file.
    pub(super) struct TextFrameLocation {
        layout: PyBackedBytes,
        samples: PyBackedBytes,
        offset: u64,
        size: u64,
    }
}

impl TextFrameLocation {
    /// Open the file, and check that it has not changed since it was first opened.
    fn open(&self, moment: &Moment) -> error::Result<Text> {
        let layout = STANDARD.layout(&self.layout);
        let Some(&layout) = layout.as_ref().and_then(Layout::downcast::<dlpoly::Layout>) else {
            return Err(Error::Argument(
                "these bytes are not a layout of text".into(),
            ));
        };
        let source = open_verified(&moment.path, &self.samples)?;
        let frame = self.offset..self.offset.saturating_add(self.size);
        Text::new(source, layout, moment.clone(), frame)
    }
}

/// Header of a frame: step, time (ps), cell vectors (Å), fields as bits, whether there are masses
/// and charges, and the vectors along which the cell is periodic.
type Head = (i64, f64, Option<[[f64; 3]; 3]>, u8, bool, [bool; 3]);

/// Read the header of a text frame: all lines before the atoms.
#[pyfunction]
pub(super) fn read_text_head(
    py: Python<'_>,
    path: PathBuf,
    frame: u64,
    text: TextFrameLocation,
) -> Result<Head> {
    let moment = Moment { path, frame };
    let text = py.detach(|| text.open(&moment))?;
    let head = text.head();
    let fields = head.fields.bits();
    let (has_masses, periodic) = (text.has_masses(), text.periodic());
    Ok((
        head.step, head.time, head.cell, fields, has_masses, periodic,
    ))
}

/// Rule that determines the owner rank of an atom.
#[derive(FromPyObject)]
pub(super) enum OwnerRule {
    /// Number of domains along each vector, the cell vectors (Å), and whether the cell is centred
    /// on the origin.
    Grid([u32; 3], [[f64; 3]; 3], bool),
    #[pyo3(transparent)]
    Function(RanksOf),
}

narrowed! {
    /// Function that returns ranks, given ids and the bytes of positions.
    pub(super) struct RanksOf(Py<PyAny>): callable!([i64::ARRAY, u8::ARRAY] -> i64::ARRAY)
}

/// For each column, the bytes of all atoms; None if the frame lacks the column.
type Columns = Vec<Option<NewArray<u8, 1>>>;

/// Seconds of reading, sorting and communicating; numbers of messages, bytes sent and batches;
/// maximum memory (bytes).
type Cost = (f64, f64, f64, u64, u64, u64, usize);

/// Numbers of cell vectors added to each atom's position in the file (three per atom), and the
/// number of the rank's own atoms, which come first.
type ImagesAndOwn = (NewArray<i32, 1>, usize);

/// Read one frame. Return the atoms of this rank, or None if another rank failed.
///
/// `ghosts` contains the width of a halo (Å), and for each cell vector whether the cell is periodic
/// along it.
#[pyfunction]
#[pyo3(signature = (comm, frame, whose, ghosts=None, *, n_atoms, readers, buffer))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub(super) fn read_snapshot(
    py: Python<'_>,
    comm: PyCommunicator,
    frame: Frame,
    whose: Option<OwnerRule>,
    ghosts: Option<(f64, [bool; 3])>,
    n_atoms: u64,
    readers: Vec<usize>,
    buffer: usize,
) -> Result<Option<(Columns, Cost, Option<ImagesAndOwn>)>> {
    let raised = Raised::default();
    let moment = Moment {
        path: frame.path.clone(),
        frame: frame.frame,
    };
    let settings = Settings {
        moment: &moment,
        n_atoms,
        n_places: frame.n_places,
        widths: widths(
            Fields::from_bits(frame.field_bits),
            frame.text.is_some(),
            Known {
                names: frame.has_names,
                masses: frame.has_masses,
                charges: frame.has_charges,
            },
        ),
        readers: &readers,
        buffer,
        ranges: whose.is_none(),
    };
    let read = py.detach(|| {
        let mut owners = owners_of(&whose, &moment, n_atoms, comm.size(), &raised)?;
        let mut hand = LazyAtomSource {
            frame: &frame,
            moment: &moment,
            raised: &raised,
            buffer,
            text: None,
        };
        let supply = readers.contains(&comm.rank()).then_some(&mut hand as _);
        let Some((own, cost)) = distribute(&comm, settings, supply, &mut *owners)? else {
            return Ok(None);
        };
        let (Some((width, periodic)), Some(OwnerRule::Grid(shape, vectors, centred))) =
            (ghosts, &whose)
        else {
            return Ok(Some((own, cost, None)));
        };
        let grid = Grid::new(moment.clone(), *shape, *vectors, *centred)?;
        let halo = Halo::new(grid, width, periodic)?;
        let found = halo.add_ghosts(&comm, &settings, own, cost)?;
        Ok(found.map(|(found, cost)| {
            let images: Vec<i32> = found.images.into_iter().flatten().collect();
            (found.atoms, cost, Some((images.into(), found.n_local)))
        }))
    });
    let raised = raised.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = raised.or_else(|| comm.raised()) {
        return Err(error.into());
    }
    let read: error::Result<_> = read;
    let Some((table, cost, images)) = read? else {
        return Ok(None);
    };
    let widths = *table.widths();
    let columns = table.into_columns().into_iter().zip(widths);
    let columns = columns.map(|(column, width)| (width > 0).then(|| column.into()));
    Ok(Some((columns.collect(), cost_of(cost), images)))
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
    whose: &'a Option<OwnerRule>,
    moment: &Moment,
    n_atoms: u64,
    n_ranks: usize,
    raised: &'a Raised,
) -> error::Result<Box<dyn Owners + 'a>> {
    Ok(match whose {
        None => Box::new(ById {
            n_atoms,
            n_ranks: n_ranks as u32,
        }),
        Some(OwnerRule::Grid(shape, vectors, centred)) => {
            Box::new(Grid::new(moment.clone(), *shape, *vectors, *centred)?)
        }
        Some(OwnerRule::Function(RanksOf(function))) => Box::new(Function { function, raised }),
    })
}

/// Store an exception of Python for the caller of the core.
fn store_exception<T>(raised: &Raised, called: PyResult<T>) -> error::Result<T> {
    called.map_err(|error| {
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        Error::Interrupted
    })
}

/// Atoms of a frame for a reading rank. A text file is opened only when atoms are first requested:
/// at that time, all ranks wait for the result, so that all get the error if it cannot be opened.
struct LazyAtomSource<'a> {
    frame: &'a Frame,
    moment: &'a Moment,
    raised: &'a Raised,
    buffer: usize,
    text: Option<Text>,
}

impl AtomSource for LazyAtomSource<'_> {
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> error::Result<()> {
        match (&self.frame.text, &mut self.text) {
            (None, _) => self.decode(places, table),
            (Some(_), Some(opened)) => opened.read(places, table),
            (Some(text), none) => {
                let opened = text.open(self.moment)?.within(self.buffer);
                none.insert(opened).read(places, table)
            }
        }
    }

    fn held(&self) -> usize {
        self.text.as_ref().map_or(0, AtomSource::held)
    }
}

attributes! {
    #[name = "_DecodedAtoms"]
    /// Atoms of a frame, as decoded by `paceline.snapshot.frame_and_atom_locations`.
    struct Decoded<'py> {
        /// Ids of the atoms; None if atom k of the file has id k.
        ids: Option<Array1<'py, i64>>,
        vectors: [Option<Array2<'py, f32>>; 3],
        names: Option<Array2<'py, u8>>,
        masses: Option<Array1<'py, f64>>,
        charges: Option<Array1<'py, f64>>,
    }
}

impl Decoded<'_> {
    fn append_to(&self, places: Range<u64>, table: &mut AtomTable) -> PyResult<()> {
        let column = table.column_mut(IDS);
        match &self.ids {
            Some(ids) => column.extend_from_slice(bytemuck::cast_slice(ids)),
            None => column.extend((places.start + 1..=places.end).flat_map(u64::to_ne_bytes)),
        }
        for (k, array) in self.vectors.iter().enumerate() {
            if let Some(array) = array {
                let bytes = bytemuck::cast_slice(array);
                table.column_mut(POSITIONS + k).extend_from_slice(bytes);
            }
        }
        if let Some(names) = &self.names {
            table.column_mut(NAMES).extend_from_slice(names);
        }
        for (column, array) in [(MASSES, &self.masses), (CHARGES, &self.charges)] {
            if let Some(array) = array {
                let bytes = bytemuck::cast_slice(array);
                table.column_mut(column).extend_from_slice(bytes);
            }
        }
        Ok(())
    }
}

impl LazyAtomSource<'_> {
    /// Append atoms that Python decoded.
    fn decode(&self, places: Range<u64>, table: &mut AtomTable) -> error::Result<()> {
        let read = Python::attach(|py| {
            let read = self.frame.read.0.bind(py);
            let atoms: Decoded<'_> = read.call1((places.start, places.end))?.extract()?;
            atoms.append_to(places, table)
        });
        store_exception(self.raised, read)
    }
}

/// User's function that assigns atoms to ranks by id and position.
struct Function<'a> {
    function: &'a Py<PyAny>,
    raised: &'a Raised,
}

impl Owners for Function<'_> {
    fn find(&mut self, table: &AtomTable, ranks: &mut Vec<i64>) -> error::Result<()> {
        let called = Python::attach(|py| {
            let ids = PyArray1::from_iter(py, table.ids());
            let bytes = PyArray1::from_slice(py, table.column(POSITIONS));
            let found = self.function.bind(py).call1((ids, bytes))?;
            let found: Array1<'_, i64> = found.extract()?;
            ranks.extend_from_slice(&found);
            Ok(())
        });
        store_exception(self.raised, called)
    }
}
