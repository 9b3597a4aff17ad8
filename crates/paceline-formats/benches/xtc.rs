//! Benchmark: nanoseconds per atom of paceline's decoder and of the crate molly, in turn, for given
//! files.
//!
//! `cargo bench -p paceline-formats --bench xtc -- FILE.xtc...`

use std::hint::black_box;
use std::time::Instant;

use molly::selection::AtomSelection;
use paceline_formats::atom_set::Atoms;
use paceline_formats::xtc::{Header, XtcDecoder};
use paceline_formats::{Decoder, Fields, Frame};

const ROUNDS: usize = 31;

/// A trajectory in memory.
struct Trajectory {
    n_atoms: usize,
    frames: Vec<Vec<u8>>,
}

impl Trajectory {
    fn read(path: &str) -> Self {
        let bytes = std::fs::read(path).expect("a readable file");
        let (mut n_atoms, mut frames, mut rest) = (0, Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let header = Header::parse(rest).expect("an XTC file");
            let (frame, behind) = rest.split_at(header.size as usize);
            frames.push(frame.to_vec());
            (n_atoms, rest) = (header.n_atoms, behind);
        }
        Trajectory { n_atoms, frames }
    }

    /// Return the seconds of paceline for one pass over the frames.
    fn time_ours(&self, atoms: &Atoms) -> f64 {
        let mut out = Frame::new(atoms.len(), Fields::POSITIONS);
        let mut decoder = XtcDecoder::new(atoms.clone());
        let start = Instant::now();
        for frame in &self.frames {
            let size = frame.len() as u64;
            decoder
                .decode(0, size, frame, out.out())
                .expect("a sound frame");
            black_box(&out.positions);
        }
        start.elapsed().as_secs_f64()
    }

    /// Return the seconds of molly for one pass over the frames.
    fn time_molly(&self, selection: &AtomSelection) -> f64 {
        let mut frame = molly::Frame::default();
        let start = Instant::now();
        for bytes in &self.frames {
            let mut reader = molly::XTCReader::new(&bytes[..]);
            reader
                .read_frame_with_selection(&mut frame, selection)
                .expect("a sound frame");
            black_box(&frame.positions);
        }
        start.elapsed().as_secs_f64()
    }

    fn compare(&self, what: &str, indices: &[usize]) {
        let atoms = Atoms::new(indices, self.n_atoms).expect("indices in order");
        let mask = (0..self.n_atoms).map(|atom| indices.binary_search(&atom).is_ok());
        let selection = if atoms.is_all() {
            AtomSelection::All
        } else {
            AtomSelection::Mask(mask.collect())
        };
        let rounds: Vec<(f64, f64)> = (0..ROUNDS)
            .map(|_| (self.time_ours(&atoms), self.time_molly(&selection)))
            .collect();
        let ours = median(rounds.iter().map(|&(ours, _)| ours));
        let molly = median(rounds.iter().map(|&(_, molly)| molly));
        let ratio = molly / ours;
        let n_frames = self.frames.len() as f64;
        let per_atom = 1e9 / (n_frames * self.n_atoms as f64);
        println!(
            "  {what}: {:.2} ns an atom of the frame, molly {:.2}, {ratio:.2} times; {:.2} µs a frame",
            ours * per_atom,
            molly * per_atom,
            1e6 * ours / n_frames,
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let paths = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    for path in paths {
        let trajectory = Trajectory::read(&path);
        let n = trajectory.n_atoms;
        println!("{path}: {n} atoms, {} frames", trajectory.frames.len());
        let all: Vec<usize> = (0..n).collect();
        let sparse: Vec<usize> = (7..n).step_by(15).collect();
        trajectory.compare("all atoms", &all);
        trajectory.compare("one in 15", &sparse);
    }
}
