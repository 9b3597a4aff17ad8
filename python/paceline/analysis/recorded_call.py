"""Record the call that computed results as one line of JSON, for `repeat_recorded_call`.

A script computes results by a class of paceline from arguments, in a run over some frames. The line
contains the class, the arguments and the frames. Systems are described by their files, and groups
of atoms by their indices. Values of JSON types are written unchanged. All other values are JSON
objects with one of these keys:

===========  ===========================================================
``tuple``    a tuple; the value lists its items
``dict``     a dict; the value lists pairs of key and value
``number``   a float that JSON lacks: "nan", "inf" or "-inf"
``array``    an array, as a list; ``dtype`` is its type
``atoms``    a group of atoms of ``system``, by indices (`_pack`)
``residues`` a group of residues of ``system``
``texts``    an updating group: selections ``texts`` from group ``base``
``system``   a system, by its number in the list ``systems``
``step``     a transformation, by its class; ``fields`` are its arguments
===========  ===========================================================
"""

import base64
import functools
import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import numpy as np

from paceline._util.files import is_stream
from paceline._util.json_types import JsonObject
from paceline.contract.run_info_and_descriptions import RunContext
from paceline.contract.system_interface import System, UpdatingAtoms, attribute_of
from paceline.contract.transform_interface import Transform
from paceline.errors import UnsupportedError
from paceline.transform.selections_and_weights import updates_itself

#: Beginning of a line about a call that cannot be repeated.
UNKNOWN = "not recorded: "
#: Maximum number of values of an array that is recorded.
MOST_VALUES = 1000
#: Maximum number of ranges of indices that are written as ranges. Beyond this number, differences
#: between indices are compressed.
MOST_RANGES = 20
#: Groups with at most this number of indices have their JSON cached, because other analyses may use
#: the same atoms.
MOST_KEPT = 10_000
#: Integer types in which differences between indices are stored, the smallest first.
KINDS = ("<i1", "<i2", "<i4", "<i8")
#: Maximum number of indices of a group that is read back.
MOST_INDICES = 10**8
#: Package of the analyses whose calls are recorded and repeated.
PACKAGE = "paceline.analysis."
#: Package of the transformations that are recorded.
STEPS_PACKAGE = "paceline.transform."
#: Options of a Universe that are not recorded: they do not change frames, or they write files.
NOT_OF_FRAMES = ("cache", "cache_size", "comm", "tee")


class Call(NamedTuple):
    """Call that created an analysis object: the class and its arguments."""

    kind: type
    args: tuple[object, ...]
    options: Mapping[str, object]
    #: Current frame of each system when the analysis was created, by the `id()` of the system.
    shown: Mapping[int, int]


def describe_call(call: Call, frames: np.ndarray, context: RunContext) -> str:
    """Describe an analysis and its run in one line, or state why they cannot be recorded."""
    try:
        text = json.dumps(_Recorder(call.shown).call(call, frames, context), ensure_ascii=False)
        return text.replace("  ", " \\u0020")  # saving a fact would merge repeated blanks
    except UnsupportedError as error:
        return f"{UNKNOWN}{error}"


class _Recorder:
    """Converts a call to JSON, and numbers the systems that it uses."""

    def __init__(self, shown: Mapping[int, int]) -> None:
        self._systems: list[JsonObject] = []
        self._numbers: dict[int, int] = {}
        self._frames = shown

    def call(self, call: Call, frames: np.ndarray, context: RunContext) -> JsonObject:
        """Convert the call that created an analysis, and the frames and options of its run."""
        kind, args, options = call.kind, call.args, call.options
        if not (kind.__module__.startswith(PACKAGE) and (args or options)):
            raise UnsupportedError(f"{kind.__name__} is a class of the script")
        found = {
            "class": f"{kind.__module__.removeprefix(PACKAGE)}.{kind.__qualname__}",
            "args": [self.value(one) for one in args],
            "options": {key: self.value(one) for key, one in options.items() if key != "verbose"},
            "frames": _pack(np.asarray(frames)),
        }
        if context.transforms:
            found["transforms"] = [self.value(one) for one in context.transforms]
        if context.skip_damaged:
            found["on_error"] = "skip"
        return {**found, "systems": self._systems}

    def value(self, given: object) -> object:
        """Convert a value; raise `UnsupportedError` if it cannot be recorded."""
        if isinstance(given, np.generic):
            given = given.item()
        if given is None or isinstance(given, bool | int | str):
            return given
        if isinstance(given, float):
            return given if math.isfinite(given) else {"number": str(given)}
        if isinstance(given, list):
            return [self.value(one) for one in given]
        if isinstance(given, tuple):
            return {"tuple": [self.value(one) for one in given]}
        if isinstance(given, dict):
            return {"dict": [[self.value(key), self.value(one)] for key, one in given.items()]}
        if isinstance(given, range | slice):
            raise UnsupportedError(f"an argument is {given!r}")
        if isinstance(given, np.ndarray):
            return self._array(given)
        if isinstance(given, os.PathLike):
            return os.fspath(given)
        if isinstance(given, Transform):
            return self._step(given)
        return self._of_system(given)

    def _array(self, given: np.ndarray) -> JsonObject:
        if given.size > MOST_VALUES or given.dtype.kind not in "biufU":
            raise UnsupportedError(f"an argument is an array of shape {given.shape}")
        return {"array": self.value(given.tolist()), "dtype": given.dtype.str}

    def _step(self, given: Transform) -> JsonObject:
        name = type(given).__name__
        if not (type(given).__module__.startswith(STEPS_PACKAGE) and is_dataclass(given)):
            raise UnsupportedError(f"the transformation {name} is a class of the script")
        values = {one.name: vars(given)[one.name] for one in fields(given)}
        return {"step": name, "fields": {key: self.value(one) for key, one in values.items()}}

    def _of_system(self, given: object) -> JsonObject:
        """Convert a system, or a group of its atoms or residues."""
        universe, name = attribute_of(given, "universe"), type(given).__name__
        if universe is None:
            raise UnsupportedError(f"an argument is {_short(given)}")
        number = self._system(universe)
        if universe is given:
            return {"system": number}
        if updates_itself(given):
            return self._updating(given)
        of = {"AtomGroup": "atoms", "ResidueGroup": "residues"}.get(name)
        if of is None:
            raise UnsupportedError(f"an argument is {_short(given)}")
        return {of: _pack(np.asarray(attribute_of(given, "ix"))), "system": number}

    def _updating(self, given: UpdatingAtoms) -> JsonObject:
        return {"texts": list(given._selection_strings), "base": self.value(given._base_group)}

    def _system(self, universe: System) -> int:
        """Return the number of a system; the first call for a system also describes it."""
        if id(universe) not in self._numbers:
            self._numbers[id(universe)] = len(self._systems)
            self._systems.append({})
            self._systems[-1] |= self._files(universe)
        return self._numbers[id(universe)]

    def _files(self, universe: System) -> JsonObject:
        """Describe a system by its files and options."""
        opened = attribute_of(universe, "opened_with")
        if opened is None or attribute_of(universe, "_trajectory") is not opened[2]:
            raise UnsupportedError("the system is not a paceline.Universe of files")
        names, options, _ = opened
        flat = [one for name in names for one in (name if isinstance(name, list) else [name])]
        if not flat or not all(isinstance(one, str | os.PathLike) for one in flat):
            raise UnsupportedError("the system is in memory")
        if any(is_stream(one) for one in flat):
            raise UnsupportedError("the frames came from a running simulation")
        kept = {key: one for key, one in options.items() if key not in NOT_OF_FRAMES}
        found: JsonObject = {"files": [os.fspath(one) for one in flat]}
        if kept:
            found["options"] = {key: self.value(one) for key, one in kept.items()}
        if frame := self._frames.get(id(universe), 0):
            found["frame"] = frame
        return found


