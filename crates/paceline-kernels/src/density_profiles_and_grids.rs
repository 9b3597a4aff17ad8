//! Densities: mass and charge density along the axes of the cell, and atom counts on a grid.

use super::cell::{ApplyPbc, Cell, in_cell};
use super::histogram::Bins;
use super::row_kernel::{FrameConversion, Frames, RowKernel};
use super::transform_common::Refused;
use super::{Columns, check_len, frames};
use crate::instructions::by_widest;
use crate::threads_within_frame::{MANY, change, compute_parts, part_len};
use paceline_base::error::{Error, Result};

/// Number of partial sums of a bin, used in turn so that additions need not wait for each other.
const LANES: usize = 2;
/// Number of atoms that are binned at a time.
const TILE: usize = 64;
/// Maximum number of bins in single precision; with more bins, too few assignments are certain.
const MOST_BINS: usize = 1 << 14;
/// If this number is added to a number of magnitude below 2²², the low bits of the sum contain the
/// nearest whole number.
const TO_WHOLE: f32 = 12_582_912.0;

const NOT_FINITE: &str = "positions are not all finite numbers";

/// Density of mass and charge along x, y and z.
///
/// Atoms, or the centers of mass of compounds, are wrapped into the brick `a_x` × `b_y` × `c_z` at
/// the origin. The brick contains one image of each atom, in any cell. Bins divide the longest edge
/// of the brick. The bins along the other axes have the same width.
#[derive(Debug, Clone)]
pub struct Profiles {
    columns: Columns,
    /// Mass and charge of each atom or compound.
    weights: Vec<[f64; 2]>,
    compounds: Option<Compounds>,
    n_bins: usize,
}

/// Compound and mass of each atom.
#[derive(Debug, Clone)]
struct Compounds {
    of_atom: Vec<(usize, f64)>,
}

/// Bins of one frame, and the function that wraps positions into its brick.
struct Brick {
    edges: [f32; 3],
    into: ApplyPbc,
    bins: Bins,
    rough: [FastBins; 3],
}

/// Bins along an axis, for assignment in single precision if the result is certain.
#[derive(Debug, Clone, Copy)]
struct FastBins {
    first: f32,
    /// End of the last bin, Å.
    end: f32,
    bins_per_angstrom: f32,
    /// Distance from the middle of a bin, in bin widths, within which the single-precision
    /// assignment is certain.
    certain: f32,
}

/// Voxels of a grid in which atoms are counted.
#[derive(Debug, Clone)]
pub struct Voxels {
    columns: Columns,
    bins: [Bins; 3],
    rough: [FastBins; 3],
}

/// Up to `TILE` atoms: arrays of x, y and z, their bins, and 1 for each atom with an uncertain bin.
struct Tile {
    x: [[f32; TILE]; 3],
    bins: [[u32; TILE]; 3],
    doubts: [u32; TILE],
}

impl Default for Tile {
    fn default() -> Self {
        Tile {
            x: [[0.0; TILE]; 3],
            bins: [[0; TILE]; 3],
            doubts: [0; TILE],
        }
    }
}

impl Tile {
    #[inline(always)]
    fn fill(&mut self, atoms: &[[f32; 3]]) {
        for (i, atom) in atoms.iter().enumerate() {
            [self.x[0][i], self.x[1][i], self.x[2][i]] = *atom;
        }
    }

    #[inline(always)]
    fn assign(&mut self, rough: &[FastBins; 3]) {
        self.doubts.fill(0);
        for ((x, bins), rough) in self.x.iter().zip(&mut self.bins).zip(rough) {
            for ((&x, bin), doubt) in x.iter().zip(bins).zip(&mut self.doubts) {
                let place = (x - rough.first) * rough.bins_per_angstrom - 0.5;
                let whole = place + TO_WHOLE;
                let off = (place - (whole - TO_WHOLE)).abs();
                *bin = whole.to_bits().wrapping_sub(TO_WHOLE.to_bits());
                // The comparisons are written so that NaN counts as uncertain.
                let sure = (x >= rough.first) & (x < rough.end) & (off <= rough.certain);
                *doubt |= u32::from(!sure);
            }
        }
    }
}

