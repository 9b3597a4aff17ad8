"""Tests of the slow file system that simulates contention: its counts and delays."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.mpi import SCRIPTS, mpirun, needs_mpi

from benchmarks.data import Dataset
from benchmarks.measure import Unavailable
from benchmarks.slowfs import SlowFileSystem, library, total
from paceline.trajectory.open import open_file

ROOT = Path(__file__).parents[1]
SIZE = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def built():
    try:
        library()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def folder(tmp_path):
    """A slow folder with a file of 1 MiB, next to a file elsewhere."""
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "data").write_bytes(os.urandom(SIZE))
    shutil.copy(slow / "data", tmp_path / "elsewhere")
    return slow


def quietest(measure, is_quiet):
    """Return the measurement, and the factor by which the file system was slowed.

    A busy machine may delay anything. The measurement is then repeated, and every second time with
    delays twice as long, so that other delays matter less. Every test itself checks minimum times,
    since no machine can be faster.
    """
    for trial in range(16):
        times = 2 ** (trial // 2)
        found = measure(times)
        if is_quiet(found, times):
            break
    return found, times


def run(slow, code, *arguments, **more):
    """Return the output of a Python program."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    environment = os.environ | slow.environment() | {"PYTHONPATH": str(ROOT / "python")} | more
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def counted(folder, code, *arguments, **settings):
    """Return the calls of a program on files of a folder with these settings."""
    with SlowFileSystem(folder, **settings) as slow:
        run(slow, code, *arguments)
        (found,) = slow.counts()
    return found


def test_counts_are_those_of_the_kernel(folder, adk_xtc):
    """Check reads by C streams, too, as in MDAnalysis's XTC reader."""
    trajectory = shutil.copy(adk_xtc.trajectory, folder)
    code = """
import os, sys, MDAnalysis
def told():
    text = os.pread(io, 4096, 0)
    return int(text.split()[5]), int(text.split()[1]), len(text)
io = os.open("/proc/self/io", os.O_RDONLY)
reader = MDAnalysis.coordinates.XTC.XTCReader
reader(sys.argv[1])  # imports what it needs
reads, bytes_read, own = told()
for frame in reader(sys.argv[2])[5:60]:
    pass
print(told()[0] - reads - 1, told()[1] - bytes_read - own)
"""
    with SlowFileSystem(folder) as slow:
        reads, bytes_read = run(slow, code, adk_xtc.trajectory, trajectory)
        (found,) = slow.counts()
    # The last read of the kernel returned the end of the file.
    assert found.reads == int(reads)
    assert 0 <= int(bytes_read) - found.bytes_read < 200


def test_counts_are_those_of_our_own_reader(folder, adk_xtc):
    """Check a worker process that reads blocks, which it times, and samples.

    There is one worker: with two, one may repeat a slow block of the other, which then counts once.
    """
    files = [shutil.copy(path, folder) for path in adk_xtc]
    code = """
import sys, paceline
from paceline.analysis.rms import RMSD
if __name__ == "__main__":
    atoms = paceline.Universe(*sys.argv[1:]).select_atoms("name CA")
    workers = RMSD(atoms).run(backend="processes", n_workers=1, progress=False).timings.workers()
    for worker in workers:
        print(worker.worker.split(":")[1], worker.calls, worker.bytes)
"""
    with SlowFileSystem(folder) as slow:
        printed = run(slow, code, *files)
        counts = {row.pid: row for row in slow.counts()}
    workers = list(zip(*[iter(map(int, printed))] * 3, strict=True))
    assert sum(size for _, _, size in workers) > os.path.getsize(files[1]) / 2
    for pid, calls, size in workers:
        assert (counts[pid].reads - 18, counts[pid].bytes_read - 18 * 4096) == (calls, size)
        assert counts[pid].opens == 1
        assert counts[pid].locks == counts[pid].unseen == 0


