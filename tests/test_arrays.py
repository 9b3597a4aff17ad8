"""Tests of trajectories in memory: workers read arrays in blocks, with the same result as frame by
frame.
"""

import os
import pickle
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import MDAnalysis
import numpy as np
import pytest
from helpers.mpi import SCRIPTS, mpirun, needs_mpi
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysis.transformations import NoJump, translate

import paceline
from paceline._util import shared_arrays
from paceline.analysis.rms import RMSD, RMSF
from paceline.engine import pickled_jobs
from paceline.errors import (
    AnalysisError,
    AtomCountError,
    CheckpointError,
    MissingDataError,
    PacelineWarning,
    UnsupportedError,
)
from paceline.mdanalysis import open_atomgroup_trajectory
from paceline.mdanalysis.open_atomgroup_trajectory import MDAnalysisTrajectory
from paceline.trajectory.arrays import ArraySlice
from paceline.transform import nojump

N_FRAMES, N_ATOMS = 300, 150
CELLS = np.tile(np.array([30, 31, 32, 90, 80, 90], np.float32), (N_FRAMES, 1))
CELLS[:, 0] += np.arange(N_FRAMES) % 7
CELLS[3] = 0

pytestmark = [
    pytest.mark.filterwarnings("error::paceline.errors.PacelineWarning"),
    pytest.mark.filterwarnings("ignore:.*the header says 500 frames"),
]


@pytest.fixture(scope="module")
def positions() -> np.ndarray:
    """Random walks, float32, shape (frames, atoms, 3)."""
    steps = np.random.default_rng(38).normal(scale=0.3, size=(N_FRAMES, N_ATOMS, 3))
    return (steps.cumsum(axis=0) + 15).astype(np.float32)


