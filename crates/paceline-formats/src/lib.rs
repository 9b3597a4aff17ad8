//! Decoding and encoding of molecular dynamics trajectories.
//!
//! Open a file with [`trajectory::Trajectory`]. It recognises the format, finds the frames, and
//! reads blocks of frames:
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
//! A program with its own workers can combine the modules that it uses:
//!
//! - [`source`] reads ranges of bytes, [`disk_cache`] stores them on a local disk;
//! - [`index`] finds the offset of each frame, and saves the result of a scan;
//! - [`block_reader`] reads blocks of frames in few large reads, and
//!   [`block_reader::hdf5_datasets`] those of HDF5 datasets;
//! - [`block_writer`] encodes blocks, into memory or into a file;
//! - [`format_interface`] defines the interface of a format, and [`format_list`] lists all formats.
//!
//! Each format has a folder. A decoder reads the bytes of one frame, and opens no file. An encoder
//! creates these bytes. Lengths are in Å, times in ps, forces in kJ/(mol·Å). No content of a file
//! can cause a panic, or an allocation larger than the data that the file can contain.

#![deny(missing_docs)]

pub mod atom_set;
pub mod block_reader;
pub mod block_writer;
pub mod dcd;
pub mod disk_cache;
pub mod dlpoly;
pub mod fingerprint;
pub mod format_interface;
pub mod format_list;
#[doc(hidden)] // Public for the tests and benchmarks of this crate.
pub mod fortran_numbers;
mod frame_codec;
pub mod hdf5_chunks;
pub mod index;
pub mod lammps;
pub mod netcdf3;
#[doc(hidden)] // Public for paceline-snapshot, which also writes at offsets.
pub mod os_calls;
pub mod source;
mod text_lines;
pub mod trajectory;
pub mod trr;
mod xdr;
pub mod xtc;

pub use format_interface::{Format, Layout};
pub use frame_codec::{Decoder, Encoder, Run};
pub use paceline_base::{
    CELL_WIDTH, CellRow, Fields, Frame, FrameIn, FrameOut, Series, UnitCell, cell_volume, error,
    exact_vectors, triclinic_box, triclinic_vectors,
};
