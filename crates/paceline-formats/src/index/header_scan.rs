//! Scan of a file from one frame header to the next. The scan continues after damage.
//!
//! A *place* is an offset with a valid header that has the right number of atoms. A walk goes from
//! one place to the next by the frame size in the header. All decisions depend only on the place
//! and on the file, and not on earlier steps of the walk. Walks that meet at a place therefore
//! continue identically, and the index does not depend on the number of threads.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Fault, Result};
use crate::format_interface::Progress;
use crate::source::{Announcer, Source};

/// Minimum time between two reports of progress.
const PAUSE: Duration = Duration::from_millis(100);

/// Reporter of the progress of a scan. It stops the scan if the caller requests that.
pub struct ScanProgress<'a> {
    progress: &'a Progress<'a>,
    total: u64,
    done: Cell<u64>,
    reported: Cell<Option<Instant>>,
}

impl<'a> ScanProgress<'a> {
    pub fn new(progress: &'a Progress<'a>, total: u64) -> Self {
        ScanProgress {
            progress,
            total,
            done: Cell::new(0),
            reported: Cell::new(None),
        }
    }

    /// Report that the scan has reached the offset `at` or a later one.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the caller requested a stop.
    pub fn reached(&self, at: u64) -> Result<()> {
        self.done.set(self.done.get().max(at.min(self.total)));
        let due = |last: Instant| last.elapsed() >= PAUSE;
        if !self.reported.get().is_none_or(due) {
            return Ok(());
        }
        self.reported.set(Some(Instant::now()));
        match (self.progress)(self.done.get(), self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted),
        }
    }
}

/// Offset with a valid header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    pub at: u64,
    pub header: FrameHeader,
}

/// Frames found by a scan, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    pub starts: Vec<u64>,
    pub times: Vec<f64>,
    pub steps: Vec<i64>,
    /// Number of atoms of each frame, 0 if unknown; empty for formats with a fixed number.
    pub atom_counts: Vec<u32>,
}

impl Chain {
    fn push(&mut self, place: Place) {
        self.starts.push(place.at);
        self.times.push(place.header.time);
        self.steps.push(place.header.step);
    }

    /// Remove the last frame; return its offset.
    pub fn pop(&mut self) -> Option<u64> {
        self.times.pop();
        self.steps.pop();
        self.atom_counts.pop();
        self.starts.pop()
    }

    /// Add an entry for bytes without a header. The time of the entry is NaN.
    pub fn push_unknown(&mut self, at: u64) {
        self.starts.push(at);
        self.times.push(f64::NAN);
        self.steps.push(0);
    }

    /// Append the frames of `other`, starting at frame `first`.
    pub fn extend(&mut self, other: &Chain, first: usize) {
        self.starts.extend_from_slice(&other.starts[first..]);
        self.times.extend_from_slice(&other.times[first..]);
        self.steps.extend_from_slice(&other.steps[first..]);
        let counts = other.atom_counts.get(first..);
        self.atom_counts.extend(counts.unwrap_or_default());
    }
}

/// Reason for the end of a walk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// The walk left its segment, and reached this place.
    Reached(Place),
    /// The last frame ends at the end of the file.
    End,
    /// The frame at this place does not end at another place.
    Lost(Place),
}

/// Result of a search after a frame that does not end at another place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resync {
    /// The last entry of the chain is damaged. It ends at this place; `None` means the end of the
    /// file.
    Damaged(Option<Place>),
    /// The file ends within the frame at `at`, which has `stated` bytes if its header is complete.
    Cut { at: u64, stated: Option<u64> },
}

/// Content found at an offset.
enum Found {
    Header(FrameHeader),
    /// The beginning of a header, at the end of the file.
    Beginning,
    Nothing,
}

/// Size below which a scan reads frames completely. Of longer frames, it reads only the headers.
/// Compared with headers alone, complete frames from the page cache took 0.8 of the time if they
/// have 13 kB, and 13 times as long if they have 165 kB. From a disk, both times were equal for
/// frames of 13 kB.
const STREAM_BELOW: u64 = 64 << 10;
const BUFFER: usize = 1 << 20;

