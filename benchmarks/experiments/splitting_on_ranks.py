"""Programs that split a trajectory on MPI ranks; the first rank prints JSON."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import MDAnalysis as mda
from mpi4py import MPI

import paceline
from benchmarks.experiments.papers import Times, share
from paceline.backends.mpi import run_on_first_rank

WORLD = MPI.COMM_WORLD


def papers(topology: str, trajectory: str, folder: str, n_segments: str) -> dict[str, Any]:
    """Write a rank's segments frame by frame, as in the paper; return means over ranks, s."""
    WORLD.Barrier()
    begun = time.perf_counter()
    times, writing = Times(), 0.0
    universe = mda.Universe(topology, trajectory)
    before = time.perf_counter()
    times.t_open = before - begun
    for segment in share(int(n_segments), WORLD.size, WORLD.rank):
        frames = share(universe.trajectory.n_frames, int(n_segments), segment)
        with mda.Writer(str(Path(folder) / f"{segment}.xtc"), len(universe.atoms)) as writer:
            for _ in universe.trajectory[frames.start : frames.stop]:
                read = time.perf_counter()
                writer.write(universe.atoms)
                written = time.perf_counter()
                times.t_io += read - before
                writing += written - read
                before = written
    ended = time.perf_counter()
    WORLD.Barrier()
    waiting = time.perf_counter() - ended
    total = WORLD.allreduce(time.perf_counter() - begun, MPI.MAX)
    own = {**asdict(times), "t_write": writing, "t_wait": waiting}
    every = WORLD.allgather(own)
    means = {key: sum(one[key] for one in every) / len(every) for key in own}
    return {**means, "t_total": total}


def ours(topology: str, trajectory: str, folder: str, n_segments: str) -> dict[str, Any]:
    """Split with paceline, which copies the bytes of frames; return its time, s."""
    found: dict[str, Any] = {}

    def split() -> int:
        begun = time.perf_counter()
        output = Path(folder) / "part.xtc"
        paceline.split(trajectory, int(n_segments), output=output, progress=False)
        found["t_copy"] = found["t_total"] = time.perf_counter() - begun
        return 0

    WORLD.Barrier()
    run_on_first_rank(split)
    return found


PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {"MDAnalysis": papers, "paceline": ours}


def main(name: str, arguments: Sequence[str]) -> None:
    found = PROGRAMS[name](*arguments)
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
