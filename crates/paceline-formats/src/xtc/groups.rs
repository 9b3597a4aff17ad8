//! Groups of packed atoms, one after the other, with everything checked that the format can show.
//!
//! This is the whole format and the only place that words its faults. `fast` leaves to it what is
//! unusual, and the end of each frame.

use super::packed::{Packed, SMALL_MAX, SMALL_MIN, SMALL_SIZES, bit_length};
use super::wanted::Wanted;
use crate::error::Fault;

/// Where a group begins, and what it inherits from the group before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Counted from the first packed bit.
    pub(super) bit: u64,
    /// First atom of the group.
    pub(super) atom: usize,
    /// Atoms wanted before it.
    pub(super) out: usize,
    /// Atoms in the run.
    pub(super) run: usize,
    pub(super) small: usize,
}

impl Place {
    pub(super) fn first(packed: &Packed) -> Self {
        Place {
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
    /// The frame, as far as it has been read.
    bytes: &'a [u8],
    /// nm per integer.
    scale: f32,
    /// Bytes of the frame used so far.
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

    /// How many bytes of the frame have been used, counted from its first.
    pub(super) fn reach(&self) -> usize {
        self.reach
    }

    /// Decode what is wanted of the group at `place`, and move on to the next.
    pub(super) fn decode_next(
        &mut self,
        place: &mut Place,
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

    /// Whether the flag and the code at `flag_at` can be true of the group from `start` to `end`.
    fn check(&self, start: &Place, flag_at: u64, end: &Place) -> Result<(), Fault> {
        let left = self.packed.n_atoms - start.atom - 1;
        if end.run > left {
            let expected = format!("a run within the {left} atoms that are left");
            return Err(self.bad(flag_at, expected, end.run));
        }
        let legal = SMALL_MIN..=SMALL_MAX;
        if !legal.contains(&end.small) || (end.run > 0 && start.small == SMALL_MAX) {
            let expected = format!("a small index from {SMALL_MIN} to {SMALL_MAX}");
            return Err(self.bad(flag_at, expected, end.small));
        }
        if end.bit > 8 * self.packed.len {
            return Err(self.past_end(flag_at, end.bit));
        }
        Ok(())
    }

    /// The wanted atoms (`mask`) of the group at `start`, whose distances begin at `bit`.
    fn unpack(
        &mut self,
        start: &Place,
        mut bit: u64,
        run: usize,
        mask: u32,
        positions: &mut [f32],
    ) -> Result<(), Fault> {
        let full = self.full(start.bit)?;
        let mut before = full;
        let mut out = positions.chunks_exact_mut(3);
        for slot in 0..=mask.ilog2() as usize {
            // The atom with the whole position stands second, where there is a second.
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

    /// Å
    fn put(&self, position: [i64; 3], out: &mut [f32]) {
        let minimum = self.packed.minimum.map(i64::from);
        for (out, (value, minimum)) in out.iter_mut().zip(position.iter().zip(minimum)) {
            *out = (value + minimum) as i32 as f32 * self.scale * 10.0;
        }
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
        let [_, y, z] = sizes.map(u64::from);
        // Numbers of 64 bits divide in a fifth of the time.
        let (xy, z) = match u64::try_from(number) {
            Ok(number) => (number / z, number % z),
            Err(_) => divide_wide(number, z),
        };
        Ok([xy / y, xy % y, z].map(|digit| digit as i64))
    }

    /// `n` bits (1 to 72) as they stand in the file, highest first.
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

    /// 16 bytes from byte `at` on, zeros behind the last.
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

/// Quotient and remainder by the last of three sizes. The number stays below twice their product
/// and the other two have 24 bits or 25, so that the quotient fits.
fn divide_wide(number: u128, divisor: u64) -> (u64, u64) {
    let divisor = u128::from(divisor);
    ((number / divisor) as u64, (number % divisor) as u64)
}
