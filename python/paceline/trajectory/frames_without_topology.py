"""Frames and atoms of files that were opened without a topology."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, overload

import numpy as np

from paceline.block import FIELDS
from paceline.contract.plan import numbers_of
from paceline.errors import MissingDataError


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """One frame of a trajectory. Later frames never overwrite its arrays.

    Attributes
    ----------
    filename : str
        File that contains the frame.
    frame : int
        Number of the frame in the trajectory.
    time : float
        Time of the frame, ps.
    step : int
        Step number of the simulation.
    dimensions : numpy.ndarray of float32, shape (6,), or None
        Cell lengths (Å) and angles (degrees); None without a cell.
    positions, velocities, forces : numpy.ndarray of float32, shape (n_atoms, 3)
        Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)). Reading an attribute raises
        `MissingDataError` if the frame lacks the field.
    has_positions, has_velocities, has_forces : bool
        True if the frame contains the field.
    """

    filename: str
    frame: int
    time: float
    step: int
    dimensions: np.ndarray | None
    #: Cell as a row of `FrameBuffer.cells`, shape (19,).
    cell: np.ndarray
    _fields: Mapping[str, np.ndarray]

    @property
    def positions(self) -> np.ndarray:
        """Positions, Å: ndarray of float32, shape (n_atoms, 3)."""
        return self._field("positions")

    @property
    def velocities(self) -> np.ndarray:
        """Velocities, Å/ps: ndarray of float32, shape (n_atoms, 3)."""
        return self._field("velocities")

    @property
    def forces(self) -> np.ndarray:
        """Forces, kJ/(mol·Å): ndarray of float32, shape (n_atoms, 3)."""
        return self._field("forces")

    @property
    def has_positions(self) -> bool:
        """True if the frame contains positions."""
        return "positions" in self._fields

    @property
    def has_velocities(self) -> bool:
        """True if the frame contains velocities."""
        return "velocities" in self._fields

    @property
    def has_forces(self) -> bool:
        """True if the frame contains forces."""
        return "forces" in self._fields

    def _field(self, field: str) -> np.ndarray:
        try:
            return self._fields[field]
        except KeyError:
            held = " and ".join(name for name in FIELDS if name in self._fields) or "nothing"
            raise MissingDataError(
                f"{self.filename}: frame {self.frame} has no {field}; it holds {held}"
            ) from None

    def __repr__(self) -> str:
        held = ", ".join(name for name in FIELDS if name in self._fields)
        return f"<{type(self).__name__} {self.frame} at {self.time:g} ps: {held}>"


class _Files(Protocol):
    """Files whose frames are read by number."""

    @property
    def filename(self) -> str: ...

    def read_frame(self, number: int) -> Frame: ...

    def iter_frames(self, numbers: np.ndarray) -> Iterator[Frame]: ...


class FrameSequence:
    """Selected frames of a trajectory, read on demand."""

    def __init__(self, trajectory: _Files, numbers: np.ndarray):
        self._trajectory = trajectory
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Frame]:
        return self._trajectory.iter_frames(self._numbers)

    @overload
    def __getitem__(self, frames: int) -> Frame: ...
    @overload
    def __getitem__(
        self, frames: slice | Sequence[int] | Sequence[bool] | np.ndarray
    ) -> "FrameSequence": ...
    def __getitem__(self, frames: object) -> "Frame | FrameSequence":
        """Read one of these frames, or select several; indices count within this sequence."""
        if isinstance(frames, slice):
            return FrameSequence(self._trajectory, self._numbers[frames])
        if isinstance(frames, int | np.integer):
            row = numbers_of([frames], len(self), "frame")[0]
            return self._trajectory.read_frame(int(self._numbers[row]))
        chosen = numbers_of(frames, len(self), "frame")
        return FrameSequence(self._trajectory, self._numbers[chosen])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} frames of {self._trajectory.filename}>"


class FileAtoms:
    """Atoms, given by indices, of files opened without a topology; analyses accept this object."""

    def __init__(self, trajectory: Any, indices: np.ndarray):
        self.universe = trajectory
        self.indices = indices

    @property
    def atoms(self) -> Self:
        """These atoms themselves: analyses read the attribute `atoms` of a group."""
        return self

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(
        self, atoms: slice | Sequence[int] | Sequence[bool] | np.ndarray
    ) -> "FileAtoms":
        """Select some of these atoms, in any order; indices count within this group."""
        rows = atoms if isinstance(atoms, slice) else numbers_of(atoms, len(self), "atom")
        return FileAtoms(self.universe, self.indices[rows])

    def select_atoms(self, *selections: str, **groups: Any) -> Any:
        """Raise `UnsupportedError`, because a selection needs a topology."""
        return self.universe.select_atoms(*selections, **groups)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python itself looks up these names
            raise AttributeError(name)
        raise AttributeError(
            f"atoms of files that were opened without a topology have no {name!r}: "
            "paceline.Universe takes a topology"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} atoms of {self.universe.filename}>"
