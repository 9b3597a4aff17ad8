//! Reading of byte ranges of a file. Only this module reads trajectories.

mod file;

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

#[cfg(test)]
use crate::error::Error;
use crate::error::Result;

pub use file::FileSource;

/// Maximum gap between two wanted ranges that are read together, bytes. Copying the gap costs about
/// as much as another call.
pub const GAP: u64 = 4096;

/// Costs of a source, which decide how bytes are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Maximum gap between two wanted ranges that are requested together, bytes. Reading the gap
    /// takes about as long as another request.
    pub gap: u64,
    /// Maximum number of bytes of such gaps in one block of frames.
    pub gaps: u64,
    /// Maximum gap that is read between two ranges if the second can be requested only once the
    /// first has arrived, bytes.
    pub hop: u64,
    /// Number of bytes that a sequential reader announces ahead; 0 if the system reads ahead.
    pub ahead: u64,
}

impl Access {
    /// Costs of a local file.
    pub const FILE: Access = Access {
        gap: GAP,
        gaps: u64::MAX,
        hop: GAP,
        ahead: 0,
    };
}

/// Announces the bytes of a sequential reader to a store, in few long ranges.
pub struct Announcer {
    ahead: u64,
    /// End of the last announced range.
    announced: u64,
}

impl Announcer {
    /// Create an announcer of as many bytes as [`Access::ahead`] of the source.
    pub fn of(source: &dyn Source) -> Self {
        Announcer {
            ahead: source.access().ahead,
            announced: 0,
        }
    }

    /// Return true if the source does not read ahead itself.
    pub fn is_needed(&self) -> bool {
        self.ahead > 0
    }

    /// Announce the next [`Access::ahead`] bytes from `at` on, up to `until`, if less than half as
    /// many are announced.
    pub fn reads(&mut self, source: &dyn Source, at: u64, until: u64) {
        if self.announced > at.saturating_add(self.ahead) {
            self.announced = at;
        }
        let end_of = |ahead| until.min(at.saturating_add(ahead));
        if self.announced < end_of(self.ahead / 2) {
            let end = end_of(self.ahead);
            source.will_need(at, end.saturating_sub(at));
            self.announced = end;
        }
    }
}

/// Source of bytes with positional reads. Threads can share it, since it has no cursor.
pub trait Source: Send + Sync {
    /// Return the path, for messages.
    fn path(&self) -> &Path;

    /// Return the current size, bytes.
    fn size(&self) -> Result<u64>;

    /// Return a number that changes when the content is modified; 0 if the source has no such
    /// number.
    fn version(&self) -> Result<u64> {
        Ok(0)
    }

    /// Fill `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`crate::error::Error::Changed`] if the source ends before the buffer is full, since callers
    /// request only bytes that existed when the source was indexed.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Announce a range that will soon be read, so that prefetching can start in the background.
    fn will_need(&self, offset: u64, len: u64);

    /// Return the number of bytes and calls so far.
    fn traffic(&self) -> Traffic;

    /// Return the costs of the source, which decide how bytes are requested.
    fn access(&self) -> Access {
        Access::FILE
    }

    /// Return the text by which the store identifies this version of the bytes; `None` if the
    /// source has no such text.
    fn identity(&self) -> Option<&str> {
        None
    }

    /// Return the requests to a store since the last call.
    fn take_requests(&self) -> Requests {
        Requests::default()
    }
}

/// Requests that were sent to a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests, including repeated ones.
    pub sent: u64,
    /// Number of requests that repeat one that failed.
    pub repeated: u64,
    /// Number of bytes received.
    pub bytes: u64,
    /// Sum of the times to the beginnings of the responses.
    pub latency: Duration,
    /// Time for which readers waited for bytes.
    pub waited: Duration,
}

impl Requests {
    /// Add the counts of `other`.
    pub fn add(&mut self, other: &Requests) {
        self.sent += other.sent;
        self.repeated += other.repeated;
        self.bytes += other.bytes;
        self.latency += other.latency;
        self.waited += other.waited;
    }
}

/// Amount of data that was read from a source so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of read calls.
    pub calls: u64,
}

/// A pointer to a source, such as a reference or an `Arc`, is a source, too.
impl<P> Source for P
where
    P: Deref<Target: Source> + Send + Sync,
{
    fn path(&self) -> &Path {
        (**self).path()
    }

    fn size(&self) -> Result<u64> {
        (**self).size()
    }

    fn version(&self) -> Result<u64> {
        (**self).version()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buffer)
    }

    fn will_need(&self, offset: u64, len: u64) {
        (**self).will_need(offset, len);
    }

    fn traffic(&self) -> Traffic {
        (**self).traffic()
    }

    fn access(&self) -> Access {
        (**self).access()
    }

    fn identity(&self) -> Option<&str> {
        (**self).identity()
    }

    fn take_requests(&self) -> Requests {
        (**self).take_requests()
    }
}

/// Bytes in memory, for tests.
#[cfg(test)]
#[derive(Debug)]
pub struct MemorySource(pub Vec<u8>);

#[cfg(test)]
impl Source for MemorySource {
    fn path(&self) -> &Path {
        Path::new("<memory>")
    }

    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..)?.get(..buffer.len()));
        match bytes {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => {
                return Err(Error::Changed {
                    path: self.path().to_owned(),
                    what: format!("it ends at byte {}", self.0.len()),
                });
            }
        }
        Ok(())
    }

    fn will_need(&self, _offset: u64, _len: u64) {}

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}
