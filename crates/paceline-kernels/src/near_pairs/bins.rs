//! Atoms of a group, sorted into bins, and what may be near them.
//!
//! Bins lie along the vectors of the cell, or fill the room that the atoms take up where there is
//! none. Atoms at the faces of a cell are there once more beyond the opposite face, so that no search
//! goes around it. Bins that may be near one with atoms are marked, in halves. All in single
//! precision, with room for rounding: what is not surely near or far is measured by others.

use super::measure::{Measure, in_cell};
use super::{Atoms, Point, extent_of, finite};
use crate::cell::{ApplyPbc, SLACK, cross, dot, square};
use crate::instructions::{LANES, by_widest, low_bits, positive};
use crate::qcp::Matrix3;

/// Marks have so many parts along each edge of a bin.
const PARTS: usize = 2;
/// Parts from those up to a bin before to those up to a bin after one.
const REACHED: usize = 2 * PARTS + 1;
/// Bins, at most, for each atom: where about as many are searched …
const BINS: usize = 16;
/// … and where many more are, most of which are near none.
const BINS_OF_FEW: usize = 32;
/// Atoms that are many more, by this factor.
const MANY: usize = 2;
/// Positions this many cells away, all vectors together, are not placed in single precision.
const FEW_CELLS: f32 = 16.0;
/// Added to a number, this rounds it to a whole one, of magnitudes below 2²².
const TO_WHOLE: f32 = 12_582_912.0;
/// Added to a whole number below 2²³, this leaves it in the low bits.
const TO_BITS: f32 = 8_388_608.0;
const LOW_BITS: u32 = 0x7f_ffff;
/// Positions that are placed together.
const PLACED: usize = 16;
/// Atoms whose rows of bins are looked up together.
const SOME: usize = 64;
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

/// How bins lie.
#[derive(Debug, Clone, Default)]
struct Grid {
    /// None where there is no cell.
    pbc: Option<ApplyPbc>,
    vectors: [Point; 3],
    /// Turns positions, relative to the origin, into numbers of vectors.
    inverse: [Point; 3],
    origin: Point,
    /// Bins along each vector.
    n: [usize; 3],
    /// Squares of the distances (Å²) within which atoms may be near, and surely are.
    most: f32,
    sure: f32,
}

/// A position in the cell, and the part of a bin that it is in along each vector.
#[derive(Debug, Clone, Copy)]
struct Home {
    x: Point,
    part: [u16; 3],
}

/// An atom that may be near those in the bins: its place, its bin, and its position in the cell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Near {
    pub place: u32,
    bin: u32,
    x: Point,
}

/// Some positions on their way into the cell.
#[derive(Default)]
struct Lanes {
    x: [[f32; PLACED]; 3],
    part: [[u32; PLACED]; 3],
    /// How many cells away they were; at least `FEW_CELLS`, or no number, where that is not known.
    away: [f32; PLACED],
}

/// Atoms in bins, and marks of the parts of bins that may be near any.
#[derive(Debug, Clone, Default)]
pub(super) struct Bins {
    grid: Grid,
    /// Atoms and their images in the order of bins; beyond the last one nothing is near.
    axes: [Vec<f32>; 3],
    /// Which of the group's places each is, and as many more.
    numbers: Vec<u32>,
    begins: Vec<u32>,
    /// One bit a part, and `PARTS` more at both ends of a row along a, which begins with a number.
    marks: Vec<u64>,
    homes: Vec<Home>,
    entries: Vec<(u32, u32, Point)>,
    spare: Vec<u64>,
    spread: Vec<u64>,
}

impl Bins {
    /// Sort atoms into bins, and collect those of others that may be near any of them.
    ///
    /// # Errors
    /// One sentence for positions that are not finite, or cannot be put into the cell.
    pub(super) fn fill(
        &mut self,
        measure: &Measure,
        of: Atoms<'_>,
        others: Atoms<'_>,
        near: &mut Vec<Near>,
    ) -> Result<(), String> {
        // The farther away atoms were, the more they were rounded.
        let mut largest = 0.0;
        loop {
            largest = self.put(measure, of, others.places.len(), largest)?;
            let farthest = find_near(self, others, near)?;
            if farthest <= largest {
                return Ok(());
            }
            largest = farthest;
        }
    }

