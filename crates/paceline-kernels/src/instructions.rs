//! Choice of wider instruction sets at run time, beyond those of the base build.
//!
//! A function in `by_widest` is compiled from the same code for the base build, for AVX2, and
//! optionally for AVX-512. The order of operations is the same in all of these versions. No version
//! fuses operations if this could change a result, so that the results of all versions have the
//! same bits. On other processors the function is compiled once; aarch64 has NEON in its base
//! build.

use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction sets for which functions are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// Base instruction set of the target: SSE2 on x86-64.
    Base = 1,
    /// AVX2 and FMA, with registers of 256 bits.
    Avx2,
    /// AVX-512, with registers of 512 bits.
    Avx512,
}

use Instructions::{Avx2, Avx512, Base};

const UNKNOWN: u8 = 0;

/// Instruction set in use, or `UNKNOWN`.
static CHOICE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Limit the instruction sets, for measurements and tests. By default, all sets of the processor
/// are used. Results do not change.
pub fn allow(most: Instructions) {
    CHOICE.store(most.min(detected()) as u8, Ordering::Relaxed);
}

/// Return the instruction set that functions of `by_widest` use.
#[inline]
pub fn used() -> Instructions {
    let choice = CHOICE.load(Ordering::Relaxed);
    [Avx512, Avx2, Base]
        .into_iter()
        .find(|&one| choice == one as u8)
        .unwrap_or_else(choose)
}

#[cold]
fn choose() -> Instructions {
    let found = detected();
    // The exchange fails if `allow` made a choice in the meantime; that choice is kept.
    let _ = CHOICE.compare_exchange(UNKNOWN, found as u8, Ordering::Relaxed, Ordering::Relaxed);
    found
}

/// Return the widest instruction set of the processor for which all required features exist.
fn detected() -> Instructions {
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (has_avx2, has_avx512) {
            (true, true) => Avx512,
            (true, false) => Avx2,
            _ => Base,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Base
}

/// Compile a function for the base build and for AVX2, and call the version that the processor
/// supports.
///
/// Functions that the compiled function calls must be `#[inline(always)]`; otherwise they use the
/// instructions of the base build. Closures cannot be inlined in this way, and therefore use the
/// base build. `WIDE` is true in the AVX2 and AVX-512 versions. `N` is the number of
/// single-precision lanes: eight, or sixteen in the AVX-512 version. A function that begins with
/// `16 lanes:` is also compiled for AVX-512.
macro_rules! by_widest {
    (16 lanes: $(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[inline(always)]
                #[allow(clippy::too_many_arguments)]
                fn plainly<const WIDE: bool, const N: usize>($($argument: $type),*) $(-> $result)? $body

                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn by_avx512($($argument: $type),*) $(-> $result)? {
                    plainly::<true, 16>($($argument),*)
                }

                if $crate::instructions::used() == $crate::instructions::Instructions::Avx512 {
                    // SAFETY: `used` found on this processor all features that the function is
                    // compiled for. With AVX-512, NoJump takes 0.8 of the time.
                    return unsafe { by_avx512($($argument),*) };
                }
            }
            $crate::instructions::by_widest! { fn narrower($($argument: $type),*) $(-> $result)? $body }
            narrower($($argument),*)
        }
    };
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn plainly<const WIDE: bool, const N: usize>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            #[allow(clippy::too_many_arguments)]
            fn by_avx2($($argument: $type),*) $(-> $result)? {
                plainly::<true, 8>($($argument),*)
            }

            // Not inlined: inside its callers, the compiler often vectorises this code less well.
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            fn by_base($($argument: $type),*) $(-> $result)? {
                plainly::<false, 8>($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            if $crate::instructions::used() >= $crate::instructions::Instructions::Avx2 {
                // SAFETY: `used` found on this processor all features that the function is compiled
                // for. AVX2 reduces the time of all distances to 0.5 to 0.8, of an RMSD and a
                // covariance to 0.7, and of surface areas to 0.5 to 0.6
                // (docs/developers/design.md).
                return unsafe { by_avx2($($argument),*) };
            }
            by_base($($argument),*)
        }
    };
}
pub(crate) use by_widest;

