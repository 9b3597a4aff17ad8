//! Reader of blocks of frames. It makes few large reads, and decodes each frame directly into its
//! row.

pub mod hdf5_datasets;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::atom_set::Atoms;
use crate::error::{Error, Fault, Result};
use crate::source::{Access, GAP, Source};
use crate::{CELL_WIDTH, CellRow, Decoder, Fields, FrameOut, Layout};

/// Maximum size of one read that covers several frames, bytes. If the file is in memory, sizes from
/// 64 KiB to 4 MiB are equally fast. Remote file systems need large reads.
const CHUNK: u64 = 1024 * 1024;

/// Locations of the frames of a block: number, offset and size of each, in the wanted order.
#[derive(Debug, Clone, Copy)]
pub struct Extents<'a> {
    /// Numbers of the frames, for messages.
    pub frames: &'a [u64],
    /// Offset of each frame in the file, bytes.
    pub offsets: &'a [u64],
    /// Size of each frame, bytes.
    pub sizes: &'a [u64],
}

impl<'a> Extents<'a> {
    /// Return the extents from a row on.
    fn rows_from(&self, row: usize) -> Extents<'a> {
        Extents {
            frames: &self.frames[row..],
            offsets: &self.offsets[row..],
            sizes: &self.sizes[row..],
        }
    }

    /// # Errors
    /// [`Error::Argument`] if the numbers of frames, offsets and sizes differ, or if a frame is
    /// outside a file of `file_size` bytes.
    fn check(&self, file_size: u64) -> Result<()> {
        let n = self.frames.len();
        if self.offsets.len() != n || self.sizes.len() != n {
            return Err(Error::Argument(format!(
                "expected {n} offsets and sizes, one for each frame, found {} and {}",
                self.offsets.len(),
                self.sizes.len()
            )));
        }
        for (&offset, &size) in self.offsets.iter().zip(self.sizes) {
            if offset.checked_add(size).is_none_or(|end| end > file_size) {
                return Err(Error::Argument(format!(
                    "{size} bytes from byte {offset} on are not within a file of {file_size} bytes"
                )));
            }
        }
        Ok(())
    }
}

/// Cost of a block, and its unreadable frames.
#[derive(Debug, Default)]
pub struct BlockReport {
    /// Time of read calls.
    pub read: Duration,
    /// Time of decoding and of the visitor, if there is one.
    pub decode: Duration,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of read calls.
    pub calls: u64,
    /// For each skipped frame, its row in the block and why it was skipped.
    pub skipped: Vec<(usize, Error)>,
}

/// Reader of a trajectory for one worker: a source, a decoder and a reused buffer.
pub struct BlockReader {
    source: Arc<dyn Source>,
    /// Size of the file when it was opened, bytes.
    file_size: u64,
    decoder: Box<dyn Decoder>,
    n_wanted: usize,
    wanted: Fields,
    buffer: Vec<u8>,
    /// Buffers for positions, velocities and forces of one frame, if frames are passed to a
    /// visitor.
    scratch: [Vec<f32>; 3],
    /// Byte ranges of the file that are in the buffer, one after another.
    ranges: Vec<Range<u64>>,
    /// Pieces of the buffer, each with its row.
    pieces: Vec<Piece>,
    ahead: Ahead,
}

/// Bytes in the buffer that were read for one row of a block.
#[derive(Debug, Clone, Copy)]
struct Piece {
    row: usize,
    start: usize,
    len: usize,
    /// Number of these bytes if they are the beginning of the frame, else 0.
    front: usize,
}

impl BlockReader {
    /// Create a reader of the fields `wanted` of some atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] if `atoms` was made for another number of atoms than `layout` has.
    /// Errors of the source and of the decoder.
    pub fn new(
        source: Arc<dyn Source>,
        layout: &Layout,
        atoms: Atoms,
        wanted: Fields,
    ) -> Result<Self> {
        if atoms.n_total() != layout.n_atoms() {
            return Err(Error::Argument(format!(
                "atoms chosen out of {}, but the trajectory has {}",
                atoms.n_total(),
                layout.n_atoms()
            )));
        }
        let file_size = source.size()?;
        let n_wanted = atoms.len();
        let mut decoder = layout.decoder(atoms, wanted)?;
        show_first_frame(&*source, file_size, &mut *decoder)?;
        Ok(BlockReader {
            source,
            file_size,
            decoder,
            n_wanted,
            wanted,
            buffer: Vec::new(),
            scratch: Default::default(),
            ranges: Vec::new(),
            pieces: Vec::new(),
            ahead: Ahead::default(),
        })
    }