by_widest! {
    /// Assign bins to atoms, and mark uncertain bins. If `into` is given, atoms at most one cell
    /// away are first wrapped into this brick; bins of atoms farther away are uncertain.
    fn assign(atoms: &[[f32; 3]], into: Option<&ApplyPbc>, rough: &[FastBins; 3], tile: &mut Tile) {
        tile.fill(atoms);
        if let Some(into) = into {
            into.apply_to(&mut tile.x);
        }
        tile.assign(rough);
    }
}

impl FastBins {
    fn new(bins: &Bins) -> Self {
        let (first, end, n_bins) = (bins.first(), bins.end(), bins.len() as f64);
        let bins_per_angstrom = n_bins / (end - first);
        // Rounding error: half a unit in the last place for each of a few operations on numbers of
        // this size.
        let largest = n_bins + first.abs().max(end.abs()) * bins_per_angstrom;
        let error = 9.0 * largest * f64::from(f32::EPSILON);
        let is_certain = bins.len() <= MOST_BINS && error < 0.25;
        FastBins {
            first: first as f32,
            end: end as f32,
            bins_per_angstrom: bins_per_angstrom as f32,
            certain: if is_certain {
                (0.5 - error) as f32
            } else {
                -1.0
            },
        }
    }
}

impl Voxels {
    /// Create a grid of voxels from edges along x, y and z (Å). Voxels have equal widths along each
    /// axis.
    ///
    /// # Errors
    /// [`Error::Argument`] if edges do not ascend, there are no atoms, or there are 2³² voxels or
    /// more.
    pub fn new(columns: &[usize], edges: [&[f64]; 3]) -> Result<Self> {
        let [x, y, z] = edges.map(Bins::new);
        let bins = [x?, y?, z?];
        let n_voxels = bins
            .iter()
            .try_fold(1_usize, |n, bins| n.checked_mul(bins.len()));
        if columns.is_empty() || n_voxels.is_none_or(|n| u32::try_from(n).is_err()) {
            let reason = "a density needs atoms, and a grid with fewer than 2³² voxels";
            return Err(Error::Argument(reason.to_string()));
        }
        Ok(Voxels {
            columns: Columns::new(columns),
            rough: bins.each_ref().map(FastBins::new),
            bins,
        })
    }

    /// Return the voxel number of each atom on the grid, in each frame; z varies fastest. If a
    /// frame has positions that are not finite, return that frame and the reason.
    ///
    /// # Errors
    /// [`Error::Argument`] if the block is not a whole number of frames with enough atoms.
    pub fn find(
        &self,
        positions: &[f32],
        n_atoms: usize,
    ) -> Result<std::result::Result<Vec<u32>, Refused>> {
        self.columns.check(n_atoms)?;
        let frames = frames(positions, n_atoms)?;
        let mut found = Vec::with_capacity(frames.len() * self.columns.len());
        let mut scratch = Vec::new();
        for (row, frame) in frames.enumerate() {
            let atoms = self.columns.pick(frame, &mut scratch).as_chunks::<3>().0;
            if !self.find_voxels(atoms, &mut found) {
                return Ok(Err((row, NOT_FINITE.to_string())));
            }
        }
        Ok(Ok(found))
    }

    /// Append the voxels of some atoms to `found`. Return false if a position is not finite.
    fn find_voxels(&self, atoms: &[[f32; 3]], found: &mut Vec<u32>) -> bool {
        let mut tile = Tile::default();
        let mut tiles = atoms.chunks(TILE);
        tiles.all(|atoms| self.find_in_tile(atoms, &mut tile, found))
    }

    /// Append the voxels of the atoms of a tile to `found`. Return false if a position is not
    /// finite.
    fn find_in_tile(&self, atoms: &[[f32; 3]], tile: &mut Tile, found: &mut Vec<u32>) -> bool {
        assign(atoms, None, &self.rough, tile);
        let (n_y, n_z) = (self.bins[1].len() as u32, self.bins[2].len() as u32);
        for (i, atom) in atoms.iter().enumerate() {
            let assigned = if tile.doubts[i] == 0 {
                Some([tile.bins[0][i], tile.bins[1][i], tile.bins[2][i]])
            } else if atom.iter().all(|x| x.is_finite()) {
                self.bins_of(atom.map(f64::from))
            } else {
                return false;
            };
            found.extend(assigned.map(|[x, y, z]| (x * n_y + y) * n_z + z));
        }
        true
    }