    /// Sort atoms into bins, near which so many others are searched, from as far away as `largest`
    /// (Å), or as these atoms were; how far that is.
    fn put(
        &mut self,
        measure: &Measure,
        of: Atoms<'_>,
        n_others: usize,
        mut largest: f32,
    ) -> Result<f32, String> {
        let n_atoms = of.places.len();
        let are_few = n_others >= MANY * n_atoms;
        let n_bins = n_atoms * if are_few { BINS_OF_FEW } else { BINS };
        let mut extent = [[0.0; 3]; 2];
        if measure.cell.is_none() {
            for x in of.positions() {
                finite(x)?;
            }
            extent = extent_of(of.positions());
        }
        self.grid = Grid::new(measure, n_bins, extent, largest);
        let farthest = bring_home(&self.grid, of, &mut self.homes)?;
        if farthest > largest {
            largest = farthest;
            self.grid = Grid::new(measure, n_bins, extent, largest);
            bring_home(&self.grid, of, &mut self.homes)?;
        }
        if are_few {
            self.mark();
        } else {
            let [_, n1, n2] = self.grid.parts();
            self.marks.clear();
            self.marks.resize(self.grid.words() * n1 * n2, u64::MAX);
        }
        self.sort();
        Ok(largest)
    }

    /// Mark the parts of bins within reach of one that has atoms.
    fn mark(&mut self) {
        let ([n0, n1, n2], words) = (self.grid.parts(), self.grid.words());
        self.spare.clear();
        self.spare.resize(words * n1 * n2, 0);
        for home in &self.homes {
            let [i, j, k] = home.part.map(usize::from);
            let row = &mut self.spare[words * (j + n1 * k)..][..words];
            let mut mark = |bit: usize| row[bit / 64] |= 1 << (bit % 64);
            mark(i + PARTS);
            // Beyond both ends of a row are the parts at the other end of it.
            if i < PARTS {
                mark(i + n0 + PARTS);
            }
            if i + PARTS >= n0 {
                mark(i + PARTS - n0);
            }
        }
        mark_around(&self.grid, &self.spare, &mut self.spread, &mut self.marks);
    }

    fn sort(&mut self) {
        let (n, padded) = (self.grid.n, self.grid.padded());
        let is_periodic = self.grid.pbc.is_some();
        let index = |[i, j, k]: [usize; 3]| (i + padded[0] * (j + padded[1] * k)) as u32;
        self.entries.clear();
        for (home, number) in self.homes.iter().zip(0..) {
            let bins = home.part.map(|part| usize::from(part) / PARTS);
            let bin = index(bins.map(|bin| bin + 1));
            self.entries.push((bin, number, home.x));
            let is_inside = (0..3).all(|k| bins[k] > 0 && bins[k] + 1 < n[k]);
            if is_inside || !is_periodic {
                continue;
            }
            // The bins in which it and its images are, along each vector.
            let images = |k: usize| {
                let beyond = (bins[k] == 0).then_some((n[k] + 1, 1.0));
                let before = (bins[k] + 1 == n[k]).then_some((0, -1.0_f32));
                let all = [Some((bins[k] + 1, 0.0)), beyond, before];
                all.into_iter().flatten()
            };
            let [a, b, c] = &self.grid.vectors;
            for (k, over_c) in images(2) {
                for (j, over_b) in images(1) {
                    for (i, over_a) in images(0) {
                        if [over_a, over_b, over_c] != [0.0; 3] {
                            let x = std::array::from_fn(|axis| {
                                let [a, b, c] = [a[axis], b[axis], c[axis]];
                                home.x[axis] + (over_a * a + over_b * b + over_c * c)
                            });
                            self.entries.push((index([i, j, k]), number, x));
                        }
                    }
                }
            }
        }
        // What begins at an index is counted two places on, then moves to the end of its bin with
        // each atom that is put there, which is where the next one begins.
        self.begins.clear();
        self.begins.resize(padded.iter().product::<usize>() + 2, 0);
        for &(bin, ..) in &self.entries {
            self.begins[bin as usize + 2] += 1;
        }
        let mut sum = 0;
        for begin in &mut self.begins {
            sum += *begin;
            *begin = sum;
        }
        let n_entries = self.entries.len();
        for axis in &mut self.axes {
            axis.clear();
            axis.resize(n_entries + LANES, f32::INFINITY);
        }
        self.numbers.resize(n_entries + LANES, 0);
        for &(bin, number, x) in &self.entries {
            let begin = &mut self.begins[bin as usize + 1];
            let to = *begin as usize;
            *begin += 1;
            self.numbers[to] = number;
            for (axis, x) in self.axes.iter_mut().zip(x) {
                axis[to] = x;
            }
        }
    }

