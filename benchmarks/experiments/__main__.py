"""Run the experiments and write their page.

    python -m benchmarks.experiments [NAME …] [--full | --tiny | --papers | --draw]
        [--ranks 1,24,48,72] [--launcher "srun -n {ranks}"] [--repeats 5] [--data F] [--output F]

A name is that of an experiment, or a word of its source: 2020 stands for all experiments of the
paper of that year. With `--ranks`, experiments on MPI ranks run on these numbers of ranks, and have
a page of their own, in the folder `ranks` of the output.
"""

import argparse
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.data import prepare
from benchmarks.experiments.experiment import Experiment, Setting, save
from benchmarks.experiments.page import write_page
from benchmarks.experiments.scaling import BY_RANK, save_ranks, write_ranks_page
from benchmarks.machine import describe
from benchmarks.measure import Unavailable
from benchmarks.ranks import LAUNCHER, NUMBER

#: Experiments in page order.
NAMES = (
    *("layouts", "contention", "workload", "rdf", "collecting", "memory", "communication"),
    *("oversubscription", "throughput", "formats", "splitting", "distances", "sizes", "mpi_io"),
    *("chunking", "compression", "h5md_formats", "writing", "h5md_mpi_io", "from_disk", "access"),
    *("snapshot_methods", "snapshot_writers", "snapshot_memory", "snapshot_growth"),
    *("snapshot_runs", "snapshot_formats"),
)
#: Frames of adenylate kinase, as in the trajectory that the papers repeat; fewer for it in water.
FRAMES, SCALE = 4187, 4187 / 20_000
#: For each form: number of rounds, fraction of the work, and fraction of the frames.
FORMS = {
    "tiny": (1, 0.01, 0.005),
    "short": (3, 1.0, SCALE),
    "full": (5, 10.0, 1.0),
    "papers": (5, 10.0, None),
}
#: Folder of the page against the number of ranks, in the output.
RANKS = "ranks"


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name."""
    modules = {name: import_module(f"benchmarks.experiments.{name}") for name in NAMES}
    return {name: module.EXPERIMENT for name, module in modules.items()}


def chosen_of(names: Sequence[str], known: dict[str, Experiment]) -> dict[str, Experiment]:
    """Return experiments by name, or by a word of their source.

    Raises
    ------
    ValueError
        There is no such experiment.
    """
    found = {}
    for name in names:
        some = {key: one for key, one in known.items() if name in words(one.source)}
        if name in known:
            some = {name: known[name]}
        if not some:
            raise ValueError(f"there is no experiment {name}; choose from {', '.join(known)}")
        found |= some
    return {key: one for key, one in known.items() if key in found or not names}


def words(source: str) -> list[str]:
    """Return the words of a source, without punctuation."""
    return re.findall(r"\w+", source)


def measure(chosen: dict[str, Experiment], asked: argparse.Namespace) -> list[str]:
    """Run experiments and save their rows; return the names of failed ones."""
    repeats, part, scale = FORMS[asked.form or "short"]
    adk, water = prepare(asked.data, scale)
    failed = []
    for name, experiment in chosen.items():
        begun = time.perf_counter()
        ranks = asked.ranks if experiment.scaling else ()
        with tempfile.TemporaryDirectory(dir=asked.data) as scratch:
            rounds = asked.repeats or repeats
            setting = Setting(adk, water, Path(scratch), rounds, part, scale, ranks)
            try:
                rows = experiment.measure(setting)
            except (Unavailable, ImportError) as reason:
                print(f"{name}: skipped: {reason}", file=sys.stderr)
                continue
            except Exception:
                traceback.print_exc()
                failed.append(name)
                continue
        seconds = time.perf_counter() - begun
        n = experiment.rounds(setting)
        head = [f"{asked.form or 'short'} form, {n} round{'s' * (n > 1)} in {seconds:.0f} s"]
        if ranks:
            head.append(f"ranks started by {os.environ.get(LAUNCHER) or 'mpiexec'}")
        head += [time.strftime("%Y-%m-%d"), *describe()]
        if ranks:
            save_ranks(rows, asked.output / RANKS, name, head)
        else:
            for row in rows:
                row.pop(BY_RANK, None)
            save(rows, asked.output / f"{name}.tsv", head)
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return failed


def numbers(text: str) -> tuple[int, ...]:
    """Parse numbers of ranks, such as "1,24,48,72"; return them in ascending order."""
    found = sorted({int(word) for word in text.split(",")})
    if found[0] < 1:
        raise ValueError(text)
    return tuple(found)


def parsed(known: dict[str, Experiment]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"out of {', '.join(known)}, or a year [all]")
    forms = parser.add_mutually_exclusive_group()
    for form, about in (
        ("tiny", "a test"),
        ("full", "longer"),
        ("papers", "the papers' numbers of frames: more than 1 TB of files"),
    ):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=about)
    forms.add_argument("--draw", action="store_true", help="draw saved rows, measure nothing")
    add("--ranks", type=numbers, default=(), metavar="N,…", help="numbers of MPI ranks")
    more = f'command that starts ranks; {NUMBER} stands for their number, or "-n N" is added'
    add("--launcher", help=f"{more} [mpiexec]")
    add("--repeats", type=int, metavar="N", help="number of rounds [3; 5 of longer forms]")
    add("--data", type=Path, default=Path("bench-data"), help="folder of the data [bench-data]")
    folder = "docs/developers/experiments"
    add("--output", type=Path, default=Path(folder), help=f"[{folder}]")
    asked = parser.parse_args()
    if asked.repeats is not None and asked.repeats < 1:
        parser.error("--repeats: at least 1")
    try:
        asked.chosen = chosen_of(asked.names, known)
    except ValueError as error:
        parser.error(str(error))
    return asked


def main() -> int:
    known = experiments()
    asked = parsed(known)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # one worker means one core
    if asked.launcher:
        os.environ[LAUNCHER] = asked.launcher
    (asked.output / RANKS if asked.ranks else asked.output).mkdir(parents=True, exist_ok=True)
    failed = [] if asked.draw else measure(asked.chosen, asked)
    write_page(asked.output, known)
    write_ranks_page(asked.output / RANKS, known)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
