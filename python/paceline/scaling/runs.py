"""One run at one number of workers: what is kept of it. Pure, but for writing the table."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paceline.files import new_file
from paceline.timing import Timings, WorkerTiming

#: Parts of a worker's time that are spent on blocks, in the order in which they happen …
IN_TASK = ("t_open", "t_io", "t_decode", "t_transform", "t_compute", "t_overhead")
#: … and all of them: on blocks that others did sooner, before its first block, and idle later.
PARTS = (*IN_TASK, "t_abandoned", "t_startup", "t_wait")


@dataclass(frozen=True)
class ScalingRun:
    """What one run took.

    Attributes
    ----------
    mode : str
        "strong": the same frames for any number of workers; "weak": as many for each.
    backend : str
        Where blocks were computed.
    workers : int
        Workers, or ranks of MPI.
    repeat : int
        From 1.
    values : mapping of str to float
        By column, unit included.
    digest : str
        Of the results.
    """

    mode: str
    backend: str
    workers: int
    repeat: int
    values: Mapping[str, float]
    digest: str


def quantities(timings: Timings, n_workers: int) -> dict[str, float]:
    """Sum up the timings of a run, over its workers and for each part of their time.

    The means of all parts and `t_around` add up to `t_total`. The quantities are those of
    Khoshlessan et al. 2020, Table 3, where they still exist; `t_scheduler` is the difference that
    Khoshlessan et al. 2017, Fig. 6C, show.

    Parameters
    ----------
    timings : Timings
        Of the run.
    n_workers : int
        Workers that there were; one that got no block has waited all the time.

    Returns
    -------
    dict of str to float
        By column: s, MB or a number, as the column says.

    Examples
    --------
    >>> from paceline.timing import BlockTiming
    >>> ms = 10**6
    >>> block = BlockTiming(0, 0, 0, 16, "host:1:2", 10 * ms, 100 * ms, wait=0, open=0,
    ...     read=20 * ms, decode=30 * ms, transform=0, compute=35 * ms, comm=0, bytes=8, calls=1)
    >>> timings = Timings(start=0, dealt=5 * ms, end=110 * ms, blocks=[block])
    >>> found = quantities(timings, 2)
    >>> round(found["t_in_task mean (s)"], 6), round(found["t_scheduler (s)"], 6)
    (0.045, 0.065)
    """
    last = max(block.end for block in timings.blocks)
    window = (last - timings.dealt) / 1e9
    workers = timings.workers()
    rows = [_parts(one) for one in workers]
    idle = {**dict.fromkeys(PARTS, 0.0), "t_wait": window}
    rows += [idle] * (n_workers - len(rows))
    in_task = [sum(row[part] for part in IN_TASK) for row in rows]
    found = {
        "frames": float(timings.n_frames),
        "blocks": float(len(timings.blocks)),
        "t_total (s)": timings.t_total,
        "t_init_top (s)": timings.t_init_top,
        "t_init_traj (s)": timings.t_init_traj,
        **_mean_and_max("t_in_task", in_task),
        "t_scheduler (s)": timings.t_total - sum(in_task) / len(in_task),
        "t_around (s)": timings.t_total - window,
        "t_comm (s)": timings.t_comm,
    }
    for part in PARTS:
        found |= _mean_and_max(part, [row[part] for row in rows])
    found["read (MB)"] = sum(one.bytes for one in workers) / 1e6
    found["read calls"] = float(sum(one.calls for one in workers))
    return found


def _parts(worker: WorkerTiming) -> dict[str, float]:
    """A worker's time, s, by part."""
    return {
        "t_open": worker.t_init_traj,
        "t_io": worker.t_io,
        "t_decode": worker.t_decode,
        "t_transform": worker.t_transform,
        "t_compute": worker.t_compute,
        "t_overhead": worker.t_overhead,
        "t_abandoned": worker.t_abandoned,
        "t_startup": worker.t_wait_first,
        "t_wait": worker.t_wait - worker.t_wait_first,
    }


def _mean_and_max(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name} mean (s)": sum(values) / len(values), f"{name} max (s)": max(values)}


def save_runs(
    path: str | os.PathLike,
    runs: Sequence[ScalingRun],
    notes: Iterable[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write one line a run, below what is to be known of all.

    Parameters
    ----------
    path : path-like
        What to write: CSV.
    runs : sequence of ScalingRun
        At least one.
    notes : iterable of str
        For the first lines, each of which begins with #.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        The file exists and is not to be overwritten.
    """
    with new_file(path, overwrite=overwrite) as file:
        # One line each, whatever line breaks a selection has.
        file.writelines(f"# {' '.join(note.split())}\n" for note in notes)
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("mode", "backend", "workers", "repeat", *runs[0].values, "digest"))
        for run in runs:
            numbers = (f"{value:.9g}" for value in run.values.values())
            table.writerow((run.mode, run.backend, run.workers, run.repeat, *numbers, run.digest))
