//! Bytes of one version of an object. Requested bytes are kept until they are read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{Attribute, GetOptions, GetResult, ObjectMeta};
use tokio::task::AbortHandle;

use crate::address::{Address, Scheme, Version};
use crate::failure_messages::Request;
use crate::http_requests::{FIRST_PAUSE, Tries, retry_limit, shortened};
use crate::latency_and_bandwidth::Response;
use crate::runtime_and_request_limits::{
    KEPT_BYTES, KeepsBytes, LOOK, Process, Started, Store, caught, check_stopped,
};
use paceline_formats::error::{Error, Result};
use paceline_formats::source::Requests;

/// Minimum and maximum number of bytes of a request. Between these limits, a request has
/// 1/`PARALLEL` of the bytes that are requested together or are already in flight.
const SMALLEST: u64 = 1 << 20;
const LARGEST: u64 = 4 << 20;
const PARALLEL: u64 = 8;
/// Number of bytes that are requested beyond a run of announced ranges, per byte of the run.
const GROWTH: u64 = 4;
/// Number of bytes of the first request. This is more than is needed to recognise a format.
const FRONT: u64 = 64 << 10;
/// Age above which bytes may be dropped before any reader has read them, if memory is needed.
const OLD: Duration = Duration::from_secs(20);

/// One version of an object.
pub(crate) struct Object {
    pub(crate) address: Address,
    pub(crate) size: u64,
    pub(crate) version: Version,
    pub(crate) process: &'static Process,
    pub(crate) store: Arc<Store>,
    pieces: Mutex<Pieces>,
    arrived: Condvar,
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Pieces {
    /// Pieces by their offsets. They do not overlap.
    by_start: BTreeMap<u64, Piece>,
    /// Number of bytes that were requested and have not arrived.
    in_flight: u64,
    announced: Runs,
}

/// Ranges that were announced. Ranges that touch are one run.
#[derive(Default)]
struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Maximum number of runs that are kept.
    const MOST: usize = 4096;

    /// Add a range, and return the run that contains it.
    fn add(&mut self, range: Range<u64>) -> Range<u64> {
        if self.0.len() >= Runs::MOST {
            self.0.clear();
        }
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) = self.0.range(..=end).next_back()
            && last >= start
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
        start..end
    }

    /// Remove the run that contains a whole range, if there is one.
    fn forget(&mut self, range: &Range<u64>) {
        if let Some((&first, &last)) = self.0.range(..=range.start).next_back()
            && last >= range.end
        {
            self.0.remove(&first);
        }
    }
}

struct Piece {
    end: u64,
    content: Content,
    progress: Progress,
    used: Instant,
}

/// Progress of reading a piece. A piece can be done although its last byte was not read, because
/// this byte may be in a gap between two ranges that were requested together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Done,
    Begun,
    Unread,
}

enum Content {
    Waiting(AbortHandle),
    Here(Bytes),
    Failed(Error),
}

/// Object whose beginning was requested.
pub(crate) struct Opening {
    address: Address,
    process: &'static Process,
    store: Arc<Store>,
    started: Started<(Bytes, ObjectMeta, Requests)>,
}

impl Opening {
    /// Request the beginning of the current version of an object.
    pub(crate) fn of(address: &Address) -> Result<Opening> {
        let process = Process::current()?;
        let store = process.store(address)?;
        let started = {
            let (address, store) = (address.clone(), Arc::clone(&store));
            process.send(async move {
                let _permit = process.permits(FRONT).acquire().await;
                let mut attempt = Attempt::of(&address, None);
                let found = caught(&address, front(&mut attempt, &store)).await;
                if found.is_err() {
                    process.count(&attempt.requests());
                }
                found.map(|(bytes, meta)| (bytes, meta, attempt.requests()))
            })
        };
        Ok(Opening {
            address: address.clone(),
            process,
            store,
            started,
        })
    }

    /// Wait for the beginning of the object, and return the object.
    pub(crate) fn wait(self) -> Result<Arc<Object>> {
        let (front, meta, requests) = self.started.wait()?;
        let (process, version) = (self.process, Version::of(&meta));
        let object = Object::new(&self.address, meta.size, version, process, self.store);
        object.count(&requests);
        if let Some(key) = object.key() {
            process.keep_front(key, front.clone());
        }
        let object = object.shared();
        object.add_front(front);
        Ok(object)
    }
}