    /// Prefetch the bytes of a block that will be read soon, if previous reads had to wait or if
    /// the source is a store.
    ///
    /// # Errors
    /// [`Error::Argument`] if a frame is outside the file.
    pub fn read_ahead(&mut self, extents: Extents<'_>) -> Result<()> {
        extents.check(self.file_size)?;
        if self.ahead.pays() || self.source.access().ahead > 0 {
            self.announce(extents);
        }
        Ok(())
    }

    /// Announce the bytes of a block to the source. For a store, the rest of a frame is announced,
    /// too, if reading it takes less time than another request, because the decoder may need this
    /// rest.
    fn announce(&mut self, extents: Extents<'_>) {
        let Access { mut gap, ahead, .. } = self.source.access();
        if extents.frames.len() <= FEW {
            gap = gap.min(GAP_OF_FEW);
        }
        let spare = if ahead > 0 { gap } else { 0 };
        let mut ranges = Vec::new();
        for (k, &frame) in extents.frames.iter().enumerate() {
            let (start, size) = (extents.offsets[k], extents.sizes[k]);
            for run in self.decoder.runs(frame, size) {
                let rest = size.saturating_sub(run.end());
                let end = if rest <= spare { size } else { run.end() };
                ranges.push(start + run.start..start + end);
            }
        }
        ask_for(&*self.source, gap, ranges);
    }

    /// Read and decode a block.
    ///
    /// If a frame lacks a wanted field, the numbers of this field are NaN. A visitor must not use
    /// the numbers of such a field, which are undefined. If the field is `required`, the frame is
    /// refused.
    ///
    /// # Errors
    /// Without `skip`, the error of the first damaged or refused frame. With `skip`, the row of
    /// such a frame is NaN, the report lists the frame, and other frames are read. Errors of the
    /// operating system are never skipped.
    pub fn read(
        &mut self,
        extents: Extents<'_>,
        out: BlockOut<'_>,
        required: Fields,
        skip: bool,
    ) -> Result<BlockReport> {
        let n = extents.frames.len();
        extents.check(self.file_size)?;
        let mut rows = Rows::new(out, n, self.n_wanted, self.wanted, &mut self.scratch)?;
        let before = self.source.traffic();
        let from_store = self.source.access().ahead > 0;
        if from_store {
            self.announce(extents);
        }
        let mut report = BlockReport::default();
        let mut next = 0;
        while next < n {
            let started = Instant::now();
            next = self.fetch(extents, next)?;
            report.read += started.elapsed();
            let started = Instant::now();
            let mut read_again = Duration::ZERO;
            let before = if from_store {
                self.n_bytes(extents, next)
            } else {
                0
            };
            for k in 0..self.pieces.len() {
                let piece = self.pieces[k];
                let decoded = self
                    .decode(extents, piece, &mut rows, &mut read_again)
                    .and_then(|held| self.require(extents, piece.row, held, required));
                match decoded {
                    Err(error @ (Error::Damaged { .. } | Error::Missing { .. })) if skip => {
                        rows.blank(piece.row);
                        report.skipped.push((piece.row, error));
                    }
                    Err(error) => return Err(error),
                    Ok(held) => rows.keep(piece.row, held),
                }
            }
            report.read += read_again;
            report.decode += started.elapsed() - read_again;
            if from_store && self.n_bytes(extents, next) > before {
                // The decoder has learned that frames need more bytes than were announced: without
                // a new announcement, each of the remaining frames would wait for another request.
                self.announce(extents.rows_from(next));
            }
        }
        self.scratch = rows.into_scratch();
        let after = self.source.traffic();
        report.bytes = after.bytes - before.bytes;
        report.calls = after.calls - before.calls;
        self.ahead.learn(&report);
        Ok(report)
    }

