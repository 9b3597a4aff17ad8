//! Random structures for the tests of kernels, and tests of functions that kernels share.

use super::Columns;
use super::superposition::Matrix3;

/// Deterministic random numbers: splitmix64.
pub struct Random(pub u64);

impl Random {
    /// Return a number from −1 to 1.
    pub fn number(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn vector<const N: usize>(&mut self) -> [f64; N] {
        std::array::from_fn(|_| self.number())
    }

    /// Return positions of atoms within ± `size` Å of `centre`.
    pub fn structure(&mut self, n_atoms: usize, size: f64, centre: f64) -> Vec<f64> {
        let mut coordinate = || centre + size * self.number();
        (0..3 * n_atoms).map(|_| coordinate()).collect()
    }

    pub fn weights(&mut self, n_atoms: usize) -> Vec<f64> {
        (0..n_atoms).map(|_| 2.0 + self.number()).collect()
    }

    /// Return a proper rotation, made by Gram–Schmidt orthogonalisation.
    pub fn rotation(&mut self) -> Matrix3 {
        let x = unit(self.vector());
        let y = self.vector();
        let along = dot(x, y);
        let y = unit([0, 1, 2].map(|i| y[i] - along * x[i]));
        [x, y, cross(x, y)]
    }
}

pub fn rotate(positions: &[f64], r: &Matrix3) -> Vec<f64> {
    let rows = positions.chunks_exact(3);
    rows.flat_map(|x| [0, 1, 2].map(|j| x[0] * r[0][j] + x[1] * r[1][j] + x[2] * r[2][j]))
        .collect()
}

pub fn shift(positions: &[f64], by: [f64; 3]) -> Vec<f64> {
    let coordinates = positions.iter().enumerate();
    coordinates.map(|(i, x)| x + by[i % 3]).collect()
}

pub fn determinant(m: &Matrix3) -> f64 {
    dot(m[0], cross(m[1], m[2]))
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

fn unit(a: [f64; 3]) -> [f64; 3] {
    a.map(|x| x / dot(a, a).sqrt())
}

#[test]
fn neighbours_are_read_where_they_are() {
    assert_eq!(Columns::new(&[]), Columns::Run(0..0));
    assert_eq!(Columns::new(&[4, 5, 6]), Columns::Run(4..7));
    for indices in [&[4, 6][..], &[5, 4], &[4, 4], &[0, 1, 2, 2]] {
        assert_eq!(Columns::new(indices), Columns::List(indices.to_vec()));
    }
    let frame: Vec<f32> = (0..18).map(|x| x as f32).collect();
    let mut scratch = Vec::new();
    let picked = Columns::new(&[5, 1]).pick(&frame, &mut scratch).to_vec();
    assert_eq!(picked, [15.0, 16.0, 17.0, 3.0, 4.0, 5.0]);
    assert_eq!(
        Columns::new(&[1, 2]).pick(&frame, &mut scratch),
        &frame[3..9]
    );
}

#[test]
fn atoms_of_each_frame_are_copied() {
    let block: Vec<f32> = (0..2 * 18).map(|x| x as f32).collect();
    for indices in [&[5, 1][..], &[1, 2], &[0], &[]] {
        let expected: Vec<f32> = block
            .chunks_exact(18)
            .flat_map(|frame| indices.iter().flat_map(|&k| &frame[3 * k..3 * k + 3]))
            .copied()
            .collect();
        let mut out = vec![-1.0; expected.len()];
        Columns::new(indices).copy(&block, 6, &mut out).unwrap();
        assert_eq!(out, expected);
    }
    let mut out = [0.0; 12];
    let mut copy = |indices: &[usize], n_atoms| {
        Columns::new(indices)
            .copy(&block, n_atoms, &mut out)
            .map_err(|error| error.to_string())
    };
    assert!(
        copy(&[6, 1], 6)
            .unwrap_err()
            .contains("atom 6 is out of range")
    );
    assert!(
        copy(&[1], 6)
            .unwrap_err()
            .contains("expected 6 coordinates, found 12")
    );
    assert!(
        copy(&[0, 1], 7)
            .unwrap_err()
            .contains("not a whole number of frames")
    );
}
