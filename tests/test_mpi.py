"""Tests of MPI ranks: the same bits, light ranks, and failures of every kind.

`helpers.mpi` describes how to choose another MPI.
"""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from helpers import shipped
from helpers.h5md_files import numbers, write_simple
from helpers.mpi import LONGEST, OPEN_MPI, SCRIPTS, environment, mpirun, needs_mpi, start

import paceline
from paceline._util.launcher import launched, world
from paceline.backends.mpi import worker as mpi_worker
from paceline.backends.mpi.worker import RankWorker, Reply
from paceline.contract.analysis_kinds import Kind, WorkerDeclaration
from paceline.contract.plan import LeafBoundaries
from paceline.engine.scheduler import StealingPartition
from paceline.engine.tasks_and_results import BlockResult, Job, WorkerAnalysis
from paceline.engine.worker import ThreadNames
from paceline.errors import AnalysisError, UnsupportedError

pytest.importorskip("mpi4py")

COMMAND = "import sys; from paceline.cli import main; sys.exit(main())"


pytestmark = needs_mpi


def script(name):
    return "-m", "paceline.mpi", SCRIPTS / f"{name}.py"


@pytest.mark.parametrize(
    "n_ranks", [3, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 4, 8))]
)
def test_same_bits(n_ranks, damaged, adk_in_water, tmp_path):
    # On three ranks, every pair of option values is tested; on other numbers of ranks, all
    # combinations.
    combinations = "pairs" if n_ranks == 3 else "all"
    files = *damaged[0], tmp_path, *adk_in_water
    found = mpirun(n_ranks, *script("same_bits"), *files, combinations)
    assert found == (0, "same bits\n", "")


@pytest.fixture
def open_mpi(monkeypatch):
    """Start ranks with Open MPI."""
    if not Path(OPEN_MPI[0]).exists():
        pytest.skip("Open MPI is not installed: make .venv/open-mpi/bin/mpirun")
    monkeypatch.setattr("helpers.mpi.MPIEXEC", OPEN_MPI)


@pytest.mark.parametrize("module", ["paceline.mpi", "paceline"])
def test_what_would_wait_for_ranks_that_run_no_script_is_refused(module):
    """Catch the errors of some calls, and check that another one ends the script."""
    calls = "window,barrier,split,receive,allreduce"
    status, out, err = mpirun(2, "-m", module, SCRIPTS / "lone_world.py", calls)
    assert status == 1
    said = dict(line.split(" ", 1) for line in out.splitlines())
    assert said.pop("window").startswith("mpi4py.MPI.Exception: ")
    last = err[
        err.index("MPI.COMM_WORLD.allreduce would wait for ever: only the first of 2 ranks") :
    ]
    for call, name in [("barrier", "Barrier"), ("split", "Split"), ("receive", "recv")]:
        assert f"MPI.COMM_WORLD.{name} would wait for ever" in said[call]
    for text in (*said.values(), last):
        assert "run it on every rank: python -m paceline --every-rank script.py" in text


def test_a_script_that_names_mpi4py_is_refused_what_would_wait():
    status, out, err = mpirun(2, *script("lone_world_itself"))
    assert (status, out) == (1, "")
    assert "MPI.COMM_WORLD.bcast would wait for ever" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lone_world_itself"], "MPI.COMM_WORLD.bcast would wait for ever"),
        (["lone_world", "allreduce"], "MPI.COMM_WORLD.allreduce would wait for ever"),
        (["lone_world", "window"], "mpi4py.MPI.Exception: MPI_ERR_COMM"),
    ],
)
def test_what_would_wait_is_refused_under_open_mpi(words, said, open_mpi):
    status, out, err = mpirun(2, *script(words[0]), *words[1:])
    assert (status, out) == (1, "")
    assert said in err


#: Script in which ranks put rows into an MPI window of the first rank.
ONE_SIDED = """
import sys
import paceline
from paceline.analysis.rms import RMSD
universe = paceline.Universe(*sys.argv[1:])
backend = paceline.backends.MPI(collect="one-sided")
print(RMSD(universe.atoms).run(backend=backend).results.rmsd.shape)
"""


