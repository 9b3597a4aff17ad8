//! Projection of each frame onto directions in coordinate space, such as principal components.

use super::row_kernel::{FrameConversion, Frames, RowKernel};
use super::superposition::{Motion, Reference};
use super::transform_common::Refused;
use super::{Columns, check_len, frames};
use paceline_base::error::Result;

/// Number of interleaved partial sums: coordinate i is added to partial sum i modulo `LANES`.
const LANES: usize = 4;

/// Directions onto which the displacements from the mean positions are projected.
#[derive(Debug, Clone)]
pub struct Projection {
    atoms: Superposed,
    /// Mean positions, Å.
    mean: Vec<f64>,
    /// Components of the directions, one direction after the other.
    directions: Vec<f64>,
}

impl Projection {
    /// Create a projection. `mean` (Å) and each direction contain 3 numbers for each atom of
    /// `atoms`.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if the lengths of the slices do
    /// not match.
    pub fn new(atoms: Superposed, mean: &[f64], directions: &[f64]) -> Result<Self> {
        let n = atoms.n_coordinates();
        check_len("means", mean.len(), n)?;
        let n_directions = directions.len() / n.max(1);
        check_len("numbers of directions", directions.len(), n_directions * n)?;
        Ok(Projection {
            atoms,
            mean: mean.to_vec(),
            directions: directions.to_vec(),
        })
    }
}

impl RowKernel for Projection {
    fn conversion(&self) -> FrameConversion {
        FrameConversion::Stored
    }

    fn n_columns(&self) -> usize {
        self.directions.len() / self.mean.len().max(1)
    }

    /// Compute the components of the displacements along the directions, Å. They are NaN if the
    /// position of a projected or fitted atom is NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.atoms.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        let mut displacements = vec![0.0; self.mean.len()];
        frames.fill_rows(out, self.n_columns(), |frame, _, row| {
            self.atoms.fill(frame, &mut scratch, &mut displacements);
            for (x, mean) in displacements.iter_mut().zip(&self.mean) {
                *x -= mean;
            }
            let directions = self.directions.chunks_exact(self.mean.len());
            for (along, direction) in row.iter_mut().zip(directions) {
                *along = dot(&displacements, direction);
            }
            Ok(())
        })
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    let [a, b, c, d] = sums;
    (a + b) + (c + d)
}

// Positions of some atoms in double precision, with or without superposition on a reference.

/// Atoms of a block, and the superposition that is applied to their positions.
#[derive(Debug, Clone)]
pub struct Superposed {
    atoms: Columns,
    fit: Option<(Columns, Reference)>,
}

/// Atoms that are superposed on a reference. The same motion is applied to the other atoms.
#[derive(Debug, Clone, Copy)]
pub struct Fit<'a> {
    /// Columns of these atoms in the block.
    pub columns: &'a [usize],
    /// Reference positions x, y, z of each atom, Å.
    pub reference: &'a [f64],
    /// Weights, of which only the ratios matter; `None` for equal weights.
    pub weights: Option<&'a [f64]>,
}

impl Superposed {
    /// Create a selection of atoms, given as columns of the block. With `fit`, the positions are
    /// transformed by the motion that superposes the atoms of `fit` on their reference.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if there are no reference atoms,
    /// the numbers of columns, reference positions and weights differ, a position is not finite in
    /// single precision, or weights are negative, not finite or all 0.
    pub fn new(atoms: &[usize], fit: Option<Fit<'_>>) -> Result<Self> {
        let fit = match fit {
            None => None,
            Some(fit) => {
                let n_coordinates = fit.columns.len().saturating_mul(3);
                check_len("reference coordinates", fit.reference.len(), n_coordinates)?;
                let reference = Reference::new(fit.reference, fit.weights)?;
                Some((Columns::new(fit.columns), reference))
            }
        };
        Ok(Superposed {
            atoms: Columns::new(atoms),
            fit,
        })
    }

    /// Return the number of coordinates of these atoms.
    pub fn n_coordinates(&self) -> usize {
        self.atoms.len().saturating_mul(3)
    }

    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if a column is `n_atoms` or
    /// larger.
    pub fn check(&self, n_atoms: usize) -> Result<()> {
        self.atoms.check(n_atoms)?;
        match &self.fit {
            Some((columns, _)) => columns.check(n_atoms),
            None => Ok(()),
        }
    }

