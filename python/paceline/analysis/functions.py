"""Analyses by a user's functions of blocks: time series, reductions, records, and scans."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

import numpy as np

from paceline._util.arguments import function_name, one_of, whole_number
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.updating_groups import GroupFinder, follow_if_changing
from paceline.block import AtomAttributes, Block, field_bits
from paceline.contract.analysis_kinds import PerFrame, PrefixScan, Ragged, Reduction, Result, State
from paceline.contract.system_interface import Atoms, Residues, System, attribute_of
from paceline.errors import UnsupportedError, warn
from paceline.transform.masses import missing_masses_reason

#: Arrays of a block: the number of records of each frame, and the records of all frames.
Records = tuple[np.ndarray, np.ndarray]


class _FunctionAnalysis(AnalysisBase):
    """Base class of analyses by a user's function of a block."""

    function: Callable[..., Any]

    def __init__(
        self,
        function: Callable[..., object],
        atomgroup: Atoms | System,
        fields: Sequence[str],
        block: str,
        verbose: bool,
    ):
        name = type(self).__name__
        atomgroup, self._finder, self._description = follow_if_changing(atomgroup, name)
        super().__init__(atomgroup, verbose=verbose)
        field_bits(fields)
        if self._finder is not None and block == "mdtraj":
            raise UnsupportedError(
                f"{name}: trajectories of MDTraj have the same atoms in each frame, but the group "
                "is an UpdatingAtomGroup: use paceline's own blocks"
            )
        if self._finder is not None and "positions" not in fields:
            raise UnsupportedError(
                f'{name}: an UpdatingAtomGroup needs positions: add "positions" to fields'
            )
        self.fields = fields
        if not callable(function):
            raise TypeError(f"expected a function of a block, found {type(function).__name__}")
        one_of("block", block, "paceline", "mdtraj")
        if block == "mdtraj" and tuple(fields) != ("positions",):
            raise UnsupportedError(
                f"trajectories of MDTraj contain only positions, not {', '.join(fields)}: "
                "use paceline's own blocks"
            )
        self.function, self.block = function, block

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Attributes of the atoms and of their residues, if the topology has them."""
        if self.block == "mdtraj":
            return {}  # the block's MDTraj topology contains them
        resindices = attribute_of(self.atomgroup, "resindices")
        if resindices is None:
            return {}  # atoms of a trajectory without a topology
        residues, rows = np.unique(resindices, return_inverse=True)
        of_residues = self.atomgroup.universe.residues[residues]
        return AtomAttributes(
            _known_attributes(self.atomgroup),
            rows,
            _attributes_of(
                of_residues,
                {"resindices": int, "resids": int, "resnames": str, "segids": str},
            ),
        )

    def _block_function(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Convert a user's function to a function of paceline's blocks."""
        if self._finder is not None:
            return _WithSelected(function, self._finder)
        if self.block == "paceline":
            return function
        from paceline.mdtraj import TrajectoryFunction

        return TrajectoryFunction(function, self.atomgroup)

    @property
    def _function_name(self) -> str:
        return function_name(self.function)

    @property
    def name(self) -> str:
        """Name of the analysis and of the function, for error messages."""
        return f"{super().name} of {self._function_name}"

    def parameters(self) -> dict[str, object]:
        """Return the function's name and the atoms."""
        group = {"group": self._description} if self._description else {}
        return {"function": self._function_name, **group, **super().parameters()}


def _check_label(column: str) -> None:
    """Raise `ValueError` if a title is that of the column of frames or of times."""
    if column in ("frame", "time (ps)"):
        raise ValueError(f"the table already has a column {column!r}: use another label")


def _named_columns(
    label: str | Sequence[str] | None, unit: str | Sequence[str] | None
) -> dict[str, tuple[str, str]]:
    """Return name and unit of each column, by title; empty unless `label` is a list of names."""
    if label is None or isinstance(label, str):
        if unit is not None and not isinstance(unit, str):
            raise ValueError("unit must be a text, because label is not a list of names")
        return {}
    units = [unit or ""] * len(label) if unit is None or isinstance(unit, str) else list(unit)
    if len(units) != len(label) or not all(isinstance(one, str) for one in (*label, *units)):
        raise ValueError(
            f"label and unit must have equally many texts, not {list(label)!r} and {list(units)!r}"
        )
    found = {
        f"{name} ({one})" if one else name: (name, one)
        for name, one in zip(label, units, strict=True)
    }
    if len(found) < len(label) or not found:
        raise ValueError(f"label must be different names, not {list(label)!r}")
    return found


