"""Measure scripts that were written for MDAnalysis, with Python and with ``python -m paceline``.

    python -m benchmarks drop_in [folder] [--repeats 5] [--only loop] [--tsv] [--tiny]

Whole processes are timed in turn, including their start. Files are in memory, and modules are
compiled, as in an installed package. Both ways must print the same numbers to four digits, or the
benchmark fails. CPU time is the sum over all threads, which other programs disturb least; *times
Python* compares wall times. The second table is for MDAnalysis classes that need the frames in
order: they compute in one thread while other threads decode. It lists the time of a run, of
computing alone (frames in memory), and of decoding alone by one thread, s. The third table is for
loops that read and write all frames: CPU time per frame, with MDAnalysis and registered. The fourth
table, `part`, is for loops over the positions of a protein in water, without the start: with
MDAnalysis, and with paceline loading all atoms or only the protein.
"""

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import options, report
from benchmarks.data import SELECTION, TRAJECTORIES, Dataset
from benchmarks.measure import Spread
from benchmarks.table import Table
from paceline._util.machine_and_software import available_cpus

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
SCRIPTS = {
    "loop": OPEN + LOOP,
    "script": OPEN + ANALYSES + OWN_LOOP,
    "domains": (Path(__file__).parents[1] / "examples/domains.py").read_text(),
}
#: Minimum speed relative to plain Python.
TARGETS = {"script": 3.0, "domains": 3.0}
WAYS = {"Python": (), "paceline": ("-m", "paceline", "--quiet")}

#: Classes that need the frames in order, and their maximum time, relative to the larger of
#: computing time and decoding time per core.
IN_ORDER = ("AlignTraj", "AverageStructure", "DielectricConstant", "PCA", "RMSF")
IN_ORDER_TARGET = 1.1
#: Maximum number of coordinates in memory.
IN_MEMORY = 30_000_000
IN_ORDER_HEADINGS = (
    *("case", "frames", "run s", "computing s", "decoding s", "times the larger", "min", "max"),
    *("times all work over cores", "target"),
)

#: Formats of MDAnalysis's writers, and minimum speed relative to MDAnalysis.
WRITING = {"xtc": 3.0, "trr": 0.0, "dcd": 0.0, "nc": 3.0, "h5md": 3.0}
WRITING_HEADINGS = (
    *("case", "frames", "MDAnalysis µs", "paceline µs", "times MDAnalysis", "min", "max", "target"),
)
#: Atoms that paceline loads for a loop; None for MDAnalysis, which loads all atoms.
LOADED = {"MDAnalysis": None, "all atoms": "all", "protein": "protein"}
#: Minimum rate for XTC, by CPU time, relative to MDAnalysis.
PART_TARGET = 8.0
PART_HEADINGS = (
    *("case", "frames", *(f"{name} CPU µs" for name in LOADED)),
    *("all atoms: times MDAnalysis", "protein: times MDAnalysis", "min", "max", "target"),
)

HEADINGS = (
    *("case", "frames", "Python s", "paceline s"),
    *("times Python", "min", "max", "target", "Python CPU s", "paceline CPU s"),
)


def measure(data: Dataset, suffix: str, name: str, repeats: int) -> tuple[str, ...]:
    """Create the row of one script and trajectory."""
    path = data.trajectory(suffix)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, f"{name}.py")
        script.write_text(SCRIPTS[name])
        command = [str(script), str(data.topology), str(path)]
        taken = [
            {way: _run([*start, *command]) for way, start in WAYS.items()}
            for _ in range(repeats + 1)
        ][1:]
    said = {run[2] for runs in taken for run in runs.values()}
    if len(said) != 1:
        raise RuntimeError(f"{path}: {name} prints several things: {said}")
    seconds, on_cpu = (
        {way: np.array([runs[way][k] for runs in taken]) for way in WAYS} for k in (0, 1)
    )
    gain = Spread.of(seconds["Python"] / seconds["paceline"])
    shown = (f"{value:.2f}" for value in (gain.median, gain.low, gain.high))
    medians, cpu = (
        [f"{np.median(times):.2f}" for times in one.values()] for one in (seconds, on_cpu)
    )
    target = f"{TARGETS[name]:g}" if name in TARGETS else ""
    return f"{name} {path.name}", str(data.n_frames), *medians, *shown, target, *cpu


