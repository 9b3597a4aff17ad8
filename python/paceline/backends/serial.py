"""One worker, in the calling thread."""

from collections.abc import Generator, Iterable, Sequence

from paceline.job import Job, Work
from paceline.outcome import Outcome
from paceline.worker import Worker


class SerialBackend:
    """Blocks one after another, here."""

    name = "serial"
    n_workers = 1

    def run(self, jobs: Sequence[Job], works: Iterable[Work]) -> Generator[Outcome, None, None]:
        """Do every block in order."""
        worker = Worker(jobs.__getitem__)
        yield from map(worker.run, works)
