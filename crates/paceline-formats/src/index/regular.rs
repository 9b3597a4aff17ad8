//! The index of a file whose frames have equal sizes, so that their places are arithmetic.

use super::{Frames, Times};
use crate::atom_set::Atoms;
use crate::dcd::{self, DcdDecoder};
use crate::error::{Error, Fault, Result};
use crate::netcdf3::{self, Arrangement};
use crate::source::{GAP, Source};
use crate::{Decoder, Fields, Frame, Layout};

/// Enough for the head of most files.
const HEAD: u64 = 4096;

/// The most that one call reads for the times in short records.
const CHUNK: u64 = 1024 * 1024;

/// What the head of a file and its size tell.
pub struct Opened {
    pub layout: Layout,
    pub frames: Frames,
    /// What a user should be told.
    pub notes: Vec<String>,
}

pub fn open_dcd(source: &dyn Source, size: u64) -> Result<Opened> {
    let layout = read_head(source, size, dcd::Layout::parse)?;
    let (first, first_size) = (layout.header_size(), layout.first_frame_size());
    let (frames, rest) = count(size, first, first_size, layout.frame_size());
    let n = frames.len();
    let mut notes = Vec::new();
    notes.extend(miscounted(n, layout.n_frames_claimed()));
    notes.extend(cut(n, size, rest, layout.frame_size()));
    if n > 0 {
        let (start, len) = frames.extent(n - 1);
        match check_frame(source, &layout, n - 1, start, len)? {
            Ok(doubt) => notes.extend(doubt),
            Err(fault) => {
                let error = Error::damaged(source.path(), Some(n - 1), start, len, fault);
                notes.push(format!(
                    "the last frame is damaged, and maybe others: {error}"
                ));
            }
        }
    }
    Ok(Opened {
        layout: Layout::Dcd(layout),
        frames,
        notes,
    })
}

pub fn open_netcdf(source: &dyn Source, size: u64) -> Result<Opened> {
    let unsupported = |what| Error::Unsupported {
        path: source.path().to_owned(),
        what,
    };
    let layout = read_head(source, size, netcdf3::Layout::parse)?.map_err(unsupported)?;
    let (start, frame_size) = (layout.start(), layout.frame_size());
    let mut notes = Vec::new();
    let frames = match layout.arrangement() {
        Arrangement::Records { n_claimed } => {
            let (frames, rest) = count(size, start, frame_size, frame_size);
            let claimed = n_claimed.and_then(|n| i64::try_from(n).ok());
            notes.extend(claimed.and_then(|claimed| miscounted(frames.len(), claimed)));
            notes.extend(cut(frames.len(), size, rest, frame_size));
            frames
        }
        Arrangement::Arrays { n, n_claimed } => {
            notes.extend(miscounted(n, i64::try_from(n_claimed).unwrap_or(i64::MAX)));
            Frames::Shared {
                start,
                size: frame_size,
                n,
            }
        }
    };
    if let Some(dt) = layout.dt() {
        notes.push(format!(
            "the file holds no times; its frames count as {dt} ps apart; give dt= (--dt) to say \
             better"
        ));
    }
    Ok(Opened {
        layout: Layout::Netcdf3(Box::new(layout)),
        frames,
        notes,
    })
}

/// Parse the head of the first `size` bytes of `source`, reading more of it as the parser asks.
pub fn read_head<T>(
    source: &dyn Source,
    size: u64,
    parse: impl Fn(&[u8], u64) -> std::result::Result<T, Fault>,
) -> Result<T> {
    let mut head = Vec::new();
    let mut needed = size.min(HEAD);
    loop {
        // The parser asks for no more than the file has, and here for more than it had.
        head.resize(needed as usize, 0);
        source.read_at(0, &mut head)?;
        match parse(&head, size) {
            Ok(parsed) => return Ok(parsed),
            Err(Fault::Short { needed: more }) if more > head.len() && more as u64 <= size => {
                // Twice as much, so that a long head is not parsed once for each of its entries.
                needed = (more as u64).max(2 * needed).min(size);
            }
            Err(fault) => return Err(Error::damaged(source.path(), None, 0, needed, fault)),
        }
    }
}

/// The whole frames of a file of `size` bytes, and how many bytes are left behind them.
fn count(size: u64, first: u64, first_size: u64, stride: u64) -> (Frames, u64) {
    let (mut n, mut rest) = (0, size.saturating_sub(first));
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
    (frames, rest)
}

pub fn miscounted(n: u64, claimed: i64) -> Option<String> {
    let note = format!("the header says {claimed} frames, the file has {n}");
    (i64::try_from(n) != Ok(claimed)).then_some(note)
}

fn cut(n: u64, size: u64, rest: u64, stride: u64) -> Option<String> {
    (rest > 0).then(|| super::notes::cut(n, size - rest, rest, Some(stride)))
}

/// Whether the record markers of a frame are where the layout has them: the proof that the
/// arithmetic is right for this file. What a user should be told of its cell.
fn check_frame(
    source: &dyn Source,
    layout: &dcd::Layout,
    frame: u64,
    start: u64,
    size: u64,
) -> Result<std::result::Result<Option<String>, Fault>> {
    let no_atoms = Atoms::new(&[], layout.n_atoms())?;
    let mut decoder = DcdDecoder::new(layout.clone(), no_atoms);
    let mut bytes = Vec::new();
    for run in decoder.runs(frame, size).to_vec() {
        let read = bytes.len();
        bytes.resize(read + run.len as usize, 0);
        source.read_at(start + run.start, &mut bytes[read..])?;
    }
    let mut nothing = Frame::new(0, Fields::default());
    let decoded = decoder.decode(frame, size, &bytes, nothing.out());
    Ok(decoded.map(|()| decoder.cell_doubt(frame, &bytes)))
}

/// Times and steps of the `n` frames of a DCD file: its head tells them.
pub fn dcd_times(layout: &dcd::Layout, n: u64) -> Times {
    Times {
        times: (0..n).map(|frame| layout.time(frame)).collect(),
        steps: (0..n).map(|frame| layout.step(frame)).collect(),
    }
}

/// Times and steps of the `n` frames of a NetCDF file.
pub fn netcdf_times(source: &dyn Source, layout: &netcdf3::Layout, n: u64) -> Result<Times> {
    let mut times = Vec::new();
    if let Some((start, width, step)) = layout.times_at() {
        read_each(source, start, width, step, n, |bytes| {
            times.push(layout.time(times.len() as u64, bytes));
        })?;
    } else {
        times.extend((0..n).map(|frame| layout.time(frame, &[])));
    }
    Ok(Times {
        times,
        steps: (0..n).map(|frame| layout.step(frame)).collect(),
    })
}

/// Read the same `width` bytes of each of `n` frames, `step` bytes apart: one by one, or along
/// with what lies between them where that is little.
pub fn read_each(
    source: &dyn Source,
    start: u64,
    width: u64,
    step: u64,
    n: u64,
    mut use_bytes: impl FnMut(&[u8]),
) -> Result<()> {
    let at_once = if step <= GAP { CHUNK / step } else { 1 };
    let mut bytes = Vec::new();
    for first in (0..n).step_by(at_once as usize) {
        let last = (first + at_once).min(n) - 1;
        bytes.resize(((last - first) * step + width) as usize, 0);
        source.read_at(start + first * step, &mut bytes)?;
        for frame in first..=last {
            let at = ((frame - first) * step) as usize;
            use_bytes(&bytes[at..at + width as usize]);
        }
    }
    Ok(())
}
