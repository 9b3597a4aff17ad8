//! What a format makes of an atom.

use super::{Atoms, Batch};
use paceline_formats::Fields;

/// Makes the bytes of atoms for one file. Every atom takes the same number of them.
pub trait Records: Sync {
    /// Bytes of an atom in each section of a frame.
    fn sections(&self) -> &[usize];

    /// The vectors that are written.
    fn fields(&self) -> Fields;

    /// Whether names are written, which then must be there.
    fn has_names(&self) -> bool;

    /// Whether masses and charges are written; zeros where there are none.
    fn has_masses(&self) -> bool;

    /// Refuse what this format cannot hold.
    ///
    /// # Errors
    /// The first such atom's place in `atoms`, and why, in a sentence.
    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)>;

    /// Write all atoms of a batch, in its order, over the bytes that they take in one section.
    fn put(&self, section: usize, batch: &Batch<'_>, bytes: &mut [u8]);
}
