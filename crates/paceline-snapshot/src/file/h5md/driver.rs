//! File driver of HDF5. It passes HDF5's reads and writes to a [`CrashSafeFile`].

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::crash_safe::CrashSafeFile;
use super::library::{Functions, Id};

/// File that HDF5 and the writer share.
pub type SharedFile = Arc<Mutex<CrashSafeFile>>;

/// Version of HDF5 from which on the driver's structure has a version number and vectors.
const VECTORS: [c_uint; 3] = [1, 13, 0];
/// `H5FD_CLASS_VERSION` of that structure. HDF5 refuses other versions.
const CLASS_VERSION: c_uint = 1;
/// Number of the driver, from the range for tests of private drivers.
const VALUE: c_int = 511;
/// List of free space that each kind of data uses, as in h5py's driver. All metadata share one
/// list; values and texts (kinds 3 and 4) share another.
const FREE_SPACE: [c_int; 7] = [1, 1, 1, 3, 3, 1, 1];
/// Undefined address.
const UNDEFINED: u64 = u64::MAX;
/// Maximum address.
const LAST_ADDRESS: u64 = i64::MAX as u64;

/// File as HDF5 sees it. HDF5's own part, of at most 10 words, comes first.
#[repr(C)]
struct DriverFile {
    base: [u64; 32],
    file: SharedFile,
    end_of_allocation: u64,
}

type Open = unsafe extern "C" fn(*const c_char, c_uint, Id, u64) -> *mut DriverFile;
type Close = unsafe extern "C" fn(*mut DriverFile) -> c_int;
type GetEnd = unsafe extern "C" fn(*const DriverFile, c_int) -> u64;
type SetEnd = unsafe extern "C" fn(*mut DriverFile, c_int, u64) -> c_int;
type Read = unsafe extern "C" fn(*mut DriverFile, c_int, Id, u64, usize, *mut c_void) -> c_int;
type Write = unsafe extern "C" fn(*mut DriverFile, c_int, Id, u64, usize, *const c_void) -> c_int;
type GetTypes = unsafe extern "C" fn(*const DriverFile, *mut c_int) -> c_int;
type Truncate = unsafe extern "C" fn(*mut DriverFile, Id, c_uint) -> c_int;

/// Beginning of `H5FD_class_t`, the same in all versions; functions that are not needed are NULL.
#[repr(C)]
struct Common {
    name: *const c_char,
    maximum: u64,
    close_degree: c_int,
    superblock: [usize; 4],
    access: [usize; 4],
    transfer: [usize; 3],
    open: Open,
    close: Close,
    compare: usize,
    query: usize,
    get_types: GetTypes,
    allocate: [usize; 2],
    get_allocated: GetEnd,
    set_allocated: SetEnd,
    get_end: GetEnd,
    handle: usize,
    read: Read,
    write: Write,
}

/// End of `H5FD_class_t`: after `truncate`, locks and a map of free space, all zero.
#[repr(C)]
struct Last {
    flush: usize,
    truncate: Truncate,
    zeros: [usize; 16],
}

/// `H5FD_class_t` before HDF5 1.13.
#[repr(C)]
struct Class {
    common: Common,
    last: Last,
}

/// `H5FD_class_t` since HDF5 1.13.
#[repr(C)]
struct VersionedClass {
    version: c_uint,
    value: c_int,
    common: Common,
    vectors: [usize; 4],
    last: Last,
}

thread_local! {
    /// The next file that HDF5 opens in this thread.
    static NEXT: RefCell<Option<SharedFile>> = const { RefCell::new(None) };
}

