//! Per-worker readers of a trajectory file, and of datasets of an HDF5 file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::prelude::*;

use super::byte_sources::{self, CacheSettings, WorkerSource};
use super::errors::{Failure, Result};
use super::types::{
    Array1, ArrayMut1, ArrayMut2, ArrayMut3, Indices, NewArray, Number, attribute, attributes,
    from_python, protocol,
};
use paceline_formats::Fields;
use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::hdf5_datasets::{
    self, ChunkReader as Chunks, Element, Identity, ReadRequest, Slice,
};
use paceline_formats::block_reader::{BlockOut, BlockReader, BlockReport, Extents, Numbers};
use paceline_formats::error::{self, Error};
use paceline_formats::format_list::STANDARD;
use paceline_formats::hdf5_chunks::{self, Dataset, Filter, Units};
use paceline_kernels::check_finite_and_largest;

/// Per-worker reader of a trajectory file.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct Reader {
    blocks: Mutex<BlockReader>,
    source: WorkerSource,
}

attributes! {
    #[name = "_Extents"]
    /// Frames of one file: number, offset and size of each.
    struct ExtentArrays<'py> {
        frames: Array1<'py, u64>,
        offsets: Array1<'py, u64>,
        sizes: Array1<'py, u64>,
    }
}

impl ExtentArrays<'_> {
    fn as_slices(&self) -> Extents<'_> {
        Extents {
            frames: &self.frames,
            offsets: &self.offsets,
            sizes: &self.sizes,
        }
    }
}

attributes! {
    #[name = "_Block"]
    /// Output arrays of a block; None for a field that is not wanted. If there is an array for
    /// `validity`, the fields are checked but not stored.
    pub(super) struct BlockArrays<'py> {
        positions: Option<ArrayMut3<'py, f32>>,
        velocities: Option<ArrayMut3<'py, f32>>,
        forces: Option<ArrayMut3<'py, f32>>,
        validity: Option<ArrayMut2<'py, f64>>,
        cells: ArrayMut2<'py, f64>,
        times: ArrayMut1<'py, f64>,
        steps: ArrayMut1<'py, i64>,
        lambdas: ArrayMut1<'py, f32>,
        fields: ArrayMut1<'py, u8>,
    }
}

impl BlockArrays<'_> {
    /// Read a block into the arrays. Check each frame if there is an array for validity.
    pub(super) fn read(
        &mut self,
        py: Python<'_>,
        read: impl FnOnce(BlockOut<'_>) -> error::Result<BlockReport> + Send,
    ) -> Result<Cost> {
        let times = &mut *self.times;
        let validity = match &mut self.validity {
            Some(validity) => Some(rows_of(validity, "validity")?),
            None => None,
        };
        if validity
            .as_ref()
            .is_some_and(|rows| rows.len() != times.len())
        {
            return Err(Failure::argument("validity must have a row for each time"));
        }
        let numbers = match validity {
            Some(rows) => Numbers::Visited(Box::new(move |row, numbers, held| {
                rows[row] = check_finite_and_largest::check(numbers, held);
            })),
            None => Numbers::Kept {
                positions: slice_of(&mut self.positions),
                velocities: slice_of(&mut self.velocities),
                forces: slice_of(&mut self.forces),
            },
        };
        let out = BlockOut {
            numbers,
            cells: rows_of(&mut self.cells, "cells")?,
            times,
            steps: &mut self.steps,
            lambdas: &mut self.lambdas,
            fields: &mut self.fields,
        };
        Ok(cost_of(py.detach(|| read(out))?))
    }
}

fn rows_of<'a, T: Number, const N: usize>(
    array: &'a mut ArrayMut2<'_, T>,
    name: &str,
) -> Result<&'a mut [[T; N]]> {
    let (rows, rest) = array.as_chunks_mut();
    if !rest.is_empty() {
        return Err(Failure::argument(format!("{name} must have {N} columns")));
    }
    Ok(rows)
}

fn slice_of<'a>(array: &'a mut Option<ArrayMut3<'_, f32>>) -> &'a mut [f32] {
    array.as_deref_mut().unwrap_or_default()
}

/// Nanoseconds of reading and of decoding, number of bytes and of calls, and skipped rows with
/// reasons.
pub(super) type Cost = (u64, u64, u64, u64, Vec<(usize, String)>);

