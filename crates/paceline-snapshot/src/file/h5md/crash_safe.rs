//! Delay of HDF5's writes until a frame is complete, and an order of writes in which a crash does
//! no damage. A file driver passes HDF5's reads and writes to a [`CrashSafeFile`].
//!
//! The Python package does the same (`paceline/snapshot/crash_safe_hdf5_writes.py`), for reasons
//! that its module states. The bytes up to the committed size contain all complete frames. Changes
//! of these bytes wait in memory; bytes beyond them may be written earlier.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::output_file_and_container::Output;
use super::library::{Functions, Id};
use crate::{Failure, Result};

/// Alignment of allocated parts of the file, bytes. This is the size of a disk sector, and it
/// divides the size of a memory page.
pub const ALIGNMENT: u64 = 512;
const WORD: usize = 8;
/// B-tree nodes in files of superblock version 0: maximum number of children, and number of bytes
/// before the first key.
const CHILDREN: usize = 64;
const FIRST_KEY: usize = 24;
/// Superblock: signature, and offsets of the version and of the address of the end of the file.
pub const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
const VERSION: usize = 8;
const END: usize = 40;

/// Offset in the file, and the bytes at this offset.
type Piece = (u64, Vec<u8>);

/// Bytes of the file before and after a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    offset: u64,
    old: Vec<u8>,
    new: Vec<u8>,
}

/// File that HDF5 reads and writes, stored in an output. Part of its bytes are committed.
pub struct CrashSafeFile {
    pub output: Output,
    size: u64,
    /// End of the committed bytes.
    end: u64,
    refusal: Option<Failure>,
    waiting: Vec<Piece>,
}

impl CrashSafeFile {
    /// Wrap an output with `size` committed bytes.
    pub fn new(output: Output, size: u64) -> Self {
        CrashSafeFile {
            output,
            size,
            end: size,
            refusal: None,
            waiting: Vec::new(),
        }
    }

    /// Size of the file as HDF5 sees it, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Size of the committed part of the file, bytes.
    pub fn committed(&self) -> u64 {
        self.end
    }

