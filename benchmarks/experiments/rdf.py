"""A radial distribution function: a compute-bound job."""

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    ratio,
    rounds_of,
    spread,
)
from benchmarks.experiments.published import published
from benchmarks.experiments.style import COLOURS, PAPER, bars, panels
from benchmarks.measure import Spread
from benchmarks.table import Table

#: Every fourth water oxygen, because MDAnalysis needs seconds per frame for all of them.
SELECTION, STEP = "name OW", 4
FRAMES = 6
#: Number of times that paceline reads each frame.
PASSES = 20
TOOLS = ("MDAnalysis", "paceline")
WORKERS = (1, 2)


def measure(setting: Setting) -> list[Row]:
    import MDAnalysis as mda
    from MDAnalysis.analysis.rdf import InterRDF as Theirs

    import paceline
    from paceline.analysis.rdf import InterRDF as Ours

    files = setting.water.topology, setting.water.trajectory("xtc")
    n_frames = min(setting.amount(FRAMES, 4), setting.water.n_frames)
    theirs, ours = (
        module.Universe(*files).select_atoms(SELECTION)[::STEP] for module in (mda, paceline)
    )
    frames = np.tile(np.arange(n_frames), PASSES)
    rows = []
    for _ in range(setting.repeats):
        for workers in WORKERS:
            backend = {"backend": "multiprocessing", "n_workers": workers} if workers > 1 else {}
            begun = time.perf_counter()
            expected = Theirs(theirs, theirs).run(stop=n_frames, **backend).results.rdf
            between = time.perf_counter()
            found = Ours(ours, ours).run(frames=frames, n_workers=workers, progress=False)
            ended = time.perf_counter()
            np.testing.assert_allclose(found.results.rdf, expected, rtol=1e-3, atol=1e-6)
            rows.append(_row("MDAnalysis", workers, n_frames, between - begun))
            busy = found.timings.workers()
            ratio = sum(w.t_compute for w in busy) / sum(w.t_io + w.t_decode for w in busy)
            rows.append(_row("paceline", workers, len(frames), ended - between, ratio))
    return rows


def _row(tool: str, workers: int, frames: int, seconds: float, ratio: float = np.nan) -> Row:
    common = {"tool": tool, "workers": workers, "frames": frames, "seconds": seconds}
    return {**common, "ms_frame": 1e3 * seconds / frames, "comp_by_io": ratio}


def speed_up(rows: list[Row], tool: str) -> Spread:
    """Return the speed-up of two workers over one, by round."""
    one, two = (rounds_of(rows, "ms_frame", tool=tool, workers=n) for n in WORKERS)
    return Spread.of(np.divide(one, two))


def table(rows: list[Row]) -> Table:
    found = Table(
        "ms a frame, of the whole run; R = t_comp / t_io",
        ("tool", "1 worker", "2 workers", "speed-up", "R, 1 worker"),
    )
    for tool in TOOLS:
        times = [cell(spread(rows, "ms_frame", tool=tool, workers=n)) for n in WORKERS]
        r = spread(rows, "comp_by_io", tool=tool, workers=1)
        shown = "–" if np.isnan(r.median) else cell(r)
        found.rows.append((tool, *times, cell(speed_up(rows, tool)), shown))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = panels(2, 2.6)
    cases: list[dict[str, Any]] = [{"tool": tool, "workers": n} for tool in TOOLS for n in WORKERS]
    values = [spread(rows, "ms_frame", **case) for case in cases]
    names = [f"{case['tool']}, {case['workers']}" for case in cases]
    bars(left, names, values, [COLOURS[case["tool"]] for case in cases])
    left.set(xlabel="ms a frame", ylabel="tool, workers", xscale="log")
    left.set_xlim(left=1)
    theirs = published("khoshlessan2020_tableB1_workload")
    names = [f"RMSD ×{row['workload']}, Comet" for row in theirs]
    ratios = [spread([row], "r_measured") for row in theirs]
    ours = spread(rows, "comp_by_io", tool="paceline", workers=1)
    colours = [PAPER] * len(theirs)
    bars(right, ["RDF, paceline", *names], [ours, *ratios], [COLOURS["paceline"], *colours])
    right.set(xlabel="R: t_comp / t_io", xscale="log")
    return figure


def finding(rows: list[Row]) -> str:
    gain = cell(ratio(rows, "ms_frame", {"tool": "MDAnalysis"}, {"tool": "paceline"}, workers=1))
    r = cell(spread(rows, "comp_by_io", tool="paceline", workers=1))
    speeds = [cell(speed_up(rows, tool)) for tool in TOOLS]
    return (
        f"Computing takes paceline {r} times as long as reading and decoding; one worker is "
        f"{gain} times as fast as MDAnalysis. Two workers are {speeds[0]} times as fast as "
        f"one with MDAnalysis, {speeds[1]} times with paceline."
    )


EXPERIMENT = Experiment(
    title="Radial distribution function",
    source="Khoshlessan et al. 2020, section 6.2",
    question=(
        "Radial distribution functions scale better than RMSDs, because computing takes far longer "
        "than reading."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The paper cites its compute-bound case from other work and repeated RMSDs instead. Here "
        "both tools count the oxygens of water with the same bins and the same result. The ratio "
        "of computing to reading depends on the tool: cell lists and compiled code reduce it, and "
        "so the need for many workers."
    ),
)
