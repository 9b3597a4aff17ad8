//! Pairs of atoms of two groups within a distance: the pairs, distances and order of
//! `MDAnalysis.lib.distances.capped_distance`, to the last bit.
//!
//! Atoms of the smaller group are sorted into boxes of the cell, in single precision and with room
//! for rounding; of the larger group only those are looked at whose box is near any of these. What
//! may be near is then measured as MDAnalysis measures it.

use super::cell::{ApplyPbc, Cell, is_placeholder, nearest_in, nearest_of_27, rounded, square};
use super::qcp::Matrix3;
use super::rdf::are_searched_by_cells;
use super::rows::{Frames, RowKernel, cell_or_none};
use super::transform::Refused;
use super::unwrap::fragments;
use paceline_formats::error::{self, Error};

mod boxes;
mod shell;

use boxes::{Boxes, MANY};
use shell::Shell;

/// A position, in single precision.
pub type Point = [f32; 3];

/// Two atoms that are near each other: their places in the two groups, and how far apart, Å.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    pub i: u32,
    pub j: u32,
    pub distance: f64,
}

/// How MDAnalysis rounds the distances of one frame, and in which order it finds them.
#[derive(Debug, Clone)]
pub struct Measure {
    cell: Option<Cell>,
    pbc: Option<ApplyPbc>,
    edges: Point,
    /// Subtracted from positions of a frame without a cell.
    origin: Point,
    /// None where it compares all pairs.
    lists: Option<Lists>,
    cutoff: f64,
}

impl Measure {
    /// For groups of such `sizes`; `extent` gives the least and largest coordinates of both, which
    /// matter where there is no cell.
    pub fn new(
        cell: Option<Cell>,
        sizes: [usize; 2],
        cutoff: f64,
        extent: impl FnOnce() -> [Point; 2],
    ) -> Self {
        let Some(of) = cell else {
            let [low, high] = extent();
            let size: Point = std::array::from_fn(|k| high[k] - low[k]);
            let by_lists = are_searched_by_cells(sizes, cutoff, size);
            let margin = (0.1 * cutoff) as f32;
            let longest = size.into_iter().fold((2.0 * cutoff) as f32, f32::max);
            let edge = longest + (2.2 * cutoff) as f32;
            let mut vectors = [[0.0; 3]; 3];
            for (axis, vector) in vectors.iter_mut().enumerate() {
                vector[axis] = f64::from(edge);
            }
            return Measure {
                cell: None,
                pbc: None,
                edges: [0.0; 3],
                origin: if by_lists {
                    low.map(|x| x - margin)
                } else {
                    [0.0; 3]
                },
                lists: by_lists.then(|| Lists::new(&vectors, cutoff, false)),
                cutoff,
            };
        };
        let vectors = of.vectors();
        let extent = |k: usize| {
            let column = vectors.map(|vector| vector[k] as f32);
            column.into_iter().fold(f32::MIN, f32::max)
                - column.into_iter().fold(f32::MAX, f32::min)
        };
        let edges = std::array::from_fn(|k| vectors[k][k] as f32);
        let size = if of.is_oblique() {
            std::array::from_fn(extent)
        } else {
            edges
        };
        let by_lists = are_searched_by_cells(sizes, cutoff, size);
        Measure {
            cell,
            pbc: Some(ApplyPbc::new(vectors)),
            edges,
            origin: [0.0; 3],
            lists: by_lists.then(|| Lists::new(vectors, cutoff, true)),
            cutoff,
        }
    }

    /// The position from which distances are measured.
    ///
    /// # Errors
    /// One sentence where single precision cannot put it into the cell.
    fn placed(&self, x: Point) -> Result<Point, String> {
        match &self.pbc {
            Some(pbc) if self.is_in_cell() => in_cell(pbc, x),
            _ => Ok(std::array::from_fn(|k| x[k] - self.origin[k])),
        }
    }

    /// True if distances are measured between positions in the cell.
    fn is_in_cell(&self) -> bool {
        let oblique = self.cell.as_ref().is_some_and(Cell::is_oblique);
        self.pbc.is_some() && (oblique || self.lists.is_some())
    }

