"""Units: those that a file states, those that a user names, and what turns numbers into ours."""

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from paceline.errors import UnsupportedError

#: Quantities that have units, and the units that their numbers are turned into.
OURS = {
    "length": "Angstrom",
    "time": "ps",
    "velocity": "Angstrom ps-1",
    "force": "kJ mol-1 Angstrom-1",
    "mass": "u",
    "charge": "e",
}

_Power = tuple[int, int, int, int, int]
_NUMBER: _Power = (0, 0, 0, 0, 0)
_LENGTH: _Power = (1, 0, 0, 0, 0)
_TIME: _Power = (0, 1, 0, 0, 0)
_ENERGY: _Power = (0, 0, 1, 0, 0)
_MASS: _Power = (0, 0, 0, 1, 0)
_CHARGE: _Power = (0, 0, 0, 0, 1)

# MDAnalysis's constants, so that the same numbers come out: CODATA 2010, and the thermochemical
# calorie, where H5MD's units module has another one that no force field uses.
_AVOGADRO = Fraction("6.02214129e23")
_JOULE = _AVOGADRO / 1000
_CALORIE = Fraction("4.184")
_COULOMB = 1 / Fraction("1.602176565e-19")

#: In Å, ps, kJ/mol, u and e.
_SYMBOLS: dict[str, tuple[Fraction, _Power]] = {
    "Angstrom": (Fraction(1), _LENGTH),
    "AKMA": (Fraction("0.04888821"), _TIME),
    "mol": (_AVOGADRO, _NUMBER),
    "u": (Fraction(1), _MASS),
    "e": (Fraction(1), _CHARGE),
}
#: The same of symbols that take a prefix.
_SI: dict[str, tuple[Fraction, _Power]] = {
    "m": (Fraction(10**10), _LENGTH),
    "s": (Fraction(10**12), _TIME),
    "J": (_JOULE, _ENERGY),
    "cal": (_JOULE * _CALORIE, _ENERGY),
    "eV": (_JOULE / _COULOMB, _ENERGY),
    "N": (_JOULE / 10**10, (-1, 0, 1, 0, 0)),
    "g": (_AVOGADRO, _MASS),
    "C": (_COULOMB, _CHARGE),
}
_PREFIXES = {"f": -15, "p": -12, "n": -9, "u": -6, "µ": -6, "μ": -6, "m": -3, "k": 3}

#: Other spellings of the above, singular.
_SPELLINGS = {
    "A": "Angstrom",
    "Ang": "Angstrom",
    "angstrom": "Angstrom",
    "Å": "Angstrom",
    "\u212b": "Angstrom",
    "nanometer": "nm",
    "picometer": "pm",
    "femtometer": "fm",
    "picosecond": "ps",
    "femtosecond": "fs",
    "nanosecond": "ns",
    "second": "s",
    "sec": "s",
    "Newton": "N",
    "amu": "u",
    "Da": "u",
}

#: A bracket, a stroke, a number with its power of ten, or a symbol with its power.
_TOKEN = re.compile(
    r"[()/]"
    r"|(?P<number>\d+(?:\.\d*)?)(?P<ten>[+-]\d{1,3})?"
    r"|(?P<symbol>[^\W\d_]+)\^?(?P<power>[+-]?\d)?"
    r"|[^\s*·]"
)


def factor_of(unit: str, quantity: str) -> float:
    """What a number in some unit is multiplied by to be in ours.

    Parameters
    ----------
    unit : str
        As H5MD's module of units writes it, "kJ mol-1 nm-1", or with strokes: "kJ/(mol*nm)".
    quantity : str
        Out of `OURS`.

    Returns
    -------
    float

    Raises
    ------
    UnsupportedError
        It is no unit that we know, or one of something else.

    Examples
    --------
    >>> factor_of("nm", "length")
    10.0
    >>> factor_of("nm ps-1", "velocity"), factor_of("kJ/(mol*nm)", "force")
    (10.0, 0.1)
    """
    size, power = _size_of(unit)
    if power != _size_of(OURS[quantity])[1]:
        raise UnsupportedError(f"{unit!r} is no unit of {quantity}; one is {OURS[quantity]!r}")
    return size


def units_given(units: str | Mapping[str, str] | None) -> dict[str, str]:
    """Units as a user names them: quantity and unit.

    Parameters
    ----------
    units : str or mapping, optional
        `{"length": "nm", "time": "ps"}`, or the units alone: "nm, ps".

    Returns
    -------
    dict
        The unit of velocities follows from length and time where it is not named.

    Raises
    ------
    UnsupportedError
        A quantity or a unit is not known, or two are of the same quantity.

    Examples
    --------
    >>> units_given("nm, ps")
    {'length': 'nm', 'time': 'ps', 'velocity': 'nm/ps'}
    """
    if units is None:
        return {}
    if isinstance(units, str):
        pairs = [(_quantity_of(unit), unit.strip()) for unit in units.split(",")]
    else:
        pairs = list(units.items())
    given: dict[str, str] = {}
    for quantity, unit in pairs:
        if quantity not in OURS:
            raise UnsupportedError(
                f"units= names {quantity!r}; quantities that have one are {', '.join(OURS)}"
            )
        if quantity in given:
            raise UnsupportedError(
                f"units= (--units) names two of {quantity}: {given[quantity]!r} and {unit!r}"
            )
        factor_of(unit, quantity)
        given[quantity] = unit
    if "length" in given and "time" in given:
        time = given["time"] if given["time"].isalpha() else f"({given['time']})"
        given.setdefault("velocity", f"{given['length']}/{time}")
    return given


