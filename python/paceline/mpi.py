"""Run a script on the first rank of MPI, with all ranks at work in its runs.

    mpirun -n 64 python -m paceline.mpi script.py [its arguments]

The script is the same that runs without MPI. The other ranks run none of it: they wait for its
analyses, and compute the blocks that are assigned to them.
"""

import os
import runpy
import sys
import traceback
from collections.abc import Sequence

from paceline.backends.mpi import run_on_first_rank

USAGE = "usage: mpirun -n N python -m paceline.mpi script.py [arguments of the script]"
#: Exit statuses: an error in the script, in the arguments, and Ctrl-C.
FAILED, BAD_ARGUMENTS, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script that is named on the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The script and its arguments; by default those of the process.

    Returns
    -------
    int
        The script's exit status.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv and not argv[0].startswith("-"):
        # On every rank: functions of modules beside the script are imported where they are called.
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
    return run_on_first_rank(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    """Run a script; its exit status."""
    if not argv or argv[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if argv in (["-h"], ["--help"]) else BAD_ARGUMENTS
    sys.argv = list(argv)
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("paceline: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BaseException as error:
        _print_from_script(error, argv[0])
        return FAILED
    return 0


def _print_from_script(error: BaseException, script: str) -> None:
    """Print a traceback as if Python had run the script itself."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename != script:
        inner = inner.tb_next
    # An error before its first line: it cannot be read, say.
    traceback.print_exception(error.with_traceback(inner))


if __name__ == "__main__":
    sys.exit(main())
