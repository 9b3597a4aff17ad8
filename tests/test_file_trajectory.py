"""Tests of `paceline.open`: frames, blocks and arrays of files, without a topology."""

import multiprocessing
import os
import pickle
import shutil
import threading
import time
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.waiting import PATIENCE
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.rms import RMSD
from paceline.block import FIELDS, FrameBuffer
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    MissingDataError,
    PacelineWarning,
    SelectionError,
    UnsupportedError,
)
from paceline.trajectory import read_ahead
from paceline.trajectory.file_trajectory import FileTrajectory

#: A file of each format: its topology for MDAnalysis, MDAnalysis's name of the format, and
#: paceline's.
FILES = {
    "xtc": (datafiles.GRO, datafiles.XTC, None, "XTC"),
    "trr": (datafiles.GRO, datafiles.TRR, None, "TRR"),
    "dcd": (datafiles.PSF, datafiles.DCD, None, "DCD"),
    "netcdf": (datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX, None, "NetCDF"),
    "history": (datafiles.DLP_HISTORY, datafiles.DLP_HISTORY, "HISTORY", "HISTORY"),
    "config": (datafiles.DLP_CONFIG, datafiles.DLP_CONFIG, "CONFIG", "CONFIG"),
    "lammps": (datafiles.LAMMPS_image_vf, datafiles.LAMMPSDUMP_image_vf, "DATA", "LAMMPSDUMP"),
    "h5md": (datafiles.TPR_xvf, datafiles.H5MD_xvf, None, "H5MD"),
}


@pytest.fixture(scope="module", params=FILES)
def kind(request, tmp_path_factory):
    """A file of each format in a writable folder, and MDAnalysis's reader of it."""
    topology, trajectory, topology_format, name = FILES[request.param]
    path = shutil.copy(str(trajectory), tmp_path_factory.mktemp(request.param))
    formats = {"topology_format": topology_format} if topology_format else {}
    if request.param in ("history", "config"):
        formats["format"] = topology_format
    if request.param == "lammps":
        formats["format"] = "LAMMPSDUMP"
    theirs = MDAnalysis.Universe(str(topology), str(trajectory), **formats)
    return path, theirs.trajectory, name


def test_frames_are_those_of_mdanalysis(kind):
    path, theirs, name = kind
    with paceline.open(path) as trajectory:
        assert (len(trajectory), trajectory.n_atoms) == (theirs.n_frames, theirs.n_atoms)
        assert trajectory.format == name
        times_differ = name in (
            "HISTORY",
            "CONFIG",
            "LAMMPSDUMP",
        )  # MDAnalysis returns frame numbers
        for frame, ts in zip(trajectory, theirs, strict=True):
            assert frame.frame == ts.frame
            if not times_differ:
                assert frame.time == pytest.approx(ts.time, rel=1e-6)
            if ts.dimensions is None:
                assert frame.dimensions is None
            else:
                np.testing.assert_allclose(frame.dimensions, ts.dimensions, rtol=1e-5)
            for field in FIELDS:
                assert getattr(frame, f"has_{field}") == getattr(ts, f"has_{field}")
                if getattr(ts, f"has_{field}"):
                    found = getattr(frame, field)
                    assert (found.shape, found.dtype) == ((theirs.n_atoms, 3), np.float32)
                    # MDAnalysis does not convert the forces of DL_POLY.
                    unit = 0.01 if field == "forces" and name in ("HISTORY", "CONFIG") else 1
                    wanted = unit * getattr(ts, field)
                    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
        assert trajectory.times.tolist() == [frame.time for frame in trajectory]


def test_arrays_are_those_of_frames(kind):
    path, theirs, _ = kind
    trajectory = paceline.open(path)
    frames = slice(None, None, 2)
    atoms = [5, 2, 2, trajectory.n_atoms - 1, 0, -3]
    expected = list(trajectory[frames])
    for field in [name for name in FIELDS if getattr(expected[0], f"has_{name}")]:
        found = getattr(trajectory, field)(frames=frames, atoms=atoms)
        np.testing.assert_array_equal(found, [getattr(one, field)[atoms] for one in expected])
    mask = np.arange(trajectory.n_atoms) % 3 == 0
    np.testing.assert_array_equal(
        trajectory.positions(frames=[-1, 0], atoms=mask),
        [trajectory[theirs.n_frames - 1].positions[mask], expected[0].positions[mask]],
    )
    cells = [np.zeros(6) if one.dimensions is None else one.dimensions for one in expected]
    np.testing.assert_array_equal(trajectory.dimensions(frames=frames), cells)
    assert trajectory.positions(frames=[]).shape == (0, trajectory.n_atoms, 3)


