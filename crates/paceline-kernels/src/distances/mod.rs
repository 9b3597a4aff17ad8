//! Distances between atoms and between groups of atoms, and angles, with nearest images.

use super::cell::{Cell, square, whole};
use super::instructions::by_widest;
use super::row_kernel::{Frames, RowKernel, cell_or_none};
use super::transform_common::{self, Refused};
use super::{Columns, check_len};
use paceline_base::error::{Error, Result};

/// Number of distances that are computed before their minimum is searched.
const PIECE: usize = 512;

/// Separate arrays of x, y and z of atoms, Å.
#[derive(Default)]
pub(crate) struct Points([Vec<f64>; 3]);

impl Points {
    fn set(&mut self, positions: &[f32]) {
        for (axis, numbers) in self.0.iter_mut().enumerate() {
            numbers.clear();
            numbers.extend(positions[axis..].iter().step_by(3).map(|&x| f64::from(x)));
        }
    }

    fn len(&self) -> usize {
        self.0[0].len()
    }

    fn are_finite(&self) -> bool {
        self.0.iter().flatten().all(|x| x.is_finite())
    }

    fn centre(&self, weights: &[f64]) -> [f64; 3] {
        let total: f64 = weights.iter().sum();
        (self.0.each_ref()).map(|x| {
            x.iter()
                .zip(weights)
                .map(|(x, weight)| x * weight)
                .sum::<f64>()
                / total
        })
    }

    #[inline]
    pub(crate) fn at(&self, i: usize) -> [f64; 3] {
        [self.0[0][i], self.0[1][i], self.0[2][i]]
    }
}

by_widest! {
    /// Fill `out` with squared distances (Å²) from a point to the atoms from index `first` on.
    fn squares_from(
        points: &Points, images: &Images, from: [f64; 3], first: usize, out: &mut [f64],
    ) {
        let [x, y, z] = points.0.each_ref().map(|x| &x[first..first + out.len()]);
        images.squares(out, |k| [x[k] - from[0], y[k] - from[1], z[k] - from[2]]);
    }
}

by_widest! {
    /// Fill `out` with squared distances (Å²) of pairs of atoms.
    fn squares_of_pairs(first: &Points, second: &Points, images: &Images, out: &mut [f64]) {
        let [a, b, c] = first.0.each_ref().map(|x| &x[..out.len()]);
        let [x, y, z] = second.0.each_ref().map(|x| &x[..out.len()]);
        images.squares(out, |k| [x[k] - a[k], y[k] - b[k], z[k] - c[k]]);
    }
}

pub(crate) fn difference(to: [f64; 3], from: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| to[i] - from[i])
}

by_widest! {
    fn roots(squares: &mut [f64]) {
        for square in squares {
            *square = square.sqrt();
        }
    }
}

/// Groups of atoms, whose positions are copied to separate arrays: the common part of the kernels
/// in this module.
#[derive(Debug, Clone)]
pub(crate) struct Groups<const N: usize> {
    columns: [Columns; N],
    periodic: bool,
}

impl<const N: usize> Groups<N> {
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms.
    pub(crate) fn new(columns: [&[usize]; N], periodic: bool) -> Result<Self> {
        if columns.iter().any(|columns| columns.is_empty()) {
            return Err(Error::Argument("a group has no atoms".to_string()));
        }
        let columns = columns.map(Columns::new);
        Ok(Groups { columns, periodic })
    }

    /// Fill a row for each frame, given the positions of the groups.
    pub(crate) fn fill_rows(
        &self,
        frames: &Frames<'_>,
        out: &mut [f64],
        n_columns: usize,
        mut fill: impl FnMut(&[Points; N], &Images, &mut [f64]) -> Result<(), String>,
    ) -> Result<Option<Refused>> {
        self.fill_each_row(frames, out, n_columns, |_, points, images, row| {
            fill(points, images, row)
        })
    }

