"""Forecast a run from sample runs by one worker and by two, and from frames in other formats."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter, thread_time

import numpy as np

from paceline import _core
from paceline._util.leftovers import ScratchFolder
from paceline._util.machine import OtherWork, available_cpus
from paceline.backends import Backend, Processes, Serial, make_backend
from paceline.block import DAMAGED_STEP, FIELDS, FrameBuffer, field_bits, fields_in
from paceline.errors import PacelineError, WorkerError
from paceline.scaling.predict import FrameCost, predict
from paceline.scaling.sample_run import Costs, SampleRun, SampleTimes
from paceline.scaling.systems import FILE_SYSTEMS, FileSystem
from paceline.trajectory.chain import Chain
from paceline.trajectory.source import (
    FORMATS,
    Extents,
    FrameSource,
    IndexedFile,
    TimeAxis,
    TrajectoryFile,
    extents_in,
)

#: Seconds that one measurement takes, about; rounds of them, at the least; and seconds since
#: measuring began, after which no round begins.
_SECONDS, _ROUNDS, _LONGEST = 0.2, 5, 6.0
#: Rounds of what is read from the disk, at the most; and seconds for them, and for processes.
_COLD_ROUNDS, _SOON = 3, 1.0
#: Frames that are stored as one are measured together where that takes less, s.
_PATIENCE = 2.0
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
#: Where a frame takes longer, s, reading it from the disk is not measured.
_SLOW = 0.5
#: Bytes that are read from the disk in one measurement, at the most; and as many times that from
#: memory, more than caches of processors hold.
_COLD_BYTES, _WARM_TIMES = 16 << 20, 4
#: Threads hold each other up where each of two computes for so much longer than one alone, and
#: that is most of its time.
_HELD_UP, _BY_COMPUTING = 1.25, 0.5
#: Positions of the frames that are encoded, at the most, bytes; and how many frames.
_BYTES, _FRAMES = 8 << 20, 64
#: Seconds for which each kind of file is read, in some rounds, of which the fastest counts.
_RECODING_SECONDS, _RECODING_ROUNDS = 0.02, 3
#: Formats that are offered for positions alone; and for all fields, those of frames of equal size.
_OF_POSITIONS = [name for name, one in FORMATS.items() if fields_in(one.writes) == FIELDS[:1]]
_OF_MOTION = [
    name for name, one in FORMATS.items() if one.equal_frames and fields_in(one.writes) == FIELDS
]

#: Times by one worker, and by two.
Pair = tuple[SampleTimes, SampleTimes]


@dataclass(frozen=True)
class Pace:
    """Cost of a frame by number of workers."""

    #: Measurements with one worker, and with two; the same where there can be only one.
    rounds: tuple[Pair, ...]
    #: Processor time of a frame, s.
    busy: float
    #: Processors that workers share.
    cpus: int
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

    @property
    def each(self) -> "list[Pace]":
        """Every round by itself."""
        return [replace(self, rounds=(pair,)) for pair in self.rounds]

    def costs(self, n_workers: int) -> Costs:
        """Cost of a frame for one of so many workers.

        What two workers cost each other, each further one costs them once more, as it does where
        they take turns at something (Gunther 1993, the serial fraction). Together they get no more
        processor time than there is.
        """
        if n_workers == 1:
            return self.one.costs
        two = self.two.costs
        if n_workers == 2:
            return two
        parts = {
            name: value + (n_workers - 2) * max(0.0, value - self.one.costs.parts[name])
            for name, value in two.parts.items()
        }
        costs = Costs(**parts)
        lacking = n_workers / self.cpus * self.busy - costs.seconds
        return replace(costs, rest=costs.rest + max(0.0, lacking))

    def fixed(self, n_workers: int) -> float:
        """Time of such a run whatever its length, s."""
        return max(self.start, (self.one if n_workers == 1 else self.two).fixed)

    def part_of(self, seconds: float) -> float:
        """Part of a run of so many seconds that a measurement with two workers is, at most 1."""
        return min(1.0, self.two.at_work / seconds)


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
    """Arithmetic that predicts how long a run takes."""

    #: Of the run.
    n_frames: int
    #: Frames of a block for so many workers.
    block_frames: Callable[[int], int]

    def t_total(self, pace: Pace, n_workers: int) -> float:
        """Time of the run on the file that there is, s.

        Halfway between the mean of the rounds and the fastest: other work slows some of them, and
        as large a part of a run; but short measurements, between which processors rest, are slower
        than a run.
        """
        return _typical(self._times(pace, n_workers))

    def t_range(self, pace: Pace, n_workers: int) -> tuple[float, float]:
        """Range that holds the time of nine runs of ten, s.

        As wide as runs differ on the same machine, or as the spread of the measurements makes it:
        that of their mean, and that of the run itself, which is the smaller the longer it takes.
        """
        times = self._times(pace, n_workers)
        seconds = _typical(times)
        logs = np.log(times)
        squares = _WEIGHT * _USUAL_SPREAD**2 + ((logs - logs.mean()) ** 2).sum()
        variance = squares / (_WEIGHT + len(logs) - 1)
        of_both = variance * (1 / len(logs) + pace.part_of(seconds))
        deviations = (*_OF_FEW, _DEVIATIONS)[min(len(logs) - 1, len(_OF_FEW))]
        factor = max(math.sqrt(WIDE), math.exp(deviations * math.sqrt(of_both)))
        return seconds / factor, seconds * factor

    def is_wide(self, pace: Pace) -> bool:
        """Return whether a range is wide, by one worker or by two."""
        ranges = [self.t_range(pace, n_workers) for n_workers in (1, 2)]
        return any(is_wide_range(*ends) for ends in ranges)

    def _times(self, pace: Pace, n_workers: int) -> np.ndarray:
        """Times of the run by each round of measurements, s, in which the machine went on."""
        times = np.array([self._t_round(one, n_workers) for one in pace.each])
        stood_still = times > _STOOD_STILL * np.median(times)
        return times if _OUT_OF * stood_still.sum() > len(times) else times[~stood_still]

    def _t_round(self, pace: Pace, n_workers: int) -> float:
        cost = _frame_cost(pace.costs(n_workers), pace.one.n_bytes)
        return self._predict(cost, n_workers, FILE_SYSTEMS["memory"], pace.fixed(n_workers))

    def t_recoded(self, pace: Pace, file: Recoded, n_workers: int, rate: float | None) -> float:
        """Time of the run on another file, s; `rate`: bytes per second, if it is on disk."""
        alone, beside = file.reading
        reading = alone if n_workers == 1 else max(alone, beside)
        costs = replace(pace.costs(n_workers), read=reading, decode=0.0)
        system = FILE_SYSTEMS["memory"]
        if rate is not None:
            system = FileSystem(server_bandwidth=rate)
            # Bytes come while others are decoded: only what takes longer is waited for.
            stall = max(0.0, file.n_bytes / rate - costs.seconds)
            costs = replace(costs, read=reading + stall)
        cost = _frame_cost(costs, file.n_bytes)
        return self._predict(cost, n_workers, system, pace.fixed(n_workers))

    def t_convert(self, file: Recoded, n_workers: int) -> float:
        """Time to make another file, s, but for what the disk takes to write it."""
        cost = FrameCost(read=0.0, decode=0.0, compute=file.writing, bytes=file.frame_bytes)
        return self._predict(cost, n_workers, FILE_SYSTEMS["memory"], 0.0)

    def _predict(
        self, cost: FrameCost, n_workers: int, system: FileSystem, t_start: float
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


def _frame_cost(costs: Costs, n_bytes: float) -> FrameCost:
    """Convert costs to the model's terms."""
    compute = costs.transform + costs.compute + costs.rest
    return FrameCost(read=costs.read, decode=costs.decode, compute=compute, bytes=n_bytes)


