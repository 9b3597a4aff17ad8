"""Tests of Dask clusters: data sent, data kept, and failures of workers or of the client."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import dask
import distributed
import numpy as np
import psutil
import pytest
from helpers.timed_files import TWO_WAYS, read_in_two_ways
from helpers.waiting import PATIENCE, until
from MDAnalysis.transformations import translate
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends import dask as dask_backend
from paceline.backends import make_backend
from paceline.backends.dask import DaskRun, ThreadsByAddress
from paceline.backends.local_dask_cluster import LocalCluster
from paceline.engine.tasks_and_results import BlockResult, FunctionJob
from paceline.engine.worker import thread_name
from paceline.errors import (
    AnalysisError,
    DamagedFileError,
    FileChangedError,
    MissingDataError,
    UnsupportedError,
    WorkerError,
)
from paceline.report import report_of
from paceline.timing import BlockTiming, DuplicateAttempt

#: Number of random moments at which workers are killed.
KILLS = 3


@pytest.fixture
def atoms(universe):
    return universe.select_atoms("name CA")


@pytest.fixture
def mortal(dask_client):
    """The client, for tests that kill workers; new workers replace them."""

    def all_live():
        answering = dask_client.run(os.getpid, on_error="ignore").keys()
        return len(answering) == 2 and answering == dask_client.nthreads().keys()

    until(all_live)
    yield dask_client
    until(all_live)


def tasks_on(client):
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def test_a_client_is_taken_as_it_is(dask_client, atoms):
    assert make_backend(dask_client).n_workers == 2
    assert make_backend(dask_client, 5).n_workers == 5
    rmsd = RMSD(atoms).run(backend=dask_client)
    assert np.array_equal(rmsd.results.rmsd, RMSD(atoms).run().results.rmsd)
    assert rmsd.timings.backend == "dask"
    assert dask_client.status == "running"


def test_clients_that_cannot_be_used_are_refused(atoms):
    asynchronous = SimpleNamespace(asynchronous=True, status="running")
    closed = SimpleNamespace(asynchronous=False, status="closed")
    empty = SimpleNamespace(asynchronous=False, status="running", nthreads=dict)
    with pytest.raises(UnsupportedError, match="the Dask client is asynchronous"):
        dask_backend.Dask(asynchronous)
    with pytest.raises(WorkerError, match="the Dask client is closed"):
        dask_backend.Dask(closed)
    with pytest.raises(WorkerError, match=r"has no workers: .* wait .* client\.wait_for_workers"):
        dask_backend.Dask(empty)
    assert dask_backend.Dask(empty, 7).n_workers == 7


def test_missing_dask_names_the_package_to_install(universe, monkeypatch):
    monkeypatch.setattr(dask_backend, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"pip install 'paceline\[dask\]'"):
        make_backend("dask")
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'paceline\[dask\]'"):
        paceline.dask_array(universe.atoms)


def test_tasks_have_names_and_nothing_of_them_stays(dask_client, atoms):
    def slowly(block):
        time.sleep(0.01)
        return block.times

    paceline.run(
        [RMSD(atoms), paceline.TimeSeries(slowly, atoms)], backend=dask_client, block_frames=16
    )
    names = dask_client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert "paceline-rmsd-timeseries" in names
    until(lambda: tasks_on(dask_client) == 0)

    def open_files(name):
        return sum(os.path.realpath(path) == name for path in Path("/proc/self/fd").glob("*"))

    if Path("/proc/self/fd").exists():
        name = os.path.realpath(atoms.universe.trajectory.filename)
        until(lambda: sum(dask_client.run(open_files, name).values()) == 0)


@pytest.fixture
def every_copy_kept(dask_client):
    """Keep Dask from dropping, every two seconds, copies of data that no task waits for."""
    dask_client.amm.stop()
    yield
    dask_client.amm.start()


@pytest.mark.usefixtures("every_copy_kept")
def test_a_job_is_sent_once_and_opened_once_a_worker(dask_client, atoms, monkeypatch):
    class Large:
        """Object as large as a reference structure."""

        def __init__(self):
            self.ballast = bytes(10**6)

        def __setstate__(self, state):
            self.opened = time.monotonic_ns()

        def compute(self, block):
            time.sleep(0.02)
            return np.full(len(block), self.opened)

    class Analysis(paceline.TimeSeries):
        def prepare(self):
            return Large()

    def submit(function, shared, packed, **options):
        assert isinstance(shared, distributed.Future)
        sent.append(len(packed))
        return submitted(function, shared, packed, **options)

    sent, submitted = [], dask_client.submit
    monkeypatch.setattr(dask_client, "submit", submit)
    series = Analysis(len, atoms).run(backend=dask_client, block_frames=16)
    # Workers that computed a block within the time limit.
    workers = {block.worker for block in series.timings.blocks}
    assert len(set(series.results.timeseries)) == len(workers)
    assert max(sent) < 10_000


def raising(block):
    if block.frames[0] > 0:
        raise KeyError("no such residue")
    return block.times


def too_few(block):
    return block.times[1:]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising, r"raised on frames \d+ to \d+: KeyError: 'no such residue'$"),
        (too_few, r"on frames \d+ to \d+: expected one row for each of the \d+ frames, found"),
        (lambda block: block.times if block.frames[0] else block.frames, "expected"),
    ],
)
def test_an_analysis_that_fails_is_named(function, message, dask_client, atoms):
    with pytest.raises(AnalysisError, match=message) as caught:
        paceline.TimeSeries(function, atoms).run(backend=dask_client, block_frames=16)
    assert "\n" not in str(caught.value)
    until(lambda: tasks_on(dask_client) == 0)


def test_an_analysis_that_exits_ends_the_run_and_no_worker(dask_client, atoms):
    def exiting(block):
        if block.frames[0] >= 32:
            sys.exit(3)
        return block.positions[:, 0]

    before = dask_client.run(os.getpid)
    for backend in ("threads", dask_client):
        with pytest.raises(SystemExit) as stop:
            paceline.TimeSeries(exiting, atoms).run(backend=backend)
        assert stop.value.code == 3
    assert dask_client.run(os.getpid) == before


def test_errors_of_workers_are_those_of_other_backends(dask_client, damaged):
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")
    with pytest.raises(DamagedFileError) as wanted:
        RMSF(ca).run(backend="serial", start=40)
    with pytest.raises(DamagedFileError) as caught:
        RMSF(ca).run(backend=dask_client, start=40, block_frames=64)
    assert str(caught.value) == str(wanted.value)
    assert vars(caught.value) == vars(wanted.value)


def test_what_cannot_be_sent_is_refused(dask_client, atoms):
    lock = threading.Lock()

    def locked(block):
        with lock:
            return block.times

    with pytest.raises(WorkerError, match="cannot be sent to the workers of dask"):
        paceline.TimeSeries(locked, atoms).run(backend=dask_client)


def test_what_cannot_be_sent_back_is_reported(dask_client, atoms):
    class Locks:
        def compute(self, block):
            return threading.Lock()

        def merge(self, left, right):
            return left

    class Analysis(paceline.AnalysisBase):
        def prepare(self):
            return Locks()

    message = r"for frames \d+ to \d+ cannot be sent back: TypeError: cannot pickle"
    with pytest.raises(WorkerError, match=message):
        Analysis(atoms).run(backend=dask_client)


def test_another_version_on_the_workers_is_refused(dask_client, atoms, monkeypatch):
    monkeypatch.setattr(dask_backend.SharedJob.__init__, "__defaults__", ("0.0.1",))
    with pytest.raises(WorkerError, match=r"has paceline .*, but the run was started by 0\.0\.1"):
        RMSD(atoms).run(backend=dask_client)


@pytest.mark.parametrize(
    ("error", "n_tries", "advice"),
    [
        (ModuleNotFoundError("No module named 'paceline'"), 1, "install paceline .* there$"),
        (Exception("No module named 'numpy'"), 1, "install the missing module there$"),
        (KeyError("tcp://10.0.0.1:40"), 3, "perhaps workers have ended, or have another"),
    ],
)
def test_what_workers_that_cannot_be_sent_to_lack_is_said_where_it_is_known(error, n_tries, advice):
    def scatter(jobs, **options):
        tries.append(jobs)
        raise error

    tries = []
    client = SimpleNamespace(
        status="running", nthreads=dict, scatter=scatter, cancel=lambda futures: None
    )
    with pytest.raises(WorkerError, match=advice) as caught:
        list(DaskRun(client, 1, [FunctionJob("len", b"")]).run([]))
    assert type(error).__name__ in str(caught.value)
    assert ("install" in str(caught.value)) == ("install" in advice)
    assert len(tries) == n_tries


@pytest.mark.parametrize(
    ("happens", "error", "words"),
    [
        (os.unlink, FileNotFoundError, "worker .*:.* cannot find the file"),
        (lambda name: shutil.copy(datafiles.DCD_empty, name), FileChangedError, "part1.dcd"),
    ],
    ids=["unseen", "another"],
)
def test_a_file_that_workers_see_otherwise_is_named(
    happens, error, words, adk, tmp_path, dask_client
):
    names = [str(tmp_path / f"part{k}.dcd") for k in range(2)]
    for name in names:
        shutil.copy(adk.trajectory, name)
    with pytest.warns(match="98 frames are repeated"):
        universe = paceline.Universe(adk.topology, names)
    happens(names[1])
    with pytest.raises(error, match=words) as caught:
        RMSF(universe.atoms).run(backend=dask_client)
    assert names[1] in str(caught.value)


def busy(block):
    time.sleep(0.01 * len(block))
    return block.positions[:, ::50]


@pytest.fixture(scope="module")
def long_job(adk):
    """Analyses that take two workers a second, and their results."""
    universe = paceline.Universe(*adk)

    def run(backend, n_workers=None):
        rmsf = RMSF(universe.atoms)
        series = paceline.TimeSeries(busy, universe.atoms[:200])
        paceline.run([rmsf, series], backend=backend, n_workers=n_workers, block_frames=16)
        return rmsf.results.rmsf, series.results.timeseries

    return run, run("threads", 8)


@pytest.mark.parametrize("trial", range(KILLS))
def test_workers_may_be_killed(trial, mortal, long_job, monkeypatch):
    monkeypatch.setattr(dask_backend, "WAIT", PATIENCE)  # a new worker may start slowly
    run, wanted = long_job
    chance = random.Random(trial)
    # The last trial kills all workers, so that all scattered data is lost.
    victims = list(mortal.run(os.getpid).values())[: 2 if trial == KILLS - 1 else 1]

    def kill():
        time.sleep(chance.uniform(0.05, 0.6))
        for victim in victims:
            os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = run(mortal)
    killer.join()
    assert all(np.array_equal(ours, those) for ours, those in zip(found, wanted, strict=True))
    until(lambda: not any(psutil.pid_exists(victim) for victim in victims))


def test_jobs_whose_only_worker_dies_while_they_are_sent_are_sent_again(
    dask_client, atoms, monkeypatch
):
    """Check a client with a finished future whose key the scheduler has forgotten."""

    def send(jobs, **options):
        sent.append(list(jobs))
        if len(sent) > 1:
            return scatter(jobs, **options)
        futures = {name: distributed.Future(name, dask_client) for name in jobs}
        for future in futures.values():
            dask_client.futures[future.key].finish()
        return futures

    sent, scatter = [], dask_client.scatter
    monkeypatch.setattr(dask_client, "scatter", send)
    rmsd = RMSD(atoms).run(backend=dask_client, block_frames=16)
    assert len(sent) == 2
    assert np.array_equal(rmsd.results.rmsd, RMSD(atoms).run().results.rmsd)


def test_a_worker_that_dies_while_jobs_are_sent_holds_nobody(dask_client, atoms, monkeypatch):
    """Check a worker that Dask tries to reach until the jobs are cancelled."""

    def send(jobs, **options):
        sent.append(list(jobs))
        if len(sent) > 1:
            return scatter(jobs, **options)
        assert cancelled.wait(PATIENCE)
        return {name: distributed.Future(name, dask_client) for name in jobs}

    def count():
        return threads() if sent else {**threads(), "tcp://127.0.0.1:1": 1}

    def stop(futures):
        if [future.key for future in futures] == sent[0]:
            cancelled.set()
        return cancel(futures)

    sent, cancelled = [], threading.Event()
    scatter, threads, cancel = dask_client.scatter, dask_client.nthreads, dask_client.cancel
    monkeypatch.setattr(dask_client, "scatter", send)
    monkeypatch.setattr(dask_client, "nthreads", count)
    monkeypatch.setattr(dask_client, "cancel", stop)
    monkeypatch.setattr(dask_backend, "LOOK", 0.05)
    rmsd = RMSD(atoms).run(backend=dask_client, block_frames=16)
    assert len(sent) == 2
    assert sent[0] != sent[1]
    assert np.array_equal(rmsd.results.rmsd, RMSD(atoms).run().results.rmsd)


def test_frames_that_kill_their_workers_are_named(mortal, atoms):
    def crash(block):
        if block.frames[0] == 48:
            os.kill(os.getpid(), signal.SIGKILL)
        return block.times

    def allow(n, dask_scheduler):
        dask_scheduler.allowed_failures = n

    mortal.run_on_scheduler(allow, 0)
    message = r"workers died repeatedly while they computed frames \d+ to \d+: perhaps they ran out"
    with pytest.raises(WorkerError, match=message):
        paceline.TimeSeries(crash, atoms).run(backend=mortal, block_frames=16)
    mortal.run_on_scheduler(allow, 3)


def test_what_a_worker_hangs_at_is_done_by_another(dask_client, atoms, tmp_path):
    hanging, released = str(tmp_path / "hanging"), str(tmp_path / "released")
    begun = tmp_path / "begun"
    begun.mkdir()

    def hang_once(block):
        own = begun / thread_name()
        if own.exists():  # the worker has computed a block, so that its thread is known
            with contextlib.suppress(FileExistsError):
                with open(hanging, "x", encoding="utf-8") as file:
                    file.write(f"{thread_name()} {block.frames[0] // 16}")
                while not os.path.exists(released):
                    time.sleep(0.02)
        own.touch()
        return block.times

    series = paceline.TimeSeries(hang_once, atoms)
    try:
        series.run(backend=dask_client, block_frames=16)
    finally:
        Path(released).touch()
    assert os.path.exists(hanging)
    assert np.array_equal(series.results.timeseries, series.times)
    # The result of the slower attempt was not added.
    assert series.timings.n_frames == 98
    # On a busy machine, other attempts may also seem to hang.
    hung = [one.timing for one in series.timings.abandoned if not one.came]
    assert Path(hanging).read_text() in {f"{timing.worker} {timing.block}" for timing in hung}
    # The hanging worker also has one row, with the name of its blocks.
    assert len(series.timings.workers()) == 2
    assert report_of(series.timings).n_hosts == 1


def test_a_dask_worker_that_never_returned_a_block_is_one_straggler(dask_client, atoms, tmp_path):
    first, released = str(tmp_path / "first"), str(tmp_path / "released")

    def first_hangs(block):
        with contextlib.suppress(FileExistsError), open(first, "x", encoding="utf-8"):
            while not os.path.exists(released):
                time.sleep(0.02)
        while not os.path.exists(first):
            time.sleep(0.02)
        return block.times

    series = paceline.TimeSeries(first_hangs, atoms)
    try:
        series.run(backend=dask_client, block_frames=16)
    finally:
        Path(released).touch()
    workers = series.timings.workers()
    (hung,) = (worker for worker in workers if worker.n_blocks == 0)
    assert len(workers) == 2
    assert report_of(series.timings).n_hosts == 1
    slow = {one.worker: one.cause for one in series.timings.stragglers()}
    assert slow[hung.worker] == "hanging"
    port = hung.worker.split(":port ")[1].removesuffix(":unknown")
    assert port in {address.rpartition(":")[2] for address in dask_client.nthreads()}


def test_threads_of_a_dask_worker_are_distinguished_by_their_last_blocks():
    def timing(worker, start, end):
        return BlockTiming(0, 0, 0, 16, worker, start, end, *[0] * 9)

    def result(worker, end):
        return BlockResult(0, 0, 0, 0, 16, [], np.zeros(16), [], [timing(worker, 0, end)])

    def renamed(address, start, end):
        attempt = DuplicateAttempt(timing(address, start, end), came=False)
        its = names.rename(attempt).timing
        return its.worker, its.start, its.end

    names = ThreadsByAddress()
    names.n_threads = {"tcp://10.0.0.1:40": 2, "tcp://10.0.0.1:41": 1, "tcp://10.0.0.2:40": 1}
    names.record("tcp://10.0.0.1:40", result("node1:7:8", 100))
    # The other thread has returned nothing, so the hanging thread must be that one.
    assert renamed("tcp://10.0.0.1:40", 50, 900) == ("node1:port 40:unknown", 50, 900)
    names.record("tcp://10.0.0.1:40", result("node1:7:9", 800))
    # The task was submitted before its thread was free.
    assert renamed("tcp://10.0.0.1:40", 50, 900) == ("node1:7:8", 100, 900)
    # The task only waited for other blocks.
    names.record("tcp://10.0.0.1:40", result("node1:7:8", 1000))
    names.record("tcp://10.0.0.1:40", result("node1:7:9", 1100))
    assert renamed("tcp://10.0.0.1:40", 50, 900) == ("node1:7:8", 900, 900)
    assert renamed("tcp://10.0.0.1:41", 50, 900)[0] == "node1:port 41:unknown"
    assert renamed("tcp://10.0.0.2:40", 50, 900)[0] == "tcp://10.0.0.2:40"


def test_a_client_that_is_closed_midway_is_reported(mortal, atoms, tmp_path):
    client = distributed.Client(mortal.scheduler.address, set_as_default=False)
    client.wait_for_workers(1, timeout=PATIENCE)

    def close():
        until(lambda: tasks_on(mortal) > 1)
        client.close()

    released = str(tmp_path / "released")

    def slow(block):
        while not os.path.exists(released):
            time.sleep(0.02)
        return block.times

    threading.Thread(target=close).start()
    try:
        with pytest.raises(WorkerError, match="the Dask client was closed"):
            paceline.TimeSeries(slow, atoms).run(backend=client, block_frames=16)
    finally:
        Path(released).touch()


def test_a_client_that_is_closed_while_it_cleans_up_raises_nothing():
    client = SimpleNamespace(status="running", nthreads=dict)

    def cancel(futures):
        client.status = "closed"
        raise distributed.client.ClosedClientError("Client is closed.")

    client.cancel = cancel
    client.scatter = lambda jobs, **options: dict.fromkeys(jobs)
    assert list(DaskRun(client, 1, [FunctionJob("len", b"")]).run([])) == []


#: Script without a `__main__` guard that imports MDAnalysis, and ends with a run that hangs.
SCRIPT = """
import os, sys, time
import MDAnalysis
import numpy as np
import paceline
from paceline.backends.local_dask_cluster import release_cluster, acquire_cluster
def where(block):
    return np.full(len(block), os.getpid())
