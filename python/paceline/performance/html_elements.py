"""HTML elements, tables, figures, self-contained pages, parts of a notebook, and charts.

Charts are curves over a common abscissa, which a page draws with uPlot.
"""

import io
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from paceline.performance.figure_style_and_elements import STYLE, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of columns in normal font size; tables with more use a smaller size.
MANY = 10
#: Number of points in an inch, to convert the size of figures.
POINTS = 72

#: Elements that are not followed by a line break.
_INLINE = ("a", "dd", "dt", "script", "strong", "td", "th")
_WITHOUT_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class Html(str):
    """HTML text, which is put into an element unchanged; text of other classes is escaped."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str) -> Html:
    r"""Create an element from texts, which are escaped, and other elements.

    An attribute whose name is a Python keyword is passed with an underscore at the end.

    Examples
    --------
    >>> element("p", "a < b", class_="caption")
    '<p class="caption">a &lt; b</p>\n'
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    inside = (one if isinstance(one, Html) else escape(one) for one in content)
    end = "" if name in _INLINE else "\n"
    return Html(f"<{name}{named}>{''.join(inside)}</{name}>{end}")


def caption(text: str) -> Html:
    """Create a paragraph of text in a smaller font, as below a figure."""
    return element("p", text, class_="caption")


def section(title: str, *parts: Html, **attributes: str) -> Html:
    """Create a section of a page, with the heading `title`."""
    return element("section", element("h2", title), *parts, **attributes)


def html_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    about: str = "",
    text: Sequence[int] = (),
    slow: Sequence[bool] = (),
) -> Html:
    """Create a table; the first cell of each row is a header.

    The first column, and columns whose indices are in `text`, contain words; all others contain
    numbers. Row k is coloured if `slow[k]` is true. `about` is the caption above the table.
    """
    kinds = [{"class_": "text"} if k in text else {} for k in range(len(columns))]
    heads = (
        element("th", one, scope="col", **kind) for one, kind in zip(columns, kinds, strict=True)
    )
    lines = []
    for k, (first, *others) in enumerate(rows):
        cells = (element("td", one, **kind) for one, kind in zip(others, kinds[1:], strict=True))
        coloured = {"class_": "slow"} if k < len(slow) and slow[k] else {}
        lines.append(element("tr", element("th", first, scope="row"), *cells, **coloured))
    dense = {"class_": "dense"} if len(columns) > MANY else {}
    made = element(
        "table", element("thead", element("tr", *heads)), element("tbody", *lines), **dense
    )
    # The caption is outside the frame, so that it does not scroll with the table.
    frame = element("div", made, class_="wide-content")
    return Html(caption(about) + frame) if about else frame


def inline_svg(figure: "Figure", alternative: str) -> Html:
    """Convert a figure to an SVG element, as wide as the page allows, in the page's colours.

    `alternative` is the alternative text, which must be unique in the page.
    """
    from matplotlib import rc_context

    file = io.StringIO()
    # The salt determines the names of clipping paths. So these names differ between the figures of
    # a page, and are equal in every run.
    with styled(STYLE), rc_context({"svg.hashsalt": alternative}):
        figure.savefig(file, format="svg", transparent=True, metadata=_WITHOUT_METADATA)
    drawing = file.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
    # Group names are removed: they are unused, and equal in several figures.
    drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)
    width, height = figure.get_size_inches() * POINTS
    svg = element(
        "svg",
        Html(drawing),
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=alternative,
    )
    return element("div", svg, class_="wide-content")


def html_page(
    made: str,
    title: str,
    facts: Iterable[tuple[str, str]],
    sections: Iterable[Html],
    footer: str,
    *,
    wide: Sequence[str] = (),
) -> str:
    """Create a page with sections; `made` names its kind, such as "report of a run".

    Each fact (name, value) whose name is in `wide` fills a line.
    """
    header = element(
        "header",
        element("p", f"paceline: {made}", class_="made"),
        element("h1", title),
        facts_list(facts, wide),
    )
    return document(title, element("main", header, *sections, footer_of(footer)))


def facts_list(facts: Iterable[tuple[str, str]], wide: Sequence[str] = ()) -> Html:
    """Create a box for each fact (name, value); each fact whose name is in `wide` fills a line."""
    boxes = (
        element(
            "div",
            element("dt", name),
            element("dd", value),
            **({"class_": "wide"} if name in wide else {}),
        )
        for name, value in facts
    )
    return element("dl", *boxes, class_="facts")


def footer_of(text: str) -> Html:
    """Create the last paragraph of a page."""
    return element("footer", element("p", text))


def document(
    title: str,
    *body: Html,
    styles: str = "",
    scripts: Sequence[str] = (),
    reload: float = 0.0,
) -> str:
    """Create a self-contained page; a browser runs only `scripts`, and loads no other file.

    If `reload` is not 0, the page may load images and itself from its server. A browser that runs
    no scripts then reloads the page after `reload` seconds.
    """
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    hashes = [b64encode(sha256(one.encode()).digest()).decode() for one in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    images = "data: 'self'" if reload else "data:"
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src {images}; script-src {allowed}"
    )
    again = Html(f'<meta http-equiv="refresh" content="{max(1, round(reload))}">\n')
    if reload:
        policy += "; connect-src 'self'"
    head = element(
        "head",
        Html('<meta charset="utf-8">\n'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        element("title", title),
        *([element("noscript", again)] if reload else []),
        element("style", Html(style + styles)),
    )
    made = element("body", *body, *(element("script", Html(one)) for one in scripts))
    return "<!DOCTYPE html>\n" + element("html", head, made, lang="en")


def notebook_page(title: str, *parts: Html) -> str:
    """Create the HTML that a notebook shows for an object: a title and elements below it."""
    heading = element("p", element("strong", title))
    return element("div", heading, *parts, style="max-width: 60em; overflow-x: auto")


def notebook_image(figure: "Figure", alternative: str) -> Html:
    """Convert a figure to an image with its own background, for a notebook."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    data = b64encode(file.getvalue()).decode()
    style = "max-width: 100%; background: white"
    return Html(
        f'<img src="data:image/png;base64,{data}" alt="{escape(alternative)}" style="{style}">'
    )


#: Maximum number of points that are drawn of a curve.
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
    """Up to `MOST_CURVES` curves with axis labels; if `points` is true, no lines are drawn.

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
                    # "" marks places where this curve has no row: its line continues there. null
                    # marks NaN, which interrupts the line.
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
    """Choose at most `most` rows that show the extreme values of all columns.

    The rows are divided into stretches of equal length. In each stretch, the rows with the minimum
    and the maximum of each column are chosen. The first and the last row are also chosen.

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