    /// Collect pairs of an atom of `near` and one in the bins, by their numbers in the lists, that
    /// may be near each other.
    pub(super) fn pairs(&self, near: &[Near], found: &mut Vec<[u32; 2]>) {
        find_pairs(self, near, found);
        if self.grid.pbc.is_some() && self.grid.n.iter().any(|&n| n < 3) {
            // An atom may be found by two of its images.
            found.sort_unstable();
            found.dedup();
        }
    }

    /// Where the atoms of three bins of a row begin and end.
    #[inline(always)]
    fn row(&self, bin: u32, row: u32) -> [u32; 2] {
        let first = bin.wrapping_add(row) as usize;
        [self.begins[first], self.begins[first + 3]]
    }

    /// Of one length, so that one check is enough.
    #[inline(always)]
    fn axes(&self) -> [&[f32]; 3] {
        let n = self.axes[0].len();
        self.axes.each_ref().map(|axis| &axis[..n])
    }
}

/// The square of the larger distance less those to `LANES` atoms from an index on.
#[inline(always)]
fn gaps(axes: &[&[f32]; 3], begin: usize, x: &Point, most: f32) -> [f32; LANES] {
    let mut gaps = [most; LANES];
    let mut squares = [0.0; LANES];
    for (axis, x) in axes.iter().zip(x) {
        for (square, other) in squares.iter_mut().zip(&axis[begin..begin + LANES]) {
            let d = other - x;
            *square += d * d;
        }
    }
    for (gap, square) in gaps.iter_mut().zip(&squares) {
        *gap -= square;
    }
    gaps
}

impl Grid {
    /// At most so many bins, for atoms that lie within the `extent` where there is no cell, and come
    /// from as far away as `largest` (Å) where there is one.
    fn new(measure: &Measure, n_bins: usize, extent: [Point; 2], largest: f32) -> Self {
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

    /// Parts along each vector.
    fn parts(&self) -> [usize; 3] {
        self.n.map(|n| PARTS * n)
    }

    /// Numbers that hold the marks of a row.
    fn words(&self) -> usize {
        (self.parts()[0] + 2 * PARTS).div_ceil(64)
    }

    /// The first and last part along a, counted from a part, that may be within reach of it, in each
    /// row nearby; the first one comes after the last where there is none.
    fn spans(&self) -> [[[i32; 2]; REACHED]; REACHED] {
        let parts = self.parts();
        let edges: Matrix3 =
            [0, 1, 2].map(|k: usize| self.vectors[k].map(|x| f64::from(x) / parts[k] as f64));
        let [a, b, c] = edges;
        let faces = [cross(b, c), cross(c, a), cross(a, b)].map(unit);
        // Parts are apart where they are along any of these directions: the reciprocal vectors,
        // and what lies between two and three of them. Each has the edges' lengths along it.
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
        [0, 1, 2, 3, 4].map(|k| [0, 1, 2, 3, 4].map(|j| span(j, k)))
    }

    /// Bins along each vector, and one more at both ends.
    fn padded(&self) -> [usize; 3] {
        self.n.map(|n| n + 2)
    }

    /// Bring positions into the cell. Without branches, so that several are computed at once.
    #[inline(always)]
    fn bring_home<const PERIODIC: bool>(&self, lanes: &mut Lanes) {
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
                // Half less, rounded to the nearest, is the whole number below.
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

    /// Bring those positions into the cell that are far away, if there is one. The largest
    /// coordinate of these.
    ///
    /// # Errors
    /// One sentence for positions that are not finite, or cannot be put into the cell.
    #[cold]
    fn bring_others_home(
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
                self.bring_home::<true>(&mut one);
                for k in 0..3 {
                    (lanes.x[k][lane], lanes.part[k][lane]) = (one.x[k][0], one.part[k][0]);
                }
                lanes.away[lane] = 0.0;
            }
        }
        Ok(largest)
    }

