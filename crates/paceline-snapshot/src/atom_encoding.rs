//! Encoding of an atom in each format.

use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::{self, Atom, FORCE};

use crate::{Atoms, Batch, Records, Vectors};

// Numbers of an atom in files of arrays: H5MD, NetCDF, DCD.

/// Type of a stored number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// Single precision, 4 bytes.
    F4 {
        /// True for big-endian byte order.
        big_endian: bool,
    },
    /// Double precision, 8 bytes.
    F8 {
        /// True for big-endian byte order.
        big_endian: bool,
    },
}

impl Float {
    /// Parse NumPy's name of the type: `<f4`, `>f4`, `<f8`, `>f8`.
    pub fn from_name(name: &str) -> Option<Self> {
        let big_endian = name.starts_with('>');
        match name {
            "<f4" | ">f4" => Some(Float::F4 { big_endian }),
            "<f8" | ">f8" => Some(Float::F8 { big_endian }),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Float::F4 { .. } => 4,
            Float::F8 { .. } => 8,
        }
    }

    /// Return true if a finite number stays finite in this type.
    fn holds(self, value: f64) -> bool {
        match self {
            Float::F4 { .. } => (value as f32).is_finite(),
            Float::F8 { .. } => value.is_finite(),
        }
    }

    fn put(self, value: f64, bytes: &mut [u8]) {
        match self {
            Float::F4 { big_endian: false } => {
                bytes.copy_from_slice(&(value as f32).to_le_bytes());
            }
            Float::F4 { big_endian: true } => bytes.copy_from_slice(&(value as f32).to_be_bytes()),
            Float::F8 { big_endian: false } => bytes.copy_from_slice(&value.to_le_bytes()),
            Float::F8 { big_endian: true } => bytes.copy_from_slice(&value.to_be_bytes()),
        }
    }
}

/// Encoding of vectors as arrays: one section per field, or one section per coordinate.
#[derive(Debug, Clone)]
pub struct Arrays {
    fields: Fields,
    float: Float,
    /// Factors that convert positions, velocities and forces to the units of the file.
    factors: [f64; 3],
    /// Field of each section. If the section contains only one coordinate, also the index of this
    /// coordinate.
    contents: Vec<(usize, Option<usize>)>,
    sizes: Vec<usize>,
}

impl Arrays {
    /// Create one section for each of `fields`.
    pub fn new(fields: Fields, float: Float, factors: [f64; 3]) -> Self {
        let vectors = [fields.positions, fields.velocities, fields.forces];
        let written = (0..3).filter(|&vector| vectors[vector]);
        let contents: Vec<_> = written.map(|vector| (vector, None)).collect();
        Arrays {
            fields,
            float,
            factors,
            sizes: vec![3 * float.size(); contents.len()],
            contents,
        }
    }

    /// Create sections of all x, all y and all z of the positions, as in DCD.
    pub fn coordinates(float: Float) -> Self {
        Arrays {
            fields: Fields::POSITIONS,
            float,
            factors: [1.0; 3],
            contents: (0..3).map(|axis| (0, Some(axis))).collect(),
            sizes: vec![float.size(); 3],
        }
    }

    /// Refuse a vector that would not be finite in the file.
    fn check_vector(&self, found: [f64; 3], vector: usize, one: &str) -> Result<(), String> {
        for value in found {
            if !value.is_finite() {
                return Err(format!("expected a finite {one}, found {value}"));
            }
            let stored = value * self.factors[vector];
            if !self.float.holds(stored) {
                return Err(format!(
                    "expected a {one} that fits in {} bytes, found {value:?}",
                    self.float.size()
                ));
            }
        }
        Ok(())
    }

    /// Return true if all numbers certainly stay finite in the file. Then none is checked
    /// separately.
    fn fit(&self, vectors: &Vectors<'_>, vector: usize) -> bool {
        let same = matches!(vectors, Vectors::F32(_)) || self.float.size() == 8;
        same && self.factors[vector].abs() <= 1.0 && all_finite(vectors)
    }
}

impl Records for Arrays {
    fn sections(&self) -> &[usize] {
        &self.sizes
    }

    fn fields(&self) -> Fields {
        self.fields
    }

    fn has_names(&self) -> bool {
        false
    }

    fn has_masses(&self) -> bool {
        false
    }

    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)> {
        let written = [
            self.fields.positions,
            self.fields.velocities,
            self.fields.forces,
        ];
        for (k, (one, vectors)) in atoms.vectors().into_iter().enumerate() {
            let Some(vectors) = vectors.filter(|_| written[k]) else {
                continue;
            };
            if self.fit(&vectors, k) {
                continue;
            }
            for atom in 0..atoms.len() {
                self.check_vector(vectors.get(atom), k, one)
                    .map_err(|reason| (atom, reason))?;
            }
        }
        Ok(())
    }

    fn put(&self, section: usize, batch: &Batch<'_>, bytes: &mut [u8]) {
        let (vector, axis) = self.contents[section];
        let get = match vector {
            0 => Batch::position,
            1 => Batch::velocity,
            _ => Batch::force,
        };
        let axes = axis.map_or(0..3, |axis| axis..axis + 1);
        let factor = self.factors[vector];
        let numbers = bytes.chunks_exact_mut(self.sizes[section]);
        for (k, bytes) in numbers.enumerate() {
            let values = get(batch, k);
            let values = axes.clone().map(|axis| values[axis] * factor);
            for (value, bytes) in values.zip(bytes.chunks_exact_mut(self.float.size())) {
                self.float.put(value, bytes);
            }
        }
    }
}

