//! Simulated slow shared file system for tests, without privileges. The library is preloaded into
//! programs, and makes them wait for the files of one folder, as if a network and busy servers lay
//! between.
//!
//! ```text
//! wrapped ─┬─► client ─┬─► files    which descriptors, and which of their pages have come
//! streams ─┘           ├─► shared   what all processes share: the servers' clocks, counts
//!    └──► next         └─► settings
//! ```
//!
//! Every process is a separate client with its own cache, as if each ran on another node. Servers
//! provide data, each one request after another, and files are striped over servers. Opens and
//! locks of one file are also served one after another. `benchmarks/slowfs.py` is the interface.

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
