"""Continue runs over a trajectory that grows: only frames that are new are read and computed.

A block of frames is *settled* if further frames of the trajectory cannot change its results: the
block is full, and the frames of its halo exist. In the scan of a transformation, there is a third
condition: no further block may begin to read at a frame of this block. Rows and merged partial
results of settled blocks are stored for the next run. The other blocks, at the end of the
trajectory, are computed in each run. Partial results are merged over the same tree as in a run over
all frames at once, so the results are bit-identical to those of that run.
"""

import os
import pickle
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np

from paceline._util.arguments import positive_number, slice_of, whole_number
from paceline._util.files import check_output, is_stream
from paceline._util.leftovers import ScratchFolder
from paceline.checkpoint import Fact, check_resumable, facts, with_pickled_nodes
from paceline.contract.analysis import Analysis, is_updated
from paceline.contract.loaded_atoms import LoadedAtoms
from paceline.contract.plan import LeafBoundaries, choose_frames
from paceline.contract.system_interface import Frames, System, attribute_of
from paceline.engine.collect import Cursor, Record, RecordRange, RowRange
from paceline.engine.passes import FramePass
from paceline.engine.stage_over_collected_rows import PartsRun
from paceline.engine.tasks_and_results import BlockResult, Records
from paceline.errors import (
    MissingDataError,
    ReadError,
    UnsupportedError,
    kept_warnings,
    quiet_warnings,
    warn,
)
from paceline.performance.number_format import many
from paceline.timing import Timings
from paceline.trajectory.growth import (
    IDLE_SECONDS,
    Feed,
    FollowedFile,
    FollowedStream,
    Growable,
    TeeSource,
    growable,
)
from paceline.trajectory.write_stream_to_file import (
    TEMPORARY,
    KeptFrames,
    TeeOptions,
    growing_format,
)
from paceline.transform.selections_and_weights import select_atoms

#: Facts that change when a trajectory grows; all others must be the same in the next run. The
#: values of "units" contain the header of a DCD file, which may state the number of frames.
_GROWING = ("trajectory", "units", "frames")
#: Minimum time between two updates, as a multiple of the duration of the last update. With 1, even
#: updates of many frames take at most half of the workers' time.
SHARE = 1.0
#: Maximum time to wait until the first frame of a stream, which has been received, is in the file,
#: s. In a DCD file, the first frame is written only when the second one has been received.
FIRST_SECONDS = 600.0
#: A number larger than the number of frames of any trajectory.
_LARGEST = 2**62
#: Maximum time between two checks for new frames, s.
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class _Settled:
    """Results of the settled blocks of one pass; partial results of subtrees are pickled."""

    #: Frames of the blocks, and of the halo after them.
    frames: np.ndarray
    leaves: LeafBoundaries
    block_frames: int
    record: Record


class Continuation:
    """Results of a run, with which the same run continues over more frames of the trajectory.

    Pass the same object as `checkpoint` to consecutive runs of the same analyses, with the same
    options, while the trajectory grows. A second pass over the frames is continued if it belongs
    to a prefix scan; other second passes read all frames again. If more frames change the blocks,
    or change what an analysis computes, stored results are dropped and all frames are computed.

    Attributes
    ----------
    n_computed : int
        Number of frames that the last run computed in its first pass; results of other frames were
        stored by earlier runs.
    """

    #: None: a continuation has the interface of `paceline.checkpoint.Checkpoint`, but no file.
    path: str | None = None

    def __init__(self) -> None:
        self._settled: dict[tuple[int, int], _Settled] = {}
        self._facts: list[Fact] = []
        self._stages: list[Sequence[FramePass | PartsRun]] = []
        self._held: list[FramePass] = []
        # All in ns. `_elapsed`: total time of the runs so far. `_dealt`: time at which the last run
        # assigned its first block. `_shift`: difference between `_dealt` and its previous value.
        self._elapsed = self._dealt = self._shift = 0
        self._t_comm = 0.0
        self.n_computed = 0

    def block_frames(self, number: int, given: int | None) -> int:
        """Return 1, so that each block is a single leaf, and few frames remain unsettled."""
        return 1

    def begin_run(self) -> None:
        """Prepare for the next run, which has no stages yet."""
        self._stages = []

    def begin_stage(self, stage: Sequence[FramePass | PartsRun], timings: Timings) -> None:
        """Restore the settled blocks of one stage, and postpone its unsettled blocks.

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
        """Compare the run with the last one, and add the time of all earlier runs to `timings`."""
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
        """Collect the results of one or several blocks of the current stage."""
        self._stages[-1][result.job].collected.add(result)

    def settle(self) -> bool:
        """Store the results of the settled blocks of the current stage for the next run.

        Afterwards, the postponed blocks can be computed. Returns False if there are none.
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
    # The last block is full if one more frame would belong to a new block.
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
    """Unpickle the partial results: each run needs its own copy, because merging may change it."""
    nodes = {key: pickle.loads(data) for key, data in record.nodes.items()}
    return replace(record, nodes=nodes)


