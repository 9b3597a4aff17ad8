"""Analyse a trajectory while a simulation writes it."""

import os
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypedDict, Unpack, cast

import numpy as np

from paceline._util.arguments import positive_number, slice_of
from paceline._util.leftovers import ScratchFolder
from paceline.backends import MPI, make_backend
from paceline.continuation import Continuation
from paceline.contract.analysis import Analysis, is_updated
from paceline.contract.atoms import Frames, System
from paceline.contract.plan import choose_frames
from paceline.contract.transform_interface import Transform
from paceline.errors import (
    MissingDataError,
    ReadError,
    UnsupportedError,
    quiet_warnings,
    warn,
)
from paceline.performance.number_format import many
from paceline.runner import FramesChosen, RunOptions, analyses_of, run
from paceline.trajectory.growth import (
    Feed,
    FollowedFile,
    FollowedStream,
    Growable,
    TeeSource,
    growable,
)
from paceline.trajectory.tee import TEMPORARY

#: Titles of the table of means of an update.
OF_MEANS = ("series", "mean of all", "equilibrated", "mean from there on ± 95 %", "verdict")
#: Minimum time between two updates as a multiple of the duration of the last one, so that updates
#: of many frames take at most half of the time of the workers.
SHARE = 1.0
#: Maximum time until the first frame of a stream is in its file, s: it was received before. A DCD
#: file waits for the second frame.
FIRST_SECONDS = 600.0
#: Number of frames that no trajectory has.
_LARGEST = 2**62
#: Maximum time between two looks for new frames, s.
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Update:
    """State of analyses while the trajectory grows, after one more run over its frames.

    Attributes
    ----------
    analyses : dict of str to analysis
        Analyses whose results are up to date, by name: that of the battery, or the class.
    trajectory : paceline.mdanalysis.reader.Reader or FileTrajectory
        Trajectory, with all frames that were complete when the update began.
    n_frames : int
        Number of analysed frames.
    n_computed : int
        Number of frames that this update computed.
    seconds : float
        Time since the first update began, s.
    lag : float
        Time from the appearance of the last frames until their results were ready, s.
    ended : str or None
        Reason why the trajectory has ended; None while it may grow.
    is_last : bool
        True if the results of all analyses are final.
    error : Exception or None
        Error that ended the frames, such as a connection that broke within one. `live` raises it
        after the last update.
    """

    analyses: Mapping[str, Analysis]
    trajectory: Growable
    n_frames: int
    n_computed: int
    seconds: float
    lag: float
    ended: str | None = None
    is_last: bool = False
    error: Exception | None = None

    @property
    def frames_per_second(self) -> float:
        """Analysed frames per second since the first update began."""
        return self.n_frames / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        found = [f"{many(self.n_frames, 'frame')} analysed{self._last_time()}"]
        found.append(f"{self.frames_per_second:.3g} frames per second")
        if self.ended is None:
            found.append(f"results {self.lag:.1f} s after the last frame appeared")
        else:
            found.append(f"ended: {self.ended}")
        return "; ".join(found)

    def _last_time(self) -> str:
        """Return the time of the last analysed frame for the first line of the state."""
        from paceline.analysis.base import AnalysisBase  # `import paceline` is light without it
        from paceline.analysis.system_text import time_text

        for one in self.analyses.values():
            if isinstance(one, AnalysisBase) and one.times_known and len(one.times):
                return f", the last at {time_text(float(one.times[-1]))}"
        return ""

    def _repr_html_(self) -> str:
        from paceline.analysis.table_verdicts import verdicts_of  # `import paceline` is light
        from paceline.performance.page import html_table, notebook_page

        found = verdicts_of({name: one.results.table for name, one in self.analyses.items()})
        rows = [
            (name, one.mean_of_all_text, one.start_text, one.mean_text, one.verdict)
            for name, one in found.items()
        ]
        return notebook_page(str(self), *([html_table(OF_MEANS, rows, text=[4])] if rows else []))


