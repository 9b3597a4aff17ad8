//! The packed positions of an XTC frame: the format itself, one group of atoms after another.
//!
//! A group is one atom with its whole position and a run of up to ten atoms that are given by
//! their distances from the atom before:
//!
//! ```text
//! position   three integers from the header's minimum on: one number of mixed radix, or three
//!            fields where a range needs more than 24 bits
//! flag       1 bit   0: run as long as the one before, small index stays
//! run        5 bits  only after flag 1: 3 × atoms in the run + change of the small index + 1
//! distances  small index bits for each atom of the run: a number of mixed radix
//! ```
//!
//! The first atom of a run comes before the atom with the whole position, so that an oxygen can
//! stand between its hydrogens: both their distances are then short.
//!
//! A number of mixed radix is stored from its lowest byte to its highest; the highest is cut to
//! the bits that remain.

use super::xdr::Xdr;
use crate::atoms::Atoms;
use crate::error::Fault;

/// Range of a distance along x, y or z, for each small index: three of them fit in so many bits.
/// The last index has none: a writer may name it, but then no distance is small.
const SMALL_SIZES: [u32; 74] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 101, 128, 161, 203, 256,
    322, 406, 512, 645, 812, 1024, 1290, 1625, 2048, 2580, 3250, 4096, 5060, 6501, 8192, 10321,
    13003, 16384, 20642, 26007, 32768, 41285, 52015, 65536, 82570, 104031, 131072, 165140, 208063,
    262144, 330280, 416127, 524287, 660561, 832255, 1048576, 1321122, 1664510, 2097152, 2642245,
    3329021, 4194304, 5284491, 6658042, 8388607, 10568983, 13316085, 16777216, 0,
];
const SMALL_MIN: usize = 9;
const SMALL_MAX: usize = SMALL_SIZES.len() - 1;

/// Atoms in the longest run.
const RUN_MAX: usize = 10;

/// Ranges up to this are multiplied to one number.
const PRODUCT_SIZE_MAX: u32 = 0xff_ffff;

/// How the positions of a frame are packed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packed {
    n_atoms: usize,
    /// Integers per nm.
    precision: f32,
    minimum: [i32; 3],
    /// Number of values along x, y and z.
    sizes: [u32; 3],
    small: usize,
    /// Offset of the first packed byte in the frame.
    start: usize,
    /// Number of packed bytes.
    len: u64,
}

impl Packed {
    /// Take what stands between the second atom count and the packed bytes.
    pub(super) fn parse(xdr: &mut Xdr<'_>, n_atoms: usize, long: bool) -> Result<Self, Fault> {
        let at = xdr.at();
        let precision = xdr.f32()?;
        if !(precision > 0.0 && precision.is_finite()) {
            return Err(Fault::bad(at, "a precision above 0", precision));
        }
        let minimum = xdr.i32x3()?;
        let sizes = parse_sizes(xdr, minimum)?;
        let at = xdr.at();
        let small = xdr.i32()?;
        let legal = usize::try_from(small)
            .ok()
            .filter(|small| (SMALL_MIN..=SMALL_MAX).contains(small));
        let Some(small) = legal else {
            let expected = format!("a small index from {SMALL_MIN} to {SMALL_MAX}");
            return Err(Fault::bad(at, expected, small));
        };
        let at = xdr.at();
        let len = if long {
            xdr.i64()?
        } else {
            i64::from(xdr.i32()?)
        };
        let packed = Packed {
            n_atoms,
            precision,
            minimum,
            sizes,
            small,
            start: xdr.at(),
            len: len.max(0) as u64,
        };
        let (least, most) = packed.len_bounds();
        if len < least as i64 || packed.len > most {
            let expected = format!("{least} to {most} packed bytes for {n_atoms} atoms");
            return Err(Fault::bad(at, expected, len));
        }
        Ok(packed)
    }

    /// Number of packed bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fewest and most bytes that so many atoms can take.
    fn len_bounds(&self) -> (u64, u64) {
        let atoms = self.n_atoms as u64;
        let full = u64::from(self.full_bits());
        let groups = atoms.div_ceil(1 + RUN_MAX as u64);
        let least = groups * (full + 1) + (atoms - groups) * SMALL_MIN as u64;
        let most = atoms * (full.max(SMALL_MAX as u64) + 6);
        (least.div_ceil(8), most.div_ceil(8))
    }

    /// Whether a whole position is three fields rather than one number of mixed radix.
    fn is_wide(&self) -> bool {
        self.sizes.iter().any(|&size| size > PRODUCT_SIZE_MAX)
    }

    /// Bits of a whole position.
    fn full_bits(&self) -> u32 {
        if self.is_wide() {
            self.sizes
                .iter()
                .map(|size| bit_length((*size).into()))
                .sum()
        } else {
            bit_length(self.sizes.iter().map(|&size| u128::from(size)).product())
        }
    }

