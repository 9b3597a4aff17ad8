"""Forecast of a run from sample runs with one worker and with two workers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Self

import numpy as np

from paceline.performance.model import (
    FILE_SYSTEMS,
    IN_FLIGHT,
    REQUEST_BYTES,
    FileSystem,
    FrameCost,
    predict,
)
from paceline.performance.record import BlockTiming, RunTimings

#: Relative spread of measurements that is assumed before any are made.
_USUAL_SPREAD = 0.15
#: Weight of the assumed spread, expressed as a number of measurements.
_WEIGHT = 2
#: Measurements that exceed the median by this factor are ignored as outliers, unless they are more
#: than one in five. They are due to short pauses of the machine; other programs slow measurements
#: less.
_STOOD_STILL, _OUT_OF = 2.5, 5
#: Half width, in standard deviations, of a range that contains nine of ten runs.
_DEVIATIONS = 2.0
#: Half widths for one, two and three measurements, instead of `_DEVIATIONS`: the spread of so few
#: is less well known.
_OF_FEW = (2.92, 3.2, 2.4)
#: Minimum ratio of a range's ends, because the machine's speed varies from run to run. The ratio
#: is larger if measurements vary more.
WIDE = 1.5


@dataclass(frozen=True)
class SampleTimes:
    """Times of a sample run: a short run that was measured, in order to forecast the whole run."""

    #: Cost of a frame for one worker.
    cost: FrameCost
    #: Time for one worker to open the file, s.
    opening: float
    #: Part of the run's time that does not depend on its number of frames, s: planning, starting
    #: workers, opening files, ending.
    fixed: float
    #: Time during which workers processed blocks, s.
    at_work: float

    @classmethod
    def of(cls, timings: RunTimings, t_open: float) -> Self:
        """Compute the times from a run's timings and `t_open`, the time to open its file, s."""
        blocks_of: dict[str, list[BlockTiming]] = {}
        for block in sorted(timings.blocks, key=lambda block: block.start):
            blocks_of.setdefault(block.worker, []).append(block)
        # Sum over workers: time from the start of the first block to the end of the last block.
        length = sum(own[-1].end - own[0].start for own in blocks_of.values())
        opening = sum(block.open for block in timings.blocks) / len(blocks_of) / 1e9
        begun = min(own[0].start for own in blocks_of.values())
        at_work = (timings.last - begun) / 1e9
        fixed = t_open + max(0.0, timings.t_total - at_work) + opening
        return cls(FrameCost.mean_of(timings.blocks, length), opening, fixed, at_work)

    @classmethod
    def mean(cls, several: Sequence[Self]) -> Self:
        """Compute the mean times of several sample runs."""
        costs = [one.cost for one in several]
        cost = FrameCost(
            read=fmean(one.read for one in costs),
            decode=fmean(one.decode for one in costs),
            compute=fmean(one.compute for one in costs),
            bytes=fmean(one.bytes for one in costs),
            transform=fmean(one.transform for one in costs),
            rest=fmean(one.rest for one in costs),
        )
        others = (fmean(values) for values in zip(*(one._others for one in several), strict=True))
        return cls(cost, *others)

    @property
    def _others(self) -> tuple[float, float, float]:
        return self.opening, self.fixed, self.at_work


#: Times of a sample run with one worker, and of one with two workers.
Pair = tuple[SampleTimes, SampleTimes]


@dataclass(frozen=True)
class Recoded:
    """Cost of a frame in a file of another format or compression.

    Attributes
    ----------
    format : str
        Format of the file.
    selected : bool
        True if the file contains only the required atoms.
    frame_bytes : float
        Size of the frame, bytes.
    n_bytes : float
        Bytes to read per frame for the required atoms.
    reading : tuple of float
        Times to read from memory and decode, s: for a worker on its own, and for one of two
        workers.
    writing : float
        Time to decode a complete frame of the trajectory's own file and encode it in this format,
        s.
    compression : str
        Compression of an H5MD file; "" for none, and for other formats.
    """

    format: str
    selected: bool
    frame_bytes: float
    n_bytes: float
    reading: tuple[float, float]
    writing: float
    compression: str = ""


