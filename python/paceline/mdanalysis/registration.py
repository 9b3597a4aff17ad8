"""Make plain MDAnalysis use paceline's reader for Universes and paceline's workers for analyses.

All changes to MDAnalysis are in this file: `register` replaces nine functions, and `unregister`
restores them.
"""

import functools
import inspect
import os
import sys
import threading
from abc import ABCMeta
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional, Self

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import rms as mdanalysis_rms
from MDAnalysis.analysis.base import AnalysisBase
from MDAnalysis.coordinates.base import ProtoReader, WriterBase
from MDAnalysis.coordinates.chain import ChainReader
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.DLPoly import ConfigReader, HistoryReader
from MDAnalysis.coordinates.H5MD import H5MDReader, H5MDWriter
from MDAnalysis.coordinates.LAMMPS import DumpReader
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.core import universe as mdanalysis_universe
from MDAnalysis.lib import qcprot

from paceline import _core
from paceline._core import __version__
from paceline._util.files import check_no_url
from paceline.errors import ExternalFileError, UnsupportedError, name_of_imported, warn
from paceline.mdanalysis import open_on_all_ranks, topology_cache
from paceline.mdanalysis.reader import Reader, is_name, opens_with_paceline
from paceline.mdanalysis.register_in_child_processes import (
    ProcessRecord,
    ScriptOptions,
    ScriptProcesses,
    read_records,
    record,
    set_environment,
)
from paceline.mdanalysis.writers import WRITERS
from paceline.performance.number_format import many
from paceline.trajectory.addresses import local_copy
from paceline.trajectory.open import cache_folder, with_copies

if TYPE_CHECKING:
    from mpi4py import MPI

