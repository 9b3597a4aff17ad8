"""Report of a run as a file: one HTML page, or its figures alone."""

import io
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from paceline._util.files import check_output, new_file
from paceline.errors import UnsupportedError
from paceline.performance.advice import advice_of
from paceline.performance.components import COMM, WALL_TIME, Component
from paceline.performance.figure_style import STYLE, has_matplotlib, need_matplotlib
from paceline.performance.figures import Drawing, drawings_of, figure_of
from paceline.performance.metrics import OF_RUN, Report, on_one_clock, report_of
from paceline.performance.number_format import (
    amount,
    many,
    natural,
    number,
    percent,
    rate,
    seconds,
    shortened,
)
from paceline.performance.records import RunTimings, WorkerTiming

#: Endings of a page, and of figures alone.
PAGE, FIGURES = ".html", (".png", ".svg")
#: Workers that have a line of their own; of more, the slowest.
LINES = 100
#: Columns of which there may be more only in smaller type.
MANY = 10
#: Points in an inch.
POINTS = 72

_WITHOUT_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def save_report(timings: RunTimings, path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Write a report in the form that the ending names; whole under its name or not at all."""
    check_report_ending(path)
    from matplotlib import rc_context

    check_output(path, overwrite=overwrite)
    if _ending(path) == PAGE:
        page = page_of(timings)
        with new_file(path, overwrite=overwrite) as file:
            file.write(page)
        return
    figure = figure_of(timings)
    with rc_context(STYLE), new_file(path, overwrite=overwrite, binary=True) as file:
        figure.savefig(file, format=_ending(path)[1:])


def check_report_ending(path: str | os.PathLike, others: str = "") -> None:
    """Raise `UnsupportedError` for an ending that reports do not have; `others` names more.

    Also where the package that draws their figures is not installed.
    """
    if _ending(path) not in (PAGE, *FIGURES):
        raise UnsupportedError(
            f"{os.fspath(path)}: reports are saved as .html, or as figures in .png or .svg"
            f"{others and f', {others}'}, not {_ending(path)!r}"
        )
    need_matplotlib()


def _ending(path: str | os.PathLike) -> str:
    return Path(path).suffix.lower()


class Html(str):
    """HTML; other text is escaped where it is put into a page."""

    __slots__ = ()


@cache
def _fragments() -> dict[str, Template]:
    """Templates of page.html by name."""
    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    _, *named = re.split(r"<!-- fragment (\w+) -->\n", text)
    pairs = zip(named[::2], named[1::2], strict=True)
    return {name: Template(fragment.strip()) for name, fragment in pairs}


def _fill(fragment: str, **values: str) -> Html:
    """Put values into a fragment of page.html."""
    html = {
        name: value if isinstance(value, Html) else escape(value) for name, value in values.items()
    }
    return Html(_fragments()[fragment].substitute(html))


def _joined(parts: Iterable[Html], between: str = "\n") -> Html:
    return Html(between.join(parts))


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table; the first cell heads it."""

    cells: Sequence[str]
    slow: bool = False


def _table(
    columns: Sequence[str], rows: Iterable[_Row], *, caption: str = "", text: Sequence[int] = ()
) -> Html:
    """Make a table; columns of `text`, beside the first, hold words rather than numbers."""
    kinds = ["text_" if k in text else "" for k in range(len(columns))]
    heads = (_fill(f"{kind}head", text=one) for kind, one in zip(kinds, columns, strict=True))
    table = _fill(
        "dense_table" if len(columns) > MANY else "table",
        heads=_joined(heads, ""),
        rows=_joined(_line(row, kinds) for row in rows),
    )
    # Not within the table's frame: it would scroll with it.
    return _joined([_fill("caption", text=caption), table]) if caption else table


def _line(row: _Row, kinds: Sequence[str]) -> Html:
    first, *others = row.cells
    cells = (_fill(f"{kind}cell", text=one) for kind, one in zip(kinds[1:], others, strict=True))
    return _fill("slow_row" if row.slow else "row", first=first, cells=_joined(cells, ""))


def _section(title: str, *parts: Html) -> Html:
    return _fill("section", title=title, parts=_joined(parts))


def _figure(drawing: Drawing) -> Html:
    svg = inline_svg(drawing.figure(), f"{drawing.title}. {drawing.caption}")
    return _fill("figure", title=drawing.title, caption=drawing.caption, svg=svg)


def inline_svg(figure: Any, alternative: str) -> Html:
    """Make an element of a page from a figure: as wide as there is room, in the page's colours.

    `alternative` says what it shows, for those who do not see it; unlike that of any other figure
    of the page.
    """
    from matplotlib import rc_context

    file = io.StringIO()
    # The salt makes names of clipping paths: unlike in figures of one page, alike in every run.
    with rc_context({**STYLE, "svg.hashsalt": alternative}):
        figure.savefig(file, format="svg", transparent=True, metadata=_WITHOUT_METADATA)
    _, _, drawing = file.getvalue().partition("<svg")[2].partition(">")
    # Nothing refers to names of groups, and several figures have the same.
    drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)
    width, height = figure.get_size_inches() * POINTS
    size = {"width": f"{width:g}", "height": f"{height:g}"}
    return _fill("svg", **size, alternative=alternative, drawing=Html(drawing))


