//! Implementation of the format interface for Amber NetCDF.

use std::any::Any;
use std::ops::{Range, RangeInclusive};

use super::header::Header;
use super::layout::Role;
use super::{Arrangement, Layout, NetcdfDecoder, NetcdfEncoder, copy_header};
use crate::atom_set::Atoms;
use crate::error::Result;
use crate::format_interface::{
    self, Abilities, Clock, EncoderSettings, FileLayout, Format, Frames, OpenOptions, Opened,
    Times, Traits, unsupported,
};
use crate::index::fixed_size::{count, cut, frame_count_note, read_each, read_head};
use crate::source::Source;
use crate::xdr::padding;
use crate::{Decoder, Encoder, Fields};

/// The format Amber NetCDF: Amber's conventions in NetCDF's classic formats.
#[derive(Debug)]
pub struct Netcdf3;

/// Name of the format if files are always written as CDF-5.
const CDF5: &str = "CDF-5";

impl Format for Netcdf3 {
    fn name(&self) -> &'static str {
        "NetCDF"
    }

    fn mdanalysis_name(&self) -> &'static str {
        "NCDF"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["NCDF", "NC", CDF5]
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["nc", "ncdf"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::ALL,
            writes: Fields::ALL,
            equal_frames: true,
            appends: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        [b"CDF\x01", b"CDF\x02", b"CDF\x05"]
            .iter()
            .any(|magic| head.starts_with(*magic))
    }

    /// Return the byte range that contains the number of records.
    fn counts(&self, head: &[u8]) -> Vec<Range<usize>> {
        let count = match head {
            [b'C', b'D', b'F', 5, ..] => Some(4..12),
            [b'C', b'D', b'F', ..] => Some(4..8),
            _ => None,
        };
        count.into_iter().collect()
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let parse = |head: &[u8], size| {
            let claimed = Header::parse(head, size)?.file_size();
            Ok(Layout::parse_noting(head, size)?.map(|found| (found, claimed)))
        };
        let ((mut layout, left_out), size_claimed) =
            read_head(source, size, parse)?.map_err(|what| unsupported(source.path(), what))?;
        if lacks_times(source, &layout, size)? {
            layout = layout.without_times();
        }
        let (frames, mut notes) = match layout.arrangement() {
            Arrangement::Records { n_claimed } => records(source, &mut layout, size, n_claimed)?,
            Arrangement::Arrays { n, n_claimed } => {
                let other_count = frame_count_note(n, i64::try_from(n_claimed).unwrap_or(i64::MAX));
                let notes = [other_size(size, size_claimed), other_count];
                let notes = notes.into_iter().flatten().collect();
                let (start, size) = (layout.start(), layout.frame_size());
                (Frames::Shared { start, size, n }, notes)
            }
        };
        notes.extend(left_out);
        let found = (format_interface::Layout::new(layout), frames, notes);
        Opened::computed(source, size, options, found)
    }

    fn code(&self) -> u8 {
        4
    }

    fn layout(&self, bytes: &[u8]) -> Option<format_interface::Layout> {
        Layout::from_bytes(bytes).map(format_interface::Layout::new)
    }

    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let encoder = NetcdfEncoder::new(settings.n_atoms, settings.has_cell, settings.fields)?;
        Ok(Box::new(match settings.name {
            CDF5 => encoder.as_cdf5(),
            _ => encoder,
        }))
    }
}

/// Return true if the file has a variable for times, but the first frame contains only data of the
/// atoms, and no time.
fn lacks_times(source: &dyn Source, layout: &Layout, size: u64) -> Result<bool> {
    let is_unwritten = |role| -> Result<bool> {
        let Some(variable) = layout.variable(role) else {
            return Ok(false);
        };
        let (start, width) = (layout.start() + variable.at, variable.number.width());
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..width as usize];
        if start + width > size {
            return Ok(false);
        }
        source.read_at(start, bytes)?;
        Ok(variable.is_unwritten(bytes))
    };
    // In a frame that was never written, the atoms have no data either.
    let of_atoms = Role::ALL
        .into_iter()
        .find(|&role| layout.variable(role).is_some());
    Ok(is_unwritten(Role::Time)? && !is_unwritten(of_atoms.unwrap_or(Role::Positions))?)
}

