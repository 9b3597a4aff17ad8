//! Chooses which atoms share a group and how many bits their distances take, and packs them.
//!
//! The choices are GROMACS's, those of its routine of 1995: a run goes on while the next atom is
//! near the one before, for at most 8 atoms. After each group the small index may go up by one if
//! the group's first atom was near the last one of the group before, or down by one if all
//! distances in the run would have fit.

use super::bits::{Bits, Radix, SLACK};
use super::integers::Integers;
use crate::xtc::lanes::Four;
use crate::xtc::packed::{PRODUCT_SIZE_MAX, SMALL_MAX, SMALL_MIN, SMALL_SIZES, bit_length};

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
    let whole = Whole::new(integers);
    let [x, y, z] = integers.minimum;
    let minimum = Four::new([x, y, z, 0]);
    let mut bits = Bits::new(bytes);
    let mut groups = Groups::new(integers);
    let mut run_before = usize::MAX;
    while let Some(&first) = groups.atoms.get(groups.at) {
        let radix = &SMALL[groups.small].radix;
        let Group { full, run, change } = groups.next(first);
        whole.put(full.minus(minimum).to_array(), &mut bits);
        // Without a branch, which would be missed as often as not.
        let code = (0b10_0000 | (3 * run as i32 + change + 1) as u64) << 58;
        let same = run == run_before && change == 0;
        let (word, n) = if same { (0, 1) } else { (code, 6) };
        bits.put(word, n);
        run_before = run;
        for &digits in &groups.digits[..run] {
            radix.put(digits, &mut bits);
        }
    }
    bits.len()
}

/// One atom with its whole position, and how many follow with their distances.
struct Group {
    full: Four,
    run: usize,
    /// Of the small index, for the group behind it.
    change: i32,
}

/// Finds one group after the other.
struct Groups<'a> {
    atoms: &'a [Four],
    /// First atom of the next group.
    at: usize,
    /// Last atom of the group before.
    last: Four,
    small: usize,
    smallest: usize,
    largest: usize,
    /// Distances in the run, counted from the lowest.
    digits: [[i32; 4]; RUN_MAX],
}

impl<'a> Groups<'a> {
    fn new(integers: &'a Integers) -> Self {
        let largest = largest_small(integers);
        Groups {
            atoms: &integers.atoms,
            at: 0,
            last: Four::new([0; 4]),
            small: first_small(integers),
            smallest: largest - SMALL_SPAN,
            largest,
            digits: [[0; 4]; RUN_MAX],
        }
    }

    /// The group that begins with the atom `first`.
    #[inline(always)]
    fn next(&mut self, first: Four) -> Group {
        let below = Four::new(SMALL[self.small].below);
        let change = self.likely_change(first);
        // The second atom is stored whole, so that an oxygen stands between its hydrogens.
        let group = match self.atoms.get(self.at + 1) {
            Some(&second) if near(first.minus(second), below) => {
                self.find_run(first, second, change)
            }
            _ => {
                self.last = first;
                Group {
                    full: first,
                    run: 0,
                    change: change.max(0),
                }
            }
        };
        self.at += 1 + group.run;
        self.small = self.small.wrapping_add_signed(group.change as isize);
        group
    }

    /// What the small index changes by if the run allows it.
    #[inline(always)]
    fn likely_change(&self, first: Four) -> i32 {
        let larger = Four::new(SMALL[self.largest].below);
        let up = (self.at > 0) & (self.small < self.largest) & near(first.minus(self.last), larger);
        if up {
            1
        } else {
            -i32::from(self.small > self.smallest)
        }
    }

    /// The run that begins with `first`, seen from `full`.
    #[inline(always)]
    fn find_run(&mut self, first: Four, full: Four, mut change: i32) -> Group {
        let Small { half, below, .. } = &SMALL[self.small];
        let (half, below) = (Four::new(*half), Four::new(*below));
        let smaller = SMALL[self.small - 1].half[0];
        let (mut atom, mut step) = (first, first.minus(full));
        let mut run = 0;
        loop {
            if change == -1 && square(step) >= smaller.wrapping_mul(smaller) {
                change = 0;
            }
            self.digits[run] = step.plus(half).to_array();
            run += 1;
            match self.atoms.get(self.at + 1 + run) {
                Some(&next) if run < RUN_MAX && near(next.minus(atom), below) => {
                    step = next.minus(atom);
                    atom = next;
                }
                _ => break,
            }
        }
        self.last = atom;
        Group { full, run, change }
    }
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
