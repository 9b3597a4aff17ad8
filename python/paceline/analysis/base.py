"""Base class of analyses.

An analysis has two parts. The client part uses MDAnalysis objects: it chooses the atoms
(`indices`), makes the worker part (`prepare`), and converts what the workers return to results
(`finish`). The worker part is a small object that is sent to the workers. It has a method
`compute`, and a method `merge` if all frames are merged to one result.
"""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np

from paceline._util.arguments import one_of, parameters_of
from paceline._util.json_types import JsonObject
from paceline._util.machine_and_software import software
from paceline._util.option_values_and_selections import BACKENDS
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.recorded_call import Call, describe_call
from paceline.analysis.results import Results
from paceline.analysis.saved_table_format import CALL
from paceline.analysis.table import Table, with_gaps
from paceline.contract.analysis import Analysis, OfRun
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import (
    OverParts,
    PerBlock,
    PerFrame,
    PrefixScan,
    Ragged,
    Reduction,
)
from paceline.contract.run_info_and_descriptions import (
    RUN_ATTRIBUTES,
    describe_atoms,
    describe_exactly,
    describe_frames,
    describe_selection,
)
from paceline.contract.source import ROUNDED, TIMES_REMEDY, UNKNOWN_TIMES
from paceline.contract.system_interface import (
    Atoms,
    System,
    frames_shown,
    topology_of,
    trajectory_name,
)
from paceline.contract.transform_interface import Transform
from paceline.errors import NotRunError, UnsupportedError, warn
from paceline.performance.number_format import many
from paceline.runner import FurtherOptions, run
from paceline.timing import Timings
from paceline.transform.bonds_and_compounds import fragindices_of
from paceline.transform.selections_and_weights import check_static

if TYPE_CHECKING:
    from paceline.analysis.values_on_structure import StructureValues

#: Attribute of atoms that each value of `exclude_same` compares; "fragment" uses bonds instead.
SHARED = {"residue": "resindices", "segment": "segindices", "chain": "chainIDs"}
#: Maximum deviation of a time from its expected value, as a fraction of the time between frames.
UNEVEN = 1e-5


