"""Errors and warnings that paceline raises.

Each error also derives from the built-in that a Python user would catch. None derives from
`OSError`: MDAnalysis takes an `OSError` while iterating for the end of the trajectory.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar


class PacelineError(Exception):
    """Base of every error that paceline raises of its own accord."""


class DamagedFileError(PacelineError, ValueError):
    """A file contradicts its format.

    Attributes
    ----------
    path : str
        The file.
    frame : int or None
        The frame that cannot be read, if it is one frame.
    offset : int or None
        The byte at which the contradiction was found, if it is known.
    expected, found : str
        Content that the format needs there, and the content that is there.
    """

    path: str
    frame: int | None
    offset: int | None
    expected: str
    found: str

    @classmethod
    def in_object(
        cls, path: str, what: str, expected: str, found: str, offset: int | None = None
    ) -> "DamagedFileError":
        """Make the error for a wrong object of a file; `offset` in bytes, where it is known."""
        at = "" if offset is None else f"byte {offset}: "
        where = f"{what}: " if what else ""
        error = cls(f"{path}: {where}{at}expected {expected}, found {found}")
        error.path, error.frame, error.offset = path, None, offset
        error.expected, error.found = expected, found
        return error


class MissingDataError(PacelineError, ValueError):
    """A whole frame does not hold a field that an analysis needs, such as velocities."""


class AtomsNotLoadedError(PacelineError, RuntimeError):
    """Values are asked for of atoms that a Universe does not load.

    It is no `ValueError`, which MDAnalysis's functions replace by other errors.
    """


class UnsupportedError(PacelineError, ValueError):
    """A request that paceline does not support, and does not guess at."""


_Message = TypeVar("_Message", bound=BaseException)


def with_script_advice(error: _Message, advice: str) -> _Message:
    """End the message of an error with advice that only a script can follow.

    The command line leaves it out, by `without_script_advice`.
    """
    error.args = (f"{error}{advice}",)
    vars(error)["for_scripts"] = advice
    return error


def without_script_advice(error: BaseException) -> str:
    """Message of an error, for those who write no script."""
    return str(error).removesuffix(getattr(error, "for_scripts", ""))


def needs_mdanalysis(name: str) -> UnsupportedError:
    """Make the error for a name or command that needs MDAnalysis, which is not installed."""
    return UnsupportedError(
        f"{name} needs the package MDAnalysis; install it with: pip install MDAnalysis"
    )


class UnwritableError(PacelineError, ValueError):
    """A format cannot hold what is to be written to it.

    Attributes
    ----------
    row : int or None
        The frame's place in its block, if it is one frame.
    reason : str
        Value that it cannot hold, without the row.
    """

    row: int | None
    reason: str


class FileChangedError(PacelineError, RuntimeError):
    """A file is no longer the one that was opened."""


class ReadError(PacelineError, RuntimeError):
    """The operating system could not read a frame of an open trajectory."""


class AtomCountError(PacelineError, ValueError):
    """A topology and a trajectory do not have the same number of atoms.

    Attributes
    ----------
    found : int
        Atoms of the trajectory.
    """

    found: int


class ExternalFileError(UnsupportedError):
    """Part of an HDF5 file lies in another file, which is not to be opened.

    Attributes
    ----------
    what : str
        The part, and where it leads.
    """

    what: str


class SelectionError(PacelineError, ValueError):
    """A selection holds no atoms, or two selections that should correspond do not.

    Where MDAnalysis is imported, it is also an `MDAnalysis.SelectionError`.
    """

    def __new__(cls, *args: object) -> "SelectionError":
        """Make it, as one of both kinds."""
        return super().__new__(_with_theirs(cls, SelectionError, "SelectionError"), *args)


class NotRunError(PacelineError, ValueError, AttributeError):
    """Results are asked for before `run()`.

    Where MDAnalysis is imported, it is also an `MDAnalysis.NoDataError`.
    """

    def __new__(cls, *args: object) -> "NotRunError":
        """Make it, as one of both kinds."""
        return super().__new__(_with_theirs(cls, NotRunError, "NoDataError"), *args)


def name_of_imported(module: str, name: str) -> Any:
    """Get a name of a module; None if the module is not imported."""
    return getattr(sys.modules.get(module), name, None)


def _with_theirs(cls: object, ours: type[PacelineError], name: str) -> Any:
    """Make a class of an error of ours that is one of MDAnalysis's, too, where that is imported."""
    theirs = name_of_imported("MDAnalysis.exceptions", name)
    if cls is not ours or theirs is None:
        return cls
    names = {"__module__": __name__, "__reduce__": lambda self: (ours, self.args, vars(self))}
    return type(ours.__name__, (ours, theirs), names)