/// Number of single-precision lanes in an AVX2 register.
pub(crate) const LANES: usize = 8;

/// Return a bit mask of the numbers above 0. `WIDE` must be the constant of `by_widest`, and false
/// elsewhere.
#[inline(always)]
pub(crate) fn positive<const WIDE: bool>(numbers: &[f32; LANES]) -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // Plain code compiles to one shift per number, which takes 1.6 times as long. Using two
        // halves also in the AVX2 version takes 1.3 times as long.
        //
        // SAFETY: `WIDE` is true only in code compiled for AVX2, which runs only on processors with
        // AVX2. The other instructions are SSE2, which every x86-64 processor has. All loads are
        // within the eight numbers.
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

/// Return a byte with the first `n` bits set; `n` must be at least 1.
#[inline(always)]
pub(crate) fn low_bits(n: usize) -> u8 {
    (u16::MAX >> (16 - n)) as u8
}

/// For each bit mask, the numbers of the lanes whose bits are set, padded with lane 0.
static SET: [[u8; LANES]; 256] = {
    let mut table = [[0; LANES]; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut lane, mut n) = (0, 0);
        while lane < LANES {
            if bits >> lane & 1 != 0 {
                table[bits][n] = lane as u8;
                n += 1;
            }
            lane += 1;
        }
        bits += 1;
    }
    table
};

/// Return the columns as slices of equal length, so that the compiler checks bounds only once.
#[inline(always)]
pub(crate) fn cut<const N: usize>(columns: &mut [Vec<f32>; N]) -> [&mut [f32]; N] {
    let n = columns.iter().map(Vec::len).min().unwrap_or(0);
    columns.each_mut().map(|column| &mut column[..n])
}

/// Write `begin` + the index of each set bit to the front of `out`. The rest of the first eight
/// entries is undefined.
#[inline(always)]
pub(crate) fn write_set_bits(bits: u8, begin: usize, out: &mut [u32]) {
    let out: &mut [u32; LANES] = out.first_chunk_mut().expect("room for all");
    let lanes = &SET[bits as usize];
    for k in 0..LANES {
        out[k] = begin as u32 + u32::from(lanes[k]);
    }
}

/// For each column, write the numbers whose bits are set to `out`, from index `begin` on. The rest
/// of the eight entries is undefined. `WIDE` must be the constant of `by_widest`.
#[inline(always)]
pub(crate) fn pack<const WIDE: bool, const N: usize>(
    numbers: [[f32; LANES]; N],
    bits: u8,
    out: &mut [&mut [f32]; N],
    begin: usize,
) {
    let mut out = (out.each_mut()).map(|out| {
        out[begin..]
            .first_chunk_mut::<LANES>()
            .expect("room for all")
    });
    #[cfg(target_arch = "x86_64")]
    if WIDE {
        use std::arch::x86_64::*;
        // SAFETY: as in `positive`. Loads are within the eight numbers and the eight bytes of
        // `SET`, and stores within the eight numbers of `out`.
        unsafe {
            let lanes = _mm_loadl_epi64(SET[bits as usize].as_ptr().cast());
            let lanes = _mm256_cvtepu8_epi32(lanes);
            for (out, numbers) in out.iter_mut().zip(numbers) {
                let all = _mm256_loadu_ps(numbers.as_ptr());
                _mm256_storeu_ps(out.as_mut_ptr(), _mm256_permutevar8x32_ps(all, lanes));
            }
        }
        return;
    }
    let (mut rest, mut n) = (bits, 0);
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize % LANES;
        for (out, numbers) in out.iter_mut().zip(numbers) {
            out[n % LANES] = numbers[lane];
        }
        rest &= rest - 1;
        n += 1;
    }
}

