"""Every format by every method: into a folder, for others to compare."""

import sys
from pathlib import Path

from mpi4py import MPI
from snapshot_system import ENDINGS, write_frames

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
for kind, ending in ENDINGS.items():
    for method in ("sorted", "serial", "direct", "mpiio"):
        writer = write_frames(folder / f"{method}{ending}", kind, range(3), method=method)
        assert writer.n_frames == 3
        assert len(writer.costs) == 3
    # A buffer so small that there are many batches.
    write_frames(folder / f"batches{ending}", kind, range(3), buffer="20 kB")
    write_frames(folder / f"one{ending}", kind, range(3), writers=1)
    write_frames(folder / f"later{ending}", kind, range(3), wait=False)
    if kind != "CONFIG":
        write_frames(folder / f"parts{ending}", kind, range(1))
        write_frames(folder / f"parts{ending}", kind, range(1, 3), append=True)
write_frames(folder / "room.h5md", "H5MD", range(3), n_frames=3)
write_frames(folder / "much_room.h5md", "H5MD", range(3), n_frames=9)
write_frames(folder / "double.h5md", "H5MD", range(3), double=True)
