//! Original functions of the C library, which this library wraps.

use std::ffi::CStr;
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{FILE, c_char, c_int, c_void, iovec, mode_t, off_t, size_t, ssize_t};

/// Return the address that `name` would have without this library.
fn address(cached: &AtomicUsize, name: &CStr) -> usize {
    let mut address = cached.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: the name ends with a zero byte; the result is only compared and stored.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        if address == 0 {
            eprintln!("slowfs: the C library has no {name:?}");
            std::process::abort();
        }
        cached.store(address, Ordering::Relaxed);
    }
    address
}

/// Declare an original function. Parameters after a semicolon are those of a variadic function.
macro_rules! next {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(; $dots:tt $more:ident: $more_kind:ty)?)
        -> $result:ty = $c_name:literal;)*) => {$(
        /// # Safety
        /// Call the original function of the C library with this name.
        pub unsafe fn $name($($argument: $kind,)* $($more: $more_kind)?) -> $result {
            static ADDRESS: AtomicUsize = AtomicUsize::new(0);
            let address = address(&ADDRESS, $c_name);
            // SAFETY: the address is that of the function with this name in the C library, which
            // has these types of parameters and result. The caller meets its other requirements.
            unsafe {
                let function: unsafe extern "C" fn($($kind),* $(, $dots)?) -> $result =
                    transmute(address);
                function($($argument,)* $($more)?)
            }
        }
    )*};
}

next! {
    fn open(path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int = c"open";
    fn openat(folder: c_int, path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int
        = c"openat";
    fn read(fd: c_int, buffer: *mut c_void, n: size_t) -> ssize_t = c"read";
    fn pread(fd: c_int, buffer: *mut c_void, n: size_t, offset: off_t) -> ssize_t = c"pread";
    fn readv(fd: c_int, buffers: *const iovec, n: c_int) -> ssize_t = c"readv";
    fn preadv(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t) -> ssize_t = c"preadv";
    fn preadv2(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t, flags: c_int) -> ssize_t
        = c"preadv2";
    fn posix_fadvise(fd: c_int, offset: off_t, n: off_t, advice: c_int) -> c_int
        = c"posix_fadvise";
    fn flock(fd: c_int, operation: c_int) -> c_int = c"flock";
    fn fcntl(fd: c_int, command: c_int; ... argument: *mut c_void) -> c_int = c"fcntl";
    fn mmap(at: *mut c_void, n: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t)
        -> *mut c_void = c"mmap";
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, n: size_t) -> ssize_t = c"sendfile";
    fn copy_file_range(from: c_int, offset: *mut off_t, to: c_int, to_offset: *mut off_t,
        n: size_t, flags: libc::c_uint) -> ssize_t = c"copy_file_range";
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = c"fopen";
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = c"fdopen";
    fn fclose(stream: *mut FILE) -> c_int = c"fclose";
    fn fileno(stream: *mut FILE) -> c_int = c"fileno";
}
