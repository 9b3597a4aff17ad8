"""Tests of workers: their number, the modules that they import, and how functions reach them."""

import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.barrier import meet
from helpers.waiting import PATIENCE

import paceline
import paceline._util.machine_and_software
from paceline import backends
from paceline._util.machine_and_software import free_memory_fraction
from paceline._util.option_values_and_selections import BACKENDS
from paceline.backends import available_cpus, make_backend
from paceline.contract.analysis_kinds import Kind, PerFrame, WorkerDeclaration
from paceline.engine import scheduler
from paceline.engine.collect import _Rows
from paceline.engine.tasks_and_results import WorkerAnalysis

PACKAGE = Path(paceline.__file__).parent

SCRIPT = """
import sys
import numpy as np
import paceline

FACTOR = 3
def of_main(block):
    return FACTOR * block.frames
def make(k):
    return lambda block: helper(k, block)
def helper(k, block):
    return np.full(len(block), k)

atoms = paceline.Universe(*sys.argv[1:]).atoms[:10]
analyses = [
    paceline.TimeSeries(of_main, atoms),
    paceline.TimeSeries(lambda block: -block.frames, atoms),
    paceline.TimeSeries(make(7), atoms),
]
paceline.run(analyses, backend="processes", n_workers=2)
print(*(int(one.results.timeseries.sum()) for one in analyses))
"""
TOTALS = f"{3 * sum(range(98))} {-sum(range(98))} {7 * 98}\n"


@pytest.mark.parametrize("name", BACKENDS)
def test_each_declared_name_makes_a_backend(name, monkeypatch):
    made = []
    monkeypatch.setitem(backends._BY_NAME, name, lambda n_workers: made.append(n_workers))
    make_backend(name, 1)
    assert made == [1]


