//! Solvent-accessible surface by points on spheres (Shrake & Rupley 1973, J. Mol. Biol. 79, 351).
//!
//! The radius of a sphere is the radius of the atom plus that of the probe. All spheres have the
//! same distribution of points. A point is exposed if it lies outside all other spheres. The number
//! of exposed points is an integer, so it does not depend on the order of the atoms.

mod grid;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::grid::{BATCH, Batch};
use super::cell::is_placeholder;
use super::row_kernel::{Frames, RowKernel, cell_or_none};
use super::transform_common::Refused;
use super::{Columns, check_len};
use crate::cell::square;
use crate::instructions::{LANES, by_widest, low_bits, positive};
use crate::threads_within_frame::{compute, part_len, ranges};
use grid::Neighbours;
use grid::{Grid, NearbySpheres};
use paceline_base::error;
use paceline_base::error::Error;

const NEEDED_BY: &str = "SASA";
/// Minimum number of boxes in a part of a frame that one thread computes.
const LEAST_BOXES: usize = 32;

/// Spheres, the points on them, and the sums to compute.
#[derive(Debug, Clone)]
pub struct Sasa {
    columns: Columns,
    /// Radius of each sphere, including the probe, Å.
    radii: Vec<f32>,
    /// Area of one point on each sphere, Å².
    areas: Vec<f64>,
    /// For each reported sphere, its index and the index of the value in the row to which its area
    /// is added.
    output: Vec<[u32; 2]>,
    is_reported: Vec<bool>,
    n_parts: usize,
    points: Points,
}

impl Sasa {
    /// Create a kernel. `columns` contains the atoms with a surface, and `radii` their radii (Å)
    /// without the probe. `output` contains pairs: the index of an atom in `columns`, and the index
    /// (below `n_parts`) of the value to which its area is added.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no atoms, a radius or the probe is negative or at least
    /// 1000 Å, the radius of a sphere is 0, the number of points is not from 1 to 65,536, or an
    /// index is out of range.
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
        let mut is_reported = vec![false; radii.len()];
        for [atom, _] in output {
            is_reported[*atom as usize] = true;
        }
        let area = |radius: f64| 4.0 * std::f64::consts::PI * (radius + probe) * (radius + probe);
        Ok(Sasa {
            points: Points::new(n_points),
            columns: Columns::new(columns),
            radii: radii.iter().map(|radius| (radius + probe) as f32).collect(),
            areas: radii
                .iter()
                .map(|&radius| area(radius) / n_points as f64)
                .collect(),
            output: output.to_vec(),
            is_reported,
            n_parts,
        })
    }

    /// Count the points of a sphere that no other sphere covers. `place` and `own` are the indices
    /// of the sphere in the grid and in `around`.
    #[inline(always)]
    fn exposed<const WIDE: bool>(
        &self,
        place: usize,
        own: usize,
        grid: &Grid,
        scratch: &mut Scratch,
    ) -> u32 {
        let Scratch {
            around,
            neighbours,
            alive,
            ..
        } = scratch;
        alive.clear();
        alive.extend_from_slice(self.points.all());
        // For most spheres, the near neighbours cover all points, and the others are not tested.
        for runs in &around.runs {
            if !neighbours.find::<WIDE>(place, own, grid, around, runs) {
                return 0;
            }
            for number in 0..neighbours.sort::<WIDE>() {
                let batch = neighbours.batch::<WIDE>(number);
                self.points.cover::<WIDE>(&batch, alive);
                if alive.is_empty() {
                    return 0;
                }
            }
        }
        alive.iter().map(Alive::count).sum()
    }
}

by_widest! {
    /// Count the exposed points of each reported sphere in some boxes. `counts` has one number for
    /// each sphere in these boxes, in the order of the grid.
    fn count(sasa: &Sasa, grid: &Grid, boxes: Range<usize>, scratch: &mut Scratch, counts: &mut [u32]) {
        let first = grid.begins[boxes.start];
        for at in boxes {
            let members = grid.begins[at]..grid.begins[at + 1];
            let mut is_copied = false;
            for place in members {
                if sasa.is_reported[grid.atoms[place] as usize] {
                    if !is_copied {
                        grid.copy_around(at, &mut scratch.around);
                        is_copied = true;
                    }
                    let own = scratch.around.own + (place - grid.begins[at]);
                    counts[place - first] = sasa.exposed::<WIDE>(place, own, grid, scratch);
                }
            }
        }
    }
}

