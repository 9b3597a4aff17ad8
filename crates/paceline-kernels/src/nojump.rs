//! Atoms followed across the faces of the cell: from frame to frame each takes the image that lies
//! nearest, vector by vector, to where it was (Kulke & Vermaas 2022, J. Chem. Theory Comput. 18,
//! 6161, equation B6).
//!
//! The images are counted in whole cells relative to the first frame of a trajectory. Counts add
//! exactly, so that parts of a trajectory may be counted by themselves.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::cell::{Cell, whole};
use super::instructions::by_widest;
use super::transform::{Refused, Transform, each_row, position};
use super::{check_len, frame_len};
use paceline_formats::error::{Error, Result};

/// Number of cells along each vector.
pub type Images = [i16; 3];

/// Atoms whose numbers lie side by side: so many that none is read while it is being written.
const PIECE: usize = 64;
/// Atoms that are followed together.
const LANES: usize = 8;
/// Parts of the atoms, at most, and atoms of a part, at least: sixteen frames of these take as long as
/// to wake a thread.
const MOST_PARTS: usize = 16;
const LEAST_PART: usize = 2 * PIECE;
/// Cells that an atom may be away from the origin: from there to the other side, an image can count.
const FARTHEST: f64 = 16_383.0;

/// Three numbers of each of some atoms.
type Piece = [[f32; PIECE]; 3];
const ZEROS: Piece = [[0.0; PIECE]; 3];

/// The atoms that are followed.
#[derive(Debug, Clone)]
pub struct NoJump {
    n_atoms: usize,
    atoms: Vec<usize>,
}

/// Images counted over neighbouring frames, relative to the first of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Positions in the first and in the last frame, in units of the cell's vectors.
    pub first: Vec<[f64; 3]>,
    pub last: Vec<[f64; 3]>,
    /// Images in the last frame.
    pub moved: Vec<Images>,
    /// Images in the frames that were asked for, one after another.
    pub noted: Vec<Images>,
}

/// Some atoms in a frame.
#[derive(Debug, Clone)]
struct Places {
    /// Å; zeros beyond the last atom.
    positions: Piece,
    /// In units of the cell's vectors, nearly.
    rough: Piece,
    /// Whole numbers.
    images: Piece,
}

/// A frame in which atoms can be followed.
#[derive(Debug, Clone)]
struct Step {
    row: usize,
    cell: Cell,
    fractions: Fractions,
    /// Largest magnitude of a place in units of the cell's vectors.
    largest: f64,
}

/// Where the atoms were in the last frame, if there is one, and in which images they are.
#[derive(Debug)]
struct Followed {
    last: Option<Step>,
    places: Vec<Places>,
}

/// Images to be noted: after which of some steps, and room for them, step by step.
struct Notes<'a> {
    steps: &'a [usize],
    images: &'a mut [Images],
}

