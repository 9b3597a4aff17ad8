//! Scan of a text file for its frames, line by line, for lines of any length.

use std::ops::Range;

use super::header_scan::{Chain, Scan, ScanProgress};
use super::scanned::Scanner;
use crate::error::Result;
use crate::source::{Announcer, Source};
use crate::text_lines::is_blank;

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 20;

/// Lines of one frame during a scan, without blank lines.
pub trait LineFrame: Sized {
    type Layout;

    /// Maximum length of a line whose content is examined, bytes.
    const MAX_LINE: usize;

    /// Return true if this line begins a new frame after the frame `last`.
    fn begins(last: Option<&Self>, line: &[u8]) -> bool;

    fn begin(layout: &Self::Layout, line: &[u8]) -> Self;

    fn add(&mut self, line: &[u8]);

    /// Return time (ps) and step, if known.
    fn moment(&self) -> Option<(f64, i64)>;

    /// Return the number of atoms of the frame, if it is known and may vary.
    fn n_atoms(&self) -> Option<u32> {
        None
    }

    /// Return true if a last line of the file without a line feed is the complete last line of the
    /// frame.
    fn ends_with(&self, _line: &[u8]) -> bool {
        false
    }

    /// Return the number of missing lines of the frame, or 1 if the frame ends before this number
    /// is known. It is negative for excess lines, and `None` if the lines are not a frame.
    fn missing(&self) -> Option<i64>;
}

/// Scans a file in which frames consist of lines.
pub struct LineScanner<'a, F: LineFrame> {
    pub source: &'a dyn Source,
    pub layout: &'a F::Layout,
    /// Offset of the first frame.
    pub start: u64,
    pub size: u64,
    /// Approximate size of a frame, bytes.
    pub frame_size: u64,
    pub watch: ScanProgress<'a>,
}

impl<F: LineFrame> Scanner for LineScanner<'_, F> {
    fn scan(&self, source: &dyn Source, end: Option<u64>) -> Result<Option<Scan>> {
        let from = end.unwrap_or(self.start);
        scan_lines::<F>(source, self.layout, from, self.size, &self.watch).map(Some)
    }

    fn frame_size(&self) -> u64 {
        self.frame_size
    }

    /// Find the frames before the first damaged one in `bytes` bytes in the middle of the file.
    fn sample(&self, bytes: u64) -> Result<Option<(Chain, u64)>> {
        let from = (self.size - bytes) / 2;
        let mut frames = LineFrames::<F>::of(self.layout);
        let range = from..from + bytes;
        let unfinished = each_line(self.source, range, F::MAX_LINE, &self.watch, |at, line| {
            match (F::begins(frames.last.as_ref(), line), &mut frames.last) {
                // A line at `from` is ignored, since `from` is rarely the beginning of a line.
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
}

/// Find the frames of a file, starting at `from`, where a frame must begin.
///
/// A frame ends where the next one begins, or at the end of the file. It is damaged if its number
/// of lines differs from the number in its header. If the last frame has fewer lines, it is
/// truncated.
///
/// # Errors
/// Errors of `watch` and of the source.
pub fn scan_lines<F: LineFrame>(
    source: &dyn Source,
    layout: &F::Layout,
    from: u64,
    size: u64,
    watch: &ScanProgress<'_>,
) -> Result<Scan> {
    let mut frames = LineFrames::<F>::of(layout);
    let mut unfinished = each_line(source, from..size, F::MAX_LINE, watch, |at, line| {
        match (F::begins(frames.last.as_ref(), line), &mut frames.last) {
            // Blank lines before the first frame are part of it.
            (true, None) => frames.begin(from, line),
            (true, Some(_)) => frames.begin(at, line),
            (false, Some(last)) => last.add(line),
            (false, None) => {}
        }
    })?;
    if let (Some(at), Some(last)) = (unfinished, &mut frames.last)
        && last.missing() == Some(1)
        && size - at <= F::MAX_LINE as u64
    {
        let mut line = vec![0; (size - at) as usize];
        source.read_at(at, &mut line)?;
        if last.ends_with(&line) {
            last.add(&line);
            unfinished = None;
        }
    }
    Ok(frames.finish(unfinished, size))
}

/// Call a function with the offset and the content of every nonblank line in a range. If a line has
/// more than `max` bytes, its content is omitted. For a last line without a line feed, the function
/// is not called, and the offset of the line is returned.
///
/// # Errors
/// Errors of `watch` and of the source.
pub fn each_line(
    source: &dyn Source,
    range: Range<u64>,
    max: usize,
    watch: &ScanProgress<'_>,
    mut meet: impl FnMut(u64, &[u8]),
) -> Result<Option<u64>> {
    let mut buffer = vec![0; BUFFER];
    // Line that continues beyond the buffer: its offset, and the number of its bytes at the front
    // of the buffer.
    let (mut line_at, mut held, mut too_long) = (range.start, 0, false);
    let mut at = range.start;
    let mut announcer = Announcer::of(source);
    while at < range.end {
        watch.reached(at)?;
        announcer.reads(source, at, range.end);
        let n = (range.end - at).min((buffer.len() - held) as u64) as usize;
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
        if too_long || held > max {
            (held, too_long) = (0, true);
        } else {
            buffer.copy_within(rest, 0);
        }
    }
    let unfinished = too_long || !is_blank(&buffer[..held]);
    Ok(unfinished.then_some(line_at))
}

/// Frames found so far.
struct LineFrames<'a, F: LineFrame> {
    layout: &'a F::Layout,
    scan: Scan,
    /// Last frame found.
    last: Option<F>,
}

impl<'a, F: LineFrame> LineFrames<'a, F> {
    fn of(layout: &'a F::Layout) -> Self {
        LineFrames {
            layout,
            scan: Scan::default(),
            last: None,
        }
    }

    fn begin(&mut self, at: u64, line: &[u8]) {
        self.close_last();
        self.scan.chain.push_unknown(at);
        self.scan.chain.atom_counts.push(0);
        self.last = Some(F::begin(self.layout, line));
    }

    fn close_last(&mut self) {
        let Some(last) = &self.last else {
            return;
        };
        let number = self.scan.chain.starts.len() - 1;
        if let Some((time, step)) = last.moment() {
            self.scan.chain.times[number] = time;
            self.scan.chain.steps[number] = step;
        }
        if last.missing() != Some(0) {
            self.scan.damaged.push(number as u64);
        } else if let Some(n_atoms) = last.n_atoms() {
            self.scan.chain.atom_counts[number] = n_atoms;
        }
    }

    /// Finish the scan. An `unfinished` last line belongs to the last frame if this frame lacks
    /// lines.
    fn finish(mut self, unfinished: Option<u64>, size: u64) -> Scan {
        let missing = self.last.as_ref().and_then(F::missing);
        self.scan.end = unfinished.unwrap_or(size);
        if missing.is_some_and(|lines| lines > 0) {
            self.scan.end = self.scan.chain.pop().unwrap_or(size);
        } else {
            self.close_last();
        }
        self.scan
    }
}
