use std::iter::repeat_n;

use libdeflater::Decompressor;

use super::*;

const PLAIN: fn(usize, usize) -> Settings = |frames, atoms| Settings {
    float: Float::F4,
    frames,
    atoms,
    shuffle: false,
    level: None,
    precision: None,
    factor: 1.0,
    what: "position".into(),
};

/// Numbers that are all different.
fn numbers(n_frames: usize, n_atoms: usize) -> Vec<f32> {
    (0..3 * n_frames * n_atoms)
        .map(|k| k as f32 * 0.37 - 55.0)
        .collect()
}

fn encode(settings: Settings, values: &[f32], n_atoms: usize) -> Vec<Vec<u8>> {
    let mut room = Room::default();
    let encoder = ChunkEncoder::new(settings).unwrap();
    let sizes = encoder.encode(values, n_atoms, &mut room).unwrap();
    let mut rest = &room.packed[..];
    let mut chunks = Vec::new();
    for size in sizes {
        let (chunk, after) = rest.split_at(size as usize);
        chunks.push(chunk.to_vec());
        rest = after;
    }
    assert!(rest.is_empty());
    chunks
}

fn inflate(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut out = vec![0; size];
    let n = Decompressor::new()
        .zlib_decompress(bytes, &mut out)
        .unwrap();
    assert_eq!(n, size);
    out
}

/// The chunks by the letter of the format, number for number.
fn expected(values: &[f32], n_atoms: usize, frames: usize, atoms: usize) -> Vec<Vec<u8>> {
    let n_frames = values.len() / (3 * n_atoms);
    let mut chunks = Vec::new();
    for row in 0..n_frames.div_ceil(frames) {
        for column in 0..n_atoms.div_ceil(atoms) {
            let mut chunk = Vec::new();
            for frame in row * frames..(row + 1) * frames {
                for atom in column * atoms..(column + 1) * atoms {
                    for k in 0..3 {
                        let there = frame < n_frames && atom < n_atoms;
                        let at = 3 * (frame * n_atoms + atom) + k;
                        chunk.extend(if there { values[at] } else { 0.0 }.to_le_bytes());
                    }
                }
            }
            chunks.push(chunk);
        }
    }
    chunks
}

#[test]
fn chunks_of_any_shape_are_padded_at_the_edges() {
    let values = numbers(7, 11);
    for (frames, atoms) in [(1, 11), (7, 11), (8, 16), (3, 4), (2, 11), (1, 1), (4, 10)] {
        let plain = expected(&values, 11, frames, atoms);
        assert_eq!(encode(PLAIN(frames, atoms), &values, 11), plain);
        let settings = Settings {
            level: Some(1),
            ..PLAIN(frames, atoms)
        };
        let inflated = encode(settings, &values, 11)
            .iter()
            .map(|chunk| inflate(chunk, 12 * frames * atoms))
            .collect::<Vec<_>>();
        assert_eq!(inflated, plain);
    }
}

#[test]
fn shuffled_bytes_stand_by_their_place_in_the_number() {
    let values = numbers(2, 5);
    for (float, size) in [(Float::F4, 4), (Float::F8, 8)] {
        let settings = Settings {
            float,
            shuffle: true,
            level: Some(4),
            ..PLAIN(2, 5)
        };
        let chunks = encode(settings, &values, 5);
        let found = inflate(&chunks[0], size * values.len());
        for (i, &value) in values.iter().enumerate() {
            let bytes: Vec<u8> = (0..size).map(|k| found[k * values.len() + i]).collect();
            match float {
                Float::F4 => assert_eq!(bytes, value.to_le_bytes()),
                Float::F8 => assert_eq!(bytes, f64::from(value).to_le_bytes()),
            }
        }
    }
}

