"""Run MDAnalysis's own analyses on paceline's workers."""

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import parent_process
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from MDAnalysis.analysis.base import AnalysisBase
from MDAnalysis.analysis.results import Results, ResultsGroup
from MDAnalysis.coordinates import base as mdanalysis_readers
from MDAnalysis.coordinates.base import ProtoReader
from MDAnalysis.coordinates.memory import MemoryReader

from paceline._util.option_values_and_selections import ALSO_OF_MDANALYSIS, BACKENDS
from paceline._util.progress import Progress
from paceline.backends import Adaptive, is_client, make_backend
from paceline.backends.mdanalysis import (
    AnalysedPart,
    ForMDAnalysis,
    NotPicklableError,
    OrderedError,
    collect_part,
    is_foreign,
    state_of,
)
from paceline.backends.mpi import active_session
from paceline.contract.system_interface import (
    Timestep,
    attribute_of,
    fields_of,
    set_values,
    values_of,
)
from paceline.errors import SelectionError, UnsupportedError
from paceline.mdanalysis.reader import Reader


class _Running(threading.local):
    """Thread-local state: `here` is True while this thread runs an analysis."""

    here: bool = False


#: Names of the arguments of `run` that may be positional, and of the keyword-only ones.
_BY_PLACE = (
    *("start", "stop", "step", "frames", "verbose"),
    *("n_workers", "n_parts", "backend"),
)
_BY_NAME = ("unsupported_backend", "progressbar_kwargs")
#: Readers whose frames are not sent to workers: those of frames in memory and, from MDAnalysis 2.10
#: on, of streams.
_NOT_SENT = MemoryReader, getattr(mdanalysis_readers, "StreamReaderBase", MemoryReader)
#: State of each thread. A run that begins within a run computes in the same thread.
_running = _Running()


def run_on_workers(
    original: Callable[..., Any],
    analysis: AnalysisBase,
    given: tuple[Any, ...],
    named: dict[str, Any],
    *,
    native: bool,
    n_workers: int | None,
) -> str | None:
    """Run an MDAnalysis analysis on paceline's workers, or as MDAnalysis if an argument needs that.

    Returns a description of the run; None if `original` ran with unchanged arguments. `original` is
    the analysis's own `run`, with positional arguments `given` and keyword arguments `named`. With
    `native`, paceline's class of the same name, if there is one, computes the results.
    """
    by_place = dict(zip(_BY_PLACE, given, strict=False))
    options = by_place | named
    # If the arguments do not fit, MDAnalysis raises the error.
    fit = len(by_place) == len(given) and len(options) == len(by_place) + len(named)
    backend = options.get("backend")
    as_before = (
        not fit
        or any(name not in (*_BY_PLACE, *_BY_NAME) for name in options)
        or any(options.get(name) is not None for name in ("n_parts", "progressbar_kwargs"))
        or (backend is not None and not _is_paceline_backend(backend))
        or options.get("unsupported_backend")
        or _running.here
        or parent_process() is not None
    )
    if as_before:
        original(analysis, *given, **named)
        return None
    chosen = {name: options.get(name) for name in ("start", "stop", "step", "frames")}
    verbose = options.get("verbose")
    if verbose is None:
        verbose = attribute_of(analysis, "_verbose") or False
    # A backend that is an object determines its number of workers itself.
    default = n_workers if backend is None or isinstance(backend, str) else None
    n_workers = options.get("n_workers") or default
    _running.here = True
    try:
        if native and backend is None and _run_natively(analysis, chosen, n_workers, verbose):
            return "native"
        workers = _workers_for(analysis, backend, n_workers)
        original(analysis, **chosen, verbose=verbose, backend=workers)
    finally:
        _running.here = False
    if workers is None:
        return "in this process, in order"
    return workers.description or f"on {workers.name}"


def _run_natively(
    analysis: AnalysisBase, chosen: dict[str, object], n_workers: int | None, verbose: bool
) -> bool:
    """Run paceline's class instead of MDAnalysis's; return False if that is impossible."""
    cls, trajectory = native_class(type(analysis)), analysis._trajectory
    # Frames to which MDAnalysis applies transformations must be read by MDAnalysis, one at a time.
    if cls is None or not isinstance(trajectory, Reader) or trajectory.transformations:
        return False
    if _is_changed(analysis):
        return False
    analysis._setup_frames(trajectory, **chosen)
    if analysis.n_frames == 0:  # for no frames, paceline's class would raise an error
        return False
    try:
        ours = cls.from_mdanalysis(analysis)
    except (SelectionError, UnsupportedError):  # for example, groups without atoms
        return False
    try:
        ours.run(**chosen, n_workers=n_workers, verbose=verbose)
    except UnsupportedError:
        return False
    analysis.frames, analysis.times = ours.frames, ours.times
    for name in ours.SHARED_RESULTS:
        if name in ours.results:
            _set_result(analysis.results, name, ours.results[name])
    for name in ours.SHARED_ATTRIBUTES:
        setattr(analysis, name, getattr(ours, name))
    trajectory.rewind()
    return True


