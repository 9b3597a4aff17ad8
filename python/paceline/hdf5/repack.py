"""Rewrite an H5MD file in another layout, with the same numbers and all other contents."""

import math
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np

from paceline import _core
from paceline._core import __version__
from paceline._util.files import naming_file
from paceline._util.machine_and_software import current_command
from paceline._util.progress import Progress
from paceline.block import FrameBuffer
from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import (
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZF,
    SHUFFLE,
    ZSTD,
    Element,
    may_hide_damage,
    slice_of,
)
from paceline.hdf5.create_h5md_groups import ELEMENTS, mark_rounded
from paceline.hdf5.dataset_description import describe_dataset
from paceline.hdf5.dataset_writers import (
    AllocatedDataset,
    AppendedDataset,
    ChunkEncoder,
    EncodedDataset,
    EncodeQueue,
    NewFile,
    create_dataset,
    naming_frame,
    new_hdf5,
)
from paceline.hdf5.file import Array, File, Group, check_external_storage, damaged, wrap_errors
from paceline.hdf5.h5md_storage_layout import (
    Compression,
    DatasetLayout,
    check_precision,
    choose_layout,
    chunk_encoder,
    parse_compression,
)
from paceline.hdf5.read_cost import AccessCost, layout_in_words, read_costs
from paceline.hdf5.units import factor_of

#: Number of bytes that a thread reads at a time, unless chunks require more.
PORTION = 16 * 2**20
#: Chunk size for steps, times and other small data of each frame, bytes.
SERIES_CHUNK = 64 * 2**10
#: Size below which finding a chunk takes longer than reading it, bytes.
SMALL_CHUNK = 1024
#: Maximum memory, bytes, for decoded frames in ranges that begin at chunks of both files, and for a
#: small dataset whose chunks are joined.
MOST_AT_ONCE = 2**30

#: Function that creates a dataset again from the old dataset, in a new group, under a name.
Create = Callable[[Any, Any, str], None]
#: Function that reads frames, from a first frame up to an end frame, which is excluded.
_Read = Callable[[int, int], np.ndarray]


#: Function that calls its first argument with each item of the second one, and yields the number of
#: each item and the result, in any order. The third argument is a name for error messages.
Calls = Callable[[Callable[[Any], Any], Sequence[Any], str], Iterator[tuple[int, Any]]]

#: HDF5 object that may have attributes: a group or a dataset.
H5Object: TypeAlias = h5py.Group | h5py.Dataset


