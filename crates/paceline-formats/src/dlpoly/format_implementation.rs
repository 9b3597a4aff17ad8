//! Implementation of the format interface for HISTORY and CONFIG. If lines have equal lengths,
//! frame offsets are computed; otherwise the file is scanned.

use std::any::Any;
use std::ops::{ControlFlow, Range};

use memchr::memchr_iter;

use super::header::{counts, detect};
use super::{
    DlpolyDecoder, FrameHead, FrameLines, Head, Header, Kind, Layout, MAX_LINE, RECORD, TIMESTEP,
    is_blank,
};
use crate::atom_set::Atoms;
use crate::error::{Error, Fault, Result};
use crate::format_interface::{
    self, Abilities, FileLayout, Format, Frames, OpenOptions, Opened, Times, Traits,
};
use crate::index;
use crate::index::fixed_size::{frame_count_note, read_each, read_head};
use crate::index::header_scan::ScanProgress;
use crate::index::scanned::{load_or_scan, times_of};
use crate::source::Source;
use crate::text_lines::{LineScanner, each_line, scan_lines};
use crate::{Decoder, Fields};

/// The format HISTORY.
#[derive(Debug)]
pub struct History;

/// The format CONFIG, which REVCON files have, too.
#[derive(Debug)]
pub struct Config;

/// Byte that identifies both formats in a saved layout.
const CODE: u8 = 5;

impl Format for History {
    fn name(&self) -> &'static str {
        "HISTORY"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["history"]
    }

    fn file_names(&self) -> &'static [&'static str] {
        &["HISTORY"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::ALL,
            appends: true,
            is_text: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        detect(head) == Some(Kind::History)
    }

    /// Return the byte range that contains the number of frames and the number of records.
    fn counts(&self, head: &[u8]) -> Vec<Range<usize>> {
        let ends = counts(head);
        ends.map(|[before, _, end]| before..end)
            .into_iter()
            .collect()
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        open_history(source, size, options)
    }

    fn code(&self) -> u8 {
        CODE
    }

    fn layout(&self, bytes: &[u8]) -> Option<format_interface::Layout> {
        Layout::from_bytes(bytes).map(format_interface::Layout::new)
    }
}

impl Format for Config {
    fn name(&self) -> &'static str {
        "CONFIG"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["REVCON"]
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["config"]
    }

    fn file_names(&self) -> &'static [&'static str] {
        &["CONFIG", "REVCON"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::ALL,
            is_text: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        detect(head) == Some(Kind::Config)
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        open_config(source, size, options)
    }

    fn code(&self) -> u8 {
        CODE
    }

    fn layout(&self, bytes: &[u8]) -> Option<format_interface::Layout> {
        Layout::from_bytes(bytes).map(format_interface::Layout::new)
    }
}

