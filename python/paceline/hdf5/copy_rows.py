"""Copy frames of H5MD files into another H5MD file.

A frame consists of the rows that belong to it in all datasets with one row per sample. All other
contents of the first file are copied unchanged. Whole chunks are copied as bytes if the new dataset
has the same chunks and filters. All other rows are encoded again, with the same numbers to the last
bit.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from paceline.contract.source import REMARK
from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import DEFLATE, LZ4, SHUFFLE, ZSTD
from paceline.hdf5.dataset_writers import created_hdf5
from paceline.hdf5.elements import SampledElement, first_not_rising
from paceline.hdf5.file import Array, File, Group, damaged, wrap_errors
from paceline.hdf5.h5md_particles import Particles
from paceline.hdf5.h5md_storage_layout import Compression, DatasetLayout
from paceline.hdf5.repack import (
    Create,
    WideEncoder,
    compression_of,
    copy_attributes,
    copy_tree,
    reader_of,
)

#: Maximum number of bytes that are copied at a time, unless a chunk is larger.
_PORTION = 16 * 2**20
#: Groups that describe a file. They may differ between files that are joined.
_ABOUT = ("/h5md", "/parameters")
#: Filters that paceline applies itself when it encodes chunks.
_ENCODED = {SHUFFLE, DEFLATE, ZSTD, LZ4}
#: Maximum number of values that a message shows.
_FEW = 12
#: Maximum difference between the first step or time of a run of frames and the value that the
#: previous run predicts, as a fraction of the increment.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class FrameRun:
    """Run of consecutive frames of an H5MD file, from frame `first` to frame `stop` - 1."""

    path: str
    first: int
    stop: int
    #: Group of particles whose samples are the frames; required if the file has several groups.
    group: str | None = None


@dataclass(frozen=True)
class _Rows:
    """Range of rows of a dataset that belongs to a run of frames.

    Steps or times that are stored as an increment have no rows in the file: `offset` replaces them.
    """

    array: Array
    first: int
    stop: int

    @property
    def n(self) -> int:
        """Number of rows in the range."""
        return self.stop - self.first

    @property
    def is_increment(self) -> bool:
        """True for steps or times that are stored as an increment: the distance between rows."""
        return self.array.shape == ()

    @property
    def offset(self) -> Any:
        """Step or time of the first row; defined only if `is_increment` is true."""
        offset = self.array.attrs.get("offset", 0)
        if isinstance(offset, np.ndarray):
            offset = offset.item()
        return offset + self.first * self.array.read()

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row without compression."""
        return math.prod(self.array.shape[1:]) * self.array.dtype.itemsize


def write_frames(
    runs: Sequence[FrameRun],
    path: str | Path,
    temporary: Path,
    advance: Callable[[int], object] = lambda n_bytes: None,
) -> None:
    """Write runs of frames, one after another, to the existing file `temporary`.

    The file will be renamed to `path`. Metadata are those of the first run's file. `advance` is
    called with the number of bytes that were copied. Raises `UnsupportedError` if steps or times
    that are stored as an increment do not continue from run to run.
    """
    with created_hdf5(path, temporary) as made:
        first, *others = runs
        with File(first.path) as file:
            found = rows_of(file, first)
            totals = {name: rows.n for name, rows in found.items()}
            for run in others:
                with File(run.path) as other:
                    more = rows_of(other, run)
                    _check_increments(found, totals, more)
                    totals = {name: n + more[name].n for name, n in totals.items()}
            created: dict[str, Create] = {
                name: partial(_create, rows, totals[name]) for name, rows in found.items()
            }
            copy_tree(file, made.h5, created)
            copies = {
                name: _Copy(made.h5[name], rows.array)
                for name, rows in found.items()
                if not rows.is_increment
            }
        for run in runs:
            with File(run.path) as file:
                of_file = rows_of(file, run)
                for name, copy in copies.items():
                    copy.append(of_file[name], advance)
                    made.check()
        for copy in copies.values():
            copy.finish()


def bytes_of(run: FrameRun) -> int:
    """Number of bytes of the rows of some frames, without compression."""
    with File(run.path) as file:
        found = rows_of(file, run).values()
        return sum(rows.n * rows.row_bytes for rows in found if not rows.is_increment)


