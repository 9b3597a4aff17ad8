"""Texts in figures: legends, labels and titles are wrapped and shrunk so that axes fit."""

import functools
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.text import Text

#: Font sizes in the order of trial.
SIZES = ("medium", "small", "x-small", "xx-small")
#: Maximum height of a legend, as a fraction of the height of the figure.
LEGEND = 0.42
#: Maximum number of lines of an axis label.
LABEL_LINES = 2
#: Maximum number of lines of a title.
TITLE_LINES = 3
#: Height of a line of a legend, in units of the font size.
LINE = 1.2
#: Distance between entries of a legend, in units of the font size.
BETWEEN = 0.5
#: Width of a handle of a legend with its spacing, in units of the font size.
HANDLE = 4.8
#: Options of legends for the spacing within an entry, and their default values.
SPACES = {"columnspacing": 2.0, "handlelength": 2.0, "handletextpad": 0.8}
#: Maximum length of texts along an axis, as a fraction of the length of the axis; less than 1,
#: because the widths of texts are estimates.
ALONG = 0.95
#: Width of ticks, spacing and borders next to the labels of a y axis, points.
AROUND = 22.0
#: Identifier (gid) of notes among the texts of axes.
NOTE = "note"
#: Minus sign of negative numbers.
MINUS = "\N{MINUS SIGN}"


def text_width(text: str, size: str | float | None = None) -> float:
    """Width of a text in the current matplotlib style, points: the sum of its letters' widths."""
    from matplotlib import rcParams

    family = (*rcParams["font.family"], *rcParams["font.sans-serif"][:1])
    return points_of(size) * sum(_width_of_letter(letter, family) for letter in text)


@functools.cache
def _width_of_letter(letter: str, family: tuple[str, ...]) -> float:
    """Width of a letter within a text, in units of the font size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=100)
    measure = text_to_path.get_text_width_height_descent
    ends, with_letter = (measure(text, font, False)[0] for text in ("aa", f"a{letter}a"))
    return max(0.0, float(with_letter - ends) / 100)


def points_of(size: str | float | None) -> float:
    """Convert a font size to points."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=size).get_size_in_points())


def wrap_text(text: str, room: float, size: str | float | None = None) -> list[str]:
    """Break a text into lines of a given width (points), after commas or else between words.

    A word that is too long is broken anywhere, but formulas between $ stay whole.
    """
    if text.count("$") > 1 or text_width(text, size) <= room:
        return [text]
    lines: list[str] = []
    for part in text.split(", "):
        joined = f"{lines[-1]}, {part}" if lines else part
        if lines and text_width(joined, size) <= room:
            lines[-1] = joined
            continue
        if lines:
            lines[-1] += ","
        lines += _by_words(part, room, size)
    return lines


def _by_words(text: str, room: float, size: str | float | None) -> list[str]:
    """Break a text between words; a word that is too long is broken anywhere."""
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= room:
            lines[-1] = joined
            continue
        while len(word) > 1 and text_width(word, size) > room:
            n = max(1, math.floor(len(word) * room / text_width(word, size)))
            lines.append(word[:n])
            word = word[n:]
        lines.append(word)
    return lines or [""]


def shortened_to(text: str, room: float, size: str | float | None = None) -> str:
    """Replace the middle of a text by an ellipsis if the text is too wide (points)."""
    width = text_width(text, size)
    if width <= room or text.count("$") > 1:
        return text
    # Remove other ellipses, such as in the name of a hydrogen bond, "NH2…OD1".
    text = text.replace("…", " ")
    kept = max(2, math.floor(len(text) * room / width) - 1)
    return f"{text[: (kept + 1) // 2].rstrip()}…{text[len(text) - kept // 2 :].lstrip()}"


def with_minus(text: str) -> str:
    """Replace the hyphen before negative numbers by a minus sign."""
    return re.sub(r"(?<![\w.)])-(?=\d)", MINUS, text)


def shown_label(label: str) -> str:
    """Format the label of an axis for print, such as -S_CD with a minus sign and a subscript."""
    return re.sub(r"^(-?)([A-Z])_([A-Z]+)$", _symbol, label)


def _symbol(found: "re.Match[str]") -> str:
    """Format a symbol with its sign and subscript."""
    return f"{MINUS if found[1] else ''}{found[2]}$_{{{found[3]}}}$"


