"""An H5MD file written anew in another layout: the same numbers, and everything else as it was."""

import contextlib
import math
import os
import shlex
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from paceline import _core
from paceline._core import __version__
from paceline._util.progress import Progress
from paceline.block import Decoded
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.chunk_index import Element, slice_of
from paceline.hdf5.dataset import DEFLATE, FLETCHER32, SHUFFLE, dataset_of
from paceline.hdf5.file import Array, File, Group, asking, check_external_storage, damaged
from paceline.hdf5.layout import (
    Compression,
    Layout,
    choose_layout,
    parse_compression,
    refuse_coarse,
)
from paceline.hdf5.metadata import command_of_process, say_rounded
from paceline.hdf5.read_cost import Cost, costs_of, layout_in_words
from paceline.hdf5.streaming import in_frame
from paceline.hdf5.units import factor_of
from paceline.hdf5.writer import NewFile, contiguous, new_hdf5

#: Makes a dataset anew: what there is, the group for it, and its name there.
Remake = Callable[[Any, Any, str], None]


def copy_contents(source: File, target: Any, remade: dict[str, Remake]) -> None:
    """Copy groups, datasets, attributes and links of all kinds.

    Objects with several names have them in the copy too. References to objects, which a copy by
    HDF5 would make void, lead to the copies of these.

    Parameters
    ----------
    source : File
        Open for reading.
    target : h5py.File
        Empty.
    remade : mapping of str to callable
        Of datasets, by their paths in the source, what makes them in the target instead.
    """
    copier = _Copier(source, target, remade)
    copier.copy_group(source.h5, target)
    copier.lead_references()


def copy_attributes(source: Any, target: Any) -> None:
    """Copy attributes, but for references, which are to be led elsewhere.

    Parameters
    ----------
    source, target : h5py.Group or h5py.Dataset
        The object that has them, and its copy.
    """
    for name in source.attrs:
        kind = source.attrs.get_id(name).dtype
        if not _is_reference(kind):
            target.attrs.create(name, source.attrs[name], dtype=kind)


class _Copier:
    def __init__(self, source: File, target: Any, remade: dict[str, Remake]):
        self._file, self._source, self._target = source, source.h5, target
        self._remade = {_identity(self._source[path]): make for path, make in remade.items()}
        #: Of each object of the source, where its copy is.
        self._copies: dict[tuple[int, int], str] = {_identity(self._source): "/"}
        self._pairs: list[tuple[Any, str]] = [(self._source, "/")]

    def copy_group(self, source: Any, target: Any) -> None:
        """Copy all that a group links to, and its attributes."""
        for name in source:
            link = source.get(name, getlink=True)
            if isinstance(link, h5py.HardLink):
                self._copy_object(source[name], target, name)
            else:
                target[name] = link
        copy_attributes(source, target)

    def _copy_object(self, found: Any, target: Any, name: str) -> None:
        identity = _identity(found)
        if identity in self._copies:
            target[name] = self._target[self._copies[identity]]
            return
        self._copies[identity] = f"{target.name.rstrip('/')}/{name}"
        self._pairs.append((found, self._copies[identity]))
        if identity in self._remade:
            self._remade[identity](found, target, name)
        elif isinstance(found, h5py.Group):
            created = found.id.get_create_plist()
            h5py.h5g.create(target.id, name.encode(), gcpl=created)
            self.copy_group(found, target[name])
        else:
            with asking(self._file.path, found.name):
                self._source.copy(found, target, name)

    def lead_references(self) -> None:
        """Let references lead to copies."""
        for found, copy in self._pairs:
            for name in found.attrs:
                if _is_reference(found.attrs.get_id(name).dtype):
                    led = self._led(found.attrs[name])
                    self._target[copy].attrs.create(name, led, dtype=h5py.ref_dtype)
            if isinstance(found, h5py.Dataset) and _is_reference(found.dtype):
                check_external_storage(self._file, found.name, found)
                self._target[copy][...] = self._led(found[...])

    def _led(self, references: Any) -> Any:
        """References of the target in place of those of the source."""
        if isinstance(references, h5py.Reference):
            if not references:
                return references
            return self._target[self._copies[_identity(self._source[references])]].ref
        led = np.empty(references.shape, dtype=h5py.ref_dtype)
        for place, reference in np.ndenumerate(references):
            led[place] = self._led(reference)
        return led


