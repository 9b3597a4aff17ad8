"""Published times of Khoshlessan et al. 2020 and Jakupovic & Beckstein 2021, one object a run.

Two things of Table 5 are not as its caption says; the authors' raw data (doi
10.5281/zenodo.3351616) show both. On SuperMIC with HDF5, t_io and t_comp of the runs with more than
one rank are exchanged: 12.96 and 23.44 s on 20 ranks, where the serial run gives shares of 25.2 and
13.7 s. And most rows are times of the slowest rank, not means over ranks; those of a shared file on
SuperMIC and Bridges are means. Only the sum of t_io and t_comp is used here.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.model import FileSystem, FrameCost, Prediction, Unevenness, predict

PUBLISHED = Path(__file__).parent / "published"

# What the 2020 paper says of the runs: sections 4.1 and 4.3, Table 1.
N_FRAMES = 2_512_200
FRAME_BYTES = {"single": 30e9 / N_FRAMES, "splitting": 30e9 / N_FRAMES, "phdf5": 146 * 12}
#: HDF5 is read through MPI-IO, without a lock.
LAYOUTS = {"single": "shared", "splitting": "split", "phdf5": "split"}
#: Of a node: cores, and bytes per second of its link (56, 56 and 12.37 Gb/s).
CORES = {"Comet": 24, "SuperMIC": 20, "Bridges": 28}
LINKS = {"Comet": 7e9, "SuperMIC": 7e9, "Bridges": 1.546e9}


@dataclass(frozen=True)
class Case:
    """One row of Table 5; seconds."""

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
        """Reading and computing, of which the order in the table may be wrong, s."""
        return self.t_io + self.t_comp

    @property
    def share(self) -> float:
        """The serial time divided by the ranks, s."""
        return (self.serial_io + self.serial_comp) / self.n_ranks

    @property
    def per_node(self) -> int:
        """Ranks on a node."""
        nodes = -(-self.n_ranks // CORES[self.cluster])
        return -(-self.n_ranks // nodes)

    def predict(self, t_lock: float, uneven: Unevenness | None = None) -> Prediction:
        """Predicted times, from the serial row and the lock."""
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
    """Of a frame; decoding is part of the published t_io."""
    read, compute = serial_io / N_FRAMES, serial_comp / N_FRAMES
    return FrameCost(read=read, decode=0.0, compute=compute, bytes=FRAME_BYTES[access])


def at_work(prediction: Prediction) -> float:
    """The t_io + t_comp of the table: there decoding is part of reading."""
    return prediction.t_io + prediction.t_decode + prediction.t_comp


@cache
def cases() -> list[Case]:
    """Rows of Table 5 of more than one rank."""
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
    """A whole run with stragglers that the text states: its row of Table 5, and seconds."""

    case: Case
    measured: float
    others: float


#: Stated times of the runs of 72 ranks: of the stragglers, and of the other ranks.
_TOTALS = {
    "mpi": ("straggling ranks (62 of 72) total", "other ranks total"),
    "ga": ("slow ranks opening the file", "mean of the others"),
}
#: Stragglers of the 72 ranks: text, and caption of Fig. 6.
STRAGGLERS = {"mpi": 62, "ga": 2}


@cache
def totals() -> list[Total]:
    """Both whole runs that the text describes: on Comet, 72 ranks and one shared file."""
    seconds = {row["quantity"]: float(row["value"]) for row in _stated()}
    return [
        Total(case, *(seconds[name] for name in _TOTALS[case.gather]))
        for case in cases()
        if (case.cluster, case.access, case.n_ranks) == ("Comet", "single", 72)
    ]


@dataclass(frozen=True)
class SharedH5MD:
    """Runs of Jakupovic & Beckstein 2021 on one rank and on several, of one file; seconds."""

    cluster: str
    access: str
    n_ranks: int
    serial: float
    measured: float

    @property
    def share(self) -> float:
        """The serial time divided by the ranks, s."""
        return self.serial / self.n_ranks

    def predict(self, bandwidth: float) -> float:
        """Seconds, from the serial run and the bandwidth that all ranks share."""
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


#: The paper's file: YiiP, float32.
H5MD_FRAMES, H5MD_BYTES = 90_100, 113 * 2**30


@cache
def h5md_runs() -> list[SharedH5MD]:
    """Those whose time on one rank is stated, too."""
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