    /// Fill rows like `fill_rows`, but also pass the row number of the frame.
    pub(crate) fn fill_each_row(
        &self,
        frames: &Frames<'_>,
        out: &mut [f64],
        n_columns: usize,
        mut fill: impl FnMut(usize, &[Points; N], &Images, &mut [f64]) -> Result<(), String>,
    ) -> Result<Option<Refused>> {
        for columns in &self.columns {
            columns.check(frames.n_atoms())?;
        }
        let mut points = std::array::from_fn(|_| Points::default());
        let mut scratch = Vec::new();
        frames.fill_each_row(out, n_columns, |number, frame, dimensions, row| {
            let images = Images::new(dimensions, self.periodic)?;
            for (points, columns) in points.iter_mut().zip(&self.columns) {
                points.set(columns.pick(frame, &mut scratch));
            }
            fill(number, &points, &images, row)
        })
    }
}

/// Distances between corresponding atoms of two groups.
#[derive(Debug, Clone)]
pub struct AtomicDistances(Groups<2>);

impl AtomicDistances {
    /// # Errors
    /// [`Error::Argument`] if the groups are empty, or differ in size.
    pub fn new(first: &[usize], second: &[usize], periodic: bool) -> Result<Self> {
        check_len("atoms of the second group", second.len(), first.len())?;
        Groups::new([first, second], periodic).map(AtomicDistances)
    }
}

impl RowKernel for AtomicDistances {
    fn n_columns(&self) -> usize {
        self.0.columns[0].len()
    }

    /// Compute distances, Å. A distance is NaN if a position is NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        let n_columns = self.n_columns();
        (self.0).fill_rows(frames, out, n_columns, |[first, second], images, row| {
            squares_of_pairs(first, second, images, row);
            roots(row);
            Ok(())
        })
    }
}

/// Distances between all atoms of two groups, sorted by the atoms of the first group. For one
/// group, distances from each atom to all later atoms.
#[derive(Debug, Clone)]
pub struct DistanceMatrix {
    groups: Groups<2>,
    /// True if both groups are the same.
    own: bool,
}

impl DistanceMatrix {
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms.
    pub fn new(first: &[usize], second: Option<&[usize]>, periodic: bool) -> Result<Self> {
        Ok(DistanceMatrix {
            groups: Groups::new([first, second.unwrap_or(first)], periodic)?,
            own: second.is_none(),
        })
    }
}

impl RowKernel for DistanceMatrix {
    fn n_columns(&self) -> usize {
        let [first, second] = self.groups.columns.each_ref().map(Columns::len);
        if self.own {
            first * (first - 1) / 2
        } else {
            first * second
        }
    }

    /// Compute distances, Å. A distance is NaN if a position is NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        let n_columns = self.n_columns();
        (self.groups).fill_rows(frames, out, n_columns, |[first, second], images, row| {
            let mut rest = row;
            for i in 0..first.len() {
                let begin = if self.own { i + 1 } else { 0 };
                let (of_atom, behind) = rest.split_at_mut(second.len() - begin);
                squares_from(second, images, first.at(i), begin, of_atom);
                roots(of_atom);
                rest = behind;
            }
            Ok(())
        })
    }
}

/// Distance between the weighted centres of two groups.
#[derive(Debug, Clone)]
pub struct CenterDistance {
    groups: Groups<2>,
    weights: [Vec<f64>; 2],
}

impl CenterDistance {
    /// Create a kernel from two groups, each with columns and weights. Without weights, all atoms
    /// have equal weight.
    ///
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms, the numbers of weights and atoms differ, or
    /// weights are negative, not finite or all 0.
    pub fn new(groups: [(&[usize], Option<&[f64]>); 2], periodic: bool) -> Result<Self> {
        let [first, second] = groups;
        let weights = |(columns, weights): (&[usize], Option<&[f64]>)| {
            let n_atoms = columns
                .iter()
                .max()
                .map_or(0, |last| last.saturating_add(1));
            transform_common::weights(n_atoms, columns, weights)
        };
        Ok(CenterDistance {
            weights: [weights(first)?, weights(second)?],
            groups: Groups::new([first.0, second.0], periodic)?,
        })
    }
}

