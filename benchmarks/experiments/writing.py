"""Writing H5MD from XTC, DCD and TRR."""

import tempfile
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import converters
from benchmarks.bench_convert import MEMORY
from benchmarks.converters import Conversion
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    ratio,
    spread,
)
from benchmarks.experiments.published import stated
from benchmarks.experiments.style import OTHER, OURS, PAPER, bars, panels
from benchmarks.measure import Spread, samples, subjects
from benchmarks.table import Table

#: Source format, and compression level of chunks of one frame.
CASES = (("xtc", 0), ("dcd", 0), ("trr", 0), ("xtc", 1), ("xtc", 9))
WAYS = {
    "MDAnalysis": (converters.mdanalysis,),
    "paceline": (converters.paceline, 1),
    "paceline, 2 threads": (converters.paceline, 2),
}
FRAMES = 400
#: Size of an atom's position, bytes.
ATOM = 12


def measure(setting: Setting) -> list[Row]:
    data = setting.water
    frames = min(setting.amount(FRAMES, 2), data.n_frames)
    rows = []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else setting.scratch) as folder:
        for source, gzip in CASES:
            task = Conversion(data, source, "h5md", None, Path(folder), gzip or None)
            how = {way: (prepare, task, *more) for way, (prepare, *more) in WAYS.items()}
            with subjects(how) as (ready, _):
                samples(ready, 2, 1)
                taken = samples(ready, frames, setting.repeats)
            for way, runs in taken.items():
                case = {"source": source, "gzip": gzip, "way": way, "frames": frames}
                rows += [{**case, "ms_frame": 1e3 * run.seconds / frames} for run in runs]
    n_atoms = int(data.first_frame.read_text().splitlines()[1])
    for row in rows:
        row["rate"] = n_atoms * ATOM / row["ms_frame"] / 1e3
    return rows


def name(source: str, gzip: int) -> str:
    """Return the name of a case."""
    return f"{source.upper()} to {f'gzip {gzip}' if gzip else 'uncompressed'}"


def theirs() -> float:
    """Return the paper's rate, MB/s of positions."""
    rate = stated("jakupovic2021_stated", quantity="rate of writing")
    return rate * 2**30 / 1e6


def table(rows: list[Row]) -> Table:
    found = Table(
        "MB/s of positions, in chunks of one frame, with what opening and making a file cost",
        ("from, to", *WAYS, "1 thread / MDAnalysis", "2 threads / 1"),
    )
    for source, gzip in CASES:
        rates = [spread(rows, "rate", source=source, gzip=gzip, way=way) for way in WAYS]
        ratios = (
            cell(ratio(rows, "rate", {"way": two}, {"way": one}, source=source, gzip=gzip))
            for one, two in pairwise(WAYS)
        )
        found.rows.append((name(source, gzip), *map(cell, rates), *ratios))
    found.rows.append(
        ("published: DCD, TRR or XTC to uncompressed", digits(theirs()), "–", "–", "–", "–")
    )
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (axes,) = panels(1, 4.0)
    cases = [(source, gzip, way) for source, gzip in CASES for way in WAYS]
    values = [spread(rows, "rate", source=s, gzip=g, way=way) for s, g, way in cases]
    names = [f"{name(s, g)}: {way}" for s, g, way in cases] + ["published, Agave: MDAnalysis"]
    colours = [OURS if way.startswith("paceline") else OTHER for *_, way in cases]
    bars(axes, names, [*values, Spread(theirs(), theirs(), theirs())], [*colours, PAPER])
    axes.set(xscale="log", xlabel="MB/s of positions")
    return figure


def finding(rows: list[Row]) -> str:
    def rates(source: str, gzip: int) -> str:
        found = [cell(spread(rows, "rate", source=source, gzip=gzip, way=way)) for way in WAYS]
        return f"{found[0]}, {found[1]} and {found[2]} MB/s"

    return (
        f"From XTC, MDAnalysis, paceline on one thread and on two write uncompressed H5MD at "
        f"{rates('xtc', 0)}, with gzip 1 at {rates('xtc', 1)}; from DCD, uncompressed, at "
        f"{rates('dcd', 0)}. The paper's {digits(theirs())} MB/s are those of MDAnalysis on Agave."
    )


EXPERIMENT = Experiment(
    title="Writing H5MD",
    source="Jakupovic & Beckstein 2021, section on chunking",
    question=(
        "Writing the file of 113 GiB from DCD, TRR or XTC took about 360 seconds on one process; "
        "writing in parallel was not tried, because MDAnalysis's writer does not support it."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Files are written to memory here, so the disk has no effect. They are shorter than the "
        "paper's, so that fixed costs matter more: opening the source, and writing the names of "
        "all atoms, which MDAnalysis does not do. From XTC, decoding is part of the work, and "
        "the rate is that of positions, not of the file's bytes. paceline's workers decode, "
        "compress and write frames themselves, and HDF5 writes only the metadata, so that "
        "several can write without an MPI build of HDF5."
    ),
)
