"""One worker, in the calling thread."""

from collections.abc import Iterable, Iterator

from paceline.worker import Job, Outcome, Work, Worker


class SerialBackend:
    """Blocks one after another, here."""

    name = "serial"
    n_workers = 1

    def run(self, job: Job, works: Iterable[Work]) -> Iterator[Outcome]:
        """Do every block in order."""
        worker = Worker(job)
        yield from map(worker.run, works)
