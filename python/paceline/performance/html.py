"""A report in a file, of the form that its ending names."""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from paceline._util.files import new_file, refuse_impossible
from paceline.errors import UnsupportedError
from paceline.performance.advice import advice_of
from paceline.performance.components import (
    COMMUNICATING,
    GRID,
    INK,
    OF_RUN,
    OF_WORKERS,
    WAITING,
    WORKING,
    Component,
)
from paceline.performance.figure_style import STYLE
from paceline.performance.figures import drawings_of, figure_of
from paceline.performance.metrics import Report, on_one_clock, report_of
from paceline.performance.records import WorkerTiming
from paceline.performance.text import (
    Advice,
    amount,
    many,
    natural,
    number,
    percent,
    rate,
    seconds,
    shortened,
)
from paceline.performance.timings import Timings

#: Columns of which there may be more only in smaller type.
MANY = 10


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes
    ----------
    cells : sequence of str
        Text; the first one heads the row.
    slow : bool
        Whether it is to be noticed.
    """

    cells: Sequence[str]
    slow: bool = False


def section(title: str, *parts: str) -> str:
    """A section with a heading.

    Parameters
    ----------
    title : str
        Text.
    *parts : str
        HTML.

    Returns
    -------
    str
        HTML.
    """
    return "\n".join((f"<section>\n<h2>{escape(title)}</h2>", *parts, "</section>"))


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph.

    Parameters
    ----------
    text : str
        Text.
    kind : str
        "caption" for one that belongs to what follows.

    Returns
    -------
    str
        HTML.
    """
    opening = f'<p class="{kind}">' if kind else "<p>"
    return f"{opening}{escape(text)}</p>"


def facts(of: Mapping[str, str], *, wide: Sequence[str] = ()) -> str:
    """Names and values, side by side.

    Parameters
    ----------
    of : mapping of str to str
        Text; what is empty is left out.
    wide : sequence of str
        Names of those whose values are long.

    Returns
    -------
    str
        HTML.
    """
    pairs = (_fact(name, value, name in wide) for name, value in of.items() if value)
    return "\n".join(('<dl class="facts">', *pairs, "</dl>"))


def _fact(name: str, value: str, wide: bool) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<div{kind}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def advice(sentences: Iterable[str]) -> str:
    """Advice, a box each.

    Parameters
    ----------
    sentences : iterable of str
        Text.

    Returns
    -------
    str
        HTML.
    """
    return "\n".join(
        ('<ul class="advice">', *(f"<li>{paragraph(text)}</li>" for text in sentences), "</ul>")
    )


def figure(title: str, caption: str, svg: str) -> str:
    """A figure under its title and caption.

    Parameters
    ----------
    title, caption : str
        Text.
    svg : str
        Of `inline_svg`.

    Returns
    -------
    str
        HTML.
    """
    said = f"<figcaption><h3>{escape(title)}</h3>{paragraph(caption)}</figcaption>"
    return f'<figure>\n{said}\n<div class="wide-content">{svg}</div>\n</figure>'


def table(
    columns: Sequence[str], rows: Iterable[Row], *, caption: str = "", text: Sequence[int] = ()
) -> str:
    """A table, that scrolls sideways on a narrow screen.

    Parameters
    ----------
    columns : sequence of str
        Titles.
    rows : iterable of Row
        As many cells each.
    caption : str
        What it holds.
    text : sequence of int
        Columns, beside the first, that hold words rather than numbers.

    Returns
    -------
    str
        HTML.
    """
    kinds = [' class="text"' if k in text else "" for k in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{kind}>{escape(title)}</th>'
        for kind, title in zip(kinds, columns, strict=True)
    )
    lines = (_line(row, kinds) for row in rows)
    dense = ' class="dense"' if len(columns) > MANY else ""
    return "\n".join(
        (
            # Not of the table: it would scroll with it.
            paragraph(caption, "caption") if caption else "",
            f'<div class="wide-content"><table{dense}>',
            f"<thead><tr>{heads}</tr></thead>\n<tbody>",
            *lines,
            "</tbody></table></div>",
        )
    )


def _line(row: Row, kinds: Sequence[str]) -> str:
    first, *others = row.cells
    cells = "".join(
        f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds[1:], others, strict=True)
    )
    slow = ' class="slow"' if row.slow else ""
    return f'<tr{slow}><th scope="row">{escape(first)}</th>{cells}</tr>'


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


#: Workers that have a line of their own; of more, the slowest.
LINES = 100

_PARTS = (*WORKING, WAITING, COMMUNICATING)


def page_of(timings: Timings) -> str:
    """A report as a page.

    Parameters
    ----------
    timings : Timings
        Of the run.

    Returns
    -------
    str
        HTML.
    """
    timings, moved = on_one_clock(timings)
    report = report_of(timings)
    here = files(__package__)
    return Template(here.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=_title(report),
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        facts=_facts(timings, report),
        sections="\n".join(_sections(timings, report, moved)),
    )