class TransformError(PacelineError, ValueError):
    """A frame cannot be transformed, since it has no cell, for example."""


class AnalysisError(PacelineError, RuntimeError):
    """A function that analyses blocks raised, or returned what cannot be used.

    Where it raised, the error is also one of the class that it raised, with its attributes, so
    that ``except KeyError`` catches it wherever the function ran; except for an `OSError`.
    """

    @classmethod
    def of(cls, message: str, error: Exception) -> "AnalysisError":
        """Make the error for an exception of a function, as one of its class too.

        The message ends with the exception's.
        """
        return _analysis_error(message, type(error), vars(error))

    def __str__(self) -> str:
        """Return the message; that of a `KeyError` would be in quotes."""
        return BaseException.__str__(self)


def _analysis_error(message: str, kind: type[Exception], attributes: Any) -> AnalysisError:
    """Make an `AnalysisError` that is one of another class, too, where that is possible."""
    from concurrent.futures import BrokenExecutor, CancelledError  # loads `logging`, 5 ms

    # Backends, generators and MDAnalysis take these for something else.
    others = (OSError, StopIteration, StopAsyncIteration, CancelledError, BrokenExecutor)
    if not issubclass(kind, (*others, PacelineError)):
        with contextlib.suppress(TypeError):  # some classes have no subclasses together with others
            made: AnalysisError = _both(kind)(message)
            vars(made).update(attributes)
            return made
    error = AnalysisError(message)
    if "for_scripts" in attributes:
        vars(error)["for_scripts"] = attributes["for_scripts"]
    return error


def _both(kind: type[Exception]) -> Any:
    """Make the class of an `AnalysisError` that is one of another class, too."""
    names = {"__module__": __name__, "__reduce__": lambda self: _reduced(self, kind)}
    return type("AnalysisError", (AnalysisError, kind), names)


def _reduced(error: AnalysisError, kind: type[Exception]) -> tuple[object, ...]:
    """Take an error apart, for `pickle`: other processes may not find its class by name."""
    import cloudpickle

    try:
        return _restored, (str(error), cloudpickle.dumps((kind, vars(error))))
    except Exception:  # pickling runs code of every object's own
        return AnalysisError, (str(error),)


def _restored(message: str, data: bytes) -> AnalysisError:
    """Make an error of its parts."""
    import pickle

    try:
        return _analysis_error(message, *pickle.loads(data))
    except Exception:
        return AnalysisError(message)


class WorkerError(PacelineError, RuntimeError):
    """A worker ended before its work did."""


class CheckpointError(PacelineError, ValueError):
    """A checkpoint is of another run, in use by one, or damaged; or no checkpoint can be kept."""


class TimingsError(PacelineError, ValueError):
    """A file of timings is damaged, or holds something else."""


class Terminated(SystemExit):
    """SIGTERM came while a run kept a checkpoint, which is written.

    It is no `PacelineError`, so that code which catches errors and goes on does not catch it. A
    script that does not catch it ends with status 143, like one that the signal kills.
    """


class PacelineWarning(UserWarning):
    """A reason to be careful with a result."""


#: Packages whose lines a warning does not point at.
_INTERNAL = ("paceline", "MDAnalysis", "contextlib")


#: List that gets warnings, too, where results are to be saved with them.
_KEPT: ContextVar[list[str] | None] = ContextVar("kept warnings", default=None)


@contextlib.contextmanager
def kept_warnings(kept: list[str]) -> Iterator[None]:
    """Add the messages of warnings to a list, each once, beside issuing them."""
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def warn(message: str) -> None:
    """Issue a `PacelineWarning` that points at the user's line."""
    kept = _KEPT.get()
    if kept is not None and message not in kept:
        kept.append(message)
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PacelineWarning, stacklevel=level)
