"""Compute threads that do not delay the exit of the process.

The threads are daemon threads. Threads of `concurrent.futures` would delay the exit of the
interpreter until their function returns, for example after Ctrl-C. At exit, however, the
interpreter kills a daemon thread at its next return from a call, even inside compiled code that
cannot unwind. Therefore the exit waits a limited time for threads to finish their block.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from weakref import WeakSet

#: Maximum time to wait for running blocks after an error and at exit, seconds.
PATIENCE = 2.0

_started: WeakSet[threading.Thread] = WeakSet()


def start_thread(
    target: Callable[..., object], *args: object, name: str | None = None
) -> threading.Thread:
    """Start a daemon thread; the exit of the process waits a limited time for it."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def join_threads(threads: Iterable[threading.Thread], seconds: float = PATIENCE) -> None:
    """Wait until all threads have ended, at most `seconds` in total."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


@atexit.register
def _join_all() -> None:
    join_threads(list(_started))
