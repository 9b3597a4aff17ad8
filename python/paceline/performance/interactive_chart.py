"""Curves over a common abscissa, which a page of results draws with uPlot."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Maximum number of points in a curve.
MOST_POINTS = 2000
#: Maximum number of curves in a chart.
MOST_CURVES = 12


@dataclass(frozen=True)
class Curve:
    """Values over an increasing abscissa, both of shape (n,).

    `colour` is the index of a matplotlib colour, `band` contains lower and upper limits of
    intervals, and `smooth` is the running mean of the values. NaN interrupts a line.
    """

    name: str
    x: np.ndarray
    values: np.ndarray
    colour: int = 0
    band: tuple[np.ndarray, np.ndarray] | None = None
    smooth: np.ndarray | None = None

    @property
    def columns(self) -> list[np.ndarray]:
        """All arrays of the curve except the abscissa."""
        return [self.values, *(self.band or ()), *([] if self.smooth is None else [self.smooth])]


@dataclass(frozen=True)
class Chart:
    """Up to `MOST_CURVES` curves with axis labels; `points` are drawn without lines.

    Intervals are cut off at `limits`, the least and the largest possible value.
    """

    x_label: str
    y_label: str
    curves: Sequence[Curve]
    points: bool = False
    limits: tuple[float, float] = (-np.inf, np.inf)

    @property
    def note(self) -> str:
        """Sentence about omitted points; empty if none are omitted."""
        longest = max((len(one.x) for one in self.curves), default=0)
        if longest <= MOST_POINTS:
            return ""
        return (
            f"The plot shows at most {MOST_POINTS:,} of {longest:,} points: the smallest and the "
            "largest value of each stretch. The table has all of them."
        )

    @property
    def json(self) -> str:
        """Chart data as JSON that is safe inside an element `script`."""
        first = self.curves[0].x
        shared = all(np.array_equal(one.x, first, equal_nan=True) for one in self.curves)
        groups = [list(self.curves)] if shared else [[one] for one in self.curves]
        chosen = [extreme_rows([c.values for c in group]) for group in groups]
        x = np.unique(
            np.concatenate([group[0].x[rows] for group, rows in zip(groups, chosen, strict=True)])
        )
        data: list[object] = [x.tolist()]
        curves: list[object] = []
        for group, rows in zip(groups, chosen, strict=True):
            where = np.searchsorted(x, group[0].x[rows])
            for curve in group:
                for column in curve.columns:
                    # null continues a line where this curve has no row; NaN interrupts the line.
                    cells: list[object] = ["" if not shared else None] * len(x)
                    for place, value in zip(where.tolist(), column[rows].tolist(), strict=True):
                        cells[place] = value if np.isfinite(value) else None
                    data.append(cells)
                kinds = {"band": curve.band is not None, "smooth": curve.smooth is not None}
                curves.append({"name": curve.name, "colour": curve.colour, **kinds})
        found: dict[str, object] = {"x": self.x_label, "y": self.y_label, "points": self.points}
        if np.isfinite(self.limits).any():
            # JSON has no infinity.
            found["limits"] = [one if np.isfinite(one) else None for one in self.limits]
        return script_json({**found, "curves": curves, "data": data})


def script_json(value: object) -> str:
    r"""Return JSON without characters that could end an element `script`.

    Examples
    --------
    >>> print(script_json({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def extreme_rows(columns: Sequence[np.ndarray], most: int = MOST_POINTS) -> np.ndarray:
    """Choose at most `most` rows: in each stretch, the rows with any column's minimum or maximum.

    Stretches have equal numbers of rows. The first and the last row are also chosen.

    Examples
    --------
    >>> extreme_rows([np.array([0.0, 5.0, 1.0, 2.0, -3.0, 2.0, 2.0, 2.0])], 6)
    array([0, 1, 4, 5, 7])
    """
    n_rows = len(columns[0])
    if n_rows <= most:
        return np.arange(n_rows)
    n_stretches = max(1, (most - 2) // (2 * len(columns)))
    edges = np.linspace(0, n_rows, n_stretches + 1).astype(int)[:-1]
    chosen = [np.array([0, n_rows - 1])]
    number = np.repeat(np.arange(n_stretches), np.diff([*edges, n_rows]))
    for column in columns:
        for sign in (1, -1):
            values = np.where(np.isnan(column), np.inf, sign * column)
            least = np.minimum.reduceat(values, edges)
            places = np.flatnonzero(values == least[number])
            # Choose the first of equal values in each stretch.
            chosen.append(places[np.unique(number[places], return_index=True)[1]])
    return np.unique(np.concatenate(chosen))
