//! Division of the atoms among writers and steps, within the memory of a rank, and the schedule of
//! sending.

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::{Failure, Result};
use paceline_formats::error::Error;

/// Atoms sorted by batch and writer. Only some batches are in memory at a time.
pub struct SendSchedule<'a> {
    ids: &'a [i64],
    partition: Partition,
    n_writers: usize,
    /// Number of the batch to which each step belongs.
    batch_of: Vec<u32>,
    /// Number of this rank's atoms in each batch.
    n_own: Vec<u64>,
    /// Maximum number of stored indices, including the starts of writers.
    budget: usize,
    known: Range<usize>,
    /// Index in `order` at which the atoms of each stored batch and writer start, and the end of
    /// the last.
    starts: Vec<u32>,
    /// Indices in `ids`.
    order: Vec<u32>,
}

impl<'a> SendSchedule<'a> {
    /// Create the schedule from the number of this rank's atoms in each step.
    pub fn new(
        ids: &'a [i64],
        partition: Partition,
        n_writers: usize,
        batches: &[Range<usize>],
        own: &[u64],
        budget: usize,
    ) -> Self {
        let mut batch_of = Vec::with_capacity(own.len());
        for (number, batch) in batches.iter().enumerate() {
            batch_of.extend(batch.clone().map(|_| number as u32));
        }
        let n_own = batches.iter().map(|batch| own[batch.clone()].iter().sum());
        SendSchedule {
            ids,
            partition,
            n_writers,
            batch_of,
            n_own: n_own.collect(),
            budget,
            known: 0..0,
            starts: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Return the indices of the atoms of a batch, by writer. Batches must be requested in order.
    pub fn batch(&mut self, batch: usize) -> impl Iterator<Item = &[u32]> {
        if !self.known.contains(&batch) {
            self.learn(batch);
        }
        let first = (batch - self.known.start) * self.n_writers;
        let starts = &self.starts[first..=first + self.n_writers];
        starts
            .windows(2)
            .map(|pair| &self.order[pair[0] as usize..pair[1] as usize])
    }

    /// Size in memory, bytes.
    pub fn n_bytes(&self) -> usize {
        4 * (self.batch_of.capacity() + self.starts.capacity() + self.order.capacity())
            + 8 * self.n_own.capacity()
    }

    /// Sort the atoms of as many batches as the budget allows.
    fn learn(&mut self, first: usize) {
        let (mut end, mut n_numbers) = (first, 0);
        // Each atom needs an index in `order`, and each writer an entry in `starts`, even without
        // atoms.
        let numbers = |n_atoms: u64| n_atoms + self.n_writers as u64;
        while let Some(&n_atoms) = self.n_own.get(end)
            && (end == first || n_numbers + numbers(n_atoms) <= self.budget as u64)
        {
            n_numbers += numbers(n_atoms);
            end += 1;
        }
        self.known = first..end;
        let bin = |&id: &i64| {
            let (writer, step) = self.partition.of(id as u64 - 1);
            let batch = self.batch_of[step] as usize;
            let known = (first..end).contains(&batch);
            known.then(|| (batch - first) * self.n_writers + writer)
        };
        // Counting sort. The count of bin `b` is stored in entry `b + 2`. Entry `b + 1` then
        // becomes the start of bin `b`, and advances to its end while atoms are added.
        self.starts.clear();
        self.starts.resize((end - first) * self.n_writers + 2, 0);
        for bin in self.ids.iter().filter_map(bin) {
            self.starts[bin + 2] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        self.order.clear();
        self.order.resize(sum as usize, 0);
        for (place, id) in self.ids.iter().enumerate() {
            if let Some(bin) = bin(id) {
                let next = &mut self.starts[bin + 1];
                self.order[*next as usize] = place as u32;
                *next += 1;
            }
        }
    }
}

// Assign atoms to writers, which sort them, and to steps.
//
// The ids are divided into one range per writer, and each range into the same number of steps. One
// step of all writers fits into the memory of any rank, for any distribution of the atoms. As many
// steps as fit are then combined into a batch.

/// Number of steps that fit into memory together, as one batch, if atoms are distributed evenly.
const FINENESS: usize = 8;

/// Division of the ids, counted from 0, into ranges for writers and steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    n_atoms: u64,
    /// Number of steps of each writer; the last writers may have fewer.
    n_steps: u64,
    /// Number of atoms in a step of one writer.
    step: u64,
}

impl Partition {
    pub fn new(n_atoms: u64, n_writers: usize, budget: &MemoryBudget) -> Self {
        let n_writers = n_writers as u64;
        let range = n_atoms.div_ceil(n_writers).max(1);
        let finest = (budget.sorted / FINENESS).min(budget.packed / n_writers as usize);
        let n_steps = range.div_ceil(finest.max(1) as u64);
        let step = range.div_ceil(n_steps);
        Partition {
            n_atoms,
            n_steps,
            step,
        }
    }

    pub fn n_steps(&self) -> usize {
        self.n_steps as usize
    }

    /// Return the writer of an atom, and the step in which it is sent.
    pub fn of(&self, atom: u64) -> (usize, usize) {
        let cell = atom / self.step;
        (
            (cell / self.n_steps) as usize,
            (cell % self.n_steps) as usize,
        )
    }

    /// Return the atoms of some steps of a writer.
    pub fn atoms(&self, writer: usize, steps: &Range<usize>) -> Range<u64> {
        let first = writer as u64 * self.n_steps;
        let start = |step: usize| ((first + step as u64) * self.step).min(self.n_atoms);
        start(steps.start)..start(steps.end)
    }

    /// Combine steps into batches as long as two numbers fit into memory: the atoms of a writer,
    /// and the maximum number of atoms of any rank. `held` contains this maximum for each step.
    pub fn batches(&self, held: &[u64], budget: &MemoryBudget) -> Vec<Range<usize>> {
        let mut batches: Vec<Range<usize>> = Vec::new();
        let mut sent = 0;
        for (step, &held) in held.iter().enumerate() {
            sent += held;
            match batches.last_mut() {
                Some(batch)
                    if sent <= budget.packed as u64
                        && (batch.len() as u64 + 1) * self.step <= budget.sorted as u64 =>
                {
                    batch.end = step + 1;
                }
                _ => {
                    sent = held;
                    batches.push(step..step + 1);
                }
            }
        }
        batches
    }
}

// Division of a rank's memory. The memory is reused from frame to frame.

/// Maximum size of encoded text before it is written, bytes. Text of this size is still in the
/// cache when the system copies it.
const TEXT: usize = 1 << 20;

/// Maximum size of the atoms that one rank packs or sorts at a time, bytes. With 1 MiB, a frame
/// takes a third more time, since the atoms of a batch are then scattered over the memory of a
/// rank. From 4 to 16 MiB there is no difference.
const ATOMS: usize = 8 << 20;

/// Number of atoms that are copied into their order before they are encoded. Cache misses of the
/// copies overlap. Encoding scattered atoms directly would wait for each cache miss.
const NEAR: usize = 256;

/// Maximum numbers of atoms that fit into the memory of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Number of atoms that are encoded at a time.
    pub written: usize,
    /// Number of atoms that are sorted at a time.
    pub sorted: usize,
    /// Number of atoms that are copied into their order at a time.
    pub near: usize,
    /// Number of atoms that are packed at a time, for all other ranks.
    pub packed: usize,
    /// Maximum number of indices in the schedule of this rank.
    pub known: usize,
}

impl MemoryBudget {
    /// Divide `buffer` bytes. An atom has `packed` bytes in a message and `text` bytes in the file.
    /// A quarter is for outgoing atoms, and three eighths for incoming atoms. The schedule, copies
    /// in order, and text get an eighth each.
    ///
    /// # Errors
    /// [`Error::Argument`] if the memory is too small for one atom from each rank to each writer.
    pub fn new(buffer: usize, packed: usize, text: usize, n_writers: usize) -> Result<Self> {
        let budget = MemoryBudget {
            written: TEXT.min(buffer / 8) / text.max(1),
            sorted: ATOMS.min(buffer / 8 * 3) / (packed + size_of::<u32>()),
            near: NEAR.min(buffer / 8 / packed),
            packed: ATOMS.min(buffer / 4) / packed,
            known: buffer / 8 / size_of::<u32>(),
        };
        let least = [
            budget.written,
            budget.near,
            budget.packed / n_writers.max(1),
        ];
        if least.contains(&0) {
            return Err(Failure::Error(Error::Argument(format!(
                "a buffer of {buffer} bytes is not enough for {n_writers} writers and atoms of \
                 {text} bytes"
            ))));
        }
        Ok(budget)
    }
}

// Memory that a thread reuses for its next frame. New memory from the system is slow, because it is
// provided page by page.

thread_local! {
    static KEPT: RefCell<Memory> = RefCell::default();
}

/// Buffers of packed atoms.
#[derive(Debug, Default)]
pub struct Memory {
    /// Outgoing atoms.
    pub packed: Vec<u8>,
    /// Incoming atoms.
    pub received: Vec<u8>,
    /// Index in `received` of each atom of a batch.
    pub order: Vec<u32>,
    /// Atoms to encode next, copied from `received` into the order of the file (see `NEAR`).
    pub near: Vec<u8>,
    /// Encoded bytes of the file.
    pub text: Vec<u8>,
}

impl Memory {
    /// Return the memory that this thread stored last, or new memory if it has more than `most`
    /// bytes.
    pub fn take(most: usize) -> Self {
        let kept = KEPT.take();
        match kept.n_bytes() <= most {
            true => kept,
            false => Memory::default(),
        }
    }

