//! Positions of some atoms in a frame, and their images in the next frame: the time-critical part
//! of unwrapping. All numbers have single precision. The module `steps` recomputes the cases in
//! which rounding could change the result.

use super::Images;
use crate::cell::Cell;
use crate::instructions::{by_widest, columns_of, larger_magnitude, prefetch, rows_of};

/// Number of atoms that are processed together through all frames of a block, so that their data
/// stay in the first-level cache.
pub(super) const PIECE: usize = 64;
/// Adding and then subtracting this number rounds a number of magnitude up to 2²² to the nearest
/// whole number.
pub(super) const TO_WHOLE: f32 = 12_582_912.0;

/// Positions of a piece of atoms, in the layout of a frame.
pub(super) type Rows = [[f32; 3]; PIECE];
/// Three numbers for each atom of a piece.
type Piece = [[f32; PIECE]; 3];
const ZEROS: Piece = [[0.0; PIECE]; 3];

/// A piece of atoms in a frame, aligned to a cache line for fast loads and stores.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct PiecePositions {
    /// Positions in the file, Å, padded with zeros.
    pub(super) positions: Piece,
    /// Unwrapped positions in fractional coordinates, approximately. Before the first frame, the
    /// images.
    pub(super) followed: Piece,
}

impl PiecePositions {
    pub(super) const ZEROS: PiecePositions = PiecePositions {
        positions: ZEROS,
        followed: ZEROS,
    };

    /// Return the position of an atom, Å.
    pub(super) fn position(&self, atom: usize) -> [f32; 3] {
        self.positions.each_ref().map(|of_axis| of_axis[atom])
    }

    /// Return the bits of the largest squared distance from the origin, Å².
    #[inline(always)]
    pub(super) fn square(&self) -> u32 {
        let squares = (0..PIECE).map(|k| square_of::<false>(self.position(k)).to_bits());
        squares.fold(0, u32::max)
    }
}

/// Cell in single precision, the precision of positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundedCell {
    /// Nonzero elements of the cell vectors. In double precision, unwrapping takes 1.1 times as
    /// long.
    vectors: [f32; 6],
    /// Inverses of the diagonal elements of the vectors.
    over: [f32; 3],
    /// Maximum fractional coordinate of a position whose x, y and z are at most 1 Å.
    pub(super) per_length: f64,
}

impl RoundedCell {
    pub(super) fn new(cell: &Cell) -> Self {
        let [a, b, c] = *cell.vectors();
        let over = [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]];
        let w = over[2];
        let v = (1.0 + w * c[1].abs()) * over[1];
        let u = (1.0 + w * c[0].abs() + v * b[0].abs()) * over[0];
        RoundedCell {
            vectors: [a[0], b[0], c[0], b[1], c[1], c[2]].map(|x| x as f32),
            over: over.map(|x| x as f32),
            per_length: u.max(v).max(w),
        }
    }

    /// Return the maximum fractional coordinate for a maximum coordinate (Å).
    pub(super) fn largest(&self, coordinate: f32) -> f64 {
        self.per_length * f64::from(coordinate)
    }

    /// Convert positions to fractional coordinates. `FUSED` selects fused multiply-add; it must be
    /// false, or the constant `WIDE` of `by_widest`. Fused multiply-add changes the last digits but
    /// no image, and takes 0.95 of the time.
    #[inline(always)]
    pub(super) fn fractions<const FUSED: bool>(
        &self,
    ) -> impl Fn([f32; 3]) -> [f32; 3] + Copy + use<FUSED> {
        let [over_a, over_b, over_c] = self.over;
        let [_, b_x, c_x, _, c_y, _] = self.vectors;
        move |[x, y, z]| {
            let w = z * over_c;
            if FUSED {
                let v = w.mul_add(-c_y, y) * over_b;
                let u = v.mul_add(-b_x, w.mul_add(-c_x, x)) * over_a;
                return [u, v, w];
            }
            let v = (y - w * c_y) * over_b;
            let u = (x - w * c_x - v * b_x) * over_a;
            [u, v, w]
        }
    }

    /// Return a function that adds whole cell vectors to a position.
    #[inline(always)]
    fn moved(&self) -> impl Fn([f32; 3], [f32; 3]) -> [f32; 3] + Copy + use<> {
        let [a_x, b_x, c_x, b_y, c_y, c_z] = self.vectors;
        move |[x, y, z], [u, v, w]| {
            [
                x + (u * a_x + v * b_x + w * c_x),
                y + (v * b_y + w * c_y),
                z + w * c_z,
            ]
        }
    }
}

