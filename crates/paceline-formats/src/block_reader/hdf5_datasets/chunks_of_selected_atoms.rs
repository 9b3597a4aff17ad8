//! Selection of atoms in a dataset: the chunks that contain the atoms, and checks of these chunks.

use std::ops::Range;
use std::sync::Arc;

use super::dataset_reader::DatasetReader;
use super::timed_source_and_skipped_frames::{Flaw, SkippedFrames, TimedSource};
use super::{Chunk, Element, Identity, NOWHERE, Slice, Wanted};
use crate::atom_set::Atoms;
use crate::block_reader::ask_for;
use crate::error::{Error, Result};
use crate::hdf5_chunks::{
    Column, Dataset, Grid, Kind, Pipeline, Units, Value, decode_one, max_expansion, tuple,
};
use crate::source::Source;

/// Wanted atoms of each row of a dataset, and the layout of these atoms in the chunks.
pub(super) struct Selection {
    pub dataset: Dataset,
    pub units: Units,
    pub grid: Grid,
    pub pipeline: Pipeline,
    /// Number of wanted values of one frame.
    pub frame_len: usize,
}

impl Selection {
    /// # Errors
    /// [`Error::Unsupported`] if the description of the dataset contradicts itself, the number of
    /// atoms or the size of the file, or if a filter is not supported.
    pub fn new(
        io: &TimedSource,
        element: Element,
        atoms: &Atoms,
        per_atom: usize,
    ) -> Result<Selection> {
        let Element { dataset, units } = element;
        let unsupported = |what| Error::Unsupported {
            path: io.source.path().to_owned(),
            what,
        };
        dataset.check().map_err(unsupported)?;
        check_axes(&dataset, atoms.n_total() as u64, per_atom as u64).map_err(unsupported)?;
        check_room(&dataset, io.file_size).map_err(unsupported)?;
        let grid = Grid::new(&dataset, atoms, per_atom);
        let pipeline = Pipeline::new(&dataset.filters, dataset.number.width, grid.chunk_bytes);
        let named = |what| unsupported(format!("{}: {what}", dataset.name));
        Ok(Selection {
            pipeline: pipeline.map_err(named)?,
            grid,
            frame_len: atoms.len() * per_atom,
            dataset,
            units,
        })
    }

    pub fn is_unchunked(&self) -> bool {
        self.dataset.chunk.is_none()
    }

    /// Return the index of the chunks that contain a row. Chunks are counted along the first axis.
    pub fn chunk_number(&self, row: u64) -> u64 {
        row / self.grid.chunk_rows
    }

    /// Return the offset of a row from the beginning of its decoded chunk, bytes.
    pub fn within(&self, row: u64, chunk_number: u64) -> u64 {
        (row - chunk_number * self.grid.chunk_rows) * self.grid.row_bytes as u64
    }

    /// Return the location of a chunk; a contiguous dataset counts as one chunk.
    pub fn chunk(&self, slice: Slice<'_>, chunk_number: u64, column: usize) -> Chunk {
        match self.is_unchunked() {
            false => slice.chunk(&self.grid, chunk_number, column),
            true => Chunk {
                offset: self.dataset.offset,
                size: if self.dataset.offset == 0 {
                    0
                } else {
                    self.grid.chunk_bytes as u64
                },
                mask: 0,
            },
        }
    }

    /// Write the fill value of the dataset to the rows of `out` whose chunk was never written.
    pub fn fill<T: Value>(&self, column: &Column, rows: &[Wanted], out: &mut [T]) {
        let value = match self.dataset.fill.is_empty() {
            true => T::default(),
            false => decode_one(self.dataset.number, self.units, &self.dataset.fill),
        };
        for &(_, row) in rows {
            let frame = &mut out[row * self.frame_len..(row + 1) * self.frame_len];
            column
                .parts
                .iter()
                .for_each(|part| part.copies.fill(value, frame));
        }
    }