@dataclass(frozen=True)
class Findings:
    """Findings of sample runs."""

    #: Backend of the workers.
    backend: str
    #: With the bytes in memory.
    in_memory: Pace
    #: With the bytes on the disk; None where they could not be put out of memory.
    from_disk: Pace | None
    #: By processes, in memory, where threads were seen to hold each other up.
    processes: Pace | None
    #: How much of what was read from memory is there; None where it is unknown.
    resident: float | None
    #: Part of a frame's time in which the analysis wants no processor, as if it slept.
    waiting: float
    #: CPUs that other programs kept busy meanwhile, of those that this process may use; None where
    #: it is unknown.
    others: float | None


def measure(
    sample: SampleRun, backend: str, forecast: Forecast, *, everywhere: bool = False
) -> Findings:
    """Measure sample runs, until what is forecast from them lies within a narrow range.

    From memory `everywhere`, where all that the run reads is there; else in the middle.
    """
    make, most = partial(make_backend, backend), 1 if backend == "serial" else 2
    other_work, begun = OtherWork(), perf_counter()
    end = begun + _LONGEST

    def take(n: int, number: int) -> np.ndarray:
        if everywhere:
            return sample.throughout(n, sample.block_of(n_frames), number)
        return _from_memory(sample, n)

    seconds, waiting = _first_look(sample)
    n_frames, start = _frames_in(seconds, sample.together), 0.0
    if n_frames > 1:
        # Each of many frames takes less than of the few that were looked at.
        many = sample.run(make(1), take(n_frames, 0), sample.block_of(n_frames))
        n_frames = max(n_frames, _frames_in(many.costs.seconds, sample.together))
        start = many.fixed

    def pace(rounds: Sequence[Pair], start: float = 0.0) -> Pace:
        busy = (1 - waiting) * SampleTimes.mean([one for one, _ in rounds]).costs.seconds
        return Pace(tuple(rounds), busy, available_cpus(), start)

    def goes_on(rounds: Sequence[Pair]) -> bool:
        """Return whether to measure longer: as long as the run, or until its range is narrow."""
        found, seconds = pace(rounds), perf_counter() - begun
        return seconds < forecast.t_total(found, 1) or forecast.is_wide(found)

    # Before anything is put out of memory.
    rounds, at_first = _warm(sample, make, range(1, most + 1), n_frames, take, goes_on, end)
    memory = pace(rounds, max(start, at_first))
    resident = sample.in_memory(take(n_frames * most, 0))
    # Processes of ours would count as others.
    others = other_work.cpus() if backend != "processes" else None
    processes = None
    if backend == "threads" and _held_up(memory.one, memory.two):
        # A function that cannot be sent has threads alone.
        with contextlib.suppress(WorkerError):
            soon = perf_counter() + _SOON
            rounds, at_first = _warm(
                sample, Processes, range(2, 3), n_frames, take, lambda _: False, soon
            )
            processes = replace(memory, rounds=tuple(rounds), start=at_first)
    cold: list[Pair] = []
    if sample.trajectory.shareable and seconds < _SLOW:
        cold = _cold(sample, make, most, n_frames)
    return Findings(
        backend=backend,
        in_memory=memory,
        from_disk=replace(memory, rounds=tuple(cold)) if cold else None,
        processes=processes,
        resident=resident,
        waiting=waiting,
        others=others,
    )


