//! Steps from frame to frame: the images that atoms take, and the positions there.
//!
//! Images are counted in single precision, and once more in double precision where an atom moves by
//! so nearly half a cell that rounding might decide.

use std::ops::Range;

use super::Images;
use crate::cell::{Cell, whole};
use crate::instructions::{LANES, by_widest, columns_of, rows_of};
use crate::qcp::Matrix3;

/// Atoms that pass all frames of a block before the next do, so that what is known of them stays in
/// the processor's nearest cache.
pub(super) const PIECE: usize = 64;
/// Steps after which places are looked at again to see how far away they are.
const LOOK_AGAIN: usize = 512;
/// Cells up to which sums of coarse numbers are exact. Beyond, they round like any others.
const EXACT: f64 = 256.0;
/// Adding and taking off this rounds to a whole number, of magnitudes up to 2²².
const TO_WHOLE: f32 = 12_582_912.0;

/// Three numbers of each of some atoms.
type Piece = [[f32; PIECE]; 3];
const ZEROS: Piece = [[0.0; PIECE]; 3];

/// Some atoms in a frame.
#[derive(Debug, Clone)]
struct Places {
    /// Å, as they are in the file; zeros beyond the last atom.
    positions: Piece,
    /// In units of the cell's vectors, nearly, in their images.
    rough: Piece,
    /// Whole numbers.
    images: Piece,
}

/// A frame in which atoms can be followed.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Place of the frame among positions.
    pub(super) frame: Range<usize>,
    pub(super) cell: Cell,
    fractions: Fractions,
    shifts: Shifts,
    /// Largest magnitude of a place in units of the cell's vectors.
    largest: f64,
}

/// Where the atoms were in the last frame, if there is one, and in which images they are.
#[derive(Debug)]
pub(super) struct Followed {
    last: Option<Step>,
    pieces: Vec<Places>,
    /// No atom was farther away, in units of the cell's vectors, so many steps ago.
    farthest: f64,
    n_since: usize,
}

/// Images to be noted: after which of some steps, and room for them, step by step.
pub(super) struct Notes<'a> {
    pub(super) steps: &'a [usize],
    pub(super) images: &'a mut [Images],
}

/// Frames of positions: to be read, or moved to the images that are found.
pub(super) enum Frames<'a> {
    Read(&'a [f32]),
    Moved(&'a mut [f32]),
}

impl Step {
    pub(super) fn new(frame: Range<usize>, cell: Cell, largest: f32) -> Self {
        let fractions = Fractions::new(&cell);
        Step {
            frame,
            fractions,
            shifts: Shifts::new(cell.vectors()),
            largest: fractions.largest(largest),
            cell,
        }
    }

    /// By how much places may be off in single precision, at most.
    fn off(&self) -> f64 {
        // Of the sums of magnitudes each operation is off by half a last digit at most.
        32.0 * f64::from(f32::EPSILON) * self.largest
    }
}

impl Followed {
    pub(super) fn new(images: &[Images]) -> Self {
        let pieces = images.chunks(PIECE).map(|images| Places {
            images: piece_of(images),
            ..Places::ZEROS
        });
        Followed {
            last: None,
            pieces: pieces.collect(),
            farthest: 0.0,
            n_since: 0,
        }
    }

    /// Images of the first `n` atoms.
    pub(super) fn images(&self, n: usize) -> Vec<Images> {
        let mut images = vec![[0; 3]; n];
        for (piece, images) in self.pieces.iter().zip(images.chunks_mut(PIECE)) {
            note(piece, images);
        }
        images
    }

    /// Go on through some frames; the first atom that moves by more cells than an image can count.
    pub(super) fn go_on(
        &mut self,
        atoms: &[usize],
        frames: Frames<'_>,
        steps: &[Step],
        notes: Notes<'_>,
    ) -> Option<usize> {
        let (first, last) = (steps.first()?, steps.last()?);
        self.look_again(first);
        self.n_since += steps.len();
        let largest = steps.iter().map(|step| step.largest).fold(0.0, f64::max);
        // Followed, an atom moves by half a cell in a step at most.
        let reach = self.farthest + 0.5 * self.n_since as f64 + largest + 1.0;
        let (before, pieces) = (self.last.as_ref(), &mut self.pieces);
        let far = count(atoms, frames, before, steps, pieces, reach, notes);
        if far.is_none() {
            self.last = Some(last.clone());
        }
        far
    }

    /// Find how far away atoms are, now and then.
    fn look_again(&mut self, first: &Step) {
        let of_all = |of: fn(&Places) -> &Piece| {
            let numbers = self.pieces.iter().map(of);
            let most = numbers.map(|numbers| largest_of(numbers.as_flattened()));
            f64::from(most.fold(0.0, f32::max))
        };
        if self.last.is_none() {
            self.farthest = of_all(|places| &places.images) + first.largest;
        } else if self.n_since >= LOOK_AGAIN {
            (self.farthest, self.n_since) = (of_all(|places| &places.rough) + 1.0, 0);
        }
    }
}

impl Places {
    const ZEROS: Places = Places {
        positions: ZEROS,
        rough: ZEROS,
        images: ZEROS,
    };
}

impl Notes<'_> {
    pub(super) fn none() -> Self {
        Notes {
            steps: &[],
            images: &mut [],
        }
    }
}

