"""Page of results: a summary in words, a table of contents, and a section for each analysis."""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from paceline.performance.html_elements import (
    Chart,
    Html,
    caption,
    document,
    element,
    facts_list,
    footer_of,
    html_table,
    inline_svg,
    section,
)
from paceline.performance.number_format import joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Sentence that tells users of a page how to zoom in a chart.
HINT = "Drag over a part of a plot to zoom in; a double click shows all of it again."


@dataclass(frozen=True)
class ResultDrawing:
    """Figure, and interactive charts that a browser with JavaScript shows.

    With `replaced`, the charts are shown instead of the figure, otherwise below it.
    """

    figure: "Figure"
    charts: Sequence[Chart] = ()
    replaced: bool = True

    @property
    def n_panels(self) -> int:
        """Number of panels that are shown at the same time."""
        return max(1, len(self.charts)) if self.replaced else 1 + len(self.charts)

    def html(self, title: str) -> Html:
        """Create the HTML element; `title` is its alternative text, unique in the page."""
        static = inline_svg(self.figure, title)
        parts = [element("div", static, class_="static" if self.replaced else "always")]
        for chart in self.charts:
            data = element("script", Html(chart.json), type="application/json")
            parts.append(element("div", data, class_="chart", aria_label=title, role="img"))
        notes = dict.fromkeys(one.note for one in self.charts if one.note)
        parts += [element("figcaption", caption(one)) for one in notes]
        return element("figure", *parts)


@dataclass(frozen=True)
class ResultSection:
    """Results of one analysis on a page.

    `answers` are sentences. `titles` and `lines` form a table, for example of the means of series,
    or of names and shapes of arrays. `files` are the saved files, and `remarks` are notes on the
    files.
    """

    title: str
    parameters: str
    drawings: Sequence[ResultDrawing]
    answers: Sequence[str] = ()
    titles: Sequence[str] = ()
    lines: Sequence[Sequence[str]] = ()
    files: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def html(self, anchor: str) -> Html:
        """Create the HTML section, to which links with `anchor` lead."""
        parts = [element("p", one, class_="answer") for one in self.answers]
        numbered = enumerate(self.drawings, start=1)
        figures = (one.html(f"{self.title}: figure {k}") for k, one in numbered)
        parts.append(element("div", *figures, class_="figures"))
        if self.lines:
            parts.append(html_table(self.titles, self.lines, text=[len(self.titles) - 1]))
        parts += map(caption, self.remarks)
        if self.parameters:
            parts.append(caption(self.parameters))
        parts.append(_links(self.files))
        # Several panels are placed side by side over the whole width of the page.
        is_wide = sum(one.n_panels for one in self.drawings) > 1
        return section(self.title, *parts, id=anchor, class_="card wide" if is_wide else "card")


@dataclass(frozen=True)
class PageState:
    """State of results that are rewritten while a simulation runs.

    Attributes
    ----------
    text : str
        State of the run, in sentences.
    every : float
        Time after which the page looks for new results, s.
    later : sequence of str
        Names of the analyses that are computed when the trajectory has ended.
    is_ended : bool
        True if the trajectory has ended.
    written : float
        Time at which the page is written, s since 1970.
    """

    text: str
    every: float
    later: Sequence[str] = ()
    is_ended: bool = False
    written: float = field(default_factory=time.time)

    def html(self) -> Html:
        """Create the first line of the page, which the script live.js completes."""
        when = "Computed now" if self.is_ended else "Computed at the end"
        later = f"{when}: {joined(self.later)}." if self.later else ""
        at = time.strftime("%H:%M:%S", time.localtime(self.written))
        return element(
            "p",
            element("strong", f"{self.text}."),
            f" {later} " if later else " ",
            element("span", f"Written at {at}.", class_="waiting"),
            class_="state",
            data_every=f"{self.every:g}",
            data_written=f"{self.written:.3f}",
            **({"data_ended": "1"} if self.is_ended else {}),
        )


@dataclass(frozen=True)
class Overview:
    """Summary of a page: title, paragraphs, facts about the run, warnings, and state of the run."""

    title: str
    paragraphs: Sequence[str]
    facts: Iterable[tuple[str, str]]
    warnings: Sequence[str] = field(default=())
    state: PageState | None = None


def results_page(
    overview: Overview,
    sections: Iterable[ResultSection],
    footer: str,
    shared_files: Sequence[str] = (),
    run_files: Sequence[str] = ("timings.html", "battery.toml"),
) -> str:
    """Create the page of results; `shared_files` belong to all analyses, `run_files` to the run.

    `footer` explains the confidence intervals.
    """
    anchors: dict[str, str] = {}
    cards = []
    has_charts = False
    for one in sections:
        anchor = _anchor(one.title, anchors)
        anchors[anchor] = one.title
        cards.append(one.html(anchor))
        has_charts |= any(drawing.charts for drawing in one.drawings)
    after = []
    if shared_files:
        after.append(("tables", "Tables of all", [_links(shared_files)]))
    if overview.warnings:
        listed = element("ul", *(element("li", one) for one in overview.warnings))
        after.append(("warnings", "Warnings", [listed]))
    facts = list(overview.facts)
    more = [element("p", HINT, class_="caption hint")] if has_charts else []
    about = facts_list(facts, wide=[name for name, _ in facts])
    links = _links(run_files)
    after.append(("run", "How it was computed", [about, links]))
    header = element(
        "header",
        element("p", "paceline: results", class_="made"),
        element("h1", overview.title),
        *([overview.state.html()] if overview.state else []),
        *(element("p", one, class_="lead") for one in overview.paragraphs),
        *more,
    )
    ends = [section(title, *parts, id=key, class_="further") for key, title, parts in after]
    titles = {**anchors, **{key: title for key, title, _ in after}}
    items = (element("li", element("a", title, href=f"#{key}")) for key, title in titles.items())
    contents = element("nav", element("ol", *items), aria_label="Contents")
    grid = element("div", *cards, class_="cards")
    main = element("main", header, grid, *ends, footer_of(footer))
    page = element("div", contents, main, class_="layout")
    scripts, style = [], ""
    if has_charts:
        scripts += [_text("uplot", "uPlot.iife.min.js"), _text("charts.js")]
        style = _text("uplot", "uPlot.min.css")
    reload = 0.0
    if overview.state is not None:
        scripts.append(_text("live.js"))
        reload = overview.state.every
    return document(overview.title, page, styles=style, scripts=scripts, reload=reload)


def live_page(title: str, parts: Sequence[Html], state: PageState | None) -> str:
    """Create a page of figures and links; with a state, it reloads itself."""
    header = element(
        "header", element("p", "paceline: results", class_="made"), element("h1", title)
    )
    shown = [state.html()] if state else []
    main = element("main", header, *shown, *parts)
    if state is None:
        return document(title, main)
    return document(title, main, scripts=[_text("live.js")], reload=state.every)


def _text(*path: str) -> str:
    """Read a text file in the folder of this module, such as a script for a page."""
    return files(__package__).joinpath(*path).read_text(encoding="utf-8")


def _anchor(title: str, taken: Iterable[str]) -> str:
    """Create a unique anchor for a section, to which the table of contents links."""
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    found = stem = f"result-{name}"
    number = 2
    while found in taken:
        found = f"{stem}-{number}"
        number += 1
    return found


def _links(names: Sequence[str]) -> Html:
    """Create a line of links to files."""
    links = (element("a", name, href=quote(name)) for name in names)
    return element("p", *links, class_="files")
