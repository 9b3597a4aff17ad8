//! Tests of saved indexes: loaded, extended, damaged, and saved at other paths.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use super::super::{Index, OpenOptions, Origin, Times, index_files, open};
use super::{Folder, Random, XTC_FRAME, go_on, open_path, open_with, times_at_hand, xtc};
use crate::atom_set::Atoms;
use crate::error::Error;
use crate::format_list::STANDARD;
use crate::source::{FileSource, MemorySource, Source};
use crate::xtc::{XtcDecoder, XtcLayout};
use crate::{Decoder, Fields, Frame, Layout};

/// Format the content of an index that must be the same each time a file is opened. Tests compare
/// text, because a time may be NaN, which differs from itself.
fn content(index: &Index) -> String {
    content_of(index, &MemorySource(Vec::new()))
}

/// Format the content as [`content`] does, for an index that may read the times from `source`.
fn content_of(index: &Index, source: &dyn Source) -> String {
    let Times { times, steps } = index.times(source).unwrap();
    format!(
        "{:?} {:?} {} {:?} {times:?} {steps:?}",
        index.layout(),
        index.opened.frames,
        index.fingerprint(),
        index.notes()
    )
}

fn unsaved(bytes: &[u8]) -> Index {
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: Vec::new(),
        refresh: false,
        sample: None,
        units: None,
        n_atoms: None,
        n_threads: 1,
        progress: &go_on,
    };
    open(&MemorySource(bytes.to_vec()), &options).unwrap()
}

#[test]
fn the_second_open_loads_what_the_first_one_saved() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    let first = open_path(&path).unwrap();
    let second = open_path(&path).unwrap();
    assert_eq!(first.origin(), Origin::Scanned);
    assert_eq!(second.origin(), Origin::Loaded);
    let beside = folder.0.join(".a.xtc.paceline-index");
    assert_eq!(second.index_file(), Some(beside.as_path()));
    assert_eq!(second.layout(), &Layout::new(XtcLayout { n_atoms: 3 }));
    assert_eq!((second.n_frames(), second.n_atoms()), (40, 3));
    assert_eq!(second.extent(7), (7 * 92, 92));
    assert_eq!(times_at_hand(&second).times[39], 19.5);
    assert_eq!(times_at_hand(&second).steps[39], 390);
    assert!(second.notes().is_empty());
    assert_eq!(content(&first), content(&second));
    let files = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(files, 2, "nothing else is left behind");
}

#[test]
fn the_second_open_reads_samples_of_the_trajectory_and_no_more() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(30_000));
    open_path(&path).unwrap();
    let source = FileSource::open(&path).unwrap();
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: index_files(&path, None),
        refresh: false,
        sample: None,
        units: None,
        n_atoms: None,
        n_threads: 2,
        progress: &go_on,
    };
    let index = open(&source, &options).unwrap();
    assert_eq!((index.origin(), index.n_frames()), (Origin::Loaded, 30_000));
    let opened = source.traffic();
    assert_eq!(opened.bytes, 1024 + 96 + 18 * 4096);
    assert_eq!(times_at_hand(&index).times.len(), 30_000);
    assert_eq!(source.traffic(), opened, "times are in the saved index");
}

/// Return a LAMMPS dump whose frames have these numbers of atoms.
fn dump(counts: &[usize]) -> Vec<u8> {
    let frame = |n: &usize| {
        let head = "ITEM: BOX BOUNDS pp pp pp\n0 9\n0 9\n0 9\nITEM: ATOMS id x y z\n";
        let atoms: String = (1..=*n).map(|id| format!("{id} 1 2 3\n")).collect();
        format!("ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n{n}\n{head}{atoms}")
    };
    counts.iter().map(frame).collect::<String>().into_bytes()
}

#[test]
fn numbers_of_atoms_are_saved_and_checked_against_the_bytes_there_are() {
    let folder = Folder::new();
    let path = folder.write("a.dump", &dump(&[3, 5, 3]));
    let source = FileSource::open(&path).unwrap();
    for origin in [Origin::Scanned, Origin::Loaded] {
        let mut index = open_path(&path).unwrap();
        assert_eq!(index.origin(), origin);
        assert_eq!(index.atom_counts(), Some(&[3, 5, 3][..]));
        assert_eq!(index.layout_of(&source, 1).unwrap().n_atoms(), 5);
        index.opened.atom_counts = Some(vec![3, i32::MAX as u32, 3]);
        let error = index.layout_of(&source, 1).unwrap_err().to_string();
        let expected = "bytes can hold, found 2147483647";
        assert!(
            error.contains("frame 1, byte ") && error.ends_with(expected),
            "{error}"
        );
    }
    // A saved index that states the numbers of atoms for only a part of the frames is not used.
    let beside = folder.0.join(".a.dump.paceline-index");
    let mut saved = std::fs::read(&beside).unwrap();
    saved[64] = 2;
    // Remove the last number of atoms, and correct the checksum before times and steps.
    let layout_len = u32::from_le_bytes(saved[12..16].try_into().unwrap()) as usize;
    let counts = 80 + layout_len + 4 * 8;
    saved.drain(counts + 2 * 8..counts + 3 * 8);
    let first_len = saved.len() - 8 - (3 * 16 + 8);
    let sum = xxhash_rust::xxh3::xxh3_64(&saved[..first_len]);
    saved[first_len..first_len + 8].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&beside, saved).unwrap();
    assert_eq!(open_path(&path).unwrap().origin(), Origin::Scanned);
}

