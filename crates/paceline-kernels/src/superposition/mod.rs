//! Reference structure, RMSDs of other structures from the reference, and the optimal superposition
//! of two structures.
//!
//! The superposition is computed from the inner product of the structures, by the quaternion
//! characteristic polynomial (QCP):
//!
//! - Theobald (2005), Acta Cryst. A 61, 478, doi:10.1107/S0108767305015266
//! - Liu, Agrafiotis & Theobald (2010), J. Comput. Chem. 31, 1561, doi:10.1002/jcc.21439
//!
//! A symmetric, traceless 4×4 matrix K is built from the inner product. Its largest eigenvalue λ
//! yields the minimum RMSD, and the eigenvector yields the rotation as a quaternion. QCP computes λ
//! as the largest root of the characteristic polynomial of K (a quartic), in a tenth of the time of
//! powers of K. If another root is close (atoms on a line, some mirror images), only half of the
//! digits of λ are correct. In this case, λ is computed from powers of K.

use crate::check_len;
use crate::instructions::by_widest;
use paceline_base::error::{Error, Result};

/// Smallest sum of squared deviations that is computed as a difference of sums, relative to the sum
/// of squared positions of both structures. Below this limit, the difference has lost too many
/// digits, and squared deviations are summed instead.
pub(crate) const CANCELLED: f64 = 1e-6;

/// Structure to which others are compared, with the weights of its atoms.
#[derive(Debug, Clone)]
pub struct Reference {
    n_atoms: usize,
    /// Point that was subtracted from the positions, Å.
    origin: [f64; 3],
    tiles: Vec<Tile>,
    /// Sum of the squared positions, Σ w y², Å².
    norm: f64,
}

#[derive(Debug, Clone)]
struct Tile {
    /// Weights relative to their mean, so that their sum is the number of atoms.
    weights: Numbers,
    /// Positions relative to the origin, Å.
    positions: Positions,
}

/// Rigid motion of row vectors: x becomes (x − `centre`) · `rotation`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Motion {
    /// Point that is subtracted before the rotation, Å.
    pub centre: [f64; 3],
    pub rotation: Matrix3,
}

impl Motion {
    pub const NONE: Motion = Motion {
        centre: [0.0; 3],
        rotation: IDENTITY,
    };
}

impl Reference {
    /// Create a reference for superposition. Its origin is the weighted centre. `positions`
    /// contains x, y, z of each atom, Å. Only ratios of weights matter.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no atoms, a position is not finite in single precision, the
    /// number of weights differs, or weights are negative, not finite or all 0.
    pub fn new(positions: &[f64], weights: Option<&[f64]>) -> Result<Self> {
        let reference = Self::about([0.0; 3], positions, weights)?;
        let centre = Sums::new(&reference, positions).centre;
        Self::about(centre, positions, weights)
    }

    /// Create a reference for RMSDs without superposition, with a given origin.
    ///
    /// # Errors
    /// As [`Reference::new`].
    pub fn about(origin: [f64; 3], positions: &[f64], weights: Option<&[f64]>) -> Result<Self> {
        let n_atoms = positions.len() / 3;
        let valid = positions.iter().all(|x| x.abs() <= f64::from(f32::MAX));
        if n_atoms == 0 || !positions.len().is_multiple_of(3) || !valid {
            return Err(Error::Argument(format!(
                "a reference needs at least one atom, with three finite coordinates each; it has \
                 {} coordinates",
                positions.len()
            )));
        }
        let weights = match weights {
            Some(weights) => relative(weights, n_atoms)?,
            None => vec![1.0; n_atoms],
        };
        let tiles = weights.chunks(TILE).zip(positions.chunks(3 * TILE));
        let tiles: Vec<Tile> = tiles
            .map(|(weights, positions)| Tile::new(weights, positions, origin))
            .collect();
        let mut norm = Sum::ZERO;
        for Tile { weights, positions } in &tiles {
            add_deviations(&mut norm, weights, positions, &IDENTITY, &EMPTY);
        }
        Ok(Reference {
            n_atoms,
            origin,
            tiles,
            norm: norm.total(),
        })
    }