    /// Decode the wanted atoms from the bytes of the frame and return how many of them, counted
    /// from the frame's first, that took.
    pub(super) fn decode(
        &self,
        bytes: &[u8],
        wanted: &Wanted,
        positions: &mut [f32],
    ) -> Result<usize, Fault> {
        let mut place = Place {
            bit: 0,
            atom: 0,
            run: 0,
            small: self.small,
        };
        let mut groups = Groups {
            packed: self,
            full_bits: self.full_bits(),
            bytes,
            scale: 1.0 / self.precision,
            reach: self.start,
        };
        let mut out = positions.chunks_exact_mut(3);
        while place.atom < wanted.end {
            groups.decode_next(&mut place, wanted, &mut out)?;
        }
        let left = 8 * self.len - place.bit;
        if place.atom == self.n_atoms && left >= 8 {
            let at = self.start + (place.bit / 8) as usize;
            return Err(Fault::bad(
                at,
                format!("the last of {} packed bytes", self.len),
                format!("{left} bits that belong to no atom"),
            ));
        }
        Ok(groups.reach)
    }
}

/// Take the maximum; the number of values from the minimum to it, along each axis.
fn parse_sizes(xdr: &mut Xdr<'_>, minimum: [i32; 3]) -> Result<[u32; 3], Fault> {
    let mut sizes = [0; 3];
    for (size, minimum) in sizes.iter_mut().zip(minimum) {
        let at = xdr.at();
        let maximum = xdr.i32()?;
        let values = i64::from(maximum) - i64::from(minimum) + 1;
        *size = match u32::try_from(values) {
            Ok(values) if values > 0 => values,
            _ => {
                let expected = format!("a maximum that the minimum {minimum} allows");
                return Err(Fault::bad(at, expected, maximum));
            }
        };
    }
    Ok(sizes)
}

fn bit_length(value: u128) -> u32 {
    u128::BITS - value.leading_zeros()
}

/// Which atoms are wanted, as bits.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Atom i is bit i % 8 of byte i / 8. Three bytes more than needed: see `of`.
    bits: Vec<u8>,
    /// One past the last atom wanted.
    end: usize,
}

impl Wanted {
    pub(super) fn new(atoms: &Atoms) -> Self {
        let mut bits = vec![0; atoms.n_total() / 8 + 4];
        for &(first, n) in atoms.runs() {
            for atom in first..first + n {
                bits[atom / 8] |= 1 << (atom % 8);
            }
        }
        Wanted {
            bits,
            end: atoms.end(),
        }
    }

    /// The atoms wanted among `n` (at most 25) from `first` on, the first in the lowest bit.
    fn of(&self, first: usize, n: usize) -> u32 {
        let at = first / 8;
        let bytes = &self.bits[at..at + 4];
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (bits >> (first % 8)) & ((1 << n) - 1)
    }
}

/// Where a group begins, and what it inherits from the group before.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Counted from the first packed bit.
    bit: u64,
    /// First atom of the group.
    atom: usize,
    /// Atoms in the run.
    run: usize,
    small: usize,
}

/// Decodes group after group and checks everything that the format can show.
struct Groups<'a> {
    packed: &'a Packed,
    full_bits: u32,
    /// The frame, as far as it has been read.
    bytes: &'a [u8],
    /// nm per integer.
    scale: f32,
    /// Bytes of the frame used so far.
    reach: usize,
}