impl RowKernel for CenterDistance {
    fn n_columns(&self) -> usize {
        1
    }

    /// Compute the distance, Å. It is NaN if a position is NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.groups
            .fill_rows(frames, out, 1, |points, images, row| {
                let [first, second] = [0, 1].map(|i| points[i].centre(&self.weights[i]));
                row[0] = square(images.nearest(difference(second, first))).sqrt();
                Ok(())
            })
    }
}

/// Minimum distance between the atoms of two groups, and the first pair with this distance.
#[derive(Debug, Clone)]
pub struct MinimumDistance(Groups<2>);

impl MinimumDistance {
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms.
    pub fn new(first: &[usize], second: &[usize], periodic: bool) -> Result<Self> {
        Groups::new([first, second], periodic).map(MinimumDistance)
    }
}

impl RowKernel for MinimumDistance {
    fn n_columns(&self) -> usize {
        3
    }

    /// Compute the distance (Å), and the indices of the two atoms in their groups. All are NaN if
    /// any position is not finite.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        let mut squares = [0.0; PIECE];
        (self.0).fill_rows(frames, out, 3, |[first, second], images, row| {
            if !(first.are_finite() && second.are_finite()) {
                row.fill(f64::NAN);
                return Ok(());
            }
            let mut best = (f64::INFINITY, 0, 0);
            for i in 0..first.len() {
                for begin in (0..second.len()).step_by(PIECE) {
                    let piece = &mut squares[..PIECE.min(second.len() - begin)];
                    squares_from(second, images, first.at(i), begin, piece);
                    let least = least(piece);
                    if least < best.0 {
                        let place = piece.iter().position(|&square| square == least);
                        best = (least, i, begin + place.unwrap_or(0));
                    }
                }
            }
            row.copy_from_slice(&[best.0.sqrt(), best.1 as f64, best.2 as f64]);
            Ok(())
        })
    }
}

/// Return the minimum of some numbers, none of them NaN. The compiler can vectorise the loop.
fn least(numbers: &[f64]) -> f64 {
    let mut lanes = [f64::INFINITY; 4];
    let (chunks, rest) = numbers.as_chunks::<4>();
    for chunk in chunks {
        for (lane, &number) in lanes.iter_mut().zip(chunk) {
            *lane = if number < *lane { number } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest);
    all.fold(f64::INFINITY, |least, &x| if x < least { x } else { least })
}

/// Angles of triples of atoms, at the second atom.
///
/// The arctangent is that of the system library, so that the last bit may differ between systems.
#[derive(Debug, Clone)]
pub struct Angles(Groups<3>);

impl Angles {
    /// # Errors
    /// [`Error::Argument`] if the groups are empty, or differ in size.
    pub fn new(first: &[usize], second: &[usize], third: &[usize], periodic: bool) -> Result<Self> {
        check_len("atoms of the second group", second.len(), first.len())?;
        check_len("atoms of the third group", third.len(), first.len())?;
        Groups::new([first, second, third], periodic).map(Angles)
    }
}

impl RowKernel for Angles {
    fn n_columns(&self) -> usize {
        self.0.columns[0].len()
    }

    /// Compute angles, degrees. An angle is NaN if a position is NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        let n_columns = self.n_columns();
        self.0
            .fill_rows(frames, out, n_columns, |groups, images, row| {
                for (k, angle) in row.iter_mut().enumerate() {
                    let [first, middle, third] = groups.each_ref().map(|group| group.at(k));
                    let a = images.nearest(difference(first, middle));
                    let b = images.nearest(difference(third, middle));
                    if square(a) == 0.0 || square(b) == 0.0 {
                        return Err(format!("two atoms of angle {k} are at the same position"));
                    }
                    *angle = angle_between(a, b);
                }
                Ok(())
            })
    }
}

