//! The formats that the core knows, with what they can hold.

use pyo3::prelude::*;

use paceline_formats::Format;
use paceline_formats::format::Abilities;
use paceline_formats::registry::STANDARD;

/// A format of trajectories: its names, its files' names, and what they can hold.
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

    /// Its name in MDAnalysis.
    #[getter]
    fn mdanalysis_name(&self) -> &'static str {
        self.format.mdanalysis_name()
    }

    /// Its other names in MDAnalysis, and those of its variants.
    #[getter]
    fn aliases(&self) -> Vec<&'static str> {
        self.format.aliases().to_vec()
    }

    /// Endings of its files' names, in small letters, without the point.
    #[getter]
    fn extensions(&self) -> Vec<&'static str> {
        self.format.extensions().to_vec()
    }

    /// Names of its files that have no ending.
    #[getter]
    fn file_names(&self) -> Vec<&'static str> {
        self.format.file_names().to_vec()
    }

    /// Fields that its frames may hold, one bit a field.
    #[getter]
    fn reads(&self) -> u8 {
        self.abilities.reads.bits()
    }

    /// Fields that `Encoder` writes; 0 where it does not write the format.
    #[getter]
    fn writes(&self) -> u8 {
        self.abilities.writes.bits()
    }

    /// Each frame may hold other fields than the one before.
    #[getter]
    fn mixed_fields(&self) -> bool {
        self.abilities.mixed_fields
    }

    /// All frames have the same size, so that each has its place before it is encoded.
    #[getter]
    fn equal_frames(&self) -> bool {
        self.abilities.equal_frames
    }

    /// The header holds one time between frames for all of them.
    #[getter]
    fn one_time_step(&self) -> bool {
        self.abilities.one_time_step
    }

    /// Each frame holds λ of a free-energy run.
    #[getter]
    fn holds_lambda(&self) -> bool {
        self.abilities.lambda
    }

    /// A cell may lie in any way: frames hold its vectors.
    #[getter]
    fn turned_cells(&self) -> bool {
        self.abilities.turned_cells
    }

    /// The precision of positions can be chosen.
    #[getter]
    fn precision(&self) -> bool {
        self.abilities.precision
    }

    /// Frames can be copied as bytes into another file, or appended to one.
    #[getter]
    fn appends(&self) -> bool {
        self.abilities.appends
    }

    /// Lines of text.
    #[getter]
    fn is_text(&self) -> bool {
        self.abilities.is_text
    }

    /// Times are numbers of steps: how long a step is, only the user can tell.
    #[getter]
    fn times_are_steps(&self) -> bool {
        self.abilities.times_are_steps
    }
}

/// The formats of the core, in the order in which messages list them.
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