/// File that is scanned.
#[derive(Clone, Copy)]
pub struct Trajectory<'a> {
    pub source: &'a dyn Source,
    pub format: &'a dyn Framed,
    pub n_atoms: usize,
    /// Size of the file when it was opened; later appended bytes are ignored.
    pub size: u64,
}

pub struct Walker<'a> {
    file: Trajectory<'a>,
    /// Function that is called with the offset before each read. If it returns an error, the walk
    /// ends.
    watch: &'a dyn Fn(u64) -> Result<()>,
    /// Number of bytes to read for the next header.
    fetch: usize,
    /// Size below which frames are read completely, bytes.
    stream_below: u64,
    announcer: Announcer,
    /// Offset up to which this walk announces bytes; the walks of later segments announce later
    /// bytes.
    until: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl<'a> Walker<'a> {
    pub fn new(file: Trajectory<'a>, watch: &'a dyn Fn(u64) -> Result<()>) -> Self {
        Walker {
            file,
            watch,
            fetch: file.format.header_max(),
            stream_below: STREAM_BELOW.max(file.source.access().hop),
            announcer: Announcer::of(file.source),
            until: file.size,
            buffer: Vec::new(),
            buffer_start: 0,
        }
    }

    /// Return the place at `at`, if there is one.
    pub fn place(&mut self, at: u64) -> Result<Option<Place>> {
        Ok(match self.parse_at(at)? {
            Found::Header(header) => Some(Place { at, header }),
            _ => None,
        })
    }

    /// Find the first place at or after `from` and before `until`.
    pub fn find(&mut self, from: u64, until: u64) -> Result<Option<Place>> {
        let format = self.file.format;
        let mut at = from;
        self.until = until;
        while at < until {
            let bytes = self.bytes(at, format.header_max(), BUFFER)?;
            let is_magic = |word: &[u8]| format.magics().iter().any(|magic| word == magic);
            match bytes.windows(4).position(is_magic) {
                Some(skip) => {
                    at += skip as u64;
                    if at < until
                        && let Some(place) = self.place(at)?
                    {
                        return Ok(Some(place));
                    }
                    at += 1;
                }
                None if bytes.len() < 4 => return Ok(None),
                None => at += bytes.len() as u64 - 3,
            }
        }
        Ok(None)
    }

    /// Walk from `place` to the first place at or after `until`. Add a frame to `chain` if it ends
    /// at another place, or at the end of the file.
    pub fn walk(&mut self, mut place: Place, until: u64, chain: &mut Chain) -> Result<Stop> {
        self.until = until;
        while place.at < until {
            match self.end(place) {
                Some(end) if end == self.file.size => {
                    chain.push(place);
                    return Ok(Stop::End);
                }
                Some(end) => match self.place(end)? {
                    Some(next) => {
                        chain.push(place);
                        place = next;
                    }
                    None => return Ok(Stop::Lost(place)),
                },
                None => return Ok(Stop::Lost(place)),
            }
        }
        Ok(Stop::Reached(place))
    }

    /// Classify the frame at `place`, which does not end at another place, and the bytes after it.
    /// Add both to `chain`.
    ///
    /// If there is a place within the frame, the stated size is wrong, and the frame ends at this
    /// place. Otherwise the frame has its stated size, and the bytes from its end to the next place
    /// become a separate entry, so that they are neither lost nor taken for a frame. If these bytes
    /// are too few for a frame, they were inserted, perhaps within this frame. They are then added
    /// to the frame, so that its size differs from the stated one.
    pub fn resync(&mut self, place: Place, chain: &mut Chain) -> Result<Resync> {
        let next = self.find(place.at + 1, self.file.size)?;
        let Some(end) = self.end(place) else {
            if next.is_some() {
                chain.push(place);
                return Ok(Resync::Damaged(next));
            }
            return Ok(Resync::Cut {
                at: place.at,
                stated: Some(place.header.size),
            });
        };
        chain.push(place);
        if next.is_none() && matches!(self.parse_at(end)?, Found::Beginning) {
            return Ok(Resync::Cut {
                at: end,
                stated: None,
            });
        }
        if next.is_none_or(|next| next.at > end) && !self.is_inserted(end, next)? {
            chain.push_unknown(end);
        }
        Ok(Resync::Damaged(next))
    }

    /// True if the bytes from `end` to the next place are too few for a frame, and do not begin
    /// like a frame with another number of atoms.
    fn is_inserted(&mut self, end: u64, next: Option<Place>) -> Result<bool> {
        let Trajectory {
            format, n_atoms, ..
        } = self.file;
        if next.is_none_or(|next| next.at - end >= format.frame_min(n_atoms)) {
            return Ok(false);
        }
        let bytes = self.bytes(end, 4, 0)?;
        Ok(!format.magics().iter().any(|magic| bytes.starts_with(magic)))
    }

    /// Return the stated end of the frame at `place`, unless it is beyond the end of the file.
    fn end(&self, place: Place) -> Option<u64> {
        let end = place.at.checked_add(place.header.size)?;
        (end <= self.file.size).then_some(end)
    }

    fn parse_at(&mut self, at: u64) -> Result<Found> {
        let Trajectory {
            format, n_atoms, ..
        } = self.file;
        let bytes = self.bytes(at, format.header_max(), self.fetch)?;
        let found = match format.header(bytes) {
            Ok(header) if header.n_atoms == n_atoms && header.size > 0 => Found::Header(header),
            Err(Fault::Short { .. }) if bytes.len() < format.header_max() => {
                let word = &bytes[..bytes.len().min(4)];
                match format.magics().iter().any(|magic| magic.starts_with(word)) {
                    true => Found::Beginning,
                    false => Found::Nothing,
                }
            }
            _ => Found::Nothing,
        };
        if let Found::Header(header) = &found {
            self.fetch = match header.size < self.stream_below {
                true => BUFFER,
                false => format.header_max(),
            };
        }
        Ok(found)
    }

    /// Return the bytes from `at` on: at least `want` bytes, or all bytes up to the end of the
    /// file. Bytes that are not in memory are read, `fetch` bytes at a time.
    fn bytes(&mut self, at: u64, want: usize, fetch: usize) -> Result<&[u8]> {
        let left = self.file.size.saturating_sub(at);
        let clamp = |len: usize| usize::try_from(left).map_or(len, |left| len.min(left));
        let buffered = at
            .checked_sub(self.buffer_start)
            .and_then(|skip| self.buffer.get(usize::try_from(skip).ok()?..))
            .is_some_and(|bytes| bytes.len() >= clamp(want));
        if !buffered {
            (self.watch)(at)?;
            self.buffer.resize(clamp(fetch.max(want)), 0);
            self.buffer_start = at;
            if self.announcer.is_needed() {
                // An object store measures the cost of its requests, so `hop` may have changed.
                self.stream_below = STREAM_BELOW.max(self.file.source.access().hop);
                if fetch == BUFFER {
                    let until = self.until.max(at + BUFFER as u64).min(self.file.size);
                    self.announcer.reads(self.file.source, at, until);
                }
            }
            let read = self.file.source.read_at(at, &mut self.buffer);
            if read.is_err() {
                self.buffer.clear();
            }
            read?;
        }
        Ok(&self.buffer[(at - self.buffer_start) as usize..])
    }
}