#[test]
fn a_copy_and_a_touched_file_keep_their_index() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    open_path(&path).unwrap();
    folder.write("a.xtc", &xtc(40));
    assert_eq!(open_path(&path).unwrap().origin(), Origin::Loaded);
    let copy = folder.write("b.xtc", &xtc(40));
    let index = open_with(&copy, index_files(&path, None)).unwrap();
    assert_eq!(index.origin(), Origin::Loaded);
}

#[test]
fn another_file_under_the_name_is_scanned() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    open_path(&path).unwrap();
    for bytes in [
        xtc(39),
        xtc(41)[XTC_FRAME..].to_vec(),
        xtc(60)[2 * XTC_FRAME..].to_vec(),
    ] {
        folder.write("a.xtc", &bytes);
        let index = open_path(&path).unwrap();
        assert_eq!(index.origin(), Origin::Scanned);
        assert_eq!(content(&index), content(&unsaved(&bytes)));
        assert_eq!(open_path(&path).unwrap().origin(), Origin::Loaded);
    }
}

#[test]
fn a_refresh_scans_again() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    open_path(&path).unwrap();
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: index_files(&path, None),
        refresh: true,
        sample: None,
        units: None,
        n_atoms: None,
        n_threads: 2,
        progress: &go_on,
    };
    let index = open(&FileSource::open(&path).unwrap(), &options).unwrap();
    assert_eq!(index.origin(), Origin::Scanned);
}

#[test]
fn a_grown_file_is_extended_from_any_length() {
    let folder = Folder::new();
    let bytes = xtc(6);
    for len in (XTC_FRAME..bytes.len()).step_by(5) {
        let path = folder.write("a.xtc", &bytes[..len]);
        let _ = std::fs::remove_file(&index_files(&path, None)[0]);
        open_path(&path).unwrap();
        folder.write("a.xtc", &bytes);
        let index = open_path(&path).unwrap();
        assert_eq!(index.origin(), Origin::Extended, "{len} bytes");
        assert_eq!(content(&index), content(&unsaved(&bytes)));
        assert_eq!(content(&open_path(&path).unwrap()), content(&index));
    }
}

#[test]
fn growth_of_a_damaged_file_gives_what_a_scan_of_it_gives() {
    let folder = Folder::new();
    for seed in 1..=150 {
        let mut random = Random(seed * 104_729);
        let mut bytes = xtc(12);
        for _ in 0..random.below(4) {
            random.damage(&mut bytes);
        }
        bytes.splice(..XTC_FRAME, super::xtc_frame(0));
        let len = XTC_FRAME + random.below(bytes.len() - XTC_FRAME);
        let path = folder.write("a.xtc", &bytes[..len]);
        open_path(&path).unwrap();
        folder.write("a.xtc", &bytes);
        let grown = open_path(&path).unwrap();
        assert_eq!(content(&grown), content(&unsaved(&bytes)), "seed {seed}");
    }
}

#[test]
fn a_file_that_was_cut_is_scanned_again() {
    let folder = Folder::new();
    let bytes = xtc(40);
    let path = folder.write("a.xtc", &bytes);
    open_path(&path).unwrap();
    folder.write("a.xtc", &bytes[..39 * XTC_FRAME + 30]);
    let index = open_path(&path).unwrap();
    assert_eq!((index.origin(), index.n_frames()), (Origin::Scanned, 39));
    assert_eq!(
        index.notes(),
        [
            "frame 39 (byte 3588) is cut: 30 bytes are there, not even a whole header; \
          the 39 frames before it can be read"
        ]
    );
}

/// Open `path` with `saved` as the bytes of the saved index. Whatever these bytes are, the result
/// must not change.
fn check_rebuilt(path: &Path, saved: &[u8], expected: &str, what: &str) {
    let file = &index_files(path, None)[0];
    std::fs::write(file, saved).unwrap();
    let source = FileSource::open(path).unwrap();
    let found = content_of(&open_path(path).unwrap(), &source);
    assert_eq!(found, expected, "{what}");
}