def page_of(timings: RunTimings) -> str:
    """Make the page of a report."""
    timings, moved = on_one_clock(timings)
    report = report_of(timings)
    return _page(
        "report of a run",
        _title(report),
        _facts(timings, report),
        _sections(timings, report, moved),
        "Quantities and heuristics are those of Khoshlessan et al. (2020), Table 3 and section 8, "
        "where they still hold here.",
    )


def _page(made: str, title: str, facts: Html, sections: Iterable[Html], footer: str) -> str:
    return _fill(
        "page",
        made=made,
        title=title,
        style=Html(files(__package__).joinpath("page.css").read_text(encoding="utf-8")),
        facts=facts,
        sections=_joined(sections),
        footer=footer,
    )


@dataclass(frozen=True)
class ResultSection:
    """Results of one analysis on a page: its figures, and lines of two columns.

    `lines` are the means of series, or names and shapes of arrays; `files` are what was saved, and
    `remarks` what to know about them.
    """

    title: str
    parameters: str
    figures: Sequence[Any]
    lines: Sequence[tuple[str, str]]
    files: Sequence[str]
    remarks: Sequence[str] = ()


def results_page(
    title: str,
    facts: Iterable[tuple[str, str]],
    sections: Iterable[ResultSection],
    footer: str,
    files: Sequence[str] = (),
) -> str:
    """Make the page of results; `files` are of all analyses, and `footer` explains intervals."""
    made = [*map(_results, sections)]
    if files:
        made.append(_section("Tables of all", *map(_link, files)))
    facts_of = _joined(_fill("wide_fact", name=name, value=value) for name, value in facts)
    return _page("results", title, facts_of, made, footer)


def _link(file: str) -> Html:
    return _fill("link", target=quote(file), text=file)


def _results(one: ResultSection) -> Html:
    parts = [_fill("caption", text=one.parameters)]
    for k, figure in enumerate(one.figures, start=1):
        svg = inline_svg(figure, f"{one.title}: figure {k}")
        parts.append(_fill("bare_figure", svg=svg))
    if one.lines:
        parts.append(_table(("", ""), (_Row(line) for line in one.lines), text=[1]))
    parts += [_fill("caption", text=remark) for remark in one.remarks]
    return _section(one.title, *parts, *map(_link, one.files))


def notebook_page(title: str, *parts: Html) -> str:
    """Make what a notebook shows of an object."""
    return _fill("notebook", title=title, parts=_joined(parts))


