//! Time that all processes of a host agree on, in nanoseconds.

use libc::{CLOCK_MONOTONIC, TIMER_ABSTIME, timespec};

const SECOND: u64 = 1_000_000_000;

pub fn now() -> u64 {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to `time`, which is ours.
    unsafe { libc::clock_gettime(CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// Sleep until `moment`. Signals do not end it, as they do not end waiting for a disk.
pub fn wait_until(moment: u64) {
    if moment <= now() {
        return;
    }
    let time = timespec {
        tv_sec: (moment / SECOND) as libc::time_t,
        tv_nsec: (moment % SECOND) as libc::c_long,
    };
    // SAFETY: it reads `time`, which is ours; the null pointer says that no rest is to be told.
    while unsafe {
        libc::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, std::ptr::null_mut())
    } == libc::EINTR
    {}
}