#[test]
fn a_damaged_index_is_a_missing_index() {
    let folder = Folder::new();
    let mut bytes = xtc(5);
    bytes[2 * XTC_FRAME] = 1;
    let path = folder.write("a.xtc", &bytes[..5 * XTC_FRAME - 1]);
    let expected = content(&open_path(&path).unwrap());
    let saved = std::fs::read(&index_files(&path, None)[0]).unwrap();
    for at in 0..saved.len() {
        let mut damaged = saved.clone();
        damaged[at] ^= 1 << (at % 8);
        check_rebuilt(&path, &damaged, &expected, &format!("byte {at}"));
        check_rebuilt(&path, &saved[..at], &expected, &format!("{at} bytes"));
    }
    check_rebuilt(&path, &[&saved[..], b"x"].concat(), &expected, "too long");
    check_rebuilt(&path, &saved.repeat(2), &expected, "twice");
    let mut older = saved.clone();
    older[8] = 1;
    check_rebuilt(&path, &older, &expected, "of an older version");
}

#[test]
fn times_survive_the_loss_of_the_saved_index() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    let expected = times_at_hand(&open_path(&path).unwrap());
    let loaded = open_path(&path).unwrap();
    assert_eq!(loaded.origin(), Origin::Loaded);
    std::fs::remove_file(loaded.index_file().unwrap()).unwrap();
    assert_eq!(
        loaded.times(&FileSource::open(&path).unwrap()).unwrap(),
        expected
    );
    // `loaded` was opened before the file grew. The saved index is then one of the longer file.
    let loaded = {
        open_path(&path).unwrap();
        open_path(&path).unwrap()
    };
    folder.write("a.xtc", &xtc(50));
    open_path(&path).unwrap();
    assert_eq!(
        loaded.times(&FileSource::open(&path).unwrap()).unwrap(),
        expected
    );
}

#[cfg(unix)]
#[test]
fn a_rewritten_index_keeps_its_permissions_and_its_place() {
    use std::fs::Permissions;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::UnixListener;

    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    let beside = open_path(&path).unwrap().index_file().unwrap().to_owned();
    let elsewhere = folder.0.join("elsewhere");
    std::fs::rename(&beside, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &beside).unwrap();
    std::fs::write(&elsewhere, "damaged").unwrap();
    std::fs::set_permissions(&elsewhere, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open_path(&path).unwrap().origin(), Origin::Scanned);
    assert_eq!(open_path(&path).unwrap().origin(), Origin::Loaded);
    assert!(beside.is_symlink());
    let mode = std::fs::metadata(&elsewhere).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 3);
    std::fs::remove_file(&beside).unwrap();
    let _socket = UnixListener::bind(&beside).unwrap();
    assert_eq!(open_path(&path).unwrap().index_file(), None);
    let kind = std::fs::metadata(&beside).unwrap().file_type();
    assert!(kind.is_socket());
}

#[test]
fn a_killed_process_leaves_nothing_for_long() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    let left = folder.write(".a.xtc.paceline-index.0123456789abcdef", b"part");
    let others = [
        ".a.xtc.paceline-index.old",
        ".a.xtc.paceline-index.0123456789abcdeg",
        ".b.xtc.paceline-index.0123456789abcdef",
    ];
    let others = others.map(|name| folder.write(name, b"part"));
    let alive = folder.write(".a.xtc.paceline-index.fedcba9876543210", b"part");
    let writer = File::open(&alive).unwrap();
    writer.try_lock().unwrap();
    assert_eq!(open_path(&path).unwrap().origin(), Origin::Scanned);
    assert!(!left.exists());
    assert!(alive.exists() && others.iter().all(|other| other.exists()));
    drop(writer);
    folder.write("a.xtc", &xtc(50));
    assert_eq!(open_path(&path).unwrap().origin(), Origin::Extended);
    assert!(!alive.exists());
}

#[cfg(unix)]
#[test]
fn an_index_of_an_open_file_goes_beside_that_file() {
    use std::os::fd::AsRawFd;

    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40)).canonicalize().unwrap();
    let cache = Some(folder.0.as_path());
    let file = File::open(&path).unwrap();
    let links = ["/dev/fd", "/proc/self/fd"]
        .map(|links| Path::new(links).join(file.as_raw_fd().to_string()))
        .into_iter()
        .filter(|link| link.exists());
    for link in links {
        assert_eq!(index_files(&link, cache), index_files(&path, cache));
    }
    for nowhere in ["/dev/no-such-file", "/proc/self/fd/no-such-file"] {
        assert!(index_files(Path::new(nowhere), None).is_empty());
    }
}

