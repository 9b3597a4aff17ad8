//! Wrapped calls of the C library. Each calls the original function, and then waits.
//!
//! Functions that are variadic in C are not variadic here. On both supported processors, integers
//! and pointers are passed in the same registers either way.

use libc::{FILE, c_char, c_int, c_short, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t};

use crate::client::client;
use crate::clock::now;
use crate::{next, streams};

unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let begun = now();
    // SAFETY: the caller meets the requirements of open.
    opened(unsafe { next::open(path, flags, mode) }, begun)
}

unsafe fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let begun = now();
    // SAFETY: the caller meets the requirements of openat.
    opened(unsafe { next::openat(folder, path, flags, mode) }, begun)
}

/// Open a file. Programs compiled with fortify checks call this function if no file can be created.
unsafe fn open_checked(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller meets the requirements of open.
    unsafe { open(path, flags, 0) }
}

unsafe fn openat_checked(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller meets the requirements of openat.
    unsafe { openat(folder, path, flags, 0) }
}

pub unsafe fn read(fd: c_int, buffer: *mut c_void, n: size_t) -> ssize_t {
    let begun = now();
    // SAFETY: the caller meets the requirements of read.
    has_read_on(fd, unsafe { next::read(fd, buffer, n) }, begun)
}

/// Read from a file. Programs compiled with fortify checks also pass the size of the buffer.
unsafe fn read_checked(fd: c_int, buffer: *mut c_void, n: size_t, _size: size_t) -> ssize_t {
    // SAFETY: the caller meets the requirements of read.
    unsafe { read(fd, buffer, n) }
}

unsafe fn pread(fd: c_int, buffer: *mut c_void, n: size_t, offset: off_t) -> ssize_t {
    let begun = now();
    // SAFETY: the caller meets the requirements of pread.
    has_read(
        fd,
        offset,
        unsafe { next::pread(fd, buffer, n, offset) },
        begun,
    )
}

unsafe fn pread_checked(
    fd: c_int,
    buffer: *mut c_void,
    n: size_t,
    offset: off_t,
    _size: size_t,
) -> ssize_t {
    // SAFETY: the caller meets the requirements of pread.
    unsafe { pread(fd, buffer, n, offset) }
}

unsafe fn readv(fd: c_int, buffers: *const iovec, n: c_int) -> ssize_t {
    let begun = now();
    // SAFETY: the caller meets the requirements of readv.
    has_read_on(fd, unsafe { next::readv(fd, buffers, n) }, begun)
}

unsafe fn preadv(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t) -> ssize_t {
    let begun = now();
    // SAFETY: the caller meets the requirements of preadv.
    has_read(
        fd,
        offset,
        unsafe { next::preadv(fd, buffers, n, offset) },
        begun,
    )
}

unsafe fn preadv2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let begun = now();
    // SAFETY: the caller meets the requirements of preadv2.
    let done = unsafe { next::preadv2(fd, buffers, n, offset, flags) };
    if offset == -1 {
        has_read_on(fd, done, begun)
    } else {
        has_read(fd, offset, done, begun)
    }
}

unsafe fn posix_fadvise(fd: c_int, offset: off_t, n: off_t, advice: c_int) -> c_int {
    // SAFETY: the caller meets the requirements of posix_fadvise.
    let error = unsafe { next::posix_fadvise(fd, offset, n, advice) };
    if error == 0
        && advice == libc::POSIX_FADV_WILLNEED
        && let Some(client) = client()
    {
        client.announced(fd, offset as u64, n as u64);
    }
    error
}

unsafe fn flock(fd: c_int, operation: c_int) -> c_int {
    let begun = now();
    // SAFETY: the caller meets the requirements of flock.
    let done = unsafe { next::flock(fd, operation) };
    if operation & libc::LOCK_UN == 0 && answered(done) {
        locked(fd, begun);
    }
    done
}

unsafe fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let begun = now();
    // SAFETY: the caller meets the requirements of fcntl.
    let done = unsafe { next::fcntl(fd, command, argument) };
    let locks = matches!(
        command,
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW
    );
    // SAFETY: for these commands, the argument points to a lock structure, which the kernel has
    // read successfully before it answered.
    if locks
        && answered(done)
        && unsafe { (*argument.cast::<libc::flock>()).l_type } != libc::F_UNLCK as c_short
    {
        locked(fd, begun);
    }
    done
}

unsafe fn mmap(
    at: *mut c_void,
    n: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller meets the requirements of mmap.
    let address = unsafe { next::mmap(at, n, access, flags, fd, offset) };
    if fd >= 0 && address != libc::MAP_FAILED {
        unseen(fd);
    }
    address
}

unsafe fn sendfile(to: c_int, from: c_int, offset: *mut off_t, n: size_t) -> ssize_t {
    // SAFETY: the caller meets the requirements of sendfile.
    let done = unsafe { next::sendfile(to, from, offset, n) };
    if done > 0 {
        unseen(from);
    }
    done
}

