//! Histograms of the distances between single atoms, for pairs of groups. They are the input of
//! site-specific radial distribution functions.
//!
//! Distances have the same bits as those of `MDAnalysis.lib.distances.capped_distance`.
//! [`crate::near_pairs`] finds the pairs of atoms. Groups that are paired with the same second
//! group usually share one search per frame.

use super::cell::{ApplyPbc, Cell, NoCell, in_cell, nearest_in, square};
use super::check_len;
use super::histogram::largest_square;
use super::near_pairs::{Measure, Pair, Point, Search, extent, finite};
use super::pair_counting_columns::Points;
use super::rdf::{are_searched_by_cells, refusal};
use super::row_kernel::Frames;
use super::transform_common::Refused;
use paceline_base::error::{self, Error};

/// Bins of equal width, assigned by truncation as in `MDAnalysis.analysis.rdf.InterRDF_s`. A
/// distance equal to the end of the last bin is not counted.
#[derive(Debug, Clone, Copy)]
pub struct Bins {
    begin: f64,
    end: f64,
    number: usize,
}

impl Bins {
    /// # Errors
    /// [`Error::Argument`] if the number of bins is zero, or the end is not above both 0 and the
    /// beginning.
    pub fn new((begin, end): (f64, f64), number: usize) -> error::Result<Self> {
        if number == 0 || !begin.is_finite() || !end.is_finite() || end <= begin.max(0.0) {
            return Err(Error::Argument(format!(
                "cannot make {number} bins from {begin} to {end} Å"
            )));
        }
        Ok(Bins { begin, end, number })
    }

    #[inline]
    fn of(&self, distance: f64) -> Option<usize> {
        let from_begin = distance - self.begin;
        let bin = (from_begin * self.number as f64 / (self.end - self.begin)) as usize;
        (from_begin >= 0.0 && bin < self.number).then_some(bin)
    }
}

/// Kernel that sorts the distances between the atoms of pairs of groups into bins.
#[derive(Debug, Clone)]
pub struct SitePairs {
    searches: Vec<Searched>,
    bins: Bins,
    needs_cell: bool,
}

/// Pairs of groups that share the second group, and whose distances MDAnalysis rounds in the same
/// way.
#[derive(Debug, Clone)]
struct Searched {
    /// Columns of the atoms of all first groups, one group after the other, then those of the
    /// second group.
    columns: [Vec<u32>; 2],
    /// For each atom of the first groups, the index of the first bin of its pairs.
    first_bins: Vec<usize>,
    /// For each first group, the index after its last atom in `columns[0]`.
    ends: Vec<usize>,
    /// Numbers of atoms of both groups, in the first pair of this search.
    sizes: [usize; 2],
    /// True if MDAnalysis finds these pairs with cell lists: for an infinitely small cell, and for
    /// an infinitely large cell.
    by_cells: [bool; 2],
}

