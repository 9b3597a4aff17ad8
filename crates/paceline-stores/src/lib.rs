//! Sources of bytes on object stores and over HTTP.
//!
//! A source reads one version of an object, and refuses a response from another version. If a
//! reader announces bytes, they are requested immediately and in parallel, and kept until they are
//! read. Requests run in separate threads. A process starts these threads at its first request, and
//! a forked process starts its own.

#![deny(missing_docs)]

mod address;
mod build_client;
mod credentials;
mod failure_messages;
mod http_requests;
mod latency_and_bandwidth;
mod object_byte_cache;
mod object_operations;
mod runtime_and_request_limits;

pub use address::Address;
pub use latency_and_bandwidth::Estimate;
pub use object_operations::{Download, Speed, StoreSource, list};
pub use runtime_and_request_limits::{estimates, on_wait, requests_sent, share_requests};
