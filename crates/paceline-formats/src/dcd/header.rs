//! DCD as a format of the registry, and the header of a DCD file:
//!
//! ```text
//! 84 bytes   "CORD", then 20 integers:
//!              0 frames   1 first step   2 steps between frames   8 fixed atoms
//!              9 step length: f32, or f64 in 9 and 10 (X-PLOR)
//!             10 has a cell   11 has a 4th dimension   19 CHARMM's version, 0 for X-PLOR
//! 4 + 80 n   title: number n of its lines, and the lines
//! 4 bytes    number of atoms
//! 4 × free   numbers of the free atoms, from 1: only where some atoms are fixed
//! ```

use std::any::Any;
use std::ops::Range;

use super::layout_and_cell::{Layout, Writer};
use super::{DcdDecoder, DcdEncoder};
use crate::atom_set::Atoms;
use crate::block_reader::ask_for;
use crate::error::{Error, Fault, Result};
use crate::format_interface::{
    Abilities, Clock, EncoderSettings, FileLayout, Format, Frames, OpenOptions, Opened, Times,
    Traits, unsupported,
};
use crate::index::fixed_size::{count, cut, frame_count_note, read_head};
use crate::lammps::Units;
use crate::source::Source;
use crate::{Decoder, Encoder, Fields, Frame, format_interface};

/// Length of the first record.
pub(super) const FIRST_LEN: u64 = 84;
/// Maximum accepted length of a title, bytes. It is larger than CHARMM's limit of 32 lines.
pub(super) const MAX_TITLE: u64 = 1 << 20;

impl Layout {
    /// Parse the header of a file of `file_size` bytes.
    ///
    /// # Errors
    /// [`Fault::Short`] if the slice contains only a part of the header, and the file contains more
    /// of it. [`Fault::Bad`] if this is not a DCD file of coordinates, its header is inconsistent,
    /// or too few bytes for one frame follow the header.
    pub fn parse(head: &[u8], file_size: u64) -> Result<Layout, Fault> {
        let mut records = open(head, file_size)?;
        let first = records.next(FIRST_LEN)?;
        let title = title(&mut records)?;
        let n_atoms = n_atoms(&mut records)?;
        let integer = |index: usize| records.integer(first, 4 + 4 * index);
        let version = integer(19);
        let charmm = version != 0;
        let n_fixed = integer(8);
        let (istart, nsavc) = (integer(1), integer(2).max(1));
        let delta = Some(delta(&records, first, charmm)).filter(|delta| delta.is_finite());
        let mut layout = Layout {
            big_endian: records.big_endian,
            marker: records.marker,
            n_atoms,
            free: None,
            has_cell: charmm && integer(10) != 0,
            version,
            four_dims: charmm && integer(11) == 1,
            title_len: title.len() as u32,
            istart,
            nsavc,
            delta,
            writer: Writer::of(title, istart, nsavc, delta),
            n_frames_claimed: integer(0),
        };
        if n_fixed != 0 {
            layout.free = Some(free_atoms(&mut records, n_atoms, n_fixed)?);
        }
        check_first_frame(&layout, file_size)?;
        Ok(layout)
    }
}

/// Determine the byte order and the size of the markers.
fn open(head: &[u8], file_size: u64) -> Result<Records<'_>, Fault> {
    let mut records = Records::new(head, file_size);
    let start = records.bytes(0, 12)?;
    if &start[8..12] == b"CORD" {
        records.marker = 8;
    } else if &start[4..8] != b"CORD" {
        let found = format!("\"{}\"", start[4..12].escape_ascii());
        return Err(Fault::bad(
            4,
            "\"CORD\" of a DCD file of coordinates",
            found,
        ));
    }
    // The first marker contains 84. In big-endian order, this is its last byte, and the first is 0.
    records.big_endian = start[0] == 0;
    Ok(records)
}

/// Read the record of the title.
fn title<'a>(records: &mut Records<'a>) -> Result<&'a [u8], Fault> {
    let at = records.at;
    let marked = records.next_len()?;
    if marked > MAX_TITLE {
        let expected = format!("a title of at most {MAX_TITLE} bytes");
        return Err(Fault::bad(at, expected, format!("{marked} bytes")));
    }
    let start = records.bytes(at + usize::from(records.marker), 4)?;
    let counted = 4 + 80 * i64::from(records.integer(start, 0));
    match records.next(marked) {
        // Old versions of MDAnalysis wrote three lines of title, with the length of two lines in
        // the markers.
        Err(Fault::Bad { .. }) if (4..=MAX_TITLE as i64).contains(&counted) => {
            records.next_marked(marked, counted as u64)
        }
        title => title,
    }
}

