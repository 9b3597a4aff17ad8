"""Figures as SVG within a page."""

import io
import re
from html import escape
from typing import Any

from paceline.report.drawing import STYLE
from paceline.report.parts import GRID, INK, WAITING

#: What a page gives another colour on a dark screen.
_VARIABLES = {INK: "var(--ink)", GRID: "var(--grid)", WAITING.colour: "var(--wait)"}
#: In an inch.
POINTS = 72
_WITHOUT_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def inline_svg(figure: Any, alternative: str) -> str:
    """A figure as an element of a page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    alternative : str
        What it shows, for those who do not see it; unlike that of any other figure of the page.

    Returns
    -------
    str
        As wide as there is room, in the colours of the page.
    """
    from matplotlib import rc_context

    file = io.StringIO()
    # The salt makes names of clipping paths: unlike in figures of one page, alike in every run.
    with rc_context({**STYLE, "svg.hashsalt": alternative}):
        figure.savefig(file, format="svg", transparent=True, metadata=_WITHOUT_METADATA)
    _, _, body = file.getvalue().partition("<svg")[2].partition(">")
    width, height = figure.get_size_inches() * POINTS
    # Nothing refers to names of groups, and several figures have the same.
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r' d="[^"]*"', lambda path: _rounded(path[0]), body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    frame = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(alternative)}"'
    return f"<svg {frame}>{body}"


def _rounded(path: str) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", path)
