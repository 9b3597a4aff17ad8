//! Following of atoms across the faces of the cell: from frame to frame each atom takes the image
//! that is nearest, vector by vector, to its last position (Kulke & Vermaas 2022, J. Chem. Theory
//! Comput. 18, 6161, equation B6).
//!
//! The images are counted in whole cells relative to the first frame of a trajectory. Counts add
//! exactly, so that parts of a trajectory may be counted by themselves.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub mod molecules;
mod places;
mod steps;

use super::cell::{Cell, NoCell};
use super::placement::Basis;
use super::transform::{Refused, Transform, each_row, position};
use super::{check_len, frame_len};
use paceline_base::error::{Error, Result};
use places::{PIECE, RoundedCell, largest_of, move_to_images};
use steps::{Followed, Frames, Notes, Step, Stop};

/// Number of cells along each vector.
pub type Images = [i16; 3];

/// Parts of the atoms, at most, and atoms of a part, at least: sixteen frames of these take as long as
/// to wake a thread.
const MOST_PARTS: usize = 16;
const LEAST_PART: usize = 2 * PIECE;
/// Maximum distance of an atom from the origin in cells: images can represent the distance to the
/// other side.
const FARTHEST: f64 = 16_383.0;

/// Atoms that are followed.
#[derive(Debug, Clone)]
pub struct NoJump {
    n_atoms: usize,
    atoms: Vec<usize>,
}

/// Images counted over consecutive frames, relative to the first of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Images in the last frame.
    pub moved: Vec<Images>,
    /// Images in the requested frames, one after another.
    pub noted: Vec<Images>,
}

/// Moves atoms to their images, block after block, from the first frame of a trajectory on.
///
/// The atoms are divided into several parts. Threads with adjacent blocks work at the same time:
/// the second thread moves the first part of the atoms as soon as the first thread has moved it in
/// the previous block.
#[derive(Debug)]
pub struct Follower {
    task: NoJump,
    skip_damaged: bool,
    parts: Vec<Part>,
}

/// Some of the atoms, whose blocks are moved in turn.
#[derive(Debug)]
struct Part {
    /// Among those that are followed.
    atoms: Range<usize>,
    turn: Mutex<Turn>,
    has_changed: Condvar,
}

#[derive(Debug)]
struct Turn {
    /// Number of the next block; none if there will be no other.
    block: Option<usize>,
    followed: Followed,
}

impl Follower {
    /// With `skip_damaged`, frames that cannot be followed are left out. Without, the first one ends the
    /// run, so that positions are looked at once.
    pub fn new(task: NoJump, skip_damaged: bool) -> Self {
        let n = task.n_followed();
        let len = n
            .div_ceil(MOST_PARTS)
            .next_multiple_of(PIECE)
            .max(LEAST_PART);
        let part = |begin: usize| {
            let atoms = begin..n.min(begin + len);
            let followed = Followed::new(&vec![[0; 3]; atoms.len()]);
            let block = Some(0);
            Part {
                atoms,
                turn: Mutex::new(Turn { block, followed }),
                has_changed: Condvar::new(),
            }
        };
        Follower {
            parts: (0..n).step_by(len).map(part).collect(),
            task,
            skip_damaged,
        }
    }

    /// Number of atoms of a frame.
    pub fn n_atoms(&self) -> usize {
        self.task.n_atoms
    }

    /// Move atoms in block `number` once those before it are moved, and note where it begins: images
    /// in the first frame of it that is not left out, or in the last one before. None after `close`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not hold the same number of whole frames, or an atom is
    /// too many cells away from where it was first.
    pub fn move_on(
        &self,
        number: usize,
        positions: &mut [f32],
        dimensions: &[f32],
        mut begin: Option<&mut [Images]>,
    ) -> Result<Option<Vec<Refused>>> {
        if let Some(begin) = &begin {
            check_len("images", begin.len(), self.task.n_followed())?;
        }
        let (steps, mut refused) = self.task.steps(positions, dimensions, self.skip_damaged)?;
        let (mut stopped, mut n_passed) = (None, 0);
        for part in &self.parts {
            let Some(mut turn) = part.wait_for(number) else {
                break;
            };
            if stopped.is_none() {
                let atoms = part.atoms.clone();
                let begin = begin.as_deref_mut().map(|begin| &mut begin[atoms.clone()]);
                let followed = &mut turn.followed;
                let moved = (self.task).move_through(atoms, followed, begin, positions, &steps);
                stopped = moved.err();
            }
            // Blocks before this one have passed on; those that follow do not come so far.
            turn.block = stopped.is_none().then_some(number + 1);
            n_passed += 1;
            part.has_changed.notify_all();
        }
        match stopped {
            None if n_passed < self.parts.len() => return Ok(None),
            None => (),
            Some(stop) if stop.is_lost => {
                refused.push(self.task.first_lost(&stop, positions, &steps));
            }
            Some(stop) => return Err(refusal(&self.task.too_far(stop.atom))),
        }
        Ok(Some(refused))
    }

