//! Cell lists whose cells are columns along x. An atom is compared only with atoms of nearby
//! columns, within a window of x that moves with the atom.
//!
//! A column extends along the vector a, which lies along x, through the whole cell. Its atoms are
//! sorted by x. The larger the distance between two columns, the smaller the distance along x of
//! near atoms.
//!
//! This search suits the many pairs of an RDF, which are counted and not stored. Listing the near
//! pairs alone would take 3 times as long as an RDF to 8 Å, and 13 times as long as an RDF to 15 Å.
//! For a search of near pairs, columns take 4 to 20 times as long as the bins of
//! [`crate::near_pairs`].

use std::ops::Range;

use crate::cell::{SLACK, square};
use crate::histogram::{FastBins, Histogram, PIECE};
use crate::superposition::Matrix3;
use crate::threads_within_frame::{MANY, change, compute_parts, part_len, ranges};

/// Number of columns in a length equal to the largest distance. Narrower columns exclude more
/// pairs, but contain fewer atoms. For 11,084 atoms and 15 Å, 3 columns take 4 % less time than 2,
/// and 9 % less than 4.
const COLUMNS_WITHIN: f64 = 3.0;

/// Minimum number of atoms in a part of a frame that one thread computes.
const LEAST_ATOMS: usize = 1024;

/// Maximum relative change of a distance by rounding to single precision.
const ROUNDED: f64 = 1e-6;

/// Division of a cell, or of the extent of atoms without a cell, into columns.
#[derive(Debug, Clone)]
pub struct Grid {
    origin: [f64; 3],
    vectors: Matrix3,
    periodic: bool,
    /// Numbers of columns along b and c.
    n: [usize; 2],
    /// Maximum distance of the search, including a margin for rounding, Å.
    reach: f64,
    /// Maximum rounding error of a distance within reach in single precision, Å.
    rounded: f64,
    /// Offsets of the columns that have atoms within reach.
    offsets: Vec<Offset>,
}

#[derive(Debug, Clone, Copy)]
struct Offset {
    columns: [i64; 2],
    /// Maximum distance along x between two atoms within reach, Å.
    window: f64,
}

/// Atoms of one group, sorted into columns.
#[derive(Debug, Clone)]
pub struct CellColumns {
    points: Points,
    /// Index at which each column begins, and the end of the last column.
    begins: Vec<usize>,
}

impl Grid {
    /// Divide a periodic cell that contains `n_atoms` atoms. `end`, the largest distance to count
    /// (Å), must be less than half the smallest height.
    pub fn of_cell(vectors: &Matrix3, end: f64, n_atoms: usize) -> Self {
        // The margin also covers positions that rounding moved out of the cell: they are assigned
        // to the column at the edge.
        let reach = end * (1.0 + ROUNDED) + 4.0 * SLACK * longest(vectors);
        Grid::new([0.0; 3], *vectors, true, reach, n_atoms)
    }

    /// Divide the extent of the atoms in a frame without a cell.
    pub fn of_extent(extent: &[Range<f32>; 3], end: f64, n_atoms: usize) -> Self {
        let origin = [0, 1, 2].map(|axis| f64::from(extent[axis].start));
        let edge = |axis: usize| f64::from(extent[axis].end) - origin[axis];
        let vectors = [
            [edge(0), 0.0, 0.0],
            [0.0, edge(1), 0.0],
            [0.0, 0.0, edge(2)],
        ];
        Grid::new(origin, vectors, false, end * (1.0 + ROUNDED), n_atoms)
    }

    fn new(origin: [f64; 3], vectors: Matrix3, periodic: bool, reach: f64, n_atoms: usize) -> Self {
        let edges = [vectors[1][1], vectors[2][2]];
        // The number of columns is at most the number of atoms, for any distance and extent.
        let width = (reach / COLUMNS_WITHIN).max((edges[0] * edges[1] / n_atoms as f64).sqrt());
        let n = edges.map(|edge| ((edge / width) as usize).clamp(1, n_atoms.max(1)));
        let shift = if periodic {
            4.0 * longest(&vectors)
        } else {
            0.0
        };
        let mut grid = Grid {
            origin,
            vectors,
            periodic,
            n,
            reach,
            // The rounding errors are bounded by the longest shift, which is two cells: differences
            // of positions are shorter.
            rounded: 8.0 * f64::from(f32::EPSILON) * (reach + shift),
            offsets: Vec::new(),
        };
        grid.offsets = grid.near();
        grid
    }

