"""Plan → backend → merge → results."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from paceline.backends import make_backend
from paceline.collect import Collected
from paceline.job import Job, Part, PerFrame, Reduction, Work
from paceline.plan import Plan, make_plan
from paceline.progress import Progress
from paceline.timing import Timings

if TYPE_CHECKING:
    from paceline.trajectory import OpenTrajectory


class Analysis(Protocol):
    """What `run` asks of an analysis; `paceline.analysis.base.AnalysisBase` has it all."""

    atomgroup: Any
    fields: Sequence[str]
    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: Timings
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def indices(self) -> np.ndarray:
        """Atoms wanted, in the order in which the computation wants them."""

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """What of the atoms, beside their positions, the computation wants to see."""

    def prepare(self) -> PerFrame | Reduction:
        """The worker's half; everything that is the same for all frames."""

    def finish(self, value: Any) -> None:
        """Turn all frames' rows, or the merged partial result, into results."""


def run(
    analyses: Analysis | Sequence[Analysis],
    *,
    backend: Any = "threads",
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: Sequence[int] | np.ndarray | None = None,
    on_error: str = "raise",
    progress: bool | None = None,
    block_frames: int | None = None,
) -> Any:
    """Run analyses of one Universe in one pass over its trajectory.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        The union of their atoms is decoded once.
    backend : {"threads", "serial", "processes"} or concurrent.futures.Executor
        Where blocks of frames are computed. The results are the same to the last bit.
    n_workers : int, optional
        By default the CPUs that this process may use.
    start, stop, step : int, optional
        Frames, as in a slice.
    frames : sequence of int or of bool, optional
        Frames one by one, in any order, instead of a slice.
    on_error : {"raise", "skip"}
        What to do with a frame that cannot be read: raise, or leave it out, make its row NaN and
        list it in `analysis.damaged`.
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
    """
    # Worker processes import this module with an analysis's half, but never MDAnalysis.
    from paceline.trajectory import open_trajectory

    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    workers = make_backend(backend, n_workers)
    chosen = _analyses(analyses)
    begun = time.monotonic_ns()
    trajectory = open_trajectory([analysis.atomgroup for analysis in chosen])
    numbers = _frame_numbers(trajectory.n_frames, start, stop, step, frames)
    if not trajectory.shareable:
        workers = make_backend("serial")
    atoms, parts = _parts(chosen)
    plan = make_plan(
        numbers,
        n_atoms=trajectory.n_atoms,
        n_wanted=len(atoms),
        frame_bytes=trajectory.frame_bytes(atoms),
        n_workers=workers.n_workers,
        block_frames=block_frames,
    )
    fields = sorted({field for analysis in chosen for field in analysis.fields})
    job = Job(trajectory.frame_source(atoms, fields), parts, plan.leaf_frames, on_error == "skip")
    timings = Timings(
        workers.name,
        begun,
        time.monotonic_ns(),
        t_init_top=trajectory.t_init_top,
        t_init_traj=trajectory.t_init_traj,
    )
    collected = Collected(plan, parts, timings)
    # Closed at once, also by an error here: its traceback would keep the workers at work.
    with (
        Progress(len(numbers), show=progress) as bar,
        closing(workers.run(job, _works(plan, trajectory, workers.n_workers))) as outcomes,
    ):
        for outcome in outcomes:
            collected.add(outcome)
            bar.add(outcome.n_frames)
    trajectory.verify()
    timings.end = time.monotonic_ns()
    for analysis, value in zip(chosen, collected.values, strict=True):
        analysis.frames = numbers
        analysis.times = collected.times
        analysis.damaged = sorted(collected.damaged)
        analysis.timings = timings
        analysis.provenance = trajectory.provenance()
        analysis.finish(value)
    return analyses


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


def _parts(analyses: Sequence[Analysis]) -> tuple[np.ndarray, list[Part]]:
    """The union of all atoms wanted, increasing, and the worker's half of each analysis."""
    wanted = [np.asarray(analysis.indices, dtype=np.int64) for analysis in analyses]
    union = np.unique(np.concatenate(wanted))
    parts = []
    for analysis, indices in zip(analyses, wanted, strict=True):
        columns = None if np.array_equal(indices, union) else np.searchsorted(union, indices)
        parts.append(Part(analysis.name, analysis.prepare(), columns, analysis.attributes))
    return union, parts


def _works(plan: Plan, trajectory: "OpenTrajectory", n_workers: int) -> Iterator[Work]:
    """Every block with its slice of the index, and of the one that its worker may get next."""
    for task in plan.tasks():
        ahead = None
        if task.number + n_workers < len(plan):
            soon = plan.task(task.number + n_workers)
            ahead = trajectory.extents(plan.frame_numbers(soon))
        frames = plan.frame_numbers(task)
        yield Work(task.number, task.first, frames, trajectory.extents(frames), ahead)
