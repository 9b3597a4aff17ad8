//! Benchmark: time per pair of frames in an RMSD matrix. Run `cargo bench -p paceline-kernels
//! --bench rmsd_matrix`.

use std::hint::black_box;
use std::time::Instant;

use paceline_kernels::instructions::{Instructions, allow, used};
use paceline_kernels::rmsd_matrix::PairRmsd;

/// Number of tiles. The time is that of the fastest tile.
const TILES: usize = 10;

fn main() {
    let mut state = 1u64;
    let mut number = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    println!("ns a pair; the fastest of {TILES} tiles");
    for n_atoms in [50, 214, 3341] {
        let n = if n_atoms > 1000 { 128 } else { 256 };
        let start: Vec<f32> = (0..3 * n_atoms).map(|_| 30.0 * number()).collect();
        let mut frames = |n: usize| -> Vec<f32> {
            let all = start.iter().cycle().take(n * start.len());
            all.map(|x| x + 2.0 * number()).collect()
        };
        let (first, second) = (frames(n), frames(n));
        for most in [Instructions::Base, Instructions::Avx2, Instructions::Avx512] {
            allow(most);
            if used() == most {
                let [superposed, as_they_are] = [true, false]
                    .map(|superposition| time(n_atoms, superposition, &first, &second));
                let used = format!("{most:?}");
                println!(
                    "{used:<6}  {n_atoms:>5} atoms  {superposed:>8.1} superposed  {as_they_are:>8.1} not"
                );
            }
        }
    }
}

fn time(n_atoms: usize, superposition: bool, first: &[f32], second: &[f32]) -> f64 {
    let n_pairs = first.len() / (3 * n_atoms) * (second.len() / (3 * n_atoms));
    let task = PairRmsd::new(n_atoms, None, superposition).expect("atoms");
    let mut out = vec![0.0; n_pairs];
    let mut best = f64::INFINITY;
    for _ in 0..TILES {
        let begun = Instant::now();
        task.fill(black_box(first), black_box(second), |x| x, &mut out)
            .expect("whole frames");
        best = best.min(begun.elapsed().as_secs_f64());
    }
    best / n_pairs as f64 * 1e9
}
