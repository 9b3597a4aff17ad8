//! What the environment says about the file system.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;

use crate::shared::MOST_SERVERS;

/// Times in nanoseconds.
pub struct Settings {
    /// Regular files beneath are slow: an absolute path without links, and a slash at its end.
    pub folder: Vec<u8>,
    /// The file that all processes map.
    pub state: CString,
    /// From a request to its first byte, where no server is busy.
    pub latency: u64,
    /// Time of a byte, of each server.
    pub byte: f64,
    /// Servers of data, and bytes of a file that one holds before it is the next one's turn.
    pub servers: usize,
    pub stripe: u64,
    /// What one request for data, one open and one lock keep a server busy.
    pub request: u64,
    pub open: u64,
    pub lock: u64,
    /// Bytes that are fetched ahead of one who reads in order.
    pub read_ahead: u64,
    /// One process that waits so many times as long as the others would.
    pub slow_process: Option<u64>,
    pub slow_factor: f64,
}

impl Settings {
    /// None where there is nothing to be slow.
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

/// End the program: a file system other than the one that was asked for would prove nothing.
fn refuse(name: &str, expected: &str) -> ! {
    let found = std::env::var_os(name).unwrap_or_default();
    eprintln!("slowfs: {name}: expected {expected}, found {found:?}");
    std::process::abort();
}
