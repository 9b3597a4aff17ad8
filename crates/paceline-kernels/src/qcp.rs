//! Optimal superposition of two structures from their inner product, by the quaternion
//! characteristic polynomial (QCP).
//!
//! - Theobald (2005), Acta Cryst. A 61, 478, doi:10.1107/S0108767305015266
//! - Liu, Agrafiotis & Theobald (2010), J. Comput. Chem. 31, 1561, doi:10.1002/jcc.21439
//!
//! A symmetric, traceless 4×4 matrix K is built from the inner product. Its largest eigenvalue λ
//! yields the minimum RMSD, and the eigenvector yields the rotation as a quaternion. QCP computes λ
//! as the largest root of the quartic of K, in a tenth of the time of powers of K. A root close to
//! another root (atoms on a line, some mirror images) has only half of the digits; then λ is
//! computed from powers of K.

pub type Matrix3 = [[f64; 3]; 3];
type Matrix4 = [[f64; 4]; 4];

pub const IDENTITY: Matrix3 = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// Slope of the scaled quartic at its largest root (at most 64/27) below which the root counts as a
/// multiple root, because λ would lose more than two digits. A molecule 15 times as long as thick
/// is just above this limit.
pub(crate) const MIN_SLOPE: f64 = 1e-2;

/// Largest eigenvalue of K, and the data for its eigenvector.
#[derive(Debug, Clone, Copy)]
pub struct Optimum {
    /// Matrix K divided by `scale`, so that its eigenvalues lie within ±1.
    key: Matrix4,
    scale: f64,
    eigenvalue: f64,
    /// Eigenvector as a quaternion, if powers of K have already computed it.
    quaternion: Option<[f64; 4]>,
}

impl Optimum {
    /// Find the optimum. `inner` is M of Theobald (2005), with the coordinates of the mobile
    /// structure along rows and those of the reference along columns. `half_norm` is (Ga + Gb) / 2,
    /// and is at least λ.
    pub fn new(inner: &Matrix3, half_norm: f64) -> Self {
        // λ is σ1 + σ2 ± σ3 of the singular values of M, so it lies between ⅓ and 1 times √3 ‖M‖.
        let square: f64 = inner.iter().flatten().map(|m| m * m).sum();
        let scale = (3.0 * square).sqrt();
        if scale == 0.0 {
            return Optimum {
                key: [[0.0; 4]; 4],
                scale,
                eigenvalue: 0.0,
                quaternion: Some([1.0, 0.0, 0.0, 0.0]),
            };
        }
        let inner = inner.map(|row| row.map(|m| m / scale));
        let key = key_matrix(&inner);
        let (eigenvalue, quaternion) = match largest_root(&inner, &key, half_norm / scale) {
            Some(root) => (root, None),
            None => {
                let (eigenvalue, quaternion) = dominant_pair(&key);
                (eigenvalue, Some(quaternion))
            }
        };
        Optimum {
            key,
            scale,
            eigenvalue,
            quaternion,
        }
    }

    /// Return λ. The minimum sum of squared deviations is 2 (half_norm − λ).
    pub fn eigenvalue(&self) -> f64 {
        self.eigenvalue * self.scale
    }

    /// Return the rotation R for row vectors, mobile · R ≈ reference, as in MDAnalysis.
    pub fn rotation(&self) -> Matrix3 {
        let [w, x, y, z] = self
            .quaternion
            .unwrap_or_else(|| null_vector(&shifted(&self.key, -self.eigenvalue)));
        [
            [
                w * w + x * x - y * y - z * z,
                2.0 * (x * y + w * z),
                2.0 * (x * z - w * y),
            ],
            [
                2.0 * (x * y - w * z),
                w * w - x * x + y * y - z * z,
                2.0 * (y * z + w * x),
            ],
            [
                2.0 * (x * z + w * y),
                2.0 * (y * z - w * x),
                w * w - x * x - y * y + z * z,
            ],
        ]
    }
}

