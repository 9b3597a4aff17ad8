//! A block of frames out of datasets of an HDF5 file: each chunk is read and decoded once.

mod damage;
mod desk;
mod hand;
mod ids;
mod integers;
mod packed;
mod plain;
mod plan;
mod request;
mod slice;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::damage::Damage;
use self::desk::Desk;
use self::hand::Hand;
use self::ids::Ids;
use super::ahead::{Ahead, ask_for};
use super::block::{BlockOut, BlockReport, Numbers, row_of, row_of_mut};
use super::judge::judge;
use crate::Fields;
use crate::atom_set::Atoms;
use crate::error::{Error, Result};
use crate::source::Source;

pub use self::integers::read_integers;
pub use self::request::{Element, Identity, Request};
pub use self::slice::Slice;

/// Bytes of frames that are decoded together where they are not kept: as many as stay close to
/// the processor.
const BATCH: usize = 512 * 1024;

/// The same where chunks of one place are too many to be kept unpacked, so that every batch unpacks
/// them anew: as many as the largest block that is kept.
const LARGE_BATCH: usize = 256 * 1024 * 1024;

/// One worker's hand on datasets of a file.
pub struct ChunkReader {
    desk: Desk,
    elements: [Option<Hand>; 3],
    ids: Option<Ids>,
    n_wanted: usize,
    /// Frames that are not kept as they were decoded: where they are judged, or atoms change
    /// places.
    scratch: [Vec<f32>; 3],
    ahead: Ahead,
}

impl ChunkReader {
    /// A reader of positions, velocities and forces of some atoms; none for those that are not
    /// wanted, or not there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for datasets that cannot be, or that we do not decode, and what the
    /// source gives.
    pub fn new(
        source: Arc<dyn Source>,
        elements: [Option<Element>; 3],
        atoms: &Atoms,
        ids: Option<Identity>,
    ) -> Result<ChunkReader> {
        let desk = Desk::new(source)?;
        let n_wanted = atoms.len();
        let ids = ids.map(|ids| Ids::new(&desk, ids, atoms)).transpose()?;
        let slots = ids.as_ref().map(|ids| Atoms::all(ids.n_slots()));
        let atoms = slots.as_ref().unwrap_or(atoms);
        let [positions, velocities, forces] = elements.map(|element| {
            element
                .map(|element| Hand::new(&desk, element, atoms, 3))
                .transpose()
        });
        Ok(ChunkReader {
            desk,
            elements: [positions?, velocities?, forces?],
            ids,
            n_wanted,
            scratch: Default::default(),
            ahead: Ahead::default(),
        })
    }

