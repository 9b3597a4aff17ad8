"""Run MDAnalysis's own analyses on paceline's backends.

All code that relies on MDAnalysis's private interface is in this file. MDAnalysis is not imported
before one of its analyses runs.
"""

import io
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import parent_process
from types import FunctionType, MethodType
from typing import Any

import cloudpickle
import numpy as np

from paceline._util.arguments import function_name
from paceline._util.os_calls import after_fork
from paceline._util.progress import Progress
from paceline.backends.base import Backend
from paceline.engine.tasks_and_results import BlockResult, FunctionJob, FunctionTask
from paceline.errors import PacelineWarning, UnsupportedError, WorkerError, name_of_imported
from paceline.performance.record import DuplicateAttempt
from paceline.timing import Timings

#: Number of parts into which the frames of an analysis are divided. It does not depend on the
#: number of workers, so that results are bit-identical for any number.
PARTS = 64
#: Minimum number of parts of a short trajectory.
FEWEST_PARTS = 8
#: Minimum number of frames per part of a longer trajectory, because preparing a part has a cost.
FEWEST_FRAMES = 16


#: Reason, for messages, why the parts of an analysis depend on each other.
ORDERED = "its function keeps state from frame to frame"
#: Types of open files that are not pickled, because a copy would be read from the beginning.
#: MDAnalysis's own files, in contrast, seek to their position.
_FILES = (io.BufferedReader, io.BufferedRandom, io.FileIO, io.TextIOWrapper)


class NotPicklableError(WorkerError):
    """Error: a function, or an object that the function needs, cannot be sent to workers."""


class OrderedError(WorkerError):
    """Error: a function keeps state from frame to frame, so that parts depend on each other."""

    def __init__(self) -> None:
        super().__init__(ORDERED)


class RemoteCall:
    """Function of one argument that is sent to workers; Universes are opened once per worker.

    In each call, the function and the frames of its Universes are in their initial state. Pickling
    the function may raise any error.
    """

    def __init__(self, function: Callable[[Any], Any]):
        # A caller whose function needs Universes or readers has already imported MDAnalysis.
        from MDAnalysis import Universe
        from MDAnalysis.coordinates.base import ProtoReader

        large: dict[int, Any] = {}
        self._function = _dumps(function, large, (Universe, ProtoReader))
        self._large = list(large.values())
        self._frames = [
            (k, reader.ts.frame, np.array(reader.ts.positions) if reader.ts.has_positions else None)
            for k, reader in enumerate(self._large)
            if isinstance(reader, ProtoReader)
        ]

    def __call__(self, item: object) -> bytes:
        """Call the function with one item; return the pickled result, which `receive` unpickles."""
        _parse_one_at_a_time()
        # Before each call, restore the frames with the user's changes and copy the function: the
        # previous call has moved the trajectories and may have changed the function.
        for k, frame, positions in self._frames:
            reader = self._large[k]
            reader[frame]
            if positions is not None:
                reader.ts.positions = positions
        function = _loads(self._function, self._large)
        return _dumps(function(item), {id(one): one for one in self._large}, ())

    def receive(self, data: bytes) -> Any:
        """Unpickle a result, with the Universes of the original function instead of copies."""
        return _loads(data, self._large)


class _Pickler(cloudpickle.Pickler):
    """Pickler that replaces large objects by numbers, and collects the objects."""

    def __init__(self, file: io.BytesIO, large: dict[int, Any], kinds: tuple[type, ...]):
        super().__init__(file)
        self._large, self._kinds = large, kinds
        self._numbers = {key: number for number, key in enumerate(large)}

    def persistent_id(self, thing: Any) -> int | None:
        if type(thing) in _FILES and thing not in (sys.stdout, sys.stderr):
            raise pickle.PicklingError(f"it keeps a file open, {thing.name}")
        if id(thing) not in self._numbers:
            if not isinstance(thing, self._kinds):
                return None
            self._numbers[id(thing)] = len(self._large)
            self._large[id(thing)] = thing
        return self._numbers[id(thing)]