fn n_atoms(records: &mut Records<'_>) -> Result<u32, Fault> {
    let at = records.at + usize::from(records.marker);
    let record = records.next(4)?;
    let n_atoms = records.integer(record, 0);
    match u32::try_from(n_atoms) {
        Ok(n_atoms) if n_atoms > 0 => Ok(n_atoms),
        _ => Err(Fault::bad(at, "at least 1 atom", n_atoms)),
    }
}

/// Return the length of a step, AKMA units.
fn delta(records: &Records<'_>, first: &[u8], charmm: bool) -> f64 {
    const AT: usize = 40;
    match (charmm, records.big_endian) {
        (true, true) => f64::from(f32::from_be_bytes(bytes_at(first, AT))),
        (true, false) => f64::from(f32::from_le_bytes(bytes_at(first, AT))),
        (false, true) => f64::from_be_bytes(bytes_at(first, AT)),
        (false, false) => f64::from_le_bytes(bytes_at(first, AT)),
    }
}

/// Read the indices of the free atoms, from 0. Memory is allocated only if the file contains the
/// whole record of these atoms.
fn free_atoms(records: &mut Records<'_>, n_atoms: u32, n_fixed: i32) -> Result<Vec<u32>, Fault> {
    let width = usize::from(records.marker);
    let n_free = match u32::try_from(n_fixed) {
        Ok(n_fixed) if n_fixed < n_atoms => n_atoms - n_fixed,
        _ => {
            let expected = format!("fewer fixed atoms than the {n_atoms} atoms");
            return Err(Fault::bad(width + 36, expected, n_fixed));
        }
    };
    let start = records.at + width;
    let record = records.next(4 * u64::from(n_free))?;
    let mut free: Vec<u32> = Vec::with_capacity(n_free as usize);
    for at in (0..record.len()).step_by(4) {
        let number = records.integer(record, at);
        let least = free.last().map_or(1, |&last| last + 2);
        match u32::try_from(number) {
            Ok(number) if (least..=n_atoms).contains(&number) => free.push(number - 1),
            _ => {
                let expected = format!("a free atom from {least} to {n_atoms}");
                return Err(Fault::bad(start + at, expected, number));
            }
        }
    }
    Ok(free)
}

/// Check that the file contains a complete first frame, or no frame: a header without frames is an
/// empty trajectory. An incomplete first frame means that the number of atoms is wrong, or that the
/// simulation was killed at its start. In both cases, no frame can be read.
fn check_first_frame(layout: &Layout, file_size: u64) -> Result<(), Fault> {
    let (start, size) = (layout.header_size(), layout.first_frame_size());
    let present = file_size.saturating_sub(start);
    if present == 0 || present >= size {
        return Ok(());
    }
    Err(Fault::bad(
        start as usize,
        format!("a first frame of {size} bytes for {} atoms", layout.n_atoms),
        format!("{present} bytes to the end of the file"),
    ))
}

// Fortran records: each record is enclosed by two equal markers of 4 or 8 bytes, which contain its
// length.

/// Return `N` bytes from `at` on. The caller must check that they exist.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn marker_value(marker: &[u8], big_endian: bool) -> u64 {
    let push = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    if big_endian {
        marker.iter().fold(0, push)
    } else {
        marker.iter().rev().fold(0, push)
    }
}

/// Compare the marker at offset `at` with the expected length.
pub(super) fn check_marker(
    at: usize,
    marker: &[u8],
    big_endian: bool,
    len: u64,
) -> Result<(), Fault> {
    let value = marker_value(marker, big_endian);
    if value == len {
        return Ok(());
    }
    let found = format!("{value} (bytes {marker:02x?})");
    Err(Fault::bad(at, format!("a record marker of {len}"), found))
}

/// Consecutive records at the front of a file.
pub(super) struct Records<'a> {
    head: &'a [u8],
    file_size: u64,
    /// Offset of the next record.
    pub at: usize,
    /// Bytes of a marker.
    pub marker: u8,
    pub big_endian: bool,
}

