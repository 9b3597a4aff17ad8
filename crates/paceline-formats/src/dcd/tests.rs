//! Tests that write and read back every variant of the format, and tests of damaged files.

#[path = "../../tests/checks/dcd.rs"]
mod exercise;
mod sample_files;

use self::sample_files::{File, NAMD_CELL, variants};
use super::*;
use crate::Frame;

/// Decode frame `number` of a file from the byte ranges (runs) that the decoder requests.
fn decode(file: &[u8], indices: &[usize], number: u64) -> Result<Frame, Fault> {
    let layout = Layout::parse(file, file.len() as u64)?;
    let atoms = Atoms::new(indices, layout.n_atoms()).unwrap();
    let first_size = layout.first_frame_size();
    let (first, later) = file[layout.header_size() as usize..].split_at(first_size as usize);
    let mut decoder = DcdDecoder::new(layout.clone(), atoms);
    if decoder.needs_first_frame() {
        decoder.set_first_frame(first)?;
    }
    let (size, frame) = if number == 0 {
        (first_size, first)
    } else {
        let size = layout.frame_size();
        let start = (number - 1) * size;
        (size, &later[start as usize..(start + size) as usize])
    };
    let mut bytes = Vec::new();
    let mut end = 0;
    for run in decoder.runs(number, size) {
        assert!(run.start >= end && run.len > 0, "runs ascend");
        end = run.start + run.len;
        bytes.extend_from_slice(&frame[run.start as usize..end as usize]);
    }
    let mut out = Frame::new(indices.len(), Fields::POSITIONS);
    decoder.decode(number, size, &bytes, out.out())?;
    Ok(out)
}

