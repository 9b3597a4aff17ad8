//! A slow, shared file system to test against, without privileges: preloaded into programs, it
//! makes them wait for the files of one folder as if a network and busy servers lay between.
//!
//! ```text
//! wrapped ─┬─► client ─┬─► files    which descriptors, and which of their pages have come
//! streams ─┘           ├─► shared   what all processes share: the servers' clocks, counts
//!    └──► next         └─► settings
//! ```
//!
//! Every process is a client of its own with a cache of its own, as if each ran on another node.
//! Data comes from servers, which serve one request after another; files are striped over them.
//! Opens and locks of one file are served one after another, too. `benchmarks/slowfs.py` is its face.

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("slowfs wraps the C library of Linux on x86-64 and aarch64: no other is supported");

mod client;
mod clock;
mod files;
mod next;
mod settings;
mod shared;
mod streams;
mod wrapped;
