"""Finished work of a run, kept so that the same run can go on after it was killed.

The checkpoint is a journal (`paceline._util.journal`). Its first record is JSON: the facts by which
a run is recognised, and the size of its blocks. Each other record is a pickle: the number of a
trajectory, a `Record` of its results with each subtree's partial results pickled by themselves, and
the clock.
"""

import contextlib
import json
import os
import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from paceline._core import __version__
from paceline._util.digest import digest
from paceline._util.files import refuse_impossible
from paceline._util.journal import Journal
from paceline._util.signals import Stopping, how_to_go_on
from paceline.errors import CheckpointError, Terminated, UnsupportedError
from paceline.performance.timings import Timings
from paceline.schedule.collect import Cursor, Record, cut, pickled, uppermost
from paceline.schedule.tasks import BlockResult
from paceline.schedule.trajectory_run import TrajectoryRun
from paceline.trajectory.open import warn

if TYPE_CHECKING:
    from paceline.schedule.plan import Plan
    from paceline.schedule.trajectory_run import Analysis

#: What a fact is about, how it is shown to a person, and by what it is compared.
Fact = tuple[str, str, str]


def facts(passes: Sequence["TrajectoryRun"]) -> list[Fact]:
    """All that the bits of the results depend on, but for the machine.

    Parameters
    ----------
    passes : sequence of TrajectoryRun
        Dealt.

    Returns
    -------
    list of (str, str, str)
        Of each fact its name, its value in words, and its digest; the same in any process in which
        the same is run.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    found = [
        _fact("version of paceline", __version__),
        _fact("version of Python", python),
        _fact("version of NumPy", np.__version__),
        _fact("number of trajectories", str(len(passes))),
    ]
    for k, one in enumerate(passes):
        which = f" of trajectory {k}" if len(passes) > 1 else ""
        found += [(what + which, shown, value) for what, shown, value in _of_pass(one)]
    return found


def difference(there: Sequence[Sequence[str]], here: Sequence[Fact]) -> str | None:
    """The first thing in which two runs differ.

    Parameters
    ----------
    there, here : sequence of (str, str, str)
        Facts of an earlier run and of this one.

    Returns
    -------
    str or None
        In words; None where they are the same run.

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


def _fact(what: str, shown: str, *compared: Any) -> Fact:
    return what, shown, digest(*(compared or (shown,)))


def _of_pass(one: "TrajectoryRun") -> Iterator[Fact]:
    provenance, source = one.trajectory.provenance(), one.job.source
    yield _fact("trajectory", str(provenance["trajectory"]), provenance["fingerprint"])
    yield _fact("times", f"{source.clock}", vars(source.clock))
    yield _fact("frames", _describe(one.plan), one.plan.frames)
    yield _fact("on_error", "skip" if one.job.skip_damaged else "raise")
    done = "; ".join(transform.parameters() for transform in one.transforms) or "none"
    yield _fact("transforms", done, done, list(one.job.transforms))
    yield _fact("analyses", ", ".join(analysis.name for analysis in one.analyses))
    for analysis, part in zip(one.analyses, one.job.parts, strict=True):
        indices = np.asarray(analysis.indices)
        atoms = f"{len(indices)}"
        yield _fact(f"atoms of {analysis.name}", atoms, indices, dict(part.attributes))
        given = _parameters(analysis)
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        yield _fact(f"parameters of {analysis.name}", shown, given)
        computed = [part.computation, list(analysis.fields)]
        yield _fact(f"function or reference of {analysis.name}", "its code and numbers", computed)


def _describe(plan: "Plan") -> str:
    return f"{len(plan.frames)} from {plan.frames[0]} to {plan.frames[-1]}"


def _parameters(analysis: "Analysis") -> Mapping[str, Any]:
    """Not every analysis keeps a record of them."""
    return analysis.parameters() if hasattr(analysis, "parameters") else {}


#: Between two writings, seconds at the least …
INTERVAL = 1.0
#: … and so many times as long as the last one took: writing costs 2 % at the most.
SHARE = 50
#: Records that hold nothing of use any more make the journal so many times larger than it need be
#: before it is written anew.
GROWTH = 3
#: Rows in one record where all are written anew, bytes.
ROWS_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _Clock:
    """When blocks were first dealt and the record was made, ns, and what collecting took, s."""

    dealt: int
    now: int
    t_comm: float