def samples_around(size, start, end):
    """Return the numbers of the samples around a byte range, and of those inside."""
    places = [(size - 4096) * k // 17 for k in range(18)]
    first = max(k for k in range(18) if places[k] <= start)
    last = min([k for k in range(18) if places[k] + 4096 >= end], default=17)
    return set(range(first, last + 1))


@needs_mpi
@pytest.mark.parametrize(
    "numbers", [(2, 4), pytest.param((2, 4, 8, 16), marks=pytest.mark.full)], ids=str
)
def test_ranks_open_a_file_once_and_compare_the_samples_around_their_shares(
    numbers, folder, adk, tmp_path
):
    """Check that only the first rank reads all of the file, for any number of ranks."""
    universe = MDAnalysis.Universe(*adk)
    atoms = universe.select_atoms("name CA")
    topology, trajectory = tmp_path / "ca.pdb", folder / "ca.dcd"
    atoms.write(topology)
    with MDAnalysis.Writer(str(trajectory), len(atoms)) as writer:
        for frame in range(512):
            universe.trajectory[frame % 98]
            writer.write(atoms)
    size = trajectory.stat().st_size
    extents = open_file(trajectory).extents(np.arange(512, dtype=np.uint64))
    starts, ends = extents[0].tolist(), (extents[0] + extents[1]).tolist()
    of_first = set()
    for n_ranks in numbers:
        with SlowFileSystem(folder) as slow:
            arguments = "-m", "paceline.mpi", SCRIPTS / "reads.py", topology, trajectory
            status, out, err = mpirun(n_ranks, *arguments, **slow.environment())
            assert status == 0, err
            counts = {row.pid: row for row in slow.counts()}
        shares = json.loads(out)
        assert len(shares) == len(counts) == n_ranks
        n_compared = 0
        for pid, first, stop, calls in shares:
            around = samples_around(size, starts[first], ends[stop - 1])
            n_compared += len(around)
            found = counts[pid].opens, counts[pid].reads - calls - len(around)
            if counts[pid].process == 0:
                of_first.add(found)
            else:
                assert found == (1, 0)
        assert n_compared <= 18 + 2 * (n_ranks - 1)
    # The first rank opens and reads the same for any number of ranks.
    assert len(of_first) == 1


def test_samples_of_a_file_are_asked_for_together(folder, adk_xtc):
    """Check that 18 samples, by which a file is recognised, take as long as a few requests."""
    trajectory = shutil.copy(adk_xtc.trajectory, folder)
    code = "import sys, paceline.trajectory.open; paceline.trajectory.open.open_file(sys.argv[1])"
    counted(folder, code, trajectory)  # saves an index
    found, times = quietest(
        lambda times: counted(folder, code, trajectory, latency=times * 20e-3),
        lambda found, times: found.reading < times * 9 * 20e-3,
    )
    assert found.requests >= 18
    assert found.reading < times * 9 * 20e-3


READ_AT_RANDOM = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for k in range(20):
    os.pread(file, 100, 40960 * (20 - k))
"""


def test_each_request_has_latency(folder):
    found, times = quietest(
        lambda times: counted(folder, READ_AT_RANDOM, folder / "data", latency=times * 5e-3),
        lambda found, times: found.reading < times * 2 * 20 * 5e-3,
    )
    assert (found.opens, found.reads, found.requests) == (1, 20, 20)
    assert found.bytes_fetched == 20 * 4096
    assert times * 20 * 5e-3 <= found.reading < times * 2 * 20 * 5e-3
    assert found.opening >= times * 5e-3


def test_what_has_come_is_not_fetched_again(folder):
    code = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(50):
    os.pread(file, 4096, 40960)
"""
    found, times = quietest(
        lambda times: counted(folder, code, folder / "data", latency=times * 5e-3),
        lambda found, times: found.reading < times * 50 * 5e-3 / 2,
    )
    assert (found.reads, found.requests) == (50, 1)
    assert found.reading < times * 50 * 5e-3 / 2


READ_IN_TWO = """
import os, sys, time
begun = time.monotonic()
half = int(os.fork() > 0)
file = os.open(sys.argv[1], os.O_RDONLY)
while data := os.read(file, 65536):
    pass
if half:
    os.wait()
    print(time.monotonic() - begun)
"""


def test_processes_share_bandwidth(folder):
    """Check two processes that read the whole file: the time is twice as long, unless the file is
    on two servers.
    """
    bandwidth = 5e6
    ideal = 2 * SIZE / bandwidth

    def measure(servers, times):
        """Return seconds, in units of the slowness."""
        limits = {"bandwidth": bandwidth / times, "servers": servers, "stripe": 8192}
        with SlowFileSystem(folder, **limits) as slow:
            (printed,) = run(slow, READ_IN_TWO, folder / "data")
            rows = slow.counts()
        assert [row.bytes_read for row in rows] == [SIZE, SIZE]
        assert len({row.pid for row in rows}) == 2
        return float(printed) / times

    def is_quiet(found, _):
        return found[0] < 2 * ideal and found[1] < 0.8 * found[0]

    (one, two), _ = quietest(lambda times: (measure(1, times), measure(2, times)), is_quiet)
    assert ideal <= one < 2 * ideal
    assert ideal / 2 <= two < 0.8 * one


def test_opens_of_one_file_are_served_one_after_another(folder):
    code = """
import os, sys, time
begun = time.monotonic()
for _ in range(3):
    if os.fork() == 0:
        os.open(sys.argv[1], os.O_RDONLY)
        os._exit(0)
os.open(sys.argv[1], os.O_RDONLY)
for _ in range(3):
    os.wait()
print(time.monotonic() - begun)
"""

    def measure(times):
        with SlowFileSystem(folder, open_cost=times * 0.05) as slow:
            (printed,) = run(slow, code, folder / "data")
            assert total(slow.counts()).opens == 4
        return float(printed)

    seconds, times = quietest(measure, lambda seconds, times: seconds < times * 2 * 4 * 0.05)
    assert times * 4 * 0.05 <= seconds < times * 2 * 4 * 0.05


@pytest.mark.parametrize("announced", [False, True])
def test_what_was_announced_comes_meanwhile(folder, announced):
    code = """
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[2] == "True":
    os.posix_fadvise(file, 0, 1 << 20, os.POSIX_FADV_WILLNEED)
time.sleep(float(sys.argv[3]))  # computes
os.pread(file, 1 << 20, 0)
"""

    def measure(times):
        arguments = folder / "data", announced, times * 0.15
        return counted(folder, code, *arguments, bandwidth=SIZE / (times * 0.2))

    found, times = quietest(
        measure, lambda found, times: not announced or found.reading < times * 0.1
    )
    assert found.bytes_fetched == SIZE
    if announced:
        assert found.reading < times * 0.1  # the remaining time
    else:
        assert found.reading >= times * 0.2


def test_reading_in_order_is_read_ahead_of(folder):
    code = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
while os.read(file, 4096):
    pass
"""
    (alone, ahead), _ = quietest(
        lambda times: [
            counted(folder, code, folder / "data", latency=times * 1e-3, read_ahead=ahead)
            for ahead in (0, 128 << 10)
        ],
        lambda found, _: found[1].reading < found[0].reading / 4,
    )
    assert alone.bytes_fetched == ahead.bytes_fetched == SIZE
    assert alone.requests == SIZE / 4096
    assert ahead.requests < SIZE / 4096 / 10
    assert ahead.reading < alone.reading / 4


def test_locks_cost_also_who_is_refused(folder):
    code = """
import fcntl, sys
first, second = open(sys.argv[1]), open(sys.argv[1])
fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
try:
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("refused")
fcntl.flock(first, fcntl.LOCK_UN)
with open(sys.argv[1], "r+") as third:
    fcntl.lockf(third, fcntl.LOCK_EX)
    fcntl.lockf(third, fcntl.LOCK_UN)
"""

    def measure(times):
        with SlowFileSystem(folder, lock_cost=times * 0.02) as slow:
            assert run(slow, code, folder / "data") == ["refused"]
            (found,) = slow.counts()
        return found

    found, times = quietest(measure, lambda found, times: found.locking < times * 2 * 3 * 0.02)
    assert found.locks == 3
    assert times * 3 * 0.02 <= found.locking < times * 2 * 3 * 0.02


def test_files_elsewhere_are_untouched(folder):
    with SlowFileSystem(folder, latency=1.0, open_cost=1.0) as slow:
        run(slow, READ_AT_RANDOM, folder.parent / "elsewhere")
        assert slow.counts() == []


def test_a_link_does_not_hide_a_file(folder):
    link = folder.parent / "link"
    link.symlink_to(folder / "data")
    with SlowFileSystem(folder) as slow:
        run(slow, READ_AT_RANDOM, link)
        assert total(slow.counts()).reads == 20


def test_threads_and_their_forks(folder):
    """Check threads that read while others fork: no process hangs, and everything is counted."""
    code = """
import os, sys, threading
file = os.open(sys.argv[1], os.O_RDONLY)
def read():
    for k in range(100):
        os.pread(file, 4096, 4096 * k)
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(5):
    if os.fork() == 0:
        read()
        os._exit(0)
    os.wait()
for thread in threads:
    thread.join()
"""
    with SlowFileSystem(folder, latency=1e-4) as slow:
        run(slow, code, folder / "data")
        rows = slow.counts()
    assert [row.reads for row in rows] == [400, *[100] * 5]


def test_other_programs_and_their_streams(folder):
    """Check that a process remains slow after exec, in C and in Python."""
    code = "import os, sys; os.execvp('cksum', ['cksum', sys.argv[1]])"
    expected = subprocess.run(["cksum", folder / "data"], capture_output=True, text=True).stdout

    def measure(times):
        with SlowFileSystem(folder, bandwidth=SIZE / (times * 0.2)) as slow:
            assert run(slow, code, folder / "data") == expected.split()
            return total(slow.counts())

    found, times = quietest(measure, lambda found, times: found.reading > times * 0.15)
    assert found.bytes_read == SIZE
    assert found.reading > times * 0.15  # the rest arrived while it computed


def test_streams_have_descriptors_and_places(folder):
    """Check numpy, which opens a stream on a descriptor, and C++, which uses the descriptor of a
    stream.
    """
    code = """
import ctypes, os, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    file.seek(1000)
    data = np.fromfile(file, np.uint8, 50_000)
    assert file.tell() == 51_000
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"rb"))
descriptor = libc.fileno(stream)
assert os.pread(descriptor, 50_000, 1000) == data.tobytes()
assert libc.fclose(stream) == 0
try:
    os.fstat(descriptor)
