//! Recognises and reads the head of a file, and finds in its first frame how long its lines are.
//!
//! ```text
//! HISTORY  title
//!          keytrj, imcon, atoms, frames, records    the last two not in DL_POLY Classic
//!          the first frame, which begins with "timestep"
//! CONFIG   title
//!          levcfg, imcon and others
//!          the cell, where imcon is not 0
//!          the first atom's name
//! ```

use super::frame_head::{ConfigLine, FrameHead, TIMESTEP, integers};
use super::layout::{HEAD_MAX, Kind, Layout, LineLengths, NAME_MIN, VECTOR_MIN, Widths, n_vectors};
use super::lines::{Lines, is_blank, quoted, vector};
use crate::error::Fault;

/// What the head of a file tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    pub layout: Layout,
    /// Frames of a HISTORY as its head counts them, where it does: wrong where a run was killed.
    /// Atoms of a CONFIG, where it counts them.
    pub claimed: Option<u64>,
    /// Bytes before the first atom of a CONFIG, before the first frame of a HISTORY.
    pub len: u64,
}

/// Recognise a file by its first bytes: as many lines of them as are whole.
pub fn detect(head: &[u8]) -> Option<Kind> {
    let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    let mut lines = Lines::new(head, head.len() as u64);
    if !lines.title().ok()?.iter().all(is_text) {
        return None;
    }
    let (numbers, rest) = integers(lines.next("").ok()?);
    if lines.rest().starts_with(TIMESTEP) {
        return Some(Kind::History);
    }
    let (0..=3, 0..=7) = (*numbers.first()?, *numbers.get(1)?) else {
        return None;
    };
    // A run that has only begun.
    if is_blank(lines.rest()) {
        return (numbers.len() == 5 && is_blank(rest)).then_some(Kind::History);
    }
    let n_vectors = if numbers[1] == 0 { 0 } else { 3 };
    let mut is_vector = || Some(vector(lines.next("").ok()?).is_some());
    for _ in 0..n_vectors {
        is_vector()?.then_some(())?;
    }
    let is_config = n_vectors == 3 || !is_vector()? && is_vector()?;
    is_config.then_some(Kind::Config)
}

/// Where the head of a HISTORY counts its frames and its records: where the third, the fourth and
/// the fifth number of its second line end.
pub fn counts(head: &[u8]) -> Option<[usize; 3]> {
    if detect(head) != Some(Kind::History) {
        return None;
    }
    let mut lines = Lines::new(head, head.len() as u64);
    lines.title().ok()?;
    let line = lines.next("").ok()?;
    let at = lines.at() - 1 - line.len();
    let is_blank = |at: usize| line.get(at).is_none_or(u8::is_ascii_whitespace);
    let mut ends = (1..=line.len()).filter(|&end| !is_blank(end - 1) && is_blank(end));
    Some([ends.nth(2)? + at, ends.next()? + at, ends.next()? + at])
}

impl Head {
    /// Parse the head of a HISTORY of `file_size` bytes, and its first frame as far as needed.
    ///
    /// # Errors
    /// [`Fault::Short`] asks for a longer slice, never for more than the file has.
    /// [`Fault::Bad`] where the head or the first frame's beginning contradict the format.
    pub fn parse_history(head: &[u8], file_size: u64) -> Result<Head, Fault> {
        history(head, file_size).map_err(bounded)
    }

    /// Parse the head of a CONFIG of `file_size` bytes. Its atoms are told by their lines: where
    /// these vary, somebody has to count them, and the layout says 1.
    ///
    /// # Errors
    /// As [`Head::parse_history`].
    pub fn parse_config(head: &[u8], file_size: u64) -> Result<Head, Fault> {
        config(head, file_size).map_err(bounded)
    }
}

/// Refuse to look for the first atom through a whole file.
fn bounded(fault: Fault) -> Fault {
    match fault {
        Fault::Short { needed } if needed > HEAD_MAX => {
            let expected = format!("the lines of the first atom within {HEAD_MAX} bytes");
            Fault::bad(HEAD_MAX, expected, "none")
        }
        fault => fault,
    }
}

