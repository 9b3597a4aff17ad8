"""Write an H5MD file in another layout: the same numbers, and everything else as it was."""

import math
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np

from paceline import _core
from paceline._core import __version__
from paceline._util.files import naming_file
from paceline._util.machine import current_command
from paceline._util.progress import Progress
from paceline.block import FrameBuffer
from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import (
    DEFLATE,
    FLETCHER32,
    LZ4,
    SHUFFLE,
    ZSTD,
    Element,
    may_hide_damage,
    slice_of,
)
from paceline.hdf5.dataset import describe_dataset
from paceline.hdf5.file import Array, File, Group, check_external_storage, damaged, wrap_errors
from paceline.hdf5.h5md_tree import ELEMENTS, mark_rounded
from paceline.hdf5.read_cost import AccessCost, layout_in_words, read_costs
from paceline.hdf5.storage_layout import (
    Compression,
    DatasetLayout,
    check_precision,
    choose_layout,
    chunk_encoder,
    parse_compression,
)
from paceline.hdf5.units import factor_of
from paceline.hdf5.writer import (
    AllocatedDataset,
    AppendedDataset,
    ChunkEncoder,
    EncodeQueue,
    NewFile,
    create_dataset,
    new_hdf5,
)

#: Bytes that a thread reads at a time, if chunks of no side need more.
PORTION = 16 * 2**20
#: Bytes of a chunk of steps, times and other small numbers of each frame.
SERIES_CHUNK = 64 * 2**10
#: Bytes of chunks that take longer to find than to read.
SMALL_CHUNK = 1024
#: Bytes in memory, at the most, so that each chunk is read once.
MOST_AT_ONCE = 2**30

#: Creates a dataset again: takes the old one, the new group, and the name there.
Create = Callable[[Any, Any, str], None]
#: Reads frames from a first one to another, which is left out.
_Read = Callable[[int, int], np.ndarray]


#: Object that has attributes.
H5Object: TypeAlias = h5py.Group | h5py.Dataset


@dataclass(frozen=True)
class Gain:
    """Layouts in words, and costs of reading, of a dataset before and after."""

    name: str
    layouts: tuple[str, str]
    costs: tuple[list[AccessCost], list[AccessCost]]


def repack(
    path: str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    chunk: str = "auto",
    for_: str = "frames",
    align: int | None = None,
    compress: str | None = None,
    precision: float | None = None,
    overwrite: bool = False,
    n_workers: int = 1,
    progress: bool | None = None,
) -> list[Gain]:
    """Write positions, velocities and forces of an H5MD file in another layout; return the gains.

    Everything else is copied as it is. Without `output`, the new file takes the place of the old
    one, once it is whole. `chunk`, `for_` and `align` are as for `choose_layout`, `compress` as for
    `parse_compression`: by default as it was, with gzip in place of methods other than gzip, zstd
    and lz4. Positions are rounded to multiples of `precision`, Å; without it all numbers stay the
    same to the last bit. Raises `UnsupportedError` for a file that is no H5MD, or numbers that are
    no floats of (frames, atoms, 3), and `UnwritableError` for one that is not finite.
    """
    check_precision(precision)
    path = os.path.realpath(path)
    target = path if output is None else os.fspath(output)
    with File(path) as file:
        arrays = _found(file)
        before = [_layout_and_costs(array) for array in arrays]
        rewrites = {
            array.name: _Rewrite(
                array,
                choose_layout(chunk, array.shape[1], for_=for_, align=align).within(array.shape[0]),
                _as_it_is(array) if compress is None else parse_compression(compress),
                _in_its_unit(precision, array),
            )
            for array in arrays
        }
        n_bytes = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
        with (
            new_hdf5(target, overwrite=overwrite or output is None, align=align) as made,
            ThreadPoolExecutor(n_workers, thread_name_prefix="paceline-repack") as pool,
            Progress(n_bytes, unit="byte", show=progress) as bar,
            naming_file(path),
        ):
            if not os.path.exists(target):
                shutil.copymode(path, made.path)
            destination = _Destination(made, pool, n_workers, bar)
            created: dict[str, Create] = dict.fromkeys(_series(file), join_chunks)
            created |= {
                name: partial(rewrite.create, destination) for name, rewrite in rewrites.items()
            }
            copy_tree(file, made.h5, created)
            _note_repacked(made.h5)
    with File(target) as file:
        after = [_layout_and_costs(file.root[name]) for name in rewrites]
    return [
        Gain(name, (old[0], new[0]), (old[1], new[1]))
        for name, old, new in zip(rewrites, before, after, strict=True)
    ]


