"""Time stamps of other hosts, brought to this host's clock."""

import socket
import time
from dataclasses import replace

from paceline.outcome import Outcome


class Clocks:
    """What the clocks of hosts show, compared by when outcomes come from there.

    A block cannot have ended after its outcome arrived, and the outcome that was quickest on its
    way tells by how much a host's clock differs: too late by its time on the way, some
    milliseconds within one network. Time stamps of this host are left as they are.
    """

    def __init__(self) -> None:
        self._own = socket.gethostname()
        self._offsets: dict[str, int] = {}

    def here(self, outcome: Outcome) -> Outcome:
        """Set the time stamps of an outcome that arrived now to this host's clock.

        Parameters
        ----------
        outcome : Outcome
            With time stamps of the host that its timings name.

        Returns
        -------
        Outcome
        """
        # Workers are named host:process:thread.
        host = outcome.timings[0].worker.rsplit(":", 2)[0]
        if host == self._own:
            return outcome
        latest = max(timing.end for timing in outcome.timings)
        offset = time.monotonic_ns() - latest
        offset = self._offsets[host] = min(offset, self._offsets.get(host, offset))
        timings = [
            replace(timing, start=timing.start + offset, end=timing.end + offset)
            for timing in outcome.timings
        ]
        return replace(outcome, timings=timings)
