//! Layout of bins along the cell vectors, and the parts of bins that are within reach of each
//! other.

use std::array::from_fn;

use super::mdanalysis_rounding_and_order::Measure;
use super::{Atoms, Point, finite};
use crate::cell::{ApplyPbc, SLACK, cross, dot, in_cell, square};
use crate::instructions::by_widest;
use crate::superposition::Matrix3;

/// Number of parts along each edge of a bin.
pub(super) const PARTS: usize = 2;
/// Number of parts, along one edge, that may be within reach of a part: from one bin before the
/// part to one bin after it.
const REACHED: usize = 2 * PARTS + 1;
/// Positions at least this far from the cell are wrapped in double precision. The distance is the
/// sum over the cell vectors, in cells.
pub(super) const FEW_CELLS: f32 = 16.0;
/// Adding and then subtracting this number rounds a number of magnitude below 2²² to the nearest
/// whole number.
const TO_WHOLE: f32 = 12_582_912.0;
/// If this number is added to a whole number below 2²³, the low bits of the sum contain the whole
/// number.
const TO_BITS: f32 = 8_388_608.0;
const LOW_BITS: u32 = 0x7f_ffff;
/// Number of positions that are wrapped together.
pub(super) const PLACED: usize = 64;
/// Offsets along b and c of the rows of bins around a bin, the nearest first.
pub(super) const ROWS: [[i32; 2]; 9] = [
    [0, 0],
    [1, 0],
    [-1, 0],
    [0, 1],
    [0, -1],
    [1, 1],
    [1, -1],
    [-1, 1],
    [-1, -1],
];

/// Layout of bins.
#[derive(Debug, Clone, Default)]
pub(super) struct Grid {
    /// Function that wraps positions into the cell; `None` without a cell.
    pub pbc: Option<ApplyPbc>,
    pub vectors: [Point; 3],
    /// Matrix that converts positions relative to the origin to fractional coordinates.
    inverse: [Point; 3],
    origin: Point,
    /// Number of bins along each vector.
    pub n: [usize; 3],
    /// Squared distances (Å²). Beyond `most`, atoms are certainly not near each other; within
    /// `sure`, they certainly are.
    pub most: f32,
    pub sure: f32,
}

/// Positions that are being wrapped into the cell.
pub(super) struct Lanes {
    pub x: [[f32; PLACED]; 3],
    pub part: [[u32; PLACED]; 3],
    /// Distance from the origin in cells, summed over vectors; without a cell, 0 within the bins
    /// and at least `FEW_CELLS` elsewhere.
    pub away: [f32; PLACED],
}

