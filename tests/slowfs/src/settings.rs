//! Settings of the file system, read from environment variables.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;

use crate::shared::MOST_SERVERS;

/// Settings; times are in nanoseconds.
pub struct Settings {
    /// Folder whose regular files are slow: an absolute path without links, with a slash at its
    /// end.
    pub folder: Vec<u8>,
    /// Path of the file that all processes map.
    pub state: CString,
    /// Time from a request to its first byte, if the server is idle.
    pub latency: u64,
    /// Time per byte of each server.
    pub byte: f64,
    /// Number of data servers. The next field is the stripe size, bytes.
    pub servers: usize,
    pub stripe: u64,
    /// Time for which one request for data keeps a server busy. `open` and `lock` are the times for
    /// an open and a lock.
    pub request: u64,
    pub open: u64,
    pub lock: u64,
    /// Number of bytes that are read ahead for sequential reads.
    pub read_ahead: u64,
    /// Factor by which one process waits longer than the others.
    pub slow_process: Option<u64>,
    pub slow_factor: f64,
}

impl Settings {
    /// Read the settings; `None` if no folder is slow.
    pub fn from_environment() -> Option<Self> {
        let mut folder = std::env::var_os("SLOWFS_FOLDER").map(OsString::into_vec)?;
        let state = std::env::var_os("SLOWFS_STATE").map(OsString::into_vec)?;
        folder.push(b'/');
        let settings = Settings {
            folder,
            state: CString::new(state).ok()?,
            latency: seconds("SLOWFS_LATENCY"),
            byte: 1e9 / number("SLOWFS_BANDWIDTH", f64::INFINITY),
            servers: number("SLOWFS_SERVERS", 1),
            stripe: number("SLOWFS_STRIPE", 1 << 20),
            request: seconds("SLOWFS_REQUEST_COST"),
            open: seconds("SLOWFS_OPEN_COST"),
            lock: seconds("SLOWFS_LOCK_COST"),
            read_ahead: number("SLOWFS_READ_AHEAD", 128 << 10),
            slow_process: std::env::var_os("SLOWFS_SLOW_PROCESS")
                .map(|_| number("SLOWFS_SLOW_PROCESS", 0)),
            slow_factor: number("SLOWFS_SLOW_FACTOR", 1.0),
        };
        if !(1..=MOST_SERVERS).contains(&settings.servers) {
            refuse("SLOWFS_SERVERS", &format!("1 to {MOST_SERVERS} servers"));
        }
        if settings.stripe < 4096 {
            refuse("SLOWFS_STRIPE", "4096 bytes or more");
        }
        Some(settings)
    }
}

fn seconds(name: &str) -> u64 {
    (number(name, 0.0) * 1e9) as u64
}

fn number<T: FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| refuse(name, "a number")),
        Err(_) => default,
    }
}

/// End the program, because a test with another file system than the requested one would prove
/// nothing.
fn refuse(name: &str, expected: &str) -> ! {
    let found = std::env::var_os(name).unwrap_or_default();
    eprintln!("slowfs: {name}: expected {expected}, found {found:?}");
    std::process::abort();
}