impl<'a> Records<'a> {
    pub fn new(head: &'a [u8], file_size: u64) -> Self {
        Records {
            head,
            file_size,
            at: 0,
            marker: 4,
            big_endian: false,
        }
    }

    /// # Errors
    /// [`Fault::Short`] if the file contains these bytes, but the slice does not.
    pub fn bytes(&self, at: usize, len: u64) -> Result<&'a [u8], Fault> {
        let end = at as u64 + len;
        if end > self.file_size {
            return Err(Fault::bad(
                at,
                format!("a header of at least {end} bytes"),
                format!("a file of {} bytes", self.file_size),
            ));
        }
        let needed = usize::try_from(end).unwrap_or(usize::MAX);
        self.head.get(at..needed).ok_or(Fault::Short { needed })
    }

    /// Return the length in the marker of the next record.
    pub fn next_len(&self) -> Result<u64, Fault> {
        let marker = self.bytes(self.at, u64::from(self.marker))?;
        Ok(marker_value(marker, self.big_endian))
    }

    /// Return the next record, which must have `len` bytes.
    pub fn next(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        self.next_marked(len, len)
    }

    /// Return the next record. It has `len` bytes, but its markers contain `marked`.
    pub fn next_marked(&mut self, marked: u64, len: u64) -> Result<&'a [u8], Fault> {
        let width = usize::from(self.marker);
        let leading = self.bytes(self.at, width as u64)?;
        check_marker(self.at, leading, self.big_endian, marked)?;
        let start = self.at + width;
        let record = self.bytes(start, len + width as u64)?;
        let (record, trailing) = record.split_at(record.len() - width);
        let end = start + record.len();
        check_marker(end, trailing, self.big_endian, marked)?;
        self.at = end + width;
        Ok(record)
    }

    /// Return the integer at offset `at` in a record.
    pub fn integer(&self, record: &[u8], at: usize) -> i32 {
        let bytes = bytes_at(record, at);
        if self.big_endian {
            i32::from_be_bytes(bytes)
        } else {
            i32::from_le_bytes(bytes)
        }
    }
}

// DCD as a format of the registry.

/// The format DCD.
#[derive(Debug)]
pub struct Dcd;

impl Format for Dcd {
    fn name(&self) -> &'static str {
        "DCD"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["dcd"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::POSITIONS,
            writes: Fields::POSITIONS,
            equal_frames: true,
            one_time_step: true,
            appends: true,
            has_units: true,
            ..Abilities::default()
        }
    }

    /// Recognise the file by the beginning of its first Fortran record: the length 84 in 4 or 8
    /// bytes, then "CORD".
    fn probe(&self, head: &[u8]) -> bool {
        [
            &[84, 0, 0, 0, b'C', b'O', b'R', b'D'][..],
            &[0, 0, 0, 84, b'C', b'O', b'R', b'D'],
            &[84, 0, 0, 0, 0, 0, 0, 0, b'C', b'O', b'R', b'D'],
            &[0, 0, 0, 0, 0, 0, 0, 84, b'C', b'O', b'R', b'D'],
        ]
        .iter()
        .any(|start| head.starts_with(start))
    }

    /// Return the byte ranges of the number of frames and of the number of steps.
    fn counts(&self, head: &[u8]) -> Vec<Range<usize>> {
        match head {
            [_, _, _, _, b'C', b'O', b'R', b'D', ..] => vec![8..12, 20..24],
            [_, _, _, _, _, _, _, _, b'C', b'O', b'R', b'D', ..] => vec![12..16, 24..28],
            _ => Vec::new(),
        }
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let mut layout = read_head(source, size, Layout::parse)?;
        if let Some(name) = options.units {
            let given = layout.in_units(name);
            layout = given.map_err(|what| unsupported(source.path(), what))?;
        }
        let (first, first_size) = (layout.header_size(), layout.first_frame_size());
        let (frames, rest) = count(size, first, first_size, layout.frame_size());
        let n = frames.len();
        let mut notes = Vec::new();
        notes.extend(layout.is_reduced().then(|| Units::REDUCED.to_owned()));
        notes.extend(frame_count_note(n, layout.n_frames_claimed()));
        notes.extend(cut(n, size, rest, layout.frame_size()));
        if n > 0 {
            let (start, len) = frames.extent(n - 1);
            match check_frame(source, &layout, n - 1, start, len)? {
                Ok(doubt) => notes.extend(doubt),
                Err(fault) => {
                    let error = Error::damaged(source.path(), Some(n - 1), start, len, fault);
                    let moved = match rest {
                        0 => "",
                        _ => "; bytes were lost or inserted before it",
                    };
                    let note = "the last frame is damaged, and maybe others";
                    notes.insert(0, format!("{note}: {error}{moved}"));
                }
            }
        }
        let found = (format_interface::Layout::new(layout), frames, notes);
        Opened::computed(source, size, options, found)
    }

    fn code(&self) -> u8 {
        2
    }

    fn layout(&self, bytes: &[u8]) -> Option<format_interface::Layout> {
        Layout::from_bytes(bytes).map(format_interface::Layout::new)
    }

    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let encoder = DcdEncoder::new(settings.n_atoms, settings.has_cell)?;
        Ok(Box::new(encoder))
    }
}

