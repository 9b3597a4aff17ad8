//! Conversion of a caller's pointers.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;

use paceline_formats::os_calls::path_of_bytes;
use paceline_snapshot::Failure;

use crate::errors::argument;

/// Borrow an object; `None` for NULL.
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
/// Unless `pointer` is NULL or unaligned, it points to `n` elements that nobody changes during `'a`.
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

/// Copy a text; `None` for NULL.
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
