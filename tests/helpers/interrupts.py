"""Ctrl-C at every line of paceline that a function executes, and in waiting or cleanup code."""

import gc
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

#: Packages whose lines count.
TRACED = {"paceline", "concurrent", "contextlib", "subprocess", "tempfile", "threading"}


class Interrupt:
    """SIGINT at the n-th line that is executed inside the context.

    Parameters
    ----------
    countdown : int
        Number of the line, from 1. A line that is executed again does not count.

    Attributes
    ----------
    where : str or None
        The line at which the signal was sent.
    """

    def __init__(self, countdown: int):
        self._left = countdown
        self._reached: set[tuple[CodeType, int]] = set()
        self.where: str | None = None

    def __enter__(self) -> "Interrupt":
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in TRACED:
            return None
        line = frame.f_code, frame.f_lineno
        if event == "line" and self._left > 0 and line not in self._reached:
            self._reached.add(line)
            self._left -= 1
            if self._left == 0 and _deletes(frame):
                self._left = 1  # send the signal later
            if self._left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self._trace


def _deletes(frame: FrameType | None) -> bool:
    """Return true while an object is being deleted, when Python ignores exceptions."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def at_every_line(work: Callable[[], Any], check: Callable[[], None]) -> int:
    """Interrupt work at its first line, its second, and so on; return the number of lines.

    Parameters
    ----------
    work : callable
        Must raise only KeyboardInterrupt, wherever it is interrupted.
    check : callable
        Called after each interrupt.
    """
    work()  # imports do not count as its lines
    check()
    # Otherwise garbage of other tests may be deleted during the work, when exceptions are ignored.
    gc.collect()
    gc.disable()
    try:
        return _interrupted_at_every_line(work, check)
    finally:
        gc.enable()


def _interrupted_at_every_line(work: Callable[[], Any], check: Callable[[], None]) -> int:
    n_lines = 0
    while True:
        raised = None
        try:
            with Interrupt(n_lines + 1) as interrupt:
                work()
        except BaseException as error:
            raised = error
        if interrupt.where is None:
            if raised is not None:
                raise raised
            return n_lines
        assert type(raised) is KeyboardInterrupt, (interrupt.where, raised)
        del raised
        try:
            check()
        except AssertionError as error:
            error.add_note(f"after Ctrl-C at {interrupt.where}")
            raise
        n_lines += 1