    /// Find the offsets of all columns within reach.
    fn near(&self) -> Vec<Offset> {
        let (along_b, along_c) = self.steps();
        // Without a cell there are no columns beyond the edge. With a cell, columns repeat
        // periodically.
        let limit = |axis: usize, so_many: f64| {
            let within = self.n[axis] as i64 - 1;
            if self.periodic {
                so_many.ceil() as i64
            } else {
                within.min(so_many.ceil() as i64)
            }
        };
        let most_c = limit(1, self.reach / along_c[1] + 1.0);
        let mut offsets = Vec::new();
        for k in -most_c..=most_c {
            let aside = -(k as f64) * along_c[0] / along_b;
            let room = (self.reach + along_c[0].abs()) / along_b + 1.0;
            let most_b = limit(0, aside.abs() + room);
            for j in -most_b..=most_b {
                let gap = self.gap(j, k);
                if gap < self.reach {
                    let window = (self.reach * self.reach - gap * gap).sqrt();
                    offsets.push(Offset {
                        columns: [j, k],
                        window,
                    });
                }
            }
        }
        offsets
    }

    /// Return the width of a column along b, and the step to the next column along c (y and z), Å.
    fn steps(&self) -> (f64, [f64; 2]) {
        let [_, b, c] = self.vectors;
        let [n_b, n_c] = self.n.map(|n| n as f64);
        (b[1] / n_b, [c[1] / n_c, c[2] / n_c])
    }

    /// Return the minimum distance between two columns with the offsets `j` and `k` along b and c,
    /// Å.
    fn gap(&self, j: i64, k: i64) -> f64 {
        if j.abs() <= 1 && k.abs() <= 1 {
            return 0.0;
        }
        let (b, [c_y, c_z]) = self.steps();
        // The differences between points of two columns fill a parallelogram, twice the size of a
        // column. The result is the distance of this parallelogram from the origin.
        let centre = [j as f64 * b + k as f64 * c_y, k as f64 * c_z];
        let level = -centre[1] / c_z;
        if level.abs() <= 1.0 && (centre[0] + level * c_y).abs() <= b {
            return 0.0;
        }
        let edges = [-1.0, 1.0].map(|side| {
            let beside = [centre[0] + side * b, centre[1]];
            let above = [centre[0] + side * c_y, centre[1] + side * c_z];
            distance_to_edge(beside, [c_y, c_z]).min(distance_to_edge(above, [b, 0.0]))
        });
        edges[0].min(edges[1])
    }

    /// Sort atoms into columns, and by x in each.
    pub fn sort(&self, positions: &[[f32; 3]], labels: &[u32]) -> CellColumns {
        let mut columns = vec![0; positions.len()];
        change(&mut columns, MANY, |first, columns| {
            for (column, x) in columns.iter_mut().zip(&positions[first..]) {
                *column = self.column(x) as u32;
            }
        });
        // Counting sort. The begin of each column is stored one entry later, and advances to the
        // end of the column while its atoms are sorted.
        let mut begins = vec![0; self.n[0] * self.n[1] + 2];
        for &column in &columns {
            begins[column as usize + 2] += 1;
        }
        for column in 2..begins.len() {
            begins[column] += begins[column - 1];
        }
        let mut keys = vec![0; positions.len()];
        for ((&column, x), atom) in columns.iter().zip(positions).zip(0_u32..) {
            let place = &mut begins[column as usize + 1];
            keys[*place] = u64::from(ordered(x[0])) << 32 | u64::from(atom);
            *place += 1;
        }
        begins.pop();
        let mut rest = &mut keys[..];
        let mut parts = Vec::new();
        for range in column_ranges(&begins) {
            let n_atoms = begins[range.end] - begins[range.start];
            let (part, behind) = rest.split_at_mut(n_atoms);
            parts.push((part, &begins[range.start..=range.end]));
            rest = behind;
        }
        compute_parts(parts.into_iter(), |(mut keys, begins)| {
            for ends in begins.windows(2) {
                let (column, behind) = keys.split_at_mut(ends[1] - ends[0]);
                column.sort_unstable();
                keys = behind;
            }
        });
        CellColumns {
            points: Points::new(positions, labels, |place| keys[place] as u32 as usize),
            begins,
        }
    }

