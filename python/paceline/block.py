"""A row of decoded frames, as an analysis sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: Step number of a frame that was left out; no file can hold it.
DAMAGED_STEP = -(2**63)


class Block:
    """A row of frames, with the atoms that an analysis asked for.

    Its arrays are shared by all analyses of a run, and therefore read-only.

    Attributes
    ----------
    positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
        Å.
    dimensions : numpy.ndarray of float32, shape (n_frames, 6)
        Lengths of the cell (Å) and its angles (degrees); zeros where there is none.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Step numbers of the simulation.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers in the trajectory.
    masses, charges, names : numpy.ndarray, shape (n_atoms,)
        Of the atoms (u, e); `AttributeError` where the topology has none.
    """

    def __init__(
        self,
        decoded: "Decoded",
        columns: np.ndarray | None,
        attributes: Mapping[str, np.ndarray],
    ):
        self._decoded = decoded
        self._columns = columns
        self._attributes = attributes

    @cached_property
    def positions(self) -> np.ndarray:
        """Positions, Å: numpy.ndarray of float32, shape (n_frames, n_atoms, 3)."""
        if self._columns is None:
            return self._decoded.positions
        # Indexing would put atoms before frames in memory, and NumPy's sums into another order:
        # a function would give other bits where it is run together with another analysis.
        positions = np.take(self._decoded.positions, self._columns, axis=1)
        positions.flags.writeable = False
        return positions

    @property
    def raw(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All decoded positions and the columns of them that are this block's (None: all)."""
        return self._decoded.positions, self._columns

    @property
    def dimensions(self) -> np.ndarray:
        """Cells, Å and degrees: numpy.ndarray of float32, shape (n_frames, 6)."""
        return self._decoded.dimensions

    @property
    def times(self) -> np.ndarray:
        """Times, ps: numpy.ndarray of float64, shape (n_frames,)."""
        return self._decoded.times

    @property
    def steps(self) -> np.ndarray:
        """Step numbers: numpy.ndarray of int64, shape (n_frames,)."""
        return self._decoded.steps

    @property
    def frames(self) -> np.ndarray:
        """Frame numbers: numpy.ndarray of int64, shape (n_frames,)."""
        return self._decoded.frames

    def __len__(self) -> int:
        return len(self._decoded.frames)

    def __getitem__(self, rows: slice | np.ndarray) -> "Block":
        return Block(self._decoded[rows], self._columns, self._attributes)

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["_attributes"][name]
        except KeyError:
            raise AttributeError(f"a block of these atoms has no {name!r}") from None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The arrays of a block, all atoms that any analysis asked for."""

    frames: np.ndarray
    positions: np.ndarray
    dimensions: np.ndarray
    times: np.ndarray
    steps: np.ndarray

    def seal(self) -> None:
        """Let nobody write to what all analyses of a run see."""
        for array in (self.frames, self.positions, self.dimensions, self.times, self.steps):
            array.flags.writeable = False

    def __getitem__(self, rows: slice | np.ndarray) -> "Decoded":
        return Decoded(
            self.frames[rows],
            self.positions[rows],
            self.dimensions[rows],
            self.times[rows],
            self.steps[rows],
        )
