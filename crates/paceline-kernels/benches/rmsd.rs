//! Time of an RMSD in ns a frame: `cargo bench -p paceline-kernels --bench rmsd`.

use std::hint::black_box;
use std::time::Instant;

use paceline_kernels::instructions::{Instructions, allow};
use paceline_kernels::rmsd::{Group, Rmsd};
use paceline_kernels::row_kernel::{Frames, RowKernel};

const FRAMES: usize = 64;
const REPEATS: usize = 15;

/// Deterministic random numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }
}

fn main() {
    println!("ns a frame, median of {REPEATS} repeats of {FRAMES} frames (fastest, slowest)");
    for n_atoms in [214, 3341, 50_000] {
        let mut random = Random(7);
        let start: Vec<f32> = (0..3 * n_atoms).map(|_| 50.0 * random.next()).collect();
        let block: Vec<f32> = (0..FRAMES)
            .flat_map(|_| start.iter().map(|x| x + random.next()).collect::<Vec<_>>())
            .collect();
        let reference: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
        let masses: Vec<f64> = (0..n_atoms)
            .map(|_| 1.0 + f64::from(random.next()))
            .collect();
        let all: Vec<usize> = (0..n_atoms).collect();
        let reversed: Vec<usize> = (0..n_atoms).rev().collect();
        let backwards: Vec<f64> = reference.rchunks(3).flatten().copied().collect();
        let plain = Group {
            columns: &all,
            reference: &reference,
            weights: None,
        };
        let weighted = Group {
            weights: Some(&masses),
            ..plain
        };
        let scattered = Group {
            columns: &reversed,
            reference: &backwards,
            ..plain
        };
        report("superposed", &block, n_atoms, &[plain], true);
        report("superposed, weights", &block, n_atoms, &[weighted], true);
        report("superposed, scattered", &block, n_atoms, &[scattered], true);
        report(
            "superposed, one group more",
            &block,
            n_atoms,
            &[plain, plain],
            true,
        );
        report("as they are", &block, n_atoms, &[plain], false);
    }
}

fn report(what: &str, block: &[f32], n_atoms: usize, groups: &[Group<'_>], superposition: bool) {
    let task = Rmsd::new(groups, superposition).expect("a valid task");
    let mut out = vec![0.0; FRAMES * task.n_columns()];
    let cells = [0.0; 6 * FRAMES];
    let frames = Frames::new(block, n_atoms, &cells).expect("a valid block");
    for wide in [true, false] {
        allow(if wide {
            Instructions::Avx2
        } else {
            Instructions::Base
        });
        let mut times: Vec<f64> = (0..=REPEATS)
            .map(|_| {
                let start = Instant::now();
                task.compute(black_box(&frames), &mut out)
                    .expect("a valid block");
                black_box(&mut out);
                start.elapsed().as_nanos() as f64 / FRAMES as f64
            })
            .skip(1)
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{n_atoms:>6} atoms  {what:<28} {:>9.0}  ({:.0}, {:.0}) {}",
            times[REPEATS / 2],
            times[0],
            times[REPEATS - 1],
            if wide { "" } else { "base build" }
        );
    }
}