@pytest.mark.skipif(os.path.isdir("/sys/class/infiniband"), reason="UCX may be of use here")
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_one_sided_collection_is_quiet_under_open_mpi(n_ranks, adk, open_mpi):
    found = mpirun(n_ranks, "-c", ONE_SIDED, *adk, OMPI_MCA_osc=None)
    assert found == (0, n_ranks * "(98, 3)\n", "")


def test_a_function_on_ranks_may_not_wait_for_all_of_them(adk):
    status, _, err = mpirun(2, *script("lone_world"), "analysis", *adk)
    assert status == 1
    assert "AnalysisError: TimeSeries of sum_on_ranks raised on frames " in err
    assert "MPI.COMM_WORLD.Allreduce would wait for ever" in err


def test_a_rank_may_be_asked_what_it_knows_by_itself():
    assert mpirun(2, *script("lone_world"), "nothing") == (0, "ended\n", "")


def test_the_command_line_uses_all_ranks(adk, tmp_path):
    table = tmp_path / "rmsd.tsv"
    arguments = ["-c", COMMAND, "rmsd", *adk, "--stop", 48, "--timings", "--overwrite", "-o", table]
    alone = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, check=True)
    assert b"threads: 48 frames" in alone.stderr
    wanted = table.read_bytes()
    status, _, err = mpirun(4, *arguments)  # more ranks than blocks
    assert status == 0
    assert "mpi: 48 frames" in err
    assert len([line for line in err.splitlines() if "µs/frame" in line]) == 1
    assert err.count("paceline: RMSD: ") == 1
    assert table.read_bytes() == wanted


def test_ranks_are_light(adk_xtc, tmp_path):
    status, out, err = mpirun(4, *script("light"), *adk_xtc, tmp_path, 4)
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    ranks = [tuple(map(int, numbers)) for word, *numbers in lines if word == "rank"]
    # The first rank parsed the topology and opened the trajectory for all; each worker opens it
    # once.
    assert len(ranks) == 4
    assert sorted(ranks)[:3] == [(0, 0, 1, 0)] * 3
    facts = {word: int(number) for word, number in (line for line in lines if line[0] != "rank")}
    assert facts["read"] == 4 * Path(adk_xtc.trajectory).stat().st_size


@pytest.fixture(scope="module")
def to_open(alphas, tmp_path_factory):
    """Arguments of opening.py: a folder, and files in it by system."""
    folder = tmp_path_factory.mktemp("opening")
    for name in ("ca.xtc", "ca.h5md"):
        paceline.Write(paceline.Universe(*alphas).atoms, folder / name).run(stop=5)
    topology, dcd = (Path(shutil.copy(path, folder)).name for path in alphas)
    return folder, f"{topology},{dcd},ca.xtc", f"{topology},ca.h5md"


