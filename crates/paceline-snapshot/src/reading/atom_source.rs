//! The source of a reader's atoms.

use std::ops::Range;
use std::path::PathBuf;

use paceline_formats::dlpoly::{FrameHead, Layout, Record, Records};
use paceline_formats::error::{Error, Fault, Result};
use paceline_formats::source::Source;

use super::atom_table::{AtomTable, CHARGES, IDS, MASSES, NAMES, POSITIONS};

/// Divisor of a buffer: one part in so many is for bytes from which atoms are decoded.
pub const PART: usize = 8;

/// A frame of a file, as messages call it.
#[derive(Debug, Clone)]
pub struct Moment {
    pub path: PathBuf,
    pub frame: u64,
}

impl Moment {
    /// Return the error for what cannot be done with the frame.
    pub fn unsupported(&self, what: impl AsRef<str>) -> Error {
        Error::Unsupported {
            path: self.path.clone(),
            what: format!("frame {}: {}", self.frame, what.as_ref()),
        }
    }
}

/// The atoms of one frame, as one reader decodes them.
pub trait AtomSource {
    /// Append the atoms at these places in the file, counted from 0, to an empty table, but for
    /// their owners: one a place, or none. Each next range lies behind the one before.
    ///
    /// # Errors
    /// Any error of reading and decoding.
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> Result<()>;

    /// Bytes that it holds beside the table.
    fn held(&self) -> usize {
        0
    }
}

// Atoms of a CONFIG or a HISTORY, as exactly as the text has them.

/// The most text that is read at a time, which is large for a file system, and the least.
const PIECE: u64 = 4 << 20;
const LEAST: u64 = 4 << 10;

/// Enough for what stands before the atoms of most frames.
const HEAD: u64 = 4096;

/// One reader's hand on the atoms of one frame.
pub struct Text {
    source: Box<dyn Source>,
    moment: Moment,
    layout: Layout,
    head: FrameHead,
    /// Range of the frame in the file, bytes.
    frame: Range<u64>,
    /// Offset of the atom at `place` in the frame, bytes.
    at: u64,
    place: u64,
    /// Bytes that are read at a time.
    piece: u64,
    bytes: Vec<u8>,
}

impl Text {
    /// A hand on the frame that lies at these bytes.
    ///
    /// # Errors
    /// Any error of the source, and [`Error::Damaged`] if no frame begins so.
    pub fn new(
        source: impl Source + 'static,
        layout: Layout,
        moment: Moment,
        frame: Range<u64>,
    ) -> Result<Self> {
        let head = read_head(&source, &layout, &moment, frame.clone())?;
        Ok(Text {
            at: head.len as u64,
            place: 0,
            piece: PIECE,
            bytes: Vec::new(),
            source: Box::new(source),
            moment,
            layout,
            head,
            frame,
        })
    }

    /// The same, which holds no more than its part of a buffer, where atoms are not longer.
    pub fn within(self, buffer: usize) -> Self {
        let part = (buffer / PART) as u64;
        Text {
            piece: part.clamp(LEAST, PIECE),
            ..self
        }
    }

    /// Return the head of the frame, which stands before the atoms.
    pub fn head(&self) -> &FrameHead {
        &self.head
    }

    /// True if atoms have masses and charges.
    pub fn has_masses(&self) -> bool {
        self.layout.has_masses()
    }

    /// Go to an atom that is not behind the one at hand.
    fn seek(&mut self, place: u64) -> Result<()> {
        match self.layout.bytes_of(place..place) {
            Some(bytes) => (self.place, self.at) = (place, bytes.start),
            None => self.walk(place, |_, _, _| Ok(()))?,
        }
        Ok(())
    }

    /// Read on up to the atom at `end`, and call a function with each before it: its place, and
    /// where it is in what was read.
    fn walk(
        &mut self,
        end: u64,
        mut each: impl FnMut(u64, usize, &Record) -> std::result::Result<(), Fault>,
    ) -> Result<()> {
        let mut piece = self.piece;
        while self.place < end {
            let left = self.left(end);
            let len = piece.min(left) as usize;
            if self.bytes.len() < len {
                self.bytes.resize(len, 0);
            }
            let (start, bytes) = (self.frame.start + self.at, &mut self.bytes[..len]);
            self.source.read_at(start, bytes)?;
            let place = self.place as usize;
            let mut records = Records::new(&self.layout, &self.head, place, bytes, left);
            while self.place < end {
                let (place, at) = (self.place, records.len());
                match records.next_atom().and_then(|atom| each(place, at, &atom)) {
                    Ok(()) => self.place += 1,
                    Err(Fault::Short { .. }) if (len as u64) < left => break,
                    Err(fault) => {
                        let (path, frame) = (&self.moment.path, Some(self.moment.frame));
                        return Err(Error::damaged(path, frame, start, left, fault.within(left)));
                    }
                }
            }
            // Where not even one atom is whole, its lines are very long.
            piece = if records.is_empty() {
                2 * piece
            } else {
                self.piece
            };
            self.at += records.len() as u64;
        }
        Ok(())
    }

    /// Bytes to be read before the atom at `end`, at the most.
    fn left(&self, end: u64) -> u64 {
        let end = self.layout.bytes_of(end..end).map(|bytes| bytes.start);
        end.unwrap_or(self.frame.end - self.frame.start) - self.at
    }
}

impl AtomSource for Text {
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> Result<()> {
        self.seek(places.start)?;
        let n_atoms = self.layout.n_atoms() as u64;
        let widths = *table.widths();
        self.walk(places.end, |place, at, atom| {
            let id = atom.id.unwrap_or(place + 1);
            if !(1..=n_atoms).contains(&id) {
                let expected = format!("an atom numbered from 1 to {n_atoms}");
                return Err(Fault::bad(at, expected, id));
            }
            let mut push = |column: usize, bytes: &[u8]| {
                if widths[column] > 0 {
                    table.column_mut(column).extend_from_slice(bytes);
                }
            };
            push(IDS, &id.to_ne_bytes());
            for (k, vector) in atom.vectors.iter().enumerate() {
                push(POSITIONS + k, bytemuck::bytes_of(vector));
            }
            push(NAMES, &without_blanks(atom.name));
            push(MASSES, &atom.mass.to_ne_bytes());
            push(CHARGES, &atom.charge.to_ne_bytes());
            Ok(())
        })
    }

    fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A name that zeros fill up, as they do NumPy's text.
fn without_blanks(mut name: [u8; 8]) -> [u8; 8] {
    let len = name.trim_ascii_end().len();
    name[len..].fill(0);
    name
}

fn read_head(
    source: &dyn Source,
    layout: &Layout,
    moment: &Moment,
    frame: Range<u64>,
) -> Result<FrameHead> {
    let size = frame.end.saturating_sub(frame.start);
    let mut bytes = vec![0; HEAD.min(size) as usize];
    loop {
        source.read_at(frame.start, &mut bytes)?;
        match FrameHead::parse(layout, &bytes, size) {
            Ok(head) => return Ok(head),
            Err(Fault::Short { needed }) if needed > bytes.len() && needed as u64 <= size => {
                bytes.resize(needed, 0);
            }
            Err(fault) => {
                let (path, number) = (&moment.path, Some(moment.frame));
                return Err(Error::damaged(path, number, frame.start, size, fault));
            }
        }
    }
}