@pytest.mark.parametrize("n_frames", [None, 1, 7, 1000])
def test_blocks_are_the_frames(adk, n_frames):
    trajectory = paceline.open(adk.trajectory)
    for chosen in ({}, {"frames": slice(5, 90, 3), "atoms": [9, 3]}, {"frames": [40, 3, 3, 97]}):
        numbers = np.arange(98)[chosen["frames"]] if "frames" in chosen else np.arange(98)
        blocks = list(trajectory.blocks(n_frames=n_frames, **chosen))
        if n_frames is not None:
            lengths = [len(numbers[k : k + n_frames]) for k in range(0, len(numbers), n_frames)]
            assert [len(block) for block in blocks] == lengths
        assert np.concatenate([block.frames for block in blocks]).tolist() == numbers.tolist()
        joined = np.concatenate([block.positions for block in blocks])
        np.testing.assert_array_equal(joined, trajectory.positions(**chosen))
        times = np.concatenate([block.times for block in blocks])
        np.testing.assert_array_equal(times, trajectory.times[numbers])
    assert list(trajectory.blocks(frames=[])) == []


@pytest.mark.parametrize("n_frames", [None, 1, 7, 64])
@pytest.mark.parametrize("chunk", ["1x3341", "5x1000", "contiguous"])
def test_blocks_of_chunks(universe, tmp_path, chunk, n_frames):
    path = tmp_path / "adk.h5md"
    paceline.run(paceline.Write(universe.atoms, path, chunk=chunk))
    trajectory = paceline.open(path)
    chosen = {"frames": slice(2, 95, 2), "atoms": [40, 3, 900]}
    found = list(trajectory.blocks(n_frames=n_frames, **chosen))
    expected = universe.trajectory.timeseries(order="fac")[2:95:2, [40, 3, 900]]
    np.testing.assert_array_equal(np.concatenate([one.positions for one in found]), expected)
    some = trajectory.positions(frames=[40, 3, 3, 97], atoms=[7])
    np.testing.assert_array_equal(some, trajectory.positions(atoms=[7])[[40, 3, 3, 97]])


def test_one_thread_reads_what_several_should_not(adk_xtc, monkeypatch):
    trajectory = paceline.open(adk_xtc.trajectory)
    expected = trajectory.positions(atoms=[3, 1])
    monkeypatch.setattr(read_ahead, "WAITING_BYTES", 1)
    monkeypatch.setattr(read_ahead, "CallsAhead", None)
    blocks = list(trajectory.blocks(atoms=[3, 1], n_frames=5))
    np.testing.assert_array_equal(np.concatenate([one.positions for one in blocks]), expected)


