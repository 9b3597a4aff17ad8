//! Mean and second moment over frames, for each coordinate or each number of a row.
//!
//! Within a leaf, which is a run of consecutive frames, frames are added one by one, in order
//! (Welford 1962, Technometrics 4, 419). Leaves are merged by the method of Chan, Golub & LeVeque
//! (1983, Am. Stat. 37, 242). A partial result therefore contains a count, means, and sums of
//! squared deviations from the means.

use super::check_len;
use super::projection::Superposed;
use paceline_base::error::Result;

/// Add the frames of a block to the moments of earlier frames. Return the sum of the RMSDs (Å) of
/// the superposed atoms, or 0 without superposition. `positions` has the shape (frames, `n_atoms`,
/// 3), Å. `mean` (Å) and `m2` (Å²) contain 3 numbers for each atom of `atoms`. If `count` is zero,
/// all of these numbers must be zero.
///
/// # Errors
/// [`Error::Argument`](paceline_base::error::Error::Argument) if the lengths of the slices do not
/// match.
pub fn accumulate(
    positions: &[f32],
    n_atoms: usize,
    atoms: &Superposed,
    mean: &mut [f64],
    m2: &mut [f64],
    count: &mut u64,
) -> Result<f64> {
    check_len("means", mean.len(), atoms.n_coordinates())?;
    check_len("second moments", m2.len(), mean.len())?;
    atoms.each_frame(positions, n_atoms, |xs| add(xs, mean, m2, count))
}

/// Add rows of numbers to the moments, one row for each frame. A row has one number for each mean.
///
/// # Errors
/// As [`accumulate`].
pub fn accumulate_rows(
    rows: &[f64],
    mean: &mut [f64],
    m2: &mut [f64],
    count: &mut u64,
) -> Result<()> {
    check_len("second moments", m2.len(), mean.len())?;
    let n_rows = rows.len() / mean.len().max(1);
    check_len("numbers of rows", rows.len(), n_rows * mean.len())?;
    for row in rows.chunks_exact(mean.len().max(1)) {
        add(row, mean, m2, count);
    }
    Ok(())
}

fn add<T: Copy + Into<f64>>(xs: &[T], mean: &mut [f64], m2: &mut [f64], count: &mut u64) {
    *count += 1;
    let share = 1.0 / *count as f64;
    for ((mean, m2), &x) in mean.iter_mut().zip(m2.iter_mut()).zip(xs) {
        let x: f64 = x.into();
        let deviation = x - *mean;
        *mean += deviation * share;
        *m2 += deviation * (x - *mean);
    }
}

