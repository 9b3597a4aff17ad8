"""Types of MDAnalysis's objects, which declare none, with the attributes that paceline uses.

Atoms of files without a topology (`paceline.trajectory.frames`) have only `atoms`, `indices` and
`universe`.
"""

from collections.abc import Iterator
from itertools import compress
from typing import Any, Protocol, overload

import numpy as np

from paceline.block import FIELDS


class Timestep(Protocol):
    """Frame: MDAnalysis's `Timestep`, or that of a file without a topology."""

    frame: int
    time: float
    dimensions: np.ndarray | None
    positions: np.ndarray
    velocities: np.ndarray
    forces: np.ndarray
    has_positions: bool
    has_velocities: bool
    has_forces: bool


class Frames(Protocol):
    """Trajectory of a system: MDAnalysis's reader, which shows one frame at a time."""

    filename: Any
    n_atoms: int
    n_frames: int
    ts: Timestep

    def __getitem__(self, frame: int) -> Timestep: ...


class Atom(Protocol):
    """One atom: MDAnalysis's `Atom`."""

    index: int
    mass: float
    residue: object


class System(Protocol):
    """Atoms and their trajectory: MDAnalysis's `Universe`."""

    filename: Any
    trajectory: Frames
    dimensions: np.ndarray | None

    @property
    def atoms(self) -> "Atoms":
        """All atoms."""

    @property
    def residues(self) -> Any:
        """All residues: a `ResidueGroup`."""

    @property
    def segments(self) -> Any:
        """All segments: a `SegmentGroup`."""

    def select_atoms(self, *texts: str, **options: object) -> "Atoms":
        """Select atoms by selection texts."""


class Atoms(Protocol):
    """Atoms of a system: MDAnalysis's `AtomGroup`.

    Its `masses`, `names` and other arrays exist if the topology has them (`attribute_of`).
    """

    @property
    def universe(self) -> System:
        """System of these atoms."""

    @property
    def atoms(self) -> "Atoms":
        """The group itself."""

    @property
    def unique(self) -> "Atoms":
        """Group of the same atoms without duplicates, ordered by index."""

    @property
    def residues(self) -> Any:
        """Residues of these atoms: a `ResidueGroup`."""

    @property
    def bonds(self) -> Any:
        """Bonds in which at least one of these atoms takes part."""

    @property
    def indices(self) -> np.ndarray:
        """Indices in the system, int64, shape (n_atoms,)."""

    @property
    def ix(self) -> np.ndarray:
        """The same array as `indices`; reading it takes a fraction of the time."""

    @property
    def resindices(self) -> np.ndarray:
        """Indices of the atoms' residues, int64, shape (n_atoms,)."""

    @property
    def segindices(self) -> np.ndarray:
        """Indices of the atoms' segments, int64, shape (n_atoms,)."""

    @property
    def masses(self) -> np.ndarray:
        """Masses, u, float64, shape (n_atoms,)."""

    @property
    def charges(self) -> np.ndarray:
        """Charges, e, float64, shape (n_atoms,)."""

    @property
    def positions(self) -> np.ndarray:
        """Positions in the present frame, Å, float32, shape (n_atoms, 3)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Atom]: ...
    @overload
    def __getitem__(self, rows: int) -> Atom: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray | list[int]) -> "Atoms": ...
    def select_atoms(self, *texts: str, **options: object) -> "Atoms":
        """Select some of these atoms by selection texts."""


#: Choice of atoms: a group, all atoms of a system, or a selection text.
Selected = Atoms | System | str


class TopologyAttribute(Protocol):
    """Values of all atoms of a topology, or its bonds."""

    values: Any
    is_guessed: bool


def fields_of(ts: Timestep) -> list[str]:
    """List the fields that a frame holds: "positions", "velocities", "forces"."""
    held = ts.has_positions, ts.has_velocities, ts.has_forces
    return list(compress(FIELDS, held))


def values_of(ts: Timestep, field: str) -> np.ndarray:
    """Get the array of a field that a frame holds, shape (n_atoms, 3)."""
    if field == "positions":
        return ts.positions
    return ts.velocities if field == "velocities" else ts.forces


def attribute_of(atoms: object, name: str) -> Any:
    """Get an attribute of atoms, an atom or a residue; None if the topology has none."""
    return getattr(atoms, name, None)


def topology_of(system: object) -> Any:
    """Get the topology of a system; None for files without a topology."""
    return getattr(system, "_topology", None)


def topology_attribute_of(system: object, name: str) -> TopologyAttribute | None:
    """Get an attribute of a topology; None if it has none, or if there is no topology."""
    return getattr(topology_of(system), name, None)


def residue_name(residue: object) -> str:
    """Name a residue from its topology, as "ALA 5" (empty if it has no name or number)."""
    known = [attribute_of(residue, name) for name in ("resname", "resid")]
    return " ".join(str(value) for value in known if value is not None)
