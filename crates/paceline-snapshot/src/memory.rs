//! Memory that a thread keeps for its next frame: the system gives new memory page by page.

use std::cell::RefCell;

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
