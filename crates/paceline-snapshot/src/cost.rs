//! What a frame cost one rank.

use std::time::{Duration, Instant};

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
