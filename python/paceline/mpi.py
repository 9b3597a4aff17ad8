"""Run a script on the first MPI rank, while all ranks compute its analyses.

    mpirun -n 64 python -m paceline.mpi script.py [its arguments]

The script is the same as without MPI. The other ranks do not run the script: they wait for its
analyses, and compute the blocks that are assigned to them.
"""

import os
import sys
from collections.abc import Sequence

from paceline._util.launcher import BAD_ARGUMENTS, run_script
from paceline.backends.mpi import run_on_first_rank

USAGE = "usage: mpirun -n N python -m paceline.mpi script.py [arguments of the script]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script that the command line names; return its exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv and not argv[0].startswith("-"):
        # On every rank: workers must be able to import functions from modules beside the script.
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
    return run_on_first_rank(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    """Run a script; return its exit status."""
    if not argv or argv[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if argv in (["-h"], ["--help"]) else BAD_ARGUMENTS
    return run_script(argv)


if __name__ == "__main__":
    sys.exit(main())
