//! Numbers that stand in the file as they are: contiguous datasets, and chunks without filters.

use std::ops::Range;

use super::damage::Damage;
use super::desk::{Desk, Run};
use super::plan::Plan;
use super::slice::{Chunk, Slice, Wanted};
use crate::error::Result;
use crate::hdf5_chunks::{Part, Value, decode_in_place};
use crate::reader::CHUNK;
use crate::source::GAP;

/// Reads wanted rows into a block.
pub(super) struct Plain<'a, 'f, T> {
    plan: &'a Plan,
    desk: &'a mut Desk,
    damage: &'a mut Damage<'f>,
    out: &'a mut [T],
    /// Parts of rows that wait to be read together.
    run: Run<(&'a Part, usize)>,
    /// Bytes that wait to be read straight to their place, and that place.
    straight: (Range<u64>, Range<usize>),
}

impl<'a, 'f, T: Value> Plain<'a, 'f, T> {
    pub fn new(
        plan: &'a Plan,
        desk: &'a mut Desk,
        damage: &'a mut Damage<'f>,
        out: &'a mut [T],
    ) -> Self {
        Plain {
            plan,
            desk,
            damage,
            out,
            run: Run::new(),
            straight: (0..0, 0..0),
        }
    }

    pub fn fill(mut self, slice: Slice<'_>, wanted: &[Wanted]) -> Result<()> {
        let plan = self.plan;
        for group in wanted.chunk_by(|a, b| plan.place(a.0) == plan.place(b.0)) {
            let place = plan.place(group[0].0);
            for column in &plan.grid.columns {
                let chunk = plan.chunk(slice, place, column.index);
                if chunk.size == 0 {
                    plan.fill(column, group, self.out);
                } else if let Err(flaw) = plan.check_plain(self.desk, place, column.index, chunk) {
                    self.damage.note(group.iter().map(|&(_, row)| row), &flaw)?;
                } else {
                    self.want(place, chunk, &column.parts, group)?;
                }
            }
        }
        self.read_run()?;
        self.read_straight()
    }

    /// Read parts of some rows of a chunk.
    fn want(
        &mut self,
        place: u64,
        chunk: Chunk,
        parts: &'a [Part],
        group: &[Wanted],
    ) -> Result<()> {
        for &(row, k) in group {
            let at = chunk.offset + self.plan.within(row, place);
            let size = self.plan.grid.row_bytes as u64;
            if self.plan.is_contiguous() && !self.desk.holds(at, size) {
                let flaw = self.plan.cut_row(row, at, self.desk.file_size);
                self.damage.note(std::iter::once(k), &flaw)?;
                continue;
            }
            for part in parts {
                let start = at + part.start as u64;
                self.want_part(part, start..start + part.len as u64, k)?;
            }
        }
        Ok(())
    }

    fn want_part(&mut self, part: &'a Part, bytes: Range<u64>, row: usize) -> Result<()> {
        let width = self.plan.frame_len;
        // A call for little would cost more than copying it.
        let worth = part.len as u64 >= GAP || part.len == self.plan.grid.row_bytes;
        if let Some(place) = part.copies.straight()
            && worth
            && T::as_stored(self.out, self.plan.dataset.number).is_some()
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
        let (plan, out) = (self.plan, &mut *self.out);
        let width = plan.frame_len;
        self.run.read(self.desk, |_, bytes, (part, row)| {
            let frame = &mut out[row * width..(row + 1) * width];
            part.copies
                .scatter(plan.dataset.number, plan.units, bytes, frame);
            Ok(())
        })
    }

    /// Read numbers to where they go, and make values of them while the processor has them at
    /// hand.
    fn read_straight(&mut self) -> Result<()> {
        let (bytes, target) = std::mem::replace(&mut self.straight, (0..0, 0..0));
        let number = self.plan.dataset.number;
        let Some(values) = T::as_stored(&mut self.out[target], number) else {
            return Ok(());
        };
        let mut at = bytes.start;
        for values in values.chunks_mut(CHUNK as usize / number.width) {
            let room: &mut [u8] = bytemuck::cast_slice_mut(values);
            let len = room.len() as u64;
            self.desk.read(at, room)?;
            at += len;
            decode_in_place(number.big_endian, self.plan.units, values);
        }
        Ok(())
    }
}