/// Find the frames of a file whose frames are records. Return the frames, and notes if the size of
/// the file contradicts its header.
fn records(
    source: &dyn Source,
    layout: &mut Layout,
    size: u64,
    n_claimed: Option<u64>,
) -> Result<(Frames, Vec<String>)> {
    let (start, frame_size) = (layout.start(), layout.frame_size());
    let (frames, rest) = count(size, start, frame_size, frame_size);
    let n = frames.len();
    let claimed = n_claimed.and_then(|n| i64::try_from(n).ok());
    let other_count = claimed.and_then(|claimed| frame_count_note(n, claimed));
    if rest == 0 && other_count.is_none() {
        return Ok((frames, Vec::new()));
    }
    let cut = cut(n, size, rest, frame_size);
    let notes = match alignment(source, layout, size, n)? {
        Alignment::Lost(place) => {
            layout.lost_from = place.as_ref().map(|place| *place.start());
            vec![
                Some(shifted_records_note(layout, size, rest, place)),
                other_count,
            ]
        }
        Alignment::Unknown => vec![cut.map(|note| note + OR_ELSEWHERE), other_count],
        // Only the time and the cell of the last complete frame were checked. Bytes may have been
        // inserted after the cell of this frame.
        Alignment::Kept { cut_too: false } if n_claimed == Some(n) => {
            let or = format!("; or so many bytes were inserted in frame {}", n - 1);
            vec![other_count, cut.map(|note| note + &or)]
        }
        Alignment::Kept { .. } => vec![other_count, cut],
    };
    Ok((frames, notes.into_iter().flatten().collect()))
}

/// Beginning of the note on a file that has lost or gained bytes.
const CONTRADICTS: &str = "the size of the file contradicts its header";

const OR_ELSEWHERE: &str = "; or bytes were lost or inserted elsewhere, and all numbers behind are \
     wrong: the times and cells of the file do not tell";

const COPY_AGAIN: &str = "copy it again from where it is whole";

/// Return the note on a file whose records are not at the offsets that follow from the header.
fn shifted_records_note(
    layout: &Layout,
    size: u64,
    rest: u64,
    place: Option<RangeInclusive<u64>>,
) -> String {
    let (start, frame_size) = (layout.start(), layout.frame_size());
    let size = match rest {
        0 => format!("{size} bytes"),
        _ => format!("{size} bytes, where frames have {frame_size} from byte {start} on"),
    };
    let Some(place) = place else {
        return format!(
            "{CONTRADICTS}: {size}, and the last frames have no possible times or cells: bytes were \
             lost or inserted, and all numbers behind them are wrong; {COPY_AGAIN}"
        );
    };
    let (first, last) = place.into_inner();
    let (from, to) = (start + first * frame_size, start + (last + 1) * frame_size);
    format!(
        "{CONTRADICTS}: {size}; bytes were lost or inserted in frame {first} or {last} (bytes {from} \
         to {to}), and frames from {first} on cannot be read; {COPY_AGAIN}"
    )
}

/// Return the note on a file whose size differs from the size in its header, if frames are not
/// records. The number of frames is then that of the header.
fn other_size(size: u64, claimed: Option<u64>) -> Option<String> {
    let claimed = claimed?;
    let what = if size < claimed {
        "it was cut at its end, or bytes were lost in its middle"
    } else if size > claimed + padding(claimed) {
        "bytes were added at its end, or inserted in its middle"
    } else {
        return None;
    };
    Some(format!(
        "{CONTRADICTS}: {size} bytes, where there should be {claimed}; {what}, and then all numbers \
         behind are wrong; {COPY_AGAIN}"
    ))
}