// Interface of formats in which each frame begins with a header that states the frame size.

/// Header of a frame: its size, and further content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameHeader {
    /// Size of the whole frame including its header, bytes.
    pub size: u64,
    pub n_atoms: usize,
    pub step: i64,
    /// Time, ps.
    pub time: f64,
}

pub trait Framed: Sync {
    /// Return the maximum size of a header, bytes.
    fn header_max(&self) -> usize;

    /// Return the approximate minimum size of a frame that contains data of its atoms, bytes.
    fn frame_min(&self, n_atoms: usize) -> u64;

    /// Return the values that the first four bytes of a frame may have.
    fn magics(&self) -> &[[u8; 4]];

    /// Parse the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Fault::Short`] only if `bytes` is the beginning of a possibly valid header.
    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault>;
}

// Scan of a file for its frames, from header to header, with several threads.

/// Minimum size of a segment: in bytes, and in units of the first frame. To find the first place in
/// a segment, half a frame is read on average. This is a small fraction of a segment of this size.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENT_FRAMES: u64 = 64;
/// Maximum number of segments of a file. It limits the memory, because a server can state any size
/// of a file.
const MOST_SEGMENTS: u64 = 1 << 16;
/// The threads stop after they failed to read this number of segments.
const MOST_FAILED: usize = 2;

