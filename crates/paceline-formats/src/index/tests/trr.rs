//! Tests of the index of TRR files, whose frames have different content.

use super::super::{Origin, open};
use super::{Folder, OpenOptions, go_on, open_path, times_at_hand};
use crate::Layout;
use crate::error::Result;
use crate::format_list::STANDARD;
use crate::index::Index;
use crate::source::{FileSource, MemorySource};
use crate::trr::TrrLayout;

const N_ATOMS: usize = 3;

/// Return a frame with a box and the first `n_vectors` of positions, velocities and forces, in f64.
fn frame(number: i32, n_vectors: usize, n_atoms: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sizes = [0, 0, 72, 0, 0, 0, 0, 0, 0, 0];
    sizes[7..7 + n_vectors].fill(24 * n_atoms as i32);
    bytes.extend([1993, 13, 12].map(i32::to_be_bytes).concat());
    bytes.extend(b"GMX_trn_file");
    bytes.extend(sizes.map(i32::to_be_bytes).concat());
    bytes.extend([n_atoms as i32, number, 0].map(i32::to_be_bytes).concat());
    bytes.extend([time(number), 0.0].map(f64::to_be_bytes).concat());
    bytes.extend(vec![0; 72 + 24 * n_atoms * n_vectors]);
    bytes
}

/// Return the time of a frame. In f32, the times of adjacent frames would be equal.
fn time(number: i32) -> f64 {
    1e6 + f64::from(number) / 1000.0
}

/// Return frames with zero to three fields in turn.
fn file(n_frames: i32) -> Vec<u8> {
    let kinds = |number: i32| frame(number, (number + 1) as usize % 4, N_ATOMS);
    (0..n_frames).flat_map(kinds).collect()
}

fn open_bytes(bytes: Vec<u8>) -> Result<Index> {
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: Vec::new(),
        refresh: false,
        sample: None,
        units: None,
        n_atoms: None,
        n_threads: 2,
        progress: &go_on,
    };
    open(&MemorySource(bytes), &options)
}

#[test]
fn frames_of_different_sizes_are_found_scanned_loaded_and_grown() {
    let folder = Folder::new();
    let path = folder.write("a.trr", &file(17));
    let mut seen = Vec::new();
    for origin in [Origin::Scanned, Origin::Loaded, Origin::Extended] {
        if origin == Origin::Extended {
            folder.write("a.trr", &file(20));
        }
        let index = open_path(&path).unwrap();
        assert_eq!(index.origin(), origin);
        assert_eq!(index.layout(), &Layout::new(TrrLayout { n_atoms: N_ATOMS }));
        let (start, size) = index.extent(5);
        assert_eq!(start, file(5).len() as u64);
        assert_eq!(size, frame(5, 2, N_ATOMS).len() as u64);
        seen.push(times_at_hand(&index));
    }
    for times in seen {
        let expected: Vec<f64> = (0..times.times.len() as i32).map(time).collect();
        assert_eq!(times.times, expected);
        assert_eq!(
            times.steps,
            (0..times.steps.len() as i64).collect::<Vec<_>>()
        );
    }
}

#[test]
fn times_are_read_again_where_the_saved_index_is_gone() {
    let folder = Folder::new();
    let path = folder.write("a.trr", &file(9));
    open_path(&path).unwrap();
    let loaded = open_path(&path).unwrap();
    std::fs::remove_file(loaded.index_file().unwrap()).unwrap();
    let times = loaded.times(&FileSource::open(&path).unwrap()).unwrap();
    assert_eq!(times.times[8], time(8));
}

#[test]
fn a_frame_of_another_number_of_atoms_is_damage() {
    let other = frame(3, 1, N_ATOMS + 1);
    let bytes = [file(3), other, frame(4, 1, N_ATOMS)].concat();
    let index = open_bytes(bytes).unwrap();
    assert_eq!(index.n_frames(), 5);
    let start = file(3).len();
    let note = format!("1 of 5 frames is damaged: frame 3 (byte {start})");
    assert_eq!(index.notes(), [note]);
}

#[test]
fn atoms_that_no_frame_can_hold_are_refused() {
    let mut bytes = frame(0, 0, N_ATOMS);
    bytes[64..68].copy_from_slice(&i32::MAX.to_be_bytes());
    let error = open_bytes(bytes).err().unwrap();
    assert_eq!(
        error.to_string(),
        "<memory>: frame 0, byte 64: expected at most 13 atoms, as many as 164 bytes can hold, \
         found 2147483647"
    );
}
