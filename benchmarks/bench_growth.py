"""Measure how CPU time and memory of analyses grow with the numbers of frames and atoms.

    python -m benchmarks growth [folder] [--only msd] [--tsv] [--tiny]
    python -m benchmarks growth --tsv > growth.tsv
    python -m benchmarks.bench_growth growth.tsv docs/images/growth.svg

There is one analysis for each kind of work. The atoms are as dense as the oxygens of water, and
shake in a cubic cell. XTC files of 1,000 to 27,000 atoms and of 250 to 2,000 frames are created if
missing. Each run is a separate process on one core, after a short run that loads what is loaded
only once. CPU time includes decoding. Memory is the anonymous memory beyond that of the process
before the run, plus the bytes of anonymous files. The exponent is the slope of a straight line
through the logarithms of the three largest sizes: 1 means proportional to n. Rounds alternate; the
minimum time is used, because other programs only add to it.
"""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bench_analyses import ours
from benchmarks.compare import Options, options, report
from benchmarks.resident import Peak, touch
from benchmarks.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Atoms along a cell edge when the number of frames grows; frames when the number of atoms grows.
EDGE, FRAMES = 15, 250
#: Sizes: numbers of frames, and of atoms along an edge.
OF_FRAMES, OF_ATOMS = (250, 500, 1000, 2000), (10, 14, 20, 30)
TINY_EDGE, TINY_FRAMES, TINY_OF_FRAMES, TINY_OF_ATOMS = 6, 8, (8, 16), (5, 6)
#: Distance of neighbours on the lattice, as in water, and amplitude of their motion, Å.
SPACING, SHAKE = 3.1, 0.25
SEED = 20170913
FITTED = 3
#: Memory touched before a run, bytes: a virtual machine may get memory only then.
TOUCHED = 2**29
HEADINGS = (
    *("case", "of", "n", "CPU s", "anonymous MB", "in files MB"),
    *("exponent of time", "exponent of memory"),
)
#: Memory below this is noise of the allocator, MB.
LEAST_MB = 1.0


@dataclass(frozen=True)
class Case:
    """An analysis for one kind of work, with the options of its run."""

    shape: str
    make: Callable[[Any], Any]
    options: Callable[[], dict[str, Any]] = dict


def _atoms(universe: Any) -> Any:
    return universe.atoms


def _near(universe: Any) -> Any:
    return universe.select_atoms("around 5 index 0:99", updating=True)


def _nojump() -> dict[str, Any]:
    from paceline.transform import nojump

    return {"transforms": [nojump()]}


CASES: dict[str, Case] = {
    "gyration": Case("rows", ours("gyration", _atoms, weights=None)),
    "rmsf": Case("sum", ours("rmsf", _atoms)),
    "rdf": Case("sum", ours("rdf", _atoms, _atoms, range=(0.0, 9.0))),
    "neighbors": Case("ragged", ours("neighbors", _atoms, _atoms, cutoff=2.6)),
    "gyration after nojump": Case("scan", ours("gyration", _atoms, weights=None), _nojump),
    "msd": Case("correlate", ours("msd", _atoms)),
    "rmsd-matrix": Case("tiles", ours("rmsd-matrix", _atoms, superposition=True)),
    "selection": Case("group that changes", ours("selection", _near)),
}


def main() -> None:
    asked = options(__doc__, list(CASES))
    asked.print_head()
    edge, frames = (TINY_EDGE, TINY_FRAMES) if asked.tiny else (EDGE, FRAMES)
    of_frames, of_atoms = (TINY_OF_FRAMES, TINY_OF_ATOMS) if asked.tiny else (OF_FRAMES, OF_ATOMS)
    sizes = {"frames": [(edge, n) for n in of_frames], "atoms": [(n, frames) for n in of_atoms]}
    wanted = [case for case in CASES if asked.wants(case)]
    table = Table(f"growth: {edge**3} atoms, or {frames} frames", HEADINGS)
    for of, several in sizes.items():
        files = [_made(asked, *size) for size in several]
        runs: dict[str, list[list[dict[str, float]]]] = {case: [] for case in wanted}
        for number in range(asked.effort.repeats):
            report(f"{of}, round {number + 1}")
            for case in wanted:
                runs[case].append([_measured(case, path) for path in files])
        for case, rounds in runs.items():
            least = [
                {key: min(one[k][key] for one in rounds) for key in rounds[0][k]}
                for k in range(len(several))
            ]
            counts = [n if of == "frames" else n_edge**3 for n_edge, n in several]
            table.rows += _rows(case, of, counts, least)
    asked.print_tables([table])


