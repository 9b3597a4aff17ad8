//! Solvent-accessible surface by points on spheres (Shrake & Rupley 1973, J. Mol. Biol. 79, 351).
//!
//! An atom's sphere reaches as far as the centre of a probe that touches it. Of the points on it,
//! which are the same for all atoms, those within no other sphere are exposed. How many these are is
//! a whole number, whatever the order of the atoms.

use std::ops::Range;

use super::cell::{Cell, FAR, is_placeholder, square};
use super::qcp::Matrix3;
use super::rows::{Frames, RowKernel, cell_or_none};
use super::transform::Refused;
use super::{Columns, check_len};
use paceline_formats::error::{self, Error};

/// Points that are tested together.
const LANES: usize = 8;
/// Boxes of the grid within the longest distance of two spheres that meet.
const BOXES: f64 = 2.0;
/// Neighbours are taken in the order of so many classes by the part that they cover.
const CLASSES: usize = 8;
/// A usual distance of spheres that meet, Å.
const USUAL: f32 = 4.0;
/// Distances (Å) beneath which single precision does not decide for all points of a patch.
const ROUNDED: f32 = 1e-4;

const NEEDED_BY: &str = "SASA";

/// Spheres, the points on them, and what is summed up.
#[derive(Debug, Clone)]
pub struct Sasa {
    columns: Columns,
    /// Radius of each sphere, probe included, Å.
    radii: Vec<f32>,
    /// Å² of one point on each sphere.
    areas: Vec<f64>,
    /// Spheres that are reported, each with the number in the row that it adds to.
    output: Vec<[u32; 2]>,
    n_parts: usize,
    groups: Vec<Group>,
    all_alive: Vec<Alive>,
}

impl Sasa {
    /// `columns` are the atoms that have a surface, with `radii` (Å, without that of the probe).
    /// `output` are pairs of an index in these and of the number in the row, of `n_parts`, to which
    /// that atom's area is added.
    ///
    /// # Errors
    /// [`Error::Argument`] for no atoms or points, radii that are not above 0, or pairs beyond.
    pub fn new(
        columns: &[usize],
        radii: &[f64],
        probe: f64,
        n_points: usize,
        output: &[[u32; 2]],
        n_parts: usize,
    ) -> error::Result<Self> {
        check_len("radii", radii.len(), columns.len())?;
        let is_length = |x: f64| x.is_finite() && (0.0..1e3).contains(&x);
        let is_valid = !columns.is_empty()
            && radii
                .iter()
                .all(|&radius| is_length(radius) && radius + probe > 0.0)
            && is_length(probe)
            && (1..=1 << 16).contains(&n_points)
            && output
                .iter()
                .all(|&[atom, part]| (atom as usize) < radii.len() && (part as usize) < n_parts);
        if !is_valid {
            return Err(Error::Argument(
                "a surface needs atoms with radii, a probe and 1 to 65,536 points".to_string(),
            ));
        }
        let area = |radius: f64| 4.0 * std::f64::consts::PI * (radius + probe) * (radius + probe);
        let groups: Vec<Group> = patches(n_points).chunks(LANES).map(Group::new).collect();
        Ok(Sasa {
            all_alive: (0..).zip(&groups).map(Alive::new).collect(),
            groups,
            columns: Columns::new(columns),
            radii: radii.iter().map(|radius| (radius + probe) as f32).collect(),
            areas: radii
                .iter()
                .map(|&radius| area(radius) / n_points as f64)
                .collect(),
            output: output.to_vec(),
            n_parts,
        })
    }

