//! The periodic cell of a frame: its vectors, and the images of positions in it.

use paceline_base::{cell_volume, triclinic_vectors};

use crate::superposition::Matrix3;

/// Minimum height of b and c above the previous vectors, relative to their length. For a flatter
/// cell, angles in single precision do not determine the volume.
pub(crate) const FLAT: f64 = 1e-3;

/// Numbers of cell vectors to neighbouring images. 0 comes first, so that the image itself wins
/// ties.
const NEIGHBOURS: [f64; 3] = [0.0, -1.0, 1.0];

/// Cell vectors a, b, c (Å) with a along x and b in the xy plane. [`Cell::new`] rounds them to
/// single precision, as in MDAnalysis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    vectors: Matrix3,
    /// True if any angle differs from 90°.
    triclinic: bool,
    /// Square of half the shortest height of the cell, Å². A difference with a smaller square has
    /// no nearer image.
    near: f64,
    volume: f64,
}

/// Reason why lengths and angles do not define a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoCell {
    Missing,
    Impossible([f32; 6]),
}

impl NoCell {
    /// Return a message for the user. `needed_by` names the operation that needs the cell.
    pub fn reason(&self, needed_by: &str) -> String {
        match self {
            NoCell::Missing => format!("the frame has no cell, which {needed_by} needs"),
            NoCell::Impossible([a, b, c, alpha, beta, gamma]) => format!(
                "the frame has lengths of {a} {b} {c} Å and angles of {alpha} {beta} {gamma}°, \
                 which make no cell, and {needed_by} needs one"
            ),
        }
    }
}

impl Cell {
    /// Create the cell from three lengths (Å) and three angles (degrees).
    ///
    /// # Errors
    /// [`NoCell`] if all lengths are zero, or the vectors span no volume.
    pub fn new(dimensions: [f32; 6]) -> Result<Self, NoCell> {
        if dimensions[..3] == [0.0; 3] {
            return Err(NoCell::Missing);
        }
        let impossible = NoCell::Impossible(dimensions);
        let vectors = triclinic_vectors(&dimensions).ok_or(impossible)?;
        let solid = (0..3).all(|i| f64::from(vectors[i][i]) > FLAT * f64::from(dimensions[i]));
        if !solid {
            return Err(impossible);
        }
        let vectors = vectors.map(|vector| vector.map(f64::from));
        Ok(Cell {
            vectors,
            triclinic: dimensions[3..] != [90.0; 3],
            near: near(&vectors),
            volume: cell_volume(&dimensions).ok_or(impossible)?,
        })
    }

    /// Create the cell from vectors (Å) with a along x and b in the xy plane.
    pub(crate) fn of_vectors(vectors: Matrix3) -> Self {
        let [a, b, c] = vectors;
        Cell {
            vectors,
            triclinic: [b[0], c[0], c[1]] != [0.0; 3],
            near: near(&vectors),
            volume: a[0] * b[1] * c[2],
        }
    }

    /// Return the vectors a, b, c, Å.
    pub fn vectors(&self) -> &Matrix3 {
        &self.vectors
    }

    /// Return true if any angle differs from 90°.
    pub fn is_triclinic(&self) -> bool {
        self.triclinic
    }

    /// Return the same lattice with reduced vectors: each tilts by at most half of the vectors
    /// before it. With larger tilts, [`Cell::nearest_images`] may miss the nearest image.
    #[must_use]
    pub fn reduced(&self) -> Cell {
        let mut vectors = self.vectors;
        for (leaning, below) in [(1, 0), (2, 1), (2, 0)] {
            let over = vectors[below];
            let number = (vectors[leaning][below] / over[below]).round();
            for (x, over) in vectors[leaning].iter_mut().zip(over) {
                *x -= number * over;
            }
        }
        Cell {
            vectors,
            near: near(&vectors),
            ..*self
        }
    }

    /// Return the volume, Å³, in double precision.
    pub fn volume(&self) -> f64 {
        self.volume
    }

