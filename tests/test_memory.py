"""Tests of the memory limit for everything that a run holds: rows, records, series, matrices and
frames.
"""

import gc
import pickle
import re
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from helpers.waiting import PATIENCE
from test_failures import full_disk

import paceline
from paceline._util.machine_and_software import MemoryLimit
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.rms import RMSF
from paceline.engine import result_arrays
from paceline.engine.worker import Worker
from paceline.errors import UnsupportedError
from paceline.transform import nojump

#: Size of the positions of all frames, bytes.
POSITIONS = 98 * 3341 * 12


@pytest.fixture(scope="module")
def atoms(adk_xtc):
    return paceline.Universe(*adk_xtc).atoms


def positions(block):
    return block.positions


def flat(block):
    """Return the coordinates of all atoms as series."""
    return block.positions.reshape(len(block), -1)


def high(block):
    """Return index and height of all atoms above the middle."""
    rows, columns = np.nonzero(block.positions[:, :, 2] > 0)
    counts = np.bincount(rows, minlength=len(block))
    return counts, np.column_stack([columns, block.positions[rows, columns, 2]])


#: Script that prints how much more memory (bytes, apart from rows) a run of many frames uses than a
#: run of few. The maximum is per process, so that each analysis needs its own process.
GROWTH = """
import resource, sys, warnings
import paceline
from paceline.analysis.dihedrals import Ramachandran
from paceline.analysis.rms import RMSF

warnings.simplefilter("ignore")  # of a file that is in the chain again
topology, trajectory, name, backend = sys.argv[1:]
make, rows = {
    "sums": (RMSF, lambda results: 0),
    "rows": (Ramachandran, lambda results: results.angles.nbytes),
}[name]
u = paceline.Universe(topology, [trajectory] * 40)
held, largest = [], []
for stop in (400, None):
    results = make(u).run(stop=stop, backend=backend).results
    held.append(rows(results))
    largest.append(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(largest[1] - largest[0] - (held[1] - held[0]))
"""
#: Bytes by which larger blocks, the table of frames and the allocator may differ: 5 kB for each
#: additional frame. Positions take 40 kB per frame, and those of backbones 10 kB.
SLACK = 16 * 2**20


