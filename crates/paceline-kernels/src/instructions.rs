//! Instruction sets wider than those of the base build, chosen at run time.
//!
//! A function in `by_widest` is compiled twice, for the base build and for AVX2, from the same
//! plain code in fixed lanes. Neither fuses operations nor changes their order, so that the results
//! are the same to the last bit. On other processors (NEON is in aarch64's base build) it is compiled
//! once.

use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const BASE: u8 = 1;
const WIDE: u8 = 2;

/// One of the above.
static CHOICE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Allow instruction sets beyond the base build's, as by default, or not: for measurements and
/// tests. Results are the same.
pub fn allow_wide(allowed: bool) {
    let choice = if allowed && is_detected() { WIDE } else { BASE };
    CHOICE.store(choice, Ordering::Relaxed);
}

/// True if functions of `by_widest` use AVX2.
#[inline]
pub fn uses_wide() -> bool {
    match CHOICE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = if is_detected() { WIDE } else { BASE };
            // What `allow_wide` has chosen meanwhile remains.
            let _ = CHOICE.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed);
            found == WIDE
        }
        choice => choice == WIDE,
    }
}

/// True if the processor has AVX2, and what comes with it.
#[cold]
fn is_detected() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Compile a function for the base build and for AVX2, and call what the processor has.
///
/// What it calls must be `#[inline(always)]` (a closure is not), or remains in the base build's
/// instructions. `WIDE` is true where it is compiled for AVX2.
macro_rules! by_widest {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn plainly<const WIDE: bool>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
            #[allow(clippy::too_many_arguments)]
            fn by_avx2($($argument: $type),*) $(-> $result)? {
                plainly::<true>($($argument),*)
            }

            // Out of line: inlined into its callers, code is often vectorised less well.
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            fn by_base($($argument: $type),*) $(-> $result)? {
                plainly::<false>($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            if $crate::instructions::uses_wide() {
                // SAFETY: `uses_wide` has found on this processor all that the function is compiled
                // for, and its code is the same. By it all distances take 0.5 to 0.8 of the time, an
                // RMSD, a covariance and SASA 0.7 (docs/design.md).
                return unsafe { by_avx2($($argument),*) };
            }
            by_base($($argument),*)
        }
    };
}
pub(crate) use by_widest;

/// Numbers in single precision that AVX2 holds together.
pub(crate) const LANES: usize = 8;

/// A bit for each number above 0. `WIDE` is that of `by_widest`: true in nothing else.
#[inline(always)]
pub(crate) fn positive<const WIDE: bool>(numbers: &[f32; LANES]) -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // Of plain code the compiler makes a shift a number, and of two halves, two of all that
        // goes before: 1.6 and 1.3 times the time of all.
        // SAFETY: only what was compiled for AVX2 has WIDE, and it runs on processors that have it;
        // every processor of this kind has the others. All loads are of numbers of these eight.
        unsafe {
            if WIDE {
                let all = _mm256_loadu_ps(numbers.as_ptr());
                let above = _mm256_cmp_ps::<_CMP_GT_OQ>(all, _mm256_setzero_ps());
                return _mm256_movemask_ps(above) as u8;
            }
            let [low, high] = [0, 4].map(|k| {
                let four = _mm_loadu_ps(numbers.as_ptr().add(k));
                _mm_movemask_ps(_mm_cmpgt_ps(four, _mm_setzero_ps()))
            });
            (low | high << 4) as u8
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let numbered = numbers.iter().enumerate();
        numbered.fold(0, |bits, (k, &x)| bits | u8::from(x > 0.0) << k)
    }
}

/// Set the first `n` bits, of at least one.
#[inline(always)]
pub(crate) fn low_bits(n: usize) -> u8 {
    (u16::MAX >> (16 - n)) as u8
}
