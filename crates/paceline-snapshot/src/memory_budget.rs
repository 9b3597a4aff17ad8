//! Divide the memory of a rank, and keep it from frame to frame.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use paceline_formats::error::Error;

use crate::{Failure, Result};

/// Bytes of text that are made before they are written, at the most: what the cache still has when
/// the system takes them.
const TEXT: usize = 1 << 20;

/// Bytes of atoms that one rank packs, or puts in order, at a time, at the most. With 1 MiB a frame
/// takes a third more time, since a batch then finds few of a rank's atoms in one place; from 4 to
/// 16 MiB there is no difference.
const ATOMS: usize = 8 << 20;

/// Atoms that are copied into their order at a time, before their bytes are made. The processor
/// waits for many of them at once, while bytes made from where atoms lie wait for each.
const NEAR: usize = 256;

/// Atoms for which a rank has memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Atoms whose bytes are made at a time.
    pub written: usize,
    /// Put in order at a time.
    pub sorted: usize,
    /// Copied into their order at a time.
    pub near: usize,
    /// Packed at a time, for all others.
    pub packed: usize,
    /// Atoms of its own whose turn it knows.
    pub known: usize,
}

impl MemoryBudget {
    /// Share out `buffer` bytes for atoms of `packed` bytes that become `text` bytes: a quarter
    /// for atoms that leave, three eighths for those that come, and an eighth each for who leaves
    /// when, for what is copied, and for text.
    ///
    /// # Errors
    /// [`Error::Argument`] where that is not enough for an atom from each rank to each writer.
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

// Memory that a thread keeps for its next frame: the system gives new memory page by page.

thread_local! {
    static KEPT: RefCell<Memory> = RefCell::default();
}

/// Buffers of atoms that travel.
#[derive(Debug, Default)]
pub struct Memory {
    /// Atoms that leave.
    pub packed: Vec<u8>,
    /// Atoms that came.
    pub received: Vec<u8>,
    /// Place in `received` of each atom of a batch.
    pub order: Vec<u32>,
    /// Some of them, in order.
    pub near: Vec<u8>,
    /// Bytes of the file.
    pub text: Vec<u8>,
}

impl Memory {
    /// That of this thread, unless it is more than may be taken.
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

/// Make a buffer as long as this, with any bytes in it, and with no more memory than it needs.
pub fn grow(buffer: &mut Vec<u8>, n_bytes: usize) {
    buffer.truncate(n_bytes);
    buffer.reserve_exact(n_bytes - buffer.len());
    buffer.resize(n_bytes, 0);
}

// The cost of a frame on one rank.

/// Time, and numbers of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// In calls to other ranks, also waiting for them.
    pub communicate: Duration,
    /// Packing atoms and putting them in order.
    pub sort: Duration,
    /// Making the bytes of the file.
    pub format: Duration,
    /// In calls of the system, or of MPI-IO, that write them.
    pub write: Duration,
    /// To other ranks, with atoms in them.
    pub n_messages: u64,
    pub bytes_sent: u64,
    pub n_writes: u64,
    pub bytes_written: u64,
    pub n_batches: u64,
    /// Most bytes of memory that held atoms, their order and their text at one time.
    pub peak_buffer: usize,
}

impl Cost {
    pub fn sent(&mut self, bytes: u64) {
        if bytes > 0 {
            self.n_messages += 1;
            self.bytes_sent += bytes;
        }
    }

    pub fn wrote(&mut self, bytes: usize) {
        self.n_writes += 1;
        self.bytes_written += bytes as u64;
    }

    pub fn holds(&mut self, bytes: usize) {
        self.peak_buffer = self.peak_buffer.max(bytes);
    }
}

/// Call a function and add its time.
pub fn timed<T>(time: &mut Duration, function: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let value = function();
    *time += begun.elapsed();
    value
}
