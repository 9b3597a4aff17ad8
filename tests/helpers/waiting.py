"""Wait for what must happen, however busy the machine is: what hangs fails all the same."""

import time
from collections.abc import Callable

#: Seconds after which it has not happened. Less than a test may take, so that it can say so; many
#: times what an idle machine needs, since some hundred processes may share two cores.
PATIENCE = 300.0


def until(true: Callable[[], object]) -> None:
    """Return as soon as it is true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"not so within {PATIENCE:.0f} s"
        time.sleep(0.02)
