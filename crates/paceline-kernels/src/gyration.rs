//! Radius and tensor of gyration of groups of atoms, and shape descriptors.

use super::row_kernel::{FrameConversion, Frames, RowKernel};
use super::superposition::{self, EMPTY, Matrix3, Numbers, Sum, TILE};
use super::transform_common::{self, Refused};
use super::{Columns, check_len};
use paceline_base::error::{Error, Result};

/// Number of values of each compound: radius of gyration, radii about x, y and z (Å), moments in
/// ascending order (Å²), asphericity and shape parameter.
pub const N_NUMBERS: usize = 9;

/// Maximum number of sweeps of Jacobi rotations. Four sweeps reach double precision.
const SWEEPS: usize = 12;

/// Gyration of compounds, as defined by `MDAnalysis.core.groups.AtomGroup`.
///
/// The tensor is the weighted mean of (x − c)(x − c)ᵀ about the weighted centre c. The moments are
/// the eigenvalues of the tensor. The sum of the moments is the square of the radius.
#[derive(Debug, Clone)]
pub struct Gyration {
    columns: Columns,
    compounds: Vec<Compound>,
}

#[derive(Debug, Clone)]
struct Compound {
    n_atoms: usize,
    /// Index of the first atom whose weight is not zero.
    first: usize,
    /// Weights of the atoms in tiles, with zeros as padding.
    weights: Vec<Numbers>,
    total: f64,
}

impl Gyration {
    /// Create a kernel for compounds. `columns` contains the atoms of all compounds, one compound
    /// after the other. `sizes` contains the number of atoms of each compound. Without `weights`,
    /// all atoms have the same weight.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths of the slices do not match, a weight is negative or not
    /// finite, or fewer than two atoms of a compound have a weight above zero.
    pub fn new(columns: &[usize], sizes: &[usize], weights: Option<&[f64]>) -> Result<Self> {
        let equal;
        let weights = match weights {
            Some(weights) => weights,
            None => {
                equal = vec![1.0; columns.len()];
                &equal
            }
        };
        let n_atoms = sizes.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
        check_len("atoms of compounds", columns.len(), n_atoms)?;
        check_len("weights", weights.len(), n_atoms)?;
        let mut rest = weights;
        let compounds = sizes.iter().enumerate().map(|(number, &n_atoms)| {
            let (own, behind) = rest.split_at(n_atoms);
            rest = behind;
            Compound::new(own).ok_or_else(|| {
                Error::Argument(format!(
                    "compound {number} needs weights that are finite and at least 0, and above 0 \
                     for two atoms"
                ))
            })
        });
        Ok(Gyration {
            compounds: compounds.collect::<Result<_>>()?,
            columns: Columns::new(columns),
        })
    }

    fn frame(&self, positions: &[f32], row: &mut [f64]) -> Result<(), String> {
        let mut rest = positions;
        let numbers = row.chunks_exact_mut(N_NUMBERS);
        for (number, (compound, numbers)) in self.compounds.iter().zip(numbers).enumerate() {
            let (own, behind) = rest.split_at(3 * compound.n_atoms);
            rest = behind;
            let tensor = compound.tensor(own);
            if tensor[0][0] + tensor[1][1] + tensor[2][2] == 0.0 {
                return Err(format!(
                    "all atoms of compound {number} are at the same position, so that it has no \
                     shape"
                ));
            }
            describe(&tensor, numbers);
        }
        Ok(())
    }
}

impl RowKernel for Gyration {
    fn conversion(&self) -> FrameConversion {
        FrameConversion::Stored
    }

    fn n_columns(&self) -> usize {
        N_NUMBERS * self.compounds.len()
    }

    /// Compute [`N_NUMBERS`] values of each compound. They are NaN if a position of the compound is
    /// NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, _, row| {
            self.frame(self.columns.pick(frame, &mut scratch), row)
        })
    }
}

impl Compound {
    fn new(weights: &[f64]) -> Option<Self> {
        let total = weights.iter().sum::<f64>();
        let sound = total.is_finite() && weights.iter().all(|&weight| weight >= 0.0);
        let shaped = weights.iter().filter(|&&weight| weight > 0.0).count() >= 2;
        let tiles = weights.chunks(TILE).map(|weights| {
            let mut tile = [0.0; TILE];
            tile[..weights.len()].copy_from_slice(weights);
            tile
        });
        let first = weights.iter().position(|&weight| weight > 0.0)?;
        (sound && shaped).then(|| Compound {
            n_atoms: weights.len(),
            first,
            weights: tiles.collect(),
            total,
        })
    }

