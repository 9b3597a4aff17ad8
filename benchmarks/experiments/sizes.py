"""Trajectories of increasing length: time per frame."""

from matplotlib.figure import Figure

from benchmarks.experiments.cases import SCALING, TOOLS, Case, measure_cases
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, median, spread
from benchmarks.experiments.style import COLOURS, panels, points
from benchmarks.table import Table

#: Numbers of copies in the papers' trajectories; the numbers are divided by `PART` here.
SIZES, PART = (50, 100, 300, 600), 50
#: Maximum number of copies; more would take the papers' way too long.
MOST = {"MDAnalysis": 100, "paceline": 600}
RANKS = (1, 2)
#: Number of times that paceline reads each frame.
PASSES = 2


def measure(setting: Setting) -> list[Row]:
    whole = str(setting.data.trajectory("xtc"))
    cases = [
        Case(
            tool,
            n,
            (whole,) * (size // PART),
            setting.data.n_frames * size // PART,
            f"x{size}",
            repeated=PASSES,
        )
        for size in SIZES
        for n in setting.ranks_or(RANKS)
        for tool in TOOLS
        if size <= MOST[tool]
    ]
    return measure_cases(setting, cases)


def sizes_of(tool: str) -> list[int]:
    return [size for size in SIZES if size <= MOST[tool]]


def table(rows: list[Row]) -> Table:
    found = Table(
        f"µs a frame, of the whole job; paceline takes each frame {PASSES} times",
        ("size", "frames", "tool", "1 rank", "2 ranks"),
    )
    for size in SIZES:
        for tool in TOOLS:
            if size <= MOST[tool]:
                case = {"tool": tool, "layout": f"x{size}"}
                times = [cell(spread(rows, "us_frame", **case, ranks=n)) for n in RANKS]
                frames = f"{median(rows, 'frames', **case):,.0f}"
                found.rows.append((f"×{size} / {PART}", frames, tool, *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 2.8)
    for axes, tool in zip(panes, TOOLS, strict=True):
        for n, style in zip(RANKS, (1.0, 0.5), strict=True):
            values = [
                spread(rows, "us_frame", tool=tool, layout=f"x{size}", ranks=n)
                for size in sizes_of(tool)
            ]
            points(axes, sizes_of(tool), values, COLOURS[tool], f"{n} rank{'s'[: n - 1]}")
            for line in axes.lines[-3:]:
                line.set_alpha(style)
        axes.set(title=tool, xlabel=f"copies of the trajectory / {PART}", ylabel="µs a frame")
        axes.set(ylim=(0, None), xlim=(0, 650), xticks=SIZES, xticklabels=SIZES)
        axes.legend()
    return figure


def finding(rows: list[Row]) -> str:
    first, last = (
        cell(spread(rows, "us_frame", tool="paceline", layout=f"x{size}", ranks=2))
        for size in (SIZES[0], SIZES[-1])
    )
    longest = SIZES[-1] // SIZES[0]
    return (
        f"With {longest} times as many frames the time of 2 ranks of paceline goes from {first} "
        f"to {last} µs a frame."
    )


EXPERIMENT = Experiment(
    title="Sizes of the trajectory",
    source="Khoshlessan et al. 2017, trajectories of 50 to 600 copies",
    question=(
        "The time was proportional to the number of frames, so that only strong scaling was "
        f"studied; here every size is divided by {PART}."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The fixed cost of a job (parsing the topology and opening, without importing) matters "
        "most in the shortest. The copies are a chain of the same file, which stays in the page "
        "cache; the papers had one long file on a disk."
    ),
    scaling=SCALING,
)
