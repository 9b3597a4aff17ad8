//! State that all processes share: when each server becomes idle, and the counts of each process.
//!
//! ```text
//! word 0               processes so far
//! words 64 to 127      until when each server of data is busy
//! words 128 to 191     until when opens and locks of a file are, files with the same rest by 64
//! words 256 + 16 p ... process p: its identifier, its number, and its counts
//! ```
//!
//! Words have 64 bits, in native byte order; times are in nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::now;
use crate::next;
use crate::settings::Settings;

pub const MOST_SERVERS: usize = 64;
/// Maximum number of processes. Further processes are counted with the last one.
const MOST_PROCESSES: usize = 4096;
const SERVERS: usize = 64;
const NAMES: usize = 128;
const HEAD: usize = 256;
const ROW: usize = 16;
const WORDS: usize = HEAD + MOST_PROCESSES * ROW;

/// Counts of a process, and the word of each count in its row.
#[derive(Clone, Copy)]
pub enum Count {
    Opens = 2,
    Reads = 3,
    Requests = 4,
    Locks = 5,
    /// Number of calls that access data in ways that are not slowed.
    Unseen = 6,
    BytesRead = 7,
    BytesFetched = 8,
    Opening = 9,
    Reading = 10,
    Locking = 11,
}

/// Server of a request.
#[derive(Clone, Copy)]
pub enum Server {
    /// Server of opens and locks for the file with this number.
    Names(u64),
    Data(u64),
}

pub struct Shared(&'static [AtomicU64; WORDS]);

impl Shared {
    /// Map the file of `settings`. The first process sets its size.
    pub fn map(settings: &Settings) -> Option<Self> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero byte, and the call gets no other memory of the process.
        let address = unsafe {
            let fd = next::open(settings.state.as_ptr(), flags, 0o600);
            let sized = libc::ftruncate(fd, size_of::<[AtomicU64; WORDS]>() as libc::off_t);
            let address = next::mmap(
                std::ptr::null_mut(),
                size_of::<[AtomicU64; WORDS]>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            );
            libc::close(fd);
            if sized == 0 {
                address
            } else {
                libc::MAP_FAILED
            }
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping has the length of the array, is aligned to a page, readable and
        // writable, and is never unmapped. All bytes are valid words, and all processes access them
        // as atomic words.
        Some(Shared(unsafe { &*address.cast() }))
    }

    /// Enter the queue of a server now, and keep the server busy for `cost`. Return the time at
    /// which this ends.
    pub fn serve(&self, server: Server, cost: u64) -> u64 {
        let word = match server {
            Server::Names(file) => NAMES + file as usize % MOST_SERVERS,
            Server::Data(number) => SERVERS + number as usize % MOST_SERVERS,
        };
        let now = now();
        let end = |busy: u64| busy.max(now) + cost;
        let busy = self.0[word].fetch_update(Relaxed, Relaxed, |busy| Some(end(busy)));
        end(busy.unwrap_or(now))
    }

    pub fn count(&self, what: Count, n: u64) {
        self.0[HEAD + self.row() * ROW + what as usize].fetch_add(n, Relaxed);
    }

    /// Return the number of this process: its MPI rank, or the number of processes before it.
    pub fn process(&self) -> u64 {
        self.0[HEAD + self.row() * ROW + 1].load(Relaxed)
    }

    /// Return the row of this process. A forked process detects that the row belongs to its parent,
    /// and takes a new row.
    fn row(&self) -> usize {
        /// Identifier of the process in the lower 32 bits, and its row above.
        static OWN: AtomicU64 = AtomicU64::new(0);
        let process = u64::from(std::process::id());
        let own = OWN.load(Relaxed);
        if own & 0xffff_ffff == process {
            return (own >> 32) as usize;
        }
        let row = (self.0[0].fetch_add(1, Relaxed) as usize).min(MOST_PROCESSES - 1);
        let mine = (row as u64) << 32 | process;
        match OWN.compare_exchange(own, mine, Relaxed, Relaxed) {
            Ok(_) => {
                self.0[HEAD + row * ROW + 1].store(rank().unwrap_or(row as u64), Relaxed);
                self.0[HEAD + row * ROW].store(process, Relaxed);
                row
            }
            // Another thread was faster; the row taken here remains unused.
            Err(theirs) => (theirs >> 32) as usize,
        }
    }
}

/// Return the MPI rank that a launcher assigned to this process.
fn rank() -> Option<u64> {
    [
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
    ]
    .iter()
    .find_map(|name| std::env::var(name).ok()?.parse().ok())
}
