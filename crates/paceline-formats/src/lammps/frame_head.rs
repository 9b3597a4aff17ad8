//! LAMMPS dumps as a format of the registry, and the header of a frame: step, cell and columns of
//! the atoms.
//!
//! ```text
//! ITEM: UNITS            in some files, before the first frame
//! real
//! ITEM: TIME             in some files, in LAMMPS's unit of time
//! 0.5
//! ITEM: TIMESTEP
//! 500
//! ITEM: NUMBER OF ATOMS
//! 1728
//! ITEM: BOX BOUNDS pp pp pp          or   xy xz yz pp pp pp, with a tilt behind each line
//! -11.2 11.2
//! -11.2 11.2
//! -11.2 11.2
//! ITEM: ATOMS id type x y z          then a line for each atom
//! ```

use std::any::Any;
use std::ops::ControlFlow;

use super::Units;
use super::layout_and_columns::{Columns, FrameLines, convention_name, names_of_positions};
use super::{ATOM_MIN, Ids, LammpsDecoder, Layout, MAX_LINE};
use crate::atom_set::Atoms;
use crate::error::{Fault, Result};
use crate::format_interface::{
    Abilities, Clock, FileLayout, Format, Frames, OpenOptions, Opened, Times, Traits, unsupported,
};
use crate::fortran_numbers::{take_integer, take_real};
use crate::frame_codec::check_time;
use crate::index::fixed_size::read_head;
use crate::index::header_scan::ScanProgress;
use crate::index::scanned::{load_or_scan, times_of};
use crate::source::Source;
use crate::text_lines::{LineScanner, Lines, is_blank, quoted, scan_lines, words};
use crate::{Decoder, Fields, format_interface, triclinic_box};

const UNITS: &str = "ITEM: UNITS";
const TIME: &str = "ITEM: TIME";
const TIMESTEP: &str = "ITEM: TIMESTEP";
const N_ATOMS: &str = "ITEM: NUMBER OF ATOMS";
const BOUNDS: &str = "ITEM: BOX BOUNDS";
pub(super) const ATOMS: &str = "ITEM: ATOMS";

/// Header of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameHead {
    /// Unit style stated before the first frame, if any.
    pub units: Option<Units>,
    /// Time in LAMMPS's unit of time, if stated.
    pub time: Option<f64>,
    /// Step of the simulation.
    pub step: i64,
    /// Number of atoms.
    pub n_atoms: u64,
    /// Cell; `None` if it is stated in an unsupported form.
    pub cell: Option<Bounds>,
    /// Columns; `None` if atoms have no positions.
    pub columns: Option<Columns>,
    /// Size of the bytes before the first atom.
    pub len: usize,
}

/// Cell, the position of its corner, and its periodic axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub origin: [f64; 3],
    /// Lengths and angles as in MDAnalysis; all are zero if the cell has no volume.
    pub dimensions: [f32; 6],
    pub vectors: [[f64; 3]; 3],
    pub periodic: [bool; 3],
}

impl FrameHead {
    /// Parse the header of the frame at the start of `bytes`, which has `size` bytes.
    ///
    /// # Errors
    /// [`Fault::Bad`] if this is not the beginning of a frame, [`Fault::Short`] if more bytes are
    /// needed.
    pub fn parse(bytes: &[u8], size: u64) -> Result<FrameHead, Fault> {
        let mut lines = Lines::new(bytes, size).up_to(MAX_LINE);
        let (mut n_before, mut units, mut time) = (0, None, None);
        loop {
            let at = lines.at();
            let line = lines.next(TIMESTEP)?.trim_ascii_end();
            match line {
                _ if line == TIMESTEP.as_bytes() => break,
                _ if n_before < 2 && is_before(line) => n_before += 1,
                _ => return Err(Fault::bad(at, TIMESTEP, quoted(line))),
            }
            let at = lines.at();
            let stated = lines.next("a line after this item")?;
            if line == UNITS.as_bytes() {
                units = Units::named(stated.trim_ascii());
            } else {
                let mut rest = stated;
                time = take_real(&mut rest).filter(|time| time.is_finite() && is_blank(rest));
                if time.is_none() {
                    return Err(Fault::bad(at, "a time (a number)", quoted(stated)));
                }
            }
        }
        let at = lines.at();
        let step = integer(&mut lines, "a step (an integer)")?;
        check_time(at, step as f64)?;
        item(&mut lines, N_ATOMS)?;
        let at = lines.at();
        let n_atoms = integer(&mut lines, "a number of atoms")?;
        if !(1..=i64::from(i32::MAX)).contains(&n_atoms) {
            return Err(Fault::bad(at, "at least 1 atom, fewer than 2^31", n_atoms));
        }
        let n_atoms = n_atoms as u64;
        let cell = Bounds::take(&mut lines)?;
        let columns = Columns::parse(item(&mut lines, ATOMS)?);
        Ok(FrameHead {
            units,
            time,
            step,
            n_atoms,
            cell,
            columns,
            len: lines.at(),
        })
    }
}