@dataclass(frozen=True)
class GrownRun:
    """State of analyses after one more run; `paceline.live_runner.Update` describes the fields."""

    analyses: Mapping[str, Analysis]
    trajectory: Growable
    n_frames: int
    n_computed: int
    seconds: float
    lag: float
    ended: str | None = None
    is_last: bool = False
    error: Exception | None = None


State = TypeVar("State", bound=GrownRun)


@dataclass(frozen=True)
class AwaitedFrames:
    """Choice of frames for a run over a trajectory whose last frame is not known yet.

    Raises `UnsupportedError` for a choice that needs the number of frames. Raises `ValueError` if
    the choice contains no frame, because the run would wait for one without end.
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None
    frames: Sequence[int] | np.ndarray | Callable[[Frames], Sequence[int] | np.ndarray] | None = (
        None
    )

    def __post_init__(self) -> None:
        if any(bound is not None and bound < 0 for bound in (self.start, self.stop)):
            raise UnsupportedError(
                "start= and stop= count from the first frame, since the last one is not known"
            )
        if self.frames is not None and not callable(self.frames):
            raise UnsupportedError("frames= would need the frames that are not written yet")
        bounds = self.start, self.stop, self.step
        if self.frames is not None and bounds != (None, None, None):
            raise ValueError("give either frames or start, stop and step, not both")
        if self.frames is None and not range(_LARGEST)[slice_of(*bounds)]:
            start, stop, step = bounds
            raise ValueError(f"start={start}, stop={stop} and step={step} choose no frames")

    def count(self, trajectory: Growable) -> int:
        """Count the chosen frames that exist already."""
        frames = self.frames
        try:
            chosen = frames(cast(Frames, trajectory)) if callable(frames) else frames
            n_frames = trajectory.n_frames
            return len(choose_frames(n_frames, self.start, self.stop, self.step, chosen))
        except ValueError:  # no chosen frame is written yet
            return 0


class GrowingRun(Generic[State]):
    """Runs of the same analyses over the trajectory of a Universe, which grows.

    `run_during` runs the analyses that are updated, over the frames that exist so far, and returns
    these analyses by name. `run_after` runs all other analyses over the complete trajectory, and
    returns all analyses. `state` is the class of the states that `states` yields. A run begins at
    least `every` seconds after the previous run began. `stop_when` returns the reason to end the
    simulation, or None. `enough` returns the reason why no further frames are needed, or None; the
    simulation itself may go on.
    """

    def __init__(
        self,
        universe: System,
        analyses: Mapping[str, Analysis],
        state: type[State],
        chosen: AwaitedFrames,
        *,
        run_during: Callable[[Continuation], Mapping[str, Analysis]],
        run_after: Callable[[], Mapping[str, Analysis]],
        every: float,
        stop_when: Callable[[State], str | None] | None = None,
        enough: Callable[[State], str | None] | None = None,
    ):
        self._universe, self._all, self._make, self._chosen = universe, analyses, state, chosen
        self._run_during, self._run_after = run_during, run_after
        self._stop_when, self._enough = stop_when, enough
        self._every = positive_number("every", every, "s")
        self._kept = Continuation()
        #: Warnings about the stream, from opening it and from writing its frames to a file.
        self._warned: list[str] = []
        self._begun = time.monotonic()

    def open_feed(self, idle: float | None, options: TeeOptions) -> Feed:
        """Begin to follow the file, or to write the stream to a file that is followed."""
        universe, given = self._universe, options.get("tee")
        overwrite = options.get("overwrite", False)
        needed = {field for one in self._all.values() for field in one.fields}
        if given is not None:
            # Check the file before `universe.trajectory` connects to a stream that is not connected
            # yet.
            growing_format(given, needed)
            check_output(given, overwrite=overwrite)
        stream = universe.trajectory
        if not isinstance(stream, TeeSource):
            if is_stream(stream.filename):
                raise UnsupportedError(
                    f"{stream.filename}: MDAnalysis reads this stream, frame by frame: open it "
                    "with paceline.Universe"
                )
            for name in ("tee", "tee_atoms", "tee_step"):
                if options.get(name) is not None:
                    text = f"{stream.filename}: {name}= applies to streams (imd://), not to files"
                    raise UnsupportedError(text)
            last = growable(stream).chain.files[-1].path
            return FollowedFile(last, IDLE_SECONDS if idle is None else idle)
        if idle is not None:
            stream.set_timeout(positive_number("idle", idle))
        if lacking := sorted(needed.difference(stream.fields)):
            raise MissingDataError(
                f"{stream.filename}: an analysis needs {' and '.join(lacking)}, but the engine "
                f"sends only {' and '.join(stream.fields)}: enable them in its input"
            )
        path = stream.tee_path if given is None else given
        if path is not None:
            # Check here, so that errors name this file and not a temporary file with its extension.
            growing_format(path, needed)
            check_output(path, overwrite=overwrite)
        shown = Path(TEMPORARY if stream.tee_path is None else stream.tee_path).suffix
        ending = shown if path is None else Path(path).suffix
        kept = _kept_frames(universe, path, options)
        came_from = {}
        if path is None or kept is not None:
            path = _temporary_file(universe, ending)
            came_from = {"came_from": stream.filename}
        if ending != shown and stream.was_read:
            warn(
                f"{stream.filename}: positions that were read from the first frame, perhaps as a "
                f"reference, are those of {shown[1:].upper()}, but {os.fspath(given or path)} "
                "rounds in another way: name the file when the Universe is opened, tee="
            )
        opening = attribute_of(universe, "opening_warnings") or []
        self._warned += [text for text in opening if text.startswith(f"{stream.filename}: ")]
        with kept_warnings(self._warned):  # also warnings of the thread that writes the file
            feed = FollowedStream(stream.tee(path, overwrite=overwrite, kept=kept))
        try:
            if not feed.wait(FIRST_SECONDS):
                raise feed.error or ReadError(f"{stream.filename}: no frame could be written")
            with feed.between_frames():
                universe.load_new(feed.path, **came_from)  # type: ignore[attr-defined]
        except BaseException:
            feed.close()
            raise
        growable(universe.trajectory).chain.is_streamed = True
        attribute_of(universe, "opening_warnings")[:0] = opening
        feed.rewind()
        return feed

    def states(self, feed: Feed) -> Generator[State]:
        """Yield the state after each run; the last one contains all results."""
        self._feed = feed
        self._trajectory = growable(self._universe.trajectory)
        stop_engine = False
        ended: str | None = None
        try:
            try:
                due = time.monotonic()
                while ended is None:
                    if not self._wait(due):
                        ended = self._feed.ended
                        continue
                    begun = time.monotonic()
                    state = self._run()
                    if state is not None:
                        yield state
                        ended = self._reason_to_leave(state)
                        if ended is None:
                            ended = self._reason_to_stop(state)
                            stop_engine = ended is not None
                    # Include the time that the caller spends on the state.
                    now = time.monotonic()
                    due = max(begun + self._every, now + SHARE * (now - begun))
            except KeyboardInterrupt:
                ended, stop_engine = "it was interrupted", False
            self._feed.close(stop_engine=stop_engine)
            yield from self._finish(ended)
            if self._feed.error is not None:
                raise self._feed.error
        finally:
            self._feed.close()

    def _wait(self, due: float) -> bool:
        """Wait until the trajectory has grown and the next run is due; False if it has ended.

        The end of the trajectory is detected even while no run is due yet.
        """
        has_grown = False
        while self._feed.ended is None:
            left = due - time.monotonic()
            if has_grown and left <= 0:
                return True
            seconds = min(LOOK_SECONDS, left) if left > 0 else LOOK_SECONDS
            has_grown |= self._feed.wait(seconds)
            if has_grown and left > 0:
                time.sleep(seconds)
        return has_grown

    def _reason_to_leave(self, state: State) -> str | None:
        """Return the reason why no further frame is needed; the simulation may go on."""
        stop = self._chosen.stop
        if stop is not None and self._trajectory.n_frames >= stop:
            return f"{many(stop, 'frame')} were asked for"
        return None if self._enough is None else self._enough(state)

    def _reason_to_stop(self, state: State) -> str | None:
        """Return the reason to end the simulation; None to go on."""
        found = None if self._stop_when is None else self._stop_when(state)
        if isinstance(found, bool):
            return "stop_when returned True" if found else None
        if not isinstance(found, str | None):
            raise TypeError(f"stop_when: expected the reason to stop, or None, found {found!r}")
        return found

    def _run(self) -> State | None:
        """Include the new frames, run the analyses, and return the new state.

        Returns None if the first chosen frame, or a frame that is a reference, is not written yet.
        """
        self._extend()
        n_frames = self._chosen.count(self._trajectory)
        needed = [one.frames_needed for one in self._all.values() if is_updated(one)]
        if n_frames == 0 or self._trajectory.n_frames < max(needed, default=1):
            return None
        # An update only records warnings in its tables; the last update issues all of them.
        with quiet_warnings():
            analyses = self._run_during(self._kept)
        return self._state(n_frames, analyses)

    def _extend(self) -> None:
        """Include the new frames, and record the warnings of the stream with the results."""
        self._trajectory.extend()
        opening = attribute_of(self._universe, "opening_warnings") or []
        for kept in (self._trajectory.chain.warnings, opening):
            kept += [text for text in self._warned if text not in kept]

    def _state(
        self,
        n_frames: int,
        analyses: Mapping[str, Analysis],
        ended: str | None = None,
        *,
        is_last: bool = False,
    ) -> State:
        seconds, lag = time.monotonic() - self._begun, self._feed.since_frame
        return self._make(
            *(analyses, self._trajectory, n_frames, self._kept.n_computed, seconds, lag, ended),
            is_last=is_last,
            error=self._feed.error,
        )

    def _finish(self, ended: str) -> Iterator[State]:
        """Compute all results over the complete trajectory, and issue its warnings."""
        self._extend()
        analyses = self._run_during(self._kept)
        n_frames = self._chosen.count(self._trajectory)
        if analyses.keys() != self._all.keys():
            yield self._state(n_frames, analyses, ended)
        analyses = self._run_after()
        yield self._state(n_frames, analyses, ended, is_last=True)


def _kept_frames(
    universe: System, path: str | os.PathLike | None, options: TeeOptions
) -> KeptFrames | None:
    """Return the atoms and frames that are written to the user's file; None if all are written."""
    atoms, step = options.get("tee_atoms"), options.get("tee_step")
    if atoms is None and step is None:
        return None
    if path is None:
        name = "tee_step" if atoms is None else "tee_atoms"
        raise UnsupportedError(f"{name}= chooses what a file contains: name the file, tee=")
    n_atoms = len(universe.atoms)
    indices = None
    if atoms is not None:
        if isinstance(atoms, str):
            atoms = select_atoms(universe, [atoms], "tee_atoms")
        if attribute_of(atoms, "universe") not in (None, universe):
            raise UnsupportedError("tee_atoms= are atoms of another Universe than the analyses")
        found = attribute_of(atoms, "indices")
        chosen = LoadedAtoms.of(atoms if found is None else found, n_atoms, "tee_atoms=")
        indices = None if len(chosen.indices) == n_atoms else chosen.indices
    return KeptFrames(path, indices, 1 if step is None else whole_number("tee_step", step, 1))


def _temporary_file(universe: System, ending: str) -> str:
    """Return the name of a file in a new folder, which is deleted with the Universe."""
    folder = ScratchFolder("live")
    folder.remove_with(universe)
    return os.path.join(folder.path, f"stream{ending}")