    /// Return the column of a position.
    fn column(&self, x: &[f32; 3]) -> usize {
        let [_, b, c] = self.vectors;
        let [y, z] = [1, 2].map(|axis| f64::from(x[axis]) - self.origin[axis]);
        // If the atoms have no extent along an axis, the quotient is NaN, which is converted to 0.
        let along_c = z / c[2];
        let along_b = (y - if along_c.is_finite() {
            along_c * c[1]
        } else {
            0.0
        }) / b[1];
        let at = |part: f64, n: usize| ((part * n as f64) as usize).min(n - 1);
        at(along_b, self.n[0]) + self.n[0] * at(along_c, self.n[1])
    }

    /// Count the distances from all atoms of one group to all atoms of another group.
    pub fn count(&self, from: &CellColumns, to: &CellColumns, found: &mut Histogram) {
        found.add_parts(column_ranges(&from.begins), |columns, found| {
            for offset in &self.offsets {
                self.count_at(offset, from, to, false, columns.clone(), found);
            }
        });
    }

    /// Count each distance between two atoms of a group once.
    pub fn count_own(&self, of: &CellColumns, found: &mut Histogram) {
        // Only half of the offsets are used, because the other half gives the same pairs.
        let half = self.offsets.iter().filter(|offset| {
            let [j, k] = offset.columns;
            (k, j) >= (0, 0)
        });
        found.add_parts(column_ranges(&of.begins), |columns, found| {
            for offset in half.clone() {
                let once = offset.columns == [0, 0];
                self.count_at(offset, of, of, once, columns.clone(), found);
            }
        });
    }

    /// Count the distances from the atoms of some columns to those of the columns at one offset.
    /// `once` is true if both groups are the same and the offset is zero; each pair then counts
    /// once.
    fn count_at(
        &self,
        offset: &Offset,
        from: &CellColumns,
        to: &CellColumns,
        once: bool,
        columns: Range<usize>,
        found: &mut Histogram,
    ) {
        let mut rough = found.rough(self.rounded);
        for column in columns {
            let Some((other, [b, c])) = self.neighbour(column, offset.columns) else {
                continue;
            };
            let (ours, theirs) = (from.row(column), to.row(other));
            if ours.is_empty() || theirs.is_empty() {
                continue;
            }
            let images = if self.periodic {
                let ends = [(from, &ours), (to, &theirs)].map(|(columns, row)| {
                    let x = &columns.points.x()[row.clone()];
                    [x[0], x[x.len() - 1]].map(f64::from)
                });
                self.images(ends[0], ends[1], offset.window, [b, c])
            } else {
                0..=0
            };
            for a in images {
                // Images with negative numbers along a give the same pairs in reverse.
                if once && a < 0 {
                    continue;
                }
                let shift = self.shift([a, b, c]);
                sweep(
                    (from, ours.clone()),
                    (to, theirs.clone()),
                    shift,
                    offset.window,
                    once && a == 0,
                    rough.as_mut(),
                    found,
                );
            }
        }
    }

    /// Return the column at an offset from another column, and the image of the cell in which it
    /// lies; `None` if there is no such column.
    fn neighbour(&self, column: usize, offset: [i64; 2]) -> Option<(usize, [i64; 2])> {
        let n = self.n.map(|n| n as i64);
        let at = [
            column as i64 % n[0] + offset[0],
            column as i64 / n[0] + offset[1],
        ];
        let image = [0, 1].map(|axis| at[axis].div_euclid(n[axis]));
        if !self.periodic && image != [0, 0] {
            return None;
        }
        let [j, k] = [0, 1].map(|axis| at[axis].rem_euclid(n[axis]));
        Some(((j + n[0] * k) as usize, image))
    }