    /// Return the byte ranges of the wanted values in some rows of a chunk without filters.
    pub fn ranges(
        &self,
        chunk: Chunk,
        chunk_number: u64,
        column: &Column,
        rows: &[Wanted],
    ) -> Vec<Range<u64>> {
        let of_row = |&(row, _): &Wanted| {
            let at = chunk.offset + self.within(row, chunk_number);
            let parts = column.parts.iter();
            parts.map(move |part| at + part.start as u64..at + (part.start + part.len) as u64)
        };
        rows.iter().flat_map(of_row).collect()
    }

    /// Refuse a chunk without filters if it is outside the file, or has the wrong size.
    pub fn check_plain(
        &self,
        io: &TimedSource,
        chunk_number: u64,
        column: usize,
        chunk: Chunk,
    ) -> std::result::Result<(), Flaw> {
        if self.is_unchunked() {
            return Ok(());
        }
        self.check_inside(io, chunk_number, column, chunk)?;
        let size = self.grid.chunk_bytes as u64;
        if chunk.size == size {
            return Ok(());
        }
        Err(self.flaw(
            chunk_number,
            column,
            chunk.offset,
            format!("{size} bytes of numbers"),
            format!("{} bytes", chunk.size),
        ))
    }

    pub fn check_inside(
        &self,
        io: &TimedSource,
        chunk_number: u64,
        column: usize,
        chunk: Chunk,
    ) -> std::result::Result<(), Flaw> {
        if io.holds(chunk.offset, chunk.size) {
            return Ok(());
        }
        let found = match chunk.offset {
            NOWHERE => "an impossible offset in the index of the file".to_string(),
            _ => format!("a file of {} bytes", io.file_size),
        };
        Err(self.flaw(
            chunk_number,
            column,
            chunk.offset,
            format!("{} bytes within the file", chunk.size),
            found,
        ))
    }

    /// Return a description of the contradiction in a chunk.
    pub fn flaw(
        &self,
        chunk_number: u64,
        column: usize,
        offset: u64,
        expected: String,
        found: String,
    ) -> Flaw {
        let at = tuple(&self.grid.coordinates(chunk_number, column));
        Flaw {
            what: format!("chunk {at} of {}", self.dataset.name),
            offset: (offset != NOWHERE).then_some(offset),
            expected,
            found,
        }
    }

    /// Return a description of a row that extends beyond the end of the file, in a contiguous
    /// dataset.
    pub fn cut_row(&self, row: u64, offset: u64, file_size: u64) -> Flaw {
        Flaw {
            what: format!("row {row} of {}", self.dataset.name),
            offset: Some(offset),
            expected: format!("{} bytes within the file", self.grid.row_bytes),
            found: format!("a file of {file_size} bytes"),
        }
    }
}

/// Refuse axes that do not match the number of atoms.
fn check_axes(dataset: &Dataset, n_atoms: u64, per_atom: u64) -> std::result::Result<(), String> {
    let fits = match dataset.shape[1..] {
        [numbers] => Some(numbers) == n_atoms.checked_mul(per_atom),
        [atoms, components] => atoms == n_atoms && components == per_atom,
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => Err(format!(
            "{}: expected {per_atom} numbers for each of {n_atoms} atoms, found shape {}",
            dataset.name,
            tuple(&dataset.shape)
        )),
    }
}

/// Refuse rows with more numbers than the file can contain, and rows that consist of more chunks
/// than the file has bytes. Without these limits, a damaged file could request unlimited memory.
fn check_room(dataset: &Dataset, file_size: u64) -> std::result::Result<(), String> {
    let numbers: u64 = dataset.shape[1..].iter().product();
    let most = file_size.saturating_mul(max_expansion(&dataset.filters) as u64)
        / dataset.number.width as u64;
    let chunk = dataset.chunk.as_ref().unwrap_or(&dataset.shape);
    let axes = dataset.shape[1..].iter().zip(&chunk[1..]);
    let columns: u64 = axes.map(|(&n, &step)| n.div_ceil(step.max(1))).product();
    let (what, most, found) = match numbers <= most {
        true => ("chunks side by side", file_size, columns),
        false => ("numbers in a row", most, numbers),
    };
    match found <= most {
        true => Ok(()),
        false => Err(format!(
            "{}: expected at most {most} {what} in a file of {file_size} bytes, found {found}",
            dataset.name
        )),
    }
}

