//! Conversions between C and Rust: pointers of the caller become references, errors become codes
//! and messages, and panics are caught before they reach C.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use paceline_formats::error::Error;
use paceline_formats::os_calls::path_of_bytes;
use paceline_snapshot::{Failure, Kind};

use crate::comm::Comm;

pub const OK: c_int = 0;
pub const ARGUMENT: c_int = 1;
pub const UNWRITABLE: c_int = 2;
pub const IO: c_int = 3;
pub const UNSUPPORTED: c_int = 4;
pub const DAMAGED: c_int = 5;
pub const MPI: c_int = 6;
pub const INTERNAL: c_int = 7;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Return the message of the last call in this thread that returned a code: the reason of an error,
/// a warning, or an empty string.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

fn set_message(text: &str) {
    let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
    MESSAGE.set(text);
}

/// Make the error of an invalid argument.
pub fn argument(reason: impl Into<String>) -> Failure {
    Failure::Error(Error::Argument(reason.into()))
}

fn code_of(failure: &Failure) -> c_int {
    match failure {
        Failure::Unwritable(_) => UNWRITABLE,
        Failure::AtomCount { .. } => UNSUPPORTED,
        Failure::Agreed { kind, .. } => match kind {
            Kind::Argument => ARGUMENT,
            Kind::Unsupported => UNSUPPORTED,
            Kind::Damaged => DAMAGED,
        },
        Failure::Error(error) => match error {
            Error::Argument(_) => ARGUMENT,
            Error::Io { .. } => IO,
            Error::Damaged { .. } | Error::DamagedChunk { .. } => DAMAGED,
            Error::Interrupted => INTERNAL,
            _ => UNSUPPORTED,
        },
    }
}

/// Call a function, and convert its result to a code. A panic, which is a defect of the library,
/// becomes a code, too.
///
/// After a panic, or a failure of the communicator, the other ranks may wait for this rank forever.
/// The program therefore ends on all ranks, if the caller provided `abort`.
pub fn guard(
    comm: Option<&Comm>,
    function: impl FnOnce() -> Result<Option<String>, Failure>,
) -> c_int {
    set_message("");
    // Data that the function was changing when it panicked are not used again: `abort` ends the
    // program, or the code `INTERNAL` requests that the caller ends it.
    let result = catch_unwind(AssertUnwindSafe(function));
    let failed = comm.and_then(Comm::failure);
    match (result, failed) {
        (Err(_), _) => {
            set_message("a defect of the library; standard error has its place");
            end(comm);
            INTERNAL
        }
        (_, Some(reason)) => {
            set_message(&reason);
            end(comm);
            MPI
        }
        (Ok(Err(failure)), None) => {
            set_message(&failure.to_string());
            code_of(&failure)
        }
        (Ok(Ok(warning)), None) => {
            set_message(&warning.unwrap_or_default());
            OK
        }
    }
}

fn end(comm: Option<&Comm>) {
    if let Some(comm) = comm {
        // The result of the write is ignored. If a failed write panicked, `abort` would not be
        // called, and the other ranks would wait forever.
        MESSAGE.with_borrow(|message| {
            let text = message.to_string_lossy();
            let _ = writeln!(std::io::stderr(), "paceline: error: {text}");
        });
        comm.abort();
    }
}

/// Borrow an object; `None` for NULL. `what` names it in the error for an unaligned pointer.
///
/// # Safety
/// Unless `pointer` is NULL or unaligned, it points to a valid object that nobody changes during
/// `'a`.
pub unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<Option<&'a T>, Failure> {
    if !pointer.is_aligned() {
        return Err(argument(format!("{what} is not aligned in memory")));
    }
    // SAFETY: aligned, and the rest is this function's condition.
    Ok(unsafe { pointer.as_ref() })
}

/// Borrow an array of `n` elements; `None` for NULL.
///
/// # Safety
/// Unless `pointer` is NULL or unaligned, it points to `n` elements that nobody changes during
/// `'a`.
pub unsafe fn array<'a, T>(
    pointer: *const T,
    n: usize,
    what: &str,
) -> Result<Option<&'a [T]>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    if !pointer.is_aligned() {
        return Err(argument(format!("{what} are not aligned in memory")));
    }
    if n.checked_mul(size_of::<T>())
        .is_none_or(|n_bytes| n_bytes > isize::MAX as usize)
    {
        return Err(argument(format!("expected fewer {what}, found {n}")));
    }
    // SAFETY: not NULL, aligned, and not larger than a slice may be; the rest is this function's
    // condition.
    Ok(Some(unsafe { std::slice::from_raw_parts(pointer, n) }))
}

/// Copy a string that ends with a zero byte; `None` for NULL.
///
/// # Safety
/// Unless `pointer` is NULL, it points to bytes that end with a zero byte.
pub unsafe fn bytes(pointer: *const c_char) -> Option<Vec<u8>> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not NULL; the rest is this function's condition. The bytes are copied at once.
    Some(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())
}

/// Copy a UTF-8 string that ends with a zero byte; `None` for NULL. `what` names it in the error.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn text(pointer: *const c_char, what: &str) -> Result<Option<String>, Failure> {
    // SAFETY: this function's condition.
    let bytes = unsafe { bytes(pointer) };
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|error| argument(format!("expected {what} in UTF-8, found bytes: {error}")))
}

/// Copy a path.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn path(pointer: *const c_char) -> Result<PathBuf, Failure> {
    // SAFETY: this function's condition.
    match unsafe { bytes(pointer) } {
        None => Err(argument("expected a path, found NULL")),
        Some(bytes) if bytes.is_empty() => Err(argument("expected a path, found none")),
        Some(bytes) => Ok(path_of_bytes(&bytes)),
    }
}
