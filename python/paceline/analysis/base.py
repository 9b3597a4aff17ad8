"""What every analysis is made of, and one for any function.

An analysis has two halves. The one that the user holds knows MDAnalysis's objects: it names its
atoms (`indices`), makes the other half (`prepare`) and turns what comes back into results
(`finish`). The other half travels to the workers: a small object with `compute`, and with `merge`
where all frames give one result.
"""

import platform
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from paceline.analysis.results import Results, Table

from paceline.runner import run
from paceline.timing import Timings
from paceline.worker import Block, PerFrame, Reduction


class AnalysisBase:
    """An analysis of the atoms of one group.

    Parameters
    ----------
    atomgroup : MDAnalysis.core.groups.AtomGroup
        The atoms.

    Attributes
    ----------
    results : Results
        Empty before `run`.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers that were analysed.
    times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps; NaN for frames that were left out.
    damaged : list of (int, str)
        Frames that were left out, and why.
    timings : Timings
        Who did what, when, for how long.
    """

    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: Timings
    provenance: dict[str, Any]

    def __init__(self, atomgroup: Any):
        self.atomgroup = atomgroup.atoms
        self.results = Results()

    @property
    def indices(self) -> np.ndarray:
        """Atoms wanted, in the order in which the computation wants them."""
        return self.atomgroup.indices

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """What of the atoms, beside their positions, the computation wants to see."""
        return {}

    @property
    def n_frames(self) -> int:
        """Number of frames that were analysed."""
        return len(self.frames)

    def parameters(self) -> dict[str, Any]:
        """What was asked for, for the record that is saved with the results."""
        return {"atoms": describe_atoms(self.atomgroup)}

    def prepare(self) -> PerFrame | Reduction:
        """Make the worker's half.

        Returns
        -------
        object
            With `compute(block)`; and with `merge(left, right)` where all frames give one result.
            It is pickled, and must hold no MDAnalysis object.
        """
        raise TypeError(f"{type(self).__name__} does not say how to prepare itself")

    def finish(self, value: Any) -> None:
        """Fill `results`.

        Parameters
        ----------
        value : numpy.ndarray or object
            All frames' rows, or the merged partial result.
        """
        raise TypeError(f"{type(self).__name__} does not say how to finish")

    def run(self, **options: Any) -> Self:
        """Run this analysis alone; see `paceline.run` for the options."""
        run(self, **options)
        return self

    def record(self) -> dict[str, Any]:
        """Files, fingerprints, versions and parameters of the last run."""
        import paceline

        return {
            "paceline": paceline.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            **self.provenance,
            "analysis": type(self).__name__,
            **self.parameters(),
            "frames analysed": describe_frames(self.frames),
            "damaged frames": [frame for frame, _ in self.damaged] or "none",
        }


def describe_atoms(atomgroup: Any) -> str:
    """Number of atoms, and their indices where they are few runs."""
    indices = atomgroup.indices
    runs = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
    text = " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:20])
    return f"{len(indices)} atoms, indices {text}{' …' if len(runs) > 20 else ''}"


def describe_frames(frames: np.ndarray) -> str:
    """Frames as start:stop:step where they are that, else their number and the ends."""
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
        Takes a block (`paceline.worker.Block`: `positions`, `dimensions`, `times`, `steps`,
        `frames`, and the atoms' `masses`, `charges`, `names`) and returns an array whose first
        axis is the block's frames. Blocks are cut anywhere: a row must depend on its frame alone.
    atomgroup : MDAnalysis.core.groups.AtomGroup
        Atoms whose positions the function sees, in this order.

    Attributes
    ----------
    results.timeseries : numpy.ndarray, shape (n_frames, …)
        What the function returned.
    results.frames, results.times : numpy.ndarray, shape (n_frames,)
        Frame numbers, and times in ps.

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

    def __init__(self, function: Callable[[Block], Any], atomgroup: Any):
        super().__init__(atomgroup)
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

    def parameters(self) -> dict[str, Any]:
        """The function's name and the atoms."""
        name = getattr(self.function, "__qualname__", repr(self.function))
        return {"function": name, **super().parameters()}

    def prepare(self) -> PerFrame:
        """The function itself."""
        return _Function(self.function)

    def finish(self, value: np.ndarray) -> None:
        """Keep the rows, with frames and times."""
        table = None
        if value.ndim == 1:
            columns = {"frame": self.frames, "time (ps)": self.times, "value": value}
            table = Table(columns, "time (ps)", ("value",), self.parameters()["function"])
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