#[test]
fn every_variant_gives_back_what_was_written() {
    for file in variants(11) {
        let bytes = file.bytes(3);
        let layout = Layout::parse(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(layout.n_atoms(), 11, "{file:?}");
        assert_eq!(layout.n_frames_claimed(), 3, "{file:?}");
        let end = layout.header_size() + layout.first_frame_size() + 2 * layout.frame_size();
        assert_eq!(end, bytes.len() as u64, "{file:?}");
        let all: Vec<usize> = (0..11).collect();
        for number in 0..3 {
            let frame = decode(&bytes, &all, number).unwrap();
            assert_eq!(frame.positions, file.positions(number, &all), "{file:?}");
            assert_eq!(frame.step, 100 + 50 * number as i64);
        }
    }
}

#[test]
fn chosen_atoms_are_the_same_numbers() {
    let (small, large) = (11, 4000);
    for (n_atoms, indices) in [
        (small, vec![]),
        (small, vec![0]),
        (small, vec![10]),
        (small, vec![1, 3, 4, 5, 9]),
        (large, vec![1700]),
        (large, vec![0, 1, 2, 1100, 1101, 3999]),
        (large, (5..4000).step_by(7).collect()),
        (large, (1000..3000).collect()),
    ] {
        for file in variants(n_atoms) {
            let bytes = file.bytes(2);
            for number in 0..2 {
                let frame = decode(&bytes, &indices, number).unwrap();
                assert_eq!(
                    frame.positions,
                    file.positions(number, &indices),
                    "{file:?}"
                );
            }
        }
    }
}

#[test]
fn only_runs_with_wanted_atoms_are_read() {
    let n_atoms = 100_000;
    let bytes = File::new(n_atoms).bytes(1);
    let layout = Layout::parse(&bytes, bytes.len() as u64).unwrap();
    let size = layout.frame_size();
    let runs = |indices: &[usize]| {
        let atoms = Atoms::new(indices, n_atoms).unwrap();
        DcdDecoder::new(layout.clone(), atoms)
            .runs(0, size)
            .to_vec()
    };
    let read = |runs: &[Run]| runs.iter().map(|run| run.len).sum::<u64>();
    let all: Vec<usize> = (0..n_atoms).collect();
    assert_eq!(
        runs(&all),
        [Run {
            start: 0,
            len: size
        }]
    );
    assert_eq!(
        runs(&all[..99_000]),
        [Run {
            start: 0,
            len: size
        }]
    );
    // Nine ranges are read: x, y and z of two distant atoms, the marker before the first record,
    // and the two markers at each of the two borders between records.
    let far = runs(&[40_000, 80_000]);
    assert_eq!(far.len(), 9);
    assert_eq!(read(&far), 6 * 4 + 4 + 2 * 8);
    // Atoms within the maximum gap are read together.
    let near = runs(&[0, 1000, 2000]);
    assert_eq!(near.len(), 3);
    assert!(read(&near) < 3 * 8100);
}

#[test]
fn cells_are_what_mdanalysis_makes_of_them() {
    // Expected values are those of MDAnalysis 2.11 for the same records.
    let cases = [
        (
            [30.0, 0.25, 40.0, -0.5, 0.125, 50.0],
            [30.0, 40.0, 50.0, 82.819_244, 120.0, 75.522_49],
        ),
        (
            [30.0, 75.5, 40.0, 60.0, 80.25, 50.0],
            [30.0, 40.0, 50.0, 80.25, 60.0, 75.5],
        ),
        (
            [35.44, -0.37, 36.5, -1.25, 2.5, 40.1],
            [
                35.463_966, 36.587_387, 40.197_296, 82.500_17, 93.835_16, 91.313_484,
            ],
        ),
        (
            [35.44, 200.0, 36.5, 1.25, 2.5, 400.1],
            [
                203.119_57, 203.318_71, 400.109_77, 89.055_12, 89.263_66, 69.606_224,
            ],
        ),
        (
            [30.0, 0.0, 40.0, 0.0, 0.0, 50.0],
            [30.0, 40.0, 50.0, 90.0, 90.0, 90.0],
        ),
        ([0.0; 6], [0.0; 6]),
        ([0.0, 90.0, 0.0, 90.0, 90.0, 0.0], [0.0; 6]),
        // Numbers that are not finite do not make a cell.
        ([30.0, 90.0, f64::INFINITY, 90.0, 90.0, 50.0], [0.0; 6]),
        ([30.0, 90.0, 40.0, f64::NAN, 90.0, 50.0], [0.0; 6]),
        ([30.0, 90.0, 1e300, 90.0, 90.0, 50.0], [0.0; 6]),
    ];
    for (cell, expected) in cases {
        for big_endian in [false, true] {
            let file = File {
                big_endian,
                cell: Some(cell),
                ..File::new(2)
            };
            assert_eq!(
                decode(&file.bytes(1), &[1], 0)
                    .unwrap()
                    .unit_cell()
                    .dimensions,
                expected
            );
        }
    }
    let without = File {
        cell: None,
        ..File::new(2)
    };
    assert_eq!(
        decode(&without.bytes(1), &[0], 0)
            .unwrap()
            .unit_cell()
            .dimensions,
        [0.0; 6]
    );
}

/// Return the lengths and angles of the cell whose vectors are the rows of a shape matrix.
fn shape(record: [f64; 6]) -> [f32; 6] {
    let [xx, xy, yy, xz, yz, zz] = record;
    crate::triclinic_box([xx, xy, xz], [xy, yy, yz], [xz, yz, zz])
}

#[test]
fn cells_mean_what_the_version_and_the_numbers_say() {
    let cosines = [30.0, 0.25, 40.0, -0.5, 0.125, 50.0];
    let small = [4.1, -0.5, 4.2, -0.4, 0.3, 4.3];
    let flat = [60.0, 5.5, 61.0, 4.25, 3.5, 62.0];
    let degrees = [60.0, 75.5, 60.0, 60.0, 80.25, 60.0];
    let wide = [1000.0, 109.5, 1000.0, 109.5, 109.5, 1000.0];
    let square = [30.0, 0.0, 40.0, 0.0, 0.0, 50.0];
    let odd = [35.44, 200.0, 36.5, 1.25, 2.5, 400.1];
    let of_degrees = |[a, gamma, b, beta, alpha, c]: [f64; 6]| {
        [a, b, c, alpha, beta, gamma].map(|value| value as f32)
    };
    let of_cosines = [30.0, 40.0, 50.0, 82.819_244, 120.0, 75.522_49];
    let right = [30.0, 40.0, 50.0, 90.0, 90.0, 90.0];
    for (version, record, expected, doubtful) in [
        (24, cosines, of_cosines, false),
        (22, cosines, of_cosines, true),
        (25, cosines, of_cosines, true),
        (26, cosines, shape(cosines), false),
        (36, small, shape(small), false),
        (24, flat, shape(flat), false),
        (36, flat, shape(flat), false),
        (36, odd, shape(odd), false),
        (24, degrees, of_degrees(degrees), false),
        (25, degrees, of_degrees(degrees), false),
        (36, degrees, of_degrees(degrees), true),
        (24, wide, of_degrees(wide), false),
        (36, wide, shape(wide), true),
        (24, square, right, false),
        (22, square, right, false),
        (36, square, right, false),
        (36, [0.0; 6], [0.0; 6], false),
        (36, [f64::NAN; 6], [0.0; 6], false),
        (24, [0.0, 90.0, 0.0, 90.0, 90.0, 0.0], [0.0; 6], false),
        (36, [0.0, 90.0, 0.0, 90.0, 90.0, 0.0], [0.0; 6], false),
    ] {
        let file = File {
            version,
            cell: Some(record),
            ..File::new(2)
        };
        let found = decode(&file.bytes(1), &[1], 0)
            .unwrap()
            .unit_cell()
            .dimensions;
        assert_eq!(found, expected, "{version} {record:?}");
        let doubt = layout_and_cell::doubt(version, record);
        assert_eq!(doubt.is_some(), doubtful, "{version} {record:?}: {doubt:?}");
    }
}

#[test]
fn times_are_those_of_mdanalysis() {
    let file = File::new(2);
    let frame = decode(&file.bytes(3), &[0], 2).unwrap();
    // (2 + 100 / 50) * (0.04 as float32 * 4.888821e-2 * 50)
    assert_eq!(frame.time, 0.391_105_671_258_106_86);
    assert_eq!(frame.step, 200);
}

#[test]
fn a_header_without_steps_or_step_length_is_read() {
    let still = File {
        nsavc: 0,
        ..File::new(2)
    };
    let frame = decode(&still.bytes(2), &[0], 1).unwrap();
    assert_eq!(frame.step, 101);
    assert!(frame.time.is_finite());
    let timeless = File {
        delta: f64::NAN,
        ..File::new(2)
    };
    let bytes = timeless.bytes(2);
    assert!(decode(&bytes, &[0], 1).unwrap().time.is_nan());
    let layout = Layout::parse(&bytes, bytes.len() as u64).unwrap();
    assert_eq!(Layout::from_bytes(&layout.to_bytes()), Some(layout));
}

#[test]
fn a_title_longer_than_its_markers_is_read() {
    // Old versions of MDAnalysis wrote three lines, with the length of two lines in the markers.
    let file = File {
        title_lines: 3,
        ..File::new(5)
    };
    let mut bytes = file.bytes(2);
    bytes[92] = 164;
    bytes[92 + 4 + 244] = 164;
    let frame = decode(&bytes, &[1, 4], 1).unwrap();
    assert_eq!(frame.positions, file.positions(1, &[1, 4]));
}

#[test]
fn a_wrong_marker_is_named_with_its_place() {
    let file = File {
        cell: Some(NAMD_CELL),
        four_dims: true,
        ..File::new(11)
    };
    let whole = file.bytes(1);
    let start = Layout::parse(&whole, whole.len() as u64)
        .unwrap()
        .header_size() as usize;
    let mut places = vec![0, 52];
    places.extend((0..4).flat_map(|record| [56 + 52 * record, 56 + 52 * record + 48]));
    for at in places {
        let mut bytes = whole.clone();
        bytes[start + at + 1] = 1;
        let Err(Fault::Bad {
            at: found,
            expected,
            found: value,
        }) = decode(&bytes, &[3], 0).map(|_| ())
        else {
            panic!("the marker at byte {at} was not checked");
        };
        assert_eq!(found, at);
        let len = if at <= 52 { 48 } else { 44 };
        assert_eq!(expected, format!("a record marker of {len}"));
        assert_eq!(
            value,
            format!("{} (bytes [{len:02x}, 01, 00, 00])", len + 256)
        );
    }
}

#[test]
fn fixed_atoms_need_the_first_frame() {
    let file = File {
        fixed: true,
        ..File::new(11)
    };
    let bytes = file.bytes(2);
    let layout = Layout::parse(&bytes, bytes.len() as u64).unwrap();
    let decoder =
        |indices: &[usize]| DcdDecoder::new(layout.clone(), Atoms::new(indices, 11).unwrap());
    assert!(!decoder(file.free().as_slice()).needs_first_frame());
    let mut decoder = decoder(&[0, 1, 2]);
    assert!(decoder.needs_first_frame());
    assert!(decoder.set_first_frame(&bytes[..20]).is_err());
    let start = layout.header_size() as usize;
    let first = &bytes[start..start + layout.first_frame_size() as usize];
    decoder.set_first_frame(first).unwrap();
    assert!(!decoder.needs_first_frame());
}

#[test]
fn a_cut_head_asks_for_more_and_a_cut_file_is_damaged() {
    for file in variants(11) {
        let bytes = file.bytes(1);
        let size = bytes.len() as u64;
        let head = Layout::parse(&bytes, size).unwrap().header_size() as usize;
        for cut in 0..head {
            match Layout::parse(&bytes[..cut], size) {
                Err(Fault::Short { needed }) => assert!(needed > cut && needed <= head),
                other => panic!("cut at {cut}: {other:?}"),
            }
            let other = Layout::parse(&bytes[..cut], cut as u64);
            assert!(
                matches!(other, Err(Fault::Bad { at, .. }) if at <= cut),
                "{other:?}"
            );
        }
        assert!(
            Layout::parse(&bytes[..head], head as u64).is_ok(),
            "no frames yet"
        );
        for cut in head + 1..bytes.len() {
            assert!(Layout::parse(&bytes[..head], cut as u64).is_err());
        }
    }
}

#[test]
fn absurd_counts_are_refused() {
    let file = File {
        fixed: true,
        ..File::new(11)
    };
    let bytes = file.bytes(2);
    let title = 92;
    let atoms = title + 4 + 84 + 4 + 4;
    for (at, value) in [
        (40, -1),          // fixed atoms
        (40, 11),          // all atoms are fixed
        (40, 2),           // contradicts the record of the free atoms
        (title, i32::MAX), // title record
        (title, 1 << 19),  // title record below the limit, but beyond the end of the file
        (title, -1),
        (atoms, 0),
        (atoms, -1),
        (atoms, i32::MAX),
        (atoms + 12, 0), // first free atom
        (atoms + 16, 1), // not ascending
        (atoms + 12, i32::MAX),
    ] {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&i32::to_le_bytes(value));
        let fault = Layout::parse(&bytes, bytes.len() as u64);
        assert!(
            matches!(fault, Err(Fault::Bad { .. })),
            "{value} at {at}: {fault:?}"
        );
    }
    let velocities = [&bytes[..4], b"VELD", &bytes[8..]].concat();
    let fault = Layout::parse(&velocities, velocities.len() as u64);
    assert!(format!("{fault:?}").contains("VELD"), "{fault:?}");
}

