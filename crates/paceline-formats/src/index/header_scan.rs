//! Follows a chain of frame headers through a file, and finds the chain again behind damage.
//!
//! A *place* is an offset that holds a valid header of the right number of atoms. From a place
//! the walk goes to where the frame says it ends. All that is decided there depends on the place
//! and the file alone, not on how the walk came to it: so walks that meet at one place are one
//! walk from there on, and a file's index does not depend on how many threads scanned it.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Fault, Result};
use crate::format::Progress;
use crate::source::Source;

/// Time between two reports.
const PAUSE: Duration = Duration::from_millis(100);

/// Reports how far a scan has come, and stops it where the caller asks.
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

    /// The scan has come to the offset `at`, or was further already.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where the caller asks to stop.
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

/// An offset that holds a valid header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    pub at: u64,
    pub header: FrameHeader,
}

/// Frames in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    pub starts: Vec<u64>,
    pub times: Vec<f64>,
    pub steps: Vec<i64>,
    /// Atoms of each frame, 0 where that is not known; none in formats where the number is fixed.
    pub atom_counts: Vec<u32>,
}

impl Chain {
    fn push(&mut self, place: Place) {
        self.starts.push(place.at);
        self.times.push(place.header.time);
        self.steps.push(place.header.step);
    }

    /// Take off the last frame; where it starts.
    pub fn pop(&mut self) -> Option<u64> {
        self.times.pop();
        self.steps.pop();
        self.atom_counts.pop();
        self.starts.pop()
    }

    /// An entry for bytes that hold no header: its time is not known.
    pub fn push_unknown(&mut self, at: u64) {
        self.starts.push(at);
        self.times.push(f64::NAN);
        self.steps.push(0);
    }

    /// Take over the frames of `other` from number `first` on.
    pub fn extend(&mut self, other: &Chain, first: usize) {
        self.starts.extend_from_slice(&other.starts[first..]);
        self.times.extend_from_slice(&other.times[first..]);
        self.steps.extend_from_slice(&other.steps[first..]);
        let counts = other.atom_counts.get(first..);
        self.atom_counts.extend(counts.unwrap_or_default());
    }
}

/// Why a walk came to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// It reached this place, which lies behind its stretch.
    Reached(Place),
    /// The last frame ends where the file ends.
    End,
    /// The frame at this place does not end at another place.
    Lost(Place),
}

/// Outcome of a search from a frame that did not end at another place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resync {
    /// The last entry of the chain is damaged. It ends at this place, or with the file.
    Damaged(Option<Place>),
    /// The file ends within the frame at `at`, which has `stated` bytes where its header is whole.
    Cut { at: u64, stated: Option<u64> },
}

/// Content found at an offset.
enum Found {
    Header(FrameHeader),
    /// The beginning of a header, at the end of the file.
    Beginning,
    Nothing,
}

/// Frames shorter than this are read in whole buffers, longer ones header by header. From the page
/// cache whole buffers took 0.8 of the time for frames of 13 kB and 13 times as long for frames
/// of 165 kB; from a disk it made no difference for the former.
const STREAM_BELOW: u64 = 64 << 10;
const BUFFER: usize = 1 << 20;

/// The file that is scanned.
#[derive(Clone, Copy)]
pub struct Trajectory<'a> {
    pub source: &'a dyn Source,
    pub format: &'a dyn Framed,
    pub n_atoms: usize,
    /// Bytes of the file when it was opened: what is written later is left alone.
    pub size: u64,
}

pub struct Walker<'a> {
    file: Trajectory<'a>,
    /// Called with the offset before each read; its error ends the walk.
    watch: &'a dyn Fn(u64) -> Result<()>,
    /// Bytes to fetch for the next header.
    fetch: usize,
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl<'a> Walker<'a> {
    pub fn new(file: Trajectory<'a>, watch: &'a dyn Fn(u64) -> Result<()>) -> Self {
        Walker {
            file,
            watch,
            fetch: file.format.header_max(),
            buffer: Vec::new(),
            buffer_start: 0,
        }
    }

    /// The place at `at`, if there is one.
    pub fn place(&mut self, at: u64) -> Result<Option<Place>> {
        Ok(match self.look(at)? {
            Found::Header(header) => Some(Place { at, header }),
            _ => None,
        })
    }

    /// The first place from `from` on and before `until`.
    pub fn find(&mut self, from: u64, until: u64) -> Result<Option<Place>> {
        let format = self.file.format;
        let mut at = from;
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

    /// Walk from `place` to the first place at or behind `until`, adding each frame that ends at
    /// another place, or with the file, to `chain`.
    pub fn walk(&mut self, mut place: Place, until: u64, chain: &mut Chain) -> Result<Stop> {
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

    /// Decide what the frame at `place`, which does not end at another place, and the bytes
    /// behind it are, and add them to `chain`.
    ///
    /// A place within the frame shows that the frame's size is wrong: the frame ends there.
    /// Otherwise the frame keeps its size, and the bytes from its end to the next place become an
    /// entry of their own, so that they are neither lost nor taken for a frame. But where they are
    /// too few for a frame, they were inserted, maybe within this one: it gets them, and its size
    /// is wrong then.
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
        if next.is_none() && matches!(self.look(end)?, Found::Beginning) {
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

    /// True if the bytes from `end` to the next place are too few for a frame, and do not begin as
    /// one of another number of atoms.
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

    /// Return where the frame at `place` says it ends, unless that is behind the end of the file.
    fn end(&self, place: Place) -> Option<u64> {
        let end = place.at.checked_add(place.header.size)?;
        (end <= self.file.size).then_some(end)
    }

    fn look(&mut self, at: u64) -> Result<Found> {
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
            self.fetch = match header.size < STREAM_BELOW {
                true => BUFFER,
                false => format.header_max(),
            };
        }
        Ok(found)
    }

    /// The bytes from `at` on: at least `want` of them, or all up to the end of the file. Where
    /// they are not in memory, `fetch` bytes are read.
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
            let read = self.file.source.read_at(at, &mut self.buffer);
            if read.is_err() {
                self.buffer.clear();
            }
            read?;
        }
        Ok(&self.buffer[(at - self.buffer_start) as usize..])
    }
}