except OSError:
    print("closed")
"""
    with SlowFileSystem(folder) as slow:
        assert run(slow, code, folder / "data") == ["closed"]
        found = total(slow.counts())
    assert found.bytes_read >= 100_000
    assert found.unseen == 0


def test_what_is_mapped_is_reported(folder):
    code = """
import mmap, os, sys
with open(sys.argv[1], "rb") as file:
    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:100]
"""
    with SlowFileSystem(folder) as slow:
        run(slow, code, folder / "data")
        assert total(slow.counts()).unseen == 1


def test_one_rank_is_slower(folder):
    def measure(times):
        settings = {"latency": times * 1e-3, "slow_process": 2, "slow_factor": 5}
        with SlowFileSystem(folder, **settings) as slow:
            with ThreadPoolExecutor(4) as ranks:
                each = {
                    ranks.submit(run, slow, READ_AT_RANDOM, folder / "data", PMI_RANK=str(n))
                    for n in range(4)
                }
                for rank in each:
                    rank.result()
            return {row.process: row.reading for row in slow.counts()}

    seconds, _ = quietest(measure, lambda found, _: sorted(found.values())[-2] < found[2] / 2)
    assert sorted(seconds) == [0, 1, 2, 3]
    assert seconds.pop(2) > 2 * max(seconds.values())


def test_ranks_of_mpi_are_distinguished(folder):
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = shutil.which(beside) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    with SlowFileSystem(folder) as slow:
        subprocess.run(
            [mpiexec, "-n", "3", sys.executable, "-c", READ_AT_RANDOM, folder / "data"],
            env=os.environ | slow.environment(),
            check=True,
        )
        assert sorted((row.process, row.reads) for row in slow.counts()) == [
            *((0, 20), (1, 20), (2, 20))
        ]


@pytest.mark.full
def test_the_papers_way_and_ours_side_by_side(adk_xtc, tmp_path):
    """Check the counts of a short experiment; its times are meaningless."""
    pytest.importorskip("mpi4py")
    if not any(map(shutil.which, (Path(sys.executable).parent / "mpiexec", "mpiexec"))):
        pytest.skip("there is no mpiexec")
    from benchmarks.experiments.contention import EXPERIMENT, WAYS
    from benchmarks.experiments.experiment import Setting, median

    atoms = MDAnalysis.Universe(*adk_xtc).atoms
    atoms.write(str(tmp_path / "first.gro"))
    np.savetxt(tmp_path / "ca.txt", atoms.select_atoms("name CA").indices, "%d")
    shutil.copy(adk_xtc.trajectory, tmp_path / "adk.xtc")
    data = Dataset("adk", len(atoms.universe.trajectory), tmp_path)
    (tmp_path / "scratch").mkdir()
    rows = EXPERIMENT.measure(Setting(data, data, tmp_path / "scratch", 1, 0.01, 0.01))

    shared, split, ours = (way.name for way in WAYS)
    opens = {(row["way"], row["ranks"]): row["opens"] for row in rows}
    assert opens[shared, 2] - opens[shared, 1] >= 5  # topology, trajectory, offsets, and their lock
    assert opens[ours, 2] - opens[ours, 1] <= 1
    locks = {(row["way"], row["ranks"]): row["locks"] for row in rows}
    assert locks[shared, 2] >= locks[split, 2] == 4
    assert locks[ours, 2] == 0
    for row in rows:
        whole = os.path.getsize(tmp_path / "scratch" / "slow" / "whole.xtc")
        assert row["bytes_fetched"] >= whole
        assert row["t_total"] >= max(row["t_open"], row["t_io"])
    assert len(EXPERIMENT.table(rows).rows) == 3
    assert f"{median(rows, 'opens', way=ours, ranks=2):.0f} times" in EXPERIMENT.finding(rows)
    EXPERIMENT.draw(rows).savefig(tmp_path / "contention.png")


def test_a_file_system_that_makes_no_sense_is_refused(folder):
    with SlowFileSystem(folder, servers=100) as slow:
        done = subprocess.run(
            [sys.executable, "-c", ""],
            env=os.environ | slow.environment(),
            capture_output=True,
            text=True,
        )
    assert done.returncode != 0
    assert "SLOWFS_SERVERS: expected 1 to 64 servers" in done.stderr
