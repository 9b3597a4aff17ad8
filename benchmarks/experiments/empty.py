"""Tasks without work, as function calls and as blocks of frames."""

import io
from contextlib import redirect_stderr
from typing import Any

import numpy as np

import paceline

#: Minimum number of frames in a block; of each frame, one atom is read.
BLOCK = 16


def empty(_: Any) -> None:
    """Do nothing: the task to measure."""


def apply(backend: Any, n_tasks: int) -> None:
    """Run tasks as function calls."""
    with redirect_stderr(io.StringIO()):  # hides the progress of long runs
        backend.apply(empty, range(n_tasks))


def take_blocks(backend: Any, atom: Any, n_tasks: int) -> None:
    """Run tasks as blocks of frames."""
    frames = np.arange(BLOCK * n_tasks) % atom.universe.trajectory.n_frames
    series = paceline.TimeSeries(times, atom)
    series.run(frames=frames, backend=backend, block_frames=BLOCK, progress=False)


def times(block: Any) -> np.ndarray:
    """Return the times of a block, the smallest possible result."""
    return block.times
