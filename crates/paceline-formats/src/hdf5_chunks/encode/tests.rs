use std::iter::repeat_n;

use libdeflater::Decompressor;
use lz4_flex::block::decompress_into;

use super::*;

const PLAIN: fn(usize, usize) -> Settings = Settings::new;

/// Return numbers that are all different.
fn numbers(n_frames: usize, n_atoms: usize) -> Vec<f32> {
    (0..3 * n_frames * n_atoms)
        .map(|k| k as f32 * 0.37 - 55.0)
        .collect()
}

fn encode(settings: Settings, values: &[f32], n_atoms: usize) -> Vec<Vec<u8>> {
    let mut room = ChunkBuffers::default();
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

fn unpack(compression: Compression, bytes: &[u8], size: usize) -> Vec<u8> {
    let mut out = vec![0; size];
    let n = match compression {
        Compression::Gzip(_) => Decompressor::new()
            .zlib_decompress(bytes, &mut out)
            .unwrap(),
        Compression::Zstd(_) => zstd_safe::decompress(&mut out[..], bytes).unwrap(),
        Compression::Lz4 => unpack_lz4(bytes, &mut out),
        Compression::Lzf => lzf::inflate(bytes, &mut out).map(|()| size).unwrap(),
    };
    assert_eq!(n, size);
    out
}

/// Decode an LZ4 stream, which must consist of one block.
fn unpack_lz4(bytes: &[u8], out: &mut [u8]) -> usize {
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!((number(0), number(4), number(8)), (0, out.len(), out.len()));
    let packed = &bytes[16..];
    assert_eq!(number(12), packed.len());
    match packed.len() == out.len() {
        true => out.copy_from_slice(packed),
        false => assert_eq!(decompress_into(packed, out).unwrap(), out.len()),
    }
    out.len()
}

const COMPRESSIONS: [Compression; 6] = [
    Compression::Gzip(1),
    Compression::Zstd(1),
    Compression::Zstd(3),
    Compression::Zstd(19),
    Compression::Lz4,
    Compression::Lzf,
];

/// Create the expected chunks number by number, as HDF5 specifies them.
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
        for compression in COMPRESSIONS {
            let settings = Settings {
                compression: Some(compression),
                ..PLAIN(frames, atoms)
            };
            let unpacked = encode(settings, &values, 11)
                .iter()
                .map(|chunk| unpack(compression, chunk, 12 * frames * atoms))
                .collect::<Vec<_>>();
            assert_eq!(unpacked, plain);
        }
    }
}

#[test]
fn shuffled_bytes_stand_by_their_place_in_the_number() {
    let values = numbers(2, 5);
    for (float, size, compression) in COMPRESSIONS
        .into_iter()
        .flat_map(|one| [(Float::F4, 4, one), (Float::F8, 8, one)])
    {
        let settings = Settings {
            float,
            shuffle: true,
            compression: Some(compression),
            ..PLAIN(2, 5)
        };
        let chunks = encode(settings, &values, 5);
        let found = unpack(compression, &chunks[0], size * values.len());
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
    let refused = encoder.encode(&values, 5, &mut ChunkBuffers::default());
    let reason = "atom 3: expected a finite position, found NaN".to_owned();
    assert_eq!(refused, Err((2, reason)));
}

#[test]
fn what_lz4_makes_no_smaller_is_stored_as_it_is() {
    let values: Vec<f32> = (1..=15).map(|k| 1.0 / k as f32).collect();
    let settings = Settings {
        compression: Some(Compression::Lz4),
        ..PLAIN(1, 5)
    };
    let chunk = &encode(settings, &values, 5)[0];
    assert_eq!(
        chunk[..16],
        [0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0, 60]
    );
    assert_eq!(chunk[16..], *bytemuck::cast_slice::<f32, u8>(&values));
}

#[test]
fn memory_is_used_again_whatever_comes_between() {
    let mut room = ChunkBuffers::default();
    let values: Vec<f32> = repeat_n(1.5, 12).collect();
    let mut packed = Vec::new();
    for compression in COMPRESSIONS.into_iter().chain(COMPRESSIONS) {
        let encoder = ChunkEncoder::new(Settings {
            compression: Some(compression),
            ..PLAIN(1, 4)
        })
        .unwrap();
        encoder.encode(&values, 4, &mut room).unwrap();
        packed.push(room.packed.clone());
    }
    let (first, again) = packed.split_at(COMPRESSIONS.len());
    assert_eq!(first, again);
}

#[test]
fn numbers_of_any_width_are_packed_as_they_are() {
    let mut room = ChunkBuffers::default();
    let plain: Vec<u8> = (0..240).map(|k| (k * 7 % 251) as u8).collect();
    for (width, compression) in COMPRESSIONS
        .into_iter()
        .flat_map(|one| [2, 4, 8, 16].map(|width| (width, one)))
    {
        for shuffled in [false, true] {
            pack_chunk(&plain, width, shuffled, compression, &mut room).unwrap();
            let found = unpack(compression, &room.packed, plain.len());
            let place = |k| match shuffled {
                true => k % width * (plain.len() / width) + k / width,
                false => k,
            };
            assert!((0..plain.len()).all(|k| found[place(k)] == plain[k]));
        }
    }
    for (bytes, width) in [(&plain[..7], 4), (&[], 4), (&plain, 0)] {
        let refused = pack_chunk(bytes, width, true, Compression::Lz4, &mut room);
        assert!(refused.unwrap_err().contains("are not a whole number of"));
    }
}

#[test]
fn what_no_dataset_has_is_refused() {
    let refused = |settings| ChunkEncoder::new(settings).unwrap_err();
    assert!(refused(PLAIN(0, 5)).contains("0 frames of 5 atoms"));
    assert!(refused(PLAIN(1 << 20, 1 << 20)).contains("4 GB"));
    assert!(refused(PLAIN(usize::MAX, usize::MAX)).contains("4 GB"));
    for (level, most) in [(0, 9), (10, 9), (-1, 9), (0, 19), (20, 19), (-1, 19)] {
        let (name, compression) = match most {
            9 => ("gzip", Compression::Gzip(level)),
            _ => ("zstd", Compression::Zstd(level)),
        };
        let settings = Settings {
            compression: Some(compression),
            ..PLAIN(1, 5)
        };
        assert_eq!(
            refused(settings),
            format!("{name} has levels 1 to {most}, not {level}")
        );
    }
    let settings = Settings {
        compression: Some(Compression::Lz4),
        ..PLAIN(1 << 13, 1 << 15)
    };
    assert!(refused(settings).contains("less than 2 GiB"));
    assert!(
        refused(Settings {
            shuffle: true,
            ..PLAIN(1, 5)
        })
        .contains("choose a compression")
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