/// Register the driver; the result is negative if HDF5 refuses it.
pub fn register(functions: &Functions, version: [c_uint; 3]) -> Id {
    let common = Common {
        name: c"paceline".as_ptr(),
        maximum: LAST_ADDRESS,
        close_degree: 1, // H5F_CLOSE_WEAK
        superblock: [0; 4],
        access: [0; 4],
        transfer: [0; 3],
        open,
        close,
        compare: 0,
        query: 0,
        get_types,
        allocate: [0; 2],
        get_allocated,
        set_allocated,
        get_end,
        handle: 0,
        read,
        write,
    };
    let last = Last {
        flush: 0,
        truncate,
        zeros: [0; 16],
    };
    // SAFETY: HDF5 copies a structure of its version, which is not larger than the one given.
    match version < VECTORS {
        true => {
            let class = Class { common, last };
            unsafe { (functions.H5FDregister)((&raw const class).cast()) }
        }
        false => {
            let class = VersionedClass {
                version: CLASS_VERSION,
                value: VALUE,
                common,
                vectors: [0; 4],
                last,
            };
            unsafe { (functions.H5FDregister)((&raw const class).cast()) }
        }
    }
}

/// Call a function of HDF5 that opens a file through the driver.
pub fn opening<T>(file: &SharedFile, function: impl FnOnce() -> T) -> T {
    NEXT.set(Some(file.clone()));
    let result = function();
    NEXT.set(None);
    result
}

unsafe extern "C" fn open(
    _name: *const c_char,
    _flags: c_uint,
    _access: Id,
    _maximum: u64,
) -> *mut DriverFile {
    match NEXT.with_borrow(Clone::clone) {
        None => std::ptr::null_mut(),
        Some(file) => Box::into_raw(Box::new(DriverFile {
            base: [0; 32],
            file,
            end_of_allocation: 0,
        })),
    }
}

unsafe extern "C" fn close(file: *mut DriverFile) -> c_int {
    // SAFETY: HDF5 closes a file of `open` once, and does not use it afterwards.
    drop(unsafe { Box::from_raw(file) });
    0
}

/// Lock the file. If another thread panicked, its last write was either applied or not, so that the
/// file is valid.
pub fn locked(file: &SharedFile) -> MutexGuard<'_, CrashSafeFile> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn get_types(_file: *const DriverFile, types: *mut c_int) -> c_int {
    // SAFETY: HDF5 passes an array with an element for each kind.
    unsafe { types.cast::<[c_int; 7]>().write(FREE_SPACE) };
    0
}

unsafe extern "C" fn get_allocated(file: *const DriverFile, _kind: c_int) -> u64 {
    // SAFETY: HDF5 passes a file of `open`, and uses it in one thread at a time. The same holds
    // below.
    unsafe { (*file).end_of_allocation }
}

unsafe extern "C" fn set_allocated(file: *mut DriverFile, _kind: c_int, end: u64) -> c_int {
    // SAFETY: as above.
    unsafe { (*file).end_of_allocation = end };
    0
}

unsafe extern "C" fn get_end(file: *const DriverFile, _kind: c_int) -> u64 {
    // SAFETY: as above.
    locked(unsafe { &(*file).file }).size()
}

unsafe extern "C" fn read(
    file: *mut DriverFile,
    _kind: c_int,
    _transfer: Id,
    offset: u64,
    size: usize,
    buffer: *mut c_void,
) -> c_int {
    if offset == UNDEFINED {
        return -1;
    }
    // SAFETY: as above.
    let found = locked(unsafe { &(*file).file }).read(offset, size);
    match found {
        Err(_) => -1,
        Ok(found) => {
            // SAFETY: `found` has `size` bytes, as many as HDF5's buffer.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), buffer.cast(), size) };
            0
        }
    }
}

unsafe extern "C" fn write(
    file: *mut DriverFile,
    _kind: c_int,
    _transfer: Id,
    offset: u64,
    size: usize,
    buffer: *const c_void,
) -> c_int {
    if offset == UNDEFINED || size == 0 {
        return -c_int::from(size > 0);
    }
    // SAFETY: as above, and HDF5's buffer has `size` bytes.
    let (file, bytes) = unsafe {
        (
            &(*file).file,
            std::slice::from_raw_parts(buffer.cast(), size),
        )
    };
    locked(file).write(offset, bytes);
    0
}

unsafe extern "C" fn truncate(file: *mut DriverFile, _transfer: Id, _closing: c_uint) -> c_int {
    // SAFETY: as above.
    let (file, end) = unsafe { (&(*file).file, (*file).end_of_allocation) };
    locked(file).set_size(end);
    0
}

const _: () = assert!(size_of::<c_ulong>() == 8);
