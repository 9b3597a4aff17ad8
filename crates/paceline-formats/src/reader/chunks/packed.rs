//! Chunks whose bytes went through filters.

use std::ops::Range;

use super::damage::{Damage, Flaw};
use super::desk::{Desk, Run};
use super::plan::Plan;
use super::slice::{Chunk, Slice, Wanted};
use crate::error::Result;
use crate::hdf5_chunks::{Column, Unpacked, Value};

/// Bytes of unpacked chunks that are kept of a dataset, so that reading frame by frame does not
/// unpack chunks that hold many frames again for each of them.
const KEPT: usize = 64 * 1024 * 1024;

/// Up to this part of a chunk it is quicker to inflate no more than is wanted: byte for byte, whole
/// chunks were inflated 1.3 to 1.8 times as fast.
const BEGINNING: f64 = 0.6;

/// What is known of a dataset's chunks from those that were read before.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The place of chunks that was unpacked last.
    place: u64,
    chunks: Vec<Kept>,
    /// Bytes that inflating a beginning took, by those that the beginning's share of the numbers
    /// would have taken.
    ratio: f64,
}

/// A chunk that was unpacked.
#[derive(Debug)]
struct Kept {
    column: usize,
    /// Where it was: a file that grows may have it elsewhere now.
    chunk: Chunk,
    /// To its end, every checksum proved.
    whole: bool,
    unpacked: Unpacked,
}

/// Reads wanted rows into a block.
pub(super) struct Packed<'a, 'f, T> {
    pub plan: &'a Plan,
    pub damage: &'a mut Damage<'f>,
    pub known: &'a mut Known,
    pub whole: bool,
    pub out: &'a mut [T],
}

/// A chunk that is about to be read, and the rows that want it.
#[derive(Clone, Copy)]
struct Task<'a> {
    place: u64,
    column: &'a Column,
    chunk: Chunk,
    rows: &'a [Wanted],
    /// Bytes of the numbers that are wanted, from the front on, where the rest is not needed.
    beginning: Option<usize>,
}

impl<T: Value> Packed<'_, '_, T> {
    pub fn fill(mut self, desk: &mut Desk, slice: Slice<'_>, wanted: &[Wanted]) -> Result<()> {
        let plan = self.plan;
        let mut run = Run::new();
        for rows in wanted.chunk_by(|a, b| plan.place(a.0) == plan.place(b.0)) {
            let place = plan.place(rows[0].0);
            for column in &plan.grid.columns {
                let chunk = plan.chunk(slice, place, column.index);
                if chunk.size == 0 {
                    plan.fill(column, rows, self.out);
                    continue;
                }
                if let Some(kept) = self.known.find(column.index, chunk, self.whole) {
                    scatter(plan, place, column, rows, &kept.unpacked, desk, self.out);
                    continue;
                }
                if let Err(flaw) = plan.check_packed(desk, place, column.index, chunk) {
                    self.damage.note(rows.iter().map(|&(_, row)| row), &flaw)?;
                    continue;
                }
                let task = Task {
                    place,
                    column,
                    chunk,
                    rows,
                    beginning: plan.beginning(place, column, chunk.mask, self.whole),
                };
                let bytes = chunk.offset..chunk.offset + self.known.guess(plan, &task);
                if !run.accepts(&bytes) {
                    run.read(desk, |desk, bytes, task| self.take(desk, bytes, task))?;
                }
                run.push(bytes, task);
            }
        }
        run.read(desk, |desk, bytes, task| self.take(desk, bytes, task))
    }

    /// Unpack a chunk and bring its numbers to their places.
    fn take(&mut self, desk: &mut Desk, bytes: &[u8], task: Task<'_>) -> Result<()> {
        let room = desk.rooms.pop().unwrap_or_default();
        let unpacked = match task.beginning {
            Some(len) => self.begin(desk, bytes, &task, len, room)?,
            None => {
                let pipeline = &self.plan.pipeline;
                pipeline.unpack(task.chunk.mask, bytes, &mut desk.inflater, room)
            }
        };
        let Task {
            place,
            column,
            rows,
            ..
        } = task;
        match unpacked {
            Err((expected, found)) => {
                let flaw = self
                    .plan
                    .flaw(place, column.index, task.chunk.offset, expected, found);
                self.damage.note(rows.iter().map(|&(_, row)| row), &flaw)
            }
            Ok(unpacked) => {
                scatter(self.plan, place, column, rows, &unpacked, desk, self.out);
                let kept = Kept {
                    column: column.index,
                    chunk: task.chunk,
                    whole: task.beginning.is_none(),
                    unpacked,
                };
                self.known.keep(self.plan, place, kept, &mut desk.rooms);
                Ok(())
            }
        }
    }

