"""Base class of analyses, and the analysis of any function.

An analysis has two halves. The user's half knows MDAnalysis's objects: it names its atoms
(`indices`), makes the worker's half (`prepare`) and turns what comes back into results (`finish`).
The worker's half is sent to the workers: a small object with `compute`, and with `merge` if all
frames give one result.
"""

import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from paceline._core import __version__
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.interfaces import OverParts, PerBlock, PerFrame, Ragged, Reduction
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.block import AtomAttributes, Block, field_bits
from paceline.errors import UnsupportedError
from paceline.performance.timings import Timings
from paceline.runner import run
from paceline.transform.base import Transform, check_static


class AnalysisBase:
    """Base class of analyses.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms.

    Attributes
    ----------
    fields : sequence of str
        Fields that a block must have: "positions", "velocities", "forces". A frame that lacks one
        is an error.
    optional_fields : sequence of str
        Further fields; NaN where a frame does not hold them (see `Block.held`).
    stages : int
        Passes over the frames. After each but the last, `next_stage` makes the worker's half of the
        next one.
    over_parts : bool
        True if the last of the stages is no pass over the frames: it computes parts of the rows
        that were collected (`paceline.analysis.interfaces.OverParts`).
    frames_together : int
        Blocks begin at multiples of it, a power of two: otherwise reductions of the same run are
        summed in another order, and may differ in their last bit.
    row_bytes : int
        Bytes of a frame's row, where it is larger than the frame: blocks have fewer frames then,
        and the run is refused if there is no room for all rows.
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

    fields: Sequence[str] = ("positions",)
    optional_fields: Sequence[str] = ()
    stages: int = 1
    over_parts: bool = False
    frames_together: int = 1
    row_bytes: int = 0
    transforms: Sequence[Transform] = ()
    skip_damaged: bool = False
    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: Timings
    provenance: dict[str, Any]
    #: Results that MDAnalysis's class of the same name has too.
    SHARED_RESULTS: tuple[str, ...] = ()
    #: Attributes that its methods need after a run, in the order in which they are set.
    SHARED_ATTRIBUTES: tuple[str, ...] = ()
    start: int | None
    stop: int | None
    step: int | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a class with MDAnalysis's methods the base class of MDAnalysis."""
        super().__init_subclass__(**kwargs)
        if "_single_frame" in vars(cls) and AnalysisBase in cls.__bases__:
            from paceline.analysis.mdanalysis import SingleFrameAnalysis

            cls.__bases__ = tuple(
                SingleFrameAnalysis if base is AnalysisBase else base for base in cls.__bases__
            )

    def __init__(self, atomgroup: Any, *, verbose: bool = False):
        self._verbose = verbose
        check_static(atomgroup, type(self).__name__)
        self.atomgroup = atomgroup.atoms
        self.results = Results()

    def __getattr__(self, name: str) -> Any:
        """Find results under the names that MDAnalysis had for them before its version 2."""
        if name not in type(self).SHARED_RESULTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is deprecated; use results.{name}", DeprecationWarning, stacklevel=2)
        return self.results[name]

    @property
    def name(self) -> str:
        """Name in error messages."""
        return type(self).__name__

    @property
    def indices(self) -> np.ndarray:
        """Atoms in the order of the computation: ndarray of int64, shape (n_atoms,)."""
        return self.atomgroup.indices

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Attributes of the atoms that a block must have: ndarrays, shape (n_atoms, …)."""
        return {}

    @property
    def outputs(self) -> Sequence[str]:
        """Files that a run writes by itself."""
        return ()

    @property
    def n_frames(self) -> int:
        """Number of frames that were analysed."""
        return len(self.frames)

    def parameters(self) -> dict[str, Any]:
        """Parameters, for the record that is saved with the results."""
        return {"atoms": describe_atoms(self.atomgroup)}

    def prepare(self) -> PerFrame | Reduction | PerBlock | Ragged:
        """Make the worker's half.

        Returns
        -------
        object
            With `compute(block)`; and with `merge(left, right)` if all frames give one result.
            With `compute_records(block)` instead if a frame gives any number of records: it
            returns their numbers in each frame, and all of them. It is pickled, and must hold no
            MDAnalysis object.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method prepare")

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

    def next_stage(self, value: Any) -> PerFrame | Reduction | Ragged | OverParts:
        """Make the worker's half of the next pass over the same frames, or parts of the rows.

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
        backend: Any = None,
        *,
        unsupported_backend: bool = False,
        progressbar_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
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
        n_frames = self.atomgroup.universe.trajectory.n_frames
        bounds = slice(start, stop, step).indices(n_frames)
        self.start, self.stop, self.step = bounds if frames is None else (None, None, None)
        return self

    @classmethod
    def get_supported_backends(cls) -> tuple[str, ...]:
        """Names that `run` takes as `backend`.

        Returns
        -------
        tuple of str
            All of them, for each analysis.
        """
        return ("serial", "threads", "processes", "multiprocessing", "dask", "mpi")

    @property
    def parallelizable(self) -> bool:
        """True: every analysis can be split."""
        return True

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
        counts = np.diff(offsets)
        missing = np.isin(self.frames, [frame for frame, _ in self.damaged])
        return np.where(missing, np.nan, counts) if missing.any() else counts

    def record(self) -> dict[str, Any]:
        """Files, fingerprints, versions and parameters of the last run."""
        return {
            "paceline": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            **self.provenance,
            "analysis": type(self).__name__,
            **self.parameters(),
            "frames analysed": describe_frames(self.frames),
            "damaged frames": [frame for frame, _ in self.damaged] or "none",
        }


def backend_of_mdanalysis(backend: Any, n_workers: int | None) -> tuple[Any, int | None]:
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


def describe_atoms(atomgroup: Any) -> str:
    """Describe atoms in one line: their number, and their indices as few ranges.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> describe_atoms(SimpleNamespace(indices=np.array([0, 1, 2, 7])))
    '4 atoms, indices 0-2 7'
    """
    indices = atomgroup.indices
    runs = np.split(indices, np.flatnonzero(np.diff(indices) != 1)[:20] + 1)
    text = " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:20])
    return f"{len(indices)} atoms, indices {text}{' …' if len(runs) > 20 else ''}"


def describe_frames(frames: np.ndarray) -> str:
    """Describe frames in one line: as start:stop:step, else their number, first and last.

    Examples
    --------
    >>> describe_frames(np.arange(0, 100, 10)), describe_frames(np.array([7, 3, 4]))
    ('0:91:10', '3 frames from 7 to 4')
    """
    steps = np.unique(np.diff(frames))
    if len(steps) == 0:
        return f"{frames[0]}"
    if len(steps) == 1 and steps[0] > 0:
        return f"{frames[0]}:{frames[-1] + 1}:{steps[0]}"
    return f"{len(frames)} frames from {frames[0]} to {frames[-1]}"


class _FunctionAnalysis(AnalysisBase):
    """Analysis by a function of a block, which sees all attributes of the atoms."""

    function: Callable[[Block], Any]

    def __init__(
        self,
        function: Callable[[Block], Any],
        atomgroup: Any,
        fields: Sequence[str],
        block: str,
        verbose: bool,
    ):
        super().__init__(atomgroup, verbose=verbose)
        field_bits(fields)
        self.fields = fields
        if not callable(function):
            raise TypeError(f"expected a function of a block, found {type(function).__name__}")
        if block not in ("paceline", "mdtraj"):
            raise ValueError(f"expected block to be 'paceline' or 'mdtraj', found {block!r}")
        if block == "mdtraj" and tuple(fields) != ("positions",):
            raise UnsupportedError(
                f"trajectories of MDTraj hold positions alone, and {', '.join(fields)} are asked "
                "for: use paceline's own blocks"
            )
        self.function, self.block = function, block

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Attributes of the atoms and of their residues, where the topology has them."""
        if self.block == "mdtraj":
            return {}  # its topology has them
        residues, rows = np.unique(self.atomgroup.resindices, return_inverse=True)
        of_residues = self.atomgroup.universe.residues[residues]
        return AtomAttributes(
            _attributes_of(self.atomgroup, {"masses": float, "charges": float, "names": str}),
            rows,
            _attributes_of(
                of_residues, {"resindices": int, "resids": int, "resnames": str, "segids": str}
            ),
        )

    @property
    def _of_block(self) -> Callable[[Block], Any]:
        """The function, as one of paceline's blocks."""
        if self.block == "paceline":
            return self.function
        from paceline.mdtraj import WithTrajectory

        return WithTrajectory(self.function, self.atomgroup)

    @property
    def _function_name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    @property
    def name(self) -> str:
        """Name in error messages, with the function's."""
        return f"{super().name} of {self._function_name}"

    def parameters(self) -> dict[str, Any]:
        """The function's name and the atoms."""
        return {"function": self._function_name, **super().parameters()}