def universe_of(array, kind=MDAnalysis.Universe, **options):
    """Return the Universe of an array, with a chain of bonds."""
    universe = kind.empty(N_ATOMS, n_residues=15, atom_resindex=np.arange(N_ATOMS) // 10)
    universe.add_TopologyAttr("masses", np.arange(N_ATOMS) % 5 + 1.0)
    return universe.load_new(array, format=MemoryReader, **options)


def all_of_a_block(block):
    """Return all numbers of a block, one row per frame."""
    fields = [block.positions, block.velocities, block.forces]
    return np.column_stack(
        [one.reshape(len(block), -1) for one in fields]
        + [block.cells, block.times, block.steps, block.lambdas, block.held]
    )


def numbers_of(universe, atoms=slice(None, None, 3), **options):
    """Return the results of one analysis of each kind."""
    group = universe.atoms[atoms]
    options = {"on_error": "skip", **options}
    fields = ["positions", "velocities", "forces"]
    held = set(open_atomgroup_trajectory.fields_of(universe.trajectory.ts))
    analyses = [RMSD(group, weights="mass"), RMSF(group[::-1])]
    if held.issuperset(fields):
        analyses.append(paceline.TimeSeries(all_of_a_block, group, fields=fields))
    paceline.run(analyses, **options)
    found = [analyses[0].results.rmsd, analyses[1].results.rmsf, analyses[0].times]
    return [*found, *(one.results.timeseries for one in analyses[2:])]


def frame_by_frame(universe, monkeypatch, **options):
    """Return the results with MDAnalysis's reader, which reads the frames one by one."""
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        way = lambda one: MDAnalysisTrajectory(one, "frames")  # noqa: E731
        patch.setattr(open_atomgroup_trajectory, "_in_memory", way)
        return numbers_of(universe, **options)


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def full(positions, **options):
    """Return a Universe with positions, velocities, forces and cells, at given times."""
    known = {"velocities": positions / 7, "forces": positions[::-1] * 3, "dimensions": CELLS}
    return universe_of(positions, **known, dt=0.7, **options)


def test_every_backend_gives_the_same_bits(positions, monkeypatch, where):
    universe = full(positions, time_offset=3.5)
    universe.trajectory[5]
    frames = [*range(0, N_FRAMES, 3), 7, 7, 2, -1]
    for options in ({}, {"frames": frames}, {"start": 4, "step": 7, "block_frames": 5}):
        expected = frame_by_frame(universe, monkeypatch, **options)
        assert_same(numbers_of(universe, **options, **where), expected)
        assert universe.trajectory.frame == 5


@pytest.mark.parametrize("order", ["fac", "afc", "acf"])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_orders_of_axes(order, backend, positions, monkeypatch):
    axes = ["fac".index(axis) for axis in order]
    universe = universe_of(np.ascontiguousarray(positions.transpose(axes)), order=order)
    expected = frame_by_frame(universe_of(positions), monkeypatch)
    assert_same(frame_by_frame(universe, monkeypatch), expected)
    assert_same(numbers_of(universe, backend=backend, n_workers=2), expected)


@pytest.mark.parametrize("order", ["caf", "cfa", "fca"])
def test_orders_that_mdanalysis_shows_wrongly_are_refused(order, positions):
    axes = ["fac".index(axis) for axis in order]
    universe = universe_of(positions.transpose(axes), order=order)
    with pytest.raises(UnsupportedError, match=rf"with order='{order}'.*\(order='fac'\)"):
        paceline.TimeSeries(len, universe.atoms).run()


def strided(array):
    wide = np.zeros((N_FRAMES, 2 * N_ATOMS, 4), np.float32)
    wide[:, ::2, :3] = array
    return wide[:, ::2, :3]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def with_nan(array):
    array = array.copy()
    array[[4, 8], [0, 3]] = np.nan
    return array


LAYOUTS = {
    "strided": strided,
    "backwards": lambda array: array[::-1],
    "Fortran": np.asfortranarray,
    "read-only": read_only,
    "float64": lambda array: array.astype(float) * (1 + 1e-9),
    "float16": lambda array: array.astype(np.float16),
    "integers": lambda array: array.astype(np.int32),
    "big-endian": lambda array: array.astype(">f4"),
    "unaligned": lambda array: np.frombuffer(b"x" + array.tobytes(), "f4", offset=1).reshape(
        array.shape
    ),
    "NaN": with_nan,
}


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout(layout, backend, positions, monkeypatch):
    array = LAYOUTS[layout](positions)
    universe = universe_of(array)
    expected = frame_by_frame(universe, monkeypatch)
    assert_same(numbers_of(universe, backend=backend, n_workers=2), expected)
    opened = paceline.open(array, dt=1.0)
    np.testing.assert_array_equal(opened.positions(), universe.trajectory.get_array())
    series = paceline.TimeSeries(lambda block: block.positions, opened.atoms[::2])
    found = series.run(backend=backend, n_workers=2).results.timeseries
    np.testing.assert_array_equal(found, universe.trajectory.get_array()[:, ::2])


# Data sent to workers


def sent(monkeypatch):
    """Sizes of the pickled slices."""
    sizes = []
    reduce = ArraySlice.__reduce__

    def noted(self):
        found = reduce(self)
        sizes.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(ArraySlice, "__reduce__", noted)
    return sizes


@pytest.mark.parametrize("kind", ["processes", "ProcessPoolExecutor", "dask"])
def test_each_worker_receives_the_atoms_of_its_blocks_only(
    kind, positions, monkeypatch, pool, dask_client
):
    sizes = sent(monkeypatch)
    jobs = []
    of = pickled_jobs.PickledJob.of.__func__
    monkeypatch.setattr(
        pickled_jobs.PickledJob,
        "of",
        classmethod(lambda cls, job: jobs.append(of(cls, job)) or jobs[-1]),
    )
    wide = np.repeat(positions, 10, axis=1)
    opened = paceline.open(wide, dt=1.0)
    where = {"processes": kind, "dask": dask_client}.get(kind) or pool(kind)
    series = paceline.TimeSeries(lambda block: block.positions, opened.atoms[::10])
    series.run(backend=where, n_workers=None if kind == "dask" else 2, block_frames=32)
    np.testing.assert_array_equal(series.results.timeseries, positions)
    assert len(sizes) >= 10
    if kind == "processes":
        assert sum(sizes) < 20_000 + 40 * N_FRAMES  # positions are in a shared file
    else:
        # 12 bytes for each atom; and for each frame its cell, time and number. A block may be
        # sent again where a worker is late.
        assert positions.nbytes <= sum(sizes)
        assert max(sizes) < 1.5 * 32 * positions[0].nbytes
    assert all(len(job.data) < 50_000 for job in jobs)


def test_memory_mapped_arrays_are_mapped_again(positions, monkeypatch, tmp_path):
    path = tmp_path / "positions.npy"
    np.save(path, positions)
    monkeypatch.setattr(shared_arrays.WrittenArrays, "place", None)  # makes the copy fail
    for mode in ("r", "r+"):
        mapped = np.load(path, mmap_mode=mode)
        universe = universe_of(mapped)
        assert universe.trajectory.get_array() is mapped
        expected = frame_by_frame(universe, monkeypatch)
        assert_same(numbers_of(universe, backend="processes", n_workers=2), expected)
    mapped[5:] += 1  # changes only the array in memory
    changed = numbers_of(universe, backend="processes", n_workers=2)
    assert_same(changed, frame_by_frame(universe, monkeypatch))
    assert not np.array_equal(changed[0], expected[0])
    part = paceline.open(mapped[10:90:2, ::-1], dt=1.0)
    series = paceline.TimeSeries(lambda block: block.positions, part.atoms).run(
        backend="processes", n_workers=2
    )
    np.testing.assert_array_equal(series.results.timeseries, mapped[10:90:2, ::-1])


@pytest.mark.parametrize("case", ["copy on write", "replaced", "removed"])
def test_memory_mapped_arrays_whose_file_holds_other_numbers(case, positions, tmp_path):
    path = tmp_path / "positions.npy"
    np.save(path, positions)
    mapped = np.load(path, mmap_mode="c" if case == "copy on write" else "r")
    if case == "copy on write":
        mapped += 1
    else:
        path.unlink()
    if case == "replaced":
        np.save(path, positions[::-1])
    opened = paceline.open(mapped, dt=1.0)
    series = paceline.TimeSeries(lambda block: block.positions, opened.atoms)
    found = series.run(backend="processes", n_workers=2).results.timeseries
    np.testing.assert_array_equal(found, positions + (case == "copy on write"))


def test_values_are_sent_if_they_cannot_be_shared(positions, monkeypatch):
    """Check a full disk, and processes that cannot open each other's files."""
    opened = paceline.open(positions, dt=1.0)

    def positions_by_processes():
        series = paceline.TimeSeries(lambda block: block.positions, opened.atoms)
        return series.run(backend="processes", n_workers=2).results.timeseries

    def fails(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(shared_arrays, "reserve", fails)
    np.testing.assert_array_equal(positions_by_processes(), positions)
    monkeypatch.setattr(shared_arrays, "CAN_SHARE", False)
    np.testing.assert_array_equal(positions_by_processes(), positions)


KILLED = """
import os, signal, sys
import numpy as np
import paceline

def kill(block):
    os.killpg(int(os.environ["SESSION"]), signal.SIGKILL)

os.setsid()
os.environ["SESSION"] = str(os.getpid())
opened = paceline.open(np.ones((1000, 300, 3), np.float32), dt=1.0)
paceline.TimeSeries(kill, opened.atoms).run(backend="processes", n_workers=2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere values are sent")
def test_a_killed_run_leaves_no_positions(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", KILLED], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False
    )
    assert found.returncode == -signal.SIGKILL
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in left) < 1000  # notes on attempts


@needs_mpi
def test_ranks_give_the_same_bits(positions, tmp_path):
    np.save(tmp_path / "positions.npy", positions)
    (tmp_path / "ranks").mkdir()
    files = tmp_path / "positions.npy", tmp_path / "ranks"
    status, out, err = mpirun(3, "-m", "paceline.mpi", SCRIPTS / "arrays_in_memory.py", *files)
    assert (status, out) == (0, "the same bits\n"), err


def test_a_dask_array_holds_the_atoms_of_its_chunks(positions, monkeypatch, dask_client):
    universe = full(positions)
    sizes = sent(monkeypatch)
    atoms = universe.atoms[::-3]
    forces = paceline.dask_array(atoms, field="forces", block_frames=50)
    assert sum(sizes) < 1.5 * positions.nbytes / 3
    found = forces.compute(scheduler=dask_client)
    np.testing.assert_array_equal(found, universe.trajectory.force_array[:, ::-3])
    same = paceline.dask_array(full(positions.copy()).atoms[::-3], field="forces", block_frames=50)
    other = paceline.dask_array(full(positions + 1).atoms[::-3], field="forces", block_frames=50)
    assert forces.name == same.name != other.name


# Changes made by the script


def test_changes_in_memory_are_seen(positions, where):
    array = positions.copy()
    universe = universe_of(array)
    before = numbers_of(universe, **where)
    array[7, 3] += 1
    changed = numbers_of(universe, **where)
    assert_same(changed, numbers_of(universe_of(array.copy()), backend="serial"))
    assert not np.array_equal(changed[0][7], before[0][7])
    universe.trajectory[9]
    universe.atoms.positions += 2  # MDAnalysis writes them into the array
    universe.dimensions = [50, 50, 50, 90, 90, 90]
    series = paceline.TimeSeries(
        lambda block: np.column_stack([block.positions[:, 0], block.dimensions]), universe.atoms
    )
    found = series.run(**where).results.timeseries
    np.testing.assert_array_equal(found[:, :3], array[:, 0])
    assert np.flatnonzero(found[:, 3]).tolist() == [9]


def test_transformations_of_mdanalysis_and_of_paceline(positions, monkeypatch):
    for transforms in ([translate([1, 2, 3])], [NoJump()]):
        universe = full(positions.copy())
        universe.trajectory.dimensions_array[3] = universe.trajectory.dimensions_array[2]
        universe.trajectory.add_transformations(*transforms)
        expected = frame_by_frame(universe, monkeypatch)
        assert_same(numbers_of(universe, backend="processes", n_workers=2), expected)
        assert not np.array_equal(universe.trajectory.get_array(), positions)
    universe = full(positions % 30)
    universe.trajectory.dimensions_array[3] = universe.trajectory.dimensions_array[2]
    given = {"transforms": [nojump()]}
    kept = universe.trajectory.get_array().copy()
    expected = frame_by_frame(universe, monkeypatch, **given)
    for backend in ("threads", "processes"):
        assert_same(numbers_of(universe, **given, backend=backend, n_workers=2), expected)
    np.testing.assert_array_equal(universe.trajectory.get_array(), kept)


def mean_or_stop(block):
    """Return the mean coordinate of each frame; once, stop like an interrupted run."""
    if "STOPS" in os.environ and block.frames[0] > 100:
        raise RuntimeError("stopped")
    return block.positions.mean(axis=(1, 2))


def test_checkpoints_recognise_the_content(positions, monkeypatch, tmp_path):
    path = tmp_path / "checkpoint"

    def run(array, **options):
        series = paceline.TimeSeries(mean_or_stop, universe_of(array, **options).atoms)
        return series.run(checkpoint=path, backend="serial", block_frames=32)

    monkeypatch.setenv("STOPS", "1")
    with pytest.raises(AnalysisError, match="stopped"):
        run(positions)
    monkeypatch.delenv("STOPS")
    for array, options in (
        (positions + np.float32(1), {}),
        (positions, {"dimensions": CELLS}),
        (positions, {"dt": 2.0}),
        (np.ascontiguousarray(positions[:, ::-1]), {}),
    ):
        with pytest.raises(CheckpointError, match="trajectory: not the same as there"):
            run(array, **options)
    found = run(positions.copy())
    assert sum(block.n_frames for block in found.timings.blocks) == N_FRAMES
    np.testing.assert_array_equal(found.results.timeseries, positions.mean(axis=(1, 2)))


# paceline.open and paceline.Universe


def test_an_array_is_a_trajectory(positions):
    opened = paceline.open(positions, dt=2.0, n_atoms=N_ATOMS)
    assert (opened.n_frames, opened.n_atoms, opened.dt) == (N_FRAMES, N_ATOMS, 2.0)
    assert (opened.format, opened.fields, opened.filenames) == (
        "array",
        ("positions",),
        ["an array in memory"],
    )
    np.testing.assert_array_equal(opened.times, 2.0 * np.arange(N_FRAMES))
    np.testing.assert_array_equal(
        opened.positions(frames=[5, 3], atoms=[7, 2]), positions[[5, 3]][:, [7, 2]]
    )
    np.testing.assert_array_equal(opened.dimensions(), np.zeros((N_FRAMES, 6)))
    frame = opened[-1]
    np.testing.assert_array_equal(frame.positions, positions[-1])
    assert (frame.time, frame.dimensions) == (2.0 * (N_FRAMES - 1), None)
    np.testing.assert_array_equal(
        np.concatenate([block.positions for block in opened.blocks(n_frames=7)]), positions
    )
    frame.positions[:] = 0  # changes only a copy
    assert positions[-1].all()
    again = pickle.loads(pickle.dumps(opened))
    np.testing.assert_array_equal(again.positions(), positions)
    one = paceline.open(positions[0], dt=1.0)
    assert (one.n_frames, one.n_atoms) == (1, N_ATOMS)
    with pytest.raises(MissingDataError, match="velocities were requested"):
        opened.velocities()


def test_unknown_times_of_an_array_are_reported(positions):
    with pytest.warns(PacelineWarning, match=r"array in memory: the times .* not known.*give dt="):
        opened = paceline.open(positions)
    assert "an array holds none" in opened.time_doubt
    np.testing.assert_array_equal(opened.times, np.arange(N_FRAMES))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a[..., :2], r"shape \(frames, atoms, 3\), found an array of shape .*150, 2\)"),
        (lambda a: a.reshape(-1), "shape"),
        (lambda a: a[np.newaxis], "shape"),
        (lambda a: a[:0], r"a frame and an atom at least, found an array of shape \(0, 150, 3\)"),
        (lambda a: a[:, :0], "a frame and an atom at least"),
        (lambda a: a.astype(complex), "real numbers, found an array of complex128"),
        (lambda a: a.astype(object), "real numbers, found an array of object"),
        (lambda a: a > 0, "real numbers, found an array of bool"),
        (lambda a: a.astype("U8"), "real numbers"),
        (lambda a: np.ma.masked_greater(a, 15), r"masked one: fill it, as with .filled\(np.nan\)"),
    ],
)
def test_arrays_that_are_not_positions_are_refused(change, said, positions):
    array = change(positions)
    with pytest.raises(ValueError, match=said):
        paceline.open(array)
    universe = paceline.Universe.empty(N_ATOMS)
    with pytest.raises(ValueError, match=said):
        universe.load_new(array)


@pytest.mark.parametrize("given", [lambda a: a[:2].tolist(), lambda a: 5, lambda a: 2.5])
def test_numbers_that_are_no_array_are_refused(given, positions):
    said = "expected names of files or a NumPy array, found an object of "
    with pytest.raises(TypeError, match=said):
        paceline.open(given(positions))
    with pytest.raises(TypeError, match=said):
        paceline.Universe.empty(N_ATOMS).load_new(given(positions))


def test_options_that_do_not_fit_an_array_are_refused(positions):
    with pytest.raises(AtomCountError, match="the trajectory 150"):
        paceline.open(positions, n_atoms=7, dt=1.0)
    for option in ({"continuous": True}, {"group": "all"}, {"units": "nm"}, {"dataset": "x"}):
        with pytest.raises(UnsupportedError, match="apply to files only"):
            paceline.open(positions, **option)
    with pytest.raises(ValueError, match="expected an order of f, a and c, found 'xyz'"):
        paceline.Universe.empty(N_ATOMS).load_new(positions, order="xyz")
    with pytest.raises(ValueError, match="n_atoms"):
        paceline.Universe.empty(N_ATOMS).load_new(positions[:, :7])
    universe = universe_of(positions)
    universe.trajectory.set_array(positions[:9])
    with pytest.raises(UnsupportedError, match=r"expected positions of 300 frames .* found 9 of"):
        paceline.TimeSeries(len, universe.atoms).run()


def test_a_universe_of_an_array(adk):
    array = MDAnalysis.Universe(*adk).trajectory.timeseries(order="fac")
    universe = paceline.Universe(adk.topology, array, dt=2.0, dimensions=[50, 50, 50, 90, 90, 90])
    found = RMSD(universe, select="name CA").run().results.rmsd
    np.testing.assert_array_equal(found[:, 1], 2.0 * np.arange(len(array)))
    read = RMSD(paceline.Universe(*adk), select="name CA").run().results.rmsd
    np.testing.assert_array_equal(found[:, 2], read[:, 2])
    transferred = paceline.Universe(*adk)
    transferred.transfer_to_memory(step=2)
    again = RMSD(transferred, select="name CA").run().results.rmsd
    np.testing.assert_array_equal(again[:, 2], read[::2, 2])


def test_many_threads_read_one_array(positions):
    """Check that a run in each thread does not change other threads' numbers, nor the reader's
    frame.
    """
    universe = full(positions)
    expected = numbers_of(universe, backend="serial")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: numbers_of(universe, backend="threads"), range(8)):
            assert_same(found, expected)


def test_advice_is_about_memory(positions):
    advice = paceline.advise(RMSD(universe_of(positions).atoms))
    assert (advice.format, advice.n_frames, advice.rates) == ("array", N_FRAMES, None)
    assert str(advice)
