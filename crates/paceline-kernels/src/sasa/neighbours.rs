//! Spheres that meet one, those that cover most of it first.

use super::grid::{Around, Grid, Run};
use crate::instructions::{LANES, cut, low_bits, pack, positive, put_set};

/// Neighbours that are tested together.
pub const BATCH: usize = LANES;
/// Neighbours are taken in the order of so many classes by the part that they cover.
const CLASSES: usize = 3;
/// Ends of the classes but the last: the distance of the plane in which spheres meet, in diameters.
const ENDS: [f32; CLASSES - 1] = [0.18, 0.32];
/// A usual distance of spheres that meet, Å.
const USUAL: f32 = 4.0;

/// Of a neighbour that covers nothing: x, y, z and `least`, as in [`Batch`].
const NONE: [f32; 4] = [0.0, 0.0, 0.0, f32::MAX];

/// Neighbours that are tested together: each covers the points u, on a sphere of radius 1, with
/// u · `d` > `least`.
#[derive(Debug)]
pub struct Batch {
    /// x, y and z from centre to centre, Å.
    d: [[f32; BATCH]; 3],
    least: [f32; BATCH],
    /// `d` is not longer, Å: the mean of its square and that of a usual length, by the latter, is
    /// at least its length, and takes no root.
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
    /// x, y and z from the sphere to those that meet it, and their radii, Å; once they are in
    /// classes, `least` in place of the radii. The first ones cover nothing.
    met: [Vec<f32>; 4],
    /// For each eight of them, a bit for each one of a class.
    classes: [Vec<u8>; CLASSES],
    n_eights: usize,
    /// Numbers of those in `met` in the order of their classes: by AVX2, which packs eight at once.
    packed: [Vec<f32>; 4],
    /// Indices in `met` in this order: in the base build, where packing takes longer than reading
    /// the few that are needed.
    indices: Vec<u32>,
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
        let end = self.meet::<WIDE>(grid.spheres[place], own, around, runs);
        self.n_eights = end.div_ceil(LANES);
        let radius = grid.spheres[place][3];
        for number in 1..self.n_eights {
            let some = low_bits(LANES.min(end - LANES * number));
            if self.classify::<WIDE>(radius, number, some)
                && is_held(place, own, grid, around, runs)
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

    /// Put those that meet a sphere side by side; the end of them.
    #[inline(always)]
    fn meet<const WIDE: bool>(
        &mut self,
        [x, y, z, radius]: [f32; 4],
        own: usize,
        around: &Around,
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

    /// Put `some` of eight that meet it into classes; true if one of these holds it wholly, or is an
    /// equal one at its place.
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
            let is_held = (apart <= longer * longer) & (longer >= 0.0);
            held[k] = if is_held { 1.0 } else { 0.0 };
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

    /// Bring them into the order of their classes; the number of batches that they make.
    #[inline(always)]
    pub fn sort<const WIDE: bool>(&mut self) -> usize {
        let (met, mut packed) = (cut(&mut self.met), cut(&mut self.packed));
        let mut n = 0;
        for class in &self.classes {
            for (number, &bits) in class[..self.n_eights].iter().enumerate().skip(1) {
                let begin = LANES * number;
                if WIDE {
                    let eight = met.each_ref().map(|met| eight_of(met, begin));
                    pack::<WIDE, 4>(eight, bits, &mut packed, n);
                } else {
                    put_set(bits, begin, &mut self.indices[n..]);
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

    /// Get the neighbours of a batch.
    #[inline(always)]
    pub fn batch<const WIDE: bool>(&self, number: usize) -> Batch {
        let begin = BATCH * number;
        let mut all = [[0.0; BATCH]; 4];
        if WIDE {
            all = (self.packed.each_ref()).map(|numbers| eight_of(numbers, begin));
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

/// Eight numbers from `begin` on.
#[inline(always)]
fn eight_of(numbers: &[f32], begin: usize) -> [f32; LANES] {
    *numbers[begin..].first_chunk().expect("room for all")
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
