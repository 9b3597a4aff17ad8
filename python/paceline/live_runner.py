"""Analyse a trajectory while a simulation writes it."""

import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from paceline.contract.analysis import Analysis
from paceline.contract.system_interface import Atoms, Frames
from paceline.contract.transform_interface import Transform
from paceline.incremental_run import GrownRun
from paceline.performance.number_format import many
from paceline.runner import ListedAnalyses, Work, follow

#: Column titles of the table of mean values that a notebook shows for an update.
OF_MEANS = ("series", "mean of all", "equilibrated", "mean from there on ± 95 %", "verdict")


@dataclass(frozen=True)
class Update(GrownRun):
    """State of analyses while the trajectory grows, after one more run over its frames.

    Attributes
    ----------
    analyses : dict of str to analysis
        Analyses whose results are up to date, by the name in the `Battery` or, without one, the
        name of the class.
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
        Error after which no frames follow, such as a connection that broke within a frame. `live`
        raises it after the last update.
    """

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
        """Return a text with the time of the last analysed frame; empty if it is unknown."""
        # Imported here to keep `import paceline` fast.
        from paceline.analysis.base import AnalysisBase
        from paceline.analysis.describe_system_and_frames import time_text

        for one in self.analyses.values():
            if isinstance(one, AnalysisBase) and one.times_known and len(one.times):
                return f", the last at {time_text(float(one.times[-1]))}"
        return ""

    def _repr_html_(self) -> str:
        # Imported here to keep `import paceline` fast.
        from paceline.analysis.convergence_of_table_series import verdicts_of
        from paceline.performance.html_elements import html_table, notebook_page

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


def live(
    analyses: Analysis | Sequence[Analysis] | Work,
    *,
    every: float = 5.0,
    idle: float | None = None,
    stop: int | None = None,
    stop_when: str | Callable[[Update], str | None] | None = None,
    tee: str | os.PathLike | None = None,
    tee_atoms: Atoms | str | Sequence[int] | None = None,
    tee_step: int | None = None,
    overwrite: bool = False,
    **options: Unpack[LiveOptions],
) -> Generator[Update]:
    """Run analyses over a trajectory that a simulation is writing, again and again as it grows.

    Each update reads and computes only new frames. Its results are bit-identical to those of
    `paceline.run` over the frames that the trajectory has at that time. Analyses of a single pass
    are updated. When the trajectory has ended, an update reports the reason. Analyses with a second
    stage, such as correlations, then run once over the complete trajectory. The last update
    contains the results of all analyses.

    Parameters
    ----------
    analyses : analysis, sequence of analyses, or paceline.analysis.battery.Battery
        Analyses of one Universe, whose trajectory is a file in one of paceline's formats.
    every : float
        Minimum time between two updates, s.
    idle : float, optional
        Time without a new frame after which the trajectory is complete, s; by default 60. For a
        stream, the time without a byte after which the simulation is taken to hang, which is an
        error; by default the `timeout` with which the Universe was opened.
    stop : int, optional
        Number of frames after which the trajectory is not followed any more. The simulation of a
        stream goes on.
    stop_when : str or callable, optional
        Conditions after which the trajectory is not followed any more, such as "rmsd sampled" or
        "rmsd 0.1 and gyration sampled": see `paceline.analysis.stop_conditions.StopConditions`. Or
        a function that is called with each `Update`, and returns the reason to stop, True or None.
        The simulation of a stream is then ended.
    tee : path-like, optional
        File to which the frames of a stream (imd://) are written: XTC, TRR, DCD or NetCDF. Analyses
        read the frames from this file. By default the `tee` with which the Universe was opened, or
        a temporary TRR file in the folder TMPDIR, which is deleted with the Universe.
    tee_atoms : AtomGroup, str or sequence of int, optional
        Atoms that are written to `tee`, in the order of the topology: a group, a selection, or
        indices. The analyses then read all atoms and frames from a temporary file of the same
        format in TMPDIR.
        Frames and atoms that both files contain have equal bits; but XTC does not round frames of
        less than 10 atoms.
    tee_step : int, optional
        Write only every `tee_step`-th frame to `tee`, beginning with the first. The analyses then
        read from a temporary file, as with `tee_atoms`.
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
        `tee` cannot store a field that an analysis needs. Or `stop_when` names an analysis or a
        series without a verdict before the end.
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
    work = analyses if isinstance(analyses, Work) else ListedAnalyses(analyses)
    if isinstance(stop_when, str):
        from paceline.analysis.stop_conditions import StopConditions  # other runs do not need it

        stop_when = StopConditions(stop_when, work.every)
    return follow(
        work,
        Update,
        every=every,
        idle=idle,
        stop_when=stop_when,
        stop=stop,
        tee=tee,
        tee_atoms=tee_atoms,
        tee_step=tee_step,
        overwrite=overwrite,
        **options,  # type: ignore[misc]  # a battery also has unwrap
    )
