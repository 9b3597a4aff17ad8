//! RMSD of each frame of a block, as defined by `MDAnalysis.analysis.rms.RMSD`.

use super::row_kernel::{FrameConversion, Frames, RowKernel};
use super::superposition::{Motion, Reference};
use super::transform_common::Refused;
use super::{Columns, check_len};
use paceline_base::error::{Error, Result};

/// Atoms of a block, and their reference positions.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Columns of the atoms in the block.
    pub columns: &'a [usize],
    /// Reference positions x, y, z of each atom, Å.
    pub reference: &'a [f64],
    /// Weights, of which only the ratios matter; `None` for equal weights.
    pub weights: Option<&'a [f64]>,
}

/// RMSDs to compute for each frame: one column per group.
#[derive(Debug, Clone)]
pub struct Rmsd {
    superposition: bool,
    groups: Vec<(Columns, Reference)>,
}

impl Rmsd {
    /// Create a kernel. With superposition, the first group is superposed on its reference by
    /// translation of its weighted centre and by rotation. The same motion is applied to the other
    /// groups. Without superposition, positions are compared unchanged.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no group, a group has no atoms, or the lengths of its
    /// columns, reference and weights do not match.
    pub fn new(groups: &[Group<'_>], superposition: bool) -> Result<Self> {
        let Some(first) = groups.first() else {
            return Err(Error::Argument("an RMSD needs at least one group".into()));
        };
        let origin = if superposition {
            Reference::new(first.reference, first.weights)?.origin()
        } else {
            [0.0; 3]
        };
        let groups = groups.iter().map(|group| {
            let n_coordinates = group.columns.len().saturating_mul(3);
            check_len(
                "reference coordinates",
                group.reference.len(),
                n_coordinates,
            )?;
            let reference = Reference::about(origin, group.reference, group.weights)?;
            Ok((Columns::new(group.columns), reference))
        });
        Ok(Rmsd {
            superposition,
            groups: groups.collect::<Result<_>>()?,
        })
    }

    fn frame(&self, frame: &[f32], scratch: &mut Vec<f32>, out: &mut [f64]) {
        let mut motion = Motion::NONE;
        for (i, (columns, reference)) in self.groups.iter().enumerate() {
            let positions = columns.pick(frame, scratch);
            out[i] = if i > 0 || !self.superposition {
                reference.rmsd(positions, &motion)
            } else if self.groups.len() == 1 {
                reference.min_rmsd(positions)
            } else {
                let (rmsd, fitted) = reference.superpose(positions);
                motion = fitted;
                rmsd
            };
        }
    }
}

impl RowKernel for Rmsd {
    fn conversion(&self) -> FrameConversion {
        FrameConversion::Stored
    }

    fn n_columns(&self) -> usize {
        self.groups.len()
    }

    /// Compute RMSDs, Å. An RMSD is NaN if a position of its group or of the superposed group is
    /// NaN, even if the weight of this atom is 0.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        for (columns, _) in &self.groups {
            columns.check(frames.n_atoms())?;
        }
        let mut scratch = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, _, row| {
            self.frame(frame, &mut scratch, row);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Random, rotate, shift};

    const N_ATOMS: usize = 40;

    /// Return a block of frames that translate and rotate, and each frame in double precision.
    fn trajectory(n_frames: usize) -> (Vec<f32>, Vec<Vec<f64>>) {
        let mut random = Random(8);
        let start = random.structure(N_ATOMS, 15.0, 500.0);
        let block: Vec<f32> = (0..n_frames)
            .flat_map(|_| {
                let noise = random.structure(N_ATOMS, 1.0, 0.0);
                let frame: Vec<f64> = start.iter().zip(noise).map(|(x, y)| x + y).collect();
                shift(&rotate(&frame, &random.rotation()), random.vector())
            })
            .map(|x| x as f32)
            .collect();
        let frames = block.chunks(3 * N_ATOMS);
        let frames = frames.map(|frame| frame.iter().map(|&x| x.into()).collect());
        let frames = frames.collect();
        (block, frames)
    }

    fn pick(frame: &[f64], columns: &[usize]) -> Vec<f64> {
        columns
            .iter()
            .flat_map(|&i| frame[3 * i..3 * i + 3].to_vec())
            .collect()
    }

    fn distance(a: &[f64], b: &[f64]) -> f64 {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
        (squares.sum::<f64>() / (a.len() / 3) as f64).sqrt()
    }

    fn compute(block: &[f32], n_atoms: usize, task: &Rmsd, out: &mut [f64]) -> Result<()> {
        let dimensions = vec![0.0; block.len() / (3 * n_atoms).max(1) * 6];
        let refused = task.compute(&Frames::new(block, n_atoms, &dimensions)?, out)?;
        assert!(refused.is_none());
        Ok(())
    }