def test_arrays_are_the_users_own(adk_xtc):
    trajectory = paceline.open(adk_xtc.trajectory)
    frames, blocks = list(trajectory), list(trajectory.blocks(n_frames=3))
    positions = trajectory.positions()
    for k, frame in enumerate(frames):
        np.testing.assert_array_equal(frame.positions, positions[k])
        np.testing.assert_array_equal(blocks[k // 3].positions[k % 3], positions[k])
    blocks[0].positions[:] = 0
    np.testing.assert_array_equal(trajectory[0].positions, positions[0])


def test_sequences_of_frames(adk):
    trajectory = paceline.open(adk.trajectory)
    some = trajectory[10:50:10]
    assert (len(some), some[1].frame, some[-1].frame) == (4, 20, 40)
    assert [frame.frame for frame in some] == [frame.frame for frame in some] == [10, 20, 30, 40]
    assert [frame.frame for frame in some[::-2]] == [40, 20]
    assert [frame.frame for frame in trajectory[[5, -1]][[1, 0]]] == [97, 5]
    assert trajectory[np.int64(-1)].frame == 97
    for wrong in (98, -99, [3, 98]):
        with pytest.raises(IndexError, match="out of range for 98 frames"):
            trajectory[wrong]
    with pytest.raises(ValueError, match="integers or booleans"):
        trajectory["first"]
    with pytest.raises(IndexError, match="atom 3341 is out of range for 3341 atoms"):
        trajectory.positions(atoms=[0, 3341])
    with pytest.raises(ValueError, match="no atoms are chosen"):
        trajectory.positions(atoms=[])
    with pytest.raises(ValueError, match="n_frames of 1 or more, found 0"):
        trajectory.blocks(n_frames=0)
    with pytest.raises(ValueError, match="'ignore'"):
        trajectory.blocks(on_error="ignore")


def test_fields_are_there_or_missed_by_name(adk, moving):
    trajectory = paceline.open(adk.trajectory)
    assert trajectory.fields == ("positions",)
    with pytest.raises(MissingDataError, match=r"dcd: velocities were requested.*positions only"):
        trajectory.velocities()
    with pytest.raises(MissingDataError, match=r"frame 3 has no forces; it holds positions$"):
        _ = trajectory[3].forces
    with pytest.raises(ValueError, match="'momenta'"):
        trajectory.blocks(fields=["momenta"])
    some = paceline.open(moving[1])
    theirs = MDAnalysis.Universe(*moving).trajectory
    assert some.fields == FIELDS
    held = [frame.frame for frame in some if frame.has_velocities]
    assert held == list(range(0, 20, 2))
    [block] = some.blocks(frames=held, fields=["velocities"])
    np.testing.assert_array_equal(block.velocities, [theirs[k].velocities.copy() for k in held])
    with pytest.raises(AttributeError, match=r"no 'positions': they were not asked for"):
        _ = block.positions
    lacking = r"moving\.trr: frame 1 has no velocities; "
    with pytest.raises(MissingDataError, match=lacking + r"blocks\(on_error=\"skip\"\) leaves"):
        some.velocities()
    with pytest.warns(PacelineWarning, match=lacking + "frames that cannot be read are left out"):
        [block] = some.blocks(fields=["velocities"], n_frames=20, on_error="skip")
    assert block.frames.tolist() == held


def test_chains_of_files(adk, adk_xtc):
    trajectory = paceline.open([adk.trajectory, adk_xtc.trajectory])
    assert (trajectory.n_frames, trajectory.format) == (196, "DCD, XTC")
    frame = trajectory[100]
    assert frame.filename == adk_xtc.trajectory
    np.testing.assert_allclose(frame.positions, trajectory[2].positions, atol=0.01)
    xyz = trajectory.positions(frames=slice(90, 106))
    np.testing.assert_array_equal(xyz[10], frame.positions)
    folder = Path(adk_xtc.trajectory).parent
    assert paceline.open(folder / "*.xtc").filenames == [adk_xtc.trajectory]


def test_times_are_the_files_or_the_users(adk, tmp_path):
    theirs = MDAnalysis.Universe(*adk).trajectory
    assert paceline.open(adk.trajectory).dt == pytest.approx(theirs.dt)
    trajectory = paceline.open(adk.trajectory, dt=2.5)
    assert trajectory.dt == 2.5
    np.testing.assert_array_equal(np.diff(trajectory.times), 2.5)
    assert trajectory[4].time == trajectory.times[4]
    path = shutil.copy(datafiles.LAMMPSDUMP_image_vf, tmp_path)
    steps = [frame.step for frame in paceline.open(path)]
    # For LAMMPS dumps, dt is the time between steps.
    np.testing.assert_allclose(paceline.open(path, dt=0.5).times, np.array(steps) * 0.5)
    assert paceline.open(path, dt=0.5).dt == 0.5 * (steps[1] - steps[0])


def test_damaged_frames_are_named_when_their_turn_comes(damaged):
    (_, path), frames = damaged
    trajectory = paceline.open(path)
    seen = []
    with pytest.raises(DamagedFileError, match=r"\.xtc: frame 3, .*byte \d+"):
        seen.extend(frame.frame for frame in trajectory)
    assert seen == [0, 1, 2]
    assert trajectory[4].frame == 4
    for read in (trajectory.positions, lambda: list(trajectory.blocks())):
        with pytest.raises(DamagedFileError, match="frame 3, "):
            read()
    blocks = trajectory.blocks(n_frames=3)
    assert next(blocks).frames.tolist() == [0, 1, 2]
    with pytest.raises(DamagedFileError, match="frame 3, "):
        next(blocks)
    with pytest.warns(PacelineWarning, match=r"frame 3, .*left out") as said:
        blocks = list(trajectory.blocks(n_frames=4, on_error="skip"))
    assert len(said) == 1
    left = np.concatenate([block.frames for block in blocks])
    assert left.tolist() == sorted(set(range(98)) - set(frames))
    np.testing.assert_array_equal(
        np.concatenate([block.positions for block in blocks]), trajectory.positions(frames=left)
    )


def test_files_that_are_none(adk, tmp_path):
    with pytest.raises(ValueError, match="expected one trajectory file or more, found none"):
        paceline.open([])
    with pytest.raises(FileNotFoundError, match=r"missing\.xtc"):
        paceline.open(tmp_path / "missing.xtc")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        paceline.open(tmp_path / "*.xtc")
    (tmp_path / "notes.txt").write_text("positions of atoms\n" * 100)
    with pytest.raises(UnsupportedError, match=r"notes\.txt"):
        paceline.open(tmp_path / "notes.txt")
    with pytest.raises(UnsupportedError, match=r"group= .*applies to HDF5"):
        paceline.open(adk.trajectory, group="all")


def test_a_file_that_is_replaced(adk_xtc, adk, tmp_path):
    path = shutil.copy(adk_xtc.trajectory, tmp_path)
    trajectory = paceline.open(path)
    universe = paceline.Universe(*adk)
    paceline.run(paceline.Write(universe.atoms[::-1], path, overwrite=True))
    with pytest.raises(FileChangedError, match=r"adk\.xtc"):
        trajectory.positions()


def test_a_closed_trajectory_reads_nothing(adk_xtc, tmp_path):
    path = shutil.copy(adk_xtc.trajectory, tmp_path)
    with paceline.open(path) as trajectory:
        frame, waiting = trajectory[5], trajectory[::2]
    assert frame.positions.shape == (3341, 3)
    for read in (trajectory.positions, trajectory.blocks, lambda: trajectory[0]):
        with pytest.raises(ValueError, match=r"adk\.xtc: the trajectory is closed"):
            read()
    with pytest.raises(ValueError, match="closed"):
        next(iter(waiting))
    # Other threads may close a file while the list is read.
    names = [os.path.realpath(link) for link in Path("/proc/self/fd").glob("*")]
    assert path not in names


def test_closing_ends_loops_and_analyses(adk_xtc, tmp_path):
    path = shutil.copy(adk_xtc.trajectory, tmp_path)
    trajectory = paceline.open(path)
    begun = [iter(trajectory), trajectory.blocks(n_frames=2)]
    for loop in begun:
        next(loop)
    later = [iter(trajectory), trajectory.blocks()]
    copy = pickle.loads(pickle.dumps(trajectory))
    trajectory.close()
    for loop in [*begun, *later]:
        with pytest.raises(ValueError, match=r"adk\.xtc: the trajectory is closed"):
            next(loop)
    with pytest.raises(ValueError, match="closed"):
        paceline.TimeSeries(lambda block: block.times, trajectory).run(backend="serial")
    assert len(list(copy)) == 98


def test_too_much_for_memory_is_refused(adk_xtc, monkeypatch):
    trajectory = paceline.open(adk_xtc.trajectory)
    monkeypatch.setattr("paceline.trajectory.file_trajectory.free_memory", lambda: 10**6)
    with pytest.raises(UnsupportedError, match=r"3,341 atoms need 3\.93 MB.*by blocks"):
        trajectory.positions()
    assert trajectory.positions(atoms=[1]).shape == (98, 1, 3)


def test_pieces_are_decoded_by_threads_and_few_wait(adk_xtc, monkeypatch):
    monkeypatch.setattr(read_ahead, "BLOCK_BYTES", 4 * 12 * 3341)
    names, allocated = set(), []
    decode, allocate = read_ahead.FrameDecoder.__call__, FrameBuffer.allocate

    def noted(self, decoded, *, skip):
        names.add(threading.current_thread().name.rpartition("_")[0])
        assert len(decoded.frames) <= 4
        return decode(self, decoded, skip=skip)

    def counted(frames, n_atoms, fields):
        allocated.append(len(frames))
        return allocate(frames, n_atoms, fields)

    monkeypatch.setattr(read_ahead.FrameDecoder, "__call__", noted)
    monkeypatch.setattr(FrameBuffer, "allocate", counted)
    trajectory = paceline.open(adk_xtc.trajectory)
    allocated.clear()
    for waiting in (read_ahead.WAITING_BYTES, 1):
        monkeypatch.setattr(read_ahead, "WAITING_BYTES", waiting)
        if waiting == 1:
            monkeypatch.setattr(read_ahead, "_threads_may_decode", lambda *_: True)
        most = 2 * read_ahead._n_threads() if waiting > 1 else 1
        for n_read, block in enumerate(trajectory.blocks(n_frames=4), start=1):
            assert len(allocated) <= n_read + most
            assert block.frames[0] == 4 * (n_read - 1)
        allocated.clear()
    assert names == {"paceline-read-ahead"}


def test_copies_go_to_other_processes(adk_xtc):
    trajectory = paceline.open(adk_xtc.trajectory)
    expected = trajectory.positions(atoms=[3])
    _ = trajectory[0]
    copy = pickle.loads(pickle.dumps(trajectory))
    np.testing.assert_array_equal(copy.positions(atoms=[3]), expected)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    blocks = trajectory.blocks(n_frames=10, atoms=[3])
    first = next(blocks).positions
    child = context.Process(target=_rest_of, args=(blocks, queue))
    child.start()
    rest = queue.get(timeout=PATIENCE)
    child.join()
    for others in (rest, np.concatenate([block.positions for block in blocks])):
        np.testing.assert_array_equal(np.concatenate([first, others]), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_threads_that_decode():
    begun, ended = threading.Event(), []

    def slowly(item):
        begun.set()
        time.sleep(0.1)
        ended.append(item)
        return item

    calls = read_ahead.CallsAhead(slowly, range(8), result_bytes=1)
    calls.fill()
    assert begun.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        os._exit(0 if ended else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [item for item, _ in calls] == list(range(8))  # the threads continue


def test_calls_wait_for_all_forks():
    calls, ended = read_ahead._CallsOfThreads(), threading.Event()
    calls.before_fork()
    calls.before_fork()
    thread = threading.Thread(target=calls.call, args=(lambda _: ended.set(), None))
    thread.start()
    calls.after_fork()
    assert not ended.wait(0.1)
    calls.after_fork()
    thread.join()
    assert ended.is_set()


def _rest_of(blocks, queue) -> None:
    queue.put(np.concatenate([block.positions for block in blocks]))


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_analyses_of_files_without_a_topology(backend, adk_xtc, tmp_path):
    trajectory = paceline.open(adk_xtc.trajectory)
    universe = paceline.Universe(*adk_xtc)
    atoms = [40, 3, 900]

    def spread(block):
        return block.positions.std(axis=1)

    found = (
        paceline.TimeSeries(spread, trajectory.atoms[atoms])
        .run(step=3, backend=backend, n_workers=2)
        .results
    )
    expected = paceline.TimeSeries(spread, universe.atoms[atoms]).run(step=3).results
    np.testing.assert_array_equal(found.timeseries, expected.timeseries)
    np.testing.assert_array_equal(found.times, expected.times)
    written = tmp_path / "some.h5md"
    write = paceline.Write(trajectory.atoms[atoms], written).run(
        step=3, backend=backend, n_workers=2
    )
    assert write.results.n_written == 33
    np.testing.assert_array_equal(
        paceline.open(written).positions(),
        trajectory.positions(frames=slice(0, 98, 3), atoms=atoms),
    )


def test_what_needs_a_topology_says_so(adk_xtc):
    trajectory = paceline.open(adk_xtc.trajectory)
    assert isinstance(trajectory, FileTrajectory)
    assert not hasattr(trajectory.atoms, "masses")
    with pytest.raises(AttributeError, match=r"without a topology.*paceline\.Universe"):
        _ = trajectory.atoms.masses
    for atoms in (trajectory, trajectory.atoms):
        with pytest.raises(UnsupportedError, match=r"without a topology.*paceline\.Universe"):
            RMSD(atoms)
    series = paceline.TimeSeries(len, trajectory)
    with pytest.raises(UnsupportedError, match=r"adk\.xtc: transforms= need a topology"):
        series.run(transforms=[paceline.transform.nojump()])
    with pytest.raises(SelectionError, match="no atoms"):
        paceline.TimeSeries(len, trajectory.atoms[[]]).run()
