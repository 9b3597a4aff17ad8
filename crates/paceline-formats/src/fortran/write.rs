//! Fortran's edit descriptors: `G20.10`, `1P,E16.7`, `Fw.d` and `Iw`.

/// The least magnitude that [`g20_10`] does not write as 0.
const LEAST: f64 = 1e-99;

/// `G20.10`: ten digits and a point, with an exponent where they lie outside of 0.1 to 10¹⁰.
///
/// Sixteen columns are sign, digits and point; four are the exponent or blank.
pub fn g20_10(value: f64) -> [u8; 20] {
    let magnitude = value.abs();
    let (digits, q, negative) = match magnitude {
        _ if !value.is_finite() => return not_finite(value),
        // The sign of a zero is written.
        0.0 => (0, 0, value.is_sign_negative()),
        ..LEAST => (0, 0, false),
        _ => {
            let (digits, q) = ten_digits(magnitude);
            (digits, q, value < 0.0)
        }
    };
    // 0 to 10 digits stand before the point where there is no exponent.
    let whole = q + 1;
    let plain = (0..=10).contains(&whole);
    let (before, tail) = match plain {
        true => (whole as usize, *b"    "),
        false => (0, exponent(whole)),
    };
    let mut text = [0; 20];
    text[..16].copy_from_slice(&columns(digits, before, negative).to_le_bytes());
    text[16..].copy_from_slice(&tail);
    text
}

/// The sixteen columns of ten digits with a point after the first `before` of them, the first
/// column in the lowest byte. Put together as one number, where no digit needs a branch or a loop.
fn columns(digits: u64, before: usize, negative: bool) -> u128 {
    let text = ten_characters(digits);
    let whole = text & WHOLE[before];
    let fraction = text ^ whole;
    // Five columns stand before the digits, and the point before those of the fraction.
    (whole << 40) | (fraction << 48) | OTHERS[before][usize::from(negative)]
}

/// The lowest bytes, 0 to 10 of them.
const WHOLE: [u128; 11] = {
    let mut masks = [0; 11];
    let mut n = 1;
    while n < masks.len() {
        masks[n] = masks[n - 1] << 8 | 0xff;
        n += 1;
    }
    masks
};

/// What stands in the columns beside 0 to 10 digits before the point and the others behind it, for
/// numbers above zero and below.
const OTHERS: [[u128; 2]; 11] = {
    let mut all = [[others(0, b"    0"), others(0, b"   -0")]; 11];
    let mut before = 1;
    while before < all.len() {
        all[before] = [others(before, b"     "), others(before, b"    -")];
        before += 1;
    }
    all
};

const fn others(before: usize, front: &[u8; 5]) -> u128 {
    let mut columns = [0; 16];
    columns.split_at_mut(front.len()).0.copy_from_slice(front);
    columns[front.len() + before] = b'.';
    u128::from_le_bytes(columns)
}

/// The ten characters of a number below 10¹⁰, the first in the lowest byte.
fn ten_characters(digits: u64) -> u128 {
    let (first, others) = (digits / 100_000_000, digits % 100_000_000);
    let first = (first / 10) | ((first % 10) << 8) | 0x3030;
    u128::from(first) | u128::from(eight_characters(others)) << 16
}

/// The eight characters of a number below 10⁸: halves, quarters and digits, all side by side.
/// Multiplication and shift divide by 100 and 10 exactly for numbers as small as these.
fn eight_characters(digits: u64) -> u64 {
    let halves = (digits / 10_000) | ((digits % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (quarters - 10 * tens) << 8;
    digits | 0x3030_3030_3030_3030
}

/// Four columns: `E+11`, `E-01`, and without the letter `+100`.
fn exponent(value: i32) -> [u8; 4] {
    let sign = if value < 0 { b'-' } else { b'+' };
    let digit = |unit: u32| b'0' + (value.unsigned_abs() / unit % 10) as u8;
    match digit(100) {
        b'0' => [b'E', sign, digit(10), digit(1)],
        hundreds => [sign, hundreds, digit(10), digit(1)],
    }
}

#[cold]
fn not_finite<const WIDTH: usize>(value: f64) -> [u8; WIDTH] {
    right(match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    })
}

/// `1P,E16.7`: one digit before the point and seven behind it.
pub fn e16_7(value: f64) -> [u8; 16] {
    if !value.is_finite() {
        return not_finite(value);
    }
    let text = format!("{value:.7e}");
    let (digits, power) = text.split_once('e').unwrap_or_default();
    let power = exponent(power.parse().unwrap_or_default());
    right(&format!("{digits}{}", power.escape_ascii()))
}

fn right<const WIDTH: usize>(text: &str) -> [u8; WIDTH] {
    let mut columns = [b' '; WIDTH];
    for (column, character) in columns.iter_mut().rev().zip(text.bytes().rev()) {
        *column = character;
    }
    columns
}

/// `Fw.d`, such as `F12.6`; `None` where the number needs more columns, and Fortran writes stars.
pub fn f<const WIDTH: usize, const DECIMALS: usize>(value: f64) -> Option<[u8; WIDTH]> {
    const { assert!(WIDTH > DECIMALS) };
    let unit = const { 10u64.pow(DECIMALS as u32) };
    let number = scaled::<DECIMALS>(value.abs())?;
    let (whole, mut fraction) = (number / unit, number % unit);
    let mut columns = [b' '; WIDTH];
    let (front, back) = columns.split_at_mut(WIDTH - DECIMALS);
    for column in back.iter_mut().rev() {
        *column = b'0' + (fraction % 10) as u8;
        fraction /= 10;
    }
    let (point, front) = front.split_last_mut()?;
    *point = b'.';
    put_integer(front, whole, value.is_sign_negative())?;
    Some(columns)
}

/// `Iw`, such as `I10`; `None` where the number needs more columns, and Fortran writes stars.
pub fn i<const WIDTH: usize>(value: i64) -> Option<[u8; WIDTH]> {
    let mut columns = [b' '; WIDTH];
    put_integer(&mut columns, value.unsigned_abs(), value < 0)?;
    Some(columns)
}

/// Write into the last of blank columns.
fn put_integer(columns: &mut [u8], mut value: u64, negative: bool) -> Option<()> {
    let mut columns = columns.iter_mut().rev();
    loop {
        *columns.next()? = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    if negative {
        *columns.next()? = b'-';
    }
    Some(())
}

// From binary to decimal, rounded correctly: to the nearest, ties to the even digit.
//
// A number is m × 2ᵉ with m < 2⁵³, so m × 2ᵉ × 10ᵏ is the integer m × 5ᵏ shifted by e + k bits.
// For 0 ≤ k ≤ 27 it fits in 128 bits, and the bits shifted out tell exactly how to round: nothing
// is approximated. All else, which is rare in a simulation, is left to the standard library.

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
const LEAST_POWER: i32 = -18;

/// From where on ten digits round up to 10^`LEAST_POWER`, …, 10¹⁰. From 1 on these are gfortran's own
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
fn ten_digits(value: f64) -> (u64, i32) {
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
    let border = BORDERS[(below + 1 - LEAST_POWER) as usize];
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
fn scaled<const DECIMALS: usize>(value: f64) -> Option<u64> {
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