    /// Square of the distance between two positions that were placed, Å².
    fn square(&self, a: Point, b: Point) -> f64 {
        let d: [f64; 3] = std::array::from_fn(|k| f64::from(a[k] - b[k]));
        match &self.cell {
            None => square(d),
            Some(cell) if cell.is_oblique() => nearest_of_27(cell)(d),
            Some(_) if self.lists.is_none() => nearest_in(self.edges)(d),
            Some(_) => square(std::array::from_fn(|k| {
                let half = f64::from(0.5 * self.edges[k]);
                if d[k] > half {
                    d[k] - f64::from(self.edges[k])
                } else if d[k] <= -half {
                    d[k] + f64::from(self.edges[k])
                } else {
                    d[k]
                }
            })),
        }
    }

    /// The distance of two positions, Å, if it is within the cutoff.
    pub(crate) fn within(&self, a: Point, b: Point) -> Result<Option<f64>, String> {
        Ok(self.within_placed(self.placed(a)?, self.placed(b)?))
    }

    /// The distance of two positions that were placed, Å, if it is within the cutoff.
    fn within_placed(&self, a: Point, b: Point) -> Option<f64> {
        let square = self.square(a, b);
        let distance = square.sqrt();
        let is_within = match self.lists {
            Some(_) => square <= self.cutoff * self.cutoff,
            None => distance <= self.cutoff,
        };
        is_within.then_some(distance)
    }

    /// The shortest image of the difference of two positions, as `calc_angles` rounds it.
    pub fn difference(&self, from: Point, to: Point) -> Result<[f64; 3], String> {
        let plain = |from: Point, to: Point| std::array::from_fn(|k| f64::from(to[k] - from[k]));
        Ok(match (&self.cell, &self.pbc) {
            (Some(cell), Some(pbc)) if cell.is_oblique() => {
                let d = plain(in_cell(pbc, from)?, in_cell(pbc, to)?);
                if cell.is_near(d) {
                    d
                } else {
                    shortest_of_27(cell, d)
                }
            }
            (Some(_), _) => {
                let d: [f64; 3] = plain(from, to);
                std::array::from_fn(|k| {
                    let edges_apart = f64::from(1.0 / self.edges[k]) * d[k];
                    f64::from(self.edges[k]) * (edges_apart - rounded(edges_apart))
                })
            }
            _ => plain(from, to),
        })
    }

    /// Put places `j` in the second group, all near one position, in the order in which MDAnalysis
    /// finds them. `position` is that of a place.
    pub fn sort(
        &self,
        at: Point,
        places: &mut [(u32, f64)],
        position: impl Fn(u32) -> Point,
    ) -> Result<(), String> {
        if places.len() < 2 {
            return Ok(());
        }
        let Some(lists) = &self.lists else {
            places.sort_unstable_by_key(|&(j, _)| j);
            return Ok(());
        };
        let home = lists.cell(self.placed(at)?);
        let mut keys = Vec::with_capacity(places.len());
        for &(j, distance) in &*places {
            let rank = lists.rank(home, lists.cell(self.placed(position(j))?));
            keys.push((rank, std::cmp::Reverse(j), distance));
        }
        keys.sort_unstable_by_key(|&(rank, j, _)| (rank, j));
        for (place, (_, j, distance)) in places.iter_mut().zip(keys) {
            *place = (j.0, distance);
        }
        Ok(())
    }
}

/// The cell of a frame in which pairs within `cutoff` (Å) are searched; none where it has none.
///
/// # Errors
/// One sentence where lengths and angles make no cell, or one that is lower than the cutoff.
pub(crate) fn cell_for(
    dimensions: [f32; 6],
    cutoff: f64,
    needed_by: &str,
) -> Result<Option<Cell>, String> {
    if is_placeholder(dimensions) {
        return Ok(None);
    }
    let cell = cell_or_none(dimensions, needed_by)?;
    match cell {
        Some(cell) if 4.0 * cell.near() < cutoff * cutoff => Err(format!(
            "the shortest height of the cell is {:.3} Å, and pairs up to {cutoff} Å are searched",
            2.0 * cell.near().sqrt()
        )),
        _ => Ok(cell),
    }
}

