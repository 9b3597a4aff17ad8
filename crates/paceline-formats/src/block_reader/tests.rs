//! Tests with blocks of frames of one atom, in a format made for these tests.

mod mock_source_and_decoder;

use self::mock_source_and_decoder::{FRAME, File, MARGIN, N_FRAMES, Picky};
use super::CACHED_CALL;
use super::*;
use crate::{CELL_WIDTH, CellRow, Run};

fn reader(runs: &[(u64, u64)], needs: usize) -> (Arc<File>, BlockReader) {
    reader_of(File::default(), runs, needs)
}

/// Return a reader of `file`. If the file is in a store, the decoder learns the number of needed
/// bytes from the first frame.
fn reader_of(file: File, runs: &[(u64, u64)], needs: usize) -> (Arc<File>, BlockReader) {
    let runs = runs.iter().map(|&(start, len)| Run { start, len });
    let learns = file.access.is_some();
    let file = Arc::new(file);
    let reader = BlockReader {
        source: file.clone(),
        file_size: FRAME * N_FRAMES,
        decoder: Box::new(Picky {
            runs: runs.collect(),
            needs,
            refuses: 13,
            learns,
        }),
        n_wanted: 1,
        wanted: Fields::POSITIONS,
        buffer: Vec::new(),
        scratch: Default::default(),
        ranges: Vec::new(),
        pieces: Vec::new(),
        ahead: Ahead::default(),
    };
    (file, reader)
}

/// Cells, times, step numbers and fields of the frames of a block.
struct Rows {
    cells: Vec<CellRow>,
    times: Vec<f64>,
    steps: Vec<i64>,
    fields: Vec<u8>,
}

/// Read frames into `numbers`, which are arrays or a visitor, and into new arrays of [`Rows`].
fn read_into(
    reader: &mut BlockReader,
    frames: &[u64],
    numbers: Numbers<'_>,
    skip: bool,
) -> Result<(Rows, BlockReport)> {
    let n = frames.len();
    let mut rows = Rows {
        cells: vec![[0.0; CELL_WIDTH]; n],
        times: vec![-1.0; n],
        steps: vec![-1; n],
        fields: vec![9; n],
    };
    let out = BlockOut {
        numbers,
        cells: &mut rows.cells,
        times: &mut rows.times,
        steps: &mut rows.steps,
        lambdas: &mut vec![0.0; n],
        fields: &mut rows.fields,
    };
    let offsets: Vec<u64> = frames.iter().map(|frame| frame * FRAME).collect();
    let extents = Extents {
        frames,
        offsets: &offsets,
        sizes: &vec![FRAME; n],
    };
    let report = reader.read(extents, out, Fields::POSITIONS, skip)?;
    Ok((rows, report))
}

/// Read frames, check that positions equal step numbers, and return the step numbers of the rows.
fn read(reader: &mut BlockReader, frames: &[u64], skip: bool) -> Result<(Vec<i64>, BlockReport)> {
    let mut positions = vec![-1.0; 3 * frames.len()];
    let numbers = Numbers::Kept {
        positions: &mut positions,
        velocities: &mut [],
        forces: &mut [],
    };
    let (Rows { steps, .. }, report) = read_into(reader, frames, numbers, skip)?;
    for (position, step) in positions.chunks(3).zip(&steps) {
        match *step {
            i64::MIN => assert!(position.iter().all(|x| x.is_nan())),
            step => assert_eq!(position, [step as f32; 3]),
        }
    }
    Ok((steps, report))
}

fn reads(file: &File) -> Vec<Range<u64>> {
    std::mem::take(&mut file.reads.lock().unwrap())
}

#[test]
fn frames_that_follow_each_other_are_read_together() {
    let (file, mut reader) = reader(&[(0, FRAME)], 0);
    let (steps, report) = read(&mut reader, &[4, 5, 6, 9, 2, 2, 3], false).unwrap();
    assert_eq!(steps, [4, 5, 6, 9, 2, 2, 3]);
    let expected = [(4, 7), (9, 10), (2, 3), (2, 4)].map(|(a, b)| a * FRAME..b * FRAME);
    assert_eq!(reads(&file), expected);
    assert_eq!((report.bytes, report.calls), (7 * FRAME, 4));
}

