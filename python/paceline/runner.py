"""Plan → backend → merge → results."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any

import numpy as np

from paceline.backends import Backend, make_backend
from paceline.outcome import Outcome
from paceline.passes import Analysis, Pass
from paceline.progress import Progress
from paceline.timing import Timings
from paceline.transform import Transform


def run(
    analyses: Analysis | Sequence[Analysis],
    *,
    backend: Any = None,
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: Sequence[int] | np.ndarray | None = None,
    transforms: Sequence[Transform] = (),
    on_error: str = "raise",
    progress: bool | None = None,
    block_frames: int | None = None,
) -> Any:
    """Run analyses, in one pass over each trajectory.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        Those of one Universe share its frames: the union of their atoms is decoded once. Where
        there are several Universes, the workers go from one to the next without a pause.
    backend : {"threads", "serial", "processes", "dask"} or object, optional
        Where blocks of frames are computed; "threads" by default. Also any
        concurrent.futures.Executor, distributed.Client or object of `paceline.backends`. The
        results are the same to the last bit.
    n_workers : int, optional
        By default the CPUs that this process may use.
    start, stop, step : int, optional
        Frames, as in a slice.
    frames : sequence of int or of bool, optional
        Frames one by one, in any order, instead of a slice.
    transforms : sequence of transformations
        Of `paceline.transform`: what is done to positions, in this order, before any analysis
        sees them.
    on_error : {"raise", "skip"}
        What to do with a frame that cannot be read, or transformed: raise, or leave it out, make
        its row NaN and list it in `analysis.damaged`.
    progress : bool, optional
        Whether to show progress; by default a bar on a terminal, a line a minute in a log.
    block_frames : int, optional
        Frames dealt at a time, rounded up to 16 times a power of two (of large systems to fewer
        times one); chosen by default. It changes no result.

    Returns
    -------
    analysis or sequence of analyses
        As given, now with their results.

    Raises
    ------
    DamagedFileError
        A frame cannot be read and `on_error` is "raise".
    MissingDataError
        A frame does not hold the velocities or forces that an analysis asks for, and `on_error`
        is "raise".
    TransformError
        A frame cannot be transformed and `on_error` is "raise".
    AnalysisError
        An analysis raised, or returned rows of a wrong shape.
    FileChangedError
        The trajectory was replaced or changed while it was read.
    WorkerError
        A worker process was killed, or cannot be sent an analysis.
    UnsupportedError
        Something that would be ignored or guessed is asked for; it is named.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSD, RMSF
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> rmsd, rmsf = paceline.run([RMSD(ca), RMSF(ca)], stop=10)
    >>> rmsd.results.rmsd.shape, rmsf.results.rmsf.shape
    ((10, 3), (214,))

    Replicas of one system, or any Universes:

    >>> replicas = [paceline.Universe(PSF, DCD).select_atoms("name CA") for _ in range(3)]
    >>> runs = paceline.run([RMSD(ca) for ca in replicas], step=10)
    >>> [one.results.rmsd.shape for one in runs]
    [(10, 3), (10, 3), (10, 3)]
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    workers = make_backend(backend, n_workers)
    begun = time.monotonic_ns()
    passes = [Pass(some, transforms) for some in _by_universe(_analyses(analyses))]
    for one in passes:
        one.deal(
            _frame_numbers(one.trajectory.n_frames, start, stop, step, frames),
            skip_damaged=on_error == "skip",
            n_workers=workers.n_workers / len(passes),
            block_frames=block_frames,
        )
    shared = [one for one in passes if one.trajectory.shareable]
    alone = [one for one in passes if not one.trajectory.shareable]
    timings = Timings(
        workers.name if shared else "serial",
        begun,
        time.monotonic_ns(),
        t_init_top=_known_sum(one.trajectory.t_init_top for one in passes),
        t_init_traj=_known_sum(one.trajectory.t_init_traj for one in passes),
    )
    n_frames = sum(len(one.plan.frames) for one in passes)
    with Progress(n_frames, show=progress) as bar, ExitStack() as stack:
        for number, one in enumerate(passes):
            one.collect(number, timings, stack)
        for outcome in chain(_outcomes(workers, shared), _outcomes(make_backend("serial"), alone)):
            bar.add(outcome.n_frames)
        for one in passes:
            one.trajectory.verify()
    timings.end = time.monotonic_ns()
    for one in passes:
        one.finish(timings)
    return analyses


def _outcomes(backend: Backend, passes: Sequence[Pass]) -> Iterator[Outcome]:
    """Every block of some passes, done and added to its pass."""
    works = chain.from_iterable(
        one.works(number, backend.n_workers) for number, one in enumerate(passes)
    )
    # Closed at once, also by an error here: its traceback would keep the workers at work.
    with closing(backend.run([one.job for one in passes], works)) as outcomes:
        for outcome in outcomes:
            passes[outcome.job].add(outcome)
            yield outcome


def _known_sum(values: Iterable[float]) -> float:
    """Sum of the values that are known; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else math.nan


def _analyses(given: Any) -> list[Analysis]:
    """What `run` was given, as a list."""
    analyses = list(given) if isinstance(given, Sequence) else [given]
    if not analyses:
        raise ValueError("no analyses to run: the list is empty")
    for analysis in analyses:
        if not (hasattr(analysis, "prepare") and hasattr(analysis, "finish")):
            kind = type(analysis)
            raise TypeError(
                f"expected an analysis of paceline.analysis or a list of them, found "
                f"{kind.__module__}.{kind.__qualname__}"
            )
    return analyses


def _by_universe(analyses: Sequence[Analysis]) -> list[list[Analysis]]:
    """Analyses of one Universe each."""
    groups: dict[int, list[Analysis]] = {}
    for analysis in analyses:
        groups.setdefault(id(analysis.atomgroup.universe), []).append(analysis)
    return list(groups.values())


def _frame_numbers(
    n_frames: int,
    start: int | None,
    stop: int | None,
    step: int | None,
    frames: Sequence[int] | np.ndarray | None,
) -> np.ndarray:
    """Frame numbers asked for, by slice or one by one."""
    if frames is None:
        numbers = np.arange(n_frames)[start:stop:step]
    else:
        if not (start is stop is step is None):
            raise ValueError("give either frames or start, stop and step, not both")
        numbers = np.asarray(frames)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "biu"):
            raise ValueError("frames must be a one-dimensional sequence of integers or booleans")
        if numbers.dtype == bool:
            if len(numbers) != n_frames:
                raise ValueError(
                    f"frames has {len(numbers)} booleans, but the trajectory {n_frames} frames"
                )
            numbers = np.flatnonzero(numbers)
        outside = (numbers < -n_frames) | (numbers >= n_frames)
        if outside.any():
            raise IndexError(f"frame {numbers[outside][0]} is out of range for {n_frames} frames")
        numbers = numbers.astype(np.int64)
        numbers[numbers < 0] += n_frames
    if len(numbers) == 0:
        raise ValueError(f"no frames to analyse: the trajectory has {n_frames}, none was chosen")
    return numbers
