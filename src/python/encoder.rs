//! Encodes blocks of frames for a file that Python writes.

use std::sync::{Mutex, MutexGuard};

use numpy::{
    PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::formats::dcd::DcdEncoder;
use crate::formats::netcdf3::NetcdfEncoder;
use crate::formats::trr::TrrEncoder;
use crate::formats::xtc::{self, XtcEncoder};
use crate::formats::{self, Fields, FrameIn, Series};

/// Encodes the frames of one file; belongs to one worker.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Encoder {
    n_atoms: usize,
    fields: Fields,
    /// Whether a block may lack some of the fields.
    mixed: bool,
    state: Mutex<State>,
}

struct State {
    encoder: Box<dyn formats::Encoder>,
    /// Room for a block, kept for the next one.
    bytes: Vec<u8>,
}

/// The bytes of a block's frames, and how many of them each frame has.
type EncodedBlock<'py> = (Bound<'py, PyBytes>, Bound<'py, PyArray1<u64>>);

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (format, n_atoms, *, precision, has_cell, fields))]
    fn new(
        py: Python<'_>,
        format: &str,
        n_atoms: usize,
        precision: Option<f32>,
        has_cell: bool,
        fields: u8,
    ) -> PyResult<Self> {
        let fields = Fields::from_bits(fields);
        let encoder = make(format, n_atoms, precision, has_cell, fields)
            .map_err(|reason| unwritable(py, None, &reason))?;
        Ok(Encoder {
            n_atoms,
            fields,
            mixed: format == "TRR",
            state: Mutex::new(State {
                encoder,
                bytes: Vec::new(),
            }),
        })
    }

    /// What stands before the first frame.
    fn head<'py>(
        &self,
        py: Python<'py>,
        n_frames: u64,
        time: f64,
        dt: f64,
        step: i64,
        steps: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let series = Series {
            n_frames,
            time,
            dt,
            step,
            steps,
        };
        Ok(PyBytes::new(py, &self.lock()?.encoder.head(&series)))
    }

    /// Encode all frames of a block.
    #[allow(clippy::too_many_arguments)]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        positions: Option<PyReadonlyArray3<'_, f32>>,
        velocities: Option<PyReadonlyArray3<'_, f32>>,
        forces: Option<PyReadonlyArray3<'_, f32>>,
        dimensions: PyReadonlyArray2<'_, f32>,
        times: PyReadonlyArray1<'_, f64>,
        steps: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<EncodedBlock<'py>> {
        let (times, steps) = (times.as_slice()?, steps.as_slice()?);
        let n_frames = times.len();
        let (dimensions, rest) = dimensions.as_slice()?.as_chunks();
        if dimensions.len() != n_frames || !rest.is_empty() || steps.len() != n_frames {
            return Err(PyValueError::new_err(format!(
                "dimensions (n, 6), times (n,) and steps (n,) must have the same n: {n_frames}"
            )));
        }
        let wanted = self.fields;
        let block = Block {
            positions: self.numbers("positions", wanted.positions, &positions, n_frames)?,
            velocities: self.numbers("velocities", wanted.velocities, &velocities, n_frames)?,
            forces: self.numbers("forces", wanted.forces, &forces, n_frames)?,
            dimensions,
            times,
            steps,
        };
        let state = &mut *self.lock()?;
        let sizes = py
            .detach(|| state.encode(&block))
            .map_err(|(row, reason)| unwritable(py, Some(row), &reason))?;
        Ok((
            PyBytes::new(py, &state.bytes),
            PyArray1::from_vec(py, sizes),
        ))
    }
}

