"""Type declarations of the MDAnalysis objects and attributes that paceline uses.

MDAnalysis has no type hints. Atoms of files without a topology
(`paceline.trajectory.frames_without_topology`) have only `atoms`, `indices` and `universe`.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import compress
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np

from paceline.block import FIELDS


class Timestep(Protocol):
    """Frame: MDAnalysis's `Timestep`, or the equivalent for a file without a topology."""

    frame: int
    time: float
    dimensions: np.ndarray | None
    positions: np.ndarray
    velocities: np.ndarray
    forces: np.ndarray
    has_positions: bool
    has_velocities: bool
    has_forces: bool

    def copy(self) -> "Timestep":
        """Copy the frame, including its arrays."""


class Frames(Protocol):
    """Trajectory of a system: MDAnalysis's reader, which shows one frame at a time."""

    filename: Any
    n_atoms: int
    n_frames: int
    ts: Timestep

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Timestep]: ...
    def __getitem__(self, frame: int) -> Timestep: ...


class Atom(Protocol):
    """One atom: MDAnalysis's `Atom`."""

    index: int
    mass: float
    name: str
    resid: int
    resname: str
    residue: object


class Residues(Protocol):
    """Residues of a system: MDAnalysis's `ResidueGroup`."""

    @property
    def universe(self) -> "System":
        """System of these residues."""

    @property
    def atoms(self) -> "Atoms":
        """Atoms of these residues."""

    @property
    def residues(self) -> "Residues":
        """The residues themselves."""

    @property
    def unique(self) -> "Residues":
        """Group of the same residues without duplicates, ordered by index."""

    @property
    def resindices(self) -> np.ndarray:
        """Indices in the system, int64, shape (n_residues,)."""

    @property
    def ix(self) -> np.ndarray:
        """The same array as `resindices`."""

    @property
    def resids(self) -> np.ndarray:
        """Residue numbers (resids), int64, shape (n_residues,)."""

    @property
    def resnames(self) -> np.ndarray:
        """Residue names, str, shape (n_residues,)."""

    @property
    def segids(self) -> np.ndarray:
        """Segment names of the residues, str, shape (n_residues,)."""

    @property
    def segindices(self) -> np.ndarray:
        """Segment indices of the residues, int64, shape (n_residues,)."""

    def difference(self, other: "Residues") -> "Residues":
        """Return the residues that are not in `other`."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator["Residue"]: ...
    @overload
    def __getitem__(self, rows: int) -> "Residue": ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray | list[int]) -> "Residues": ...


class Residue(Protocol):
    """One residue: MDAnalysis's `Residue`."""

    @property
    def atoms(self) -> "Atoms":
        """Atoms of this residue."""

    resindex: int
    resid: int
    resname: str


class Bonds(Protocol):
    """Bonds of a system: MDAnalysis's `TopologyGroup`."""

    @property
    def indices(self) -> np.ndarray:
        """Indices of the bonded atoms, int32, shape (n_bonds, 2)."""

    def __len__(self) -> int: ...


class System(Protocol):
    """Atoms and their trajectory: MDAnalysis's `Universe`."""

    filename: Any
    trajectory: Frames
    dimensions: np.ndarray | None

    @property
    def universe(self) -> "System":
        """The system itself."""

    @property
    def atoms(self) -> "Atoms":
        """All atoms."""

    @property
    def residues(self) -> Residues:
        """All residues."""

    def copy(self) -> "System":
        """Copy the system; the copy has its own trajectory reader."""

    @property
    def segments(self) -> Any:
        """All segments: a `SegmentGroup`."""

    def select_atoms(self, *texts: str, **options: object) -> "Atoms":
        """Select atoms by selection texts."""


class NoFramesYet(Exception):
    """Signal that a frame is needed from a stream that is not connected yet."""


@runtime_checkable
class ConnectsLater(Protocol):
    """Universe of a stream that is connected when a frame is first needed."""

    def offline(self) -> AbstractContextManager[None]:
        """During a `with` block, raise `NoFramesYet` instead of connecting to the stream."""


def offline(universe: object) -> AbstractContextManager[None]:
    """During a `with` block, raise `NoFramesYet` instead of connecting to a Universe's stream."""
    return universe.offline() if isinstance(universe, ConnectsLater) else nullcontext()


