//! Atoms travel to the writers, are put in order there, and leave in few large writes.

use std::ops::Range;

use crate::memory_budget::timed;
use crate::memory_budget::{Memory, grow};
use crate::send_schedule::Partition;
use crate::send_schedule::SendSchedule;
use crate::target::{Target, parts};
use crate::{Cost, Failure, Plan, Reduce, Result};

/// Atoms that are packed for each writer in turn. Those for one lie between those for others, which
/// are then still in the cache.
const TURN: usize = 128;

/// No atom.
const EMPTY: u32 = u32::MAX;

/// Write one frame. What goes wrong on this rank alone comes back in the inner result, after this
/// rank has done its part in what the others do.
pub fn sorted(plan: &Plan<'_>, cost: &mut Cost) -> Result<Result<()>> {
    let job = plan.job;
    let partition = Partition::new(job.n_atoms, job.writers.len(), &plan.budget);
    let own = timed(&mut cost.sort, || count(&partition, job.atoms.ids));
    let mut held = own.clone();
    timed(&mut cost.communicate, || {
        plan.comm.all_reduce(&mut held, Reduce::Max)
    })?;
    let batches = partition.batches(&held, &plan.budget);
    let mut mail = Mail {
        plan,
        writer: job
            .writers
            .iter()
            .position(|&rank| rank == plan.comm.rank()),
        outbox: SendSchedule::new(
            job.atoms.ids,
            partition,
            job.writers.len(),
            &batches,
            &own,
            plan.budget.known,
        ),
        memory: Memory::take(job.buffer),
        cost,
    };
    let mut target = mail.writer.map(|_| Target::open(plan)).transpose();
    for (number, steps) in batches.iter().enumerate() {
        mail.send(number)?;
        if let (Ok(Some(open)), Some(writer)) = (&target, mail.writer)
            && let Err(failure) = mail.write(open, partition.atoms(writer, steps))
        {
            target = Err(failure);
        }
        mail.weigh();
    }
    mail.cost.n_batches = batches.len() as u64;
    mail.memory.keep();
    Ok(target.and_then(|target| match target {
        Some(target) => target.close(job.sync, cost),
        None => Ok(()),
    }))
}

/// Own atoms of each step.
fn count(partition: &Partition, ids: &[i64]) -> Vec<u64> {
    let mut own = vec![0; partition.n_steps()];
    for &id in ids {
        let (_, step) = partition.of(id as u64 - 1);
        own[step] += 1;
    }
    own
}

/// State of one rank while it writes a frame.
struct Mail<'a> {
    plan: &'a Plan<'a>,
    /// Index of this rank among the writers, if it is one.
    writer: Option<usize>,
    outbox: SendSchedule<'a>,
    memory: Memory,
    cost: &'a mut Cost,
}

impl Mail<'_> {
    /// Send the atoms of a batch to their writers, and receive what others send.
    fn send(&mut self, batch: usize) -> Result<()> {
        let comm = self.plan.comm;
        let size = self.plan.packing.size() as u64;
        let n_places = self.outbox.batch(batch).map(|places| places.len() as u64);
        let mut leaving = vec![0; comm.size()];
        for (&rank, n_places) in self.plan.job.writers.iter().zip(n_places) {
            leaving[rank] = size * n_places;
        }
        let staying = std::mem::take(&mut leaving[comm.rank()]) as usize;
        let coming = timed(&mut self.cost.communicate, || comm.all_to_all(&leaving))?;
        let (n_leaving, n_coming) = (leaving.iter().sum::<u64>(), coming.iter().sum::<u64>());
        grow(&mut self.memory.packed, n_leaving as usize);
        grow(&mut self.memory.received, n_coming as usize + staying);
        let (received, stayed) = self.memory.received.split_at_mut(n_coming as usize);
        let packed = &mut self.memory.packed;
        timed(&mut self.cost.sort, || {
            pack(self.plan, &mut self.outbox, batch, packed, stayed);
        });
        for &n_bytes in &leaving {
            self.cost.sent(n_bytes);
        }
        timed(&mut self.cost.communicate, || {
            comm.exchange(packed, &leaving, received, &coming)
        })?;
        Ok(())
    }

    /// Put received atoms in order and write them; they are `atoms`, counted from 0.
    fn write(&mut self, target: &Target<'_>, atoms: Range<u64>) -> Result<()> {
        let Mail {
            plan, memory, cost, ..
        } = self;
        timed(&mut cost.sort, || find_places(plan, memory, &atoms))?;
        let Memory {
            received,
            order,
            near,
            text,
            ..
        } = memory;
        for part in parts(order.len(), plan.budget.written) {
            let order = &order[part.clone()];
            for some in parts(order.len(), plan.budget.near) {
                let places = &order[some.clone()];
                timed(&mut cost.sort, || {
                    grow(near, places.len() * plan.packing.size());
                    plan.packing.gather(received, places, near);
                });
                let batch = plan.packing.batch(near);
                target.put(text, order.len(), some.start, &batch, cost);
            }
            let first = atoms.start + part.start as u64;
            target.write_run(text, order.len(), first, cost)?;
        }
        Ok(())
    }

    /// Note how much memory this takes.
    fn weigh(&mut self) {
        self.cost
            .holds(self.memory.n_bytes() + self.outbox.n_bytes());
    }
}

/// Pack the atoms of a batch for others, and those that this rank itself writes.
fn pack(
    plan: &Plan<'_>,
    outbox: &mut SendSchedule<'_>,
    batch: usize,
    mut packed: &mut [u8],
    stayed: &mut [u8],
) {
    let (atoms, packing) = (plan.job.atoms, &plan.packing);
    let mut stayed = Some(stayed);
    let mut parcels = Vec::new();
    for (&rank, places) in plan.job.writers.iter().zip(outbox.batch(batch)) {
        let parcel = match rank == plan.comm.rank() {
            true => stayed.take(),
            false => packed.split_off_mut(..places.len() * packing.size()),
        };
        parcels.push((places, parcel.unwrap_or_default()));
    }
    while parcels.iter().any(|(places, _)| !places.is_empty()) {
        for (places, parcel) in &mut parcels {
            let some = places
                .split_off(..places.len().min(TURN))
                .unwrap_or_default();
            if let Some(bytes) = parcel.split_off_mut(..some.len() * packing.size()) {
                packing.pack(atoms, |k| some[k] as usize, bytes);
            }
        }
    }
}

/// Find where each atom of a batch is among those received.
fn find_places(plan: &Plan<'_>, memory: &mut Memory, atoms: &Range<u64>) -> Result<()> {
    let wrong = |id: u64, found: &str| {
        let reason = format!("expected each id once, found that atom {id} {found}");
        Err(Failure::Unwritable(reason))
    };
    let order = &mut memory.order;
    let n_atoms = (atoms.end - atoms.start) as usize;
    order.clear();
    order.reserve_exact(n_atoms);
    order.resize(n_atoms, EMPTY);
    for (place, id) in plan.packing.ids(&memory.received).enumerate() {
        let slot = id.wrapping_sub(1 + atoms.start) as usize;
        match order.get_mut(slot) {
            Some(slot) if *slot == EMPTY => *slot = place as u32,
            _ => return wrong(id, "came twice"),
        }
    }
    match order.iter().position(|&place| place == EMPTY) {
        Some(slot) => wrong(atoms.start + slot as u64 + 1, "did not come"),
        None => Ok(()),
    }
}
