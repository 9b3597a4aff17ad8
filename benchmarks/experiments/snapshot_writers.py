"""The "sorted" method with different numbers of writing ranks."""

from matplotlib.figure import Figure

from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    median,
    ratio,
    spread,
)
from benchmarks.experiments.published import published, stated
from benchmarks.experiments.scaling import Scaling
from benchmarks.experiments.snapshot_methods import PARTS, cells_of, rates
from benchmarks.experiments.style import OURS, legend_below, panels, points, stacked
from benchmarks.snapshot_cases import Case, measure_cases
from benchmarks.table import Table

RANKS = 16
WRITERS = (1, 2, 4, 8, 16)


def measure(setting: Setting) -> list[Row]:
    cells = cells_of(setting)
    cases = [
        Case("sorted", n, cells, writers=writers)
        for n in setting.ranks_or((RANKS,))
        for writers in (2**k for k in range(n.bit_length()))
    ]
    return measure_cases(setting.scratch, cases, setting.repeats)


def table(rows: list[Row]) -> Table:
    found = Table(
        f"{RANKS} ranks; ms of a dump, and of its parts, means of those that write",
        ("writers", "ms", "MB/s", *(label for label, _ in PARTS.values()), "messages", "writes"),
    )
    for n in WRITERS:
        case = {"writers": n}
        total = cell(spread(rows, "t_total", 1e3, **case))
        rate = cell(spread(rows, "mb_s", **case))
        parts = [cell(spread(rows, key, 1e3, **case)) for key in PARTS]
        counts = [cell(spread(rows, key, **case)) for key in ("n_messages", "n_writes")]
        found.rows.append((str(n), total, rate, *parts, *counts))
    for row in published("todorov_bush_figures", method="MWRITE_SORTED", kind="peak"):
        name = f"published: {row['machine']}, {row['writers']} writers"
        found.rows.append((name, "–", digits(row["mbytes_per_s"]), *["–"] * (len(PARTS) + 2)))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = panels(2)
    points(left, WRITERS, [spread(rows, "t_total", 1e3, writers=n) for n in WRITERS], OURS, "")
    left.set(xscale="log", xlabel=f"writers, of {RANKS} ranks", ylabel="ms a dump", ylim=(0, None))
    left.set_xticks(WRITERS, [str(n) for n in WRITERS], minor=False)
    left.minorticks_off()
    parts = [{key: 1e3 * median(rows, key, writers=n) for key in PARTS} for n in WRITERS]
    stacked(right, [str(n) for n in WRITERS], parts, PARTS)
    right.set(xlabel="ms, mean of writers", ylabel="writers")
    legend_below(figure, right)
    return figure


def finding(rows: list[Row]) -> str:
    times = {n: median(rows, "t_total", writers=n) for n in WRITERS}
    best = min(times, key=lambda n: times[n])
    fastest = cell(spread(rows, "t_total", 1e3, writers=best))
    longer = {
        name: cell(ratio(rows, "t_total", {"writers": n}, {"writers": best}))
        for name, n in (("one", 1), ("all", RANKS))
        if n != best
    }
    others = " and ".join(f"{name} it took {by} times as long" for name, by in longer.items())
    parts = {key: median(rows, key, writers=best) for key in PARTS}
    share = {key: f"{100 * value / sum(parts.values()):.0f}" for key, value in parts.items()}
    disk = stated("todorov_bush_stated", quantity="part of a dump that is writing to disk")
    theirs = [
        digits(stated("todorov_bush_stated", where=machine, quantity="best number of writers"))
        for machine in ("HECToR", "HPCx")
    ]
    return (
        f"Of {RANKS} ranks on 2 cores {best} writing were fastest, {fastest} ms; with "
        f"{others}. The report found {theirs[0]} best on HECToR and {theirs[1]} on HPCx. Of the "
        f"best dump {share['t_communicate']} % is communication, {share['t_sort']} % sorting, "
        f"{share['t_format']} % formatting and {share['t_write']} % writing, which was about "
        f"{digits(disk)} % in the report."
    )


EXPERIMENT = Experiment(
    title="How many ranks should write",
    source="Todorov & Bush, HPCxTR0806, Figs 2, 4 and 5",
    question=(
        "A subset of the ranks writes. The report tried several sizes and found a flat optimum "
        "between few writers, which cannot use the bandwidth of the disks, and many, which disturb "
        "each other; nearly all of the time of a dump was writing."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The report's writers wait for disks that many users share. Here bytes go to the page "
        "cache of one machine, so writing is a copy in memory, and the two cores are busy with "
        "formatting and with sending atoms between ranks. A rank that waits for a core counts as "
        "communicating."
    ),
    scaling=Scaling(
        "ms a MB",
        lambda row: 1e3 / row["mb_s"],
        line="ranks",
        parts=PARTS,
        published=rates,
        x="writers",
    ),
)
