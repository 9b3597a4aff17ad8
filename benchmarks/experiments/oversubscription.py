"""Measure the cost of a slow worker with three, or many, blocks per worker."""

import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import paceline
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    values_of,
)
from benchmarks.experiments.published import published
from benchmarks.experiments.style import OTHER, OURS, PAPER, bars, panels
from benchmarks.measure import Spread
from benchmarks.table import Table

#: Number of workers, as in the paper (they sleep), and number of blocks per worker.
WORKERS, OVER = 64, 3
#: Duration of a worker's share at full speed, seconds; slowdown of the slow worker.
SHARE, SLOW = 3.0, 3.0
#: Frames per share; standard deviation of the logarithm of their durations; random seed.
FRAMES, UNEQUAL, SEED = 128, 0.2, 2017
WAYS = {"M = N": PAPER, "M = 3N": OTHER, "paceline": OURS}


class Sleep:
    """Sleeps for the duration of the frames on this worker, a thread; returns its name."""

    def __init__(self, durations: np.ndarray):
        self.durations = durations
        self._first: list[int] = []

    def __call__(self, frames: np.ndarray) -> int:
        worker = threading.get_ident()
        self._first.append(worker)
        # The first worker that starts becomes the slow one.
        factor = SLOW if worker == self._first[0] else 1.0
        time.sleep(self.durations[frames].sum() * factor)
        return worker


def measure(setting: Setting) -> list[Row]:
    from distributed import Client, LocalCluster

    n_workers = setting.amount(WORKERS, 8)
    frames = np.arange(n_workers * FRAMES) % setting.data.n_frames
    durations = np.random.default_rng(SEED).lognormal(0, UNEQUAL, setting.data.n_frames)
    share = SHARE * min(1.0, 10 * setting.part)
    durations *= share * n_workers / durations[frames].sum()
    ideal = share * n_workers / (n_workers - 1 + 1 / SLOW)
    atom = paceline.Universe(setting.data.topology, setting.data.trajectory("dcd")).atoms[:1]
    in_process = {"processes": False, "threads_per_worker": 1, "dashboard_address": None}
    rows = []
    with LocalCluster(n_workers=n_workers, **in_process) as cluster, Client(cluster) as client:
        client.wait_for_workers(n_workers)
        ways = {
            "M = N": partial(in_tasks, client, durations, np.array_split(frames, n_workers)),
            "M = 3N": partial(
                in_tasks, client, durations, np.array_split(frames, OVER * n_workers)
            ),
            "paceline": partial(dealt, n_workers, durations, atom, frames),
        }
        for number in range(setting.repeats):
            for way, run in ways.items():
                begun = time.perf_counter()
                counts = Counter(Counter(run()).values())
                seconds = time.perf_counter() - begun
                common = {"round": number, "way": way, "n_workers": n_workers}
                times = {"seconds": seconds, "by_ideal": seconds / ideal}
                rows += [
                    {**common, **times, "blocks": blocks, "workers": counts[blocks]}
                    for blocks in sorted(counts)
                ]
    return rows


def in_tasks(client: Any, durations: np.ndarray, shares: list[np.ndarray]) -> list[int]:
    """Run tasks with Dask; return the worker of each task."""
    SLEEPS["now"] = Sleep(durations)
    return client.gather(client.map(sleep, shares, pure=False))


def sleep(frames: np.ndarray) -> int:
    """Sleep in a task, by an object that tasks share: of an argument, each would get a copy."""
    return SLEEPS["now"](frames)


#: State that the tasks of this process share.
SLEEPS: dict[str, Sleep] = {}


def dealt(n_workers: int, durations: np.ndarray, atom: Any, frames: np.ndarray) -> list[str]:
    """Run blocks with paceline on threads; return the worker of each block."""
    one = Sleep(durations)

    def rows_of(block: Any) -> np.ndarray:
        one(block.frames)
        return block.times

    series = paceline.TimeSeries(rows_of, atom)
    series.run(frames=frames, n_workers=n_workers, block_frames=16, progress=False)
    return [block.worker for block in series.timings.blocks]