    /// Release the waiting threads: no other block is moved.
    pub fn close(&self) {
        for part in &self.parts {
            part.lock().block = None;
            part.has_changed.notify_all();
        }
    }
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for the turn of a block; none if it never comes.
    fn wait_for(&self, number: usize) -> Option<MutexGuard<'_, Turn>> {
        let mut turn = self.lock();
        while turn.block? < number {
            turn = (self.has_changed.wait(turn)).unwrap_or_else(PoisonError::into_inner);
        }
        (turn.block == Some(number)).then_some(turn)
    }
}

impl NoJump {
    /// Follow some atoms of frames of `n_atoms`, in increasing order.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is out of range or of order.
    pub fn new(n_atoms: usize, atoms: &[usize]) -> Result<Self> {
        if !atoms.is_sorted_by(|one, next| one < next) {
            return Err(Error::Argument("atoms do not increase".to_string()));
        }
        if let Some(atom) = atoms.iter().find(|&&atom| atom >= n_atoms) {
            return Err(Error::Argument(format!(
                "atom {atom} is out of range for a block of {n_atoms} atoms"
            )));
        }
        Ok(NoJump {
            n_atoms,
            atoms: atoms.to_vec(),
        })
    }

    /// Number of atoms that are followed.
    pub fn n_followed(&self) -> usize {
        self.atoms.len()
    }

    /// Count images over frames that [`Transform::apply`] did not refuse; note them in some rows,
    /// which do not decrease: of frames that were left out, the row of the next one is given.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not hold the same number of whole frames, there is
    /// none, a frame has no cell, or an atom moves by more cells than an image can count.
    pub fn scan(&self, positions: &[f32], dimensions: &[f32], rows: &[usize]) -> Result<Scan> {
        let frame_len = frame_len(positions.len(), self.n_atoms)?;
        let n_frames = positions.len() / frame_len;
        check_len("lengths and angles", dimensions.len(), n_frames * 6)?;
        let (cells, _) = dimensions.as_chunks();
        let step = |(row, &cell): (usize, &[f32; 6])| match Cell::new(cell) {
            Ok(cell) => Ok(Step::new(self.place_of(row), cell)),
            Err(no_cell) => Err(refusal(&without_cell(no_cell))),
        };
        let steps: Vec<_> = cells.iter().enumerate().map(step).collect::<Result<_>>()?;
        if steps.is_empty() {
            return Err(refusal("there are no frames"));
        }
        let mut followed = Followed::new(&vec![[0; 3]; self.atoms.len()]);
        let mut noted = vec![[0; 3]; rows.len() * self.atoms.len()];
        let notes = Notes {
            steps: rows,
            images: &mut noted,
        };
        let frames = Frames::Read(positions);
        let gone_on = followed.go_on(&self.atoms, frames, &steps, notes);
        gone_on.map_err(|stop| refusal(&self.too_far(stop.atom)))?;
        Ok(Scan {
            moved: followed.images(self.atoms.len()),
            noted,
        })
    }

