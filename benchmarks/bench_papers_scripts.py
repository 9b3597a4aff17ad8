"""Measure scripts printed in papers on parallel analysis, without and with paceline.

    python -m benchmarks papers_scripts [folder] [--repeats 3] [--only mpi] [--tsv] [--tiny]

Whole processes are timed in turn, including their start: ``python script`` and
``python -m paceline script``, with two Dask workers or two MPI ranks. Files are in memory. Both
must save the same bits, or the benchmark fails. Plain Python runs the script of 2021 on H5MD only
if h5py was built with MPI.
"""

import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import h5py
import numpy as np

from benchmarks.compare import options, report
from benchmarks.data import Dataset
from benchmarks.measure import Spread, Unavailable
from benchmarks.ranks import environment_of, launcher
from benchmarks.table import Table

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
N_WORKERS = 2
#: For each case: script, arguments after the files, and formats.
CASES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "dask-processes": ("dask_2017.py", (str(N_WORKERS), "processes"), ("dcd", "xtc")),
    "dask-distributed": ("dask_2017.py", (str(N_WORKERS), "distributed"), ("dcd", "xtc")),
    "mpi": ("mpi_2020.py", (), ("dcd", "xtc")),
    "mpi-io": ("h5md_2021.py", (), ("dcd", "h5md")),
}
HEADINGS = (
    *("case", "frames", "Python s", "min", "max", "paceline s", "min", "max"),
    *("times Python", "min", "max"),
)
VERSIONS = ("MDAnalysis", "dask", "distributed", "mpi4py", "h5py", "numpy")


def measure(data: Dataset, name: str, suffix: str, repeats: int) -> tuple[str, ...]:
    """Create the row of one case and trajectory."""
    script, more, _ = CASES[name]
    path = trajectory(data, suffix)
    is_mpi = script != "dask_2017.py"
    start = launcher(N_WORKERS) if is_mpi else []
    ways = {
        "Python": [],
        "paceline": ["-m", "paceline", "--quiet", *(["--every-rank"] if is_mpi else [])],
    }
    if suffix == "h5md" and not h5py.get_config().mpi:
        del ways["Python"]
    taken: dict[str, list[float]] = {way: [] for way in ways}
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.npy")
        for _ in range(repeats + 1):
            for way, how in ways.items():
                command = [*start, sys.executable, *how, PAPERS / script, data.topology, path]
                taken[way].append(_seconds([*map(str, command), *more, str(out)], is_mpi=is_mpi))
                found.add(np.load(out).tobytes())
                out.unlink()
    if len(found) != 1:
        raise RuntimeError(f"{path}: {name} saves several results")
    ours = np.array(taken["paceline"][1:])
    shown = ["-"] * 3, _cells(ours), ["-"] * 3
    if "Python" in taken:
        theirs = np.array(taken["Python"][1:])
        shown = _cells(theirs), _cells(ours), _cells(theirs / ours)
    return f"{name} {path.name}", str(data.n_frames), *(cell for cells in shown for cell in cells)


def trajectory(data: Dataset, suffix: str) -> Path:
    """Return the file of one format; H5MD is written when first needed."""
    if suffix != "h5md":
        return data.trajectory(suffix)
    import paceline

    path = data.trajectory("dcd").with_suffix(".h5md")
    if not path.exists():
        universe = paceline.Universe(data.topology, data.trajectory("dcd"))
        paceline.Write(universe.atoms, path).run()
    return path


def _seconds(command: list[str], *, is_mpi: bool) -> float:
    """Return the duration of a program, s."""
    environment = environment_of(launcher(N_WORKERS)) if is_mpi else dict(os.environ)
    # The first run compiles modules for the next runs.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"PYTHONWARNINGS": "ignore"}
    begun = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return time.perf_counter() - begun


def _cells(values: np.ndarray) -> list[str]:
    spread = Spread.of(values)
    return [f"{value:.2f}" for value in (spread.median, spread.low, spread.high)]


def main() -> None:
    asked = options(__doc__, list(CASES))
    asked.print_head()
    print("# " + ", ".join(f"{name} {metadata.version(name)}" for name in VERSIONS))
    table = Table("scripts of papers: whole processes on two workers", HEADINGS)
    skipped = []
    for data in asked.datasets():
        for name, (_, _, suffixes) in CASES.items():
            for suffix in suffixes:
                if not asked.wants(name):
                    continue
                report(f"{name} {data.name}.{suffix}")
                try:
                    table.rows.append(measure(data, name, suffix, asked.effort.repeats))
                except Unavailable as reason:
                    skipped.append(f"{name}: {reason}")
    asked.print_tables([table], skipped)


if __name__ == "__main__":
    main()
