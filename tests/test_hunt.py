"""Tests that run a tenth of the hunt, and check that it detects errors."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import mutations, trials
from helpers.mpi import LONGEST, needs_mpi
from helpers.trials import Forbidden, TrajectoryTrial

from paceline.trajectory import open as opening

HUNT = Path(__file__).with_name("hunt.py")


def hunt(*words):
    """Run a part of the hunt in a separate process, since it forks; it must find no error."""
    command = [sys.executable, "-W", "ignore", str(HUNT), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    first, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert first[:2] == ["kind", "runs"]
    return {row[0]: dict(zip(first[1:], map(int, row[1:]), strict=True)) for row in rows}


def test_changed_files():
    found = hunt("mutations", "--seed", "1", "--runs", "100")
    assert found.keys() == {*mutations.KINDS, "all"}
    assert found["all"]["runs"] == 100
    # The hunt must not refuse all files, and must change some of them.
    assert all(found["all"][outcome] > 2 for outcome in ("refused", "told", "equal", "unseen"))


@needs_mpi
def test_killed_processes():
    kinds = ["convert to XTC", "H5MDWriter", "repack", "index", "checkpoint", "snapshots, H5MD"]
    found = hunt("kills", "--seed", "1", "--runs", "6", "--kinds", *kinds)
    assert found["all"]["runs"] == 6


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for children in /proc")
def test_killed_workers():
    found = hunt("workers", "--seed", "1", "--runs", "4")
    assert found["all"] == {"runs": 4, "same bits": 4}


def test_files_of_other_packages():
    found = hunt("files")
    assert found["MDAnalysisTests"]["equal"] > 30


class TestJudges:
    """Tests of expected findings."""

    @pytest.fixture
    def trial(self, tmp_path):
        return TrajectoryTrial("dcd", tmp_path)

    def judge(self, trial, folder, monkeypatch, change):
        """Judge a valid file that is read in another way."""
        read = trials.read

        def changed(path, options):
            found = read(path, options)
            return change(found) or found

        monkeypatch.setattr(trials, "read", changed)
        return trial.judge(folder, trial.sound.content, mutations.np.random.default_rng(0))

    def test_a_sound_file(self, trial, tmp_path, monkeypatch):
        found = self.judge(trial, tmp_path, monkeypatch, lambda found: None)
        assert found == ("equal", "")

    def test_numbers_that_differ(self, trial, tmp_path, monkeypatch):
        def change(found):
            found.frames[3].positions[0, 0] += 1

        with pytest.raises(Forbidden, match="sees other numbers"):
            self.judge(trial, tmp_path, monkeypatch, change)

    def test_a_frame_of_another_place(self, trial, tmp_path):
        frames = trial.whole.frames
        frames[2], frames[3] = frames[3], frames[2]
        with pytest.raises(Forbidden, match="another frame: 2 differs"):
            trial.judge(tmp_path, trial.sound.content, mutations.np.random.default_rng(0))

    def test_fewer_frames_without_a_word(self, trial, tmp_path, monkeypatch):
        trial.whole.frames.append(trial.whole.frames[0])
        with pytest.raises(Forbidden, match="short: 10 of 11 frames"):
            trial.judge(tmp_path, trial.sound.content, mutations.np.random.default_rng(0))

    def test_a_time_that_is_none(self, trial, tmp_path, monkeypatch):
        def change(found):
            found.frames[4] = found.frames[4]._replace(time=mutations.np.array(1e20))

        with pytest.raises(Forbidden, match="garbage: frame 4 has the time"):
            self.judge(trial, tmp_path, monkeypatch, change)

    def test_an_error_of_another_kind(self, trial, tmp_path, monkeypatch):
        def fail(*_, **__):
            raise KeyError("what")

        monkeypatch.setattr(opening, "IndexedFile", fail)
        with pytest.raises(Forbidden, match="a foreign error: KeyError"):
            trial.judge(tmp_path, trial.sound.content, mutations.np.random.default_rng(0))


class Bad(TrajectoryTrial):
    """Harmful files, one after another; each child process begins with the file of its number."""

    def judge(self, folder, content, random):
        if content == self.sound.content:
            return "equal", ""
        numbers = range(3)
        [number] = [k for k in numbers if mutations.mutation("dcd", self.sound, 1, k) == content]
        if number == 0:
            time.sleep(600)
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return "unseen", str(len(bytes(b"1" * 2 * mutations.MEMORY)))


@pytest.mark.full
def test_crashes_hangs_and_memory_are_found(monkeypatch):
    monkeypatch.setitem(mutations.TRIALS, "dcd", Bad)
    monkeypatch.setattr(mutations, "MEMORY", 64 << 20)
    monkeypatch.setattr(mutations, "PATIENCE", 30.0)
    found = [one.outcome for one in mutations.survey(1, 3, ("dcd",))]
    assert found == ["hang", "crash", "memory"]