/// Convert the images of at most one piece of atoms to single precision.
#[inline(always)]
pub(super) fn piece_of(images: &[Images]) -> Piece {
    let mut piece = ZEROS;
    for (k, image) in images.iter().enumerate() {
        for (of_axis, &number) in piece.iter_mut().zip(image) {
            of_axis[k] = f32::from(number);
        }
    }
    piece
}

/// Return the numbers of a group of consecutive atoms.
#[inline(always)]
pub(super) fn lanes<const N: usize>(piece: &Piece, group: usize) -> [[f32; N]; 3] {
    let [x, y, z] = piece;
    [
        x.as_chunks().0[group],
        y.as_chunks().0[group],
        z.as_chunks().0[group],
    ]
}

#[inline(always)]
fn set_lanes<const N: usize>(piece: &mut Piece, group: usize, numbers: [[f32; N]; 3]) {
    for (of_axis, numbers) in piece.iter_mut().zip(numbers) {
        of_axis.as_chunks_mut().0[group] = numbers;
    }
}

/// Return the images of a group of consecutive atoms in a frame. Without a cell, before the first
/// frame, these are the images in `followed`.
#[inline(always)]
pub(super) fn images_in<const N: usize>(
    places: &PiecePositions,
    cell: Option<&RoundedCell>,
    group: usize,
) -> [[f32; N]; 3] {
    let (mut images, position) = (
        lanes(&places.followed, group),
        lanes::<N>(&places.positions, group),
    );
    let Some(cell) = cell else { return images };
    let fractions = cell.fractions::<false>();
    for k in 0..N {
        let of_atom = fractions([position[0][k], position[1][k], position[2][k]]);
        for (of_axis, x) in images.iter_mut().zip(of_atom) {
            of_axis[k] = whole_of(of_axis[k] - x);
        }
    }
    images
}

/// Return the images of all atoms in a frame.
pub(super) fn images_of(places: &PiecePositions, cell: &RoundedCell) -> Piece {
    images_in(places, Some(cell), 0)
}

/// Return a squared length. `FUSED` has the meaning of [`RoundedCell::fractions`].
#[inline(always)]
fn square_of<const FUSED: bool>([x, y, z]: [f32; 3]) -> f32 {
    if FUSED {
        return z.mul_add(z, y.mul_add(y, x * x));
    }
    x * x + y * y + z * z
}

#[inline(always)]
fn whole_of(x: f32) -> f32 {
    (x + TO_WHOLE) - TO_WHOLE
}

/// Return the first atom of a complete piece of consecutive atoms, whose positions need not be
/// gathered; `None` for other pieces.
#[inline(always)]
pub(super) fn place_of(atoms: &[usize]) -> Option<usize> {
    let piece: &[usize; PIECE] = atoms.try_into().ok()?;
    let (first, last) = (piece[0], piece[PIECE - 1]);
    (last - first + 1 == PIECE).then_some(first)
}

#[inline(always)]
pub(super) fn gather(frame: &[[f32; 3]], atoms: &[usize], rows: &mut Rows) {
    for (row, &atom) in rows.iter_mut().zip(atoms) {
        *row = frame[atom];
    }
}

