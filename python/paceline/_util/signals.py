"""Handle SIGTERM and Ctrl-C only between operations, never in the middle of one."""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Self

from paceline._util.os_calls import end_process_after
from paceline.errors import Terminated

#: Default handlers of the signals.
_USUAL: dict[signal.Signals, object] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


class Stopping:
    """Context in which SIGTERM raises `Terminated`, and Ctrl-C raises `KeyboardInterrupt` as usual.

    The context acts only in the main thread, and only on signals that the program does not handle.
    `numbers` are the signals that are handled here and that `delayed` can delay. If SIGTERM is not
    one of them, it ends the process at once.

    Examples
    --------
    >>> with Stopping() as stopping:
    ...     try:
    ...         with stopping.delayed():
    ...             signal.raise_signal(signal.SIGTERM)
    ...             print("still here")
    ...     except Terminated as error:
    ...         print(error.code)
    still here
    143
    """

    # Class attribute, because a signal concerns the whole process.
    _holding: ClassVar[bool] = False
    _pending: ClassVar[signal.Signals | None] = None

    def __init__(self, numbers: Sequence[signal.Signals] = tuple(_USUAL)) -> None:
        self._numbers = numbers
        self._former: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._former = _handle_by(self._handle, self._numbers)
        return self

    def __exit__(self, *error: object) -> None:
        _restore(self._former)

    @staticmethod
    @contextmanager
    def delayed() -> Iterator[None]:
        """Delay SIGTERM and Ctrl-C until the outermost context of `delayed` ends."""
        if Stopping._holding:
            yield
            return
        Stopping._pending, Stopping._holding = None, True
        try:
            yield
        finally:
            Stopping._holding = False
            if Stopping._pending is not None:
                _raise(Stopping._pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if Stopping._holding:
            Stopping._pending = signal.Signals(number)
        else:
            _raise(signal.Signals(number))


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore SIGTERM and Ctrl-C in a worker: its parent receives them too, and ends the worker."""
    former = _handle_by(signal.SIG_IGN)
    try:
        yield
    finally:
        _restore(former)


def end_late(seconds: int) -> None:
    """Change the effect of SIGTERM: this process ends only `seconds` after the signal."""
    _handle_by(lambda *_: end_process_after(seconds), [signal.SIGTERM])


def _handle_by(
    handler: Any, numbers: Iterable[signal.Signals] = tuple(_USUAL)
) -> dict[signal.Signals, Any]:
    """Replace handlers that are still the default; return those, by signal.

    Outside the main thread, replace none.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) == _USUAL[number]
    }


def _restore(former: dict[signal.Signals, Any]) -> None:
    for number, handler in former.items():
        signal.signal(number, handler)


def _raise(number: signal.Signals) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(128 + number)


def resume_advice(*, anew: bool = False) -> str:
    """Return a phrase that says how to resume or restart a stopped run or command."""
    program = sys.argv[0] if sys.argv else ""
    if program in ("", "-c") or hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return "the same call begins anew" if anew else "the same call goes on from there"
    command = sys.orig_argv
    if os.path.basename(program) == "paceline":
        command = ["paceline", *sys.argv[1:]]
    return f"{'begin anew' if anew else 'go on'} with: {shlex.join(command)}"
