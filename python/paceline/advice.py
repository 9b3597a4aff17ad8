"""Advice about a run, from sample runs of some seconds and from frames written in other formats."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter, thread_time

import numpy as np

from paceline._util.arguments import one_of
from paceline._util.files import is_address
from paceline._util.leftovers import ScratchFolder
from paceline._util.machine_and_software import OtherWork, available_cpus
from paceline._util.option_values_and_selections import FORECAST, ON_ERROR
from paceline.backends import Backend, Processes, Serial, make_backend
from paceline.contract.plan import choose_frames
from paceline.contract.source import (
    TrajectoryFile,
)
from paceline.contract.transform_interface import Transform
from paceline.engine.sample_run import Outline, SampleRun, disk_rates, open_samples
from paceline.engine.time_other_formats import (
    SampleFrames,
    decode_sample,
    measure_other_files,
    write_frames,
)
from paceline.errors import PacelineError, UnsupportedError, WorkerError
from paceline.performance.advice import Advice, is_resident
from paceline.performance.forecast import (
    Findings,
    Forecast,
    Pair,
    Recoded,
    SampleTimes,
    StoreSpeed,
)
from paceline.performance.model import Prices
from paceline.runner import analyses_of, trajectory_of

__all__ = ["Advice", "Outline", "Recoded", "advise", "open_samples"]

#: Approximate duration of one measurement, s.
_SECONDS = 0.2
#: Minimum number of rounds of measurements.
_ROUNDS = 5
#: Latest start of a round, relative to the first measurement, s.
_LONGEST = 6.0
#: Maximum number of rounds that read from the disk.
_COLD_ROUNDS = 3
#: After this time, no further round begins that reads from the disk or uses processes, s.
_SOON = 1.0
#: Frames that are stored as one chunk are measured together if they take less time than this, s.
_PATIENCE = 2.0
#: If a frame takes longer than this, reading from the disk is not measured, s.
_SLOW = 0.5
#: Maximum number of bytes read from the disk in one measurement.
_COLD_BYTES = 16 << 20
#: Maximum number of bytes of the frames in a measurement from memory, as a multiple of
#: `_COLD_BYTES`; this is more than CPU caches can store.
_WARM_TIMES = 4
#: Two threads slow each other down if each computes longer than a single thread by this factor, and
#: if computing takes at least the fraction `_BY_COMPUTING` of the time.
_HELD_UP = 1.25
#: Minimum fraction of the time that is computing if two threads slow each other down.
_BY_COMPUTING = 0.5


def advise(
    analyses: object,
    *,
    backend: str | None = None,
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: Sequence[int] | np.ndarray | None = None,
    transforms: Sequence[Transform] = (),
    on_error: str = "raise",
    prices: Prices | None = None,
) -> Advice:
    """Measure in some seconds how long a run would take, what limits it, and what would help.

    One worker and two workers analyse a few blocks, from memory and from the disk. For an object
    store or a server, latency and bandwidth are measured instead, by reading 48 MiB at most. The
    time of the whole run is predicted from these measurements (see `paceline.model`). If all data
    of the run are in memory, the blocks are spread over the run; otherwise they are from its
    middle. The analyses are not changed.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        As in `paceline.run`, for one Universe.
    backend : {"threads", "processes", "serial"}, optional
        Backend of the run; "threads" by default. If threads slow each other down, processes are
        measured, too.
    n_workers : int, optional
        Number of workers to include in the forecast, in addition to 1, 2, 4 … up to the number of
        CPUs.
    start, stop, step : int, optional
        Frames, as in a slice.
    frames : sequence of int or of bool, optional
        Selected frames, instead of a slice.
    transforms : sequence of transformations
        Transformations of positions before the analysis.
    on_error : {"raise", "skip"}
        Treatment of a frame that cannot be read or transformed.
    prices : Prices, optional
        Prices of the object store that holds the trajectory.

    Returns
    -------
    Advice
        `print` shows the advice as text; the attributes contain the measurements and forecasts.

    Raises
    ------
    UnsupportedError
        Another backend, several Universes, or an analysis that writes a file or makes several
        passes over the frames.
    ValueError
        No frames are selected, or fewer than one worker.

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
            f"advice is only for workers of this machine ({', '.join(FORECAST)}), not {backend!r}; "
            "paceline.model.predict covers others"
        )
    asked = analyses_of(analyses)
    universe = asked[0].atomgroup.universe
    if any(one.atomgroup.universe is not universe for one in asked):
        raise UnsupportedError("advice is only for analyses of a single Universe")
    chosen = choose_frames(Outline.of(universe.trajectory).n_frames, start, stop, step, frames)
    opener = partial(trajectory_of, [one.atomgroup for one in asked], transforms)
    sample = SampleRun(asked, transforms, chosen, opener, skip_damaged=on_error == "skip")
    if not sample.trajectory.shareable:
        backend = "serial"
    # Find the cached data before the samples, which read data into memory or drop data from it.
    cached = sample.in_memory_now()
    trajectory = sample.trajectory
    chain = sample.chain
    sizes = {} if chain is None else {file.path: file.size for file in chain.files}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    store = sample.speed_of_store(Serial(), _memory_frames(sample, len(chosen)))
    findings = measure(
        sample, backend or FORECAST[0], len(chosen), store, everywhere=is_resident(cached)
    )
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
        rates=(store.rate,) * 2 if store else None if largest is None else disk_rates(largest),
        others=tuple(measure_other_files(some, chain.files[0].format) if chain and some else ()),
        of_mdanalysis=_time_of_mdanalysis(chain.files[0], some) if chain and some else None,
        cpus=available_cpus(),
        asked=n_workers,
        store=store,
        prices=prices,
        chunk_bytes=sample.chunk_bytes,
        seconds=perf_counter() - begun,
    )


