//! Common parts of the transformations of frames. A transformation changes the positions of a block
//! in place, and skips frames that it cannot change.

use super::cell::{Cell, NoCell};
use super::cells_in_standard_form::{Basis, Placement, change_placed};
use super::superposition::Matrix3;
use super::{check_len, frame_len};
use paceline_base::UnitCell;
use paceline_base::error::{self, Error};

/// Row of a frame that could not be computed or transformed, and the reason. A transformation sets
/// the positions of such a frame to NaN.
pub type Refused = (usize, String);

/// Bonds of a frame that are longer than half the cell after molecules were made whole: row of the
/// frame, number of such bonds, the two atoms of the longest bond, and its length (Å).
pub type LongBonds = (usize, usize, [usize; 2], f64);

/// Rotation of the positions of a frame. It also applies to vectors, such as velocities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameRotation {
    /// Row of the frame in the block.
    pub row: usize,
    /// Rotation matrix R for row vectors: a vector d becomes d · R.
    pub rotation: Matrix3,
    /// Centre of the rotation, Å.
    pub centre: [f64; 3],
    /// Position of the centre after the transformation, Å.
    pub target: [f64; 3],
}

impl FrameRotation {
    /// Rotate a vector.
    pub fn vector(&self, d: [f64; 3]) -> [f64; 3] {
        let r = &self.rotation;
        std::array::from_fn(|j| d[0] * r[0][j] + d[1] * r[1][j] + d[2] * r[2][j])
    }

    /// Rotate a position about the centre and move it to the target, Å.
    pub fn position(&self, x: [f64; 3]) -> [f64; 3] {
        let turned = self.vector(std::array::from_fn(|i| x[i] - self.centre[i]));
        std::array::from_fn(|i| turned[i] + self.target[i])
    }
}

/// Data about the frames of a block: their conversions, which a transformation reads, and the long
/// bonds and rotations that it finds.
#[derive(Debug, Default)]
pub struct Notes {
    /// Conversion of each frame to the coordinates of the kernel; empty if no frame was converted.
    pub placements: Vec<Option<Placement>>,
    /// Long bonds, if the transformation checks bonds.
    pub long: Vec<LongBonds>,
    /// Rotations of the frames that were rotated.
    pub rotations: Vec<FrameRotation>,
}

impl Notes {
    /// Convert a point from the coordinates of the file to those of the converted frame `row`, Å.
    pub fn placed(&self, row: usize, point: [f64; 3]) -> [f64; 3] {
        match self.placements.get(row) {
            Some(Some(placement)) => placement.placed_point(point),
            _ => point,
        }
    }
}

/// Transformation of all frames of a block, in place.
pub trait Transform: Send + Sync {
    /// Number of atoms of a frame.
    fn n_atoms(&self) -> usize;

    /// Return which vectors describe the cell for this transformation; `None` if it uses no cell.
    fn basis(&self) -> Option<Basis>;

    /// Change positions (Å), and return the refused frames. `dimensions` contains three lengths (Å)
    /// and three angles (degrees) for each frame.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain the same number of whole frames.
    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> error::Result<Vec<Refused>>;

    /// Apply the transformation, and record the long bonds and rotations that it finds in `_notes`.
    ///
    /// # Errors
    /// As [`Transform::apply`].
    fn apply_noting(
        &self,
        positions: &mut [f32],
        dimensions: &[f32],
        _notes: &mut Notes,
    ) -> error::Result<Vec<Refused>> {
        self.apply(positions, dimensions)
    }
}

/// Apply a transformation to a block of frames, whose cells may have any orientation.
///
/// # Errors
/// As [`Transform::apply`].
pub fn apply_in_cells(
    task: &dyn Transform,
    positions: &mut [f32],
    cells: &[f64],
    notes: &mut Notes,
) -> error::Result<Vec<Refused>> {
    let change = |positions: &mut [f32], dimensions: &[f32], placements: &[Option<Placement>]| {
        notes.placements = placements.to_vec();
        task.apply_noting(positions, dimensions, notes)
    };
    change_placed(positions, task.n_atoms(), cells, task.basis(), change)
}