/// Frames of a file, starting at a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scan {
    pub chain: Chain,
    /// Numbers of the entries of `chain` that are not complete frames.
    pub damaged: Vec<u64>,
    /// End of the last entry. It is below the size of the file if a truncated frame follows.
    pub end: u64,
    /// Size that the truncated frame states in its header. `None` if no frame is truncated, if the
    /// header of the truncated frame is incomplete, or in text formats.
    pub cut: Option<u64>,
}

/// Scan to the end of the file, from `place`, where a frame must begin.
///
/// # Errors
/// [`Error::Interrupted`] if `progress` requests it, and errors of the source. Damage is not an
/// error: see [`Scan::damaged`].
pub fn scan(
    file: Trajectory<'_>,
    place: Place,
    n_threads: usize,
    progress: &Progress<'_>,
) -> Result<Scan> {
    let frames = place.header.size.saturating_mul(SEGMENT_FRAMES);
    let len = frames.max(SEGMENT_BYTES).max(file.size / MOST_SEGMENTS);
    scan_in_segments(file, place, len, n_threads, progress)
}

pub(super) fn scan_in_segments(
    file: Trajectory<'_>,
    mut place: Place,
    segment: u64,
    n_threads: usize,
    progress: &Progress<'_>,
) -> Result<Scan> {
    let watch = ScanProgress::new(progress, file.size);
    let mut segments = Segments::walk(file, place.at, segment, n_threads, &watch)?;
    let reached = |at| watch.reached(at);
    let mut walker = Walker::new(file, &reached);
    let mut scan = Scan {
        end: file.size,
        ..Scan::default()
    };
    loop {
        let lost = match segments.follow(&mut walker, place, &mut scan.chain)? {
            Stop::Reached(next) => {
                place = next;
                continue;
            }
            Stop::End => return Ok(scan),
            Stop::Lost(lost) => lost,
        };
        match walker.resync(lost, &mut scan.chain)? {
            Resync::Damaged(next) => {
                scan.damaged.push(scan.chain.starts.len() as u64 - 1);
                match next {
                    Some(next) => place = next,
                    None => return Ok(scan),
                }
            }
            Resync::Cut { at, stated } => {
                scan.end = at;
                scan.cut = stated;
                return Ok(scan);
            }
        }
    }
}

// Chains of headers that several threads find in segments of a file.
//
// In each segment, a thread finds the first place (see [`Walker`]), and follows the chain of
// headers from there. Numbers inside a frame can look like a header. Therefore a chain is used only
// from the place where the walk from the beginning of the file meets it.

/// Division of a part of a file into segments of `len` bytes; the last may be shorter.
#[derive(Debug, Clone, Copy)]
struct Cuts {
    start: u64,
    end: u64,
    len: u64,
}

impl Cuts {
    fn count(&self) -> usize {
        (self.end - self.start).div_ceil(self.len) as usize
    }

    /// Return the number of the segment that contains the offset `at`.
    fn number(&self, at: u64) -> usize {
        ((at - self.start) / self.len) as usize
    }

    fn bounds(&self, number: usize) -> (u64, u64) {
        let from = self.start + number as u64 * self.len;
        (from, from.saturating_add(self.len).min(self.end))
    }
}

