//! From binary to decimal, rounded correctly: to the nearest, ties to the even digit.
//!
//! A number is m × 2ᵉ with m < 2⁵³, so m × 2ᵉ × 10ᵏ is the integer m × 5ᵏ shifted by e + k bits.
//! For 0 ≤ k ≤ 27 it fits in 128 bits, and the bits shifted out tell exactly how to round: nothing
//! is approximated. All else, which is rare in a simulation, is left to the standard library.

/// 5ᵏ, as many as 64 bits hold.
const FIVES: [u64; 28] = {
    let mut fives = [1; 28];
    let mut k = 1;
    while k < fives.len() {
        fives[k] = 5 * fives[k - 1];
        k += 1;
    }
    fives
};

/// The least exponent of ten with which [`ten_digits`] needs no help: 9 + 18 = 27.
const LEAST: i32 = -18;

/// From where on ten digits round up to 10^`LEAST`, …, 10¹⁰. From 1 on these are gfortran's own
/// borders, which it computes with a rounding error: 0.99999999995, a little less than halfway, is
/// written as 1.000000000, and so are the first 9.9999999995, 99.999999995, 999.99999995,
/// 9999.9999995 and 999999.99995.
const BORDERS: [f64; 29] = [
    9.9999999995e-19,
    9.9999999995e-18,
    9.9999999995e-17,
    9.999999999500001e-16,
    9.999999999500001e-15,
    9.9999999995e-14,
    9.999999999500002e-13,
    9.999999999500001e-12,
    9.999999999500001e-11,
    9.9999999995e-10,
    9.999999999500001e-9,
    9.999999999500001e-8,
    9.9999999995e-7,
    9.9999999995e-6,
    9.9999999995e-5,
    9.9999999995e-4,
    9.9999999995e-3,
    9.9999999995e-2,
    9.9999999995e-1,
    9.9999999995e0,
    9.9999999995e1,
    9.9999999995e2,
    9.9999999995e3,
    9.9999999995e4,
    9.9999999995e5,
    9.9999999995e6,
    9.9999999995e7,
    9.9999999995e8,
    9.9999999995e9,
];

/// `value` as d × 10^(q − 9), with d of ten digits, or 0. `value` is finite and not negative.
pub(super) fn ten_digits(value: f64) -> (u64, i32) {
    if value == 0.0 {
        return (0, 0);
    }
    if !(BORDERS[0]..BORDERS[BORDERS.len() - 1]).contains(&value) {
        return by_library(value);
    }
    let (mantissa, exponent) = parts(value);
    // ⌊log₁₀ 2ⁿ⌋ for 2ⁿ ≤ value < 2ⁿ⁺¹, which is the exponent of ten or one less.
    let n = exponent + 52;
    let below = (n * 1233) >> 12;
    let border = BORDERS[(below + 1 - LEAST) as usize];
    let q = below + i32::from(value >= border);
    let k = 9 - q;
    let digits = shifted(mantissa, FIVES[k as usize], (-(exponent + k)) as u32);
    (digits as u64, q)
}

/// As [`ten_digits`], of any number.
#[cold]
fn by_library(value: f64) -> (u64, i32) {
    let text = format!("{value:.9e}");
    let (digits, q) = text.split_once('e').unwrap_or_default();
    let digits = digits.replace('.', "");
    (
        digits.parse().unwrap_or_default(),
        q.parse().unwrap_or_default(),
    )
}

/// `value` × 10^`DECIMALS`, as an integer; `None` where it exceeds 64 bits. `value` is not
/// negative.
pub(super) fn scaled<const DECIMALS: usize>(value: f64) -> Option<u64> {
    // With fewer decimals, shifting to the left could be asked for.
    const { assert!(DECIMALS >= 6 && DECIMALS < FIVES.len()) };
    if !value.is_finite() {
        return None;
    }
    let (mantissa, exponent) = parts(value);
    match -(exponent + DECIMALS as i32) {
        // Of 2⁵² × 5⁶ or more.
        ..=0 => None,
        shift @ 1..128 => {
            let digits = shifted(mantissa, FIVES[DECIMALS], shift as u32);
            u64::try_from(digits).ok()
        }
        _ => Some(0),
    }
}

/// m and e of m × 2ᵉ.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (biased, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    match biased {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, biased - 1075),
    }
}

/// `mantissa` × `five` / 2^`shift`, for a power of five and shifts of 1 to 127.
fn shifted(mantissa: u64, five: u64, shift: u32) -> u128 {
    let product = u128::from(mantissa) * u128::from(five);
    let rounded = ((product >> (shift - 1)) + 1) >> 1;
    // A power of five is odd: halfway, the last bit of the product is the last of the mantissa.
    let tie = mantissa.trailing_zeros() == shift - 1;
    rounded & !u128::from(tie)
}
