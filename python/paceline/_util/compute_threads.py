"""Compute threads that neither block the end of the process nor are stopped within a call.

The threads are daemons, so that a function that never returns cannot delay the interpreter's exit
after Ctrl-C, or after another thread has finished its block; threads of `concurrent.futures` would.
But the interpreter ends a daemon wherever it returns from a call, through frames of compiled code,
some of which cannot handle that. Therefore threads get some time to finish their block.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from weakref import WeakSet

#: Time allowed for threads to finish their blocks after an error and at the process's end, seconds.
PATIENCE = 2.0

_started: WeakSet[threading.Thread] = WeakSet()


def start_thread(
    target: Callable[..., object], *args: object, name: str | None = None
) -> threading.Thread:
    """Start a thread; the end of the process waits for it for a limited time."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def join_threads(threads: Iterable[threading.Thread], seconds: float = PATIENCE) -> None:
    """Wait until threads have ended, with a limit for all of them together."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


@atexit.register
def _join_all() -> None:
    join_threads(list(_started))
