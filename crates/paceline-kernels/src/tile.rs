//! A few atoms with their x, y and z apart, so that a compiler can compute atoms side by side, and
//! sums over atoms in an order that lets it.
//!
//! The functions here stay out of line on purpose: inlined into their callers they are vectorised
//! across x, y, z instead of across atoms, and a superposition takes 1.4 times as long.

use super::qcp::Matrix3;

/// Atoms in a tile; of 16, 32 and 64 the one with the shortest times, from 214 to 50,000 atoms.
pub const TILE: usize = 32;

/// Partial sums in a sum over atoms.
const LANES: usize = 4;

/// One number of each atom; zero where there is no atom.
pub type Numbers = [f64; TILE];

/// x, y, z of each atom; zero where there is no atom.
pub type Positions = [Numbers; 3];

pub const EMPTY: Positions = [[0.0; TILE]; 3];

/// A sum over atoms in [`LANES`] partial sums: atom i adds to sum i modulo this.
#[derive(Debug, Clone, Copy)]
pub struct Sum([f64; LANES]);

impl Sum {
    pub const ZERO: Sum = Sum([0.0; LANES]);

    pub fn total(self) -> f64 {
        let [a, b, c, d] = self.0;
        (a + b) + (c + d)
    }
}

/// Positions of at most [`TILE`] atoms (x, y, z of each), counted from `origin`.
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

/// For one coordinate x of each atom, add to Σ w x, Σ w x² and the three Σ w x y.
#[inline(never)]
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

/// Add to Σ w (x · R − y)².
#[inline(never)]
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
