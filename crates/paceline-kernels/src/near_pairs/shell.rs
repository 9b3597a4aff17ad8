//! Positions that are near any atom of a group, in a periodic cell.
//!
//! Atoms are sorted into bins along the vectors of the cell, those at its faces once more beyond the
//! opposite face, so that no search goes around it. Bins that may be near one with atoms are marked,
//! in halves of bins. All in single precision: what is not surely near or far is measured.

use super::{Measure, Point};
use crate::cell::{SLACK, square};
use crate::qcp::Matrix3;

/// Marks have so many parts along each edge of a bin.
const PARTS: usize = 2;
/// Bins, at most, for each atom.
const BINS: usize = 16;
/// Positions this many cells away, all vectors together, are not placed in single precision.
const FEW_CELLS: f32 = 16.0;
/// Added to a number, this rounds it to a whole one, of magnitudes below 2²².
const TO_WHOLE: f32 = 12_582_912.0;
/// Added to a whole number below 2¹⁶, this leaves it in the low bits.
const TO_BITS: f32 = 8_388_608.0;
/// Positions that are brought into the cell together.
const LANES: usize = 16;
/// Rows of bins around one, the nearest first.
const ROWS: [[i32; 2]; 9] = [
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

/// A position in the cell, and the part of a bin that it is in along each vector.
#[derive(Debug, Clone, Copy, Default)]
struct Home {
    x: Point,
    part: [u16; 3],
}

/// Some positions on their way into the cell, and how many cells away they were.
#[derive(Default)]
struct Lanes {
    x: [[f32; LANES]; 3],
    part: [[f32; LANES]; 3],
    away: [f32; LANES],
}

/// Atoms in bins, and marks of the parts of bins that may be near any.
#[derive(Debug, Clone, Default)]
pub(super) struct Shell {
    vectors: [Point; 3],
    inverse: [Point; 3],
    /// Parts along each vector.
    n: [usize; 3],
    /// Squares of the distances (Å²) within which atoms may be near, and surely are.
    most: f32,
    sure: f32,
    axes: [Vec<f32>; 3],
    places: Vec<u32>,
    begins: Vec<u32>,
    marks: Vec<u8>,
    homes: Vec<Home>,
    entries: Vec<(u32, u32, Point)>,
    spare: Vec<u8>,
}

impl Shell {
    /// Sort atoms into bins; false where the cell is too small, or they are too far away.
    pub(super) fn fill(
        &mut self,
        measure: &Measure,
        of: &[u32],
        at: impl Fn(u32) -> Point,
    ) -> bool {
        let Some(cell) = &measure.cell else {
            return false;
        };
        if !self.lay_out(cell.vectors(), measure.cutoff, of.len()) {
            return false;
        }
        let mut homes = std::mem::take(&mut self.homes);
        homes.clear();
        let is_placed = self.place(of, at, |_, home| homes.push(home));
        if is_placed {
            self.mark(&homes);
            self.sort(of, &homes);
        }
        self.homes = homes;
        is_placed
    }

    fn lay_out(&mut self, vectors: &Matrix3, cutoff: f64, n_atoms: usize) -> bool {
        let [a, b, c] = *vectors;
        let longest = vectors
            .iter()
            .flatten()
            .fold(0.0, |m: f64, x| m.max(x.abs()));
        let margin = 1e-3 + 8.0 * SLACK * longest;
        let reach = cutoff + margin;
        self.most = (reach * reach) as f32;
        let sure = (cutoff - margin).max(0.0);
        self.sure = if sure > 0.0 {
            (sure * sure) as f32
        } else {
            -1.0
        };
        let volume = a[0] * b[1] * c[2];
        let face = [b[1] * c[2], -b[0] * c[2], b[0] * c[1] - b[1] * c[0]];
        let heights = [
            volume / square(face).sqrt(),
            b[1] * c[2] / (c[1] * c[1] + c[2] * c[2]).sqrt(),
            c[2],
        ];
        let mut n = heights.map(|height| (height / reach).floor().min(1e4));
        let limit = (BINS * n_atoms).clamp(64, 1 << 20) as f64;
        while n.iter().product::<f64>() > limit {
            let most = n.into_iter().fold(0.0, f64::max);
            n = n.map(|n| if n == most { (0.8 * n).floor() } else { n });
        }
        self.n = n.map(|n| PARTS * n as usize);
        self.vectors = vectors.map(|vector| vector.map(|x| x as f32));
        let over = [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]];
        let b_in_a = -b[0] * over[0] * over[1];
        self.inverse = [
            [over[0], b_in_a, (-b_in_a * c[1] - c[0] * over[0]) * over[2]],
            [0.0, over[1], -c[1] * over[1] * over[2]],
            [0.0, 0.0, over[2]],
        ]
        .map(|row| row.map(|x| x as f32));
        n.iter().all(|&n| n >= 2.0)
    }

    /// Bring positions into the cell, and give them to `visit` with their places; false where one is
    /// too far away, or no number.
    fn place(
        &self,
        some: &[u32],
        at: impl Fn(u32) -> Point,
        mut visit: impl FnMut(u32, Home),
    ) -> bool {
        let mut lanes = Lanes::default();
        for some in some.chunks(LANES) {
            for (lane, &place) in some.iter().enumerate() {
                for (axis, x) in lanes.x.iter_mut().zip(at(place)) {
                    axis[lane] = x;
                }
            }
            self.bring_home(&mut lanes);
            for (lane, &place) in some.iter().enumerate() {
                // No number is not near, either.
                if !matches!(lanes.away[lane], 0.0..FEW_CELLS) {
                    return false;
                }
                let low_bits = |part: f32| (part + TO_BITS).to_bits() as u16;
                let home = Home {
                    x: lanes.x.each_ref().map(|axis| axis[lane]),
                    part: lanes.part.each_ref().map(|axis| low_bits(axis[lane])),
                };
                visit(place, home);
            }
        }
        true
    }

    /// Bring positions into the cell. Without branches, so that several are computed at once.
    fn bring_home(&self, lanes: &mut Lanes) {
        let sizes = self.n.map(|n| n as f32);
        let [a, b, c] = self.vectors;
        for lane in 0..LANES {
            let [x, y, z] = lanes.x.each_ref().map(|axis| axis[lane]);
            let mut whole = [0.0; 3];
            let mut away = 0.0;
            for k in 0..3 {
                let [u, v, w] = self.inverse[k];
                let cells = u * x + v * y + w * z;
                away += cells.abs();
                let nearest = (cells + TO_WHOLE) - TO_WHOLE;
                whole[k] = if cells < nearest {
                    nearest - 1.0
                } else {
                    nearest
                };
                // Half less, rounded to the nearest, is the whole number below.
                let part = ((cells - whole[k]) * sizes[k] - 0.5 + TO_WHOLE) - TO_WHOLE;
                let part = if part < sizes[k] - 1.0 {
                    part
                } else {
                    sizes[k] - 1.0
                };
                lanes.part[k][lane] = if part > 0.0 { part } else { 0.0 };
            }
            lanes.away[lane] = away;
            lanes.x[0][lane] = x - (whole[0] * a[0] + whole[1] * b[0] + whole[2] * c[0]);
            lanes.x[1][lane] = y - (whole[1] * b[1] + whole[2] * c[1]);
            lanes.x[2][lane] = z - whole[2] * c[2];
        }
    }

    fn part_index(&self, part: [u16; 3]) -> usize {
        let [i, j, k] = part.map(usize::from);
        i + self.n[0] * (j + self.n[1] * k)
    }

    /// Mark the parts of bins within reach of one that has atoms.
    fn mark(&mut self, homes: &[Home]) {
        let [n0, n1, n2] = self.n;
        self.marks.clear();
        self.marks.resize(n0 * n1 * n2, 0);
        for home in homes {
            let index = self.part_index(home.part);
            self.marks[index] = 1;
        }
        // Along each vector in turn: what is marked in the end is a block around each.
        let mut spread = std::mem::take(&mut self.spare);
        spread.clear();
        spread.resize(self.marks.len(), 0);
        let mut around = vec![0; n0 + 2 * PARTS];
        for (from, to) in self.marks.chunks_exact(n0).zip(spread.chunks_exact_mut(n0)) {
            if from.iter().all(|&mark| mark == 0) {
                continue;
            }
            around[..PARTS].copy_from_slice(&from[n0 - PARTS..]);
            around[PARTS..PARTS + n0].copy_from_slice(from);
            around[PARTS + n0..].copy_from_slice(&from[..PARTS]);
            for offset in 0..=2 * PARTS {
                let from = &around[offset..];
                to.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
            }
        }
        self.marks.fill(0);
        let plane = n0 * n1;
        for (from, to) in spread
            .chunks_exact(plane)
            .zip(self.marks.chunks_exact_mut(plane))
        {
            widen(from, to, n0, n1);
        }
        spread.fill(0);
        widen(&self.marks, &mut spread, plane, n2);
        self.spare = std::mem::replace(&mut self.marks, spread);
    }

    /// Bins along each vector, and one more at both ends.
    fn padded(&self) -> [usize; 3] {
        self.n.map(|n| n / PARTS + 2)
    }

    fn sort(&mut self, of: &[u32], homes: &[Home]) {
        let padded = self.padded();
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        for (home, &place) in homes.iter().zip(of) {
            let bins = home.part.map(|part| usize::from(part) / PARTS);
            if (0..3).all(|k| bins[k] > 0 && bins[k] + 3 < padded[k]) {
                let [i, j, k] = bins.map(|bin| bin + 1);
                let bin = i + padded[0] * (j + padded[1] * k);
                entries.push((bin as u32, place, home.x));
                continue;
            }
            // In which images of the cell it is seen: the first, and those beyond a face.
            let images: [&[(usize, f32)]; 3] = std::array::from_fn(|k| {
                if bins[k] == 0 {
                    &[(0, 0.0), (1, 1.0)][..]
                } else if bins[k] + 3 == padded[k] {
                    &[(0, 0.0), (2, -1.0)][..]
                } else {
                    &[(0, 0.0)][..]
                }
            });
            let at = |k: usize, image: usize| match image {
                0 => bins[k] + 1,
                1 => padded[k] - 1,
                _ => 0,
            };
            for &(k, over_c) in images[2] {
                for &(j, over_b) in images[1] {
                    for &(i, over_a) in images[0] {
                        let bin = at(0, i) + padded[0] * (at(1, j) + padded[1] * at(2, k));
                        let [a, b, c] = &self.vectors;
                        let x = std::array::from_fn(|axis| {
                            home.x[axis] + (over_a * a[axis] + over_b * b[axis] + over_c * c[axis])
                        });
                        entries.push((bin as u32, place, x));
                    }
                }
            }
        }
        let n_bins = padded.iter().product::<usize>();
        self.begins.clear();
        self.begins.resize(n_bins + 1, 0);
        for &(bin, ..) in &entries {
            self.begins[bin as usize + 1] += 1;
        }
        for k in 1..=n_bins {
            self.begins[k] += self.begins[k - 1];
        }
        for axis in &mut self.axes {
            axis.resize(entries.len(), 0.0);
        }
        self.places.resize(entries.len(), 0);
        // Each begin moves to the end of its bin, which is where the next one begins.
        for &(bin, place, x) in &entries {
            let to = self.begins[bin as usize] as usize;
            self.places[to] = place;
            for (axis, x) in self.axes.iter_mut().zip(x) {
                axis[to] = x;
            }
            self.begins[bin as usize] += 1;
        }
        self.begins.copy_within(0..n_bins, 1);
        self.begins[0] = 0;
        self.entries = entries;
    }

    /// Mark those of some `places` that are near any atom in the bins; false where one is too far
    /// away, or no number. What is about at the cutoff is asked `is_near`, with the atom.
    pub(super) fn find(
        &self,
        places: &[u32],
        at: impl Fn(u32) -> Point,
        marks: &mut [bool],
        mut is_near: impl FnMut(u32, u32) -> bool,
    ) -> bool {
        self.place(places, at, |place, home| {
            if self.marks[self.part_index(home.part)] != 0 {
                marks[place as usize] = self.any_near(&home, |atom| is_near(atom, place));
            }
        })
    }

    fn any_near(&self, home: &Home, mut is_near: impl FnMut(u32) -> bool) -> bool {
        let padded = self.padded();
        let [i, j, k] = home.part.map(|part| i32::from(part) / PARTS as i32 + 1);
        let [x, y, z] = home.x;
        for [dj, dk] in ROWS {
            let row = padded[0] * ((j + dj) as usize + padded[1] * (k + dk) as usize);
            let first = row + i as usize - 1;
            let some = self.begins[first] as usize..self.begins[first + 3] as usize;
            let [xs, ys, zs] = [0, 1, 2].map(|axis| &self.axes[axis][some.clone()]);
            let distances = || {
                let positions = xs.iter().zip(ys).zip(zs);
                positions.map(|((&a, &b), &c)| {
                    let (a, b, c) = (a - x, b - y, c - z);
                    a * a + b * b + c * c
                })
            };
            // Without branches, so that several are computed at once.
            let (near, sure) = distances().fold((0, 0), |(near, sure), d| {
                (
                    near | u32::from(d <= self.most),
                    sure | u32::from(d <= self.sure),
                )
            });
            if sure != 0 {
                return true;
            }
            if near != 0 {
                let near = distances().zip(&self.places[some.clone()]);
                let mut near = near.filter(|&(d, _)| d <= self.most);
                if near.any(|(_, &atom)| is_near(atom)) {
                    return true;
                }
            }
        }
        false
    }
}

/// Spread marks to neighbours, up to `PARTS` places away, along an axis of `n` places that goes
/// around; each place has `size` marks.
fn widen(from: &[u8], to: &mut [u8], size: usize, n: usize) {
    for (place, to) in to.chunks_exact_mut(size).enumerate() {
        for offset in 0..=2 * PARTS {
            let other = (place + n + offset - PARTS) % n;
            let from = &from[other * size..(other + 1) * size];
            to.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
        }
    }
}
