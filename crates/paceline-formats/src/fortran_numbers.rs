//! Reading and writing of numbers as text, as in Fortran's formatted I/O.
//!
//! The output is the same as that of gfortran, byte for byte, with one exception. In `G20.10`, a
//! magnitude below 1e-99 is written as 0. Its exponent would have three digits
//! (`0.1000000000-100`), which only Fortran can read.

// Numbers separated by blanks, as in Fortran's list-directed read.

/// Powers 10ⁿ that are exact in double precision.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Powers 10ⁿ for n from 0 to 8.
const POWERS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Largest number of digits for which every unsigned integer fits into 64 bits.
const MOST_DIGITS: usize = 19;

/// Parse and remove the next number of a line, correctly rounded: `-7.5`, `1E-01`, `1D+5`,
/// `1.0+100` (Fortran's form of an exponent with three digits), `NaN`, `Infinity`. Return `None`,
/// and leave the line unchanged, if the line has no more words, the next word is not a number, or
/// the number overflows.
pub fn take_real(line: &mut &[u8]) -> Option<f64> {
    let word = after_blanks(line);
    let (value, len) = match decimal(word) {
        Some(found) => found,
        None => not_finite(word)?,
    };
    end(line, word, len)?;
    Some(value)
}

/// Parse and remove the next integer of a line. Return `None`, and leave the line unchanged, if the
/// line has no more words, the next word is not an integer, or it does not fit into 64 bits.
pub fn take_integer(line: &mut &[u8]) -> Option<i64> {
    let word = after_blanks(line);
    let mut value = 0;
    let len = take_digits(word, &mut value);
    if (1..MOST_DIGITS).contains(&len) && end(line, word, len).is_some() {
        return Some(value as i64);
    }
    let len = word.iter().take_while(|&&byte| !is_blank(byte)).count();
    let value = std::str::from_utf8(&word[..len]).ok()?.parse().ok()?;
    end(line, word, len)?;
    Some(value)
}

/// Return true for a byte that ends a word: a blank, or the end of the line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn after_blanks<'a>(line: &&'a [u8]) -> &'a [u8] {
    let mut rest = *line;
    // Blanks are skipped eight at a time. One by one, they would take a third of the time of
    // reading an atom.
    while let Some(eight) = rest.first_chunk::<8>() {
        let others = u64::from_le_bytes(*eight) ^ u64::from_ne_bytes([b' '; 8]);
        rest = &rest[others.trailing_zeros() as usize / 8..];
        if others != 0 {
            break;
        }
    }
    let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
    &rest[blanks..]
}

/// Move `line` past a number of `len` bytes at the start of `word`. Return `None` if the word
/// continues after the number.
fn end<'a>(line: &mut &'a [u8], word: &'a [u8], len: usize) -> Option<()> {
    let rest = &word[len..];
    if rest.first().is_some_and(|&byte| !is_blank(byte)) {
        return None;
    }
    *line = rest;
    Some(())
}

/// Parse a decimal number at the front of a word; return it with its length.
fn decimal(word: &[u8]) -> Option<(f64, usize)> {
    let negative = word.first() == Some(&b'-');
    let signed = usize::from(matches!(word.first(), Some(b'-' | b'+')));
    let mut mantissa = 0;
    let whole = take_digits(&word[signed..], &mut mantissa);
    let mut at = signed + whole;
    let mut decimals = 0;
    if word.get(at) == Some(&b'.') {
        decimals = take_digits(&word[at + 1..], &mut mantissa);
        at += 1 + decimals;
    }
    let n_digits = whole + decimals;
    if n_digits == 0 {
        return None;
    }
    let digits = &word[signed..at];
    let (exponent, len) = exponent(&word[at..])?;
    at += len;
    let power = exponent - decimals as i64;
    let magnitude = match TENS.get(power.unsigned_abs() as usize) {
        // Mantissa and power are exact, so that a single operation rounds correctly.
        Some(ten) if n_digits <= MOST_DIGITS && mantissa <= 1 << 53 => match power {
            0.. => mantissa as f64 * ten,
            _ => mantissa as f64 / ten,
        },
        _ => by_library(digits, exponent)?,
    };
    Some((if negative { -magnitude } else { magnitude }, at))
}

