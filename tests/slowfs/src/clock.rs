//! Monotonic time of the host, in nanoseconds. All processes share it.

use libc::{CLOCK_MONOTONIC, TIMER_ABSTIME, timespec};

const SECOND: u64 = 1_000_000_000;

pub fn now() -> u64 {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes only to the local variable `time`.
    unsafe { libc::clock_gettime(CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// Sleep until `moment`. Signals do not end the sleep, as they do not end waiting for a disk.
pub fn wait_until(moment: u64) {
    if moment <= now() {
        return;
    }
    let time = timespec {
        tv_sec: (moment / SECOND) as libc::time_t,
        tv_nsec: (moment % SECOND) as libc::c_long,
    };
    // SAFETY: the call only reads the local variable `time`; the null pointer means that no
    // remaining time is returned.
    while unsafe {
        libc::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, std::ptr::null_mut())
    } == libc::EINTR
    {}
}
