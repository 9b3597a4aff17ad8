//! Tables of atoms with one column of fixed width per property, and the sources that fill them.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;

use paceline_formats::Fields;
use paceline_formats::dlpoly::{FrameHead, Layout, Record, Records};
use paceline_formats::error::{Error, Fault, Result};
use paceline_formats::source::Source;

/// Column of the ranks that own the atoms: u32.
pub const OWNERS: usize = 0;
/// Column of atom ids, from 1 to the number of atoms: i64.
pub const IDS: usize = 1;
/// Column of positions: three f32 or three f64 per atom, as for velocities and forces.
pub const POSITIONS: usize = 2;
/// Column of velocities.
pub const VELOCITIES: usize = 3;
/// Column of forces.
pub const FORCES: usize = 4;
/// Column of names: 8 bytes, padded with zeros.
pub const NAMES: usize = 5;
/// Column of masses: f64.
pub const MASSES: usize = 6;
/// Column of charges: f64.
pub const CHARGES: usize = 7;
/// Number of columns.
pub const N_COLUMNS: usize = 8;

/// Number of bytes per atom of each column; 0 for missing columns.
pub type Widths = [usize; N_COLUMNS];

/// Properties of atoms that a frame contains in addition to positions, velocities and forces.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Names, 8 bytes each.
    pub names: bool,
    /// Masses, in the unit of the file.
    pub masses: bool,
    /// Charges, in the unit of the file.
    pub charges: bool,
}

/// Return the column widths for the content of a frame. Vectors have double precision if `is_wide`.
pub fn widths(fields: Fields, is_wide: bool, known: Known) -> Widths {
    let there = |there, width| if there { width } else { 0 };
    let vector = if is_wide { 24 } else { 12 };
    let mut widths = [0; N_COLUMNS];
    widths[IDS] = size_of::<i64>();
    widths[POSITIONS] = there(fields.positions, vector);
    widths[VELOCITIES] = there(fields.velocities, vector);
    widths[FORCES] = there(fields.forces, vector);
    widths[NAMES] = there(known.names, 8);
    widths[MASSES] = there(known.masses, 8);
    widths[CHARGES] = there(known.charges, 8);
    widths
}

/// Table of atoms, column by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtomTable {
    widths: Widths,
    columns: [Vec<u8>; N_COLUMNS],
}

/// Borrowed table of atoms, column by column.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub columns: [&'a [u8]; N_COLUMNS],
}

impl AtomTable {
    /// Create an empty table.
    ///
    /// # Panics
    /// If there is no column of ids.
    pub fn new(widths: Widths) -> Self {
        assert_eq!(widths[IDS], 8, "atoms without numbers");
        AtomTable {
            widths,
            columns: Default::default(),
        }
    }

    /// Number of bytes per atom of each column; 0 if the column is missing.
    pub fn widths(&self) -> &Widths {
        &self.widths
    }

    /// Number of atoms.
    pub fn len(&self) -> usize {
        self.columns[IDS].len() / 8
    }

