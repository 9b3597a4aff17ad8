//! Fast decoder of groups of packed atoms, for the usual content of frames.
//!
//! Bits are read 64 at a time, divisions are replaced by multiplications by reciprocals, and two
//! differences are decoded at once. This code reports no errors. Before an unusual or damaged
//! group, or near the end of the frame, this code stops, and `decode` continues.
//!
//! Decoding takes about 13 cycles per atom (Zen 3) for a whole frame. The limit is the number of
//! instructions, and not memory. Only the branch at the end of a run is often mispredicted: in
//! proteins in half of the cases, in water rarely.
//!
//! SSE2 lanes reduced the time by 18 %. Loads and stores without bounds checks, and finding the
//! next group before unpacking a group, had no effect. If the code is compiled for AVX2 and BMI2,
//! it is not faster: it takes 1.0 to 1.07 times as long (Zen 5).
//!
//! If one atom in 15 is wanted, half of the time is spent on finding the groups, because each group
//! begins where the previous one ends. The other half is spent on unpacking groups with wanted
//! atoms.

use super::decode::{GroupStart, Packed, RUN_MAX, SMALL_MIN, Wanted};
use super::mixed_radix::{Digits, FAR, FAR_FAST, SMALL, SMALL_FAST};
use super::simd_vectors::{Four, Two};

/// Maximum number of bytes, from the start of a group, that finding and unpacking the group may
/// read, with a margin. A group has at most 57 + 6 + 10 × 57 bits, and a load reads 8 bytes.
const REACH: usize = 96;

const GROUP_MAX: usize = 1 + RUN_MAX;

/// Number of floats of the longest group, plus one, because each atom is written as four floats.
const GROUP_FLOATS: usize = 3 * GROUP_MAX + 1;

/// Number of atoms between two checks for errors.
const LEG: usize = 256;

/// Accumulated checks of about `LEG` atoms: after any error, at least one lane is negative.
#[derive(Clone, Copy)]
struct Sound {
    positions: Four,
    numbers: Two,
}

impl Sound {
    fn new() -> Self {
        Sound {
            positions: Four::new([0; 4]),
            numbers: Two::new([0; 2]),
        }
    }

    fn holds(&self) -> bool {
        !self.positions.any_negative() && !self.numbers.any_negative()
    }
}

/// Group that was found, but not unpacked yet.
#[derive(Clone, Copy)]
struct Group {
    bit: usize,
    /// Offset at which the differences begin, bits.
    small_at: usize,
    run: usize,
    small: usize,
}

/// Walk over the groups of one frame.
pub(super) struct Walk<'a> {
    /// Packed bytes read so far.
    bytes: &'a [u8],
    full: Digits,
    minimum: Four,
    /// Maximum position, relative to the minimum.
    last: Four,
    /// Length of one integer unit, nm.
    scale: f32,
}

impl<'a> Walk<'a> {
    /// Create the walk; `None` if the fast path does not support these full positions.
    pub(super) fn new(packed: &Packed, bytes: &'a [u8]) -> Option<Self> {
        let full = Digits::of_positions(packed)?;
        let [x, y, z] = packed.minimum;
        let [last_x, last_y, last_z] = packed.sizes.map(|size| size as i32 - 1);
        Some(Walk {
            bytes,
            full,
            minimum: Four::new([x, y, z, 0]),
            last: Four::new([last_x, last_y, last_z, i32::MAX]),
            scale: 1.0 / packed.precision,
        })
    }

    /// Advance from `place` until a group is invalid or not supported, or until the last wanted
    /// atom or the end of the bytes is near.
    pub(super) fn advance(&self, place: &mut GroupStart, wanted: &Wanted, positions: &mut [f32]) {
        while (SMALL_MIN..=FAR_FAST).contains(&place.small) {
            let leg = if wanted.all {
                self.leg::<true>(*place, wanted, positions)
            } else {
                self.leg::<false>(*place, wanted, positions)
            };
            let Some((end, more)) = leg else { return };
            *place = end;
            if !more {
                return;
            }
        }
    }

    /// Process groups of about `LEG` atoms from `place` on. Return their end, and whether the walk
    /// can continue from there; `None` if a group is invalid.
    fn leg<const ALL: bool>(
        &self,
        mut place: GroupStart,
        wanted: &Wanted,
        positions: &mut [f32],
    ) -> Option<(GroupStart, bool)> {
        let atom_limit = wanted.end.saturating_sub(GROUP_MAX);
        let leg_limit = atom_limit.min(place.atom + LEG);
        let bit_limit = 8 * self.bytes.len().saturating_sub(REACH) as u64;
        let mut sound = Sound::new();
        let mut unpacked = [Four::new([0; 4]); GROUP_MAX];
        while place.atom < leg_limit && place.bit < bit_limit {
            let Some((group, next)) = self.find(place) else {
                return sound.holds().then_some((place, false));
            };
            let GroupStart { atom, out, .. } = place;
            place = next;
            if ALL {
                let out = positions.get_mut(3 * atom..)?.first_chunk_mut()?;
                self.unpack_to(out, group, &mut sound);
                place.out = place.atom;
                continue;
            }
            let mask = wanted.of(atom, 1 + group.run);
            if mask != 0 {
                let steps = group.run.min(mask.ilog2().max(1) as usize);
                self.unpack(group, steps, &mut sound, |slot, position| {
                    if let Some(unpacked) = unpacked.get_mut(slot) {
                        *unpacked = position;
                    }
                });
                self.gather(mask, &unpacked, positions.get_mut(3 * out..)?);
                place.out += mask.count_ones() as usize;
            }
        }
        let more = place.atom < atom_limit && place.bit < bit_limit;
        sound.holds().then_some((place, more))
    }

