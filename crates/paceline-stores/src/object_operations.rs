//! Objects as sources of bytes, downloads of objects, and lists of objects.

use std::fs::File;
use std::io::Write;
use std::iter;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use object_store::list::PaginatedListOptions;

use crate::address::{Address, Version};
use crate::failure_messages::Request;
use crate::object_byte_cache::{Object, Opening, each_part};
use crate::runtime_and_request_limits::Process;
use paceline_formats::error::{Error, Result};
use paceline_formats::source::{Access, Requests, Source, Traffic};

/// Number of bytes that sequential readers announce ahead.
const AHEAD: u64 = 32 << 20;
/// Maximum size of an object that [`StoreSource::follow`] requests as a whole, bytes.
const WHOLE: u64 = 16 << 20;
/// Minimum and maximum number of bytes that [`StoreSource::follow`] requests together.
const NEAR: u64 = 256 << 10;
const FAR: u64 = 16 << 20;
/// Maximum number of windows that are requested before a reader needs them, if the addresses of
/// its reads are equally spaced.
const MOST_AHEAD: u64 = 32;

/// Number of bytes of a request that [`StoreSource::measure`] sends alone, and number of such
/// requests.
const ALONE: u64 = 1 << 20;
const N_ALONE: u64 = 3;
/// Number of bytes that are announced together when several connections are measured.
const TOGETHER: u64 = 8 << 20;

/// Speed of a store, found by reading parts of an object.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Time to the beginning of a response.
    pub latency: Duration,
    /// Bytes per second of one connection, without the latency.
    pub one: f64,
    /// Bytes per second of as many connections as readers use together.
    pub several: f64,
}

/// One version of an object as a source of bytes.
pub struct StoreSource {
    object: Arc<Object>,
    /// Object that a forked process uses instead of `object`.
    forked: OnceLock<Arc<Object>>,
    identity: Option<String>,
    bytes: AtomicU64,
    calls: AtomicU64,
    path: Mutex<Followed>,
}

/// Addresses that a reader has followed, to predict the next ones.
#[derive(Default)]
struct Followed {
    /// Bytes that were requested last.
    window: Range<u64>,
    /// Last address outside the previous window, and its distance from the address before.
    last: u64,
    stride: u64,
    /// Number of windows that are requested ahead, if the addresses have equal distances.
    ahead: u64,
}

impl Followed {
    /// Return the windows to request for an address: the window of the address, and those of the
    /// predicted addresses.
    fn go_to(&mut self, offset: u64, end: u64) -> Vec<Range<u64>> {
        let (len, last) = (self.window.end - self.window.start, self.window.end);
        let start = offset / NEAR * NEAR;
        let goes_on = offset >= last && offset - last <= 4 * len;
        let own = match goes_on {
            true => end.max(start + (2 * len).clamp(NEAR, FAR)),
            false => end.max(start + NEAR),
        };
        let stride = offset.saturating_sub(self.last);
        let is_regular = !goes_on && stride.abs_diff(self.stride) <= NEAR / 2 && stride > NEAR;
        self.ahead = if is_regular { self.ahead.max(1) } else { 0 };
        (self.last, self.stride) = (offset, stride);
        let next = (1..=self.ahead).map(|k| {
            let middle = offset + k * stride;
            middle.saturating_sub(NEAR / 4)..middle + NEAR / 4
        });
        iter::once(start..own).chain(next).collect()
    }
}

impl StoreSource {
    /// Open the current version of an object, with one request.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such object, or if it cannot be read.
    pub fn open(address: &Address) -> Result<Self> {
        Object::open(address).map(StoreSource::of)
    }

    /// Open a known version of an object without a request. `identity` is the text that
    /// [`Source::identity`] returned for this version, and `size` its number of bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the store cannot be used.
    pub fn open_version(address: &Address, size: u64, identity: &str) -> Result<Self> {
        Object::known(address, size, Version::from_text(identity)).map(StoreSource::of)
    }

    fn of(object: Arc<Object>) -> Self {
        StoreSource {
            identity: object.version.to_text(),
            object,
            forked: OnceLock::new(),
            bytes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            path: Mutex::default(),
        }
    }

