"""Autocorrelations of series that one pass over the frames has collected, cut by particles."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline import _core
from paceline.analysis.base import AnalysisBase
from paceline.errors import UnsupportedError
from paceline.schedule.parts import allocate_results

#: Particles of a part, at most.
PARTICLES = 64
#: Parts that are wanted, so that all workers end together.
PARTS = 32
#: Series of a part, at most, bytes.
PART_BYTES = 16 * 2**20
#: A time may differ by so many distances of frames from where it should be …
UNEVEN = 1e-5
#: … and by so much of itself: trajectories keep times in single precision.
ROUNDED = 1.2e-7


class SeriesParts:
    """Parts of a function of the time between frames: ranges of particles, with all frames.

    Parameters
    ----------
    series : numpy.ndarray, shape (n_frames, n_particles, width)
        Values of all particles.
    correlated : {"displacement", "product"}
        Mean squared displacement or autocorrelation.
    axes : sequence of int
        Those of the `width` numbers that count.
    gaps : numpy.ndarray of int64
        Rows of frames that were left out.
    fft : bool
        Compute by the fast Fourier transform.

    Attributes
    ----------
    by_particle : numpy.ndarray of float64, shape (n_particles, n_frames)
        The function of each particle.
    """

    def __init__(
        self,
        series: np.ndarray,
        correlated: str,
        axes: Sequence[int],
        gaps: np.ndarray,
        *,
        fft: bool,
    ):
        self._series = series
        n_frames, n_particles, width = series.shape
        self._size = part_size(n_frames, n_particles, width * series.itemsize)
        self.n_parts = -(-n_particles // self._size)
        self.worker = _Correlated(
            correlated, n_frames, width, np.array(axes, dtype=np.int64), gaps, fft=fft
        )
        self.by_particle = allocate_results((n_particles, n_frames), np.dtype(np.float64))
        self._sums = allocate_results((self.n_parts, n_frames), np.dtype(np.float64))

    def _particles(self, number: int) -> slice:
        first = number * self._size
        return slice(first, min(first + self._size, len(self.by_particle)))

    def arguments(self, number: int) -> tuple[Any, ...]:
        """Size of a part, and the series of its particles."""
        return self._size, self._series[:, self._particles(number)]

    def put(self, number: int, *values: np.ndarray) -> None:
        """Put the function of some particles in its place, and their sum."""
        rows, total = values
        some = self._particles(number)
        self.by_particle[some] = rows[: some.stop - some.start]
        self._sums[number] = total

    def get(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the function of some particles, and their sum."""
        some = self._particles(number)
        return _filled(np.array(self.by_particle[some]), self._size), self._sums[number]

    def mean(self) -> np.ndarray:
        """Mean of all particles; sums of parts are added one after another."""
        total = np.zeros(self._sums.shape[1])
        for one in self._sums:
            total += one
        return total / len(self.by_particle)


class _Correlated:
    """Worker's half: a function of the time between frames, of some particles."""

    def __init__(self, *arguments: Any, fft: bool):
        self._arguments, self._fft = arguments, fft
        self._kernel: _core.Correlation | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kernel": None}

    def compute(self, size: int, series: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the function of each particle, as many as a whole part has, and their sum."""
        if self._kernel is None:
            self._kernel = _core.Correlation(*self._arguments, fft=self._fft)
        dtype: Any = np.float32 if series.dtype == np.float32 else np.float64
        rows, total = self._kernel.compute(np.ascontiguousarray(series, dtype=dtype))
        return _filled(rows, size), total


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """Add rows of zeros up to a number."""
    return np.pad(rows, ((0, size - len(rows)), (0, 0))) if len(rows) < size else rows


def part_size(n_frames: int, n_particles: int, value_bytes: int) -> int:
    """Choose the particles of a part, by the series alone.

    Examples
    --------
    >>> part_size(98, 214, 12), part_size(10_000, 10_000, 12), part_size(10**6, 10_000, 12)
    (7, 64, 1)
    """
    held = max(1, PART_BYTES // (n_frames * value_bytes))
    return max(1, min(PARTICLES, held, math.ceil(n_particles / PARTS)))


def check_order(analysis: AnalysisBase) -> None:
    """Raise `UnsupportedError` where frames are not chosen at equal distances."""
    steps = np.unique(np.diff(analysis.frames))
    if len(steps) > 1 or 0 in steps:
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal distances in time, and those that were chosen "
            "are not: give start, stop and step"
        )


def check_times(analysis: AnalysisBase) -> tuple[np.ndarray, np.ndarray]:
    """Find the times between frames, ps, and the rows of frames that were left out.

    Raises `UnsupportedError` where times are not equidistant.
    """
    times = analysis.times
    rows = np.flatnonzero(~np.isnan(times))
    gaps = np.flatnonzero(np.isnan(times))
    if len(rows) == 0:
        raise UnsupportedError(f"{analysis.name}: no frame could be read")
    if len(times) == 1 or len(rows) == 1:
        return np.where(np.arange(len(times)) == 0, 0.0, np.nan), gaps
    known = times[rows]
    dt = (known[-1] - known[0]) / (rows[-1] - rows[0])
    off = np.abs(known - (known[0] + dt * (rows - rows[0])))
    wrong = off > UNEVEN * abs(dt) + ROUNDED * np.abs(known).max()
    if dt == 0 or wrong.any():
        row = rows[np.argmax(wrong)]
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal distances in time: frame "
            f"{analysis.frames[row]} is at {times[row]} ps, and expected at "
            f"{known[0] + dt * (row - rows[0])} ps"
        )
    if 1 in rows and 0 in rows:
        dt = times[1] - times[0]
    return np.arange(len(times)) * dt, gaps


def centers(block: Any, order: np.ndarray, weights: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Compute weighted centers of compounds, shape (n_frames, n_compounds, 3), float64.

    `order` are the columns of the atoms, compound by compound; `weights` those of the atoms in this
    order, which add up to 1 in each compound; `firsts` are the first ones of compounds.
    """
    weighted = block.positions[:, order].astype(np.float64) * weights[:, np.newaxis]
    return np.add.reduceat(weighted, firsts, axis=1)


Function = Callable[[Any], Any]
