//! Histograms of distances between the atoms of two groups, or of one group: the input of radial
//! distribution functions.
//!
//! Distances have the same bits as those of `MDAnalysis.lib.distances.capped_distance`. This
//! matters in files with a precision of 0.01 Å, in which distances often lie exactly at the edge of
//! a bin. MDAnalysis has two algorithms with different rounding, and chooses one by the sizes of
//! the groups and of the cell. This module makes the same choice.

use std::ops::Range;

use super::cell::{Cell, NoCell, in_cell, nearest_in, square};
use super::histogram::Histogram;
use super::transform_common::Refused;
use super::{Columns, check_len, frames};
use crate::cell::ApplyPbc;
use crate::pair_counting_columns::Grid;
use crate::pair_counting_columns::Points;
use crate::threads_within_frame::{MANY, change, compute_parts, part_len, ranges};
use paceline_base::error::{self, Error};

/// Number of atoms of the smaller group below which MDAnalysis compares all pairs.
pub(crate) const FEW: usize = 10;
/// Number of pairs from which on MDAnalysis uses cell lists, as long as distances are less than
/// half the cell.
const MOST_PAIRS: usize = 100_000_000;
/// MDAnalysis uses cell lists for fewer pairs if the distance is at most this fraction of each
/// edge.
const PART: f32 = 0.3;

/// Minimum number of pairs that one thread compares in a part of a frame.
const LEAST_PAIRS: usize = 1 << 17;

type Point = [f32; 3];

/// Return the reason why a frame without a cell is refused, with advice.
pub(crate) fn refusal(no_cell: NoCell) -> String {
    let reason = no_cell.reason("norm='rdf'");
    format!("{reason}; norm='density' and norm='none' need no cell")
}

/// Two groups of atoms, and the bins for their distances.
#[derive(Debug, Clone)]
pub struct Rdf {
    histogram: Histogram,
    first: Group,
    /// Second group; `None` if it is the first group.
    second: Option<Group>,
    needs_cell: bool,
}

/// Atoms with labels. Two atoms with the same label are not counted as a pair.
#[derive(Debug, Clone)]
pub struct Group {
    columns: Columns,
    labels: Option<Vec<u32>>,
}

/// Positions of a group in one frame, and labels; `labels` is empty if the group has none.
struct Members<'a> {
    positions: Vec<[f32; 3]>,
    labels: &'a [u32],
}

impl Group {
    /// Create a group. A group that is updated in each frame may have no atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] if the numbers of labels and atoms differ.
    pub fn new(columns: &[usize], labels: Option<&[u32]>) -> error::Result<Self> {
        if let Some(labels) = labels {
            check_len("labels", labels.len(), columns.len())?;
        }
        Ok(Group {
            columns: Columns::new(columns),
            labels: labels.map(<[u32]>::to_vec),
        })
    }

    fn members(&self, frame: &[f32], scratch: &mut Vec<f32>) -> Members<'_> {
        let (positions, _) = self.columns.pick(frame, scratch).as_chunks();
        Members {
            positions: positions.to_vec(),
            labels: self.labels.as_deref().unwrap_or_default(),
        }
    }
}

impl Rdf {
    /// Create a histogram of distances between `first` and `second`, or within `first`. `edges` are
    /// the edges of the bins (Å). If `needs_cell` is true, frames without a cell are refused.
    ///
    /// # Errors
    /// [`Error::Argument`] if edges do not ascend, or only one of the two groups has labels.
    pub fn new(
        edges: &[f64],
        first: Group,
        second: Option<Group>,
        needs_cell: bool,
    ) -> error::Result<Self> {
        if let Some(second) = &second
            && first.labels.is_some() != second.labels.is_some()
        {
            let reason = "expected labels for both groups, or for neither";
            return Err(Error::Argument(reason.to_string()));
        }
        Ok(Rdf {
            histogram: Histogram::new(edges)?,
            first,
            second,
            needs_cell,
        })
    }