/// Return the key matrix K of Theobald (2005).
fn key_matrix(m: &Matrix3) -> Matrix4 {
    let [[xx, xy, xz], [yx, yy, yz], [zx, zy, zz]] = *m;
    [
        [xx + yy + zz, yz - zy, zx - xz, xy - yx],
        [yz - zy, xx - yy - zz, xy + yx, zx + xz],
        [zx - xz, xy + yx, yy - xx - zz, yz + zy],
        [xy - yx, zx + xz, yz + zy, zz - xx - yy],
    ]
}

/// Return the largest root of the quartic λ⁴ + c₂λ² + c₁λ + c₀ of K by Newton's method, or `None`
/// if it is a multiple root. The quartic is convex above its largest root, so that the iteration
/// converges from any upper bound.
fn largest_root(m: &Matrix3, key: &Matrix4, bound: f64) -> Option<f64> {
    let c2 = -2.0 * m.iter().flatten().map(|m| m * m).sum::<f64>();
    let c1 = -8.0 * determinant3(m);
    let c0 = determinant4(key);
    let mut root = bound.min(1.0);
    for _ in 0..50 {
        let square = root * root;
        let value = ((square + c2) * root + c1) * root + c0;
        let slope = (4.0 * square + 2.0 * c2) * root + c1;
        if slope < MIN_SLOPE {
            return None;
        }
        let step = value / slope;
        root -= step;
        // Convergence is quadratic: the remaining error is below the last digit.
        if step.abs() < 1e-10 {
            return Some(root);
        }
    }
    None
}

/// Return the largest eigenvalue of K and its eigenvector. K + 1 is squared until only the
/// eigenvector remains. For a multiple eigenvalue, the vector is any vector of the eigenspace.
fn dominant_pair(key: &Matrix4) -> (f64, [f64; 4]) {
    // No eigenvalue of K + 1 is negative. The power 2^50 separates any two eigenvalues that differ
    // in double precision.
    let mut power = shifted(key, 1.0);
    for _ in 0..56 {
        let squared: Matrix4 = power.map(|row| std::array::from_fn(|j| dot(&row, &power[j])));
        let trace = squared[0][0] + squared[1][1] + squared[2][2] + squared[3][3];
        power = squared.map(|row| row.map(|value| value / trace));
    }
    let vector = normalised(power[largest_diagonal(&power)]);
    let image = key.map(|row| dot(&row, &vector));
    (dot(&image, &vector), vector)
}

/// Return the unit vector that a singular symmetric matrix maps to zero: the column with the
/// largest norm of its adjugate (Liu et al. 2010).
fn null_vector(matrix: &Matrix4) -> [f64; 4] {
    let adjugate: Matrix4 =
        std::array::from_fn(|i| std::array::from_fn(|j| cofactor(matrix, i, j)));
    normalised(adjugate[largest_diagonal(&adjugate)])
}

fn shifted(matrix: &Matrix4, shift: f64) -> Matrix4 {
    let mut shifted = *matrix;
    for (i, row) in shifted.iter_mut().enumerate() {
        row[i] += shift;
    }
    shifted
}

/// Return the row with the largest norm, for a matrix that is a multiple of v vᵀ.
fn largest_diagonal(matrix: &Matrix4) -> usize {
    (1..4).fold(0, |best, i| {
        if matrix[i][i].abs() > matrix[best][best].abs() {
            i
        } else {
            best
        }
    })
}

fn dot(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3])
}

fn normalised(vector: [f64; 4]) -> [f64; 4] {
    let norm = dot(&vector, &vector).sqrt();
    vector.map(|value| value / norm)
}

fn determinant3(m: &Matrix3) -> f64 {
    m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
        - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
}

/// Compute the determinant from 2×2 minors of the upper two and the lower two rows.
fn determinant4(m: &Matrix4) -> f64 {
    let upper = |i: usize, j: usize| m[0][i] * m[1][j] - m[0][j] * m[1][i];
    let lower = |i: usize, j: usize| m[2][i] * m[3][j] - m[2][j] * m[3][i];
    upper(0, 1) * lower(2, 3) - upper(0, 2) * lower(1, 3)
        + upper(0, 3) * lower(1, 2)
        + upper(1, 2) * lower(0, 3)
        - upper(1, 3) * lower(0, 2)
        + upper(2, 3) * lower(0, 1)
}

