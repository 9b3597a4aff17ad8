"""Program that the H5MD experiments run on every MPI rank; the first rank prints JSON."""

import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

import paceline
from benchmarks.experiments.h5md_cases import Case
from benchmarks.experiments.on_ranks import WORLD, collected, of_first, our_times
from benchmarks.experiments.papers import Times, rmsd, share
from paceline._util.os_calls import drop_from_cache
from paceline.analysis.rms import RMSD

#: ROMIO's setting for two-phase reads, in which few ranks read and distribute, by driver.
TWO_PHASE = {"collective": "disable", "two-phase": "enable"}


def cases(topology: str, atoms: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Run all cases in turn, round after round; the first round only fills the page cache."""
    warnings.simplefilter("ignore")
    todo = [Case(**one) for one in json.loads(Path(told).read_text(encoding="utf-8"))]
    indices = np.loadtxt(atoms, int)
    reference = reference_of(topology, todo[0].path, indices)
    found = []
    for number in range(-1, int(repeats)):
        for which, case in enumerate(todo):
            if number < 0 and case.cold:
                continue
            way = WAYS[case.tool, case.access]
            job = partial(way, case=case, topology=topology, atoms=indices, reference=reference)
            measured = of_first(case.ranks, partial(prepared, case, job))
            if number >= 0:
                found.append({"case": which, **(measured or {})})
    return found


def reference_of(topology: str, path: str, atoms: np.ndarray) -> np.ndarray:
    """Return the positions of the atoms in the first frame, Å."""
    import MDAnalysis as mda

    return mda.Universe(topology, path).atoms[atoms].positions


def prepared(case: Case, job: Callable[[MPI.Intracomm], Any], comm: MPI.Intracomm) -> Any:
    """Run a job; drop the file's pages from memory of all hosts first if the case requires it."""
    if case.cold:
        drop_from_cache(case.path)
    comm.Barrier()
    return job(comm)


def frame_by_frame(
    comm: MPI.Intracomm, case: Case, topology: str, atoms: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Read whole frames of a share one by one, with MDAnalysis's reader or paceline's."""
    universe = parsed(case.tool, topology)
    frames = share(case.frames, comm.size, comm.rank)
    times = Times()
    begun = time.perf_counter()
    universe.load_new(case.path, **through_mpi(case, comm))
    group = universe.atoms[atoms]
    before = time.perf_counter()
    times.t_open = before - begun
    values = np.empty(len(frames))
    for k, frame in enumerate(frames):
        universe.trajectory[frame]
        read = time.perf_counter()
        values[k] = rmsd(group.positions, reference)
        computed = time.perf_counter()
        times.t_io += read - before
        times.t_comp += computed - read
        before = computed
    done = collected(comm, begun, values, times)
    universe.trajectory.close()
    return done


def by_hand(
    comm: MPI.Intracomm, case: Case, topology: str, atoms: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Read with plain h5py calls as in the paper."""
    frames = share(case.frames, comm.size, comm.rank)
    times = Times()
    begun = time.perf_counter()
    with h5py.File(case.path, **driver(case, comm)) as file:
        (group,) = file["particles"].values()
        stored = group["position/value"]
        times.t_open = time.perf_counter() - begun
        # Collective reads are made by all ranks or by none.
        most = -(-case.frames // comm.size)
        together = stored.collective if case.driver in TWO_PHASE else nullcontext()
        with together:
            read = READS[case.access](stored, frames, most, atoms)
            values = computed(read, len(frames), reference, times)
        done = collected(comm, begun, values, times)
    return done


def computed(read: Any, n: int, reference: np.ndarray, times: Times) -> np.ndarray:
    """Compute RMSDs of the first `n` positions; the rest were read for collective calls only."""
    values = np.empty(n)
    before = time.perf_counter()
    for k, positions in enumerate(read):
        got = time.perf_counter()
        times.t_io += got - before
        if k < n:
            values[k] = rmsd(positions, reference)
        before = time.perf_counter()
        times.t_comp += before - got
    return values


def read_frames(stored: Any, frames: range, most: int, atoms: np.ndarray) -> Any:
    """Yield whole frames, one by one."""
    frame = np.empty(stored.shape[1:], np.float32)
    for k in range(most):
        stored.read_direct(frame, np.s_[frames[min(k, len(frames) - 1)]])
        yield frame[atoms]


def read_selection(stored: Any, frames: range, most: int, atoms: np.ndarray) -> Any:
    """Yield the selected atoms of each frame."""
    for k in range(most):
        yield stored[frames[min(k, len(frames) - 1)], atoms]


def read_share(stored: Any, frames: range, most: int, atoms: np.ndarray) -> Any:
    """Yield the frames of a share that is read in one call."""
    positions = np.empty((len(frames), *stored.shape[1:]), np.float32)
    stored.read_direct(positions, np.s_[frames.start : frames.stop])
    for frame in positions:
        yield frame[atoms]


def through_mpi(case: Case, comm: MPI.Intracomm) -> dict[str, Any]:
    """Return arguments with which a reader opens the file."""
    return {"driver": "mpio", "comm": comm} if case.driver else {}


def driver(case: Case, comm: MPI.Intracomm) -> dict[str, Any]:
    """Return arguments with which h5py opens the file."""
    if not case.driver:
        return {}
    hints = MPI.Info.Create()
    if case.driver in TWO_PHASE:
        hints.Set("romio_cb_read", TWO_PHASE[case.driver])
    return {"driver": "mpio", "comm": comm, "info": hints}


def our_run(
    comm: MPI.Intracomm, case: Case, topology: str, atoms: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Run paceline on every rank."""
    universe = parsed(case.tool, topology)
    numbers = np.tile(np.arange(case.frames), case.passes)
    begun = time.perf_counter()
    universe.load_new(case.path, **through_mpi(case, comm))
    if case.access == "selection":
        analysis = RMSD(universe.atoms[atoms])
    else:
        analysis = paceline.TimeSeries(OfWholeFrames(atoms, reference), universe.atoms)
    opened = time.perf_counter() - begun
    backend = paceline.backends.MPI(comm)
    analysis.run(frames=numbers, backend=backend, progress=False)
    whole = analysis.results.get("timeseries")
    values = analysis.results.rmsd[:, 2] if whole is None else whole
    return our_times(comm, analysis, begun, opened, values)


class OfWholeFrames:
    """Computes RMSDs of some atoms from blocks that contain all atoms."""

    def __init__(self, atoms: np.ndarray, reference: np.ndarray):
        self.atoms, self.reference = atoms, reference

    def __call__(self, block: Any) -> np.ndarray:
        return np.array(
            [rmsd(positions[self.atoms], self.reference) for positions in block.positions]
        )


def our_share(
    comm: MPI.Intracomm, case: Case, topology: str, atoms: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Read a rank's whole share as one array, with paceline on this rank alone."""
    universe = parsed(case.tool, topology)
    frames = share(case.frames, comm.size, comm.rank)
    times = Times()
    begun = time.perf_counter()
    universe.load_new(case.path)
    times.t_open = time.perf_counter() - begun
    series = paceline.TimeSeries(all_positions, universe.atoms)
    series.run(start=frames.start, stop=frames.stop, backend="serial", progress=False)
    positions = iter(series.results.timeseries[:, atoms])
    times.t_io = time.perf_counter() - begun - times.t_open
    values = computed(positions, len(frames), reference, Times())
    times.t_comp = time.perf_counter() - begun - times.t_open - times.t_io
    return collected(comm, begun, values, times)


def all_positions(block: Any) -> np.ndarray:
    """Return positions in every frame of a block, (frames, atoms, 3), Å."""
    return block.positions


@cache
def parsed(tool: str, topology: str) -> Any:
    """Return a Universe without a trajectory; each topology is parsed once."""
    import MDAnalysis as mda

    return paceline.Universe(topology) if tool == "paceline" else mda.Universe(topology)


READS = {
    "frame by frame": read_frames,
    "selection": read_selection,
    "into memory": read_share,
}
WAYS: dict[tuple[str, str], Callable[..., dict[str, float]]] = {
    ("MDAnalysis", "frame by frame"): frame_by_frame,
    ("MDAnalysis", "selection"): by_hand,
    ("MDAnalysis", "into memory"): by_hand,
    ("h5py", "frame by frame"): by_hand,
    ("paceline", "frame by frame"): frame_by_frame,
    ("paceline", "selection"): our_run,
    ("paceline", "whole frames"): our_run,
    ("paceline", "into memory"): our_share,
}

if __name__ == "__main__":
    found = cases(*sys.argv[1:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