def _attributes_of(group: Any, kinds: Mapping[str, type]) -> dict[str, np.ndarray]:
    """Attributes that a topology has, in types that are small to send."""
    values = {name: getattr(group, name, None) for name in kinds}
    return {
        name: np.asarray(value, dtype=kinds[name])
        for name, value in values.items()
        if value is not None
    }


class TimeSeries(_FunctionAnalysis):
    """Apply any function to blocks of frames.

    Parameters
    ----------
    function : callable
        Takes a block (`paceline.block.Block`: `positions`, `dimensions`, `times`, `steps`,
        `frames`, and the atoms' `masses`, `charges`, `names`) and returns an array whose first
        axis is the block's frames. Blocks are cut anywhere: a row must depend on its frame alone.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the function sees, in this order.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces". Only these are
        decoded.
    label : str, optional
        Name of the series in tables and figures; by default the function's.
    unit : str, optional
        Its unit, for the same.
    block : {"paceline", "mdtraj"}
        Kind of block: with "mdtraj" the function takes an `mdtraj.Trajectory`, in nm and ps.
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.timeseries : numpy.ndarray, shape (n_frames, …)
        Rows that the function returned. Rows of damaged frames that were left out are NaN;
        integers become float64 for that.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps.

    Raises
    ------
    TypeError
        The function cannot be called.
    UnsupportedError
        MDTraj is not installed, or other fields than positions are asked for with its blocks.
    ValueError
        An unknown field or kind of block.

    Examples
    --------
    >>> import numpy as np
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> def end_to_end(block):
    ...     return np.linalg.norm(block.positions[:, -1] - block.positions[:, 0], axis=1)
    >>> paceline.TimeSeries(end_to_end, ca).run().results.timeseries.shape
    (98,)
    """

    def __init__(
        self,
        function: Callable[[Block], Any],
        atomgroup: Any,
        *,
        fields: Sequence[str] = ("positions",),
        label: str | None = None,
        unit: str | None = None,
        block: str = "paceline",
        verbose: bool = False,
    ):
        super().__init__(function, atomgroup, fields, block, verbose)
        self.label, self.unit = label, unit

    def prepare(self) -> PerFrame:
        """The function itself."""
        return _Function(self._of_block)

    def finish(self, value: np.ndarray) -> None:
        """Keep the rows, with frames and times."""
        table = None
        if value.ndim == 1:
            label = self.label or self._function_name
            title = f"{label} ({self.unit})" if self.unit else label
            column = title if self.label or self.unit else "value"
            columns = {"frame": self.frames, "time (ps)": self.times, column: value}
            table = Table(columns, "time (ps)", {column: label}, title)
        self.results = Results(
            table=table,
            provenance=self.record(),
            timeseries=value,
            frames=self.frames,
            times=self.times,
        )


