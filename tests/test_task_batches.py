"""Tests of batches of blocks: aligned, long enough, and the same numbers as block by block."""

import threading
import time
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.waiting import PATIENCE

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends import Backend, threads
from paceline.backends.processes import HangCheck, Processes, run_batches
from paceline.backends.threads import Threads
from paceline.engine import scheduler
from paceline.engine.scheduler import BATCH_SECONDS, Scheduler, TaskBatcher
from paceline.engine.worker import Worker, run_batch
from paceline.timing import DuplicateAttempt

FRAMES = 16


@dataclass(frozen=True)
class SimpleJob:
    source: SimpleNamespace
    row_bytes: int
    sharers: int = 1
    estimates: tuple = ()


def job(n_wanted=100, row_bytes=0):
    return SimpleJob(SimpleNamespace(n_wanted=n_wanted, fields=("positions",)), row_bytes)


def task(number, job=0):
    frames = np.arange(FRAMES) + FRAMES * number
    return SimpleTask(job, number, frames)


class SimpleTask(SimpleNamespace):
    """Those attributes of a `Task` that splitting needs; `replace` can copy the object."""

    level = 0

    def __init__(self, job, number, frames, ahead="ahead"):
        super().__init__(job=job, number=number, frames=frames, ahead=ahead)

    @property
    def n_frames(self):
        return len(self.frames)

    @property
    def extents(self):
        return f"extents of {self.number}"


@dataclass(frozen=True)
class Timing:
    """Those attributes of a `BlockTiming` that late results need."""

    comm: int


class SimpleBlock(SimpleNamespace):
    """Those attributes of a `Task` that scheduling needs."""

    job, level, n_frames, threads, what = 0, 0, 1, 1, "a block"

    def __init__(self, number):
        super().__init__(number=number)


@pytest.fixture(autouse=True)
def any_task(monkeypatch):
    def copy(task, **changes):
        if not isinstance(task, SimpleTask):
            return replace(task, **changes)
        return SimpleTask(**{**vars(task), **changes})

    monkeypatch.setattr(scheduler, "replace", copy)


def result_of(batch, seconds_per_block):
    timing = SimpleNamespace(start=0, end=int(seconds_per_block * 1e9))
    return SimpleNamespace(
        job=batch.job, n_frames=batch.n_frames, timings=[timing] * len(batch.tasks)
    )


def cut(jobs, tasks, seconds_per_block):
    """Return all batches, each completed before the next is assigned."""
    batches, found = TaskBatcher(jobs, tasks, 2), []
    for batch in batches:
        found.append(batch)
        batches.record(result_of(batch, seconds_per_block))
    return found


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 17, 64, 999])
@pytest.mark.parametrize("seconds", [1e-4, 0.02, 0.15, 0.2, 3.0])
def test_runs_are_whole_subtrees_that_cover_all(n_blocks, seconds):
    found = cut([job()], map(task, range(n_blocks)), seconds)
    assert [one.number for batch in found for one in batch.tasks] == list(range(n_blocks))
    for batch in found:
        assert len(batch.tasks) == 2**batch.level
        assert batch.tasks[0].number == batch.number << batch.level
        # The batch is the smallest one that takes long enough.
        assert len(batch.tasks) == 1 or len(batch.tasks) / 2 * seconds < BATCH_SECONDS


def test_runs_are_short_until_the_pace_is_known_and_long_enough_after():
    batches = TaskBatcher([job()], map(task, range(4096)), 2)
    first = [next(batches) for _ in range(8)]
    assert [batch.level for batch in first] == [0] * 8
    batches.record(result_of(first[0], 0.001))
    rest = list(batches)
    # Batches grow up to the first number divisible by 256, with the largest possible alignment.
    assert [batch.level for batch in rest[:6]] == [3, 4, 5, 6, 7, 8]
    assert {batch.level for batch in rest[5:-3]} == {8}


