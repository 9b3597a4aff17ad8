"""Published times of Khoshlessan et al. 2020 and Jakupovic & Beckstein 2021, one object per run.

Table 5 differs from its caption in two points, as the authors' raw data show (doi
10.5281/zenodo.3351616). First, for HDF5 on SuperMIC with several ranks, t_io and t_comp are
swapped: 12.96 and 23.44 s on 20 ranks, whereas shares of the serial run are 25.2 and 13.7 s.
Second, most rows are times of the slowest rank rather than means over ranks; only those of a shared
file on SuperMIC and Bridges are means. Therefore only the sum of t_io and t_comp is used here.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.model import FileSystem, FrameCost, Prediction, Unevenness, predict

PUBLISHED = Path(__file__).parent / "published"

# Values of the runs in the 2020 paper: sections 4.1 and 4.3, Table 1.
N_FRAMES = 2_512_200
FRAME_BYTES = {"single": 30e9 / N_FRAMES, "splitting": 30e9 / N_FRAMES, "phdf5": 146 * 12}
#: Layout by series of Table 5; HDF5 is read through MPI-IO without a lock.
LAYOUTS = {"single": "shared", "splitting": "split", "phdf5": "split"}
#: Per node: number of cores, and bandwidth of the link, bytes per second (56, 56 and 12.37 Gb/s).
CORES = {"Comet": 24, "SuperMIC": 20, "Bridges": 28}
LINKS = {"Comet": 7e9, "SuperMIC": 7e9, "Bridges": 1.546e9}


@dataclass(frozen=True)
class Case:
    """One row of Table 5; times in seconds."""

    cluster: str
    gather: str
    access: str
    n_ranks: int
    t_io: float
    t_comp: float
    serial_io: float
    serial_comp: float

    @property
    def measured(self) -> float:
        """Sum of reading and computing, s, since the table may have swapped the two."""
        return self.t_io + self.t_comp

    @property
    def share(self) -> float:
        """Serial time divided by the number of ranks, s."""
        return (self.serial_io + self.serial_comp) / self.n_ranks

    @property
    def per_node(self) -> int:
        """Number of ranks per node."""
        nodes = -(-self.n_ranks // CORES[self.cluster])
        return -(-self.n_ranks // nodes)

    def predict(self, t_lock: float, uneven: Unevenness | None = None) -> Prediction:
        """Predict the times from the serial row and the lock time."""
        return predict(
            cost_of(self.access, self.serial_io, self.serial_comp),
            N_FRAMES,
            self.n_ranks,
            file_system=FileSystem(t_lock=t_lock),
            per_node=self.per_node,
            schedule="static",
            layout=LAYOUTS[self.access],
            uneven=uneven,
            request_frames=1,
        )


def cost_of(access: str, serial_io: float, serial_comp: float) -> FrameCost:
    """Return the cost of a frame; the published t_io includes decoding."""
    read, compute = serial_io / N_FRAMES, serial_comp / N_FRAMES
    return FrameCost(read=read, decode=0.0, compute=compute, bytes=FRAME_BYTES[access])


def at_work(prediction: Prediction) -> float:
    """Return t_io + t_comp as in the table, where reading includes decoding."""
    return prediction.t_io + prediction.t_decode + prediction.t_comp


@cache
def cases() -> list[Case]:
    """Return the rows of Table 5 with more than one rank."""
    rows = list(_rows("khoshlessan2020_table5.csv"))
    serial = {_series(row): row for row in rows if row["n_processes"] == "1"}
    return [
        Case(
            *_series(row),
            n_ranks=int(row["n_processes"]),
            t_io=float(row["t_io"]),
            t_comp=float(row["t_comp"]),
            serial_io=float(serial[_series(row)]["t_io"]),
            serial_comp=float(serial[_series(row)]["t_comp"]),
        )
        for row in rows
        if row["n_processes"] != "1"
    ]


@dataclass(frozen=True)
class Total:
    """Whole run with stragglers, stated in the text: its row of Table 5, and its time, s."""

    case: Case
    measured: float
    others: float


#: Names of the stated times of runs with 72 ranks: of stragglers, and of other ranks.
_TOTALS = {
    "mpi": ("straggling ranks (62 of 72) total", "other ranks total"),
    "ga": ("slow ranks opening the file", "mean of the others"),
}
#: Number of stragglers among the 72 ranks, from the text and the caption of Fig. 6.
STRAGGLERS = {"mpi": 62, "ga": 2}


@cache
def totals() -> list[Total]:
    """Return both whole runs in the text: on Comet, with 72 ranks and one shared file."""
    seconds = {row["quantity"]: float(row["value"]) for row in _stated()}
    return [
        Total(case, *(seconds[name] for name in _TOTALS[case.gather]))
        for case in cases()
        if (case.cluster, case.access, case.n_ranks) == ("Comet", "single", 72)
    ]


@dataclass(frozen=True)
class SharedH5MD:
    """Runs of Jakupovic & Beckstein 2021 on one and on several ranks, with one file; seconds."""

    cluster: str
    access: str
    n_ranks: int
    serial: float
    measured: float

    @property
    def share(self) -> float:
        """Serial time divided by the number of ranks, s."""
        return self.serial / self.n_ranks

    def predict(self, bandwidth: float) -> float:
        """Predict the time, s, from the serial run and the bandwidth that all ranks share."""
        n_bytes = H5MD_BYTES / H5MD_FRAMES
        cost = FrameCost(read=self.serial / H5MD_FRAMES, decode=0.0, compute=0.0, bytes=n_bytes)
        found = predict(
            cost,
            H5MD_FRAMES,
            self.n_ranks,
            file_system=FileSystem(server_bandwidth=bandwidth),
            schedule="static",
            layout="split",
        )
        return found.t_total


#: Frames and size of the paper's file (YiiP, float32).
H5MD_FRAMES, H5MD_BYTES = 90_100, 113 * 2**30


@cache
def h5md_runs() -> list[SharedH5MD]:
    """Return the runs whose time on one rank is also stated."""
    times = {
        (row["system"], row["variant"], row["quantity"], int(row["n_processes"])): row["seconds"]
        for row in _rows("jakupovic2021_figures.csv")
        if row["file"] == "H5MD-default"
    }
    return [
        SharedH5MD(cluster, access, n_ranks, float(times[cluster, access, what, 1]), float(seconds))
        for (cluster, access, what, n_ranks), seconds in times.items()
        if n_ranks > 1 and (cluster, access, what, 1) in times
    ]


def _stated() -> Iterator[dict[str, str]]:
    return _rows("khoshlessan_stated_times.csv")


def _rows(name: str) -> Iterator[dict[str, str]]:
    with open(PUBLISHED / name, encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def _series(row: dict[str, str]) -> tuple[str, str, str]:
    return row["cluster"], row["gather"], row["access"]
