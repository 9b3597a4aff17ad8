//! Encoder of CONFIG, REVCON and HISTORY as DL_POLY_4 and DL_POLY_5 write them: in records of 72
//! characters and a line feed.
//!
//! ```text
//! CONFIG    title                                  a72
//!           levcfg, imcon, atoms, step, Δt, time   4i10,1p,2e16.7
//!           cell, where imcon is not 0             3 records of 3f20.10
//! HISTORY   title                                  a72
//!           keytrj, imcon, atoms, frames, records  3i10,2i21
//! frame     "timestep", step, atoms, keytrj, imcon, Δt, time   a8,2i10,2i2,2f20.6
//!           cell                                   3 records of 3f20.10
//! atom      name, id                               a8,i10
//!           in HISTORY also mass, charge, displacement         3f12.6
//!           position, velocity, force              1 to 3 records of 3g20.10
//! ```
//!
//! Lengths are in Å, times in ps, masses in Da, charges in e, forces in Da·Å/ps² (see [`FORCE`]).
//! DL_POLY reads the cell of every frame of a HISTORY, even if imcon is 0; the cell is then written
//! as zeros.

use crate::Fields;
use crate::fortran_numbers::{e16_7, f, g20_10, i};

#[cfg(test)]
mod tests;

/// Size of a record including the line feed, bytes.
pub const RECORD: usize = 73;

/// Number of characters of a record before the line feed.
const LINE: usize = RECORD - 1;

/// Factor from kJ/(mol·Å) to DL_POLY's unit of force, Da·Å/ps², which is 0.01 kJ/(mol·Å).
pub const FORCE: f64 = 100.0;

/// Three vectors of a cell, Å.
pub type Cell = [[f64; 3]; 3];

/// Return levcfg of a CONFIG, or keytrj of a HISTORY: 0 for positions, 1 for positions and
/// velocities, 2 for positions, velocities and forces.
///
/// # Errors
/// A message if no level has these fields.
pub fn level(fields: Fields) -> Result<usize, String> {
    match (fields.positions, fields.velocities, fields.forces) {
        (true, false, false) => Ok(0),
        (true, true, false) => Ok(1),
        (true, true, true) => Ok(2),
        (true, false, true) => Err("DL_POLY's files hold forces only beside velocities".into()),
        (false, ..) => Err("DL_POLY's files hold nothing without positions".into()),
    }
}

/// Return DL_POLY's code for the periodic boundary of a cell: 0 none, 1 cubic, 2 orthorhombic, 3
/// any parallelepiped.
///
/// # Errors
/// A message if the vectors span no volume, or are not finite.
pub fn imcon(cell: Option<&Cell>) -> Result<i64, String> {
    let Some(cell @ &[[ax, ay, az], [bx, by, bz], [cx, cy, cz]]) = cell else {
        return Ok(0);
    };
    let volume = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx);
    if volume == 0.0 || !volume.is_finite() {
        return Err(format!(
            "expected cell vectors that span a volume, found {cell:?}"
        ));
    }
    let rectangular = [ay, az, bx, bz, cx, cy] == [0.0; 6] && [ax, by, cz].iter().all(|&x| x > 0.0);
    Ok(match rectangular {
        true if ax == by && by == cz => 1,
        true => 2,
        false => 3,
    })
}

// Records of one atom.

/// Size of the records of one atom, bytes.
pub fn atom_size(level: usize) -> usize {
    (2 + level) * RECORD
}

/// Content of the records of one atom.
#[derive(Debug, Clone, Copy)]
pub struct Atom<'a> {
    /// Id, from 1.
    pub id: u64,
    /// Name, padded with blanks or zeros.
    pub name: [u8; 8],
    /// Mass, Da.
    pub mass: f64,
    /// Charge, e.
    pub charge: f64,
    /// Position (Å) and, depending on the level, velocity (Å/ps) and force (DL_POLY's unit).
    pub vectors: &'a [[f64; 3]],
}