    /// Fill `coordinates` (Å) from a frame. Return the RMSD (Å) of the fitted atoms, or 0 without a
    /// fit. The caller must call `check` first.
    pub fn fill(&self, frame: &[f32], scratch: &mut Vec<f32>, coordinates: &mut [f64]) -> f64 {
        let Some((columns, reference)) = &self.fit else {
            let picked = self.atoms.pick(frame, scratch);
            for (x, &picked) in coordinates.iter_mut().zip(picked) {
                *x = f64::from(picked);
            }
            return 0.0;
        };
        let (rmsd, motion) = reference.superpose(columns.pick(frame, scratch));
        let picked = self.atoms.pick(frame, scratch);
        apply(&motion, reference.origin(), picked, coordinates);
        rmsd
    }

    /// Call `visit` with the coordinates (Å) of each frame of a block, in order. Return the sum of
    /// the RMSDs (Å) of the fitted atoms, or 0 without a fit.
    ///
    /// # Errors
    /// As [`Superposed::check`], and if the block does not contain whole frames.
    pub fn each_frame(
        &self,
        positions: &[f32],
        n_atoms: usize,
        mut visit: impl FnMut(&[f64]),
    ) -> Result<f64> {
        self.check(n_atoms)?;
        let mut scratch = Vec::new();
        let mut coordinates = vec![0.0; self.n_coordinates()];
        let mut total = 0.0;
        for frame in frames(positions, n_atoms)? {
            total += self.fill(frame, &mut scratch, &mut coordinates);
            visit(&coordinates);
        }
        Ok(total)
    }
}