def _found(file: File) -> list[Array]:
    """Find the datasets to rewrite, each once."""
    if file.full_size is not None:
        raise damaged(file.path, "", f"{file.full_size} bytes", f"{file.size}: the file was cut")
    arrays: dict[tuple[int, int], Array] = {}
    particles = file.root.group("particles")
    for group in particles.children() if particles is not None else ():
        for element in ELEMENTS.values():
            array = group.array(f"{element}/value") if isinstance(group, Group) else None
            if array is not None and 0 not in array.shape:
                arrays.setdefault(array.identity, array)
    if not arrays:
        raise UnsupportedError(
            f"{file.path}: no H5MD file with positions, velocities or forces: only those are "
            f"written anew; for other trajectories: paceline convert {shlex.quote(file.path)} "
            "new.h5md"
        )
    for array in arrays.values():
        if len(array.shape) != 3 or array.shape[2] != 3 or array.dtype.kind != "f":
            raise UnsupportedError(
                f"{file.path}: {array.name}: expected floats of (frames, atoms, 3), found "
                f"{array.dtype} of {array.shape}"
            )
    return list(arrays.values())


def _series(file: File) -> Iterator[str]:
    """Find datasets of few bytes a frame, steps and times above all, in too small chunks."""
    for name in ("particles", "observables"):
        top = file.root.group(name)
        for array in top.walk() if top is not None else ():
            if isinstance(array, Array) and array.chunk is not None and array.dtype.kind in "iuf":
                chunk, whole = (
                    math.prod(shape) * array.dtype.itemsize for shape in (array.chunk, array.shape)
                )
                small = chunk < SMALL_CHUNK and chunk < whole <= MOST_AT_ONCE
                if small and array.missing_filter is None:
                    yield array.name


def _as_it_is(array: Array) -> Compression:
    """Compression of a dataset, or gzip if paceline does not write its compression."""
    stages = {stage.number: stage.values for stage in array.filters}
    shuffle = SHUFFLE in stages
    if DEFLATE in stages:
        level = stages[DEFLATE][0]
        return Compression(shuffle, "gzip", level) if level else Compression()
    if ZSTD in stages:
        # Other programs may have written levels that are negative, or above paceline's.
        level = np.int32(np.uint32([*stages[ZSTD], 3][0])).item()
        return Compression(shuffle, "zstd", min(max(level, 1), 19))
    if LZ4 in stages:
        return Compression(shuffle, "lz4")
    compressed = [number for number in stages if number not in (SHUFFLE, FLETCHER32)]
    return Compression(shuffle, "gzip", 1) if compressed else Compression()


def _in_its_unit(precision: float | None, array: Array) -> float | None:
    """Convert a precision in Å to the unit of a dataset; None where it holds no positions."""
    if precision is None or not array.name.endswith("/position/value"):
        return None
    unit = array.attrs.get("unit")
    if not isinstance(unit, str):
        raise UnsupportedError(
            f"{array.file.path}: {array.name} has no unit: a precision in Å means nothing"
        )
    return precision / factor_of(unit, "length")


def _layout_and_costs(array: Any) -> tuple[str, list[AccessCost]]:
    """Layout of a dataset in words, and the costs of reading it."""
    dataset = describe_dataset(array)
    words = layout_in_words(dataset, array.shape[1])
    return words, read_costs(Element(dataset), array.shape[1])


def _note_repacked(h5: h5py.Group) -> None:
    """Add the program and its command to the notes of earlier ones in the file."""
    notes = h5.require_group("parameters/repacked")
    notes.create_dataset(str(len(notes) + 1), data=f"paceline {__version__}: {current_command()}")


@dataclass(frozen=True)
class _Destination:
    """New file, threads that read and encode, and the progress in bytes of numbers."""

    file: NewFile
    pool: ThreadPoolExecutor
    n_workers: int
    bar: Progress

    def advance(self, n_bytes: int) -> None:
        """Count bytes that were written, if the system took them."""
        self.bar.add(n_bytes)
        self.file.check()


