//! Lines of text, and the words in a line. To find the frames of a text file, its lines are scanned
//! one after another; they may have any length.

use std::ops::Range;

use memchr::memchr;

use crate::error::{Fault, Result};
use crate::fortran_numbers::{take_real, three_g20_10};
use crate::index::header_scan::{Chain, Scan, ScanProgress};
use crate::index::scanned::Scanner;
use crate::source::{Announcer, Source};

/// Maximum length of a line. DL_POLY writes lines of up to 200 bytes; users may write longer ones.
pub const MAX_LINE: usize = 1024;

/// Lines of a file or of a frame, one after another, without blank lines.
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    bytes: &'a [u8],
    total: u64,
    at: usize,
    /// Maximum length of a line, bytes.
    max: usize,
    /// True if the last line may lack its line feed.
    open_end: bool,
}

impl<'a> Lines<'a> {
    /// Create the lines of a text of `total` bytes. `bytes` may contain only the first of these
    /// bytes.
    pub fn new(bytes: &'a [u8], total: u64) -> Self {
        Lines::behind(bytes, total, 0)
    }

    /// Create the lines from offset `at` on. `at` must be within `bytes`.
    pub fn behind(bytes: &'a [u8], total: u64, at: usize) -> Self {
        Lines {
            bytes,
            total,
            at,
            max: MAX_LINE,
            open_end: false,
        }
    }

    /// Allow up to `max` bytes per line, and a last line without a line feed.
    pub fn up_to(self, max: usize) -> Self {
        Lines {
            max,
            open_end: true,
            ..self
        }
    }

    /// Return the offset of the next line.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Return the title: the next line, blank or not.
    pub fn title(&mut self) -> Result<&'a [u8], Fault> {
        let at = self.at;
        self.line()?.ok_or_else(|| end(at, "a title"))
    }

    /// Return the next line that is not blank, without its line feed.
    ///
    /// # Errors
    /// [`Fault::Short`] if the line ends beyond the available bytes, [`Fault::Bad`] if the text
    /// ends before or within the line.
    pub fn next(&mut self, what: &str) -> Result<&'a [u8], Fault> {
        let at = self.at;
        self.next_if_any()?.ok_or_else(|| end(at, what))
    }

    /// Return the next line that is not blank; `None` if there is none.
    pub fn next_if_any(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        while let Some(line) = self.line()? {
            if !is_blank(line) {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        let rest = self.rest();
        if let Some(len) = memchr(b'\n', &rest[..rest.len().min(self.max)]) {
            self.at += len + 1;
            return Ok(Some(&rest[..len]));
        }
        if rest.len() >= self.max {
            let expected = format!("a line of at most {} bytes", self.max);
            return Err(Fault::bad(self.at, expected, quoted(rest)));
        }
        if (self.bytes.len() as u64) < self.total {
            let needed = ((self.at + self.max) as u64).min(self.total) as usize;
            return Err(Fault::Short { needed });
        }
        if is_blank(rest) || self.open_end {
            self.at = self.bytes.len();
            return Ok(Some(rest).filter(|rest| !is_blank(rest)));
        }
        let expected = "a line feed at the end of the last line (add one if the line is complete)";
        Err(Fault::bad(self.bytes.len(), expected, quoted(rest)))
    }
}

fn end(at: usize, what: &str) -> Fault {
    Fault::bad(at, what, "no further line")
}

#[inline]
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Split a line into words.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Parse a line of exactly three numbers.
pub(crate) fn vector(line: &[u8]) -> Option<[f64; 3]> {
    three_g20_10(line).or_else(|| three_words(line))
}

fn three_words(mut line: &[u8]) -> Option<[f64; 3]> {
    let line = &mut line;
    let vector = [take_real(line)?, take_real(line)?, take_real(line)?];
    is_blank(line).then_some(vector)
}

/// Return the beginning of a line for messages.
pub(crate) fn quoted(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    let shown = line[..line.len().min(SHOWN)].trim_ascii_end();
    let more = if line.len() > SHOWN { "…" } else { "" };
    format!("\"{}{more}\"", shown.escape_ascii())
}

/// Number of bytes that are read at a time.
const BUFFER: usize = 1 << 20;

/// State of one frame during a scan, which receives the nonblank lines of the frame one by one.
pub trait LineFrame: Sized {
    type Layout;

    /// Maximum length of a line that is always passed with its content, bytes. The content of a
    /// longer line may be omitted.
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

    /// Return true if `line`, the last line of the file, completes the frame although it has no
    /// line feed.
    fn ends_with(&self, _line: &[u8]) -> bool {
        false
    }

    /// Return the number of missing lines of the frame, or 1 if the frame ends before this number
    /// is known. The number is negative if there are excess lines. Return `None` if the lines are
    /// not a frame.
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
            // Blank lines before the first frame are part of this frame.
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
/// more than `max` bytes, its content may be omitted. For a last line without a line feed, the
/// function is not called, and the offset of the line is returned.
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
    // Line that continues beyond the buffer: its offset, the number of its bytes at the front of
    // the buffer, and whether its content is omitted.
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

/// Frames that a scan has found so far.
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