def notebook_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = ""
) -> Html:
    """Make a table for a notebook."""
    return _table(columns, (_Row(cells) for cells in rows), caption=caption)


def notebook_image(figure: Any, alternative: str) -> Html:
    """Make an image for a notebook of a figure, with a background of its own."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    data = b64encode(file.getvalue()).decode()
    return _fill("image", data=data, alternative=alternative)


def notebook_timings(timings: RunTimings) -> str:
    """Make what a notebook shows of timings: a bar of each worker, and sums over workers."""
    timings, _ = on_one_clock(timings)
    report = report_of(timings)
    parts = []
    for drawing in drawings_of(timings, report)[:1]:
        if has_matplotlib():
            parts.append(_bars(drawing))
        parts.append(_over_workers(report))
    return notebook_page(f"{_title(report)}, {timings.backend}", *parts)


def _bars(drawing: Drawing) -> Html:
    """Draw a figure of timings for a notebook."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(6, drawing.height), layout="constrained")
        drawing.draw(figure.subplots())
        return notebook_image(figure, f"{drawing.title}. {drawing.caption}")


def _sections(timings: RunTimings, report: Report, moved: Sequence[str]) -> Iterator[Html]:
    drawings = drawings_of(timings, report)
    if not drawings:
        yield _section("Nothing to tell", _fill("paragraph", text="No block took any time."))
        return
    numbers = _numbers(report)
    yield _section("What to know", _recommendations(report))
    yield _stragglers(report, numbers)
    yield _section("Where the time went", *_about_clocks(moved), *map(_figure, drawings))
    yield _section("Over workers", _over_workers(report))
    yield _section("The whole run", _whole_run(report))
    yield _section("Each worker", _each_worker(report, numbers))


def _recommendations(report: Report) -> Html:
    texts = (
        f"{one.text} (Heuristic {one.heuristic}.)" if one.heuristic else one.text
        for one in advice_of(report)
    )
    items = _joined(_fill("recommendation", text=text) for text in texts)
    return _fill("recommendations", items=items)


def _about_clocks(moved: Sequence[str]) -> Iterator[Html]:
    if moved:
        some = ", ".join(moved[:5]) + " …" * (len(moved) > 5)
        yield _fill(
            "paragraph",
            text=f"Clocks of {many(len(moved), 'host')} show another time than that of the run "
            f"({some}): their blocks were moved to end with it. Waiting there is a guess.",
        )


def _numbers(report: Report) -> dict[str, int]:
    """Numbers of workers by their names: as in figures, by host and then by process."""
    names = sorted((worker.worker for worker in report.workers), key=natural)
    return {name: number for number, name in enumerate(names, 1)}


def _title(report: Report) -> str:
    return (
        f"{many(report.n_frames, 'frame')} in {seconds(report.t_total)} "
        f"on {many(report.n_workers, 'worker')}"
    )


def _facts(timings: RunTimings, report: Report) -> Html:
    # Of few blocks some workers came to none.
    asked = f" of {report.n_asked:,}" if report.n_asked > report.n_workers else ""
    facts = {
        "backend": timings.backend,
        "schedule": timings.schedule,
        "workers": f"{report.n_workers:,}{asked} on {many(report.n_hosts, 'host')}",
        "frames": f"{report.n_frames:,}",
        "blocks": f"{report.n_blocks:,}",
        "total time": seconds(report.t_total),
        "read": f"{amount(report.bytes_read)}, {rate(report.read_rate)}" * bool(report.calls),
        "begun": timings.date,
        "on host": timings.host,
        "paceline": timings.version,
    }
    shown = [_fill("fact", name=name, value=value) for name, value in facts.items() if value]
    if timings.trajectory:
        files_read = shortened(timings.trajectory)
        shown.append(_fill("wide_fact", name="trajectory", value=files_read))
    return _joined(shown)