    /// Return the origin of the reference positions, Å. It is the weighted centre if
    /// [`Reference::new`] created the reference.
    pub fn origin(&self) -> [f64; 3] {
        self.origin
    }

    /// Return the RMSD (Å) of another structure after its superposition on this reference.
    ///
    /// # Panics
    /// If `mobile` does not have 3 coordinates for each atom of the reference.
    pub fn min_rmsd<T: Copy + Into<f64>>(&self, mobile: &[T]) -> f64 {
        let fit = Fit::new(self, mobile);
        fit.rmsd()
            .unwrap_or_else(|| self.rmsd(mobile, &fit.motion()))
    }

    /// Return [`Reference::min_rmsd`], and the motion that superposes the other structure.
    ///
    /// # Panics
    /// As [`Reference::min_rmsd`].
    pub fn superpose<T: Copy + Into<f64>>(&self, mobile: &[T]) -> (f64, Motion) {
        let fit = Fit::new(self, mobile);
        let motion = fit.motion();
        let rmsd = fit.rmsd().unwrap_or_else(|| self.rmsd(mobile, &motion));
        (rmsd, motion)
    }

    /// Return the RMSD (Å) of another structure after a given motion.
    ///
    /// # Panics
    /// As [`Reference::min_rmsd`].
    pub fn rmsd<T: Copy + Into<f64>>(&self, mobile: &[T], motion: &Motion) -> f64 {
        let mut square = Sum::ZERO;
        self.each_tile(mobile, motion.centre, |reference, x| {
            let Tile { weights, positions } = reference;
            add_deviations(&mut square, weights, x, &motion.rotation, positions);
        });
        (square.total() / self.n_atoms as f64).sqrt()
    }

    /// Call `visit` with the atoms of the reference and of another structure, tile by tile.
    /// `origin` is subtracted from the positions of the other structure.
    fn each_tile<T: Copy + Into<f64>>(
        &self,
        mobile: &[T],
        origin: [f64; 3],
        mut visit: impl FnMut(&Tile, &Positions),
    ) {
        assert_eq!(mobile.len(), 3 * self.n_atoms, "number of coordinates");
        let mut tile = EMPTY;
        for (reference, x) in self.tiles.iter().zip(mobile.chunks(3 * TILE)) {
            fill(&mut tile, x, origin);
            visit(reference, &tile);
        }
    }
}

impl Tile {
    fn new(weights: &[f64], positions: &[f64], origin: [f64; 3]) -> Self {
        let mut tile = Tile {
            weights: [0.0; TILE],
            positions: EMPTY,
        };
        tile.weights[..weights.len()].copy_from_slice(weights);
        fill(&mut tile.positions, positions, origin);
        tile
    }
}

/// Sums over the atoms of two structures, computed in one pass over the atoms.
struct Sums {
    /// Weighted centre of the mobile structure.
    centre: [f64; 3],
    /// Σ w (x − centre)².
    norm: f64,
    /// Σ w (x − centre) yᵀ.
    inner: Matrix3,
}

impl Sums {
    /// Compute the sums. Positions are relative to the first atom: this avoids cancellation far
    /// from the origin. The reference is centred, so this shift does not change the inner product.
    fn new<T: Copy + Into<f64>>(reference: &Reference, mobile: &[T]) -> Self {
        let first = [mobile[0].into(), mobile[1].into(), mobile[2].into()];
        let mut sums = [[Sum::ZERO; 5]; 3];
        reference.each_tile(mobile, first, |Tile { weights, positions }, mobile| {
            for (sums, x) in sums.iter_mut().zip(mobile) {
                add_products(sums, weights, x, positions);
            }
        });
        let sums = sums.map(|of_x| of_x.map(Sum::total));
        let n = reference.n_atoms as f64;
        let norms = sums.map(|[x, xx, ..]| xx - x * x / n);
        Sums {
            centre: std::array::from_fn(|i| first[i] + sums[i][0] / n),
            norm: norms[0] + norms[1] + norms[2],
            inner: sums.map(|[_, _, xy @ ..]| xy),
        }
    }
}

/// Best superposition of a structure on a reference.
struct Fit {
    n_atoms: f64,
    centre: [f64; 3],
    half_norm: f64,
    optimum: Optimum,
}

