//! Lines of an atom in DL_POLY's files.
//!
//! ```text
//! HISTORY     name, id, mass (Da), charge (e), displacement   a8,i10,3f12.6
//! CONFIG      name, often an id, seldom more                  a8,i10
//! then        position (Å)                                    3g20.10, DL_POLY Classic 3e12.4
//!             velocity (Å/ps), if the level is 1 or 2
//!             force (Da·Å/ps²), if the level is 2
//! compressed  name, position, displacement                    a6,4f7.1
//! ```

use std::ops::Range;

use memchr::memchr;

use super::RECORD;
use super::encode::FORCE;
use super::frame_head::FrameHead;
use super::header::{COMPRESSED, Kind, Layout, LineLengths, Widths, n_vectors};
use crate::Fields;
use crate::error::Fault;
use crate::fortran_numbers::{take_integer, take_real};
use crate::text_lines::{Lines, quoted, vector, words};

/// Maximum length of a name, bytes.
pub const NAME: usize = 8;

/// Names, for messages, of the lines with three numbers, in the order of these lines.
const VECTORS: [&str; 3] = ["position", "velocity", "force"];

/// The lines of one atom, without their line feeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct AtomLines<'a> {
    level: u8,
    /// Offset of the first line.
    start: usize,
    label: &'a [u8],
    vectors: [&'a [u8]; 3],
    /// Offsets of the lines in `vectors`.
    at: [usize; 3],
}

/// Content of an atom's first line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Label {
    /// Name, padded with blanks.
    pub name: [u8; NAME],
    pub id: Option<u64>,
    /// Mass, Da; NaN if the line has none.
    pub mass: f64,
    /// Charge, e; NaN if the line has none.
    pub charge: f64,
}

impl<'a> AtomLines<'a> {
    /// Get the lines of the atom at offset `at`; `widths` contains their lengths. The caller must
    /// check that the bytes exist.
    ///
    /// # Errors
    /// [`Fault::Bad`] if a line does not have the length that `widths` states.
    pub fn of_equal(bytes: &'a [u8], at: usize, level: u8, widths: Widths) -> Result<Self, Fault> {
        let (name, width) = (widths.name as usize, widths.vector as usize);
        let first = at + name;
        let mut lines = AtomLines {
            level,
            start: at,
            label: line(bytes, at, name)?,
            vectors: [&[]; 3],
            at: [first, first + width, first + 2 * width],
        };
        // If damage has joined two lines of the first atom, their total length was taken for the
        // length of every first line. The first line of another atom then contains a line feed.
        if name > RECORD as usize && memchr(b'\n', lines.label).is_some() {
            let expected = format!("a line of {name} bytes");
            return Err(Fault::bad(at, expected, quoted(lines.label)));
        }
        for k in 0..n_vectors(level) as usize {
            lines.vectors[k] = line(bytes, lines.at[k], width)?;
        }
        Ok(lines)
    }

    /// Get the lines of the next atom.
    ///
    /// # Errors
    /// As [`Lines::next`].
    pub fn take(lines: &mut Lines<'a>, level: u8) -> Result<Self, Fault> {
        let mut taken = AtomLines {
            level,
            start: lines.at(),
            label: lines.next("an atom's name")?,
            vectors: [&[]; 3],
            at: [0; 3],
        };
        for k in 0..n_vectors(level) as usize {
            taken.at[k] = lines.at();
            taken.vectors[k] = lines.next("an atom's three numbers")?;
        }
        Ok(taken)
    }

    /// Return the id of the atom, if the line contains one.
    pub fn id(&self) -> Option<u64> {
        match self.level {
            COMPRESSED => None,
            _ => split(self.label).1,
        }
    }

    /// Parse the first line. If `has_masses` is false, mass and charge are NaN.
    pub fn read_label(&self, has_masses: bool) -> Label {
        let (name, id, mut rest) = match self.level {
            COMPRESSED => (compressed(self.label).0, None, &[][..]),
            _ => split(self.label),
        };
        let mut padded = [b' '; NAME];
        let len = name.len().min(NAME);
        padded[..len].copy_from_slice(&name[..len]);
        let mut number = || match has_masses {
            true => take_real(&mut rest).unwrap_or(f64::NAN),
            false => f64::NAN,
        };
        Label {
            name: padded,
            id,
            mass: number(),
            charge: number(),
        }
    }

