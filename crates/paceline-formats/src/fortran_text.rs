//! Numbers as text, as Fortran's formatted write and read have them.
//!
//! Numbers are written as gfortran does, byte for byte, but for one thing: a `G20.10` of a
//! magnitude under 1e-99 is written as 0, because its exponent of three digits (`0.1000000000-100`)
//! is a number to Fortran alone.

// Numbers among blanks, as Fortran's list-directed read takes them.

/// 10ⁿ, as many as doubles hold exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// 10ⁿ, for eight digits or fewer.
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

/// More digits than these may not fit in 64 bits.
const MOST_DIGITS: usize = 19;

/// Take the next number of a line, correctly rounded: `-7.5`, `1E-01`, `1D+5`, `1.0+100` (what
/// Fortran writes where an exponent has three digits), `NaN`, `Infinity`. `None`, and the line as
/// it was, where the line has no more words or the next is not a number as a whole, or one beyond
/// the largest.
pub fn take_real(line: &mut &[u8]) -> Option<f64> {
    let word = after_blanks(line);
    let (value, len) = match decimal(word) {
        Some(found) => found,
        None => not_finite(word)?,
    };
    end(line, word, len)?;
    Some(value)
}

/// Take the next whole number of a line. `None`, and the line as it was, where the line has no
/// more words or the next is not a whole number as a whole, or one beyond 64 bits.
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

/// Check for a byte that ends a word: a blank, or one that ends the line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn after_blanks<'a>(line: &&'a [u8]) -> &'a [u8] {
    let mut rest = *line;
    // Eight blanks at a time: one by one, they took a third of the time of reading an atom.
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

/// Go behind a word's first `len` bytes, if these are all.
fn end<'a>(line: &mut &'a [u8], word: &'a [u8], len: usize) -> Option<()> {
    let rest = &word[len..];
    if rest.first().is_some_and(|&byte| !is_blank(byte)) {
        return None;
    }
    *line = rest;
    Some(())
}

/// A decimal number at the front of a word, and its length.
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
        // Both are exact, so that the one operation rounds correctly.
        Some(ten) if n_digits <= MOST_DIGITS && mantissa <= 1 << 53 => match power {
            0.. => mantissa as f64 * ten,
            _ => mantissa as f64 / ten,
        },
        _ => by_library(digits, exponent)?,
    };
    Some((if negative { -magnitude } else { magnitude }, at))
}

/// Add the digits at the front of `bytes` to a number, and return how many there are.
fn take_digits(bytes: &[u8], number: &mut u64) -> usize {
    let mut n = 0;
    // Eight at a time, of which those behind the last digit do not count: one by one, numbers took
    // twice as long to read.
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

/// How many of eight characters are digits before the first that is none, and their number.
fn digits_of(eight: [u8; 8]) -> (usize, u64) {
    // Digits become 0 to 9; the first character is in the lowest byte.
    let values = u64::from_le_bytes(eight) ^ u64::from_ne_bytes([b'0'; 8]);
    // The highest bit of each byte above 9; what is carried reaches only bytes behind such a one.
    let others = values.wrapping_add(0x7676_7676_7676_7676) | values;
    let n = (others & 0x8080_8080_8080_8080).trailing_zeros() / 8;
    if n == 0 {
        return (0, 0);
    }
    // With zeros before them there are eight.
    (n as usize, eight_digits(values << (64 - 8 * n)))
}

/// The number of eight digits, 0 to 9 a byte, of which the first is in the lowest: pairs, fours and
/// all become one number.
fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// The exponent at the front of `bytes`, 0 where there is none, and its length; `None` if it has no
/// digits.
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
    // Beyond these a double knows only 0 and infinity.
    let value = value.min(9_999) as i64;
    let value = if sign == Some(&b'-') { -value } else { value };
    (1..=9).contains(&n).then_some((value, letter + signed + n))
}

/// Return the number of `digits`, with or without a point, and an exponent, by the standard
/// library's correct rounding.
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

// Numbers as `G20.10` writes them, read without a branch for any digit.
//
// ```text
// columns   0 to 4    blanks; -, where there is one; 0, where no digit stands before the point
//           5 to 15   ten digits and a point
//          16 to 19   blanks, or an exponent such as E-01
// ```

const WIDTH: usize = 20;