impl Fit {
    fn new<T: Copy + Into<f64>>(reference: &Reference, mobile: &[T]) -> Self {
        let sums = Sums::new(reference, mobile);
        let half_norm = 0.5 * (sums.norm + reference.norm);
        Fit {
            n_atoms: reference.n_atoms as f64,
            centre: sums.centre,
            half_norm,
            optimum: Optimum::new(&sums.inner, half_norm),
        }
    }

    fn motion(&self) -> Motion {
        Motion {
            centre: self.centre,
            rotation: self.optimum.rotation(),
        }
    }

    /// Return √((Ga + Gb − 2λ) / N) of Theobald (2005); `None` if the difference has too few
    /// correct digits.
    fn rmsd(&self) -> Option<f64> {
        let half_square = self.half_norm - self.optimum.eigenvalue();
        (half_square > CANCELLED * self.half_norm)
            .then(|| (2.0 * half_square / self.n_atoms).sqrt())
    }
}

/// Divide weights by their mean.
pub(crate) fn relative(weights: &[f64], n_atoms: usize) -> Result<Vec<f64>> {
    check_len("weights", weights.len(), n_atoms)?;
    let mean = weights.iter().sum::<f64>() / n_atoms as f64;
    if !(mean > 0.0 && mean.is_finite() && weights.iter().all(|&weight| weight >= 0.0)) {
        return Err(Error::Argument(format!(
            "weights must be finite, at least 0, and not all 0; their mean is {mean}"
        )));
    }
    Ok(weights.iter().map(|weight| weight / mean).collect())
}

// Tiles of atoms with separate arrays of x, y and z, and sums over tiles. The layout and the order
// of the sums let the compiler vectorise over atoms.
//
// The functions of this module are deliberately not inlined. If they are inlined, the compiler
// vectorises over x, y, z instead of over atoms, and a superposition takes 1.4 times as long.

/// Number of atoms in a tile. Of the sizes 16, 32 and 64, 32 is fastest for 214 to 50,000 atoms.
pub const TILE: usize = 32;

/// Number of partial sums of a sum over atoms.
const LANES: usize = 4;

/// One number for each atom of a tile, padded with zeros.
pub type Numbers = [f64; TILE];

/// Arrays of x, y and z of the atoms of a tile, padded with zeros.
pub type Positions = [Numbers; 3];

pub const EMPTY: Positions = [[0.0; TILE]; 3];

/// Sum over atoms in `LANES` partial sums: atom i is added to partial sum i modulo `LANES`.
#[derive(Debug, Clone, Copy)]
pub struct Sum([f64; LANES]);

impl Sum {
    pub const ZERO: Sum = Sum([0.0; LANES]);

    pub fn total(self) -> f64 {
        let [a, b, c, d] = self.0;
        (a + b) + (c + d)
    }
}

/// Fill a tile with the positions of at most [`TILE`] atoms (x, y, z of each), relative to
/// `origin`.
#[inline(never)]
pub fn fill<T: Copy + Into<f64>>(tile: &mut Positions, from: &[T], origin: [f64; 3]) {
    if from.len() < 3 * TILE {
        *tile = EMPTY;
    }
    let [x, y, z] = tile;
    for (((from, x), y), z) in from.chunks_exact(3).zip(x).zip(y).zip(z) {
        *x = from[0].into() - origin[0];
        *y = from[1].into() - origin[1];
        *z = from[2].into() - origin[2];
    }
}

by_widest! {
    /// For one coordinate x of each atom, add to Σ w x, Σ w x² and the three Σ w x y.
    pub fn add_products(sums: &mut [Sum; 5], weights: &Numbers, x: &Numbers, y: &Positions) {
        let [mut s, mut ss, mut s0, mut s1, mut s2] = sums.map(|sum| sum.0);
        for first in (0..TILE).step_by(LANES) {
            for lane in 0..LANES {
                let i = first + lane;
                let weighted = weights[i] * x[i];
                s[lane] += weighted;
                ss[lane] += weighted * x[i];
                s0[lane] += weighted * y[0][i];
                s1[lane] += weighted * y[1][i];
                s2[lane] += weighted * y[2][i];
            }
        }
        *sums = [s, ss, s0, s1, s2].map(Sum);
    }
}