/// Images of at most a piece.
#[inline(always)]
fn piece_of(images: &[Images]) -> Piece {
    let mut piece = ZEROS;
    for (k, image) in images.iter().enumerate() {
        for (of, &number) in piece.iter_mut().zip(image) {
            of[k] = f32::from(number);
        }
    }
    piece
}

#[inline(always)]
fn note(places: &Places, to: &mut [Images]) {
    for (k, to) in to.iter_mut().enumerate() {
        *to = [0, 1, 2].map(|axis: usize| places.images[axis][k] as i16);
    }
}

/// What brings positions to units of the cell's vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fractions {
    over: [f64; 3],
    b_x: f64,
    c_x: f64,
    c_y: f64,
}

impl Fractions {
    pub(super) fn new(cell: &Cell) -> Self {
        let [a, b, c] = *cell.vectors();
        Fractions {
            over: [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]],
            b_x: b[0],
            c_x: c[0],
            c_y: c[1],
        }
    }

    /// The largest fraction, given the largest coordinate, Å.
    pub(super) fn largest(&self, largest: f32) -> f64 {
        let largest = f64::from(largest);
        let w = largest * self.over[2];
        let v = (largest + w * self.c_y.abs()) * self.over[1];
        let u = (largest + w * self.c_x.abs() + v * self.b_x.abs()) * self.over[0];
        u.max(v).max(w)
    }

    /// In single precision.
    #[inline(always)]
    fn roughly(&self) -> impl Fn([f32; 3]) -> [f32; 3] + Copy {
        let [over_a, over_b, over_c] = self.over.map(|x| x as f32);
        let [b_x, c_x, c_y] = [self.b_x, self.c_x, self.c_y].map(|x| x as f32);
        move |[x, y, z]| {
            let w = z * over_c;
            let v = (y - w * c_y) * over_b;
            let u = (x - w * c_x - v * b_x) * over_a;
            [u, v, w]
        }
    }
}

/// Whole numbers of the cell's vectors, to be added to positions as in double precision, up to 256
/// cells away but for the last digit of one coordinate of 20,000; in half the time.
///
/// Each number of a vector is the sum of a coarse one, a multiple of the coarseness so large that
/// sums of multiples are exact, and a fine one. Positions are split likewise; at the end, the sum of
/// what is fine is added to the sum of what is coarse, which rounds once.
#[derive(Debug, Clone, Copy)]
struct Shifts {
    /// Added to a number and taken off, it leaves the nearest multiple.
    to_multiple: f32,
    coarse: [f32; 6],
    fine: [f32; 6],
}

impl Shifts {
    fn new(&[a, b, c]: &Matrix3) -> Self {
        // The others of the nine numbers are 0.
        let numbers = [a[0], b[0], c[0], b[1], c[1], c[2]];
        let longest = numbers.iter().map(|x| x.abs()).sum::<f64>();
        let coarseness = ((EXACT * longest).log2().ceil() - 22.0).exp2();
        let coarse = numbers.map(|x| coarseness * whole(x / coarseness));
        let fine = [0, 1, 2, 3, 4, 5].map(|k: usize| (numbers[k] - coarse[k]) as f32);
        Shifts {
            to_multiple: (f64::from(TO_WHOLE) * coarseness) as f32,
            coarse: coarse.map(|x| x as f32),
            fine,
        }
    }

