"""Many ranks read one file on a slow, shared file system."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import MDAnalysis as mda
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import paceline
from benchmarks.experiments.cases import TOLERANCE
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    rounds_of,
    spread,
    values_of,
)
from benchmarks.experiments.scaling import Scaling
from benchmarks.experiments.style import COLOURS, PARTS
from benchmarks.measure import Spread
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.slowfs import SlowFileSystem, total
from benchmarks.table import Table

PROGRAMS = Path(__file__).with_name("contending.py")
#: Simulated file systems, a tenth as fast as real ones, so that two cores keep up with 16 ranks.
FILE_SYSTEMS: dict[str, dict[str, Any]] = {
    "none": {},
    # One server with low bandwidth. Clients prefetch; opens and locks are messages.
    "NFS-like": {"latency": 1e-3, "bandwidth": 11e6, "open_cost": 1e-3, "lock_cost": 2e-3},
    # Several servers, stripes of 1 MiB, and a lock for each read, as the 2020 paper suspects.
    "Lustre-like": {
        "latency": 1e-3,
        "bandwidth": 50e6,
        "servers": 4,
        "request_cost": 1e-3,
        "open_cost": 5e-3,
        "lock_cost": 5e-3,
        "read_ahead": 0,
    },
}
FRAMES = 2048
RANKS = (1, 2, 4, 8, 16)
#: Range of all time axes, seconds.
SECONDS = (0.05, 20)


@dataclass(frozen=True)
class Way:
    """Method of a job: the tool, and one file for all ranks or one per rank."""

    tool: str
    layout: str
    program: str
    line: str
    marker: str

    @property
    def name(self) -> str:
        return f"{self.tool}, {self.layout}"


WAYS = (
    Way("MDAnalysis", "shared", "papers", "-", "o"),
    Way("MDAnalysis", "split", "papers", "--", "^"),
    Way("paceline", "shared", "ours", "-", "s"),
)


def rounds(setting: Setting) -> int:
    """Return the number of rounds: in the short form one, because ranks start slowly."""
    return setting.repeats if setting.part > 1 else 1


def measure(setting: Setting) -> list[Row]:
    n_frames = min(setting.amount(FRAMES, 64), FRAMES, setting.data.n_frames)
    ranks, systems = setting.ranks_or(RANKS), list(FILE_SYSTEMS)
    if setting.part < 1:
        ranks, systems = setting.ranks_or(RANKS[:2]), systems[-1:]
    folder = setting.scratch / "slow"
    folder.mkdir()
    topology = Path(shutil.copy(setting.data.first_frame, folder))
    jobs = {
        (way, n): _job(setting, folder, topology, n_frames, n if way.layout == "split" else 1)
        for way in WAYS
        for n in ranks
        if way.layout == "shared" or n > 1
    }
    rows = [
        _run(system, way, n, folder, topology, job)
        for _ in range(rounds(setting))
        for system in systems
        for (way, n), job in jobs.items()
    ]
    if not np.ptp([row["mean"] for row in rows]) <= TOLERANCE:
        raise RuntimeError("means of the RMSDs differ")
    return rows


def _job(setting: Setting, folder: Path, topology: Path, n_frames: int, n_files: int) -> Path:
    """Write the file of arguments for ranks; create frame offsets and indexes beforehand."""
    told = setting.scratch / f"{n_files}.json"
    if told.exists():
        return told
    whole = folder / "whole.xtc"
    if not whole.exists():
        first, *others = paceline.split(
            setting.data.trajectory("xtc"), frames=n_frames, output=folder / "cut.xtc"
        )
        first.rename(whole)
        for other in others:
            other.unlink()
    files = [whole]
    if n_files > 1:
        files = paceline.split(whole, n_files, output=folder / f"of-{n_files}.xtc")
    for file in files:
        mda.Universe(topology, file)
    atoms = np.loadtxt(setting.data.atoms, int)
    reference = paceline.Universe(topology, files[0]).atoms[atoms].positions
    job = {
        "files": list(map(str, files)),
        "atoms": atoms.tolist(),
        "reference": reference.tolist(),
        "frames": n_frames,
    }
    told.write_text(json.dumps(job), encoding="utf-8")
    return told


def _run(system: str, way: Way, n: int, folder: Path, topology: Path, job: Path) -> Row:
    """Run one job; return times, s, and all ranks' requests to the file system."""
    with SlowFileSystem(folder, **FILE_SYSTEMS[system]) as slow:
        found = on_ranks(
            n,
            EVERY_RANK,
            *(way.program, topology, job),
            programs=PROGRAMS,
            more=slow.environment(),
        )
        counts = asdict(total(slow.counts()))
    if counts.pop("unseen"):
        raise RuntimeError(f"{way.name}: data was got at in ways that are not slowed")
    del counts["pid"], counts["process"]
    return {"system": system, "way": way.name, "ranks": n, **found, **counts}


def table(rows: list[Row]) -> Table:
    most = max(values_of(rows, "ranks"))
    found = Table(
        f"{most} ranks: requests of all ranks to the file system, and seconds of the job",
        (
            *("file system", "way", "opens", "locks", "reads", "requests", "MB fetched"),
            *("s, 1 rank", f"s, {most} ranks", "speed-up"),
        ),
    )
    for system in values_of(rows, "system"):
        for way in WAYS:
            case = {"system": system, "way": way.name, "ranks": most}
            alone = {"system": system, "way": f"{way.tool}, shared", "ranks": 1}
            asked = (
                cell(spread(rows, key, **case)) for key in ("opens", "locks", "reads", "requests")
            )
            found.rows.append(
                (
                    *(system, way.name, *asked),
                    cell(spread(rows, "bytes_fetched", 1e-6, **case)),
                    *(cell(spread(rows, "t_total", **one)) for one in (alone, case)),
                    cell(speed_up(rows, system, way)),
                )
            )
    return found


