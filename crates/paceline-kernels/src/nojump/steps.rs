//! Steps from frame to frame: the images that atoms take, and the positions there.
//!
//! Images are counted in single precision, and once more in double precision where an atom moves by
//! so nearly half a cell that rounding might decide.

use std::ops::Range;

use super::{FARTHEST, Images};
use crate::cell::{Cell, whole};
use crate::instructions::{by_widest, columns_of, prefetch, rows_of};
use crate::qcp::Matrix3;

/// Atoms that pass all frames of a block before the next do, so that what is known of them stays in
/// the processor's nearest cache.
pub(super) const PIECE: usize = 64;
/// Adding and taking off this rounds to a whole number, of magnitudes up to 2²².
const TO_WHOLE: f32 = 12_582_912.0;

/// Positions of some atoms as they are in a frame.
type Rows = [[f32; 3]; PIECE];
/// Three numbers of each of some atoms.
type Piece = [[f32; PIECE]; 3];
const ZEROS: Piece = [[0.0; PIECE]; 3];

/// Some atoms in a frame. What lanes load and store begins with a cache line.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Places {
    /// Å, as they are in the file; zeros beyond the last atom.
    positions: Piece,
    /// In their images, in units of the cell's vectors, nearly; of no frame, the images.
    followed: Piece,
}

/// A frame in which atoms can be followed.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Place of the frame among positions.
    pub(super) frame: Range<usize>,
    pub(super) cell: Cell,
    fractions: Fractions,
    vectors: Vectors,
    /// The most that 1 Å is in units of the cell's vectors.
    per_length: f64,
}

/// Where the atoms were in the last frame, if there is one, and in which images they are.
#[derive(Debug)]
pub(super) struct Followed {
    last: Option<Step>,
    pieces: Vec<Places>,
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

/// Why atoms are followed no further.
#[derive(Debug)]
pub(super) struct Stop {
    /// Among the steps.
    pub(super) step: usize,
    /// Among the atoms: the one that moves by more cells than an image can count, or the first one of
    /// a piece that is lost.
    pub(super) atom: usize,
    /// True if one of the piece is nowhere, or too far away. It is not moved then.
    pub(super) is_lost: bool,
}

impl Step {
    pub(super) fn new(frame: Range<usize>, cell: Cell) -> Self {
        let fractions = Fractions::new(&cell);
        Step {
            frame,
            fractions,
            vectors: Vectors::new(cell.vectors()),
            per_length: fractions.largest(1.0),
            cell,
        }
    }
}

impl Followed {
    pub(super) fn new(images: &[Images]) -> Self {
        let pieces = images.chunks(PIECE).map(|images| Places {
            followed: piece_of(images),
            ..Places::ZEROS
        });
        Followed {
            last: None,
            pieces: pieces.collect(),
        }
    }

    /// Images of the first `n` atoms.
    pub(super) fn images(&self, n: usize) -> Vec<Images> {
        let mut images = vec![[0; 3]; n];
        for (piece, images) in self.pieces.iter().zip(images.chunks_mut(PIECE)) {
            note::<false, 8>(piece, self.last.as_ref(), images);
        }
        images
    }

    /// Go on through some frames.
    pub(super) fn go_on(
        &mut self,
        atoms: &[usize],
        frames: Frames<'_>,
        steps: &[Step],
        notes: Notes<'_>,
    ) -> Result<(), Stop> {
        let Some(last) = steps.last() else {
            return Ok(());
        };
        let before = self.last.as_ref();
        count(atoms, frames, before, steps, &mut self.pieces, notes)?;
        self.last = Some(last.clone());
        Ok(())
    }
}

impl Places {
    const ZEROS: Places = Places {
        positions: ZEROS,
        followed: ZEROS,
    };

    /// Position of an atom, Å.
    fn position(&self, atom: usize) -> [f32; 3] {
        self.positions.each_ref().map(|of_axis| of_axis[atom])
    }
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
        for (of_axis, &number) in piece.iter_mut().zip(image) {
            of_axis[k] = f32::from(number);
        }
    }
    piece
}

/// Numbers of neighbouring atoms.
#[inline(always)]
fn lanes<const N: usize>(piece: &Piece, group: usize) -> [[f32; N]; 3] {
    [0, 1, 2].map(|axis: usize| piece[axis].as_chunks().0[group])
}

