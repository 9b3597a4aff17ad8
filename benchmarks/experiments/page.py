"""The page of the experiments, from the tables that were kept."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib import rc_context

from benchmarks.experiments.experiment import Experiment, load
from benchmarks.experiments.style import DPI, RC
from benchmarks.table import Table

INTRODUCTION = """\
# Experiments

Khoshlessan et al. (2017, 2020) measured what keeps the parallel analysis of trajectories from
scaling, Jakupovic and Beckstein (2021) what H5MD files and their layouts do for it. Their
experiments are repeated here, at the size of one machine, in the papers' way (each worker opens a
Universe of MDAnalysis's and takes its share frame by frame; called MDAnalysis in tables and
figures) and in paceline's, and the published values stand beside. Todorov and Bush (HPCxTR0806)
compared ways to write the atoms of a parallel simulation in order; the last sections do so with
paceline's methods of the same names. What takes a cluster is not pretended: where there are more
workers than cores, they sleep or are counted, and it says so.

`make experiments` makes this page again: the tables and figures below, and the first paragraph
under each, are written by it from what it measured. `make experiments ARGS="layouts sizes"` runs
some, `ARGS=--draw` draws again what was kept. Each section ends with the machine that it was
measured on, the rounds and how long that took, and a link to the rows that were measured. All times
are wall times, of files in the page cache where nothing else is said. In tables a median stands
before the range of all rounds; figures show both. H5MD through MPI-IO needs an h5py that was
[built with MPI](../layouts.md#through-mpi-io), and is left out where there is none.
"""


def write_page(folder: Path, experiments: Mapping[str, Experiment]) -> None:
    """Draw every experiment of which there are rows, and write the page."""
    parts = [INTRODUCTION]
    for name, experiment in experiments.items():
        kept = folder / f"{name}.tsv"
        if kept.exists():
            parts.append(_section(folder, name, experiment, kept))
    (folder / "index.md").write_text("\n".join(parts), encoding="utf-8")


def _section(folder: Path, name: str, experiment: Experiment, kept: Path) -> str:
    head, rows = load(kept)
    with rc_context(RC):
        experiment.draw(rows).savefig(folder / f"{name}.png", dpi=DPI)
    return "\n\n".join(
        (
            f"## {experiment.title}",
            f"*{experiment.source}.* {experiment.question}",
            f"**Found here.** {experiment.finding(rows)}",
            f"![{experiment.title}]({name}.png)",
            _markdown(experiment.table(rows)),
            f"**Why it differs.** {experiment.why}",
            f"`{name}`, [rows]({name}.tsv): {'; '.join(head)}.",
            "",
        )
    )


def _markdown(table: Table) -> str:
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    return "\n".join([f"{table.title}:", "", *(f"| {' | '.join(line)} |" for line in lines)])