    /// Read the bytes for row `first`, and for the following rows if they are close in the file.
    /// Return the first row that was not read.
    ///
    /// One call may read the end of one frame and the beginning of the next. In NetCDF, for
    /// example, one call reads the cell of a frame, and the time and the first atoms of the next
    /// frame.
    fn fetch(&mut self, extents: Extents<'_>, first: usize) -> Result<usize> {
        self.pieces.clear();
        self.ranges.clear();
        let (mut row, mut len) = (first, 0);
        while row < extents.frames.len() {
            let runs = self.decoder.runs(extents.frames[row], extents.sizes[row]);
            let offset = extents.offsets[row];
            let size: u64 = runs.iter().map(|run| run.len).sum();
            let (mut start, mut apart) = (len, runs);
            if let Some(range) = self.ranges.last_mut() {
                let Some((run, others)) = runs.split_first() else {
                    break;
                };
                let begin = offset + run.start;
                if !within_reach(range.end, begin, GAP) || len + size > CHUNK {
                    break;
                }
                start += begin - range.end;
                range.end = begin + run.len;
                apart = others;
            }
            self.ranges.extend(
                apart
                    .iter()
                    .map(|run| offset + run.start..offset + run.end()),
            );
            self.pieces.push(Piece {
                row,
                start: start as usize,
                len: size as usize,
                front: match runs {
                    [run] if run.start == 0 => size as usize,
                    _ => 0,
                },
            });
            len = start + size;
            row += 1;
        }
        grow(&mut self.buffer, len as usize);
        let mut rest = &mut self.buffer[..len as usize];
        for range in &self.ranges {
            let (bytes, behind) = rest.split_at_mut((range.end - range.start) as usize);
            self.source.read_at(range.start, bytes)?;
            rest = behind;
        }
        Ok(row)
    }

    /// Return the number of bytes that the decoder requests for a row; 0 after the last row.
    fn n_bytes(&mut self, extents: Extents<'_>, row: usize) -> u64 {
        let Some(&frame) = extents.frames.get(row) else {
            return 0;
        };
        let runs = self.decoder.runs(frame, extents.sizes[row]);
        runs.iter().map(|run| run.len).sum()
    }

    /// Refuse a frame that lacks a required field.
    fn require(
        &self,
        extents: Extents<'_>,
        row: usize,
        held: Fields,
        required: Fields,
    ) -> Result<Fields> {
        match required.beyond(held) {
            None => Ok(held),
            Some(what) => Err(Error::Missing {
                path: self.source.path().to_owned(),
                frame: extents.frames[row],
                what,
            }),
        }
    }

    /// Decode one row, and read more bytes of its frame if the decoder requests them. Return the
    /// fields of the frame.
    fn decode(
        &mut self,
        extents: Extents<'_>,
        piece: Piece,
        rows: &mut Rows<'_>,
        read_again: &mut Duration,
    ) -> Result<Fields> {
        let row = piece.row;
        let (frame, offset, size) = (
            extents.frames[row],
            extents.offsets[row],
            extents.sizes[row],
        );
        let mut bytes = Cow::from(&self.buffer[piece.start..piece.start + piece.len]);
        let mut front = piece.front;
        loop {
            let mut held = Fields::default();
            let out = rows.place(row, &mut held);
            let fault = match self.decoder.decode(frame, size, &bytes, out) {
                Ok(()) => return Ok(held),
                Err(fault) => fault,
            };
            let have = bytes.len();
            match fault {
                Fault::Short { needed } if needed > have && needed as u64 <= size => {
                    let started = Instant::now();
                    let bytes = bytes.to_mut();
                    bytes.resize(needed.max(2 * have).min(size as usize), 0);
                    self.source
                        .read_at(offset + front as u64, &mut bytes[front..])?;
                    front = bytes.len();
                    *read_again += started.elapsed();
                }
                fault => {
                    let path = self.source.path();
                    return Err(Error::damaged(path, Some(frame), offset, size, fault));
                }
            }
        }
    }
}

/// Pass the first frame to the decoder, if the decoder needs data that only this frame contains.
fn show_first_frame(source: &dyn Source, file_size: u64, decoder: &mut dyn Decoder) -> Result<()> {
    let Some((start, size)) = decoder.needs_first() else {
        return Ok(());
    };
    let extents = Extents {
        frames: &[0],
        offsets: &[start],
        sizes: &[size],
    };
    extents.check(file_size)?;
    let mut first = vec![0; size as usize];
    source.read_at(start, &mut first)?;
    decoder
        .learn(&first)
        .map_err(|fault| Error::damaged(source.path(), Some(0), start, size, fault))
}

/// Return true if a read up to `end` can continue to a range that begins at `start`, because the
/// gap between them is small.
fn within_reach(end: u64, start: u64, gap: u64) -> bool {
    start >= end && start - end <= gap
}

fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

// Prefetching: the decision whether it saves time, and the requests.

// A block whose reading took longer than these limits came from a disk or a network.

/// Maximum time of a read call if its bytes are in memory, without the time to copy the bytes.
const CACHED_CALL: Duration = Duration::from_micros(4);
/// Minimum rate of copying bytes that are in memory.
const CACHED_BYTES_PER_SECOND: f64 = 1e9;