/// Transpose the coordinates of `N` atoms into one array per axis. `WIDE` and `N` must be the
/// constants of `by_widest`.
#[inline(always)]
pub(crate) fn columns_of<const WIDE: bool, const N: usize>(rows: &[[f32; 3]; N]) -> [[f32; N]; 3] {
    let mut columns = [[0.0; N]; 3];
    #[cfg(target_arch = "x86_64")]
    if WIDE && N == 16 {
        use std::arch::x86_64::*;
        // SAFETY: `N` is 16 only in code compiled for AVX-512, which runs only on processors with
        // AVX-512. Loads are within these 48 numbers or a table. Stores are within the sixteen
        // numbers of a column.
        unsafe {
            let from = rows.as_ptr().cast::<f32>();
            let one = _mm512_loadu_ps(from);
            let two = _mm512_loadu_ps(from.add(16));
            let three = _mm512_loadu_ps(from.add(32));
            for (column, [first, then]) in columns.iter_mut().zip(&TO_COLUMNS) {
                let first = _mm512_loadu_si512(first.as_ptr().cast());
                let then = _mm512_loadu_si512(then.as_ptr().cast());
                let most = _mm512_permutex2var_ps(one, first, two);
                let all = _mm512_permutex2var_ps(most, then, three);
                _mm512_storeu_ps(column.as_mut_ptr(), all);
            }
        }
        return columns;
    }
    #[cfg(target_arch = "x86_64")]
    if WIDE && N == 8 {
        use std::arch::x86_64::*;
        // With the compiler's own shuffles, NoJump takes 1.23 times as long.
        //
        // SAFETY: as in `positive`. Loads are within these 24 numbers, and stores within the eight
        // numbers of a column.
        unsafe {
            let from = rows.as_ptr().cast::<f32>();
            // The eight atoms are two halves of four atoms, and each half occupies twelve numbers.
            // Each register contains four numbers of both halves: the first four, the second four,
            // or the last four.
            let first = _mm256_loadu2_m128(from.add(12), from);
            let second = _mm256_loadu2_m128(from.add(16), from.add(4));
            let last = _mm256_loadu2_m128(from.add(20), from.add(8));
            let xy = _mm256_shuffle_ps::<0b10_01_11_10>(second, last);
            let yz = _mm256_shuffle_ps::<0b01_00_10_01>(first, second);
            let x = _mm256_shuffle_ps::<0b10_00_11_00>(first, xy);
            let y = _mm256_shuffle_ps::<0b11_01_10_00>(yz, xy);
            let z = _mm256_shuffle_ps::<0b11_00_11_01>(yz, last);
            for (column, numbers) in columns.iter_mut().zip([x, y, z]) {
                _mm256_storeu_ps(column.as_mut_ptr(), numbers);
            }
        }
        return columns;
    }
    for (k, row) in rows.iter().enumerate() {
        for (column, x) in columns.iter_mut().zip(row) {
            column[k] = *x;
        }
    }
    columns
}