    fn bins_of(&self, atom: [f64; 3]) -> Option<[u32; 3]> {
        let within = |(bins, &x): (&Bins, &f64)| bins.first() <= x && x <= bins.end();
        let [x, y, z] = std::array::from_fn(|axis| self.bins[axis].nearest(atom[axis]) as u32);
        self.bins.iter().zip(&atom).all(within).then_some([x, y, z])
    }
}

/// Mass and charge in each bin of each axis, in partial sums.
struct Sums {
    n_bins: usize,
    of_bins: Vec<[[f64; 2]; LANES]>,
}

impl Profiles {
    /// Create profiles. `compounds` contains the compound and the mass of each atom. `weights`
    /// contains mass and charge of each compound, or of each atom if there are no compounds.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths of the slices do not match, there are no bins, or a
    /// compound has no mass.
    pub fn new(
        columns: &[usize],
        weights: &[[f64; 2]],
        compounds: Option<Vec<(usize, f64)>>,
        n_bins: usize,
    ) -> Result<Self> {
        let refuse = |reason: &str| Err(Error::Argument(reason.to_string()));
        if n_bins == 0 {
            return refuse("a density needs bins");
        }
        if let Some(of_atom) = &compounds {
            check_len("compounds of atoms", of_atom.len(), columns.len())?;
            if of_atom
                .iter()
                .any(|&(compound, _)| compound >= weights.len())
            {
                return refuse("a compound has no weights");
            }
            if weights.iter().any(|&[mass, _]| mass == 0.0) {
                return refuse("a compound has no mass");
            }
        } else {
            check_len("masses and charges", weights.len(), columns.len())?;
        }
        Ok(Profiles {
            columns: Columns::new(columns),
            weights: weights.to_vec(),
            compounds: compounds.map(|of_atom| Compounds { of_atom }),
            n_bins,
        })
    }

    /// Fill a row from the positions of the atoms.
    fn fill(&self, x: &[f32], cell: &Cell, sums: &mut Sums, row: &mut [f64]) -> Result<(), String> {
        sums.of_bins.fill([[0.0; 2]; LANES]);
        let brick = Brick::new(cell, self.n_bins, self.compounds.is_none());
        match &self.compounds {
            None => brick.add_atoms(x, &self.weights, sums)?,
            Some(compounds) => {
                let centers = compounds.centers(x, &self.weights);
                brick.add_centers(&centers, cell, &self.weights, sums)?;
            }
        }
        let edges = brick.edges.map(f64::from);
        let width = brick.bins.end() / self.n_bins as f64;
        let slices: [f64; 3] = std::array::from_fn(|axis| cell.volume() / edges[axis] * width);
        let (profiles, rest) = row.split_at_mut(6 * self.n_bins);
        let axes = profiles.chunks_exact_mut(2 * self.n_bins);
        let of_axes = sums.of_bins.chunks_exact(self.n_bins);
        for ((profiles, of_bins), slice) in axes.zip(of_axes).zip(slices) {
            let (masses, charges) = profiles.split_at_mut(self.n_bins);
            for ((mass, charge), [a, b]) in masses.iter_mut().zip(charges).zip(of_bins) {
                *mass = (a[0] + b[0]) / slice;
                *charge = (a[1] + b[1]) / slice;
            }
        }
        rest[0] = brick.bins.end();
        rest[1..].copy_from_slice(&slices);
        Ok(())
    }
}

impl RowKernel for Profiles {
    fn conversion(&self) -> FrameConversion {
        FrameConversion::Upright
    }

    /// Return the length of a row. For each axis, a row contains the mass density in each bin, and
    /// then the charge density in each bin. After these, it contains the end of the last bin, and
    /// the volume of a bin along each axis.
    fn n_columns(&self) -> usize {
        6 * self.n_bins + 4
    }

    /// Compute rows. Densities are in units of the weights per Å³, the end of the last bin is in Å,
    /// and volumes are in Å³. Frames with positions that are not finite are refused.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        let mut sums = Sums {
            n_bins: self.n_bins,
            of_bins: vec![[[0.0; 2]; LANES]; 3 * self.n_bins],
        };
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            let cell = Cell::new(dimensions);
            let cell = cell.map_err(|no_cell| no_cell.reason("a density along an axis"))?;
            let positions = self.columns.pick(frame, &mut scratch);
            self.fill(positions, &cell, &mut sums, row)
        })
    }
}