/// Number of blocks that are prefetched after a block came from a disk. Then one block is read
/// without prefetching, to test whether prefetching is still useful. It is useless if the bytes are
/// in memory: for sparse DCD blocks, a quarter of the total time was then spent on it.
const BLOCKS_AHEAD: u32 = 32;

/// Decision whether the next blocks should be prefetched.
#[derive(Debug, Default)]
struct Ahead {
    /// Number of blocks still to be prefetched.
    blocks: u32,
}

impl Ahead {
    pub fn pays(&self) -> bool {
        self.blocks > 0
    }

    /// Update the decision from the cost of a block.
    pub fn learn(&mut self, report: &BlockReport) {
        if self.blocks > 0 {
            self.blocks -= 1;
            return;
        }
        let copying = Duration::from_secs_f64(report.bytes as f64 / CACHED_BYTES_PER_SECOND);
        if report.read > copying + CACHED_CALL * u32::try_from(report.calls).unwrap_or(u32::MAX) {
            self.blocks = BLOCKS_AHEAD;
        }
    }
}

/// Maximum number of frames whose requests are all in progress at the same time. For so few frames,
/// it saves no time to join two requests by reading a gap of more than `GAP_OF_FEW` bytes.
const FEW: usize = 4;
const GAP_OF_FEW: u64 = 64 << 10;

/// Prefetch byte ranges. Ranges that are at most `gap` bytes apart are requested with one call.
pub(crate) fn ask_for(source: &dyn Source, gap: u64, ranges: impl IntoIterator<Item = Range<u64>>) {
    let mut pending: Option<Range<u64>> = None;
    let mut rest = source.access().gaps;
    for wanted in ranges {
        match &mut pending {
            Some(range) if within_reach(range.end, wanted.start, gap.min(rest)) => {
                rest -= wanted.start - range.end;
                range.end = wanted.end;
            }
            _ => {
                if let Some(range) = pending.replace(wanted) {
                    source.will_need(range.start, range.end - range.start);
                }
            }
        }
    }
    if let Some(range) = pending {
        source.will_need(range.start, range.end - range.start);
    }
}

// Output of a block: arrays with one row per frame, or a visitor.

/// Output of a block: one row per frame.
pub struct BlockOut<'a> {
    /// Positions, velocities and forces.
    pub numbers: Numbers<'a>,
    /// Unit cells.
    pub cells: &'a mut [CellRow],
    /// Times, ps.
    pub times: &'a mut [f64],
    /// Step numbers of the simulation.
    pub steps: &'a mut [i64],
    /// λ of free-energy calculations; unchanged if the format has none.
    pub lambdas: &'a mut [f32],
    /// Fields of each frame, as [`Fields::bits`]; 0 for an unreadable frame.
    pub fields: &'a mut [u8],
}

impl BlockOut<'_> {
    /// # Errors
    /// [`Error::Argument`] if the arrays do not match `n` frames of `n_wanted` atoms.
    fn check(&self, n: usize, n_wanted: usize, wanted: Fields) -> Result<()> {
        let width = 3 * n_wanted;
        let room = |wanted, n| if wanted { n * width } else { 0 };
        let fits = match &self.numbers {
            Numbers::Kept {
                positions,
                velocities,
                forces,
            } => {
                positions.len() == room(wanted.positions, n)
                    && velocities.len() == room(wanted.velocities, n)
                    && forces.len() == room(wanted.forces, n)
            }
            Numbers::Visited(_) => true,
        };
        let fits = fits
            && self.cells.len() == n
            && self.times.len() == n
            && self.steps.len() == n
            && self.lambdas.len() == n
            && self.fields.len() == n;
        if !fits {
            return Err(Error::Argument(format!(
                "the arrays of a block must all have {n} rows, and {n_wanted} atoms where they \
                 have atoms"
            )));
        }
        Ok(())
    }

    /// Record the fields of the frame in a row, and set missing fields to NaN.
    fn keep(&mut self, row: usize, width: usize, held: Fields) {
        self.fields[row] = held.bits();
        if let Numbers::Kept {
            positions,
            velocities,
            forces,
        } = &mut self.numbers
        {
            for (there, values) in [
                (held.positions, positions),
                (held.velocities, velocities),
                (held.forces, forces),
            ] {
                if !there {
                    row_of_mut(values, row, width).fill(f32::NAN);
                }
            }
        }
    }

    /// Set a row to the values of an unreadable frame, or call the visitor with empty slices.
    fn blank(&mut self, row: usize, width: usize) {
        self.keep(row, width, Fields::default());
        if let Numbers::Visited(visit) = &mut self.numbers {
            visit(row, [&[]; 3], Fields::default());
        }
        self.cells[row] = [f64::NAN; CELL_WIDTH];
        self.times[row] = f64::NAN;
        self.steps[row] = i64::MIN;
    }
}

