"""Measure how long the same frames take to read from files of other formats and compressions."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline._util.leftovers import ScratchFolder
from paceline.block import (
    DAMAGED_STEP,
    FIELDS,
    FrameBuffer,
    field_bits,
    fields_in,
    vectors_of,
)
from paceline.contract.source import FORMATS, Extents, FrameSource, TimeAxis
from paceline.errors import PacelineError
from paceline.hdf5.create_h5md_groups import AtomProperties, Description, FrameColumns
from paceline.hdf5.dataset_writers import H5MDFileWriter, new_hdf5
from paceline.hdf5.h5md_storage_layout import Storage, choose_layout, parse_compression
from paceline.performance.forecast import Recoded
from paceline.trajectory.chain import Chain

#: Maximum size of the positions of all frames that are encoded as a sample, bytes. A single frame
#: may be larger.
_BYTES = 8 << 20
#: Maximum number of frames that are encoded as a sample.
_FRAMES = 64
#: Time for which the frames of a file are read again and again in a round of measurement, s.
_READING_SECONDS = 0.02
#: Number of rounds in which a file is read; the time of the fastest round is used.
_READING_ROUNDS = 3
#: Formats that store positions only; measured if the run reads nothing else.
_OF_POSITIONS = [name for name, one in FORMATS.items() if fields_in(one.writes) == FIELDS[:1]]
#: Formats that store positions, velocities and forces in frames of equal size; measured if the run
#: reads velocities or forces.
_OF_MOTION = [
    name for name, one in FORMATS.items() if one.equal_frames and fields_in(one.writes) == FIELDS
]
#: Compressions of H5MD files, as in the option `--compress`; "" for no compression.
_COMPRESSIONS = ("", "shuffle+zstd:3")


class SampleFrames(NamedTuple):
    """Decoded frames with all atoms, and the fields and atoms that the run reads.

    `wanted` contains the indices of the atoms that the run reads. `decoding` is the time to read
    and decode a frame with all atoms, s.
    """

    values: FrameBuffer
    fields: Sequence[str]
    wanted: np.ndarray
    decoding: float

    @property
    def n_atoms(self) -> int:
        """Number of atoms of a frame."""
        return self.values.array_of(self.fields[0]).shape[1]


@dataclass(frozen=True)
class _Kind:
    """Kind of file: format, compression of H5MD, and whether it contains only the wanted atoms."""

    format: str
    compression: str = ""
    selected: bool = False


def decode_sample(chain: Chain, source: FrameSource, frames: np.ndarray) -> SampleFrames | None:
    """Decode the first of `frames` with all atoms, without damaged ones; None if all are damaged.

    At most `_FRAMES` frames are decoded, and at most `_BYTES` of positions.
    """
    n_frames = min(_FRAMES, max(1, _BYTES // (12 * chain.n_atoms)))
    extents = chain.extents(frames[:n_frames])
    everything = FrameSource(chain.specs, None, chain.n_atoms, source.fields, (), TimeAxis())
    values = FrameBuffer.allocate(np.arange(len(extents)), chain.n_atoms, source.fields)
    begun = perf_counter()
    everything.open().read(extents, values, skip=True)
    decoding = (perf_counter() - begun) / len(extents)
    values = values[values.steps != DAMAGED_STEP]
    wanted = np.arange(chain.n_atoms) if source.atoms is None else source.atoms
    return SampleFrames(values, source.fields, wanted, decoding) if len(values.frames) else None


def measure_other_files(found: SampleFrames, own_format: str) -> list[Recoded]:
    """Write frames in other formats and compressions, and measure the time to read them.

    If the run reads only some of the atoms, files with only these atoms are measured, too. Files
    with all atoms in `own_format`, the format of the trajectory, are left out, and so are formats
    that cannot store these frames.
    """
    only_positions = set(found.fields) <= {"positions"}
    kinds = [_Kind(format) for format in (_OF_POSITIONS if only_positions else _OF_MOTION)]
    kinds += [_Kind("H5MD", compression) for compression in _COMPRESSIONS]
    kinds = [replace(one, selected=selected) for one in kinds for selected in (False, True)]
    others = []
    for kind in kinds:
        if not kind.selected and kind.format == own_format:
            continue
        if kind.selected and len(found.wanted) == found.n_atoms:
            continue
        # Skip a format that cannot store a frame.
        with suppress(PacelineError), ScratchFolder("advice") as folder:
            others.append(_measure(found, kind, os.path.join(folder, "frames")))
    return others


def _measure(frames: SampleFrames, kind: _Kind, path: str) -> Recoded:
    """Write frames to a file of a kind; measure how long one worker, and two at once, read it."""
    columns = frames.wanted if kind.selected else np.arange(frames.n_atoms)
    size, encoding = write_frames(
        path, frames.values, frames.fields, kind.format, columns, kind.compression
    )
    n_frames = len(frames.values.frames)
    chain = Chain([path], quiet=True, times_given=True)
    everything = kind.selected or len(frames.wanted) == chain.n_atoms
    source = FrameSource(
        *(chain.specs, None if everything else frames.wanted, len(frames.wanted)),
        *(frames.fields, (), TimeAxis()),
    )
    extents = chain.extents(np.arange(n_frames, dtype=np.uint64))
    alone, n_bytes = _reading(source, extents, 1)
    beside, _ = _reading(source, extents, 2)
    return Recoded(
        *(kind.format, kind.selected, size / n_frames, n_bytes, (alone, beside)),
        *(frames.decoding + encoding / n_frames, kind.compression),
    )


def write_frames(
    path: str,
    frames: FrameBuffer,
    fields: Sequence[str],
    format: str,
    columns: np.ndarray,
    compression: str = "",
) -> tuple[int, float]:
    """Write frames to a file in one format, with the atoms whose indices are `columns`.

    Returns the size of all encoded frames, bytes, and the encoding time, s.
    """
    values = {field: np.ascontiguousarray(frames.array_of(field)[:, columns]) for field in fields}
    if format == "H5MD":
        return _write_h5md(path, frames, values, compression)
    begun = perf_counter()
    has_cell = bool(frames.dimensions.any())
    encoder = _core.Encoder(format, len(columns), None, has_cell, field_bits(fields))
    positions, velocities, forces = map(values.get, FIELDS)
    moments = (frames.cells, frames.times, frames.steps, frames.lambdas)
    body = encoder.encode((positions, velocities, forces, *moments))
    seconds = perf_counter() - begun
    with open(path, "wb") as file:
        file.write(encoder.head(len(frames.frames), 0.0, 1.0, 0, 1) + body)
    return len(body), seconds


def _write_h5md(
    path: str, frames: FrameBuffer, values: Mapping[str, np.ndarray], compression: str
) -> tuple[int, float]:
    n_frames, n_atoms, _ = next(iter(values.values())).shape
    storage = Storage(choose_layout("auto", n_atoms), parse_compression(compression or "none"))
    storage = replace(storage, layout=storage.layout.within(n_frames))
    begun = perf_counter()
    encoded = {field: storage.encoder(field).encode(some) for field, some in values.items()}
    seconds = perf_counter() - begun
    has_cell = bool(frames.dimensions.any())
    with new_hdf5(path) as file:
        writer = H5MDFileWriter(
            *(file, storage, [*values], n_frames, n_atoms), has_cell=has_cell, allocated=False
        )
        for field, (data, sizes) in encoded.items():
            writer.datasets[field].put_chunks(0, n_frames, data, sizes)
        vectors = vectors_of(frames.cells)
        rows = FrameColumns(np.arange(n_frames), np.arange(n_frames, dtype=float), vectors)
        writer.finish(rows, Description(AtomProperties(n_atoms)))
    return sum(len(data) for data, _ in encoded.values()), seconds


def _reading(source: FrameSource, extents: Extents, n_workers: int) -> tuple[float, float]:
    """Read the same frames in `n_workers` concurrent workers.

    Returns a worker's mean time per frame, s, and the number of bytes that are read per frame.
    """
    readers = [source.open() for _ in range(n_workers)]
    rooms = [
        FrameBuffer.allocate(np.arange(len(extents)), source.n_wanted, source.fields)
        for _ in readers
    ]
    cost = readers[0].read(extents, rooms[0], skip=False)
    times = max(1, int(_READING_SECONDS / ((cost.read + cost.decode) / 1e9)))

    def read(worker: int) -> float:
        begun = perf_counter()
        for _ in range(times):
            readers[worker].read(extents, rooms[worker], skip=False)
        return (perf_counter() - begun) / times / len(extents)

    with ThreadPoolExecutor(n_workers) as threads:
        # Reading large frames takes so long that one round is accurate.
        n_rounds = _READING_ROUNDS if times > 1 else 1
        rounds = [list(threads.map(read, range(n_workers))) for _ in range(n_rounds)]
    return min(map(sum, rounds)) / n_workers, cost.bytes / len(extents)