def hang(block):
    open(MARKER, "w").close()
    time.sleep(600)
def heavy():
    ours = {"paceline.universe", "paceline.mdanalysis.reader"}
    return (ours | {"MDAnalysis", "matplotlib"}) & set(sys.modules)
def run(function):
    series = paceline.TimeSeries(function, atoms)
    return series.run(backend="dask", n_workers=1).results.timeseries
MARKER = sys.argv[1]
atoms = paceline.Universe(*sys.argv[2:]).atoms[:10]
for _ in range(2):
    print(*set(run(where).astype(int)), flush=True)
cluster = acquire_cluster(1)
paceline.dask_array(atoms).sum().compute(scheduler=cluster.client)
print(*cluster.client.run(heavy).values(), cluster.n_workers, flush=True)
release_cluster(cluster)
try:
    run(hang)
except KeyboardInterrupt:
    print("interrupted", flush=True)
run(hang)
"""


def test_a_cluster_of_this_machine_is_kept_loads_no_mdanalysis_and_ends_at_once(adk, tmp_path):
    script, marker = tmp_path / "script.py", tmp_path / "begun"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(marker), *adk]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(number):
        until(marker.exists)
        marker.unlink()
        others = psutil.Process(process.pid).children(recursive=True)
        assert len(others) >= 2
        process.send_signal(number)
        until(lambda: not any(other.is_running() for other in others))

    with process:
        first, second, heavy = (process.stdout.readline().strip() for _ in range(3))
        assert first == second
        assert psutil.pid_exists(int(first))
        assert heavy == "set() 1"
        stop(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        stop(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_cluster_of_this_machine_is_closed_though_a_forked_process_lives():
    cluster = LocalCluster(1)
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    try:
        cluster.close()
        assert not cluster.alive
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_cluster_of_this_machine_ends_though_it_has_only_begun_to_start():
    script = "from paceline.backends.local_dask_cluster import LocalCluster; LocalCluster(1)"
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    this = psutil.Process(process.pid)
    until(lambda: any("keep(1, " in " ".join(one.cmdline()) for one in this.children()))
    others = this.children(recursive=True)
    process.kill()
    assert process.communicate(timeout=PATIENCE)[1] == ""
    until(lambda: not any(other.is_running() for other in others))


@pytest.fixture(params=["threads", "distributed"])
def scheduler(request):
    if request.param == "threads":
        return "threads"
    return request.getfixturevalue("dask_client")


def test_a_dask_array_is_the_file(universe, scheduler):
    group = universe.atoms[[7, 3, 3, 3000]]
    array = paceline.dask_array(group, start=90, stop=3, step=-2, block_frames=16)
    wanted = np.array([group.positions for _ in universe.trajectory[90:3:-2]])
    assert (array.shape, array.dtype, array.chunks[0]) == (wanted.shape, np.float32, (16, 16, 12))
    found = array.compute(scheduler=scheduler)
    assert found.dtype == np.float32
    assert np.array_equal(found, wanted)
    one = array[17, 1:3].compute(scheduler=scheduler)
    assert np.array_equal(one, wanted[17, 1:3])


def test_a_dask_array_is_chunked_as_blocks_are_and_has_one_name(universe):
    first, again = (paceline.dask_array(universe.atoms) for _ in range(2))
    assert first.name == again.name
    assert first.name != paceline.dask_array(universe.atoms[:-1]).name
    assert set(first.chunks[0][:-1]) <= {16}
    assert first.chunks[1:] == ((3341,), (3,))


@pytest.mark.parametrize("kind", TWO_WAYS)
@pytest.mark.filterwarnings("ignore")
def test_dask_arrays_of_one_file_read_in_two_ways_have_two_names(kind, tmp_path):
    universes = read_in_two_ways(kind, tmp_path)
    first, second = (paceline.dask_array(one.atoms, stop=40) for one in universes)
    assert first.name != second.name
    assert first.name == paceline.dask_array(universes[0].atoms, stop=40).name
    together = (first - second).compute(scheduler="threads")
    assert np.array_equal(together, first.compute() - second.compute())
    assert np.abs(together).max() > 0.9


def test_a_dask_array_sends_its_source_once_and_each_chunk_its_slice(universe):
    array = paceline.dask_array(universe.atoms, block_frames=16)
    (mean,) = dask.optimize(array.mean(axis=0))
    graph = dict(mean.dask)
    assert sum("_SharedSource" in repr(node) for node in graph.values()) <= 1
    assert len(cloudpickle.dumps(graph)) < 50_000


def test_a_dask_array_of_velocities(scheduler, tmp_path):
    names = [shutil.copy(name, tmp_path) for name in (datafiles.GRO, datafiles.TRR)]
    universe = paceline.Universe(*map(str, names))
    array = paceline.dask_array(universe.atoms[:50], field="velocities")
    wanted = np.array([universe.atoms[:50].velocities for _ in universe.trajectory])
    assert np.array_equal(array.compute(scheduler=scheduler), wanted)


def test_a_damaged_frame_of_a_dask_array_is_named(damaged, scheduler):
    array = paceline.dask_array(paceline.Universe(*damaged[0]).atoms, block_frames=16)
    with pytest.raises(DamagedFileError, match="frame 50, byte") as caught:
        array[50].compute(scheduler=scheduler)
    assert caught.value.frame == 50
    assert array[70].compute(scheduler=scheduler).shape == (3341, 3)


def test_what_is_no_dask_array_is_refused(universe, theirs, adk):
    with pytest.raises(
        MissingDataError, match="velocities were requested, but the trajectory contains positions"
    ):
        paceline.dask_array(universe.atoms, field="velocities")
    with pytest.raises(ValueError, match="'masses'"):
        paceline.dask_array(universe.atoms, field="masses")
    with pytest.raises(ValueError, match="no frames to read: the trajectory has 98"):
        paceline.dask_array(universe.atoms, start=98)
    with pytest.raises(ValueError, match="empty"):
        paceline.dask_array(universe.atoms[:0])
    moved = paceline.Universe(*adk)
    moved.trajectory.add_transformations(translate([1, 2, 3]))
    with (
        pytest.warns(match="one at a time"),
        pytest.raises(UnsupportedError, match="single thread"),
    ):
        paceline.dask_array(moved.atoms)


def test_states_of_a_scan_may_be_functions(dask_client, universe):
    """Check that such states are sent like results."""

    def count(block):
        n = len(block)
        return lambda: n

    def add(left, right):
        n = left() + right()
        return lambda: n

    def number(block, before):
        return np.arange(len(block)) + (before() if before else 0)

    scan = paceline.Scan(count, add, number, universe.atoms[:3])
    scan.run(backend=dask_client, block_frames=16)
    assert np.array_equal(scan.results.timeseries, np.arange(98))