    /// True if the table has no atom.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Remove all atoms, and set the capacity for a number of atoms.
    pub fn make_room(&mut self, n_atoms: usize) {
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            column.clear();
            column.reserve_exact(n_atoms * width);
        }
    }

    /// Try to reserve memory for a number of atoms. A failure is ignored, because the number may
    /// come from a damaged file.
    pub fn expect(&mut self, n_atoms: usize) {
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            let _ = column.try_reserve_exact(n_atoms.saturating_mul(width));
        }
    }

    /// Bytes of a column, atom after atom.
    pub fn column(&self, column: usize) -> &[u8] {
        &self.columns[column]
    }

    /// Return a column to append atoms. The caller must append the same number of atoms to each
    /// column that the table has.
    pub fn column_mut(&mut self, column: usize) -> &mut Vec<u8> {
        &mut self.columns[column]
    }

    /// Return the columns, shrunk to their size.
    pub fn into_columns(mut self) -> [Vec<u8>; N_COLUMNS] {
        self.columns.iter_mut().for_each(Vec::shrink_to_fit);
        self.columns
    }

    /// Capacity of the columns, bytes.
    pub fn capacity(&self) -> usize {
        self.columns.iter().map(Vec::capacity).sum()
    }

    /// Ids of the atoms.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = i64> {
        let (ids, _) = self.columns[IDS].as_chunks();
        ids.iter().map(|&id| i64::from_ne_bytes(id))
    }

    /// Return the ids of the atoms, copied only if the bytes are not aligned.
    pub fn id_slice(&self) -> Cow<'_, [i64]> {
        match bytemuck::try_cast_slice(&self.columns[IDS]) {
            Ok(ids) => Cow::Borrowed(ids),
            Err(_) => Cow::Owned(self.ids().collect()),
        }
    }

    /// True if all columns that the table has contain the same number of atoms.
    pub fn is_even(&self) -> bool {
        let n = self.len();
        let mut columns = self.columns.iter().zip(self.widths);
        columns.all(|(column, width)| column.len() == n * width)
    }

    /// Position of an atom, Å.
    pub fn position(&self, atom: usize) -> [f64; 3] {
        let bytes = &self.columns[POSITIONS];
        match self.widths[POSITIONS] {
            12 => {
                let numbers: [f32; 3] = bytemuck::pod_read_unaligned(&bytes[12 * atom..][..12]);
                numbers.map(f64::from)
            }
            _ => bytemuck::pod_read_unaligned(&bytes[24 * atom..][..24]),
        }
    }

    /// Set the position of an atom, Å.
    pub fn set_position(&mut self, atom: usize, position: [f64; 3]) {
        let width = self.widths[POSITIONS];
        let bytes = &mut self.columns[POSITIONS][width * atom..][..width];
        match width {
            12 => bytes.copy_from_slice(bytemuck::bytes_of(&position.map(|x| x as f32))),
            _ => bytes.copy_from_slice(bytemuck::bytes_of(&position)),
        }
    }

    /// View some atoms.
    pub fn view(&self, atoms: Range<usize>) -> View<'_> {
        View {
            columns: std::array::from_fn(|column| {
                let width = self.widths[column];
                &self.columns[column][atoms.start * width..atoms.end * width]
            }),
        }
    }

    /// Append atoms. Columns that this table lacks are ignored.
    pub fn append(&mut self, atoms: &View<'_>) {
        for (column, bytes) in atoms.columns.iter().enumerate() {
            if self.widths[column] > 0 {
                self.columns[column].extend_from_slice(bytes);
            }
        }
    }

    /// Sort the atoms by id, if necessary. This needs 8 additional bytes per atom.
    pub fn sort(&mut self) {
        if self.ids().is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        let ids = &self.columns[IDS];
        order.sort_unstable_by_key(|&atom| id_at(ids, atom));
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            match width {
                0 => {}
                8 => arrange::<8>(column, &mut order),
                12 => arrange::<12>(column, &mut order),
                24 => arrange::<24>(column, &mut order),
                width => unreachable!("no column of one's own atoms is {width} bytes wide"),
            }
        }
    }
}

fn id_at(ids: &[u8], atom: usize) -> i64 {
    bytemuck::pod_read_unaligned(&ids[8 * atom..][..8])
}

/// Bit that marks an atom already at its final index.
const DONE: usize = 1 << (usize::BITS - 1);

/// Permute a column by `order`, cycle after cycle; `order` is unchanged at the end.
fn arrange<const WIDTH: usize>(column: &mut [u8], order: &mut [usize]) {
    let (values, _) = column.as_chunks_mut::<WIDTH>();
    for first in 0..order.len() {
        if order[first] & DONE != 0 {
            continue;
        }
        let (mut place, moved) = (first, values[first]);
        loop {
            let from = order[place];
            order[place] |= DONE;
            if from == first {
                values[place] = moved;
                break;
            }
            values[place] = values[from];
            place = from;
        }
    }
    order.iter_mut().for_each(|atom| *atom &= !DONE);
}

impl View<'_> {
    /// Number of atoms.
    pub fn len(&self) -> usize {
        self.columns[IDS].len() / 8
    }

    /// The rank that owns each atom.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = u32> {
        let (owners, _) = self.columns[OWNERS].as_chunks();
        owners.iter().map(|&owner| u32::from_ne_bytes(owner))
    }
}

// Sources of a reader's atoms.

/// Divisor of the buffer size: 1/`PART` of the buffer is used for undecoded bytes.
pub const PART: usize = 8;

/// Frame of a file, for messages.
#[derive(Debug, Clone)]
pub struct Moment {
    /// File of the frame.
    pub path: PathBuf,
    /// Number of the frame, from 0.
    pub frame: u64,
}