/// Append the digits at the front of `bytes` to a number; return their count.
fn take_digits(bytes: &[u8], number: &mut u64) -> usize {
    let mut n = 0;
    // Eight bytes are examined at a time, and bytes after the last digit are ignored. To read
    // numbers byte by byte takes twice as long.
    while let Some(eight) = bytes[n..].first_chunk::<8>() {
        let (found, value) = digits_of(*eight);
        *number = number.wrapping_mul(POWERS[found]).wrapping_add(value);
        n += found;
        if found < 8 {
            return n;
        }
    }
    while let Some(&byte) = bytes.get(n) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        n += 1;
    }
    n
}

/// Return the number of leading digits among eight characters, and the value of these digits.
fn digits_of(eight: [u8; 8]) -> (usize, u64) {
    // Digits become 0 to 9. The first character is in the lowest byte.
    let values = u64::from_le_bytes(eight) ^ u64::from_ne_bytes([b'0'; 8]);
    // Set the highest bit of each byte above 9. A carry can only change bytes after such a byte.
    let others = values.wrapping_add(0x7676_7676_7676_7676) | values;
    let n = (others & 0x8080_8080_8080_8080).trailing_zeros() / 8;
    if n == 0 {
        return (0, 0);
    }
    // The shift fills up the digits to eight with leading zeros.
    (n as usize, eight_digits(values << (64 - 8 * n)))
}

/// Return the value of eight digits, each 0 to 9 in one byte, with the first in the lowest byte.
/// Digits are combined into pairs, then into groups of four, then into one number.
fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// Parse the exponent at the front of `bytes`, and return it with its length; both are 0 if there
/// is no exponent. Return `None` for an exponent without digits, or with more than nine digits.
fn exponent(bytes: &[u8]) -> Option<(i64, usize)> {
    let letter = match bytes.first() {
        Some(b'E' | b'e' | b'D' | b'd' | b'Q' | b'q') => 1,
        Some(b'+' | b'-') => 0,
        _ => return Some((0, 0)),
    };
    let sign = bytes.get(letter);
    let signed = usize::from(matches!(sign, Some(b'-' | b'+')));
    let mut value = 0;
    let n = take_digits(&bytes[letter + signed..], &mut value);
    // Larger exponents yield only 0 or infinity.
    let value = value.min(9_999) as i64;
    let value = if sign == Some(&b'-') { -value } else { value };
    (1..=9).contains(&n).then_some((value, letter + signed + n))
}

/// Convert `digits`, with or without a point, and an exponent to a number with the correct rounding
/// of the standard library.
#[cold]
fn by_library(digits: &[u8], exponent: i64) -> Option<f64> {
    let text = format!("{}e{exponent}", digits.escape_ascii());
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cold]
fn not_finite(word: &[u8]) -> Option<(f64, usize)> {
    let len = word.iter().take_while(|&&byte| !is_blank(byte)).count();
    let word = word[..len].to_ascii_lowercase();
    let (sign, name) = match word.split_first()? {
        (b'-', name) => (-1.0, name),
        (b'+', name) => (1.0, name),
        _ => (1.0, &word[..]),
    };
    match name {
        b"nan" => Some((f64::NAN, len)),
        b"inf" | b"infinity" => Some((sign * f64::INFINITY, len)),
        _ => None,
    }
}

// Numbers in the form of `G20.10`, parsed without a branch per digit.
//
// ```text
// columns   0 to 4    blanks, a minus sign if negative, and 0 if no digit precedes the point
//           5 to 15   ten digits and a point
//          16 to 19   blanks, or an exponent such as E-01
// ```

const WIDTH: usize = 20;

/// Masks for the lowest n bytes, with n from 0 to 15.
const LOWEST: [u128; 16] = {
    let mut masks = [0; 16];
    let mut n = 1;
    while n < masks.len() {
        masks[n] = masks[n - 1] << 8 | 0xff;
        n += 1;
    }
    masks
};

