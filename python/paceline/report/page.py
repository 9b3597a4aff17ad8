"""A report as one page that needs nothing else: no network, no scripts, no fonts."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from string import Template

from paceline.report import elements
from paceline.report.advice import advice_of
from paceline.report.clocks import on_one_clock
from paceline.report.elements import Row
from paceline.report.figures import drawings_of
from paceline.report.meanings import OF_RUN, OF_WORKERS
from paceline.report.naming import natural
from paceline.report.numbers import Report, report_of
from paceline.report.parts import COMMUNICATING, WAITING, WORKING, Part
from paceline.report.vector import inline_svg
from paceline.report.wording import amount, many, number, shortened
from paceline.report.words import Advice, percent, rate, seconds
from paceline.timing import Timings, WorkerTiming

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
        yield elements.section("Nothing to tell", elements.paragraph("No block took any time."))
        return
    numbers = _numbers(report)
    yield elements.section("What to know", elements.advice(map(_said, advice_of(report))))
    yield _stragglers(report, numbers)
    figures = (
        elements.figure(
            drawing.title,
            drawing.caption,
            inline_svg(drawing.figure(), f"{drawing.title}. {drawing.caption}"),
        )
        for drawing in drawings
    )
    yield elements.section("Where the time went", *_about_clocks(moved), *figures)
    yield elements.section("Over workers", _over_workers(report))
    yield elements.section("The whole run", _whole_run(report))
    yield elements.section("Each worker", _each_worker(report, numbers))


def _said(advice: Advice) -> str:
    if advice.heuristic:
        return f"{advice.text} (Heuristic {advice.heuristic}.)"
    return advice.text


def _about_clocks(moved: Sequence[str]) -> Iterator[str]:
    if moved:
        some = ", ".join(moved[:5]) + " …" * (len(moved) > 5)
        yield elements.paragraph(
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
    return elements.facts(
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
        return elements.section(
            title,
            elements.paragraph(
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
    return elements.section(title, elements.table(columns, rows, caption=caption, text=(1, 2, 6)))


def _taken(report: Report) -> list[Part]:
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
    return elements.table(columns, rows, text=(1, 5))


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
    return elements.table(("quantity", "value", "what it is"), rows, text=(2,))


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
    return elements.table(columns, rows, caption=caption, text=(1,))


def _shown(report: Report, slow: set[str]) -> Sequence[WorkerTiming]:
    order = sorted(
        report.workers, key=lambda worker: (worker.worker not in slow, -worker.seconds_per_frame)
    )
    return order[:LINES]