/// Rotate the cells together with their frames: the cell vectors, and the origin of the cell.
pub fn rotate_cells(cells: &mut [f64], rotations: &[FrameRotation]) {
    let (rows, _) = cells.as_chunks_mut();
    for turn in rotations {
        let cell = UnitCell::of_row(&rows[turn.row]);
        if cell.vectors != [[0.0; 3]; 3] {
            let turned = UnitCell {
                vectors: cell.vectors.map(|vector| turn.vector(vector)),
                origin: turn.position(cell.origin),
                ..cell
            };
            rows[turn.row] = turned.row();
        }
    }
}

/// Rotate a vector of each atom, such as its velocity, by the rotation of the frame.
pub fn rotate_vectors(vectors: &mut [f32], n_atoms: usize, rotations: &[FrameRotation]) {
    for turn in rotations {
        let frame = &mut vectors[3 * n_atoms * turn.row..][..3 * n_atoms];
        for d in frame.as_chunks_mut::<3>().0 {
            *d = turn.vector(d.map(f64::from)).map(|x| x as f32);
        }
    }
}

/// Change each frame of a block, given its cell. A frame whose positions and cell are all NaN is
/// skipped, because an earlier transformation refused it.
///
/// # Errors
/// As [`Transform::apply`].
pub fn each_frame(
    positions: &mut [f32],
    n_atoms: usize,
    dimensions: &[f32],
    mut change: impl FnMut(&mut [f32], Result<Cell, NoCell>) -> Result<(), String>,
) -> error::Result<Vec<Refused>> {
    each_row(positions, n_atoms, dimensions, |_, frame, cell| {
        change(frame, cell)
    })
}

/// Change each frame like [`each_frame`], but also pass the row number of the frame.
///
/// # Errors
/// As [`Transform::apply`].
pub fn each_row(
    positions: &mut [f32],
    n_atoms: usize,
    dimensions: &[f32],
    mut change: impl FnMut(usize, &mut [f32], Result<Cell, NoCell>) -> Result<(), String>,
) -> error::Result<Vec<Refused>> {
    let frame_len = frame_len(positions.len(), n_atoms)?;
    check_len(
        "lengths and angles",
        dimensions.len(),
        positions.len() / frame_len * 6,
    )?;
    let (cells, _) = dimensions.as_chunks();
    let mut refused = Vec::new();
    let frames = positions.chunks_exact_mut(frame_len).zip(cells);
    for (row, (frame, &dimensions)) in frames.enumerate() {
        if dimensions[0].is_nan() && frame.iter().all(|x| x.is_nan()) {
            continue;
        }
        if let Err(reason) = change(row, frame, Cell::new(dimensions)) {
            frame.fill(f32::NAN);
            refused.push((row, reason));
        }
    }
    Ok(refused)
}

/// Return the position of an atom, Å.
#[inline]
pub fn position(frame: &[f32], atom: usize) -> [f32; 3] {
    [frame[3 * atom], frame[3 * atom + 1], frame[3 * atom + 2]]
}

/// Compute the weighted mean of positions, Å.
pub fn centre(positions: impl Iterator<Item = [f32; 3]>, weights: &[f64]) -> [f64; 3] {
    let (mut sum, mut total) = ([0.0; 3], 0.0);
    for (x, weight) in positions.zip(weights) {
        total += weight;
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += weight * f64::from(x);
        }
    }
    sum.map(|sum| sum / total)
}

/// Compute the weighted centres of groups of atoms in each frame, Å. `atoms` is sorted by group,
/// with `sizes` atoms in each group. `weights` contains one weight for each of these atoms.
///
/// # Errors
/// [`Error::Argument`] if the sizes do not match, or an atom is out of range.
pub fn centres(
    positions: &[f32],
    n_atoms: usize,
    atoms: &[usize],
    sizes: &[usize],
    weights: &[f64],
) -> error::Result<Vec<f32>> {
    let frame_len = frame_len(positions.len(), n_atoms)?;
    check_len("atoms", atoms.len(), sizes.iter().sum())?;
    check_len("weights", weights.len(), atoms.len())?;
    if sizes.contains(&0) || atoms.iter().any(|&atom| atom >= n_atoms) {
        return Err(Error::Argument(
            "a group has no atoms, or an atom that is out of range".to_string(),
        ));
    }
    let n_frames = positions.len() / frame_len;
    let mut centres = Vec::with_capacity(3 * n_frames * sizes.len());
    for frame in positions.chunks_exact(frame_len) {
        let mut first = 0;
        for size in sizes {
            let group = first..first + size;
            let of_group = atoms[group.clone()].iter();
            let centre = centre(of_group.map(|&atom| position(frame, atom)), &weights[group]);
            centres.extend(centre.map(|x| x as f32));
            first += size;
        }
    }
    Ok(centres)
}