/// Check that the record markers of a frame are at the offsets that were computed from the layout.
/// The inner result is the warning about the cell, if any, or the fault of the frame. The outer
/// error is one of reading.
fn check_frame(
    source: &dyn Source,
    layout: &Layout,
    frame: u64,
    start: u64,
    size: u64,
) -> Result<Result<Option<String>, Fault>> {
    let no_atoms = Atoms::new(&[], layout.n_atoms())?;
    let mut decoder = DcdDecoder::new(layout.clone(), no_atoms);
    let mut bytes = Vec::new();
    let runs = decoder.runs(frame, size).to_vec();
    let access = source.access();
    if access.ahead > 0 {
        // All markers are requested at once. They are far apart, so an object store would otherwise
        // receive one request after the other.
        let ranges = runs.iter().map(|run| start + run.start..start + run.end());
        ask_for(source, access.gap, ranges);
    }
    for run in runs {
        let read = bytes.len();
        bytes.resize(read + run.len as usize, 0);
        source.read_at(start + run.start, &mut bytes[read..])?;
    }
    let mut nothing = Frame::new(0, Fields::default());
    let decoded = decoder.decode(frame, size, &bytes, nothing.out());
    Ok(decoded.map(|()| decoder.cell_doubt(frame, &bytes)))
}

impl FileLayout for Layout {
    fn format(&self) -> &'static dyn Format {
        &Dcd
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms()
    }

    fn start(&self) -> u64 {
        self.header_size()
    }

    fn traits(&self, _source: &dyn Source) -> Result<Traits> {
        let named = |(name, value): (&str, String)| (name.to_owned(), value);
        Ok(self.traits().into_iter().map(named).collect())
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        let atoms = atoms.only_if(wanted.positions);
        Ok(Box::new(DcdDecoder::new(self.clone(), atoms)))
    }

    /// Compute times from the header.
    fn times(&self, _source: &dyn Source, _size: u64, frames: &Frames) -> Result<Times> {
        Ok(Times {
            times: (0..frames.len()).map(|frame| self.time(frame)).collect(),
            steps: (0..frames.len()).map(|frame| self.step(frame)).collect(),
        })
    }

    fn head(&self, source: &dyn Source, first: u64, n_frames: u64) -> Result<Option<Vec<u8>>> {
        let refused = |what| Err(unsupported(source.path(), what));
        let n_fixed = self.n_fixed();
        if n_fixed > 0 {
            return refused(format!(
                "{n_fixed} of {} atoms are fixed, and only the first frame contains them: the \
                 bytes of other frames cannot be copied",
                self.n_atoms()
            ));
        }
        // The size of the header is safe to allocate: parsing checked that the file contains it.
        let mut head = vec![0; self.header_size() as usize];
        source.read_at(0, &mut head)?;
        match self.rewrite_head(&mut head, first, n_frames) {
            Some(()) => Ok(Some(head)),
            None => refused(format!(
                "a DCD file counts frames and steps in 31 bits, too few for {n_frames} frames \
                 from step {} on",
                self.step(first)
            )),
        }
    }

    fn dt(&self) -> Option<f64> {
        Some(self.dt())
    }

    fn first(&self) -> f64 {
        self.first()
    }

    fn clock(&self) -> Clock {
        self.clock()
    }

    fn length_doubt(&self) -> Option<&'static str> {
        self.length_doubt()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