fn angle_between(a: [f64; 3], b: [f64; 3]) -> f64 {
    let cross = [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ];
    let dot = a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    square(cross).sqrt().atan2(dot).to_degrees()
}

/// Number of differences that are collected before their neighbouring images are computed at once.
const FAR: usize = 32;

/// Computation of the nearest image of a difference of positions, Å.
pub(crate) enum Images {
    /// No cell.
    Plain,
    /// Cell with right angles: edges and their inverses.
    Rectangular([f64; 3], [f64; 3]),
    Triclinic(Box<Triclinic>),
}

impl Images {
    /// Create the computation for a frame. Images are searched if `periodic` is true and the frame
    /// has a cell.
    pub fn new(dimensions: [f32; 6], periodic: bool) -> Result<Self, String> {
        if !periodic {
            return Ok(Images::Plain);
        }
        Ok(match cell_or_none(dimensions, "pbc=True")? {
            None => Images::Plain,
            Some(cell) if cell.is_triclinic() => Images::Triclinic(Box::new(Triclinic::new(&cell))),
            Some(cell) => {
                let edges: [f64; 3] = std::array::from_fn(|i| cell.vectors()[i][i]);
                Images::Rectangular(edges, edges.map(|edge| 1.0 / edge))
            }
        })
    }

    pub fn nearest(&self, d: [f64; 3]) -> [f64; 3] {
        match self {
            Images::Plain => d,
            Images::Rectangular(edges, inverse) => folded(d, edges, inverse),
            Images::Triclinic(cell) => cell.nearest(cell.folded(d)),
        }
    }

    /// Fill `out` with squared distances (Å²). `difference` returns the difference of each pair.
    #[inline(always)]
    pub fn squares(&self, out: &mut [f64], difference: impl Fn(usize) -> [f64; 3]) {
        match self {
            Images::Plain => {
                for (k, out) in out.iter_mut().enumerate() {
                    *out = square(difference(k));
                }
            }
            // The cell is copied to local variables. Otherwise it would be read again for each
            // distance, since `out` might alias it.
            Images::Rectangular(edges, inverse) => {
                let (edges, inverse) = (*edges, *inverse);
                for (k, out) in out.iter_mut().enumerate() {
                    *out = square(folded(difference(k), &edges, &inverse));
                }
            }
            Images::Triclinic(cell) => {
                let (vectors, over) = (cell.vectors, cell.over);
                for (k, out) in out.iter_mut().enumerate() {
                    *out = square(folded_aslant(difference(k), &vectors, &over));
                }
                let mut far = Far::default();
                for k in 0..out.len() {
                    if out[k] >= cell.near {
                        far.push(k, cell.folded(difference(k)));
                        if far.n == FAR {
                            far.shorten(cell, out);
                        }
                    }
                }
                far.shorten(cell, out);
            }
        }
    }
}

/// Cell with angles other than 90°: [`Cell::nearest_images`] for many differences.
pub(crate) struct Triclinic {
    /// Reduced vectors: each tilts by at most half of the vectors before it.
    vectors: [[f64; 3]; 3],
    /// Inverses of the diagonal elements of the vectors.
    over: [f64; 3],
    /// Square of half the shortest height of the cell, Å², as [`Cell::near`].
    near: f64,
    /// Half of the 26 neighbouring images (opposite images are left out), and their squared
    /// distances (Å²).
    neighbours: [([f64; 3], f64); 13],
}

