//! C interface of paceline's snapshots: `include/paceline.h` describes it.
//!
//! Each function catches panics and checks every pointer for null and alignment. It converts an
//! error to a code, and stores the message for the calling thread.

#![deny(missing_docs)]

mod comm;
mod conversions;
mod snapshot_reader;
mod snapshot_writer;

use std::ffi::c_char;

pub use comm::CComm;
pub use conversions::paceline_message;
pub use snapshot_reader::{
    CReaderOptions, CSnapshot, ReaderHandle, paceline_read, paceline_reader_atoms,
    paceline_reader_close, paceline_reader_frames, paceline_reader_open,
};
pub use snapshot_writer::{
    CAtoms, CWriterOptions, WriterHandle, paceline_write, paceline_writer_close,
    paceline_writer_frames, paceline_writer_open,
};

/// Default size of a rank's buffer, bytes. A rank needs it in addition to the memory of its atoms.
const BUFFER: usize = 64 << 20;
/// Maximum size of a rank's buffer, bytes. MPI counts the bytes of a message in 31 bits.
const MOST_BUFFER: i64 = 1 << 30;

/// Return the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Check the size of the buffer that the caller chose; 0 selects the default.
fn buffer_of(n_bytes: i64) -> Result<usize, paceline_snapshot::Failure> {
    match n_bytes {
        0 => Ok(BUFFER),
        1..=MOST_BUFFER => Ok(n_bytes as usize),
        _ => Err(conversions::argument(format!(
            "expected a buffer of up to {MOST_BUFFER} bytes, found {n_bytes}"
        ))),
    }
}

/// Check the number of ranks that the caller chose; `None` for 0, which selects the default.
fn number_of(what: &str, n: i32) -> Result<Option<usize>, paceline_snapshot::Failure> {
    match usize::try_from(n) {
        Ok(0) => Ok(None),
        Ok(n) => Ok(Some(n)),
        Err(_) => Err(conversions::argument(format!(
            "expected a number of {what}, found {n}"
        ))),
    }
}

/// Identify this rank's node by a hash of the host's name. If the name is unknown, all ranks count
/// as ranks of one node, which only affects speed.
fn node() -> u64 {
    xxhash_rust::xxh3::xxh3_64(&paceline_formats::os_calls::host_name())
}
