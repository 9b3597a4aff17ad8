//! Encoding of blocks of frames, as bytes for Python or directly into a file. Encoding of the data
//! of H5MD files: chunks of numbers, and cell vectors.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::errors::{Failure, Result};
use super::types::{Array1, Array2, Array3, NewArray, alias, narrowed};
use paceline_formats::block_writer::{self, Block, with_buffers, write_chunks};
use paceline_formats::error::Error;
use paceline_formats::format_interface::EncoderSettings;
use paceline_formats::format_list::STANDARD;
use paceline_formats::hdf5_chunks::encode::{self, Compression, Float, Settings};
use paceline_formats::{CELL_WIDTH, CellRow, Fields, Series, UnitCell};

/// Encoder of the frames of one file.
#[pyclass(frozen, module = "paceline._core")]
// An encoder is created from these fields for each block. This takes 0 to 4 % more time than one
// encoder per thread.
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
    fn encoder(
        &self,
    ) -> std::result::Result<Box<dyn paceline_formats::Encoder>, block_writer::Failure> {
        let refused = |reason| block_writer::Failure::Error(Error::Argument(reason));
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
    /// must be None. If the format allows the fields to differ from frame to frame, a block may
    /// lack a written field.
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

/// Encoder of the chunks of one dataset of shape (frames, atoms, 3).
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct ChunkEncoder(encode::ChunkEncoder);

#[pymethods]
impl ChunkEncoder {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (
        dtype, chunk, *, shuffle=false, method=None, level=None, precision=None, factor=1.0,
        what="position".into()
    ))]
    fn new(
        dtype: &str,
        chunk: (usize, usize, usize),
        shuffle: bool,
        method: Option<&str>,
        level: Option<i32>,
        precision: Option<f64>,
        factor: f64,
        what: String,
    ) -> Result<Self> {
        let (frames, atoms, components) = chunk;
        let float = match dtype {
            "<f4" => Float::F4,
            "<f8" => Float::F8,
            _ => {
                let reason = format!("dtype must be <f4 or <f8, not {dtype}");
                return Err(Failure::argument(reason));
            }
        };
        if components != 3 {
            let reason = format!("a chunk must be (frames, atoms, 3), not {chunk:?}");
            return Err(Failure::argument(reason));
        }
        let mut settings = Settings::new(frames, atoms);
        settings.float = float;
        settings.shuffle = shuffle;
        settings.compression = method.map(|name| compression(name, level)).transpose()?;
        settings.precision = precision;
        settings.factor = factor;
        settings.what = what;
        let encoder = encode::ChunkEncoder::new(settings);
        encoder.map(ChunkEncoder).map_err(Failure::unwritable)
    }

    /// Return the arguments of `new`, for pickle.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<(Arguments, Bound<'py, PyDict>)> {
        let settings = self.0.settings();
        let dtype = match settings.float {
            Float::F4 => "<f4",
            Float::F8 => "<f8",
        };
        let named = PyDict::new(py);
        named.set_item("shuffle", settings.shuffle)?;
        let (method, level) = match settings.compression {
            None => (None, None),
            Some(Compression::Gzip(level)) => (Some("gzip"), Some(level)),
            Some(Compression::Zstd(level)) => (Some("zstd"), Some(level)),
            Some(Compression::Lz4) => (Some("lz4"), None),
            Some(Compression::Lzf) => (Some("lzf"), None),
        };
        named.set_item("method", method)?;
        named.set_item("level", level)?;
        named.set_item("precision", settings.precision)?;
        named.set_item("factor", settings.factor)?;
        named.set_item("what", &settings.what)?;
        Ok(((dtype, (settings.frames, settings.atoms, 3)), named))
    }

    /// Return the rounding step of stored numbers; None if numbers are not rounded.
    #[getter]
    fn step(&self) -> Option<f64> {
        self.0.step()
    }

    /// Refuse numbers that are not finite, as `encode` and `write` do.
    fn check(&self, py: Python<'_>, values: Array3<'_, f32>) -> Result<()> {
        let (n_atoms, values) = (atoms_of(&values)?, &*values);
        py.detach(|| self.0.check(values, n_atoms))
            .map_err(Failure::row)
    }

    /// Encode all chunks of frames. Return the chunks one after another, and the size of each.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        values: Array3<'_, f32>,
    ) -> Result<(Bound<'py, PyBytes>, NewArray<u64, 1>)> {
        let (n_atoms, values) = (atoms_of(&values)?, &*values);
        with_buffers(|room| {
            let sizes = py.detach(|| self.0.encode(values, n_atoms, room));
            let sizes = sizes.map_err(Failure::row)?;
            Ok((PyBytes::new(py, &room.packed), sizes.into()))
        })
    }

    /// Write frames to the chunks at `offsets` of an existing file. In the first chunk, `lead`
    /// other frames precede these frames.
    #[pyo3(signature = (path, offsets, values, *, lead=0))]
    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        offsets: Array1<'_, u64>,
        values: Array3<'_, f32>,
        lead: usize,
    ) -> Result<()> {
        let n_atoms = atoms_of(&values)?;
        let (offsets, values) = (&*offsets, &*values);
        Ok(py.detach(|| write_chunks(&self.0, &path, offsets, lead, values, n_atoms))?)
    }
}

