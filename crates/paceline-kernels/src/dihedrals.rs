//! Dihedral angles in each frame of a block, as defined by
//! `MDAnalysis.lib.distances.calc_dihedrals`.
//!
//! A dihedral angle is the angle between two planes: the plane of the first three of four atoms,
//! and the plane of the last three. The kernel computes the tangent, and from it the angle. Only
//! `+ − × ÷ √` are used, so the compiler can vectorise over angles, and the bits do not depend on a
//! system library.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::cell::{Cell, cross, dot};
use super::row_kernel::{Frames, RowKernel, cell_or_none};
use super::transform_common::Refused;
use paceline_base::error::{Error, Result};

/// Dihedral angles to compute in each frame: one column for each angle.
#[derive(Debug, Clone)]
pub struct Dihedrals {
    /// Four columns of the block for each angle.
    quadruples: Vec<[usize; 4]>,
}

impl Dihedrals {
    /// Create a kernel for dihedral angles. `columns` contains four atoms for each angle, one angle
    /// after the other.
    ///
    /// # Errors
    /// [`Error::Argument`] if `columns` is empty, or its length is not a multiple of four.
    pub fn new(columns: &[usize]) -> Result<Self> {
        let (quadruples, rest) = columns.as_chunks();
        if quadruples.is_empty() || !rest.is_empty() {
            return Err(Error::Argument(format!(
                "expected four atoms for each dihedral angle, found {} atoms",
                columns.len()
            )));
        }
        Ok(Dihedrals {
            quadruples: quadruples.to_vec(),
        })
    }

    /// Fill `y` and `x`: the quotient `y / x` is the tangent of an angle. `nearest` converts a
    /// difference of positions to the vector to the nearest image.
    fn tangents(
        &self,
        positions: &[[f32; 3]],
        nearest: impl Fn([f64; 3]) -> [f64; 3],
        y: &mut [f64],
        x: &mut [f64],
    ) {
        let bond = |from: [f64; 3], to: [f64; 3]| nearest(std::array::from_fn(|i| to[i] - from[i]));
        for ((quadruple, y), x) in self.quadruples.iter().zip(y).zip(x) {
            let [p, q, r, s] = quadruple.map(|column| positions[column].map(f64::from));
            let (a, b, c) = (bond(p, q), bond(q, r), bond(r, s));
            let (first, second) = (cross(a, b), cross(b, c));
            *x = dot(first, second);
            // The shorter formula |b| a·(b × c) is not used: for three atoms on a line it yields an
            // angle from rounding errors, and not NaN.
            *y = dot(cross(first, second), b) / dot(b, b).sqrt();
        }
    }
}

impl RowKernel for Dihedrals {
    fn n_columns(&self) -> usize {
        self.quadruples.len()
    }

    /// Compute angles in degrees, from −180 to 180, positive clockwise along the middle bond. An
    /// angle is NaN if its first three or its last three atoms are on a line, or a position is NaN.
    /// In a frame with a cell, bond vectors connect nearest images.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        let last = self.quadruples.iter().flatten().max();
        if let Some(last) = last.filter(|&&last| last >= frames.n_atoms()) {
            return Err(Error::Argument(format!(
                "atom {last} is out of range for a block of {} atoms",
                frames.n_atoms()
            )));
        }
        let mut x = vec![0.0; self.n_columns()];
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, y| {
            let (positions, _) = frame.as_chunks();
            match cell_or_none(dimensions, "the dihedral angle across its borders")? {
                Some(cell) => self.tangents(positions, |d| nearest(&cell, d), y, &mut x),
                None => self.tangents(positions, |d| d, y, &mut x),
            }
            for (angle, &x) in y.iter_mut().zip(&x) {
                *angle = atan2(*angle, x) * (180.0 / PI);
            }
            Ok(())
        })
    }
}

/// Return the shortest image of a difference of two positions.
#[inline]
fn nearest(cell: &Cell, d: [f64; 3]) -> [f64; 3] {
    if cell.is_near(d) {
        d
    } else {
        cell.shifted(d, cell.nearest_images(d))
    }
}

/// Tangent of π/8.
const TAN_PI_8: f64 = 0.414_213_562_373_095_03;

