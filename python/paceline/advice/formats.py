"""The same frames in another file: a few are encoded anew and read as a worker would."""

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from paceline import _core
from paceline.block import DAMAGED_STEP, Decoded, field_bits
from paceline.chain import Chain
from paceline.errors import PacelineError
from paceline.frames import Clock, Extents, FileFrames
from paceline.indexed import IndexedFile, TrajectoryFile, extents_in

#: Positions of the frames that are encoded, at the most, bytes; and how many frames.
_BYTES, _FRAMES = 32 << 20, 64
#: Seconds for which each kind of file is read, in some rounds, of which the fastest counts.
_SECONDS, _ROUNDS = 0.02, 3
#: Formats by what they hold.
_OF_POSITIONS, _OF_MOTION = ("XTC", "DCD"), ("NetCDF",)


@dataclass(frozen=True)
class Recoded:
    """A frame in a file of another kind.

    Attributes
    ----------
    format : str
        Its format.
    selected : bool
        Whether it holds only the atoms that are wanted.
    frame_bytes : float
        Size of the frame.
    n_bytes : float
        Read of it for the atoms that are wanted.
    reading : tuple of float
        Reading from memory and decoding, by one worker alone and by one of two at a time, s.
    writing : float
        Decoding a whole frame of the file that there is, and encoding this one, s.
    """

    format: str
    selected: bool
    frame_bytes: float
    n_bytes: float
    reading: tuple[float, float]
    writing: float


def recoded(chain: Chain, source: FileFrames, frames: np.ndarray) -> list[Recoded]:
    """What files of other kinds would make of some frames.

    Parameters
    ----------
    chain : paceline.chain.Chain
        The files that there are.
    source : FileFrames
        How their frames are read: the atoms and fields that are wanted.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers; a few of them are taken.

    Returns
    -------
    list of Recoded
        Without the kind that there is, and those that cannot hold such frames.
    """
    n_frames = min(_FRAMES, max(1, _BYTES // (12 * chain.n_atoms)))
    extents = chain.extents(frames[:n_frames])
    whole, decoding = _decoded(chain, source, extents)
    if len(whole.frames) == 0:
        return []
    wanted = np.arange(chain.n_atoms) if source.atoms is None else source.atoms
    found = []
    for format in _OF_POSITIONS if set(source.fields) <= {"positions"} else _OF_MOTION:
        for selected in (False, True):
            is_there = format == chain.cores[0].format and not selected
            if is_there or (selected and len(wanted) == chain.n_atoms):
                continue
            try:
                found.append(
                    _recode(whole, chain.n_atoms, wanted, format, selected, source.fields, decoding)
                )
            except PacelineError:  # a frame that the format cannot hold
                continue
    return found


def _decoded(chain: Chain, source: FileFrames, extents: Extents) -> tuple[Decoded, float]:
    """Frames with all their atoms, without damaged ones, and seconds that each took."""
    everything = FileFrames(chain.members, None, chain.n_atoms, source.fields, (), Clock())
    decoded = Decoded.room_for(np.arange(len(extents)), chain.n_atoms, source.fields)
    begun = time.perf_counter()
    everything.open().read(extents, decoded, skip=True)
    seconds = (time.perf_counter() - begun) / len(extents)
    return decoded[decoded.steps != DAMAGED_STEP], seconds


def _recode(
    whole: Decoded,
    n_atoms: int,
    wanted: np.ndarray,
    format: str,
    selected: bool,
    fields: Sequence[str],
    decoding: float,
) -> Recoded:
    columns = wanted if selected else np.arange(n_atoms)
    begun = time.perf_counter()
    head, body = _encode(whole, columns, format, fields)
    writing = decoding + (time.perf_counter() - begun) / len(whole.frames)
    with tempfile.TemporaryDirectory(prefix="paceline-advice-") as folder:
        path = os.path.join(folder, "frames")
        with open(path, "wb") as file:
            file.write(head + body)
        core = IndexedFile(path)
        source = FileFrames(
            [core.member],
            None if selected or len(wanted) == core.n_atoms else wanted,
            len(wanted),
            fields,
            (),
            Clock(),
        )
        alone, n_bytes = _reading(source, core, 1)
        beside, _ = _reading(source, core, 2)
    size = len(body) / len(whole.frames)
    return Recoded(format, selected, size, n_bytes, (alone, beside), writing)


def _encode(
    whole: Decoded, columns: np.ndarray, format: str, fields: Sequence[str]
) -> tuple[bytes, bytes]:
    """What a file of these frames begins with, and the frames."""
    has_cell = bool(whole.dimensions.any())
    encoder = _core.Encoder(format, len(columns), None, has_cell, field_bits(fields))
    positions, velocities, forces = (
        None if values is None else np.ascontiguousarray(values[:, columns])
        for values in (whole.positions, whole.velocities, whole.forces)
    )
    moments = (whole.dimensions, whole.times, whole.steps)
    body = encoder.encode((positions, velocities, forces, *moments))
    return encoder.head(len(whole.frames), 0.0, 1.0, 0, 1), body


def _reading(source: FileFrames, core: TrajectoryFile, n_workers: int) -> tuple[float, float]:
    """Seconds in which one of several workers reads a frame, and bytes that it reads of it."""
    extents = extents_in(0, core, np.arange(core.n_frames, dtype=np.uint64))
    hands = [source.open() for _ in range(n_workers)]
    rooms = [
        Decoded.room_for(np.arange(len(extents)), source.n_wanted, source.fields) for _ in hands
    ]
    cost = hands[0].read(extents, rooms[0], skip=False)
    times = max(1, int(_SECONDS / ((cost.read + cost.decode) / 1e9)))

    def read(worker: int) -> float:
        begun = time.perf_counter()
        for _ in range(times):
            hands[worker].read(extents, rooms[worker], skip=False)
        return (time.perf_counter() - begun) / times / len(extents)

    with ThreadPoolExecutor(n_workers) as threads:
        # Large frames take long enough to be measured once.
        n_rounds = _ROUNDS if times > 1 else 1
        rounds = [list(threads.map(read, range(n_workers))) for _ in range(n_rounds)]
    return min(map(sum, rounds)) / n_workers, cost.bytes / len(extents)
