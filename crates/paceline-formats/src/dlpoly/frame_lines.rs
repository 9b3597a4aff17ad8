//! Counts the lines of a frame as they are met.

use super::frame_head::Header;
use super::layout::{COMPRESSED, Layout};
use super::lines::vector;

/// Lines behind a frame's first within which the cell and the first atom end.
const LOOK: usize = 7;

/// The lines of one frame of a HISTORY, from its first on, without blank ones.
#[derive(Debug, Clone)]
pub struct FrameLines {
    n_atoms: u64,
    compressed: bool,
    /// Nothing where the first line is no frame's of this file.
    header: Option<Header>,
    /// Of the lines behind the first, whether each is three numbers: as many as are looked at.
    vectors: Vec<bool>,
    n_lines: u64,
}

impl FrameLines {
    pub fn begin(layout: &Layout, line: &[u8]) -> Self {
        FrameLines {
            n_atoms: layout.n_atoms,
            compressed: layout.level == COMPRESSED,
            header: Header::parse(layout, line).ok(),
            vectors: Vec::with_capacity(LOOK),
            n_lines: 1,
        }
    }

    pub fn add(&mut self, line: &[u8]) {
        self.n_lines += 1;
        if self.vectors.len() < LOOK {
            self.vectors.push(vector(line).is_some());
        }
    }

    /// Time (ps) and step.
    pub fn moment(&self) -> Option<(f64, i64)> {
        self.header.map(|header| (header.time, header.step))
    }

    /// Lines that the frame should have beyond those that were met, or 1 where it ends before that
    /// can be told; negative where there are too many, nothing where its lines are no frame's.
    pub fn missing(&self) -> Option<i64> {
        self.header?;
        let cell = match self.vectors.first() {
            Some(true) => 3,
            _ => 0,
        };
        let mut vectors = self.vectors.iter().skip(cell + 1).peekable();
        if vectors.peek().is_none() && !self.compressed {
            return Some(1);
        }
        let vectors = vectors.take(3).take_while(|&&is_vector| is_vector);
        let n_vectors = vectors.count() as u64;
        if n_vectors == 0 && !self.compressed {
            return None;
        }
        let expected = 1 + cell as u64 + self.n_atoms * (1 + n_vectors);
        Some(expected as i64 - self.n_lines as i64)
    }
}