/// Pairs of atoms of two groups, or of one, that are near each other in each frame.
#[derive(Debug, Clone)]
pub struct PairList {
    first: Vec<u32>,
    /// None where it is the first again: each pair comes once, the earlier place first.
    second: Option<Vec<u32>>,
    cutoff: f64,
    periodic: bool,
}

impl PairList {
    /// Pairs within `cutoff` (Å); of nearest images in frames that have a cell, if `periodic`.
    ///
    /// # Errors
    /// [`Error::Argument`] where the cutoff is none.
    pub fn new(
        first: Vec<u32>,
        second: Option<Vec<u32>>,
        cutoff: f64,
        periodic: bool,
    ) -> error::Result<Self> {
        if !(cutoff.is_finite() && cutoff > 0.0) {
            return Err(Error::Argument(format!("{cutoff} Å is no cutoff")));
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

    /// Find the pairs of each frame of a block, in the order of places, and count them; the first
    /// frame that cannot be searched, and why.
    ///
    /// # Errors
    /// [`Error::Argument`] where a block has no such atoms.
    pub fn find(
        &self,
        frames: &Frames<'_>,
        counts: &mut Vec<i64>,
        pairs: &mut Vec<Pair>,
    ) -> error::Result<Option<Refused>> {
        let mut finder = Finder::new(self, frames.n_atoms())?;
        Ok(frames.try_each(|frame, dimensions| {
            let found = finder.find(frame, dimensions)?;
            counts.push(found.len() as i64);
            pairs.extend_from_slice(found);
            Ok(())
        }))
    }
}

/// Finds the pairs of one frame after another.
struct Finder<'a> {
    list: &'a PairList,
    /// Places in both groups.
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

    /// Pairs in the order of places; one sentence if the frame cannot be searched.
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
        self.search
            .find(frame, &measure, None, groups, all, &mut self.found)?;
        if self.list.second.is_none() {
            self.found.retain(|pair| pair.i < pair.j);
        }
        self.found.sort_unstable_by_key(|pair| (pair.i, pair.j));
        Ok(&self.found)
    }
}

/// Numbers the connected components of a graph of atoms, whose edges are the pairs within a cutoff.
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

    /// The number of each atom's component, from 0, in the order of their first atoms.
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

/// Least and largest coordinates of two groups, Å.
pub(crate) fn extent(frame: &[Point], lists: [&[u32]; 2]) -> [Point; 2] {
    let atoms = lists.into_iter().flatten();
    extent_of(atoms.map(|&atom| frame[atom as usize]))
}

