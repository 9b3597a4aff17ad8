//! SIMD operations on two or four numbers, for `decode_fast`, `mixed_radix` and `encode`.
//!
//! Every x86-64 processor has SSE2. Without intrinsics, the compiler splits arrays into single
//! lanes, which costs a fifth of the time of decoding a whole frame.

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{Floats, Four, Two};
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{Floats, Four, Two};

/// The types of lanes in SSE2 registers.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Evaluate intrinsics, and convert between registers and arrays of numbers.
    macro_rules! sse2 {
        ($values:expr) => {
            // SAFETY: these intrinsics only take and return values, and need SSE2, which every
            // x86-64 processor has. Registers and arrays have the same size, and every bit pattern
            // is valid in both.
            unsafe { $values }
        };
    }

    /// Two unsigned 64-bit integers.
    #[derive(Debug, Clone, Copy)]
    pub struct Two(__m128i);

    /// Four signed 32-bit integers.
    #[derive(Debug, Clone, Copy)]
    pub struct Four(__m128i);

    /// Four floats.
    #[derive(Debug, Clone, Copy)]
    pub struct Floats(__m128);

    impl Two {
        #[inline(always)]
        pub fn new(numbers: [u64; 2]) -> Self {
            Two(sse2!(transmute::<[u64; 2], __m128i>(numbers)))
        }

        #[inline(always)]
        pub fn and(self, other: Self) -> Self {
            Two(sse2!(_mm_and_si128(self.0, other.0)))
        }

        #[inline(always)]
        pub fn or(self, other: Self) -> Self {
            Two(sse2!(_mm_or_si128(self.0, other.0)))
        }

        #[inline(always)]
        pub fn minus(self, other: Self) -> Self {
            Two(sse2!(_mm_sub_epi64(self.0, other.0)))
        }

        /// Return the products of the lower halves of the lanes.
        #[inline(always)]
        pub fn times(self, other: Self) -> Self {
            Two(sse2!(_mm_mul_epu32(self.0, other.0)))
        }

        /// Shift both lanes right by the first lane of `count`.
        #[inline(always)]
        pub fn right(self, count: Self) -> Self {
            Two(sse2!(_mm_srl_epi64(self.0, count.0)))
        }

        /// Return true if the highest bit of any lane is set.
        #[inline(always)]
        pub fn any_negative(self) -> bool {
            sse2!(_mm_movemask_pd(_mm_castsi128_pd(self.0))) != 0
        }

        /// Combine `x`, `y` and `z` (each below 2^32) to two triples, one per lane, with 0 as
        /// fourth number.
        #[inline(always)]
        pub fn triples(x: Self, y: Self, z: Self) -> (Four, Four) {
            sse2!({
                let xy = _mm_or_si128(x.0, _mm_slli_epi64::<32>(y.0));
                (
                    Four(_mm_unpacklo_epi64(xy, z.0)),
                    Four(_mm_unpackhi_epi64(xy, z.0)),
                )
            })
        }
    }

    impl Four {
        #[inline(always)]
        pub fn new(numbers: [i32; 4]) -> Self {
            Four(sse2!(transmute::<[i32; 4], __m128i>(numbers)))
        }

        #[inline(always)]
        pub fn to_array(self) -> [i32; 4] {
            sse2!(transmute::<__m128i, [i32; 4]>(self.0))
        }

        #[inline(always)]
        pub fn or(self, other: Self) -> Self {
            Four(sse2!(_mm_or_si128(self.0, other.0)))
        }

        #[inline(always)]
        pub fn plus(self, other: Self) -> Self {
            Four(sse2!(_mm_add_epi32(self.0, other.0)))
        }

        #[inline(always)]
        pub fn minus(self, other: Self) -> Self {
            Four(sse2!(_mm_sub_epi32(self.0, other.0)))
        }

        /// Return all bits set in lanes that are equal, and no bits in other lanes.
        #[inline(always)]
        pub fn equals(self, other: Self) -> Self {
            Four(sse2!(_mm_cmpeq_epi32(self.0, other.0)))
        }

        #[inline(always)]
        pub fn any_negative(self) -> bool {
            sse2!(_mm_movemask_ps(_mm_castsi128_ps(self.0))) != 0
        }

        /// Convert to floats, multiply by `scale`, then by 10.
        #[inline(always)]
        pub fn scaled(self, scale: f32) -> [f32; 4] {
            sse2!({
                let floats = _mm_mul_ps(_mm_cvtepi32_ps(self.0), _mm_set1_ps(scale));
                transmute::<__m128, [f32; 4]>(_mm_mul_ps(floats, _mm_set1_ps(10.0)))
            })
        }
    }

    impl Floats {
        #[inline(always)]
        pub fn new(numbers: [f32; 4]) -> Self {
            Floats(sse2!(transmute::<[f32; 4], __m128>(numbers)))
        }

        #[inline(always)]
        pub fn to_array(self) -> [f32; 4] {
            sse2!(transmute::<__m128, [f32; 4]>(self.0))
        }

        #[inline(always)]
        pub fn times(self, factor: f32) -> Self {
            Floats(sse2!(_mm_mul_ps(self.0, _mm_set1_ps(factor))))
        }

        /// Add half a unit away from 0.
        #[inline(always)]
        pub fn add_half_away_from_zero(self) -> Self {
            sse2!({
                let sign = _mm_and_ps(self.0, _mm_set1_ps(-0.0));
                Floats(_mm_add_ps(self.0, _mm_or_ps(sign, _mm_set1_ps(0.5))))
            })
        }

        /// Return the smaller number of each lane, or that of `other` if one of the two is NaN.
        #[inline(always)]
        pub fn least(self, other: Self) -> Self {
            Floats(sse2!(_mm_min_ps(self.0, other.0)))
        }

        /// Return the larger number of each lane, or that of `other` if one of the two is NaN.
        #[inline(always)]
        pub fn greatest(self, other: Self) -> Self {
            Floats(sse2!(_mm_max_ps(self.0, other.0)))
        }

        /// Return the integer parts, or `i32::MIN` if they do not fit into 32 bits.
        #[inline(always)]
        pub fn truncated(self) -> Four {
            Four(sse2!(_mm_cvttps_epi32(self.0)))
        }
    }
}

