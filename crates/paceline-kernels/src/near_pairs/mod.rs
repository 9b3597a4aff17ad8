//! Pairs of atoms of two groups within a distance. Pairs, their order and the bits of distances are
//! the same as in `MDAnalysis.lib.distances.capped_distance`.
//!
//! Atoms of the smaller group are sorted into bins, in single precision with a margin for rounding.
//! Atoms of the larger group are compared only if they are near a bin with atoms. The distances of
//! candidate pairs are then computed as in MDAnalysis.

use std::mem::take;

use super::row_kernel::{Frames, RowKernel};
use super::transform_common::Refused;
use super::unwrap::fragments;
use crate::threads_within_frame::{change, compute};
use paceline_base::error::{self, Error};

mod bins;
mod grid;
mod mdanalysis_rounding_and_order;

use bins::{Bins, LEAST_ATOMS, NearAtom, mark_near};
pub use mdanalysis_rounding_and_order::Measure;
pub(crate) use mdanalysis_rounding_and_order::cell_for;

/// Position, in single precision.
pub type Point = [f32; 3];

/// Atoms of a frame. `places` are indices in `columns`, or in the frame if `columns` is `None`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atoms<'a> {
    pub frame: &'a [Point],
    pub columns: Option<&'a [u32]>,
    pub places: &'a [u32],
}

impl Atoms<'_> {
    /// Return the position of the atom at an index.
    #[inline(always)]
    pub fn at(&self, place: u32) -> Point {
        let place = place as usize;
        self.frame[self.columns.map_or(place, |all| all[place] as usize)]
    }

    pub fn positions(&self) -> impl Iterator<Item = Point> {
        self.places.iter().map(|&place| self.at(place))
    }
}

/// Two atoms near each other: their indices in the two groups, and their distance, Å.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Index in the first group.
    pub i: u32,
    /// Index in the second group.
    pub j: u32,
    /// Distance, Å.
    pub distance: f64,
}

/// Pairs of atoms of two groups, or of one, that are near each other in each frame.
#[derive(Debug, Clone)]
pub struct PairList {
    first: Vec<u32>,
    /// Second group; `None` if it is the first group again. Each pair is then listed once, with the
    /// lower index first.
    second: Option<Vec<u32>>,
    cutoff: f64,
    periodic: bool,
}

impl PairList {
    /// Create a search for pairs within `cutoff` (Å). If `periodic`, distances in frames with a
    /// cell are those between nearest images.
    ///
    /// # Errors
    /// [`Error::Argument`] if the cutoff is invalid.
    pub fn new(
        first: Vec<u32>,
        second: Option<Vec<u32>>,
        cutoff: f64,
        periodic: bool,
    ) -> error::Result<Self> {
        if !(cutoff.is_finite() && cutoff > 0.0) {
            return Err(Error::Argument(format!(
                "expected a finite cutoff above 0, found {cutoff} Å"
            )));
        }
        Ok(PairList {
            first,
            second,
            cutoff,
            periodic,
        })
    }

    fn groups(&self) -> [&[u32]; 2] {
        [&self.first, self.second.as_ref().unwrap_or(&self.first)]
    }

    /// Call `take` for each frame of a block, with the row of the frame and its pairs in the order
    /// of indices. Return the first frame that cannot be searched, with the reason.
    ///
    /// # Errors
    /// [`Error::Argument`] if the block lacks some of the atoms.
    pub fn find(
        &self,
        frames: &Frames<'_>,
        mut take: impl FnMut(usize, &[Pair]),
    ) -> error::Result<Option<Refused>> {
        let mut finder = Finder::new(self, frames.n_atoms())?;
        let mut row = 0;
        Ok(frames.try_each(|frame, dimensions| {
            take(row, finder.find(frame, dimensions)?);
            row += 1;
            Ok(())
        }))
    }
}

/// Finds the pairs of one frame after another.
struct Finder<'a> {
    list: &'a PairList,
    /// Indices of all atoms, in each of the two groups.
    all: [Vec<u32>; 2],
    search: Search,
    found: Vec<Pair>,
}

