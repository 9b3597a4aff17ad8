//! Mixed-radix numbers: extraction from a 64-bit window, division by multiplication with
//! reciprocals, and storage.

use super::decode::{Packed, SMALL_MIN, SMALL_SIZES};
use super::simd_vectors::{Four, Two};

/// Largest small index whose numbers fit into 32 bits, so that 64-bit multiplications divide them
/// exactly. `Reciprocal::new` proves this at compile time.
pub(super) const SMALL_FAST: usize = 32;

/// Number of bits that a 64-bit load certainly contains, even if the number begins within a byte.
const WINDOW: u32 = 57;

/// Largest small index whose numbers fit into a window.
pub(super) const FAR_FAST: usize = WINDOW as usize;

/// Stored form of a number with a fixed number of bits: its bytes from the lowest to the highest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Mask of the whole bytes.
    low: u64,
    /// Mask of the bits of the last, incomplete byte, after they were shifted to their position.
    high: u64,
    shift: u64,
}

impl Layout {
    pub(super) const fn new(bits: u32) -> Self {
        let whole = 8 * ((bits - 1) / 8);
        let rest = bits - whole;
        Layout {
            low: (1 << whole) - 1,
            high: ((1 << rest) - 1) << whole,
            shift: 8 - rest as u64,
        }
    }

    /// Return a number in its stored form, aligned to the top of a word.
    #[inline(always)]
    pub(super) fn word(&self, number: u64) -> u64 {
        (number & self.low | (number & self.high) << self.shift).swap_bytes()
    }
}

/// Division of numbers below a limit: multiplication with `factor`, then a shift by `shift`.
#[derive(Debug, Clone, Copy)]
struct Reciprocal {
    factor: u64,
    shift: u64,
}

impl Reciprocal {
    /// Create the reciprocal. Let factor × divisor = 2^shift + excess. The computed quotient is too
    /// large by number / divisor × excess / 2^shift. If number × excess < 2^shift, this error is
    /// less than 1 / divisor, and does not change the quotient rounded down.
    const fn new(divisor: u64, limit: u64) -> Self {
        let shift = 32 + (divisor - 1).ilog2() as u64;
        let factor = (1u64 << shift).div_ceil(divisor);
        let excess = factor * divisor - (1 << shift);
        assert!(factor <= u32::MAX as u64 && limit <= 1 << 32);
        assert!((limit as u128 - 1) * (excess as u128) < 1 << shift);
        Reciprocal { factor, shift }
    }
}

/// Parameters of a small index, for both SIMD lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Small {
    low: [u64; 2],
    high: [u64; 2],
    shift: [u64; 2],
    size: [u64; 2],
    /// Factor for division by size².
    x_factor: [u64; 2],
    x_shift: [u64; 2],
    /// Factor for division by size.
    xy_factor: [u64; 2],
    xy_shift: [u64; 2],
    /// Largest valid number: size³ − 1.
    last: [u64; 2],
    /// Digits that encode the difference 0 along x, y and z.
    pub(super) half: [i32; 4],
}

impl Small {
    const fn new(index: usize) -> Self {
        let size = SMALL_SIZES[index] as u64;
        let layout = Layout::new(index as u32);
        let x = Reciprocal::new(size * size, size * size * size);
        let xy = Reciprocal::new(size, size * size * size);
        let half = size as i32 / 2;
        Small {
            low: [layout.low; 2],
            high: [layout.high; 2],
            shift: [layout.shift; 2],
            size: [size; 2],
            x_factor: [x.factor; 2],
            x_shift: [x.shift; 2],
            xy_factor: [xy.factor; 2],
            xy_shift: [xy.shift; 2],
            last: [size * size * size - 1; 2],
            half: [half, half, half, 0],
        }
    }

    /// Return the digits of the differences at the tops of two windows, and one check number for
    /// each, which is negative if the difference is invalid. The two divisions are independent.
    #[inline(always)]
    pub(super) fn digits(&self, windows: [u64; 2]) -> (Four, Four, Two) {
        let two = Two::new;
        let stored = two(windows.map(u64::swap_bytes));
        let high = stored.right(two(self.shift)).and(two(self.high));
        let number = stored.and(two(self.low)).or(high);
        let size = two(self.size);
        let x = number.times(two(self.x_factor)).right(two(self.x_shift));
        let xy = number.times(two(self.xy_factor)).right(two(self.xy_shift));
        let (y, z) = (xy.minus(x.times(size)), number.minus(xy.times(size)));
        let (first, second) = Two::triples(x, y, z);
        (first, second, two(self.last).minus(number))
    }
}

