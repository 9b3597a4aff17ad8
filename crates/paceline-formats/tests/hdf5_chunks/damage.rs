//! Tests that contradictory data is refused with its location, and other data is read.

use std::sync::Arc;

use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::hdf5_datasets::{ChunkReader, Element, ReadRequest};
use paceline_formats::block_reader::{BlockOut, Numbers};
use paceline_formats::error::Error;
use paceline_formats::{CELL_WIDTH, Fields};

use crate::SHAPE;
use crate::check::{Bytes, Table, read};
use crate::file::{DEFLATE, FLETCHER32, File, LZ4, LZF, Plan, SHUFFLE, ZSTD};

/// Read rows 0 to 6 in chunks of 3 after a change; return the result.
fn damaged(filters: &[u32], change: impl Fn(&mut File)) -> (Vec<usize>, String) {
    let plan = Plan::new("<f4", &SHAPE, &[3, 50, 3], filters);
    let mut file = plan.write();
    change(&mut file);
    let mut reader = file.open(&Atoms::all(50), None);
    let table = file.table(&[0, 1, 2, 3, 4, 5, 6]);
    let block = read(&mut reader, 50, &table, None, (true, true)).unwrap();
    for row in 0..7 {
        let skipped = block.skipped.iter().any(|&(other, _)| other == row);
        let frame = &block.positions[150 * row..150 * (row + 1)];
        match skipped {
            true => assert!(frame.iter().all(|x| x.is_nan())),
            false => assert_eq!(frame, plan.expected(row as u64)),
        }
    }
    let (rows, reasons): (Vec<usize>, Vec<String>) = block.skipped.into_iter().unzip();
    assert!(
        reasons.iter().all(|reason| reason == &reasons[0]),
        "{reasons:?}"
    );
    let refused = read(&mut reader, 50, &table, None, (false, true));
    assert_eq!(refused.unwrap_err().to_string(), reasons[0]);
    (rows, reasons[0].clone())
}

#[test]
fn damage_is_placed_and_the_rest_can_be_read() {
    let flip = |file: &mut File| {
        let at = (file.table.offsets[1] + file.table.sizes[1] / 2) as usize;
        file.bytes[at] ^= 0x55;
    };
    let cut = |file: &mut File| file.bytes.truncate(file.table.offsets[2] as usize + 9);
    let shorter = |file: &mut File| file.table.sizes[1] -= 7;
    let outside = |file: &mut File| file.table.offsets[0] = u64::MAX - 1;
    let nowhere = |file: &mut File| file.table.offsets[0] = u64::MAX;
    let expected = |filters: &[u32], change: &dyn Fn(&mut File)| damaged(filters, change);
    let says = |(rows, reason): (Vec<usize>, String), which: &[usize], text: &str| {
        assert_eq!(rows, which, "{reason}");
        assert!(reason.starts_with("made-up.h5: frame"), "{reason}");
        assert!(
            reason.contains(" of /particles/all/position/value, byte "),
            "{reason}"
        );
        assert!(reason.contains(text), "{reason}");
    };
    let middle = [3, 4, 5];
    says(
        expected(&[DEFLATE], &flip),
        &middle,
        "expected a deflate stream of 1800 bytes, found",
    );
    says(
        expected(&[LZF], &shorter),
        &middle,
        "expected an LZF stream of 1800 bytes, found",
    );
    says(
        expected(&[ZSTD], &shorter),
        &middle,
        "expected a Zstandard stream of 1800 bytes, found one that is corrupt (src size is incorrect)",
    );
    says(
        expected(&[SHUFFLE, LZ4], &shorter),
        &middle,
        "expected an LZ4 stream of 1800 bytes, found a stream that ends after 1600 bytes",
    );
    says(
        expected(&[FLETCHER32], &flip),
        &middle,
        "with the checksum (fletcher32)",
    );
    says(
        expected(&[SHUFFLE, LZF, FLETCHER32], &flip),
        &middle,
        "fletcher32",
    );
    says(
        expected(&[], &shorter),
        &middle,
        "expected 1800 bytes of numbers, found 1793 bytes",
    );
    says(
        expected(&[SHUFFLE], &shorter),
        &middle,
        "expected 1800 bytes, found 1793 bytes",
    );
    says(expected(&[], &cut), &[6], "frame 106, chunk (2, 0, 0) of");
    says(
        expected(&[DEFLATE], &cut),
        &[6],
        "bytes within the file, found a file of",
    );
    says(
        expected(&[DEFLATE], &outside),
        &[0, 1, 2],
        "frames 100 to 102, chunk (0, 0, 0) of",
    );
    // If the index contains an impossible offset, the message contains no offset.
    let (rows, reason) = expected(&[DEFLATE], &nowhere);
    assert_eq!(rows, [0, 1, 2]);
    let text = "position/value: expected 272 bytes within the file, found an impossible offset in the index";
    assert!(reason.contains(text), "{reason}");
}