impl FileLayout for Layout {
    fn format(&self) -> &'static dyn Format {
        &Netcdf3
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

    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(NetcdfDecoder::new(self.clone(), atoms, wanted)))
    }

    fn times(&self, source: &dyn Source, _size: u64, frames: &Frames) -> Result<Times> {
        let n = frames.len();
        let mut times = Vec::new();
        if let Some((start, width, step)) = self.times_at() {
            read_each(source, start, width, step, n, |bytes| {
                times.push(self.time(times.len() as u64, bytes));
            })?;
        } else {
            times.extend((0..n).map(|frame| self.time(frame, &[])));
        }
        Ok(Times {
            times,
            steps: (0..n).map(|frame| self.step(frame)).collect(),
        })
    }

    fn traits(&self, source: &dyn Source) -> Result<Traits> {
        copy_header::traits(self, source)
    }

    fn head(&self, source: &dyn Source, _first: u64, n_frames: u64) -> Result<Option<Vec<u8>>> {
        copy_header::head(self, source, n_frames).map(Some)
    }

    fn dt(&self) -> Option<f64> {
        self.dt()
    }

    fn clock(&self) -> Clock {
        self.clock()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

// Check whether frames are at the offsets that follow from the header. If bytes were lost or
// inserted in the middle of a file, all later bytes are shifted, and only this check can detect it.
//
// The check uses times, which increase evenly, and cells, which change little. It runs if the size
// of a file contradicts its header, and makes a few small reads.

/// The last frame with data is searched among this number of frames at the end of the file. After a
/// writer was killed, some of these frames may have no data.
const UNWRITTEN_MAX: u64 = 8;

/// Maximum ratio between edges of a cell and those of the cell of the first frame.
const EDGE_FACTOR: f32 = 1.25;
/// Maximum difference between angles of a cell and those of the cell of the first frame, degrees.
const ANGLE_CHANGE: f32 = 2.0;

/// Maximum relative deviation of a time step from the first one, in addition to rounding errors.
const DT_CHANGE: f64 = 0.01;
/// Maximum deviation of a time from equal time steps, relative to the time since the first frame,
/// in addition to rounding errors.
const DRIFT: f64 = 0.001;

/// Result of the check whether frames are at the offsets that follow from the header.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Alignment {
    /// Frames are at the offsets that follow from the header. `cut_too` is true if this also holds
    /// for the truncated frame.
    Kept { cut_too: bool },
    /// The offsets cannot be checked, because neither times nor cells are informative.
    Unknown,
    /// Later frames are shifted, because bytes were lost or inserted. The range, if it is known,
    /// contains the frame where this happened.
    Lost(Option<RangeInclusive<u64>>),
}

/// Check the offsets of the frames by their times and cells. Frames are records, and a file of
/// `size` bytes has `n` complete ones if no bytes were lost or inserted.
///
/// # Errors
/// Errors of the source.
fn alignment(source: &dyn Source, layout: &Layout, size: u64, n: u64) -> Result<Alignment> {
    if n == 0 {
        return Ok(Alignment::Unknown);
    }
    let mut numbers = Numbers::new(source, layout, size)?;
    let Some(last) = numbers.last_written(n)? else {
        return Ok(Alignment::Unknown);
    };
    let sign = numbers.sign(last, 0)?;
    if sign == Sign::Right {
        let cut_too = numbers.sign(n, 0)? == Sign::Right;
        return Ok(Alignment::Kept { cut_too });
    }
    // If bytes were lost or inserted, a whole number of frames follows, up to the end of the file.
    let behind = (size - layout.start()) % layout.frame_size();
    let moved = behind > 0 && numbers.sign(n - 1, behind)? == Sign::Right;
    if !moved && sign == Sign::Unclear {
        return Ok(Alignment::Unknown);
    }
    let begins_right = moved || (last > 2 && numbers.sign(2, 0)? == Sign::Right);
    let (mut right, mut wrong) = (0, last);
    while begins_right && wrong - right > 1 {
        let middle = right + (wrong - right) / 2;
        match numbers.sign(middle, 0)? {
            Sign::Right => right = middle,
            _ => wrong = middle,
        }
    }
    Ok(Alignment::Lost(begins_right.then_some(right..=wrong)))
}

/// Conclusion from time and cell at an offset: whether a frame begins there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The numbers belong to a frame of this file.
    Right,
    Unclear,
    /// The time or the cell is impossible.
    Wrong,
}

/// Time and cell found at an offset.
#[derive(Debug, Clone, Copy)]
enum Found {
    Moment {
        time: f64,
        cell: [f32; 6],
    },
    /// Zeros, or the fill value of the NetCDF library: the numbers were never written.
    Unwritten,
    Impossible,
    /// The file ends before this offset.
    Nothing,
}

/// Reader of the times and cells by which the offsets of frames are checked.
struct Numbers<'a> {
    source: &'a dyn Source,
    layout: &'a Layout,
    size: u64,
    decoder: NetcdfDecoder,
    /// Time (ps) and cell of the first frame; `None` if they were never written or are impossible.
    first: Option<(f64, [f32; 6])>,
    /// Time from the first frame to the second, and its uncertainty, ps; `None` if it is unknown.
    dt: Option<(f64, f64)>,
}

