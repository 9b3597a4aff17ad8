//! What a format makes of an atom.

use super::{Atoms, Batch};
use crate::formats::Fields;

/// Makes the bytes of atoms for one file. Every atom takes the same number of them.
pub trait Records: Sync {
    /// Bytes of an atom in each section of a frame.
    fn sections(&self) -> &[usize];

    /// The vectors that are written.
    fn fields(&self) -> Fields;

    /// Whether names, masses and charges are written. Without masses and charges, zeros are.
    fn names(&self) -> bool;

    fn masses_and_charges(&self) -> bool;

    /// Refuse what this format cannot hold: the first such atom's place in `atoms`, and why.
    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)>;

    /// Append the bytes of all atoms of a batch, in its order, for one section.
    fn encode(&self, section: usize, batch: &Batch<'_>, bytes: &mut Vec<u8>);
}
