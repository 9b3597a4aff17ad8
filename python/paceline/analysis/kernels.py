"""Worker's halves of analyses that the core computes. Imports no MDAnalysis."""

from typing import Any

import numpy as np

from paceline import _core
from paceline.block import Block


class CoreRows:
    """Rows that a kernel of the core computes, `_core.RowKernel.kind(columns, *arguments)`.

    With `shape`, the numbers of a frame have that shape.
    """

    def __init__(self, kind: str, *arguments: Any, shape: tuple[int, ...] | None = None):
        self._kind, self._arguments, self._shape = kind, arguments, shape
        self._bound: _core.RowKernel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_bound": None}

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block, float64, shape (n_frames, …)."""
        positions, columns = block.raw
        if self._bound is None:
            self._bound = getattr(_core.RowKernel, self._kind)(columns, *self._arguments)
        out = np.empty((len(positions), self._bound.n_columns))
        refused = self._bound.compute(positions, block.dimensions, out)
        if refused is not None:
            row, reason = refused
            raise ValueError(f"frame {block.frames[row]}: {reason}")
        return out if self._shape is None else out.reshape(len(out), *self._shape)
