//! Descriptors that refer to slow files, and pages that this process has received.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::c_int;

/// Minimum size that the kernel fetches, bytes.
pub const PAGE: u64 = 4096;

/// Slow file in its current state. A file that was written counts as another file.
pub struct SlowFile {
    identity: Identity,
    /// Time at which each page arrives; 0 if it was not requested.
    arrivals: Box<[AtomicU64]>,
    /// Next file in the list: the one that was added before.
    next: *mut SlowFile,
}

#[derive(PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    number: libc::ino_t,
    size: libc::off_t,
    modified: (libc::time_t, libc::c_long),
}

/// List of all files. It only grows, so that threads need no lock. A fork could leave a lock
/// locked.
static LATEST: AtomicPtr<SlowFile> = AtomicPtr::new(null_mut());

/// Return the slow file of a descriptor. The kernel is asked at each call, so that duplicated,
/// inherited or closed descriptors need no bookkeeping.
pub fn slow_file(fd: c_int, folder: &[u8]) -> Option<&'static SlowFile> {
    let identity = identity(fd)?;
    let mut latest = LATEST.load(Ordering::Acquire);
    let mut file = latest;
    // SAFETY: pointers in the list are null, or point to leaked boxes that are never changed.
    while let Some(known) = unsafe { file.as_ref() } {
        if known.identity == identity {
            return Some(known);
        }
        file = known.next;
    }
    if !lies_in(fd, folder) {
        return None;
    }
    let n_pages = (identity.size as u64).div_ceil(PAGE);
    let added = Box::into_raw(Box::new(SlowFile {
        identity,
        arrivals: (0..n_pages).map(|_| AtomicU64::new(0)).collect(),
        next: latest,
    }));
    loop {
        match LATEST.compare_exchange(latest, added, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the box is leaked, and is never changed from now on.
            Ok(_) => return Some(unsafe { &*added }),
            Err(other) => {
                latest = other;
                // SAFETY: no other thread has a pointer to the box yet.
                unsafe { (*added).next = other };
            }
        }
    }
}

impl SlowFile {
    /// Return a number that usually differs from those of other files.
    pub fn number(&self) -> u64 {
        self.identity.number
    }

    pub fn n_pages(&self) -> u64 {
        self.arrivals.len() as u64
    }

    /// Return the time at which a page arrives; `None` if it was not requested, or is beyond the
    /// end of the file.
    pub fn arrival(&self, page: u64) -> Option<u64> {
        let moment = self.arrivals.get(page as usize)?.load(Ordering::Relaxed);
        (moment > 0).then_some(moment)
    }

    pub fn arrives(&self, page: u64, moment: u64) {
        if let Some(arrival) = self.arrivals.get(page as usize) {
            arrival.store(moment, Ordering::Relaxed);
        }
    }
}

/// Return the identity of a regular file, else `None`.
fn identity(fd: c_int) -> Option<Identity> {
    // SAFETY: zeros are a valid stat, and fstat writes only to this variable.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat)?
    };
    (stat.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(Identity {
        device: stat.st_dev,
        number: stat.st_ino,
        size: stat.st_size,
        modified: (stat.st_mtime, stat.st_mtime_nsec),
    })
}

fn lies_in(fd: c_int, folder: &[u8]) -> bool {
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else {
        return false;
    };
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).starts_with(folder)
}