def of_worker(rows: list[Row], way: str, blocks: int) -> Spread:
    """Return the number of workers that processed a number of blocks, over rounds."""
    counts = [
        sum(
            row["workers"]
            for row in rows
            if (row["way"], row["blocks"], row["round"]) == (way, blocks, number)
        )
        for number in values_of(rows, "round")
    ]
    return Spread.of(counts)


def published_counts(blocks: int) -> Spread:
    """Return the published numbers over the five runs of Table 1."""
    found = published("khoshlessan2017_table1_blocks_per_worker", blocks=blocks)
    return Spread.of(row[f"run{k}"] for row in found for k in range(1, 6))


def by_ideal(rows: list[Row], way: str) -> Spread:
    """Return the time relative to the ideal time, over rounds; a round has several rows."""
    times = {row["round"]: row["by_ideal"] for row in rows if row["way"] == way}
    return Spread.of(times.values())


def histogram(rows: list[Row]) -> list[int]:
    """Return the numbers of blocks per worker that occur here or in the paper."""
    ours = {row["blocks"] for row in rows if row["way"] == "M = 3N"}
    return sorted(ours | {1, 2, 3, 4})


def table(rows: list[Row]) -> Table:
    counts = histogram(rows)
    found = Table(
        f"Time by the ideal; of {rows[0]['n_workers']} workers, those that did so many blocks",
        ("way", "time / ideal", *("1 block" if k == 1 else f"{k} blocks" for k in counts)),
    )
    for way in WAYS:
        numbers = [cell(of_worker(rows, way, k)) for k in counts] if way != "paceline" else []
        numbers += ["–"] * (len(counts) - len(numbers))
        found.rows.append((way, cell(by_ideal(rows, way)), *numbers))
    theirs = [cell(published_counts(k)) if k <= 4 else "–" for k in counts]
    found.rows.append(("published: M = 3N, 64 workers", "–", *theirs))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = panels(2, 2.9)
    values = [by_ideal(rows, way) for way in WAYS]
    bars(left, list(WAYS), values, list(WAYS.values()))
    left.axvline(1, color="#333333", linewidth=0.8)
    left.set(xlabel="time / ideal", title=f"one of {rows[0]['n_workers']} workers slow")
    counts = histogram(rows)
    for shift, label, colour, of in (
        (-0.2, "Stampede, Table 1", PAPER, published_counts),
        (0.2, "Dask, here", OTHER, partial(of_worker, rows, "M = 3N")),
    ):
        spreads = [of(k) for k in counts]
        ranges = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        places = [place + shift for place in range(len(counts))]
        medians = [s.median for s in spreads]
        right.bar(places, medians, 0.4, yerr=ranges, color=colour, label=label, ecolor="#333333")
    right.set_xticks(range(len(counts)), counts)
    right.set(xlabel="blocks of a worker", ylabel="workers", title="M = 3N")
    right.margins(y=0.3)
    right.legend()
    return figure


def finding(rows: list[Row]) -> str:
    times = [cell(by_ideal(rows, way)) for way in WAYS]
    return (
        f"With one of {rows[0]['n_workers']} workers {SLOW:g} times slower, one block a worker "
        f"takes {times[0]} times the ideal, three take {times[1]} times, and paceline's blocks "
        f"{times[2]} times; {cell(of_worker(rows, 'M = 3N', 3))} workers did three of "
        "Dask's blocks."
    )


EXPERIMENT = Experiment(
    title="Three blocks for each worker",
    source="Khoshlessan et al. 2017, Figs 11 to 14, Table 1",
    question=(
        "Dask got three blocks per worker, so that fast workers could do more. Most did three, "
        "some one, two or four; stragglers stayed."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The workers are threads that sleep, because there are not so many cores: the experiment "
        "compares the scheduling of Dask workers and of paceline's threads. A slow worker is still "
        "at its first block when others have finished theirs; with three blocks per worker the "
        "loss is at most the time of one block, a third of a share. paceline assigns more and "
        "smaller blocks, and repeats the last ones on other workers. Neither helps against a limit "
        "of the file system or the network, as in the paper."
    ),
)
