//! Reader of one dataset, for one worker.

use std::ops::Range;

use super::chunks_of_selected_atoms::Selection;
use super::timed_source_and_skipped_frames::{Flaw, SkippedFrames};
use super::timed_source_and_skipped_frames::{Run, TimedSource};
use super::{Chunk, Element, Slice, Wanted};
use crate::atom_set::Atoms;
use crate::block_reader::CHUNK;
use crate::error::Result;
use crate::hdf5_chunks::{Column, Part, Unpacked, Value, decode_in_place};
use crate::source::GAP;

/// Reader of one dataset, which stores decoded chunks for later reads.
pub(super) struct DatasetReader {
    pub selection: Selection,
    known: Known,
    rows: Vec<Wanted>,
}

impl DatasetReader {
    /// Create a reader for some atoms of a dataset that has `per_atom` values for each atom.
    ///
    /// # Errors
    /// [`crate::error::Error::Unsupported`] if the dataset is impossible.
    pub fn new(
        io: &TimedSource,
        element: Element,
        atoms: &Atoms,
        per_atom: usize,
    ) -> Result<DatasetReader> {
        Ok(DatasetReader {
            selection: Selection::new(io, element, atoms, per_atom)?,
            known: Known::default(),
            rows: Vec::new(),
        })
    }

    /// # Errors
    /// [`crate::error::Error::Argument`] if the slice does not fit the dataset, or does not have
    /// `n` rows.
    pub fn check(&self, slice: Slice<'_>, n: usize) -> Result<()> {
        slice.check(&self.selection.grid, !self.selection.is_unchunked(), n)
    }

    /// Decode the rows `frames` of a block, one after another, into `out`. If `whole` is true,
    /// decode each chunk to its end and verify all its checksums.
    pub fn fill<T: Value>(
        &mut self,
        io: &mut TimedSource,
        slice: Slice<'_>,
        frames: Range<usize>,
        whole: bool,
        out: &mut [T],
        skipped: &mut SkippedFrames<'_>,
    ) -> Result<()> {
        slice.wanted(frames, &mut self.rows);
        if self.selection.pipeline.is_empty() {
            return Plain::new(&self.selection, io, skipped, out).fill(slice, &self.rows);
        }
        let packed = Packed {
            selection: &self.selection,
            skipped,
            known: &mut self.known,
            whole,
            out,
        };
        packed.fill(io, slice, &self.rows)
    }

    /// Return the byte ranges that a block needs, in the order of reading.
    pub fn ranges(&mut self, io: &TimedSource, slice: Slice<'_>) -> Vec<Range<u64>> {
        slice.wanted(0..slice.rows.len(), &mut self.rows);
        let selection = &self.selection;
        let mut ranges = Vec::new();
        for group in self
            .rows
            .chunk_by(|a, b| selection.chunk_number(a.0) == selection.chunk_number(b.0))
        {
            let chunk_number = selection.chunk_number(group[0].0);
            for column in &selection.grid.columns {
                let chunk = selection.chunk(slice, chunk_number, column.index);
                if !selection.is_unchunked() && !io.holds(chunk.offset, chunk.size) {
                    continue;
                }
                if selection.pipeline.is_empty() {
                    ranges.extend(selection.ranges(chunk, chunk_number, column, group));
                } else {
                    ranges.push(selection.packed_range(chunk_number, column, chunk));
                }
            }
        }
        ranges.retain(|range| range.end <= io.file_size);
        ranges
    }
}

// Numbers without filters: contiguous datasets, and chunks without filters.

/// Reader of the wanted rows of a dataset without filters into a block.
pub(super) struct Plain<'a, 'f, T> {
    selection: &'a Selection,
    io: &'a mut TimedSource,
    skipped: &'a mut SkippedFrames<'f>,
    out: &'a mut [T],
    /// Parts of rows that are to be read with one call.
    run: Run<(&'a Part, usize)>,
    /// Byte range that is to be read directly into the output, and its range in the output.
    straight: (Range<u64>, Range<usize>),
}

impl<'a, 'f, T: Value> Plain<'a, 'f, T> {
    pub fn new(
        selection: &'a Selection,
        io: &'a mut TimedSource,
        skipped: &'a mut SkippedFrames<'f>,
        out: &'a mut [T],
    ) -> Self {
        Plain {
            selection,
            io,
            skipped,
            out,
            run: Run::new(),
            straight: (0..0, 0..0),
        }
    }