    /// Count the exposed points of each sphere that is reported: on wider registers where there are
    /// such, by the same operations, so that the counts are the same.
    fn count(&self, grid: &Grid, scratch: &mut Scratch) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.count_by_avx2(grid, scratch) };
        }
        self.count_plainly(grid, scratch);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn count_by_avx2(&self, grid: &Grid, scratch: &mut Scratch) {
        self.count_plainly(grid, scratch);
    }

    #[inline(always)]
    fn count_plainly(&self, grid: &Grid, scratch: &mut Scratch) {
        scratch.counts.clear();
        scratch.counts.resize(self.radii.len(), 0);
        let reported = &mut scratch.reported;
        reported.clear();
        reported.resize(self.radii.len(), false);
        for [atom, _] in &self.output {
            reported[*atom as usize] = true;
        }
        for at in 0..grid.begins.len() - 1 {
            let members = grid.begins[at]..grid.begins[at + 1];
            if !grid.atoms[members.clone()]
                .iter()
                .any(|&atom| scratch.reported[atom as usize])
            {
                continue;
            }
            grid.find_rows(at, &mut scratch.rows);
            for place in members {
                let atom = grid.atoms[place] as usize;
                if scratch.reported[atom] {
                    let is_free = grid.find_neighbours(
                        place,
                        &scratch.rows,
                        &mut scratch.found,
                        &mut scratch.neighbours,
                    );
                    scratch.counts[atom] = match is_free {
                        true => self.exposed(&scratch.neighbours, &mut scratch.alive),
                        false => 0,
                    };
                }
            }
        }
    }

    /// Count the points that no neighbour covers.
    #[inline(always)]
    fn exposed(&self, neighbours: &[Vec<Neighbour>; CLASSES], alive: &mut Vec<Alive>) -> u32 {
        alive.clone_from(&self.all_alive);
        for neighbour in neighbours.iter().flatten() {
            let mut n_alive = 0;
            for k in 0..alive.len() {
                let mut of = alive[k];
                self.groups[of.group as usize].cover(neighbour, &mut of);
                alive[n_alive] = of;
                n_alive += usize::from(of.patches != 0);
            }
            alive.truncate(n_alive);
            if n_alive == 0 {
                return 0;
            }
        }
        alive.iter().map(Alive::count).sum()
    }
}

impl RowKernel for Sasa {
    fn n_columns(&self) -> usize {
        self.n_parts
    }

    /// Areas, Å².
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> error::Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut picked = Vec::new();
        let mut scratch = Scratch::default();
        let mut grid = Grid::default();
        frames.fill_rows(out, self.n_parts, |frame, dimensions, row| {
            let (positions, _) = self.columns.pick(frame, &mut picked).as_chunks();
            let cell = match is_placeholder(dimensions) {
                true => None,
                false => cell_or_none(dimensions, NEEDED_BY)?,
            };
            grid.sort(positions, &self.radii, cell.as_ref())?;
            self.count(&grid, &mut scratch);
            row.fill(0.0);
            for &[atom, part] in &self.output {
                let atom = atom as usize;
                row[part as usize] += self.areas[atom] * f64::from(scratch.counts[atom]);
            }
            Ok(())
        })
    }
}

#[derive(Debug, Default)]
struct Scratch {
    counts: Vec<u32>,
    reported: Vec<bool>,
    rows: Vec<Row>,
    /// Rows and places of the spheres that meet one.
    found: Vec<[u32; 2]>,
    neighbours: [Vec<Neighbour>; CLASSES],
    alive: Vec<Alive>,
}

/// Patches of a group, and their points, that no neighbour has covered so far.
#[derive(Debug, Clone, Copy)]
struct Alive {
    group: u32,
    patches: u8,
    /// A byte for each patch; that of a patch that is covered wholly does not count.
    points: u64,
}

impl Alive {
    fn new((group, of): (u32, &Group)) -> Self {
        Alive {
            group,
            patches: of.patches,
            points: u64::from_le_bytes(of.members.each_ref().map(|patch| patch.points)),
        }
    }

    fn count(&self) -> u32 {
        let left = (0..LANES).filter(|patch| self.patches >> patch & 1 != 0);
        left.map(|patch| (self.points >> (8 * patch) & 0xff).count_ones())
            .sum()
    }
}

