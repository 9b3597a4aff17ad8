"""Base class of analyses.

An analysis has two parts. The client part knows MDAnalysis's objects: it names its atoms
(`indices`), makes the worker part (`prepare`) and turns what comes back into results (`finish`).
The worker part is sent to the workers: a small object with `compute`, and with `merge` if all
frames give one result.
"""

import contextlib
import inspect
import platform
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np

from paceline._core import __version__
from paceline._util.arguments import one_of
from paceline._util.choices import BACKENDS
from paceline._util.json_object import JsonObject
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.results import Results
from paceline.analysis.table import Table, with_gaps
from paceline.contract.analysis import Analysis, OfRun
from paceline.contract.atoms import Atoms, System, topology_of
from paceline.contract.declaration import Declaration
from paceline.contract.kinds import (
    OverParts,
    PerBlock,
    PerFrame,
    PrefixScan,
    Ragged,
    Reduction,
)
from paceline.contract.run_info import RUN_ATTRIBUTES, describe_atoms, describe_frames
from paceline.contract.source import TIMES_REMEDY, UNKNOWN_TIMES
from paceline.contract.transform_interface import Transform
from paceline.errors import NotRunError, UnsupportedError, warn
from paceline.performance.number_format import many
from paceline.runner import FurtherOptions, run
from paceline.timing import Timings
from paceline.transform.atom_choice import check_static
from paceline.transform.compounds import fragindices_of

if TYPE_CHECKING:
    from paceline.analysis.values_on_structure import StructureValues

#: Values of `exclude_same`, and the attributes of atoms that they compare, bonds aside.
SHARED = {"residue": "resindices", "segment": "segindices", "chain": "chainIDs"}
#: A time may differ by so many distances of frames from where it should be …
UNEVEN = 1e-5
#: … and by so much of itself: trajectories keep times in single precision.
ROUNDED = 1.2e-7


