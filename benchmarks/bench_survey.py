"""Measure surveys of thousands of short trajectories.

    python -m benchmarks survey [folder] [--repeats 5] [--only all …] [--tsv] [--tiny]

400 proteins of 50 to 500 residues (N, CA, C, O and CB; the numbers are spread evenly on a
logarithmic scale) have 5 trajectories of 50 to 500 frames each: XTC, but one of ten proteins has
them in an HDF5 file. The catalogue names each trajectory 5 times, under several ids: 10,000 rows.
Files are in the page cache. Five analyses run (RMSD of CA and of the backbone, RMSF, radius of
gyration, secondary structure) on two workers, each in a process of its own:

- "all": the whole survey; "again": nothing has changed; "one added": one further trajectory;
- "catalogue": 100,000 rows of the shortest trajectory with one analysis, for the memory;
- "opening": one system of an equal topology, in this process, beside `MDAnalysis.Universe`.

The peak memory is the sum of the proportional set sizes of all processes of the survey.
"""

import csv
import itertools
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from benchmarks.compare import Options, options, report
from benchmarks.table import Table

CASES = ("all", "again", "one added", "catalogue", "opening")
HEADINGS = (
    *("case", "systems", "n", "median s", "min s", "max s", "ms a system", "peak MB"),
    "target",
)
N_TOPOLOGIES, TINY_TOPOLOGIES = 400, 4
N_REPLICAS, N_NAMES = 5, 5
N_ROWS, TINY_ROWS = 100_000, 200
SIZES = (50, 500)
ATOMS = ("N", "CA", "C", "O", "CB")
#: Positions of the atoms of a residue relative to its CA, Å.
OFFSETS = np.array(
    [[-1.2, 0.3, -0.6], [0, 0, 0], [1.2, 0.4, 0.7], [1.3, 1.6, 0.8], [-0.3, -1.4, 0.5]]
)
RESIDUES = ("ALA", "ARG", "ASN", "ASP", "GLU", "ILE", "LEU", "LYS", "PHE", "SER", "THR", "VAL")
BATTERY = {
    "rmsd": {"select": "name CA"},
    "backbone": {"analysis": "rmsd", "select": "backbone"},
    "rmsf": {"select": "name CA", "align": True},
    "gyration": {},
    "dssp": {},
}
SEED = 20261130
TARGETS = {"all": "60 s, 500 MB", "one added": "2 s", "catalogue": "2000 MB", "opening": "1.5 ms"}


def make_deposit(folder: Path, n_topologies: int) -> list[list[object]]:
    """Make topologies and trajectories, unless they exist; return the rows of a catalogue."""
    random = np.random.default_rng(SEED)
    steps = np.linspace(0, 1, n_topologies)
    sizes = (SIZES[0] * (SIZES[1] / SIZES[0]) ** steps).astype(int)
    rows: list[list[object]] = []
    for number, n_residues in enumerate(sizes):
        lengths = np.exp(random.uniform(*np.log(SIZES), N_REPLICAS)).astype(int)
        name = f"p{number:04d}"
        made = folder / f"{name}.h5" if number % 10 == 9 else folder / f"{name}.4.xtc"
        if not made.exists():
            _make_protein(folder, name, int(n_residues), lengths, SEED + number)
        for k in range(N_REPLICAS):
            if number % 10 != 9:
                rows.append([name, f"{name}.pdb", f"{name}.{k}.xtc", f"{k}", ""])
            else:
                place = f"{name}/300/{k}/coords"
                rows.append([name, f"{name}.pdb", f"{name}.h5", f"{k}", place])
    return rows


def _make_protein(folder: Path, name: str, n_residues: int, lengths: np.ndarray, seed: int) -> None:
    """Make one helix whose atoms fluctuate, with correlations in time."""
    import h5py
    import MDAnalysis

    random = np.random.default_rng(seed)
    turns = np.arange(n_residues) * np.radians(100)
    trace = np.stack([2.3 * np.cos(turns), 2.3 * np.sin(turns), 1.5 * np.arange(n_residues)], 1)
    positions = (trace[:, None] + OFFSETS).reshape(-1, 3)
    n_atoms = len(positions)
    residues = np.repeat(np.arange(n_residues), len(ATOMS))
    universe = MDAnalysis.Universe.empty(
        n_atoms, n_residues=n_residues, atom_resindex=residues, trajectory=True
    )
    for attribute, values in {
        "names": [*ATOMS] * n_residues,
        "elements": ["N", "C", "C", "O", "C"] * n_residues,
        "resnames": random.choice(RESIDUES, n_residues),
        "resids": np.arange(1, n_residues + 1),
        "chainIDs": ["A"] * n_atoms,
        "segids": ["A"],
    }.items():
        universe.add_TopologyAttr(attribute, values)
    universe.atoms.positions = positions
    universe.atoms.write(folder / f"{name}.pdb")
    for k, n_frames in enumerate(lengths):
        away, frames = np.zeros_like(positions), np.empty((n_frames, n_atoms, 3), np.float32)
        for frame in frames:
            away = 0.9 * away + random.normal(0, 0.1, positions.shape)
            frame[:] = positions + away
        if seed % 10 == 9:
            with h5py.File(folder / f"{name}.h5", "a") as file:
                file[f"{name}/300/{k}/coords"] = frames
                file[f"{name}/300/{k}/coords"].attrs["unit"] = "Angstrom"
            continue
        with MDAnalysis.Writer(str(folder / f"{name}.{k}.xtc"), n_atoms) as writer:
            for number, frame in enumerate(frames):
                universe.atoms.positions = frame
                universe.trajectory.ts.frame = number
                universe.trajectory.ts.time = 1000.0 * number
                writer.write(universe.atoms)


