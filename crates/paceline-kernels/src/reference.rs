//! Reference structure, and RMSDs of other structures from the reference.

use crate::instructions::by_widest;
use paceline_base::error::{Error, Result};

use crate::check_len;
use crate::qcp::{IDENTITY, Matrix3, Optimum};

/// Limit of cancellation, relative to the squared size of two structures. A squared RMSD is a
/// difference of sums. Below this limit the difference has lost too many digits, and squared
/// deviations are summed instead.
pub(crate) const CANCELLED: f64 = 1e-6;

/// Structure to which others are compared, with the weights of its atoms.
#[derive(Debug, Clone)]
pub struct Reference {
    n_atoms: usize,
    /// Origin of the positions, Å.
    origin: [f64; 3],
    tiles: Vec<Tile>,
    /// Squared size Σ w y², Å².
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
    /// Centre, Å.
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

    /// Call the function with the atoms of the reference and of another structure, tile by tile.
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

/// Sums over the atoms of two structures, from one pass.
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

    /// Return √((Ga + Gb − 2λ) / N) of Theobald (2005); `None` if cancellation would lose too many
    /// digits.
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
// The functions of this module are deliberately not inlined. Inlined, they are vectorised over x,
// y, z instead of over atoms, and a superposition takes 1.4 times as long.

/// Number of atoms in a tile. Of 16, 32 and 64, this size is fastest from 214 to 50,000 atoms.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, determinant, rotate, shift};