fn cost_of(report: BlockReport) -> Cost {
    let skipped = report.skipped.into_iter();
    let skipped = skipped
        .map(|(row, error)| (row, error.to_string()))
        .collect();
    let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
    (
        nanoseconds(report.read),
        nanoseconds(report.decode),
        report.bytes,
        report.calls,
        skipped,
    )
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (path, layout, samples, *, atoms=None, fields=1, cache=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        layout: &[u8],
        samples: &[u8],
        atoms: Option<Indices>,
        fields: u8,
        cache: Option<CacheSettings>,
    ) -> Result<Self> {
        let Some(layout) = STANDARD.layout(layout) else {
            return Err(Failure::argument("these bytes are not a layout"));
        };
        let atoms = match atoms {
            None => Atoms::all(layout.n_atoms()),
            Some(atoms) => Atoms::new(&atoms, layout.n_atoms())?,
        };
        let (blocks, source) = py.detach(|| {
            let opened = WorkerSource::open(&path, samples, cache)?;
            let source = Arc::clone(&opened.source);
            let blocks = BlockReader::new(source, &layout, atoms, Fields::from_bits(fields))?;
            Ok::<_, Error>((blocks, opened))
        })?;
        Ok(Reader {
            blocks: Mutex::new(blocks),
            source,
        })
    }

    /// Return two values since the last call: the number of bytes that came from the cache; and, if
    /// the cache no longer stores blocks, the reason.
    fn take_cache_use(&self) -> (u64, Option<String>) {
        self.source.take_cache_use()
    }

    /// Return counts of the requests to a store since the last call: numbers of requests, repeated
    /// requests and bytes; latency and waiting time, ns.
    fn take_requests(&self) -> (u64, u64, u64, u64, u64) {
        self.source.take_requests()
    }

    /// Prefetch the bytes of a block that will be read soon.
    fn read_ahead(&self, py: Python<'_>, extents: ExtentArrays<'_>) -> Result<()> {
        let extents = extents.as_slices();
        Ok(py.detach(|| self.lock()?.read_ahead(extents))?)
    }

    /// Read and decode a block into the given arrays.
    #[pyo3(signature = (extents, block, *, required, skip))]
    fn read(
        &self,
        py: Python<'_>,
        extents: ExtentArrays<'_>,
        mut block: BlockArrays<'_>,
        required: u8,
        skip: bool,
    ) -> Result<Cost> {
        let extents = extents.as_slices();
        let required = Fields::from_bits(required);
        block.read(py, |out| self.lock()?.read(extents, out, required, skip))
    }
}

impl Reader {
    fn lock(&self) -> error::Result<MutexGuard<'_, BlockReader>> {
        self.blocks
            .try_lock()
            .map_err(|_| Error::Argument("only one worker at a time may use a reader".into()))
    }
}

/// Per-worker reader of datasets of an HDF5 file.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct ChunkReader {
    chunks: Mutex<Chunks>,
    source: WorkerSource,
}

attributes! {
    #[name = "_Filter"]
    /// Filter of a dataset, such as compression.
    struct PyFilter {
        number: u32,
        name: String,
        values: Vec<u64>,
    }
}

attributes! {
    #[name = "_Dtype"]
    /// NumPy type of the numbers of a dataset.
    struct PyDtype {
        str: String,
    }
}

attributes! {
    #[name = "_Dataset"]
    /// Dataset of numbers in an HDF5 file, and the layout of its bytes.
    pub(super) struct PyDataset {
        name: String,
        dtype: PyDtype,
        shape: Vec<u64>,
        chunk: Option<Vec<u64>>,
        filters: Vec<PyFilter>,
        offset: u64,
        fill: Vec<u8>,
    }
}

attributes! {
    #[name = "_Element"]
    /// Dataset, and the factors that convert its numbers to paceline's units.
    struct PyElement {
        dataset: PyDataset,
        factor: f64,
        divisor: f64,
        scale: f64,
    }
}