impl SitePairs {
    /// Create a kernel for pairs of groups. `columns` contains the atoms of all groups, one group
    /// after the other, and `sizes` the number of atoms of each group. `pairs` contains two group
    /// numbers for each pair. If `needs_cell`, frames without a cell are refused.
    ///
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms, a pair contains an invalid group number, or all
    /// pairs of atoms together have 2³² bins or more.
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
        let (mut groups, mut rest) = (Vec::new(), columns);
        for &size in sizes {
            let (group, others) = rest.split_at(size);
            groups.push(group.iter().map(|&column| column as u32));
            rest = others;
        }
        let (mut searches, mut n_bins) = (Vec::<Searched>::new(), 0_usize);
        let mut numbers = Vec::new();
        for &[first, second] in pairs_of_groups {
            let (Some(&n), Some(&m)) = (sizes.get(first), sizes.get(second)) else {
                return refuse("a pair contains a group number that is out of range");
            };
            let (first_bin, width) = (n_bins, m.saturating_mul(bins.number));
            n_bins = n_bins.saturating_add(n.saturating_mul(width));
            if u32::try_from(n_bins).is_err() {
                return refuse("pairs of atoms have 2³² bins or more");
            }
            let by_cells =
                [0.0, f32::INFINITY].map(|edge| are_searched_by_cells([n, m], bins.end, [edge; 3]));
            let number = numbers.iter().position(|one| *one == (second, by_cells));
            let number = number.unwrap_or_else(|| {
                numbers.push((second, by_cells));
                searches.push(Searched {
                    columns: [Vec::new(), groups[second].clone().collect()],
                    first_bins: Vec::new(),
                    ends: Vec::new(),
                    sizes: [n, m],
                    by_cells,
                });
                searches.len() - 1
            });
            let search = &mut searches[number];
            search.columns[0].extend(groups[first].clone());
            let first_bins = (0..n).map(|i| first_bin + i * width);
            search.first_bins.extend(first_bins);
            search.ends.push(search.first_bins.len());
        }
        Ok(SitePairs {
            searches,
            bins,
            needs_cell,
        })
    }

    /// Return two values: the bin of each distance within the range, for all frames and in any
    /// order; and the sum of the cell volumes (Å³). If a frame cannot be counted, return that frame
    /// and the reason. Bins are numbered from one pair of groups to the next. Within a pair of
    /// groups, atom i of the first group and atom j of the second group have their first bin at
    /// (i m + j) × (number of bins), where m is the size of the second group.
    ///
    /// # Errors
    /// [`Error::Argument`] if the frames lack some of the atoms.
    pub fn find(&self, frames: &Frames<'_>) -> error::Result<Result<(Vec<u32>, f64), Refused>> {
        let columns = self.searches.iter().flat_map(|one| &one.columns).flatten();
        let last = columns.clone().max();
        if last.is_some_and(|&last| last as usize >= frames.n_atoms()) {
            return Err(Error::Argument("an atom is out of range".to_string()));
        }
        let (mut search, mut found, mut volume) = (Search::default(), Vec::new(), 0.0);
        let mut pairs = Vec::new();
        let refused = frames.try_each(|frame, dimensions| {
            let frame = frame.as_chunks().0;
            for &column in columns.clone() {
                finite(frame[column as usize])?;
            }
            let cell = match Cell::new(dimensions) {
                Ok(cell) => Some(cell),
                Err(NoCell::Missing) if !self.needs_cell => None,
                Err(no_cell) => return Err(refusal(no_cell)),
            };
            for searched in &self.searches {
                let mut add = |first_bin: usize, j: usize, distance: f64| {
                    if let Some(bin) = self.bins.of(distance) {
                        found.push((first_bin + j * self.bins.number + bin) as u32);
                    }
                };
                let end = self.bins.end;
                match &cell {
                    // The search requires a range below half the cell height. A longer range may
                    // contain two images of one atom, so that all pairs are compared instead.
                    Some(cell) if !cell.is_near([end * (1.0 + 1e-9), 0.0, 0.0]) => {
                        searched.compare_all(frame, cell, end, add)?;
                    }
                    _ => {
                        pairs.clear();
                        searched.find(frame, cell, end, &mut search, &mut pairs)?;
                        for pair in &pairs {
                            let first_bin = searched.first_bins[pair.i as usize];
                            add(first_bin, pair.j as usize, pair.distance);
                        }
                    }
                }
            }
            volume += cell.map_or(0.0, |cell| cell.volume());
            Ok(())
        });
        Ok(refused.map_or(Ok((found, volume)), Err))
    }
}

impl Searched {
    /// Find the pairs of atoms within `end` (Å). `end` must be less than half the height of the
    /// cell.
    fn find(
        &self,
        frame: &[Point],
        cell: Option<Cell>,
        end: f64,
        search: &mut Search,
        pairs: &mut Vec<Pair>,
    ) -> Result<(), String> {
        let [first, second] = self.columns.each_ref().map(|columns| &columns[..]);
        let [n, m] = [first.len() as u32, second.len() as u32];
        let places: Vec<u32> = (0..n.max(m)).collect();
        // If MDAnalysis uses cell lists but the frame has no cell, the rounding depends on the
        // positions of both groups, so that each first group is searched separately.
        let is_one = cell.is_some() || self.by_cells == [false; 2];
        let ends = if is_one {
            &[first.len()][..]
        } else {
            &self.ends
        };
        let mut begin = 0;
        for &end_of_group in ends {
            let group = begin..end_of_group;
            let sizes = if is_one {
                self.sizes
            } else {
                [group.len(), second.len()]
            };
            let extent = || extent(frame, [&first[group.clone()], second]);
            let measure = Measure::new(cell, sizes, end, extent);
            let places = [&places[group.clone()], &places[..second.len()]];
            search.find(
                frame,
                &measure,
                None,
                [first, second],
                places,
                pairs,
                |_| (),
            )?;
            begin = end_of_group;
        }
        Ok(())
    }