def _known_attributes(group: Atoms) -> dict[str, np.ndarray]:
    """Masses, charges and names of atoms, if the topology has them."""
    kinds = {"masses": float, "charges": float, "names": str}
    if missing_masses_reason(group):
        del kinds["masses"]
    return _attributes_of(group, kinds)


def _attributes_of(group: Atoms | Residues, kinds: Mapping[str, type]) -> dict[str, np.ndarray]:
    """Attributes of a topology, in small dtypes, because they are sent to workers."""
    values = {name: attribute_of(group, name) for name in kinds}
    return {
        name: np.asarray(value, dtype=kinds[name])
        for name, value in values.items()
        if value is not None
    }


class _Series(_FunctionAnalysis):
    """Base class of analyses by a function that returns one row per frame."""

    def __init__(
        self,
        function: Callable[..., object],
        atomgroup: Atoms | System,
        fields: Sequence[str],
        block: str,
        verbose: bool,
        label: str | Sequence[str] | None,
        unit: str | Sequence[str] | None,
    ):
        super().__init__(function, atomgroup, fields, block, verbose)
        self.label, self.unit = label, unit
        self._names = _named_columns(label, unit)
        for title in [*self._names] or [self._title]:
            _check_label(title)

    @property
    def _title(self) -> str:
        """Title of the series, with its unit."""
        named = self.label if isinstance(self.label, str) else None
        unit = self.unit if isinstance(self.unit, str) else None
        label = named or self._function_name
        return f"{label} ({unit})" if unit else label if named else "value"

    def _table(self, value: np.ndarray) -> Table | None:
        """Make a table if there is one value per frame, or several values with names."""
        if self._names:
            columns = value[:, None] if value.ndim == 1 else value
            if columns.ndim == 2 and columns.shape[1] == len(self._names):
                return self._table_of_columns(columns)
            warn(
                f"{self.name}: label names {len(self._names)} values per frame, but the function "
                f"returns rows of shape {value.shape[1:]}, so there is no table"
            )
            return None
        if value.ndim != 1:
            return None
        label, column = self.label or self._function_name, self._title
        title = label if column == "value" else column
        return table_in_time(self, {column: value}, {column: f"{label}"}, f"{title}")

    def _table_of_columns(self, value: np.ndarray) -> Table:
        """Make a table of several columns; figures have one panel for each unit."""
        columns = dict(zip(self._names, value.T, strict=True))
        y = {title: name for title, (name, _) in self._names.items()}
        units = {unit for _, unit in self._names.values()}
        label = f"value ({units.pop()})" if len(units) == 1 and units != {""} else "value"
        label = next(iter(y)) if len(y) == 1 else label
        return table_in_time(self, columns, y, label).with_panels_of_units()

    def finish(self, value: np.ndarray) -> None:
        """Store the rows, with frames and times."""
        self.results = Results(
            table=self._table(value),
            provenance=self.record(),
            timeseries=value,
            frames=self.frames,
            times=self.times,
        ).with_series("timeseries", self._title)