impl Grid {
    /// Create a grid with a maximum number of bins. Without a cell, `extent` is the extent of the
    /// atoms. With a cell, `largest` is the largest coordinate (Å).
    pub(super) fn new(measure: &Measure, n_bins: usize, extent: [Point; 2], largest: f32) -> Self {
        let (vectors, origin, margin) = match &measure.cell {
            Some(cell) => {
                let vectors = cell.vectors();
                let all = vectors.iter().flatten();
                let longest = all.fold(0.0, |most: f64, x| most.max(x.abs()));
                let far = 8.0 * f64::from(f32::EPSILON) * f64::from(largest);
                (*vectors, [0.0; 3], 1e-3 + 8.0 * SLACK * longest + far)
            }
            None => room(extent, measure.cutoff),
        };
        let reach = measure.cutoff + margin;
        let sure = (measure.cutoff - margin).max(0.0);
        let [a, b, c] = vectors;
        let volume = a[0] * b[1] * c[2];
        let face = [b[1] * c[2], -b[0] * c[2], b[0] * c[1] - b[1] * c[0]];
        let heights = [
            volume / square(face).sqrt(),
            b[1] * c[2] / (c[1] * c[1] + c[2] * c[2]).sqrt(),
            c[2],
        ];
        let limit = n_bins.clamp(64, 1 << 20) as f64;
        let mut n = heights.map(|height| (height / reach).floor().clamp(1.0, 1e4));
        while n.iter().product::<f64>() > limit {
            let most = n.into_iter().fold(0.0, f64::max);
            let fewer = |n: f64| if n == most { (0.8 * n).floor() } else { n };
            n = n.map(|n| fewer(n).max(1.0));
        }
        let over = [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]];
        let b_in_a = -b[0] * over[0] * over[1];
        let inverse = [
            [over[0], b_in_a, (-b_in_a * c[1] - c[0] * over[0]) * over[2]],
            [0.0, over[1], -c[1] * over[1] * over[2]],
            [0.0, 0.0, over[2]],
        ];
        Grid {
            pbc: measure.pbc.clone(),
            vectors: vectors.map(|vector| vector.map(|x| x as f32)),
            inverse: inverse.map(|row| row.map(|x| x as f32)),
            origin: origin.map(|x| x as f32),
            n: n.map(|n| n as usize),
            most: (reach * reach) as f32,
            sure: (sure * sure) as f32,
        }
    }

    /// Number of parts along each vector.
    pub(super) fn parts(&self) -> [usize; 3] {
        self.n.map(|n| PARTS * n)
    }

    /// Return the number of words for the marks of a row.
    pub(super) fn words(&self) -> usize {
        (self.parts()[0] + 2 * PARTS).div_ceil(64)
    }

    /// Vectors along the edges of a part, Å.
    fn edges(&self) -> Matrix3 {
        let parts = self.parts();
        from_fn(|k| self.vectors[k].map(|x| f64::from(x) / parts[k] as f64))
    }

    /// Return, for each nearby row of parts, the offsets along a of the first and the last part
    /// within reach. Offsets are 1 and 0 if no part is within reach.
    fn spans(&self) -> [[[i32; 2]; REACHED]; REACHED] {
        let edges = self.edges();
        let [a, b, c] = edges;
        let faces = [cross(b, c), cross(c, a), cross(a, b)].map(unit);
        // Two parts are beyond reach if they are beyond reach along any direction. The directions
        // tested are the reciprocal vectors, and sums of two and three of them. Each entry contains
        // the lengths of the edges along a direction.
        let sums = (0..27).map(|k| [k / 9, k / 3 % 3, k % 3].map(|sign| f64::from(sign) - 1.0));
        let along = sums.take(13).map(|signs| {
            let sum = |axis: usize| (0..3).map(|k| signs[k] * faces[k][axis]).sum::<f64>();
            let direction = unit([0, 1, 2].map(sum));
            edges.map(|edge| dot(edge, direction))
        });
        let along: Vec<[f64; 3]> = along.collect();
        let reach = f64::from(self.most).sqrt() * (1.0 + 1e-6);
        let is_near = |offset: [i32; 3]| {
            let offset = offset.map(f64::from);
            let apart = |edges: &[f64; 3]| {
                dot(offset, *edges).abs() - edges.iter().map(|x| x.abs()).sum::<f64>() >= reach
            };
            !along.iter().any(apart)
        };
        let offset = |place: usize| place as i32 - PARTS as i32;
        let span = |j: usize, k: usize| {
            let all = (0..REACHED).map(offset);
            let mut near = all.filter(|&i| is_near([i, offset(j), offset(k)]));
            let first = near.next();
            first.map_or([1, 0], |first| [first, near.next_back().unwrap_or(first)])
        };
        from_fn(|k| from_fn(|j| span(j, k)))
    }

    /// Number of bins along each vector, including one more at both ends.
    pub(super) fn padded(&self) -> [usize; 3] {
        self.n.map(|n| n + 2)
    }

    /// Wrap positions into the cell, and find their parts. The loop has no branches, so that the
    /// compiler can vectorise it.
    #[inline(always)]
    fn wrap_atoms<const PERIODIC: bool>(&self, lanes: &mut Lanes) {
        let sizes = self.parts().map(|n| n as f32);
        let [a, b, c] = self.vectors;
        for lane in 0..PLACED {
            let [x, y, z] = [0, 1, 2].map(|k| lanes.x[k][lane] - self.origin[k]);
            let mut whole = [0.0; 3];
            let mut away = 0.0;
            for k in 0..3 {
                let [u, v, w] = self.inverse[k];
                let cells = u * x + v * y + w * z;
                if PERIODIC {
                    away += cells.abs();
                    let nearest = (cells + TO_WHOLE) - TO_WHOLE;
                    let below = if cells < nearest { 1.0 } else { 0.0 };
                    whole[k] = nearest - below;
                } else {
                    let is_within = (0.0..1.0).contains(&cells);
                    away += if is_within { 0.0 } else { FEW_CELLS };
                }
                // Subtracting a half and rounding to the nearest yields the whole number below.
                let part = ((cells - whole[k]) * sizes[k] - 0.5 + TO_WHOLE) - TO_WHOLE;
                let last = sizes[k] - 1.0;
                let part = if part < last { part } else { last };
                let part = if part > 0.0 { part } else { 0.0 };
                lanes.part[k][lane] = (part + TO_BITS).to_bits() & LOW_BITS;
            }
            lanes.away[lane] = away;
            lanes.x[0][lane] = x - (whole[0] * a[0] + whole[1] * b[0] + whole[2] * c[0]);
            lanes.x[1][lane] = y - (whole[1] * b[1] + whole[2] * c[1]);
            lanes.x[2][lane] = z - whole[2] * c[2];
        }
    }

    /// Wrap positions that are at least `FEW_CELLS` away into the cell, if there is one. Return
    /// their largest coordinate.
    ///
    /// # Errors
    /// A message if a position is not finite, or cannot be wrapped into the cell.
    #[cold]
    pub(super) fn wrap_far_atoms(
        &self,
        of: &Atoms<'_>,
        some: &[u32],
        lanes: &mut Lanes,
    ) -> Result<f32, String> {
        let mut largest = 0.0_f32;
        for (lane, &place) in some.iter().enumerate() {
            if lanes.away[lane] < FEW_CELLS {
                continue;
            }
            let x = finite(of.at(place))?;
            if let Some(pbc) = &self.pbc {
                largest = x.iter().fold(largest, |most, x| most.max(x.abs()));
                let mut one = Lanes::default();
                for (axis, x) in one.x.iter_mut().zip(in_cell(pbc, x)?) {
                    axis[0] = x;
                }
                self.wrap_atoms::<true>(&mut one);
                for k in 0..3 {
                    (lanes.x[k][lane], lanes.part[k][lane]) = (one.x[k][0], one.part[k][0]);
                }
                lanes.away[lane] = 0.0;
            }
        }
        Ok(largest)
    }

    /// Return the offsets of the first bins in nearby rows, relative to a bin.
    pub(super) fn rows(&self) -> [u32; 9] {
        let padded = self.padded().map(|n| n as i32);
        ROWS.map(|[j, k]| (padded[0] * (j + padded[1] * k) - 1) as u32)
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Lanes {
            x: [[0.0; PLACED]; 3],
            part: [[0; PLACED]; 3],
            away: [0.0; PLACED],
        }
    }
}

