//! A few numbers side by side in one register, for `xtc_fast`.
//!
//! SSE2 belongs to every x86-64 processor. Left to itself, the compiler takes the fourth lane
//! apart from the others, which costs 18 % of the time of a whole frame; hence the intrinsics.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{Four, Two};
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{Four, Two};
