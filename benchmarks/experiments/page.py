"""Write the page of the experiments from saved rows."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib import rc_context

from benchmarks.experiments.experiment import Experiment, load
from benchmarks.experiments.style import DPI, RC

INTRODUCTION = """\
# Experiments

Khoshlessan et al. (2017, 2020) measured the limits of scaling of parallel trajectory analysis,
Jakupovic and Beckstein (2021) the effect of H5MD files and their layouts. This page repeats their
experiments at the size of one machine, in the papers' way (each worker opens its own MDAnalysis
Universe and reads its share frame by frame; called MDAnalysis in tables and figures) and in
paceline's, beside the published values. Todorov and Bush (HPCxTR0806) compared methods to write the
atoms of a parallel simulation in order; the last sections compare paceline's methods of the same
names. If an experiment has more workers than cores, they sleep or are only counted, as its text
states.

`make experiments` makes this page: its tables and figures, and the first paragraph under each, from
the measured rows. `make experiments ARGS="layouts sizes"` runs some experiments, `ARGS=--draw`
draws saved rows again. Each section ends with the machine, the number of rounds, the time of the
measurement, and a link to the rows. All times are wall times, with files in the page cache unless
stated otherwise. Tables show the median and the range of all rounds; figures show both. H5MD
through MPI-IO needs an h5py that was [built with MPI](../../layouts.md#through-mpi-io), and is left
out without it.
"""


def write_page(folder: Path, experiments: Mapping[str, Experiment]) -> None:
    """Draw every experiment with saved rows, and write the page."""
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
            experiment.table(rows).markdown(),
            f"**Why it differs.** {experiment.why}",
            f"`{name}`, [rows]({name}.tsv): {'; '.join(head)}.",
            "",
        )
    )
