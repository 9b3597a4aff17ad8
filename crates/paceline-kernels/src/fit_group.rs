//! Rigid-body motion of all atoms that superposes a group on its reference.

use super::Columns;
use super::cells_in_standard_form::Basis;
use super::superposition::{IDENTITY, Matrix3, Motion, Reference};
use super::transform_common::{FrameRotation, Notes, Refused, Transform, each_row};
use paceline_base::error::Result;

/// Degrees of freedom of the motion that the fit removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freedom {
    /// True if the rotation is removed in addition to the translation.
    pub rotation: bool,
    /// Axis (0 to 2) along which nothing is translated, and about which the only rotation takes
    /// place. `None` for motion in three dimensions.
    pub normal: Option<usize>,
}

/// Group of atoms, and the reference on which it is superposed.
#[derive(Debug, Clone)]
pub struct Fit {
    n_atoms: usize,
    columns: Columns,
    reference: Reference,
    freedom: Freedom,
}

impl Fit {
    /// Create a fit. `reference` contains x, y, z (Å) of each atom of `atoms`.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if there are no reference atoms,
    /// the numbers of atoms, reference positions and weights differ, an atom is out of range, a
    /// position is not finite in single precision, or weights are negative, not finite or all 0.
    pub fn new(
        n_atoms: usize,
        atoms: &[usize],
        reference: &[f64],
        weights: Option<&[f64]>,
        freedom: Freedom,
    ) -> Result<Self> {
        let columns = Columns::new(atoms);
        columns.check(n_atoms)?;
        super::check_len("reference coordinates", reference.len(), 3 * columns.len())?;
        Ok(Fit {
            n_atoms,
            columns,
            reference: Reference::new(reference, weights)?,
            freedom,
        })
    }
}

impl Transform for Fit {
    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn basis(&self) -> Option<Basis> {
        None
    }

    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        self.apply_noting(positions, dimensions, &mut Notes::default())
    }

    fn apply_noting(
        &self,
        positions: &mut [f32],
        dimensions: &[f32],
        notes: &mut Notes,
    ) -> Result<Vec<Refused>> {
        let mut scratch = Vec::new();
        each_row(positions, self.n_atoms, dimensions, |row, frame, _| {
            let (_, best) = self
                .reference
                .superpose(self.columns.pick(frame, &mut scratch));
            let (motion, target) = self.freedom.of(&best, self.reference.origin());
            let found = motion.centre.iter().chain(motion.rotation.iter().flatten());
            if !found.into_iter().all(|x| x.is_finite()) {
                return Err("a position of the group to fit is not finite".to_string());
            }
            change(frame, &motion, target);
            if self.freedom.rotation {
                notes.rotations.push(FrameRotation {
                    row,
                    rotation: motion.rotation,
                    centre: motion.centre,
                    target,
                });
            }
            Ok(())
        })
    }
}

impl Freedom {
    /// Restrict the best-fit motion to these degrees of freedom. Return the motion and the new
    /// centre.
    fn of(self, best: &Motion, mut target: [f64; 3]) -> (Motion, [f64; 3]) {
        if let Some(axis) = self.normal {
            target[axis] = best.centre[axis];
        }
        let rotation = match (self.rotation, self.normal) {
            (false, _) => IDENTITY,
            (true, None) => best.rotation,
            (true, Some(axis)) => about_axis(&best.rotation, axis),
        };
        (Motion { rotation, ..*best }, target)
    }
}

/// Return the part of a rotation that is about one axis. It is the rotation by one of the three
/// Euler angles about the fixed axes x, y and z, in this order, as in
/// `MDAnalysis.lib.transformations.euler_from_matrix`.
fn about_axis(rotation: &Matrix3, axis: usize) -> Matrix3 {
    let r = rotation;
    let cosine_y = (r[0][0] * r[0][0] + r[0][1] * r[0][1]).sqrt();
    // If the rotation about y is a right angle, rotations about x and z have the same effect. The
    // angle about x then represents both.
    let upright = cosine_y <= 4.0 * f64::EPSILON;
    let (cosine, sine) = match axis {
        0 if upright => (r[1][1], -r[2][1]),
        0 => (r[2][2] / cosine_y, r[1][2] / cosine_y),
        1 => (cosine_y, -r[0][2]),
        _ if upright => (1.0, 0.0),
        _ => (r[0][0] / cosine_y, r[0][1] / cosine_y),
    };
    let (next, after) = ((axis + 1) % 3, (axis + 2) % 3);
    let mut about = IDENTITY;
    about[next][next] = cosine;
    about[next][after] = sine;
    about[after][next] = -sine;
    about[after][after] = cosine;
    about
}

