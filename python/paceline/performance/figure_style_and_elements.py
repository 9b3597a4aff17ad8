"""Style of figures, and elements that figures of timings share: boxes, units, worker names."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from paceline.errors import UnsupportedError
from paceline.performance.number_format import short_names
from paceline.performance.record import Component, host_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

#: Colour of text and axes; pages use another colour on dark screens.
INK = "#1f2a33"
#: Colour of grid lines; pages use another colour on dark screens.
GRID = "#dfe4e8"
#: Style of a figure for one journal column; sizes in inches and points.
FIGURE_STYLE: "dict[RcKeyType, Any]" = {
    "figure.figsize": (3.5, 2.6),
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "lines.linewidth": 1,
    "savefig.dpi": 300,
    # Text is stored as text, so that a journal can use its own fonts.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    # A fixed salt, because names of SVG elements are otherwise random, and equal figures must have
    # equal bytes.
    "svg.hashsalt": "paceline",
}
#: Style of figures of timings, and of figures in HTML pages.
STYLE: "dict[RcKeyType, Any]" = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1,
    "legend.handleheight": 1,
    "legend.columnspacing": 1.4,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 200,
    # Text is stored as text.
    "svg.fonttype": "none",
    "svg.hashsalt": "paceline",
}
#: Options of matplotlib that omit the date from the metadata of a figure file, by format.
_WITHOUT_DATE: Mapping[str, dict[str, None]] = {
    "svg": {"Date": None},
    "svgz": {"Date": None},
    "pdf": {"CreationDate": None},
}
#: Maximum number of hosts whose names fit along an axis.
NAMED_HOSTS = 8
#: Maximum number of workers for which each worker is numbered along an axis.
NUMBERED_WORKERS = 40


def has_matplotlib() -> bool:
    """Check whether figures can be drawn; workers and tables do not need matplotlib."""
    return find_spec("matplotlib") is not None


def need_matplotlib() -> None:
    """Raise `UnsupportedError` if figures cannot be drawn."""
    if not has_matplotlib():
        raise UnsupportedError(
            "figures and reports need the package matplotlib; install it with: "
            "pip install 'paceline[plot]'"
        )


@contextmanager
def styled(style: Mapping[Any, Any], chosen: str | os.PathLike | None = None) -> Iterator[None]:
    """Draw in `style`; matplotlibrc or a script's settings override it, and `chosen` overrides all.

    `chosen` is the name of a matplotlib style, or a file. Raises `UnsupportedError` if the style
    does not exist.
    """
    import matplotlib as mpl
    from matplotlib import style as styles

    in_file = mpl.rc_params_from_file(mpl.matplotlib_fname(), use_default_template=False)
    ours = {
        key: value
        for key, value in style.items()
        if key not in in_file and mpl.rcParams[key] == mpl.rcParamsDefault[key]
    }
    with mpl.rc_context(ours):
        if chosen is not None:
            try:
                styles.use(os.fspath(chosen))
            except OSError as error:
                names = ", ".join(
                    one for one in styles.available if one[0] != "_" and "v0_8-" not in one
                )
                raise UnsupportedError(
                    f"style {os.fspath(chosen)!r}: no such file, and no style of matplotlib, which "
                    f"has {names}"
                ) from error
        yield


def write_figure(figure: "Figure", file: IO[bytes], format: str) -> None:
    """Write a figure without its date, so that equal figures have equal bytes."""
    figure.savefig(file, format=format, metadata=_WITHOUT_DATE.get(format))


def check_style(chosen: str | os.PathLike | None) -> None:
    """Raise `UnsupportedError` if figures cannot be drawn in the style `chosen`."""
    need_matplotlib()
    with styled({}, chosen):
        pass


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of an axis, with the factor that converts s or bytes/s to it."""

    name: str
    factor: float


def time_unit(seconds: float) -> Unit:
    """Choose a readable unit, from ms to h, for a number of seconds."""
    for least, name, length in ((7200, "h", 3600), (600, "min", 60), (0.5, "s", 1)):
        if seconds >= least:
            return Unit(name, 1 / length)
    return Unit("ms", 1e3)


def rate_unit(bytes_per_second: float) -> Unit:
    """Choose a readable unit, from kB/s to GB/s, for a rate."""
    for least, name in ((1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_second >= least:
            return Unit(name, 1 / least)
    return Unit("kB/s", 1e-3)


def draw_boxes(
    axes: "Axes", left: np.ndarray, right: np.ndarray, bottom: Any, top: Any, part: Component
) -> None:
    """Draw all boxes of one component as a single path, which makes files ten times smaller."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    left, right, bottom, top = np.broadcast_arrays(left, right, bottom, top)
    seen = (right > left) & (top > bottom)
    left, right, bottom, top = (side[seen] for side in (left, right, bottom, top))
    x = np.stack((left, right, right, left, left), axis=-1)
    y = np.stack((bottom, bottom, top, top, bottom), axis=-1)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(left)
    if codes:
        corners = Path(np.stack((x, y), axis=-1).reshape(-1, 2), codes)
        # Unlike `add_patch`, this does not fit the axes to each corner, which would take a quarter
        # of the time to draw a page.
        axes.add_artist(PathPatch(corners, facecolor=part.colour, linewidth=0))


def add_legend(axes: "Axes", parts: Sequence[Component], *more: object) -> None:
    """Add a legend of components above the axes, outside the data."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=part.colour, label=part.label) for part in parts]
    axes.legend(
        handles=[*handles, *more],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=5 if len(handles) + len(more) > 9 else 9,
        borderaxespad=0.2,
        borderpad=0,
    )


def name_workers(axis: "Axis", workers: Sequence[str]) -> None:
    """Number workers 1, 2, … along an axis, and label their hosts."""
    from matplotlib.axis import YAxis
    from matplotlib.ticker import MaxNLocator

    n_workers = len(workers)
    ticks = np.arange(1, n_workers + 1)
    if n_workers > NUMBERED_WORKERS:
        round_ones = MaxNLocator(10, integer=True, steps=[1, 2, 5, 10])
        ticks = np.intersect1d(ticks, round_ones.tick_values(1, n_workers))
    axis.set_ticks(ticks)
    hosts = [(host, len(list(same))) for host, same in groupby(workers, host_of)]
    if not 1 < len(hosts) <= NAMED_HOSTS:
        return
    ends = np.cumsum([n for _, n in hosts])
    middles = [end - (n - 1) / 2 for end, (_, n) in zip(ends, hosts, strict=True)]
    names = short_names([host for host, _ in hosts])
    axis.remove_overlapping_locs = False
    axis.set_ticks(middles, [names[host] for host, _ in hosts], minor=True)
    upright = isinstance(axis, YAxis)
    axis.set_tick_params(
        which="minor", length=0, pad=24 if upright else 18, labelrotation=90 if upright else 0
    )
    if upright:
        for label in axis.get_minorticklabels():
            label.set_verticalalignment("center")
    line = axis.axes.axhline if upright else axis.axes.axvline
    for end in ends[:-1]:
        line(end + 0.5, color=GRID, linewidth=0.8, zorder=0)
