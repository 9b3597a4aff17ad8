"""All ranks must raise an error of writing that the system reports only when the file is closed."""

import os
import sys
from pathlib import Path

from mpi4py import MPI
from snapshot_system import FIELDS, N_ATOMS, own_frame

from paceline.snapshot import Writer

world = MPI.COMM_WORLD
folder, method = Path(sys.argv[1]), sys.argv[2]
path = folder / "run.dcd"
#: Number of a rank that writes.
failing = 0 if method == "serial" else 1


def error_of(function):
    try:
        function()
    except OSError as error:
        return str(error)
    return "none"


writer = Writer(world, path, N_ATOMS, method=method, writers=2)
writer.write(**own_frame(world, 0, FIELDS["DCD"]))
given = own_frame(world, 1, FIELDS["DCD"])
if world.Get_rank() == failing:
    os.environ["CLOSING_FAILS"] = "run.dcd"
found = world.allgather(error_of(lambda: writer.write(**given)))
os.environ.pop("CLOSING_FAILS", None)
assert len(set(found)) == 1, found
assert f"rank {failing}: cannot write to disk" in found[0], found
assert str(path) in found[0], found
writer.write(**given)
assert writer.n_frames == 2
if world.Get_rank() == 0:
    os.environ["CLOSING_FAILS"] = "run.dcd"
found = world.allgather(error_of(writer.close))
os.environ.pop("CLOSING_FAILS", None)
assert "Disk quota exceeded" in found[0], found
assert len(set(found)) == 1, found
if world.Get_rank() == 0:
    print("refused")