@dataclass(frozen=True)
class _Rewrite:
    """Dataset of (frames, atoms, 3), and the storage of its copy; precision is in its unit."""

    array: Array
    layout: DatasetLayout
    compression: Compression
    precision: float | None

    def create(
        self, destination: _Destination, found: h5py.Dataset, group: h5py.Group, name: str
    ) -> None:
        """Create the copy in a group of the new file."""
        copy = create_dataset(
            destination.file.h5,
            f"{group.name.rstrip('/')}/{name}",
            found.shape,
            self.layout,
            dtype=found.dtype.newbyteorder("<").str,
            compression=self.compression,
            limit=found.maxshape,
        )
        copy_attributes(found, copy)
        core = chunk_encoder(
            self.layout,
            self.compression,
            precision=self.precision,
            what=self.array.name.split("/")[-2],
            dtype="<f4" if found.dtype.itemsize == 4 else "<f8",
        )
        read, encoder = self._reader_and_encoder(core, copy.dtype)
        # Threads read and encode; they also write to contiguous space, and chunks come in order.
        queue = EncodeQueue(destination.pool, destination.n_workers)
        kind = AllocatedDataset if self.layout.contiguous else AppendedDataset
        dataset = kind(destination.file.path, copy, self.layout, encoder, queue)
        for first, stop in self._parts(found, destination.n_workers + 1):
            dataset.add(first, stop - first, partial(read, first, stop), destination.advance)
        queue.put_all()
        if core.step is not None:
            mark_rounded(copy, core.step)

    def _reader_and_encoder(
        self, core: "_core.ChunkEncoder", dtype: np.dtype
    ) -> tuple[_Read, ChunkEncoder]:
        """Choose the core's where numbers have 32 bits, which it reads and encodes alone."""
        if dtype.itemsize == 4:
            return _reader_of(self.array), core
        wide = _WideEncoder(dtype, self.layout, self.compression, core.step)
        return _through_hdf5(self.array), wide

    def _parts(self, found: h5py.Dataset, at_once: int) -> Iterator[tuple[int, int]]:
        """Cut frames into parts that begin with a chunk of both sides, if memory allows."""
        frame = math.prod(found.shape[1:]) * found.dtype.itemsize
        unit = self.layout.frames
        both = math.lcm(unit, found.chunks[0] if found.chunks else 1)
        unit = both if both * frame * at_once <= MOST_AT_ONCE else unit
        n_frames = max(unit, PORTION // frame // unit * unit)
        for first in range(0, len(found), n_frames):
            yield first, min(first + n_frames, len(found))


@dataclass(frozen=True)
class _WideEncoder:
    """Encodes chunks of numbers that are not of 32 bits, which the core's encoder takes none of."""

    dtype: np.dtype
    layout: DatasetLayout
    compression: Compression
    #: Numbers are rounded to multiples of it.
    step: float | None

    def encode(self, values: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Encode frames that begin with a chunk: all chunks in C order, and the bytes of each."""
        values = _rounded(values, self.step)
        frames, atoms, _ = self.layout.chunk
        rows, columns = (range(0, values.shape[0], frames), range(0, values.shape[1], atoms))
        chunks = []
        for row, column in product(rows, columns):
            part = values[row : row + frames, column : column + atoms]
            whole = np.zeros(self.layout.chunk, dtype=self.dtype)
            whole[: part.shape[0], : part.shape[1]] = part
            chunks.append(self._packed(whole.tobytes()))
        return b"".join(chunks), np.array([len(chunk) for chunk in chunks], dtype=np.uint64)

    def write(self, path: Path, offsets: np.ndarray, values: np.ndarray, *, lead: int = 0) -> None:
        """Write frames to contiguous space."""
        with open(path, "r+b") as file:
            file.seek(int(offsets[0]))
            file.write(np.ascontiguousarray(_rounded(values, self.step), dtype=self.dtype).data)

    def _packed(self, chunk: bytes) -> bytes:
        if self.compression.method is None:
            return chunk
        return _core.pack_chunk(chunk, width=self.dtype.itemsize, **asdict(self.compression))


def _rounded(values: np.ndarray, step: float | None) -> np.ndarray:
    """Round to multiples of a step, where there is one."""
    return values if step is None else np.rint(values / step) * step


def _through_hdf5(array: Array) -> _Read:
    """Read through HDF5 numbers as they are, or, of 32 bits, in the machine's order of bytes."""
    array.check_filters()
    kind = np.float32 if array.dtype.itemsize == 4 else array.dtype

    def read(first: int, stop: int) -> np.ndarray:
        if check is not None:
            check(first, stop)
        return np.ascontiguousarray(array.part(slice(first, stop)), dtype=kind)

    check = None
    if may_hide_damage(array.filters) and not (dataset := describe_dataset(array)).h5py_fallback:
        check = _CoreReader(array.file.path, Element(dataset))
    return read


def _reader_of(array: Array) -> _Read:
    """Choose the core's reader where it reads the same as HDF5, or HDF5 cannot, else HDF5."""
    dataset = describe_dataset(array)
    if dataset.h5py_fallback:
        return _through_hdf5(array)
    through_core = _CoreReader(array.file.path, Element(dataset))
    if array.missing_filter is not None:
        return through_core
    through_hdf5 = _through_hdf5(array)
    same = np.array_equal(through_core(0, 1), through_hdf5(0, 1), equal_nan=True)
    return through_core if same else through_hdf5


class _OfThread(threading.local):
    """Reader of the calling thread."""

    reader: _core.ChunkReader | None = None


class _CoreReader:
    """Reads frames of one dataset, whose chunks are decoded to their end."""

    def __init__(self, path: str, element: Element):
        self._path, self._element = path, element
        self._samples = _core.samples_of(path)
        self._of_thread = _OfThread()

    def __call__(self, first: int, stop: int) -> np.ndarray:
        n_atoms = self._element.dataset.shape[1]
        reader = self._of_thread.reader
        if reader is None:
            known = replace(self._element, dataset=replace(self._element.dataset, table=None))
            reader = self._of_thread.reader = _core.ChunkReader(
                self._path, self._samples, [known, None, None], n_atoms=n_atoms
            )
        frames = np.arange(first, stop)
        block = FrameBuffer.allocate(frames, n_atoms, ["positions"])
        slices = [slice_of(self._element, frames), None, None]
        reader.read(slices, block, required=1, skip=False, whole=True)
        assert block.positions is not None
        return block.positions


def join_chunks(found: h5py.Dataset, group: h5py.Group, name: str) -> None:
    """Copy a small dataset to a group, in chunks of a usual size."""
    values = found[()]
    rows = max(1, SERIES_CHUNK // values[:1].nbytes)
    target = group.create_dataset(
        name,
        data=values,
        maxshape=found.maxshape,
        chunks=(min(rows, len(values)), *values.shape[1:]),
    )
    copy_attributes(found, target)


def copy_tree(source: File, target: h5py.Group, created: dict[str, Create]) -> None:
    """Copy groups, datasets, attributes and links of all kinds.

    Objects with several names have them in the copy too. References to objects, which a copy by
    HDF5 would make void, lead to the copies of these. Datasets whose paths are in `created` are
    created by its functions instead.
    """
    copier = _TreeCopier(source, target, created)
    copier.copy_group(source.h5, target)
    copier.translate_references()


def copy_attributes(source: H5Object, target: H5Object) -> None:
    """Copy attributes, but for references, which are translated at the end."""
    for name in source.attrs:
        kind = source.attrs.get_id(name).dtype
        if not _is_reference(kind):
            target.attrs.create(name, source.attrs[name], dtype=kind)


class _TreeCopier:
    """Copies objects once, and keeps where their copies are."""

    def __init__(self, source: File, target: h5py.Group, created: dict[str, Create]):
        self._file, self._source, self._target = source, source.h5, target
        self._created = {_identity(self._source[path]): create for path, create in created.items()}
        #: Paths of copies, by object of the source.
        self._copies: dict[tuple[int, int], str] = {_identity(self._source): "/"}
        self._pairs: list[tuple[H5Object, str]] = [(self._source, "/")]

    def copy_group(self, source: h5py.Group, target: h5py.Group) -> None:
        """Copy all that a group links to, and its attributes."""
        for name in source:
            link = source.get(name, getlink=True)
            if isinstance(link, h5py.HardLink):
                self._copy_object(source[name], target, name)
            else:
                target[name] = link
        copy_attributes(source, target)

    def _copy_object(self, found: H5Object, target: h5py.Group, name: str) -> None:
        """Copy an object, or link to its copy."""
        identity = _identity(found)
        if identity in self._copies:
            target[name] = self._target[self._copies[identity]]
            return
        self._copies[identity] = f"{target.name.rstrip('/')}/{name}"
        self._pairs.append((found, self._copies[identity]))
        if identity in self._created:
            self._created[identity](found, target, name)
        elif isinstance(found, h5py.Group):
            created = found.id.get_create_plist()
            h5py.h5g.create(target.id, name.encode(), gcpl=created)
            self.copy_group(found, target[name])
        else:
            with wrap_errors(self._file.path, found.name):
                self._source.copy(found, target, name)

    def translate_references(self) -> None:
        """Replace references to objects by references to their copies."""
        for found, copy in self._pairs:
            for name in found.attrs:
                if _is_reference(found.attrs.get_id(name).dtype):
                    translated = self._translated(found.attrs[name])
                    self._target[copy].attrs.create(name, translated, dtype=h5py.ref_dtype)
            if isinstance(found, h5py.Dataset) and _is_reference(found.dtype):
                check_external_storage(self._file, found.name, found)
                self._target[copy][...] = self._translated(found[...])

    def _translated(self, references: Any) -> Any:
        """References of the target in place of those of the source."""
        if isinstance(references, h5py.Reference):
            if not references:
                return references
            return self._target[self._copies[_identity(self._source[references])]].ref
        translated = np.empty(references.shape, dtype=h5py.ref_dtype)
        for place, reference in np.ndenumerate(references):
            translated[place] = self._translated(reference)
        return translated


def _is_reference(kind: np.dtype) -> bool:
    """Tell if values are references to objects."""
    return h5py.check_ref_dtype(kind) is h5py.Reference


def _identity(found: H5Object) -> tuple[int, int]:
    """Identify an object under all its names."""
    info = h5py.h5o.get_info(found.id)
    return info.fileno, info.addr