#[test]
fn an_index_goes_where_it_can() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    let cache = folder.0.join("cache").join("paceline");
    let mut files = index_files(&path, Some(&cache));
    assert_eq!(files.len(), 2);
    // No file can be created in a path that is not a folder.
    files[0] = path.join("index");
    let index = open_with(&path, files.clone()).unwrap();
    assert_eq!(index.index_file(), Some(files[1].as_path()));
    let index = open_with(&path, files.clone()).unwrap();
    assert_eq!(index.origin(), Origin::Loaded);
    let index = open_with(&path, files[..1].to_vec()).unwrap();
    assert_eq!(
        (index.origin(), index.index_file()),
        (Origin::Scanned, None)
    );
    assert_eq!(times_at_hand(&index).times.len(), 40);
}

#[test]
fn an_index_that_cannot_be_replaced_does_not_hide_a_longer_one() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(20));
    let files = [folder.0.join("old"), folder.0.join("new")];
    open_with(&path, files[..1].to_vec()).unwrap();
    folder.write("a.xtc", &xtc(40));
    open_with(&path, files[1..].to_vec()).unwrap();
    let index = open_with(&path, files.to_vec()).unwrap();
    assert_eq!(index.origin(), Origin::Loaded);
    assert_eq!(index.index_file(), Some(files[1].as_path()));
}

#[test]
fn an_interrupted_open_saves_nothing() {
    let folder = Folder::new();
    let path = folder.write("a.xtc", &xtc(40));
    let options = OpenOptions {
        cache: None,
        registry: &STANDARD,
        index_files: index_files(&path, None),
        refresh: false,
        sample: None,
        units: None,
        n_atoms: None,
        n_threads: 2,
        progress: &|_, _| ControlFlow::Break(()),
    };
    let stopped = open(&FileSource::open(&path).unwrap(), &options);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn notes_name_frames_and_bytes() {
    let mut bytes = xtc(20);
    for frame in [3, 5, 7, 9, 11, 13, 15] {
        bytes[frame * XTC_FRAME] = 1;
    }
    let index = unsaved(&bytes[..20 * XTC_FRAME - 2]);
    assert_eq!(
        index.notes(),
        [
            "frame 19 (byte 1748) is cut: 90 of 92 bytes are there; the 19 frames before it can \
             be read",
            "7 of 19 frames are damaged: frame 3 (byte 276), frame 5 (byte 460), frame 7 (byte \
             644), frame 9 (byte 828), frame 11 (byte 1012) and 2 more"
        ]
    );
}

#[test]
fn the_decoder_refuses_damaged_entries_and_no_others() {
    let mut bytes = xtc(8);
    bytes[2 * XTC_FRAME] = 1;
    bytes.drain(5 * XTC_FRAME + 60..5 * XTC_FRAME + 71);
    let index = unsaved(&bytes);
    assert_eq!(
        index.notes(),
        ["2 of 8 frames are damaged: frame 2 (byte 184), frame 5 (byte 460)"]
    );
    let mut decoder = XtcDecoder::new(Atoms::all(3));
    for frame in 0..8 {
        let (start, size) = index.extent(frame);
        let mut out = Frame::new(3, Fields::POSITIONS);
        let content = &bytes[start as usize..(start + size) as usize];
        let decoded = decoder.decode(frame, size, content, out.out());
        assert_eq!(decoded.is_err(), [2, 5].contains(&frame), "{decoded:?}");
    }
}

#[test]
fn what_is_no_trajectory_is_refused_by_name() {
    let message = |bytes: &[u8]| {
        let options = OpenOptions {
            cache: None,
            registry: &STANDARD,
            index_files: Vec::new(),
            refresh: false,
            sample: None,
            units: None,
            n_atoms: None,
            n_threads: 1,
            progress: &go_on,
        };
        let error = open(&MemorySource(bytes.to_vec()), &options).err();
        error.unwrap().to_string()
    };
    assert_eq!(
        message(b""),
        "<memory>: byte 0: expected a trajectory (XTC, TRR, DCD, NetCDF, HISTORY, CONFIG, LAMMPSDUMP or HDF5), found an empty file"
    );
    assert_eq!(
        message(b"ATOM      1  N   MET"),
        "<memory>: expected XTC, TRR, DCD, NetCDF, HISTORY, CONFIG, LAMMPSDUMP or HDF5, found a file that begins with \"ATOM      1 \""
    );
    let cut = message(&xtc(1)[..40]);
    assert!(
        cut.contains("frame 0, byte 40: expected a frame of at least"),
        "{cut}"
    );
    let mut bytes = xtc(3);
    bytes[4] = 255;
    assert!(message(&bytes).contains("frame 0, byte 4: expected"));
    let index = unsaved(&xtc(1)[..XTC_FRAME - 1]);
    assert_eq!(index.n_frames(), 0);
    assert!(index.notes()[0].contains("frame 0 (byte 0) is cut: 91 of 92"));
}