def _stragglers(report: Report, numbers: dict[str, int]) -> Html:
    title = "Stragglers"
    if not report.stragglers:
        return _section(
            title,
            _fill(
                "paragraph",
                text="None: no worker's time per frame was over 1.5 times the median, nor over "
                "twice that of the fastest quarter, by 0.1 s in all.",
            ),
        )
    shown = report.stragglers[:LINES]
    rows = (
        _Row(
            (
                str(numbers[one.worker]),
                one.host,
                one.cause,
                number(one.seconds_lost),
                number(one.factor),
                number(one.factor_fastest),
                " and ".join(one.rules),
                f"{one.n_frames:,}",
            )
        )
        for one in shown
    )
    columns = (
        "worker",
        "host",
        "slow at",
        "lost (s)",
        "× median",
        "× fastest quarter",
        "by the rule of the",
        "frames",
    )
    caption = (
        f"{many(len(report.stragglers), 'worker')} whose time per frame was over 1.5 times the "
        "median, or over twice that of the fastest quarter; those first that lost most time."
    )
    if len(shown) < len(report.stragglers):
        caption += f" The first {len(shown)} are listed."
    return _section(title, _table(columns, rows, caption=caption, text=(1, 2, 6)))


def _taken(report: Report) -> list[Component]:
    """Components that took any time."""
    return [part for part in (*WALL_TIME, COMM) if report.over_workers[part.quantity].most]


def _over_workers(report: Report) -> Html:
    rows = (
        _Row(
            (
                part.label,
                part.quantity,
                number(report.over_workers[part.quantity].mean),
                number(report.over_workers[part.quantity].most),
                percent(report.shares[part.quantity]) if part.quantity in report.shares else "",
                part.meaning,
            )
        )
        for part in _taken(report)
    )
    columns = ("part", "quantity", "mean (s)", "maximum (s)", "share", "what it is")
    return _table(columns, rows, text=(1, 5))


def _whole_run(report: Report) -> Html:
    forms = {"bytes_read": amount, "bytes_used": amount, "calls": "{:,}".format}
    rows = []
    for name, meaning in OF_RUN.items():
        value = getattr(report, name)
        if name == "read_rate":
            text = rate(value)
        elif name in forms:
            text = forms[name](value)
        else:
            text = number(value) + " s" * name.startswith("t_")
        rows.append(_Row((name, text, meaning)))
    return _table(("quantity", "value", "what it is"), rows, text=(2,))


def _each_worker(report: Report, numbers: dict[str, int]) -> Html:
    slow = {one.worker for one in report.stragglers}
    shown = _shown(report, slow)
    parts = _taken(report)
    columns = (
        "worker",
        "host:process:thread",
        "blocks",
        "frames",
        *(part.label for part in parts),
        "µs/frame",
        "read",
        "calls",
    )
    rows = (
        _Row(
            (
                str(numbers[worker.worker]),
                worker.worker,
                f"{worker.n_blocks:,}",
                f"{worker.n_frames:,}",
                *(number(getattr(worker, part.quantity)) for part in parts),
                f"{worker.seconds_per_frame * 1e6:,.1f}",
                amount(worker.bytes),
                f"{worker.calls:,}",
            ),
            slow=worker.worker in slow,
        )
        for worker in sorted(shown, key=lambda worker: numbers[worker.worker])
    )
    caption = "Seconds, where no other unit is named. Stragglers are coloured."
    if sum(worker.n_frames for worker in report.workers) > report.n_frames:
        caption += " Frames count once in each pass over them."
    if len(shown) < report.n_workers:
        caption += (
            f" Of {report.n_workers:,} workers the {len(shown)} with the longest time per frame; "
            "saved timings (.csv) have all."
        )
    return _table(columns, rows, caption=caption, text=(1,))


def _shown(report: Report, slow: set[str]) -> Sequence[WorkerTiming]:
    order = sorted(
        report.workers, key=lambda worker: (worker.worker not in slow, -worker.seconds_per_frame)
    )
    return order[:LINES]