by_widest! {
    /// Add to Σ w x, Σ w y and Σ w z, and to Σ w x², Σ w x y, Σ w x z, Σ w y², Σ w y z and Σ w z².
    pub fn add_moments(sums: &mut [Sum; 9], weights: &Numbers, positions: &Positions) {
        let [x, y, z] = positions;
        let [
            mut sx,
            mut sy,
            mut sz,
            mut xx,
            mut xy,
            mut xz,
            mut yy,
            mut yz,
            mut zz,
        ] = sums.map(|sum| sum.0);
        // Two passes over the atoms are faster than one, because a processor has too few registers
        // for all sums.
        for first in (0..TILE).step_by(LANES) {
            for lane in 0..LANES {
                let i = first + lane;
                let weighted = weights[i] * x[i];
                sx[lane] += weighted;
                xx[lane] += weighted * x[i];
                xy[lane] += weighted * y[i];
                xz[lane] += weighted * z[i];
            }
        }
        for first in (0..TILE).step_by(LANES) {
            for lane in 0..LANES {
                let i = first + lane;
                let (of_y, of_z) = (weights[i] * y[i], weights[i] * z[i]);
                sy[lane] += of_y;
                sz[lane] += of_z;
                yy[lane] += of_y * y[i];
                yz[lane] += of_y * z[i];
                zz[lane] += of_z * z[i];
            }
        }
        *sums = [sx, sy, sz, xx, xy, xz, yy, yz, zz].map(Sum);
    }
}

by_widest! {
    /// Add Σ w |x · R − y|² over the atoms of a tile.
    pub fn add_deviations(
        sum: &mut Sum,
        weights: &Numbers,
        x: &Positions,
        rotation: &Matrix3,
        y: &Positions,
    ) {
        let r = rotation;
        let mut squares = [0.0; TILE];
        for (i, square) in squares.iter_mut().enumerate() {
            let deviation =
                |j: usize| x[0][i] * r[0][j] + x[1][i] * r[1][j] + x[2][i] * r[2][j] - y[j][i];
            let [dx, dy, dz] = [deviation(0), deviation(1), deviation(2)];
            *square = weights[i] * (dx * dx + dy * dy + dz * dz);
        }
        for squares in squares.chunks_exact(LANES) {
            for (lane, square) in sum.0.iter_mut().zip(squares) {
                *lane += square;
            }
        }
    }
}

pub type Matrix3 = [[f64; 3]; 3];
type Matrix4 = [[f64; 4]; 4];

pub const IDENTITY: Matrix3 = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// Minimum slope of the scaled quartic at its largest root; the slope is at most 64/27. A root with
/// a smaller slope counts as a multiple root, because λ would lose more than two digits. A molecule
/// 15 times as long as thick is just above this limit.
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
    /// Find the largest eigenvalue λ of K. `inner` is M of Theobald (2005), with the coordinates of
    /// the mobile structure along rows and those of the reference along columns. `half_norm` is
    /// (Ga + Gb) / 2, and is at least λ.
    pub fn new(inner: &Matrix3, half_norm: f64) -> Self {
        // λ is σ1 + σ2 ± σ3, where σ are the singular values of M. It therefore lies between ⅓ and
        // 1 times √3 ‖M‖.
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

/// Return the largest eigenvalue of K and its eigenvector. The matrix K + 1 is squared repeatedly
/// until only this eigenvector remains. For a multiple eigenvalue, the vector is any vector of the
/// eigenspace.
fn dominant_pair(key: &Matrix4) -> (f64, [f64; 4]) {
    // No eigenvalue of K + 1 is negative. The power 2^50 already separates any two eigenvalues that
    // differ in double precision; 56 squarings yield the power 2^56.
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

/// Return the unit vector that a singular symmetric matrix maps to zero. It is computed from the
/// column of the adjugate that has the largest norm (Liu et al. 2010).
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

/// Return the index of the row with the largest norm, for a matrix that is a multiple of v vᵀ.
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
mod tests;
