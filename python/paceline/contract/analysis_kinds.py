"""Kinds of analysis, distinguished by what the worker part returns for a block of frames."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from paceline.block import Block
from paceline.errors import UnsupportedError

#: Partial result of a reduction, or result of one block.
Result = TypeVar("Result")
#: State of a prefix scan, or a change of the state.
State = TypeVar("State")


class Kind(Enum):
    """Kinds of worker parts."""

    ROWS = "a row for each frame"
    SUM = "one result for all frames"
    RECORDS = "any number of records for each frame"
    SCAN = "a row for each frame that depends on all frames before"
    BLOCKS = "a result for each block"


#: Kinds for which results of blocks are merged: into the result of the run, or into state changes.
MERGED = (Kind.SUM, Kind.SCAN)

#: For a user's worker part whose class does not declare its kind: the method that identifies the
#: kind.
_METHOD_OF = {
    Kind.SCAN: "scan",
    Kind.BLOCKS: "compute_block",
    Kind.RECORDS: "compute_records",
    Kind.SUM: "merge",
}


#: Optional attributes of a user's worker part; they are fields of `WorkerDeclaration`.
_FLAGS = ("returns_new", "fills_rows", "checks_validity", "splits_frames")


@dataclass(frozen=True)
class WorkerDeclaration:
    """Kind of a worker part, and optimisations that the engine may apply."""

    kind: Kind
    #: Each call returns newly allocated arrays, so the engine need not copy them. In that case,
    #: positions of skipped frames are NaN, and the rows of these frames are dropped.
    returns_new: bool = False
    #: `compute(block, rows)` fills and returns `rows`, the contiguous output array.
    fills_rows: bool = False
    #: Blocks contain `validity` and no coordinates: each frame is checked while it is decoded.
    checks_validity: bool = False
    #: The kernels of the worker part may compute parts of one frame on several threads.
    splits_frames: bool = False


class WorkerPart:
    """Worker part of an analysis. It is pickled, and must not contain MDAnalysis objects."""

    kind: ClassVar[Kind]
    #: Fields of the same names in `WorkerDeclaration`, which describes them.
    returns_new: bool = False
    checks_validity: bool = False
    splits_frames: bool = False

    @property
    def fills_rows(self) -> bool:
        """True if the engine may pass output rows to `compute`."""
        return False


class PerFrame(WorkerPart):
    """Worker part of an analysis that computes one row for each frame."""

    kind = Kind.ROWS

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block's frames, shape (n_frames, …).

        With `returns_new` or a halo, skipped frames have NaN positions, and their rows are dropped.
        Otherwise the block does not contain skipped frames, and `compute` is not called for a block
        without readable frames.
        """
        raise NotImplementedError


class Reduction(WorkerPart, Generic[Result]):
    """Worker part of an analysis that computes one result for all frames.

    Partial results must merge exactly: store counts and moments, never means alone.
    """

    kind = Kind.SUM

    def compute(self, block: Block) -> Result:
        """Compute the partial result of one leaf from its readable frames.

        If no frame is readable, `merge` must return the other result unchanged when it merges the
        partial result with another one.
        """
        raise NotImplementedError

    def merge(self, left: Result, right: Result) -> Result:
        """Merge the partial results of two adjacent leaves or subtrees."""
        raise NotImplementedError


class PerBlock(WorkerPart, Generic[Result]):
    """Worker part of an analysis that computes a result for each block, such as a writer.

    Its client part has a `receiver`. Write errors are raised unchanged.
    """

    kind = Kind.BLOCKS

    def compute_block(self, block: Block, first: int) -> Result:
        """Compute the result of a block from its readable frames.

        `first` is the block's first row in the results, in which unreadable frames have rows, too.
        """
        raise NotImplementedError


class Placements:
    """File offsets at which MPI ranks write the parts of blocks that they do not send.

    The receiver, to which the ranks send the other parts, sets the offsets. Pickling drops the
    offsets.
    """

    def __init__(self) -> None:
        self._new: list[tuple[int, int]] = []

    def __reduce__(self) -> tuple[object, ...]:
        return Placements, ()

    def add(self, number: int, offset: int) -> None:
        """Set the offset of block `number`."""
        self._new.append((number, offset))

    def take(self) -> list[tuple[int, int]]:
        """Return the number and offset of blocks that were added since the last call."""
        taken, self._new = self._new, []
        return taken


