//! Which atoms of a frame are wanted, to be asked group by group.

use crate::atom_set::Atoms;

/// Which atoms are wanted, as bits.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Atom i is bit i % 8 of byte i / 8. Three bytes more than needed: see `of`.
    bits: Vec<u8>,
    /// One past the last atom wanted.
    pub(super) end: usize,
    pub(super) all: bool,
}

impl Wanted {
    pub(super) fn new(atoms: &Atoms) -> Self {
        let mut bits = vec![0; atoms.n_total() / 8 + 4];
        for &(first, n) in atoms.runs() {
            for atom in first..first + n {
                bits[atom / 8] |= 1 << (atom % 8);
            }
        }
        Wanted {
            bits,
            end: atoms.end(),
            all: atoms.is_all(),
        }
    }

    /// The atoms wanted among `n` (at most 25) from `first` on, the first in the lowest bit.
    pub(super) fn of(&self, first: usize, n: usize) -> u32 {
        let at = first / 8;
        let bytes = &self.bits[at..at + 4];
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (bits >> (first % 8)) & ((1 << n) - 1)
    }
}
