"""Under paceline.mpi: a script continues after errors, and after threads that hang."""

import contextlib
import errno
import gc
import os
import socket
import sys
import threading
import time

import numpy as np

import paceline
from paceline.backends import MPI
from paceline.backends.mpi import gather
from paceline.engine import result_arrays
from paceline.errors import AnalysisError, DamagedFileError, WorkerError

atoms = paceline.Universe(*sys.argv[1:3]).select_atoms("name CA")
damaged = paceline.Universe(sys.argv[1], sys.argv[3]).select_atoms("name CA")
first, mark = os.getpid(), sys.argv[4]


def raised(function, atoms=atoms, kind=paceline.TimeSeries, **options):
    try:
        kind(function, atoms).run(block_frames=16, **options)
    except Exception as error:
        return error
    return None


class Odd(Exception):
    """Exception that cannot be unpickled on the receiving rank."""

    def __init__(self, one, two):
        super().__init__(one + two)


def odd(block):
    raise Odd("very ", "odd")


def hangs_once(block):
    """Hang on any rank but the first."""
    if os.getpid() != first:
        with contextlib.suppress(FileExistsError):
            open(mark, "x").close()
            time.sleep(1000)
    while not os.path.exists(mark):  # the first rank must not do all the work before others arrive
        time.sleep(0.01)
    return block.times


error = raised(odd)
assert isinstance(error, AnalysisError), error
assert "Odd: very odd" in str(error)
error = raised(lambda block: block.times if block.frames[0] < 48 else block.positions[:, 0])
assert isinstance(error, AnalysisError), error
assert "as from the other blocks" in str(error)
for at in (16, 48, 96):  # records that arrive too early are compared later

    def records(block, at=at):
        kind = np.float32 if block.frames[0] < at else np.float64
        return np.ones(len(block), int), block.times.astype(kind)

    error = raised(records, kind=paceline.RaggedTimeSeries)
    assert isinstance(error, AnalysisError), error
    assert "as from the other blocks" in str(error)


def unnamed_files():
    """Return the number of anonymous files of this rank."""
    folder = "/proc/self/fd"
    names = [f"{folder}/{name}" for name in os.listdir(folder)] if os.path.exists(folder) else []
    return sum("(deleted)" in os.readlink(name) for name in names if os.path.islink(name))


def many(block):
    """Return more records of a block than the memory limit allows."""
    counts = np.full(len(block), 20_000)
    return counts, np.zeros(counts.sum())


def full(*arguments):
    raise OSError(errno.ENOSPC, "no space left")


before, reserve = unnamed_files(), result_arrays.reserve
result_arrays.reserve = full
gc.disable()
error = raised(many, kind=paceline.RaggedTimeSeries, max_memory=0)
result_arrays.reserve = reserve
assert isinstance(error, OSError), error
assert "results need" in str(error)
error = None
assert unnamed_files() == before
gc.enable()
error = raised(lambda block: block.times[1:])
assert isinstance(error, AnalysisError), error
assert "expected one row for each" in str(error)
lock = threading.Lock()
error = raised(lambda block: block.times if lock else None)
assert isinstance(error, WorkerError), error
assert "cannot be sent" in str(error)
error = raised(lambda block: block.times, damaged)
assert isinstance(error, DamagedFileError), error
assert error.path == sys.argv[3]


class Bad(paceline.AnalysisBase):
    def prepare(self):
        return self.Half()

    class Half:
        def compute(self, block):
            return len(block)

        def merge(self, left, right):
            raise ArithmeticError("no sum")


try:
    Bad(atoms).run(block_frames=16)
except AnalysisError as reason:
    error = reason
assert "when blocks were merged: ArithmeticError: no sum" in str(error)


class Unopened:
    """Object that other ranks cannot unpickle; they fail when all blocks are done."""

    def __init__(self):
        self.first = first

    def __setstate__(self, state):
        if os.getpid() != state["first"]:
            time.sleep(0.3)
            raise ImportError("no such module here")
        self.__dict__.update(state)

    def __call__(self, block):
        return block.times


error = raised(Unopened())
assert isinstance(error, WorkerError), error
assert "cannot open an analysis: ImportError: no such module here" in str(error)


class Unsent(Bad):
    class Half(Bad.Half):
        def compute(self, block):
            return threading.Lock()

        def merge(self, left, right):
            return left


try:
    Unsent(atoms).run(block_frames=16, backend=MPI(schedule="static"))
except WorkerError as reason:
    error = reason
assert "partial results cannot be sent" in str(error), error


def full(shape, dtype):
    raise OSError(28, "No space left on device")


allocate, gather.allocate = gather.allocate, full
error = raised(lambda block: block.times)
assert isinstance(error, OSError), error
gather.allocate = allocate

for schedule in ("dynamic", "static"):
    assert raised(lambda block: block.times / 0 * "", backend=MPI(schedule=schedule)) is not None
for threads in (1, 2):
    analysis = paceline.TimeSeries(hangs_once, atoms).run(
        backend=MPI(n_workers=threads), block_frames=16
    )
    assert np.array_equal(analysis.results.timeseries, analysis.times)
    assert os.path.exists(mark)
    os.unlink(mark)
    hung = [attempt.timing for attempt in analysis.timings.abandoned if not attempt.came]
    # On a busy machine, other workers may also seem to hang.
    assert any(f":{first}:" not in timing.worker for timing in hung), hung
    assert all(timing.worker.startswith(f"{socket.gethostname()}:") for timing in hung), hung
print("went on")