#[test]
fn thousands_of_changed_bytes_do_no_harm() {
    let mut random = Random(1);
    for file in variants(11) {
        let whole = file.bytes(2);
        for _ in 0..200 {
            let mut bytes = [
                &[random.below(11) as u8, random.below(4) as u8],
                whole.as_slice(),
            ]
            .concat();
            for _ in 0..1 + random.below(4) {
                let at = 2 + random.below(whole.len());
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(bytes.len() - random.below(3) * random.below(40));
            exercise::exercise(&bytes);
        }
    }
}

#[test]
fn a_layout_survives_its_bytes_and_garbage_makes_none() {
    let mut random = Random(2);
    for file in variants(11) {
        let bytes = file.bytes(1);
        let layout = Layout::parse(&bytes, bytes.len() as u64).unwrap();
        let bytes = layout.to_bytes();
        assert_eq!(Layout::from_bytes(&bytes), Some(layout));
        for cut in 0..bytes.len() {
            // A truncated list of free atoms is still a valid list.
            let shorter = Layout::from_bytes(&bytes[..cut]);
            assert!(shorter.is_none() || file.fixed);
        }
        for _ in 0..200 {
            let mut bytes = bytes.clone();
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
            if let Some(layout) = Layout::from_bytes(&bytes) {
                assert_eq!(layout.to_bytes(), bytes);
                DcdDecoder::new(layout.clone(), Atoms::all(layout.n_atoms()));
            }
        }
    }
}

#[test]
fn fuzz_seeds_do_no_harm() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/dcd");
    for seed in std::fs::read_dir(seeds).unwrap() {
        exercise::exercise(&std::fs::read(seed.unwrap().path()).unwrap());
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

#[test]
fn a_head_is_rewritten_for_some_of_the_frames() {
    for file in variants(5) {
        let bytes = file.bytes(3);
        let size = bytes.len() as u64;
        let layout = Layout::parse(&bytes, size).unwrap();
        let mut head = bytes[..layout.header_size() as usize].to_vec();
        layout.rewrite_head(&mut head, 0, 3).unwrap();
        assert_eq!(bytes[..head.len()], head, "{file:?}");
        layout.rewrite_head(&mut head, 2, 1).unwrap();
        let piece = Layout::parse(&head, size).unwrap();
        assert_eq!(piece.n_frames_claimed(), 1, "{file:?}");
        assert_eq!(piece.step(0), layout.step(2), "{file:?}");
        assert_eq!(piece.time(0), layout.time(2), "{file:?}");
        assert_eq!(piece.traits(), layout.traits(), "{file:?}");
    }
}

#[test]
fn numbers_that_a_head_cannot_hold_leave_it_as_it_was() {
    let bytes = File::new(5).bytes(1);
    let layout = Layout::parse(&bytes, bytes.len() as u64).unwrap();
    let mut head = bytes[..layout.header_size() as usize].to_vec();
    let many = i32::MAX as u64 + 1;
    assert_eq!(layout.rewrite_head(&mut head, 0, many), None);
    assert_eq!(layout.rewrite_head(&mut head, many / 50, 1), None);
    assert_eq!(layout.rewrite_head(&mut head, u64::MAX, 1), None);
    assert_eq!(layout.rewrite_head(&mut head[..8], 0, 1), None);
    assert_eq!(bytes[..head.len()], head);
}

#[test]
fn traits_tell_files_apart() {
    let traits = |file: &File| {
        let bytes = file.bytes(1);
        Layout::parse(&bytes, bytes.len() as u64).unwrap().traits()
    };
    let differing = |file: &File| {
        let (ours, theirs) = (traits(&File::new(6)), traits(file));
        let pairs = ours.into_iter().zip(theirs);
        let names = pairs.filter_map(|(a, b)| (a.1 != b.1).then_some(a.0));
        names.collect::<Vec<_>>()
    };
    let file = File::new(6);
    assert!(
        differing(&File {
            title_lines: 3,
            ..file.clone()
        })
        .is_empty()
    );
    for (other, name) in [
        (
            File {
                big_endian: true,
                ..file.clone()
            },
            "byte order",
        ),
        (
            File {
                wide_markers: true,
                ..file.clone()
            },
            "bytes of a record marker",
        ),
        (
            File {
                cell: Some(NAMD_CELL),
                ..file.clone()
            },
            "unit cells",
        ),
        (
            File {
                version: 36,
                ..file.clone()
            },
            "",
        ),
        (
            File {
                four_dims: true,
                ..file.clone()
            },
            "4th dimension",
        ),
        (
            File {
                fixed: true,
                ..file.clone()
            },
            "fixed atoms",
        ),
        (
            File {
                nsavc: 5,
                ..file.clone()
            },
            "steps between frames",
        ),
        (
            File {
                delta: 0.02,
                ..file.clone()
            },
            "length of a step (ps)",
        ),
    ] {
        let names: Vec<_> = Some(name)
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect();
        assert_eq!(differing(&other), names);
    }
    // Files of versions 24 and 36 must not be joined: the version in the header determines the
    // interpretation of all cells.
    let cells = |version| {
        let cell = Some(NAMD_CELL);
        let traits = traits(&File {
            version,
            cell,
            ..file.clone()
        });
        traits.into_iter().find(|(name, _)| *name == "unit cells")
    };
    assert_eq!(cells(24), cells(22));
    assert_ne!(cells(24), cells(36));
}
