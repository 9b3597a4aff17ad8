//! The packed positions of an XTC frame once more, fast: for what nearly every frame holds.
//!
//! Bits are read 64 at a time, and numbers of mixed radix are divided by multiplying with
//! reciprocals, two distances at once. Nothing is reported from here: where a frame is unusual,
//! damaged or near its end, the walk stops before the group in question, and `xtc_packed`, which
//! knows the whole format, goes on from there.

use super::xtc_lanes::{Four, Two};
use super::xtc_packed::{Packed, Place, SMALL_MIN, SMALL_SIZES, Wanted};

/// The numbers of distances up to this index fit in 32 bits, so that one product of 64 bits
/// divides them exactly; `Reciprocal::new` proves it while compiling.
const SMALL_FAST: usize = 32;

/// Bits of a number that a 64-bit load holds wherever in a byte the number begins.
const WINDOW: u32 = 57;

/// Bytes from a group's first that finding and unpacking it may touch: 57 + 6 + 10 × 32 bits,
/// another distance, and the 8 bytes of the last load.
const REACH: usize = 64;

/// Floats of the longest group (11 atoms), and one: each atom is written as four.
const GROUP_FLOATS: usize = 3 * GROUP_MAX + 1;
const GROUP_MAX: usize = 11;

/// Groups between two looks at whether all was well.
const LEG: usize = 64;

/// Finds a number in bits that are stored from its lowest byte to its highest.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// The whole bytes.
    low: u64,
    /// Where the bits of the last, cut byte stand once they are shifted to join them.
    high: u64,
    shift: u64,
}

impl Layout {
    const fn new(bits: u32) -> Self {
        let whole = 8 * ((bits - 1) / 8);
        let rest = bits - whole;
        Layout {
            low: (1 << whole) - 1,
            high: ((1 << rest) - 1) << whole,
            shift: 8 - rest as u64,
        }
    }
}

/// Divides numbers below some limit: times `factor`, shifted by `shift`.
#[derive(Debug, Clone, Copy)]
struct Reciprocal {
    factor: u64,
    shift: u64,
}

impl Reciprocal {
    /// With factor × divisor = 2^shift + excess, the quotient is too large by
    /// number / divisor × excess / 2^shift: less than 1 / divisor, and so nothing once it is
    /// rounded down, while number × excess < 2^shift.
    const fn new(divisor: u64, limit: u64) -> Self {
        let shift = 32 + (divisor - 1).ilog2() as u64;
        let factor = (1u64 << shift).div_ceil(divisor);
        let excess = factor * divisor - (1 << shift);
        assert!(factor <= u32::MAX as u64 && limit <= 1 << 32);
        assert!((limit as u128 - 1) * (excess as u128) < 1 << shift);
        Reciprocal { factor, shift }
    }
}

/// What a small index stands for, in both lanes.
#[derive(Debug, Clone, Copy)]
struct Small {
    low: [u64; 2],
    high: [u64; 2],
    shift: [u64; 2],
    size: [u64; 2],
    /// 1 / size².
    x_factor: [u64; 2],
    x_shift: [u64; 2],
    /// 1 / size.
    xy_factor: [u64; 2],
    xy_shift: [u64; 2],
    /// size³ - 1: the highest number that is a distance.
    last: [u64; 2],
    half: [i32; 4],
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
}

/// Indices below the smallest repeat it; no walk uses them.
static SMALL: [Small; SMALL_FAST + 1] = {
    let mut table = [Small::new(SMALL_MIN); SMALL_FAST + 1];
    let mut index = SMALL_MIN;
    while index <= SMALL_FAST {
        table[index] = Small::new(index);
        index += 1;
    }
    table
};

/// How a whole position is stored in this frame.
#[derive(Debug, Clone, Copy)]
struct Full {
    layout: Layout,
    bits: usize,
    size_y: u64,
    size_z: u64,
    /// 2^64 / (size y × size z) and 2^64 / size z, rounded down.
    per_x: u64,
    per_xy: u64,
}

impl Full {
    fn new(bits: u32, [_, y, z]: [u64; 3]) -> Self {
        Full {
            layout: Layout::new(bits),
            bits: bits as usize,
            size_y: y,
            size_z: z,
            per_x: u64::MAX / (y * z),
            per_xy: u64::MAX / z,
        }
    }

