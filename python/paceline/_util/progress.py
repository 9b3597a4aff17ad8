"""Progress of a run: a bar on a terminal or on request, a log line per minute, or JSON lines."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from paceline._util.option_values_and_selections import PROGRESS

#: Progress is shown only for runs longer than this, seconds.
PATIENCE = 2.0
#: Time between the lines of a log, seconds.
LOG_INTERVAL = 60.0
#: Time between JSON lines, seconds.
JSON_INTERVAL = 0.5

_shown_as: ContextVar[str] = ContextVar("way to show progress", default=PROGRESS[0])


@contextmanager
def shown_as(way: str) -> Iterator[None]:
    """Show the progress of jobs that begin in this context in the given way, one of `PROGRESS`."""
    token = _shown_as.set(way)
    try:
        yield
    finally:
        _shown_as.reset(token)


class Progress:
    """Progress display on standard error: counts completed units of `total`.

    By default, a bar appears on a terminal after `PATIENCE`; elsewhere, a line is written each
    minute. With `show` True, a bar appears at once, also where standard error is not a terminal,
    as in notebooks. With `show` False, nothing is shown.

    Examples
    --------
    >>> with Progress(100, show=False) as bar:
    ...     bar.add(40)
    ...     bar.set(80, 200)
    ...     bar.begin_pass(2, 3, 100)
    """

    def __init__(self, total: int, *, unit: str = "frame", show: bool | None = None):
        self._total = total
        self._unit = unit
        way = _shown_as.get()
        self._json = way == "json" and show is not False
        self._show = show is not False and way == "bar"
        self._asked = show is True and way == "bar"
        self._pass, self._run, self._n_runs = "", 1, 1
        self._before = self._done = 0
        self._begin = self._start = self._logged = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._asked or (self._show and sys.stderr.isatty()):
            self._bar = self._new_bar()
        self._write_json(self._begin)
        return self

    def _write_json(self, now: float) -> None:
        """Write the progress as a JSON line if JSON lines are requested."""
        if not self._json:
            return
        import json  # imported here, because few runs need it

        self._logged = now
        state = {
            **{"unit": self._unit, "done": self._done, "total": self._total},
            **{"run": self._run, "runs": self._n_runs, "seconds": round(now - self._begin, 3)},
        }
        print(json.dumps({"progress": state}), file=sys.stderr, flush=True)

    def _new_bar(self) -> object:
        # Imported here, because the import takes longer than many runs.
        from tqdm.auto import tqdm

        waited = time.monotonic() - self._begin
        return tqdm(
            total=self._total,
            desc=self._pass or None,
            unit=f" {self._unit}s",
            delay=0 if self._asked else max(0.0, PATIENCE - waited),
            unit_scale=True,
        )

    def begin_pass(self, number: int, n_passes: int, total: int) -> None:
        """Start the next pass, which has its own count, rate and remaining time."""
        self._pass, self._total = f"pass {number} of {n_passes}", total
        self._run, self._n_runs = number, n_passes
        self._before = self._done = 0
        self._start = time.monotonic()
        if self._bar is not None:
            self._bar.leave = False
            self._bar.close()
            self._bar = self._new_bar()

    def set(self, done: int, total: int) -> None:
        """Set the number of completed units, and the total, which may be unknown at the start."""
        self._total = total
        if self._bar is not None:
            self._bar.total = total
        self.add(done - self._done)

    def skip(self, n: int) -> None:
        """Count units that an earlier run completed; the rate does not include them."""
        self._done += n
        self._before += n
        if self._bar is not None and n:
            self._bar.initial += n
            self._bar.update(n)

    def add(self, n: int) -> None:
        """Count `n` more units as completed, and update the display."""
        self._done += n
        now = time.monotonic()
        if self._json and (now - self._logged >= JSON_INTERVAL or self._done == self._total):
            self._write_json(now)
        elif self._bar is not None:
            self._bar.update(n)
        elif self._show and self._done > self._before and now - self._logged >= LOG_INTERVAL:
            self._logged = now
            self._log(now - self._start)

    def _log(self, elapsed: float) -> None:
        rate = (self._done - self._before) / elapsed
        number, of_it = (f"{self._pass}: ", " of this pass") if self._pass else ("", "")
        print(
            f"{number}{self._done} of {self._total} {self._unit}s "
            f"({100 * self._done / self._total:.1f} %), "
            f"{rate:.0f} {self._unit}s/s, {(self._total - self._done) / rate:.0f} s left{of_it}",
            file=sys.stderr,
            flush=True,
        )

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
