//! Packed positions of an XTC frame.
//!
//! Positions are stored in groups. A group contains the full position of one atom, and a run of up
//! to ten atoms. For each atom of the run, the difference from the previously stored atom is
//! stored.
//!
//! ```text
//! position   three integers relative to the header's minimum: one number of mixed radix, or three
//!            fields if a range needs more than 24 bits
//! flag       1 bit   0: same length of the run as in the previous group, same small index
//! run        5 bits  only after flag 1: 3 × atoms in the run + change of the small index + 1
//! distances  small index bits for each atom of the run: a number of mixed radix
//! ```
//!
//! In the frame, the first atom of a run comes before the atom with the full position. In water (O,
//! H, H), the first hydrogen can thus have the full position. Then the oxygen is stored relative to
//! this hydrogen, and the second hydrogen relative to the oxygen, so that both differences are
//! small.
//!
//! A mixed-radix number is stored from its lowest byte to its highest byte. The highest byte is cut
//! to the remaining bits.

use super::decode_fast::Walk;
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::xdr::Xdr;

/// Range of a difference along x, y or z, for each small index. The small index is also the number
/// of bits that the product of three ranges needs. The last index has no range: a writer uses it if
/// no difference is small.
pub(super) const SMALL_SIZES: [u32; 74] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 101, 128, 161, 203, 256,
    322, 406, 512, 645, 812, 1024, 1290, 1625, 2048, 2580, 3250, 4096, 5060, 6501, 8192, 10321,
    13003, 16384, 20642, 26007, 32768, 41285, 52015, 65536, 82570, 104031, 131072, 165140, 208063,
    262144, 330280, 416127, 524287, 660561, 832255, 1048576, 1321122, 1664510, 2097152, 2642245,
    3329021, 4194304, 5284491, 6658042, 8388607, 10568983, 13316085, 16777216, 0,
];
pub(super) const SMALL_MIN: usize = 9;
pub(super) const SMALL_MAX: usize = SMALL_SIZES.len() - 1;

/// Maximum number of atoms in a run.
pub(super) const RUN_MAX: usize = 10;

/// Largest range of a coordinate for which x, y and z are combined into one number.
pub(super) const PRODUCT_SIZE_MAX: u32 = 0xff_ffff;

/// Minimum precision, integers per nm. Below 6.4e-29, a coordinate in Å could exceed the range of a
/// 32-bit float.
pub(super) const PRECISION_MIN: f32 = 1e-27;

/// Parameters of the packed positions of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packed {
    pub(super) n_atoms: usize,
    /// Precision, integers per nm.
    pub(super) precision: f32,
    pub(super) minimum: [i32; 3],
    /// Number of possible integers along x, y and z.
    pub(super) sizes: [u32; 3],
    pub(super) small: usize,
    /// Offset of the first packed byte in the frame.
    pub(super) start: usize,
    /// Number of packed bytes.
    pub(super) len: u64,
}

