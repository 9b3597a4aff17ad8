//! Numbers among blanks, as Fortran's list-directed read takes them.

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

/// What ends a word: a blank, and what ends the line.
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

/// The exponent at the front of `bytes`, 0 where there is none, and its length; `None` where it
/// has no digits.
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

/// Of `digits`, with or without a point, and an exponent: the standard library's correct rounding.
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
/// those that [`super::take_real`] finds, in half the time. `None` of other lines, also of some
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

/// Whether five columns, the first in the lowest byte, are those in front of ten digits, and
/// whether they have a minus. `|`, so that the processor need not guess the sign.
fn front(columns: u64) -> (bool, bool) {
    const fn number(columns: [u8; 5]) -> u64 {
        let [a, b, c, d, e] = columns;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
    let positive = (columns == number(*b"     ")) | (columns == number(*b"    0"));
    let negative = (columns == number(*b"    -")) | (columns == number(*b"   -0"));
    (positive | negative, negative)
}

/// The exponent in four columns; 0 where they are blank.
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
