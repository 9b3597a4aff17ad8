//! Distances between atoms and between groups of atoms, and angles, with nearest images.

use super::cell::square;
use super::nearest_images::Images;
use super::row_kernel::{Frames, RowKernel};
use super::transform_interface::{self, Refused};
use super::{Columns, check_len};
use crate::instructions::by_widest;
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

/// Groups of atoms in separate arrays: the common part of the kernels in this module.
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
            transform_interface::weights(n_atoms, columns, weights)
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
/// The arctangent is that of the system library.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::tests::Random;

    const NONE: [f32; 6] = [0.0; 6];
    const CELLS: [[f32; 6]; 6] = [
        NONE,
        [20.0, 24.0, 28.0, 90.0, 90.0, 90.0],
        [30.0, 30.0, 30.0, 60.0, 60.0, 90.0],
        [30.0, 30.0, 30.0, 70.53, 109.47, 70.53],
        [31.0, 23.0, 27.0, 80.0, 100.0, 115.0],
        [20.0, 30.0, 25.0, 75.0, 62.0, 51.0],
    ];
    const N_ATOMS: usize = 90;

    fn computed(task: &impl RowKernel, frame: &[f32], cell: [f32; 6]) -> Result<Vec<f64>, String> {
        let mut row = vec![-1.0; task.n_columns()];
        let frames = Frames::new(frame, frame.len() / 3, &cell).unwrap();
        match task.compute(&frames, &mut row).unwrap() {
            Some((_, reason)) => Err(reason),
            None => Ok(row),
        }
    }

    fn frame(seed: u64, size: f64) -> Vec<f32> {
        let positions = Random(seed).structure(N_ATOMS, size, 5.0);
        positions.into_iter().map(|x| x as f32).collect()
    }

    /// Return the shortest of all images up to four cells away: slow, but directly by the
    /// definition.
    fn shortest(d: [f64; 3], cell: [f32; 6]) -> f64 {
        let Ok(cell) = Cell::new(cell) else {
            return square(d).sqrt();
        };
        let around = || (-4..=4).map(f64::from);
        around()
            .flat_map(|i| around().map(move |j| (i, j)))
            .flat_map(|(i, j)| around().map(move |k| [i, j, k]))
            .map(|images| square(cell.shifted(d, images)))
            .fold(f64::INFINITY, f64::min)
            .sqrt()
    }

    fn between(frame: &[f32], i: usize, j: usize) -> [f64; 3] {
        let [from, to] =
            [i, j].map(|atom| transform_interface::position(frame, atom).map(f64::from));
        difference(to, from)
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-11, "{found} {expected}");
    }

    #[test]
    fn matrices_pairs_and_the_least_are_those_of_the_nearest_images() {
        let first: Vec<usize> = (0..30).rev().collect();
        let second: Vec<usize> = (0..60).map(|i| 30 + 7 * i % 60).collect();
        for (seed, cell) in CELLS.into_iter().enumerate() {
            let frame = frame(seed as u64, 18.0);
            let wanted = |i, j| shortest(between(&frame, i, j), cell);
            let own = computed(
                &DistanceMatrix::new(&first, None, true).unwrap(),
                &frame,
                cell,
            );
            let mut own = own.unwrap().into_iter();
            for (k, &i) in first.iter().enumerate() {
                for &j in &first[k + 1..] {
                    assert_close(own.next().unwrap(), wanted(i, j));
                }
            }
            assert_eq!(own.next(), None);
            let task = DistanceMatrix::new(&first, Some(&second), true).unwrap();
            let all = computed(&task, &frame, cell).unwrap();
            for (k, &i) in first.iter().enumerate() {
                for (l, &j) in second.iter().enumerate() {
                    assert_close(all[60 * k + l], wanted(i, j));
                }
            }
            let task = AtomicDistances::new(&first, &second[..30], true).unwrap();
            let pairs = computed(&task, &frame, cell).unwrap();
            for (k, &distance) in pairs.iter().enumerate() {
                assert_eq!(distance, all[60 * k + k]);
            }
            let task = MinimumDistance::new(&first, &second, true).unwrap();
            let found = computed(&task, &frame, cell).unwrap();
            assert_eq!(found[0], all.iter().copied().fold(f64::INFINITY, f64::min));
            assert_eq!(found[0], all[60 * found[1] as usize + found[2] as usize]);
        }
    }

    #[test]
    fn without_periodicity_cells_are_left_alone() {
        let frame = frame(8, 28.0);
        let columns: Vec<usize> = (0..N_ATOMS).collect();
        let task = DistanceMatrix::new(&columns, None, false).unwrap();
        let plain = computed(&task, &frame, NONE).unwrap();
        for cell in [CELLS[1], CELLS[2], [30.0, 30.0, 30.0, 30.0, 30.0, 60.0]] {
            assert_eq!(computed(&task, &frame, cell).unwrap(), plain);
        }
        assert_close(plain[1], square(between(&frame, 0, 2)).sqrt());
    }

    #[test]
    fn of_equals_the_first_pair_is_the_nearest() {
        let frame = [
            0., 0., 0., 9., 0., 0., 1., 0., 0., 0., 1., 0., 8., 0., 0.0f32,
        ];
        let task = MinimumDistance::new(&[1, 0], &[3, 2, 4], true).unwrap();
        assert_eq!(computed(&task, &frame, NONE).unwrap(), [1.0, 0.0, 2.0]);
        let task = MinimumDistance::new(&[0, 1], &[3, 2, 4], true).unwrap();
        assert_eq!(computed(&task, &frame, NONE).unwrap(), [1.0, 0.0, 0.0]);
        let many: Vec<usize> = std::iter::repeat_n(4, 2000).chain([3, 2]).collect();
        let task = MinimumDistance::new(&[0], &many, true).unwrap();
        assert_eq!(computed(&task, &frame, NONE).unwrap(), [1.0, 0.0, 2000.0]);
    }

    #[test]
    fn centres_are_weighted() {
        // Centres are at x = 1 and 9: 8 Å apart, or 2 Å through the face of a cell of 10 Å.
        let frame = [0., 0., 0., 4., 0., 0., 8., 0., 0., 10., 0., 0.0f32];
        let groups: [(&[usize], Option<&[f64]>); 2] =
            [(&[0, 1], Some(&[3.0, 1.0])), (&[3, 2], None)];
        let task = CenterDistance::new(groups, true).unwrap();
        assert_eq!(computed(&task, &frame, NONE).unwrap(), [8.0]);
        let cell = [10.0, 50.0, 50.0, 90.0, 90.0, 90.0];
        assert_eq!(computed(&task, &frame, cell).unwrap(), [2.0]);
        let plain = CenterDistance::new(groups, false).unwrap();
        assert_eq!(computed(&plain, &frame, cell).unwrap(), [8.0]);
        assert!(CenterDistance::new([(&[0], Some(&[0.0])), (&[1], None)], true).is_err());
        assert!(CenterDistance::new([(&[0], Some(&[1.0, 2.0])), (&[1], None)], true).is_err());
    }

    #[test]
    fn angles_are_those_of_the_nearest_images() {
        let frame = [9.5, 0., 0., 0.5, 0., 0., 0.5, 2., 0., 2.5, 2., 0.0f32];
        let task = Angles::new(&[0, 0], &[1, 1], &[2, 3], true).unwrap();
        let close = |found: Vec<f64>, expected: [f64; 2]| {
            assert!(
                found
                    .iter()
                    .zip(expected)
                    .all(|(x, y)| (x - y).abs() < 1e-12),
                "{found:?}"
            );
        };
        close(computed(&task, &frame, NONE).unwrap(), [90.0, 45.0]);
        let cell = [10.0, 20.0, 20.0, 90.0, 90.0, 90.0];
        close(computed(&task, &frame, cell).unwrap(), [90.0, 135.0]);
        let line = Angles::new(&[0], &[1], &[0], true).unwrap();
        assert_eq!(computed(&line, &frame, NONE).unwrap(), [0.0]);
        let reason = computed(&task, &[1.0; 12], NONE).unwrap_err();
        assert_eq!(reason, "two atoms of angle 0 are at the same position");
    }

    #[test]
    fn nan_stays_where_it_is() {
        let mut frame = frame(9, 28.0);
        frame[3 * 4 + 1] = f32::NAN;
        for cell in CELLS {
            let task = AtomicDistances::new(&[3, 4, 5], &[8, 9, 4], true).unwrap();
            let found = computed(&task, &frame, cell).unwrap();
            assert_eq!([0, 1, 2].map(|k| found[k].is_nan()), [false, true, true]);
            let least = MinimumDistance::new(&[3, 4, 5], &[8, 9], true).unwrap();
            assert!(
                computed(&least, &frame, cell)
                    .unwrap()
                    .iter()
                    .all(|x| x.is_nan())
            );
            let centres = CenterDistance::new([(&[3, 4], None), (&[9], None)], true).unwrap();
            assert!(computed(&centres, &frame, cell).unwrap()[0].is_nan());
            let angles = Angles::new(&[3, 4], &[5, 6], &[7, 8], true).unwrap();
            let found = computed(&angles, &frame, cell).unwrap();
            assert!(!found[0].is_nan() && found[1].is_nan());
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        assert!(AtomicDistances::new(&[0, 1], &[2], true).is_err());
        assert!(Angles::new(&[0, 1], &[2, 3], &[4], true).is_err());
        assert!(DistanceMatrix::new(&[], None, true).is_err());
        assert!(MinimumDistance::new(&[0], &[], true).is_err());
        let task = DistanceMatrix::new(&[0, 1], None, true).unwrap();
        let flat = [30.0, 30.0, 30.0, 30.0, 30.0, 60.0];
        let reason = computed(&task, &frame(3, 5.0), flat).unwrap_err();
        assert!(reason.contains("make no cell, and pbc=True needs one"));
        let far = DistanceMatrix::new(&[0, 99], None, true).unwrap();
        let frames = frame(3, 5.0);
        let frames = Frames::new(&frames, N_ATOMS, &NONE).unwrap();
        assert!(far.compute(&frames, &mut [0.0]).is_err());
    }
}