// Check for numbers that are not finite.

/// Return true if all numbers are finite. The expression x − x is 0 for finite x, and NaN
/// otherwise, so that the loop needs no branches.
#[expect(clippy::eq_op, reason = "not equal where x is NaN or infinite")]
pub fn all_finite(vectors: &Vectors<'_>) -> bool {
    match vectors {
        Vectors::F32(values) => values.iter().fold(0, |odd, x| odd | (x - x).to_bits()) == 0,
        Vectors::F64(values) => values.iter().fold(0, |odd, x| odd | (x - x).to_bits()) == 0,
    }
}

// Lines of an atom in DL_POLY's files.

/// Magnitude below which a number fits into 12 columns with 6 decimals and a sign.
const SURE_TO_FIT: f64 = 9999.0;

/// Format of CONFIG and HISTORY, in which the lines of an atom are adjacent.
#[derive(Debug, Clone)]
pub struct Text {
    history: bool,
    level: usize,
    size: [usize; 1],
}

impl Text {
    /// # Errors
    /// A message if these files cannot contain this combination of fields.
    pub fn new(history: bool, fields: Fields) -> Result<Self, String> {
        let level = encode::level(fields)?;
        Ok(Text {
            history,
            level,
            size: [encode::atom_size(level)],
        })
    }

    /// Return true if all atoms certainly fit into their lines. This is faster than a check of each
    /// atom.
    fn fit(&self, atoms: &Atoms<'_>) -> bool {
        let vectors = atoms.vectors();
        let mut written = vectors.iter().take(1 + self.level);
        // A finite force in single precision stays finite in DL_POLY's unit.
        let large = |vectors: &Vectors<'_>| match vectors {
            Vectors::F32(_) => false,
            Vectors::F64(values) => values
                .iter()
                .fold(false, |odd, x| odd | (x.abs() > f64::MAX / FORCE)),
        };
        let numbers = |numbers: Option<&[f64]>| {
            let fits = |fits: bool, x: &f64| fits & (x.abs() < SURE_TO_FIT);
            !self.history || numbers.is_none_or(|numbers| numbers.iter().fold(true, fits))
        };
        written.all(|(_, vectors)| vectors.is_none_or(|vectors| all_finite(&vectors)))
            && !atoms.forces.as_ref().is_some_and(large)
            && atoms.ids.iter().all(|&id| id < 10_000_000_000)
            && atoms.names.is_some_and(|names| names.iter().all(is_word))
            && numbers(atoms.masses)
            && numbers(atoms.charges)
    }

    fn each<T>(&self, batch: &Batch<'_>, k: usize, function: impl FnOnce(&Atom<'_>) -> T) -> T {
        let force = batch.force(k).map(|value| FORCE * value);
        let vectors = [batch.position(k), batch.velocity(k), force];
        function(&Atom {
            id: batch.id(k),
            name: batch.name(k),
            mass: batch.mass(k),
            charge: batch.charge(k),
            vectors: &vectors[..=self.level],
        })
    }
}

/// Return true if a name consists of printable characters, followed only by blanks or zeros. All
/// eight characters are tested at once, since the test runs for every atom of every frame.
pub(crate) fn is_word(name: &[u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let name = u64::from_le_bytes(*name);
    // Set the highest bit of each byte that is at least `first`.
    let from = |first: u8| (name & !HIGH) + ONES * u64::from(0x80 - first);
    let printable = from(b'!') & !from(0x7f) & !name & HIGH;
    let word = (printable >> 7) * 0xff;
    let end = name & !word & !(ONES * u64::from(b' '));
    word != 0 && word & word.wrapping_add(1) == 0 && end == 0
}

impl Records for Text {
    fn sections(&self) -> &[usize] {
        &self.size
    }

    fn fields(&self) -> Fields {
        Fields {
            positions: true,
            velocities: self.level > 0,
            forces: self.level > 1,
        }
    }

    fn has_names(&self) -> bool {
        true
    }

    fn has_masses(&self) -> bool {
        self.history
    }

    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)> {
        if self.fit(atoms) {
            return Ok(());
        }
        let batch = Batch::from(atoms);
        let check = |atom: &Atom<'_>| match self.history {
            true => atom.check_history(),
            false => atom.check_config(),
        };
        (0..batch.len()).try_for_each(|k| self.each(&batch, k, check).map_err(|reason| (k, reason)))
    }

    fn put(&self, _section: usize, batch: &Batch<'_>, bytes: &mut [u8]) {
        let [size] = self.size;
        for (k, bytes) in bytes.chunks_exact_mut(size).enumerate() {
            self.each(batch, k, |atom| match self.history {
                true => atom.put_history(bytes),
                false => atom.put_config(bytes),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_word;

    #[test]
    fn words_are_told_from_others() {
        let plain = |name: &[u8; 8]| {
            let n = name.iter().take_while(|c| c.is_ascii_graphic()).count();
            n > 0 && name[n..].iter().all(|&c| c == b' ' || c == 0)
        };
        // Test every character at each index of names whose characters are at the limits.
        let borders = [
            b"Na+     ",
            b"Cl-\0\0\0\0\0",
            b"!~!~!~!~",
            b"A\0B     ",
            b"        ",
        ];
        for name in borders {
            assert_eq!(is_word(name), plain(name), "{name:?}");
            for at in 0..8 {
                for character in 0..=255 {
                    let mut name = *name;
                    name[at] = character;
                    assert_eq!(is_word(&name), plain(&name), "{name:?}");
                }
            }
        }
    }
}
