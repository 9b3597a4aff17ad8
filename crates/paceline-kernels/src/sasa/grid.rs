//! Spheres sorted into boxes, and those around each box.

use std::ops::Range;

use crate::cell::{Cell, FAR, square};
use crate::instructions::LANES;
use crate::qcp::Matrix3;

/// Boxes of the grid within the longest distance of two spheres that meet.
const BOXES: f64 = 2.0;
/// By this the boxes are longer along a: with fewer of them, less is copied.
const LONGER: f64 = 2.0;
/// Boxes along b and c that are near.
const NEAR: i64 = 1;

/// Atoms sorted into boxes, which are rows along the vector a of the cell.
#[derive(Debug, Default)]
pub struct Grid {
    vectors: Matrix3,
    periodic: bool,
    /// Boxes along each vector.
    n: [usize; 3],
    /// Boxes along each vector within which neighbours are.
    steps: [i64; 3],
    /// Index of the first atom of each box, and behind that of the last one.
    pub begins: Vec<usize>,
    pub atoms: Vec<u32>,
    /// Box of each atom, before it is sorted.
    boxes: Vec<u32>,
    home: Vec<[f32; 3]>,
    /// x, y, z (Å) and radius of each sphere in the order of the boxes.
    pub spheres: Vec<[f32; 4]>,
    /// The same, each apart; beyond the last sphere nothing is near.
    numbers: [Vec<f32>; 4],
}

/// Spheres of the boxes around one, copied to one place.
#[derive(Debug, Default)]
pub struct Around {
    /// x, y, z (Å) and radius of each.
    numbers: [Vec<f32>; 4],
    /// Rows of them: where each begins here, and in the grid.
    rows: Vec<[usize; 2]>,
    n: usize,
    /// Where the first sphere of the box itself is.
    pub own: usize,
    /// Spheres of near boxes, and of the others.
    pub runs: [Vec<Run>; 2],
}

/// Spheres of one image, and the vector (Å) that brings them near.
#[derive(Debug, Clone)]
pub struct Run {
    pub range: Range<usize>,
    pub shift: [f32; 3],
}

impl Grid {
    /// Sort the atoms of a frame.
    ///
    /// # Errors
    /// One sentence where a position is too far away. All are finite.
    pub fn sort(
        &mut self,
        positions: &[[f32; 3]],
        radii: &[f32],
        cell: Option<&Cell>,
    ) -> Result<(), String> {
        let origin = self.place(positions, radii, cell)?;
        self.boxes.clear();
        let inverse = [0, 1, 2].map(|axis| 1.0 / self.vectors[axis][axis]);
        let [_, b, c] = self.vectors;
        for x in &self.home {
            let x: [f64; 3] = std::array::from_fn(|axis| f64::from(x[axis]) - origin[axis]);
            let along_c = x[2] * inverse[2];
            let along_b = (x[1] - along_c * c[1]) * inverse[1];
            let along_a = (x[0] - along_c * c[0] - along_b * b[0]) * inverse[0];
            let at = |part: f64, n: usize| ((part * n as f64) as usize).min(n - 1);
            let [at_a, at_b, at_c] = [
                at(along_a, self.n[0]),
                at(along_b, self.n[1]),
                at(along_c, self.n[2]),
            ];
            self.boxes
                .push(((at_c * self.n[1] + at_b) * self.n[0] + at_a) as u32);
        }
        self.fill(radii);
        Ok(())
    }