def _quantity_of(unit: str) -> str:
    _, power = _size_of(unit)
    for quantity, ours in OURS.items():
        if power == _size_of(ours)[1]:
            return quantity
    raise UnsupportedError(f"{unit.strip()!r} is a unit of none of {', '.join(OURS)}")


def _size_of(unit: str) -> tuple[float, _Power]:
    """A unit in ours, and its powers of length, time, energy, mass and charge."""
    size, powers = Fraction(1), [0, 0, 0, 0, 0]
    for factor, power, exponent in _factors(unit):
        size *= factor**exponent
        powers = [a + b * exponent for a, b in zip(powers, power, strict=True)]
    try:
        found = float(size)
    except OverflowError:
        found = math.inf
    if not 0 < found < math.inf or not unit.strip():
        raise UnsupportedError(f"unknown unit {unit!r}")
    a, b, c, d, e = powers
    return found, (a, b, c, d, e)


def _factors(unit: str) -> Iterator[tuple[Fraction, _Power, int]]:
    """Factors of a unit with their exponents; behind a stroke comes one factor, or a bracket."""
    sign, outer = 1, [1]
    for token in _TOKEN.finditer(unit.replace("**", "^")):
        if token[0] == "/":
            sign = -sign
        elif token[0] == "(":
            outer.append(outer[-1] * sign)
            sign = 1
        elif token[0] == ")" and len(outer) > 1:
            outer.pop()
        elif token["number"] and float(token["number"]):
            yield Fraction(token["number"]) ** int(token["ten"] or 1), _NUMBER, outer[-1] * sign
            sign = 1
        elif token["symbol"]:
            yield *_symbol(token["symbol"], unit), outer[-1] * sign * int(token["power"] or 1)
            sign = 1
        else:
            raise UnsupportedError(f"unknown unit {unit!r}: {token[0]!r} has no place in it")
    if sign != 1 or len(outer) > 1:
        raise UnsupportedError(f"unknown unit {unit!r}: it breaks off")


def _symbol(name: str, unit: str) -> tuple[Fraction, _Power]:
    name = _SPELLINGS.get(name, _SPELLINGS.get(name.removesuffix("s"), name))
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    if name in _SI:
        return _SI[name]
    if name[:1] in _PREFIXES and name[1:] in _SI:
        size, power = _SI[name[1:]]
        return size * Fraction(10) ** _PREFIXES[name[0]], power
    known = ", ".join([*_SYMBOLS, *_SI])
    raise UnsupportedError(
        f"unknown unit {unit!r}: {name!r} is none of {known}, nor one of "
        "these with a prefix, such as nm, fs or kcal"
    )


class Units:
    """Units of one file.

    Parameters
    ----------
    path : str
        The file.
    given : mapping
        Quantity and unit, as `units_given` makes them: they count in place of the file's.
    usual : mapping, optional
        Units of a program that wrote the file, where the file states none.

    Attributes
    ----------
    used : dict
        Unit of each quantity that was asked for.
    notes : list of str
        Where a user's unit is another than the file's.
    """

    def __init__(self, path: str, given: Mapping[str, str], usual: Mapping[str, str] | None = None):
        self._path = path
        self._given = given
        self._usual = usual or {}
        self._missing: dict[str, str] = {}
        self.used: dict[str, str] = {}
        self.notes: list[str] = []

    def factor(self, quantity: str, name: str, stated: str | None) -> float:
        """What a dataset's numbers are multiplied by.

        Parameters
        ----------
        quantity : str
            Out of `OURS`.
        name : str
            The dataset.
        stated : str or None
            Its unit, as the file has it.

        Returns
        -------
        float
            1 where there is no unit: `refuse_missing` speaks of that.

        Raises
        ------
        UnsupportedError
            The file states a unit that we do not know.
        """
        unit = self._given.get(quantity, stated or self._usual.get(quantity))
        if unit is None:
            self._missing.setdefault(quantity, name)
            return 1.0
        self.used[quantity] = unit
        try:
            factor = factor_of(unit, quantity)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"{self._path}: {name}: {error}; say which it has with "
                f'units=, for instance units="{OURS[quantity]}" (--units "{OURS[quantity]}")'
            ) from None
        if stated is not None and unit != stated:
            self.notes.append(f"{name}: in {unit}, as units= (--units) says, and not in {stated}")
        return factor

    def refuse_missing(self) -> None:
        """Raise `UnsupportedError` if a dataset that was asked for has no unit."""
        if not self._missing:
            return
        names = ", ".join(self._missing.values())
        # That of velocities follows from the first two.
        follows = {"velocity"} if {"length", "time"} <= self._missing.keys() else set()
        wanted = ", ".join(
            unit for quantity, unit in OURS.items() if quantity in self._missing.keys() - follows
        )
        raise UnsupportedError(
            f"{self._path}: {names}: expected an attribute unit, found none; say what they are in, "
            f'for instance units="{wanted}" (--units "{wanted}")'
        )
