//! Atoms sorted into boxes, so that only those of boxes nearby are measured.

use std::ops::Range;

use super::{Measure, Point, finite, in_cell};
use crate::cell::{ApplyPbc, SLACK, square};
use crate::qcp::Matrix3;

/// Boxes, at most, for each atom that is sorted into them: where about as many are searched …
const BOXES: usize = 48;
/// … and where many more are, most of which are near none.
const BOXES_OF_FEW: usize = 32;
/// Atoms that are many more, by this factor.
pub(super) const MANY: usize = 2;
/// Positions so many cells away are put into the cell before their box is found.
const FEW_CELLS: f32 = 16.0;
/// Marks boxes without atoms nearby.
const FAR: u8 = 0;

/// Atoms of a group, sorted into boxes along the vectors of the cell, or of the room they take up.
#[derive(Debug, Clone, Default)]
pub(super) struct Boxes {
    pbc: Option<ApplyPbc>,
    vectors: Matrix3,
    /// Numbers of boxes along each vector for a position, relative to the origin.
    inverse: Matrix3,
    origin: [f64; 3],
    n: [i64; 3],
    /// Boxes within reach, on each side.
    reach: [i64; 3],
    /// True where a box may be reached in two ways.
    pub(super) repeats: bool,
    /// Square of the largest distance, rounding included, Å².
    most: f32,
    /// Index at which the atoms of each box begin, and the end.
    begins: Vec<u32>,
    places: Vec<u32>,
    points: Vec<Point>,
    /// Of each box, whether it or one within reach has atoms.
    marks: Vec<u8>,
    keys: Vec<u32>,
}

