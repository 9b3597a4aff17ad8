"""HDF5 trajectories: opening and indexing, with options for facts that files do not state."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline import _core
from paceline._util.files import is_address, is_confined
from paceline.block import FIELDS, field_bits
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import FileReader, Requests, TrajectoryFile
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    MissingDataError,
    PacelineError,
    UnsupportedError,
)
from paceline.hdf5.chunk_index import (
    ABSENT,
    BlockIndex,
    ChunkExtents,
    ChunkIndex,
    ChunkReader,
    Element,
    FileDatasets,
    SavedChunkIndex,
)
from paceline.hdf5.file_objects_for_h5py import end_of_search, is_readable, open_bytes
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.hdf5.units import mdanalysis_spelling

if TYPE_CHECKING:
    from paceline.hdf5.file import File
    from paceline.hdf5.read_observables import Quantities

#: Signature of an HDF5 file. It is at the beginning, or follows a user block, whose size is 512
#: bytes times a power of 2.
SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: Size of the beginning of a superblock that contains the stated end of the file, bytes.
_SUPERBLOCK = 64
#: Prefix of the note on a file that is shorter than it states.
TRUNCATED = "the file was cut"
#: Prefix of the note on a file that has lost or gained bytes.
CONTRADICTS = "the size of the file contradicts its header"
#: Maximum number of attempts to open a file that changes meanwhile.
_TRIES = 10
#: Limit above which the absolute value of a time is treated as impossible, ps.
_TIME_MAX = 1e15
#: Limit above which an edge of a cell is treated as impossible, Å.
_EDGE_MAX = 1e9
#: File name extensions of HDF5 trajectories.
EXTENSIONS = ("h5md", "h5", "hdf5")
#: Names of the h5py drivers that read or write a single ordinary file.
ONE_FILE_DRIVERS = ("sec2", "stdio", "core")
#: Drivers of h5py that a note reports as unused.
UNUSED_DRIVERS = ("mpio", "stdio", "core")
#: Command-line option for each field of `Hdf5Options` that has one.
_OPTIONS = {
    "group": "--particles",
    "units": "--units",
    "dataset": "--dataset",
    "external": "--external",
}


@dataclass(frozen=True)
class Hdf5Options:
    """Options that a user sets for HDF5 files."""

    #: Name of the particles group; required if several groups contain trajectories.
    group: str | None = None
    #: Units, such as {"length": "nm", "time": "ps"} or "nm, ps"; for LAMMPS dumps, a style such as
    #: "real".
    units: str | Mapping[str, str] | None = None
    #: Dataset that is read as positions, in a file of any convention.
    dataset: str | None = None
    #: h5py driver: "mpio" reads with the HDF5 library through MPI-IO, if h5py was built with MPI.
    #: Other drivers have no effect.
    driver: str | None = None
    #: True to follow links and datasets that refer to other files.
    external: bool = False

    def __post_init__(self) -> None:
        if self.external and is_confined():
            raise UnsupportedError("external: a confined command does not follow links to files")
        if self.driver not in (None, "mpio", *ONE_FILE_DRIVERS):
            raise UnsupportedError(
                f"driver: expected none, mpio, or one of {', '.join(ONE_FILE_DRIVERS)}, found "
                f"{self.driver!r}: an HDF5 trajectory is a single ordinary file"
            )

    @property
    def contents(self) -> dict[str, Any]:
        """Return the options for `paceline.hdf5.open_any_convention.read_chunk_index`."""
        return {"group": self.group, "units": self.units, "dataset": self.dataset}

    def check_unset(self, path: str) -> None:
        """Raise `UnsupportedError` if an option is set for a file that is not an HDF5 file.

        Units are allowed, because some other formats have them, too; they are checked elsewhere.
        """
        for name, value in vars(self).items():
            if value not in (None, False) and name != "units":
                option = f" ({_OPTIONS[name]})" if name in _OPTIONS else ""
                raise UnsupportedError(
                    f"{path}: {name}={option} applies to HDF5 files, and this is not one"
                )


NO_OPTIONS = Hdf5Options()


def note_on_driver(driver: str) -> str:
    """Return a note that an h5py driver has no effect."""
    why = "this h5py was built without MPI" if driver == "mpio" else "it changes no number"
    return f'driver="{driver}" is not used, because {why}: paceline reads and writes by itself'


def is_hdf5(path: str | os.PathLike) -> bool:
    """True if the content of a file is HDF5."""
    # A pipe is not opened, because opening would wait for its writer.
    return is_readable(path) and bool(_read_superblock(path))


def _read_superblock(path: str | os.PathLike, samples: bytes | None = None) -> bytes:
    """Read the first bytes of the superblock, from the signature on; empty without a signature."""
    with open_bytes(path, samples) as file:
        size = end_of_search(path, file.seek(0, os.SEEK_END))
        offset = 0
        while offset + len(SIGNATURE) <= size:
            file.seek(offset)
            head = file.read(_SUPERBLOCK) or b""
            if head.startswith(SIGNATURE):
                return head
            offset = max(512, 2 * offset)
    return b""


def _stated_size(path: str, samples: bytes) -> int:
    """Return the end of the file that the superblock states, bytes."""
    head = _read_superblock(path, samples)
    version = head[len(SIGNATURE)]
    # The superblock states the size of addresses. The third address is the end of the file, in old
    # and new versions.
    width, first = (head[13], (24, 28)[version]) if version < 2 else (head[9], 12)
    return int.from_bytes(head[first + 2 * width : first + 3 * width], "little")


@dataclass(frozen=True)
class Hdf5FileSpec(FileDatasets):
    """Description of an HDF5 file for workers. It can be pickled unless it has a communicator."""

    @classmethod
    def of(
        cls, path: str, samples: bytes, index: ChunkIndex, driver: str | None, external: bool
    ) -> "Hdf5FileSpec":
        """Create the description of an indexed file for workers."""
        return cls(
            path,
            samples,
            index.n_atoms,
            tuple(_without_frames(index.elements.get(field)) for field in FIELDS),
            _without_frames(index.ids),
            index.id_order,
            driver,
            external,
        )

    def open(self, atoms: np.ndarray | None, fields: int, cache: Cache | None = None) -> FileReader:
        """Open the file with the compiled module if it can read the fields, otherwise with h5py."""
        found = [element for element in (*self.selected(fields), self.ids) if element is not None]
        if self.driver is not None or any(element.dataset.h5py_fallback for element in found):
            # Deferred: other workers do not load the HDF5 library.
            from paceline.hdf5.h5py_reader import H5pyReader

            return H5pyReader(self, atoms, fields)
        return ChunkReader(self, atoms, fields, cache)


def _state_of(path: str) -> tuple[int, int] | None:
    """Return size and time of the last change of a file; None if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _without_frames(element: Element | None) -> Element | None:
    return None if element is None else element.without_frames()


