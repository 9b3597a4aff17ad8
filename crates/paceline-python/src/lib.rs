//! The only place that knows Python. Each call checks its arguments, takes slices, releases the
//! interpreter, calls plain Rust, and converts the error.

mod chunk_encoder;
mod chunks;
mod communicator;
mod encoder;
mod file_format;
mod headers;
mod part_kernels;
mod reader;
mod record_kernels;
mod row_kernels;
mod snapshot;
mod snapshot_reading;
mod sum_kernels;
mod trajectory;
mod transforms;
mod whole;

use std::path::PathBuf;

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;

use paceline_formats::error::{Error, Result};

/// Raise the exception of `paceline.errors` or the built-in one that says the same.
fn raise(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    let ours = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        py.import("paceline.errors")?.getattr(name)?.call1((&text,))
    };
    let damaged = |path: PathBuf, frame: Option<u64>, offset: Option<u64>, expected, found| {
        let error = ours("DamagedFileError")?;
        error.setattr("path", path.into_os_string())?;
        error.setattr("frame", frame)?;
        error.setattr("offset", offset)?;
        error.setattr::<_, String>("expected", expected)?;
        error.setattr::<_, String>("found", found)?;
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
        Error::Missing { .. } => ours("MissingDataError"),
        Error::Unsupported { .. } => ours("UnsupportedError"),
        Error::Changed { .. } => ours("FileChangedError"),
        Error::Io {
            path,
            action,
            source,
        } => {
            // With a number, Python makes a FileNotFoundError, PermissionError, … of it: the first
            // one, or on Windows, where the system's numbers are not errno's, the last one.
            return match source.raw_os_error() {
                Some(number) => {
                    let reason = format!("{action}: {source}");
                    // Python says the number itself.
                    let reason = reason.replace(&format!(" (os error {number})"), "");
                    PyOSError::new_err((number, reason, path.into_os_string(), number))
                }
                None => PyOSError::new_err(text),
            };
        }
        Error::Argument(reason) => return PyValueError::new_err(reason),
        Error::Interrupted => return PyKeyboardInterrupt::new_err(()),
    };
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, error))
    }
}

fn indices(values: &[i64]) -> PyResult<Vec<usize>> {
    values
        .iter()
        .map(|&value| {
            usize::try_from(value)
                .map_err(|_| PyValueError::new_err(format!("{value} is no index")))
        })
        .collect()
}

#[pymodule]
mod _core {
    use paceline_formats::reader::chunks::{BEGINNING_SHARE, BEGINNING_SPARE, KEPT_BYTES};
    use paceline_formats::source::GAP;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::chunk_encoder::{
        ChunkEncoder, cells_of_dimensions, cells_of_vectors, cells_without_noise, lattices,
        pack_chunk, upright_cells,
    };
    #[pymodule_export]
    use super::chunks::{ChunkReader, read_integers};
    #[pymodule_export]
    use super::encoder::Encoder;
    #[pymodule_export]
    use super::file_format::{FileFormat, formats};
    #[pymodule_export]
    use super::headers::{
        DcdHeader, HistoryHeader, NetcdfHeader, NetcdfVariable, amber_factor, dcd_header,
        dlpoly_config_head, dlpoly_frame_head, dlpoly_history_head, dlpoly_imcon, history_header,
        netcdf_header,
    };
    #[pymodule_export]
    use super::part_kernels::{Correlation, PairRmsd, put_tile};
    #[pymodule_export]
    use super::reader::Reader;
    #[pymodule_export]
    use super::record_kernels::{HydrogenBonds, NearPairs, SelectedAtoms};
    #[pymodule_export]
    use super::row_kernels::{RowKernel, allow_wide};
    #[pymodule_export]
    use super::snapshot::{SnapshotCost, SnapshotFormat, check_snapshot, write_snapshot};
    #[pymodule_export]
    use super::snapshot_reading::{read_snapshot, read_text_head};
    #[pymodule_export]
    use super::sum_kernels::{
        ContactMap, Rdf, SitePairs, Superposed, Voxels, accumulate_rows, count_indices,
        merge_covariance, merge_moments,
    };
    #[pymodule_export]
    use super::trajectory::{Trajectory, detect_format, fingerprint_of, samples_of, verify};
    #[pymodule_export]
    use super::transforms::{
        NoJump, NoJumpFollower, Transform, centers, fragments, molecule_steps, move_molecules,
    };
    #[pymodule_export]
    use super::whole::{Whole, links};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("GAP_BYTES", GAP)?;
        module.add("KEPT_BYTES", KEPT_BYTES)?;
        module.add("BEGINNING_SHARE", BEGINNING_SHARE)?;
        module.add("BEGINNING_SPARE", BEGINNING_SPARE)
    }
}