impl Lanes {
    /// Copy the positions at the indices `some` into the lanes.
    #[inline(always)]
    pub(super) fn gather(&mut self, of: &Atoms<'_>, some: &[u32]) {
        for (lane, &place) in some.iter().enumerate() {
            let x = of.at(place);
            for (axis, x) in self.x.iter_mut().zip(x) {
                axis[lane] = x;
            }
        }
    }

    /// Wrap positions into the cell; return true if some are at least `FEW_CELLS` away.
    #[inline(always)]
    pub(super) fn wrap_atoms(&mut self, grid: &Grid) -> bool {
        if grid.pbc.is_none() {
            grid.wrap_atoms::<false>(self);
        } else {
            grid.wrap_atoms::<true>(self);
        }
        // NaN counts as far away.
        !(self.away.iter()).fold(true, |all, &away| all & (away < FEW_CELLS))
    }
}

by_widest! {
    /// Mark the parts that may be within reach of the parts marked in `from`.
    pub(super) fn mark_around(grid: &Grid, from: &[u64], spread: &mut Vec<u64>, marks: &mut Vec<u64>) {
        marks.clear();
        marks.resize(from.len(), 0);
        let ([_, n1, n2], words) = (grid.parts(), grid.words());
        let (plane, spans) = (words * n1, grid.spans());
        let all = spans.as_flattened();
        for (place, span) in all.iter().enumerate() {
            if span[0] > span[1] || all[..place].contains(span) {
                continue;
            }
            spread_bits(from, *span, words, spread);
            for (place, _) in all.iter().enumerate().filter(|(_, one)| *one == span) {
                let (j, k) = (place % REACHED, place / REACHED);
                // Rows that are moved beyond the end of a plane continue at its beginning.
                let cut = words * around(0, j, n1);
                for (at, from) in spread.chunks_exact(plane).enumerate() {
                    let to = &mut marks[plane * around(at, k, n2)..][..plane];
                    let (head, tail) = to.split_at_mut(cut);
                    let (body, end) = from.split_at(plane - cut);
                    tail.iter_mut().zip(body).for_each(|(to, from)| *to |= from);
                    head.iter_mut().zip(end).for_each(|(to, from)| *to |= from);
                }
            }
        }
    }
}