#[inline(always)]
pub(super) fn scatter(rows: &Rows, frame: &mut [[f32; 3]], atoms: &[usize]) {
    for (row, &atom) in rows.iter().zip(atoms) {
        frame[atom] = *row;
    }
}

/// Maxima over the atoms of a piece, for each SIMD lane.
pub(super) struct Maxima<const N: usize> {
    /// Bits of the squared distance from the origin, Å². The bits sort like the numbers, and
    /// numbers that are not finite come last.
    pub(super) square: [u32; N],
    /// Displacement since the last frame in fractional coordinates; undefined for a NaN position.
    pub(super) by: [f32; N],
}

/// Read a piece of atoms in the first frame. The images of the atoms are `given`; move the atoms to
/// these images if `MOVE` is true.
#[inline(always)]
pub(super) fn begin<const WIDE: bool, const N: usize, const MOVE: bool>(
    rows: &mut Rows,
    cell: &RoundedCell,
    given: &PiecePositions,
    now: &mut PiecePositions,
) -> Maxima<N> {
    let fractions = cell.fractions::<false>();
    for (group, rows) in rows.as_chunks().0.iter().enumerate() {
        set_lanes(&mut now.positions, group, columns_of::<WIDE, N>(rows));
    }
    for k in 0..PIECE {
        let of_atom = fractions(now.position(k));
        for ((to, images), x) in now.followed.iter_mut().zip(&given.followed).zip(of_atom) {
            to[k] = x + images[k];
        }
    }
    if MOVE {
        shift_piece::<WIDE, N>(rows, cell, &given.followed);
    }
    Maxima {
        square: [now.square(); N],
        by: [0.0; N],
    }
}

/// Find the images nearest to the last positions, and move the atoms there if `MOVE` is true.
#[inline(always)]
pub(super) fn follow<const WIDE: bool, const N: usize, const MOVE: bool>(
    rows: &mut Rows,
    next: Option<&Rows>,
    cell: &RoundedCell,
    before: &PiecePositions,
    now: &mut PiecePositions,
) -> Maxima<N> {
    let (fractions, moved) = (cell.fractions::<WIDE>(), cell.moved());
    let (mut square, mut by) = ([0; N], [0.0; N]);
    for (group, rows) in rows.as_chunks_mut().0.iter_mut().enumerate() {
        if let Some(next) = next {
            prefetch(&next.as_chunks::<N>().0[group]);
        }
        let position = columns_of::<WIDE, N>(rows);
        let last = lanes::<N>(&before.followed, group);
        let [mut followed, mut there, mut moves] = [[[0.0; N]; 3]; 3];
        for k in 0..N {
            let x = [position[0][k], position[1][k], position[2][k]];
            let of_atom = fractions(x);
            let mut image = [0.0; 3];
            for axis in 0..3 {
                let away = last[axis][k] - of_atom[axis];
                image[axis] = whole_of(away);
                moves[axis][k] = away - image[axis];
                followed[axis][k] = of_atom[axis] + image[axis];
            }
            square[k] = u32::max(square[k], square_of::<WIDE>(x).to_bits());
            let x = moved(x, image);
            for axis in 0..3 {
                there[axis][k] = x[axis];
            }
        }
        for moves in &moves {
            by = larger_magnitude::<WIDE, N>(&by, moves);
        }
        set_lanes(&mut now.positions, group, position);
        set_lanes(&mut now.followed, group, followed);
        if MOVE {
            rows_of::<WIDE, N>(&there, rows);
        }
    }
    Maxima { square, by }
}

by_widest! {
    /// Move atoms to given images.
    fn shift(atoms: &[usize], frame: &mut [[f32; 3]], cell: &RoundedCell, images: &[Images]) {
        for (atoms, images) in atoms.chunks(PIECE).zip(images.chunks(PIECE)) {
            let images = piece_of(images);
            match place_of(atoms) {
                Some(first) => {
                    let rows = frame[first..].first_chunk_mut().expect("a piece");
                    shift_piece::<WIDE, N>(rows, cell, &images);
                }
                None => {
                    let mut rows = [[0.0; 3]; PIECE];
                    gather(frame, atoms, &mut rows);
                    shift_piece::<WIDE, N>(&mut rows, cell, &images);
                    scatter(&rows, frame, atoms);
                }
            }
        }
    }
}

