"""Measure scripts that were written for MDAnalysis, with Python and with ``python -m paceline``.

    python -m benchmarks drop_in [folder] [--repeats 5] [--only loop] [--tsv] [--tiny]

Whole processes, start included, in turn; the files are in memory. Both ways must print the same
numbers, to four digits, or the benchmark fails.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.compare import options, report
from benchmarks.data import TRAJECTORIES, Dataset
from benchmarks.measure import Spread
from benchmarks.table import Table

OPEN = """
import sys
import numpy as np
import MDAnalysis as mda
from MDAnalysis.analysis import rms

u = mda.Universe(sys.argv[1], sys.argv[2])
ca = u.select_atoms("protein and name CA")
"""
LOOP = """
x = 0.0
for ts in u.trajectory:
    x += float(ts.positions[0, 0])
print(f"{x / u.trajectory.n_frames:.4f}")
"""
ANALYSES = """
rmsd = rms.RMSD(
    u, select="protein and name CA", groupselections=["resid 122-159 and name CA"]
).run()
print(*(f"{value:.4f}" for value in rmsd.results.rmsd.mean(axis=0)))
rmsf = rms.RMSF(ca).run()
print(*(f"{value:.4f}" for value in rmsf.results.rmsf[:5]))
"""
OWN_LOOP = """
radii = []
for ts in u.trajectory:
    radii.append(ca.radius_of_gyration())
print(f"{np.mean(radii):.4f}")
"""
SCRIPTS = {"loop": OPEN + LOOP, "script": OPEN + ANALYSES + OWN_LOOP}
#: Times as fast as Python alone, at least.
TARGETS = {"script": 3.0}
WAYS = {"Python": (), "paceline": ("-m", "paceline", "--quiet")}

HEADINGS = (
    *("case", "frames", "Python s", "paceline s"),
    *("times Python", "min", "max", "target"),
)


def measure(data: Dataset, suffix: str, name: str, repeats: int) -> tuple[str, ...]:
    """The row of one script and trajectory."""
    path = data.trajectory(suffix)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, f"{name}.py")
        script.write_text(SCRIPTS[name])
        command = [str(script), str(data.topology), str(path)]
        taken = [
            {way: _run([*start, *command]) for way, start in WAYS.items()}
            for _ in range(repeats + 1)
        ][1:]
    said = {run[1] for runs in taken for run in runs.values()}
    if len(said) != 1:
        raise RuntimeError(f"{path}: {name} prints several things: {said}")
    seconds = {way: np.array([runs[way][0] for runs in taken]) for way in WAYS}
    gain = Spread.of(seconds["Python"] / seconds["paceline"])
    shown = (f"{value:.2f}" for value in (gain.median, gain.low, gain.high))
    medians = (f"{np.median(times):.2f}" for times in seconds.values())
    target = f"{TARGETS[name]:g}" if name in TARGETS else ""
    return f"{name} {path.name}", str(data.n_frames), *medians, *shown, target


def _run(arguments: Sequence[str]) -> tuple[float, str]:
    """Run Python; the seconds, and what it prints."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return time.perf_counter() - begun, done.stdout


def main() -> None:
    asked = options(__doc__, [*SCRIPTS, *TRAJECTORIES])
    asked.print_head()
    table = Table("scripts for MDAnalysis: whole processes", HEADINGS)
    for data in asked.datasets():
        for suffix in ("xtc", "dcd"):
            for name in SCRIPTS:
                if asked.wants(name) or asked.wants(data.trajectory(suffix).name):
                    report(f"{name} {data.trajectory(suffix).name}")
                    row = measure(data, suffix, name, asked.effort.repeats)
                    table.rows.append(row)
    asked.print_tables([table])


if __name__ == "__main__":
    main()
