"""Output of a command as one JSON document; if the command fails, it also contains the error."""

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, TypedDict

from paceline._core import __version__
from paceline.errors import DamagedFileError

#: Version of the schema, MAJOR.MINOR; docs/programs.md describes when each number changes.
SCHEMA_VERSION = "1.0"
#: Maximum number of series with means, and of columns that are described, in a document.
MOST_DESCRIBED = 100


class ErrorFacts(TypedDict):
    """Error that ended a command; keys are null if they are unknown or do not apply."""

    kind: Annotated[
        str,
        "class of the error in paceline.errors, or of Python's built-in error; ArgumentError for "
        "a command line that cannot be read; KeyboardInterrupt and Terminated for signals",
    ]
    message: Annotated[str, "complete message, one sentence"]
    file: Annotated[str | None, "file that the error concerns"]
    frame: Annotated[int | None, "frame in that file, from 0"]
    byte: Annotated[int | None, "byte in that file, from 0"]
    hint: Annotated[str | None, "what to do"]


class Answer:
    """JSON document of the running command; it is printed when the command ends."""

    def __init__(self, command: str):
        self._command = command
        self._begun = time.monotonic()
        self._values: Mapping[str, object] | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Until the end of the `with` block, store the values that are passed to `answer_with`."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)

    def keep(self, values: Mapping[str, object]) -> None:
        """Store the keys and values of the command's document."""
        self._values = values

    def print(self, warnings: Sequence[str] = (), failure: ErrorFacts | None = None) -> None:
        """Print the document, if there is one or the command failed."""
        if self._values is None and failure is None:
            return
        import json  # deferred: few commands need it

        seconds = round(time.monotonic() - self._begun, 6)
        document = {
            "schema": SCHEMA_VERSION,
            "command": self._command,
            "paceline": __version__,
            "warnings": [*warnings],
            "written": [],
            "seconds": seconds,
            **(self._values or {}),
            **({} if failure is None else {"error": failure}),
        }
        print(json.dumps(in_json(document), indent=1), flush=True)


_running: ContextVar[Answer | None] = ContextVar("answer of the command", default=None)


def answer_with(command: str, values: Mapping[str, object]) -> None:
    """Set the keys of the running command's document; outside of a command, print it at once."""
    running = _running.get()
    if running is not None:
        running.keep(values)
        return
    answer = Answer(command)
    answer.keep(values)
    answer.print()


def in_json(value: object) -> object:
    """Replace values that JSON lacks.

    Numbers that are not finite become None, tuples and NumPy's arrays become lists, NumPy's scalars
    become numbers, and other objects, such as paths, become texts.

    Examples
    --------
    >>> in_json({"mean": math.nan, "frames": (1, 2)})
    {'mean': None, 'frames': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): in_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [in_json(one) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    if "numpy" in sys.modules:
        import numpy as np

        if isinstance(value, np.ndarray):
            return in_json(value.tolist())
        if isinstance(value, np.generic):
            return in_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float) else str(value)


def failure_of(error: BaseException, message: str, *, may_skip: bool = False) -> ErrorFacts:
    """Describe an error.

    Facts come from the attributes of the error, or of the error that caused it. `may_skip` is true
    if the command could leave out damaged frames with --on-error skip.
    """
    known: dict[str, object] = {}
    for one in (error, error.__cause__):
        if one is None:
            continue
        facts = vars(one)
        found = {
            "file": facts.get("path"),
            "frame": facts.get("frame"),
            "byte": facts.get("offset"),
            "hint": facts.get("hint"),
        }
        if isinstance(one, OSError):
            found["file"] = found["file"] or one.filename
        known = {**found, **{key: value for key, value in known.items() if value is not None}}
    hint = known["hint"]
    if (
        hint is None
        and may_skip
        and isinstance(error, DamagedFileError)
        and error.frame is not None
    ):
        hint = "--on-error skip leaves out damaged frames; 'paceline validate' lists all of them"
    file, frame, byte = known["file"], known["frame"], known["byte"]
    first = message.partition(": ")[0]
    if file is None and os.path.lexists(first):
        file = first  # messages about a file begin with its path
    return {
        "kind": type(error).__name__,
        "message": message,
        "file": os.fsdecode(file) if isinstance(file, str | bytes | os.PathLike) else None,
        "frame": frame if isinstance(frame, int) else None,
        "byte": byte if isinstance(byte, int) else None,
        "hint": hint if isinstance(hint, str) else None,
    }


def wrong_arguments(message: str, program: str) -> ErrorFacts:
    """Describe a command line that cannot be read; `program` names the command that explains it."""
    return {
        "kind": "ArgumentError",
        "message": message,
        "file": None,
        "frame": None,
        "byte": None,
        "hint": f"{program} --help explains",
    }