    pub fn keep(self) {
        KEPT.set(self);
    }

    pub fn n_bytes(&self) -> usize {
        let bytes = [&self.packed, &self.received, &self.near, &self.text];
        bytes.map(Vec::capacity).iter().sum::<usize>() + 4 * self.order.capacity()
    }
}

/// Set the length of a buffer, with arbitrary content and without excess capacity.
pub fn grow(buffer: &mut Vec<u8>, n_bytes: usize) {
    buffer.truncate(n_bytes);
    buffer.reserve_exact(n_bytes - buffer.len());
    buffer.resize(n_bytes, 0);
}

// The cost of a frame on one rank.

/// Cost of writing a frame on one rank: times and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Time of communication with other ranks, including waiting.
    pub communicate: Duration,
    /// Time of packing and sorting atoms.
    pub sort: Duration,
    /// Time of encoding.
    pub format: Duration,
    /// Time of the write calls of the system, or of MPI-IO.
    pub write: Duration,
    /// Number of messages with atoms to other ranks.
    pub n_messages: u64,
    /// Bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Number of calls that write.
    pub n_writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Number of batches of atoms.
    pub n_batches: u64,
    /// Maximum memory for atoms, their order and their text, bytes.
    pub peak_buffer: usize,
}

impl Cost {
    pub(crate) fn sent(&mut self, bytes: u64) {
        if bytes > 0 {
            self.n_messages += 1;
            self.bytes_sent += bytes;
        }
    }

    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.n_writes += 1;
        self.bytes_written += bytes as u64;
    }

    pub(crate) fn holds(&mut self, bytes: usize) {
        self.peak_buffer = self.peak_buffer.max(bytes);
    }
}

/// Call a function and add its duration to a time.
pub fn timed<T>(time: &mut Duration, function: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let value = function();
    *time += begun.elapsed();
    value
}
