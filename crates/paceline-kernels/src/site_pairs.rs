//! Distances between single atoms, for pairs of groups, counted in bins: what site-specific radial
//! distribution functions are made of.
//!
//! Distances are those of `MDAnalysis.lib.distances.capped_distance` to the last bit, as in
//! [`crate::rdf`]. Atoms are sorted into one cell list a frame, however many pairs of groups look
//! for neighbours in it.

use super::cell::{ApplyPbc, Cell, NoCell, nearest_in, square};
use super::cell_list::{CellColumns, Grid, Points};
use super::histogram::largest_square;
use super::rdf::are_searched_by_cells;
use super::row_kernel::Frames;
use super::transform::Refused;
use super::{Columns, check_len};
use paceline_base::error::{self, Error};

/// From so many atoms on that look for neighbours in a group, a cell list of it pays.
const MANY: usize = 32;
/// Longest edges of a cell, so far from which single precision still finds the same neighbours.
const NEAR: f32 = 16.0;

const NEEDED_BY: &str = "norm='rdf'";

/// Bins of equal width, assigned by truncation as `MDAnalysis.analysis.rdf.InterRDF_s` does: the end of
/// the last one belongs to none.
#[derive(Debug, Clone, Copy)]
pub struct Bins {
    begin: f64,
    end: f64,
    number: usize,
    /// The largest square of a distance up to the end, Å².
    most: f64,
}

impl Bins {
    /// # Errors
    /// [`Error::Argument`] if there are no bins, or they do not end above 0 and their beginning.
    pub fn new((begin, end): (f64, f64), number: usize) -> error::Result<Self> {
        if number == 0 || !begin.is_finite() || !end.is_finite() || end <= begin.max(0.0) {
            return Err(Error::Argument(format!(
                "there are no {number} bins from {begin} to {end} Å"
            )));
        }
        Ok(Bins {
            begin,
            end,
            number,
            most: largest_square(end),
        })
    }

    #[inline]
    fn of(&self, square: f64) -> Option<usize> {
        let from_begin = square.sqrt() - self.begin;
        let bin = (from_begin * self.number as f64 / (self.end - self.begin)) as usize;
        (from_begin >= 0.0 && bin < self.number).then_some(bin)
    }
}

/// Groups of atoms, pairs of them, and the bins of their atoms' distances.
#[derive(Debug, Clone)]
pub struct SitePairs {
    groups: Vec<Columns>,
    pairs: Vec<Pair>,
    bins: Bins,
    /// Atoms that look for neighbours in each group.
    n_seekers: Vec<usize>,
    needs_cell: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    groups: [usize; 2],
    /// Index of the first bin of the first atoms.
    first_bin: usize,
}

/// The positions of a group in one frame, and what was made of them.
#[derive(Default)]
struct Members {
    positions: Vec<[f32; 3]>,
    /// Brought into the cell.
    within: Option<Vec<[f32; 3]>>,
    points: Option<Points>,
    cell_columns: Option<CellColumns>,
}

impl SitePairs {
    /// The atoms of the groups follow each other in `columns`, `sizes` of each; `pairs` has two
    /// groups each. Frames without a cell are refused if it `needs_cell`.
    ///
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms, a pair names no group, or there are 2³² bins or
    /// more of all pairs of atoms.
    pub fn new(
        columns: &[usize],
        sizes: &[usize],
        pairs: &[usize],
        bins: Bins,
        needs_cell: bool,
    ) -> error::Result<Self> {
        check_len("atoms", columns.len(), sizes.iter().sum())?;
        let refuse = |reason: &str| Err(Error::Argument(reason.to_string()));
        let (pairs_of_groups, rest) = pairs.as_chunks::<2>();
        if sizes.contains(&0) || pairs.is_empty() || !rest.is_empty() {
            return refuse("expected groups of atoms, and pairs of these");
        }
        let mut n_seekers = vec![0; sizes.len()];
        let (mut pairs, mut n_bins) = (Vec::new(), 0_usize);
        for &[first, second] in pairs_of_groups {
            let (Some(n), Some(m)) = (sizes.get(first), sizes.get(second)) else {
                return refuse("a pair names a group that there is not");
            };
            pairs.push(Pair {
                groups: [first, second],
                first_bin: n_bins,
            });
            n_bins = n_bins.saturating_add(n.saturating_mul(*m).saturating_mul(bins.number));
            n_seekers[second] += n;
        }
        if u32::try_from(n_bins).is_err() {
            return refuse("pairs of atoms have 2³² bins or more");
        }
        let mut rest = columns;
        let mut group = |&size: &usize| {
            let (columns, others) = rest.split_at(size);
            rest = others;
            Columns::new(columns)
        };
        Ok(SitePairs {
            groups: sizes.iter().map(&mut group).collect(),
            pairs,
            bins,
            n_seekers,
            needs_cell,
        })
    }