#[test]
fn rounded_numbers_are_near_and_end_in_zeros() {
    let precision = 0.001;
    let step = 1.0 / 1024.0;
    for x in (-2000..2000).map(|k| k as f32 * 0.777_77) {
        for settings in [
            PLAIN(1, 1),
            Settings {
                float: Float::F8,
                ..PLAIN(1, 1)
            },
        ] {
            let settings = Settings {
                precision: Some(precision),
                ..settings
            };
            let chunk = &encode(settings, &[x; 3], 1)[0];
            let found = match chunk.len() {
                12 => f64::from(f32::from_le_bytes(chunk[..4].try_into().unwrap())),
                _ => f64::from_le_bytes(chunk[..8].try_into().unwrap()),
            };
            assert!(
                (found - f64::from(x)).abs() <= precision / 2.0,
                "{x} -> {found}"
            );
            assert_eq!((found / step).fract(), 0.0, "{x} -> {found}");
        }
    }
}

#[test]
fn numbers_too_large_to_be_rounded_stay_as_they_are() {
    let large = 1024.0 * 1024.0;
    for x in [large * 8.0, large * 8.25, f32::MAX, -f32::MAX, -large * 9.5] {
        let settings = Settings {
            precision: Some(1.0),
            ..PLAIN(1, 1)
        };
        let chunk = &encode(settings, &[x; 3], 1)[0];
        assert_eq!(chunk[..4], x.to_le_bytes(), "{x}");
    }
    assert_eq!(round_f32(4_194_304.5, 8_388_608.0), 4_194_304.0);
    assert_eq!(round_f32(-4_194_305.5, 8_388_608.0), -4_194_306.0);
}

#[test]
fn units_are_changed_before_rounding() {
    let settings = Settings {
        factor: 0.1,
        ..PLAIN(1, 1)
    };
    let chunk = &encode(settings, &[12.3, 0.7, -5.0], 1)[0];
    assert_eq!(chunk[..4], (12.3_f32 * 0.1).to_le_bytes());
}

#[test]
fn numbers_that_are_not_finite_are_refused_by_frame_and_atom() {
    let mut values = numbers(4, 5);
    values[3 * (2 * 5 + 3) + 1] = f32::NAN;
    let encoder = ChunkEncoder::new(PLAIN(2, 5)).unwrap();
    let refused = encoder.encode(&values, 5, &mut Room::default());
    let reason = "atom 3: expected a finite position, found NaN".to_owned();
    assert_eq!(refused, Err((2, reason)));
}

#[test]
fn memory_is_used_again() {
    let mut room = Room::default();
    let encoder = ChunkEncoder::new(Settings {
        level: Some(1),
        ..PLAIN(1, 4)
    })
    .unwrap();
    let values: Vec<f32> = repeat_n(1.5, 12).collect();
    encoder.encode(&values, 4, &mut room).unwrap();
    let first = room.packed.clone();
    encoder.encode(&values, 4, &mut room).unwrap();
    assert_eq!(room.packed, first);
}

#[test]
fn what_no_dataset_has_is_refused() {
    let refused = |settings| ChunkEncoder::new(settings).unwrap_err();
    assert!(refused(PLAIN(0, 5)).contains("0 frames of 5 atoms"));
    assert!(refused(PLAIN(1 << 20, 1 << 20)).contains("4 GB"));
    assert!(refused(PLAIN(usize::MAX, usize::MAX)).contains("4 GB"));
    for level in [0, 10, -1] {
        let settings = Settings {
            level: Some(level),
            ..PLAIN(1, 5)
        };
        assert_eq!(
            refused(settings),
            format!("gzip has levels 1 to 9, not {level}")
        );
    }
    assert!(
        refused(Settings {
            shuffle: true,
            ..PLAIN(1, 5)
        })
        .contains("level of gzip")
    );
    for precision in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let settings = Settings {
            precision: Some(precision),
            ..PLAIN(1, 5)
        };
        assert!(refused(settings).contains("precision"));
    }
    assert!(
        refused(Settings {
            factor: f64::NAN,
            ..PLAIN(1, 5)
        })
        .contains("factor")
    );
}