/// Count the exposed points of each reported sphere. `counts` gets one number for each sphere, in
/// the order of the grid.
fn count_all(sasa: &Sasa, grid: &Grid, scratch: &mut Scratch, counts: &mut Vec<u32>) {
    counts.clear();
    counts.resize(grid.atoms.len(), 0);
    let n_boxes = grid.begins.len() - 1;
    let mut rest = &mut counts[..];
    let mut parts = Vec::new();
    for boxes in ranges(n_boxes, part_len(n_boxes, LEAST_BOXES)) {
        let n_atoms = grid.begins[boxes.end] - grid.begins[boxes.start];
        let (part, behind) = rest.split_at_mut(n_atoms);
        parts.push((boxes, part));
        rest = behind;
    }
    compute(
        parts.into_iter(),
        scratch,
        Scratch::default,
        |scratch, (boxes, counts)| {
            count(sasa, grid, boxes, scratch, counts);
        },
    );
}

impl RowKernel for Sasa {
    fn n_columns(&self) -> usize {
        self.n_parts
    }

    /// Compute areas, Å². All are NaN if any position is not finite, since that atom could cover
    /// any other.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> error::Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut picked = Vec::new();
        let mut scratch = Scratch::default();
        let mut grid = Grid::default();
        let (mut of_places, mut counts) = (Vec::new(), vec![0; self.radii.len()]);
        frames.fill_rows(out, self.n_parts, |frame, dimensions, row| {
            let (positions, _) = self.columns.pick(frame, &mut picked).as_chunks();
            if !positions.as_flattened().iter().all(|x| x.is_finite()) {
                row.fill(f64::NAN);
                return Ok(());
            }
            let cell = match is_placeholder(dimensions) {
                true => None,
                false => cell_or_none(dimensions, NEEDED_BY)?,
            };
            grid.sort(positions, &self.radii, cell.as_ref())?;
            count_all(self, &grid, &mut scratch, &mut of_places);
            for (&atom, &count) in grid.atoms.iter().zip(&of_places) {
                counts[atom as usize] = count;
            }
            row.fill(0.0);
            for &[atom, part] in &self.output {
                let atom = atom as usize;
                row[part as usize] += self.areas[atom] * f64::from(counts[atom]);
            }
            Ok(())
        })
    }
}

#[derive(Debug, Default)]
struct Scratch {
    around: NearbySpheres,
    neighbours: Neighbours,
    alive: Vec<Alive>,
}

// Points on the unit sphere, grouped into patches, and the test whether neighbours cover them.

/// Margin (Å) of the tests of whole patches, because single precision cannot decide closer cases.
const ROUNDED: f32 = 1e-4;

/// With at most this many patches, a patch is too wide for a useful test of the whole patch.
/// Without this test, 100 points take 0.86 of the time.
const COARSE: usize = 16;

/// Points of the unit sphere in groups of patches.
#[derive(Debug, Clone)]
pub(crate) struct Points {
    groups: Vec<Group>,
    all: Vec<Alive>,
}

impl Points {
    pub fn new(n_points: usize) -> Self {
        let patches = patches(n_points);
        let is_coarse = patches.len() <= COARSE;
        let groups = patches
            .chunks(LANES)
            .map(|some| Group::new(some, is_coarse));
        let groups: Vec<Group> = groups.collect();
        Points {
            all: (0..).zip(&groups).map(Alive::new).collect(),
            groups,
        }
    }

    /// Return all patches and points, before any is covered.
    pub fn all(&self) -> &[Alive] {
        &self.all
    }

    /// Remove the points that any of these neighbours covers.
    #[inline(always)]
    pub fn cover<const WIDE: bool>(&self, neighbours: &Batch, alive: &mut Vec<Alive>) {
        let mut n_alive = 0;
        for k in 0..alive.len() {
            let mut of = alive[k];
            self.groups[of.group as usize].cover::<WIDE>(neighbours, &mut of);
            alive[n_alive] = of;
            n_alive += usize::from(of.patches != 0);
        }
        alive.truncate(n_alive);
    }
}

