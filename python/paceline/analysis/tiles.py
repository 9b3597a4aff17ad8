"""Compare all pairs of frames in square tiles, by RMSD or by a user's function.

The positions of all frames are collected before, in one pass.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from paceline import _core
from paceline.block import Block
from paceline.contract.analysis_kinds import OverParts, PerFrame
from paceline.engine.stage_over_collected_rows import allocate_results

#: Minimum number of frames along an edge of a tile.
SMALLEST_TILE = 32
#: Maximum number of frames along an edge of a tile, unless there are very many frames.
TILE = 256
#: Maximum number of frames along an edge of a tile, if there are 32 times this number or more.
LARGEST_TILE = 512
#: Maximum size of the positions of the frames along an edge, bytes.
TILE_BYTES = 8 * 2**20

Metric = Callable[..., float]


class Positions(PerFrame):
    """Worker part that returns positions."""

    returns_new = True  # each block is decoded into new arrays

    def compute(self, block: Block) -> np.ndarray:
        """Return positions, shape (n_frames, n_atoms, 3)."""
        return block.positions


class PairRmsds:
    """Worker part that computes the RMSDs between all frames along the two edges of a tile.

    RMSDs up to `cutoff` are replaced by 0.
    """

    def __init__(
        self,
        n_atoms: int,
        weights: np.ndarray | None,
        superposition: bool,
        cutoff: float,
        dtype: np.dtype,
    ):
        self._arguments, self._superposition = (n_atoms, weights), superposition
        self._cutoff, self._dtype = cutoff, dtype
        self._kernel: _core.PairRmsd | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_kernel": None}

    def compute(self, size: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray]:
        """Return the distances between all frames of `first` and `second`; pad with 0 to a tile."""
        if self._kernel is None:
            self._kernel = _core.PairRmsd(*self._arguments, superposition=self._superposition)
        found = np.zeros((len(first), len(second)), self._dtype)
        first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
        self._kernel.fill(first, second, self._cutoff, found)
        return (_pad_tile(found, size),)


class PairMetrics:
    """Worker part that applies a user's function to frames along the two edges of a tile.

    Distances up to `cutoff` are replaced by 0, and those to left-out frames are NaN.
    """

    def __init__(self, metric: Metric, weights: object, cutoff: float, dtype: np.dtype):
        self._metric, self._weights = metric, weights
        self._cutoff, self._dtype = cutoff, dtype

    def compute(self, size: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray]:
        """Return the distances between all frames of `first` and `second`; pad with 0 to a tile."""
        found = np.full((len(first), len(second)), np.nan)
        rows, columns = (np.flatnonzero(~left_out(some)) for some in (first, second))
        for i in rows:
            for j in columns:
                # Pass copies, which the function may modify.
                pair = first[i].astype(np.float64), second[j].astype(np.float64)
                # float() raises an error for a function that returns None; NumPy would store NaN.
                found[i, j] = float(self._metric(*pair, weights=self._weights))
        found[found <= self._cutoff] = 0
        return (_pad_tile(found.astype(self._dtype), size),)


def _pad_tile(distances: np.ndarray, size: int) -> np.ndarray:
    """Pad a tile at the edge of the matrix, so that all tiles have the same size."""
    if distances.shape == (size, size):
        return distances
    tile = np.zeros((size, size), distances.dtype)
    tile[: distances.shape[0], : distances.shape[1]] = distances
    return tile


class TileParts(OverParts):
    """Parts of the matrix of all pairs of frames: tiles on and above its diagonal."""

    def __init__(self, rows: np.ndarray, worker: object):
        self.rows, self.worker = rows, worker
        self.size = tile_size(len(rows), rows.nbytes // len(rows))
        edge = -(-len(rows) // self.size)
        self._tiles = [(i, j) for i in range(edge) for j in range(i, edge)]
        self.n_parts = len(self._tiles)

    def frames(self, number: int) -> tuple[slice, slice]:
        """Ranges of frames in the rows and in the columns of a tile."""
        first, second = (
            slice(k * self.size, min((k + 1) * self.size, len(self.rows)))
            for k in self._tiles[number]
        )
        return first, second

    def describe(self, number: int, frames: np.ndarray) -> str:
        """Describe the frames of a tile for error messages."""
        parts = (frames[some] for some in self.frames(number))
        first, second = (f"{some[0]} to {some[-1]}" for some in parts)
        return f"pairs of frames {first}" + ("" if first == second else f" with {second}")

    def arguments(self, number: int) -> tuple[object, ...]:
        """Return the size of a tile, and the positions in the frames of its rows and columns."""
        first, second = self.frames(number)
        return self.size, self.rows[first], self.rows[second]


class Tiles(TileParts):
    """Symmetric matrix of all pairs of frames, computed by tiles.

    Attributes
    ----------
    matrix : numpy.ndarray
        Matrix of shape (n, n), or (n (n - 1) / 2,) if condensed.
    """

    def __init__(self, rows: np.ndarray, worker: object, dtype: np.dtype, *, condensed: bool):
        super().__init__(rows, worker)
        self._condensed = condensed
        self._n = n = len(rows)
        shape = (n * (n - 1) // 2,) if condensed else (n, n)
        self.matrix = allocate_results(shape, dtype)

    def put(self, number: int, *values: np.ndarray) -> None:
        """Write a tile into the matrix."""
        (tile,) = values
        first, second = self.frames(number)
        tile = np.ascontiguousarray(tile[: first.stop - first.start, : second.stop - second.start])
        if first == second and not self._condensed:
            tile = np.triu(tile, 1)
            tile = tile + tile.T
            np.fill_diagonal(tile, np.where(left_out(self.rows[first]), np.nan, 0))
        _core.put_tile(self.matrix, self._n, tile, first.start, second.start)

    def get(self, number: int) -> tuple[np.ndarray]:
        """Return a tile that was written."""
        first, second = self.frames(number)
        tile = np.zeros((self.size, self.size), self.matrix.dtype)
        if self._condensed:
            for row, (pairs, columns) in enumerate(self._pairs(first, second)):
                tile[row, columns] = self.matrix[pairs]
        else:
            tile[: first.stop - first.start, : second.stop - second.start] = self.matrix[
                first, second
            ]
        return (tile,)

    def _pairs(self, first: slice, second: slice) -> Iterator[tuple[slice, slice]]:
        """Yield, for each row of a tile, its slice in the condensed matrix and its columns."""
        for row in range(first.start, first.stop):
            begin = max(second.start, row + 1)
            before = row * self._n - row * (row + 1) // 2 - row - 1
            pairs = slice(before + begin, before + max(begin, second.stop))
            yield pairs, slice(begin - second.start, max(begin, second.stop) - second.start)


def tile_size(n_frames: int, frame_bytes: int) -> int:
    """Choose the number of frames along an edge of a tile, independent of the workers.

    Examples
    --------
    >>> tile_size(98, 12 * 214), tile_size(9_000, 12 * 214), tile_size(50_000, 12 * 214)
    (32, 256, 512)
    >>> tile_size(50_000, 12 * 50_000)
    32
    """
    few = SMALLEST_TILE * math.ceil(n_frames / (8 * SMALLEST_TILE))
    held = TILE_BYTES // frame_bytes // SMALLEST_TILE * SMALLEST_TILE
    # With many frames, larger tiles reduce the number of calls.
    largest = LARGEST_TILE if n_frames >= 32 * LARGEST_TILE else TILE
    return max(SMALLEST_TILE, min(largest, few, held))


def left_out(frames: np.ndarray) -> np.ndarray:
    """Mask of the frames that contain NaN."""
    return np.isnan(frames).any(axis=tuple(range(1, frames.ndim)))
