//! Lanes in SSE2 registers.

// From Rust 1.87 on, intrinsics without pointers are safe where their instructions are known to
// exist; before, they need the word.
#![allow(unused_unsafe)]

use std::arch::x86_64::*;

/// Two unsigned numbers of 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct Two(__m128i);

/// Four signed numbers of 32 bits.
#[derive(Debug, Clone, Copy)]
pub struct Four(__m128i);

/// Four floats.
#[derive(Debug, Clone, Copy)]
pub struct Floats(__m128);

// SAFETY, for every block in this file: the intrinsics take and return values only, and need
// SSE2, which is part of x86-64.

impl Two {
    #[inline(always)]
    pub fn new(numbers: [u64; 2]) -> Self {
        Two(unsafe { std::mem::transmute::<[u64; 2], __m128i>(numbers) })
    }

    #[inline(always)]
    pub fn and(self, other: Self) -> Self {
        Two(unsafe { _mm_and_si128(self.0, other.0) })
    }

    #[inline(always)]
    pub fn or(self, other: Self) -> Self {
        Two(unsafe { _mm_or_si128(self.0, other.0) })
    }

    #[inline(always)]
    pub fn minus(self, other: Self) -> Self {
        Two(unsafe { _mm_sub_epi64(self.0, other.0) })
    }

    /// The product of the lower halves.
    #[inline(always)]
    pub fn times(self, other: Self) -> Self {
        Two(unsafe { _mm_mul_epu32(self.0, other.0) })
    }

    /// Both lanes shifted by the first lane of `count`.
    #[inline(always)]
    pub fn right(self, count: Self) -> Self {
        Two(unsafe { _mm_srl_epi64(self.0, count.0) })
    }

    /// Whether the highest bit of a lane is set.
    #[inline(always)]
    pub fn any_negative(self) -> bool {
        unsafe { _mm_movemask_pd(_mm_castsi128_pd(self.0)) != 0 }
    }

    /// `x`, `y` and `z` (each below 2^32), lane by lane: two triples, the fourth number 0.
    #[inline(always)]
    pub fn triples(x: Self, y: Self, z: Self) -> (Four, Four) {
        unsafe {
            let xy = _mm_or_si128(x.0, _mm_slli_epi64::<32>(y.0));
            (
                Four(_mm_unpacklo_epi64(xy, z.0)),
                Four(_mm_unpackhi_epi64(xy, z.0)),
            )
        }
    }
}

impl Four {
    #[inline(always)]
    pub fn new(numbers: [i32; 4]) -> Self {
        Four(unsafe { std::mem::transmute::<[i32; 4], __m128i>(numbers) })
    }

    #[inline(always)]
    pub fn to_array(self) -> [i32; 4] {
        unsafe { std::mem::transmute::<__m128i, [i32; 4]>(self.0) }
    }

    #[inline(always)]
    pub fn or(self, other: Self) -> Self {
        Four(unsafe { _mm_or_si128(self.0, other.0) })
    }

    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        Four(unsafe { _mm_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    pub fn minus(self, other: Self) -> Self {
        Four(unsafe { _mm_sub_epi32(self.0, other.0) })
    }

    /// All bits set in the lanes that are equal, none in the others.
    #[inline(always)]
    pub fn equals(self, other: Self) -> Self {
        Four(unsafe { _mm_cmpeq_epi32(self.0, other.0) })
    }

    #[inline(always)]
    pub fn any_negative(self) -> bool {
        unsafe { _mm_movemask_ps(_mm_castsi128_ps(self.0)) != 0 }
    }

    /// As floats, times `scale`, times 10.
    #[inline(always)]
    pub fn scaled(self, scale: f32) -> [f32; 4] {
        unsafe {
            let floats = _mm_mul_ps(_mm_cvtepi32_ps(self.0), _mm_set1_ps(scale));
            std::mem::transmute::<__m128, [f32; 4]>(_mm_mul_ps(floats, _mm_set1_ps(10.0)))
        }
    }
}

impl Floats {
    #[inline(always)]
    pub fn new(numbers: [f32; 4]) -> Self {
        Floats(unsafe { std::mem::transmute::<[f32; 4], __m128>(numbers) })
    }

    #[inline(always)]
    pub fn to_array(self) -> [f32; 4] {
        unsafe { std::mem::transmute::<__m128, [f32; 4]>(self.0) }
    }

    #[inline(always)]
    pub fn times(self, factor: f32) -> Self {
        Floats(unsafe { _mm_mul_ps(self.0, _mm_set1_ps(factor)) })
    }

    /// Half a unit further from 0.
    #[inline(always)]
    pub fn half_further(self) -> Self {
        unsafe {
            let sign = _mm_and_ps(self.0, _mm_set1_ps(-0.0));
            Floats(_mm_add_ps(self.0, _mm_or_ps(sign, _mm_set1_ps(0.5))))
        }
    }

    /// The lesser of each two; of `other` where a lane of `self` is no number.
    #[inline(always)]
    pub fn least(self, other: Self) -> Self {
        Floats(unsafe { _mm_min_ps(self.0, other.0) })
    }

    /// The greater of each two; of `other` where a lane of `self` is no number.
    #[inline(always)]
    pub fn greatest(self, other: Self) -> Self {
        Floats(unsafe { _mm_max_ps(self.0, other.0) })
    }

    /// The integer parts, `i32::MIN` where there is none of 32 bits.
    #[inline(always)]
    pub fn truncated(self) -> Four {
        Four(unsafe { _mm_cvttps_epi32(self.0) })
    }
}
