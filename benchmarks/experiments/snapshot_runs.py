"""A run of 500 steps with and without a dump, over ranks."""

import json
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks import nacl
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    median,
    rounds_of,
    spread,
)
from benchmarks.experiments.scaling import Scaling
from benchmarks.experiments.snapshot_methods import COLOURS, NAMES, cells_of
from benchmarks.experiments.style import legend_below, logarithmic, panels, points
from benchmarks.measure import Spread
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.snapshot_cases import METHODS, Run
from benchmarks.table import Table

PROGRAM = Path(__file__).with_name("snapshot_runs_on_ranks.py")
STEPS = 500
#: Duration of a step on one rank, divided by the number of ions, seconds.
STEP = 6e-3 / nacl.n_ions(nacl.SMALL)
RANKS = {nacl.SMALL: (1, 2, 4, 8, 16), nacl.LARGE: (4, 8, 16)}


#: For each kind of run: method, number of dumps, and whether the steps wait for a dump.
WAYS: dict[str, tuple[str, int, bool]] = {
    "no dump": ("", 1, True),
    **{method: (method, 1, True) for method in METHODS},
    "sorted, 5 dumps": ("sorted", 5, True),
    "sorted, 5 dumps behind": ("sorted", 5, False),
}
#: Kinds of runs for the larger system, as in the report.
FEW = ("no dump", "sorted")


def measure(setting: Setting) -> list[Row]:
    runs, cases = [], []
    steps = max(10, round(STEPS * min(1.0, setting.part) / 5) * 5)
    for system, ranks in RANKS.items():
        cells = cells_of(setting, system)
        step = STEP * nacl.n_ions(system)
        for n in setting.ranks_or(ranks):
            for way, (method, dumps, wait) in WAYS.items():
                if system == nacl.SMALL or way in FEW:
                    runs.append(Run(n, cells, steps, step, method, steps // dumps, wait))
                    cases.append({"system": system, "ranks": n, "way": way, "steps": steps})
    told = setting.scratch / "runs.json"
    told.write_text(json.dumps([asdict(run) for run in runs]), encoding="utf-8")
    most = max(run.ranks for run in runs)
    found = on_ranks(most, EVERY_RANK, setting.scratch, told, setting.repeats, programs=PROGRAM)
    return [{**cases[one["run"]], "t_total": one["t_total"]} for one in found]


def ways_of(system: int) -> list[str]:
    """Return the kinds of runs that are measured."""
    return [way for way in WAYS if system == nacl.SMALL or way in FEW]


def table(rows: list[Row]) -> Table:
    most = RANKS[nacl.SMALL]
    found = Table(
        f"s of {median(rows, 'steps'):.0f} steps",
        ("ions", "way", *(f"{n} rank{'s'[: n > 1]}" for n in most)),
    )
    for system, ranks in RANKS.items():
        for way in ways_of(system):
            times = [
                cell(spread(rows, "t_total", system=system, way=way, ranks=n))
                if n in ranks
                else "–"
                for n in most
            ]
            found.rows.append((f"{nacl.n_ions(system):,}", way, *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 3.6)
    for axes, (system, ranks) in zip(panes, RANKS.items(), strict=True):
        for way in ways_of(system):
            method, dumps, wait = WAYS[way]
            values = [spread(rows, "t_total", system=system, way=way, ranks=n) for n in ranks]
            name = f"{NAMES[method]}{way.removeprefix(method)}" if method else way
            style = "-" if dumps == 1 else "--" if wait else ":"
            points(axes, ranks, values, COLOURS.get(method, "black"), name, style)
        logarithmic(axes, ranks, [str(n) for n in ranks])
        axes.set(title=f"{nacl.n_ions(system):,} ions", xlabel="ranks", ylabel="s a run")
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    def behind(way: str, system: int = nacl.SMALL, ranks: int = 16) -> str:
        none, one = (
            rounds_of(rows, "t_total", system=system, ranks=ranks, way=name)
            for name in ("no dump", way)
        )
        return cell(Spread.of(np.subtract(one, none)))

    all_at_end = ", ".join(f"{behind(way)} s with {NAMES[way]}" for way in METHODS)
    return (
        f"On 16 ranks a run becomes longer by {all_at_end}, and by "
        f"{behind('sorted', nacl.LARGE)} s with 1,728,000 ions sorted. Five sorted dumps cost "
        f"{behind('sorted, 5 dumps')} s when the steps wait for them and "
        f"{behind('sorted, 5 dumps behind')} s when they do not."
    )


EXPERIMENT = Experiment(
    title="A run with and without its dump",
    source="Todorov & Bush, HPCxTR0806, Figs 1, 3 and 6",
    question=(
        "The report simulated 500 steps and wrote one configuration at the end, to find the effect "
        "of a dump on the scaling of the run. With MWRITE the runs stopped scaling; with "
        "MWRITE_SORTED they were close to runs without a dump."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Here the steps are synthetic: each sleeps, so that they scale without loss on any "
        "number of ranks, because there are only two cores. The dumps are real, and on more than "
        "two ranks they still have two cores, so this machine cannot show how dumps scale. As in "
        "the report, fixed costs show most on the shortest run. Dumps in the background run "
        "while the steps sleep; a real simulation would share its cores with them."
    ),
    scaling=Scaling(
        "s a run",
        itemgetter("t_total"),
        line="way",
        variants=("system",),
        parts={},
    ),
)
