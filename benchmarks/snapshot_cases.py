"""Cases of dumps of sodium chloride on MPI ranks, by every method."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.ranks import EVERY_RANK, on_ranks

PROGRAM = Path(__file__).with_name("snapshot_on_ranks.py")
#: The report's four methods, as it calls them.
METHODS = {
    "serial": "SWRITE",
    "direct": "PWRITE",
    "mpiio": "MWRITE",
    "sorted": "MWRITE_SORTED",
}
#: Yardsticks: ROMIO orders the records itself; or they are in order before.
COLLECTIVE, IN_ORDER = "collective", "in order"
#: What is measured in one round of one case.
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One dump of positions, velocities and forces.

    Attributes
    ----------
    way : str
        One of `METHODS`, or a yardstick.
    ranks : int
        On how many ranks.
    cells : int
        Unit cells of the crystal along an edge.
    format : str
        As the writer calls it.
    writers : int or None
        How many ranks write; None for the writer's own rule.
    buffer : str
        Of each of them.
    sync : bool
        End the dump when the file is on the disk.
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
        Its size.
    step : float
        Seconds of a step of one rank; of several, that much less.
    method : str
        By which it dumps; none if empty.
    every : int
        After so many steps.
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
    """Measure all cases in turn, round after round; the first round counts not.

    Rows have the columns of a case; `t_total`, seconds until the last rank is done, and its parts,
    means of those that write; `cpu`, processor seconds of all ranks; `mbytes` and `mb_s`, size and
    rate of the file; sums over ranks of messages, writes and MB; of the rank with most, batches,
    peak of the buffers and growth of memory, MB.

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
    """Raise where files differ that should hold the same."""
    first: dict[tuple[int, str], Row] = {}
    for one in found:
        case = cases[one["case"]]
        other = first.setdefault((case.cells, case.format), one)
        if one["checksum"] != other["checksum"]:
            raise RuntimeError(f"files differ of {case} and {cases[other['case']]}")