/// Parse a line of three numbers in `3G20.10`, followed only by blanks. The result is that of
/// [`take_real`], in half the time. Return `None` for other lines, some of which contain three
/// numbers in another form.
pub fn three_g20_10(line: &[u8]) -> Option<[f64; 3]> {
    let (columns, behind) = line.as_chunks::<WIDTH>();
    let [x, y, z] = columns else {
        return None;
    };
    let odd = behind.iter().fold(0, |odd, byte| odd | (byte ^ b' '));
    match odd {
        0 => Some([number(x)?, number(y)?, number(z)?]),
        _ => None,
    }
}

#[inline]
fn number(columns: &[u8; WIDTH]) -> Option<f64> {
    let (&front, tail) = columns.split_first_chunk::<16>()?;
    let (digits, decimals, negative) = decimal_columns(u128::from_le_bytes(front))?;
    let exponent = exponent_columns(tail.try_into().ok()?)?;
    // A number of ten digits and these powers are exact, so that a single operation rounds
    // correctly.
    let magnitude = match exponent - decimals {
        power @ 0.. => digits as f64 * TENS.get(power as usize)?,
        power => digits as f64 / TENS.get(-power as usize)?,
    };
    Some(match negative {
        true => -magnitude,
        false => magnitude,
    })
}

/// Parse ten digits with a point; return the number, the count of digits after the point, and
/// whether there is a minus.
fn decimal_columns(columns: u128) -> Option<(u64, i32, bool)> {
    const ONES: u128 = u128::MAX / 0xff;

    let (front, negative) = front(columns as u64 & 0xff_ffff_ffff);
    // Set the highest bit of the first byte that is a point, and possibly of later bytes.
    let points = columns ^ (ONES * b'.' as u128);
    let points = points.wrapping_sub(ONES) & !points & (ONES << 7);
    let point = points.trailing_zeros() as usize / 8;
    let before = *LOWEST.get(point)?;
    // Remove the point: move the digits before it up by one byte.
    let columns = (columns & before) << 8 | columns & !(before << 8 | 0xff);
    let first = (columns as u64 >> 48) ^ 0x3030;
    let others = (columns >> 64) as u64 ^ 0x3030_3030_3030_3030;
    // Set the highest bit of each byte above 9. A carry can only change bytes after such a byte.
    let odd = ((first + 0x7676) | first) & 0x8080
        | (others.wrapping_add(0x7676_7676_7676_7676) | others) & 0x8080_8080_8080_8080;
    let first = 10 * (first & 0xff) + (first >> 8);
    let digits = 100_000_000 * first + eight_digits(others);
    (front & (odd == 0)).then_some((digits, 15 - point as i32, negative))
}

