//! Checks that must hold for any bytes that are taken for a dump of LAMMPS.

#[path = "parts.rs"]
pub mod parts;

use self::parts::{asked_for, bits, gather};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::format::FileLayout;
use paceline_formats::lammps::{FrameHead, LammpsDecoder, Layout};
use paceline_formats::{Decoder, Fields, Frame};

/// Frames of one file that are looked at.
const N_FRAMES: usize = 8;

/// The first two bytes choose what is wanted: every how many-th atom, and which fields. The rest
/// is a file.
pub fn check(data: &[u8]) {
    let Some((&[stride, fields], file)) = data.split_first_chunk() else {
        return;
    };
    let Some(layout) = layout_of(file) else {
        return;
    };
    assert_eq!(Layout::from_bytes(&layout.to_bytes()), Some(layout));
    let n = layout.n_atoms();
    // No whole frame holds so many atoms: not worth the memory.
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
        // More is read with all atoms, so more can be found wrong.
        let Some(whole) = decode(&mut all, n, Fields::ALL, frame) else {
            continue;
        };
        assert_eq!(alone.map(|frame| bits(&frame)), Some(bits(&whole)));
        let part = decode(&mut part, some.len(), wanted, frame).expect("a part of a frame");
        assert_eq!(bits(&part), bits(&gather(&whole, &some, wanted)));
    }
}

/// The layout of a file whose number of atoms varies, and else of this one.
fn varying(layout: Layout) -> Layout {
    /// Place of the kind of ids in the layout's bytes, and of the digest of ids.
    const KIND: usize = 3;
    const DIGEST: std::ops::Range<usize> = 8..16;
    let mut bytes = layout.to_bytes();
    if bytes[KIND] & 3 != 0 {
        bytes[KIND] |= 3;
        bytes[DIGEST].fill(0);
    }
    Layout::from_bytes(&bytes).expect("ids that vary")
}

/// A frame of as many atoms as its head says, if its bytes can hold these, and it is whole.
fn decode_apart(layout: &Layout, frame: &[u8]) -> Option<Frame> {
    let n_atoms = parse(frame, FrameHead::parse)?.n_atoms as usize;
    let layout = layout.of_frame(n_atoms, frame.len() as u64)?;
    let mut decoder = layout.decoder(Atoms::all(n_atoms), Fields::ALL).ok()?;
    decode(&mut *decoder, n_atoms, Fields::ALL, frame)
}

/// The layout as opening a file finds it.
pub fn layout_of(file: &[u8]) -> Option<Layout> {
    let head = parse(file, FrameHead::parse)?;
    let layout = Layout::of(&head)?;
    parse(file, |bytes, size| layout.with_ids(bytes, size))
}

/// Parse with ever longer heads, as a caller does who starts with nothing.
fn parse<T>(file: &[u8], parse: impl Fn(&[u8], u64) -> Result<T, Fault>) -> Option<T> {
    let mut head = 0;
    loop {
        match parse(&file[..head], file.len() as u64) {
            Ok(parsed) => return Some(parsed),
            Err(Fault::Short { needed }) => {
                assert!(needed > head && needed <= file.len());
                // As a caller does who reads a file.
                head = needed.max(2 * head).min(file.len());
            }
            Err(_) => return None,
        }
    }
}

/// Frames by what they begin with.
pub fn frames(file: &[u8]) -> Vec<&[u8]> {
    let begins = |at: &usize| file[*at..].starts_with(b"ITEM: TIMESTEP") && file[at - 1] == b'\n';
    let mut borders: Vec<usize> = (1..file.len()).filter(begins).collect();
    borders.insert(0, 0);
    borders.push(file.len());
    let frames = borders.windows(2).map(|pair| &file[pair[0]..pair[1]]);
    frames.filter(|frame| !frame.is_empty()).collect()
}

/// A frame, or nothing where it is damaged.
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