class Reduce(_FunctionAnalysis):
    """Reduce all frames to one value by two functions.

    Parameters
    ----------
    function : callable
        Takes a block (`paceline.block.Block`) and returns a partial result, any object that can be
        pickled: a sum and a count, say, never a mean.
    merge : callable
        Takes the partial results of neighbouring frames, earlier ones first, and returns that of
        all of them. It may change and return its first argument.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the function sees, in this order.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces".
    block : {"paceline", "mdtraj"}
        Kind of block: with "mdtraj" the function takes an `mdtraj.Trajectory`, in nm and ps.
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.value : object
        The partial result of all frames. The order of merging does not depend on the workers, so
        it has the same bits on any backend.

    Raises
    ------
    TypeError
        A function cannot be called.
    UnsupportedError
        MDTraj is not installed, or other fields than positions are asked for with its blocks.
    ValueError
        An unknown field or kind of block, or no frame is left.

    Examples
    --------
    The mean positions of atoms:

    >>> import numpy as np
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> def total(block):
    ...     return len(block), block.positions.sum(axis=0, dtype=float)
    >>> def add(left, right):
    ...     return left[0] + right[0], left[1] + right[1]
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> count, positions = paceline.Reduce(total, add, ca).run().results.value
    >>> (positions / count).round(2)[0]
    array([13.16,  7.09, -7.48])
    """

    def __init__(
        self,
        function: Callable[[Block], Any],
        merge: Callable[[Any, Any], Any],
        atomgroup: Any,
        *,
        fields: Sequence[str] = ("positions",),
        block: str = "paceline",
        verbose: bool = False,
    ):
        super().__init__(function, atomgroup, fields, block, verbose)
        if not callable(merge):
            raise TypeError(f"expected a function that merges, found {type(merge).__name__}")
        self.merge = merge

    def prepare(self) -> Reduction:
        """Both functions."""
        return _FunctionAndMerge(self._of_block, self.merge)

    def finish(self, value: Any) -> None:
        """Keep the merged partial result."""
        self.results = Results(provenance=self.record(), value=value)