class AnalysisBase(Analysis):
    """Base class of analyses.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms.
    verbose : bool
        Show progress. Every analysis has this keyword.

    Attributes
    ----------
    fields : sequence of str
        Fields that a block must have: "positions", "velocities", "forces". A frame that lacks one
        is an error.
    optional_fields : sequence of str
        Further fields; NaN where a frame does not hold them (see `Block.held`).
    stages : int
        Passes over the frames. After each but the last, `next_stage` makes the worker part of the
        next one. A worker part with `scan` takes two of them.
    over_parts : bool
        True if the last of the stages is no pass over the frames: it computes parts of the rows
        that were collected (`paceline.contract.kinds.OverParts`).
    frames_together : int
        Blocks begin at multiples of it, a power of two: otherwise reductions of the same run are
        summed in another order, and may differ in their last bit.
    halo : pair of int
        Frames before and after its own that a block holds beside these, of the run's frames in
        order: `compute` returns rows of all of them, and those of the halo are dropped. For
        analyses that give a row for each frame.
    row_bytes : int
        Bytes of a frame's row, where it is larger than the frame: blocks have fewer frames then,
        and the run is refused if there is no room for all rows.
    needs_whole : bool
        True if molecules that are broken across the cell make the results wrong: a run looks for
        them in every frame, and warns.
    needs_together : bool
        True if molecules must be side by side, too, in one image of the cell.
    needs_fit : bool
        True if atoms that turn or move as a whole make the results wrong. Of a battery's analyses,
        `fit` is applied to these alone.
    needs_one_location : bool
        True if atoms that are in the group in several alternate locations make the results wrong: a
        run warns of them.
    transforms : sequence of Transform
        Transformations of the present run; set before `prepare`.
    skip_damaged : bool
        True if the present run leaves out frames that cannot be read; set before `prepare`.
    results : Results
        Empty before `run`.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers of the last run, or of the present one; set before `prepare`.
    times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps; NaN for frames that were left out.
    damaged : list of (int, str)
        Frames that were left out, and why.
    timings : Timings
        Timings of the last run.
    provenance : dict
        The files that are read; set before `prepare`.

    Raises
    ------
    UnsupportedError
        The group updates itself.

    Examples
    --------
    An analysis whose workers need nothing but the block's positions:

    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> class Largest:
    ...     def compute(self, block):
    ...         return block.positions.max(axis=(0, 1))
    ...     def merge(self, left, right):
    ...         return np.maximum(left, right)
    >>> class Extent(paceline.AnalysisBase):
    ...     def prepare(self):
    ...         return Largest()
    ...     def finish(self, value):
    ...         self.results.largest = value
    >>> Extent(paceline.Universe(PSF, DCD)).run().results.largest.round(1)
    array([25. , 23.5, 20.1], dtype=float32)
    """

    transforms = OfRun[Sequence[Transform]]("_run_context")
    skip_damaged = OfRun[bool]("_run_context")
    frames = OfRun[np.ndarray]("_run_info")
    times = OfRun[np.ndarray]("_run_info")
    damaged = OfRun[list[tuple[int, str]]]("_run_info")
    timings = OfRun[Timings]("_run_info")
    provenance = OfRun[JsonObject]("_run_info")
    #: Results that MDAnalysis's class of the same name has too.
    SHARED_RESULTS: tuple[str, ...] = ()
    #: Attributes that its methods need after a run, in the order in which they are set.
    SHARED_ATTRIBUTES: tuple[str, ...] = ()
    #: Frames that it needs, at least.
    LEAST_FRAMES: int = 1
    #: Names of `further_tables`.
    FURTHER_TABLES: tuple[str, ...] = ()
    #: Command, batteries and more, of a class that has them.
    declaration: ClassVar[Declaration | None] = None
    start: int | None
    stop: int | None
    step: int | None

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Give a class with MDAnalysis's methods the base class of MDAnalysis."""
        super().__init_subclass__(**kwargs)
        if AnalysisBase in cls.__bases__ and cls._goes_frame_by_frame():
            from paceline.mdanalysis.analyses import SingleFrameAnalysis

            cls.__bases__ = tuple(
                SingleFrameAnalysis if base is AnalysisBase else base for base in cls.__bases__
            )

    @classmethod
    def _goes_frame_by_frame(cls) -> bool:
        """Return whether a class has the methods of MDAnalysis's analyses, and not paceline's."""
        return hasattr(cls, "_single_frame") and cls.prepare is AnalysisBase.prepare

    def __init__(self, atomgroup: Atoms | System, *, verbose: bool = False):
        if not isinstance(self, AnalysisBase):
            # A class with MDAnalysis's methods, which names the base class in this call.
            from paceline.mdanalysis.analyses import SingleFrameAnalysis

            SingleFrameAnalysis.__init__(self, atomgroup, verbose=verbose)
            return
        if self._goes_frame_by_frame():
            raise UnsupportedError(
                f"{type(self).__name__} has _single_frame, a method of MDAnalysis's analyses, and "
                "a base class without it between itself and paceline.AnalysisBase: derive that "
                "base class from MDAnalysis.analysis.base.AnalysisBase"
            )
        self._verbose = verbose
        check_static(atomgroup, type(self).__name__)
        self.atomgroup = atomgroup.atoms
        self.results = Results()

    def __getattr__(self, name: str) -> Any:
        """Find results under the names that MDAnalysis had for them before its version 2."""
        if name in (*RUN_ATTRIBUTES, "start", "stop", "step"):
            raise NotRunError(f"{type(self).__name__} has no {name} yet: call run() first")
        if name not in type(self).SHARED_RESULTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is deprecated; use results.{name}", DeprecationWarning, stacklevel=2)
        return getattr(self.results, name)

    def __repr__(self) -> str:
        text = self.name
        with contextlib.suppress(AttributeError):  # a class of a user may have no atoms
            text += f" of {many(len(self.indices), 'atom')}"
        if self._run_info.times is None:
            return f"<{text}, not run yet>"
        frames = describe_frames(self.frames, self.times if self.times_known else None)
        return "\n".join([f"<{text}; {frames}>", *f"{self.results!r}".splitlines()[1:]])

    @property
    def n_frames(self) -> int:
        """Number of frames that were analysed."""
        return len(self.frames)

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results.

        Returns
        -------
        dict
            The atoms; of a declared class also its parameters that are attributes of the same name.
        """
        found: dict[str, object] = {"atoms": describe_atoms(self.atomgroup)}
        if self.declaration is not None:
            _, *names = inspect.signature(type(self)).parameters
            kept = {name: getattr(self, name) for name in names if hasattr(self, name)}
            found |= {name: "none" if one is None else one for name, one in kept.items()}
        return found

    def prepare(self) -> PerFrame | Reduction | PerBlock | Ragged | PrefixScan:
        """Make the worker part.

        Returns
        -------
        object
            With `compute(block)`; and with `merge(left, right)` if all frames give one result.
            With `compute_records(block)` instead if a frame gives any number of records: it
            returns their numbers in each frame, and all of them. With `scan(block)`,
            `merge(left, right)` and `compute(block, state)` if rows depend on all frames before
            (`paceline.contract.kinds.PrefixScan`). It is pickled, and must hold no MDAnalysis
            object.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method prepare")

    def check_atoms(self) -> None:
        """Raise an error where atoms, or the present frame, lack what a run needs."""

    def stored_bytes(self, n_frames: int) -> int:
        """Bytes of all that is kept of so many frames: the run is refused if there is no room.

        Parameters
        ----------
        n_frames : int
            Number of frames.

        Returns
        -------
        int
            Those of the rows, if not overridden.
        """
        return self.row_bytes * n_frames

    def next_stage(self, value: Any) -> PerFrame | Reduction | Ragged | PrefixScan | OverParts:
        """Make the worker part of the next pass over the same frames, or parts of the rows.

        Parameters
        ----------
        value : numpy.ndarray or object
            As for `finish`: all rows, the merged partial result, or offsets and records, of the
            last pass.

        Returns
        -------
        object
            As that of `prepare`; for the last stage of an analysis `over_parts`, an `OverParts`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method next_stage")

    def finish(self, value: Any) -> None:
        """Fill `results`.

        Parameters
        ----------
        value : numpy.ndarray or object
            All frames' rows, or the merged partial result, of the last pass. Of records the
            pair of offsets, int64 of shape (n_frames + 1,), and of all records: those of frame
            `k` of the run are `records[offsets[k]:offsets[k + 1]]`. Of parts, the
            `OverParts` that `next_stage` made, which has the results.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method finish")

    def run(
        self,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        frames: Sequence[int] | np.ndarray | None = None,
        verbose: bool | None = None,
        n_workers: int | None = None,
        n_parts: int | None = None,
        backend: object = None,
        *,
        unsupported_backend: bool = False,
        progressbar_kwargs: Mapping[str, object] | None = None,
        **options: Unpack[FurtherOptions],
    ) -> Self:
        """Run this analysis alone.

        Arguments and their order are those of MDAnalysis's analyses.

        Parameters
        ----------
        start, stop, step : int, optional
            Frames, as in a slice.
        frames : sequence of int or of bool, optional
            Frames one by one, instead of a slice.
        verbose : bool, optional
            Show progress; by default as given to the analysis, or as `paceline.run` does.
        n_workers : int, optional
            Number of workers; by default the CPUs that this process may use.
        n_parts : int, optional
            Taken from calls that were written for MDAnalysis, and not needed: blocks are chosen by
            their size.
        backend : str or object, optional
            As for `paceline.run`; MDAnalysis's "multiprocessing" and its objects
            (`BackendSerial`, `BackendMultiprocessing`, `BackendDask`) name ours of that kind.
        unsupported_backend, progressbar_kwargs : optional
            Taken from such calls too, and not needed: all backends are supported.
        **options
            The other options of `paceline.run`.

        Returns
        -------
        AnalysisBase
            This analysis, with its results.
        """
        backend, n_workers = backend_of_mdanalysis(backend, n_workers)
        if verbose is None and self._verbose:
            verbose = True
        options.setdefault("progress", verbose)
        run(
            self,
            start=start,
            stop=stop,
            step=step,
            frames=frames,
            n_workers=n_workers,
            backend=backend,
            **options,
        )
        self._keep_bounds(start, stop, step, frames)
        return self

    def _keep_bounds(
        self, start: int | None, stop: int | None, step: int | None, frames: object
    ) -> None:
        """Keep what MDAnalysis keeps of the arguments of `run`."""
        n_frames = self.atomgroup.universe.trajectory.n_frames
        bounds = slice(start, stop, step).indices(n_frames)
        self.start, self.stop, self.step = bounds if frames is None else (None, None, None)

    @classmethod
    def get_supported_backends(cls) -> tuple[str, ...]:
        """Names that `run` takes as `backend`.

        Returns
        -------
        tuple of str
            All of them, for each analysis.
        """
        return (*BACKENDS, "multiprocessing")

    @property
    def parallelizable(self) -> bool:
        """True: every analysis can be split."""
        return True

    def further_tables(self) -> Mapping[str, Table]:
        """Get tables of the last run beside that of the results, which batteries save and draw.

        Returns
        -------
        mapping of str to Table
            By the names `FURTHER_TABLES`.
        """
        return {}

    def record_counts(self, offsets: np.ndarray) -> np.ndarray:
        """Count the records of each frame of the last run.

        Parameters
        ----------
        offsets : numpy.ndarray of int64, shape (n_frames + 1,)
            As `finish` gets them.

        Returns
        -------
        numpy.ndarray of int64, shape (n_frames,)
            Where frames were left out, of float64, and NaN for these.
        """
        return with_gaps(np.diff(offsets), self.left_out)

    @property
    def times_known(self) -> bool:
        """True unless the times of the frames of the run are invented."""
        return UNKNOWN_TIMES not in self.provenance

    @property
    def time_unit(self) -> str:
        """Unit of times between frames: "ps", or "frames" where times are not known."""
        return "ps" if self.times_known else "frames"

    @property
    def lag_title(self) -> str:
        """Title of the column of times between frames."""
        return "lag time (ps)" if self.times_known else "lag (frames)"

    @property
    def left_out(self) -> np.ndarray:
        """Mask of the frames that the last run left out: ndarray of bool, shape (n_frames,)."""
        return np.isin(self.frames, [frame for frame, _ in self.damaged])

    def on_first_frame(
        self, title: str, atoms: Atoms, values: np.ndarray
    ) -> "StructureValues | None":
        """Put values of atoms on the first analysed frame, which is read when it is needed.

        Parameters
        ----------
        title : str
            Title of the values, with their unit.
        atoms : AtomGroup
            The atoms.
        values : array of float, shape (n_atoms,)
            A value for each.

        Returns
        -------
        StructureValues or None
            For `Results.with_values`; None for atoms without a topology.
        """
        from paceline.analysis.values_on_structure import of_first_frame

        if topology_of(atoms.universe) is None:
            return None
        frame = self.frames, self.transforms, self.skip_damaged
        return of_first_frame(title, atoms, values, *frame)

    def remark(self, about: str, message: str | None) -> None:
        """Warn of something about the results, which their tables say, too; None takes it back.

        Parameters
        ----------
        about : str
            Of several remarks about one thing the last one holds.
        message : str or None
            One sentence.
        """
        self.remarks = {key: text for key, text in self.remarks.items() if key != about}
        if message is not None:
            self.remarks = {**self.remarks, about: message}
            warn(message)

    def record(self) -> JsonObject:
        """Files, fingerprints, versions and parameters of the last run."""
        found = self.provenance.get("warnings")  # by a look at the frames of the run
        remarks = [*([found] if found else []), *self.remarks.values()]
        return {
            "paceline": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            **self.provenance,
            "analysis": type(self).__name__,
            **self.parameters(),
            "frames analysed": describe_frames(
                self.frames, self.times if self.times_known else None
            ),
            "damaged frames": [frame for frame, _ in self.damaged] or "none",
            **({"warnings": "; ".join(remarks)} if remarks else {}),
        }


