//! Scans a file for its frames: a walk from header to header, helped by several threads.

use super::segments::Segments;
use super::walk::{Chain, Place, Resync, Stop, Trajectory, Walker};
use super::watch::{Progress, Watch};
use crate::error::Result;

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
/// [`Error::Interrupted`](crate::error::Error::Interrupted) where `progress` asks for it, and
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
    let watch = Watch::new(progress, file.size);
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