    /// By how much the first bins of rows nearby come after a bin.
    fn rows(&self) -> [u32; 9] {
        let padded = self.padded().map(|n| n as i32);
        ROWS.map(|[j, k]| (padded[0] * (j + padded[1] * k) - 1) as u32)
    }
}

impl Lanes {
    /// Positions of some places.
    #[inline(always)]
    fn gather(&mut self, of: &Atoms<'_>, some: &[u32]) {
        for (lane, &place) in some.iter().enumerate() {
            let x = of.at(place);
            for (axis, x) in self.x.iter_mut().zip(x) {
                axis[lane] = x;
            }
        }
    }

    /// Bring positions into the cell; true if some were far away.
    #[inline(always)]
    fn bring_home(&mut self, grid: &Grid) -> bool {
        if grid.pbc.is_none() {
            grid.bring_home::<false>(self);
        } else {
            grid.bring_home::<true>(self);
        }
        // No number is not near, either.
        !(self.away.iter()).fold(true, |all, &away| all & (away < FEW_CELLS))
    }
}

by_widest! {
    /// Bring all atoms of the bins into the cell. The largest coordinate of those that were far away.
    fn bring_home(grid: &Grid, of: Atoms<'_>, homes: &mut Vec<Home>) -> Result<f32, String> {
        homes.clear();
        let mut lanes = Lanes::default();
        let mut largest = 0.0_f32;
        for some in of.places.chunks(PLACED) {
            lanes.gather(&of, some);
            if lanes.bring_home(grid) {
                largest = largest.max(grid.bring_others_home(&of, some, &mut lanes)?);
            }
            for lane in 0..some.len() {
                homes.push(Home {
                    x: [0, 1, 2].map(|axis: usize| lanes.x[axis][lane]),
                    part: [0, 1, 2].map(|axis: usize| lanes.part[axis][lane] as u16),
                });
            }
        }
        Ok(largest)
    }
}

by_widest! {
    /// Mark the parts that may be within reach of those in `from`.
    fn mark_around(grid: &Grid, from: &[u64], spread: &mut Vec<u64>, marks: &mut Vec<u64>) {
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
                // Rows around the end of a plane are in two pieces.
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

/// Set the bits from `first` to `last` after each one that is set in `from`.
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
        // What passes the end of a row is beyond the parts that are looked at.
        if by > 0 {
            let pairs = to[1..].iter_mut().zip(from);
            pairs.for_each(|(to, from)| *to |= from >> (64 - n));
        } else {
            let pairs = to.iter_mut().zip(&from[1..]);
            pairs.for_each(|(to, from)| *to |= from << (64 - n));
        }
    }
}

by_widest! {
    /// Collect those of some atoms that may be near any in the bins. The largest coordinate of those
    /// that were far away.
    ///
    /// # Errors
    /// As [`Bins::fill`].
    fn find_near(bins: &Bins, of: Atoms<'_>, near: &mut Vec<Near>) -> Result<f32, String> {
        near.clear();
        let mut largest = 0.0_f32;
        let grid = &bins.grid;
        let [_, n1, _] = grid.parts().map(|n| n as u32);
        let [padded0, padded1, _] = grid.padded().map(|n| n as u32);
        let row = 64 * grid.words() as u32;
        let mut lanes = Lanes::default();
        let (mut bits, mut at) = ([0_u32; PLACED], [0; PLACED]);
        for some in of.places.chunks(PLACED) {
            lanes.gather(&of, some);
            if lanes.bring_home(grid) {
                largest = largest.max(grid.bring_others_home(&of, some, &mut lanes)?);
            }
            for lane in 0..PLACED {
                let [i, j, k] = [0, 1, 2].map(|axis: usize| lanes.part[axis][lane]);
                bits[lane] = i + PARTS as u32 + row * (j + n1 * k);
                let [i, j, k] = [i, j, k].map(|part| part / PARTS as u32 + 1);
                at[lane] = i + padded0 * (j + padded1 * k);
            }
            let mut marked = 0_u32;
            for (lane, (&bit, &away)) in bits.iter().zip(&lanes.away).enumerate().take(some.len()) {
                let mark = bins.marks[bit as usize / 64] >> (bit % 64);
                marked |= u32::from((mark & 1 != 0) & (away < FEW_CELLS)) << lane;
            }
            while marked != 0 {
                let lane = marked.trailing_zeros() as usize % PLACED;
                near.push(Near {
                    place: some[lane],
                    bin: at[lane],
                    x: [0, 1, 2].map(|axis: usize| lanes.x[axis][lane]),
                });
                marked &= marked - 1;
            }
        }
        Ok(largest)
    }
}

