//! Tests that write and read back every variant of Amber NetCDF, tests of damaged files, and of the
//! encoder.

#[path = "../checks/netcdf3.rs"]
mod check;
mod file;

use std::collections::BTreeSet;

use self::check::parts::{bits, gather};
use self::check::{decode, extents, parse};
use self::file::{File, Kind, VELOCITY_SCALE, number, variants};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::netcdf3::{Layout, NetcdfDecoder, NetcdfEncoder};
use paceline_formats::{Decoder, Encoder, Fields, Frame, Series, UnitCell};

fn numbers(first: f32, frame: u64, n: u64) -> Vec<f32> {
    (0..n).map(|index| number(first, frame, index)).collect()
}

#[test]
fn every_variant_gives_back_what_was_written() {
    for file in variants(5) {
        let bytes = file.bytes();
        let layout = parse(&bytes).unwrap();
        assert_eq!(
            (layout.n_atoms(), layout.fields()),
            (5, file.fields),
            "{file:?}"
        );
        let mut decoder = NetcdfDecoder::new(layout.clone(), Atoms::all(5), file.fields);
        let extents = extents(&layout, &bytes);
        assert_eq!(extents.len() as u64, file.n_frames, "{file:?}");
        for (number, extent) in extents {
            let frame = decode(&mut decoder, 5, file.fields, number, extent);
            assert_eq!(frame, expected(&file, number), "{file:?}");
        }
    }
}

fn expected(file: &File, frame: u64) -> Frame {
    let of = |held, values: Vec<f32>| if held { values } else { Vec::new() };
    let lengths = numbers(40.0, frame, 3);
    let angles = numbers(80.0, frame, 3);
    let cell = [&lengths[..], &angles].concat();
    Frame {
        positions: of(file.fields.positions, numbers(-7.0, frame, 15)),
        velocities: of(
            file.fields.velocities,
            numbers(0.5, frame, 15)
                .iter()
                .map(|&value| match file.double || file.scale_in_double {
                    true => (f64::from(value) * f64::from(VELOCITY_SCALE)) as f32,
                    false => value * VELOCITY_SCALE,
                })
                .collect(),
        ),
        forces: of(
            file.fields.forces,
            numbers(3.0, frame, 15)
                .iter()
                .map(|value| value * 4.184)
                .collect(),
        ),
        cell: UnitCell::of_dimensions(match file.has_cell {
            true => cell.try_into().unwrap(),
            false => [0.0; 6],
        })
        .row(),
        time: match file.has_time {
            true => f64::from(number(100.0, frame, 0)),
            false => frame as f64,
        },
        step: frame as i64,
        lambda: 0.0,
        fields: file.fields,
    }
}

#[test]
fn chosen_atoms_are_the_same_numbers_and_distant_ones_are_not_read() {
    let n = 4000;
    for file in variants(n as u64).into_iter().step_by(7) {
        let bytes = file.bytes();
        let layout = parse(&bytes).unwrap();
        let mut whole = NetcdfDecoder::new(layout.clone(), Atoms::all(n), Fields::ALL);
        for indices in [
            vec![],
            vec![0],
            vec![3999],
            vec![5, 6, 7, 3000],
            (9..n).step_by(3).collect(),
        ] {
            let atoms = Atoms::new(&indices, n).unwrap();
            let mut part = NetcdfDecoder::new(layout.clone(), atoms, file.fields);
            for (frame, extent) in extents(&layout, &bytes) {
                let all = decode(&mut whole, n, Fields::ALL, frame, extent);
                let some = decode(&mut part, indices.len(), file.fields, frame, extent);
                assert_eq!(bits(&some), bits(&gather(&all, &indices, file.fields)));
            }
            let read: u64 = part
                .runs(0, layout.frame_size())
                .iter()
                .map(|run| run.len)
                .sum();
            assert!(
                indices.len() > 4 || read < 30_000,
                "{read} bytes for {indices:?}"
            );
        }
    }
}

