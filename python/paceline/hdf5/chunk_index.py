"""Index of an HDF5 trajectory, and a reader that decodes its chunks in the compiled module.

The index is plain data: frames, datasets and chunk offsets. Workers load it without h5py.

The index of a trajectory in an object store is saved as a file in the user's cache folder. The file
consists of the 32 bytes of a SHA-256 digest, and an archive in NumPy's NPZ format without pickles.
The member `head` of the archive is JSON text, which refers to the other members by number.
"""

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from paceline import _core
from paceline._util.files import new_file
from paceline._util.python_object_digest import digest
from paceline.block import CELL_WIDTH, FIELDS, FrameBuffer, field_bits, vectors_of
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import Extents, FileReadStats

#: HDF5 numbers of szip and of the filters that the compiled module decodes.
DEFLATE, SHUFFLE, FLETCHER32, LZF, LZ4, ZSTD = 1, 2, 3, 32000, 32004, 32015
SZIP = 4
#: Names of registered filters, including filters that the compiled module does not decode.
FILTER_NAMES = {
    **{DEFLATE: "gzip", SHUFFLE: "shuffle", FLETCHER32: "fletcher32", LZF: "lzf"},
    **{LZ4: "lz4", ZSTD: "zstd", SZIP: "szip", 307: "bzip2", 32001: "blosc", 32008: "bitshuffle"},
    **{32013: "zfp", 32017: "sz", 32024: "sz3", 32026: "blosc2"},
}
#: Version of saved indexes. Indexes of other versions are made again.
_SAVED_VERSION = 1
#: Number used in place of the row of a frame that has no value of an element.
ABSENT = -1
#: Last words of the warning about a file without times.
COUNTED = "frames count as 1 ps apart"


