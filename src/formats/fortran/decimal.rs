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

/// 10^`LEAST` to 10¹⁰. The inexact ones do no harm: a number that lies between the power and its
/// double has ten nines, which round to the same ten digits from either side.
const TENS: [f64; 29] = [
    1e-18, 1e-17, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5,
    1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10,
];

const TEN_DIGITS: u64 = 10_000_000_000;

/// `value` as d × 10^(q − 9), with d of ten digits, or 0. `value` is finite and not negative.
pub(super) fn ten_digits(value: f64) -> (u64, i32) {
    if value == 0.0 {
        return (0, 0);
    }
    if !(TENS[0]..TENS[TENS.len() - 1]).contains(&value) {
        return by_library(value);
    }
    let (mantissa, exponent) = parts(value);
    // ⌊log₁₀ 2ⁿ⌋ for 2ⁿ ≤ value < 2ⁿ⁺¹, which is the exponent of ten or one less.
    let n = exponent + 52;
    let below = (n * 1233) >> 12;
    let above = TENS[(below + 1 - LEAST) as usize];
    let q = below + i32::from(value >= above);
    let k = 9 - q;
    let product = u128::from(mantissa) * u128::from(FIVES[k as usize]);
    let digits = shifted(product, (-(exponent + k)) as u32) as u64;
    match digits {
        TEN_DIGITS => (TEN_DIGITS / 10, q + 1),
        digits => (digits, q),
    }
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
    let product = u128::from(mantissa) * u128::from(FIVES[DECIMALS]);
    match -(exponent + DECIMALS as i32) {
        // Of 2⁵² × 5⁶ or more.
        ..=0 => None,
        shift @ 1..128 => u64::try_from(shifted(product, shift as u32)).ok(),
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

/// `product` / 2^`shift`, for shifts of 1 to 127 and a product below 2¹²⁷.
fn shifted(product: u128, shift: u32) -> u128 {
    let odd = (product >> shift) & 1;
    (product + (1 << (shift - 1)) - 1 + odd) >> shift
}
