//! The core of paceline: bytes in, numbers out. Only `python` knows Python.
//!
//! A frame travels one way, and each module uses only those before it:
//!
//! ```text
//! error ─ source ─ atoms ─ formats ─ index ─ read ─ kernels ─ write ─ snapshot ─ python
//! ```

pub mod atoms;
pub mod error;
pub mod formats;
pub mod index;
pub mod kernels;
#[cfg(feature = "python")]
mod python;
pub mod read;
pub mod snapshot;
pub mod source;
pub mod write;
