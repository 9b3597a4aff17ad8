"""Compare two builds of paceline: run the same jobs in turn, and print the ratio of their times.

    python -m benchmarks.builds OLD [--new CHECKOUT] [--pairs 9] [--only NAME …] [--frames 20000]
    python -m benchmarks.builds OLD --instructions --frames 400

OLD and CHECKOUT are checkouts of this repository with the module built in `python/paceline`; by
default this checkout is compared. Each build has a process that has run every job once. Jobs use
only public names. A pair is one measurement of each build, in alternating order; the ratio is new /
old. The interval is a 95 % bootstrap interval of the median: 2,000 samples of the pairs with
replacement. The exit status is 1 if an interval lies above 1.03.

With `--instructions`, valgrind counts the instructions of each single-thread job, and of `import`
and `help`. One count suffices, because it hardly depends on the machine and its load. A job takes
about fifty times as long, so 400 frames are enough.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Ratio above which a build counts as slower.
SLOWER = 1.03
#: Minimum duration of a measurement, seconds.
LEAST = 0.4
#: Jobs whose instructions are not counted, because waiting makes the count vary.
ON_MANY = ("rmsd-xtc-2", "rmsd-xtc-processes", "validate")
#: Commands whose instructions are counted in their single process.
COUNTED_COMMANDS = ("import", "help")
#: Command that counts instructions of a job process. It writes and resets its counts at each call
#: of a function that `serve` calls before and after a job.
CALLGRIND = ("valgrind", "--quiet", "--tool=callgrind", "--dump-before=getppid")
#: Number of atoms in a snapshot at full size.
FULL_ATOMS = 1_728_000
SELECTION = "protein and name CA"


def jobs(adk: Path, water: Path, work: Path, scale: float) -> dict[str, Callable[[], Any]]:
    """Create the jobs by name; paceline is imported only in the processes that run them."""
    import paceline
    from paceline.analysis.rdf import InterRDF
    from paceline.analysis.rms import RMSD, RMSF

    def frames(n: int) -> int:
        return max(1, round(n * scale))

    def rmsd(path: Path, **options: Any) -> Callable[[], Any]:
        universe = paceline.Universe(str(next(path.parent.glob("topology.*"))), str(path))
        atoms = universe.select_atoms(SELECTION)
        return lambda: RMSD(atoms).run(progress=False, **options)

    def rmsf(path: Path) -> Callable[[], Any]:
        universe = paceline.Universe(str(next(path.parent.glob("topology.*"))), str(path))
        atoms = universe.select_atoms(SELECTION)
        return lambda: RMSF(atoms).run(backend="serial", progress=False)

    def written(path: Path, name: str, **options: Any) -> Callable[[], Any]:
        universe = paceline.Universe(str(next(path.parent.glob("topology.*"))), str(path))
        file = str(work / name)

        def write() -> None:
            Path(file).unlink(missing_ok=True)
            paceline.Write(universe.atoms, file, **options).run(
                stop=frames(1000), backend="serial", progress=False
            )

        return write

    def unwrapped(path: Path) -> Callable[[], Any]:
        universe = paceline.Universe(str(next(path.parent.glob("topology.*"))), str(path))
        atoms = universe.select_atoms(SELECTION)
        whole = [paceline.transform.unwrap()]
        return lambda: RMSD(atoms).run(
            transforms=whole, stop=frames(2000), backend="serial", progress=False
        )

    def rdf(path: Path) -> Callable[[], Any]:
        universe = paceline.Universe(str(next(path.parent.glob("topology.*"))), str(path))
        oxygens = universe.select_atoms("name OW")
        return lambda: InterRDF(oxygens, oxygens, range=(0.0, 10.0)).run(
            stop=frames(30), backend="serial", progress=False
        )

    plain, packed = work / "topology-plain.h5md", work / "topology-packed.h5md"
    for name, options in ((plain, {}), (packed, {"compress": "gzip:1"})):
        if not name.exists():
            universe = paceline.Universe(
                str(next(water.parent.glob("topology.*"))), str(water.with_suffix(".xtc"))
            )
            paceline.Write(universe.atoms, str(name), **options).run(
                stop=frames(2000), progress=False
            )
    topology = str(next(water.parent.glob("topology.*")))

    def h5md(path: Path, **options: Any) -> Callable[[], Any]:
        atoms = paceline.Universe(topology, str(path)).select_atoms(SELECTION)
        return lambda: RMSD(atoms).run(progress=False, **options)

    found = {
        f"rmsd-{end}": rmsd(adk.with_suffix(f".{end}"), backend="serial")
        for end in ("xtc", "trr", "dcd", "nc")
    }
    found["rmsd-xtc-2"] = rmsd(adk.with_suffix(".xtc"), n_workers=2)
    found["rmsd-xtc-processes"] = rmsd(adk.with_suffix(".xtc"), backend="processes", n_workers=2)
    found["rmsd-water-xtc"] = rmsd(water.with_suffix(".xtc"), backend="serial")
    found["rmsf-xtc"] = rmsf(adk.with_suffix(".xtc"))
    found["h5md"] = h5md(plain, backend="serial")
    found["h5md-gzip"] = h5md(packed, backend="serial")
    found["convert-dcd"] = written(adk.with_suffix(".xtc"), "out.dcd")
    found["convert-xtc"] = written(adk.with_suffix(".dcd"), "out.xtc")
    found["convert-h5md"] = written(water.with_suffix(".xtc"), "out.h5md")
    found["convert-h5md-gzip"] = written(
        water.with_suffix(".xtc"), "packed.h5md", compress="gzip:1"
    )
    found["rdf"] = rdf(water.with_suffix(".xtc"))
    found["unwrap"] = unwrapped(water.with_suffix(".xtc"))
    found["validate"] = lambda: paceline.validate(str(adk.with_suffix(".xtc")))
    found["open"] = lambda: paceline.Universe(
        str(next(adk.parent.glob("topology.*"))), str(adk.with_suffix(".xtc"))
    )
    return found


def commands(adk: Path, work: Path, scale: float) -> dict[str, list[str]]:
    """List commands that are timed as whole processes: starts, and snapshots on two ranks."""
    topology = str(next(adk.parent.glob("topology.*")))
    found = {
        "import": [sys.executable, "-c", "import paceline"],
        "help": [sys.executable, "-c", "from paceline.cli import main; main(['--help'])"],
        "command": [
            *(sys.executable, "-c", "import sys; from paceline.cli import main; sys.exit(main())"),
            *("rmsd", topology, str(adk.with_suffix(".xtc")), "-o", str(work / "rmsd.csv")),
            *("--overwrite", "--select", SELECTION),
        ],
    }
    mpiexec = shutil.which("mpiexec", path=os.path.dirname(sys.executable))
    if mpiexec:
        snapshot = work / "snapshot.py"
        snapshot.write_text(SNAPSHOT)
        found["mpi"] = [mpiexec, "-n", "2", *found["command"]]
        for end in ("h5md", "HISTORY", "nc"):
            name = str(work / ("HISTORY" if end == "HISTORY" else f"snapshot.{end}"))
            found[f"snapshot-{end.lower()}"] = [
                *(mpiexec, "-n", "2", sys.executable, str(snapshot), name),
                str(max(1000, round(FULL_ATOMS * scale))),
            ]  # fmt: skip
    return found


SNAPSHOT = """
import sys
import numpy as np
from mpi4py import MPI
from paceline.snapshot import Writer