#[inline(always)]
fn set_lanes<const N: usize>(piece: &mut Piece, group: usize, numbers: [[f32; N]; 3]) {
    for (of_axis, numbers) in piece.iter_mut().zip(numbers) {
        of_axis.as_chunks_mut().0[group] = numbers;
    }
}

/// Note the images of places in a frame.
#[inline(always)]
fn note<const WIDE: bool, const N: usize>(
    places: &Places,
    frame: Option<&Step>,
    to: &mut [Images],
) {
    for (group, to) in to.chunks_mut(N).enumerate() {
        let mut rows = [[0.0; 3]; N];
        rows_of::<WIDE, N>(&images_in(places, frame, group), &mut rows);
        let mut numbers = [[0; 3]; N];
        for (x, number) in rows.as_flattened().iter().zip(numbers.as_flattened_mut()) {
            // The last bits of the sum: three times as fast as converting numbers one by one.
            *number = (x + TO_WHOLE).to_bits() as i16;
        }
        match to.first_chunk_mut() {
            Some(all) => *all = numbers,
            None => to.copy_from_slice(&numbers[..to.len()]),
        }
    }
}

/// Images of neighbouring places in a frame.
#[inline(always)]
fn images_in<const N: usize>(places: &Places, frame: Option<&Step>, group: usize) -> [[f32; N]; 3] {
    let (mut images, position) = (
        lanes(&places.followed, group),
        lanes::<N>(&places.positions, group),
    );
    let Some(frame) = frame else { return images };
    let fractions = frame.fractions.roughly::<false>();
    for k in 0..N {
        let of_atom = fractions([position[0][k], position[1][k], position[2][k]]);
        for (of_axis, x) in images.iter_mut().zip(of_atom) {
            of_axis[k] = whole_of(of_axis[k] - x);
        }
    }
    images
}

/// Images of all places in a frame.
fn images_of(places: &Places, frame: &Step) -> Piece {
    images_in(places, Some(frame), 0)
}