def _short(given: object) -> str:
    """Return the name of a function, or the type of another value that cannot be recorded."""
    name = attribute_of(given, "__qualname__")
    return f"the function {name}" if callable(given) and name else f"a {type(given).__name__}"


def _pack(numbers: np.ndarray) -> object:
    """Convert whole numbers to JSON, exactly and in their order.

    The result is [first, step, n] for equal steps, {"ranges": [[first, last], …]} for few ranges,
    and otherwise the differences as integers of `dtype`, compressed by zlib, in base64.

    Examples
    --------
    >>> _pack(np.array([4, 7, 10])), _pack(np.array([1, 2, 9]))
    ([4, 3, 3], {'ranges': [[1, 2], [9, 9]]})
    """
    content = numbers.astype("<i8").tobytes()
    return _packed(content) if len(numbers) <= MOST_KEPT else _packed.__wrapped__(content)


@functools.lru_cache(64)
def _packed(content: bytes) -> object:
    """Convert the bytes of whole numbers to JSON; cached, as analyses often use the same atoms."""
    numbers = np.frombuffer(content, "<i8")
    steps = np.diff(numbers)
    if len(numbers) and (steps == (steps[0] if len(steps) else 1)).all():
        return [int(numbers[0]), int(steps[0]) if len(steps) else 1, len(numbers)]
    ends = np.flatnonzero(steps != 1)
    if len(numbers) and len(ends) < MOST_RANGES:
        firsts, lasts = numbers[[0, *(ends + 1)]], numbers[[*ends, -1]]
        return {"ranges": np.column_stack([firsts, lasts]).tolist()}
    differences = np.diff(numbers, prepend=np.int64(0))
    largest = int(np.abs(differences).max(initial=0))
    kind = next(kind for kind in KINDS if largest <= np.iinfo(kind).max)
    packed = base64.b64encode(zlib.compress(differences.astype(kind).tobytes())).decode()
    return {"differences": packed, "dtype": kind, "n": len(numbers)}


def unpack(packed: object) -> np.ndarray:
    """Return the numbers that `_pack` converted."""
    if isinstance(packed, list):
        first, step, n = map(int, packed)
        return first + step * np.arange(_few(n))
    assert isinstance(packed, dict)
    if "ranges" in packed:
        lengths = [int(last) - int(first) + 1 for first, last in packed["ranges"]]
        if min(lengths, default=1) < 1:
            raise ValueError("a range of indices ends before it begins")
        _few(sum(lengths))
        return np.concatenate([np.arange(int(a), int(b) + 1) for a, b in packed["ranges"]])
    n, kind = _few(int(packed["n"])), packed["dtype"]
    if kind not in KINDS:
        raise ValueError(f"indices of type {kind!r}")
    compressed = base64.b64decode(packed["differences"])
    inflated = zlib.decompressobj().decompress(compressed, 8 * n + 1)
    return np.cumsum(np.frombuffer(inflated, kind, n).astype(np.int64))


def _few(n: int) -> int:
    """Return `n`; raise `ValueError` if it is negative or above `MOST_INDICES`."""
    if not 0 <= n <= MOST_INDICES:
        raise ValueError(f"{n} indices")
    return n
