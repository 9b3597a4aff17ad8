//! Tests that a new format needs only a folder and a line in the registry. The rest of the crate,
//! which names no format, reads, writes and converts a toy format.

mod atoms;
mod toy;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoms::{Bare, Loose};
use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::{BlockOut, BlockReader, Extents, Numbers};
use paceline_formats::block_writer::Block;
use paceline_formats::format_interface::{EncoderSettings, OpenOptions, Registry};
use paceline_formats::format_list::STANDARD;
use paceline_formats::index::{self, Index};
use paceline_formats::source::FileSource;
use paceline_formats::trajectory::Trajectory;
use paceline_formats::{CELL_WIDTH, CellRow, Fields, Series, dcd, xtc};
use toy::Toy;

static WITH_TOY: Registry = Registry::new(&[&xtc::Xtc, &dcd::Dcd, &Toy, &Bare, &Loose]);

const N_FRAMES: usize = 7;
const N_ATOMS: usize = 30;

/// Content of all frames of a file.
#[derive(Debug, Clone, PartialEq)]
struct Content {
    positions: Vec<f32>,
    cells: Vec<CellRow>,
    times: Vec<f64>,
    steps: Vec<i64>,
}

fn made_up() -> Content {
    let numbers = 0..3 * N_FRAMES * N_ATOMS;
    Content {
        positions: numbers.map(|i| (i * i % 977) as f32 * 0.25).collect(),
        cells: vec![[0.0; CELL_WIDTH]; N_FRAMES],
        times: (0..N_FRAMES).map(|i| 2.0 * i as f64).collect(),
        steps: (0..N_FRAMES as i64).collect(),
    }
}

fn write(path: &Path, format: &str, content: &Content) {
    let mut settings = EncoderSettings::new(format, N_ATOMS);
    settings.has_cell = false;
    let mut encoder = WITH_TOY.encoder(&settings).unwrap();
    let series = Series {
        n_frames: N_FRAMES as u64,
        time: 0.0,
        dt: 2.0,
        step: 0,
        steps: 1,
    };
    let block = Block {
        positions: &content.positions,
        velocities: &[],
        forces: &[],
        cells: &content.cells,
        times: &content.times,
        steps: &content.steps,
        lambdas: &vec![0.0; content.steps.len()],
    };
    let frames = block.encode(&mut *encoder).unwrap();
    std::fs::write(path, [encoder.head(&series), frames].concat()).unwrap();
}

fn options(path: &Path, registry: &'static Registry) -> OpenOptions<'static> {
    let mut options = OpenOptions::new(registry);
    options.index_files = index::index_files(path, None);
    options
}

fn open(path: &Path, registry: &'static Registry) -> paceline_formats::error::Result<Index> {
    index::open(&FileSource::open(path)?, &options(path, registry))
}

/// Read some atoms of all frames. The layout is serialised and parsed, as for a worker.
fn read(path: &Path, atoms: Atoms) -> Content {
    let index = open(path, &WITH_TOY).unwrap();
    let layout = WITH_TOY.layout(&index.layout().to_bytes()).unwrap();
    assert_eq!(&layout, index.layout());
    let frames: Vec<u64> = (0..index.n_frames()).collect();
    let (offsets, sizes): (Vec<u64>, Vec<u64>) = frames.iter().map(|&f| index.extent(f)).unzip();
    let n = frames.len();
    let mut content = Content {
        positions: vec![0.0; 3 * n * atoms.len()],
        cells: vec![[1.0; CELL_WIDTH]; n],
        times: vec![0.0; n],
        steps: vec![0; n],
    };
    let source = Arc::new(FileSource::open(path).unwrap());
    let mut reader = BlockReader::new(source, &layout, atoms, Fields::POSITIONS).unwrap();
    let extents = Extents {
        frames: &frames,
        offsets: &offsets,
        sizes: &sizes,
    };
    let out = BlockOut {
        numbers: Numbers::Kept {
            positions: &mut content.positions,
            velocities: &mut [],
            forces: &mut [],
        },
        cells: &mut content.cells,
        times: &mut content.times,
        steps: &mut content.steps,
        lambdas: &mut vec![0.0; n],
        fields: &mut vec![0; n],
    };
    reader.read(extents, out, Fields::POSITIONS, false).unwrap();
    let times = index
        .times(&*Arc::new(FileSource::open(path).unwrap()))
        .unwrap();
    assert_eq!(
        (&times.times, &times.steps),
        (&content.times, &content.steps)
    );
    content
}

/// Return an empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_toy_format_is_converted_to_and_from() {
    let folder = folder("toy");
    let [xtc, toy, dcd, back] = ["a.xtc", "b.toy", "c.dcd", "d.xtc"].map(|name| folder.join(name));
    let content = made_up();
    write(&xtc, "XTC", &content);
    let rounded = read(&xtc, Atoms::all(N_ATOMS));
    let pairs = rounded.positions.iter().zip(&content.positions);
    assert!(pairs.clone().count() == content.positions.len());
    for (found, expected) in pairs {
        assert!((found - expected).abs() < 1e-3, "{found} for {expected}");
    }
    write(&toy, "TOY", &rounded);
    let copied = read(&toy, Atoms::all(N_ATOMS));
    assert!(copied == rounded);
    write(&dcd, "DCD", &copied);
    assert!(read(&dcd, Atoms::all(N_ATOMS)).positions == rounded.positions);
    write(&back, "XTC", &copied);
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&xtc).unwrap());
}

