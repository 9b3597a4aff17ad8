"""Report of a run: an HTML page, an image of its figures alone, or HTML for a notebook."""

import os
from collections.abc import Iterator
from pathlib import Path

from paceline._util.files import check_output, new_file
from paceline.errors import UnsupportedError
from paceline.performance.figure_style_and_elements import (
    STYLE,
    has_matplotlib,
    need_matplotlib,
    styled,
    write_figure,
)
from paceline.performance.html_elements import (
    Html,
    element,
    html_page,
    html_table,
    inline_svg,
    notebook_image,
    notebook_page,
    section,
)
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
from paceline.performance.record import COMM, WALL_TIME, Component, RunTimings
from paceline.performance.rules import advice_of
from paceline.performance.run_figures import Drawing, drawings_of, figure_of
from paceline.performance.time_breakdown_and_stragglers import OF_RUN, PUBLISHED, Report, report_of

#: File name extension of a report as a page.
PAGE = ".html"
#: File name extensions of a report as an image of its figures.
FIGURES = (".png", ".svg")
#: Maximum number of workers in a table of stragglers or of all workers. If there are more, only
#: those that lost most time, or those with the longest time per frame, are listed.
LINES = 100
#: Functions that format the run's quantities, except for times and ratios.
_FORMS = {
    **dict.fromkeys(("bytes_read", "bytes_cached", "bytes_used"), amount),
    **dict.fromkeys(("calls", "requests", "requests_repeated"), "{:,}".format),
    "read_rate": rate,
}


