"""Send pickled jobs to worker processes, and log the attempts that workers start."""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import cloudpickle

from paceline._util.leftovers import ScratchFolder
from paceline._util.os_calls import PLAIN
from paceline.engine.tasks_and_results import AnyJob, BlockResult, TaskBatch
from paceline.engine.worker import Worker, run_batch, thread_name, unpickle
from paceline.errors import WorkerError


@dataclass(frozen=True)
class PickledJob:
    """Job that is pickled once, and unpickled once per worker."""

    #: Identifies the job on a worker.
    key: str
    #: Pickle of the job; empty if the worker may have the job already.
    data: bytes = b""

    @classmethod
    def of(cls, job: AnyJob) -> Self:
        """Pickle a job."""
        return cls(uuid.uuid4().hex, cloudpickle.dumps(job))

    def key_alone(self) -> "PickledJob":
        """Return the job without its pickle, for a worker that may have the job already."""
        return PickledJob(self.key)

    def open(self) -> AnyJob:
        """Unpickle the job; raise `WorkerError` if that is impossible."""
        return unpickle(self.data)


def pickle_jobs(jobs: Sequence[AnyJob], backend: str) -> list[PickledJob]:
    """Pickle jobs for the workers of a backend; raise `WorkerError` if a job cannot be pickled."""
    try:
        return [PickledJob.of(job) for job in jobs]
    except Exception as error:  # pickling runs arbitrary code of the objects
        raise WorkerError(
            f"an analysis cannot be sent to the workers of {backend}: {error}; "
            "use backend='threads', which sends nothing"
        ) from error


class AttemptLog:
    """Log of the last attempt of each worker; it identifies workers whose attempts never end.

    Workers on other hosts do not find the folder of the log, and write nothing.
    """

    def __init__(self) -> None:
        self._scratch: ScratchFolder | None = None
        with contextlib.suppress(OSError):
            self._scratch = ScratchFolder("attempts")
        self.folder = self._scratch.path if self._scratch else ""

    def read(self) -> dict[int, tuple[str, int]]:
        """Map the last attempt of each worker to the worker's name and the start time, ns."""
        found = {}
        # glob yields no path if another process has removed the folder.
        for path in Path(self.folder).glob("*") if self.folder else ():
            # The file may be truncated if the disk was full.
            with contextlib.suppress(OSError, ValueError):
                attempt, begun = map(int, path.read_text(encoding="utf-8").split())
                found[attempt] = path.name.replace("~", ":"), begun
        return found

    def close(self) -> None:
        """Remove the folder."""
        if self._scratch:
            self._scratch.remove()


def note_attempt(folder: str, attempt: int) -> None:
    """Write the attempt that the calling thread starts to the folder of an `AttemptLog`."""
    # All notes have the same length, so that the file need not be truncated before each note:
    # truncating takes ten times as long.
    note = f"{attempt:20d} {time.monotonic_ns():20d}".encode()
    name = thread_name().replace(":", "~")  # Windows forbids a colon in file names
    with contextlib.suppress(OSError):
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | PLAIN, 0o600)
        try:
            os.write(file, note)
        finally:
            os.close(file)


class _OfThread(threading.local):
    """Job key, worker and job of the calling thread."""

    opened: tuple[object, Worker, AnyJob] | None = None


_of_thread = _OfThread()


def run_pickled(
    pickled: PickledJob, batch: TaskBatch, notes: str, attempt: int
) -> BlockResult | None:
    """Run a batch in this thread; return None if neither the thread nor `pickled` has the job.

    `notes` is the folder of an `AttemptLog`, to which the attempt is written; empty for no log.
    """
    if notes:
        note_attempt(notes, attempt)
    opened = _of_thread.opened
    if opened is None or opened[0] != pickled.key:
        if not pickled.data:
            return None
        job = pickled.open()
        opened = _of_thread.opened = pickled.key, Worker(lambda _: job), job
    _, worker, job = opened
    return run_batch(worker, job, batch)