def _rows(
    case: str, of: str, counts: Sequence[int], found: Sequence[dict[str, float]]
) -> list[tuple[str, ...]]:
    """Create the rows of one analysis; the last row has the exponents."""
    memory = [one["anonymous"] + one["in files"] for one in found]
    exponents = [f"{_exponent(counts, [one['cpu'] for one in found]):.2f}", "-"]
    if max(memory) > 1e6 * LEAST_MB:
        exponents[1] = f"{_exponent(counts, np.maximum(memory, 1e6 * LEAST_MB)):.2f}"
    rows = []
    for k, (n, one) in enumerate(zip(counts, found, strict=True)):
        last = k == len(counts) - 1
        rows.append(
            (
                *(f"{case}: {CASES[case].shape}", of, str(n), f"{one['cpu']:.3f}"),
                *(f"{one[key] / 1e6:.1f}" for key in ("anonymous", "in files")),
                *(exponents if last else ("-", "-")),
            )
        )
    return rows


def _exponent(counts: Sequence[int], values: Sequence[float] | np.ndarray) -> float:
    """Return the slope of a straight line through the logarithms of the largest sizes."""
    return float(np.polyfit(np.log(counts[-FITTED:]), np.log(values[-FITTED:]), 1)[0])


def _made(asked: Options, edge: int, n_frames: int) -> Path:
    """Write a trajectory of edge³ shaking atoms, if it is missing."""
    import MDAnalysis

    path = asked.folder / f"lattice-{edge}-{n_frames}.xtc"
    if path.exists():
        return path
    report(f"making {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    n_atoms = edge**3
    lattice = SPACING * np.indices((edge,) * 3).reshape(3, -1).T
    universe = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    universe.dimensions = [SPACING * edge] * 3 + [90] * 3
    unfinished = path.with_suffix(".unfinished.xtc")
    with MDAnalysis.Writer(str(unfinished), n_atoms, dt=1.0) as writer:
        for frame in range(n_frames):
            universe.trajectory.ts.frame = frame
            universe.atoms.positions = lattice + SHAKE * random.standard_normal((n_atoms, 3))
            writer.write(universe.atoms)
    unfinished.rename(path)
    return path


def _measured(case: str, path: Path) -> dict[str, float]:
    """Run one size of an analysis in a separate process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_growth", "--child"]
    done = subprocess.run([*command, case, str(path)], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _child(case: str, path: str) -> None:
    """Run the analysis, and print its time and memory."""
    import MDAnalysis

    import paceline

    _, edge, _ = Path(path).stem.split("-")
    empty = MDAnalysis.Universe.empty(int(edge) ** 3)
    empty.add_TopologyAttr("masses", np.ones(len(empty.atoms)))
    universe = paceline.Universe(empty._topology, path)
    one = CASES[case]
    one.make(universe).run(stop=4, backend="serial", **one.options())
    touch(TOUCHED)
    with Peak() as peak:
        begun = time.process_time()
        one.make(universe).run(backend="serial", **one.options())
        cpu = time.process_time() - begun
    print(json.dumps({"cpu": cpu, "anonymous": peak.anonymous, "in files": peak.in_files}))


def draw(path: Path) -> "Figure":
    """Draw time and memory against frames and atoms, from a printed table."""
    from matplotlib.figure import Figure

    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "\t" in line]
    rows = list(csv.DictReader(lines, delimiter="\t"))
    figure = Figure(figsize=(13, 8), layout="constrained")
    panels = figure.subplots(2, 2, sharey="row")
    cases = list(dict.fromkeys(row["case"] for row in rows))
    for column, of in enumerate(("frames", "atoms")):
        for row_of_panels, what in zip(panels, ("time", "memory"), strict=True):
            axes = row_of_panels[column]
            for number, case in enumerate(cases):
                own = [row for row in rows if row["case"] == case and row["of"] == of]
                _draw_line(axes, own, what, number)
            axes.set(xscale="log", yscale="log")
            axes.set_xlabel(f"number of {of}")
            sizes = list(dict.fromkeys(int(row["n"]) for row in rows if row["of"] == of))
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
            axes.set_xticks([], minor=True)
            axes.legend(
                title="analysis: shape, growth",
                loc="center left",
                bbox_to_anchor=(1.0, 0.5),
                frameon=False,
                fontsize=8,
                title_fontsize=8,
            )
            axes.grid(which="major", color="#dddddd", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    panels[0][0].set_ylabel("processor time (s)")
    panels[1][0].set_ylabel("memory and anonymous files (MB)")
    return figure


def _draw_line(axes: Any, rows: Sequence[dict[str, str]], what: str, number: int) -> None:
    """Draw the points of one analysis, with its exponent in the legend."""
    if what == "time":
        values = [float(row["CPU s"]) for row in rows]
    else:
        values = [float(row["anonymous MB"]) + float(row["in files MB"]) for row in rows]
    exponent = rows[-1][f"exponent of {what}"]
    known = f"below {LEAST_MB:g} MB" if exponent == "-" else f"$n^{{{exponent}}}$"
    if what == "memory":
        values = [max(value, LEAST_MB) for value in values]
    axes.plot(
        [int(row["n"]) for row in rows],
        values,
        color=f"C{number}",
        marker="osD^v<>P"[number % 8],
        markersize=4,
        linewidth=1.2,
        label=f"{rows[0]['case']}, {known}",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    elif len(sys.argv) == 3 and sys.argv[1].endswith(".tsv"):
        draw(Path(sys.argv[1])).savefig(sys.argv[2])
    else:
        main()
