//! Encodes blocks of frames, for Python to write or into a file.

use std::path::PathBuf;

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::raise;
use paceline_formats::error::Error;
use paceline_formats::format::EncoderSettings;
use paceline_formats::registry::STANDARD;
use paceline_formats::writer::{Block, Failure};
use paceline_formats::{Fields, Series};

/// Encodes the frames of one file: what an encoder is made of. Each block has one of its own,
/// which takes 0 to 4 % more time than one kept for all blocks of a thread.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Encoder {
    format: String,
    n_atoms: usize,
    precision: Option<f32>,
    has_cell: bool,
    fields: Fields,
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (format, n_atoms, precision, has_cell, fields))]
    fn new(
        py: Python<'_>,
        format: String,
        n_atoms: usize,
        precision: Option<f32>,
        has_cell: bool,
        fields: u8,
    ) -> PyResult<Self> {
        let encoder = Encoder {
            format,
            n_atoms,
            precision,
            has_cell,
            fields: Fields::from_bits(fields),
        };
        encoder
            .make()
            .map_err(|reason| unwritable(py, None, &reason))?;
        Ok(encoder)
    }

    /// Return the arguments that `new` was given, for pickle.
    fn __getnewargs__(&self) -> (&str, usize, Option<f32>, bool, u8) {
        (
            &self.format,
            self.n_atoms,
            self.precision,
            self.has_cell,
            self.fields.bits(),
        )
    }

    /// Name of the format.
    #[getter]
    fn format(&self) -> &str {
        &self.format
    }

    /// Return the bytes before the first frame.
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
        let encoder = self.encoder().map_err(|why| failed(py, why))?;
        Ok(PyBytes::new(py, &encoder.head(&series)))
    }

    /// The bytes of all frames of a block.
    fn encode<'py>(&self, py: Python<'py>, block: Arrays<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let block = self.block(&block)?;
        let encoded = py.detach(|| block.encode(&mut *self.encoder()?));
        Ok(PyBytes::new(py, &encoded.map_err(|why| failed(py, why))?))
    }

    /// Write all frames of a block into a file that exists, as its frames from `first` on.
    fn write(&self, py: Python<'_>, path: PathBuf, first: u64, block: Arrays<'_>) -> PyResult<()> {
        let block = self.block(&block)?;
        py.detach(|| block.write(&mut *self.encoder()?, &path, first))
            .map_err(|why| failed(py, why))
    }
}

/// Positions, velocities, forces, cells, times, steps and λ of a block.
#[derive(FromPyObject)]
struct Arrays<'py>(
    Option<PyReadonlyArray3<'py, f32>>,
    Option<PyReadonlyArray3<'py, f32>>,
    Option<PyReadonlyArray3<'py, f32>>,
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray1<'py, f64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, f32>,
);

impl Encoder {
    fn encoder(&self) -> Result<Box<dyn paceline_formats::Encoder>, Failure> {
        self.make()
            .map_err(|reason| Failure::Error(Error::Argument(reason)))
    }

    /// The arrays of a block, of the shapes that the encoder expects.
    fn block<'a>(&self, arrays: &'a Arrays<'_>) -> PyResult<Block<'a>> {
        let Arrays(positions, velocities, forces, cells, times, steps, lambdas) = arrays;
        let (times, steps, lambdas) = (times.as_slice()?, steps.as_slice()?, lambdas.as_slice()?);
        let n_frames = times.len();
        let (cells, rest) = cells.as_slice()?.as_chunks();
        let same = [cells.len(), steps.len(), lambdas.len()] == [n_frames; 3];
        if !same || !rest.is_empty() {
            return Err(PyValueError::new_err(format!(
                "cells (n, 19), times (n,), steps (n,) and lambdas (n,) must have the same n: \
                 {n_frames}"
            )));
        }
        let wanted = self.fields;
        Ok(Block {
            positions: self.numbers("positions", wanted.positions, positions, n_frames)?,
            velocities: self.numbers("velocities", wanted.velocities, velocities, n_frames)?,
            forces: self.numbers("forces", wanted.forces, forces, n_frames)?,
            cells,
            times,
            steps,
            lambdas,
        })
    }

    /// An encoder for the format by the name that [`Format::name`](paceline_formats::Format::name) gives it.
    ///
    /// # Errors
    /// A sentence on what cannot be written.
    fn make(&self) -> Result<Box<dyn paceline_formats::Encoder>, String> {
        STANDARD.encoder(&EncoderSettings {
            name: &self.format,
            n_atoms: self.n_atoms,
            precision: self.precision,
            has_cell: self.has_cell,
            fields: self.fields,
        })
    }

    /// True if a block may lack some of the fields.
    fn mixed(&self) -> bool {
        let format = STANDARD.named(&self.format);
        format.is_some_and(|format| format.abilities().mixed_fields)
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
            None if !written || self.mixed() => Ok(&[]),
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

pub(super) fn failed(py: Python<'_>, why: Failure) -> PyErr {
    match why {
        Failure::Frame(row, reason) => unwritable(py, Some(row), &reason),
        Failure::Error(error) => raise(py, error),
    }
}

/// Raise `paceline.errors.UnwritableError`.
pub(super) fn unwritable(py: Python<'_>, row: Option<usize>, reason: &str) -> PyErr {
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
