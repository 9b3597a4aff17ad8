"""Measure the time per frame from a LAMMPS text dump to an RMSD, with paceline and MDAnalysis.

    python -m benchmarks lammps [folder] [--repeats 5] [--only adk water] [--tsv] [--tiny]

Dumps contain the first frames of the data sets' XTC files, with the columns `id type x y z`. As in
LAMMPS, the order of atoms differs from frame to frame. Files are in memory, and each tool has one
worker. Both tools must find the same RMSD, or the benchmark fails.
"""

import os
from dataclasses import replace

import numpy as np

from benchmarks import tools
from benchmarks.compare import (
    OURS,
    REFERENCE,
    SLOPES,
    Agreement,
    Options,
    add_slopes,
    gains,
    judged,
    options,
    report,
)
from benchmarks.data import RECIPES, SEED, Dataset
from benchmarks.measure import slopes, subjects
from benchmarks.table import Table

SUFFIX = "lammpsdump"
TOOLS = {REFERENCE: (tools.mdanalysis,), OURS: (tools.paceline, 1)}
#: Number of atoms in all frames of a dump together.
N_ATOMS = 2_000_000
#: Minimum rate relative to MDAnalysis.
TARGET = 5.0
HEAD = """ITEM: TIMESTEP
{step}
ITEM: NUMBER OF ATOMS
{n_atoms}
ITEM: BOX BOUNDS pp pp pp
0 {cell[0]:g}
0 {cell[1]:g}
0 {cell[2]:g}
ITEM: ATOMS id type x y z
"""


def make(data: Dataset) -> Dataset:
    """Write the dump of a data set if it is missing; return the part of the set in the dump."""
    import paceline

    path = data.trajectory(SUFFIX)
    with paceline.open(data.trajectory("xtc")) as trajectory:
        n_frames = min(data.n_frames, N_ATOMS // trajectory.n_atoms)
        if not path.exists():
            random = np.random.default_rng(SEED)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            with unfinished.open("w", encoding="ascii") as file:
                for frame in trajectory[:n_frames]:
                    n_atoms = len(frame.positions)
                    file.write(
                        HEAD.format(step=frame.frame, n_atoms=n_atoms, cell=frame.dimensions)
                    )
                    for i in random.permutation(n_atoms):
                        x, y, z = frame.positions[i]
                        file.write(f"{i + 1} 1 {x:g} {y:g} {z:g}\n")
            unfinished.rename(path)
    return replace(data, n_frames=n_frames)


def measure(data: Dataset, asked: Options, table: Table) -> None:
    """Add the rows of a data set."""
    how = {name: (prepare, data, SUFFIX, *more) for name, (prepare, *more) in TOOLS.items()}
    with subjects(how) as (ready, _):
        agreement = Agreement()
        for subject in ready:
            agreement.check(subject.name, subject.run(data.n_frames).values)
        effort = asked.effort
        taken = slopes(ready, data.n_frames // 2, effort.repeats, effort.measurement)
        verdicts = {}
        if effort.judged:
            met = judged(gains(taken, REFERENCE, OURS) >= TARGET)
            verdicts[OURS] = f"{TARGET:g} times {REFERENCE} {met}"
        add_slopes(table, data.name, ready, taken, verdicts)


def main() -> None:
    asked = options(__doc__, [recipe.name for recipe in RECIPES])
    asked.print_head()
    table = Table("dump in memory: slope between runs of n and 2n frames", SLOPES)
    for data in asked.datasets():
        if asked.wants(data.name):
            report(data.name)
            measure(make(data), asked, table)
    asked.print_tables([table])


if __name__ == "__main__":
    main()
