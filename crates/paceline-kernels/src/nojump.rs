//! Atoms followed across the faces of the cell: from frame to frame each takes the image that lies
//! nearest, vector by vector, to where it was (Kulke & Vermaas 2022, J. Chem. Theory Comput. 18,
//! 6161, equation B6).
//!
//! The images are counted in whole cells relative to the first frame of a trajectory. Counts add
//! exactly, so that parts of a trajectory may be counted by themselves.

use super::cell::Cell;
use super::transform::{Refused, Transform, each_row, position};
use super::{check_len, frame_len};
use paceline_formats::error::{Error, Result};

/// Number of cells along each vector.
pub type Images = [i16; 3];

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

/// A position in units of the vectors, if both are finite.
type Fractional = [f64; 3];

impl NoJump {
    /// Follow some atoms of frames of `n_atoms`.
    ///
    /// # Errors
    /// [`Error::Argument`] where an atom is out of range.
    pub fn new(n_atoms: usize, atoms: &[usize]) -> Result<Self> {
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
    /// which increase.
    ///
    /// # Errors
    /// [`Error::Argument`] where the slices do not hold the same number of whole frames, there is
    /// none, a frame has no cell, or an atom moves by more cells than an image can count.
    pub fn scan(&self, positions: &[f32], dimensions: &[f32], rows: &[usize]) -> Result<Scan> {
        let frame_len = frame_len(positions.len(), self.n_atoms)?;
        let n_frames = positions.len() / frame_len;
        check_len("lengths and angles", dimensions.len(), n_frames * 6)?;
        let mut scan = Scan {
            first: Vec::new(),
            last: Vec::new(),
            moved: vec![[0; 3]; self.atoms.len()],
            noted: Vec::with_capacity(rows.len() * self.atoms.len()),
        };
        let mut rows = rows.iter().peekable();
        let (cells, _) = dimensions.as_chunks();
        let mut last: Option<(&[f32], Cell)> = None;
        for (row, (frame, &cell)) in positions.chunks_exact(frame_len).zip(cells).enumerate() {
            let cell = Cell::new(cell).map_err(|no_cell| refusal(&no_cell.reason("nojump")))?;
            if let Some(last) = last {
                self.follow(last, (frame, cell), &mut scan.moved)
                    .map_err(|reason| refusal(&reason))?;
            } else {
                scan.first = self.fractional(frame, &cell);
            }
            last = Some((frame, cell));
            while rows.next_if(|&&wanted| wanted == row).is_some() {
                scan.noted.extend_from_slice(&scan.moved);
            }
        }
        let (frame, cell) = last.ok_or_else(|| refusal("there are no frames"))?;
        scan.last = self.fractional(frame, &cell);
        Ok(scan)
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
        let in_every_frame = images.len() == n_frames * n_followed && n_frames != 1;
        if !in_every_frame {
            check_len("images", images.len(), n_followed)?;
        }
        let mut now = images[..n_followed].to_vec();
        let (mut last, mut last_cell) = (Vec::new(), None);
        each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let cell = self.check(frame, cell)?;
            if in_every_frame {
                now.copy_from_slice(&images[row * n_followed..][..n_followed]);
            } else {
                if let Some(last_cell) = last_cell {
                    self.follow((&last, last_cell), (frame, cell), &mut now)?;
                }
                last.clear();
                last.extend_from_slice(frame);
                last_cell = Some(cell);
            }
            for (&atom, images) in self.atoms.iter().zip(&now) {
                if *images != [0; 3] {
                    let x = position(frame, atom).map(f64::from);
                    let moved = cell.shifted(x, images.map(f64::from));
                    frame[3 * atom..3 * atom + 3].copy_from_slice(&moved.map(|x| x as f32));
                }
            }
            Ok(())
        })
    }

    /// Require a cell, and positions that are finite.
    fn check(
        &self,
        frame: &[f32],
        cell: std::result::Result<Cell, super::cell::NoCell>,
    ) -> std::result::Result<Cell, String> {
        let cell = cell.map_err(|no_cell| no_cell.reason("nojump"))?;
        if frame.iter().all(|x| x.is_finite()) {
            return Ok(cell);
        }
        let lost = |atom: &&usize| !position(frame, **atom).iter().all(|x| x.is_finite());
        match self.atoms.iter().find(lost) {
            None => Ok(cell),
            Some(atom) => {
                let [x, y, z] = position(frame, *atom);
                Err(format!(
                    "atom {atom} of those that are read is at ({x}, {y}, {z}), and nojump needs \
                     to know where it is"
                ))
            }
        }
    }

    fn fractional(&self, frame: &[f32], cell: &Cell) -> Vec<Fractional> {
        let fractional = cell.fractions();
        let of_atom = |&atom: &usize| fractional(position(frame, atom).map(f64::from));
        self.atoms.iter().map(of_atom).collect()
    }

    /// Go on from the last frame to this one.
    ///
    /// Few atoms move far enough to cross a face: those that do not are found by comparing
    /// coordinates.
    fn follow(
        &self,
        last: (&[f32], Cell),
        now: (&[f32], Cell),
        images: &mut [Images],
    ) -> std::result::Result<(), String> {
        let near = nearness(last, now);
        let ((last, last_cell), (now, cell)) = (last, now);
        let (before, after) = (last_cell.fractions(), cell.fractions());
        let ((last, _), (now, _)) = (last.as_chunks::<3>(), now.as_chunks::<3>());
        for (&atom, images) in self.atoms.iter().zip(images) {
            let (from, to) = (last[atom], now[atom]);
            let is_near = |axis: usize| (to[axis] - from[axis]).abs() <= near;
            if is_near(0) & is_near(1) & is_near(2) {
                continue;
            }
            let (from, to) = (before(from.map(f64::from)), after(to.map(f64::from)));
            for axis in 0..3 {
                let image = nearest(to[axis] - from[axis])
                    .and_then(|jump| i16::try_from(i32::from(images[axis]) - jump).ok());
                images[axis] = image.ok_or_else(|| {
                    format!("atom {atom} moves by more cells than can be counted, 32,767")
                })?;
            }
        }
        Ok(())
    }
}

