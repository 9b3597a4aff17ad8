"""Functions that all readers of energies from text files use, and a reader of .xvg tables."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from paceline.analysis.table import name_and_unit
from paceline.errors import DamagedFileError, UnsupportedError
from paceline.performance.number_format import many

#: Maximum length of a line, bytes.
LONGEST = 2**20


@dataclass
class EnergyPart:
    """Consecutive rows that a program wrote.

    `terms` are columns by name. `units` contains the known units of terms. Times are in ps, unless
    `time_unit` differs. Times or steps may be unknown. `per_atom` is true if energies are per atom.
    """

    where: str
    terms: dict[str, np.ndarray]
    units: Mapping[str, str]
    times: np.ndarray | None = None
    steps: np.ndarray | None = None
    time_unit: str = "ps"
    n_atoms: int | None = None
    per_atom: bool = False


@dataclass
class Content:
    """Energies or other rows of a text file in parts, and remarks on rows that were left out."""

    path: str
    parts: list[EnergyPart] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    #: Number of rows that could not be read.
    n_unread: int = 0
    #: Line number of the first row that could not be read.
    first_unread: int = 0

    def skip(self, line: int) -> None:
        """Count a row that could not be read."""
        self.n_unread += 1
        self.first_unread = self.first_unread or line

    def remark(self, text: str) -> None:
        """Add a remark on the file."""
        self.remarks.append(f"{self.path}: {text}")

    def remark_minimised(self, n_rows: int) -> None:
        """Add a remark on rows of minimisations, which are left out."""
        if n_rows:
            self.remark(f"left out: {many(n_rows, 'row')} of minimisations, which have no times")

    def close(self) -> "Content":
        """Drop empty parts, and add a remark on rows that could not be read."""
        self.parts = [part for part in self.parts if any(map(len, part.terms.values()))]
        if self.n_unread:
            self.remark(
                f"left out: {many(self.n_unread, 'row')} that could not be read, the first in line "
                f"{self.first_unread}"
            )
        return self


class TermColumns:
    """Columns that grow row by row; missing values are NaN."""

    def __init__(self) -> None:
        self.columns: dict[str, array[float]] = {}
        self.n_rows = 0

    def add(self, row: Mapping[str, float]) -> None:
        """Add a row of values, by the names of their columns."""
        for name, value in row.items():
            if name not in self.columns:
                self.columns[name] = array("d", [np.nan]) * self.n_rows
            self.columns[name].append(value)
        self.n_rows += 1
        if len(row) < len(self.columns):
            for name in self.columns.keys() - row.keys():
                self.columns[name].append(np.nan)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the columns as arrays of float64."""
        return {name: np.array(column) for name, column in self.columns.items()}


def distinct_names(names: Iterable[str]) -> list[str]:
    """Append numbers to names that repeat.

    Examples
    --------
    >>> distinct_names(["Temp", "Press", "Temp", "Temp 2"])
    ['Temp', 'Press', 'Temp 2', 'Temp 2 2']
    """
    counts: Counter[str] = Counter()
    found: dict[str, None] = {}
    for name in names:
        one = name
        while one in found or not counts[name]:
            counts[name] += 1
            one = name if counts[name] == 1 else f"{name} {counts[name]}"
        found[one] = None
    return [*found]


def number_of(text: str) -> float | None:
    """Convert a text to a number; None for other text, NaN for Fortran's stars (overflow).

    Examples
    --------
    >>> number_of("-1.5D3"), number_of("***"), number_of("Step")
    (-1500.0, nan, None)
    """
    for given in (text, text.replace("D", "e")):
        try:
            return float(given)
        except ValueError:
            continue
    return np.nan if text and not text.strip("*") else None


def numbers_of(texts: Iterable[str]) -> list[float] | None:
    """Convert texts to numbers; None if a text is not a number."""
    found = []
    for text in texts:
        value = number_of(text)
        if value is None:
            return None
        found.append(value)
    return found


def lines_of(
    content: Content, file: IO[bytes], longest: int = LONGEST
) -> Iterator[tuple[int, str]]:
    """Yield complete lines with their numbers; a last line without line end is left out."""
    number = 0
    while line := file.readline(longest):
        number += 1
        if line.endswith(b"\n"):
            yield number, line.decode("utf-8", "replace").rstrip("\r\n")
        elif len(line) == longest:
            raise DamagedFileError.in_object(
                content.path, f"line {number}", "a line of text", f"{longest} bytes or more"
            )
        elif line.strip():
            content.remark("the last line has no line end, may be truncated, and was left out")


