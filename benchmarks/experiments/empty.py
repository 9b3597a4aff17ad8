"""Tasks that do nothing, as calls and as blocks of frames."""

import io
from contextlib import redirect_stderr
from typing import Any

import numpy as np

import paceline

#: Frames of a block, the fewest that can be: so many are read, of one atom.
BLOCK = 16


def empty(_: Any) -> None:
    """A task."""


def apply(backend: Any, n_tasks: int) -> None:
    """Tasks as calls of a function."""
    with redirect_stderr(io.StringIO()):  # for the progress of long runs
        backend.apply(empty, range(n_tasks))


def take_blocks(backend: Any, atom: Any, n_tasks: int) -> None:
    """Tasks as blocks of frames."""
    frames = np.arange(BLOCK * n_tasks) % atom.universe.trajectory.n_frames
    series = paceline.TimeSeries(times, atom)
    series.run(frames=frames, backend=backend, block_frames=BLOCK, progress=False)


def times(block: Any) -> np.ndarray:
    """The least that a block can give."""
    return block.times
