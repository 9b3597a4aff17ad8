//! Conversion of errors to the exceptions that `paceline.errors` declares.

use std::io::ErrorKind;
use std::path::PathBuf;

use numpy::AsSliceError;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyIsADirectoryError, PyKeyboardInterrupt, PyOSError,
    PyPermissionError, PyValueError,
};
use pyo3::prelude::*;

use paceline_formats::block_writer;
use paceline_formats::error::Error;

/// Error of a call from Python.
pub(super) enum Failure {
    Core(Error),
    /// The format cannot represent the data. The values are the row of the block, if only one row
    /// is the cause, and the reason.
    Unwritable(Option<usize>, String),
    /// The argument names something that does not exist or is not supported, such as an unknown
    /// unit style.
    Unsupported(String),
    /// The file has another number of atoms than expected. The values are this number and the
    /// message.
    AtomCount(u64, String),
    Python(PyErr),
}

/// Result of a call from Python.
pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Return the failure for an invalid argument.
    pub(super) fn argument(reason: impl Into<String>) -> Self {
        Failure::Core(Error::Argument(reason.into()))
    }

    /// Return the failure for data that a format cannot represent.
    pub(super) fn unwritable(reason: impl Into<String>) -> Self {
        Failure::Unwritable(None, reason.into())
    }

    /// Return the failure for a row of a block that a format cannot represent.
    pub(super) fn row((row, reason): (usize, String)) -> Self {
        Failure::Unwritable(Some(row), reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Core(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl From<AsSliceError> for Failure {
    fn from(error: AsSliceError) -> Self {
        Failure::Python(error.into())
    }
}

impl From<block_writer::Failure> for Failure {
    fn from(failure: block_writer::Failure) -> Self {
        match failure {
            block_writer::Failure::Frame(row, reason) => Failure::row((row, reason)),
            block_writer::Failure::Error(error) => Failure::Core(error),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let made = Python::attach(|py| match failure {
            Failure::Core(error) => exception(py, error),
            Failure::Unwritable(row, reason) => {
                let text = match row {
                    Some(row) => format!("row {row}: {reason}"),
                    None => reason.clone(),
                };
                let error = ours(py, "UnwritableError", &text)?;
                error.setattr("row", row)?;
                error.setattr("reason", reason)?;
                Ok(PyErr::from_value(error))
            }
            Failure::Unsupported(text) => {
                Ok(PyErr::from_value(ours(py, "UnsupportedError", &text)?))
            }
            Failure::AtomCount(found, text) => {
                let error = ours(py, "AtomCountError", &text)?;
                error.setattr("found", found)?;
                Ok(PyErr::from_value(error))
            }
            Failure::Python(error) => Ok(error),
        });
        made.unwrap_or_else(|error| error)
    }
}

/// Create an exception of a class in `paceline.errors`.
fn ours<'py>(py: Python<'py>, name: &str, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("paceline.errors")?.getattr(name)?.call1((text,))
}

/// Convert an error to the equivalent exception of `paceline.errors`, or of Python.
fn exception(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let text = error.to_string();
    let damaged = |path: PathBuf, frame: Option<u64>, offset: Option<u64>, expected, found| {
        let error = ours(py, "DamagedFileError", &text)?;
        error.setattr("path", path.into_os_string())?;
        error.setattr("frame", frame)?;
        error.setattr("offset", offset)?;
        error.setattr::<_, String>("expected", expected)?;
        error.setattr::<_, String>("found", found)?;
        Ok(error)
    };
    // `paceline --json` reports the path and the frame of an error from these attributes.
    let about = |name: &str, path: PathBuf, frame: Option<u64>| {
        let error = ours(py, name, &text)?;
        error.setattr("path", path.into_os_string())?;
        error.setattr("frame", frame)?;
        Ok(error)
    };
    let made = match error {
        Error::Damaged {
            path,
            frame,
            offset,
            expected,
            found,
        } => damaged(path, frame, Some(offset), expected, found),
        Error::DamagedChunk {
            path,
            frames: (first, last),
            offset,
            expected,
            found,
            ..
        } => {
            let frame = (first == last).then_some(first.unsigned_abs());
            damaged(path, frame, offset.map(u64::from), expected, found)
        }
        Error::Missing { path, frame, .. } => about("MissingDataError", path, Some(frame)),
        Error::Unsupported { path, .. } => about("UnsupportedError", path, None),
        Error::Changed { path, .. } => about("FileChangedError", path, None),
        Error::Io {
            path,
            action,
            source,
        } => {
            // Given an error number, Python creates FileNotFoundError, PermissionError or another
            // subclass. The first argument is the errno. On Windows, the system's error numbers
            // differ from errno, and are the last argument.
            return Ok(match source.raw_os_error() {
                Some(number) => {
                    let reason = format!("{action}: {source}");
                    // Python appends the number itself.
                    let reason = reason.replace(&format!(" (os error {number})"), "");
                    PyOSError::new_err((number, reason, path.into_os_string(), number))
                }
                None => match source.kind() {
                    ErrorKind::AlreadyExists => PyFileExistsError::new_err(text),
                    ErrorKind::IsADirectory => PyIsADirectoryError::new_err(text),
                    ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
                    ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
                    _ => PyOSError::new_err(text),
                },
            });
        }
        Error::Argument(reason) => return Ok(PyValueError::new_err(reason)),
        Error::Interrupted => return Ok(PyKeyboardInterrupt::new_err(())),
        _ => ours(py, "PacelineError", &text),
    };
    made.map(PyErr::from_value)
}
