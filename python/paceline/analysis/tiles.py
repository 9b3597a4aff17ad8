"""Compare all pairs of frames in tiles, squares of pairs, by RMSD or by a function.

Positions are those that one pass over the frames has collected.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from paceline import _core
from paceline.block import Block
from paceline.contract.kinds import OverParts, PerFrame
from paceline.engine.parts import allocate_results

#: Frames along an edge of a tile, at least, mostly, and at most.
SMALLEST_TILE, TILE, LARGEST_TILE = 32, 256, 512
#: Positions of the frames along an edge, at most, bytes.
TILE_BYTES = 8 * 2**20

Metric = Callable[..., float]


class Positions(PerFrame):
    """Worker part that collects positions."""

    returns_new = True  # a block is decoded into arrays of its own

    def compute(self, block: Block) -> np.ndarray:
        """Return positions, shape (n_frames, n_atoms, 3)."""
        return block.positions


class PairRmsds:
    """Worker part: the RMSDs of the frames of two parts."""

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
        """Return the distances of each frame of one part from each of the other one."""
        if self._kernel is None:
            self._kernel = _core.PairRmsd(*self._arguments, superposition=self._superposition)
        found = np.zeros((len(first), len(second)), self._dtype)
        first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
        self._kernel.fill(first, second, self._cutoff, found)
        return (_whole(found, size),)


class PairMetrics:
    """Worker part: the distances of the frames of two parts by a user's function."""

    def __init__(self, metric: Metric, weights: object, cutoff: float, dtype: np.dtype):
        self._metric, self._weights = metric, weights
        self._cutoff, self._dtype = cutoff, dtype

    def compute(self, size: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray]:
        """Return the distances of each frame of one part from each of the other one."""
        found = np.full((len(first), len(second)), np.nan)
        rows, columns = (np.flatnonzero(~left_out(some)) for some in (first, second))
        for i in rows:
            for j in columns:
                # Each call gets arrays of its own, which it may change.
                pair = first[i].astype(np.float64), second[j].astype(np.float64)
                # A number: what a function without return gives would be NaN.
                found[i, j] = float(self._metric(*pair, weights=self._weights))
        found[found <= self._cutoff] = 0
        return (_whole(found.astype(self._dtype), size),)


def _whole(distances: np.ndarray, size: int) -> np.ndarray:
    """Fill up a tile at an edge of the matrix: all have the same size."""
    if distances.shape == (size, size):
        return distances
    tile = np.zeros((size, size), distances.dtype)
    tile[: distances.shape[0], : distances.shape[1]] = distances
    return tile


class TileParts(OverParts):
    """Parts of all pairs of frames: tiles on and above the diagonal of their matrix."""

    def __init__(self, rows: np.ndarray, worker: Any):
        self.rows, self.worker = rows, worker
        self.size = tile_size(len(rows), rows.nbytes // len(rows))
        edge = -(-len(rows) // self.size)
        self._tiles = [(i, j) for i in range(edge) for j in range(i, edge)]
        self.n_parts = len(self._tiles)

    def frames(self, number: int) -> tuple[slice, slice]:
        """Frames of the rows and columns of a tile."""
        first, second = (
            slice(k * self.size, min((k + 1) * self.size, len(self.rows)))
            for k in self._tiles[number]
        )
        return first, second

    def describe(self, number: int, frames: np.ndarray) -> str:
        """Name the frames of a tile, in error messages."""
        parts = (frames[some] for some in self.frames(number))
        first, second = (f"{some[0]} to {some[-1]}" for some in parts)
        return f"pairs of frames {first}" + ("" if first == second else f" with {second}")

    def arguments(self, number: int) -> tuple[object, ...]:
        """Size of a tile, and positions of the frames of its rows and columns."""
        first, second = self.frames(number)
        return self.size, self.rows[first], self.rows[second]


class Tiles(TileParts):
    """Parts of a symmetric matrix of all pairs of frames.

    Attributes
    ----------
    matrix : numpy.ndarray
        Shape (n, n), or (n (n - 1) / 2,) if it is condensed.
    """

    def __init__(self, rows: np.ndarray, worker: Any, dtype: np.dtype, *, condensed: bool):
        super().__init__(rows, worker)
        self._condensed = condensed
        self._n = n = len(rows)
        shape = (n * (n - 1) // 2,) if condensed else (n, n)
        self.matrix = allocate_results(shape, dtype)

    def put(self, number: int, *values: np.ndarray) -> None:
        """Put a tile in its places."""
        (tile,) = values
        first, second = self.frames(number)
        tile = np.ascontiguousarray(tile[: first.stop - first.start, : second.stop - second.start])
        if first == second and not self._condensed:
            tile = np.triu(tile, 1)
            tile = tile + tile.T
            np.fill_diagonal(tile, np.where(left_out(self.rows[first]), np.nan, 0))
        _core.put_tile(self.matrix, self._n, tile, first.start, second.start)

    def get(self, number: int) -> tuple[np.ndarray]:
        """Return a tile that was put."""
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
        """Yield, for each row of a tile, its pairs in the condensed matrix and its columns."""
        for row in range(first.start, first.stop):
            begin = max(second.start, row + 1)
            before = row * self._n - row * (row + 1) // 2 - row - 1
            pairs = slice(before + begin, before + max(begin, second.stop))
            yield pairs, slice(begin - second.start, max(begin, second.stop) - second.start)


def tile_size(n_frames: int, frame_bytes: int) -> int:
    """Choose the frames along an edge of a tile, by the frames alone.

    Examples
    --------
    >>> tile_size(98, 12 * 214), tile_size(9_000, 12 * 214), tile_size(50_000, 12 * 214)
    (32, 256, 512)
    >>> tile_size(50_000, 12 * 50_000)
    32
    """
    few = SMALLEST_TILE * math.ceil(n_frames / (8 * SMALLEST_TILE))
    held = TILE_BYTES // frame_bytes // SMALLEST_TILE * SMALLEST_TILE
    # Of more frames there are many tiles, and a call for each.
    largest = LARGEST_TILE if n_frames >= 32 * LARGEST_TILE else TILE
    return max(SMALLEST_TILE, min(largest, few, held))


def left_out(frames: np.ndarray) -> np.ndarray:
    """True for frames with a number that is NaN."""
    return np.isnan(frames).any(axis=tuple(range(1, frames.ndim)))
