//! Tests that write and read back every variant of DL_POLY's files, and tests of damaged files.

#[path = "../checks/dlpoly.rs"]
mod check;
mod writer;

use check::parts::asked_for;
use paceline_formats::atom_set::Atoms;
use paceline_formats::dlpoly::{DlpolyDecoder, FrameHead, Head, Kind, Layout, Records, detect};
use paceline_formats::error::Fault;
use paceline_formats::{Decoder, Fields, Frame, Run, UnitCell};
use writer::{CELL, Dialect, File, variants, vectors};

/// Decode all bytes of a frame that the decoder requests.
fn decode_frame(
    layout: Layout,
    frame: &[u8],
    atoms: Atoms,
    wanted: Fields,
) -> Result<Frame, Fault> {
    let mut out = Frame::new(atoms.len(), wanted);
    let mut decoder = DlpolyDecoder::new(layout, atoms, wanted);
    let size = frame.len() as u64;
    let bytes = asked_for(&mut decoder, 0, frame);
    match decoder.decode(0, size, &bytes, out.out()) {
        Err(Fault::Short { needed }) => decoder.decode(0, size, &frame[..needed], out.out())?,
        decoded => decoded?,
    }
    Ok(out)
}

/// Return the layout of a HISTORY, and the bytes of its `n` frames.
fn open(file: &File, n: usize) -> (Layout, Vec<Vec<u8>>) {
    let (bytes, starts) = file.history(n);
    let head = Head::parse_history(&bytes, bytes.len() as u64).unwrap();
    assert_eq!(head.layout.start(), starts[0] as u64, "{file:?}");
    let ends = starts[1..].iter().copied().chain([bytes.len()]);
    let frames = starts.iter().zip(ends);
    let frames: Vec<_> = frames
        .map(|(&start, end)| bytes[start..end].to_vec())
        .collect();
    let size = head.layout.frame_size();
    if file.dialect == Dialect::Edited {
        return (head.layout.varying(), frames);
    }
    assert_eq!(size, Some(frames[0].len() as u64), "{file:?}");
    (head.layout, frames)
}

/// Return the content that the decoder must return for a frame.
fn expected(file: &File, number: usize, atoms: &[usize], wanted: Fields) -> Frame {
    let fields = Fields::from_bits([0b001, 0b011, 0b111][usize::from(file.level)]);
    let mut frame = Frame::new(atoms.len(), wanted);
    for (target, &atom) in atoms.iter().enumerate() {
        let [mut position, velocity, force] = vectors(number, atom);
        if file.dialect == Dialect::Compressed {
            position[0] -= 1000.0 * (atom % 2) as f64;
        }
        for (values, vector, held) in [
            (&mut frame.positions, position, true),
            (&mut frame.velocities, velocity, fields.velocities),
            (&mut frame.forces, force, fields.forces),
        ] {
            if let (Some(values), true) = (values.get_mut(3 * target..3 * target + 3), held) {
                // All numbers have few digits, so that every variant preserves them.
                let near = |x: f64| ((10.0 * x).round() / 10.0) as f32;
                values.copy_from_slice(&vector.map(near));
            }
        }
    }
    frame.cell = file.cell.map_or(UnitCell::NONE, UnitCell::of_vectors).row();
    frame.step = 100 * number as i64;
    frame.time = match file.dialect {
        Dialect::Classic => frame.step as f64 * 0.0005,
        Dialect::Compressed => format!("{:.5}", 100_000.0 + 0.05 * number as f64)
            .parse()
            .unwrap(),
        _ => format!("{:.6}", 0.05 * number as f64).parse().unwrap(),
    };
    frame.fields = fields;
    frame
}

#[test]
fn every_dialect_gives_back_what_was_written() {
    for file in variants(11) {
        let (bytes, _) = file.history(3);
        assert_eq!(
            detect(&bytes[..bytes.len().min(1024)]),
            Some(Kind::History),
            "{file:?}"
        );
        let (layout, frames) = open(&file, 3);
        for (number, frame) in frames.iter().enumerate() {
            // If the layout assumes that atoms are in order, a frame in another order is detected.
            for layout in [layout, layout.ordered(), layout.varying()] {
                let all: Vec<usize> = (0..11).collect();
                let decoded = decode_frame(layout, frame, Atoms::all(11), Fields::ALL);
                let expected = expected(&file, number, &all, Fields::ALL);
                assert_eq!(decoded.unwrap(), expected, "{file:?} {number}");
            }
        }
    }
}

