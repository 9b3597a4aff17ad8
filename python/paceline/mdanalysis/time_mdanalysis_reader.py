"""Measure the time per frame of MDAnalysis's own readers, even if paceline is registered."""

from abc import ABCMeta
from contextlib import suppress
from time import perf_counter

from MDAnalysis.coordinates.base import ProtoReader

from paceline.mdanalysis.registration import READERS

#: Time after which no further frame is read in a round, s.
_SECONDS = 0.1
#: Number of rounds, of which the fastest is used.
_ROUNDS = 3


def time_of_own_reader(path: str, format: str, n_atoms: int, frames: range) -> float | None:
    """Measure the time in which MDAnalysis's own reader reads a frame, s.

    Frames are first read once, so that the bytes are in memory, and then in several rounds. The
    result is the mean time per frame of the fastest round.
    Returns None if MDAnalysis has no reader for the format, or cannot read the file.
    """
    found = next((cls for cls, formats in READERS.items() if format in formats), None)
    # MDAnalysis's readers may raise errors of any class.
    with suppress(Exception):
        if found is not None:
            # If paceline is registered, calling the class itself would create paceline's reader.
            with ABCMeta.__call__(found, path, n_atoms=n_atoms) as reader:
                _read(reader, frames)
                return min(_read(reader, frames) for _ in range(_ROUNDS))
    return None


def _read(reader: ProtoReader, frames: range) -> float:
    """Read frames in sequence; return the time of one frame, s."""
    begun = perf_counter()
    reader[frames[0]]
    for n_read, _ in enumerate(frames[1:], 1):
        if perf_counter() - begun > _SECONDS:
            return (perf_counter() - begun) / n_read
        reader.next()
    return (perf_counter() - begun) / len(frames)