/// Check that the size stated in a stream is compared with the size of the chunk before memory is
/// allocated.
#[test]
fn two_chunks_at_one_location_do_not_share_what_was_decoded() {
    let mut file = Plan::new("<f4", &[9, 50, 3], &[4, 50, 3], &[DEFLATE]).write();
    // Of the last chunk, only the first row is decoded.
    file.table.offsets[1] = file.table.offsets[2];
    file.table.sizes[1] = file.table.sizes[2];
    let mut reader = file.open(&Atoms::all(50), None);
    for rows in [&[8, 4, 7][..], &[7, 8]] {
        let block = read(&mut reader, 50, &file.table(rows), None, (false, false)).unwrap();
        let of_row = |row: i64| rows.iter().position(|&other| other == row).unwrap();
        let last = &block.positions[150 * of_row(7)..150 * (of_row(7) + 1)];
        assert!(last.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn chunks_that_state_another_size_are_refused_before_memory_is_taken() {
    let state = |filter: u32, at: usize, bytes: &'static [u8]| {
        damaged(&[filter], |file| {
            let start = file.table.offsets[1] as usize + at;
            file.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        })
    };
    for (found, what) in [
        (
            state(LZ4, 0, &[0x7f; 8]),
            "an LZ4 stream of 1800 bytes, found a stream that states 9187201950435737471 bytes",
        ),
        (state(LZ4, 0, &[0; 8]), "found a stream that states 0 bytes"),
        (
            state(LZ4, 8, &[0; 4]),
            "found a stream in blocks of 0 bytes",
        ),
        (
            state(LZ4, 12, &[0xff; 4]),
            "found a stream that ends after 0 bytes",
        ),
        (
            state(LZ4, 12, &[0; 4]),
            "found one that is corrupt after 0 bytes",
        ),
        // The magic number is followed by a descriptor, and a size in two bytes, which is stored
        // minus 256.
        (
            state(ZSTD, 5, &[0xff, 0xff]),
            "a Zstandard stream of 1800 bytes, found a stream that states 65791 bytes",
        ),
        (
            state(ZSTD, 0, &[0]),
            "found one that is corrupt (unknown frame descriptor)",
        ),
    ] {
        let (rows, reason) = found;
        assert_eq!(rows, [3, 4, 5], "{reason}");
        assert!(reason.contains(what), "{reason}");
    }
    let (_, reason) = damaged(&[LZ4], |file| file.table.sizes[1] = 6);
    assert!(reason.contains("expected at least 7 bytes for 1800 bytes of numbers, found 6 bytes"));
    let (_, reason) = damaged(&[ZSTD], |file| file.table.sizes[1] = 1);
    assert!(
        reason.contains("found one that is corrupt (src size is incorrect)"),
        "{reason}"
    );
}

#[test]
fn a_contiguous_dataset_can_be_read_up_to_where_the_file_ends() {
    let plan = Plan::new("<f4", &SHAPE, &[], &[]);
    let mut file = plan.write();
    file.bytes.truncate(100 + 5 * 600 + 599);
    let mut reader = file.open(&Atoms::all(50), None);
    let table = file.table(&[6, 5, 4]);
    let block = read(&mut reader, 50, &table, None, (true, false)).unwrap();
    assert_eq!(block.fields, [0, 0, 1]);
    assert_eq!(
        block.skipped[1].1,
        "made-up.h5: frame 101, row 5 of /particles/all/position/value, byte 3100: \
         expected 600 bytes within the file, found a file of 3699 bytes"
    );
}

#[test]
fn a_checksum_behind_what_is_wanted_is_proved_where_that_is_asked_for() {
    let plan = Plan::new("<f4", &[1, 5000, 3], &[1, 5000, 3], &[DEFLATE]);
    let mut file = plan.write();
    let end = (file.table.offsets[0] + file.table.sizes[0]) as usize;
    file.bytes[end - 1] ^= 1;
    let mut reader = file.open(&Atoms::new(&[7], 5000).unwrap(), None);
    let table = file.table(&[0]);
    let block = read(&mut reader, 1, &table, None, (false, false)).unwrap();
    assert_eq!(block.positions, plan.expected(0)[21..24]);
    assert!(read(&mut reader, 1, &table, None, (false, true)).is_err());
}

#[test]
fn what_is_required_and_not_there_is_missing() {
    let file = Plan::new("<f4", &SHAPE, &[], &[]).write();
    let mut reader = file.open(&Atoms::all(50), None);
    let table = file.table(&[0, -1]);
    let mut positions = [0.0; 300];
    let out = BlockOut {
        numbers: Numbers::Kept {
            positions: &mut positions,
            velocities: &mut [],
            forces: &mut [],
        },
        cells: &mut [[0.0; CELL_WIDTH]; 2],
        times: &mut [0.0; 2],
        steps: &mut [0; 2],
        lambdas: &mut [0.0; 2],
        fields: &mut [0; 2],
    };
    let request = ReadRequest {
        frames: &[4, 9],
        slices: [Some(table.slice()), None, None],
        ids: None,
        required: Fields::POSITIONS,
        skip: false,
        whole: false,
    };
    let error = reader.read(request, out).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Missing {
                frame: 9,
                what: "positions",
                ..
            }
        ),
        "{error}"
    );
}