    #[inline(always)]
    fn moved(&self) -> impl Fn([f32; 3], [f32; 3]) -> [f32; 3] + use<> {
        let (h, l, to_multiple) = (self.coarse, self.fine, self.to_multiple);
        move |position, [u, v, w]| {
            let multiples = position.map(|x| (x + to_multiple) - to_multiple);
            let coarse = [
                u * h[0] + v * h[1] + w * h[2],
                v * h[3] + w * h[4],
                w * h[5],
            ];
            let fine = [
                u * l[0] + v * l[1] + w * l[2],
                v * l[3] + w * l[4],
                w * l[5],
            ];
            [0, 1, 2].map(|axis: usize| {
                let rest = position[axis] - multiples[axis];
                (multiples[axis] + coarse[axis]) + (rest + fine[axis])
            })
        }
    }
}

by_widest! {
    /// Count images over frames, and move the atoms to these where that is wanted; the first atom
    /// that moves too far. No atom is more than `reach` cells away.
    fn count(
        atoms: &[usize],
        frames: Frames<'_>,
        last: Option<&Step>,
        steps: &[Step],
        pieces: &mut [Places],
        reach: f64,
        notes: Notes<'_>,
    ) -> Option<usize> {
        let (mut frames, n_atoms, mut moved) = (frames, atoms.len(), ZEROS);
        for (number, (atoms, piece)) in atoms.chunks(PIECE).zip(pieces).enumerate() {
            let (mut last, mut spare, mut noted) = (last, Places::ZEROS, 0);
            let (mut before, mut now): (&mut Places, &mut Places) = (piece, &mut spare);
            for (k, step) in steps.iter().enumerate() {
                let far = match &mut frames {
                    Frames::Read(positions) => {
                        let (frame, _) = positions[step.frame.clone()].as_chunks();
                        go_on::<WIDE, _>(atoms, frame, last, step, reach, before, now, &mut moved)
                    }
                    Frames::Moved(positions) => {
                        let (frame, _) = positions[step.frame.clone()].as_chunks_mut();
                        go_on::<WIDE, _>(atoms, frame, last, step, reach, before, now, &mut moved)
                    }
                };
                if let Some(atom) = far {
                    return Some(PIECE * number + atom);
                }
                while notes.steps.get(noted) == Some(&k) {
                    let begin = noted * n_atoms + PIECE * number;
                    note(now, &mut notes.images[begin..][..atoms.len()]);
                    noted += 1;
                }
                std::mem::swap(&mut before, &mut now);
                last = Some(step);
            }
            keep(steps.len(), before, now);
        }
        None
    }
}

/// Bring the last places back to where they are kept, after steps between that and another place.
#[inline(always)]
fn keep(n_steps: usize, last: &mut Places, other: &mut Places) {
    if !n_steps.is_multiple_of(2) {
        other.clone_from(last);
    }
}

/// A frame that is read, and may be one that is changed.
trait Frame {
    fn positions(&self) -> &[[f32; 3]];
    fn to_change(&mut self) -> Option<&mut [[f32; 3]]>;
}

impl Frame for &[[f32; 3]] {
    #[inline(always)]
    fn positions(&self) -> &[[f32; 3]] {
        self
    }
    #[inline(always)]
    fn to_change(&mut self) -> Option<&mut [[f32; 3]]> {
        None
    }
}

impl Frame for &mut [[f32; 3]] {
    #[inline(always)]
    fn positions(&self) -> &[[f32; 3]] {
        self
    }
    #[inline(always)]
    fn to_change(&mut self) -> Option<&mut [[f32; 3]]> {
        Some(self)
    }
}

/// Find places of a piece from those in the last frame, if there is one, and change the frame; the
/// first atom that moves too far.
#[inline(always)]
#[expect(clippy::too_many_arguments)]
fn go_on<const WIDE: bool, F: Frame>(
    atoms: &[usize],
    mut frame: F,
    last: Option<&Step>,
    step: &Step,
    reach: f64,
    before: &Places,
    now: &mut Places,
    moved: &mut Piece,
) -> Option<usize> {
    gather::<WIDE>(frame.positions(), atoms, &mut now.positions);
    let Some(last) = last else {
        begin(step, before, now);
        if let Some(frame) = frame.to_change() {
            move_piece::<WIDE>(atoms, frame, &step.shifts, now);
        }
        return None;
    };
    let changes = frame.to_change().is_some();
    let off = follow(step, before, now, changes.then_some(&mut *moved));
    // Rounding decides nothing of what is off a whole number by less than this.
    let surely = 0.5 - last.off() - step.off() - 8.0 * f64::from(f32::EPSILON) * reach;
    if reach < f64::from(i16::MAX) && f64::from(off) < surely {
        if let Some(frame) = frame.to_change() {
            scatter::<WIDE>(moved, atoms, frame);
        }
        return None;
    }
    let far = count_exactly(last, step, before, now);
    if let (None, Some(frame)) = (far, frame.to_change()) {
        move_piece::<WIDE>(atoms, frame, &step.shifts, now);
    }
    far
}