    /// Count the distances in all frames of a block, and add the counts to `counts`, one per bin.
    /// Return the sum of the cell volumes (Å³), or the first frame that cannot be counted, with the
    /// reason.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain the same number of whole frames, the block
    /// lacks some of the atoms, or `counts` has the wrong size.
    pub fn count(
        &self,
        positions: &[f32],
        n_atoms: usize,
        dimensions: &[f32],
        counts: &mut [u64],
    ) -> error::Result<Result<f64, Refused>> {
        let frames = frames(positions, n_atoms)?;
        check_len("lengths and angles", dimensions.len(), 6 * frames.len())?;
        check_len("bins", counts.len(), self.histogram.n_bins())?;
        self.first.columns.check(n_atoms)?;
        if let Some(second) = &self.second {
            second.columns.check(n_atoms)?;
        }
        let mut found = self.histogram.clone();
        let mut volume = 0.0;
        for (row, (frame, &dimensions)) in frames.zip(dimensions.as_chunks().0).enumerate() {
            match self.count_frame(frame, dimensions, &mut found) {
                Ok(of_frame) => volume += of_frame,
                Err(reason) => return Ok(Err((row, reason))),
            }
        }
        // Within one group, each pair was found once, and counts for both atoms.
        found.empty_into(counts, if self.second.is_none() { 2 } else { 1 });
        if self.second.is_none() && self.first.labels.is_none() {
            // MDAnalysis also counts the distance from each atom to itself.
            for _ in 0..positions.len() / (3 * n_atoms) * self.first.columns.len() {
                found.add(0.0);
            }
            found.empty_into(counts, 1);
        }
        Ok(Ok(volume))
    }

    /// Count the distances of one frame; return the volume of its cell, Å³.
    fn count_frame(
        &self,
        frame: &[f32],
        dimensions: [f32; 6],
        found: &mut Histogram,
    ) -> Result<f64, String> {
        let cell = match Cell::new(dimensions) {
            Ok(cell) => Some(cell),
            Err(NoCell::Missing) if !self.needs_cell => None,
            Err(no_cell) => return Err(refusal(no_cell)),
        };
        let mut scratch = Vec::new();
        let first = self.first.members(frame, &mut scratch);
        let second = self.second.as_ref();
        let second = second.map(|group| group.members(frame, &mut scratch));
        let mut pairs = Pairs { first, second };
        if !pairs.groups().all(Members::are_finite) {
            return Err("positions are not all finite numbers".to_string());
        }
        if pairs.groups().all(|group| !group.positions.is_empty()) {
            match &cell {
                Some(cell) => pairs.count_in(cell, found)?,
                None => pairs.count_without_cell(found)?,
            }
        }
        Ok(cell.map_or(0.0, |cell| cell.volume()))
    }
}

impl Members<'_> {
    fn are_finite(&self) -> bool {
        let parts = self.positions.chunks(part_len(self.positions.len(), MANY));
        let are_finite = compute_parts(parts, |part| part.iter().flatten().all(|x| x.is_finite()));
        are_finite.into_iter().all(|finite| finite)
    }

    fn points(&self) -> Points {
        Points::new(&self.positions, self.labels, |place| place)
    }
}

/// Both groups in one frame. The second is `None` if it is the first again.
struct Pairs<'a> {
    first: Members<'a>,
    second: Option<Members<'a>>,
}

impl<'a> Pairs<'a> {
    fn groups(&self) -> impl Iterator<Item = &Members<'a>> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// Replace each position by the result of `moved`; return the first error.
    fn move_all(
        &mut self,
        moved: impl Fn(Point) -> Result<Point, String> + Sync,
    ) -> Result<(), String> {
        for group in std::iter::once(&mut self.first).chain(&mut self.second) {
            let move_some = |_, some: &mut [Point]| {
                some.iter_mut().try_for_each(|x| {
                    *x = moved(*x)?;
                    Ok(())
                })
            };
            let done = change(&mut group.positions, MANY, move_some);
            done.into_iter().collect::<Result<(), String>>()?;
        }
        Ok(())
    }