impl Packed {
    /// Parse the header between the second atom count and the packed bytes.
    pub(super) fn parse(xdr: &mut Xdr<'_>, n_atoms: usize, long: bool) -> Result<Self, Fault> {
        let at = xdr.at();
        let precision = xdr.f32()?;
        if !(precision > PRECISION_MIN && precision.is_finite()) {
            let expected = format!("a finite precision above {PRECISION_MIN:e}");
            return Err(Fault::bad(at, expected, format!("{precision:?}")));
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

    /// Return the minimum and maximum number of packed bytes for this number of atoms.
    fn len_bounds(&self) -> (u64, u64) {
        let atoms = self.n_atoms as u64;
        let full = u64::from(self.full_bits());
        let groups = atoms.div_ceil(1 + RUN_MAX as u64);
        let least = groups * (full + 1) + (atoms - groups) * SMALL_MIN as u64;
        let most = atoms * (full.max(SMALL_MAX as u64) + 6);
        (least.div_ceil(8), most.div_ceil(8))
    }

    /// Return true if a full position is stored as three fields, and not as one mixed-radix
    /// number.
    pub(super) fn is_wide(&self) -> bool {
        self.sizes.iter().any(|&size| size > PRODUCT_SIZE_MAX)
    }

    /// Return the number of bits of a full position.
    pub(super) fn full_bits(&self) -> u32 {
        if self.is_wide() {
            self.sizes
                .iter()
                .map(|size| bit_length((*size).into()))
                .sum()
        } else {
            bit_length(self.sizes.iter().map(|&size| u128::from(size)).product())
        }
    }

    /// Decode the wanted atoms from the bytes of the frame. Return the number of bytes used,
    /// counted from the start of the frame.
    pub(super) fn decode(
        &self,
        bytes: &[u8],
        wanted: &Wanted,
        positions: &mut [f32],
    ) -> Result<usize, Fault> {
        let walk = Walk::new(self, self.packed_bytes(bytes));
        self.decode_groups(walk.as_ref(), bytes, wanted, positions)
    }

    /// Decode the wanted atoms as `decode` does. If `walk` is given, it decodes usual groups
    /// faster; the result is the same.
    fn decode_groups(
        &self,
        walk: Option<&Walk<'_>>,
        bytes: &[u8],
        wanted: &Wanted,
        positions: &mut [f32],
    ) -> Result<usize, Fault> {
        let mut place = GroupStart::first(self);
        let mut groups = Groups::new(self, bytes);
        while place.atom < wanted.end {
            if let Some(walk) = walk {
                walk.advance(&mut place, wanted, positions);
            }
            groups
                .decode_next(&mut place, wanted, positions)
                .map_err(|fault| self.reach_further(fault, &place, wanted))?;
        }
        let left = 8 * self.len - place.bit;
        if place.atom == self.n_atoms && left >= 8 {
            let at = self.start + (place.bit / 8) as usize;
            let expected = format!("atoms up to the last of {} packed bytes", self.len);
            return Err(Fault::bad(at, expected, format!("{left} bits left over")));
        }
        Ok(groups.reach())
    }

    /// If the bytes end at `place`, estimate the number of bytes needed to decode the last wanted
    /// atom. Return any other fault unchanged.
    fn reach_further(&self, fault: Fault, place: &GroupStart, wanted: &Wanted) -> Fault {
        match fault {
            Fault::Short { needed } => {
                let used = (needed - self.start) as u128;
                let likely = used * wanted.end as u128 / place.atom.max(1) as u128;
                Fault::Short {
                    needed: needed.max(self.start + likely as usize),
                }
            }
            fault => fault,
        }
    }

    /// Return the packed bytes among the bytes read so far.
    fn packed_bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let packed = bytes.get(self.start..).unwrap_or_default();
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        &packed[..packed.len().min(len)]
    }
}

/// Parse the maximum coordinates. Return the number of integers from the minimum to the maximum,
/// along each axis.
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

pub(super) fn bit_length(value: u128) -> u32 {
    u128::BITS - value.leading_zeros()
}

// Groups of packed atoms, decoded one after the other with all checks that the format allows.
//
// This code handles the whole format, and creates all error messages. `decode_fast` stops at
// unusual groups and near the end of the frame, and this code continues.

/// Beginning of a group, and parameters from the previous group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupStart {
    /// Offset from the first packed bit, bits.
    pub(super) bit: u64,
    /// Index of the first atom of the group.
    pub(super) atom: usize,
    /// Number of wanted atoms before the group.
    pub(super) out: usize,
    /// Number of atoms in the run of the previous group. This group has the same number if its flag
    /// is 0.
    pub(super) run: usize,
    pub(super) small: usize,
}

impl GroupStart {
    pub(super) fn first(packed: &Packed) -> Self {
        GroupStart {
            bit: 0,
            atom: 0,
            out: 0,
            run: 0,
            small: packed.small,
        }
    }
}

/// Decodes one group after the other.
pub(super) struct Groups<'a> {
    packed: &'a Packed,
    full_bits: u32,
    /// Bytes of the frame read so far.
    bytes: &'a [u8],
    /// Length of one integer unit, nm.
    scale: f32,
    /// Number of bytes of the frame used so far.
    reach: usize,
}

impl<'a> Groups<'a> {
    pub(super) fn new(packed: &'a Packed, bytes: &'a [u8]) -> Self {
        Groups {
            packed,
            full_bits: packed.full_bits(),
            bytes,
            scale: 1.0 / packed.precision,
            reach: packed.start,
        }
    }

    /// Return the number of bytes of the frame that were used, counted from its start.
    pub(super) fn reach(&self) -> usize {
        self.reach
    }