    /// Compute Σ w |x − y|² / Σ w directly.
    fn plain_rmsd(x: &[f64], y: &[f64], weights: &[f64]) -> f64 {
        let squares = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y));
        let sum: f64 = squares.enumerate().map(|(i, d)| weights[i / 3] * d).sum();
        (sum / weights.iter().sum::<f64>()).sqrt()
    }

    fn apply(motion: &Motion, x: &[f64], origin: [f64; 3]) -> Vec<f64> {
        let centred = shift(x, motion.centre.map(|c| -c));
        shift(&rotate(&centred, &motion.rotation), origin)
    }

    #[test]
    fn a_motion_is_undone() {
        let mut random = Random(3);
        for n_atoms in [3, 4, 31, 32, 33, 214] {
            let reference = random.structure(n_atoms, 20.0, 900.0);
            let rotation = random.rotation();
            let mobile = shift(&rotate(&reference, &rotation), [5.0, -70.0, 300.0]);
            let fitted = Reference::new(&reference, None).unwrap();
            let (rmsd, motion) = fitted.superpose(&mobile);
            assert!(rmsd < 1e-11, "{n_atoms} atoms: {rmsd}");
            let identity = rotate(rotation.as_flattened(), &motion.rotation);
            for (found, expected) in identity.iter().zip(IDENTITY.as_flattened()) {
                assert!((found - expected).abs() < 1e-11);
            }
            let back = apply(&motion, &mobile, fitted.origin());
            assert!(plain_rmsd(&back, &reference, &vec![1.0; n_atoms]) < 1e-11);
        }
    }

    #[test]
    fn the_same_structure_is_at_zero() {
        let structure = Random(4).structure(214, 20.0, 50.0);
        let single: Vec<f32> = structure.iter().map(|&x| x as f32).collect();
        let reference: Vec<f64> = single.iter().map(|&x| x.into()).collect();
        let reference = Reference::new(&reference, None).unwrap();
        assert!(reference.min_rmsd(&single) < 1e-12);
    }

    #[test]
    fn no_other_motion_comes_closer() {
        let mut random = Random(5);
        for n_atoms in 1..40 {
            let reference = random.structure(n_atoms, 10.0, 100.0);
            let noise = random.structure(n_atoms, 8.0, 0.0);
            let mobile: Vec<f64> = reference.iter().zip(&noise).map(|(x, y)| x + y).collect();
            let mobile = rotate(&mobile, &random.rotation());
            let weights = random.weights(n_atoms);
            let fitted = Reference::new(&reference, Some(&weights)).unwrap();
            let (rmsd, motion) = fitted.superpose(&mobile);
            assert_eq!(rmsd, fitted.min_rmsd(&mobile));

            let moved = apply(&motion, &mobile, fitted.origin());
            assert!((plain_rmsd(&moved, &reference, &weights) - rmsd).abs() < 1e-11);
            for _ in 0..20 {
                let rotated = rotate(&moved, &random.rotation());
                assert!(plain_rmsd(&rotated, &reference, &weights) > rmsd - 1e-11);
                let shifted = shift(&moved, random.vector());
                assert!(plain_rmsd(&shifted, &reference, &weights) > rmsd - 1e-11);
            }
        }
    }

    #[test]
    fn known_distances() {
        let pair = Reference::new(&[0.0, 0.0, 0.0, 2.0, 0.0, 0.0], None).unwrap();
        assert!((pair.min_rmsd(&[7.0, 1.0, 1.0, 7.0, 5.0, 1.0]) - 1.0).abs() < 1e-15);
        let fixed = Reference::about([0.0; 3], &[0.0, 0.0, 0.0, 2.0, 0.0, 0.0], None).unwrap();
        let above = [0.0, 3.0, 0.0, 2.0, 3.0, 0.0];
        assert_eq!(fixed.rmsd(&above, &Motion::NONE), 3.0);
        let point = Reference::new(&[1.0, 2.0, 3.0], None).unwrap();
        assert_eq!(point.min_rmsd(&[-900.0_f32, 1.0, 7.0]), 0.0);
    }

    #[test]
    fn degenerate_structures_have_a_finite_rmsd() {
        let mut random = Random(6);
        let line = |n: usize| {
            (0..n)
                .flat_map(|i| [i as f64, 2.0 * i as f64, 0.0])
                .collect()
        };
        let point = |n: usize| [4.0, 5.0, 6.0].repeat(n);
        let plane: Vec<f64> = (0..9)
            .flat_map(|i| [(i % 3) as f64, (i / 3) as f64, 0.0])
            .collect();
        let mirror: Vec<f64> = random.structure(9, 3.0, 0.0);
        let mirrored: Vec<f64> = mirror.iter().map(|x| -x).collect();
        let huge: Vec<f64> = mirror.iter().map(|x| x * 1e38).collect();
        let tiny: Vec<f64> = mirror.iter().map(|x| x * 1e-44).collect();
        let structures: Vec<Vec<f64>> =
            vec![line(9), point(9), plane, mirror, mirrored, huge, tiny];
        for a in &structures {
            let fitted = Reference::new(a, None).unwrap();
            assert!(fitted.min_rmsd(a) <= 1e-12 * (fitted.norm / 9.0).sqrt());
            for b in &structures {
                let (rmsd, motion) = fitted.superpose(b);
                assert!(rmsd.is_finite(), "{a:?} {b:?}: {rmsd}");
                assert!((determinant(&motion.rotation) - 1.0).abs() < 1e-14);
                let turned = rotate(b, &random.rotation());
                let difference = (fitted.min_rmsd(&turned) - rmsd).abs();
                let size = (fitted.norm / 9.0).sqrt() + rmsd;
                assert!(difference <= 1e-11 * size, "{a:?} {b:?}: {difference}");
            }
        }
    }

    #[test]
    fn only_relative_weights_count() {
        let mut random = Random(7);
        let (a, b) = (random.structure(5, 9.0, 0.0), random.structure(5, 9.0, 0.0));
        let rmsd = |weights: Option<&[f64]>| Reference::new(&a, weights).unwrap().min_rmsd(&b);
        assert_eq!(rmsd(None), rmsd(Some(&[4.0; 5])));
        // An atom with weight zero has no influence.
        let four = Reference::new(&a[3..], None).unwrap().min_rmsd(&b[3..]);
        assert!((rmsd(Some(&[0.0, 2.0, 2.0, 2.0, 2.0])) - four).abs() < 1e-12);
    }

    #[test]
    fn unfit_references_are_refused() {
        let x = [1.0; 6];
        for (positions, weights) in [
            (&x[..0], None),
            (&x[..4], None),
            (&[1.0, 2.0, f64::NAN], None),
            (&[1.0, 2.0, 1e300], None),
            (&x, Some(&[1.0][..])),
            (&x, Some(&[1.0, -1.0])),
            (&x, Some(&[0.0, 0.0])),
            (&x, Some(&[f64::NAN, 1.0])),
            (&x, Some(&[f64::INFINITY, 1.0])),
        ] {
            assert!(
                Reference::new(positions, weights).is_err(),
                "{positions:?} {weights:?}"
            );
        }
    }
}
