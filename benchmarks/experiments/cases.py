"""Jobs on MPI ranks in turn, in the papers' way and in paceline's."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.experiment import Row, Setting, rounds_of
from benchmarks.measure import Spread
from benchmarks.ranks import EVERY_RANK, on_ranks

PROGRAMS = Path(__file__).with_name("on_ranks.py")
TOOLS = ("MDAnalysis", "paceline")
#: Repetitions of each frame in paceline's way, whose jobs would be too short.
PASSES = 10
#: Labels of rows.
NO_COLUMNS = ("trajectory", "repeated")
#: Å by which means over frames may differ.
TOLERANCE = 2e-3


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes
    ----------
    tool : {"MDAnalysis", "paceline"}
        In the papers' way, or in ours.
    ranks : int
        On how many ranks.
    trajectory : tuple of str
        One file, or several.
    frames : int
        How many, from the first one.
    layout : str
        Name in tables; with "split", each rank has its own file in the papers' way.
    task : {"rmsd", "distances"}
        The computation.
    workload : int
        How many times.
    source : {"file", "memory"}
        Where positions come from.
    collect : {"gather", "one-sided"}
        Method of collecting results; "one-sided" only with paceline.
    repeated : int
        Repetitions of each frame in paceline's way.
    """

    tool: str
    ranks: int
    trajectory: tuple[str, ...]
    frames: int
    layout: str = "shared"
    task: str = "rmsd"
    workload: int = 1
    source: str = "file"
    collect: str = "gather"
    repeated: int = PASSES

    @property
    def passes(self) -> int:
        """How many times each frame is taken."""
        return self.repeated if self.tool == "paceline" and self.source == "file" else 1


def measure_cases(setting: Setting, cases: Sequence[Case]) -> list[Row]:
    """Measure all cases in turn, round after round.

    Rows have the columns of a case and, in seconds, `t_total` of the job and the means over ranks
    of its parts; `us_frame` is µs of the job per frame.
    """
    told = setting.scratch / "cases.json"
    told.write_text(json.dumps([asdict(case) for case in cases]), encoding="utf-8")
    n_ranks = max(case.ranks for case in cases)
    files = setting.data.topology, setting.data.atoms, told
    found = on_ranks(n_ranks, EVERY_RANK, "cases", *files, setting.repeats, programs=PROGRAMS)
    _agree(cases, found)
    return [_row(cases[one["case"]], one) for one in found]


def speed_up(rows: list[Row], *, opened: bool = False, **case: Any) -> Spread:
    """Of two ranks over one, round by round: of the whole job, or once its files are open."""
    one, two = (np.array(rounds_of(rows, "t_total", **case, ranks=n)) for n in (1, 2))
    if opened:
        one, two = (
            times - rounds_of(rows, "t_open", **case, ranks=n)
            for n, times in enumerate((one, two), 1)
        )
    return Spread.of(one / two)


def _row(case: Case, found: dict[str, Any]) -> Row:
    columns = {key: value for key, value in asdict(case).items() if key not in NO_COLUMNS}
    times = {key: value for key, value in found.items() if key.startswith("t_")}
    us_frame = 1e6 * times["t_total"] / (case.frames * case.passes)
    return {**columns, "passes": case.passes, **times, "us_frame": us_frame}


def _agree(cases: Sequence[Case], found: Sequence[dict[str, Any]]) -> None:
    """Raise if jobs with the same frames find different numbers."""
    means: dict[tuple, list[float]] = {}
    for one in found:
        case = cases[one["case"]]
        if case.source == "file":
            means.setdefault((case.task, case.frames), []).append(one["mean"])
    for (task, frames), values in means.items():
        if not np.ptp(values) <= TOLERANCE:
            raise RuntimeError(f"{task} of {frames} frames: means differ: {values}")
