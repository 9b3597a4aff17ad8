"""Run analyses: plan the run, compute on a backend, merge, and finish."""

import math
import os
import socket
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, runtime_checkable

import numpy as np

from paceline._core import __version__
from paceline._util.arguments import one_of, parse_size
from paceline._util.files import check_distinct, is_stream
from paceline._util.machine_and_software import MemoryLimit
from paceline._util.option_values_and_selections import ON_ERROR
from paceline._util.progress import Progress
from paceline.backends import MPI, Serial, make_backend
from paceline.backends.base import Backend, CollectiveRun
from paceline.block import are_placeholders
from paceline.checkpoint import Checkpoint
from paceline.contract.analysis import Analysis, is_updated, record_of, set_record
from paceline.contract.plan import choose_frames
from paceline.contract.system_interface import Atoms, Frames, System, attribute_of
from paceline.contract.transform_interface import Transform
from paceline.engine.passes import FramePass, first_pass
from paceline.engine.result_arrays import limit_arrays
from paceline.engine.run_plan import Facilities, TrajectoryRun, n_passes
from paceline.engine.scheduler import with_frame_threads
from paceline.engine.stage_over_collected_rows import PartsRun
from paceline.engine.tasks_and_results import CollectedResult, FrameCaching
from paceline.engine.worker import FrameCache
from paceline.errors import SelectionError, UnsupportedError, name_of_imported, warn
from paceline.performance.record import DuplicateAttempt
from paceline.timing import Timings
from paceline.trajectory.file_trajectory import FileTrajectory, Trajectory
from paceline.trajectory.write_stream_to_file import TeeOptions
from paceline.transform.apply_transforms import TransformsOfEach, check_transforms, transforms_of
from paceline.transform.check_broken_molecules import make_checks

if TYPE_CHECKING:
    from paceline.incremental_run import Continuation, State

#: Maximum number of workers for which a transformation that depends on earlier frames (nojump)
#: processes one block after another, each from the state after the previous block. Transforming a
#: block takes about half as long as decoding it. With more workers, it is faster to decode every
#: frame twice: first for the states, then for the analysis (simulated: docs/developers/design.md).
MOST_IN_RELAY = 32


#: Selected frames, or a function that selects the frames of a trajectory.
FramesChosen = Sequence[int] | np.ndarray | Callable[[Frames], Sequence[int] | np.ndarray] | None


class FurtherOptions(TeeOptions, total=False):
    """Options of `run` that MDAnalysis's analyses lack."""

    transforms: Sequence[Transform]
    on_error: str
    progress: bool | None
    block_frames: int | None
    max_memory: int | str | None
    checkpoint: "str | os.PathLike | Checkpoint | Continuation | None"


class WorkerOptions(FurtherOptions, total=False):
    """Options of `run` except for `start`, `stop` and `step`."""

    backend: object
    n_workers: int | None
    frames: Sequence[int] | np.ndarray | None


class RunOptions(FurtherOptions, total=False):
    """All options of `run`."""

    backend: object
    n_workers: int | None
    start: int | None
    stop: int | None
    step: int | None
    frames: FramesChosen


Given = TypeVar("Given", bound=Analysis | Sequence[Analysis])


