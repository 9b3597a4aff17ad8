"""What a rank keeps of its blocks until all are done."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.job import AnyJob, Job
from paceline.merging import Tree
from paceline.outcome import Outcome, merging, refuse_unlike


class Keeper:
    """Rows and merged partial results of one rank.

    An outcome is held back until it is known that no other rank did the block sooner.

    Parameters
    ----------
    jobs : sequence of Job or Calls
        Of the run.
    n_blocks : sequence of int
        Of each job.
    clock_offset : int
        What is added to this host's clock to have that of the first rank's, ns.
    """

    def __init__(self, jobs: Sequence[AnyJob], n_blocks: Sequence[int], clock_offset: int = 0):
        self._jobs = jobs
        self._clock_offset = clock_offset
        self._held: deque[Outcome] = deque()
        self.jobs = {
            number: KeptOfJob(job, n)
            for number, (job, n) in enumerate(zip(jobs, n_blocks, strict=True))
            if isinstance(job, Job) and not job.streamed
        }

    def report(self, outcome: Outcome) -> Outcome:
        """What travels of an outcome; the rest is held.

        Parameters
        ----------
        outcome : Outcome
            Of a block that was done here.

        Returns
        -------
        Outcome
            With values where the job's are wanted at once.
        """
        self._held.append(outcome)
        timings = [
            replace(
                timing,
                start=timing.start + self._clock_offset,
                end=timing.end + self._clock_offset,
            )
            for timing in outcome.timings
        ]
        if self._jobs[outcome.job].streamed:
            return replace(outcome, timings=timings)
        return replace(outcome, values=None, times=None, timings=timings)

    def settle(self, accepted: Sequence[bool]) -> None:
        """Keep outcomes, or let go of them.

        Parameters
        ----------
        accepted : sequence of bool
            Of each outcome, in the order of `report`, whether it counts.

        Raises
        ------
        AnalysisError
            Rows of blocks are not alike.
        """
        for counts in accepted:
            outcome = self._held.popleft()
            if counts and outcome.job in self.jobs:
                self.jobs[outcome.job].add(outcome)


class KeptOfJob:
    """What a rank keeps of one job.

    Parameters
    ----------
    job : Job
        Which.
    n_blocks : int
        All, those of other ranks too.

    Attributes
    ----------
    parts : sequence of Part
        The job's.
    trees : dict of int to Tree
        Partial results, by the number of their part.
    """

    def __init__(self, job: Job, n_blocks: int):
        self.parts = job.parts
        self._places: list[tuple[int, int]] = []
        self._times: list[np.ndarray] = []
        self._rows: dict[int, list[np.ndarray]] = {
            k: [] for k, part in enumerate(job.parts) if not part.reduces
        }
        self.trees = {
            k: Tree(n_blocks, merging(part)) for k, part in enumerate(job.parts) if part.reduces
        }

    def add(self, outcome: Outcome) -> None:
        """Keep a block."""
        assert outcome.values is not None
        assert outcome.times is not None
        for k, rows in self._rows.items():
            if rows:
                refuse_unlike(self.parts[k].name, outcome.values[k], rows[0])
            rows.append(outcome.values[k])
        for k, tree in self.trees.items():
            tree.add(outcome.number, outcome.values[k], outcome.level)
        self._places.append((outcome.first, outcome.n_frames))
        self._times.append(outcome.times)

    def places(self) -> np.ndarray:
        """Where rows belong, in the order of their places.

        Returns
        -------
        numpy.ndarray of int64, shape (n_runs, 2)
            Of each run of neighbours its first row, and how many there are.
        """
        runs: list[list[int]] = []
        for first, n_rows in sorted(self._places):
            if runs and sum(runs[-1]) == first:
                runs[-1][1] += n_rows
            else:
                runs.append([first, n_rows])
        return np.array(runs, dtype=np.int64).reshape(-1, 2)

    def columns(self) -> dict[int | None, np.ndarray | None]:
        """Arrays with one row a frame, in the order of `places`.

        Returns
        -------
        dict
            Times under None, rows of each analysis under its number; None where nothing was done.
        """
        order = sorted(range(len(self._places)), key=self._places.__getitem__)
        columns: list[tuple[int | None, list[np.ndarray]]] = [(None, self._times)]
        columns.extend(self._rows.items())
        return {
            k: np.concatenate([blocks[i] for i in order]) if order else None
            for k, blocks in columns
        }