def backend_of_mdanalysis(backend: Any, n_workers: int | None) -> tuple[object, int | None]:
    """Our backend for one that MDAnalysis's `run` takes, and the number of workers."""
    if backend == "multiprocessing":
        return "processes", n_workers
    names = {
        "BackendSerial": "serial",
        "BackendMultiprocessing": "processes",
        "BackendDask": "dask",
    }
    name = names.get(type(backend).__name__)
    if name is None or not type(backend).__module__.startswith("MDAnalysis."):
        return backend, n_workers
    return name, backend.n_workers if n_workers is None else n_workers


def shared_labels(atomgroup: Atoms, kind: str) -> np.ndarray:
    """Label atoms for `exclude_same`: those of the same residue, or other unit, have one label."""
    one_of("exclude_same", kind, None, *SHARED, "fragment")
    if kind == "fragment":
        return fragindices_of(atomgroup, "exclude_same='fragment'")
    try:
        return np.asarray(getattr(atomgroup, SHARED[kind]))
    except AttributeError as error:
        raise UnsupportedError(
            f"exclude_same={kind!r} needs {SHARED[kind]}, which the topology lacks ({error}): "
            "load one that has them"
        ) from error


def check_order(analysis: AnalysisBase) -> None:
    """Raise `UnsupportedError` where frames are not chosen at equal distances."""
    steps = np.unique(np.diff(analysis.frames))
    if len(steps) > 1 or 0 in steps:
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal distances in time, and those that were chosen "
            "are not: give start, stop and step"
        )


