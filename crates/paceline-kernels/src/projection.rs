//! Projection of each frame onto directions in the space of all coordinates.

use super::check_len;
use super::rows::{Frames, RowKernel, Taken};
use super::superposed::Superposed;
use super::transform::Refused;
use paceline_base::error::Result;

/// Partial sums in a sum over coordinates: coordinate i adds to sum i modulo this.
const LANES: usize = 4;

/// Directions, and the positions that displacements count from.
#[derive(Debug, Clone)]
pub struct Projection {
    atoms: Superposed,
    /// Å.
    mean: Vec<f64>,
    /// One direction after another.
    directions: Vec<f64>,
}

impl Projection {
    /// `mean` (Å) has 3 numbers an atom of `atoms`, and each of the directions as many.
    ///
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) where these do not belong
    /// together.
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
    fn taken(&self) -> Taken {
        Taken::Stored
    }

    fn n_columns(&self) -> usize {
        self.directions.len() / self.mean.len().max(1)
    }

    /// Displacements along the directions, Å; NaN where a position that counts is.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superposed::Fit;
    use crate::tests::{Random, rotate};

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
}
