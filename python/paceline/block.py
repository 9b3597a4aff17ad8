"""Blocks of adjacent decoded frames, as analyses receive them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from paceline import _core

#: Fields that a frame may contain; the Rust core represents them by the bits 1, 2, 4.
FIELDS = ("positions", "velocities", "forces")

#: Width of a row of `FrameBuffer.cells`.
CELL_WIDTH = 19
#: Columns of a row: lengths and angles of the cell; its vectors; its origin; the bits that mark
#: periodic vectors.
_DIMENSIONS, _VECTORS, _ORIGIN, PERIODIC = slice(0, 6), slice(6, 15), slice(15, 18), 18

#: Result of the validity check for a frame without fields.
_NOTHING_FOUND = (-1.0, -1.0, -1.0, np.nan, np.nan)

#: Step number that marks a skipped frame; no file can contain it.
DAMAGED_STEP = -(2**63)


def field_bits(fields: Sequence[str]) -> int:
    """Encode fields as bits; raise `ValueError` for an unknown field.

    Examples
    --------
    >>> field_bits(["positions", "forces"])
    5
    """
    for field in fields:
        if field not in FIELDS:
            raise ValueError(f"expected fields out of {', '.join(FIELDS)}, found {field!r}")
    return sum(1 << FIELDS.index(field) for field in set(fields))


def fields_in(bits: int) -> tuple[str, ...]:
    """Decode bits to fields.

    Examples
    --------
    >>> fields_in(5)
    ('positions', 'forces')
    """
    return tuple(field for k, field in enumerate(FIELDS) if bits >> k & 1)


def dimensions_of(cells: np.ndarray) -> np.ndarray:
    """Return lengths and angles of cells, Å and degrees, float32, shape (n_frames, 6)."""
    return cells[:, _DIMENSIONS].astype(np.float32)


def vectors_of(cells: np.ndarray) -> np.ndarray:
    """Return cell vectors, Å, float64, shape (n_frames, 3, 3)."""
    return cells[:, _VECTORS].reshape(-1, 3, 3)


def periodic_vectors(cells: np.ndarray) -> np.ndarray:
    """Return a mask of vectors along which the system is periodic, bool, shape (n_frames, 3)."""
    flags = np.nan_to_num(cells[:, PERIODIC]).astype(np.uint8)
    return (flags[:, np.newaxis] >> np.arange(3, dtype=np.uint8) & 1).astype(bool)


def upright_vectors(cells: np.ndarray) -> np.ndarray:
    """Compute cell vectors from lengths and angles, Å, float64, shape (n_frames, 3, 3)."""
    return vectors_of(_core.cells_of_dimensions(dimensions_of(cells)))


def cell_of(trajectory: Any) -> np.ndarray:
    """Return the cell of a trajectory's current frame as a row of `FrameBuffer.cells`.

    The result is float64, shape (1, 19). MDAnalysis's readers provide lengths and angles only.
    """
    cell = getattr(trajectory, "cell", None)
    dimensions = trajectory.ts.dimensions
    # Use the reader's cell unless a transformation of MDAnalysis or a script has replaced the cell
    # of the Timestep.
    if (
        cell is not None
        and dimensions is not None
        and np.array_equal(cell[:6].astype(np.float32), dimensions)
    ):
        return without_placeholders(cell[np.newaxis].copy(), trajectory.n_atoms)
    given = np.zeros(6) if dimensions is None else dimensions
    cells = _core.cells_of_dimensions(np.array([given], dtype=np.float32))
    return without_placeholders(cells, trajectory.n_atoms)


#: Cell that structure files state if a system has none (Å and degrees), and the relative tolerance
#: for recognising it.
PLACEHOLDER, ROUNDED = np.array([1.0, 1.0, 1.0, 90.0, 90.0, 90.0]), 1e-5
#: A cell is a placeholder if the product of its lengths is smaller than this volume per atom, Å³.
#: For comparison: 5.7 in diamond, 0.9 in a Lennard-Jones solid in reduced units.
LEAST_VOLUME = 0.1


def are_placeholders(cells: np.ndarray, n_atoms: int) -> np.ndarray:
    """Return a mask of the cells that stand for a missing cell: bool, shape (n_frames,).

    A placeholder is 1 × 1 × 1 Å with right angles, or much too small for the atoms of a frame.
    """
    # Do not use `numpy.isclose`, which takes as long as the analysis of about ten frames.
    close = np.abs(cells[:, _DIMENSIONS] - PLACEHOLDER) <= ROUNDED * PLACEHOLDER
    found = close.all(axis=1)
    largest = cells[:, :3].prod(axis=1)
    return found | ((largest > 0) & (largest < LEAST_VOLUME * n_atoms))


def without_placeholders(cells: np.ndarray, n_atoms: int) -> np.ndarray:
    """Mark placeholder cells as missing, in place; other cells do not change."""
    found = are_placeholders(cells, n_atoms)
    if found.any():
        cells[found] = _core.cells_of_dimensions(np.zeros((1, 6), np.float32))
    return cells


class Block:
    """Adjacent frames with the atoms that an analysis needs.

    In a run, all analyses share the arrays, which are therefore read-only.

    Attributes
    ----------
    positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
        Positions, Å.
    velocities : the same
        Velocities, Å/ps; `AttributeError` if the analysis did not request them.
    forces : the same
        Forces, kJ/(mol·Å); `AttributeError` if the analysis did not request them.
    dimensions : numpy.ndarray of float32, shape (n_frames, 6)
        Lengths of the cell (Å) and its angles (degrees); zeros for frames without a cell.
    cell_vectors : numpy.ndarray of float64, shape (n_frames, 3, 3)
        Cell vectors as rows, Å, in the orientation of the positions; zeros for frames without a
        cell.
    cell_origins : numpy.ndarray of float64, shape (n_frames, 3)
        Corner of the cell from which the vectors start, Å.
    periodic : numpy.ndarray of bool, shape (n_frames, 3)
        True for vectors along which the system is periodic.
    times : numpy.ndarray of float64, shape (n_frames,)
        Times, ps.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Step numbers of the simulation.
    lambdas : numpy.ndarray of float32, shape (n_frames,)
        λ of a free-energy run, from TRR and H5MD files; otherwise 0.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers in the trajectory.
    masses, charges, names : numpy.ndarray, shape (n_atoms,)
        Attributes of the atoms (u, e); `AttributeError` if the topology lacks them.
    resindices : numpy.ndarray of int64, shape (n_atoms,)
        Residue index of each atom in its Universe, as in MDAnalysis.
    resids, resnames, segids : numpy.ndarray, shape (n_atoms,)
        Attributes of each atom's residue and segment; `AttributeError` if the topology lacks them.
    """

    def __init__(
        self,
        decoded: "FrameBuffer",
        columns: np.ndarray | None,
        attributes: Mapping[str, np.ndarray],
    ):
        self._decoded = decoded
        self._columns = columns
        self._attributes = attributes

    #: For an UpdatingAtomGroup: the columns of its atoms in each frame.
    selected: list[np.ndarray]

    @cached_property
    def positions(self) -> np.ndarray:
        """Positions, Å: numpy.ndarray of float32, shape (n_frames, n_atoms, 3)."""
        return self._of_atoms("positions")

    @cached_property
    def velocities(self) -> np.ndarray:
        """Velocities, Å/ps: numpy.ndarray of float32, shape (n_frames, n_atoms, 3)."""
        return self._of_atoms("velocities")

    @cached_property
    def forces(self) -> np.ndarray:
        """Forces, kJ/(mol·Å): numpy.ndarray of float32, shape (n_frames, n_atoms, 3)."""
        return self._of_atoms("forces")

    def _decoded_field(self, field: str) -> np.ndarray:
        decoded = self._decoded
        values = decoded.validity if field == "validity" else decoded.values_of(field)
        if values is None:
            raise AttributeError(field)  # Python then calls `__getattr__`, which adds a message
        return values

    def values_of(self, field: str) -> np.ndarray:
        """Return the same array as the property that is named `field`."""
        if field == "positions":
            return self.positions
        return self.velocities if field == "velocities" else self.forces

    def _of_atoms(self, field: str) -> np.ndarray:
        values = self._decoded_field(field)
        if self._columns is None:
            return values
        # Indexing instead of `take` would change the memory order of atoms and frames, and thus the
        # order in which NumPy sums: results would depend on the analyses that run together.
        values = np.take(values, self._columns, axis=1)
        values.flags.writeable = False
        return values

    @property
    def raw(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return positions of all decoded atoms, and columns of this block's atoms (None: all)."""
        return self._decoded_field("positions"), self._columns

    @property
    def validity(self) -> np.ndarray:
        """Validity check (see `FrameBuffer`): numpy.ndarray of float64, shape (n_frames, 5)."""
        return self._decoded_field("validity")

    @cached_property
    def dimensions(self) -> np.ndarray:
        """Cells, Å and degrees: numpy.ndarray of float32, shape (n_frames, 6)."""
        dimensions = self._decoded.dimensions
        dimensions.flags.writeable = False
        return dimensions

    @property
    def cells(self) -> np.ndarray:
        """Cells in the layout of `FrameBuffer`: numpy.ndarray of float64, shape (n_frames, 19)."""
        return self._decoded.cells

    @property
    def cell_vectors(self) -> np.ndarray:
        """Cell vectors, Å: numpy.ndarray of float64, shape (n_frames, 3, 3)."""
        return vectors_of(self.cells)

    @property
    def cell_origins(self) -> np.ndarray:
        """Corners from which vectors start, Å: numpy.ndarray of float64, shape (n_frames, 3)."""
        return self.cells[:, _ORIGIN]

    @property
    def periodic(self) -> np.ndarray:
        """Mask of periodic vectors: numpy.ndarray of bool, shape (n_frames, 3)."""
        return periodic_vectors(self.cells)

    @property
    def times(self) -> np.ndarray:
        """Times, ps: numpy.ndarray of float64, shape (n_frames,)."""
        return self._decoded.times

    @property
    def steps(self) -> np.ndarray:
        """Step numbers: numpy.ndarray of int64, shape (n_frames,)."""
        return self._decoded.steps

    @property
    def lambdas(self) -> np.ndarray:
        """Values of λ: numpy.ndarray of float32, shape (n_frames,)."""
        return self._decoded.lambdas

    @property
    def frames(self) -> np.ndarray:
        """Frame numbers: numpy.ndarray of int64, shape (n_frames,)."""
        return self._decoded.frames

    @property
    def held(self) -> np.ndarray:
        """Fields of each frame as bits (see `field_bits`): ndarray of uint8, shape (n_frames,)."""
        return self._decoded.fields

    def __len__(self) -> int:
        return len(self._decoded.frames)

    def __getitem__(self, rows: slice | np.ndarray) -> "Block":
        return Block(self._decoded[rows], self._columns, self._attributes)

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            values = self.__dict__["_attributes"][name].view()
        except KeyError:
            why = ": they were not asked for (fields=)" if name in FIELDS else ""
            raise AttributeError(f"a block of these atoms has no {name!r}{why}") from None
        # All blocks share these arrays. Arrays that were sent to another process are writeable
        # there.
        values.flags.writeable = False
        return values


