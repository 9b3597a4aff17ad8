"""Tests of loops over frames: other threads decode blocks ahead, and the frames are the same."""

import contextlib
import gc
import multiprocessing
import os
import random
import shutil
import threading
from pathlib import Path

import MDAnalysis as mda
import numpy as np
import pytest
from helpers.waiting import PATIENCE, until
from MDAnalysisTests.datafiles import DCD, GRO, NCDF, PSF, TRR, XTC, PRMncdf

import paceline
from paceline._util.machine_and_software import available_cpus
from paceline.analysis.rms import RMSD
from paceline.contract import source
from paceline.errors import DamagedFileError, PacelineError
from paceline.trajectory import read_ahead

N_FRAMES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 300 different frames."""
    folder = tmp_path_factory.mktemp("long")
    universe = mda.Universe(PSF, DCD)
    first = universe.trajectory[0].positions.copy()
    for end in ("xtc", "dcd", "nc", "trr", "h5md"):
        with paceline_writer(folder / f"md.{end}", len(first)) as writer:
            for k in range(N_FRAMES):
                ts = universe.trajectory[k % universe.trajectory.n_frames]
                ts.positions[0] = (k, 2 * k, 3)
                ts.dimensions = [90 + k / 100, 90, 90, 90, 90, 90]
                ts.frame = k
                ts.data["time"], ts.data["step"] = float(k), k
                writer.write(universe.atoms)
    return folder


def paceline_writer(path: Path, n_atoms: int):
    if path.suffix == ".h5md":
        return paceline.H5MDWriter(path, n_atoms)
    return mda.Writer(str(path), n_atoms, dt=1.0)


def alone(universe, frame: int):
    """Read one frame without the help of other threads."""
    ahead, universe.trajectory._read_ahead = universe.trajectory._read_ahead, None
    ts = universe.trajectory[frame].copy()
    universe.trajectory._read_ahead = ahead
    return ts


def assert_same(ts, other) -> None:
    assert ts.frame == other.frame
    assert ts.time == other.time
    assert ts.data["step"] == other.data["step"]
    np.testing.assert_array_equal(ts.positions, other.positions)
    np.testing.assert_array_equal(ts.dimensions, other.dimensions)


@pytest.mark.parametrize("end", ["xtc", "dcd", "nc", "trr", "h5md"])
def test_any_order_of_frames(folder: Path, end: str) -> None:
    universe, other = (paceline.Universe(PSF, folder / f"md.{end}") for _ in range(2))
    trajectory = universe.trajectory
    numbers = random.Random(7)
    visits = [
        *range(N_FRAMES),
        *range(0, N_FRAMES, 7),
        *range(N_FRAMES - 1, 0, -1),
        *(k for k in range(40, 90) for _ in range(2)),
        *(k for pair in zip(range(60), [0] * 60, strict=True) for k in pair),
        *(numbers.randrange(N_FRAMES) for _ in range(30)),
        *range(100, 130),
        *range(131, 200),
    ]
    for frame in visits:
        assert_same(trajectory[frame], alone(other, frame))


def test_blocks_were_decoded_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    universe = paceline.Universe(PSF, folder / "md.xtc")
    singly = []
    read = type(universe.trajectory)._read_alone

    def counted(self, frame: int):
        singly.append(frame)
        return read(self, frame)

    monkeypatch.setattr(type(universe.trajectory), "_read_alone", counted)
    assert sum(1 for _ in universe.trajectory) == N_FRAMES
    assert len(singly) <= read_ahead.REGULAR + 2  # MDAnalysis returns to the first frame at the end
    singly.clear()
    assert sum(1 for _ in universe.trajectory[10:250:3]) == 80
    assert len(singly) <= read_ahead.REGULAR + 2  # MDAnalysis returns to the first frame at the end


def test_chain_of_files(folder: Path) -> None:
    files = [folder / "md.xtc", folder / "md.dcd", folder / "md.trr"]
    universe, other = (paceline.Universe(PSF, files) for _ in range(2))
    seen = 0
    for ts in universe.trajectory:
        assert_same(ts, alone(other, ts.frame))
        seen += 1
    assert seen == 3 * N_FRAMES


def test_arrays_are_reused_as_by_mdanalysis(folder: Path) -> None:
    """Check arrays: XTC frames share one; each DCD frame has its own before MDAnalysis 3."""
    xtc = paceline.Universe(PSF, folder / "md.xtc").trajectory
    assert len({id(ts.positions) for ts in xtc}) == 1
    dcd = [ts.positions for ts in paceline.Universe(PSF, folder / "md.dcd").trajectory]
    assert [round(float(one[0, 0])) for one in dcd] == list(range(N_FRAMES))


def test_edited_positions_stay_those_of_their_frame(folder: Path) -> None:
    trajectory = paceline.Universe(PSF, folder / "md.xtc").trajectory
    for ts in trajectory:
        assert round(float(ts.positions[0, 0])) == ts.frame
        ts.positions[:] = -1.0


def test_damaged_frame_is_named_when_it_is_reached(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "md.xtc"
    path.write_bytes((folder / "md.xtc").read_bytes())
    universe = paceline.Universe(PSF, path)
    (offset, *_), _ = universe.trajectory.file.extents(np.array([200], dtype=np.uint64))
    with open(path, "r+b") as file:
        file.seek(int(offset) + 52)
        file.write(b"\xff" * 32)
    universe = paceline.Universe(PSF, path)
    seen = []
    with pytest.raises(DamagedFileError, match=r"frame 200"):
        seen.extend(ts.frame for ts in universe.trajectory)
    assert seen == list(range(200))
    assert universe.trajectory[201].frame == 201


def test_file_that_shrinks_in_the_middle(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "md.dcd"
    path.write_bytes((folder / "md.dcd").read_bytes())
    trajectory = paceline.Universe(PSF, path).trajectory
    assert sum(1 for _ in trajectory[:20]) == 20
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises((OSError, PacelineError), match=r"md\.dcd"):
        sum(1 for _ in trajectory[20:])


def test_copies_pickles_and_forks_read_by_themselves(folder: Path) -> None:
    universe = paceline.Universe(PSF, folder / "md.xtc")
    for ts in universe.trajectory:
        if ts.frame == 50:
            copy = universe.copy()
            assert [one.frame for one in copy.trajectory[50:60]] == list(range(50, 60))
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=_frames_of, args=(universe, queue))
            child.start()
            assert queue.get(timeout=PATIENCE) == list(range(51, 80))
            child.join()
        assert round(float(ts.positions[0, 0])) == ts.frame


def test_forked_workers_decode_ahead_by_one_thread_each() -> None:
    assert read_ahead._n_threads() == available_cpus()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(read_ahead._n_threads) == 1


def _frames_of(universe, queue) -> None:
    queue.put([round(float(universe.trajectory[k].positions[0, 0])) for k in range(51, 80)])


def test_several_threads_each_with_a_universe(folder: Path) -> None:
    wrong = []

    def work() -> None:
        trajectory = paceline.Universe(PSF, folder / "md.xtc").trajectory
        wrong.extend(ts.frame for ts in trajectory if round(float(ts.positions[0, 0])) != ts.frame)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


def _n_open(path: Path) -> int:
    """Return how often this process has a file open."""
    n_open = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            n_open += os.readlink(link) == str(path)
    return n_open


def test_open_files_are_few(folder: Path) -> None:
    """Check the number of open files after many interrupted loops."""
    universes = [paceline.Universe(PSF, folder / "md.xtc") for _ in range(40)]
    for universe in universes:
        for ts in universe.trajectory:
            if ts.frame == 30:
                break
    most = source.OPEN_READERS * (read_ahead._n_threads() + 1)
    # On a busy machine, threads that read ahead close their files later.
    until(lambda: _n_open(folder / "md.xtc") <= most)
    for universe in universes[::13]:
        assert [ts.frame for ts in universe.trajectory[31:60]] == list(range(31, 60))


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_a_universe_that_is_gone_leaves_no_file_open(backend: str, tmp_path: Path) -> None:
    """Check that files are closed, so that a deleted file frees its disk space."""
    path = Path(shutil.copy(DCD, tmp_path))
    universe = paceline.Universe(PSF, path)
    RMSD(universe.select_atoms("name CA")).run(backend=backend)
    for ts in universe.trajectory:
        if ts.frame == 5:
            break
    assert _n_open(path) > 0
    del universe, ts

    def is_closed():
        gc.collect()
        return _n_open(path) == 0

    until(is_closed)


@pytest.mark.parametrize(("topology", "trajectory"), [(GRO, XTC), (GRO, TRR), (PRMncdf, NCDF)])
def test_files_of_other_programs(topology: str, trajectory: str) -> None:
    ours, theirs = paceline.Universe(topology, trajectory), mda.Universe(topology, trajectory)
    for ts, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        np.testing.assert_allclose(ts.positions, other.positions, rtol=0, atol=1e-4)
        assert ts.has_velocities == other.has_velocities
        assert ts.time == pytest.approx(other.time)
