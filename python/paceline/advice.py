"""Advice about a run: measured in some seconds by sample runs, and by frames in other formats."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from paceline._util.arguments import one_of
from paceline._util.choices import FORECAST, ON_ERROR
from paceline._util.leftovers import ScratchFolder
from paceline._util.machine import OtherWork, available_cpus
from paceline.backends import Backend, Processes, Serial, make_backend
from paceline.contract.plan import choose_frames
from paceline.contract.source import (
    TrajectoryFile,
)
from paceline.contract.transform_interface import Transform
from paceline.engine.other_files import (
    SampleFrames,
    decode_sample,
    measure_other_files,
    write_frames,
)
from paceline.engine.sample_run import Outline, SampleRun, disk_rates, open_samples
from paceline.errors import PacelineError, UnsupportedError, WorkerError
from paceline.performance.advice import Advice, is_resident
from paceline.performance.forecast import Findings, Forecast, Pair, Recoded, SampleTimes
from paceline.runner import analyses_of, trajectory_of

__all__ = ["Advice", "Outline", "Recoded", "advise", "open_samples"]

#: Approximate duration of one measurement, s; minimum number of rounds of measurements; time since
#: the first measurement, s, after which no round begins.
_SECONDS, _ROUNDS, _LONGEST = 0.2, 5, 6.0
#: Rounds of what is read from the disk, at the most; and seconds for them, and for processes.
_COLD_ROUNDS, _SOON = 3, 1.0
#: Frames that are stored as one are measured together where that takes less, s.
_PATIENCE = 2.0
#: Where a frame takes longer, s, reading it from the disk is not measured.
_SLOW = 0.5
#: Bytes that are read from the disk in one measurement, at the most; and as many times that from
#: memory, more than caches of processors hold.
_COLD_BYTES, _WARM_TIMES = 16 << 20, 4
#: Threads hold each other up where each of two computes for so much longer than one alone, and
#: that is most of its time.
_HELD_UP, _BY_COMPUTING = 1.25, 0.5


def advise(
    analyses: Any,
    *,
    backend: str | None = None,
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: Sequence[int] | np.ndarray | None = None,
    transforms: Sequence[Transform] = (),
    on_error: str = "raise",
) -> Advice:
    """Measure in some seconds what a run would take, what bounds it, and what would help.

    A few blocks are analysed by one worker and by two, from memory and from the disk, and the whole
    run is predicted from that (see `paceline.model`). They are from all of the run where all of it
    is in memory, and else from its middle. The analyses are left as they are.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        As for `paceline.run`, of one Universe.
    backend : {"threads", "processes", "serial"}, optional
        Where blocks of frames would be computed; "threads" by default. Where threads hold each
        other up, processes are tried as well.
    n_workers : int, optional
        Workers that are asked about, beside 1, 2, 4 … up to the CPUs that this process may use.
    start, stop, step : int, optional
        Frames, as in a slice.
    frames : sequence of int or of bool, optional
        Frames one by one, instead of a slice.
    transforms : sequence of transformations
        What is done to positions first.
    on_error : {"raise", "skip"}
        What to do with a frame that cannot be read or transformed.

    Returns
    -------
    Advice
        Print it for the text; its attributes are the numbers.

    Raises
    ------
    UnsupportedError
        Another backend, several Universes, or an analysis that writes a file or passes over the
        frames several times.
    ValueError
        No frames, or fewer than one worker.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSD
    >>> advice = paceline.advise(RMSD(paceline.Universe(PSF, DCD), select="name CA"))
    >>> advice.n_frames, advice.format, advice.workers[:2]
    (98, 'DCD', (1, 2))
    """
    begun = perf_counter()
    one_of("on_error", on_error, *ON_ERROR)
    if n_workers is not None and n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    if backend not in (None, *FORECAST):
        raise UnsupportedError(
            f"advice is about workers of this machine ({', '.join(FORECAST)}), not {backend!r}; "
            "paceline.model.predict is about others"
        )
    asked = analyses_of(analyses)
    universe = asked[0].atomgroup.universe
    if any(one.atomgroup.universe is not universe for one in asked):
        raise UnsupportedError("advice is about the analyses of one Universe at a time")
    chosen = choose_frames(Outline.of(universe.trajectory).n_frames, start, stop, step, frames)
    opener = partial(trajectory_of, asked, transforms)
    sample = SampleRun(asked, transforms, chosen, opener, skip_damaged=on_error == "skip")
    if not sample.trajectory.shareable:
        backend = "serial"
    # Before anything is read or let go of.
    cached = sample.in_memory_now()
    findings = measure(sample, backend or FORECAST[0], len(chosen), everywhere=is_resident(cached))
    trajectory = sample.trajectory
    chain = sample.chain
    sizes = {} if chain is None else {file.path: file.size for file in chain.files}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    some = None if chain is None else decode_sample(chain, sample.source, sample.middle(64))
    return Advice(
        what=" and ".join(one.name for one in asked),
        files=tuple(sizes) or (str(trajectory.provenance()["trajectory"]),),
        format=trajectory.chain.files[0].format if trajectory.chain else "read by MDAnalysis",
        size=sum(sizes.values()),
        n_atoms=trajectory.n_atoms,
        n_wanted=sample.source.n_wanted,
        n_frames=len(chosen),
        is_sample=sample.is_sample,
        cached=cached,
        findings=findings,
        rates=None if largest is None else disk_rates(largest),
        others=tuple(measure_other_files(some, chain.files[0].format) if chain and some else ()),
        of_mdanalysis=_time_of_mdanalysis(chain.files[0], some) if chain and some else None,
        cpus=available_cpus(),
        asked=n_workers,
        seconds=perf_counter() - begun,
    )


def measure(
    sample: SampleRun, backend: str, run_frames: int, *, everywhere: bool = False
) -> Findings:
    """Measure sample runs, until the forecast of `run_frames` frames lies within a narrow range.

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
        n_frames = max(n_frames, _frames_in(many.cost.seconds, sample.together))
        start = many.fixed

    def forecast(rounds: Sequence[Pair], start: float = 0.0) -> Forecast:
        busy = (1 - waiting) * SampleTimes.mean([one for one, _ in rounds]).cost.seconds
        return Forecast(
            tuple(rounds), busy, available_cpus(), run_frames, sample.block_frames, start
        )

    def goes_on(rounds: Sequence[Pair]) -> bool:
        """Return whether to measure longer: as long as the run, or until its range is narrow."""
        found, seconds = forecast(rounds), perf_counter() - begun
        return seconds < found.t_total(1) or found.is_wide

    # Before anything is put out of memory.
    rounds, at_first = _warm(sample, make, range(1, most + 1), n_frames, take, goes_on, end)
    memory = forecast(rounds, max(start, at_first))
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
    if sample.chain is not None and seconds < _SLOW:
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
    idle = wall - on_cpu - in_line - found.cost.read * len(frames)
    return found.cost.seconds, max(0.0, idle) / (wall - in_line)


