//! Numbers as text, as Fortran's formatted write and read have them.
//!
//! What is written is gfortran's, byte for byte, but for one thing: a `G20.10` of a magnitude
//! under 1e-99 is written as 0, because its exponent of three digits (`0.1000000000-100`) is a
//! number to Fortran alone.

mod read;
mod write;

pub use self::read::three_g20_10;
pub use self::read::{take_integer, take_real};
pub use self::write::{e16_7, f, g20_10, i};
