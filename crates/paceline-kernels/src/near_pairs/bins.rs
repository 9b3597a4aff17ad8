//! Bins for the atoms of one group, and the search for atoms near them.
//!
//! Bins are aligned with the cell vectors. Without a cell, they fill the extent of the atoms. Atoms
//! at a cell face are repeated beyond the opposite face, so that no search wraps around. Each bin
//! is divided into parts, and parts that may be near a bin with atoms are marked. Positions have
//! single precision, with a margin for rounding. Distances that are uncertain in single precision
//! are computed by other code.
//!
//! Near pairs are rare in these searches, and most atoms have no near atom. Marks exclude such
//! atoms before any comparison, unlike the columns of [`crate::pair_counting_columns`].

use super::grid::{FEW_CELLS, Grid, Lanes, PARTS, PLACED, ROWS, mark_around};
use super::mdanalysis_rounding_and_order::Measure;
use super::{Atoms, Point, extent_of, finite};
use crate::instructions::{LANES, by_widest, low_bits, positive};
use crate::threads_within_frame::{compute_parts, part_len};

/// Maximum number of bins per atom, if the two groups have similar sizes.
const BINS: usize = 16;
/// Maximum number of bins per atom, if the searched group is much larger; most of its atoms are
/// then near no bin.
const BINS_OF_FEW: usize = 32;
/// Ratio of group sizes from which the searched group counts as much larger.
const MANY: usize = 2;
/// Number of atoms whose rows of bins are looked up together.
const SOME: usize = 64;
/// Minimum number of atoms in a part of a frame that one thread computes.
pub(super) const LEAST_ATOMS: usize = 2048;

/// Position in the cell, and the part of a bin that contains the position, along each vector.
#[derive(Debug, Clone, Copy, Default)]
struct WrappedAtom {
    x: Point,
    part: [u16; 3],
}

/// Atom that may be near atoms in the bins: its index, its bin, and its position in the cell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NearAtom {
    pub place: u32,
    bin: u32,
    x: Point,
}

/// Atoms in bins, and marks for the parts of bins that may be near an atom.
#[derive(Debug, Clone, Default)]
pub(super) struct Bins {
    grid: Grid,
    /// x, y and z (Å) of the atoms and their images, sorted by bin. The padding after the last atom
    /// is far from all positions.
    axes: [Vec<f32>; 3],
    /// Index in the group of each atom in `axes`, with padding.
    numbers: Vec<u32>,
    begins: Vec<u32>,
    /// Marks, one bit per part. Each row along a begins with a new word, and has `PARTS` more bits
    /// at both ends. The last word has no marks: positions outside all parts refer to it.
    marks: Vec<u64>,
    homes: Vec<WrappedAtom>,
    entries: Vec<(u32, u32, Point)>,
    /// Bit masks of the parts with atoms.
    occupied: Vec<u64>,
    /// Masks like `occupied`, in which nearby parts in the same row are set, too.
    spread: Vec<u64>,
}

impl Bins {
    /// Sort the atoms of `of` into bins. Collect in `near` the atoms of `others` that may be near
    /// any atom in the bins, in one list for each part of `others`.
    ///
    /// # Errors
    /// A message if a position is not finite, or cannot be wrapped into the cell.
    pub(super) fn fill(
        &mut self,
        measure: &Measure,
        of: Atoms<'_>,
        others: Atoms<'_>,
        near: &mut Vec<Vec<NearAtom>>,
    ) -> Result<(), String> {
        // Rounding errors grow with the distance of the atoms from the cell. If an atom is farther
        // away than assumed, the bins are made again.
        let mut largest = 0.0;
        loop {
            largest = self.put(measure, of, others.places.len(), largest)?;
            let farthest = self.near(others, near)?;
            if farthest <= largest {
                return Ok(());
            }
            largest = farthest;
        }
    }