    /// The bin of each distance within them, in all frames, and the sum of the cells' volumes (Å³);
    /// or the first frame that cannot be counted, and why. Atom i of a pair's first group and j of
    /// the second, of m, have bins from i m + j on, times their number, after those of the pairs
    /// before.
    ///
    /// # Errors
    /// [`Error::Argument`] if the frames have no such atoms.
    pub fn find(&self, frames: &Frames<'_>) -> error::Result<Result<(Vec<u32>, f64), Refused>> {
        for columns in &self.groups {
            columns.check(frames.n_atoms())?;
        }
        let (mut found, mut volume) = (Vec::new(), 0.0);
        let mut members: Vec<_> = self.groups.iter().map(|_| Members::default()).collect();
        let mut scratch = Vec::new();
        let refused = frames.try_each(|frame, dimensions| {
            for (columns, members) in self.groups.iter().zip(&mut members) {
                members.set(columns.pick(frame, &mut scratch).as_chunks().0)?;
            }
            match Cell::new(dimensions) {
                Ok(cell) => {
                    self.find_in(&cell, &mut members, &mut found)?;
                    volume += cell.volume();
                }
                Err(NoCell::Missing) if !self.needs_cell => {
                    self.find_without_cell(&mut members, &mut found);
                }
                Err(no_cell) => return Err(no_cell.reason(NEEDED_BY)),
            }
            Ok(())
        });
        Ok(refused.map_or(Ok((found, volume)), Err))
    }

    fn find_in(
        &self,
        cell: &Cell,
        members: &mut [Members],
        found: &mut Vec<u32>,
    ) -> Result<(), String> {
        let end = self.bins.end;
        // A distance of half a height may be found in two images.
        let in_one_image = cell.is_near([end * (1.0 + 1e-9), 0.0, 0.0]);
        let edges: [f32; 3] = std::array::from_fn(|i| cell.vectors()[i][i] as f32);
        let longest = edges.iter().fold(0.0_f32, |most, &edge| most.max(edge));
        let pbc = ApplyPbc::new(cell.vectors());
        let largest = self.groups.iter().map(Columns::len).max();
        let grid = in_one_image.then(|| Grid::of_cell(cell.vectors(), end, largest.unwrap_or(1)));
        for pair in &self.pairs {
            let [first, second] = pair.groups;
            let sizes = pair.groups.map(|group| members[group].positions.len());
            // Which way MDAnalysis takes decides how distances are rounded.
            let by_cells = in_one_image && are_searched_by_cells(sizes, end, edges);
            let is_home = |group: usize| members[group].are_within(NEAR * longest);
            let pays = self.n_seekers[second] >= MANY && is_home(first) && is_home(second);
            let is_moved = cell.is_triclinic() || by_cells;
            if is_moved || in_one_image && pays {
                for group in pair.groups {
                    members[group].bring(&pbc)?;
                }
            }
            let mut bins = Found::new(self, pair, sizes[1], found);
            match &grid {
                Some(grid) if is_moved => {
                    members[second].sort(grid);
                    let cell_columns = members[second].cell_columns();
                    for (i, &at) in members[first].within().iter().enumerate() {
                        grid.visit_near(at, cell_columns, |points, row, shift| {
                            let square = shifted_square(shift);
                            points.visit_within(at, row, square, self.bins.most, |j, square| {
                                bins.add(i, points.label(j) as usize, square);
                            });
                        });
                    }
                }
                Some(grid) if pays => {
                    members[second].sort(grid);
                    let (cell_columns, theirs) =
                        (members[second].cell_columns(), &members[second].positions);
                    let nearest = nearest_in(edges);
                    let most = grid.reach() * grid.reach();
                    for (i, &at) in members[first].within().iter().enumerate() {
                        let x = members[first].positions[i];
                        grid.visit_near(at, cell_columns, |points, row, shift| {
                            let square = shifted_square(shift);
                            points.visit_within(at, row, square, most, |j, _| {
                                let j = points.label(j) as usize;
                                bins.add(i, j, nearest(difference(x, theirs[j])));
                            });
                        });
                    }
                }
                _ if is_moved => {
                    let nearest = |d| square(cell.shifted(d, cell.nearest_images(d)));
                    let points = members[second].points_within();
                    bins.add_all(members[first].within(), &points, nearest);
                }
                _ => {
                    members[second].make_points();
                    let points = members[second].points();
                    bins.add_all(&members[first].positions, points, nearest_in(edges));
                }
            }
        }
        Ok(())
    }

