//! Implementation of the format interface for LAMMPS dumps. A scan finds their frames.

use std::any::Any;
use std::ops::ControlFlow;

use super::Units;
use super::layout_and_columns::{FrameLines, convention_name, names_of_positions};
use super::{ATOM_MIN, FrameHead, Ids, LammpsDecoder, Layout};
use crate::atom_set::Atoms;
use crate::error::{Fault, Result};
use crate::format_interface::{
    Abilities, Clock, FileLayout, Format, Frames, OpenOptions, Opened, Times, Traits, unsupported,
};
use crate::index::fixed_size::read_head;
use crate::index::header_scan::ScanProgress;
use crate::index::scanned::{load_or_scan, times_of};
use crate::source::Source;
use crate::text_lines::{LineScanner, scan_lines};
use crate::{Decoder, Fields, format_interface};

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

/// Determine the unit style of a file: that of the options, or else that of the file. Also return a
/// warning if the style is unknown or reduced, or if the options contradict the file.
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
