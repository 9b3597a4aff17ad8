//! Lines of text, and the words in a line.

use memchr::memchr;

use crate::error::Fault;
use crate::fortran_text::{take_real, three_g20_10};

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
