"""Index of an HDF5 trajectory, and the core's reader of its chunks.

The index is plain data, its frames, its datasets and where their chunks lie, and workers load all
of it without h5py.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from paceline import _core
from paceline.block import CELL_WIDTH, FIELDS, FrameBuffer, field_bits, vectors_of
from paceline.contract.source import Extents, FileReadStats

#: HDF5's registered numbers of the filters that the core undoes.
DEFLATE, SHUFFLE, FLETCHER32, LZF, LZ4, ZSTD = 1, 2, 3, 32000, 32004, 32015
#: Names of these filters, and of others that are registered with HDF5.
FILTER_NAMES = {
    **{DEFLATE: "gzip", SHUFFLE: "shuffle", FLETCHER32: "fletcher32", LZF: "lzf"},
    **{LZ4: "lz4", ZSTD: "zstd", 307: "bzip2", 32001: "blosc", 32008: "bitshuffle"},
    **{32013: "zfp", 32017: "sz", 32024: "sz3", 32026: "blosc2"},
}
#: Row of a frame that an element does not hold.
ABSENT = -1
#: End of the doubt about times that the file does not have.
COUNTED = "frames count as 1 ps apart"


@dataclass(frozen=True)
class Filter:
    """One stage of a chunk's filter pipeline."""

    #: HDF5's registered number.
    number: int
    #: As the file has it, which may have none.
    name: str
    values: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Name and number.

        >>> Filter(32001, "").words
        'blosc (32001)'
        """
        name = FILTER_NAMES.get(self.number) or self.name or "without a name"
        return f"{name} ({self.number})"


def may_hide_damage(filters: Sequence[Filter]) -> bool:
    """Tell if HDF5 may read a damaged chunk without an error: hdf5plugin's Zstandard does.

    What it then gives is what was in memory before.
    """
    return any(stage.number == ZSTD for stage in filters)


@dataclass(frozen=True)
class ChunkTable:
    """Offset and size of each chunk of a dataset, in C order over the grid of chunks."""

    #: uint64, (n_chunks,), bytes; a chunk that was never written has size 0.
    offsets: np.ndarray
    sizes: np.ndarray
    #: uint32, (n_chunks,). Bit k: stage k of the filters was left out.
    masks: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """One dataset of numbers, and how its bytes are laid out."""

    name: str
    #: With the byte order of the file.
    dtype: np.dtype
    #: (rows, atoms, components), (rows, components × atoms) or (rows, atoms). A dataset that holds
    #: for all frames counts as one row.
    shape: tuple[int, ...]
    #: As many axes as `shape`; None for a contiguous dataset.
    chunk: tuple[int, ...] | None = None
    filters: Sequence[Filter] = ()
    #: First byte of a contiguous dataset.
    offset: int = 0
    table: ChunkTable | None = None
    #: One number, as the file holds it, for chunks that were never written.
    fill: bytes = b""
    #: Why only HDF5's own library can read it; empty where the core can.
    h5py_fallback: str = ""

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the numbers of a chunk; of a contiguous dataset, of all."""
        return math.prod(self.chunk or self.shape) * self.dtype.itemsize

    @property
    def chunk_row_bytes(self) -> int:
        """Bytes of one row of a chunk, or of a contiguous dataset."""
        return math.prod((self.chunk or self.shape)[1:]) * self.dtype.itemsize


@dataclass(frozen=True)
class Element:
    """A dataset as the frames of the trajectory see it.

    In our units a number is float32(number / divisor * scale) × factor.
    """

    dataset: Dataset
    #: int64, (n_frames,): `ABSENT` where a frame has none; None where frame k is row k.
    rows: np.ndarray | None = None
    factor: float = 1.0
    divisor: float = 1.0
    scale: float = 1.0

    def rows_of(self, frames: np.ndarray) -> np.ndarray:
        """Row of each frame: int64, `ABSENT` where a frame has none."""
        return np.asarray(frames if self.rows is None else self.rows[frames], dtype=np.int64)

    def frames_per_chunk(self, n_frames: int) -> int:
        """Frames that cost together what one of them costs, about."""
        chunk, n_rows = self.dataset.chunk, self.dataset.shape[0]
        # Unfiltered frames can each be read alone.
        if chunk is None or n_rows <= 1 or not self.dataset.filters:
            return 1
        return max(1, round(min(chunk[0], n_rows) * n_frames / n_rows))

    def without_frames(self) -> "Element":
        """The element without its row of each frame and its chunk table."""
        return replace(self, rows=None, dataset=replace(self.dataset, table=None))


@dataclass(frozen=True)
class ChunkExtents:
    """Bytes of the rows that are stored together."""

    #: uint64, (n_chunks along the first axis, chunks side by side).
    offsets: np.ndarray
    sizes: np.ndarray
    #: Rows of one chunk.
    n_rows: int

    @classmethod
    def of(cls, dataset: Dataset) -> "ChunkExtents":
        """Find them; all 0 where only HDF5's library knows them."""
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
    """Part of an element's chunk table that some frames need."""

    #: int64, (n_frames,): `ABSENT` where a frame has none.
    rows: np.ndarray
    #: uint64: numbers, along the first axis, of the chunks that hold any of the rows, distinct and
    #: rising. Empty for a contiguous dataset.
    chunk_numbers: np.ndarray
    #: uint64 and uint32, (n_numbers × chunks side by side,), in C order; as in `ChunkTable`.
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