def save_report(timings: RunTimings, path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Write a report in the format of the file extension; the file appears once it is complete."""
    check_report_ending(path)
    check_output(path, overwrite=overwrite)
    if _ending(path) == PAGE:
        page = page_of(timings)
        with new_file(path, overwrite=overwrite) as file:
            file.write(page)
        return
    figure = figure_of(timings)
    with styled(STYLE), new_file(path, overwrite=overwrite, binary=True) as file:
        write_figure(figure, file, _ending(path)[1:])


def check_report_ending(path: str | os.PathLike, others: str = "") -> None:
    """Raise `UnsupportedError` for an extension that is not a report format.

    `others` names further formats that the caller accepts, for the message. Also raise
    `UnsupportedError` if matplotlib is not installed.
    """
    if _ending(path) not in (PAGE, *FIGURES):
        raise UnsupportedError(
            f"{os.fspath(path)}: reports are saved as .html, or as figures in .png or .svg"
            f"{others and f', {others}'}, not {_ending(path)!r}"
        )
    need_matplotlib()


def _ending(path: str | os.PathLike) -> str:
    return Path(path).suffix.lower()


def page_of(timings: RunTimings) -> str:
    """Return the HTML page of a run's report."""
    report = report_of(timings)
    return html_page(
        "report of a run",
        _title(report),
        _facts(timings, report),
        _sections(timings, report),
        "Quantities and heuristics are those of Khoshlessan et al. (2020), Table 3 and section 8, "
        "as far as they apply here.",
        wide=["trajectory"],
    )


def notebook_timings(timings: RunTimings) -> str:
    """Create the HTML that a notebook shows: a bar per worker, and a table of time components.

    The table contains the mean and the maximum over the workers, for components with a time above
    0. The bars need matplotlib, and are left out without it.
    """
    report = report_of(timings)
    parts = []
    for drawing in drawings_of(timings, report)[:1]:
        if has_matplotlib():
            with styled(STYLE):
                parts.append(notebook_image(drawing.figure(6), _alternative(drawing)))
        parts.append(_over_workers(report))
    return notebook_page(f"{_title(report)}, {timings.backend}", *parts)


def _alternative(drawing: Drawing) -> str:
    return f"{drawing.title}. {drawing.caption}"


def _title(report: Report) -> str:
    return (
        f"{many(report.n_frames, 'frame')} in {seconds(report.t_total)} "
        f"on {many(report.n_workers, 'worker')}"
    )


def _facts(timings: RunTimings, report: Report) -> Iterator[tuple[str, str]]:
    # If there are few blocks, some workers get none.
    asked = f" of {report.n_asked:,}" if report.n_asked > report.n_workers else ""
    shared = report.n_threads > 1
    facts = {
        "backend": timings.backend,
        "schedule": timings.schedule,
        "workers": f"{report.n_workers:,}{asked} on {many(report.n_hosts, 'host')}",
        "frames": f"{report.n_frames:,}",
        "threads": f"up to {report.n_threads:,} in a frame" * shared,
        "blocks": f"{report.n_blocks:,}",
        "total time": seconds(report.t_total),
        "read": f"{amount(report.bytes_read)}, {rate(report.read_rate)}" * bool(report.calls),
        "from the cache": amount(report.bytes_cached) * bool(report.bytes_cached),
        "requests": requests_text(report) * bool(report.requests),
        "begun": timings.date,
        "on host": timings.host,
        "paceline": timings.version,
        "trajectory": shortened(timings.trajectory),
    }
    return ((name, value) for name, value in facts.items() if value)


def requests_text(report: Report) -> str:
    """Describe a run's requests to object stores: their number, repeats, latency and waiting."""
    repeated = f", {report.requests_repeated:,} of them repeated" * bool(report.requests_repeated)
    return (
        f"{report.requests:,} to object stores{repeated}, {seconds(report.latency)} to a response; "
        f"a worker waited {seconds(report.t_stalled)}"
    )


def _sections(timings: RunTimings, report: Report) -> Iterator[Html]:
    drawings = drawings_of(timings, report)
    if not drawings:
        yield section("Nothing to report", element("p", "No block took any time."))
        return
    # Number the workers in order of host, then of process, as in the figures.
    names = sorted((worker.worker for worker in report.workers), key=natural)
    numbers = {name: number for number, name in enumerate(names, 1)}
    yield section("What to know", _recommendations(report))
    yield section("Stragglers", _stragglers(report, numbers))
    yield section("Where the time went", *map(_figure, drawings))
    yield section("Over workers", _over_workers(report))
    yield section("The whole run", _whole_run(report))
    yield section("In the papers' names", _published(report))
    yield section("Each worker", _each_worker(report, numbers))


def _recommendations(report: Report) -> Html:
    items = (
        element("li", element("p", f"{one.text} (Heuristic {one.heuristic}.)"))
        if one.heuristic
        else element("li", element("p", one.text))
        for one in advice_of(report)
    )
    return element("ul", *items, class_="advice")


def _stragglers(report: Report, numbers: dict[str, int]) -> Html:
    if not report.stragglers:
        return element(
            "p",
            "None: no worker's time per frame was over 1.5 times the median, nor over twice that "
            "of the fastest quarter, by 0.1 s in all.",
        )
    columns = ["worker", "host", "slow at", "lost (s)", "× median", "× fastest quarter"]
    rows = (
        (
            str(numbers[one.worker]),
            one.host,
            one.cause,
            *map(number, (one.seconds_lost, one.factor, one.factor_fastest)),
            " and ".join(one.rules),
            f"{one.n_frames:,}",
        )
        for one in report.stragglers[:LINES]
    )
    about = (
        f"{many(len(report.stragglers), 'worker')} whose time per frame was over 1.5 times the "
        "median, or over twice that of the fastest quarter; those first that lost most time."
    )
    if len(report.stragglers) > LINES:
        about += f" The first {LINES} are listed."
    columns += ["by the rule of the", "frames"]
    return html_table(columns, rows, about=about, text=(1, 2, 6))


def _figure(drawing: Drawing) -> Html:
    words = element("figcaption", element("h3", drawing.title), element("p", drawing.caption))
    return element("figure", words, inline_svg(drawing.figure(), _alternative(drawing)))


def _nonzero_components(report: Report) -> list[Component]:
    """Return the components of workers' time for which any worker has a time above 0."""
    return [part for part in (*WALL_TIME, COMM) if report.over_workers[part.quantity].most]


def _over_workers(report: Report) -> Html:
    rows = []
    for part in _nonzero_components(report):
        over, share = report.over_workers[part.quantity], report.shares.get(part.quantity)
        times = number(over.mean), number(over.most), "" if share is None else percent(share)
        rows.append((part.label, part.quantity, *times, part.meaning))
    columns = ("part", "quantity", "mean (s)", "maximum (s)", "share", "what it is")
    return html_table(columns, rows, text=(1, 5))


def _whole_run(report: Report) -> Html:
    rows = []
    for name, meaning in OF_RUN.items():
        text = _FORMS.get(name, number)(getattr(report, name)) + " s" * name.startswith("t_")
        rows.append((name, text, meaning))
    return html_table(("quantity", "value", "what it is"), rows, text=(2,))


def _published(report: Report) -> Html:
    rows = [
        (name, number(report.published[name].mean), number(report.published[name].most), meaning)
        for name, meaning in PUBLISHED.items()
    ]
    about = (
        "Of a worker, as Khoshlessan et al. (2020) define them for an MPI rank in their Table 3; "
        "t_total, the largest t_N, begins here when blocks were first assigned."
    )
    columns = ("quantity", "mean (s)", "maximum (s)", "sum of")
    return html_table(columns, rows, about=about, text=(3,))


def _each_worker(report: Report, numbers: dict[str, int]) -> Html:
    slow = {one.worker for one in report.stragglers}
    order = sorted(report.workers, key=lambda one: (one.worker not in slow, -one.seconds_per_frame))
    shown = sorted(order[:LINES], key=lambda one: numbers[one.worker])
    parts = _nonzero_components(report)
    columns = ("worker", "host:process:thread", "blocks", "frames", *(one.label for one in parts))
    rows = (
        (
            str(numbers[one.worker]),
            one.worker,
            f"{one.n_blocks:,}",
            f"{one.n_frames:,}",
            *(number(part.of(one)) for part in parts),
            f"{one.seconds_per_frame * 1e6:,.1f}",
            amount(one.bytes),
            f"{one.calls:,}",
        )
        for one in shown
    )
    about = "Seconds, where no other unit is named. Stragglers are coloured."
    if sum(worker.n_frames for worker in report.workers) > report.n_frames:
        about += " Frames count once in each pass over them."
    if len(shown) < report.n_workers:
        about += (
            f" Of {report.n_workers:,} workers the {len(shown)} with the longest time per frame; "
            "saved timings (.csv) have all."
        )
    return html_table(
        (*columns, "µs/frame", "read", "calls"),
        rows,
        about=about,
        text=(1,),
        slow=[one.worker in slow for one in shown],
    )