def _survey(catalogue: str, output: str, battery: dict, result: "multiprocessing.Queue") -> None:
    """Run a survey; report its time."""
    import paceline

    begun = time.perf_counter()
    found = paceline.survey(catalogue, output, battery=battery, n_workers=2, progress=False)
    assert found is not None
    result.put((time.perf_counter() - begun, len(found.failures)))


def measure(catalogue: Path, output: Path, battery: dict) -> tuple[float, float]:
    """Run a survey in a process of its own; return its time, s, and the peak memory, MB."""
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    arguments = (f"{catalogue}", f"{output}", battery, result)
    process = context.Process(target=_survey, args=arguments)
    process.start()
    peak = 0.0
    while process.is_alive():
        process.join(0.25)
        peak = max(peak, _memory(process.pid))
    seconds, n_failures = result.get()
    if n_failures:
        raise RuntimeError(f"{n_failures} failures in the survey of {catalogue}")
    return seconds, peak


def _memory(pid: int | None) -> float:
    """Return the proportional set size of a process and its children, MB."""
    total = 0
    try:
        parent = psutil.Process(pid)
        for one in (parent, *parent.children(recursive=True)):
            total += one.memory_full_info().pss
    except psutil.Error:
        return 0.0
    return total / 1e6


def main() -> None:
    asked = options(__doc__ or "", CASES)
    asked.print_head()
    warnings.simplefilter("ignore")
    folder = asked.folder / "survey"
    folder.mkdir(parents=True, exist_ok=True)
    rows = make_deposit(folder, TINY_TOPOLOGIES if asked.tiny else N_TOPOLOGIES)
    table = Table("a survey with five analyses on two workers", HEADINGS)
    for row in _rows(asked, folder, rows):
        table.rows.append(row)
    asked.print_tables([table])


def _rows(asked: Options, folder: Path, rows: list[list[object]]) -> Iterator[tuple[str, ...]]:
    """Measure the cases, and yield the rows of the table."""
    xtc = [row for row in rows if not row[4]]
    names = 1 if asked.tiny else N_NAMES
    several = [[f"{row[0]}-{k}", *row[1:]] for row in rows for k in range(names)]
    if asked.wants("all") or asked.wants("again") or asked.wants("one added"):
        yield from _whole(asked, folder, several)
    if asked.wants("catalogue"):
        report("catalogue")
        shortest = xtc[0][1:3]
        many = [[f"{k}", *shortest, "0", ""] for k in range(TINY_ROWS if asked.tiny else N_ROWS)]
        path = _write(folder / "rows.csv", many)
        output = folder / "rows-tables"
        _clear(output)
        taken = [measure(path, output, {"rmsd": BATTERY["rmsd"]})]
        yield _row("catalogue", len(many), taken)
    if asked.wants("opening"):
        report("opening")
        yield from _opening(asked, folder, xtc)


def _whole(asked: Options, folder: Path, rows: list[list[object]]) -> Iterator[tuple[str, ...]]:
    """Measure the whole survey, the same again, and with one trajectory more."""
    taken: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES[:3]}
    path, output = folder / "catalogue.csv", folder / "tables"
    for number in range(asked.effort.repeats):
        report(f"all, {number + 1} of {asked.effort.repeats}")
        _clear(output)
        for case, some in (("all", rows[:-1]), ("again", rows[:-1]), ("one added", rows)):
            _write(path, some)
            taken[case].append(measure(path, output, BATTERY))
    for case, pairs in taken.items():
        if asked.wants(case):
            yield _row(case, len(rows) - (case != "one added"), pairs)


def _opening(asked: Options, folder: Path, rows: list[list[object]]) -> Iterator[tuple[str, ...]]:
    """Measure the time to open a trajectory whose topology equals the one before."""
    import MDAnalysis

    from paceline.analysis.read_survey_catalogue import SurveyEntry
    from paceline.analysis.survey_one_trajectory import SurveySettings, open_system

    settings = SurveySettings(f"{folder}", None)
    entries = [SurveyEntry(f"{row[0]}", f"{row[1]}", (f"{row[2]}",)) for row in rows]
    times: dict[str, list[float]] = {"opening": [], "opening: MDAnalysis": []}
    for _ in range(asked.effort.repeats):
        seconds = []
        for before, entry in itertools.pairwise(entries):
            begun = time.perf_counter()
            open_system(entry, settings)
            if before.topology == entry.topology:
                seconds.append(time.perf_counter() - begun)
        times["opening"].append(statistics.mean(seconds))
        some = entries[:: max(1, len(entries) // 50)]
        begun = time.perf_counter()
        for entry in some:
            MDAnalysis.Universe(folder / entry.topology, folder / entry.trajectories[0])
        times["opening: MDAnalysis"].append((time.perf_counter() - begun) / len(some))
    for case, values in times.items():
        yield _row(case, 1, [(value, np.nan) for value in values])


def _row(case: str, n_systems: int, taken: list[tuple[float, float]]) -> tuple[str, ...]:
    seconds, peaks = zip(*taken, strict=True)
    median = statistics.median(seconds)
    return (
        case,
        f"{n_systems}",
        f"{len(taken)}",
        *(f"{value:.4g}" for value in (median, min(seconds), max(seconds))),
        f"{1e3 * median / n_systems:.2f}",
        "-" if np.isnan(max(peaks)) else f"{max(peaks):.0f}",
        TARGETS.get(case, "-"),
    )


def _write(path: Path, rows: list[list[object]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "topology", "trajectory", "replica", "dataset"], *rows])
    return path


def _clear(folder: Path) -> None:
    for path in folder.glob("*"):
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