// The following code is for frames in which the order of atoms is not fixed. Each frame contains
// the id of the atom in each slot.

/// Value in [`Ids::slots`] for an atom whose id is in no slot of the frame.
const NO_SLOT: usize = usize::MAX;

/// Finder of the wanted atoms of each frame by their ids, which the frame contains.
pub(super) struct Ids {
    reader: DatasetReader,
    n_slots: usize,
    /// Ids of all atoms, in increasing order. This is paceline's order of atoms.
    order: Vec<i64>,
    atoms: Atoms,
    /// Ids in all slots of the frames read last, one frame after another.
    numbers: Vec<i64>,
    /// Slot of each atom in the current frame, in paceline's order of atoms.
    slots: Vec<usize>,
    /// Positions, velocities and forces of the wanted atoms in the current frame, in paceline's
    /// order.
    sorted: [Vec<f32>; 3],
}

impl Ids {
    /// # Errors
    /// [`Error::Unsupported`] if ids are not integers. [`Error::Argument`] if `order` is not
    /// increasing, or has a different number of ids than there are atoms.
    pub fn new(io: &TimedSource, ids: Identity, atoms: &Atoms) -> Result<Ids> {
        let Identity { element, order } = ids;
        if order.len() != atoms.n_total() || !order.is_sorted_by(|a, b| a < b) {
            return Err(Error::Argument(format!(
                "expected increasing ids of {} atoms, found {}",
                atoms.n_total(),
                order.len()
            )));
        }
        let dataset = &element.dataset;
        if dataset.number.kind == Kind::Float || dataset.shape.len() != 2 {
            return Err(Error::Unsupported {
                path: io.source.path().to_owned(),
                what: format!(
                    "{}: expected one integer for each atom of a frame",
                    dataset.name
                ),
            });
        }
        let n_slots = usize::try_from(dataset.shape[1]).unwrap_or(usize::MAX);
        Ok(Ids {
            reader: DatasetReader::new(io, element, &Atoms::all(n_slots), 1)?,
            n_slots,
            order,
            atoms: atoms.clone(),
            numbers: Vec::new(),
            slots: Vec::new(),
            sorted: Default::default(),
        })
    }

