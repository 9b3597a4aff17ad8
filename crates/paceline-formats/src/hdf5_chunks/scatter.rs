//! Brings numbers of a chunk's row to their places in a frame.

use std::ops::Range;

use super::dataset::{Number, Units, Value, with_decoder};

/// Points that are neighbours on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Number, in the part of the row, at which they begin; place of that in the frame.
    pub source: usize,
    pub target: usize,
    /// Points; or numbers, where nothing lies between points on either side.
    pub n: usize,
}

/// All that is copied of a part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copies {
    /// Numbers of a point that are copied.
    width: usize,
    /// Numbers from point to point.
    source_step: usize,
    target_step: usize,
    copies: Vec<Copy>,
}

impl Copies {
    pub fn new(width: usize, source_step: usize, target_step: usize) -> Copies {
        Copies {
            width,
            source_step,
            target_step,
            copies: Vec::new(),
        }
    }

    pub fn push(&mut self, mut copy: Copy) {
        if self.is_dense() {
            copy.n *= self.width;
        }
        self.copies.push(copy);
    }

    /// Whether nothing lies between points on either side.
    fn is_dense(&self) -> bool {
        self.width == self.source_step && self.width == self.target_step
    }

    /// Where all numbers of the part go, if they stay together.
    pub fn straight(&self) -> Option<Range<usize>> {
        match self.copies[..] {
            [copy] if self.is_dense() => Some(copy.target..copy.target + copy.n),
            _ => None,
        }
    }

    /// Decode a part of a row into a frame.
    pub fn scatter<T: Value>(&self, number: Number, units: Units, bytes: &[u8], frame: &mut [T]) {
        with_decoder!(number, units, T, scatter(self, bytes, frame));
    }

    /// Put one number in all places.
    pub fn fill<T: Value>(&self, value: T, frame: &mut [T]) {
        for copy in &self.copies {
            if self.is_dense() {
                frame[copy.target..copy.target + copy.n].fill(value);
            } else {
                let points = frame[copy.target..].chunks_mut(self.target_step);
                points
                    .take(copy.n)
                    .for_each(|point| point[..self.width].fill(value));
            }
        }
    }
}

fn scatter<const WIDTH: usize, T: Value>(
    copies: &Copies,
    bytes: &[u8],
    frame: &mut [T],
    value: impl Fn([u8; WIDTH]) -> T,
) {
    let (numbers, _) = bytes.as_chunks::<WIDTH>();
    if copies.is_dense() {
        for &Copy { source, target, n } in &copies.copies {
            let numbers = &numbers[source..source + n];
            for (out, &number) in frame[target..target + n].iter_mut().zip(numbers) {
                *out = value(number);
            }
        }
        return;
    }
    for &Copy { source, target, n } in &copies.copies {
        let (source, target) = (&numbers[source..], &mut frame[target..]);
        if copies.width == 1 && copies.source_step == 1 {
            // One component alone, as automatic chunks have it: the loop below took 3 times as long.
            let targets = target.iter_mut().step_by(copies.target_step);
            for (out, &number) in targets.zip(&source[..n]) {
                *out = value(number);
            }
            continue;
        }
        let targets = target.chunks_mut(copies.target_step);
        for (source, target) in source.chunks(copies.source_step).zip(targets).take(n) {
            for (out, &number) in target.iter_mut().zip(&source[..copies.width]) {
                *out = value(number);
            }
        }
    }
}

/// One number.
pub fn decode_one<T: Value>(number: Number, units: Units, bytes: &[u8]) -> T {
    let mut value = [T::default()];
    let mut copies = Copies::new(1, 1, 1);
    copies.push(Copy {
        source: 0,
        target: 0,
        n: 1,
    });
    copies.scatter(number, units, bytes, &mut value);
    value[0]
}

/// Make values, in place, of numbers that were read as they are stored ([`Value::as_stored`]).
pub fn decode_in_place(big_endian: bool, units: Units, values: &mut [f32]) {
    if big_endian != cfg!(target_endian = "big") {
        for value in values.iter_mut() {
            *value = f32::from_bits(value.to_bits().swap_bytes());
        }
    }
    if units != Units::NONE {
        for value in values {
            *value = f32::of_single(*value, units);
        }
    }
}
