"""What every analysis is made of, and one for any function.

An analysis has two halves. The one that the user holds knows MDAnalysis's objects: it names its
atoms (`indices`), makes the other half (`prepare`) and turns what comes back into results
(`finish`). The other half travels to the workers: a small object with `compute`, and with `merge`
where all frames give one result.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from paceline._core import __version__
from paceline.analysis.results import Results, Table
from paceline.block import Block, field_bits
from paceline.performance.timings import Timings
from paceline.runner import run
from paceline.schedule.interfaces import PerBlock, PerFrame, Reduction, Transform
from paceline.transform.base import refuse_updating


class AnalysisBase:
    """An analysis of the atoms of one group.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms.

    Attributes
    ----------
    fields : sequence of str
        What a block shall have of the atoms: "positions", "velocities", "forces". A frame that
        does not hold all of it is refused.
    optional_fields : sequence of str
        What else a block shall have; NaN where a frame does not hold it (see `Block.held`).
    frames_together : int
        Frames that blocks must not part: each begins at a multiple of it. A power of two, or
        reductions of the same run are summed in another order, and may differ in their last bit.
    transforms : sequence of Transform
        What the present run does to positions first; `prepare` sees it.
    skip_damaged : bool
        Whether the present run leaves out frames that cannot be read; `prepare` sees it.
    results : Results
        Empty before `run`.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers that the last run analysed, or the present one; `prepare` sees them.
    times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps; NaN for frames that were left out.
    damaged : list of (int, str)
        Frames that were left out, and why.
    timings : Timings
        Who did what, when, for how long.
    provenance : dict
        The files that were read; `prepare` sees it.

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
    frames_together: int = 1
    transforms: Sequence[Transform] = ()
    skip_damaged: bool = False
    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: Timings
    provenance: dict[str, Any]

    def __init__(self, atomgroup: Any):
        refuse_updating(atomgroup, type(self).__name__)
        self.atomgroup = atomgroup.atoms
        self.results = Results()

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__

    @property
    def indices(self) -> np.ndarray:
        """Atoms wanted, as the computation wants them: ndarray of int64, shape (n_atoms,)."""
        return self.atomgroup.indices

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """What of the atoms, beside positions, a block shall have: ndarrays, shape (n_atoms, …)."""
        return {}

    @property
    def outputs(self) -> Sequence[str]:
        """Files that a run makes by itself."""
        return ()

    @property
    def n_frames(self) -> int:
        """Number of frames that were analysed."""
        return len(self.frames)

    def parameters(self) -> dict[str, Any]:
        """What was asked for, for the record that is saved with the results."""
        return {"atoms": describe_atoms(self.atomgroup)}

    def prepare(self) -> PerFrame | Reduction | PerBlock:
        """Make the worker's half.

        Returns
        -------
        object
            With `compute(block)`; and with `merge(left, right)` where all frames give one result.
            It is pickled, and must hold no MDAnalysis object.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method prepare")

    def finish(self, value: Any) -> None:
        """Fill `results`.

        Parameters
        ----------
        value : numpy.ndarray or object
            All frames' rows, or the merged partial result.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method finish")

    def run(
        self,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        **options: Any,
    ) -> Self:
        """Run this analysis alone.

        Parameters
        ----------
        start, stop, step : int, optional
            Frames, as in a slice.
        **options
            The other options of `paceline.run`.

        Returns
        -------
        AnalysisBase
            This analysis, with its results.
        """
        run(self, start=start, stop=stop, step=step, **options)
        return self

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


def describe_atoms(atomgroup: Any) -> str:
    """Number of atoms, and their indices where they are few runs.

    Parameters
    ----------
    atomgroup : AtomGroup
        The atoms.

    Returns
    -------
    str
        One line.

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
    """Frames as start:stop:step where they are that, else their number and the ends.

    Parameters
    ----------
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers, at least one.

    Returns
    -------
    str
        One line.

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


class TimeSeries(AnalysisBase):
    """Any function of a block of frames.

    Parameters
    ----------
    function : callable
        Takes a block (`paceline.block.Block`: `positions`, `dimensions`, `times`, `steps`,
        `frames`, and the atoms' `masses`, `charges`, `names`) and returns an array whose first
        axis is the block's frames. Blocks are cut anywhere: a row must depend on its frame alone.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the function sees, in this order.
    fields : sequence of str
        What of the atoms the function sees: "positions", "velocities", "forces". Only that is
        decoded.

    Attributes
    ----------
    results.timeseries : numpy.ndarray, shape (n_frames, …)
        What the function returned. Where damaged frames were left out, their rows are NaN, and
        whole numbers become float64 for that.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps.

    Raises
    ------
    TypeError
        The function cannot be called.
    ValueError
        There is no such field.

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
    ):
        super().__init__(atomgroup)
        field_bits(fields)
        self.fields = fields
        if not callable(function):
            raise TypeError(f"expected a function of a block, found {type(function).__name__}")
        self.function = function

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Masses, charges and names, where the topology has them."""
        found = {}
        for name in ("masses", "charges", "names"):
            values = getattr(self.atomgroup, name, None)
            if values is not None:
                # Names come as objects; fixed-width text is smaller to send.
                found[name] = np.asarray(values, dtype=str if name == "names" else float)
        return found

    @property
    def _function_name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    @property
    def name(self) -> str:
        """What errors call it: by the function's name."""
        return f"{super().name} of {self._function_name}"

    def parameters(self) -> dict[str, Any]:
        """The function's name and the atoms."""
        return {"function": self._function_name, **super().parameters()}

    def prepare(self) -> PerFrame:
        """The function itself."""
        return _Function(self.function)

    def finish(self, value: np.ndarray) -> None:
        """Keep the rows, with frames and times."""
        table = None
        if value.ndim == 1:
            columns = {"frame": self.frames, "time (ps)": self.times, "value": value}
            name = self.parameters()["function"]
            table = Table(columns, "time (ps)", {"value": name}, name)
        self.results = Results(
            table=table,
            provenance=self.record(),
            timeseries=value,
            frames=self.frames,
            times=self.times,
        )


class _Function:
    def __init__(self, function: Callable[[Block], Any]):
        self._function = function

    def compute(self, block: Block) -> np.ndarray:
        return self._function(block)
