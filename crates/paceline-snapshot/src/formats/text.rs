//! Lines of an atom in DL_POLY's files.

use super::finite::all_finite;
use crate::{Atoms, Batch, Records, Vectors};
use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::{self, Atom, FORCE};

/// Magnitudes below it fit in 12 columns with 6 decimals, with a sign too.
const SURE_TO_FIT: f64 = 9999.0;

/// CONFIG or HISTORY: an atom's lines stand together.
#[derive(Debug, Clone)]
pub struct Text {
    history: bool,
    level: usize,
    size: [usize; 1],
}

impl Text {
    /// # Errors
    /// Fields that these files do not hold together, in a sentence.
    pub fn new(history: bool, fields: Fields) -> Result<Self, String> {
        let level = encode::level(fields)?;
        Ok(Text {
            history,
            level,
            size: [encode::atom_size(level)],
        })
    }

    /// Whether all atoms surely fit, seen without a look at each number by itself.
    fn fit(&self, atoms: &Atoms<'_>) -> bool {
        let vectors = atoms.vectors();
        let mut written = vectors.iter().take(1 + self.level);
        // A force in DL_POLY's unit is finite where it had 32 bits before.
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

/// Whether a name has printable characters at first, and only blanks or zeros after them. It looks
/// at all eight at once, for this is done of every atom of every frame.
fn is_word(name: &[u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let name = u64::from_le_bytes(*name);
    // Sets the highest bit of bytes that are not below a character.
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
        // All characters in all places, beside those at the borders.
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