def rows_of(file: File, run: FrameRun) -> dict[str, _Rows]:
    """Find the rows of some frames in each dataset with samples; return them by dataset name.

    Raises `UnsupportedError` if the rows are unknown, or if a dataset belongs to two elements that
    need different rows of it.
    """
    if file.full_size is not None:
        raise damaged(file.path, "", f"{file.full_size} bytes", f"{file.size}: the file was cut")
    particles = Particles(file, run.group)
    frames = particles.frames
    found: dict[tuple[int, int], _Rows] = {}
    for element in _sampled_elements(particles):
        first, stop = _rows_of_frames(element, frames, run)
        axes = [element.time] if element.time is not None else []
        axes += [step] if (step := _step_of(file, element)) is not None else []
        for array in (element.values, *axes):
            rows = _Rows(array, first, stop)
            known = found.setdefault(array.identity, rows)
            if (known.first, known.stop) != (first, stop):
                raise UnsupportedError(
                    f"{file.path}: {known.array.name} belongs to elements with other samples: "
                    "which are of these frames cannot be known"
                )
    return {rows.array.name: rows for rows in found.values()}


def _sampled_elements(particles: Particles) -> Iterator[SampledElement]:
    """Find all elements with samples in a file, first those of the particles."""
    yield from (one for one in particles.vectors.values() if one.steps is not None)
    if particles.edges is not None and particles.edges.steps is not None:
        yield particles.edges
    known = {one.name for one in particles.vectors.values()}
    for node in particles.file.root.walk():
        values = node.array("value") if isinstance(node, Group) else None
        if isinstance(node, Group) and values is not None and node.name not in known:
            step, time = node.array("step"), node.array("time")
            if step is not None or (time is not None and time.shape[:1] == values.shape[:1]):
                element = particles.elements.of(node, rank=len(values.shape) - 1)
                if element.steps is not None:
                    yield element


def _step_of(file: File, element: SampledElement) -> Array | None:
    """Dataset that contains the steps of an element; None if the element has no steps."""
    return file.root.array(f"{element.name}/step") if element.has_steps else None


def _rows_of_frames(
    element: SampledElement, frames: SampledElement, run: FrameRun
) -> tuple[int, int]:
    """Return first and end row of an element for a run of frames.

    Rows are found by number if the samples of the element are the frames, otherwise by step.
    """
    steps, of_frames = element.steps, frames.steps
    assert steps is not None
    if of_frames is None:
        return 0, len(steps)
    same = np.array_equal(steps, of_frames)
    if same or (len(steps) == len(of_frames) and not (element.has_steps and frames.has_steps)):
        return run.first, run.stop
    for one, other in ((element, frames), (frames, element)):
        if not one.has_steps or first_not_rising(np.asarray(one.steps)) is not None:
            raise UnsupportedError(
                f"{one.values.file.path}: {one.name} has no rising steps, by which its samples "
                f"belong to those of {other.name}: which are of these frames cannot be known"
            )
    # Samples between two frames belong to the earlier frame. Samples before the first frame belong
    # to the first frame.
    first = 0 if run.first == 0 else int(np.searchsorted(steps, of_frames[run.first]))
    last = run.stop == len(of_frames)
    return first, len(steps) if last else int(np.searchsorted(steps, of_frames[run.stop]))


# Functions that create and fill datasets.


def _create(rows: _Rows, n_rows: int, found: h5py.Dataset, group: h5py.Group, name: str) -> None:
    """Create a dataset like `found`, for `n_rows` rows; copy steps or times that are increments."""
    if rows.is_increment:
        group.create_dataset(name, data=found[()], dtype=found.dtype)
        copy_attributes(found, group[name])
        if rows.first:
            _set_offset(group[name], rows.offset)
        return
    created = found.id.get_create_plist()
    layout, limit = created.get_layout(), None
    if layout == h5py.h5d.CHUNKED:
        most = found.maxshape
        enough = most[0] is None or most[0] >= max(n_rows, found.chunks[0])
        sizes = (most[0] if enough else None, *most[1:])
        limit = tuple(h5py.h5s.UNLIMITED if n is None else n for n in sizes)
        if rows.array.missing_filter is not None:
            _make_filters_optional(created)
    elif layout != h5py.h5d.CONTIGUOUS or created.get_external_count():
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_obj_track_times(False)  # without time stamps, the same frames give the same bytes
    space = h5py.h5s.create_simple((n_rows, *found.shape[1:]), limit)
    h5py.h5d.create(group.id, name.encode(), found.id.get_type(), space, dcpl=created)
    copy_attributes(found, group[name])


