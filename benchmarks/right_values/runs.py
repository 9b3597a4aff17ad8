"""Runs: what a run reports about itself."""

from pathlib import Path

from MDAnalysisTests.datafiles import DCD, PSF

import paceline
from benchmarks.right_values.case import Found, RightValue


def longest_sending(backend: str) -> float:
    """Return the largest `t_comm` of a worker, as a fraction of the run's `t_total`."""
    atoms = paceline.Universe(PSF, DCD).atoms
    analysis = paceline.TimeSeries(lambda block: block.positions, atoms)
    timings = analysis.run(backend=backend, n_workers=2, block_frames=1).timings
    return max(worker.t_comm for worker in timings.workers()) / timings.t_total


def more_than_all(backend: str) -> Found:
    """Return by how much the fraction `longest_sending` exceeds 1."""
    return Found(max(0.0, longest_sending(backend) - 1.0))


def on_threads(folder: Path) -> Found:
    """Measure sending results from threads."""
    return more_than_all("threads")


def on_processes(folder: Path) -> Found:
    """Measure sending results from processes."""
    return more_than_all("processes")


CASES = [
    RightValue(
        f"time for which a worker of {backend} sends results, beyond the whole run",
        "t_total",
        0.0,
        "no part of a run takes longer than the run",
        compute,
    )
    for backend, compute in (("threads", on_threads), ("processes", on_processes))
]