    /// Collect the atoms that may be near any atom in the bins: one list for each part of `of`.
    /// Return the largest coordinate of the atoms that are at least `FEW_CELLS` away from the cell.
    fn near(&self, of: Atoms<'_>, near: &mut Vec<Vec<NearAtom>>) -> Result<f32, String> {
        let parts = of.places.chunks(part_len(of.places.len(), LEAST_ATOMS));
        near.resize_with(parts.len(), Vec::new);
        let farthest = compute_parts(parts.zip(near), |(places, near)| {
            find_near(self, Atoms { places, ..of }, near)
        });
        (farthest.into_iter()).try_fold(0.0, |most: f32, farthest| Ok(most.max(farthest?)))
    }

    /// Sort atoms into bins. `n_others` is the number of atoms in the other group, and `largest` is
    /// their largest coordinate (Å). Return the largest coordinate of both groups.
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
        let farthest = self.wrap_atoms(of)?;
        if farthest > largest {
            largest = farthest;
            self.grid = Grid::new(measure, n_bins, extent, largest);
            self.wrap_atoms(of)?;
        }
        if are_few {
            self.mark();
        } else {
            let [_, n1, n2] = self.grid.parts();
            self.marks.clear();
            self.marks.resize(self.grid.words() * n1 * n2, u64::MAX);
        }
        self.marks.push(0);
        self.sort();
        Ok(largest)
    }

    /// Wrap all atoms of the bins into the cell. Return the largest coordinate of the atoms that
    /// are at least `FEW_CELLS` away from the cell.
    fn wrap_atoms(&mut self, of: Atoms<'_>) -> Result<f32, String> {
        let len = part_len(of.places.len(), LEAST_ATOMS);
        self.homes.resize(of.places.len(), WrappedAtom::default());
        let parts = of.places.chunks(len).zip(self.homes.chunks_mut(len));
        let farthest = compute_parts(parts, |(places, homes)| {
            wrap_atoms(&self.grid, Atoms { places, ..of }, homes)
        });
        (farthest.into_iter()).try_fold(0.0, |most: f32, farthest| Ok(most.max(farthest?)))
    }

    /// Mark the parts of bins within reach of a part with atoms.
    fn mark(&mut self) {
        let ([n0, n1, n2], words) = (self.grid.parts(), self.grid.words());
        self.occupied.clear();
        self.occupied.resize(words * n1 * n2, 0);
        for home in &self.homes {
            let [i, j, k] = home.part.map(usize::from);
            let row = &mut self.occupied[words * (j + n1 * k)..][..words];
            let mut mark = |bit: usize| row[bit / 64] |= 1 << (bit % 64);
            mark(i + PARTS);
            // The neighbours beyond the end of a row are at the other end of the row.
            if i < PARTS {
                mark(i + n0 + PARTS);
            }
            if i + PARTS >= n0 {
                mark(i + PARTS - n0);
            }
        }
        mark_around(
            &self.grid,
            &self.occupied,
            &mut self.spread,
            &mut self.marks,
        );
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
            // Bins of the atom and of its images, along each vector.
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
        // Counting sort: the count of a bin is stored two entries later. Then the start of each
        // bin, which is stored one entry later, advances to the end of the bin.
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

    /// Collect pairs of an atom of `near` and an atom in the bins, if they may be near each other.
    /// A pair contains the index of the first atom in `near`, and of the second in its group.
    pub(super) fn pairs(&self, near: &[NearAtom], found: &mut Vec<[u32; 2]>) {
        find_pairs(self, near, found);
        if self.grid.pbc.is_some() && self.grid.n.iter().any(|&n| n < 3) {
            // Two images of an atom may give the same pair.
            found.sort_unstable();
            found.dedup();
        }
    }

    /// Return the begin and the end of the atoms in three adjacent bins of a row around a bin.
    #[inline(always)]
    fn row(&self, bin: u32, row: u32) -> [u32; 2] {
        let first = bin.wrapping_add(row) as usize;
        [self.begins[first], self.begins[first + 3]]
    }

    /// Return the coordinates as slices of equal length, so that the bounds are checked only once.
    #[inline(always)]
    fn axes(&self) -> [&[f32]; 3] {
        let n = self.axes[0].len();
        self.axes.each_ref().map(|axis| &axis[..n])
    }
}

/// Return the squared search distance minus the squared distances to `LANES` atoms, starting at an
/// index.
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