def check_refused(block: Block, refused: tuple[int, str] | None) -> None:
    """Raise `ValueError` with the frame number if a kernel has refused a row.

    `refused` is the row in the block and the kernel's reason, or None.
    """
    if refused is not None:
        row, reason = refused
        raise ValueError(f"frame {block.frames[row]}: {reason}")


class AtomAttributes(Mapping[str, np.ndarray]):
    """Attributes of atoms by name; attributes of residues are stored once per residue.

    `residues` contains each atom's row in the arrays of `of_residues`.

    Examples
    --------
    >>> names = AtomAttributes({}, np.array([0, 0, 1]), {"resnames": np.array(["MET", "ARG"])})
    >>> names["resnames"].tolist()
    ['MET', 'MET', 'ARG']
    """

    def __init__(
        self,
        of_atoms: Mapping[str, np.ndarray],
        residues: np.ndarray,
        of_residues: Mapping[str, np.ndarray],
    ):
        self._of_atoms = dict(of_atoms)
        self._residues = residues
        self._of_residues = dict(of_residues)

    def __getitem__(self, name: str) -> np.ndarray:
        # Threads share this object: entries are added and never removed, because another thread
        # may use them.
        if name not in self._of_atoms:
            self._of_atoms[name] = self._of_residues[name][self._residues]
        return self._of_atoms[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._names

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys([*self._of_atoms, *self._of_residues]))


