//! Headers of files that Python continues, parsed as by the decoders, and headers of DL_POLY files
//! that Python writes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use paceline_formats::dlpoly::encode::{self, Cell, Moment};
use paceline_formats::error::{Error, Fault};
use paceline_formats::netcdf3::header::{Attribute, Header, width};
use paceline_formats::netcdf3::units;
use paceline_formats::{Fields, dcd, dlpoly};
use pyo3::inspect::{PyStaticConstant, PyStaticExpr};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyTuple};
use pyo3::{PyTypeInfo, type_hint_subscript, type_hint_union};

use super::errors::{Failure, Result};

/// Return the error for a damaged header. `len` is the number of bytes that were parsed.
fn damaged(path: &Path, len: usize, fault: Fault) -> Error {
    let fault = match fault {
        Fault::Short { needed } => {
            let expected = format!("a header of at least {needed} bytes");
            Fault::bad(len, expected, format!("{len} bytes"))
        }
        fault => fault,
    };
    Error::damaged(path, None, 0, len as u64, fault)
}

/// Header of a DCD file.
#[pyclass(frozen, get_all, module = "paceline._core")]
pub(super) struct DcdHeader {
    big_endian: bool,
    /// Size of a record marker, bytes.
    marker_size: u8,
    /// The 20 integers after "CORD".
    integers: Vec<i32>,
    n_atoms: usize,
    n_fixed: usize,
    /// Size of the header, bytes.
    size: u64,
    first_frame_size: u64,
    frame_size: u64,
}

/// Parse the header of a DCD file. If `file_size` is None, the file is assumed to be long enough.
#[pyfunction]
#[pyo3(signature = (path, head, file_size=None))]
pub(super) fn dcd_header(path: PathBuf, head: &[u8], file_size: Option<u64>) -> Result<DcdHeader> {
    let layout = dcd::Layout::parse(head, file_size.unwrap_or(u64::MAX))
        .map_err(|fault| damaged(&path, head.len(), fault))?;
    Ok(DcdHeader {
        big_endian: layout.is_big_endian(),
        marker_size: layout.marker_size(),
        integers: layout.integers(head),
        n_atoms: layout.n_atoms(),
        n_fixed: layout.n_fixed(),
        size: layout.header_size(),
        first_frame_size: layout.first_frame_size(),
        frame_size: layout.frame_size(),
    })
}

/// Header of a HISTORY.
#[pyclass(frozen, get_all, module = "paceline._core")]
pub(super) struct HistoryHeader {
    /// keytrj: 0 positions; 1 also velocities; 2 also forces; 3 compressed.
    level: u8,
    imcon: u8,
    n_atoms: usize,
    /// Number of frames in the header; None if it is missing or 0.
    n_frames: Option<u64>,
    /// Size of the bytes before the first frame.
    size: u64,
    /// Bytes of a frame before its atoms, and bytes of the whole frame. None if lines vary in
    /// length, or no frame was parsed.
    frame_head_size: Option<u64>,
    frame_size: Option<u64>,
}

/// Parse the header of a HISTORY, and the beginning of its first frame if there is one.
#[pyfunction]
#[pyo3(signature = (path, head, file_size=None))]
pub(super) fn history_header(
    path: PathBuf,
    head: &[u8],
    file_size: Option<u64>,
) -> Result<HistoryHeader> {
    let head = dlpoly::Head::parse_history(head, file_size.unwrap_or(u64::MAX))
        .map_err(|fault| damaged(&path, head.len(), fault))?;
    let layout = head.layout;
    Ok(HistoryHeader {
        level: layout.level(),
        imcon: layout.imcon(),
        n_atoms: layout.n_atoms(),
        n_frames: head.claimed,
        size: layout.start(),
        frame_head_size: layout.bytes_of(0..0).map(|atoms| atoms.start),
        frame_size: layout.frame_size(),
    })
}

/// Value of an attribute: bytes for text, a tuple for numbers.
struct Value(Py<PyAny>);

impl<'a, 'py> IntoPyObject<'py> for &'a Value {
    type Target = PyAny;
    type Output = Borrowed<'a, 'py, PyAny>;
    type Error = std::convert::Infallible;

    const OUTPUT_TYPE: PyStaticExpr = type_hint_union!(
        PyBytes::TYPE_HINT,
        type_hint_subscript!(
            PyTuple::TYPE_HINT,
            PyFloat::TYPE_HINT,
            PyStaticExpr::Constant {
                value: PyStaticConstant::Ellipsis
            }
        )
    );

    fn into_pyobject(self, py: Python<'py>) -> std::result::Result<Self::Output, Self::Error> {
        Ok(self.0.bind_borrowed(py))
    }
}

