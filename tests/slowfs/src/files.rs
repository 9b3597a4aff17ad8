//! Which descriptors are slow files, and which pages of these have come to this process.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::c_int;

/// What the kernel fetches at least.
pub const PAGE: u64 = 4096;

/// A slow file as it is now: one that was written to since is another.
pub struct SlowFile {
    identity: Identity,
    /// When each page is here; 0 while nobody asked for it.
    arrivals: Box<[AtomicU64]>,
    /// The file that was met before.
    next: *mut SlowFile,
}

#[derive(PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    number: libc::ino_t,
    size: libc::off_t,
    modified: (libc::time_t, libc::c_long),
}

/// All that were met. It only grows, so that threads need no lock, which a fork could leave held.
static LATEST: AtomicPtr<SlowFile> = AtomicPtr::new(null_mut());

/// The slow file that a descriptor stands for. The kernel is asked each time: so descriptors that
/// were duplicated, inherited or closed need no looking after.
pub fn slow_file(fd: c_int, folder: &[u8]) -> Option<&'static SlowFile> {
    let identity = identity(fd)?;
    let mut latest = LATEST.load(Ordering::Acquire);
    let mut file = latest;
    // SAFETY: pointers in the list are null or of leaked boxes, which nobody changes.
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
            // SAFETY: the box is leaked and from now on nobody changes it.
            Ok(_) => return Some(unsafe { &*added }),
            Err(other) => {
                latest = other;
                // SAFETY: no other thread knows of the box yet.
                unsafe { (*added).next = other };
            }
        }
    }
}

impl SlowFile {
    /// Any number that differs from other files' mostly.
    pub fn number(&self) -> u64 {
        self.identity.number
    }

    pub fn n_pages(&self) -> u64 {
        self.arrivals.len() as u64
    }

    /// When a page is here; None where nobody asked for it or it lies behind the file's end.
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

/// None but for a regular file.
fn identity(fd: c_int) -> Option<Identity> {
    // SAFETY: zeros are a valid stat, and fstat writes to nothing else.
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