#: Paceline's names of the formats that each MDAnalysis reader reads.
READERS: dict[type, frozenset[str]] = {
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

#: Metaclass of all MDAnalysis readers, whose `__call__` creates each reader.
_ReaderMeta: Any = type(ProtoReader)
#: Metaclass of all MDAnalysis writers, whose `__call__` creates each writer.
_WriterMeta: Any = type(WriterBase)

_lock = threading.RLock()
#: Active registrations; the options of the last one apply.
_active: "list[Registration]" = []
#: Replacements of MDAnalysis's functions: owner, name, paceline's function.
_replaced: list[tuple[object, str, object]] = []


class Registration:
    """Registration of paceline with MDAnalysis; ends with `unregister` or the ``with`` block.

    Attributes
    ----------
    opened : list of str
        Trajectories that paceline's reader has opened.
    written : list of str
        Files for which paceline encoded the frames of MDAnalysis's writers.
    left : list of str
        Trajectories that MDAnalysis's own readers or writers processed, each with the reason.
    runs : list of (str, str)
        Runs of analyses: class name, and how the analysis was computed.
    """

    def __init__(
        self,
        options: ScriptOptions,
        n_workers: int | None,
        comm: Optional["MPI.Intracomm"] = None,
    ):
        self.native = options.native
        self.strict = options.strict
        self.n_workers = n_workers
        self.opened: list[str] = []
        self.written: list[str] = []
        self.left: list[str] = []
        self.runs: list[tuple[str, str]] = []
        self._own = ScriptProcesses(options) if options.pid == os.getpid() else None
        self._options = self._own.options if self._own else options
        self._records: list[ProcessRecord] = []
        self._ranks_before = open_on_all_ranks.use_ranks(comm, required=True)
        if self._own is not None:
            set_environment(self._options)

    @property
    def in_script_process(self) -> bool:
        """True in a process that was started by a registered script."""
        return self._options.pid != os.getpid()

    @property
    def processes(self) -> list[ProcessRecord]:
        """Processes that the script started, with a record of what paceline did in them."""
        return self._records if self._own is None else read_records(self._options.folder)

    def add_opened(self, trajectory: str) -> None:
        """Record that paceline's reader has opened a trajectory."""
        if self.in_script_process:
            record(self._options.folder, "opened", trajectory)
        self.opened.append(trajectory)

    def add_written(self, trajectory: str) -> None:
        """Record that paceline encodes the frames of a trajectory."""
        if self.in_script_process:
            record(self._options.folder, "written", trajectory)
        self.written.append(trajectory)

    def add_declined(self, reason: str) -> None:
        """Record that a trajectory was left to MDAnalysis's reader or writer, with the reason."""
        if self.in_script_process:
            record(self._options.folder, "left", reason)
        self.left.append(reason)

    def add_run(self, name: str, how: str) -> None:
        """Record that an analysis has run, and how it was computed."""
        if self.in_script_process:
            record(self._options.folder, "runs", f"{name} {how}")
        self.runs.append((name, how))

    def close(self, later: "list[Registration]") -> None:
        """End this registration; `later` registrations remain active."""
        if later:
            later[0]._ranks_before = self._ranks_before
        else:
            open_on_all_ranks.restore(self._ranks_before)
        if self._own is not None and not self.in_script_process:
            set_environment(_active[-1]._options if _active else None)
            self._records = self.processes
            self._own.close()
            self._own = None

    def summary(self) -> str:
        """Describe in a few lines how trajectories were read and how analyses were run.

        Returns
        -------
        str
            Text for human readers.
        """
        processes = self.processes
        lines = [f"its reader opened {_trajectories(self.opened)}"]
        if processes:
            opened = [name for process in processes for name in process.opened]
            lines.append(
                f"its reader opened {_trajectories(opened)} in {many(len(processes), 'worker')} of "
                "the script's own"
            )
        written = self.written + [name for process in processes for name in process.written]
        if written:
            lines.append(f"it encoded the frames of {_trajectories(written)}")
        reasons = self.left + [reason for process in processes for reason in process.left]
        lines += [f"left to MDAnalysis: {reason}" for reason in dict.fromkeys(reasons)]
        runs = Counter(f"{name} {how}" for name, how in self.runs)
        runs += Counter(
            f"{run}, in a worker of the script's own"
            for process in processes
            for run in process.runs
        )
        lines += [f"{run}" + (f" ({n} times)" if n > 1 else "") for run, n in runs.items()]
        return "\n".join(f"paceline: {line}" for line in lines)

    def __enter__(self) -> Self:
        """Return this registration, which is already active."""
        return self

    def __exit__(self, *error: object) -> None:
        _remove(self)


def _trajectories(names: list[str]) -> str:
    n = len(set(names))
    return f"{n} trajector{'y' if n == 1 else 'ies'}"


def register(
    *,
    native: bool = True,
    n_workers: int | None = None,
    strict: bool = False,
    comm: Optional["MPI.Intracomm"] = None,
) -> Registration:
    """Make plain MDAnalysis use paceline.

    `MDAnalysis.Universe` and MDAnalysis's readers open files of paceline's formats with paceline's
    reader, and all other files as before. In MDAnalysis's writers of XTC, TRR, NetCDF and H5MD,
    paceline encodes the frames. Large topologies are cached. Without `backend=`, `run()` of
    MDAnalysis's analyses uses the cores of this machine, or, in a script of ``python -m paceline``
    under ``mpirun``, the ranks. An analysis that cannot be split is computed in this process, while
    the reader decodes ahead.

    The registration applies to this process and to Python processes that it starts: pools of
    `multiprocessing`, `concurrent.futures` and joblib, and Dask workers, even on other machines. In
    these processes, an analysis uses one worker. The registration ends at the end of a ``with``
    block, or when `unregister` has been called as many times as `register`.

    Parameters
    ----------
    native : bool
        Compute with paceline's own class of the same name if there is one, such as `RMSD`. Its
        results differ from MDAnalysis's by rounding; the manual lists other differences under
        "Where tools disagree".
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use.
    strict : bool
        Raise an error for a trajectory that paceline could decode, but not with the given options.
        By default MDAnalysis's reader opens such a trajectory, with a warning that gives the
        reason.
    comm : mpi4py.MPI.Intracomm, optional
        Ranks that run the same script and open the same files in the same order. Rank 0 reads each
        file, and sends topology, frame index and first frame to the others. If ranks open different
        files, or one rank fails, all ranks raise an error.

    Returns
    -------
    Registration
        Lists of trajectories and runs; as a context manager, the registration ends with the block.

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
    inherited = ScriptOptions.from_environment()
    if inherited is not None and inherited.pid != os.getpid():
        # This process was started by a registered script, and imports the script again: keep the
        # folder for records and the process number of the script.
        options = replace(inherited, native=native, strict=strict)
        n_workers = n_workers or 1
    else:
        _warn_of_earlier_processes()
        options = ScriptOptions(native, strict, __version__, folder="", pid=os.getpid())
    return _add(options, n_workers, comm)


def register_here(options: ScriptOptions | None = None) -> bool:
    """Register paceline in this process with a script's options; return True if this was done.

    By default the options are read from the environment. Returns False without options, or if
    paceline is already registered. If the process has another version of paceline than the script,
    it continues to use MDAnalysis's functions, with a warning.
    """
    given = options or ScriptOptions.from_environment()
    if given is None:
        return False
    if given.version != __version__:
        reason = (
            f"process {os.getpid()} has paceline {__version__}, but the script {given.version}: "
            "MDAnalysis's own readers open trajectories in this process"
        )
        record(given.folder, "left", reason)
        warn(reason)
        return False
    with _lock:
        if _active:
            return False
        _add(given, n_workers=1)
    return True


def _add(
    options: ScriptOptions, n_workers: int | None, comm: Optional["MPI.Intracomm"] = None
) -> Registration:
    with _lock:
        registration = Registration(options, n_workers, comm)
        if not _active:
            _install()
        _active.append(registration)
    return registration


def _warn_of_earlier_processes() -> None:
    """Warn if the script has started processes before it was registered."""
    multiprocessing = sys.modules.get("multiprocessing")
    children = [] if multiprocessing is None else multiprocessing.active_children()
    # Do not count Dask workers, in which a plug-in registers paceline, and paceline's own workers,
    # which the package loky starts.
    running = sum(
        not child.name.startswith("Dask") and not type(child).__module__.startswith("loky.")
        for child in children
    )
    if running:
        warn(
            f"{many(running, 'worker')} of this script started before paceline was registered, "
            "and read with MDAnalysis's readers: register it first"
        )


def unregister() -> None:
    """End the last active registration.

    Raises
    ------
    RuntimeError
        No registration is active.
    """
    with _lock:
        if not _active:
            raise RuntimeError("paceline is not registered with MDAnalysis")
        _remove(_active[-1])


def _remove(registration: Registration) -> None:
    with _lock:
        if registration in _active:
            place = _active.index(registration)
            del _active[place]
            registration.close(later=_active[place:])
            if not _active:
                _uninstall()


def _install() -> None:
    """Replace nine functions of MDAnalysis by paceline's."""
    # Python looks up `__call__` and `__instancecheck__` in the metaclass.
    _WriterMeta.__call__ = _make_writer
    _ReaderMeta.__call__ = _make_reader
    _ReaderMeta.__instancecheck__ = _is_instance
    for owner, name, wrapped in (
        (AnalysisBase, "run", _wrapped_run),
        (mdanalysis_universe, "_topology_from_file_like", _wrapped_parse),
        (MDAnalysis.Universe, "guess_TopologyAttrs", _wrapped_guess),
        (MDAnalysis.Universe, "__init__", _wrapped_init),
        (MDAnalysis.Universe, "load_new", _wrapped_load),
        (mdanalysis_rms, "rmsd", _wrapped_rmsd),
    ):
        ours = wrapped(getattr(owner, name))
        _replaced.append((owner, name, ours))
        setattr(owner, name, ours)


def _uninstall() -> None:
    """Restore the functions of MDAnalysis that `_install` has replaced."""
    del _ReaderMeta.__call__, _ReaderMeta.__instancecheck__, _WriterMeta.__call__
    while _replaced:
        owner, name, ours = _replaced.pop()
        # If another package has wrapped paceline's function since, do not remove the wrapper.
        # Without a registration, paceline's function calls MDAnalysis's.
        if getattr(owner, name) is ours:
            setattr(owner, name, ours.__wrapped__)


def _make_reader(cls: type, *args: object, **kwargs: object) -> object:
    """Create paceline's reader for a file that it can open, otherwise MDAnalysis's reader `cls`."""
    registration = _active[-1] if _active else None
    if registration is not None:
        reader = None
        if cls in READERS:
            reader = _open_file(registration, cls, args, kwargs)
        elif cls is ChainReader:
            reader = _open_chain(registration, args, kwargs)
        if reader is not None:
            registration.add_opened(", ".join(reader.filenames))
            return reader
        if cls is name_of_imported("MDAnalysis.coordinates.IMD", "IMDReader"):
            _check_client(kwargs.get("filename", args[0] if args else None))
    return ABCMeta.__call__(cls, *args, **kwargs)


def _check_client(address: object) -> None:
    """Raise `ImportError`, as MDAnalysis does, for a stream if the package imdclient is missing."""
    if not name_of_imported("MDAnalysis.coordinates.IMD", "HAS_IMDCLIENT"):
        raise ImportError(
            f"{address}: MDAnalysis reads streams with the package imdclient, version 0.2.2 or "
            "newer: pip install imdclient, or open the stream with paceline.Universe, which needs "
            "no further package and whose analyses follow it"
        )


def _make_writer(cls: type, *args: object, **kwargs: object) -> object:
    """Create paceline's subclass of MDAnalysis's writer `cls`; without one, MDAnalysis's writer."""
    if not _active:
        return type.__call__(cls, *args, **kwargs)
    name = args[0] if args else kwargs.get("filename")
    if is_name(name):
        check_no_url(name)
    if cls is H5MDWriter and kwargs.get("comm") is not None:
        return _make_rank_writer(_active[-1], args, kwargs)
    writer = type.__call__(WRITERS.get(cls, cls), *args, **kwargs)
    if cls in WRITERS:
        writer.log = _active[-1]
    return writer


def _make_rank_writer(
    registration: Registration, args: tuple[object, ...], kwargs: dict[str, object]
) -> WriterBase:
    """Make paceline's writer of H5MD, with which ranks of MPI write one file."""
    # Imported here, because workers of a script seldom write.
    from paceline.mdanalysis import h5md_writer

    known = inspect.signature(h5md_writer.H5MDWriter.__init__).parameters
    given = _bind(H5MDWriter, args, kwargs) or kwargs
    # MDAnalysis's writers replace existing files.
    options: dict[str, Any] = {"overwrite": True}
    options |= {name: value for name, value in given.items() if name in known}
    writer = h5md_writer.H5MDWriter(**options)
    registration.add_written(str(writer.filename))
    return writer


def _is_instance(cls: ABCMeta, instance: Any) -> bool:
    """Treat paceline's reader as an instance of the MDAnalysis class that it replaces."""
    if ABCMeta.__instancecheck__(cls, instance):
        return True
    if type(instance) is not Reader:
        return False
    if len(instance.filenames) > 1:
        return cls is ChainReader
    return instance.chain.files[0].format in READERS.get(cls, ())


def _open_file(
    registration: Registration, cls: type, args: tuple[object, ...], kwargs: dict[str, object]
) -> Reader | None:
    """Open a file with paceline's reader; None if MDAnalysis's reader must open it."""
    given = _bind(cls, args, kwargs)
    name = None if given is None else given.pop("filename")
    if given is None or not opens_with_paceline(name):
        return None
    reader = _open(registration, name, given)
    if reader is None or reader.chain.files[0].format not in READERS[cls]:
        return None
    if cls in (ConfigReader, HistoryReader) and reader.ts.has_forces:
        reason = (
            f"{name}: MDAnalysis returns DL_POLY forces in the file's unit, but paceline in "
            "kJ/(mol·Å)"
        )
        _leave(registration, UnsupportedError(reason))
        return None
    return reader


def _open_chain(
    registration: Registration, args: tuple[object, ...], kwargs: dict[str, object]
) -> Reader | None:
    """Open several files as one trajectory with paceline's reader; None for MDAnalysis's reader."""
    given = _bind(ChainReader, args, kwargs)
    if given is None or given.pop("skip", 1) != 1:
        return None
    names = given.pop("filenames")
    if isinstance(names, str) or not all(opens_with_paceline(name) for name in names):
        return None
    return _open(registration, list(names), given)


def _open(registration: Registration, name: object, options: dict[str, object]) -> Reader | None:
    """Open files; None if options or format are unsupported.

    Raises `ExternalFileError` for a link to another file that must not be followed.
    """
    try:
        return Reader(name, **options)
    except ExternalFileError:
        raise
    except UnsupportedError as error:
        _leave(registration, error)
        return None


def _leave(registration: Registration, reason: UnsupportedError) -> None:
    """Let MDAnalysis's reader open a trajectory, with a warning; with `strict`, raise instead."""
    if registration.strict:
        raise reason
    registration.add_declined(str(reason))
    warn(f"{reason}; MDAnalysis's own reader opens it, and strict=True would raise")


def _bind(cls: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, Any] | None:
    """Bind arguments to names; None if they do not fit, so that MDAnalysis raises the error."""
    try:
        bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs).arguments
    except TypeError:
        return None
    given = {name: value for name, value in bound.items() if name not in _MEANINGLESS}
    rest = bound.get("kwargs", {})
    return {**given, **{name: value for name, value in rest.items() if name not in _MEANINGLESS}}


