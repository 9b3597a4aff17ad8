//! Lines of text and the words in them.

use memchr::memchr;

use crate::error::Fault;
use crate::fortran_text::{take_real, three_g20_10};

/// DL_POLY writes lines of up to 200 bytes; people may write longer ones.
pub const MAX_LINE: usize = 1024;

/// The lines of a file or of a frame, one after another. Blank ones are passed over.
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    bytes: &'a [u8],
    total: u64,
    at: usize,
    /// Bytes that a line may have.
    max: usize,
    /// True if the last line may lack its line feed.
    open_end: bool,
}

impl<'a> Lines<'a> {
    /// All of `total` bytes, of which `bytes` may be the first ones.
    pub fn new(bytes: &'a [u8], total: u64) -> Self {
        Lines::behind(bytes, total, 0)
    }

    /// Return the lines from `at` on, which is not behind the bytes.
    pub fn behind(bytes: &'a [u8], total: u64, at: usize) -> Self {
        Lines {
            bytes,
            total,
            at,
            max: MAX_LINE,
            open_end: false,
        }
    }

    /// The same lines, which may have up to `max` bytes, and of which the last may lack its line
    /// feed.
    pub fn up_to(self, max: usize) -> Self {
        Lines {
            max,
            open_end: true,
            ..self
        }
    }

    /// Return the offset of the bytes that no line was taken of yet.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The title: the very next line, blank or not.
    pub fn title(&mut self) -> Result<&'a [u8], Fault> {
        let at = self.at;
        self.line()?.ok_or_else(|| end(at, "a title"))
    }

    /// The next line that is not blank, without its line feed.
    ///
    /// # Errors
    /// [`Fault::Short`] where it ends behind the bytes at hand, [`Fault::Bad`] where the lines end
    /// before it, or in the midst of it.
    pub fn next(&mut self, what: &str) -> Result<&'a [u8], Fault> {
        let at = self.at;
        self.next_if_any()?.ok_or_else(|| end(at, what))
    }

    /// The same; nothing where there is no further line.
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
        let expected = "a line feed at the end of the last line (add one where the line is whole)";
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

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// The three numbers of a line that has three words.
pub(crate) fn vector(line: &[u8]) -> Option<[f64; 3]> {
    three_g20_10(line).or_else(|| three_words(line))
}

fn three_words(mut line: &[u8]) -> Option<[f64; 3]> {
    let line = &mut line;
    let vector = [take_real(line)?, take_real(line)?, take_real(line)?];
    is_blank(line).then_some(vector)
}

/// The beginning of a line, for messages.
pub(crate) fn quoted(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    let shown = line[..line.len().min(SHOWN)].trim_ascii_end();
    let more = if line.len() > SHOWN { "…" } else { "" };
    format!("\"{}{more}\"", shown.escape_ascii())
}