def _frames_in(seconds: float, together: int) -> int:
    """Count the frames of a measurement, of so many seconds each, some of which stay together."""
    n_frames = max(1, round(_SECONDS / seconds))
    if seconds * together < _PATIENCE:
        # Of frames that are stored as one, some would seem to take what all take.
        n_frames = max(1, round(n_frames / together)) * together
    return n_frames


def _first_look(sample: SampleRun) -> tuple[float, float]:
    """Estimate the time of a frame, s, and the part of it that the analysis waits, as if it slept.

    Standing in line for a processor on a busy machine is not waiting. A machine that stands still
    for a moment looks as if the analysis waited: the least of some looks counts.

    Of one frame, which may take long, then of more as long as that is soon done.
    """
    seconds = waiting = 0.0
    for n_frames in sorted({max(n, sample.together) for n in (1, 16, 256)}):
        if seconds * n_frames > _SECONDS:
            break
        looks = [_look(sample, n_frames) for _ in range(_ROUNDS if seconds else 1)]
        if _SECONDS < looks[0][0] * n_frames < _PATIENCE:
            # One frame a measurement would follow, for nothing but such a moment.
            looks.append(_look(sample, n_frames))
        seconds, waiting = (min(values) for values in zip(*looks, strict=True))
    return seconds, waiting


