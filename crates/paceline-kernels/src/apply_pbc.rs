//! Positions brought into the cell in single precision, rounded step by step as MDAnalysis rounds
//! them: distances between them are then its own, to the last bit.

use super::qcp::Matrix3;

/// Part of the cell's edges by which rounding may leave a position outside.
pub const SLACK: f64 = 1e-5;

/// So many edges away, single precision no longer tells where in a cell a position is.
const FAR: f64 = 1e6;

/// Brings positions into a cell.
#[derive(Debug, Clone)]
pub struct ApplyPbc {
    /// a along x, b in the plane of x and y.
    vectors: [[f32; 3]; 3],
    /// Where the edges of the face below begin, for a step along y and z.
    b_on_z: f64,
    a_on: [f64; 2],
    /// Turns positions into numbers of vectors.
    inverse: Matrix3,
}

impl ApplyPbc {
    pub fn new(vectors: &Matrix3) -> Self {
        let [a, b, c] = *vectors;
        let (over_a, over_b, over_c) = (1.0 / a[0], 1.0 / b[1], 1.0 / c[2]);
        let b_in_a = -b[0] * over_a * over_b;
        let c_in_a = (-b_in_a * c[1] - c[0] * over_a) * over_c;
        ApplyPbc {
            vectors: vectors.map(|vector| vector.map(|x| x as f32)),
            b_on_z: c[1] * over_c,
            a_on: [b_in_a, c_in_a],
            inverse: [
                [over_a, b_in_a, c_in_a],
                [0.0, over_b, -c[1] * over_b * over_c],
                [0.0, 0.0, over_c],
            ],
        }
    }

    /// The image of a position within the cell; none where single precision cannot place it there.
    pub fn apply(&self, x: [f32; 3]) -> Option<[f32; 3]> {
        let mut near = x;
        if self.step(&mut near) {
            return self.holds(near).then_some(near);
        }
        let mut far = x;
        for axis in [2, 1, 0] {
            let [u, v, w] = self.inverse[axis];
            let number = u * f64::from(far[0]) + v * f64::from(far[1]) + w * f64::from(far[2]);
            // No number is not within it either.
            if !(-FAR..=FAR).contains(&number) {
                return None;
            }
            self.add(&mut far, axis, -(number.floor() as f32));
        }
        self.step(&mut far);
        self.holds(far).then_some(far)
    }

    /// Take at most one vector of each kind off or on; whether that is enough.
    fn step(&self, x: &mut [f32; 3]) -> bool {
        let mut enough = true;
        for axis in [2, 1, 0] {
            let low = self.low(x, axis);
            let high = low + f64::from(self.vectors[axis][axis]);
            if f64::from(x[axis]) < low {
                self.add(x, axis, 1.0);
                enough &= f64::from(x[axis]) >= low;
            }
            // Not else: what was just below the face can come to lie on the opposite one.
            if f64::from(x[axis]) >= high {
                self.add(x, axis, -1.0);
                enough &= f64::from(x[axis]) < high;
            }
        }
        enough
    }

    fn add(&self, x: &mut [f32; 3], axis: usize, number: f32) {
        for (x, vector) in x.iter_mut().zip(&self.vectors[axis][..=axis]) {
            *x += number * vector;
        }
    }

    /// Where the cell begins along an axis.
    fn low(&self, x: &[f32; 3], axis: usize) -> f64 {
        let [_, y, z] = x.map(f64::from);
        match axis {
            0 => -(y * self.a_on[0] + z * self.a_on[1]) * f64::from(self.vectors[0][0]),
            1 => z * self.b_on_z,
            _ => 0.0,
        }
    }

    fn holds(&self, x: [f32; 3]) -> bool {
        (0..3).all(|axis| {
            let edge = f64::from(self.vectors[axis][axis]);
            let above = (f64::from(x[axis]) - self.low(&x, axis)) / edge;
            (-SLACK..=1.0 + SLACK).contains(&above)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Cell;
    use super::super::testing::Random;
    use super::*;

    fn cells() -> impl Iterator<Item = Cell> {
        [
            [10.0, 11.0, 12.0, 90.0, 90.0, 90.0],
            [20.0, 20.0, 20.0, 60.0, 60.0, 90.0],
            [20.0, 20.0, 20.0, 70.53, 109.47, 70.53],
            [31.0, 23.0, 17.0, 80.0, 100.0, 115.0],
        ]
        .into_iter()
        .map(|dimensions| Cell::new(dimensions).expect("a cell"))
    }

    #[test]
    fn positions_come_into_the_cell_by_whole_vectors() {
        let mut random = Random(31);
        for cell in cells() {
            let pbc = ApplyPbc::new(cell.vectors());
            for size in [20.0, 200.0, 2000.0] {
                for _ in 0..1000 {
                    let x = random.vector::<3>().map(|x| (size * x) as f32);
                    let home = pbc.apply(x).expect("a position in reach");
                    assert!(pbc.holds(home), "{x:?}: {home:?}");
                    let moved = std::array::from_fn(|i| f64::from(home[i]) - f64::from(x[i]));
                    let back = cell.shifted(moved, cell.nearest_images(moved));
                    assert!(back.iter().all(|x| x.abs() < 1e-3), "{x:?}: {back:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_within_stays_and_a_face_belongs_to_the_next_cell() {
        let cell = cells().next().expect("a cell");
        let pbc = ApplyPbc::new(cell.vectors());
        assert_eq!(pbc.apply([1.0, 2.0, 3.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(pbc.apply([10.0, 0.0, -12.0]), Some([0.0; 3]));
        // −1e-8 + 10 is 10 in single precision.
        assert_eq!(pbc.apply([-1e-8, 2.0, 3.0]), Some([0.0, 2.0, 3.0]));
    }

    #[test]
    fn what_single_precision_cannot_place_is_refused() {
        for cell in cells() {
            let pbc = ApplyPbc::new(cell.vectors());
            for x in [f32::NAN, f32::INFINITY, f32::MAX, -1e30] {
                assert_eq!(pbc.apply([1.0, x, 1.0]), None, "{x}");
            }
        }
    }
}