#[test]
fn a_toy_file_is_read_in_part_cut_and_copied() {
    let folder = folder("toy-parts");
    let path = folder.join("a.toy");
    let content = made_up();
    write(&path, "TOY", &content);
    let some = read(&path, Atoms::new(&[3, 4, 29], N_ATOMS).unwrap());
    let of_frame =
        |frame: usize, atom: usize| &content.positions[3 * (frame * N_ATOMS + atom)..][..3];
    assert_eq!(some.positions[..3], *of_frame(0, 3));
    assert_eq!(
        some.positions[9 * N_FRAMES - 3..],
        *of_frame(N_FRAMES - 1, 29)
    );

    let index = open(&path, &WITH_TOY).unwrap();
    let source = FileSource::open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut copy = index.head(&source, 2, 3).unwrap();
    let (start, size) = index.extent(2);
    copy.extend_from_slice(&bytes[start as usize..][..3 * size as usize]);
    let part = folder.join("part.toy");
    std::fs::write(&part, copy).unwrap();
    assert_eq!(read(&part, Atoms::all(N_ATOMS)).times, content.times[2..5]);

    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let index = open(&path, &WITH_TOY).unwrap();
    assert_eq!(index.n_frames(), N_FRAMES as u64 - 1);
    assert!(index.notes()[0].contains("is cut"), "{:?}", index.notes());
}

#[test]
fn what_a_registry_does_not_know_is_refused_by_name() {
    let path = folder("toy-unknown").join("a.toy");
    write(&path, "TOY", &made_up());
    let error = open(&path, &STANDARD).err().unwrap();
    assert!(toy::is_unknown(&error), "{error}");
    let layout = open(&path, &WITH_TOY).unwrap().layout().to_bytes();
    assert!(STANDARD.layout(&layout).is_none());
    let mut settings = EncoderSettings::new("TOY", 1);
    settings.has_cell = false;
    settings.fields = Fields::ALL;
    let refused = |registry: &Registry, settings| registry.encoder(settings).err().unwrap();
    assert_eq!(refused(&STANDARD, &settings), "paceline does not write TOY");
    assert_eq!(refused(&WITH_TOY, &settings), "TOY holds no velocities");
    let mut precise = settings;
    precise.precision = Some(1.0);
    assert_eq!(
        refused(&WITH_TOY, &precise),
        "the precision of TOY cannot be chosen"
    );
}

/// Return the positions of atoms `first` to `stop`, as bytes.
fn atoms_as_bytes(first: usize, stop: usize) -> Vec<u8> {
    (3 * first..3 * stop)
        .flat_map(|x| (x as f32).to_le_bytes())
        .collect()
}