def _thread_seconds() -> tuple[float, float]:
    """Seconds that this thread has had a processor, and stood in line for one."""
    try:
        with open("/proc/thread-self/schedstat", encoding="utf-8") as file:
            # Its own accounting has the resolution of a tick, and short looks end before.
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
    """Time an analysis of frames in memory in several rounds, and the fixed time of its first run.

    `take` returns that many frames, other ones in each round. Rounds are repeated while `goes_on`
    of the measurements is true; none begins after the time `end`.
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
    computing = two.cost.compute > _BY_COMPUTING * two.cost.seconds
    return computing and two.cost.compute > _HELD_UP * one.cost.compute


def _time_of_mdanalysis(file: TrajectoryFile, some: SampleFrames) -> float | None:
    """Measure the time in which MDAnalysis's own reader reads a frame, s; None if it cannot."""
    # Workers of other analyses need no MDAnalysis.
    from paceline.mdanalysis.own_reader import time_of_own_reader

    count = len(some.values.frames)
    if file.format == "H5MD":
        middle = max(0, (file.n_frames - count) // 2)
        frames = range(middle, min(file.n_frames, middle + count))
        return time_of_own_reader(file.path, file.format, some.n_atoms, frames)
    # To open a long file, MDAnalysis may read all of it, and it writes an index beside it.
    with ScratchFolder("advice") as folder, contextlib.suppress(PacelineError):
        path = os.path.join(folder, "frames")
        write_frames(path, some.values, some.fields, file.format, np.arange(some.n_atoms))
        return time_of_own_reader(path, file.format, some.n_atoms, range(count))
    return None