/// The lowest bytes, 0 to 15 of them.
const LOWEST: [u128; 16] = {
    let mut masks = [0; 16];
    let mut n = 1;
    while n < masks.len() {
        masks[n] = masks[n - 1] << 8 | 0xff;
        n += 1;
    }
    masks
};

/// The three numbers of a line that has them in `3G20.10`, and nothing but blanks behind them:
/// those that [`take_real`] finds, in half the time. `None` of other lines, also of some
/// with three numbers.
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
    // Of ten digits, the number is exact, and so are these powers: the one operation rounds
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

/// Ten digits as a number, how many of them stand behind the point, and whether there is a minus.
fn decimal_columns(columns: u128) -> Option<(u64, i32, bool)> {
    const ONES: u128 = u128::MAX / 0xff;

    let (front, negative) = front(columns as u64 & 0xff_ffff_ffff);
    // The highest bit of the first byte that is a point, and perhaps of others behind it.
    let points = columns ^ (ONES * b'.' as u128);
    let points = points.wrapping_sub(ONES) & !points & (ONES << 7);
    let point = points.trailing_zeros() as usize / 8;
    let before = *LOWEST.get(point)?;
    // Without the point: what stands before it moves up by one.
    let columns = (columns & before) << 8 | columns & !(before << 8 | 0xff);
    let first = (columns as u64 >> 48) ^ 0x3030;
    let others = (columns >> 64) as u64 ^ 0x3030_3030_3030_3030;
    // The highest bit of a byte above 9; what is carried reaches only bytes behind such a one.
    let odd = ((first + 0x7676) | first) & 0x8080
        | (others.wrapping_add(0x7676_7676_7676_7676) | others) & 0x8080_8080_8080_8080;
    let first = 10 * (first & 0xff) + (first >> 8);
    let digits = 100_000_000 * first + eight_digits(others);
    (front & (odd == 0)).then_some((digits, 15 - point as i32, negative))
}

/// Check that five columns, the first in the lowest byte, are those in front of ten digits, and
/// tell a minus among them. `|`, so that the processor need not guess the sign.
fn front(columns: u64) -> (bool, bool) {
    const fn number(columns: [u8; 5]) -> u64 {
        let [a, b, c, d, e] = columns;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
    let positive = (columns == number(*b"     ")) | (columns == number(*b"    0"));
    let negative = (columns == number(*b"    -")) | (columns == number(*b"   -0"));
    (positive | negative, negative)
}

/// The exponent in four columns; 0 if they are blank.
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

/// The least magnitude that [`g20_10`] does not write as 0.
const LEAST: f64 = 1e-99;

/// `G20.10`: ten digits and a point, with an exponent where they lie outside of 0.1 to 10¹⁰.
///
/// Sixteen columns are sign, digits and point; four are the exponent or blank.
pub fn g20_10(value: f64) -> [u8; 20] {
    let magnitude = value.abs();
    let (digits, q, negative) = match magnitude {
        _ if !value.is_finite() => return written_not_finite(value),
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
        false => (0, written_exponent(whole)),
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

/// Content of the columns beside 0 to 10 digits before the point and the others behind it, for
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
    right(match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    })
}

/// `1P,E16.7`: one digit before the point and seven behind it.
pub fn e16_7(value: f64) -> [u8; 16] {
    if !value.is_finite() {
        return written_not_finite(value);
    }
    let text = format!("{value:.7e}");
    let (digits, power) = text.split_once('e').unwrap_or_default();
    let power = written_exponent(power.parse().unwrap_or_default());
    right(&format!("{digits}{}", power.escape_ascii()))
}

fn right<const WIDTH: usize>(text: &str) -> [u8; WIDTH] {
    let mut columns = [b' '; WIDTH];
    for (column, character) in columns.iter_mut().rev().zip(text.bytes().rev()) {
        *column = character;
    }
    columns
}

/// `Fw.d`, such as `F12.6`; `None` if the number needs more columns, and Fortran writes stars.
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

/// `Iw`, such as `I10`; `None` if the number needs more columns, and Fortran writes stars.
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
        return digits_by_library(value);
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
fn digits_by_library(value: f64) -> (u64, i32) {
    let text = format!("{value:.9e}");
    let (digits, q) = text.split_once('e').unwrap_or_default();
    let digits = digits.replace('.', "");
    (
        digits.parse().unwrap_or_default(),
        q.parse().unwrap_or_default(),
    )
}

/// `value` × 10^`DECIMALS`, as an integer; `None` if it exceeds 64 bits. `value` is not negative.
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
