//! Tests of the scan, with a format made for these tests.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::{Random, go_on};
use crate::error::{Error, Fault, Result};
use crate::index::header_scan::{FrameHeader, Framed};
use crate::index::header_scan::{Place, Trajectory};
use crate::index::header_scan::{Scan, scan, scan_in_segments};
use crate::source::MemorySource;

const N_ATOMS: usize = 7;
const HEADER: usize = 20;

/// Header: "toy!", number of atoms, step, time, size of the frame.
struct Toy;

impl Framed for Toy {
    fn header_max(&self) -> usize {
        HEADER
    }

    fn frame_min(&self, _n_atoms: usize) -> u64 {
        HEADER as u64
    }

    fn magics(&self) -> &[[u8; 4]] {
        const MAGICS: [[u8; 4]; 1] = [*b"toy!"];
        &MAGICS
    }

    fn header(&self, bytes: &[u8]) -> std::result::Result<FrameHeader, Fault> {
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return Err(Fault::Short { needed: HEADER });
        };
        let word = |at: usize| [0, 1, 2, 3].map(|byte| header[at + byte]);
        if &word(0) != b"toy!" {
            return Err(Fault::bad(0, "toy!", "something else"));
        }
        Ok(FrameHeader {
            n_atoms: u32::from_le_bytes(word(4)) as usize,
            step: i32::from_le_bytes(word(8)).into(),
            time: f32::from_le_bytes(word(12)).into(),
            size: u64::from(u32::from_le_bytes(word(16))),
        })
    }
}

fn header(step: usize, size: usize) -> Vec<u8> {
    let mut bytes = b"toy!".to_vec();
    bytes.extend((N_ATOMS as u32).to_le_bytes());
    bytes.extend((step as i32).to_le_bytes());
    bytes.extend((step as f32).to_le_bytes());
    bytes.extend((size as u32).to_le_bytes());
    bytes
}

/// Return a file of frames of these sizes, filled with noise, and the frame offsets.
fn toys(sizes: &[usize], random: &mut Random) -> (Vec<u8>, Vec<u64>) {
    let (mut bytes, mut borders) = (Vec::new(), vec![0]);
    for (step, &size) in sizes.iter().enumerate() {
        bytes.extend(header(step, size));
        bytes.extend(random.bytes(size - HEADER));
        borders.push(bytes.len() as u64);
    }
    (bytes, borders)
}

fn some_toys(n: usize, random: &mut Random) -> (Vec<u8>, Vec<u64>) {
    let sizes: Vec<usize> = (0..n).map(|_| HEADER + random.below(200)).collect();
    toys(&sizes, random)
}

fn try_scan(bytes: &[u8], segment: u64, n_threads: usize) -> Result<Scan> {
    let source = MemorySource(bytes.to_vec());
    let file = Trajectory {
        source: &source,
        format: &Toy,
        n_atoms: N_ATOMS,
        size: bytes.len() as u64,
    };
    let header = Toy.header(bytes).unwrap();
    let place = Place { at: 0, header };
    scan_in_segments(file, place, segment, n_threads, &go_on)
}

/// Scan `bytes`, and check that every division into segments gives the same result.
fn scanned(bytes: &[u8]) -> Scan {
    let whole = try_scan(bytes, u64::MAX, 1).unwrap();
    for (segment, n_threads) in [(50, 8), (64, 1), (177, 3), (500, 2), (4096, 5)] {
        let cut = try_scan(bytes, segment, n_threads).unwrap();
        // Times are compared as text, because NaN is not equal to NaN.
        assert_eq!(format!("{cut:?}"), format!("{whole:?}"), "{segment}");
    }
    whole
}

fn borders(scan: &Scan) -> Vec<u64> {
    let mut borders = scan.chain.starts.clone();
    borders.push(scan.end);
    borders
}

