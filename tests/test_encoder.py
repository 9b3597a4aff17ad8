"""Tests of frames that the core encodes, against MDAnalysis's writers and with other readers."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysisTests import datafiles
from numpy.testing import assert_allclose, assert_array_equal

from paceline import _core
from paceline.block import CELL_WIDTH, dimensions_of
from paceline.errors import UnwritableError

POSITIONS, VELOCITIES = 1, 2

CUBE = (50, 60.5, 70.25, 90, 90, 90)
TRICLINIC = (80.017, 80.017, 80.017, 60, 60, 90)
SKEW = (31.4, 27.1, 57.7, 70.5, 103.25, 88)

#: Cells, times, steps and λ of one frame.
NO_CELL = (
    np.zeros((1, CELL_WIDTH)),
    np.zeros(1),
    np.zeros(1, np.int64),
    np.zeros(1, np.float32),
)


def encoder(format, n_atoms, *, precision=None, has_cell=True, fields=POSITIONS):
    return _core.Encoder(format, n_atoms, precision, has_cell, fields)


def encode(encoder, positions, dimensions=CUBE, times=None, steps=None):
    """Encode a block. Without arguments, times and steps are frame numbers."""
    n_frames = len(positions)
    dimensions = np.broadcast_to(np.asarray(dimensions, dtype=np.float32), (n_frames, 6)).copy()
    times = np.arange(n_frames, dtype=np.float64) if times is None else np.asarray(times)
    steps = np.arange(n_frames) if steps is None else np.asarray(steps)
    positions = np.ascontiguousarray(positions, dtype=np.float32)
    lambdas = np.zeros(n_frames, np.float32)
    cells = _core.cells_of_dimensions(dimensions)
    return encoder.encode((positions, None, None, cells, times, steps, lambdas))


def in_memory(positions, dimensions=CUBE) -> MDAnalysis.Universe:
    universe = MDAnalysis.Universe.empty(positions.shape[1], trajectory=False)
    universe.load_new(positions, format=MemoryReader, dimensions=dimensions, dt=1.0)
    return universe


def written_by_mdanalysis(universe, path, **options) -> bytes:
    with MDAnalysis.Writer(str(path), universe.atoms.n_atoms, **options) as writer:
        for _ in universe.trajectory:
            writer.write(universe.atoms)
    return path.read_bytes()


def block_of(universe) -> tuple:
    """Return all frames of a Universe, as arguments of `encode`."""
    frames = [
        (
            ts.positions.copy(),
            np.zeros(6) if ts.dimensions is None else ts.dimensions.copy(),
            ts.time,
        )
        for ts in universe.trajectory
    ]
    steps = [ts.data.get("step", ts.frame) for ts in universe.trajectory]
    return *(np.array(values) for values in zip(*frames, strict=True)), np.array(steps)


def walk(n_frames, n_atoms, stride, seed=0):
    """Return chains of atoms with random steps of this size."""
    steps = np.random.default_rng(seed).normal(0, stride, (n_frames, n_atoms, 3))
    return np.cumsum(steps, axis=1).astype(np.float32)


@pytest.mark.parametrize(
    "files",
    [
        (datafiles.GRO, datafiles.XTC),
        (datafiles.PSF, datafiles.DCD),
        (datafiles.PSF_TRICLINIC, datafiles.DCD_TRICLINIC),
        (datafiles.TPR_xvf, datafiles.TRR_xvf),
    ],
    ids=["water", "adk", "triclinic", "xvf"],
)
def test_xtc_of_real_systems_is_what_mdanalysis_writes(files, tmp_path):
    universe = MDAnalysis.Universe(*files)
    expected = written_by_mdanalysis(universe, tmp_path / "theirs.xtc")
    assert encode(encoder("XTC", universe.atoms.n_atoms), *block_of(universe)) == expected


@pytest.mark.parametrize("decimals", [1, 2, 3, 4, 2.7])
@pytest.mark.parametrize("stride", [0.003, 0.05, 0.7, 4, 90])
@pytest.mark.parametrize("n_atoms", [10, 11, 997])
def test_xtc_of_chains_is_what_mdanalysis_writes(n_atoms, stride, decimals, tmp_path):
    positions = walk(4, n_atoms, stride)
    universe = in_memory(positions, TRICLINIC)
    expected = written_by_mdanalysis(universe, tmp_path / "theirs.xtc", precision=decimals)
    precise = encoder("XTC", n_atoms, precision=10.0**decimals)
    assert encode(precise, positions, TRICLINIC) == expected


@pytest.mark.parametrize(
    "positions",
    [
        walk(3, 1, 5),
        walk(3, 9, 5),
        np.zeros((2, 30, 3), np.float32),
        np.full((2, 30, 3), -0.0, np.float32),
        np.tile(np.float32([1.25, -3.005, 7.995]), (1, 40, 1)),
        np.linspace(-2, 2, 3000, dtype=np.float32).reshape(1, -1, 3),
        np.random.default_rng(1).uniform(-1e4, 1e4, (2, 500, 3)).astype(np.float32),
        # The range is too large for a combined number: along x in the first case, and along all
        # axes in the second.
        np.random.default_rng(2).uniform(-1, 1, (1, 300, 3)).astype(np.float32) * [1e6, 9, 9],
        np.random.default_rng(3).uniform(-5e6, 5e6, (1, 300, 3)).astype(np.float32),
        np.random.default_rng(4).uniform(0, 1.6e5, (1, 5000, 3)).astype(np.float32),
        np.sort(np.random.default_rng(5).normal(0, 1e6, (1, 400, 3)), axis=1).astype(np.float32),
    ],
    ids=[
        "1 atom",
        "9 atoms",
        "zeros",
        "negative zeros",
        "one point",
        "line",
        "far apart",
        "one wide axis",
        "wide",
        "72 bits",
        "long strides",
    ],
)
def test_xtc_of_odd_frames_is_what_mdanalysis_writes(positions, tmp_path):
    positions = positions.astype(np.float32)
    expected = written_by_mdanalysis(in_memory(positions, SKEW), tmp_path / "theirs.xtc")
    assert encode(encoder("XTC", positions.shape[1]), positions, SKEW) == expected


def test_xtc_is_the_same_bytes_in_any_order_of_frames():
    positions = walk(5, 300, 1.5)
    one = encoder("XTC", 300)
    whole = encode(one, positions)
    alone = {
        frame: encode(one, positions[[frame]], times=[float(frame)], steps=[frame])
        for frame in (3, 0, 4, 1, 2)
    }
    assert b"".join(alone[frame] for frame in range(5)) == whole
    assert one.head(5, 0.0, 1.0, 0, 1) == b""
    assert encode(one, positions[:0]) == b""


def test_threads_and_processes_share_an_encoder():
    blocks = [walk(3, 500, stride) for stride in (0.1, 1, 10, 100)] * 10
    one = encoder("XTC", 500)
    expected = [encode(encoder("XTC", 500), block) for block in blocks]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(partial(encode, one), blocks)) == expected
    there = pickle.loads(pickle.dumps(encoder("XTC", 500, precision=100.0)))
    assert encode(there, blocks[0]) == encode(encoder("XTC", 500, precision=100.0), blocks[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"positions": (1, 17, 2, np.nan)},
            "row 1: atom 17: expected a finite position, found NaN",
        ),
        (
            {"positions": (1, 3, 0, -np.inf)},
            "row 1: atom 3: expected a finite position, found -inf",
        ),
        (
            {"positions": (1, 17, 1, 1e9)},
            "row 1: atom 17: 1000000000 Å is too far out for precision",
        ),
        ({"steps": [0, 2**31]}, "row 1: step 2147483648 does not fit"),
        ({"dimensions": [CUBE, (9, 9, 9, 90, 90, np.inf)]}, "row 1: expected a unit cell or zeros"),
        ({"dimensions": [CUBE, (9, 9, 0, 90, 90, 90)]}, "which span no volume"),
        ({"times": [0, 1e300]}, "row 1: expected a time that fits in 32 bits"),
    ],
)
def test_xtc_refuses_what_it_cannot_hold(change, reason):
    positions = walk(2, 40, 1)
    if "positions" in change:
        *place, value = change.pop("positions")
        positions[tuple(place)] = value
    with pytest.raises(UnwritableError, match=reason) as caught:
        encode(encoder("XTC", 40), positions, **change)
    assert caught.value.row == 1
    assert str(caught.value) == f"row 1: {caught.value.reason}"


def test_xtc_refuses_ranges_and_plain_floats_beyond_it():
    positions = walk(1, 40, 1)
    positions[0, :2, 1] = [-1.5e7, 1.5e7]
    with pytest.raises(UnwritableError, match="y from -15000000 to 15000000 Å is too wide a range"):
        encode(encoder("XTC", 40), positions)
    with pytest.raises(UnwritableError, match="atom 0: expected a finite position, found inf"):
        encode(encoder("XTC", 1), np.full((1, 1, 3), np.inf))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"format": "XTC", "precision": np.nan}, "precision"),
        ({"format": "XTC", "precision": 0.0}, "precision"),
        ({"format": "XTC", "n_atoms": 2**31}, "XTC holds at most 2147483647 atoms"),
        ({"format": "DCD", "n_atoms": 2**29}, "DCD holds 1 to 536870911 atoms"),
        ({"format": "DCD", "n_atoms": 0}, "DCD holds 1 to 536870911 atoms"),
        ({"format": "DCD", "precision": 1000.0}, "the precision of DCD cannot be chosen"),
        ({"format": "XTC", "fields": POSITIONS | VELOCITIES}, "XTC holds no velocities"),
        ({"format": "DCD", "fields": 0}, "no fields to write"),
        ({"format": "PDB"}, "paceline does not write PDB"),
    ],
)
def test_what_no_file_can_have_is_refused(arguments, reason):
    with pytest.raises(UnwritableError, match=reason) as caught:
        encoder(**{"n_atoms": 10} | arguments)
    assert caught.value.row is None


def test_arrays_that_do_not_fit_each_other_are_refused():
    xtc = encoder("XTC", 12)
    with pytest.raises(ValueError, match=r"positions must be an array of shape \(2, 12, 3\)"):
        encode(xtc, walk(2, 11, 1))
    with pytest.raises(ValueError, match="positions must be"):
        xtc.encode((None, None, None, *NO_CELL))
    with pytest.raises(ValueError, match="must have the same n"):
        encode(xtc, walk(2, 12, 1), steps=[1])
    positions = walk(1, 12, 1)
    with pytest.raises(ValueError, match="velocities must be None"):
        xtc.encode((positions, positions, None, *NO_CELL))


def dcd(path, positions, dimensions=CUBE, *, time=0.0, dt=1.0, step=0, steps=0, has_cell=True):
    """Write a DCD file."""
    one = encoder("DCD", positions.shape[1], has_cell=has_cell)
    frames = encode(one, positions, dimensions)
    path.write_bytes(one.head(len(positions), time, dt, step, steps) + frames)
    return str(path)


def read_by_us(path):
    """Return positions, cells, times and steps."""
    trajectory = _core.Trajectory(path)
    n = trajectory.n_frames
    offsets_sizes = trajectory.extents(np.arange(n, dtype=np.uint64))

    class Extents:
        frames = np.arange(n, dtype=np.uint64)
        offsets, sizes = offsets_sizes

    class Block:
        positions = np.empty((n, trajectory.n_atoms, 3), np.float32)
        velocities = forces = validity = None
        cells = np.empty((n, CELL_WIDTH))
        times, steps, fields = np.empty(n), np.empty(n, np.int64), np.empty(n, np.uint8)
        lambdas = np.empty(n, np.float32)

    reader = _core.Reader(path, trajectory.layout, trajectory.samples)
    reader.read(Extents, Block, required=POSITIONS, skip=False)
    return Block.positions, dimensions_of(Block.cells), Block.times, Block.steps


@pytest.mark.parametrize("cell", [CUBE, TRICLINIC, SKEW, (5, 6, 7, 12.5, 169, 160)])
@pytest.mark.parametrize("n_atoms", [1, 2, 700])
def test_dcd_is_read_back_by_all(n_atoms, cell, tmp_path):
    positions = walk(5, n_atoms, 3)
    path = dcd(tmp_path / "ours.dcd", positions, cell)
    cells = np.broadcast_to(np.float32(cell), (5, 6))
    ours, our_cells, times, _ = read_by_us(path)
    assert_array_equal(ours, positions)
    assert_array_equal(our_cells, cells)
    theirs = MDAnalysis.Universe.empty(n_atoms).load_new(path)
    for ts in theirs.trajectory:
        assert_array_equal(ts.positions, positions[ts.frame])
        assert_array_equal(ts.dimensions, cells[ts.frame])
        assert ts.time == times[ts.frame]
    with mdtraj.formats.DCDTrajectoryFile(path) as file:
        xyz, lengths, angles = file.read()
    assert_array_equal(xyz, positions)
    assert_allclose(lengths, cells[:, :3], rtol=1e-6)
    assert_allclose(angles, cells[:, 3:], rtol=1e-6)


@pytest.mark.parametrize("has_cell", [False, True])
def test_dcd_without_cells(has_cell, tmp_path):
    positions = walk(3, 20, 3)
    path = dcd(tmp_path / "ours.dcd", positions, np.zeros(6), has_cell=has_cell)
    ours, cells, _, _ = read_by_us(path)
    assert_array_equal(ours, positions)
    assert not cells.any()
    universe = MDAnalysis.Universe.empty(20).load_new(path)
    assert universe.trajectory.ts.dimensions is None
    with mdtraj.formats.DCDTrajectoryFile(path) as file:
        assert_array_equal(file.read()[0], positions)


def test_dcd_frames_are_those_of_mdanalysis(tmp_path):
    universe = MDAnalysis.Universe(datafiles.PSF_TRICLINIC, datafiles.DCD_TRICLINIC)
    theirs = written_by_mdanalysis(universe, tmp_path / "theirs.dcd")
    n_atoms, n_frames = universe.atoms.n_atoms, len(universe.trajectory)
    frames = encode(encoder("DCD", n_atoms), *block_of(universe))
    ours = np.frombuffer(frames, np.uint8).reshape(n_frames, -1)
    theirs = np.frombuffer(theirs[-len(frames) :], np.uint8).reshape(n_frames, -1)
    # MDAnalysis computes cosines of angles in float32.
    assert_array_equal(ours[:, 56:], theirs[:, 56:])
    cells = [frames[:, 4:52].copy().view(np.float64) for frames in (ours, theirs)]
    assert_allclose(*cells, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("time", "dt", "step", "steps"),
    [
        (0.0, 1.0, 0, 0),
        (0.0, 100.0, 0, 50_000),
        (2.0, 2.0, 1000, 1000),
        (5.0, 2.0, 0, 0),
        (123_456.75, 0.5, 0, 0),
        (0.3, 0.1, 3, 1),
        (0.1, 0.3, 1, 1),
        (7.77, np.pi, 0, 0),
        (-3.0, 1.5, 0, 0),
        (1e6, 25.0, 2**40, 12_500),
    ],
)
def test_dcd_tells_the_times_of_its_source(time, dt, step, steps, tmp_path):
    positions = walk(50, 3, 1)
    path = dcd(tmp_path / "ours.dcd", positions, time=time, dt=dt, step=step, steps=steps)
    expected = time + np.arange(50) * dt
    exact = {"rtol": 0, "atol": 1e-7 * np.abs(expected).max()}
    _, _, times, our_steps = read_by_us(path)
    assert_allclose(times, expected, **exact)
    trajectory = MDAnalysis.Universe.empty(3).load_new(path).trajectory
    assert_allclose([ts.time for ts in trajectory], expected, **exact)
    assert_allclose(trajectory.dt, dt, rtol=1e-7)
    if steps and time * steps == dt * step:
        assert_array_equal(our_steps, step + np.arange(50) * steps)


def test_dcd_refuses_what_it_cannot_hold():
    positions = walk(2, 10, 1)
    cells = [np.zeros(6), CUBE]
    with pytest.raises(UnwritableError, match="row 1: expected no unit cell"):
        encode(encoder("DCD", 10, has_cell=False), positions, cells)
    with pytest.raises(UnwritableError, match=r"row 0: .* up to 180 degrees, found 181"):
        encode(encoder("DCD", 10), positions, (1, 2, 3, 90, 181, 90))
    with pytest.raises(UnwritableError, match="row 0: expected a finite unit cell"):
        encode(encoder("DCD", 10), positions, (1, 2, np.nan, 90, 90, 90))
    positions[1, 3, 2] = -np.inf
    with pytest.raises(UnwritableError, match=r"row 1: atom 3: .* finite position, found -inf"):
        encode(encoder("DCD", 10), positions, CUBE)