def _set_result(results: Results, name: str, value: object) -> None:
    """Store a result; nested results keep MDAnalysis's class."""
    if isinstance(value, dict) and name in results:
        results[name].update(value)
    else:
        results[name] = value


def native_class(theirs: type) -> Any:
    """Return paceline's class of the same name as an MDAnalysis class; None if there is none.

    The class must have the method `from_mdanalysis`.
    """
    package, _, module = theirs.__module__.partition(".analysis.")
    # A subclass in a module of another package may compute something else.
    if package != "MDAnalysis" or not find_spec(f"paceline.analysis.{module}"):
        return None
    ours = getattr(import_module(f"paceline.analysis.{module}"), theirs.__name__, None)
    return ours if hasattr(ours, "from_mdanalysis") else None


def _is_changed(analysis: AnalysisBase) -> bool:
    """True if a program has patched methods of an MDAnalysis analysis or of its base classes."""
    if any(name in vars(analysis) for name in ("_prepare", "_single_frame", "_conclude")):
        return True
    return any(
        name != "run" and isinstance(method, FunctionType) and is_foreign(method)
        for cls in type(analysis).__mro__
        for name, method in vars(cls).items()
    )


def _is_paceline_backend(backend: object) -> bool:
    """True for a paceline backend, but not for "serial" and "dask", which are also MDAnalysis's."""
    if isinstance(backend, str):
        return backend in BACKENDS and backend not in ALSO_OF_MDANALYSIS
    return issubclass(type(backend), ForMDAnalysis | Executor) or is_client(backend)


def _workers_for(analysis: AnalysisBase, backend: object, n_workers: int | None) -> Any:
    """Create the workers for an analysis; None if it must process all frames in order."""
    trajectory = analysis._trajectory
    splits = (
        analysis.parallelizable
        # Frames in memory would have to be copied to each worker.
        and not isinstance(trajectory, _NOT_SENT)
        and not trajectory._auxs
        and _forgets(trajectory)
        and not _is_merged_wrongly(analysis)
    )
    if not splits:
        return None
    if backend is not None or active_session() is not None:
        return make_backend("mpi" if backend is None else backend, n_workers)
    return Adaptive(n_workers)


def _is_merged_wrongly(analysis: AnalysisBase) -> bool:
    """True for GNM of MDAnalysis before 2.11, which joins eigenvectors along the wrong axis."""
    gnm = sys.modules.get("MDAnalysis.analysis.gnm")
    if gnm is None or not isinstance(analysis, gnm.GNMAnalysis):
        return False
    merge = analysis._get_aggregator()._lookup.get("eigenvectors")
    return merge is ResultsGroup.ndarray_hstack


def _forgets(trajectory: ProtoReader) -> bool:
    """True if the trajectory's transformations do not depend on earlier frames."""
    return all(attribute_of(one, "parallelizable") for one in trajectory.transformations)


def on_paceline_workers(found: object, module: str) -> object:
    """Create a subclass of an MDAnalysis analysis that runs on paceline's workers.

    For a module of MDAnalysis's analyses, return paceline's module of the same name. Return other
    objects unchanged.
    """
    if isinstance(found, ModuleType):
        package, _, rest = found.__name__.partition(".analysis.")
        is_like = package == "MDAnalysis" and rest
        return import_module(f"paceline.analysis.{rest}") if is_like else found
    if not (isinstance(found, type) and issubclass(found, AnalysisBase)):
        return found
    names = {"run": _run_of(found), "__doc__": found.__doc__, "__module__": module}
    return type(found.__name__, (found,), names)


def _run_of(cls: type[AnalysisBase]) -> Callable[..., object]:
    """Create the method `run` that runs a class on paceline's workers."""

    @functools.wraps(cls.run)
    def run(self: AnalysisBase, *args: object, **options: object) -> Any:
        run_on_workers(cls.run, self, args, options, native=False, n_workers=None)
        return self

    return run


def run_together(
    analyses: Sequence[AnalysisBase],
    chosen: dict[str, object],
    backend: object,
    n_workers: int | None,
    show: bool | None,
) -> None:
    """Run MDAnalysis analyses: in one pass all that can be split, in another pass the others.

    `chosen` contains start, stop, step and frames; `backend` is a backend of paceline, or None.
    Results equal those of separate runs: each analysis starts at the user's current frame, and gets
    frames that the other analyses have not changed.
    """
    for analysis in analyses:
        if not _runs_as_usual(type(analysis)):
            raise UnsupportedError(
                f"{type(analysis).__name__} has its own run(), so paceline.run cannot run it "
                "together with others; call its run()"
            )
    passes: dict[Any, tuple[list[AnalysisBase], Any]] = {}
    given: dict[int, tuple[int, dict[str, Any]]] = {}
    for number, analysis in enumerate(analyses):
        trajectory = analysis._trajectory
        given.setdefault(id(trajectory), (trajectory.ts.frame, _copy_values(trajectory.ts)))
        alone = isinstance(trajectory, _NOT_SENT) or not _forgets(trajectory)
        workers = _workers_for(analysis, backend, n_workers)
        # If one analysis changes the state of a transformation, or frames in memory, the next
        # analysis must see the changes, as in MDAnalysis. Such analyses get a pass of their own.
        key = id(trajectory), workers is None, number if alone else -1
        passes.setdefault(key, ([], workers))[0].append(analysis)
    _running.here = True
    try:
        for (trajectory, _, number), (some, workers) in passes.items():
            if number == -1:
                _restore(some[0]._trajectory, *given[trajectory])
            _run_pass(some, chosen, workers, show)
    finally:
        _running.here = False


