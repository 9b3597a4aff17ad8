"""Make plain MDAnalysis use paceline: the reader in Universes, the workers in analyses.

All changes to MDAnalysis are in this file: five functions, which `register` replaces and
`unregister` restores.
"""

import functools
import inspect
import threading
from abc import ABCMeta
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import MDAnalysis
from MDAnalysis.analysis.base import AnalysisBase
from MDAnalysis.coordinates.base import ProtoReader
from MDAnalysis.coordinates.chain import ChainReader
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.DLPoly import ConfigReader, HistoryReader
from MDAnalysis.coordinates.H5MD import H5MDReader
from MDAnalysis.coordinates.LAMMPS import DumpReader
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.core import universe as mdanalysis_universe

from paceline.errors import ExternalFileError, UnsupportedError, warn
from paceline.mdanalysis import topology_cache
from paceline.mdanalysis.analyses import run_on_workers
from paceline.mdanalysis.reader import Reader, is_ours

#: Formats of the files that MDAnalysis's readers read, by paceline's names.
_FORMATS: dict[type, frozenset[str]] = {
    XTCReader: frozenset({"XTC"}),
    TRRReader: frozenset({"TRR"}),
    DCDReader: frozenset({"DCD"}),
    NCDFReader: frozenset({"NetCDF"}),
    H5MDReader: frozenset({"H5MD"}),
    HistoryReader: frozenset({"HISTORY"}),
    ConfigReader: frozenset({"CONFIG"}),
    DumpReader: frozenset({"LAMMPSDUMP"}),
}
#: Arguments of MDAnalysis's readers that paceline's reader ignores.
_MEANINGLESS = ("self", "mmap", "kwargs")

#: Metaclass of all of MDAnalysis's readers.
_ReaderMeta: Any = type(ProtoReader)

_lock = threading.RLock()
#: Active registrations; the last one is in force.
_active: "list[Registration]" = []
#: Functions of paceline that replace MDAnalysis's: owner, name, function.
_replaced: list[tuple[object, str, object]] = []


class Registration:
    """Registration of paceline with MDAnalysis, until `unregister` or the end of a ``with`` block.

    Attributes
    ----------
    opened : list of str
        Trajectories that paceline's reader has opened.
    left : list of str
        Trajectories that were left to MDAnalysis's own readers, each with the reason.
    runs : list of (str, str)
        Runs of analyses: name of the class, and method of computation.
    """

    def __init__(self, native: bool, n_workers: int | None, strict: bool):
        self.native = native
        self.n_workers = n_workers
        self.strict = strict
        self.opened: list[str] = []
        self.left: list[str] = []
        self.runs: list[tuple[str, str]] = []

    def summary(self) -> str:
        """Describe in a few lines how trajectories were read and analyses were run.

        Returns
        -------
        str
            Text for human readers.
        """
        n_files = len(set(self.opened))
        lines = [f"paceline: its reader opened {n_files} trajector{'y' if n_files == 1 else 'ies'}"]
        lines += [f"paceline: left to MDAnalysis's reader: {reason}" for reason in self.left]
        runs = Counter(f"{name} {how}" for name, how in self.runs)
        lines += [
            f"paceline: {run}" + (f" ({n} times)" if n > 1 else "") for run, n in runs.items()
        ]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        """Return this registration, which is already in force."""
        return self

    def __exit__(self, *error: object) -> None:
        _remove(self)


def register(
    *, native: bool = True, n_workers: int | None = None, strict: bool = False
) -> Registration:
    """Make plain MDAnalysis use paceline.

    `MDAnalysis.Universe` and MDAnalysis's readers open files of paceline's formats with paceline's
    reader, and all other files as before. Large topologies are cached for later use. `run()` of
    MDAnalysis's analyses, without `backend=`, uses the cores of this machine, or the ranks in a
    script of ``python -m paceline`` under ``mpirun``; an analysis that cannot be split computes in
    this process, while the reader decodes ahead.

    The registration concerns the whole process, until `unregister` has been called as many times as
    `register`, or, in a ``with`` statement, until its end.

    Parameters
    ----------
    native : bool
        Compute with paceline's own class of the same name if there is one, such as `RMSD`. Results
        differ from MDAnalysis's by rounding, except for differences that the manual lists under
        "Where tools disagree".
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use.
    strict : bool
        Raise an error for a trajectory that paceline could decode without the given options; by
        default MDAnalysis's reader opens it, with a warning that gives the reason.

    Returns
    -------
    Registration
        Registration with lists of trajectories and runs; as a context manager, it ends with its
        block.

    Examples
    --------
    >>> import MDAnalysis
    >>> import paceline
    >>> from MDAnalysis.analysis.rms import RMSD
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> with paceline.register() as registration:
    ...     u = MDAnalysis.Universe(PSF, DCD)
    ...     rmsd = RMSD(u, select="name CA").run()
    >>> rmsd.results.rmsd.shape
    (98, 3)
    >>> registration.runs
    [('RMSD', 'native')]
    """
    registration = Registration(native, n_workers, strict)
    with _lock:
        if not _active:
            _install()
        _active.append(registration)
    return registration


def unregister() -> None:
    """End the last registration.

    Raises
    ------
    RuntimeError
        No registration is in force.
    """
    with _lock:
        if not _active:
            raise RuntimeError("paceline is not registered with MDAnalysis")
        _remove(_active[-1])


def _remove(registration: Registration) -> None:
    with _lock:
        if registration in _active:
            _active.remove(registration)
            if not _active:
                _uninstall()


