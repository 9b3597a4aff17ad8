"""Measure the radial distribution function of water's oxygens.

    python -m benchmarks rdf [folder] [--repeats 5] [--only 15] [--tsv] [--tiny]

`paceline.analysis.rdf.InterRDF`, MDAnalysis, `mdtraj.compute_rdf` and ``gmx rdf`` use one core
each, with the same range and bins. All must find the same g(r), or the benchmark fails.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import programs
from benchmarks.compare import (
    OURS,
    REFERENCE,
    SLOPES,
    Options,
    add_slopes,
    gains,
    judged,
    options,
    report,
)
from benchmarks.data import TIME_STEP, Dataset
from benchmarks.measure import Run, Slope, Subject, slopes, subjects
from benchmarks.table import Table

#: End of the last bin, Å, and number of bins: MDAnalysis's defaults, and a shorter range.
CASES = {"15": (15.0, 75), "8": (8.0, 40)}
WATER = "name OW"
#: Number of oxygens in a tiny benchmark: all pairs of all oxygens would be 60 million.
TINY = 3000
GROMACS = "gmx rdf"
#: Number of GROMACS bins per bin; even, because GROMACS's bins lie across the other tools' borders.
FINER = 10

#: Tolerance relative to the maximum of g(r), because bins are joined from GROMACS's bins.
TOLERANCE = 0.02
#: Shorter distances are not compared, Å: bins have too few pairs, or an atom with itself.
NEAREST = 2.4


def mdanalysis(data: Dataset, end: float, n_bins: int, most: int | None) -> Run:
    """MDAnalysis, serial."""
    import MDAnalysis
    from MDAnalysis.analysis.rdf import InterRDF

    universe = MDAnalysis.Universe(data.topology, data.trajectory("xtc"))
    water = universe.select_atoms(WATER)[:most]

    def run(n: int) -> np.ndarray:
        return InterRDF(water, water, n_bins, (0.0, end)).run(stop=n).results.rdf

    return run


def paceline(data: Dataset, end: float, n_bins: int, most: int | None) -> Run:
    """Paceline on one thread."""
    import paceline
    from paceline.analysis.rdf import InterRDF

    universe = paceline.Universe(data.topology, data.trajectory("xtc"))
    water = universe.select_atoms(WATER)[:most]

    def run(n: int) -> np.ndarray:
        rdf = InterRDF(water, water, n_bins, (0.0, end))
        return rdf.run(stop=n, backend="threads", n_workers=1).results.rdf

    return run


def mdtraj(data: Dataset, end: float, n_bins: int, most: int | None) -> Run:
    """MDTraj with all pairs, frame by frame, because it stores all distances of its frames."""
    import mdtraj

    topology = mdtraj.load_topology(str(data.first_frame))
    water = topology.select("water and element O")[:most]
    first, second = np.triu_indices(len(water), k=1)
    pairs = np.column_stack([first, second]).astype(np.int32)

    def run(n: int) -> np.ndarray:
        total = np.zeros(n_bins)
        with mdtraj.open(str(data.trajectory("xtc"))) as file:
            for _ in range(n):
                frame = file.read_as_traj(topology, n_frames=1, atom_indices=water)
                _, rdf = mdtraj.compute_rdf(frame, pairs, (0.0, end / 10), n_bins=n_bins)
                total += rdf
        # MDTraj divides by the number of given pairs, the other tools by n².
        return total / n * (len(water) - 1) / len(water)

    return run


def gromacs(data: Dataset, end: float, n_bins: int, most: int | None) -> Run:
    """``gmx rdf``, whose bin centers are the other tools' bin borders."""
    gmx = programs.find("gmx")
    temporary = tempfile.TemporaryDirectory()
    folder = Path(temporary.name)
    width = end / n_bins / 10
    command = [gmx, "-quiet", "rdf", "-xvg", "none", "-s", str(data.first_frame)]
    water = WATER if most is None else f"{WATER} and atomnr 1 to {_last(data, most)}"
    command += ["-f", str(data.trajectory("xtc")), "-ref", water, "-sel", water]
    command += ["-bin", f"{width / FINER:g}", "-rmax", f"{end / 10:g}", "-o", "rdf.xvg"]

    def run(n: int) -> np.ndarray:
        (folder / "rdf.xvg").unlink(missing_ok=True)  # otherwise gmx keeps backups
        last = str((n - 1) * TIME_STEP)
        done = subprocess.run([*command, "-e", last], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"gmx rdf: code {done.returncode}: {done.stderr[-2000:]}")
        return _put_together(np.loadtxt(Path(temporary.name) / "rdf.xvg")[:, 1], n_bins)

    return run