    fn n_atoms(&self) -> usize {
        self.groups().map(|group| group.positions.len()).sum()
    }

    fn count_in(&mut self, cell: &Cell, found: &mut Histogram) -> Result<(), String> {
        let end = found.end();
        // A distance of half the cell height or more may occur for two images of an atom.
        let in_one_image = cell.is_near([end * (1.0 + 1e-9), 0.0, 0.0]);
        let edges: [f32; 3] = std::array::from_fn(|i| cell.vectors()[i][i] as f32);
        if !(cell.is_triclinic() || in_one_image && self.by_cells(end, edges)) {
            self.count_all(nearest_in(edges), found);
            return Ok(());
        }
        let pbc = ApplyPbc::new(cell.vectors());
        self.move_all(|x| in_cell(&pbc, x))?;
        if in_one_image {
            self.count_by_cells(&Grid::of_cell(cell.vectors(), end, self.n_atoms()), found);
        } else {
            let nearest = |d| square(cell.shifted(d, cell.nearest_images(d)));
            self.count_all(nearest, found);
        }
        Ok(())
    }

    fn count_without_cell(&mut self, found: &mut Histogram) -> Result<(), String> {
        let end = found.end();
        let extent = self.extent();
        let edges = extent.each_ref().map(|extent| extent.end - extent.start);
        if self.by_cells(end, edges) {
            // MDAnalysis moves the atoms into a box of its own, which rounds the positions.
            let margin = (0.1 * end) as f32;
            let origin = extent.each_ref().map(|extent| extent.start - margin);
            let from_origin = |x: Point| Ok(std::array::from_fn(|i| x[i] - origin[i]));
            self.move_all(from_origin)?;
        }
        let extent = self.extent();
        self.count_by_cells(&Grid::of_extent(&extent, end, self.n_atoms()), found);
        Ok(())
    }

    /// Return true if MDAnalysis uses cell lists, given the edges of the cell (Å).
    fn by_cells(&self, end: f64, edges: [f32; 3]) -> bool {
        let first = self.first.positions.len();
        let second = self.second.as_ref();
        let second = second.map_or(first, |group| group.positions.len());
        are_searched_by_cells([first, second], end, edges)
    }

    /// Return the minimum and maximum coordinate along each axis, Å.
    fn extent(&self) -> [Range<f32>; 3] {
        let mut extent = [const { f32::INFINITY..f32::NEG_INFINITY }; 3];
        for x in self.groups().flat_map(|group| &group.positions) {
            for (extent, &x) in extent.iter_mut().zip(x) {
                *extent = extent.start.min(x)..extent.end.max(x);
            }
        }
        extent
    }

    fn count_by_cells(&self, grid: &Grid, found: &mut Histogram) {
        let first = grid.sort(&self.first.positions, self.first.labels);
        match &self.second {
            Some(second) => grid.count(&first, &grid.sort(&second.positions, second.labels), found),
            None => grid.count_own(&first, found),
        }
    }

    /// Count every pair. `square` returns the squared distance (Å²) for a difference of positions.
    fn count_all(&self, square: impl Fn([f64; 3]) -> f64 + Sync, found: &mut Histogram) {
        let first = self.first.points();
        let second = self.second.as_ref().map(Members::points);
        let to = second.as_ref().unwrap_or(&first);
        let len = part_len(first.len(), LEAST_PAIRS.div_ceil(to.len()));
        found.add_parts(ranges(first.len(), len), |rows, found| {
            for i in rows {
                let begin = if second.is_some() { 0 } else { i + 1 };
                to.count(&first, i, begin..to.len(), &square, found);
            }
        });
    }
}

