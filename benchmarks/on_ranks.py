"""Programs that `bench_clusters` and `bench_scheduling` run on MPI ranks; each prints JSON."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np


def launched_rank() -> int:
    """Return this process's rank, without using MPI."""
    from paceline._util.launcher import launched

    return launched()[1]


class Work:
    """Function that sleeps for a time per frame, and longer on a slow rank.

    Parameters
    ----------
    seconds : float
        Time per frame.
    slow : float
        Slowdown factor of the last rank.
    n_ranks : int
        Number of ranks.
    busy : bool
        Compute in Python instead of sleeping.
    """

    def __init__(self, seconds: float, slow: float, n_ranks: int, busy: bool) -> None:
        self.seconds, self.slow, self.last, self.busy = seconds, slow, n_ranks - 1, busy

    def __call__(self, block: Any) -> np.ndarray:
        factor = self.slow if launched_rank() == self.last else 1.0
        seconds = len(block) * self.seconds * factor
        if self.busy:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
        else:
            time.sleep(seconds)
        return block.times


def sample_universe() -> Any:
    """Create a system of 98 frames in memory, which take no time to read."""
    from MDAnalysisTests.datafiles import DCD, PSF

    import paceline

    return paceline.Universe(PSF, DCD)


def frames(n: int) -> np.ndarray:
    """Return `n` frame numbers."""
    return np.arange(n) % 98


def work(n_frames: str, seconds: str, slow: str, n_ranks: str, busy: str, backend: str) -> Any:
    """Time a run that only sleeps; also return the number of frames of the last rank."""
    import paceline
    from paceline.backends import MPI

    function = Work(float(seconds), float(slow), int(n_ranks), busy == "busy")
    where = pool() if backend == "pool" else MPI(schedule=backend)
    atoms = sample_universe().select_atoms("name CA")
    series = paceline.TimeSeries(function, atoms)
    begun = time.perf_counter()
    series.run(frames=frames(int(n_frames)), backend=where, block_frames=16, progress=False)
    return {"seconds": time.perf_counter() - begun}


def pool() -> Any:
    """Return mpi4py's executor: the first rank manages it, and all others work."""
    from mpi4py.futures import MPIPoolExecutor

    executor = MPIPoolExecutor()
    executor.bootup()
    return executor


def counter(n_frames: str, seconds: str, slow: str, n_ranks: str, busy: str) -> Any:
    """Run blocks whose numbers each rank takes from a counter in the first rank's memory."""
    from mpi4py import MPI

    import paceline
    from paceline.engine.passes import first_pass
    from paceline.engine.run_plan import Facilities, TrajectoryRun
    from paceline.engine.worker import Worker
    from paceline.runner import trajectory_of
    from paceline.timing import Timings

    world = MPI.COMM_WORLD
    jobs = works = None
    begun = time.perf_counter()
    if world.rank == 0:
        function = Work(float(seconds), float(slow), int(n_ranks), busy == "busy")
        series = paceline.TimeSeries(function, sample_universe().select_atoms("name CA"))
        begun = time.perf_counter()
        run = TrajectoryRun([series], (), trajectory_of([series.atomgroup], ()))
        wanted = frames(int(n_frames))
        run.prepare(wanted, Facilities(world.size), block_frames=16)
        one = first_pass(run)
        one.start_collecting(0, Timings(), ExitStack())
        jobs, works = [one.job], list(one.tasks(0, world.size))
    jobs, works = world.bcast((jobs, works))
    worker = Worker(jobs.__getitem__)
    outcomes = [worker.run(works[number]) for number in counted(world, len(works))]
    gathered = world.gather([(outcome.first, outcome.values[0]) for outcome in outcomes])
    if gathered is not None:
        rows = np.empty(int(n_frames))
        for first, values in (pair for pairs in gathered for pair in pairs):
            rows[first : first + len(values)] = values
    return {"seconds": time.perf_counter() - begun}


def counted(world: Any, n: int) -> Iterator[int]:
    """Yield numbers up to n, each number on one rank only."""
    from mpi4py import MPI

    window = MPI.Win.Allocate(8 if world.rank == 0 else 0, 8, comm=world)
    if world.rank == 0:
        np.frombuffer(window.tomemory(), np.int64)[0] = 0
    world.Barrier()
    one, taken = np.ones(1, np.int64), np.empty(1, np.int64)
    window.Lock_all()
    while True:
        window.Fetch_and_op(one, taken, 0)
        window.Flush(0)
        if taken[0] >= n:
            break
        yield int(taken[0])
    window.Unlock_all()
    window.Free()


def rate(topology: str, trajectory: str, n_frames: str, backend: str, n_workers: str) -> Any:
    """Time a run of RMSDs, s."""
    import paceline
    from paceline.analysis.rms import RMSD

    universe = paceline.Universe(topology, trajectory)
    numbers = np.arange(int(n_frames)) % universe.trajectory.n_frames
    rmsd = RMSD(universe.select_atoms("name CA"))
    if backend == "dask":  # the cluster is kept for the next run
        rmsd.run(stop=1, backend=backend, n_workers=int(n_workers), progress=False)
    begun = time.perf_counter()
    rmsd.run(frames=numbers, backend=backend, n_workers=int(n_workers), progress=False)
    return {"seconds": time.perf_counter() - begun, "sum": float(rmsd.results.rmsd[:, 2].sum())}


