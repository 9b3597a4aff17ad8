"""Conditions on the rows of tables, such as "rmsd < 2 and time > 10ns"."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.table import name_and_unit
from paceline.contract.time_units import UNITS_IN_TITLES
from paceline.errors import UnsupportedError

#: For each quantity, its units as multiples of the first one.
UNITS: tuple[Mapping[str, float], ...] = (
    UNITS_IN_TITLES,
    {"Å": 1, "A": 1, "nm": 10, "pm": 0.01},
    {"Å²": 1, "A^2": 1, "Å^2": 1, "nm²": 100, "nm^2": 100},
    {"degrees": 1, "deg": 1, "°": 1, "rad": 180 / np.pi},
    {"kJ/mol": 1, "kcal/mol": 4.184},
    {"K": 1},
    {"D": 1},
    {"u": 1},
)
_COMPARE: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "=": np.equal,
    "!=": np.not_equal,
}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:\ ?(?P<unit>[^\W\d_][\w²/^]*|°))?
    |(?P<quoted>"[^"]*"|'[^']*')
    |(?P<compare><=|>=|==|!=|<|>|=)
    |(?P<bracket>[()])
    |(?P<word>[^\W\d][\w⁻¹²³°-]*)
    )""",
    re.VERBOSE,
)
#: Words that cannot be names of columns.
_WORDS = ("and", "or", "not")


class _Token(NamedTuple):
    kind: str
    text: str
    unit: str = ""

    @property
    def is_count(self) -> bool:
        """True for a whole number, which may end a name, such as "projection 1"."""
        return self.kind == "number" and not self.unit and self.text.isdecimal()


@dataclass(frozen=True)
class _Operand:
    """Side of a comparison: the values of a column, or a number; `name` appears in messages."""

    values: np.ndarray
    unit: str
    name: str
    is_number: bool