/// Parameters of the small indices up to `SMALL_FAST`. Entries below the smallest index are unused;
/// they repeat the parameters of the smallest index.
pub(super) static SMALL: [Small; SMALL_FAST + 1] = {
    let mut table = [Small::new(SMALL_MIN); SMALL_FAST + 1];
    let mut index = SMALL_MIN;
    while index <= SMALL_FAST {
        table[index] = Small::new(index);
        index += 1;
    }
    table
};

/// Decoder of full positions that are stored as three digits of a number with up to `WINDOW` bits,
/// the usual encoding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digits {
    layout: Layout,
    pub(super) bits: usize,
    size_yz: u64,
    size_z: u64,
    /// Factor for division by size y × size z: 2^(64 + `x_shift`) / (size y × size z), rounded up.
    x_factor: u64,
    x_shift: u32,
    /// Factor for division by size z: 2^64 / size z, rounded up.
    y_factor: u64,
}

impl Digits {
    /// Create the parameters; `None` if a number does not fit into a window, or if divisions with
    /// them are not exact. As for `Reciprocal`, a division is exact if number × excess <
    /// 2^(64 + shift). The excess is at most the divisor.
    const fn new(bits: u32, y: u64, z: u64) -> Option<Self> {
        let yz = y * z;
        if bits > WINDOW || z < 2 || yz.ilog2() + z.ilog2() > 61 {
            return None;
        }
        let x_shift = (bits + yz.ilog2() + 1).saturating_sub(64);
        let factor = (1u128 << (64 + x_shift)).div_ceil(yz as u128);
        Some(Digits {
            layout: Layout::new(bits),
            bits: bits as usize,
            size_yz: yz,
            size_z: z,
            x_factor: factor as u64,
            x_shift,
            y_factor: (1u128 << 64).div_ceil(z as u128) as u64,
        })
    }

    /// Create the parameters for the full positions of a frame.
    pub(super) fn of_positions(packed: &Packed) -> Option<Self> {
        let [_, y, z] = packed.sizes.map(u64::from);
        let fit = !packed.is_wide();
        fit.then(|| Digits::new(packed.full_bits(), y, z)).flatten()
    }

    /// Return the number at the top of `window`, and its digits.
    #[inline(always)]
    pub(super) fn split(&self, window: u64) -> (u64, Four) {
        let stored = window.swap_bytes();
        let number = stored & self.layout.low | stored >> self.layout.shift & self.layout.high;
        let x = high_product(number, self.x_factor) >> self.x_shift;
        let yz = number - x * self.size_yz;
        let y = high_product(yz, self.y_factor);
        let z = yz - y * self.size_z;
        (number, Four::new([x as i32, y as i32, z as i32, 0]))
    }
}

/// Parameters of a small index above `SMALL_FAST`. Such indices occur if consecutive atoms, such as
/// ions, are some nm apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Far {
    digits: Digits,
    /// Largest valid number: size³ − 1.
    last: u64,
    /// Digits that encode the difference 0 along x, y and z.
    pub(super) half: [i32; 4],
}

impl Far {
    const fn new(index: usize) -> Self {
        let size = SMALL_SIZES[index] as u64;
        let half = size as i32 / 2;
        Far {
            digits: Digits::new(index as u32, size, size).expect("digits that fit"),
            last: size * size * size - 1,
            half: [half, half, half, 0],
        }
    }

    /// Return the digits of the difference at the top of a window, and a check number, which is
    /// negative if the difference is invalid.
    #[inline(always)]
    pub(super) fn digits(&self, window: u64) -> (Four, Two) {
        let (number, digits) = self.digits.split(window);
        (digits, Two::new([self.last.wrapping_sub(number), 0]))
    }
}

/// Parameters of the indices after `SMALL_FAST`.
pub(super) static FAR: [Far; FAR_FAST - SMALL_FAST] = {
    let mut table = [Far::new(SMALL_FAST + 1); FAR_FAST - SMALL_FAST];
    let mut index = SMALL_FAST + 1;
    while index <= FAR_FAST {
        table[index - SMALL_FAST - 1] = Far::new(index);
        index += 1;
    }
    table
};

#[inline(always)]
fn high_product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}
