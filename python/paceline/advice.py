"""Advice about a run: its time, what bounds it, and what would help; measured in some seconds."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline._util.machine import available_cpus
from paceline.errors import UnsupportedError
from paceline.runner import analyses_of
from paceline.scaling.run_advice import Advice, is_resident
from paceline.scaling.sample_forecast import (
    MAKERS,
    Findings,
    Forecast,
    measure,
    recoded,
)
from paceline.scaling.sample_run import Outline, SampleRun, disk_rates, open_samples
from paceline.schedule.plan import choose_frames
from paceline.transform.base import Transform

__all__ = ["Advice", "Outline", "advise", "open_samples"]


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
    """Measure in some seconds what a run would take, what bounds it, and what would help.

    A few blocks are analysed by one worker and by two, from memory and from the disk, and the whole
    run is predicted from that (see `paceline.model`). They are from all of the run where all of it
    is in memory, and else from its middle. The analyses are left as they are.

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
        Print it for the text; its attributes are the numbers.

    Raises
    ------
    UnsupportedError
        Another backend, several Universes, or an analysis that writes a file or passes over the
        frames several times.
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
    chosen = choose_frames(Outline.of(universe.trajectory).n_frames, start, stop, step, frames)
    sample = SampleRun(asked, transforms, chosen, skip_damaged=on_error == "skip")
    if not sample.trajectory.shareable:
        backend = "serial"
    # Before anything is read or let go of.
    cached = sample.in_memory_now()
    forecast = Forecast(len(chosen), sample.block_frames)
    findings = measure(sample, backend or "threads", forecast, everywhere=is_resident(cached))
    what = " and ".join(one.name for one in asked)
    return _advice(sample, findings, what, forecast, cached, n_workers, begun)


def _advice(
    sample: SampleRun,
    findings: Findings,
    what: str,
    forecast: Forecast,
    cached: float | None,
    n_workers: int | None,
    begun: float,
) -> Advice:
    """Put together all that was measured."""
    trajectory = sample.trajectory
    chain = getattr(trajectory, "chain", None)
    sizes = {} if chain is None else {file.path: file.size for file in chain.files}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    return Advice(
        what=what,
        files=tuple(sizes) or (str(trajectory.provenance()["trajectory"]),),
        format="read by MDAnalysis" if chain is None else chain.files[0].format,
        size=sum(sizes.values()),
        n_atoms=trajectory.n_atoms,
        n_wanted=sample.source.n_wanted,
        n_frames=forecast.n_frames,
        is_sample=sample.is_sample,
        cached=cached,
        findings=findings,
        rates=None if largest is None else disk_rates(largest),
        forecast=forecast,
        others=tuple([] if chain is None else recoded(chain, sample.source, sample.middle(64))),
        cpus=available_cpus(),
        asked=n_workers,
        seconds=time.perf_counter() - begun,
    )
