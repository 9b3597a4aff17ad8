"""Parts of a run by one worker and by two, from memory and from the disk."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter, thread_time

import numpy as np

from paceline.advice.costs import Measured
from paceline.advice.forecast import Pace
from paceline.advice.rehearsal import Rehearsal
from paceline.backends import Backend, Processes, Serial, Threads, available_cpus
from paceline.errors import WorkerError

#: Seconds that one measurement takes, about; rounds of them, and seconds for all rounds. Of slow
#: functions there are fewer.
_SECONDS, _ROUNDS, _PATIENCE = 0.3, 3, 2.5
#: Where a frame takes longer, s, reading it from the disk is not measured.
_SLOW = 0.5
#: Bytes that are read from the disk in one measurement, at the most.
_COLD_BYTES = 48 << 20
#: Threads hold each other up where each of two takes so much longer, most of it in computing.
_HELD_UP, _BY_COMPUTING = 1.25, 0.5

MAKERS: dict[str, Callable[[int], Backend]] = {
    "threads": Threads,
    "processes": Processes,
    "serial": lambda _: Serial(),
}


@dataclass(frozen=True)
class Findings:
    """What was measured.

    Attributes
    ----------
    backend : str
        Who worked.
    in_memory : Pace
        With the bytes in memory.
    from_disk : Pace or None
        With the bytes on the disk; None where they could not be put out of memory.
    processes : Pace or None
        By processes, in memory, where threads were seen to hold each other up.
    resident : float or None
        How much of what was read from memory is there; None where that is not told.
    waiting : float
        Part of a frame's time in which the analysis wants no processor, as if it slept.
    """

    backend: str
    in_memory: Pace
    from_disk: Pace | None
    processes: Pace | None
    resident: float | None
    waiting: float


def measure(rehearsal: Rehearsal, backend: str) -> Findings:
    """Measure parts of a run.

    Parameters
    ----------
    rehearsal : Rehearsal
        The run.
    backend : {"threads", "processes", "serial"}
        Who works.

    Returns
    -------
    Findings
    """
    most = 1 if backend == "serial" else 2
    seconds, waiting = _first_look(rehearsal)
    n_frames = max(1, round(_SECONDS / seconds))
    from_disk = None
    if rehearsal.trajectory.shareable and seconds < _SLOW:
        from_disk = _cold(rehearsal, MAKERS[backend], most, n_frames)
    in_memory = _warm(rehearsal, MAKERS[backend], range(1, most + 1), n_frames)
    processes = None
    if backend == "threads" and _held_up(in_memory):
        try:
            processes = _warm(rehearsal, Processes, range(2, 3), n_frames)
        except WorkerError:  # the function cannot be sent
            processes = None
    if from_disk is not None:
        # What starting took was part of the first measurements: these.
        fixed = [
            max(cold.fixed, warm.fixed)
            for cold, warm in ((from_disk.one, in_memory.one), (from_disk.two, in_memory.two))
        ]
        in_memory = _with_fixed(in_memory, *fixed)
        from_disk = _with_fixed(from_disk, *fixed)
    resident = rehearsal.cached_share(_distinct(rehearsal)[: n_frames * most])
    return Findings(backend, in_memory, from_disk, processes, resident, waiting)


def _first_look(rehearsal: Rehearsal) -> tuple[float, float]:
    """What a frame takes, s, about, and which part of it the analysis waits, as if it slept.

    Standing in line for a processor on a busy machine is not waiting.

    Of one frame, then of more as long as that is soon done.
    """
    seconds = waiting = 0.0
    for n_frames in (1, 16, 256):
        if seconds * n_frames > _SECONDS:
            break
        frames = rehearsal.middle(n_frames)
        before = perf_counter(), *_thread_seconds()
        found = rehearsal.run(Serial(), frames, min(n_frames, 16))
        after = perf_counter(), *_thread_seconds()
        wall, on_cpu, in_line = (then - now for then, now in zip(after, before, strict=True))
        seconds = found.costs.seconds
        idle = wall - on_cpu - in_line - found.costs.read * len(frames)
        waiting = max(0.0, idle) / (wall - in_line)
    return seconds, waiting


def _thread_seconds() -> tuple[float, float]:
    """For how long this thread has had a processor, and stood in line for one."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            on_cpu, in_line, _ = file.read().split()
    except (OSError, ValueError):  # not Linux, or built without it
        return thread_time(), 0.0
    return int(on_cpu) / 1e9, int(in_line) / 1e9


def _cold(
    rehearsal: Rehearsal, make: Callable[[int], Backend], most: int, n_frames: int
) -> Pace | None:
    """From the disk; each measurement has frames of its own."""
    found = []
    for n_workers in range(1, most + 1):
        n = min(n_frames * n_workers, _cold_frames(rehearsal))
        frames = rehearsal.middle(n, part=n_workers - 1, parts=2)
        if not rehearsal.drop(frames):
            return None
        block = rehearsal.block_of(len(frames) // n_workers)
        found.append(rehearsal.run(make(n_workers), frames, block))
    return Pace(found[0], found[-1], available_cpus())


def _cold_frames(rehearsal: Rehearsal) -> int:
    """Frames that one measurement reads from the disk, at the most."""
    return max(1, int(_COLD_BYTES / max(rehearsal.frame_bytes, 1.0)))


def _distinct(rehearsal: Rehearsal) -> np.ndarray:
    """Frames that are read from memory, again and again where these are few."""
    return rehearsal.middle(2 * _cold_frames(rehearsal))


def _warm(
    rehearsal: Rehearsal, make: Callable[[int], Backend], counts: range, n_frames: int
) -> Pace:
    """From memory, by so many workers: the median of some rounds."""
    found: dict[int, list[Measured]] = {n_workers: [] for n_workers in counts}
    last = counts[-1]
    block = rehearsal.block_of(n_frames)
    distinct = _distinct(rehearsal)
    fixed = 0.0
    if n_frames > 1:
        fixed = rehearsal.run(make(last), distinct[: n_frames * last], block).fixed
    end = perf_counter() + _PATIENCE
    while len(found[last]) < _ROUNDS and not (found[last] and perf_counter() > end):
        for n_workers, taken in found.items():
            frames = np.resize(distinct[: n_frames * n_workers], n_frames * n_workers)
            taken.append(rehearsal.run(make(n_workers), frames, block))
    one, two = (Measured.middle(found[n_workers]) for n_workers in (counts[0], last))
    # What starting the workers took was part of the first of all.
    two = replace(two, fixed=max(two.fixed, fixed))
    return Pace(one, two, available_cpus())


def _with_fixed(pace: Pace, one: float, two: float) -> Pace:
    return replace(pace, one=replace(pace.one, fixed=one), two=replace(pace.two, fixed=two))


def _held_up(pace: Pace) -> bool:
    """Whether two threads hold each other up in computing, as where they need the interpreter."""
    one, two = pace.one.costs, pace.two.costs
    more = two.seconds - one.seconds
    by_computing = two.compute - one.compute > _BY_COMPUTING * more
    return two.seconds > _HELD_UP * one.seconds and by_computing