class _Unpickler(pickle.Unpickler):
    """Unpickler that replaces numbers by the large objects."""

    def __init__(self, file: io.BytesIO, large: list[Any]):
        super().__init__(file)
        self._large = large

    def persistent_load(self, number: int) -> object:
        return self._large[number]


def state_of(analysis: object) -> bytes | None:
    """Pickle the function of an `AnalysisFromFunction` with its arguments and its state.

    Universes are left out. Returns None for other analyses and for objects that cannot be pickled.
    """
    from MDAnalysis import Universe
    from MDAnalysis.analysis.base import AnalysisFromFunction
    from MDAnalysis.coordinates.base import ProtoReader

    if not isinstance(analysis, AnalysisFromFunction):
        return None
    try:
        called = analysis.function, analysis.args, analysis.kwargs
        return _dumps(called, {}, (Universe, ProtoReader))
    except Exception:  # pickling runs arbitrary code of the objects
        return None


def _dumps(thing: object, large: dict[int, Any], kinds: tuple[type, ...]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, large, kinds).dump(thing)
    return file.getvalue()


def _loads(data: bytes, large: list[Any]) -> Any:
    return _Unpickler(io.BytesIO(data), large).load()


class ForMDAnalysis(Backend):
    """Backend that MDAnalysis's own analyses also accept, as `run(backend=...)`.

    For `isinstance` the backend is a `BackendSerial`, which every MDAnalysis analysis accepts and
    which allows a progress bar. MDAnalysis itself checks that an analysis can be parallelised.

    Attributes
    ----------
    timings : Timings
        Timings of the last MDAnalysis analysis that this backend has run.
    """

    timings: Timings
    #: Reason why the last MDAnalysis analysis did not run on all workers; empty otherwise.
    description: str = ""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Class that `isinstance` checks in addition to the type."""
        return _serial() or type(self)

    def __eq__(self, other: object) -> bool:
        """True for this backend, and for the class that `__class__` returns."""
        return self is other or (isinstance(other, type) and other is _serial())

    __hash__ = object.__hash__

    def apply(self, func: Callable, computations: Sequence[Any]) -> list[Any]:
        """Call a function with each item, as MDAnalysis's `BackendBase.apply` does.

        Parameters
        ----------
        func : callable
            Function to call; it is sent to each worker once, with its Universes.
        computations : sequence
            Arguments of the calls.

        Returns
        -------
        list
            Results, one per item. If the `run` of an analysis makes the call, one result for each
            part of its frames; this backend chooses the parts.

        Raises
        ------
        AnalysisError
            The function raised an error.
        WorkerError
            The function cannot be sent, or its workers were killed.
        UnsupportedError
            Options for MDAnalysis's own progress bar are set.
        """
        if isinstance(func, partial) and (analysis := _analysis_of(func)) is not None:
            return self._analyse(analysis, func, computations)
        items = enumerate(computations)
        calls = [FunctionTask(0, k, k, k, 1, f"item {k}", item) for k, item in items]
        with Progress(len(calls), unit="item") as bar:
            return self._call_all(func, function_name(func).rpartition(".")[2], calls, bar)

    def _analyse(self, analysis: Any, compute: partial, parts: Sequence[np.ndarray]) -> list[Any]:
        if compute.keywords["progressbar_kwargs"]:
            raise UnsupportedError(
                "progressbar_kwargs= sets MDAnalysis's own bar; verbose=True shows paceline's"
            )
        if len(parts[0]) == 0:
            return [compute(parts[0])]
        name, show = type(analysis).__name__, compute.keywords["verbose"]
        done = [
            one for (one,) in self.call_parts(partial(_compute_part, compute), name, parts, show)
        ]
        # MDAnalysis's own loop over frames ends at the first frame, which `_conclude` may read.
        analysis._trajectory.rewind()
        return done

    def warn_of_state(self, name: str) -> None:
        """Warn that the function of an analysis keeps state from frame to frame."""
        warnings.warn(
            f"{name}: {ORDERED}, and each part of the frames started without that state; omit "
            "backend= if a frame depends on earlier ones",
            PacelineWarning,
            stacklevel=2,
        )

    def call_parts(
        self, function: Callable, name: str, parts: Sequence[np.ndarray], show: bool | None
    ) -> "list[list[AnalysedPart]]":
        """Call a function with each part of the frames; by default, this backend chooses the parts.

        The function returns one result of `collect_part` for each analysis.
        """
        parts = _split_frames(parts, self.n_workers)
        with Progress(sum(map(len, parts)), unit="frame", show=show) as bar:
            done = self._call_all(function, name, list(_calls(parts)), bar)
        if any(map(has_changed_state, done)):
            self.warn_of_state(name)
        return done

    def _call_all(
        self, function: Callable, name: str, calls: Sequence[FunctionTask], bar: Progress
    ) -> list[Any]:
        """Call a function once for each item of `calls`."""
        with _pickling(name):
            remote = RemoteCall(function)
        return self.call_remote(remote, name, calls, bar)

    def call_remote(
        self, remote: RemoteCall, name: str, calls: Sequence[FunctionTask], bar: Progress
    ) -> list[Any]:
        """Send a function to the workers, and call it there with the argument of each call."""
        self.timings = Timings(
            self.name,
            time.monotonic_ns(),
            n_workers=int(self.n_workers),
            schedule=self.schedule,
        )
        with _pickling(name):
            job = FunctionJob(name, cloudpickle.dumps(remote))
        with self.collective_run() as collective:
            if collective.is_coordinator:
                values = self._run_calls(job, calls, bar)
            else:
                collective.work()
            begun = time.monotonic_ns()
            done = [remote.receive(value) for value in collective.broadcast(lambda: values)]
        self.timings.end = time.monotonic_ns()
        self.timings.t_comm += (self.timings.end - begun) / 1e9
        return done

    def _run_calls(
        self, job: FunctionJob, calls: Sequence[FunctionTask], bar: Progress
    ) -> list[object]:
        """Run all calls; return their pickled results, and store their timings."""
        values: list[Any] = [None] * len(calls)
        self.timings.dealt = time.monotonic_ns()
        with closing(self.run([job], calls)) as results:
            for result in results:
                if isinstance(result, DuplicateAttempt):
                    self.timings.abandoned.append(result)
                    continue
                assert isinstance(result, BlockResult)
                assert result.values is not None
                came = time.monotonic_ns()
                (values[result.number],) = result.values
                self.timings.blocks.extend(
                    replace(timing, comm=max(0, came - timing.end)) for timing in result.timings
                )
                bar.add(result.n_frames)
        return values


_parsing = threading.RLock()


def _unlock() -> None:
    """Replace the lock in a forked child process, where the lock's owner thread does not exist."""
    global _parsing
    _parsing = threading.RLock()


