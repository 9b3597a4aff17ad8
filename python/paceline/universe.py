"""A genuine MDAnalysis Universe on our reader."""

import os
import time
from pathlib import Path
from typing import Any

import MDAnalysis
from MDAnalysis.lib.util import NamedStream

from paceline import _core
from paceline.errors import AtomCountError, PacelineError
from paceline.reader import Reader

#: Names of the formats that our reader decodes, as MDAnalysis calls them.
_FORMATS = ("XTC", "TRR", "DCD")

#: Parts of a system that are often written alone.
_USUAL_PARTS = (
    "protein",
    "not resname SOL WAT HOH",
    "not (water or resname NA CL K MG CA ZN NA+ CL- K+ MG2+ CA2+ SOD CLA POT CAL)",
)


class Universe(MDAnalysis.Universe):  # numpydoc ignore=PR02
    """An `MDAnalysis.Universe` whose trajectory is read by paceline where it can be.

    XTC, TRR and DCD are recognised by their content. Everything else is read by MDAnalysis's own
    reader, as if the Universe were an ordinary one. All arguments are MDAnalysis's.

    Parameters
    ----------
    topology : path-like or MDAnalysis.core.topology.Topology
        The system.
    *coordinates : path-like
        Trajectories, one after another.
    **kwargs
        As for `MDAnalysis.Universe`.

    Attributes
    ----------
    t_init_top : float
        Parsing the topology, and making atoms of it, s.

    Raises
    ------
    AtomCountError
        A trajectory has another number of atoms than the topology.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> paceline.Universe(PSF, DCD).trajectory.n_frames
    98
    """

    def __init__(self, topology: Any = None, *coordinates: Any, **kwargs: Any):
        begun = time.perf_counter()
        super().__init__(topology, *coordinates, **kwargs)
        opening = getattr(self._trajectory, "t_init", 0.0)
        self.t_init_top = time.perf_counter() - begun - opening

    def load_new(self, filename: Any, format: Any = None, *args: Any, **kwargs: Any) -> "Universe":
        """Replace the trajectory; see `MDAnalysis.Universe.load_new`."""
        while isinstance(filename, list | tuple) and len(filename) == 1:
            filename = filename[0]
        if isinstance(filename, list | tuple):
            filename = [_chain_member(name, format) for name in filename]
        elif is_ours(filename, format):
            format = Reader
        try:
            return super().load_new(filename, format, *args, **kwargs)
        except (AtomCountError, TypeError) as error:
            # MDAnalysis's chain of readers raises a TypeError without its reason.
            reason = error.__context__ if isinstance(error, TypeError) else error
            if isinstance(reason, AtomCountError):
                reason.args = (f"{reason}; {self._advice(reason.found)}",)
            if isinstance(reason, PacelineError):
                raise reason from None
            raise

    def _advice(self, n_atoms: int) -> str:
        """What to do about a trajectory of `n_atoms` that the topology does not fit."""
        if n_atoms > len(self.atoms):
            return "load it with sub=, the indices in the trajectory of the topology's atoms"
        for selection in _USUAL_PARTS:
            try:
                part = self.select_atoms(selection)
            except MDAnalysis.SelectionError:
                continue
            if len(part) == n_atoms:
                return (
                    f'the selection "{selection}" of the topology has {n_atoms}: '
                    "make a topology of it, or load the trajectory that holds all atoms"
                )
        return "load the topology that the trajectory was written with"


def is_ours(filename: Any, format: Any = None) -> bool:
    """Whether a trajectory is for our reader: by content, or, where that is damaged, by name.

    Parameters
    ----------
    filename : path-like or object
        What MDAnalysis was given as a trajectory.
    format : str or type, optional
        What format MDAnalysis was told it has.

    Returns
    -------
    bool
    """
    if not isinstance(filename, str | os.PathLike) or isinstance(filename, NamedStream):
        return False
    if format is not None:
        return isinstance(format, str) and format.upper() in _FORMATS
    if Path(filename).suffix[1:].upper() in _FORMATS:
        return True
    return os.path.isfile(filename) and _core.detect_format(os.fspath(filename)) is not None


def _chain_member(filename: Any, format: Any) -> Any:
    """What MDAnalysis's chain of readers takes for a file: its name, and how it is to be read."""
    given = filename
    if isinstance(given, tuple) and len(given) == 2:
        filename, format = given
    return (os.fspath(filename), Reader) if is_ours(filename, format) else given
