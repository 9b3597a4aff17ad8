"""Cells: lengths and angles, or vectors."""

from typing import Any

import numpy as np

from paceline.errors import UnwritableError


def cell_of(box: Any) -> np.ndarray | None:
    """Vectors of a cell, of whatever a user calls a box.

    Parameters
    ----------
    box : array-like, shape (6,) or (3, 3), or None
        Lengths (Å) and angles (degrees) as in MDAnalysis's dimensions, zeros where there is no
        cell; or vectors (Å), one a row.

    Returns
    -------
    numpy.ndarray of float64, shape (3, 3), or None
        Å. Of lengths and angles, the first along x and the second in the plane of x and y.

    Raises
    ------
    UnwritableError
        It is no cell that has a volume.

    Examples
    --------
    >>> cell_of([10, 20, 30, 90, 90, 90]).tolist()
    [[10.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 30.0]]
    >>> cell_of([0, 0, 0, 0, 0, 0]) is None
    True
    """
    if box is None:
        return None
    numbers = np.array(box, dtype=np.float64)
    if numbers.shape not in ((6,), (3, 3)):
        raise UnwritableError(
            "expected a box of lengths and angles, shape (6,), or of vectors, shape (3, 3), found "
            f"shape {numbers.shape}"
        )
    if numbers.shape == (6,) and not numbers[:3].any():
        return None
    with np.errstate(all="ignore"):
        vectors = numbers if numbers.shape == (3, 3) else _vectors(*numbers.tolist())
        volume = abs(np.linalg.det(vectors))
    if not 0 < volume < np.inf:
        raise UnwritableError(f"expected a box that has a volume, found {numbers.tolist()}")
    return vectors


def _vectors(a: float, b: float, c: float, alpha: float, beta: float, gamma: float) -> np.ndarray:
    """Vectors of lengths and angles; NaN where there is no such cell."""
    # The sine of what lacks to a right angle makes that angle's cosine exactly 0.
    cos_a, cos_b, cos_c = np.sin(np.radians([90 - alpha, 90 - beta, 90 - gamma]))
    if not (min(a, b, c) > 0 and min(alpha, beta, gamma) > 0 and max(alpha, beta, gamma) < 180):
        return np.full((3, 3), np.nan)
    sin_c = np.sqrt(1 - cos_c**2)
    y = (cos_a - cos_b * cos_c) / sin_c
    rest = 1 - cos_b**2 - y**2
    z = np.sqrt(rest) if rest > 0 else np.nan
    return np.array([[a, 0, 0], [b * cos_c, b * sin_c, 0], [c * cos_b, c * y, c * z]])


def lengths_and_cosines(cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of a cell's vectors, and cosines of the angles between them.

    Parameters
    ----------
    cell : numpy.ndarray of float64, shape (3, 3)
        Å.

    Returns
    -------
    lengths : numpy.ndarray of float64, shape (3,)
        A, B and C, Å.
    cosines : numpy.ndarray of float64, shape (3,)
        Of α (between the second and the third), β and γ.
    """
    lengths = np.linalg.norm(cell, axis=1)
    pairs = np.array([[1, 2], [0, 2], [0, 1]])
    dots = (cell[pairs[:, 0]] * cell[pairs[:, 1]]).sum(axis=1)
    return lengths, dots / (lengths[pairs[:, 0]] * lengths[pairs[:, 1]])


def angles_of(cosines: np.ndarray) -> np.ndarray:
    """Angles of cosines.

    Parameters
    ----------
    cosines : numpy.ndarray of float64
        From -1 to 1.

    Returns
    -------
    numpy.ndarray of float64
        Degrees; of 0 exactly 90.
    """
    return 90 - np.degrees(np.arcsin(cosines.clip(-1, 1)))