def check_times(analysis: AnalysisBase) -> tuple[np.ndarray, np.ndarray]:
    """Find the times between frames, ps, and the rows of frames that were left out.

    Of frames that go backwards in time, too: functions of the time between two are the same. Where
    times are not known, they are numbers of frames of the trajectory, with a warning. Raises
    `UnsupportedError` where times are not equidistant.
    """
    times = analysis.times
    # Frames that could not be transformed have times.
    gone = np.isnan(times) | analysis.left_out
    rows, gaps = np.flatnonzero(~gone), np.flatnonzero(gone)
    if len(rows) == 0:
        raise UnsupportedError(f"{analysis.name}: no frame could be read")
    if len(times) == 1 or len(rows) == 1:
        return np.where(np.arange(len(times)) == 0, 0.0, np.nan), gaps
    dt = time_between(analysis, rows, rows)
    times = moments_of(analysis)
    if 1 in rows and 0 in rows and abs(times[1] - times[0] - dt) <= UNEVEN * abs(dt):
        dt = times[1] - times[0]  # as MDAnalysis, where single precision holds so short a time
    return np.arange(len(times)) * abs(dt), gaps


def warn_of_unknown_times(analysis: AnalysisBase) -> None:
    """Warn that times between frames are counted in frames, where times are not known."""
    if not analysis.times_known:
        warn(
            f"{analysis.name}: the times of frames are not known "
            f"({analysis.provenance[UNKNOWN_TIMES]}): times between them are counted in frames, "
            f"and results are per frame; {TIMES_REMEDY}"
        )


