//! What stands before the atoms, of a file and of a frame.

use super::{Cell, LINE, RECORD, imcon};
use crate::fortran::{e16_7, f, i};

/// When a frame was, and what all of its atoms have in common.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    pub step: i64,
    /// Time between steps, ps.
    pub dt: f64,
    /// ps.
    pub time: f64,
    /// None where the system is not periodic.
    pub cell: Option<&'a Cell>,
}

/// What stands in a CONFIG before the first atom.
///
/// # Errors
/// What does not fit in its columns, in a sentence; so for all below.
pub fn config_head(
    title: &str,
    level: usize,
    n_atoms: u64,
    moment: &Moment<'_>,
) -> Result<Vec<u8>, String> {
    let mut bytes = title_record(title)?;
    let mut line = Line::default();
    line.integer::<10>("level", level as u64)?;
    line.integer::<10>("imcon", imcon(moment.cell)?)?;
    line.integer::<10>("number of atoms", n_atoms)?;
    line.integer::<10>("step", moment.step)?;
    for (what, value) in [("time step", moment.dt), ("time", moment.time)] {
        if !value.is_finite() {
            return Err(format!("expected a finite {what}, found {value}"));
        }
        line.text(&e16_7(value));
    }
    bytes.extend(line.record());
    if let Some(cell) = moment.cell {
        bytes.extend(cell_records(cell)?);
    }
    Ok(bytes)
}

/// What stands in a HISTORY before the first frame; `imcon` is that of the first frame.
pub fn history_head(
    title: &str,
    level: usize,
    imcon: i64,
    n_atoms: u64,
    n_frames: u64,
) -> Result<Vec<u8>, String> {
    let mut bytes = title_record(title)?;
    let n_records = n_records(level, n_atoms, n_frames)
        .ok_or_else(|| format!("a HISTORY holds no {n_frames} frames of {n_atoms} atoms"))?;
    let mut line = Line::default();
    line.integer::<10>("level", level as u64)?;
    line.integer::<10>("imcon", imcon)?;
    line.integer::<10>("number of atoms", n_atoms)?;
    line.integer::<21>("number of frames", n_frames)?;
    line.integer::<21>("number of records", n_records)?;
    bytes.extend(line.record());
    Ok(bytes)
}

/// Of a HISTORY, its head included.
fn n_records(level: usize, n_atoms: u64, n_frames: u64) -> Option<u64> {
    let atoms = n_atoms.checked_mul(2 + level as u64)?;
    atoms.checked_add(4)?.checked_mul(n_frames)?.checked_add(2)
}

/// What stands in a frame of a HISTORY before the first atom.
pub fn frame_head(level: usize, n_atoms: u64, moment: &Moment<'_>) -> Result<Vec<u8>, String> {
    let mut line = Line::default();
    line.text(b"timestep");
    line.integer::<10>("step", moment.step)?;
    line.integer::<10>("number of atoms", n_atoms)?;
    line.integer::<2>("level", level as u64)?;
    line.integer::<2>("imcon", imcon(moment.cell)?)?;
    line.real::<20, 6>("time step", moment.dt)?;
    line.real::<20, 6>("time", moment.time)?;
    let mut bytes = line.record();
    bytes.extend(cell_records(moment.cell.unwrap_or(&[[0.0; 3]; 3]))?);
    Ok(bytes)
}

fn title_record(title: &str) -> Result<Vec<u8>, String> {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if title.len() > LINE || !title.bytes().all(printable) {
        return Err(format!(
            "expected a title of up to {LINE} printable ASCII characters, found {title:?}"
        ));
    }
    let mut line = Line::default();
    line.text(title.as_bytes());
    Ok(line.record())
}

fn cell_records(cell: &Cell) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(3 * RECORD);
    for vector in cell {
        let mut line = Line::default();
        for &value in vector {
            line.real::<20, 10>("cell vector", value)?;
        }
        bytes.extend(line.record());
    }
    Ok(bytes)
}

/// A record from its front.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    fn text(&mut self, text: &[u8]) {
        self.0.extend(text);
    }

    fn integer<const WIDTH: usize>(
        &mut self,
        what: &str,
        value: impl TryInto<i64> + ToString + Copy,
    ) -> Result<(), String> {
        let text = value.try_into().ok().and_then(i::<WIDTH>).ok_or_else(|| {
            let found = value.to_string();
            format!("the {what}, {found}, does not fit in {WIDTH} columns")
        })?;
        self.text(&text);
        Ok(())
    }

    fn real<const WIDTH: usize, const DECIMALS: usize>(
        &mut self,
        what: &str,
        value: f64,
    ) -> Result<(), String> {
        let text = f::<WIDTH, DECIMALS>(value).ok_or_else(|| {
            format!(
                "the {what}, {value:?}, does not fit in {WIDTH} columns with {DECIMALS} decimals"
            )
        })?;
        self.text(&text);
        Ok(())
    }

    /// Filled up with blanks.
    fn record(mut self) -> Vec<u8> {
        self.0.resize(LINE, b' ');
        self.0.push(b'\n');
        self.0
    }
}