/// Return true for an item that may precede the step.
fn is_before(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line == UNITS.as_bytes() || line == TIME.as_bytes()
}

/// Return `None` if a line cannot begin a frame, else whether the line is `ITEM: TIMESTEP`.
#[inline]
pub(super) fn begins_frame(line: &[u8]) -> Option<bool> {
    let is_step = line.trim_ascii_end() == TIMESTEP.as_bytes();
    (is_step || is_before(line)).then_some(is_step)
}

/// Read the next line, which must begin with the name of an item; return the rest of the line.
fn item<'a>(lines: &mut Lines<'a>, name: &str) -> Result<&'a [u8], Fault> {
    let at = lines.at();
    let line = lines.next(name)?;
    let rest = line.strip_prefix(name.as_bytes());
    let rest = rest.filter(|rest| rest.first().is_none_or(u8::is_ascii_whitespace));
    rest.ok_or_else(|| Fault::bad(at, name, quoted(line)))
}

fn integer(lines: &mut Lines<'_>, what: &str) -> Result<i64, Fault> {
    let at = lines.at();
    let line = lines.next(what)?;
    let mut rest = line;
    let value = take_integer(&mut rest).filter(|_| is_blank(rest));
    value.ok_or_else(|| Fault::bad(at, what, quoted(line)))
}

impl Bounds {
    fn take(lines: &mut Lines<'_>) -> Result<Option<Bounds>, Fault> {
        let mut kinds: Vec<&[u8]> = words(item(lines, BOUNDS)?).take(7).collect();
        let tilted = kinds.starts_with(&[b"xy", b"xz", b"yz"]);
        if tilted {
            kinds.drain(..3);
        }
        let is_boundary = |kind: &&[u8]| kind.iter().all(|letter| b"pfsm".contains(letter));
        if !matches!(kinds.len(), 0 | 3) || !kinds.iter().all(is_boundary) {
            for _ in 0..3 {
                lines.next("bounds of the cell")?;
            }
            return Ok(None);
        }
        // Without the three words for the boundaries, all axes are periodic, as in LAMMPS.
        let periodic =
            std::array::from_fn(|axis| kinds.get(axis).is_none_or(|&kind| kind == b"pp"));
        let at = lines.at();
        let rows = [
            row(lines, tilted)?,
            row(lines, tilted)?,
            row(lines, tilted)?,
        ];
        let found = match tilted {
            true => triclinic(rows),
            false => orthogonal(rows),
        };
        match found {
            Some(bounds) => Ok(Some(Bounds { periodic, ..bounds })),
            None => Err(Fault::bad(
                at,
                "bounds of a cell, the lower first",
                format!("{rows:?}"),
            )),
        }
    }
}

/// Read the bounds along one axis, and the tilt factor; this is 0 if the cell is not tilted.
fn row(lines: &mut Lines<'_>, tilted: bool) -> Result<[f64; 3], Fault> {
    let what = match tilted {
        true => "two bounds and a tilt",
        false => "two bounds",
    };
    let at = lines.at();
    let line = lines.next(what)?;
    let mut rest = line;
    let mut number = || take_real(&mut rest).filter(|value| value.is_finite());
    let numbers = number().zip(number()).and_then(|(low, high)| {
        let tilt = if tilted { number()? } else { 0.0 };
        Some([low, high, tilt])
    });
    let numbers = numbers.filter(|_| is_blank(rest));
    numbers.ok_or_else(|| Fault::bad(at, what, quoted(line)))
}

fn orthogonal(rows: [[f64; 3]; 3]) -> Option<Bounds> {
    let lengths = rows.map(|[low, high, _]| (high - low) as f32);
    if !lengths
        .iter()
        .all(|&length| length >= 0.0 && length.is_finite())
    {
        return None;
    }
    let [x, y, z] = lengths;
    Some(Bounds {
        origin: rows.map(|[low, ..]| low),
        dimensions: match lengths.contains(&0.0) {
            true => [0.0; 6],
            false => [x, y, z, 90.0, 90.0, 90.0],
        },
        vectors: diagonal(rows.map(|[low, high, _]| high - low)),
        periodic: [true; 3],
    })
}