    /// Compare all pairs of atoms. For each distance up to `end` (Å), call `add` with the first bin
    /// of the first atom, the index of the second atom in its group, and the distance.
    fn compare_all(
        &self,
        frame: &[Point],
        cell: &Cell,
        end: f64,
        mut add: impl FnMut(usize, usize, f64),
    ) -> Result<(), String> {
        let pbc = ApplyPbc::new(cell.vectors());
        let placed = |&column: &u32| match (frame[column as usize], cell.is_triclinic()) {
            (x, true) => in_cell(&pbc, x),
            (x, false) => Ok(x),
        };
        let place = |columns: &[u32]| columns.iter().map(placed).collect::<Result<Vec<_>, _>>();
        let (first, second) = (place(&self.columns[0])?, place(&self.columns[1])?);
        let points = Points::new(&second, &[], |place| place);
        let all = 0..second.len();
        let most = largest_square(end);
        let edges = [0, 1, 2].map(|axis| cell.vectors()[axis][axis] as f32);
        let (nearest, brick) = (nearest_in(edges), !cell.is_triclinic());
        for (&at, &first_bin) in first.iter().zip(&self.first_bins) {
            let mut add = |j: usize, square: f64| add(first_bin, j, square.sqrt());
            if brick {
                points.visit_within(at, all.clone(), &nearest, most, &mut add);
            } else {
                let nearest = |d| square(cell.shifted(d, cell.nearest_images(d)));
                points.visit_within(at, all.clone(), nearest, most, &mut add);
            }
        }
        Ok(())
    }
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

    /// Return the count in each bin, one pair of atoms after the other.
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
            // Test groups of different sizes; either group of a pair may be the larger one.
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
                // A pair of atoms has the same counts for both orders of the groups.
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
    fn pairs_that_share_a_group_are_counted_as_each_alone() {
        let mut random = Random(82);
        let (sizes, end) = ([2, 90, 9, 80, 200], 4.5);
        let bins = Bins::new((0.0, end), 45).expect("bins");
        let columns: Vec<usize> = (0..sizes.iter().sum()).collect();
        for cell in CELLS {
            // Positions are on a lattice, so that many distances lie at the edge of a bin.
            let frame = random.structure(columns.len(), 170.0, 9.0);
            let mut frame: Vec<f32> = frame.iter().map(|&x| 0.1 * (x as f32).round()).collect();
            // One atom of group 1 is far away, because without a cell the rounding depends on the
            // extent of both groups of a pair.
            frame[6..9].fill(-30.7);
            let all = [[0, 4], [1, 4], [2, 4], [3, 4], [4, 4]];
            let task = SitePairs::new(&columns, &sizes, all.as_flattened(), bins, false);
            let task = task.expect("pairs");
            assert_eq!(task.searches.len(), 2);
            let n_pairs = all.map(|[first, second]| sizes[first] * sizes[second]);
            let found = counts(&task, &frame, cell, 45 * n_pairs.iter().sum::<usize>());
            let mut begin = 0;
            for (pair, n_pairs) in all.iter().zip(n_pairs) {
                let alone = SitePairs::new(&columns, &sizes, pair, bins, false).expect("a pair");
                let wanted = counts(&alone, &frame, cell, 45 * n_pairs);
                let end = begin + wanted.len();
                assert_eq!(found[begin..end], wanted, "{cell:?} {pair:?}");
                begin = end;
            }
            assert!(found.iter().sum::<u64>() > 500, "{cell:?}");
        }
    }

    #[test]
    fn bins_are_truncated() {
        let bins = Bins::new((2.0, 5.0), 3).expect("bins");
        let found = [1.5, 1.999, 2.0, 2.999, 3.0, 4.999, 5.0, 7.0].map(|r| bins.of(r));
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
            (
                1.0,
                CELLS[3],
                "no cell, which norm='rdf' needs; norm='density' and norm='none' need no cell",
            ),
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