/// For each bit that is set in `from`, set the bits that follow it at the distances `first` to
/// `last` in `to`.
#[inline(always)]
fn spread_bits(from: &[u64], [first, last]: [i32; 2], words: usize, to: &mut Vec<u64>) {
    to.clear();
    to.resize(from.len(), 0);
    for by in first..=last {
        let n = by.unsigned_abs();
        if by >= 0 {
            (to.iter_mut().zip(from)).for_each(|(to, from)| *to |= from << n);
        } else {
            (to.iter_mut().zip(from)).for_each(|(to, from)| *to |= from >> n);
        }
        if words == 1 || by == 0 {
            continue;
        }
        // Bits that cross the end of a row reach only parts that are not searched.
        if by > 0 {
            let pairs = to[1..].iter_mut().zip(from);
            pairs.for_each(|(to, from)| *to |= from >> (64 - n));
        } else {
            let pairs = to.iter_mut().zip(&from[1..]);
            pairs.for_each(|(to, from)| *to |= from << (64 - n));
        }
    }
}

/// Normalise a vector.
fn unit(x: [f64; 3]) -> [f64; 3] {
    let length = square(x).sqrt();
    x.map(|x| x / length)
}

/// Return a box around the atoms as vectors and origin, and a margin (Å). On each side, the box
/// extends beyond the atoms by the cutoff and the margin.
fn room([low, high]: [Point; 2], cutoff: f64) -> (Matrix3, [f64; 3], f64) {
    let all = low.iter().chain(&high);
    let largest = all.fold(1.0_f32, |most, x| most.max(x.abs()));
    let far = f64::from(largest) * (1e-5 + 8.0 * f64::from(f32::EPSILON));
    let margin = 1e-3 + far;
    let mut vectors = [[0.0; 3]; 3];
    let mut origin = [0.0; 3];
    for axis in 0..3 {
        origin[axis] = f64::from(low[axis]) - (cutoff + margin);
        vectors[axis][axis] = f64::from(high[axis] - low[axis]) + 2.0 * (cutoff + margin);
    }
    (vectors, origin, margin)
}

/// Return the index `place` + `offset` − `PARTS`, modulo `n`.
fn around(place: usize, offset: usize, n: usize) -> usize {
    match place + offset {
        sum if sum < PARTS => sum + n - PARTS,
        sum if sum < n + PARTS => sum - PARTS,
        sum => sum - PARTS - n,
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell_for;
    use super::*;
    use crate::tests::Random;

    #[test]
    fn parts_that_are_left_out_are_beyond_reach() {
        let mut random = Random(76);
        let (mut n_left_out, mut n_close) = (0, 0);
        for _ in 0..200 {
            let lengths = [0; 3].map(|_| (30.0 + 30.0 * random.number().abs()) as f32);
            let angles = [0; 3].map(|_| (60.0 + 50.0 * random.number().abs()) as f32);
            let cutoff = 3.0 + 4.0 * random.number().abs();
            let ([a, b, c], [alpha, beta, gamma]) = (lengths, angles);
            let dimensions = [a, b, c, alpha, beta, gamma];
            let cell = cell_for(dimensions, cutoff, "this");
            let Ok(cell) = cell else { continue };
            let measure = Measure::new(cell, [1, 1], cutoff, || [[0.0; 3]; 2]);
            let grid = Grid::new(&measure, 1 << 20, [[0.0; 3]; 2], 0.0);
            let reach = f64::from(grid.most).sqrt();
            let (edges, spans) = (grid.edges(), grid.spans());
            for place in 0..REACHED.pow(3) {
                let offset = [
                    place % REACHED,
                    place / REACHED % REACHED,
                    place / REACHED / REACHED,
                ]
                .map(|at| at as i32 - PARTS as i32);
                let [first, last] = spans[place / REACHED / REACHED][place / REACHED % REACHED];
                if (first..=last).contains(&offset[0]) {
                    continue;
                }
                n_left_out += 1;
                // Differences between positions in the two parts.
                let mut least = f64::INFINITY;
                for sample in 0..9_i32.pow(3) {
                    let within = [sample % 9, sample / 9 % 9, sample / 81];
                    let along = [0, 1, 2]
                        .map(|k: usize| f64::from(offset[k]) + f64::from(within[k] - 4) / 4.0);
                    let d = [0, 1, 2]
                        .map(|axis: usize| (0..3).map(|k| along[k] * edges[k][axis]).sum::<f64>());
                    least = least.min(square(d).sqrt());
                }
                assert!(
                    least >= reach,
                    "{dimensions:?} {offset:?}: {least} < {reach}"
                );
                n_close += usize::from(least < 1.2 * reach);
            }
        }
        assert!(n_left_out > 500 && n_close > 100, "{n_left_out} {n_close}");
    }
}