    /// Return the centre of the cell, Å.
    pub fn centre(&self) -> [f64; 3] {
        let [a, b, c] = self.vectors;
        std::array::from_fn(|i| 0.5 * (a[i] + b[i] + c[i]))
    }

    /// Return true if a difference of positions is so short that no image of it is shorter.
    #[inline]
    pub fn is_near(&self, d: [f64; 3]) -> bool {
        square(d) < self.near
    }

    /// Return the square of half the shortest height of the cell, Å². A difference with a smaller
    /// square has no nearer image.
    pub fn near(&self) -> f64 {
        self.near
    }

    /// Add whole cell vectors to `x`.
    #[inline]
    pub fn shifted(&self, x: [f64; 3], images: [f64; 3]) -> [f64; 3] {
        let [a, b, c] = self.vectors;
        std::array::from_fn(|i| x[i] + (images[0] * a[i] + images[1] * b[i] + images[2] * c[i]))
    }

    /// Return how many vectors a, b and c must be added to a difference of positions to make it
    /// shortest. The result is right in all cells that simulations use.
    ///
    /// First, whole vectors are added to the difference, one vector after the other, by rounding.
    /// The result is the nearest image if the cell is rectangular, or the result is shorter than
    /// half the shortest height. Otherwise the 26 neighbours of this image are compared, too. In a
    /// very skewed or flat cell, several layers of images are within half the diagonal, and an
    /// image beyond these neighbours may be shorter.
    pub fn nearest_images(&self, d: [f64; 3]) -> [f64; 3] {
        let mut images = [0.0; 3];
        let mut rest = d;
        for axis in [2, 1, 0] {
            let vector = self.vectors[axis];
            images[axis] = -(rest[axis] / vector[axis]).round();
            rest = std::array::from_fn(|i| rest[i] + images[axis] * vector[i]);
        }
        if !self.triclinic || self.is_near(rest) {
            return images;
        }
        let (mut best, mut least) = (images, square(rest));
        for i in NEIGHBOURS {
            for j in NEIGHBOURS {
                for k in NEIGHBOURS {
                    let length = square(self.shifted(rest, [i, j, k]));
                    if length < least {
                        best = [images[0] + i, images[1] + j, images[2] + k];
                        least = length;
                    }
                }
            }
        }
        best
    }

    /// Return the image of a position within the cell, and the shift in cell vectors.
    ///
    /// Rounding may shift a position just below a face onto the opposite face. The shift is
    /// therefore made twice.
    pub fn home(&self, x: [f32; 3]) -> ([f32; 3], [f64; 3]) {
        let (mut home, mut images) = (x, [0.0; 3]);
        for _ in 0..2 {
            let x = home.map(f64::from);
            let fractional = self.fractional(x);
            if fractional.iter().all(|x| (0.0..1.0).contains(x)) {
                break;
            }
            let step = fractional.map(|x| -x.floor());
            home = self.shifted(x, step).map(|x| x as f32);
            images = std::array::from_fn(|i| images[i] + step[i]);
        }
        (home, images)
    }

    /// Return a function that converts positions to fractional coordinates. It multiplies by
    /// precomputed inverses, which is faster for many positions.
    pub fn fractions(&self) -> impl Fn([f64; 3]) -> [f64; 3] + use<> {
        let [a, b, c] = self.vectors;
        let [over_a, over_b, over_c] = [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]];
        move |[x, y, z]| {
            let w = z * over_c;
            let v = (y - w * c[1]) * over_b;
            let u = (x - w * c[0] - v * b[0]) * over_a;
            [u, v, w]
        }
    }

    /// Convert a position to fractional coordinates.
    fn fractional(&self, x: [f64; 3]) -> [f64; 3] {
        let [a, b, c] = self.vectors;
        let w = x[2] / c[2];
        let v = (x[1] - w * c[1]) / b[1];
        let u = (x[0] - w * c[0] - v * b[0]) / a[0];
        [u, v, w]
    }
}