/// Transpose one array per axis into the coordinates of `N` atoms: the inverse of [`columns_of`].
#[inline(always)]
pub(crate) fn rows_of<const WIDE: bool, const N: usize>(
    columns: &[[f32; N]; 3],
    rows: &mut [[f32; 3]; N],
) {
    #[cfg(target_arch = "x86_64")]
    if WIDE && N == 16 {
        use std::arch::x86_64::*;
        // SAFETY: as in `columns_of`. Loads are within the sixteen numbers of a column, and stores
        // within these 48 numbers.
        unsafe {
            let x = _mm512_loadu_ps(columns[0].as_ptr());
            let y = _mm512_loadu_ps(columns[1].as_ptr());
            let z = _mm512_loadu_ps(columns[2].as_ptr());
            let to = rows.as_mut_ptr().cast::<f32>();
            for (k, [first, then]) in TO_ROWS.iter().enumerate() {
                let first = _mm512_loadu_si512(first.as_ptr().cast());
                let then = _mm512_loadu_si512(then.as_ptr().cast());
                let most = _mm512_permutex2var_ps(x, first, y);
                _mm512_storeu_ps(to.add(16 * k), _mm512_permutex2var_ps(most, then, z));
            }
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if WIDE && N == 8 {
        use std::arch::x86_64::*;
        // SAFETY: as in `positive`. Loads are within the eight numbers of a column, and stores
        // within these 24 numbers.
        unsafe {
            let x = _mm256_loadu_ps(columns[0].as_ptr());
            let y = _mm256_loadu_ps(columns[1].as_ptr());
            let z = _mm256_loadu_ps(columns[2].as_ptr());
            let to = rows.as_mut_ptr().cast::<f32>();
            let xy = _mm256_shuffle_ps::<0b10_00_10_00>(x, y);
            let yz = _mm256_shuffle_ps::<0b11_01_11_01>(y, z);
            let zx = _mm256_shuffle_ps::<0b11_01_10_00>(z, x);
            let first = _mm256_shuffle_ps::<0b10_00_10_00>(xy, zx);
            let second = _mm256_shuffle_ps::<0b11_01_10_00>(yz, xy);
            let last = _mm256_shuffle_ps::<0b11_01_11_01>(zx, yz);
            for (k, numbers) in [(0, first), (4, second), (8, last)] {
                _mm_storeu_ps(to.add(k), _mm256_castps256_ps128(numbers));
                _mm_storeu_ps(to.add(k + 12), _mm256_extractf128_ps::<1>(numbers));
            }
        }
        return;
    }
    for (k, row) in rows.iter_mut().enumerate() {
        *row = [columns[0][k], columns[1][k], columns[2][k]];
    }
}

/// Indices for two permutations per axis, which collect the axis's 16 numbers from 48. The first
/// permutation selects from numbers 0 to 31. The second selects from its result and from numbers
/// 32 to 47.
#[cfg(target_arch = "x86_64")]
static TO_COLUMNS: [[[u32; 16]; 2]; 3] = {
    let mut table = [[[0; 16]; 2]; 3];
    let mut k = 0;
    while k < 48 {
        let (lane, axis) = (k / 3, k % 3);
        if k < 32 {
            table[axis][0][lane] = k as u32;
            table[axis][1][lane] = lane as u32;
        } else {
            table[axis][1][lane] = (k - 32 + 16) as u32;
        }
        k += 1;
    }
    table
};

/// For each sixteen of the 48 numbers in rows, indices for two permutations. The first permutation
/// selects from x and y. The second selects from its result and from z.
#[cfg(target_arch = "x86_64")]
static TO_ROWS: [[[u32; 16]; 2]; 3] = {
    let mut table = [[[0; 16]; 2]; 3];
    let mut k = 0;
    while k < 48 {
        let (lane, axis, of, to) = (k / 3, k % 3, k / 16, k % 16);
        if axis < 2 {
            table[of][0][to] = (16 * axis + lane) as u32;
            table[of][1][to] = to as u32;
        } else {
            table[of][1][to] = (16 + lane) as u32;
        }
        k += 1;
    }
    table
};

/// For each lane, return the larger of `one`, which is a magnitude, and the magnitude of `other`.
/// If one of the two is NaN, the result is one of the two. `WIDE` and `N` must be the constants of
/// `by_widest`.
#[inline(always)]
pub(crate) fn larger_magnitude<const WIDE: bool, const N: usize>(
    one: &[f32; N],
    other: &[f32; N],
) -> [f32; N] {
    let mut larger = [0.0; N];
    #[cfg(target_arch = "x86_64")]
    if WIDE && N == 16 {
        use std::arch::x86_64::*;
        // SAFETY: as in `columns_of`. Loads and stores are within the sixteen numbers of these
        // arrays.
        unsafe {
            let (one, other) = (
                _mm512_loadu_ps(one.as_ptr()),
                _mm512_loadu_ps(other.as_ptr()),
            );
            // The operation returns the larger magnitude without its sign.
            let both = _mm512_range_ps::<0b10_11>(one, other);
            _mm512_storeu_ps(larger.as_mut_ptr(), both);
        }
        return larger;
    }
    for k in 0..N {
        let other = other[k].abs();
        larger[k] = if one[k] > other { one[k] } else { other };
    }
    larger
}

/// Prefetch the cache lines of some atoms.
#[inline(always)]
pub(crate) fn prefetch(rows: &[[f32; 3]]) {
    #[cfg(target_arch = "x86_64")]
    for line in rows.as_flattened().chunks(16) {
        use std::arch::x86_64::*;
        // SAFETY: a prefetch changes only caches, and accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