@pytest.mark.parametrize("n_workers", [1, 2, 16])
@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.045])
def test_runs_get_shorter_where_not_every_worker_gets_one_more(n_workers, seconds):
    n_blocks = 64 * n_workers + 3
    batches = TaskBatcher([job()], map(task, range(n_blocks)), n_workers)
    batches.record(result_of(next(batches), seconds))
    left = n_blocks - 1
    for batch in batches:
        longest = max(left / n_workers, 2 * scheduler.LAST * BATCH_SECONDS / seconds)
        assert len(batch.tasks) <= longest
        left -= len(batch.tasks)
    assert left == 0


def test_runs_are_short_where_rows_are_large():
    row_bytes = scheduler.BATCH_BYTES // (4 * FRAMES)
    found = cut([job(row_bytes=row_bytes)], map(task, range(256)), 0.0001)
    assert max(len(batch.tasks) for batch in found) == 4


def test_blocks_that_were_done_before_are_no_part_of_a_run():
    left = [k for k in range(64) if k not in (5, 21, 62, 63)]
    found = cut([job()], map(task, left), 0.02)
    assert [one.number for batch in found for one in batch.tasks] == left
    assert all(len(batch.tasks) == 2**batch.level for batch in found)
    assert all(batch.tasks[-1].number - batch.tasks[0].number < 2**batch.level for batch in found)


def test_each_job_has_its_own_pace_and_no_run_has_two():
    tasks = [task(k, job) for job in (0, 1) for k in range(100)]
    batches, found = TaskBatcher([job(), job()], tasks, 2), []
    for batch in batches:
        found.append(batch)
        batches.record(result_of(batch, 0.3 if batch.job else 0.01))
    assert all(len({one.job for one in batch.tasks}) == 1 for batch in found)
    assert max(batch.level for batch in found if batch.job == 0) == 5
    assert {batch.level for batch in found if batch.job == 1} == {0}


def test_runs_of_many_atoms_stay_small():
    found = cut([job(10**5)], map(task, range(200)), 1e-3)
    assert 1 < max(len(batch.tasks) for batch in found) <= scheduler.BATCH_BYTES / (12e5 * FRAMES)


def test_the_last_block_of_a_run_asks_for_the_run_that_its_worker_is_likely_to_get():
    found = cut([job()], map(task, range(12)), 0.1)
    assert [[one.number for one in batch.tasks] for batch in found[:4]] == [
        [0],
        [1],
        [2, 3],
        [4, 5],
    ]
    assert [[one.ahead for one in batch.tasks] for batch in found] == [
        ["ahead"],
        ["ahead"],
        [None, "extents of 6"],
        [None, "extents of 8"],
        [None, "extents of 10"],
        [None, None],
        ["ahead"],
        ["ahead"],
    ]


def test_a_scheduler_assigns_batches_as_it_assigns_blocks():
    scheduler = Scheduler(cut([job()], map(task, range(10)), 0.1))
    assigned = []
    while (batch := scheduler.assign()) is not None:
        assigned.append(batch)
    subtrees = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (0, 8), (0, 9)]
    assert [(batch.level, batch.number) for batch in assigned] == subtrees
    scheduler.return_lost(assigned[2])
    assert scheduler.assign() is assigned[2]
    # Block number 1 is not run number 1.
    assert scheduler.complete(SimpleNamespace(job=0, level=0, number=1))
    assert scheduler.complete(SimpleNamespace(job=0, level=1, number=1))
    assert not scheduler.complete(SimpleNamespace(job=0, level=1, number=1))


@dataclass(frozen=True)
class Done:
    """Result of one block, as the scheduler receives it."""

    number: int
    job: int = 0
    level: int = 0
    timings: tuple = ()


def test_blocks_that_a_broken_executor_did_not_take_are_assigned_again():
    class Breaking:
        def __init__(self, n):
            self.n_taken, self.n = 0, n

        def submit(self, function, pickled, task, *noted):
            if self.n_taken == self.n:
                raise BrokenExecutor
            self.n_taken += 1
            future = Future()
            future.set_result(Done(number=task.number))
            return future

    scheduler = Scheduler(map(SimpleBlock, range(6)))
    pickled = [SimpleNamespace(key_alone=lambda: None)]
    timed, found = SimpleNamespace(record=lambda result: None), []

    def run(pool):
        half = HangCheck(pool)
        found.extend(run_batches(pool, 1, pickled, timed, scheduler, half))

    with pytest.raises(BrokenExecutor):
        run(Breaking(3))
    assert scheduler.running == []
    run(Breaking(6))
    assert sorted(result.number for result in found) == list(range(6))