impl Moment {
    /// Create the error for an unsupported operation on the frame.
    pub fn unsupported(&self, what: impl AsRef<str>) -> Error {
        Error::Unsupported {
            path: self.path.clone(),
            what: format!("frame {}: {}", self.frame, what.as_ref()),
        }
    }
}

/// Atoms of one frame, as decoded by one reader.
pub trait AtomSource {
    /// Append the atoms at these indices in the file (from 0) to an empty table without owners. An
    /// index yields one atom or none. Each range must follow the previous range.
    ///
    /// # Errors
    /// Any error of reading and decoding.
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> Result<()>;

    /// Return the memory in use in addition to the table, bytes.
    fn held(&self) -> usize {
        0
    }
}

// Atoms of a CONFIG or a HISTORY, with the full precision of the text.

/// Maximum number of bytes of text that are read at a time, large enough for parallel file systems.
/// `LEAST` is the minimum.
const PIECE: u64 = 4 << 20;
const LEAST: u64 = 4 << 10;

/// Number of bytes that contain the header of most frames.
const HEAD: u64 = 4096;

/// Source of the atoms of one frame, for one reader.
pub struct Text {
    source: Box<dyn Source>,
    moment: Moment,
    layout: Layout,
    head: FrameHead,
    /// Range of the frame in the file, bytes.
    frame: Range<u64>,
    /// Offset of the next atom in the frame, bytes. `place` is the index of this atom.
    at: u64,
    place: u64,
    /// Number of bytes that are read at a time.
    piece: u64,
    bytes: Vec<u8>,
}

impl Text {
    /// Open the frame in this range of the file.
    ///
    /// # Errors
    /// Any error of the source, and [`Error::Damaged`] if no frame begins there.
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

    /// Limit the text that is read at a time to 1/`PART` of `buffer` bytes, but at least `LEAST`.
    pub fn within(self, buffer: usize) -> Self {
        let part = (buffer / PART) as u64;
        Text {
            piece: part.clamp(LEAST, PIECE),
            ..self
        }
    }

    /// Return the header of the frame, which precedes the atoms.
    pub fn head(&self) -> &FrameHead {
        &self.head
    }

    /// Vectors along which the cell is periodic.
    pub fn periodic(&self) -> [bool; 3] {
        self.layout.periodic()
    }

    /// True if atoms have masses and charges.
    pub fn has_masses(&self) -> bool {
        self.layout.has_masses()
    }

    /// Move to the atom at index `place`, which must not be before the current atom.
    fn seek(&mut self, place: u64) -> Result<()> {
        match self.layout.bytes_of(place..place) {
            Some(bytes) => (self.place, self.at) = (place, bytes.start),
            None => self.walk(place, |_, _, _| Ok(()))?,
        }
        Ok(())
    }

    /// Read the atoms before the atom at `end`. Call `each` with the index, the offset and the
    /// record of every atom; the offset is relative to the bytes read.
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
            // If no atom is complete, the lines are very long, and more bytes are read at a time.
            piece = if records.is_empty() {
                2 * piece
            } else {
                self.piece
            };
            self.at += records.len() as u64;
        }
        Ok(())
    }

    /// Return the maximum number of bytes from the current offset to the atom at `end`.
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

/// Replace the blanks after a name by zeros, as in NumPy's fixed-length strings.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ids: &[i64]) -> AtomTable {
        let mut table = AtomTable::new([0, 8, 12, 0, 0, 8, 0, 0]);
        for id in ids {
            table.column_mut(IDS).extend(id.to_ne_bytes());
            let position = [*id as f32, 0.5, -1.0];
            table
                .column_mut(POSITIONS)
                .extend(position.map(f32::to_ne_bytes).as_flattened());
            table.column_mut(NAMES).extend([b'a' + *id as u8; 8]);
        }
        table
    }

    #[test]
    fn sorting_moves_whole_atoms() {
        let mut atoms = table(&[4, 6, 9, 1, 5, 2]);
        assert!(atoms.is_even());
        atoms.sort();
        assert_eq!(atoms, table(&[1, 2, 4, 5, 6, 9]));
        assert_eq!(atoms.position(2), [4.0, 0.5, -1.0]);
    }

    #[test]
    fn a_view_is_appended() {
        let mut atoms = table(&[1, 2]);
        atoms.append(&table(&[7, 8, 9]).view(1..3));
        assert_eq!(atoms, table(&[1, 2, 8, 9]));
        atoms.column_mut(NAMES).pop();
        assert!(!atoms.is_even());
    }
}
