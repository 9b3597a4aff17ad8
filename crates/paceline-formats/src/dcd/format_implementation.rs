//! Implementation of the format interface for DCD.

use std::any::Any;
use std::ops::Range;

use super::{DcdDecoder, DcdEncoder, Layout};
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

    /// Return the byte ranges of the number of frames and the number of steps in the header.
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
/// The inner result is a warning if the cell can be read in two ways, or the fault of the frame.
/// The outer error is one of reading.
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
