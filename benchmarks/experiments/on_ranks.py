"""Programs that experiments run on every MPI rank; the first rank prints JSON."""

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from os import getpid
from socket import gethostname
from typing import Any

import numpy as np
from mpi4py import MPI

import paceline
from benchmarks.experiments.cases import Case
from benchmarks.experiments.empty import apply, take_blocks
from benchmarks.experiments.papers import Times, compute_share, distances, share
from paceline.analysis.rms import RMSD
from paceline.backends.mpi.comm import wait_idle
from paceline.block import Block, FrameBuffer
from paceline.errors import PacelineWarning

WORLD = MPI.COMM_WORLD
#: Number of frames in a block whose positions are in memory.
BLOCK = 256


def cases(topology: str, atoms: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Run all cases in turn, round after round."""
    warnings.simplefilter("ignore", PacelineWarning)
    with open(told, encoding="utf-8") as file:
        todo = [Case(**one) for one in json.load(file)]
    indices = np.loadtxt(atoms, int)
    reference = paceline.Universe(topology, todo[0].trajectory[0]).atoms[indices].positions
    found = []
    for _ in range(int(repeats)):
        for number, case in enumerate(todo):
            way = WAYS[case.tool, case.source]
            job = partial(way, case=case, topology=topology, indices=indices, reference=reference)
            measured = of_first(case.ranks, job)
            found.append({"case": number, **(measured or {})})
    return found


def calls(n_tasks: str) -> dict[str, float]:
    """Time function calls that do nothing, s."""
    begun = time.perf_counter()
    apply(paceline.backends.MPI(WORLD), int(n_tasks))
    return {"seconds": time.perf_counter() - begun}


def blocks(n_tasks: str, topology: str, trajectory: str) -> dict[str, float]:
    """Time blocks of frames without computation, s."""
    atom = paceline.Universe(topology, trajectory).atoms[:1]
    begun = time.perf_counter()
    take_blocks(paceline.backends.MPI(WORLD), atom, int(n_tasks))
    return {"seconds": time.perf_counter() - begun}


def of_first(n_ranks: int, job: Callable[[MPI.Intracomm], Any]) -> Any:
    """Run a job on the first ranks, while the other ranks sleep."""
    comm = WORLD.Split(int(WORLD.rank >= n_ranks))
    wait_idle(WORLD.Ibarrier())
    done = job(comm) if WORLD.rank < n_ranks else None
    wait_idle(WORLD.Ibarrier())
    comm.Free()
    return done


def papers_way(
    comm: MPI.Intracomm, case: Case, topology: str, indices: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Compute equal shares frame by frame, with a gather at the end."""
    frames: range | None = share(case.frames, comm.size, comm.rank)
    files = list(case.trajectory)
    trajectory: Any = files if len(files) > 1 else files[0]
    if case.source == "memory":
        whole = paceline.Universe(topology).atoms.n_atoms
        trajectory, frames = made_up(len(frames), whole), None
    elif case.layout == "split":
        trajectory, frames = files[comm.rank], None
    comm.Barrier()
    begun = time.perf_counter()
    values, times = compute_share(
        topology, trajectory, indices, reference, frames, case.task, case.workload
    )
    return collected(comm, begun, values, times)


def in_memory(
    comm: MPI.Intracomm, case: Case, topology: str, indices: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Compute equal shares of positions in memory with paceline, and gather as in the papers."""
    positions = made_up(len(share(case.frames, comm.size, comm.rank)), len(indices))
    universe = paceline.Universe(topology, case.trajectory[0])
    analysis = RepeatedRMSD(universe.atoms[indices], case.workload)
    analysis.frames = np.arange(len(positions))  # as a run sets them
    computation = analysis.prepare()
    comm.Barrier()
    begun = time.perf_counter()
    blocks = [positions[first : first + BLOCK] for first in range(0, len(positions), BLOCK)]
    values = [computation.compute(block_of(one))[:, 0] for one in blocks]
    times = Times(t_comp=time.perf_counter() - begun)
    return collected(comm, begun, np.concatenate(values), times)


def collected(
    comm: MPI.Intracomm, begun: float, values: np.ndarray, times: Times
) -> dict[str, float]:
    """Gather rows on the first rank; time waiting and sending separately."""
    computed = time.perf_counter()
    wait_idle(comm.Ibarrier())
    waited = time.perf_counter()
    counts = np.array(comm.allgather(len(values)))
    whole = np.empty(counts.sum())
    comm.Gatherv(values, (whole, counts))
    ended = time.perf_counter()
    own = {**asdict(times), "t_wait": waited - computed, "t_comm": ended - waited}
    total = comm.allreduce(ended - begun, MPI.MAX)
    return told_of(comm.allgather(own), total, float(whole.mean()))


def our_way(
    comm: MPI.Intracomm, case: Case, topology: str, indices: np.ndarray, reference: np.ndarray
) -> dict[str, float]:
    """Run paceline on every rank."""
    numbers = np.tile(np.arange(case.frames), case.passes)
    comm.Barrier()
    begun = time.perf_counter()
    files = list(case.trajectory)
    universe = paceline.Universe(topology, files if len(files) > 1 else files[0])
    atoms = universe.atoms[indices]
    analysis = (
        paceline.TimeSeries(Distances(reference), atoms)
        if case.task == "distances"
        else RepeatedRMSD(atoms, case.workload)
    )
    opened = time.perf_counter() - begun
    backend = paceline.backends.MPI(comm, collect=case.collect)
    analysis.run(frames=numbers, backend=backend, progress=False)
    rows = analysis.results.timeseries if case.task == "distances" else analysis.results.rmsd[:, 2]
    return our_times(comm, analysis, begun, opened, rows)


def our_times(
    comm: MPI.Intracomm, analysis: Any, begun: float, opened: float, rows: np.ndarray
) -> dict[str, float]:
    """Return the times of a paceline run, including the time to open the file, s."""
    total = comm.allreduce(time.perf_counter() - begun, MPI.MAX)
    workers = analysis.timings.workers()
    parts = []
    for process, seconds in comm.allgather((f"{gethostname()}:{getpid()}:", opened)):
        # Every rank has a worker, but a worker may start too late to get a block.
        own = [one for one in workers if one.worker.startswith(process)]
        parts.append(
            {
                "t_open": seconds + sum(one.t_init_traj for one in own),
                "t_io": sum(one.t_io + one.t_decode for one in own),
                "t_comp": sum(one.t_compute for one in own),
                "t_wait": sum(one.t_wait for one in own),
                "t_comm": analysis.timings.t_comm,
            }
        )
    return told_of(parts, total, float(rows.mean()))


def told_of(by_rank: list[dict[str, float]], total: float, mean_value: float) -> dict[str, Any]:
    """Return the times of one job, means over ranks; the remaining time is in no component."""
    parts = {key: sum(one[key] for one in by_rank) / len(by_rank) for key in by_rank[0]}
    rest = max(total - sum(parts.values()), 0.0)
    return {**parts, "t_rest": rest, "t_total": total, "mean": mean_value, "by_rank": by_rank}


class RepeatedRMSD(RMSD):
    """RMSD that is computed several times per frame."""

    def __init__(self, atoms: Any, workload: int):
        super().__init__(atoms)
        self.workload = workload

    def prepare(self) -> Any:
        return Repeated(super().prepare(), self.workload)


class Repeated:
    """Worker part that repeats a computation."""

    def __init__(self, computation: Any, times: int):
        self.computation, self.times = computation, times

    def compute(self, block: Block) -> np.ndarray:
        for _ in range(self.times):
            rows = self.computation.compute(block)
        return rows


class Distances:
    """The papers' second task, computed frame by frame as in the papers."""

    def __init__(self, reference: np.ndarray):
        self.reference = reference

    def __call__(self, block: Block) -> np.ndarray:
        return np.array([distances(positions, self.reference) for positions in block.positions])


@cache
def made_up(n_frames: int, n_atoms: int) -> np.ndarray:
    """Create random positions, float32 of shape (n_frames, n_atoms, 3), Å."""
    random = np.random.default_rng(WORLD.rank)
    return 10 * random.standard_normal((n_frames, n_atoms, 3), dtype=np.float32)


def block_of(positions: np.ndarray) -> Block:
    """Create a block of positions, as if it had been read."""
    decoded = FrameBuffer.allocate(np.arange(len(positions)), positions.shape[1], ())
    return Block(replace(decoded, positions=positions), None, {})


WAYS: dict[tuple[str, str], Callable[..., dict[str, float]]] = {
    ("MDAnalysis", "file"): papers_way,
    ("MDAnalysis", "memory"): papers_way,
    ("paceline", "file"): our_way,
    ("paceline", "memory"): in_memory,
}
PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program for program in (cases, calls, blocks)
}


def main(name: str, arguments: Sequence[str]) -> None:
    found = PROGRAMS[name](*arguments)
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
