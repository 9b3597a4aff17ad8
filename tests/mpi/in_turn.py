"""On every rank: run scripts one after another, because starting ranks takes longer than most.

The argument is a JSON list of scripts, each a list of the path and the arguments. Scripts that
change functions or limits of paceline come last.
"""

import json
import runpy
import sys

from mpi4py import MPI

for path, *arguments in json.loads(sys.argv[1]):
    sys.argv[:] = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
    MPI.COMM_WORLD.Barrier()
