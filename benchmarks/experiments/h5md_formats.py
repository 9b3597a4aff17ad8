"""H5MD compared with DCD, XTC and TRR: time to read a frame in one process."""

from matplotlib.figure import Figure

from benchmarks.experiments.cases import TOOLS
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, digits, median, spread
from benchmarks.experiments.h5md_cases import Case, measure_cases
from benchmarks.experiments.published import published
from benchmarks.experiments.style import COLOURS, bars, panels
from benchmarks.h5md_files import h5md_file
from benchmarks.table import Table

FORMATS = {"h5md": "H5MD", "dcd": "DCD", "xtc": "XTC", "trr": "TRR"}
#: The paper's names of the files.
FILES = {"h5md": "H5MD-chunked", "dcd": "DCD", "xtc": "XTC", "trr": "TRR"}
ACCESSES = ("frame by frame", "selection")
#: The paper's way, paceline's reader used in the paper's way, and paceline's own way.
WAYS = [(TOOLS[0], ACCESSES[0]), (TOOLS[1], ACCESSES[0]), (TOOLS[1], ACCESSES[1])]


def measure(setting: Setting) -> list[Row]:
    data = setting.tiled
    files = {
        suffix: h5md_file(data, "frame") if suffix == "h5md" else data.trajectory(suffix)
        for suffix in FORMATS
    }
    cases = [
        Case(tool, 1, str(path), suffix, data.n_frames, access)
        for suffix, path in files.items()
        for tool, access in WAYS
    ]
    rows = measure_cases(setting, data, cases)
    for row in rows:
        row["bytes_frame"] = files[row["layout"]].stat().st_size / data.n_frames
    return rows


def table(rows: list[Row]) -> Table:
    found = Table(
        "size by that of H5MD, here and published; ms a frame of reading on one rank",
        ("format", "size", "published size", *(f"{tool}, {access}" for tool, access in WAYS)),
    )
    theirs = {
        suffix: published("jakupovic2021_files", name=name)[0]["size_gib"]
        for suffix, name in FILES.items()
    }
    whole = median(rows, "bytes_frame", layout="h5md")
    for suffix, name in FORMATS.items():
        times = [
            cell(spread(rows, "ms_io", layout=suffix, tool=tool, access=access))
            for tool, access in WAYS
        ]
        size = digits(median(rows, "bytes_frame", layout=suffix) / whole)
        found.rows.append((name, size, digits(theirs[suffix] / theirs["h5md"]), *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(len(WAYS), 2.3)
    for axes, (tool, access) in zip(panes, WAYS, strict=True):
        values = [spread(rows, "ms_io", layout=s, tool=tool, access=access) for s in FORMATS]
        names = list(FORMATS.values()) if axes is panes[0] else [""] * len(FORMATS)
        bars(axes, names, values, [COLOURS[tool]] * len(FORMATS))
        axes.set(title=f"{tool}, {access}", xlabel="t_io, ms a frame")
    return figure


def finding(rows: list[Row]) -> str:
    def times(tool: str, access: str) -> str:
        return ", ".join(
            cell(spread(rows, "ms_io", layout=suffix, tool=tool, access=access))
            for suffix in FORMATS
        )

    return (
        f"A frame of {', '.join(FORMATS.values())} takes MDAnalysis {times(*WAYS[0])} ms, and "
        f"paceline {times(*WAYS[1])} ms for the whole frame, {times(*WAYS[2])} ms for the Cα atoms."
    )


EXPERIMENT = Experiment(
    title="H5MD beside other formats",
    source="Jakupovic & Beckstein 2021, figure comparing formats",
    question=(
        "With chunks of one frame H5MD was as fast as DCD on one process, and faster than XTC and "
        "TRR; with automatic chunks it had been the slowest of all."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Uncompressed formats cost their bytes and the work of their reader; XTC has the "
        "smallest file and costs decoding. Of plain formats paceline reads only the bytes of the "
        "selected atoms."
    ),
)
