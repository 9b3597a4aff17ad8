"""Run `bench_stragglers`' analysis with one slow worker, several times.

    python slowed.py topology trajectory backend slow n_frames repeats folder

Prints a line of JSON for each run: the worker named by the report, the slow worker, and the times
of run and report. `slow` says whether the third worker to start is slow at computing or at reading;
otherwise this program makes no worker slow.
"""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

#: Number of workers, and number of the slow one in order of their start.
N_WORKERS, SLOW = 4, 2
#: Time per frame, and additional time on the slow worker, seconds.
FRAME, EXTRA = 2e-3, 6e-3


class Turn:
    """Decides whether a worker is the slow one: files in a folder record the starting order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_slow(self) -> bool:
        """Return whether the calling thread is the slow worker."""
        own = f"{os.getpid()}:{threading.get_native_id()}"
        if not (self._folder / own).exists():
            for number in range(N_WORKERS):
                with suppress(FileExistsError):
                    (self._folder / f"turn {number}").symlink_to(own)
                    break
            (self._folder / own).touch()
        return self.slow() == own

    def slow(self) -> str | None:
        """Process and thread of the slow worker, after it has started."""
        with suppress(FileNotFoundError):
            return os.readlink(self._folder / f"turn {SLOW}")
        return None


class Sleeper:
    """Function that sleeps for each frame, longer if the worker is slow."""

    def __init__(self, turn: Turn | None) -> None:
        self._turn = turn

    def __call__(self, block: Any) -> np.ndarray:
        extra = EXTRA if self._turn is not None and self._turn.is_slow() else 0.0
        time.sleep(len(block) * (FRAME + extra))
        return block.times


class SlowSource:
    """Source of frames that one worker reads slowly."""

    def __init__(self, source: Any, turn: Turn) -> None:
        self._source, self._turn = source, turn
        self.n_wanted, self.fields = source.n_wanted, source.fields
        self.required, self.time_axis = source.required, source.time_axis
        self.n_atoms = source.n_atoms

    def open(self) -> "SlowReader":
        return SlowReader(self._source.open(), self._turn)

    def name_of(self, extents: Any, row: int) -> str:
        return self._source.name_of(extents, row)


class SlowReader:
    """Reader of one worker, which reports its reading time as the core does."""

    def __init__(self, reader: Any, turn: Turn) -> None:
        self._reader, self._turn = reader, turn
        self.read_ahead = reader.read_ahead

    def read(self, extents: Any, decoded: Any, *, skip: bool) -> Any:
        begun = time.monotonic_ns()
        if self._turn.is_slow():
            time.sleep(len(extents) * EXTRA)
        slept = time.monotonic_ns() - begun
        cost = self._reader.read(extents, decoded, skip=skip)
        return cost._replace(read=cost.read + slept)


def slow_run(turn: Turn) -> Any:
    """Create a `TrajectoryRun` whose source is slow for one worker."""
    from paceline.engine.run_plan import TrajectoryRun

    class SlowRun(TrajectoryRun):
        def prepare(self, *arguments: Any, **options: Any) -> None:
            super().prepare(*arguments, **options)
            self.job = replace(self.job, source=SlowSource(self.job.source, turn))

    return SlowRun


def trial(atoms: Any, backend: str, slow: str, n_frames: int, turn: Turn) -> dict[str, Any]:
    """Run once; return the content of its report."""
    import paceline
    from paceline import runner
    from paceline.report import advice_of, report_of

    if slow == "reading":
        runner.TrajectoryRun = slow_run(turn)  # type: ignore[misc]
    series = paceline.TimeSeries(Sleeper(turn if slow == "computing" else None), atoms)
    workers = {} if backend == "mpi" else {"n_workers": N_WORKERS}
    frames = np.arange(n_frames) % atoms.universe.trajectory.n_frames
    series.run(frames=frames, backend=backend, block_frames=16, progress=False, **workers)
    # CPU time is used, because other programs do not increase it.
    begun = time.thread_time()
    report = report_of(series.timings)
    advice_of(report)
    took = time.thread_time() - begun
    return {
        "named": [asdict(straggler) for straggler in report.stragglers],
        "slow": turn.slow(),
        "seconds": report.t_total,
        "report": took,
    }


def main(
    topology: str,
    trajectory: str,
    backend: str,
    slow: str,
    n_frames: str,
    repeats: str,
    folder: str,
) -> None:
    import paceline

    atoms = paceline.Universe(topology, trajectory).select_atoms("name CA")
    for k in range(int(repeats)):
        turns = Path(folder, str(k))
        turns.mkdir()
        print(json.dumps(trial(atoms, backend, slow, int(n_frames), Turn(turns))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
