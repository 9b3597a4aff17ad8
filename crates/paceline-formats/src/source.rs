//! Reading of byte ranges of a source, such as a local file. Only this module reads trajectories.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::os_calls;

/// Maximum gap between two wanted ranges that are read together, bytes. Copying the gap costs about
/// as much as another call.
pub const GAP: u64 = 4096;

/// Costs of a source, which decide how bytes are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Maximum gap between two wanted ranges that are requested together, bytes. Reading the gap
    /// takes about as long as another request.
    pub gap: u64,
    /// Maximum number of bytes of all gaps that are read in one block of frames.
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

/// Announces the bytes of a sequential reader to an object store, in few long ranges.
pub struct Announcer {
    ahead: u64,
    /// End of the last announced range.
    announced: u64,
}

impl Announcer {
    /// Create an announcer for a source, with the [`Access::ahead`] of this source.
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

    /// Announce the next [`Access::ahead`] bytes from `at` on, up to `until`, if less than half of
    /// them are already announced.
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

    /// Return the numbers of bytes read and of read calls so far.
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

    /// Return the requests that were sent to a store since the last call of this function.
    fn take_requests(&self) -> Requests {
        Requests::default()
    }
}

/// Requests that were sent to an object store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests, including repeated ones.
    pub sent: u64,
    /// Number of requests that repeat a failed request.
    pub repeated: u64,
    /// Number of bytes received.
    pub bytes: u64,
    /// Sum over all requests of the time until the response began.
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

/// File that is read at offsets.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    file: File,
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl FileSource {
    /// Open a file for reads at offsets.
    ///
    /// # Errors
    /// [`Error::Io`] if the system reports an error. [`Error::Unsupported`] if the path is not a
    /// regular file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = os_calls::open_without_waiting(path)
            .map_err(|source| Error::io(path, "cannot open", source))?;
        let kind = file
            .metadata()
            .map_err(|source| Error::io(path, "cannot stat", source))?
            .file_type();
        if !kind.is_file() {
            let kind = if kind.is_dir() {
                "a directory"
            } else {
                "a pipe or device"
            };
            return Err(Error::Unsupported {
                path: path.to_owned(),
                what: format!("expected a regular file, found {kind}"),
            });
        }
        Ok(FileSource {
            path: path.to_owned(),
            file,
            bytes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        })
    }
}

impl Source for FileSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(source) => Err(Error::io(&self.path, "cannot stat", source)),
        }
    }

    /// Return the time of the last modification, ns since 1970.
    fn version(&self) -> Result<u64> {
        let modified = self.file.metadata().and_then(|found| found.modified());
        let modified = modified.map_err(|why| Error::io(&self.path, "cannot stat", why))?;
        let since = modified.duration_since(SystemTime::UNIX_EPOCH);
        Ok(since.unwrap_or_default().as_nanos() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // `read_exact_at` is not used, because it may make several system calls, and this function
        // counts each of them.
        let mut done = 0;
        while done < buffer.len() {
            self.calls.fetch_add(1, Ordering::Relaxed);
            match os_calls::read_at(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => {
                    return Err(Error::Changed {
                        path: self.path.clone(),
                        what: format!(
                            "it ends at byte {}, before byte {}",
                            offset + done as u64,
                            offset + buffer.len() as u64
                        ),
                    });
                }
                Ok(n) => {
                    self.bytes.fetch_add(n as u64, Ordering::Relaxed);
                    done += n;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = offset + done as u64;
                    return Err(Error::io(
                        &self.path,
                        format!("cannot read at byte {at}"),
                        error,
                    ));
                }
            }
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        os_calls::will_need(&self.file, offset, len);
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            bytes: self.bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_a_changed_file() {
        let path = std::env::temp_dir().join(format!("paceline-source-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let source = FileSource::open(&path).unwrap();
        let mut buffer = [0; 4];
        source.read_at(6, &mut buffer).unwrap();
        assert_eq!(&buffer, b"6789");
        let error = source.read_at(8, &mut buffer).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("ends at byte 10, before byte 12")
        );
        assert_eq!(source.traffic().bytes, 6);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_directory_is_refused_by_name() {
        let error = FileSource::open(&std::env::temp_dir()).unwrap_err();
        assert!(error.to_string().contains("found a directory"));
    }
}
