//! Tests of the TRR decoder on frames with known numbers: whole frames, parts of frames, and
//! damaged frames.

#[path = "../checks/trr.rs"]
mod check;
mod encoding;
mod frames;

use check::decode;
use check::parts::{bits, gather};
use frames::{Variant, time, value};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::trr::{HEADER_MAX, Header, TrrDecoder};
use paceline_formats::{Decoder, Fields, Frame};

fn all_of(n_atoms: usize) -> TrrDecoder {
    TrrDecoder::new(Atoms::all(n_atoms), Fields::ALL)
}

fn some_of(atoms: &[usize], n_atoms: usize, wanted: Fields) -> TrrDecoder {
    TrrDecoder::new(Atoms::new(atoms, n_atoms).unwrap(), wanted)
}

fn length(runs: &[paceline_formats::Run]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

#[test]
fn every_mix_gives_back_what_was_written() {
    let n = 11;
    for variant in Variant::all(n) {
        let mut decoder = all_of(n);
        for number in 0..3 {
            let frame = variant.bytes(number);
            let header = Header::parse(&frame).unwrap();
            assert_eq!((header.size(), header.n_atoms), (frame.len() as u64, n));
            let decoded = decode(&mut decoder, n, Fields::ALL, &frame).unwrap();
            assert_eq!(decoded.fields, variant.fields, "{variant:?}");
            assert_eq!(decoded.step, 10 * i64::from(number));
            let expected = match variant.double {
                true => time(number),
                false => f64::from(time(number) as f32),
            };
            assert_eq!(decoded.time, expected, "{variant:?}");
            let cell = [30.0, 40.0, 50.0, 90.0, 90.0, 90.0];
            assert_eq!(
                decoded.unit_cell().dimensions,
                if variant.cell { cell } else { [0.0; 6] }
            );
            let fields = [&decoded.positions, &decoded.velocities, &decoded.forces];
            for (field, (found, unit)) in fields.into_iter().zip([10.0, 10.0, 0.1]).enumerate() {
                let number = |i| match variant.fields.bits() >> field & 1 {
                    1 => value(field, i, number) as f32 * unit,
                    _ => 0.0,
                };
                let expected: Vec<f32> = (0..3 * n).map(number).collect();
                assert_eq!(*found, expected, "{variant:?}");
            }
        }
    }
}

#[test]
fn chosen_atoms_and_fields_are_the_same_numbers() {
    let n = 4000;
    let atoms = [0, 1, 2, 700, 1500, 1502, 3998, 3999];
    for variant in Variant::all(n).into_iter().step_by(3) {
        for wanted in (0..8).map(Fields::from_bits) {
            let mut all = all_of(n);
            let mut some = some_of(&atoms, n, wanted);
            for number in 0..2 {
                let frame = variant.bytes(number);
                let whole = decode(&mut all, n, Fields::ALL, &frame).unwrap();
                let part = decode(&mut some, atoms.len(), wanted, &frame).unwrap();
                let both = Fields::from_bits(wanted.bits() & variant.fields.bits());
                let expected = gather(&whole, &atoms, both);
                assert_eq!(
                    bits(&held(part)),
                    bits(&expected),
                    "{variant:?}, {wanted:?}"
                );
            }
        }
    }
}

/// Remove the arrays of the fields that a frame lacks.
fn held(frame: Frame) -> Frame {
    let keep = |values, there| if there { values } else { Vec::new() };
    Frame {
        positions: keep(frame.positions, frame.fields.positions),
        velocities: keep(frame.velocities, frame.fields.velocities),
        forces: keep(frame.forces, frame.fields.forces),
        ..frame
    }
}

#[test]
fn only_what_is_wanted_is_asked_for() {
    let n = 40_000;
    let frame = Variant::new(n, false, 7).bytes(0);
    let size = frame.len() as u64;
    let atoms = [5, 10_000, 10_001, 30_000];
    let forces = Fields::from_bits(4);
    let mut decoder = some_of(&atoms, n, forces);
    assert_eq!(length(decoder.runs(0, size)), size, "nothing is known yet");
    decode(&mut decoder, 4, forces, &frame).unwrap();
    let runs = decoder.runs(1, size);
    let starts: Vec<u64> = runs.iter().map(|run| run.start).collect();
    let atom = |i: u64| 84 + 36 + 12 * (2 * n as u64 + i);
    assert_eq!(starts, [0, atom(5), atom(10_000), atom(30_000)]);
    assert_eq!(length(runs), 84 + 36 + 4 * 12);
}

#[test]
fn frames_of_one_size_that_hold_different_things_are_read_whole() {
    let n = 4000;
    let atoms = [3, 3000];
    let wanted = Fields::ALL;
    let mut decoder = some_of(&atoms, n, wanted);
    let kinds = [1, 1, 2, 4, 1, 1];
    for (number, fields) in kinds.into_iter().enumerate() {
        let frame = Variant::new(n, false, fields).bytes(number as i32);
        let size = frame.len() as u64;
        let known = number == 1 || number == 2;
        assert_eq!(
            length(decoder.runs(0, size)) < size,
            known,
            "frame {number}"
        );
        let part = decode(&mut decoder, atoms.len(), wanted, &frame).unwrap();
        let whole = decode(&mut all_of(n), n, wanted, &frame).unwrap();
        assert_eq!(bits(&part), bits(&gather(&whole, &atoms, wanted)));
    }
}

#[test]
fn bytes_fetched_before_the_decoder_learned_are_understood() {
    let n = 4000;
    let atoms = [3, 3000];
    let [x, v] = [1, 2].map(|fields| Variant::new(n, false, fields).bytes(0));
    let size = x.len() as u64;
    let mut decoder = some_of(&atoms, n, Fields::ALL);
    let mut out = Frame::new(2, Fields::ALL);
    // Read two frames completely, then one frame with the byte ranges of the first. The plan of the
    // first frame was discarded in the meantime.
    decoder.decode(0, size, &x, out.out()).unwrap();
    let runs = decoder.runs(1, size).to_vec();
    decoder.decode(1, size, &v, out.out()).unwrap();
    assert!(out.fields.velocities && !out.fields.positions);
    let parts: Vec<&[u8]> = runs
        .iter()
        .map(|run| &x[run.start as usize..(run.start + run.len) as usize])
        .collect();
    let again = decoder.decode(2, size, &parts.concat(), out.out());
    assert_eq!(again, Err(Fault::Short { needed: x.len() }));
}

#[test]
fn blocks_of_old_programs_are_skipped() {
    let n = 7;
    let plain = Variant::new(n, false, 7);
    let expected = decode(&mut all_of(n), n, Fields::ALL, &plain.bytes(2)).unwrap();
    for others in [[8, 0, 0, 0], [4, 12, 20, 1000], [100_000; 4]] {
        let frame = Variant { others, ..plain }.bytes(2);
        let mut decoder = all_of(n);
        let asked = length(decoder.runs(0, frame.len() as u64));
        assert_eq!(asked == frame.len() as u64, others[3] < 1000, "{others:?}");
        for _ in 0..2 {
            let found = decode(&mut decoder, n, Fields::ALL, &frame).unwrap();
            assert_eq!(found, expected, "{others:?}");
        }
    }
}

/// Return a frame with another number at offset `at` of its header.
fn with(at: usize, number: i32) -> Vec<u8> {
    let mut bytes = Variant::new(11, false, 5).bytes(0);
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[test]
fn headers_that_contradict_themselves_are_refused_by_field() {
    let double = [Variant::new(11, true, 5).bytes(0), vec![0; 800]].concat();
    for (bytes, at, expected, found) in [
        (with(0, 1995), 0, "the magic number of TRR, 1993", "1995"),
        (with(4, 12), 4, "a string of 13 bytes", "12"),
        (with(8, 13), 8, "a string of 12 bytes", "13"),
        (
            with(16, 0),
            12,
            "\"GMX_trn_file\"",
            "\"GMX_\\x00\\x00\\x00\\x00file\"",
        ),
        (with(24, -1), 24, "a number of bytes of ir", "-1"),
        (
            with(60, i32::MIN),
            60,
            "a number of bytes of f",
            "-2147483648",
        ),
        (with(64, -3), 64, "a number of atoms", "-3"),
        (with(64, 10), 52, "0 or 120 bytes of x", "132"),
        (with(32, 35), 32, "0 or 36 bytes of box", "35"),
        (with(32, 72), 52, "0 or 264 bytes of x", "132"),
        (with(56, 131), 56, "0 or 132 bytes of v", "131"),
        (with(60, 264), 60, "0 or 132 bytes of f", "264"),
        (
            [
                &double[..32],
                &[0; 4],
                &double[36..52],
                &[0; 12],
                &double[64..],
            ]
            .concat(),
            32,
            "a box, positions, velocities or forces",
            "none of them",
        ),
    ] {
        let fault = Header::parse(&bytes).unwrap_err();
        assert_eq!(fault, Fault::bad(at, expected, found));
    }
}

#[test]
fn a_cut_header_says_how_much_it_needs() {
    for double in [false, true] {
        let frame = Variant::new(11, double, 7).bytes(0);
        let header_len = if double { 92 } else { 84 };
        for len in 0..HEADER_MAX {
            match Header::parse(&frame[..len]) {
                Ok(_) => assert!(len >= header_len),
                Err(Fault::Short { needed }) => assert!(len < needed && needed <= header_len),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }
}

#[test]
fn a_frame_of_another_system_or_size_is_damaged() {
    let frame = Variant::new(11, false, 1).bytes(0);
    let fault = decode(&mut all_of(12), 12, Fields::ALL, &frame).unwrap_err();
    assert_eq!(fault, Fault::bad(64, "12 atoms, as in the topology", 11));
    for (size, found) in [(frame.len() - 1, "251"), (frame.len() + 1, "253")] {
        let bytes = [&frame[..], &[0]].concat();
        let fault = decode(&mut all_of(11), 11, Fields::ALL, &bytes[..size]).unwrap_err();
        let expected = format!("blocks that make a frame of {found} bytes");
        assert_eq!(
            fault,
            Fault::bad(24, expected, "blocks that make 252 bytes")
        );
    }
    let fault = decode(&mut all_of(11), 11, Fields::ALL, &frame[..70]).unwrap_err();
    assert_eq!(
        fault,
        Fault::bad(70, "a frame of at least 72 bytes", "70 bytes")
    );
}

#[test]
fn thousands_of_changed_bytes_do_no_harm() {
    let mut random = 1_u64;
    let mut below = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % n as u64) as usize
    };
    for variant in Variant::all(5) {
        let frames: Vec<u8> = (0..3).flat_map(|number| variant.bytes(number)).collect();
        for _ in 0..100 {
            let mut bytes = [&[below(6) as u8, below(8) as u8], frames.as_slice()].concat();
            for _ in 0..1 + below(4) {
                let at = 2 + below(frames.len());
                bytes[at] = below(256) as u8;
            }
            check::check(&bytes);
        }
    }
}

#[test]
fn seeds_of_the_fuzz_target_hold() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/trr");
    let mut n = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        check::check(&std::fs::read(seed.unwrap().path()).unwrap());
        n += 1;
    }
    assert!(n > 0);
}