    /// Decode the wanted atoms of the group at `place`, and move on to the next group.
    fn decode_next(
        &mut self,
        place: &mut GroupStart,
        wanted: &Wanted,
        positions: &mut [f32],
    ) -> Result<(), Fault> {
        let start = *place;
        place.bit += u64::from(self.full_bits);
        let flag_at = place.bit;
        if self.take(&mut place.bit, 1)? == 1 {
            let code = self.take(&mut place.bit, 5)? as usize;
            place.run = code / 3;
            place.small = start.small + code % 3 - 1;
        }
        let small_at = place.bit;
        place.bit += (place.run * start.small) as u64;
        place.atom += 1 + place.run;
        self.check(&start, flag_at, place)?;
        let mask = wanted.of(start.atom, 1 + place.run);
        if mask != 0 {
            let out = positions.get_mut(3 * start.out..).unwrap_or_default();
            self.unpack(&start, small_at, place.run, mask, out)?;
            place.out += mask.count_ones() as usize;
        }
        Ok(())
    }

    /// Check that the flag and the code at `flag_at` are consistent with the group from `start` to
    /// `end`.
    fn check(&self, start: &GroupStart, flag_at: u64, end: &GroupStart) -> Result<(), Fault> {
        let left = self.packed.n_atoms - start.atom - 1;
        if end.run > left {
            let expected = format!("a run within the {left} atoms that are left");
            return Err(self.bad(flag_at, expected, end.run));
        }
        if end.run > 0 && start.small == SMALL_MAX {
            let most = SMALL_MAX - 1;
            let expected = format!("a small index from {SMALL_MIN} to {most} for small distances");
            return Err(self.bad(flag_at, expected, start.small));
        }
        if !(SMALL_MIN..=SMALL_MAX).contains(&end.small) {
            let expected = format!("a small index from {SMALL_MIN} to {SMALL_MAX}");
            return Err(self.bad(flag_at, expected, end.small));
        }
        if end.bit > 8 * self.packed.len {
            return Err(self.past_end(flag_at, end.bit));
        }
        Ok(())
    }

    /// Decode the wanted atoms (`mask`) of the group at `start`. The differences begin at `bit`.
    fn unpack(
        &mut self,
        start: &GroupStart,
        mut bit: u64,
        run: usize,
        mask: u32,
        positions: &mut [f32],
    ) -> Result<(), Fault> {
        let full = self.full(start.bit)?;
        let mut before = full;
        let mut out = positions.chunks_exact_mut(3);
        for slot in 0..=mask.ilog2() as usize {
            // The atom with the full position is the second one, if the group has a second atom.
            let position = if slot == 1 || run == 0 {
                full
            } else {
                before = self.step(before, &mut bit, start.small)?;
                before
            };
            if mask >> slot & 1 == 1
                && let Some(out) = out.next()
            {
                self.put(position, out);
            }
        }
        Ok(())
    }

    /// Convert a position, relative to the minimum, to Å, and write it to `out`.
    fn put(&self, position: [i64; 3], out: &mut [f32]) {
        let minimum = self.packed.minimum.map(i64::from);
        for (out, (value, minimum)) in out.iter_mut().zip(position.iter().zip(minimum)) {
            *out = (value + minimum) as i32 as f32 * self.scale * 10.0;
        }
    }

    /// Decode a full position, relative to the minimum.
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

    /// Decode a position from its difference to `before`, stored at `bit`. Advance `bit` past the
    /// difference.
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

    /// Read a mixed-radix number. The last digit varies fastest.
    fn take_mixed(&mut self, bit: &mut u64, n: u32, sizes: [u32; 3]) -> Result<[i64; 3], Fault> {
        let bits = self.take(bit, n)?;
        let whole = 8 * ((n - 1) / 8);
        let stored = (bits << (u128::BITS - n)).swap_bytes();
        let highest = bits & ((1 << (n - whole)) - 1);
        let number = stored & ((1 << whole) - 1) | highest << whole;
        let [_, y, z] = sizes.map(u64::from);
        // Division of 64-bit numbers takes a fifth of the time of division of 128-bit numbers.
        let (xy, z) = match u64::try_from(number) {
            Ok(number) => (number / z, number % z),
            Err(_) => divide_wide(number, z),
        };
        Ok([xy / y, xy % y, z].map(|digit| digit as i64))
    }

