"""Checkpoints: finished work of a run, stored so that the same run can resume after it was killed.

A checkpoint is a journal (`paceline._util.journal`). Its first record is JSON text with the facts
that identify a run, and the size of the run's blocks. Each further record is a pickle of plain
tuples, lists and arrays. It contains the number of a pass over a trajectory, a `Record` of the
results of this pass, and a `_Clock`. In the `Record`, the partial results of each subtree are
pickled separately.
"""

import contextlib
import json
import os
import pickle
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, NamedTuple, Self

import cloudpickle
import numpy as np

from paceline._core import __version__
from paceline._util.files import check_output
from paceline._util.journal import Journal
from paceline._util.python_object_digest import digest, members_used
from paceline._util.signals import Stopping, resume_advice
from paceline.contract.analysis import Analysis
from paceline.contract.analysis_kinds import Kind
from paceline.contract.plan import Plan
from paceline.contract.run_info_and_descriptions import RUN_ATTRIBUTES
from paceline.contract.system_interface import attribute_of
from paceline.engine.collect import Cursor, Record, RecordRange, RowRange
from paceline.engine.passes import FramePass
from paceline.engine.run_plan import TrajectoryRun
from paceline.engine.stage_over_collected_rows import PartsRun
from paceline.engine.tasks_and_results import BlockResult, LongBonds
from paceline.errors import CheckpointError, Terminated, UnsupportedError, warn
from paceline.performance.record import BlockTiming
from paceline.timing import Timings

#: Minimum time between two writes, seconds.
INTERVAL = 1.0
#: Minimum ratio of the time between two writes to the duration of the last write, so that writing
#: takes at most 2 % of the time.
SHARE = 50
#: The journal is rewritten if it is larger than necessary by more than this factor.
GROWTH = 3
#: Approximate size of the rows in one record when all records are rewritten, bytes.
ROWS_BYTES = 64 * 2**20

#: Attributes of analyses that `_used_by_next_stage` leaves out: those that the run sets, and those
#: that are compared separately.
_COMPARED = {*Analysis.__annotations__, *RUN_ATTRIBUTES, "transforms", "skip_damaged"}

#: Name of a fact, its value as a text, and its digest.
Fact = tuple[str, str, str]