class RaggedTimeSeries(_FunctionAnalysis):
    """Apply a function that gives any number of records per frame, such as pairs of atoms.

    Up to 1 GiB of records are in memory, more in a nameless file in the folder of temporary files
    (TMPDIR), which needs room for them twice.

    Parameters
    ----------
    function : callable
        Takes a block (`paceline.block.Block`) and returns two arrays: the number of records of
        each of the block's frames, integers; and the records of all these frames, one after
        another, along the first axis. They may be rows of numbers or structured, and are of one
        shape and type in each block, also where there are none. Blocks are cut anywhere, and hold
        no damaged frames: the records of a frame must depend on it alone.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the function sees, in this order.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces".
    label : str, optional
        Name of the records in tables and figures of their number; by default "records".
    block : {"paceline", "mdtraj"}
        Kind of block: with "mdtraj" the function takes an `mdtraj.Trajectory`, in nm and ps.
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.records : numpy.ndarray, shape (n_records, …)
        Records of all frames, in the order of frames.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first record, and of the end: those of frame `k` of the run are
        `records[offsets[k]:offsets[k + 1]]`.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of records of each frame. If damaged frames were left out it is of float64, and NaN
        for these, which have no records.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps.

    Raises
    ------
    TypeError
        The function cannot be called.
    UnsupportedError
        MDTraj is not installed, or other fields than positions are asked for with its blocks.
    ValueError
        An unknown field or kind of block. In the run, as `AnalysisError`: what the function returns
        is no such pair.
    OSError
        In the run: the folder of temporary files has no room for the records.

    Examples
    --------
    Atoms farther than 26 Å from the center, and how far they are:

    >>> import numpy as np
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> def far(block):
    ...     center = block.positions.mean(axis=1, keepdims=True)
    ...     distances = np.linalg.norm(block.positions - center, axis=2)
    ...     rows, atoms = np.nonzero(distances > 26)
    ...     counts = np.bincount(rows, minlength=len(block))
    ...     return counts, np.column_stack([atoms, distances[rows, atoms]])
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> results = paceline.RaggedTimeSeries(far, ca).run().results
    >>> results.counts[:3], results.records.shape
    (array([0, 0, 0]), (1112, 2))
    >>> results.records[results.offsets[20] : results.offsets[21]].round(1)
    array([[ 55. ,  26.2],
           [154. ,  26.1],
           [155. ,  26.2]])
    """

    def __init__(
        self,
        function: Callable[[Block], Any],
        atomgroup: Any,
        *,
        fields: Sequence[str] = ("positions",),
        label: str = "records",
        block: str = "paceline",
        verbose: bool = False,
    ):
        super().__init__(function, atomgroup, fields, block, verbose)
        self.label = label

    def prepare(self) -> Ragged:
        """The function itself."""
        return _RecordFunction(self._of_block)

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep the records, with frames and times."""
        offsets, records = value
        counts = self.record_counts(offsets)
        columns = {"frame": self.frames, "time (ps)": self.times, self.label: counts}
        self.results = Results(
            table=Table(columns, "time (ps)", {self.label: self.label}, self.label),
            provenance=self.record(),
            records=records,
            offsets=offsets,
            counts=counts,
            frames=self.frames,
            times=self.times,
        )


class _Function:
    """Worker's half of `TimeSeries`."""

    def __init__(self, function: Callable[[Block], Any]):
        self._function = function

    def compute(self, block: Block) -> Any:
        return self._function(block)


class _FunctionAndMerge(_Function):
    """Worker's half of `Reduce`."""

    def __init__(self, function: Callable[[Block], Any], merge: Callable[[Any, Any], Any]):
        super().__init__(function)
        self._merge = merge

    def merge(self, left: Any, right: Any) -> Any:
        return self._merge(left, right)


class _RecordFunction:
    """Worker's half of `RaggedTimeSeries`."""

    def __init__(self, function: Callable[[Block], Any]):
        self._function = function

    def compute_records(self, block: Block) -> Any:
        return self._function(block)


def __getattr__(name: str) -> Any:
    return name_of_mdanalysis(__name__, name)
