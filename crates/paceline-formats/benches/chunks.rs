//! Benchmark: microseconds per frame to read blocks of a dataset in each layout, compared with
//! reading its bytes.
//!
//! `cargo bench -p paceline-formats --bench chunks`

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use libdeflater::{CompressionLvl, Compressor};
use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::hdf5_datasets::{ChunkReader, Element, ReadRequest, Slice};
use paceline_formats::block_reader::{BlockOut, Numbers};
use paceline_formats::hdf5_chunks::{Dataset, Filter, Number, Units};
use paceline_formats::source::FileSource;
use paceline_formats::{CELL_WIDTH, Fields};

const ROUNDS: usize = 21;
const BLOCK: usize = 63;

/// Number of atoms and number of frames of each system: AdK alone, and in water. All files fit into
/// the page cache.
const SYSTEMS: [(usize, usize); 2] = [(3341, 16 * BLOCK), (47_681, 4 * BLOCK)];

/// Dataset in a file, and the locations of its chunks.
struct Stored {
    name: &'static str,
    element: Element,
    n_atoms: usize,
    offsets: Vec<u64>,
    sizes: Vec<u64>,
}

/// Return a coordinate in a box, rounded to 0.01 Å.
fn position(frame: usize, number: usize) -> f32 {
    let place = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
    let step = (number as u64 ^ (frame as u64) << 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 57;
    (place + step) as f32 / 100.0
}

impl Stored {
    /// Append a dataset to a file.
    fn write(
        file: &mut File,
        at: &mut u64,
        (name, shape, chunk, deflated): (&'static str, [usize; 3], [usize; 3], bool),
    ) -> Stored {
        let axes: Vec<usize> = shape
            .iter()
            .zip(chunk)
            .map(|(n, step)| n.div_ceil(step))
            .collect();
        let mut compressor = Compressor::new(CompressionLvl::fastest());
        let (mut offsets, mut sizes) = (Vec::new(), Vec::new());
        for k in 0..axes.iter().product() {
            let corner = [k / axes[2] / axes[1], k / axes[2] % axes[1], k % axes[2]];
            let mut bytes = Vec::new();
            for frame in corner[0] * chunk[0]..(corner[0] + 1) * chunk[0] {
                for atom in corner[1] * chunk[1]..(corner[1] + 1) * chunk[1] {
                    for axis in corner[2] * chunk[2]..(corner[2] + 1) * chunk[2] {
                        bytes.extend(position(frame, 3 * atom + axis).to_le_bytes());
                    }
                }
            }
            if deflated {
                let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
                let n = compressor
                    .zlib_compress(&bytes, &mut out)
                    .expect("room enough");
                out.truncate(n);
                bytes = out;
            }
            file.write_all(&bytes).expect("room on the disk");
            offsets.push(*at);
            sizes.push(bytes.len() as u64);
            *at += bytes.len() as u64;
        }
        let deflate = Filter {
            number: 1,
            name: "deflate".into(),
            values: vec![],
        };
        let dataset = Dataset {
            name: name.into(),
            number: Number::parse("<f4").expect("a number"),
            shape: shape.map(|n| n as u64).to_vec(),
            chunk: Some(chunk.map(|n| n as u64).to_vec()),
            filters: deflated.then_some(deflate).into_iter().collect(),
            offset: 0,
            fill: vec![],
        };
        let units = Units {
            factor: 10.0,
            ..Units::NONE
        };
        Stored {
            name,
            element: Element { dataset, units },
            n_atoms: shape[1],
            offsets,
            sizes,
        }
    }

    /// Return the seconds per frame of one pass over all blocks.
    fn time(&self, path: &Path, atoms: &Atoms) -> f64 {
        let source = Arc::new(FileSource::open(path).expect("a file"));
        let elements = [Some(self.element.clone()), None, None];
        let mut reader = ChunkReader::new(source, elements, atoms, None).expect("a dataset");
        let n_rows = self.element.dataset.shape[0] as usize;
        let chunk_rows = self
            .element
            .dataset
            .chunk
            .as_ref()
            .map_or(1, |chunk| chunk[0]) as usize;
        let of_number = self.offsets.len() / n_rows.div_ceil(chunk_rows);
        let mut positions = vec![0.0; 3 * BLOCK * atoms.len()];
        let started = Instant::now();
        for first in (0..n_rows).step_by(BLOCK) {
            let rows: Vec<i64> = (first..first + BLOCK).map(|row| row as i64).collect();
            let numbers: Vec<u64> = (first / chunk_rows..(first + BLOCK).div_ceil(chunk_rows))
                .map(|p| p as u64)
                .collect();
            let chunks =
                numbers[0] as usize * of_number..(numbers[0] as usize + numbers.len()) * of_number;
            let slice = Slice {
                rows: &rows,
                chunk_numbers: &numbers,
                offsets: &self.offsets[chunks.clone()],
                sizes: &self.sizes[chunks.clone()],
                masks: &vec![0; chunks.len()],
            };
            let request = ReadRequest {
                frames: &rows,
                slices: [Some(slice), None, None],
                ids: None,
                required: Fields::POSITIONS,
                skip: false,
                whole: false,
            };
            let out = BlockOut {
                numbers: Numbers::Kept {
                    positions: &mut positions,
                    velocities: &mut [],
                    forces: &mut [],
                },
                cells: &mut [[0.0; CELL_WIDTH]; BLOCK],
                times: &mut [0.0; BLOCK],
                steps: &mut [0; BLOCK],
                lambdas: &mut [0.0; BLOCK],
                fields: &mut [0; BLOCK],
            };
            reader.read(request, out).expect("a sound dataset");
            black_box(&positions);
        }
        started.elapsed().as_secs_f64() / n_rows as f64
    }
}

/// Return the seconds per frame of reading the bytes of `n_frames` frames sequentially.
fn time_cat(path: &Path, n_atoms: usize, n_frames: usize) -> f64 {
    let mut file = File::open(path).expect("a file");
    let mut buffer = vec![0; 128 * 1024];
    let mut rest = 12 * n_atoms * n_frames;
    let started = Instant::now();
    while rest > 0 {
        let n = buffer.len().min(rest);
        file.read_exact(&mut buffer[..n]).expect("a whole file");
        rest -= n;
        black_box(&buffer);
    }
    started.elapsed().as_secs_f64() / n_frames as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let path = std::env::temp_dir().join(format!("paceline-chunks-{}", std::process::id()));
    for (n_atoms, n_frames) in SYSTEMS {
        let mut file = File::create(&path).expect("a temporary file");
        let mut at = 0;
        let shape = [n_frames, n_atoms, 3];
        let layouts = [
            ("a frame a chunk", [1, n_atoms, 3], false),
            ("63 frames, 209 atoms, 1 component", [63, 209, 1], false),
            ("9 frames, 2981 atoms, 1 component", [9, 2981, 1], false),
            ("a frame a chunk, deflate", [1, n_atoms, 3], true),
        ];
        let stored = layouts.map(|(name, chunk, packed)| {
            Stored::write(&mut file, &mut at, (name, shape, chunk, packed))
        });
        let some: Vec<usize> = (7..3341).step_by(15).take(214).collect();
        let some = Atoms::new(&some, n_atoms).expect("indices in order");
        let mut cat: Vec<f64> = (0..ROUNDS)
            .map(|_| time_cat(&path, n_atoms, n_frames))
            .collect();
        let cat = median(&mut cat);
        println!(
            "{n_atoms} atoms: {:.1} µs to read a frame's bytes",
            1e6 * cat
        );
        for one in &stored {
            for atoms in [&some, &Atoms::all(one.n_atoms)] {
                let rounds = (0..ROUNDS).map(|_| one.time(&path, atoms));
                let time = median(&mut rounds.collect::<Vec<f64>>());
                println!(
                    "  {}, {} of the atoms: {:.1} µs a frame, {:.2} × its bytes",
                    one.name,
                    atoms.len(),
                    1e6 * time,
                    time / cat
                );
            }
        }
    }
    std::fs::remove_file(&path).expect("the temporary file");
}