/// Add a vector (Å) to all positions.
pub fn translate(frame: &mut [f32], by: [f64; 3]) {
    let (atoms, _) = frame.as_chunks_mut();
    for atom in atoms {
        let x: [f32; 3] = *atom;
        *atom = std::array::from_fn(|i| (f64::from(x[i]) + by[i]) as f32);
    }
}

/// Return the given weights of some atoms, or weights of 1 if none are given.
///
/// # Errors
/// [`Error::Argument`] if there are no atoms, an atom is out of range, the number of weights
/// differs, or weights are negative, not finite or all 0.
pub fn weights(
    n_atoms: usize,
    atoms: &[usize],
    weights: Option<&[f64]>,
) -> error::Result<Vec<f64>> {
    if atoms.is_empty() {
        return Err(Error::Argument("there are no atoms".to_string()));
    }
    if let Some(atom) = atoms.iter().find(|&&atom| atom >= n_atoms) {
        return Err(Error::Argument(format!(
            "atom {atom} is out of range for a block of {n_atoms} atoms"
        )));
    }
    let Some(weights) = weights else {
        return Ok(vec![1.0; atoms.len()]);
    };
    check_len("weights", weights.len(), atoms.len())?;
    let total: f64 = weights.iter().sum();
    if !(total > 0.0 && total.is_finite() && weights.iter().all(|&weight| weight >= 0.0)) {
        return Err(Error::Argument(format!(
            "weights must be finite, at least 0, and not all 0; their sum is {total}"
        )));
    }
    Ok(weights.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: [f32; 6] = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0];

    #[test]
    fn a_frame_that_cannot_be_changed_is_nan() {
        let mut positions = vec![1.0_f32; 4 * 6];
        positions[12..18].fill(f32::NAN);
        let mut dimensions = [CELL, CELL, [f32::NAN; 6], CELL].concat();
        dimensions[3] = 180.0;
        let refused = each_frame(&mut positions, 2, &dimensions, |frame, cell| {
            cell.map_err(|no_cell| no_cell.reason("a test"))?;
            frame.fill(2.0);
            Ok(())
        });
        let refused = refused.expect("whole frames");
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].0, 0);
        assert!(refused[0].1.contains("180 90 90°, which make no cell"));
        assert!(positions[..6].iter().all(|x| x.is_nan()));
        assert_eq!(positions[6..12], [2.0; 6]);
        // Frame 2 was refused earlier. It has no cell either, but it is not refused again.
        assert!(positions[12..18].iter().all(|x| x.is_nan()));
    }

    #[test]
    fn slices_of_other_sizes_are_refused() {
        let nothing = |_: &mut [f32], _| Ok(());
        for (n_positions, n_atoms, n_cells) in [(7, 2, 1), (6, 0, 1), (6, 2, 2), (0, usize::MAX, 0)]
        {
            let (mut positions, dimensions) = (vec![0.0; n_positions], vec![0.0; 6 * n_cells]);
            assert!(each_frame(&mut positions, n_atoms, &dimensions, nothing).is_err());
        }
    }

    #[test]
    fn heavy_atoms_count_more() {
        let positions = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        assert_eq!(centre(positions.into_iter(), &[2.0, 1.0]), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn useless_weights_are_refused() {
        for (atoms, given) in [
            (&[][..], None),
            (&[2], None),
            (&[0], Some(&[0.0][..])),
            (&[0], Some(&[1.0, 1.0])),
            (&[0, 1], Some(&[2.0, -1.0])),
            (&[0, 1], Some(&[f64::NAN, 1.0])),
        ] {
            assert!(weights(2, atoms, given).is_err(), "{atoms:?} {given:?}");
        }
    }
}