    pub fn fill(mut self, slice: Slice<'_>, wanted: &[Wanted]) -> Result<()> {
        let selection = self.selection;
        for group in
            wanted.chunk_by(|a, b| selection.chunk_number(a.0) == selection.chunk_number(b.0))
        {
            let chunk_number = selection.chunk_number(group[0].0);
            for column in &selection.grid.columns {
                let chunk = selection.chunk(slice, chunk_number, column.index);
                if chunk.size == 0 {
                    selection.fill(column, group, self.out);
                } else if let Err(flaw) =
                    selection.check_plain(self.io, chunk_number, column.index, chunk)
                {
                    self.skipped
                        .note(group.iter().map(|&(_, row)| row), &flaw)?;
                } else {
                    self.want(chunk_number, chunk, &column.parts, group)?;
                }
            }
        }
        self.read_run()?;
        self.read_straight()
    }

    /// Request the wanted parts of the rows of a chunk.
    fn want(
        &mut self,
        chunk_number: u64,
        chunk: Chunk,
        parts: &'a [Part],
        group: &[Wanted],
    ) -> Result<()> {
        for &(row, k) in group {
            let at = chunk.offset + self.selection.within(row, chunk_number);
            let size = self.selection.grid.row_bytes as u64;
            if self.selection.is_unchunked() && !self.io.holds(at, size) {
                let flaw = self.selection.cut_row(row, at, self.io.file_size);
                self.skipped.note(std::iter::once(k), &flaw)?;
                continue;
            }
            for part in parts {
                let start = at + part.start as u64;
                self.request_part(part, start..start + part.len as u64, k)?;
            }
        }
        Ok(())
    }

    fn request_part(&mut self, part: &'a Part, bytes: Range<u64>, row: usize) -> Result<()> {
        let width = self.selection.frame_len;
        // For few bytes, a separate read call would cost more than a copy.
        let worth = part.len as u64 >= GAP || part.len == self.selection.grid.row_bytes;
        if let Some(place) = part.copies.straight()
            && worth
            && T::as_stored(self.out, self.selection.dataset.number).is_some()
        {
            let target = row * width + place.start..row * width + place.end;
            let (waiting, out) = &mut self.straight;
            if bytes.start == waiting.end
                && target.start == out.end
                && bytes.end - waiting.start <= CHUNK
            {
                (waiting.end, out.end) = (bytes.end, target.end);
                return Ok(());
            }
            self.read_straight()?;
            self.straight = (bytes, target);
            return Ok(());
        }
        if !self.run.accepts(&bytes) {
            self.read_run()?;
        }
        self.run.push(bytes, (part, row));
        Ok(())
    }

    fn read_run(&mut self) -> Result<()> {
        let (selection, out) = (self.selection, &mut *self.out);
        let width = selection.frame_len;
        self.run.read(self.io, |_, bytes, (part, row)| {
            let frame = &mut out[row * width..(row + 1) * width];
            part.copies
                .scatter(selection.dataset.number, selection.units, bytes, frame);
            Ok(())
        })
    }

    /// Read numbers directly into the output. Convert them in small pieces, which are still in the
    /// processor's cache.
    fn read_straight(&mut self) -> Result<()> {
        let (bytes, target) = std::mem::replace(&mut self.straight, (0..0, 0..0));
        let number = self.selection.dataset.number;
        let Some(values) = T::as_stored(&mut self.out[target], number) else {
            return Ok(());
        };
        let mut at = bytes.start;
        for values in values.chunks_mut(CHUNK as usize / number.width) {
            let room: &mut [u8] = bytemuck::cast_slice_mut(values);
            let len = room.len() as u64;
            self.io.read(at, room)?;
            at += len;
            decode_in_place(number.big_endian, self.selection.units, values);
        }
        Ok(())
    }
}

// Chunks with filters.

/// Maximum total size of the decoded chunks that are stored per dataset, bytes. They are stored so
/// that a chunk of many frames is not decoded again for each frame.
pub const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// If the wanted beginning of a chunk is less than this fraction of the chunk, it is faster to
/// decompress only the beginning. Per byte, whole chunks are decompressed 1.3 to 1.8 times as fast.
pub const BEGINNING_SHARE: f64 = 0.6;

/// Number of bytes that are read beyond the estimated compressed size of a chunk's beginning.
pub const BEGINNING_SPARE: u64 = 512;

/// Decoded chunks of a dataset, and a ratio that was measured on them, from previous reads.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Index along the first axis of the chunks in `chunks`.
    chunk_number: u64,
    chunks: Vec<Kept>,
    /// Measured on the last chunk of which only the beginning was decoded: the used fraction of its
    /// compressed bytes, divided by the decoded fraction of its numbers. 0 before the first such
    /// chunk.
    ratio: f64,
}