/// Function that is called with each frame of a block: its row, its positions, velocities and
/// forces, and its fields. For an unreadable frame, the slices and the fields are empty.
pub type Visitor<'a> = dyn FnMut(usize, [&[f32]; 3], Fields) + Send + 'a;

/// Output of positions, velocities and forces.
pub enum Numbers<'a> {
    /// Arrays. The array of an unwanted field is empty.
    Kept {
        /// frames × atoms wanted × 3, Å.
        positions: &'a mut [f32],
        /// frames × atoms wanted × 3, Å/ps.
        velocities: &'a mut [f32],
        /// frames × atoms wanted × 3, kJ/(mol·Å).
        forces: &'a mut [f32],
    },
    /// Visitor that is called frame by frame, while the numbers are in the cache.
    Visited(Box<Visitor<'a>>),
}

/// Rows of a block while they are filled.
struct Rows<'a> {
    out: BlockOut<'a>,
    /// Number of values of a frame in each field.
    width: usize,
    /// Positions, velocities and forces of the current frame, if frames are passed to a visitor.
    scratch: [Vec<f32>; 3],
}

impl<'a> Rows<'a> {
    /// Create the rows of a block, which write to `out`. The buffers of `scratch` are moved into
    /// the rows, and [`Rows::into_scratch`] returns them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the arrays do not match `n` frames of `n_wanted` atoms.
    pub fn new(
        out: BlockOut<'a>,
        n: usize,
        n_wanted: usize,
        wanted: Fields,
        scratch: &mut [Vec<f32>; 3],
    ) -> Result<Self> {
        out.check(n, n_wanted, wanted)?;
        let width = 3 * n_wanted;
        let mut scratch = std::mem::take(scratch);
        if let Numbers::Visited(_) = &out.numbers {
            let wanted = [wanted.positions, wanted.velocities, wanted.forces];
            for (values, wanted) in scratch.iter_mut().zip(wanted) {
                values.resize(if wanted { width } else { 0 }, 0.0);
            }
        }
        Ok(Rows {
            out,
            width,
            scratch,
        })
    }

    pub fn into_scratch(self) -> [Vec<f32>; 3] {
        self.scratch
    }

    /// Return the buffers into which the frame of a row is decoded. The decoder writes the frame's
    /// fields to `held`.
    pub fn place<'b>(&'b mut self, row: usize, held: &'b mut Fields) -> FrameOut<'b> {
        let width = self.width;
        let [positions, velocities, forces] = match &mut self.out.numbers {
            Numbers::Kept {
                positions,
                velocities,
                forces,
            } => [positions, velocities, forces].map(|values| row_of_mut(values, row, width)),
            Numbers::Visited(_) => self.scratch.each_mut().map(|values| &mut values[..]),
        };
        FrameOut {
            positions,
            velocities,
            forces,
            cell: &mut self.out.cells[row],
            time: &mut self.out.times[row],
            step: &mut self.out.steps[row],
            lambda: &mut self.out.lambdas[row],
            fields: held,
        }
    }

    /// Record the fields of a decoded frame. Then set missing fields to NaN, or call the visitor
    /// with the frame.
    pub fn keep(&mut self, row: usize, held: Fields) {
        self.out.keep(row, self.width, held);
        if let Numbers::Visited(visit) = &mut self.out.numbers {
            visit(row, self.scratch.each_ref().map(|values| &values[..]), held);
        }
    }

    /// Set a row to the values of an unreadable frame, or call the visitor with empty slices.
    pub fn blank(&mut self, row: usize) {
        self.out.blank(row, self.width);
    }
}

/// Return a row of an array, or an empty slice if the array is empty.
fn row_of_mut(values: &mut [f32], row: usize, width: usize) -> &mut [f32] {
    values
        .get_mut(row * width..(row + 1) * width)
        .unwrap_or_default()
}

/// Return a row of an array for reading.
fn row_of(values: &[f32], row: usize, width: usize) -> &[f32] {
    values
        .get(row * width..(row + 1) * width)
        .unwrap_or_default()
}