/// Another sphere: it covers the points u, on a sphere of radius 1, with u · `d` > `least`.
#[derive(Debug, Clone, Copy)]
struct Neighbour {
    /// From centre to centre, Å.
    d: [f32; 3],
    least: f32,
    /// `d` is not longer, Å: the mean of its square and that of a usual length, by the latter, is
    /// at least its length, and takes no root.
    most_length: f32,
}

impl Neighbour {
    /// How far a direction is above the plane in which the spheres meet, Å.
    #[inline(always)]
    fn above(&self, [x, y, z]: [f32; 3]) -> f32 {
        x * self.d[0] + y * self.d[1] + z * self.d[2] - self.least
    }
}

/// Patches that are tested together.
#[derive(Debug, Clone)]
struct Group {
    axes: [[f32; LANES]; 3],
    /// From each centre to the farthest point.
    radii: [f32; LANES],
    members: [Patch; LANES],
    /// A bit for each patch.
    patches: u8,
}

impl Group {
    fn new(patches: &[Patch]) -> Self {
        let members = std::array::from_fn(|k| patches.get(k).cloned().unwrap_or_default());
        Group {
            axes: [0, 1, 2].map(|axis| members.each_ref().map(|patch| patch.centre[axis])),
            radii: members.each_ref().map(|patch| patch.radius),
            members,
            patches: low_bits(patches.len()),
        }
    }

    /// Take off what a neighbour covers.
    #[inline(always)]
    fn cover(&self, neighbour: &Neighbour, left: &mut Alive) {
        let [x, y, z] = &self.axes;
        let (mut beyond, mut within) = ([0.0; LANES], [0.0; LANES]);
        for k in 0..LANES {
            let above = neighbour.above([x[k], y[k], z[k]]);
            let slack = self.radii[k] * neighbour.most_length + ROUNDED;
            beyond[k] = above - slack;
            within[k] = above + slack;
        }
        left.patches &= !positive(&beyond);
        let mut in_part = left.patches & positive(&within);
        while in_part != 0 {
            let patch = in_part.trailing_zeros() as usize;
            in_part &= in_part - 1;
            let covered = self.members[patch].covered(neighbour);
            left.points &= !(u64::from(covered) << (8 * patch));
            let is_left = left.points >> (8 * patch) & 0xff != 0;
            left.patches &= !(u8::from(!is_left) << patch);
        }
    }
}

fn low_bits(n: usize) -> u8 {
    (u16::MAX >> (16 - n)) as u8
}

/// Points on a sphere of radius 1 that are close together.
#[derive(Debug, Clone, Default)]
struct Patch {
    centre: [f32; 3],
    /// From the centre to the farthest point.
    radius: f32,
    axes: [[f32; LANES]; 3],
    /// A bit for each point.
    points: u8,
}

impl Patch {
    fn new(points: &[[f64; 3]]) -> Self {
        let n = points.len() as f64;
        let centre = std::array::from_fn(|axis| points.iter().map(|x| x[axis]).sum::<f64>() / n);
        let apart = |x: &[f64; 3]| square(std::array::from_fn(|axis| x[axis] - centre[axis]));
        let radius = points.iter().map(apart).fold(0.0, f64::max).sqrt();
        let mut axes = [[0.0; LANES]; 3];
        for (k, x) in points.iter().enumerate() {
            for axis in 0..3 {
                axes[axis][k] = x[axis] as f32;
            }
        }
        Patch {
            centre: centre.map(|x| x as f32),
            radius: radius as f32,
            axes,
            points: low_bits(points.len()),
        }
    }

    /// A bit for each point that a neighbour covers.
    #[inline(always)]
    fn covered(&self, neighbour: &Neighbour) -> u8 {
        let [x, y, z] = &self.axes;
        positive(&std::array::from_fn(|k| {
            neighbour.above([x[k], y[k], z[k]])
        }))
    }
}

/// A bit for each number above 0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn positive(numbers: &[f32; LANES]) -> u8 {
    use std::arch::x86_64::{_mm_cmpgt_ps, _mm_loadu_ps, _mm_movemask_ps, _mm_setzero_ps};
    // SAFETY: every processor of this kind has these, and both loads are of four of the eight.
    let [low, high] = unsafe {
        [0, 4].map(|k| {
            let four = _mm_loadu_ps(numbers.as_ptr().add(k));
            _mm_movemask_ps(_mm_cmpgt_ps(four, _mm_setzero_ps()))
        })
    };
    (low | high << 4) as u8
}

