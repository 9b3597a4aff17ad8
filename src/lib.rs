//! The core of paceline: bytes in, numbers out. It knows no Python but for [`python`].
//!
//! A frame travels one way, and each module uses only those before it:
//!
//! ```text
//! error ─ source ─ atoms ─ formats ─ index ─ read ─ kernels ─ python
//! ```

pub mod atoms;
pub mod error;
pub mod formats;
pub mod index;
pub mod source;
