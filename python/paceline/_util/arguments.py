"""Check arguments of callers."""

import inspect
import math
import operator
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, SupportsFloat

import numpy as np

from paceline.errors import warn

#: Keywords of selections, and number of lengths directly after each.
LENGTHS = {
    **{"around": 1, "sphzone": 1, "sphlayer": 2, "isolayer": 2},
    **{"cyzone": 1, "cylayer": 2, "point": 4},
}
#: Pattern of a selection by a coordinate of the atoms, such as `prop z`.
_BY_COORDINATE = re.compile(r"\b(prop\s+(abs\s+)?|same\s+)[xyz]\b")
#: Number of bytes in each unit of size.
SIZES = {
    **{"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
}


def uses_positions(selection: str) -> bool:
    """True if the positions of the atoms determine which atoms a selection finds.

    Examples
    --------
    >>> uses_positions("name CA"), uses_positions("resname SOL and (around 5 protein)")
    (False, True)
    """
    words = re.findall(r"[^\s()]+", selection)
    return any(word in LENGTHS for word in words) or bool(_BY_COORDINATE.search(selection))


def whole_number(
    name: str, value: Any, least: int | None = None, most: int | None = None, unit: str = ""
) -> int:
    """Check that the argument `name` is a whole number within bounds, and return it as an int.

    A float such as 20.0 is accepted. `least` and `most` are inclusive bounds; `most` requires
    `least`. Raises `ValueError`.

    Examples
    --------
    >>> whole_number("tau_max", 20.0, 1)
    20
    >>> whole_number("tau_max", 2.5)
    Traceback (most recent call last):
    ValueError: tau_max must be a whole number, not 2.5
    >>> whole_number("tau_max", 12, 0, 9, "frames")
    Traceback (most recent call last):
    ValueError: tau_max must be from 0 to 9 frames, not 12
    """
    number = None
    if not isinstance(value, bool | np.bool_):
        is_whole = getattr(value, "is_integer", None)
        try:
            number = int(value) if is_whole and is_whole() else operator.index(value)
        except TypeError:
            number = None
    if number is None:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    unit = f" {unit}" if unit else ""
    if most is not None and not (least is not None and least <= number <= most):
        raise ValueError(f"{name} must be from {least:,} to {most:,}{unit}, not {number}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}{unit}, not {number}")
    return number


def positive_number(name: str, value: SupportsFloat | str, unit: str = "") -> float:
    """Check that the argument `name` is a finite number above 0, and return it as a float.

    Raises `ValueError`.

    Examples
    --------
    >>> positive_number("idle", 60)
    60.0
    >>> positive_number("idle", -1, "s")
    Traceback (most recent call last):
    ValueError: idle must be a number above 0 s, not -1
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a number above 0{' ' * bool(unit)}{unit}, not {value!r}")
    return number


def length(name: str, value: Any, shortest: float = 0.9) -> float:
    """Check that the argument `name` is a length above 0, Å. Raises `ValueError`.

    Warns if the length is below `shortest`, Å, because the user may have given it in nm.
    """
    found = float(value)
    if not 0 < found < np.inf:
        raise ValueError(f"{name} must be a length above 0, in Å, not {value!r}")
    if found < shortest:
        warn(f"{name}={found:g} is in Å: did you mean {name}={10 * found:g} ({found:g} nm)?")
    return found


def check_range(limits: Sequence[float], shortest: float = 2.0) -> None:
    """Warn if the upper end of the argument `range` (two lengths, Å) looks like a length in nm."""
    first, last = (float(one) for one in limits)
    if last <= shortest:
        in_nm = f"range=({10 * first:g}, {10 * last:g})"
        warn(f"range=({first:g}, {last:g}) is in Å: did you mean {in_nm}, the same in nm?")


def check_selection(text: str, shortest: float = 0.9) -> None:
    """Warn of each keyword whose distances are all below `shortest`, Å, since they may be in nm."""
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    for k, word in enumerate(words):
        count = LENGTHS.get(word, 0)
        try:
            lengths = [float(one) for one in words[k + 1 : k + 1 + count]]
        except ValueError:  # the name of an atom, or an invalid selection
            continue
        if 0 < max((abs(one) for one in lengths), default=0) < shortest:
            given, in_nm = (
                " ".join([word, *(f"{factor * one:g}" for one in lengths)]) for factor in (1, 10)
            )
            warn(f"{given!r} in {text!r} is in Å: did you mean {in_nm!r}, the same in nm?")


def one_of(name: str, value: object, *choices: object) -> None:
    """Check that the argument `name` is one of some values. Raises `ValueError`.

    Examples
    --------
    >>> one_of("compound", "atom", "atoms", "residues", None)
    Traceback (most recent call last):
    ValueError: compound must be 'atoms', 'residues' or None, not 'atom'
    """
    if value not in choices:
        *most, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, not {value!r}")


def slice_of(start: Any, stop: Any, step: Any) -> slice:
    """Check the bounds of a slice of frames, and return it.

    Raises `TypeError` for a float, even one without decimals, as MDAnalysis does; `ValueError` for
    a step of 0.

    Examples
    --------
    >>> slice_of(2, None, np.int64(3))
    slice(2, None, 3)
    >>> slice_of(2.0, None, None)
    Traceback (most recent call last):
    TypeError: start must be an integer, not 2.0
    """
    found: dict[str, int | None] = {"start": start, "stop": stop, "step": step}
    for name, value in found.items():
        if value is None:
            continue
        try:
            found[name] = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if found["step"] == 0:
        raise ValueError("step must not be 0")
    return slice(*found.values())


def function_name(function: object) -> str:
    """Return the name of a user's function, of a `partial`, or of a callable object.

    The result is not the repr, which may contain an address and then differ between processes.

    Examples
    --------
    >>> function_name(one_of), function_name(partial(one_of, "axis"))
    ('one_of', 'one_of')
    """
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__qualname__)


def parameters_of(kind: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters with which a class is called, by their names."""
    return _signature_of(kind).parameters


@lru_cache(256)
def _signature_of(kind: type) -> inspect.Signature:
    return inspect.signature(kind)


def parse_size(text: str) -> int:
    """Parse a number of bytes with an optional unit, such as 500MB.

    kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024. Raises
    `ValueError` for other text.

    Examples
    --------
    >>> parse_size("4096"), parse_size("1.5GB"), parse_size("2 MiB")
    (4096, 1500000000, 2097152)
    """
    digits = text.rstrip("BiKkMGT")
    try:
        n_bytes = int(float(digits) * SIZES[text[len(digits) :] or "B"])
    except (ValueError, KeyError, OverflowError):
        n_bytes = 0
    if n_bytes < 1:
        raise ValueError(f"expected a number of bytes such as 500MB or 2GiB, found {text!r}")
    return n_bytes
