"""Confidence intervals of functions of the lag time, by blocks of pairs of frames."""

from dataclasses import dataclass

import numpy as np

from paceline.analysis.uncertainty import students_t, with_error

#: Number of blocks into which the time origins of a run are divided.
N_BLOCKS = 10
#: Longest lag time with an interval, as a multiple of the length of a block.
REACH = 2
#: Minimum length of a run, in correlation times, for a reliable interval of the correlation time.
ENOUGH_TIMES = 100


@dataclass(frozen=True)
class BlockSums:
    """Sums over pairs of frames and their divisors, for each block and lag time.

    Both arrays have shape (n_blocks, n_lags). A pair belongs to the block of its first frame, so
    the sum over blocks is the sum over the run.
    """

    sums: np.ndarray
    counts: np.ndarray

    def without_each(self) -> np.ndarray:
        """For each block, compute the function from all other blocks: shape (n_blocks, n_lags)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.sums.sum(axis=0) - self.sums) / (self.counts.sum(axis=0) - self.counts)


def block_starts(n_frames: int, longest: int) -> np.ndarray:
    """Choose the first frame of each block, followed by the number of frames.

    There is a single block if `N_BLOCKS` blocks would be too short for the lag time `longest`.
    """
    length = n_frames // N_BLOCKS
    n_blocks = N_BLOCKS if 0 < longest <= REACH * length and length > 1 else 1
    starts = np.arange(n_blocks + 1) * (n_frames // n_blocks)
    starts[-1] = n_frames
    return starts


def block_products(series: np.ndarray, gaps: np.ndarray) -> BlockSums | None:
    """Sum inner products of vectors, shape (n_frames, width), at lag times of up to two blocks.

    `gaps` are rows that are left out. Returns None for a run that is too short for blocks.
    """
    n_frames = len(series)
    longest = REACH * (n_frames // N_BLOCKS)
    starts = block_starts(n_frames, longest)
    if len(starts) == 2:
        return None
    values = np.array(series, dtype=np.float64)
    there = np.ones((n_frames, 1))
    values[gaps], there[gaps] = 0, 0
    sums, counts = (
        np.stack(
            [_lagged_products(one[a:b], one[a : b + longest], longest) for a, b in _pairs(starts)]
        )
        for one in (values, there)
    )
    return BlockSums(sums, np.rint(counts))


def _pairs(starts: np.ndarray) -> list[tuple[int, int]]:
    """First frame and end of each block."""
    return list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))


def _lagged_products(first: np.ndarray, second: np.ndarray, longest: int) -> np.ndarray:
    """For each lag, sum the products of row i of `first` and row i + lag of `second`."""
    size = 1 << (len(first) + longest).bit_length()
    one, other = (np.fft.rfft(values, size, axis=0) for values in (first, second))
    return np.fft.irfft((one.conj() * other).sum(axis=1), size)[: longest + 1]


def jackknife_interval(without_each: np.ndarray) -> np.ndarray:
    """Half the width of the 95 % interval of a number or of arrays, by Student's t.

    The argument contains, for each block, the value computed from all other blocks (jackknife:
    Quenouille 1956, Biometrika 43, 353; Tukey 1958). This is also valid for values that are not
    means.
    """
    n = len(without_each)
    off = without_each - without_each.mean(axis=0)
    interval = students_t(n - 1) * np.sqrt((n - 1) / n * (off**2).sum(axis=0))
    return np.where(interval > 0, interval, np.nan)[()]


def is_converged(integral: float, length: float) -> bool:
    """True if a run is at least `ENOUGH_TIMES` times as long as a correlation time."""
    return length >= ENOUGH_TIMES * integral


def time_with_interval(
    value: float, interval: float, *, converged: bool, end: str = "", unit: str = "ps"
) -> str:
    """Format a correlation time with its 95 % interval, and say if it is not converged.

    `end` is appended; it describes where the integral ends.
    """
    note = "" if converged else ", not converged"
    if np.isnan(interval):
        return f"{value:.4g} {unit}, no interval{note}{end}"
    return f"{with_error(value, interval)} {unit} (95 %){note}{end}"