def _last(data: Dataset, most: int) -> int:
    """Return GROMACS's number of the `most`-th oxygen."""
    import MDAnalysis

    return int(MDAnalysis.Universe(data.first_frame).select_atoms(WATER).ids[most - 1])


def _put_together(rdf: np.ndarray, n_bins: int) -> np.ndarray:
    """Join finer bins to the other tools' bins; the first and last fine bins count half."""
    shells = np.arange(n_bins * FINER + 1.0) ** 2
    rdf = np.append(rdf, rdf[-1])[: len(shells)]  # the last one is beyond the range
    halves = np.ones(FINER + 1)
    halves[[0, -1]] = 0.5
    rows = np.arange(n_bins)[:, None] * FINER + np.arange(FINER + 1)
    weights = halves * shells[rows]
    return (weights * rdf[rows]).sum(1) / weights.sum(1)


TOOLS = {REFERENCE: mdanalysis, OURS: paceline, "MDTraj": mdtraj, GROMACS: gromacs}


def main() -> None:
    asked = options(__doc__, list(CASES))
    water = next(data for data in asked.datasets() if data.name == "water")
    asked.print_head()
    table = Table("g(r) of water's oxygens: slope between n and 2n frames", SLOPES)
    skipped: list[str] = []
    try:
        for case in CASES:
            if asked.wants(case):
                skipped += _measure(case, water, asked, table)
    finally:
        asked.print_tables([table], skipped)


def _measure(case: str, water: Dataset, asked: Options, table: Table) -> list[str]:
    """Add the rows of one range; return what could not be measured."""
    effort = asked.effort
    n = max(water.n_frames // 50, 1)
    fewer = {REFERENCE: max(n // 20, 1), "MDTraj": max(n // 20, 1)}
    most = TINY if asked.tiny else None
    how = {name: (prepare, water, *CASES[case], most) for name, prepare in TOOLS.items()}
    with subjects(how) as (ready, skipped):
        _agree(case, ready, n)
        report(f"{case} Å: slopes")
        taken = slopes(ready, n, effort.repeats, effort.measurement, fewer)
        add_slopes(table, f"{case} Å", ready, taken, _verdict(taken) if effort.judged else {})
    return [f"{case} Å: {name}: {why}" for name, why in skipped.items()]


def _agree(case: str, ready: list[Subject], n: int) -> None:
    """Raise if a tool finds another g(r) than the first tool."""
    end, n_bins = CASES[case]
    near = (np.arange(n_bins) + 0.5) * end / n_bins > NEAREST
    expected: Any = None
    for subject in ready:
        report(f"{case} Å: {subject.name}")
        found = subject.run(1).values[near]
        expected = found if expected is None else expected
        worst = np.abs(found - expected).max()
        if not worst <= TOLERANCE * expected.max():
            raise RuntimeError(f"{subject.name}: g(r) is {worst} from {ready[0].name}'s")


def _verdict(taken: Mapping[str, Slope]) -> dict[str, str]:
    """Check that paceline is at least as fast as GROMACS."""
    if GROMACS not in taken:
        return {}
    return {OURS: f"as fast as {GROMACS} {judged(gains(taken, GROMACS, OURS) >= 1)}"}


if __name__ == "__main__":
    main()