class Atoms(Protocol):
    """Atoms of a system: MDAnalysis's `AtomGroup`.

    `masses`, `names` and other arrays exist only if the topology has them (`attribute_of`).
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
    def residues(self) -> Residues:
        """Residues of these atoms."""

    @property
    def bonds(self) -> Bonds:
        """Bonds of which at least one atom is in this group."""

    @property
    def indices(self) -> np.ndarray:
        """Indices in the system, int64, shape (n_atoms,)."""

    @property
    def ix(self) -> np.ndarray:
        """The same array as `indices`, but several times faster to read."""

    @property
    def resindices(self) -> np.ndarray:
        """Residue indices of the atoms, int64, shape (n_atoms,)."""

    @property
    def segindices(self) -> np.ndarray:
        """Segment indices of the atoms, int64, shape (n_atoms,)."""

    @property
    def masses(self) -> np.ndarray:
        """Masses, u, float64, shape (n_atoms,)."""

    @property
    def charges(self) -> np.ndarray:
        """Charges, e, float64, shape (n_atoms,)."""

    @property
    def ids(self) -> np.ndarray:
        """Atom ids from the topology file, int64, shape (n_atoms,)."""

    @property
    def names(self) -> np.ndarray:
        """Atom names, str, shape (n_atoms,)."""

    @property
    def types(self) -> np.ndarray:
        """Atom types, str, shape (n_atoms,)."""

    @property
    def resids(self) -> np.ndarray:
        """Residue numbers (resids) of the atoms, int64, shape (n_atoms,)."""

    @property
    def resnames(self) -> np.ndarray:
        """Residue names of the atoms, str, shape (n_atoms,)."""

    @property
    def positions(self) -> np.ndarray:
        """Positions in the current frame, Å, float32, shape (n_atoms, 3)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Atom]: ...
    @overload
    def __getitem__(self, rows: int) -> Atom: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray | list[int]) -> "Atoms": ...
    def __sub__(self, other: "Atoms") -> "Atoms": ...
    def __or__(self, other: "Atoms") -> "Atoms": ...
    def select_atoms(self, *texts: str, **options: object) -> "Atoms":
        """Select some of these atoms by selection texts."""

    def write(self, path: str, *, frames: str | None = None) -> None:
        """Write these atoms to a file: the current frame, or all frames with `frames="all"`."""


class UpdatingAtoms(Atoms, Protocol):
    """Atoms that a selection chooses again in each frame: MDAnalysis's `UpdatingAtomGroup`."""

    is_uptodate: bool
    _base_group: Atoms
    _selections: Sequence[Any]
    _selection_strings: Sequence[str]


#: Choice of atoms: a group, all atoms of a system, or a selection text.
Selected = Atoms | System | str


class TopologyAttribute(Protocol):
    """Topology attribute: a value for each atom, or the bonds."""

    values: Any
    is_guessed: bool


def fields_of(ts: Timestep) -> list[str]:
    """List the fields that a frame contains, of "positions", "velocities" and "forces"."""
    held = ts.has_positions, ts.has_velocities, ts.has_forces
    return list(compress(FIELDS, held))


def values_of(ts: Timestep, field: str) -> np.ndarray:
    """Return the array of a field of a frame, shape (n_atoms, 3)."""
    if field == "positions":
        return ts.positions
    return ts.velocities if field == "velocities" else ts.forces


def set_values(ts: Timestep, field: str, values: np.ndarray) -> None:
    """Set the array of a field of a frame, shape (n_atoms, 3)."""
    if field == "positions":
        ts.positions = values
    elif field == "velocities":
        ts.velocities = values
    else:
        ts.forces = values


def positions_in(trajectory: Frames, atoms: np.ndarray | None = None) -> np.ndarray:
    """Return the positions of atoms (None: all) in the current frame, Å, shape (n_atoms, 3).

    Positions of atoms that the Universe has not loaded are read from its files.
    """
    loaded = attribute_of(trajectory, "loaded")
    if loaded is not None and not loaded.has(atoms):
        stored: np.ndarray = trajectory.stored_positions(atoms)  # type: ignore[attr-defined]
        return stored
    return trajectory.ts.positions if atoms is None else trajectory.ts.positions[atoms]


def attribute_of(atoms: object, name: str) -> Any:
    """Return an attribute of atoms, residues, a topology or a trajectory; None if it is missing."""
    return getattr(atoms, name, None)


def trajectory_name(system: System) -> str:
    """Name of the trajectory's file; for the temporary file of a stream, the stream's address."""
    trajectory = system.trajectory
    return f"{attribute_of(trajectory, 'came_from') or trajectory.filename}"


def frames_shown(values: Sequence[object]) -> dict[int, int]:
    """Map the `id` of each system to its current frame, for the systems of the given atoms.

    Each value may be a group of atoms or a list of groups; other values are ignored.
    """
    found: dict[int, int] = {}
    for value in values:
        several = isinstance(value, list | tuple)
        for one in value if several else (value,):  # type: ignore[attr-defined]
            universe = attribute_of(one, "universe")
            if universe is None:
                continue
            frame = None
            with suppress(NoFramesYet), offline(universe):
                frame = attribute_of(attribute_of(universe, "trajectory"), "frame")
            if frame is not None:
                found[id(universe)] = int(frame)
    return found


def are_several(groups: object) -> bool:
    """True for a sequence of groups of atoms; False for a single group."""
    return isinstance(groups, Sequence) and attribute_of(groups, "atoms") is None


def has_attribute(atoms: object, name: str) -> bool:
    """True if the topology of atoms or residues has an attribute."""
    return attribute_of(atoms, name) is not None


def topology_of(system: object) -> Any:
    """Return the topology of a system; None for files without a topology."""
    try:
        return system._topology  # type: ignore[attr-defined]
    except AttributeError:
        return None


def topology_attributes_of(system: object, *names: str) -> "list[TopologyAttribute | None]":
    """Return attributes of a system's topology; None for those that it lacks."""
    topology = topology_of(system)
    return [getattr(topology, name, None) for name in names]


def residue_name(residue: object) -> str:
    """Name a residue from its topology, as "ALA 5"; empty if it has neither name nor number."""
    known = [attribute_of(residue, name) for name in ("resname", "resid")]
    return " ".join(str(value) for value in known if value is not None)