comm = MPI.COMM_WORLD
n = int(sys.argv[2])
ids = np.random.default_rng(1).permutation(n)[comm.rank :: comm.size] + 1
positions = np.random.default_rng(comm.rank).random((len(ids), 3)) * 50
names = {"names": np.full(len(ids), "Na")} if sys.argv[1].endswith("HISTORY") else {}
with Writer(comm, sys.argv[1], n, overwrite=True) as writer:
    for step in range(6):
        writer.write(ids, positions, box=np.eye(3) * 50.0, step=step, time=float(step), **names)
"""


def serve(adk: Path, water: Path, work: Path, scale: float) -> None:
    """Run the jobs named on standard input, and print their durations."""
    work.mkdir(exist_ok=True)
    found = jobs(adk, water, work, scale)
    print(json.dumps(list(found)), flush=True)
    for line in sys.stdin:
        name, times = json.loads(line)
        os.getppid()
        begun = time.perf_counter()
        for _ in range(times):
            found[name]()
        taken = time.perf_counter() - begun
        os.getppid()
        print(taken, flush=True)


class Build:
    """A build: its job process, and its environment for commands."""

    def __init__(
        self, checkout: Path, adk: Path, water: Path, work: Path, scale: float, counted: bool
    ):
        self.work = work
        work.mkdir()
        path = {"PYTHONPATH": str(checkout.resolve() / "python")}
        self.environment = os.environ | path | {"PYTHONHASHSEED": "0"}
        counter = (*CALLGRIND, f"--callgrind-out-file={work / 'counts'}") if counted else ()
        serving = [sys.executable, __file__, "--serve", *map(str, (adk, water, work, scale))]
        self._process = subprocess.Popen(
            [*counter, *serving],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
            text=True,
        )
        self.commands = commands(adk, work, scale)

    def jobs(self) -> list[str]:
        """Wait until the jobs are ready; return their names."""
        assert self._process.stdout is not None
        names: list[str] = json.loads(self._process.stdout.readline())
        return names

    def seconds(self, name: str, times: int) -> float:
        """Time `times` runs of a job, or a command."""
        if name in self.commands:
            begun = time.perf_counter()
            for _ in range(times):
                subprocess.run(
                    self.commands[name],
                    env=self.environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=True,
                )
            return time.perf_counter() - begun
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, times]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the job {name} failed; its error is above")
        return float(answer)

    def instructions(self, name: str) -> int:
        """Count the instructions of a job that has run before, or of a command."""
        if name in self.commands:
            counter = (*CALLGRIND[:3], f"--callgrind-out-file={self.work / 'command'}")
            command = [*counter, *self.commands[name]]
            subprocess.run(command, env=self.environment, stdout=subprocess.DEVNULL, check=True)
            return total(self.work / "command")
        for _ in range(2):
            self.seconds(name, 1)
        parts = sorted(self.work.glob("counts.*"), key=lambda path: int(path.suffix[1:]))
        found = total(parts[-1])
        for path in parts:
            path.unlink()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def total(path: Path) -> int:
    """Read the number of instructions from a callgrind file."""
    (line,) = re.findall(r"^(?:totals|summary): (\d+)", path.read_text("utf-8"), re.MULTILINE)[-1:]
    return int(line)


def compare(old: Build, new: Build, name: str, pairs: int) -> tuple[float, float, float, float]:
    """Measure pairs; return the old build's time, the median ratio, and its interval."""
    for build in (old, new):
        build.seconds(name, 1)
    once = max(old.seconds(name, 1), 1e-6)
    times = max(1, round(LEAST / once))
    measured = []
    for k in range(pairs):
        order = (old, new) if k % 2 == 0 else (new, old)
        seconds = {id(build): build.seconds(name, times) / times for build in order}
        measured.append((seconds[id(old)], seconds[id(new)]))
    before, after = np.array(measured).T
    ratios = after / before
    chosen = np.random.default_rng(0).integers(0, pairs, (2000, pairs))
    low, high = np.quantile(np.median(ratios[chosen], axis=1), [0.025, 0.975])
    return float(np.median(before)), float(np.median(ratios)), float(low), float(high)


