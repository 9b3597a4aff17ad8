"""Advice about a run: parts of it are done and timed, and the whole is predicted from them."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.advice.advice import Advice
from paceline.advice.disk import disk_rates
from paceline.advice.forecast import Forecast
from paceline.advice.formats import recoded
from paceline.advice.measuring import MAKERS, Findings, measure
from paceline.advice.rehearsal import Rehearsal
from paceline.backends import available_cpus
from paceline.errors import UnsupportedError
from paceline.plan import choose_frames
from paceline.runner import analyses_of
from paceline.transform import Transform


def advise(
    analyses: Any,
    *,
    backend: str | None = None,
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: Sequence[int] | np.ndarray | None = None,
    transforms: Sequence[Transform] = (),
    on_error: str = "raise",
) -> Advice:
    """Tell what a run would take, what bounds it, and what would help; in some seconds.

    A few blocks from the middle of the trajectory are analysed by one worker and by two, from
    memory and from the disk, and the whole run is predicted from that (see `paceline.model`). The
    analyses are left as they are.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        As for `paceline.run`, of one Universe.
    backend : {"threads", "processes", "serial"}, optional
        Where blocks of frames would be computed; "threads" by default. Where threads hold each
        other up, processes are tried as well.
    n_workers : int, optional
        Workers that are asked about, beside 1, 2, 4 … up to the CPUs that this process may use.
    start, stop, step : int, optional
        Frames, as in a slice.
    frames : sequence of int or of bool, optional
        Frames one by one, instead of a slice.
    transforms : sequence of transformations
        What is done to positions first.
    on_error : {"raise", "skip"}
        What to do with a frame that cannot be read or transformed.

    Returns
    -------
    Advice
        Print it for the words; its attributes are the numbers.

    Raises
    ------
    UnsupportedError
        Another backend, several Universes, or an analysis that writes a file.
    ValueError
        No frames, or fewer than one worker.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSD
    >>> advice = paceline.advise(RMSD(paceline.Universe(PSF, DCD), select="name CA"))
    >>> advice.n_frames, advice.format, advice.workers[:2]
    (98, 'DCD', (1, 2))
    """
    begun = time.perf_counter()
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    if n_workers is not None and n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    if backend not in (None, *MAKERS):
        raise UnsupportedError(
            f"advice is about workers of this machine: threads, processes or serial, not "
            f"{backend!r}; paceline.model.predict tells of others"
        )
    asked = analyses_of(analyses)
    universe = asked[0].atomgroup.universe
    if any(one.atomgroup.universe is not universe for one in asked):
        raise UnsupportedError("advice is about the analyses of one Universe at a time")
    chosen = choose_frames(_n_frames(universe), start, stop, step, frames)
    rehearsal = Rehearsal(asked, transforms, chosen, skip_damaged=on_error == "skip")
    if not rehearsal.trajectory.shareable:
        backend = "serial"
    # Before anything is read or let go of.
    cached = rehearsal.in_memory_now()
    findings = measure(rehearsal, backend or "threads")
    what = " and ".join(one.name for one in asked)
    return _advice(rehearsal, findings, what, len(chosen), cached, n_workers, begun)


def _n_frames(universe: Any) -> int:
    """Frames of a trajectory, estimated where only some of them were looked for."""
    chain = getattr(universe.trajectory, "chain", None)
    return universe.trajectory.n_frames if chain is None else chain.n_expected


def _advice(
    rehearsal: Rehearsal,
    findings: Findings,
    what: str,
    n_frames: int,
    cached: float | None,
    n_workers: int | None,
    begun: float,
) -> Advice:
    """All that was measured, put together."""
    trajectory = rehearsal.trajectory
    chain = getattr(trajectory, "chain", None)
    sizes = {} if chain is None else {core.path: core.size for core in chain.cores}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    return Advice(
        what=what,
        files=tuple(sizes) or (str(trajectory.provenance()["trajectory"]),),
        format="read by MDAnalysis" if chain is None else chain.cores[0].format,
        size=sum(sizes.values()),
        n_atoms=trajectory.n_atoms,
        n_wanted=rehearsal.source.n_wanted,
        n_frames=n_frames,
        is_sample=rehearsal.is_sample,
        cached=cached,
        findings=findings,
        rates=None if largest is None else disk_rates(largest),
        forecast=Forecast(n_frames, rehearsal.block_frames),
        others=tuple(
            [] if chain is None else recoded(chain, rehearsal.source, rehearsal.middle(64))
        ),
        cpus=available_cpus(),
        asked=n_workers,
        seconds=time.perf_counter() - begun,
    )