def _set_offset(increment: h5py.Dataset, offset: object) -> None:
    """Set the first step or time of a dataset that stores an increment of steps or times."""
    shape: tuple[int, ...] = ()
    kind = increment.dtype
    if "offset" in increment.attrs:
        known = increment.attrs.get_id("offset")
        shape, kind = known.shape, known.dtype
    increment.attrs.create("offset", np.full(shape, offset), dtype=kind)


def _make_filters_optional(created: Any) -> None:
    """Allow a dataset to contain encoded chunks although HDF5 lacks a filter."""
    stages = [created.get_filter(k) for k in range(created.get_nfilters())]
    for number, *_ in stages:
        created.remove_filter(number)
    for number, _, values, _ in stages:
        created.set_filter(number, h5py.h5z.FLAG_OPTIONAL, tuple(values))


def _check_increments(
    found: Mapping[str, _Rows], n_before: Mapping[str, int], others: Mapping[str, _Rows]
) -> None:
    """Raise `UnsupportedError` if increments of steps or times do not continue in the next run."""
    for name, rows in found.items():
        if not rows.is_increment:
            continue
        increment, other = rows.array.read(), others[name]
        expected = rows.offset + n_before[name] * increment
        if abs(other.offset - expected) > _ROUNDING * abs(increment):
            raise UnsupportedError(
                f"{other.array.file.path}: {name} is stored as an increment of {increment:g}, so "
                f"frames that follow those before begin at {expected:g}; expected that, found "
                f"{other.offset:g}: paceline convert writes each by itself"
            )


def _is_encoded(array: Array) -> bool:
    """True for values of atoms in chunks that paceline can encode, even if HDF5 lacks a filter."""
    chunk, stages = array.chunk, [stage.number for stage in array.filters]
    if chunk is None or array.dtype.kind != "f" or len(chunk) != 3 or array.shape[2:] != (3,):
        return False
    compressed = [number for number in stages if number != SHUFFLE]
    # Shuffling alone, and gzip of level 0, are not compressions that paceline writes.
    plain = compression_of(array).method is None
    order = [SHUFFLE] * (SHUFFLE in stages) + compressed
    known = set(stages) <= _ENCODED and stages == order and len(compressed) < 2
    return chunk[2] == 3 and known and plain == (not stages)


def _reader_of(array: Array) -> Callable[[int, int], np.ndarray]:
    """Return a function that reads rows; it needs no filter of HDF5 if paceline has the filter."""
    if _is_encoded(array):
        return reader_of(array)
    array.check_filters()
    return lambda first, stop: array.part(slice(first, stop))


