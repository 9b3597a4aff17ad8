"""Kinds of analysis: what a worker part gives for a block of frames.

An analysis has a client part (`paceline.contract.analysis.Analysis`), which stays in the calling
process, and a worker part, which is pickled and sent to the workers. The class of a worker part
declares its kind.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

import numpy as np

from paceline.block import Block
from paceline.errors import UnsupportedError


class Kind(Enum):
    """Kinds of worker parts."""

    ROWS = "a row for each frame"
    SUM = "one result for all frames"
    RECORDS = "any number of records for each frame"
    SCAN = "a row for each frame that depends on all frames before"
    BLOCKS = "a result for each block"


#: Method by which a worker part of a user's class, which declares no kind, is known to be of it.
_METHOD_OF = {
    Kind.SCAN: "scan",
    Kind.BLOCKS: "compute_block",
    Kind.RECORDS: "compute_records",
    Kind.SUM: "merge",
}


#: Attributes of such a part that say what the engine may do with it, as in `WorkerDeclaration`.
_FLAGS = ("returns_new", "fills_rows", "checks_validity")


@dataclass(frozen=True)
class WorkerDeclaration:
    """Kind of a worker part, and what the engine may do with it."""

    kind: Kind
    #: Each call returns arrays of its own, which are not copied. Positions of frames that were left
    #: out are NaN then, and rows of such frames are dropped.
    returns_new: bool = False
    #: `compute(block, rows)` writes to rows that it is given, which are contiguous, and returns
    #: them.
    fills_rows: bool = False
    #: Blocks have `validity` and no coordinates: each frame is checked while it is decoded.
    checks_validity: bool = False


class WorkerPart:
    """Worker part of an analysis. It is pickled, and must hold no MDAnalysis object."""

    kind: ClassVar[Kind]
    #: As in `WorkerDeclaration`.
    returns_new: bool = False
    checks_validity: bool = False

    @property
    def fills_rows(self) -> bool:
        """True if rows may be given to be filled."""
        return False


class PerFrame(WorkerPart):
    """Worker part of an analysis that gives one row for each frame."""

    kind = Kind.ROWS

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block's frames, shape (n_frames, …).

        With `returns_new` or a halo, frames that were left out have positions that are NaN, and
        their rows are dropped. Else they are not among the block's, and it is not called without
        any.
        """
        raise NotImplementedError


class Reduction(WorkerPart):
    """Worker part of an analysis that gives one result for all frames.

    Partial results must merge exactly: carry counts and moments, never means alone.
    """

    kind = Kind.SUM

    def compute(self, block: Block) -> Any:
        """Compute the partial result of one leaf without its unreadable frames.

        It may be left with none, whose partial result changes nothing where it is merged.
        """
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two neighbours."""
        raise NotImplementedError


class PerBlock(WorkerPart):
    """Worker part of an analysis with a result for each block, such as a writer.

    Its client part has a `receiver`. Errors of writing are raised unchanged.
    """

    kind = Kind.BLOCKS

    def compute_block(self, block: Block, first: int) -> Any:
        """Compute the result of a block without its unreadable frames.

        `first` is the block's first row in the results, counting unreadable frames.
        """
        raise NotImplementedError


class Ragged(WorkerPart):
    """Worker part of an analysis that gives any number of records for each frame."""

    kind = Kind.RECORDS

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray] | None:
        """Compute the records of a block without its unreadable frames.

        First the number of records of each frame, integers of shape (n_frames,); then those of all
        frames one after another, shape (n_records, …), of the same type and shape for each block.
        With `returns_new`, None stands for no records.
        """
        raise NotImplementedError


class PrefixScan(WorkerPart):
    """Worker part of an analysis whose rows depend on all frames before: a prefix scan.

    It takes two of the analysis's `stages`. In the first pass `scan` and `merge` find how each
    block of frames changes a state, from which follows the state before each block; in the second
    one `compute` goes on from there. Neighbours are those of the run. With `returns_new`, no call
    changes an object that it is given.
    """

    kind = Kind.SCAN

    def scan(self, block: Block) -> Any:
        """Compute how the frames of one leaf, at least one, change the state.

        None is for no change.
        """
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Join two such changes of neighbours, or a state and the change after it.

        It must be associative.
        """
        raise NotImplementedError

    def compute(self, block: Block, state: Any) -> np.ndarray:
        """Compute the rows of a leaf's frames, shape (n_frames, …).

        `state` is the change over all frames before the leaf, or None if there are none. Frames
        that were left out are not among the leaf's, unless all of them were: then the rows are
        dropped.
        """
        raise NotImplementedError


class OverParts:
    """Last stage of an analysis whose tasks compute parts of what was collected, not frames.

    Each task gets no more than its arguments. What a part is must not depend on the workers.
    """

    #: Number of parts.
    n_parts: int
    #: Worker part: `compute(*arguments)` returns a tuple of arrays, each of the same shape for all
    #: parts. It is pickled.
    worker: Any

    def arguments(self, number: int) -> tuple[Any, ...]:
        """Return the arguments of a part: numbers, and views of what was collected, not copied."""
        raise NotImplementedError

    def put(self, number: int, *values: np.ndarray) -> None:
        """Take the result of a part, in the calling thread; parts come in any order."""
        raise NotImplementedError

    def get(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the result of a part that was put, for a checkpoint."""
        raise NotImplementedError

    def describe(self, number: int, frames: np.ndarray) -> str:
        """Name a part in error messages, given the frame numbers of the run."""
        return f"part {number} of {self.n_parts}"


class Receiver(Protocol):
    """Takes the results of a `PerBlock`, in the calling thread, in any order."""

    def add(self, number: int, value: Any) -> None:
        """Take the result of block `number`."""


def declaration_of(part: object) -> WorkerDeclaration:
    """Return the declaration of a worker part; that of a user's class follows from its methods."""
    if isinstance(part, WorkerPart):
        return WorkerDeclaration(part.kind, part.returns_new, part.fills_rows, part.checks_validity)
    found = (kind for kind, method in _METHOD_OF.items() if hasattr(part, method))
    flags = (getattr(part, name, False) for name in _FLAGS)
    return WorkerDeclaration(next(found, Kind.ROWS), *flags)


def check_methods_of_scan(name: str, part: object) -> None:
    """Raise `UnsupportedError` where a user's worker part with `scan` lacks a method, or has more.

    `name` is that of the analysis.
    """
    for method in ("merge", "compute"):
        if not hasattr(part, method):
            raise UnsupportedError(f"{name}: its worker part has scan, but no {method}")
    for method in ("compute_records", "compute_block"):
        if hasattr(part, method):
            raise UnsupportedError(
                f"{name}: its worker part has scan and {method}, and a scan gives a row for each "
                "frame: make two analyses of it"
            )
