"""XTC, DCD and NetCDF: time to read and compute a frame, and time of the whole job."""

from matplotlib.figure import Figure

from benchmarks.experiments.cases import SCALING, TOOLS, Case, measure_cases, speed_up
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, digits, median, spread
from benchmarks.experiments.published import stated
from benchmarks.experiments.style import COLOURS, bars, panels
from benchmarks.table import Table

FORMATS = {"xtc": "XTC", "dcd": "DCD", "nc": "NetCDF"}
RANKS = (1, 2)


def measure(setting: Setting) -> list[Row]:
    cases = [
        Case(tool, n, (str(setting.data.trajectory(suffix)),), setting.data.n_frames, suffix)
        for n in setting.ranks_or(RANKS)
        for suffix in FORMATS
        for tool in TOOLS
    ]
    sizes = {s: setting.data.trajectory(s).stat().st_size for s in FORMATS}
    rows = measure_cases(setting, cases)
    for row in rows:
        n_frames = row["frames"] * row["passes"] / row["ranks"]
        row["us_io"], row["us_comp"] = (1e6 * row[key] / n_frames for key in ("t_io", "t_comp"))
        row["bytes_frame"] = sizes[row["layout"]] / setting.data.n_frames
    return rows


def table(rows: list[Row]) -> Table:
    found = Table(
        "µs a frame on one rank, and the speed-up of the whole job by two",
        ("format", "kB a frame", "tool", "t_io", "t_comp", "speed-up"),
    )
    for suffix, name in FORMATS.items():
        for tool in TOOLS:
            case = {"tool": tool, "layout": suffix, "ranks": 1}
            times = [cell(spread(rows, part, **case)) for part in ("us_io", "us_comp")]
            size = digits(median(rows, "bytes_frame", **case) / 1e3)
            found.rows.append(
                (name, size, tool, *times, cell(speed_up(rows, tool=tool, layout=suffix)))
            )
    ms = stated("khoshlessan2017_stated", quantity="t_io per frame")
    comp = stated("khoshlessan_stated_times", where="Comet (2017)")
    found.rows.append(
        ("DCD", "–", "published: Comet, SSD", digits(1e3 * ms), digits(1e3 * comp), "–")
    )
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, middle, right) = panels(3, 2.9)
    cases = [(suffix, tool) for suffix in FORMATS for tool in TOOLS]
    colours = [COLOURS[tool] for _, tool in cases]
    for axes, column, n, title in (
        (left, "us_io", 1, "t_io, 1 rank"),
        (middle, "us_io", 2, "t_io, each of 2 ranks"),
        (right, "us_frame", 2, "whole job, 2 ranks"),
    ):
        values = [spread(rows, column, tool=tool, layout=suffix, ranks=n) for suffix, tool in cases]
        names = [f"{FORMATS[suffix]}, {tool}" for suffix, tool in cases]
        bars(axes, names if axes is left else [""] * len(names), values, colours)
        axes.set(title=title, xlabel="µs a frame")
    ms = stated("khoshlessan2017_stated", quantity="t_io per frame")
    left.axvline(1e3 * ms, color="#777777", linestyle="--", linewidth=1, zorder=0)
    left.text(1e3 * ms, 5.6, " DCD, Comet SSD", fontsize=7, color="#777777", va="bottom")
    return figure


def finding(rows: list[Row]) -> str:
    times = {
        tool: [cell(spread(rows, "us_io", tool=tool, layout=suffix, ranks=1)) for suffix in FORMATS]
        for tool in TOOLS
    }
    names = ", ".join(FORMATS.values())
    return (
        f"Reading and decoding a frame of {names} takes {', '.join(times['MDAnalysis'])} µs in "
        f"the papers' way, {', '.join(times['paceline'])} µs with paceline."
    )


EXPERIMENT = Experiment(
    title="Formats",
    source="Khoshlessan et al. 2017, Figs 2, 3 and 5",
    question=(
        "On an SSD, DCD was fastest on few cores and stopped scaling first; XTC is slower to "
        "decode and scaled furthest, because other workers can read during decoding."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "From a page cache plain formats cost copying, and XTC costs decoding. MDAnalysis reads "
        "NetCDF through another library than in 2017, which the authors already found about five "
        "times as fast; paceline reads the bytes of positions directly, as with DCD. One machine "
        "and its page cache cannot show the limits of plain formats on a slow, shared disk. The "
        "workers are MPI ranks; the paper used Dask."
    ),
    scaling=SCALING,
)
