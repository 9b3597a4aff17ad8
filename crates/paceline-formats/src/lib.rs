//! Trajectories of molecular dynamics: bytes to frames and back.
//!
//! Each format has a folder. A decoder takes the bytes of one frame and opens nothing; an encoder
//! gives them.

pub mod atom_set;
mod cell;
mod codec;
pub mod dcd;
pub mod dlpoly;
pub mod error;
pub mod fingerprint;
pub mod format;
pub mod fortran;
mod frame;
pub mod hdf5_chunks;
pub mod index;
pub mod netcdf3;
pub mod reader;
pub mod registry;
pub mod source;
pub mod trr;
pub mod writer;
pub mod xdr;
pub mod xtc;

pub use cell::{cell_volume, exact_vectors, triclinic_vectors};
pub use codec::{Decoder, Encoder};
pub use format::{Format, Layout};
pub use frame::{Fields, Frame, FrameIn, FrameOut, Run, Series};
