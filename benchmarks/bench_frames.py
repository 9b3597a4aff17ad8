"""Measure random frames a second, as learning reads them, beside MDAnalysis and MDTraj.

    python -m benchmarks frames [folder] [--repeats 5] [--only adk.xtc …] [--tsv] [--tiny]

All tools read random frames of a file in the page cache, in turn: all atoms, or Cα alone. "memmap"
copies the bytes of these frames from a memory map of the file into one array, which limits every
reader of formats that are not compressed. "2 threads" (as many as CPUs) are in the process that
uses the batches. "2 processes" keep their batches. "torch, 2 workers" sends them to the process
that trains; it is left out if torch is missing. On a busy machine, the CPU time of a frame says
more than frames a second.
"""

import multiprocessing
import os
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import judged, options, report
from benchmarks.data import RECIPES, Dataset, prepare_set
from benchmarks.h5md_files import SUFFIX, h5md_file
from benchmarks.measure import Here, Run, Slope, Spread, Subject, Unavailable, slopes, subjects
from benchmarks.table import Table

ALL, CA = "all atoms", "Cα"
CASES = ("adk.xtc", "adk.dcd", "adk.trr", f"adk.frame.{SUFFIX}")
#: Minimum number of frames of all atoms per second on two workers.
TARGET = 50_000
#: Number of frames in a batch, and in the shorter run of the fast and of the slow tools.
BATCH, FRAMES, FEW = 64, 6400, 192
SEED = 20261129
ONE, THREADS, PROCESSES = "1 thread", "2 threads", "2 processes"
LOADER = "torch, 2 workers"
HEADINGS = ("case", "tool", "atoms", "frames/s", "min", "max", "CPU µs/frame", "target")


def random_frames(n_frames: int, n: int) -> np.ndarray:
    """Return n random frames, each once before any is repeated."""
    return np.resize(np.random.default_rng(SEED).permutation(n_frames), n)


def _batches(n_frames: int, n: int) -> Iterator[np.ndarray]:
    frames = random_frames(n_frames, n)
    for first in range(0, n, BATCH):
        yield frames[first : first + BATCH]


def _opened(
    topology: Path, path: Path, atoms: np.ndarray | None, *, stop: int | None = None
) -> Any:
    """Return the FrameBatches of a file, or of its first frames."""
    import paceline

    warnings.simplefilter("ignore")
    universe = paceline.Universe(topology, path)
    group = universe.atoms if atoms is None else universe.atoms[atoms]
    return paceline.FrameBatches(group, batch_size=BATCH, stop=stop)