impl<'a> Numbers<'a> {
    fn new(source: &'a dyn Source, layout: &'a Layout, size: u64) -> Result<Self> {
        let no_atoms = Atoms::new(&[], layout.n_atoms())?;
        let mut numbers = Numbers {
            source,
            layout,
            size,
            decoder: NetcdfDecoder::new(layout.clone(), no_atoms, Fields::default()),
            first: None,
            dt: None,
        };
        if let Found::Moment { time, cell } = numbers.at(0, 0)? {
            numbers.first = Some((time, cell));
            if layout.variable(Role::Time).is_some()
                && let Found::Moment { time: next, .. } = numbers.at(1, 0)?
                && next > time
            {
                numbers.dt = Some((next - time, rounding(next)));
            }
        }
        Ok(numbers)
    }

    /// Return the last frame with data among the last few of `n` frames; `None` if they have none.
    fn last_written(&mut self, n: u64) -> Result<Option<u64>> {
        for frame in (n.saturating_sub(UNWRITTEN_MAX)..n).rev() {
            if !matches!(self.at(frame, 0)?, Found::Unwritten) {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Read time and cell of a frame, assumed to be `behind` bytes after its usual offset.
    fn at(&mut self, frame: u64, behind: u64) -> Result<Found> {
        let frame_size = self.layout.frame_size();
        let start = self.layout.start() + frame * frame_size + behind;
        let mut bytes = Vec::new();
        for run in self.decoder.runs(frame, frame_size) {
            if start + run.end() > self.size {
                return Ok(Found::Nothing);
            }
            let read = bytes.len();
            bytes.resize(read + run.len as usize, 0);
            self.source.read_at(start + run.start, &mut bytes[read..])?;
        }
        let is_zero = || bytes.iter().all(|&byte| byte == 0);
        Ok(match self.decoder.time_and_cell(frame, &bytes) {
            // The first frame may have the time 0 and no cell.
            Ok(_) if frame > 0 && is_zero() => Found::Unwritten,
            Ok((time, cell)) => Found::Moment { time, cell },
            Err(_) if self.decoder.is_unwritten(&bytes) => Found::Unwritten,
            Err(_) => Found::Impossible,
        })
    }

    fn sign(&mut self, frame: u64, behind: u64) -> Result<Sign> {
        let (time, cell) = match self.at(frame, behind)? {
            Found::Moment { time, cell } => (time, cell),
            Found::Impossible => return Ok(Sign::Wrong),
            Found::Unwritten | Found::Nothing => return Ok(Sign::Unclear),
        };
        let is_right = self.is_usual(&cell) || self.goes_on(frame, behind, time)?;
        Ok(if is_right { Sign::Right } else { Sign::Unclear })
    }

    /// Return true for a cell similar to that of the first frame.
    fn is_usual(&self, cell: &[f32; 6]) -> bool {
        let Some((_, first)) = self.first else {
            return false;
        };
        let mut both = first.iter().zip(cell);
        let is_edge = |(one, other): (&f32, &f32)| {
            *one > 0.0 && *other > one / EDGE_FACTOR && *other < one * EDGE_FACTOR
        };
        let edges = both.by_ref().take(3).all(is_edge);
        edges && both.all(|(one, other)| *one > 0.0 && (one - other).abs() < ANGLE_CHANGE)
    }

    /// Return true if `time` minus the time of the previous frame, and `time` minus that of the
    /// first frame, match the time step.
    fn goes_on(&mut self, frame: u64, behind: u64, time: f64) -> Result<bool> {
        let (Some((first, _)), Some((dt, error))) = (self.first, self.dt) else {
            return Ok(false);
        };
        if frame < 2 {
            return Ok(false);
        }
        let Found::Moment { time: before, .. } = self.at(frame - 1, behind)? else {
            return Ok(false);
        };
        let rounded = rounding(time) + error;
        let n = frame as f64;
        // If bytes were lost, the frame that is `behind` bytes after the usual offset of `frame` is
        // frame `frame` + 1, so that its time may be later by one time step.
        let drift = n * (DRIFT * dt + error) + dt * f64::from(u8::from(behind > 0)) + rounded;
        Ok(((time - before) - dt).abs() <= DT_CHANGE * dt + rounded
            && ((time - first) - n * dt).abs() <= drift)
    }
}

/// Return an upper bound of the rounding error of a time in 32 bits.
fn rounding(time: f64) -> f64 {
    2.0 * f64::from(f32::EPSILON) * time.abs()
}
