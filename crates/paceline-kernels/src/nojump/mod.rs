//! Unwrapping of atoms across cell faces. From frame to frame, each atom moves to the image nearest
//! to its last position. This image is found vector by vector (Kulke & Vermaas 2022, J. Chem.
//! Theory Comput. 18, 6161, equation B6).
//!
//! Images are counted in whole cells relative to the first frame of a trajectory. Integer counts
//! add exactly, so that parts of a trajectory can be counted separately.
//!
//! Molecules are unwrapped by the shortest displacements of their centres (von Bülow, Bullerjahn &
//! Hummer 2020, J. Chem. Phys. 153, 021101). A displacement is made shortest by adding whole cell
//! vectors. The sums of these vectors are stored as integer multiples of 2⁻²⁴ Å.

mod single_precision;
mod steps;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::cell::{Cell, NoCell};
use super::cells_in_standard_form::{Basis, Placement};
use super::superposition::Matrix3;
use super::transform_common::{Refused, Transform, each_row, position};
use super::{check_len, frame_len};
use paceline_base::error::{Error, Result};
use paceline_base::{CellRow, UnitCell};
use single_precision::{PIECE, RoundedCell, largest_of, move_to_images};
use steps::{Followed, Frames, Notes, Step, Stop};

/// Image of an atom: number of cells along each vector.
pub type Images = [i16; 3];

/// Maximum number of parts into which atoms are divided, and minimum number of atoms in a part.
/// Unwrapping sixteen frames of this minimum takes as long as waking a thread.
const MOST_PARTS: usize = 16;
const LEAST_PART: usize = 2 * PIECE;
/// Maximum distance of an atom from the origin, in cells. An image can still represent a move from
/// this distance to the opposite side.
const FARTHEST: f64 = 16_383.0;

/// Atoms that are unwrapped.
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

/// Moves atoms to their images, block by block, starting from the first frame of a trajectory.
///
/// The atoms are divided into parts, so that threads with adjacent blocks can work at the same
/// time. The thread of the second block moves a part as soon as the thread of the first block has
/// finished this part.
#[derive(Debug)]
pub struct Follower {
    task: NoJump,
    skip_damaged: bool,
    parts: Vec<Part>,
}

/// Part of the atoms. A thread locks the part while it moves the part in its block.
#[derive(Debug)]
struct Part {
    /// Range among the unwrapped atoms.
    atoms: Range<usize>,
    turn: Mutex<Turn>,
    has_changed: Condvar,
}

#[derive(Debug)]
struct Turn {
    /// Number of the next block; `None` after the last block.
    block: Option<usize>,
    followed: Followed,
}

impl Follower {
    /// Create a follower. With `skip_damaged`, positions are checked first, and frames that cannot
    /// be unwrapped are skipped. Otherwise positions are checked during unwrapping, and the first
    /// such frame ends the run.
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

    /// Wait until the earlier blocks are moved, and then move the atoms of block `number`. Write
    /// the images at the beginning of the block to `begin`: the images in its first valid frame,
    /// or, if it has none, in the last valid frame before the block. Return the refused frames, or
    /// `None` after `close`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain the same number of whole frames, or an atom
    /// is too many cells away from its first position.
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
            // After an error, threads of earlier blocks already passed this part, and later blocks
            // do not reach it.
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

    /// Release the waiting threads. No further block is moved.
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

    /// Wait for the turn of a block; return `None` if the turn never comes.
    fn wait_for(&self, number: usize) -> Option<MutexGuard<'_, Turn>> {
        let mut turn = self.lock();
        while turn.block? < number {
            turn = (self.has_changed.wait(turn)).unwrap_or_else(PoisonError::into_inner);
        }
        (turn.block == Some(number)).then_some(turn)
    }
}

impl NoJump {
    /// Create a kernel for some atoms, in increasing order, of frames with `n_atoms` atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is out of range, or atoms are not in increasing order.
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

    /// Return the number of unwrapped atoms.
    pub fn n_followed(&self) -> usize {
        self.atoms.len()
    }

