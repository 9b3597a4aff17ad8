//! The way back: the atoms of one ordered file to the ranks that own them.
//!
//! Some ranks read. Batch by batch they decode, each its part; rearrange the batch, so that all
//! atoms of an owner are with one of them; and send each owner one long message (Todorov & Bush,
//! HPCxTR0806, section 5).

mod distribute;
mod owners;
mod parcel;
mod post;
mod shares;
mod supply;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub use distribute::{ReadingCost, Settings, distribute};
pub use owners::{ById, Grid, Owners};
pub use supply::{Moment, Supply};
pub use table::{CHARGES, IDS, Known, MASSES, NAMES, POSITIONS, Table, widths};
pub use text::Text;