@dataclass(frozen=True, slots=True)
class FrameBuffer:
    """Arrays into which a block's frames are decoded, with all data that any analysis needs.

    A `Block` shows each analysis its own part of the arrays.
    """

    #: Frame numbers in the trajectory, int64, shape (n_frames,).
    frames: np.ndarray
    #: Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)), float32, shape (n_frames, n_atoms,
    #: 3). None if no analysis needs the field, or if only its validity is checked.
    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    #: Validity check, float64, shape (n_frames, 5). Columns 0 to 2 are for positions, velocities
    #: and forces: the first atom with a value that is not finite, or -1. Column 3 is the largest
    #: |x|, |y| or |z| of any position, Å, and column 4 the first atom that has it; both are NaN if
    #: a position is not finite.
    validity: np.ndarray | None
    #: Cells, float64, shape (n_frames, 19). Columns 0 to 5: lengths (Å) and angles (degrees),
    #: rounded to single precision; 6 to 14: vectors (Å); 15 to 17: origin (Å); 18: sum of 1, 2 and
    #: 4 for periodic vectors a, b and c.
    cells: np.ndarray
    #: Times, ps, float64, shape (n_frames,).
    times: np.ndarray
    #: Step numbers of the simulation, int64, shape (n_frames,).
    steps: np.ndarray
    #: λ of a free-energy run, or 0; float32, shape (n_frames,).
    lambdas: np.ndarray
    #: Fields of each frame, encoded by `field_bits`, uint8, shape (n_frames,).
    fields: np.ndarray

    @classmethod
    def allocate(
        cls,
        frames: np.ndarray,
        n_atoms: int,
        fields: Sequence[str],
        *,
        check_validity: bool = False,
    ) -> Self:
        """Allocate arrays for frames.

        With `check_validity`, the fields are only checked and not stored: the array `validity`, for
        the results of the check, is allocated instead of the arrays of the fields.
        """
        n = len(frames)
        kept = () if check_validity else fields
        numbers = {
            field: np.empty((n, n_atoms, 3), dtype=np.float32) if field in kept else None
            for field in FIELDS
        }
        return cls(
            frames=frames,
            **numbers,
            validity=np.tile(_NOTHING_FOUND, (n, 1)) if check_validity else None,
            cells=np.empty((n, CELL_WIDTH)),
            times=np.empty(n),
            steps=np.empty(n, dtype=np.int64),
            lambdas=np.zeros(n, dtype=np.float32),
            fields=np.zeros(n, dtype=np.uint8),
        )

    def values_of(self, field: str) -> np.ndarray | None:
        """Return the array of a field; None if no analysis needs it."""
        return {
            "positions": self.positions,
            "velocities": self.velocities,
            "forces": self.forces,
        }[field]

    def array_of(self, field: str) -> np.ndarray:
        """Return the array of a field, which must be allocated."""
        values = self.values_of(field)
        assert values is not None, field
        return values

    def put(self, field: str, rows: slice, values: np.ndarray, held: np.ndarray) -> None:
        """Store values of a field; if only validity is checked, store the result of the check.

        `held` is a mask of the frames that contain the field.
        """
        if self.validity is None:
            self.array_of(field)[rows] = values
            return
        found = self.validity[rows]
        wrong = ~np.isfinite(values).all(axis=2)
        atoms = np.where(held & wrong.any(axis=1), wrong.argmax(axis=1), -1)
        found[:, FIELDS.index(field)] = atoms
        if field == "positions":
            largest = np.abs(values).max(axis=2)
            whole = held & ~wrong.any(axis=1)
            found[whole, -2] = largest.max(axis=1)[whole]
            found[whole, -1] = largest.argmax(axis=1)[whole]

    def blank(self, row: int) -> None:
        """Mark the frame in a row as skipped; its time does not change."""
        for array in (self.positions, self.velocities, self.forces, self.cells):
            if array is not None:
                array[row] = np.nan
        self.steps[row] = DAMAGED_STEP
        self.fields[row] = 0

    def set_cell(self, cell: np.ndarray) -> None:
        """Set a cell (Å and degrees) in each frame without a cell, but not in skipped frames."""
        lacking = ~self.cells[:, _DIMENSIONS].any(axis=1)
        self.cells[lacking] = _core.cells_of_dimensions(np.array([cell], dtype=np.float32))

    def seal(self) -> None:
        """Make all arrays read-only, because all analyses of a run share them."""
        for array in self.arrays():
            if array is not None:
                array.flags.writeable = False

    @property
    def dimensions(self) -> np.ndarray:
        """Lengths and angles of cells, Å and degrees, float32, shape (n_frames, 6)."""
        return dimensions_of(self.cells)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, bytes."""
        return sum(array.nbytes for array in self.arrays() if array is not None)

    def __getitem__(self, rows: slice | np.ndarray) -> "FrameBuffer":
        rows_of = [None if array is None else array[rows] for array in self.arrays()]
        return FrameBuffer(*rows_of)  # type: ignore[arg-type]

    def arrays(self) -> tuple[np.ndarray | None, ...]:
        """Return all arrays in the order of their declaration."""
        return (
            self.frames,
            *(self.positions, self.velocities, self.forces, self.validity),
            *(self.cells, self.times, self.steps, self.lambdas, self.fields),
        )