/// Patches of a group, and their points, that no neighbour has covered yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alive {
    group: u32,
    patches: u8,
    /// Points that are not covered, one byte for each patch. The byte of a fully covered patch is
    /// ignored.
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

    pub fn count(&self) -> u32 {
        let left = (0..LANES).filter(|patch| self.patches >> patch & 1 != 0);
        left.map(|patch| (self.points >> (8 * patch) & 0xff).count_ones())
            .sum()
    }
}

/// Patches that are tested together.
#[derive(Debug, Clone)]
struct Group {
    axes: [[f32; LANES]; 3],
    /// Distance from the centre of each patch to its farthest point.
    radii: [f32; LANES],
    members: [Patch; LANES],
    /// Bit mask of the patches that exist.
    patches: u8,
    /// True if the patches are too wide to be tested as a whole.
    is_coarse: bool,
}

impl Group {
    fn new(patches: &[Patch], is_coarse: bool) -> Self {
        let members = std::array::from_fn(|k| patches.get(k).cloned().unwrap_or_default());
        Group {
            axes: [0, 1, 2].map(|axis| members.each_ref().map(|patch| patch.centre[axis])),
            radii: members.each_ref().map(|patch| patch.radius),
            members,
            patches: low_bits(patches.len()),
            is_coarse,
        }
    }

    /// Remove the patches and points that any of these neighbours covers.
    #[inline(always)]
    fn cover<const WIDE: bool>(&self, neighbours: &Batch, left: &mut Alive) {
        let [x, y, z] = &self.axes;
        let mut in_part = left.patches;
        if !self.is_coarse {
            // Maximum over all neighbours, for each patch.
            let (mut beyond, mut within) = ([f32::MIN; LANES], [f32::MIN; LANES]);
            for neighbour in 0..BATCH {
                for k in 0..LANES {
                    let above = neighbours.above(neighbour, [x[k], y[k], z[k]]);
                    let slack = self.radii[k] * neighbours.most_length[neighbour] + ROUNDED;
                    beyond[k] = greater(beyond[k], above - slack);
                    within[k] = greater(within[k], above + slack);
                }
            }
            left.patches &= !positive::<WIDE>(&beyond);
            in_part = left.patches & positive::<WIDE>(&within);
        }
        while in_part != 0 {
            let patch = in_part.trailing_zeros() as usize;
            in_part &= in_part - 1;
            let covered = self.members[patch].covered::<WIDE>(neighbours);
            left.points &= !(u64::from(covered) << (8 * patch));
            let is_left = left.points >> (8 * patch) & 0xff != 0;
            left.patches &= !(u8::from(!is_left) << patch);
        }
    }
}

#[inline(always)]
fn greater(x: f32, y: f32) -> f32 {
    if x > y { x } else { y }
}

/// Points on a sphere of radius 1 that are close together.
#[derive(Debug, Clone, Default)]
struct Patch {
    centre: [f32; 3],
    /// Distance from the centre of the patch to its farthest point.
    radius: f32,
    axes: [[f32; LANES]; 3],
    /// Bit mask of the points that exist.
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

    /// Return a bit mask of the points that any of these neighbours covers.
    #[inline(always)]
    fn covered<const WIDE: bool>(&self, neighbours: &Batch) -> u8 {
        let [x, y, z] = &self.axes;
        let mut above = [f32::MIN; LANES];
        for neighbour in 0..BATCH {
            for k in 0..LANES {
                above[k] = greater(above[k], neighbours.above(neighbour, [x[k], y[k], z[k]]));
            }
        }
        positive::<WIDE>(&above)
    }
}

/// Return points on the unit sphere along a golden spiral. Point k of n has the height (2k + 1)/n −
/// 1, and an azimuth π (3 − √5) larger than that of point k − 1.
pub(crate) fn spiral(n_points: usize) -> Vec<[f64; 3]> {
    let turn = std::f64::consts::PI * (3.0 - 5.0_f64.sqrt());
    let point = |k: usize| {
        let height = (2 * k + 1) as f64 / n_points as f64 - 1.0;
        let (sin, cos) = (k as f64 * turn).sin_cos();
        let across = (1.0 - height * height).sqrt();
        [cos * across, height, sin * across]
    };
    (0..n_points).map(point).collect()
}

/// Group neighbouring points into patches.
fn patches(n_points: usize) -> Vec<Patch> {
    let mut patches = Vec::with_capacity(n_points.div_ceil(LANES));
    split(&mut spiral(n_points), &mut patches);
    patches
}

/// Split points recursively along the axis of largest extent, until they fit into a patch.
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