impl PyDataset {
    fn into_dataset(self) -> Result<Dataset> {
        let Some(number) = hdf5_chunks::Number::parse(&self.dtype.str) else {
            return Err(Failure::argument(format!(
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
    fn into_element(self) -> Result<Element> {
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

attributes! {
    #[name = "_Slice"]
    /// Rows and chunks of the frames of a block in one dataset.
    pub(super) struct SliceArrays<'py> {
        rows: Array1<'py, i64>,
        chunk_numbers: Array1<'py, u64>,
        offsets: Array1<'py, u64>,
        sizes: Array1<'py, u64>,
        masks: Array1<'py, u32>,
    }
}

impl SliceArrays<'_> {
    fn as_slices(&self) -> Slice<'_> {
        Slice {
            rows: &self.rows,
            chunk_numbers: &self.chunk_numbers,
            offsets: &self.offsets,
            sizes: &self.sizes,
            masks: &self.masks,
        }
    }
}

/// Read rows of a dataset of shape (rows, integers), one after another. Each chunk is read once.
#[pyfunction]
pub(super) fn read_integers(
    py: Python<'_>,
    path: PathBuf,
    dataset: PyDataset,
    slice: SliceArrays<'_>,
) -> Result<NewArray<i64, 1>> {
    let (dataset, slice) = (dataset.into_dataset()?, slice.as_slices());
    let read = || hdf5_datasets::read_integers(byte_sources::open(&path)?, dataset, slice);
    Ok(py.detach(read)?.into())
}

/// One value each for positions, velocities and forces.
type OfFields<T> = [Option<T>; 3];

fn slices_of<'a>(arrays: &'a OfFields<SliceArrays<'_>>) -> OfFields<Slice<'a>> {
    let arrays = arrays.each_ref();
    arrays.map(|arrays| arrays.as_ref().map(SliceArrays::as_slices))
}

/// Output arrays of a block, and its frame numbers, which messages contain.
struct NumberedBlock<'py> {
    frames: Array1<'py, i64>,
    arrays: BlockArrays<'py>,
}

from_python! {
    ['py] NumberedBlock<'py>,
    protocol! {
        "_NumberedBlock"(BlockArrays::<'py>::INPUT_TYPE),
        "Block whose frames' numbers are known, for messages.",
        frames: <i64 as Number>::ARRAY,
    },
    |block| {
        let frames = attribute(block, pyo3::intern!(block.py(), "frames"), "NumberedBlock")?;
        Ok(Self { frames, arrays: block.extract()? })
    }
}

#[pymethods]
impl ChunkReader {
    #[new]
    #[pyo3(signature = (
        path, samples, elements, *, n_atoms, atoms=None, ids=None, id_order=None, cache=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "all but three are named")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        samples: &[u8],
        elements: OfFields<PyElement>,
        n_atoms: usize,
        atoms: Option<Indices>,
        ids: Option<PyElement>,
        id_order: Option<Array1<'_, i64>>,
        cache: Option<CacheSettings>,
    ) -> Result<Self> {
        let atoms = match atoms {
            None => Atoms::all(n_atoms),
            Some(atoms) => Atoms::new(&atoms, n_atoms)?,
        };
        let [a, b, c] = elements.map(|element| element.map(PyElement::into_element).transpose());
        let elements = [a?, b?, c?];
        let ids = match (ids, id_order) {
            (Some(element), Some(order)) => Some(Identity {
                element: element.into_element()?,
                order: order.to_vec(),
            }),
            (None, None) => None,
            _ => {
                return Err(Failure::argument(
                    "ids and id_order must be passed together",
                ));
            }
        };
        let (chunks, source) = py.detach(|| {
            let opened = WorkerSource::open(&path, samples, cache)?;
            let chunks = Chunks::new(Arc::clone(&opened.source), elements, &atoms, ids)?;
            Ok::<_, Error>((chunks, opened))
        })?;
        Ok(ChunkReader {
            chunks: Mutex::new(chunks),
            source,
        })
    }

    /// Return two values since the last call: the number of bytes that came from the cache; and, if
    /// the cache no longer stores blocks, the reason.
    fn take_cache_use(&self) -> (u64, Option<String>) {
        self.source.take_cache_use()
    }

    /// Return counts of the requests to a store since the last call: numbers of requests, repeated
    /// requests and bytes; latency and waiting time, ns.
    fn take_requests(&self) -> (u64, u64, u64, u64, u64) {
        self.source.take_requests()
    }

    /// Prefetch the bytes of a block that will be read soon.
    fn read_ahead(&self, py: Python<'_>, slices: OfFields<SliceArrays<'_>>) -> Result<()> {
        let slices = slices_of(&slices);
        Ok(py.detach(|| self.lock()?.read_ahead(slices))?)
    }

    /// Read and decode a block into the given arrays.
    #[pyo3(signature = (slices, block, *, ids=None, required, skip, whole=false))]
    #[expect(clippy::too_many_arguments, reason = "all but two are named")]
    fn read(
        &self,
        py: Python<'_>,
        slices: OfFields<SliceArrays<'_>>,
        block: NumberedBlock<'_>,
        ids: Option<SliceArrays<'_>>,
        required: u8,
        skip: bool,
        whole: bool,
    ) -> Result<Cost> {
        let NumberedBlock { frames, mut arrays } = block;
        let request = ReadRequest {
            frames: &frames,
            slices: slices_of(&slices),
            ids: ids.as_ref().map(SliceArrays::as_slices),
            required: Fields::from_bits(required),
            skip,
            whole,
        };
        arrays.read(py, |out| self.lock()?.read(request, out))
    }
}

impl ChunkReader {
    fn lock(&self) -> error::Result<MutexGuard<'_, Chunks>> {
        self.chunks
            .try_lock()
            .map_err(|_| Error::Argument("only one worker at a time may use a reader".into()))
    }
}