/// Merge the moments of the right-hand partial result into those of the left-hand one. If the right
/// side has no frames, the left side is unchanged; if the left side has none, it becomes a copy of
/// the right side.
///
/// # Errors
/// [`Error::Argument`](paceline_base::error::Error::Argument) if the two sides have different
/// lengths.
pub fn merge(
    mean: &mut [f64],
    m2: &mut [f64],
    count: &mut u64,
    right_mean: &[f64],
    right_m2: &[f64],
    right_count: u64,
) -> Result<()> {
    for (what, len) in [
        ("second moments on the left", m2.len()),
        ("means on the right", right_mean.len()),
        ("second moments on the right", right_m2.len()),
    ] {
        check_len(what, len, mean.len())?;
    }
    if right_count == 0 {
        return Ok(());
    }
    if *count == 0 {
        *count = right_count;
        mean.copy_from_slice(right_mean);
        m2.copy_from_slice(right_m2);
        return Ok(());
    }
    let left_count = *count as f64;
    *count += right_count;
    let share = right_count as f64 / *count as f64;
    for (i, (mean, m2)) in mean.iter_mut().zip(m2).enumerate() {
        let difference = right_mean[i] - *mean;
        *mean += difference * share;
        *m2 += right_m2[i] + difference * difference * (left_count * share);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::Fit;
    use crate::tests::{Random, rotate, shift};

    const N_ATOMS: usize = 7;
    const FRAME: usize = 3 * N_ATOMS;

    #[derive(Debug, Clone, PartialEq)]
    struct Leaf {
        mean: Vec<f64>,
        m2: Vec<f64>,
        count: u64,
    }

    impl Leaf {
        fn new(atoms: &Superposed) -> Self {
            Leaf {
                mean: vec![0.0; atoms.n_coordinates()],
                m2: vec![0.0; atoms.n_coordinates()],
                count: 0,
            }
        }

        fn add(&mut self, block: &[f32], atoms: &Superposed) {
            let Leaf { mean, m2, count } = self;
            accumulate(block, N_ATOMS, atoms, mean, m2, count).unwrap();
        }

        fn merge(&mut self, right: &Leaf) {
            let Leaf { mean, m2, count } = self;
            merge(mean, m2, count, &right.mean, &right.m2, right.count).unwrap();
        }
    }

    fn trajectory(n_frames: usize) -> Vec<f32> {
        let positions = Random(10).structure(n_frames * N_ATOMS, 2.0, 800.0);
        positions.iter().map(|&x| x as f32).collect()
    }

    fn as_they_are(columns: &[usize]) -> Superposed {
        Superposed::new(columns, None).unwrap()
    }

    fn leaf(block: &[f32], atoms: &Superposed) -> Leaf {
        let mut leaf = Leaf::new(atoms);
        leaf.add(block, atoms);
        leaf
    }

    /// Merge leaves in pairs, in the same order as the Python engine.
    fn tree(leaves: &[Leaf]) -> Leaf {
        if let [leaf] = leaves {
            return leaf.clone();
        }
        let (left, right) = leaves.split_at(leaves.len().div_ceil(2));
        let mut merged = tree(left);
        merged.merge(&tree(right));
        merged
    }

    fn assert_close(leaf: &Leaf, mean: &[f64], m2: &[f64]) {
        for i in 0..mean.len() {
            assert!((leaf.mean[i] - mean[i]).abs() < 1e-11);
            assert!((leaf.m2[i] - m2[i]).abs() < 1e-10 * m2[i]);
        }
    }

    #[test]
    fn one_by_one_and_merged_agree_with_two_passes() {
        let block = trajectory(100);
        for indices in [&[0, 1, 2, 3, 4, 5, 6][..], &[5, 0, 3]] {
            let columns = as_they_are(indices);
            let (mut means, mut m2s) = (Vec::new(), Vec::new());
            for coordinate in indices.iter().flat_map(|i| 3 * i..3 * i + 3) {
                let values = block
                    .chunks(FRAME)
                    .map(|frame| f64::from(frame[coordinate]));
                let mean = values.clone().sum::<f64>() / 100.0;
                m2s.push(values.map(|x| (x - mean) * (x - mean)).sum());
                means.push(mean);
            }
            assert_close(&leaf(&block, &columns), &means, &m2s);
            let leaves = block.chunks(9 * FRAME).map(|block| leaf(block, &columns));
            let merged = tree(&leaves.collect::<Vec<_>>());
            assert_eq!(merged.count, 100);
            assert_close(&merged, &means, &m2s);
        }
    }

    #[test]
    fn frames_that_only_move_have_no_fluctuations_once_superposed() {
        let start = Random(4).structure(N_ATOMS, 5.0, 20.0);
        let mut random = Random(6);
        let block: Vec<f32> = (0..9)
            .flat_map(|_| {
                let turned = rotate(&start, &random.rotation());
                shift(&turned, random.vector().map(|x: f64| 30.0 * x))
            })
            .map(|x| x as f32)
            .collect();
        let fit = Fit {
            columns: &[0, 1, 2, 3, 4],
            reference: &start[..15],
            weights: None,
        };
        let columns = [6, 5, 0];
        let fitted = leaf(&block, &Superposed::new(&columns, Some(fit)).unwrap());
        let unfitted = leaf(&block, &as_they_are(&columns));
        for (k, atom) in columns.into_iter().enumerate() {
            for i in 0..3 {
                assert!((fitted.mean[3 * k + i] - start[3 * atom + i]).abs() < 1e-4);
                assert!(fitted.m2[3 * k + i] < 1e-8 && unfitted.m2[3 * k + i] > 1.0);
            }
        }
    }

    #[test]
    fn a_leaf_is_the_same_however_it_is_cut() {
        let (block, columns) = (trajectory(20), as_they_are(&[1, 2, 3]));
        for n_frames in [1, 3, 7] {
            let mut parts = Leaf::new(&columns);
            for part in block.chunks(n_frames * FRAME) {
                parts.add(part, &columns);
            }
            assert_eq!(parts, leaf(&block, &columns));
        }
    }

    #[test]
    fn an_empty_side_changes_nothing() {
        let columns = as_they_are(&[0, 4]);
        let full = leaf(&trajectory(5), &columns);
        let (mut left, mut right) = (full.clone(), Leaf::new(&columns));
        left.merge(&right);
        right.merge(&full);
        assert_eq!((&left, &right), (&full, &full));
    }

    #[test]
    fn a_position_that_is_no_number_shows() {
        let (mut block, columns) = (trajectory(3), as_they_are(&[2, 3]));
        let known = leaf(&block, &columns);
        block[FRAME] = f32::NAN;
        assert_eq!(leaf(&block, &columns), known, "of an atom not asked for");
        block[FRAME + 3 * 2] = f32::NAN;
        let unknown = leaf(&block, &columns);
        assert_eq!(unknown.count, 3);
        let nan: Vec<bool> = unknown.m2.iter().map(|x| x.is_nan()).collect();
        assert_eq!(nan, [true, false, false, false, false, false]);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let columns = as_they_are(&[0, 7]);
        let mut count = 0;
        let mut add = |n_atoms, mean: &mut [f64], m2: &mut [f64]| {
            accumulate(&[0.0; 24], n_atoms, &columns, mean, m2, &mut count).is_ok()
        };
        assert!(add(8, &mut [0.0; 6], &mut [0.0; 6]));
        assert!(!add(4, &mut [0.0; 6], &mut [0.0; 6]));
        assert!(!add(8, &mut [0.0; 3], &mut [0.0; 3]));
        assert!(!add(8, &mut [0.0; 6], &mut [0.0; 3]));
        assert!(merge(&mut [0.0], &mut [0.0], &mut count, &[0.0; 2], &[0.0; 2], 1).is_err());
    }
}