/// Moves atoms to their images, block after block, from the first frame of a trajectory on.
///
/// The atoms are in several parts. Threads that have neighbouring blocks work at the same time: the
/// second one moves the first part of the atoms as soon as the first one has moved these in the block
/// before.
#[derive(Debug)]
pub struct Follower {
    task: NoJump,
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
    pub fn new(task: NoJump) -> Self {
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
        }
    }

    /// Atoms of a frame.
    pub fn n_atoms(&self) -> usize {
        self.task.n_atoms
    }

    /// Move atoms in block `number` once those before it are moved; images in the first frame of it
    /// that is not left out, or in the last one before. None if there is no going on.
    ///
    /// # Errors
    /// [`Error::Argument`] where the slices do not hold the same number of whole frames, or an atom
    /// is too many cells away from where it was first.
    pub fn move_on(
        &self,
        number: usize,
        positions: &mut [f32],
        dimensions: &[f32],
    ) -> Result<Option<(Vec<Refused>, Vec<Images>)>> {
        let (steps, refused) = self.task.steps(positions, dimensions)?;
        let mut images = vec![[0; 3]; self.task.n_followed()];
        for part in &self.parts {
            let Some(mut turn) = part.wait_for(number) else {
                return Ok(None);
            };
            let (atoms, begin) = (part.atoms.clone(), &mut images[part.atoms.clone()]);
            let followed = &mut turn.followed;
            (self.task).move_through(atoms, followed, Some(begin), positions, &steps)?;
            turn.block = Some(number + 1);
            part.has_changed.notify_all();
        }
        Ok(Some((refused, images)))
    }

    /// Release those that wait: no other block is moved.
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
    /// [`Error::Argument`] where an atom is out of range or of order.
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
    /// [`Error::Argument`] where the slices do not hold the same number of whole frames, there is
    /// none, a frame has no cell, or an atom moves by more cells than an image can count.
    pub fn scan(&self, positions: &[f32], dimensions: &[f32], rows: &[usize]) -> Result<Scan> {
        let frame_len = frame_len(positions.len(), self.n_atoms)?;
        let n_frames = positions.len() / frame_len;
        check_len("lengths and angles", dimensions.len(), n_frames * 6)?;
        let (cells, _) = dimensions.as_chunks();
        let step = |(row, (frame, &cell)): (usize, (&[f32], &[f32; 6]))| match Cell::new(cell) {
            Ok(cell) => Ok(Step::new(row, cell, self.largest(frame, &cell))),
            Err(no_cell) => Err(refusal(&no_cell.reason("nojump"))),
        };
        let frames = positions.chunks_exact(frame_len).zip(cells);
        let steps: Vec<_> = frames.enumerate().map(step).collect::<Result<_>>()?;
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err(refusal("there are no frames"));
        };
        let mut followed = Followed::new(&vec![[0; 3]; self.atoms.len()]);
        let mut noted = vec![[0; 3]; rows.len() * self.atoms.len()];
        let notes = Notes {
            steps: rows,
            images: &mut noted,
        };
        if let Some(atom) = count(
            &self.atoms,
            Frames::Read(positions),
            frame_len,
            None,
            &steps,
            &mut followed.places,
            notes,
        ) {
            return Err(refusal(&self.too_far(atom)));
        }
        let fractional = |step: &Step| {
            let frame = &positions[step.row * frame_len..];
            let fractional = step.cell.fractions();
            let of_atom = |&atom: &usize| fractional(position(frame, atom).map(f64::from));
            self.atoms.iter().map(of_atom).collect()
        };
        Ok(Scan {
            first: fractional(first),
            last: fractional(last),
            moved: followed.images(self.atoms.len()),
            noted,
        })
    }

    /// Move atoms to their images. `images` are those of every frame, or of the first one that was
    /// not left out before, from which the others are counted.
    ///
    /// # Errors
    /// [`Error::Argument`] where the slices do not hold the same number of whole frames.
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
            let (steps, refused) = self.steps(positions, dimensions)?;
            self.move_through(0..n_followed, &mut followed, None, positions, &steps)?;
            return Ok(refused);
        }
        each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let (cell, _) = self.check(frame, cell)?;
            let images = &images[row * n_followed..][..n_followed];
            shift(&self.atoms, frame, &cell, images);
            Ok(())
        })
    }

    /// The frames in which atoms can be followed, and those in which they cannot.
    fn steps(
        &self,
        positions: &mut [f32],
        dimensions: &[f32],
    ) -> Result<(Vec<Step>, Vec<Refused>)> {
        let mut steps = Vec::new();
        let refused = each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let (cell, largest) = self.check(frame, cell)?;
            steps.push(Step::new(row, cell, largest));
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
    ) -> Result<()> {
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
        let (last, places) = (followed.last.as_ref(), &mut followed.places);
        if let Some(atom) = count(
            &self.atoms[atoms.clone()],
            Frames::Moved(positions),
            3 * self.n_atoms,
            last,
            steps,
            places,
            notes,
        ) {
            return Err(refusal(&self.too_far(atoms.start + atom)));
        }
        if let Some(step) = steps.last() {
            followed.last = Some(step.clone());
        }
        Ok(())
    }

    fn too_far(&self, atom: usize) -> String {
        let atom = self.atoms[atom];
        format!("atom {atom} moves by more cells than can be counted, 32,767")
    }

    /// The largest coordinate of a frame, Å, or of the atoms that are followed where others are not
    /// finite or far away.
    fn largest(&self, frame: &[f32], cell: &Cell) -> f32 {
        let largest = largest_of(frame);
        if Fractions::new(cell).largest(largest) <= FARTHEST {
            return largest;
        }
        let followed = self.atoms.iter().flat_map(|&atom| position(frame, atom));
        followed.fold(0.0, |most, x| most.max(x.abs()))
    }

    /// Require a cell, and positions that are finite and not too far away; the cell, and the largest
    /// coordinate.
    fn check(
        &self,
        frame: &[f32],
        cell: std::result::Result<Cell, super::cell::NoCell>,
    ) -> std::result::Result<(Cell, f32), String> {
        let cell = cell.map_err(|no_cell| no_cell.reason("nojump"))?;
        let largest = largest_of(frame);
        if Fractions::new(&cell).largest(largest) <= FARTHEST {
            return Ok((cell, largest));
        }
        let fractions = cell.fractions();
        let is_far = |atom: &&usize| {
            let fractional = fractions(position(frame, **atom).map(f64::from));
            // No number is not less, either.
            !fractional.iter().all(|x| x.abs() <= FARTHEST)
        };
        match self.atoms.iter().find(is_far) {
            None => Ok((cell, self.largest(frame, &cell))),
            Some(atom) => {
                let [x, y, z] = position(frame, *atom);
                let reason = if [x, y, z].iter().all(|x| x.is_finite()) {
                    format!("nojump follows atoms up to {FARTHEST} cells away")
                } else {
                    "nojump needs to know where it is".to_string()
                };
                Err(format!(
                    "atom {atom} of those that are read is at ({x}, {y}, {z}), and {reason}"
                ))
            }
        }
    }
}