    /// Choose boxes, and bring the atoms into the cell; the corner of the first box.
    ///
    /// # Errors
    /// One sentence where an atom is too far away.
    fn place(
        &mut self,
        positions: &[[f32; 3]],
        radii: &[f32],
        cell: Option<&Cell>,
    ) -> Result<[f64; 3], String> {
        self.periodic = cell.is_some();
        self.home.clear();
        let reach = 2.0 * f64::from(radii.iter().fold(0.0, |most: f32, &x| most.max(x)));
        // A little more, for what rounding may move.
        let reach = reach * 1.0001;
        let least = reach / BOXES;
        let mut origin = [0.0; 3];
        let heights = match cell {
            Some(cell) => {
                self.vectors = *cell.vectors();
                for &x in positions {
                    let (home, images) = cell.home(x);
                    if images.iter().any(|number| number.abs() > FAR) {
                        return Err(format!(
                            "an atom at {x:?} Å is too far away to be put into the cell"
                        ));
                    }
                    self.home.push(home);
                }
                heights(cell)
            }
            None => {
                self.home.extend_from_slice(positions);
                let mut edges = [0.0; 3];
                for axis in 0..3 {
                    let along = positions.iter().map(|x| f64::from(x[axis]));
                    origin[axis] = along.clone().fold(f64::MAX, f64::min);
                    edges[axis] = (along.fold(f64::MIN, f64::max) - origin[axis]).max(least);
                }
                self.vectors = [
                    [edges[0], 0.0, 0.0],
                    [0.0, edges[1], 0.0],
                    [0.0, 0.0, edges[2]],
                ];
                edges
            }
        };
        // Not many more boxes than atoms, however large the room.
        let room = heights[0] * heights[1] * heights[2] / (4.0 * positions.len() as f64);
        let thickness = least.max(room.cbrt());
        let number = |axis: usize, thickness: f64| (heights[axis] / thickness) as usize;
        let numbers = [
            number(0, LONGER * thickness),
            number(1, thickness),
            number(2, thickness),
        ];
        self.n = numbers.map(|n| n.clamp(1, 1000));
        let within = |axis: usize| (reach * self.n[axis] as f64 / heights[axis]).ceil() as i64;
        self.steps = [0, 1, 2].map(within);
        Ok(origin)
    }

    /// Sort atoms by their boxes, in their order within a box.
    fn fill(&mut self, radii: &[f32]) {
        self.begins.clear();
        self.begins.resize(self.n.iter().product::<usize>() + 2, 0);
        for &at in &self.boxes {
            self.begins[at as usize + 2] += 1;
        }
        for at in 2..self.begins.len() {
            self.begins[at] += self.begins[at - 1];
        }
        self.atoms.clear();
        self.atoms.resize(self.boxes.len(), 0);
        for (atom, &at) in (0..).zip(&self.boxes) {
            let place = &mut self.begins[at as usize + 1];
            self.atoms[*place] = atom;
            *place += 1;
        }
        self.begins.pop();
        self.spheres.clear();
        self.spheres.extend(self.atoms.iter().map(|&atom| {
            let [x, y, z] = self.home[atom as usize];
            [x, y, z, radii[atom as usize]]
        }));
        for (k, numbers) in self.numbers.iter_mut().enumerate() {
            numbers.clear();
            numbers.extend(self.spheres.iter().map(|sphere| sphere[k]));
            numbers.resize(self.atoms.len() + LANES, 0.0);
        }
    }

    /// Copy the spheres of the boxes around one.
    #[inline(always)]
    pub fn copy_around(&self, at: usize, around: &mut Around) {
        around.clear();
        let n = self.n.map(|n| n as i64);
        let (at_a, at_b, at_c) = (
            at as i64 % n[0],
            at as i64 / n[0] % n[1],
            at as i64 / (n[0] * n[1]),
        );
        for is_far in [false, true] {
            for k in at_c - self.steps[2]..=at_c + self.steps[2] {
                for j in at_b - self.steps[1]..=at_b + self.steps[1] {
                    if is_far == ((j - at_b).abs().max((k - at_c).abs()) > NEAR) {
                        self.copy_row([at_a, j, k], self.begins[at], is_far, around);
                    }
                }
            }
        }
    }

    /// Copy the spheres of a row of boxes, around the first of these numbers.
    #[inline(always)]
    fn copy_row(
        &self,
        [at_a, j, k]: [i64; 3],
        first_of_box: usize,
        is_far: bool,
        around: &mut Around,
    ) {
        let n = self.n.map(|n| n as i64);
        let (j, image_b) = wrapped(j, n[1]);
        let (k, image_c) = wrapped(k, n[2]);
        if !self.periodic && (image_b, image_c) != (0, 0) {
            return;
        }
        let row = (k * n[1] + j) * n[0];
        let (mut i, last) = (at_a - self.steps[0], at_a + self.steps[0]);
        if !self.periodic {
            i = i.max(0);
        }
        while i <= last {
            let (first, image_a) = wrapped(i, n[0]);
            let end = last.min(image_a * n[0] + n[0] - 1);
            if !self.periodic && image_a != 0 {
                return;
            }
            let first = (row + first) as usize;
            let places = self.begins[first]..self.begins[first + (end - i) as usize + 1];
            if !places.is_empty() {
                let images = [image_a, image_b, image_c];
                let shift = self.shift(images);
                if images == [0; 3] && places.contains(&first_of_box) {
                    around.own = around.n + first_of_box - places.start;
                }
                around.push(&self.numbers, places, shift, is_far);
            }
            i = end + 1;
        }
    }