class Checkpoint:
    """Checkpoint of one run, as a context manager.

    Enter it before blocks are assigned, and leave it when the results are complete.

    Parameters
    ----------
    path : path-like
        Checkpoint file. If it exists, the run resumes from it.

    Raises
    ------
    CheckpointError
        The file is not a checkpoint, is in use, or was damaged.
    FileNotFoundError
        The folder of the file does not exist.
    """

    def __init__(self, path: str | os.PathLike):
        check_output(path, overwrite=True)
        self._journal = Journal(path)
        self._records = self._journal.records()
        # Records, read from the journal, of stages that have not begun yet.
        self._later: list[bytes] = []
        self._shift = 0
        self._stopping = Stopping()
        self._runs: list[FramePass | PartsRun] = []
        self._stage: Sequence[FramePass | PartsRun] = ()
        self._cursors: list[Cursor] = []
        self._sizes: list[dict[tuple[int, int], int]] = []
        self._dead = 0
        self._whole = True
        self._old = self._warned = self._begun = self._finished = False
        try:
            header = next(self._records, None)
        except BaseException:
            self._journal.close()
            raise
        self._found = None if header is None else json.loads(header)
        self._bare = header is None
        if not self._journal.locked:
            warn(
                f"{self._journal.path}: its file system has no locks; make sure that no other "
                "run uses this checkpoint"
            )

    @property
    def path(self) -> str:
        """Path of the checkpoint file."""
        return self._journal.path

    def __enter__(self) -> Self:
        self._stopping.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and not self._finished:
                with self._stopping.delayed():
                    self._leave(error)
        finally:
            self._journal.close()
            self._stopping.__exit__(kind, error, trace)

    def block_frames(self, number: int, given: int | None) -> int | None:
        """Return the frames per block of a trajectory: those of the checkpoint, else `given`."""
        sizes = self._found["block_frames"] if self._found else []
        return sizes[number] if number < len(sizes) else given

    def begin_stage(self, runs: Sequence[FramePass | PartsRun], timings: Timings) -> None:
        """Restore the stored results of one stage; stages are restored in order.

        The time of the interrupted run is added to `timings`, as if that run had ended just now.
        Raises `CheckpointError` if the checkpoint belongs to another run, and `UnsupportedError` if
        a run of these analyses and trajectories cannot be resumed.
        """
        if not self._begun:
            self._recognize([one for one in runs if isinstance(one, FramePass)])
            self._timings = timings
        with self._stopping.delayed():
            restored = self._restore(runs)
            self._stage = runs
            self._runs += runs
            self._cursors += [one.collected.since(Cursor())[1] for one in runs]
            self._sizes += [{} for _ in runs]
            if not self._begun:
                self._due = time.monotonic() + INTERVAL
                self._bare = not restored
            self._old |= restored
            if self._old and not self._later:
                self._write()
            self._begun = True

    def _recognize(self, runs: Sequence[FramePass]) -> None:
        """Start the journal, or check that it belongs to this run."""
        check_resumable(runs, "resumed", "run it without a checkpoint")
        found = facts(runs)
        sizes = [one.run.plan.block_frames for one in runs]
        self._header = json.dumps({"facts": found, "block_frames": sizes}).encode()
        if self._found is None:
            self._journal.append(self._header)
            return
        differs = difference(self._found["facts"], found)
        if differs is not None:
            raise CheckpointError(
                f"{self._journal.path} is the checkpoint of another run: {differs}; name "
                "another file, or delete this one"
            )

    def _restore(self, runs: Sequence[FramePass | PartsRun]) -> bool:
        """Restore all records of a stage; return False if there were none."""
        nodes: list[dict[tuple[int, int], bytes]] = [{} for _ in runs]
        first, clock = len(self._runs), None
        records = self._later if self._begun else self._records
        self._later = []
        n_blocks = len(self._timings.blocks)
        for data in records:
            number, record, clock = _decode_record(self._unpickle(data))
            if number - first >= len(runs):
                self._later.append(data)
                continue
            nodes[number - first].update(record.nodes)
            runs[number - first].collected.restore(replace(record, nodes={}))
        for one, kept in zip(runs, nodes, strict=True):
            values = {key: self._unpickle(kept[key]) for key in uppermost(kept)}
            one.collected.restore(Record(nodes=values))
        if clock is None:
            return False
        if not self._begun:
            self._timings.precede(clock.now - clock.dealt, clock.t_comm)
            self._shift = self._timings.dealt - clock.dealt
        self._timings.shift_blocks(n_blocks, self._shift)
        return True

    def _unpickle(self, data: bytes) -> object:
        try:
            return pickle.loads(data)
        except Exception as error:  # unpickling may run the user's code
            raise CheckpointError(
                f"{self._journal.path}: the stored results cannot be read: {type(error).__name__}: "
                f"{error}; delete it to begin anew"
            ) from error

    def begin_run(self) -> None:
        """Do nothing, because a checkpoint belongs to one run."""

    def settle(self) -> bool:
        """Return False, because no blocks of a stage were postponed: all of them are done."""
        return False

    def add(self, result: BlockResult) -> None:
        """Collect the results of one or several blocks; write if the last write is old enough."""
        with self._stopping.delayed():
            self._whole = False
            self._stage[result.job].collected.add(result)
            self._whole = True
            begun = time.monotonic()
            if begun >= self._due:
                self._write()
                now = time.monotonic()
                self._due = now + max(INTERVAL, SHARE * (now - begun))

    def _write(self) -> None:
        """Write new results; if that fails, warn once, and try again at the next write."""
        if self._later:  # a rewrite would lose the records of stages that have not begun yet
            return
        try:
            if self._old:  # times in the journal refer to the clock of the interrupted run
                self._rewrite()
            for number in range(len(self._runs)):
                self._append(number)
            if self._journal.size > GROWTH * (self._journal.size - self._dead):
                self._rewrite()
        except OSError as error:
            if not self._warned:
                self._warned = True
                warn(
                    f"{self._journal.path}: {error.strerror}: the run continues, but new results "
                    "are stored only when there is free disk space"
                )

    def _append(self, number: int) -> None:
        """Write the new results of a pass over a trajectory; `number` is its index in `_runs`."""
        record, cursor = self._runs[number].collected.since(self._cursors[number])
        if record.ranges:
            record = with_pickled_nodes(record)
            self._journal.append(_encode_record(number, record, self._clock()))
            self._bare = False
            self._count(number, record, cursor)

    def _clock(self) -> "_Clock":
        return _Clock(self._timings.dealt, time.monotonic_ns(), self._timings.t_comm)

    def _count(self, number: int, record: Record, cursor: Cursor) -> None:
        """Update the sizes of stored subtrees, and the number of obsolete bytes in the journal."""
        sizes = self._sizes[number]
        sizes.update((key, len(data)) for key, data in record.nodes.items())
        self._dead += sum(sizes.pop(key) for key in sizes.keys() - cursor.nodes)
        self._cursors[number] = cursor

    def _rewrite(self) -> None:
        """Write all needed records to a new file, which replaces the journal."""
        found = [one.collected.since(Cursor()) for one in self._runs]
        records = [with_pickled_nodes(record) for record, _ in found]
        self._journal.rewrite(self._all_records(records))
        self._old = False
        self._dead, self._sizes = 0, [{} for _ in found]
        for number, (_, cursor) in enumerate(found):
            self._count(number, records[number], cursor)

    def _all_records(self, records: Sequence[Record]) -> Iterator[bytes]:
        yield self._header
        for number, record in enumerate(records):
            for rows in record.ranges:
                for some in split_rows(rows, ROWS_BYTES):
                    yield _encode_record(number, Record([some]), self._clock())
            yield _encode_record(number, replace(record, ranges=[]), self._clock())

    def finish(self) -> None:
        """Delete the checkpoint: the results are complete."""
        with self._stopping.delayed():
            self._finished = True
            try:
                self._journal.remove()
            except OSError as error:
                warn(f"{self._journal.path}: {error.strerror}: delete it yourself, it is done with")

    def _leave(self, error: BaseException) -> None:
        """Write what was collected before an error; state in the error how much is stored."""
        if self._begun and self._whole and not isinstance(error, CheckpointError):
            with contextlib.suppress(CheckpointError):  # the run ends with `error` instead
                self._write()
        kept = f"what was done before is in {self._journal.path} as it was"
        if self._bare:
            self._journal.remove()
            kept = "no results were kept yet, and there is no checkpoint"
        elif self._begun:
            n_kept = sum(cursor.n_frames for cursor in self._cursors)
            first = [one for one in self._runs if isinstance(one, FramePass) and one.is_first]
            # `n_frames` includes passes that have not begun.
            n_all = sum(one.n_frames for one in first)
            once = n_all == sum(len(one.plan.frames) for one in first)
            passes = "" if once else " of all passes"
            kept = f"{n_kept} of {n_all} frames{passes} are kept in {self._journal.path}"
        if isinstance(error, Terminated | KeyboardInterrupt):
            next_step = resume_advice(anew=self._bare)
            print(f"paceline: {kept}; {next_step}", file=sys.stderr, flush=True)
        elif self._begun and not self._bare:
            error.add_note(f"{kept}; {resume_advice()}")