    /// Number of atom slots in a frame, which may exceed the number of atoms.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    pub fn reader(&self) -> &DatasetReader {
        &self.reader
    }

    /// Read the ids of the atoms in some frames of a block.
    pub fn read(
        &mut self,
        io: &mut TimedSource,
        slice: Slice<'_>,
        frames: Range<usize>,
        whole: bool,
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        self.numbers.resize(frames.len() * self.n_slots, 0);
        self.reader
            .fill(io, slice, frames, whole, &mut self.numbers, skipped)
    }

    /// Return the positions, velocities and forces of the wanted atoms in paceline's order. `frame`
    /// contains the values of all slots in frame `k` of those whose ids were read last.
    ///
    /// # Errors
    /// A message about the first atom without a slot, or about an atom with two slots.
    pub fn sort(
        &mut self,
        k: usize,
        frame: [&[f32]; 3],
    ) -> std::result::Result<[&[f32]; 3], String> {
        self.find(k)?;
        for (sorted, values) in self.sorted.iter_mut().zip(frame) {
            sorted.clear();
            if values.is_empty() {
                continue;
            }
            for &(first, n) in self.atoms.runs() {
                for &slot in &self.slots[first..first + n] {
                    sorted.extend_from_slice(&values[3 * slot..3 * slot + 3]);
                }
            }
        }
        Ok(self.sorted.each_ref().map(|values| &values[..]))
    }

    /// Find the slots of all atoms in frame `k` of those whose ids were read last. An unknown id is
    /// ignored, since it marks an empty slot.
    fn find(&mut self, k: usize) -> std::result::Result<(), String> {
        self.slots.clear();
        self.slots.resize(self.order.len(), NO_SLOT);
        let numbers = &self.numbers[k * self.n_slots..(k + 1) * self.n_slots];
        let first = self.order.first().copied().unwrap_or_default();
        for (slot, &number) in numbers.iter().enumerate() {
            // Ids are usually consecutive, so that this guess is usually right.
            let guess = number.wrapping_sub(first) as usize;
            let atom = match self.order.get(guess) == Some(&number) {
                true => guess,
                false => match self.order.binary_search(&number) {
                    Ok(atom) => atom,
                    Err(_) => continue,
                },
            };
            if self.slots[atom] != NO_SLOT {
                return Err(format!("{number} twice"));
            }
            self.slots[atom] = slot;
        }
        match self.slots.iter().position(|&slot| slot == NO_SLOT) {
            Some(atom) => Err(format!("no {}", self.order[atom])),
            None => Ok(()),
        }
    }

    /// Return a description of the contradiction in the ids of a row.
    pub fn flaw(&self, slice: Slice<'_>, row: usize, found: String) -> Flaw {
        let selection = &self.reader.selection;
        let row = slice.rows[row].unsigned_abs();
        let chunk_number = selection.chunk_number(row);
        let offset = selection.chunk(slice, chunk_number, 0).offset;
        Flaw {
            what: format!("row {row} of {}", selection.dataset.name),
            offset: Some(match selection.pipeline.is_empty() {
                true => offset + selection.within(row, chunk_number),
                false => offset,
            }),
            expected: "each atom's number once".into(),
            found,
        }
    }
}

// Reading of integers that belong to frames, such as the ids of the atoms.

/// Read rows of a dataset of shape (rows, integers). Each chunk is read once.
///
/// # Errors
/// [`Error::DamagedChunk`] for the first chunk that cannot be read. [`Error::Argument`] if the
/// dataset does not contain integers, if the rows have more numbers than the file can contain, or
/// if the slice does not fit the dataset. [`Error::Unsupported`] for an impossible dataset. Errors
/// of the source.
pub fn read_integers(
    source: Arc<dyn Source>,
    dataset: Dataset,
    slice: Slice<'_>,
) -> Result<Vec<i64>> {
    let mut io = TimedSource::new(source)?;
    let width = dataset.number.width as u64;
    let columns = dataset.shape.get(1).copied().unwrap_or_default();
    let n = columns.saturating_mul(slice.rows.len() as u64);
    let most = io
        .file_size
        .saturating_mul(max_expansion(&dataset.filters) as u64)
        / width;
    if dataset.number.kind == Kind::Float || dataset.shape.len() != 2 || n > most {
        return Err(Error::Argument(format!(
            "{}: expected rows of integers, at most {most} in this file, found {n}",
            dataset.name
        )));
    }
    let element = Element {
        dataset,
        units: Units::NONE,
    };
    let mut reader = DatasetReader::new(&io, element, &Atoms::all(columns as usize), 1)?;
    reader.check(slice, slice.rows.len())?;
    let access = io.source.access();
    if access.ahead > 0 {
        ask_for(&*io.source, access.gap, reader.ranges(&io, slice));
    }
    let mut numbers = vec![0; n as usize];
    let mut skipped = SkippedFrames {
        path: io.source.path().to_owned(),
        frames: slice.rows,
        skip: false,
        base: 0,
        errors: slice.rows.iter().map(|_| None).collect(),
    };
    let rows = 0..slice.rows.len();
    reader.fill(&mut io, slice, rows, true, &mut numbers, &mut skipped)?;
    Ok(numbers)
}
