"""Tests of resuming a killed run: the same bits, or a message that says why it cannot resume."""

import argparse
import collections
import contextlib
import copy
import functools
import os
import pickle
import pickletools
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from itertools import pairwise

import MDAnalysis
import numpy as np
import pytest
from helpers.timed_files import TWO_WAYS, read_in_two_ways
from helpers.waiting import PATIENCE, until
from MDAnalysis.transformations import translate

import paceline
import paceline.checkpoint
from paceline import cli, transform
from paceline._util.journal import MAGIC, Journal
from paceline._util.python_object_digest import digest
from paceline._util.signals import Stopping
from paceline.analysis.rms import RMSD, RMSF
from paceline.engine.worker import Worker
from paceline.errors import (
    AnalysisError,
    CheckpointError,
    PacelineWarning,
    Terminated,
    UnsupportedError,
)

#: Default settings for users.
INTERVAL, SHARE = paceline.checkpoint.INTERVAL, paceline.checkpoint.SHARE


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Save each result immediately."""
    monkeypatch.setattr(paceline.checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(paceline.checkpoint, "SHARE", 0)


@pytest.fixture(scope="module")
def atoms(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


def trio(atoms, marker=None, block=64):
    """An RMSD, an RMSF, and a function that raises an error at one block while a file exists."""

    def function(block):
        if marker is not None and block.frames[0] == at and os.path.exists(marker):
            raise RuntimeError("enough")
        return block.positions.mean(axis=1)

    at = block
    return [RMSD(atoms), RMSF(atoms), paceline.TimeSeries(function, atoms)]


def bits(analyses):
    rmsd, rmsf, series = (analysis.results for analysis in analyses)
    return [array.tobytes() for array in (rmsd.rmsd, rmsf.rmsf, series.timeseries, series.times)]


@pytest.fixture(scope="module")
def whole(atoms):
    return bits(paceline.run(trio(atoms), backend="serial"))


@pytest.fixture
def broken(atoms, tmp_path):
    """A checkpoint with the first four of seven blocks."""
    marker = tmp_path / "marker"
    marker.touch()
    path = tmp_path / "run.checkpoint"
    with pytest.raises(AnalysisError, match="enough") as caught:
        paceline.run(trio(atoms, str(marker)), backend="serial", checkpoint=path, block_frames=16)
    [note] = caught.value.__notes__
    assert note.startswith(f"64 of 98 frames are kept in {path}; ")
    marker.unlink()
    return path


def go_on(atoms, path, **options):
    marker = str(path.with_name("marker"))
    return paceline.run(trio(atoms, marker), checkpoint=path, **options)


def test_another_backend_goes_on_with_the_same_bits(where, atoms, broken, whole):
    done = go_on(atoms, broken, **where)
    assert bits(done) == whole
    assert not broken.exists()
    timings = done[0].timings
    assert timings.n_frames == 98
    assert sorted(block.block for block in timings.blocks) == list(range(7))


def test_what_is_kept_is_not_done_again(atoms, broken, tmp_path, monkeypatch):
    done = []
    compute = RMSF(atoms).prepare().__class__.compute
    monkeypatch.setattr(
        "paceline.analysis.kernels.CoreMoments.compute",
        lambda self, block: done.extend(block.frames) or compute(self, block),
    )
    go_on(atoms, broken, backend="serial")
    assert done == list(range(64, 98))


def test_times_of_both_parts_stand_one_after_the_other(atoms, broken):
    time.sleep(0.2)
    timings = go_on(atoms, broken, backend="serial", n_workers=1)[0].timings
    blocks = timings.blocks
    assert [block.block for block in blocks] == list(range(7))
    assert all(one.end <= next.start for one, next in pairwise(blocks))
    assert timings.start <= timings.dealt <= blocks[0].start
    assert blocks[-1].end <= timings.end
    for worker in timings.workers():
        assert worker.t_wait >= 0


def test_an_ensemble_with_damaged_frames_goes_on(damaged, adk_xtc, tmp_path):
    system, frames = damaged
    first, second = (paceline.Universe(*one).select_atoms("name CA") for one in (system, adk_xtc))
    marker, path = tmp_path / "marker", tmp_path / "checkpoint"

    def run(**options):
        analyses = trio(first) + trio(second, str(marker))
        return paceline.run(analyses, on_error="skip", backend="serial", **options)

    expected = run()
    marker.touch()
    with pytest.raises(AnalysisError) as caught:
        run(checkpoint=path, block_frames=16)
    assert caught.value.__notes__[0].startswith("162 of 196 frames are kept in ")
    marker.unlink()
    found = run(checkpoint=path)
    assert bits(found[:3]) == bits(expected[:3])
    assert bits(found[3:]) == bits(expected[3:])
    assert [frame for frame, _ in found[0].damaged] == frames
    assert [one.damaged for one in found] == [one.damaged for one in expected]
    assert found[0].timings.n_frames == 196


#: Script that runs an analysis in child processes, kills them, and then completes it. A child is
#: killed a given time after a given number of bytes was saved, and cannot reach its last blocks.
#: The script prints how many bytes each child saved, and whether the results have the same bits.
KILLED = """
import hashlib, os, signal, time
import numpy as np
import paceline
import paceline.checkpoint
from paceline.analysis.rms import RMSD, RMSF
from paceline.engine.worker import Worker

