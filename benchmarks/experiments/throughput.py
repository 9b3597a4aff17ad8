"""Tasks that do nothing: how many a second each scheduler starts and ends."""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from typing import Any

from matplotlib.figure import Figure

from benchmarks.experiments.cases import PROGRAMS
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    median,
    spread,
    values_of,
)
from benchmarks.experiments.published import published
from benchmarks.experiments.style import OTHER, OURS, PAPER, bars, panels
from benchmarks.measure import Spread, Unavailable
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

#: The paper's number takes too long for a short form.
TASKS, PAPERS_TASKS = 10_000, 100_000
WORKERS = 2
#: Ranks of MPI tell their own time: they have to be started first.
TELLS = "paceline, mpi"


def empty(_: Any) -> None:
    """The task."""


def measure(setting: Setting) -> list[Row]:
    n_tasks = setting.amount(TASKS)
    rows = []
    with ExitStack() as stack:
        ways = dict(_ways(stack))
        for _ in range(setting.repeats):
            for way, run in ways.items():
                begun = time.perf_counter()
                told = run(n_tasks)
                seconds = told["seconds"] if way == TELLS else time.perf_counter() - begun
                rows.append({"way": way, "tasks": n_tasks, "rate": n_tasks / seconds})
    return rows


def _ways(stack: ExitStack) -> Any:
    """Each scheduler, with two workers that have started."""
    from distributed import Client, LocalCluster

    from paceline.backends import Dask, Processes, Serial, Threads

    pool = stack.enter_context(ProcessPoolExecutor(WORKERS, get_context("spawn")))
    local = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    client = stack.enter_context(Client(stack.enter_context(LocalCluster(**local))))
    ways: dict[str, Callable[[int], Any]] = {
        "Dask, threads": partial(_in_graph, scheduler="threads", num_workers=WORKERS),
        "Dask, processes": partial(_in_graph, scheduler="processes", pool=pool),
        "Dask, distributed": lambda n: client.gather(client.map(empty, range(n), pure=False)),
        "paceline, serial": partial(_applied, Serial()),
        "paceline, threads": partial(_applied, Threads(WORKERS)),
        "paceline, processes": partial(_applied, Processes(WORKERS)),
        "paceline, dask": partial(_applied, Dask(client)),
        "paceline, mpi": partial(on_ranks, WORKERS, EVERY_RANK, "apply", programs=PROGRAMS),
    }
    for way, run in ways.items():
        try:
            run(10)
        except Unavailable:
            continue
        yield way, run


def _in_graph(n_tasks: int, **where: Any) -> None:
    import dask

    graph = {("empty", k): (empty, k) for k in range(n_tasks)}
    dask.base.get_scheduler(scheduler=where["scheduler"])(graph, list(graph), **where)


def _applied(backend: Any, n_tasks: int) -> None:
    backend.apply(empty, range(n_tasks))


def stampede() -> dict[str, float]:
    """Tasks a second in the paper, on a node of 16 cores."""
    rows = published("khoshlessan2017_stated", where="Stampede")
    rates = {row["case"]: row["value"] for row in rows if row["unit"] == "tasks/s"}
    (whole,) = (row for row in rows if row["unit"] == "s")
    return {**rates, "threads or multiprocessing": PAPERS_TASKS / whole["value"]}


def table(rows: list[Row]) -> Table:
    found = Table(
        f"Empty tasks a second: {rows[0]['tasks']:,} tasks, {WORKERS} workers",
        ("scheduler", "tasks/s"),
    )
    for way in values_of(rows, "way"):
        found.rows.append((way, cell(spread(rows, "rate", way=way))))
    found.rows += [(f"Stampede, {case}", digits(rate)) for case, rate in stampede().items()]
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (axes,) = panels(1, 3.3)
    ways = values_of(rows, "way")
    values = [spread(rows, "rate", way=way) for way in ways]
    colours = [OURS if way.startswith("paceline") else OTHER for way in ways]
    theirs = stampede()
    names = [*ways, *(f"Stampede: {case}" for case in theirs)]
    values += [Spread(rate, rate, rate) for rate in theirs.values()]
    bars(axes, names, values, [*colours, *[PAPER] * len(theirs)])
    axes.set(xscale="log", xlabel=f"empty tasks a second ({rows[0]['tasks']:,} tasks)")
    return figure


def finding(rows: list[Row]) -> str:
    rates = {way: digits(median(rows, "rate", way=way)) for way in values_of(rows, "way")}
    return (
        f"Dask's distributed scheduler does {rates['Dask, distributed']} empty tasks a second, "
        f"and through paceline {rates['paceline, dask']}; paceline's threads do "
        f"{rates['paceline, threads']}, its processes {rates['paceline, processes']}."
    )


EXPERIMENT = Experiment(
    title="Throughput of schedulers",
    source="Khoshlessan et al. 2017, Fig. 10",
    question=(
        "Could Dask's scheduler be what is slow? It was given 100,000 tasks that do nothing "
        "(fewer in the short form here): even the slowest was far faster than the job needed."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Scheduler and workers share two cores here. paceline gives Dask's scheduler runs of "
        "calls that take a fifth of a second or more, and not single ones, so its own rate on "
        "Dask is not bound by the scheduler's. A call of a function of the user's costs more "
        "than a block: it is sealed, sent and its result pickled. Blocks of frames last "
        "milliseconds, so that none of these rates bounds an analysis, which is what the paper "
        "found too."
    ),
)