fn history(head: &[u8], file_size: u64) -> Result<Head, Fault> {
    let mut lines = Lines::new(head, file_size);
    lines.title()?;
    let at = lines.at();
    let line = lines.next("keytrj, imcon and the number of atoms")?;
    let (numbers, _) = integers(line);
    let &[level @ 0..=3, imcon @ 0..=7, n_atoms, ref counts @ ..] = &numbers[..] else {
        let expected = "keytrj from 0 to 3, imcon from 0 to 7, and the number of atoms";
        return Err(Fault::bad(at, expected, quoted(line)));
    };
    let start = lines.at();
    let mut layout = Layout {
        kind: Kind::History,
        n_atoms: n_atoms_checked(at, n_atoms, file_size)?,
        level: level as u8,
        imcon: imcon as u8,
        start: start as u64,
        lines: LineLengths::Varying,
        ordered: false,
    };
    if lines.clone().next_if_any()?.is_some() {
        layout
            .look(&head[start..], file_size - start as u64)
            .map_err(|fault| fault.behind(start))?;
    }
    Ok(Head {
        layout,
        claimed: counts
            .first()
            .and_then(|&n| u64::try_from(n).ok())
            .filter(|&n| n > 0),
        len: start as u64,
    })
}

fn config(head: &[u8], file_size: u64) -> Result<Head, Fault> {
    let mut lines = Lines::new(head, file_size);
    lines.title()?;
    let line = ConfigLine::take(&mut lines)?;
    let mut layout = Layout {
        kind: Kind::Config,
        n_atoms: 1,
        level: 0,
        imcon: line.imcon,
        start: 0,
        lines: LineLengths::Varying,
        ordered: false,
    };
    let len = layout.look(head, file_size)?;
    if let LineLengths::Equal(widths) = layout.lines {
        let (atoms, size) = (file_size - u64::from(widths.head), layout.atom_size(widths));
        match atoms % size {
            0 => layout.n_atoms = atoms / size,
            _ => layout.lines = LineLengths::Varying,
        }
    }
    Ok(Head {
        layout,
        claimed: line.n_atoms,
        len,
    })
}

impl Layout {
    /// See in the first frame what atoms hold, and how long lines are. Returns the bytes before its
    /// first atom.
    fn look(&mut self, frame: &[u8], size: u64) -> Result<u64, Fault> {
        let head = FrameHead::parse(self, frame, size)?;
        self.level = head.level;
        let mut lines = Lines::behind(frame, size, head.len);
        let mut length = || {
            let at = lines.at();
            lines.next("the lines of the first atom")?;
            Ok(lines.at() - at)
        };
        let name = length()?;
        let vectors: Result<Vec<usize>, Fault> =
            (0..n_vectors(head.level)).map(|_| length()).collect();
        let vectors = vectors?;
        let vector = vectors.first().copied().unwrap_or(0);
        let widths = Widths {
            head: head.len as u32,
            name: name as u32,
            vector: vector as u32,
        };
        let equal = Layout {
            lines: LineLengths::Equal(widths),
            ..*self
        };
        // Longer lines than any are several, blank ones among them.
        if vectors.iter().all(|&length| length == vector) && equal.is_sound() {
            *self = equal;
        }
        Ok(head.len as u64)
    }
}

/// The number of atoms, if a file of so many bytes can hold them.
fn n_atoms_checked(at: usize, n_atoms: i64, file_size: u64) -> Result<u64, Fault> {
    let room = file_size / (NAME_MIN + VECTOR_MIN);
    match u64::try_from(n_atoms) {
        Ok(n_atoms) if (1..=room).contains(&n_atoms) => Ok(n_atoms),
        _ => {
            let expected = format!("from 1 to {room} atoms, which {file_size} bytes can hold");
            Err(Fault::bad(at, expected, n_atoms))
        }
    }
}
