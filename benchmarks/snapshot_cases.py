"""Cases of sodium chloride dumps on MPI ranks, with every method."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.ranks import EVERY_RANK, on_ranks

PROGRAM = Path(__file__).with_name("snapshot_on_ranks.py")
#: The report's four methods, by its names.
METHODS = {
    "serial": "SWRITE",
    "direct": "PWRITE",
    "mpiio": "MWRITE",
    "sorted": "MWRITE_SORTED",
}
#: Yardsticks: ROMIO sorts the records itself; or records are sorted before.
COLLECTIVE, IN_ORDER = "collective", "in order"
#: Values measured for one case in one round.
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One dump of positions, velocities and forces.

    Attributes
    ----------
    way : str
        One of `METHODS`, or a yardstick.
    ranks : int
        Number of ranks.
    cells : int
        Unit cells along an edge of the crystal.
    format : str
        Format name, as in the writer.
    writers : int or None
        Number of writing ranks; None for the writer's default.
    buffer : str
        Buffer of each writing rank.
    sync : bool
        End the dump only when the file is on the disk.
    """

    way: str
    ranks: int
    cells: int
    format: str = "CONFIG"
    writers: int | None = None
    buffer: str = "64 MiB"
    sync: bool = False


@dataclass(frozen=True)
class Run:
    """One run of a simulation that only sleeps.

    Attributes
    ----------
    ranks, cells, steps : int
        Number of ranks, unit cells along an edge, and number of steps.
    step : float
        Duration of a step on one rank, seconds; it is divided by the number of ranks.
    method : str
        Method of the dumps; empty for no dump.
    every : int
        Number of steps between dumps.
    wait : bool
        Wait for each dump.
    """

    ranks: int
    cells: int
    steps: int
    step: float
    method: str
    every: int
    wait: bool


def measure_cases(folder: Path, cases: Sequence[Case], repeats: int) -> list[Row]:
    """Measure all cases in turn, round after round; the first round does not count.

    Rows have the columns of a case, and the following. `t_total` is the time until the last rank
    has finished, s; its parts are means over writers. `cpu` is the CPU time of all ranks, s.
    `mbytes` and `mb_s` are size and rate of the file. Messages, writes and MB are sums over ranks.
    Batches, peak of the buffers and growth of memory, MB, are those of the rank with the most.

    Raises
    ------
    RuntimeError
        Files of the same ions in the same format differ.
    """
    told = folder / "cases.json"
    told.write_text(json.dumps([asdict(case) for case in cases]), encoding="utf-8")
    n_ranks = max(case.ranks for case in cases)
    found = on_ranks(n_ranks, EVERY_RANK, folder, told, repeats, programs=PROGRAM)
    _agree(cases, found)
    rows = []
    for one in found:
        case = asdict(cases[one.pop("case")])
        del one["checksum"]
        rows.append({**case, "sync": int(case["sync"]), "writers": case["writers"] or 0, **one})
    return rows


def _agree(cases: Sequence[Case], found: Sequence[Row]) -> None:
    """Raise if files differ that should be equal."""
    first: dict[tuple[int, str], Row] = {}
    for one in found:
        case = cases[one["case"]]
        other = first.setdefault((case.cells, case.format), one)
        if one["checksum"] != other["checksum"]:
            raise RuntimeError(f"files differ of {case} and {cases[other['case']]}")