/// Name of the type of the numbers, and shape of a chunk.
type Arguments = (&'static str, (usize, usize, usize));

fn compression(method: &str, level: Option<i32>) -> Result<Compression> {
    match (method, level) {
        ("gzip", Some(level)) => Ok(Compression::Gzip(level)),
        ("zstd", Some(level)) => Ok(Compression::Zstd(level)),
        ("lz4", None) => Ok(Compression::Lz4),
        ("lzf", None) => Ok(Compression::Lzf),
        _ => Err(Failure::argument(format!(
            "expected gzip or zstd with a level, or lz4 or lzf without, found {method} with {level:?}"
        ))),
    }
}

/// Encode one chunk of numbers of `width` bytes: shuffle and compress it.
#[pyfunction]
#[pyo3(signature = (data, *, width, shuffle, method, level=None))]
pub(super) fn pack_chunk<'py>(
    py: Python<'py>,
    data: &[u8],
    width: usize,
    shuffle: bool,
    method: &str,
    level: Option<i32>,
) -> Result<Bound<'py, PyBytes>> {
    let compression = compression(method, level)?;
    with_buffers(|room| {
        let packed = py.detach(|| encode::pack_chunk(data, width, shuffle, compression, room));
        packed.map_err(Failure::unwritable)?;
        Ok(PyBytes::new(py, &room.packed))
    })
}

fn atoms_of(values: &Array3<'_, f32>) -> Result<usize> {
    match values.shape() {
        &[_, n_atoms, 3] if n_atoms > 0 => Ok(n_atoms),
        shape => Err(Failure::argument(format!(
            "values must be of shape (frames, atoms, 3), not {shape:?}"
        ))),
    }
}

/// Convert lengths (Å) and angles (degrees) to rows of `FrameBuffer.cells`, with vectors in double
/// precision. Lengths and angles computed from these vectors are exactly the input. Rows are zero
/// if lengths and angles span no volume.
#[pyfunction]
pub(super) fn cells_of_dimensions(dimensions: Array2<'_, f32>) -> Result<NewArray<f64, 2>> {
    let (cells, rest) = dimensions.as_chunks::<6>();
    if dimensions.shape()[1] != 6 || !rest.is_empty() {
        return Err(Failure::argument("dimensions must be of shape (n, 6)"));
    }
    let row = |cell: &[f32; 6]| UnitCell::of_dimensions(*cell).row();
    let rows: Vec<f64> = cells.iter().flat_map(row).collect();
    Ok(NewArray::new(rows, [cells.len(), CELL_WIDTH]))
}

/// Convert vectors (Å) and periodicity to rows of `FrameBuffer.cells`.
#[pyfunction]
pub(super) fn cells_of_vectors(
    vectors: Array3<'_, f64>,
    periodic: [bool; 3],
) -> Result<NewArray<f64, 2>> {
    if vectors.shape()[1..] != [3, 3] {
        return Err(Failure::argument("vectors must be of shape (n, 3, 3)"));
    }
    let (matrices, _) = vectors.as_chunks::<3>().0.as_chunks::<3>();
    let row = |vectors: &[[f64; 3]; 3]| {
        let cell = UnitCell::of_vectors(*vectors);
        UnitCell { periodic, ..cell }.row()
    };
    let rows: Vec<f64> = matrices.iter().flat_map(row).collect();
    Ok(NewArray::new(rows, [matrices.len(), CELL_WIDTH]))
}

/// Remove rounding errors from upright cells: compute their vectors from lengths and angles. Other
/// cells do not change.
#[pyfunction]
pub(super) fn cells_without_noise(cells: Array2<'_, f64>) -> Result<NewArray<f64, 2>> {
    each_cell(&cells, |cell| cell.without_noise())
}

/// Return a mask of upright cells. Apart from rounding errors, the vectors of such a cell follow
/// from its lengths and angles.
#[pyfunction]
pub(super) fn upright_cells(cells: Array2<'_, f64>) -> Result<NewArray<bool, 1>> {
    let (cells, _) = cells.as_chunks::<CELL_WIDTH>();
    let found = cells.iter().map(|cell| UnitCell::of_row(cell).is_upright());
    Ok(found.collect::<Vec<_>>().into())
}

/// Return cells without rounding errors that are periodic along all vectors. Non-periodic vectors
/// become longer than any displacement.
#[pyfunction]
pub(super) fn lattices(cells: Array2<'_, f64>) -> Result<NewArray<f64, 2>> {
    each_cell(&cells, |cell| cell.lattice())
}

fn each_cell(
    cells: &Array2<'_, f64>,
    change: impl Fn(UnitCell) -> UnitCell,
) -> Result<NewArray<f64, 2>> {
    let (cells, rest) = cells.as_chunks::<CELL_WIDTH>();
    if !rest.is_empty() {
        return Err(Failure::argument("cells must be of shape (n, 19)"));
    }
    let row = |cell: &CellRow| change(UnitCell::of_row(cell)).row();
    let rows: Vec<f64> = cells.iter().flat_map(row).collect();
    Ok(NewArray::new(rows, [cells.len(), CELL_WIDTH]))
}