/// Transform positions by a motion, and move the centre to `target`.
fn apply(motion: &Motion, target: [f64; 3], from: &[f32], to: &mut [f64]) {
    let Motion {
        centre,
        rotation: r,
    } = motion;
    for (to, from) in to
        .as_chunks_mut::<3>()
        .0
        .iter_mut()
        .zip(from.as_chunks::<3>().0)
    {
        let [x, y, z] = [0, 1, 2].map(|i| f64::from(from[i]) - centre[i]);
        *to = std::array::from_fn(|j| x * r[0][j] + y * r[1][j] + z * r[2][j] + target[j]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::Fit;
    use crate::tests::{Random, rotate, shift};

    fn compute(block: &[f32], n_atoms: usize, task: &Projection) -> Vec<f64> {
        let n_frames = block.len() / (3 * n_atoms);
        let mut out = vec![-1.0; n_frames * task.n_columns()];
        let dimensions = vec![0.0; 6 * n_frames];
        let frames = Frames::new(block, n_atoms, &dimensions).unwrap();
        assert!(task.compute(&frames, &mut out).unwrap().is_none());
        out
    }

    #[test]
    fn displacements_along_directions() {
        let mean = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let directions = [[0.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.5; 6]].concat();
        let atoms = Superposed::new(&[2, 0], None).unwrap();
        let task = Projection::new(atoms, &mean, &directions).unwrap();
        let at_mean = [4.0, 5.0, 6.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0];
        let displaced = [4.0, 8.0, 6.0, 0.0, 0.0, 0.0, 2.0, 2.0, 3.0];
        let left_out = [f32::NAN; 9];
        let out = compute(&[at_mean, displaced, left_out].concat(), 3, &task);
        assert_eq!(out[..4], [0.0, 0.0, 3.0, 2.0]);
        assert!(out[4].is_nan() && out[5].is_nan());
    }

    #[test]
    fn a_structure_that_turned_is_not_displaced_once_superposed() {
        let mut random = Random(3);
        let start = random.structure(12, 9.0, 0.0);
        let turned: Vec<f32> = rotate(&start, &random.rotation())
            .into_iter()
            .map(|x| x as f32)
            .collect();
        let all: Vec<usize> = (0..12).collect();
        let direction = random.structure(12, 1.0, 0.0);
        let project = |fit| {
            let atoms = Superposed::new(&all, fit).unwrap();
            compute(
                &turned,
                12,
                &Projection::new(atoms, &start, &direction).unwrap(),
            )[0]
        };
        let fit = Fit {
            columns: &all,
            reference: &start,
            weights: None,
        };
        assert!(project(Some(fit)).abs() < 1e-4);
        assert!(project(None).abs() > 0.1);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let atoms = Superposed::new(&[0, 5], None).unwrap();
        assert!(Projection::new(atoms.clone(), &[0.0; 3], &[0.0; 6]).is_err());
        assert!(Projection::new(atoms.clone(), &[0.0; 6], &[0.0; 7]).is_err());
        let task = Projection::new(atoms, &[0.0; 6], &[0.0; 12]).unwrap();
        let frames = Frames::new(&[0.0; 15], 5, &[0.0; 6]).unwrap();
        assert!(task.compute(&frames, &mut [0.0; 2]).is_err());
    }

    const N_ATOMS: usize = 45;

    /// Return a structure, and a block in which the structure moves as a rigid body.
    fn moved(n_frames: usize) -> (Vec<f64>, Vec<f32>) {
        let mut random = Random(21);
        let start = random.structure(N_ATOMS, 15.0, 60.0);
        let block = (0..n_frames)
            .flat_map(|_| shift(&rotate(&start, &random.rotation()), random.vector()))
            .map(|x| x as f32)
            .collect();
        (start, block)
    }

    fn pick(positions: &[f64], columns: &[usize]) -> Vec<f64> {
        let atoms = columns.iter();
        atoms
            .flat_map(|&i| positions[3 * i..3 * i + 3].to_vec())
            .collect()
    }

    #[test]
    fn all_atoms_follow_the_motion_of_those_that_are_fitted() {
        let (start, block) = moved(4);
        let (fitted, atoms) = ([3, 9, 30, 31, 5], [44, 0, 12]);
        let reference = pick(&start, &fitted);
        let weights = Random(2).weights(fitted.len());
        let fit = Fit {
            columns: &fitted,
            reference: &reference,
            weights: Some(&weights),
        };
        let superposed = Superposed::new(&atoms, Some(fit)).unwrap();
        let (expected, mut n_frames) = (pick(&start, &atoms), 0);
        let total = superposed.each_frame(&block, N_ATOMS, |coordinates| {
            n_frames += 1;
            for (found, expected) in coordinates.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4, "{found} {expected}");
            }
        });
        assert_eq!(n_frames, 4);
        assert!(total.unwrap() < 1e-4);
    }

    #[test]
    fn the_rmsds_add_up() {
        let (start, mut block) = moved(3);
        block[7] += 3.0;
        let all: Vec<usize> = (0..N_ATOMS).collect();
        let fit = Fit {
            columns: &all,
            reference: &start,
            weights: None,
        };
        let superposed = Superposed::new(&[0], Some(fit)).unwrap();
        let reference = Reference::new(&start, None).unwrap();
        let frames = block.chunks(3 * N_ATOMS);
        let expected: f64 = frames.map(|frame| reference.min_rmsd(frame)).sum();
        let total = superposed.each_frame(&block, N_ATOMS, |_| {}).unwrap();
        assert_eq!(total, expected);
        assert!(total > 0.3);
    }

    #[test]
    fn without_a_fit_positions_stay_as_they_are() {
        let (_, block) = moved(2);
        let superposed = Superposed::new(&[7, 2], None).unwrap();
        let mut found = Vec::new();
        let total = superposed.each_frame(&block, N_ATOMS, |x| found.extend_from_slice(x));
        assert_eq!(total.unwrap(), 0.0);
        let expected = block.chunks(3 * N_ATOMS).flat_map(|frame| {
            let frame: Vec<f64> = frame.iter().map(|&x| x.into()).collect();
            pick(&frame, &[7, 2])
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_fitted_position_that_is_no_number_shows() {
        let (start, mut block) = moved(2);
        block[3 * N_ATOMS] = f32::NAN;
        let fit = Fit {
            columns: &[0, 1, 2, 3],
            reference: &start[..12],
            weights: None,
        };
        let superposed = Superposed::new(&[8], Some(fit)).unwrap();
        let mut nan = Vec::new();
        let total = superposed.each_frame(&block, N_ATOMS, |x| nan.push(x[0].is_nan()));
        assert_eq!(nan, [false, true]);
        assert!(total.unwrap().is_nan());
    }

    #[test]
    fn a_reference_of_other_atoms_is_refused() {
        let fit = |columns, reference| Fit {
            columns,
            reference,
            weights: None,
        };
        assert!(Superposed::new(&[0], Some(fit(&[0, 1], &[0.0; 3]))).is_err());
        assert!(Superposed::new(&[0], Some(fit(&[], &[]))).is_err());
        let superposed = Superposed::new(&[0], Some(fit(&[5], &[0.0; 3]))).unwrap();
        assert!(superposed.each_frame(&[0.0; 18], 6, |_| {}).is_ok());
        assert!(superposed.each_frame(&[0.0; 15], 5, |_| {}).is_err());
        assert!(superposed.each_frame(&[0.0; 19], 6, |_| {}).is_err());
        let alone = Superposed::new(&[6], None).unwrap();
        assert!(alone.each_frame(&[0.0; 18], 6, |_| {}).is_err());
    }
}