/// Return true for the placeholder cell of structures without a cell: lengths of 1 Å and right
/// angles.
pub fn is_placeholder(dimensions: [f32; 6]) -> bool {
    let near = |x: f32, wanted: f32| (x - wanted).abs() <= 1e-5 * wanted;
    dimensions[..3].iter().all(|&x| near(x, 1.0)) && dimensions[3..].iter().all(|&x| near(x, 90.0))
}

/// Return the square of half the shortest of the three heights (volume over area).
fn near(&[a, b, c]: &Matrix3) -> f64 {
    let over_b = b[1] * c[2] / (c[1] * c[1] + c[2] * c[2]).sqrt();
    let normal = [b[1] * c[2], -b[0] * c[2], b[0] * c[1] - b[1] * c[0]];
    let over_a = a[0] * b[1] * c[2] / square(normal).sqrt();
    let half = 0.5 * c[2].min(over_b).min(over_a);
    half * half
}

pub fn square([x, y, z]: [f64; 3]) -> f64 {
    x * x + y * y + z * z
}

pub(crate) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(crate) fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

// Wrapping of positions into the cell in single precision. Each step is rounded as in MDAnalysis,
// so that distances have the same bits.

/// Maximum distance of a wrapped position from the cell, because of rounding, relative to the
/// edges.
pub const SLACK: f64 = 1e-5;

/// Maximum distance of a position from the cell, in cells. Beyond this distance, single precision
/// does not determine the position within a cell.
pub const FAR: f64 = 1e6;

/// Wraps positions into a cell.
#[derive(Debug, Clone)]
pub struct ApplyPbc {
    /// Cell vectors, with a along x and b in the xy plane.
    vectors: [[f32; 3]; 3],
    /// Factors for the method `low`. The lower bound of y is `b_on_z` × z. The lower bound of x is
    /// −`a_x` × (`a_on[0]` × y + `a_on[1]` × z).
    b_on_z: f64,
    a_on: [f64; 2],
    /// Matrix that converts positions to fractional coordinates.
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

    /// Create an `ApplyPbc` that wraps positions into the brick `a_x` × `b_y` × `c_z` at the
    /// origin. The brick contains one image of each position. A rectangular cell equals its brick.
    pub fn brick(vectors: &Matrix3) -> Self {
        let mut over = [[0.0; 3]; 3];
        for axis in 0..3 {
            over[axis][axis] = 1.0 / vectors[axis][axis];
        }
        ApplyPbc {
            vectors: vectors.map(|vector| vector.map(|x| x as f32)),
            b_on_z: 0.0,
            a_on: [0.0; 2],
            inverse: over,
        }
    }

    /// Return the image of a position within the cell; `None` if single precision cannot determine
    /// this image.
    pub fn apply(&self, x: [f32; 3]) -> Option<[f32; 3]> {
        let mut near = x;
        if self.step(&mut near) {
            // Apart from rounding, the position is within the cell, unless it is NaN.
            return (!near.iter().any(|x| x.is_nan())).then_some(near);
        }
        let mut far = x;
        for axis in [2, 1, 0] {
            let [u, v, w] = self.inverse[axis];
            let number = u * f64::from(far[0]) + v * f64::from(far[1]) + w * f64::from(far[2]);
            // The range test is also false for NaN.
            if !(-FAR..=FAR).contains(&number) {
                return None;
            }
            self.add(&mut far, axis, -(number.floor() as f32));
        }
        self.step(&mut far);
        self.holds(far).then_some(far)
    }

