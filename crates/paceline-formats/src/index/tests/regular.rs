//! Tests of indexes with computed offsets.

use super::super::{Index, Origin};
use super::{Folder, open_path, times_at_hand};
use crate::error::Result;
use crate::source::MemorySource;

const HEAD: usize = 92 + 12 + 12;
/// Size of a frame: three records for 5 atoms.
const FRAME: usize = 3 * 28;

fn record(content: &[u8]) -> Vec<u8> {
    let marker = (content.len() as u32).to_le_bytes();
    [&marker[..], content, &marker].concat()
}

/// Return a DCD file without cells, with 5 atoms. Its header states `claimed` frames.
fn dcd(n_frames: usize, claimed: i32) -> Vec<u8> {
    let mut first = b"CORD".to_vec();
    let mut integers = [0; 20];
    (integers[0], integers[2], integers[19]) = (claimed, 1, 24);
    integers[9] = f32::to_bits(2.0) as i32;
    first.extend(integers.map(i32::to_le_bytes).concat());
    let frame = record(&[0; 20]).repeat(3);
    [
        record(&first),
        record(&0_i32.to_le_bytes()),
        record(&5_i32.to_le_bytes()),
        frame.repeat(n_frames),
    ]
    .concat()
}

fn open(bytes: &[u8]) -> Result<Index> {
    let folder = Folder::new();
    let path = folder.write("a.dcd", bytes);
    let index = open_path(&path);
    assert_eq!(
        std::fs::read_dir(&folder.0).unwrap().count(),
        1,
        "nothing to save"
    );
    index
}

#[test]
fn frames_are_counted_by_the_files_size() {
    let index = open(&dcd(7, 7)).unwrap();
    assert_eq!((index.n_frames(), index.n_atoms()), (7, 5));
    assert_eq!(index.extent(0), (HEAD as u64, FRAME as u64));
    assert_eq!(index.extent(6), ((HEAD + 6 * FRAME) as u64, FRAME as u64));
    assert_eq!(
        (index.origin(), index.layout().name()),
        (Origin::Computed, "DCD")
    );
    assert_eq!(times_at_hand(&index).steps, [0, 1, 2, 3, 4, 5, 6]);
    assert!(index.notes().is_empty(), "{:?}", index.notes());
    for claimed in [0, 6, -1] {
        let index = open(&dcd(7, claimed)).unwrap();
        let note = format!("the header says {claimed} frames, the file has 7");
        assert_eq!((index.n_frames(), index.notes()), (7, &[note][..]));
    }
}

#[test]
fn a_cut_frame_is_noted() {
    let bytes = dcd(7, 6);
    let index = open(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(index.n_frames(), 6);
    assert_eq!(
        index.notes(),
        ["frame 6 (byte 620) is cut: 83 of 84 bytes are there; the 6 frames before it can be read"]
    );
}

#[test]
fn a_header_alone_has_no_frames() {
    assert_eq!(open(&dcd(0, 0)).unwrap().n_frames(), 0);
    let index = open(&dcd(0, 3)).unwrap();
    assert_eq!(index.notes(), ["the header says 3 frames, the file has 0"]);
    for len in 0..HEAD {
        assert!(open(&dcd(0, 0)[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_last_frame_at_another_place_is_noted() {
    let mut bytes = dcd(7, 7);
    bytes.remove(HEAD + 2 * FRAME + 10);
    bytes.push(0);
    let index = open(&bytes).unwrap();
    assert_eq!(index.n_frames(), 7);
    let note = &index.notes()[0];
    assert!(
        note.starts_with("the last frame is damaged, and maybe others: "),
        "{note}"
    );
    assert!(
        note.contains("a.dcd: frame 6, byte 620: expected a record marker of 20"),
        "{note}"
    );
}

/// Return an Amber NetCDF file of 2 atoms with times, and a variable of `ballast` bytes in each
/// record.
fn netcdf(n_frames: u32, ballast: u32) -> Vec<u8> {
    let word = |value: u32| value.to_be_bytes().to_vec();
    let text = |text: &str| {
        let mut bytes = [word(text.len() as u32), text.into()].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let dimension = |name: &str, len| [text(name), word(len)].concat();
    let variable = |name: &str, dimensions: &[u32], kind, begin| {
        let mut bytes = text(name);
        bytes.extend(word(dimensions.len() as u32));
        bytes.extend(dimensions.iter().flat_map(|&number| word(number)));
        // No attributes, and a wrong size, which readers ignore.
        bytes.extend([word(0), word(0), word(kind), word(0), word(begin)].concat());
        bytes
    };
    let head = |begin: u32| {
        let parts = [
            b"CDF\x01".to_vec(),
            word(n_frames),
            [word(10), word(4)].concat(),
            [dimension("frame", 0), dimension("atom", 2)].concat(),
            [dimension("spatial", 3), dimension("ballast", ballast)].concat(),
            [
                word(12),
                word(1),
                text("Conventions"),
                word(2),
                text("AMBER"),
            ]
            .concat(),
            [word(11), word(3)].concat(),
            variable("ballast", &[0, 3], 1, begin),
            variable("time", &[0], 5, begin + ballast),
            variable("coordinates", &[0, 1, 2], 5, begin + ballast + 4),
        ];
        parts.concat()
    };
    let mut bytes = head(head(0).len() as u32);
    for frame in 0..n_frames {
        bytes.resize(bytes.len() + ballast as usize, 7);
        bytes.extend((frame as f32 * 0.5).to_be_bytes());
        bytes.resize(bytes.len() + 24, 0);
    }
    bytes
}

#[test]
fn times_are_read_from_the_records() {
    // Depending on the size of frames, one call reads the times of many, of some or of one frame.
    for (n_frames, ballast) in [(0, 4), (1, 4), (9, 4), (700, 4000), (3, 9000)] {
        let bytes = netcdf(n_frames, ballast);
        let folder = Folder::new();
        let index = open_path(&folder.write("a.nc", &bytes));
        if n_frames == 0 {
            let message = index.err().unwrap().to_string();
            assert!(message.ends_with("a.nc: expected at least one complete frame, found none"));
            continue;
        }
        let index = index.unwrap();
        assert_eq!(
            (index.n_frames(), index.n_atoms()),
            (u64::from(n_frames), 2)
        );
        assert!(index.notes().is_empty(), "{:?}", index.notes());
        let times = index.times(&MemorySource(bytes)).unwrap();
        let expected: Vec<f64> = (0..n_frames).map(|frame| f64::from(frame) * 0.5).collect();
        assert_eq!(times.times, expected);
        assert_eq!(times.steps, (0..i64::from(n_frames)).collect::<Vec<_>>());
    }
}