    /// Ask for the bytes of a block that will be read soon, where reading has been found to wait.
    ///
    /// # Errors
    /// [`Error::Argument`] where the slices do not fit the datasets.
    pub fn read_ahead(&mut self, slices: [Option<Slice<'_>>; 3]) -> Result<()> {
        if !self.ahead.pays() {
            return Ok(());
        }
        for (hand, slice) in self.elements.iter_mut().zip(slices) {
            if let (Some(hand), Some(slice)) = (hand, slice) {
                hand.check(slice, slice.rows.len())?;
                ask_for(&*self.desk.source, hand.ranges(&self.desk, slice));
            }
        }
        Ok(())
    }

    /// Read and decode a block; its dimensions, times and steps are left as they are, but for
    /// frames that cannot be read.
    ///
    /// A wanted field that a frame does not hold is NaN there, or not judged; where it is
    /// required, the frame is refused.
    ///
    /// # Errors
    /// The first damaged or refused frame's error, unless frames are to be skipped: then the
    /// frame's row is NaN, it is listed in the report, and the others are read. Errors of the
    /// operating system are never skipped.
    pub fn read(&mut self, request: Request<'_>, mut out: BlockOut<'_>) -> Result<BlockReport> {
        let started = Instant::now();
        self.check(&request, &out)?;
        let n = request.frames.len();
        let before = self.desk.source.traffic();
        self.desk.reading = Duration::ZERO;
        let mut damage = Damage {
            path: self.desk.source.path().to_owned(),
            frames: request.frames,
            skip: request.skip,
            base: 0,
            errors: (0..n).map(|_| None).collect(),
        };
        for row in 0..n {
            self.require(&request, row, &mut damage)?;
        }
        let step = self.batch_len(n, &out.numbers);
        for first in (0..n).step_by(step) {
            let batch = first..n.min(first + step);
            self.read_batch(&request, batch, &mut out.numbers, &mut damage)?;
        }
        let mut report = BlockReport::default();
        for (row, error) in damage.errors.into_iter().enumerate() {
            match error {
                None => out.keep(row, 3 * self.n_wanted, request.held(row)),
                Some(error) => {
                    out.blank(row, 3 * self.n_wanted);
                    report.skipped.push((row, error));
                }
            }
        }
        let after = self.desk.source.traffic();
        report.read = self.desk.reading;
        report.decode = started.elapsed().saturating_sub(report.read);
        report.bytes = after.bytes - before.bytes;
        report.calls = after.calls - before.calls;
        self.ahead.learn(&report);
        Ok(report)
    }

    fn check(&self, request: &Request<'_>, out: &BlockOut<'_>) -> Result<()> {
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
            // What is wanted and not there has room, too.
            wanted.positions |= !positions.is_empty();
            wanted.velocities |= !velocities.is_empty();
            wanted.forces |= !forces.is_empty();
        }
        out.check(n, self.n_wanted, wanted)?;
        let ids = self.ids.as_ref().map(Ids::hand);
        let hands = self.elements.iter().map(Option::as_ref).chain([ids]);
        for (hand, slice) in hands.zip(request.slices.iter().chain([&request.ids])) {
            match (hand, slice) {
                (Some(hand), Some(slice)) => hand.check(*slice, n)?,
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

    /// Refuse a frame that does not hold what is required of it.
    fn require(&self, request: &Request<'_>, row: usize, damage: &mut Damage<'_>) -> Result<()> {
        let held = request.held(row);
        let nameless = request.ids.is_some_and(|ids| ids.rows[row] < 0);
        let lacks = request
            .required
            .beyond(held)
            .or(nameless.then_some("numbers of its atoms"));
        match lacks {
            None => Ok(()),
            Some(what) => damage.refuse(
                row,
                Error::Missing {
                    path: self.desk.source.path().to_owned(),
                    frame: u64::try_from(request.frames[row]).unwrap_or_default(),
                    what,
                },
            ),
        }
    }

    /// Frames that are decoded together: all, where they are kept as they are.
    fn batch_len(&self, n: usize, numbers: &Numbers<'_>) -> usize {
        if self.ids.is_none() && matches!(numbers, Numbers::Kept { .. }) {
            return n.max(1);
        }
        let hands = self.elements.iter().flatten();
        let bytes: usize = hands.clone().map(|hand| 4 * hand.plan.frame_len).sum();
        let bytes = bytes + self.ids.as_ref().map_or(0, |ids| 8 * ids.n_slots());
        let hands = hands.chain(self.ids.as_ref().map(Ids::hand));
        let rows = hands.filter_map(|hand| hand.plan.rows_not_kept()).max();
        let batch = match rows {
            None => BATCH / bytes.max(1),
            Some(rows) => {
                let most = (LARGE_BATCH / bytes.max(1)).max(1);
                most - most % rows.min(most)
            }
        };
        batch.clamp(1, n.max(1))
    }

    /// Decode some frames of the block into their rows, or judge them.
    fn read_batch(
        &mut self,
        request: &Request<'_>,
        batch: Range<usize>,
        numbers: &mut Numbers<'_>,
        damage: &mut Damage<'_>,
    ) -> Result<()> {
        damage.base = batch.start;
        if self.ids.is_none()
            && let Numbers::Kept {
                positions,
                velocities,
                forces,
            } = numbers
        {
            return self.fill(request, batch, [positions, velocities, forces], damage);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        for (values, hand) in scratch.iter_mut().zip(&self.elements) {
            let frame_len = hand.as_ref().map_or(0, |hand| hand.plan.frame_len);
            values.resize(batch.len() * frame_len, 0.0);
        }
        let rooms = scratch.each_mut().map(|values| &mut values[..]);
        self.fill(request, batch.clone(), rooms, damage)?;
        if let (Some(ids), Some(slice)) = (&mut self.ids, request.ids) {
            ids.read(&mut self.desk, slice, batch.clone(), request.whole, damage)?;
        }
        for (k, row) in batch.enumerate() {
            if damage.errors[row].is_none() {
                self.bring(request, (k, row), &scratch, numbers, damage)?;
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Read some frames of the block, one after another.
    fn fill(
        &mut self,
        request: &Request<'_>,
        batch: Range<usize>,
        rooms: [&mut [f32]; 3],
        damage: &mut Damage<'_>,
    ) -> Result<()> {
        let elements = self.elements.iter_mut().zip(request.slices);
        for ((hand, slice), room) in elements.zip(rooms) {
            if let (Some(hand), Some(slice)) = (hand, slice) {
                let frame_len = hand.plan.frame_len;
                let room = match room.len() == batch.len() * frame_len {
                    true => room,
                    false => &mut room[batch.start * frame_len..batch.end * frame_len],
                };
                hand.fill(
                    &mut self.desk,
                    slice,
                    batch.clone(),
                    request.whole,
                    room,
                    damage,
                )?;
            }
        }
        Ok(())
    }

    /// Bring frame `k` of the scratch to its row, its atoms in our order, or judge it.
    fn bring(
        &mut self,
        request: &Request<'_>,
        (k, row): (usize, usize),
        scratch: &[Vec<f32>; 3],
        numbers: &mut Numbers<'_>,
        damage: &mut Damage<'_>,
    ) -> Result<()> {
        let lens = self
            .elements
            .each_ref()
            .map(|hand| hand.as_ref().map_or(0, |hand| hand.plan.frame_len));
        let mut frame: [&[f32]; 3] =
            std::array::from_fn(|field| row_of(&scratch[field], k, lens[field]));
        if let (Some(ids), Some(slice)) = (&mut self.ids, request.ids) {
            match ids.sort(k, frame) {
                Ok(sorted) => frame = sorted,
                Err(found) => {
                    let flaw = ids.flaw(slice, row, found);
                    return damage.note(std::iter::once(k), &flaw);
                }
            }
        }
        match numbers {
            Numbers::Judged(judgements) => judgements[row] = judge(frame, request.held(row)),
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