    /// Set the size of the file as HDF5 sees it, bytes.
    pub fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Read bytes as if all waiting writes were finished; bytes beyond the end are zero.
    pub fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>> {
        let mut found = self.output.read(offset, size)?;
        found.resize(size, 0);
        let stop = offset + size as u64;
        for (start, bytes) in &self.waiting {
            let first = offset.max(*start);
            let last = stop.min(start + bytes.len() as u64);
            if first < last {
                let part = &bytes[(first - start) as usize..(last - start) as usize];
                found[(first - offset) as usize..(last - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(found)
    }

    /// Store bytes in memory until `apply`, or write them at once if they are beyond the committed
    /// end.
    ///
    /// `check` and `apply` return errors of the system, because HDF5 can neither close nor discard
    /// a file after a failed write.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if offset < self.end {
            self.waiting.push((offset, bytes.to_vec()));
        } else if self.refusal.is_none() {
            self.refusal = self.output.write(offset, bytes).err();
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Raise the error of the first failed write beyond the committed end.
    pub fn check(&mut self) -> Result<()> {
        self.refusal.take().map_or(Ok(()), Err)
    }

    /// Write all waiting changes. The row counts, at the offsets `rows`, are written last.
    ///
    /// # Errors
    /// The system cannot write; the committed bytes are then unchanged, unless the disk itself
    /// failed.
    pub fn apply(&mut self, rows: &[u64]) -> Result<()> {
        self.check()?;
        let spans: BTreeSet<(u64, usize)> = self
            .waiting
            .iter()
            .map(|(offset, bytes)| (*offset, bytes.len()))
            .collect();
        let mut changes = Vec::new();
        for (offset, size) in spans {
            let mut old = self.output.read(offset, size)?;
            old.resize(size, 0);
            let new = self.read(offset, size)?;
            changes.push(Change { offset, old, new });
        }
        for change in &changes {
            self.output.reserve(change.offset, change.new.len())?;
        }
        if self.output.size()? != self.size {
            self.output.cut(self.size)?;
        }
        for (offset, bytes) in order_writes(changes, rows) {
            self.output.write(offset, &bytes)?;
        }
        self.waiting.clear();
        self.end = self.size;
        Ok(())
    }

    /// Ignore all further writes, so that HDF5 can close a file that will be discarded.
    pub fn give_up(&mut self) {
        self.end = u64::MAX;
    }

    /// Discard HDF5's waiting changes. The file then has `size` committed bytes.
    pub fn restart(&mut self, size: u64) {
        self.waiting.clear();
        self.refusal = None;
        self.size = size;
        self.end = size;
    }
}

/// Read the end of the file from the superblock; a killed program may have left bytes after it.
///
/// Returns `None` if the first 48 bytes are not a superblock of the version that paceline writes.
pub fn superblock_end(head: &[u8]) -> Option<u64> {
    let end = head.get(END..)?.first_chunk()?;
    (head.starts_with(SIGNATURE) && head[VERSION] == 0).then_some(u64::from_le_bytes(*end))
}

/// Split changes into writes, ordered so that the file is valid after any number of them.
///
/// The numbers of rows, at the offsets `rows`, are written last, in this order.
fn order_writes(mut changes: Vec<Change>, rows: &[u64]) -> Vec<Piece> {
    changes.sort();
    let (mut nodes, others): (Vec<_>, Vec<_>) = changes
        .into_iter()
        .partition(|change| is_node(&change.old) && is_node(&change.new));
    let mut words = BTreeMap::new();
    for change in &others {
        for at in (0..change.new.len()).step_by(WORD) {
            let end = change.new.len().min(at + WORD);
            if change.old[at..end] != change.new[at..end] {
                words.insert(change.offset + at as u64, change.new[at..end].to_vec());
            }
        }
    }
    let last: Vec<Piece> = rows
        .iter()
        .filter_map(|offset| Some((*offset, words.remove(offset)?)))
        .collect();
    nodes.sort_by_key(|change| std::cmp::Reverse(change.new[5]));
    let mut pieces: Vec<Piece> = words.into_iter().collect();
    pieces.extend(nodes.iter().flat_map(order_node));
    pieces.extend(last);
    pieces
}

/// True if bytes are a node of a B-tree.
fn is_node(bytes: &[u8]) -> bool {
    bytes.starts_with(b"TREE") && bytes.len() > FIRST_KEY
}

/// Order the writes of a B-tree node that gained a child or passed children to another node.
fn order_node(change: &Change) -> Vec<Piece> {
    let len = change.new.len();
    let key = (len.saturating_sub(FIRST_KEY + CHILDREN * WORD)) / (CHILDREN + 1);
    let used = |node: &[u8]| {
        let n_children = usize::from(u16::from_le_bytes([node[6], node[7]]));
        (FIRST_KEY + n_children * (key + WORD) + key).min(len)
    };
    let (before, after) = (used(&change.old), used(&change.new));
    let parts = if change.old[5] != change.new[5] {
        // When a tree gains a level, its root gets two children, which need less than 512 bytes: a
        // single disk sector. After a crash, this sector contains either its old or its new bytes.
        vec![0..after, after..len]
    } else {
        // The number of children is written after the children and their keys. Above the leaves,
        // the key of the first new child already directs readers to that child, so that the child
        // must be counted before this key is written.
        let keys = match change.new[5] {
            0 => before - key,
            _ => before,
        };
        vec![keys..after.max(keys), 0..WORD, WORD..keys, after..len]
    };
    parts
        .into_iter()
        .filter(|part| change.old[part.clone()] != change.new[part.clone()])
        .map(|part| (change.offset + part.start as u64, change.new[part].to_vec()))
        .collect()
}

// File driver of HDF5.

/// File that HDF5 and the writer share.
pub type SharedFile = Arc<Mutex<CrashSafeFile>>;

/// First version of HDF5 whose driver structure contains a version number and functions for
/// vectors.
const VECTORS: [c_uint; 3] = [1, 13, 0];
/// `H5FD_CLASS_VERSION` of the driver structure since HDF5 1.13. HDF5 refuses other versions.
const CLASS_VERSION: c_uint = 1;
/// Number that identifies the driver, from HDF5's range for tests of private drivers.
const VALUE: c_int = 511;
/// List of free space that each kind of data uses, as in h5py's driver. All metadata share one
/// list; values and texts (kinds 3 and 4) share another.
const FREE_SPACE: [c_int; 7] = [1, 1, 1, 3, 3, 1, 1];
/// HDF5's value for an undefined address.
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

/// End of `H5FD_class_t`. The entries after `truncate`, for locks and a map of free space, are
/// zero.
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
pub fn register_driver(functions: &Functions, version: [c_uint; 3]) -> Id {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Create a B-tree node of chunks with three dimensions that has `n_children` children.
    fn node(level: u8, n_children: u16) -> Vec<u8> {
        let key = 40;
        let mut bytes = vec![0; FIRST_KEY + CHILDREN * WORD + (CHILDREN + 1) * key];
        bytes[..4].copy_from_slice(b"TREE");
        bytes[5] = level;
        bytes[6..8].copy_from_slice(&n_children.to_le_bytes());
        let used = FIRST_KEY + usize::from(n_children) * (key + WORD) + key;
        bytes[FIRST_KEY..used].fill(n_children as u8);
        bytes
    }

    fn spans(changes: Vec<Change>, rows: &[u64]) -> Vec<(u64, usize)> {
        let writes = order_writes(changes, rows);
        writes
            .iter()
            .map(|(at, bytes)| (*at, bytes.len()))
            .collect()
    }

    #[test]
    fn numbers_of_rows_come_last_and_equal_words_are_left() {
        let change = Change {
            offset: 100,
            old: vec![0; 40],
            new: [[1; 8], [0; 8], [2; 8], [3; 8], [0; 8]].concat(),
        };
        assert_eq!(
            spans(vec![change], &[116, 100]),
            [(124, 8), (116, 8), (100, 8)]
        );
    }

    #[test]
    fn children_are_counted_after_they_are_written() {
        let change = |level| Change {
            offset: 1000,
            old: node(level, 2),
            new: node(level, 3),
        };
        // All keys and children change here. A leaf's last key is written together with the new
        // child.
        let start = 1000 + FIRST_KEY as u64;
        let leaf = [(start + 96, 88), (1000, 8), (1008, 112)];
        assert_eq!(spans(vec![change(0)], &[]), leaf);
        let above = [(start + 136, 48), (1000, 8), (1008, 152)];
        assert_eq!(spans(vec![change(1)], &[]), above);
        let grown = Change {
            new: node(1, 2),
            ..change(0)
        };
        assert_eq!(spans(vec![grown], &[])[0].0, 1000);
    }

    #[test]
    fn only_a_superblock_of_version_0_has_an_end() {
        let mut head = [0; 48];
        head[..8].copy_from_slice(SIGNATURE);
        head[END] = 77;
        assert_eq!(superblock_end(&head), Some(77));
        assert_eq!(superblock_end(&head[..47]), None);
        head[VERSION] = 2;
        assert_eq!(superblock_end(&head), None);
    }
}
