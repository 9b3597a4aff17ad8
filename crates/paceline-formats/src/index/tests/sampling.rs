//! Tests of samples of frames in the middle of a file that is too long for a scan.

use super::super::{Origin, index_files};
use super::{Folder, XTC_FRAME, go_on, open_path, xtc};
use crate::format_list::STANDARD;
use crate::index::{Index, OpenOptions, open};
use crate::source::FileSource;

/// Requested number of bytes. A sample contains at least 32 frames.
const SAMPLE: u64 = 40 * XTC_FRAME as u64;

fn sampled(folder: &Folder, bytes: &[u8]) -> Index {
    let path = folder.write("md.xtc", bytes);
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: index_files(&path, None),
        refresh: false,
        sample: Some(SAMPLE),
        units: None,
        n_atoms: None,
        n_threads: 1,
        progress: &go_on,
    };
    open(&FileSource::open(&path).unwrap(), &options).unwrap()
}

#[test]
fn frames_in_the_middle_are_found_and_nothing_is_saved() {
    let folder = Folder::new();
    let index = sampled(&folder, &xtc(1000));
    assert_eq!(index.origin(), Origin::Sampled);
    assert_eq!(index.index_file(), None);
    let first = index.extent(0).0 / XTC_FRAME as u64;
    assert!((475..=485).contains(&first), "{first}");
    assert!((39..=41).contains(&index.n_frames()));
    for frame in 0..index.n_frames() {
        let start = (first + frame) * XTC_FRAME as u64;
        assert_eq!(index.extent(frame), (start, XTC_FRAME as u64));
    }
    let times = super::times_at_hand(&index).times;
    assert_eq!(times[0], first as f64 * 0.5);
}

#[test]
fn a_short_file_is_scanned() {
    let folder = Folder::new();
    let index = sampled(&folder, &xtc(300));
    assert_eq!((index.origin(), index.n_frames()), (Origin::Scanned, 300));
}

#[test]
fn a_saved_index_is_loaded() {
    let folder = Folder::new();
    let bytes = xtc(1000);
    open_path(&folder.write("md.xtc", &bytes)).unwrap();
    let index = sampled(&folder, &bytes);
    assert_eq!((index.origin(), index.n_frames()), (Origin::Loaded, 1000));
}

#[test]
fn a_sample_ends_at_damage_and_begins_behind_it() {
    let folder = Folder::new();
    for lost in [470, 480, 481, 500, 519, 521, 530] {
        let mut bytes = xtc(1000);
        bytes[lost * XTC_FRAME..(lost + 1) * XTC_FRAME].fill(0);
        let index = sampled(&folder, &bytes);
        assert_eq!(index.origin(), Origin::Sampled);
        let (lost, last) = ((lost * XTC_FRAME) as u64, index.n_frames() - 1);
        let held = index.extent(0).0..=index.extent(last).0;
        assert!(!held.contains(&lost), "{lost} in {held:?}");
    }
}

#[test]
fn a_file_whose_middle_is_lost_is_scanned() {
    let folder = Folder::new();
    let mut bytes = xtc(1000);
    bytes[400 * XTC_FRAME..600 * XTC_FRAME].fill(0);
    assert_eq!(sampled(&folder, &bytes).origin(), Origin::Scanned);
}
