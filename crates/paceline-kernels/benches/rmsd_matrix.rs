//! Time of a pair of frames in the matrix of RMSDs.

use paceline_kernels::rmsd_matrix::PairRmsd;
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let mut state = 1u64;
    let mut number = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    for n_atoms in [50, 214, 3341] {
        let n = if n_atoms > 1000 { 128 } else { 256 };
        let start: Vec<f32> = (0..3 * n_atoms).map(|_| 30.0 * number()).collect();
        let mut frames = |n: usize| -> Vec<f32> {
            let all = start.iter().cycle().take(n * start.len());
            all.map(|x| x + 2.0 * number()).collect()
        };
        let (first, second) = (frames(n), frames(n));
        let mut out = vec![0.0; n * n];
        for superposition in [true, false] {
            let task = PairRmsd::new(n_atoms, None, superposition).unwrap();
            let mut best = f64::INFINITY;
            for _ in 0..10 {
                let begun = Instant::now();
                task.fill(black_box(&first), black_box(&second), &mut out)
                    .unwrap();
                best = best.min(begun.elapsed().as_secs_f64());
            }
            let each = best / (n * n) as f64 * 1e9;
            println!("{n_atoms} atoms, superposition {superposition}: {each:.1} ns a pair");
        }
    }
}