impl Compounds {
    /// Compute the centers of mass of the compounds from unwrapped positions, Å.
    fn centers(&self, x: &[f32], weights: &[[f64; 2]]) -> Vec<[f64; 3]> {
        let mut centers = vec![[0.0; 3]; weights.len()];
        for (&(compound, mass), x) in self.of_atom.iter().zip(x.as_chunks::<3>().0) {
            for (sum, &x) in centers[compound].iter_mut().zip(x) {
                *sum += mass * f64::from(x);
            }
        }
        for (center, &[mass, _]) in centers.iter_mut().zip(weights) {
            *center = center.map(|sum| sum / mass);
        }
        centers
    }
}

impl Brick {
    /// Create the brick of a cell, with the bin edges of `numpy.histogram`. `single` is true if the
    /// positions are in single precision.
    fn new(cell: &Cell, n_bins: usize, single: bool) -> Self {
        let edges: [f32; 3] = std::array::from_fn(|i| cell.vectors()[i][i] as f32);
        let longest = f64::from(edges[0].max(edges[1]).max(edges[2]));
        let bins = Bins::even(longest, n_bins, single);
        let rough = FastBins::new(&bins);
        Brick {
            edges,
            into: ApplyPbc::brick(cell.vectors()),
            rough: edges.map(|end| FastBins { end, ..rough }),
            bins,
        }
    }

    fn add_atoms(&self, x: &[f32], weights: &[[f64; 2]], sums: &mut Sums) -> Result<(), String> {
        let atoms = x.as_chunks::<3>().0;
        if part_len(atoms.len(), MANY) >= atoms.len() {
            return self.visit(atoms, |i, bins| sums.add(i % LANES, bins, &weights[i]));
        }
        // One thread adds up the numbers of an axis, so that those of a bin are added in the order
        // of atoms.
        let mut bins = vec![[0; 3]; atoms.len()];
        let found = change(&mut bins, MANY, |first, bins| {
            let some = &atoms[first..first + bins.len()];
            self.visit(some, |i, of_atom| bins[i] = of_atom.map(|bin| bin as u32))
        });
        found.into_iter().collect::<Result<(), String>>()?;
        let axes = sums.of_bins.chunks_exact_mut(sums.n_bins).enumerate();
        compute_parts(axes, |(axis, sums)| {
            for (i, (bins, [mass, charge])) in bins.iter().zip(weights).enumerate() {
                let sums = &mut sums[bins[axis] as usize][i % LANES];
                sums[0] += mass;
                sums[1] += charge;
            }
        });
        Ok(())
    }

    /// Call `put` with the index and the bins of each atom.
    fn visit(
        &self,
        atoms: &[[f32; 3]],
        mut put: impl FnMut(usize, [usize; 3]),
    ) -> Result<(), String> {
        let mut tile = Tile::default();
        for (atoms, first) in atoms.chunks(TILE).zip((0..).step_by(TILE)) {
            assign(atoms, Some(&self.into), &self.rough, &mut tile);
            for (i, &x) in atoms.iter().enumerate() {
                let bins = if tile.doubts[i] == 0 {
                    std::array::from_fn(|axis| tile.bins[axis][i] as usize)
                } else {
                    self.bins_of(x)?
                };
                put(first + i, bins);
            }
        }
        Ok(())
    }

    fn bins_of(&self, x: [f32; 3]) -> Result<[usize; 3], String> {
        if !x.iter().all(|x| x.is_finite()) {
            return Err(NOT_FINITE.to_string());
        }
        Ok(in_cell(&self.into, x)?.map(|x| self.bins.nearest(x.into())))
    }

    fn add_centers(
        &self,
        centers: &[[f64; 3]],
        cell: &Cell,
        weights: &[[f64; 2]],
        sums: &mut Sums,
    ) -> Result<(), String> {
        for (i, (&center, weight)) in centers.iter().zip(weights).enumerate() {
            if !center.iter().all(|x| x.is_finite()) {
                return Err(NOT_FINITE.to_string());
            }
            let mut home = center;
            for axis in [2, 1, 0] {
                let vector = cell.vectors()[axis];
                let number = (home[axis] / vector[axis]).floor();
                home = std::array::from_fn(|i| home[i] - number * vector[i]);
            }
            sums.add(i % LANES, home.map(|x| self.bins.nearest(x)), weight);
        }
        Ok(())
    }
}