def _wrapped_run(original: Callable[..., object]) -> Callable[..., object]:
    """Create the replacement of `AnalysisBase.run`."""

    @functools.wraps(original)
    def run(analysis: AnalysisBase, *args: object, **kwargs: object) -> object:
        if not _active:  # the registration ended in another thread
            return original(analysis, *args, **kwargs)
        # Deferred, because it imports all backends, which workers of a script may not need.
        from paceline.mdanalysis.analyses import run_on_workers

        registration = _active[-1]
        how = run_on_workers(
            original,
            analysis,
            args,
            kwargs,
            native=registration.native,
            n_workers=1 if registration.in_script_process else registration.n_workers,
        )
        if how is not None:
            registration.add_run(type(analysis).__name__, how)
        return analysis

    return run


def _wrapped_parse(original: Callable[..., object]) -> Callable[..., object]:
    """Create the replacement of the function that parses topologies."""

    @functools.wraps(original)
    def parse(*args: object, **kwargs: object) -> object:
        if not _active:  # the registration ended in another thread
            return original(*args, **kwargs)
        return topology_cache.parse(original, *args, **kwargs)

    return parse


def _wrapped_guess(original: Callable[..., object]) -> Callable[..., object]:
    """Create the replacement of `Universe.guess_TopologyAttrs`."""

    @functools.wraps(original)
    def guess_TopologyAttrs(universe: MDAnalysis.Universe, *args: object, **kwargs: object) -> None:
        topology_cache.guess(original, universe, *args, **kwargs)

    return guess_TopologyAttrs