impl Atom<'_> {
    /// Refuse values that a CONFIG cannot represent.
    ///
    /// # Errors
    /// A message that states the expected and the found value, but not the atom.
    pub fn check_config(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if id(self.id).is_none() {
            let found = self.id;
            return Err(format!("expected an id of up to 10 digits, found {found}"));
        }
        for (vector, one) in self.vectors.iter().zip(["position", "velocity", "force"]) {
            if let Some(value) = vector.iter().find(|value| !value.is_finite()) {
                return Err(format!("expected a finite {one}, found {value}"));
            }
        }
        Ok(())
    }

    /// Refuse values that a HISTORY cannot represent.
    ///
    /// # Errors
    /// As [`Atom::check_config`].
    pub fn check_history(&self) -> Result<(), String> {
        self.check_config()?;
        for (value, one) in [(self.mass, "mass"), (self.charge, "charge")] {
            if f::<12, 6>(value).is_none() {
                return Err(format!(
                    "the {one}, {value:?}, does not fit in 12 columns with 6 decimals"
                ));
            }
        }
        Ok(())
    }

    /// Write the records of an atom in a CONFIG to `bytes`, which has [`atom_size`] bytes.
    pub fn put_config(&self, bytes: &mut [u8]) {
        self.put(bytes, |_| {});
    }

    /// Write the records of an atom in a HISTORY to `bytes`, which has [`atom_size`] bytes. The
    /// displacement is written as 0, because only DL_POLY knows the initial position.
    pub fn put_history(&self, bytes: &mut [u8]) {
        self.put(bytes, |record| {
            for (column, value) in [(18, self.mass), (30, self.charge), (42, 0.0)] {
                // Unchecked values that do not fit become stars, as in Fortran.
                let text = f::<12, 6>(value).unwrap_or([b'*'; 12]);
                record[column..column + 12].copy_from_slice(&text);
            }
        });
    }

    fn put(&self, bytes: &mut [u8], put_more: impl FnOnce(&mut [u8; RECORD])) {
        let (records, _) = bytes.as_chunks_mut::<RECORD>();
        let Some((first, others)) = records.split_first_mut() else {
            return;
        };
        *first = BLANK;
        for (column, &character) in first.iter_mut().zip(&self.name) {
            *column = if character == 0 { b' ' } else { character };
        }
        first[8..18].copy_from_slice(&id(self.id).unwrap_or([b'*'; 10]));
        put_more(first);
        for (record, vector) in others.iter_mut().zip(self.vectors) {
            put_vector(record, vector);
        }
    }
}

/// Record of blanks and a line feed.
const BLANK: [u8; RECORD] = {
    let mut record = [b' '; RECORD];
    record[LINE] = b'\n';
    record
};

fn put_vector(record: &mut [u8; RECORD], vector: &[f64; 3]) {
    *record = BLANK;
    let (columns, _) = record.as_chunks_mut();
    for (column, &value) in columns.iter_mut().zip(vector) {
        *column = g20_10(value);
    }
}

/// Refuse names that are not a single word, because readers would misinterpret them.
fn check_name(name: &[u8; 8]) -> Result<(), String> {
    let ends = |&&character: &&u8| character == b' ' || character == 0;
    let len = 8 - name.iter().rev().take_while(ends).count();
    if len > 0 && name[..len].iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    let found = name[..len].escape_ascii();
    Err(format!(
        "expected a name of 1 to 8 printable ASCII characters without blanks, found \"{found}\""
    ))
}

fn id(id: u64) -> Option<[u8; 10]> {
    i::<10>(id.try_into().ok()?)
}

// Headers of files and of frames.

/// Step number, time and cell of a frame, for its header.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Step number of the simulation.
    pub step: i64,
    /// Length of a simulation step, ps.
    pub dt: f64,
    /// Time, ps.
    pub time: f64,
    /// Cell; `None` if the system is not periodic.
    pub cell: Option<&'a Cell>,
}

/// Create the header of a CONFIG: all records before the first atom.
///
/// # Errors
/// A message if the title is invalid, a number does not fit into its columns, or the cell spans no
/// volume.
pub fn config_head(
    title: &str,
    level: usize,
    n_atoms: u64,
    moment: &Moment<'_>,
) -> Result<Vec<u8>, String> {
    let mut bytes = title_record(title)?;
    let mut line = Line::default();
    line.integer::<10>("level", level as u64)?;
    line.integer::<10>("imcon", imcon(moment.cell)?)?;
    line.integer::<10>("number of atoms", n_atoms)?;
    line.integer::<10>("step", moment.step)?;
    for (what, value) in [("time step", moment.dt), ("time", moment.time)] {
        if !value.is_finite() {
            return Err(format!("expected a finite {what}, found {value}"));
        }
        line.text(&e16_7(value));
    }
    bytes.extend(line.record());
    if let Some(cell) = moment.cell {
        bytes.extend(cell_records(cell)?);
    }
    Ok(bytes)
}

