//! The unit cell: three vectors, or three lengths and three angles.

use std::f64::consts::PI;

/// Unit cell of a frame, as stored in its file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnitCell {
    /// MDAnalysis's `[lx, ly, lz, alpha, beta, gamma]`, Å and degrees; zeros if there is no cell.
    pub dimensions: [f32; 6],
    /// Vectors a, b, c, Å, in any orientation; zeros if there is no cell.
    pub vectors: [[f64; 3]; 3],
    /// Corner at which the vectors begin, Å.
    pub origin: [f64; 3],
    /// For each vector, true if the cell is periodic along it.
    pub periodic: [bool; 3],
}

/// A [`UnitCell`] as a row of an array:
///
/// ```text
///  0..6   lengths (Å) and angles (degrees), each a number in single precision
///  6..15  vectors a, b, c, Å
/// 15..18  origin, Å
/// 18      periodic vectors: 1 for a, 2 for b, 4 for c
/// ```
pub type CellRow = [f64; CELL_WIDTH];

/// Number of values of a [`CellRow`].
pub const CELL_WIDTH: usize = 19;

/// An element of a cell vector counts as zero if it is smaller than this fraction of the largest
/// element. It is then a zero that was changed by rounding or by writing it as text.
const NOISE: f64 = 1e-6;

/// Length of non-periodic vectors in [`UnitCell::lattice`], Å; longer than any displacement.
const ENDLESS: f64 = 1e7;

impl UnitCell {
    /// Value for a frame without a cell: all numbers are zero.
    pub const NONE: UnitCell = UnitCell {
        dimensions: [0.0; 6],
        vectors: [[0.0; 3]; 3],
        origin: [0.0; 3],
        periodic: [true; 3],
    };

    /// Create the cell from three vectors (Å); [`UnitCell::NONE`] if they span no volume.
    #[inline]
    pub fn of_vectors(vectors: [[f64; 3]; 3]) -> UnitCell {
        let [x, y, z] = vectors;
        match triclinic_box(x, y, z) {
            dimensions if dimensions == [0.0; 6] => UnitCell::NONE,
            dimensions => UnitCell {
                dimensions,
                vectors,
                ..UnitCell::NONE
            },
        }
    }

    /// Create the cell from lengths (Å) and angles (degrees). As in MDAnalysis, vector a is along x
    /// and b in the xy plane. The vectors are zeros if lengths and angles span no volume.
    #[inline]
    pub fn of_dimensions(dimensions: [f32; 6]) -> UnitCell {
        let vectors = exact_vectors(&dimensions)
            .filter(|vectors| (0..3).all(|i| vectors[i][i] > 0.0))
            .unwrap_or_default();
        UnitCell {
            dimensions,
            vectors,
            ..UnitCell::NONE
        }
    }

    /// Return true if, apart from rounding errors, the first vector is along x, the second is in
    /// the xy plane, and the vectors are right-handed. Lengths and angles then determine the
    /// vectors.
    #[inline]
    pub fn is_upright(&self) -> bool {
        let [a, b, c] = self.vectors;
        let longest = [a, b, c]
            .as_flattened()
            .iter()
            .fold(0.0, |most, x| x.abs().max(most));
        let above = [a[1], a[2], b[2]];
        above.iter().all(|x| x.abs() <= NOISE * longest)
            && [a[0], b[1], c[2]].iter().all(|&x| x >= 0.0)
    }

    /// Return the cell without the rounding errors that vectors in a file have: the vectors of an
    /// upright cell are computed from its lengths and angles. Any other cell is returned unchanged.
    #[inline]
    #[must_use]
    pub fn without_noise(&self) -> UnitCell {
        match self.is_upright() {
            true => UnitCell {
                vectors: UnitCell::of_dimensions(self.dimensions).vectors,
                ..*self
            },
            false => *self,
        }
    }

    /// Return the cell of [`UnitCell::without_noise`], made periodic along all vectors. The length
    /// of a non-periodic vector is changed to one that exceeds any displacement.
    #[inline]
    #[must_use]
    pub fn lattice(&self) -> UnitCell {
        let mut vectors = self.without_noise().vectors;
        for (vector, _) in vectors.iter_mut().zip(self.periodic).filter(|(_, is)| !is) {
            let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            *vector = vector.map(|x| x / length * ENDLESS);
        }
        UnitCell {
            vectors,
            periodic: [true; 3],
            ..*self
        }
    }