def _look(sample: SampleRun, n_frames: int) -> tuple[float, float]:
    """Time of each of so many frames, s, and the part of it that the analysis waits."""
    frames = sample.middle(n_frames)
    before = perf_counter(), *_thread_seconds()
    found = sample.run(Serial(), frames, max(min(n_frames, 16), sample.together))
    after = perf_counter(), *_thread_seconds()
    wall, on_cpu, in_line = (then - now for then, now in zip(after, before, strict=True))
    idle = wall - on_cpu - in_line - found.costs.read * len(frames)
    return found.costs.seconds, max(0.0, idle) / (wall - in_line)


def _thread_seconds() -> tuple[float, float]:
    """Seconds that this thread has had a processor, and stood in line for one."""
    try:
        with open("/proc/thread-self/schedstat", encoding="utf-8") as file:
            # What it tells of having a processor is of the last tick, and short looks end before.
            _, in_line, _ = file.read().split()
    except (OSError, ValueError):  # not Linux, or built without it
        in_line = "0"
    return thread_time(), int(in_line) / 1e9


def _cold(
    sample: SampleRun, make: Callable[[int], Backend], most: int, n_frames: int
) -> list[Pair]:
    """Measure from the disk in some rounds, each time with frames of its own.

    None of them is in the middle, where frames are read from memory. No rounds where they stay in
    memory.
    """
    # On both sides of the middle.
    n_row = min(n_frames * most, _cold_frames(sample))
    parts = 2 * _COLD_ROUNDS + _WARM_TIMES
    rounds = []
    end = perf_counter() + _SOON
    for number in range(_COLD_ROUNDS):
        found = []
        for n_workers, part in ((1, number), (most, parts - 1 - number))[:most]:
            frames = sample.middle(n_row, part=part, parts=parts)[: n_frames * n_workers]
            with sample.from_disk(frames) as gone:
                if not gone:
                    return []
                block = sample.block_of(len(frames) // n_workers)
                found.append(sample.run(make(n_workers), frames, block))
        rounds.append((found[0], found[-1]))
        if perf_counter() > end:
            break
    return rounds


def _cold_frames(sample: SampleRun) -> int:
    """Frames that one measurement reads from the disk, at the most."""
    return max(1, int(_COLD_BYTES / max(sample.frame_bytes, 1.0)))


def _from_memory(sample: SampleRun, n: int) -> np.ndarray:
    """Take frames to be read from memory: the same again where that would be too much of it."""
    return np.resize(sample.middle(min(n, _WARM_TIMES * _cold_frames(sample))), n)


def _warm(
    sample: SampleRun,
    make: Callable[[int], Backend],
    counts: range,
    n_frames: int,
    take: Callable[[int, int], np.ndarray],
    goes_on: Callable[[Sequence[Pair]], bool],
    end: float,
) -> tuple[list[Pair], float]:
    """Measure from memory in some rounds, by so many workers; and the fixed time of the first run.

    `take` gives so many frames, of each number others. More rounds are made while what follows from
    them `goes_on`, and none begins after `end`.
    """
    block = sample.block_of(n_frames)
    rounds: list[Pair] = []

    def measured(n_workers: int) -> SampleTimes:
        return sample.run(make(n_workers), take(n_frames * n_workers, len(rounds)), block)

    # Workers are started for the first of all, and frames read into memory.
    start = measured(counts[-1]).fixed if n_frames > 1 else 0.0
    while True:
        found = [measured(n_workers) for n_workers in counts]
        rounds.append((found[0], found[-1]))
        if perf_counter() > end:
            break
        if len(rounds) >= _ROUNDS and not goes_on(rounds):
            break
    return rounds, start


def _held_up(one: SampleTimes, two: SampleTimes) -> bool:
    """Return whether two threads hold each other up in computing, as if for the interpreter."""
    computing = two.costs.compute > _BY_COMPUTING * two.costs.seconds
    return computing and two.costs.compute > _HELD_UP * one.costs.compute


def recoded(chain: Chain, source: FrameSource, frames: np.ndarray) -> list[Recoded]:
    """Encode some frames in other formats, and measure these.

    Without the format that there is, and those that cannot hold such frames.
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
            is_there = format == chain.files[0].format and not selected
            if is_there or (selected and len(wanted) == chain.n_atoms):
                continue
            try:
                found.append(
                    _recode(whole, chain.n_atoms, wanted, format, selected, source.fields, decoding)
                )
            except PacelineError:  # a frame that the format cannot hold
                continue
    return found


def _decoded(chain: Chain, source: FrameSource, extents: Extents) -> tuple[FrameBuffer, float]:
    """Decode whole frames, without damaged ones; and seconds that each took."""
    everything = FrameSource(chain.specs, None, chain.n_atoms, source.fields, (), TimeAxis())
    decoded = FrameBuffer.allocate(np.arange(len(extents)), chain.n_atoms, source.fields)
    begun = time.perf_counter()
    everything.open().read(extents, decoded, skip=True)
    seconds = (time.perf_counter() - begun) / len(extents)
    return decoded[decoded.steps != DAMAGED_STEP], seconds


def _recode(
    whole: FrameBuffer,
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
    with ScratchFolder("advice") as folder:
        path = os.path.join(folder, "frames")
        with open(path, "wb") as file:
            file.write(head + body)
        core = IndexedFile(path)
        source = FrameSource(
            [core.spec],
            None if selected or len(wanted) == core.n_atoms else wanted,
            len(wanted),
            fields,
            (),
            TimeAxis(),
        )
        alone, n_bytes = _reading(source, core, 1)
        beside, _ = _reading(source, core, 2)
    size = len(body) / len(whole.frames)
    return Recoded(format, selected, size, n_bytes, (alone, beside), writing)


def _encode(
    whole: FrameBuffer, columns: np.ndarray, format: str, fields: Sequence[str]
) -> tuple[bytes, bytes]:
    """Encode the head of a file of these frames, and the frames."""
    has_cell = bool(whole.dimensions.any())
    encoder = _core.Encoder(format, len(columns), None, has_cell, field_bits(fields))
    positions, velocities, forces = (
        None if values is None else np.ascontiguousarray(values[:, columns])
        for values in (whole.positions, whole.velocities, whole.forces)
    )
    moments = (whole.cells, whole.times, whole.steps, whole.lambdas)
    body = encoder.encode((positions, velocities, forces, *moments))
    return encoder.head(len(whole.frames), 0.0, 1.0, 0, 1), body


def _reading(source: FrameSource, core: TrajectoryFile, n_workers: int) -> tuple[float, float]:
    """Measure seconds in which one of several workers reads a frame, and bytes of it."""
    extents = extents_in(0, core, np.arange(core.n_frames, dtype=np.uint64))
    readers = [source.open() for _ in range(n_workers)]
    rooms = [
        FrameBuffer.allocate(np.arange(len(extents)), source.n_wanted, source.fields)
        for _ in readers
    ]
    cost = readers[0].read(extents, rooms[0], skip=False)
    times = max(1, int(_RECODING_SECONDS / ((cost.read + cost.decode) / 1e9)))

    def read(worker: int) -> float:
        begun = time.perf_counter()
        for _ in range(times):
            readers[worker].read(extents, rooms[worker], skip=False)
        return (time.perf_counter() - begun) / times / len(extents)

    with ThreadPoolExecutor(n_workers) as threads:
        # Large frames take long enough to be measured once.
        n_rounds = _RECODING_ROUNDS if times > 1 else 1
        rounds = [list(threads.map(read, range(n_workers))) for _ in range(n_rounds)]
    return min(map(sum, rounds)) / n_workers, cost.bytes / len(extents)