/// Check the five columns before ten digits, with the first in the lowest byte. Return whether they
/// are valid, and whether they contain a minus. `|` avoids a branch on the sign.
fn front(columns: u64) -> (bool, bool) {
    const fn number(columns: [u8; 5]) -> u64 {
        let [a, b, c, d, e] = columns;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
    let positive = (columns == number(*b"     ")) | (columns == number(*b"    0"));
    let negative = (columns == number(*b"    -")) | (columns == number(*b"   -0"));
    (positive | negative, negative)
}

/// Parse an exponent of four columns; 0 if the columns are blank.
fn exponent_columns(columns: [u8; 4]) -> Option<i32> {
    if columns == *b"    " {
        return Some(0);
    }
    let [b'E', sign @ (b'+' | b'-'), tens, ones] = columns else {
        return None;
    };
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    let value = i32::from(tens) * 10 + i32::from(ones);
    let value = if sign == b'-' { -value } else { value };
    (tens < 10 && ones < 10).then_some(value)
}

// Fortran's edit descriptors: `G20.10`, `1P,E16.7`, `Fw.d` and `Iw`.

/// Smallest magnitude that [`g20_10`] does not write as 0.
const LEAST: f64 = 1e-99;

/// Format a number as `G20.10`: ten digits with a point, and an exponent unless the magnitude is
/// between 0.1 and 10¹⁰.
///
/// Sixteen columns contain sign, digits and point. The last four contain the exponent, or blanks.
pub fn g20_10(value: f64) -> [u8; 20] {
    let magnitude = value.abs();
    let (digits, q, negative) = match magnitude {
        _ if !value.is_finite() => return written_not_finite(value),
        // The sign of a zero is written as well.
        0.0 => (0, 0, value.is_sign_negative()),
        ..LEAST => (0, 0, false),
        _ => {
            let (digits, q) = ten_digits(magnitude);
            (digits, q, value < 0.0)
        }
    };
    // Without an exponent, 0 to 10 digits stand before the point.
    let whole = q + 1;
    let plain = (0..=10).contains(&whole);
    let (before, tail) = match plain {
        true => (whole as usize, *b"    "),
        false => (0, written_exponent(whole)),
    };
    let mut text = [0; 20];
    text[..16].copy_from_slice(&columns(digits, before, negative).to_le_bytes());
    text[16..].copy_from_slice(&tail);
    text
}

/// Return sixteen columns: sign, ten digits, and a point after the first `before` digits. The first
/// column is in the lowest byte of the result. The columns are combined as one number, without
/// branches or loops over digits.
fn columns(digits: u64, before: usize, negative: bool) -> u128 {
    let text = ten_characters(digits);
    let whole = text & WHOLE[before];
    let fraction = text ^ whole;
    // Five columns precede the digits, and the point precedes the digits of the fraction.
    (whole << 40) | (fraction << 48) | OTHERS[before][usize::from(negative)]
}

/// Masks for the lowest n bytes, with n from 0 to 10.
const WHOLE: [u128; 11] = {
    let mut masks = [0; 11];
    let mut n = 1;
    while n < masks.len() {
        masks[n] = masks[n - 1] << 8 | 0xff;
        n += 1;
    }
    masks
};

/// Columns other than digits, for 0 to 10 digits before the point, for positive and for negative
/// numbers.
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

/// Return the ten characters of a number below 10¹⁰, with the first in the lowest byte.
fn ten_characters(digits: u64) -> u128 {
    let (first, others) = (digits / 100_000_000, digits % 100_000_000);
    let first = (first / 10) | ((first % 10) << 8) | 0x3030;
    u128::from(first) | u128::from(eight_characters(others)) << 16
}

/// Return the eight characters of a number below 10⁸. The number is split into two parts of four
/// digits, then into pairs, then into digits; all parts are split at once. The parts are so small
/// that a multiplication and a shift divide exactly by 100 and 10.
fn eight_characters(digits: u64) -> u64 {
    let halves = (digits / 10_000) | ((digits % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (quarters - 10 * tens) << 8;
    digits | 0x3030_3030_3030_3030
}

/// Format an exponent in four columns: `E+11`, `E-01`, or `+100` without the letter.
fn written_exponent(value: i32) -> [u8; 4] {
    let sign = if value < 0 { b'-' } else { b'+' };
    let digit = |unit: u32| b'0' + (value.unsigned_abs() / unit % 10) as u8;
    match digit(100) {
        b'0' => [b'E', sign, digit(10), digit(1)],
        hundreds => [sign, hundreds, digit(10), digit(1)],
    }
}

#[cold]
fn written_not_finite<const WIDTH: usize>(value: f64) -> [u8; WIDTH] {
    right_aligned(match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    })
}

/// Format a number as `1P,E16.7`: one digit before the point and seven after it.
pub fn e16_7(value: f64) -> [u8; 16] {
    if !value.is_finite() {
        return written_not_finite(value);
    }
    let text = format!("{value:.7e}");
    let (digits, power) = text.split_once('e').unwrap_or_default();
    let power = written_exponent(power.parse().unwrap_or_default());
    right_aligned(&format!("{digits}{}", power.escape_ascii()))
}

fn right_aligned<const WIDTH: usize>(text: &str) -> [u8; WIDTH] {
    let mut columns = [b' '; WIDTH];
    for (column, character) in columns.iter_mut().rev().zip(text.bytes().rev()) {
        *column = character;
    }
    columns
}

/// Format a number as `Fw.d`, such as `F12.6`. Return `None` if it is not finite, or needs more
/// columns (Fortran then writes stars).
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

/// Format a number as `Iw`, such as `I10`. Return `None` if it needs more columns (Fortran then
/// writes stars).
pub fn i<const WIDTH: usize>(value: i64) -> Option<[u8; WIDTH]> {
    let mut columns = [b' '; WIDTH];
    put_integer(&mut columns, value.unsigned_abs(), value < 0)?;
    Some(columns)
}

/// Write an integer into blank columns, aligned to the right; `None` if it needs more columns.
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

// Conversion from binary to decimal, correctly rounded: to the nearest, ties to the even digit.
//
// A number is m × 2ᵉ with m < 2⁵³, so that m × 2ᵉ × 10ᵏ is the integer m × 5ᵏ shifted by e + k
// bits. For 0 ≤ k ≤ 27, the integer fits into 128 bits. The bits shifted out determine the rounding
// exactly. The standard library converts all other numbers, which are rare in simulations.

/// Powers 5ᵏ that fit into 64 bits.
const FIVES: [u64; 28] = {
    let mut fives = [1; 28];
    let mut k = 1;
    while k < fives.len() {
        fives[k] = 5 * fives[k - 1];
        k += 1;
    }
    fives
};

/// Smallest exponent q that [`ten_digits`] converts without the standard library: 9 − q may be at
/// most 27, the largest exponent in [`FIVES`].
const LEAST_POWER: i32 = -18;

/// Smallest numbers that are rounded up, with ten digits, to 10^`LEAST_POWER`, …, 10¹⁰. From 10⁰
/// on, these borders are those of gfortran, which computes them with a rounding error:
/// 0.99999999995 in double precision is slightly less than halfway, but is written as 1.000000000.
/// The same holds for 9.9999999995, 99.999999995, 999.99999995, 9999.9999995 and 999999.99995.
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

/// Convert `value`, finite and not negative, to d × 10^(q − 9), and return d and q. d has ten
/// digits, or is 0.
fn ten_digits(value: f64) -> (u64, i32) {
    if value == 0.0 {
        return (0, 0);
    }
    if !(BORDERS[0]..BORDERS[BORDERS.len() - 1]).contains(&value) {
        return digits_by_library(value);
    }
    let (mantissa, exponent) = parts(value);
    // For 2ⁿ ≤ value < 2ⁿ⁺¹, `below` is ⌊log₁₀ 2ⁿ⌋: the exponent of ten of `value`, or one less.
    let n = exponent + 52;
    let below = (n * 1233) >> 12;
    let border = BORDERS[(below + 1 - LEAST_POWER) as usize];
    let q = below + i32::from(value >= border);
    let k = 9 - q;
    let digits = shifted(mantissa, FIVES[k as usize], (-(exponent + k)) as u32);
    (digits as u64, q)
}

/// Convert any number to the same form as [`ten_digits`], with the standard library.
#[cold]
fn digits_by_library(value: f64) -> (u64, i32) {
    let text = format!("{value:.9e}");
    let (digits, q) = text.split_once('e').unwrap_or_default();
    let digits = digits.replace('.', "");
    (
        digits.parse().unwrap_or_default(),
        q.parse().unwrap_or_default(),
    )
}

/// Return `value` × 10^`DECIMALS` as an integer; `None` if it exceeds 64 bits. `value` must not be
/// negative.
fn scaled<const DECIMALS: usize>(value: f64) -> Option<u64> {
    // With fewer decimals, a result that fits into 64 bits could need a shift to the left.
    const { assert!(DECIMALS >= 6 && DECIMALS < FIVES.len()) };
    if !value.is_finite() {
        return None;
    }
    let (mantissa, exponent) = parts(value);
    match -(exponent + DECIMALS as i32) {
        // The result is at least 2⁵² × 5⁶, which exceeds 64 bits.
        ..=0 => None,
        shift @ 1..128 => {
            let digits = shifted(mantissa, FIVES[DECIMALS], shift as u32);
            u64::try_from(digits).ok()
        }
        _ => Some(0),
    }
}

/// Split `value` into m × 2ᵉ, and return m and e.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (biased, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    match biased {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, biased - 1075),
    }
}

/// Return `mantissa` × `five` / 2^`shift`, rounded, for a power of five and shifts of 1 to 127.
fn shifted(mantissa: u64, five: u64, shift: u32) -> u128 {
    let product = u128::from(mantissa) * u128::from(five);
    let rounded = ((product >> (shift - 1)) + 1) >> 1;
    // A power of five is odd, so the last set bit of the product is that of the mantissa. If this
    // is the highest bit that is shifted out, the product is halfway between two integers.
    let tie = mantissa.trailing_zeros() == shift - 1;
    rounded & !u128::from(tie)
}