impl Groups<'_> {
    fn decode_next<'a>(
        &mut self,
        place: &mut Place,
        wanted: &Wanted,
        out: &mut impl Iterator<Item = &'a mut [f32]>,
    ) -> Result<(), Fault> {
        let start = *place;
        place.bit += u64::from(self.full_bits);
        let flag_at = place.bit;
        let flag = self.take(&mut place.bit, 1)?;
        if flag == 1 {
            let code = self.take(&mut place.bit, 5)? as usize;
            place.run = code / 3;
            place.small = start.small + code % 3 - 1;
        }
        let left = self.packed.n_atoms - start.atom - 1;
        if place.run > left {
            let expected = format!("a run within the {left} atoms that are left");
            return Err(self.bad(flag_at, expected, place.run));
        }
        if !(SMALL_MIN..=SMALL_MAX).contains(&place.small)
            || (place.run > 0 && start.small == SMALL_MAX)
        {
            let expected = format!("a small index from {SMALL_MIN} to {SMALL_MAX}");
            return Err(self.bad(flag_at, expected, place.small));
        }
        let small_at = place.bit;
        place.bit += (place.run * start.small) as u64;
        if place.bit > 8 * self.packed.len {
            return Err(self.past_end(flag_at, place.bit));
        }
        place.atom += 1 + place.run;
        let mask = wanted.of(start.atom, 1 + place.run);
        if mask != 0 {
            self.unpack(start, small_at, place.run, mask, out)?;
        }
        Ok(())
    }

    /// The wanted atoms (`mask`) of the group at `start`, whose distances begin at `bit`.
    fn unpack<'a>(
        &mut self,
        start: Place,
        mut bit: u64,
        run: usize,
        mask: u32,
        out: &mut impl Iterator<Item = &'a mut [f32]>,
    ) -> Result<(), Fault> {
        let full = self.full(start.bit)?;
        let mut before = full;
        for slot in 0..=run.min(mask.ilog2() as usize) {
            // The atom with the whole position stands second, where there is a second.
            let position = if slot == 1 || run == 0 {
                full
            } else {
                before = self.step(before, &mut bit, start.small)?;
                before
            };
            if mask >> slot & 1 == 1 {
                if let Some(out) = out.next() {
                    for axis in 0..3 {
                        let value = position[axis] + i64::from(self.packed.minimum[axis]);
                        out[axis] = value as i32 as f32 * self.scale * 10.0;
                    }
                }
            }
        }
        Ok(())
    }

    /// A whole position, counted from the minimum.
    fn full(&mut self, mut bit: u64) -> Result<[i64; 3], Fault> {
        let at = bit;
        let sizes = self.packed.sizes;
        let position = if self.packed.is_wide() {
            let mut position = [0; 3];
            for (value, size) in position.iter_mut().zip(sizes) {
                *value = self.take(&mut bit, bit_length(size.into()))? as i64;
            }
            position
        } else {
            self.take_mixed(&mut bit, self.full_bits, sizes)?
        };
        self.within(at, position)
    }

    /// The position whose distance from `before` is stored at `bit`.
    fn step(&mut self, before: [i64; 3], bit: &mut u64, small: usize) -> Result<[i64; 3], Fault> {
        let at = *bit;
        let size = SMALL_SIZES[small];
        let mut position = self.take_mixed(bit, small as u32, [size; 3])?;
        if position[0] >= i64::from(size) {
            let expected = format!("a distance below {size}");
            return Err(self.bad(at, expected, position[0]));
        }
        for (value, before) in position.iter_mut().zip(before) {
            *value += before - i64::from(size / 2);
        }
        self.within(at, position)
    }

    fn within(&self, at: u64, position: [i64; 3]) -> Result<[i64; 3], Fault> {
        let ranges = self.packed.minimum.iter().zip(self.packed.sizes);
        for (&value, (&minimum, size)) in position.iter().zip(ranges) {
            if !(0..i64::from(size)).contains(&value) {
                let minimum = i64::from(minimum);
                let maximum = minimum + i64::from(size) - 1;
                let expected =
                    format!("a coordinate from {minimum} to {maximum}, the frame's range");
                return Err(self.bad(at, expected, minimum + value));
            }
        }
        Ok(position)
    }

    /// A number of mixed radix: the last digit counts most rapidly.
    fn take_mixed(&mut self, bit: &mut u64, n: u32, sizes: [u32; 3]) -> Result<[i64; 3], Fault> {
        let bits = self.take(bit, n)?;
        let whole = 8 * ((n - 1) / 8);
        let stored = (bits << (u128::BITS - n)).swap_bytes();
        let highest = bits & ((1 << (n - whole)) - 1);
        let number = stored & ((1 << whole) - 1) | highest << whole;
        let [_, y, z] = sizes.map(u128::from);
        Ok([number / (y * z), number / z % y, number % z].map(|digit| digit as i64))
    }

    /// `n` bits (1 to 72) as they stand in the file, highest first.
    fn take(&mut self, bit: &mut u64, n: u32) -> Result<u128, Fault> {
        let (at, end) = (*bit, *bit + u64::from(n));
        if end > 8 * self.packed.len {
            return Err(self.past_end(at, end));
        }
        let first = self.packed.start + (at / 8) as usize;
        let needed = self.packed.start + end.div_ceil(8) as usize;
        let Some(bytes) = self.bytes.get(first..needed) else {
            return Err(Fault::Short { needed });
        };
        let mut window = [0; 16];
        window[..bytes.len()].copy_from_slice(bytes);
        *bit = end;
        self.reach = self.reach.max(needed);
        Ok(u128::from_be_bytes(window) << (at % 8) >> (u128::BITS - n))
    }

    fn past_end(&self, at: u64, end: u64) -> Fault {
        let expected = format!("{} packed bytes to hold every atom", self.packed.len);
        self.bad(at, expected, format!("atoms up to bit {end}"))
    }

    fn bad(&self, bit: u64, expected: String, found: impl ToString) -> Fault {
        Fault::bad(self.packed.start + (bit / 8) as usize, expected, found)
    }
}
