"""Script of the first rank. Through another module, it calls functions that wait for other ranks.

The arguments are the call and, for a call by a function on the workers, files of a trajectory.
"""

import sys

import lone_world_calls

import paceline

call, *files = sys.argv[1:]
assert lone_world_calls.place() == (0, 2, 0, 2, "MPI_COMM_WORLD")
if files:
    atoms = paceline.Universe(*files).select_atoms("name CA")
    paceline.TimeSeries(lone_world_calls.sum_on_ranks, atoms).run(block_frames=8)
elif call == "nothing":
    print("ended")
else:
    getattr(lone_world_calls, call)()