/// Create the header of a HISTORY: all records before the first frame. `imcon` is that of the first
/// frame.
///
/// # Errors
/// A message if the title is invalid, or a number does not fit into its columns.
pub fn history_head(
    title: &str,
    level: usize,
    imcon: i64,
    n_atoms: u64,
    n_frames: u64,
) -> Result<Vec<u8>, String> {
    let mut bytes = title_record(title)?;
    let n_records = n_records(level, n_atoms, n_frames)
        .ok_or_else(|| format!("a HISTORY holds no {n_frames} frames of {n_atoms} atoms"))?;
    let mut line = Line::default();
    line.integer::<10>("level", level as u64)?;
    line.integer::<10>("imcon", imcon)?;
    line.integer::<10>("number of atoms", n_atoms)?;
    line.integer::<21>("number of frames", n_frames)?;
    line.integer::<21>("number of records", n_records)?;
    bytes.extend(line.record());
    Ok(bytes)
}

/// Return the number of records of a HISTORY, including its header.
fn n_records(level: usize, n_atoms: u64, n_frames: u64) -> Option<u64> {
    let atoms = n_atoms.checked_mul(2 + level as u64)?;
    atoms.checked_add(4)?.checked_mul(n_frames)?.checked_add(2)
}

/// Create the header of a frame in a HISTORY: all records before the first atom.
///
/// # Errors
/// A message if a number does not fit into its columns, or the cell spans no volume.
pub fn frame_head(level: usize, n_atoms: u64, moment: &Moment<'_>) -> Result<Vec<u8>, String> {
    let mut line = Line::default();
    line.text(b"timestep");
    line.integer::<10>("step", moment.step)?;
    line.integer::<10>("number of atoms", n_atoms)?;
    line.integer::<2>("level", level as u64)?;
    line.integer::<2>("imcon", imcon(moment.cell)?)?;
    line.real::<20, 6>("time step", moment.dt)?;
    line.real::<20, 6>("time", moment.time)?;
    let mut bytes = line.record();
    bytes.extend(cell_records(moment.cell.unwrap_or(&[[0.0; 3]; 3]))?);
    Ok(bytes)
}

fn title_record(title: &str) -> Result<Vec<u8>, String> {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if title.len() > LINE || !title.bytes().all(printable) {
        return Err(format!(
            "expected a title of up to {LINE} printable ASCII characters, found {title:?}"
        ));
    }
    let mut line = Line::default();
    line.text(title.as_bytes());
    Ok(line.record())
}

fn cell_records(cell: &Cell) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(3 * RECORD);
    for vector in cell {
        let mut line = Line::default();
        for &value in vector {
            line.real::<20, 10>("cell vector", value)?;
        }
        bytes.extend(line.record());
    }
    Ok(bytes)
}

/// Record that is filled column by column.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    fn text(&mut self, text: &[u8]) {
        self.0.extend(text);
    }

    fn integer<const WIDTH: usize>(
        &mut self,
        what: &str,
        value: impl TryInto<i64> + ToString + Copy,
    ) -> Result<(), String> {
        let text = value.try_into().ok().and_then(i::<WIDTH>).ok_or_else(|| {
            let found = value.to_string();
            format!("the {what}, {found}, does not fit in {WIDTH} columns")
        })?;
        self.text(&text);
        Ok(())
    }

    fn real<const WIDTH: usize, const DECIMALS: usize>(
        &mut self,
        what: &str,
        value: f64,
    ) -> Result<(), String> {
        let text = f::<WIDTH, DECIMALS>(value).ok_or_else(|| {
            format!(
                "the {what}, {value:?}, does not fit in {WIDTH} columns with {DECIMALS} decimals"
            )
        })?;
        self.text(&text);
        Ok(())
    }

    /// Return the record, padded with blanks.
    fn record(mut self) -> Vec<u8> {
        self.0.resize(LINE, b' ');
        self.0.push(b'\n');
        self.0
    }
}