#[test]
fn parts_of_a_frame_are_the_same_numbers() {
    for n_atoms in [11, 120] {
        let some: Vec<usize> = (n_atoms / 3..n_atoms).step_by(n_atoms / 4).collect();
        for file in variants(n_atoms) {
            let (layout, frames) = open(&file, 2);
            for bits in 0..8 {
                let wanted = Fields::from_bits(bits);
                let atoms = Atoms::new(&some, n_atoms).unwrap();
                let expected = expected(&file, 1, &some, wanted);
                for layout in [layout, layout.ordered()] {
                    let decoded = decode_frame(layout, &frames[1], atoms.clone(), wanted);
                    assert_eq!(decoded.unwrap(), expected, "{file:?} {bits}");
                }
            }
        }
    }
}

#[test]
fn atoms_that_are_not_wanted_are_not_read() {
    let [file, ..] = variants(4000)[..] else {
        panic!("no variants")
    };
    let (layout, frames) = open(&file, 1);
    let atoms = Atoms::new(&[7, 3000], 4000).unwrap();
    let mut decoder = DlpolyDecoder::new(layout.ordered(), atoms, Fields::ALL);
    let runs = decoder.runs(0, frames[0].len() as u64);
    let (head, atom) = (4 * 73, 2 * 73);
    let run = |start, len| Run { start, len };
    assert_eq!(
        runs,
        [run(0, head + 8 * atom), run(head + 3000 * atom, atom)]
    );
}