def one_thread(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Read batches in the calling thread."""
    batches = _opened(topology, path, atoms)

    def run(n: int) -> float:
        samples = _batches(batches.n_samples, n)
        return sum(_checksum(batches.read(some).positions[:, 0]) for some in samples)

    return run


def two_threads(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Read batches ahead on the threads of this process, of which there are as many as CPUs."""
    batches = _opened(topology, path, atoms)

    def run(n: int) -> float:
        samples = _batches(batches.n_samples, n)
        return sum(_checksum(batch.positions[:, 0]) for batch in batches.read_ahead(samples))

    return run


def two_processes(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Read half of the batches in each of two other processes."""
    batches = _opened(topology, path, atoms)
    context = multiprocessing.get_context("spawn")
    pipes = []
    for rank in range(2):
        ours, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, batches, rank), daemon=True).start()
        theirs.close()
        pipes.append(ours)

    def run(n: int) -> float:
        for pipe in pipes:
            pipe.send(n)
        return sum(pipe.recv() for pipe in pipes)

    run(BATCH)
    return run


def _serve(pipe: Connection, batches: Any, rank: int) -> None:
    """For each number of frames that comes through the pipe, read every second batch."""
    while True:
        try:
            n = pipe.recv()
        except EOFError:
            return
        samples = [*_batches(batches.n_samples, n)][rank::2]
        pipe.send(sum(_checksum(batches.read(some).positions[:, 0]) for some in samples))


def torch_loader(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Receive batches of the first n frames, in random order, from two workers of PyTorch."""
    try:
        import torch
    except ImportError:
        raise Unavailable("torch is not installed") from None
    from paceline.torch import FrameDataset

    torch.set_num_threads(1)
    loaders = {}

    def epochs(n: int) -> None:
        if n not in loaders:
            dataset = FrameDataset(_opened(topology, path, atoms, stop=n))
            loaders[n] = dataset.loader(num_workers=2, persistent_workers=True)
        n_read = 0
        while n_read < n:
            n_read += sum(len(batch["samples"]) for batch in loaders[n])

    for n in (FRAMES, 2 * FRAMES):  # workers are at work before they are timed
        epochs(n)
    return epochs


def memory_map(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Copy the bytes of whole frames."""
    import paceline

    if atoms is not None:
        raise Unavailable("it copies whole frames")
    warnings.simplefilter("ignore")
    with paceline.open(path) as trajectory:
        n_frames = trajectory.n_frames
        extents = trajectory.chain.extents(np.arange(n_frames))
    mapped = np.memmap(path, mode="r", dtype=np.uint8)
    offsets, sizes = (one.astype(np.int64) for one in (extents.offsets, extents.sizes))
    into = np.empty((BATCH, int(sizes.max())), dtype=np.uint8)

    def run(n: int) -> None:
        for frames in _batches(n_frames, n):
            for row, frame in enumerate(frames.tolist()):
                first, size = offsets[frame], sizes[frame]
                into[row, :size] = mapped[first : first + size]

    return run


def mdanalysis(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Read one frame after another with MDAnalysis."""
    import MDAnalysis

    warnings.simplefilter("ignore")
    universe = MDAnalysis.Universe(topology, path)
    chosen = slice(None) if atoms is None else atoms

    def run(n: int) -> float:
        total = 0.0
        for frames in _batches(universe.trajectory.n_frames, n):
            read = [universe.trajectory[frame].positions[chosen].copy() for frame in frames]
            total += _checksum(np.stack(read))
        return total

    return run


def mdtraj(topology: Path, path: Path, atoms: np.ndarray | None) -> Run:
    """Read one frame after another with MDTraj; lengths are converted to Å."""
    import mdtraj

    if path.suffix == f".{SUFFIX}":
        raise Unavailable("MDTraj does not read H5MD")
    file = mdtraj.open(os.fspath(path))
    in_angstrom = 1 if path.suffix == ".dcd" else 10

    def run(n: int) -> float:
        total = 0.0
        for frames in _batches(len(file), n):
            read = []
            for frame in frames.tolist():
                file.seek(frame)
                read.append(file.read(1, atom_indices=atoms)[0][0])
            total += _checksum(in_angstrom * np.stack(read))
        return total

    return run


def _checksum(positions: np.ndarray) -> float:
    """Sum of the first and the last atom's positions, Å."""
    return float(positions[:, [0, -1]].sum(dtype=np.float64))


TOOLS = {
    "memmap": memory_map,
    ONE: one_thread,
    PROCESSES: two_processes,
    LOADER: torch_loader,
    "MDAnalysis": mdanalysis,
    "MDTraj": mdtraj,
}
SLOW = ("MDAnalysis", "MDTraj")


def main() -> None:
    asked = options(__doc__, CASES)
    data = prepare_set(RECIPES[0], asked.folder, 0.001 if asked.tiny else 1.0)
    asked.print_head()
    table = Table(f"random frames, in batches of {BATCH}, of files in the page cache", HEADINGS)
    skipped = {}
    for case in CASES:
        if not asked.wants(case):
            continue
        path = _path(data, case)
        for name, atoms in ((ALL, None), (CA, np.loadtxt(data.atoms, dtype=int))):
            report(f"{case}: {name}")
            path.read_bytes()  # into the page cache
            wanted = {
                tool: (prepare, data.topology, path.resolve(), atoms)
                for tool, prepare in TOOLS.items()
            }
            with subjects(wanted) as (apart, missing):
                skipped |= {f"{case}, {name}: {tool}": why for tool, why in missing.items()}
                # Measured in this process: a child process would have one thread for reading ahead.
                here = Here(THREADS, two_threads(data.topology, path.resolve(), atoms))
                ready = [*apart[:2], here, *apart[2:]]
                n = BATCH if asked.tiny else FRAMES
                few = dict.fromkeys(SLOW, BATCH if asked.tiny else FEW)
                _check(case, ready, 2 * BATCH)
                taken = slopes(ready, n, asked.effort.repeats, asked.effort.measurement, few)
            _add_rows(table, case, name, taken, asked.effort.judged)
    asked.print_tables([table], [f"{what}: {why}" for what, why in skipped.items()])


def _path(data: Dataset, case: str) -> Path:
    """Return the file of a case; H5MD files are created when first needed."""
    _, ending = case.split(".", 1)
    if ending.endswith(SUFFIX):
        return h5md_file(data, ending.removesuffix(f".{SUFFIX}"))
    return data.trajectory(ending)


def _check(case: str, ready: list[Subject | Here], n: int) -> None:
    """Raise if tools read other positions of the same frames."""
    sums = {subject.name: subject.run(n).values for subject in ready}
    expected = sums[ONE]
    for tool, found in sums.items():
        if found is not None and not abs(found - expected) <= 1e-2 * n:
            raise RuntimeError(f"{case}: sum of positions {found} Å of {tool}, expected {expected}")


def _add_rows(table: Table, case: str, name: str, taken: dict[str, Slope], judge: bool) -> None:
    """Add a row for each tool."""
    for tool, slope in taken.items():
        rates = 1 / slope.per_item
        found = Spread.of(rates)
        is_judged = judge and name == ALL and tool in (THREADS, PROCESSES)
        table.rows.append(
            (
                *(case, tool, name),
                *(f"{rate:,.0f}" for rate in (found.median, found.low, found.high)),
                "-"
                if tool in (PROCESSES, LOADER)
                else f"{Spread.of(1e6 * slope.cpu_per_item).median:.1f}",
                f"{TARGET:,} {judged(rates >= TARGET)}" if is_judged else "",
            )
        )


if __name__ == "__main__":
    main()