impl Boxes {
    pub(super) fn fill(
        &mut self,
        measure: &Measure,
        places: &[u32],
        is_sparse: bool,
        at: impl Fn(u32) -> Point,
    ) -> Result<(), String> {
        self.pbc.clone_from(&measure.pbc);
        let mut points = Vec::with_capacity(places.len());
        let mut extent = [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
        let mut largest = 0.0_f32;
        for &place in places {
            let x = finite(at(place))?;
            largest = x.iter().fold(largest, |most, x| most.max(x.abs()));
            let x = self.home(x)?;
            extent[0] = std::array::from_fn(|k| extent[0][k].min(x[k]));
            extent[1] = std::array::from_fn(|k| extent[1][k].max(x[k]));
            points.push(x);
        }
        let per_atom = if is_sparse { BOXES_OF_FEW } else { BOXES };
        self.lay_out(measure, points.len(), per_atom, extent, largest);
        self.keys.clear();
        let n_boxes = self.n.iter().product::<i64>() as usize;
        self.begins.clear();
        self.begins.resize(n_boxes + 1, 0);
        for &x in &points {
            let key = self.index(self.cell(x));
            self.keys.push(key as u32);
            self.begins[key + 1] += 1;
        }
        for k in 1..=n_boxes {
            self.begins[k] += self.begins[k - 1];
        }
        self.places.clear();
        self.places.resize(points.len(), 0);
        self.points.clear();
        self.points.resize(points.len(), [0.0; 3]);
        // Each begin moves to the end of its box, which is where the next one begins.
        for ((&key, &place), x) in self.keys.iter().zip(places).zip(points) {
            let to = self.begins[key as usize] as usize;
            (self.places[to], self.points[to]) = (place, x);
            self.begins[key as usize] += 1;
        }
        self.begins.copy_within(0..n_boxes, 1);
        self.begins[0] = 0;
        Ok(())
    }

    /// Choose the boxes.
    fn lay_out(
        &mut self,
        measure: &Measure,
        n_atoms: usize,
        per_atom: usize,
        extent: [Point; 2],
        largest: f32,
    ) {
        let rounded = 1e-5 + 8.0 * f64::from(f32::EPSILON);
        let most = |vectors: &Matrix3| {
            vectors
                .iter()
                .flatten()
                .fold(0.0, |m: f64, x| m.max(x.abs()))
        };
        let (vectors, margin) = match &measure.cell {
            Some(cell) => {
                self.origin = [0.0; 3];
                let longest = most(cell.vectors());
                let far = 8.0 * f64::from(f32::EPSILON) * f64::from(largest);
                (*cell.vectors(), 1e-3 + 4.0 * SLACK * longest + far)
            }
            None => {
                let far = f64::from(largest.max(1.0)) * rounded;
                let room = measure.cutoff + 1e-3 + far;
                let mut vectors = [[0.0; 3]; 3];
                for axis in 0..3 {
                    let [low, high] = extent.map(|x| f64::from(x[axis]));
                    let (low, high) = if n_atoms == 0 {
                        (0.0, 0.0)
                    } else {
                        (low, high)
                    };
                    self.origin[axis] = low - room;
                    vectors[axis][axis] = high - low + 2.0 * room;
                }
                (vectors, 1e-3 + far)
            }
        };
        let reach = measure.cutoff + margin;
        self.most = (reach * reach) as f32;
        let [a, b, c] = vectors;
        let volume = a[0] * b[1] * c[2];
        let face = [b[1] * c[2], -b[0] * c[2], b[0] * c[1] - b[1] * c[0]];
        let heights = [
            volume / square(face).sqrt(),
            b[1] * c[2] / (c[1] * c[1] + c[2] * c[2]).sqrt(),
            c[2],
        ];
        let limit = (per_atom * n_atoms).clamp(64, 1 << 22) as f64;
        let mut n = heights.map(|height| (height / reach).floor().clamp(1.0, 1e6));
        while n.iter().product::<f64>() > limit {
            let most = n.into_iter().fold(0.0, f64::max);
            n = n.map(|n| {
                if n == most {
                    (0.8 * n).floor().max(1.0)
                } else {
                    n
                }
            });
        }
        self.n = n.map(|n| n as i64);
        self.reach = std::array::from_fn(|k| (reach * n[k] / heights[k]).ceil() as i64);
        self.repeats = self.pbc.is_some() && (0..3).any(|k| 2 * self.reach[k] + 1 > self.n[k]);
        self.vectors = vectors;
        let over = [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]];
        let b_in_a = -b[0] * over[0] * over[1];
        self.inverse = [
            [over[0], b_in_a, (-b_in_a * c[1] - c[0] * over[0]) * over[2]],
            [0.0, over[1], -c[1] * over[1] * over[2]],
            [0.0, 0.0, over[2]],
        ];
        for (row, n) in self.inverse.iter_mut().zip(n) {
            *row = row.map(|x| x * n);
        }
    }

    /// The position in the cell, if there is one.
    pub(super) fn home(&self, x: Point) -> Result<Point, String> {
        match &self.pbc {
            Some(pbc) => in_cell(pbc, x),
            None => Ok(x),
        }
    }

    /// The box of a position in the cell; one beyond the edge counts to the box there.
    fn cell(&self, x: Point) -> [i64; 3] {
        let x: [f64; 3] = std::array::from_fn(|k| f64::from(x[k]) - self.origin[k]);
        std::array::from_fn(|k| {
            let [u, v, w] = self.inverse[k];
            // What is below the edge counts to the box there, and so does what is no number.
            ((u * x[0] + v * x[1] + w * x[2]) as i64).clamp(0, self.n[k] - 1)
        })
    }

    fn index(&self, [i, j, k]: [i64; 3]) -> usize {
        (i + self.n[0] * (j + self.n[1] * k)) as usize
    }

