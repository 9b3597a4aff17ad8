"""Units that files state or users name, and factors for conversion to paceline's units."""

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from paceline.errors import UnsupportedError

#: Quantities with units, and paceline's unit for each.
OUR_UNITS = {
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

# Constants of MDAnalysis, so that converted numbers equal those of MDAnalysis: CODATA 2010, and the
# thermochemical calorie. H5MD's units module defines another calorie, which no force field uses.
_AVOGADRO = Fraction("6.02214129e23")
_JOULE = _AVOGADRO / 1000
_CALORIE = Fraction("4.184")
_COULOMB = 1 / Fraction("1.602176565e-19")

#: Units that take no prefix: size in Å, ps, kJ/mol, u and e, and powers of these dimensions.
_SYMBOLS: dict[str, tuple[Fraction, _Power]] = {
    "Angstrom": (Fraction(1), _LENGTH),
    "AKMA": (Fraction("0.04888821"), _TIME),
    "mol": (_AVOGADRO, _NUMBER),
    "u": (Fraction(1), _MASS),
    "e": (Fraction(1), _CHARGE),
}
#: Units that may have a prefix: size without prefix, and powers, as in `_SYMBOLS`.
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

#: Symbol of a unit for each other spelling, in singular form.
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

#: Pattern of a bracket, a slash, a number with a power of ten, or a symbol with a power.
_TOKEN = re.compile(
    r"[()/]"
    r"|(?P<number>\d+(?:\.\d*)?)(?P<ten>[+-]\d{1,3})?"
    r"|(?P<symbol>[^\W\d_]+)\^?(?P<power>[+-]?\d)?"
    r"|[^\s*·]"
)


class UnknownUnitError(UnsupportedError):
    """The text of a unit cannot be parsed."""


def factor_of(unit: str, quantity: str) -> float:
    """Return the factor from a unit, such as "kJ mol-1 nm-1" or "kJ/(mol*nm)", to paceline's unit.

    >>> factor_of("nm", "length")
    10.0
    >>> factor_of("nm ps-1", "velocity"), factor_of("kJ/(mol*nm)", "force")
    (10.0, 0.1)
    """
    size, power = _size_of(unit)
    moles = sum(exponent for name, _, _, exponent in _factors(unit) if name == "mol")
    if power != _size_of(OUR_UNITS[quantity])[1] or moles not in (0, -1):
        raise UnsupportedError(f"{unit!r} is not a unit of {quantity}; use {OUR_UNITS[quantity]!r}")
    return size


def h5md_spelling(unit: str) -> str:
    """Write a unit in the notation of H5MD's units module.

    >>> h5md_spelling("kcal/(mol*A)"), h5md_spelling("second")
    ('kcal mol-1 Angstrom-1', 's')
    """
    return " ".join(
        name if exponent == 1 else f"{name}{exponent:+d}" for name, _, _, exponent in _factors(unit)
    )


def mdanalysis_spelling(unit: str) -> str:
    """Write a unit in MDAnalysis's notation.

    >>> mdanalysis_spelling("nm ps-1"), mdanalysis_spelling("kJ mol-1 A-1")
    ('nm/ps', 'kJ/(mol*Angstrom)')
    """
    above, below = list[str](), list[str]()
    for name, _, _, exponent in _factors(unit):
        (above if exponent > 0 else below).extend([name] * abs(exponent))
    divisor = "*".join(below) if len(below) < 2 else f"({'*'.join(below)})"
    return "/".join(filter(None, ("*".join(above), divisor)))


def units_given(units: str | Mapping[str, str] | None) -> dict[str, str]:
    """Parse units that a user names; derive the unit of velocities from length and time.

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
        if quantity not in OUR_UNITS:
            raise UnsupportedError(
                f"units= names {quantity!r}; quantities with a unit are {', '.join(OUR_UNITS)}"
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
    for quantity, ours in OUR_UNITS.items():
        if power == _size_of(ours)[1]:
            return quantity
    raise UnsupportedError(f"{unit.strip()!r} is not a unit of {', '.join(OUR_UNITS)}")


def _size_of(unit: str) -> tuple[float, _Power]:
    """Parse a unit: size in paceline's units; powers of length, time, energy, mass and charge."""
    size, powers = Fraction(1), [0, 0, 0, 0, 0]
    for _, factor, power, exponent in _factors(unit):
        size *= factor**exponent
        powers = [a + b * exponent for a, b in zip(powers, power, strict=True)]
    try:
        found = float(size)
    except OverflowError:
        found = math.inf
    if not 0 < found < math.inf or not unit.strip():
        raise UnknownUnitError(f"unknown unit {unit!r}")
    a, b, c, d, e = powers
    return found, (a, b, c, d, e)


def _factors(unit: str) -> Iterator[tuple[str, Fraction, _Power, int]]:
    """Yield name, size, powers and exponent of each factor; a slash divides by the next factor."""
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
            exponent = outer[-1] * sign * int(token["ten"] or 1)
            yield token["number"], Fraction(token["number"]), _NUMBER, exponent
            sign = 1
        elif token["symbol"]:
            yield *_symbol(token["symbol"], unit), outer[-1] * sign * int(token["power"] or 1)
            sign = 1
        else:
            raise UnknownUnitError(f"unknown unit {unit!r}: unexpected {token[0]!r}")
    if sign != 1 or len(outer) > 1:
        raise UnknownUnitError(f"unknown unit {unit!r}: it is incomplete")


def _symbol(name: str, unit: str) -> tuple[str, Fraction, _Power]:
    """Return the canonical name of a unit symbol, its size and its dimensions."""
    name = _SPELLINGS.get(name, _SPELLINGS.get(name.removesuffix("s"), name))
    if name in _SYMBOLS:
        return name, *_SYMBOLS[name]
    if name in _SI:
        return name, *_SI[name]
    if name[:1] in _PREFIXES and name[1:] in _SI:
        size, power = _SI[name[1:]]
        return name, size * Fraction(10) ** _PREFIXES[name[0]], power
    known = ", ".join([*_SYMBOLS, *_SI])
    raise UnknownUnitError(
        f"unknown unit {unit!r}: {name!r} is not one of {known}, nor one of "
        "these with a prefix, such as nm, fs or kcal"
    )


class Units:
    """Units of one file: set by the user, else stated in the file, else those of its writer.

    `used` contains the unit of each quantity. `notes` reports user's units that replace stated
    ones.
    """

    def __init__(
        self, path: str, given: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ):
        self._path = path
        self._given = given
        self._defaults = defaults or {}
        self._missing: dict[str, str] = {}
        self.used: dict[str, str] = {}
        self.notes: list[str] = []

    def factor(self, quantity: str, name: str, stated: str | None) -> float:
        """Return the factor from the unit of the dataset `name` to paceline's unit.

        `stated` is the unit in the file. If no unit is known, return 1 (see `check_missing`).
        """
        unit = self._given.get(quantity, stated or self._defaults.get(quantity))
        if unit is None:
            self._missing.setdefault(quantity, name)
            return 1.0
        try:
            factor = factor_of(unit, quantity)
        except UnsupportedError as error:
            ours = OUR_UNITS[quantity]
            raise type(error)(
                f"{self._path}: {name}: {error}; set the unit with "
                f'units=, for instance units="{ours}" (--units "{ours}")'
            ) from None
        self.used[quantity] = unit
        if stated is not None and unit != stated:
            self.notes.append(f"{name}: in {unit}, as units= (--units) says, not in {stated}")
        return factor

    def message_of(self, error: UnsupportedError) -> str:
        """Return the message of an error without the file path."""
        return str(error).removeprefix(f"{self._path}: ")

    def check_missing(self) -> None:
        """Raise `UnsupportedError` if `factor` was called for a quantity whose unit is unknown."""
        if not self._missing:
            return
        names = ", ".join(self._missing.values())
        # The unit of velocities is derived from length and time.
        follows = {"velocity"} if {"length", "time"} <= self._missing.keys() else set()
        wanted = ", ".join(
            unit
            for quantity, unit in OUR_UNITS.items()
            if quantity in self._missing.keys() - follows
        )
        raise UnsupportedError(
            f"{self._path}: {names}: expected an attribute unit, found none; set the units, "
            f'for instance units="{wanted}" (--units "{wanted}")'
        )
