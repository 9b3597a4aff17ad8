//! Spheres that meet one, those that cover most of it first.

use super::grid::{Around, Grid, Run};
use crate::instructions::{LANES, low_bits, pack, positive, put_set};

/// Neighbours that are tested together.
pub const BATCH: usize = 8;
/// Neighbours are taken in the order of so many classes by the part that they cover.
const CLASSES: usize = 3;
/// Ends of the classes but the last: the distance of the plane in which spheres meet, in diameters.
const ENDS: [f32; CLASSES - 1] = [0.18, 0.32];
/// A usual distance of spheres that meet, Å.
const USUAL: f32 = 4.0;

/// Eight other spheres: each covers the points u, on a sphere of radius 1, with u · `d` > `least`.
#[derive(Debug, Clone, Copy)]
struct Eight {
    /// x, y and z from centre to centre, Å.
    d: [[f32; LANES]; 3],
    least: [f32; LANES],
    /// `d` is not longer, Å: the mean of its square and that of a usual length, by the latter, is
    /// at least its length, and takes no root.
    most_length: [f32; LANES],
}

/// Neighbours that cover nothing.
static NONE: Eight = Eight {
    d: [[0.0; LANES]; 3],
    least: [f32::MAX; LANES],
    most_length: [0.0; LANES],
};

/// Neighbours that are tested together.
#[derive(Debug)]
pub struct Batch {
    d: [[f32; BATCH]; 3],
    least: [f32; BATCH],
    /// As [`Eight::most_length`].
    pub most_length: [f32; BATCH],
}

impl Batch {
    /// How far a direction is above the plane in which the spheres meet, Å.
    #[inline(always)]
    pub fn above(&self, k: usize, [x, y, z]: [f32; 3]) -> f32 {
        x * self.d[0][k] + y * self.d[1][k] + z * self.d[2][k] - self.least[k]
    }
}

/// Neighbours of a sphere.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// x, y and z from the sphere to those that meet it, and their radii, Å.
    met: [Vec<f32>; 4],
    /// The first ones cover nothing.
    all: Vec<Eight>,
    /// Indices of these, class by class.
    classes: [Vec<u32>; CLASSES],
    n: [usize; CLASSES],
}

impl Neighbours {
    /// Find those of a sphere, which has such a place in the grid and `own` around it, among some
    /// around it; false if one of them holds it wholly.
    #[inline(always)]
    pub fn find<const WIDE: bool>(
        &mut self,
        place: usize,
        own: usize,
        grid: &Grid,
        around: &Around,
        runs: &[Run],
    ) -> bool {
        self.make_room(around.room());
        let n_met = self.meet::<WIDE>(grid.spheres[place], own, around, runs);
        self.n = [0; CLASSES];
        let radius = grid.spheres[place][3];
        for begin in (0..n_met).step_by(LANES) {
            let some = low_bits(LANES.min(n_met - begin));
            if self.add::<WIDE>(radius, begin, some) && is_held(place, own, grid, around, runs) {
                return false;
            }
        }
        true
    }

    fn make_room(&mut self, n: usize) {
        if self.met[0].len() < n {
            let n = 2 * n;
            self.met
                .iter_mut()
                .for_each(|numbers| numbers.resize(n, 0.0));
            self.all.resize(1 + n.div_ceil(LANES), NONE);
            for class in &mut self.classes {
                class.resize(CLASSES * n, 0);
            }
        }
    }

    /// Put those that meet a sphere side by side; how many they are.
    #[inline(always)]
    fn meet<const WIDE: bool>(
        &mut self,
        [x, y, z, radius]: [f32; 4],
        own: usize,
        around: &Around,
        runs: &[Run],
    ) -> usize {
        let mut n_met = 0;
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
                pack::<WIDE, 4>([x, y, z, *its], meets, &mut self.met, n_met);
                n_met += meets.count_ones() as usize;
                begin += LANES;
            }
        }
        n_met
    }

    /// Add `some` of eight that meet it, from `begin` on; true if one of these holds it wholly, or
    /// is an equal one at its place.
    #[inline(always)]
    fn add<const WIDE: bool>(&mut self, radius: f32, begin: usize, some: u8) -> bool {
        let [x, y, z, its] = (self.met.each_ref())
            .map(|met| *met[begin..].first_chunk::<LANES>().expect("room for all"));
        let half = 0.5 / radius;
        let mut held = [0.0; LANES];
        let mut before = [[0.0; LANES]; CLASSES - 1];
        let number = 1 + begin / LANES;
        let eight = &mut self.all[number];
        for k in 0..LANES {
            let apart = x[k] * x[k] + y[k] * y[k] + z[k] * z[k];
            let longer = its[k] - radius;
            let is_held = (apart <= longer * longer) & (longer >= 0.0);
            held[k] = if is_held { 1.0 } else { 0.0 };
            let least = (apart + radius * radius - its[k] * its[k]) * half;
            eight.least[k] = least;
            eight.most_length[k] = (apart + USUAL * USUAL) * (0.5 / USUAL);
            for (before, end) in before.iter_mut().zip(ENDS) {
                before[k] = end - least * half;
            }
        }
        eight.d = [x, y, z];
        let held = positive::<WIDE>(&held) & some;
        let mut rest = some & !held;
        for class in 0..CLASSES {
            let within = before
                .get(class)
                .map_or(rest, |before| rest & positive::<WIDE>(before));
            rest &= !within;
            let n = &mut self.n[class];
            *n += put_set(within, LANES * number, &mut self.classes[class][*n..]);
        }
        held != 0
    }

    /// Bring them into the order of their classes; the number of batches that they make.
    #[inline(always)]
    pub fn sort(&mut self) -> usize {
        let (first, others) = self.classes.split_first_mut().expect("classes");
        let mut n = self.n[0];
        for (class, &n_class) in others.iter().zip(&self.n[1..]) {
            for begin in (0..n_class).step_by(LANES) {
                first[n + begin..n + begin + LANES].copy_from_slice(&class[begin..begin + LANES]);
            }
            n += n_class;
        }
        first[n..n + BATCH].fill(0);
        n.div_ceil(BATCH)
    }

    /// Get the neighbours of a batch.
    #[inline(always)]
    pub fn batch(&self, number: usize) -> Batch {
        let indices = &self.classes[0][BATCH * number..BATCH * (number + 1)];
        let mut batch = Batch {
            d: [[0.0; BATCH]; 3],
            least: [0.0; BATCH],
            most_length: [0.0; BATCH],
        };
        for (k, &index) in indices.iter().enumerate() {
            let (eight, lane) = (&self.all[index as usize / LANES], index as usize % LANES);
            for (d, of_eight) in batch.d.iter_mut().zip(&eight.d) {
                d[k] = of_eight[lane];
            }
            batch.least[k] = eight.least[lane];
            batch.most_length[k] = eight.most_length[lane];
        }
        batch
    }
}

/// True if a sphere around another holds it wholly; of equal ones at one place, the first has the
/// surface.
#[cold]
fn is_held(place: usize, own: usize, grid: &Grid, around: &Around, runs: &[Run]) -> bool {
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
