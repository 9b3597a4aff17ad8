//! Tests of the indexes of HISTORY and CONFIG files.

use super::super::{Index, OpenOptions, Origin, index_files};
use super::{Folder, go_on, open_path, times_at_hand};
use crate::atom_set::Atoms;
use crate::dlpoly::DlpolyDecoder;
use crate::error::{Error, Result};
use crate::format_list::STANDARD;
use crate::index;
use crate::source::FileSource;
use crate::{Decoder, Fields, Frame};

const N_ATOMS: usize = 3;
const HEAD: usize = 2 * 73;
const FRAME: usize = (4 + 2 * N_ATOMS) * 73;

fn record(text: &str) -> String {
    format!("{text:72}\n")
}

fn head(n_frames: usize) -> String {
    let n_records = 2 + n_frames * FRAME / 73;
    let counts = format!("{n_frames:21}{n_records:21}");
    record("made up") + &record(&format!("{:10}{:10}{N_ATOMS:10}{counts}", 0, 1))
}

fn frame(number: usize) -> String {
    let time = 0.5 * number as f64;
    let step = 5_000_000_000 + number;
    let header = format!("timestep{step:10}{N_ATOMS:10} 0 1{:20.6}{time:20.6}", 0.001);
    let mut text = record(&header);
    for (x, y, z) in [(9, 0, 0), (0, 9, 0), (0, 0, 9)] {
        text += &record(&format!("{x:20}{y:20}{z:20}"));
    }
    for atom in 0..N_ATOMS {
        text += &record(&format!("{:8}{:10}", "C", atom + 1));
        text += &record(&format!("{number:20}{:20}{:20}", 1000 * atom, -1.5));
    }
    text
}

/// Return a HISTORY with records of 73 bytes, as DL_POLY writes it.
fn history(n_frames: usize) -> String {
    head(n_frames) + &(0..n_frames).map(frame).collect::<String>()
}

/// Return `text` with one blank between words, so that lengths of lines vary.
fn trimmed(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(|line| words(line) + "\n").collect()
}

fn open(bytes: impl AsRef<[u8]>) -> Result<Index> {
    open_path(&Folder::new().write("HISTORY", bytes.as_ref()))
}

/// Return x of the first atom in every frame, or the number of the first damaged frame.
fn first_numbers(index: &Index, bytes: &[u8]) -> std::result::Result<Vec<f32>, u64> {
    let Some(&layout) = index.layout().downcast::<crate::dlpoly::Layout>() else {
        panic!("another layout")
    };
    let all = Atoms::all(index.n_atoms());
    let mut decoder = DlpolyDecoder::new(layout, all, Fields::POSITIONS);
    let mut out = Frame::new(index.n_atoms(), Fields::POSITIONS);
    let decode = |frame| {
        let (start, size) = index.extent(frame);
        let bytes = &bytes[start as usize..(start + size) as usize];
        let decoded = decoder.decode(frame, size, bytes, out.out());
        decoded.map(|()| out.positions[0]).map_err(|_| frame)
    };
    (0..index.n_frames()).map(decode).collect()
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|number| number as f32).collect()
}

#[test]
fn equal_lines_need_arithmetic_alone() {
    let bytes = history(7);
    let folder = Folder::new();
    let index = open_path(&folder.write("HISTORY", bytes.as_bytes())).unwrap();
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!((index.origin(), left), (Origin::Computed, 1));
    assert_eq!((index.n_frames(), index.n_atoms()), (7, N_ATOMS));
    assert_eq!(index.extent(3), ((HEAD + 3 * FRAME) as u64, FRAME as u64));
    assert!(index.notes().is_empty(), "{:?}", index.notes());
    let source = FileSource::open(&folder.0.join("HISTORY")).unwrap();
    let times = index.times(&source).unwrap();
    assert_eq!(times.times, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
    assert_eq!(times.steps[6], 5_000_000_006);
    assert_eq!(first_numbers(&index, bytes.as_bytes()).unwrap(), numbers(7));
}

#[test]
fn lines_of_any_length_are_scanned_and_the_index_is_kept() {
    let bytes = trimmed(&history(40));
    let folder = Folder::new();
    let path = folder.write("HISTORY", bytes.as_bytes());
    let first = open_path(&path).unwrap();
    let second = open_path(&path).unwrap();
    assert_eq!(
        (first.origin(), second.origin()),
        (Origin::Scanned, Origin::Loaded)
    );
    assert_eq!((first.n_frames(), second.n_frames()), (40, 40));
    assert!(first.notes().is_empty(), "{:?}", first.notes());
    assert_eq!(times_at_hand(&first), times_at_hand(&second));
    assert_eq!(times_at_hand(&second).times[39], 19.5);
    assert_eq!(times_at_hand(&second).steps[39], 5_000_000_039);
    assert_eq!(
        first_numbers(&second, bytes.as_bytes()).unwrap(),
        numbers(40)
    );
    // Without the saved index, times are read from the file.
    std::fs::remove_file(second.index_file().unwrap()).unwrap();
    let again = second.times(&FileSource::open(&path).unwrap()).unwrap();
    assert_eq!(again, times_at_hand(&first));
}

/// Open a file with options that request a sample of frames in its middle.
fn open_sampled(folder: &Folder, bytes: &str) -> Index {
    let path = folder.write("HISTORY", bytes.as_bytes());
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: index_files(&path, None),
        refresh: false,
        sample: Some(1000),
        units: None,
        n_atoms: None,
        n_threads: 1,
        progress: &go_on,
    };
    index::open(&FileSource::open(&path).unwrap(), &options).unwrap()
}