#[test]
fn small_gaps_are_read_along_and_large_ones_left_out() {
    for (len, n_calls) in [(FRAME - GAP, 1), (FRAME - GAP - 1, 3)] {
        let (file, mut reader) = reader(&[(0, len)], 0);
        assert_eq!(read(&mut reader, &[7, 8, 9], false).unwrap().0, [7, 8, 9]);
        assert_eq!(reads(&file).len(), n_calls, "{len} bytes of each frame");
    }
}

#[test]
fn a_call_reads_no_more_than_it_may() {
    let (file, mut reader) = reader(&[(0, FRAME)], 0);
    let frames: Vec<u64> = (100..N_FRAMES).collect();
    read(&mut reader, &frames, false).unwrap();
    let reads = reads(&file);
    assert!(reads.iter().all(|range| range.end - range.start <= CHUNK));
    assert_eq!(reads.len() as u64, 300_u64.div_ceil(CHUNK / FRAME));
}

#[test]
fn runs_of_a_frame_are_handed_over_in_one_piece() {
    let (file, mut reader) = reader(&[(10, 20), (5000, 7)], 27);
    assert_eq!(read(&mut reader, &[3, 6], false).unwrap().0, [3, 6]);
    let start = [3 * FRAME, 6 * FRAME];
    let expected = start.map(|at| [at + 10..at + 30, at + 5000..at + 5007]);
    assert_eq!(reads(&file), expected.as_flattened());
}

#[test]
fn the_end_of_a_frame_is_read_with_the_beginning_of_the_next() {
    let (file, mut reader) = reader(&[(10, 20), (5000, 7)], 27);
    assert_eq!(read(&mut reader, &[3, 4, 5], false).unwrap().0, [3, 4, 5]);
    let (of_3, of_4, of_5) = (3 * FRAME, 4 * FRAME, 5 * FRAME);
    let expected = [
        of_3 + 10..of_3 + 30,
        of_3 + 5000..of_4 + 30,
        of_4 + 5000..of_5 + 30,
        of_5 + 5000..of_5 + 5007,
    ];
    assert_eq!(reads(&file), expected);
}

#[test]
fn what_was_read_is_not_read_again() {
    let (file, mut reader) = reader(&[(0, 100)], 5000);
    let (steps, report) = read(&mut reader, &[1], false).unwrap();
    assert_eq!(steps, [1]);
    assert_eq!(
        reads(&file),
        [FRAME..FRAME + 100, FRAME + 100..FRAME + 5000]
    );
    assert_eq!((report.bytes, report.calls), (5000, 2));
}

#[test]
fn a_decoder_of_several_runs_is_given_the_front_of_the_frame_where_it_asks() {
    let (file, mut reader) = reader(&[(10, 20), (5000, 7)], 100);
    assert_eq!(read(&mut reader, &[3], false).unwrap().0, [3]);
    let start = 3 * FRAME;
    let expected = [
        start + 10..start + 30,
        start + 5000..start + 5007,
        start..start + 100,
    ];
    assert_eq!(reads(&file), expected);
    // The front of the frame is also read if a single run does not begin at the start of the frame.
    let (file, mut reader) = self::reader(&[(10, 20)], 100);
    read(&mut reader, &[3], false).unwrap();
    assert_eq!(reads(&file), [start + 10..start + 30, start..start + 100]);
}

#[test]
fn a_frame_that_needs_more_than_it_has_is_damaged() {
    let (_, mut reader) = reader(&[(0, FRAME)], FRAME as usize + 1);
    assert_eq!(
        read(&mut reader, &[2], false).unwrap_err().to_string(),
        "made.up: frame 2, byte 24000: expected a frame of at least 8001 bytes, found 8000 bytes"
    );
}

#[test]
fn a_damaged_frame_ends_the_block_or_is_left_out() {
    let (_, mut reader) = reader(&[(0, FRAME)], 0);
    let frames = [12, 13, 14];
    let message = "made.up: frame 13, byte 104003: expected another frame, found 13";
    let error = read(&mut reader, &frames, false).unwrap_err();
    assert_eq!(error.to_string(), message);
    let (steps, report) = read(&mut reader, &frames, true).unwrap();
    assert_eq!(steps, [12, i64::MIN, 14]);
    let [(1, error)] = &report.skipped[..] else {
        panic!("{:?}", report.skipped);
    };
    assert_eq!(error.to_string(), message);
}