def figure_of(ax: "Axes") -> "Figure":
    """Return the figure that contains the axes, directly or in a subfigure."""
    return cast("Figure", ax.get_figure(root=True))


def panel_size(ax: "Axes") -> tuple[float, float]:
    """Width of the axes, and height of their part of the figure, points, before layout."""
    box, figure = ax.get_position(original=True), figure_of(ax)
    width, height = figure.get_size_inches() * 72
    more = max(0.0, _width_of_ticks(ax, box.height * height) - (1 - box.width) * width)
    return ALONG * (box.width * width - more), min(1.0, box.height * 1.3) * height


def _width_of_ticks(ax: "Axes", height: float) -> float:
    """Estimate the width of ticks, tick labels and the label of the y axis, points."""
    axis = ax.yaxis
    of_ticks = points_of(axis.get_major_ticks(1)[0].label1.get_fontsize())
    texts = axis.get_major_formatter().format_ticks([*axis.get_major_locator()()])
    ticks = max((text_width(one, of_ticks) for one in texts if "$" not in one), default=0.0)
    label, size = axis.label.get_text(), points_of(axis.label.get_fontsize())
    n_lines = label.count("\n") + 1 if label else 0
    if n_lines == 1 and text_width(label, size) > ALONG * height:
        n_lines = LABEL_LINES
    return ticks + n_lines * LINE * size + AROUND


def fit_legends(all_axes: "Sequence[Axes]") -> None:
    """Wrap the legends of all panels to the width of the narrowest panel."""
    width = min(panel_size(ax)[0] for ax in all_axes)
    for legend in filter(None, (ax.get_legend() for ax in all_axes)):
        texts = legend.get_texts()
        names = [text.get_text().replace("\n", " ") for text in texts]
        own, n = points_of(texts[0].get_fontsize()), vars(legend)["_ncols"]
        for size in (own, *(one for one in map(points_of, SIZES) if one < own)):
            room = width / n - (HANDLE - SPACES["columnspacing"] * (n == 1)) * own
            lines = [wrap_text(name, room, size) for name in names]
            if max(map(len, lines)) <= LABEL_LINES:
                break
        for text, one in zip(texts, lines, strict=True):
            text.set(text="\n".join(one), fontsize=size)


def spread_ticks(ax: "Axes") -> None:
    """Reduce the number of ticks on the x axis if their labels do not fit side by side."""
    from matplotlib import rcParams
    from matplotlib.ticker import MaxNLocator

    locator, size = ax.xaxis.get_major_locator(), rcParams["xtick.labelsize"]
    if not isinstance(locator, MaxNLocator):
        return
    room = panel_size(ax)[0]
    for n_most in range(6, 0, -1):
        low, high = sorted(ax.get_xlim())
        ticks = [tick for tick in locator() if low <= tick <= high]
        texts = ax.xaxis.get_major_formatter().format_ticks(ticks)
        widths = [text_width(text, size) for text in texts]
        if sum(widths) + len(texts) * points_of(size) <= room:
            return
        locator.set_params(nbins=n_most)


def write_in_full(ax: "Axes") -> None:
    """Write tick labels in full, without an offset, which would overlap with a legend."""
    from matplotlib.ticker import ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_useOffset(False)
    # The power of ten of the y axis must be to its left, not under a legend or a note.
    ax.yaxis.get_offset_text().set_horizontalalignment("right")


def legend_above(
    ax: "Axes",
    handles: "Sequence[Artist | ErrorbarContainer] | None" = None,
    texts: Sequence[str] | None = None,
    *,
    columns: int = 1,
    title: str | None = None,
    **options: Any,
) -> None:
    """Put the legend above the axes, where it cannot cover lines.

    Long names are wrapped, then shrunk, then truncated, so that the axes keep more than half of the
    height.
    """
    if handles is None or texts is None:
        handles, texts = ax.get_legend_handles_labels()
    handle = HANDLE + sum(options[key] - usual for key, usual in SPACES.items() if key in options)
    room = *panel_size(ax), handle
    lines, size, columns = _fit(list(texts), room, columns, extra=title is not None)
    legend = ax.legend(
        handles[: len(lines)],
        lines,
        frameon=False,
        fontsize=size,
        ncols=columns,
        title=title,
        alignment="left",
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        **options,
    )
    if title is not None:
        legend.get_title().set_fontsize(size)
    if len(lines) < len(texts):
        legend.set_title(f"the first {len(lines)} of {len(texts)} names")