/// The nearest whole number, of two the even one, as NumPy and MDAnalysis have it; None if it is
/// too large to be counted.
///
/// Without SSE4.1, `round_ties_even` is a call. Here the spacing of the sum's numbers is 1, and its
/// last bits are the whole number.
#[inline]
fn nearest(x: f64) -> Option<i32> {
    const LARGE: f64 = 1.5 * (1_u64 << 52) as f64;
    (x.abs() <= 32_768.0).then(|| (x + LARGE).to_bits() as i32)
}

/// Å that each coordinate of an atom may change by, so that it surely moves by less than half a
/// cell along each vector; less than 0 if the cell changes too much.
fn nearness((last, last_cell): (&[f32], Cell), (_, cell): (&[f32], Cell)) -> f32 {
    const UNIT: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let now = UNIT.map(cell.fractions());
    let change = if cell == last_cell {
        [[0.0; 3]; 3]
    } else {
        let before = UNIT.map(last_cell.fractions());
        std::array::from_fn(|i| std::array::from_fn(|j| now[i][j] - before[i][j]))
    };
    let largest = if cell == last_cell {
        0.0
    } else {
        f64::from(last.iter().fold(0.0, |most: f32, x| most.max(x.abs())))
    };
    let along = |axis: usize, of: &[[f64; 3]; 3]| of.iter().map(|row| row[axis].abs()).sum::<f64>();
    let near = |axis| (0.499 - largest * along(axis, &change)) / along(axis, &now);
    near(0).min(near(1)).min(near(2)) as f32
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

    const CUBE: [f32; 6] = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0];

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
        let (mut positions, cells) = one_atom(&[9.0, f32::NAN, 1.0]);
        positions[3..6].fill(f32::NAN);
        task.move_to(&[[0; 3]], &mut positions, &cells)
            .expect("frames");
        assert_eq!(positions[6], 11.0);
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
    }

    #[test]
    fn halves_go_to_the_even_number() {
        for x in [
            0.5, 1.5, -0.5, -1.5, -2.5, 0.499_999, 7.0, -32_768.0, 32_767.4, 0.0, -0.0,
        ] {
            assert_eq!(nearest(x), Some(x.round_ties_even() as i32), "{x}");
        }
        assert_eq!([nearest(4e4), nearest(f64::NAN)], [None, None]);
    }

    #[test]
    fn an_image_beyond_what_can_be_counted_is_an_error() {
        let task = NoJump::new(1, &[0]).expect("an atom");
        let (positions, cells) = one_atom(&[0.0, 1e6]);
        let error = task.scan(&positions, &cells, &[]).expect_err("too far");
        assert!(error.to_string().contains("more cells than"), "{error}");
    }
}