def test_loky_is_given_no_cancelled_futures_to_end(monkeypatch):
    """loky's thread sets an exception in each remaining future. It fails itself if the future was
    cancelled."""

    futures, key = [], SimpleNamespace(key_alone=lambda: None)

    class Ending:
        def submit(self, *given):
            futures.append(Future())
            if len(futures) == 1:
                futures[0].set_exception(ValueError("asked for"))
            return futures[-1]

        def shutdown(self, *, wait, kill_workers):
            for future in futures[1:]:
                future.set_exception(RuntimeError("killed"))

    monkeypatch.setattr("loky.get_reusable_executor", lambda *given, **named: Ending())
    monkeypatch.setattr("paceline.backends.processes.pickle_jobs", lambda *given: [key])
    with pytest.raises(ValueError, match="asked for"):
        list(Processes(2).run([job()], map(task, range(10))))
    assert len(futures) == 4


def test_threads_are_only_so_far_ahead_of_who_collects(monkeypatch, nothing_overdue):
    done = []

    class Quick:
        def __init__(self, job_of, name=None):
            self.name = str(id(self))

        def run(self, task):
            done.append(task.number)
            return SimpleNamespace(job=0, level=0, number=task.number)

    monkeypatch.setattr("paceline.backends.threads.Worker", Quick)
    ahead = []
    for k, _ in enumerate(Threads(2).run([None], map(SimpleBlock, range(50)))):
        time.sleep(0.002)
        ahead.append(len(done) - k)
    assert max(ahead) <= 5
    assert sorted(done) == list(range(50))


def test_threads_record_what_came_while_the_last_result_was_collected(monkeypatch):
    first, released, ended = threading.Lock(), threading.Event(), threading.Event()
    late, assign = [], threads._SharedScheduler.assign

    class Hanging:
        def __init__(self, job_of, name=None):
            self.name = str(id(self))

        def run(self, task):
            if task.number == 1 and first.acquire(blocking=False):
                late.append(self.name)
                released.wait(PATIENCE)
            return SimpleNamespace(job=0, level=0, number=task.number, timings=[Timing(comm=5)])

    def assigned(scheduler, worker):
        if released.is_set() and worker in late:  # the result of this worker has arrived
            ended.set()
        return assign(scheduler, worker)

    monkeypatch.setattr(threads, "Worker", Hanging)
    monkeypatch.setattr(threads._SharedScheduler, "assign", assigned)
    monkeypatch.setattr("paceline.engine.scheduler.SHORTEST", 0.05)
    found = []
    for result in Threads(2).run([None], map(SimpleBlock, range(2))):
        found.append(result)
        if len(found) == 2:
            released.set()
            assert ended.wait(PATIENCE)
    assert found[2:] == [DuplicateAttempt(Timing(comm=0), came=True)]


class InBatches(Backend):
    """Backend that runs batches in this thread."""

    name = "batches"
    n_workers = 3

    def run(self, jobs, tasks):
        worker, batches = Worker(jobs.__getitem__), TaskBatcher(jobs, tasks, self.n_workers)
        for batch in batches:
            result = run_batch(worker, jobs[batch.job], batch)
            batches.record(result)
            self.deepest = max(getattr(self, "deepest", 0), result.level)
            yield result


def test_runs_give_the_same_bits(damaged):
    universe = paceline.Universe(*damaged[0])
    ca = universe.select_atoms("name CA")

    def results(backend):
        rmsd, rmsf = RMSD(ca), RMSF(ca)
        series = paceline.TimeSeries(lambda block: block.positions[:, ::7], ca)
        paceline.run([rmsd, rmsf, series], backend=backend, block_frames=16, on_error="skip")
        return rmsd.results.rmsd, rmsf.results.rmsf, series.results.timeseries, rmsd.damaged

    in_batches = InBatches()
    for ours, wanted in zip(results(in_batches), results("serial"), strict=True):
        assert np.array_equal(ours, wanted, equal_nan=np.asarray(ours).dtype.kind == "f")
    assert in_batches.deepest >= 1