#[test]
fn of_a_long_file_frames_in_the_middle_are_enough() {
    let bytes = trimmed(&history(1000));
    let folder = Folder::new();
    let index = open_sampled(&folder, &bytes);
    assert_eq!(index.origin(), Origin::Sampled);
    assert_eq!(index.index_file(), None);
    let found = first_numbers(&index, bytes.as_bytes()).unwrap();
    assert!((20..200).contains(&found.len()), "{}", found.len());
    assert!(found.is_sorted_by(|a, b| a + 1.0 == *b));
    let middle = index.extent(0).0..index.extent(index.n_frames() - 1).0;
    assert!(middle.contains(&(bytes.len() as u64 / 2)), "{middle:?}");
    let times = times_at_hand(&index).times;
    assert_eq!(times[0], 0.5 * f64::from(found[0]));
}

#[test]
fn a_sample_of_a_damaged_file_ends_before_the_damage() {
    let folder = Folder::new();
    let frames = |whole: usize| {
        let mut text: Vec<String> = (0..1000).map(frame).collect();
        text[whole] = text[whole].replacen("C", "", 1).replacen('\n', " ", 6);
        trimmed(&(head(1000) + &text.concat()))
    };
    for damaged in [490, 500, 510] {
        let bytes = frames(damaged);
        let index = open_sampled(&folder, &bytes);
        assert_eq!(index.origin(), Origin::Sampled);
        let found = first_numbers(&index, bytes.as_bytes()).unwrap();
        assert!(!found.contains(&(damaged as f32)), "{found:?}");
    }
    let short = trimmed(&history(100));
    assert_eq!(open_sampled(&folder, &short).origin(), Origin::Scanned);
}

#[test]
fn a_scanned_file_that_has_grown_is_scanned_from_its_last_frame() {
    let whole = trimmed(&history(9));
    let folder = Folder::new();
    let part = trimmed(&head(9)) + &trimmed(&(0..5).map(frame).collect::<String>());
    let path = folder.write("HISTORY", part.as_bytes());
    assert_eq!(open_path(&path).unwrap().n_frames(), 5);
    folder.write("HISTORY", whole.as_bytes());
    let index = open_path(&path).unwrap();
    assert_eq!((index.origin(), index.n_frames()), (Origin::Extended, 9));
    assert_eq!(first_numbers(&index, whole.as_bytes()).unwrap(), numbers(9));
    assert_eq!(times_at_hand(&index).times[8], 4.0);
}

#[test]
fn a_running_simulation_counts_its_frames() {
    let before = open(head(5) + &frame(0)).unwrap();
    let after = history(9);
    let folder = Folder::new();
    let path = folder.write("HISTORY", after.as_bytes());
    let source = FileSource::open(&path).unwrap();
    before.verify(&source).unwrap();
    folder.write("HISTORY", after.replace("made up", "made it").as_bytes());
    assert!(before.verify(&source).is_err());
}

#[test]
fn a_cut_file_keeps_its_whole_frames() {
    for text in [history(4), trimmed(&history(4))] {
        let last = text.rfind("timestep").unwrap();
        for len in (last + 1..text.len()).step_by(9) {
            let cut = &text.as_bytes()[..len];
            let index = open(cut).unwrap();
            assert_eq!(index.n_frames(), 3, "{len} of {}", text.len());
            let noted = |note: &String| note.starts_with(&format!("frame 3 (byte {last}) is cut"));
            assert!(index.notes().iter().any(noted), "{:?}", index.notes());
            assert_eq!(first_numbers(&index, cut).unwrap(), numbers(3));
        }
    }
}

