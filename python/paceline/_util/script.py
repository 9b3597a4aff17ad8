"""Run a script or a module as Python would have."""

import runpy
import sys
import traceback
from collections.abc import Sequence

#: Exit statuses: an error in the script, in the arguments, and Ctrl-C.
FAILED, BAD_ARGUMENTS, INTERRUPTED = 1, 2, 130


def run_script(argv: Sequence[str], *, module: bool = False) -> int:
    """Run a script with its arguments, or a module by its name; return the exit status."""
    sys.argv = list(argv)
    try:
        if module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
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