def test_names_of_backends_are_those_of_their_classes_and_of_docstrings():
    classes = (backends.Threads, backends.Processes, backends.Serial, backends.Dask, backends.MPI)
    assert tuple(cls.name for cls in classes) == BACKENDS
    assert set(backends._BY_NAME) == set(BACKENDS)
    listed = [
        set(re.findall(r'"(\w+)"', names))
        for path in PACKAGE.rglob("*.py")
        for names in re.findall(r"^    backend : \{(.*)\}", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(map(len, listed)) == [3, 4, 4, 5, 5]
    assert all(names <= set(BACKENDS) for names in listed)


class Filling(PerFrame):
    """Analysis that writes frame numbers to its rows, and lists its blocks.

    If the file `wait` exists, the first attempt writes other numbers, before and after it waits.
    """

    returns_new = fills_rows = True

    def __init__(self, wait=None):
        self.wait, self.filled, self.late = wait, [], wait and threading.Event()

    def compute(self, block, rows=None):
        time.sleep(0.02)  # so that earlier rows are collected first
        if rows is None:
            return block.frames.astype(float)
        first = int(block.frames[0])
        self.filled.append(first)
        # Another thread may have begun another block in the meantime.
        if self.wait is not None and self.filled[0] == first and self.filled.count(first) == 1:
            rows[:] = -1
            self.wait.wait(PATIENCE)
            rows[:] = -2
            self.late.set()
        else:
            rows[:] = block.frames
        return rows


class Filled(paceline.AnalysisBase):
    def __init__(self, atoms, half):
        super().__init__(atoms)
        self.half = half

    def prepare(self):
        return self.half

    def finish(self, value):
        self.results.rows = value


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_rows_are_written_in_their_places(backend, universe):
    half = Filling()
    n_workers = None if backend == "serial" else 2
    run = Filled(universe.atoms, half).run
    one = run(backend=backend, n_workers=n_workers, block_frames=16)
    assert one.results.rows.tolist() == list(range(98))
    # With two threads, the last block begins after earlier blocks were collected.
    first = {"serial": 16, "threads": 96, "processes": 98}[backend]
    assert set(half.filled) >= set(range(first, 98, 16))


def test_a_late_attempt_writes_to_no_result(universe, monkeypatch):
    monkeypatch.setattr(scheduler, "SHORTEST", 0.1)
    monkeypatch.setattr(scheduler, "UNKNOWN", 0.1)
    released = threading.Event()
    half = Filling(released)
    try:
        one = Filled(universe.atoms, half).run(backend="threads", n_workers=2, block_frames=16)
        assert half.filled
        assert not half.late.is_set()
        rows = one.results.rows.tolist()
    finally:
        released.set()
    assert half.late.wait(PATIENCE)
    assert rows == one.results.rows.tolist() == list(range(98))


def test_a_block_that_is_done_has_no_place_any_more():
    analysis = WorkerAnalysis("rows", None, WorkerDeclaration(Kind.ROWS), None)
    shared, rows = analysis.shared, _Rows(6, analysis)
    assert shared.take(0, 2) is None
    rows.put(0, np.zeros(2))
    late, last = shared.take(2, 2), shared.take(4, 2)
    assert pickle.loads(pickle.dumps(shared)).take(4, 2) is None
    rows.put(2, np.ones(2))  # result of a second attempt
    for place in (late, last):
        place[:] = 2
    rows.put(4, last)
    last[:] = late[:] = 3
    assert rows.value.tolist() == [0, 0, 1, 1, 2, 2]
    assert [shared.take(first, 2) for first in (0, 2, 4)] == [None] * 3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["file", "stdin", "-c"])
def test_a_script_needs_no_main_guard(how, adk, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    call = {"file": [str(script)], "stdin": ["-"], "-c": ["-c", SCRIPT]}[how]
    done = subprocess.run(
        [sys.executable, *call, *adk],
        input=SCRIPT if how == "stdin" else None,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == TOTALS


@pytest.mark.parametrize("kind", ["processes", "spawned"])
def test_worker_processes_load_no_mdanalysis(kind, adk, tmp_path):
    # A separate interpreter is needed: workers that already imported pytest's modules would hide
    # what the script imports.
    script = tmp_path / "script.py"
    script.write_text(
        """
import sys
import numpy as np
if __name__ == "__main__":
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    import paceline
    from paceline.analysis.rdf import InterRDF
    from paceline.analysis.rms import RMSD, RMSF
    backend = sys.argv[1]
    if backend == "spawned":
        backend = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    def loaded(block):
        ours = {"paceline.universe", "paceline.mdanalysis.reader"}
        heavy = ours | {"MDAnalysis", "matplotlib", "scipy"}
        return np.full(len(block), len(heavy & set(sys.modules)))
    atoms = paceline.Universe(*sys.argv[2:]).atoms
    loaded = paceline.TimeSeries(loaded, atoms)
    rdf = InterRDF(atoms[:9], atoms, norm="none")
    paceline.run([RMSD(atoms), RMSF(atoms), rdf, loaded], backend=backend, n_workers=2)
    print(loaded.results.timeseries.sum(), "MDAnalysis" in sys.modules)
"""
    )
    command = [sys.executable, str(script), kind, *adk]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0 True\n"


def test_an_executor_stays_open_and_tells_its_workers(universe):
    with ThreadPoolExecutor(3) as executor:
        assert make_backend(executor).n_workers == 3
        assert make_backend(executor, 5).n_workers == 5
        for _ in range(2):
            paceline.TimeSeries(lambda block: block.times, universe.atoms).run(backend=executor)
        assert executor.submit(int, "3").result() == 3


def test_blocks_are_shared_out(universe, tmp_path):
    def name_thread(block):
        meet(folder)
        return np.full(len(block), threading.get_ident())

    for backend in ("threads", ThreadPoolExecutor(2)):
        folder = tmp_path / str(backend)
        series = paceline.TimeSeries(name_thread, universe.atoms[:3])
        series.run(backend=backend, n_workers=2)
        assert len(set(series.results.timeseries)) == 2
        assert len(series.timings.workers()) == 2


@pytest.mark.parametrize(
    ("backend", "n_workers", "words"),
    [
        (
            "thraeds",
            None,
            "'threads', 'processes', 'serial', 'dask', 'mpi', a concurrent.futures.Executor or a ",
        ),
        (3, None, "not 3"),
        ("threads", 0, "at least 1"),
        ("threads", -1, "at least 1"),
        ("serial", 2, "one worker"),
    ],
)
def test_unknown_backends_are_refused(backend, n_workers, words, universe):
    with pytest.raises(ValueError, match=words):
        paceline.TimeSeries(len, universe.atoms).run(backend=backend, n_workers=n_workers)


@pytest.fixture
def machine(monkeypatch):
    """A machine on which this process may use all 64 CPUs, unless a test changes this."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.setattr(paceline._util.machine_and_software, "_cgroup_quotas", lambda: iter(()))
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    return monkeypatch


def test_all_cpus_by_default(machine):
    assert available_cpus() == 64
    machine.delattr(os, "sched_getaffinity")
    assert available_cpus() == 64
    machine.setattr(os, "cpu_count", lambda: None)
    assert available_cpus() == 1


def test_affinity_and_slurm_and_quota_limit(machine):
    machine.setattr(os, "sched_getaffinity", lambda pid: {3, 4, 5, 9})
    assert available_cpus() == 4
    machine.setenv("SLURM_CPUS_PER_TASK", "3")
    assert available_cpus() == 3
    machine.setenv("SLURM_CPUS_PER_TASK", "nonsense")
    assert available_cpus() == 4
    machine.setattr(paceline._util.machine_and_software, "_cgroup_quotas", lambda: iter([8, 2]))
    assert available_cpus() == 2
    machine.setenv("SLURM_CPUS_PER_TASK", "0")
    assert available_cpus() == 1
    assert make_backend("processes").n_workers == 1


def memory(root, own, *, total=1000, available=800):
    meminfo = root / "meminfo"
    meminfo.write_text(f"MemTotal: {total} kB\nMemFree: 10 kB\nMemAvailable: {available} kB\n")
    return free_memory_fraction(meminfo, root, own)


def test_free_memory_of_the_machine(tmp_path):
    assert memory(tmp_path, tmp_path / "none") == 0.8
    assert free_memory_fraction(tmp_path / "none", tmp_path, tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("line", "folder", "limit", "used"),
    [
        ("0::/job/step\n", "job", "memory.max", "memory.current"),
        ("4:memory:/job/step\n", "memory/job", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)
def test_free_memory_of_a_cgroup(line, folder, limit, used, tmp_path):
    own = tmp_path / "own"
    own.write_text(line)
    job = tmp_path / folder
    job.mkdir(parents=True)
    (job / limit).write_text("max\n")
    (job / used).write_text("300000\n")
    assert memory(tmp_path, own) == 0.8
    (job / limit).write_text("400000\n")
    assert memory(tmp_path, own) == pytest.approx(0.25)
    # Memory that the page cache uses can be reclaimed.
    (job / "memory.stat").write_text("anon 100000\ninactive_file 100000\n")
    assert memory(tmp_path, own) == pytest.approx(0.5)
    (job / used).write_text("600000\n")
    assert memory(tmp_path, own) == 0


def quotas(root, own):
    # Without its cache: the tests change the files.
    return list(paceline._util.machine_and_software._cgroup_quotas.__wrapped__(root, own))


def test_quota_of_cgroup_version_2(tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/slurm/job_7/step_0\n")
    job = tmp_path / "cgroup" / "slurm" / "job_7"
    (job / "step_0").mkdir(parents=True)
    (job / "step_0" / "cpu.max").write_text("max 100000\n")
    assert quotas(tmp_path / "cgroup", own) == []
    (job / "cpu.max").write_text("250000 100000\n")
    assert quotas(tmp_path / "cgroup", own) == [3]
    (tmp_path / "cgroup" / "cpu.max").write_text("800000 100000\n")
    assert quotas(tmp_path / "cgroup", own) == [3, 8]


def test_quota_of_cgroup_version_1(tmp_path):
    own = tmp_path / "own"
    own.write_text("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
    # Inside a container, the path is that of the host, and the quota is at the root.
    cpu = tmp_path / "cgroup" / "cpu"
    cpu.mkdir(parents=True)
    (cpu / "cpu.cfs_period_us").write_text("100000\n")
    (cpu / "cpu.cfs_quota_us").write_text("-1\n")
    assert quotas(tmp_path / "cgroup", own) == []
    (cpu / "cpu.cfs_quota_us").write_text("50000\n")
    assert quotas(tmp_path / "cgroup", own) == [1]


def test_without_cgroups_there_is_no_quota(tmp_path):
    assert quotas(tmp_path, tmp_path / "nothing") == []
    own = tmp_path / "own"
    own.write_text("0::/../elsewhere\n")
    assert quotas(tmp_path, own) == []


CHILD = """
import multiprocessing
import sys
from MDAnalysisTests.datafiles import DCD, PSF


def work():
    import paceline
    from paceline.analysis.rms import RMSD
    from paceline.backends import processes

    processes.IDLE = 10_000  # idle workers would end by themselves
    universe = paceline.Universe(PSF, DCD)
    RMSD(universe, select="name CA").run(backend="processes", n_workers=2)
    print("done", flush=True)


if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
    print(child.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_process_of_multiprocessing_ends_with_its_workers(method, tmp_path):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"{method} is not available")
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "-W", "ignore", f"{tmp_path / 'child.py'}", method]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    # A worker that is still starting when the run ends prints that it could not start.
    first, *_, last = ran.stdout.split()
    assert (first, last) == ("done", "0"), ran.stdout + ran.stderr
