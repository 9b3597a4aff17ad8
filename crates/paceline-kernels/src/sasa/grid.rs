//! Spheres sorted into boxes, and the spheres around each box.
//!
//! All spheres of a box share one copy of the spheres around the box. Near spheres come first in
//! the copy, since they cover most points. With one copy for each sphere, from the columns of
//! [`crate::pair_counting_columns`], the surface area takes 3 to 8 times as long.

use std::ops::Range;

use crate::cell::{Cell, FAR, square};
use crate::instructions::{LANES, cut, low_bits, pack, positive, write_set_bits};
use crate::superposition::Matrix3;
use crate::threads_within_frame::{MANY, change};

/// Number of boxes in a length equal to the largest distance between the centres of two
/// intersecting spheres.
const BOXES: f64 = 2.0;
/// Factor by which boxes are longer along a. Longer boxes are fewer, and need fewer copies.
const LONGER: f64 = 2.0;
/// Maximum distance of a near box from the central box along b and c, in boxes.
const NEAR: i64 = 1;

/// Atoms sorted into boxes, which form rows along the vector a of the cell.
#[derive(Debug, Default)]
pub struct Grid {
    vectors: Matrix3,
    periodic: bool,
    /// Number of boxes along each vector.
    n: [usize; 3],
    /// Maximum distance from the central box at which neighbours are searched, in boxes along each
    /// vector.
    steps: [i64; 3],
    /// Index of the first atom of each box, and end of the last one.
    pub begins: Vec<usize>,
    pub atoms: Vec<u32>,
    /// Box of each atom, in the order of the atoms.
    boxes: Vec<u32>,
    home: Vec<[f32; 3]>,
    /// x, y, z (Å) and radius (Å) of each sphere, sorted by box.
    pub spheres: Vec<[f32; 4]>,
    /// Separate arrays of x, y, z and radius of the spheres, with zeros as padding after the last
    /// sphere.
    numbers: [Vec<f32>; 4],
}

/// Spheres of the boxes around a box, copied into contiguous memory.
#[derive(Debug, Default)]
pub struct NearbySpheres {
    /// Arrays of x, y, z (Å) and radius (Å) of the copied spheres.
    numbers: [Vec<f32>; 4],
    /// Rows of spheres: the index at which each row begins in this copy, and in the grid.
    rows: Vec<[usize; 2]>,
    n: usize,
    /// Index of the first sphere of the central box.
    pub own: usize,
    /// Runs of spheres in near boxes, and runs of spheres in the other boxes.
    pub runs: [Vec<Run>; 2],
}

/// Spheres of one image, and the shift (Å) of the image.
#[derive(Debug, Clone)]
pub struct Run {
    pub range: Range<usize>,
    pub shift: [f32; 3],
}

impl Grid {
    /// Sort the atoms of a frame into boxes.
    ///
    /// # Errors
    /// A message if a position is too far away. All positions must be finite.
    pub fn sort(
        &mut self,
        positions: &[[f32; 3]],
        radii: &[f32],
        cell: Option<&Cell>,
    ) -> Result<(), String> {
        let origin = self.place(positions, radii, cell)?;
        let inverse = [0, 1, 2].map(|axis| 1.0 / self.vectors[axis][axis]);
        let [_, b, c] = self.vectors;
        let (home, n) = (&self.home, self.n);
        let box_of = |x: [f32; 3]| {
            let x: [f64; 3] = std::array::from_fn(|axis| f64::from(x[axis]) - origin[axis]);
            let along_c = x[2] * inverse[2];
            let along_b = (x[1] - along_c * c[1]) * inverse[1];
            let along_a = (x[0] - along_c * c[0] - along_b * b[0]) * inverse[0];
            let at = |part: f64, n: usize| ((part * n as f64) as usize).min(n - 1);
            let [at_a, at_b, at_c] = [at(along_a, n[0]), at(along_b, n[1]), at(along_c, n[2])];
            ((at_c * n[1] + at_b) * n[0] + at_a) as u32
        };
        self.boxes.resize(home.len(), 0);
        change(&mut self.boxes, MANY, |first, boxes| {
            for (to, &x) in boxes.iter_mut().zip(&home[first..]) {
                *to = box_of(x);
            }
        });
        self.fill(radii);
        Ok(())
    }