class _Copy:
    """Dataset to which rows of other datasets are appended."""

    def __init__(self, dataset: h5py.Dataset, first: Array):
        self._dataset, self._n_rows = dataset, 0
        self._unit = dataset.chunks[0] if dataset.chunks else 1
        copy = Array(first.file, first.name, dataset)
        #: Compression of the chunks if paceline encodes them; None if HDF5 does.
        self._compression = compression_of(copy) if _is_encoded(copy) else None
        #: Rows of a chunk that is not full yet, if paceline encodes chunks.
        self._waiting: list[np.ndarray] = []
        self._encoder: WideEncoder | None = None

    def append(self, rows: _Rows, advance: Callable[[int], object]) -> None:
        """Copy rows behind the rows that were already copied; call `advance` with their size."""
        if rows.n == 0:
            return
        raw, read = self._has_same_chunks(rows.array), _reader_of(rows.array)
        at_once = max(self._unit, _PORTION // max(rows.row_bytes, 1) // self._unit * self._unit)
        first = rows.first
        while first < rows.stop:
            behind = self._n_rows % self._unit
            stop = min(rows.stop, first + at_once - behind)
            whole = (stop - first) // self._unit * self._unit
            if raw and whole and not behind and first % self._unit == 0:
                stop = first + whole
                self._copy_chunks(rows.array, first, stop)
            elif self._compression is not None:
                self._encode(read(first, stop), self._compression)
            else:
                self._dataset[self._n_rows : self._n_rows + stop - first] = read(first, stop)
            self._n_rows += stop - first
            advance((stop - first) * rows.row_bytes)
            first = stop

    def finish(self) -> None:
        """Write the remaining rows, which do not fill a chunk."""
        if self._waiting:
            self._put(np.concatenate(self._waiting), self._n_rows)

    def _has_same_chunks(self, array: Array) -> bool:
        copy = Array(array.file, array.name, self._dataset)
        return (
            array.chunk is not None
            and (array.chunk, array.dtype) == (copy.chunk, copy.dtype)
            and [(one.number, one.values) for one in array.filters]
            == [(one.number, one.values) for one in copy.filters]
            and not array.dtype.hasobject
            and array.shape[1:] == copy.shape[1:]
            # Chunks that were never written contain the fill value.
            and np.array_equal(array.h5.fillvalue, copy.h5.fillvalue)
        )

    def _copy_chunks(self, array: Array, first: int, stop: int) -> None:
        """Copy whole chunks as bytes; chunks that were never written are left out."""
        source, chunk = array.h5.id, array.chunk
        assert chunk is not None
        starts = [range(0, n, step) for n, step in zip(array.shape[1:], chunk[1:], strict=True)]
        for row in range(first, stop, chunk[0]):
            for corner in product(*starts):
                where = (row, *corner)
                with wrap_errors(array.file.path, array.name):
                    if source.get_chunk_info_by_coord(where).byte_offset is None:
                        continue
                    mask, data = source.read_direct_chunk(where)
                there = (self._n_rows + row - first, *corner)
                self._dataset.id.write_direct_chunk(there, data, mask)

    def _encode(self, values: np.ndarray, compression: Compression) -> None:
        """Encode and write full chunks of the waiting rows and `values`; the rest waits."""
        if self._encoder is None:
            layout = DatasetLayout(self._unit, self._dataset.chunks[1])
            self._encoder = WideEncoder(self._dataset.dtype, layout, compression, None)
        end = self._n_rows + len(values)
        n_left = end % self._unit
        rows = np.concatenate([*self._waiting, values])
        self._waiting = [rows[len(rows) - n_left :].copy()] if n_left else []
        if len(rows) > n_left:
            self._put(rows[: len(rows) - n_left], end - n_left)

    def _put(self, rows: np.ndarray, end: int) -> None:
        """Write the chunks of rows that end at row `end`."""
        assert self._encoder is not None
        data, sizes = self._encoder.encode(rows)
        n_columns = -(-self._dataset.shape[1] // self._dataset.chunks[1])
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        for k, (start, stop) in enumerate(pairwise([0, *ends])):
            row, column = divmod(k, n_columns)
            corner = end - len(rows) + row * self._unit, column * self._dataset.chunks[1], 0
            self._dataset.id.write_direct_chunk(corner, data[start:stop])


# Functions that describe traits, which must be equal in files that are joined.


def traits_of(path: str, group: str | None) -> list[tuple[str, str]]:
    """Describe all objects of a file except the rows of samples: return names and values.

    Properties that may differ between joined files have names that begin with `REMARK`.
    """
    with File(path) as file:
        sampled = rows_of(file, FrameRun(path, 0, 0, group))
        names = {rows.array.identity: name for name, rows in sampled.items()}
        found = []
        for node in (file.root, *file.root.walk()):
            rows = sampled.get(names.get(node.identity, ""))
            about = any(node.name == top or node.name.startswith(f"{top}/") for top in _ABOUT)
            start = REMARK if about else ""
            if isinstance(node, Array):
                found.append((f"{start}{node.name}", _describe_rows(node, rows)))
            for name, value in node.attrs.items():
                if not (name == "offset" and rows is not None):
                    found.append((f"{start}{name} of {node.name}", _text_of(value)))
    return found


def _describe_rows(array: Array, rows: _Rows | None) -> str:
    """Type and shape of a dataset, and its value if it has no samples."""
    if rows is None:
        return f"{array.dtype} of {array.shape}, {_text_of(array.read())}"
    if rows.is_increment:
        return f"an increment of {array.read()}"
    return f"samples of {array.dtype} and shape {array.shape[1:]}"


def _text_of(value: object) -> str:
    """Format a few values as text, and many values as a digest."""
    values = np.asarray(value)
    if values.size <= _FEW:
        return str(value)
    data = repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
    return f"values with digest {hashlib.blake2b(data, digest_size=6).hexdigest()}"