def find_title(titles: Any, wanted: str, where: str) -> str:
    """Find the title that is `wanted`, has this name without unit, or begins with it.

    Case is ignored, unless a title is exactly `wanted`. If no title or several titles
    match, raises `UnsupportedError` with the titles of `where`.

    Examples
    --------
    >>> find_title(["time (ps)", "RMSD (Å)", "RMSD of loop (Å)"], "rmsd", "rmsd.csv")
    'RMSD (Å)'
    """
    plain = _plain(wanted)
    for match in (
        lambda title: title == wanted,
        lambda title: plain in (_plain(title), _plain(name_and_unit(title)[0])),
        lambda title: _plain(title).startswith(plain),
    ):
        found = [title for title in titles if match(title)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    known = [*titles]
    listed = ", ".join(known[:20]) + ", …" * (len(known) > 20)
    what = f"{len(found)} columns {wanted!r}" if found else f"no column {wanted!r}"
    raise UnsupportedError(f"{where} has {what}; it has {listed}")


def _plain(title: str) -> str:
    return " ".join(title.replace("_", " ").casefold().split())


class RowCondition:
    """Condition on columns; it is parsed, never executed as a program.

    ``or``, ``and`` and ``not`` combine comparisons (``<``, ``<=``, ``>``, ``>=``, ``==``, ``!=``).
    Comparisons may be chained: ``1 < rmsd < 2``. Names of columns are as for `find_title`, in
    quotes unless they consist of words and whole numbers. Numbers may have units. A row with NaN in
    a column of the condition does not meet it.

    Examples
    --------
    >>> columns = {"time (ps)": np.array([0.0, 9e3, 2e4]), "RMSD (Å)": np.array([1.0, 1.0, 1.5])}
    >>> RowCondition("0.1nm < rmsd and not time < 10ns", columns, "rmsd.csv").rows
    array([False, False,  True])
    """

    def __init__(self, text: str, columns: Mapping[str, np.ndarray], where: str):
        self._text, self._columns, self._where = text, columns, where
        self._tokens = [*self._split()]
        self._place = 0
        #: Titles of the columns in the condition, in order.
        self.titles: list[str] = []
        found = self._disjunction()
        if (token := self._next()).kind != "end":
            raise self._error(f"expected 'and', 'or' or the end, found {token.text!r}")
        if not self.titles:
            raise self._error(f"it contains no column; {where} has {', '.join([*columns][:20])}")
        known = np.all([np.isfinite(columns[title]) for title in self.titles], axis=0)
        #: Mask of the rows that meet the condition, bool.
        self.rows = found & known

    def _error(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"condition {self._text!r}: {what}")

    def _split(self) -> Iterator[_Token]:
        place, text = 0, self._text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._error(f"cannot be read from {text[place:].strip()!r} on")
            kind = found.lastgroup or ""
            if kind == "unit" and found["unit"] in _WORDS:
                yield _Token("number", found["number"])
                place = found.end("number")
                continue
            if found["number"] is not None:
                yield _Token("number", found["number"], found["unit"] or "")
            else:
                value = found[kind]
                kind = value if value in _WORDS or kind == "bracket" else kind
                yield _Token(kind, value)
            place = found.end()
        yield _Token("end", "the end")

    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _accept(self, kind: str) -> bool:
        """Skip the next token if it is of this kind; return whether it was."""
        is_next = self._next().kind == kind
        self._place += is_next
        return is_next

    def _disjunction(self) -> np.ndarray:
        found = self._conjunction()
        while self._accept("or"):
            found = found | self._conjunction()
        return found

    def _conjunction(self) -> np.ndarray:
        found = self._condition()
        while self._accept("and"):
            found = found & self._condition()
        return found

    def _condition(self) -> np.ndarray:
        if self._accept("not"):
            return ~self._condition()
        if self._accept("("):
            found = self._disjunction()
            if not self._accept(")"):
                raise self._error(f"expected ')', found {self._next().text!r}")
            return found
        return self._comparison()

    def _comparison(self) -> np.ndarray:
        left = self._operand()
        if self._next().kind != "compare":
            raise self._error(
                f"expected a comparison such as 'rmsd < 2' with {left.name}, found "
                f"{self._next().text!r}"
            )
        found = np.ones(self._n_rows, bool)
        while self._next().kind == "compare":
            compare = _COMPARE[self._next().text]
            self._place += 1
            right = self._operand()
            found &= compare(*self._in_one_unit(left, right))
            left = right
        return found

    @property
    def _n_rows(self) -> int:
        return len(next(iter(self._columns.values())))

    def _operand(self) -> _Operand:
        token = self._next()
        if token.kind == "number":
            self._place += 1
            value = np.full(self._n_rows, float(token.text))
            return _Operand(value, token.unit, f"{token.text}{token.unit}", True)
        if token.kind not in ("word", "quoted"):
            raise self._error(f"expected a column or a number, found {token.text!r}")
        if self._accept("quoted"):
            name = token.text[1:-1]
        else:
            words: list[str] = []
            while self._next().kind == "word" or (words and self._next().is_count):
                words.append(self._next().text)
                self._place += 1
            name = " ".join(words)
        title = find_title(self._columns, name, f"condition {self._text!r}: {self._where}")
        if title not in self.titles:
            self.titles.append(title)
        return _Operand(self._columns[title], name_and_unit(title)[1], f"{title!r}", False)

    def _in_one_unit(self, left: _Operand, right: _Operand) -> tuple[np.ndarray, np.ndarray]:
        """Convert both operands to one unit; a number without unit gets that of the other one."""
        units = [
            other.unit if one.is_number and not one.unit else one.unit
            for one, other in ((left, right), (right, left))
        ]
        if units[0] == units[1]:
            return left.values, right.values
        for known in UNITS:
            if units[0] in known and units[1] in known:
                return left.values * known[units[0]], right.values * known[units[1]]
        described = [
            f"{one.name} {f'is in {unit}' if unit else 'has no unit'}"
            for one, unit in zip((left, right), units, strict=True)
        ]
        raise self._error(f"units do not match: {' and '.join(described)}")