fn cofactor(m: &Matrix4, row: usize, column: usize) -> f64 {
    const OTHERS: [[usize; 3]; 4] = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]];
    let minor = OTHERS[row].map(|i| OTHERS[column].map(|j| m[i][j]));
    if (row + column).is_multiple_of(2) {
        determinant3(&minor)
    } else {
        -determinant3(&minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, determinant};

    /// Compute eigenvalues of K by Jacobi rotations, independently of the tested code.
    fn jacobi(mut a: Matrix4) -> [f64; 4] {
        for _ in 0..30 {
            for (p, q) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
                let angle = 0.5 * (2.0 * a[p][q]).atan2(a[q][q] - a[p][p]);
                let (s, c) = angle.sin_cos();
                for row in &mut a {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                let (row_p, row_q) = (a[p], a[q]);
                a[p] = std::array::from_fn(|i| c * row_p[i] - s * row_q[i]);
                a[q] = std::array::from_fn(|i| s * row_p[i] + c * row_q[i]);
            }
        }
        std::array::from_fn(|i| a[i][i])
    }

    /// Return the trace of M · R. The best rotation maximises it, and the maximum is λ.
    fn overlap(m: &Matrix3, r: &Matrix3) -> f64 {
        (0..3)
            .map(|i| (0..3).map(|j| m[i][j] * r[i][j]).sum::<f64>())
            .sum()
    }

    fn check(m: &Matrix3) {
        let norm = m.iter().flatten().map(|m| m * m).sum::<f64>().sqrt();
        let expected = jacobi(key_matrix(m)).into_iter().fold(f64::MIN, f64::max);
        for bound in [expected, 1.1 * norm.max(expected), 100.0 * norm] {
            let optimum = Optimum::new(m, bound);
            let rotation = optimum.rotation();
            let tolerance = 1e-12 * norm;
            assert!(
                (optimum.eigenvalue() - expected).abs() <= tolerance,
                "{m:?}"
            );
            assert!(
                (overlap(m, &rotation) - expected).abs() <= tolerance,
                "{m:?}"
            );
            assert!((determinant(&rotation) - 1.0).abs() < 1e-14, "{rotation:?}");
        }
    }

    #[test]
    fn random_products_agree_with_an_eigenvalue_solver() {
        let mut random = Random(1);
        for i in 0..2000 {
            let size = [1e-30, 1e-3, 1.0, 1e8, 1e60][i % 5];
            check(&[0; 3].map(|_| random.vector().map(|m| size * m)));
        }
    }

    #[test]
    fn multiple_roots_lose_no_digits() {
        let mut random = Random(2);
        for values in [
            [1.0, 0.0, 0.0],
            [1.0, 1e-9, 0.0],
            [1.0, 1e-4, 1e-5],
            [1.0, 1.0, 0.0],
            [1.0, 1.0, 1.0],
            [1.0, 1.0, -1.0],
            [-1.0, -1.0, -1.0],
            [1.0, 0.5, -0.5],
            [1.0, 0.5, -0.5 + 1e-9],
            [1.0, 0.02, 0.01],
        ] {
            for _ in 0..100 {
                let (a, b) = (random.rotation(), random.rotation());
                let entry =
                    |i: usize, j: usize| (0..3).map(|k| a[k][i] * values[k] * b[k][j]).sum();
                check(&[0, 1, 2].map(|i| [0, 1, 2].map(|j| entry(i, j))));
            }
        }
    }

    #[test]
    fn nothing_in_common_leaves_the_structure_as_it_is() {
        let optimum = Optimum::new(&[[0.0; 3]; 3], 1.0);
        assert_eq!((optimum.eigenvalue(), optimum.rotation()), (0.0, IDENTITY));
    }
}
