//! Benchmark: nanoseconds per atom to encode the frames of given XTC files as XTC and as DCD.
//!
//! `cargo bench -p paceline-formats --bench encode -- FILE.xtc...`

use std::hint::black_box;
use std::time::Instant;

use paceline_formats::atom_set::Atoms;
use paceline_formats::dcd::DcdEncoder;
use paceline_formats::xtc::{Header, PRECISION, XtcDecoder, XtcEncoder};
use paceline_formats::{Decoder, Encoder, Fields, Frame};

const ROUNDS: usize = 21;

fn read(path: &str) -> Vec<Frame> {
    let bytes = std::fs::read(path).expect("a readable file");
    let (mut frames, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let header = Header::parse(rest).expect("an XTC file");
        let n_atoms = header.n_atoms;
        let mut frame = Frame::new(n_atoms, Fields::POSITIONS);
        XtcDecoder::new(Atoms::all(n_atoms))
            .decode(0, header.size, rest, frame.out())
            .expect("a sound frame");
        frames.push(frame);
        rest = &rest[header.size as usize..];
    }
    frames
}

/// Return the seconds for one pass over the frames, and the number of bytes. The time of each frame
/// is that of its fastest round. Each round encodes all frames, since the processor would predict
/// the branches of a frame that is encoded twice in sequence.
fn time(encoder: &mut dyn Encoder, frames: &[Frame]) -> (f64, usize) {
    let (mut bytes, mut n_bytes) = (Vec::new(), 0);
    let mut least = vec![f64::INFINITY; frames.len()];
    for _ in 0..ROUNDS {
        n_bytes = 0;
        for (frame, least) in frames.iter().zip(&mut least) {
            bytes.clear();
            let start = Instant::now();
            encoder
                .encode(&frame.as_input(), &mut bytes)
                .expect("a frame that was decoded");
            *least = least.min(start.elapsed().as_secs_f64());
            n_bytes += black_box(&bytes).len();
        }
    }
    (least.iter().sum(), n_bytes)
}

fn main() {
    let paths = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    for path in paths {
        let frames = read(&path);
        let n_atoms = frames[0].positions.len() / 3;
        println!("{path}: {n_atoms} atoms, {} frames", frames.len());
        let mut xtc = XtcEncoder::new(n_atoms, PRECISION).expect("an XTC file");
        let mut dcd = DcdEncoder::new(n_atoms, true).expect("a DCD file");
        let encoders: [(&str, &mut dyn Encoder); 2] = [("XTC", &mut xtc), ("DCD", &mut dcd)];
        for (format, encoder) in encoders {
            let (seconds, n_bytes) = time(encoder, &frames);
            let n = (frames.len() * n_atoms) as f64;
            println!(
                "  {format}: {:.2} ns and {:.2} bytes an atom",
                1e9 * seconds / n,
                n_bytes as f64 / n
            );
        }
    }
}
