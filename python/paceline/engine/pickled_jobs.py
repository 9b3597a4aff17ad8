"""Send jobs to workers of other processes, which log the attempts that they start."""

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
from paceline.engine.tasks import AnyJob, BlockResult, TaskBatch
from paceline.engine.worker import Worker, run_batch, thread_name, unpickle
from paceline.errors import WorkerError


@dataclass(frozen=True)
class PickledJob:
    """Job that is pickled once, and unpickled once per worker."""

    #: Identifies the job on a worker.
    key: str
    #: Pickle of the job; empty where only the key is sent.
    data: bytes = b""

    @classmethod
    def of(cls, job: AnyJob) -> Self:
        """Pickle a job."""
        return cls(uuid.uuid4().hex, cloudpickle.dumps(job))

    def key_alone(self) -> "PickledJob":
        """Leave out the data, for a worker that may have the job already."""
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
            "backend='threads' sends nothing"
        ) from error


class AttemptLog:
    """Log of each worker's last attempt, which identifies the workers of attempts that never end.

    Workers on other hosts cannot find the folder of the log, and write nothing.
    """

    def __init__(self) -> None:
        self._scratch: ScratchFolder | None = None
        with contextlib.suppress(OSError):
            self._scratch = ScratchFolder("attempts")
        self.folder = self._scratch.path if self._scratch else ""

    def read(self) -> dict[int, tuple[str, int]]:
        """Return the worker of each logged attempt, and the time at which the attempt began, ns."""
        found = {}
        # glob yields nothing if another process has removed the folder.
        for path in Path(self.folder).glob("*") if self.folder else ():
            # The note may be truncated because a disk was full.
            with contextlib.suppress(OSError, ValueError):
                attempt, begun = map(int, path.read_text(encoding="utf-8").split())
                found[attempt] = path.name.replace("~", ":"), begun
        return found

    def close(self) -> None:
        """Remove the folder."""
        if self._scratch:
            self._scratch.remove()


def note_attempt(folder: str, attempt: int) -> None:
    """Log the attempt that the calling thread starts, in the folder of an `AttemptLog`."""
    # All notes have one length: truncating the file before each note takes ten times as long.
    note = f"{attempt:20d} {time.monotonic_ns():20d}".encode()
    name = thread_name().replace(":", "~")  # a file name on Windows cannot contain a colon
    with contextlib.suppress(OSError):
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | PLAIN, 0o600)
        try:
            os.write(file, note)
        finally:
            os.close(file)


class _OfThread(threading.local):
    """Worker of the calling thread, its job, and the job's key."""

    opened: tuple[object, Worker, AnyJob] | None = None


_of_thread = _OfThread()


def run_pickled(
    pickled: PickledJob, batch: TaskBatch, notes: str, attempt: int
) -> BlockResult | None:
    """Run a batch in this thread; None if this process does not have the job.

    The attempt is logged in the folder `notes` of an `AttemptLog`, if there is one.
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