    /// Whole numbers of the cell's vectors, Å.
    fn shift(&self, images: [i64; 3]) -> [f32; 3] {
        let [a, b, c] = self.vectors;
        let [i, j, k] = images.map(|n| n as f64);
        std::array::from_fn(|axis| (i * a[axis] + j * b[axis] + k * c[axis]) as f32)
    }
}

/// The number of a box within the cell, and that of the cell.
#[inline(always)]
fn wrapped(i: i64, n: i64) -> (i64, i64) {
    if (0..n).contains(&i) {
        (i, 0)
    } else {
        (i.rem_euclid(n), i.div_euclid(n))
    }
}

impl Around {
    fn clear(&mut self) {
        self.n = 0;
        self.rows.clear();
        self.runs.iter_mut().for_each(Vec::clear);
    }

    /// All that are here, and room for some more.
    pub fn room(&self) -> usize {
        self.n + 2 * LANES
    }

    #[inline(always)]
    fn push(&mut self, from: &[Vec<f32>; 4], places: Range<usize>, shift: [f32; 3], is_far: bool) {
        let (begin, n) = (self.n, self.n + places.len());
        if self.numbers[0].len() < n + LANES {
            for numbers in &mut self.numbers {
                numbers.resize(2 * (n + LANES), 0.0);
            }
        }
        self.rows.push([begin, places.start]);
        // Beyond the end too, where the next ones will be.
        let whole = places.len().next_multiple_of(LANES);
        let [x, y, z, radii] = (from.each_ref())
            .map(|numbers| numbers[places.start..][..whole].as_chunks::<LANES>().0);
        let [to_x, to_y, to_z, to_radii] = (self.numbers.each_mut())
            .map(|numbers| numbers[begin..][..whole].as_chunks_mut::<LANES>().0);
        let from = x.iter().zip(y).zip(z).zip(radii);
        let to = to_x.iter_mut().zip(to_y).zip(to_z).zip(to_radii);
        for ((((to_x, to_y), to_z), to_radii), (((x, y), z), radii)) in to.zip(from) {
            (*to_x, *to_y, *to_z, *to_radii) = (*x, *y, *z, *radii);
        }
        self.n = n;
        let runs = &mut self.runs[usize::from(is_far)];
        match runs.last_mut() {
            Some(run) if run.shift == shift && run.range.end == begin => run.range.end = n,
            _ => runs.push(Run {
                range: begin..n,
                shift,
            }),
        }
    }

    /// The spheres of a run in eights, the last of them filled up.
    #[inline(always)]
    pub fn eights(&self, run: &Run) -> impl Iterator<Item = [&[f32; LANES]; 4]> {
        let whole = run.range.len().next_multiple_of(LANES);
        let [x, y, z, radii] = (self.numbers.each_ref())
            .map(|numbers| numbers[run.range.start..][..whole].as_chunks::<LANES>().0);
        let all = x.iter().zip(y).zip(z).zip(radii);
        all.map(|(((x, y), z), radii)| [x, y, z, radii])
    }

    /// Where a sphere is in the grid.
    pub fn place(&self, number: usize) -> usize {
        let row = self.rows.partition_point(|[begin, _]| *begin <= number);
        let [begin, place] = self.rows[row - 1];
        place + number - begin
    }
}

/// Distances between opposite faces of a cell, Å.
fn heights(cell: &Cell) -> [f64; 3] {
    let [a, b, c] = *cell.vectors();
    let cross = |x: [f64; 3], y: [f64; 3]| {
        let [i, j, k] = [
            x[1] * y[2] - x[2] * y[1],
            x[2] * y[0] - x[0] * y[2],
            x[0] * y[1] - x[1] * y[0],
        ];
        square([i, j, k]).sqrt()
    };
    let volume = a[0] * b[1] * c[2];
    [
        volume / cross(b, c),
        volume / cross(c, a),
        volume / cross(a, b),
    ]
}