#[test]
fn a_cut_header_asks_for_more_or_is_refused() {
    for file in variants(5).into_iter().step_by(11) {
        let bytes = file.bytes();
        for cut in 0..bytes.len() {
            let head = &bytes[..cut];
            match Layout::parse(head, bytes.len() as u64) {
                Ok(layout) => drop(layout.unwrap()),
                Err(Fault::Short { needed }) => assert!(needed > cut && needed <= bytes.len()),
                Err(fault) => panic!("{fault:?}"),
            }
            // For a file that ends here, no more bytes are requested.
            let ended = Layout::parse(head, cut as u64);
            assert!(!matches!(ended, Err(Fault::Short { .. })), "{ended:?}");
        }
    }
}

#[test]
fn headers_that_claim_too_much_are_refused_before_anything_is_allocated() {
    let head = |rest: &[u8]| [b"CDF\x05", &[0; 8][..], rest].concat();
    let most = [0x7f, 255, 255, 255, 255, 255, 255, 255];
    // The lists of dimensions, attributes and variables follow each other.
    for (before, list) in [(0, 10), (1, 12), (2, 11)] {
        let mut bytes = head(&[0; 12].repeat(before));
        bytes.extend([0, 0, 0, list]);
        bytes.extend(most);
        let fault = Layout::parse(&bytes, bytes.len() as u64).unwrap_err();
        assert!(matches!(fault, Fault::Bad { .. }), "{fault:?}");
    }
    // A name of a terabyte, in a file that may be large enough.
    let mut bytes = head(&[0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend((1_u64 << 40).to_be_bytes());
    let Err(Fault::Bad { expected, .. }) = Layout::parse(&bytes, 1 << 50) else {
        panic!("a name of a terabyte");
    };
    assert_eq!(expected, "a header of at most 1048576 bytes");
}

#[test]
fn layouts_survive_their_bytes_and_garbage_is_refused() {
    let mut random = Random(3);
    let mut seen = BTreeSet::new();
    for file in variants(11).into_iter().step_by(3) {
        let file_bytes = file.bytes();
        let layout = parse(&file_bytes).unwrap();
        let bytes = layout.to_bytes();
        assert!(bytes.len() < 256, "{} bytes", bytes.len());
        assert_eq!(Layout::from_bytes(&bytes), Some(layout));
        for cut in 0..bytes.len() {
            assert_eq!(Layout::from_bytes(&bytes[..cut]), None);
        }
        for _ in 0..200 {
            let mut bytes = bytes.clone();
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
            let Some(layout) = Layout::from_bytes(&bytes) else {
                continue;
            };
            assert_eq!(layout.to_bytes(), bytes);
            let (n, size) = (layout.n_atoms(), layout.frame_size());
            let mut decoder = NetcdfDecoder::new(layout, Atoms::all(n), Fields::ALL);
            for frame in [0, 1, 2, u64::MAX] {
                let end = decoder
                    .runs(frame, size)
                    .last()
                    .map_or(0, |run| run.start + run.len);
                assert!(end <= size);
                seen.insert(end);
            }
        }
    }
    assert!(seen.len() > 9);
}

#[test]
fn damaged_headers_do_no_harm() {
    let mut random = Random(1);
    for file in variants(5) {
        let whole = [&[0, 0], file.bytes().as_slice()].concat();
        for _ in 0..20 {
            let mut bytes = whole.clone();
            bytes[0] = random.below(6) as u8;
            bytes[1] = random.below(8) as u8;
            for _ in 0..1 + random.below(4) {
                let at = 2 + random.below(700.min(bytes.len() - 2));
                bytes[at] = random.below(256) as u8;
            }
            check::check(&bytes);
        }
    }
}

#[test]
fn seeds_of_the_fuzz_target_hold() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/netcdf3");
    let mut n = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        check::check(&std::fs::read(seed.unwrap().path()).unwrap());
        n += 1;
    }
    assert!(n > 0);
}