/// Compute the cell as in the manual of LAMMPS (Howto_triclinic). The bounds are those of the
/// bounding box of the cell.
fn triclinic(rows: [[f64; 3]; 3]) -> Option<Bounds> {
    let [
        [x_low, x_high, xy],
        [y_low, y_high, xz],
        [z_low, z_high, yz],
    ] = rows;
    let least = |values: &[f64]| values.iter().copied().fold(0.0, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let x_low = x_low - least(&[xy, xz, xy + xz]);
    let x_high = x_high - most(&[xy, xz, xy + xz]);
    let (y_low, y_high) = (y_low - least(&[yz]), y_high - most(&[yz]));
    let lengths = [x_high - x_low, y_high - y_low, z_high - z_low];
    let [x, y, z] = lengths;
    lengths.iter().all(|&length| length >= 0.0).then(|| Bounds {
        origin: [x_low, y_low, z_low],
        dimensions: triclinic_box([x, 0.0, 0.0], [xy, y, 0.0], [xz, yz, z]),
        vectors: [[x, 0.0, 0.0], [xy, y, 0.0], [xz, yz, z]],
        periodic: [true; 3],
    })
}

fn diagonal([x, y, z]: [f64; 3]) -> [[f64; 3]; 3] {
    [[x, 0.0, 0.0], [0.0, y, 0.0], [0.0, 0.0, z]]
}

// LAMMPS dumps as a format of the registry. A scan finds their frames.

/// Format of text dumps of LAMMPS.
#[derive(Debug)]
pub struct LammpsDump;

/// Typical length of the line of an atom, bytes, for an estimate of the frame size.
const ATOM: u64 = 40;

impl Format for LammpsDump {
    fn name(&self) -> &'static str {
        "LAMMPSDUMP"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["lammpsdump", "lammpstrj", "dump"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::ALL,
            is_text: true,
            times_are_steps: true,
            has_units: true,
            varying_atoms: true,
            ..Abilities::default()
        }
    }

    /// Recognise a dump. "ITEM: TIME" is also the beginning of "ITEM: TIMESTEP".
    fn probe(&self, head: &[u8]) -> bool {
        head.starts_with(b"ITEM: TIME") || head.starts_with(b"ITEM: UNITS")
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let head = read_head(source, size, parse_first)?;
        let Some(layout) = Layout::of(&head) else {
            let expected = match head.cell {
                None => known_cells(),
                Some(_) => names_of_positions(),
            };
            let what = format!("the first frame has no {expected}");
            return Err(unsupported(source.path(), what));
        };
        let layout = read_head(source, size, |bytes, size| layout.with_ids(bytes, size))?;
        let (units, note) = units_of(&layout, source, options)?;
        let scanner = LineScanner::<FrameLines> {
            source,
            layout: &layout,
            start: 0,
            size,
            frame_size: ATOM.saturating_mul(head.n_atoms),
            watch: ScanProgress::new(options.progress, size),
        };
        let saved = format_interface::Layout::new(layout);
        let mut opened = load_or_scan(source, saved, size, options, &scanner)?;
        if !opened.frames.is_empty() && lacks_line_feed(source, size, &opened)? {
            let note = "the last line has no line feed: its last number may be cut";
            opened.notes.push(note.into());
        }
        opened.notes.extend(note);
        let ids = match (&opened.atom_counts, layout.ids) {
            (None, ids) | (_, ids @ Ids::None) => ids,
            _ => Ids::Varying,
        };
        opened.layout = format_interface::Layout::new(Layout {
            ids,
            units,
            ..layout
        });
        if layout.ids == Ids::None {
            let note = "atoms have no ids: they are taken in the order of their lines, which LAMMPS \
                        may change from frame to frame";
            opened.notes.insert(0, note.into());
        }
        Ok(opened)
    }

    fn code(&self) -> u8 {
        6
    }

    fn layout(&self, bytes: &[u8]) -> Option<format_interface::Layout> {
        Layout::from_bytes(bytes).map(format_interface::Layout::new)
    }
}

