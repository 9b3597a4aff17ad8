//! Tests that read dumps with columns and atoms in any order, and tests of damaged dumps.

#[path = "../checks/lammps.rs"]
mod check;

use std::fmt::Write;

use check::{frames, layout_of};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::lammps::{LammpsDecoder, Layout, MAX_LINE};
use paceline_formats::{Decoder, Fields, Frame};

const N_ATOMS: usize = 7;
const ORTHOGONAL: &str = "pp pp ff\n-2 18\n0.5 20.5\n-1e1 2e1";
const TILTED: &str = "xy xz yz pp pp pp\n-2 24 5\n0.5 20.5 -1\n-10 20 0";

/// Return a file with its atoms in reverse order. All components of position, velocity and force of
/// atom k are k, plus the frame number in x.
fn dump(columns: &str, bounds: &str, first_id: usize, n_frames: usize) -> Vec<u8> {
    let mut text = String::new();
    for frame in 0..n_frames {
        let step = 10 * frame;
        write!(
            text,
            "ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n{N_ATOMS}\n"
        )
        .unwrap();
        writeln!(text, "ITEM: BOX BOUNDS {bounds}\nITEM: ATOMS {columns}").unwrap();
        for atom in (0..N_ATOMS).rev() {
            for column in columns.split(' ') {
                match column {
                    "id" => write!(text, "{} ", first_id + atom).unwrap(),
                    "element" => text += "Na ",
                    _ if column.starts_with('x') => write!(text, "{} ", atom + frame).unwrap(),
                    _ => write!(text, "{atom}.0e+00 ").unwrap(),
                }
            }
            text += "\n";
        }
    }
    text.into_bytes()
}

fn decode(layout: Layout, frame: &[u8]) -> Result<Frame, Fault> {
    let mut out = Frame::new(N_ATOMS, Fields::ALL);
    let mut decoder = LammpsDecoder::new(layout, &Atoms::all(N_ATOMS), Fields::ALL);
    decoder.decode(0, frame.len() as u64, frame, out.out())?;
    Ok(out)
}

/// Return the positions in the last frame of a file.
fn last_positions(file: &[u8]) -> Vec<f32> {
    let layout = layout_of(file).unwrap();
    decode(layout, frames(file).last().unwrap())
        .unwrap()
        .positions
}