class TimeSeries(_Series):
    """Apply a user's function to blocks of frames.

    Parameters
    ----------
    function : callable
        Function of a block (`paceline.block.Block`: `positions`, `dimensions`, `times`, `steps`,
        `frames`, and `masses`, `charges`, `names` of the atoms). It returns an array with the
        frames of the block along the first axis. A block may begin and end at any frame, and
        contains damaged frames only with a halo. A row must depend only on its frame, and on the
        frames of its `halo`.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the block contains, in this order. For an UpdatingAtomGroup, the block
        contains all atoms that may be needed. `block.selected` then contains the columns of the
        selected atoms, one array per frame.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces". Only these are
        decoded.
    label : str or sequence of str, optional
        Name of the series in tables and figures; by default the name of the function. For several
        values per frame, shape (n_frames, n), the names of all columns.
    unit : str or sequence of str, optional
        Unit in tables and figures. For several columns, one unit for all or one for each. Figures
        have one panel for each unit.
    block : {"paceline", "mdtraj"}
        Kind of block; with "mdtraj" the argument is an `mdtraj.Trajectory`, in nm and ps.
    halo : pair of int
        Numbers of frames before and after its own frame that each row depends on, such as (1, 1)
        for differences of neighbours. Blocks contain these frames, too. The function returns
        rows for all frames, and rows of the halo are dropped. Neighbours are frames of the run:
        with ``step=10`` they are ten frames apart. The first and the last frames of the run have
        shorter halos.

    Attributes
    ----------
    results.timeseries : numpy.ndarray, shape (n_frames, …)
        Rows that the function returned, equal to those of a single call with all frames. Rows of
        damaged frames that were left out are NaN, and so are rows whose halo contains such a frame.
        In this case integers become float64.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    TypeError
        The function is not callable.
    UnsupportedError
        MDTraj is not installed, or its blocks are used with other fields than positions. In the
        run: no frame could be read, so that the shape of rows is unknown.
    ValueError
        The field or the kind of block is unknown, a label is the title of another column, labels
        and units differ in number, or the halo is not a pair of numbers.

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

    Speeds from differences of neighbouring frames, Å/ps:

    >>> def speeds(block):
    ...     rows = np.arange(len(block))
    ...     before, after = np.maximum(rows - 1, 0), np.minimum(rows + 1, len(block) - 1)
    ...     moved = block.positions[after] - block.positions[before]
    ...     elapsed = block.times[after] - block.times[before]
    ...     return np.linalg.norm(moved, axis=2) / elapsed[:, None]
    >>> paceline.TimeSeries(speeds, ca, halo=(1, 1)).run().results.timeseries.shape
    (98, 214)
    """

    def __init__(
        self,
        function: Callable[[Block], np.ndarray],
        atomgroup: Atoms | System,
        *,
        fields: Sequence[str] = ("positions",),
        label: str | Sequence[str] | None = None,
        unit: str | Sequence[str] | None = None,
        block: str = "paceline",
        halo: Sequence[int] = (0, 0),
        verbose: bool = False,
    ):
        super().__init__(function, atomgroup, fields, block, verbose, label, unit)
        if np.shape(halo) != (2,):
            raise ValueError(f"halo must be two numbers of frames, 0 or more, not {halo!r}")
        before, after = (whole_number("halo", one, 0, unit="frames") for one in halo)
        self.halo = before, after

    def parameters(self) -> dict[str, object]:
        """Return the function's name, the atoms, and the halo if there is one."""
        return {**super().parameters(), **({"halo": self.halo} if any(self.halo) else {})}

    def prepare(self) -> PerFrame:
        """Return the user's function as the worker part."""
        return _Function(self._block_function(self.function))