/// A bit for each number above 0.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn positive(numbers: &[f32; LANES]) -> u8 {
    let numbered = numbers.iter().enumerate();
    numbered.fold(0, |bits, (k, &x)| bits | u8::from(x > 0.0) << k)
}

/// Points on a golden spiral, on a sphere of radius 1: point k of n is at the height (2k + 1)/n − 1,
/// π (3 − √5) further round than the one before.
fn spiral(n_points: usize) -> Vec<[f64; 3]> {
    let turn = std::f64::consts::PI * (3.0 - 5.0_f64.sqrt());
    let point = |k: usize| {
        let height = (2 * k + 1) as f64 / n_points as f64 - 1.0;
        let (sin, cos) = (k as f64 * turn).sin_cos();
        let across = (1.0 - height * height).sqrt();
        [cos * across, height, sin * across]
    };
    (0..n_points).map(point).collect()
}

/// Put points close together into patches.
fn patches(n_points: usize) -> Vec<Patch> {
    let mut patches = Vec::with_capacity(n_points.div_ceil(LANES));
    split(&mut spiral(n_points), &mut patches);
    patches
}

/// Halve points across the axis along which they are farthest apart, until a patch holds them.
fn split(points: &mut [[f64; 3]], patches: &mut Vec<Patch>) {
    if points.len() <= LANES {
        patches.push(Patch::new(points));
        return;
    }
    let extent = |axis: usize| {
        let along = points.iter().map(|x| x[axis]);
        along.clone().fold(f64::MIN, f64::max) - along.fold(f64::MAX, f64::min)
    };
    let extents = [0, 1, 2].map(extent);
    let axis = (0..3).fold(0, |most, axis| {
        if extents[axis] > extents[most] {
            axis
        } else {
            most
        }
    });
    points.sort_by(|x, y| x[axis].total_cmp(&y[axis]));
    let half = points.len().div_ceil(LANES) / 2 * LANES;
    let (low, high) = points.split_at_mut(half);
    split(low, patches);
    split(high, patches);
}

/// Atoms sorted into boxes, which are rows along the vector a of the cell.
#[derive(Debug, Default)]
struct Grid {
    vectors: Matrix3,
    periodic: bool,
    /// Boxes along each vector.
    n: [usize; 3],
    /// Boxes along each vector within which neighbours are.
    steps: [i64; 3],
    /// Index of the first atom of each box, and behind that of the last one.
    begins: Vec<usize>,
    atoms: Vec<u32>,
    /// Box of each atom, before it is sorted.
    boxes: Vec<u32>,
    home: Vec<[f32; 3]>,
    /// In the order of the boxes; beyond the last atom nothing is near.
    axes: [Vec<f32>; 3],
    radii: Vec<f32>,
}

/// Atoms of neighbouring boxes, and the vector (Å) that brings them near.
#[derive(Debug, Clone)]
struct Row {
    places: Range<usize>,
    shift: [f32; 3],
}

impl Grid {
    /// Sort the atoms of a frame.
    ///
    /// # Errors
    /// One sentence where a position is not finite, or too far away.
    fn sort(
        &mut self,
        positions: &[[f32; 3]],
        radii: &[f32],
        cell: Option<&Cell>,
    ) -> Result<(), String> {
        if let Some(atom) = positions
            .iter()
            .position(|x| x.iter().any(|x| !x.is_finite()))
        {
            return Err(format!(
                "atom {atom} of the surface (from 0) has a position that is no finite number"
            ));
        }
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
        self.n = heights.map(|height| ((height / thickness) as usize).clamp(1, 1000));
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
        for (axis, values) in self.axes.iter_mut().enumerate() {
            values.clear();
            values.extend(
                self.atoms
                    .iter()
                    .map(|&atom| self.home[atom as usize][axis]),
            );
            values.resize(self.atoms.len() + LANES, f32::INFINITY);
        }
        self.radii.clear();
        self.radii
            .extend(self.atoms.iter().map(|&atom| radii[atom as usize]));
        self.radii.resize(self.atoms.len() + LANES, 0.0);
    }