def check_resumable(runs: Sequence[FramePass], done: str, advice: str) -> None:
    """Raise `UnsupportedError` if results of an analysis or trajectory cannot be stored.

    The message states that they cannot be `done`, such as "continued", and contains `advice`.
    """
    for one in runs:
        for analysis in one.run.job.analyses:
            if analysis.kind is Kind.BLOCKS:
                raise UnsupportedError(
                    f"{analysis.name} writes a file while blocks arrive, which cannot be {done}: "
                    f"{advice}"
                )
        if not one.shareable:
            path = one.run.trajectory.provenance()["trajectory"]
            raise UnsupportedError(
                f"{path} is read by MDAnalysis, so that a changed file could not be detected: "
                f"{advice}"
            )


class _Clock(NamedTuple):
    """Times that are stored with each record."""

    #: Time at which the first block was assigned, ns.
    dealt: int
    #: Time at which the record was written, ns.
    now: int
    #: Time spent so far on collecting results, s.
    t_comm: float


_TIMING_VALUES = attrgetter(*(column.name for column in fields(BlockTiming)))


def _encode_record(number: int, record: Record, clock: _Clock) -> bytes:
    """Pickle a record as plain values: in later versions, classes may be in other modules."""
    ranges = [
        (one.first, one.stop, np.asarray(one.times), [_plain(rows) for rows in one.rows])
        for one in record.ranges
    ]
    timings = list(map(_TIMING_VALUES, record.timings))
    long_bonds = list(map(tuple, record.long_bonds))
    plain = number, ranges, record.nodes, record.damaged, timings, tuple(clock), long_bonds
    return pickle.dumps(plain, 5)


def _plain(rows: object) -> Any:
    """Convert rows for pickling: a `RecordRange` to (counts, records), other rows to an array."""
    return tuple(rows.load()) if isinstance(rows, RecordRange) else np.asarray(rows)


def _decode_record(plain: Any) -> tuple[int, Record, _Clock]:
    number, ranges, nodes, damaged, timings, clock, *more = plain
    record = Record(
        [RowRange(*one) for one in ranges],
        nodes,
        damaged,
        [BlockTiming(*values) for values in timings],
        # Records of earlier versions lack these items.
        [LongBonds(*values) for long_bonds in more for values in long_bonds],
    )
    return number, record, _Clock(*clock)


def with_pickled_nodes(record: Record) -> Record:
    """Pickle each subtree's partial results separately, so that obsolete ones need not be read.

    Raises `CheckpointError` if a partial result cannot be pickled.
    """
    try:
        nodes = {key: _pickle(values) for key, values in record.nodes.items()}
    except Exception as error:  # pickling runs the objects' own code
        raise CheckpointError(
            f"a partial result cannot be stored in a checkpoint: {type(error).__name__}: {error}"
        ) from error
    return replace(record, nodes=nodes)