    /// Return true if the cell is periodic along all three vectors.
    #[inline]
    pub fn is_periodic(&self) -> bool {
        self.periodic == [true; 3]
    }

    /// Convert the cell to a row of an array.
    #[inline]
    pub fn row(&self) -> CellRow {
        let mut row = [0.0; CELL_WIDTH];
        for (number, value) in row.iter_mut().zip(self.dimensions) {
            *number = f64::from(value);
        }
        row[6..15].copy_from_slice(self.vectors.as_flattened());
        row[15..18].copy_from_slice(&self.origin);
        row[18] = (0..3)
            .map(|i| f64::from(u8::from(self.periodic[i]) << i))
            .sum();
        row
    }

    /// Create a cell from the numbers of [`UnitCell::row`].
    #[inline]
    pub fn of_row(row: &CellRow) -> UnitCell {
        let vector = |at: usize| [row[at], row[at + 1], row[at + 2]];
        let flags = row[18] as u8;
        UnitCell {
            dimensions: std::array::from_fn(|i| row[i] as f32),
            vectors: [vector(6), vector(9), vector(12)],
            origin: vector(15),
            periodic: std::array::from_fn(|i| flags >> i & 1 == 1),
        }
    }
}

/// Convert cell vectors to MDAnalysis's `[lx, ly, lz, alpha, beta, gamma]`. All are zero if the
/// volume of the vectors is zero or infinite. The formula and its order of operations are those of
/// `MDAnalysis.lib.mdamath.triclinic_box`, to get the same float32 numbers.
#[inline]
pub fn triclinic_box(x: [f64; 3], y: [f64; 3], z: [f64; 3]) -> [f32; 6] {
    let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let norm = |a: [f64; 3]| dot(a, a).sqrt();
    let (lx, ly, lz) = (norm(x), norm(y), norm(z));
    let angle = |cosine: f64| cosine.acos() * (180.0 / PI);
    let alpha = angle(dot(y, z) / (ly * lz));
    let beta = angle(dot(x, z) / (lx * lz));
    let gamma = angle(dot(x, y) / (lx * ly));
    let dimensions = [lx, ly, lz, alpha, beta, gamma].map(|value| value as f32);
    // All comparisons with NaN are false, so NaN yields no cell.
    let valid = dimensions
        .iter()
        .all(|&value| value > 0.0 && value < f32::INFINITY)
        && [alpha, beta, gamma].iter().all(|&angle| angle < 180.0);
    if valid { dimensions } else { [0.0; 6] }
}

/// Convert `[lx, ly, lz, alpha, beta, gamma]` to cell vectors, the first along x and the second in
/// the xy plane; `None` if they span no volume. The formula and its order of operations are those
/// of `MDAnalysis.lib.mdamath.triclinic_vectors`, to get the same float32 numbers.
#[inline]
pub fn triclinic_vectors(dimensions: &[f32; 6]) -> Option<[[f32; 3]; 3]> {
    let vectors = exact_vectors(dimensions)?.map(|vector| vector.map(|value| value as f32));
    // Impossible combinations of angles yield 0 or NaN.
    (0..3).all(|i| vectors[i][i] > 0.0).then_some(vectors)
}

/// Return the volume of `[lx, ly, lz, alpha, beta, gamma]`, computed from vectors in double
/// precision. The result is `None` if a length or an angle alone is impossible, and 0 or NaN if the
/// combination of angles is impossible.
#[inline]
pub fn cell_volume(dimensions: &[f32; 6]) -> Option<f64> {
    exact_vectors(dimensions).map(|[a, b, c]| a[0] * b[1] * c[2])
}

/// Compute [`triclinic_vectors`] in double precision, so that `triclinic_box` recovers the lengths
/// and angles. The result is `None` if a length or an angle alone is impossible; impossible
/// combinations of angles yield vectors with 0 or NaN.
#[inline]
pub fn exact_vectors(dimensions: &[f32; 6]) -> Option<[[f64; 3]; 3]> {
    let [lx, ly, lz, alpha, beta, gamma] = dimensions.map(f64::from);
    let possible = dimensions.iter().all(|&x| x > 0.0 && x.is_finite())
        && [alpha, beta, gamma].iter().all(|&angle| angle < 180.0);
    if !possible {
        return None;
    }
    let [cos_alpha, cos_beta, cos_gamma] = [alpha, beta, gamma].map(cosine);
    let sin_gamma = sine(gamma);
    let z_x = lz * cos_beta;
    let z_y = lz * (cos_alpha - cos_beta * cos_gamma) / sin_gamma;
    let z_z = (lz * lz - z_x * z_x - z_y * z_y).sqrt();
    Some([
        [lx, 0.0, 0.0],
        [ly * cos_gamma, ly * sin_gamma, 0.0],
        [z_x, z_y, z_z],
    ])
}