    /// Parse position (Å), velocity (Å/ps) and force (DL_POLY's unit), if wanted and present; other
    /// vectors are zeros. `place` is the index of the atom in the frame, from 0.
    ///
    /// # Errors
    /// [`Fault::Bad`] if a line does not contain three numbers.
    pub fn read_vectors(&self, wanted: Fields, place: usize) -> Result<[[f64; 3]; 3], Fault> {
        let mut vectors = [[0.0; 3]; 3];
        let bad = |what: usize, at: usize, line| {
            let (what, atom) = (VECTORS[what], place + 1);
            let expected = format!("three numbers, the {what} of atom {atom} in the frame");
            Fault::bad(at, expected, quoted(line))
        };
        if self.level == COMPRESSED {
            let position = compressed(self.label).1;
            vectors[0] = position.ok_or_else(|| bad(0, self.start, self.label))?;
            return Ok(vectors);
        }
        let wanted = [wanted.positions, wanted.velocities, wanted.forces];
        for k in 0..n_vectors(self.level) as usize {
            if wanted[k] {
                let line = self.vectors[k];
                vectors[k] = vector(line).ok_or_else(|| bad(k, self.at[k], line))?;
            }
        }
        Ok(vectors)
    }
}

/// Return the line of `len` bytes, including its line feed, that begins at `at`.
fn line(bytes: &[u8], at: usize, len: usize) -> Result<&[u8], Fault> {
    match &bytes[at..at + len] {
        [line @ .., b'\n'] => Ok(line),
        line => {
            let expected = format!("a line of {len} bytes");
            Err(Fault::bad(at, expected, quoted(line)))
        }
    }
}

/// Split the first line of an atom into name, id and the rest.
fn split(label: &[u8]) -> (&[u8], Option<u64>, &[u8]) {
    /// Length of a name of eight characters and an id of ten digits without a blank between them.
    const TOUCHING: usize = NAME + 10;
    let label = label.trim_ascii_start();
    let word = label.iter().take_while(|byte| !byte.is_ascii_whitespace());
    let (name, mut rest) = match word.count() {
        TOUCHING => label.split_at(NAME),
        len => label.split_at(len),
    };
    let id = take_integer(&mut rest).and_then(|id| u64::try_from(id).ok());
    // DL_POLY treats 0 as no id.
    (name, id.filter(|&id| id > 0), rest)
}

/// Parse name and position of an atom in a compressed HISTORY, in which blanks between columns can
/// be missing. The position is `None` if its numbers are invalid.
fn compressed(label: &[u8]) -> (&[u8], Option<[f64; 3]>) {
    const LEN: usize = 34;
    if label.len() == LEN {
        let column = |k: usize| take_all(&label[6 + 7 * k..13 + 7 * k]);
        let position = column(0).zip(column(1)).zip(column(2));
        return (
            label[..6].trim_ascii(),
            position.map(|((x, y), z)| [x, y, z]),
        );
    }
    let mut words = words(label);
    let name = words.next().unwrap_or_default();
    let mut number = || take_all(words.next()?);
    let position = number().zip(number()).zip(number());
    (name, position.map(|((x, y), z)| [x, y, z]))
}

/// Parse a column that must contain a single number.
fn take_all(mut field: &[u8]) -> Option<f64> {
    let number = take_real(&mut field)?;
    field.trim_ascii().is_empty().then_some(number)
}

// Access to all data of some atoms, in double precision.

/// All data of an atom in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// Name, padded with blanks.
    pub name: [u8; NAME],
    /// Id, from 1; `None` if the file has none.
    pub id: Option<u64>,
    /// Mass, Da; NaN if the file has none.
    pub mass: f64,
    /// Charge, e; NaN if the file has none.
    pub charge: f64,
    /// Position (Å), velocity (Å/ps) and force (kJ/(mol·Å)); zeros for missing fields.
    pub vectors: [[f64; 3]; 3],
}

/// Reader of the atoms of a frame, in the order of the file.
#[derive(Debug)]
pub struct Records<'a> {
    walk: Walk<'a>,
    kind: Kind,
    /// Index of the next atom in the frame.
    place: usize,
}

impl Layout {
    /// True if atoms have masses and charges.
    pub fn has_masses(&self) -> bool {
        self.kind == Kind::History && self.level != super::header::COMPRESSED
    }

