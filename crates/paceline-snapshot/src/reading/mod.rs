//! The way back: the atoms of one ordered file to the ranks that own them.
//!
//! Some ranks read. Batch by batch they decode, each its part; rearrange the batch, so that all
//! atoms of an owner are with one of them; and send each owner one long message (Todorov & Bush,
//! HPCxTR0806, section 5).

mod atom_source;
mod distribute;
mod exchange;
mod owners;
mod table;
#[cfg(test)]
mod tests;

pub use self::atom_source::Text;
pub use self::atom_source::{AtomSource, Moment};
pub use distribute::{ReadingCost, Settings, distribute};
pub use owners::{ById, Grid, Owners};
pub use table::{CHARGES, IDS, Known, MASSES, NAMES, POSITIONS, Table, widths};
