"""Create synthetic sodium chloride, distributed over ranks: the two systems of Todorov & Bush.

Ions are near the sites of rock salt, with velocities and forces as in a warm crystal. Ids are
shuffled, as after a long run, so that no domain decomposition has them in order. Each rank has the
ions in its part of the box, which is centred on the origin as in DL_POLY. The ions are the same for
any number of ranks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

#: Unit cells along an edge, for 216,000 and 1,728,000 ions.
SMALL, LARGE = 30, 60
#: Edge of the unit cell, Å; its sites in units of the edge, sodium on the first four.
EDGE = 5.64
SODIUM = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2
SITES = np.concatenate([SODIUM, SODIUM + np.array([0.5, 0, 0])])
NAMES = np.repeat([list(b"Na+     "), list(b"Cl-     ")], 4, axis=0).astype(np.uint8)
MASSES = np.repeat([22.98977, 35.453], 4)
CHARGES = np.repeat([1.0, -1.0], 4)
#: Standard deviations along an axis: displacement, Å, and force, kJ/(mol·Å).
MOTION, FORCE = 0.15, 80.0
#: Boltzmann constant times 300 K, amu Å²/ps².
THERMAL = 0.831446 * 300
SEED = 2008


@dataclass(frozen=True)
class Ions:
    """Some of the ions, in any order.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (n,)
        Ids from 1.
    names : numpy.ndarray of uint8, shape (n, 8)
        Names in ASCII, padded with blanks.
    masses, charges : numpy.ndarray of float64, shape (n,)
        Masses (amu) and charges (e).
    positions, velocities, forces : numpy.ndarray of float64, shape (n, 3)
        Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)).
    """

    ids: np.ndarray
    names: np.ndarray
    masses: np.ndarray
    charges: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    forces: np.ndarray

    def __getitem__(self, chosen: np.ndarray | slice) -> "Ions":
        return Ions(*(array[chosen] for array in self.arrays().values()))

    def arrays(self, *without: str) -> dict[str, np.ndarray]:
        """Return the arrays by name, except for some."""
        names = (one.name for one in fields(self))
        return {name: getattr(self, name) for name in names if name not in without}


def n_ions(cells: int) -> int:
    """Return the number of ions in a crystal with `cells` unit cells along an edge."""
    return len(SITES) * cells**3


def box(cells: int) -> np.ndarray:
    """Return the edges (Å) and angles (degrees) of the crystal."""
    return np.array([cells * EDGE] * 3 + [90.0] * 3)


def ions_of(cells: int, grid: Sequence[int] = (1, 1, 1), rank: int = 0) -> Ions:
    """Return the ions in a rank's part of the box, which is divided by a grid."""
    parts = [layer[domains(layer.positions, cells, grid) == rank] for layer in _layers(cells)]
    return Ions(
        *(np.concatenate([getattr(one, key.name) for one in parts]) for key in fields(Ions))
    )


def domains(positions: np.ndarray, cells: int, grid: Sequence[int]) -> np.ndarray:
    """Return the rank whose part of the box contains each position; ranks count along x first."""
    cell = np.floor((positions / (cells * EDGE) + 0.5) * grid).astype(int)
    return np.ravel_multi_index(tuple(cell.T), tuple(grid), mode="clip", order="F")


def _layers(cells: int) -> Iterator[Ions]:
    """Yield layers of unit cells along z, each with its own random numbers, to save memory."""
    size = len(SITES) * cells**2
    ids = np.random.default_rng(SEED).permutation(np.arange(1, n_ions(cells) + 1, dtype=np.int32))
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * 2, [0], indexing="ij"), -1)
    sites = EDGE * (corners.reshape(-1, 1, 3) + SITES).reshape(-1, 3)
    names = np.tile(NAMES, (cells**2, 1))
    masses, charges = np.tile(MASSES, cells**2), np.tile(CHARGES, cells**2)
    for number in range(cells):
        random = np.random.default_rng([SEED, number])
        positions = sites + [0, 0, number * EDGE] + MOTION * random.standard_normal((size, 3))
        yield Ions(
            ids[number * size : (number + 1) * size].astype(np.int64),
            names,
            masses,
            charges,
            positions % (cells * EDGE) - cells * EDGE / 2,
            np.sqrt(THERMAL / masses)[:, None] * random.standard_normal((size, 3)),
            FORCE * random.standard_normal((size, 3)),
        )