/// Least and largest coordinates, Å.
pub(crate) fn extent_of(positions: impl Iterator<Item = Point>) -> [Point; 2] {
    let mut extent = [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
    for x in positions {
        extent[0] = std::array::from_fn(|k| extent[0][k].min(x[k]));
        extent[1] = std::array::from_fn(|k| extent[1][k].max(x[k]));
    }
    extent
}

fn in_cell(pbc: &ApplyPbc, x: Point) -> Result<Point, String> {
    pbc.apply(x)
        .ok_or_else(|| format!("an atom at {x:?} Å is too far away to be put into the cell"))
}

/// The shortest of a difference and its 26 images, in the order of MDAnalysis.
fn shortest_of_27(cell: &Cell, d: [f64; 3]) -> [f64; 3] {
    let [a, b, c] = *cell.vectors();
    let mut best = (f64::from(f32::MAX), d);
    for i in [-1.0, 0.0, 1.0] {
        let x = d[0] + a[0] * i;
        for j in [-1.0, 0.0, 1.0] {
            let (x, y) = (x + b[0] * j, d[1] + b[1] * j);
            for k in [-1.0, 0.0, 1.0] {
                let image = [x + c[0] * k, y + c[1] * k, d[2] + c[2] * k];
                if square(image) < best.0 {
                    best = (square(image), image);
                }
            }
        }
    }
    best.1
}

/// MDAnalysis's cell lists, by which it orders what it finds.
#[derive(Debug, Clone)]
struct Lists {
    n: [i64; 3],
    periodic: [bool; 3],
    /// Edges of a list's cell, and tilts: b over y, c over y and over x.
    sizes: [f64; 3],
    tilts: [f64; 3],
}

impl Lists {
    fn new(vectors: &Matrix3, cutoff: f64, periodic: bool) -> Self {
        let [a, b, c] = *vectors;
        let volume = a[0] * b[1] * c[2];
        let face = [b[1] * c[2], b[0] * c[2], b[0] * c[1] - b[1] * c[0]];
        let widths = [
            volume / square(face).sqrt(),
            b[1] * c[2] / (c[1] * c[1] + c[2] * c[2]).sqrt(),
            c[2],
        ];
        let least = f64::from((f64::from((cutoff as f32).max(1.0)) + 0.001) as f32);
        let (few, most) = (if periodic { 3 } else { 2 }, 1290.0);
        let n = widths.map(|width| match (width / least).floor().min(most) as i64 {
            n if n <= few => 1,
            n => n,
        });
        Lists {
            periodic: n.map(|n| periodic && n > 1),
            sizes: std::array::from_fn(|k| vectors[k][k] / n[k] as f64),
            tilts: [b[0] / b[1], c[1] / c[2], c[0] / c[2]],
            n,
        }
    }

    fn cell(&self, x: Point) -> [i64; 3] {
        let [x, y, z] = x.map(f64::from);
        let y = y - z * self.tilts[1];
        let along = [x - y * self.tilts[0] - z * self.tilts[2], y, z];
        std::array::from_fn(|k| ((along[k] / self.sizes[k]) as i64).rem_euclid(self.n[k]))
    }

    /// Place of a cell among those around another one; the last for any that is not.
    fn rank(&self, home: [i64; 3], other: [i64; 3]) -> usize {
        let offset = |k: usize| {
            let offset = other[k] - home[k];
            match self.periodic[k] {
                true if offset == self.n[k] - 1 => -1,
                true if offset == 1 - self.n[k] => 1,
                _ => offset,
            }
        };
        let offsets = [0, 1, 2].map(offset);
        if offsets.iter().any(|offset| offset.abs() > 1) {
            return 27;
        }
        let [x, y, z] = offsets.map(|offset| (offset + 1) as usize);
        9 * x + 3 * y + z
    }
}

/// Searches pairs of two groups, frame after frame.
#[derive(Debug, Clone, Default)]
pub struct Search {
    boxes: Boxes,
    shell: Shell,
    near: Vec<u32>,
    found: Vec<[u32; 2]>,
}

impl Search {
    /// Add pairs within the measure's cutoff and farther than `least` (Å, if given) to `pairs`, in
    /// any order: of the places `first` and `second` in two groups of such columns of the frame.
    ///
    /// # Errors
    /// One sentence for positions that are not finite, or cannot be put into the cell.
    pub fn find(
        &mut self,
        frame: &[Point],
        measure: &Measure,
        least: Option<f64>,
        columns: [&[u32]; 2],
        [first, second]: [&[u32]; 2],
        pairs: &mut Vec<Pair>,
    ) -> Result<(), String> {
        self.found.clear();
        let swapped = first.len() < second.len();
        let (few, many) = if swapped {
            (first, second)
        } else {
            (second, first)
        };
        let [of_few, of_many] = if swapped {
            columns
        } else {
            [columns[1], columns[0]]
        };
        let at = |columns: &[u32], place: u32| frame[columns[place as usize] as usize];
        let is_sparse = many.len() >= MANY * few.len();
        (self.boxes).fill(measure, few, is_sparse, |place| at(of_few, place))?;
        self.boxes
            .near(many, |place| at(of_many, place), &mut self.near)?;
        let (boxes, in_cell) = (&self.boxes, measure.is_in_cell());
        let mut add = |[many, few]: [u32; 2], [of_many, of_few]: [Point; 2]| {
            let ([i, j], [a, b]) = match swapped {
                true => ([few, many], [of_few, of_many]),
                false => ([many, few], [of_many, of_few]),
            };
            if let Some(distance) = measure.within_placed(a, b)
                && least.is_none_or(|least| distance > least)
            {
                pairs.push(Pair { i, j, distance });
            }
        };
        for &place in &self.near {
            let x = boxes.home(at(of_many, place))?;
            if in_cell && !boxes.repeats {
                boxes.search(x, |other, point| add([place, other], [x, point]));
            } else {
                boxes.search(x, |other, _| self.found.push([place, other]));
            }
        }
        if boxes.repeats {
            self.found.sort_unstable();
            self.found.dedup();
        }
        for &[many, few] in &self.found {
            let positions = [
                measure.placed(at(of_many, many))?,
                measure.placed(at(of_few, few))?,
            ];
            add([many, few], positions);
        }
        Ok(())
    }
}

impl Search {
    /// Mark the `places` that are within the measure's cutoff of any of `of`.
    ///
    /// # Errors
    /// As [`Search::find`].
    pub(crate) fn mark_near(
        &mut self,
        measure: &Measure,
        at: impl Fn(u32) -> Point + Copy,
        of: &[u32],
        places: &[u32],
        marks: &mut [bool],
    ) -> Result<(), String> {
        if of.len() <= places.len() && self.shell.fill(measure, of, at) {
            let mut refused = Ok(());
            let is_near = |atom, place| match measure.within(at(atom), at(place)) {
                Ok(distance) => distance.is_some(),
                Err(reason) => {
                    refused = Err(reason);
                    true
                }
            };
            if self.shell.find(places, at, marks, is_near) {
                return refused;
            }
        }
        let (few, many) = if of.len() < places.len() {
            (of, places)
        } else {
            (places, of)
        };
        let places_are_few = of.len() >= places.len();
        let is_sparse = many.len() >= MANY * few.len();
        self.boxes.fill(measure, few, is_sparse, at)?;
        self.boxes.near(many, at, &mut self.near)?;
        let mut refused = Ok(());
        for &one in &self.near {
            let x = at(one);
            let home = self.boxes.home(x)?;
            self.boxes.search(home, |other, _| {
                let (from, place) = if places_are_few {
                    (x, other)
                } else {
                    (at(other), one)
                };
                if !marks[place as usize] {
                    match measure.within(from, at(place)) {
                        Ok(distance) => marks[place as usize] = distance.is_some(),
                        Err(reason) => refused = Err(reason),
                    }
                }
            });
        }
        refused
    }
}

/// The position, where it is one.
pub(crate) fn finite(x: Point) -> Result<Point, String> {
    // Of a number that is not finite, this is no number.
    if x[0] * 0.0 + x[1] * 0.0 + x[2] * 0.0 == 0.0 {
        Ok(x)
    } else {
        Err("positions are not all finite numbers".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELLS: [[f32; 6]; 8] = [
        [0.0; 6],
        [40.0, 44.0, 48.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 7.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 40.0, 60.0, 60.0, 90.0],
        [40.0, 40.0, 40.0, 70.53, 109.47, 70.53],
        [50.0, 40.0, 45.0, 80.0, 100.0, 115.0],
        // Leaning by more than half.
        [60.0, 40.0, 45.0, 90.0, 90.0, 35.0],
        [9.0, 8.0, 10.0, 75.0, 62.0, 71.0],
    ];

    fn found(task: &PairList, frame: &[f32], cell: [f32; 6]) -> Result<Vec<Pair>, String> {
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        let (mut counts, mut pairs) = (Vec::new(), Vec::new());
        match task
            .find(&frames, &mut counts, &mut pairs)
            .expect("a block")
        {
            Some((_, reason)) => Err(reason),
            None => {
                assert_eq!(counts, [pairs.len() as i64]);
                Ok(pairs)
            }
        }
    }

    /// The shortest distance of all images nearby: slow, and nothing but the definition.
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

    #[test]
    fn components_are_numbered_by_their_first_atoms() {
        let atoms: Vec<u32> = vec![0, 2, 1, 4, 3, 5];
        // Along x, as the atoms are listed: three that are a chain by the border of the cell, two
        // that are near each other, and one alone.
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
