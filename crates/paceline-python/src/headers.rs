//! Headers of DL_POLY files, and units of Amber and LAMMPS.

use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::{self, Cell, Moment};
use paceline_formats::lammps::Units;
use paceline_formats::netcdf3::units;
use pyo3::prelude::*;

use super::errors::{Failure, Result};

/// Return the factor that converts a unit to paceline's unit of the same quantity. `like` is a unit
/// of this quantity.
#[pyfunction]
pub(super) fn amber_factor(unit: &str, like: &str) -> Option<f64> {
    units::factor(unit, like)
}

/// Return the factors that convert lengths, velocities, forces and times of a unit style of LAMMPS to
/// Å, Å/ps, kJ/(mol·Å) and ps. Raises `UnsupportedError` for an unknown style.
#[pyfunction]
pub(super) fn lammps_factors(style: &str) -> Result<(f64, f64, f64, f64)> {
    let units = Units::named(style.as_bytes())
        .ok_or_else(|| Failure::Unsupported(Units::unknown(style)))?;
    let [length, velocity, force] = units.factors();
    Ok((length, velocity, force, units.time()))
}

/// Return DL_POLY's number (imcon) for the periodic boundary of a cell (Å).
#[pyfunction]
#[pyo3(signature = (cell))]
pub(super) fn dlpoly_imcon(cell: Option<Cell>) -> Result<i64> {
    encode::imcon(cell.as_ref()).map_err(Failure::unwritable)
}

/// Return the bytes of a CONFIG before the first atom.
#[pyfunction]
#[pyo3(signature = (title, n_atoms, fields, *, step, dt, time, cell))]
pub(super) fn dlpoly_config_head(
    title: &str,
    n_atoms: u64,
    fields: u8,
    step: i64,
    dt: f64,
    time: f64,
    cell: Option<Cell>,
) -> Result<Vec<u8>> {
    let moment = moment(step, dt, time, cell.as_ref());
    let head = level(fields).and_then(|level| encode::config_head(title, level, n_atoms, &moment));
    head.map_err(Failure::unwritable)
}

/// Return the bytes of a HISTORY before the first frame.
#[pyfunction]
#[pyo3(signature = (title, n_atoms, fields, *, imcon, n_frames))]
pub(super) fn dlpoly_history_head(
    title: &str,
    n_atoms: u64,
    fields: u8,
    imcon: i64,
    n_frames: u64,
) -> Result<Vec<u8>> {
    let head = level(fields)
        .and_then(|level| encode::history_head(title, level, imcon, n_atoms, n_frames));
    head.map_err(Failure::unwritable)
}

/// Return the bytes of a frame of a HISTORY before the first atom.
#[pyfunction]
#[pyo3(signature = (n_atoms, fields, *, step, dt, time, cell))]
pub(super) fn dlpoly_frame_head(
    n_atoms: u64,
    fields: u8,
    step: i64,
    dt: f64,
    time: f64,
    cell: Option<Cell>,
) -> Result<Vec<u8>> {
    let moment = moment(step, dt, time, cell.as_ref());
    let head = level(fields).and_then(|level| encode::frame_head(level, n_atoms, &moment));
    head.map_err(Failure::unwritable)
}

fn level(fields: u8) -> std::result::Result<usize, String> {
    encode::level(Fields::from_bits(fields))
}

fn moment(step: i64, dt: f64, time: f64, cell: Option<&Cell>) -> Moment<'_> {
    Moment {
        step,
        dt,
        time,
        cell,
    }
}