fn refusal(layout: Layout, frame: &[u8]) -> String {
    match decode(layout, frame) {
        Err(Fault::Bad {
            at,
            expected,
            found,
        }) => {
            assert!(at <= frame.len());
            format!("{expected}: {found}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn atoms_come_in_the_order_of_their_ids_from_the_corner_of_the_cell() {
    let shifted = |atom: usize| {
        [
            atom as f32 + 2.0 + 2.0,
            atom as f32 - 0.5,
            atom as f32 + 10.0,
        ]
    };
    let expected: Vec<f32> = (0..N_ATOMS).flat_map(shifted).collect();
    for columns in ["id x y z", "z element x y id q", "yu vx zu xu id"] {
        for first_id in [1, 40] {
            let file = dump(columns, ORTHOGONAL, first_id, 3);
            assert_eq!(last_positions(&file), expected, "{columns}, {first_id}");
        }
    }
}

#[test]
fn scaled_positions_are_those_of_mdanalysis() {
    // Fractions of 20, 20 and 30 Å, minus the corner.
    let atom = |k: usize| k as f32;
    let orthogonal = |k| {
        [
            20.0 * (atom(k) + 1.0) + 2.0,
            20.0 * atom(k) - 0.5,
            30.0 * atom(k) + 10.0,
        ]
    };
    let expected: Vec<f32> = (0..N_ATOMS).flat_map(orthogonal).collect();
    for columns in ["id xs ys zs", "id xsu ysu zsu", "xu yu zu id zs ys xs"] {
        assert_eq!(last_positions(&dump(columns, ORTHOGONAL, 1, 2)), expected);
    }
    // The file states the bounding box of the tilted cell. In x, it begins 1 Å before the cell's
    // first edge, and ends 5 Å after it.
    let layout_and_frame = dump("id xs ys zs", TILTED, 1, 1);
    let frame = decode(layout_of(&layout_and_frame).unwrap(), &layout_and_frame).unwrap();
    let [x, y, z, alpha, beta, gamma] = frame.unit_cell().dimensions.map(f64::from);
    assert_eq!([x, z], [20.0, f64::from(901.0f32.sqrt())]);
    assert!((y - 425f64.sqrt()).abs() < 1e-5);
    assert!((gamma - 20f64.atan2(5.0).to_degrees()).abs() < 1e-5);
    assert!(alpha > 90.0 && beta > 90.0);
    // Atom 1 is at the far corner: the sum of the cell vectors, minus the corner at −1.
    let corner = [20.0 + 5.0 - 1.0 + 1.0, 20.0 - 0.5, 30.0 + 10.0];
    for (found, expected) in frame.positions[3..6].iter().zip(corner) {
        assert!(
            (found - expected).abs() < 1e-4,
            "{:?}",
            &frame.positions[3..6]
        );
    }
}

#[test]
fn velocities_and_forces_are_read_where_all_three_are_there() {
    let file = dump("id vx vy vz x y z fx fy", ORTHOGONAL, 1, 1);
    let frame = decode(layout_of(&file).unwrap(), &file).unwrap();
    assert_eq!(frame.fields, Fields::from_bits(3));
    assert_eq!(frame.velocities[3 * 5..], [5.0, 5.0, 5.0, 6.0, 6.0, 6.0]);
    assert_eq!((frame.time, frame.step), (0.0, 0));
}

#[test]
fn numbers_are_converted_by_the_units_of_the_file() {
    let columns = "id x y z vx vy vz fx fy fz";
    let file = dump(columns, ORTHOGONAL, 1, 1);
    let stated = [b"ITEM: UNITS\nreal\n", &file[..]].concat();
    let [plain, real] =
        [&file, &stated].map(|file| decode(layout_of(file).unwrap(), file).unwrap());
    assert_eq!(real.positions, plain.positions);
    assert_eq!(real.cell, plain.cell);
    for (real, plain) in real.velocities.iter().zip(&plain.velocities) {
        assert_eq!(*real, 1000.0 * plain);
    }
    for (real, plain) in real.forces.iter().zip(&plain.forces) {
        assert!((real - 4.184 * plain).abs() < 1e-5);
    }
    let nano = [b"ITEM: UNITS\nnano\n", &file[..]].concat();
    let nano = decode(layout_of(&nano).unwrap(), &nano).unwrap();
    let [nano, plain] = [nano, plain].map(|frame| frame.unit_cell());
    assert_eq!(
        nano.dimensions[..3],
        [0, 1, 2].map(|k| 10.0 * plain.dimensions[k])
    );
    assert_eq!(nano.dimensions[3..], plain.dimensions[3..]);
    assert_eq!(nano.vectors[2][2], 10.0 * plain.vectors[2][2]);
}

#[test]
fn damage_is_refused() {
    let file = dump("id element x y z", ORTHOGONAL, 1, 2);
    let layout = layout_of(&file).unwrap();
    let frame = frames(&file)[1];
    let text = std::str::from_utf8(frame).unwrap();
    let long = format!("\n3 {} 2 2 2\n", "N".repeat(MAX_LINE));
    for (old, new, words) in [
        ("\n7\n", "\n8\n", "a frame of 7 atoms: 8"),
        ("\n7\n", "\n0\n", "at least 1 atom"),
        ("\n3 Na", "\n4 Na", "atom 4 again"),
        ("\n3 Na", "\n8 Na", "ids from 1 to 7"),
        ("\n3 Na", "\n0 Na", "an atom's id in column 1"),
        (
            "\n3 Na 3 2.0e+00",
            "\n3 Na 3 2.0e+00q",
            "a number in column 4",
        ),
        ("\n3 Na 3 ", "\n3 Na 3 3 ", "an atom of 5 columns: 6"),
        (
            "\n3 Na 3 2.0e+00 2.0e+00 ",
            &long,
            "a line of at most 16384 bytes",
        ),
        (" z\n", "\n", "columns of positions"),
        ("pp pp ff", "abc origin pp pp ff", "general triclinic"),
        ("-2 18", "-2 1e400", "two bounds"),
    ] {
        let changed = text.replacen(old, new, 1);
        assert_ne!(changed, text, "{old}");
        let refusal = refusal(layout, changed.as_bytes());
        assert!(refusal.contains(words), "{refusal:?} is not {words:?}");
    }
}

#[test]
fn any_change_of_bytes_is_borne() {
    let mut random = Random(7);
    for columns in ["id x y z", "xs ys zs id fx fy fz", "x y z"] {
        for (bounds, first_id) in [(ORTHOGONAL, 1), (TILTED, 5)] {
            let file = dump(columns, bounds, first_id, 3);
            for _ in 0..300 {
                let mut bytes = file.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(bytes.len());
                    match random.below(4) {
                        0 => bytes.truncate(at.max(1)),
                        1 => bytes.insert(at, b"\n 9-.Et\0"[random.below(8)]),
                        2 => drop(bytes.remove(at)),
                        _ => bytes[at] = random.below(256) as u8,
                    }
                }
                check::check(&[&[1, 7], &bytes[..]].concat());
            }
        }
    }
}

#[test]
fn fuzz_seeds_do_no_harm() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/lammps");
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