#[inline(always)]
fn whole_of(x: f32) -> f32 {
    (x + TO_WHOLE) - TO_WHOLE
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

    /// In single precision. `FUSED` is false or the `WIDE` of `by_widest`: the last digits differ, on
    /// which no image depends, and following atoms takes 0.95 of the time.
    #[inline(always)]
    fn roughly<const FUSED: bool>(&self) -> impl Fn([f32; 3]) -> [f32; 3] + Copy {
        let [over_a, over_b, over_c] = self.over.map(|x| x as f32);
        let [b_x, c_x, c_y] = [self.b_x, self.c_x, self.c_y].map(|x| x as f32);
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
}

/// The cell's vectors, of which whole numbers are added to positions: the numbers that are not 0.
///
/// All is in single precision, as positions are: with more digits, following
/// atoms takes 1.1 times as long.
#[derive(Debug, Clone, Copy)]
struct Vectors([f32; 6]);

impl Vectors {
    fn new(&[a, b, c]: &Matrix3) -> Self {
        Vectors([a[0], b[0], c[0], b[1], c[1], c[2]].map(|x| x as f32))
    }

    /// Add whole numbers of the vectors to a position.
    #[inline(always)]
    fn moved(&self) -> impl Fn([f32; 3], [f32; 3]) -> [f32; 3] + Copy + use<> {
        let [a_x, b_x, c_x, b_y, c_y, c_z] = self.0;
        move |[x, y, z], [u, v, w]| {
            [
                x + (u * a_x + v * b_x + w * c_x),
                y + (v * b_y + w * c_y),
                z + w * c_z,
            ]
        }
    }
}

by_widest! {
    16 lanes:
    /// Count images over frames, and move the atoms to these where that is wanted.
    fn count(
        atoms: &[usize],
        frames: Frames<'_>,
        last: Option<&Step>,
        steps: &[Step],
        pieces: &mut [Places],
        notes: Notes<'_>,
    ) -> Result<(), Stop> {
        let (mut frames, n_atoms) = (frames, atoms.len());
        let all = steps.iter().chain(last);
        let per_length = all.fold(0.0, |most, step| f64::max(most, step.per_length));
        let (mut spare, mut gathered) = (Places::ZEROS, [[0.0; 3]; PIECE]);
        for (number, (atoms, piece)) in atoms.chunks(PIECE).zip(pieces).enumerate() {
            let mut bounds = Bounds::new(piece, per_length, steps.len());
            let (place, mut last, mut noted) = (place_of(atoms), last, 0);
            if atoms.len() < PIECE {
                gathered = [[0.0; 3]; PIECE];
            }
            let (mut before, mut now): (&mut Places, &mut Places) = (piece, &mut spare);
            for (k, step) in steps.iter().enumerate() {
                let gone_on = match &mut frames {
                    Frames::Read(positions) => {
                        gather(positions[step.frame.clone()].as_chunks().0, atoms, &mut gathered);
                        go_on::<WIDE, N, false>(&mut gathered, None, last, step, &mut bounds, before, now)
                    }
                    Frames::Moved(positions) => {
                        let (frame, _) = positions[step.frame.clone()].as_chunks_mut();
                        let (rows, next) = match place {
                            Some(first) => {
                                let (rows, rest) = frame[first..].split_first_chunk_mut().expect("a piece");
                                (rows, rest.first_chunk())
                            }
                            None => {
                                gather(frame, atoms, &mut gathered);
                                (&mut gathered, None)
                            }
                        };
                        let gone_on = go_on::<WIDE, N, true>(rows, next, last, step, &mut bounds, before, now);
                        if place.is_none() {
                            scatter(&gathered, frame, atoms);
                        }
                        gone_on
                    }
                };
                if let Err(Gone { atom, is_lost }) = gone_on {
                    let atom = PIECE * number + atom;
                    return Err(Stop { step: k, atom, is_lost });
                }
                while notes.steps.get(noted) == Some(&k) {
                    let begin = noted * n_atoms + PIECE * number;
                    note::<WIDE, N>(now, Some(step), &mut notes.images[begin..][..atoms.len()]);
                    noted += 1;
                }
                std::mem::swap(&mut before, &mut now);
                last = Some(step);
            }
            keep(steps.len(), before, now);
        }
        Ok(())
    }
}

/// Bring the last places back to where they are kept, after steps between that and another place.
#[inline(always)]
fn keep(n_steps: usize, last: &mut Places, other: &mut Places) {
    if !n_steps.is_multiple_of(2) {
        other.clone_from(last);
    }
}

/// The first atom of a piece of atoms that follow each other.
#[inline(always)]
fn place_of(atoms: &[usize]) -> Option<usize> {
    let piece: &[usize; PIECE] = atoms.try_into().ok()?;
    let (first, last) = (piece[0], piece[PIECE - 1]);
    (last - first + 1 == PIECE).then_some(first)
}

#[inline(always)]
fn gather(frame: &[[f32; 3]], atoms: &[usize], rows: &mut Rows) {
    for (row, &atom) in rows.iter_mut().zip(atoms) {
        *row = frame[atom];
    }
}

#[inline(always)]
fn scatter(rows: &Rows, frame: &mut [[f32; 3]], atoms: &[usize]) {
    for (row, &atom) in rows.iter().zip(atoms) {
        frame[atom] = *row;
    }
}

/// What atoms of a piece have at most, lane by lane, as bits of magnitudes: these are in the order of
/// the numbers, and those of what is not finite come last.
struct Most<const N: usize> {
    /// Coordinate, Å.
    coordinate: [u32; N],
    /// Move since the last frame, in units of the cell's vectors.
    by: [u32; N],
}

/// What a piece has at most if rounding decides nothing.
struct Bounds {
    /// As above.
    coordinate: u32,
    by: u32,
    /// The most that 1 Å is in units of the cell's vectors.
    per_length: f64,
    /// The farthest place in these units in all frames, in its image.
    farthest: f64,
}

impl Bounds {
    #[inline(always)]
    fn new(piece: &Places, per_length: f64, n_steps: usize) -> Self {
        let [largest, farthest] =
            [&piece.positions, &piece.followed].map(|of| largest_in(of.as_flattened()));
        let mut bounds = Bounds {
            coordinate: 0,
            by: 0,
            per_length,
            // Followed, an atom moves by half a cell in a step at most.
            farthest: f64::from(farthest) + 0.5 * n_steps as f64 + 1.0,
        };
        bounds.widen(largest);
        bounds
    }

    /// Allow coordinates up to some and a bit more, Å, and the moves that can be told then.
    #[inline(always)]
    fn widen(&mut self, coordinate: f32) {
        let coordinate = 1.25 * coordinate;
        let largest = self.per_length * f64::from(coordinate);
        (self.coordinate, self.by) = (0, 0);
        if largest <= FARTHEST && largest + self.farthest < f64::from(i16::MAX) {
            // Of the sums of magnitudes each operation and each number of the cell is off by half a
            // last digit at most: twelve for each of two frames, and one when they are subtracted.
            // Places in their images are rounded twice.
            let off = f64::from(f32::EPSILON) * (16.0 * largest + 2.0 * self.farthest);
            self.coordinate = coordinate.to_bits();
            self.by = ((0.5 - off) as f32).next_down().max(0.0).to_bits();
        }
    }

    #[inline(always)]
    fn allow<const N: usize>(&mut self, most: &Most<N>) -> bool {
        let are_within = |bounds: &Bounds| {
            let of_lanes = most.coordinate.iter().zip(&most.by);
            of_lanes.fold(true, |all, (&coordinate, &by)| {
                all & (coordinate <= bounds.coordinate) & (by <= bounds.by)
            })
        };
        are_within(self) || {
            self.widen(finite(most.coordinate.into_iter().fold(0, u32::max)));
            are_within(self)
        }
    }
}

/// An atom of a piece that is not followed.
struct Gone {
    atom: usize,
    is_lost: bool,
}

/// Find places of a piece from those in the last frame, if there is one, and move it there if that is
/// wanted. `next` are the rows that will be needed then.
#[inline(always)]
fn go_on<const WIDE: bool, const N: usize, const MOVE: bool>(
    rows: &mut Rows,
    next: Option<&Rows>,
    last: Option<&Step>,
    step: &Step,
    bounds: &mut Bounds,
    before: &Places,
    now: &mut Places,
) -> Result<(), Gone> {
    let most = match last {
        Some(_) => follow::<WIDE, N, MOVE>(rows, next, step, before, now),
        None => begin::<WIDE, N, MOVE>(rows, step, before, now),
    };
    if bounds.allow(&most) {
        return Ok(());
    }
    go_on_exactly(MOVE.then_some(rows), last, step, before, now)
}

/// Do the same in double precision, after all.
#[cold]
#[inline(never)]
fn go_on_exactly(
    mut rows: Option<&mut Rows>,
    last: Option<&Step>,
    step: &Step,
    before: &Places,
    now: &mut Places,
) -> Result<(), Gone> {
    if let Some(rows) = &mut rows {
        for (atom, row) in rows.iter_mut().enumerate() {
            *row = now.position(atom);
        }
        if is_lost(step, now) {
            let is_lost = true;
            return Err(Gone { atom: 0, is_lost });
        }
    }
    if let Some(last) = last {
        count_exactly(last, step, before, now)?;
    }
    if let Some(rows) = rows {
        shift_piece::<false, 8>(rows, &step.vectors, &images_of(now, step));
    }
    Ok(())
}

/// True if an atom is nowhere, or too far away.
fn is_lost(step: &Step, places: &Places) -> bool {
    let fractions = step.cell.fractions();
    (0..PIECE).any(|k| {
        let place = fractions(places.position(k).map(f64::from));
        // No number is not less, either.
        !place.iter().all(|x| x.abs() <= FARTHEST)
    })
}

/// Begin in the images that are given.
#[inline(always)]
fn begin<const WIDE: bool, const N: usize, const MOVE: bool>(
    rows: &mut Rows,
    step: &Step,
    given: &Places,
    now: &mut Places,
) -> Most<N> {
    let fractions = step.fractions.roughly::<false>();
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
        shift_piece::<WIDE, N>(rows, &step.vectors, &given.followed);
    }
    Most {
        coordinate: [largest_in(now.positions.as_flattened()).to_bits(); N],
        by: [0; N],
    }
}

