//! Time of a radial distribution function in ms a frame:
//! `cargo bench -p paceline-kernels --bench rdf`.

use std::hint::black_box;
use std::time::Instant;

use paceline_kernels::rdf::{Group, Rdf};

const REPEATS: usize = 15;
/// Number of water oxygens in a cell of about 80 Å.
const ATOMS: usize = 11_084;
const CELLS: [(&str, [f32; 6]); 2] = [
    ("orthogonal", [71.3, 71.3, 71.3, 90.0, 90.0, 90.0]),
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
    println!("ms a frame of {ATOMS} atoms, median of {REPEATS} repeats (fastest, slowest)");
    let mut random = Random(7);
    let edges: Vec<f64> = (0..=75).map(|k| 0.2 * f64::from(k)).collect();
    let all: Vec<usize> = (0..ATOMS).collect();
    let positions: Vec<f32> = (0..3 * ATOMS).map(|_| 80.0 * random.next()).collect();
    for (name, cell) in CELLS {
        for other in [false, true] {
            let group = |labels| Group::new(&all, labels).expect("atoms");
            let second = other.then(|| group(None));
            let rdf = Rdf::new(&edges, group(None), second, true).expect("edges");
            let what = if other { "two groups" } else { "one group" };
            report(&format!("{name}, {what}"), &rdf, &positions, &cell);
        }
    }
}

fn report(name: &str, rdf: &Rdf, positions: &[f32], cell: &[f32; 6]) {
    let mut counts = vec![0; 75];
    let mut times: Vec<f64> = (0..=REPEATS)
        .map(|_| {
            let start = Instant::now();
            let counted = rdf.count(black_box(positions), ATOMS, cell, &mut counts);
            counted.expect("a frame").expect("a cell");
            start.elapsed().as_secs_f64() * 1e3
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{name:30} {:6.2} ({:.2}, {:.2})",
        times[REPEATS / 2],
        times[0],
        times[REPEATS - 1]
    );
}