def _pickle(value: object) -> bytes:
    """Pickle by reference if possible, because a class must be the same object afterwards."""
    try:
        return pickle.dumps(value, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return cloudpickle.dumps(value, 5)


def split_rows(rows: RowRange, size: int) -> Iterator[RowRange]:
    """Split a range into parts of about `size` bytes, with at least one row each."""
    n_rows = rows.stop - rows.first
    n_bytes = rows.times.nbytes + sum(values.nbytes for values in rows.rows)
    step = max(1, n_rows * size // n_bytes)
    for k in range(0, n_rows, step):
        some = slice(k, min(k + step, n_rows))
        values = [column[some] for column in rows.rows]
        yield RowRange(rows.first + k, rows.first + some.stop, rows.times[some], values)


def uppermost(nodes: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Select the subtrees, given as (level, number), that are not part of another subtree.

    Examples
    --------
    >>> uppermost([(0, 0), (0, 1), (1, 0), (0, 2)])
    [(1, 0), (0, 2)]
    """
    known = set(nodes)
    top = max((level for level, _ in known), default=0)
    return [
        (level, number)
        for level, number in nodes
        if not any((up, number >> (up - level)) in known for up in range(level + 1, top + 1))
    ]


def facts(runs: Sequence[FramePass]) -> list[Fact]:
    """Collect all facts that determine the bits of the results, except those about the machine.

    Facts are equal in every process that makes the same run.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    found = [
        _fact("version of paceline", __version__),
        _fact("version of Python", python),
        _fact("version of NumPy", np.__version__),
        _fact("number of trajectories", str(len(runs))),
    ]
    for k, one in enumerate(runs):
        which = f" of trajectory {k}" if len(runs) > 1 else ""
        found += [(what + which, shown, value) for what, shown, value in _facts_of(one.run)]
    return found


def difference(there: Sequence[Sequence[str]], here: Sequence[Fact]) -> str | None:
    """Describe the first fact in which two runs differ; None if the runs are the same.

    Examples
    --------
    >>> difference([("frames", "10 from 0 to 9", "ab")], [("frames", "5 from 0 to 4", "cd")])
    'frames: 10 from 0 to 9 there, 5 from 0 to 4 here'
    """
    for (what, before, digest_before), (_, now, digest_now) in zip(there, here, strict=False):
        if digest_before != digest_now:
            if before != now:
                return f"{what}: {before} there, {now} here"
            return f"{what}: not the same as there ({now})"
    return None


def _fact(what: str, shown: str, *compared: object) -> Fact:
    """Create a fact that identifies a run, with the text `shown` for messages.

    Runs are compared by the values `compared`; if none are given, by the text.
    """
    return what, shown, digest(*(compared or (shown,)))


def _facts_of(one: TrajectoryRun) -> Iterator[Fact]:
    for what, shown, value in one.trajectory.identity:
        yield _fact(what, shown, value)
    time_axis = one.job.source.time_axis
    yield _fact("times", f"{time_axis}", vars(time_axis))
    yield _fact("frames", _describe(one.plan), one.plan.frames)
    yield _fact("on_error", "skip" if one.job.skip_damaged else "raise")
    done = "; ".join(transform.parameters() for transform in one.transforms) or "none"
    yield _fact("transforms", done, done, list(one.job.transforms))
    named = (analysis.name for analysis in one.analyses if not analysis.is_companion)
    yield _fact("analyses", ", ".join(named))
    both = list(zip(one.analyses, one.job.analyses, strict=True))
    # List requested analyses before companions, because only the first difference is reported.
    both.sort(key=lambda pair: pair[0].is_companion)
    for analysis, half in both:
        indices = np.asarray(analysis.indices)
        atoms = f"{len(indices)}"
        yield _fact(f"atoms of {analysis.name}", atoms, indices, dict(half.attributes))
        given = dict(sorted(analysis.parameters().items()))
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        yield _fact(f"parameters of {analysis.name}", shown, given)
        computed: list[object] = [half.computation, list(analysis.fields)]
        if any(half.halo):
            computed.append(half.halo)
        if analysis.stages > 1:
            computed += [analysis.stages, _used_by_next_stage(analysis)]
        yield _fact(f"function or reference of {analysis.name}", "its code and numbers", computed)


def _used_by_next_stage(analysis: Analysis) -> dict[str, Any]:
    """Collect, by name, the attributes that an analysis uses in `next_stage`."""
    universe, found = analysis.atomgroup.universe, {}
    for name, value in members_used(analysis, "next_stage").items():
        if attribute_of(value, "universe") is universe:
            # Atoms of the trajectory itself: store indices, because positions depend on the frame.
            found[name] = value.atoms.indices
        elif name not in _COMPARED:
            found[name] = value
    return found


def _describe(plan: Plan) -> str:
    return f"{len(plan.frames)} from {plan.frames[0]} to {plan.frames[-1]}"
