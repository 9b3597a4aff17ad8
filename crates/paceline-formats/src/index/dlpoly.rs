//! The index of DL_POLY's files: arithmetic where their lines have equal lengths, else a scan.

use super::listed::{self, Found, Known, load_or_find};
use super::regular::{self, miscounted, read_each, read_head};
use super::store::Moments;
use super::watch::Watch;
use super::{Frames, OpenOptions, Origin, Times, notes, sample, text};
use crate::Layout;
use crate::dlpoly::{self, FrameHead, Head, Header, TIMESTEP, is_blank};
use crate::error::{Error, Fault, Result};
use crate::source::Source;

/// Places that are looked at before arithmetic is believed.
const N_SAMPLES: u64 = 18;

/// Bytes of a line of DL_POLY's, its end included.
const RECORD: u64 = 73;

/// Blank bytes that may follow the last frame without a word about them.
const BLANK: u64 = 4096;

/// How the frames of a HISTORY were found.
pub enum Opened {
    ByArithmetic(regular::Opened),
    ByScan(listed::Opened),
}

/// Find the frames of a HISTORY.
///
/// # Errors
/// Those of [`super::open`].
pub fn open_history(source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
    let head = read_head(source, size, Head::parse_history)?;
    if let Some(opened) = by_arithmetic(source, size, &head)? {
        return Ok(Opened::ByArithmetic(opened));
    }
    let layout = head.layout.varying();
    let watch = Watch::new(options.progress, size);
    let scan = |from| text::scan(source, &layout, from, size, &watch);
    let opened = load_or_find(source, Layout::Dlpoly(layout), size, options, |grown| {
        if let Some(wanted) = options.sample
            && let Some(room) = sample::room(size, wanted, most_of_frame(&layout))
            && let Some((chain, end)) = text::sample(source, &layout, room, size, &watch)?
        {
            return Ok(Found::Sample(chain, end));
        }
        Ok(match grown.and_then(Known::of) {
            Some(known) => {
                let found = scan(known.end)?;
                Found::Whole(Origin::Extended, known.extended(found))
            }
            None => Found::Whole(Origin::Scanned, scan(layout.start())?),
        })
    })?;
    Ok(Opened::ByScan(opened))
}

/// Bytes of a frame whose lines are no longer than DL_POLY's.
fn most_of_frame(layout: &dlpoly::Layout) -> u64 {
    let n_lines = (layout.n_atoms() as u64).saturating_mul(layout.lines_of_atom());
    n_lines.saturating_mul(RECORD)
}

/// The frames of a HISTORY, if all are as long as the first one.
fn by_arithmetic(source: &dyn Source, size: u64, head: &Head) -> Result<Option<regular::Opened>> {
    let (start, Some(stride)) = (head.layout.start(), head.layout.frame_size()) else {
        return Ok(None);
    };
    let met_at = |frame: u64| meet(source, start + frame * stride, size);
    let mut n = (size - start) / stride;
    if n > 1 && met_at(n - 1)? == Met::Hole {
        n -= 1;
    }
    let behind = met_at(n)?;
    if n == 0 || behind == Met::Other {
        return Ok(None);
    }
    for sample in 1..=N_SAMPLES {
        let frame = (u128::from(n - 1) * u128::from(sample) / u128::from(N_SAMPLES)) as u64;
        if met_at(frame)? != Met::Frame {
            return Ok(None);
        }
    }
    let (at, present) = (start + n * stride, size - start - n * stride);
    let claimed = head.claimed.and_then(|claimed| i64::try_from(claimed).ok());
    let mut told: Vec<String> = claimed
        .and_then(|claimed| miscounted(n, claimed))
        .into_iter()
        .collect();
    told.extend(odd_cell(&head.layout));
    match behind {
        Met::Frame if present > 0 => told.push(notes::cut(n, at, present, Some(stride))),
        Met::Hole => told.push(notes::hole(n, at)),
        _ => {}
    }
    Ok(Some(regular::Opened {
        layout: Layout::Dlpoly(ordered(source, head.layout, start)?),
        frames: Frames::Regular {
            first: start,
            first_size: stride,
            stride,
            n,
        },
        notes: told,
    }))
}

