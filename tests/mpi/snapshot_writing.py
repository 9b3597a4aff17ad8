"""On every rank: write every format by every method to a folder, for comparison."""

import sys
from pathlib import Path

from mpi4py import MPI
from snapshot_system import ENDINGS, write_frames

world = MPI.COMM_WORLD
folder, all_ways = Path(sys.argv[1]), len(sys.argv) > 2
ways = {"sorted": {}, "later": {"wait": False}}
if all_ways:
    ways |= {method: {"method": method} for method in ("serial", "direct", "mpiio")}
    # The buffer is so small that there are many batches.
    ways |= {"mpiio_later": {"method": "mpiio", "wait": False}}
    ways |= {"batches": {"buffer": "20 kB"}, "one": {"writers": 1, "sync": True}}
for kind, ending in ENDINGS.items():
    for name, options in ways.items():
        writer = write_frames(folder / f"{name}{ending}", kind, range(3), **options)
        assert writer.n_frames == len(writer.costs) == 3
    if kind != "CONFIG":
        write_frames(folder / f"parts{ending}", kind, range(1))
        write_frames(folder / f"parts{ending}", kind, range(1, 3), append=True)
if all_ways:
    write_frames(folder / "room.h5md", "H5MD", range(3), n_frames=3)
    write_frames(folder / "much_room.h5md", "H5MD", range(3), n_frames=9)
    write_frames(folder / "double.h5md", "H5MD", range(3), double=True)