// Formats whose frames each begin with a header that states the frame's size.

/// Content of a frame's header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameHeader {
    /// Bytes of the whole frame, its header among them.
    pub size: u64,
    pub n_atoms: usize,
    pub step: i64,
    /// Time, ps.
    pub time: f64,
}

pub trait Framed: Sync {
    /// Bytes within which every header ends.
    fn header_max(&self) -> usize;

    /// Bytes that the shortest frame of so many atoms has, about, if it holds anything of them.
    fn frame_min(&self, n_atoms: usize) -> u64;

    /// Return the values that the first four bytes of a frame may have.
    fn magics(&self) -> &[[u8; 4]];

    /// Parse the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Fault::Short`] only where `bytes` is the beginning of a header that may be valid.
    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault>;
}

// Scans a file for its frames: a walk from header to header, helped by several threads.

/// A segment has at least so many bytes, and so many times the bytes of the first frame: looking
/// for a segment's first place reads half a frame, which is then little beside the rest.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENT_FRAMES: u64 = 64;

/// The frames of a file from some place on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scan {
    pub chain: Chain,
    /// Numbers of the entries of `chain` that are no whole frames.
    pub damaged: Vec<u64>,
    /// End of the last entry. Less than the size of the file where a cut frame follows.
    pub end: u64,
    /// Bytes that the cut frame would have, where its header is whole.
    pub cut: Option<u64>,
}

/// Scan from `place`, which is known to hold a frame, to the end of the file.
///
/// # Errors
/// [`Error::Interrupted`] where `progress` asks for it, and
/// what the source's reads give. Damage is no error here: see [`Scan::damaged`].
pub fn scan(
    file: Trajectory<'_>,
    place: Place,
    n_threads: usize,
    progress: &Progress<'_>,
) -> Result<Scan> {
    let frames = place.header.size.saturating_mul(SEGMENT_FRAMES);
    scan_in_segments(file, place, frames.max(SEGMENT_BYTES), n_threads, progress)
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

// Chains of headers that several threads found in segments of a file.
//
// In each segment a thread looks for the first place (see [`Walker`]) and follows the
// chain of headers from there. What looks like a header can be a part of a frame, so nothing of
// a chain counts until the walk from the file's beginning lands on it; from there on it does.

/// Equal segments of a stretch of a file; the last may be shorter.
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

    /// Number of the segment that holds the offset `at`.
    fn number(&self, at: u64) -> usize {
        ((at - self.start) / self.len) as usize
    }

    fn bounds(&self, number: usize) -> (u64, u64) {
        let from = self.start + number as u64 * self.len;
        (from, from.saturating_add(self.len).min(self.end))
    }
}

/// A segment's frames, from its first place on.
#[derive(Debug, Clone)]
struct FoundChain {
    chain: Chain,
    stop: Stop,
}

#[derive(Debug)]
pub struct Segments {
    cuts: Cuts,
    /// Nothing where no place was found, a read failed, or the chain was taken over. A failed
    /// read is for the walk that needs those bytes to report.
    found: Vec<Option<FoundChain>>,
}

impl Segments {
    /// Cut the bytes from `start` to the end of the file into segments of `len` bytes and follow
    /// the chain of each, where there are several.
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

    /// Go on from `place`: over the segment's chain where it holds the place, else step by step.
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
            // The next frame may be one of the segment's chain.
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
    let next = AtomicUsize::new(0);
    let cancelled = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..n_threads.clamp(1, found.len()) {
            let sender = sender.clone();
            let work = || work(file, cuts, &next, &cancelled, sender);
            // A thread that cannot be had costs time and nothing else.
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

/// One thread's work: the next segment, as long as there is one.
fn work(
    file: Trajectory<'_>,
    cuts: Cuts,
    next: &AtomicUsize,
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
