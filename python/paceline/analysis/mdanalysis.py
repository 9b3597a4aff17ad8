"""Run MDAnalysis's own analyses on our workers."""

import functools
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import parent_process
from types import ModuleType
from typing import Any

from MDAnalysis.analysis.base import AnalysisBase
from MDAnalysis.coordinates.base import StreamReaderBase
from MDAnalysis.coordinates.memory import MemoryReader

from paceline.backends import Adaptive, make_backend
from paceline.backends.mpi import active_session
from paceline.errors import UnsupportedError
from paceline.trajectory.mdanalysis_reader import Reader

#: Arguments of `run` that are given by their places.
RUN_ARGUMENTS = (
    *("start", "stop", "step", "frames", "verbose"),
    *("n_workers", "n_parts", "backend"),
)
#: Threads in which a run of an analysis is going on: one within it is part of its work.
_running = threading.local()


def run_on_workers(
    original: Callable[..., Any],
    analysis: Any,
    options: dict[str, Any],
    *,
    native: bool,
    n_workers: int | None,
) -> str | None:
    """Run one of MDAnalysis's analyses on our workers; return how, or None if it ran as before.

    `original` is its own `run`, and `options` are the arguments. With `native`, our class of the
    same name does the work, if there is one.
    """
    as_before = (
        any(options.get(name) is not None for name in ("backend", "n_parts", "progressbar_kwargs"))
        or options.get("unsupported_backend")
        or getattr(_running, "here", False)
        or parent_process() is not None
    )
    if as_before:
        original(analysis, **options)
        return None
    chosen = {name: options.get(name) for name in ("start", "stop", "step", "frames")}
    verbose = options.get("verbose")
    if verbose is None:
        verbose = getattr(analysis, "_verbose", False)
    n_workers = options["n_workers"] if options.get("n_workers") else n_workers
    _running.here = True
    try:
        if native and _run_natively(analysis, chosen, n_workers, verbose):
            return "native"
        workers = _workers_for(analysis, n_workers)
        original(analysis, **chosen, verbose=verbose, backend=workers)
    finally:
        _running.here = False
    if workers is None:
        return "in this process, in order"
    return getattr(workers, "description", f"on {workers.name}")


def _run_natively(
    analysis: Any, chosen: dict[str, Any], n_workers: int | None, verbose: bool
) -> bool:
    """Run our own class in place of MDAnalysis's; False where that is not possible."""
    cls, trajectory = native_class(type(analysis)), analysis._trajectory
    # Frames that MDAnalysis transforms are read by it, one at a time.
    if cls is None or not isinstance(trajectory, Reader) or trajectory.transformations:
        return False
    analysis._setup_frames(trajectory, **chosen)
    if analysis.n_frames == 0:  # an error with ours
        return False
    try:
        ours = cls.like(analysis).run(**chosen, n_workers=n_workers, verbose=verbose)
    except UnsupportedError:
        return False
    analysis.frames, analysis.times = ours.frames, ours.times
    for name in ours.SHARED_RESULTS:
        if name in ours.results:
            analysis.results[name] = ours.results[name]
    trajectory.rewind()
    return True


def native_class(theirs: type) -> Any:
    """Find our class that does the work of one of MDAnalysis's: of the same name, with `like`."""
    package, _, module = theirs.__module__.partition(".analysis.")
    # Subclasses, which may compute anything, are in modules of other packages.
    if package != "MDAnalysis" or not find_spec(f"paceline.analysis.{module}"):
        return None
    ours = getattr(import_module(f"paceline.analysis.{module}"), theirs.__name__, None)
    return ours if hasattr(ours, "like") else None


def _workers_for(analysis: Any, n_workers: int | None) -> Any:
    """Make the workers for an analysis; None where it must see all frames in order."""
    trajectory = analysis._trajectory
    splits = (
        analysis.parallelizable
        # Frames in memory would be copied to each worker.
        and not isinstance(trajectory, MemoryReader | StreamReaderBase)
        and not trajectory._auxs
        and all(getattr(one, "parallelizable", False) for one in trajectory.transformations)
    )
    if not splits:
        return None
    return make_backend("mpi") if active_session() is not None else Adaptive(n_workers)


def on_our_workers(found: Any, module: str) -> Any:
    """Make a class of MDAnalysis's analyses run on our workers, as one of a module of ours."""
    if isinstance(found, ModuleType):
        package, _, rest = found.__name__.partition(".analysis.")
        is_like = package == "MDAnalysis" and rest
        return import_module(f"paceline.analysis.{rest}") if is_like else found
    if not (isinstance(found, type) and issubclass(found, AnalysisBase)):
        return found
    names = {"run": _run_of(found), "__doc__": found.__doc__, "__module__": module}
    return type(found.__name__, (found,), names)


def _run_of(cls: type[AnalysisBase]) -> Callable[..., Any]:
    """Make the `run` of a class on our workers."""

    @functools.wraps(cls.run)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        options = dict(zip(RUN_ARGUMENTS, args, strict=False)) | options
        run_on_workers(cls.run, self, options, native=False, n_workers=None)
        return self

    return run


class SingleFrameAnalysis(AnalysisBase):
    """MDAnalysis's base class, whose subclasses see frame after frame, on our workers."""

    run = _run_of(AnalysisBase)