/// Return true if MDAnalysis uses cell lists for two groups of these sizes, and distances up to
/// `end` (Å). `edges` are the edges of the cell, or of the extent of the atoms (Å).
pub(crate) fn are_searched_by_cells(
    [first, second]: [usize; 2],
    end: f64,
    edges: [f32; 3],
) -> bool {
    if first.min(second) < FEW {
        return false;
    }
    first.saturating_mul(second) >= MOST_PAIRS || edges.iter().all(|edge| end as f32 <= PART * edge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const NONE: [f32; 6] = [0.0; 6];
    const CELLS: [[f32; 6]; 6] = [
        [40.0, 44.0, 48.0, 90.0, 90.0, 90.0],
        [60.0, 40.0, 37.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 40.0, 60.0, 60.0, 90.0],
        [40.0, 40.0, 40.0, 70.53, 109.47, 70.53],
        [50.0, 40.0, 45.0, 80.0, 100.0, 115.0],
        NONE,
    ];

    fn edges(low: f64, high: f64, n_bins: usize) -> Vec<f64> {
        let width = (high - low) / n_bins as f64;
        (0..=n_bins).map(|k| low + width * k as f64).collect()
    }

    fn group(columns: Range<usize>, labels: Option<&[u32]>) -> Group {
        let columns: Vec<usize> = columns.collect();
        Group::new(&columns, labels).expect("a group")
    }

    fn counted(rdf: &Rdf, frame: &[f32], cell: [f32; 6]) -> Vec<u64> {
        let mut counts = vec![0; rdf.histogram.n_bins()];
        let found = rdf.count(frame, frame.len() / 3, &cell, &mut counts);
        found.expect("a frame").expect("a cell");
        counts
    }

    /// Return the distances of all pairs over all nearby images: slow, but directly by the
    /// definition.
    fn distances(
        frame: &[f32],
        cell: [f32; 6],
        first: Range<usize>,
        second: Range<usize>,
    ) -> Vec<f64> {
        let (atoms, _) = frame.as_chunks::<3>();
        let cell = Cell::new(cell).ok();
        let mut distances = Vec::new();
        for i in first {
            for j in second.clone() {
                let d = std::array::from_fn(|axis| {
                    f64::from(atoms[i][axis]) - f64::from(atoms[j][axis])
                });
                let least = match cell {
                    None => square(d),
                    Some(cell) => {
                        let d = cell.shifted(d, cell.nearest_images(d));
                        let around = [-1.0, 0.0, 1.0];
                        around
                            .iter()
                            .flat_map(|a| around.iter().map(move |b| (a, b)))
                            .flat_map(|(a, b)| around.iter().map(move |c| [*a, *b, *c]))
                            .map(|images| square(cell.shifted(d, images)))
                            .fold(f64::INFINITY, f64::min)
                    }
                };
                distances.push(least.sqrt());
            }
        }
        distances
    }

    /// Check that the cumulative count up to each edge is right, apart from distances that rounding
    /// may move.
    fn assert_counts(found: &[u64], edges: &[f64], distances: &[f64], what: &str) {
        const ROUNDED: f64 = 1e-4;
        let mut distances = distances.to_vec();
        distances.retain(|&distance| distance >= edges[0] - ROUNDED);
        distances.sort_by(f64::total_cmp);
        let up_to = |x: f64| distances.partition_point(|&distance| distance < x) as u64;
        let slack = if edges[0] > 0.0 {
            up_to(edges[0] + ROUNDED)
        } else {
            0
        };
        let mut total = 0;
        for (count, edge) in found.iter().zip(&edges[1..]) {
            total += count;
            assert!(
                total + slack >= up_to(edge - ROUNDED),
                "{what} up to {edge}"
            );
            assert!(total <= up_to(edge + ROUNDED), "{what} up to {edge}");
        }
        assert!(total > 0, "{what}");
    }

    #[test]
    fn counts_are_those_of_every_pair() {
        let mut random = Random(51);
        for cell in CELLS {
            for (low, high, n_bins) in [
                (0.0, 10.0, 50),
                (3.0, 14.0, 7),
                (0.0, 18.0, 90),
                (0.0, 30.0, 31),
                (0.0, 4.0, 400),
            ] {
                for (n, m, size) in [(60, 50, 30.0), (60, 5, 90.0)] {
                    let frame = random.structure(n + m, size, 11.0);
                    let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
                    let edges = edges(low, high, n_bins);
                    let what = format!("{cell:?}, {n_bins} bins to {high} Å");
                    let two = Rdf::new(
                        &edges,
                        group(0..n, None),
                        Some(group(n..n + m, None)),
                        false,
                    );
                    let found = counted(&two.expect("edges"), &frame, cell);
                    if found.iter().any(|&count| count > 0) {
                        let all = distances(&frame, cell, 0..n, n..n + m);
                        assert_counts(&found, &edges, &all, &what);
                    }
                    let one = Rdf::new(&edges, group(0..n, None), None, false);
                    let found = counted(&one.expect("edges"), &frame, cell);
                    assert_counts(&found, &edges, &distances(&frame, cell, 0..n, 0..n), &what);
                }
            }
        }
    }

    #[test]
    fn distances_on_an_edge_are_counted_exactly() {
        // Positions are multiples of ⅛ Å, and cell edges are powers of two: nothing is rounded, and
        // many distances lie on the edge of a bin.
        let mut random = Random(52);
        for cell in [[32.0, 64.0, 32.0, 90.0, 90.0, 90.0], NONE] {
            let frame = random.structure(150, 20.0, 8.0);
            let frame: Vec<f32> = frame
                .iter()
                .map(|&x| (8.0 * x).round() as f32 / 8.0)
                .collect();
            for high in [5.0, 8.0, 12.0, 16.0, 25.0] {
                let edges = edges(0.0, high, 40);
                let mut wanted = vec![0; 40];
                for distance in distances(&frame, cell, 0..150, 0..150) {
                    let bin = edges.partition_point(|&edge| edge <= distance) - 1;
                    if distance == high {
                        wanted[39] += 1;
                    } else if bin < 40 {
                        wanted[bin] += 1;
                    }
                }
                let one = Rdf::new(&edges, group(0..150, None), None, false).expect("edges");
                assert_eq!(counted(&one, &frame, cell), wanted, "{cell:?} {high}");
                let again = Some(group(0..150, None));
                let two = Rdf::new(&edges, group(0..150, None), again, false).expect("edges");
                assert_eq!(counted(&two, &frame, cell), wanted, "{cell:?} {high}");
            }
        }
    }

    #[test]
    fn atoms_of_one_label_make_no_pair() {
        let mut random = Random(53);
        let frame = random.structure(200, 20.0, 0.0);
        let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
        let labels: Vec<u32> = (0..200).map(|atom| atom / 3).collect();
        let alone: Vec<u32> = (0..200).collect();
        for cell in CELLS {
            for high in [9.0, 30.0] {
                let edges = edges(0.0, high, 30);
                let all = group(0..200, Some(&labels));
                let one = Rdf::new(&edges, all.clone(), None, false).expect("edges");
                let two = Rdf::new(&edges, all.clone(), Some(all), false).expect("edges");
                let kept = counted(&one, &frame, cell);
                assert_eq!(counted(&two, &frame, cell), kept, "{cell:?}");
                let plain = Rdf::new(&edges, group(0..200, None), None, false).expect("edges");
                let plain = counted(&plain, &frame, cell);
                let lost = plain.iter().sum::<u64>() - kept.iter().sum::<u64>();
                assert!((200..=600).contains(&lost), "{cell:?}: {lost}");
                // All labels differ, so that only the pair of an atom with itself is excluded.
                let others = Rdf::new(&edges, group(0..200, Some(&alone)), None, false);
                let others = counted(&others.expect("edges"), &frame, cell);
                assert_eq!(plain.iter().sum::<u64>() - others.iter().sum::<u64>(), 200);
            }
        }
    }

    #[test]
    fn atoms_far_apart_take_no_more_room() {
        let mut frame = vec![0.0; 60];
        (frame[0], frame[4], frame[59]) = (1e30, -3e38, 1e20);
        for (high, n_bins) in [(15.0, 75), (1e-30, 2), (1e30, 10)] {
            let one = Rdf::new(&edges(0.0, high, n_bins), group(0..20, None), None, false);
            let found = counted(&one.expect("edges"), &frame, NONE);
            assert!(found[0] >= 17 * 17 + 3, "{found:?}");
        }
    }

    #[test]
    fn frames_that_cannot_be_counted_are_named() {
        let cell = CELLS[0];
        let flat = [10.0, 10.0, 10.0, 90.0, 90.0, 180.0];
        let edges = edges(0.0, 5.0, 5);
        let mut counts = [0; 5];
        for (x, cell, needs_cell, reason) in [
            (f32::NAN, cell, true, "positions are not all finite"),
            (f32::INFINITY, NONE, false, "positions are not all finite"),
            (
                1.0,
                NONE,
                true,
                "no cell, which norm='rdf' needs; norm='density' and norm='none' need no cell",
            ),
            (1.0, flat, false, "make no cell"),
            (1e30, CELLS[2], true, "too far away"),
        ] {
            let rdf = Rdf::new(&edges, group(0..2, None), None, needs_cell).expect("edges");
            let frames = [1.0, 2.0, 3.0, 3.0, 4.0, 5.0, x, 2.0, 3.0, 3.0, 4.0, 5.0];
            let cells = [CELLS[0], cell].concat();
            let found = rdf.count(&frames, 2, &cells, &mut counts).expect("frames");
            let (row, found) = found.expect_err("the second frame");
            assert_eq!(row, 1);
            assert!(found.contains(reason), "{found}");
        }
    }

    #[test]
    fn without_atoms_there_are_volumes_and_no_pairs() {
        let none: &[u32] = &[];
        for (labels, second) in [
            (None, None),
            (None, Some(group(0..3, None))),
            (Some(none), None),
            (Some(none), Some(group(0..3, Some(&[1, 2, 3])))),
        ] {
            let rdf = Rdf::new(&edges(0.0, 5.0, 5), group(0..0, labels), second, true);
            let mut counts = [0; 5];
            for (cell, volume) in [(CELLS[0], Ok(40.0 * 44.0 * 48.0)), (NONE, Err(()))] {
                let found = rdf
                    .as_ref()
                    .expect("edges")
                    .count(&[1.0; 9], 3, &cell, &mut counts);
                assert_eq!(found.expect("a frame").map_err(drop), volume);
            }
            assert_eq!(counts, [0; 5]);
        }
    }

    #[test]
    fn volumes_are_added() {
        let rdf = Rdf::new(&edges(0.0, 5.0, 5), group(0..1, None), None, true).expect("edges");
        let cells = [CELLS[0], CELLS[1]].concat();
        let found = rdf
            .count(&[0.0; 6], 1, &cells, &mut [0; 5])
            .expect("frames");
        assert_eq!(found, Ok(40.0 * 44.0 * 48.0 + 60.0 * 40.0 * 37.0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let edges = edges(0.0, 5.0, 5);
        assert!(Group::new(&[1], Some(&[])).is_err());
        let labelled = Some(group(0..1, Some(&[3])));
        assert!(Rdf::new(&edges, group(0..1, None), labelled, false).is_err());
        let rdf = Rdf::new(&edges, group(0..2, None), None, false).expect("edges");
        assert!(rdf.count(&[0.0; 3], 1, &NONE, &mut [0; 5]).is_err());
        assert!(rdf.count(&[0.0; 6], 2, &NONE, &mut [0; 4]).is_err());
        assert!(rdf.count(&[0.0; 6], 2, &NONE[..5], &mut [0; 5]).is_err());
        assert!(rdf.count(&[0.0; 5], 2, &NONE, &mut [0; 5]).is_err());
    }
}