    /// Find the atoms of the boxes around one.
    fn find_rows(&self, at: usize, rows: &mut Vec<Row>) {
        rows.clear();
        let n = self.n.map(|n| n as i64);
        let (at_a, at_b, at_c) = (
            at as i64 % n[0],
            at as i64 / n[0] % n[1],
            at as i64 / (n[0] * n[1]),
        );
        for k in at_c - self.steps[2]..=at_c + self.steps[2] {
            for j in at_b - self.steps[1]..=at_b + self.steps[1] {
                let (image_b, image_c) = (j.div_euclid(n[1]), k.div_euclid(n[2]));
                if !self.periodic && (image_b, image_c) != (0, 0) {
                    continue;
                }
                let row = (k.rem_euclid(n[2]) * n[1] + j.rem_euclid(n[1])) * n[0];
                let (mut i, last) = (at_a - self.steps[0], at_a + self.steps[0]);
                while i <= last {
                    let image_a = i.div_euclid(n[0]);
                    let end = last.min(image_a * n[0] + n[0] - 1);
                    if self.periodic || image_a == 0 {
                        let first = (row + i.rem_euclid(n[0])) as usize;
                        let places =
                            self.begins[first]..self.begins[first + (end - i) as usize + 1];
                        if !places.is_empty() {
                            let shift = self.shift([image_a, image_b, image_c]);
                            rows.push(Row { places, shift });
                        }
                    }
                    i = end + 1;
                }
            }
        }
    }

    /// Find the spheres that meet that of an atom; false if one of them holds it wholly.
    #[inline(always)]
    fn find_neighbours(
        &self,
        place: usize,
        rows: &[Row],
        found: &mut Vec<[u32; 2]>,
        neighbours: &mut [Vec<Neighbour>; CLASSES],
    ) -> bool {
        neighbours.iter_mut().for_each(Vec::clear);
        let at = self.axes.each_ref().map(|axis| axis[place]);
        let radius = self.radii[place];
        let seen_from = |row: &Row| std::array::from_fn(|axis| at[axis] - row.shift[axis]);
        let most = rows.iter().map(|row| row.places.len() + LANES).sum();
        if found.len() < most {
            found.resize(most, [0; 2]);
        }
        let mut n_found = 0;
        for (number, row) in (0..).zip(rows) {
            let from = seen_from(row);
            for begin in row.places.clone().step_by(LANES) {
                let mut meets = self.meeting(from, radius, begin);
                let rest = row.places.end - begin;
                if rest < LANES {
                    meets &= low_bits(rest);
                }
                // Without a branch for each: none is foreseeable.
                for k in 0..LANES {
                    found[n_found] = [number, (begin + k) as u32];
                    n_found += usize::from(meets >> k & 1);
                }
            }
        }
        let half = 0.5 / radius;
        for &[row, other] in &found[..n_found] {
            let (row, other) = (&rows[row as usize], other as usize);
            if other == place && row.shift == [0.0; 3] {
                continue;
            }
            let from: [f32; 3] = seen_from(row);
            let d: [f32; 3] = std::array::from_fn(|axis| self.axes[axis][other] - from[axis]);
            let apart = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
            let its = self.radii[other];
            let within = its - radius;
            if apart <= within * within && within >= 0.0 {
                // Of equal spheres at one place, the first has the surface.
                if within > 0.0 || self.atoms[other] < self.atoms[place] {
                    return false;
                }
                continue;
            }
            let least = (apart + radius * radius - its * its) * half;
            // Those that cover most come first.
            let class = (least * half + 0.5) * CLASSES as f32;
            let class = (class as i32).clamp(0, CLASSES as i32 - 1);
            neighbours[class as usize].push(Neighbour {
                d,
                least,
                most_length: (apart + USUAL * USUAL) * (0.5 / USUAL),
            });
        }
        true
    }