@pytest.fixture(scope="module")
def on_three_ranks(adk, alphas, to_open, tmp_path_factory):
    """Run scripts of every rank one after another; return status, output and errors."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "errors").mkdir()
    (folder / "writing").mkdir()
    scripts = [
        *(
            [("shared_results", *adk, "shared"), ("opening", *to_open)]
            if sys.platform == "linux"
            else []
        ),
        ("late_results", *adk),
        ("h5md_writing_errors", folder / "errors", *adk),
        ("h5md_writing", folder / "writing", *adk),
        ("together", *adk, folder / "ca.xtc"),
        ("opening_apart", *alphas),
    ]
    paths = [[str(SCRIPTS / f"{name}.py"), *map(str, given)] for name, *given in scripts]
    return mpirun(3, "-m", "mpi4py", SCRIPTS / "in_turn.py", json.dumps(paths))


@pytest.mark.parametrize(
    "printed",
    [
        # shared_results.py: ranks of one host share large results.
        pytest.param(
            "shared",
            marks=pytest.mark.skipif(
                sys.platform != "linux", reason="ranks copy results elsewhere"
            ),
        ),
        # opening.py: one rank opens files for all.
        pytest.param(
            "opened together",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="names lead through /proc"),
        ),
        # late_results.py: no rank sends for longer than the run takes.
        "counted once",
        # h5md_writing_errors.py: an error of a rank that writes H5MD is raised on all.
        "errors on all",
        # h5md_writing.py: ranks write one H5MD file.
        "one file",
        # together.py: every rank of a script has the results.
        "together",
        # opening_apart.py: ranks that do not open the same files.
        "apart",
    ],
)
def test_scripts_of_every_rank(printed, on_three_ranks):
    """Check that a script has come to its end, where the first rank prints this line."""
    status, out, err = on_three_ranks
    assert printed in out.splitlines(), err
    assert (status, err) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_other_numbers_of_ranks(n_ranks, adk, alphas, tmp_path):
    found = mpirun(n_ranks, "-m", "mpi4py", SCRIPTS / "h5md_writing.py", tmp_path, *adk)
    assert found == (0, "one file\n", "")
    if n_ranks == 2:
        assert mpirun(2, SCRIPTS / "opening_apart.py", *alphas)[:2] == (0, "apart\n")


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="ranks copy results elsewhere")
@pytest.mark.parametrize("how", ["another process", "kept in a file", "no file", "cannot open"])
def test_ranks_of_a_host_share_large_results(how, adk):
    found = mpirun(3, SCRIPTS / "shared_results.py", *adk, how)
    assert found == (0, f"{how}\n", "")


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="names lead through /proc")
@pytest.mark.parametrize("n_ranks", [1, 2, 8])
def test_one_rank_opens_files_for_all(n_ranks, to_open):
    assert mpirun(n_ranks, SCRIPTS / "opening.py", *to_open) == (0, "opened together\n", "")


#: Script for every rank; at first only the first rank can find its files.
EACH_RANK = r"""
import os, sys
import MDAnalysis as mda
from mpi4py import MPI
comm = MPI.COMM_WORLD
os.chdir(sys.argv[1] if comm.rank == 0 else sys.argv[2])
u = mda.Universe("/proc/self/cwd/adk.psf")
u.load_new("/proc/self/cwd/adk.h5md", driver="mpio", comm=comm)
os.chdir(sys.argv[1])
total = sum(float(u.atoms.positions[0, 0]) for _ in u.trajectory[comm.rank :: comm.size])
sys.stdout.write(f"{comm.allreduce(total)} {type(u.trajectory).__name__}\n")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names lead through /proc")
@pytest.mark.skipif(h5py.get_config().mpi, reason="this h5py was built with MPI")
def test_every_rank_of_a_plain_script_opens_together(adk, tmp_path):
    paceline.Write(paceline.Universe(*adk).atoms, tmp_path / "adk.h5md").run(stop=5)
    shutil.copy(adk.topology, tmp_path / "adk.psf")
    (tmp_path / "empty").mkdir()
    program = tmp_path / "script.py"
    program.write_text(EACH_RANK)
    ours = "-m", "paceline", "--every-rank", program, tmp_path, tmp_path / "empty"
    status, out, err = mpirun(3, *ours, PYTHONWARNINGS="default::UserWarning")
    assert status == 0, err
    total = sum(float(ts.positions[0, 0]) for ts in paceline.Universe(*adk).trajectory[:5])
    lines = [line.split() for line in out.splitlines()]
    assert [kind for _, kind in lines] == ["Reader"] * 3
    assert all(float(found) == pytest.approx(total) for found, _ in lines)
    assert err.count('driver="mpio" is not used') == 1
    assert err.count("its reader opened 1 trajectory") == 3


@pytest.mark.full
@pytest.mark.parametrize("how", ["first rank", "every rank"])
def test_work_that_mdanalysis_does(how, adk, tmp_path, monkeypatch):
    files = tmp_path / "files.pickle"
    files.write_bytes(pickle.dumps([shipped.protein(tmp_path), shipped.strands(tmp_path)]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SCRIPTS.parent), *sys.path]))
    program = script("by_mdanalysis") if how == "first rank" else [SCRIPTS / "by_mdanalysis.py"]
    assert mpirun(2, *program, *adk, files) == (0, "as MDAnalysis alone\n", "")


def test_errors_and_a_thread_that_hangs(adk, damaged, tmp_path):
    found = mpirun(4, *script("failures"), *adk, damaged[0].trajectory, tmp_path / "hung")
    assert found == (0, "went on\n", "")