#[test]
fn a_whole_file_is_listed_frame_by_frame() {
    let mut random = Random(1);
    let (bytes, expected) = some_toys(300, &mut random);
    for n_threads in 1..=8 {
        for segment in [30, 100, 1000, 1 << 20] {
            let scan = try_scan(&bytes, segment, n_threads).unwrap();
            assert_eq!(borders(&scan), expected);
            assert_eq!(scan.chain.steps, (0..300).collect::<Vec<_>>());
            assert_eq!(scan.chain.times[299], 299.0);
            assert!(scan.damaged.is_empty() && scan.cut.is_none());
        }
    }
}

#[test]
fn a_false_header_where_a_segment_starts_counts_for_nothing() {
    let mut random = Random(2);
    let (mut bytes, expected) = toys(&[1000; 8], &mut random);
    // False headers at the starts of segments of 400 bytes: a header without a next header, a chain
    // that misses the true frame at 1000, and a header that leads to the true frame at 3000.
    for (at, size) in [(400, 77), (800, 300), (1100, 50), (1150, 99), (2800, 200)] {
        bytes[at..at + HEADER].copy_from_slice(&header(99, size));
    }
    for n_threads in 1..=8 {
        let scan = try_scan(&bytes, 400, n_threads).unwrap();
        assert_eq!(borders(&scan), expected);
        assert_eq!(scan.chain.steps, (0..8).collect::<Vec<_>>());
    }
    assert_eq!(borders(&scanned(&bytes)), expected);
}

#[test]
fn a_false_chain_through_the_whole_file_counts_for_nothing() {
    // Frames are full of false headers. The frame of the last false header extends beyond the next
    // true header.
    let (size, n_frames) = (500, 30);
    let mut bytes = Vec::new();
    for step in 0..n_frames {
        bytes.extend(header(step, size));
        let end = bytes.len() - HEADER + size;
        while bytes.len() + 80 < end {
            bytes.extend(header(99, 40));
            bytes.extend([0; 40 - HEADER]);
        }
        bytes.extend(header(99, end + HEADER - bytes.len()));
        bytes.resize(end, 0);
    }
    let scan = scanned(&bytes);
    assert_eq!(scan.chain.steps, (0..n_frames as i64).collect::<Vec<_>>());
    assert!(scan.damaged.is_empty() && scan.cut.is_none());
}

#[test]
fn a_lost_header_costs_one_frame_and_keeps_the_numbers() {
    let mut random = Random(3);
    let (whole, expected) = some_toys(20, &mut random);
    for frame in 1..20 {
        let mut bytes = whole.clone();
        bytes[expected[frame] as usize + 2] ^= 1;
        let scan = scanned(&bytes);
        assert_eq!(borders(&scan), expected, "frame {frame}");
        assert_eq!(scan.damaged, [frame as u64]);
        assert!(scan.chain.times[frame].is_nan());
    }
}

#[test]
fn a_frame_of_a_wrong_size_ends_at_the_next_header() {
    let mut random = Random(4);
    let (whole, expected) = toys(&[150; 20], &mut random);
    for frame in 0..20 {
        for size in [151, 170, 330, 2_000, u32::MAX] {
            let mut bytes = whole.clone();
            let at = expected[frame] as usize + 16;
            bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
            let scan = scanned(&bytes);
            if frame < 19 {
                assert_eq!(borders(&scan), expected, "frame {frame}, {size} bytes");
                assert_eq!(scan.damaged, [frame as u64]);
                assert_eq!(scan.chain.steps[frame], frame as i64);
            } else {
                // The last frame looks like a truncated frame, since it states more bytes than the
                // file has.
                assert_eq!(borders(&scan), expected[..20]);
                assert_eq!(scan.cut, Some(u64::from(size)));
            }
        }
    }
}

#[test]
fn a_frame_that_ends_too_early_leaves_an_entry_behind_it() {
    let mut random = Random(5);
    let (mut bytes, expected) = toys(&[150; 4], &mut random);
    bytes[150 + 16] = 100;
    let scan = scanned(&bytes);
    assert_eq!(borders(&scan), [0, 150, 250, 300, 450, 600]);
    assert_eq!(scan.damaged, [2]);
    assert_eq!(*expected.last().unwrap(), scan.end);
}