fn change(frame: &mut [f32], Motion { centre, rotation }: &Motion, target: [f64; 3]) {
    let r = rotation;
    let (atoms, _) = frame.as_chunks_mut();
    for atom in atoms {
        let x: [f32; 3] = *atom;
        let [x, y, z] = std::array::from_fn(|i| f64::from(x[i]) - centre[i]);
        *atom =
            std::array::from_fn(|j| (x * r[0][j] + y * r[1][j] + z * r[2][j] + target[j]) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, rotate, shift};

    const WHOLE: Freedom = Freedom {
        rotation: true,
        normal: None,
    };

    fn single(positions: &[f64]) -> Vec<f32> {
        positions.iter().map(|&x| x as f32).collect()
    }

    fn assert_close(found: &[f32], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 1e-4,
                "{found} {expected}"
            );
        }
    }

    #[test]
    fn a_motion_is_taken_away() {
        let mut random = Random(31);
        let structure = random.structure(40, 20.0, 30.0);
        let group: Vec<usize> = (0..40).rev().step_by(3).collect();
        let reference: Vec<f64> = group
            .iter()
            .flat_map(|&atom| structure[3 * atom..3 * atom + 3].to_vec())
            .collect();
        let weights = random.weights(group.len());
        let fit = Fit::new(40, &group, &reference, Some(&weights), WHOLE).expect("a group");
        let mut block = Vec::new();
        for _ in 0..3 {
            block.extend(rotate(&structure, &random.rotation()));
            let moved = shift(&structure, random.vector().map(|x| 50.0 * x));
            block.extend(moved);
        }
        let mut block = single(&block);
        assert_eq!(fit.apply(&mut block, &[0.0; 36]).expect("frames"), []);
        assert_close(&block, &structure.repeat(6));
    }

    #[test]
    fn a_plane_keeps_its_normal() {
        let mut random = Random(32);
        let structure = random.structure(20, 15.0, 0.0);
        let all: Vec<usize> = (0..20).collect();
        for axis in 0..3 {
            let turn = about_axis(&random.rotation(), axis);
            let by = random.vector();
            let moved = shift(&rotate(&structure, &turn), by);
            let freedom = Freedom {
                rotation: true,
                normal: Some(axis),
            };
            let fit = Fit::new(20, &all, &structure, None, freedom).expect("a group");
            let mut found = single(&moved);
            fit.apply(&mut found, &[0.0; 6]).expect("a frame");
            let mut along = [0.0; 3];
            along[axis] = by[axis];
            assert_close(&found, &shift(&structure, along));
        }
    }

    #[test]
    fn without_rotation_centres_meet() {
        let structure = [0.0, 0.0, 0.0, 2.0, 4.0, 6.0];
        let freedom = Freedom {
            rotation: false,
            normal: Some(2),
        };
        let fit = Fit::new(3, &[2, 0], &structure, None, freedom).expect("a group");
        let mut frame = [9.0, 9.0, 9.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        fit.apply(&mut frame, &[0.0; 6]).expect("a frame");
        assert_eq!(frame, [5.0, 6.0, 9.0, -4.0, -3.0, 0.0, -3.0, -2.0, 1.0]);
    }

    #[test]
    fn a_lost_atom_cannot_be_fitted() {
        let mut random = Random(33);
        let structure = random.structure(5, 9.0, 0.0);
        let fit = Fit::new(5, &[0, 1, 2, 3], &structure[..12], None, WHOLE).expect("a group");
        let mut frame = single(&structure);
        frame[4] = f32::INFINITY;
        let refused = fit.apply(&mut frame, &[0.0; 6]).expect("a frame");
        assert_eq!(refused.len(), 1);
        assert!(frame.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn groups_that_do_not_fit_are_refused() {
        let structure = [0.0; 9];
        for (atoms, len) in [(&[0, 1][..], 9), (&[0, 1, 3], 9), (&[], 0)] {
            assert!(
                Fit::new(3, atoms, &structure[..len], None, WHOLE).is_err(),
                "{atoms:?}"
            );
        }
    }
}
