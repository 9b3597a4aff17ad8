//! Tests of the TRR encoder: its output is read back, and it refuses what it cannot write.

use paceline_formats::atom_set::Atoms;
use paceline_formats::trr::{Header, TrrDecoder, TrrEncoder};
use paceline_formats::{CellRow, Encoder, Fields, Frame, UnitCell};

use super::check::decode;

const N_ATOMS: usize = 20;

/// Return a frame with these fields: Å, Å/ps and kJ/(mol·Å).
fn frame(fields: u8) -> Frame {
    let held = Fields::from_bits(fields);
    let mut frame = Frame {
        cell: UnitCell::of_dimensions([30.0, 40.0, 50.0, 90.0, 60.0, 75.0]).row(),
        time: 12.5,
        step: -7,
        lambda: 0.3,
        fields: held,
        ..Frame::new(N_ATOMS, held)
    };
    for values in [
        &mut frame.positions,
        &mut frame.velocities,
        &mut frame.forces,
    ] {
        for (i, value) in values.iter_mut().enumerate() {
            *value = 1.5 * i as f32 - 20.0;
        }
    }
    frame
}

fn cell(dimensions: [f32; 6]) -> CellRow {
    UnitCell::of_dimensions(dimensions).row()
}

fn encode(frame: &Frame) -> Result<Vec<u8>, String> {
    let mut bytes = b"before".to_vec();
    let encoded = TrrEncoder::new(N_ATOMS)?.encode(&frame.as_input(), &mut bytes);
    let frame = bytes.split_off(6);
    assert_eq!(bytes, b"before");
    if encoded.is_err() {
        assert!(frame.is_empty(), "nothing is left of a refused frame");
    }
    encoded.map(|()| frame)
}

#[test]
fn every_mix_of_fields_is_read_back() {
    for fields in 0..8 {
        let written = frame(fields);
        let bytes = encode(&written).unwrap();
        assert_eq!(Header::parse(&bytes).unwrap().size(), bytes.len() as u64);
        let mut decoder = TrrDecoder::new(Atoms::all(N_ATOMS), written.fields);
        let found = decode(&mut decoder, N_ATOMS, written.fields, &bytes).unwrap();
        assert_eq!(
            (found.fields, found.time, found.step, found.lambda),
            (written.fields, 12.5, -7, 0.3)
        );
        let cells = found.cell.iter().zip(written.cell);
        assert!(
            cells.into_iter().all(|(a, b)| (a - b).abs() < 1e-4),
            "{:?}",
            found.cell
        );
        for (found, written) in [
            (found.positions, written.positions),
            (found.velocities, written.velocities),
            (found.forces, written.forces),
        ] {
            assert_eq!(found.len(), written.len());
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= b.abs() * 3e-7;
            assert!(found.iter().zip(&written).all(close));
        }
    }
}

#[test]
fn a_frame_without_a_cell_has_a_box_of_zeros() {
    let bytes = encode(&Frame {
        cell: UnitCell::NONE.row(),
        ..frame(1)
    })
    .unwrap();
    assert_eq!(bytes[32..36], [0, 0, 0, 36]);
    assert_eq!(bytes[84..120], [0; 36]);
}

#[test]
fn what_cannot_be_written_is_refused_by_name() {
    let refused = |change: fn(&mut Frame)| {
        let mut frame = frame(7);
        change(&mut frame);
        encode(&frame).unwrap_err()
    };
    for (found, expected) in [
        (
            refused(|frame| frame.positions[3 * 17 + 1] = f32::NAN),
            "atom 17: expected a finite position, found NaN",
        ),
        (
            refused(|frame| frame.velocities[0] = f32::INFINITY),
            "atom 0: expected a finite velocity, found inf",
        ),
        (
            refused(|frame| frame.forces[59] = -2e38),
            "atom 19: expected a force that fits in 32 bits, found -2",
        ),
        (
            refused(|frame| frame.step = 1 << 31),
            "step 2147483648 does not fit",
        ),
        (
            refused(|frame| frame.time = 1e39),
            "expected a time that fits in 32 bits, found 1",
        ),
        (
            refused(|frame| frame.time = f64::NAN),
            "expected a time that fits in 32 bits",
        ),
        (
            refused(|frame| frame.cell = cell([30.0, 40.0, 50.0, 90.0, 60.0, 170.0])),
            "expected a unit cell or zeros, found [30.0, 40.0, 50.0, 90.0, 60.0, 170.0]",
        ),
        (
            refused(|frame| frame.cell = cell([f32::NAN, 40.0, 50.0, 90.0, 60.0, 75.0])),
            "expected a unit cell or zeros",
        ),
        (
            refused(|frame| frame.cell = cell([f32::INFINITY, 40.0, 50.0, 90.0, 60.0, 75.0])),
            "expected a unit cell or zeros",
        ),
        (
            refused(|frame| frame.forces.truncate(57)),
            "expected a force of each of 20 atoms, found 19",
        ),
    ] {
        assert!(found.starts_with(expected), "{found}");
    }
    assert!(TrrEncoder::new(178_956_970).is_ok());
    assert_eq!(
        TrrEncoder::new(178_956_971).unwrap_err(),
        "TRR holds at most 178956970 atoms, not 178956971"
    );
    assert!(TrrEncoder::new(0).is_err());
}

#[test]
fn a_cell_of_any_orientation_keeps_its_vectors() {
    let vectors = [[0.0, 10.0, 10.0], [10.0, 0.0, 10.0], [10.0, 10.0, 0.0]];
    let mut written = frame(1);
    written.cell = UnitCell::of_vectors(vectors).row();
    let bytes = encode(&written).unwrap();
    let mut decoder = TrrDecoder::new(Atoms::all(N_ATOMS), written.fields);
    let found = decode(&mut decoder, N_ATOMS, written.fields, &bytes).unwrap();
    assert_eq!(found.unit_cell().vectors, vectors);
    assert!(!found.unit_cell().is_upright());
}