@dataclass(frozen=True)
class StoreSpeed:
    """Speed of an object store or a server, measured with parts of one object.

    Attributes
    ----------
    latency : float
        Minimum time until the response to a request begins, s.
    slowest : float
        Time until the response to the slowest of several simultaneous requests begins, estimated
        from the mean, s.
    one : float
        Bytes per second of one connection.
    several : float
        Bytes per second of the connections of one node together.
    request_bytes : float
        Mean number of bytes of a request.
    n_requests, n_bytes : int
        Number of requests of all measurements: of the speed and of the cost of a frame. Number of
        the bytes that they transferred.
    """

    latency: float
    slowest: float
    one: float
    several: float
    request_bytes: float
    n_requests: int
    n_bytes: int

    @property
    def rate(self) -> float:
        """Bytes per second of a run, whose requests may be shorter than those measured here.

        Frames are read in their order, so that further requests wait for the slowest response.
        """
        return self._rate_of(self.request_bytes)

    @property
    def rate_of_copy(self) -> float:
        """Bytes per second of a copy of whole objects, which is made with long requests."""
        return self._rate_of(REQUEST_BYTES)

    def _rate_of(self, request_bytes: float) -> float:
        each = self.slowest + request_bytes / self.one
        return min(self.several, IN_FLIGHT * request_bytes / each)