impl Notes<'_> {
    fn none() -> Self {
        Notes {
            steps: &[],
            images: &mut [],
        }
    }
}

impl Step {
    fn new(row: usize, cell: Cell, largest: f32) -> Self {
        let fractions = Fractions::new(&cell);
        Step {
            row,
            cell,
            fractions,
            largest: fractions.largest(largest),
        }
    }

    /// By how much rough places may be off, at most.
    fn off(&self) -> f64 {
        // Of the sums of magnitudes each operation is off by half a last digit at most.
        32.0 * f64::from(f32::EPSILON) * self.largest
    }
}

impl Followed {
    fn new(images: &[Images]) -> Self {
        let places = images.chunks(PIECE).map(|images| Places {
            images: piece_of(images),
            ..Places::ZEROS
        });
        Followed {
            last: None,
            places: places.collect(),
        }
    }

    fn images(&self, n: usize) -> Vec<Images> {
        let of_piece = |places: &'_ Places| {
            let images = places.images;
            std::array::from_fn::<_, PIECE, _>(|k| image(&images, k))
        };
        self.places.iter().flat_map(of_piece).take(n).collect()
    }
}

/// True if no atom can be moved by more cells than an image can count, wherever it goes.
fn can_count(places: &[Places], last: Option<&Step>, steps: &[Step]) -> bool {
    let images = places.iter().map(|places| places.images.as_flattened());
    let most = f64::from(images.map(largest_of).fold(0.0, f32::max));
    let largest = |steps: &[Step]| {
        steps
            .iter()
            .fold(0.0, |most: f64, step| most.max(step.largest))
    };
    let begin = last.map_or_else(
        || largest(&steps[..steps.len().min(1)]),
        |last| last.largest,
    );
    // Followed, an atom moves by half a cell in a step at most.
    most + begin + 0.5 * steps.len() as f64 + largest(steps) + 1.0 < f64::from(i16::MAX)
}

impl Places {
    const ZEROS: Places = Places {
        positions: ZEROS,
        rough: ZEROS,
        images: ZEROS,
    };
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
fn image(images: &Piece, k: usize) -> Images {
    [0, 1, 2].map(|axis: usize| images[axis][k] as i16)
}

/// As [`Cell::fractions`], of several positions.
#[derive(Debug, Clone, Copy)]
struct Fractions {
    over: [f64; 3],
    b_x: f64,
    c_x: f64,
    c_y: f64,
}

impl Fractions {
    fn new(cell: &Cell) -> Self {
        let [a, b, c] = *cell.vectors();
        Fractions {
            over: [1.0 / a[0], 1.0 / b[1], 1.0 / c[2]],
            b_x: b[0],
            c_x: c[0],
            c_y: c[1],
        }
    }

