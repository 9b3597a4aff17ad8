"""Published times of Khoshlessan et al. 2020, and the model's times of the same runs."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.model import NETWORKS, FileSystem, FrameCost, Prediction, predict

PUBLISHED = Path(__file__).parent / "published"

# What the paper says of the runs: sections 4.1 and 4.3, Table 1.
N_FRAMES = 2_512_200
FRAME_BYTES = {
    "single": 30e9 / N_FRAMES,
    "splitting": 30e9 / N_FRAMES,
    "phdf5": 146 * 12,
    "none": 0,
}
LAYOUTS = {"single": "shared", "splitting": "split", "phdf5": "h5md", "none": "split"}
#: Of a node: cores, and bytes per second of its link (56, 56 and 12.37 Gb/s).
CORES = {"Comet": 24, "SuperMIC": 20, "Bridges": 28}
LINKS = {"Comet": 7e9, "SuperMIC": 7e9, "Bridges": 1.546e9}
#: A frame's number and its RMSD, both float64.
RESULT_BYTES = 16

#: What is wanted of t_io + t_comp, as parts of it; the tables give whole seconds.
SHARED, ELSE, MANY_RANKS = 0.35, 0.15, 0.30
MANY = 192
WHOLE_SECONDS = 0.5
#: … and of times that the text states.
FACTOR = 2.0
FITTED_ON = "Comet"


@dataclass(frozen=True)
class Constants:
    """The three that are fitted; see `paceline.model.FileSystem`."""

    t_lock: float
    t_request: float
    t_open: float


@dataclass(frozen=True)
class Case:
    """One row of Table 5, or, without reading, one of Fig. 3; seconds."""

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
        """Reading and computing, mean over ranks and repeats, s."""
        return self.t_io + self.t_comp

    @property
    def allowed(self) -> float:
        """By how much a prediction may differ, s."""
        part = SHARED if self.access == "single" else MANY_RANKS if self.n_ranks > MANY else ELSE
        return max(part * self.measured, WHOLE_SECONDS)

    def predict(self, constants: Constants) -> Prediction:
        """Predicted times, from the serial row alone."""
        nodes = -(-self.n_ranks // CORES[self.cluster])
        return predict(
            FrameCost(
                read=self.serial_io / N_FRAMES,
                decode=0.0,  # within the published t_io
                compute=self.serial_comp / N_FRAMES,
                bytes=FRAME_BYTES[self.access],
            ),
            N_FRAMES,
            self.n_ranks,
            file_system=FileSystem(
                servers=self.n_ranks,
                node_bandwidth=LINKS[self.cluster],
                t_lock=constants.t_lock,
                t_request=constants.t_request,
                t_open=constants.t_open,
            ),
            per_node=-(-self.n_ranks // nodes),
            schedule="static",
            layout=LAYOUTS[self.access],
            network=NETWORKS["infiniband"],
            request_frames=1,
            result_bytes=RESULT_BYTES,
        )


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
class Stated:
    """A time that the text states, s, of a run that is also a row of Table 5."""

    what: str
    case: Case
    measured: float
    of: Callable[[Prediction], float]
    is_bound: bool = False

    def met(self, predicted: float) -> bool:
        """True if a prediction is within a factor of 2, or within the bound."""
        if self.is_bound:
            return predicted <= self.measured
        return self.measured / FACTOR <= predicted <= self.measured * FACTOR


#: Which part of a prediction is what the text states, by the words of the file.
QUANTITIES: dict[str, Callable[[Prediction], float]] = {
    "straggling ranks (62 of 72) total": lambda found: found.t_total,
    "other ranks total": lambda found: at_work(found) + found.t_comm,
    # Who opened the file first waits in MPI_Gather for who did last.
    "t_comm of stragglers": lambda found: found.t_open + found.t_comm,
    "slow ranks opening the file": lambda found: found.t_total,
    "mean of the others": at_work,
    "straggler delay (65 before splitting)": lambda found: found.t_total - at_work(found),
    "t_comm upper bound": lambda found: found.t_comm,
}
#: Those to which t_open is fitted: whole runs.
TOTALS = ("straggling ranks (62 of 72) total", "slow ranks opening the file")
_SERIES_OF = {
    "shared XTC with MPI_Gather": ("mpi", "single"),
    "shared XTC with Global Arrays": ("ga", "single"),
    "split XTC with MPI": ("mpi", "splitting"),
    "PHDF5": ("mpi", "phdf5"),
}


@cache
def stated() -> list[Stated]:
    """Times of Comet's parallel runs that the text states."""
    known = {(case.cluster, case.gather, case.access, case.n_ranks): case for case in cases()}
    return [
        Stated(
            what=row["quantity"],
            case=known[row["where"], *_SERIES_OF[row["case"]], int(row["n_processes"])],
            measured=float(row["value"]),
            of=QUANTITIES[row["quantity"]],
            is_bound="bound" in row["quantity"],
        )
        for row in _rows("khoshlessan_stated_times.csv")
        if row["quantity"] in QUANTITIES
    ]


def published_deal() -> float:
    """Seconds per block of the fastest scheduler of the 2017 paper: Dask's, on one node."""
    rows = _rows("khoshlessan_stated_times.csv")
    rate = next(row["value"] for row in rows if row["unit"] == "tasks/s")
    return 1 / float(rate)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with open(PUBLISHED / name, encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def _series(row: dict[str, str]) -> tuple[str, str, str]:
    return row["cluster"], row["gather"], row["access"]