class Checkpoint:
    """The checkpoint of one run: entered before blocks are dealt, left when results are there.

    Parameters
    ----------
    path : path-like
        The file. Where there is one, the run goes on from it.

    Raises
    ------
    CheckpointError
        The file is no checkpoint, is in use, or was damaged.
    FileNotFoundError
        Its folder does not exist.
    """

    def __init__(self, path: str | os.PathLike):
        refuse_impossible(path, overwrite=True)
        self._journal = Journal(path)
        self._records = self._journal.records()
        self._stopping = Stopping()
        self._passes: Sequence[TrajectoryRun] = ()
        self._marks: list[Cursor] = []
        self._sizes: list[dict[tuple[int, int], int]] = []
        self._dead = 0
        self._whole = True
        self._warned = self._begun = self._finished = False
        try:
            header = next(self._records, None)
        except BaseException:
            self._journal.close()
            raise
        self._found = None if header is None else json.loads(header)
        self._bare = header is None
        if not self._journal.locked:
            warn(
                f"{self._journal.path}: its file system knows no locks; make sure that no other "
                "run uses this checkpoint"
            )

    @property
    def path(self) -> str:
        """The file."""
        return self._journal.path

    def __enter__(self) -> Self:
        self._stopping.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None and not self._finished:
                with self._stopping.held():
                    self._leave(error)
        finally:
            self._journal.close()
            self._stopping.__exit__(kind, error, traceback)

    def block_frames(self, number: int, given: int | None) -> int | None:
        """Frames in a block: those of the run that is gone on with, whatever is asked for now.

        Parameters
        ----------
        number : int
            Of the trajectory.
        given : int or None
            What was asked for.

        Returns
        -------
        int or None
        """
        sizes = self._found["block_frames"] if self._found else []
        return sizes[number] if number < len(sizes) else given

    def begin(self, passes: Sequence[TrajectoryRun], timings: Timings) -> None:
        """Put back what is kept.

        Parameters
        ----------
        passes : sequence of TrajectoryRun
            Ready to collect.
        timings : Timings
            Of this run; becomes that of both, as if this one had begun when the other one ended.

        Raises
        ------
        CheckpointError
            The checkpoint is of another run.
        UnsupportedError
            A run of which no checkpoint can be kept.
        """
        _refuse_impossible(passes)
        found = facts(passes)
        sizes = [one.plan.block_frames for one in passes]
        self._header = json.dumps({"facts": found, "block_frames": sizes}).encode()
        if self._found is None:
            self._journal.append(self._header)
        else:
            differs = difference(self._found["facts"], found)
            if differs is not None:
                raise CheckpointError(
                    f"{self._journal.path} is the checkpoint of another run: {differs}; name "
                    "another file, or delete this one"
                )
        self._timings = timings
        with self._stopping.held():
            restored = self._restore(passes)
            self._passes = passes
            self._marks = [Cursor() for _ in passes]
            self._sizes = [{} for _ in passes]
            self._due = time.monotonic() + INTERVAL
            self._bare = not restored
            if restored:
                self._rewrite()
            self._begun = True

    def _restore(self, passes: Sequence[TrajectoryRun]) -> bool:
        """Whether there was anything."""
        nodes: list[dict[tuple[int, int], bytes]] = [{} for _ in passes]
        clock = None
        for record in self._records:
            number, page, clock = self._loaded(record)
            nodes[number].update(page.nodes)
            passes[number].collected.restore(replace(page, nodes={}))
        for one, kept in zip(passes, nodes, strict=True):
            values = {key: self._loaded(kept[key]) for key in uppermost(kept)}
            one.collected.restore(Record(nodes=values))
        if clock is not None:
            elapsed = clock.now - clock.dealt
            self._timings.precede(elapsed, clock.dealt, clock.t_comm)
        return clock is not None

    def _loaded(self, pickled: bytes) -> Any:
        try:
            return pickle.loads(pickled)
        except Exception as error:  # it may run code of the user's own
            raise CheckpointError(
                f"{self._journal.path}: what is kept cannot be read back: {type(error).__name__}: "
                f"{error}; delete it to begin anew"
            ) from error

    def add(self, outcome: BlockResult) -> None:
        """Put the results of one or several blocks where they belong, and keep them soon.

        Parameters
        ----------
        outcome : BlockResult
            Of these blocks.
        """
        with self._stopping.held():
            self._whole = False
            self._passes[outcome.job].add(outcome)
            self._whole = True
            begun = time.monotonic()
            if begun >= self._due:
                self._write()
                now = time.monotonic()
                self._due = now + max(INTERVAL, SHARE * (now - begun))

    def _write(self) -> None:
        """Keep what has come; where that is impossible, tell so and try again next time."""
        try:
            for number in range(len(self._passes)):
                self._append(number)
            if self._journal.size > GROWTH * (self._journal.size - self._dead):
                self._rewrite()
        except OSError as error:
            if not self._warned:
                self._warned = True
                warn(
                    f"{self._journal.path}: {error.strerror}: the run goes on, but what is done "
                    "from here on is kept only once there is room"
                )

    def _append(self, number: int) -> None:
        page, mark = self._passes[number].collected.since(self._marks[number])
        if page.spans:
            page = pickled(page)
            self._journal.append(self._record(number, page))
            self._bare = False
            self._count(number, page, mark)

    def _record(self, number: int, page: Record) -> bytes:
        clock = _Clock(self._timings.dealt, time.monotonic_ns(), self._timings.t_comm)
        return pickle.dumps((number, page, clock), 5)

    def _count(self, number: int, page: Record, mark: Cursor) -> None:
        """Take note of what the journal has, and of how much of that is of no use now."""
        sizes = self._sizes[number]
        sizes.update((key, len(data)) for key, data in page.nodes.items())
        self._dead += sum(sizes.pop(key) for key in sizes.keys() - mark.nodes)
        self._marks[number] = mark

    def _rewrite(self) -> None:
        """Write all that is of use to a new file, which takes this one's place."""
        pages = [one.collected.since(Cursor()) for one in self._passes]
        whole = [pickled(page) for page, _ in pages]
        self._journal.rewrite(self._all_records(whole))
        self._dead, self._sizes = 0, [{} for _ in pages]
        for number, (_, mark) in enumerate(pages):
            self._count(number, whole[number], mark)

    def _all_records(self, pages: Sequence[Record]) -> Iterator[bytes]:
        yield self._header
        for number, page in enumerate(pages):
            for span in page.spans:
                for part in cut(span, ROWS_BYTES):
                    yield self._record(number, Record([part]))
            yield self._record(number, replace(page, spans=[]))

    def finish(self) -> None:
        """Delete the checkpoint: the results are there, and nobody shall take them for others."""
        with self._stopping.held():
            self._finished = True
            try:
                self._journal.remove()
            except OSError as error:
                warn(f"{self._journal.path}: {error.strerror}: delete it yourself, it is done with")

    def _leave(self, error: BaseException) -> None:
        """Keep what has come until an error, and say so."""
        if self._begun and self._whole and not isinstance(error, CheckpointError):
            with contextlib.suppress(CheckpointError):  # what ends the run is something else
                self._write()
        kept = f"what was done before is in {self._journal.path} as it was"
        if self._bare:
            self._journal.remove()
            kept = "nothing was done yet"
        elif self._begun:
            n_kept = sum(mark.n_frames for mark in self._marks)
            n_all = sum(len(one.plan.frames) for one in self._passes)
            kept = f"{n_kept} of {n_all} frames are kept in {self._journal.path}"
        if isinstance(error, Terminated | KeyboardInterrupt):
            print(f"paceline: {kept}; {how_to_go_on()}", file=sys.stderr, flush=True)
        elif self._begun and not self._bare:
            error.add_note(f"{kept}; {how_to_go_on()}")


def _refuse_impossible(passes: Sequence[TrajectoryRun]) -> None:
    for one in passes:
        for part in one.job.parts:
            if part.per_block:
                raise UnsupportedError(
                    f"{part.name} writes a file as blocks come, and that cannot be gone on with: "
                    "run it without a checkpoint"
                )
        if not one.trajectory.shareable:
            raise UnsupportedError(
                f"{one.trajectory.provenance()['trajectory']} is read by MDAnalysis, so that it "
                "could not be noticed if it were another file: run it without a checkpoint"
            )
