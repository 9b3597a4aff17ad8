//! Sources of bytes on object stores and over HTTP.
//!
//! A source reads one version of an object: each request names the version that was opened. Bytes
//! that a reader announces are requested at once, in parallel, and kept until they are read.
//! Requests run in threads of their own, which a process starts at its first request, and a forked
//! process starts again.

#![deny(missing_docs)]

mod address;
mod client;
mod credentials;
mod failure;
mod object;
mod pace;
mod process;
mod requests;
mod source;
mod version;

pub use address::Address;
pub use process::{on_wait, requests_sent};
pub use source::{StoreSource, download, list};
