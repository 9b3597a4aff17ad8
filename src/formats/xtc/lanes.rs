//! A few numbers side by side in one register, for `fast` and `radix`.
//!
//! SSE2 belongs to every x86-64 processor. Left to itself, the compiler takes the lanes of arrays
//! apart, which costs a fifth of the time of a whole frame; hence the intrinsics.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{Four, Two};
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{Four, Two};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{portable, sse2};

    /// Do the same with both kinds of lanes and compare what comes out as floats.
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