    /// Move atoms to their images. `images` are those of every frame, or of the first one that was
    /// not left out before, from which the others are counted.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not hold the same number of whole frames.
    pub fn move_to(
        &self,
        images: &[Images],
        positions: &mut [f32],
        dimensions: &[f32],
    ) -> Result<Vec<Refused>> {
        let n_frames = positions.len() / frame_len(positions.len(), self.n_atoms)?;
        let n_followed = self.atoms.len();
        if images.len() != n_frames * n_followed || n_frames == 1 {
            check_len("images", images.len(), n_followed)?;
            let mut followed = Followed::new(images);
            let (steps, refused) = self.steps(positions, dimensions, true)?;
            let moved = self.move_through(0..n_followed, &mut followed, None, positions, &steps);
            moved.map_err(|stop| refusal(&self.too_far(stop.atom)))?;
            return Ok(refused);
        }
        each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let cell = self.check(frame, cell)?;
            let images = &images[row * n_followed..][..n_followed];
            move_to_images(&self.atoms, frame, &cell, images);
            Ok(())
        })
    }

    /// The frames in which atoms can be followed, and those in which they cannot; positions are looked
    /// at if `check` is true.
    fn steps(
        &self,
        positions: &mut [f32],
        dimensions: &[f32],
        check: bool,
    ) -> Result<(Vec<Step>, Vec<Refused>)> {
        let mut steps = Vec::new();
        let refused = each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let cell = match check {
                true => self.check(frame, cell)?,
                false => cell.map_err(without_cell)?,
            };
            steps.push(Step::new(self.place_of(row), cell));
            Ok(())
        })?;
        Ok((steps, refused))
    }

    /// Move some of the atoms on from the last frame, if there is one; note images in the first frame
    /// of these, or where they are if there is none.
    fn move_through(
        &self,
        atoms: Range<usize>,
        followed: &mut Followed,
        begin: Option<&mut [Images]>,
        positions: &mut [f32],
        steps: &[Step],
    ) -> std::result::Result<(), Stop> {
        let mut notes = Notes::none();
        if let Some(images) = begin {
            match steps {
                [] => images.copy_from_slice(&followed.images(atoms.len())),
                _ => {
                    notes = Notes {
                        steps: &[0],
                        images,
                    }
                }
            }
        }
        let (of, frames) = (&self.atoms[atoms.clone()], Frames::Moved(positions));
        followed
            .go_on(of, frames, steps, notes)
            .map_err(|stop| Stop {
                atom: atoms.start + stop.atom,
                ..stop
            })
    }

    /// The first frame in which an atom is lost, given one in which an atom was found to be: others may
    /// be lost in an earlier frame.
    fn first_lost(&self, stop: &Stop, positions: &[f32], steps: &[Step]) -> Refused {
        let lost = |(number, step): (usize, &Step)| {
            // What was moved before was where it can be followed.
            let first = stop.atom + if number < stop.step { PIECE } else { 0 };
            let atoms = self.atoms.get(first..).unwrap_or_default();
            let reason = lost_among(atoms, &positions[step.frame.clone()], &step.cell)?;
            Some((step.frame.start / (3 * self.n_atoms), reason))
        };
        let mut steps = steps[..=stop.step].iter().enumerate();
        steps.find_map(lost).expect("the atom that was lost")
    }

    /// Place of a frame among positions.
    fn place_of(&self, row: usize) -> Range<usize> {
        let frame_len = 3 * self.n_atoms;
        row * frame_len..(row + 1) * frame_len
    }

    fn too_far(&self, atom: usize) -> String {
        let atom = self.atoms[atom];
        format!("atom {atom} moves by more cells than can be counted, 32,767")
    }

    /// Require a cell, and positions that are finite and not too far away.
    fn check(
        &self,
        frame: &[f32],
        cell: std::result::Result<Cell, NoCell>,
    ) -> std::result::Result<Cell, String> {
        let cell = cell.map_err(without_cell)?;
        if RoundedCell::new(&cell).largest(largest_of(frame)) <= FARTHEST {
            return Ok(cell);
        }
        lost_among(&self.atoms, frame, &cell).map_or(Ok(cell), Err)
    }
}

/// Why the first of some atoms is lost that is: it is nowhere, or too far away.
fn lost_among(atoms: &[usize], frame: &[f32], cell: &Cell) -> Option<String> {
    let mut atoms = atoms.iter();
    let atom = atoms.find(|&&atom| is_lost(position(frame, atom), cell))?;
    let [x, y, z] = position(frame, *atom);
    let reason = if [x, y, z].iter().all(|x| x.is_finite()) {
        format!("nojump follows atoms up to {FARTHEST} cells away")
    } else {
        "nojump needs to know where it is".to_string()
    };
    Some(format!(
        "atom {atom} of those that are read is at ({x}, {y}, {z}), and {reason}"
    ))
}

/// True if an atom is nowhere, or too far away.
fn is_lost(position: [f32; 3], cell: &Cell) -> bool {
    let place = cell.fractions()(position.map(f64::from));
    // No number is not less, either.
    !place.iter().all(|x| x.abs() <= FARTHEST)
}

fn without_cell(no_cell: NoCell) -> String {
    no_cell.reason("nojump")
}

fn refusal(reason: &str) -> Error {
    Error::Argument(reason.to_string())
}

impl Transform for NoJump {
    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn basis(&self) -> Option<Basis> {
        Some(Basis::Own)
    }

    /// Refuse frames without a cell, or with positions that are not finite; no atom moves.
    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        each_row(positions, self.n_atoms, dimensions, |_, frame, cell| {
            self.check(frame, cell).map(|_| ())
        })
    }
}

#[cfg(test)]
mod tests;