/// The types of lanes as arrays, which the compiler may vectorise.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    /// Two unsigned 64-bit integers.
    #[derive(Debug, Clone, Copy)]
    pub struct Two([u64; 2]);

    /// Four signed 32-bit integers.
    #[derive(Debug, Clone, Copy)]
    pub struct Four([i32; 4]);

    /// Four floats.
    #[derive(Debug, Clone, Copy)]
    pub struct Floats([f32; 4]);

    fn zip<T: Copy, const N: usize>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
        std::array::from_fn(|i| f(a[i], b[i]))
    }

    impl Two {
        #[inline(always)]
        pub fn new(numbers: [u64; 2]) -> Self {
            Two(numbers)
        }

        #[inline(always)]
        pub fn and(self, other: Self) -> Self {
            Two(zip(self.0, other.0, |a, b| a & b))
        }

        #[inline(always)]
        pub fn or(self, other: Self) -> Self {
            Two(zip(self.0, other.0, |a, b| a | b))
        }

        #[inline(always)]
        pub fn minus(self, other: Self) -> Self {
            Two(zip(self.0, other.0, u64::wrapping_sub))
        }

        /// Return the products of the lower halves of the lanes.
        #[inline(always)]
        pub fn times(self, other: Self) -> Self {
            let low = |number| u64::from(number as u32);
            Two(zip(self.0, other.0, |a, b| low(a) * low(b)))
        }

        /// Shift both lanes right by the first lane of `count`.
        #[inline(always)]
        pub fn right(self, count: Self) -> Self {
            Two(self.0.map(|a| a >> (count.0[0] & 63)))
        }

        /// Return true if the highest bit of any lane is set.
        #[inline(always)]
        pub fn any_negative(self) -> bool {
            ((self.0[0] | self.0[1]) as i64) < 0
        }

        /// Combine `x`, `y` and `z` (each below 2^32) to two triples, one per lane, with 0 as
        /// fourth number.
        #[inline(always)]
        pub fn triples(x: Self, y: Self, z: Self) -> (Four, Four) {
            let triple = |i: usize| {
                let xy = x.0[i] | y.0[i] << 32;
                let z = z.0[i];
                Four([xy as i32, (xy >> 32) as i32, z as i32, (z >> 32) as i32])
            };
            (triple(0), triple(1))
        }
    }

    impl Four {
        #[inline(always)]
        pub fn new(numbers: [i32; 4]) -> Self {
            Four(numbers)
        }

        #[inline(always)]
        pub fn to_array(self) -> [i32; 4] {
            self.0
        }

        #[inline(always)]
        pub fn or(self, other: Self) -> Self {
            Four(zip(self.0, other.0, |a, b| a | b))
        }

        #[inline(always)]
        pub fn plus(self, other: Self) -> Self {
            Four(zip(self.0, other.0, i32::wrapping_add))
        }

        #[inline(always)]
        pub fn minus(self, other: Self) -> Self {
            Four(zip(self.0, other.0, i32::wrapping_sub))
        }

        /// Return all bits set in lanes that are equal, and no bits in other lanes.
        #[inline(always)]
        pub fn equals(self, other: Self) -> Self {
            Four(zip(self.0, other.0, |a, b| -i32::from(a == b)))
        }

        #[inline(always)]
        pub fn any_negative(self) -> bool {
            self.0.iter().any(|&number| number < 0)
        }

        /// Convert to floats, multiply by `scale`, then by 10.
        #[inline(always)]
        pub fn scaled(self, scale: f32) -> [f32; 4] {
            self.0.map(|number| number as f32 * scale * 10.0)
        }
    }

    impl Floats {
        #[inline(always)]
        pub fn new(numbers: [f32; 4]) -> Self {
            Floats(numbers)
        }

        #[inline(always)]
        pub fn to_array(self) -> [f32; 4] {
            self.0
        }

        #[inline(always)]
        pub fn times(self, factor: f32) -> Self {
            Floats(self.0.map(|number| number * factor))
        }

        /// Add half a unit away from 0.
        #[inline(always)]
        pub fn add_half_away_from_zero(self) -> Self {
            Floats(self.0.map(|number| number + 0.5f32.copysign(number)))
        }

        /// Return the smaller number of each lane, or that of `other` if one of the two is NaN.
        #[inline(always)]
        pub fn least(self, other: Self) -> Self {
            Floats(zip(self.0, other.0, |a, b| if a < b { a } else { b }))
        }

        /// Return the larger number of each lane, or that of `other` if one of the two is NaN.
        #[inline(always)]
        pub fn greatest(self, other: Self) -> Self {
            Floats(zip(self.0, other.0, |a, b| if a > b { a } else { b }))
        }

        /// Return the integer parts, or `i32::MIN` if they do not fit into 32 bits.
        #[inline(always)]
        pub fn truncated(self) -> Four {
            let fits = |number: f32| number.abs() < 2_147_483_648.0;
            Four(self.0.map(|x| if fits(x) { x as i32 } else { i32::MIN }))
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{portable, sse2};

    /// Evaluate an expression with both kinds of lanes, and compare the results.
    macro_rules! both {
        ($a:expr, $b:expr, $count:expr, |$kind:ident, $x:ident, $y:ident, $n:ident| $result:expr) => {{
            let of_portable = {
                use portable as $kind;
                let ($x, $y) = ($kind::Two::new($a), $kind::Two::new($b));
                let $n = $kind::Two::new([$count; 2]);
                $result
            };
            let of_sse2 = {
                use sse2 as $kind;
                let ($x, $y) = ($kind::Two::new($a), $kind::Two::new($b));
                let $n = $kind::Two::new([$count; 2]);
                $result
            };
            assert_eq!(of_portable, of_sse2);
        }};
    }

    /// Return the results of one kind of lanes for eight floats.
    macro_rules! of_floats {
        ($kind:ident, $a:expr, $b:expr) => {{
            let (a, b) = ($kind::Floats::new($a), $kind::Floats::new($b));
            let whole = a.times(1.7).add_half_away_from_zero().truncated();
            let odd = $kind::Four::new([i32::MIN, 0, 1, -1]);
            (
                a.least(b).to_array().map(f32::to_bits),
                a.greatest(b).to_array().map(f32::to_bits),
                whole.to_array(),
                whole.equals(odd).to_array(),
            )
        }};
    }

    #[test]
    fn both_kinds_of_floats_agree() {
        let odd = [0.0, -0.0, 0.49, -0.5, -1.5, f32::NAN, f32::NEG_INFINITY];
        let random = (1..200).map(|i: i32| (i as f32 * 12.9898).sin() * 10f32.powi(i % 11));
        let numbers: Vec<f32> = odd.into_iter().chain(random).collect();
        for eight in numbers.windows(8) {
            let (a, b) = (
                [0, 1, 2, 3].map(|i| eight[i]),
                [4, 5, 6, 7].map(|i| eight[i]),
            );
            assert_eq!(of_floats!(portable, a, b), of_floats!(sse2, a, b));
        }
    }

    #[test]
    fn both_kinds_agree() {
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state ^ state >> 31
        };
        for _ in 0..1000 {
            let (a, b, count) = ([next(), next()], [next(), next()], next() % 64);
            both!(a, b, count, |kind, x, y, n| {
                let z = x.and(y).or(x.times(y)).minus(y.right(n));
                let (first, second) = kind::Two::triples(x.right(n), y, z);
                let four = kind::Four::new([1, -2, 3, i32::MAX]);
                let (sum, difference) = (first.plus(four), first.minus(second.or(four)));
                (
                    z.any_negative(),
                    difference.any_negative(),
                    sum.scaled(1e-3).map(f32::to_bits),
                    difference.scaled(1e-2).map(f32::to_bits),
                )
            });
        }
    }
}