def split_label(label: str) -> tuple[str, str]:
    """Split a label into name and unit, which is in parentheses.

    Examples
    --------
    >>> split_label("LJ (SR) (kJ/mol)"), split_label("Temp")
    (('LJ (SR)', 'kJ/mol'), ('Temp', ''))
    """
    found = re.fullmatch(r"\s*(\S.*?)\s*\(([^()]*)\)\s*", label)
    return (found[1], found[2]) if found else (label.strip(), "")


#: Maximum length of a line of an .xvg table, bytes; a row may contain a million numbers.
LONGEST_ROW = 2**26
#: Greek letters for the letters of Grace's symbol font.
SYMBOLS = dict(zip("abgdemlnpqrstwfycxzhkDGLSWFPYQ", "αβγδεμλνπθρστωφψχξζηκΔΓΛΣΩΦΠΨΘ", strict=True))
#: Unicode superscripts for characters that Grace raises.
RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")

_LABEL = re.compile(r'@\s*(?:([xy])axis\s+label|s(\d+)\s+legend)\s+"(.*)"')


@dataclass(frozen=True)
class XvgTable:
    """Columns of a table, with x values first, and texts without Grace's commands.

    `labels` are the labels of the axes "x" and "y". `legends` are those of the other columns, by
    number from 0.
    """

    columns: list[np.ndarray]
    comments: list[str]
    labels: Mapping[str, str]
    legends: Mapping[int, str]

    def names_and_units(self) -> list[tuple[str, str]]:
        """Distinct names and units of the columns after the first; units are empty if unknown.

        The label of the y axis contains one unit for all columns, or one for each column. If the
        label contains no unit, legends may end with a unit.
        """
        n, label = len(self.columns) - 1, self.labels.get("y", "")
        if n == 1 and label and not self.legends.get(0):
            return [name_and_unit(label)]
        known = re.findall(r"(?:^|[\s,])\(([^()]*)\)", label)  # does not match "g(r)"
        units = known * n if len(known) == 1 else known if len(known) == n else [""] * n
        legends = [self.legends.get(k) or f"column {k + 2}" for k in range(n)]
        if known:
            named = [
                (text.removesuffix(f" ({unit})"), unit)
                for text, unit in zip(legends, units, strict=True)
            ]
        else:
            named = [name_and_unit(text) for text in legends]
        names = distinct_names(name for name, _ in named)
        return [(name, unit) for name, (_, unit) in zip(names, named, strict=True)]


def read_xvg(content: Content, file: IO[bytes]) -> XvgTable:
    """Read a table; rows that cannot be read are counted in `content`.

    Data sets, which end with "&", must have the same first column.
    """
    comments: list[str] = []
    labels: dict[str, str] = {}
    legends: dict[int, str] = {}
    sets, widths = [array("d")], [0]
    for number, line in lines_of(content, file, LONGEST_ROW):
        text = line.strip()
        if text.startswith("#"):
            comments.append(text[1:].strip())
        elif text.startswith("@"):
            found = _LABEL.match(text)
            if found and found[1]:
                labels[found[1]] = plain(found[3])
            elif found:
                legends[int(found[2])] = plain(found[3])
        elif text.startswith("&"):
            sets.append(array("d"))
            widths.append(0)
        elif text:
            values = numbers_of(text.partition("#")[0].split()) or []
            widths[-1] = widths[-1] or len(values)
            if values and len(values) == widths[-1]:
                sets[-1].extend(values)
            else:
                content.skip(number)
    tables = [
        np.array(one).reshape(-1, width) for one, width in zip(sets, widths, strict=True) if one
    ]
    if any(not np.array_equal(one[:, 0], tables[0][:, 0], equal_nan=True) for one in tables):
        raise UnsupportedError(f"{content.path}: its data sets do not share the first column")
    columns = [one[:, 0] for one in tables[:1]]
    columns += [column for one in tables for column in one[:, 1:].T]
    return XvgTable(columns, comments, labels, legends)


def plain(text: str) -> str:
    r"""Remove Grace's commands from a text.

    Examples
    --------
    >>> plain(r"MSD (nm\S2\N)"), plain(r"\xD\f{}G (kJ mol\S-1\N)")
    ('MSD (nm²)', 'ΔG (kJ mol⁻¹)')
    """
    text = re.sub(
        r"\\(?:x|f\{Symbol\})(.*?)\\(?:f\{\d*\}|4|0)",
        lambda found: "".join(SYMBOLS.get(letter, letter) for letter in found[1]),
        text,
    )
    text = re.sub(r"\\S(.*?)\\N", lambda found: found[1].translate(RAISED), text)
    text = re.sub(r"\\s(.*?)\\N", r"\1", text)
    return re.sub(r"\\(?:[a-zA-Z]\{[^}]*\}|[A-Za-z0-9+\-])", "", text)