    /// Collect the places that may be near an atom in the boxes.
    pub(super) fn near(
        &mut self,
        places: &[u32],
        at: impl Fn(u32) -> Point,
        near: &mut Vec<u32>,
    ) -> Result<(), String> {
        near.clear();
        if self.places.is_empty() {
            return Ok(());
        }
        let covers_all = (0..3).all(|k| 2 * self.reach[k] + 1 >= self.n[k]);
        if places.len() < MANY * self.places.len() || covers_all {
            near.extend_from_slice(places);
            return places
                .iter()
                .try_for_each(|&place| finite(at(place)).map(|_| ()));
        }
        self.mark();
        let rough = Rough::new(self);
        let mut found = Indices::default();
        for some in places.chunks(LANES) {
            for (k, &place) in some.iter().enumerate() {
                for (axis, x) in found.positions.iter_mut().zip(at(place)) {
                    axis[k] = x;
                }
            }
            rough.find(&mut found);
            for ((&place, &cells), index) in some.iter().zip(&found.cells).zip(&found.indices) {
                let is_near = if cells < FEW_CELLS {
                    self.marks[(index.to_bits() & LOW_BITS) as usize] != FAR
                } else {
                    finite(at(place))?;
                    rough.is_periodic
                };
                if is_near {
                    near.push(place);
                }
            }
        }
        Ok(())
    }

