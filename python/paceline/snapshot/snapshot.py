"""A frame, as the ranks of a simulation have it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.snapshot.moments import Moment


@dataclass(frozen=True)
class Snapshot:
    """One rank's atoms of a frame, and what all of them share.

    The arrays are the rank's own: it may change them.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (n,)
        Numbers of this rank's atoms, rising. They count from 1, unless the file numbers its
        particles otherwise (H5MD).
    positions : numpy.ndarray of float64 or float32, shape (n, 3), or None
        Å, as the file has them: not wrapped. float64 from CONFIG, REVCON and HISTORY, float32 from
        all others. None where the frame holds none.
    velocities : the same
        Å/ps.
    forces : the same
        kJ/(mol·Å).
    names : numpy.ndarray of str, shape (n,), or None
        At most 8 characters: of CONFIG, REVCON, HISTORY, and of H5MD where paceline wrote it.
    masses : numpy.ndarray of float64, shape (n,), or None
        u; of HISTORY and H5MD, where they have them.
    charges : numpy.ndarray of float64, shape (n,), or None
        e; likewise.
    dimensions : numpy.ndarray of float64, shape (6,), or None
        Lengths of the cell (Å) and its angles (degrees). None where the frame has no cell.
    vectors : numpy.ndarray of float64, shape (3, 3), or None
        Vectors of the cell, one a row, Å: as the file has them where it has vectors that may point
        anywhere (CONFIG, REVCON, HISTORY), else the first along x, the second in the plane of x
        and y.
    step : int
        Of the simulation.
    time : float
        ps.
    """

    ids: np.ndarray
    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    names: np.ndarray | None
    masses: np.ndarray | None
    charges: np.ndarray | None
    dimensions: np.ndarray | None
    vectors: np.ndarray | None
    step: int
    time: float

    def __len__(self) -> int:
        return len(self.ids)


def snapshot_of(moment: Moment, columns: Sequence[np.ndarray | None]) -> Snapshot:
    """What the core has read, as arrays.

    Parameters
    ----------
    moment : Moment
        The frame.
    columns : sequence of (numpy.ndarray of uint8, or None)
        As the core gives them: owners, ids, positions, velocities, forces, names, masses, charges.

    Returns
    -------
    Snapshot
    """
    _, ids, *vectors, names, masses, charges = columns
    positions, velocities, forces = (
        None if one is None else one.view(moment.dtype).reshape(-1, 3) for one in vectors
    )
    assert ids is not None, "atoms without numbers"
    ids = ids.view(np.int64)
    if moment.numbering is not None:
        moment.numbering.restore(ids)
    return Snapshot(
        ids=ids,
        positions=positions,
        velocities=velocities,
        forces=forces,
        names=None if names is None else _text(names.reshape(-1, 8)),
        masses=None if masses is None else masses.view(np.float64),
        charges=None if charges is None else charges.view(np.float64),
        dimensions=moment.dimensions,
        vectors=moment.vectors,
        step=moment.step,
        time=moment.time,
    )


def _text(names: np.ndarray) -> np.ndarray:
    """Names out of bytes that zeros fill up; shape (n, 8) becomes (n,)."""
    # Each byte is the number of its character, in Latin-1.
    return names.astype(np.uint32).view("U8").ravel()
