//! Whether the numbers of a frame can be true: all finite, and how far out the farthest is.

use super::{check_len, frames};
use crate::error::Result;

/// Numbers that each frame gives: its first atom with a number that is not finite (−1 for none),
/// the largest |x|, |y| or |z| of any atom, and the first atom that has it. The last two are NaN
/// where not all is finite.
pub const N_COLUMNS: usize = 3;

/// Partial results that a compiler can compute side by side.
const LANES: usize = 16;
type Lanes = [f32; LANES];

/// Numbers among which an atom is searched for, once it is known to be there.
const STRETCH: usize = 64 * LANES;

/// Judge each frame of a block, shape (frames, `n_atoms`, 3), into one row of [`N_COLUMNS`].
///
/// # Errors
/// [`Error::Argument`](crate::error::Error::Argument) where the block and `out` do not belong
/// together.
pub fn judge_block(values: &[f32], n_atoms: usize, out: &mut [f64]) -> Result<()> {
    let frames = frames(values, n_atoms)?;
    check_len("numbers to fill", out.len(), frames.len() * N_COLUMNS)?;
    for (frame, row) in frames.zip(out.chunks_exact_mut(N_COLUMNS)) {
        row.copy_from_slice(&judge(frame));
    }
    Ok(())
}

fn judge(frame: &[f32]) -> [f64; N_COLUMNS] {
    let (mut reach, mut farthest) = (0.0, 0);
    for (k, stretch) in frame.chunks(STRETCH).enumerate() {
        let (sum, largest) = scan(stretch);
        // Finite numbers can have an infinite sum.
        if !sum.is_finite()
            && let Some(place) = stretch.iter().position(|x| !x.is_finite())
        {
            return [((k * STRETCH + place) / 3) as f64, f64::NAN, f64::NAN];
        }
        if largest > reach {
            (reach, farthest) = (largest, k * STRETCH);
        }
    }
    let place = frame[farthest..].iter().position(|x| x.abs() == reach);
    let atom = (farthest + place.unwrap_or(0)) / 3;
    [-1.0, f64::from(reach), atom as f64]
}

/// Of all numbers without their signs, the sum in some order and the largest that is not NaN.
fn scan(values: &[f32]) -> (f32, f32) {
    let (mut sums, mut largest) = ([0.0; LANES], [0.0; LANES]);
    let (chunks, rest) = values.as_chunks();
    let mut padded = [0.0; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    add(&mut sums, &mut largest, chunks);
    add(&mut sums, &mut largest, &[padded]);
    (sums.iter().sum(), largest.into_iter().fold(0.0, larger))
}

/// Add to the sum and the largest of each lane.
///
/// Out of line on purpose: beside the sum over lanes, the compiler shuffles every number, which
/// took 1.3 times as long.
#[inline(never)]
fn add(sums: &mut Lanes, largest: &mut Lanes, chunks: &[Lanes]) {
    let (mut sums_here, mut largest_here) = (*sums, *largest);
    for chunk in chunks {
        for lane in 0..LANES {
            let size = chunk[lane].abs();
            sums_here[lane] += size;
            largest_here[lane] = larger(largest_here[lane], size);
        }
    }
    (*sums, *largest) = (sums_here, largest_here);
}

/// One instruction, where `f32::max`, which heeds NaN on either side, takes several.
fn larger(largest: f32, size: f32) -> f32 {
    if size > largest { size } else { largest }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;

    const N_ATOMS: usize = 1000;

    fn block() -> Vec<f32> {
        let positions = Random(3).structure(4 * N_ATOMS, 25.0, 0.0);
        positions.into_iter().map(|x| x as f32).collect()
    }

    fn rows(block: &[f32], n_atoms: usize) -> Vec<[f64; N_COLUMNS]> {
        let mut out = vec![f64::NAN; block.len() / n_atoms];
        judge_block(block, n_atoms, &mut out).unwrap();
        out.as_chunks().0.to_vec()
    }

    #[test]
    fn the_farthest_atom_is_found_wherever_it_stands() {
        for place in [0, 1, 47, 1023, 1024, 2047, 2998, 2999] {
            for far in [1e9, -26.0] {
                let mut block = block();
                block[3 * N_ATOMS + place] = far;
                let row = rows(&block, N_ATOMS)[1];
                let wanted = [-1.0, f64::from(far.abs()), (place / 3) as f64];
                assert_eq!(row, wanted, "{far} at {place}");
            }
        }
    }

    #[test]
    fn the_first_atom_that_is_not_finite_is_named() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 17, 1023, 1024, 2999] {
                let mut block = block();
                let frame = &mut block[N_ATOMS * 6..N_ATOMS * 9];
                frame[place] = value;
                frame[2999] = value;
                let rows = rows(&block, N_ATOMS);
                assert_eq!(rows[2][0], (place / 3) as f64, "{value} at {place}");
                assert!(rows[2][1].is_nan() && rows[2][2].is_nan());
                assert!(rows[1][0] == -1.0 && rows[3][0] == -1.0);
            }
        }
    }

    #[test]
    fn small_frames_and_extreme_numbers_are_judged_too() {
        let largest = f64::from(f32::MAX);
        assert_eq!(rows(&[0.0, 0.0, -0.0], 1), [[-1.0, 0.0, 0.0]]);
        assert_eq!(rows(&[0.0, f32::MIN, 1e-40], 1), [[-1.0, largest, 0.0]]);
        assert_eq!(rows(&[], 5), [[0.0; 3]; 0]);
    }

    #[test]
    fn arguments_must_belong_together() {
        assert!(judge_block(&[0.0; 24], 4, &mut [0.0; 6]).is_ok());
        assert!(judge_block(&[0.0; 24], 4, &mut [0.0; 5]).is_err());
        assert!(judge_block(&[0.0; 25], 4, &mut [0.0; 6]).is_err());
        assert!(judge_block(&[], 0, &mut []).is_err());
    }
}