#[test]
fn a_frame_that_was_never_begun_is_left_out() {
    for zeros in [1, 73, FRAME] {
        let mut bytes = history(3).into_bytes();
        let at = bytes.len();
        bytes.resize(at + zeros, 0);
        if zeros == FRAME {
            bytes[at + 5 * 73..].copy_from_slice(&frame(3).as_bytes()[5 * 73..]);
        }
        let index = open(&bytes).unwrap();
        assert_eq!((index.n_frames(), index.origin()), (3, Origin::Computed));
        let note = format!("frame 3 (byte {at}) was never finished: it begins with zeros");
        assert_eq!(index.notes(), [note]);
        assert_eq!(first_numbers(&index, &bytes).unwrap(), numbers(3));
    }
}

#[test]
fn blank_lines_and_wrong_counts_do_no_harm() {
    let index = open(history(3) + "\n \n\n").unwrap();
    assert_eq!((index.n_frames(), index.origin()), (3, Origin::Computed));
    assert!(index.notes().is_empty());
    for claimed in [1, 4] {
        let index = open(head(claimed) + &frame(0) + &frame(1)).unwrap();
        let note = format!("the header says {claimed} frames, the file has 2");
        assert_eq!((index.n_frames(), index.notes()), (2, &[note][..]));
    }
    let mut text = history(3);
    text.insert(HEAD + FRAME, '\n');
    let index = open(&text).unwrap();
    assert_eq!((index.n_frames(), index.origin()), (3, Origin::Scanned));
    assert_eq!(first_numbers(&index, text.as_bytes()).unwrap(), numbers(3));
}

#[test]
fn edited_frames_are_listed_as_damaged_and_the_others_read() {
    let whole = history(6);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let begin = 2 + 2 * FRAME / 73;
    for record in 0..FRAME / 73 {
        let (at, end) = (begin + record, begin + record + 1);
        for text in [
            [&lines[..at], &lines[end..]].concat().concat(),
            [&lines[..end], &lines[at..]].concat().concat(),
        ] {
            let index = open(&text).unwrap();
            let damaged = index.damaged();
            if record == 0 {
                // A frame without its first line counts as part of the previous frame.
                assert!(damaged == [1] || damaged == [2], "{damaged:?}");
            } else {
                assert_eq!(
                    (index.n_frames(), damaged),
                    (6, &[2][..]),
                    "record {record}"
                );
            }
            let found = first_numbers(&index, text.as_bytes());
            assert_eq!(found, Err(damaged[0]), "record {record}");
        }
    }
}

#[test]
fn a_frame_of_another_system_is_damaged() {
    let other = frame(1).replace("         3 0 1", "         4 0 1");
    let index = open(head(3) + &frame(0) + &trimmed(&other) + &frame(2)).unwrap();
    assert_eq!((index.n_frames(), index.damaged()), (3, &[1][..]));
    assert!(times_at_hand(&index).times[1].is_nan());
}

fn config(n_claimed: usize, n_atoms: usize) -> String {
    let second = format!(
        "{:10}{:10}{n_claimed:10}{:10}{:16}{:16}",
        0, 0, 7, 0.001, 0.25
    );
    let mut text = record("made up") + &record(&second);
    for atom in 0..n_atoms {
        text += &record(&format!("{:8}{:10}", "C", atom + 1));
        text += &record(&format!("{atom:20}{:20}{:20}", 1000 * atom, -1.5));
    }
    text
}

#[test]
fn a_config_has_as_many_atoms_as_lines() {
    for text in [config(5, 5), trimmed(&config(5, 5)), config(5, 5) + "\n"] {
        let index = open(&text).unwrap();
        assert_eq!((index.n_frames(), index.n_atoms()), (1, 5));
        assert!(index.notes().is_empty());
        let folder = Folder::new();
        let source = FileSource::open(&folder.write("CONFIG", text.as_bytes())).unwrap();
        let times = index.times(&source).unwrap();
        assert_eq!((times.times, times.steps), (vec![0.25], vec![7]));
        assert_eq!(first_numbers(&index, text.as_bytes()).unwrap(), [0.0]);
    }
    let index = open(config(4, 5)).unwrap();
    assert_eq!(index.notes(), ["the header says 4 atoms, the file has 5"]);
    for text in [config(6, 5), trimmed(&config(6, 5))] {
        let error = open(text).err().unwrap().to_string();
        assert!(
            error.contains("expected 6 atoms, as its second line says, found 5"),
            "{error}"
        );
    }
    let whole = config(5, 5);
    for len in (HEAD + 1..whole.len()).step_by(9) {
        let error = open(&whole[..len]).err().unwrap();
        // A CONFIG without a cell is recognised only if it has an atom.
        let recognised = len >= HEAD + 2 * 73;
        let damaged = matches!(error, Error::Damaged { .. });
        assert_eq!(damaged, recognised, "{len} bytes: {error}");
    }
}
