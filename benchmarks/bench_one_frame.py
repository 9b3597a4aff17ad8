"""Measure analyses of one frame of 10⁶ atoms on one worker and on two.

    python -m benchmarks one_frame [folder] [--repeats 5] [--only rdf …] [--tsv] [--tiny]
    python -m benchmarks one_frame --tsv > one-frame.tsv
    python -m benchmarks.bench_one_frame one-frame.tsv docs/images/one-frame.svg

The frame is of 343,000 waters at random, which is made in the folder. Runs are in turn; results
must have the same bits. CPU times are those of the process, and, on two threads, of the first
thread, which also does what is not shared. On a busy machine, wall times say little: the CPU time
of both threads by that of the first ("by work") says how much faster two cores of their own would
be.
"""

import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_analyses import group, ours, whole
from benchmarks.compare import judged, options, report
from benchmarks.measure import Spread
from benchmarks.table import Table
from paceline.backends import Serial

#: Waters along each edge, and their distance, Å.
EDGE, TINY_EDGE, APART = 70, 14, 3.1
SEED = 20261128
#: Minimum speed of g(r) on two workers relative to one.
TARGET = 1.8
HEADINGS = (
    *("analysis", "1 worker s", "2 workers s", "speed-up", "min", "max"),
    *("1 worker CPU s", "2 workers CPU s", "first thread CPU s", "by work", "target"),
)


def _contacting(u: Any) -> Any:
    return u.atoms[:900:3], u.atoms[:300_000:3]


def _near_hydrogens(u: Any) -> Any:
    return u.select_atoms("name HW1 and around 3 name HW2", updating=True)


ATOMS, OXYGENS = group("all"), group("name OW")
#: Analyses, and the array of their results that is compared.
CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "rdf": (ours("rdf", ATOMS, ATOMS, nbins=100, range=(0.0, 10.0)), "count"),
    "neighbours": (ours("neighbors", ATOMS, cutoff=4.0), "pairs"),
    "coordination": (ours("coordination", OXYGENS, OXYGENS, 5.0), "coordination"),
    "hydrogen bonds": (
        ours(
            "hbonds",
            whole,
            donors_sel="name OW",
            hydrogens_sel="name HW1 HW2",
            acceptors_sel="name OW",
            update_selections=False,
        ),
        "hbonds",
    ),
    "contacts": (
        ours("contacts", whole, _contacting, _contacting, method="soft_cut", radius=50.0),
        "timeseries",
    ),
    "sasa": (ours("sasa", ATOMS, n_points=100), "sasa"),
    "selection": (ours("selection", _near_hydrogens), "atoms"),
}


def main() -> None:
    asked = options(__doc__, list(CASES))
    asked.print_head()
    import paceline

    edge = TINY_EDGE if asked.tiny else EDGE
    base = _made(asked.folder / f"one-frame-{edge}", edge)
    universe = paceline.Universe(f"{base}.gro", f"{base}.xtc")
    table = Table(f"One frame of {len(universe.atoms):,} atoms", HEADINGS)
    for name, (make, result) in CASES.items():
        if asked.wants(name):
            report(name)
            analysis = make(universe)
            times = _in_turn(analysis, result, asked.effort.repeats)
            table.rows.append((name, *_cells(times, name == "rdf" and asked.effort.judged)))
    asked.print_tables([table])


def _in_turn(analysis: Any, result: str, repeats: int) -> np.ndarray:
    """Seconds of each round: on one worker and on two, of the process and of the first thread."""
    rounds, expected = [], None
    for _ in range(repeats):
        times = []
        for n_threads in (1, 2):
            begun, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
            analysis.run(backend=Serial(n_threads))
            ended = time.perf_counter(), time.process_time(), time.thread_time()
            times += np.subtract(ended, (begun, cpu, own)).tolist()
            found = np.asarray(analysis.results[result]).tobytes()
            expected = found if expected is None else expected
            if found != expected:
                raise RuntimeError(f"{analysis.name}: other bits on {n_threads} workers")
        rounds.append(times)
    return np.array(rounds).T


def _cells(times: np.ndarray, is_judged: bool) -> list[str]:
    one, cpu_one, _, two, cpu_two, own = times
    speed_up, by_work = Spread.of(one / two), Spread.of(cpu_two / own)
    return [
        *(f"{np.median(some):.3f}" for some in (one, two)),
        *(f"{value:.2f}" for value in (speed_up.median, speed_up.low, speed_up.high)),
        *(f"{np.median(some):.3f}" for some in (cpu_one, cpu_two, own)),
        f"{by_work.median:.2f}",
        f"{TARGET:g} times {judged(one / two >= TARGET)}" if is_judged else "-",
    ]


def _made(base: Path, edge: int) -> Path:
    """Write a frame of waters with random orientations, if it is missing."""
    if base.with_suffix(".xtc").exists():
        return base
    import MDAnalysis

    report(f"making {base}")
    base.parent.mkdir(parents=True, exist_ok=True)
    n, random = edge**3, np.random.default_rng(SEED)
    places = np.stack(np.meshgrid(*[np.arange(edge)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    oxygens = APART * places + random.uniform(-0.3, 0.3, (n, 3))
    bonds = random.standard_normal((n, 2, 3))
    bonds[:, 1] -= 0.3 * bonds[:, 0]
    bonds *= 0.96 / np.linalg.norm(bonds, axis=2, keepdims=True)
    universe = MDAnalysis.Universe.empty(
        3 * n, n_residues=n, atom_resindex=np.repeat(np.arange(n), 3), trajectory=True
    )
    universe.add_TopologyAttr("name", ["OW", "HW1", "HW2"] * n)
    universe.add_TopologyAttr("resname", ["SOL"] * n)
    universe.add_TopologyAttr("resid", np.arange(n) % 99_999 + 1)
    universe.dimensions = [*[APART * edge] * 3, 90, 90, 90]
    # Molecules in random order, as after a long run.
    waters = np.concatenate([oxygens[:, None], oxygens[:, None] + bonds], axis=1)
    universe.atoms.positions = waters[random.permutation(n)].reshape(-1, 3)
    universe.atoms.write(base.with_suffix(".gro"))
    with MDAnalysis.Writer(str(base.with_suffix(".unfinished.xtc")), 3 * n) as writer:
        writer.write(universe.atoms)
    base.with_suffix(".unfinished.xtc").rename(base.with_suffix(".xtc"))
    return base


def draw(source: Path, target: Path) -> None:
    """Draw the figure of the manual from a table of tab-separated columns."""
    from matplotlib.figure import Figure

    text = source.read_text(encoding="utf-8").split("# One frame")[1]
    rows = [*csv.DictReader(text.splitlines()[1:], delimiter="\t")]
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    at = np.arange(len(rows))
    bars = {
        "1 worker": ("1 worker s", "#b8c4cc"),
        "2 workers": ("2 workers s", "#c8442d"),
    }
    for k, (label, (column, colour)) in enumerate(bars.items()):
        values = [float(row[column]) for row in rows]
        axes.barh(at + 0.4 * k, values, 0.38, color=colour, label=label)
    for place, row in zip(at, rows, strict=True):
        one, two = (float(row[column]) for column, _ in bars.values())
        where = max(one, two) + 0.08, place + 0.2
        axes.text(*where, f"{one / two:.2f} ×", va="center", fontsize=8)
    axes.set_yticks(at + 0.2, [row["analysis"] for row in rows])
    axes.set_xlabel("time for one frame of a million atoms, reading included (s)")
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2].endswith(".svg"):
        draw(*map(Path, sys.argv[1:]))
    else:
        main()