class Scan(_Series):
    """Compute rows that depend on all earlier frames, by three functions (prefix scan).

    The frames are read twice. In the first pass, `scan` and `merge` compute how each block changes
    a state. From these changes, the state before each block follows. In the second pass, `compute`
    continues from these states, in all blocks in parallel. The changes of all blocks are stored,
    and may take up to 2 GiB.

    Parameters
    ----------
    scan : callable
        Function of a block (`paceline.block.Block`). It returns how the frames of the block change
        the state: any object that can be pickled, or None for no change. Earlier frames are not
        available.
    merge : callable
        Function of two changes of adjacent frames, the earlier one first, that returns their
        combined change. It must be associative. It may modify and return its first argument.
    compute : callable
        Function of a block and of the change over all earlier frames, None if there are none. It
        returns an array with the frames of the block along the first axis.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the block contains, in this order. For an UpdatingAtomGroup, the block
        contains all atoms that may be needed. `block.selected` then contains the columns of the
        selected atoms, one array per frame.
    fields : sequence of str
        Fields that the functions need: "positions", "velocities", "forces".
    label : str, optional
        Name of the series in tables and figures; by default the name of `compute`.
    unit : str, optional
        Unit in tables and figures.
    block : {"paceline", "mdtraj"}
        Kind of block; with "mdtraj" the argument is an `mdtraj.Trajectory`, in nm and ps.

    Attributes
    ----------
    results.timeseries : numpy.ndarray, shape (n_frames, …)
        Rows that `compute` returned, with identical bits for any backend and any blocks. Damaged
        frames that were left out do not change the state; their rows are NaN, and in this case
        integers become float64.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    TypeError
        A function is not callable.
    UnsupportedError
        MDTraj is not installed, or its blocks are used with other fields than positions. In the
        run: frames are not in increasing order, states exceed the memory, or no frame could be
        read.
    ValueError
        The field or the kind of block is unknown, or a label is the title of another column.

    Examples
    --------
    Number of atoms that have been within 10 Å of the origin so far:

    >>> import numpy as np
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> def inside(block):
    ...     return np.linalg.norm(block.positions, axis=2) < 10
    >>> def visited(block):
    ...     return inside(block).any(axis=0)
    >>> def count(block, before):
    ...     seen = np.logical_or.accumulate(inside(block), axis=0)
    ...     return (seen if before is None else seen | before).sum(axis=1)
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> visitors = paceline.Scan(visited, np.logical_or, count, ca).run()
    >>> visitors.results.timeseries[[0, 10, 97]]
    array([27, 27, 30])
    """

    stages = 2

    def __init__(
        self,
        scan: Callable[[Block], State],
        merge: Callable[[State, State], State],
        compute: Callable[[Block, State | None], np.ndarray],
        atomgroup: Atoms | System,
        *,
        fields: Sequence[str] = ("positions",),
        label: str | Sequence[str] | None = None,
        unit: str | Sequence[str] | None = None,
        block: str = "paceline",
        verbose: bool = False,
    ):
        for function, what in ((scan, "scans a block"), (merge, "merges")):
            if not callable(function):
                raise TypeError(f"expected a function that {what}, found {type(function).__name__}")
        self.scan, self.merge = scan, merge
        super().__init__(compute, atomgroup, fields, block, verbose, label, unit)

    def prepare(self) -> PrefixScan:
        """Make the worker part from `scan`, `merge` and `function`."""
        return _ScanFunctions(
            self._block_function(self.scan), self.merge, self._block_function(self.function)
        )