impl<'a> Finder<'a> {
    fn new(list: &'a PairList, n_atoms: usize) -> error::Result<Self> {
        let groups = list.groups();
        let last = groups.into_iter().flatten().max();
        if last.is_some_and(|&last| last as usize >= n_atoms) {
            return Err(Error::Argument("an atom is out of range".to_string()));
        }
        Ok(Finder {
            list,
            all: groups.map(|group| (0..group.len() as u32).collect()),
            search: Search::default(),
            found: Vec::new(),
        })
    }

    /// Return the pairs of a frame in the order of indices, or a message if the frame cannot be
    /// searched.
    fn find(&mut self, frame: &[f32], dimensions: [f32; 6]) -> Result<&[Pair], String> {
        let (frame, groups) = (frame.as_chunks().0, self.list.groups());
        let cell = match self.list.periodic {
            true => cell_for(dimensions, self.list.cutoff, "pbc=True")?,
            false => None,
        };
        let sizes = groups.map(<[u32]>::len);
        let measure = Measure::new(cell, sizes, self.list.cutoff, || extent(frame, groups));
        self.found.clear();
        let all = self.all.each_ref().map(|all| &all[..]);
        let is_one_group = self.list.second.is_none();
        let (search, found) = (&mut self.search, &mut self.found);
        search.find(frame, &measure, None, groups, all, found, |pairs| {
            if is_one_group {
                pairs.retain(|pair| pair.i < pair.j);
            }
            pairs.sort_unstable_by_key(|pair| (pair.i, pair.j));
        })?;
        // Each part of the larger group was searched separately, so pairs may be out of order.
        if search.near.len() > 1 && !found.is_sorted_by_key(|pair| (pair.i, pair.j)) {
            found.sort_by_key(|pair| (pair.i, pair.j));
        }
        Ok(found)
    }
}

/// Connected components of a graph of atoms. The edges of the graph are the pairs within a cutoff.
#[derive(Debug, Clone)]
pub struct Components(PairList);

impl Components {
    /// # Errors
    /// As [`PairList::new`].
    pub fn new(atoms: Vec<u32>, cutoff: f64, periodic: bool) -> error::Result<Self> {
        PairList::new(atoms, None, cutoff, periodic).map(Components)
    }
}

impl RowKernel for Components {
    fn n_columns(&self) -> usize {
        self.0.first.len()
    }

    /// Compute the component number of each atom. Components are numbered from 0 in the order of
    /// their first atoms.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> error::Result<Option<Refused>> {
        let mut finder = Finder::new(&self.0, frames.n_atoms())?;
        let mut edges = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            edges.clear();
            let pairs = finder.find(frame, dimensions)?.iter();
            edges.extend(pairs.map(|pair| [pair.i as usize, pair.j as usize]));
            let firsts = fragments(row.len(), &edges).map_err(|error| error.to_string())?;
            let mut n_components = 0.0;
            for (atom, first) in firsts.into_iter().enumerate() {
                if first == atom {
                    row[atom] = n_components;
                    n_components += 1.0;
                } else {
                    row[atom] = row[first];
                }
            }
            Ok(())
        })
    }
}

/// Return the minimum and maximum coordinates of two groups, Å.
pub(crate) fn extent(frame: &[Point], lists: [&[u32]; 2]) -> [Point; 2] {
    let atoms = lists.into_iter().flatten();
    extent_of(atoms.map(|&atom| frame[atom as usize]))
}

