//! Per-worker reader of datasets of an HDF5 file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::reader::{BlockArrays, Cost, open_verified};
use super::{OrRaise, indices};
use paceline_formats::Fields;
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::{Error, Result};
use paceline_formats::hdf5_chunks::{Dataset, Filter, Number, Units};
use paceline_formats::reader::chunks::{
    self, ChunkReader as Chunks, Element, Identity, ReadRequest, Slice,
};
use paceline_formats::source::FileSource;

/// Per-worker reader of datasets of an HDF5 file.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct ChunkReader {
    chunks: Mutex<Chunks>,
}

#[derive(FromPyObject)]
struct PyFilter {
    number: u32,
    name: String,
    values: Vec<u64>,
}

#[derive(FromPyObject)]
struct PyDtype {
    str: String,
}

#[derive(FromPyObject)]
pub(super) struct PyDataset {
    name: String,
    dtype: PyDtype,
    shape: Vec<u64>,
    chunk: Option<Vec<u64>>,
    filters: Vec<PyFilter>,
    offset: u64,
    fill: Vec<u8>,
}

#[derive(FromPyObject)]
struct PyElement {
    dataset: PyDataset,
    factor: f64,
    divisor: f64,
    scale: f64,
}

impl PyDataset {
    fn into_dataset(self) -> PyResult<Dataset> {
        let Some(number) = Number::parse(&self.dtype.str) else {
            return Err(PyValueError::new_err(format!(
                "{}: expected numbers that the core decodes, found {}",
                self.name, self.dtype.str
            )));
        };
        let filters = self.filters.into_iter().map(|filter| Filter {
            number: filter.number,
            name: filter.name,
            values: filter.values,
        });
        Ok(Dataset {
            number,
            shape: self.shape,
            chunk: self.chunk,
            filters: filters.collect(),
            offset: self.offset,
            fill: self.fill,
            name: self.name,
        })
    }
}

impl PyElement {
    fn into_element(self) -> PyResult<Element> {
        Ok(Element {
            dataset: self.dataset.into_dataset()?,
            units: Units {
                divisor: self.divisor,
                scale: self.scale,
                factor: self.factor as f32,
            },
        })
    }
}

/// Rows and chunks of the frames of a block in one dataset.
#[derive(FromPyObject)]
pub(super) struct SliceArrays<'py> {
    rows: PyReadonlyArray1<'py, i64>,
    chunk_numbers: PyReadonlyArray1<'py, u64>,
    offsets: PyReadonlyArray1<'py, u64>,
    sizes: PyReadonlyArray1<'py, u64>,
    masks: PyReadonlyArray1<'py, u32>,
}

impl SliceArrays<'_> {
    fn as_slices(&self) -> PyResult<Slice<'_>> {
        Ok(Slice {
            rows: self.rows.as_slice()?,
            chunk_numbers: self.chunk_numbers.as_slice()?,
            offsets: self.offsets.as_slice()?,
            sizes: self.sizes.as_slice()?,
            masks: self.masks.as_slice()?,
        })
    }
}

/// Rows of a dataset of (rows, integers), one after another; each chunk is read once.
#[pyfunction]
pub(super) fn read_integers<'py>(
    py: Python<'py>,
    path: PathBuf,
    dataset: PyDataset,
    slice: SliceArrays<'py>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (dataset, slice) = (dataset.into_dataset()?, slice.as_slices()?);
    let read = || chunks::read_integers(Arc::new(FileSource::open(&path)?), dataset, slice);
    let numbers = py.detach(read).or_raise(py)?;
    Ok(PyArray1::from_vec(py, numbers))
}

/// Positions, velocities and forces in this order.
type OfFields<T> = [Option<T>; 3];

fn slices_of<'a>(arrays: &'a OfFields<SliceArrays<'_>>) -> PyResult<[Option<Slice<'a>>; 3]> {
    let [a, b, c] = arrays.each_ref().map(|arrays| {
        let arrays = arrays.as_ref();
        arrays.map(SliceArrays::as_slices).transpose()
    });
    Ok([a?, b?, c?])
}

/// Numbers of a block's frames.
#[derive(FromPyObject)]
struct FrameNumbers<'py> {
    frames: PyReadonlyArray1<'py, i64>,
}

#[pymethods]
impl ChunkReader {
    #[new]
    #[pyo3(signature = (
        path, samples, elements, *, n_atoms, atoms=None, ids=None, id_order=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "all but three are named")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        samples: &[u8],
        elements: OfFields<PyElement>,
        n_atoms: usize,
        atoms: Option<PyReadonlyArray1<'_, i64>>,
        ids: Option<PyElement>,
        id_order: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<Self> {
        let atoms = match atoms {
            None => Atoms::all(n_atoms),
            Some(atoms) => Atoms::new(&indices(atoms.as_slice()?)?, n_atoms).or_raise(py)?,
        };
        let [a, b, c] = elements.map(|element| element.map(PyElement::into_element).transpose());
        let elements = [a?, b?, c?];
        let ids = match (ids, id_order) {
            (Some(element), Some(order)) => Some(Identity {
                element: element.into_element()?,
                order: order.as_slice()?.to_vec(),
            }),
            (None, None) => None,
            _ => return Err(PyValueError::new_err("ids and id_order go together")),
        };
        let chunks = py
            .detach(|| {
                let source = Arc::new(open_verified(&path, samples)?);
                Chunks::new(source, elements, &atoms, ids)
            })
            .or_raise(py)?;
        Ok(ChunkReader {
            chunks: Mutex::new(chunks),
        })
    }

    /// Ask for the bytes of a block that will be read soon.
    fn read_ahead(&self, py: Python<'_>, slices: OfFields<SliceArrays<'_>>) -> PyResult<()> {
        let slices = slices_of(&slices)?;
        py.detach(|| self.lock()?.read_ahead(slices)).or_raise(py)
    }

    /// Read and decode a block into the arrays given.
    #[pyo3(signature = (slices, block, *, ids=None, required, skip, whole=false))]
    #[expect(clippy::too_many_arguments, reason = "all but two are named")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        slices: OfFields<SliceArrays<'py>>,
        block: Bound<'py, PyAny>,
        ids: Option<SliceArrays<'py>>,
        required: u8,
        skip: bool,
        whole: bool,
    ) -> PyResult<Cost> {
        let numbers: FrameNumbers<'_> = block.extract()?;
        let mut arrays: BlockArrays<'_> = block.extract()?;
        let request = ReadRequest {
            frames: numbers.frames.as_slice()?,
            slices: slices_of(&slices)?,
            ids: ids.as_ref().map(SliceArrays::as_slices).transpose()?,
            required: Fields::from_bits(required),
            skip,
            whole,
        };
        arrays.read(py, |out| self.lock()?.read(request, out))
    }
}

impl ChunkReader {
    fn lock(&self) -> Result<MutexGuard<'_, Chunks>> {
        self.chunks
            .try_lock()
            .map_err(|_| Error::Argument("a reader belongs to one worker at a time".into()))
    }
}
