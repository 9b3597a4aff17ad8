//! Writing of the atoms of a frame: each rank writes its own atoms, or some ranks sort and write
//! all atoms.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::Path;

use super::Records;
use crate::send_schedule_and_memory::{Memory, Partition, SendSchedule, grow, timed};
use crate::{Batch, Cost, Failure, Plan, Reduce, Result};
use paceline_formats::error::Error;
use paceline_formats::os_calls::{close, write_all_at};

/// Number of atoms that are packed for one writer before atoms are packed for the next writer.
/// Atoms for different writers are interleaved in memory, so that the atoms for the next writer are
/// still in the cache.
const TURN: usize = 128;

/// Mark of an entry without an atom.
const EMPTY: u32 = u32::MAX;

/// Write one frame with sorting writers. The inner result is an error of this rank alone, returned
/// after the rank completed its collective calls.
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

/// Count this rank's atoms in each step.
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
    /// Index of this rank among the writers, if it is a writer.
    writer: Option<usize>,
    outbox: SendSchedule<'a>,
    memory: Memory,
    cost: &'a mut Cost,
}

impl Mail<'_> {
    /// Send the atoms of a batch to their writers, and receive the atoms that this rank writes.
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

    /// Sort the received atoms, which have the indices `atoms` (from 0), and write them.
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

    /// Record the memory in use.
    fn weigh(&mut self) {
        self.cost
            .holds(self.memory.n_bytes() + self.outbox.n_bytes());
    }
}

/// Pack the atoms of a batch. Atoms that other ranks write are packed into `packed`, and atoms that
/// this rank writes itself into `stayed`.
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

/// Find the index of each atom of a batch in the received atoms.
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
            _ => return wrong(id, "is duplicate"),
        }
    }
    match order.iter().position(|&place| place == EMPTY) {
        Some(slot) => wrong(atoms.start + slot as u64 + 1, "is missing"),
        None => Ok(()),
    }
}

// Methods that write each atom separately at its offset.

/// Write the atoms of this rank, each at its offset.
pub fn direct(plan: &Plan<'_>, cost: &mut Cost) -> Result<()> {
    let target = Target::open(plan)?;
    let mut text = Vec::new();
    let written = target.write_each(&mut text, &Batch::from(plan.job.atoms), cost);
    cost.holds(text.capacity());
    cost.n_batches = 1;
    written?;
    target.close(plan.job.sync, cost)
}

/// Send the atoms of each rank in turn to rank 0, which writes them. The inner result is an error
/// of this rank alone.
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

/// Write the atoms of rank 0, and then the atoms of each other rank. The inner result is an error
/// of rank 0 alone.
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

/// Write the atoms of this rank through MPI-IO. All ranks open the file together, and make the same
/// number of calls. A rank without further atoms writes nothing in its last calls. The inner result
/// is an error of this rank alone.
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

// Output file of a frame.

/// Existing file, open for writing.
pub struct Target<'a> {
    path: &'a Path,
    file: File,
    records: &'a dyn Records,
    /// Offset of each section in the file.
    starts: &'a [u64],
    /// Number of atoms that are encoded at a time.
    at_a_time: usize,
}

impl<'a> Target<'a> {
    pub fn open(plan: &Plan<'a>) -> Result<Self> {
        let job = plan.job;
        let file = OpenOptions::new().write(true).open(job.path);
        Ok(Target {
            path: job.path,
            file: file.map_err(|source| Error::io(job.path, "cannot open", source))?,
            records: job.records,
            starts: job.starts,
            at_a_time: plan.budget.written,
        })
    }

    /// Encode atoms into `text`, section by section. Each section has memory for `n_atoms` atoms;
    /// the encoded atoms start at index `at`.
    pub fn put(
        &self,
        text: &mut Vec<u8>,
        n_atoms: usize,
        at: usize,
        batch: &Batch<'_>,
        cost: &mut Cost,
    ) {
        let sizes = self.records.sections();
        grow(text, n_atoms * sizes.iter().sum::<usize>());
        let mut rest = &mut text[..];
        for (section, size) in sizes.iter().enumerate() {
            let (own, others) = rest.split_at_mut(n_atoms * size);
            let own = &mut own[at * size..(at + batch.len()) * size];
            timed(&mut cost.format, || self.records.put(section, batch, own));
            rest = others;
        }
    }

    /// Write encoded atoms that are adjacent in the file. `first` is the index (from 0) of the
    /// first atom.
    pub fn write_run(
        &self,
        mut text: &[u8],
        n_atoms: usize,
        first: u64,
        cost: &mut Cost,
    ) -> Result<()> {
        for (&start, &size) in self.starts.iter().zip(self.records.sections()) {
            let (own, others) = text.split_at(n_atoms * size);
            self.write(own, start + first * size as u64, cost)?;
            text = others;
        }
        Ok(())
    }

    /// Encode atoms, some at a time, and write each atom separately.
    pub fn write_each(&self, text: &mut Vec<u8>, batch: &Batch<'_>, cost: &mut Cost) -> Result<()> {
        for part in parts(batch.len(), self.at_a_time) {
            let batch = batch.part(part);
            self.put(text, batch.len(), 0, &batch, cost);
            let mut text = &text[..];
            for (&start, &size) in self.starts.iter().zip(self.records.sections()) {
                let (own, others) = text.split_at(batch.len() * size);
                for (k, record) in own.chunks_exact(size).enumerate() {
                    self.write(record, start + (batch.id(k) - 1) * size as u64, cost)?;
                }
                text = others;
            }
        }
        Ok(())
    }

    /// Close the file. With `sync`, first wait until all data are on the disk.
    pub fn close(self, sync: bool, cost: &mut Cost) -> Result<()> {
        let done = timed(&mut cost.write, || {
            if sync {
                self.file.sync_data()?;
            }
            close(self.file)
        });
        done.map_err(|source| Error::io(self.path, "cannot write to disk", source).into())
    }

    fn write(&self, text: &[u8], offset: u64, cost: &mut Cost) -> Result<()> {
        timed(&mut cost.write, || write_all_at(&self.file, text, offset))
            .map_err(|source| Error::io(self.path, "cannot write", source))?;
        cost.wrote(text.len());
        Ok(())
    }
}

/// Divide `n_atoms` into ranges of at most `most` atoms.
pub fn parts(n_atoms: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..n_atoms).step_by(most.max(1));
    starts.map(move |start| start..n_atoms.min(start + most))
}