def _sections(timings: Timings, report: Report, moved: Sequence[str]) -> Iterator[str]:
    drawings = drawings_of(timings, report)
    if not drawings:
        yield section("Nothing to tell", paragraph("No block took any time."))
        return
    numbers = _numbers(report)
    yield section("What to know", advice(map(_said, advice_of(report))))
    yield _stragglers(report, numbers)
    figures = (
        figure(
            drawing.title,
            drawing.caption,
            inline_svg(drawing.figure(), f"{drawing.title}. {drawing.caption}"),
        )
        for drawing in drawings
    )
    yield section("Where the time went", *_about_clocks(moved), *figures)
    yield section("Over workers", _over_workers(report))
    yield section("The whole run", _whole_run(report))
    yield section("Each worker", _each_worker(report, numbers))


def _said(advice: Advice) -> str:
    if advice.heuristic:
        return f"{advice.text} (Heuristic {advice.heuristic}.)"
    return advice.text


def _about_clocks(moved: Sequence[str]) -> Iterator[str]:
    if moved:
        some = ", ".join(moved[:5]) + " …" * (len(moved) > 5)
        yield paragraph(
            f"Clocks of {many(len(moved), 'host')} show another time than that of the run "
            f"({some}): their blocks were moved to end with it. Waiting there is a guess."
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


def _facts(timings: Timings, report: Report) -> str:
    # Of few blocks some workers came to none.
    asked = f" of {report.n_asked:,}" if report.n_asked > report.n_workers else ""
    return facts(
        {
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
            "trajectory": shortened(timings.trajectory),
        },
        wide=["trajectory"],
    )


def _stragglers(report: Report, numbers: dict[str, int]) -> str:
    title = "Stragglers"
    if not report.stragglers:
        return section(
            title,
            paragraph(
                "None: no worker's time per frame was over 1.5 times the median, nor over twice "
                "that of the fastest quarter, by 0.1 s in all."
            ),
        )
    shown = report.stragglers[:LINES]
    rows = (
        Row(
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
    return section(title, table(columns, rows, caption=caption, text=(1, 2, 6)))


def _taken(report: Report) -> list[Component]:
    """Parts that took any time."""
    return [part for part in _PARTS if report.over_workers[part.quantity].most]


def _over_workers(report: Report) -> str:
    rows = (
        Row(
            (
                part.label,
                part.quantity,
                number(report.over_workers[part.quantity].mean),
                number(report.over_workers[part.quantity].most),
                percent(report.shares[part.quantity]) if part.quantity in report.shares else "",
                OF_WORKERS[part.quantity],
            )
        )
        for part in _taken(report)
    )
    columns = ("part", "quantity", "mean (s)", "maximum (s)", "share", "what it is")
    return table(columns, rows, text=(1, 5))


def _whole_run(report: Report) -> str:
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
        rows.append(Row((name, text, meaning)))
    return table(("quantity", "value", "what it is"), rows, text=(2,))


def _each_worker(report: Report, numbers: dict[str, int]) -> str:
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
        Row(
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
    if len(shown) < report.n_workers:
        caption += (
            f" Of {report.n_workers:,} workers the {len(shown)} with the longest time per frame; "
            "saved timings (.csv) have all."
        )
    return table(columns, rows, caption=caption, text=(1,))


def _shown(report: Report, slow: set[str]) -> Sequence[WorkerTiming]:
    order = sorted(
        report.workers, key=lambda worker: (worker.worker not in slow, -worker.seconds_per_frame)
    )
    return order[:LINES]


#: A page, and figures alone.
PAGE, FIGURES = ".html", (".png", ".svg")


def save_report(timings: Timings, path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Write a report; whole under its name or not at all.

    Parameters
    ----------
    timings : Timings
        Of the run.
    path : path-like
        Ending in .html (a page that needs nothing else), .png or .svg (its figures as one).
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        `path` exists and is not to be overwritten.
    UnsupportedError
        Another ending.
    """
    from matplotlib import rc_context

    refuse_unknown_report(path)
    refuse_impossible(path, overwrite=overwrite)
    if _ending(path) == PAGE:
        page = page_of(timings)
        with new_file(path, overwrite=overwrite) as file:
            file.write(page)
        return
    figure = figure_of(timings)
    with rc_context(STYLE), new_file(path, overwrite=overwrite, binary=True) as file:
        figure.savefig(file, format=_ending(path)[1:])


def refuse_unknown_report(path: str | os.PathLike, others: str = "") -> None:
    """Raise `UnsupportedError` for a name by which reports are not saved.

    Parameters
    ----------
    path : path-like
        Name of a file to be.
    others : str
        What else may be saved where it was asked for, and how.
    """
    if _ending(path) not in (PAGE, *FIGURES):
        raise UnsupportedError(
            f"{os.fspath(path)}: reports are saved as .html, or as figures in .png or .svg"
            f"{others and f', {others}'}, not {_ending(path)!r}"
        )


def _ending(path: str | os.PathLike) -> str:
    return Path(path).suffix.lower()
