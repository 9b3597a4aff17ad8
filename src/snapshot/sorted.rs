//! Atoms travel to the writers, are put in order there, and leave in few large writes.

use std::ops::Range;

use super::batch::Order;
use super::cost::{Cost, timed};
use super::failure::Result;
use super::outbox::Outbox;
use super::shares::Shares;
use super::target::Target;
use super::{Failure, Plan, Reduce};

/// No atom.
const EMPTY: u32 = u32::MAX;

/// What is on its way.
#[derive(Default)]
struct Mail {
    packed: Vec<u8>,
    received: Vec<u8>,
    /// Place in `received` of each atom of a batch.
    order: Vec<u32>,
}

/// Write one frame. What goes wrong on this rank alone comes back in the inner result, after this
/// rank has done its part in what the others do.
pub fn sorted(plan: &Plan<'_>, cost: &mut Cost) -> Result<Result<()>> {
    let job = plan.job;
    let shares = Shares::new(job.n_atoms, job.writers.len(), &plan.room);
    let own = timed(&mut cost.sort, || count(&shares, job.atoms.ids));
    let mut held = own.clone();
    timed(&mut cost.communicate, || {
        plan.comm.all_reduce(&mut held, Reduce::Max)
    })?;
    let batches = shares.batches(&held, &plan.room);
    let n_writers = job.writers.len();
    let known = plan.room.known;
    let mut outbox = Outbox::new(job.atoms.ids, shares, n_writers, &batches, &own, known);
    let writer = job
        .writers
        .iter()
        .position(|&rank| rank == plan.comm.rank());
    let mut target = writer.map(|_| Target::open(plan)).transpose();
    let mut mail = Mail::default();
    for (number, steps) in batches.iter().enumerate() {
        mail.send(plan, &mut outbox, number, cost)?;
        if let (Ok(Some(open)), Some(writer)) = (&mut target, writer) {
            let written = mail.write(plan, open, shares.atoms(writer, steps), cost);
            let held = open.n_bytes() + mail.n_bytes() + outbox.n_bytes();
            cost.holds(held);
            if let Err(failure) = written {
                target = Err(failure);
            }
        }
        cost.holds(mail.n_bytes() + outbox.n_bytes());
    }
    cost.n_batches = batches.len() as u64;
    Ok(target.and_then(|target| match target {
        Some(target) if job.sync => target.sync(cost),
        _ => Ok(()),
    }))
}

/// Own atoms of each step.
fn count(shares: &Shares, ids: &[i64]) -> Vec<u64> {
    let mut own = vec![0; shares.n_steps()];
    for &id in ids {
        let (_, step) = shares.of(id as u64 - 1);
        own[step] += 1;
    }
    own
}

impl Mail {
    fn n_bytes(&self) -> usize {
        self.packed.capacity() + self.received.capacity() + 4 * self.order.capacity()
    }

    /// Send the atoms of a batch to their writers, and receive what others send.
    fn send(
        &mut self,
        plan: &Plan<'_>,
        outbox: &mut Outbox<'_>,
        batch: usize,
        cost: &mut Cost,
    ) -> Result<()> {
        let mut leaving = vec![0; plan.comm.size()];
        timed(&mut cost.sort, || {
            self.pack(plan, outbox, batch, &mut leaving);
        });
        for (rank, &bytes) in leaving.iter().enumerate() {
            if rank != plan.comm.rank() {
                cost.sent(bytes);
            }
        }
        timed(&mut cost.communicate, || {
            let coming = plan.comm.all_to_all(&leaving)?;
            grow(&mut self.received, coming.iter().sum::<u64>() as usize);
            plan.comm
                .exchange(&self.packed, &leaving, &mut self.received, &coming)
        })?;
        Ok(())
    }

    /// Pack the atoms of a batch, and count their bytes by rank.
    fn pack(
        &mut self,
        plan: &Plan<'_>,
        outbox: &mut Outbox<'_>,
        batch: usize,
        leaving: &mut [u64],
    ) {
        let (packing, writers) = (&plan.packing, plan.job.writers);
        let places: Vec<&[u32]> = outbox.batch(batch).collect();
        let n_atoms: usize = places.iter().map(|places| places.len()).sum();
        grow(&mut self.packed, n_atoms * packing.size());
        let mut room = &mut self.packed[..];
        for (&rank, places) in writers.iter().zip(places) {
            let n_bytes = places.len() * packing.size();
            let (packed, rest) = room.split_at_mut(n_bytes);
            packing.pack(plan.job.atoms, places.iter().map(|&at| at as usize), packed);
            leaving[rank] = n_bytes as u64;
            room = rest;
        }
    }

    /// Put received atoms in order and write them; they are `atoms`, counted from 0.
    fn write(
        &mut self,
        plan: &Plan<'_>,
        target: &mut Target<'_>,
        atoms: Range<u64>,
        cost: &mut Cost,
    ) -> Result<()> {
        timed(&mut cost.sort, || self.put_in_order(plan, &atoms))?;
        let batch = plan
            .packing
            .batch(&self.received, Order::Sorted(&self.order));
        target.write_run(atoms.start, &batch, cost)
    }

    fn put_in_order(&mut self, plan: &Plan<'_>, atoms: &Range<u64>) -> Result<()> {
        let wrong = |id: u64, found: &str| {
            let reason = format!("expected each id once, found that atom {id} {found}");
            Err(Failure::Unwritable(reason))
        };
        let n_atoms = (atoms.end - atoms.start) as usize;
        self.order.clear();
        self.order.reserve_exact(n_atoms);
        self.order.resize(n_atoms, EMPTY);
        for (place, id) in plan.packing.ids(&self.received).enumerate() {
            let slot = (id - 1).wrapping_sub(atoms.start) as usize;
            match self.order.get_mut(slot) {
                Some(slot) if *slot == EMPTY => *slot = place as u32,
                _ => return wrong(id, "came twice"),
            }
        }
        match self.order.iter().position(|&place| place == EMPTY) {
            Some(slot) => wrong(atoms.start + slot as u64 + 1, "did not come"),
            None => Ok(()),
        }
    }
}

/// Make a buffer as long as this, with any bytes in it, and with no more memory than it needs.
fn grow(buffer: &mut Vec<u8>, n_bytes: usize) {
    buffer.truncate(n_bytes);
    buffer.reserve_exact(n_bytes - buffer.len());
    buffer.resize(n_bytes, 0);
}