    /// Return the images along a for which atoms of two columns can be near, given the minimum and
    /// maximum x of both columns.
    fn images(
        &self,
        ours: [f64; 2],
        theirs: [f64; 2],
        window: f64,
        [b, c]: [i64; 2],
    ) -> std::ops::RangeInclusive<i64> {
        let aside = self.shift([0, b, c])[0];
        let a = self.vectors[0][0];
        let first = (ours[0] - window - theirs[1] - aside) / a;
        let last = (ours[1] + window - theirs[0] - aside) / a;
        first.ceil() as i64..=last.floor() as i64
    }

    /// Return a sum of whole cell vectors, Å.
    fn shift(&self, images: [i64; 3]) -> [f64; 3] {
        let [a, b, c] = self.vectors;
        let [i, j, k] = images.map(|n| n as f64);
        std::array::from_fn(|axis| i * a[axis] + j * b[axis] + k * c[axis])
    }
}

/// Divide columns into ranges with about equal numbers of atoms. `begins` contains the index of the
/// first atom of each column, and the end of the last column.
fn column_ranges(begins: &[usize]) -> impl ExactSizeIterator<Item = Range<usize>> + Send {
    let (last, n_atoms) = (begins.len() - 1, begins[begins.len() - 1]);
    let column = move |atom| match atom == n_atoms {
        true => last,
        false => begins.partition_point(|&begin| begin < atom),
    };
    ranges(n_atoms, part_len(n_atoms, LEAST_ATOMS))
        .map(move |atoms| column(atoms.start)..column(atoms.end))
}

impl CellColumns {
    fn row(&self, column: usize) -> Range<usize> {
        self.begins[column]..self.begins[column + 1]
    }
}

/// Count distances between the atoms of two columns, one of them shifted. If `once` is true, both
/// are the same column without a shift.
fn sweep(
    (from, ours): (&CellColumns, Range<usize>),
    (to, theirs): (&CellColumns, Range<usize>),
    shift: [f64; 3],
    window: f64,
    once: bool,
    mut rough: Option<&mut FastBins>,
    found: &mut Histogram,
) {
    let x = to.points.x();
    let (mut begin, mut end) = (theirs.start, theirs.start);
    for i in ours {
        let at = f64::from(from.points.x()[i]) - shift[0];
        while begin < theirs.end && f64::from(x[begin]) < at - window {
            begin += 1;
        }
        end = end.max(begin);
        while end < theirs.end && f64::from(x[end]) <= at + window {
            end += 1;
        }
        let row = if once { i + 1..end } else { begin..end };
        match &mut rough {
            Some(rough) => to
                .points
                .count_shifted(&from.points, i, row, shift, rough, found),
            None => {
                let square = |d: [f64; 3]| square([0, 1, 2].map(|axis| d[axis] - shift[axis]));
                to.points.count(&from.points, i, row, square, found);
            }
        }
    }
}

/// Return the largest magnitude of any component of the vectors, Å.
fn longest(vectors: &Matrix3) -> f64 {
    vectors
        .iter()
        .flatten()
        .fold(0.0, |most: f64, x| most.max(x.abs()))
}

/// Return the distance from the origin to an edge, which extends from `centre` by `half` in both
/// directions.
fn distance_to_edge(centre: [f64; 2], half: [f64; 2]) -> f64 {
    let length = half[0] * half[0] + half[1] * half[1];
    let mut along = 0.0;
    if length > 0.0 {
        let nearest = -(centre[0] * half[0] + centre[1] * half[1]) / length;
        along = nearest.clamp(-1.0, 1.0);
    }
    let nearest = [0, 1].map(|axis| centre[axis] + along * half[axis]);
    (nearest[0] * nearest[0] + nearest[1] * nearest[1]).sqrt()
}

/// Convert a finite number to an integer. Such integers sort like the numbers.
fn ordered(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_sign_negative() {
        !bits
    } else {
        bits | 1 << 31
    }
}

// Positions in separate arrays, and distances from one position to a row of others.

/// Number of distances that are computed together.
const LANES: usize = 8;