    /// Count images over the frames that [`Transform::apply`] did not refuse. Record the images in
    /// the frames with the row numbers `rows`, which must be sorted. For a refused frame, pass the
    /// row of the next valid frame.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain the same number of whole frames, there is
    /// no valid frame, a frame has no cell, or an atom moves by more cells than an image can
    /// represent.
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
        let gone_on = followed.advance(&self.atoms, frames, &steps, notes);
        gone_on.map_err(|stop| refusal(&self.too_far(stop.atom)))?;
        Ok(Scan {
            moved: followed.images(self.atoms.len()),
            noted,
        })
    }

    /// Move atoms to their images. `images` contains the images in every frame, or only in the
    /// first valid frame; the images in later frames are then counted.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain the same number of whole frames.
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

    /// Return the valid frames, and the frames in which atoms cannot be unwrapped. Positions are
    /// checked only if `check` is true.
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

    /// Unwrap part of the atoms, starting from the last frame before the block, if there is one.
    /// Write the images in the first valid frame to `begin`, or the current images if there is no
    /// valid frame.
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
            .advance(of, frames, steps, notes)
            .map_err(|stop| Stop {
                atom: atoms.start + stop.atom,
                ..stop
            })
    }

    /// Return the first frame with a lost atom, given a frame in which a lost atom was found.
    /// Another atom may be lost in an earlier frame.
    fn first_lost(&self, stop: &Stop, positions: &[f32], steps: &[Step]) -> Refused {
        let lost = |(number, step): (usize, &Step)| {
            // Earlier pieces have no lost atom up to this frame. In earlier frames, this piece has
            // none, either.
            let first = stop.atom + if number < stop.step { PIECE } else { 0 };
            let atoms = self.atoms.get(first..).unwrap_or_default();
            let reason = lost_atom_reason(atoms, &positions[step.frame.clone()], &step.cell)?;
            Some((step.frame.start / (3 * self.n_atoms), reason))
        };
        let mut steps = steps[..=stop.step].iter().enumerate();
        steps.find_map(lost).expect("the atom that was lost")
    }

    /// Return the range of a frame in the positions.
    fn place_of(&self, row: usize) -> Range<usize> {
        let frame_len = 3 * self.n_atoms;
        row * frame_len..(row + 1) * frame_len
    }

    fn too_far(&self, atom: usize) -> String {
        let atom = self.atoms[atom];
        format!("atom {atom} moves by more than 32,767 cells, the maximum")
    }

    /// Check that a frame has a cell, and that positions are finite and not too far away.
    fn check(
        &self,
        frame: &[f32],
        cell: std::result::Result<Cell, NoCell>,
    ) -> std::result::Result<Cell, String> {
        let cell = cell.map_err(without_cell)?;
        if RoundedCell::new(&cell).largest(largest_of(frame)) <= FARTHEST {
            return Ok(cell);
        }
        lost_atom_reason(&self.atoms, frame, &cell).map_or(Ok(cell), Err)
    }
}

/// Return the reason why the first lost atom is lost: its position is not finite, or too far away.
/// `None` if no atom is lost.
fn lost_atom_reason(atoms: &[usize], frame: &[f32], cell: &Cell) -> Option<String> {
    let mut atoms = atoms.iter();
    let atom = atoms.find(|&&atom| is_lost(position(frame, atom), cell))?;
    let [x, y, z] = position(frame, *atom);
    let reason = if [x, y, z].iter().all(|x| x.is_finite()) {
        format!("nojump unwraps atoms up to {FARTHEST} cells away")
    } else {
        "nojump needs finite positions".to_string()
    };
    Some(format!(
        "atom {atom} of those that are read is at ({x}, {y}, {z}), and {reason}"
    ))
}

/// Return true if a position is not finite, or too far away.
fn is_lost(position: [f32; 3], cell: &Cell) -> bool {
    let place = cell.fractions()(position.map(f64::from));
    // The comparison is negated so that NaN counts as lost.
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

    /// Refuse frames without a cell, or with positions that are not finite or too far away. No atom
    /// moves.
    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        each_row(positions, self.n_atoms, dimensions, |_, frame, cell| {
            self.check(frame, cell).map(|_| ())
        })
    }
}

// Unwrapping of molecules.

/// Unit of the integer sums, Å.
const STEP: f64 = 1.0 / (1 << 24) as f64;
/// Maximum magnitude of a number that is added to a sum: 7·10¹⁰ Å.
const MOST: u64 = 1 << 60;