by_widest! {
    /// Wrap some atoms of the bins into the cell, as `Bins::wrap_atoms` does.
    fn wrap_atoms(grid: &Grid, of: Atoms<'_>, homes: &mut [WrappedAtom]) -> Result<f32, String> {
        let mut lanes = Lanes::default();
        let mut largest = 0.0_f32;
        for (some, homes) in of.places.chunks(PLACED).zip(homes.chunks_mut(PLACED)) {
            lanes.gather(&of, some);
            if lanes.wrap_atoms(grid) {
                largest = largest.max(grid.wrap_far_atoms(&of, some, &mut lanes)?);
            }
            for (lane, home) in homes.iter_mut().enumerate() {
                *home = WrappedAtom {
                    x: [0, 1, 2].map(|axis: usize| lanes.x[axis][lane]),
                    part: [0, 1, 2].map(|axis: usize| lanes.part[axis][lane] as u16),
                };
            }
        }
        Ok(largest)
    }
}

by_widest! {
    /// Collect the atoms that may be near any atom in the bins, as `Bins::near` does.
    ///
    /// # Errors
    /// As [`Bins::fill`].
    fn find_near(bins: &Bins, of: Atoms<'_>, near: &mut Vec<NearAtom>) -> Result<f32, String> {
        near.clear();
        let mut largest = 0.0_f32;
        let grid = &bins.grid;
        let [_, n1, _] = grid.parts().map(|n| n as u32);
        let [padded0, padded1, _] = grid.padded().map(|n| n as u32);
        let row = 64 * grid.words() as u32;
        let nowhere = 64 * (bins.marks.len() as u32 - 1);
        let mut lanes = Lanes::default();
        let (mut bits, mut at) = ([0_u32; PLACED], [0; PLACED]);
        for some in of.places.chunks(PLACED) {
            lanes.gather(&of, some);
            if lanes.wrap_atoms(grid) {
                largest = largest.max(grid.wrap_far_atoms(&of, some, &mut lanes)?);
            }
            for lane in 0..PLACED {
                let [i, j, k] = [0, 1, 2].map(|axis: usize| lanes.part[axis][lane]);
                let bit = i + PARTS as u32 + row * (j + n1 * k);
                bits[lane] = if lanes.away[lane] < FEW_CELLS { bit } else { nowhere };
                let [i, j, k] = [i, j, k].map(|part| part / PARTS as u32 + 1);
                at[lane] = i + padded0 * (j + padded1 * k);
            }
            let mut marked = 0_u64;
            for (lane, &bit) in bits.iter().enumerate().take(some.len()) {
                marked |= (bins.marks[bit as usize / 64] >> (bit % 64) & 1) << lane;
            }
            while marked != 0 {
                let lane = marked.trailing_zeros() as usize % PLACED;
                near.push(NearAtom {
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
    /// Collect pairs of atoms that may be near each other, as `Bins::pairs` does. Pairs may be
    /// repeated.
    fn find_pairs(bins: &Bins, near: &[NearAtom], found: &mut Vec<[u32; 2]>) {
        let rows = bins.grid.rows();
        let (axes, most) = (bins.axes(), bins.grid.most);
        let mut runs = [[0; 3]; SOME * ROWS.len()];
        let mut n_found = 0;
        for (some, numbers) in near.chunks(SOME).zip((0..).step_by(SOME)) {
            // Branch-free loop: each row is written, and kept only if it has atoms.
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
                    if bits == 0 {
                        continue;
                    }
                    if found.len() < n_found + LANES {
                        found.resize(2 * (n_found + LANES), [0; 2]);
                    }
                    // Up to two pairs are found without branches: each is written, and kept only if
                    // it is a pair.
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
    /// Mark the atoms of `near` that are certainly near an atom in the bins (`Grid::sure`). For the
    /// other atoms, collect the pairs that may be near each other (`Grid::most`).
    pub(super) fn mark_near(
        bins: &Bins,
        near: &[NearAtom],
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
            // Branch-free loop, as in `find_pairs`.
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
                        // Lanes beyond the end of the row contain atoms of later bins. If one of
                        // these is near, the mark is correct, too.
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