#[inline(always)]
pub(super) fn shift_piece<const WIDE: bool, const N: usize>(
    rows: &mut Rows,
    cell: &RoundedCell,
    images: &Piece,
) {
    let moved = cell.moved();
    for (group, rows) in rows.as_chunks_mut().0.iter_mut().enumerate() {
        let (mut there, image) = (columns_of::<WIDE, N>(rows), lanes::<N>(images, group));
        for k in 0..N {
            let x = [there[0][k], there[1][k], there[2][k]];
            let x = moved(x, [image[0][k], image[1][k], image[2][k]]);
            for axis in 0..3 {
                there[axis][k] = x[axis];
            }
        }
        rows_of::<WIDE, N>(&there, rows);
    }
}

/// Move atoms of a frame to given images.
pub(super) fn move_to_images(atoms: &[usize], frame: &mut [f32], cell: &Cell, images: &[Images]) {
    let (frame, _) = frame.as_chunks_mut();
    shift(atoms, frame, &RoundedCell::new(cell), images);
}

by_widest! {
    /// Return the largest magnitude; NaN if a number is not finite.
    pub(super) fn largest_of(x: &[f32]) -> f32 {
        largest_in(x)
    }
}

#[inline(always)]
pub(super) fn largest_in(x: &[f32]) -> f32 {
    // The bits of magnitudes sort like the numbers, and numbers that are not finite come last.
    finite(
        x.iter()
            .fold(0, |most, x| u32::max(most, x.abs().to_bits())),
    )
}

/// Return the number with these bits, or NaN if the number is not finite.
#[inline(always)]
fn finite(bits: u32) -> f32 {
    f32::from_bits(bits) * 0.0 + f32::from_bits(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    #[test]
    fn rounding_is_a_few_last_digits() {
        let mut random = Random(3);
        for round in 0..20_000 {
            let [a, b, c] = [0; 3].map(|_| (3.0 + 300.0 * random.number().abs()) as f32);
            let [alpha, beta, gamma] = [0; 3].map(|_| (70.0 + 40.0 * random.number().abs()) as f32);
            let cell = Cell::new([a, b, c, alpha, beta, gamma]).expect("a cell");
            let most = [2.0, 100.0, 32_767.0][round % 3];
            let images = [0; 3].map(|_| (most * random.number()).round() as f32);
            let position = [a, b, c].map(|edge| edge * random.number() as f32);
            let found = RoundedCell::new(&cell).moved()(position, images);
            let exact = cell.shifted(position.map(f64::from), images.map(f64::from));
            for axis in 0..3 {
                let along = [0, 1, 2].map(|k: usize| images[k] * cell.vectors()[k][axis] as f32);
                let sum = along
                    .iter()
                    .fold(position[axis].abs(), |sum, x| sum + x.abs());
                let digit = f64::from(sum.next_up() - sum);
                let off = (f64::from(found[axis]) - exact[axis]).abs();
                assert!(off <= 3.0 * digit, "{found:?} {exact:?}: {off}");
            }
        }
    }

    #[test]
    fn who_is_not_shifted_stays() {
        let cell = Cell::new([30.0, 34.0, 28.0, 75.0, 100.0, 62.0]).expect("a cell");
        let moved = RoundedCell::new(&cell).moved();
        for x in [0.0, -0.0, 1e-30, 0.1, 29.99, -3e3, 4e5, f32::MIN_POSITIVE] {
            assert_eq!(moved([x; 3], [0.0; 3]), [x; 3]);
        }
    }
}
