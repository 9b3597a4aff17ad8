"""Backend with one worker, in the calling thread."""

from collections.abc import Generator, Iterable, Sequence

from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult
from paceline.engine.worker import Worker


class Serial(ForMDAnalysis):
    """Compute blocks one after another, in the calling thread.

    Parameters
    ----------
    threads_in_frame : int
        Maximum number of threads that compute parts of a frame.
    """

    name = "serial"
    keeps_frames = True
    pipelines = True
    n_workers = 1

    def __init__(self, threads_in_frame: int = 1):
        self.threads_in_frame = threads_in_frame

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult, None, None]:
        """Run every task in order."""
        worker = Worker(jobs.__getitem__)
        yield from map(worker.run, tasks)