paceline.checkpoint.INTERVAL, paceline.checkpoint.SHARE = 0.0, 0
atoms = paceline.Universe(*{system!r}).select_atoms("name CA")
frames = np.tile(np.arange(98), 4)
do_block = Worker.run

def run(path=None, n_workers=2):
    analyses = [RMSD(atoms), RMSF(atoms), paceline.TimeSeries(function, atoms)]
    paceline.run(analyses, n_workers=n_workers, checkpoint=path, block_frames=16, frames=frames)
    rmsd, rmsf, series = (analysis.results for analysis in analyses)
    arrays = (rmsd.rmsd, rmsf.rmsf, series.timeseries)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()

def function(block):
    return block.positions.mean(axis=1)

def slowly(self, work):
    time.sleep(0.005 if work.number < 20 else 600)
    return do_block(self, work)

def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0

def in_child(path, n_bytes, seconds):
    child = os.fork()
    if child == 0:
        Worker.run = slowly
        run(path, 3)
    while size(path) < n_bytes:
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

expected = run(n_workers=1)
for trial, kills in enumerate({kills!r}):
    path = f"{folder}/{{trial}}"
    for kill in kills:
        in_child(path, *kill)
        print(size(path))
    print(run(path, 3) == expected)
"""


def test_killed_at_any_moment_it_goes_on_with_the_same_bits(adk_xtc, tmp_path):
    moments = np.random.default_rng(5).uniform(0, 0.06, (5, 2)).tolist()
    # In each trial, the first child may find nothing saved; the second finds a checkpoint to
    # resume.
    kills = [[(0, first), (10_000, second)] for first, second in moments]
    program = KILLED.format(system=tuple(adk_xtc), kills=kills, folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[2::3] == ["True"] * 5
    assert min(map(int, lines[1::3])) >= 10_000
    assert list(tmp_path.iterdir()) == []


def other_block(block):
    return block.positions.mean(axis=2)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"stop": 50}, "frames: 98 from 0 to 97 there, 50 from 0 to 49 here"),
        (
            {"frames": [0, *range(96, 0, -1), 97]},
            r"frames: not the same as there \(98 from 0 to 97",
        ),
        ({"on_error": "skip"}, "on_error: raise there, skip here"),
        (
            {"transforms": [transform.center("protein", point=(0, 0, 0))]},
            r"transforms: none there, center\('protein', point=.*\) here",
        ),
    ],
)
def test_another_run_is_refused(change, differs, atoms, broken):
    before = broken.read_bytes()
    with pytest.raises(CheckpointError, match=f"is the checkpoint of another run: {differs}"):
        go_on(atoms, broken, **change)
    assert broken.read_bytes() == before


def test_other_analyses_are_refused(atoms, broken):
    def refused(analyses, differs):
        with pytest.raises(CheckpointError, match=f"is the checkpoint of another run: {differs}"):
            paceline.run(analyses, checkpoint=broken)

    rmsd, rmsf, series = trio(atoms, str(broken.with_name("marker")))
    refused([rmsd, rmsf], "analyses: RMSD, RMSF, TimeSeries of .* there, RMSD, RMSF here")
    refused([rmsf, rmsd, series], "analyses: RMSD, RMSF, .* there, RMSF, RMSD, .* here")
    refused([RMSD(atoms, ref_frame=1), rmsf, series], "parameters of RMSD: .* there, .* here")
    weights = RMSD(atoms, weights=np.arange(len(atoms)))
    refused([weights, rmsf, series], "parameters of RMSD: .*weights=None.* there, .*weights=given")
    refused([rmsd, RMSF(atoms[1:]), series], "atoms of RMSF: 214 there, 213 here")
    refused([rmsd, RMSF(atoms[::-1]), series], r"atoms of RMSF: not the same as there \(214\)")
    moved = trio(atoms, str(broken.with_name("marker")), block=80)
    refused(moved, "function or reference of TimeSeries of .*: not the same as there")


class Deviations:
    def __init__(self, mean):
        self.mean = mean

    def compute(self, block):
        return np.abs(block.positions - self.mean).mean(axis=(1, 2))


class FromPlace(paceline.AnalysisBase):
    """Analysis with two passes; the second pass needs numbers of the client part."""

    stages = 2

    def __init__(self, atomgroup, place, remark=""):
        super().__init__(atomgroup)
        self.place, self.remark, self.shift = place, remark, None

    def prepare(self):
        return RMSF(self.atomgroup).prepare()

    def next_stage(self, value):
        self.shift = self._shift(value[1])
        return Deviations(self.shift)

    def _shift(self, mean):
        return mean + self.place

    def finish(self, value):
        self.results.rows = value


def test_what_later_passes_need_is_compared(atoms, tmp_path, monkeypatch):
    path, do, n_done = tmp_path / "checkpoint", Worker.run, []

    def failing(self, task):
        n_done.append(task.number)
        if len(n_done) == 12:  # of 7 blocks, in two passes
            raise RuntimeError("enough")
        return do(self, task)

    monkeypatch.setattr(Worker, "run", failing)
    broken = FromPlace(atoms, 1.0)
    with pytest.raises(RuntimeError, match="enough"):
        broken.run(backend="serial", checkpoint=path, block_frames=16)
    monkeypatch.setattr(Worker, "run", do)
    with pytest.raises(CheckpointError, match="function or reference of FromPlace: not the same"):
        FromPlace(atoms, 2.0).run(checkpoint=path)
    # Attributes set by the earlier run are not arguments, and neither is the current frame.
    atoms.universe.trajectory[5]
    broken.remark = "once more"
    broken.run(checkpoint=path)
    np.testing.assert_array_equal(broken.results.rows, FromPlace(atoms, 1.0).run().results.rows)


def test_another_file_is_refused(adk, atoms, broken, tmp_path):
    other = paceline.Universe(*adk).select_atoms("name CA")
    with pytest.raises(CheckpointError, match=r"trajectory: .*\.xtc there, .*\.dcd here"):
        go_on(other, broken)
    replicas = [one for _ in range(2) for one in trio(paceline.Universe(*adk).atoms)]
    with pytest.raises(CheckpointError, match="number of trajectories: 1 there, 2 here"):
        paceline.run(replicas, checkpoint=broken)


_DIFFERENCES = (
    "frames of the files: all there, 40 of 50 here",
    r"atoms of the files: not the same as there \(6 of 30\)",
    "units: A, ps there, nm, ps here",
    "datasets: /particles/atoms/position/value there, /particles/other/position/value here",
    "units: real there, nano here",
    "units: real there, nano here",
)


@pytest.mark.parametrize(("kind", "differs"), [*zip(TWO_WAYS, _DIFFERENCES, strict=True)])
@pytest.mark.filterwarnings("ignore")
def test_the_same_file_read_otherwise_is_refused(kind, differs, tmp_path):
    first, second = read_in_two_ways(kind, tmp_path)
    marker, path = tmp_path / "marker", tmp_path / "checkpoint"

    def run(universe, **options):
        analyses = trio(universe.atoms, str(marker), block=16)
        return paceline.run(analyses, stop=40, backend="serial", block_frames=16, **options)

    marker.touch()
    with pytest.raises(AnalysisError, match="enough"):
        run(first, checkpoint=path)
    marker.unlink()
    with pytest.raises(CheckpointError, match=f"is the checkpoint of another run: {differs}"):
        run(second, checkpoint=path)
    assert bits(run(first, checkpoint=path)) == bits(run(first))
    assert not path.exists()


@pytest.mark.parametrize(
    ("sample", "byte", "noticed"),
    [(0, 4095, True), (1, 0, True), (8, 4095, True), (17, 4095, True), (1, -1, False)],
)
def test_a_trajectory_is_recognised_by_the_samples_that_the_manual_names(
    sample, byte, noticed, adk, tmp_path
):
    path = tmp_path / "a.dcd"
    shutil.copy(adk.trajectory, path)
    marker = tmp_path / "marker"
    marker.touch()

    def run():
        analyses = trio(paceline.Universe(adk.topology, path).atoms, str(marker))
        return paceline.run(analyses, backend="serial", checkpoint=tmp_path / "checkpoint")

    with pytest.raises(AnalysisError, match="enough"):
        run()
    marker.unlink()
    content = bytearray(path.read_bytes())
    content[(len(content) - 4096) * sample // 17 + byte] ^= 1
    path.write_bytes(content)
    if noticed:
        with pytest.raises(CheckpointError, match="trajectory: not the same as there"):
            run()
    else:
        assert run()[0].timings.n_frames == 98


def test_what_cannot_be_gone_on_with_is_refused_by_name(adk, atoms, tmp_path):
    path = tmp_path / "checkpoint"
    with pytest.raises(UnsupportedError, match=r"^Write writes a file while blocks arrive"):
        paceline.Write(atoms, tmp_path / "out.xtc").run(checkpoint=path)
    moved = MDAnalysis.Universe(*adk)
    moved.trajectory.add_transformations(translate([1, 2, 3]))
    with (
        pytest.warns(PacelineWarning, match="transformed by MDAnalysis"),
        pytest.raises(UnsupportedError, match=r"is read by MDAnalysis, .* without a checkpoint"),
    ):
        RMSF(moved.atoms).run(checkpoint=path)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        RMSF(atoms).run(checkpoint=tmp_path / "nowhere" / "checkpoint")
    assert list(tmp_path.iterdir()) == []


def test_no_other_file_is_touched(atoms, tmp_path):
    path = tmp_path / "precious.csv"
    path.write_text("frame,RMSD\n0,1.5\n")
    with pytest.raises(CheckpointError, match=r"expected a checkpoint, .* found b'frame,RMSD"):
        RMSF(atoms).run(checkpoint=path)
    assert path.read_text() == "frame,RMSD\n0,1.5\n"


def test_an_earlier_format_is_refused_and_kept(atoms, broken):
    content = broken.read_bytes()
    earlier = content.replace(MAGIC, b"paceline checkpoint 1\n", 1)
    assert earlier != content
    broken.write_bytes(earlier)
    message = (
        rf"^{broken}: this checkpoint was written by an earlier version of paceline, .* delete"
    )
    with pytest.raises(CheckpointError, match=message):
        go_on(atoms, broken)
    assert broken.read_bytes() == earlier


def test_records_name_no_module_of_ours(broken):
    with Journal(broken) as journal:
        _header, *records = journal.records()
    assert len(records) == 4
    for record in records:
        _, _, nodes, *_ = pickle.loads(record)
        for data in (record, *nodes.values()):
            names = [text for _, text, _ in pickletools.genops(data) if isinstance(text, str)]
            assert any("numpy" in name for name in names)
            assert not any("paceline" in name for name in names)


def test_a_torn_record_is_left_out(atoms, broken, whole):
    content = broken.read_bytes()
    ends = [len(content) - 1, len(content) - 40, len(content) // 2, len(MAGIC) + 3, 5, 0]
    for end in ends:
        broken.write_bytes(content[:end])
        assert bits(go_on(atoms, broken, backend="serial")) == whole
    # The file has grown, but the bytes were not yet on the disk when the power failed.
    broken.write_bytes(content + bytes(5000))
    assert bits(go_on(atoms, broken, backend="serial")) == whole


def test_a_damaged_record_is_an_error(atoms, broken):
    content = broken.read_bytes()
    with Journal(broken) as journal:
        sizes = [len(record) + 16 for record in journal.records()]
    second = len(MAGIC) + sizes[0]
    for place in (second + 3, second + 13, second + 16, second + sizes[1] - 1):
        changed = bytearray(content)
        changed[place] ^= 4
        broken.write_bytes(changed)
        message = (
            rf"{broken}: record at byte {second}: expected checksum \w{{8}}, found \w{{8}}; the "
            "checkpoint was damaged after it was written: delete it to begin anew"
        )
        with pytest.raises(CheckpointError, match=message):
            go_on(atoms, broken)
        assert broken.read_bytes() == changed


def test_two_runs_cannot_share_a_checkpoint(atoms, broken, whole):
    with Journal(broken), pytest.raises(CheckpointError, match="another run is using this"):
        go_on(atoms, broken)
    assert bits(go_on(atoms, broken)) == whole


def test_a_worker_that_outlives_its_parent_holds_no_lock(tmp_path):
    path = tmp_path / "checkpoint"
    journal = Journal(path)
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begins, b"!")
        time.sleep(600)
        os._exit(0)
    try:
        os.read(begun, 1)
        journal.close()
        Journal(path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(begins)


def test_without_locks_the_user_is_warned(atoms, tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(PacelineWarning, match="its file system has no locks"):
        RMSF(atoms).run(checkpoint=tmp_path / "checkpoint")


@pytest.mark.parametrize("cost", [0.0, 0.001, 0.5, 3.0])
def test_writing_takes_a_fiftieth_of_the_time_at_most(cost, tmp_path, monkeypatch):
    now, writes = [0.0], []

    def write():
        writes.append(now[0])
        now[0] += cost

    monkeypatch.setattr(paceline.checkpoint, "INTERVAL", INTERVAL)
    monkeypatch.setattr(paceline.checkpoint, "SHARE", SHARE)
    # Other threads need the time as it is.
    monkeypatch.setattr(paceline.checkpoint, "time", argparse.Namespace(monotonic=lambda: now[0]))
    kept = paceline.checkpoint.Checkpoint(tmp_path / "checkpoint")
    monkeypatch.setattr(kept, "_write", write)
    kept._stage = [argparse.Namespace(collected=argparse.Namespace(add=lambda result: None))]
    kept._due = INTERVAL
    while now[0] < 500:
        now[0] += 0.125
        kept.add(argparse.Namespace(job=0))
    assert writes[0] == INTERVAL == 1
    assert cost * (len(writes) - 1) <= 0.02 * now[0]
    if cost < 0.02:
        assert 440 < len(writes) <= 500


def test_on_a_full_disk_the_run_goes_on(atoms, broken, whole, monkeypatch):
    kept = []
    pwrite = os.pwrite

    def full(file, data, offset):
        if offset > 30_000:
            raise OSError(28, "No space left on device")
        kept.append(pwrite(file, data[: max(1, len(data) // 2)], offset))
        return kept[-1]

    monkeypatch.setattr(os, "pwrite", full)
    marker = broken.with_name("marker")
    path = broken.with_name("second")
    marker.touch()
    with (
        pytest.warns(PacelineWarning, match=r"second: No space left on device: the run continues"),
        pytest.raises(AnalysisError) as caught,
    ):
        paceline.run(trio(atoms, str(marker)), backend="serial", checkpoint=path, block_frames=16)
    n_kept = int(caught.value.__notes__[0].split()[0])
    assert n_kept in (16, 32, 48)
    monkeypatch.undo()
    marker.unlink()
    assert bits(go_on(atoms, path)) == whole


def test_on_a_full_disk_nothing_is_left(atoms, tmp_path, monkeypatch):
    def full(file, data, offset):
        raise OSError(28, "No space left on device")

    path = tmp_path / "checkpoint"
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        RMSF(atoms).run(checkpoint=path)
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def full_disk(monkeypatch):
    """Return a context in which nothing can be written to a journal."""

    def full(file, data, offset):
        raise OSError(28, "No space left on device")

    @contextlib.contextmanager
    def entered():
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
            patch.setattr(os, "pwrite", full)
            yield
        [warning] = told
        assert "No space left on device: the run continues" in str(warning.message)

    return entered


def test_on_a_full_disk_a_resumed_run_goes_on(atoms, broken, whole, full_disk):
    with full_disk():
        resumed = go_on(atoms, broken, backend="serial")
    assert bits(resumed) == whole
    assert not broken.exists()


def test_on_a_full_disk_what_was_kept_is_left_as_it_was(atoms, broken, whole, full_disk):
    before, marker = broken.read_bytes(), broken.with_name("marker")
    marker.touch()  # the run ends once more at the first remaining block
    with full_disk(), pytest.raises(AnalysisError) as caught:
        go_on(atoms, broken, backend="serial")
    assert caught.value.__notes__[0].startswith(f"64 of 98 frames are kept in {broken}; ")
    assert broken.read_bytes() == before
    marker.unlink()
    assert {one.name for one in broken.parent.iterdir()} == {broken.name}
    assert bits(go_on(atoms, broken)) == whole


def test_a_resumed_run_is_kept_once_there_is_room(atoms, broken, whole, monkeypatch):
    done = []
    pwrite = os.pwrite
    compute = RMSF(atoms).prepare().__class__.compute

    def full_at_first(file, data, offset):
        if 80 not in done:
            raise OSError(28, "No space left on device")
        return pwrite(file, data, offset)

    def enough(self, block):
        done.append(block.frames[0])
        if block.frames[0] == 96:
            raise RuntimeError("enough")
        return compute(self, block)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_at_first)
        patch.setattr("paceline.analysis.kernels.CoreMoments.compute", enough)
        with (
            pytest.warns(PacelineWarning, match="No space left on device: the run continues"),
            pytest.raises(AnalysisError) as caught,
        ):
            go_on(atoms, broken, backend="serial")
    assert done == [64, 80, 96]
    assert caught.value.__notes__[0].startswith(f"96 of 98 frames are kept in {broken}")
    resumed = go_on(atoms, broken, backend="serial")
    assert bits(resumed) == whole
    assert sorted(block.block for block in resumed[0].timings.blocks) == list(range(7))


def test_the_journal_holds_little_of_no_use(atoms, tmp_path, monkeypatch):
    sizes, dead = [], []
    path = tmp_path / "checkpoint"
    add = paceline.checkpoint.Checkpoint.add

    def measured(self, outcome):
        add(self, outcome)
        sizes.append(path.stat().st_size)
        dead.append(self._dead)

    monkeypatch.setattr(paceline.checkpoint.Checkpoint, "add", measured)
    frames = np.tile(np.arange(98), 20)
    found = RMSF(atoms).run(checkpoint=path, frames=frames, block_frames=16, backend="serial")
    assert len(sizes) == 123
    assert max(dead) > 0
    for size, useless in zip(sizes, dead, strict=True):
        assert size <= paceline.checkpoint.GROWTH * (size - useless) + 1
    assert found.results.rmsf.tobytes() == RMSF(atoms).run(frames=frames).results.rmsf.tobytes()


class Counts:
    """Partial result whose class is found by its name."""

    def __init__(self, n):
        self.n = n


class Count(paceline.AnalysisBase):
    def prepare(self):
        return self

    def compute(self, block):
        if block.frames[0] == 64 and os.path.exists(self.marker):
            raise RuntimeError("enough")
        return Counts(len(block))

    def merge(self, left, right):
        assert type(left) is type(right) is Counts
        return Counts(left.n + right.n)

    def finish(self, value):
        self.results.n = value.n

    def __getstate__(self):
        return {"marker": self.marker}


def test_objects_of_ones_own_are_kept(atoms, tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "checkpoint"
    marker.touch()
    count = Count(atoms)
    count.marker = str(marker)
    with pytest.raises(AnalysisError):
        count.run(checkpoint=path, backend="serial")
    marker.unlink()
    assert count.run(checkpoint=path).results.n == 98


class Above:
    """Function of a block with a parameter."""

    def __init__(self, height, marker):
        self.height, self.marker = height, marker

    def __call__(self, block):
        if block.frames[0] == 64 and os.path.exists(self.marker):
            raise RuntimeError("enough")
        return (block.positions[..., 2] > self.height).sum(axis=1)


def called(function, block):
    return function(block)


@pytest.mark.parametrize("make", [Above, lambda *given: functools.partial(called, Above(*given))])
def test_objects_that_can_be_called_are_known_again(make, atoms, tmp_path):
    """Check functions that are created again, with other addresses, as in another process."""
    marker, path = str(tmp_path / "marker"), tmp_path / "checkpoint"
    open(marker, "w").close()
    first = paceline.TimeSeries(make(10, marker), atoms)
    with pytest.raises(AnalysisError, match=r"^TimeSeries of (Above|called) raised"):
        first.run(checkpoint=path, backend="serial", block_frames=16)
    with pytest.raises(CheckpointError, match="function or reference of TimeSeries of"):
        paceline.TimeSeries(make(11, marker), atoms).run(checkpoint=path)
    os.remove(marker)
    found = paceline.TimeSeries(make(10, marker), atoms).run(checkpoint=path)
    assert "0x" not in str(found.results.provenance)
    again = paceline.TimeSeries(make(10, marker), atoms).run()
    assert np.array_equal(found.results.timeseries, again.results.timeseries)


#: Command that never ends after four of its blocks, which are saved immediately. It creates a file
#: when some blocks are saved.
SLOW = """
import sys, time
from paceline import checkpoint, cli
from paceline.analysis import kernels

