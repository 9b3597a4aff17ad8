"""paceline bench scaling: the runs, one after another, and what is told of them."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paceline.backends import available_cpus
from paceline.cli.bench_table import notes_of, table_for_people, table_for_programs
from paceline.errors import AnalysisError, UnsupportedError, WorkerError
from paceline.files import refuse_clashes, refuse_impossible, size_in_words
from paceline.launch import launched
from paceline.opening import files_named
from paceline.scaling import ScalingRun, save_runs
from paceline.scaling.fresh import Cold, Copies, Warm
from paceline.scaling.starting import find_launcher, run_command
from paceline.stopping import Stopping

#: Runs that are shorter than this tell little, seconds.
SHORT = 0.5


def measure(args: argparse.Namespace) -> None:
    """Do all runs; write and print what was asked for."""
    _refuse(args)
    bench = Bench(args)
    with Stopping():
        try:
            bench.begin()
            bench.do_all()
        except (KeyboardInterrupt, WorkerError):
            if bench.runs:
                bench.tell()
            raise
    bench.tell()


def _refuse(args: argparse.Namespace) -> None:
    """Refuse what cannot be measured, or written, before anything is."""
    from paceline.analysis.results import refuse_unknown_figure

    if launched()[0] > 1:
        raise UnsupportedError(
            "start paceline bench by itself, without mpirun or srun: with --backend mpi it starts "
            "ranks, as many as are wanted each time"
        )
    if args.launcher is not None and args.backend != "mpi":
        raise UnsupportedError("--launcher starts ranks of MPI: say --backend mpi, too")
    if args.output is not None and args.output.suffix.lower() != ".csv":
        raise UnsupportedError(f"{args.output}: runs are saved as .csv")
    for path in args.plot:
        refuse_unknown_figure(path)
    refuse_clashes(args.output, *args.plot)
    for path in (*args.plot, *([args.output] if args.output else [])):
        refuse_impossible(path, overwrite=args.overwrite)


class Bench:
    """All runs of one measurement.

    Parameters
    ----------
    args : argparse.Namespace
        The command's arguments.
    """

    def __init__(self, args: argparse.Namespace):
        self._args = args
        self._command = shlex.split(args.command_line)[1:]
        self._launcher = _launcher(args)
        self.cpus = _cpus(self.backend)
        self.counts = args.workers or _default_counts(self.cpus)
        self.modes = ["strong"] if args.strong or not args.weak else []
        self.modes += ["weak"] if args.weak else []
        self.files = [file for name in args.trajectory for file in files_named(name)]
        self.state = (Cold if args.cold else Copies if args.copies else Warm)(self.files)
        self.runs: list[ScalingRun] = []
        self.hosts: set[str] = set()
        #: What the run that is not counted told.
        self.first: dict[str, Any] = {}
        self._first_seconds = 0.0
        #: Of each number of frames.
        self._digests: dict[float, str] = {}
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    @property
    def planned(self) -> int:
        """Number of runs."""
        return len(self.modes) * len(self.counts) * self._args.repeats

    @property
    def how_far(self) -> str:
        """Runs that were done, of how many."""
        return f"{len(self.runs)} of {self.planned} runs"

    def begin(self) -> None:
        """Do the run that is not counted: it makes indexes, and tells what there is to measure."""
        n = self.counts[-1]
        _say(
            f"{_size(self.files)}; first a run with {_workers(n, self.backend)} that is not "
            f"counted, then {self.planned} runs"
        )
        self.first, self._first_seconds = self._once(n, None, show=True)
        self._digests[self.first["values"]["frames"]] = self.first["digest"]
        if self.first["backend"] != self.backend:
            raise UnsupportedError(
                f"{self.files[0]} is read by MDAnalysis, in one process: more workers change "
                "nothing; paceline convert writes a format of which workers read parts each"
            )
        if "weak" in self.modes and self._frames("weak", self.counts[0]) == 0:
            raise UnsupportedError(
                f"{self.first['values']['frames']:.0f} frames are too few for {n} workers with "
                "as many frames each"
            )
        for warning in self.remarks():
            _say(f"warning: {warning}")

    def do_all(self) -> None:
        """Do the runs that are counted."""
        for mode, repeat, n in self._order():
            run = self._measured(mode, repeat, n)
            self.runs.append(run)
            if self._args.output is not None:
                overwrite = self._args.overwrite or len(self.runs) > 1
                save_runs(self._args.output, self.runs, notes_of(self), overwrite=overwrite)
            _say(
                f"{self.how_far}: {_workers(n, run.backend)}, {mode}, "
                f"{run.values['t_total (s)']:.3g} s{self._left()}"
            )
            self._compare(run)

    def remarks(self) -> Iterator[str]:
        """What a reader should know of these numbers of workers."""
        shared = [n for n in self.counts if n > self.cpus]
        if shared and len(self.hosts) < 2:
            yield (
                f"{', '.join(map(str, shared))} workers share {self.cpus} CPUs: "
                "more cannot be faster there"
            )
        if self.first["values"]["t_total (s)"] < SHORT:
            yield (
                f"a run takes {self.first['values']['t_total (s)']:.2g} s, much of which is "
                "chance: take more frames, or a larger selection"
            )
        if len(self.hosts) > 1 and self._args.cold:
            yield "the trajectory was dropped on this machine alone: --copies are new to all hosts"
        n_blocks = self.first["values"]["blocks"]
        if n_blocks < self.counts[-1]:
            yield (
                f"{self.first['values']['frames']:.0f} frames make {n_blocks:.0f} blocks: more "
                "workers than that have nothing to do"
            )

    def tell(self) -> None:
        """Print the table, and draw the figures."""
        table = table_for_people if sys.stdout.isatty() else table_for_programs
        print(*table(self.runs), sep="\n", flush=True)
        if self._args.plot:
            from paceline.scaling.figure import draw, save

            figure = draw(self.runs, title=self.title, cpus=self.cpus)
            for path in self._args.plot:
                save(figure, path, overwrite=self._args.overwrite)

    @property
    def title(self) -> str:
        """What was measured, in a line."""
        names = self.files[0] if len(self.files) == 1 else f"{len(self.files)} files"
        values = self.first["values"]
        return (
            f"paceline {self._args.analysis}, {Path(names).name}: {values['frames']:.0f} frames, "
            f"{self.first['n_atoms']} atoms, {self.first['n_selected']} of them analysed; "
            f"{self.backend}"
        )

    @property
    def command_line(self) -> str:
        """What the user typed."""
        return str(self._args.command_line)

    @property
    def backend(self) -> str:
        """What the workers are."""
        return self._args.backend or "threads"

    @property
    def launcher(self) -> str:
        """What starts ranks, if anything does."""
        return " ".join(self._launcher)

    def _order(self) -> Iterator[tuple[str, int, int]]:
        """Modes, repeats and numbers of workers, in turn; back and forth, so that no drift counts.

        Were all repeats of one number done first, the machine's moods would look like scaling.
        """
        for repeat in range(1, self._args.repeats + 1):
            for mode in self.modes:
                for n in self.counts if repeat % 2 else reversed(self.counts):
                    yield mode, repeat, n

    def _frames(self, mode: str, n: int) -> int | None:
        """Frames that so many workers analyse; None for all."""
        if mode == "strong":
            return None
        return n * int(self.first["values"]["frames"] // self.counts[-1])

    def _once(
        self, n: int, n_frames: int | None, *, show: bool = False
    ) -> tuple[dict[str, Any], float]:
        """One run; what it told, and its seconds."""
        load = os.getloadavg()[0]
        with self.state.ready() as (copies, cached):
            asked = json.dumps({"workers": n, "frames": n_frames, "trajectory": copies})
            launcher = [*self._launcher, "-n", str(n)] if self._launcher else []
            begun = time.time()
            command = [*self._command, "--one-run", asked]
            told, seconds = run_command(command, launcher, show=show)
        values = told["values"]
        start = told["begun"] - begun
        opening = values["t_init_top (s)"] + values["t_init_traj (s)"]
        told["values"] = {
            **values,
            "t_command (s)": seconds,
            "t_start (s)": start,
            "t_rest (s)": seconds - start - opening - values["t_total (s)"],
            "cached before (%)": 100 * cached,
            "load before": load,
        }
        self.hosts.update(told["hosts"])
        return told, seconds

    def _measured(self, mode: str, repeat: int, n: int) -> ScalingRun:
        told, _ = self._once(n, self._frames(mode, n))
        return ScalingRun(mode, told["backend"], n, repeat, told["values"], told["digest"])

    def _compare(self, run: ScalingRun) -> None:
        """Raise if the same frames gave other results."""
        expected = self._digests.setdefault(run.values["frames"], run.digest)
        if run.digest != expected:
            raise AnalysisError(
                f"results with {run.workers} workers, repeat {run.repeat}, differ from those of "
                f"the runs before (digest {run.digest}, expected {expected}): the trajectory was "
                "changed meanwhile, or this is an error of paceline's that its authors want to know"
            )

    def _left(self) -> str:
        """The time that is left, from runs of as many workers, or from the first run."""
        left = sum(self._expected(mode, n) for mode, _, n in list(self._order())[len(self.runs) :])
        return f"; {_duration(left)} left" if left else ""

    def _expected(self, mode: str, n: int) -> float:
        known = [
            run.values["t_command (s)"] for run in self.runs if (run.mode, run.workers) == (mode, n)
        ]
        if known:
            return sum(known) / len(known)
        working = float(self.first["values"]["t_total (s)"])
        more = self.counts[-1] / n if mode == "strong" else 1.0
        return self._first_seconds + working * (more - 1)


def _launcher(args: argparse.Namespace) -> list[str]:
    if args.backend != "mpi":
        return []
    return shlex.split(args.launcher) if args.launcher else find_launcher()


def _cpus(backend: str) -> int:
    """CPUs for workers: of ranks, what Slurm has given to the job on all its nodes."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    return int(tasks) if backend == "mpi" and tasks.isdigit() else available_cpus()


def _default_counts(cpus: int) -> list[int]:
    return sorted({*(2**k for k in range(cpus.bit_length())), cpus})


def _say(what: str) -> None:
    print(f"paceline: {what}", file=sys.stderr, flush=True)


def _workers(n: int, backend: str) -> str:
    return f"{n} {'rank' if backend == 'mpi' else 'worker'}{'s' * (n != 1)}"


def _size(files: Sequence[str]) -> str:
    size = size_in_words(sum(os.path.getsize(file) for file in files))
    return f"{files[0]}, {size}" if len(files) == 1 else f"{len(files)} files, {size}"


def _duration(seconds: float) -> str:
    """About how long, in a unit that suits."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.1f} {unit}"
    return f"about {seconds:.0f} s"