/// Variable of a NetCDF file.
#[pyclass(frozen, get_all, module = "paceline._core")]
pub(super) struct NetcdfVariable {
    /// Names of its dimensions.
    dimensions: Vec<String>,
    /// NumPy name of the type of its numbers.
    kind: &'static str,
    attributes: HashMap<String, Value>,
    /// True if each record contains an entry of the variable.
    in_records: bool,
    /// Size of an entry, or of the whole variable if it is not in records, bytes.
    size: u64,
    /// Offset of the variable, or of its entry in the first record, bytes.
    begin: u64,
}

/// Header of a NetCDF file in a classic format.
#[pyclass(frozen, get_all, module = "paceline._core")]
pub(super) struct NetcdfHeader {
    /// Version of the format: 1, 2 or 5.
    version: u8,
    /// Number of records; None if it follows from the size of the file.
    n_records: Option<u64>,
    /// Lengths by name; 0 for the record dimension.
    dimensions: HashMap<String, u64>,
    attributes: HashMap<String, Value>,
    variables: HashMap<String, Py<NetcdfVariable>>,
    /// Size of the header, bytes.
    size: u64,
    record_size: u64,
}

/// Return the factor that converts a unit to paceline's unit of the same quantity. `like` is a unit
/// of this quantity.
#[pyfunction]
pub(super) fn amber_factor(unit: &str, like: &str) -> Option<f64> {
    units::factor(unit, like)
}

/// Parse the header of a NetCDF file in a classic format.
#[pyfunction]
#[pyo3(signature = (path, head, file_size=None))]
pub(super) fn netcdf_header(
    py: Python<'_>,
    path: PathBuf,
    head: &[u8],
    file_size: Option<u64>,
) -> Result<NetcdfHeader> {
    let header = Header::parse(head, file_size.unwrap_or(u64::MAX))
        .map_err(|fault| damaged(&path, head.len(), fault))?;
    let mut variables = HashMap::new();
    for variable in &header.variables {
        let of = |&number: &usize| text(header.dimensions[number].name);
        let made = NetcdfVariable {
            dimensions: variable.dimensions.iter().map(of).collect(),
            kind: kind_of(variable.kind),
            attributes: attributes(py, &variable.attributes)?,
            in_records: variable.in_records,
            size: variable.size,
            begin: variable.begin,
        };
        variables.insert(text(variable.name), Py::new(py, made)?);
    }
    let dimensions = header.dimensions.iter();
    Ok(NetcdfHeader {
        version: header.version,
        n_records: header.n_records,
        dimensions: dimensions.map(|one| (text(one.name), one.len)).collect(),
        attributes: attributes(py, &header.attributes)?,
        variables,
        size: header.size,
        record_size: header.record_size,
    })
}

fn text(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) => name.to_owned(),
        Err(_) => name.escape_ascii().to_string(),
    }
}

/// Return the NumPy name of a type, given its number in the file.
fn kind_of(kind: u32) -> &'static str {
    match kind {
        1 => ">i1",
        2 => "S1",
        3 => ">i2",
        4 => ">i4",
        5 => ">f4",
        6 => ">f8",
        7 => ">u1",
        8 => ">u2",
        9 => ">u4",
        10 => ">i8",
        _ => ">u8",
    }
}

fn attributes(py: Python<'_>, all: &[Attribute<'_>]) -> Result<HashMap<String, Value>> {
    let mut made = HashMap::new();
    for one in all {
        let value = match kind_of(one.kind) {
            "S1" => PyBytes::new(py, one.values).into_any().unbind(),
            kind => numbers(py, kind, one)?,
        };
        made.insert(text(one.name), Value(value));
    }
    Ok(made)
}

/// Return the values of an attribute as a tuple of int or float.
fn numbers(py: Python<'_>, kind: &str, attribute: &Attribute<'_>) -> PyResult<Py<PyAny>> {
    let width = width(attribute.kind).unwrap_or(1) as usize;
    let values = attribute.values.chunks_exact(width).map(|bytes| {
        // The value is at the end of 8 bytes; the others repeat its sign.
        let negative = kind.contains('i') && bytes[0] >= 0x80;
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[8 - width..].copy_from_slice(bytes);
        let (signed, unsigned) = (i64::from_be_bytes(wide), u64::from_be_bytes(wide));
        Ok(match kind {
            ">f4" => f64::from(f32::from_bits(unsigned as u32))
                .into_pyobject(py)?
                .into_any(),
            ">f8" => f64::from_bits(unsigned).into_pyobject(py)?.into_any(),
            ">u8" => unsigned.into_pyobject(py)?.into_any(),
            _ => signed.into_pyobject(py)?.into_any(),
        })
    });
    let values = values.collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, values)?.into_any().unbind())
}

// Heads of DL_POLY's files, for Python to write.

/// Return the key of DL_POLY's periodic boundary (imcon) for a cell (Å).
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