def main() -> int:
    """Compare builds, print a tab-separated table; return 1 if the new build is slower."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="checkout of the old build")
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument(
        "--frames",
        type=int,
        default=20_000,
        help="frames of the protein alone; the other sizes follow",
    )
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with valgrind, no times"
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="JOB")
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    args = parser.parse_args()
    if args.instructions and not shutil.which("valgrind"):
        parser.error("--instructions needs valgrind: apt-get install valgrind")
    from benchmarks.data import RECIPES, prepare
    from benchmarks.machine import describe

    scale = args.frames / RECIPES[0].n_frames
    sets = {one.name: one for one in prepare(args.data.resolve(), scale)}
    adk, water = sets["adk"].trajectory("xtc"), sets["water"].trajectory("xtc")
    print(*(f"# {line}" for line in describe()), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        old, new = (
            Build(checkout, adk, water, Path(folder, name), scale, args.instructions)
            for name, checkout in (("old", args.old), ("new", args.new))
        )
        _, names = old.jobs(), [*new.jobs(), *new.commands]
        names = [name for name in names if name in (args.only or (name,))]
        slower = (print_counts if args.instructions else print_times)(old, new, names, args)
        old.close()
        new.close()
    print(f"# more than 3 % above the old build: {', '.join(slower) or 'none'}")
    return bool(slower)


def print_times(old: Build, new: Build, names: list[str], args: argparse.Namespace) -> list[str]:
    """Print a row for each job when it is measured; return jobs that have become slower."""
    print(f"# {args.pairs} pairs; at least {LEAST} s a measurement; {args.frames} frames")
    print("job", "old (ms)", "new / old", "low", "high", sep="\t", flush=True)
    slower = []
    for name in names:
        before, ratio, low, high = compare(old, new, name, args.pairs)
        slower += [name] if low > SLOWER else []
        print(name, f"{1e3 * before:.3g}", f"{ratio:.3f}", f"{low:.3f}", f"{high:.3f}",
              sep="\t", flush=True)  # fmt: skip
    return slower


def print_counts(old: Build, new: Build, names: list[str], args: argparse.Namespace) -> list[str]:
    """Print a row for each single-thread job; return those that need more instructions."""
    print(f"# instructions, counted by valgrind; {args.frames} frames")
    print("job", "old (millions)", "new / old", sep="\t", flush=True)
    slower = []
    for name in names:
        if name in ON_MANY or (name in old.commands and name not in COUNTED_COMMANDS):
            continue
        before, after = (build.instructions(name) for build in (old, new))
        slower += [name] if after > SLOWER * before else []
        print(name, f"{before / 1e6:.4g}", f"{after / before:.4f}", sep="\t", flush=True)
    return slower


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(*map(Path, sys.argv[2:5]), float(sys.argv[5]))
    else:
        sys.exit(main())