    /// The largest fraction, given the largest coordinate, Å.
    fn largest(&self, largest: f32) -> f64 {
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

    /// Of the atoms from `begin` on.
    #[inline(always)]
    fn of(&self, positions: &Piece, begin: usize) -> [[f64; LANES]; 3] {
        let mut found = [[0.0; LANES]; 3];
        let [over_a, over_b, over_c] = self.over;
        for k in 0..LANES {
            let [x, y, z] = [0, 1, 2].map(|axis: usize| f64::from(positions[axis][begin + k]));
            let w = z * over_c;
            let v = (y - w * self.c_y) * over_b;
            let u = (x - w * self.c_x - v * self.b_x) * over_a;
            (found[0][k], found[1][k], found[2][k]) = (u, v, w);
        }
        found
    }
}

/// Frames of positions: to be read, or moved to the images that are found.
enum Frames<'a> {
    Read(&'a [f32]),
    Moved(&'a mut [f32]),
}

by_widest! {
    /// Count images over frames, and move the atoms to these where that is wanted; the first atom
    /// that moves too far. What is known of a piece of atoms stays in the processor's nearest cache:
    /// each piece passes all frames before the next.
    fn count(
        atoms: &[usize],
        frames: Frames<'_>,
        frame_len: usize,
        last: Option<&Step>,
        steps: &[Step],
        places: &mut [Places],
        notes: Notes<'_>,
    ) -> Option<usize> {
        let (mut frames, n_atoms) = (frames, atoms.len());
        let roughly = can_count(places, last, steps);
        for (number, (atoms, places)) in atoms.chunks(PIECE).zip(places).enumerate() {
            let (mut last, mut spare, mut noted) = (last, Places::ZEROS, 0);
            let (mut before, mut now): (&mut Places, &mut Places) = (places, &mut spare);
            for (k, step) in steps.iter().enumerate() {
                let positions = match &frames {
                    Frames::Read(positions) => *positions,
                    Frames::Moved(positions) => &**positions,
                };
                let (frame, _) = positions[step.row * frame_len..][..frame_len].as_chunks();
                if let Some(atom) = go_on(atoms, frame, last, step, roughly, before, now) {
                    return Some(PIECE * number + atom);
                }
                while notes.steps.get(noted) == Some(&k) {
                    let begin = noted * n_atoms + PIECE * number;
                    note(&now.images, &mut notes.images[begin..][..atoms.len()]);
                    noted += 1;
                }
                if let Frames::Moved(positions) = &mut frames {
                    let (frame, _) = positions[step.row * frame_len..][..frame_len].as_chunks_mut();
                    shift_piece(atoms, frame, &step.cell, &now.positions, &now.images);
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

#[inline(always)]
fn note(images: &Piece, to: &mut [Images]) {
    for (k, to) in to.iter_mut().enumerate() {
        *to = image(images, k);
    }
}

/// Find positions and images of a piece from those in the last frame, if there is one, `roughly`
/// where no atom can move too far; the first atom that does.
#[inline(always)]
fn go_on(
    atoms: &[usize],
    frame: &[[f32; 3]],
    last: Option<&Step>,
    step: &Step,
    roughly: bool,
    before: &Places,
    now: &mut Places,
) -> Option<usize> {
    gather(frame, atoms, &mut now.positions);
    let Some(last) = last else {
        begin_roughly(&step.fractions, before, now);
        return None;
    };
    // A rough difference that is off a whole number by less is nearest to that.
    let surely = (0.5 - last.off() - step.off()) as f32;
    // Always, since the next frame goes on from these rough places.
    let is_sure = count_roughly(&step.fractions, before, now, surely);
    if roughly && is_sure {
        return None;
    }
    (0..PIECE).step_by(LANES).find_map(|begin| {
        let from = last.fractions.of(&before.positions, begin);
        let to = step.fractions.of(&now.positions, begin);
        let lane = count_exactly(&from, &to, before, now, begin)?;
        Some(begin + lane)
    })
}

/// Copy positions; what is beyond the last atom stays, and never moves.
#[inline(always)]
fn gather(frame: &[[f32; 3]], atoms: &[usize], to: &mut Piece) {
    let row = row_of(atoms).and_then(|row| frame.get(row)?.first_chunk::<PIECE>());
    if let Some(row) = row {
        for k in 0..PIECE {
            (to[0][k], to[1][k], to[2][k]) = (row[k][0], row[k][1], row[k][2]);
        }
        return;
    }
    for (k, &atom) in atoms.iter().enumerate() {
        let [x, y, z] = frame[atom];
        (to[0][k], to[1][k], to[2][k]) = (x, y, z);
    }
}

#[inline(always)]
fn scatter(from: &Piece, atoms: &[usize], frame: &mut [[f32; 3]]) {
    let row = row_of(atoms).and_then(|row| frame.get_mut(row)?.first_chunk_mut::<PIECE>());
    if let Some(row) = row {
        for k in 0..PIECE {
            row[k] = [from[0][k], from[1][k], from[2][k]];
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

/// Find places in the first frame, where the images are those that are given.
#[inline(always)]
fn begin_roughly(fractions: &Fractions, given: &Places, now: &mut Places) {
    let roughly = fractions.roughly();
    for k in 0..PIECE {
        let place = roughly([0, 1, 2].map(|axis: usize| now.positions[axis][k]));
        for (of, x) in now.rough.iter_mut().zip(place) {
            of[k] = x;
        }
    }
    now.images = given.images;
}

/// Count by how many cells atoms have moved; false where one is not sure.
#[inline(always)]
fn count_roughly(fractions: &Fractions, last: &Places, now: &mut Places, surely: f32) -> bool {
    let (roughly, mut unsure) = (fractions.roughly(), 0);
    for k in 0..PIECE {
        let place = roughly([0, 1, 2].map(|axis: usize| now.positions[axis][k]));
        for (axis, x) in place.into_iter().enumerate() {
            let moved = x - last.rough[axis][k];
            let jump = (moved + TO_WHOLE_F32) - TO_WHOLE_F32;
            // No branch and no sum in an order, either of which would keep lanes from one another.
            unsure |= u32::from((moved - jump).abs() >= surely);
            now.images[axis][k] = last.images[axis][k] - jump;
            now.rough[axis][k] = x;
        }
    }
    unsure == 0
}

/// Count in double precision; the first atom that moves too far.
#[inline(always)]
fn count_exactly(
    from: &[[f64; LANES]; 3],
    to: &[[f64; LANES]; 3],
    last: &Places,
    now: &mut Places,
    begin: usize,
) -> Option<usize> {
    for axis in 0..3 {
        for k in 0..LANES {
            let jump = whole(to[axis][k] - from[axis][k]) as f32;
            now.images[axis][begin + k] = last.images[axis][begin + k] - jump;
        }
    }
    (begin..begin + LANES)
        .find(|&k| !now.images.iter().all(|of| is_counted(of[k])))
        .map(|k| k - begin)
}

/// True for whole numbers that an image can be.
#[inline(always)]
fn is_counted(image: f32) -> bool {
    (f32::from(i16::MIN)..=f32::from(i16::MAX)).contains(&image)
}

/// Adding and taking off this rounds to a whole number, of magnitudes up to 2²².
const TO_WHOLE_F32: f32 = 12_582_912.0;

by_widest! {
    /// Move atoms to given images.
    fn shift(atoms: &[usize], frame: &mut [f32], cell: &Cell, images: &[Images]) {
        let (frame, _) = frame.as_chunks_mut();
        let mut positions = ZEROS;
        for (atoms, images) in atoms.chunks(PIECE).zip(images.chunks(PIECE)) {
            gather(frame, atoms, &mut positions);
            shift_piece(atoms, frame, cell, &positions, &piece_of(images));
        }
    }
}

/// Move a piece by whole numbers of the cell's vectors, as [`Cell::shifted`].
#[inline(always)]
fn shift_piece(
    atoms: &[usize],
    frame: &mut [[f32; 3]],
    cell: &Cell,
    positions: &Piece,
    images: &Piece,
) {
    let [a, b, c] = cell.vectors();
    let mut moved = ZEROS;
    for k in 0..PIECE {
        let [u, v, w] = [0, 1, 2].map(|axis: usize| f64::from(images[axis][k]));
        // The others of the nine numbers are 0.
        let by = [
            u * a[0] + v * b[0] + w * c[0],
            v * b[1] + w * c[1],
            w * c[2],
        ];
        for axis in 0..3 {
            moved[axis][k] = (f64::from(positions[axis][k]) + by[axis]) as f32;
        }
    }
    scatter(&moved, atoms, frame);
}

by_widest! {
    /// The largest magnitude; no number where one is not finite.
    fn largest_of(x: &[f32]) -> f32 {
        // Magnitudes are in the order of their bits; those of what is not finite come last.
        let most = x.iter().fold(0, |most, x| u32::max(most, x.abs().to_bits()));
        f32::from_bits(most) * 0.0 + f32::from_bits(most)
    }
}

fn refusal(reason: &str) -> Error {
    Error::Argument(reason.to_string())
}

impl Transform for NoJump {
    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    /// Refuse frames without a cell, or with positions that are not finite; no atom moves.
    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        each_row(positions, self.n_atoms, dimensions, |_, frame, cell| {
            self.check(frame, cell).map(|_| ())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CUBE: [f32; 6] = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0];

    fn move_on(
        follower: &Follower,
        number: usize,
        positions: &mut [f32],
        dimensions: &[f32],
    ) -> (Vec<Refused>, Vec<Images>) {
        let moved = follower.move_on(number, positions, dimensions);
        moved.expect("frames").expect("is open")
    }

    fn one_atom(along_x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let positions = along_x.iter().flat_map(|&x| [x, 5.0, 5.0]).collect();
        (positions, CUBE.repeat(along_x.len()))
    }

    #[test]
    fn an_atom_is_followed_through_a_face_and_back() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (mut positions, cells) = one_atom(&[8.0, 9.5, 1.0, 3.0, 9.0]);
        let scan = task.scan(&positions, &cells, &[0, 2, 4]).expect("frames");
        assert_eq!(scan.noted, [[0; 3], [1, 0, 0], [0; 3]]);
        assert_eq!(scan.moved, [[0; 3]]);
        let refused = task.move_to(&[[0; 3]], &mut positions, &cells);
        assert!(refused.expect("frames").is_empty());
        let x: Vec<f32> = positions.iter().step_by(3).copied().collect();
        assert_eq!(x, [8.0, 9.5, 11.0, 13.0, 9.0]);
    }

    #[test]
    fn images_are_those_of_the_first_frame_or_of_each() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (before, cells) = one_atom(&[9.5, 0.5, 9.5]);
        for images in [&[[2, 0, -1]][..], &[[2, 0, -1], [3, 0, -1], [2, 0, -1]]] {
            let mut positions = before.clone();
            task.move_to(images, &mut positions, &cells)
                .expect("frames");
            let expected = [29.5, 5.0, -5.0, 30.5, 5.0, -5.0, 29.5, 5.0, -5.0];
            assert_eq!(positions, expected);
        }
    }

    #[test]
    fn half_a_cell_goes_to_the_even_number() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (positions, cells) = one_atom(&[0.0, 5.0, 0.0, 15.0, 0.0, 25.0]);
        let rows: Vec<usize> = (0..6).collect();
        let scan = task.scan(&positions, &cells, &rows).expect("frames");
        let along_x: Vec<i16> = scan.noted.iter().map(|images| images[0]).collect();
        assert_eq!(along_x, [0, 0, 0, -2, 0, -2]);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let x = [1.0, 4.0, 8.0, 2.0, 6.0, 9.0, 3.0, 9.5, 6.0];
        let (positions, cells) = one_atom(&x);
        let whole = task.scan(&positions, &cells, &[]).expect("frames");
        for cut in 1..x.len() {
            let left = task.scan(&positions[..3 * cut], &cells[..6 * cut], &[]);
            let right = task.scan(&positions[3 * cut..], &cells[6 * cut..], &[]);
            let (left, right) = (left.expect("frames"), right.expect("frames"));
            let between = (right.first[0][0] - left.last[0][0]).round_ties_even() as i16;
            let moved = left.moved[0][0] - between + right.moved[0][0];
            assert_eq!(moved, whole.moved[0][0], "cut at {cut}");
        }
    }

    #[test]
    fn a_frame_that_was_left_out_is_passed_over() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (mut positions, mut cells) = one_atom(&[9.0, f32::NAN, 1.0]);
        positions[3..6].fill(f32::NAN);
        let refused = task.move_to(&[[0; 3]], &mut positions, &cells);
        assert_eq!(refused.expect("frames").len(), 1);
        assert_eq!(positions[6], 11.0);
        positions[6] = 1.0;
        cells[6..12].fill(f32::NAN);
        let refused = task.move_to(&[[0; 3]], &mut positions, &cells);
        assert!(refused.expect("frames").is_empty());
        assert_eq!(positions[6], 11.0);
    }

    #[test]
    fn a_row_may_be_noted_for_several_frames() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (positions, cells) = one_atom(&[8.0, 9.5, 1.0, 3.0, 9.0]);
        let scan = task.scan(&positions, &cells, &[1, 2, 2, 2, 3, 4, 4]);
        let along_x: Vec<i16> = (scan.expect("frames").noted.iter())
            .map(|images| images[0])
            .collect();
        assert_eq!(along_x, [0, 1, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn an_atom_that_was_far_away_is_followed_from_where_it_is() {
        // The second atom is not followed: where it is, numbers of single precision do not suffice.
        let task = NoJump::new(2, &[0]).expect("an atom");
        for (x, other) in [
            ([1.0, 150_001.0, 9.0, 9.0, 1.0], [0.0; 5]),
            ([1.0, 9.0, 9.0, 9.0, 1.0], [0.0, 4e5, 4e5, 0.0, 0.0]),
            ([1.0, 9.0, 9.0, 9.0, 1.0], [0.0, f32::NAN, 0.0, 0.0, 0.0]),
        ] {
            let frame = |(&x, &other): (&f32, &f32)| [x, 2.0, 2.0, other, 2.0, 2.0];
            let positions: Vec<f32> = x.iter().zip(&other).flat_map(frame).collect();
            let cells = CUBE.repeat(x.len());
            let scan = task
                .scan(&positions, &cells, &[0, 1, 2, 3, 4])
                .expect("frames");
            let follower = Follower::new(task.clone());
            for (row, frame) in positions.chunks(6).enumerate() {
                let (refused, images) = move_on(&follower, row, &mut frame.to_vec(), &CUBE);
                assert!(refused.is_empty(), "{refused:?}");
                assert_eq!(images, [scan.noted[row]], "{x:?} {other:?}: frame {row}");
            }
        }
    }

    #[test]
    fn atoms_that_are_not_followed_may_be_anywhere() {
        let task = NoJump::new(2, &[0]).expect("an atom");
        // Beyond what can be counted, while the other atom is nowhere.
        let positions = [
            0.0,
            5.0,
            5.0,
            f32::NAN,
            5.0,
            5.0,
            1e6,
            5.0,
            5.0,
            f32::NAN,
            5.0,
            5.0,
        ];
        let error = task
            .scan(&positions, &CUBE.repeat(2), &[])
            .expect_err("too far");
        assert!(error.to_string().contains("more cells than"), "{error}");
    }

    #[test]
    fn a_follower_goes_on_where_it_was() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let x = [1.0, 4.0, 8.0, 2.0, f32::NAN, 6.0, 9.0, 3e6, 3.0, 9.5, 6.0];
        let (mut whole, mut cells) = one_atom(&x);
        whole[12..15].fill(f32::NAN);
        cells[24..30].fill(f32::NAN);
        let mut parts = whole.clone();
        let refused = task.move_to(&[[0; 3]], &mut whole, &cells).expect("frames");
        assert_eq!(refused[0].0, 7);
        for size in [1, 2, 4] {
            let follower = Follower::new(task.clone());
            let (mut parts, mut images) = (parts.clone(), Vec::new());
            let blocks = parts.chunks_mut(3 * size).zip(cells.chunks(6 * size));
            for (number, (some, cells)) in blocks.enumerate() {
                let (_, begin) = move_on(&follower, number, some, cells);
                images.push(begin[0][0]);
            }
            let same = |(one, other): (&f32, &f32)| one.to_bits() == other.to_bits();
            assert!(parts.iter().zip(&whole).all(same), "{size}: {parts:?}");
            if size == 2 {
                assert_eq!(images, [0, 0, 1, 1, 2, 1]);
            }
        }
        task.move_to(&[[1; 3]], &mut parts[..3], &cells[..6])
            .expect("a frame");
        assert_eq!(parts[..3], [11.0, 15.0, 15.0]);
    }

    #[test]
    fn an_atom_that_goes_on_and_on_is_an_error() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let x: Vec<f32> = (0..80).map(|k| (4 * k % 10) as f32).collect();
        let (positions, cells) = one_atom(&x);
        let follower = Follower::new(task);
        let move_on = |number| follower.move_on(number, &mut positions.clone(), &cells);
        let found = (0..2000).find_map(|number| Some((number, move_on(number).err()?)));
        let (number, error) = found.expect("too far");
        // After 81,920 steps of four tenths of a cell.
        assert_eq!(number, 1024);
        assert!(
            error.to_string().contains("atom 0 moves by more"),
            "{error}"
        );
    }

    /// Each block by a thread of its own, which gets its turn when it comes.
    #[test]
    fn blocks_are_moved_by_threads_as_by_one() {
        const N: usize = 3 * LEAST_PART + 7;
        const BLOCKS: usize = 6;
        let mut random = Random(5);
        let positions: Vec<f32> = (0..2 * BLOCKS * 3 * N)
            .map(|_| (10.0 * random.number()) as f32)
            .collect();
        let dimensions = CUBE.repeat(2 * BLOCKS);
        let task = NoJump::new(N, &(0..N).collect::<Vec<_>>()).expect("atoms");
        let mut whole = positions.clone();
        task.move_to(&vec![[0; 3]; N], &mut whole, &dimensions)
            .expect("frames");
        let follower = Follower::new(task);
        assert_eq!(follower.parts.len(), 4);
        let mut moved = positions;
        std::thread::scope(|threads| {
            let blocks = moved.chunks_mut(2 * 3 * N).zip(dimensions.chunks(12));
            for (number, (block, cells)) in blocks.enumerate().rev() {
                let follower = &follower;
                threads.spawn(move || move_on(follower, number, block, cells));
            }
        });
        assert_eq!(moved, whole);
    }

    #[test]
    fn a_part_is_moved_while_the_block_before_is_in_another() {
        const N: usize = 2 * LEAST_PART;
        let task = NoJump::new(N, &(0..N).collect::<Vec<_>>()).expect("atoms");
        let follower = &Follower::new(task);
        let (mut one, mut two) = (vec![1.0; 3 * N], vec![9.0; 3 * N]);
        let held = follower.parts[1].lock();
        std::thread::scope(|threads| {
            threads.spawn(|| move_on(follower, 0, &mut one, &CUBE));
            threads.spawn(|| move_on(follower, 1, &mut two, &CUBE));
            // Both pass through the first part while the second one is held.
            while follower.parts[0].lock().block != Some(2) {
                std::thread::yield_now();
            }
            assert_eq!(held.block, Some(0));
            drop(held);
        });
        assert_eq!(two, vec![-1.0; 3 * N]);
    }

    #[test]
    fn who_waits_is_released() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let follower = &Follower::new(task);
        std::thread::scope(|threads| {
            let late = threads.spawn(|| follower.move_on(1, &mut [1.0; 3], &CUBE));
            follower.close();
            let found = late.join().expect("no panic").expect("a frame");
            assert!(found.is_none());
        });
    }

    #[test]
    fn frames_are_refused_by_name() {
        let task = NoJump::new(2, &[1]).expect("an atom");
        let mut positions = vec![1.0, 1.0, 1.0, 2.0, f32::NAN, 2.0];
        let refused = task.apply(&mut positions, &CUBE).expect("a frame");
        assert_eq!(refused[0].0, 0);
        assert!(refused[0].1.starts_with("atom 1 of those"), "{refused:?}");
        let mut positions = vec![1.0; 6];
        let refused = task.apply(&mut positions, &[0.0; 6]).expect("a frame");
        assert_eq!(refused[0].1, "the frame has no cell, which nojump needs");
        // The first atom may be anywhere, since it is not followed.
        for (far, words) in [
            (1e6_f32, "follows atoms up to 16383 cells away"),
            (f32::INFINITY, "needs to know where it is"),
        ] {
            let mut positions = [far, 1.0, 1.0, 1.0, 1.0, 1.0].repeat(2);
            positions[9] = -far;
            let refused = task.apply(&mut positions, &CUBE.repeat(2)).expect("frames");
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert_eq!(refused[0].0, 1);
            assert!(refused[0].1.contains(words), "{refused:?}");
        }
    }

    #[test]
    fn lanes_are_as_atoms_one_by_one() {
        const N: usize = PIECE + 3 * LANES + 5;
        let mut random = Random(17);
        let cells = [
            [30.0, 34.0, 28.0, 75.0, 100.0, 62.0],
            [31.0, 33.5, 28.5, 76.0, 99.0, 63.0],
        ];
        let positions: Vec<f32> = (0..12 * 3 * N)
            .map(|_| (90.0 * random.number()) as f32)
            .collect();
        let dimensions: Vec<f32> = (0..12).flat_map(|k: usize| cells[k % 2]).collect();
        let atoms: Vec<usize> = (0..N).filter(|k| k % 7 != 3).collect();
        let task = NoJump::new(N, &atoms).expect("atoms");
        let rows: Vec<usize> = (0..12).collect();
        let scan = task.scan(&positions, &dimensions, &rows).expect("frames");
        let mut moved = positions.clone();
        task.move_to(&vec![[0; 3]; atoms.len()], &mut moved, &dimensions)
            .expect("frames");
        for (place, &atom) in atoms.iter().enumerate() {
            let mut images = [0_i16; 3];
            for row in 0..12 {
                let at = |row: usize| position(&positions[row * 3 * N..], atom).map(f64::from);
                let cell = |row: usize| Cell::new(cells[row % 2]).expect("a cell");
                if row > 0 {
                    let from = cell(row - 1).fractions()(at(row - 1));
                    let to = cell(row).fractions()(at(row));
                    for axis in 0..3 {
                        images[axis] -= (to[axis] - from[axis]).round_ties_even() as i16;
                    }
                }
                assert_eq!(scan.noted[row * atoms.len() + place], images);
                let wanted = cell(row).shifted(at(row), images.map(f64::from));
                let found = position(&moved[row * 3 * N..], atom);
                assert_eq!(found, wanted.map(|x| x as f32));
            }
        }
        assert_eq!(position(&moved, 3), position(&positions, 3));
    }

    #[test]
    fn an_image_beyond_what_can_be_counted_is_an_error() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (positions, cells) = one_atom(&[0.0, 1e6]);
        let error = task.scan(&positions, &cells, &[]).expect_err("too far");
        assert!(error.to_string().contains("more cells than"), "{error}");
        let error = task.scan(&positions, &cells, &[]).expect_err("too far");
        assert!(error.to_string().contains("atom 0"), "{error}");
        let task = NoJump::new(12, &(0..12).collect::<Vec<_>>()).expect("atoms");
        let mut positions = vec![0.0; 2 * 36];
        positions[36 + 3 * 10 + 1] = 1e6;
        let error = task
            .scan(&positions, &CUBE.repeat(2), &[])
            .expect_err("too far");
        assert!(error.to_string().contains("atom 10 moves"), "{error}");
    }
}