    /// Fill `buffer` for a reader that follows addresses within the file, such as the HDF5 library.
    /// The bytes around the requested ones are requested, too. If addresses have equal distances,
    /// such as those of the nodes of a B-tree, the bytes at the predicted addresses are also
    /// requested.
    ///
    /// # Errors
    /// As those of [`Source::read_at`].
    pub fn follow(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        let mut path = self.path.lock().unwrap_or_else(|lock| lock.into_inner());
        if offset < path.window.start || end > path.window.end {
            let windows = match self.object.size {
                ..=WHOLE => iter::once(0..WHOLE).collect(),
                _ => path.go_to(offset, end),
            };
            path.window = windows[0].clone();
            if self.object()?.announce_windows(&windows) {
                path.ahead = (2 * path.ahead).clamp(1, MOST_AHEAD);
            }
        }
        drop(path);
        self.read_at(offset, buffer)
    }

    /// Measure the speed of the store by reading at most `n_bytes` of the object, which are not
    /// kept, for about the time `limit`.
    ///
    /// # Errors
    /// As those of [`Source::read_at`].
    pub fn measure(&self, n_bytes: u64, limit: Duration) -> Result<Speed> {
        let object = self.object()?.without_bytes();
        let mut arrived = 0;
        let mut buffer = vec![0; ALONE.min(object.size) as usize];
        let mut latency = Duration::MAX;
        let (begun, mut alone) = (Instant::now(), Duration::ZERO);
        let mut at = 0;
        while at < N_ALONE && (at + 1) * ALONE <= object.size.max(ALONE) {
            let sent = Instant::now();
            object.read(at * ALONE, &mut buffer)?;
            let requests = object.take_requests();
            latency = latency.min(requests.latency);
            alone += sent.elapsed().saturating_sub(requests.latency);
            arrived += requests.bytes;
            at += 1;
            if begun.elapsed() > limit {
                break;
            }
        }
        let one = rate(arrived, alone);
        // A slow connection is measured with fewer bytes. Several connections may be faster than
        // one, so that the second range depends on the rate of the first.
        let (mut several, mut start) = (one, at * ALONE);
        for share in [3, 1] {
            let affordable = (several * limit.as_secs_f64()) as u64;
            let len = affordable.clamp(ALONE, n_bytes / share);
            let end = (start + len).min(object.size);
            if end > start {
                several = rate_of_several(&object, start..end, latency)?;
            }
            start = end;
        }
        Ok(Speed {
            latency,
            one,
            several,
        })
    }

    /// Return the object for this process; a forked process has its own.
    fn object(&self) -> Result<Arc<Object>> {
        if self.object.process.is_current() {
            return Ok(Arc::clone(&self.object));
        }
        if let Some(object) = self.forked.get()
            && object.process.is_current()
        {
            return Ok(Arc::clone(object));
        }
        let Object {
            address,
            size,
            version,
            ..
        } = &*self.object;
        let object = Object::known(address, *size, version.clone())?;
        let _ = self.forked.set(Arc::clone(&object));
        Ok(object)
    }
}

/// Return the rate at which a range arrives by requests that are sent together, bytes per second.
fn rate_of_several(object: &Arc<Object>, range: Range<u64>, latency: Duration) -> Result<f64> {
    let begun = Instant::now();
    let parts = range.clone().step_by(TOGETHER as usize);
    let parts: Vec<_> = parts
        .map(|start| start..range.end.min(start + TOGETHER))
        .collect();
    for part in &parts {
        object.announce(part.clone(), 0);
    }
    let mut buffer = vec![0; TOGETHER as usize];
    for part in parts {
        object.read(part.start, &mut buffer[..(part.end - part.start) as usize])?;
    }
    // Latencies vary, and a very short remaining time would yield too high a rate. The time is
    // therefore limited from below.
    let elapsed = begun.elapsed();
    let time = elapsed.saturating_sub(latency).max(elapsed / 10);
    Ok(rate(range.end - range.start, time))
}

/// Return a rate, bytes per second.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-6)
}

