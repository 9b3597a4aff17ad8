//! Which atoms each reader reads in each batch.

use std::ops::Range;

/// A frame's atoms, cut into batches for some readers.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    n_atoms: u64,
    n_readers: u64,
    n_batches: u64,
    apart: bool,
}

impl Shares {
    /// Shares of at most `most` atoms a reader and batch.
    ///
    /// Readers that work on one part of the file together give all owners their atoms in the order
    /// of the file. Where owners have ranges of the file, the readers do so each for its own
    /// owners, `apart`.
    pub fn new(n_atoms: u64, n_readers: usize, most: usize, apart: bool) -> Self {
        let n_readers = n_readers as u64;
        let n_batches = n_atoms.div_ceil(n_readers).div_ceil(most.max(1) as u64);
        Shares {
            n_atoms,
            n_readers,
            n_batches,
            apart,
        }
    }

    pub fn n_batches(&self) -> u64 {
        self.n_batches
    }

    /// What a reader reads in a batch.
    pub fn part(&self, batch: u64, reader: usize) -> Range<u64> {
        let (all, reader) = (0..self.n_atoms, reader as u64);
        match self.apart {
            true => {
                let own = share(all, reader, self.n_readers);
                share(own, batch, self.n_batches)
            }
            false => {
                let together = share(all, batch, self.n_batches);
                share(together, reader, self.n_readers)
            }
        }
    }
}

/// One of `n` equal shares of a range.
pub fn share(range: Range<u64>, one: u64, n: u64) -> Range<u64> {
    let len = u128::from(range.end - range.start);
    let border = |k: u64| range.start + (len * u128::from(k) / u128::from(n)) as u64;
    border(one)..border(one + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_atom_is_in_one_share_and_none_is_too_large() {
        for (n_atoms, n_readers, most) in [
            (0, 1, 5),
            (1, 3, 1),
            (10, 3, 2),
            (1000, 4, 7),
            (7, 7, 9),
            (99, 2, 1000),
        ] {
            for apart in [true, false] {
                let shares = Shares::new(n_atoms, n_readers, most, apart);
                let mut seen = vec![0; n_atoms as usize];
                for batch in 0..shares.n_batches() {
                    for reader in 0..n_readers {
                        let part = shares.part(batch, reader);
                        assert!(part.clone().count() <= most, "{part:?}");
                        part.for_each(|atom| seen[atom as usize] += 1);
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{shares:?}");
            }
        }
    }

    #[test]
    fn together_they_go_through_the_file_and_apart_each_through_its_own_part() {
        let together = Shares::new(100, 2, 10, false);
        assert_eq!(together.part(0, 0), 0..10);
        assert_eq!(together.part(0, 1), 10..20);
        let apart = Shares::new(100, 2, 10, true);
        assert_eq!(apart.part(0, 1), 50..60);
        assert_eq!(apart.part(4, 0), 40..50);
    }
}
