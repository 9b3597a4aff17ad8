//! The index of a DCD file: its frames have equal sizes, so their places are arithmetic.

use super::Frames;
use crate::atoms::Atoms;
use crate::error::{Error, Fault, Result};
use crate::formats::dcd::{DcdDecoder, Layout};
use crate::formats::{Decoder, Fields, Frame};
use crate::source::Source;

/// Enough for the head of most files.
const HEAD: u64 = 4096;

/// The layout and the frames of the first `size` bytes of `source`, and what a user should be
/// told about them.
pub fn open(source: &dyn Source, size: u64) -> Result<(Layout, Frames, Vec<String>)> {
    let layout = read_layout(source, size)?;
    let (first, first_size, stride) = (
        layout.header_size(),
        layout.first_frame_size(),
        layout.frame_size(),
    );
    let mut n = 0;
    let mut rest = size.saturating_sub(first);
    if rest >= first_size {
        n = 1 + (rest - first_size) / stride;
        rest = (rest - first_size) % stride;
    }
    let frames = Frames::Regular {
        first,
        first_size,
        stride,
        n,
    };
    let mut notes = Vec::new();
    let claimed = layout.n_frames_claimed();
    if i64::try_from(n) != Ok(claimed) {
        notes.push(format!(
            "the header says {claimed} frames, the file has {n}"
        ));
    }
    if rest > 0 {
        notes.push(super::notes::cut(n, size - rest, rest, Some(stride)));
    }
    if n > 0 {
        let (start, len) = frames.extent(n - 1);
        if let Err(fault) = check_frame(source, &layout, n - 1, start, len)? {
            let error = Error::damaged(source.path(), Some(n - 1), start, len, fault);
            notes.push(format!(
                "the last frame is damaged, and maybe others: {error}"
            ));
        }
    }
    Ok((layout, frames, notes))
}

fn read_layout(source: &dyn Source, size: u64) -> Result<Layout> {
    let mut head = Vec::new();
    let mut needed = size.min(HEAD);
    loop {
        // The parser asks for no more than the file has, and here for more than it had.
        head.resize(needed as usize, 0);
        source.read_at(0, &mut head)?;
        match Layout::parse(&head, size) {
            Ok(layout) => return Ok(layout),
            Err(Fault::Short { needed: more }) if more > head.len() && more as u64 <= size => {
                needed = more as u64;
            }
            Err(fault) => return Err(Error::damaged(source.path(), None, 0, needed, fault)),
        }
    }
}

/// Whether the record markers of a frame are where the layout has them: the proof that the
/// arithmetic is right for this file.
fn check_frame(
    source: &dyn Source,
    layout: &Layout,
    frame: u64,
    start: u64,
    size: u64,
) -> Result<std::result::Result<(), Fault>> {
    let no_atoms = Atoms::new(&[], layout.n_atoms())?;
    let mut decoder = DcdDecoder::new(layout.clone(), no_atoms);
    let mut bytes = Vec::new();
    for run in decoder.runs(frame, size).to_vec() {
        let read = bytes.len();
        bytes.resize(read + run.len as usize, 0);
        source.read_at(start + run.start, &mut bytes[read..])?;
    }
    let mut nothing = Frame::new(0, Fields::default());
    Ok(decoder.decode(frame, size, &bytes, nothing.out()))
}