const SERIES: Series = Series {
    n_frames: 3,
    time: 100.0,
    dt: 0.0625,
    step: 0,
    steps: 1,
};

#[test]
fn what_is_written_is_read_again() {
    for mut file in variants(5) {
        if file.kind != Kind::Records || file.version != 2 {
            continue;
        }
        file.has_time = true;
        let mut encoder = NetcdfEncoder::new(5, file.has_cell, file.fields).unwrap();
        let mut bytes = encoder.head(&SERIES);
        let written: Vec<Frame> = (0..3).map(|frame| expected(&file, frame)).collect();
        for frame in &written {
            encoder.encode(&frame.as_input(), &mut bytes).unwrap();
        }
        let layout = parse(&bytes).unwrap();
        let end = layout.start() + 3 * layout.frame_size();
        assert_eq!(end, bytes.len() as u64);
        let mut decoder = NetcdfDecoder::new(layout.clone(), Atoms::all(5), file.fields);
        for (number, extent) in extents(&layout, &bytes) {
            let read = decode(&mut decoder, 5, file.fields, number, extent);
            let wrote = &written[number as usize];
            assert_eq!(read.positions, wrote.positions);
            assert_eq!((read.cell, read.time), (wrote.cell, wrote.time));
            let (read, wrote) = (
                [read.velocities, read.forces].concat(),
                [&wrote.velocities[..], &wrote.forces].concat(),
            );
            for (read, wrote) in read.iter().zip(&wrote) {
                assert!((read - wrote).abs() <= 2e-7 * wrote.abs(), "{read} {wrote}");
            }
        }
    }
}

#[test]
fn the_head_has_the_same_size_for_any_number_of_frames() {
    for (n_atoms, version) in [(3, 2), (357_913_940, 2), (357_913_942, 5)] {
        let encoder = NetcdfEncoder::new(n_atoms, true, Fields::ALL).unwrap();
        let size = encoder.head(&SERIES).len();
        for n_frames in [0, 1, u64::from(u32::MAX) + 7] {
            let head = encoder.head(&Series { n_frames, ..SERIES });
            assert_eq!((head.len(), head[3]), (size, version));
            let layout = Layout::parse(&head, u64::MAX >> 1).unwrap().unwrap();
            assert_eq!((layout.start(), layout.n_atoms()), (size as u64, n_atoms));
        }
    }
}

#[test]
fn what_cannot_be_written_is_refused_and_nothing_appended() {
    let frame = Frame {
        positions: vec![1.0; 6],
        time: 1.0,
        ..Frame::new(2, Fields::default())
    };
    let mut bytes = b"before".to_vec();
    let mut refusal = |change: &dyn Fn(&mut Frame)| {
        let mut frame = frame.clone();
        change(&mut frame);
        let mut encoder = NetcdfEncoder::new(2, false, Fields::POSITIONS).unwrap();
        let reason = encoder.encode(&frame.as_input(), &mut bytes).unwrap_err();
        assert_eq!(bytes, b"before");
        reason
    };
    let reason = refusal(&|frame| frame.positions[4] = f32::NAN);
    assert_eq!(reason, "atom 1: expected a finite position, found NaN");
    let reason = refusal(&|frame| frame.positions.truncate(3));
    assert_eq!(
        reason,
        "expected the positions of 2 atoms, found those of 1"
    );
    let reason = refusal(&|frame| frame.forces = vec![0.0; 6]);
    assert_eq!(reason, "expected the forces of 0 atoms, found those of 2");
    let reason = refusal(&|frame| frame.time = 1e39);
    assert_eq!(reason, "expected a time that an f32 holds, found 1e39 ps");
    let reason = refusal(&|frame| frame.cell = UnitCell::of_dimensions([1.0; 6]).row());
    assert!(reason.starts_with("expected no unit cell"), "{reason}");
    assert!(NetcdfEncoder::new(0, false, Fields::POSITIONS).is_err());
}

/// Xorshift generator: deterministic random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