    fn run(block: &[f32], task: &Rmsd) -> Vec<f64> {
        let mut out = vec![-1.0; block.len() / 3 / N_ATOMS * task.n_columns()];
        compute(block, N_ATOMS, task, &mut out).unwrap();
        out
    }

    #[test]
    fn groups_follow_the_motion_of_the_first() {
        let (block, frames) = trajectory(5);
        let (core, tail): (Vec<usize>, Vec<usize>) = ((3..30).collect(), vec![39, 2, 17]);
        let weights = Random(9).weights(core.len());
        let (core_reference, tail_reference) = (pick(&frames[0], &core), pick(&frames[0], &tail));
        let groups = [
            Group {
                columns: &core,
                reference: &core_reference,
                weights: Some(&weights),
            },
            Group {
                columns: &tail,
                reference: &tail_reference,
                weights: None,
            },
        ];
        let out = run(&block, &Rmsd::new(&groups, true).unwrap());
        let alone = run(&block, &Rmsd::new(&groups[..1], true).unwrap());
        let reference = Reference::new(&core_reference, Some(&weights)).unwrap();
        for (i, frame) in frames.iter().enumerate() {
            let (rmsd, motion) = reference.superpose(&pick(frame, &core));
            let centred = shift(&pick(frame, &tail), motion.centre.map(|c| -c));
            let moved = shift(&rotate(&centred, &motion.rotation), reference.origin());
            assert_eq!((out[2 * i], alone[i]), (rmsd, rmsd));
            assert!((out[2 * i + 1] - distance(&moved, &tail_reference)).abs() < 1e-11);
        }
        assert!(out[0] < 1e-12 && out[1] < 1e-12 && out[2] > 0.1 && out[3] > 0.1);
    }

    #[test]
    fn without_superposition_positions_are_compared_as_they_are() {
        let (block, frames) = trajectory(3);
        let columns: Vec<usize> = (0..N_ATOMS).rev().collect();
        let reference = pick(&frames[1], &columns);
        let group = Group {
            columns: &columns,
            reference: &reference,
            weights: None,
        };
        let out = run(&block, &Rmsd::new(&[group, group], false).unwrap());
        for (row, frame) in out.chunks(2).zip(&frames) {
            assert!((row[0] - distance(frame, &frames[1])).abs() < 1e-9);
            assert_eq!(row[0], row[1]);
        }
        assert_eq!(out[2], 0.0);
    }

    #[test]
    fn blocks_of_any_size_give_the_same_bits() {
        let (block, frames) = trajectory(12);
        let all: Vec<usize> = (0..N_ATOMS).collect();
        let group = Group {
            columns: &all,
            reference: &frames[0],
            weights: None,
        };
        let task = Rmsd::new(&[group, group], true).unwrap();
        let whole = run(&block, &task);
        for n_frames in [1, 2, 5, 7] {
            let parts = block.chunks(3 * N_ATOMS * n_frames);
            let parts: Vec<f64> = parts.flat_map(|part| run(part, &task)).collect();
            let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&parts), bits(&whole), "blocks of {n_frames} frames");
        }
    }

    #[test]
    fn a_position_that_is_no_number_shows() {
        let (mut block, frames) = trajectory(4);
        let size = 3 * N_ATOMS;
        let reference = pick(&frames[0], &[5, 6, 7]);
        let fitted = Group {
            columns: &[5, 6, 7],
            reference: &reference,
            weights: None,
        };
        let other = Group {
            columns: &[8, 9, 10],
            ..fitted
        };
        block[size..2 * size].fill(f32::NAN);
        block[2 * size] = f32::NAN;
        block[3 * size + 3 * 9] = f32::NAN;
        for superposition in [true, false] {
            let out = run(&block, &Rmsd::new(&[fitted, other], superposition).unwrap());
            let nan: Vec<bool> = out.iter().map(|x| x.is_nan()).collect();
            // NaN is in a whole frame, then in an atom that is not used, and then in an atom of the
            // second group.
            let expected = [false, false, true, true, false, false, false, true];
            assert_eq!(nan, expected, "superposition: {superposition}");
        }
        let alone = run(&block, &Rmsd::new(&[fitted], true).unwrap());
        assert!(alone[1].is_nan() && alone[2].is_finite());
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        assert!(Rmsd::new(&[], true).is_err());
        let group = |columns| Group {
            columns,
            reference: &[1.0; 6],
            weights: None,
        };
        assert!(Rmsd::new(&[group(&[0])], true).is_err());
        let task = Rmsd::new(&[group(&[0, 7])], true).unwrap();
        assert!(compute(&[0.0; 24], 8, &task, &mut [0.0]).is_ok());
        assert!(compute(&[0.0; 24], 8, &task, &mut [0.0; 2]).is_err());
        assert!(compute(&[0.0; 21], 7, &task, &mut [0.0]).is_err());
        assert!(compute(&[0.0; 25], 8, &task, &mut [0.0]).is_err());
        assert!(compute(&[], 0, &task, &mut []).is_err());
    }
}
