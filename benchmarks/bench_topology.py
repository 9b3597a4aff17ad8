"""Measure opening a large topology, the first time and later times.

    python -m benchmarks topology [folder] [--repeats 5] [--only gro pdb] [--tsv] [--tiny]

Each opening is a separate process, whose imports are not timed; files are in memory. In each round
MDAnalysis opens the files, paceline opens them the first and a second time, and MDAnalysis opens
them while paceline is registered. All must find the same atoms, or the benchmark fails.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from benchmarks.compare import judged, options, report
from benchmarks.measure import Spread
from benchmarks.table import Table

N_ATOMS, TINY_ATOMS = 1_001_301, 60_000
N_FRAMES = 3
#: Minimum speed of the second opening, relative to MDAnalysis.
TARGET = 10.0
HEADINGS = (
    *("case", "atoms", "MDAnalysis s", "first s", "second s", "registered s"),
    *("times as fast", "min", "max", "target"),
)
OPEN = """
import contextlib, sys, time, warnings
import MDAnalysis, paceline
import paceline.mdanalysis.reader
warnings.simplefilter("ignore")
way, *files = sys.argv[1:]
with paceline.register() if way == "registered" else contextlib.nullcontext():
    begun = time.perf_counter()
    u = (paceline.Universe if way == "paceline" else MDAnalysis.Universe)(*files)
    seconds = time.perf_counter() - begun
sums = u.atoms.masses.sum(), u.atoms.ids.sum(), u.residues.resids.sum(), len(set(u.atoms.names))
print(seconds, *sums)
"""


def make(folder: Path, n_atoms: int) -> Path:
    """Write water as GRO, PDB and XTC, if it is missing; return the XTC file."""
    folder.mkdir(parents=True, exist_ok=True)
    trajectory = folder / "water.xtc"
    if trajectory.exists():
        return trajectory
    import MDAnalysis

    residues = np.arange(n_atoms) // 3
    n_residues = int(residues[-1]) + 1
    u = MDAnalysis.Universe.empty(n_atoms, n_residues, atom_resindex=residues, trajectory=True)
    u.add_TopologyAttr("names", np.resize(["OW", "HW1", "HW2"], n_atoms))
    u.add_TopologyAttr("elements", np.resize(["O", "H", "H"], n_atoms))
    u.add_TopologyAttr("resnames", ["SOL"] * n_residues)
    # Numbers wrap around, as in files with four or five columns per number.
    u.add_TopologyAttr("resids", np.arange(n_residues) % 9999 + 1)
    edge = (n_atoms / 100) ** (1 / 3) * 10  # Å; 100 atoms in a nm³
    u.dimensions = [edge, edge, edge, 90, 90, 90]
    u.atoms.positions = np.random.default_rng(7).random((n_atoms, 3)) * edge
    u.atoms.write(folder / "water.gro")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about columns that stay empty
        u.atoms.write(folder / "water.pdb")
    with MDAnalysis.Writer(str(trajectory), n_atoms) as writer:
        for _ in range(N_FRAMES):
            writer.write(u.atoms)
    return trajectory


def measure(topology: Path, trajectory: Path, n_atoms: int, repeats: int) -> tuple[str, ...]:
    """Create the row of one topology."""
    kept = topology.with_name(f".{topology.name}.paceline-topology")
    taken: dict[str, list[float]] = {"MDAnalysis": [], "first": [], "second": [], "registered": []}
    found = set()
    for round_ in range(repeats + 1):
        kept.unlink(missing_ok=True)
        for name, seconds in taken.items():
            way = "paceline" if name in ("first", "second") else name
            done = subprocess.run(
                [sys.executable, "-c", OPEN, way, str(topology), str(trajectory)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            time, _, rest = done.stdout.partition(" ")
            found.add(rest)
            if round_:  # the first round fills the page cache
                seconds.append(float(time))
        if not kept.exists():
            raise RuntimeError(f"{topology}: paceline keeps nothing of it")
    if len(found) != 1:
        raise RuntimeError(f"{topology}: several systems: {found}")
    times = {name: np.array(seconds) for name, seconds in taken.items()}
    gains = times["MDAnalysis"] / times["second"]
    gain = Spread.of(gains)
    shown = (f"{value:.1f}" for value in (gain.median, gain.low, gain.high))
    medians = (f"{np.median(seconds):.2f}" for seconds in times.values())
    target = f"{TARGET:g}: {judged(gains >= TARGET)}"
    return topology.suffix[1:], str(n_atoms), *medians, *shown, target


def main() -> None:
    asked = options(__doc__, ["gro", "pdb"])
    asked.print_head()
    n_atoms = TINY_ATOMS if asked.tiny else N_ATOMS
    folder = asked.folder / f"topology-{n_atoms}"
    trajectory = make(folder, n_atoms)
    table = Table("opening a topology and its trajectory", HEADINGS)
    for suffix in ("gro", "pdb"):
        if asked.wants(suffix):
            report(suffix)
            topology = trajectory.with_suffix(f".{suffix}")
            table.rows.append(measure(topology, trajectory, n_atoms, asked.effort.repeats))
    asked.print_tables([table])


if __name__ == "__main__":
    main()