def speed_up(rows: Sequence[Row], system: str, way: Way) -> Spread:
    """Return the speed-up of the most ranks over one rank of the same tool, by round."""
    most = max(values_of(rows, "ranks"))
    alone = rounds_of(rows, "t_total", system=system, way=f"{way.tool}, shared", ranks=1)
    together = rounds_of(rows, "t_total", system=system, way=way.name, ranks=most)
    return Spread.of(np.divide(alone, together))


def draw(rows: list[Row]) -> Figure:
    systems = values_of(rows, "system")
    asked = ("opens", "locks", "requests")
    figure = Figure(figsize=(7.5, 5.2), layout="constrained")
    above, below = figure.subplots(2, len(asked))
    for axes, system in zip(above, systems, strict=False):
        _lines(axes, rows, system, "t_total")
        axes.set(title=f"file system: {system}", yscale="log", ylim=SECONDS)
        axes.yaxis.set_major_formatter("{x:g}")
    for axes, key in zip(below, asked, strict=True):
        _lines(axes, rows, systems[-1], key)
        axes.set(title=f"{key}, {systems[-1]}", xlabel="ranks")
        axes.set_ylim(bottom=0)
    above[0].set_ylabel("seconds of the job")
    below[0].set_ylabel("by all ranks together")
    handles, labels = above[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _lines(axes: Axes, rows: Sequence[Row], system: str, key: str) -> None:
    """Draw medians and ranges of the time of each method against ranks."""
    for way in WAYS:
        found = [row for row in rows if row["system"] == system and row["way"] == way.name]
        ranks = values_of(found, "ranks")
        values = [spread(found, key, ranks=n) for n in ranks]
        medians = [value.median for value in values]
        ranges = [
            [value.median - value.low for value in values],
            [value.high - value.median for value in values],
        ]
        style = {"color": COLOURS[way.tool], "linestyle": way.line, "marker": way.marker}
        axes.errorbar(ranks, medians, ranges, label=way.name, markersize=5, capsize=3, **style)
    axes.set_xscale("log", base=2)
    ticks = values_of(rows, "ranks")
    axes.set_xticks(ticks, ticks)


def finding(rows: list[Row]) -> str:
    shared, split, ours = WAYS
    systems = [system for system in values_of(rows, "system") if FILE_SYSTEMS[system]]
    most = max(values_of(rows, "ranks"))

    def told(key: str, system: str, way: Way) -> str:
        return cell(spread(rows, key, system=system, way=way.name, ranks=most))

    sentences = [
        f"On the {system} file system {most} ranks of the papers' way are "
        f"{cell(speed_up(rows, system, shared))} times as fast as one with a shared file and "
        f"{cell(speed_up(rows, system, split))} times with split ones; they take "
        f"{told('t_total', system, shared)} and {told('t_total', system, split)} "
        f"s, and paceline {told('t_total', system, ours)} s with the shared file."
        for system in systems
    ]
    opens, locks, requests = (
        [told(key, systems[-1], way) for way in (shared, ours)]
        for key in ("opens", "locks", "requests")
    )
    return (
        f"{' '.join(sentences)} On the latter {most} ranks of the papers' way open files "
        f"{opens[0]} times and make {locks[0]} requests for locks and {requests[0]} for data; "
        f"paceline's open files {opens[1]} times and make {locks[1]} and {requests[1]}."
    )


EXPERIMENT = Experiment(
    title="Contention for a slow, shared file",
    source="Khoshlessan et al. 2020, Figs 2 and 4, section 6.5",
    question=(
        "RMSD of the Cα atoms from one XTC file that all ranks read, or from one file for each. On "
        "Comet 62 of 72 ranks took about 60 s with a shared file and the others 20 s: the "
        "difference was opening the file and communicating; computing took the same time on each "
        "rank. With split files the stragglers' delay fell from 65 s to about 10 s. The paper "
        "suspects that ranks wait because each small read of a shared file needs a lock. Here a "
        "preloaded library makes a folder a slow file system, of which each rank is a separate "
        "client, and counts requests."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    rounds=rounds,
    why=(
        "The file systems are models, about a tenth as fast as real ones, in which ranks sleep. So "
        "more ranks than cores are meaningful in the middle and on the right, but not on the left, "
        "where the number of cores is the limit, as at the start of a run of many ranks. Opens and "
        "locks of one file are served one after another, and data servers handle requests in order "
        "of arrival. In the papers' way every rank opens topology, trajectory, offsets and their "
        "lock file, and ranks that wait for the lock try again and again: this time grows with the "
        "ranks. Splitting the trajectory removes the waiting for its lock, as in the paper, but "
        "not the opens of the topology. In paceline the first rank opens these files, the others "
        "only the trajectory, and requests are larger. The bandwidth of the server limits all "
        "tools. The paper's effects of communication, and of different nodes, are not modelled."
    ),
    scaling=Scaling(
        "s",
        itemgetter("t_total"),
        line="way",
        variants=("system",),
        parts={part: PARTS[part] for part in PARTS if part != "t_rest"},
    ),
)