    /// Read `n` bits (1 to 72) in the order of the file, the highest first.
    fn take(&mut self, bit: &mut u64, n: u32) -> Result<u128, Fault> {
        let (at, end) = (*bit, *bit + u64::from(n));
        if end > 8 * self.packed.len {
            return Err(self.past_end(at, end));
        }
        let needed = self.packed.start + end.div_ceil(8) as usize;
        if needed > self.bytes.len() {
            return Err(Fault::Short { needed });
        }
        *bit = end;
        self.reach = self.reach.max(needed);
        let window = self.window(self.packed.start + (at / 8) as usize);
        Ok(window << (at % 8) >> (u128::BITS - n))
    }

    /// Load 16 bytes from byte `at` on, padded with zeros.
    #[inline(always)]
    fn window(&self, at: usize) -> u128 {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let window = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut window = [0; 16];
            window[..rest.len()].copy_from_slice(rest);
            window
        });
        u128::from_be_bytes(window)
    }

    fn past_end(&self, at: u64, end: u64) -> Fault {
        let expected = format!("{} packed bytes to hold every atom", self.packed.len);
        self.bad(at, expected, format!("atoms up to bit {end}"))
    }

    fn bad(&self, bit: u64, expected: String, found: impl ToString) -> Fault {
        Fault::bad(self.packed.start + (bit / 8) as usize, expected, found)
    }
}

/// Divide by the last of three sizes, and return quotient and remainder. The quotient fits into 64
/// bits, because the number is below twice the product of the three sizes, and the first two sizes
/// have at most 25 bits.
fn divide_wide(number: u128, divisor: u64) -> (u64, u64) {
    let divisor = u128::from(divisor);
    ((number / divisor) as u64, (number % divisor) as u64)
}

// Mask of the wanted atoms, queried group by group.

/// Wanted atoms as bits.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Bits of the atoms: atom i is bit i % 8 of byte i / 8. There are three more bytes than
    /// needed, because `of` always reads four bytes.
    bits: Vec<u8>,
    /// Index after the last wanted atom.
    pub(super) end: usize,
    pub(super) all: bool,
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
            all: atoms.is_all(),
        }
    }

    /// Return the mask of the wanted atoms among `n` atoms (at most 25) from `first` on. The first
    /// atom is the lowest bit.
    pub(super) fn of(&self, first: usize, n: usize) -> u32 {
        let at = first / 8;
        let bytes = &self.bits[at..at + 4];
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (bits >> (first % 8)) & ((1 << n) - 1)
    }
}

#[cfg(test)]
#[path = "../../tests/xtc/frames.rs"]
mod frames;

#[cfg(test)]
mod tests {
    use super::frames::{Frame, Random};
    use super::*;
    use crate::atom_set::Atoms;
    use crate::xtc::Header;

    #[test]
    fn the_fast_walk_changes_nothing() {
        let random = &mut Random(11);
        let near = [(3, 9), (12, 16), (50, 25), (300, 31), (500, 33)];
        for (step, small) in near
            .into_iter()
            .chain([(2_000, 38), (9_000, 46), (20_000, 57)])
        {
            let frame = Frame::chain(300, step, random);
            let whole = frame.positions();
            let sound = Frame { small, ..frame }.encode(random);
            assert_eq!(compare(&sound, &Atoms::all(300)), Some(whole));
            for damages in 0..300 {
                let mut bytes = sound.clone();
                for _ in 0..damages % 4 {
                    let at = 56 + random.below(bytes.len() - 56);
                    bytes[at] ^= 1 << random.below(8);
                }
                let chosen: Vec<usize> = (0..300).step_by(1 + damages % 7).collect();
                compare(&bytes, &Atoms::new(&chosen, 300).unwrap());
            }
        }
    }

    /// Decode with and without the walk, compare the results, and return the positions if there are
    /// any.
    fn compare(bytes: &[u8], atoms: &Atoms) -> Option<Vec<f32>> {
        let Ok(Header {
            packed: Some(packed),
            ..
        }) = Header::parse(bytes)
        else {
            return None;
        };
        let wanted = Wanted::new(atoms);
        let mut with = vec![0.0; 3 * atoms.len()];
        let mut without = with.clone();
        let fast = packed.decode(bytes, &wanted, &mut with);
        let slow = packed.decode_groups(None, bytes, &wanted, &mut without);
        assert_eq!(fast, slow);
        fast.ok()?;
        assert_eq!(with, without);
        Some(with)
    }
}
