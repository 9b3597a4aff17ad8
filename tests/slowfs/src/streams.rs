//! Streams of C. The C library reads for a stream without a call that could be wrapped. Therefore a
//! stream of a slow file is replaced by one that reads through this library. The original stream is
//! kept for its descriptor.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};

use crate::client::client;
use crate::clock::now;
use crate::{next, wrapped};

/// Type cookie_io_functions_t of the C library. Without `write`, the stream is read-only.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// For each descriptor, the stream that reads through this library, if there is one.
static STREAMS: [AtomicPtr<FILE>; 1024] = [const { AtomicPtr::new(null_mut()) }; 1024];

/// # Safety
/// Replace the function of the C library with this name.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    let begun = now();
    // SAFETY: the caller meets the requirements of fopen; fileno gets an open stream.
    unsafe {
        let stream = next::fopen(path, mode);
        if !stream.is_null()
            && let Some(client) = client()
        {
            client.opened(next::fileno(stream), begun);
        }
        replaced(stream, mode)
    }
}

/// # Safety
/// Replace the function of the C library with this name.
pub unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller meets the requirements of fdopen.
    unsafe { replaced(next::fdopen(fd, mode), mode) }
}

/// # Safety
/// Replace the function of the C library with this name.
pub unsafe fn fileno(stream: *mut FILE) -> c_int {
    match STREAMS.iter().position(|ours| ours.load(Relaxed) == stream) {
        Some(fd) if !stream.is_null() => fd as c_int,
        // SAFETY: the caller meets the requirements of fileno.
        _ => unsafe { next::fileno(stream) },
    }
}

/// Return the stream itself, or a stream that reads through this library if it only reads a slow
/// file.
///
/// # Safety
/// `stream` must be null, or open with `mode` and not used yet; `mode` must end with a zero byte.
unsafe fn replaced(stream: *mut FILE, mode: *const c_char) -> *mut FILE {
    if stream.is_null() {
        return stream;
    }
    // SAFETY: the caller guarantees both arguments.
    let (fd, reads) = unsafe { (next::fileno(stream), CStr::from_ptr(mode).to_bytes()) };
    let reads = reads.starts_with(b"r") && !reads.contains(&b'+');
    let Some(place) = STREAMS.get(fd as usize) else {
        return stream;
    };
    if !reads || client().and_then(|client| client.slow_file(fd)).is_none() {
        return stream;
    }
    let functions = Functions {
        read,
        write: None,
        seek,
        close,
    };
    // SAFETY: the functions have the expected types. Their first argument is the stream, which
    // stays open until `close` closes it.
    let ours = unsafe { fopencookie(stream.cast(), c"r".as_ptr(), functions) };
    if ours.is_null() {
        return stream;
    }
    place.store(ours, Relaxed);
    ours
}

unsafe extern "C" fn read(stream: *mut c_void, buffer: *mut c_char, n: size_t) -> ssize_t {
    // SAFETY: the C library passes the stream that `replaced` registered, and its own buffer.
    unsafe { wrapped::read(next::fileno(stream.cast()), buffer.cast(), n) }
}

unsafe extern "C" fn seek(stream: *mut c_void, place: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: the C library passes the stream that `replaced` registered, and its own offset.
    unsafe {
        let found = libc::lseek64(next::fileno(stream.cast()), *place, whence);
        if found < 0 {
            return -1;
        }
        *place = found;
    }
    0
}

unsafe extern "C" fn close(stream: *mut c_void) -> c_int {
    // SAFETY: the C library passes the stream that `replaced` registered, and never uses it again.
    unsafe {
        if let Some(place) = STREAMS.get(next::fileno(stream.cast()) as usize) {
            place.store(null_mut(), Relaxed);
        }
        next::fclose(stream.cast())
    }
}