compute = kernels.CoreRows.compute

def slowly(self, block, *rows):
    time.sleep(0 if block.frames[0] < 64 else 600)
    return compute(self, block, *rows)

write = checkpoint.Checkpoint._write

def write_visibly(self):
    write(self)
    open({marker!r}, "w").close()

kernels.CoreRows.compute = slowly
checkpoint.Checkpoint._write = write_visibly
checkpoint.INTERVAL, checkpoint.SHARE = 0.0, 0
sys.argv = ["/usr/bin/paceline", *{argv!r}]
sys.exit(cli.main())
"""


@pytest.mark.parametrize(
    ("number", "status", "last"),
    [(signal.SIGTERM, 143, []), (signal.SIGINT, 130, ["paceline: interrupted"])],
)
def test_a_command_that_is_stopped_says_how_to_go_on(
    number, status, last, adk_xtc, tmp_path, capsys
):
    path, marker = tmp_path / "run 1.checkpoint", tmp_path / "kept"
    argv = ["rmsd", *adk_xtc, "--n-workers", "2", "--checkpoint", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.format(argv=argv, marker=str(marker))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(marker.exists)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out) == (status, "")
    first, *others = err.splitlines()
    assert others == last
    kept = re.fullmatch(
        rf"paceline: (\d+) of 98 frames are kept in {path}; go on with: (.*)", first
    )
    assert kept is not None
    assert 16 <= int(kept[1]) <= 64
    assert kept[2].startswith("paceline rmsd ")
    assert kept[2].endswith(f"--checkpoint '{path}'")

    assert cli.main(argv) == 0
    resumed = capsys.readouterr().out
    assert not path.exists()
    assert cli.main(argv[: argv.index("--n-workers")]) == 0
    assert capsys.readouterr().out == resumed


def test_what_is_stopped_before_its_first_block_leaves_nothing(atoms, tmp_path, capsys):
    def function(block):
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Terminated) as caught:
        paceline.TimeSeries(function, atoms).run(backend="serial", checkpoint=tmp_path / "kept")
    assert caught.value.code == 143
    kept, begin = capsys.readouterr().err.rstrip("\n").split("; ")
    assert kept == "paceline: no results were kept yet, and there is no checkpoint"
    assert begin.startswith(("begin anew with: ", "the same call begins anew"))
    assert list(tmp_path.iterdir()) == []


def test_a_command_keeps_what_it_could_not_save(adk_xtc, tmp_path, capsys, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device", "a.csv")

    path = tmp_path / "checkpoint"
    argv = ["rmsd", *adk_xtc, "-o", str(tmp_path / "a.csv"), "--checkpoint", str(path)]
    with monkeypatch.context() as patch:
        patch.setattr("paceline.analysis.results.Results.save", full)
        patch.setattr(sys, "argv", ["paceline", *argv])
        assert cli.main(argv) == 1
    failed, kept = capsys.readouterr().err.splitlines()
    assert failed == "paceline: error: a.csv: No space left on device"
    assert kept.startswith(f"paceline: 98 of 98 frames are kept in {path}; go on with: paceline rm")
    monkeypatch.setattr(
        "paceline.analysis.kernels.CoreRows.compute", None
    )  # no block may be computed again
    assert cli.main(argv) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]


def test_a_script_that_is_stopped_ends_with_its_status(adk_xtc, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, paceline\n"
        "from paceline.analysis.rms import RMSF\n"
        f"atoms = paceline.Universe(*{tuple(adk_xtc)!r}).select_atoms('name CA')\n"
        "def function(block):\n"
        "    if block.frames[0] == 48:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return block.times\n"
        f"both = [RMSF(atoms), paceline.TimeSeries(function, atoms)]\n"
        f"paceline.run(both, backend='serial', checkpoint={str(tmp_path / 'kept')!r})\n"
    )
    command = [sys.executable, str(script), "a b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr == (
        f"paceline: 48 of 98 frames are kept in {tmp_path / 'kept'}; go on with: "
        f"{sys.executable} {script} 'a b'\n"
    )


def test_signals_are_handled_while_a_run_goes_on_and_not_otherwise(atoms, tmp_path):
    def handlers():
        return signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    seen = []

    def function(block):
        seen.append(handlers())
        return block.times

    before = handlers()
    series = paceline.TimeSeries(function, atoms)
    series.run(backend="serial")
    assert set(seen) == {before}
    seen.clear()
    series.run(backend="serial", checkpoint=tmp_path / "checkpoint")
    assert before not in seen
    assert handlers() == before
    # Signals of the program itself and of other threads are not changed.
    seen.clear()
    own = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        series.run(backend="serial", checkpoint=tmp_path / "checkpoint")
        assert len({terminate for terminate, _ in seen}) == 1
    finally:
        signal.signal(signal.SIGTERM, own)
    options = {"backend": "serial", "checkpoint": tmp_path / "checkpoint"}
    thread = threading.Thread(target=series.run, kwargs=options)
    thread.start()
    thread.join()
    assert series.results.timeseries.shape == (98,)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_waits_until_results_are_in_their_place():
    with Stopping() as stopping:
        reached = []
        with pytest.raises(KeyboardInterrupt), stopping.delayed():
            reached.append(signal.raise_signal(signal.SIGINT))
        assert reached == [None]
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)


def test_ctrl_c_is_delayed_without_a_checkpoint_too():
    reached = []
    with Stopping([signal.SIGINT]):
        with pytest.raises(KeyboardInterrupt), Stopping.delayed():
            reached.append(signal.raise_signal(signal.SIGINT))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert reached == [None]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_cannot_be_kept_is_reported(atoms, tmp_path, monkeypatch):
    class Unkept(Count):
        def compute(self, block):
            if self.marker is not None and block.frames[0] == 32:
                raise RuntimeError("enough")
            return threading.Lock()

        def merge(self, left, right):
            return left

    count = Unkept(atoms)
    count.marker = None
    with pytest.raises(
        CheckpointError, match=r"^a partial result cannot be stored in a checkpoint"
    ):
        count.run(checkpoint=tmp_path / "checkpoint", backend="serial")
    assert list(tmp_path.iterdir()) == []
    # An error of the checkpoint does not hide another error.
    monkeypatch.setattr(paceline.checkpoint, "INTERVAL", 60.0)
    count.marker = ""
    with pytest.raises(AnalysisError, match="enough"):
        count.run(checkpoint=tmp_path / "checkpoint", backend="serial", block_frames=16)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_run_that_ended(atoms, tmp_path):
    path = tmp_path / "checkpoint"
    RMSF(atoms).run(checkpoint=path)
    assert not path.exists()
    with pytest.raises(ValueError, match="no frames to analyse"):
        RMSF(atoms).run(checkpoint=path, stop=0)
    assert not path.exists()


class Scaled:
    factor = 2

    def __call__(self, block):
        return block.times * self.factor


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (argparse.Namespace(cutoff=5), argparse.Namespace(cutoff=6)),
        (np.eye(3).dot, np.ones((3, 3)).dot),
        (collections.deque([1]), collections.deque([2])),
        (np.poly1d([1, 2]), np.poly1d([1, 3])),
        (functools.lru_cache(lambda b: b + 1), functools.lru_cache(lambda b: b + 2)),
        (range(3), range(4)),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_a_digest_knows_objects_of_installed_packages(one, other):
    assert digest(one) == digest(copy.copy(one))
    assert digest(one) != digest(other)


def test_a_digest_knows_atoms(adk):
    # Open the file again, as another process would.
    topology = MDAnalysis.Universe.empty(3341)._topology
    one, other = (paceline.Universe(topology, adk.trajectory).atoms for _ in range(2))
    assert digest(one[:5]) == digest(other[:5])
    assert digest(one[:5]) != digest(one[1:6])
    other.positions += 1
    assert digest(one) != digest(other)


def test_a_digest_knows_what_is_used_of_ones_own_modules(tmp_path, monkeypatch):
    """Check that the digest covers the functions used from the user's modules, and nothing else in
    these modules.
    """

    def made(factor, unused):
        (tmp_path / "own_helpers.py").write_text(f"import own_more\nUNUSED = {unused}\n")
        (tmp_path / "own_more.py").write_text(f"def scale(b):\n    return {factor} * b\n")
        for name in ("own_helpers", "own_more"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        space = {"__name__": "__main__"}
        source = "import own_helpers\ndef f(b):\n    return own_helpers.own_more.scale(b)\n"
        exec(source, space)
        return digest(space["f"])

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = made(factor=2, unused=1)
    assert made(factor=2, unused=2) == first
    assert made(factor=3, unused=1) != first


def test_a_digest_knows_ones_own_code_and_what_it_uses():
    def made(source, **names):
        space = {"__name__": "__main__", "np": np, **names}
        exec(source, space)
        return digest(space["f"])

    plain = "def f(b):\n    return g(b) * k if b in {'x', 'y'} else np.sqrt(b)\n"
    helper = "def g(b):\n    return b + 1\n"
    first = made(helper + plain, k=2)
    assert made("# a remark\n\n" + helper + plain, k=2) == first
    assert made(helper + plain, k=2, unused=5) == first
    assert made(helper + plain, k=3) != first
    assert made(helper.replace("1", "2") + plain, k=2) != first
    assert made(helper + plain.replace("sqrt", "exp"), k=2) != first
    before = digest(Scaled())
    Scaled.factor = 3
    assert digest(Scaled()) != before
    assert digest(np.arange(3)) != digest(np.arange(3.0)) != digest(np.arange(3.0)[:, None])
    first, second = [1], [2]
    assert digest([first, second, first]) != digest([first, second, second])
    cycle = [1]
    cycle.append(cycle)
    assert digest(cycle) == digest(cycle)