/// Change that makes a dataset invalid.
type Change<'a> = &'a dyn Fn(&mut Element);

#[test]
fn datasets_that_cannot_be_are_refused() {
    let refused = |change: Change<'_>| {
        let mut element = Plan::new("<f4", &SHAPE, &[3, 50, 3], &[]).write().element;
        change(&mut element);
        let n = element.dataset.shape.get(1).copied().unwrap_or_default() as usize;
        let file = Arc::new(Bytes::new(vec![0; 1000]));
        let elements = [Some(element), None, None];
        match ChunkReader::new(file, elements, &Atoms::all(n), None) {
            Ok(_) => panic!("not refused"),
            Err(error) => error.to_string(),
        }
    };
    let absurd = u64::MAX / 2;
    let cases: [(Change<'_>, &str); 8] = [
        (
            &|x| x.dataset.shape = vec![7, absurd, 3],
            "a size below 2^63 bytes",
        ),
        (
            &|x| x.dataset.shape = vec![0, absurd, 3],
            "a size below 2^63 bytes",
        ),
        (
            &|x| x.dataset.shape = vec![7, 1 << 40, 3],
            "at most 258000 numbers in a row",
        ),
        (
            &|x| (x.dataset.shape, x.dataset.chunk) = (vec![7, 5000, 3], Some(vec![1, 1, 1])),
            "at most 1000 chunks side by side",
        ),
        (
            &|x| x.dataset.shape = vec![7, 50, 4],
            "expected 3 numbers for each of 50 atoms",
        ),
        (
            &|x| x.dataset.chunk = Some(vec![3, 0, 3]),
            "chunks of at least one number",
        ),
        (
            &|x| x.dataset.chunk = Some(vec![3, 50]),
            "the same number for chunks",
        ),
        (&|x| x.dataset.fill = vec![0; 3], "a fill value of 4 bytes"),
    ];
    for (change, text) in cases {
        let reason = refused(change);
        assert!(reason.contains(text), "{reason}");
    }
    let unknown = |number| {
        move |x: &mut Element| {
            x.dataset.filters = vec![paceline_formats::hdf5_chunks::Filter {
                number,
                name: "blosc".into(),
                values: vec![],
            }];
        }
    };
    assert!(refused(&unknown(32001)).ends_with("cannot undo the filter blosc (number 32001)"));
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let file = Plan::new("<f4", &SHAPE, &[3, 50, 3], &[]).write();
    let mut reader = file.open(&Atoms::all(50), None);
    let table = file.table(&[0, 6]);
    let cases: [&dyn Fn(&mut Table); 6] = [
        &|table| table.rows[1] = 7,
        &|table| table.rows[1] = -2,
        &|table| table.chunk_numbers[2] = 1,
        &|table| table.chunk_numbers.truncate(2),
        &|table| table.masks.truncate(2),
        &|table| {
            table.chunk_numbers.truncate(2);
            table.offsets.truncate(2);
            table.sizes.truncate(2);
            table.masks.truncate(2);
        },
    ];
    for change in cases {
        let mut table = table.clone();
        change(&mut table);
        let refused = read(&mut reader, 50, &table, None, (true, false));
        assert!(matches!(refused, Err(Error::Argument(_))), "{refused:?}");
    }
}