def first_block(topology: str, trajectory: str) -> Any:
    """Return the time of the first computed block, seconds since 1970."""
    import paceline

    atoms = paceline.Universe(topology, trajectory).select_atoms("name CA")
    moments = paceline.TimeSeries(lambda block: np.full(len(block), time.time()), atoms)
    moments.run(stop=1000, progress=False)
    return {"moment": float(moments.results.timeseries.min())}


def started() -> Any:
    """Return the time when all ranks had started."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    return {"moment": time.time()}


def collect(how: str, n_rows: str, n_blocks: str) -> Any:
    """Time collecting rows, s; count the messages of all ranks."""
    from mpi4py import MPI

    from paceline.backends.mpi.comm import Comm, wait_idle
    from paceline.backends.mpi.gather import LocalResults, gather
    from paceline.contract.analysis_kinds import Kind, WorkerDeclaration
    from paceline.contract.plan import LeafBoundaries
    from paceline.engine.tasks_and_results import BlockResult, Job, WorkerAnalysis

    world = MPI.COMM_WORLD
    part = WorkerAnalysis("rows", None, WorkerDeclaration(Kind.ROWS), None)
    job = Job(None, (), [part], LeafBoundaries(16), False)
    results = LocalResults([job], [int(n_blocks)])
    bounds = np.linspace(0, int(n_rows), int(n_blocks) + 1).astype(int)
    for number in blocks_of(world.rank, world.size, int(n_blocks)):
        first, n = bounds[number], bounds[number + 1] - bounds[number]
        rows = np.repeat(np.arange(first, first + n, dtype=float)[:, None], 3, axis=1)
        results.hold(BlockResult(0, 0, number, first, n, [rows], rows[:, 0].copy(), [], []))
        results.settle([True])
    comm = Comm(counting_comm(world))
    world.Barrier()
    begun = time.perf_counter()
    found = gather(comm, results, how)
    seconds = time.perf_counter() - begun
    wait_idle(world.Ibarrier())  # like ranks that wait for a run
    messages = world.reduce(comm.intracomm.n_messages)
    if found:
        assert (found[0].values[0][:, 2] == np.arange(int(n_rows))).all()
    return {"seconds": seconds, "messages": messages}


def spread(how: str, n_rows: str) -> Any:
    """Time sending rows of the first rank to all, s; measure their proportional memory, MB."""
    from mpi4py import MPI

    from paceline.backends.mpi import RankCollectiveRun, gather

    if how == "copied":
        gather.SHARED = sys.maxsize
    world = MPI.COMM_WORLD
    rows = np.repeat(np.arange(int(n_rows), dtype=float)[:, None], 3, axis=1)
    own = rows if world.rank == 0 else None
    with RankCollectiveRun(world) as ranks:
        gather.broadcast(ranks.comm, gather.pack_results(1.0) if world.rank == 0 else None)
        before = proportional_share()
        world.Barrier()
        begun = time.perf_counter()
        found = ranks.broadcast(lambda: own)
        seconds = time.perf_counter() - begun
        assert found.sum() == rows.sum()
        world.Barrier()
        megabytes = proportional_share() - before
        world.Barrier()
    return {"seconds": world.reduce(seconds, MPI.MAX), "megabytes": world.reduce(megabytes)}


def proportional_share() -> float:
    """Return the proportional set size (PSS) of this process, MB."""
    words = Path("/proc/self/smaps_rollup").read_text().split()
    return int(words[words.index("Pss:") + 1]) * 1024 / 1e6


def blocks_of(rank: int, n_ranks: int, n_blocks: int) -> np.ndarray:
    """Return the results of a rank: its share, with a tenth of all blocks on random ranks."""
    random = np.random.default_rng(2017)
    owners = np.arange(n_blocks) * n_ranks // n_blocks
    moved = random.random(n_blocks) < 0.1
    owners[moved] = random.integers(n_ranks, size=moved.sum())
    return np.flatnonzero(owners == rank)


def counting_comm(comm: Any) -> Any:
    """Return a communicator that counts messages and puts of all ranks except the first."""
    from mpi4py import MPI

    import paceline.backends.mpi.gather

    class Counting(MPI.Intracomm):
        n_messages = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **options: Any) -> Any:
            Counting.n_messages += 1
            return function(*arguments, **options)

        return count

    for name in ("Igather", "Ibcast", "Igatherv", "Isend"):
        setattr(Counting, name, counted(getattr(MPI.Intracomm, name)))
    paceline.backends.mpi.gather._put_rows = counted(paceline.backends.mpi.gather._put_rows)
    return Counting(comm)


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (work, counter, rate, first_block, started, collect, spread)
}


def main(name: str, arguments: Sequence[str]) -> None:
    found = PROGRAMS[name](*arguments)
    if launched_rank() == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