class AnalysisBase(Analysis):
    """Base class of analyses.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms to analyse.
    verbose : bool
        Show progress. Every analysis accepts this keyword.

    Attributes
    ----------
    fields : sequence of str
        Required fields of a block: "positions", "velocities", "forces". A frame without one of
        these fields is an error.
    optional_fields : sequence of str
        Further fields; their values are NaN in frames without them (see `Block.held`).
    stages : int
        Number of passes over the frames. After each pass but the last, `next_stage` makes the
        worker part of the next pass. A worker part that has `scan` needs two passes.
    over_parts : bool
        True if the last stage does not read frames, but processes the collected rows in parts
        (`paceline.contract.analysis_kinds.OverParts`).
    frames_together : int
        Blocks begin at multiples of this number of frames. It is a power of two; with another
        number, reductions in the same run would sum the frames in another order, and might differ
        in the last bit.
    halo : pair of int
        Numbers of frames before and after each block that the block contains in addition. They
        are neighbours in the order of the run. `compute` returns rows of all frames, and rows of
        the halo are dropped. Only for analyses that return one row per frame.
    row_bytes : int
        Size of the row of one frame, bytes, if it is larger than the frame. Blocks then contain
        fewer frames, and the run is refused if free space is insufficient for all rows.
    needs_whole : bool
        True if molecules that are broken across the cell cause wrong results. The run looks for
        such molecules in every frame, and warns.
    needs_together : bool
        True if molecules must also be next to each other, in the same periodic image.
    needs_fit : bool
        True if rotation or translation of all atoms causes wrong results. In a battery, `fit` is
        applied only to these analyses.
    needs_one_location : bool
        True if an atom that the group contains in several alternate locations causes wrong
        results. The run warns of such atoms.
    needs_all_frames : bool
        True if the worker part depends on the number of frames of the run. `paceline.live` then
        runs the analysis only at the end of a trajectory that grows.
    transforms : sequence of Transform
        Transformations of the last run. In `prepare`, `next_stage` and `finish`, this attribute
        and those below describe the run in progress.
    skip_damaged : bool
        True if the run leaves out frames that cannot be read.
    results : Results
        Empty before `run`.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers of the run.
    times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps; NaN for frames that could not be read.
    damaged : list of (int, str)
        For each frame that was left out, its number and the reason.
    timings : Timings
        Timings of the last run.
    provenance : dict
        Information on the files that are read.

    Raises
    ------
    UnsupportedError
        The group is an UpdatingAtomGroup.

    Examples
    --------
    An analysis whose worker part needs only the positions of a block:

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
    #: Names of results that MDAnalysis's class of the same name also has.
    SHARED_RESULTS: tuple[str, ...] = ()
    #: Attributes that are copied to MDAnalysis's object after a run, in this order, because its
    #: methods need them.
    SHARED_ATTRIBUTES: tuple[str, ...] = ()
    #: Minimum number of frames of a run.
    LEAST_FRAMES: int = 1
    #: Names of the tables in `further_tables`.
    FURTHER_TABLES: tuple[str, ...] = ()
    #: Selections by which a command has chosen the atoms, by the name of the option.
    atom_selections: Mapping[str, str] = {}
    #: Command, batteries and other facts about a class in the catalogue.
    declaration: ClassVar[Declaration | None] = None
    start: int | None
    stop: int | None
    step: int | None
    #: Call that made the analysis, which results record.
    _made_with: Call

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Store the arguments, so that results can record how they were computed."""
        made = super().__new__(cls)
        made._made_with = Call(cls, args, kwargs, frames_shown([*args, *kwargs.values()]))
        return made

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Replace the base class of a subclass that has methods of MDAnalysis's `AnalysisBase`.

        The new base class, `SingleFrameAnalysis`, calls these methods for each frame.
        """
        super().__init_subclass__(**kwargs)
        if AnalysisBase in cls.__bases__ and cls._goes_frame_by_frame():
            from paceline.mdanalysis.analyses import SingleFrameAnalysis

            cls.__bases__ = tuple(
                SingleFrameAnalysis if base is AnalysisBase else base for base in cls.__bases__
            )

    @classmethod
    def _goes_frame_by_frame(cls) -> bool:
        """True if a class defines `_single_frame`, as for MDAnalysis, but not `prepare`."""
        return hasattr(cls, "_single_frame") and cls.prepare is AnalysisBase.prepare

    def __init__(self, atomgroup: Atoms | System, *, verbose: bool = False):
        if not isinstance(self, AnalysisBase):
            # `__init_subclass__` has replaced the base class of this object's class, whose
            # constructor still calls `AnalysisBase.__init__`.
            from paceline.mdanalysis.analyses import SingleFrameAnalysis

            SingleFrameAnalysis.__init__(self, atomgroup, verbose=verbose)
            return
        if self._goes_frame_by_frame():
            raise UnsupportedError(
                f"{type(self).__name__} has _single_frame, a method of MDAnalysis's analyses, but "
                "a base class between it and paceline.AnalysisBase lacks this method: derive "
                "that base class from MDAnalysis.analysis.base.AnalysisBase"
            )
        self._verbose = verbose
        check_static(atomgroup, type(self).__name__)
        self.atomgroup = atomgroup.atoms
        self.results = Results()

    def __getattr__(self, name: str) -> Any:
        """Return results under the attribute names of MDAnalysis before version 2."""
        if name in (*RUN_ATTRIBUTES, "start", "stop", "step"):
            raise NotRunError(f"{type(self).__name__} has no {name} yet: call run() first")
        if name not in type(self).SHARED_RESULTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is deprecated; use results.{name}", DeprecationWarning, stacklevel=2)
        return getattr(self.results, name)

    def __repr__(self) -> str:
        text = self.name
        with contextlib.suppress(AttributeError):  # a user's class may have no atoms
            text += f" of {many(len(self.indices), 'atom')}"
        if self._run_info.times is None:
            return f"<{text}, not run yet>"
        frames = describe_frames(self.frames, self.times if self.times_known else None)
        return "\n".join([f"<{text}; {frames}>", *f"{self.results!r}".splitlines()[1:]])

    @property
    def n_frames(self) -> int:
        """Number of frames of the run, including those that were left out."""
        return len(self.frames)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results.

        Returns
        -------
        dict
            The atoms. For a class with a declaration, also the parameters that are attributes with
            the same names.
        """
        found: dict[str, object] = {"atoms": describe_atoms(self.atomgroup)}
        if self.declaration is not None:
            _, *names = parameters_of(type(self))
            kept = {name: getattr(self, name) for name in names if hasattr(self, name)}
            found |= {name: "none" if one is None else one for name, one in kept.items()}
        return found

    def prepare(self) -> PerFrame | Reduction | PerBlock | Ragged | PrefixScan:
        """Make the worker part.

        Returns
        -------
        object
            Object with `compute(block)`, and with `merge(left, right)` if all frames are merged to
            one result. If the number of records differs between frames, the object has
            `compute_records(block)` instead, which returns the number of records of each frame, and
            all records. If rows depend on all earlier frames, it has `scan(block)`, `merge(left,
            right)` and `compute(block, state)` (`paceline.contract.analysis_kinds.PrefixScan`). The
            object is pickled, and must not contain MDAnalysis objects.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method prepare")

    def check_atoms(self) -> None:
        """Raise an error if the atoms or their current frame lack data that a run needs."""

    def stored_bytes(self, n_frames: int) -> int:
        """Return the size of all stored results; a run that exceeds the free space is refused.

        Parameters
        ----------
        n_frames : int
            Number of frames.

        Returns
        -------
        int
            Size in bytes; unless overridden, the size of the rows.
        """
        return self.row_bytes * n_frames

    def next_stage(self, value: Any) -> PerFrame | Reduction | Ragged | PrefixScan | OverParts:
        """Make the worker part of the next pass over the frames, or of a stage over all rows.

        Parameters
        ----------
        value : numpy.ndarray or object
            Result of the last pass, as for `finish`: all rows, the merged partial result, or the
            offsets and records.

        Returns
        -------
        object
            Worker part, as for `prepare`; for the last stage with `over_parts`, an `OverParts`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method next_stage")

    def finish(self, value: Any) -> None:
        """Compute `results` from the values that the workers returned.

        Parameters
        ----------
        value : numpy.ndarray or object
            Result of the last pass: the rows of all frames, or the merged partial result. For
            records, a pair of offsets, int64, shape (n_frames + 1,), and of all records; records
            of frame `k` of the run are `records[offsets[k]:offsets[k + 1]]`. For parts, the
            `OverParts` that `next_stage` made, which contains the results.
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

        The arguments and their order are those of MDAnalysis's analyses.

        Parameters
        ----------
        start, stop, step : int, optional
            Frames, as in a slice.
        frames : sequence of int or of bool, optional
            Frame numbers or a mask of frames, instead of a slice.
        verbose : bool, optional
            Show progress; by default as set in the analysis, or as in `paceline.run`.
        n_workers : int, optional
            Number of workers; by default the CPUs that this process may use.
        n_parts : int, optional
            Accepted for compatibility with MDAnalysis, and ignored: blocks are chosen by their
            size.
        backend : str or object, optional
            As for `paceline.run`. MDAnalysis's "multiprocessing" and its objects
            (`BackendSerial`, `BackendMultiprocessing`, `BackendDask`) select the corresponding
            backends of paceline.
        unsupported_backend, progressbar_kwargs : optional
            Accepted for compatibility with MDAnalysis, and ignored: all backends are supported.
        **options
            Other options of `paceline.run`.

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
        self._set_frame_bounds(start, stop, step, frames)
        return self

    def _set_frame_bounds(
        self, start: int | None, stop: int | None, step: int | None, frames: object
    ) -> None:
        """Set the attributes that MDAnalysis sets from the arguments of `run`."""
        n_frames = self.atomgroup.universe.trajectory.n_frames
        bounds = slice(start, stop, step).indices(n_frames)
        self.start, self.stop, self.step = bounds if frames is None else (None, None, None)

    @classmethod
    def get_supported_backends(cls) -> tuple[str, ...]:
        """Return the values that `run` accepts as `backend`.

        Returns
        -------
        tuple of str
            All backends, for every analysis.
        """
        return (*BACKENDS, "multiprocessing")

    @property
    def parallelizable(self) -> bool:
        """True, because paceline can divide every analysis among workers."""
        return True

    def further_tables(self) -> Mapping[str, Table]:
        """Return further tables of the last run, which batteries save and draw.

        Returns
        -------
        mapping of str to Table
            Tables by the names in `FURTHER_TABLES`.
        """
        return {}

    def record_counts(self, offsets: np.ndarray) -> np.ndarray:
        """Count the records of each frame of the last run.

        Parameters
        ----------
        offsets : numpy.ndarray of int64, shape (n_frames + 1,)
            Offsets as in `finish`.

        Returns
        -------
        numpy.ndarray of int64, shape (n_frames,)
            If frames were left out, float64 with NaN for these frames.
        """
        return with_gaps(np.diff(offsets), self.left_out)

    @property
    def times_known(self) -> bool:
        """True if the times of the frames are known, from the trajectory or set by its `dt`."""
        return UNKNOWN_TIMES not in self.provenance

    @property
    def time_unit(self) -> str:
        """Unit of times between frames: "ps", or "frames" if times are unknown."""
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
        """Attach values of atoms to the structure in the first analysed frame.

        The frame is read when it is needed.

        Parameters
        ----------
        title : str
            Title of the values, with their unit.
        atoms : AtomGroup
            Atoms with values.
        values : array of float, shape (n_atoms,)
            One value per atom.

        Returns
        -------
        StructureValues or None
            Argument for `Results.with_values`; None for atoms without a topology.
        """
        from paceline.analysis.values_on_structure import values_on_first_frame

        if topology_of(atoms.universe) is None:
            return None
        frame = self.frames, self.transforms, self.skip_damaged
        return values_on_first_frame(title, atoms, values, *frame)

    def remark(self, about: str, message: str | None) -> None:
        """Warn of a property of the results, also in saved tables; None removes the warning.

        Parameters
        ----------
        about : str
            Subject; only the last remark about each subject is kept.
        message : str or None
            One sentence.
        """
        self.remarks = {key: text for key, text in self.remarks.items() if key != about}
        if message is not None:
            self.remarks = {**self.remarks, about: message}
            warn(message)

    def record_call(self) -> None:
        """Store the call that computed the results with them, so that it can be repeated."""
        if isinstance(self.results, Results) and self.results.provenance:
            self.results.provenance[CALL] = describe_call(
                self._made_with, self._run_info.frames, self._run_context
            )

    def record(self) -> JsonObject:
        """Return files, fingerprints, versions and parameters of the last run."""
        found = self.provenance.get("warnings")  # about the files, and from checks of the frames
        remarks = [*([found] if found else []), *self.remarks.values()]
        parameters = self.parameters()
        if parameters.get("select", "") in ("all", None):
            parameters["select"] = describe_selection(None, self.atomgroup)
        return {
            **software(),
            **self.provenance,
            "analysis": type(self).__name__,
            **parameters,
            **self.atom_selections,
            "frames analysed": describe_exactly(
                self.frames, self.times if self.times_known else None
            ),
            "damaged frames": [frame for frame, _ in self.damaged] or "none",
            **({"warnings": "; ".join(remarks)} if remarks else {}),
        }


def backend_of_mdanalysis(backend: Any, n_workers: int | None) -> tuple[object, int | None]:
    """Return the paceline backend for a backend of MDAnalysis, and the number of workers.

    Other backends are returned unchanged.
    """
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
    """Label atoms for `exclude_same`: atoms in the same residue or other unit share a label."""
    one_of("exclude_same", kind, None, *SHARED, "fragment")
    if kind == "fragment":
        return fragindices_of(atomgroup, "exclude_same='fragment'")
    try:
        return np.asarray(getattr(atomgroup, SHARED[kind]))
    except AttributeError as error:
        raise UnsupportedError(
            f"exclude_same={kind!r} needs {SHARED[kind]}, which the topology lacks ({error}): "
            "use a topology that contains them"
        ) from error


def equally_spaced(analysis: AnalysisBase) -> bool:
    """True if the chosen frames are equally spaced, in either direction."""
    steps = np.unique(np.diff(analysis.frames))
    return len(steps) < 2 and 0 not in steps


def check_order(analysis: AnalysisBase) -> None:
    """Raise `UnsupportedError` unless the chosen frames are equally spaced."""
    if not equally_spaced(analysis):
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal intervals in time, but the chosen frames are "
            "not equally spaced: use start, stop and step"
        )


def check_times(analysis: AnalysisBase) -> tuple[np.ndarray, np.ndarray]:
    """Return times relative to the first frame, ps, and the rows of frames that were left out.

    Times increase, also if frames run backwards in time, because correlation functions are
    symmetric in time. If times are unknown, frame numbers are returned, with a warning. Raises
    `UnsupportedError` if times are not equidistant.
    """
    times = analysis.times
    # A frame that could not be transformed has a time, but was left out.
    gone = np.isnan(times) | analysis.left_out
    rows, gaps = np.flatnonzero(~gone), np.flatnonzero(gone)
    if len(rows) == 0:
        raise UnsupportedError(f"{analysis.name}: no frame could be read")
    if len(times) == 1 or len(rows) == 1:
        return np.where(np.arange(len(times)) == 0, 0.0, np.nan), gaps
    dt = time_between(analysis, rows, rows)
    times = moments_of(analysis)
    if 1 in rows and 0 in rows and abs(times[1] - times[0] - dt) <= UNEVEN * abs(dt):
        dt = times[1] - times[0]  # as in MDAnalysis, if single precision resolves the interval
    return np.arange(len(times)) * abs(dt), gaps


def warn_of_unknown_times(analysis: AnalysisBase) -> None:
    """Warn that times between frames are counted in frames if times are unknown."""
    if not analysis.times_known:
        warn(
            f"{analysis.name}: the times of frames are not known "
            f"({analysis.provenance[UNKNOWN_TIMES]}): times between frames are counted in frames, "
            f"and results are per frame; {TIMES_REMEDY}"
        )


def moments_of(analysis: AnalysisBase) -> np.ndarray:
    """Return the times of frames, ps, or frame numbers if times are unknown."""
    return analysis.times if analysis.times_known else analysis.frames.astype(np.float64)


def time_between(analysis: AnalysisBase, rows: np.ndarray, places: np.ndarray) -> float:
    """Return the time between consecutive frames of an equidistant series, ps.

    At least two frames are given: their indices in the run, `rows`, and in the series, `places`. If
    times are unknown, the result is a number of frames, with a warning. Raises `UnsupportedError`
    if times are not equidistant.
    """
    warn_of_unknown_times(analysis)
    known = moments_of(analysis)[rows]
    dt = float((known[-1] - known[0]) / (places[-1] - places[0]))
    expected = known[0] + dt * (places - places[0])
    slack = UNEVEN * abs(dt) + ROUNDED * np.abs(known).max()
    wrong = np.abs(known - expected) > slack
    if np.ptp(known) == 0:
        raise UnsupportedError(
            f"{analysis.name} needs the times of frames, but all are {known[0]} ps: set the "
            "time between frames when the trajectory is opened (dt=2)"
        )
    if dt == 0 or wrong.any():
        # Use the median interval, which one displaced frame changes less than the mean. Measure
        # each interval from the previous frame, because rounding adds up over many frames.
        gaps = np.diff(places)
        usual = np.median(np.diff(known) / gaps)
        expected = np.round(np.append(known[0], known[:-1] + usual * gaps), 6)
        off = np.abs(known - expected)
        limit = UNEVEN * abs(usual) + 2 * ROUNDED * np.abs(known).max()
        first = np.argmax(off > min(limit, off.max() / 2))
        frame, advice = analysis.frames[rows[first]], ""
        if first and analysis.left_out[rows[first] - 1]:
            advice = (
                "; perhaps several damaged frames before it count as one: analyse only frames "
                f"before it, stop={frame - 1} (--end {frame - 1}), or from it on, start={frame} "
                f"(--begin {frame})"
            )
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal intervals in time: frame {frame} is at "
            f"{known[first]} ps, expected {expected[first]} ps{advice}"
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
    analysis.remark("equal times", _note_on_equal_times(analysis))
    of_frames = {"frame": analysis.frames, "time (ps)": analysis.times}
    return Table({**of_frames, **columns}, "time (ps)", y, y_label, drawn, **options)


def _note_on_equal_times(analysis: AnalysisBase) -> str | None:
    """Return a note if all frames of a trajectory have the same time, else None."""
    known = analysis.times[np.isfinite(analysis.times)]
    if not analysis.times_known or len(known) < 2 or np.ptp(known) > 0:
        return None
    return (
        f"{trajectory_name(analysis.atomgroup.universe)}: all {len(known):,} frames have the same "
        f"time, {known[0]:g} ps: figures and verdicts count frames; {TIMES_REMEDY}"
    )


def table_of_records(
    analysis: AnalysisBase, name: str, counts: np.ndarray, label: str | None = None
) -> Table:
    """Make a table of record counts per frame, column `name`; `label` is the y axis title."""
    options: dict[str, Any] = {"partial": True, "counts": [name]}
    return table_in_time(analysis, {name: counts}, {name: name}, label or name, **options)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
