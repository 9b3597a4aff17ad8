//! Time of transformations in µs a frame: `cargo bench -p paceline-kernels --bench unwrap`.

use std::hint::black_box;
use std::time::Instant;

use paceline_kernels::fit_group::{Fit, Freedom};
use paceline_kernels::transform_common::Transform;
use paceline_kernels::unwrap::Unwrap;
use paceline_kernels::wrap::Center;
use paceline_kernels::wrap::Wrap;

const FRAMES: usize = 64;
const REPEATS: usize = 15;
/// Number of atoms of a protein.
const ATOMS: usize = 3341;
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

/// Return a branched chain with bonds of about 1.5 Å, folded within 50 Å like a protein.
fn molecule(random: &mut Random) -> (Vec<f32>, Vec<[usize; 2]>) {
    let mut positions = vec![25.0; 3];
    let mut bonds = Vec::new();
    for atom in 1..ATOMS {
        let neighbour = atom.saturating_sub(1 + (3.0 * random.next()) as usize);
        for axis in 0..3 {
            let x = positions[3 * neighbour + axis] + 3.0 * (random.next() - 0.5);
            positions.push(x.clamp(0.0, 50.0));
        }
        bonds.push([neighbour, atom]);
    }
    (positions, bonds)
}

fn main() {
    println!("µs a frame of {ATOMS} atoms, median of {REPEATS} repeats (fastest, slowest)");
    let mut random = Random(7);
    let (whole, bonds) = molecule(&mut random);
    let all: Vec<usize> = (0..ATOMS).collect();
    let reference: Vec<f64> = whole.iter().map(|&x| f64::from(x)).collect();
    let unwrap = Unwrap::new(ATOMS, &bonds).expect("bonds");
    let wrap = Wrap::new(ATOMS, &all, &vec![1; ATOMS], None).expect("atoms");
    let center = Center::new(ATOMS, &all, None, None, false).expect("a group");
    let space = Freedom {
        rotation: true,
        normal: None,
    };
    let fit = Fit::new(ATOMS, &all, &reference, None, space).expect("a group");
    for (name, cell) in CELLS {
        let dimensions = cell.repeat(FRAMES);
        let mut broken = whole.repeat(FRAMES);
        // About half of the molecule extends beyond the cell.
        for x in &mut broken {
            *x += 55.0;
        }
        let block = broken.clone();
        report(name, "wrap", &block, &dimensions, &wrap);
        wrap.apply(&mut broken, &dimensions).expect("frames");
        for (what, block) in [("unwrap, whole", &block), ("unwrap, broken", &broken)] {
            report(name, what, block, &dimensions, &unwrap);
        }
        report(name, "center", &block, &dimensions, &center);
        report(name, "fit", &block, &dimensions, &fit);
    }
}

fn report(cell: &str, what: &str, block: &[f32], dimensions: &[f32], task: &dyn Transform) {
    let mut frames = block.to_vec();
    let mut times: Vec<f64> = (0..=REPEATS)
        .map(|_| {
            frames.copy_from_slice(block);
            let start = Instant::now();
            let refused = task.apply(black_box(&mut frames), dimensions);
            black_box(refused).expect("frames");
            start.elapsed().as_nanos() as f64 / FRAMES as f64 / 1000.0
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{cell:<12} {what:<15} {:>6.1}  ({:.1}, {:.1})",
        times[REPEATS / 2],
        times[0],
        times[REPEATS - 1]
    );
}