    /// A bit for each sphere, of some that follow each other, that meets one at a position.
    #[inline(always)]
    fn meeting(&self, from: [f32; 3], radius: f32, begin: usize) -> u8 {
        let lanes = |values: &[f32]| -> [f32; LANES] {
            values[begin..begin + LANES].try_into().expect("as many")
        };
        let [x, y, z] = self.axes.each_ref().map(|axis| lanes(axis));
        let its = lanes(&self.radii);
        positive(&std::array::from_fn(|k| {
            let d = [x[k] - from[0], y[k] - from[1], z[k] - from[2]];
            let reach = radius + its[k];
            reach * reach - (d[0] * d[0] + d[1] * d[1] + d[2] * d[2])
        }))
    }

    /// Whole numbers of the cell's vectors, Å.
    fn shift(&self, images: [i64; 3]) -> [f32; 3] {
        let [a, b, c] = self.vectors;
        let [i, j, k] = images.map(|n| n as f64);
        std::array::from_fn(|axis| (i * a[axis] + j * b[axis] + k * c[axis]) as f32)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELLS: [[f32; 6]; 4] = [
        [0.0; 6],
        [21.0, 24.0, 28.0, 90.0, 90.0, 90.0],
        [25.0, 25.0, 25.0, 60.0, 60.0, 90.0],
        [20.0, 19.0, 22.0, 80.0, 100.0, 115.0],
    ];
    const N_ATOMS: usize = 200;

    fn atoms(random: &mut Random) -> (Vec<f32>, Vec<f64>) {
        let positions = random.structure(N_ATOMS, 8.0, 0.0);
        let radii = (0..N_ATOMS).map(|k| [1.2, 1.52, 1.7][k % 3]).collect();
        (positions.iter().map(|&x| x as f32).collect(), radii)
    }

    fn counts(frame: &[f32], radii: &[f64], cell: [f32; 6], n_points: usize) -> Vec<f64> {
        let columns: Vec<usize> = (0..radii.len()).collect();
        let output: Vec<[u32; 2]> = (0..radii.len() as u32).map(|k| [k, k]).collect();
        let sasa = Sasa::new(&columns, radii, 1.4, n_points, &output, radii.len()).unwrap();
        let mut out = vec![0.0; radii.len()];
        let frames = Frames::new(frame, radii.len(), &cell).unwrap();
        assert_eq!(sasa.compute(&frames, &mut out).unwrap(), None);
        out.iter()
            .zip(&sasa.areas)
            .map(|(area, point)| (area / point).round())
            .collect()
    }

    /// Points of an atom that are in no other sphere nor image, and those that rounding decides.
    fn plainly(
        frame: &[f32],
        radii: &[f64],
        cell: Option<&Cell>,
        atom: usize,
        n_points: usize,
    ) -> (f64, f64) {
        let (positions, _) = frame.as_chunks::<3>();
        let (mut exposed, mut doubts) = (0.0, 0.0);
        for point in spiral(n_points) {
            let mut gap = f64::INFINITY;
            for (other, x) in positions
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != atom)
            {
                let reach = radii[atom] + 1.4;
                let d = std::array::from_fn(|axis| {
                    f64::from(positions[atom][axis]) + reach * point[axis] - f64::from(x[axis])
                });
                let d = cell.map_or(d, |cell| cell.shifted(d, cell.nearest_images(d)));
                gap = gap.min(square(d).sqrt() - radii[other] - 1.4);
            }
            exposed += f64::from(u8::from(gap > 0.0));
            doubts += f64::from(u8::from(gap.abs() < 1e-4));
        }
        (exposed, doubts)
    }