impl Triclinic {
    fn new(cell: &Cell) -> Self {
        let cell = cell.reduced();
        let vectors = *cell.vectors();
        let neighbours = std::array::from_fn(|k| {
            // In the base-3 numbers 14 to 26, the first digit other than 1 is a 2. In the opposite
            // images, which are left out, this digit is a 0.
            let digits = [(k + 14) / 9, (k + 14) / 3 % 3, (k + 14) % 3];
            let vector = cell.shifted([0.0; 3], digits.map(|digit| digit as f64 - 1.0));
            (vector, square(vector))
        });
        Triclinic {
            vectors,
            over: std::array::from_fn(|i| 1.0 / vectors[i][i]),
            near: cell.near(),
            neighbours,
        }
    }

    /// Return the image that is found by rounding vector by vector. If the square of this image is
    /// below `near`, it is the nearest image.
    #[inline(always)]
    fn folded(&self, d: [f64; 3]) -> [f64; 3] {
        folded_aslant(d, &self.vectors, &self.over)
    }

    /// Return the nearest of a rounded image and its 26 neighbours.
    fn nearest(&self, d: [f64; 3]) -> [f64; 3] {
        if square(d) < self.near {
            return d;
        }
        let (mut most, mut by) = (0.0, [0.0; 3]);
        for (vector, square_of) in &self.neighbours {
            let along = d[0] * vector[0] + d[1] * vector[1] + d[2] * vector[2];
            let gain = 2.0 * along.abs() - square_of;
            if gain > most {
                most = gain;
                by = vector.map(|x| if along > 0.0 { -x } else { x });
            }
        }
        std::array::from_fn(|i| d[i] + by[i])
    }
}

/// Rounded images whose square is not below `near`, so that a neighbouring image may be shorter.
#[derive(Default)]
struct Far {
    n: usize,
    places: [usize; FAR],
    /// Coordinates x, y and z of the images.
    images: [[f64; FAR]; 3],
}

impl Far {
    #[inline(always)]
    fn push(&mut self, place: usize, image: [f64; 3]) {
        self.places[self.n] = place;
        for (numbers, x) in self.images.iter_mut().zip(image) {
            numbers[self.n] = x;
        }
        self.n += 1;
    }

    /// Replace the squared distances in `out` by those of the nearest neighbouring images, and
    /// clear the list.
    fn shorten(&mut self, cell: &Triclinic, out: &mut [f64]) {
        shorten(self, cell, out);
        self.n = 0;
    }
}

by_widest! {
    /// As [`Far::shorten`].
    ///
    /// |d ± s|² is d² + (s² ± 2 d·s). There is no cancellation: if a rounded image is not the
    /// nearest, it is about half a cell away.
    fn shorten(far: &Far, cell: &Triclinic, out: &mut [f64]) {
        let [x, y, z] = far.images.each_ref().map(|numbers| &numbers[..far.n]);
        let mut changes = [0.0; FAR];
        let changes = &mut changes[..far.n];
        for (vector, square_of) in &cell.neighbours {
            for (i, change) in changes.iter_mut().enumerate() {
                let along = x[i] * vector[0] + y[i] * vector[1] + z[i] * vector[2];
                let by = square_of - 2.0 * along.abs();
                *change = if by < *change { by } else { *change };
            }
        }
        for (&place, change) in far.places.iter().zip(changes) {
            out[place] += *change;
        }
    }
}

/// Return the image that is found by rounding vector by vector, in a triclinic cell.
#[inline(always)]
fn folded_aslant([x, y, z]: [f64; 3], [a, b, c]: &[[f64; 3]; 3], over: &[f64; 3]) -> [f64; 3] {
    let w = whole(z * over[2]);
    let [x, y, z] = [x - w * c[0], y - w * c[1], z - w * c[2]];
    let v = whole(y * over[1]);
    let [x, y] = [x - v * b[0], y - v * b[1]];
    [x - whole(x * over[0]) * a[0], y, z]
}

/// Return the nearest image in a rectangular cell.
#[inline(always)]
fn folded(d: [f64; 3], edges: &[f64; 3], inverse: &[f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| d[i] - edges[i] * whole(d[i] * inverse[i]))
}

#[cfg(test)]
mod tests;