    fn find_without_cell(&self, members: &mut [Members], found: &mut Vec<u32>) {
        let end = self.bins.end;
        for pair in &self.pairs {
            let second = pair.groups[1];
            let mut positions = pair.groups.map(|group| members[group].positions.clone());
            let sizes = positions.each_ref().map(Vec::len);
            let (least, most) = extent(&positions);
            let edges = std::array::from_fn(|axis| most[axis] - least[axis]);
            let mut bins = Found::new(self, pair, sizes[1], found);
            if !are_searched_by_cells(sizes, end, edges) {
                members[second].make_points();
                bins.add_all(&positions[0], members[second].points(), square);
                continue;
            }
            // MDAnalysis moves the atoms into a box of its own, and rounds.
            let origin = least.map(|x| x - (0.1 * end) as f32);
            for x in positions.iter_mut().flatten() {
                *x = std::array::from_fn(|axis| x[axis] - origin[axis]);
            }
            let (least, most) = extent(&positions);
            let extent = std::array::from_fn(|axis| least[axis]..most[axis]);
            let grid = Grid::of_extent(&extent, end, sizes[1]);
            let cell_columns = grid.sort(&positions[1], &labels(sizes[1]));
            for (i, &at) in positions[0].iter().enumerate() {
                grid.visit_near(at, &cell_columns, |points, row, _| {
                    points.visit_within(at, row, square, self.bins.most, |j, square| {
                        bins.add(i, points.label(j) as usize, square);
                    });
                });
            }
        }
    }
}

impl Members {
    /// # Errors
    /// One sentence where a position is not finite.
    fn set(&mut self, positions: &[[f32; 3]]) -> Result<(), String> {
        if !positions.iter().flatten().all(|x| x.is_finite()) {
            return Err("positions are not all finite numbers".to_string());
        }
        self.positions.clear();
        self.positions.extend_from_slice(positions);
        (self.within, self.points, self.cell_columns) = (None, None, None);
        Ok(())
    }

    fn are_within(&self, limit: f32) -> bool {
        self.positions.iter().flatten().all(|x| x.abs() <= limit)
    }

    fn bring(&mut self, pbc: &ApplyPbc) -> Result<(), String> {
        if self.within.is_some() {
            return Ok(());
        }
        let bring = |x: &[f32; 3]| {
            pbc.apply(*x).ok_or_else(|| {
                format!("an atom at {x:?} Å is too far away to be put into the cell")
            })
        };
        self.within = Some(self.positions.iter().map(bring).collect::<Result<_, _>>()?);
        Ok(())
    }

    fn within(&self) -> &[[f32; 3]] {
        self.within.as_deref().unwrap_or_default()
    }

