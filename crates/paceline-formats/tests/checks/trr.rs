//! Checks that must pass for any bytes, read as TRR frames.

#[path = "parts.rs"]
pub mod parts;

use self::parts::{asked_for, bits, gather};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::trr::{Header, TrrDecoder};
use paceline_formats::{Decoder, Fields, Frame};

/// Maximum number of frames of a file that are examined.
const N_FRAMES: usize = 8;

/// Check a decoder. The first two bytes choose the atoms (every n-th) and the fields. The rest is
/// consecutive frames.
pub fn check(data: &[u8]) {
    let Some((&[stride, fields], bytes)) = data.split_first_chunk() else {
        return;
    };
    let Ok(first) = Header::parse(bytes) else {
        return;
    };
    // No complete frame can contain data of more atoms. The file is skipped to save memory.
    let n = first.n_atoms;
    if n > bytes.len() {
        return;
    }
    let some: Vec<usize> = (0..n).step_by(1 + usize::from(stride)).collect();
    let wanted = Fields::from_bits(fields % 8);
    let mut all = TrrDecoder::new(Atoms::all(n), Fields::ALL);
    let mut part = TrrDecoder::new(Atoms::new(&some, n).expect("increasing indices"), wanted);
    for frame in frames(bytes) {
        let whole = decode(&mut all, n, Fields::ALL, frame);
        let part = decode(&mut part, some.len(), wanted, frame);
        match (whole, part) {
            (Ok(whole), Ok(part)) => assert_eq!(bits(&part), bits(&gather(&whole, &some, wanted))),
            (whole, part) => assert_eq!(whole.err(), part.err()),
        }
    }
}

/// Split a file into frames by their headers. Bytes that are not a header end the list.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while frames.len() < N_FRAMES && !bytes.is_empty() {
        let size = Header::parse(bytes).map_or(u64::MAX, |header| header.size());
        let size = usize::try_from(size).map_or(bytes.len(), |size| size.min(bytes.len()));
        let (frame, behind) = bytes.split_at(size);
        frames.push(frame);
        bytes = behind;
    }
    frames
}

/// Decode like a reader: read the requested runs, or the beginning of the frame if the decoder
/// requests it.
pub fn decode(
    decoder: &mut TrrDecoder,
    n_wanted: usize,
    wanted: Fields,
    frame: &[u8],
) -> Result<Frame, Fault> {
    let size = frame.len() as u64;
    let mut bytes = asked_for(decoder, 0, frame);
    loop {
        let mut out = Frame::new(n_wanted, wanted);
        match decoder.decode(0, size, &bytes, out.out()) {
            Err(Fault::Short { needed }) => {
                assert!(bytes.len() < needed && needed <= frame.len());
                bytes = frame[..needed].to_vec();
            }
            decoded => return decoded.map(|()| out),
        }
    }
}
