//! Files for the tests of the index.

mod dlpoly;
mod regular;
mod sampling;
mod saved;
mod scanned;
mod trr;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Index, OpenOptions, Times, index_files, open};
use crate::error::Result;
use crate::format_list::STANDARD;
use crate::source::{FileSource, MemorySource};

/// Generator of deterministic random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }

    /// Damage `bytes`: overwrite some with zeros or random bytes, or insert or delete some.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        let end = (at + 1 + self.below(120)).min(bytes.len());
        match self.below(4) {
            0 => bytes[at..end].fill(0),
            1 => {
                let noise = self.bytes(end - at);
                bytes[at..end].copy_from_slice(&noise);
            }
            2 => drop(bytes.drain(at..end)),
            _ => {
                let noise = self.bytes(end - at);
                drop(bytes.splice(at..at, noise));
            }
        }
    }
}

/// Folder that is deleted at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-index-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Return frame number `frame` of an XTC file of 3 atoms. So few atoms are not compressed.
fn xtc_frame(frame: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for integer in [1995, 3, frame * 10] {
        bytes.extend(i32::to_be_bytes(integer));
    }
    bytes.extend(f32::to_be_bytes(frame as f32 * 0.5));
    bytes.extend(
        [1_f32, 0., 0., 0., 1., 0., 0., 0., 1.]
            .map(f32::to_be_bytes)
            .concat(),
    );
    bytes.extend(i32::to_be_bytes(3));
    bytes.extend((0..9).flat_map(|number| f32::to_be_bytes((frame * number) as f32)));
    bytes
}

const XTC_FRAME: usize = 92;

fn xtc(n_frames: i32) -> Vec<u8> {
    (0..n_frames).flat_map(xtc_frame).collect()
}

fn go_on(_done: u64, _total: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Open `path`, with its index next to it.
fn open_path(path: &Path) -> Result<Index> {
    open_with(path, index_files(path, None))
}

fn open_with(path: &Path, index_files: Vec<PathBuf>) -> Result<Index> {
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files,
        refresh: false,
        sample: None,
        units: None,
        n_atoms: None,
        n_threads: 2,
        progress: &go_on,
    };
    open(&FileSource::open(path)?, &options)
}

/// Return the times from memory or from the saved index: the trajectory is not read again.
fn times_at_hand(index: &Index) -> Times {
    index.times(&MemorySource(Vec::new())).unwrap()
}