class LiveOptions(TypedDict, total=False):
    """Options of `paceline.run` that apply while a trajectory grows."""

    backend: object
    n_workers: int | None
    start: int | None
    step: int | None
    frames: Callable[[Frames], Sequence[int] | np.ndarray] | None
    transforms: Sequence[Transform]
    on_error: str
    max_memory: int | str | None
    unwrap: bool


class Work(Protocol):
    """Analyses of one trajectory that can be run while it grows."""

    @property
    def universe(self) -> System:
        """Universe of the analyses."""

    @property
    def every(self) -> Mapping[str, Analysis]:
        """All analyses by name."""

    def run_during(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run the analyses that are updated, over the present frames, and return them by name."""

    def run_after(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run all other analyses over the complete trajectory, and return all by name."""


class _Analyses:
    """List of analyses."""

    def __init__(self, given: Analysis | Sequence[Analysis]):
        every = analyses_of(given)
        self.universe = every[0].atomgroup.universe
        if any(one.atomgroup.universe is not self.universe for one in every):
            raise UnsupportedError(
                "analyses of several Universes cannot follow their trajectories together: follow "
                "each trajectory in a process of its own"
            )
        names = [type(one).__name__ for one in every]
        numbered = [f"{name} {names[: k + 1].count(name)}" for k, name in enumerate(names)]
        self.every: Mapping[str, Analysis] = {
            name if names.count(name) == 1 else number: one
            for name, number, one in zip(names, numbered, every, strict=True)
        }

    def run_during(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run the analyses that are updated, over the present frames, and return them by name."""
        found = {name: one for name, one in self.every.items() if is_updated(one)}
        if found:
            run([*found.values()], **options)
        return found

    def run_after(self, **options: Unpack[RunOptions]) -> Mapping[str, Analysis]:
        """Run all other analyses over the complete trajectory, and return all by name."""
        after = [one for one in self.every.values() if not is_updated(one)]
        if after:
            run(after, **options)
        return self.every


def live(
    analyses: Analysis | Sequence[Analysis] | Work,
    *,
    every: float = 5.0,
    idle: float = 60.0,
    stop: int | None = None,
    stop_when: str | Callable[[Update], str | None] | None = None,
    tee: str | os.PathLike | None = None,
    overwrite: bool = False,
    **options: Unpack[LiveOptions],
) -> Generator[Update]:
    """Run analyses over a trajectory that a simulation is writing, again and again as it grows.

    Each update reads and computes only new frames. Its results are bit-identical to those of
    `paceline.run` over the frames that the trajectory has at that time. Analyses of a single pass
    are updated; those with a second stage, such as correlations, run once, over the complete
    trajectory, after an update that says why it has ended. The last update has the results of all
    analyses.

    Parameters
    ----------
    analyses : analysis, sequence of analyses, or paceline.analysis.battery.Battery
        Analyses of one Universe, whose trajectory is a file in one of paceline's formats.
    every : float
        Minimum time between two updates, s.
    idle : float
        Time without a new frame after which the trajectory is complete, s.
    stop : int, optional
        Number of frames after which the trajectory is not followed any more.
    stop_when : str or callable, optional
        Conditions after which the trajectory is not followed any more, such as "rmsd sampled" or
        "rmsd 0.1 and gyration sampled": see `paceline.analysis.stop_conditions.StopConditions`. Or
        a function that is called with each `Update`, and returns the reason to stop, or None.
    tee : path-like, optional
        File to which the frames of a stream (imd://) are written: XTC, TRR, DCD or NetCDF. Analyses
        read the frames from this file. By default the file with which the Universe was opened, or a
        temporary TRR file in the folder TMPDIR, which
        is deleted with the Universe.
    overwrite : bool
        Replace `tee` if it exists.
    **options
        Options of `paceline.run`: `start`, `step`, `backend`, `n_workers`, `transforms`,
        `on_error`, `max_memory`; for a battery also `unwrap`.

    Yields
    ------
    Update
        State after each update; the analyses have their results. Ctrl-C while frames are awaited
        ends the trajectory, and the last update follows.

    Raises
    ------
    UnsupportedError
        The trajectory cannot grow, an analysis writes files, or an option is not supported. Or
        `stop_when` names an analysis or a series without a verdict before the end.
    FileChangedError
        The file was replaced, truncated or deleted while it was followed.
    IndexError
        The trajectory has ended before a frame that is a reference (`ref_frame`), for which the
        first update waits.

    Examples
    --------
    >>> import shutil, tempfile
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSD
    >>> path = shutil.copy(DCD, tempfile.mkdtemp())
    >>> ca = paceline.Universe(PSF, path).select_atoms("name CA")
    >>> rmsd = RMSD(ca)
    >>> for update in paceline.live(rmsd, every=0.1, idle=0.1):
    ...     n_frames = update.n_frames
    >>> n_frames, rmsd.results.rmsd.shape, update.ended
    (98, (98, 3), 'it has not grown for 0.1 s')
    """
    work = _Analyses(analyses) if isinstance(analyses, Analysis | Sequence) else analyses
    if isinstance(stop_when, str):
        from paceline.analysis.stop_conditions import StopConditions  # other runs do not need it

        stop_when = StopConditions(stop_when, work.every)
    session = _Session(work, every, stop, stop_when, options)
    feed = session.open_feed(idle, tee, overwrite=overwrite)
    updates = session.updates(feed)
    weakref.finalize(updates, feed.close)  # nobody may ask for the first update
    return updates


class _Session:
    """Runs of the same analyses over a trajectory that grows."""

    def __init__(
        self,
        work: Work,
        every: float,
        stop: int | None,
        stop_when: Callable[[Update], str | None] | None,
        options: LiveOptions,
    ):
        start, frames = options.get("start"), options.get("frames")
        if any(bound is not None and bound < 0 for bound in (start, stop)):
            raise UnsupportedError(
                "start= and stop= count from the first frame, since the last one is not known"
            )
        if frames is not None and not callable(frames):
            raise UnsupportedError("frames= would need the frames that are not written yet")
        step = options.get("step")
        if frames is not None and not (start is stop is step is None):
            raise ValueError("give either frames or start, stop and step, not both")
        # Without this check, frames would be awaited that no trajectory has.
        if frames is None and not range(_LARGEST)[slice_of(start, stop, step)]:
            raise ValueError(f"start={start}, stop={stop} and step={step} choose no frames")
        self._work, self._stop, self._stop_when = work, stop, stop_when
        self._every = positive_number("every", every, "s")
        workers = make_backend(options.get("backend"), options.get("n_workers"))
        if isinstance(workers, MPI):
            raise UnsupportedError(
                "a trajectory that grows is not analysed by MPI ranks: use threads, processes or "
                "Dask"
            )
        self._kept = Continuation()
        self._options: RunOptions = {
            **options,  # type: ignore[typeddict-item]
            "backend": workers,
            "n_workers": None,
            "stop": stop,
            "progress": False,
        }
        self._continued: RunOptions = {**self._options, "checkpoint": self._kept}
        self._begun = time.monotonic()

    def open_feed(self, idle: float, tee: str | os.PathLike | None, *, overwrite: bool) -> Feed:
        """Begin to follow the file, or to write the stream to a file that is followed."""
        universe = self._work.universe
        stream = universe.trajectory
        if not isinstance(stream, TeeSource):
            if tee is not None:
                raise UnsupportedError(f"{stream.filename}: tee= applies to streams, not to files")
            trajectory = growable(stream)
            return FollowedFile(trajectory.chain.files[-1].path, idle)
        needed = {field for one in self._work.every.values() for field in one.fields}
        if lacking := sorted(needed.difference(stream.fields)):
            raise MissingDataError(
                f"{stream.filename}: an analysis needs {' and '.join(lacking)}, but the engine "
                f"sends only {' and '.join(stream.fields)}: enable them in its input"
            )
        path = stream.tee_path if tee is None else tee
        if path is None:
            path = _temporary_file(universe)
        shown = Path(TEMPORARY if stream.tee_path is None else stream.tee_path).suffix
        if Path(path).suffix != shown:
            warn(
                f"{stream.filename}: numbers that analyses took from the first frame are those of "
                f"{shown[1:].upper()}, but {os.fspath(path)} rounds in another way: name the file "
                "when the Universe is opened, tee="
            )
        feed = FollowedStream(stream.tee(path, overwrite=overwrite))
        try:
            if not feed.wait(FIRST_SECONDS):
                raise feed.error or ReadError(f"{stream.filename}: no frame could be written")
            universe.load_new(feed.path)  # type: ignore[attr-defined]
        except BaseException:
            feed.close()
            raise
        feed.rewind()
        return feed

    def updates(self, feed: Feed) -> Generator[Update]:
        """Yield the updates; the last one contains all results."""
        self._feed = feed
        self._trajectory = growable(self._work.universe.trajectory)
        stop_engine = False
        ended: str | None = None
        try:
            due = time.monotonic()
            while ended is None:
                try:
                    if not self._wait(due):
                        ended = self._feed.ended
                    else:
                        begun = time.monotonic()
                        update = self._update()
                        if update is not None:
                            yield update
                            ended = self._reason_to_stop(update)
                            stop_engine = ended is not None
                        # What the caller does with an update counts, too.
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
        """Wait until the trajectory has grown and the next update is due; False if it has ended.

        The end of the trajectory is noticed also while an update is not due yet.
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

    def _reason_to_stop(self, update: Update) -> str | None:
        """Return the reason not to follow the trajectory any more; None to go on."""
        if self._stop is not None and self._trajectory.n_frames >= self._stop:
            return f"{many(self._stop, 'frame')} were asked for"
        return None if self._stop_when is None else self._stop_when(update)

    def _update(self) -> Update | None:
        """Include the new frames and run the analyses; None if frames that they need are awaited.

        These are the first chosen frame, and frames that are references.
        """
        self._trajectory.extend()
        n_frames = _count(self._trajectory, **self._options)
        needed = [one.frames_needed for one in self._work.every.values() if is_updated(one)]
        if n_frames == 0 or self._trajectory.n_frames < max(needed, default=1):
            return None
        # Warnings of an update are for its tables only; the last update issues them all.
        with quiet_warnings():
            analyses = self._work.run_during(**self._continued)
        return self._state(n_frames, analyses)

    def _state(
        self,
        n_frames: int,
        analyses: Mapping[str, Analysis],
        ended: str | None = None,
        *,
        is_last: bool = False,
    ) -> Update:
        seconds, lag = time.monotonic() - self._begun, self._feed.since_frame
        return Update(
            *(analyses, self._trajectory, n_frames, self._kept.n_computed, seconds, lag, ended),
            is_last=is_last,
            error=self._feed.error,
        )

    def _finish(self, ended: str) -> Iterator[Update]:
        """Compute all results over the complete trajectory, and issue its warnings."""
        self._trajectory.extend()
        analyses = self._work.run_during(**self._continued)
        n_frames = _count(self._trajectory, **self._options)
        if analyses.keys() != self._work.every.keys():
            yield self._state(n_frames, analyses, ended)
        analyses = self._work.run_after(**self._options)
        yield self._state(n_frames, analyses, ended, is_last=True)


def _temporary_file(universe: System) -> str:
    """Return the name of a file in a new folder, which is deleted with the Universe."""
    folder = ScratchFolder("live")
    folder.remove_with(universe)
    return os.path.join(folder.path, TEMPORARY)


def _count(
    trajectory: Growable,
    *,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: FramesChosen = None,
    **_: object,
) -> int:
    """Count the chosen frames that exist."""
    try:
        chosen = frames(cast(Frames, trajectory)) if callable(frames) else frames
        return len(choose_frames(trajectory.n_frames, start, stop, step, chosen))
    except ValueError:  # the first of them is not written yet
        return 0