def measure(
    sample: SampleRun,
    backend: str,
    run_frames: int,
    store: StoreSpeed | None = None,
    *,
    everywhere: bool = False,
) -> Findings:
    """Measure sample runs, until the forecast for `run_frames` frames has a narrow range.

    `everywhere` is True if all that the run reads is in memory; then samples are from the whole
    run, otherwise from its middle.
    """
    make, most = partial(make_backend, backend), 1 if backend == "serial" else 2
    other_work, begun = OtherWork(), perf_counter()
    end = begun + _LONGEST

    def take(n: int, number: int) -> np.ndarray:
        if everywhere:
            return sample.throughout(n, sample.block_of(n_frames), number)
        return _memory_frames(sample, n)

    seconds, waiting = _estimate_frame_time(sample)
    n_frames, start = _frames_in(seconds, sample.frames_per_chunk), 0.0
    if n_frames > 1:
        # In a sample of many frames, the time per frame is shorter than in the first, small sample.
        many = sample.run(make(1), take(n_frames, 0), sample.block_of(n_frames))
        n_frames = max(n_frames, _frames_in(many.cost.seconds, sample.frames_per_chunk))
        start = many.fixed

    def forecast(rounds: Sequence[Pair], start: float = 0.0) -> Forecast:
        busy = (1 - waiting) * SampleTimes.mean([one for one, _ in rounds]).cost.seconds
        return Forecast(
            tuple(rounds), busy, available_cpus(), run_frames, sample.block_frames, start
        )

    def goes_on(rounds: Sequence[Pair]) -> bool:
        """Return True if measuring took less time than the forecast, or if its range is wide."""
        found, seconds = forecast(rounds), perf_counter() - begun
        return seconds < found.t_total(1) or found.is_wide

    # Measure from memory first, because measurements from the disk drop frames from memory.
    rounds, at_first = _measure_from_memory(
        sample, make, range(1, most + 1), n_frames, take, goes_on, end
    )
    memory = forecast(rounds, max(start, at_first))
    resident = sample.in_memory(take(n_frames * most, 0))
    # With the backend "processes", paceline's own processes would count as other programs.
    others = other_work.cpus() if backend != "processes" else None
    processes = None
    if backend == "threads" and _threads_block_each_other(memory.one, memory.two):
        # A function that cannot be sent to processes raises `WorkerError`: it needs threads.
        with contextlib.suppress(WorkerError):
            soon = perf_counter() + _SOON
            rounds, at_first = _measure_from_memory(
                sample, Processes, range(2, 3), n_frames, take, lambda _: False, soon
            )
            processes = replace(memory, rounds=tuple(rounds), start=at_first)
    cold: list[Pair] = []
    if sample.chain is not None and store is None and seconds < _SLOW:
        cold = _measure_from_disk(sample, make, most, n_frames)
    from_disk = replace(memory, rounds=tuple(cold)) if cold else None
    return Findings(
        backend=backend,
        in_memory=memory,
        from_disk=replace(memory, store=store) if store else from_disk,
        processes=processes,
        resident=resident,
        waiting=waiting,
        others=others,
    )


def _frames_in(seconds: float, together: int) -> int:
    """Return the number of frames of a measurement, given the time per frame, s.

    Chunks of `together` frames are measured as a whole, unless a chunk takes too long.
    """
    n_frames = max(1, round(_SECONDS / seconds))
    if seconds * together < _PATIENCE:
        # Part of a chunk takes as long as the whole chunk, because the chunk is decoded.
        n_frames = max(1, round(n_frames / together)) * together
    return n_frames


def _estimate_frame_time(sample: SampleRun) -> tuple[float, float]:
    """Estimate the time of a frame, s, and the fraction of it in which the analysis waits.

    Waiting means that the analysis does not use a CPU, as if it slept. Queueing for a CPU on a busy
    machine does not count. A short pause of the machine looks like waiting, so the minimum of
    several measurements is used. The first measurement reads one frame; later ones read more, if
    frames are fast.
    """
    seconds = waiting = 0.0
    for n_frames in sorted({max(n, sample.frames_per_chunk) for n in (1, 16, 256)}):
        if seconds * n_frames > _SECONDS:
            break
        looks = [_measure_frame_time(sample, n_frames) for _ in range(_ROUNDS if seconds else 1)]
        if _SECONDS < looks[0][0] * n_frames < _PATIENCE:
            # Measure a slow frame again: after a single pause of the machine, all further
            # measurements would take one frame each.
            looks.append(_measure_frame_time(sample, n_frames))
        seconds, waiting = (min(values) for values in zip(*looks, strict=True))
    return seconds, waiting


