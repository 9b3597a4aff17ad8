//! Reader of blocks of frames from datasets of an HDF5 file. A chunk is decoded once for all frames
//! that are read together.

mod chunks_of_selected_atoms;
mod dataset_reader;
mod timed_source_and_skipped_frames;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::chunks_of_selected_atoms::Ids;
use self::dataset_reader::DatasetReader;
use self::timed_source_and_skipped_frames::SkippedFrames;
use self::timed_source_and_skipped_frames::TimedSource;
use super::{Ahead, BlockReport, ask_for};
use super::{BlockOut, Numbers, row_of, row_of_mut};
use crate::Fields;
use crate::atom_set::Atoms;
use crate::error::{Error, Result};
use crate::hdf5_chunks::{Dataset, Grid, Units};
use crate::source::Source;

pub use self::chunks_of_selected_atoms::read_integers;
pub use self::dataset_reader::{BEGINNING_SHARE, BEGINNING_SPARE, KEPT_BYTES};

/// Total size of the frames that are decoded together if they are then passed to a visitor or their
/// atoms are reordered, bytes. It is so small that the frames stay in the processor's cache.
const BATCH: usize = 512 * 1024;

/// Total size of the frames that are decoded together if decoded chunks are too large to be stored,
/// bytes. Every batch decodes such chunks again, so a batch is as large as paceline's largest block
/// (`LARGEST_BLOCK_BYTES` in `contract/plan.py`).
const LARGE_BATCH: usize = 256 * 1024 * 1024;

/// Reader of positions, velocities and forces in the datasets of one HDF5 file, for one worker.
pub struct ChunkReader {
    io: TimedSource,
    elements: [Option<DatasetReader>; 3],
    ids: Option<Ids>,
    n_wanted: usize,
    /// Buffers for frames that are passed to a visitor, or in which atoms are reordered.
    scratch: [Vec<f32>; 3],
    ahead: Ahead,
}

impl ChunkReader {
    /// Create a reader of some atoms. `elements` are the datasets of positions, velocities and
    /// forces; `None` stands for a field that is unwanted, or that the file lacks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for impossible or unsupported datasets, and errors of the source.
    pub fn new(
        source: Arc<dyn Source>,
        elements: [Option<Element>; 3],
        atoms: &Atoms,
        ids: Option<Identity>,
    ) -> Result<ChunkReader> {
        let io = TimedSource::new(source)?;
        let n_wanted = atoms.len();
        let ids = ids.map(|ids| Ids::new(&io, ids, atoms)).transpose()?;
        let slots = ids.as_ref().map(|ids| Atoms::all(ids.n_slots()));
        let atoms = slots.as_ref().unwrap_or(atoms);
        let [positions, velocities, forces] = elements.map(|element| {
            element
                .map(|element| DatasetReader::new(&io, element, atoms, 3))
                .transpose()
        });
        Ok(ChunkReader {
            io,
            elements: [positions?, velocities?, forces?],
            ids,
            n_wanted,
            scratch: Default::default(),
            ahead: Ahead::default(),
        })
    }

