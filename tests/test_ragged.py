"""Tests of analyses with any number of records per frame."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from test_failures import full_disk

import paceline
from paceline import checkpoint
from paceline.contract.analysis_kinds import Kind, WorkerDeclaration
from paceline.engine import collect, result_arrays
from paceline.engine.collect import RecordLog
from paceline.engine.tasks_and_results import Records, WorkerAnalysis
from paceline.engine.worker import Worker
from paceline.errors import AnalysisError

PAIR = np.dtype([("atom", "i4"), ("distance", "f4")])
#: Frames in an unusual order: descending, and most of them twice.
ODD = [*range(97, 0, -2), *range(0, 98, 2), 5, 5, -1]


def far(block):
    """Return the atoms farther than 25 Å from the center; some frames have none."""
    distances = np.linalg.norm(
        block.positions - block.positions.mean(axis=1, keepdims=True), axis=2
    )
    rows, atoms = np.nonzero(distances > 25.5)
    records = np.empty(len(rows), PAIR)
    records["atom"], records["distance"] = atoms, distances[rows, atoms]
    return np.bincount(rows, minlength=len(block)), records


def table(block):
    """Return the same as rows of numbers."""
    counts, records = far(block)
    return counts, np.column_stack([records["atom"], records["distance"]])


def nothing(block):
    return np.zeros(len(block), int), np.empty((0, 3))


def run(atoms, **options):
    """Run two ragged series with other analyses; return all bits, and the first series."""
    both = paceline.RaggedTimeSeries(far, atoms), paceline.RaggedTimeSeries(table, atoms)
    empty = paceline.RaggedTimeSeries(nothing, atoms)
    paceline.run([both[0], paceline.analysis.rms.RMSF(atoms), both[1], empty], **options)
    arrays = [
        array
        for one in (*both, empty)
        for array in (one.results.records, one.results.offsets, one.results.counts)
    ]
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays], both[0]


@pytest.fixture(scope="module")
def atoms(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def alone(atoms):
    return run(atoms, backend="serial")


def test_records_are_those_of_the_frames(alone, atoms):
    results = alone[1].results
    assert results.counts.dtype == results.offsets.dtype == np.int64
    for frame, ts in enumerate(atoms.universe.trajectory):
        positions = atoms.positions
        distances = np.linalg.norm(positions - positions.mean(axis=0), axis=1)
        [wanted] = np.nonzero(distances > 25.5)
        found = results.records[results.offsets[frame] : results.offsets[frame + 1]]
        assert found["atom"].tolist() == wanted.tolist()
        assert results.counts[frame] == len(wanted)
        assert results.times[frame] == pytest.approx(ts.time)
    assert results.counts.min() == 0 < results.counts.max()
    assert results.offsets[-1] == len(results.records)
    frame = results.to_dataframe()
    assert frame["records"].tolist() == results.counts.tolist()


def test_bits_are_the_same_everywhere(where, atoms, alone):
    assert run(atoms, **where)[0] == alone[0]


@pytest.mark.parametrize("block_frames", [1, 17, 10**6])
@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_bits_do_not_depend_on_blocks(block_frames, backend, atoms, alone):
    assert run(atoms, block_frames=block_frames, backend=backend)[0] == alone[0]


def test_frames_in_any_order_and_left_out(damaged, atoms):
    files, left_out = damaged
    other = paceline.Universe(*files).select_atoms("name CA")
    _, sound = run(atoms, frames=ODD, backend="serial")
    for options in ({"backend": "serial"}, {"block_frames": 1}, {"backend": "processes"}):
        found, one = run(other, frames=ODD, on_error="skip", **options)
        results = one.results
        assert {frame for frame, _ in one.damaged} == set(left_out)
        missing = np.isin(one.frames, left_out)
        assert np.array_equal(np.isnan(results.counts), missing)
        assert not np.diff(results.offsets)[missing].any()
        offsets, kept = sound.results.offsets, np.flatnonzero(~missing)
        parts = [sound.results.records[offsets[k] : offsets[k + 1]] for k in kept]
        assert np.array_equal(results.records, np.concatenate(parts))
    assert [shape for _, shape, _ in found[-3:]] == [(0, 3), (len(ODD) + 1,), (len(ODD),)]


def test_all_frames_left_out(damaged):
    atoms = paceline.Universe(*damaged[0]).select_atoms("name CA")
    one = paceline.RaggedTimeSeries(far, atoms)
    for options in ({"backend": "serial"}, {"block_frames": 4}):
        results = one.run(start=16, stop=32, on_error="skip", **options).results
        assert len(results.records) == 0
        assert np.isnan(results.counts).all()
        assert results.offsets.tolist() == [0] * 17


@pytest.mark.parametrize("backwards", ["", "waiting", "copied"])
def test_many_records_are_in_a_file(backwards, atoms, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(result_arrays, "LARGE", 700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if backwards == "copied":
        monkeypatch.setattr(collect, "AHEAD", 100)
    if backwards:
        missing = collect.Collected.missing
        monkeypatch.setattr(collect.Collected, "missing", lambda self: missing(self)[::-1])
    found, one = run(atoms, block_frames=4, backend="serial")
    assert found == alone[0]
    assert isinstance(one.results.records, np.memmap)
    with full_disk(), pytest.raises(OSError, match=re.escape(str(tmp_path))):
        run(atoms, block_frames=4, backend="serial")
    assert list(tmp_path.iterdir()) == []


def test_records_that_come_before_their_turn_wait_for_it(monkeypatch):
    def block(first):
        return first, Records(np.ones(2, int), np.array([first, first + 1]))

    def collected(order, n_rows):
        log = RecordLog(
            WorkerAnalysis("numbers", None, WorkerDeclaration(Kind.RECORDS), None), n_rows
        )
        for first in order:
            log.put(*block(first))
        place = log._log.ctypes.data
        counts, records = log.ordered()
        assert counts.tolist() == [1] * len(records)
        assert log.ordered().records.tolist() == records.tolist()
        return records.tolist(), records.ctypes.data == place

    assert collected([2, 0, 6, 4, 8], 10) == (list(range(10)), True)
    # Frames that one rank has.
    assert collected([4, 8, 6], None) == (list(range(4, 10)), True)
    monkeypatch.setattr(collect, "AHEAD", 40)
    assert collected([4, 2, 6, 0, 8], 10) == (list(range(10)), False)


def test_a_disk_that_fills_while_the_file_grows(atoms, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(result_arrays, "LARGE", 700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    room, done = alone[1].results.records.nbytes // 2, []

    def noted(block):
        done.append(len(block))
        return far(block)

    series = paceline.RaggedTimeSeries(noted, atoms)
    words = rf"results need \d.* in a file in this folder, which has .* free; .*{tmp_path}"
    with full_disk(room), pytest.raises(OSError, match=words):
        series.run(block_frames=16, backend="serial")
    assert 16 < sum(done) < 98
    assert list(tmp_path.iterdir()) == []
    found = series.run(block_frames=16, backend="serial").results.records
    assert np.array_equal(found, alone[1].results.records)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("backend", ["threads", pytest.param("processes", marks=pytest.mark.full)])
@pytest.mark.parametrize("large", [700, 2**30])
def test_a_run_resumes(large, backend, atoms, alone, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    monkeypatch.setattr(result_arrays, "LARGE", large)
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0)
    # Everything is written a second time, in small pieces.
    monkeypatch.setattr(checkpoint, "GROWTH", 1.0)
    monkeypatch.setattr(checkpoint, "ROWS_BYTES", 1000)
    do_block = Worker.run
    done = []

    def failing(self, task):
        if len(done) in (4, 5):
            done.append(None)
            raise Interrupted
        done.append(task)
        return do_block(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        for _ in range(2):
            with pytest.raises(Interrupted):
                run(atoms, backend="serial", checkpoint=path, block_frames=16)
    assert run(atoms, checkpoint=path, backend=backend)[0] == alone[0]
    assert not path.exists()


def test_a_killed_run_resumes(adk_xtc, alone, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, numpy, paceline\n"
        "from paceline import checkpoint\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from test_ragged import far\n"
        "checkpoint.INTERVAL = 0.0\n"
        f"atoms = paceline.Universe(*{tuple(adk_xtc)!r}).select_atoms('name CA')\n"
        "def function(block):\n"
        "    if block.frames[0] == 64 and len(sys.argv) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return far(block)\n"
        "one = paceline.RaggedTimeSeries(function, atoms)\n"
        f"one.run(backend='serial', checkpoint={str(tmp_path / 'kept')!r}, block_frames=16)\n"
        "print(one.results.records.tobytes().hex())\n"
    )
    command = [sys.executable, str(script)]
    killed = subprocess.run([*command, "killed"], capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert (tmp_path / "kept").stat().st_size > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == alone[1].results.records.tobytes().hex()


class Farther:
    """Records of the last stage that are above their mean, in frames that have records."""

    def __init__(self, mean):
        self.mean = mean

    def compute_records(self, block):
        counts, records = far(block)
        kept = records["distance"] > self.mean
        rows = np.repeat(np.arange(len(block)), counts)[kept]
        return np.bincount(rows, minlength=len(block)), records[kept]


class Stages(paceline.AnalysisBase):
    stages = 2

    def prepare(self):
        return Farther(0)

    def next_stage(self, value):
        _, records = value
        return Farther(records["distance"].mean())

    def finish(self, value):
        self.results.offsets, self.results.records = value


@pytest.mark.parametrize("block_frames", [1, None])
def test_stages_of_records(block_frames, atoms, alone):
    one = Stages(atoms).run(block_frames=block_frames)
    records = alone[1].results.records
    wanted = records[records["distance"] > records["distance"].mean()]
    assert np.array_equal(one.results.records, wanted)
    assert one.results.offsets[-1] == len(wanted)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda block: block.times, "expected a pair, .* found ndarray"),
        (
            lambda block: (block.times, block.times),
            r"each of \d+ frames, found an array of float64",
        ),
        (lambda block: (np.zeros(1, int), block.times), r"found an array of int64 of shape \(1,\)"),
        (lambda block: (np.full(len(block), -1), []), "number of records of each"),
        (lambda block: (np.ones(len(block), int), []), r"expected 16 records .*shape \(0,\)"),
        (lambda block: (np.zeros(len(block), int), 1.0), "expected 0 records"),
        (lambda block: (np.ones(len(block), int), [{}] * len(block)), "array of object"),
    ],
    ids=["one array", "floats", "too few", "negative", "no records", "a number", "objects"],
)
def test_what_makes_no_records_is_an_error(function, message, atoms):
    with pytest.raises(AnalysisError, match=f"RaggedTimeSeries of .*frames 0 to 15.*{message}"):
        paceline.RaggedTimeSeries(function, atoms).run(backend="serial", block_frames=16)


@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_records_of_blocks_are_alike(backend, atoms):
    def changing(block):
        n = 2 if block.frames[0] < 64 else 3
        return np.ones(len(block), int), np.zeros((len(block), n))

    with pytest.raises(AnalysisError, match="expected rows of shape"):
        paceline.RaggedTimeSeries(changing, atoms).run(backend=backend, block_frames=16)


def test_an_array_may_be_filled_again(atoms):
    kept = np.empty((200, 1))

    def numbers(block):
        kept[: len(block), 0] = block.frames
        return np.ones(len(block), int), kept[: len(block)]

    records = paceline.RaggedTimeSeries(numbers, atoms).run(block_frames=16).results.records
    assert records[:, 0].tolist() == list(range(98))