/// Return the minimum and maximum coordinates of some positions, Å.
pub(crate) fn extent_of(positions: impl Iterator<Item = Point>) -> [Point; 2] {
    let mut extent = [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
    for x in positions {
        // `min` and `max` are slower.
        for (k, x) in x.into_iter().enumerate() {
            extent[0][k] = if x < extent[0][k] { x } else { extent[0][k] };
            extent[1][k] = if x > extent[1][k] { x } else { extent[1][k] };
        }
    }
    extent
}

/// Searches pairs of two groups, frame after frame.
#[derive(Debug, Clone, Default)]
pub struct Search {
    bins: Bins,
    /// Atoms of the larger group that may be near any atom of the smaller group: one list for each
    /// part of the larger group.
    near: Vec<Vec<NearAtom>>,
    candidates: Vec<[u32; 2]>,
    placed: Vec<Point>,
}

/// Atoms between which pairs are searched. The "few" are the atoms of the smaller group.
struct Searched<'a> {
    few: Atoms<'a>,
    many: Atoms<'a>,
    placed: &'a [Point],
    /// True if the smaller group is the first group.
    swapped: bool,
    measure: &'a Measure,
    /// Pairs up to this distance (Å) are left out.
    least: Option<f64>,
}

impl Search {
    /// Search pairs between the atoms `first` and `second` of two groups, given by their columns.
    /// Add pairs within the cutoff of the measure to `pairs`. If `least` is given, distances must
    /// be larger than `least` (Å). Each part of the larger group yields a list of pairs, to which
    /// `arrange` is applied; the lists may be processed in any order.
    ///
    /// # Errors
    /// A message if a position is not finite, or cannot be wrapped into the cell.
    #[allow(clippy::too_many_arguments)]
    pub fn find(
        &mut self,
        frame: &[Point],
        measure: &Measure,
        least: Option<f64>,
        columns: [&[u32]; 2],
        places: [&[u32]; 2],
        pairs: &mut Vec<Pair>,
        arrange: impl Fn(&mut Vec<Pair>) + Sync,
    ) -> Result<(), String> {
        let swapped = places[0].len() < places[1].len();
        let [first, second] = [0, 1].map(|k| Atoms {
            frame,
            columns: Some(columns[k]),
            places: places[k],
        });
        let [few, many] = if swapped {
            [first, second]
        } else {
            [second, first]
        };
        if few.places.is_empty() {
            return Ok(());
        }
        self.bins.fill(measure, few, many, &mut self.near)?;
        self.placed.resize(few.places.len(), [0.0; 3]);
        let placed = change(&mut self.placed, LEAST_ATOMS, |first, placed| {
            for (to, &place) in placed.iter_mut().zip(&few.places[first..]) {
                *to = measure.placed(few.at(place))?;
            }
            Ok(())
        });
        placed.into_iter().collect::<Result<(), String>>()?;
        let searched = Searched {
            few,
            many,
            placed: &self.placed,
            swapped,
            measure,
            least,
        };
        let (bins, candidates) = (&self.bins, &mut self.candidates);
        let find = |candidates: &mut Vec<[u32; 2]>, near: &Vec<NearAtom>, pairs: &mut Vec<Pair>| {
            bins.pairs(near, candidates);
            searched.add(near, candidates, pairs)?;
            arrange(pairs);
            Ok(())
        };
        if let [near] = &self.near[..]
            && pairs.is_empty()
        {
            return find(candidates, near, pairs);
        }
        let (parts, _) = compute(
            self.near.iter(),
            candidates,
            Vec::new,
            |candidates, near| {
                let mut pairs = Vec::new();
                find(candidates, near, &mut pairs).map(|()| pairs)
            },
        );
        for part in parts {
            pairs.append(&mut part?);
        }
        Ok(())
    }