@dataclass(frozen=True)
class Filter:
    """One stage of a chunk's filter pipeline."""

    #: Number with which the filter is registered with HDF5.
    number: int
    #: Name of the filter in the file, possibly empty.
    name: str
    values: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Name and number of the filter as a text.

        >>> Filter(32001, "").words
        'blosc (32001)'
        """
        name = FILTER_NAMES.get(self.number) or self.name or "without a name"
        return f"{name} ({self.number})"


def may_hide_damage(filters: Sequence[Filter]) -> bool:
    """True if HDF5 may read a damaged chunk without an error, as with hdf5plugin's Zstandard.

    In that case, HDF5 returns arbitrary values that were in the memory before.
    """
    return any(stage.number == ZSTD for stage in filters)


@dataclass(frozen=True)
class ChunkTable:
    """Offset and size of each chunk of a dataset, in C order over the chunk grid."""

    #: Byte offsets, uint64, (n_chunks,). A chunk that was never written has size 0.
    offsets: np.ndarray
    sizes: np.ndarray
    #: Filter masks, uint32, (n_chunks,). Bit k: filter k of the pipeline was skipped.
    masks: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """Dataset of numbers, with the layout of its bytes in the file."""

    name: str
    #: Dtype with the byte order of the file.
    dtype: np.dtype
    #: Shape: (rows, atoms, components), (rows, components × atoms) or (rows, atoms). A dataset that
    #: applies to all frames has one row.
    shape: tuple[int, ...]
    #: Shape of a chunk, with as many axes as `shape`; None for a contiguous dataset.
    chunk: tuple[int, ...] | None = None
    filters: Sequence[Filter] = ()
    #: Byte offset of a contiguous dataset.
    offset: int = 0
    table: ChunkTable | None = None
    #: Fill value of chunks that were never written, as bytes of the file.
    fill: bytes = b""
    #: Reason why only the HDF5 library can read the dataset; empty if the compiled module can.
    h5py_fallback: str = ""

    @property
    def chunk_bytes(self) -> int:
        """Decoded size of a chunk, or of a contiguous dataset, bytes."""
        return math.prod(self.chunk or self.shape) * self.dtype.itemsize

    @property
    def chunk_row_bytes(self) -> int:
        """Size of one row of a chunk, or of a contiguous dataset, bytes."""
        return math.prod((self.chunk or self.shape)[1:]) * self.dtype.itemsize


@dataclass(frozen=True)
class Element:
    """Dataset with one quantity of the frames, such as positions.

    A value in paceline's units is float32(stored number / divisor * scale) × factor.
    """

    dataset: Dataset
    #: Row of each frame, int64, (n_frames,), `ABSENT` for a frame without a value. None if the row
    #: of each frame equals its number.
    rows: np.ndarray | None = None
    factor: float = 1.0
    divisor: float = 1.0
    scale: float = 1.0

    def rows_of(self, frames: np.ndarray) -> np.ndarray:
        """Return the row of each frame, int64; `ABSENT` for a frame without a value."""
        return np.asarray(frames if self.rows is None else self.rows[frames], dtype=np.int64)

    def frames_per_chunk(self, n_frames: int) -> int:
        """Approximate number of frames that one read of a chunk provides."""
        chunk, n_rows = self.dataset.chunk, self.dataset.shape[0]
        # Without filters, each frame can be read on its own.
        if chunk is None or n_rows <= 1 or not self.dataset.filters:
            return 1
        return max(1, round(min(chunk[0], n_rows) * n_frames / n_rows))

    def without_frames(self) -> "Element":
        """Copy the element without `rows` and without the chunk table of the dataset."""
        return replace(self, rows=None, dataset=replace(self.dataset, table=None))


@dataclass(frozen=True)
class ChunkExtents:
    """Offsets and sizes of a dataset's chunks, arranged in rows of chunks.

    Each row of a contiguous dataset is treated as a chunk.
    """

    #: Byte offsets, uint64, (n_chunks along the first axis, n_chunks in each row of chunks).
    offsets: np.ndarray
    sizes: np.ndarray
    #: Number of rows of the dataset in one chunk; 1 for a contiguous dataset.
    n_rows: int

    @classmethod
    def of(cls, dataset: Dataset) -> "ChunkExtents":
        """Compute the extents; all are 0 if only the HDF5 library can locate the chunks."""
        n_rows = dataset.shape[0]
        if dataset.chunk is None and not dataset.h5py_fallback:
            of_row = dataset.chunk_row_bytes
            offsets = dataset.offset + np.arange(n_rows, dtype=np.uint64) * np.uint64(of_row)
            return cls(offsets[:, None], np.full((n_rows, 1), of_row, dtype=np.uint64), 1)
        if dataset.chunk is None or dataset.table is None:
            nothing = np.zeros((n_rows, 1), dtype=np.uint64)
            return cls(nothing, nothing, 1)
        along = -(-n_rows // dataset.chunk[0])
        offsets, sizes = (
            values.reshape(along, -1) for values in (dataset.table.offsets, dataset.table.sizes)
        )
        return cls(offsets, sizes, dataset.chunk[0])


@dataclass(frozen=True, slots=True)
class IndexSlice:
    """Part of an element's chunk table that is needed to read some frames."""

    #: Row of each frame, int64, (n_frames,); `ABSENT` for a frame without a value.
    rows: np.ndarray
    #: Numbers along the first axis of the chunks that contain these rows: uint64, increasing,
    #: without repeats. Empty for a contiguous dataset.
    chunk_numbers: np.ndarray
    #: Offsets and sizes, uint64, and masks, uint32, of all chunks with these numbers, in C order:
    #: (n_numbers × chunks in each row,). The fields are those of `ChunkTable`.
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


