"""Plan → backend → merge → results."""

import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from paceline._core import __version__
from paceline._util.files import refuse_clashes
from paceline._util.progress import Progress
from paceline.backends import make_backend
from paceline.backends.base import Backend, CollectiveRun, collective_run_of
from paceline.checkpoint import Checkpoint
from paceline.performance.records import DuplicateAttempt
from paceline.performance.timings import Timings
from paceline.schedule.plan import choose_frames
from paceline.schedule.tasks import BlockResult, CollectedResult
from paceline.schedule.trajectory_run import Analysis, TrajectoryRun
from paceline.transform.base import Transform

#: What a run gives to an analysis.
OF_A_RUN = ("frames", "times", "damaged", "timings", "provenance", "results")


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
    checkpoint: str | os.PathLike | Checkpoint | None = None,
) -> Any:
    """Run analyses, in one pass over each trajectory.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        Those of one Universe share its frames: the union of their atoms is decoded once. Where
        there are several Universes, the workers go from one to the next without a pause.
    backend : {"threads", "serial", "processes", "dask", "mpi"} or object, optional
        Where blocks of frames are computed; "threads" by default, and "mpi" in a script that
        ``python -m paceline.mpi`` runs. An Executor, a Dask Client or an object of
        `paceline.backends` is taken as it is. The results are the same to the last bit.
    n_workers : int, optional
        By default the CPUs that this process may use. Of "mpi", threads that compute on each rank.
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
    checkpoint : path-like, optional
        File in which finished work is kept while the run goes on, and which is deleted at its end.
        If it is killed, the same call goes on from there, with any backend and number of workers.
        A checkpoint is to be trusted like a script: reading it may run code. An entered
        `paceline.checkpoint.Checkpoint` is left to its owner to finish.

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
    CheckpointError
        The checkpoint is of another run, in use by one, or damaged.
    Terminated
        SIGTERM came, and the checkpoint is written.
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
    asked = analyses_of(analyses)
    with collective_run_of(workers) as company:
        if company.leads:
            path = checkpoint.path if isinstance(checkpoint, Checkpoint) else checkpoint
            outputs = chain.from_iterable(getattr(one, "outputs", ()) for one in asked)
            refuse_clashes(path, *outputs)
            with _kept_in(checkpoint) as kept:
                _run(
                    workers,
                    asked,
                    partial(choose_frames, start=start, stop=stop, step=step, frames=frames),
                    kept,
                    transforms=transforms,
                    skip_damaged=on_error == "skip",
                    block_frames=block_frames,
                    progress=progress,
                )
        else:
            company.follow()
        _share(company, asked)
    return analyses


@contextmanager
def _kept_in(checkpoint: Any) -> Iterator[Checkpoint | None]:
    """The checkpoint, if one is asked for; who has entered one already finishes it too."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        yield checkpoint
        return
    with Checkpoint(checkpoint) as kept:
        yield kept
        kept.finish()


def _run(
    workers: Backend,
    analyses: Sequence[Analysis],
    choose: Callable[[int], np.ndarray],
    kept: Checkpoint | None,
    *,
    transforms: Sequence[Transform],
    skip_damaged: bool,
    block_frames: int | None,
    progress: bool | None,
) -> None:
    """Run analyses here and now; `choose` gives the frames wanted of so many."""
    begun = time.monotonic_ns()
    passes = [TrajectoryRun(some, transforms) for some in _by_universe(analyses)]
    for number, one in enumerate(passes):
        one.deal(
            choose(one.trajectory.n_frames),
            skip_damaged=skip_damaged,
            n_workers=workers.n_workers / len(passes),
            block_frames=kept.block_frames(number, block_frames) if kept else block_frames,
            streamed=kept is not None,
        )
    timings = _timings(workers, passes, begun)
    with ExitStack() as receivers:
        for number, one in enumerate(passes):
            one.collect(number, timings, receivers)
        if kept:
            kept.begin(passes, timings)
        _do(workers, passes, kept, show=progress)
        for one in passes:
            one.trajectory.verify()
    timings.end = time.monotonic_ns()
    for one in passes:
        one.finish(timings)


def _timings(workers: Backend, passes: Sequence[TrajectoryRun], begun: int) -> Timings:
    """What is known of them before any block is dealt."""
    return Timings(
        workers.name if any(one.trajectory.shareable for one in passes) else "serial",
        begun,
        time.monotonic_ns(),
        t_init_top=_known_sum(one.trajectory.t_init_top for one in passes),
        t_init_traj=_known_sum(one.trajectory.t_init_traj for one in passes),
        n_workers=int(workers.n_workers),
        schedule=getattr(workers, "schedule", "dynamic"),
        trajectory=", ".join(str(one.trajectory.provenance()["trajectory"]) for one in passes),
        bytes_used=sum(one.bytes_used for one in passes),
        host=socket.gethostname(),
        date=datetime.now().astimezone().isoformat(" ", "seconds"),
        version=__version__,
    )


def _do(
    workers: Backend, passes: Sequence[TrajectoryRun], kept: Checkpoint | None, *, show: bool | None
) -> None:
    """Every block that is not done yet, each added to its pass."""
    shared = [one for one in passes if one.trajectory.shareable]
    alone = [one for one in passes if not one.trajectory.shareable]
    n_frames = sum(len(one.plan.frames) for one in passes)
    done = sum(one.collected.n_frames for one in passes)
    with Progress(n_frames, show=show, done=done) as bar:
        for outcome in chain(
            _outcomes(workers, shared, kept), _outcomes(make_backend("serial"), alone, None)
        ):
            bar.add(outcome.n_frames)


def _outcomes(
    backend: Backend, passes: Sequence[TrajectoryRun], kept: Checkpoint | None
) -> Iterator[BlockResult]:
    """Every block of some passes, done and added to its pass."""
    works = chain.from_iterable(
        one.works(number, backend.n_workers) for number, one in enumerate(passes)
    )
    # Closed at once, also by an error here: its traceback would keep the workers at work.
    with closing(backend.run([one.job for one in passes], works)) as outcomes:
        heard = time.monotonic_ns()
        for outcome in outcomes:
            if isinstance(outcome, DuplicateAttempt):
                passes[outcome.timing.job].note(outcome)
                continue
            if isinstance(outcome, CollectedResult):
                passes[outcome.job].take(outcome, heard)
                heard = time.monotonic_ns()
                continue
            if kept:
                kept.add(outcome)
            else:
                passes[outcome.job].add(outcome)
            yield outcome
            heard = time.monotonic_ns()


def _share(company: CollectiveRun, analyses: Sequence[Analysis]) -> None:
    """Give to all who have called `run` what the one that leads has found."""
    found = company.share(
        lambda: [{name: getattr(one, name) for name in OF_A_RUN} for one in analyses]
    )
    for analysis, values in zip(analyses, found, strict=True):
        for name, value in values.items():
            setattr(analysis, name, value)


def _known_sum(values: Iterable[float]) -> float:
    """Sum of the values that are known; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else math.nan


def analyses_of(given: Any) -> list[Analysis]:
    """What `run` was given, as a list.

    Parameters
    ----------
    given : analysis or sequence of analyses
        As for `run`.

    Returns
    -------
    list of Analysis

    Raises
    ------
    ValueError
        There is none.
    TypeError
        One is no analysis.
    """
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
