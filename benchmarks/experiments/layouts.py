"""One shared file, one file per rank, and a chain of files."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

import paceline
from benchmarks.experiments.cases import SCALING, TOOLS, Case, measure_cases
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    median,
    rounds_of,
    spread,
)
from benchmarks.experiments.published import FRAMES_2020, of_table5, published, stated
from benchmarks.experiments.scaling import Published
from benchmarks.experiments.style import COLOURS, PAPER, PARTS, legend_below, panels, stacked
from benchmarks.measure import Spread
from benchmarks.table import Table

LAYOUTS = ("shared", "split", "chain")
#: Number of files in the chain for any number of ranks, as in the papers' smallest split.
CHAIN = 24
RANKS = (1, 2)
#: Components that are compared with the paper's Table 5.
MEASURED = ("t_io", "t_comp")
ACCESS = {"shared": "single", "split": "splitting"}
TICKS = (2, 24, 72, 192)


def measure(setting: Setting) -> list[Row]:
    whole = setting.data.trajectory("xtc")
    chain = paceline.split(whole, CHAIN, output=setting.scratch / "part.xtc")
    cases = []
    for n in setting.ranks_or(RANKS):
        pieces = setting.scratch / f"of-{n}.xtc"
        split = paceline.split(whole, n, output=pieces) if n > 1 else [whole]
        for layout, files in zip(LAYOUTS, ([whole], split, chain), strict=True):
            names = tuple(map(str, files))
            cases += [Case(tool, n, names, setting.data.n_frames, layout) for tool in TOOLS]
    return measure_cases(setting, cases)


def efficiency(rows: list[Row], tool: str, layout: str, *parts: str) -> Spread:
    """Return the efficiency of two ranks in these parts of their time, by round."""
    one, two = (
        np.sum([rounds_of(rows, part, tool=tool, layout=layout, ranks=n) for part in parts], axis=0)
        for n in RANKS
    )
    return Spread.of(one / two / 2)


def published_efficiency(access: str) -> dict[int, float]:
    """Return the published efficiency of t_io + t_comp on Comet, by number of ranks."""
    rows = published("khoshlessan2020_table5", cluster="Comet", gather="mpi", access=access)
    times = {row["n_processes"]: row["t_io"] + row["t_comp"] for row in rows}
    return {n: times[1] / time / n for n, time in times.items() if n > 1}


def scaling_published() -> list[Published]:
    """Return Table 5, and the times of stragglers and of the other ranks on Comet."""
    found = [one for layout, access in ACCESS.items() for one in of_table5(access, (layout,))]
    for quantity in ("straggling ranks (62 of 72) total", "other ranks total"):
        seconds = stated("khoshlessan_stated_times", quantity=quantity)
        name = f"Comet, {quantity.removesuffix(' total')}"
        found.append(Published(name, {72: 1e6 * seconds / FRAMES_2020}, ("shared",)))
    return found


def table(rows: list[Row]) -> Table:
    found = Table(
        "µs a frame, of the whole job; efficiency of 2 ranks, in the papers of 72 on Comet",
        ("layout", "tool", "1 rank", "2 ranks", "of the job", "of t_io + t_comp", "published"),
    )
    for layout in LAYOUTS:
        for tool in TOOLS:
            case = {"tool": tool, "layout": layout}
            times = [cell(spread(rows, "us_frame", **case, ranks=n)) for n in RANKS]
            ours = [efficiency(rows, *case.values(), *parts) for parts in (("t_total",), MEASURED)]
            access = ACCESS.get(layout) if tool == TOOLS[0] else None
            theirs = digits(published_efficiency(access)[72]) if access else "–"
            found.rows.append((layout, tool, *times, *map(cell, ours), theirs))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, middle, right) = panels(3)
    for axes, tool in ((left, TOOLS[0]), (middle, TOOLS[1])):
        names = [f"{layout}, {n}" for layout in LAYOUTS for n in RANKS]
        parts = [
            {
                key: 1e6
                * median(rows, key, tool=tool, layout=layout, ranks=n)
                / frames_of(rows, tool)
                for key in PARTS
            }
            for layout in LAYOUTS
            for n in RANKS
        ]
        stacked(axes, names, parts)
        axes.set_title(tool)
        axes.set_xlabel("µs a frame, mean of ranks")
    for (layout, access), style in zip(ACCESS.items(), ("-", "--"), strict=True):
        theirs = published_efficiency(access)
        right.plot(
            list(theirs), list(theirs.values()), style, color=PAPER, label=f"{layout}, Comet"
        )
    for layout, marker in zip(LAYOUTS, "os^", strict=True):
        right.plot([], marker, color=PAPER, label=f"{layout}, here")
        for tool in TOOLS:
            found = efficiency(rows, tool, layout, *MEASURED)
            reach = [[found.median - found.low], [found.high - found.median]]
            style = {"fmt": marker, "color": COLOURS[tool], "capsize": 3, "alpha": 0.7}
            right.errorbar(2, found.median, reach, **style)
    right.set(xscale="log", xticks=TICKS, xticklabels=TICKS, ylim=(0, 1.4), xlabel="ranks")
    right.set_title("efficiency of t_io + t_comp")
    right.minorticks_off()
    right.legend(loc="lower left", fontsize=7, bbox_to_anchor=(0.1, 0))
    legend_below(figure, left)
    return figure


def frames_of(rows: list[Row], tool: str) -> int:
    row = next(row for row in rows if row["tool"] == tool)
    return row["frames"] * row["passes"]


def finding(rows: list[Row]) -> str:
    ours = sorted(
        (efficiency(rows, "paceline", layout, "t_total") for layout in LAYOUTS),
        key=lambda found: found.median,
    )
    opening = {
        tool: [
            cell(spread(rows, "t_open", 1e3, tool=tool, layout=layout, ranks=2))
            for layout in ("shared", "chain")
        ]
        for tool in TOOLS
    }
    times = [cell(spread(rows, "us_frame", tool=t, layout="shared", ranks=2)) for t in TOOLS]
    return (
        f"On 2 ranks paceline takes {times[1]} µs a frame of the shared file, and the "
        f"papers' way {times[0]}; its efficiency depends on the layout, from "
        f"{cell(ours[0])} to {cell(ours[-1])}. Opening {CHAIN} files instead of one takes "
        f"the papers' way from {opening['MDAnalysis'][0]} to "
        f"{opening['MDAnalysis'][1]} ms on each rank, and paceline from "
        f"{opening['paceline'][0]} to {opening['paceline'][1]} ms."
    )


EXPERIMENT = Experiment(
    title="Shared file, split files, chain",
    source="Khoshlessan et al. 2020, Figs 2, 4 and C7, Table 5",
    question=(
        "RMSD of the Cα atoms with MPI, from one XTC file that all ranks read, from one file for "
        "each rank, and from a chain of files that each rank opens all of. On Comet the shared "
        "file scaled to one node; split files did better; with the chain, opening and closing "
        "became the limit."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Both ranks share one machine and one page cache, so there is no contention for locks or "
        "servers of a file system, and reading cannot show the differences between layouts of the "
        "paper. Opening a chain costs time, in the papers' way on every rank for every file. "
        "paceline's ranks open a file for the first block of it that they read, and blocks are "
        "assigned dynamically, so that no layout has to fit the number of ranks."
    ),
    scaling=replace(SCALING, published=scaling_published),
)
