//! The records of one atom.

use super::{LINE, RECORD};
use crate::fortran::{f, g20_10, i};

/// Bytes of an atom.
pub fn atom_size(level: usize) -> usize {
    (2 + level) * RECORD
}

/// What the records of one atom say.
#[derive(Debug, Clone, Copy)]
pub struct Atom<'a> {
    /// From 1.
    pub id: u64,
    /// Filled up with blanks or zeros.
    pub name: [u8; 8],
    /// Da.
    pub mass: f64,
    /// e.
    pub charge: f64,
    /// Position (Å) and, as the level has them, velocity (Å/ps) and force (DL_POLY's unit).
    pub vectors: &'a [[f64; 3]],
}

impl Atom<'_> {
    /// Refuse what a CONFIG cannot say of an atom.
    ///
    /// # Errors
    /// What was expected and what was found, in a sentence that leaves out the atom.
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

    /// Refuse what a HISTORY cannot say of an atom.
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

    /// Write the atom's records of a CONFIG over `bytes`, of which there are [`atom_size`].
    pub fn put_config(&self, bytes: &mut [u8]) {
        self.put(bytes, |_| {});
    }

    /// Write the atom's records of a HISTORY over `bytes`, of which there are [`atom_size`]. The
    /// displacement, since a start that only DL_POLY knows, is 0.
    pub fn put_history(&self, bytes: &mut [u8]) {
        self.put(bytes, |record| {
            for (column, value) in [(18, self.mass), (30, self.charge), (42, 0.0)] {
                // Stars, as Fortran's, stand for what was not checked before.
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

/// A record of blanks.
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

/// Refuse names that are not one word, which readers would take for something else.
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