    /// Mark those of `atoms` that are near any of `others`: within the cutoff of the measure.
    ///
    /// # Errors
    /// As [`Search::find`].
    pub(crate) fn mark_near(
        &mut self,
        measure: &Measure,
        others: Atoms<'_>,
        atoms: Atoms<'_>,
        marks: &mut Vec<bool>,
    ) -> Result<(), String> {
        if atoms.places.is_empty() {
            return Ok(());
        }
        let by_others = others.places.len() <= atoms.places.len();
        let (few, many) = if by_others {
            (others, atoms)
        } else {
            (atoms, others)
        };
        self.bins.fill(measure, few, many, &mut self.near)?;
        let (bins, n_marks) = (&self.bins, marks.len());
        let mark = |(candidates, marks): &mut (Vec<[u32; 2]>, Vec<bool>), near: &Vec<NearAtom>| {
            if by_others {
                mark_near(bins, near, marks, candidates);
            } else {
                bins.pairs(near, candidates);
            }
            for &[number, other] in &*candidates {
                let (near, other) = (near[number as usize].place, few.places[other as usize]);
                let (other, place) = if by_others {
                    (other, near)
                } else {
                    (near, other)
                };
                if !marks[place as usize] {
                    let distance = measure.within(others.at(other), atoms.at(place))?;
                    marks[place as usize] = distance.is_some();
                }
            }
            Ok(())
        };
        let mut own = (take(&mut self.candidates), take(marks));
        let scratch = || (Vec::new(), vec![false; n_marks]);
        let (done, scratches) = compute(self.near.iter(), &mut own, scratch, mark);
        (self.candidates, *marks) = own;
        for (_, others) in scratches {
            (marks.iter_mut().zip(others)).for_each(|(mark, other)| *mark |= other);
        }
        done.into_iter().collect()
    }
}

impl Searched<'_> {
    /// Add the candidates that are within the cutoff to `pairs`. A candidate is an index in `near`
    /// and an index in `self.few`.
    fn add(
        &self,
        near: &[NearAtom],
        candidates: &[[u32; 2]],
        pairs: &mut Vec<Pair>,
    ) -> Result<(), String> {
        // Candidates are grouped by their first index, so that the position of the first atom is
        // computed once per group.
        let mut last = (u32::MAX, [0.0; 3]);
        for &[number, other] in candidates {
            let many_place = near[number as usize].place;
            if last.0 != number {
                last = (number, self.measure.placed(self.many.at(many_place))?);
            }
            let other = other as usize;
            let (few_place, few_at) = (self.few.places[other], self.placed[other]);
            let ([i, j], [a, b]) = match self.swapped {
                true => ([few_place, many_place], [few_at, last.1]),
                false => ([many_place, few_place], [last.1, few_at]),
            };
            if let Some(distance) = self.measure.within_placed(a, b)
                && self.least.is_none_or(|least| distance > least)
            {
                pairs.push(Pair { i, j, distance });
            }
        }
        Ok(())
    }
}

