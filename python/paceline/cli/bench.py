"""Runs of the command `bench`, with their tables and notes."""

import argparse
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from paceline._core import __version__
from paceline._util.files import check_distinct, check_local, check_output
from paceline._util.json_types import JsonObject
from paceline._util.launcher import launched
from paceline._util.machine_and_software import (
    available_cpus,
    describe_machine,
    describe_system,
    describe_versions,
)
from paceline._util.option_values_and_selections import BACKENDS
from paceline._util.os_calls import cached_share_of_all, drop_from_cache, load_averages
from paceline._util.python_object_digest import digest
from paceline._util.signals import Stopping
from paceline.analysis.results import check_figure_ending
from paceline.backends import make_backend
from paceline.cli.options import figure_options, print_json
from paceline.contract.figure_options import OF_MEASUREMENTS, FigureOptions, flag_of
from paceline.errors import AnalysisError, UnsupportedError, WorkerError
from paceline.performance.model import doublings
from paceline.performance.number_format import amount, many
from paceline.performance.record import host_of
from paceline.performance.scaling_benchmark import (
    ScalingRun,
    find_launcher,
    quantities,
    run_command,
    save_runs,
    table_for_people,
    table_for_programs,
)
from paceline.trajectory.open import files_named, open_files

#: Maximum fraction of a file that may be in memory after the file was dropped from the page cache.
#: The fraction is not zero if other programs read the file.
DROPPED = 0.01
#: Minimum time of a run for a meaningful measurement, s.
SHORT = 0.5

#: Descriptions of how the trajectory's files are prepared before each run.
STATES = {
    "warm": "left in the state after the previous run",
    "cold": "trajectory dropped from this machine's memory before each run",
    "copies": "a new copy of the trajectory for each run, dropped from this machine's memory",
}

#: Packages that a backend requires.
_OF_BACKEND = {"processes": ("loky",), "dask": ("dask", "distributed"), "mpi": ("mpi4py",)}


@contextmanager
def _prepared_files(state: str, files: Sequence[str]) -> Iterator[tuple[list[str] | None, float]]:
    """Prepare a run: yield copies of the files, and the fraction of the files' bytes in memory.

    Copies are None unless the state is "copies"; they are made with their frame index, and deleted
    after the run. The fraction refers to this machine; it is NaN if unknown.
    """
    if state != "copies":
        yield None, _drop_from_cache(files) if state == "cold" else _cached_fraction(files)
        return
    with ExitStack() as stack:
        copies = [_copy(path, stack) for path in files]
        open_files(copies, progress=False, notes=False)
        yield copies, _drop_from_cache(copies)


def _cached_fraction(files: Sequence[str]) -> float:
    """Return the fraction of the files' bytes in memory; NaN if the system does not report it."""
    share = cached_share_of_all(files)
    return math.nan if share is None else share


def _drop_from_cache(files: Sequence[str]) -> float:
    """Drop files from memory; return the fraction that is still in memory.

    Raises `UnsupportedError` if this fraction is above `DROPPED`.
    """
    for path in files:
        drop_from_cache(path)
    kept = _cached_fraction(files)
    if kept > DROPPED:  # False if NaN
        raise UnsupportedError(
            f"{files[0]}: {100 * kept:.0f} % of the trajectory is still in memory although it was "
            "dropped: its file system is in memory, or another program uses the file"
        )
    return kept


def _copy(path: str, stack: ExitStack) -> str:
    """Copy a file into a new temporary folder beside it; return the path of the copy.

    `stack` deletes the folder. Raises `UnsupportedError` if the disk has too little free space.
    """
    folder = Path(path).absolute().parent
    room, needed = shutil.disk_usage(folder).free, os.path.getsize(path)
    if needed > room:
        raise UnsupportedError(
            f"{path}: a copy in the same folder needs {needed / 1e9:.1f} GB, but only "
            f"{room / 1e9:.1f} GB are free"
        )
    made = tempfile.TemporaryDirectory(dir=folder, prefix=".paceline-")
    return str(shutil.copy(path, Path(stack.enter_context(made)) / Path(path).name))


def measure(args: argparse.Namespace) -> None:
    """Do all runs of `paceline bench`; print the results, and write the requested files."""
    _check(args)
    bench = Bench(args)
    with Stopping():
        try:
            bench.begin()
            bench.do_all()
        except (KeyboardInterrupt, WorkerError):
            if bench.runs:
                bench.show()
            raise
    bench.show()