@dataclass(frozen=True)
class Forecast:
    """Time of a run by number of workers, from measurements with one and two workers."""

    #: Pairs of a measurement with one worker and a measurement with two workers. Both are equal if
    #: only one worker is possible.
    rounds: tuple[Pair, ...]
    #: CPU time that one worker needs for a frame, s.
    busy: float
    #: Number of CPUs that all workers together can use.
    cpus: int
    #: Number of frames of the run.
    n_frames: int
    #: Function that returns the frames per block for a number of workers.
    block_frames: Callable[[int], int]
    #: Part of the first sample run's time that does not depend on its number of frames, s. Only
    #: this sample run starts the workers.
    start: float = 0.0
    #: Store from which all workers get the bytes; None for local files.
    store: StoreSpeed | None = None

    @cached_property
    def one(self) -> SampleTimes:
        """Mean of the measurements with one worker."""
        return SampleTimes.mean([one for one, _ in self.rounds])

    @cached_property
    def two(self) -> SampleTimes:
        """Mean of the measurements with two workers."""
        return SampleTimes.mean([two for _, two in self.rounds])

    def cost(self, n_workers: int) -> FrameCost:
        """Return the cost of a frame for one of several workers.

        Each further worker adds the same cost as the second worker, as in the model of a serial
        fraction (Gunther 1993). All workers together get at most the available CPU time. If bytes
        come from a store, workers wait for those that arrive later than they are needed.
        """
        cost = self._cost_of_work(n_workers)
        if self.store is None:
            return cost
        waiting = n_workers * cost.bytes / self.store.rate - cost.seconds
        return replace(cost, read=cost.read + max(0.0, waiting))

    def _cost_of_work(self, n_workers: int) -> FrameCost:
        """Return the cost of a frame for a worker that does not wait for a store."""
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
        """Return the part of the run's time that does not depend on its length, s."""
        found = max(self.start, (self.one if n_workers == 1 else self.two).fixed)
        return found + self._until_full(n_workers)

    def _until_full(self, n_workers: int) -> float:
        """Return the time at both ends of a run in which the store or the workers are idle, s."""
        if self.store is None:
            return 0.0
        cost = self._cost_of_work(n_workers)
        block = min(self.block_frames(n_workers), self.n_frames / n_workers)
        # Workers wait until their first blocks arrive, or the store until the last ones are
        # computed: whichever is shorter.
        arriving = n_workers * block * cost.bytes / self.store.rate
        # After the last block, one more request checks that the object was not replaced.
        return 2 * self.store.latency + min(arriving, block * cost.seconds)

    def t_total(self, n_workers: int) -> float:
        """Return the time of the run on the trajectory's own file, s.

        The forecast is the average of the rounds' mean and the rounds' minimum. The mean is too
        long, because short measurements, between which CPUs are idle, are slower than a run. The
        minimum is too short, because other programs slow some rounds, and the same fraction of a
        run.
        """
        return _typical(self._times(n_workers))

    def t_range(self, n_workers: int) -> tuple[float, float]:
        """Return a range that contains the time of nine runs out of ten, s.

        Its width is the usual variation between runs on one machine or, if larger, follows from the
        spread of the measurements. This spread includes the error of their mean, and the spread of
        the run itself, which decreases with the run's length.
        """
        times = self._times(n_workers)
        seconds = _typical(times)
        logs = np.log(times)
        squares = _WEIGHT * _USUAL_SPREAD**2 + ((logs - logs.mean()) ** 2).sum()
        variance = squares / (_WEIGHT + len(logs) - 1)
        # A measurement with two workers covers this fraction of the run.
        part = min(1.0, self.two.at_work / seconds)
        deviations = (*_OF_FEW, _DEVIATIONS)[min(len(logs) - 1, len(_OF_FEW))]
        spread = deviations * math.sqrt(variance * (1 / len(logs) + part))
        factor = max(math.sqrt(WIDE), math.exp(spread))
        return seconds / factor, seconds * factor

    @property
    def is_wide(self) -> bool:
        """True if the range of the predicted time is wide for one worker or for two."""
        return any(is_wide_range(*self.t_range(n_workers)) for n_workers in (1, 2))

    def t_recoded(self, file: Recoded, n_workers: int, rate: float | None) -> float:
        """Return the time of the run on another file, s.

        `rate` is in bytes per second from the disk; None if the file is in memory.
        """
        alone, beside = file.reading
        reading = alone if n_workers == 1 else max(alone, beside)
        cost = replace(self.cost(n_workers), read=reading, decode=0.0, bytes=file.n_bytes)
        system = FILE_SYSTEMS["memory"]
        if rate is not None:
            system = FileSystem(server_bandwidth=rate)
            # Reading overlaps with decoding: a worker waits only for the excess.
            cost = replace(cost, read=reading + max(0.0, file.n_bytes / rate - cost.seconds))
        return self._predict(cost, n_workers, self.fixed(n_workers), system)

    def t_convert(self, file: Recoded, n_workers: int) -> float:
        """Time to convert to another file, s, without writing to the disk."""
        cost = FrameCost(read=0.0, decode=0.0, compute=file.writing, bytes=file.frame_bytes)
        return self._predict(cost, n_workers, 0.0)

    def _times(self, n_workers: int) -> np.ndarray:
        """Return the time of the run for each round of measurements, s, without outliers."""
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
    """Return whether the ratio of a range's ends exceeds `WIDE`."""
    return high > 1.001 * WIDE * low


@dataclass(frozen=True)
class Findings:
    """Results of all sample runs, from which the advice is derived."""

    #: Name of the backend for which the run is forecast.
    backend: str
    #: Forecast of the run for the case that all bytes are in memory.
    in_memory: Forecast
    #: Forecast for the case that no bytes are in memory, but all on the disk or in the store. None
    #: if this could not be measured, for example because bytes could not be dropped from memory.
    from_disk: Forecast | None
    #: Forecast for processes instead of threads, for the case that all bytes are in memory. None
    #: unless threads slow each other down and the function can be sent to processes.
    processes: Forecast | None
    #: Fraction of the bytes of measurements from memory that are in memory afterwards; None if
    #: unknown.
    resident: float | None
    #: Fraction of a frame's time in which the analysis uses no CPU, as if it slept.
    waiting: float
    #: Number of this process's CPUs that other programs kept busy during the measurements; None if
    #: unknown.
    others: float | None