impl Source for StoreSource {
    fn path(&self) -> &Path {
        self.object.address.path()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.object.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        let size = self.object.size;
        match offset.checked_add(len) {
            Some(end) if end <= size => {}
            _ => {
                return Err(Error::Changed {
                    path: self.path().to_owned(),
                    what: format!("it ends at byte {size}"),
                });
            }
        }
        self.object()?.read(offset, buffer)?;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        // Announcing is optional; a read reports the error.
        if let Ok(object) = self.object() {
            object.announce(offset..offset.saturating_add(len), AHEAD);
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            bytes: self.bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
        }
    }

    fn access(&self) -> Access {
        let pace = &self.object.store.pace;
        Access {
            gap: pace.gap(),
            gaps: pace.gaps(),
            hop: pace.hop(),
            ahead: AHEAD,
        }
    }

    fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    fn take_requests(&self) -> Requests {
        self.object()
            .map_or_else(|_| Requests::default(), |one| one.take_requests())
    }
}

/// Download of a whole object, whose beginning was requested.
pub struct Download(Opening);

impl Download {
    /// Request the beginning of an object. The calling thread does not wait.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the store cannot be used.
    pub fn of(address: &Address) -> Result<Self> {
        Opening::of(address).map(Download)
    }

    /// Write the object to a new file. Return the text that identifies its version, if it has one.
    ///
    /// # Errors
    /// Errors of the store, and of writing the file.
    pub fn save(self, file: &Path) -> Result<Option<String>> {
        let object = self.0.wait()?;
        let failed = |error| Error::io(file, "cannot write", error);
        let mut out = File::create_new(file).map_err(failed)?;
        each_part(&object, |part| out.write_all(part).map_err(failed))?;
        Ok(object.version.to_text())
    }
}

/// Return the addresses of the objects in a bucket whose keys begin with the key of `prefix`,
/// without its last `*`. Objects in deeper folders are included.
///
/// # Errors
/// Errors of the store; [`Error::Unsupported`] for a server without lists.
pub fn list(prefix: &Address) -> Result<Vec<String>> {
    let process = Process::current()?;
    let store = process.store(prefix)?;
    let Some(lists) = store.lists.clone() else {
        return Err(Error::Unsupported {
            path: prefix.path().to_owned(),
            what: "patterns are for buckets: name each file of this server".into(),
        });
    };
    let address = prefix.clone();
    let listed = process.send(async move {
        let _permit = process.permits(0).acquire().await;
        let begun = Instant::now();
        let key = address.key.strip_suffix('*').unwrap_or(&address.key);
        let key = Some(key).filter(|key| !key.is_empty());
        let (mut found, mut options) = (Vec::new(), PaginatedListOptions::default());
        let mut tries = 0;
        loop {
            tries += 1;
            let page = lists.list_paginated(key, options).await;
            let page = page.map_err(|error| {
                let (bytes, elapsed) = (None, begun.elapsed());
                let address = &address;
                let request = Request {
                    address,
                    bytes,
                    tries,
                    elapsed,
                };
                request.failed(error)
            })?;
            for meta in page.result.objects {
                let one = address.sibling(meta.location.as_ref());
                found.push(one.path().to_string_lossy().into_owned());
            }
            match page.page_token {
                Some(token) => {
                    options = PaginatedListOptions {
                        page_token: Some(token),
                        ..PaginatedListOptions::default()
                    };
                }
                None => return Ok(found),
            }
        }
    });
    listed.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_a_path() {
        const MB: u64 = 1 << 20;
        let mut path = Followed::default();
        let mut go_to = |offset| {
            let windows = path.go_to(offset, offset + 100);
            path.window = windows[0].clone();
            path.ahead = 2;
            windows
        };
        // If consecutive addresses are close together, the window grows.
        assert_eq!(go_to(0), vec![0..NEAR; 1]);
        assert_eq!(go_to(NEAR), vec![NEAR..3 * NEAR; 1]);
        // Addresses with equal distances.
        assert_eq!(go_to(10 * MB).len(), 1);
        let stride = 3 * MB + 5;
        assert_eq!(go_to(10 * MB + stride).len(), 1);
        let windows = go_to(10 * MB + 2 * stride);
        assert_eq!(windows.len(), 3);
        assert!(windows[2].contains(&(10 * MB + 4 * stride)));
        // Other distances.
        assert_eq!(go_to(7 * MB).len(), 1);
    }
}