def is_in_file(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_rows_beyond_the_limit_are_in_a_file(backend, atoms):
    wanted = None
    for limit, in_file in (
        (0, (1, 1)),
        (1.5 * POSITIONS, (0, 1)),
        ("8 MB", (0, 0)),
        (None, (0, 0)),
    ):
        every = [paceline.TimeSeries(positions, atoms) for _ in range(2)]
        limit = limit if limit is None or isinstance(limit, str) else int(limit)
        paceline.run(every, max_memory=limit, backend=backend)
        found = [one.results.timeseries for one in every]
        assert sorted(map(is_in_file, found)) == sorted(map(bool, in_file)), limit
        wanted = found[0] if wanted is None else wanted
        assert all(np.array_equal(one, wanted) for one in found)


@pytest.mark.parametrize("dtype", ["f8", "U3", "M8[D]", "i4, (2,)f4", "?"])
def test_rows_of_any_kind_come_to_their_place_in_a_file(dtype, monkeypatch):
    """Check a system that writes only a few bytes per call."""
    write = result_arrays.write_at
    monkeypatch.setattr(result_arrays, "write_at", lambda file, data, at: write(file, data[:7], at))
    numbers = np.arange(42).reshape(7, 2, 3)
    rows = np.zeros(numbers.shape, dtype)
    if rows.dtype.names:
        rows["f0"] = numbers
    else:
        rows[:] = numbers.astype(dtype)
    found = result_arrays.allocate(rows.shape, rows.dtype, 0)
    for first, stop in ((5, 7), (0, 2), (2, 2), (2, 5)):
        result_arrays.put_rows(found, first, rows[first:stop])
    assert is_in_file(found)
    assert found.tobytes() == rows.tobytes()
    result_arrays.put_rows(found, 1, np.asfortranarray(rows[3:5]))
    assert found[1:3].tobytes() == rows[3:5].tobytes()
    empty = result_arrays.allocate((7, 0), np.dtype("f8"), 10)
    result_arrays.put_rows(empty, 2, np.empty((3, 0)))


def test_records_beyond_the_limit_are_in_a_file(atoms):
    runs = [paceline.RaggedTimeSeries(high, atoms).run(max_memory=limit) for limit in (0, None)]
    limited, free = (one.results.records for one in runs)
    assert limited.nbytes > 2 * result_arrays.SMALL
    assert (is_in_file(limited), is_in_file(free)) == (True, False)
    assert np.array_equal(limited, free)


def test_series_and_results_of_parts_beyond_the_limit_are_in_files(atoms):
    runs = [
        paceline.Correlation(flat, atoms).run(max_memory=limit, stop=40) for limit in ("1 MB", None)
    ]
    limited, free = (one.results.by_series for one in runs)
    assert (is_in_file(limited), is_in_file(free)) == (True, False)
    assert np.array_equal(limited, free)


class Watched(paceline.Correlation):
    def next_stage(self, value):
        self.series = weakref.ref(value)
        return super().next_stage(value)


@pytest.mark.parametrize("transforms", [[], [nojump()]])
@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_series_go_when_the_run_ends(backend, transforms, adk_in_water):
    """Check that series are freed at the end of the run, and not only by garbage collection."""
    water = paceline.Universe(*adk_in_water).select_atoms("name OW")[:100]
    gc.disable()
    try:
        one = Watched(flat, water).run(backend=backend, transforms=transforms)
        for thread in threading.enumerate():
            if re.fullmatch(r"paceline-\d+", thread.name):
                thread.join(timeout=PATIENCE)  # a thread holds a part of the series until its end
        assert one.series() is None
    finally:
        gc.enable()


def test_frames_and_results_count_together(atoms):
    """Check that frames are kept for a second pass unless rows take the memory."""

    def second_pass(*others):
        one = RMSF(atoms, align=True)
        paceline.run([*others, one], backend="serial", max_memory=int(1.5 * POSITIONS))
        return sum(block.bytes for block in one.timings.blocks if block.job == 1)

    assert second_pass() == 0
    assert second_pass(paceline.TimeSeries(positions, atoms)) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the size has another unit")
@pytest.mark.parametrize(("shape", "backend"), [("sums", "serial"), ("rows", "threads")])
def test_longer_runs_take_no_more_memory_than_their_rows(shape, backend, adk_xtc):
    command = [sys.executable, "-c", GROWTH, *adk_xtc, shape, backend]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(found.stdout) < SLACK


def test_what_is_dropped_counts_no_longer():
    with result_arrays.limit_arrays(3 * result_arrays.SMALL) as memory:
        shape = (2 * result_arrays.SMALL,), np.dtype(np.uint8)
        first = result_arrays.allocate(*shape)
        view = first[10:]
        assert not is_in_file(first)
        del first
        assert is_in_file(result_arrays.allocate(*shape))
        assert memory.available == result_arrays.SMALL
        del view
        assert memory.available == 3 * result_arrays.SMALL
        assert not is_in_file(result_arrays.allocate(*shape))


def test_a_process_has_one_limit():
    memory = MemoryLimit(1000)
    assert pickle.loads(pickle.dumps(memory)) is memory
    data = pickle.dumps(memory)
    del memory
    other, same = pickle.loads(data), pickle.loads(data)
    assert (other is same, other.limit) == (True, 1000)


def test_no_room_is_said_before_the_work(atoms, monkeypatch):
    usage = result_arrays.shutil.disk_usage("/")._replace(free=10**7)
    monkeypatch.setattr(result_arrays.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(Worker, "run", None)
    matrix, frames = DistanceMatrix(atoms[:100]), np.arange(2000) % 98
    words = (
        r"DistanceMatrix: the results need \d+(\.\d+)? MB, but 10 MB are free .*max_memory.*TMPDIR"
    )
    with pytest.raises(UnsupportedError, match=words):
        matrix.run(frames=frames, max_memory="2 MiB")
    with pytest.raises(TypeError, match="not callable"):  # there is enough memory
        matrix.run(frames=frames, max_memory="1 GiB", backend="serial")


def test_a_full_disk_is_said_with_the_first_block(atoms, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = (
        r"results need 3\.93 MB in a file in this folder, which has .* free; .*larger max_memory"
    )
    with full_disk(), pytest.raises(OSError, match=words) as caught:
        paceline.TimeSeries(positions, atoms).run(max_memory=0, backend="serial")
    assert re.search(re.escape(str(tmp_path)), str(caught.value))
    assert list(tmp_path.iterdir()) == []