unsafe fn copy_file_range(
    from: c_int,
    offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    n: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller meets the requirements of copy_file_range.
    let done = unsafe { next::copy_file_range(from, offset, to, to_offset, n, flags) };
    if done > 0 {
        unseen(from);
    }
    done
}

/// Account for a call that opened `fd`, or failed.
fn opened(fd: c_int, begun: u64) -> c_int {
    if fd >= 0
        && let Some(client) = client()
    {
        client.opened(fd, begun);
    }
    fd
}

/// Account for a call that read `done` bytes from `offset` on, or failed.
fn has_read(fd: c_int, offset: off_t, done: ssize_t, begun: u64) -> ssize_t {
    if done >= 0
        && let Some(client) = client()
    {
        client.has_read(fd, offset as u64, done as u64, begun);
    }
    done
}

/// Account for a call that read `done` bytes, which end at the current position of the descriptor.
fn has_read_on(fd: c_int, done: ssize_t, begun: u64) -> ssize_t {
    if done >= 0
        && let Some(client) = client()
        && client.slow_file(fd).is_some()
    {
        // SAFETY: the call takes and returns only integers.
        let place = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        client.has_read(
            fd,
            (place as u64).saturating_sub(done as u64),
            done as u64,
            begun,
        );
    }
    done
}

/// Return true if a call got a lock, or was refused because of another lock. The server answered in
/// both cases.
fn answered(done: c_int) -> bool {
    done == 0 || matches!(errno(), libc::EAGAIN | libc::EACCES)
}

fn locked(fd: c_int, begun: u64) {
    let told = errno();
    if let Some(client) = client() {
        client.locked(fd, begun);
    }
    // SAFETY: the address is that of the errno of this thread.
    unsafe { *libc::__errno_location() = told };
}

fn errno() -> c_int {
    // SAFETY: the address is that of the errno of this thread.
    unsafe { *libc::__errno_location() }
}

fn unseen(fd: c_int) {
    if let Some(client) = client() {
        client.unseen(fd);
    }
}

macro_rules! export {
    ($(fn $($name:ident),*($($argument:ident: $kind:ty),*) -> $result:ty = $function:path;)*) => {
        $(export!(@each [$($name)*] ($($argument: $kind),*) -> $result = $function);)*
    };
    (@each [$($name:ident)*] $arguments:tt -> $result:ty = $function:path) => {
        $(export!(@one $name $arguments -> $result = $function);)*
    };
    (@one $name:ident ($($argument:ident: $kind:ty),*) -> $result:ty = $function:path) => {
        /// # Safety
        /// Replace the function of the C library with this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the caller meets the requirements of the function in the C library.
            unsafe { $function($($argument),*) }
        }
    };
}

// off_t has 64 bits on both supported processors, so that functions with 64 in their names are the
// same.
mod exported {
    use super::*;

    export! {
        fn open, open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = super::open;
        fn openat, openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
            = super::openat;
        fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int = super::open_checked;
        fn __openat_2, __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int
            = super::openat_checked;
        fn read(fd: c_int, buffer: *mut c_void, n: size_t) -> ssize_t = super::read;
        fn __read_chk(fd: c_int, buffer: *mut c_void, n: size_t, size: size_t) -> ssize_t
            = super::read_checked;
        fn pread, pread64(fd: c_int, buffer: *mut c_void, n: size_t, offset: off_t) -> ssize_t
            = super::pread;
        fn __pread_chk, __pread64_chk(fd: c_int, buffer: *mut c_void, n: size_t, offset: off_t,
            size: size_t) -> ssize_t = super::pread_checked;
        fn readv(fd: c_int, buffers: *const iovec, n: c_int) -> ssize_t = super::readv;
        fn preadv, preadv64(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t) -> ssize_t
            = super::preadv;
        fn preadv2, preadv64v2(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t,
            flags: c_int) -> ssize_t = super::preadv2;
        fn posix_fadvise, posix_fadvise64(fd: c_int, offset: off_t, n: off_t, advice: c_int)
            -> c_int = super::posix_fadvise;
        fn flock(fd: c_int, operation: c_int) -> c_int = super::flock;
        fn fcntl, fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int
            = super::fcntl;
        fn mmap, mmap64(at: *mut c_void, n: size_t, access: c_int, flags: c_int, fd: c_int,
            offset: off_t) -> *mut c_void = super::mmap;
        fn sendfile, sendfile64(to: c_int, from: c_int, offset: *mut off_t, n: size_t) -> ssize_t
            = super::sendfile;
        fn copy_file_range(from: c_int, offset: *mut off_t, to: c_int, to_offset: *mut off_t,
            n: size_t, flags: c_uint) -> ssize_t = super::copy_file_range;
        fn fopen, fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = streams::fopen;
        fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = streams::fdopen;
        fn fileno, fileno_unlocked(stream: *mut FILE) -> c_int = streams::fileno;
    }
}
