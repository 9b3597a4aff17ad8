//! Heads of DL_POLY's files, for Python to write.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::encoder::unwritable;
use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::{self, Cell, Moment};

/// DL_POLY's periodic boundary of a cell (Å).
#[pyfunction]
#[pyo3(signature = (cell))]
pub(super) fn dlpoly_imcon(py: Python<'_>, cell: Option<Cell>) -> PyResult<i64> {
    encode::imcon(cell.as_ref()).map_err(|reason| unwritable(py, None, &reason))
}

/// What stands in a CONFIG before the first atom.
#[pyfunction]
#[pyo3(signature = (title, n_atoms, fields, *, step, dt, time, cell))]
#[expect(clippy::too_many_arguments, reason = "named in Python")]
pub(super) fn dlpoly_config_head<'py>(
    py: Python<'py>,
    title: &str,
    n_atoms: u64,
    fields: u8,
    step: i64,
    dt: f64,
    time: f64,
    cell: Option<Cell>,
) -> PyResult<Bound<'py, PyBytes>> {
    let moment = moment(step, dt, time, cell.as_ref());
    let head = level(fields).and_then(|level| encode::config_head(title, level, n_atoms, &moment));
    bytes(py, head)
}

/// What stands in a HISTORY before the first frame.
#[pyfunction]
#[pyo3(signature = (title, n_atoms, fields, *, imcon, n_frames))]
pub(super) fn dlpoly_history_head<'py>(
    py: Python<'py>,
    title: &str,
    n_atoms: u64,
    fields: u8,
    imcon: i64,
    n_frames: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let head = level(fields)
        .and_then(|level| encode::history_head(title, level, imcon, n_atoms, n_frames));
    bytes(py, head)
}

/// What stands in a frame of a HISTORY before the first atom.
#[pyfunction]
#[pyo3(signature = (n_atoms, fields, *, step, dt, time, cell))]
pub(super) fn dlpoly_frame_head<'py>(
    py: Python<'py>,
    n_atoms: u64,
    fields: u8,
    step: i64,
    dt: f64,
    time: f64,
    cell: Option<Cell>,
) -> PyResult<Bound<'py, PyBytes>> {
    let moment = moment(step, dt, time, cell.as_ref());
    let head = level(fields).and_then(|level| encode::frame_head(level, n_atoms, &moment));
    bytes(py, head)
}

fn level(fields: u8) -> Result<usize, String> {
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

fn bytes(py: Python<'_>, head: Result<Vec<u8>, String>) -> PyResult<Bound<'_, PyBytes>> {
    match head {
        Ok(head) => Ok(PyBytes::new(py, &head)),
        Err(reason) => Err(unwritable(py, None, &reason)),
    }
}
