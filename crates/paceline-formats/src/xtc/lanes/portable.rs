//! Lanes as arrays, for the compiler to place as it can.

/// Two unsigned numbers of 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct Two([u64; 2]);

/// Four signed numbers of 32 bits.
#[derive(Debug, Clone, Copy)]
pub struct Four([i32; 4]);

/// Four floats.
#[derive(Debug, Clone, Copy)]
pub struct Floats([f32; 4]);

fn zip<T: Copy, const N: usize>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Two {
    #[inline(always)]
    pub fn new(numbers: [u64; 2]) -> Self {
        Two(numbers)
    }

    #[inline(always)]
    pub fn and(self, other: Self) -> Self {
        Two(zip(self.0, other.0, |a, b| a & b))
    }

    #[inline(always)]
    pub fn or(self, other: Self) -> Self {
        Two(zip(self.0, other.0, |a, b| a | b))
    }

    #[inline(always)]
    pub fn minus(self, other: Self) -> Self {
        Two(zip(self.0, other.0, u64::wrapping_sub))
    }

    /// The product of the lower halves.
    #[inline(always)]
    pub fn times(self, other: Self) -> Self {
        let low = |number| u64::from(number as u32);
        Two(zip(self.0, other.0, |a, b| low(a) * low(b)))
    }

    /// Both lanes shifted by the first lane of `count`.
    #[inline(always)]
    pub fn right(self, count: Self) -> Self {
        Two(self.0.map(|a| a >> (count.0[0] & 63)))
    }

    /// Whether the highest bit of a lane is set.
    #[inline(always)]
    pub fn any_negative(self) -> bool {
        ((self.0[0] | self.0[1]) as i64) < 0
    }

    /// `x`, `y` and `z` (each below 2^32), lane by lane: two triples, the fourth number 0.
    #[inline(always)]
    pub fn triples(x: Self, y: Self, z: Self) -> (Four, Four) {
        let triple = |i: usize| {
            let xy = x.0[i] | y.0[i] << 32;
            let z = z.0[i];
            Four([xy as i32, (xy >> 32) as i32, z as i32, (z >> 32) as i32])
        };
        (triple(0), triple(1))
    }
}

impl Four {
    #[inline(always)]
    pub fn new(numbers: [i32; 4]) -> Self {
        Four(numbers)
    }

    #[inline(always)]
    pub fn to_array(self) -> [i32; 4] {
        self.0
    }

    #[inline(always)]
    pub fn or(self, other: Self) -> Self {
        Four(zip(self.0, other.0, |a, b| a | b))
    }

    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        Four(zip(self.0, other.0, i32::wrapping_add))
    }

    #[inline(always)]
    pub fn minus(self, other: Self) -> Self {
        Four(zip(self.0, other.0, i32::wrapping_sub))
    }

    /// All bits set in the lanes that are equal, none in the others.
    #[inline(always)]
    pub fn equals(self, other: Self) -> Self {
        Four(zip(self.0, other.0, |a, b| -i32::from(a == b)))
    }

    #[inline(always)]
    pub fn any_negative(self) -> bool {
        self.0.iter().any(|&number| number < 0)
    }

    /// As floats, times `scale`, times 10.
    #[inline(always)]
    pub fn scaled(self, scale: f32) -> [f32; 4] {
        self.0.map(|number| number as f32 * scale * 10.0)
    }
}

impl Floats {
    #[inline(always)]
    pub fn new(numbers: [f32; 4]) -> Self {
        Floats(numbers)
    }

    #[inline(always)]
    pub fn to_array(self) -> [f32; 4] {
        self.0
    }

    #[inline(always)]
    pub fn times(self, factor: f32) -> Self {
        Floats(self.0.map(|number| number * factor))
    }

    /// Half a unit further from 0.
    #[inline(always)]
    pub fn half_further(self) -> Self {
        Floats(self.0.map(|number| number + 0.5f32.copysign(number)))
    }

    /// The lesser of each two; of `other` where a lane of `self` is no number.
    #[inline(always)]
    pub fn least(self, other: Self) -> Self {
        Floats(zip(self.0, other.0, |a, b| if a < b { a } else { b }))
    }

    /// The greater of each two; of `other` where a lane of `self` is no number.
    #[inline(always)]
    pub fn greatest(self, other: Self) -> Self {
        Floats(zip(self.0, other.0, |a, b| if a > b { a } else { b }))
    }

    /// The integer parts, `i32::MIN` where there is none of 32 bits.
    #[inline(always)]
    pub fn truncated(self) -> Four {
        let fits = |number: f32| number.abs() < 2_147_483_648.0;
        Four(self.0.map(|x| if fits(x) { x as i32 } else { i32::MIN }))
    }
}
