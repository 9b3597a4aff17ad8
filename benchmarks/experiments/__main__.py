"""Run the experiments and write their page.

python -m benchmarks.experiments [NAME …] [--full | --tiny | --draw] [--data F] [--output F]
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

from benchmarks.data import prepare
from benchmarks.experiments.experiment import Experiment, Setting, save
from benchmarks.experiments.page import write_page
from benchmarks.machine import describe
from benchmarks.measure import Unavailable

#: Experiments in page order.
NAMES = (
    *("layouts", "contention", "workload", "rdf", "collecting", "memory", "communication"),
    *("oversubscription", "throughput", "formats", "splitting", "distances", "sizes", "mpi_io"),
    *("chunking", "compression", "h5md_formats", "writing", "h5md_mpi_io", "from_disk", "access"),
    *("snapshot_methods", "snapshot_writers", "snapshot_memory", "snapshot_growth"),
    "snapshot_runs",
)
#: Frames of adenylate kinase, as in the trajectory that the papers repeat; fewer for it in water.
FRAMES, SCALE = 4187, 4187 / 20_000
#: For each form: number of rounds, fraction of the work, and fraction of the frames.
FORMS = {"tiny": (1, 0.01, 0.005), "short": (3, 1.0, SCALE), "full": (5, 10.0, 1.0)}


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name."""
    modules = {name: import_module(f"benchmarks.experiments.{name}") for name in NAMES}
    return {name: module.EXPERIMENT for name, module in modules.items()}


def measure(chosen: dict[str, Experiment], form: str, data: Path, output: Path) -> list[str]:
    """Run experiments and save their rows; return the names of failed ones."""
    repeats, part, scale = FORMS[form]
    adk, water = prepare(data, scale)
    failed = []
    for name, experiment in chosen.items():
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=data) as scratch:
            setting = Setting(adk, water, Path(scratch), repeats, part, scale)
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
        told = (
            f"{form} form, {n} round{'s' * (n > 1)} in {seconds:.0f} s",
            time.strftime("%Y-%m-%d"),
        )
        save(rows, output / f"{name}.tsv", [*told, *describe()])
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return failed


def main() -> int:
    known = experiments()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"out of {', '.join(known)} [all]")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--tiny", dest="form", action="store_const", const="tiny", help="a test")
    forms.add_argument("--full", dest="form", action="store_const", const="full", help="longer")
    forms.add_argument("--draw", action="store_true", help="draw saved rows, measure nothing")
    add("--data", type=Path, default=Path("bench-data"), help="folder of the data [bench-data]")
    folder = "docs/developers/experiments"
    add("--output", type=Path, default=Path(folder), help=f"[{folder}]")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"there is no experiment {', '.join(unknown)}; choose from {', '.join(known)}")
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # one worker means one core
    asked.output.mkdir(parents=True, exist_ok=True)
    chosen = {name: known[name] for name in asked.names or known}
    failed = [] if asked.draw else measure(chosen, asked.form or "short", asked.data, asked.output)
    write_page(asked.output, known)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
