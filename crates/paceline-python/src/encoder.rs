//! Encoding of blocks of frames, as bytes for Python or directly into a file.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::arrays::{Array1, Array2, Array3};
use super::errors::{Failure, Result};
use super::stub_types::{alias, narrowed};

use paceline_formats::error::Error;
use paceline_formats::format::EncoderSettings;
use paceline_formats::registry::STANDARD;
use paceline_formats::writer::{self, Block};
use paceline_formats::{Fields, Series};

/// Encodes the frames of one file.
#[pyclass(frozen, module = "paceline._core")]
// Each block creates an encoder from these fields. This takes 0 to 4 % more time than one encoder
// per thread.
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
    fn new(
        format: String,
        n_atoms: usize,
        precision: Option<f32>,
        has_cell: bool,
        fields: u8,
    ) -> Result<Self> {
        let encoder = Encoder {
            format,
            n_atoms,
            precision,
            has_cell,
            fields: Fields::from_bits(fields),
        };
        encoder.make().map_err(Failure::unwritable)?;
        Ok(encoder)
    }

    /// Return the arguments of `new`, for pickle.
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
    fn head(&self, n_frames: u64, time: f64, dt: f64, step: i64, steps: i64) -> Result<Vec<u8>> {
        let series = Series {
            n_frames,
            time,
            dt,
            step,
            steps,
        };
        Ok(self.encoder()?.head(&series))
    }

    /// Encode all frames of a block.
    fn encode(&self, py: Python<'_>, block: Arrays<'_>) -> Result<Vec<u8>> {
        let block = self.block(&block)?;
        Ok(py.detach(|| block.encode(&mut *self.encoder()?))?)
    }

    /// Write all frames of a block into an existing file. The first one becomes frame `first` of
    /// the file.
    fn write(&self, py: Python<'_>, path: PathBuf, first: u64, block: Arrays<'_>) -> Result<()> {
        let block = self.block(&block)?;
        Ok(py.detach(|| block.write(&mut *self.encoder()?, &path, first))?)
    }
}

type ArraysOfFields<'py> = (
    Option<Array3<'py, f32>>,
    Option<Array3<'py, f32>>,
    Option<Array3<'py, f32>>,
    Array2<'py, f64>,
    Array1<'py, f64>,
    Array1<'py, i64>,
    Array1<'py, f32>,
);

narrowed! {
    /// Positions, velocities, forces, cells, times, steps and λ of a block.
    struct Arrays<'py>(ArraysOfFields<'py>): alias!("_Arrays", ArraysOfFields::<'py>::INPUT_TYPE)
}

impl Encoder {
    fn encoder(&self) -> std::result::Result<Box<dyn paceline_formats::Encoder>, writer::Failure> {
        let refused = |reason| writer::Failure::Error(Error::Argument(reason));
        self.make().map_err(refused)
    }

    /// Check the shapes of the arrays of a block, and borrow them.
    fn block<'a>(&self, arrays: &'a Arrays<'_>) -> Result<Block<'a>> {
        let Arrays((positions, velocities, forces, cells, times, steps, lambdas)) = arrays;
        let n_frames = times.len();
        let (cells, rest) = cells.as_chunks();
        let same = [cells.len(), steps.len(), lambdas.len()] == [n_frames; 3];
        if !same || !rest.is_empty() {
            return Err(Failure::argument(format!(
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

    /// Create an encoder for the format with this [`Format::name`](paceline_formats::Format::name).
    ///
    /// # Errors
    /// A message if this content cannot be written.
    fn make(&self) -> std::result::Result<Box<dyn paceline_formats::Encoder>, String> {
        let mut settings = EncoderSettings::new(&self.format, self.n_atoms);
        settings.precision = self.precision;
        settings.has_cell = self.has_cell;
        settings.fields = self.fields;
        STANDARD.encoder(&settings)
    }

    /// Return true if a block may lack some of the fields.
    fn mixed(&self) -> bool {
        let format = STANDARD.named(&self.format);
        format.is_some_and(|format| format.abilities().mixed_fields)
    }

    /// Return the numbers of a field. A field that is written must be present, and other fields
    /// must be None. If fields may differ from frame to frame in the format, a block may lack a
    /// written field.
    fn numbers<'a>(
        &self,
        name: &str,
        written: bool,
        array: &'a Option<Array3<'_, f32>>,
        n_frames: usize,
    ) -> Result<&'a [f32]> {
        match array {
            Some(array) if written && array.shape() == [n_frames, self.n_atoms, 3] => Ok(array),
            None if !written || self.mixed() => Ok(&[]),
            _ => {
                let expected = match written {
                    true => format!("an array of shape ({n_frames}, {}, 3)", self.n_atoms),
                    false => "None: this encoder does not write them".into(),
                };
                Err(Failure::argument(format!("{name} must be {expected}")))
            }
        }
    }
}
