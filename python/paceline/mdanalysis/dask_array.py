"""Frames as a lazy Dask array, whose chunks are read where they are computed."""

import pickle
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline._util.arguments import slice_of
from paceline._util.machine_and_software import available_cpus
from paceline._util.sorted_unique import sorted_unique
from paceline.block import FrameBuffer, field_bits
from paceline.contract.plan import make_plan
from paceline.contract.source import Extents, FrameReader, FrameSource
from paceline.contract.system_interface import Atoms
from paceline.errors import MissingDataError, UnsupportedError

if TYPE_CHECKING:
    import dask.array
    from MDAnalysis import AtomGroup


def dask_array(
    atomgroup: "AtomGroup",
    *,
    field: str = "positions",
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    block_frames: int | None = None,
) -> "dask.array.Array":
    """Create a lazy Dask array of the frames of a group of atoms.

    No frame is read until part of the array is computed. A chunk is a block of frames, which is
    read on the worker that computes it. Workers load neither MDAnalysis nor the topology.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms, in this order.
    field : {"positions", "velocities", "forces"}
        Quantity to read.
    start, stop, step : int, optional
        Frames, as in a slice.
    block_frames : int, optional
        Number of frames in a chunk, rounded up to 16 (less for large systems) times a power of two.
        By default a chunk has at most 16 MiB, or more if the file stores that many frames as one
        chunk.

    Returns
    -------
    dask.array.Array of float32, shape (n_frames, n_atoms, 3)
        Positions (Å), velocities (Å/ps) or forces (kJ/(mol·Å)). A damaged frame raises
        `DamagedFileError` when its chunk is computed.

    Raises
    ------
    UnsupportedError
        Dask is not installed, or the frames are read or transformed by MDAnalysis, which needs a
        single thread.
    MissingDataError
        The file lacks the field.
    ValueError
        The field is unknown, or no atom or no frame is selected.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> positions = paceline.dask_array(ca)
    >>> positions.shape, positions.dtype
    ((98, 214, 3), dtype('float32'))
    >>> positions.mean(axis=0).compute().shape
    (214, 3)
    """
    try:
        import dask.array
        from dask.base import tokenize
        from dask.highlevelgraph import HighLevelGraph
    except ImportError as error:
        raise UnsupportedError(
            "dask_array needs the package dask; install it with: pip install 'paceline[dask]'"
        ) from error
    frames = _Frames(atomgroup, field, slice_of(start, stop, step), block_frames)
    name = f"paceline-{field}-{tokenize(*frames.identity)}"
    shape = (len(frames.plan.frames), len(frames.indices), 3)
    graph = HighLevelGraph.from_collections(name, frames.graph(name), dependencies=[])
    sizes = tuple(rows.stop - rows.start for rows in frames.plan.blocks())
    return dask.array.Array(
        graph, name, (sizes, shape[1:2], shape[2:]), meta=np.empty((0, 0, 0), dtype=np.float32)
    )


class _Frames:
    """Chosen frames of a group of atoms, cut into chunks."""

    def __init__(self, atomgroup: Atoms, field: str, frames: slice, block_frames: int | None):
        from paceline.mdanalysis.open_atomgroup_trajectory import open_trajectory

        field_bits([field])
        self._trajectory = open_trajectory([atomgroup.atoms])
        path = self._trajectory.provenance()["trajectory"]
        if not self._trajectory.shareable:
            raise UnsupportedError(
                f"{path}: its frames are read or transformed by MDAnalysis, which needs a single "
                "thread; convert the file, or use paceline's transformations"
            )
        if field not in self._trajectory.fields:
            held = " and ".join(self._trajectory.fields)
            raise MissingDataError(
                f"{path}: {field} were requested, but the trajectory contains {held} only"
            )
        numbers = np.arange(self._trajectory.n_frames)[frames]
        if len(numbers) == 0:
            raise ValueError(
                f"no frames to read: the trajectory has {self._trajectory.n_frames}, "
                "none was chosen"
            )
        self.indices = np.asarray(atomgroup.atoms.indices, dtype=np.int64)
        if self._trajectory.loaded is not None:
            self._trajectory.loaded.check(self.indices)
        atoms = sorted_unique(self.indices)
        self._columns = None
        if not np.array_equal(atoms, self.indices):
            self._columns = np.searchsorted(atoms, self.indices)
        self._field = field
        self._source = self._trajectory.frame_source(atoms, [field], [field])
        self._locate = self._trajectory.locator(self._source, by_file=False)
        self.plan = make_plan(
            numbers,
            n_atoms=self._trajectory.n_atoms,
            n_wanted=len(atoms),
            frame_bytes=self._trajectory.frame_bytes(atoms),
            n_workers=available_cpus(),
            block_frames=block_frames,
            chunk_frames=self._trajectory.chunk_frames,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """Return values that determine the numbers in the Dask array, except for the field."""
        frames = self.plan.frames, self.plan.block_frames
        return *self._trajectory.identity, self.indices, *frames

    def graph(self, name: str) -> Mapping[Any, Any]:
        """Create Dask's graph: the source once, and each chunk with its part of the index."""
        # For 10,000 chunks, building the graph directly takes 6 ms, whereas `from_delayed` and
        # `concatenate` take 2.7 s.
        shared = f"source-{name}"
        chunks = {
            (name, number, 0, 0): (_read_chunk, shared, self._pack_chunk(rows))
            for number, rows in enumerate(self.plan.blocks())
        }
        return {shared: _SharedSource(self._source, self._columns, self._field), **chunks}

    def _pack_chunk(self, rows: slice) -> bytes:
        """Pickle the frame numbers of a chunk and their extents.

        Pickling is necessary, because Dask passes unaligned arrays, which the compiled module
        refuses.
        """
        frames = self.plan.frames[rows]
        return pickle.dumps((frames, self._locate(frames)))


class _OfThread(threading.local):
    """Thread-local state: the reader of the thread, None before it is created."""

    reader: FrameReader | None = None


class _SharedSource:
    """Source of a Dask worker's chunks; each thread of the worker opens the files on its own."""

    def __init__(self, source: FrameSource, columns: np.ndarray | None, field: str):
        self._source = source
        self._columns = columns
        self._field = field
        self._here = _OfThread()

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return _unpack, (pickle.dumps((self._source, self._columns, self._field)),)

    def read(self, frames: np.ndarray, extents: Extents) -> np.ndarray:
        """Read the field, ndarray of float32, shape (n_frames, n_atoms, 3)."""
        decoded = FrameBuffer.allocate(frames, self._source.n_wanted, [self._field])
        self._reader().read(extents, decoded, skip=False)
        values = decoded.array_of(self._field)
        return values if self._columns is None else values[:, self._columns]

    def _reader(self) -> FrameReader:
        if self._here.reader is None:
            self._here.reader = self._source.open()
        return self._here.reader


def _unpack(packed: bytes) -> _SharedSource:
    return _SharedSource(*pickle.loads(packed))


def _read_chunk(source: _SharedSource, packed: bytes) -> np.ndarray:
    return source.read(*pickle.loads(packed))
