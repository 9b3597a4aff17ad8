"""Time correlation functions of series, computed in parts. A part is a range of particles."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from paceline import _core
from paceline.analysis.diffusion import BlockFit
from paceline.contract.analysis_kinds import OverParts
from paceline.engine.result_arrays import put_rows
from paceline.engine.stage_over_collected_rows import allocate_results
from paceline.transform.nojump_workers import unwrap_series

#: Maximum number of particles in a part.
PARTICLES = 64
#: Intended number of parts. With many small parts, all workers finish at nearly the same time.
PARTS = 32
#: Maximum size of the series of a part, bytes.
PART_BYTES = 16 * 2**20


class SeriesParts(OverParts):
    """Parts of a correlation function of the lag time. A part is a range of particles.

    `series` has shape (n_frames, n_particles, width); of the `width` numbers, only those with
    indices `axes` are used. `gaps` are the rows of frames that were left out. With `unwrap`, jumps
    across the cell are removed first (see `unwrap_series`), and the last three particles contain
    the cell vectors. `by_particle` is the function of each particle, float64, shape (n_particles,
    n_frames). `by_block`, shape (n_particles, n_blocks), contains the coefficient of the line that
    `of_blocks` fits in each block of time; None without `of_blocks`. `lags_of` maps a number of
    blocks to the number of lag times, from 0, at which the mean in each of these blocks is
    computed.
    """

    by_particle: np.ndarray
    by_block: np.ndarray | None

    def __init__(
        self,
        series: np.ndarray,
        correlated: str,
        axes: Sequence[int],
        gaps: np.ndarray,
        *,
        fft: bool,
        unwrap: str | None = None,
        of_blocks: BlockFit | None = None,
        lags_of: Mapping[int, int] | None = None,
    ):
        n_frames, _, width = series.shape
        worker = _Correlated(
            *(correlated, n_frames, width, np.array(axes, dtype=np.int64), gaps),
            fft=fft,
            unwrap=unwrap,
            of_blocks=of_blocks,
            lags_of=lags_of or {},
        )
        self.allocate(series, unwrap, n_frames, worker)
        if of_blocks is not None:
            shape = self.by_particle.shape[0], of_blocks.n_blocks
            self.by_block = allocate_results(shape, np.dtype(np.float64))
        for n_blocks, n_lags in (lags_of or {}).items():
            of_parts = allocate_results((self.n_parts, n_blocks, n_lags), np.dtype(np.float64))
            self._block_sums[n_blocks] = of_parts

    def allocate(self, series: np.ndarray, unwrap: str | None, n_lags: int, worker: object) -> None:
        """Allocate the functions of particles and the sums of parts, at `n_lags` lag times."""
        self.worker = worker
        self._cells = None if unwrap is None else series[:, -3:]
        self._series = series = series if unwrap is None else series[:, :-3]
        n_frames, n_particles, width = series.shape
        self._size = part_size(max(n_frames, n_lags), n_particles, width * series.itemsize)
        self.n_parts = -(-n_particles // self._size)
        self.by_block = None
        self._block_sums: dict[int, np.ndarray] = {}
        self.by_particle = allocate_results((n_particles, n_lags), np.dtype(np.float64))
        self._sums = allocate_results((self.n_parts, n_lags), np.dtype(np.float64))

    def _particles(self, number: int) -> slice:
        first = number * self._size
        return slice(first, min(first + self._size, len(self.by_particle)))

    def arguments(self, number: int) -> tuple[object, ...]:
        """Return part size, series of the part's particles, and the cells if they are needed."""
        series = self._series[:, self._particles(number)]
        return (self._size, series) if self._cells is None else (self._size, series, self._cells)

    def put(self, number: int, *values: np.ndarray) -> None:
        """Store a part's functions, their sum, coefficients of lines, and sums in blocks."""
        rows, total, *rest = values
        some = self._particles(number)
        put_rows(self.by_particle, some.start, rows[: some.stop - some.start])
        self._sums[number] = total
        if self.by_block is not None:
            self.by_block[some] = rest.pop(0)[: some.stop - some.start]
        for sums, of_part in zip(self._block_sums.values(), rest, strict=True):
            sums[number] = of_part

    def get(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the values of a part, as they were passed to `put`."""
        some = self._particles(number)
        known = [padded_rows(np.array(self.by_particle[some]), self._size), self._sums[number]]
        if self.by_block is not None:
            known.append(padded_rows(np.array(self.by_block[some]), self._size))
        return (*known, *(sums[number] for sums in self._block_sums.values()))

    def mean(self) -> np.ndarray:
        """Mean of the function over all particles; the sums of parts are added in a fixed order."""
        return self._mean_of(self._sums)

    def block_means(self) -> dict[int, np.ndarray]:
        """Mean of the function over all particles in each block of time, by number of blocks.

        Each array has the shape (n_blocks, n_lags).
        """
        return {n_blocks: self._mean_of(sums) for n_blocks, sums in self._block_sums.items()}

    def _mean_of(self, sums: np.ndarray) -> np.ndarray:
        total = np.zeros(sums.shape[1:])
        for one in sums:
            total += one
        return total / len(self.by_particle)


class _Correlated:
    """Worker part: a correlation function of the lag time for some particles."""

    def __init__(
        self,
        *arguments: Any,
        fft: bool,
        unwrap: str | None = None,
        of_blocks: BlockFit | None = None,
        lags_of: Mapping[int, int],
    ):
        self._arguments, self._fft, self._unwrap = arguments, fft, unwrap
        self._of_blocks, self._lags_of = of_blocks, lags_of
        self._kernel: _core.Correlation | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_kernel": None}

    def compute(
        self, size: int, series: np.ndarray, cells: np.ndarray | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return the function of each particle, padded to the size of a whole part, and their sum.

        With `of_blocks`, also return the coefficients of lines that are fitted in blocks of time;
        with `lags_of`, also the sums in blocks.
        """
        if cells is not None and self._unwrap is not None:
            *_, gaps = self._arguments
            series = unwrap_series(series, cells, gaps, self._unwrap)
        if self._kernel is None:
            self._kernel = _core.Correlation(*self._arguments, fft=self._fft)
        dtype: Any = np.float32 if series.dtype == np.float32 else np.float64
        series = np.ascontiguousarray(series, dtype=dtype)
        rows, total = self._kernel.compute(series)
        found, fit = [padded_rows(rows, size), total], self._of_blocks
        lines: list[np.ndarray] = []
        sums: dict[int, list[np.ndarray]] = {n_blocks: [] for n_blocks in self._lags_of}
        for n_blocks in {*self._lags_of, *([] if fit is None else [fit.n_blocks])}:
            for rows, total in self._in_blocks(series, n_blocks):
                if fit is not None and n_blocks == fit.n_blocks:
                    lines.append((rows[:, fit.lags] * fit.weights).sum(axis=1))
                if n_blocks in self._lags_of:
                    sums[n_blocks].append(total[: self._lags_of[n_blocks]])
        if fit is not None:
            found.append(padded_rows(np.stack(lines, axis=1), size))
        return (*found, *map(np.stack, sums.values()))

    def _in_blocks(
        self, series: np.ndarray, n_blocks: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for each block of time, the function of each particle and the sum over them."""
        correlated, n_frames, width, axes, gaps = self._arguments
        n = n_frames // n_blocks
        for k in range(n_blocks):
            inside = gaps[(gaps >= k * n) & (gaps < (k + 1) * n)] - k * n
            kernel = _core.Correlation(correlated, n, width, axes, inside, fft=self._fft)
            yield kernel.compute(series[k * n : (k + 1) * n])


def padded_rows(rows: np.ndarray, size: int) -> np.ndarray:
    """Pad an array with rows of zeros to `size` rows."""
    return np.pad(rows, ((0, size - len(rows)), (0, 0))) if len(rows) < size else rows


def part_size(n_frames: int, n_particles: int, value_bytes: int) -> int:
    """Choose the number of particles of a part, independent of the workers.

    Examples
    --------
    >>> part_size(98, 214, 12), part_size(10_000, 10_000, 12), part_size(10**6, 10_000, 12)
    (7, 64, 1)
    """
    held = max(1, PART_BYTES // (n_frames * value_bytes))
    return max(1, min(PARTICLES, held, math.ceil(n_particles / PARTS)))


def results_bytes(n_frames: int, n_particles: int, value_bytes: int) -> int:
    """Size of the results of `SeriesParts`, bytes."""
    n_parts = -(-n_particles // part_size(n_frames, n_particles, value_bytes))
    return 8 * n_frames * (n_particles + n_parts)


def pairs_of_frames(n_frames: int, gaps: np.ndarray) -> np.ndarray:
    """Count the pairs of frames for each lag, without the frames in `gaps`.

    Examples
    --------
    >>> pairs_of_frames(5, np.array([1]))
    array([4, 2, 2, 1, 1])
    """
    there = np.ones(n_frames)
    there[gaps] = 0
    spectrum = np.abs(np.fft.rfft(there, 2 * n_frames)) ** 2
    return np.rint(np.fft.irfft(spectrum, 2 * n_frames)[:n_frames]).astype(np.int64)


def running_integral(values: np.ndarray, delta_t: np.ndarray) -> np.ndarray:
    """Integrate from the first time to each time by the trapezoidal rule, along the first axis.

    Examples
    --------
    >>> running_integral(np.array([2.0, 1.0, 0.0]), np.array([0.0, 0.5, 1.0]))
    array([0.  , 0.75, 1.  ])
    """
    found = np.zeros(values.shape)
    for dt in delta_t[1:2]:
        found[1:] = np.cumsum((values[1:] + values[:-1]) / 2, axis=0) * dt
    return found


def check_temperature(temperature: float) -> None:
    """Raise `ValueError` if the temperature, K, is not above 0."""
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be above 0 K, not {temperature!r}")