def slice_of(element: Element, frames: np.ndarray) -> IndexSlice:
    """Cut the part of an element's chunk table that some frames, in any order, need.

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
    """Cells of all frames, each array with a row a frame, or with one row for all.

    `dimensions` are float32, (n_frames, 6), Å and degrees, zeros where there is none. `vectors` are
    float64, (n_frames, 3, 3), Å, where lengths and angles do not say how all of them lie.
    """

    dimensions: np.ndarray
    vectors: np.ndarray | None = None
    periodic: tuple[bool, bool, bool] = (True, True, True)


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Part of the index that the frames of one block need."""

    #: Positions, velocities and forces.
    elements: tuple[IndexSlice | None, ...]
    #: Particle ids, if atoms are in no fixed order.
    ids: IndexSlice | None
    #: Cells of these frames, or one for all.
    cells: Cells
    #: float64, (n_frames,), ps.
    times: np.ndarray
    #: int64, (n_frames,).
    steps: np.ndarray
    #: float32, (n_frames,), or None.
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
    """Everything that is known of an HDF5 trajectory before any of its positions is read."""

    #: "H5MD", "NetCDF-4", "MDTraj HDF5" or "HDF5".
    format: str
    n_frames: int
    n_atoms: int
    #: "positions", "velocities", "forces": those that the file has.
    elements: Mapping[str, Element]
    #: float64, (n_frames,), ps; the frame's number where the file has no times.
    times: np.ndarray
    #: int64, (n_frames,).
    steps: np.ndarray
    cells: Cells
    #: float32, (n_frames,): λ of a free-energy run; None where the file has none.
    lambdas: np.ndarray | None = None
    #: Particle ids of each frame, where atoms are in no fixed order.
    ids: Element | None = None
    #: With `ids`: int64, (n_atoms,), the id of each of our atoms, rising.
    id_order: np.ndarray | None = None
    #: For `paceline info`, in the order in which they are shown.
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    #: Why times are not known, and frames are counted; None where they are.
    time_doubt: str | None = None

    def of_block(self, frames: np.ndarray) -> BlockIndex:
        """Cut the part that some frames need."""
        return BlockIndex(
            tuple(_slice(self.elements.get(field), frames) for field in FIELDS),
            _slice(self.ids, frames),
            self._cells_in(frames),
            self.times[frames],
            self.steps[frames],
            None if self.lambdas is None else self.lambdas[frames],
        )

    def _cells_in(self, frames: np.ndarray) -> Cells:
        """Cells of some frames, or the one that all share."""
        dimensions, vectors, periodic = self.cells
        shared = len(dimensions) != self.n_frames
        if vectors is not None and len(vectors) == self.n_frames:
            vectors = vectors[frames]
        return Cells(dimensions if shared else dimensions[frames], vectors, periodic)


def _rows_of(cells: Cells) -> np.ndarray:
    """Cells as rows of `FrameBuffer.cells`."""
    rows = _core.cells_of_dimensions(np.ascontiguousarray(cells.dimensions))
    if cells.vectors is not None or not all(cells.periodic):
        vectors = vectors_of(rows) if cells.vectors is None else cells.vectors
        rows = np.broadcast_to(rows, (max(len(rows), len(vectors)), CELL_WIDTH)).copy()
        has_cell = rows[:, :3].any(axis=1)
        given = _core.cells_of_vectors(np.ascontiguousarray(vectors), cells.periodic)
        # Lengths and angles are those that were read: they are MDAnalysis's.
        rows[has_cell, 6:] = np.broadcast_to(given, rows.shape)[has_cell, 6:]
    return rows


def _slice(element: Element | None, frames: np.ndarray) -> IndexSlice | None:
    return None if element is None else slice_of(element, frames)


@dataclass(frozen=True)
class FileDatasets:
    """Datasets of one file as a worker knows them, whichever frames it reads."""

    path: str
    #: Fingerprint of the file that was indexed, and digests of parts of it.
    samples: bytes
    n_atoms: int
    #: Positions, velocities and forces, without chunk tables and rows.
    elements: tuple[Element | None, ...]
    ids: Element | None
    id_order: np.ndarray | None
    #: "mpio" where HDF5's own library is to read it, through MPI-IO.
    driver: str | None = None
    #: Links and datasets that lead into other files are followed.
    external: bool = False
    #: mpi4py's communicator of the ranks that make each reading call together.
    comm: Any = None

    def selected(self, fields: int) -> tuple[Element | None, ...]:
        """Elements whose bit is set in `fields`; None for the others, and those not there."""
        bits = [fields & field_bits([field]) for field in FIELDS]
        return tuple(
            element if bit else None for element, bit in zip(self.elements, bits, strict=True)
        )


class ChunkReader:
    """Read chunks at their offsets; atoms rise, None for all."""

    def __init__(self, file: FileDatasets, atoms: np.ndarray | None, fields: int):
        self._elements = file.selected(fields)
        self._reader = _core.ChunkReader(
            file.path,
            file.samples,
            self._elements,
            n_atoms=file.n_atoms,
            atoms=atoms,
            ids=file.ids,
            id_order=file.id_order,
        )

    def _slices(self, index: BlockIndex) -> list[IndexSlice | None]:
        pairs = zip(self._elements, index.elements, strict=True)
        return [None if element is None else part for element, part in pairs]

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon."""
        self._reader.read_ahead(self._slices(extents.slices[0]))

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into arrays; a validity check wants every byte looked at."""
        index = extents.slices[0]
        cost = self._reader.read(
            self._slices(index),
            # Messages count frames in the file, blocks in the run.
            replace(buffer, frames=extents.frames.astype(np.int64)),
            ids=index.ids,
            required=required,
            skip=skip,
            whole=buffer.validity is not None,
        )
        index.fill(buffer, cost[-1])
        return cost