    /// Compute the tensor of gyration, Å². Positions are relative to an atom of the compound: this
    /// avoids cancellation in a compound far from the origin. A compound without extent along an
    /// axis yields exactly 0 for this axis.
    fn tensor(&self, positions: &[f32]) -> Matrix3 {
        let first = transform_common::position(positions, self.first).map(f64::from);
        let mut sums = [Sum::ZERO; 9];
        let mut tile = EMPTY;
        for (weights, positions) in self.weights.iter().zip(positions.chunks(3 * TILE)) {
            superposition::fill(&mut tile, positions, first);
            superposition::add_moments(&mut sums, weights, &tile);
        }
        let [x, y, z, xx, xy, xz, yy, yz, zz] = sums.map(|sum| sum.total() / self.total);
        let [xy, xz, yz] = [xy - x * y, xz - x * z, yz - y * z];
        [
            [xx - x * x, xy, xz],
            [xy, yy - y * y, yz],
            [xz, yz, zz - z * z],
        ]
    }
}

/// Compute the [`N_NUMBERS`] values of a compound from its tensor.
fn describe(tensor: &Matrix3, numbers: &mut [f64]) {
    let [x, y, z] = [tensor[0][0], tensor[1][1], tensor[2][2]];
    let moments = eigenvalues(tensor);
    let trace = x + y + z;
    let mean = (moments[0] + moments[1] + moments[2]) / 3.0;
    let [a, b, c] = moments.map(|moment| moment - mean);
    let sum = 3.0 * mean;
    numbers.copy_from_slice(&[
        trace.sqrt(),
        (y + z).sqrt(),
        (x + z).sqrt(),
        (x + y).sqrt(),
        moments[0],
        moments[1],
        moments[2],
        1.5 * (a * a + b * b + c * c) / (sum * sum),
        27.0 * (a * b * c) / (sum * sum * sum),
    ]);
}

/// Compute the eigenvalues of a symmetric matrix by Jacobi rotations, in ascending order. They are
/// NaN if any element of the matrix is not finite.
fn eigenvalues(matrix: &Matrix3) -> [f64; 3] {
    if matrix.iter().flatten().any(|x| !x.is_finite()) {
        return [f64::NAN; 3];
    }
    let mut m = *matrix;
    for _ in 0..SWEEPS {
        let off = m[0][1] * m[0][1] + m[0][2] * m[0][2] + m[1][2] * m[1][2];
        if off == 0.0 {
            break;
        }
        for (p, q, r) in [(0, 1, 2), (0, 2, 1), (1, 2, 0)] {
            rotate(&mut m, p, q, r);
        }
    }
    let mut found = [m[0][0], m[1][1], m[2][2]];
    found.sort_unstable_by(f64::total_cmp);
    found
}