@dataclass(frozen=True)
class Gain:
    """Layout descriptions and read costs of a dataset before and after repacking."""

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
    calls: Calls | None = None,
) -> list[Gain]:
    """Write positions, velocities and forces of an H5MD file in another layout; return the gains.

    Everything else is copied unchanged. Without `output`, the complete new file replaces the old
    one. `chunk`, `for_` and `align` are as for `choose_layout`, and `compress` as for
    `parse_compression`. By default the compression method is kept; methods that paceline does
    not write, such as szip, become gzip. Positions are rounded to multiples of `precision`, Å;
    without it, no bit of a number changes. `calls` encodes chunks on ranks of MPI instead of in
    threads. Raises `UnsupportedError` for a file that is not H5MD, or if the values are not floats
    of shape (frames, atoms, 3). Raises `UnwritableError` for a number that is not finite.
    """
    check_precision(precision)
    path = os.path.realpath(path)
    target = path if output is None else os.fspath(output)
    with File(path) as file:
        arrays = _find_datasets(file)
        before = [_layout_and_costs(array) for array in arrays]
        rewrites = {
            array.name: _Rewrite(
                array,
                choose_layout(chunk, array.shape[1], for_=for_, align=align).within(array.shape[0]),
                compression_of(array) if compress is None else parse_compression(compress),
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
            destination = _Destination(made, pool, n_workers, bar, calls)
            created: dict[str, Create] = dict.fromkeys(_series(file), join_chunks)
            created |= {
                name: partial(rewrite.create, destination) for name, rewrite in rewrites.items()
            }
            copy_tree(file, made.h5, created)
            for fill in destination.later:
                fill()
            _note_repacked(made.h5)
    with File(target) as file:
        after = [_layout_and_costs(file.root[name]) for name in rewrites]
    return [
        Gain(name, (old[0], new[0]), (old[1], new[1]))
        for name, old, new in zip(rewrites, before, after, strict=True)
    ]


def _find_datasets(file: File) -> list[Array]:
    """Find the datasets to rewrite, without duplicates."""
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
            f"{file.path}: not an H5MD file with positions, velocities or forces, which repack "
            "needs; "
            f"for other trajectories: paceline convert {shlex.quote(file.path)} "
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
    """Find small per-frame datasets, such as steps and times, whose chunks are too small."""
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


def compression_of(array: Array) -> Compression:
    """Return the compression of a dataset, or gzip if paceline cannot write its method."""
    stages = {stage.number: stage.values for stage in array.filters}
    shuffle = SHUFFLE in stages
    if DEFLATE in stages:
        level = stages[DEFLATE][0]
        return Compression(shuffle, "gzip", level) if level else Compression()
    if ZSTD in stages:
        # Other programs may have written levels that are negative or above paceline's range.
        level = np.int32(np.uint32([*stages[ZSTD], 3][0])).item()
        return Compression(shuffle, "zstd", min(max(level, 1), 19))
    for number, method in ((LZ4, "lz4"), (LZF, "lzf")):
        if number in stages:
            return Compression(shuffle, method)
    compressed = [number for number in stages if number not in (SHUFFLE, FLETCHER32)]
    return Compression(shuffle, "gzip", 1) if compressed else Compression()


def _in_its_unit(precision: float | None, array: Array) -> float | None:
    """Convert a precision in Å to a dataset's unit; None if the dataset contains no positions."""
    if precision is None or not array.name.endswith("/position/value"):
        return None
    unit = array.attrs.get("unit")
    if not isinstance(unit, str):
        raise UnsupportedError(
            f"{array.file.path}: {array.name} has no unit: a precision in Å cannot be converted"
        )
    return precision / factor_of(unit, "length")


def _layout_and_costs(array: Any) -> tuple[str, list[AccessCost]]:
    """Describe the layout of a dataset, and return its read costs."""
    dataset = describe_dataset(array)
    words = layout_in_words(dataset, array.shape[1])
    return words, read_costs(Element(dataset), array.shape[1])


def _note_repacked(h5: h5py.Group) -> None:
    """Append paceline and its command to the notes of earlier programs in the file."""
    notes = h5.require_group("parameters/repacked")
    notes.create_dataset(str(len(notes) + 1), data=f"paceline {__version__}: {current_command()}")


@dataclass(frozen=True)
class _Destination:
    """New file, threads that read and encode, and progress in bytes of decoded values."""

    file: NewFile
    pool: ThreadPoolExecutor
    n_workers: int
    bar: Progress
    calls: Calls | None
    #: Functions that fill the datasets; they are called after all datasets were created.
    later: list[Callable[[], None]] = field(default_factory=list)

    def advance(self, n_bytes: int) -> None:
        """Count written bytes, after checking that the system accepted all writes."""
        self.bar.add(n_bytes)
        self.file.check()


@dataclass(frozen=True)
class _Rewrite:
    """Dataset of shape (frames, atoms, 3), with the layout of its copy.

    `precision` is in the unit of the dataset.
    """

    array: Array
    layout: DatasetLayout
    compression: Compression
    precision: float | None

    def create(
        self, destination: _Destination, found: h5py.Dataset, group: h5py.Group, name: str
    ) -> None:
        """Create the copy in a group of the new file; it is filled later (`destination.later`)."""
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
        # Threads read and encode. They also write contiguous datasets, whereas chunks are written
        # in order.
        queue = EncodeQueue(destination.pool, destination.n_workers)
        kind = AllocatedDataset if self.layout.contiguous else AppendedDataset
        dataset = kind(destination.file.path, copy, self.layout, encoder, queue)
        parts = [*self._split_rows(found, destination.n_workers + 1)]
        destination.later.append(partial(_fill, dataset, parts, read, destination))
        if core.step is not None:
            mark_rounded(copy, core.step)

    def _reader_and_encoder(
        self, core: "_core.ChunkEncoder", dtype: np.dtype
    ) -> tuple[_Read, ChunkEncoder]:
        """Choose reader and encoder; those of the compiled module process only 32-bit floats."""
        if dtype.itemsize == 4:
            return reader_of(self.array), core
        wide = WideEncoder(dtype, self.layout, self.compression, core.step)
        return _through_hdf5(self.array), wide

    def _split_rows(self, found: h5py.Dataset, at_once: int) -> Iterator[tuple[int, int]]:
        """Split frames into ranges that begin at chunks of the new file.

        If memory allows, the ranges begin at chunks of both files.
        """
        frame = math.prod(found.shape[1:]) * found.dtype.itemsize
        unit = self.layout.frames
        both = math.lcm(unit, found.chunks[0] if found.chunks else 1)
        unit = both if both * frame * at_once <= MOST_AT_ONCE else unit
        n_frames = max(unit, PORTION // frame // unit * unit)
        for first in range(0, len(found), n_frames):
            yield first, min(first + n_frames, len(found))


@dataclass(frozen=True)
class _EncodePart:
    """Picklable function that reads and encodes a range of frames, given as (first, stop)."""

    read: _Read
    encoder: ChunkEncoder

    def __call__(self, part: tuple[int, int]) -> tuple[int, tuple[bytes, np.ndarray]]:
        """Return the number of bytes of the values, and the chunks with their sizes."""
        values = self.read(*part)
        with naming_frame(part[0]):
            return values.nbytes, self.encoder.encode(values)


def _fill(
    dataset: EncodedDataset,
    parts: Sequence[tuple[int, int]],
    read: _Read,
    destination: _Destination,
) -> None:
    """Fill a dataset with the frame ranges `parts`, in threads or by `destination.calls`."""
    calls = destination.calls
    is_appended = isinstance(dataset, AppendedDataset)
    if calls is None or not is_appended or not isinstance(read, _CoreReader):
        for first, stop in parts:
            dataset.add(first, stop - first, partial(read, first, stop), destination.advance)
        dataset.queue.put_all()
        return
    waiting: dict[int, tuple[int, tuple[bytes, np.ndarray]]] = {}
    n_put = 0
    for k, encoded in calls(_EncodePart(read, dataset.encoder), parts, "repack"):
        waiting[k] = encoded
        while n_put in waiting:
            n_bytes, chunks = waiting.pop(n_put)
            first, stop = parts[n_put]
            assert isinstance(dataset, AppendedDataset)
            dataset.put_chunks(first, stop - first, *chunks)
            destination.advance(n_bytes)
            n_put += 1


@dataclass(frozen=True)
class WideEncoder:
    """Encoder for chunks of floats that are not of 32 bits, for example of 64 bits."""

    dtype: np.dtype
    layout: DatasetLayout
    compression: Compression
    #: Step to whose multiples numbers are rounded; None for no rounding.
    step: float | None

    def encode(self, values: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Encode frames that begin at a chunk boundary; return chunks in C order, and their sizes.

        Sizes are in bytes.
        """
        values = _round(values, self.step)
        frames, atoms, _ = self.layout.chunk
        rows, columns = (range(0, values.shape[0], frames), range(0, values.shape[1], atoms))
        chunks = []
        for row, column in product(rows, columns):
            part = values[row : row + frames, column : column + atoms]
            whole = np.zeros(self.layout.chunk, dtype=self.dtype)
            whole[: part.shape[0], : part.shape[1]] = part
            chunks.append(self._pack(whole.tobytes()))
        return b"".join(chunks), np.array([len(chunk) for chunk in chunks], dtype=np.uint64)

    def write(self, path: Path, offsets: np.ndarray, values: np.ndarray, *, lead: int = 0) -> None:
        """Write frames to a contiguous dataset, from the first of `offsets` on."""
        with open(path, "r+b") as file:
            file.seek(int(offsets[0]))
            file.write(np.ascontiguousarray(_round(values, self.step), dtype=self.dtype).data)

    def _pack(self, chunk: bytes) -> bytes:
        if self.compression.method is None:
            return chunk
        return _core.pack_chunk(chunk, width=self.dtype.itemsize, **asdict(self.compression))


def _round(values: np.ndarray, step: float | None) -> np.ndarray:
    """Round to multiples of a step, unless the step is None."""
    return values if step is None else np.rint(values / step) * step


def _through_hdf5(array: Array) -> _Read:
    """Return a function that reads frames by HDF5; 32-bit floats are in native byte order.

    If HDF5 could read damaged chunks without an error, the compiled module verifies them first.
    """
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


def reader_of(array: Array) -> _Read:
    """Return a function that reads frames with the compiled module or, if necessary, with HDF5.

    HDF5 is used if the compiled module cannot read the dataset, or if the two differ in the first
    frame.
    """
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
    """Thread-local state: the reader of the thread, None before it is created."""

    reader: _core.ChunkReader | None = None


class _CoreReader:
    """Reads frames of one dataset with the compiled module, which verifies chunks to their end."""

    def __init__(self, path: str, element: Element, samples: bytes | None = None):
        self._path, self._element = path, element
        self._samples = _core.samples_of(path) if samples is None else samples
        self._of_thread = _OfThread()

    def __reduce__(self) -> tuple[object, ...]:
        return _CoreReader, (self._path, self._element, self._samples)

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
    """Copy a small dataset to a group, in chunks of about `SERIES_CHUNK` bytes."""
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

    Objects with several names keep all names in the copy. Object references, which become invalid
    when HDF5 copies them, are translated to refer to the copied objects. Datasets whose paths are
    in `created` are created by the function given there.
    """
    copier = _TreeCopier(source, target, created)
    copier.copy_group(source.h5, target)
    copier.translate_references()


def copy_attributes(source: H5Object, target: H5Object) -> None:
    """Copy attributes except references, which are translated at the end."""
    for name in source.attrs:
        kind = source.attrs.get_id(name).dtype
        if not _is_reference(kind):
            target.attrs.create(name, source.attrs[name], dtype=kind)


class _TreeCopier:
    """Copies each object once, and records the path of its copy."""

    def __init__(self, source: File, target: h5py.Group, created: dict[str, Create]):
        self._file, self._source, self._target = source, source.h5, target
        self._created = {_identity(self._source[path]): create for path, create in created.items()}
        #: Path of the copy of each object, by the object's key (see `_identity`).
        self._copies: dict[tuple[int, int], str] = {_identity(self._source): "/"}
        self._pairs: list[tuple[H5Object, str]] = [(self._source, "/")]

    def copy_group(self, source: h5py.Group, target: h5py.Group) -> None:
        """Copy a group's attributes and all objects that it links to."""
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
        """Replace references to source objects by references to their copies."""
        for found, copy in self._pairs:
            for name in found.attrs:
                if _is_reference(found.attrs.get_id(name).dtype):
                    translated = self._translate(found.attrs[name])
                    self._target[copy].attrs.create(name, translated, dtype=h5py.ref_dtype)
            if isinstance(found, h5py.Dataset) and _is_reference(found.dtype):
                check_external_storage(self._file, found.name, found)
                self._target[copy][...] = self._translate(found[...])

    def _translate(self, references: Any) -> object:
        """Translate references in the source to references in the target."""
        if isinstance(references, h5py.Reference):
            if not references:
                return references
            return self._target[self._copies[_identity(self._source[references])]].ref
        translated = np.empty(references.shape, dtype=h5py.ref_dtype)
        for place, reference in np.ndenumerate(references):
            translated[place] = self._translate(reference)
        return translated


def _is_reference(kind: np.dtype) -> bool:
    """True if values of this dtype are object references."""
    return h5py.check_ref_dtype(kind) is h5py.Reference


def _identity(found: H5Object) -> tuple[int, int]:
    """Return a key of an object that is equal for all its names."""
    info = h5py.h5o.get_info(found.id)
    return info.fileno, info.addr
