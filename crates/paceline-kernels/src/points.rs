//! Positions side by side, and the distances from one of them to a row of others.

use std::ops::Range;

use super::cell::square;
use super::histogram::{Histogram, PIECE, Rough};

/// What the number of distances that are computed together is a multiple of.
const LANES: usize = 8;

/// Positions (Å) of some atoms, and what marks atoms that are not to be paired.
#[derive(Debug, Clone, Default)]
pub struct Points {
    axes: [Vec<f32>; 3],
    /// Two atoms of the same label make no pair; empty where all do.
    labels: Vec<u32>,
    len: usize,
}

impl Points {
    /// Of the atoms in `order`; `labels` is empty or has one number an atom.
    pub fn new(positions: &[[f32; 3]], labels: &[u32], order: impl Iterator<Item = usize>) -> Self {
        let mut points = Points::default();
        for atom in order {
            for (axis, &x) in points.axes.iter_mut().zip(&positions[atom]) {
                axis.push(x);
            }
            points.labels.extend(labels.get(atom));
            points.len += 1;
        }
        // A row is read in whole lanes, beyond its end.
        for axis in &mut points.axes {
            axis.resize(points.len + LANES, 0.0);
        }
        if !labels.is_empty() {
            points.labels.resize(points.len + LANES, 0);
        }
        points
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All x, which `rods` sorts by.
    pub fn x(&self) -> &[f32] {
        &self.axes[0][..self.len]
    }

    /// Count distances from point `i` of `from` to a row of these, given what makes a square (Å²)
    /// of a difference of positions, which is rounded to single precision as MDAnalysis does.
    #[inline(always)]
    pub fn count(
        &self,
        from: &Points,
        i: usize,
        row: Range<usize>,
        square: impl Fn([f64; 3]) -> f64,
        found: &mut Histogram,
    ) {
        let mut squares = [0.0; PIECE];
        for begin in row.clone().step_by(PIECE) {
            let piece = begin..row.end.min(begin + PIECE);
            let others = self.axes.each_ref().map(|axis| &axis[piece.clone()]);
            for (k, square_of) in squares[..piece.len()].iter_mut().enumerate() {
                let d = std::array::from_fn(|axis| from.axes[axis][i] - others[axis][k]);
                *square_of = square(d.map(f64::from));
            }
            for (j, &square) in piece.zip(&squares) {
                if self.pairs_with(j, from, i) {
                    found.add(square);
                }
            }
        }
    }

    /// Count distances from point `i` of `from` to a row of these, shifted by a vector (Å).
    #[inline]
    pub fn count_shifted(
        &self,
        from: &Points,
        i: usize,
        row: Range<usize>,
        shift: [f64; 3],
        rough: &mut Rough,
        found: &mut Histogram,
    ) {
        for begin in row.clone().step_by(PIECE) {
            let piece = begin..row.end.min(begin + PIECE);
            let n = piece.len().next_multiple_of(LANES);
            let nearly = shift.map(|x| x as f32);
            self.squares(from.at(i), begin, nearly, &mut rough.squares[..n]);
            let in_doubt = rough.tell(n);
            if let Some(&label) = from.labels.get(i) {
                rough.leave_out(&self.labels[begin..begin + n], label);
            }
            let bins = rough.bins[..piece.len()].iter().copied();
            if !in_doubt {
                found.add_told(bins);
                continue;
            }
            for j in piece.filter(|j| rough.doubts[j - begin] != 0) {
                found.add(square_apart(from.at(i), self.at(j), shift));
            }
            let told = bins.zip(&rough.doubts).filter(|(_, doubt)| **doubt == 0);
            found.add_told(told.map(|(bin, _)| bin));
        }
    }

    /// Squares of distances in single precision (Å²) from a position to a row of these, shifted.
    #[inline(never)]
    fn squares(&self, at: [f32; 3], begin: usize, shift: [f32; 3], squares: &mut [f32]) {
        let row = begin..begin + squares.len();
        let [x, y, z] = self.axes.each_ref().map(|axis| &axis[row.clone()]);
        for (((square, x), y), z) in squares.iter_mut().zip(x).zip(y).zip(z) {
            let x = at[0] - x - shift[0];
            let y = at[1] - y - shift[1];
            let z = at[2] - z - shift[2];
            *square = x * x + y * y + z * z;
        }
    }

    fn at(&self, i: usize) -> [f32; 3] {
        self.axes.each_ref().map(|axis| axis[i])
    }

    /// Whether point `j` makes a pair with point `i` of `from`.
    #[inline(always)]
    fn pairs_with(&self, j: usize, from: &Points, i: usize) -> bool {
        self.labels.is_empty() || self.labels[j] != from.labels[i]
    }
}

/// The square of the distance between two positions, one of them shifted, Å².
pub fn square_apart(one: [f32; 3], other: [f32; 3], shift: [f64; 3]) -> f64 {
    square(std::array::from_fn(|axis| {
        f64::from(one[axis] - other[axis]) - shift[axis]
    }))
}