    /// Apply the first step of `apply` to the arrays x, y and z of many positions. The cell must be
    /// a brick.
    #[inline(always)]
    pub fn apply_to<const N: usize>(&self, x: &mut [[f32; N]; 3]) {
        for axis in [2, 1, 0] {
            let high = self.vectors[axis][axis];
            for above in [false, true] {
                let (mut numbers, mut any) = ([0.0; N], 0);
                for (number, &x) in numbers.iter_mut().zip(&x[axis]) {
                    let beyond = if above { x >= high } else { x < 0.0 };
                    any |= u32::from(beyond);
                    *number = f32::from(u8::from(beyond));
                }
                // Consecutive atoms are usually close to each other, so that often none of them
                // needs a shift.
                if any == 0 {
                    continue;
                }
                for (x, &vector) in x.iter_mut().zip(&self.vectors[axis][..=axis]) {
                    let vector = if above { -vector } else { vector };
                    for (x, number) in x.iter_mut().zip(&numbers) {
                        *x += number * vector;
                    }
                }
            }
        }
    }

    /// Add or subtract each vector at most once; return whether the position is then within the
    /// cell.
    fn step(&self, x: &mut [f32; 3]) -> bool {
        let mut enough = true;
        for axis in [2, 1, 0] {
            let low = self.low(x, axis);
            let high = low + f64::from(self.vectors[axis][axis]);
            if f64::from(x[axis]) < low {
                self.add(x, axis, 1.0);
                enough &= f64::from(x[axis]) >= low;
            }
            // `else` would be wrong: rounding can move a position just below a face onto the
            // opposite face.
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

    /// Return the lower bound of a coordinate within the cell, given the other coordinates of `x`.
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

/// Round to the nearest whole number, ties to even, as NumPy and MDAnalysis do. This is exact for
/// magnitudes up to 2⁵¹; for larger numbers the result is large or NaN.
#[inline(always)]
pub fn whole(x: f64) -> f64 {
    const TO_WHOLE: f64 = 6_755_399_441_055_744.0;
    // Numbers as large as the sum have a spacing of 1, so that the addition rounds.
    // `round_ties_even` is not used, because it is a function call without SSE4.1.
    (x + TO_WHOLE) - TO_WHOLE
}

/// Round to the nearest whole number, ties away from 0, like `f64::round`. `f64::round` is not
/// used, because it is a function call without SSE4.1.
#[inline]
pub fn rounded(x: f64) -> f64 {
    let near = whole(x);
    let away = if (x - near).abs() == 0.5 {
        x + 0.5_f64.copysign(x)
    } else {
        near
    };
    away.copysign(x)
}

/// Return a function that computes squared minimum-image distances (Å²) in a rectangular cell.
/// Results are rounded as in MDAnalysis's comparison of all pairs.
pub fn nearest_in(edges: [f32; 3]) -> impl Fn([f64; 3]) -> f64 {
    let inverse = edges.map(|edge| f64::from(1.0 / edge));
    let edges = edges.map(f64::from);
    move |d| {
        square(std::array::from_fn(|i| {
            let edges_apart = d[i] * inverse[i];
            edges[i] * (edges_apart - whole(edges_apart))
        }))
    }
}

/// Return the image of a position in the cell, Å.
///
/// # Errors
/// Sentence about a position that is too far away.
pub(crate) fn in_cell(pbc: &ApplyPbc, x: [f32; 3]) -> Result<[f32; 3], String> {
    pbc.apply(x)
        .ok_or_else(|| format!("an atom at {x:?} Å is too far away to be wrapped into the cell"))
}

/// Return a function that computes squared minimum-image distances (Å²) between positions within a
/// triclinic cell. Results are rounded as in MDAnalysis's comparison of all pairs.
pub fn nearest_of_27(cell: &Cell) -> impl Fn([f64; 3]) -> f64 {
    let ([a, b, c], near) = (cell.vectors, cell.near);
    move |d| {
        let plain = square(d);
        if plain < near {
            return plain;
        }
        let mut least = plain;
        for i in NEIGHBOURS {
            let x = d[0] + a[0] * i;
            for j in NEIGHBOURS {
                let (x, y) = (x + b[0] * j, d[1] + b[1] * j);
                for k in NEIGHBOURS {
                    let image = [x + c[0] * k, y + c[1] * k, d[2] + c[2] * k];
                    let length = square(image);
                    least = if length < least { length } else { least };
                }
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, *};
    use crate::tests::Random;

    /// Cells of typical simulations, including triclinic ones.
    const CELLS: [[f32; 6]; 5] = [
        [30.0, 40.0, 50.0, 90.0, 90.0, 90.0],
        [80.017, 80.017, 80.017, 60.0, 60.0, 90.0],
        [40.0, 40.0, 40.0, 70.53, 109.47, 70.53],
        [25.0, 40.0, 31.0, 85.0, 95.0, 120.0],
        [20.0, 30.0, 25.0, 75.0, 62.0, 51.0],
    ];

    fn cell(dimensions: [f32; 6]) -> Cell {
        Cell::new(dimensions).expect("a cell")
    }

    #[test]
    fn vectors_have_the_lengths_and_angles() {
        for dimensions in CELLS {
            let v = cell(dimensions).vectors;
            let dot = |i: usize, j: usize| (0..3).map(|k| v[i][k] * v[j][k]).sum::<f64>();
            let length = |i: usize| dot(i, i).sqrt();
            let angle = |i, j| (dot(i, j) / (length(i) * length(j))).acos().to_degrees();
            let found = [
                length(0),
                length(1),
                length(2),
                angle(1, 2),
                angle(0, 2),
                angle(0, 1),
            ];
            for (found, expected) in found.iter().zip(dimensions) {
                assert!(
                    (found - f64::from(expected)).abs() < 1e-5,
                    "{dimensions:?}: {found}"
                );
            }
        }
    }

    #[test]
    fn what_makes_no_cell_is_refused() {
        let angles = [90.0; 3];
        assert_eq!(Cell::new([0.0; 6]), Err(NoCell::Missing));
        for (lengths, angles) in [
            ([0.0, 10.0, 10.0], angles),
            ([10.0, -10.0, 10.0], angles),
            ([10.0, f32::NAN, 10.0], angles),
            ([10.0, 10.0, f32::INFINITY], angles),
            ([10.0, 10.0, 10.0], [90.0, 90.0, 0.0]),
            ([10.0, 10.0, 10.0], [90.0, 180.0, 90.0]),
            ([10.0, 10.0, 10.0], [120.0, 120.0, 120.0]),
            ([10.0, 10.0, 10.0], [30.0, 30.0, 60.0]),
            ([10.0, 10.0, 10.0], [30.0, 30.0, 70.0]),
            ([10.0, 10.0, 10.0], [90.0, f32::NAN, 90.0]),
        ] {
            let mut dimensions = [0.0; 6];
            dimensions[..3].copy_from_slice(&lengths);
            dimensions[3..].copy_from_slice(&angles);
            let found = Cell::new(dimensions);
            assert!(
                matches!(found, Err(NoCell::Impossible(_))),
                "{dimensions:?}: {found:?}"
            );
        }
        let reason = NoCell::Missing.reason("unwrap");
        assert_eq!(reason, "the frame has no cell, which unwrap needs");
    }

    #[test]
    fn nearest_images_are_the_shortest() {
        let mut random = Random(11);
        let around = || (-4..=4).map(f64::from);
        for dimensions in CELLS {
            let cell = cell(dimensions);
            for _ in 0..100 {
                let d = random.vector::<3>().map(|x| 60.0 * x);
                let found = square(cell.shifted(d, cell.nearest_images(d)));
                let least = around()
                    .flat_map(|i| around().map(move |j| (i, j)))
                    .flat_map(|(i, j)| around().map(move |k| [i, j, k]))
                    .map(|images| square(cell.shifted(d, images)))
                    .fold(f64::INFINITY, f64::min);
                assert!(found <= least * (1.0 + 1e-12), "{dimensions:?}: {d:?}");
            }
        }
    }

    #[test]
    fn a_reduced_cell_has_the_same_lattice_and_finds_all_nearest_images() {
        let mut random = Random(14);
        for dimensions in CELLS {
            let (cell, reduced) = (cell(dimensions), cell(dimensions).reduced());
            let [a, b, c] = reduced.vectors;
            assert!((a[0] * b[1] * c[2] - cell.volume).abs() < 1e-5 * cell.volume);
            for (leans, over) in [(b[0], a[0]), (c[0], a[0]), (c[1], b[1])] {
                assert!(leans.abs() <= 0.5 * over * (1.0 + 1e-12), "{dimensions:?}");
            }
            for vector in reduced.vectors {
                let apart = cell.fractional(vector);
                assert!(apart.iter().all(|x| (x - x.round()).abs() < 1e-12));
            }
            for _ in 0..5000 {
                let d = random.vector::<3>().map(|x| 40.0 * x);
                let found = square(reduced.shifted(d, reduced.nearest_images(d)));
                let other = square(cell.shifted(d, cell.nearest_images(d)));
                assert!(found <= other * (1.0 + 1e-12), "{dimensions:?}: {d:?}");
            }
        }
    }

    #[test]
    fn short_differences_have_no_nearer_image() {
        let mut random = Random(12);
        for dimensions in CELLS {
            let cell = cell(dimensions);
            for _ in 0..1000 {
                let d = random.vector::<3>().map(|x| 20.0 * x);
                if cell.is_near(d) {
                    assert_eq!(cell.nearest_images(d), [0.0; 3], "{dimensions:?}: {d:?}");
                }
            }
        }
    }

    #[test]
    fn home_is_within_the_cell() {
        let mut random = Random(13);
        for dimensions in CELLS {
            let cell = cell(dimensions);
            for size in [10.0, 100.0, 1000.0] {
                for _ in 0..1000 {
                    let x = random.vector::<3>().map(|x| (size * x) as f32);
                    let (home, images) = cell.home(x);
                    let exact = cell.shifted(x.map(f64::from), images);
                    for i in 0..3 {
                        assert!((f64::from(home[i]) - exact[i]).abs() < 1e-5);
                    }
                    let fractional = cell.fractional(home.map(f64::from));
                    assert!(
                        fractional.iter().all(|f| (-1e-6..1.0).contains(f)),
                        "{home:?}"
                    );
                    assert_eq!(cell.home(home), (home, [0.0; 3]), "{x:?}");
                }
            }
        }
    }

    #[test]
    fn a_face_belongs_to_one_cell() {
        let cell = cell([10.0, 10.0, 10.0, 90.0, 90.0, 90.0]);
        assert_eq!(cell.home([10.0, 0.0, -10.0]), ([0.0; 3], [-1.0, 0.0, 1.0]));
        // In single precision, −1e-8 + 10 equals 10.
        assert_eq!(cell.home([-1e-8, 5.0, 25.0]).0, [0.0, 5.0, 5.0]);
        assert_eq!(cell.home([-1e-8, 5.0, 25.0]).1, [0.0, 0.0, -2.0]);
    }

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
        // In single precision, −1e-8 + 10 equals 10.
        assert_eq!(pbc.apply([-1e-8, 2.0, 3.0]), Some([0.0, 2.0, 3.0]));
    }

    #[test]
    fn numbers_are_rounded_as_by_the_standard_library() {
        let halves = [
            0.0,
            0.5,
            1.5,
            2.5,
            0.499_999_999_999_999_94,
            0.3,
            1e9 + 0.5,
            1e30,
        ];
        let mut random = Random(32);
        let others = (0..1000).map(|_| 100.0 * random.number());
        for x in halves.into_iter().chain(others) {
            for x in [x, -x] {
                assert_eq!(rounded(x).to_bits(), x.round().to_bits(), "{x}");
            }
        }
    }

    #[test]
    fn halves_go_to_the_even_number() {
        for x in [
            0.5, 1.5, -0.5, -1.5, -2.5, 0.499_999, 7.0, -32_767.0, 32_767.4, 0.0, -0.0, 1e9,
        ] {
            assert_eq!(whole(x), x.round_ties_even(), "{x}");
        }
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
