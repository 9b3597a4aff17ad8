"""Predict runs on hundreds and ten thousands of ranks, which were not measured.

The job is that of Khoshlessan et al. 2020 on SDSC Comet, with its frames and serial times.
"""

import random
import statistics
from collections.abc import Iterator
from functools import cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.model_fit import late, t_lock
from benchmarks.model_rows import (
    CORES,
    LAYOUTS,
    N_FRAMES,
    STRAGGLERS,
    at_work,
    cases,
    cost_of,
    totals,
)
from benchmarks.simulate import simulate
from paceline.model import FILE_SYSTEMS, FileSystem, FrameCost, Prediction, Unevenness, predict
from paceline.performance.model import last_that_pays, usual_block

RANKS = (24, 384, 10_000)
#: Numbers of ranks for smooth curves.
CURVE = sorted({*(round(10 ** (k / 12)) for k in range(49)), *RANKS})
#: Methods to read the file: series of Table 5, and frames per request (by default a block).
READINGS: dict[str, tuple[str, int | None]] = {
    "XTC, frame by frame": ("single", 1),
    "XTC, in blocks": ("single", None),
    "HDF5 of 146 atoms, in blocks": ("phdf5", None),
}
#: Schedules are compared for a job that is longer by this factor: 10,000 ranks need more work.
LONGER = 10
SEEDS = range(3)
#: Colours of Okabe and Ito, which most people can distinguish.
SCHEDULES = {"static": ("#D55E00", "equal shares"), "dynamic": ("#0072B2", "dynamic scheduling")}


def serial_cost(series: str) -> FrameCost:
    """Return the cost of a frame, from Comet's serial row."""
    row = next(case for case in cases() if (case.cluster, case.access) == ("Comet", series))
    return cost_of(series, row.serial_io, row.serial_comp)


def read(way: str, n_ranks: int, *, times: int = 1) -> Prediction:
    """Predict the job, or a job with `times` as many frames, without stragglers."""
    series, request_frames = READINGS[way]
    system = FileSystem(server_bandwidth=FILE_SYSTEMS["lustre"].server_bandwidth, t_lock=t_lock())
    return predict(
        serial_cost(series),
        times * N_FRAMES,
        n_ranks,
        file_system=system,
        per_node=CORES["Comet"],
        layout=LAYOUTS[series],
        request_frames=request_frames,
    )


def stragglers() -> dict[str, Unevenness]:
    """Return the stragglers in both runs that the paper describes: slower, or starting later."""
    by_gather = {run.case.gather: run for run in totals()}
    ga, mpi = by_gather["ga"], by_gather["mpi"]
    n = ga.case.n_ranks
    few, most = STRAGGLERS["ga"] / n, STRAGGLERS["mpi"] / n
    factor = ga.measured / ga.others
    return {
        f"{STRAGGLERS['ga']} of {n} ranks {factor:.1f} times slower": Unevenness(
            slow_fraction=few, slow_factor=factor
        ),
        f"{STRAGGLERS['ga']} of {n} ranks {late([ga]):.0f} s late": Unevenness(
            slow_fraction=few, late=late([ga])
        ),
        f"{STRAGGLERS['mpi']} of {n} ranks {late([mpi]):.0f} s late": Unevenness(
            slow_fraction=most, late=late([mpi])
        ),
    }


def until_done(n_ranks: int, schedule: str, uneven: Unevenness | None = None) -> float:
    """Return the time until the last rank has finished the longer job, one file per rank, s."""
    found = predict(
        serial_cost("splitting"), LONGER * N_FRAMES, n_ranks, schedule=schedule, uneven=uneven
    )
    return found.t_total


@cache
def until_done_by_events(n_ranks: int, uneven: Unevenness) -> float:
    """Simulate `until_done` with dynamic scheduling, event by event; mean over seeds, s."""
    cost = serial_cost("splitting")
    share = at_work(predict(cost, LONGER * N_FRAMES, n_ranks))
    n_blocks = round(LONGER * N_FRAMES / n_ranks / usual_block(cost, LONGER * N_FRAMES, n_ranks))
    n_slow = round(uneven.slow_fraction * n_ranks)
    slowness = [uneven.slow_factor] * n_slow + [1.0] * (n_ranks - n_slow)
    ends = []
    for seed in SEEDS:
        chance = random.Random(seed)
        # Blocks vary in length, so that ranks do not stay in step.
        lengths = [chance.uniform(0.9, 1.1) * share / n_blocks for _ in range(n_ranks * n_blocks)]
        ends.append(simulate(lengths, slowness, [uneven.late] * n_slow).end)
    return statistics.mean(ends)


def layout_lines() -> Iterator[str]:
    """Create a Markdown table: t_total at `RANKS`, of a job 100 times as long, and the knee."""
    heads = [*(f"{n:,} ranks" for n in RANKS), f"100 × the frames, {RANKS[-1]:,} ranks", "knee"]
    yield f"| read | {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(heads)}"
    for way in READINGS:
        found = [*(read(way, n) for n in RANKS), read(way, RANKS[-1], times=100)]
        cells = " | ".join(_seconds(one.t_total) for one in found)
        knee = last_that_pays([read(way, n) for n in CURVE]).n_workers
        yield f"| {way} | {cells} | {_rounded(knee)} ranks |"


def schedule_lines() -> Iterator[str]:
    """Create a Markdown table: the time until the last rank has finished, with stragglers."""
    yield "| ranks | stragglers | equal shares | dynamic | dynamic, event by event |"
    yield "| ---: | --- | ---: | ---: | ---: |"
    for n in RANKS:
        for name, uneven in stragglers().items():
            times = [until_done(n, schedule, uneven) for schedule in SCHEDULES]
            times.append(until_done_by_events(n, uneven))
            yield f"| {n:,} | {name} | {' | '.join(map(_seconds, times))} |"


def draw_schedules() -> Figure:
    """Draw both schedules against ranks, with one panel for each kind of stragglers."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels: Any = figure.subplots(1, len(stragglers()), sharey=True)
    for axes, (name, uneven) in zip(panels, stragglers().items(), strict=True):
        _draw_panel(axes, uneven)
        axes.set(title=name, xlabel="ranks", xscale="log", yscale="log")
        axes.title.set_fontsize(9)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,g}")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("until the last rank is done, s")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _draw_panel(axes: Axes, uneven: Unevenness) -> None:
    for schedule, (colour, label) in SCHEDULES.items():
        times = [until_done(n, schedule, uneven) for n in CURVE]
        axes.plot(CURVE, times, color=colour, label=label)
    simulated = [until_done_by_events(n, uneven) for n in RANKS]
    style = {"color": SCHEDULES["dynamic"][0], "markerfacecolor": "white"}
    axes.plot(RANKS, simulated, "o", label="dynamic, event by event", **style)
    even = [until_done(n, "dynamic") for n in CURVE]
    axes.plot(CURVE, even, color="0.5", linestyle=":", label="no stragglers")


def _seconds(value: float) -> str:
    return f"{_rounded(value)} s"


def _rounded(value: float) -> str:
    """Round to two digits, because more are not significant."""
    return f"{float(f'{value:.2g}'):,g}"
