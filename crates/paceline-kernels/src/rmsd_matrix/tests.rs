use super::*;
use crate::superposition::{Motion, Reference};
use crate::tests::{Random, rotate, shift};

/// Return frames that translate and rotate, in single precision; consecutive frames are similar.
fn frames(n_atoms: usize, n_frames: usize, size: f64) -> Vec<f32> {
    let mut random = Random(n_atoms as u64);
    let start = random.structure(n_atoms, 10.0, 300.0);
    let frames = (0..n_frames).flat_map(|frame| {
        let noise = random.structure(n_atoms, size * (frame % 3) as f64, 0.0);
        let frame: Vec<f64> = start.iter().zip(noise).map(|(x, y)| x + y).collect();
        shift(&rotate(&frame, &random.rotation()), random.vector())
    });
    frames.map(|x| x as f32).collect()
}

fn fill(task: &PairRmsd, first: &[f32], second: &[f32]) -> Vec<f64> {
    let len = 3 * task.n_atoms;
    let mut out = vec![-1.0; first.len() / len * (second.len() / len)];
    task.fill(first, second, |x| x, &mut out).unwrap();
    out
}

/// Compare with the kernel for single pairs, which has the same definition but computes other sums.
fn check(n_atoms: usize, weights: Option<&[f64]>, superposition: bool, tolerance: f64) {
    let block = frames(n_atoms, 11, 2.0);
    let task = PairRmsd::new(n_atoms, weights, superposition).unwrap();
    let found = fill(&task, &block, &block[..9 * 3 * n_atoms]);
    for (i, row) in found.chunks(9).enumerate() {
        for (j, found) in row.iter().enumerate() {
            let frame = |k: usize| block[3 * n_atoms * k..][..3 * n_atoms].to_vec();
            let fixed: Vec<f64> = frame(j).into_iter().map(f64::from).collect();
            let expected = if superposition {
                Reference::new(&fixed, weights).unwrap().min_rmsd(&frame(i))
            } else {
                let fixed = Reference::about([0.0; 3], &fixed, weights).unwrap();
                fixed.rmsd(&frame(i), &Motion::NONE)
            };
            let error = (found - expected).abs();
            assert!(
                error < tolerance,
                "{n_atoms} atoms, {i}, {j}: {found} {expected}"
            );
        }
    }
}

#[test]
fn pairs_agree_with_the_kernel_of_one() {
    for n_atoms in [1, 2, 3, 4, 95, 96, 97, 214] {
        let weights = Random(3).weights(n_atoms);
        for weights in [None, Some(&weights[..])] {
            check(n_atoms, weights, true, 1e-9);
            check(n_atoms, weights, false, 1e-10);
        }
    }
}

#[test]
fn frames_almost_alike_keep_their_digits() {
    let (n_atoms, mut random) = (50, Random(7));
    let start = random.structure(n_atoms, 15.0, 0.0);
    let block: Vec<f32> = [0.0, 1e-4, 2e-3]
        .iter()
        .flat_map(|by| start.iter().enumerate().map(move |(k, x)| (k, x, by)))
        .map(|(k, x, by)| (x + by * if k % 2 == 0 { 1.0 } else { -1.0 }) as f32)
        .collect();
    let task = PairRmsd::new(n_atoms, None, true).unwrap();
    let found = fill(&task, &block, &block.clone());
    let frame = |k: usize| &block[150 * k..150 * (k + 1)];
    for (i, j) in [(0, 0), (0, 1), (1, 0), (0, 2), (2, 1)] {
        let fixed: Vec<f64> = frame(j).iter().map(|&x| x.into()).collect();
        let expected = Reference::new(&fixed, None).unwrap().min_rmsd(frame(i));
        assert!((found[3 * i + j] - expected).abs() < 1e-12, "{i}, {j}");
    }
    assert!(found[0] < 1e-12 && found[1] > 1e-5);
}

#[test]
fn the_same_structure_again_is_at_no_distance() {
    let mut random = Random(11);
    for n_atoms in [1, 2, 3, 17, 97] {
        let weights = random.weights(n_atoms);
        let (scattered, line) = (random.structure(n_atoms, 10.0, 50.0), random.vector::<3>());
        let along = (0..3 * n_atoms).map(|k| ((k / 3) as f64).sqrt() * line[k % 3]);
        for frame in [scattered, along.collect()] {
            let frame: Vec<f32> = frame.into_iter().map(|x| x as f32).collect();
            for weights in [None, Some(&weights[..])] {
                let task = PairRmsd::new(n_atoms, weights, true).unwrap();
                let found = fill(&task, &frame, &frame.repeat(3));
                assert_eq!(found, [0.0; 3], "{n_atoms} atoms");
            }
        }
    }
}

