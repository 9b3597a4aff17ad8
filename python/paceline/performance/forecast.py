"""Forecast of a run from sample runs by one worker and by two."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from statistics import fmean
from typing import Self

import numpy as np

from paceline.performance.model import FILE_SYSTEMS, FileSystem, FrameCost, predict
from paceline.performance.record import BlockTiming, RunTimings

#: Times of two measurements differ by about so much, as far as is known before there are any; this
#: counts as much as so many measurements.
_USUAL_SPREAD, _WEIGHT = 0.15, 2
#: Measurements that take longer than the median by this factor, one of five at the most, count for
#: nothing: other programs take less, and a machine that stood still soon goes on.
_STOOD_STILL, _OUT_OF = 2.5, 5
#: Standard deviations from the middle of a range to its ends, nine of ten lie between them; and of
#: one, two or three measurements, whose spread is less well known.
_DEVIATIONS, _OF_FEW = 2.0, (2.92, 3.2, 2.4)
#: Ends of a range differ by this factor, for the machine's own speed changes from run to run; by
#: more where measurements differ too much.
WIDE = 1.5


@dataclass(frozen=True)
class SampleTimes:
    """Times of a sample run."""

    #: Of a frame, by one of its workers.
    cost: FrameCost
    #: Opening the file by one worker, s.
    opening: float
    #: Time of such a run whatever its length: planning, starting workers, opening, ending, s.
    fixed: float
    #: Time for which workers were at work, s.
    at_work: float

    @classmethod
    def of(cls, timings: RunTimings, t_open: float) -> Self:
        """Take those of a run, which took `t_open`, s, before it began."""
        blocks_of: dict[str, list[BlockTiming]] = {}
        for block in sorted(timings.blocks, key=lambda block: block.start):
            blocks_of.setdefault(block.worker, []).append(block)
        # From a worker's first block until its last: then the others may still be at work.
        length = sum(own[-1].end - own[0].start for own in blocks_of.values())
        opening = sum(block.open for block in timings.blocks) / len(blocks_of) / 1e9
        begun = min(own[0].start for own in blocks_of.values())
        at_work = (timings.last - begun) / 1e9
        fixed = t_open + max(0.0, timings.t_total - at_work) + opening
        return cls(FrameCost.mean_of(timings.blocks, length), opening, fixed, at_work)

    @classmethod
    def mean(cls, several: Sequence[Self]) -> Self:
        """Mean of several."""
        costs = [one.cost for one in several]
        cost = FrameCost(
            **{one.name: fmean(getattr(c, one.name) for c in costs) for one in fields(FrameCost)}
        )
        others = (fmean(values) for values in zip(*(one._others for one in several), strict=True))
        return cls(cost, *others)

    @property
    def _others(self) -> tuple[float, float, float]:
        return self.opening, self.fixed, self.at_work


#: Times by one worker, and by two.
Pair = tuple[SampleTimes, SampleTimes]


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


@dataclass(frozen=True)
class Forecast:
    """Time of a run by number of workers, from measurements with one worker and with two."""

    #: Measurements with one worker, and with two; the same where there can be only one.
    rounds: tuple[Pair, ...]
    #: Processor time of a frame, s.
    busy: float
    #: Processors that workers share.
    cpus: int
    #: Frames of the run.
    n_frames: int
    #: Frames of a block for so many workers.
    block_frames: Callable[[int], int]
    #: Time of the very first run whatever its length, s: workers are started for it.
    start: float = 0.0

    @cached_property
    def one(self) -> SampleTimes:
        """Mean with one worker."""
        return SampleTimes.mean([one for one, _ in self.rounds])

    @cached_property
    def two(self) -> SampleTimes:
        """Mean with two workers."""
        return SampleTimes.mean([two for _, two in self.rounds])

    def cost(self, n_workers: int) -> FrameCost:
        """Cost of a frame for one of so many workers.

        What two workers cost each other, each further one costs them once more, as it does where
        they take turns at something (Gunther 1993, the serial fraction). Together they get no more
        processor time than there is.
        """
        one, two = self.one.cost, self.two.cost
        if n_workers <= 2:
            return one if n_workers == 1 else two
        parts = {
            name: value + (n_workers - 2) * max(0.0, value - one.parts[name])
            for name, value in two.parts.items()
        }
        lacking = n_workers / self.cpus * self.busy - sum(parts.values())
        parts["rest"] += max(0.0, lacking)
        return FrameCost(bytes=one.bytes, **parts)

    def fixed(self, n_workers: int) -> float:
        """Time of such a run whatever its length, s."""
        return max(self.start, (self.one if n_workers == 1 else self.two).fixed)

    def t_total(self, n_workers: int) -> float:
        """Time of the run on the file that there is, s.

        Halfway between the mean of the rounds and the fastest: other work slows some of them, and
        as large a part of a run; but short measurements, between which processors rest, are slower
        than a run.
        """
        return _typical(self._times(n_workers))

    def t_range(self, n_workers: int) -> tuple[float, float]:
        """Range that holds the time of nine runs of ten, s.

        As wide as runs differ on the same machine, or as the spread of the measurements makes it:
        that of their mean, and that of the run itself, which is the smaller the longer it takes.
        """
        times = self._times(n_workers)
        seconds = _typical(times)
        logs = np.log(times)
        squares = _WEIGHT * _USUAL_SPREAD**2 + ((logs - logs.mean()) ** 2).sum()
        variance = squares / (_WEIGHT + len(logs) - 1)
        # A measurement with two workers is such a part of the run.
        part = min(1.0, self.two.at_work / seconds)
        deviations = (*_OF_FEW, _DEVIATIONS)[min(len(logs) - 1, len(_OF_FEW))]
        spread = deviations * math.sqrt(variance * (1 / len(logs) + part))
        factor = max(math.sqrt(WIDE), math.exp(spread))
        return seconds / factor, seconds * factor

    @property
    def is_wide(self) -> bool:
        """True where a range is wide, by one worker or by two."""
        return any(is_wide_range(*self.t_range(n_workers)) for n_workers in (1, 2))

    def t_recoded(self, file: Recoded, n_workers: int, rate: float | None) -> float:
        """Time of the run on another file, s; `rate`: bytes per second, if it is on disk."""
        alone, beside = file.reading
        reading = alone if n_workers == 1 else max(alone, beside)
        cost = replace(self.cost(n_workers), read=reading, decode=0.0, bytes=file.n_bytes)
        system = FILE_SYSTEMS["memory"]
        if rate is not None:
            system = FileSystem(server_bandwidth=rate)
            # Bytes come while others are decoded: only what takes longer is waited for.
            cost = replace(cost, read=reading + max(0.0, file.n_bytes / rate - cost.seconds))
        return self._predict(cost, n_workers, self.fixed(n_workers), system)

    def t_convert(self, file: Recoded, n_workers: int) -> float:
        """Time to make another file, s, but for what the disk takes to write it."""
        cost = FrameCost(read=0.0, decode=0.0, compute=file.writing, bytes=file.frame_bytes)
        return self._predict(cost, n_workers, 0.0)

    def _times(self, n_workers: int) -> np.ndarray:
        """Times of the run by each round of measurements, s, in which the machine went on."""
        rounds = [replace(self, rounds=(pair,)) for pair in self.rounds]
        times = np.array(
            [self._predict(one.cost(n_workers), n_workers, one.fixed(n_workers)) for one in rounds]
        )
        stood_still = times > _STOOD_STILL * np.median(times)
        return times if _OUT_OF * stood_still.sum() > len(times) else times[~stood_still]

    def _predict(
        self,
        cost: FrameCost,
        n_workers: int,
        t_start: float,
        system: FileSystem = FILE_SYSTEMS["memory"],
    ) -> float:
        return predict(
            cost,
            self.n_frames,
            n_workers,
            file_system=system,
            block_frames=self.block_frames(n_workers),
            t_start=t_start,
        ).t_total


def _typical(times: np.ndarray) -> float:
    return float(times.mean() + times.min()) / 2


def is_wide_range(low: float, high: float) -> bool:
    """Return whether the ends of a range differ by more than they do at the least."""
    return high > 1.001 * WIDE * low


@dataclass(frozen=True)
class Findings:
    """Findings of sample runs."""

    #: Backend of the workers.
    backend: str
    #: With the bytes in memory.
    in_memory: Forecast
    #: With the bytes on the disk; None where they could not be put out of memory.
    from_disk: Forecast | None
    #: By processes, in memory, where threads were seen to hold each other up.
    processes: Forecast | None
    #: Share of what was read from memory that is there; None where it is unknown.
    resident: float | None
    #: Part of a frame's time in which the analysis wants no processor, as if it slept.
    waiting: float
    #: CPUs that other programs kept busy meanwhile, of those that this process may use; None where
    #: it is unknown.
    others: float | None
