//! Spheres that meet one, those that cover most of it first.

use super::grid::{Around, Grid, Run};
use crate::instructions::{LANES, low_bits, positive};

/// Neighbours that are tested together.
pub const BATCH: usize = 8;
/// Neighbours are taken in the order of so many classes by the part that they cover.
const CLASSES: usize = 4;
/// Ends of the classes but the last: the distance of the plane in which spheres meet, in diameters.
const ENDS: [f32; CLASSES - 1] = [0.12, 0.22, 0.35];
/// A usual distance of spheres that meet, Å.
const USUAL: f32 = 4.0;

/// Another sphere: it covers the points u, on a sphere of radius 1, with u · `d` > `least`.
#[derive(Debug, Clone, Copy)]
pub struct Neighbour {
    /// From centre to centre, Å.
    d: [f32; 3],
    least: f32,
    /// `d` is not longer, Å: the mean of its square and that of a usual length, by the latter, is
    /// at least its length, and takes no root.
    pub most_length: f32,
}

/// A neighbour that covers nothing.
static NONE: Neighbour = Neighbour {
    d: [0.0; 3],
    least: f32::MAX,
    most_length: 0.0,
};

impl Neighbour {
    /// How far a direction is above the plane in which the spheres meet, Å.
    #[inline(always)]
    pub fn above(&self, [x, y, z]: [f32; 3]) -> f32 {
        x * self.d[0] + y * self.d[1] + z * self.d[2] - self.least
    }
}

/// Neighbours of a sphere.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Indices of spheres around that meet it.
    met: Vec<u32>,
    /// The first ones cover nothing.
    all: Vec<Neighbour>,
    /// Indices of these, class by class.
    classes: [Vec<u32>; CLASSES],
    n: [usize; CLASSES],
}

/// The lanes whose bits are set, then lanes 0.
static SET: [[u8; LANES]; 256] = {
    let mut table = [[0; LANES]; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut lane, mut n) = (0, 0);
        while lane < LANES {
            if bits >> lane & 1 != 0 {
                table[bits][n] = lane as u8;
                n += 1;
            }
            lane += 1;
        }
        bits += 1;
    }
    table
};

/// Put `begin` + the number of each bit that is set to the front of `out`, and how many they are.
#[inline(always)]
fn put_set(bits: u8, begin: usize, out: &mut [u32]) -> usize {
    let out: &mut [u32; LANES] = out.first_chunk_mut().expect("room for all");
    let lanes = &SET[bits as usize];
    for k in 0..LANES {
        out[k] = begin as u32 + u32::from(lanes[k]);
    }
    bits.count_ones() as usize
}

impl Neighbours {
    /// Find those of a sphere among some around it; false if one of them holds it wholly.
    #[inline(always)]
    pub fn find<const WIDE: bool>(
        &mut self,
        place: usize,
        grid: &Grid,
        around: &Around,
        runs: &[Run],
    ) -> bool {
        let room = around.room();
        if self.met.len() < room {
            self.met.resize(2 * room, 0);
            self.all.resize(2 * room * (1 + LANES), NONE);
            for class in &mut self.classes {
                class.resize(2 * CLASSES * room, 0);
            }
        }
        self.n = [0; CLASSES];
        let mut n_all = LANES;
        for run in runs {
            let [x, y, z, radius] = grid.spheres[place];
            let from = [x - run.shift[0], y - run.shift[1], z - run.shift[2]];
            let mut n_met = 0;
            for begin in run.range.clone().step_by(LANES) {
                let rest = low_bits(LANES.min(run.range.end - begin));
                let meets = positive::<WIDE>(&around.overlaps(from, radius, begin)) & rest;
                n_met += put_set(meets, begin, &mut self.met[n_met..]);
            }
            put_set(0, run.range.start, &mut self.met[n_met..]);
            for begin in (0..n_met).step_by(LANES) {
                let few = LANES.min(n_met - begin);
                let home = run.shift == [0.0; 3];
                if !self.add::<WIDE>(
                    place,
                    (from, radius),
                    grid,
                    around,
                    [begin, few, n_all],
                    home,
                ) {
                    return false;
                }
                n_all += LANES;
            }
        }
        true
    }

    /// Add those of eight that met it, `few` of them from `begin` on; false if one holds it wholly.
    #[inline(always)]
    fn add<const WIDE: bool>(
        &mut self,
        place: usize,
        (from, radius): ([f32; 3], f32),
        grid: &Grid,
        around: &Around,
        [begin, few, n_all]: [usize; 3],
        home: bool,
    ) -> bool {
        let met: &[u32; LANES] = self.met[begin..].first_chunk().expect("room for all");
        let (mut places, mut spheres) = ([0; LANES], [[0.0; LANES]; 4]);
        for k in 0..LANES {
            places[k] = around.places[met[k] as usize];
            let sphere = grid.spheres[places[k] as usize];
            for (numbers, number) in spheres.iter_mut().zip(sphere) {
                numbers[k] = number;
            }
        }
        let half = 0.5 / radius;
        let (mut d, mut least, mut most_length) = ([[0.0; LANES]; 3], [0.0; LANES], [0.0; LANES]);
        let (mut held, mut longer) = ([0.0; LANES], [0.0; LANES]);
        let mut before = [[0.0; LANES]; CLASSES - 1];
        for k in 0..LANES {
            for axis in 0..3 {
                d[axis][k] = spheres[axis][k] - from[axis];
            }
            let apart = d[0][k] * d[0][k] + d[1][k] * d[1][k] + d[2][k] * d[2][k];
            let its = spheres[3][k];
            longer[k] = its - radius;
            let is_held = (apart <= longer[k] * longer[k]) & (longer[k] >= 0.0);
            held[k] = if is_held { 1.0 } else { 0.0 };
            least[k] = (apart + radius * radius - its * its) * half;
            most_length[k] = (apart + USUAL * USUAL) * (0.5 / USUAL);
            for (before, end) in before.iter_mut().zip(ENDS) {
                before[k] = end - least[k] * half;
            }
        }
        let some = low_bits(few);
        let mut holding = positive::<WIDE>(&held) & some;
        let mut rest = some & !holding;
        while holding != 0 {
            let k = holding.trailing_zeros() as usize;
            holding &= holding - 1;
            let other = places[k] as usize;
            // Of equal spheres at one place, the first has the surface.
            let is_first = longer[k] > 0.0 || grid.atoms[other] < grid.atoms[place];
            if is_first && !(other == place && home) {
                return false;
            }
        }
        let all: &mut [Neighbour; LANES] = self.all[n_all..].first_chunk_mut().expect("room");
        for k in 0..LANES {
            all[k] = Neighbour {
                d: [d[0][k], d[1][k], d[2][k]],
                least: least[k],
                most_length: most_length[k],
            };
        }
        for class in 0..CLASSES {
            let within = before
                .get(class)
                .map_or(rest, |before| rest & positive::<WIDE>(before));
            rest &= !within;
            let n = &mut self.n[class];
            *n += put_set(within, n_all, &mut self.classes[class][*n..]);
        }
        true
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
    pub fn batch(&self, number: usize) -> [&Neighbour; BATCH] {
        let mut batch = [&NONE; BATCH];
        let indices = &self.classes[0][BATCH * number..BATCH * (number + 1)];
        for (neighbour, &index) in batch.iter_mut().zip(indices) {
            *neighbour = &self.all[index as usize];
        }
        batch
    }
}