impl FileLayout for Layout {
    fn format(&self) -> &'static dyn Format {
        match self.kind() {
            Kind::History => &History,
            Kind::Config => &Config,
        }
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms()
    }

    fn fields(&self) -> Fields {
        self.fields()
    }

    fn start(&self) -> u64 {
        self.start()
    }

    fn traits(&self, _source: &dyn Source) -> Result<Traits> {
        let named = |(name, value): (&str, String)| (name.to_owned(), value);
        Ok(self.traits().into_iter().map(named).collect())
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(DlpolyDecoder::new(*self, atoms, wanted)))
    }

    fn times(&self, source: &dyn Source, size: u64, frames: &Frames) -> Result<Times> {
        let Frames::Listed(_) = frames else {
            return regular_times(source, self, size, frames.len());
        };
        let watch = ScanProgress::new(&|_, _| ControlFlow::Continue(()), size);
        let found = scan_lines::<FrameLines>(source, self, self.start(), size, &watch)?;
        times_of(source, found, frames)
    }

    fn head(&self, source: &dyn Source, _first: u64, n_frames: u64) -> Result<Option<Vec<u8>>> {
        if self.kind() != Kind::History {
            return Ok(None);
        }
        let atoms = self.bytes_of(0..0).map_or(0, |atoms| atoms.start);
        let mut head = vec![0; (self.start() + atoms) as usize];
        source.read_at(0, &mut head)?;
        Ok(Some(self.head_of(&head, n_frames)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Number of frames or atoms, spread over the file, at which computed offsets are checked.
const N_SAMPLES: u64 = 18;

/// Maximum number of blank bytes after the last frame for which frame offsets are computed. If more
/// blank bytes follow, the file is scanned.
const BLANK: u64 = 4096;

/// Find the frames of a HISTORY.
///
/// # Errors
/// Errors of [`index::open`](crate::index::open).
fn open_history(source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
    let head = read_head(source, size, Head::parse_history)?;
    if let Some(found) = by_arithmetic(source, size, &head)? {
        return Opened::computed(source, size, options, found);
    }
    let layout = head.layout.varying();
    // The frame size is estimated for lines of DL_POLY's usual length.
    let n_lines = (layout.n_atoms() as u64).saturating_mul(layout.lines_of_atom());
    let scanner = LineScanner::<FrameLines> {
        source,
        layout: &layout,
        start: layout.start(),
        size,
        frame_size: n_lines.saturating_mul(RECORD),
        watch: ScanProgress::new(options.progress, size),
    };
    let mut opened = load_or_scan(
        source,
        format_interface::Layout::new(layout),
        size,
        options,
        &scanner,
    )?;
    let note = unusual_size_note(&head.layout, &opened);
    opened.notes.splice(..0, note);
    Ok(opened)
}

/// Return a note on frames of an unusual size (see [`Layout::is_usual_size`]), unless most frames
/// are unusual.
fn unusual_size_note(layout: &Layout, opened: &Opened) -> Option<String> {
    let n = opened.frames.len();
    let is_odd = |&frame: &u64| {
        let (_, size) = opened.frames.extent(frame);
        // A larger last frame is not unusual, since blank lines may follow it.
        let blank = frame + 1 == n && layout.frame_size().is_none_or(|usual| size > usual);
        !blank && !layout.is_usual_size(size) && opened.damaged.binary_search(&frame).is_err()
    };
    let odd: Vec<u64> = (0..n).filter(is_odd).collect();
    let first = *odd.first().filter(|_| 2 * odd.len() as u64 <= n)?;
    let (at, _) = opened.frames.extent(first);
    let frames = match odd.len() - 1 {
        0 => format!("frame {first} (byte {at})"),
        more => format!("frame {first} (byte {at}) and {more} more"),
    };
    Some(format!(
        "{frames}: other lengths of lines than in the rest of the file; it was edited, or bytes were \
         lost or inserted, and numbers there may be wrong"
    ))
}

/// Compute the offsets of the frames of a HISTORY. Return `None` if lines vary in length, if no
/// frame is complete, or if a check of some frames shows that not all have the size of the first.
fn by_arithmetic(
    source: &dyn Source,
    size: u64,
    head: &Head,
) -> Result<Option<(format_interface::Layout, Frames, Vec<String>)>> {
    let (start, Some(stride)) = (head.layout.start(), head.layout.frame_size()) else {
        return Ok(None);
    };
    let met_at = |frame: u64| classify(source, start + frame * stride, size);
    let mut n = (size - start) / stride;
    if n > 1 && met_at(n - 1)? == Content::Hole {
        n -= 1;
    }
    let behind = met_at(n)?;
    if n == 0 || behind == Content::Other {
        return Ok(None);
    }
    for sample in 1..=N_SAMPLES {
        let frame = (u128::from(n - 1) * u128::from(sample) / u128::from(N_SAMPLES)) as u64;
        if met_at(frame)? != Content::Frame {
            return Ok(None);
        }
    }
    // The size of a damaged first frame can look right. So check a later frame, too: its first atom
    // must have lines of the lengths that were found in the first frame.
    let has_lines = |frame: u64| has_lines(source, &head.layout, start + frame * stride);
    if n > 1 && !(has_lines(n - 1)? || has_lines(n / 2)?) {
        return Ok(None);
    }
    let (at, present) = (start + n * stride, size - start - n * stride);
    let claimed = head.claimed.and_then(|claimed| i64::try_from(claimed).ok());
    let mut warnings: Vec<String> = claimed
        .and_then(|claimed| frame_count_note(n, claimed))
        .into_iter()
        .collect();
    warnings.extend(unusual_cell_warning(&head.layout));
    match behind {
        Content::Frame if present > 0 => {
            warnings.push(index::cut_warning(n, at, present, Some(stride)))
        }
        Content::Hole => warnings.push(index::hole_warning(n, at)),
        _ => {}
    }
    let layout = ordered(source, head.layout, start)?;
    let frames = Frames::Regular {
        first: start,
        first_size: stride,
        stride,
        n,
    };
    Ok(Some((
        format_interface::Layout::new(layout),
        frames,
        warnings,
    )))
}

/// Return true if the first atom of the frame at `start` has lines of the lengths in the layout.
fn has_lines(source: &dyn Source, layout: &Layout, start: u64) -> Result<bool> {
    let Some(range) = layout.bytes_of(0..1) else {
        return Ok(true);
    };
    let mut bytes = vec![0; (range.end - range.start) as usize];
    source.read_at(start + range.start, &mut bytes)?;
    let n_lines = memchr_iter(b'\n', &bytes).count() as u64;
    Ok(n_lines == layout.lines_of_atom() && layout.id_of(&bytes).is_ok())
}

/// Return `layout`, marked as ordered if some atoms of the frame at `start`, spread over the frame,
/// are at the places that follow from their ids.
fn ordered(source: &dyn Source, layout: Layout, start: u64) -> Result<Layout> {
    let last = layout.n_atoms() as u64 - 1;
    let mut bytes = Vec::new();
    for sample in 0..N_SAMPLES {
        let place = (u128::from(last) * u128::from(sample) / u128::from(N_SAMPLES - 1)) as u64;
        let Some(range) = layout.bytes_of(place..place + 1) else {
            return Ok(layout);
        };
        bytes.resize((range.end - range.start) as usize, 0);
        source.read_at(start + range.start, &mut bytes)?;
        // Invalid lines count as not ordered here; the decoder reports them.
        if !matches!(layout.id_of(&bytes), Ok(id) if id.is_none_or(|id| id == place + 1)) {
            return Ok(layout);
        }
    }
    Ok(layout.ordered())
}

/// Return the warning about a periodic boundary that three vectors cannot describe.
fn unusual_cell_warning(layout: &Layout) -> Option<String> {
    let shape = match layout.imcon() {
        4 => "a truncated octahedron",
        5 => "a rhombic dodecahedron",
        7 => "a hexagonal prism",
        _ => return None,
    };
    Some(format!(
        "the cell is {shape} (imcon {}), but the file contains only its bounding box: distances \
         across the faces of the cell are wrong",
        layout.imcon()
    ))
}

/// Content at an offset where a frame of a HISTORY should begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// A frame, or the beginning of its first line at the end of the file.
    Frame,
    /// Zeros: bytes that a parallel writer has not written yet.
    Hole,
    /// Only blanks.
    End,
    Other,
}

fn classify(source: &dyn Source, at: u64, size: u64) -> Result<Content> {
    let mut bytes = [0; 1 + TIMESTEP.len()];
    let len = (size - at).min(TIMESTEP.len() as u64) as usize;
    let bytes = &mut bytes[..1 + len];
    source.read_at(at - 1, bytes)?;
    let [b'\n', begun @ ..] = &*bytes else {
        return Ok(Content::Other);
    };
    Ok(if TIMESTEP.starts_with(begun) {
        Content::Frame
    } else if begun.iter().all(|&byte| byte == 0) {
        Content::Hole
    } else if is_blank_behind(source, at, size)? {
        Content::End
    } else {
        Content::Other
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

/// Open a CONFIG. The file is a single frame.
///
/// # Errors
/// Errors of [`index::open`](crate::index::open); [`Error::Damaged`] also if the file has fewer
/// atoms than its header states.
fn open_config(source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
    let head = read_head(source, size, Head::parse_config)?;
    let layout = match atoms_are_regular(source, &head.layout, size)? {
        true => ordered(source, head.layout, 0)?,
        false => with_counted_atoms(source, head, size, options)?,
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
    let frames = Frames::Regular {
        first: 0,
        first_size: size,
        stride: size,
        n: 1,
    };
    let notes = (claimed < found)
        .then_some(note)
        .into_iter()
        .chain(unusual_cell_warning(&layout))
        .collect();
    Opened::computed(
        source,
        size,
        options,
        (format_interface::Layout::new(layout), frames, notes),
    )
}

/// Return true if a line ends at each of some offsets that were computed for equal line lengths.
fn atoms_are_regular(source: &dyn Source, layout: &Layout, size: u64) -> Result<bool> {
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

/// Return the layout of a CONFIG with lines of any length. The number of atoms is computed from the
/// number of lines.
fn with_counted_atoms(
    source: &dyn Source,
    head: Head,
    size: u64,
    options: &OpenOptions<'_>,
) -> Result<Layout> {
    let mut n_lines = 0;
    let watch = ScanProgress::new(options.progress, size);
    let unfinished = each_line(source, head.len..size, MAX_LINE, &watch, |_, _| {
        n_lines += 1
    })?;
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

/// Read times and step numbers of frames with computed offsets, one by one. If the header of a
/// frame is invalid, its time is NaN.
///
/// # Errors
/// Errors of the source.
fn regular_times(source: &dyn Source, layout: &Layout, size: u64, n: u64) -> Result<Times> {
    let mut times = Times::default();
    let mut push = |moment: Option<(f64, i64)>| {
        let (time, step) = moment.unwrap_or((f64::NAN, 0));
        times.times.push(time);
        times.steps.push(step);
    };
    match (layout.kind(), layout.frame_size()) {
        (Kind::History, Some(stride)) => {
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
