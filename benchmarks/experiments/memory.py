"""The job without reading: positions come from memory."""

from dataclasses import replace

from matplotlib.figure import Figure

from benchmarks.experiments.cases import SCALING, TOOLS, Case, measure_cases, speed_up
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    median,
    ratio,
    spread,
)
from benchmarks.experiments.published import of_table5, stated
from benchmarks.experiments.scaling import Published
from benchmarks.experiments.style import PARTS, legend_below, panels, stacked
from benchmarks.table import Table

SOURCES = ("file", "memory")
RANKS = (1, 2)
FRAMES = 2000


def measure(setting: Setting) -> list[Row]:
    return of_sources(setting, setting.ranks_or(RANKS))


def of_sources(setting: Setting, ranks: tuple[int, ...]) -> list[Row]:
    """Return rows of RMSDs of frames from a file, and of equal frames in memory."""
    whole = (str(setting.data.trajectory("xtc")),)
    frames = setting.frames(FRAMES, setting.data)
    cases = [
        Case(tool, n, whole, frames, source=source)
        for n in ranks
        for source in SOURCES
        for tool in TOOLS
    ]
    return measure_cases(setting, cases)


def scaling_published() -> list[Published]:
    """Return Table 5 of the shared file, and the time to compute of one process, µs a frame."""
    computing = 1e3 * stated("khoshlessan_stated_times", quantity="t_compute per frame")
    alone = Published("Comet, t_comp", {1: computing}, (SOURCES[1],))
    return [*of_table5("single", (SOURCES[0],)), alone]


def table(rows: list[Row]) -> Table:
    found = Table(
        "µs a frame, of the whole job",
        ("positions from", "tool", "1 rank", "2 ranks", "speed-up without opening"),
    )
    for source in SOURCES:
        for tool in TOOLS:
            case = {"tool": tool, "source": source}
            times = [cell(spread(rows, "us_frame", **case, ranks=n)) for n in RANKS]
            found.rows.append((source, tool, *times, cell(speed_up(rows, opened=True, **case))))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 2.8)
    for axes, tool in zip(panes, TOOLS, strict=True):
        parts = []
        for source in SOURCES:
            for n in RANKS:
                case = {"tool": tool, "source": source, "ranks": n}
                n_frames = median(rows, "frames", **case) * median(rows, "passes", **case)
                parts.append({key: 1e6 * median(rows, key, **case) / n_frames for key in PARTS})
        names = [f"{source}, {n}" for source in SOURCES for n in RANKS]
        stacked(axes, names, parts)
        axes.set(title=tool, xlabel="µs a frame, mean of ranks")
    panes[0].set_ylabel("positions from, ranks")
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    gains = [
        cell(ratio(rows, "us_frame", {"source": "file"}, {"source": "memory"}, tool=tool, ranks=1))
        for tool in TOOLS
    ]
    speeds = [
        [cell(speed_up(rows, opened=True, tool=tool, source=source)) for source in SOURCES]
        for tool in TOOLS
    ]
    return (
        f"Without reading and decoding, one rank is {gains[0]} times as fast in the papers' way "
        f"and {gains[1]} times with paceline. The speed-up of two ranks is {speeds[0][0]} with "
        f"the file and {speeds[0][1]} without in the papers' way, {speeds[1][0]} and "
        f"{speeds[1][1]} with paceline."
    )


SOURCES_SCALING = replace(SCALING, variants=("source",), published=scaling_published)
EXPERIMENT = Experiment(
    title="Without reading",
    source="Khoshlessan et al. 2020, Fig. 3",
    question=(
        "Random positions in memory replace the file. On Comet there were then no stragglers and "
        "the job scaled to three nodes, so reading was their cause."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "This saves mostly decoding, not waiting for a disk, because the file is in the page "
        "cache. For paceline only the computation is timed, on blocks of positions in memory; "
        "the shorter it is, the more waiting for the other rank matters."
    ),
    scaling=SOURCES_SCALING,
)