/// Return the position, or a message if it is not finite.
pub(crate) fn finite(x: Point) -> Result<Point, String> {
    // The expression is NaN unless all three numbers are finite.
    if x[0] * 0.0 + x[1] * 0.0 + x[2] * 0.0 == 0.0 {
        Ok(x)
    } else {
        Err("positions are not all finite numbers".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, square};
    use crate::instructions::{Instructions, allow};
    use crate::tests::Random;

    const CELLS: [[f32; 6]; 8] = [
        [0.0; 6],
        [40.0, 44.0, 48.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 7.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 40.0, 60.0, 60.0, 90.0],
        [40.0, 40.0, 40.0, 70.53, 109.47, 70.53],
        [50.0, 40.0, 45.0, 80.0, 100.0, 115.0],
        // A vector tilts by more than half of the vector before it.
        [60.0, 40.0, 45.0, 90.0, 90.0, 35.0],
        [9.0, 8.0, 10.0, 75.0, 62.0, 71.0],
    ];

    fn found(task: &PairList, frame: &[f32], cell: [f32; 6]) -> Result<Vec<Pair>, String> {
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        let mut pairs = Vec::new();
        let refused = task.find(&frames, |row, found| {
            assert_eq!(row, 0);
            pairs.extend_from_slice(found);
        });
        match refused.expect("a block") {
            Some((_, reason)) => Err(reason),
            None => Ok(pairs),
        }
    }

    /// Return the shortest distance over all nearby images: slow, but directly by the definition.
    fn shortest(frame: &[f32], reduced: Option<&Cell>, i: usize, j: usize) -> f64 {
        let (atoms, _) = frame.as_chunks::<3>();
        let d = std::array::from_fn(|k| f64::from(atoms[i][k]) - f64::from(atoms[j][k]));
        let Some(cell) = reduced else {
            return square(d).sqrt();
        };
        let d = cell.shifted(d, cell.nearest_images(d));
        let mut least = f64::INFINITY;
        for a in -1..=1 {
            for b in -1..=1 {
                for c in -1..=1 {
                    let images = [a, b, c].map(f64::from);
                    least = least.min(square(cell.shifted(d, images)));
                }
            }
        }
        least.sqrt()
    }

    #[test]
    fn pairs_are_those_of_all() {
        let mut random = Random(71);
        for cell in CELLS {
            let reduced = Cell::new(cell).ok().map(|cell| cell.reduced());
            let mut n_all = 0;
            for (n, m, size, cutoff) in [
                (70, 60, 30.0, 6.3),
                (180, 8, 40.0, 5.0),
                (6, 240, 17.0, 3.1),
                (180, 150, 16.0, 2.5),
            ] {
                let frame = random.structure(n + m, size, 13.0);
                let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
                let first: Vec<u32> = (0..n as u32).collect();
                let second: Vec<u32> = (n as u32..(n + m) as u32).rev().collect();
                for second in [None, Some(second)] {
                    let task = PairList::new(first.clone(), second.clone(), cutoff, true);
                    let pairs = found(&task.expect("a cutoff"), &frame, cell).expect("a cell");
                    assert!(pairs.is_sorted_by_key(|pair| (pair.i, pair.j)));
                    let others = second.as_ref().unwrap_or(&first);
                    let mut n_near = 0;
                    for i in 0..first.len() {
                        let begin = if second.is_some() { 0 } else { i + 1 };
                        for (j, &other) in others.iter().enumerate().skip(begin) {
                            let wanted = shortest(&frame, reduced.as_ref(), i, other as usize);
                            let here = (i as u32, j as u32);
                            let place = pairs.binary_search_by_key(&here, |pair| (pair.i, pair.j));
                            n_near += usize::from(place.is_ok());
                            match place {
                                Ok(k) => assert!((pairs[k].distance - wanted).abs() < 1e-4),
                                Err(_) => assert!(wanted > cutoff - 1e-4, "{cell:?} {wanted}"),
                            }
                        }
                    }
                    assert_eq!(n_near, pairs.len());
                    n_all += n_near;
                }
            }
            assert!(n_all > 100, "{cell:?}");
        }
    }

    /// Return positions on a lattice, in the cell or up to a number of cells away. Many distances
    /// equal the cutoff.
    fn on_grid(
        random: &mut Random,
        n_atoms: usize,
        size: f64,
        of: Option<Cell>,
        away: f64,
    ) -> Vec<Point> {
        let frame = random.structure(n_atoms, size, 1.0);
        let frame = frame.as_chunks::<3>().0.iter();
        frame
            .map(|x| {
                let x = x.map(|x| 0.5 * (2.0 * x).round());
                let images = random.vector::<3>().map(|x| (away * x).round());
                of.map_or(x, |cell| cell.shifted(x, images))
                    .map(|x| x as f32)
            })
            .collect()
    }

    #[test]
    fn a_search_finds_to_the_bit_what_measuring_all_pairs_finds() {
        let mut random = Random(73);
        let mut search = Search::default();
        let (mut n_found, mut n_at_cutoff) = (0, 0);
        for dimensions in CELLS {
            for (n, m, size, cutoff, away) in [
                (150, 90, 6.0, 2.5, 0.0),
                (40, 300, 9.0, 4.0, 30.0),
                (9, 200, 4.0, 1.5, 2.0),
                (200, 190, 20.0, 5.0, 1.0),
                (1, 30, 4.0, 3.0, 1.0),
            ] {
                let cell = cell_for(dimensions, cutoff, "this").expect("a cell");
                let frame = on_grid(&mut random, n + m, size, cell, away);
                let columns: Vec<u32> = (0..(n + m) as u32).rev().collect();
                let (first, second) = columns.split_at(n);
                let places = [first, second].map(|list| (0..list.len() as u32).collect::<Vec<_>>());
                let extent = || extent(&frame, [first, second]);
                let measure = Measure::new(cell, [n, m], cutoff, extent);
                let at = |column: u32| frame[column as usize];
                let (mut wanted, mut near) = (Vec::new(), vec![false; n + m]);
                for (&i, &first) in places[0].iter().zip(first) {
                    for (&j, &second) in places[1].iter().zip(second) {
                        let distance = measure.within(at(first), at(second)).expect("positions");
                        let Some(distance) = distance else { continue };
                        (near[first as usize], near[second as usize]) = (true, true);
                        n_at_cutoff += usize::from((distance - cutoff).abs() < 1e-4);
                        if distance > 1.0 {
                            wanted.push((i, j, distance.to_bits()));
                        }
                    }
                }
                n_found += wanted.len();
                for most in [Instructions::Avx512, Instructions::Base] {
                    allow(most);
                    let mut pairs = Vec::new();
                    let lists = places.each_ref().map(|list| &list[..]);
                    (search.find(
                        &frame,
                        &measure,
                        Some(1.0),
                        [first, second],
                        lists,
                        &mut pairs,
                        |_| (),
                    ))
                    .expect("positions");
                    let found = pairs.iter();
                    let found = found.map(|pair| (pair.i, pair.j, pair.distance.to_bits()));
                    let mut found: Vec<_> = found.collect();
                    found.sort_unstable();
                    assert_eq!(found, wanted, "{dimensions:?} {n} {m} {cutoff}");
                    let mut marks = vec![false; n + m];
                    for [of, others] in [[second, first], [first, second]] {
                        let [of, others] = [of, others].map(|places| Atoms {
                            frame: &frame,
                            columns: None,
                            places,
                        });
                        (search.mark_near(&measure, others, of, &mut marks)).expect("positions");
                    }
                    assert_eq!(marks, near, "{dimensions:?} {n} {m} {cutoff}");
                }
                allow(Instructions::Avx512);
            }
        }
        assert!(
            n_found > 5000 && n_at_cutoff > 200,
            "{n_found} {n_at_cutoff}"
        );
    }

    /// Test rows with more parts than a word has bits, in cells of all shapes.
    #[test]
    fn rows_of_bins_may_be_long() {
        let mut random = Random(75);
        let mut search = Search::default();
        let mut n_near = 0;
        for dimensions in [
            [160.0, 20.0, 24.0, 90.0, 90.0, 90.0],
            [160.0, 24.0, 20.0, 60.0, 60.0, 90.0],
            [170.0, 20.0, 24.0, 75.0, 110.0, 50.0],
            [170.0, 24.0, 22.0, 100.0, 65.0, 125.0],
            [0.0; 6],
        ] {
            let (n, m, cutoff) = (500, 2000, 2.3);
            let frame: Vec<Point> = (0..n + m)
                .map(|_| [160.0, 24.0, 24.0].map(|edge| (edge * random.number()) as f32))
                .collect();
            let columns: Vec<u32> = (0..(n + m) as u32).collect();
            let groups: [&[u32]; 2] = columns.split_at(n).into();
            let cell = cell_for(dimensions, cutoff, "this").expect("a cell");
            let measure = Measure::new(cell, [n, m], cutoff, || extent(&frame, groups));
            let [others, of] = groups.map(|places| Atoms {
                frame: &frame,
                columns: None,
                places,
            });
            let mut marks = vec![false; n + m];
            (search.mark_near(&measure, others, of, &mut marks)).expect("positions");
            for &second in groups[1] {
                let is_near = groups[0].iter().any(|&first| {
                    let [a, b] = [first, second].map(|column| frame[column as usize]);
                    measure.within(a, b).expect("positions").is_some()
                });
                n_near += usize::from(is_near);
                assert_eq!(marks[second as usize], is_near, "{dimensions:?} {second}");
            }
        }
        assert!((500..5000).contains(&n_near), "{n_near}");
    }

    #[test]
    fn those_that_are_searched_may_be_far_away() {
        let mut random = Random(74);
        let mut search = Search::default();
        let dimensions = [40.013, 44.007, 48.011, 90.0, 90.0, 90.0];
        let of = Cell::new(dimensions).expect("a cell");
        let (n, m, cutoff) = (9, 2000, 5.0);
        let columns: Vec<u32> = (0..(n + m) as u32).collect();
        let groups: [&[u32]; 2] = columns.split_at(n).into();
        let places = groups.map(|list| (0..list.len() as u32).collect::<Vec<_>>());
        let mut n_found = 0;
        for away in [20.0, 300.0, 30_000.0] {
            let mut frame = on_grid(&mut random, n, 12.0, Some(of), 0.0);
            frame.extend(on_grid(&mut random, m, 12.0, Some(of), away));
            let cell = cell_for(dimensions, cutoff, "this").expect("a cell");
            let measure = Measure::new(cell, [n, m], cutoff, || extent(&frame, groups));
            let mut wanted = Vec::new();
            for (&i, &first) in places[0].iter().zip(groups[0]) {
                for (&j, &second) in places[1].iter().zip(groups[1]) {
                    let [a, b] = [first, second].map(|column| frame[column as usize]);
                    if measure.within(a, b).expect("positions").is_some() {
                        wanted.push((i, j));
                    }
                }
            }
            let lists = places.each_ref().map(|list| &list[..]);
            let mut pairs = Vec::new();
            (search.find(&frame, &measure, None, groups, lists, &mut pairs, |_| ()))
                .expect("positions");
            let mut found: Vec<_> = pairs.iter().map(|pair| (pair.i, pair.j)).collect();
            found.sort_unstable();
            assert_eq!(found, wanted, "{away} cells");
            n_found += found.len();
        }
        assert!(n_found > 500, "{n_found}");
    }

    #[test]
    fn components_are_numbered_by_their_first_atoms() {
        let atoms: Vec<u32> = vec![0, 2, 1, 4, 3, 5];
        // Atoms along x, in the order of their indices: three form a chain across the cell face,
        // two are near each other, and one is alone.
        let x = [1.0, 18.0, 5.0, 12.0, 2.5, 8.0];
        let mut frame = vec![3.0_f32; 18];
        for (&atom, x) in atoms.iter().zip(x) {
            frame[3 * atom as usize] = x;
        }
        let cell = [20.0, 20.0, 20.0, 90.0, 90.0, 90.0];
        for (periodic, cutoff, expected) in [
            (true, 3.2, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
            (true, 2.9, [0.0, 1.0, 0.0, 2.0, 0.0, 3.0]),
            (false, 3.2, [0.0, 1.0, 0.0, 2.0, 0.0, 0.0]),
        ] {
            let task = Components::new(atoms.clone(), cutoff, periodic).expect("a cutoff");
            let frames = Frames::new(&frame, 6, &cell).expect("a frame");
            let mut row = [9.0; 6];
            assert!(task.compute(&frames, &mut row).expect("atoms").is_none());
            assert_eq!(row, expected, "{periodic} {cutoff}");
        }
    }

    #[test]
    fn what_cannot_be_searched_is_refused() {
        let atoms: Vec<u32> = (0..4).collect();
        let task = PairList::new(atoms.clone(), None, 3.0, true).expect("a cutoff");
        let mut frame = vec![1.0; 12];
        let low = found(&task, &frame, [20.0, 20.0, 2.5, 90.0, 90.0, 90.0]);
        assert!(low.is_err_and(|reason| reason.contains("shortest height of the cell is 2.500")));
        let none = found(&task, &frame, [20.0, 20.0, 20.0, 90.0, 10.0, 150.0]);
        assert!(none.is_err_and(|reason| reason.contains("make no cell")));
        frame[0] = 1e9;
        let far = found(&task, &frame, [20.0, 20.0, 20.0, 90.0, 90.0, 90.0]);
        assert!(far.is_err_and(|reason| reason.contains("too far away")));
        frame[0] = f32::NAN;
        assert!(found(&task, &frame, [0.0; 6]).is_err_and(|reason| reason.contains("finite")));
        assert!(PairList::new(atoms.clone(), None, 0.0, true).is_err());
        assert!(PairList::new(atoms, None, f64::NAN, true).is_err());
    }
}