    /// Return the id of the atom whose lines are at the start of `bytes`, if the lines contain an
    /// id.
    ///
    /// # Errors
    /// As for [`Records::next_atom`].
    pub fn id_of(&self, bytes: &[u8]) -> Result<Option<u64>, Fault> {
        let lines = Walk::over(*self, self.level, bytes, bytes.len() as u64).next();
        lines.map(|lines| lines.id())
    }

    /// Return the byte range of the atoms at these indices in a frame; `None` if lines vary in
    /// length, so that only a search from the beginning of the frame finds the atoms.
    pub fn bytes_of(&self, places: Range<u64>) -> Option<Range<u64>> {
        match self.lines {
            LineLengths::Varying => None,
            LineLengths::Equal(widths) => {
                let at = |place: u64| u64::from(widths.head) + place * self.atom_size(widths);
                Some(at(places.start)..at(places.end))
            }
        }
    }
}

impl<'a> Records<'a> {
    /// Create a reader of the atoms at the start of `bytes`. `place` is the index of the first of
    /// these atoms, `head` the header of the frame, and `size` the number of bytes from that atom
    /// to the end of the frame.
    pub fn new(
        layout: &Layout,
        head: &FrameHead,
        place: usize,
        bytes: &'a [u8],
        size: u64,
    ) -> Self {
        Records {
            walk: Walk::over(*layout, head.level, bytes, size),
            kind: layout.kind,
            place,
        }
    }

    /// Return the number of bytes of the atoms read so far.
    pub fn len(&self) -> usize {
        self.walk.at
    }

    /// True if no atom has been read yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Read the next atom.
    ///
    /// # Errors
    /// [`Fault::Bad`], with an offset in `bytes`, if there is no atom. [`Fault::Short`] if the
    /// lines of the atom continue beyond `bytes`.
    pub fn next_atom(&mut self) -> Result<Record, Fault> {
        let lines = self.walk.next()?;
        let [position, velocity, force] = lines.read_vectors(Fields::ALL, self.place)?;
        // In a CONFIG, other programs write atomic numbers after name and id. These numbers must
        // not be read as masses.
        let has_masses = self.kind == Kind::History;
        let label = lines.read_label(has_masses);
        self.place += 1;
        Ok(Record {
            name: label.name,
            id: label.id,
            mass: label.mass,
            charge: label.charge,
            vectors: [position, velocity, force.map(|value| value / FORCE)],
        })
    }
}

// Iteration over the atoms of a frame.

/// Iterator over atoms whose lines have equal or varying lengths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    layout: Layout,
    /// Level (see [`Layout::level`]), which determines the fields of the atoms.
    level: u8,
    bytes: &'a [u8],
    /// Size of the frame. `bytes` may contain only its beginning.
    size: u64,
    /// Offset of the next atom.
    pub at: usize,
}

impl<'a> Walk<'a> {
    /// Create the iterator over a frame of `size` bytes, starting at its first atom.
    pub fn new(layout: Layout, head: &FrameHead, bytes: &'a [u8], size: u64) -> Self {
        Walk::over(layout, head.level, bytes, size).from(head.len)
    }

    /// Create the iterator over the rest of a frame. The rest has `size` bytes and begins with an
    /// atom.
    pub fn over(layout: Layout, level: u8, bytes: &'a [u8], size: u64) -> Self {
        Walk {
            layout,
            level,
            bytes,
            size,
            at: 0,
        }
    }

    /// Return the iterator with offset `at` for the next atom.
    pub fn from(self, at: usize) -> Self {
        Walk { at, ..self }
    }

    /// True if all bytes of the frame are available.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.size
    }

    /// Get the lines of the next atom.
    ///
    /// # Errors
    /// [`Fault::Bad`] if the lines are invalid, [`Fault::Short`] if they end beyond the available
    /// bytes.
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

    /// Check that no line follows the atoms that were iterated over.
    ///
    /// # Errors
    /// [`Fault::Bad`] if there are more lines.
    pub fn end(&self) -> Result<(), Fault> {
        let mut lines = Lines::behind(self.bytes, self.size, self.at);
        match lines.next_if_any()? {
            None => Ok(()),
            Some(line) => {
                let expected = format!("the end of the frame after {} atoms", self.layout.n_atoms);
                Err(Fault::bad(self.at, expected, quoted(line)))
            }
        }
    }
}