class Hdf5File:
    """HDF5 trajectory with its index: a `paceline.contract.source.TrajectoryFile`."""

    #: None, because each frame has its own time, no index file lies beside the trajectory, reads
    #: are not counted, and the unit of length is known.
    dt = index_file = traffic = length_doubt = None
    first = 0.0
    index_origin: str = "HDF5's own"
    #: Requests to an object store that the helper process sent in order to index the file.
    requests = Requests()

    def __init__(
        self,
        path: str,
        samples: bytes,
        chunk_index: ChunkIndex,
        driver: str | None = None,
        external: bool = False,
    ):
        self.path = path
        self.external = external
        self.driver = driver
        self.samples = samples
        self.fingerprint = _core.fingerprint_of(samples)
        self.chunk_index = chunk_index
        # The first 16 hexadecimal digits of a fingerprint are the size of the file.
        self.size = int(self.fingerprint[:16], 16)
        self.notes = [
            *chunk_index.notes,
            *_unwritten_notes(chunk_index),
            *_fallback_notes(chunk_index),
        ]

    @classmethod
    def open(
        cls,
        path: str,
        options: Hdf5Options,
        *,
        cache_folder: Path | None = None,
        refresh: bool = False,
    ) -> "Hdf5File":
        """Index a file, and verify that the compiled module and HDF5 read equal values.

        Only the sandbox calls HDF5.

        The index of an object in an object store is saved in `cache_folder`, because reading its
        table of chunks takes long. Local files are always indexed anew: a change of metadata may
        not be detected, because only some bytes of a file are compared.
        """
        if not is_address(path):
            return cls._open_local(path, options)
        samples = _core.samples_of(path)
        saved = SavedChunkIndex.of(cache_folder, path, samples, options)
        index = None if saved is None or refresh or options.driver == "mpio" else saved.load()
        if index is not None:
            file = cls(path, samples, index, None, options.external)
            file.index_origin = "loaded"
            return file
        file = run_in_sandbox(cls._open, path, options=options, samples=samples)
        if saved is not None and file.driver is None:
            saved.save(file.chunk_index)
        return file

    @classmethod
    def _open_local(cls, path: str, options: Hdf5Options) -> "Hdf5File":
        """Index a local file.

        If the file looks damaged and has changed meanwhile, a program may have been writing a
        frame, and the file is indexed again.
        """
        for _ in range(_TRIES - 1):
            before = _state_of(path)
            try:
                return run_in_sandbox(cls._open, path, options=options)
            except (DamagedFileError, FileChangedError):
                if _state_of(path) == before:
                    raise
        return run_in_sandbox(cls._open, path, options=options)

    @classmethod
    def _open(cls, path: str, *, options: Hdf5Options, samples: bytes | None = None) -> "Hdf5File":
        # Deferred: only the sandbox loads the HDF5 library.
        from paceline.hdf5.dataset_description import refuse_shared
        from paceline.hdf5.file import File, damaged, has_mpi_build
        from paceline.hdf5.h5py_reader import verify_decoding
        from paceline.hdf5.open_any_convention import read_chunk_index

        driver = options.driver if options.driver == "mpio" and has_mpi_build() else None
        before = Requests.so_far()
        samples = samples or _core.samples_of(path)
        with File(path, external=options.external, samples=samples) as opened:
            try:
                with opened.explain_truncation():
                    index = read_chunk_index(opened, **options.contents)
                index = refuse_shared(opened, index)
            except (MissingDataError, UnsupportedError) as error:
                if opened.not_followed:
                    error.args = (f"{error}; {_note_not_followed(opened.not_followed)}",)
                raise
            except PacelineError:
                raise
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                found = f"one that contradicts itself ({type(error).__name__}: {error})"
                raise damaged(path, "", "an HDF5 trajectory", found) from error
            if opened.not_followed:
                note = _note_not_followed(opened.not_followed)
                index = replace(index, notes=[*index.notes, note])
            index, is_odd = _without_impossible(index)
            notes = _size_notes(opened, samples, is_odd=is_odd)
            index = replace(index, notes=[*notes, *index.notes])
        if options.driver not in (None, "sec2", driver):
            index = replace(index, notes=[note_on_driver(options.driver), *index.notes])
        if driver is None:
            spec = Hdf5FileSpec.of(path, samples, index, None, options.external)
            index = verify_decoding(spec, index)
        file = cls(path, samples, index, driver, options.external)
        file.requests = Requests.so_far().since(before)
        return file

    @property
    def time_doubt(self) -> str | None:
        """Reason why times are unknown; None if they are known."""
        return self.chunk_index.time_doubt

    @property
    def frames_counted(self) -> bool:
        """True if the file stores no times, so that they are computed from frame numbers."""
        return self.chunk_index.time_doubt is not None

    @property
    def format(self) -> str:
        """Name of the format in the user interface."""
        return self.chunk_index.format

    @property
    def units(self) -> dict[str, str]:
        """Unit of each quantity in the file, in MDAnalysis's notation; empty if unknown."""
        pairs = str(self.chunk_index.facts.get("units", "")).split(", ")
        stated = (pair.partition(" ") for pair in pairs if pair)
        return {quantity: mdanalysis_spelling(unit) for quantity, _, unit in stated}

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame."""
        return self.chunk_index.n_atoms

    #: None, because all frames have the same number of atoms.
    varying = atom_counts = None

    def spec_of(self, frame: int) -> tuple["Hdf5FileSpec", int]:
        """Return the description of one frame for a worker, and its number of atoms."""
        return self.spec, self.n_atoms

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.chunk_index.n_frames

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame, bytes."""
        return self.size / self.n_frames

    @property
    def fields(self) -> int:
        """Bits of the fields that frames may contain."""
        return field_bits(list(self.chunk_index.elements))

    @property
    def group(self) -> str | None:
        """Name of the group of particles of an H5MD file."""
        group = self.chunk_index.facts.get("group")
        return None if group is None else str(group)

    @cached_property
    def observables(self) -> "Quantities":
        """Observables by name, such as energies."""
        from paceline.hdf5.read_observables import find_observables

        return run_in_sandbox(find_observables, self.path, external=self.external)

    @cached_property
    def properties(self) -> "Quantities":
        """Properties of the particles by name, such as masses."""
        from paceline.hdf5.read_observables import find_properties

        return run_in_sandbox(find_properties, self.path, group=self.group, external=self.external)

    @cached_property
    def spec(self) -> Hdf5FileSpec:
        """Description of the file for workers."""
        return Hdf5FileSpec.of(
            self.path, self.samples, self.chunk_index, self.driver, self.external
        )

    @property
    def datasets(self) -> tuple[str, ...]:
        """Paths of the datasets of positions, velocities, forces and particle ids."""
        index = self.chunk_index
        ids = [] if index.ids is None else [index.ids]
        return tuple(element.dataset.name for element in [*index.elements.values(), *ids])

    @property
    def conversion(self) -> tuple[object, ...]:
        """Factors of the datasets, and the converted times and cells."""
        elements = self.chunk_index.elements.values()
        # `float`, because a loaded index contains Python's numbers in place of NumPy's.
        factors = [(float(one.factor), float(one.divisor), float(one.scale)) for one in elements]
        cells = self.chunk_index.cells
        return factors, self.chunk_index.times, cells.dimensions, cells.vectors

    @property
    def chunk_frames(self) -> int:
        """Maximum number of adjacent frames that share a chunk with filters; 1 without filters."""
        elements = self.chunk_index.elements.values()
        return max(element.frames_per_chunk(self.n_frames) for element in elements)

    @cached_property
    def damaged(self) -> list[int]:
        """Frames whose bytes are beyond the end of the file, or have an impossible location.

        For example, the location is impossible if two chunks share bytes.
        """
        frames = np.arange(self.n_frames)
        lost = np.zeros(self.n_frames, dtype=bool)
        for element in self.chunk_index.elements.values():
            extents = ChunkExtents.of(element.dataset)
            # Subtract from the size of the file: adding to the offset `NOWHERE` would overflow.
            ends = self.size - np.minimum(extents.sizes, self.size)
            outside = (extents.offsets > ends).any(axis=1)
            rows = element.rows_of(frames)
            there = rows != ABSENT
            lost[there] |= outside[rows[there] // extents.n_rows]
        return np.flatnonzero(lost).tolist()

    @property
    def _main(self) -> Element:
        """First existing element of positions, velocities and forces."""
        elements = self.chunk_index.elements
        return next(elements[field] for field in FIELDS if field in elements)

    @cached_property
    def _main_extents(self) -> ChunkExtents:
        return ChunkExtents.of(self._main.dataset)

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the byte offset and size of each frame, uint64; 0 if only HDF5 can locate them.

        Frames that share chunks get the first offset of the chunks, and equal shares of the chunks'
        bytes.
        """
        if len(frames) and frames.max() >= self.n_frames:
            raise ValueError(f"frame {frames.max()} is out of range for {self.n_frames} frames")
        found, rows = self._main_extents, self._main.rows_of(frames)
        there, chunks = rows != ABSENT, rows // found.n_rows
        offsets = found.offsets[chunks].min(axis=1)
        sizes = found.sizes[chunks].sum(axis=1) // np.uint64(found.n_rows)
        nothing = np.uint64(0)
        return np.where(there, offsets, nothing), np.where(there, sizes, nothing)

    def slice_of(self, frames: np.ndarray) -> BlockIndex:
        """Return the part of the index that workers need in order to read these frames."""
        return self.chunk_index.of_block(frames.astype(np.int64))

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times (ps) and steps of all frames."""
        return self.chunk_index.times, self.chunk_index.steps

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Properties (name, value) that must agree between the files of one trajectory."""
        from paceline.hdf5.copy_rows import traits_of

        own = [("format", self.format), ("number of atoms", str(self.n_atoms))]
        return own + (traits_of(self.path, self.group) if self.format == "H5MD" else [])

    def head(self, first: int, n_frames: int) -> bytes:
        """Raise `UnsupportedError`, because frames of HDF5 files cannot be copied as bytes."""
        raise UnsupportedError(
            f"{self.path}: frames of an HDF5 file cannot be copied as bytes; "
            "paceline convert writes them again"
        )

    def verify(self) -> None:
        """Raise `FileChangedError` if the file at this path has changed since it was opened."""
        _core.verify(self.path, self.fingerprint)


def _without_impossible(index: ChunkIndex) -> tuple[ChunkIndex, bool]:
    """Remove impossible times and cells from an index.

    Returns the index, and True if there were any of these, or if times decrease.
    """
    times, cells = index.times, index.cells.dimensions
    no_time = ~(np.abs(times) < _TIME_MAX)
    no_cell = ~(np.abs(cells) < _EDGE_MAX).all(axis=1)
    notes = []
    if no_time.any():
        first = int(no_time.argmax())
        notes.append(
            f"{no_time.sum()} of {len(times)} frames have an impossible time, first frame {first} "
            f"({times[first]:g} ps): their times are treated as unknown"
        )
        times = np.where(no_time, np.nan, times)
    if no_cell.any():
        first = int(no_cell.argmax())
        notes.append(
            f"{no_cell.sum()} of {len(cells)} cells are impossible, first that of frame {first} "
            f"({' '.join(f'{value:g}' for value in cells[first])}): these frames get no cell"
        )
        cells = np.where(no_cell[:, None], np.float32(0), cells)
    is_odd = bool(notes) or bool((np.diff(times) < 0).any())
    changed = replace(
        index,
        times=times,
        cells=index.cells._replace(dimensions=cells),
        notes=[*notes, *index.notes],
        is_as_stored=index.is_as_stored and not notes,
    )
    return changed, is_odd


def _size_notes(file: "File", samples: bytes, *, is_odd: bool) -> Iterator[str]:
    """Yield notes on a file whose size differs from the stated one.

    `is_odd` is true if some times or cells of the file are impossible, or if times decrease.
    """
    size, full_size = file.size, file.full_size
    if full_size is not None:
        yield (
            f"{TRUNCATED}: {size} of {full_size} bytes are left; if the missing bytes were in "
            "its middle, all numbers after them are wrong"
        )
        return
    stated = _stated_size(file.path, samples)
    if size <= stated:
        return
    wrong = "bytes were inserted, and all numbers after them are wrong"
    if is_odd:
        yield (
            f"{CONTRADICTS}: {size} bytes, expected {stated}; {wrong}; copy it again "
            "from a complete copy"
        )
    else:
        yield (
            f"{size - stated} bytes follow the stated end of the file, byte {stated}: a program "
            f"is writing it, or was killed while writing; or {wrong}"
        )


def _note_not_followed(found: list[str]) -> str:
    return f"not followed without external=True (--external): {found[0]}"


def _unwritten_notes(index: ChunkIndex) -> Iterator[str]:
    """Yield notes on frames in chunks that were never written, which HDF5 fills with a constant."""
    for element in index.elements.values():
        dataset = element.dataset
        if dataset.chunk is None or dataset.table is None:
            continue
        empty = (dataset.table.sizes == 0).reshape(-(-dataset.shape[0] // dataset.chunk[0]), -1)
        rows = element.rows_of(np.arange(index.n_frames))
        held = np.flatnonzero(rows != ABSENT)
        frames = held[empty.any(axis=1)[rows[held] // dataset.chunk[0]]]
        if len(frames):
            fill = np.frombuffer(dataset.fill, dataset.dtype)[0]
            yield (
                f"{dataset.name}: {len(frames)} of {index.n_frames} frames have numbers that were "
                f"never written and are read as {fill:g}; the first is frame {frames[0]}"
            )


def _fallback_notes(index: ChunkIndex) -> Iterator[str]:
    ids = {} if index.ids is None else {"numbers of atoms": index.ids}
    for what, element in {**index.elements, **ids}.items():
        if element.dataset.h5py_fallback:
            yield (
                f"{what} are read through HDF5's own library, which is slower: "
                f"{element.dataset.h5py_fallback}"
            )


def collective_specs(files: Sequence[TrajectoryFile], comm: object) -> list[Hdf5FileSpec]:
    """Describe files that all ranks of `comm` read collectively."""
    specs = []
    for file in files:
        if not isinstance(file, Hdf5File):
            raise UnsupportedError(f"{file.path}: collective=True requires HDF5 files")
        for field, element in file.chunk_index.elements.items():
            if element.rows is not None and (element.rows == ABSENT).any():
                raise UnsupportedError(
                    f"{file.path}: not all frames contain {field}, but ranks that read "
                    "collectively must "
                    "all read the same fields of each frame; omit collective=True"
                )
        specs.append(replace(file.spec, comm=comm))
    return specs