/// An encoder for a format by the name that [`formats::Format::name`] gives it.
fn make(
    format: &str,
    n_atoms: usize,
    precision: Option<f32>,
    has_cell: bool,
    fields: Fields,
) -> Result<Box<dyn formats::Encoder>, String> {
    let only = |held: Fields| match fields.beyond(held) {
        Some(field) => Err(format!("{format} holds no {field}")),
        None if fields == Fields::default() => {
            Err(format!("there is nothing to write to {format}"))
        }
        None => Ok(()),
    };
    if precision.is_some() && format != "XTC" {
        return Err(format!("{format} has no precision to choose"));
    }
    match format {
        "XTC" => {
            only(Fields::POSITIONS)?;
            let precision = precision.unwrap_or(xtc::PRECISION);
            Ok(Box::new(XtcEncoder::new(n_atoms, precision)?))
        }
        "TRR" => Ok(Box::new(TrrEncoder::new(n_atoms)?)),
        "DCD" => {
            only(Fields::POSITIONS)?;
            Ok(Box::new(DcdEncoder::new(n_atoms, has_cell)?))
        }
        "NetCDF" => {
            only(Fields::ALL)?;
            Ok(Box::new(NetcdfEncoder::new(n_atoms, has_cell, fields)?))
        }
        _ => Err(format!("paceline does not write {format}")),
    }
}

/// The arrays of a block; empty for a field that is not written.
struct Block<'a> {
    positions: &'a [f32],
    velocities: &'a [f32],
    forces: &'a [f32],
    dimensions: &'a [[f32; 6]],
    times: &'a [f64],
    steps: &'a [i64],
}

impl Block<'_> {
    fn frame(&self, row: usize) -> FrameIn<'_> {
        let n_frames = self.times.len();
        let of_row = |numbers: &'_ [f32]| {
            let n = numbers.len() / n_frames;
            row * n..(row + 1) * n
        };
        FrameIn {
            positions: &self.positions[of_row(self.positions)],
            velocities: &self.velocities[of_row(self.velocities)],
            forces: &self.forces[of_row(self.forces)],
            dimensions: &self.dimensions[row],
            time: self.times[row],
            step: self.steps[row],
        }
    }
}

impl State {
    /// Sizes of the encoded frames.
    ///
    /// # Errors
    /// The row that cannot be encoded, and why.
    fn encode(&mut self, block: &Block<'_>) -> Result<Vec<u64>, (usize, String)> {
        self.bytes.clear();
        let encode_row = |row| {
            let start = self.bytes.len();
            let encoded = self.encoder.encode(&block.frame(row), &mut self.bytes);
            encoded.map_err(|reason| (row, reason))?;
            Ok((self.bytes.len() - start) as u64)
        };
        (0..block.times.len()).map(encode_row).collect()
    }
}

impl Encoder {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        self.state
            .try_lock()
            .map_err(|_| PyValueError::new_err("an encoder belongs to one worker at a time"))
    }

    /// The numbers of a field, which must be there if it is written and only then; blocks for a
    /// format whose frames may differ in what they hold may lack it.
    fn numbers<'a>(
        &self,
        name: &str,
        written: bool,
        array: &'a Option<PyReadonlyArray3<'_, f32>>,
        n_frames: usize,
    ) -> PyResult<&'a [f32]> {
        match array {
            Some(array) if written && array.shape() == [n_frames, self.n_atoms, 3] => {
                Ok(array.as_slice()?)
            }
            None if !written || self.mixed => Ok(&[]),
            _ => {
                let expected = match written {
                    true => format!("an array of shape ({n_frames}, {}, 3)", self.n_atoms),
                    false => "None: this encoder does not write them".into(),
                };
                Err(PyValueError::new_err(format!("{name} must be {expected}")))
            }
        }
    }
}

/// Raise `paceline.errors.UnwritableError`.
fn unwritable(py: Python<'_>, row: Option<usize>, reason: &str) -> PyErr {
    let text = match row {
        Some(row) => format!("row {row}: {reason}"),
        None => reason.to_owned(),
    };
    let made = || -> PyResult<Bound<'_, PyAny>> {
        let errors = py.import("paceline.errors")?;
        let error = errors.getattr("UnwritableError")?.call1((text,))?;
        error.setattr("row", row)?;
        error.setattr("reason", reason)?;
        Ok(error)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}
