//! Checks that must pass for any bytes, read as an XTC frame.

use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::xtc::{Header, XtcDecoder};
use paceline_formats::{Decoder, Fields, Frame};

/// Check a decoder. The first two bytes choose the atoms: every n-th atom, without the last m
/// atoms. The rest is the frame.
pub fn check(data: &[u8]) {
    let Some((&[stride, left_out], frame)) = data.split_first_chunk() else {
        return;
    };
    let Ok(header) = Header::parse(frame) else {
        return;
    };
    // A valid frame has at most one atom per byte. Other frames are truncated, and are skipped to
    // save memory.
    let n = header.n_atoms;
    if n > 2 * frame.len() {
        return;
    }
    let end = n.saturating_sub(left_out.into());
    let some: Vec<usize> = (0..end).step_by(1 + usize::from(stride)).collect();
    let whole = decode(&(0..n).collect::<Vec<_>>(), n, frame);
    let part = decode(&some, n, frame);
    match (whole, part) {
        (Ok(whole), Ok(part)) => {
            let gather: Vec<u32> = some
                .iter()
                .flat_map(|&i| &whole[3 * i..][..3])
                .copied()
                .collect();
            assert_eq!(part, gather);
        }
        (Ok(_), Err(fault)) => panic!("a part of a sound frame is refused: {fault:?}"),
        (Err(_), _) => {}
    }
}

/// Return the bits of the coordinates, decoded from only the requested bytes.
fn decode(indices: &[usize], n: usize, frame: &[u8]) -> Result<Vec<u32>, Fault> {
    let mut decoder = XtcDecoder::new(Atoms::new(indices, n).expect("increasing indices"));
    let size = Header::parse(frame)?.size;
    let mut decoded = Frame::new(indices.len(), Fields::POSITIONS);
    let mut asked = decoder.runs(0, size)[0].len as usize;
    loop {
        assert!(asked as u64 <= size);
        let read = &frame[..asked.min(frame.len())];
        match decoder.decode(0, size, read, decoded.out()) {
            Ok(()) => return Ok(decoded.positions.iter().map(|x| x.to_bits()).collect()),
            Err(Fault::Short { needed }) if asked < frame.len() => {
                assert!(needed > asked);
                asked = needed;
            }
            Err(fault) => return Err(fault),
        }
    }
}
