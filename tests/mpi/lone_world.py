"""Script of the first rank. Through another module, it calls functions that wait for other ranks.

The first argument lists calls. The errors of all but the last are printed; the last is not caught.
For a call by a function on the workers, the other arguments are files of a trajectory.
"""

import sys

import lone_world_calls

import paceline

calls, *files = sys.argv[1:]
assert lone_world_calls.place() == (0, 2, 0, 2, "MPI_COMM_WORLD")
if files:
    atoms = paceline.Universe(*files).select_atoms("name CA")
    paceline.TimeSeries(lone_world_calls.sum_on_ranks, atoms).run(block_frames=8)
elif calls == "nothing":
    print("ended")
else:
    *others, last = calls.split(",")
    for call in others:
        try:
            getattr(lone_world_calls, call)()
        except Exception as error:
            print(call, f"{type(error).__module__}.{type(error).__name__}:", *str(error).split())
    getattr(lone_world_calls, last)()