def _fit(
    texts: Sequence[str], room_for: tuple[float, float, float], columns: int, *, extra: bool
) -> tuple[list[str], str, int]:
    """Wrap names for a legend; return the names, the font size and the number of columns.

    `room_for` contains the available width and height in points, and the width of a handle in units
    of the font size.
    """
    width, height, handle = room_for
    most = LEGEND * height
    words = {word for text in texts for word in text.split()}
    choices = sorted({columns, 1, min(2, len(texts))})
    for size in SIZES:
        points = points_of(size)
        found = []
        for n in choices:
            room = width / n - (handle - SPACES["columnspacing"] * (n == 1)) * points
            lines = [wrap_text(text, room, size) for text in texts]
            per_column = -(-len(texts) // n)
            tallest = max(
                sum(len(one) * LINE + BETWEEN for one in lines[k : k + per_column])
                for k in range(0, len(texts), per_column)
            )
            is_broken = any(text_width(word, size) > room for word in words)
            is_bad = is_broken or (tallest + LINE * extra) * points > most
            is_wrapped = any(len(one) > 1 for one in lines)
            found.append((is_bad, is_wrapped, tallest, n != columns, n, lines))
        is_bad, *_, n, lines = min(found)
        if not is_bad:
            return ["\n".join(one) for one in lines], size, n
    # If the smallest font does not fit, use one line per name, and omit names that do not fit.
    per_column = max(1, math.floor(most / (points * (LINE + BETWEEN))) - 1)
    columns = 1 if len(texts) <= per_column else 2
    cut = functools.partial(shortened_to, room=width / columns - handle * points, size=size)
    return [cut(text) for text in texts[: per_column * columns]], size, columns


def fit_labels(ax: "Axes") -> None:
    """Wrap labels that are longer than their axes, including the axes of colour bars."""
    figure = figure_of(ax)
    for one in figure.axes:
        box = one.get_position(original=True)
        width, height = figure.get_size_inches() * 72
        for axis, length in ((one.xaxis, box.width * width), (one.yaxis, box.height * height)):
            _fit_text(axis.label, length * ALONG, LABEL_LINES)


def _fit_text(label: "Text", room: float, most_lines: int) -> None:
    """Wrap a text and shrink it to at most `most_lines` lines, or one more; shorten the rest."""
    text = label.get_text()
    if not text or "\n" in text or text_width(text, label.get_fontsize()) <= room:
        return
    sizes = (label.get_fontsize(), *SIZES[1:])
    for size, most in (*((one, most_lines) for one in sizes), (SIZES[-1], most_lines + 1)):
        lines = wrap_text(text, room, size)
        is_broken = any(text_width(word, size) > room for word in text.split())
        if len(lines) <= most and not is_broken:
            break
    else:
        lines = wrap_text(text, room, size)
        rest = " ".join(lines[most - 1 :])
        lines = [*lines[: most - 1], *([shortened_to(rest, room, size)] if rest else [])]
    label.set_text("\n".join(lines))
    label.set_fontsize(size)


def put_title(ax: "Axes", text: str) -> None:
    """Add a title above the axes and their legend."""
    figure, legend = figure_of(ax), ax.get_legend()
    pad = 6.0
    if legend is not None:
        pad += legend.get_window_extent().height * 72 / figure.dpi
    for note in (one for one in ax.texts if one.get_gid() == NOTE):
        pad += 4 + (note.get_text().count("\n") + 1) * LINE * points_of(note.get_fontsize())
    title = ax.set_title(text, pad=pad, loc="left")
    _fit_text(title, panel_size(ax)[0], TITLE_LINES)


def put_note(ax: "Axes", text: str) -> None:
    """Add a note above the axes, below a title."""
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    place |= {"xytext": (0, 4), "va": "bottom", "fontsize": "small", "gid": NOTE}
    note = ax.annotate(text, (0, 1), **place)
    room, size = panel_size(ax)[0], note.get_fontsize()
    lines = [part for line in text.split("\n") for part in wrap_text(line, room, size)]
    note.set_text("\n".join(lines))
