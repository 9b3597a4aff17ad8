//! Numbers as `G20.10` writes them, read without a branch for any digit.
//!
//! ```text
//! columns   0 to 4    blanks; -, where there is one; 0, where no digit stands before the point
//!           5 to 15   ten digits and a point
//!          16 to 19   blanks, or an exponent such as E-01
//! ```

use super::read::{TENS, eight_digits};

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
    let (digits, decimals, negative) = decimal(u128::from_le_bytes(front))?;
    let exponent = exponent(tail.try_into().ok()?)?;
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
fn decimal(columns: u128) -> Option<(u64, i32, bool)> {
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
fn exponent(columns: [u8; 4]) -> Option<i32> {
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
