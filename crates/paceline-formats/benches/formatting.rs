//! Benchmark: nanoseconds to write and read numbers and atoms as text. Run `cargo bench -p
//! paceline-formats --bench formatting`.

use std::hint::black_box;
use std::time::Instant;

use paceline_formats::dlpoly::encode::{Atom, atom_size};
use paceline_formats::fortran_numbers::{f, g20_10, take_real, three_g20_10};

const REPEATS: usize = 15;
const NUMBERS: usize = 90_000;

/// Deterministic random numbers from -1 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 as i64) as f64 / i64::MAX as f64
    }
}

fn main() {
    println!("ns, median of {REPEATS} repeats (fastest, slowest)");
    let mut random = Random(7);
    // Typical positions (Å), velocities (Å/ps) and forces (DL_POLY's unit) of a molten salt.
    let sizes = [64.0, 64.0, 64.0, 9.0, 9.0, 9.0, 5e3, 5e3, 5e3];
    let numbers: Vec<f64> = (0..NUMBERS).map(|i| sizes[i % 9] * random.next()).collect();
    let text: Vec<[u8; 20]> = numbers.iter().map(|&value| g20_10(value)).collect();

    report("write G20.10", NUMBERS, || {
        for &value in &numbers {
            black_box(g20_10(value));
        }
    });
    report("write G20.10, all below 1e-18", NUMBERS, || {
        for &value in &numbers {
            black_box(g20_10(1e-24 * value));
        }
    });
    report("write F12.6", NUMBERS, || {
        for &value in &numbers {
            black_box(f::<12, 6>(value));
        }
    });
    report("write {:.9e} of Rust's own", NUMBERS, || {
        for &value in &numbers {
            black_box(format!("{value:20.9e}"));
        }
    });
    report("read a number", NUMBERS, || {
        for columns in &text {
            black_box(take_real(&mut &columns[..]));
        }
    });
    report("read a number by its columns", NUMBERS, || {
        for line in text.as_chunks::<3>().0 {
            black_box(three_g20_10(line.as_flattened()));
        }
    });
    report("read a number by Rust's own", NUMBERS, || {
        for columns in &text {
            let text = std::str::from_utf8(columns).expect("ASCII");
            black_box(text.trim().parse::<f64>().expect("a number"));
        }
    });
    report_atoms(&numbers);
}

fn report_atoms(numbers: &[f64]) {
    let (vectors, _) = numbers.as_chunks::<3>();
    let mut bytes = vec![0; vectors.len() / 3 * atom_size(2)];
    for (name, put) in [
        ("an atom of a CONFIG", Atom::put_config as fn(&_, &mut [u8])),
        ("an atom of a HISTORY", Atom::put_history),
    ] {
        report(name, vectors.len() / 3, || {
            let lines = bytes.chunks_exact_mut(atom_size(2));
            for ((vectors, lines), id) in vectors.chunks_exact(3).zip(lines).zip(1..) {
                let atom = Atom {
                    id,
                    name: *b"Na+     ",
                    mass: 22.98977,
                    charge: 1.0,
                    vectors,
                };
                put(&atom, lines);
            }
            black_box(&bytes);
        });
    }
}

fn report(name: &str, n: usize, mut run: impl FnMut()) {
    let mut times: Vec<f64> = (0..=REPEATS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e9 / n as f64
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{name:30} {:6.1} ({:.1}, {:.1})",
        times[REPEATS / 2],
        times[0],
        times[REPEATS - 1]
    );
}
