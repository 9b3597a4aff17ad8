//! Chooses which atoms share a group and how many bits their distances take, and packs them.
//!
//! The choices are GROMACS's, those of its routine of 1995: a run goes on while the next atom is
//! near the one before, for at most 8 atoms. After each group the small index may go up by one if
//! the group's first atom was near the last one of the group before, or down by one if all
//! distances in the run would have fit.

use super::bits::{Bits, Radix, SLACK};
use super::integers::Integers;
use crate::formats::xtc::lanes::Four;
use crate::formats::xtc::packed::{
    PRODUCT_SIZE_MAX, SMALL_MAX, SMALL_MIN, SMALL_SIZES, bit_length,
};

/// Atoms in the longest run; the format allows 10.
const RUN_MAX: usize = 8;

/// How far the small index may move in a frame.
const SMALL_SPAN: usize = 8;

/// What a small index stands for.
#[derive(Clone, Copy)]
struct Small {
    radix: Radix,
    /// Half the range of a distance, along each axis.
    half: [i32; 4],
    /// The longest distance.
    below: [i32; 4],
}

static SMALL: [Small; SMALL_MAX + 1] = {
    let nothing = Small {
        radix: Radix::new(1, 0, 0),
        half: [0; 4],
        below: [-1; 4],
    };
    let mut table = [nothing; SMALL_MAX + 1];
    let mut index = SMALL_MIN;
    while index <= SMALL_MAX {
        let size = SMALL_SIZES[index];
        let half = size as i32 / 2;
        table[index] = Small {
            radix: Radix::new(index as u32, size, size),
            half: [half, half, half, 0],
            below: [half - 1, half - 1, half - 1, 0],
        };
        index += 1;
    }
    table
};

/// The small index of the first group.
pub(super) fn first_small(integers: &Integers) -> usize {
    let large_enough = |&index: &usize| SMALL_SIZES[index] as i32 >= integers.least;
    (SMALL_MIN..SMALL_MAX)
        .find(large_enough)
        .unwrap_or(SMALL_MAX)
}

fn largest_small(integers: &Integers) -> usize {
    (first_small(integers) + SMALL_SPAN).min(SMALL_MAX)
}

/// Bytes that [`pack`] has to be given.
pub(super) fn most_bytes(integers: &Integers) -> usize {
    let whole = Whole::new(integers).n_bits() + 6;
    let atom = whole.max(largest_small(integers) as u32) as usize;
    (integers.atoms.len() * atom).div_ceil(8) + SLACK
}

/// Whole positions, counted from the minimum.
enum Whole {
    Mixed(Radix),
    /// Bits of x, y and z, of which one has too wide a range for a product.
    Apart([u32; 3]),
}

impl Whole {
    fn new(integers: &Integers) -> Self {
        let axes = [0, 1, 2];
        let sizes = axes.map(|axis| integers.maximum[axis].abs_diff(integers.minimum[axis]) + 1);
        if sizes.iter().any(|&size| size > PRODUCT_SIZE_MAX) {
            return Whole::Apart(sizes.map(|size| bit_length(size.into())));
        }
        let n = bit_length(sizes.iter().map(|&size| u128::from(size)).product());
        Whole::Mixed(Radix::new(n, sizes[1], sizes[2]))
    }

    fn n_bits(&self) -> u32 {
        match self {
            Whole::Mixed(radix) => radix.bits,
            Whole::Apart(bits) => bits.iter().sum(),
        }
    }

    #[inline(always)]
    fn put(&self, digits: [i32; 4], bits: &mut Bits<'_>) {
        match self {
            Whole::Mixed(radix) => radix.put(digits, bits),
            Whole::Apart(lengths) => {
                for (digit, length) in digits.into_iter().zip(lengths) {
                    bits.put(u64::from(digit as u32) << (64 - length), *length);
                }
            }
        }
    }
}

/// Pack all atoms into `bytes`, as many as [`most_bytes`] tells; how many it took.
pub(super) fn pack(integers: &Integers, bytes: &mut [u8]) -> usize {
    let atoms = &integers.atoms[..];
    let whole = Whole::new(integers);
    let [x, y, z] = integers.minimum;
    let minimum = Four::new([x, y, z, 0]);
    let mut bits = Bits::new(bytes);
    let mut small = first_small(integers);
    let largest = largest_small(integers);
    let smallest = largest - SMALL_SPAN;
    let larger = Four::new(SMALL[largest].below);
    let mut digits = [[0; 4]; RUN_MAX];
    let (mut run_before, mut last) = (None, minimum);
    let mut first = 0;
    while let Some(&atom) = atoms.get(first) {
        let Small { radix, half, below } = &SMALL[small];
        let (half, below) = (Four::new(*half), Four::new(*below));
        let mut change = if first > 0 && small < largest && near(atom.minus(last), larger) {
            1
        } else if small > smallest {
            -1
        } else {
            0
        };
        let mut run = 0;
        // The second atom is stored whole, so that an oxygen stands between its hydrogens.
        let second = atoms.get(first + 1);
        match second {
            Some(&second) if near(atom.minus(second), below) => {
                let smaller = SMALL[small - 1].half[0];
                last = second;
                let mut next = atom;
                let mut step = next.minus(last);
                loop {
                    if change == -1 && square(step) >= smaller.wrapping_mul(smaller) {
                        change = 0;
                    }
                    digits[run] = step.plus(half).to_array();
                    run += 1;
                    last = next;
                    let Some(&atom) = atoms.get(first + 1 + run) else {
                        break;
                    };
                    step = atom.minus(last);
                    if run == RUN_MAX || !near(step, below) {
                        break;
                    }
                    next = atom;
                }
                whole.put(second.minus(minimum).to_array(), &mut bits);
            }
            _ => {
                last = atom;
                change = change.max(0);
                whole.put(atom.minus(minimum).to_array(), &mut bits);
            }
        }
        if run_before != Some(run) || change != 0 {
            let code = (3 * run as i32 + change + 1) as u64;
            bits.put((0b10_0000 | code) << 58, 6);
            run_before = Some(run);
        } else {
            bits.put(0, 1);
        }
        for &digits in &digits[..run] {
            radix.put(digits, &mut bits);
        }
        first += 1 + run;
        small = small.wrapping_add_signed(change as isize);
    }
    bits.len()
}

/// Whether all lanes of a difference are from `-below` to `below`. Sums that overflow turn
/// negative, as they should.
#[inline(always)]
fn near(difference: Four, below: Four) -> bool {
    !below
        .minus(difference)
        .or(below.plus(difference))
        .any_negative()
}

/// Squares that overflow wrap as they do in GROMACS.
#[inline(always)]
fn square(step: Four) -> i32 {
    let [x, y, z, _] = step.to_array().map(|x| x.wrapping_mul(x));
    x.wrapping_add(y).wrapping_add(z)
}