def slice_of(element: Element, frames: np.ndarray) -> IndexSlice:
    """Extract the rows of an element's chunk table for reading `frames`, which may be unordered.

    >>> sizes = np.full(4, 24, dtype=np.uint64)
    >>> table = ChunkTable(np.arange(4, dtype=np.uint64) * 24, sizes, np.zeros(4, dtype=np.uint32))
    >>> dataset = Dataset("value", np.dtype("f4"), (4, 2, 3), chunk=(2, 1, 3), table=table)
    >>> found = slice_of(Element(dataset), np.array([3, 2]))
    >>> found.rows, found.chunk_numbers, found.offsets
    (array([3, 2]), array([1], dtype=uint64), array([48, 72], dtype=uint64))
    """
    dataset, rows = element.dataset, element.rows_of(frames)
    if dataset.chunk is None or dataset.table is None:
        nothing = np.empty(0, dtype=np.uint64)
        return IndexSlice(rows, nothing, nothing, nothing, np.empty(0, dtype=np.uint32))
    chunk_numbers = np.unique(rows[rows != ABSENT] // dataset.chunk[0]).astype(np.uint64)
    grid = (-(-n // step) for n, step in zip(dataset.shape[1:], dataset.chunk[1:], strict=True))
    side_by_side = math.prod(grid)
    within = np.arange(side_by_side, dtype=np.uint64)
    chunks = (chunk_numbers[:, None] * np.uint64(side_by_side) + within).ravel()
    table = dataset.table
    return IndexSlice(
        rows, chunk_numbers, table.offsets[chunks], table.sizes[chunks], table.masks[chunks]
    )


class Cells(NamedTuple):
    """Cells of all frames: each array has one row per frame, or one row for all frames.

    `dimensions` are float32, (n_frames, 6), Å and degrees, zeros without a cell. `vectors` are
    float64, (n_frames, 3, 3), Å; they exist only if lengths and angles do not determine the
    orientation of the cell.
    """

    dimensions: np.ndarray
    vectors: np.ndarray | None = None
    periodic: tuple[bool, bool, bool] = (True, True, True)


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Part of the index that one block of frames needs."""

    #: Slices of positions, velocities and forces; None for a field that the file lacks.
    elements: tuple[IndexSlice | None, ...]
    #: Slice of the particle ids; None if the order of atoms cannot change.
    ids: IndexSlice | None
    #: Cells of these frames, or one cell for all frames.
    cells: Cells
    #: Times, ps, float64, (n_frames,).
    times: np.ndarray
    #: Steps, int64, (n_frames,).
    steps: np.ndarray
    #: λ of a free-energy calculation, float32, (n_frames,); None if the file has none.
    lambdas: np.ndarray | None = None

    def fill(self, block: FrameBuffer, damaged: Sequence[tuple[int, str]]) -> None:
        """Set cells, times, steps and λ of a block, and blank its damaged rows."""
        block.cells[:] = _rows_of(self.cells)
        block.times[:] = self.times
        block.steps[:] = self.steps
        if self.lambdas is not None:
            block.lambdas[:] = self.lambdas
        for row, _ in damaged:
            block.blank(row)


@dataclass(frozen=True)
class ChunkIndex:
    """All that a reader needs from an HDF5 trajectory, except positions, velocities and forces."""

    #: Name of the convention: "H5MD", "NetCDF-4", "MDTraj HDF5" or, for one dataset, "HDF5".
    format: str
    n_frames: int
    n_atoms: int
    #: Those of the elements "positions", "velocities" and "forces" that the file contains.
    elements: Mapping[str, Element]
    #: Times, ps, float64, (n_frames,); frame numbers if the file has no times.
    times: np.ndarray
    #: Steps, int64, (n_frames,).
    steps: np.ndarray
    cells: Cells
    #: λ of a free-energy calculation, float32, (n_frames,); None if the file has none.
    lambdas: np.ndarray | None = None
    #: Particle ids of each frame, if the order of atoms may change.
    ids: Element | None = None
    #: Id of each atom that paceline reads, in paceline's order: int64, (n_atoms,), increasing. None
    #: without `ids`.
    id_order: np.ndarray | None = None
    #: Names and values that `paceline info` prints, in this order.
    facts: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()
    #: Reason why times are unknown and frames are counted instead; None if times are known.
    time_doubt: str | None = None
    #: True if a reader that ignores steps and ids, such as MDAnalysis's H5MDReader, reads the same
    #: values: each frame's row has its number, atoms are as stored, and no cell or time was
    #: replaced.
    is_as_stored: bool = False

    def of_block(self, frames: np.ndarray) -> BlockIndex:
        """Extract the part of the index that some frames need."""
        return BlockIndex(
            tuple(_slice(self.elements.get(field), frames) for field in FIELDS),
            _slice(self.ids, frames),
            self._cells_in(frames),
            self.times[frames],
            self.steps[frames],
            None if self.lambdas is None else self.lambdas[frames],
        )

    def _cells_in(self, frames: np.ndarray) -> Cells:
        """Return the cells of some frames, or the one cell that applies to all frames."""
        dimensions, vectors, periodic = self.cells
        shared = len(dimensions) != self.n_frames
        if vectors is not None and len(vectors) == self.n_frames:
            vectors = vectors[frames]
        return Cells(dimensions if shared else dimensions[frames], vectors, periodic)


def _rows_of(cells: Cells) -> np.ndarray:
    """Convert cells to rows of `FrameBuffer.cells`."""
    rows = _core.cells_of_dimensions(np.ascontiguousarray(cells.dimensions))
    if cells.vectors is not None or not all(cells.periodic):
        vectors = vectors_of(rows) if cells.vectors is None else cells.vectors
        rows = np.broadcast_to(rows, (max(len(rows), len(vectors)), CELL_WIDTH)).copy()
        has_cell = rows[:, :3].any(axis=1)
        given = _core.cells_of_vectors(np.ascontiguousarray(vectors), cells.periodic)
        # Keep the stored lengths and angles, which equal those of MDAnalysis.
        rows[has_cell, 6:] = np.broadcast_to(given, rows.shape)[has_cell, 6:]
    return rows


def _slice(element: Element | None, frames: np.ndarray) -> IndexSlice | None:
    return None if element is None else slice_of(element, frames)


@dataclass(frozen=True)
class SavedChunkIndex:
    """Saved index of one version of an object in an object store, opened with certain options."""

    path: Path
    #: Text that contains the address, version and options of the object, and the versions of the
    #: format and of paceline.
    key: str

    @classmethod
    def of(cls, folder: Path | None, address: str, samples: bytes, options: object) -> Self | None:
        """Describe the saved index in a folder.

        Returns None without a folder, or if the store does not identify versions of the object.
        """
        if folder is None or _core.identity_of(samples) is None:
            return None
        key = f"{_SAVED_VERSION} {_core.__version__} {address} {samples.hex()} {options!r}"
        return cls(folder / f"{digest(address)}.paceline-chunks", key)

    def load(self) -> ChunkIndex | None:
        """Load the index; None if it is missing or damaged, or has another key."""
        try:
            content = self.path.read_bytes()
            check, packed = content[:32], content[32:]
            if hashlib.sha256(packed).digest() != check:
                return None
            with np.load(io.BytesIO(packed), allow_pickle=False) as members:
                key, head = json.loads(str(members["head"]))
                if key != self.key:
                    return None
                found = _decode(head, [members[f"arr_{k}"] for k in range(len(members) - 1)])
        except (OSError, ArithmeticError, LookupError, TypeError, ValueError):
            return None
        return found if isinstance(found, ChunkIndex) else None

    def save(self, index: ChunkIndex) -> None:
        """Save the index, unless the folder cannot be written or a value cannot be encoded."""
        arrays: list[np.ndarray] = []
        packed = io.BytesIO()
        with suppress(OSError, TypeError):
            head = json.dumps([self.key, _encode(index, arrays)])
            np.savez(packed, *arrays, head=np.array(head))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(self.path, overwrite=True, binary=True) as file:
                file.write(hashlib.sha256(packed.getvalue()).digest() + packed.getvalue())


#: Classes of which saved indexes consist, by name.
_SAVED_CLASSES = {
    one.__name__: one for one in (ChunkIndex, ChunkTable, Cells, Dataset, Element, Filter)
}


def _encode(value: object, arrays: list[np.ndarray]) -> object:
    """Convert a part of an index to data for JSON.

    Arrays are appended to the list `arrays`, and replaced by their number in it.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays)
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    kind = type(value).__name__
    parts: Mapping[str, object] | None = None
    if is_dataclass(value):
        parts = vars(value)
    elif isinstance(value, Cells):
        parts = value._asdict()
    if parts is not None and kind in _SAVED_CLASSES:
        return {"class": kind, "parts": [_encode(list(parts.items()), arrays)]}
    if isinstance(value, Mapping):
        return {"map": [_encode(pair, arrays) for pair in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encode(one, arrays) for one in value]}
    raise TypeError(f"a {kind} cannot be saved")


def _decode(value: object, arrays: Sequence[np.ndarray]) -> Any:
    """Convert data that `_encode` returned back to a part of an index."""
    if not isinstance(value, dict):
        return value
    (kind, content), *more = value.items()
    if kind == "array":
        return arrays[content]
    if kind == "dtype":
        return np.dtype(content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "class":
        (parts,) = more[0][1]
        return _SAVED_CLASSES[content](**dict(_decode(parts, arrays)))
    found = [_decode(one, arrays) for one in content]
    return {"map": dict, "list": list, "tuple": tuple}[kind](found)


@dataclass(frozen=True)
class FileDatasets:
    """Datasets of one file, with all that a worker needs to read any frame."""

    path: str
    #: Fingerprint of the indexed file, and digests of some of its bytes, which identify it.
    samples: bytes
    n_atoms: int
    #: Positions, velocities and forces, without chunk tables and rows.
    elements: tuple[Element | None, ...]
    ids: Element | None
    id_order: np.ndarray | None
    #: "mpio" if the HDF5 library reads the file through MPI-IO.
    driver: str | None = None
    #: True if links and datasets that refer to other files are followed.
    external: bool = False
    #: mpi4py communicator whose ranks make each read call collectively; None without one.
    comm: Any = None

    def selected(self, fields: int) -> tuple[Element | None, ...]:
        """Return elements whose bit is set in `fields`, and None in place of all others."""
        bits = [fields & field_bits([field]) for field in FIELDS]
        return tuple(
            element if bit else None for element, bit in zip(self.elements, bits, strict=True)
        )


class ChunkReader:
    """Reads chunks at their offsets; `atoms` are increasing indices, None for all."""

    def __init__(
        self,
        file: FileDatasets,
        atoms: np.ndarray | None,
        fields: int,
        cache: Cache | None = None,
    ):
        self._elements = file.selected(fields)
        self._reader = _core.ChunkReader(
            file.path,
            file.samples,
            self._elements,
            n_atoms=file.n_atoms,
            atoms=atoms,
            ids=file.ids,
            id_order=file.id_order,
            cache=cache,
        )
        self.take_cache_use = self._reader.take_cache_use
        self.take_requests = self._reader.take_requests

    def _slices(self, index: BlockIndex) -> list[IndexSlice | None]:
        pairs = zip(self._elements, index.elements, strict=True)
        return [None if element is None else part for element, part in pairs]

    def read_ahead(self, extents: Extents) -> None:
        """Prefetch the bytes of frames that will be read soon."""
        self._reader.read_ahead(self._slices(extents.slices[0]))

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into `buffer`; return the time, the traffic and the damaged frames.

        If `buffer.validity` is not None, all chunks are verified to their end.
        """
        index = extents.slices[0]
        cost = self._reader.read(
            self._slices(index),
            # Messages use the frame's number in the file, whereas blocks use its number in the run.
            replace(buffer, frames=extents.frames.astype(np.int64)),
            ids=index.ids,
            required=required,
            skip=skip,
            whole=buffer.validity is not None,
        )
        index.fill(buffer, cost[-1])
        return cost
