"""Jobs on MPI ranks, run in turn in the papers' way and in paceline's."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.experiment import Row, Setting, rounds_of
from benchmarks.experiments.scaling import BY_RANK, Scaling
from benchmarks.measure import Spread
from benchmarks.ranks import EVERY_RANK, on_ranks

PROGRAMS = Path(__file__).with_name("on_ranks.py")
TOOLS = ("MDAnalysis", "paceline")
#: Scaling of cases that differ in their layout, which experiments replace by their own column.
SCALING = Scaling("µs a frame", itemgetter("us_frame"), variants=("layout",))
#: Repetitions of each frame in paceline's jobs, which would otherwise be too short.
PASSES = 10
#: Case attributes that are not columns of rows.
NO_COLUMNS = ("trajectory", "repeated")
#: Allowed difference between means over frames, Å.
TOLERANCE = 2e-3


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes
    ----------
    tool : {"MDAnalysis", "paceline"}
        The papers' way, or paceline's.
    ranks : int
        Number of ranks.
    trajectory : tuple of str
        One or several files.
    frames : int
        Number of frames, from the first on.
    layout : str
        Name in tables; with "split", each rank reads its own file in the papers' way.
    task : {"rmsd", "distances"}
        The computation.
    workload : int
        Repetitions of the computation.
    source : {"file", "memory"}
        Source of the positions.
    collect : {"gather", "one-sided"}
        Method to collect results; "one-sided" only with paceline.
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
        """Number of times that each frame is used."""
        return self.repeated if self.tool == "paceline" and self.source == "file" else 1


def measure_cases(setting: Setting, cases: Sequence[Case]) -> list[Row]:
    """Measure all cases in turn, round after round.

    Rows have the columns of a case. `t_total` is the job's time, s; the job's parts are means over
    ranks, s; `us_frame` is the job's time per frame, µs.
    """
    if setting.scale is None:  # jobs are long enough
        cases = [replace(case, repeated=1) for case in cases]
    told = setting.scratch / "cases.json"
    told.write_text(json.dumps([asdict(case) for case in cases]), encoding="utf-8")
    n_ranks = max(case.ranks for case in cases)
    files = setting.data.topology, setting.data.atoms, told
    found = on_ranks(n_ranks, EVERY_RANK, "cases", *files, setting.repeats, programs=PROGRAMS)
    _agree(cases, found)
    return [_row(cases[one["case"]], one) for one in found]


def speed_up(rows: list[Row], *, opened: bool = False, **case: Any) -> Spread:
    """Return the speed-up of two ranks, by round: of the whole job, or after opening files."""
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
    by_rank = found.get(BY_RANK)
    return {**columns, "passes": case.passes, **times, "us_frame": us_frame, BY_RANK: by_rank}


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