def test_a_slow_rank_is_named_and_why(adk, tmp_path):
    program = SCRIPTS.parents[1] / "benchmarks" / "slowed.py"

    def named(trial):
        folder = tmp_path / str(trial)
        folder.mkdir()
        status, out, err = mpirun(
            4, "-m", "paceline.mpi", program, *adk, "mpi", "computing", 1000, 1, folder
        )
        assert status == 0, err
        found = json.loads(out)
        causes = {one["worker"].split(":", 1)[1]: one["cause"] for one in found["named"]}
        return causes.get(found["slow"])

    # On a busy machine, other ranks may occasionally be as slow.
    assert "computing" in map(named, range(10))


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_lost_rank_ends_all(how, adk):
    status, out, _ = mpirun(3, *script("endless"), *adk, how)
    assert status != 0
    assert out.startswith("begun\n")


def test_the_end_of_a_script_is_that_of_all_ranks(adk):
    status, out, err = mpirun(2, *script("endless"), *adk, "raise")
    assert (status, out) == (1, "")
    assert err.count("RuntimeError: in the script") == 1
    assert "runpy" not in err
    assert mpirun(2, *script("endless"), *adk, "status")[:2] == (7, "")
    assert mpirun(2, "-m", "paceline.mpi")[0] == 2
    status, _, err = mpirun(2, *script("nothing"))
    assert status == 1
    assert err.count("No such file") == 1


def test_interrupting_ends_all(adk):
    process = start(3, *script("endless"), *adk, "sleep")
    said = [process.stdout.readline() for _ in range(4)]
    assert said == ["begun\n", *["at work\n"] * 3]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONGEST)
    assert process.returncode != 0
    assert err.count("Traceback") == 0
    # If all ranks are in a collective call, the first rank cannot leave alone.
    status, out, err = mpirun(3, *script("endless"), *adk, "interrupt")
    assert status != 0
    # Then the launcher may report the ranks that it killed.
    assert out.startswith("begun\n")
    assert err.count("paceline: error: rank 0: KeyboardInterrupt") == 1


@pytest.mark.parametrize("when", ["computing", "receiving"])
def test_the_end_of_the_walltime_leaves_a_checkpoint(adk, tmp_path, when):
    status, _, err = mpirun(3, SCRIPTS / "walltime.py", *adk, tmp_path / "checkpoint", when)
    assert status == 143
    assert err.count("go on with: ") == 1
    assert (tmp_path / "checkpoint").exists()


def test_commands_that_would_be_many_copies_are_refused(adk):
    status, out, err = mpirun(3, "-c", COMMAND, "rmsd", *adk, "--backend", "threads")
    assert (status, out) == (2, "")
    assert err.count("--backend threads would use only one of the 3 processes") == 1
    status, out, err = mpirun(2, "-c", COMMAND, "rmsd", "--nonsense")
    assert (status, out) == (2, "")
    assert err.count("error: ") == 1


def test_without_mpi4py(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no module named mpi4py')")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    status, out, err = mpirun(3, "-c", COMMAND, "info", "x.xtc", PYTHONPATH=path)
    assert (status, out) == (2, "")
    assert err.count('pip install "paceline[mpi]" mpich') == 1


#: mpi4py with only the library of Open MPI, as other packages install it.
LIBRARY_ALONE = """
import os
import types

rc = types.SimpleNamespace()
MPI = types.ModuleType("mpi4py.MPI")
MPI.Is_initialized = lambda: False
MPI.Get_library_version = lambda: "Open MPI v4.1.4, package: Debian OpenMPI\\0"
MPI.Init_thread = lambda: os._exit(1)
"""


def test_the_library_of_an_mpi_without_its_programs_is_refused(adk, tmp_path):
    (tmp_path / "mpi4py.py").write_text(LIBRARY_ALONE)
    variables = {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "PATH": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "rmsd", *adk, "--backend", "mpi"],
        env=environment() | variables,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "mpi4py's MPI (Open MPI v4.1.4) is installed without its programs" in done.stderr
    assert done.stderr.endswith("or another MPI: pip install mpich\n")


def test_the_mpi_of_another_launcher_is_refused():
    theirs = "OMPI_COMM_WORLD" if "Open MPI" not in library() else "PMI"
    told = {f"{theirs}_SIZE": "3", f"{theirs}_RANK": "0", "MPI_LOCALRANKID": "0"}
    assert refusal(told).endswith("an mpi4py built for the launcher's MPI\n")


def test_steps_of_slurm_whose_ranks_are_alone_are_refused():
    told = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}
    assert "--mpi=pmi2 for MPICH or Intel MPI, --mpi=pmix for Open MPI" in refusal(told)


