"""Tests that the next process removes files of a killed process, and none of a running process."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
from helpers.waiting import PATIENCE, until

import paceline
from paceline._util import leftovers
from paceline._util.leftovers import ScratchFolder, remove_leftovers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="nothing is locked there")

#: Script that runs on processes, and kills its whole session at once, so that no process can clean
#: up.
RUN = """
import os, signal, sys, paceline
backend, *files = sys.argv[1:]
atoms = paceline.Universe(*files).select_atoms("name CA")
def kill(block):
    os.killpg(int(os.environ["SESSION"]), signal.SIGKILL)
os.environ["SESSION"] = str(os.getpid())
paceline.TimeSeries(kill, atoms).run(backend=backend, n_workers=2)
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A separate temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    remove_leftovers.cache_clear()
    return folder


def run(code, *words, **options):
    command = [sys.executable, "-W", "ignore", "-c", code, *words]
    return subprocess.run(
        command, start_new_session=True, timeout=PATIENCE, capture_output=True, text=True, **options
    )


def names(folder):
    return sorted(path.name.rpartition("-")[0] for path in folder.iterdir())


def test_the_next_run_removes_what_a_killed_session_left(adk, temporary):
    assert run(RUN, "processes", *adk).returncode == -signal.SIGKILL
    assert names(temporary) == ["paceline-attempts"]
    atoms = paceline.Universe(*adk).select_atoms("name CA")
    analysis = paceline.TimeSeries(lambda block: block.times, atoms)
    analysis.run(backend="processes", n_workers=2)
    assert names(temporary) == []


def test_folders_of_processes_that_run_are_left_alone(temporary):
    other = temporary / "paceline-attempts-other"
    other.mkdir()
    with ScratchFolder("attempts") as folder, ScratchFolder("dask") as second:
        code = "from paceline._util.leftovers import remove_leftovers; remove_leftovers()"
        assert run(code).returncode == 0
        # `other` is new, and its owner cannot be determined.
        assert set(temporary.iterdir()) == {Path(folder), Path(second), other}
    os.utime(other, (0, 0))
    remove_leftovers()
    assert names(temporary) == []


def test_what_others_own_is_left_alone(temporary, monkeypatch):
    left = temporary / "paceline-dask-left"
    left.mkdir()
    os.utime(left, (0, 0))
    linked = temporary / "kept"
    linked.mkdir()
    (temporary / "paceline-dask-link").symlink_to(linked)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: 12345678)
        leftovers._remove_folders()
    assert left.exists()
    leftovers._remove_folders()
    assert not left.exists()
    assert linked.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="no /dev/shm")
def test_semaphores_are_removed_that_no_process_has(monkeypatch, tmp_path):
    monkeypatch.setattr(leftovers, "_ALL_PROCESSES", os.stat("/proc/self/ns/pid").st_ino)
    held = get_context("spawn").Lock()
    used = Path(f"/dev/shm/sem.{held._semlock.name[1:]}")
    seen = leftovers._mapped_semaphores()[0]
    assert used.stat().st_ino in seen
    monkeypatch.setattr(leftovers, "_mapped_semaphores", lambda: (seen, True))
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = [Path(f"/dev/shm/sem.{kind}-{gone.pid}-paceline") for kind in ("loky", "mp")]
    for path in left:
        path.write_bytes(bytes(32))
    new = Path(f"/dev/shm/sem.loky-paceline-new-{os.getpid()}")
    new.write_bytes(bytes(32))
    try:
        for path in (used, *left):
            os.utime(path, (time.time() - 60,) * 2)
        leftovers._remove_semaphores()
        assert not any(path.exists() for path in left)
        assert used.exists()
        assert new.exists()
        for path in left:
            path.write_bytes(bytes(32))
            os.utime(path, (time.time() - 60,) * 2)
        # A process may use the semaphore whose creator is unknown.
        monkeypatch.setattr(leftovers, "_mapped_semaphores", lambda: (seen, False))
        leftovers._remove_semaphores()
        assert [path.exists() for path in left] == [False, True]
        # Inside a container, the processes that use it are invisible.
        monkeypatch.setattr(leftovers, "_mapped_semaphores", lambda: (seen, True))
        monkeypatch.setattr(leftovers, "_ALL_PROCESSES", 0)
        leftovers._remove_semaphores()
        assert left[1].exists()
    finally:
        for path in (new, *left):
            path.unlink(missing_ok=True)
    assert held.acquire(block=False)


def test_a_cluster_of_dask_leaves_nothing_for_long(adk, temporary):
    pytest.importorskip("distributed")
    code = (
        "import sys, paceline\n"
        "atoms = paceline.Universe(*sys.argv[1:]).select_atoms('name CA')\n"
        "analysis = paceline.TimeSeries(lambda block: block.times, atoms)\n"
        "analysis.run(backend='dask', n_workers=1)\n"
    )
    left = ScratchFolder("dask")
    os.close(left._lock)  # as if this process were killed
    assert run(code, *adk).returncode == 0
    until(lambda: not list(temporary.iterdir()))