impl Sums {
    #[inline]
    fn add(&mut self, lane: usize, bins: [usize; 3], &[mass, charge]: &[f64; 2]) {
        for (axis, bin) in bins.into_iter().enumerate() {
            let sums = &mut self.of_bins[axis * self.n_bins + bin][lane];
            sums[0] += mass;
            sums[1] += charge;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::count_indices;
    use crate::tests::Random;

    const CELLS: [[f32; 6]; 3] = [
        [30.0, 40.0, 50.0, 90.0, 90.0, 90.0],
        [80.017, 80.017, 80.017, 60.0, 60.0, 90.0],
        [25.0, 40.0, 31.0, 85.0, 95.0, 120.0],
    ];

    fn row(profiles: &Profiles, frame: &[f32], cell: [f32; 6]) -> Result<Vec<f64>, String> {
        let mut row = vec![0.0; profiles.n_columns()];
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        match profiles.compute(&frames, &mut row).expect("atoms") {
            None => Ok(row),
            Some((_, reason)) => Err(reason),
        }
    }

    /// Compute the mass in each bin along each axis, atom by atom.
    fn plain(frame: &[f32], cell: [f32; 6], masses: &[[f64; 2]], n_bins: usize) -> Vec<f64> {
        let cell = Cell::new(cell).expect("a cell");
        let brick = Brick::new(&cell, n_bins, true);
        let mut found = vec![0.0; 3 * n_bins];
        for (x, [mass, _]) in frame.as_chunks::<3>().0.iter().zip(masses) {
            let home = brick.into.apply(*x).expect("near");
            for (axis, x) in home.into_iter().enumerate() {
                found[axis * n_bins + brick.bins.nearest(x.into())] += mass;
            }
        }
        found
    }

    #[test]
    fn many_atoms_are_counted_as_one_by_one() {
        let mut random = Random(61);
        for cell in CELLS {
            for (n_atoms, n_bins, size) in [(1, 1, 20.0), (203, 57, 60.0), (700, 20_000, 400.0)] {
                let frame = random.structure(n_atoms, size, 30.0);
                let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
                let masses: Vec<[f64; 2]> = (0..n_atoms).map(|i| [(i % 9) as f64, 1.0]).collect();
                let columns: Vec<usize> = (0..n_atoms).collect();
                let profiles = Profiles::new(&columns, &masses, None, n_bins).expect("atoms");
                let row = row(&profiles, &frame, cell).expect("a row");
                let slices = &row[6 * n_bins + 1..];
                for (axis, wanted) in plain(&frame, cell, &masses, n_bins)
                    .chunks(n_bins)
                    .enumerate()
                {
                    let found = &row[2 * axis * n_bins..][..2 * n_bins];
                    for (found, wanted) in found.iter().zip(wanted) {
                        assert!((found * slices[axis] - wanted).abs() < 1e-9);
                    }
                    let charge: f64 = found[n_bins..].iter().sum();
                    assert!((charge * slices[axis] - n_atoms as f64).abs() < 1e-9 * n_atoms as f64);
                }
            }
        }
    }

    #[test]
    fn compounds_are_at_their_centers() {
        // Two compounds of two atoms with unequal masses. The center of the second compound is
        // outside the cell.
        let frame = [
            1.0, 1.0, 1.0, 29.0, 3.0, 5.0, 10.0, 10.0, 49.0, 10.0, 10.0, 52.0,
        ];
        let of_atom = vec![(0, 3.0), (0, 1.0), (1, 1.0), (1, 1.0)];
        let weights = [[4.0, 0.5], [2.0, -1.0]];
        let profiles = Profiles::new(&[0, 1, 2, 3], &weights, Some(of_atom), 50).expect("atoms");
        let row = row(&profiles, &frame, CELLS[0]).expect("a row");
        let full: Vec<usize> = (0..300).filter(|&i| row[i] != 0.0).collect();
        assert_eq!(
            full,
            [8, 10, 58, 60, 101, 110, 151, 160, 200, 202, 250, 252]
        );
        assert_eq!(row[300..], [50.0, 2000.0, 1500.0, 1200.0]);
        assert_eq!((row[8], row[60], row[202]), (0.002, -0.0005, 4.0 / 1200.0));
    }

    #[test]
    fn no_atoms_have_no_density() {
        let wanted = [&[0.0; 24][..], &[50.0, 25000.0, 18750.0, 15000.0]].concat();
        let frame = [1.0, 2.0, 3.0];
        for compounds in [None, Some(Vec::new())] {
            let profiles = Profiles::new(&[], &[], compounds, 4).expect("bins");
            let row = row(&profiles, &frame, CELLS[0]).expect("a row");
            assert_eq!(row, wanted);
        }
    }

    #[test]
    fn voxels_are_those_of_one_by_one() {
        let mut random = Random(62);
        for (low, size, n_bins) in [(-20.0, 60.0, [7, 30, 61]), (4000.0, 3.0, [3, 999, 2])] {
            let edges = n_bins.map(|n: usize| -> Vec<f64> {
                (0..=n).map(|i| low + size * i as f64 / n as f64).collect()
            });
            let mut frame: Vec<f32> = random
                .structure(500, 0.7 * size, low + 0.5 * size)
                .iter()
                .map(|&x| x as f32)
                .collect();
            frame.extend([low as f32; 3]);
            frame.extend([(low + size) as f32; 3]);
            let columns: Vec<usize> = (0..502).collect();
            let voxels = Voxels::new(&columns, edges.each_ref().map(|e| &e[..])).expect("a grid");
            let found = voxels.find(&frame, 502).expect("a frame").expect("numbers");
            let plain = |x: f32, edges: &[f64]| {
                let x = f64::from(x);
                let n_bins = edges.len() - 1;
                match edges.partition_point(|&edge| edge <= x) {
                    0 => None,
                    _ if x == edges[n_bins] => Some(n_bins - 1),
                    past => (past <= n_bins).then_some(past - 1),
                }
            };
            let mut wanted = Vec::new();
            for x in frame.as_chunks::<3>().0 {
                let bins = [0, 1, 2].map(|axis| plain(x[axis], &edges[axis]));
                if let [Some(x), Some(y), Some(z)] = bins {
                    wanted.push(((x * n_bins[1] + y) * n_bins[2] + z) as u32);
                }
            }
            assert!(wanted.len() > 100 && wanted.len() < 502);
            assert_eq!(found, wanted);
            let mut counts = vec![0; n_bins.iter().product()];
            count_indices(&found, &mut counts).expect("voxels");
            assert_eq!(counts.iter().sum::<u64>(), found.len() as u64);
            assert!(count_indices(&[counts.len() as u32], &mut counts).is_err());
            frame[7] = f32::NAN;
            assert!(voxels.find(&frame, 502).expect("a frame").is_err());
        }
        let (few, many) = ([0.0, 1.0], (0..3000).map(f64::from).collect::<Vec<_>>());
        assert!(Voxels::new(&[], [&few, &few, &few]).is_err());
        assert!(Voxels::new(&[0], [&few, &few, &few[..1]]).is_err());
        assert!(Voxels::new(&[0], [&many, &many, &many]).is_err());
    }

    #[test]
    fn what_has_no_density_is_refused() {
        let weights = [[1.0, 0.0]; 2];
        let profiles = Profiles::new(&[0, 1], &weights, None, 5).expect("atoms");
        for x in [f32::NAN, f32::INFINITY] {
            let found = row(&profiles, &[1.0, 2.0, 3.0, 1.0, x, 1.0], CELLS[1]);
            assert_eq!(found, Err(NOT_FINITE.to_string()));
        }
        let frame = [1.0, 2.0, 3.0, 1e30, 1.0, 1.0];
        assert!(row(&profiles, &frame, CELLS[1]).is_err_and(|reason| reason.contains("too far")));
        assert!(row(&profiles, &frame, [0.0; 6]).is_err_and(|reason| reason.contains("no cell")));
        assert!(Profiles::new(&[0, 1], &weights[..1], None, 5).is_err());
        assert!(Profiles::new(&[0, 1], &weights, None, 0).is_err());
        assert!(Profiles::new(&[0], &weights, Some(vec![(2, 1.0)]), 5).is_err());
        assert!(Profiles::new(&[0], &[[0.0, 1.0]], Some(vec![(0, 0.0)]), 5).is_err());
    }
}
