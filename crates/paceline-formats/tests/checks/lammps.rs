//! Checks that must pass for any bytes, read as a LAMMPS dump.

#[path = "parts.rs"]
pub mod parts;

use self::parts::{asked_for, bits, gather};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::format_interface::FileLayout;
use paceline_formats::lammps::{FrameHead, LammpsDecoder, Layout};
use paceline_formats::{Decoder, Fields, Frame};

/// Maximum number of frames of a file that are examined.
const N_FRAMES: usize = 8;

/// Check a decoder. The first two bytes choose the atoms (every n-th) and the fields. The rest is a
/// file.
pub fn check(data: &[u8]) {
    let Some((&[stride, fields], file)) = data.split_first_chunk() else {
        return;
    };
    let Some(layout) = layout_of(file) else {
        return;
    };
    assert_eq!(Layout::from_bytes(&layout.to_bytes()), Some(layout));
    let n = layout.n_atoms();
    // No complete frame can have this many atoms. The file is skipped to save memory.
    if n > file.len() {
        return;
    }
    let some: Vec<usize> = (0..n).step_by(1 + usize::from(stride)).collect();
    let some_atoms = Atoms::new(&some, n).expect("increasing indices");
    let wanted = Fields::from_bits(fields % 8);
    let mut all = LammpsDecoder::new(layout, &Atoms::all(n), Fields::ALL);
    let mut part = LammpsDecoder::new(layout, &some_atoms, wanted);
    let apart = varying(layout);
    for frame in frames(file).into_iter().take(N_FRAMES) {
        let alone = decode_apart(&apart, frame);
        // The decoder of all atoms reads more bytes, so that it may refuse a frame that the other
        // decoder accepts.
        let Some(whole) = decode(&mut all, n, Fields::ALL, frame) else {
            continue;
        };
        assert_eq!(alone.map(|frame| bits(&frame)), Some(bits(&whole)));
        let part = decode(&mut part, some.len(), wanted, frame).expect("a part of a frame");
        assert_eq!(bits(&part), bits(&gather(&whole, &some, wanted)));
    }
}

/// Return the layout of a file whose number of atoms varies; any other layout is unchanged.
fn varying(layout: Layout) -> Layout {
    /// Offset of the kind of ids in the bytes of a layout. `DIGEST` is the range of their hash.
    const KIND: usize = 3;
    const DIGEST: std::ops::Range<usize> = 8..16;
    let mut bytes = layout.to_bytes();
    if bytes[KIND] & 3 != 0 {
        bytes[KIND] |= 3;
        bytes[DIGEST].fill(0);
    }
    Layout::from_bytes(&bytes).expect("ids that vary")
}

/// Decode a frame with the number of atoms in its header, if the frame is complete and can contain
/// them.
fn decode_apart(layout: &Layout, frame: &[u8]) -> Option<Frame> {
    let n_atoms = parse(frame, FrameHead::parse)?.n_atoms as usize;
    let layout = layout.of_frame(n_atoms, frame.len() as u64)?;
    let mut decoder = layout.decoder(Atoms::all(n_atoms), Fields::ALL).ok()?;
    decode(&mut *decoder, n_atoms, Fields::ALL, frame)
}

/// Return the layout that opening the file would find.
pub fn layout_of(file: &[u8]) -> Option<Layout> {
    let head = parse(file, FrameHead::parse)?;
    let layout = Layout::of(&head)?;
    parse(file, |bytes, size| layout.with_ids(bytes, size))
}

/// Parse the header of `file` from an empty slice first, and from as many bytes as the parser
/// requests after that.
fn parse<T>(file: &[u8], parse: impl Fn(&[u8], u64) -> Result<T, Fault>) -> Option<T> {
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

/// Split a file into frames by their first line.
pub fn frames(file: &[u8]) -> Vec<&[u8]> {
    let begins = |at: &usize| file[*at..].starts_with(b"ITEM: TIMESTEP") && file[at - 1] == b'\n';
    let mut borders: Vec<usize> = (1..file.len()).filter(begins).collect();
    borders.insert(0, 0);
    borders.push(file.len());
    let frames = borders.windows(2).map(|pair| &file[pair[0]..pair[1]]);
    frames.filter(|frame| !frame.is_empty()).collect()
}

/// Decode a frame; return `None` if it is damaged.
fn decode(
    decoder: &mut dyn Decoder,
    n_atoms: usize,
    wanted: Fields,
    frame: &[u8],
) -> Option<Frame> {
    let mut out = Frame::new(n_atoms, wanted);
    let bytes = asked_for(decoder, 0, frame);
    let decoded = decoder.decode(0, frame.len() as u64, &bytes, out.out());
    assert!(
        !matches!(decoded, Err(Fault::Short { .. })),
        "asked for more than the frame has"
    );
    decoded.ok().map(|()| out)
}