    #[test]
    fn points_in_no_other_sphere_count() {
        let mut random = Random(3);
        for dimensions in CELLS {
            let (frame, radii) = atoms(&mut random);
            let cell = Cell::new(dimensions).ok();
            for n_points in [5, 61] {
                let found = counts(&frame, &radii, dimensions, n_points);
                assert!(found.contains(&0.0) && found.iter().any(|&n| n > 0.0));
                for atom in (0..N_ATOMS).step_by(23) {
                    let (n, doubts) = plainly(&frame, &radii, cell.as_ref(), atom, n_points);
                    let off = (n - found[atom]).abs();
                    assert!(
                        off <= doubts,
                        "{dimensions:?}, atom {atom}: {n}, {}",
                        found[atom]
                    );
                }
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn wider_registers_count_the_same_points() {
        if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1")) {
            return;
        }
        let (frame, radii) = atoms(&mut Random(5));
        let columns: Vec<usize> = (0..N_ATOMS).collect();
        let output: Vec<[u32; 2]> = (0..N_ATOMS as u32).map(|k| [k, k]).collect();
        for dimensions in CELLS {
            for n_points in [7, 100, 961] {
                let sasa = Sasa::new(&columns, &radii, 1.4, n_points, &output, N_ATOMS).unwrap();
                let mut grid = Grid::default();
                let cell = Cell::new(dimensions).ok();
                let positions = frame.as_chunks().0;
                grid.sort(positions, &sasa.radii, cell.as_ref()).unwrap();
                let (mut wide, mut plain) = (Scratch::default(), Scratch::default());
                // SAFETY: the processor has what the function is compiled for.
                unsafe { sasa.count_by_avx2(&grid, &mut wide) };
                sasa.count_plainly(&grid, &mut plain);
                assert_eq!(wide.counts, plain.counts);
                assert!(plain.counts.iter().any(|&n| n > 0));
            }
        }
    }

    #[test]
    fn patches_hold_each_point_once() {
        for n_points in [1, 7, 8, 9, 100, 960, 1001] {
            let patches = patches(n_points);
            let n: u32 = patches.iter().map(|patch| patch.points.count_ones()).sum();
            assert_eq!(n as usize, n_points);
            assert!(patches.len() <= n_points.div_ceil(LANES));
        }
        let widest = patches(960)
            .iter()
            .fold(0.0, |most: f32, patch| most.max(patch.radius));
        assert!(widest < 0.4, "{widest}");
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let new = |radii: &[f64], probe, n_points, output| {
            Sasa::new(&[0, 1], radii, probe, n_points, &[output], 1).is_ok()
        };
        assert!(new(&[1.0, 1.5], 1.4, 100, [1, 0]));
        assert!(!new(&[1.0], 1.4, 100, [0, 0]));
        assert!(!new(&[1.0, f64::NAN], 1.4, 100, [0, 0]));
        assert!(!new(&[1.0, 1.5], -0.1, 100, [0, 0]));
        assert!(!new(&[1.0, 1.5], 1.4, 0, [0, 0]));
        assert!(!new(&[1.0, 1.5], 1.4, 100, [2, 0]));
        assert!(!new(&[1.0, 1.5], 1.4, 100, [0, 1]));
        let sasa = Sasa::new(&[0, 1], &[1.0, 1.5], 1.4, 100, &[[0, 0]], 1).unwrap();
        let refused = |x: f32, cell: [f32; 6]| {
            let frame = [x, 0.0, 0.0, 1.0, 1.0, 1.0];
            let frames = Frames::new(&frame, 2, &cell).unwrap();
            sasa.compute(&frames, &mut [0.0])
                .unwrap()
                .map(|(_, reason)| reason)
        };
        let cell = [20.0, 20.0, 20.0, 90.0, 90.0, 90.0];
        assert_eq!(refused(-100.0, cell), None);
        assert!(
            refused(f32::NAN, cell)
                .unwrap()
                .contains("atom 0 of the surface")
        );
        assert!(refused(1e30, cell).unwrap().contains("too far away"));
        let flat = [20.0, 20.0, 20.0, 20.0, 20.0, 90.0];
        assert!(refused(1.0, flat).unwrap().contains("make no cell"));
    }
}
