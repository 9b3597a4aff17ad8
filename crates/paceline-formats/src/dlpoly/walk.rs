//! A walk over the atoms of a frame.

use super::atom::AtomLines;
use super::frame_head::FrameHead;
use super::layout::{Layout, LineLengths};
use super::lines::{Lines, quoted};
use crate::error::Fault;

/// Goes from atom to atom, whether their lines have equal lengths or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    layout: Layout,
    /// What the atoms hold.
    level: u8,
    bytes: &'a [u8],
    /// Bytes of the frame, of which `bytes` may be the first ones.
    size: u64,
    /// Where the next atom begins.
    pub at: usize,
}

impl<'a> Walk<'a> {
    /// Over a frame that has `size` bytes, from its first atom on.
    pub fn new(layout: Layout, head: &FrameHead, bytes: &'a [u8], size: u64) -> Self {
        Walk::over(layout, head.level, bytes, size).from(head.len)
    }

    /// Over the rest of a frame, which has `size` bytes and begins with an atom.
    pub fn over(layout: Layout, level: u8, bytes: &'a [u8], size: u64) -> Self {
        Walk {
            layout,
            level,
            bytes,
            size,
            at: 0,
        }
    }

    /// The same from an atom on that begins at `at`.
    pub fn from(self, at: usize) -> Self {
        Walk { at, ..self }
    }

    /// Whether all bytes of the frame are at hand.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.size
    }

    /// The next atom's lines.
    ///
    /// # Errors
    /// [`Fault::Bad`] where they are none, [`Fault::Short`] where they end behind the bytes at
    /// hand.
    pub fn next(&mut self) -> Result<AtomLines<'a>, Fault> {
        match self.layout.lines {
            LineLengths::Equal(widths) => {
                let end = self.at + self.layout.atom_size(widths) as usize;
                if end > self.bytes.len() {
                    return Err(Fault::Short { needed: end });
                }
                let lines = AtomLines::of_equal(self.bytes, self.at, self.level, widths)?;
                self.at = end;
                Ok(lines)
            }
            LineLengths::Varying => {
                let mut lines = Lines::behind(self.bytes, self.size, self.at);
                let taken = AtomLines::take(&mut lines, self.level)?;
                self.at = lines.at();
                Ok(taken)
            }
        }
    }

    /// Make sure that nothing follows.
    ///
    /// # Errors
    /// [`Fault::Bad`] where there are more lines.
    pub fn end(&self) -> Result<(), Fault> {
        let mut lines = Lines::behind(self.bytes, self.size, self.at);
        match lines.next_if_any()? {
            None => Ok(()),
            Some(line) => {
                let expected = format!("the end of the frame behind {} atoms", self.layout.n_atoms);
                Err(Fault::bad(self.at, expected, quoted(line)))
            }
        }
    }
}