#[test]
fn a_format_may_need_the_number_of_atoms() {
    let path = folder("toy-bare").join("a.bare");
    std::fs::write(&path, [b"BARE".to_vec(), atoms_as_bytes(0, 12)].concat()).unwrap();
    let error = open(&path, &WITH_TOY).err().unwrap().to_string();
    let expected = "BARE files do not state their number of atoms: give a topology, or n_atoms=";
    assert!(error.ends_with(expected), "{error}");
    for (n_atoms, n_frames) in [(4, 3), (3, 4), (5, 2)] {
        let mut options = options(&path, &WITH_TOY);
        options.n_atoms = Some(n_atoms);
        let trajectory = Trajectory::open_with(&path, &options).unwrap();
        assert_eq!(
            (trajectory.n_atoms(), trajectory.n_frames()),
            (n_atoms, n_frames)
        );
        assert_eq!(trajectory.index().notes().len(), usize::from(n_atoms == 5));
        let atoms = Atoms::all(n_atoms);
        let mut reader = trajectory.reader(atoms, Fields::POSITIONS).unwrap();
        let found = reader.read(0..n_frames).unwrap().positions;
        let expected: Vec<f32> = (0..3 * n_atoms * n_frames as usize)
            .map(|x| x as f32)
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_number_of_atoms_is_ignored_where_the_file_states_it() {
    let path = folder("toy-stated").join("a.toy");
    write(&path, "TOY", &made_up());
    let mut options = options(&path, &WITH_TOY);
    options.n_atoms = Some(1);
    let trajectory = Trajectory::open_with(&path, &options).unwrap();
    assert_eq!(trajectory.n_atoms(), N_ATOMS);
}

#[test]
fn frames_of_varying_numbers_of_atoms_are_read_one_by_one() {
    let path = folder("toy-loose").join("a.loose");
    let counts = [3, 3, 5, 1];
    let mut bytes = b"LOOS".to_vec();
    for (k, &n) in counts.iter().enumerate() {
        bytes.extend((n as u32).to_le_bytes());
        bytes.extend(atoms_as_bytes(k, k + n));
    }
    std::fs::write(&path, &bytes).unwrap();
    let trajectory = Trajectory::open_with(&path, &options(&path, &WITH_TOY)).unwrap();
    assert_eq!(trajectory.index().atom_counts(), Some(&[3, 3, 5, 1][..]));
    for (k, &n) in counts.iter().enumerate() {
        let frame = trajectory.frame(k as u64, Fields::POSITIONS).unwrap();
        let expected: Vec<f32> = (3 * k..3 * (k + n)).map(|x| x as f32).collect();
        assert_eq!((frame.positions, frame.times), (expected, vec![k as f64]));
    }
    assert!(trajectory.frame(4, Fields::POSITIONS).is_err());
    let refused = trajectory.reader(Atoms::all(3), Fields::POSITIONS).err();
    let expected = "the number of atoms varies: 3 in frame 0, 5 in frame 2";
    assert!(refused.unwrap().to_string().ends_with(expected));

    // More atoms than bytes are refused before memory is allocated.
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let error = open(&path, &WITH_TOY).err().unwrap().to_string();
    assert!(
        error.contains("expected atoms that the file can hold, found 4294967295"),
        "{error}"
    );

    // A number that is the same in all frames does not count as varying.
    let frame = [3u32.to_le_bytes().to_vec(), atoms_as_bytes(0, 3)].concat();
    std::fs::write(&path, [b"LOOS".to_vec(), frame.clone(), frame].concat()).unwrap();
    let trajectory = Trajectory::open_with(&path, &options(&path, &WITH_TOY)).unwrap();
    let mut reader = trajectory.reader(Atoms::all(3), Fields::POSITIONS).unwrap();
    assert_eq!(reader.read(0..2).unwrap().positions.len(), 18);
}

/// Return the names of each format in code, and the folder in which they are allowed.
fn names() -> Vec<(String, &'static str)> {
    let folder = |name: &str| match name {
        "XTC" => "xtc",
        "TRR" => "trr",
        "DCD" => "dcd",
        "NetCDF" => "netcdf3",
        "HISTORY" | "CONFIG" => "dlpoly",
        "LAMMPSDUMP" => "lammps",
        _ => panic!("{name} is new: name its folder here"),
    };
    let mut names = Vec::new();
    for format in STANDARD.formats() {
        let home = folder(format.name());
        let known = [
            &[format.name(), home],
            format.aliases(),
            format.extensions(),
        ]
        .concat();
        names.extend(known.iter().map(|name| (name.to_lowercase(), home)));
    }
    names
}

/// Split a line of code into lowercase words: `XtcDecoder` becomes xtc and decoder.
fn words(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in code.chars() {
        if !letter.is_ascii_alphanumeric()
            || letter.is_ascii_uppercase() && before.is_ascii_lowercase()
        {
            words.push(String::new());
        }
        if letter.is_ascii_alphanumeric() {
            words.last_mut().unwrap().push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    words
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Check that code names formats only in their folders and in the registry. Comments and tests may
/// name formats, and so may the lines of `lib.rs` that declare the folders.
#[test]
fn no_format_is_named_outside_its_folder_and_the_registry() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = names();
    let (mut n_files, mut n_at_home) = (0, 0);
    for path in sources(&source) {
        let inside = path.strip_prefix(&source).unwrap();
        let part = |k| {
            inside
                .components()
                .nth(k)
                .map(|part| part.as_os_str().to_string_lossy())
        };
        let top = part(0).unwrap();
        if top == "format_list.rs"
            || inside
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
        {
            continue;
        }
        n_files += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in code.lines() {
            for word in words(line) {
                for (name, home) in &names {
                    let declares = top == "lib.rs" && line == format!("pub mod {home};");
                    let at_home = top == *home;
                    n_at_home += usize::from(word == *name && at_home);
                    // DCD code may name LAMMPS as a program that writes DCD files in its own units.
                    let is_program = top == "dcd" && *name == "lammps";
                    assert!(
                        word != *name || at_home || declares || is_program,
                        "{} names {name}: {line}",
                        inside.display()
                    );
                }
            }
        }
    }
    assert!(
        n_files > 30 && n_at_home > 100,
        "{n_files} files, {n_at_home} names"
    );
}
