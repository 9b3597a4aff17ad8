//! Checks that must pass for any bytes, read as an Amber NetCDF file.

#[path = "parts.rs"]
pub mod parts;

use self::parts::{asked_for, bits, gather};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::netcdf3::{Arrangement, Layout, NetcdfDecoder};
use paceline_formats::{Decoder, Fields, Frame};

/// Maximum number of frames of a file that are examined.
const N_FRAMES: u64 = 8;

/// Check a decoder. The first two bytes choose the atoms (every n-th) and the fields. The rest is a
/// file.
pub fn check(data: &[u8]) {
    let Some((&[stride, fields], file)) = data.split_first_chunk() else {
        return;
    };
    let Some(layout) = parse(file) else {
        return;
    };
    assert_eq!(
        Layout::from_bytes(&layout.to_bytes()).as_ref(),
        Some(&layout)
    );
    let n = layout.n_atoms();
    // No complete frame can contain data of more atoms. The file is skipped to save memory.
    if n > file.len() {
        return;
    }
    let some: Vec<usize> = (0..n).step_by(1 + usize::from(stride)).collect();
    let wanted = Fields::from_bits(fields % 8);
    let mut all = NetcdfDecoder::new(layout.clone(), Atoms::all(n), Fields::ALL);
    let some_atoms = Atoms::new(&some, n).expect("increasing indices");
    let mut part = NetcdfDecoder::new(layout.clone(), some_atoms, wanted);
    for (frame, extent) in extents(&layout, file) {
        let whole = try_decode(&mut all, n, Fields::ALL, frame, extent);
        let part = try_decode(&mut part, some.len(), wanted, frame, extent);
        match (whole, part) {
            (Ok(whole), Ok(part)) => {
                assert_eq!(bits(&part), bits(&gather(&whole, &some, wanted)));
            }
            (whole, part) => assert_eq!(whole.err(), part.err()),
        }
    }
}

/// Parse the header of `file` from an empty slice first, and from as many bytes as the parser
/// requests after that.
pub fn parse(file: &[u8]) -> Option<Layout> {
    let mut head = 0;
    loop {
        match Layout::parse(&file[..head], file.len() as u64) {
            Ok(layout) => return layout.ok(),
            Err(Fault::Short { needed }) => {
                assert!(needed > head && needed <= file.len());
                // `read_head` increases the size in the same way.
                head = needed.max(2 * head).min(file.len());
            }
            Err(_) => return None,
        }
    }
}

/// Return the first complete frames: number, and the bytes of the extent.
pub fn extents<'a>(layout: &Layout, file: &'a [u8]) -> Vec<(u64, &'a [u8])> {
    let (start, size) = (layout.start(), layout.frame_size());
    let bytes = |start: u64| {
        let start = usize::try_from(start).ok()?;
        file.get(start..)?.get(..usize::try_from(size).ok()?)
    };
    let (n, step) = match layout.arrangement() {
        Arrangement::Records { .. } => (N_FRAMES, size),
        Arrangement::Arrays { n, .. } => (n.min(N_FRAMES), 0),
    };
    (0..n)
        .map_while(|frame| Some((frame, bytes(start.checked_add(frame.checked_mul(step)?)?)?)))
        .collect()
}

/// Decode the requested runs.
pub fn decode(
    decoder: &mut NetcdfDecoder,
    n_wanted: usize,
    wanted: Fields,
    frame: u64,
    extent: &[u8],
) -> Frame {
    let decoded = try_decode(decoder, n_wanted, wanted, frame, extent);
    decoded.expect("a frame with a possible time and cell")
}

fn try_decode(
    decoder: &mut NetcdfDecoder,
    n_wanted: usize,
    wanted: Fields,
    frame: u64,
    extent: &[u8],
) -> Result<Frame, Fault> {
    let size = extent.len() as u64;
    let bytes = asked_for(decoder, frame, extent);
    let mut out = Frame::new(n_wanted, wanted);
    decoder.decode(frame, size, &bytes, out.out())?;
    Ok(out)
}