    /// The position at the top of `window`. The two divisions do not wait for each other.
    #[inline(always)]
    fn position(&self, window: u64) -> Four {
        let stored = window.swap_bytes();
        let number = stored & self.layout.low | stored >> self.layout.shift & self.layout.high;
        let x = divide(number, self.size_y * self.size_z, self.per_x);
        let xy = divide(number, self.size_z, self.per_xy);
        let (y, z) = (xy - x * self.size_y, number - xy * self.size_z);
        Four::new([x as i32, y as i32, z as i32, 0])
    }
}

/// The quotient by way of a reciprocal that was rounded down: at most one too low, as the number
/// is below 2^64.
#[inline(always)]
fn divide(number: u64, divisor: u64, reciprocal: u64) -> u64 {
    let quotient = ((u128::from(number) * u128::from(reciprocal)) >> 64) as u64;
    quotient + u64::from(number - quotient * divisor >= divisor)
}

/// What must not have become negative in a leg, were it sound.
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

/// A group that has been found but not unpacked.
#[derive(Clone, Copy)]
struct Group {
    bit: usize,
    /// Where the distances begin.
    small_at: usize,
    run: usize,
    small: usize,
}

/// Walks over the groups of one frame.
pub(super) struct Walk<'a> {
    /// The packed bytes, as far as they have been read.
    bytes: &'a [u8],
    full: Full,
    minimum: Four,
    /// Highest position, counted from the minimum.
    last: Four,
    /// nm per integer.
    scale: f32,
}

impl<'a> Walk<'a> {
    /// None where whole positions are too wide.
    pub(super) fn new(packed: &Packed, bytes: &'a [u8]) -> Option<Self> {
        let bits = packed.full_bits();
        if packed.is_wide() || bits > WINDOW {
            return None;
        }
        let [x, y, z] = packed.minimum;
        let [last_x, last_y, last_z] = packed.sizes.map(|size| size as i32 - 1);
        Some(Walk {
            bytes,
            full: Full::new(bits, packed.sizes.map(u64::from)),
            minimum: Four::new([x, y, z, 0]),
            last: Four::new([last_x, last_y, last_z, i32::MAX]),
            scale: 1.0 / packed.precision,
        })
    }

    /// Go on from `place` as far as all is well and well within the frame.
    pub(super) fn advance(&self, place: &mut Place, wanted: &Wanted, positions: &mut [f32]) {
        loop {
            let leg = if wanted.all {
                self.leg::<true>(*place, wanted, positions)
            } else {
                self.leg::<false>(*place, wanted, positions)
            };
            let Some((end, groups)) = leg else { return };
            *place = end;
            if groups < LEG {
                return;
            }
        }
    }

    /// Up to `LEG` groups from `place`: where they end and how many they are; none where
    /// something is wrong with one of them.
    fn leg<const ALL: bool>(
        &self,
        mut place: Place,
        wanted: &Wanted,
        positions: &mut [f32],
    ) -> Option<(Place, usize)> {
        let mut sound = Sound::new();
        let mut groups = 0;
        let mut scratch = [0.0; GROUP_FLOATS];
        while groups < LEG && self.is_within(&place, wanted) {
            let first = place.atom;
            let group = self.find(&mut place);
            if place.small < SMALL_MIN {
                return None;
            }
            if ALL {
                let out = positions.get_mut(3 * first..3 * first + GROUP_FLOATS)?;
                self.unpack(group, group.run, out.try_into().ok()?, &mut sound);
                place.out = place.atom;
            } else {
                let mask = wanted.of(first, group.run + 1);
                if mask != 0 {
                    let steps = group.run.min(mask.ilog2().max(1) as usize);
                    self.unpack(group, steps, &mut scratch, &mut sound);
                    place.out += gather(mask, &scratch, positions.get_mut(3 * place.out..)?);
                }
            }
            groups += 1;
        }
        sound.holds().then_some((place, groups))
    }

    /// Whether the next group is one for the fast way.
    #[inline(always)]
    fn is_within(&self, place: &Place, wanted: &Wanted) -> bool {
        place.atom + GROUP_MAX < wanted.end
            && place.bit as usize / 8 + REACH <= self.bytes.len()
            && place.small <= SMALL_FAST
    }