def _wrapped_init(original: Callable[..., None]) -> Callable[..., None]:
    """Create the replacement of `Universe.__init__`."""

    @functools.wraps(original)
    def __init__(
        universe: MDAnalysis.Universe,
        topology: object = None,
        *coordinates: object,
        **kwargs: object,
    ) -> None:
        topology = local_copy(topology, cache_folder())
        names = (topology, *with_copies([*coordinates]))
        make = functools.partial(original, universe)
        if open_on_all_ranks.open_universe(universe, make, names, kwargs):
            _note_received(universe)

    return __init__


def _wrapped_load(original: Callable[..., object]) -> Callable[..., object]:
    """Create the replacement of `Universe.load_new`."""

    @functools.wraps(original)
    def load_new(
        universe: MDAnalysis.Universe,
        filename: object,
        format: object = None,
        *args: object,
        **kwargs: object,
    ) -> object:
        filename = with_copies(filename)
        make = functools.partial(original, universe)
        if args:
            return make(filename, format, *args, **kwargs)
        if open_on_all_ranks.load_trajectory(
            universe, make, filename, {"format": format, **kwargs}
        ):
            _note_received(universe)
        return universe

    return load_new


def _note_received(universe: MDAnalysis.Universe) -> None:
    """Record a trajectory that another rank has opened for this rank."""
    if _active and isinstance(universe._trajectory, Reader):
        _active[-1].add_opened(", ".join(universe._trajectory.filenames))


def _wrapped_rmsd(original: Callable[..., float]) -> Callable[..., float]:
    """Create the replacement of `rms.rmsd`.

    It avoids NumPy's slow mean, and its results are bit-identical to MDAnalysis's.
    """

    @functools.wraps(original)
    def rmsd(
        a: object,
        b: object,
        weights: object = None,
        center: bool = False,
        superposition: bool = False,
    ) -> float:
        if weights is None and superposition:
            first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
            fits = first.ndim == 2 and first.shape[1:] == (3,) and first.shape == second.shape
            if fits and all(
                one.flags.c_contiguous and one.flags.aligned for one in (first, second)
            ):
                first, second = _core.centered(first), _core.centered(second)
                return qcprot.CalcRMSDRotationalMatrix(first, second, len(first), None, None)
        return original(a, b, weights=weights, center=center, superposition=superposition)

    return rmsd
