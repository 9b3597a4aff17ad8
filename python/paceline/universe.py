"""A genuine MDAnalysis Universe on our reader."""

import os
from typing import Any

import MDAnalysis
from MDAnalysis.lib.util import NamedStream

from paceline import _core
from paceline.errors import AtomCountError
from paceline.reader import Reader

#: Parts of a system that are often written alone.
_USUAL_PARTS = (
    "protein",
    "not resname SOL WAT HOH",
    "not (water or resname NA CL K MG CA ZN NA+ CL- K+ MG2+ CA2+ SOD CLA POT CAL)",
)


class Universe(MDAnalysis.Universe):
    """An `MDAnalysis.Universe` whose trajectory is read by paceline where it can be.

    XTC and DCD are recognised by their content. Everything else is read by MDAnalysis's own
    reader, as if the Universe were an ordinary one. All arguments are MDAnalysis's.

    Parameters
    ----------
    topology : path-like or MDAnalysis.core.topology.Topology
        The system.
    *coordinates : path-like
        Trajectories, one after another.
    **kwargs
        As for `MDAnalysis.Universe`.

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

    def load_new(self, filename: Any, format: Any = None, **kwargs: Any) -> "Universe":
        """Replace the trajectory; see `MDAnalysis.Universe.load_new`."""
        names = list(filename) if isinstance(filename, list | tuple) else [filename]
        if format is not None or not any(map(is_ours, names)):
            return super().load_new(filename, format=format, **kwargs)
        try:
            if len(names) == 1:
                return super().load_new(names[0], format=Reader, **kwargs)
            # MDAnalysis hides what its chain of readers is told; so each member is asked first.
            for name in filter(is_ours, names):
                Reader(name, n_atoms=len(self.atoms), **kwargs)
            members = [(name, Reader) if is_ours(name) else name for name in names]
            return super().load_new(members, **kwargs)
        except AtomCountError as error:
            raise AtomCountError(f"{error}{self._advice(error.found)}") from None

    def _advice(self, n_atoms: int) -> str:
        """What part of the topology has as many atoms as the trajectory."""
        for selection in _USUAL_PARTS:
            try:
                part = self.select_atoms(selection)
            except MDAnalysis.SelectionError:
                continue
            if len(part) == n_atoms:
                return (
                    f'; the selection "{selection}" of the topology has {n_atoms}: '
                    "make a topology of it, or load the trajectory that holds all atoms"
                )
        return ""


def is_ours(filename: Any) -> bool:
    """Whether a trajectory is for our reader: by content, or, where that is damaged, by name."""
    if not isinstance(filename, str | os.PathLike) or isinstance(filename, NamedStream):
        return False
    if os.path.splitext(filename)[1].lower() in (".xtc", ".dcd"):
        return True
    return os.path.isfile(filename) and _core.detect_format(os.fspath(filename)) is not None
