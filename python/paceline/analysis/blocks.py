"""Intervals of functions of the time between frames, by blocks of pairs of frames."""

from dataclasses import dataclass

import numpy as np

from paceline.analysis.uncertainty import students_t, with_error

#: Blocks of a run.
N_BLOCKS = 10
#: Longest time between frames that has an interval, in blocks.
REACH = 2
#: Times that a run must be as long as an integral, so that its interval can be believed.
ENOUGH_TIMES = 100


@dataclass(frozen=True)
class BlockSums:
    """Sums over pairs of frames, and what they are divided by, of each block and time between.

    Both of shape (n_blocks, n_lags). A pair belongs to the block of its first frame, so that the
    sum over blocks is that of the run.
    """

    sums: np.ndarray
    counts: np.ndarray

    def without_each(self) -> np.ndarray:
        """Compute the function of all blocks but one, for each of them: its shape is theirs."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.sums.sum(axis=0) - self.sums) / (self.counts.sum(axis=0) - self.counts)


def block_starts(n_frames: int, longest: int) -> np.ndarray:
    """Choose the first frames of blocks, and their end; one block where they would be too short."""
    length = n_frames // N_BLOCKS
    n_blocks = N_BLOCKS if 0 < longest <= REACH * length and length > 1 else 1
    starts = np.arange(n_blocks + 1) * (n_frames // n_blocks)
    starts[-1] = n_frames
    return starts


def block_products(series: np.ndarray, gaps: np.ndarray) -> BlockSums | None:
    """Sum up inner products of vectors, shape (n_frames, width), without those of the gaps.

    For times between frames of up to two blocks; None of a run that is too short for blocks.
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
        np.stack([_lagged(one[a:b], one[a : b + longest], longest) for a, b in _pairs(starts)])
        for one in (values, there)
    )
    return BlockSums(sums, np.rint(counts))


def _pairs(starts: np.ndarray) -> list[tuple[int, int]]:
    """First frame and end of each block."""
    return list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))


def _lagged(first: np.ndarray, second: np.ndarray, longest: int) -> np.ndarray:
    """Sum products of row i of one array and row i + lag of another, for each lag."""
    size = 1 << (len(first) + longest).bit_length()
    one, other = (np.fft.rfft(values, size, axis=0) for values in (first, second))
    return np.fft.irfft((one.conj() * other).sum(axis=1), size)[: longest + 1]


def jackknife_interval(without_each: np.ndarray) -> np.ndarray:
    """Half of the width of the 95 % interval of a number, or of arrays, by Student's t.

    Given those of all blocks but one, for each block (Quenouille 1956, Biometrika 43, 353; Tukey
    1958): right also of numbers that are not means.
    """
    n = len(without_each)
    off = without_each - without_each.mean(axis=0)
    interval = students_t(n - 1) * np.sqrt((n - 1) / n * (off**2).sum(axis=0))
    return np.where(interval > 0, interval, np.nan)[()]


def is_converged(integral: float, length: float) -> bool:
    """Tell whether a run is as many times as long as a time as its interval needs."""
    return length >= ENOUGH_TIMES * integral


def time_with_interval(
    value: float, interval: float, *, converged: bool, end: str = "", unit: str = "ps"
) -> str:
    """Write a time of a correlation with its 95 % interval, and whether it is converged.

    Its integral ends as `end` says.
    """
    note = "" if converged else ", not converged"
    if np.isnan(interval):
        return f"{value:.4g} {unit}, no interval{note}{end}"
    return f"{with_error(value, interval)} {unit} (95 %){note}{end}"