/// Copy positions; what is beyond the last atom stays, and never moves.
#[inline(always)]
fn gather<const WIDE: bool>(frame: &[[f32; 3]], atoms: &[usize], to: &mut Piece) {
    if let Some(row) = row_of(atoms).and_then(|row| frame.get(row)) {
        let (rows, _) = row.as_chunks();
        for (group, rows) in rows.iter().enumerate() {
            let begin = LANES * group;
            for (to, column) in to.iter_mut().zip(columns_of::<WIDE>(rows)) {
                to[begin..begin + LANES].copy_from_slice(&column);
            }
        }
        return;
    }
    for (k, &atom) in atoms.iter().enumerate() {
        (to[0][k], to[1][k], to[2][k]) = frame[atom].into();
    }
}

#[inline(always)]
fn scatter<const WIDE: bool>(from: &Piece, atoms: &[usize], frame: &mut [[f32; 3]]) {
    if let Some(row) = row_of(atoms).and_then(|row| frame.get_mut(row)) {
        let (rows, _) = row.as_chunks_mut();
        for (group, rows) in rows.iter_mut().enumerate() {
            let begin = LANES * group;
            let columns = from.each_ref().map(|from| {
                let mut column = [0.0; LANES];
                column.copy_from_slice(&from[begin..begin + LANES]);
                column
            });
            rows_of::<WIDE>(&columns, rows);
        }
        return;
    }
    for (k, &atom) in atoms.iter().enumerate() {
        frame[atom] = [from[0][k], from[1][k], from[2][k]];
    }
}

/// Atoms of a whole piece that follow each other.
#[inline(always)]
fn row_of(atoms: &[usize]) -> Option<Range<usize>> {
    let (first, last) = (*atoms.first()?, *atoms.last()?);
    (atoms.len() == PIECE && last - first + 1 == PIECE).then_some(first..last + 1)
}

/// Begin in the images that are given.
#[inline(always)]
fn begin(step: &Step, given: &Places, now: &mut Places) {
    now.images = given.images;
    put_roughly(step, now);
}

#[inline(always)]
fn put_roughly(step: &Step, now: &mut Places) {
    let roughly = step.fractions.roughly();
    for k in 0..PIECE {
        let place = roughly([0, 1, 2].map(|axis: usize| now.positions[axis][k]));
        for (axis, place) in place.into_iter().enumerate() {
            now.rough[axis][k] = place + now.images[axis][k];
        }
    }
}

/// Take the images nearest to where atoms were, and the positions there where they are wanted; by how
/// much of the cell atoms move, at most.
#[inline(always)]
fn follow(step: &Step, before: &Places, now: &mut Places, mut moved: Option<&mut Piece>) -> f32 {
    let (roughly, shift, mut most) = (step.fractions.roughly(), step.shifts.moved(), 0);
    for k in 0..PIECE {
        let position = [0, 1, 2].map(|axis: usize| now.positions[axis][k]);
        let (place, mut images) = (roughly(position), [0.0; 3]);
        for axis in 0..3 {
            let last = before.rough[axis][k];
            images[axis] = ((last - place[axis]) + TO_WHOLE) - TO_WHOLE;
            let rough = place[axis] + images[axis];
            // As whole numbers, which lanes can compare in any order.
            most = u32::max(most, (rough - last).abs().to_bits());
            now.rough[axis][k] = rough;
            now.images[axis][k] = images[axis];
        }
        if let Some(moved) = &mut moved {
            let there = shift(position, images);
            for axis in 0..3 {
                moved[axis][k] = there[axis];
            }
        }
    }
    f32::from_bits(most)
}

/// Take the images in double precision; the first atom that moves too far.
#[inline(always)]
fn count_exactly(last: &Step, step: &Step, before: &Places, now: &mut Places) -> Option<usize> {
    let (from, to) = (last.cell.fractions(), step.cell.fractions());
    for k in 0..PIECE {
        let [from, to] = [
            from([0, 1, 2].map(|axis: usize| f64::from(before.positions[axis][k]))),
            to([0, 1, 2].map(|axis: usize| f64::from(now.positions[axis][k]))),
        ];
        for axis in 0..3 {
            let jump = whole(to[axis] - from[axis]) as f32;
            now.images[axis][k] = before.images[axis][k] - jump;
        }
    }
    put_roughly(step, now);
    (0..PIECE).find(|&k| !now.images.iter().all(|of| is_counted(of[k])))
}

