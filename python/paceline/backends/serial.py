"""One worker, in the calling thread."""

from collections.abc import Generator, Iterable, Sequence

from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult
from paceline.schedule.worker import Worker


class Serial(ForMDAnalysis):
    """Blocks one after another, here."""

    name = "serial"
    n_workers = 1

    def run(
        self, jobs: Sequence[AnyJob], works: Iterable[AnyWork]
    ) -> Generator[BlockResult, None, None]:
        """Do every block in order."""
        worker = Worker(jobs.__getitem__)
        yield from map(worker.run, works)
