"""RMSDs from H5MD files on MPI ranks, in the 2021 paper's ways and in paceline's."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Dataset
from benchmarks.experiments.cases import TOLERANCE
from benchmarks.experiments.experiment import Row, Setting
from benchmarks.experiments.scaling import BY_RANK, Scaling
from benchmarks.measure import Unavailable
from benchmarks.ranks import EVERY_RANK, on_ranks

PROGRAM = Path(__file__).with_name("h5md_on_ranks.py")
#: Repetitions of each frame in paceline's jobs, which would otherwise be too short.
PASSES = {"selection": 20, "whole frames": 5}
#: Case attributes that are not columns of rows.
NO_COLUMNS = ("path", "once")
#: Scaling of cases that differ in their layout, which experiments replace by their own columns.
SCALING = Scaling("ms a frame", itemgetter("ms_frame"), variants=("layout",))
#: Variable that names a Python whose h5py was built with MPI, if the running Python's was not.
MPIO_PYTHON = "PACELINE_MPIO_PYTHON"


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes
    ----------
    tool : {"MDAnalysis", "h5py", "paceline"}
        The paper's way, h5py alone, or paceline's.
    ranks : int
        Number of ranks.
    path : str
        Path of the file.
    layout : str
        Name in tables.
    frames : int
        Number of frames, from the first on.
    access : {"frame by frame", "selection", "into memory", "whole frames"}
        Method of reading: whole frames; the selected atoms; a rank's whole share before
        computing; or, with paceline, blocks of whole frames.
    driver : {"", "independent", "collective", "two-phase"}
        Mode of MPI-IO; empty for reading without MPI-IO.
    cold : bool
        Drop the file's pages before the job.
    once : bool
        Use each frame once.
    """

    tool: str
    ranks: int
    path: str
    layout: str
    frames: int
    access: str = "frame by frame"
    driver: str = ""
    cold: bool = False
    once: bool = False

    @property
    def passes(self) -> int:
        """Number of times that each frame is used."""
        ours = self.tool == "paceline" and not (self.cold or self.once)
        return PASSES.get(self.access, 1) if ours else 1


def measure_cases(
    setting: Setting, data: Dataset, cases: Sequence[Case], python: str | None = None
) -> list[Row]:
    """Measure all cases in turn, round after round.

    Rows have the columns of a case. `t_total` is the job's time, s; the job's parts are means over
    ranks, s; `ms_frame` is the job's time per frame, ms.
    """
    if setting.scale is None:  # jobs are long enough
        cases = [replace(case, once=True) for case in cases]
    told = setting.scratch / "cases.json"
    told.write_text(json.dumps([asdict(case) for case in cases]), encoding="utf-8")
    n_ranks = max(case.ranks for case in cases)
    files = data.topology, data.atoms, told
    found = on_ranks(n_ranks, EVERY_RANK, *files, setting.repeats, programs=PROGRAM, python=python)
    means = [one["mean"] for one in found]
    if not np.ptp(means) <= TOLERANCE:
        raise RuntimeError(f"means of the RMSD differ: {means}")
    return [_row(cases[one["case"]], one) for one in found]


def mpio_python() -> str | None:
    """Return the Python whose h5py was built with MPI; None for the running Python.

    Raises
    ------
    Unavailable
        There is no such Python.
    """
    import h5py

    if named := os.environ.get(MPIO_PYTHON):
        return named
    if not h5py.get_config().mpi:
        raise Unavailable(
            f"h5py was built without MPI; {MPIO_PYTHON} may name a Python that has one with it "
            "(docs/layouts.md says how to build it)"
        )
    return None


def _row(case: Case, found: dict[str, Any]) -> Row:
    columns = {key: value for key, value in asdict(case).items() if key not in NO_COLUMNS}
    times = {key: value for key, value in found.items() if key.startswith("t_")}
    n_frames = case.frames * case.passes
    return {
        **columns,
        "passes": case.passes,
        **times,
        "ms_io": 1e3 * times["t_io"] * case.ranks / n_frames,
        "ms_frame": 1e3 * times["t_total"] / n_frames,
        BY_RANK: found.get(BY_RANK),
    }
