//! Benchmark: nanoseconds per atom to unwrap atoms. Run `cargo bench -p paceline-kernels --bench
//! nojump`.

use std::hint::black_box;
use std::time::Instant;

use paceline_kernels::instructions::{Instructions, allow, used};
use paceline_kernels::nojump::{Follower, NoJump};

/// Numbers of atoms of a protein, of the water oxygens around it, and of both with hydrogens.
const ATOMS: [usize; 3] = [3_341, 11_084, 47_681];
const FRAMES: usize = 16;
const BLOCKS: usize = 31;
const CELLS: [(&str, [f32; 6]); 2] = [
    ("orthogonal", [80.0, 80.0, 80.0, 90.0, 90.0, 90.0]),
    ("dodecahedron", [80.0, 80.0, 80.0, 60.0, 60.0, 90.0]),
];

/// Deterministic random numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }
}

fn main() {
    println!(
        "ns an atom and frame, in blocks of {FRAMES}; median of {BLOCKS} blocks (fastest, slowest)"
    );
    for most in [Instructions::Base, Instructions::Avx2, Instructions::Avx512] {
        allow(most);
        if used() == most {
            for (name, cell) in CELLS {
                for n_atoms in ATOMS {
                    let times = times(cell, n_atoms);
                    let (median, least, most) = (times[BLOCKS / 2], times[0], times[BLOCKS - 1]);
                    let used = format!("{:?}", used());
                    println!(
                        "{used:<6}  {name:<12} {n_atoms:>6} atoms {median:>6.2}  ({least:.2}, {most:.2})"
                    );
                }
            }
        }
    }
}

/// Return the times of all rounds, sorted.
fn times(cell: [f32; 6], n_atoms: usize) -> Vec<f64> {
    let mut random = Random(7);
    let mut frame: Vec<f32> = (0..3 * n_atoms).map(|_| 80.0 * random.next()).collect();
    let mut block = Vec::new();
    for _ in 0..FRAMES {
        for x in &mut frame {
            *x = (*x + 3.0 * (random.next() - 0.5)).rem_euclid(80.0);
        }
        block.extend(&frame);
    }
    let all: Vec<usize> = (0..n_atoms).collect();
    let follower = Follower::new(NoJump::new(n_atoms, &all).expect("atoms"), false);
    let dimensions = cell.repeat(FRAMES);
    let mut images = vec![[0; 3]; n_atoms];
    let mut times: Vec<f64> = (0..BLOCKS)
        .map(|number| {
            let mut moved = block.clone();
            let start = Instant::now();
            let found = follower.move_on(
                number,
                black_box(&mut moved),
                &dimensions,
                Some(&mut images),
            );
            black_box(found).expect("frames");
            start.elapsed().as_nanos() as f64 / (FRAMES * n_atoms) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}
