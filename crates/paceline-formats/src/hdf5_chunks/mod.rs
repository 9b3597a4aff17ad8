//! Numbers in HDF5 datasets: how they lie in chunks, how those are coded, and where each number
//! goes.
//!
//! HDF5's own library finds datasets and chunks. What stands here begins where it has named the
//! bytes: it opens nothing.

mod dataset;
mod decompress;
pub mod encode;
mod filters;
mod grid;

pub use self::grid::{Copies, Copy, decode_in_place, decode_one};
pub use dataset::{Dataset, Kind, Number, Units, Value, tuple};
pub use decompress::Decompressors;
pub use filters::{Filter, Pipeline, Unpacked, most_of};
pub use grid::{Column, Grid, Part};