    fn sort(&mut self, grid: &Grid) {
        if self.cell_columns.is_none() {
            let labels = labels(self.positions.len());
            self.cell_columns = Some(grid.sort(self.within(), &labels));
        }
    }

    fn cell_columns(&self) -> &CellColumns {
        self.cell_columns.as_ref().expect("sorted")
    }

    fn make_points(&mut self) {
        if self.points.is_none() {
            self.points = Some(points_of(&self.positions));
        }
    }

    fn points(&self) -> &Points {
        self.points.as_ref().expect("made")
    }

    fn points_within(&self) -> Points {
        points_of(self.within())
    }
}

/// Takes the distances of a pair of groups.
struct Found<'a> {
    bins: Bins,
    first_bin: usize,
    n_second: usize,
    found: &'a mut Vec<u32>,
}

impl<'a> Found<'a> {
    fn new(task: &SitePairs, pair: &Pair, n_second: usize, found: &'a mut Vec<u32>) -> Self {
        Found {
            bins: task.bins,
            first_bin: pair.first_bin,
            n_second,
            found,
        }
    }

    #[inline]
    fn add(&mut self, i: usize, j: usize, square: f64) {
        if square <= self.bins.most
            && let Some(bin) = self.bins.of(square)
        {
            let pair = i * self.n_second + j;
            let index = self.first_bin + pair * self.bins.number + bin;
            self.found.push(index as u32);
        }
    }

    /// Every pair, given what makes a square (Å²) of a difference of positions.
    fn add_all(&mut self, from: &[[f32; 3]], to: &Points, square: impl Fn([f64; 3]) -> f64) {
        for (i, &at) in from.iter().enumerate() {
            to.visit_within(at, 0..to.len(), &square, self.bins.most, |j, square| {
                self.add(i, j, square);
            });
        }
    }
}

fn shifted_square(shift: [f64; 3]) -> impl Fn([f64; 3]) -> f64 {
    move |d| square([0, 1, 2].map(|axis| d[axis] - shift[axis]))
}

fn difference(x: [f32; 3], y: [f32; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| f64::from(x[axis] - y[axis]))
}

fn labels(n_atoms: usize) -> Vec<u32> {
    (0..n_atoms as u32).collect()
}

fn points_of(positions: &[[f32; 3]]) -> Points {
    Points::new(positions, &[], 0..positions.len())
}

