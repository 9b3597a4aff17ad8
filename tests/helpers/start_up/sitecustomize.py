"""Start-up hook of the interpreters that tests start: fewer garbage collections.

An interpreter that imports MDAnalysis and ends spends a fifth of its CPU time on them.
"""

import atexit
import gc
import sys

gc.set_threshold(100_000, 20, 20)


@atexit.register
def exclude_remaining_objects() -> None:
    """Exclude all objects from the last collections; on ranks, these must free communicators."""
    if "mpi4py" not in sys.modules:
        gc.freeze()
