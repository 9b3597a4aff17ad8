//! Finds the frames of a HISTORY whose lines have no fixed lengths, line by line.

use super::scan::Scan;
use super::walk::Chain;
use super::watch::Watch;
use crate::dlpoly::{FrameLines, Layout, MAX_LINE, TIMESTEP, is_blank};
use crate::error::Result;
use crate::source::Source;

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 20;

/// Meet every line from `from` on that is not blank, with its offset. One longer than any that
/// DL_POLY knows is met without its text. Where the last line has no line feed it is not met, and
/// its offset returned.
///
/// # Errors
/// What `watch` and the source give.
pub fn each_line(
    source: &dyn Source,
    from: u64,
    size: u64,
    watch: &Watch<'_>,
    mut meet: impl FnMut(u64, &[u8]),
) -> Result<Option<u64>> {
    let mut buffer = vec![0; BUFFER];
    // The line that goes on where the buffer ends: its offset, and bytes at the buffer's front.
    let (mut line_at, mut held, mut too_long) = (from, 0, false);
    let mut at = from;
    while at < size {
        watch.reached(at)?;
        let n = (size - at).min((buffer.len() - held) as u64) as usize;
        source.read_at(at, &mut buffer[held..held + n])?;
        let bytes = &buffer[..held + n];
        let (front, mut start) = (at - held as u64, 0);
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = &bytes[start..end];
            if too_long {
                meet(line_at, &[]);
            } else if !is_blank(line) {
                meet(line_at, line);
            }
            (start, too_long) = (end + 1, false);
            line_at = front + start as u64;
        }
        let rest = start..bytes.len();
        at += n as u64;
        held = rest.len();
        if too_long || held > MAX_LINE {
            (held, too_long) = (0, true);
        } else {
            buffer.copy_within(rest, 0);
        }
    }
    let unfinished = too_long || !is_blank(&buffer[..held]);
    Ok(unfinished.then_some(line_at))
}

/// The frames of a file from `from` on, where one begins.
///
/// A frame ends where the next one begins, or with the file. It is damaged where it does not have
/// as many lines as its beginning tells; the last one is cut then, if it has fewer.
///
/// # Errors
/// What `watch` and the source give.
pub fn scan(
    source: &dyn Source,
    layout: &Layout,
    from: u64,
    size: u64,
    watch: &Watch<'_>,
) -> Result<Scan> {
    let mut frames = Frames::of(layout);
    let unfinished = each_line(source, from, size, watch, |at, line| {
        match (line.starts_with(TIMESTEP), &mut frames.last) {
            // Blank lines before the first frame belong to it.
            (true, None) => frames.begin(from, line),
            (true, Some(_)) => frames.begin(at, line),
            (false, Some(last)) => last.add(line),
            (false, None) => {}
        }
    })?;
    Ok(frames.finish(unfinished, size))
}

/// Neighbouring frames among the `bytes` in the middle of a file, and where the last of them ends;
/// nothing where the first one there is damaged, or none is whole.
///
/// # Errors
/// What `watch` and the source give.
pub fn sample(
    source: &dyn Source,
    layout: &Layout,
    bytes: u64,
    size: u64,
    watch: &Watch<'_>,
) -> Result<Option<(Chain, u64)>> {
    let from = (size - bytes) / 2;
    let mut frames = Frames::of(layout);
    let unfinished = each_line(source, from, from + bytes, watch, |at, line| {
        match (line.starts_with(TIMESTEP), &mut frames.last) {
            // What is met first is hardly ever a whole line.
            (true, _) if at > from => frames.begin(at, line),
            (false, Some(last)) => last.add(line),
            _ => {}
        }
    })?;
    let mut scan = frames.finish(unfinished, from + bytes);
    if let Some(&damaged) = scan.damaged.first() {
        while scan.chain.starts.len() as u64 > damaged {
            scan.end = scan.chain.pop().unwrap_or(scan.end);
        }
    }
    Ok((!scan.chain.starts.is_empty()).then_some((scan.chain, scan.end)))
}

/// The frames met so far.
struct Frames<'a> {
    layout: &'a Layout,
    scan: Scan,
    /// The lines of the last one.
    last: Option<FrameLines>,
}

impl<'a> Frames<'a> {
    fn of(layout: &'a Layout) -> Self {
        Frames {
            layout,
            scan: Scan::default(),
            last: None,
        }
    }

    fn begin(&mut self, at: u64, line: &[u8]) {
        self.judge_last();
        let frame = FrameLines::begin(self.layout, line);
        let (time, step) = frame.moment().unwrap_or((f64::NAN, 0));
        self.scan.chain.starts.push(at);
        self.scan.chain.times.push(time);
        self.scan.chain.steps.push(step);
        self.last = Some(frame);
    }

    fn judge_last(&mut self) {
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.missing() != Some(0))
        {
            let number = self.scan.chain.starts.len() - 1;
            self.scan.damaged.push(number as u64);
        }
    }

    /// The last line may be `unfinished`: it belongs to the last frame where that misses lines.
    fn finish(mut self, unfinished: Option<u64>, size: u64) -> Scan {
        let missing = self.last.as_ref().and_then(FrameLines::missing);
        self.scan.end = unfinished.unwrap_or(size);
        if missing.is_some_and(|lines| lines > 0) {
            self.scan.end = self.scan.chain.pop().unwrap_or(size);
        } else {
            self.judge_last();
        }
        self.scan
    }
}