/// Decoded chunk that is stored for other frames.
#[derive(Debug)]
struct Kept {
    column: usize,
    /// Location of the chunk. It is compared before reuse, because a chunk can be at another
    /// location after the file has grown.
    chunk: Chunk,
    /// True if the chunk was decoded to its end, and all checksums were verified.
    whole: bool,
    unpacked: Unpacked,
}

/// Reader of the wanted rows of chunks with filters into a block.
pub(super) struct Packed<'a, 'f, T> {
    pub selection: &'a Selection,
    pub skipped: &'a mut SkippedFrames<'f>,
    pub known: &'a mut Known,
    pub whole: bool,
    pub out: &'a mut [T],
}

/// Chunk to read, and the wanted rows that it contains.
#[derive(Clone, Copy)]
struct Task<'a> {
    chunk_number: u64,
    column: &'a Column,
    chunk: Chunk,
    rows: &'a [Wanted],
    /// Number of bytes of values to decode from the front; `None` to decode the whole chunk.
    beginning: Option<usize>,
}

impl<T: Value> Packed<'_, '_, T> {
    pub fn fill(mut self, io: &mut TimedSource, slice: Slice<'_>, wanted: &[Wanted]) -> Result<()> {
        let selection = self.selection;
        let mut run = Run::new();
        for rows in
            wanted.chunk_by(|a, b| selection.chunk_number(a.0) == selection.chunk_number(b.0))
        {
            let chunk_number = selection.chunk_number(rows[0].0);
            for column in &selection.grid.columns {
                let chunk = selection.chunk(slice, chunk_number, column.index);
                if chunk.size == 0 {
                    selection.fill(column, rows, self.out);
                    continue;
                }
                if let Some(kept) = self
                    .known
                    .find(chunk_number, column.index, chunk, self.whole)
                {
                    scatter(
                        selection,
                        chunk_number,
                        column,
                        rows,
                        &kept.unpacked,
                        io,
                        self.out,
                    );
                    continue;
                }
                if let Err(flaw) = selection.check_packed(io, chunk_number, column.index, chunk) {
                    self.skipped.note(rows.iter().map(|&(_, row)| row), &flaw)?;
                    continue;
                }
                let task = Task {
                    chunk_number,
                    column,
                    chunk,
                    rows,
                    beginning: selection.beginning(chunk_number, column, chunk.mask, self.whole),
                };
                let bytes = chunk.offset..chunk.offset + self.known.guess(selection, &task);
                if !run.accepts(&bytes) {
                    run.read(io, |io, bytes, task| self.take(io, bytes, task))?;
                }
                run.push(bytes, task);
            }
        }
        run.read(io, |io, bytes, task| self.take(io, bytes, task))
    }

    /// Decode a chunk, and copy its numbers to the rows.
    fn take(&mut self, io: &mut TimedSource, bytes: &[u8], task: Task<'_>) -> Result<()> {
        match self.unpack_straight(io, bytes, &task) {
            None => {}
            Some(Ok(())) => return Ok(()),
            Some(Err(contradiction)) => return self.note(&task, contradiction),
        }
        let room = io.rooms.pop().unwrap_or_default();
        let unpacked = match task.beginning {
            Some(len) => self.begin(io, bytes, &task, len, room)?,
            None => {
                let pipeline = &self.selection.pipeline;
                pipeline.unpack(task.chunk.mask, bytes, &mut io.decompressors, room)
            }
        };
        let Task {
            chunk_number,
            column,
            rows,
            ..
        } = task;
        match unpacked {
            Err(contradiction) => self.note(&task, contradiction),
            Ok(unpacked) => {
                scatter(
                    self.selection,
                    chunk_number,
                    column,
                    rows,
                    &unpacked,
                    io,
                    self.out,
                );
                let kept = Kept {
                    column: column.index,
                    chunk: task.chunk,
                    whole: task.beginning.is_none(),
                    unpacked,
                };
                self.known
                    .keep(self.selection, chunk_number, kept, &mut io.rooms);
                Ok(())
            }
        }
    }