#[test]
fn bytes_inserted_in_a_frame_are_counted_to_it() {
    let mut random = Random(9);
    let (whole, expected) = toys(&[150; 6], &mut random);
    for n in [1, 4, HEADER - 1] {
        for at in (150 + HEADER..=300).step_by(10) {
            let mut bytes = whole.clone();
            bytes.splice(at..at, random.bytes(n));
            let scan = scanned(&bytes);
            let moved = expected.iter().map(|&border| match border {
                0 | 150 => border,
                _ => border + n as u64,
            });
            assert_eq!(borders(&scan), moved.collect::<Vec<_>>(), "{n} at {at}");
            assert_eq!(scan.damaged, [1]);
        }
    }
}

#[test]
fn a_file_can_be_cut_at_any_byte() {
    let mut random = Random(6);
    let (bytes, expected) = toys(&[150; 4], &mut random);
    for len in HEADER..=600 {
        let scan = scanned(&bytes[..len]);
        let n_whole = len / 150;
        assert_eq!(borders(&scan), expected[..=n_whole], "{len} bytes");
        let header_is_whole = len % 150 >= HEADER;
        assert_eq!(scan.cut, header_is_whole.then_some(150));
        assert!(scan.damaged.is_empty());
    }
}

#[test]
fn garbage_at_the_end_is_a_damaged_entry() {
    let mut random = Random(7);
    let (whole, expected) = toys(&[150; 4], &mut random);
    let other_system = [&b"toy!\x08"[..], &[0; 200]].concat();
    for garbage in [&b"x"[..], b"tox", b"toy?", &[0; 500], &other_system] {
        let bytes = [&whole, garbage].concat();
        let scan = scanned(&bytes);
        assert_eq!(scan.chain.starts, expected);
        assert_eq!((scan.end, scan.cut), (bytes.len() as u64, None));
        assert_eq!(scan.damaged, [4]);
    }
}

#[test]
fn headers_that_are_whole_are_found_in_any_damage() {
    for seed in 1..=200 {
        let mut random = Random(seed * 7919);
        let (mut bytes, _) = some_toys(60, &mut random);
        let n_damages = 1 + random.below(6);
        let first = bytes[..HEADER].to_vec();
        for _ in 0..n_damages {
            random.damage(&mut bytes);
        }
        bytes.splice(..HEADER.min(bytes.len()), first);
        let scan = scanned(&bytes);
        assert_eq!(scan.chain.starts[..1], [0]);
        assert!(borders(&scan).is_sorted_by(|a, b| a < b));
        let mut whole = 0;
        for at in 0..bytes.len() {
            let found = Toy.header(&bytes[at..]);
            if found.is_ok_and(|header| header.n_atoms == N_ATOMS && header.size > 0) {
                whole += 1;
                let listed = scan.chain.starts.binary_search(&(at as u64)).is_ok();
                assert!(listed || scan.end == at as u64, "seed {seed}, byte {at}");
            }
        }
        // Only damage adds further entries, whose times are unknown.
        let unknown = scan.chain.times.iter().filter(|time| time.is_nan()).count();
        assert!(scan.chain.starts.len() <= whole + unknown);
        assert!(unknown <= scan.damaged.len());
    }
}

#[test]
fn the_caller_can_stop_a_scan() {
    let mut random = Random(8);
    let (bytes, _) = some_toys(1000, &mut random);
    let source = MemorySource(bytes.clone());
    let file = Trajectory {
        source: &source,
        format: &Toy,
        n_atoms: N_ATOMS,
        size: bytes.len() as u64,
    };
    let header = Toy.header(&bytes).unwrap();
    let place = Place { at: 0, header };
    for segment in [100, u64::MAX] {
        let calls = Cell::new(0);
        let stop = |done: u64, total: u64| {
            calls.set(calls.get() + 1);
            assert!(done <= total && total == bytes.len() as u64);
            ControlFlow::Break(())
        };
        let stopped = scan_in_segments(file, place, segment, 3, &stop);
        assert!(matches!(stopped, Err(Error::Interrupted)));
        assert_eq!(calls.get(), 1);
    }
    assert_eq!(
        scan(file, place, 3, &go_on).unwrap().chain.starts.len(),
        1000
    );
}