/// Take the images nearest to where atoms were, and move them there if that is wanted.
#[inline(always)]
fn follow<const WIDE: bool, const N: usize, const MOVE: bool>(
    rows: &mut Rows,
    next: Option<&Rows>,
    step: &Step,
    before: &Places,
    now: &mut Places,
) -> Most<N> {
    let (fractions, moved) = (step.fractions.roughly::<WIDE>(), step.vectors.moved());
    let (mut coordinate, mut by) = ([0; N], [0; N]);
    for (group, rows) in rows.as_chunks_mut().0.iter_mut().enumerate() {
        if let Some(next) = next {
            prefetch(&next.as_chunks::<N>().0[group]);
        }
        let position = columns_of::<WIDE, N>(rows);
        let last = lanes::<N>(&before.followed, group);
        let [mut followed, mut there] = [[[0.0; N]; 3]; 2];
        for k in 0..N {
            let x = [position[0][k], position[1][k], position[2][k]];
            let of_atom = fractions(x);
            let mut image = [0.0; 3];
            for axis in 0..3 {
                let away = last[axis][k] - of_atom[axis];
                image[axis] = whole_of(away);
                by[k] = u32::max(by[k], (away - image[axis]).abs().to_bits());
                coordinate[k] = u32::max(coordinate[k], x[axis].abs().to_bits());
                followed[axis][k] = of_atom[axis] + image[axis];
            }
            let x = moved(x, image);
            for axis in 0..3 {
                there[axis][k] = x[axis];
            }
        }
        set_lanes(&mut now.positions, group, position);
        set_lanes(&mut now.followed, group, followed);
        if MOVE {
            rows_of::<WIDE, N>(&there, rows);
        }
    }
    Most { coordinate, by }
}