    /// Record that the rows of `task` cannot be read, because their chunk is inconsistent.
    fn note(&mut self, task: &Task<'_>, (expected, found): (String, String)) -> Result<()> {
        let offset = task.chunk.offset;
        let column = task.column.index;
        let flaw = self
            .selection
            .flaw(task.chunk_number, column, offset, expected, found);
        self.skipped
            .note(task.rows.iter().map(|&(_, row)| row), &flaw)
    }

    /// Decode a chunk directly into the block, if all its numbers are wanted, in order. Otherwise
    /// return `None`. The inner error states what was expected and what was found.
    fn unpack_straight(
        &mut self,
        io: &mut TimedSource,
        bytes: &[u8],
        task: &Task<'_>,
    ) -> Option<std::result::Result<(), (String, String)>> {
        let (selection, rows) = (self.selection, task.rows);
        let [part] = &task.column.parts[..] else {
            return None;
        };
        let len = selection.frame_len;
        let are_all = part.copies.straight()? == (0..len)
            && part.len == selection.grid.row_bytes
            && rows.len() as u64 == selection.grid.chunk_rows;
        let in_order = |pair: &[Wanted]| (pair[0].0 + 1, pair[0].1 + 1) == pair[1];
        if !are_all || !rows.windows(2).all(in_order) {
            return None;
        }
        let first = rows.first()?.1;
        let numbers = &mut self.out[first * len..(first + rows.len()) * len];
        let number = selection.dataset.number;
        let values = T::as_stored(numbers, number)?;
        let room = bytemuck::cast_slice_mut(values);
        let decompressors = &mut io.decompressors;
        let done = selection
            .pipeline
            .unpack_into(task.chunk.mask, bytes, decompressors, room)?;
        if done.is_ok() {
            decode_in_place(number.big_endian, selection.units, values);
        }
        Some(done)
    }

    /// Decompress the beginning of a chunk, and read more bytes if necessary. The outer error is
    /// one of reading; the inner one states what was expected and what was found in the chunk.
    fn begin(
        &mut self,
        io: &mut TimedSource,
        bytes: &[u8],
        task: &Task<'_>,
        len: usize,
        mut room: Vec<u8>,
    ) -> Result<std::result::Result<Unpacked, (String, String)>> {
        room.resize(len, 0);
        io.decompressors.begin();
        let chunk = task.chunk;
        let mut more = Vec::new();
        let mut read = bytes.len() as u64;
        loop {
            let bytes = if more.is_empty() { bytes } else { &more };
            let found = match io.decompressors.decompress_more(bytes, &mut room) {
                Ok(true) => break,
                Err(found) => found,
                Ok(false) if read < chunk.size => {
                    more.resize((chunk.size - read).min(MORE) as usize, 0);
                    io.read(chunk.offset + read, &mut more)?;
                    read += more.len() as u64;
                    continue;
                }
                Ok(false) => "one that is truncated".into(),
            };
            let whole = self.selection.grid.chunk_bytes;
            return Ok(Err((format!("a deflate stream of {whole} bytes"), found)));
        }
        self.known
            .learn(self.selection, task, io.decompressors.used());
        Ok(Ok(Unpacked {
            bytes: room,
            shuffled: false,
        }))
    }
}

/// Maximum size of a further read from a chunk, bytes, if the first read contained too few bytes.
const MORE: u64 = 16 * 1024;

/// Copy the wanted numbers of a decoded chunk to the rows.
fn scatter<T: Value>(
    selection: &Selection,
    chunk_number: u64,
    column: &Column,
    rows: &[Wanted],
    unpacked: &Unpacked,
    io: &mut TimedSource,
    out: &mut [T],
) {
    let number = selection.dataset.number;
    for &(row, k) in rows {
        let at = selection.within(row, chunk_number) as usize;
        let frame = &mut out[k * selection.frame_len..(k + 1) * selection.frame_len];
        for part in &column.parts {
            let range = at + part.start..at + part.start + part.len;
            if let Some(place) = part.copies.straight()
                && let Some(values) = T::as_stored(&mut frame[place], number)
            {
                let room = bytemuck::cast_slice_mut(values);
                unpacked.copy_numbers(range, number.width, room);
                decode_in_place(number.big_endian, selection.units, values);
                continue;
            }
            let bytes = unpacked.numbers(range, number.width, &mut io.woven);
            part.copies.scatter(number, selection.units, bytes, frame);
        }
    }
}