def _measure_frame_time(sample: SampleRun, n_frames: int) -> tuple[float, float]:
    """Return the time per frame, s, and the fraction of this time in which the analysis waits."""
    frames = sample.middle(n_frames)
    before = perf_counter(), *_thread_seconds()
    found = sample.run(Serial(), frames, max(min(n_frames, 16), sample.frames_per_chunk))
    after = perf_counter(), *_thread_seconds()
    wall, on_cpu, in_line = (then - now for then, now in zip(after, before, strict=True))
    # Reading also uses a CPU, or queues for one. That time is subtracted twice, which makes `idle`
    # too small.
    idle = wall - on_cpu - in_line - found.cost.read * len(frames)
    return found.cost.seconds, max(0.0, idle) / (wall - in_line)


def _thread_seconds() -> tuple[float, float]:
    """Return the times for which this thread has used a CPU and has queued for one, s."""
    try:
        with open("/proc/thread-self/schedstat", encoding="utf-8") as file:
            # The CPU time in this file has the resolution of a tick, too coarse for short
            # measurements.
            _, in_line, _ = file.read().split()
    except (OSError, ValueError):  # not Linux, or a kernel without these statistics
        in_line = "0"
    return thread_time(), int(in_line) / 1e9


def _measure_from_disk(
    sample: SampleRun, make: Callable[[int], Backend], most: int, n_frames: int
) -> list[Pair]:
    """Time runs that read from the disk, in at most `_COLD_ROUNDS` rounds of different frames.

    Frames from the middle are not used, because the other measurements read them into memory.
    Returns no rounds if frames cannot be dropped from memory.
    """
    # Choose frames on both sides of the middle.
    n_row = min(n_frames * most, _n_disk_frames(sample))
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


def _n_disk_frames(sample: SampleRun) -> int:
    """Return the maximum number of frames that one measurement reads from the disk."""
    return max(1, int(_COLD_BYTES / max(sample.frame_bytes, 1.0)))


def _memory_frames(sample: SampleRun, n: int) -> np.ndarray:
    """Choose `n` frames to read from memory; repeat frames if `n` would need too much memory."""
    times = 1 if sample.of_store else _WARM_TIMES
    return np.resize(sample.middle(min(n, times * _n_disk_frames(sample))), n)


def _measure_from_memory(
    sample: SampleRun,
    make: Callable[[int], Backend],
    counts: range,
    n_frames: int,
    take: Callable[[int, int], np.ndarray],
    goes_on: Callable[[Sequence[Pair]], bool],
    end: float,
) -> tuple[list[Pair], float]:
    """Time an analysis of frames in memory in several rounds.

    Returns the rounds, and the part of the time of the first run, s, that does not depend on the
    number of frames. `take(n, number)` chooses `n` frames for the round `number`. `_ROUNDS` rounds
    are measured, and more as long as `goes_on` returns True for them; but none starts after the
    time `end`.
    """
    block = sample.block_of(n_frames)
    rounds: list[Pair] = []

    def measured(n_workers: int) -> SampleTimes:
        return sample.run(make(n_workers), take(n_frames * n_workers, len(rounds)), block)

    # The first run starts the workers and reads the frames into memory.
    start = measured(counts[-1]).fixed if n_frames > 1 else 0.0
    while True:
        found = [measured(n_workers) for n_workers in counts]
        rounds.append((found[0], found[-1]))
        if perf_counter() > end:
            break
        if len(rounds) >= _ROUNDS and not goes_on(rounds):
            break
    return rounds, start


def _threads_block_each_other(one: SampleTimes, two: SampleTimes) -> bool:
    """Return whether two threads slow each other down, for example by the interpreter lock."""
    computing = two.cost.compute > _BY_COMPUTING * two.cost.seconds
    return computing and two.cost.compute > _HELD_UP * one.cost.compute


def _time_of_mdanalysis(file: TrajectoryFile, some: SampleFrames) -> float | None:
    """Measure the time in which MDAnalysis's own reader reads a frame, s; None if it cannot."""
    # Imported here, because workers of other analyses do not need MDAnalysis.
    from paceline.mdanalysis.time_mdanalysis_reader import time_of_own_reader

    count = len(some.values.frames)
    if file.format == "H5MD":
        if is_address(file.path):
            return None
        middle = max(0, (file.n_frames - count) // 2)
        frames = range(middle, min(file.n_frames, middle + count))
        return time_of_own_reader(file.path, file.format, some.n_atoms, frames)
    # Write the frames to a short file: to open a long one, MDAnalysis may read all of it, and it
    # writes an index beside it.
    with ScratchFolder("advice") as folder, contextlib.suppress(PacelineError):
        path = os.path.join(folder, "frames")
        write_frames(path, some.values, some.fields, file.format, np.arange(some.n_atoms))
        return time_of_own_reader(path, file.format, some.n_atoms, range(count))
    return None