    /// Find the group at `place`, and the place of the next group; `None` if the fast path does not
    /// support the next group.
    #[inline(always)]
    fn find(&self, mut place: GroupStart) -> Option<(Group, GroupStart)> {
        let bit = place.bit as usize;
        let small = place.small;
        let window = self.window(bit + self.full.bits);
        let mut small_at = bit + self.full.bits + 1;
        // The flag is usually set in proteins, and rarely in water, so that the branch is predicted
        // well. If the branch is not taken, the place of the next group does not depend on the
        // loaded `window`.
        if window >> 63 == 1 {
            let code = (window >> 58) as usize & 31;
            place.run = code / 3;
            place.small = small + code % 3 - 1;
            if !(SMALL_MIN..=FAR_FAST).contains(&place.small) {
                return None;
            }
            small_at += 5;
        }
        place.bit = (small_at + place.run * small) as u64;
        place.atom += 1 + place.run;
        let group = Group {
            bit,
            small_at,
            run: place.run,
            small,
        };
        Some((group, place))
    }

    /// Unpack a group of which all atoms are wanted, and write the atoms to `positions`, in Å.
    #[inline(always)]
    fn unpack_to(&self, positions: &mut [f32; GROUP_FLOATS], group: Group, sound: &mut Sound) {
        self.unpack(group, group.run, sound, |slot, position| {
            if let Some(out) = positions.get_mut(3 * slot..3 * slot + 4) {
                out.copy_from_slice(&self.angstrom(position));
            }
        });
    }

    /// Write the atoms of a group that are in `mask` to the front of `positions`, in Å.
    #[inline(always)]
    fn gather(&self, mut mask: u32, unpacked: &[Four; GROUP_MAX], positions: &mut [f32]) {
        let mut out = positions.chunks_exact_mut(3);
        while mask != 0 {
            let slot = mask.trailing_zeros() as usize;
            if let (Some(out), Some(&position)) = (out.next(), unpacked.get(slot)) {
                out.copy_from_slice(&self.angstrom(position)[..3]);
            }
            mask &= mask - 1;
        }
    }

    /// Decode the first `steps` atoms of the run of a group, and the atom with the full position.
    /// `put` is called for each of these atoms, in order, with the atom's index in the group and
    /// its position.
    #[inline(always)]
    fn unpack(
        &self,
        group: Group,
        steps: usize,
        sound: &mut Sound,
        mut put: impl FnMut(usize, Four),
    ) {
        let (_, full) = self.full.split(self.window(group.bit));
        self.check(full, sound);
        if steps == 0 {
            return put(0, full);
        }
        let far = (group.small > SMALL_FAST).then(|| &FAR[group.small - SMALL_FAST - 1]);
        let small = &SMALL[group.small.min(SMALL_FAST)];
        let half = Four::new(far.map_or(small.half, |far| far.half));
        let mut before = full;
        let mut slot = 0;
        let mut step = |sound: &mut Sound, digits: Four| {
            before = before.minus(half).plus(digits);
            self.check(before, sound);
            put(slot, before);
            // The atom with the full position is the second atom.
            if slot == 0 {
                put(1, full);
                slot = 1;
            }
            slot += 1;
        };
        let (mut at, mut left) = (group.small_at, steps);
        while let (Some(far), 1..) = (far, left) {
            let (one, number) = far.digits(self.window(at));
            sound.numbers = sound.numbers.or(number);
            step(sound, one);
            left -= 1;
            at += group.small;
        }
        while left > 0 {
            let first = self.window(at);
            let second = if left > 1 {
                self.window(at + group.small)
            } else {
                first
            };
            let (one, other, numbers) = small.digits([first, second]);
            sound.numbers = sound.numbers.or(numbers);
            step(sound, one);
            if left == 1 {
                return;
            }
            step(sound, other);
            left -= 2;
            at += 2 * group.small;
        }
    }

    /// Check that a position, relative to the minimum, is from 0 to the maximum. Record an error in
    /// `sound`.
    #[inline(always)]
    fn check(&self, position: Four, sound: &mut Sound) {
        let outside = position.or(self.last.minus(position));
        sound.positions = sound.positions.or(outside);
    }

    /// Convert a position, relative to the minimum, to Å.
    #[inline(always)]
    fn angstrom(&self, position: Four) -> [f32; 4] {
        position.plus(self.minimum).scaled(self.scale)
    }

    /// Load at least 57 bits starting at `bit`, aligned to the top of a word.
    #[inline(always)]
    fn window(&self, bit: usize) -> u64 {
        let at = bit / 8;
        let bytes = self.bytes.get(at..at + 8);
        let bytes = bytes.and_then(|bytes| bytes.first_chunk());
        u64::from_be_bytes(bytes.copied().unwrap_or_default()) << (bit % 8)
    }
}