after_fork(_unlock)


def _parse_one_at_a_time() -> None:
    """Let only one thread at a time parse a selection: MDAnalysis's single parser keeps state."""
    from MDAnalysis.core import selection

    with _parsing:
        parse = selection.SelectionParser.parse
        if parse.__module__ == __name__:
            return

        def parse_alone(*args: object, **options: object) -> object:
            with _parsing:
                return parse(*args, **options)

        selection.SelectionParser.parse = parse_alone


def _serial() -> type | None:
    """Return MDAnalysis's serial backend; None if MDAnalysis is not imported."""
    return name_of_imported("MDAnalysis.analysis.backends", "BackendSerial")


def changed_by() -> str:
    """Return the name of a module that patched MDAnalysis's functions; "" if there is none.

    Other processes may lack the patch.
    """
    of_mdanalysis = [
        (name, module)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "MDAnalysis"
    ]
    for name, module in of_mdanalysis:
        for value in list(vars(module).values()):
            functions = [value]
            if isinstance(value, type) and value.__module__ == name:
                functions = list(vars(value).values())
            for function in functions:
                if isinstance(function, property):
                    function = function.fget
                if isinstance(function, FunctionType) and (
                    is_foreign(function)
                    if functions != [value]
                    else _source(function) == "__main__"
                ):
                    return _source(function)
    return ""


