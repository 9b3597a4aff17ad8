//! A few numbers side by side in one register, for `fast`, `radix` and
//! `encode`.
//!
//! SSE2 belongs to every x86-64 processor. Left to itself, the compiler takes the lanes of arrays
//! apart, which costs a fifth of the time of a whole frame; hence the intrinsics.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{Floats, Four, Two};
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{Floats, Four, Two};

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

    /// What one kind of lanes makes of eight floats.
    macro_rules! of_floats {
        ($kind:ident, $a:expr, $b:expr) => {{
            let (a, b) = ($kind::Floats::new($a), $kind::Floats::new($b));
            let whole = a.times(1.7).half_further().truncated();
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