class PartlyKept(PerBlock[Result]):
    """Worker part whose results can be divided: MPI ranks may keep a part and write it themselves.

    The receiver of its results, in the same process as the coordinator, sets the `placements`.
    """

    placements: Placements

    def keep(self, value: Result) -> tuple[Result, Any]:
        """Divide a result into the part that is sent to the receiver and the part that is kept.

        The second part is None if nothing is kept.
        """
        raise NotImplementedError

    def put(self, kept: Any, offset: int) -> None:
        """Write the kept part of a block, given the offset of the block."""
        raise NotImplementedError


class Ragged(WorkerPart):
    """Worker part of an analysis that computes any number of records for each frame."""

    kind = Kind.RECORDS

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray] | None:
        """Compute the records of the readable frames of a block.

        The first array contains the number of records of each frame, integers, shape (n_frames,).
        The second array contains the records of all frames in order, shape (n_records, …). Its
        dtype and the shape of a record are the same for each block. With `returns_new`, None
        stands for an empty second array.
        """
        raise NotImplementedError


class PrefixScan(WorkerPart, Generic[State]):
    """Worker part of a prefix scan: each row depends on all earlier frames.

    A prefix scan uses two stages of the analysis. In the first pass, `scan` and `merge` compute
    how each block of frames changes a state, from which the engine derives the state before each
    block. In the second pass, `compute` starts from that state. Adjacent frames are adjacent in
    the run, not necessarily in the file. With `returns_new`, no method modifies its arguments.
    """

    kind = Kind.SCAN

    def scan(self, block: Block) -> State:
        """Compute how the frames of one leaf (at least one frame) change the state.

        Returns None if the state does not change.
        """
        raise NotImplementedError

    def merge(self, left: State, right: State) -> State:
        """Merge the state changes of two adjacent leaves, or a state and the change after it.

        The operation must be associative.
        """
        raise NotImplementedError

    def compute(self, block: Block, state: State | None) -> np.ndarray:
        """Compute the rows of a leaf's frames, shape (n_frames, …).

        `state` is the merged change of all frames before the leaf, or None for the first leaf. The
        leaf contains only readable frames. If no frame is readable, the leaf contains all frames,
        and their rows are dropped.
        """
        raise NotImplementedError


class OverParts:
    """Last stage of an analysis whose tasks process parts of the collected rows, not frames.

    Each task receives only the arguments of its part. Parts must not depend on the number of
    workers.
    """

    #: Number of parts.
    n_parts: int
    #: Worker part, which is pickled. `compute(*arguments)` returns a tuple of arrays. The shape of
    #: each array is the same for all parts.
    worker: object

    def arguments(self, number: int) -> tuple[object, ...]:
        """Return the arguments of a part: numbers, and views of the collected rows."""
        raise NotImplementedError

    def put(self, number: int, *values: np.ndarray) -> None:
        """Store the result of a part. The thread that started the run calls this, in any order."""
        raise NotImplementedError

    def get(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the stored result of a part, for a checkpoint."""
        raise NotImplementedError

    def describe(self, number: int, frames: np.ndarray) -> str:
        """Name a part in error messages, given the frame numbers of the run."""
        return f"part {number} of {self.n_parts}"


class Receiver(Protocol):
    """Receives the results of a `PerBlock`, in any order, in the thread that started the run."""

    def add(self, number: int, value: Any) -> None:
        """Receive the result of block `number`."""


def declaration_of(part: object) -> WorkerDeclaration:
    """Return the declaration of a worker part; derive it from the methods of a user's class."""
    if isinstance(part, WorkerPart):
        flags = part.returns_new, part.fills_rows, part.checks_validity, part.splits_frames
        return WorkerDeclaration(part.kind, *flags)
    found = (kind for kind, method in _METHOD_OF.items() if hasattr(part, method))
    return WorkerDeclaration(
        next(found, Kind.ROWS), *(getattr(part, name, False) for name in _FLAGS)
    )


def check_methods_of_scan(name: str, part: object) -> None:
    """Raise `UnsupportedError` if a user's prefix scan lacks a method, or has one of another kind.

    `name` is the name of the analysis.
    """
    for method in ("merge", "compute"):
        if not hasattr(part, method):
            raise UnsupportedError(f"{name}: its worker part has scan, but no {method}")
    for method in ("compute_records", "compute_block"):
        if hasattr(part, method):
            raise UnsupportedError(
                f"{name}: its worker part has scan and {method}, but a scan computes a row for "
                "each "
                "frame: split it into two analyses"
            )
