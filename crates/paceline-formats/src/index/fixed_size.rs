//! Index of a file whose frames have equal sizes, so that their offsets can be computed.

use crate::error::{Error, Fault, Result};
use crate::format_interface::Frames;
use crate::source::{Access, Source};

/// Number of bytes that are read first; most headers are shorter.
const HEAD: u64 = 4096;

/// Maximum number of bytes that one call reads if it reads several short frames at once.
const CHUNK: u64 = 1024 * 1024;

/// Parse the header of `source`, a file of `size` bytes. `parse` receives the first bytes of the
/// file and `size`. As long as it requests more bytes, they are read, and it is called again.
pub fn read_head<T>(
    source: &dyn Source,
    size: u64,
    parse: impl Fn(&[u8], u64) -> std::result::Result<T, Fault>,
) -> Result<T> {
    let mut head = Vec::new();
    let mut needed = size.min(HEAD);
    loop {
        // The loop ends, because each request is for more bytes than the one before, and at most
        // for the whole file.
        head.resize(needed as usize, 0);
        source.read_at(0, &mut head)?;
        match parse(&head, size) {
            Ok(parsed) => return Ok(parsed),
            Err(Fault::Short { needed: more }) if more > head.len() && more as u64 <= size => {
                // The size is doubled, so that a long header is not parsed again for each of its
                // entries.
                needed = (more as u64).max(2 * needed).min(size);
            }
            Err(fault) => return Err(Error::damaged(source.path(), None, 0, needed, fault)),
        }
    }
}

/// Return the complete frames of a file of `size` bytes, and the number of bytes after them. The
/// first frame begins at `first` and has `first_size` bytes; each other frame has `stride` bytes.
pub fn count(size: u64, first: u64, first_size: u64, stride: u64) -> (Frames, u64) {
    let (mut n, mut rest) = (0, size.saturating_sub(first));
    if rest >= first_size {
        n = 1 + (rest - first_size) / stride;
        rest = (rest - first_size) % stride;
    }
    let frames = Frames::Regular {
        first,
        first_size,
        stride,
        n,
    };
    (frames, rest)
}

/// Return the note on a wrong number of frames in the header; `None` if the number is right.
pub fn frame_count_note(n: u64, claimed: i64) -> Option<String> {
    let note = format!("the header says {claimed} frames, the file has {n}");
    (i64::try_from(n) != Ok(claimed)).then_some(note)
}

/// Return the note on bytes after the last complete frame; `None` if there are none.
pub fn cut(n: u64, size: u64, rest: u64, stride: u64) -> Option<String> {
    (rest > 0).then(|| super::cut_warning(n, size - rest, rest, Some(stride)))
}

/// Read `width` bytes of each of `n` frames, and pass them to `use_bytes`. Those of the first frame
/// begin at `start`, and those of each further frame `step` bytes after those of the frame before.
/// If `step` is small, one call reads the bytes of several frames.
pub fn read_each(
    source: &dyn Source,
    start: u64,
    width: u64,
    step: u64,
    n: u64,
    mut use_bytes: impl FnMut(&[u8]),
) -> Result<()> {
    let Access { gap, ahead, .. } = source.access();
    let at_once = match step <= gap {
        true => (CHUNK / step).max(1),
        false => 1,
    };
    let mut bytes = Vec::new();
    for first in (0..n).step_by(at_once as usize) {
        let last = (first + at_once).min(n) - 1;
        if ahead > 0 {
            announce(source, start + first * step, width, step, n - first);
        }
        bytes.resize(((last - first) * step + width) as usize, 0);
        source.read_at(start + first * step, &mut bytes)?;
        for frame in first..=last {
            let at = ((frame - first) * step) as usize;
            use_bytes(&bytes[at..at + width as usize]);
        }
    }
    Ok(())
}

/// Announce to an object store that `width` bytes of each of the next `n` frames will be read.
fn announce(source: &dyn Source, start: u64, width: u64, step: u64, n: u64) {
    let Access { gap, ahead, .. } = source.access();
    if step <= gap {
        source.will_need(start, ahead.min((n - 1) * step + width));
        return;
    }
    /// Number of frames that are requested ahead, with one request for each frame.
    const FRAMES_AHEAD: u64 = 64;
    for frame in 0..n.min(FRAMES_AHEAD) {
        source.will_need(start + frame * step, width);
    }
}
