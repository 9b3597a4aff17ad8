"""Errors and warnings that paceline raises.

Each error also derives from the built-in exception that a Python user would catch. None derives
from `OSError`, because MDAnalysis treats an `OSError` during iteration as the end of the
trajectory.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar


class PacelineError(Exception):
    """Base class of all errors that paceline itself raises.

    An error about a file may have attributes `path`, `frame` and `offset`, as `DamagedFileError`
    has. If the message says what to do, the attribute `hint` contains this advice.
    """


class DamagedFileError(PacelineError, ValueError):
    """A file contradicts its format.

    Attributes
    ----------
    path : str
        Path of the file.
    frame : int or None
        Frame that cannot be read, if the error concerns one frame.
    offset : int or None
        Byte at which the contradiction was found, if known.
    expected, found : str
        Content that the format requires, and content that was found.
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
        """Create the error that names an object in a file, what was expected and what was found.

        `offset` is the byte of the contradiction, if known.
        """
        at = "" if offset is None else f"byte {offset}: "
        where = f"{what}: " if what else ""
        error = cls(f"{path}: {where}{at}expected {expected}, found {found}")
        error.path, error.frame, error.offset = path, None, offset
        error.expected, error.found = expected, found
        return error


class MissingDataError(PacelineError, ValueError):
    """A file, or a complete frame, lacks data that are needed, such as velocities."""


class AtomsNotLoadedError(PacelineError, RuntimeError):
    """Values were requested for atoms that a Universe has not loaded.

    This error is not a `ValueError`, because functions of MDAnalysis replace a `ValueError` by
    another error.
    """


class UnsupportedError(PacelineError, ValueError):
    """Paceline does not support a request, and does not guess what was meant."""


_Message = TypeVar("_Message", bound=BaseException)


def with_hint(error: _Message, hint: str, joint: str = "; ") -> _Message:
    """Append advice to the message of an error, and store the advice as the attribute `hint`.

    >>> with_hint(UnsupportedError("no topology"), "add it with -s").args
    ('no topology; add it with -s',)
    """
    error.args = (f"{error}{joint}{hint}",)
    vars(error)["hint"] = hint
    return error


def with_script_advice(error: _Message, advice: str) -> _Message:
    """Append advice that only a script can follow to the message of an error.

    The command line omits this advice (see `without_script_advice`).
    """
    error.args = (f"{error}{advice}",)
    vars(error)["for_scripts"] = advice
    return error


def without_script_advice(error: BaseException) -> str:
    """Return the message of an error without advice for scripts."""
    return str(error).removesuffix(vars(error).get("for_scripts", ""))


def needs_mdanalysis(name: str) -> UnsupportedError:
    """Create the error for a name or command that needs MDAnalysis, which is not installed."""
    error = UnsupportedError(f"{name} needs the package MDAnalysis")
    return with_hint(error, "install it with: pip install MDAnalysis")


class UnwritableError(PacelineError, ValueError):
    """A format cannot store the data to be written.

    Attributes
    ----------
    row : int or None
        Row of the frame in its block, if the error concerns one frame.
    reason : str
        Description of the value that the format cannot store, without the number of the row.
    """

    row: int | None
    reason: str


class FileChangedError(PacelineError, RuntimeError):
    """A file has changed since it was opened."""


class ReadError(PacelineError, RuntimeError):
    """A file could not be read, or the connection to a simulation failed."""


class AtomCountError(PacelineError, ValueError):
    """Numbers of atoms differ, for example those of a topology and of a trajectory.

    Attributes
    ----------
    found : int
        Number of atoms that was found, for example in the trajectory.
    """

    found: int


class ExternalFileError(UnsupportedError):
    """Part of an HDF5 file is in another file, which must not be opened.

    Attributes
    ----------
    what : str
        Name of the part, and path to which it refers.
    """

    what: str


class SelectionError(PacelineError, ValueError):
    """A selection is empty, or two selections do not correspond although they must.

    If MDAnalysis is imported, the error is also an `MDAnalysis.SelectionError`.
    """

    def __new__(cls, *args: object) -> "SelectionError":
        """Create the error, which is also an error of MDAnalysis if MDAnalysis is imported."""
        return super().__new__(_with_mdanalysis_error(cls, SelectionError, "SelectionError"), *args)


class NotRunError(PacelineError, ValueError, AttributeError):
    """Results were requested before `run()`.

    If MDAnalysis is imported, the error is also an `MDAnalysis.NoDataError`.
    """

    def __new__(cls, *args: object) -> "NotRunError":
        """Create the error, which is also an error of MDAnalysis if MDAnalysis is imported."""
        return super().__new__(_with_mdanalysis_error(cls, NotRunError, "NoDataError"), *args)


def name_of_imported(module: str, name: str) -> Any:
    """Return an attribute of a module; None if the module is not imported."""
    return getattr(sys.modules.get(module), name, None)