/// True for whole numbers that an image can be.
#[inline(always)]
fn is_counted(image: f32) -> bool {
    (f32::from(i16::MIN)..=f32::from(i16::MAX)).contains(&image)
}

by_widest! {
    /// Move atoms to given images.
    fn shift(atoms: &[usize], frame: &mut [[f32; 3]], shifts: &Shifts, images: &[Images]) {
        let mut places = Places::ZEROS;
        for (atoms, images) in atoms.chunks(PIECE).zip(images.chunks(PIECE)) {
            gather::<WIDE>(frame, atoms, &mut places.positions);
            places.images = piece_of(images);
            move_piece::<WIDE>(atoms, frame, shifts, &places);
        }
    }
}

#[inline(always)]
fn move_piece<const WIDE: bool>(
    atoms: &[usize],
    frame: &mut [[f32; 3]],
    shifts: &Shifts,
    places: &Places,
) {
    let (shift, mut moved) = (shifts.moved(), ZEROS);
    for k in 0..PIECE {
        let [position, images] =
            [&places.positions, &places.images].map(|of| [0, 1, 2].map(|axis: usize| of[axis][k]));
        let there = shift(position, images);
        for axis in 0..3 {
            moved[axis][k] = there[axis];
        }
    }
    scatter::<WIDE>(&moved, atoms, frame);
}

/// Move atoms of a frame to given images.
pub(super) fn move_to_images(atoms: &[usize], frame: &mut [f32], cell: &Cell, images: &[Images]) {
    let (frame, _) = frame.as_chunks_mut();
    shift(atoms, frame, &Shifts::new(cell.vectors()), images);
}

by_widest! {
    /// The largest magnitude; no number where one is not finite.
    pub(super) fn largest_of(x: &[f32]) -> f32 {
        // Magnitudes are in the order of their bits; those of what is not finite come last.
        let most = x.iter().fold(0, |most, x| u32::max(most, x.abs().to_bits()));
        f32::from_bits(most) * 0.0 + f32::from_bits(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    #[test]
    fn shifts_are_as_in_double_precision() {
        let (mut random, mut n, mut n_others) = (Random(3), 0, 0);
        for round in 0..20_000 {
            let [a, b, c] = [0; 3].map(|_| (3.0 + 300.0 * random.number().abs()) as f32);
            let [alpha, beta, gamma] = [0; 3].map(|_| (70.0 + 40.0 * random.number().abs()) as f32);
            let cell = Cell::new([a, b, c, alpha, beta, gamma]).expect("a cell");
            let most = [2.0, 100.0, 32_767.0][round % 3];
            let images = [0; 3].map(|_| (most * random.number()).round() as f32);
            let position = [a, b, c].map(|edge| edge * random.number() as f32);
            let found = Shifts::new(cell.vectors()).moved()(position, images);
            let exact = cell.shifted(position.map(f64::from), images.map(f64::from));
            for axis in 0..3 {
                let along = [0, 1, 2].map(|k: usize| images[k] * cell.vectors()[k][axis] as f32);
                let sum = along
                    .iter()
                    .fold(position[axis].abs(), |sum, x| sum + x.abs());
                let digit = f64::from(sum.next_up() - sum);
                let off = (f64::from(found[axis]) - exact[axis]).abs();
                assert!(off <= 4.0 * digit, "{found:?} {exact:?}: {off}");
                n += usize::from(most <= 100.0);
                n_others += usize::from(most <= 100.0 && found[axis] != exact[axis] as f32);
            }
        }
        assert!(20000 * n_others <= n, "{n_others} of {n}");
    }

    #[test]
    fn who_is_not_shifted_stays() {
        let cell = Cell::new([30.0, 34.0, 28.0, 75.0, 100.0, 62.0]).expect("a cell");
        let shift = Shifts::new(cell.vectors()).moved();
        for x in [0.0, -0.0, 1e-30, 0.1, 29.99, -3e3, 4e5, f32::MIN_POSITIVE] {
            assert_eq!(shift([x; 3], [0.0; 3]), [x; 3]);
        }
    }
}
