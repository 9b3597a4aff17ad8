"""Analysis as in the papers: each worker has its own Universe, and reads its share of frames.

The analysis follows Algorithm 1 of Khoshlessan et al. 2020, with the times of its Table 3.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(slots=True)
class Times:
    """Times of one worker, s: opening, reading (including decoding), computing."""

    t_open: float = 0.0
    t_io: float = 0.0
    t_comp: float = 0.0


def compute_share(
    topology: str,
    trajectory: Any,
    atoms: np.ndarray,
    reference: np.ndarray,
    frames: range | None,
    task: str = "rmsd",
    workload: int = 1,
) -> tuple[np.ndarray, Times]:
    """Compute one number for each frame of a share, `workload` times per frame.

    Parameters
    ----------
    topology : str
        Topology file.
    trajectory : str, list of str or numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
        One or several files, or positions (Å) in memory.
    atoms : numpy.ndarray of int
        Atoms of the computation.
    reference : numpy.ndarray of float, shape (n, 3)
        Reference positions, Å.
    frames : range or None
        Frames of the share; None for all frames.
    task : {"rmsd", "distances"}
        RMSD from the reference, or mean of all distances from the reference atoms.
    workload : int
        Repetitions of the computation.
    """
    import MDAnalysis as mda

    times = Times()
    begun = time.perf_counter()
    universe = mda.Universe(topology, trajectory)
    group = universe.atoms[atoms]
    function = TASKS[task]
    frames = range(universe.trajectory.n_frames) if frames is None else frames
    values = np.empty(len(frames))
    before = time.perf_counter()
    times.t_open = before - begun
    for k, _ in enumerate(universe.trajectory[frames.start : frames.stop]):
        read = time.perf_counter()
        for _ in range(workload):
            values[k] = function(group.positions, reference)
        computed = time.perf_counter()
        times.t_io += read - before
        times.t_comp += computed - read
        before = computed
    return values, times


def rmsd(positions: np.ndarray, reference: np.ndarray) -> float:
    """Compute the RMSD after superposition, Å."""
    from MDAnalysis.analysis.rms import rmsd

    return rmsd(positions, reference, center=True, superposition=True)


def distances(positions: np.ndarray, reference: np.ndarray) -> float:
    """Compute the mean of all distances, Å."""
    from MDAnalysis.lib.distances import distance_array

    return float(distance_array(reference, positions).mean())


TASKS = {"rmsd": rmsd, "distances": distances}


def share(n_frames: int, n_workers: int, worker: int) -> range:
    """Return adjacent frames; shares of workers differ by at most one frame."""
    return range(n_frames * worker // n_workers, n_frames * (worker + 1) // n_workers)
