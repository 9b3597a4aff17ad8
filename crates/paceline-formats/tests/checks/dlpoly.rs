//! Checks that must pass for any bytes, read as a DL_POLY file.

#[path = "parts.rs"]
pub mod parts;

use self::parts::{asked_for, bits, gather};
use paceline_formats::atom_set::Atoms;
use paceline_formats::dlpoly::{DlpolyDecoder, Head, Kind, Layout, counts, detect};
use paceline_formats::error::Fault;
use paceline_formats::{Decoder, Fields, Frame};

/// Maximum number of frames of a file that are examined.
const N_FRAMES: usize = 8;

/// Check a decoder. The first two bytes choose the atoms (every n-th) and the fields. The rest is a
/// file.
pub fn check(data: &[u8]) {
    let Some((&[stride, fields], file)) = data.split_first_chunk() else {
        return;
    };
    if let Some([third, fourth, fifth]) = counts(file) {
        assert!(third < fourth && fourth < fifth && fifth <= file.len());
    }
    let head = match detect(file) {
        Some(Kind::History) => parse(file, Head::parse_history),
        Some(Kind::Config) => parse(file, Head::parse_config),
        None => None,
    };
    let Some(Head { layout, .. }) = head else {
        return;
    };
    for layout in [layout, layout.ordered(), layout.varying()] {
        assert_eq!(Layout::from_bytes(&layout.to_bytes()), Some(layout));
    }
    let n = layout.n_atoms();
    // No complete frame can have this many atoms. The file is skipped to save memory.
    if n > file.len() {
        return;
    }
    let some: Vec<usize> = (0..n).step_by(1 + usize::from(stride)).collect();
    let some_atoms = Atoms::new(&some, n).expect("increasing indices");
    let wanted = Fields::from_bits(fields % 8);
    for (layout, frames) in [
        (layout.ordered(), ordered_frames(&layout, file)),
        (layout, equal_frames(&layout, file)),
        (layout.varying(), found_frames(&layout, file)),
    ] {
        let mut all = DlpolyDecoder::new(layout, Atoms::all(n), Fields::ALL);
        let mut part = DlpolyDecoder::new(layout, some_atoms.clone(), wanted);
        for frame in frames.into_iter().take(N_FRAMES) {
            // The decoder of all atoms reads more bytes, so that it may refuse a frame that the
            // other decoder accepts.
            let Some(whole) = decode(&mut all, n, Fields::ALL, frame) else {
                continue;
            };
            let part = decode(&mut part, some.len(), wanted, frame).expect("a part of a frame");
            assert_eq!(bits(&part), bits(&gather(&whole, &some, wanted)));
        }
    }
}

/// Parse the header of `file` from an empty slice first, and from as many bytes as the parser
/// requests after that.
fn parse(file: &[u8], parse: fn(&[u8], u64) -> Result<Head, Fault>) -> Option<Head> {
    let mut head = 0;
    loop {
        match parse(&file[..head], file.len() as u64) {
            Ok(parsed) => return Some(parsed),
            Err(Fault::Short { needed }) => {
                assert!(needed > head && needed <= file.len());
                // `read_head` increases the size in the same way.
                head = needed.max(2 * head).min(file.len());
            }
            Err(_) => return None,
        }
    }
}

/// Return the frames at computed offsets.
fn equal_frames<'a>(layout: &Layout, file: &'a [u8]) -> Vec<&'a [u8]> {
    let size = layout
        .frame_size()
        .and_then(|size| usize::try_from(size).ok());
    let frames = &file[layout.start() as usize..];
    size.map_or_else(Vec::new, |size| frames.chunks_exact(size).collect())
}

/// Return the frames of equal size in which atoms are in the order of their ids.
fn ordered_frames<'a>(layout: &Layout, file: &'a [u8]) -> Vec<&'a [u8]> {
    let is_in_place = |frame: &[u8], place: u64| {
        let Some(bytes) = layout.bytes_of(place..place + 1) else {
            return false;
        };
        let lines = &frame[bytes.start as usize..bytes.end as usize];
        matches!(layout.id_of(lines), Ok(id) if id.is_none_or(|id| id == place + 1))
    };
    let mut frames = equal_frames(layout, file);
    frames.retain(|frame| (0..layout.n_atoms() as u64).all(|place| is_in_place(frame, place)));
    frames
}

/// Split a file into frames by their first line.
fn found_frames<'a>(layout: &Layout, file: &'a [u8]) -> Vec<&'a [u8]> {
    let start = layout.start() as usize;
    if layout.kind() == Kind::Config {
        return vec![file];
    }
    let begins = |at: &usize| file[*at..].starts_with(b"timestep") && file[at - 1] == b'\n';
    let mut starts: Vec<usize> = (start + 1..file.len()).filter(begins).collect();
    starts.insert(0, start);
    starts.push(file.len());
    let frames = starts.windows(2).map(|pair| &file[pair[0]..pair[1]]);
    // A header without frames yields an empty frame.
    frames.filter(|frame| !frame.is_empty()).collect()
}

/// Decode a frame; return `None` if it is damaged.
fn decode(
    decoder: &mut DlpolyDecoder,
    n_atoms: usize,
    wanted: Fields,
    frame: &[u8],
) -> Option<Frame> {
    let mut out = Frame::new(n_atoms, wanted);
    let size = frame.len() as u64;
    let bytes = asked_for(decoder, 0, frame);
    let decoded = match decoder.decode(0, size, &bytes, out.out()) {
        Err(Fault::Short { needed }) => {
            assert!(needed > bytes.len() && needed <= frame.len());
            decoder.decode(0, size, &frame[..needed], out.out())
        }
        decoded => decoded,
    };
    assert!(
        !matches!(decoded, Err(Fault::Short { .. })),
        "asked for more than the frame has"
    );
    decoded.ok().map(|()| out)
}
