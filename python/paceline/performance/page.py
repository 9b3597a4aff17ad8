"""HTML elements, tables, figures, self-contained pages, and parts of a notebook."""

import io
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from paceline.performance.figure_style import STYLE, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of columns in normal font size; tables with more use a smaller size.
MANY = 10
#: Points per inch.
POINTS = 72

#: Elements that are not followed by a line break.
_INLINE = ("a", "dd", "dt", "script", "strong", "td", "th")
_WITHOUT_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class Html(str):
    """HTML text; any other text is escaped when it is put into an element."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str) -> Html:
    r"""Create an element from texts, which are escaped, and other elements.

    Add an underscore to attribute names that are Python keywords.

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
    """Create a paragraph in a smaller font."""
    return element("p", text, class_="caption")


def section(title: str, *parts: Html, **attributes: str) -> Html:
    """Create a section of a page."""
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

    Columns listed in `text`, and the first one, contain words, other columns numbers. Rows listed
    in `slow` are coloured.
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
    # The salt determines names of clipping paths: distinct in a page, and equal in every run.
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
    """Create a page; facts listed in `wide` have their own line."""
    header = element(
        "header",
        element("p", f"paceline: {made}", class_="made"),
        element("h1", title),
        facts_list(facts, wide),
    )
    return document(title, element("main", header, *sections, footer_of(footer)))


def facts_list(facts: Iterable[tuple[str, str]], wide: Sequence[str] = ()) -> Html:
    """Create boxes of facts; facts listed in `wide` have their own line."""
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
    """Create a self-contained page; a browser runs only these scripts, and loads nothing.

    With `reload`, a page may load images and itself from its server, and a browser without scripts
    reloads it after this time, s.
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
    """Create the HTML that a notebook shows for an object."""
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