/// Coefficients of (atan q − q) / q³ in powers of q², for |q| ≤ tan(π/8). The polynomial
/// interpolates the function at 11 Chebyshev nodes. Its error is at most 5·10⁻¹⁸ q.
const ATAN: [f64; 11] = [
    -0.333_333_333_333_333_3,
    0.199_999_999_999_955_16,
    -0.142_857_142_846_656_82,
    0.111_111_110_151_870_18,
    -0.090_909_045_753_064_9,
    0.076_921_831_253_768_92,
    -0.066_645_105_255_089_36,
    0.058_581_409_048_663_28,
    -0.050_854_078_345_894_844,
    0.039_230_447_784_793_09,
    -0.019_175_404_711_104_935,
];

/// Return the angle of the point (x, y) in radians; NaN at the origin. The error is a few units in
/// the last place.
///
/// The function has no branches, so that the compiler can vectorise it.
#[inline]
fn atan2(y: f64, x: f64) -> f64 {
    let steep = y.abs() > x.abs();
    // `min` and `max` are not used, because they ignore NaN.
    let (low, high) = if steep {
        (x.abs(), y.abs())
    } else {
        (y.abs(), x.abs())
    };
    // An angle nearer to π/4 than to 0 is reduced by π/4.
    let turned = low > TAN_PI_8 * high;
    let q = if turned { low - high } else { low } / if turned { low + high } else { high };
    let square = q * q;
    let series = ATAN.iter().rev().fold(0.0, |sum, c| sum * square + c);
    let mut angle = q + q * (square * series);
    angle = if turned { FRAC_PI_4 + angle } else { angle };
    angle = if steep { FRAC_PI_2 - angle } else { angle };
    angle = if x < 0.0 { PI - angle } else { angle };
    if y < 0.0 { -angle } else { angle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const NONE: [f32; 6] = [0.0; 6];
    const CELLS: [[f32; 6]; 4] = [
        [30.0, 40.0, 50.0, 90.0, 90.0, 90.0],
        [40.0, 40.0, 40.0, 60.0, 60.0, 90.0],
        [40.0, 40.0, 40.0, 70.53, 109.47, 70.53],
        [50.0, 40.0, 45.0, 80.0, 100.0, 115.0],
    ];

    fn angles(quadruples: &[usize], positions: &[f32], cell: [f32; 6]) -> Vec<f64> {
        let task = Dihedrals::new(quadruples).expect("quadruples");
        let frames = Frames::new(positions, positions.len() / 3, &cell).expect("a frame");
        let mut out = vec![-1.0; task.n_columns()];
        let refused = task.compute(&frames, &mut out).expect("a block");
        assert_eq!(refused, None);
        out
    }

    /// Return four atoms with a dihedral angle about the y axis, given in degrees.
    fn chain(degrees: f64) -> [f32; 12] {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let last = [1.5 * cos as f32, -1.0, 1.5 * sin as f32];
        let [x, y, z] = last;
        [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0, x, y, z]
    }

    #[test]
    fn angles_are_those_that_the_atoms_were_placed_at() {
        for degrees in -179..=180 {
            let found = angles(&[0, 1, 2, 3], &chain(degrees.into()), NONE);
            // The tolerance is that of positions in single precision.
            assert!((found[0] - f64::from(degrees)).abs() < 1e-5, "{degrees}");
            let back = angles(&[3, 2, 1, 0], &chain(degrees.into()), NONE);
            assert!((back[0] - found[0]).abs() < 1e-12);
        }
        let exact = [0.0, 90.0, -90.0, 180.0].map(f64::to_bits);
        let ends: [[f32; 3]; 4] = [[1., -1., 0.], [0., -1., 1.], [0., -1., -1.], [-1., -1., 0.]];
        let found = ends.map(|end| {
            let mut atoms = chain(0.0);
            atoms[9..].copy_from_slice(&end);
            angles(&[0, 1, 2, 3], &atoms, NONE)[0].to_bits()
        });
        assert_eq!(found, exact);
    }

    #[test]
    fn the_images_of_atoms_do_not_matter() {
        let mut random = Random(21);
        for dimensions in CELLS {
            let cell = Cell::new(dimensions).expect("a cell");
            for degrees in [-170.0, -60.0, 0.0, 45.0, 179.0] {
                let atoms = chain(degrees);
                let moved: Vec<f32> = atoms
                    .chunks(3)
                    .flat_map(|x| {
                        let images = random.vector::<3>().map(|x| (4.0 * x).round());
                        let x = std::array::from_fn(|i| f64::from(x[i]));
                        cell.shifted(x, images).map(|x| x as f32)
                    })
                    .collect();
                let found = angles(&[0, 1, 2, 3], &moved, dimensions)[0];
                assert!((found - degrees).abs() < 1e-2, "{dimensions:?}: {found}");
            }
        }
    }

    #[test]
    fn atan2_is_that_of_the_standard_library() {
        let mut random = Random(22);
        let mut worst: f64 = 0.0;
        for _ in 0..200_000 {
            let [y, x] = random.vector::<2>();
            let scale = 10f64.powf(8.0 * random.number());
            for (y, x) in [(y, x), (y * scale, x), (x, -y * scale)] {
                let expected = f64::atan2(y, x);
                worst = worst.max(((atan2(y, x) - expected) / expected).abs());
            }
        }
        assert!(worst < 5e-16, "{worst:e}");
        for (y, x) in [(0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0), (1.0, 1.0)] {
            assert_eq!(atan2(y, x), f64::atan2(y, x), "{y} {x}");
        }
        for (y, x) in [(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert!(atan2(y, x).is_nan(), "{y} {x}");
        }
    }

    #[test]
    fn what_has_no_angle_is_nan() {
        let line = [0., 0., 0., 0.1, 0.2, 0.3, 0.3, 0.6, 0.9, 5., 1., 0.];
        assert!(angles(&[0, 1, 2, 3], &[0.0; 12], NONE)[0].is_nan());
        assert!(angles(&[1, 0, 1, 3], &line, NONE)[0].is_nan());
        let mut block = [chain(60.0), chain(60.0)].concat();
        block[3 * 5 + 1] = f32::NAN;
        for cell in [NONE, CELLS[0], CELLS[2]] {
            let found = angles(&[0, 1, 2, 3, 4, 5, 6, 7], &block, cell);
            assert!(found[0].is_finite() && found[1].is_nan(), "{found:?}");
        }
    }

    #[test]
    fn blocks_of_any_size_give_the_same_bits() {
        let mut random = Random(23);
        let block: Vec<f32> = (0..7 * 60).map(|_| 9.0 * random.number() as f32).collect();
        let dimensions = CELLS[3].repeat(7);
        let columns: Vec<usize> = (0..68).map(|k| (7 * k) % 20).collect();
        let task = Dihedrals::new(&columns).expect("quadruples");
        let mut whole = vec![0.0; 7 * task.n_columns()];
        let frames = Frames::new(&block, 20, &dimensions).expect("frames");
        assert_eq!(task.compute(&frames, &mut whole).expect("a block"), None);
        let single = block
            .chunks(60)
            .flat_map(|one| angles(&columns, one, CELLS[3]));
        let bits = |x: f64| x.to_bits();
        assert!(whole.into_iter().map(bits).eq(single.map(bits)));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        assert!(Dihedrals::new(&[]).is_err());
        assert!(Dihedrals::new(&[0, 1, 2, 3, 4]).is_err());
        let task = Dihedrals::new(&[0, 1, 2, 4]).expect("a quadruple");
        let compute = |cell: [f32; 6]| {
            let frames = Frames::new(&[1.0; 60], 20, &cell).expect("a frame");
            task.compute(&frames, &mut [0.0]).expect("a block")
        };
        assert_eq!(compute(NONE), None);
        let flat = [10.0, 10.0, 10.0, 120.0, 120.0, 120.0];
        let (row, reason) = compute(flat).expect("a reason");
        assert!(row == 0 && reason.contains("make no cell"), "{reason}");
        let small = Frames::new(&[1.0; 12], 4, &NONE).expect("a frame");
        assert!(task.compute(&small, &mut [0.0]).is_err());
    }
}