#[test]
fn tiles_and_registers_change_no_bit() {
    check_bits(101, 19);
    check_bits(3, GROUP + 19);
}

/// Check that single rows, other instruction sets and half of the matrix give the same bits.
fn check_bits(n_atoms: usize, n: usize) {
    let block = frames(n_atoms, n, 1.5);
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for superposition in [true, false] {
        let weights = Random(5).weights(n_atoms);
        let task = PairRmsd::new(n_atoms, Some(&weights), superposition).unwrap();
        let whole = fill(&task, &block, &block.clone());
        for (i, first) in block.chunks(3 * n_atoms).enumerate() {
            let row = fill(&task, first, &block[3 * n_atoms * i..]);
            assert_eq!(bits(&row), bits(&whole[n * i + i..n * (i + 1)]), "row {i}");
        }
        let mut plain = vec![0.0; n * n];
        task.fill_by::<BASE_ROWS, _>(&block, &block.clone(), |x| x, &mut plain);
        assert_eq!(bits(&plain), bits(&whole));
        #[cfg(target_arch = "x86_64")]
        if used() >= Instructions::Avx2 {
            let mut by_avx2 = vec![0.0; n * n];
            // SAFETY: the processor has the required features.
            unsafe { task.fill_by_avx2(&block, &block.clone(), |x| x, &mut by_avx2) };
            assert_eq!(bits(&by_avx2), bits(&whole));
        }
        let upper = fill(&task, &block, &block);
        for i in 0..n {
            let row = n * i + i..n * (i + 1);
            assert_eq!(bits(&upper[row.clone()]), bits(&whole[row]), "row {i}");
        }
    }
}

#[test]
fn a_position_that_is_no_number_shows() {
    let (n_atoms, n) = (20, 10);
    let mut block = frames(n_atoms, n, 1.0);
    block[3 * n_atoms * 4 + 7] = f32::NAN;
    for superposition in [true, false] {
        let task = PairRmsd::new(n_atoms, None, superposition).unwrap();
        let found = fill(&task, &block, &block.clone());
        for (k, found) in found.iter().enumerate() {
            assert_eq!(found.is_nan(), k / n == 4 || k % n == 4, "{k}");
        }
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    assert!(PairRmsd::new(0, None, true).is_err());
    assert!(PairRmsd::new(2, Some(&[1.0]), true).is_err());
    assert!(PairRmsd::new(2, Some(&[0.0, 0.0]), true).is_err());
    let task = PairRmsd::new(2, None, true).unwrap();
    assert!(task.fill(&[0.0; 6], &[0.0; 7], |x| x, &mut [0.0]).is_err());
    assert!(task.fill(&[0.0; 6], &[0.0; 12], |x| x, &mut [0.0]).is_err());
}

#[test]
fn tiles_fill_the_matrix() {
    let (n, size) = (11, 4);
    let pair = |i: usize, j: usize| (100 * i.min(j) + i.max(j)) as f64;
    let mut square = vec![-1.0f32; n * n];
    let mut condensed = vec![-1.0; n * (n - 1) / 2];
    for first in (0..n).step_by(size) {
        for second in (first..n).step_by(size) {
            let rows = first..n.min(first + size);
            let columns = second..n.min(second + size);
            let tile: Vec<f64> = rows
                .clone()
                .flat_map(|i| columns.clone().map(move |j| pair(i, j)))
                .collect();
            let single: Vec<f32> = tile.iter().map(|x| *x as f32).collect();
            let put = (rows.clone(), columns.clone());
            put_tile(&mut square, (n, false), &single, put.0, put.1).unwrap();
            put_tile(&mut condensed, (n, true), &tile, rows, columns).unwrap();
        }
    }
    for i in 0..n {
        for j in 0..n {
            assert_eq!(square[n * i + j], pair(i, j) as f32, "{i}, {j}");
        }
    }
    let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    let expected: Vec<f64> = pairs.map(|(i, j)| pair(i, j)).collect();
    assert_eq!(condensed, expected);
    let mut small = vec![0.0; 9];
    for (rows, columns) in [(0..2, 2..4), (0..4, 0..1), (0..1, 0..1)] {
        let put = put_tile(&mut small, (3, false), &[0.0; 4], rows, columns);
        assert!(put.is_err());
    }
}
