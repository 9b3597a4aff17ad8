"""A rank's part in a run: its threads, what it keeps, and what it tells the first rank."""

import time
from collections.abc import Sequence

from paceline.backends.mpi.crew import Crew
from paceline.backends.mpi.keeping import Keeper
from paceline.backends.mpi.messages import Answer, Report
from paceline.job import AnyJob
from paceline.outcome import Outcome
from paceline.timing import Abandoned

#: Outcomes are reported with the next request, but no later than this, seconds.
LATEST = 0.1


class Member:
    """Does blocks and says so.

    Parameters
    ----------
    jobs : sequence of Job or Calls
        Of the run.
    n_blocks : sequence of int
        Of each job.
    n_threads : int
        That compute.
    clock_offset : int
        What is added to this host's clock to have that of the first rank's, ns.

    Attributes
    ----------
    keeper : Keeper
        What is collected at the end.
    """

    def __init__(
        self, jobs: Sequence[AnyJob], n_blocks: Sequence[int], n_threads: int, clock_offset: int = 0
    ):
        self.keeper = Keeper(jobs, n_blocks, clock_offset)
        self._clock_offset = clock_offset
        self._crew = Crew(n_threads, jobs.__getitem__)
        self._unreported: list[Outcome] = []
        self._reported = time.monotonic()
        self._idle: list[int] = []
        self._error: Exception | None = None

    def report(self, seconds: float) -> Report | None:
        """What the first rank should know now.

        Parameters
        ----------
        seconds : float
            How long to wait for news.

        Returns
        -------
        Report or None
            None where it can wait.
        """
        try:
            self._unreported += map(self.keeper.report, self._crew.finished(seconds))
        except BaseException as error:
            return Report(error=error)
        asks, idle = self._crew.asks(), self._crew.idle()
        late = bool(self._unreported) and time.monotonic() - self._reported > LATEST
        if not asks and idle == self._idle and not late:
            return None
        report = Report(self._unreported, asks, idle)
        self._unreported, self._idle, self._reported = [], idle, time.monotonic()
        return report

    def take(self, answer: Answer) -> None:
        """Do what the first rank says.

        Raises
        ------
        AnalysisError
            Rows of blocks are not alike.
        """
        for thread, work in answer.works:
            self._crew.give(thread, [work])
        error = self.settle(answer)
        if error is not None:
            raise error

    def settle(self, answer: Answer) -> Exception | None:
        """Hear which outcomes count, and no more; what `take` raises, now or before, is returned.

        So the run fails also where the first rank learnt of it too late, when all was done.
        """
        if self._error is None:
            try:
                self.keeper.settle(answer.accepted)
            except Exception as error:
                self._error = error
        return self._error

    def stop(self) -> list[Abandoned]:
        """Begin no more blocks; return what threads are still at."""
        self._crew.stop()
        return self._crew.given_up(self._clock_offset)
