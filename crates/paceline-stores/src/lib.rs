//! Sources of bytes on object stores and over HTTP.
//!
//! A source reads one version of an object: each request names the version that was opened. If a
//! reader announces bytes, they are requested immediately and in parallel, and kept until they are
//! read. Requests run in separate threads. A process starts these threads at its first request, and
//! a forked process starts its own.

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

pub use address::Address;
pub use pace::Estimate;
pub use process::{estimates, on_wait, requests_sent, share_requests};
pub use source::{Download, Speed, StoreSource, list};
