//! Frames whose atoms are in no fixed order: each says which atom is where.

use std::ops::Range;
use std::sync::Arc;

use super::dataset_reader::DatasetReader;
use super::io_context::{Flaw, IoContext, SkippedFrames};
use super::{Element, Identity, Slice};
use crate::atom_set::Atoms;
use crate::error::{Error, Result};
use crate::hdf5_chunks::{Dataset, Kind, Units, most_of};
use crate::source::Source;

/// No slot holds the atom.
const NOWHERE: usize = usize::MAX;

/// Finds wanted atoms by their numbers.
pub(super) struct Ids {
    reader: DatasetReader,
    n_slots: usize,
    /// The number of each of our atoms, rising.
    order: Vec<i64>,
    atoms: Atoms,
    /// Numbers of the atoms in each slot, of the frames that were read last.
    numbers: Vec<i64>,
    /// Slot of each of our atoms in the frame at hand.
    slots: Vec<usize>,
    /// The frame at hand, wanted atoms in our order.
    sorted: [Vec<f32>; 3],
}

impl Ids {
    /// # Errors
    /// [`Error::Unsupported`] for numbers that are no integers, [`Error::Argument`] for an order
    /// of other atoms.
    pub fn new(io: &IoContext, ids: Identity, atoms: &Atoms) -> Result<Ids> {
        let Identity { element, order } = ids;
        if order.len() != atoms.n_total() || !order.is_sorted_by(|a, b| a < b) {
            return Err(Error::Argument(format!(
                "expected the numbers of {} atoms, rising, found {}",
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

    /// Places for atoms in a frame; there may be more than atoms.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    pub fn reader(&self) -> &DatasetReader {
        &self.reader
    }

    /// Read the atoms' numbers in some frames of a block.
    pub fn read(
        &mut self,
        io: &mut IoContext,
        slice: Slice<'_>,
        frames: Range<usize>,
        whole: bool,
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        self.numbers.resize(frames.len() * self.n_slots, 0);
        self.reader
            .fill(io, slice, frames, whole, &mut self.numbers, skipped)
    }

    /// The wanted atoms of a frame in our order, given those in all slots.
    ///
    /// # Errors
    /// The first atom that is in no slot, or the first slot with one that was before, in words.
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

    /// Find all atoms of a frame; a number that is none of theirs is passed over, as it marks a
    /// slot without an atom.
    fn find(&mut self, k: usize) -> std::result::Result<(), String> {
        self.slots.clear();
        self.slots.resize(self.order.len(), NOWHERE);
        let numbers = &self.numbers[k * self.n_slots..(k + 1) * self.n_slots];
        let first = self.order.first().copied().unwrap_or_default();
        for (slot, &number) in numbers.iter().enumerate() {
            // Nearly always numbers are consecutive.
            let guess = number.wrapping_sub(first) as usize;
            let atom = match self.order.get(guess) == Some(&number) {
                true => guess,
                false => match self.order.binary_search(&number) {
                    Ok(atom) => atom,
                    Err(_) => continue,
                },
            };
            if self.slots[atom] != NOWHERE {
                return Err(format!("{number} twice"));
            }
            self.slots[atom] = slot;
        }
        match self.slots.iter().position(|&slot| slot == NOWHERE) {
            Some(atom) => Err(format!("no {}", self.order[atom])),
            None => Ok(()),
        }
    }

    /// Return the flaw in the numbers of a row of the block.
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

// All numbers of a dataset of integers, such as the steps of all frames.

/// Read rows of a dataset of (rows, numbers), each chunk once.
///
/// # Errors
/// [`Error::DamagedChunk`] for the first chunk that cannot be read, [`Error::Argument`] for a
/// dataset of other numbers, or of more than its file could hold, and what the source gives.
pub fn read_integers(
    source: Arc<dyn Source>,
    dataset: Dataset,
    slice: Slice<'_>,
) -> Result<Vec<i64>> {
    let mut io = IoContext::new(source)?;
    let width = dataset.number.width as u64;
    let columns = dataset.shape.get(1).copied().unwrap_or_default();
    let n = columns.saturating_mul(slice.rows.len() as u64);
    let most = io
        .file_size
        .saturating_mul(most_of(&dataset.filters) as u64)
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
