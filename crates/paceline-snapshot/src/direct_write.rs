//! Each atom is written by itself, in its place.

use crate::memory_budget::grow;
use crate::memory_budget::timed;
use crate::target::{Target, parts};
use crate::{Batch, Cost, Plan, Reduce, Result};

/// Every rank writes its own atoms.
pub fn direct(plan: &Plan<'_>, cost: &mut Cost) -> Result<()> {
    let target = Target::open(plan)?;
    let mut text = Vec::new();
    let written = target.write_each(&mut text, &Batch::from(plan.job.atoms), cost);
    cost.holds(text.capacity());
    cost.n_batches = 1;
    written?;
    target.close(plan.job.sync, cost)
}

/// Every rank in turn sends its atoms to rank 0, which writes them. What goes wrong on this rank
/// alone comes back in the inner result; so for the next.
pub fn serial(plan: &Plan<'_>, cost: &mut Cost) -> Result<Result<()>> {
    let atoms = plan.job.atoms;
    let mut n_atoms = vec![0; plan.comm.size()];
    n_atoms[0] = atoms.len() as u64;
    let n_atoms = timed(&mut cost.communicate, || plan.comm.all_to_all(&n_atoms))?;
    if plan.comm.rank() == 0 {
        return write_all(plan, &n_atoms, cost);
    }
    let mut packed = Vec::new();
    for part in parts(atoms.len(), plan.budget.packed) {
        timed(&mut cost.sort, || {
            grow(&mut packed, part.len() * plan.packing.size());
            plan.packing.pack(atoms, |k| part.start + k, &mut packed);
        });
        timed(&mut cost.communicate, || plan.comm.send(0, &packed))?;
        cost.sent(packed.len() as u64);
        cost.holds(packed.capacity());
    }
    Ok(Ok(()))
}

/// Write the own atoms of rank 0, then those that each other rank sends.
fn write_all(plan: &Plan<'_>, n_atoms: &[u64], cost: &mut Cost) -> Result<Result<()>> {
    let mut target = Target::open(plan);
    let mut text = Vec::new();
    let mut write = |batch: &Batch<'_>, cost: &mut Cost| {
        if let Ok(open) = &target
            && let Err(failure) = open.write_each(&mut text, batch, cost)
        {
            target = Err(failure);
        }
    };
    write(&plan.job.atoms.into(), cost);
    let mut packed = Vec::new();
    for (rank, &n_atoms) in n_atoms.iter().enumerate().skip(1) {
        for part in parts(n_atoms as usize, plan.budget.packed) {
            grow(&mut packed, part.len() * plan.packing.size());
            timed(&mut cost.communicate, || {
                plan.comm.receive(rank, &mut packed)
            })?;
            write(&plan.packing.batch(&packed), cost);
            cost.n_batches += 1;
        }
    }
    cost.holds(packed.capacity() + text.capacity());
    Ok(target.and_then(|target| target.close(plan.job.sync, cost)))
}

/// Every rank writes its own atoms through MPI-IO. All open the file together, so those that have
/// no atoms left go on as long as any has.
pub fn mpiio(plan: &Plan<'_>, cost: &mut Cost) -> Result<Result<()>> {
    let job = plan.job;
    let at_a_time = plan.budget.written;
    let mut most = [job.atoms.len().div_ceil(at_a_time) as u64];
    timed(&mut cost.communicate, || {
        plan.comm.all_reduce(&mut most, Reduce::Max)
    })?;
    let mut done = Ok(());
    let mut text = Vec::new();
    let mut offsets = Vec::new();
    for (section, &size) in job.records.sections().iter().enumerate() {
        for part in 0..most[0] as usize {
            let start = job.atoms.len().min(part * at_a_time);
            let end = job.atoms.len().min(start + at_a_time);
            let batch = Batch::from(job.atoms).part(start..end);
            timed(&mut cost.format, || {
                grow(&mut text, batch.len() * size);
                job.records.put(section, &batch, &mut text);
            });
            let place = |k| job.starts[section] + (batch.id(k) - 1) * size as u64;
            offsets.clear();
            offsets.extend((0..batch.len()).map(place));
            let written = timed(&mut cost.write, || {
                plan.comm.write_at(job.path, &offsets, size, &text)
            });
            cost.n_writes += batch.len() as u64;
            cost.bytes_written += text.len() as u64;
            cost.holds(text.capacity() + 8 * offsets.capacity());
            done = done.and(written);
        }
    }
    cost.n_batches = most[0];
    Ok(done.map_err(Into::into))
}
