"""Measure the rate of tasks without work in each scheduler."""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import paceline
from benchmarks.experiments.cases import PROGRAMS
from benchmarks.experiments.empty import apply, empty, take_blocks
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    spread,
    values_of,
)
from benchmarks.experiments.published import published
from benchmarks.experiments.scaling import Published, Scaling
from benchmarks.experiments.style import OTHER, OURS, PAPER, bars, panels
from benchmarks.measure import Spread
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

#: Number of tasks in the paper; duration that fixes the number here, seconds; minimum number.
TASKS, SECONDS, FEWEST = 100_000, 2.0, 50
WORKERS = 2
#: Method that measures its own time, because MPI ranks must start first.
TELLS = "paceline, mpi"


def measure(setting: Setting) -> list[Row]:
    files = setting.data.topology, setting.data.trajectory("dcd")
    rows = []
    with ExitStack() as stack:
        # For chosen numbers of ranks, which may be on several hosts, only MPI is measured.
        ways = {
            (way, n): run
            for n in setting.ranks_or((WORKERS,))
            for way, run in (_on_mpi(files, n) if setting.ranks else _ways(stack, files)).items()
        }
        numbers = {case: _fitting(case[0], run, setting) for case, run in ways.items()}
        for _ in range(setting.repeats):
            for (way, n), run in ways.items():
                tasks = numbers[way, n]
                seconds = _seconds(way, run, tasks)
                rows.append({"way": way, "ranks": n, "tasks": tasks, "rate": tasks / seconds})
    return rows


def _fitting(way: str, run: Callable[[int], Any], setting: Setting) -> int:
    """Return the number of tasks for the chosen duration; the first run only starts workers."""
    _seconds(way, run, WORKERS)
    few = setting.amount(FEWEST, 10)
    rate = few / _seconds(way, run, few)
    return max(few, min(TASKS, round(rate * SECONDS * setting.part)))


def _seconds(way: str, run: Callable[[int], Any], n_tasks: int) -> float:
    begun = time.perf_counter()
    told = run(n_tasks)
    return told["seconds"] if way.startswith(TELLS) else time.perf_counter() - begun


def _ways(stack: ExitStack, files: tuple[Path, Path]) -> dict[str, Callable[[int], Any]]:
    """Create a run for each scheduler, with two workers."""
    from distributed import Client, LocalCluster

    from paceline.backends import Dask, Processes, Serial, Threads

    pool = stack.enter_context(ProcessPoolExecutor(WORKERS, get_context("spawn")))
    local = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    client = stack.enter_context(Client(stack.enter_context(LocalCluster(**local))))
    ways: dict[str, Callable[[int], Any]] = {
        "Dask, threads": partial(_in_graph, scheduler="threads", num_workers=WORKERS),
        "Dask, processes": partial(_in_graph, scheduler="processes", pool=pool),
        "Dask, distributed": lambda n: client.gather(client.map(empty, range(n), pure=False)),
    }
    atom = paceline.Universe(*files).atoms[:1]
    ours = (Serial(), Threads(WORKERS), Processes(WORKERS), Dask(client))
    for backend in ours:
        ways[f"paceline, {backend.name}: calls"] = partial(apply, backend)
        ways[f"paceline, {backend.name}: blocks"] = partial(take_blocks, backend, atom)
    return ways | _on_mpi(files, WORKERS)


def _on_mpi(files: tuple[Path, Path], n_ranks: int) -> dict[str, Callable[[int], Any]]:
    return {
        f"{TELLS}: {what}": partial(_on_ranks, n_ranks, what, told)
        for what, told in (("calls", ()), ("blocks", files))
    }


def _in_graph(n_tasks: int, **where: Any) -> None:
    import dask

    graph = {("empty", k): (empty, k) for k in range(n_tasks)}
    dask.base.get_scheduler(scheduler=where["scheduler"])(graph, list(graph), **where)


def _on_ranks(n_ranks: int, what: str, told: tuple[Path, ...], n_tasks: int) -> dict[str, float]:
    return on_ranks(n_ranks, EVERY_RANK, what, n_tasks, *told, programs=PROGRAMS)


def stampede() -> dict[str, float]:
    """Return the paper's tasks per second, on a node of 16 cores."""
    rows = published("khoshlessan2017_stated", where="Stampede")
    rates = {row["case"]: row["value"] for row in rows if row["unit"] == "tasks/s"}
    (whole,) = (row for row in rows if row["unit"] == "s")
    return {**rates, "threads or multiprocessing": TASKS / whole["value"]}


def scaling_published() -> list[Published]:
    """Return the time of an empty task of the paper's Dask workers, µs."""
    stated = published("khoshlessan2017_stated", unit="tasks/s")
    return [
        Published(f"{row['where']}, {row['case']}", {row["n_processes"]: 1e6 / row["value"]})
        for row in stated
    ]


def table(rows: list[Row]) -> Table:
    found = Table(
        f"Empty tasks a second, {WORKERS} workers",
        ("scheduler", "tasks", "tasks/s"),
    )
    for way in values_of(rows, "way"):
        tasks = cell(spread(rows, "tasks", way=way))
        found.rows.append((way, tasks, cell(spread(rows, "rate", way=way))))
    for case, rate in stampede().items():
        found.rows.append((f"published: Stampede, {case}", digits(TASKS), digits(rate)))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (axes,) = panels(1, 4.2)
    ways = values_of(rows, "way")
    values = [spread(rows, "rate", way=way) for way in ways]
    colours = [OURS if way.startswith("paceline") else OTHER for way in ways]
    theirs = stampede()
    names = [*ways, *(f"Stampede: {case}" for case in theirs)]
    values += [Spread(rate, rate, rate) for rate in theirs.values()]
    bars(axes, names, values, [*colours, *[PAPER] * len(theirs)])
    axes.set(xscale="log", xlabel="empty tasks a second")
    return figure


def finding(rows: list[Row]) -> str:
    rates = {way: cell(spread(rows, "rate", way=way)) for way in values_of(rows, "way")}
    return (
        f"Dask's distributed scheduler does {rates['Dask, distributed']} empty tasks a second. Of "
        f"paceline's blocks its workers do {rates['paceline, dask: blocks']}, threads "
        f"{rates['paceline, threads: blocks']}, processes {rates['paceline, processes: blocks']} "
        f"and ranks of MPI {rates['paceline, mpi: blocks']} a second."
    )


EXPERIMENT = Experiment(
    title="Throughput of schedulers",
    source="Khoshlessan et al. 2017, Fig. 10",
    question=(
        "To see if Dask's scheduler is the limit, it got 100,000 empty tasks; here each scheduler "
        "gets as many as it does in some seconds. Even the slowest was far faster than the job "
        "needed."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Scheduler and workers share two cores here, and the fixed cost of a paceline run, such "
        "as sending the job, is included. paceline assigns blocks of frames; the smallest, used "
        "here, has 16 frames, of which one atom is read. On Dask they are grouped into task "
        "batches of 0.2 s. A call, such as a part of MDAnalysis's own analyses, is sent and "
        "answered alone. Real tasks are longer: a scheduler is fast enough for blocks of some "
        "milliseconds, on Dask for these batches, and then it does not limit a job, as the paper "
        "found."
    ),
    scaling=Scaling(
        "µs a task",
        lambda row: 1e6 / row["rate"],
        line="way",
        parts={},
        published=scaling_published,
    ),
)
