"""Wait for an event, on a busy machine as well; a hang makes the test fail."""

import time
from collections.abc import Callable

#: Seconds after which the wait fails. This is less than the timeout of a test, so that a message
#: appears, and much more than an idle machine needs, since some hundred processes may share two
#: cores.
PATIENCE = 300.0


def until(true: Callable[[], object]) -> None:
    """Return as soon as the function returns a true value."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"not so within {PATIENCE:.0f} s"
        time.sleep(0.02)
