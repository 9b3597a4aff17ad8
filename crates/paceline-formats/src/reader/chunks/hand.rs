//! One worker's hand on one dataset.

use std::ops::Range;

use super::Element;
use super::damage::Damage;
use super::desk::Desk;
use super::packed::{Known, Packed};
use super::plain::Plain;
use super::plan::Plan;
use super::slice::{Slice, Wanted};
use crate::atom_set::Atoms;
use crate::error::Result;
use crate::hdf5_chunks::Value;

/// A dataset, and what is at hand of it.
pub(super) struct Hand {
    pub plan: Plan,
    known: Known,
    rows: Vec<Wanted>,
}

impl Hand {
    /// A hand on what a dataset holds of some atoms, so many numbers of each.
    ///
    /// # Errors
    /// [`crate::error::Error::Unsupported`] where there can be no such dataset.
    pub fn new(desk: &Desk, element: Element, atoms: &Atoms, per_atom: usize) -> Result<Hand> {
        Ok(Hand {
            plan: Plan::new(desk, element, atoms, per_atom)?,
            known: Known::default(),
            rows: Vec::new(),
        })
    }

    /// # Errors
    /// [`crate::error::Error::Argument`] where a slice does not fit the dataset, or `n` frames.
    pub fn check(&self, slice: Slice<'_>, n: usize) -> Result<()> {
        slice.check(&self.plan.grid, !self.plan.is_contiguous(), n)
    }

    /// Decode some frames of a block, one after another.
    pub fn fill<T: Value>(
        &mut self,
        desk: &mut Desk,
        slice: Slice<'_>,
        frames: Range<usize>,
        whole: bool,
        out: &mut [T],
        damage: &mut Damage<'_>,
    ) -> Result<()> {
        slice.wanted(frames, &mut self.rows);
        if self.plan.pipeline.is_empty() {
            return Plain::new(&self.plan, desk, damage, out).fill(slice, &self.rows);
        }
        let packed = Packed {
            plan: &self.plan,
            damage,
            known: &mut self.known,
            whole,
            out,
        };
        packed.fill(desk, slice, &self.rows)
    }

    /// Bytes that a block will want, in the order in which it reads them.
    pub fn ranges(&mut self, desk: &Desk, slice: Slice<'_>) -> Vec<Range<u64>> {
        slice.wanted(0..slice.rows.len(), &mut self.rows);
        let plan = &self.plan;
        let mut ranges = Vec::new();
        for group in self
            .rows
            .chunk_by(|a, b| plan.place(a.0) == plan.place(b.0))
        {
            let place = plan.place(group[0].0);
            for column in &plan.grid.columns {
                let chunk = plan.chunk(slice, place, column.index);
                if !plan.is_contiguous() && !desk.holds(chunk.offset, chunk.size) {
                    continue;
                }
                if plan.pipeline.is_empty() {
                    ranges.extend(plan.ranges(chunk, place, column, group));
                } else {
                    ranges.push(plan.packed_range(place, column, chunk));
                }
            }
        }
        ranges.retain(|range| range.end <= desk.file_size);
        ranges
    }
}