def _run(arguments: Sequence[str]) -> tuple[float, float, str]:
    """Run Python; return its wall time and CPU time, s, and its output."""
    # The first run compiles modules for the next runs.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begun, cpu = time.perf_counter(), _cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return time.perf_counter() - begun, _cpu_of_children() - cpu, done.stdout


def _cpu_of_children() -> float:
    """Return the CPU time of ended processes and of their ended children, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_in_order(data: Dataset, suffix: str, name: str, repeats: int) -> tuple[str, ...]:
    """Create the row of one class that needs frames in order, and one trajectory."""
    import MDAnalysis as mda

    import paceline

    path = data.trajectory(suffix)
    with paceline.register():
        universe = mda.Universe(str(data.topology), str(path))
    n_frames = min(data.n_frames, max(1, IN_MEMORY // (3 * universe.atoms.n_atoms)))
    in_memory = universe.copy()
    in_memory.transfer_to_memory(stop=n_frames)
    n_passes = 2 if name == "PCA" else 1
    taken: dict[str, list[float]] = {"run": [], "computing": [], "decoding": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for _ in range(repeats + 1):
            taken["run"].append(_seconds(lambda: _in_order(name, universe).run(stop=n_frames)))
            taken["computing"].append(_seconds(_in_order(name, in_memory).run))
            taken["decoding"].append(
                n_passes * _seconds(lambda: _read_alone(universe.trajectory, n_frames))
            )
    run, computing, decoding = (np.array(times[1:]) for times in taken.values())
    ratio = Spread.of(run / np.maximum(computing, decoding / available_cpus()))
    work = Spread.of(run / np.maximum(computing, (computing + decoding) / available_cpus()))
    medians = (f"{np.median(times):.2f}" for times in (run, computing, decoding))
    shown = (f"{value:.2f}" for value in (ratio.median, ratio.low, ratio.high, work.median))
    return f"{name} {path.name}", str(n_frames), *medians, *shown, f"{IN_ORDER_TARGET:g}"


def _in_order(name: str, universe: Any) -> Any:
    """Create an analysis that needs the frames in order."""
    import MDAnalysis as mda
    from MDAnalysis.analysis import align, dielectric, pca, rms

    ca = universe.select_atoms("protein and name CA")
    if name == "AlignTraj":
        made = align.AlignTraj(universe, universe, select=SELECTION, filename="aligned.dcd")
        # Set a writer, because with frames in memory the analysis would not write a file.
        made._writer = mda.Writer("aligned.dcd", universe.atoms.n_atoms)
        return made
    if name == "AverageStructure":
        return align.AverageStructure(universe, universe, select=SELECTION)
    if name == "DielectricConstant":
        neutral = [one.atoms.ix for one in universe.residues if abs(one.charge) < 1e-6]
        group = universe.atoms[np.concatenate(neutral)]
        return dielectric.DielectricConstant(group, make_whole=False)
    return pca.PCA(universe, select=SELECTION) if name == "PCA" else rms.RMSF(ca)


def measure_writing(data: Dataset, ending: str, repeats: int) -> tuple[str, ...]:
    """Create the row of one format: a loop that reads DCD and writes all atoms."""
    import MDAnalysis as mda

    import paceline

    files = str(data.topology), str(data.trajectory("dcd"))
    universes = {"MDAnalysis": mda.Universe(*files)}
    with paceline.register():
        universes["paceline"] = mda.Universe(*files)
    n_frames = min(data.n_frames, max(1, IN_MEMORY // (3 * universes["paceline"].atoms.n_atoms)))
    taken: dict[str, list[float]] = {way: [] for way in universes}
    with tempfile.TemporaryDirectory(dir=data.topology.parent) as folder:
        for _ in range(repeats + 1):
            for way, universe in universes.items():
                path = str(Path(folder, f"{way}.{ending}"))
                with paceline.register() if way == "paceline" else contextlib.nullcontext():
                    begun = time.process_time()
                    _copy_frames(universe, path, n_frames)
                taken[way].append((time.process_time() - begun) / n_frames * 1e6)
    theirs, ours = (np.array(times[1:]) for times in taken.values())
    gain = Spread.of(theirs / ours)
    medians = (f"{np.median(times):.0f}" for times in (theirs, ours))
    shown = (f"{value:.2f}" for value in (gain.median, gain.low, gain.high))
    target = f"{WRITING[ending]:g}" if WRITING[ending] else ""
    return f"writing {data.name}.{ending}", str(n_frames), *medians, *shown, target


def _copy_frames(universe: Any, path: str, n_frames: int) -> None:
    import MDAnalysis as mda

    with mda.Writer(path, universe.atoms.n_atoms) as writer:
        for _ in universe.trajectory[:n_frames]:
            writer.write(universe.atoms)


def _read_alone(trajectory: Any, n_frames: int) -> None:
    """Read frames by one thread."""
    for frame in range(n_frames):
        trajectory._read_alone(frame)


def measure_part(data: Dataset, suffix: str, repeats: int) -> tuple[str, ...]:
    """Create the row of loops over frames that use only some atoms."""
    import MDAnalysis as mda

    import paceline

    files = str(data.topology), str(data.trajectory(suffix))
    universes = {
        name: mda.Universe(*files) if loaded is None else paceline.Universe(*files, atoms=loaded)
        for name, loaded in LOADED.items()
    }
    groups = {name: universe.select_atoms("protein") for name, universe in universes.items()}
    taken = [{name: _loop(group) for name, group in groups.items()} for _ in range(repeats + 1)]
    if len({checked for runs in taken for _, checked in runs.values()}) != 1:
        raise RuntimeError(f"{files[1]}: loops over the protein see different positions")
    cpu = {name: np.array([runs[name][0] for runs in taken[1:]]) / data.n_frames for name in LOADED}
    theirs, every, part = cpu.values()
    gain = Spread.of(theirs / part)
    shown = (f"{value:.1f}" for value in (gain.median, gain.low, gain.high))
    return (
        *(f"part {Path(files[1]).name}", str(data.n_frames)),
        *(f"{np.median(times) * 1e6:.0f}" for times in cpu.values()),
        *(f"{np.median(theirs / every):.1f}", *shown),
        f"{PART_TARGET:g}" if suffix == "xtc" else "",
    )


def _loop(group: Any) -> tuple[float, float]:
    """Loop over the positions of a group; return the CPU time, s, and a checksum."""
    begun, checked = time.process_time(), 0.0
    for _ in group.universe.trajectory:
        checked += float(group.positions[-1, 0])
    return time.process_time() - begun, checked


def _seconds(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def main() -> None:
    asked = options(__doc__, [*SCRIPTS, *IN_ORDER, "writing", "part", *TRAJECTORIES])
    asked.print_head()
    table = Table("scripts for MDAnalysis: whole processes", HEADINGS)
    for data in asked.datasets():
        for suffix in ("xtc", "dcd"):
            for name in SCRIPTS:
                if asked.wants(name) or asked.wants(data.trajectory(suffix).name):
                    report(f"{name} {data.trajectory(suffix).name}")
                    row = measure(data, suffix, name, asked.effort.repeats)
                    table.rows.append(row)
    in_order = Table("classes that need the frames in order", IN_ORDER_HEADINGS)
    for data in asked.datasets():
        for name in IN_ORDER:
            if name == "DielectricConstant" and data.name == "water":
                continue  # the analysis would treat the charge sites of water as free ions
            if asked.wants(name) or asked.wants(data.trajectory("xtc").name):
                report(f"{name} {data.trajectory('xtc').name}")
                row = measure_in_order(data, "xtc", name, asked.effort.repeats)
                in_order.rows.append(row)
    writing = Table("MDAnalysis's writers", WRITING_HEADINGS)
    for data in asked.datasets():
        for ending in WRITING:
            if asked.wants("writing"):
                report(f"writing {data.name}.{ending}")
                writing.rows.append(measure_writing(data, ending, asked.effort.repeats))
    part = Table("loops over a protein in water, without the start", PART_HEADINGS)
    for data in asked.datasets():
        for suffix in ("xtc", "dcd", "trr"):
            name = data.trajectory(suffix).name
            if data.name == "water" and (asked.wants("part") or asked.wants(name)):
                report(f"part {name}")
                part.rows.append(measure_part(data, suffix, asked.effort.repeats))
    asked.print_tables([table, in_order, writing, part])


if __name__ == "__main__":
    main()