by_widest! {
    /// Collect pairs that are within the larger distance.
    fn find_pairs(bins: &Bins, near: &[Near], found: &mut Vec<[u32; 2]>) {
        let rows = bins.grid.rows();
        let (axes, most) = (bins.axes(), bins.grid.most);
        let mut runs = [[0; 3]; SOME * ROWS.len()];
        let mut n_found = 0;
        for (some, numbers) in near.chunks(SOME).zip((0..).step_by(SOME)) {
            // Without branches: each row is put down, and remains if it has atoms.
            let mut n_runs = 0;
            for (number, one) in (numbers..).zip(some) {
                for row in rows {
                    let [begin, end] = bins.row(one.bin, row);
                    runs[n_runs] = [number, begin, end];
                    n_runs += usize::from(begin < end);
                }
            }
            for &[number, begin, end] in &runs[..n_runs] {
                let x = &some[(number - numbers) as usize].x;
                for begin in (begin as usize..end as usize).step_by(LANES) {
                    let bits = positive::<WIDE>(&gaps(&axes, begin, x, most));
                    let mut bits = bits & low_bits(LANES.min(end as usize - begin));
                    if found.len() < n_found + LANES {
                        found.resize(2 * (n_found + LANES), [0; 2]);
                    }
                    // Up to two without branches: each is put down, and remains if it is one.
                    for k in 0..LANES {
                        if k > 1 && bits == 0 {
                            break;
                        }
                        let other = bins.numbers[begin + bits.trailing_zeros() as usize];
                        found[n_found] = [number, other];
                        n_found += usize::from(bits != 0);
                        bits &= bits.wrapping_sub(1);
                    }
                }
            }
        }
        found.truncate(n_found);
    }
}

by_widest! {
    /// Mark those of `near` that are within the smaller distance of any in the bins; of others,
    /// collect pairs as above.
    pub(super) fn mark_near(
        bins: &Bins,
        near: &[Near],
        marks: &mut [bool],
        unsure: &mut Vec<[u32; 2]>,
    ) {
        let rows = bins.grid.rows();
        let (axes, most) = (bins.axes(), bins.grid.most);
        let between = most - bins.grid.sure;
        unsure.clear();
        let mut runs = [[0; 2]; ROWS.len()];
        'next: for (number, one) in (0..).zip(near) {
            let before = unsure.len();
            // Without branches, as in `find_pairs`.
            let mut n_runs = 0;
            for row in rows {
                let run = bins.row(one.bin, row);
                runs[n_runs] = run;
                n_runs += usize::from(run[0] < run[1]);
            }
            for run in &runs[..n_runs] {
                let [begin, end] = run.map(|index| index as usize);
                for begin in (begin..end).step_by(LANES) {
                    let gaps = gaps(&axes, begin, &one.x, most);
                    let mut bits = positive::<WIDE>(&gaps);
                    if bits != 0 {
                        // What follows the row is no image of another atom: it may be near, too.
                        if positive::<WIDE>(&gaps.map(|gap| gap - between)) != 0 {
                            marks[one.place as usize] = true;
                            unsure.truncate(before);
                            continue 'next;
                        }
                        bits &= low_bits(LANES.min(end - begin));
                        while bits != 0 {
                            let other = bins.numbers[begin + bits.trailing_zeros() as usize];
                            unsure.push([number, other]);
                            bits &= bits - 1;
                        }
                    }
                }
            }
        }
    }
}

/// A vector of length 1 in the same direction.
fn unit(x: [f64; 3]) -> [f64; 3] {
    let length = square(x).sqrt();
    x.map(|x| x / length)
}

/// The room that atoms take up, from its vectors and origin, and a margin, Å.
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

/// The place `offset` − `PARTS` after another one, of `n` that go around.
fn around(place: usize, offset: usize, n: usize) -> usize {
    match place + offset {
        sum if sum < PARTS => sum + n - PARTS,
        sum if sum < n + PARTS => sum - PARTS,
        sum => sum - PARTS - n,
    }
}
