"""Programs of `contention`: one job on a slow file system; the first rank prints JSON."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np


def papers(topology: str, told: str) -> dict[str, float] | None:
    """Run on every rank: open a separate Universe, compute a share of the frames, gather."""
    import MDAnalysis.analysis.rms  # noqa: F401 (what it takes to import it is not timed)
    from mpi4py import MPI

    from benchmarks.experiments.papers import compute_share, share

    world = MPI.COMM_WORLD
    files, atoms, reference, n_frames = _read(told)
    frames = share(n_frames, world.size, world.rank)
    own = files[world.rank] if len(files) > 1 else files[0]
    if len(files) > 1:
        frames = range(len(frames))
    world.Barrier()
    begun = time.perf_counter()
    values, times = compute_share(topology, own, atoms, reference, frames)
    computed = time.perf_counter()
    world.Barrier()
    waited = time.perf_counter()
    counts = np.array(world.allgather(len(values)))
    whole = np.empty(counts.sum())
    world.Gatherv(values, (whole, counts))
    ended = time.perf_counter()
    parts = asdict(times) | {"t_wait": waited - computed, "t_comm": ended - waited}
    everybody = world.gather((parts, ended - begun))
    if everybody is None:
        return None
    means = {key: float(np.mean([one[key] for one, _ in everybody])) for key in parts}
    total = max(seconds for _, seconds in everybody)
    return means | {"t_total": total, "mean": float(whole.mean())}


def ours(topology: str, told: str) -> dict[str, float] | None:
    """Run a paceline script on the first rank, with all ranks as workers."""
    import MDAnalysis  # noqa: F401 (what it takes to import it is not timed)
    from mpi4py import MPI

    import paceline.analysis.rms  # noqa: F401
    from paceline.backends.mpi import run_on_first_rank

    found: list[dict[str, float]] = []
    MPI.COMM_WORLD.Barrier()
    run_on_first_rank(lambda: found.append(_script(topology, told, MPI.COMM_WORLD.size)) or 0)
    return found[0] if found else None


def _script(topology: str, told: str, n_ranks: int) -> dict[str, float]:
    """Run a user's script; return the means of its components over ranks."""
    import paceline
    from paceline.analysis.rms import RMSD

    (trajectory,), atoms, _, n_frames = _read(told)
    begun = time.perf_counter()
    universe = paceline.Universe(topology, trajectory)
    opened = time.perf_counter() - begun
    rmsd = RMSD(universe.atoms[atoms]).run(stop=n_frames, backend="mpi", progress=False)
    total = time.perf_counter() - begun
    workers = rmsd.timings.workers()
    # Ranks wait while the first rank opens the trajectory, like a worker without a block.
    sums = {
        "t_open": opened + sum(one.t_init_traj for one in workers),
        "t_io": sum(one.t_io + one.t_decode for one in workers),
        "t_comp": sum(one.t_compute for one in workers),
        "t_comm": rmsd.timings.t_comm,
    }
    means = {key: value / n_ranks for key, value in sums.items()}
    means["t_wait"] = total - sum(means.values())
    return means | {"t_total": total, "mean": float(rmsd.results.rmsd[:, 2].mean())}


def _read(told: str) -> tuple[list[str], np.ndarray, np.ndarray, int]:
    """Return trajectories, atoms, their reference positions (Å), and the number of frames."""
    with open(told, encoding="utf-8") as file:
        job: dict[str, Any] = json.load(file)
    atoms, reference = np.array(job["atoms"]), np.array(job["reference"])
    return job["files"], atoms, reference, job["frames"]


PROGRAMS = {"papers": papers, "ours": ours}


def main(name: str, arguments: Sequence[str]) -> None:
    found = PROGRAMS[name](*arguments)
    if found is not None:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