/// Least and largest coordinate of both groups along each axis, Å.
fn extent(groups: &[Vec<[f32; 3]>; 2]) -> ([f32; 3], [f32; 3]) {
    let (mut least, mut most) = ([f32::INFINITY; 3], [f32::NEG_INFINITY; 3]);
    for x in groups.iter().flatten() {
        for axis in 0..3 {
            least[axis] = least[axis].min(x[axis]);
            most[axis] = most[axis].max(x[axis]);
        }
    }
    (least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdf::{Group, Rdf};
    use crate::tests::Random;

    const CELLS: [[f32; 6]; 4] = [
        [40.0, 44.0, 48.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 40.0, 60.0, 60.0, 90.0],
        [50.0, 40.0, 45.0, 80.0, 100.0, 115.0],
        [0.0; 6],
    ];

    /// Counts of all pairs of atoms, one after the other.
    fn counts(task: &SitePairs, frame: &[f32], cell: [f32; 6], n_counts: usize) -> Vec<u64> {
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        let (found, _) = task.find(&frames).expect("atoms").expect("a cell");
        let mut counts = vec![0; n_counts];
        for bin in found {
            counts[bin as usize] += 1;
        }
        counts
    }

    #[test]
    fn pairs_of_atoms_have_the_sum_of_the_groups() {
        let mut random = Random(81);
        for cell in CELLS {
            // Few and many atoms, that look for few and many.
            for (n, m, end) in [
                (2, 90, 9.0),
                (50, 200, 11.3),
                (50, 200, 17.0),
                (40, 5, 30.0),
            ] {
                let frame = random.structure(n + m, 18.0, 25.0);
                let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
                let columns: Vec<usize> = (0..n + m).collect();
                let bins = Bins::new((0.0, end), 40).expect("bins");
                let task = SitePairs::new(&columns, &[n, m], &[0, 1, 1, 0], bins, false);
                let task = task.expect("pairs");
                let found = counts(&task, &frame, cell, 2 * n * m * 40);
                let edges: Vec<f64> = (0..=40).map(|k| end * k as f64 / 40.0).collect();
                let group = |columns: &[usize]| Group::new(columns, None).expect("a group");
                let groups = (group(&columns[..n]), Some(group(&columns[n..])));
                let all = Rdf::new(&edges, groups.0, groups.1, false).expect("edges");
                let mut wanted = vec![0; 40];
                let counted = all.count(&frame, n + m, &cell, &mut wanted);
                counted.expect("a frame").expect("a cell");
                for half in found.chunks_exact(n * m * 40) {
                    let sums: Vec<u64> = (0..40)
                        .map(|bin| half[bin..].iter().step_by(40).sum())
                        .collect();
                    assert_eq!(sums, wanted, "{cell:?}, {n} and {m} to {end} Å");
                }
                assert!(wanted.iter().sum::<u64>() > n as u64, "{cell:?} {n}");
                // The same pair, seen from the other group.
                let (there, back) = found.split_at(n * m * 40);
                for i in 0..n {
                    for j in 0..m {
                        let bins = |first: usize| first * 40..(first + 1) * 40;
                        assert_eq!(there[bins(i * m + j)], back[bins(j * n + i)]);
                    }
                }
            }
        }
    }

    #[test]
    fn bins_are_truncated() {
        let bins = Bins::new((2.0, 5.0), 3).expect("bins");
        let found = [1.5, 1.999, 2.0, 2.999, 3.0, 4.999, 5.0, 7.0].map(|r| bins.of(r * r));
        let wanted = [None, None, Some(0), Some(0), Some(1), Some(2), None, None];
        assert_eq!(found, wanted);
        for (range, number) in [((0.0, 5.0), 0), ((5.0, 5.0), 3), ((-5.0, 0.0), 3)] {
            assert!(Bins::new(range, number).is_err());
        }
        assert!(Bins::new((0.0, f64::INFINITY), 3).is_err());
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let bins = Bins::new((0.0, 5.0), 5).expect("bins");
        let make =
            |sizes: &[usize], pairs: &[usize]| SitePairs::new(&[0, 1, 2], sizes, pairs, bins, true);
        assert!(make(&[1, 1], &[0, 1]).is_err());
        assert!(make(&[3, 0], &[0, 1]).is_err());
        assert!(make(&[1, 2], &[]).is_err());
        assert!(make(&[1, 2], &[0, 2]).is_err());
        let huge = Bins::new((0.0, 5.0), 1 << 31).expect("bins");
        assert!(SitePairs::new(&[0, 1, 2], &[1, 2], &[0, 1], huge, true).is_err());
        let task = make(&[1, 2], &[0, 1]).expect("pairs");
        let run = |x: f32, cell: &[f32; 6]| {
            let frame = [1.0, 2.0, 3.0, 3.0, 4.0, 5.0, x, 2.0, 3.0];
            task.find(&Frames::new(&frame, 3, cell).expect("a frame"))
        };
        for (x, cell, reason) in [
            (f32::NAN, CELLS[0], "not all finite"),
            (1.0, CELLS[3], "no cell, which norm='rdf' needs"),
            (1.0, [9.0, 9.0, 9.0, 90.0, 90.0, 180.0], "make no cell"),
            (1e30, CELLS[1], "too far away"),
        ] {
            let (row, found) = run(x, &cell).expect("atoms").expect_err(reason);
            assert!(row == 0 && found.contains(reason), "{found}");
        }
        let (_, volume) = run(1e5, &CELLS[0]).expect("atoms").expect("a cell");
        assert_eq!(volume, 40.0 * 44.0 * 48.0);
    }
}