/// Frames of a segment, from its first place on.
#[derive(Debug, Clone)]
struct FoundChain {
    chain: Chain,
    stop: Stop,
}

#[derive(Debug)]
pub struct Segments {
    cuts: Cuts,
    /// Chain of each segment. `None` if no place was found, a read failed, the threads stopped
    /// before they reached the segment, or the chain was already used. After a failed read, the
    /// walk that needs these bytes reports the error.
    found: Vec<Option<FoundChain>>,
}

impl Segments {
    /// Divide the bytes from `start` to the end of the file into segments of `len` bytes. If there
    /// are several, find the chain of each segment.
    pub fn walk(
        file: Trajectory<'_>,
        start: u64,
        len: u64,
        n_threads: usize,
        watch: &ScanProgress<'_>,
    ) -> Result<Self> {
        let cuts = Cuts {
            start,
            end: file.size,
            len,
        };
        let mut found = vec![None; cuts.count()];
        if found.len() > 1 {
            walk_on_threads(file, cuts, n_threads, watch, &mut found)?;
        }
        Ok(Segments { cuts, found })
    }

    /// Continue from `place`. If the chain of its segment contains the place, append the rest of
    /// this chain. Otherwise walk through the file.
    pub fn follow(
        &mut self,
        walker: &mut Walker<'_>,
        place: Place,
        chain: &mut Chain,
    ) -> Result<Stop> {
        let number = self.cuts.number(place.at);
        let Some(found) = &self.found[number] else {
            return walker.walk(place, self.cuts.bounds(number).1, chain);
        };
        match found.chain.starts.binary_search(&place.at) {
            Ok(first) => {
                let stop = found.stop;
                chain.extend(&found.chain, first);
                self.found[number] = None;
                Ok(stop)
            }
            // Only one frame is walked, since the next frame may be in the chain of the segment.
            Err(_) => walker.walk(place, place.at + 1, chain),
        }
    }
}

fn walk_on_threads(
    file: Trajectory<'_>,
    cuts: Cuts,
    n_threads: usize,
    watch: &ScanProgress<'_>,
    found: &mut [Option<FoundChain>],
) -> Result<()> {
    let (next, n_failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cancelled = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..n_threads.clamp(1, found.len()) {
            let sender = sender.clone();
            let work = || work(file, cuts, &next, &n_failed, &cancelled, sender);
            // If a thread cannot start, the scan only takes longer.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        drop(sender);
        let mut done = cuts.start;
        loop {
            match receiver.recv_timeout(PAUSE) {
                Ok((number, segment)) => {
                    found[number] = segment;
                    done += cuts.len;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let cancel = |_: &Error| cancelled.store(true, Ordering::Relaxed);
            watch.reached(done).inspect_err(cancel)?;
        }
    })
}

/// Work of one thread: process segments until none is left, or the work is cancelled.
fn work(
    file: Trajectory<'_>,
    cuts: Cuts,
    next: &AtomicUsize,
    n_failed: &AtomicUsize,
    cancelled: &AtomicBool,
    sender: mpsc::Sender<(usize, Option<FoundChain>)>,
) {
    let watch = |_| match cancelled.load(Ordering::Relaxed) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    };
    let mut walker = Walker::new(file, &watch);
    while !cancelled.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= cuts.count() {
            return;
        }
        let found = walk_segment(&mut walker, cuts.bounds(number));
        // The error is not reported here: the walk from the beginning of the file reports the error
        // of the first bytes that it cannot read.
        if found.is_err() && n_failed.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILED {
            cancelled.store(true, Ordering::Relaxed);
        }
        if sender.send((number, found.ok().flatten())).is_err() {
            return;
        }
    }
}

fn walk_segment(walker: &mut Walker<'_>, (from, until): (u64, u64)) -> Result<Option<FoundChain>> {
    let Some(place) = walker.find(from, until)? else {
        return Ok(None);
    };
    let mut chain = Chain::default();
    let stop = walker.walk(place, until, &mut chain)?;
    Ok(Some(FoundChain { chain, stop }))
}