#[test]
fn a_config_is_one_frame() {
    for file in variants(11) {
        if matches!(file.dialect, Dialect::Compressed | Dialect::Classic) {
            continue;
        }
        let bytes = file.config();
        assert_eq!(
            detect(&bytes[..bytes.len().min(1024)]),
            Some(Kind::Config),
            "{file:?}"
        );
        let head = Head::parse_config(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(head.claimed, Some(11), "{file:?}");
        let layout = match file.dialect {
            Dialect::Edited => head.layout.with_n_atoms(11),
            _ => head.layout,
        };
        let all: Vec<usize> = (0..11).collect();
        let decoded = decode_frame(layout, &bytes, Atoms::all(11), Fields::ALL).unwrap();
        let mut expected = expected(&file, 3, &all, Fields::ALL);
        expected.time = format!("{:.7E}", 0.05 * 3.0).parse().unwrap();
        assert_eq!(decoded, expected, "{file:?}");
    }
}

#[test]
fn all_that_a_file_says_is_read_in_double_precision() {
    for file in variants(11) {
        let (layout, frames) = open(&file, 2);
        let frame = &frames[1];
        let head = FrameHead::parse(&layout, frame, frame.len() as u64).unwrap();
        assert_eq!(head.cell, file.cell, "{file:?}");
        let (mut at, mut place) = (head.len, 0);
        if let Some(range) = layout.bytes_of(4..11) {
            (at, place) = (range.start as usize, 4);
            assert_eq!(range.end, frame.len() as u64);
        }
        let rest = &frame[at..];
        let mut records = Records::new(&layout, &head, place, rest, rest.len() as u64);
        for place in place..11 {
            let record = records.next_atom().unwrap();
            let atom = record.id.map_or(place, |id| id as usize - 1);
            assert!(file.shuffled || atom == place, "{file:?}");
            assert_eq!(record.name, *b"Na+     ");
            let (mass, charge) = (record.mass, record.charge);
            match file.dialect {
                Dialect::Compressed => assert!(mass.is_nan() && charge.is_nan()),
                _ => assert_eq!((mass, charge), (22.99, 1.0), "{file:?}"),
            }
            if file.dialect != Dialect::Compressed {
                let near = |x: f64| (10.0 * x).round() / 10.0;
                assert_eq!(record.vectors[0], vectors(1, atom)[0].map(near), "{file:?}");
            }
        }
        assert!(records.next_atom().is_err(), "{file:?}");
    }
}

#[test]
fn a_head_is_rewritten_for_some_of_the_frames() {
    for file in variants(5) {
        let (bytes, starts) = file.history(12);
        let (layout, _) = open(&file, 12);
        let before = layout
            .bytes_of(0..0)
            .map_or(0, |range| range.start as usize);
        let head = &bytes[..starts[0] + before];
        let mut piece = layout.head_of(head, 2);
        if layout.frame_size().is_some() {
            assert_eq!(layout.head_of(head, 12), bytes[..starts[0]], "{file:?}");
            piece.extend_from_slice(&bytes[starts[0]..starts[2]]);
            assert_eq!(piece, file.history(2).0, "{file:?}");
        } else {
            piece.extend_from_slice(&bytes[starts[0]..starts[2]]);
            let head = Head::parse_history(&piece, piece.len() as u64).unwrap();
            assert_eq!(
                (head.layout.varying(), head.claimed),
                (layout, None),
                "{file:?}"
            );
        }
    }
}

#[test]
fn counts_are_found_behind_blank_lines() {
    let head = b"title\n\n 0 0 1  12    345\ntimestep";
    let found = paceline_formats::dlpoly::counts(head).unwrap();
    assert_eq!(found.map(|at| head[at - 1]), [b'1', b'2', b'5']);
    assert_eq!(
        paceline_formats::dlpoly::counts(b"title\n0 0 1\ntimestep"),
        None
    );
}

/// Return a frame of three atoms, as written by DL_POLY.
fn three_atoms() -> (Layout, Vec<u8>) {
    let file = File {
        dialect: Dialect::Records,
        level: 1,
        n_atoms: 3,
        cell: Some(CELL),
        shuffled: false,
    };
    let (layout, frames) = open(&file, 1);
    (layout.ordered(), frames[0].clone())
}

#[test]
fn atoms_of_a_part_of_a_system_keep_their_order() {
    let (layout, frame) = three_atoms();
    let number = |frame: &mut Vec<u8>, place: usize, id: u64| {
        let at = 73 * (4 + 3 * place) + 8;
        frame[at..at + 10].copy_from_slice(format!("{id:10}").as_bytes());
    };
    let x = |frame: &Frame| [0, 3, 6].map(|at| frame.positions[at]);
    let natural = decode_frame(layout, &frame, Atoms::all(3), Fields::ALL).unwrap();
    let [a, b, c] = x(&natural);
    for (ids, wanted) in [
        ([6, 8, 40], [a, b, c]),
        ([9, 7, 5], [c, b, a]),
        ([0; 3], [a, b, c]),
    ] {
        let mut frame = frame.clone();
        for (place, id) in ids.into_iter().enumerate() {
            number(&mut frame, place, id);
        }
        let decoded = decode_frame(layout, &frame, Atoms::all(3), Fields::ALL).unwrap();
        assert_eq!(x(&decoded), wanted, "{ids:?}");
    }
}

#[test]
fn a_blank_line_may_stand_before_the_first_atom() {
    let (layout, frame) = three_atoms();
    let mut edited = frame.clone();
    edited[4 * 73 - 2] = b'\n';
    for atoms in [Atoms::all(3), Atoms::new(&[1], 3).unwrap()] {
        let decode = |frame: &[u8]| decode_frame(layout, frame, atoms.clone(), Fields::ALL);
        let (found, expected) = (decode(&edited).unwrap(), decode(&frame).unwrap());
        assert_eq!(found.positions, expected.positions);
    }
}

#[test]
fn damage_is_named_with_atom_and_byte() {
    let (layout, frame) = three_atoms();
    let record = |k: usize| 73 * k;
    let cases: [(usize, &[u8], usize, &str); 7] = [
        (0, b"timesteq", 0, "a line that begins with \"timestep\""),
        (18, b"         4", 0, "a frame of 3 atoms"),
        (
            record(1),
            b"x",
            record(1),
            "the first atom at byte 292 of the frame",
        ),
        (
            record(5),
            b"zero",
            record(5),
            "three numbers, the position of atom 1 in the frame",
        ),
        (
            record(9) + 20,
            b"1.0 2.0",
            record(9),
            "three numbers, the velocity of atom 2 in the frame",
        ),
        (record(8) - 1, b" ", record(7), "a line of 73 bytes"),
        (
            record(7) + 8,
            b"         1",
            record(7),
            "each atom once in a frame",
        ),
    ];
    for (at, text, found_at, wanted) in cases {
        let mut frame = frame.clone();
        frame[at..at + text.len()].copy_from_slice(text);
        let fault = decode_frame(layout, &frame, Atoms::all(3), Fields::ALL).unwrap_err();
        let Fault::Bad { at, expected, .. } = fault else {
            panic!("{fault:?}")
        };
        assert_eq!((at, expected.as_str()), (found_at, wanted));
    }
    for size in [frame.len() - 73, frame.len() + 73] {
        let mut frame = frame.clone();
        frame.resize(size, b' ');
        assert!(decode_frame(layout, &frame, Atoms::all(3), Fields::ALL).is_err());
    }
}

#[test]
fn lines_too_many_or_too_few_are_damage() {
    let (layout, frame) = three_atoms();
    let layout = layout.varying();
    assert!(decode_frame(layout, &frame, Atoms::all(3), Fields::ALL).is_ok());
    for record in 0..frame.len() / 73 {
        let (at, end) = (73 * record, 73 * record + 73);
        let shorter = [&frame[..at], &frame[end..]].concat();
        let longer = [&frame[..end], &frame[at..]].concat();
        for damaged in [shorter, longer] {
            let decoded = decode_frame(layout, &damaged, Atoms::all(3), Fields::ALL);
            assert!(matches!(decoded, Err(Fault::Bad { .. })), "record {record}");
        }
    }
}

#[test]
fn a_frame_holds_what_its_lines_show() {
    let (layout, frame) = three_atoms();
    // A frame without velocities, as after a restart, in a file whose header states velocities.
    let positions_only: Vec<u8> = frame
        .chunks(73)
        .enumerate()
        .filter(|(k, _)| *k < 4 || (k - 4) % 3 < 2)
        .flat_map(|(_, line)| line.to_vec())
        .collect();
    let decode = |layout, frame: &[u8]| decode_frame(layout, frame, Atoms::all(3), Fields::ALL);
    let held = decode(layout.varying(), &positions_only).unwrap();
    assert_eq!(held.fields, Fields::POSITIONS);
    assert_eq!(held.positions, decode(layout, &frame).unwrap().positions);
}

#[test]
fn a_step_of_stars_is_told_by_the_time() {
    let text = b"made up\n 3 2         1         0         0\n\
        timestep****** 0.00100 1234.56700\n\
        1.0 0.0 0.0\n0.0 1.0 0.0\n0.0 0.0 1.0\nNa+ 0.1 0.2 0.3 0.0\n";
    let layout = Head::parse_history(text, text.len() as u64).unwrap().layout;
    let frame = &text[layout.start() as usize..];
    let decoded = decode_frame(layout, frame, Atoms::all(1), Fields::ALL).unwrap();
    assert_eq!((decoded.time, decoded.step), (1234.567, 1_234_567));
    assert_eq!(decoded.positions, [0.1, 0.2, 0.3]);
}

#[test]
fn names_may_touch_numbers_and_numbers_be_missing() {
    let config = b"made up\n0 0\nSODIUM+A0000000002\n4 5 6\nSODIUM_ION and more\n1 2 3\n";
    let head = Head::parse_config(config, config.len() as u64).unwrap();
    assert_eq!((head.claimed, head.layout.frame_size()), (None, None));
    let layout = head.layout.with_n_atoms(2);
    let size = config.len() as u64;
    let head = FrameHead::parse(&layout, config, size).unwrap();
    let mut records = Records::new(
        &layout,
        &head,
        0,
        &config[head.len..],
        size - head.len as u64,
    );
    let [first, second] = [(); 2].map(|()| records.next_atom().unwrap());
    assert_eq!((&first.name, first.id), (b"SODIUM+A", Some(2)));
    assert_eq!((&second.name, second.id), (b"SODIUM_I", None));
    assert!(first.mass.is_nan());
}

#[test]
fn other_text_is_neither_of_them() {
    let others: [&[u8]; 8] = [
        b"",
        b"3\n0 0\nC 0.0 0.0 0.0\nC 1.0 0.0 0.0\n",
        b"title\n    2\n    1SOL     OW    1   0.126   1.624   1.679\n",
        b"title\n0 0\n",
        b"title\n0 9\nNa\n1 2 3\n",
        b"title\n0 2\n1 0 0\n0 1 0\nNa\n1 2 3\n",
        b"\x01\x02\n0 0\nNa\n1 2 3\n",
        b"ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n",
    ];
    for text in others {
        assert_eq!(detect(text), None, "{}", text.escape_ascii());
    }
    assert_eq!(detect(b"title\n0 0\nNa\n1 2 3\n"), Some(Kind::Config));
    assert_eq!(detect(b"title\n0 0 1 0 2\n"), Some(Kind::History));
}

#[test]
fn a_layout_survives_its_bytes_and_garbage_is_refused() {
    let mut random = Random(7);
    for file in variants(11) {
        let (layout, _) = open(&file, 1);
        let bytes = layout.to_bytes();
        assert_eq!(Layout::from_bytes(&bytes), Some(layout));
        assert_eq!(Layout::from_bytes(&bytes[1..]), None);
        for _ in 0..200 {
            let mut bytes = bytes.clone();
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
            if let Some(layout) = Layout::from_bytes(&bytes) {
                assert_eq!(layout.to_bytes(), bytes);
            }
        }
    }
}

#[test]
fn damaged_bytes_do_no_harm() {
    let mut random = Random(3);
    for file in variants(4) {
        let (history, _) = file.history(2);
        for bytes in [history, file.config()] {
            for _ in 0..15 {
                let mut bytes = bytes.clone();
                for _ in 0..1 + random.below(3) {
                    let at = random.below(bytes.len());
                    match random.below(3) {
                        0 => drop(bytes.remove(at)),
                        1 => bytes.insert(at, b"\n 9-.Et\0"[random.below(8)]),
                        _ => bytes[at] = random.below(256) as u8,
                    }
                }
                check::check(&[&[1, 2], &bytes[..]].concat());
            }
        }
    }
}

#[test]
fn fuzz_seeds_do_no_harm() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/dlpoly");
    for seed in std::fs::read_dir(seeds).unwrap() {
        check::check(&std::fs::read(seed.unwrap().path()).unwrap());
    }
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