    /// Inflate the beginning of a chunk, reading more of it where need be.
    fn begin(
        &mut self,
        desk: &mut Desk,
        bytes: &[u8],
        task: &Task<'_>,
        len: usize,
        mut room: Vec<u8>,
    ) -> Result<std::result::Result<Unpacked, (String, String)>> {
        room.resize(len, 0);
        desk.inflater.begin();
        let chunk = task.chunk;
        let mut more = Vec::new();
        let mut read = bytes.len() as u64;
        loop {
            let bytes = if more.is_empty() { bytes } else { &more };
            let found = match desk.inflater.go_on(bytes, &mut room) {
                Ok(true) => break,
                Err(found) => found,
                Ok(false) if read < chunk.size => {
                    more.resize((chunk.size - read).min(MORE) as usize, 0);
                    desk.read(chunk.offset + read, &mut more)?;
                    read += more.len() as u64;
                    continue;
                }
                Ok(false) => "one that breaks off".into(),
            };
            let whole = self.plan.grid.chunk_bytes;
            return Ok(Err((format!("a deflate stream of {whole} bytes"), found)));
        }
        self.known.learn(self.plan, task, desk.inflater.used());
        Ok(Ok(Unpacked {
            bytes: room,
            shuffled: false,
        }))
    }
}

/// What is read at once where the first guess was too small.
const MORE: u64 = 16 * 1024;

/// Bring the wanted numbers of an unpacked chunk to their places.
fn scatter<T: Value>(
    plan: &Plan,
    place: u64,
    column: &Column,
    rows: &[Wanted],
    unpacked: &Unpacked,
    desk: &mut Desk,
    out: &mut [T],
) {
    let number = plan.dataset.number;
    for &(row, k) in rows {
        let at = plan.within(row, place) as usize;
        let frame = &mut out[k * plan.frame_len..(k + 1) * plan.frame_len];
        for part in &column.parts {
            let range = at + part.start..at + part.start + part.len;
            let bytes = unpacked.numbers(range, number.width, &mut desk.woven);
            part.copies.scatter(number, plan.units, bytes, frame);
        }
    }
}

impl Known {
    fn find(&self, column: usize, chunk: Chunk, whole: bool) -> Option<&Kept> {
        let is_it =
            |kept: &&Kept| kept.column == column && kept.chunk == chunk && (kept.whole || !whole);
        self.chunks.iter().find(is_it)
    }

    /// Keep an unpacked chunk where other frames may want it; its room is used again otherwise.
    fn keep(&mut self, plan: &Plan, place: u64, kept: Kept, rooms: &mut Vec<Vec<u8>>) {
        if place != self.place {
            rooms.extend(self.chunks.drain(..).map(|kept| kept.unpacked.bytes));
            self.place = place;
        }
        self.chunks.retain(|other| other.column != kept.column);
        let bytes: usize = self
            .chunks
            .iter()
            .map(|kept| kept.unpacked.bytes.len())
            .sum();
        if plan.grid.chunk_rows > 1 && bytes + kept.unpacked.bytes.len() <= KEPT {
            self.chunks.push(kept);
        } else {
            rooms.truncate(1);
            rooms.push(kept.unpacked.bytes);
        }
    }

    /// Bytes to read of a chunk.
    fn guess(&self, plan: &Plan, task: &Task<'_>) -> u64 {
        let Some(len) = task.beginning else {
            return task.chunk.size;
        };
        let share = len as f64 / plan.grid.chunk_bytes as f64;
        let ratio = if self.ratio == 0.0 { 1.0 } else { self.ratio };
        let guess = task.chunk.size as f64 * share * ratio * 1.03;
        (guess as u64 + 512).min(task.chunk.size)
    }

    fn learn(&mut self, plan: &Plan, task: &Task<'_>, used: u64) {
        if let Some(len) = task.beginning {
            let share = len as f64 / plan.grid.chunk_bytes as f64;
            self.ratio = used as f64 / (task.chunk.size as f64 * share);
        }
    }
}

impl Plan {
    /// Rows that are unpacked together, where their chunks are too many to be kept.
    pub fn rows_not_kept(&self) -> Option<usize> {
        let grid = &self.grid;
        let bytes = grid.chunk_bytes.saturating_mul(grid.columns.len());
        let together = !self.pipeline.is_empty() && grid.chunk_rows > 1;
        (together && bytes > KEPT).then_some(grid.chunk_rows as usize)
    }

    /// Bytes of a chunk's numbers up to the last wanted one of its last row, where it pays to
    /// inflate no more than them.
    fn beginning(&self, place: u64, column: &Column, mask: u32, whole: bool) -> Option<usize> {
        let grid = &self.grid;
        let rows = grid.chunk_rows.min(grid.n_rows - place * grid.chunk_rows) as usize;
        let len = (rows - 1) * grid.row_bytes + column.end();
        let pays = (len as f64) < BEGINNING * grid.chunk_bytes as f64;
        (!whole && pays && self.pipeline.has_beginning(mask)).then_some(len)
    }

    fn check_packed(
        &self,
        desk: &Desk,
        place: u64,
        column: usize,
        chunk: Chunk,
    ) -> std::result::Result<(), Flaw> {
        self.check_inside(desk, place, column, chunk)?;
        let checked = self.pipeline.check_size(chunk.mask, chunk.size);
        checked.map_err(|(expected, found)| self.flaw(place, column, chunk.offset, expected, found))
    }

    /// Bytes that will be read of a chunk with filters.
    pub fn packed_range(&self, place: u64, column: &Column, chunk: Chunk) -> Range<u64> {
        let share = match self.beginning(place, column, chunk.mask, false) {
            Some(len) => len as f64 / self.grid.chunk_bytes as f64,
            None => 1.0,
        };
        chunk.offset
            ..chunk
                .offset
                .saturating_add((chunk.size as f64 * share) as u64)
    }
}