def one_run(args: argparse.Namespace, begun: float) -> None:
    """Run the analysis once; print its measurements as one line of JSON.

    `begun` is the time at which this command began in this process, seconds since 1970.
    """
    # Imported here, because the parent process, which starts these runs, needs no MDAnalysis.
    from paceline.cli.shared_analysis_steps import run_analysis

    asked = json.loads(args.one_run)
    args.output = args.plot = args.checkpoint = args.report = None
    args.timings, args.n_workers, args.json = False, None, False
    vars(args).update(vars(FigureOptions()))
    args.trajectory = asked["trajectory"] or args.trajectory
    # The launcher sets the number of ranks.
    is_mpi = args.backend == "mpi"
    args.backend = make_backend(args.backend, None if is_mpi else asked["workers"])
    n_workers = args.backend.n_workers
    analysis = args.analysis_of(args)
    universe = analysis.atomgroup.universe
    run_analysis(args, analysis, most_frames=asked["frames"])
    timings = analysis.timings
    answer: JsonObject = {
        "begun": begun,
        "backend": timings.backend,
        "values": quantities(timings, n_workers),
        "digest": digest(dict(analysis.results)),
        "hosts": sorted({host_of(block.worker) for block in timings.blocks}),
        "n_workers": n_workers,
        "n_atoms": universe.trajectory.n_atoms,
        "n_selected": len(set(analysis.indices.tolist())),
        "n_frames": universe.trajectory.n_frames,
        "mpi": _mpi_library() if is_mpi else None,
    }
    print(json.dumps(answer), flush=True)