    /// Choose the boxes, and wrap the atoms into the cell. Return the corner of the first box.
    ///
    /// # Errors
    /// A message if an atom is too far away.
    fn place(
        &mut self,
        positions: &[[f32; 3]],
        radii: &[f32],
        cell: Option<&Cell>,
    ) -> Result<[f64; 3], String> {
        self.periodic = cell.is_some();
        self.home.clear();
        let reach = 2.0 * f64::from(radii.iter().fold(0.0, |most: f32, &x| most.max(x)));
        // The factor is a margin for rounding.
        let reach = reach * 1.0001;
        let least = reach / BOXES;
        let mut origin = [0.0; 3];
        let heights = match cell {
            Some(cell) => {
                self.vectors = *cell.vectors();
                self.home.extend_from_slice(positions);
                let put_into_cell = |_, some: &mut [[f32; 3]]| {
                    some.iter_mut().try_for_each(|x| {
                        let (home, images) = cell.home(*x);
                        if images.iter().any(|number| number.abs() > FAR) {
                            return Err(format!(
                                "an atom at {x:?} Å is too far away to be wrapped into the cell"
                            ));
                        }
                        *x = home;
                        Ok(())
                    })
                };
                let done = change(&mut self.home, MANY, put_into_cell);
                done.into_iter().collect::<Result<(), String>>()?;
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
        // The number of boxes is limited by the number of atoms, so that a large extent needs no
        // more memory.
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

    /// Sort atoms by box, and keep the order of atoms in a box.
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

    /// Copy the spheres of the boxes around a box.
    #[inline(always)]
    pub fn copy_around(&self, at: usize, around: &mut NearbySpheres) {
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

    /// Copy the spheres of a row of boxes into `around`.
    #[inline(always)]
    fn copy_row(
        &self,
        [at_a, j, k]: [i64; 3],
        first_of_box: usize,
        is_far: bool,
        around: &mut NearbySpheres,
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

    /// Return a sum of whole cell vectors, Å.
    fn shift(&self, images: [i64; 3]) -> [f32; 3] {
        let [a, b, c] = self.vectors;
        let [i, j, k] = images.map(|n| n as f64);
        std::array::from_fn(|axis| (i * a[axis] + j * b[axis] + k * c[axis]) as f32)
    }
}

/// Return the index of the box within the cell, and the index of the cell.
#[inline(always)]
fn wrapped(i: i64, n: i64) -> (i64, i64) {
    if (0..n).contains(&i) {
        (i, 0)
    } else {
        (i.rem_euclid(n), i.div_euclid(n))
    }
}

impl NearbySpheres {
    fn clear(&mut self) {
        self.n = 0;
        self.rows.clear();
        self.runs.iter_mut().for_each(Vec::clear);
    }

    /// Number of entries that the neighbours of one sphere may need, including padding.
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
        // Groups of eight are copied. The next spheres overwrite the numbers beyond the end.
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

    /// Return the spheres of a run in groups of eight. The last group may contain other numbers
    /// after the last sphere.
    #[inline(always)]
    pub fn eights(&self, run: &Run) -> impl Iterator<Item = [&[f32; LANES]; 4]> {
        let whole = run.range.len().next_multiple_of(LANES);
        let [x, y, z, radii] = (self.numbers.each_ref())
            .map(|numbers| numbers[run.range.start..][..whole].as_chunks::<LANES>().0);
        let all = x.iter().zip(y).zip(z).zip(radii);
        all.map(|(((x, y), z), radii)| [x, y, z, radii])
    }

    /// Return the index in the grid of the sphere with index `number` in this copy.
    pub fn place(&self, number: usize) -> usize {
        let row = self.rows.partition_point(|[begin, _]| *begin <= number);
        let [begin, place] = self.rows[row - 1];
        place + number - begin
    }
}

/// Return the distances between opposite faces of a cell, Å.
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

// Spheres that intersect a sphere, sorted so that those that cover most come first.

/// Number of neighbours that are tested together.
pub const BATCH: usize = LANES;
/// Number of classes of neighbours, by the fraction of the sphere that they cover. The class that
/// covers most is tested first.
const CLASSES: usize = 3;
/// Upper bounds of `least` (see [`Batch`]) in all classes but the last, in diameters of the sphere.
const ENDS: [f32; CLASSES - 1] = [0.18, 0.32];
/// Typical distance between the centres of intersecting spheres, Å.
const USUAL: f32 = 4.0;

/// Neighbour that covers no point: x, y, z and `least`, as in [`Batch`].
const NONE: [f32; 4] = [0.0, 0.0, 0.0, f32::MAX];

/// Neighbours that are tested together. Neighbour k covers the points u of the unit sphere with u ·
/// `d` > `least`.
#[derive(Debug)]
pub struct Batch {
    /// Vectors from the centre of the sphere to the centre of each neighbour, Å.
    d: [[f32; BATCH]; 3],
    least: [f32; BATCH],
    /// Upper bound of the length of `d`, Å, computed without a square root: (d² + u²) / (2 u) ≥ d,
    /// for a typical length u.
    pub most_length: [f32; BATCH],
}

impl Batch {
    /// Return u · `d` − `least` (Å) for neighbour k and the point u of the unit sphere. If it is
    /// above 0, the neighbour covers the point.
    #[inline(always)]
    pub fn above(&self, k: usize, [x, y, z]: [f32; 3]) -> f32 {
        x * self.d[0][k] + y * self.d[1][k] + z * self.d[2][k] - self.least[k]
    }
}

/// Neighbours of a sphere.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Vectors to the intersecting spheres, and the radii of these spheres, Å. Classification
    /// replaces the radii by `least`. The first entries are padding that covers no point.
    met: [Vec<f32>; 4],
    /// Bit masks by class: bit k of a byte is set if neighbour k of a group of eight belongs to the
    /// class.
    classes: [Vec<u8>; CLASSES],
    n_eights: usize,
    /// Neighbours of `met`, sorted by class. AVX2 packs eight neighbours at once.
    packed: [Vec<f32>; 4],
    /// Indices in `met`, sorted by class, for builds without AVX2. There, packing takes longer than
    /// reading the few neighbours that are needed.
    indices: Vec<u32>,
}

impl Neighbours {
    /// Find the spheres that intersect one sphere. `place` is its index in the grid, `own` its
    /// index in `around`. Return false if another sphere contains it entirely.
    #[inline(always)]
    pub fn find<const WIDE: bool>(
        &mut self,
        place: usize,
        own: usize,
        grid: &Grid,
        around: &NearbySpheres,
        runs: &[Run],
    ) -> bool {
        self.make_room(around.room());
        let end = self.collect_intersecting::<WIDE>(grid.spheres[place], own, around, runs);
        self.n_eights = end.div_ceil(LANES);
        let radius = grid.spheres[place][3];
        for number in 1..self.n_eights {
            let some = low_bits(LANES.min(end - LANES * number));
            if self.classify::<WIDE>(radius, number, some)
                && is_inside_another(place, own, grid, around, runs)
            {
                return false;
            }
        }
        true
    }

    fn make_room(&mut self, n: usize) {
        if self.met[0].len() < n {
            let n = 2 * n;
            let columns = self.met.iter_mut().chain(&mut self.packed);
            columns.for_each(|numbers| numbers.resize(n, 0.0));
            self.met[3][..LANES].fill(NONE[3]);
            self.indices.resize(n, 0);
            let classes = self.classes.iter_mut();
            classes.for_each(|eights| eights.resize(n.div_ceil(LANES), 0));
        }
    }

    /// Copy the spheres that intersect a sphere into `met`; return the number of entries.
    #[inline(always)]
    fn collect_intersecting<const WIDE: bool>(
        &mut self,
        [x, y, z, radius]: [f32; 4],
        own: usize,
        around: &NearbySpheres,
        runs: &[Run],
    ) -> usize {
        let mut end = LANES;
        let mut met = cut(&mut self.met);
        for run in runs {
            let from = [x - run.shift[0], y - run.shift[1], z - run.shift[2]];
            let mut begin = run.range.start;
            for [x, y, z, its] in around.eights(run) {
                let mut d = [*x, *y, *z];
                let mut overlaps = [0.0; LANES];
                for k in 0..LANES {
                    for (d, from) in d.iter_mut().zip(from) {
                        d[k] -= from;
                    }
                    let reach = radius + its[k];
                    let apart = d[0][k] * d[0][k] + d[1][k] * d[1][k] + d[2][k] * d[2][k];
                    overlaps[k] = reach * reach - apart;
                }
                let rest = low_bits(LANES.min(run.range.end - begin));
                let others = rest & !((1_u32 << own.wrapping_sub(begin).min(LANES)) as u8);
                let meets = positive::<WIDE>(&overlaps) & others;
                let [x, y, z] = d;
                pack::<WIDE, 4>([x, y, z, *its], meets, &mut met, end);
                end += meets.count_ones() as usize;
                begin += LANES;
            }
        }
        end
    }

    /// Classify the neighbours in a group of eight whose bit in `some` is set. Return true if a
    /// neighbour contains the sphere entirely, or has the same centre and radius.
    #[inline(always)]
    fn classify<const WIDE: bool>(&mut self, radius: f32, number: usize, some: u8) -> bool {
        let [x, y, z, its] = self.met.each_mut().map(|met| {
            let eight = met[LANES * number..].first_chunk_mut::<LANES>();
            eight.expect("room for all")
        });
        let half = 0.5 / radius;
        let (mut held, mut least) = ([0.0; LANES], [0.0; LANES]);
        let mut before = [[0.0; LANES]; CLASSES - 1];
        for k in 0..LANES {
            let apart = x[k] * x[k] + y[k] * y[k] + z[k] * z[k];
            let longer = its[k] - radius;
            let is_inside_another = (apart <= longer * longer) & (longer >= 0.0);
            held[k] = if is_inside_another { 1.0 } else { 0.0 };
            least[k] = (apart + radius * radius - its[k] * its[k]) * half;
            for (before, end) in before.iter_mut().zip(ENDS) {
                before[k] = end - least[k] * half;
            }
        }
        *its = least;
        let held = positive::<WIDE>(&held) & some;
        let mut rest = some & !held;
        for (class, eights) in self.classes.iter_mut().enumerate() {
            let within = match before.get(class) {
                Some(before) => rest & positive::<WIDE>(before),
                None => rest,
            };
            rest &= !within;
            eights[number] = within;
        }
        held != 0
    }

    /// Sort the neighbours by class (`ENDS` separates the classes); return the number of batches of
    /// `BATCH` neighbours.
    #[inline(always)]
    pub fn sort<const WIDE: bool>(&mut self) -> usize {
        let (met, mut packed) = (cut(&mut self.met), cut(&mut self.packed));
        let mut n = 0;
        for class in &self.classes {
            for (number, &bits) in class[..self.n_eights].iter().enumerate().skip(1) {
                let begin = LANES * number;
                if WIDE {
                    let eight = met.each_ref().map(|met| load_eight(met, begin));
                    pack::<WIDE, 4>(eight, bits, &mut packed, n);
                } else {
                    write_set_bits(bits, begin, &mut self.indices[n..]);
                }
                n += bits.count_ones() as usize;
            }
        }
        if WIDE {
            for (numbers, none) in packed.iter_mut().zip(NONE) {
                numbers[n..][..BATCH].fill(none);
            }
        } else {
            self.indices[n..][..BATCH].fill(0);
        }
        n.div_ceil(BATCH)
    }

    /// Return the neighbours of a batch.
    #[inline(always)]
    pub fn batch<const WIDE: bool>(&self, number: usize) -> Batch {
        let begin = BATCH * number;
        let mut all = [[0.0; BATCH]; 4];
        if WIDE {
            all = (self.packed.each_ref()).map(|numbers| load_eight(numbers, begin));
        } else {
            let n = self.met[0].len();
            let met = self.met.each_ref().map(|met| &met[..n]);
            let indices = &self.indices[begin..begin + BATCH];
            for (k, &index) in indices.iter().enumerate() {
                for (all, met) in all.iter_mut().zip(met) {
                    all[k] = met[index as usize];
                }
            }
        }
        let [x, y, z, least] = all;
        let mut most_length = [0.0; BATCH];
        for k in 0..BATCH {
            let apart = x[k] * x[k] + y[k] * y[k] + z[k] * z[k];
            most_length[k] = (apart + USUAL * USUAL) * (0.5 / USUAL);
        }
        Batch {
            d: [x, y, z],
            least,
            most_length,
        }
    }
}

/// Return eight numbers from index `begin`.
#[inline(always)]
fn load_eight(numbers: &[f32], begin: usize) -> [f32; LANES] {
    *numbers[begin..].first_chunk().expect("room for all")
}

/// Return true if another sphere contains a sphere entirely. Of equal spheres at the same point,
/// only the first has a surface.
#[cold]
fn is_inside_another(
    place: usize,
    own: usize,
    grid: &Grid,
    around: &NearbySpheres,
    runs: &[Run],
) -> bool {
    let [x, y, z, radius] = grid.spheres[place];
    runs.iter().any(|run| {
        let from = [x - run.shift[0], y - run.shift[1], z - run.shift[2]];
        (run.range.clone()).filter(|&k| k != own).any(|k| {
            let other = around.place(k);
            let [x, y, z, its] = grid.spheres[other];
            let d = [x - from[0], y - from[1], z - from[2]];
            let apart = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
            let longer = its - radius;
            let is_first = longer > 0.0 || grid.atoms[other] < grid.atoms[place];
            is_first && longer >= 0.0 && apart <= longer * longer
        })
    })
}