/// The layout of a file that has a frame at `start`, knowing whether its atoms stand in the order of
/// their numbers, as far as is looked at.
fn ordered(source: &dyn Source, layout: dlpoly::Layout, start: u64) -> Result<dlpoly::Layout> {
    let last = layout.n_atoms() as u64 - 1;
    let mut bytes = Vec::new();
    for sample in 0..N_SAMPLES {
        let place = (u128::from(last) * u128::from(sample) / u128::from(N_SAMPLES - 1)) as u64;
        let Some(range) = layout.bytes_of(place..place + 1) else {
            return Ok(layout);
        };
        bytes.resize((range.end - range.start) as usize, 0);
        source.read_at(start + range.start, &mut bytes)?;
        // Of lines that are none, the decoder will tell.
        if !matches!(layout.id_of(&bytes), Ok(id) if id.is_none_or(|id| id == place + 1)) {
            return Ok(layout);
        }
    }
    Ok(layout.ordered())
}

/// What to say of a periodic boundary that three vectors do not tell.
fn odd_cell(layout: &dlpoly::Layout) -> Option<String> {
    let shape = match layout.imcon() {
        4 => "a truncated octahedron",
        5 => "a rhombic dodecahedron",
        7 => "a hexagonal prism",
        _ => return None,
    };
    Some(format!(
        "the cell is {shape} (imcon {}), of which the file has the box around it: distances across \
         its faces are not those of the simulation",
        layout.imcon()
    ))
}

/// What stands where a frame of a HISTORY should begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// A frame, or as much of its first line as the file has.
    Frame,
    /// Zeros: what a file holds where several wrote to it, and one did not come to it.
    Hole,
    /// No more than blanks.
    End,
    Other,
}

fn meet(source: &dyn Source, at: u64, size: u64) -> Result<Met> {
    let mut bytes = [0; 1 + TIMESTEP.len()];
    let len = (size - at).min(TIMESTEP.len() as u64) as usize;
    let bytes = &mut bytes[..1 + len];
    source.read_at(at - 1, bytes)?;
    let [b'\n', begun @ ..] = &*bytes else {
        return Ok(Met::Other);
    };
    Ok(if TIMESTEP.starts_with(begun) {
        Met::Frame
    } else if begun.iter().all(|&byte| byte == 0) {
        Met::Hole
    } else if is_blank_behind(source, at, size)? {
        Met::End
    } else {
        Met::Other
    })
}

fn is_blank_behind(source: &dyn Source, at: u64, size: u64) -> Result<bool> {
    if size - at > BLANK {
        return Ok(false);
    }
    let mut bytes = vec![0; (size - at) as usize];
    source.read_at(at, &mut bytes)?;
    Ok(is_blank(&bytes))
}

/// Open a CONFIG: one frame, which is the file.
///
/// # Errors
/// Those of [`super::open`]; [`Error::Damaged`] also where the file has fewer atoms than its head
/// says.
pub fn open_config(
    source: &dyn Source,
    size: u64,
    options: &OpenOptions<'_>,
) -> Result<regular::Opened> {
    let head = read_head(source, size, Head::parse_config)?;
    let layout = match atoms_are_regular(source, &head.layout, size)? {
        true => ordered(source, head.layout, 0)?,
        false => counted(source, head, size, options)?,
    };
    let found = layout.n_atoms() as u64;
    let claimed = head.claimed.unwrap_or(found);
    if claimed > found {
        let fault = Fault::bad(
            0,
            format!("{claimed} atoms, as its second line says"),
            found,
        );
        return Err(Error::damaged(source.path(), None, size, 0, fault));
    }
    let note = format!("the header says {claimed} atoms, the file has {found}");
    Ok(regular::Opened {
        layout: Layout::Dlpoly(layout),
        frames: Frames::Regular {
            first: 0,
            first_size: size,
            stride: size,
            n: 1,
        },
        notes: (claimed < found)
            .then_some(note)
            .into_iter()
            .chain(odd_cell(&layout))
            .collect(),
    })
}