class Bench:
    """All runs of `paceline bench`: of one analysis, with different numbers of workers."""

    def __init__(self, args: argparse.Namespace):
        self._args = args
        self._command = shlex.split(args.command_line)[1:]
        self._launcher = _launcher(args)
        self.cpus = _cpus(self.backend)
        self.counts = args.workers or doublings(self.cpus)
        self.modes = ["strong"] if args.strong or not args.weak else []
        self.modes += ["weak"] if args.weak else []
        for name in args.trajectory:
            check_local(name)
        self.files = [file for name in args.trajectory for file in files_named(name)]
        self.state = "cold" if args.cold else "copies" if args.copies else "warm"
        self.runs: list[ScalingRun] = []
        self.hosts: set[str] = set()
        #: Measurements of the first run, which is not counted.
        self.first: JsonObject = {}
        self._first_seconds = 0.0
        #: Digest of the results for each number of frames.
        self._digests: dict[float, str] = {}
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    @property
    def n_planned(self) -> int:
        """Planned number of runs."""
        return len(self.modes) * len(self.counts) * self._args.repeats

    @property
    def run_counts(self) -> str:
        """Text with the numbers of completed and of planned runs."""
        return f"{len(self.runs)} of {self.n_planned} runs"

    def begin(self) -> None:
        """Do the first run, which is not counted: it makes frame indexes, and counts frames."""
        n = self.counts[-1]
        _say(
            f"{_size(self.files)}; the first run, with {_workers(n, self.backend)}, is not "
            f"counted; then {many(self.n_planned, 'run')}"
        )
        self.first, self._first_seconds = self._once(n, None, show=True)
        self._digests[self.first["values"]["frames"]] = self.first["digest"]
        if self.first["backend"] != self.backend:
            raise UnsupportedError(
                f"{self.files[0]} is read by MDAnalysis in one process, so more workers change "
                "nothing; convert it (paceline convert) to a format that workers read in parallel"
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
            run = self._measure(mode, repeat, n)
            self.runs.append(run)
            if self._args.output is not None:
                overwrite = self._args.overwrite or len(self.runs) > 1
                save_runs(self._args.output, self.runs, notes_of(self), overwrite=overwrite)
            _say(
                f"{self.run_counts}: {_workers(n, run.backend)}, {mode}, "
                f"{run.values['t_total (s)']:.3g} s{self._describe_remaining()}"
            )
            self._compare(run)

    def remarks(self) -> Iterator[str]:
        """Yield warnings about conditions under which the measurement means little."""
        shared = [n for n in self.counts if n > self.cpus]
        if shared and len(self.hosts) < 2:
            yield (
                f"{', '.join(map(str, shared))} workers share {self.cpus} CPUs: "
                "more workers than CPUs cannot be faster"
            )
        if self.first["values"]["t_total (s)"] < SHORT:
            yield (
                f"a run takes {self.first['values']['t_total (s)']:.2g} s, so times vary much by "
                "chance: use more frames, or a larger selection"
            )
        if len(self.hosts) > 1 and self._args.cold:
            yield "the trajectory was dropped only on this machine: use --copies for several hosts"
        n_blocks = self.first["values"]["blocks"]
        if n_blocks < self.counts[-1]:
            yield (
                f"{self.first['values']['frames']:.0f} frames make {n_blocks:.0f} blocks: "
                "additional workers are idle"
            )

    def show(self) -> None:
        """Print the table or the JSON document, and draw the figures."""
        written = [*([self._args.output] if self._args.output else []), *self._args.plot]
        if self._args.json:
            runs = [*map(asdict, self.runs)]
            print_json("bench", title=self.title, runs=runs, written=written)
        else:
            table = table_for_people if sys.stdout.isatty() else table_for_programs
            print(*table(self.runs), sep="\n", flush=True)
        if self._args.plot:
            from paceline.performance.scaling_figures import draw_runs, save_figure

            options = FigureOptions.of(self._args)
            title = options.title or self.title
            figure = draw_runs(self.runs, title=title, cpus=self.cpus, options=options)
            for path in self._args.plot:
                save_figure(figure, path, overwrite=self._args.overwrite)

    @property
    def title(self) -> str:
        """Title of the measurement, one line."""
        names = self.files[0] if len(self.files) == 1 else f"{len(self.files)} files"
        values = self.first["values"]
        return (
            f"paceline {self._args.analysis}, {Path(names).name}: {values['frames']:.0f} frames, "
            f"{self.first['n_atoms']} atoms, {self.first['n_selected']} of them analysed; "
            f"{self.backend}"
        )

    @property
    def command_line(self) -> str:
        """Command line as the user typed it."""
        return str(self._args.command_line)

    @property
    def backend(self) -> str:
        """Name of the backend that the measured runs use."""
        return self._args.backend or BACKENDS[0]

    @property
    def launcher(self) -> str:
        """Command that starts the ranks of MPI; empty for other backends."""
        return " ".join(self._launcher)

    def _order(self) -> Iterator[tuple[str, int, int]]:
        """Yield mode, repeat and number of workers for each run.

        Numbers of workers alternate between increasing and decreasing order. If all repeats with
        one number of workers ran together, a drift of the machine's speed would look like scaling.
        """
        for repeat in range(1, self._args.repeats + 1):
            for mode in self.modes:
                for n in self.counts if repeat % 2 else reversed(self.counts):
                    yield mode, repeat, n

    def _frames(self, mode: str, n: int) -> int | None:
        """Number of frames that `n` workers analyse; None for all frames."""
        if mode == "strong":
            return None
        return n * int(self.first["values"]["frames"] // self.counts[-1])

    def _once(
        self, n: int, n_frames: int | None, *, show: bool = False
    ) -> tuple[JsonObject, float]:
        """Do one run; return its measurements, and the time of the whole command, s."""
        load, *_ = load_averages() or (float("nan"),)
        with _prepared_files(self.state, self.files) as (copies, cached):
            asked = json.dumps({"workers": n, "frames": n_frames, "trajectory": copies})
            launcher = [*self._launcher, "-n", str(n)] if self._launcher else []
            begun = time.time()
            command = [*self._command, "--one-run", asked]
            answer, seconds = run_command(command, launcher, show=show)
        values = answer["values"]
        start = answer["begun"] - begun
        opening = values["t_init_top (s)"] + values["t_init_traj (s)"]
        answer["values"] = {
            **values,
            "t_command (s)": seconds,
            "t_start (s)": start,
            "t_rest (s)": seconds - start - opening - values["t_total (s)"],
            "cached before (%)": 100 * cached,
            "load before": load,
        }
        self.hosts.update(answer["hosts"])
        return answer, seconds

    def _measure(self, mode: str, repeat: int, n: int) -> ScalingRun:
        answer, _ = self._once(n, self._frames(mode, n))
        return ScalingRun(mode, answer["backend"], n, repeat, answer["values"], answer["digest"])

    def _compare(self, run: ScalingRun) -> None:
        """Raise `AnalysisError` if results differ from a previous run with as many frames."""
        expected = self._digests.setdefault(run.values["frames"], run.digest)
        if run.digest != expected:
            raise AnalysisError(
                f"results with {run.workers} workers, repeat {run.repeat}, differ from those of "
                f"earlier runs (digest {run.digest}, expected {expected}): the trajectory changed "
                "in the meantime, or paceline has an error; please report it"
            )

    def _describe_remaining(self) -> str:
        """Describe the remaining time, estimated from earlier runs."""
        left = sum(
            self._expected_time(mode, n) for mode, _, n in list(self._order())[len(self.runs) :]
        )
        return f"; {_duration(left)} left" if left else ""

    def _expected_time(self, mode: str, n: int) -> float:
        known = [
            run.values["t_command (s)"] for run in self.runs if (run.mode, run.workers) == (mode, n)
        ]
        if known:
            return sum(known) / len(known)
        working = float(self.first["values"]["t_total (s)"])
        more = self.counts[-1] / n if mode == "strong" else 1.0
        return self._first_seconds + working * (more - 1)


def _mpi_library() -> str:
    from mpi4py import MPI

    return MPI.Get_library_version().splitlines()[0].strip("\0 ")


def _check(args: argparse.Namespace) -> None:
    """Raise an error, before any measurement, if something cannot be measured or written."""
    if launched()[0] > 1:
        raise UnsupportedError(
            "start paceline bench without mpirun or srun: with --backend mpi, it starts the ranks "
            "for each run itself"
        )
    if args.launcher is not None and args.backend != "mpi":
        raise UnsupportedError("--launcher starts ranks of MPI: add --backend mpi")
    if args.output is not None and args.output.suffix.lower() != ".csv":
        raise UnsupportedError(f"{args.output}: runs are saved as .csv")
    options = figure_options(args, *args.plot)
    if others := [name for name in options.given if name not in OF_MEASUREMENTS]:
        known = ", ".join(map(flag_of, OF_MEASUREMENTS))
        raise UnsupportedError(
            f"{flag_of(others[0])} is for the analysis's figure; the figure of bench has {known}"
        )
    for path in args.plot:
        check_figure_ending(path, style=options.style)
    check_distinct(args.output, *args.plot)
    for path in (*args.plot, *([args.output] if args.output else [])):
        check_output(path, overwrite=args.overwrite)


def _launcher(args: argparse.Namespace) -> list[str]:
    if args.backend != "mpi":
        return []
    return shlex.split(args.launcher) if args.launcher else find_launcher()


def _cpus(backend: str) -> int:
    """Number of available CPUs; for ranks of MPI in a Slurm job, the number of its tasks."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    return int(tasks) if backend == "mpi" and tasks.isdigit() else available_cpus()


def _say(what: str) -> None:
    print(f"paceline: {what}", file=sys.stderr, flush=True)


def _workers(n: int, backend: str) -> str:
    return many(n, "rank" if backend == "mpi" else "worker")


def _size(files: Sequence[str]) -> str:
    size = amount(sum(os.path.getsize(file) for file in files))
    return f"{files[0]}, {size}" if len(files) == 1 else f"{len(files)} files, {size}"


def _duration(seconds: float) -> str:
    """Format an approximate duration in a suitable unit."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.1f} {unit}"
    return f"about {seconds:.0f} s"


def notes_of(bench: "Bench") -> Iterator[str]:
    """Yield notes about the machine, the files and the columns of all runs, one line each."""
    first, cached = bench.first, [run.values["cached before (%)"] for run in bench.runs]
    yield bench.title
    yield f"command: {bench.command_line}"
    yield f"started: {bench.started}"
    yield f"runs: {bench.run_counts}, alternately by increasing and by decreasing number of workers"
    yield f"machine: {describe_machine(available_cpus())}"
    yield f"hosts that computed: {', '.join(sorted(bench.hosts))}"
    yield f"system: {describe_system()}"
    packages = ("MDAnalysis", "numpy", *_OF_BACKEND.get(bench.backend, ()))
    yield f"versions: paceline {__version__}, {describe_versions(packages)}"
    if bench.launcher:
        threads = first["n_workers"] // bench.counts[-1]
        yield f"MPI: {first['mpi']}; started by {bench.launcher}; threads a rank: {threads}"
    yield from (f"trajectory: {path}, {amount(os.path.getsize(path))}" for path in bench.files)
    yield (
        f"atoms: {first['n_atoms']}, of which {first['n_selected']} analysed; frames: "
        f"{first['values']['frames']:.0f} of {first['n_frames']}"
    )
    yield f"page cache: {STATES[bench.state]}; {_cached_in_words(cached)}"
    yield from (f"note: {remark}" for remark in bench.remarks())
    yield "results: identical bits in all runs with the same number of frames (column digest)"
    yield "columns: mean and max are over the workers of a run"
    yield (
        "t_total: time of the run; it is the sum of the means of t_open to t_wait, and of t_around "
        "(planning and collecting); t_scheduler is t_total without t_in_task"
    )
    yield (
        "t_command: time of the whole command; it is the sum of t_start (until it ran, on all "
        "ranks), t_init_top and t_init_traj (opening, once), t_total, and t_rest (imports, "
        "selecting, ending)"
    )


def _cached_in_words(percent: Sequence[float]) -> str:
    """Describe the fraction of the trajectory that was in memory before the runs."""
    if any(math.isnan(value) for value in percent):
        return "the fraction in memory before runs is unknown"
    low, high = min(percent), max(percent)
    span = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    return f"{span} % of the trajectory was in memory before runs"