def _runs_as_usual(kind: type) -> bool:
    """True if a class uses the `run` of MDAnalysis's base class, or paceline's replacement."""
    run: object = inspect.unwrap(kind.run)  # type: ignore[attr-defined]
    return run is inspect.unwrap(AnalysisBase.run)


def _run_pass(
    analyses: Sequence[AnalysisBase], chosen: dict[str, Any], workers: Any, show: bool | None
) -> None:
    """Run analyses of one trajectory in one pass over its frames, and set their results."""
    trajectory = analyses[0]._trajectory
    for analysis in analyses:
        analysis._setup_frames(trajectory, **chosen)
    (frames,) = analyses[0]._setup_computation_groups(n_parts=1, **chosen)
    name = ", ".join(type(analysis).__name__ for analysis in analyses)
    done = None
    if workers is not None and len(frames):
        parts = np.array_split(frames, min(workers.n_workers, len(frames)))
        try:
            function = partial(_compute_together, analyses)
            done = workers.call_parts(function, name, parts, show)
        except (NotPicklableError, OrderedError):
            if type(workers) is not Adaptive:
                raise
    if done is None:
        with Progress(len(frames), show=show) as bar:
            done = [_compute_together(analyses, frames, bar.add)]
    for number, analysis in enumerate(analyses):
        found = [one[number] for one in done]
        analysis.frames = np.hstack([one.frames for one in found])
        analysis.times = np.hstack([one.times for one in found])
        analysis.results = analysis._get_aggregator().merge([one.results for one in found])
        # Return to the first frame, as MDAnalysis does after its loop over frames.
        trajectory.rewind()
        analysis._conclude()


def _compute_together(
    analyses: Sequence[AnalysisBase],
    indexed: np.ndarray,
    report: Callable[[int], object] | None = None,
) -> list[AnalysedPart]:
    """Compute all analyses over some frames, and read each frame only once.

    Each row of `indexed` contains a result index and a frame.
    """
    trajectory = analyses[0]._trajectory
    given, moved = trajectory.ts.frame, _copy_values(trajectory.ts)
    states, frames = [state_of(one) for one in analyses], indexed[:, 1]
    for analysis in analyses:
        analysis._prepare_sliced_trajectory(slicer=frames)
        analysis._prepare()
        if len(analyses) > 1:
            _restore(trajectory, given, moved)
    for row, frame in enumerate(frames):
        ts = trajectory[int(frame)]
        values = _copy_values(ts) if len(analyses) > 1 else {}
        for number, analysis in enumerate(analyses):
            if number:
                ts = _restore(trajectory, int(frame), values)
            analysis._frame_index, analysis._ts = row, ts
            analysis.frames[row], analysis.times[row] = ts.frame, ts.time
            analysis._single_frame()
        if report:
            report(1)
    return [collect_part(one, state) for one, state in zip(analyses, states, strict=True)]


def _copy_values(ts: Timestep) -> dict[str, np.ndarray | None]:
    """Copy the fields and the cell of a frame, which an analysis may modify."""
    values = {field: np.array(values_of(ts, field)) for field in fields_of(ts)}
    cell = ts.dimensions
    return {**values, "dimensions": None if cell is None else cell.copy()}


def _restore(trajectory: ProtoReader, frame: int, values: dict[str, np.ndarray | None]) -> Timestep:
    """Return to a frame that an analysis may have left, and restore its `values`."""
    if trajectory.ts.frame != frame:
        trajectory[frame]
    for name, value in values.items():
        if name == "dimensions":
            trajectory.ts.dimensions = value
        elif value is not None:
            set_values(trajectory.ts, name, value)
    return trajectory.ts


class SingleFrameAnalysis(AnalysisBase):
    """MDAnalysis's base class for frame-by-frame analyses; `run` uses paceline's workers."""

    run = _run_of(AnalysisBase)

    def __new__(cls, *args: object, **kwargs: object) -> "SingleFrameAnalysis":
        """Create the object without the arguments, which only `__init__` uses."""
        made: SingleFrameAnalysis = super().__new__(cls)
        return made