    /// Mark boxes within reach of one that has atoms.
    fn mark(&mut self) {
        self.marks.clear();
        self.marks.resize(self.begins.len() - 1, FAR);
        for k in 0..self.n[2] {
            for j in 0..self.n[1] {
                for i in 0..self.n[0] {
                    let at = self.index([i, j, k]);
                    if self.begins[at] == self.begins[at + 1] {
                        continue;
                    }
                    for dk in -self.reach[2]..=self.reach[2] {
                        for dj in -self.reach[1]..=self.reach[1] {
                            let (j, k) = (j + dj, k + dk);
                            if self.pbc.is_none() && !(self.holds(1, j) && self.holds(2, k)) {
                                continue;
                            }
                            let row = [0, j.rem_euclid(self.n[1]), k.rem_euclid(self.n[2])];
                            let row = self.index(row);
                            for di in -self.reach[0]..=self.reach[0] {
                                if self.pbc.is_some() || self.holds(0, i + di) {
                                    let i = (i + di).rem_euclid(self.n[0]) as usize;
                                    self.marks[row + i] = !FAR;
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn holds(&self, axis: usize, place: i64) -> bool {
        (0..self.n[axis]).contains(&place)
    }

    /// Give the places of atoms that may be near a position in the cell to `found`, and where in
    /// the cell they are, some perhaps twice.
    #[inline(always)]
    pub(super) fn search(&self, x: Point, mut found: impl FnMut(u32, Point)) {
        let at = self.cell(x);
        let mut compare = |row: usize, boxes: Range<i64>, x: Point| {
            let begin = self.begins[row + boxes.start as usize] as usize;
            let some = begin..self.begins[row + boxes.end as usize] as usize;
            for (&point, &place) in self.points[some.clone()].iter().zip(&self.places[some]) {
                let [x, y, z] = std::array::from_fn(|k| point[k] - x[k]);
                if x * x + y * y + z * z <= self.most {
                    found(place, point);
                }
            }
        };
        let is_inside = |axis: usize| {
            at[axis] >= self.reach[axis] && at[axis] + self.reach[axis] < self.n[axis]
        };
        if is_inside(0) && is_inside(1) && is_inside(2) {
            let boxes = at[0] - self.reach[0]..at[0] + self.reach[0] + 1;
            for k in at[2] - self.reach[2]..=at[2] + self.reach[2] {
                for j in at[1] - self.reach[1]..=at[1] + self.reach[1] {
                    compare(self.index([0, j, k]), boxes.clone(), x);
                }
            }
            return;
        }
        for (c, boxes_c) in self.runs(2, at[2]) {
            for (b, boxes_b) in self.runs(1, at[1]) {
                for (a, boxes_a) in self.runs(0, at[0]) {
                    let x = self.shifted(x, [a, b, c]);
                    for k in boxes_c.clone() {
                        for j in boxes_b.clone() {
                            compare(self.index([0, j, k]), boxes_a.clone(), x);
                        }
                    }
                }
            }
        }
    }

    /// Boxes within reach of a place along an axis, and the image of the cell that they are in.
    fn runs(&self, axis: usize, place: i64) -> impl Iterator<Item = (i64, Range<i64>)> {
        let (n, is_periodic) = (self.n[axis], self.pbc.is_some());
        let (mut low, mut high) = (place - self.reach[axis], place + self.reach[axis] + 1);
        if !is_periodic {
            (low, high) = (low.max(0), high.min(n));
        }
        let mut image = match low {
            _ if low >= 0 && low < n => 0,
            _ if low >= -n && low < 0 => -1,
            _ => low.div_euclid(n),
        };
        std::iter::from_fn(move || {
            (low < high).then(|| {
                let begin = low - image * n;
                let end = (begin + high - low).min(n);
                low += end - begin;
                image += 1;
                (image - 1, begin..end)
            })
        })
    }

    /// A position as seen from another image of the cell.
    fn shifted(&self, x: Point, images: [i64; 3]) -> Point {
        if images == [0; 3] {
            return x;
        }
        let n = images.map(|n| n as f64);
        std::array::from_fn(|k| {
            let by: f64 = (0..3).map(|axis| n[axis] * self.vectors[axis][k]).sum();
            (f64::from(x[k]) - by) as f32
        })
    }
}

/// Positions whose boxes are found together.
const LANES: usize = 16;
/// Added to a number, this rounds it to a whole one, of magnitudes below 2²².
const TO_WHOLE: f32 = 12_582_912.0;
/// Added to a whole number below 2²³, this leaves it in the low bits.
const TO_BITS: f32 = 8_388_608.0;
const LOW_BITS: u32 = 0x7f_ffff;

/// Positions, how many cells away they are at most, and the indices of their boxes.
#[derive(Default)]
struct Indices {
    positions: [[f32; LANES]; 3],
    /// At least [`FEW_CELLS`] where an index is not known, or there is no box.
    cells: [f32; LANES],
    /// In the low bits.
    indices: [f32; LANES],
}

/// Finds the boxes of positions in single precision, whichever image of the cell they are in.
struct Rough {
    is_periodic: bool,
    /// Turns positions into numbers of vectors.
    inverse: [Point; 3],
    origin: Point,
    sizes: Point,
}

impl Rough {
    fn new(boxes: &Boxes) -> Self {
        let sizes: [f64; 3] = boxes.n.map(|n| n as f64);
        Rough {
            is_periodic: boxes.pbc.is_some(),
            inverse: std::array::from_fn(|k| boxes.inverse[k].map(|x| (x / sizes[k]) as f32)),
            origin: boxes.origin.map(|x| x as f32),
            sizes: sizes.map(|n| n as f32),
        }
    }

    /// Without branches, so that a compiler computes several at once.
    fn find(&self, of: &mut Indices) {
        let [ox, oy, oz] = self.origin;
        let [nx, ny, _] = self.sizes;
        for lane in 0..LANES {
            let [x, y, z] = of.positions.each_ref().map(|axis| axis[lane]);
            let (x, y, z) = (x - ox, y - oy, z - oz);
            let mut farthest = 0.0;
            let [i, j, k] = [0, 1, 2].map(|k: usize| {
                let [u, v, w] = self.inverse[k];
                let cells = u * x + v * y + w * z;
                let within = if self.is_periodic {
                    farthest += cells.abs();
                    let rest = cells - ((cells + TO_WHOLE) - TO_WHOLE);
                    if rest < 0.0 { rest + 1.0 } else { rest }
                } else {
                    // Beyond the boxes there is none.
                    let is_within = (0.0..1.0).contains(&cells);
                    farthest += if is_within { 0.0 } else { FEW_CELLS };
                    if is_within { cells } else { 0.0 }
                };
                // Half less, rounded to the nearest, is the whole number below.
                let index = (within * self.sizes[k] - 0.5 + TO_WHOLE) - TO_WHOLE;
                let last = self.sizes[k] - 1.0;
                let index = if index < last { index } else { last };
                if index > 0.0 { index } else { 0.0 }
            });
            of.cells[lane] = farthest;
            of.indices[lane] = TO_BITS + (i + nx * (j + ny * k));
        }
    }
}
