"""All distances from the first frame, instead of the RMSD."""

from dataclasses import replace

from matplotlib.figure import Figure

from benchmarks.experiments.cases import SCALING, TOOLS, Case, measure_cases, speed_up
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, digits, median, spread
from benchmarks.experiments.published import stated
from benchmarks.experiments.style import PARTS, legend_below, panels, stacked
from benchmarks.measure import Spread
from benchmarks.table import Table

TASKS = {"rmsd": "RMSD", "distances": "distances"}
RANKS = (1, 2)
FRAMES = 2000


def measure(setting: Setting) -> list[Row]:
    whole = (str(setting.data.trajectory("xtc")),)
    frames = setting.frames(FRAMES, setting.data)
    cases = [
        Case(tool, n, whole, frames, task=task)
        for n in setting.ranks_or(RANKS)
        for task in TASKS
        for tool in TOOLS
    ]
    return measure_cases(setting, cases)


def table(rows: list[Row]) -> Table:
    found = Table(
        "µs a frame, of the whole job",
        ("task", "tool", "1 rank", "2 ranks", "speed-up", "computing, 1 rank", "Comet, 2017"),
    )
    for task, name in TASKS.items():
        for tool in TOOLS:
            case = {"tool": tool, "task": task}
            times = [cell(spread(rows, "us_frame", **case, ranks=n)) for n in RANKS]
            theirs = "–"
            if (task, tool) == ("rmsd", "MDAnalysis"):
                theirs = digits(1e3 * stated("khoshlessan_stated_times", where="Comet (2017)"))
            computing = cell(_us(rows, "t_comp", **case, ranks=1))
            found.rows.append((name, tool, *times, cell(speed_up(rows, **case)), computing, theirs))
    return found


def _us(rows: list[Row], part: str, **case: object) -> Spread:
    """Return a part of the time, µs per frame."""
    n_frames = median(rows, "frames", **case) * median(rows, "passes", **case)
    return spread(rows, part, 1e6 / n_frames, **case)


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 2.8)
    for axes, tool in zip(panes, TOOLS, strict=True):
        cases = [{"tool": tool, "task": task, "ranks": n} for task in TASKS for n in RANKS]
        parts = [{key: _us(rows, key, **case).median for key in PARTS} for case in cases]
        stacked(axes, [f"{TASKS[case['task']]}, {case['ranks']}" for case in cases], parts)
        axes.set(title=tool, xlabel="µs a frame, mean of ranks")
    panes[0].set_ylabel("task, ranks")
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    speeds = [[cell(speed_up(rows, tool=tool, task=task)) for task in TASKS] for tool in TOOLS]
    return (
        f"Two ranks do RMSDs {speeds[0][0]} times and distances {speeds[0][1]} times as fast as "
        f"one in the papers' way, {speeds[1][0]} and {speeds[1][1]} times with paceline."
    )


EXPERIMENT = Experiment(
    title="Distances in the place of the RMSD",
    source="Khoshlessan et al. 2017, section on MPI for Python",
    question=(
        "The iterative superposition could make some ranks slow. So all distances between the "
        "atoms of the first and of the current frame were computed, which takes a fixed time; the "
        "stragglers stayed."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The paper gives no figures. Both tools call MDAnalysis's distance_array for each frame "
        "here, so they compute the same; only reading differs. Distances take longer to compute, "
        "so that opening and waiting for the other rank are a smaller part of the job."
    ),
    scaling=replace(SCALING, variants=("task",)),
)