    /// The group at `place`, which moves on to the next.
    #[inline(always)]
    fn find(&self, place: &mut Place) -> Group {
        let bit = place.bit as usize;
        let small = place.small;
        let window = self.window(bit + self.full.bits);
        let mut small_at = bit + self.full.bits + 1;
        // Nearly always set in some systems, nearly never in others: a branch is predicted well,
        // and where it is not taken, the next group's place does not wait for this load.
        if window >> 63 == 1 {
            let code = (window >> 58) as usize & 31;
            place.run = code / 3;
            place.small = small + code % 3 - 1;
            small_at += 5;
        }
        place.bit = (small_at + place.run * small) as u64;
        place.atom += 1 + place.run;
        Group {
            bit,
            small_at,
            run: place.run,
            small,
        }
    }

    /// The first `steps` atoms of the group's run, and the one with the whole position.
    #[inline(always)]
    fn unpack(&self, group: Group, steps: usize, out: &mut [f32; GROUP_FLOATS], sound: &mut Sound) {
        let full = self.full.position(self.window(group.bit));
        self.check(full, sound);
        if steps == 0 {
            return self.put(full, 0, out);
        }
        let small = &SMALL[group.small];
        let half = Four::new(small.half);
        let mut at = group.small_at;
        let (first, second) = self.two(at, group.small, steps > 1, small, sound);
        let mut before = full.minus(half).plus(first);
        self.check(before, sound);
        self.put(before, 0, out);
        self.put(full, 1, out);
        if steps == 1 {
            return;
        }
        before = before.minus(half).plus(second);
        self.check(before, sound);
        self.put(before, 2, out);
        let mut slot = 3;
        while slot <= steps {
            at += 2 * group.small;
            let (first, second) = self.two(at, group.small, slot < steps, small, sound);
            before = before.minus(half).plus(first);
            self.check(before, sound);
            self.put(before, slot, out);
            if slot == steps {
                return;
            }
            before = before.minus(half).plus(second);
            self.check(before, sound);
            self.put(before, slot + 1, out);
            slot += 2;
        }
    }

    #[inline(always)]
    fn two(
        &self,
        at: usize,
        n: usize,
        both: bool,
        small: &Small,
        sound: &mut Sound,
    ) -> (Four, Four) {
        let first = self.window(at);
        let second = if both { self.window(at + n) } else { first };
        distances(first, second, small, sound)
    }

    #[inline(always)]
    fn check(&self, position: Four, sound: &mut Sound) {
        let outside = position.or(self.last.minus(position));
        sound.positions = sound.positions.or(outside);
    }

    #[inline(always)]
    fn put(&self, position: Four, slot: usize, out: &mut [f32; GROUP_FLOATS]) {
        if let Some(out) = out.get_mut(3 * slot..3 * slot + 4) {
            out.copy_from_slice(&position.plus(self.minimum).scaled(self.scale));
        }
    }

    /// At least 57 bits from `bit` on, at the top.
    #[inline(always)]
    fn window(&self, bit: usize) -> u64 {
        let rest = self.bytes.get(bit / 8..).unwrap_or_default();
        let bytes = rest.first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(bytes) << (bit % 8)
    }
}

/// The distances at the tops of two windows.
#[inline(always)]
fn distances(first: u64, second: u64, small: &Small, sound: &mut Sound) -> (Four, Four) {
    let two = Two::new;
    let stored = two([first.swap_bytes(), second.swap_bytes()]);
    let low = stored.and(two(small.low));
    let number = low.or(stored.right(two(small.shift)).and(two(small.high)));
    sound.numbers = sound.numbers.or(two(small.last).minus(number));
    let size = two(small.size);
    let x = number.times(two(small.x_factor)).right(two(small.x_shift));
    let xy = number
        .times(two(small.xy_factor))
        .right(two(small.xy_shift));
    Two::triples(x, xy.minus(x.times(size)), number.minus(xy.times(size)))
}

/// Copy the atoms of a group that are wanted; how many.
#[inline(always)]
fn gather(mut mask: u32, group: &[f32; GROUP_FLOATS], positions: &mut [f32]) -> usize {
    let mut out = positions.chunks_exact_mut(3);
    let n = mask.count_ones() as usize;
    while mask != 0 {
        let at = 3 * mask.trailing_zeros() as usize;
        if let (Some(out), Some(atom)) = (out.next(), group.get(at..at + 3)) {
            out.copy_from_slice(atom);
        }
        mask &= mask - 1;
    }
    n
}