def refusal(told):
    """Return the message of a command that a launcher of another MPI started three times."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "info", "x.xtc"],
        env=environment() | told,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "3 processes were launched together, but mpi4py's MPI" in done.stderr
    return done.stderr


def library():
    """Return the name of the MPI under test."""
    code = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    code += "print(MPI.Get_library_version())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    return done.stdout


def test_importing_paceline_loads_no_mpi():
    code = "import sys, paceline, paceline.runner, paceline.cli, paceline.backends\n"
    code += "print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, (1, 0)),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, (1, 0)),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2"}, (3, 2)),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "7"}, (8, 7)),
        # A batch script is one process, as is anything in a shell that srun opened.
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, (1, 0)),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "7"}, (1, 0)),
        ({"PMI_SIZE": "many", "PMI_RANK": "0"}, (1, 0)),
    ],
)
def test_launchers_are_noticed(variables, found):
    assert launched(variables) == found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "guided"}, "schedule must be 'dynamic' or 'static', not 'guided'"),
        ({"collect": "puts"}, "collect must be 'gather' or 'one-sided'"),
        ({"n_workers": 0}, "at least 1"),
    ],
)
def test_unknown_ways_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        paceline.backends.MPI(**options)


def blocks(n):
    return [SimpleNamespace(job=k // 20, number=k, n_frames=16) for k in range(n)]


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("options", [{}, {"fixed": True}, {"in_order": True}])
def test_every_block_is_assigned_once(n_workers, options):
    shares, assigned = StealingPartition(blocks(30), n_workers, **options), []
    # The first worker is by far the fastest, and the last does nothing until the end.
    for worker in [*[0] * 40, *range(n_workers)] * 40:
        assigned.append([task.number for task in shares.take(worker, 1 + 16 * (worker % 3))])
    assert sorted(number for some in assigned for number in some) == list(range(30))
    assert not shares
    if "fixed" in options:
        of_first = [number for some in assigned[:40] for number in some]
        assert of_first == list(range(30 // n_workers))
    if "in_order" in options:
        assert [number for some in assigned for number in some] == list(range(30))


def test_a_batch_is_of_one_job():
    taken = StealingPartition(blocks(30), 1).take(0, 10**6)
    assert [work.number for work in taken] == list(range(20))


class Slow:
    """A worker whose blocks take 5 ms."""

    def __init__(self, job_of, name):
        self.name = str(id(self))

    def run(self, work):
        start = time.monotonic_ns()
        time.sleep(0.005)
        timing = SimpleNamespace(start=start, end=time.monotonic_ns(), n_frames=work.n_frames)
        return SimpleNamespace(timings=[timing])


def test_a_batch_lasts_as_long_however_late_outcomes_are_noted(monkeypatch):
    monkeypatch.setattr(mpi_worker, "Worker", Slow)
    threads = mpi_worker.ComputeThreads(1, ThreadNames(), None)
    threads.give(0, blocks(5))
    while threads._done.qsize() < 5:
        time.sleep(0.01)
    assert len(threads.finished(0)) == 5
    threads.stop()
    assert 1 <= threads.requests()[0] <= 16 * mpi_worker.BATCH / 0.005


class ReadAhead(Slow):
    """A worker that waits for every second block, and prefetches the next."""

    n_blocks = 0

    def run(self, work):
        self.n_blocks += 1
        start = 10**9
        end = start + 40_000_000 * (self.n_blocks % 2)
        timing = SimpleNamespace(start=start, end=end, n_frames=work.n_frames)
        return SimpleNamespace(timings=[timing])


def test_one_block_that_took_no_time_makes_no_large_batch(monkeypatch):
    monkeypatch.setattr(mpi_worker, "Worker", ReadAhead)
    threads = mpi_worker.ComputeThreads(1, ThreadNames(), None)
    threads.give(0, blocks(4))
    n_done = 0
    while n_done < 4:
        n_done += len(threads.finished(1))
    threads.stop()
    assert threads.requests()[0] <= 16 * mpi_worker.BATCH / 0.02


def test_an_unlike_block_fails_the_run_also_at_its_end():
    part = WorkerAnalysis("rows", None, WorkerDeclaration(Kind.ROWS), None)
    source = SimpleNamespace(cache=None)
    worker = RankWorker([Job(source, (), [part], LeafBoundaries(16), False)], [3], 0)
    for number, shape in enumerate([(16,), (16, 3), (16,)]):
        rows = np.zeros(shape)
        worker.results.hold(BlockResult(0, 0, number, 16 * number, 16, [rows], rows, [], []))
    with pytest.raises(AnalysisError, match="as from the other blocks"):
        worker.accept(Reply([True, True, True]))
    assert isinstance(worker.settle(Reply()), AnalysisError)


@pytest.mark.parametrize(("n_bytes", "most"), [(0, 10.0), (2**20, 1.0)])
def test_polls_that_move_bytes_stay_frequent_after_a_long_wait(n_bytes, most, monkeypatch):
    from paceline.backends.mpi import comm

    clock, polls = [0.0], iter(range(1000))

    def sleep(seconds):
        clock[0] += seconds

    def tick():
        sleep(1e-5)
        return clock[0]

    monkeypatch.setattr(comm, "time", SimpleNamespace(perf_counter=tick, sleep=sleep))
    # Each poll moves a few bytes; without traffic, longer sleeps free the processor.
    comm.wait_busy(SimpleNamespace(Test=lambda: next(polls, None) is None), n_bytes)
    assert most / 10 < clock[0] < most


def test_world_names_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(UnsupportedError, match="install mpi4py and an MPI"):
        world()


@pytest.mark.skipif(not h5py.get_config().mpi, reason="this h5py was built without MPI")
@pytest.mark.parametrize("kind", ["contiguous", "all filters"])
def test_ranks_read_hdf5_at_once(kind, tmp_path):
    storage = {"chunks": (5, 4, 2), "compression": "gzip", "shuffle": True, "fletcher32": True}
    path = tmp_path / "a.h5md"
    write_simple(path, **numbers(22, 17)._asdict(), **({} if kind == "contiguous" else storage))
    status, out, err = mpirun(2, SCRIPTS / "collective.py", path)
    assert (status, out) == (0, "2 right, 2 refused\n"), err


@pytest.mark.parametrize("n_ranks", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 4))])
def test_files_that_ranks_write_have_the_bytes_of_one_process(n_ranks, adk, tmp_path):
    ca = paceline.Universe(*adk).select_atoms("name CA")
    names = [f"md.{ending}" for ending in ("xtc", "trr", "dcd", "nc", "h5md")]
    for name in names:
        paceline.Write(ca, tmp_path / name).run(stop=40)
    found = {}
    for how in ("alone", "ranks"):
        out = tmp_path / "out"
        out.mkdir()
        arguments = [SCRIPTS / "files.py", tmp_path, out, *names]
        if how == "ranks":
            status, _, err = mpirun(n_ranks, "-m", "paceline.mpi", *arguments)
            assert status == 0, err
        else:
            command = [sys.executable, "-W", "ignore", *map(str, arguments)]
            subprocess.run(command, check=True, capture_output=True)
        files = [path for path in out.iterdir() if not path.name.startswith(".")]
        found[how] = {path.name: path.read_bytes() for path in files}
        shutil.rmtree(out)
    assert len(found["alone"]) == 5 * len(names) + 1
    for name, content in found["alone"].items():
        assert found["ranks"][name] == content, name


def test_an_error_of_one_rank_ends_a_copy(adk, tmp_path):
    path = tmp_path / "md.dcd"
    paceline.Write(paceline.Universe(*adk).select_atoms("name CA"), path).run(stop=40)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # of the last frame, which the last rank copies
    path.write_bytes(content)
    status, out, err = mpirun(2, "-c", COMMAND, "split", path, "-n", 2)
    assert (status, out) == (1, "")
    assert "md.dcd: frame 39, byte" in err
    assert "nothing was written" in err
    assert [one.name for one in tmp_path.iterdir() if one.suffix != ".paceline-index"] == ["md.dcd"]
