"""Continue runs over a trajectory that grows: only frames that are new are read and computed.

A block of frames is *settled* if further frames of the trajectory cannot change its results: the
block is full, the frames of its halo exist, and no later block begins to read in it if the block
belongs to the scan of a transformation. Rows and merged partial results of settled blocks
are kept from run to run. The other blocks, at the end of the trajectory, are computed in each run.
Partial results are merged over the same tree as in a run over all frames at once, so the results
are bit-identical to those of that run.
"""

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.checkpoint import Fact, check_resumable, facts, with_pickled_nodes
from paceline.contract.plan import LeafBoundaries
from paceline.engine.collect import Cursor, Record, RecordRange, RowRange
from paceline.engine.parts import PartsRun
from paceline.engine.passes import FramePass
from paceline.engine.tasks import BlockResult, Records
from paceline.timing import Timings

#: Facts that change when a trajectory grows; all others must be the same in the next run.
_GROWING = ("trajectory", "frames")


@dataclass(frozen=True)
class _Settled:
    """Results of the settled blocks of one pass; partial results of subtrees are pickled."""

    #: Frames of the blocks, and of the halo after them.
    frames: np.ndarray
    leaves: LeafBoundaries
    block_frames: int
    record: Record


class Continuation:
    """Results of a run that the same run over more frames of the trajectory continues.

    Pass the same object as `checkpoint` to consecutive runs of the same analyses, with the same
    options, while the trajectory grows. A second pass over the frames is continued if it belongs
    to a prefix scan; other second passes read all frames again. If an analysis computes something
    else for more frames, or blocks change, nothing is kept and all frames are computed.

    Attributes
    ----------
    n_computed : int
        Number of frames that the last run computed in its first pass; the others were kept.
    """

    #: A continuation has no file, but the interface of a `paceline.checkpoint.Checkpoint`.
    path: str | None = None

    def __init__(self) -> None:
        self._settled: dict[tuple[int, int], _Settled] = {}
        self._facts: list[Fact] = []
        self._stages: list[Sequence[FramePass | PartsRun]] = []
        self._held: list[FramePass] = []
        # Time of all runs so far, start of the last one, and its distance from the one before, ns.
        self._elapsed = self._dealt = self._shift = 0
        self._t_comm = 0.0
        self.n_computed = 0

    def block_frames(self, number: int, given: int | None) -> int:
        """Return the frames per block: a leaf, because few blocks should not be settled."""
        return 1

    def begin_run(self) -> None:
        """Prepare for the next run."""
        self._stages = []

    def begin_stage(self, stage: Sequence[FramePass | PartsRun], timings: Timings) -> None:
        """Restore the settled blocks of one stage, and hold its unsettled blocks.

        Raises `UnsupportedError` for an analysis that writes files, and for frames that MDAnalysis
        reads.
        """
        if not self._stages:
            self._begin_first(stage, timings)
        n_known = len(timings.blocks)
        number = len(self._stages)
        self._stages.append(stage)
        self._held = [one for one in stage if isinstance(one, FramePass) and one.is_continued]
        for k, one in enumerate(stage):
            if one not in self._held:
                continue
            one.collected.hold_last(len(one.plan) - _n_settled(one))
            known = self._settled.get((number, k))
            if known is not None and _fits(known, one):
                one.collected.restore(_unpickled(known.record))
                if number == 0:
                    self.n_computed -= one.collected.n_frames
        timings.shift_blocks(n_known, self._shift)

    def _begin_first(self, stage: Sequence[FramePass | PartsRun], timings: Timings) -> None:
        """Compare the run with the last one, and count the time of all earlier runs."""
        runs = [one for one in stage if isinstance(one, FramePass)]
        check_resumable(runs, "continued", "run it when the trajectory is complete")
        found = [fact for fact in facts(runs) if not fact[0].startswith(_GROWING)]
        if found != self._facts:
            self._settled, self._facts = {}, found
            self._elapsed, self._t_comm = 0, 0.0
        if self._settled:
            timings.precede(self._elapsed, self._t_comm)
        self._shift, self._dealt = timings.dealt - self._dealt, timings.dealt
        self._timings = timings
        self.n_computed = sum(len(one.plan.frames) for one in runs)

    def add(self, result: BlockResult) -> None:
        """Collect the results of one or several blocks."""
        self._stages[-1][result.job].collected.add(result)

    def settle(self) -> bool:
        """Keep the results of the settled blocks of the current stage, and release the others.

        Returns False if all blocks are done.
        """
        number = len(self._stages) - 1
        for k, one in enumerate(self._stages[-1]):
            if one not in self._held:
                continue
            record, _ = one.collected.since(Cursor())
            kept = _copied(with_pickled_nodes(record))
            plan, n_rows = one.plan, one.collected.n_frames
            self._settled[number, k] = _Settled(
                plan.frames[: n_rows + one.run.halo[1]].copy(), plan.leaves, plan.block_frames, kept
            )
            one.collected.release_last()
        held, self._held = self._held, []
        self._elapsed = time.monotonic_ns() - self._timings.dealt
        self._t_comm = self._timings.t_comm
        return any(len(one.collected.missing()) for one in held)


def _n_settled(one: FramePass) -> int:
    """Return the number of settled blocks of a pass: those before the first unsettled block."""
    plan = one.plan
    n_blocks = len(plan)
    full = plan.rows(n_blocks - 1)
    n_rows = len(plan.frames)
    # The last block is full if a block of one more frame would begin after it.
    is_full = plan.number(n_rows) == n_blocks and full.stop == n_rows
    n_settled = n_blocks if is_full else n_blocks - 1
    while n_settled and plan.rows(n_settled - 1).stop > one.n_final:
        n_settled -= 1
    return n_settled


def _fits(known: _Settled, one: FramePass) -> bool:
    """Return True if a pass begins with the frames and the blocks of settled results."""
    plan = one.plan
    blocks = known.leaves, known.block_frames
    first = plan.frames[: len(known.frames)]
    return blocks == (plan.leaves, plan.block_frames) and np.array_equal(known.frames, first)


def _copied(record: Record) -> Record:
    """Copy the rows of a record, because a user may change the results that contain them."""
    ranges = [
        RowRange(one.first, one.stop, np.array(one.times), [_copy(rows) for rows in one.rows])
        for one in record.ranges
    ]
    return replace(record, ranges=ranges)


def _copy(rows: RecordRange | np.ndarray) -> Records | np.ndarray:
    return rows.load() if isinstance(rows, RecordRange) else np.array(rows)


def _unpickled(record: Record) -> Record:
    """Unpickle the partial results; merging may change them, so each run gets its own."""
    nodes = {key: pickle.loads(data) for key, data in record.nodes.items()}
    return replace(record, nodes=nodes)
