//! Formats of trajectories in the core, and their abilities.

use pyo3::prelude::*;

use paceline_formats::Format;
use paceline_formats::format::Abilities;
use paceline_formats::registry::STANDARD;

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

    /// Names of its files without an extension.
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
