//! The lines of an atom.
//!
//! ```text
//! HISTORY     name, id, mass (Da), charge (e), displacement   a8,i10,3f12.6
//! CONFIG      name, often an id, seldom more                  a8,i10
//! then        position (Å)                                    3g20.10, DL_POLY Classic 3e12.4
//!             velocity (Å/ps), where the level is 1 or 2
//!             force (Da·Å/ps²), where it is 2
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
use crate::fortran_text::{take_integer, take_real};
use crate::text_lines::{Lines, quoted, vector, words};

/// Bytes of a name.
pub const NAME: usize = 8;

/// Names of the lines of three numbers, in their order.
const VECTORS: [&str; 3] = ["position", "velocity", "force"];

/// The lines of one atom, without their line feeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct AtomLines<'a> {
    level: u8,
    /// Offset of the first line.
    start: usize,
    label: &'a [u8],
    vectors: [&'a [u8]; 3],
    /// Offsets of `vectors`.
    at: [usize; 3],
}

/// Content of an atom's first line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Label {
    /// Filled up with blanks.
    pub name: [u8; NAME],
    pub id: Option<u64>,
    /// Da; NaN where the line does not say.
    pub mass: f64,
    /// e; NaN where the line does not say.
    pub charge: f64,
}

impl<'a> AtomLines<'a> {
    /// The lines from `at` on, which have these lengths; the caller knows that they are there.
    ///
    /// # Errors
    /// [`Fault::Bad`] where a line does not end where it should.
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
        // Two lines of the first atom that damage made one would be taken for one of all atoms.
        if name > RECORD as usize && memchr(b'\n', lines.label).is_some() {
            let expected = format!("a line of {name} bytes");
            return Err(Fault::bad(at, expected, quoted(lines.label)));
        }
        for k in 0..n_vectors(level) as usize {
            lines.vectors[k] = line(bytes, lines.at[k], width)?;
        }
        Ok(lines)
    }

    /// The next lines.
    ///
    /// # Errors
    /// As those of [`Lines::next`].
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

    /// The atom's id, which the line may not say.
    pub fn id(&self) -> Option<u64> {
        match self.level {
            COMPRESSED => None,
            _ => split(self.label).1,
        }
    }

    /// Read the first line, with mass and charge or without.
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

    /// Position, velocity and force, as far as they are wanted and there: Å, Å/ps and DL_POLY's
    /// unit of force. `place` is the atom's in the frame, from 0.
    ///
    /// # Errors
    /// [`Fault::Bad`] where they are no three numbers.
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

/// The line of `len` bytes, its line feed among them, that begins at `at`.
fn line(bytes: &[u8], at: usize, len: usize) -> Result<&[u8], Fault> {
    match &bytes[at..at + len] {
        [line @ .., b'\n'] => Ok(line),
        line => {
            let expected = format!("a line of {len} bytes");
            Err(Fault::bad(at, expected, quoted(line)))
        }
    }
}

/// Name, id and the rest of an atom's first line.
fn split(label: &[u8]) -> (&[u8], Option<u64>, &[u8]) {
    /// A name of eight characters, and an id of ten digits, which touch.
    const TOUCHING: usize = NAME + 10;
    let label = label.trim_ascii_start();
    let word = label.iter().take_while(|byte| !byte.is_ascii_whitespace());
    let (name, mut rest) = match word.count() {
        TOUCHING => label.split_at(NAME),
        len => label.split_at(len),
    };
    let id = take_integer(&mut rest).and_then(|id| u64::try_from(id).ok());
    // DL_POLY takes 0 for no id.
    (name, id.filter(|&id| id > 0), rest)
}

/// Name and position in a compressed HISTORY, whose columns may touch.
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

/// The number that a field holds and nothing else.
fn take_all(mut field: &[u8]) -> Option<f64> {
    let number = take_real(&mut field)?;
    field.trim_ascii().is_empty().then_some(number)
}

// All that a file says of some atoms, in double precision.

/// Everything that a file says of an atom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// Filled up with blanks.
    pub name: [u8; NAME],
    /// From 1; nothing where the file does not say.
    pub id: Option<u64>,
    /// Da; NaN where the file does not say.
    pub mass: f64,
    /// e; NaN where the file does not say.
    pub charge: f64,
    /// Position (Å), velocity (Å/ps) and force (kJ/(mol·Å)); zeros for what the frame lacks.
    pub vectors: [[f64; 3]; 3],
}

/// Reads the atoms of a frame, one after another as they stand in the file.
#[derive(Debug)]
pub struct Records<'a> {
    walk: Walk<'a>,
    kind: Kind,
    /// Place of the next atom.
    place: usize,
}

impl Layout {
    /// True if atoms have masses and charges.
    pub fn has_masses(&self) -> bool {
        self.kind == Kind::History && self.level != super::header::COMPRESSED
    }

    /// The number of the atom whose lines `bytes` begin with, where they say it.
    ///
    /// # Errors
    /// As for [`Records::next_atom`].
    pub fn id_of(&self, bytes: &[u8]) -> Result<Option<u64>, Fault> {
        let lines = Walk::over(*self, self.level, bytes, bytes.len() as u64).next();
        lines.map(|lines| lines.id())
    }

    /// Bytes of a frame that hold the atoms at these places; nothing where only a walk from the
    /// frame's beginning finds them.
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
    /// The atoms whose lines `bytes` begin with, from the one at `place` on. Of the frame, whose
    /// head is `head`, `size` bytes are left from there on.
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

    /// Bytes of the atoms that were read.
    pub fn len(&self) -> usize {
        self.walk.at
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next atom.
    ///
    /// # Errors
    /// [`Fault::Bad`], counted from the first of the bytes, where there is none; [`Fault::Short`]
    /// where its lines go on behind them.
    pub fn next_atom(&mut self) -> Result<Record, Fault> {
        let lines = self.walk.next()?;
        let [position, velocity, force] = lines.read_vectors(Fields::ALL, self.place)?;
        // Behind the name and number of an atom of a CONFIG other programs write atomic numbers.
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

// A walk over the atoms of a frame.

/// Goes from atom to atom, whether their lines have equal lengths or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    layout: Layout,
    /// Level that tells what the atoms hold.
    level: u8,
    bytes: &'a [u8],
    /// Bytes of the frame, of which `bytes` may be the first ones.
    size: u64,
    /// Offset of the next atom.
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

    /// True if all bytes of the frame are at hand.
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
