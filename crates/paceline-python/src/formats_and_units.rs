//! Formats of trajectories in the core, and their abilities; headers of DL_POLY files, and units of
//! Amber and LAMMPS.

use pyo3::prelude::*;

use super::errors::{Failure, Result};
use paceline_formats::dlpoly::encode::{self, Cell, Moment};
use paceline_formats::format_interface::Abilities;
use paceline_formats::format_list::STANDARD;
use paceline_formats::lammps::Units;
use paceline_formats::netcdf3::units;
use paceline_formats::{Fields, Format};

/// Format of trajectories: its names, its file names, and its abilities.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct FileFormat {
    format: &'static dyn Format,
    abilities: Abilities,
}

#[pymethods]
impl FileFormat {
    #[getter]
    fn name(&self) -> &'static str {
        self.format.name()
    }

    /// Name of the format in MDAnalysis.
    #[getter]
    fn mdanalysis_name(&self) -> &'static str {
        self.format.mdanalysis_name()
    }

    /// Other names of the format in MDAnalysis, and names of its variants.
    #[getter]
    fn aliases(&self) -> Vec<&'static str> {
        self.format.aliases().to_vec()
    }

    /// Extensions of its file names, in lower case, without the dot.
    #[getter]
    fn extensions(&self) -> Vec<&'static str> {
        self.format.extensions().to_vec()
    }

    /// Usual names of files of this format that have no extension, such as HISTORY.
    #[getter]
    fn file_names(&self) -> Vec<&'static str> {
        self.format.file_names().to_vec()
    }

    /// Fields that frames may contain, as bits.
    #[getter]
    fn reads(&self) -> u8 {
        self.abilities.reads.bits()
    }

    /// Fields that `Encoder` can write, as bits; 0 if it cannot write the format.
    #[getter]
    fn writes(&self) -> u8 {
        self.abilities.writes.bits()
    }

    /// True if the fields may differ from frame to frame.
    #[getter]
    fn mixed_fields(&self) -> bool {
        self.abilities.mixed_fields
    }

    /// True if all frames have the same size, so that the offset of a frame is known before
    /// encoding.
    #[getter]
    fn equal_frames(&self) -> bool {
        self.abilities.equal_frames
    }

    /// True if the header contains a single time step for all frames.
    #[getter]
    fn one_time_step(&self) -> bool {
        self.abilities.one_time_step
    }

    /// True if each frame contains λ of a free-energy calculation.
    #[getter]
    fn holds_lambda(&self) -> bool {
        self.abilities.lambda
    }

    /// True if frames contain cell vectors, so that cells may have any orientation.
    #[getter]
    fn stores_cell_vectors(&self) -> bool {
        self.abilities.stores_cell_vectors
    }

    /// True if the precision of positions can be chosen.
    #[getter]
    fn precision(&self) -> bool {
        self.abilities.precision
    }

    /// True if the bytes of frames can be copied into another file, or appended to a file.
    #[getter]
    fn appends(&self) -> bool {
        self.abilities.appends
    }

    /// True if files are text.
    #[getter]
    fn is_text(&self) -> bool {
        self.abilities.is_text
    }

    /// True if times are step numbers, so that the user must supply the time step.
    #[getter]
    fn times_are_steps(&self) -> bool {
        self.abilities.times_are_steps
    }
}

/// Return the formats of the core, in the order in which messages list them.
#[pyfunction]
pub(super) fn formats() -> Vec<FileFormat> {
    STANDARD
        .formats()
        .map(|format| FileFormat {
            format,
            abilities: format.abilities(),
        })
        .collect()
}

/// Return the factor that converts a unit to paceline's unit of the same quantity. `like` is a unit
/// of this quantity. Return None if the unit is invalid, or is one of another quantity.
#[pyfunction]
pub(super) fn amber_factor(unit: &str, like: &str) -> Option<f64> {
    units::factor(unit, like)
}

/// Return the factors that convert lengths, velocities, forces and times of a unit style of LAMMPS
/// to Å, Å/ps, kJ/(mol·Å) and ps. Raise `UnsupportedError` if the style is unknown.
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

/// Return the bytes of a CONFIG file before the first atom.
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

/// Return the bytes of a HISTORY file before the first frame.
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

/// Return the bytes of a frame in a HISTORY file before the first atom.
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
