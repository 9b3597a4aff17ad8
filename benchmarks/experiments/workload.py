"""The RMSD computed 1, 40, 70 and 100 times for every frame that is read."""

from dataclasses import replace

from matplotlib.figure import Figure

from benchmarks.experiments.cases import SCALING, TOOLS, Case, measure_cases, speed_up
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, spread
from benchmarks.experiments.published import FRAMES_2020, published
from benchmarks.experiments.scaling import Published
from benchmarks.experiments.style import COLOURS, PAPER, panels, points
from benchmarks.table import Table

WORKLOADS = (1, 40, 70, 100)
RANKS = (1, 2)
FRAMES = {"MDAnalysis": 300, "paceline": 1000}
TITLES = {"MDAnalysis": "papers' way", "paceline": "paceline"}


def measure(setting: Setting) -> list[Row]:
    whole = (str(setting.data.trajectory("xtc")),)
    cases = [
        Case(tool, n, whole, frames_of(setting, tool, workload), workload=workload)
        for workload in WORKLOADS
        for n in setting.ranks_or(RANKS)
        for tool in TOOLS
    ]
    rows = measure_cases(setting, cases)
    for row in rows:
        row["comp_by_io"] = row["t_comp"] / row["t_io"]
        # The papers count waiting for other ranks and sending as one component.
        row["comp_by_comm"] = row["t_comp"] / max(row["t_comm"] + row["t_wait"], 1e-9)
    return rows


def frames_of(setting: Setting, tool: str, workload: int) -> int:
    """Return the number of frames; at the papers' scale all workloads take about as long."""
    frames = setting.frames(FRAMES[tool], setting.data, 32)
    return frames // workload if setting.scale is None else frames


def serial_times() -> list[Published]:
    """Return t_io + t_comp of one process, µs a frame."""
    return [
        Published(
            "Comet, t_io + t_comp",
            {1: 1e6 * (row["t_io"] + row["t_comp"]) / FRAMES_2020},
            (row["workload"],),
        )
        for row in published("khoshlessan2020_tableB1_workload")
    ]


def table(rows: list[Row]) -> Table:
    found = Table(
        "Medians (ranges); R = t_comp / t_io on one rank, R_comm = t_comp / t_comm on two",
        ("workload", "tool", "R", "R, Comet", "R_comm", "speed-up without opening"),
    )
    for workload in WORKLOADS:
        (theirs,) = published("khoshlessan2020_tableB1_workload", workload=workload)
        for tool in TOOLS:
            case = {"tool": tool, "workload": workload}
            found.rows.append(
                (
                    f"×{workload}",
                    tool,
                    cell(spread(rows, "comp_by_io", **case, ranks=1)),
                    f"{theirs['r_measured']}",
                    cell(spread(rows, "comp_by_comm", **case, ranks=2)),
                    cell(speed_up(rows, opened=True, tool=tool, workload=workload)),
                )
            )
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, middle, right) = panels(3, 2.9)
    for tool in TOOLS:
        for axes, column, n in ((left, "comp_by_io", 1), (right, "comp_by_comm", 2)):
            values = [spread(rows, column, tool=tool, workload=x, ranks=n) for x in WORKLOADS]
            points(axes, WORKLOADS, values, COLOURS[tool], TITLES[tool])
        speeds = [speed_up(rows, opened=True, tool=tool, workload=x) for x in WORKLOADS]
        points(middle, WORKLOADS, speeds, COLOURS[tool], TITLES[tool])
    theirs = published("khoshlessan2020_tableB1_workload")
    ratios = [row["r_measured"] for row in theirs]
    left.plot(WORKLOADS, ratios, "s--", color=PAPER, label="Comet, Table B1", markersize=4)
    left.set(ylabel="t_comp / t_io on 1 rank", yscale="log")
    middle.axhline(2, color=PAPER, linewidth=0.8)
    middle.set(ylabel="speed-up of 2 ranks, opened", ylim=(0, None))
    right.set(ylabel="t_comp / t_comm on 2 ranks", yscale="log")
    for axes in (left, middle, right):
        axes.set(xlabel="RMSDs a frame", xticks=WORKLOADS)
    left.legend(loc="lower right")
    return figure


def finding(rows: list[Row]) -> str:
    ratio = {
        tool: [cell(spread(rows, "comp_by_io", tool=tool, workload=x, ranks=1)) for x in (1, 100)]
        for tool in TOOLS
    }
    speed = [cell(speed_up(rows, opened=True, tool="paceline", workload=x)) for x in (1, 100)]
    theirs = [cell(speed_up(rows, opened=True, tool="MDAnalysis", workload=x)) for x in (1, 100)]
    low, high = (ratio[tool] for tool in TOOLS)
    return (
        f"R goes from {low[0]} to {low[1]} in the papers' way and from {high[0]} to {high[1]} "
        f"with paceline. Once files are open, two ranks are {theirs[0]} times as fast as one at "
        f"×1 and {theirs[1]} times at ×100 in the papers' way; with paceline {speed[0]} and "
        f"{speed[1]} times."
    )


EXPERIMENT = Experiment(
    title="More computing per frame",
    source="Khoshlessan et al. 2020, Table B1, Figs B5 and B6",
    question=(
        "The same RMSD is computed X times for each frame, which makes an I/O-bound job a "
        "compute-bound one. R grew in proportion to X, and with it the speed-up on many cores."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "R is the ratio of computing to reading alone. The file is in the page cache, so reading "
        "is decoding, which cores share like computing. A larger X makes the job longer, so that "
        "waiting for the other rank is a smaller part of it. Two cores without a shared file "
        "system cannot test whether more computing per byte scales further, as in the papers."
    ),
    scaling=replace(SCALING, variants=("workload",), published=serial_times),
)
