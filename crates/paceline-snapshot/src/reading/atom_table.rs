//! Table of atoms: a column of fixed width for each property, copied and hardly ever looked into.

use std::borrow::Cow;
use std::ops::Range;

use paceline_formats::Fields;

/// The columns of a table: the rank that owns an atom (u32), its number from 1 to the number of
/// atoms (i64), three vectors (f32 or f64), its name (8 bytes, zeros at its end), mass and charge
/// (f64).
pub const OWNERS: usize = 0;
pub const IDS: usize = 1;
pub const POSITIONS: usize = 2;
pub const VELOCITIES: usize = 3;
pub const FORCES: usize = 4;
pub const NAMES: usize = 5;
pub const MASSES: usize = 6;
pub const CHARGES: usize = 7;
pub const N_COLUMNS: usize = 8;

/// Bytes of an atom in each column; 0 in those that are not there.
pub type Widths = [usize; N_COLUMNS];

/// Properties that are known of atoms beside their vectors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    pub names: bool,
    pub masses: bool,
    pub charges: bool,
}

/// Columns of what a frame holds, vectors of 64 bits where they are wide.
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

/// Atoms, column by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtomTable {
    widths: Widths,
    columns: [Vec<u8>; N_COLUMNS],
}

/// Atoms, column by column, that somebody else holds.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub columns: [&'a [u8]; N_COLUMNS],
}

impl AtomTable {
    /// No atoms.
    ///
    /// # Panics
    /// If ids have no column.
    pub fn new(widths: Widths) -> Self {
        assert_eq!(widths[IDS], 8, "atoms without numbers");
        AtomTable {
            widths,
            columns: Default::default(),
        }
    }

    pub fn widths(&self) -> &Widths {
        &self.widths
    }

    /// Number of atoms.
    pub fn len(&self) -> usize {
        self.columns[IDS].len() / 8
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No atoms any more, and room for so many, not more.
    pub fn make_room(&mut self, n_atoms: usize) {
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            column.clear();
            column.reserve_exact(n_atoms * width);
        }
    }

    /// Reserve memory for so many atoms, where there is as much: a file may claim any number.
    pub fn expect(&mut self, n_atoms: usize) {
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            let _ = column.try_reserve_exact(n_atoms.saturating_mul(width));
        }
    }

    pub fn column(&self, column: usize) -> &[u8] {
        &self.columns[column]
    }

    /// Return a column to append further atoms to: as many to each column that is there.
    pub fn column_mut(&mut self, column: usize) -> &mut Vec<u8> {
        &mut self.columns[column]
    }

    /// The columns, with no more room than they need.
    pub fn into_columns(mut self) -> [Vec<u8>; N_COLUMNS] {
        self.columns.iter_mut().for_each(Vec::shrink_to_fit);
        self.columns
    }

    /// Bytes that the columns have room for.
    pub fn capacity(&self) -> usize {
        self.columns.iter().map(Vec::capacity).sum()
    }

    /// Numbers of the atoms.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = i64> {
        let (ids, _) = self.columns[IDS].as_chunks();
        ids.iter().map(|&id| i64::from_ne_bytes(id))
    }

    /// The same, copied only where they do not lie as numbers do.
    pub fn id_slice(&self) -> Cow<'_, [i64]> {
        match bytemuck::try_cast_slice(&self.columns[IDS]) {
            Ok(ids) => Cow::Borrowed(ids),
            Err(_) => Cow::Owned(self.ids().collect()),
        }
    }

    /// True if all columns that are there have as many atoms.
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

    /// Some atoms.
    pub fn view(&self, atoms: Range<usize>) -> View<'_> {
        View {
            columns: std::array::from_fn(|column| {
                let width = self.widths[column];
                &self.columns[column][atoms.start * width..atoms.end * width]
            }),
        }
    }

    /// Append atoms, without columns that this table does not have.
    pub fn append(&mut self, atoms: &View<'_>) {
        for (column, bytes) in atoms.columns.iter().enumerate() {
            if self.widths[column] > 0 {
                self.columns[column].extend_from_slice(bytes);
            }
        }
    }

    /// Put the atoms in the order of their numbers, where they are in another. Beside them it takes
    /// 8 bytes an atom: each goes to its place by itself.
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

/// Marks an atom that is where it belongs.
const DONE: usize = 1 << (usize::BITS - 1);

/// Fill each place with the value that `order` names, circle after circle; the order stays.
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