    /// Prefetch the bytes of a block that will be read soon, if previous reads had to wait, or if
    /// the source needs requests ahead of reads.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not fit the datasets.
    pub fn read_ahead(&mut self, slices: [Option<Slice<'_>>; 3]) -> Result<()> {
        if self.ahead.pays() || self.io.source.access().ahead > 0 {
            self.announce(slices)?;
        }
        Ok(())
    }

    /// Announce the bytes of a block to the source.
    fn announce(&mut self, slices: [Option<Slice<'_>>; 3]) -> Result<()> {
        let gap = self.io.source.access().gap;
        for (reader, slice) in self.elements.iter_mut().zip(slices) {
            if let (Some(reader), Some(slice)) = (reader, slice) {
                reader.check(slice, slice.rows.len())?;
                ask_for(&*self.io.source, gap, reader.ranges(&self.io, slice));
            }
        }
        Ok(())
    }

    /// Read and decode the positions, velocities and forces of a block. The caller reads cells,
    /// times and steps: those in `out` are changed only for unreadable frames.
    ///
    /// If a frame lacks a wanted field, the numbers of this field are NaN. A visitor must not use
    /// the numbers of such a field, which are undefined. If the field is required, the frame is
    /// refused.
    ///
    /// # Errors
    /// Unless frames are skipped, the error of the first damaged or refused frame. If they are
    /// skipped, the row of such a frame is NaN, the report lists the frame, and other frames are
    /// read. Errors of the operating system are never skipped.
    pub fn read(&mut self, request: ReadRequest<'_>, mut out: BlockOut<'_>) -> Result<BlockReport> {
        let started = Instant::now();
        self.check(&request, &out)?;
        if self.io.source.access().ahead > 0 {
            self.announce(request.slices)?;
        }
        let n = request.frames.len();
        let before = self.io.source.traffic();
        self.io.reading = Duration::ZERO;
        let mut skipped = SkippedFrames {
            path: self.io.source.path().to_owned(),
            frames: request.frames,
            skip: request.skip,
            base: 0,
            errors: (0..n).map(|_| None).collect(),
        };
        for row in 0..n {
            self.require(&request, row, &mut skipped)?;
        }
        let step = self.batch_len(n, &out.numbers);
        for first in (0..n).step_by(step) {
            let batch = first..n.min(first + step);
            self.read_batch(&request, batch, &mut out.numbers, &mut skipped)?;
        }
        let mut report = BlockReport::default();
        for (row, error) in skipped.errors.into_iter().enumerate() {
            match error {
                None => out.keep(row, 3 * self.n_wanted, request.held(row)),
                Some(error) => {
                    out.blank(row, 3 * self.n_wanted);
                    report.skipped.push((row, error));
                }
            }
        }
        let after = self.io.source.traffic();
        report.read = self.io.reading;
        report.decode = started.elapsed().saturating_sub(report.read);
        report.bytes = after.bytes - before.bytes;
        report.calls = after.calls - before.calls;
        self.ahead.learn(&report);
        Ok(report)
    }

    fn check(&self, request: &ReadRequest<'_>, out: &BlockOut<'_>) -> Result<()> {
        let n = request.frames.len();
        let mut wanted = Fields {
            positions: self.elements[0].is_some(),
            velocities: self.elements[1].is_some(),
            forces: self.elements[2].is_some(),
        };
        if let Numbers::Kept {
            positions,
            velocities,
            forces,
        } = &out.numbers
        {
            // A wanted field that the file lacks also has an output array.
            wanted.positions |= !positions.is_empty();
            wanted.velocities |= !velocities.is_empty();
            wanted.forces |= !forces.is_empty();
        }
        out.check(n, self.n_wanted, wanted)?;
        let ids = self.ids.as_ref().map(Ids::reader);
        let readers = self.elements.iter().map(Option::as_ref).chain([ids]);
        for (reader, slice) in readers.zip(request.slices.iter().chain([&request.ids])) {
            match (reader, slice) {
                (Some(reader), Some(slice)) => reader.check(*slice, n)?,
                (None, None) => {}
                _ => {
                    return Err(Error::Argument(
                        "expected a slice for each element, and for no other".into(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Refuse a frame that lacks a required field.
    fn require(
        &self,
        request: &ReadRequest<'_>,
        row: usize,
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        let held = request.held(row);
        let unidentified = request.ids.is_some_and(|ids| ids.rows[row] < 0);
        let lacks = request
            .required
            .beyond(held)
            .or(unidentified.then_some("numbers of its atoms"));
        match lacks {
            None => Ok(()),
            Some(what) => skipped.refuse(
                row,
                Error::Missing {
                    path: self.io.source.path().to_owned(),
                    frame: u64::try_from(request.frames[row]).unwrap_or_default(),
                    what,
                },
            ),
        }
    }

    /// Return the number of frames that are decoded together: all, if they are decoded directly
    /// into the output arrays.
    fn batch_len(&self, n: usize, numbers: &Numbers<'_>) -> usize {
        if self.ids.is_none() && matches!(numbers, Numbers::Kept { .. }) {
            return n.max(1);
        }
        let readers = self.elements.iter().flatten();
        let bytes: usize = readers
            .clone()
            .map(|reader| 4 * reader.selection.frame_len)
            .sum();
        let bytes = bytes + self.ids.as_ref().map_or(0, |ids| 8 * ids.n_slots());
        let readers = readers.chain(self.ids.as_ref().map(Ids::reader));
        let rows = readers
            .filter_map(|reader| reader.selection.rows_not_kept())
            .max();
        let batch = match rows {
            None => BATCH / bytes.max(1),
            Some(rows) => {
                let most = (LARGE_BATCH / bytes.max(1)).max(1);
                most - most % rows.min(most)
            }
        };
        batch.clamp(1, n.max(1))
    }

    /// Decode some frames of the block into their rows, or pass each decoded frame to a visitor.
    fn read_batch(
        &mut self,
        request: &ReadRequest<'_>,
        batch: Range<usize>,
        numbers: &mut Numbers<'_>,
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        skipped.base = batch.start;
        if self.ids.is_none()
            && let Numbers::Kept {
                positions,
                velocities,
                forces,
            } = numbers
        {
            return self.fill(request, batch, [positions, velocities, forces], skipped);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        for (values, reader) in scratch.iter_mut().zip(&self.elements) {
            let frame_len = reader
                .as_ref()
                .map_or(0, |reader| reader.selection.frame_len);
            values.resize(batch.len() * frame_len, 0.0);
        }
        let rooms = scratch.each_mut().map(|values| &mut values[..]);
        self.fill(request, batch.clone(), rooms, skipped)?;
        if let (Some(ids), Some(slice)) = (&mut self.ids, request.ids) {
            ids.read(&mut self.io, slice, batch.clone(), request.whole, skipped)?;
        }
        for (k, row) in batch.enumerate() {
            if skipped.errors[row].is_none() {
                self.bring(request, (k, row), &scratch, numbers, skipped)?;
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Decode the frames `batch` of the block into `rooms`. Each room is the memory of these
    /// frames, or of the whole block.
    fn fill(
        &mut self,
        request: &ReadRequest<'_>,
        batch: Range<usize>,
        rooms: [&mut [f32]; 3],
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        let elements = self.elements.iter_mut().zip(request.slices);
        for ((reader, slice), room) in elements.zip(rooms) {
            if let (Some(reader), Some(slice)) = (reader, slice) {
                let frame_len = reader.selection.frame_len;
                let room = match room.len() == batch.len() * frame_len {
                    true => room,
                    false => &mut room[batch.start * frame_len..batch.end * frame_len],
                };
                reader.fill(
                    &mut self.io,
                    slice,
                    batch.clone(),
                    request.whole,
                    room,
                    skipped,
                )?;
            }
        }
        Ok(())
    }

    /// Copy frame `k` of `scratch` to its row of `numbers`, or call the visitor with this frame.
    /// The atoms are brought into paceline's order first, if their order in the file is not fixed.
    fn bring(
        &mut self,
        request: &ReadRequest<'_>,
        (k, row): (usize, usize),
        scratch: &[Vec<f32>; 3],
        numbers: &mut Numbers<'_>,
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        let lens = self.elements.each_ref().map(|reader| {
            reader
                .as_ref()
                .map_or(0, |reader| reader.selection.frame_len)
        });
        let mut frame: [&[f32]; 3] =
            std::array::from_fn(|field| row_of(&scratch[field], k, lens[field]));
        if let (Some(ids), Some(slice)) = (&mut self.ids, request.ids) {
            match ids.sort(k, frame) {
                Ok(sorted) => frame = sorted,
                Err(found) => {
                    let flaw = ids.flaw(slice, row, found);
                    return skipped.note(std::iter::once(k), &flaw);
                }
            }
        }
        match numbers {
            Numbers::Visited(visit) => visit(row, frame, request.held(row)),
            Numbers::Kept {
                positions,
                velocities,
                forces,
            } => {
                let rows = [positions, velocities, forces];
                for (values, frame) in rows.into_iter().zip(frame) {
                    row_of_mut(values, row, frame.len()).copy_from_slice(frame);
                }
            }
        }
        Ok(())
    }
}

// Arguments of `ChunkReader`.

/// Dataset, and the conversion of its numbers to paceline's units.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// The dataset, as described by the HDF5 library.
    pub dataset: Dataset,
    /// Conversion to Å, Å/ps, kJ/(mol·Å) or ps.
    pub units: Units,
}

/// Ids of the atoms of each frame, if the order of atoms is not fixed.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Dataset of the ids, with one row per frame.
    pub element: Element,
    /// Increasing ids of all atoms, in paceline's order of atoms.
    pub order: Vec<i64>,
}

/// Request for the data of some frames.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest<'a> {
    /// Numbers of the frames, for messages.
    pub frames: &'a [i64],
    /// Locations of positions, velocities and forces; `None` for a field that is not read.
    pub slices: [Option<Slice<'a>>; 3],
    /// Location of the ids, if the order of atoms is not fixed.
    pub ids: Option<Slice<'a>>,
    /// Fields that every frame must contain.
    pub required: Fields,
    /// True to skip frames that cannot be read.
    pub skip: bool,
    /// True to verify all checksums, and the end of every stream.
    pub whole: bool,
}

impl ReadRequest<'_> {
    /// Return the fields of a frame, among the fields to be read.
    fn held(&self, row: usize) -> Fields {
        let [positions, velocities, forces] = self
            .slices
            .map(|slice| slice.is_some_and(|slice| slice.rows[row] >= 0));
        Fields {
            positions,
            velocities,
            forces,
        }
    }
}

// Locations of the frames of a block in one dataset.

/// Entries of a dataset's chunk index that are needed to read one block.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// Row of each frame in the dataset; −1 for a frame without a row.
    pub rows: &'a [i64],
    /// Indices along the first axis of the chunks that contain these rows: distinct and increasing.
    /// Empty for a contiguous dataset.
    pub chunk_numbers: &'a [u64],
    /// Offsets of these chunks in the file, bytes. Chunks with the same index follow each other.
    pub offsets: &'a [u64],
    /// Sizes of these chunks, bytes; 0 for a chunk that was never written.
    pub sizes: &'a [u64],
    /// Filter masks of these chunks: bit k is set if filter k of the pipeline was skipped.
    pub masks: &'a [u32],
}

/// Offset that marks a chunk with an impossible entry in the index of the file.
const NOWHERE: u64 = u64::MAX;

/// Location of a chunk in the file, and its filter mask (see [`Slice::masks`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    /// Offset in the file, bytes, or [`NOWHERE`].
    pub offset: u64,
    pub size: u64,
    pub mask: u32,
}

/// Row of the dataset, and its destination row, counted from the first frame that is read.
type Wanted = (u64, usize);

impl Slice<'_> {
    /// # Errors
    /// [`Error::Argument`] if the slice does not fit the dataset, or a block of `n` frames.
    fn check(&self, grid: &Grid, is_chunked: bool, n: usize) -> Result<()> {
        let n_chunks = self.chunk_numbers.len().checked_mul(grid.n_columns);
        let lengths = [self.offsets.len(), self.sizes.len(), self.masks.len()];
        if self.rows.len() != n || lengths.map(Some) != [n_chunks; 3] {
            return Err(Error::Argument(format!(
                "expected {n} rows, and {} chunks of each of {} numbers, found {} rows and \
                 {lengths:?} offsets, sizes and masks",
                grid.n_columns,
                self.chunk_numbers.len(),
                self.rows.len(),
            )));
        }
        if !self.chunk_numbers.is_sorted_by(|a, b| a < b) {
            return Err(Error::Argument("chunk numbers must increase".into()));
        }
        let known = |row: u64| {
            row < grid.n_rows
                && (!is_chunked
                    || self
                        .chunk_numbers
                        .binary_search(&(row / grid.chunk_rows))
                        .is_ok())
        };
        match self
            .rows
            .iter()
            .find(|&&row| row != -1 && !u64::try_from(row).is_ok_and(known))
        {
            Some(row) => Err(Error::Argument(format!(
                "row {row} is not within the dataset of {} rows, or its chunks are not given",
                grid.n_rows
            ))),
            None => Ok(()),
        }
    }

    /// Collect the rows of the dataset that the frames `frames` of the block need, in increasing
    /// order. Their destination rows are counted from the first of these frames.
    fn wanted(&self, frames: Range<usize>, wanted: &mut Vec<Wanted>) {
        wanted.clear();
        let rows = self.rows[frames].iter().enumerate();
        wanted.extend(rows.filter_map(|(k, &row)| Some((u64::try_from(row).ok()?, k))));
        // The rows are usually sorted already; the sort detects this in one pass.
        wanted.sort();
    }

    /// Return the location in the file of a chunk that the slice contains.
    fn chunk(&self, grid: &Grid, chunk_number: u64, column: usize) -> Chunk {
        let slot = self
            .chunk_numbers
            .partition_point(|&other| other < chunk_number);
        let k = slot * grid.n_columns + column;
        Chunk {
            offset: self.offsets[k],
            size: self.sizes[k],
            mask: self.masks[k],
        }
    }
}