#[test]
fn each_frame_is_visited_with_its_own_numbers() {
    let (_, mut reader) = reader(&[(0, FRAME)], 0);
    let frames = [12, 13, 200, 14];
    let mut visits = Vec::new();
    let mut visit = |row: usize, numbers: [&[f32]; 3], held: Fields| {
        visits.push((row, numbers.map(<[f32]>::to_vec), held));
    };
    let numbers = Numbers::Visited(Box::new(&mut visit));
    let (rows, report) = read_into(&mut reader, &frames, numbers, true).unwrap();
    assert_eq!(rows.fields, [1, 0, 1, 1]);
    assert_eq!(rows.steps, [12, i64::MIN, 200, 14]);
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(visits.len(), 4);
    for (k, reach) in [(0, 12.0), (2, 200.0), (3, 14.0)] {
        let (row, [positions, velocities, forces], held) = &visits[k];
        assert_eq!((*row, *held), (k, Fields::POSITIONS));
        let largest = positions.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        assert!(largest == reach && positions[..3].contains(&reach));
        assert!(velocities.is_empty() && forces.is_empty());
    }
    let (row, numbers, held) = &visits[1];
    assert_eq!((*row, *held), (1, Fields::default()));
    assert!(numbers.iter().all(Vec::is_empty));
}

#[test]
fn places_outside_the_file_are_refused() {
    let (file, mut reader) = reader(&[(0, FRAME)], 0);
    let error = read(&mut reader, &[0, N_FRAMES], false).unwrap_err();
    assert!(matches!(error, Error::Argument(_)), "{error}");
    for (offsets, sizes) in [
        (&[0][..], &[u64::MAX][..]),
        (&[u64::MAX], &[2]),
        (&[], &[FRAME]),
        (&[0], &[]),
    ] {
        let extents = Extents {
            frames: &[0],
            offsets,
            sizes,
        };
        assert!(reader.read_ahead(extents).is_err(), "{extents:?}");
    }
    assert_eq!(reads(&file), []);
}

#[test]
fn blocks_are_asked_for_ahead_only_where_reading_waits() {
    let (file, mut reader) = reader(&[(0, 100)], 0);
    let extents = Extents {
        frames: &[1, 2],
        offsets: &[FRAME, 2 * FRAME],
        sizes: &[FRAME; 2],
    };
    let report = |read| BlockReport {
        read,
        bytes: 1000,
        calls: 1,
        ..BlockReport::default()
    };
    reader.ahead.learn(&report(CACHED_CALL));
    reader.read_ahead(extents).unwrap();
    assert_eq!(*file.ahead.lock().unwrap(), []);
    reader.ahead.learn(&report(Duration::from_millis(1)));
    reader.read_ahead(extents).unwrap();
    let expected = [FRAME..FRAME + 100, 2 * FRAME..2 * FRAME + 100];
    assert_eq!(*file.ahead.lock().unwrap(), expected);
}

#[test]
fn a_store_is_asked_again_for_all_frames_that_need_more_bytes() {
    let store = Access {
        gap: 0,
        gaps: 0,
        hop: 0,
        ahead: 1 << 20,
    };
    let begins = |frames: &[u64], len| {
        let ranges = frames
            .iter()
            .map(|frame| frame * FRAME..frame * FRAME + len);
        ranges.collect::<Vec<_>>()
    };
    // The decoder learns from the first frame, both if its 100 bytes suffice and if more must be
    // read.
    for (needs, n_calls) in [(100, 1 + 3), (400, 2 + 3)] {
        let file = File {
            access: Some(store),
            ..File::default()
        };
        let (file, mut reader) = reader_of(file, &[(0, 100)], needs);
        read(&mut reader, &[4, 20, 30, 40], false).unwrap();
        let learned = begins(&[20, 30, 40], needs as u64 + MARGIN);
        let expected = [begins(&[4, 20, 30, 40], 100), learned].concat();
        assert_eq!(*file.ahead.lock().unwrap(), expected);
        // Each frame after the first is read by one call.
        assert_eq!(reads(&file).len(), n_calls);
    }
}

#[test]
fn gaps_are_read_as_far_as_their_bytes_are_allowed() {
    let file = File {
        access: Some(Access {
            gap: 1 << 20,
            gaps: 30_000,
            ..Access::FILE
        }),
        ..File::default()
    };
    ask_for(
        &file,
        1 << 20,
        [0..1000, 21_000..22_000, 30_000..31_000, 45_000..46_000],
    );
    let expected = [0..31_000, 45_000..46_000];
    assert_eq!(*file.ahead.lock().unwrap(), expected);
}