/// Take the images in double precision.
fn count_exactly(last: &Step, step: &Step, before: &Places, now: &mut Places) -> Result<(), Gone> {
    let (from, to) = (last.cell.fractions(), step.cell.fractions());
    let (images, nearly) = (images_of(before, last), step.fractions.roughly::<false>());
    for atom in 0..PIECE {
        let [from, to] = [
            from(before.position(atom).map(f64::from)),
            to(now.position(atom).map(f64::from)),
        ];
        let nearly = nearly(now.position(atom));
        for axis in 0..3 {
            let image = images[axis][atom] - whole(to[axis] - from[axis]) as f32;
            if !is_counted(image) {
                let is_lost = false;
                return Err(Gone { atom, is_lost });
            }
            now.followed[axis][atom] = image + nearly[axis];
        }
    }
    Ok(())
}

/// True for whole numbers that an image can be.
#[inline(always)]
fn is_counted(image: f32) -> bool {
    (f32::from(i16::MIN)..=f32::from(i16::MAX)).contains(&image)
}

by_widest! {
    /// Move atoms to given images.
    fn shift(atoms: &[usize], frame: &mut [[f32; 3]], vectors: &Vectors, images: &[Images]) {
        for (atoms, images) in atoms.chunks(PIECE).zip(images.chunks(PIECE)) {
            let images = piece_of(images);
            match place_of(atoms) {
                Some(first) => {
                    let rows = frame[first..].first_chunk_mut().expect("a piece");
                    shift_piece::<WIDE, N>(rows, vectors, &images);
                }
                None => {
                    let mut rows = [[0.0; 3]; PIECE];
                    gather(frame, atoms, &mut rows);
                    shift_piece::<WIDE, N>(&mut rows, vectors, &images);
                    scatter(&rows, frame, atoms);
                }
            }
        }
    }
}

#[inline(always)]
fn shift_piece<const WIDE: bool, const N: usize>(
    rows: &mut Rows,
    vectors: &Vectors,
    images: &Piece,
) {
    let moved = vectors.moved();
    for (group, rows) in rows.as_chunks_mut().0.iter_mut().enumerate() {
        let (mut there, image) = (columns_of::<WIDE, N>(rows), lanes::<N>(images, group));
        for k in 0..N {
            let [x, image] = [&there, &image].map(|of| [of[0][k], of[1][k], of[2][k]]);
            let x = moved(x, image);
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
    shift(atoms, frame, &Vectors::new(cell.vectors()), images);
}

by_widest! {
    /// The largest magnitude; no number where one is not finite.
    pub(super) fn largest_of(x: &[f32]) -> f32 {
        largest_in(x)
    }
}

#[inline(always)]
fn largest_in(x: &[f32]) -> f32 {
    // Magnitudes are in the order of their bits; those of what is not finite come last.
    finite(
        x.iter()
            .fold(0, |most, x| u32::max(most, x.abs().to_bits())),
    )
}

/// A number of these bits; no number if it is not finite.
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
            let found = Vectors::new(cell.vectors()).moved()(position, images);
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
        let moved = Vectors::new(cell.vectors()).moved();
        for x in [0.0, -0.0, 1e-30, 0.1, 29.99, -3e3, 4e5, f32::MIN_POSITIVE] {
            assert_eq!(moved([x; 3], [0.0; 3]), [x; 3]);
        }
    }
}
