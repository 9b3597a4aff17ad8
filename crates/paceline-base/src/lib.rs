//! Types that paceline's crates share: errors, unit cells and frames.
//!
//! ```
//! use paceline_base::UnitCell;
//!
//! let cell = UnitCell::of_dimensions([30.0, 40.0, 50.0, 90.0, 90.0, 90.0]); // Å and degrees
//! assert_eq!(cell.vectors[1], [0.0, 40.0, 0.0]);
//! ```
//!
//! Lengths are in Å, angles in degrees, times in ps, velocities in Å/ps, forces in kJ/(mol·Å).

#![deny(missing_docs)]

mod cell;
pub mod error;
mod frame;

pub use cell::{
    CELL_WIDTH, CellRow, UnitCell, cell_volume, exact_vectors, triclinic_box, triclinic_vectors,
};
pub use frame::{Fields, Frame, FrameIn, FrameOut, Series};