/// Positions (Å) of some atoms, and labels that exclude pairs.
#[derive(Debug, Clone, Default)]
pub struct Points {
    axes: [Vec<f32>; 3],
    /// Label of each atom; empty if no pair is excluded. Two atoms with the same label are not
    /// counted as a pair.
    labels: Vec<u32>,
    len: usize,
}

impl Points {
    /// Copy all positions: position k of the copy is that of atom `atom_at(k)`. `labels` is empty,
    /// or has one number per atom.
    pub fn new(
        positions: &[[f32; 3]],
        labels: &[u32],
        atom_at: impl Fn(usize) -> usize + Sync,
    ) -> Self {
        // Positions are read in groups of `LANES`, and the last group may extend beyond the end.
        let (len, padded) = (positions.len(), positions.len() + LANES);
        let mut axes = [const { Vec::new() }; 3];
        let part = part_len(len, MANY);
        let [x, y, z] = axes.each_mut().map(|axis| {
            axis.resize(padded, 0.0);
            axis[..len].chunks_mut(part)
        });
        compute_parts(x.zip(y).zip(z).enumerate(), |(number, ((x, y), z))| {
            for (((x, y), z), place) in x.iter_mut().zip(y).zip(z).zip(part * number..) {
                [*x, *y, *z] = positions[atom_at(place)];
            }
        });
        let mut of_atoms: Vec<u32> = Vec::new();
        if !labels.is_empty() {
            of_atoms.extend((0..len).map(|place| labels[atom_at(place)]));
            of_atoms.resize(padded, 0);
        }
        Points {
            axes,
            labels: of_atoms,
            len,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Return the x coordinates, by which columns are sorted.
    pub fn x(&self) -> &[f32] {
        &self.axes[0][..self.len]
    }

    /// Count distances from point `i` of `from` to a row of these points. `square` computes the
    /// squared distance (Å²) from a difference of positions. The difference is rounded to single
    /// precision, as in MDAnalysis.
    #[inline(always)]
    pub fn count(
        &self,
        from: &Points,
        i: usize,
        row: Range<usize>,
        square: impl Fn([f64; 3]) -> f64,
        found: &mut Histogram,
    ) {
        let mut squares = [0.0; PIECE];
        for begin in row.clone().step_by(PIECE) {
            let piece = begin..row.end.min(begin + PIECE);
            let others = self.axes.each_ref().map(|axis| &axis[piece.clone()]);
            for (k, square_of) in squares[..piece.len()].iter_mut().enumerate() {
                let d = std::array::from_fn(|axis| from.axes[axis][i] - others[axis][k]);
                *square_of = square(d.map(f64::from));
            }
            for (j, &square) in piece.zip(&squares) {
                if self.pairs_with(j, from, i) {
                    found.add(square);
                }
            }
        }
    }

    /// Visit the points of a row whose squared distance from a position is at most `most` (Å²).
    /// `square` computes the squared distance from a difference of positions.
    #[inline(always)]
    pub fn visit_within(
        &self,
        at: [f32; 3],
        row: Range<usize>,
        square: impl Fn([f64; 3]) -> f64,
        most: f64,
        mut visit: impl FnMut(usize, f64),
    ) {
        let mut squares = [0.0; PIECE];
        for begin in row.clone().step_by(PIECE) {
            let piece = begin..row.end.min(begin + PIECE);
            let others = self.axes.each_ref().map(|axis| &axis[piece.clone()]);
            for (k, square_of) in squares[..piece.len()].iter_mut().enumerate() {
                let d = std::array::from_fn(|axis| at[axis] - others[axis][k]);
                *square_of = square(d.map(f64::from));
            }
            for (j, &square) in piece.zip(&squares) {
                if square <= most {
                    visit(j, square);
                }
            }
        }
    }

    /// Count distances from point `i` of `from` to a row of these points, shifted by a vector (Å).
    #[inline]
    pub fn count_shifted(
        &self,
        from: &Points,
        i: usize,
        row: Range<usize>,
        shift: [f64; 3],
        rough: &mut FastBins,
        found: &mut Histogram,
    ) {
        for begin in row.clone().step_by(PIECE) {
            let piece = begin..row.end.min(begin + PIECE);
            let n = piece.len().next_multiple_of(LANES);
            let nearly = shift.map(|x| x as f32);
            self.squares(from.at(i), begin, nearly, &mut rough.squares[..n]);
            let in_doubt = rough.assign(n);
            if let Some(&label) = from.labels.get(i) {
                rough.leave_out(&self.labels[begin..begin + n], label);
            }
            let bins = rough.bins[..piece.len()].iter().copied();
            if !in_doubt {
                found.add_assigned(bins);
                continue;
            }
            for j in piece.filter(|j| rough.doubts[j - begin] != 0) {
                found.add(square_apart(from.at(i), self.at(j), shift));
            }
            let assigned = bins.zip(&rough.doubts).filter(|(_, doubt)| **doubt == 0);
            found.add_assigned(assigned.map(|(bin, _)| bin));
        }
    }

    /// Compute squared distances in single precision (Å²) from a position to a row of these points,
    /// shifted.
    #[inline(never)]
    fn squares(&self, at: [f32; 3], begin: usize, shift: [f32; 3], squares: &mut [f32]) {
        let row = begin..begin + squares.len();
        let [x, y, z] = self.axes.each_ref().map(|axis| &axis[row.clone()]);
        for (((square, x), y), z) in squares.iter_mut().zip(x).zip(y).zip(z) {
            let x = at[0] - x - shift[0];
            let y = at[1] - y - shift[1];
            let z = at[2] - z - shift[2];
            *square = x * x + y * y + z * z;
        }
    }

    fn at(&self, i: usize) -> [f32; 3] {
        self.axes.each_ref().map(|axis| axis[i])
    }

    /// Return true if point `j` and point `i` of `from` count as a pair.
    #[inline(always)]
    fn pairs_with(&self, j: usize, from: &Points, i: usize) -> bool {
        self.labels.is_empty() || self.labels[j] != from.labels[i]
    }
}

/// Return the squared distance between two positions, one of them shifted, Å².
pub fn square_apart(one: [f32; 3], other: [f32; 3], shift: [f64; 3]) -> f64 {
    square(std::array::from_fn(|axis| {
        f64::from(one[axis] - other[axis]) - shift[axis]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::tests::Random;

    #[test]
    fn numbers_are_in_the_order_of_their_bits() {
        let numbers = [f32::MIN, -3.0, -1e-30, -0.0, 0.0, 1e-30, 2.5, f32::MAX];
        assert!(numbers.map(ordered).is_sorted());
    }

    #[test]
    fn a_gap_is_the_least_distance_between_two_columns() {
        let cell = Cell::new([80.0, 80.0, 80.0, 60.0, 60.0, 90.0]).expect("a cell");
        let grid = Grid::of_cell(cell.vectors(), 15.0, 10_000);
        let (b, [c_y, c_z]) = grid.steps();
        let mut random = Random(41);
        for j in -6..=6 {
            for k in -6..=6 {
                let least = (0..400)
                    .map(|_| {
                        let [s, t] = random.vector::<2>();
                        let y = (j as f64 + s) * b + (k as f64 + t) * c_y;
                        let z = (k as f64 + t) * c_z;
                        (y * y + z * z).sqrt()
                    })
                    .fold(f64::INFINITY, f64::min);
                let gap = grid.gap(j, k);
                assert!(
                    gap <= least && least < gap + 0.6 * (b + c_z),
                    "{gap} {least}"
                );
            }
        }
    }

    #[test]
    fn there_are_never_more_columns_than_atoms() {
        let far = [0.0..1e30, -1e30..1e30, -1.0..1e30];
        let flat = [0.0..1.0, 0.0..0.0, 0.0..1e20];
        for extent in [far, flat, [const { 0.0..0.0 }; 3]] {
            for end in [1e-30, 1.0, 1e30] {
                for n_atoms in [1, 2, 1000] {
                    let grid = Grid::of_extent(&extent, end, n_atoms);
                    assert!(grid.n[0] * grid.n[1] <= n_atoms, "{grid:?}");
                    assert!(grid.offsets.len() <= 100 * 100, "{grid:?}");
                }
            }
        }
    }
}