impl Object {
    /// Open the current version of an object with one request, which reads its beginning.
    pub(crate) fn open(address: &Address) -> Result<Arc<Object>> {
        Opening::of(address)?.wait()
    }

    /// Open a known version of an object, without a request.
    pub(crate) fn known(address: &Address, size: u64, version: Version) -> Result<Arc<Object>> {
        let process = Process::current()?;
        let store = process.store(address)?;
        let object = Object::new(address, size, version, process, store).shared();
        if let Some(front) = object.key().and_then(|key| process.front(&key)) {
            object.add_front(front);
        }
        Ok(object)
    }

    /// Return an object of the same version that keeps no bytes yet, and that no other reader
    /// shares.
    pub(crate) fn without_bytes(&self) -> Arc<Object> {
        let (version, store) = (self.version.clone(), Arc::clone(&self.store));
        Object::new(&self.address, self.size, version, self.process, store)
    }

    /// Return the key by which readers of this version find the object that they share; `None` if
    /// the version is unknown.
    fn key(&self) -> Option<String> {
        let path = self.address.path().display();
        let client = Arc::as_ptr(&self.store).addr();
        let key = || format!("{path}\n{}\n{:?}\n{client}", self.size, self.version);
        (self.version != Version::Unknown).then(key)
    }

    /// Return the object that readers of this version share: an existing one, or else this one.
    fn shared(self: Arc<Self>) -> Arc<Self> {
        match self.key() {
            Some(key) => self.process.share(key, self),
            None => self,
        }
    }

    /// Add the beginning of the object, unless some of its bytes are already kept.
    fn add_front(&self, front: Bytes) {
        let len = front.len() as u64;
        let mut pieces = self.lock();
        if len > 0 && pieces.by_start.range(..len).next().is_none() {
            self.process.kept.fetch_add(front.len(), Ordering::Relaxed);
            pieces
                .by_start
                .insert(0, Piece::of(len, Content::Here(front)));
        }
    }

    fn new(
        address: &Address,
        size: u64,
        version: Version,
        process: &'static Process,
        store: Arc<Store>,
    ) -> Arc<Object> {
        let object = Arc::new(Object {
            address: address.clone(),
            size,
            version,
            process,
            store,
            pieces: Mutex::default(),
            arrived: Condvar::new(),
            requests: Mutex::default(),
        });
        let keeper: Weak<Object> = Arc::downgrade(&object);
        process.add(keeper);
        object
    }

    fn count(&self, requests: &Requests) {
        let mut counted = self
            .requests
            .lock()
            .unwrap_or_else(|lock| lock.into_inner());
        counted.add(requests);
        self.process.count(requests);
    }