/// Determine the unit style of a file, and a warning if it is uncertain.
///
/// # Errors
/// [`Error::Unsupported`](crate::error::Error::Unsupported) if the options contain an unknown name.
fn units_of(
    layout: &Layout,
    source: &dyn Source,
    options: &OpenOptions<'_>,
) -> Result<(Option<Units>, Option<String>)> {
    let given = match options.units {
        None => None,
        Some(name) => Some(
            Units::named(name.as_bytes())
                .ok_or_else(|| unsupported(source.path(), Units::unknown(name)))?,
        ),
    };
    let units = given.or(layout.units);
    let note = match (units, given.and(layout.units)) {
        (None, _) => unknown_units(layout.fields),
        (Some(units), Some(stated)) if stated != units => Some(format!(
            "numbers are in units {}, as units= (--units) says, and not in {}",
            units.name(),
            stated.name()
        )),
        (Some(units), _) if units.is_reduced() => Some(Units::REDUCED.into()),
        _ => None,
    };
    Ok((units, note))
}

/// Return the warning that the units of velocities or forces are unknown. Lengths need no warning:
/// they are in Å in most unit styles.
fn unknown_units(fields: Fields) -> Option<String> {
    let (what, unit) = match (fields.velocities, fields.forces) {
        (false, false) => return None,
        (true, false) => ("velocities", "Å/ps"),
        (false, true) => ("forces", "kJ/(mol·Å)"),
        (true, true) => ("velocities and forces", "Å/ps and kJ/(mol·Å)"),
    };
    Some(format!(
        "the unit of {what} is not stated: they are taken to be in {unit}, as MDAnalysis does; say \
         what LAMMPS ran with, for instance units=\"real\" (--units real)"
    ))
}

/// Return true if the last line of the last frame may be incomplete, because the file ends there
/// without a line feed.
fn lacks_line_feed(source: &dyn Source, size: u64, opened: &Opened) -> Result<bool> {
    let (start, len) = opened.frames.extent(opened.frames.len() - 1);
    let mut end = [0];
    source.read_at(size - 1, &mut end)?;
    Ok(start + len == size && !end[0].is_ascii_whitespace())
}

/// Parse the header of the first frame. Refuse it if a file of `size` bytes cannot contain its
/// atoms.
fn parse_first(bytes: &[u8], size: u64) -> Result<FrameHead, Fault> {
    let head = FrameHead::parse(bytes, size)?;
    let room = size / ATOM_MIN;
    if head.n_atoms > room {
        let expected = format!("from 1 to {room} atoms, which {size} bytes can hold");
        return Err(Fault::bad(head.len, expected, head.n_atoms));
    }
    Ok(head)
}

/// Return a description of the supported cells.
pub(super) fn known_cells() -> String {
    "orthogonal cell (BOX BOUNDS pp pp pp) or restricted triclinic one (BOX BOUNDS xy xz yz pp pp \
     pp); general triclinic ones (abc origin) are not supported"
        .into()
}

impl FileLayout for Layout {
    fn format(&self) -> &'static dyn Format {
        &LammpsDump
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms()
    }

    fn of_frame(&self, n_atoms: usize, size: u64) -> Option<format_interface::Layout> {
        let is_there = matches!(self.ids, Ids::None | Ids::Varying)
            && (1..=size / ATOM_MIN).contains(&(n_atoms as u64));
        let n_atoms = u32::try_from(n_atoms).ok().filter(|_| is_there)?;
        Some(format_interface::Layout::new(Layout { n_atoms, ..*self }))
    }

    fn fields(&self) -> Fields {
        self.fields
    }

    fn traits(&self, _source: &dyn Source) -> Result<Traits> {
        let ids = match self.ids {
            Ids::None => "none".into(),
            Ids::Dense => format!("1 to {}", self.n_atoms),
            Ids::Others(digest) => format!("with gaps ({digest:016x})"),
            Ids::Varying => "different in each frame".into(),
        };
        let units = self.units.map_or("none", Units::name);
        Ok(vec![
            ("positions".into(), convention_name(self.convention)),
            ("ids".into(), ids),
            ("units".into(), units.into()),
        ])
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(LammpsDecoder::new(*self, &atoms, wanted)))
    }

    fn times(&self, source: &dyn Source, size: u64, frames: &Frames) -> Result<Times> {
        let watch = ScanProgress::new(&|_, _| ControlFlow::Continue(()), size);
        let found = scan_lines::<FrameLines>(source, self, 0, size, &watch)?;
        let mut found = times_of(source, found, frames)?;
        found
            .times
            .iter_mut()
            .for_each(|time| *time = self.time(*time));
        Ok(found)
    }

    fn clock(&self) -> Clock {
        self.clock()
    }

    fn length_doubt(&self) -> Option<&'static str> {
        self.units.is_none().then_some(Units::UNKNOWN)
    }

    fn time_of(&self, found: f64) -> f64 {
        self.time(found)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
