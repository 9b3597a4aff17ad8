"""Parts of a run by one worker and by two, from memory and from the disk."""

import contextlib
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
_SECONDS, _ROUNDS, _PATIENCE = 0.25, 3, 2.0
#: Where a frame takes longer, s, reading it from the disk is not measured.
_SLOW = 0.5
#: Bytes that are read from the disk in one measurement, at the most.
_COLD_BYTES = 48 << 20
#: Threads hold each other up where each of two computes for so much longer than one alone, and
#: that is most of its time.
_HELD_UP, _BY_COMPUTING = 1.25, 0.5

#: By one worker, and by two.
Pair = tuple[Measured, Measured]

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
    make, most = MAKERS[backend], 1 if backend == "serial" else 2
    seconds, waiting = _first_look(rehearsal)
    n_frames = max(1, round(_SECONDS / seconds))
    if seconds * rehearsal.together < _PATIENCE:
        # Of frames that are stored as one, some would seem to take what all take.
        n_frames = max(1, round(n_frames / rehearsal.together)) * rehearsal.together
    disk = None
    if rehearsal.trajectory.shareable and seconds < _SLOW:
        disk = _cold(rehearsal, make, most, n_frames)
    memory = _warm(rehearsal, make, range(1, most + 1), n_frames)
    processes = None
    if backend == "threads" and _held_up(*memory):
        # A function that cannot be sent has threads alone.
        with contextlib.suppress(WorkerError):
            processes = _warm(rehearsal, Processes, range(2, 3), n_frames)
    if disk is not None:
        # Workers were started for these, and found running by those that came later.
        memory = _with_start_of(memory, disk)
    busy, cpus = (1 - waiting) * memory[0].costs.seconds, available_cpus()
    return Findings(
        backend=backend,
        in_memory=Pace(*memory, busy, cpus),
        from_disk=Pace(*disk, busy, cpus) if disk else None,
        processes=Pace(*processes, busy, cpus) if processes else None,
        resident=rehearsal.in_memory(_from_memory(rehearsal, n_frames * most)),
        waiting=waiting,
    )


def _first_look(rehearsal: Rehearsal) -> tuple[float, float]:
    """What a frame takes, s, about, and which part of it the analysis waits, as if it slept.

    Standing in line for a processor on a busy machine is not waiting. A machine that stands still
    for a moment looks as if the analysis waited: the least of some looks counts.

    Of one frame, which may take long, then of more as long as that is soon done.
    """
    seconds = waiting = 0.0
    for n_frames in sorted({max(n, rehearsal.together) for n in (1, 16, 256)}):
        if seconds * n_frames > _SECONDS:
            break
        looks = [_look(rehearsal, n_frames) for _ in range(_ROUNDS if seconds else 1)]
        seconds, waiting = (min(values) for values in zip(*looks, strict=True))
    return seconds, waiting


def _look(rehearsal: Rehearsal, n_frames: int) -> tuple[float, float]:
    """What each of so many frames takes, s, and which part of it the analysis waits."""
    frames = rehearsal.middle(n_frames)
    before = perf_counter(), *_thread_seconds()
    found = rehearsal.run(Serial(), frames, max(min(n_frames, 16), rehearsal.together))
    after = perf_counter(), *_thread_seconds()
    wall, on_cpu, in_line = (then - now for then, now in zip(after, before, strict=True))
    idle = wall - on_cpu - in_line - found.costs.read * len(frames)
    return found.costs.seconds, max(0.0, idle) / (wall - in_line)


def _thread_seconds() -> tuple[float, float]:
    """For how long this thread has had a processor, and stood in line for one."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            # What it tells of having a processor is of the last tick, and short looks end before.
            _, in_line, _ = file.read().split()
    except (OSError, ValueError):  # not Linux, or built without it
        in_line = "0"
    return thread_time(), int(in_line) / 1e9


def _cold(
    rehearsal: Rehearsal, make: Callable[[int], Backend], most: int, n_frames: int
) -> Pair | None:
    """From the disk; each measurement has frames of its own."""
    found = []
    for n_workers in range(1, most + 1):
        n = min(n_frames * n_workers, _cold_frames(rehearsal))
        frames = rehearsal.middle(n, part=n_workers - 1, parts=2)
        if not rehearsal.drop(frames):
            return None
        block = rehearsal.block_of(len(frames) // n_workers)
        found.append(rehearsal.run(make(n_workers), frames, block))
    return found[0], found[-1]


def _cold_frames(rehearsal: Rehearsal) -> int:
    """Frames that one measurement reads from the disk, at the most."""
    return max(1, int(_COLD_BYTES / max(rehearsal.frame_bytes, 1.0)))


def _from_memory(rehearsal: Rehearsal, n: int) -> np.ndarray:
    """So many frames to be read from memory: the same again where that would be too much of it."""
    return np.resize(rehearsal.middle(min(n, 2 * _cold_frames(rehearsal))), n)


def _warm(
    rehearsal: Rehearsal, make: Callable[[int], Backend], counts: range, n_frames: int
) -> Pair:
    """From memory, by so many workers: the median of some rounds."""
    found: dict[int, list[Measured]] = {n_workers: [] for n_workers in counts}
    last = counts[-1]
    block = rehearsal.block_of(n_frames)
    fixed = 0.0
    if n_frames > 1:
        fixed = rehearsal.run(make(last), _from_memory(rehearsal, n_frames * last), block).fixed
    end = perf_counter() + _PATIENCE
    while len(found[last]) < _ROUNDS and not (found[last] and perf_counter() > end):
        for n_workers, taken in found.items():
            frames = _from_memory(rehearsal, n_frames * n_workers)
            taken.append(rehearsal.run(make(n_workers), frames, block))
    one, two = (Measured.middle(found[n_workers]) for n_workers in (counts[0], last))
    # Workers were started for the first of all.
    return one, replace(two, fixed=max(two.fixed, fixed))


def _with_start_of(pair: Pair, first: Pair) -> Pair:
    """With what starting workers took when they were first wanted."""
    one, two = (
        replace(later, fixed=max(later.fixed, sooner.fixed))
        for later, sooner in zip(pair, first, strict=True)
    )
    return one, two


def _held_up(one: Measured, two: Measured) -> bool:
    """Whether two threads hold each other up in computing, as where they need the interpreter."""
    computing = two.costs.compute > _BY_COMPUTING * two.costs.seconds
    return computing and two.costs.compute > _HELD_UP * one.costs.compute