/// Whether atoms follow each other at equal distances, as far as is looked at.
fn atoms_are_regular(source: &dyn Source, layout: &dlpoly::Layout, size: u64) -> Result<bool> {
    let n_atoms = layout.n_atoms() as u64;
    for sample in 1..=N_SAMPLES {
        let place = (u128::from(n_atoms) * u128::from(sample) / u128::from(N_SAMPLES)) as u64;
        let Some(bytes) = layout.bytes_of(place..place) else {
            return Ok(false);
        };
        let mut end = [0];
        source.read_at(bytes.start.min(size) - 1, &mut end)?;
        if end != *b"\n" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The layout of a CONFIG whose lines have any length, with as many atoms as there are lines.
fn counted(
    source: &dyn Source,
    head: Head,
    size: u64,
    options: &OpenOptions<'_>,
) -> Result<dlpoly::Layout> {
    let mut n_lines = 0;
    let watch = Watch::new(options.progress, size);
    let unfinished = text::each_line(source, head.len, size, &watch, |_, _| n_lines += 1)?;
    let damaged = |at, expected: &str, found: String| {
        let fault = Fault::bad(0, expected, found);
        Error::damaged(source.path(), Some(0), at, size, fault)
    };
    if let Some(at) = unfinished {
        let expected = "a line feed at the end of the last line (add one where the line is whole)";
        return Err(damaged(at, expected, "none".into()));
    }
    let per_atom = head.layout.lines_of_atom();
    match n_lines % per_atom {
        0 => Ok(head.layout.varying().with_n_atoms(n_lines / per_atom)),
        rest => {
            let expected = format!("{per_atom} lines for each atom");
            Err(damaged(
                size,
                &expected,
                format!("{rest} behind the last whole one"),
            ))
        }
    }
}

/// Times and steps of a file's frames that were found by arithmetic, read one by one.
///
/// # Errors
/// What the source gives.
pub fn regular_times(
    source: &dyn Source,
    layout: &dlpoly::Layout,
    size: u64,
    n: u64,
) -> Result<Times> {
    let mut times = Times::default();
    let mut push = |moment: Option<(f64, i64)>| {
        let (time, step) = moment.unwrap_or((f64::NAN, 0));
        times.times.push(time);
        times.steps.push(step);
    };
    match (layout.kind(), layout.frame_size()) {
        (dlpoly::Kind::History, Some(stride)) => {
            let width = layout.bytes_of(0..0).map_or(0, |atoms| atoms.start);
            read_each(source, layout.start(), width, stride, n, |bytes| {
                let line = bytes
                    .split(|&byte| byte == b'\n')
                    .next()
                    .unwrap_or_default();
                let header = Header::parse(layout, line).ok();
                push(header.map(|header| (header.time, header.step)));
            })?;
        }
        _ => {
            let parse = |bytes: &[u8], size| FrameHead::parse(layout, bytes, size);
            let head = read_head(source, size, parse)?;
            push(Some((head.time, head.step)));
        }
    }
    Ok(times)
}

/// The times of `frames`, which a scan of the first `size` bytes of `source` gave, read from the
/// trajectory itself.
///
/// # Errors
/// [`Error::Changed`] where the frames are at other places now.
pub fn read_moments(
    source: &dyn Source,
    layout: &dlpoly::Layout,
    size: u64,
    frames: &Frames,
) -> Result<Moments> {
    let watch = Watch::new(&|_, _| std::ops::ControlFlow::Continue(()), size);
    let found = text::scan(source, layout, layout.start(), size, &watch)?;
    listed::moments_of(source, found, frames)
}