/// Return the cosine of an angle from 0 to 180 degrees. A Taylor series is used, because the last
/// bits of a library function's result can differ between machines.
fn cosine(degrees: f64) -> f64 {
    if degrees > 90.0 {
        return -cosine(180.0 - degrees);
    }
    if degrees > 45.0 {
        return series(90.0 - degrees, 1.0);
    }
    series(degrees, 0.0)
}

/// Return the sine of an angle from 0 to 180 degrees, computed with [`cosine`].
fn sine(degrees: f64) -> f64 {
    cosine((90.0 - degrees).abs())
}

/// Return the cosine (`first` = 0) or sine (`first` = 1) of up to 45 degrees. It is the sum of
/// (−1)ᵏ xⁿ / n! over n = 2 k + `first`. The terms after the tenth are below the rounding error.
fn series(degrees: f64, first: f64) -> f64 {
    let x = degrees * (PI / 180.0);
    let mut sum = 1.0;
    for k in (1..10).rev() {
        let n = f64::from(2 * k) + first;
        sum = 1.0 - x * x / (n * (n - 1.0)) * sum;
    }
    if first == 1.0 { x * sum } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_the_libraries() {
        for tenth in 0..=1800 {
            let degrees = f64::from(tenth) / 10.0;
            let radians = degrees.to_radians();
            assert!((cosine(degrees) - radians.cos()).abs() < 1e-15, "{degrees}");
            assert!((sine(degrees) - radians.sin()).abs() < 1e-15, "{degrees}");
        }
        assert_eq!((cosine(90.0), sine(90.0)), (0.0, 1.0));
    }

    #[test]
    fn lengths_and_angles_become_vectors_and_come_back() {
        assert_eq!(
            triclinic_vectors(&[30.0, 40.0, 50.5, 90.0, 90.0, 90.0]),
            Some([[30.0, 0.0, 0.0], [0.0, 40.0, 0.0], [0.0, 0.0, 50.5]])
        );
        for dimensions in [
            [80.0f32, 80.0, 80.0, 60.0, 60.0, 90.0],
            [71.5, 30.25, 44.0, 109.471_22, 70.528_78, 109.471_22],
            [10.0, 20.0, 30.0, 33.0, 44.0, 55.0],
        ] {
            let vectors = triclinic_vectors(&dimensions).expect("a cell");
            assert_eq!(
                (vectors[0][1], vectors[0][2], vectors[1][2]),
                (0.0, 0.0, 0.0)
            );
            let [x, y, z] = vectors.map(|vector| vector.map(f64::from));
            for (back, value) in triclinic_box(x, y, z).into_iter().zip(dimensions) {
                assert!((back - value).abs() < 2e-6 * value, "{back} of {value}");
            }
        }
    }

    #[test]
    fn vectors_that_are_not_finite_are_no_cell() {
        let (x, y, z) = ([30.0, 0.0, 0.0], [0.0, 40.0, 0.0], [0.0, 0.0, 50.0]);
        assert_eq!(triclinic_box(x, y, z), [30.0, 40.0, 50.0, 90.0, 90.0, 90.0]);
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300] {
            assert_eq!(triclinic_box([value, 0.0, 0.0], y, z), [0.0; 6], "{value}");
            assert_eq!(triclinic_box(x, y, [value, 0.0, 50.0]), [0.0; 6], "{value}");
        }
    }

    #[test]
    fn what_is_no_cell_has_no_vectors() {
        for dimensions in [
            [0.0; 6],
            [30.0, 40.0, 0.0, 90.0, 90.0, 90.0],
            [30.0, 40.0, -5.0, 90.0, 90.0, 90.0],
            [30.0, 40.0, 50.0, 90.0, 180.0, 90.0],
            [30.0, 40.0, 50.0, 20.0, 30.0, 60.0],
            [30.0, 40.0, 50.0, f32::NAN, 90.0, 90.0],
            [30.0, 40.0, f32::INFINITY, 90.0, 90.0, 90.0],
        ] {
            assert_eq!(triclinic_vectors(&dimensions), None, "{dimensions:?}");
        }
    }
}
