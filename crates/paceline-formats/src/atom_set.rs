//! Set of the wanted atoms of a frame.

use crate::error::{Error, Result};

/// Set of atom indices below `n_total`, strictly increasing.
///
/// Because they increase, a decoder reads a frame once, from front to back. A caller that needs
/// another order of atoms, or duplicates, rearranges the columns of the decoded block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Atoms {
    n_total: usize,
    /// First atom and number of atoms of each maximal run of consecutive indices.
    runs: Vec<(usize, usize)>,
    len: usize,
}

impl Atoms {
    /// Create the set of all `n_total` atoms.
    pub fn all(n_total: usize) -> Self {
        Atoms {
            n_total,
            runs: if n_total == 0 {
                Vec::new()
            } else {
                vec![(0, n_total)]
            },
            len: n_total,
        }
    }

    /// # Errors
    /// [`Error::Argument`] if the indices do not increase strictly, or an index is `n_total` or
    /// larger.
    pub fn new(indices: &[usize], n_total: usize) -> Result<Self> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for &index in indices {
            if index >= n_total {
                return Err(Error::Argument(format!(
                    "atom index {index} is out of range for {n_total} atoms"
                )));
            }
            match runs.last_mut() {
                Some((first, n)) if index == *first + *n => *n += 1,
                Some((first, n)) if index < *first + *n => {
                    return Err(Error::Argument(format!(
                        "atom indices must increase strictly; {index} does not"
                    )));
                }
                _ => runs.push((index, 1)),
            }
        }
        Ok(Atoms {
            n_total,
            runs,
            len: indices.len(),
        })
    }

    /// Return these atoms if `wanted` is true, else an empty set.
    #[must_use]
    pub fn only_if(self, wanted: bool) -> Self {
        match wanted {
            true => self,
            false => Atoms {
                n_total: self.n_total,
                runs: Vec::new(),
                len: 0,
            },
        }
    }

    /// Number of wanted atoms.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no atom is wanted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if all atoms of a frame are wanted.
    pub fn is_all(&self) -> bool {
        self.len == self.n_total
    }

    /// Number of atoms in a whole frame.
    pub fn n_total(&self) -> usize {
        self.n_total
    }

    /// Return the index after the last wanted atom. Bytes of atoms from this index on need not be
    /// read.
    pub fn end(&self) -> usize {
        self.runs.last().map_or(0, |&(first, n)| first + n)
    }

    /// First atom and number of atoms of each maximal run of consecutive indices.
    pub fn runs(&self) -> &[(usize, usize)] {
        &self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_form_runs() {
        let atoms = Atoms::new(&[0, 1, 2, 7, 9, 10], 11).unwrap();
        assert_eq!(atoms.runs(), &[(0, 3), (7, 1), (9, 2)]);
        assert_eq!((atoms.len(), atoms.end(), atoms.is_all()), (6, 11, false));
        assert!(Atoms::new(&[0, 1, 2], 3).unwrap().is_all());
    }

    #[test]
    fn disorder_and_overreach_are_refused() {
        for indices in [&[1, 1][..], &[2, 1], &[0, 1, 1], &[11]] {
            assert!(Atoms::new(indices, 11).is_err(), "{indices:?}");
        }
    }
}