impl Known {
    fn find(&self, number: u64, column: usize, chunk: Chunk, whole: bool) -> Option<&Kept> {
        let is_it =
            |kept: &&Kept| kept.column == column && kept.chunk == chunk && (kept.whole || !whole);
        // In a damaged index, the last chunk, of which fewer rows are stored, may have the location
        // of another one.
        let chunks = (number == self.chunk_number).then_some(&self.chunks)?;
        chunks.iter().find(is_it)
    }

    /// Store a decoded chunk if other frames may need it; otherwise reuse its memory.
    fn keep(
        &mut self,
        selection: &Selection,
        chunk_number: u64,
        kept: Kept,
        rooms: &mut Vec<Vec<u8>>,
    ) {
        if chunk_number != self.chunk_number {
            rooms.extend(self.chunks.drain(..).map(|kept| kept.unpacked.bytes));
            self.chunk_number = chunk_number;
        }
        self.chunks.retain(|other| other.column != kept.column);
        let bytes: usize = self
            .chunks
            .iter()
            .map(|kept| kept.unpacked.bytes.len())
            .sum();
        if selection.grid.chunk_rows > 1 && bytes + kept.unpacked.bytes.len() <= KEPT_BYTES {
            self.chunks.push(kept);
        } else {
            rooms.truncate(1);
            rooms.push(kept.unpacked.bytes);
        }
    }

    /// Estimate how many bytes must be read from the compressed chunk of `task`.
    fn guess(&self, selection: &Selection, task: &Task<'_>) -> u64 {
        let Some(len) = task.beginning else {
            return task.chunk.size;
        };
        let share = len as f64 / selection.grid.chunk_bytes as f64;
        let ratio = if self.ratio == 0.0 { 1.0 } else { self.ratio };
        let guess = task.chunk.size as f64 * share * ratio * 1.03;
        (guess as u64 + BEGINNING_SPARE).min(task.chunk.size)
    }

    fn learn(&mut self, selection: &Selection, task: &Task<'_>, used: u64) {
        if let Some(len) = task.beginning {
            let share = len as f64 / selection.grid.chunk_bytes as f64;
            self.ratio = used as f64 / (task.chunk.size as f64 * share);
        }
    }
}

impl Selection {
    /// Return the number of rows of a chunk if decoded chunks are too large to be stored, so that
    /// these rows should be decoded together; otherwise `None`.
    pub fn rows_not_kept(&self) -> Option<usize> {
        let grid = &self.grid;
        let bytes = grid.chunk_bytes.saturating_mul(grid.columns.len());
        let together = !self.pipeline.is_empty() && grid.chunk_rows > 1;
        (together && bytes > KEPT_BYTES).then_some(grid.chunk_rows as usize)
    }

    /// Return the number of bytes of the chunk's values up to the last wanted value, if
    /// decompressing only these is faster.
    fn beginning(
        &self,
        chunk_number: u64,
        column: &Column,
        mask: u32,
        whole: bool,
    ) -> Option<usize> {
        let grid = &self.grid;
        let rows = grid
            .chunk_rows
            .min(grid.n_rows - chunk_number * grid.chunk_rows) as usize;
        let len = (rows - 1) * grid.row_bytes + column.end();
        let pays = (len as f64) < BEGINNING_SHARE * grid.chunk_bytes as f64;
        (!whole && pays && self.pipeline.has_beginning(mask)).then_some(len)
    }

    fn check_packed(
        &self,
        io: &TimedSource,
        chunk_number: u64,
        column: usize,
        chunk: Chunk,
    ) -> std::result::Result<(), Flaw> {
        self.check_inside(io, chunk_number, column, chunk)?;
        let checked = self.pipeline.check_size(chunk.mask, chunk.size);
        checked.map_err(|(expected, found)| {
            self.flaw(chunk_number, column, chunk.offset, expected, found)
        })
    }

    /// Return the byte range of a chunk with filters that a prefetch should request. It is an
    /// estimate if only the beginning of the chunk is needed.
    pub fn packed_range(&self, chunk_number: u64, column: &Column, chunk: Chunk) -> Range<u64> {
        let share = match self.beginning(chunk_number, column, chunk.mask, false) {
            Some(len) => len as f64 / self.grid.chunk_bytes as f64,
            None => 1.0,
        };
        chunk.offset
            ..chunk
                .offset
                .saturating_add((chunk.size as f64 * share) as u64)
    }
}
