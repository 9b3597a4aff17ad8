//! Header of a frame: step, cell and columns of the atoms.
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

use super::MAX_LINE;
use super::Units;
use super::layout_and_columns::Columns;
use crate::error::{Fault, Result};
use crate::fortran_numbers::{take_integer, take_real};
use crate::frame_codec::check_time;
use crate::text_lines::{Lines, is_blank, quoted, words};
use crate::triclinic_box;

const UNITS: &str = "ITEM: UNITS";
const TIME: &str = "ITEM: TIME";
const TIMESTEP: &str = "ITEM: TIMESTEP";
const N_ATOMS: &str = "ITEM: NUMBER OF ATOMS";
const BOUNDS: &str = "ITEM: BOX BOUNDS";
pub(super) const ATOMS: &str = "ITEM: ATOMS";

/// Content of the header of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameHead {
    /// Unit style stated before the first frame, if any.
    pub units: Option<Units>,
    /// Time in LAMMPS's unit of time, if stated.
    pub time: Option<f64>,
    /// Step number of the simulation.
    pub step: i64,
    /// Number of atoms.
    pub n_atoms: u64,
    /// Cell; `None` if it is stated in an unsupported form.
    pub cell: Option<Bounds>,
    /// Columns; `None` if atoms have no positions.
    pub columns: Option<Columns>,
    /// Number of bytes of the frame before its first atom.
    pub len: usize,
}

/// Cell, the position of its corner, and its periodic axes. Lengths are in LAMMPS's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub origin: [f64; 3],
    /// Lengths and angles as in MDAnalysis; all are zero if the cell has no volume.
    pub dimensions: [f32; 6],
    pub vectors: [[f64; 3]; 3],
    pub periodic: [bool; 3],
}

impl FrameHead {
    /// Parse the header of a frame of `size` bytes, of which `bytes` contains at least the
    /// beginning.
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