def _is_reference(kind: np.dtype) -> bool:
    return h5py.check_ref_dtype(kind) is h5py.Reference


def _identity(found: Any) -> tuple[int, int]:
    """The same for all names of an object."""
    info = h5py.h5o.get_info(found.id)
    return info.fileno, info.addr


#: Bytes that a thread reads at a time, if chunks of no side need more.
PORTION = 16 * 2**20
#: Bytes of a chunk of what a frame has few bytes of.
SERIES_CHUNK = 64 * 2**10
#: Bytes in memory, at the most, so that each chunk is read once.
MOST_AT_ONCE = 2**30


@dataclass(frozen=True)
class Means:
    """What there is to write with.

    Attributes
    ----------
    made : NewFile
        The new file.
    pool : ThreadPoolExecutor
        Reads and encodes.
    n_workers : int
        Its threads.
    bar : Progress
        Counts bytes of numbers.
    """

    made: NewFile
    pool: ThreadPoolExecutor
    n_workers: int
    bar: Progress


@dataclass(frozen=True)
class Rewriting:
    """How a dataset of shape (frames, atoms, 3) is written anew.

    Attributes
    ----------
    array : Array
        What there is.
    layout : Layout
        Where its numbers are to stand.
    compression : Compression
        What is done to the bytes of a chunk.
    precision : float or None
        In the unit of the numbers, to which they are rounded.
    """

    array: Array
    layout: Layout
    compression: Compression
    precision: float | None

    def make(self, means: Means, found: Any, group: Any, name: str) -> None:
        """Make it in a group of the new file.

        Parameters
        ----------
        means : Means
            What there is to write with.
        found : h5py.Dataset
            What is there.
        group : h5py.Group
            Of the new file.
        name : str
            In the group.
        """
        target = self._created(means.made, found, f"{group.name.rstrip('/')}/{name}")
        copy_attributes(found, target)
        if found.dtype.itemsize == 4:
            self._encode(means, found, target)
        else:
            self._convert(means, found, target)
        step = self._encoder(found.dtype).step
        if step is not None:
            say_rounded(target, step)

    def _created(self, made: NewFile, found: Any, path: str) -> Any:
        kind = found.dtype.newbyteorder("<")
        if self.layout.contiguous:
            return contiguous(made.h5, path, found.shape, kind.str)
        level = self.compression.level
        return made.h5.create_dataset(
            path,
            shape=found.shape,
            maxshape=found.maxshape,
            dtype=kind,
            chunks=self.layout.chunk,
            compression=None if level is None else "gzip",
            compression_opts=level,
            shuffle=self.compression.shuffle,
        )

    def _encoder(self, dtype: np.dtype) -> "_core.ChunkEncoder":
        return _core.ChunkEncoder(
            "<f4" if dtype.itemsize == 4 else "<f8",
            self.layout.chunk,
            shuffle=self.compression.shuffle,
            level=self.compression.level,
            precision=self.precision,
            what=self.array.name.split("/")[-2],
        )

    def _parts(self, found: Any, at_once: int) -> Iterator[tuple[int, int]]:
        """Frames that are read together: such as begin with a chunk of both sides, if they can."""
        frame = math.prod(found.shape[1:]) * found.dtype.itemsize
        unit = self.layout.frames
        both = math.lcm(unit, found.chunks[0] if found.chunks else 1)
        unit = both if both * frame * at_once <= MOST_AT_ONCE else unit
        n_frames = max(unit, PORTION // frame // unit * unit)
        for first in range(0, len(found), n_frames):
            yield first, min(first + n_frames, len(found))

    def _convert(self, means: Means, found: Any, target: Any) -> None:
        """Let HDF5 write numbers of 64 bits: the encoder takes those of 32."""
        step = self._encoder(found.dtype).step
        for first, stop in self._parts(found, 1):
            values = self.array.part(slice(first, stop))
            target[first:stop] = values if step is None else np.rint(values / step) * step
            means.bar.add(values.nbytes)
            means.made.check()

    def _encode(self, means: Means, found: Any, target: Any) -> None:
        work = _Work(
            _reader_of(self.array),
            self._encoder(found.dtype),
            means.made.path,
            target.id.get_offset() if self.layout.contiguous else None,
        )
        waiting: deque[tuple[int, Future[_Packed]]] = deque()
        for first, stop in self._parts(found, means.n_workers + 1):
            waiting.append((first, means.pool.submit(work, first, stop)))
            if len(waiting) > means.n_workers:
                self._put(means, target, *waiting.popleft())
        while waiting:
            self._put(means, target, *waiting.popleft())

    def _put(self, means: Means, target: Any, first: int, packed: "Future[_Packed]") -> None:
        try:
            n_bytes, data, sizes = packed.result()
        except UnwritableError as error:
            raise in_frame(first, error) from None
        columns = -(-target.shape[1] // self.layout.atoms)
        view, ends = memoryview(data), np.cumsum(sizes, dtype=np.int64).tolist()
        for k, (start, end) in enumerate(pairwise([0, *ends])):
            row, column = divmod(k, columns)
            corner = first + row * self.layout.frames, column * self.layout.atoms, 0
            target.id.write_direct_chunk(corner, view[start:end])
        means.bar.add(n_bytes)
        means.made.check()


#: Reads frames from a first one to another, which is left out.
_Read = Callable[[int, int], np.ndarray]
#: Bytes that were read, chunks one after another, and the size of each.
_Packed = tuple[int, bytes, np.ndarray]


@dataclass(frozen=True)
class _Work:
    """What a thread does with some frames."""

    read: _Read
    encoder: "_core.ChunkEncoder"
    path: Path
    #: Where contiguous space begins, which is written to at once; None where there are chunks.
    offset: int | None

    def __call__(self, first: int, stop: int) -> _Packed:
        values = self.read(first, stop)
        if self.offset is None:
            return values.nbytes, *self.encoder.encode(values)
        rows = np.arange(first, stop, dtype=np.uint64)
        places = np.uint64(self.offset) + rows * np.uint64(values[0].nbytes)
        self.encoder.write(self.path, places, values)
        return values.nbytes, b"", np.empty(0, dtype=np.uint64)


def _reader_of(array: Array) -> _Read:
    """Through the core, in each thread by itself, where it reads what HDF5 reads; else HDF5."""

    def through_hdf5(first: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(array.part(slice(first, stop)), dtype=np.float32)

    dataset = dataset_of(array)
    if dataset.detour:
        return through_hdf5
    through_core = _CoreReader(array.file.path, Element(dataset))
    same = np.array_equal(through_core(0, 1), through_hdf5(0, 1), equal_nan=True)
    return through_core if same else through_hdf5


class _CoreReader:
    """Reads frames of one dataset, whose chunks are decoded to their end."""

    def __init__(self, path: str, element: Element):
        self._path, self._element = path, element
        self._fingerprint = _core.fingerprint_of(path)
        self._of_thread = threading.local()

    def __call__(self, first: int, stop: int) -> np.ndarray:
        n_atoms = self._element.dataset.shape[1]
        if not hasattr(self._of_thread, "reader"):
            known = replace(self._element, dataset=replace(self._element.dataset, table=None))
            self._of_thread.reader = _core.ChunkReader(
                self._path, self._fingerprint, [known, None, None], n_atoms=n_atoms
            )
        frames = np.arange(first, stop)
        block = Decoded.room_for(frames, n_atoms, ["positions"])
        slices = [slice_of(self._element, frames), None, None]
        self._of_thread.reader.read(slices, block, required=1, skip=False, whole=True)
        assert block.positions is not None
        return block.positions


def join_chunks(found: Any, group: Any, name: str) -> None:
    """Make a small dataset anew, in chunks of a usual size.

    Parameters
    ----------
    found : h5py.Dataset
        What there is.
    group : h5py.Group
        Of the new file.
    name : str
        In the group.
    """
    values = found[()]
    rows = max(1, SERIES_CHUNK // values[:1].nbytes)
    target = group.create_dataset(
        name,
        data=values,
        maxshape=found.maxshape,
        chunks=(min(rows, len(values)), *values.shape[1:]),
    )
    copy_attributes(found, target)


#: Elements that are written anew.
ELEMENTS = ("position", "velocity", "force")
#: Bytes of chunks that take longer to find than to read.
SMALL_CHUNK = 1024


@dataclass(frozen=True)
class Gain:
    """What became of one dataset.

    Attributes
    ----------
    name : str
        Its path in the file.
    layouts : (str, str)
        How it lay and how it lies, in words.
    costs : (list of Cost, list of Cost)
        What reading it cost and costs.
    """

    name: str
    layouts: tuple[str, str]
    costs: tuple[list[Cost], list[Cost]]


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
    """Write positions, velocities and forces of an H5MD file anew in another layout.

    Everything else is copied as it is.

    Parameters
    ----------
    path : path-like
        The file.
    output : path-like, optional
        The new one; by default it takes the place of the old one, once it is whole.
    chunk, for_, align : optional
        As for `paceline.hdf5.layout.choose_layout`.
    compress : str, optional
        As for `paceline.hdf5.layout.parse_compression`; by default as it was, with gzip in
        place of any other method.
    precision : float, optional
        Å, to which positions are rounded; by default all numbers stay the same to the last bit.
    overwrite : bool
        Whether a file that is called as `output` may be replaced.
    n_workers : int
        Threads that read and compress.
    progress : bool, optional
        Whether to show how far it has come.

    Returns
    -------
    list of Gain
        Of each dataset that was written anew.

    Raises
    ------
    UnsupportedError
        It is no H5MD file, or its numbers are no floats of (frames, atoms, 3).
    UnwritableError
        A number is not finite.
    """
    refuse_coarse(precision)
    path = os.path.realpath(path)
    target = path if output is None else os.fspath(output)
    with File(path) as file:
        arrays = _found(file)
        before = [_lies(array) for array in arrays]
        works = {
            array.name: Rewriting(
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
            _naming(path),
        ):
            if not os.path.exists(target):
                shutil.copymode(path, made.path)
            means = Means(made, pool, n_workers, bar)
            remade: dict[str, Remake] = dict.fromkeys(_series(file), join_chunks)
            remade |= {name: partial(work.make, means) for name, work in works.items()}
            copy_contents(file, made.h5, remade)
            _say_so(made.h5)
    with File(target) as file:
        after = [_lies(file.root[name]) for name in works]
    return [
        Gain(name, (old[0], new[0]), (old[1], new[1]))
        for name, old, new in zip(works, before, after, strict=True)
    ]


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except UnwritableError as error:
        raise UnwritableError(f"{path}: {error}") from None


def _found(file: File) -> list[Array]:
    """What there is to be written anew, each dataset once."""
    if file.cut_from is not None:
        raise damaged(file.path, "", f"{file.cut_from} bytes", f"{file.size}: the file was cut")
    arrays: dict[tuple[int, int], Array] = {}
    particles = file.root.group("particles")
    for group in particles.children() if particles is not None else ():
        for element in ELEMENTS:
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
    """Small numbers of each frame, steps and times above all, in chunks that hold few of them."""
    for name in ("particles", "observables"):
        top = file.root.group(name)
        for array in top.walk() if top is not None else ():
            if isinstance(array, Array) and array.chunk is not None and array.dtype.kind in "iuf":
                chunk, whole = (
                    math.prod(shape) * array.dtype.itemsize for shape in (array.chunk, array.shape)
                )
                if chunk < SMALL_CHUNK and chunk < whole <= MOST_AT_ONCE:
                    yield array.name


def _as_it_is(array: Array) -> Compression:
    """How a dataset is compressed, as near as gzip comes to it."""
    stages = {stage.number: stage.values for stage in array.filters}
    shuffle = SHUFFLE in stages
    if DEFLATE in stages:
        level = stages[DEFLATE][0]
        return Compression(shuffle, level) if level else Compression()
    compressed = [number for number in stages if number not in (SHUFFLE, FLETCHER32)]
    return Compression(shuffle, 1) if compressed else Compression()


def _in_its_unit(precision: float | None, array: Array) -> float | None:
    """A precision in Å as one of the numbers of a dataset; None where they are no positions."""
    if precision is None or not array.name.endswith("/position/value"):
        return None
    unit = array.attrs.get("unit")
    if not isinstance(unit, str):
        raise UnsupportedError(
            f"{array.file.path}: {array.name} has no unit: a precision in Å means nothing"
        )
    return precision / factor_of(unit, "length")


def _lies(array: Any) -> tuple[str, list[Cost]]:
    """How a dataset lies, and what reading it costs."""
    dataset = dataset_of(array)
    words = layout_in_words(dataset, array.shape[1])
    return words, costs_of(Element(dataset), array.shape[1])


def _say_so(h5: Any) -> None:
    """Note in the file that it was written anew, and by what, after those who did so before."""
    notes = h5.require_group("parameters/repacked")
    notes.create_dataset(
        str(len(notes) + 1), data=f"paceline {__version__}: {command_of_process()}"
    )
