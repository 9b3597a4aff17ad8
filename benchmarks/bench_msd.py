"""Measure mean squared displacements by FFT: time, memory and anonymous files.

    python -m benchmarks msd [folder] [--repeats 3] [--only MDAnalysis paceline] [--tsv] [--tiny]

The race has 10,000 randomly walking atoms in 10,000 frames of an XTC file, which each tool reads. A
long run of paceline has 100,000 frames: the same file ten times, one after another. It needs 21 GB
in the temporary folder (TMPDIR), or is listed as skipped. Each run is a separate process on one
core, unless two workers are named. MDAnalysis needs tidynamics, and 3.2 GB for its two arrays.
Memory is the anonymous memory beyond that of the process before the run; data read or mapped from
files does not count. The means of all tools must agree. Before each run of the race, 4 GB of memory
are touched, because a virtual machine may get memory only then.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import OURS, OURS_2, REFERENCE, Options, options, report
from benchmarks.measure import Spread
from benchmarks.resident import Peak, touch
from benchmarks.table import Table
from paceline.errors import UnsupportedError

#: Atoms and frames of the race; atoms of the long run, and repetitions of the file.
RACE, LONG = (10_000, 10_000), (10_000, 10)
TINY_RACE, TINY_LONG = (200, 100), (50, 3)
LONG_RUN = "paceline, long"
TOOLS = (REFERENCE, OURS, OURS_2, LONG_RUN)
#: Step along each axis per frame, Å; edge of the region in which atoms start, Å.
STEP, ROOM = 0.3, 60.0
SEED = 20200717
TOUCHED = 4 * 10**9
HEADINGS = (
    *("tool", "atoms", "frames", "s", "min", "max", "CPU s", "of it system s"),
    *("anonymous MB", "in files MB", "times MDAnalysis", "by CPU time", "target"),
)


def main() -> None:
    asked = options(__doc__, TOOLS)
    asked.print_head()
    n_atoms, n_frames = TINY_RACE if asked.tiny else RACE
    path = _walk(asked.folder / f"walk-{n_atoms}-{n_frames}.xtc", n_atoms, n_frames)
    table, skipped = Table("MSD by FFT", HEADINGS), []
    found: dict[str, list[dict[str, Any]]] = {}
    for number in range(asked.effort.repeats):
        for tool in TOOLS:
            # The long run is measured once, and is not compared.
            if not asked.wants(tool) or (tool == LONG_RUN and number):
                continue
            report(f"round {number + 1}: {tool}")
            one = _measured(tool, path, asked)
            if "lacking" in one:
                skipped += [f"{tool}: {one['lacking']}"] if not number else []
            else:
                found.setdefault(tool, []).append(one)
    for tool, runs in found.items():
        table.rows.append(_row(tool, runs, found, judged=asked.effort.judged))
    asked.print_tables([table], skipped)


def _row(
    tool: str, runs: list[dict[str, Any]], found: dict[str, list[dict[str, Any]]], *, judged: bool
) -> tuple[str, ...]:
    theirs = found.get(REFERENCE)
    seconds = Spread.of(one["s"] for one in runs)
    gain, by_cpu, verdict = "-", "-", ""
    if theirs and tool != LONG_RUN:
        for one in runs:
            expected = np.array(theirs[0]["means"])
            if not np.abs(one["means"] - expected).max() <= 1e-6 * expected.max():
                raise RuntimeError(f"{tool}: means differ from those of {REFERENCE}")
        pairs = list(zip(runs, theirs, strict=True))
        gain = f"{np.median([other['s'] / one['s'] for one, other in pairs]):.1f}"
        # Each tool uses one core, and CPU times are hardly disturbed by other programs.
        gains = [other["cpu"] / one["cpu"] for one, other in pairs]
        by_cpu = f"{np.median(gains):.1f}"
        if judged and tool == OURS:
            met = min(gains) >= 10 and max(one["anonymous"] for one in runs) <= 1e9
            verdict = f"10 times, 1,000 MB: {'met' if met else 'missed'}"
    return (
        *(tool, str(runs[0]["atoms"]), str(runs[0]["frames"])),
        *(f"{value:.2f}" for value in (seconds.median, seconds.low, seconds.high)),
        *(f"{np.median([one[key] for one in runs]):.2f}" for key in ("cpu", "system")),
        *(f"{max(one[key] for one in runs) / 1e6:.0f}" for key in ("anonymous", "in files")),
        *(gain, by_cpu, verdict),
    )


def _walk(path: Path, n_atoms: int, n_frames: int) -> Path:
    """Write a random walk, if it is missing."""
    import MDAnalysis

    if path.exists():
        return path
    report(f"making {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    universe = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    positions = random.uniform(0, ROOM, (n_atoms, 3)).astype(np.float32)
    unfinished = path.with_suffix(".unfinished.xtc")
    with MDAnalysis.Writer(str(unfinished), n_atoms, dt=1.0) as writer:
        for frame in range(n_frames):
            universe.trajectory.ts.frame = frame
            universe.atoms.positions = positions
            writer.write(universe.atoms)
            positions += STEP * random.standard_normal((n_atoms, 3), dtype=np.float32)
    unfinished.rename(path)
    return path


def _measured(tool: str, path: Path, asked: Options) -> dict[str, Any]:
    """Run a tool in a separate process."""
    n_atoms, n_frames = TINY_RACE if asked.tiny else RACE
    chosen, n_files = n_atoms, 1
    if tool == LONG_RUN:
        chosen, n_files = TINY_LONG if asked.tiny else LONG
    words = ("--child", tool, path, n_atoms, chosen, n_files)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_msd", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {"atoms": chosen, "frames": n_files * n_frames, **found}


def _child(tool: str, path: str, n_atoms: int, chosen: int, n_files: int) -> None:
    """Run the tool, and print its time and memory."""
    import MDAnalysis

    topology = MDAnalysis.Universe.empty(n_atoms)._topology
    select = f"index 0:{chosen - 1}"
    if tool == REFERENCE:
        from MDAnalysis.analysis.msd import EinsteinMSD

        try:
            import tidynamics  # noqa: F401
        except ImportError:
            print(json.dumps({"lacking": "tidynamics is not installed"}))
            return
        universe, how = MDAnalysis.Universe(topology, path), {}
    else:
        import paceline
        from paceline.analysis.msd import EinsteinMSD

        # Times would restart in a chain of equal files, so `dt` replaces them.
        files = {"dt": 1.0} if n_files > 1 else {}
        universe = paceline.Universe(topology, [path] * n_files if n_files > 1 else path, **files)
        how = {"backend": "threads", "n_workers": 2 if tool == OURS_2 else 1}
    EinsteinMSD(universe, select).run(stop=10, **how)  # loads what is loaded only once
    if n_atoms == RACE[0] and n_files == 1:
        touch(TOUCHED)
    with Peak() as peak:
        begun, before = time.perf_counter(), os.times()
        try:
            one = EinsteinMSD(universe, select).run(**how)
        except UnsupportedError as error:
            print(json.dumps({"lacking": str(error)}))
            return
        seconds, after = time.perf_counter() - begun, os.times()
    means = one.results.timeseries
    system = after.system - before.system
    numbers = {"s": seconds, "cpu": after.user - before.user + system, "system": system}
    numbers |= {"anonymous": peak.anonymous, "in files": peak.in_files}
    print(json.dumps({**numbers, "means": means[:: max(1, len(means) // 100)].tolist()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        tool, path, *numbers = sys.argv[2:]
        _child(tool, path, *map(int, numbers))
    else:
        main()
