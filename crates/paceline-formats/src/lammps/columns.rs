//! The columns of atoms: which of their words are read, and what becomes of them.

use super::layout::{Ids, Layout};
use crate::Fields;
use crate::error::Fault;
use crate::fortran_text::{take_integer, take_real};
use crate::text_lines::{quoted, words};

/// Names of columns of positions, in the order in which MDAnalysis prefers them.
const POSITIONS: [[&str; 3]; 4] = [
    ["x", "y", "z"],
    ["xs", "ys", "zs"],
    ["xu", "yu", "zu"],
    ["xsu", "ysu", "zsu"],
];
const VELOCITIES: [&str; 3] = ["vx", "vy", "vz"];
const FORCES: [&str; 3] = ["fx", "fy", "fz"];

/// The columns that are read, by their places in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// Words of a line.
    pub n: usize,
    pub id: Option<usize>,
    /// Number of these columns of positions, in the order in which they are preferred.
    pub convention: u8,
    positions: [usize; 3],
    velocities: Option<[usize; 3]>,
    forces: Option<[usize; 3]>,
}

impl Columns {
    /// Parse what stands behind "ITEM: ATOMS"; nothing where there are no positions.
    pub fn parse(line: &[u8]) -> Option<Columns> {
        let names: Vec<&[u8]> = words(line).collect();
        // Of columns with one name, MDAnalysis takes the last.
        let place = |name: &str| names.iter().rposition(|&found| found == name.as_bytes());
        let three = |[x, y, z]: [&str; 3]| Some([place(x)?, place(y)?, place(z)?]);
        let mut found = POSITIONS.into_iter().map(three).zip(0..);
        let found = found.find_map(|(places, convention)| Some((convention, places?)));
        let (convention, positions) = found?;
        Some(Columns {
            n: names.len(),
            id: place("id"),
            convention,
            positions,
            velocities: three(VELOCITIES),
            forces: three(FORCES),
        })
    }

    /// Check that atoms have what those of the first frame have.
    ///
    /// # Errors
    /// Description of what was expected.
    pub fn check_like(&self, layout: &Layout) -> Result<(), String> {
        if self.convention != layout.convention {
            let names = convention_name(layout.convention);
            return Err(format!(
                "positions in columns {names}, as in the first frame"
            ));
        }
        let (has_ids, fields) = (layout.ids != Ids::None, layout.fields);
        match (has_ids, self.id) {
            (true, None) => return Err("a column id, as in the first frame".into()),
            (false, Some(_)) => return Err("no column id, as in the first frame".into()),
            _ => {}
        }
        if let Some(field) = fields.beyond(self.fields()) {
            return Err(format!("columns of {field}, as in the first frame"));
        }
        match self.fields().beyond(fields) {
            Some(field) => Err(format!("no columns of {field}, as in the first frame")),
            None => Ok(()),
        }
    }

    /// True for positions in parts of the cell's vectors.
    pub fn is_scaled(&self) -> bool {
        matches!(self.convention, 1 | 3)
    }

    pub fn fields(&self) -> Fields {
        Fields {
            positions: true,
            velocities: self.velocities.is_some(),
            forces: self.forces.is_some(),
        }
    }

    /// Parse the number of the atom of a line.
    ///
    /// # Errors
    /// [`Fault::Bad`] for no whole number above 0.
    pub fn id_of(&self, at: usize, line: &[u8]) -> Result<Option<u64>, Fault> {
        let Some(column) = self.id else {
            return Ok(None);
        };
        let mut rest = after_words(line, column);
        let id = take_integer(&mut rest).and_then(|id| u64::try_from(id).ok());
        match id.filter(|&id| id > 0) {
            Some(id) => Ok(Some(id)),
            None => {
                let expected = format!("an atom's id in column {}, from 1 on", column + 1);
                Err(Fault::bad(at, expected, quoted(line)))
            }
        }
    }

    /// The numbers that are read of each line.
    pub fn wanted(&self, wanted: Fields) -> WantedColumns {
        let chosen = [
            wanted.positions.then_some(self.positions),
            self.velocities.filter(|_| wanted.velocities),
            self.forces.filter(|_| wanted.forces),
        ];
        let slots = chosen.into_iter().enumerate().flat_map(|(field, places)| {
            let places = places.into_iter().flatten().enumerate();
            places.map(move |(axis, place)| (place, 3 * field + axis))
        });
        let mut columns: Vec<(usize, usize)> = slots.collect();
        columns.sort_unstable();
        WantedColumns { columns, n: self.n }
    }
}

/// Number of ways to give positions.
pub const N_CONVENTIONS: u8 = POSITIONS.len() as u8;

/// Names of columns of positions.
pub fn convention_name(convention: u8) -> String {
    let names = POSITIONS.get(usize::from(convention));
    names.map_or_else(String::new, |names| names.join(" "))
}

/// Words for the columns of which a frame must have some.
pub fn names_of_positions() -> String {
    let names = POSITIONS.map(|names| names.join(" ")).join(", ");
    format!("columns of positions ({names})")
}

/// The numbers that are read of each line: columns in their order, and where their numbers go.
#[derive(Debug)]
pub struct WantedColumns {
    columns: Vec<(usize, usize)>,
    /// Words of a line.
    n: usize,
}

impl WantedColumns {
    /// Position, velocity and force of an atom, of which those that are not wanted are 0.
    ///
    /// # Errors
    /// [`Fault::Bad`] for a word that is no number, and for another number of words.
    pub fn read(&self, at: usize, line: &[u8]) -> Result<[f64; 9], Fault> {
        let mut numbers = [0.0; 9];
        let (mut rest, mut n) = (line, 0);
        for &(place, slot) in &self.columns {
            rest = after_words(rest, place - n);
            let Some(number) = take_real(&mut rest) else {
                let expected = format!("a number in column {}", place + 1);
                return Err(Fault::bad(at, expected, quoted(line)));
            };
            numbers[slot] = number;
            n = place + 1;
        }
        match n + words(rest).count() {
            found if found == self.n => Ok(numbers),
            found => {
                let expected = format!("an atom of {} columns", self.n);
                let found = format!("{found}: {}", quoted(line));
                Err(Fault::bad(at, expected, found))
            }
        }
    }
}

/// What stands behind the first `n` words of a line.
fn after_words(mut line: &[u8], n: usize) -> &[u8] {
    for _ in 0..n {
        line = line.trim_ascii_start();
        let len = line.iter().position(u8::is_ascii_whitespace);
        line = &line[len.unwrap_or(line.len())..];
    }
    line
}