def _with_mdanalysis_error(cls: object, ours: type[PacelineError], name: str) -> Any:
    """Return a class that derives from paceline's and from MDAnalysis's error, if possible.

    Otherwise, as when MDAnalysis is not imported, return `cls`.
    """
    theirs = name_of_imported("MDAnalysis.exceptions", name)
    if cls is not ours or theirs is None:
        return cls
    names = {"__module__": __name__, "__reduce__": lambda self: (ours, self.args, vars(self))}
    return type(ours.__name__, (ours, theirs), names)


class TransformError(PacelineError, ValueError):
    """A frame cannot be transformed, for example because it has no cell."""


class AnalysisError(PacelineError, RuntimeError):
    """A function that analyses blocks raised an error, or returned an invalid result.

    If the function raised an error, this error also belongs to the class of that error, and has
    its attributes. Therefore ``except KeyError`` works wherever the function ran. This does not
    apply to a `PacelineError`, or to errors that Python or MDAnalysis treat specially, such as
    `OSError` and `StopIteration`.
    """

    @classmethod
    def of(cls, message: str, error: Exception) -> "AnalysisError":
        """Create the error for a function's exception; it also belongs to the exception's class.

        `message` must already contain the exception's message.
        """
        return _analysis_error(message, type(error), vars(error))

    def __str__(self) -> str:
        """Return the message without the quotes that `KeyError` would add."""
        return BaseException.__str__(self)


def _analysis_error(message: str, kind: type[Exception], attributes: Any) -> AnalysisError:
    """Create an `AnalysisError` that also belongs to another class, if possible."""
    # Imported here, because `concurrent.futures` loads `logging`, which takes 5 ms.
    from concurrent.futures import BrokenExecutor, CancelledError

    # Backends, generators and MDAnalysis treat these errors specially.
    others = (OSError, StopIteration, StopAsyncIteration, CancelledError, BrokenExecutor)
    if not issubclass(kind, (*others, PacelineError)):
        with contextlib.suppress(TypeError):  # some classes cannot be combined with others
            made: AnalysisError = _both(kind)(message)
            vars(made).update(attributes)
            return made
    error = AnalysisError(message)
    if "for_scripts" in attributes:
        vars(error)["for_scripts"] = attributes["for_scripts"]
    return error


def _both(kind: type[Exception]) -> Any:
    """Create a class that derives from `AnalysisError` and from the exception class `kind`."""
    names = {"__module__": __name__, "__reduce__": lambda self: _pickled_parts(self, kind)}
    return type("AnalysisError", (AnalysisError, kind), names)


def _pickled_parts(error: AnalysisError, kind: type[Exception]) -> tuple[object, ...]:
    """Return the parts of an error for `pickle`, because other processes may lack its class."""
    import cloudpickle

    try:
        return _restore_error, (str(error), cloudpickle.dumps((kind, vars(error))))
    except Exception:  # methods of the pickled objects may raise any error
        return AnalysisError, (str(error),)


def _restore_error(message: str, data: bytes) -> AnalysisError:
    """Create an error from the message and data that `_pickled_parts` returned."""
    import pickle

    try:
        return _analysis_error(message, *pickle.loads(data))
    except Exception:
        return AnalysisError(message)


class WorkerError(PacelineError, RuntimeError):
    """A worker or helper process ended early, or data could not be sent to it or from it."""


class CheckpointError(PacelineError, ValueError):
    """A checkpoint belongs to another run, is in use or damaged, or cannot store a result."""


class TimingsError(PacelineError, ValueError):
    """A file of timings is damaged, or is not a file of timings."""


class Terminated(SystemExit):
    """SIGTERM arrived during a run with a checkpoint; the checkpoint has been written.

    This is not a `PacelineError`, so that code which catches errors and continues does not catch
    it. A script that does not catch it ends with status 143, as if killed by the signal.
    """


class PacelineWarning(UserWarning):
    """A result may be unreliable, or an option has no effect; the message gives the reason."""


#: Packages that are skipped when the source line of a warning is determined.
_INTERNAL = ("paceline", "MDAnalysis", "contextlib")


#: Lists to which the messages of warnings are appended, so that they are saved with the results.
_KEPT: ContextVar[tuple[list[str], ...]] = ContextVar("kept warnings", default=())


@contextlib.contextmanager
def kept_warnings(kept: list[str]) -> Iterator[None]:
    """Append the messages of warnings to a list, without duplicates, and issue them as usual."""
    token = _KEPT.set((*_KEPT.get(), kept))
    try:
        yield
    finally:
        _KEPT.reset(token)


#: True in a context whose warnings are collected, but not issued.
_QUIET: ContextVar[bool] = ContextVar("quiet warnings", default=False)


@contextlib.contextmanager
def quiet_warnings() -> Iterator[None]:
    """Collect the warnings of this thread without issuing them; other threads issue theirs."""
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


def warn(message: str) -> None:
    """Issue a `PacelineWarning` that points at the user's line."""
    for kept in _KEPT.get():
        if message not in kept:
            kept.append(message)
    if _QUIET.get():
        return
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PacelineWarning, stacklevel=level)
