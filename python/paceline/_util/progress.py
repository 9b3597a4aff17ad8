"""How far a run has come: a bar on a terminal, a line a minute in a log."""

import sys
import time
from types import TracebackType
from typing import Any, Self

#: Nothing is shown of what is over sooner, seconds.
PATIENCE = 2.0
#: Between the lines of a log, seconds.
LOG_INTERVAL = 60.0


class Progress:
    """Count what is done of `total`, and show it on standard error.

    Parameters
    ----------
    total : int
        What there is to do.
    unit : str
        Of what.
    show : bool, optional
        Whether to show anything: a bar on a terminal, a line a minute elsewhere; so by default.
    done : int
        What was done before.

    Examples
    --------
    >>> with Progress(100, show=False) as bar:
    ...     bar.add(40)
    ...     bar.set(80, 200)
    """

    def __init__(self, total: int, *, unit: str = "frame", show: bool | None = None, done: int = 0):
        self._total = total
        self._unit = unit
        self._show = show is not False
        self._before = self._done = done
        self._start = self._logged = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._show and sys.stderr.isatty():
            # Only where a bar may be seen: it takes longer to import than many runs take.
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total,
                initial=self._done,
                unit=f" {self._unit}s",
                delay=PATIENCE,
                unit_scale=True,
            )
        return self

    def set(self, done: int, total: int) -> None:
        """Say how much is done, and of how much: for work whose size shows itself on the way.

        Parameters
        ----------
        done, total : int
            In units.
        """
        self._total = total
        if self._bar is not None:
            self._bar.total = total
        self.add(done - self._done)

    def add(self, n: int) -> None:
        """Count more as done.

        Parameters
        ----------
        n : int
            In units.
        """
        self._done += n
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(n)
        elif self._show and self._done > self._before and now - self._logged >= LOG_INTERVAL:
            self._logged = now
            self._log(now - self._start)

    def _log(self, elapsed: float) -> None:
        rate = (self._done - self._before) / elapsed
        print(
            f"{self._done} of {self._total} {self._unit}s "
            f"({100 * self._done / self._total:.1f} %), "
            f"{rate:.0f} {self._unit}s/s, {(self._total - self._done) / rate:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
