//! Decode and encode trajectories of molecular dynamics.
//!
//! Open a file with [`trajectory::Trajectory`], which recognises its format, finds its frames and
//! reads blocks of them:
//!
//! ```no_run
//! use paceline_formats::trajectory::Trajectory;
//!
//! # fn main() -> paceline_formats::error::Result<()> {
//! let trajectory = Trajectory::open("md.dcd")?;
//! println!("{} frames of {} atoms", trajectory.n_frames(), trajectory.n_atoms());
//! # Ok(())
//! # }
//! ```
//!
//! A program with its own workers can combine the parts below it:
//!
//! - [`source`] reads ranges of bytes;
//! - [`index`] finds the offset of each frame, and saves the result of a scan;
//! - [`reader`] reads blocks of frames in few large reads, [`reader::chunks`] those of HDF5
//!   datasets;
//! - [`writer`] encodes blocks, into memory or into a file;
//! - [`format`](mod@format) defines the interface of a format, and [`registry`] lists all formats.
//!
//! Each format has a folder. A decoder reads the bytes of one frame and opens no file; an encoder
//! makes these bytes. Lengths are in Å, times in ps, forces in kJ/(mol·Å). No content of a file can
//! cause a panic, or an allocation beyond the size of the file's possible data.

#![deny(missing_docs)]

pub mod atom_set;
mod codec;
pub mod dcd;
pub mod dlpoly;
pub mod fingerprint;
pub mod format;
#[doc(hidden)] // For the tests and benchmarks of this crate.
pub mod fortran_text;
pub mod hdf5_chunks;
pub mod index;
pub mod lammps;
pub mod netcdf3;
pub mod reader;
pub mod registry;
pub mod source;
#[doc(hidden)] // For paceline-snapshot, which writes at offsets too.
pub mod system;
mod text_lines;
pub mod trajectory;
pub mod trr;
mod unit_styles;
pub mod writer;
mod xdr;
pub mod xtc;

pub use codec::{Decoder, Encoder, Run};
pub use format::{Format, Layout};
pub use paceline_base::{
    CELL_WIDTH, CellRow, Fields, Frame, FrameIn, FrameOut, Series, UnitCell, cell_volume, error,
    exact_vectors, triclinic_box, triclinic_vectors,
};