def run(
    analyses: Given,
    *,
    backend: object = None,
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: FramesChosen = None,
    transforms: Sequence[Transform] = (),
    on_error: str = "raise",
    progress: bool | None = None,
    block_frames: int | None = None,
    max_memory: int | str | None = None,
    checkpoint: "str | os.PathLike | Checkpoint | Continuation | None" = None,
    **stream: Unpack[TeeOptions],
) -> Given:
    """Run analyses, in one pass over each trajectory, or in as many as their stages need.

    If the trajectory is a stream of a running simulation (imd://), the run lasts until the
    simulation, or Ctrl-C, ends the stream. Results are computed while frames arrive, as by
    `paceline.live`, which also yields the results in between. No progress is shown. Afterwards, the
    Universe reads the file to which the frames were written.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        Analyses of one Universe share its frames: the union of their atoms is decoded once. With
        several Universes, workers go on to the next trajectory without a pause. MDAnalysis's own
        analyses, and subclasses of its `AnalysisBase`, need separate passes: one on the workers for
        those that can be split, and one in this process for those that need frames in order. Each
        analysis gets frames that no other analysis has changed.
    backend : {"threads", "serial", "processes", "dask", "mpi"} or object, optional
        Workers that compute blocks of frames; "threads" by default, and "mpi" in a script that
        ``python -m paceline.mpi`` runs. An Executor, a Dask Client or an object of
        `paceline.backends` is used unchanged. Results are bit-identical on all backends.
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use. For "mpi", the number
        of compute threads per rank.
    start, stop, step : int, optional
        Bounds and step of the selected frames, as in a slice.
    frames : sequence of int or of bool, or callable, optional
        Selected frames, in any order, instead of a slice; or a function that returns them for a
        Universe's trajectory, for example for replicas of different lengths.
    transforms : sequence of transformations
        Transformations from `paceline.transform`, applied to the positions in this order before
        the analyses.
    on_error : {"raise", "skip"}
        Treatment of a frame that cannot be read or transformed: raise an error; or skip the frame,
        set its row to NaN and list it in `analysis.damaged`.
    progress : bool, optional
        True shows a progress bar at once, also in notebooks; by default a bar is shown on a
        terminal, and a line per minute in a log. Each pass has its own remaining time.
    block_frames : int, optional
        Number of frames in a block, rounded up to 16 (less for large systems) times a power of two;
        by default chosen automatically. It does not change results.
    max_memory : int or str, optional
        Maximum memory of each process, bytes or as "2 GiB". It applies to results (rows, records,
        time series of atoms, matrices) and to decoded frames that are kept for a further pass.
        Results beyond it are stored in anonymous files of the temporary folder (TMPDIR), and
        frames are decoded again. Arrays up to 1 MiB, blocks that are being computed, and results of
        a single value do not count. By default, arrays of more than 1 GiB and matrices of more than
        256 MiB are stored in files, and frames are kept while half of the memory is free. Only
        "serial", "threads" and "mpi" keep frames. The limit does not change results.
    checkpoint : path-like, optional
        File that stores finished work during the run, and is deleted at its end. If the run is
        killed, the same call resumes it, with any backend and number of workers. Trust a
        checkpoint like a script, because reading it may run code. A
        `paceline.checkpoint.Checkpoint` that is already entered is not finished by this call.
    **stream
        Options of the file to which the frames of a stream are written: `tee`, `tee_atoms`,
        `tee_step` and `overwrite`, as for `paceline.live`. If `stop` ends the run, the simulation
        goes on.

    Returns
    -------
    analysis or sequence of analyses
        The first argument, now with results.

    Raises
    ------
    DamagedFileError
        A frame cannot be read and `on_error` is "raise".
    MissingDataError
        A frame lacks velocities or forces that an analysis needs, and `on_error` is "raise".
    TransformError
        A frame cannot be transformed and `on_error` is "raise".
    AnalysisError
        An analysis raised an error, or returned rows of a wrong shape.
    FileChangedError
        The trajectory was replaced or changed while it was read.
    WorkerError
        A worker process was killed, or an analysis cannot be sent to it.
    CheckpointError
        The checkpoint belongs to another run, is in use, or is damaged.
    Terminated
        SIGTERM was received; the checkpoint has been written.
    UnsupportedError
        An option is not supported, or disk space for results is insufficient; the message says
        which.
    OSError
        The temporary folder is full. This is not checked before the run for results whose size is
        known only after the first block.

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
    one_of("on_error", on_error, *ON_ERROR)
    if not isinstance(transforms, TransformsOfEach):
        check_transforms(transforms)
    workers = make_backend(backend, n_workers)
    limit = parse_size(max_memory) if isinstance(max_memory, str) else max_memory
    if limit is not None and limit < 0:
        raise ValueError(f"max_memory must be at least 0, not {limit}")
    chosen: dict[str, Any] = {"start": start, "stop": stop, "step": step, "frames": frames}
    theirs, given = _separate_mdanalysis(analyses)
    if _reads_stream(given, theirs):
        run_stream(
            ListedAnalyses(analyses),
            **chosen,
            **stream,
            backend=workers,
            transforms=transforms,
            on_error=on_error,
            block_frames=block_frames,
            max_memory=max_memory,
            checkpoint=checkpoint,
        )
        return analyses
    _check_without_stream(given, stream)
    if theirs:
        options = {"transforms": transforms, "block_frames": block_frames, "checkpoint": checkpoint}
        refused = [f"{name}=" for name, value in options.items() if value]
        refused += ["on_error="] if on_error != "raise" else []
        refused += ["function as frames="] if callable(frames) else []
        if refused:
            raise UnsupportedError(
                f"{type(theirs[0]).__name__} is an MDAnalysis analysis, which does not support "
                f"{refused[0]}; omit it, or run that analysis separately"
            )
    if given:
        with limit_arrays(limit) as memory, workers.collective_run() as collective:
            if collective.is_coordinator:
                _check_files(given, _path_of(checkpoint))
                begun = time.monotonic_ns()
                with _open_checkpoint(checkpoint) as opened:
                    _run(
                        workers,
                        [_plan_universe(*one) for one in _group_by_pass(given, transforms)],
                        partial(_choose, **chosen),
                        opened,
                        begun=begun,
                        skip_damaged=on_error == "skip",
                        block_frames=block_frames,
                        progress=progress,
                        memory=memory,
                    )
            else:
                for _ in range(n_passes(given, transforms)):
                    collective.work()
            _broadcast_results(collective, given)
    if theirs:
        from paceline.mdanalysis.analyses import run_together

        run_together(theirs, chosen, None if backend is None else workers, n_workers, progress)
    return analyses


@runtime_checkable
class Work(Protocol):
    """Analyses of one trajectory that can be run while it grows."""

    @property
    def universe(self) -> System:
        """Universe of the analyses."""

    @property
    def every(self) -> Mapping[str, Analysis]:
        """All analyses by name."""

    def run_during(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run the analyses whose results are updated while the trajectory grows.

        They process the frames that exist now. Return these analyses by name.
        """

    def run_after(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run the analyses that `run_during` omits over the complete trajectory.

        Return all analyses by name.
        """


class ListedAnalyses:
    """List of analyses of one trajectory that grows."""

    def __init__(self, given: object):
        theirs, every = _separate_mdanalysis(given)
        if theirs:
            raise UnsupportedError(
                f"{type(theirs[0]).__name__} is an MDAnalysis analysis, which needs all frames: "
                "run it when the simulation has ended, over its file, or over that in which a "
                "stream is kept, tee="
            )
        self.universe = every[0].atomgroup.universe
        if any(one.atomgroup.universe is not self.universe for one in every):
            raise UnsupportedError(
                "analyses of several Universes cannot follow their trajectories together: follow "
                "each trajectory in a process of its own"
            )
        names = [type(one).__name__ for one in every]
        numbered = [f"{name} {names[: k + 1].count(name)}" for k, name in enumerate(names)]
        self.every: Mapping[str, Analysis] = {
            name if names.count(name) == 1 else number: one
            for name, number, one in zip(names, numbered, every, strict=True)
        }

    def run_during(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run the analyses whose results are updated while the trajectory grows.

        They process the frames that exist now. Return these analyses by name.
        """
        found = {name: one for name, one in self.every.items() if is_updated(one)}
        if found:
            run([*found.values()], **options)
        return found

    def run_after(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run the analyses that `run_during` omits over the complete trajectory.

        Return all analyses by name.
        """
        after = [one for one in self.every.values() if not is_updated(one)]
        if after:
            run(after, **options)
        return self.every


def follow(
    work: Work,
    state: "type[State]",
    *,
    every: float = 5.0,
    idle: float | None = None,
    stop_when: "Callable[[State], str | None] | None" = None,
    enough: "Callable[[State], str | None] | None" = None,
    **options: Unpack[RunOptions],
) -> "Generator[State]":
    """Begin to run analyses over a trajectory that grows, or over a stream.

    Returns a generator of states of the class `state`. `paceline.live` describes the arguments
    except for `enough`: a function that returns the reason why no further frames are needed, or
    None. Unlike `stop_when`, it ends only the analysis, and the simulation may go on.
    """
    from paceline.incremental_run import AwaitedFrames, GrowingRun  # runs over files do not need it

    bounds = (options.get("start"), options.get("stop"), options.get("step"), options.get("frames"))
    chosen = AwaitedFrames(*bounds)
    workers = make_backend(options.get("backend"), options.get("n_workers"))
    if isinstance(workers, MPI):
        raise UnsupportedError(
            "a trajectory that grows is not analysed by MPI ranks: use threads, processes or Dask"
        )
    if options.get("checkpoint") is not None:
        raise UnsupportedError("results of a trajectory that grows are in memory: omit checkpoint=")
    file: TeeOptions = {
        "tee": options.pop("tee", None),
        "tee_atoms": options.pop("tee_atoms", None),
        "tee_step": options.pop("tee_step", None),
        "overwrite": options.pop("overwrite", False),
    }
    options |= {"backend": workers, "n_workers": None, "progress": False}

    def run_during(kept: "Continuation") -> Mapping[str, Analysis]:
        continued: RunOptions = {**options, "checkpoint": kept}
        return work.run_during(**continued)

    growing = GrowingRun(
        work.universe,
        work.every,
        state,
        chosen,
        run_during=run_during,
        run_after=lambda: work.run_after(**options),
        every=every,
        stop_when=stop_when,
        enough=enough,
    )
    feed = growing.open_feed(idle, file)
    states = growing.states(feed)
    # A generator that is never started does not execute its own clean-up.
    weakref.finalize(states, feed.close)
    return states


def run_stream(work: Work, **options: Unpack[RunOptions]) -> None:
    """Run analyses of a stream of frames until the stream ends."""
    from paceline.incremental_run import GrownRun  # runs over files do not need it

    for _ in follow(work, GrownRun, **options):
        pass  # the last state has all results


def _reads_stream(given: Sequence[Analysis], theirs: Sequence[object]) -> bool:
    """Return True if the trajectory of any analysis is a stream."""
    trajectories = [one.atomgroup.universe.trajectory for one in given]
    trajectories += [attribute_of(one, "_trajectory") for one in theirs]
    names = [attribute_of(one, "filename") for one in trajectories]
    return any(map(is_stream, names))


def _check_without_stream(given: Sequence[Analysis], stream: TeeOptions) -> None:
    """Raise `UnsupportedError` if options are set that apply only to streams."""
    if used := [name for name, value in stream.items() if not (value is None or value is False)]:
        names = [one.atomgroup.universe.trajectory.filename for one in given]
        where = f"{names[0]}: " if names else ""
        raise UnsupportedError(f"{where}{used[0]}= applies to streams (imd://), not to files")


def _path_of(
    checkpoint: "str | os.PathLike | Checkpoint | Continuation | None",
) -> str | os.PathLike | None:
    """Return the path of a checkpoint's file; None if there is no file."""
    if checkpoint is None or isinstance(checkpoint, str | os.PathLike):
        return checkpoint
    return checkpoint.path


def _check_files(analyses: Sequence[Analysis], checkpoint: str | os.PathLike | None) -> None:
    """Raise `UnsupportedError` if two outputs are the same file, or one is a file the run reads."""
    outputs = [path for one in analyses for path in one.outputs]
    check_distinct(checkpoint, *outputs)
    if checkpoint is None and not outputs:
        return
    for universe in {
        id(one.atomgroup.universe): one.atomgroup.universe for one in analyses
    }.values():
        trajectory = universe.trajectory
        names = attribute_of(trajectory, "filenames")
        if names is None:
            names = [attribute_of(trajectory, "filename")]
        for name in {name for name in (universe.filename, *names) if isinstance(name, str)}:
            check_distinct(checkpoint, *outputs, name)


def _separate_mdanalysis(given: object) -> tuple[list[object], list[Analysis]]:
    """Separate MDAnalysis's analyses from paceline's, and check the latter."""
    base: Any = name_of_imported("MDAnalysis.analysis.base", "AnalysisBase") or ()
    every = list(given) if isinstance(given, Sequence) else [given]
    theirs = [one for one in every if isinstance(one, base)]
    ours = [one for one in every if not isinstance(one, base)]
    return theirs, analyses_of(ours) if ours or not theirs else []


def _run(
    workers: Backend,
    planned: Sequence[TrajectoryRun],
    choose: Callable[[TrajectoryRun], np.ndarray],
    checkpoint: "Checkpoint | Continuation | None",
    *,
    begun: int,
    skip_damaged: bool,
    block_frames: int | None,
    progress: bool | None,
    memory: MemoryLimit,
) -> None:
    """Run analyses from this process; the run began at `begun`, ns; `choose` selects frames."""
    caches = (
        [FrameCaching(uuid.uuid4().hex, memory) for _ in planned] if workers.keeps_frames else []
    )
    facilities = Facilities(
        workers.n_workers / len(planned),
        streamed=checkpoint is not None,
        pipelined=(checkpoint is None and workers.pipelines and workers.n_workers <= MOST_IN_RELAY),
        parts_by_file=workers.reads_files_of_caller,
    )
    for number, one in enumerate(planned):
        one.prepare(
            choose(one),
            replace(facilities, caching=caches[number] if caches else None),
            skip_damaged=skip_damaged,
            block_frames=(
                checkpoint.block_frames(number, block_frames) if checkpoint else block_frames
            ),
        )
    runs = [first_pass(one) for one in planned]
    timings = _timings(workers, runs, begun)
    timings.n_chosen = sum(len(one.plan.frames) for one in planned)
    n_stages = max(one.n_stages + one.scans_before for one in planned)
    stages: list[list[FramePass | PartsRun]] = []
    n_frames = sum(each.n_frames_here for each in runs)
    with ExitStack() as receivers, Progress(n_frames, show=progress) as bar:
        FrameCache.open(caches)
        receivers.callback(FrameCache.drop, [one.key for one in caches])
        for one in planned:
            receivers.callback(one.close)
        stage: list[FramePass | PartsRun] = [*runs]
        while stage:
            number = sum(map(len, stages))
            stages.append(stage)
            for each in stage:
                each.start_collecting(number, timings, receivers)
                number += 1
            if checkpoint:
                checkpoint.begin_stage(stage, timings)
            if n_stages > 1:
                bar.begin_pass(len(stages), n_stages, sum(each.n_frames_here for each in stage))
            _compute(workers, stage, checkpoint, bar)
            if checkpoint and checkpoint.settle():
                _compute(workers, stage, checkpoint, bar)
            stage = [following for each in stage for following in each.next_stages()]
        for one in planned:
            one.trajectory.verify()
    timings.end = time.monotonic_ns()
    for each in chain.from_iterable(stages):
        each.finish(timings)


def _plan_universe(analyses: Sequence[Analysis], transforms: Sequence[Transform]) -> TrajectoryRun:
    """Plan the run of analyses of one Universe, and add the checks for broken molecules."""
    _warn_of_placeholder(analyses[0].atomgroup.universe)
    look = make_checks(analyses, transforms)
    # The check for broken molecules comes first, so that it warns before results are computed.
    every = analyses if look is None else [look, *analyses]
    groups = [analysis.atomgroup for analysis in every]
    return TrajectoryRun(every, transforms, trajectory_of(groups, transforms))


def trajectory_of(groups: Sequence[Atoms], transforms: Sequence[Transform]) -> Trajectory:
    """Return the trajectory of groups of one Universe, or of files that lack a topology."""
    universe = groups[0].universe
    if not isinstance(universe, FileTrajectory):
        # Imported here, because worker processes import this module, but must not load MDAnalysis.
        from paceline.mdanalysis.open_atomgroup_trajectory import open_trajectory

        return open_trajectory(groups)
    if any(len(group) == 0 for group in groups):
        raise SelectionError("no atoms are chosen")
    if transforms:
        raise UnsupportedError(
            f"{universe.filename}: transforms= need a topology: open it with paceline.Universe"
        )
    return universe


def _warn_of_placeholder(universe: System) -> None:
    """Warn of a placeholder cell, which workers treat as no cell."""
    ts = attribute_of(attribute_of(universe, "trajectory"), "ts")
    dimensions = None if ts is None else ts.dimensions
    if dimensions is None:
        return
    n_atoms, size = universe.trajectory.n_atoms, " × ".join(f"{x:.4g}" for x in dimensions[:3])
    if are_placeholders(np.array([dimensions]), n_atoms).any():
        why = "is the placeholder in structure files without a cell"
        if size != "1 × 1 × 1":
            why = f"is too small for {n_atoms:,} atoms"
        warn(f"{universe.trajectory.filename}: its cell of {size} Å {why}, and is left out")


def _choose(one: TrajectoryRun, *, frames: FramesChosen, **bounds: int | None) -> np.ndarray:
    """Return the numbers of the selected frames of one trajectory."""
    if callable(frames):
        frames = frames(one.analyses[0].atomgroup.universe.trajectory)
    return choose_frames(one.trajectory.n_frames, **bounds, frames=frames)


def _compute(
    workers: Backend,
    runs: Sequence[FramePass | PartsRun],
    checkpoint: "Checkpoint | Continuation | None",
    bar: Progress,
) -> None:
    """Compute and collect all blocks that are not finished yet."""
    shared = [one for one in runs if one.shareable]
    alone = [one for one in runs if not one.shareable]
    # `_results` is called even if no block is left, because the other MPI ranks wait for the run.
    results = [_results(workers, shared, checkpoint)]
    if alone:
        results.append(_results(Serial(workers.threads_in_frame), alone, None))
    bar.skip(sum(one.n_frames_done for one in runs))
    for n_frames in chain.from_iterable(results):
        bar.add(n_frames)


def _results(
    backend: Backend,
    runs: Sequence[FramePass | PartsRun],
    checkpoint: "Checkpoint | Continuation | None",
) -> Iterator[int]:
    """Compute and collect the blocks of `runs`; yield the number of frames of each result used."""
    n_workers, n_tasks = backend.n_workers, sum(len(one.collected.missing()) for one in runs)
    jobs = [one.job for one in runs]
    tasks = with_frame_threads(
        jobs,
        chain.from_iterable(one.tasks(number, n_workers) for number, one in enumerate(runs)),
        n_tasks,
        n_workers,
        backend.threads_in_frame,
    )
    # The generator of results is closed at the end, also after an error. Otherwise, the traceback
    # of the error would keep a reference to it, and the workers would go on.
    with closing(backend.run(jobs, tasks)) as results:
        received = time.monotonic_ns()
        for result in results:
            if isinstance(result, DuplicateAttempt):
                runs[result.timing.job].collected.add_duplicate(result)
                continue
            if isinstance(result, CollectedResult):
                runs[result.job].collected.add_collected(result, received)
                received = time.monotonic_ns()
                continue
            if checkpoint:
                checkpoint.add(result)
            else:
                runs[result.job].collected.add(result)
            runs[result.job].release(result)
            yield runs[result.job].frames_of(result)
            received = time.monotonic_ns()


@contextmanager
def _open_checkpoint(
    checkpoint: "str | os.PathLike | Checkpoint | Continuation | None",
) -> "Iterator[Checkpoint | Continuation | None]":
    """Open the checkpoint with this file name, and finish it after a successful run.

    A checkpoint that the caller has already entered is used, but not finished. Yield the
    checkpoint, or None if `checkpoint` is None.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        if checkpoint is not None:
            checkpoint.begin_run()
        yield checkpoint
        return
    with Checkpoint(checkpoint) as opened:
        yield opened
        opened.finish()


def _timings(workers: Backend, runs: Sequence[FramePass], begun: int) -> Timings:
    """Create the run's timings, with the facts that are known before blocks are assigned."""
    return Timings(
        workers.name if any(one.shareable for one in runs) else "serial",
        begun,
        time.monotonic_ns(),
        t_init_top=_known_sum(one.run.trajectory.t_init_top for one in runs),
        t_init_traj=_known_sum(one.run.trajectory.t_init_traj for one in runs),
        n_workers=int(workers.n_workers),
        schedule=workers.schedule,
        trajectory=", ".join(str(one.run.trajectory.provenance()["trajectory"]) for one in runs),
        bytes_used=sum(one.bytes_used for one in runs),
        host=socket.gethostname(),
        date=datetime.now().astimezone().isoformat(" ", "seconds"),
        version=__version__,
    )


def _known_sum(values: Iterable[float]) -> float:
    """Return the sum of the values that are not NaN; NaN if all are."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else math.nan


def _broadcast_results(collective: CollectiveRun, analyses: Sequence[Analysis]) -> None:
    """Copy the coordinator's results to the analyses of every process that called `run`."""
    records = collective.broadcast(lambda: [record_of(one) for one in analyses])
    for analysis, record in zip(analyses, records, strict=True):
        set_record(analysis, record)


def analyses_of(given: object) -> list[Analysis]:
    """Check the first argument of `run`, and return it as a list.

    Raises `ValueError` if it is empty, and `TypeError` for an item that is not an analysis.
    """
    analyses: list[Any] = list(given) if isinstance(given, Sequence) else [given]
    if not analyses:
        raise ValueError("no analyses to run: the list is empty")
    for analysis in analyses:
        if not isinstance(analysis, Analysis):
            kind = type(analysis)
            raise TypeError(
                f"expected an analysis of paceline.analysis or a list of them, found "
                f"{kind.__module__}.{kind.__qualname__}"
            )
    return analyses


def _group_by_pass(
    analyses: Sequence[Analysis], transforms: Sequence[Transform] | TransformsOfEach
) -> list[tuple[list[Analysis], Sequence[Transform]]]:
    """Group analyses that share a pass: those of one Universe with the same transformations.

    Return the analyses and the transformations of each group.
    """
    groups: dict[tuple[int, ...], tuple[list[Analysis], Sequence[Transform]]] = {}
    for analysis in analyses:
        own = transforms_of(transforms, analysis)
        key = id(analysis.atomgroup.universe), *map(id, own)
        groups.setdefault(key, ([], own))[0].append(analysis)
    return list(groups.values())