/// Compute, for each frame, the sum of cell vectors that unwraps each centre (Å) since the first
/// frame, as multiples of 2⁻²⁴ Å. `cells` contains the cells of all frames. A sum that is too
/// large becomes `i64::MAX`.
///
/// # Errors
/// [`Error::Argument`] if the number of cells differs from the number of frames.
pub fn molecule_steps(centres: &[[f64; 3]], cells: &[CellRow]) -> Result<Vec<[i64; 3]>> {
    let n = centres.len() / cells.len().max(1);
    check_len("centres", centres.len(), cells.len() * n)?;
    let mut steps = vec![[0_i64; 3]; centres.len().min(n)];
    for (frame, cell) in cells.iter().enumerate().skip(1) {
        let lattice = Lattice::new(
            &UnitCell::of_row(cell),
            &centres[(frame - 1) * n..][..2 * n],
        );
        let vectors = lattice.vectors;
        let vectors = vectors.map(|vector| vector.map(|x| (x / STEP).round_ties_even() as i64));
        for molecule in (frame - 1) * n..frame * n {
            let (from, to) = (centres[molecule], centres[molecule + n]);
            let by = [0, 1, 2].map(|axis: usize| to[axis] - from[axis]);
            let mut sum: [i64; 3] = steps[molecule];
            // Only displacements longer than half the minimum height of the cell need an addition,
            // and these are few.
            if let Some(images) = lattice.images(by) {
                for (number, vector) in images.into_iter().zip(&vectors) {
                    for (sum, x) in sum.iter_mut().zip(vector) {
                        let added = (number as i64).saturating_mul(*x);
                        // A sum that overflowed stays at `i64::MAX`.
                        let is_far = added.unsigned_abs() > MOST || *sum == i64::MAX;
                        *sum = if is_far {
                            i64::MAX
                        } else {
                            sum.saturating_add(added)
                        };
                    }
                }
            }
            steps.push(sum);
        }
    }
    Ok(steps)
}

/// Lattice of periodic images in a frame.
struct Lattice {
    /// Cell; `None` if no vector is periodic.
    cell: Option<Cell>,
    placement: Option<Placement>,
    /// Cell vectors in the orientation of the file, Å.
    vectors: Matrix3,
}

impl Lattice {
    fn new(of: &UnitCell, centres: &[[f64; 3]]) -> Self {
        let frame: Vec<f32> = centres.iter().flatten().map(|&x| x as f32).collect();
        match Placement::of(of, Basis::Compact, &frame) {
            None => {
                let cell = Cell::of_vectors(of.vectors).reduced();
                Lattice {
                    vectors: *cell.vectors(),
                    cell: Some(cell),
                    placement: None,
                }
            }
            Some(placement) => Lattice {
                cell: Cell::new(placement.dimensions).ok(),
                vectors: placement.basis,
                placement: Some(placement),
            },
        }
    }

    /// Return how many vectors a, b and c must be added to a displacement to make it shortest;
    /// `None` for a displacement that is already short.
    fn images(&self, by: [f64; 3]) -> Option<[f64; 3]> {
        let by = match &self.placement {
            Some(placement) => placement.turned(by),
            None => by,
        };
        let cell = self.cell.as_ref()?;
        (!cell.is_near(by)).then(|| cell.nearest_images(by))
    }
}

/// Translate molecules in some rows of a block by the sums of cell vectors that [`molecule_steps`]
/// returned. `atoms` is sorted by molecule, with `sizes` atoms in each molecule.
///
/// # Errors
/// [`Error::Argument`] if the sizes do not match, or an atom or a row is out of range.
pub fn move_molecules(
    steps: &[[i64; 3]],
    rows: &[usize],
    positions: &mut [f32],
    n_atoms: usize,
    (atoms, sizes): (&[usize], &[usize]),
) -> Result<()> {
    let frame_len = frame_len(positions.len(), n_atoms)?;
    check_len("atoms", atoms.len(), sizes.iter().sum())?;
    check_len("steps", steps.len(), rows.len() * sizes.len())?;
    let n_rows = positions.len() / frame_len;
    if atoms.iter().any(|&atom| atom >= n_atoms) || rows.iter().any(|&row| row >= n_rows) {
        let reason = "an atom or a row is out of range";
        return Err(Error::Argument(reason.to_string()));
    }
    for (number, row) in rows.iter().enumerate() {
        let (frame, _) = positions[row * frame_len..][..frame_len].as_chunks_mut();
        let mut rest = atoms;
        for (size, step) in sizes.iter().zip(&steps[number * sizes.len()..]) {
            let by = step.map(|x| x as f64 * STEP);
            let (molecule, others) = rest.split_at(*size);
            for &atom in molecule {
                let x: [f32; 3] = frame[atom];
                frame[atom] = [0, 1, 2].map(|axis| (f64::from(x[axis]) + by[axis]) as f32);
            }
            rest = others;
        }
    }
    Ok(())
}
