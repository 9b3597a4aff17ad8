"""Read .xvg tables for Grace, as GROMACS and paceline write them."""

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import numpy as np

from paceline.analysis.energy_rows import Content, distinct_names, lines_of, numbers_of
from paceline.analysis.table import name_and_unit
from paceline.errors import UnsupportedError

#: Maximum length of a line, bytes; a row may contain a million numbers.
LONGEST = 2**26
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

    Data sets, which end with "&", share the first column.
    """
    comments: list[str] = []
    labels: dict[str, str] = {}
    legends: dict[int, str] = {}
    sets, widths = [array("d")], [0]
    for number, line in lines_of(content, file, LONGEST):
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