class Reduce(_FunctionAnalysis):
    """Reduce all frames to one value, by two functions.

    Parameters
    ----------
    function : callable
        Function of a block (`paceline.block.Block`). It returns a partial result: any object that
        can be pickled, such as a sum and a count, never a mean; or None for no result. Blocks do
        not contain damaged frames.
    merge : callable
        Function of two partial results of adjacent frames, the earlier one first, that returns
        their combined result. It may modify and return its first argument.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the block contains, in this order. For an UpdatingAtomGroup, the block
        contains all atoms that may be needed. `block.selected` then contains the columns of the
        selected atoms, one array per frame.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces".
    block : {"paceline", "mdtraj"}
        Kind of block; with "mdtraj" the argument is an `mdtraj.Trajectory`, in nm and ps.

    Attributes
    ----------
    results.value : object
        Merged result of all frames. The order of merging does not depend on the workers, so the
        bits are identical on any backend.

    Raises
    ------
    TypeError
        A function is not callable.
    UnsupportedError
        MDTraj is not installed, or its blocks are used with other fields than positions. In the
        run: no frame could be read.
    ValueError
        The field or the kind of block is unknown.

    Examples
    --------
    Mean positions of atoms:

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
        function: Callable[[Block], Result],
        merge: Callable[[Result, Result], Result],
        atomgroup: Atoms | System,
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
        """Make the worker part from `function` and `merge`."""
        return _FunctionAndMerge(self._block_function(self.function), self.merge)

    def finish(self, value: object) -> None:
        """Store the merged result."""
        if self.left_out.all():
            raise UnsupportedError(f"{self.name}: no frame could be read")
        self.results = Results(provenance=self.record(), value=value)


class RaggedTimeSeries(_FunctionAnalysis):
    """Apply a function that returns any number of records per frame, such as pairs of atoms.

    Up to 1 GiB of records, or `max_memory`, are in memory. More records are in an anonymous file in
    the temporary folder (TMPDIR), which needs free space for twice their size.

    Parameters
    ----------
    function : callable
        Function of a block (`paceline.block.Block`). It returns two arrays: the number of records
        of each frame, integers; and the records of all frames of the block, in order, along the
        first axis. Records are rows of numbers, or structured. Their shape and dtype are the same
        in every block, also without records. A block may begin and end at any frame, and contains
        no damaged frames. The records of a frame must depend only on this frame.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the block contains, in this order. For an UpdatingAtomGroup, the block
        contains all atoms that may be needed. `block.selected` then contains the columns of the
        selected atoms, one array per frame.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces".
    label : str, optional
        Name of the records in tables and figures of their numbers; by default "records".
    block : {"paceline", "mdtraj"}
        Kind of block; with "mdtraj" the argument is an `mdtraj.Trajectory`, in nm and ps.

    Attributes
    ----------
    results.records : numpy.ndarray, shape (n_records, …)
        Records of all frames, in the order of frames.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first record, and the total number. Records of frame `k` of the run
        are `records[offsets[k]:offsets[k + 1]]`.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of records of each frame. If damaged frames were left out, the dtype is float64, and
        the number is NaN for these frames, which have no records.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    TypeError
        The function is not callable.
    UnsupportedError
        MDTraj is not installed, or its blocks are used with other fields than positions.
    ValueError
        The field or the kind of block is unknown, or a label is the title of another column. In
        the run, as `AnalysisError`: the function does not return such a pair of arrays.
    OSError
        In the run: the free space in the temporary folder is insufficient for the records.

    Examples
    --------
    Atoms farther than 26 Å from the center, with their distances:

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
    array([[140. ,  26.7],
           [141. ,  27.3],
           [149. ,  26.5]])
    """

    def __init__(
        self,
        function: Callable[[Block], Records],
        atomgroup: Atoms | System,
        *,
        fields: Sequence[str] = ("positions",),
        label: str = "records",
        block: str = "paceline",
        verbose: bool = False,
    ):
        super().__init__(function, atomgroup, fields, block, verbose)
        self.label = label
        _check_label(label)

    def prepare(self) -> Ragged:
        """Return the user's function as the worker part."""
        return _RecordFunction(self._block_function(self.function))

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Store the records, with frames and times."""
        offsets, records = value
        counts, label = self.record_counts(offsets), self.label
        self.results = Results(
            table=table_in_time(self, {label: counts}, {label: label}, label, counts=[label]),
            provenance=self.record(),
            records=records,
            offsets=offsets,
            counts=counts,
            frames=self.frames,
            times=self.times,
        )


class _WithSelected(Generic[Result]):
    """User's function of a block; before each call, `block.selected` is set."""

    def __init__(self, function: Callable[..., Result], finder: GroupFinder):
        self._function, self._finder = function, finder

    def __call__(self, block: Block, *state: object) -> Result:
        block.selected = [places for places, _ in self._finder.by_frame(block)]
        return self._function(block, *state)


class _Function(PerFrame):
    """Worker part of `TimeSeries`."""

    def __init__(self, function: Callable[[Block], np.ndarray]):
        self._function = function

    def compute(self, block: Block) -> np.ndarray:
        return self._function(block)


class _FunctionAndMerge(Reduction[Result | None]):
    """Worker part of `Reduce`; the partial result of a block without frames is None."""

    def __init__(
        self, function: Callable[[Block], Result], merge: Callable[[Result, Result], Result]
    ):
        self._function, self._merge = function, merge

    def compute(self, block: Block) -> Result | None:
        return self._function(block) if len(block) else None

    def merge(self, left: Result | None, right: Result | None) -> Result | None:
        if left is None or right is None:
            return right if left is None else left
        return self._merge(left, right)


class _ScanFunctions(PrefixScan[State]):
    """Worker part of `Scan`."""

    def __init__(
        self,
        scan: Callable[[Block], State],
        merge: Callable[[State, State], State],
        compute: Callable[[Block, State | None], np.ndarray],
    ):
        self._scan, self._merge, self._compute = scan, merge, compute

    def scan(self, block: Block) -> State:
        return self._scan(block)

    def merge(self, left: State, right: State) -> State:
        return self._merge(left, right)

    def compute(self, block: Block, state: State | None) -> np.ndarray:
        return self._compute(block, state)


class _RecordFunction(Ragged):
    """Worker part of `RaggedTimeSeries`."""

    def __init__(self, function: Callable[[Block], Records]):
        self._function = function

    def compute_records(self, block: Block) -> Records:
        return self._function(block)
