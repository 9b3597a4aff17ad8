"""Measure how memory, files and time of an RMSD matrix, and of clusters, grow with frames.

    python -m benchmarks matrix [folder] [--only 5000 10000 20000 50000] [--repeats 5] [--tsv]

The matrix contains superposed RMSDs of all pairs of frames, for the 214 Cα of adenylate kinase, in
single precision above the diagonal. For 50,000 frames there are also clusters by gromos, which
needs one bit per pair. The frames are the 98 of MDAnalysisTests, repeated with new noise of 0.05 Å,
in an XTC file that is created in the folder. Each run is a separate process. 50,000 frames need 5.2
GB in the temporary folder (TMPDIR), or are listed as skipped. The second table compares one core,
one worker and two workers in turn, `--repeats` times. With one core (Linux), the calling thread
stores tiles on the worker's core; otherwise it has its own core, which two workers share with it.
Before each run, as much memory is touched as its results need (see `resident.touch`).
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import options, report
from benchmarks.measure import Spread
from benchmarks.resident import Growth, Peak, touch
from benchmarks.table import Table
from paceline.errors import UnsupportedError
from paceline.performance.number_format import joined

MATRIX, CLUSTERS = "matrix", "gromos"
#: Number of frames, kind of computation, and number of workers.
CASES = (
    (5_000, MATRIX, 1),
    (10_000, MATRIX, 1),
    (20_000, MATRIX, 1),
    (50_000, MATRIX, 2),
    (50_000, CLUSTERS, 2),
)
TINY = ((200, MATRIX, 1), (400, MATRIX, 2), (400, CLUSTERS, 2))
#: Number of frames in the runs that compare one worker with two.
IN_TURN, TINY_IN_TURN = 20_000, 200
#: Limit of memory for results (max_memory), bytes.
LIMIT = 64 * 2**20
#: Standard deviation of the noise, and distance below which frames are in one cluster, Å.
NOISE, CUTOFF = 0.05, 1.0
SEED = 20261123
#: Size of a pair in the matrix, and other memory that a run may use, bytes.
PAIR, MORE = 4, 2**28
HEADINGS = (
    *("frames", "what", "workers", "s", "CPU s", "CPU µs/pair"),
    *("anonymous MB", "resident MB", "in files MB"),
)
TIMES = ("s", "cpu")
#: Number of workers, and of cores for workers and calling thread (0 for all).
IN_TURN_ON = {"one core": (1, 1), "one worker": (1, 0), "two": (2, 0)}
HEADINGS_IN_TURN = (
    *("frames", "what", *(f"{name}, s" for name in IN_TURN_ON), "CPU s, one core", "two"),
    *("two by one core", "two by one worker"),
)


def main() -> None:
    asked = options(__doc__, sorted({str(size) for size, *_ in CASES}, key=int))
    asked.print_head()
    cases = TINY if asked.tiny else [case for case in CASES if asked.wants(str(case[0]))]
    folder = _made(asked.folder / f"ca-{cases[-1][0]}", cases[-1][0])
    table, skipped = Table("RMSDs of all pairs, max_memory=64 MiB", HEADINGS), []
    for size, what, n_workers in cases:
        report(f"{what} of {size} frames")
        found = _measured(folder, size, what, n_workers)
        if "lacking" in found:
            skipped.append(f"{what} of {size} frames: {found['lacking']}")
            continue
        pairs = size * (size - 1) // 2
        memory = (f"{found[key] / 1e6:.0f}" for key in ("anonymous", "resident", "in files"))
        times = f"{found['s']:.1f}", f"{found['cpu']:.1f}", f"{found['cpu'] / pairs * 1e6:.3f}"
        table.rows.append((str(size), what, str(n_workers), *times, *memory))
    tables = [table]
    size = TINY_IN_TURN if asked.tiny else IN_TURN
    if asked.wants(str(size)) or asked.tiny:
        rows = [_in_turn(folder, size, what, asked.effort.repeats) for what in (MATRIX, CLUSTERS)]
        title = "In turn: median (lowest–highest)"
        tables.append(Table(title, HEADINGS_IN_TURN, rows))
    asked.print_tables(tables, skipped)


def _in_turn(folder: Path, size: int, what: str, repeats: int) -> tuple[str, ...]:
    """Measure a case on one core, with one worker and with two, in turn."""
    rounds = []
    for number in range(repeats):
        report(f"{what} of {size} frames, {joined(list(IN_TURN_ON))}, {number + 1} of {repeats}")
        rounds.append([_measured(folder, size, what, *how) for how in IN_TURN_ON.values()])
    seconds, cpu = (np.array([[one[key] for one in each] for each in rounds]).T for key in TIMES)
    alone, one, two = seconds
    cells = [_spread(values, 1) for values in (alone, one, two, cpu[0], cpu[2])]
    return str(size), what, *cells, _spread(alone / two, 2), _spread(one / two, 2)


def _spread(values: np.ndarray, digits: int) -> str:
    found = Spread.of(values)
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})"


def _made(folder: Path, n_frames: int) -> Path:
    """Write the Cα atoms and their frames, if they are missing."""
    import MDAnalysis
    from MDAnalysisTests.datafiles import DCD, PSF

    if folder.exists():
        return folder
    report(f"making {folder}")
    random = np.random.default_rng(SEED)
    ca = MDAnalysis.Universe(PSF, DCD, in_memory=True).select_atoms("name CA")
    known = np.array([ca.positions for _ in ca.universe.trajectory])
    alone = MDAnalysis.Merge(ca)
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    alone.atoms.write(unfinished / "ca.gro")
    with MDAnalysis.Writer(str(unfinished / "ca.xtc"), len(ca), dt=1.0) as writer:
        for frame in range(n_frames):
            noise = NOISE * random.standard_normal((len(ca), 3), dtype=np.float32)
            alone.atoms.positions = known[frame % len(known)] + noise
            alone.trajectory.ts.frame = frame
            writer.write(alone.atoms)
    unfinished.rename(folder)
    return folder


def _measured(folder: Path, *case: Any) -> dict[str, Any]:
    """Run one case in a separate process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_matrix", "--child"]
    command += [str(folder), *map(str, case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _child(folder: str, n_frames: int, what: str, n_workers: int, n_cores: int = 0) -> None:
    """Run the case, and print its time and memory."""
    if n_cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_cores])
    import paceline
    from paceline.analysis.clustering import Clustering
    from paceline.analysis.diffusionmap import DistanceMatrix

    ca = paceline.Universe(f"{folder}/ca.gro", f"{folder}/ca.xtc").atoms
    how: dict[str, Any] = {"backend": "threads", "n_workers": n_workers, "max_memory": LIMIT}

    def analysis() -> Any:
        if what == CLUSTERS:
            return Clustering(ca, cutoff=CUTOFF)
        return DistanceMatrix(ca, superposition=True, condensed=True, dtype="float32")

    analysis().run(stop=10, **how)  # loads what is loaded only once
    touch(MORE + (PAIR * n_frames**2 // 2 if what == MATRIX else n_frames**2 // 8))
    grown = Growth()
    with Peak() as peak:
        begun, cpu = time.perf_counter(), time.process_time()
        try:
            one = analysis().run(stop=n_frames, **how)
        except UnsupportedError as error:
            print(json.dumps({"lacking": str(error)}))
            return
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - begun
    if what == MATRIX:
        assert len(one.results.dist_matrix) == n_frames * (n_frames - 1) // 2
    memory = {"anonymous": peak.anonymous, "in files": peak.in_files}
    print(json.dumps({"s": seconds, "cpu": cpu, "resident": grown.peak() * 1e6, **memory}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        folder, n_frames, what, *how = sys.argv[2:]
        _child(folder, int(n_frames), what, *map(int, how))
    else:
        main()
