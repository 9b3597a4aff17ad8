//! Benchmark: time of the mean squared displacement of a particle by Fourier transforms.

use paceline_kernels::correlation::{Correlated, Correlation};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let n_particles = 16;
    for n_frames in [
        1000, 9000, 9216, 9600, 10_000, 10_125, 10_240, 10_368, 10_800, 100_000,
    ] {
        let mut state = 1u64;
        let mut number = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let series: Vec<f32> = (0..3 * n_particles * n_frames).map(|_| number()).collect();
        let axes = [0, 1, 2];
        let task = Correlation::new(Correlated::Displacement, n_frames, 3, &axes, &[], true);
        let task = task.unwrap();
        let (mut out, mut sum) = (vec![0.0; n_particles * n_frames], vec![0.0; n_frames]);
        let mut best = f64::INFINITY;
        for _ in 0..10 {
            let begun = Instant::now();
            task.fill(black_box(&series), &mut out, &mut sum).unwrap();
            best = best.min(begun.elapsed().as_secs_f64());
        }
        let each = best / n_particles as f64 * 1e6;
        println!("{n_frames} frames: {each:.1} µs a particle");
    }
}
