//! Tests of files that one rank writes: growing files, and refused files.

use std::path::PathBuf;

use super::*;
use crate::{Atoms, Job, Method, SingleRank, Vectors, check, write};

const POSITIONS: [f64; 6] = [2.8, 0.0, 0.5, 0.0, 0.25, 1.0];
const NAMES: [[u8; 8]; 2] = [*b"Cl      ", *b"Na      "];

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("paceline-file-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    folder
}

fn settings(path: PathBuf) -> Settings {
    Settings {
        path,
        n_atoms: 2,
        title: String::new(),
        append: false,
        overwrite: false,
        dt: None,
        sync: false,
        n_frames: None,
        double: false,
    }
}

const KINDS: [(&str, Kind); 4] = [
    ("CONFIG", Kind::Config),
    ("HISTORY", Kind::History),
    ("md.nc", Kind::Netcdf),
    ("md.dcd", Kind::Dcd),
];

const CONTENTS: Contents = Contents {
    fields: Fields::POSITIONS,
    has_cell: true,
};

fn heading(frame: i64) -> Heading {
    Heading {
        step: 10 * frame,
        time: 0.5 * frame as f64,
        cell: Some([[10.0, 0.0, 0.0], [1.0, 11.0, 0.0], [0.0, 2.0, 12.0]]),
    }
}

fn put(kind: Kind, place: &Place) {
    let records = kind.records(Fields::POSITIONS, false).unwrap();
    let atoms = Atoms {
        ids: &[2, 1],
        positions: Vectors::F64(&POSITIONS),
        velocities: None,
        forces: None,
        names: Some(&NAMES),
        masses: None,
        charges: None,
    };
    check(&SingleRank, &*records, 2, &atoms).unwrap();
    let job = Job {
        path: &place.path,
        records: &*records,
        starts: &place.starts,
        n_atoms: 2,
        atoms: &atoms,
        method: Method::Sorted,
        writers: &[0],
        buffer: 1 << 20,
        sync: false,
    };
    write(&SingleRank, &job).unwrap();
}

fn write_frames(kind: Kind, settings: Settings, frames: std::ops::Range<i64>) {
    let mut file = SnapshotFile::open(kind, settings).unwrap();
    for frame in frames {
        let place = file.place(CONTENTS, &heading(frame)).unwrap();
        put(kind, &place);
        file.commit().unwrap();
    }
}

#[test]
fn appended_frames_make_the_file_made_at_once() {
    let folder = folder("append");
    for (name, kind) in KINDS.into_iter().skip(1) {
        let whole = folder.join(format!("whole.{name}"));
        let parts = folder.join(format!("parts.{name}"));
        write_frames(kind, settings(whole.clone()), 0..3);
        write_frames(kind, settings(parts.clone()), 0..1);
        let append = Settings {
            append: true,
            ..settings(parts.clone())
        };
        // Simulate a killed job that left more bytes than a frame has.
        let mut bytes = std::fs::read(&parts).unwrap();
        bytes.extend([b'x'; 2000]);
        std::fs::write(&parts, bytes).unwrap();
        write_frames(kind, append, 1..3);
        assert_eq!(
            std::fs::read(&whole).unwrap(),
            std::fs::read(&parts).unwrap()
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_incomplete_frame_is_removed() {
    let folder = folder("cut");
    for (name, kind) in KINDS {
        let path = folder.join(name);
        let mut file = SnapshotFile::open(kind, settings(path.clone())).unwrap();
        let place = file.place(CONTENTS, &heading(0)).unwrap();
        put(kind, &place);
        assert!(!path.exists());
        file.cut_back().unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        for frame in 0..2 {
            let place = file.place(CONTENTS, &heading(frame)).unwrap();
            put(kind, &place);
            file.commit().unwrap();
        }
        let before = std::fs::read(&path).unwrap();
        let place = file.place(CONTENTS, &heading(2)).unwrap();
        put(kind, &place);
        file.cut_back().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before, "{name}");
        assert_eq!(file.n_frames(), 2);
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn other_frames_and_files_are_refused() {
    let folder = folder("refused");
    let words = |failure: Failure| failure.to_string();
    for (name, kind) in KINDS {
        let path = folder.join(name);
        write_frames(kind, settings(path.clone()), 0..1);
        let again = SnapshotFile::open(kind, settings(path.clone()))
            .err()
            .unwrap();
        assert!(words(again).contains("only with overwrite"));
        let append = Settings {
            append: true,
            ..settings(path.clone())
        };
        if kind == Kind::Config {
            let found = SnapshotFile::open(kind, append).err().unwrap();
            assert!(words(found).contains("one configuration"));
            continue;
        }
        let other = Settings {
            n_atoms: 3,
            ..append.clone()
        };
        let found = SnapshotFile::open(kind, other).err().unwrap();
        assert!(words(found).contains("expected 3 atoms, found 2"), "{name}");
        let mut file = SnapshotFile::open(kind, append).unwrap();
        let bare = Contents {
            has_cell: false,
            ..CONTENTS
        };
        let found = file.place(bare, &heading(1)).unwrap_err();
        assert!(words(found).contains("a cell: one"));
        std::fs::remove_file(&path).unwrap();
        let found = file.place(CONTENTS, &heading(1)).unwrap_err();
        assert!(words(found).contains("found another or none"));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn times_beyond_a_dcd_header_are_reported() {
    let folder = folder("times");
    let mut file = SnapshotFile::open(Kind::Dcd, settings(folder.join("md.dcd"))).unwrap();
    let mut warnings = Vec::new();
    for time in [0.0, 1e300, 2e300] {
        let heading = Heading { time, ..heading(0) };
        let place = file.place(CONTENTS, &heading).unwrap();
        put(Kind::Dcd, &place);
        file.commit().unwrap();
        warnings.push(place.warning.is_some());
    }
    assert_eq!(warnings, [false, true, false]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_determine_formats() {
    for (name, kind) in [
        ("a/REVCON", Some(Kind::Config)),
        ("nacl.history", Some(Kind::History)),
        ("HISTORY.3", Some(Kind::History)),
        ("md.ncdf", Some(Kind::Netcdf)),
        ("md.DCD", Some(Kind::Dcd)),
        ("md.xyz", None),
    ] {
        assert_eq!(Kind::from_path(Path::new(name)), kind);
    }
}
