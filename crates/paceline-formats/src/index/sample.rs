//! Some frames from the middle of a file that is too long to be scanned for a first look.

use super::walk::{Chain, Stop, Trajectory, Walker};
use super::watch::Watch;
use crate::error::Result;

/// Frames that a sample has room for, however large they are.
const SAMPLE_FRAMES: u64 = 32;
/// A file of no more than so many samples is scanned as a whole.
const SAMPLES_IN_A_LONG_FILE: u64 = 8;

/// Bytes of a sample of about `bytes`, whose frames have about `frame` bytes; nothing where the
/// file, of `size` bytes, is short enough to be scanned.
pub fn room(size: u64, bytes: u64, frame: u64) -> Option<u64> {
    let room = frame.saturating_mul(SAMPLE_FRAMES).max(bytes);
    (room.saturating_mul(SAMPLES_IN_A_LONG_FILE) < size).then_some(room)
}

/// Neighbouring frames among the `bytes` in the middle of the file, and where the last of them
/// ends; nothing where there are none.
///
/// What looks like a header can be a part of a frame: only frames that end at another header
/// count.
///
/// # Errors
/// What `watch` and the source give.
pub fn sample(file: Trajectory<'_>, bytes: u64, watch: &Watch<'_>) -> Result<Option<(Chain, u64)>> {
    let reached = |at| watch.reached(at);
    let mut walker = Walker::new(file, &reached);
    let mut from = (file.size - bytes) / 2;
    let until = from + bytes;
    while let Some(place) = walker.find(from, until)? {
        let mut chain = Chain::default();
        let end = match walker.walk(place, until, &mut chain)? {
            Stop::Reached(next) | Stop::Lost(next) => next.at,
            Stop::End => file.size,
        };
        if !chain.starts.is_empty() {
            return Ok(Some((chain, end)));
        }
        from = place.at + 1;
    }
    Ok(None)
}