    /// Return the requests since the last call.
    pub(crate) fn take_requests(&self) -> Requests {
        let mut counted = self
            .requests
            .lock()
            .unwrap_or_else(|lock| lock.into_inner());
        std::mem::take(&mut counted)
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// Request a range that will soon be read, if there is space for it. If the range is short and
    /// continues ranges that were announced before, up to `ahead` following bytes are requested,
    /// too.
    pub(crate) fn announce(self: &Arc<Self>, range: Range<u64>, ahead: u64) {
        let range = range.start..range.end.min(self.size);
        if range.is_empty() {
            return;
        }
        let mut pieces = self.lock();
        let run = pieces.add_announced(range.clone());
        self.request(&mut pieces, range.clone(), false);
        let (len, own) = (run.end - run.start, range.end - range.start);
        // The run must be more than 1.5 times as long as this range, so that it contains earlier
        // ranges. It need not be twice as long, because blocks differ in size. A reader that
        // announces long ranges needs no further bytes.
        if own < ahead / 2 && len > own + own / 2 {
            let further = ahead.min(GROWTH * len);
            let end = run.end.saturating_add(further).min(self.size);
            let missing = pieces.missing(run.end..end);
            let n_missing: u64 = missing.iter().map(|part| part.end - part.start).sum();
            // Nothing is requested until the missing bytes fill a long request, or reach the end of
            // the object.
            if n_missing >= LARGEST.min(further) || end == self.size {
                self.request(&mut pieces, run.end..end, false);
            }
        }
    }

    /// Request windows for a reader that follows addresses within the file. Bytes before the first
    /// window count as read, so that they are dropped first. Return true if the first window was
    /// requested before.
    pub(crate) fn announce_windows(self: &Arc<Self>, windows: &[Range<u64>]) -> bool {
        let mut pieces = self.lock();
        let start = windows.first().map_or(0, |window| window.start);
        for (_, piece) in pieces.by_start.range_mut(..start) {
            if piece.end <= start {
                piece.progress = Progress::Done;
            }
        }
        let was_requested = pieces.holding(start).is_some();
        for window in windows {
            let window = window.start.min(self.size)..window.end.min(self.size);
            self.request(&mut pieces, window, false);
        }
        was_requested
    }

    /// Fill `buffer` with the bytes from `offset` on. The calling thread waits for them.
    pub(crate) fn read(self: &Arc<Self>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        let mut pieces = self.lock();
        self.request(&mut pieces, offset..end, true);
        while at < end {
            let Some((start, piece)) = pieces.holding(at) else {
                self.request(&mut pieces, at..end, true);
                continue;
            };
            match &piece.content {
                Content::Here(bytes) => {
                    let until = end.min(piece.end);
                    let part = bytes.slice((at - start) as usize..(until - start) as usize);
                    piece.used = Instant::now();
                    piece.progress = match until == piece.end {
                        true => Progress::Done,
                        false => piece.progress.min(Progress::Begun),
                    };
                    drop(pieces);
                    buffer[(at - offset) as usize..(until - offset) as usize]
                        .copy_from_slice(&part);
                    at = until;
                    pieces = self.lock();
                }
                Content::Waiting(_) => {
                    let begun = Instant::now();
                    let waited = self.arrived.wait_timeout(pieces, LOOK);
                    let (lock, timeout) = waited.unwrap_or_else(|lock| lock.into_inner());
                    pieces = lock;
                    self.count(&Requests {
                        waited: begun.elapsed(),
                        ..Requests::default()
                    });
                    if timeout.timed_out() {
                        drop(pieces);
                        check_stopped()?;
                        pieces = self.lock();
                    }
                }
                Content::Failed(_) => {
                    // A later read requests these bytes again.
                    let failed = self.remove(&mut pieces, start);
                    if let Some(Content::Failed(error)) = failed {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Request the missing parts of a range. Unless `needed` is set, no more bytes are requested
    /// than there is space for.
    fn request(self: &Arc<Self>, pieces: &mut Pieces, range: Range<u64>, needed: bool) {
        if range.is_empty() {
            return;
        }
        for missing in pieces.missing(range) {
            let together = pieces.in_flight + missing.end - missing.start;
            let step = (together / PARALLEL).clamp(SMALLEST, LARGEST);
            let mut start = missing.start;
            while start < missing.end {
                let mut end = missing.end.min(start + step);
                // Reading a short remainder takes less time than another request.
                if missing.end - end < step / 2 {
                    end = missing.end;
                }
                if !self.has_space(pieces, (end - start) as usize) && !needed {
                    return;
                }
                self.send(pieces, start..end);
                start = end;
            }
        }
    }

    /// Make space for more bytes; return true if there is enough.
    fn has_space(&self, pieces: &mut Pieces, len: usize) -> bool {
        self.drop_pieces(pieces, len) || self.process.drop_others(self, len)
    }

    /// Drop pieces that are no longer needed until there is space for `len` bytes; return true if
    /// there is.
    fn drop_pieces(&self, pieces: &mut Pieces, len: usize) -> bool {
        let kept = &self.process.kept;
        while kept.load(Ordering::Relaxed) + len > KEPT_BYTES {
            let oldest = pieces.first_to_drop();
            match oldest {
                Some(start) => drop(self.remove(pieces, start)),
                None => return false,
            }
        }
        true
    }

    fn remove(&self, pieces: &mut Pieces, start: u64) -> Option<Content> {
        let piece = pieces.by_start.remove(&start)?;
        let len = (piece.end - start) as usize;
        self.process.kept.fetch_sub(len, Ordering::Relaxed);
        Some(piece.content)
    }

    fn send(self: &Arc<Self>, pieces: &mut Pieces, range: Range<u64>) {
        let Range { start, end } = range;
        let (len, process) = (end - start, self.process);
        let object = Arc::downgrade(self);
        let (address, store, size) = (self.address.clone(), Arc::clone(&self.store), self.size);
        let version = self.version.clone();
        let task = process.runtime.spawn(async move {
            let _permit = process.permits(len).acquire().await;
            let mut attempt = Attempt::of(&address, Some(start..end));
            let request = get(&mut attempt, &store, &version, size, start..end);
            let got = caught(&address, request).await;
            let Some(object) = object.upgrade() else {
                return;
            };
            object.count(&attempt.requests());
            let mut pieces = object.lock();
            pieces.in_flight -= len;
            if let Some(piece) = pieces.by_start.get_mut(&start) {
                piece.used = Instant::now();
                piece.content = match got {
                    Ok(bytes) => Content::Here(bytes),
                    Err(error) => Content::Failed(error),
                };
            }
            drop(pieces);
            object.arrived.notify_all();
        });
        process.kept.fetch_add(len as usize, Ordering::Relaxed);
        pieces.in_flight += len;
        let piece = Piece::of(end, Content::Waiting(task.abort_handle()));
        pieces.by_start.insert(start, piece);
    }
}

impl KeepsBytes for Object {
    fn drop_bytes(&self, len: usize) -> bool {
        // Do not wait for a reader that has locked its pieces, because this reader may be waiting
        // for the pieces of the caller.
        let mut pieces = match self.pieces.try_lock() {
            Ok(pieces) => pieces,
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.drop_pieces(&mut pieces, len)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let pieces = self.pieces.get_mut();
        let pieces = pieces.unwrap_or_else(|lock| lock.into_inner());
        for (start, piece) in &pieces.by_start {
            let len = (piece.end - start) as usize;
            self.process.kept.fetch_sub(len, Ordering::Relaxed);
            if let (Content::Waiting(task), true) = (&piece.content, self.process.is_current()) {
                task.abort();
            }
        }
    }
}

impl Piece {
    fn of(end: u64, content: Content) -> Self {
        Piece {
            end,
            content,
            progress: Progress::Unread,
            used: Instant::now(),
        }
    }
}

impl Pieces {
    /// Return the piece that contains an offset, and where it starts.
    fn holding(&mut self, at: u64) -> Option<(u64, &mut Piece)> {
        let (&start, piece) = self.by_start.range_mut(..=at).next_back()?;
        (piece.end > at).then_some((start, piece))
    }

    /// Return the offset of the piece to be dropped first, if any may be dropped: the least
    /// recently used of the pieces that were read to the end, else of those that were read in part,
    /// else of old pieces that were not read.
    fn first_to_drop(&self) -> Option<u64> {
        let may_drop = |piece: &Piece| {
            matches!(piece.content, Content::Here(_))
                && (piece.progress < Progress::Unread || piece.used.elapsed() > OLD)
        };
        self.by_start
            .iter()
            .filter(|(_, piece)| may_drop(piece))
            .min_by_key(|(_, piece)| (piece.progress, piece.used))
            .map(|(&start, _)| start)
    }

    /// Add a range to those that were announced, and return the run that contains it.
    fn add_announced(&mut self, range: Range<u64>) -> Range<u64> {
        // If bytes that were announced before are no longer kept, the reader passes over the object
        // again, and a new run begins.
        if !self.missing(range.clone()).is_empty() {
            self.announced.forget(&range);
        }
        self.announced.add(range)
    }

    /// Return the parts of a range that are not in any piece.
    fn missing(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        if let Some((_, piece)) = self.holding(at) {
            at = piece.end;
        }
        for (&start, piece) in self.by_start.range(range.start..range.end) {
            if start > at {
                missing.push(at..start);
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }
}

/// Return the key of an object in the form that a client needs.
pub(crate) fn key_of(address: &Address) -> Result<Key> {
    let parsed = match address.scheme {
        Scheme::Http | Scheme::Https => Key::from_url_path(&address.key),
        Scheme::S3 | Scheme::Gs | Scheme::Az => Key::parse(&address.key),
    };
    parsed.map_err(|error| Error::Unsupported {
        path: address.path().to_owned(),
        what: format!("the address cannot be used: {error}"),
    })
}

fn options_for(address: &Address, tries: &Tries) -> GetOptions {
    let mut options = GetOptions {
        version: address.version.clone(),
        ..GetOptions::default()
    };
    options.extensions.insert(tries.clone());
    options
}

/// Read the beginning of an object, and the properties that the store states.
async fn front(attempt: &mut Attempt<'_>, store: &Store) -> Result<(Bytes, ObjectMeta)> {
    let address = attempt.address;
    let key = key_of(address)?;
    loop {
        let options = GetOptions {
            range: Some((0..FRONT).into()),
            ..options_for(address, &attempt.tries)
        };
        let begun = Instant::now();
        let result = match store.objects.get_opts(&key, options).await {
            Ok(result) => result,
            Err(error @ object_store::Error::NotFound { .. }) => {
                return Err(attempt.request().failed(error));
            }
            Err(error) => {
                let failed = attempt.request().failed(error);
                return empty(address, store, failed).await;
            }
        };
        check_encoding(address, &result)?;
        let (meta, first) = (result.meta.clone(), begun.elapsed());
        let bytes = attempt
            .collect(result, FRONT.min(meta.size), first, store)
            .await?;
        if let Some(bytes) = bytes {
            return Ok((bytes, meta));
        }
    }
}

/// Refuse an object whose bytes the server encodes, because offsets would then differ from those of
/// the file.
fn check_encoding(address: &Address, result: &GetResult) -> Result<()> {
    let encoding = result.attributes.get(&Attribute::ContentEncoding);
    let encoding = encoding.map_or("", |value| value.as_ref());
    match encoding {
        "" | "identity" | "aws-chunked" => Ok(()),
        _ => Err(Error::Unsupported {
            path: address.path().to_owned(),
            what: format!(
                "the server sends it encoded ({encoding}), so that parts of the file cannot be read: \
                 store it without Content-Encoding, or download it first"
            ),
        }),
    }
}

/// Open an object that may be empty. An empty object has no first byte, and each store returns a
/// different error if this byte is requested.
async fn empty(address: &Address, store: &Store, failed: Error) -> Result<(Bytes, ObjectMeta)> {
    let options = GetOptions {
        head: true,
        ..options_for(address, &Tries::default())
    };
    match store.objects.get_opts(&key_of(address)?, options).await {
        Ok(result) if result.meta.size == 0 => Ok((Bytes::new(), result.meta)),
        _ => Err(failed),
    }
}

/// Read a range of one version of an object.
async fn get(
    attempt: &mut Attempt<'_>,
    store: &Store,
    version: &Version,
    size: u64,
    range: Range<u64>,
) -> Result<Bytes> {
    let address = attempt.address;
    let key = key_of(address)?;
    loop {
        let mut options = GetOptions {
            range: Some(range.clone().into()),
            ..options_for(address, &attempt.tries)
        };
        version.require(&mut options);
        let begun = Instant::now();
        let result = store.objects.get_opts(&key, options).await;
        let result = result.map_err(|error| attempt.request().failed(error))?;
        let first = begun.elapsed();
        if result.meta.size != size || Version::of(&result.meta) != *version {
            return Err(attempt.request().changed());
        }
        let len = range.end - range.start;
        let bytes = attempt.collect(result, len, first, store).await?;
        if let Some(bytes) = bytes {
            return Ok(bytes);
        }
    }
}

/// Request that is repeated if its response is cut off.
struct Attempt<'a> {
    address: &'a Address,
    bytes: Option<Range<u64>>,
    tries: Tries,
    started: Instant,
    pause: Duration,
    /// Number of bytes of the response, and the time to its beginning.
    received: u64,
    latency: Duration,
}

impl<'a> Attempt<'a> {
    fn of(address: &'a Address, bytes: Option<Range<u64>>) -> Self {
        Attempt {
            address,
            bytes,
            tries: Tries::default(),
            started: Instant::now(),
            pause: FIRST_PAUSE,
            received: 0,
            latency: Duration::ZERO,
        }
    }

    fn requests(&self) -> Requests {
        let sent = u64::from(self.tries.count());
        Requests {
            sent,
            repeated: sent.saturating_sub(1),
            bytes: self.received,
            latency: self.latency,
            waited: Duration::ZERO,
        }
    }

    fn request(&self) -> Request<'a> {
        Request {
            address: self.address,
            bytes: self.bytes.clone(),
            tries: self.tries.count(),
            elapsed: self.started.elapsed(),
        }
    }

    /// Collect the `len` bytes of a response that began after the time `first`. If the response was
    /// cut off and there is time for another request, pause and return `None`.
    async fn collect(
        &mut self,
        result: GetResult,
        len: u64,
        first: Duration,
        store: &Store,
    ) -> Result<Option<Bytes>> {
        let mut response = store.pace.begin(first);
        let error = match collect(result, len, &mut response).await {
            Ok(bytes) if bytes.len() as u64 == len => {
                (self.received, self.latency) = (len, first);
                return Ok(Some(bytes));
            }
            Ok(bytes) => self.request().cut(bytes.len() as u64),
            Err(error) => self.request().failed(error),
        };
        drop(response);
        let wait = shortened(self.pause);
        if self.started.elapsed() + wait > retry_limit() {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
        self.pause *= 2;
        Ok(None)
    }
}

/// Collect the bytes of a response: `len` bytes and at most one further part.
async fn collect(
    result: GetResult,
    len: u64,
    response: &mut Response<'_>,
) -> object_store::Result<Bytes> {
    let mut stream = result.into_stream();
    let mut bytes = BytesMut::with_capacity(len as usize);
    while let Some(part) = stream.next().await {
        let part = part?;
        response.arrived(part.len());
        bytes.extend_from_slice(&part);
        if bytes.len() as u64 > len {
            break;
        }
    }
    Ok(bytes.freeze())
}

/// Read a whole object of one version part by part, and pass on each part.
pub(crate) fn each_part(
    object: &Arc<Object>,
    mut pass: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; LARGEST.min(object.size) as usize];
    let mut at = 0;
    while at < object.size {
        let len = LARGEST.min(object.size - at) as usize;
        object.announce(at..at + PARALLEL * LARGEST, 0);
        object.read(at, &mut buffer[..len])?;
        pass(&buffer[..len])?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_run() {
        let mut runs = Runs::default();
        assert_eq!(runs.add(20..30), 20..30);
        assert_eq!(runs.add(0..10), 0..10);
        assert_eq!(runs.add(40..50), 40..50);
        assert_eq!(runs.add(10..20), 0..30);
        assert_eq!(runs.add(5..8), 0..30);
        assert_eq!(runs.add(25..60), 0..60);
    }

    #[test]
    fn a_further_pass_begins_a_run() {
        let mut pieces = Pieces::default();
        for start in [0, 10, 20] {
            assert_eq!(pieces.add_announced(start..start + 10), 0..start + 10);
            let piece = Piece::of(start + 10, Content::Here(Bytes::new()));
            pieces.by_start.insert(start, piece);
        }
        // Readers announce a range several times. The bytes of this range are still kept.
        assert_eq!(pieces.add_announced(10..20), 0..30);
        pieces.by_start.clear();
        assert_eq!(pieces.add_announced(0..10), 0..10);
        assert_eq!(pieces.add_announced(10..20), 0..20);
        // Blocks of a reader with a halo overlap.
        assert_eq!(pieces.add_announced(18..28), 0..28);
    }

    #[test]
    fn pieces_that_were_read_are_dropped_first() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.first_to_drop(), None);
        let here = || Content::Here(Bytes::new());
        for (start, progress) in [
            (0, Progress::Unread),
            (10, Progress::Begun),
            (20, Progress::Done),
            (30, Progress::Begun),
            (40, Progress::Done),
        ] {
            let mut piece = Piece::of(start + 10, here());
            piece.progress = progress;
            pieces.by_start.insert(start, piece);
        }
        let mut dropped = Vec::new();
        while let Some(start) = pieces.first_to_drop() {
            dropped.push(start);
            pieces.by_start.remove(&start);
        }
        assert_eq!(dropped, [20, 40, 10, 30]);
        // No reader has used this piece for a long time.
        if let Some(piece) = pieces.by_start.get_mut(&0)
            && let Some(used) = Instant::now().checked_sub(2 * OLD)
        {
            piece.used = used;
            assert_eq!(pieces.first_to_drop(), Some(0));
        }
    }

    #[test]
    fn parts_of_a_range_that_were_not_requested() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.missing(5..9), vec![5..9; 1]);
        for (start, end) in [(10, 20), (30, 40), (40, 50)] {
            let piece = Piece::of(end, Content::Here(Bytes::new()));
            pieces.by_start.insert(start, piece);
        }
        assert_eq!(pieces.missing(0..60), [0..10, 20..30, 50..60]);
        assert_eq!(pieces.missing(15..35), vec![20..30; 1]);
        assert_eq!(pieces.missing(12..18), []);
        assert_eq!(pieces.missing(45..52), vec![50..52; 1]);
        assert_eq!(pieces.holding(39).map(|(start, _)| start), Some(30));
        assert!(pieces.holding(20).is_none());
    }
}
