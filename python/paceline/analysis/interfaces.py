"""Interfaces of analyses.

An analysis has two halves. The user's half (`Analysis`) knows MDAnalysis's objects and stays in the
calling process; `prepare` makes the worker's half, which is pickled and sent to the workers.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from paceline.block import Block

if TYPE_CHECKING:
    from paceline.performance.timings import Timings
    from paceline.transform.base import Transform


class PerFrame(Protocol):
    """Worker's half of an analysis that gives one row per frame.

    With an attribute `returns_new` that is true, each call returns an array of its own, which is
    not copied. With `fills_rows` that is true, `compute(block, rows)` writes to rows that it is
    given, which are contiguous, and returns them. With `checks_validity` that is true, its blocks
    have `validity` and no coordinates: each frame is checked while it is decoded.
    """

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block's frames, shape (n_frames, …).

        With `returns_new` or a halo, frames that were left out have positions that are NaN, and
        their rows are dropped. Else they are not among the block's, and it is not called without
        any.
        """


class Reduction(Protocol):
    """Worker's half of an analysis that gives one result for all frames.

    Partial results must merge exactly: carry counts and moments, never means alone.
    """

    def compute(self, block: Block) -> Any:
        """Compute the partial result of one leaf without its unreadable frames.

        It may be left with none, whose partial result changes nothing where it is merged.
        """

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two neighbours."""


class PerBlock(Protocol):
    """Worker's half of an analysis with a result for each block, such as a writer.

    Its user's half has `receiver()`: a context manager of a `Receiver`, left when all blocks are
    done or by an error. Errors of writing are raised unchanged.
    """

    def compute_block(self, block: Block, first: int) -> Any:
        """Compute the result of a block without its unreadable frames.

        `first` is the block's first row in the results, counting unreadable frames.
        """


class Ragged(Protocol):
    """Worker's half of an analysis that gives any number of records per frame.

    With an attribute `returns_new` that is true, each call returns arrays of its own, which are
    not copied.
    """

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Compute the records of a block without its unreadable frames.

        First the number of records of each frame, integers of shape (n_frames,); then those of all
        frames one after another, shape (n_records, …), of the same type and shape for each block.
        """


class PrefixScan(Protocol):
    """Worker's half of an analysis whose rows depend on all frames before: a prefix scan.

    It takes two of the analysis's `stages`. In the first pass `scan` and `merge` find how each
    block of frames changes a state, from which follows the state before each block; in the second
    one `compute` goes on from there. Neighbours are those of the run. With an attribute
    `returns_new` that is true, each call returns objects of its own, and changes none that it is
    given: nothing is copied.
    """

    def scan(self, block: Block) -> Any:
        """Compute how the frames of one leaf, at least one, change the state.

        None is for no change.
        """

    def merge(self, left: Any, right: Any) -> Any:
        """Join two such changes of neighbours, or a state and the change after it.

        It must be associative.
        """

    def compute(self, block: Block, state: Any) -> np.ndarray:
        """Compute the rows of a leaf's frames, shape (n_frames, …).

        `state` is the change over all frames before the leaf, or None if there are none. Frames
        that were left out are not among the leaf's, unless all of them were: then the rows are
        dropped.
        """


class Receiver(Protocol):
    """Takes the results of a `PerBlock`, in the calling thread, in any order."""

    def add(self, number: int, value: Any) -> None:
        """Take the result of block `number`."""


class OverParts(Protocol):
    """Last stage of an analysis whose tasks compute parts of what was collected, not frames.

    Each task gets no more than its arguments. What a part is must not depend on the workers. With a
    method `describe(number, frames)`, error messages name a part by what that returns; `frames` are
    the frame numbers of the run.
    """

    #: Number of parts.
    n_parts: int
    #: Worker's half: `compute(*arguments)` returns a tuple of arrays, each of the same shape for
    #: all parts. It is pickled.
    worker: Any

    def arguments(self, number: int) -> tuple[Any, ...]:
        """Arguments of a part: numbers, and views of what was collected, which are not copied."""

    def put(self, number: int, *values: np.ndarray) -> None:
        """Take the result of a part, in the calling thread; parts come in any order."""

    def get(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the result of a part that was put, for a checkpoint."""


class Analysis(Protocol):
    """User's half of an analysis, as `run` needs it; see `paceline.analysis.base.AnalysisBase`."""

    atomgroup: Any
    fields: Sequence[str]
    optional_fields: Sequence[str]
    stages: int
    over_parts: bool
    frames_together: int
    halo: tuple[int, int]
    row_bytes: int
    transforms: "Sequence[Transform]"
    skip_damaged: bool
    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: "Timings"
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """Name in error messages."""

    @property
    def indices(self) -> np.ndarray:
        """Atoms in the order in which the computation needs them."""

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Attributes of the atoms that the computation needs, beside positions."""

    def prepare(self) -> PerFrame | Reduction | PerBlock | Ragged | PrefixScan:
        """Make the worker's half, with all that is the same for every frame."""

    def stored_bytes(self, n_frames: int) -> int:
        """Bytes of all that is kept of so many frames."""

    def next_stage(self, value: Any) -> PerFrame | Reduction | Ragged | PrefixScan | OverParts:
        """Make the worker's half of the next pass, or parts, from what the last one found."""

    def finish(self, value: Any) -> None:
        """Turn all rows, the merged partial result, or offsets and records, into results."""