def moments_of(analysis: AnalysisBase) -> np.ndarray:
    """Times of frames, ps, or their numbers where times are not known."""
    return analysis.times if analysis.times_known else analysis.frames.astype(np.float64)


def time_between(analysis: AnalysisBase, rows: np.ndarray, places: np.ndarray) -> float:
    """Find the time from one place in a series to the next, ps, by the frames of two rows or more.

    Where times are not known, it is a number of frames of the trajectory, with a warning. Raises
    `UnsupportedError` where frames have times that are not equidistant.
    """
    warn_of_unknown_times(analysis)
    known = moments_of(analysis)[rows]
    dt = float((known[-1] - known[0]) / (places[-1] - places[0]))
    expected = known[0] + dt * (places - places[0])
    slack = UNEVEN * abs(dt) + ROUNDED * np.abs(known).max()
    wrong = np.abs(known - expected) > slack
    if np.ptp(known) == 0:
        raise UnsupportedError(
            f"{analysis.name} needs the times of frames, and all are at {known[0]} ps: give the "
            "time between two where the trajectory is opened (dt=2)"
        )
    if dt == 0 or wrong.any():
        # By the usual distance, which one frame out of step changes less than the mean. Rounding
        # adds up over many frames, so that each counts from the one before.
        gaps = np.diff(places)
        usual = np.median(np.diff(known) / gaps)
        expected = np.round(np.append(known[0], known[:-1] + usual * gaps), 6)
        off = np.abs(known - expected)
        limit = UNEVEN * abs(usual) + 2 * ROUNDED * np.abs(known).max()
        first = np.argmax(off > min(limit, off.max() / 2))
        frame, advice = analysis.frames[rows[first]], ""
        if first and analysis.left_out[rows[first] - 1]:
            advice = (
                "; perhaps several damaged frames before it count as one: analyse those before, "
                f"stop={frame - 1} (--end {frame - 1}), or from it on, start={frame} "
                f"(--begin {frame})"
            )
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal distances in time: frame {frame} is at "
            f"{known[first]} ps, and expected at {expected[first]} ps{advice}"
        )
    return dt


def table_in_time(
    analysis: AnalysisBase,
    columns: Mapping[str, np.ndarray],
    y: Mapping[str, str],
    y_label: str,
    drawn: Table | None = None,
    **options: Any,
) -> Table:
    """Make a table of the last run: frame number, time, then the given columns."""
    of_frames = {"frame": analysis.frames, "time (ps)": analysis.times}
    return Table({**of_frames, **columns}, "time (ps)", y, y_label, drawn, **options)


def table_of_records(
    analysis: AnalysisBase, name: str, counts: np.ndarray, label: str | None = None
) -> Table:
    """Tabulate the records of each frame of the last run: a column `name`, drawn as `label`."""
    options: dict[str, Any] = {"partial": True, "counts": [name]}
    return table_in_time(analysis, {name: counts}, {name: name}, label or name, **options)


def function_name(function: object) -> str:
    """Name a function of the user's, a part of one, or an object that can be called.

    Not by its repr, which may have an address: the same run has the same name in any process.

    Examples
    --------
    >>> function_name(describe_frames), function_name(partial(describe_frames, frames=[1]))
    ('describe_frames', 'describe_frames')
    """
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__qualname__)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
