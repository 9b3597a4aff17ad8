//! Chains of headers that several threads found in segments of a file.
//!
//! In each segment a thread looks for the first place (see [`walk`](super::walk)) and follows the
//! chain of headers from there. What looks like a header can be a part of a frame, so nothing of
//! a chain counts until the walk from the file's beginning lands on it; from there on it does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use super::walk::{Chain, Place, Stop, Trajectory, Walker};
use super::watch::{PAUSE, Watch};
use crate::error::{Error, Result};

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
struct Found {
    chain: Chain,
    stop: Stop,
}

#[derive(Debug)]
pub struct Segments {
    cuts: Cuts,
    /// Nothing where no place was found, a read failed, or the chain was taken over. A failed
    /// read is for the walk that needs those bytes to report.
    found: Vec<Option<Found>>,
}

impl Segments {
    /// Cut the bytes from `start` to the end of the file into segments of `len` bytes and follow
    /// the chain of each, where there are several.
    pub fn walk(
        file: Trajectory<'_>,
        start: u64,
        len: u64,
        n_threads: usize,
        watch: &Watch<'_>,
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
    watch: &Watch<'_>,
    found: &mut [Option<Found>],
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
    sender: mpsc::Sender<(usize, Option<Found>)>,
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

fn walk_segment(walker: &mut Walker<'_>, (from, until): (u64, u64)) -> Result<Option<Found>> {
    let Some(place) = walker.find(from, until)? else {
        return Ok(None);
    };
    let mut chain = Chain::default();
    let stop = walker.walk(place, until, &mut chain)?;
    Ok(Some(Found { chain, stop }))
}
