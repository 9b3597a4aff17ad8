"""Figure options, declared once for commands and for `Results.plot`."""

import math
import os
import re
from collections.abc import Sequence
from typing import Any, Self

from paceline.contract.time_units import TIME_UNITS

#: Length units per inch.
LENGTHS = {"in": 1.0, "cm": 2.54, "mm": 25.4}
#: Minimum width and height of a figure, so that axes fit into it, inches.
SMALLEST = 0.5
#: Maximum width and height of a figure, inches.
LARGEST = 100.0
_SIZE = re.compile(r"([\d.]+)\s*[x×]\s*([\d.]+)\s*(in|cm|mm|px)", re.IGNORECASE)


def parse_figure_size(text: str) -> tuple[float, float, str]:
    """Parse a text such as "8x6cm"; return width, height and unit.

    Examples
    --------
    >>> parse_figure_size("8x6cm"), parse_figure_size("1200 x 800 px")
    ((8.0, 6.0, 'cm'), (1200.0, 800.0, 'px'))
    """
    found = _SIZE.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        return float(found[1]), float(found[2]), found[3].lower()
    except ValueError:
        raise ValueError(
            "figsize must be a width and a height with a unit, cm, mm, in or px, such as 8x6cm, "
            f"not {text!r}"
        ) from None


#: Arguments of command options, by keyword of `FigureOptions`. `type` names a function; `flag` is
#: set where the option's name differs from the keyword.
OPTIONS: dict[str, dict[str, Any]] = {
    "label": {
        "help": "name of a series in the legend; repeat for the next series",
        "metavar": "TEXT",
        "action": "append",
    },
    "title": {"help": "title above the figure", "metavar": "TEXT"},
    "figsize": {
        "help": "width and height in cm, mm, in or px [3.5x2.6in]",
        "metavar": "8x6cm",
        "type": "figure_size",
    },
    "time_unit": {
        "help": "unit of times along the axis [chosen by length]",
        "choices": tuple(unit for unit in TIME_UNITS if unit != "µs"),
    },
    "xlim": {
        "help": "limits of the abscissa, in its unit",
        "metavar": ("LOW", "HIGH"),
        "type": "float",
        "nargs": 2,
    },
    "ylim": {
        "help": "limits of the ordinate",
        "metavar": ("LOW", "HIGH"),
        "type": "float",
        "nargs": 2,
    },
    "stats": {"help": "no means in the legend", "flag": "--no-stats", "action": "store_false"},
    "style": {
        "help": "style of matplotlib, a file or a name, beside matplotlibrc",
        "metavar": "FILE",
    },
}


def flag_of(name: str) -> str:
    """Return the command option for a keyword of `FigureOptions`."""
    flag: str = OPTIONS[name].get("flag", f"--{name.replace('_', '-')}")
    return flag


#: Options of figures that combine several analyses.
OF_ALL = ("figsize", "time_unit", "stats", "style")
#: Options of figures that show measured run times (`paceline bench`).
OF_MEASUREMENTS = ("title", "figsize", "style")


class FigureOptions:
    """Options of a figure.

    Parameters
    ----------
    label : str or sequence of str
        Names of the series in the legend, in order; if a figure shows several tables, names of
        the tables.
    title : str
        Title above the figure.
    figsize : str or (float, float), optional
        Width and height, such as "8x6cm", in cm, mm, in or px; or two numbers, inches. By default
        matplotlib's `figure.figsize`, or 3.5 × 2.6 in.
    time_unit : {"fs", "ps", "ns", "us", "ms", "s"}, optional
        Unit of times along the abscissa; by default one in which they are easy to read.
    xlim, ylim : (float, float), optional
        Limits of the axes, in their units.
    stats : bool
        Write means of series into the legend.
    style : str or path-like, optional
        Matplotlib style, applied after `matplotlibrc`: the name of a style, or a file.

    Raises
    ------
    ValueError
        A size, a unit or limits are invalid.
    """

    def __init__(
        self,
        *,
        label: str | Sequence[str] | None = None,
        title: str | None = None,
        figsize: object = None,
        time_unit: str | None = None,
        xlim: Sequence[float] | None = None,
        ylim: Sequence[float] | None = None,
        stats: bool = True,
        style: str | os.PathLike | None = None,
    ):
        self.label = (label,) if isinstance(label, str) else tuple(label or ())
        self.title, self.stats, self.style = title or "", stats, style
        self.figsize = None if figsize is None else checked_size(figsize)
        if time_unit is not None and time_unit not in TIME_UNITS:
            known = ", ".join(TIME_UNITS)
            raise ValueError(f"time_unit must be one of {known}, not {time_unit!r}")
        self.time_unit = time_unit
        self.xlim = None if xlim is None else _checked_limits("xlim", xlim)
        self.ylim = None if ylim is None else _checked_limits("ylim", ylim)

    @classmethod
    def of(cls, values: object) -> Self:
        """Create the options from an object's attributes, such as parsed arguments."""
        given = vars(values)
        return cls(**{name: given[name] for name in OPTIONS if name in given})

    def for_abscissa(self, unit: str) -> Self:
        """Return a copy for an abscissa in `unit`; if this is not ps, without a unit of times."""
        given = vars(self) | ({} if unit == "ps" else {"time_unit": None})
        return type(self)(**given)

    @property
    def given(self) -> list[str]:
        """Names of the options that differ from their defaults."""
        usual = vars(FigureOptions())
        return [name for name, value in vars(self).items() if value != usual[name]]

    def inches(self, dots_per_inch: float) -> tuple[float, float] | None:
        """Width and height, inches; None if no size is set."""
        if self.figsize is None:
            return None
        width, height, unit = self.figsize
        scale = LENGTHS.get(unit, dots_per_inch)
        return width / scale, height / scale


def checked_size(size: Any) -> tuple[float, float, str]:
    """Return width, height and unit of a size given as a text, or as two or three values."""
    found = parse_figure_size(size) if isinstance(size, str) else size
    try:
        width, height, unit = (*found, "in")[:3]
        lengths = float(width), float(height)
    except (TypeError, ValueError):
        raise ValueError(f"figsize must be two numbers, inches, or a text, not {size!r}") from None
    pixels = unit == "px"
    least, most = (20, 20_000) if pixels else (SMALLEST, LARGEST)
    scale = LENGTHS.get(unit, 1.0)
    if not all(least <= length / scale <= most for length in lengths):
        raise ValueError(
            f"figsize must be from {least * scale:g} to {most * scale:g} {unit}, not "
            f"{lengths[0]:g} x {lengths[1]:g} {unit}"
        )
    return *lengths, unit


def _checked_limits(name: str, limits: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis if they are finite and differ; raise `ValueError` otherwise."""
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low != high):
        raise ValueError(f"{name} must be two different finite numbers, not {limits!r}")
    return low, high