def is_foreign(function: FunctionType) -> bool:
    """True if a function belongs neither to Python nor to MDAnalysis nor to paceline."""
    package = _source(function).partition(".")[0]
    known = package in sys.stdlib_module_names or package in ("MDAnalysis", "paceline")
    return package in sys.modules and not known


def _source(function: FunctionType) -> str:
    """Return the module that defines a function; a wrapper may have copied another `__module__`."""
    return function.__globals__.get("__name__") or ""


def _analysis_of(func: partial) -> object:
    """Return the analysis whose `run` method created a function; None for any other function."""
    from MDAnalysis.analysis.base import AnalysisBase

    analysis = func.func.__self__ if isinstance(func.func, MethodType) else None
    return analysis if isinstance(analysis, AnalysisBase) else None


def _split_frames(parts: Sequence[np.ndarray], n_workers: int) -> Sequence[np.ndarray]:
    """Divide frames into the default number of parts, unless the user chose the number."""
    frames = np.concatenate(parts)
    if len(parts) != min(n_workers, len(frames)):
        return parts
    n_parts = max(FEWEST_PARTS, min(PARTS, len(frames) // FEWEST_FRAMES))
    return np.array_split(frames, max(1, min(n_parts, len(frames))))


def _calls(parts: Sequence[np.ndarray]) -> Iterator[FunctionTask]:
    """Create one task per part, with its index in the result and one of its frame numbers."""
    for number, part in enumerate(parts):
        (first, first_frame), last_frame = part[0], part[-1, 1]
        what = f"frames {first_frame} to {last_frame}"
        yield FunctionTask(0, number, int(first), int(first_frame), len(part), what, part)


@dataclass
class AnalysedPart:
    """Results of an analysis for one part of its frames, in the form that MDAnalysis expects."""

    frames: np.ndarray
    times: np.ndarray
    results: object
    #: True if the analysis has changed the state of its function.
    keeps_state: bool


def collect_part(analysis: Any, state: bytes | None) -> AnalysedPart:
    """Collect the results of a part for MDAnalysis, and whether the analysis keeps state.

    `state` is the result of `state_of` before the part was analysed.
    """
    return AnalysedPart(
        frames=analysis.frames,
        times=analysis.times,
        results=analysis.results,
        keeps_state=state_of(analysis) != state,
    )


def has_changed_state(found: object) -> bool:
    """True if an analysis of this part has changed the state of its function."""
    of_parts = found if isinstance(found, list) else []
    return any(isinstance(one, AnalysedPart) and one.keeps_state for one in of_parts)


def _compute_part(compute: partial, indexed_frames: np.ndarray) -> list[AnalysedPart]:
    """Compute one analysis for a part of the frames."""
    if parent_process() is not None:
        from MDAnalysis.lib.log import ProgressBar

        # The default lock is a semaphore, which a killed process would leave behind.
        ProgressBar.set_lock(threading.RLock())
    state = state_of(_analysis_of(compute))
    # Progress bars of several workers would overwrite each other.
    return [collect_part(compute(indexed_frames, verbose=False), state)]


@contextmanager
def _pickling(name: str) -> Iterator[None]:
    """Convert any error of pickling into `NotPicklableError`."""
    try:
        yield
    except Exception as error:  # pickling runs arbitrary code of the objects
        raise NotPicklableError(
            f"{name} cannot be pickled, and each worker needs a copy: "
            f"{type(error).__name__}: {error}"
        ) from error