def _install() -> None:
    """Replace MDAnalysis's functions by paceline's."""
    # Python looks both methods up in the metaclass.
    _ReaderMeta.__call__ = _make_reader
    _ReaderMeta.__instancecheck__ = _is_instance
    for owner, name, wrapped in (
        (AnalysisBase, "run", _wrapped_run),
        (mdanalysis_universe, "_topology_from_file_like", _wrapped_parse),
        (MDAnalysis.Universe, "guess_TopologyAttrs", _wrapped_guess),
    ):
        ours = wrapped(getattr(owner, name))
        _replaced.append((owner, name, ours))
        setattr(owner, name, ours)


def _uninstall() -> None:
    """Restore MDAnalysis's functions."""
    del _ReaderMeta.__call__, _ReaderMeta.__instancecheck__
    while _replaced:
        owner, name, ours = _replaced.pop()
        # Another package may have wrapped a function meanwhile; the wrapper has no effect while no
        # registration is active.
        if getattr(owner, name) is ours:
            setattr(owner, name, ours.__wrapped__)


def _make_reader(cls: type, *args: object, **kwargs: object) -> Any:
    """Make one of MDAnalysis's readers, or paceline's instead."""
    registration = _active[-1] if _active else None
    if registration is not None:
        reader = None
        if cls in _FORMATS:
            reader = _open_file(registration, cls, args, kwargs)
        elif cls is ChainReader:
            reader = _open_chain(registration, args, kwargs)
        if reader is not None:
            registration.opened.append(", ".join(reader.filenames))
            return reader
    return ABCMeta.__call__(cls, *args, **kwargs)


def _is_instance(cls: Any, instance: Any) -> bool:
    """Treat paceline's reader as an instance of the MDAnalysis class that it replaces."""
    if ABCMeta.__instancecheck__(cls, instance):
        return True
    if type(instance) is not Reader:
        return False
    if len(instance.filenames) > 1:
        return cls is ChainReader
    return instance.chain.files[0].format in _FORMATS.get(cls, ())


def _open_file(
    registration: Registration, cls: type, args: tuple[object, ...], kwargs: dict[str, object]
) -> Reader | None:
    """Open a file with paceline's reader; None if MDAnalysis's reader must open it."""
    given = _bind(cls, args, kwargs)
    name = None if given is None else given.pop("filename")
    if given is None or not is_ours(name):
        return None
    reader = _open(registration, name, given)
    if reader is None or reader.chain.files[0].format not in _FORMATS[cls]:
        return None
    if cls in (ConfigReader, HistoryReader) and reader.ts.has_forces:
        reason = (
            f"{name}: MDAnalysis gives forces of DL_POLY in the file's own unit, and paceline in "
            "kJ/(mol·Å)"
        )
        _leave(registration, UnsupportedError(reason))
        return None
    return reader


def _open_chain(
    registration: Registration, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Reader | None:
    """Open several files as one trajectory with paceline's reader; None for MDAnalysis's reader."""
    given = _bind(ChainReader, args, kwargs)
    if given is None or given.pop("skip", 1) != 1:
        return None
    names = given.pop("filenames")
    if isinstance(names, str) or not all(is_ours(name) for name in names):
        return None
    return _open(registration, list(names), given)


def _open(registration: Registration, name: object, options: dict[str, object]) -> Reader | None:
    """Open files; None if their options or structure are unsupported; safety errors are raised."""
    try:
        return Reader(name, **options)
    except ExternalFileError:
        raise
    except UnsupportedError as error:
        _leave(registration, error)
        return None


def _leave(registration: Registration, reason: UnsupportedError) -> None:
    """Leave a trajectory to MDAnalysis's reader, with a warning; with `strict`, raise the error."""
    if registration.strict:
        raise reason
    registration.left.append(str(reason))
    warn(f"{reason}; MDAnalysis's own reader opens it, and strict=True would raise")


def _bind(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Bind arguments to names; None if they do not fit, for which MDAnalysis raises the error."""
    try:
        bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs).arguments
    except TypeError:
        return None
    given = {name: value for name, value in bound.items() if name not in _MEANINGLESS}
    rest = bound.get("kwargs", {})
    return {**given, **{name: value for name, value in rest.items() if name not in _MEANINGLESS}}


def _wrapped_run(original: Callable[..., object]) -> Callable[..., object]:
    """Make the replacement of `AnalysisBase.run`."""

    @functools.wraps(original)
    def run(analysis: AnalysisBase, *args: object, **kwargs: object) -> Any:
        if not _active:  # the registration ended in another thread
            return original(analysis, *args, **kwargs)
        registration = _active[-1]
        how = run_on_workers(
            original,
            analysis,
            args,
            kwargs,
            native=registration.native,
            n_workers=registration.n_workers,
        )
        if how is not None:
            registration.runs.append((type(analysis).__name__, how))
        return analysis

    return run


def _wrapped_parse(original: Callable[..., object]) -> Callable[..., object]:
    """Make the replacement of the function that parses topologies."""

    @functools.wraps(original)
    def parse(*args: object, **kwargs: object) -> object:
        if not _active:  # the registration ended in another thread
            return original(*args, **kwargs)
        return topology_cache.parse(original, *args, **kwargs)

    return parse


def _wrapped_guess(original: Callable[..., object]) -> Callable[..., object]:
    """Make the replacement of `Universe.guess_TopologyAttrs`."""

    @functools.wraps(original)
    def guess_TopologyAttrs(universe: MDAnalysis.Universe, *args: object, **kwargs: object) -> Any:
        return topology_cache.guess(original, universe, *args, **kwargs)

    return guess_TopologyAttrs
