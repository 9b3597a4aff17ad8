"""How numbers of frames are stored in an H5MD file that we write, and which of them together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paceline import _core
from paceline.errors import UnwritableError
from paceline.hdf5.compression import Compression, refuse_packed_space
from paceline.hdf5.layout import Layout

#: Of a field, its element in H5MD.
ELEMENTS = {"positions": "position", "velocities": "velocity", "forces": "force"}
#: Å: what is coarser is XTC's integers per nm by mistake, and would ruin every position.
_COARSEST = 1.0
#: The group of particles, by the name that MDAnalysis gives it.
GROUP = "trajectory"


@dataclass(frozen=True)
class Storage:
    """How numbers are stored.

    Attributes
    ----------
    layout : Layout
        Where.
    compression : Compression
        Through which filters.
    precision : float or None
        Å: by how much positions may be apart and still be stored as the same, if they may.
    """

    layout: Layout
    compression: Compression
    precision: float | None = None

    def __post_init__(self) -> None:
        refuse_packed_space(self.layout.contiguous, self.compression)
        refuse_coarse(self.precision)

    def encoder(self, field: str) -> "_core.ChunkEncoder":
        """What encodes the chunks of a field.

        Parameters
        ----------
        field : str
            "positions", "velocities" or "forces".

        Returns
        -------
        ChunkEncoder
        """
        return _core.ChunkEncoder(
            "<f4",
            self.layout.chunk,
            shuffle=self.compression.shuffle,
            level=self.compression.level,
            precision=self.precision if field == "positions" else None,
            what=ELEMENTS[field],
        )


def refuse_coarse(precision: float | None) -> None:
    """Raise `UnwritableError` if a precision would leave nothing of the positions.

    Parameters
    ----------
    precision : float or None
        Å.
    """
    if precision is not None and precision > _COARSEST:
        raise UnwritableError(
            f"of H5MD, expected a precision of at most {_COARSEST:g} Å such as 0.001, found "
            f"{precision:g}; in integers per nm it is that of XTC"
        )


@dataclass(frozen=True)
class Places:
    """Where the numbers of a dataset stand in its file; workers write them there.

    Attributes
    ----------
    offsets : numpy.ndarray of uint64, shape (n_chunks,) or (1,)
        Of all chunks, in C order; of contiguous space, where it begins.
    layout : Layout
        Of the dataset.
    n_atoms : int
        Of a row.
    """

    offsets: np.ndarray
    layout: Layout
    n_atoms: int

    def of(self, first: int, n_frames: int) -> tuple[np.ndarray, int]:
        """Places of some frames, as the encoder wants them.

        Parameters
        ----------
        first, n_frames : int
            Rows of the dataset.

        Returns
        -------
        places : numpy.ndarray of uint64, shape (n_chunks,)
            Of all chunks that hold one of them.
        lead : int
            Frames in the first of them that stand before ours.
        """
        if self.layout.contiguous:
            size = np.prod([self.n_atoms, 3, 4], dtype=np.uint64)
            rows = np.arange(first, first + n_frames, dtype=np.uint64)
            return self.offsets[0] + rows * size, 0
        columns = -(-self.n_atoms // self.layout.atoms)
        top, lead = divmod(first, self.layout.frames)
        bottom = -(-(first + n_frames) // self.layout.frames)
        return self.offsets[top * columns : bottom * columns], lead


def cut(first: int, n_frames: int, chunk_frames: int | None) -> Iterator[tuple[slice, bool]]:
    """Rows of a block, by whether they fill their chunks.

    Parameters
    ----------
    first, n_frames : int
        Rows of the dataset.
    chunk_frames : int or None
        Of a chunk; None where no rows are to fill any.

    Yields
    ------
    rows : slice
        Of the block.
    whole : bool
        Whether they are whole chunks.

    Examples
    --------
    >>> [(rows.start, rows.stop, whole) for rows, whole in cut(6, 10, 4)]
    [(0, 2, False), (2, 10, True)]
    >>> [(rows.start, rows.stop, whole) for rows, whole in cut(5, 2, 4)]
    [(0, 2, False)]
    """
    if chunk_frames is None:
        yield slice(0, n_frames), False
        return
    begin = min(-first % chunk_frames, n_frames)
    end = max(begin, n_frames - (first + n_frames) % chunk_frames)
    for start, stop, whole in ((0, begin, False), (begin, end, True), (end, n_frames, False)):
        if stop > start:
            yield slice(start, stop), whole
