"""Measure communication with and without reading before it."""

from matplotlib.figure import Figure

from benchmarks.experiments.cases import TOOLS
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, median, spread
from benchmarks.experiments.memory import SOURCES, SOURCES_SCALING, of_sources
from benchmarks.experiments.published import stated
from benchmarks.experiments.style import PARTS, legend_below, panels
from benchmarks.table import Table

#: Four ranks share two cores, and so end at different times, which this experiment shows.
RANKS = (2, 4)
#: Components whose sum the papers call t_comm.
WAITING, SENDING = "t_wait", "t_comm"
WAYS = [(tool, source) for source in SOURCES for tool in TOOLS]


def measure(setting: Setting) -> list[Row]:
    return of_sources(setting, setting.ranks_or(RANKS))


def table(rows: list[Row]) -> Table:
    found = Table(
        "ms, mean of ranks",
        ("ranks", "positions from", "tool", "waiting for others", "sending and receiving"),
    )
    for n in RANKS:
        for tool, source in WAYS:
            case = {"tool": tool, "source": source, "ranks": n}
            times = [cell(spread(rows, part, 1e3, **case)) for part in (WAITING, SENDING)]
            found.rows.append((str(n), source, tool, *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 2.8)
    for axes, n in zip(panes, RANKS, strict=True):
        left = [0.0] * len(WAYS)
        for part in (WAITING, SENDING):
            widths = [
                1e3 * median(rows, part, tool=tool, source=source, ranks=n) for tool, source in WAYS
            ]
            label, colour = PARTS[part]
            axes.barh(range(len(WAYS)), widths, left=left, label=label, color=colour)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(WAYS)), [f"{source}\n{tool}" for tool, source in WAYS])
        axes.invert_yaxis()
        axes.set(title=f"{n} ranks on 2 cores", xlabel="ms, mean of ranks")
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    case = {"tool": "MDAnalysis", "ranks": RANKS[-1]}
    waits = [cell(spread(rows, WAITING, 1e3, **case, source=source)) for source in SOURCES]
    sends = [cell(spread(rows, SENDING, 1e3, **case, source=source)) for source in SOURCES]
    theirs = stated("khoshlessan_stated_times", quantity="t_comm of stragglers")
    return (
        f"In the papers' way {RANKS[-1]} ranks wait {waits[0]} ms for one another after reading "
        f"and {waits[1]} ms after work in memory; then sending takes {sends[0]} and {sends[1]} "
        f"ms. The paper's t_comm, about {theirs:g} s on stragglers, is the sum of both."
    )


EXPERIMENT = Experiment(
    title="Communication, with and without reading",
    source="Khoshlessan et al. 2020, Figs 2d and 3b, section 6.5",
    question=(
        "Communication took long on Comet if ranks had read a shared file, and little if positions "
        "came from memory; the authors suspected that reading disturbed the network."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The papers' t_comm is the time inside MPI_Gather, and so includes waiting for late "
        "ranks. Here a barrier before the gather separates the two. Waiting grows with "
        "differences between ranks, with or without a disturbed network. With paceline, t_wait "
        "also holds the time until a rank has its first block."
    ),
    scaling=SOURCES_SCALING,
)