/// Rotate a symmetric matrix so that its element (p, q) becomes zero; r is the third axis.
fn rotate(m: &mut Matrix3, p: usize, q: usize, r: usize) {
    let element = m[p][q];
    // An element this small cannot change the last digit of a moment.
    if element.abs() <= f64::EPSILON * 0.5 * m[p][p].abs().min(m[q][q].abs()) {
        m[p][q] = 0.0;
        m[q][p] = 0.0;
        return;
    }
    let theta = (m[q][q] - m[p][p]) / (2.0 * element);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let cosine = 1.0 / (t * t + 1.0).sqrt();
    let sine = t * cosine;
    m[p][p] -= t * element;
    m[q][q] += t * element;
    let (rp, rq) = (m[r][p], m[r][q]);
    m[r][p] = cosine * rp - sine * rq;
    m[r][q] = sine * rp + cosine * rq;
    m[p][r] = m[r][p];
    m[q][r] = m[r][q];
    m[p][q] = 0.0;
    m[q][p] = 0.0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, determinant, rotate as turned, shift};

    fn computed(task: &Gyration, frame: &[f64]) -> Result<Vec<f64>, String> {
        let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
        let mut row = vec![-1.0; task.n_columns()];
        let frames = Frames::new(&frame, frame.len() / 3, &[0.0; 6]).unwrap();
        match task.compute(&frames, &mut row).unwrap() {
            Some((_, reason)) => Err(reason),
            None => Ok(row),
        }
    }

    fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= tolerance, "{found} {expected}");
        }
    }

    #[test]
    fn pairs_along_each_axis() {
        // Atoms at ±1 along x, ±2 along y and ±3 along z have moments of 2/6, 8/6 and 18/6.
        let frame = [
            1., 0., 0., -1., 0., 0., 0., 2., 0., 0., -2., 0., 0., 0., 3., 0., 0., -3.,
        ];
        let frame = shift(&frame, [50.0, -7.0, 900.0]);
        let task = Gyration::new(&[0, 1, 2, 3, 4, 5], &[6], None).unwrap();
        let [l, m, n] = [1.0 / 3.0, 4.0 / 3.0, 3.0f64];
        let mean = (l + m + n) / 3.0;
        let squares = (l - mean) * (l - mean) + (m - mean) * (m - mean) + (n - mean) * (n - mean);
        let sum = l + m + n;
        let expected = [
            sum.sqrt(),
            (m + n).sqrt(),
            (l + n).sqrt(),
            (l + m).sqrt(),
            l,
            m,
            n,
            1.5 * squares / (sum * sum),
            27.0 * (l - mean) * (m - mean) * (n - mean) / (sum * sum * sum),
        ];
        assert_close(&computed(&task, &frame).unwrap(), &expected, 1e-12);
    }

    #[test]
    fn a_rod_and_a_sphere_have_the_extreme_shapes() {
        let line = [1., 1., 1., 2., 3., 4., 3., 5., 7.];
        let sphere = [1., 1., 1., 1., -1., -1., -1., 1., -1., -1., -1., 1.];
        let of = |frame: &[f64], n: usize| {
            let columns: Vec<usize> = (0..n).collect();
            let row = computed(&Gyration::new(&columns, &[n], None).unwrap(), frame).unwrap();
            [row[7], row[8]]
        };
        assert_close(&of(&line, 3), &[1.0, 2.0], 1e-14);
        assert_close(&of(&sphere, 4), &[0.0, 0.0], 1e-14);
    }

    #[test]
    fn a_rotation_keeps_all_but_the_components_and_heavy_atoms_count_twice() {
        let mut random = Random(4);
        let frame = random.structure(70, 9.0, 300.0);
        let columns: Vec<usize> = (0..70).rev().collect();
        let weights: Vec<f64> = (0..70).map(|i| if i < 20 { 2.0 } else { 1.0 }).collect();
        let task = Gyration::new(&columns, &[70], Some(&weights)).unwrap();
        let found = computed(&task, &frame).unwrap();
        let twice: Vec<usize> = (0..70).rev().chain((50..70).rev()).collect();
        let same = computed(&Gyration::new(&twice, &[90], None).unwrap(), &frame).unwrap();
        assert_close(&found, &same, 1e-10);
        let moved = turned(&shift(&frame, [-300.0; 3]), &random.rotation());
        let moved = computed(&task, &moved).unwrap();
        assert_close(&[found[0]], &[moved[0]], 1e-5);
        assert_close(&found[4..], &moved[4..], 1e-4);
        assert!((found[1] - moved[1]).abs() > 1e-3);
    }

    #[test]
    fn eigenvalues_solve_the_matrix() {
        let mut random = Random(5);
        for k in 0..2000 {
            let scale = [1.0, 1e-9, 1e9][k % 3];
            let [a, b, c, d, e, f] = random.vector().map(|x| scale * x);
            // Matrices of rank 1 and matrices close to a multiple of the unit matrix are included.
            let m = match k % 4 {
                0 => [[a, d, e], [d, b, f], [e, f, c]],
                1 => [[a, 1e-9 * d, 0.0], [1e-9 * d, a, 0.0], [0.0, 0.0, a]],
                2 => [
                    [a * a, a * b, a * c],
                    [a * b, b * b, b * c],
                    [a * c, b * c, c * c],
                ],
                _ => [[a, 0.0, e], [0.0, b, 0.0], [e, 0.0, c]],
            };
            let size = m.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
            let found = eigenvalues(&m);
            assert!(found[0] <= found[1] && found[1] <= found[2]);
            let trace = m[0][0] + m[1][1] + m[2][2];
            assert!((found.iter().sum::<f64>() - trace).abs() <= 1e-14 * size);
            for value in found {
                let mut shifted = m.map(|row| row.map(|x| x / size));
                for (i, row) in shifted.iter_mut().enumerate() {
                    row[i] -= value / size;
                }
                assert!(determinant(&shifted).abs() < 1e-14, "{m:?} {value}");
            }
        }
    }

    #[test]
    fn compounds_are_apart_and_nan_stays_in_its_own() {
        let mut random = Random(6);
        let mut frame = random.structure(60, 9.0, 30.0);
        let columns: Vec<usize> = (0..60).map(|i| (7 * i) % 60).collect();
        let task = Gyration::new(&columns, &[2, 33, 25], None).unwrap();
        let found = computed(&task, &frame).unwrap();
        let second = Gyration::new(&columns[2..35], &[33], None).unwrap();
        assert_eq!(computed(&second, &frame).unwrap(), found[9..18]);
        frame[3 * columns[40]] = f64::NAN;
        let with_nan = computed(&task, &frame).unwrap();
        assert_eq!(with_nan[..18], found[..18]);
        let but_about_x: Vec<usize> = vec![18, 20, 21, 22, 23, 24, 25, 26];
        assert!(but_about_x.iter().all(|&i| with_nan[i].is_nan()));
    }

    #[test]
    fn what_has_no_shape_is_refused() {
        let words = |result: Result<Gyration>| result.unwrap_err().to_string();
        assert!(words(Gyration::new(&[0, 1, 2], &[2, 1], None)).contains("compound 1"));
        assert!(words(Gyration::new(&[0, 1], &[2], Some(&[0.0, 1.0]))).contains("compound 0"));
        assert!(words(Gyration::new(&[0, 1], &[2], Some(&[-1.0, 2.0]))).contains("compound 0"));
        assert!(words(Gyration::new(&[0, 1], &[2], Some(&[1.0]))).contains("weights"));
        assert!(words(Gyration::new(&[0, 1], &[3], None)).contains("atoms of compounds"));
        let task = Gyration::new(&[0, 1], &[2], None).unwrap();
        let reason = computed(&task, &[1.0; 6]).unwrap_err();
        assert!(reason.contains("all atoms of compound 0 are at the same position"));
    }
}
