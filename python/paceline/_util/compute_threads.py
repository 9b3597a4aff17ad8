"""Threads that compute: none holds the end of the process, and none is cut off in a call.

They are daemons, so that a function that never returns cannot hold the interpreter's exit after
Ctrl-C, or once another thread did its block; `concurrent.futures` would wait. But the interpreter
ends a daemon wherever it comes back from a call, through frames of compiled code, of which not all
bear that. So threads have some time to come to the end of their block.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

#: Time that threads have to end their blocks, after an error and at the process's end, seconds.
PATIENCE = 2.0

_started: WeakSet[threading.Thread] = WeakSet()


def start_thread(
    target: Callable[..., Any], *args: object, name: str | None = None
) -> threading.Thread:
    """Start a thread, for which the end of the process waits for a while."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def join_threads(threads: Iterable[threading.Thread], seconds: float = PATIENCE) -> None:
    """Wait until threads have ended, at most so long for all of them together."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


@atexit.register
def _join_all() -> None:
    join_threads(list(_started))
