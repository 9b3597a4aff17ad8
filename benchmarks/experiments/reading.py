"""Program that `mpi_io` runs on every MPI rank; the first rank prints JSON."""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from mpi4py import MPI

import paceline
from benchmarks.experiments.empty import times
from benchmarks.experiments.on_ranks import WORLD, of_first
from benchmarks.experiments.papers import share

#: Size of one read, bytes: a stripe of the papers' file system.
PIECE = 1 << 20


def read(topology: str, repeats: int, ranks: list[int], *files: str) -> list[dict[str, Any]]:
    """Time reading each file by some ranks in shares, with every method, s."""
    found = []
    # The first run reads the file into memory, parses its topology, and does not count.
    for number in range(-1, repeats):
        for n_ranks in ranks:
            for path in files:
                for way in READERS:
                    seconds = of_first(n_ranks, partial(seconds_of, way, topology, path))
                    one = {"round": number, "file": path, "way": way, "ranks": n_ranks}
                    found.append({**one, "seconds": seconds})
    return [one for one in found if one["round"] >= 0]


def seconds_of(way: str, topology: str, path: str, comm: MPI.Intracomm) -> float:
    """Return the time until the last rank has read its share, s."""
    comm.Barrier()
    begun = time.perf_counter()
    READERS[way](comm, topology, path)
    return comm.allreduce(time.perf_counter() - begun, MPI.MAX)


def read_alone(comm: MPI.Intracomm, topology: str, path: str) -> None:
    """Read a rank's share of the bytes with system calls."""
    share_of = share(os.path.getsize(path), comm.size, comm.rank)
    room = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as file:
        file.seek(share_of.start)
        for first in share_of[::PIECE]:
            file.readinto(room[: min(PIECE, share_of.stop - first)])


def read_by_mpi(comm: MPI.Intracomm, topology: str, path: str, together: bool = False) -> None:
    """Read a rank's share of the bytes through MPI-IO."""
    share_of = share(os.path.getsize(path), comm.size, comm.rank)
    room = bytearray(PIECE)
    file = MPI.File.Open(comm, path, MPI.MODE_RDONLY)
    pieces = -(-os.path.getsize(path) // comm.size // PIECE) + 1
    for number in range(pieces):
        first = min(share_of.start + number * PIECE, share_of.stop)
        piece = [room, min(PIECE, share_of.stop - first), MPI.BYTE]
        (file.Read_at_all if together else file.Read_at)(first, piece)
    file.Close()


def read_by_paceline(comm: MPI.Intracomm, topology: str, path: str) -> None:
    """Run paceline on every frame, decoding one atom."""
    atom = opened(topology, path).atoms[:1]
    backend = paceline.backends.MPI(comm)
    paceline.TimeSeries(times, atom).run(backend=backend, progress=False)


@cache
def opened(topology: str, path: str) -> Any:
    """Return a Universe; each file is opened once."""
    return paceline.Universe(topology, path)


READERS: dict[str, Callable[..., None]] = {
    "plain reads": read_alone,
    "MPI-IO": read_by_mpi,
    "MPI-IO, collective": partial(read_by_mpi, together=True),
    "paceline": read_by_paceline,
}

if __name__ == "__main__":
    found = read(
        sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3].split(",")], *sys.argv[4:]
    )
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
