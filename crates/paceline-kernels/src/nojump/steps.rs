//! Steps from frame to frame: images of atoms, and their positions.
//!
//! Images are counted in single precision. They are counted again in double precision if an atom
//! moves by almost half a cell, where rounding could change the result.

use std::ops::Range;

use super::single_precision::{
    Maxima, PIECE, PiecePositions, RoundedCell, Rows, TO_WHOLE, begin, follow, gather, images_in,
    images_of, largest_in, piece_of, place_of, scatter, shift_piece,
};
use super::{FARTHEST, Images, is_lost};
use crate::cell::{Cell, whole};
use crate::instructions::{by_widest, rows_of};

/// Valid frame, in which atoms can be unwrapped.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Range of the frame in the positions.
    pub(super) frame: Range<usize>,
    pub(super) cell: Cell,
    rounded: RoundedCell,
}

/// Positions in the last frame, if there is one, and images of the atoms.
#[derive(Debug)]
pub(super) struct Followed {
    last: Option<Step>,
    pieces: Vec<PiecePositions>,
}

/// Images to record: the steps after which images are recorded, and the output, step by step.
pub(super) struct Notes<'a> {
    pub(super) steps: &'a [usize],
    pub(super) images: &'a mut [Images],
}

/// Positions of the frames, either only to read or to be moved.
pub(super) enum Frames<'a> {
    Read(&'a [f32]),
    Moved(&'a mut [f32]),
}

/// Reason why unwrapping of the atoms stopped.
#[derive(Debug)]
pub(super) struct Stop {
    /// Index among the steps.
    pub(super) step: usize,
    /// Index among the atoms. It is the atom that moves by more cells than an image can represent,
    /// or the first atom of a piece that contains a lost atom.
    pub(super) atom: usize,
    /// True if an atom of the piece is lost: its position is not finite, or too far away. The piece
    /// is then not moved.
    pub(super) is_lost: bool,
}

impl Step {
    pub(super) fn new(frame: Range<usize>, cell: Cell) -> Self {
        let rounded = RoundedCell::new(&cell);
        Step {
            frame,
            cell,
            rounded,
        }
    }
}

impl Followed {
    pub(super) fn new(images: &[Images]) -> Self {
        let pieces = images.chunks(PIECE).map(|images| PiecePositions {
            followed: piece_of(images),
            ..PiecePositions::ZEROS
        });
        Followed {
            last: None,
            pieces: pieces.collect(),
        }
    }

    /// Return the images of the first `n` atoms.
    pub(super) fn images(&self, n: usize) -> Vec<Images> {
        let mut images = vec![[0; 3]; n];
        for (piece, images) in self.pieces.iter().zip(images.chunks_mut(PIECE)) {
            note::<false, 8>(piece, self.last.as_ref(), images);
        }
        images
    }

    /// Unwrap atoms through the frames of `steps`, and record the images that `notes` requests.
    pub(super) fn advance(
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

impl Notes<'_> {
    pub(super) fn none() -> Self {
        Notes {
            steps: &[],
            images: &mut [],
        }
    }
}

/// Record the images of a piece in a frame.
#[inline(always)]
fn note<const WIDE: bool, const N: usize>(
    places: &PiecePositions,
    frame: Option<&Step>,
    to: &mut [Images],
) {
    for (group, to) in to.chunks_mut(N).enumerate() {
        let mut rows = [[0.0; 3]; N];
        rows_of::<WIDE, N>(
            &images_in(places, frame.map(|frame| &frame.rounded), group),
            &mut rows,
        );
        let mut numbers = [[0; 3]; N];
        for (x, number) in rows.as_flattened().iter().zip(numbers.as_flattened_mut()) {
            // The low bits of the sum contain the integer. Reading them is three times as fast as
            // converting each number.
            *number = (x + TO_WHOLE).to_bits() as i16;
        }
        match to.first_chunk_mut() {
            Some(all) => *all = numbers,
            None => to.copy_from_slice(&numbers[..to.len()]),
        }
    }
}

by_widest! {
    16 lanes:
    /// Count images over frames, and move the atoms if requested.
    fn count(
        atoms: &[usize],
        frames: Frames<'_>,
        last: Option<&Step>,
        steps: &[Step],
        pieces: &mut [PiecePositions],
        notes: Notes<'_>,
    ) -> Result<(), Stop> {
        let (mut frames, n_atoms) = (frames, atoms.len());
        let all = steps.iter().chain(last);
        let per_length = all.fold(0.0, |most, step| f64::max(most, step.rounded.per_length));
        let (mut spare, mut gathered) = (PiecePositions::ZEROS, [[0.0; 3]; PIECE]);
        for (number, (atoms, piece)) in atoms.chunks(PIECE).zip(pieces).enumerate() {
            let mut bounds = Bounds::new(piece, per_length, steps.len());
            let (place, mut last, mut noted) = (place_of(atoms), last, 0);
            if atoms.len() < PIECE {
                gathered = [[0.0; 3]; PIECE];
            }
            let (mut before, mut now): (&mut PiecePositions, &mut PiecePositions) = (piece, &mut spare);
            for (k, step) in steps.iter().enumerate() {
                let gone_on = match &mut frames {
                    Frames::Read(positions) => {
                        let (frame, _) = positions[step.frame.clone()].as_chunks();
                        match place {
                            Some(first) => gathered = *frame[first..].first_chunk().expect("a piece"),
                            None => gather(frame, atoms, &mut gathered),
                        }
                        advance::<WIDE, N, false>(&mut gathered, None, last, step, &mut bounds, before, now)
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
                        let gone_on = advance::<WIDE, N, true>(rows, next, last, step, &mut bounds, before, now);
                        if place.is_none() {
                            scatter(&gathered, frame, atoms);
                        }
                        gone_on
                    }
                };
                if let Err(LostAtom { atom, is_lost }) = gone_on {
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
            copy_last(steps.len(), before, now);
        }
        Ok(())
    }
}

/// Steps alternate between two buffers. If their number is odd, copy the positions in the last
/// frame from `last` to `other`, which is then the buffer of the caller.
#[inline(always)]
fn copy_last(n_steps: usize, last: &mut PiecePositions, other: &mut PiecePositions) {
    if !n_steps.is_multiple_of(2) {
        other.clone_from(last);
    }
}

/// Bounds on a piece within which rounding cannot change an image.
struct Bounds {
    /// Bits of a squared distance, as in [`Maxima`].
    square: u32,
    by: f32,
    /// Maximum fractional coordinate of a position whose x, y and z are at most 1 Å.
    per_length: f64,
    /// Maximum unwrapped fractional coordinate over all frames.
    farthest: f64,
}

impl Bounds {
    #[inline(always)]
    fn new(piece: &PiecePositions, per_length: f64, n_steps: usize) -> Self {
        let farthest = f64::from(largest_in(piece.followed.as_flattened()));
        let mut bounds = Bounds {
            square: 0,
            by: 0.0,
            per_length,
            // An unwrapped atom moves by at most half a cell per step.
            farthest: farthest + 0.5 * n_steps as f64 + 1.0,
        };
        bounds.widen(piece.square());
        bounds
    }

    /// Raise the allowed distance from the origin, with a margin. Reduce the displacement that
    /// single precision can decide accordingly.
    #[inline(always)]
    fn widen(&mut self, square: u32) {
        let coordinate = 1.25 * f32::from_bits(square).sqrt();
        let largest = self.per_length * f64::from(coordinate);
        (self.square, self.by) = (0, 0.0);
        // If unwrapping starts from given images, `farthest` does not yet contain the distance of a
        // position in the file from the origin.
        if largest <= FARTHEST && 2.0 * largest + self.farthest < f64::from(i16::MAX) {
            // Error bound: each operation and each number of the cell contributes half a unit in
            // the last place of the sum of magnitudes. Each of two frames has twelve contributions,
            // and the subtraction has one. Positions in their images are rounded twice.
            let off = f64::from(f32::EPSILON) * (16.0 * largest + 2.0 * self.farthest);
            self.square = (coordinate * coordinate).to_bits();
            self.by = ((0.5 - off) as f32).next_down().max(0.0);
        }
    }

    #[inline(always)]
    fn allow<const N: usize>(&mut self, most: &Maxima<N>) -> bool {
        let are_within = |bounds: &Bounds| {
            let of_lanes = most.square.iter().zip(&most.by);
            of_lanes.fold(true, |all, (&square, &by)| {
                all & (square <= bounds.square) & (by <= bounds.by)
            })
        };
        are_within(self) || {
            self.widen(most.square.into_iter().fold(0, u32::max));
            are_within(self)
        }
    }
}

/// Atom of a piece at which unwrapping stopped, as in [`Stop`].
struct LostAtom {
    atom: usize,
    is_lost: bool,
}

/// Compute the unwrapped positions of a piece from those in the last frame, if there is one, and
/// move the piece if `MOVE` is true. `next` contains the rows that are needed next, for
/// prefetching.
#[inline(always)]
fn advance<const WIDE: bool, const N: usize, const MOVE: bool>(
    rows: &mut Rows,
    next: Option<&Rows>,
    last: Option<&Step>,
    step: &Step,
    bounds: &mut Bounds,
    before: &PiecePositions,
    now: &mut PiecePositions,
) -> Result<(), LostAtom> {
    let most = match last {
        Some(_) => follow::<WIDE, N, MOVE>(rows, next, &step.rounded, before, now),
        None => begin::<WIDE, N, MOVE>(rows, &step.rounded, before, now),
    };
    if bounds.allow(&most) {
        return Ok(());
    }
    advance_exactly(MOVE.then_some(rows), last, step, before, now)
}

/// Repeat a step of a piece of atoms in double precision.
#[cold]
#[inline(never)]
fn advance_exactly(
    mut rows: Option<&mut Rows>,
    last: Option<&Step>,
    step: &Step,
    before: &PiecePositions,
    now: &mut PiecePositions,
) -> Result<(), LostAtom> {
    if let Some(rows) = &mut rows {
        for (atom, row) in rows.iter_mut().enumerate() {
            *row = now.position(atom);
        }
        if (0..PIECE).any(|atom| is_lost(now.position(atom), &step.cell)) {
            let is_lost = true;
            return Err(LostAtom { atom: 0, is_lost });
        }
    }
    if let Some(last) = last {
        count_exactly(last, step, before, now)?;
    }
    if let Some(rows) = rows {
        shift_piece::<false, 8>(rows, &step.rounded, &images_of(now, &step.rounded));
    }
    Ok(())
}

/// Count the images of a piece of atoms in double precision.
fn count_exactly(
    last: &Step,
    step: &Step,
    before: &PiecePositions,
    now: &mut PiecePositions,
) -> Result<(), LostAtom> {
    let (from, to) = (last.cell.fractions(), step.cell.fractions());
    let (images, nearly) = (
        images_of(before, &last.rounded),
        step.rounded.fractions::<false>(),
    );
    for atom in 0..PIECE {
        let position = now.position(atom);
        let at = [before.position(atom), position].map(|x| x.map(f64::from));
        let (from, to, nearly) = (from(at[0]), to(at[1]), nearly(position));
        for (axis, followed) in now.followed.iter_mut().enumerate() {
            let image = images[axis][atom] - whole(to[axis] - from[axis]) as f32;
            if !is_counted(image) {
                let is_lost = false;
                return Err(LostAtom { atom, is_lost });
            }
            followed[atom] = image + nearly[axis];
        }
    }
    Ok(())
}

/// True for whole numbers that an image can represent.
#[inline(always)]
fn is_counted(image: f32) -> bool {
    (f32::from(i16::MIN)..=f32::from(i16::MAX)).contains(&image)
}
