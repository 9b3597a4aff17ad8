"""Tests that paceline's reader returns the same bits as MDAnalysis's readers."""

import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.waiting import PATIENCE
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.transformations import translate
from MDAnalysisTests import datafiles

import paceline
import paceline.trajectory.open
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    FileChangedError,
    PacelineError,
    PacelineWarning,
    ReadError,
    UnsupportedError,
)
from paceline.mdanalysis.reader import Reader

DATA = Path(datafiles.__file__).parent / "data"
PUBLISHED = sorted(
    path.relative_to(DATA)
    for path in DATA.rglob("*")
    if path.suffix in (".xtc", ".dcd") and path.name != "empty.dcd"
)
READERS = {".xtc": XTCReader, ".dcd": DCDReader}

pytestmark = [
    pytest.mark.filterwarnings("ignore:DCDReader currently makes:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*the header says"),
    pytest.mark.filterwarnings("ignore:No dimensions set:UserWarning"),
]


@pytest.fixture(params=["xtc", "dcd"])
def path(request, tmp_path):
    """An XTC file of 10 frames and a DCD file of 98, with times that do not begin at 0."""
    source = {"xtc": datafiles.XTC_multi_frame, "dcd": datafiles.DCD}[request.param]
    copied = tmp_path / f"trajectory.{request.param}"
    if request.param == "dcd":
        return shutil.copy(source, copied)
    universe = MDAnalysis.Universe(source, to_guess=())
    with MDAnalysis.Writer(str(copied), n_atoms=universe.trajectory.n_atoms) as writer:
        for ts in universe.trajectory:
            ts.time = 1000.5 + 0.1 * ts.frame
            writer.write(universe)
    return copied


@pytest.fixture
def ours(path):
    return Reader(path)


@pytest.fixture
def theirs(path):
    return READERS[path.suffix](path)


def same(ours, theirs):
    """Check that two Timesteps are equal to the last bit."""
    np.testing.assert_array_equal(ours.positions, theirs.positions, strict=True)
    assert (ours.dimensions is None) == (theirs.dimensions is None)
    if ours.dimensions is not None:
        np.testing.assert_array_equal(ours.dimensions, theirs.dimensions, strict=True)
    assert (ours.frame, ours.time, ours.dt) == (theirs.frame, theirs.time, theirs.dt)


@pytest.mark.parametrize("name", PUBLISHED, ids=str)
def test_published_files_bit_for_bit(name, tmp_path):
    copied = shutil.copy(DATA / name, tmp_path)
    ours, theirs = Reader(copied), READERS[name.suffix](copied)
    assert (ours.n_frames, ours.n_atoms) == (theirs.n_frames, theirs.n_atoms)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
        if name.suffix == ".xtc":
            assert one.data["step"] == other.data["step"]
    assert ours.totaltime == theirs.totaltime


@pytest.mark.parametrize(
    "frames",
    [
        np.s_[:],
        np.s_[2:9:3],
        np.s_[::-1],
        np.s_[-3:],
        np.s_[20:],
        [3, 0, -1, 3],
        np.array([1, 5]),
        [],
    ],
    ids=str,
)
def test_slices_and_lists(ours, theirs, frames):
    one = [(ts.frame, ts.time, ts.positions.copy()) for ts in ours[frames]]
    other = [(ts.frame, ts.time, ts.positions.copy()) for ts in theirs[frames]]
    assert len(one) == len(other) == len(ours[frames])
    for a, b in zip(one, other, strict=True):
        assert a[:2] == b[:2]
        np.testing.assert_array_equal(a[2], b[2])
    assert ours.frame == theirs.frame


def test_booleans(ours):
    chosen = np.arange(len(ours)) % 3 == 1
    assert [ts.frame for ts in ours[chosen]] == list(np.flatnonzero(chosen))
    assert [ts.frame for ts in ours[list(chosen)]] == list(np.flatnonzero(chosen))


def test_random_access(ours, theirs):
    for frame in (7, 0, -1, 3, -len(ours), 8):
        same(ours[frame], theirs[frame])


@pytest.mark.parametrize("past", [0, 1, 1000])
def test_past_the_end(ours, past):
    for frame in (len(ours) + past, -len(ours) - 1 - past):
        with pytest.raises(IndexError):
            ours[frame]


def test_next_and_rewind(ours, theirs):
    for step in (next, next, lambda reader: reader.rewind(), next):
        step(ours), step(theirs)
        same(ours.ts, theirs.ts)
    for reader in (ours, theirs):
        reader[-1]
        with pytest.raises(StopIteration):
            next(reader)
    same(ours.ts, theirs.ts)


def kept(reader):
    """Return which Timesteps, positions and cells frames share, if all frames are kept."""
    shown = [(ts, ts.positions, ts.dimensions) for ts in reader]
    for one in (reader[1], reader[0], reader.rewind() or reader.ts, next(reader)):
        shown.append((one, one.positions, one.dimensions))
    steps, positions, cells = zip(*shown, strict=True)
    arrays = [[id(part if part.base is None else part.base) for part in positions]]
    arrays += [[part.__array_interface__["data"] for part in cells if part is not None]]
    # Only which objects are identical matters, not their addresses.
    return [[some.index(one) for one in some] for some in ([id(ts) for ts in steps], *arrays)]


@pytest.mark.parametrize(
    ("name", "n_files"),
    [
        *((name, 1) for name in ("XTC", "TRR", "NCDF", "H5MD_xvf", "DLP_HISTORY", "DCD")),
        ("DCD", 2),
        ("DCD_TRICLINIC", 2),
    ],
)
@pytest.mark.filterwarnings("ignore:.*frames are repeated")
def test_frames_are_new_arrays_where_they_are_with_mdanalysis(name, n_files, tmp_path):
    source = Path(getattr(datafiles, name))
    files = [shutil.copy(source, tmp_path / f"{k}{source.suffix}") for k in range(n_files)]
    theirs = MDAnalysis.Universe.empty(Reader.parse_n_atoms(files[0]))
    kind = "HISTORY" if name == "DLP_HISTORY" else None
    theirs.load_new(files if n_files > 1 else files[0], format=kind)
    assert kept(Reader(files)) == kept(theirs.trajectory)


def test_a_frame_that_cannot_be_read_leaves_the_one_before(path, ours):
    shown = ours[3]
    positions = shown.positions.copy()
    with open(path, "r+b") as file:
        file.truncate(Path(path).stat().st_size // 2)
    with pytest.raises(FileChangedError):
        ours[-1]
    assert ours.ts is shown
    np.testing.assert_array_equal(ours.ts.positions, positions)


def test_iteration_starts_anew(ours):
    for _ in zip(ours, range(3), strict=False):
        pass
    assert [ts.frame for ts in ours] == list(range(len(ours)))


@pytest.mark.parametrize("frame", [0, 4, -1])
def test_pickling_keeps_position_and_edits(ours, theirs, frame):
    revived = []
    for reader in (ours, theirs):
        reader[frame]
        reader.ts.positions += 1
        revived.append(pickle.loads(pickle.dumps(reader)))
        assert revived[-1].ts == reader.ts
    same(revived[0].ts, revived[1].ts)
    if frame != -1:
        same(next(revived[0]), next(revived[1]))
        same(next(ours), revived[0].ts)


def test_copying_keeps_position_and_edits(ours):
    ours[4]
    ours.ts.positions += 1
    copied = ours.copy()
    assert copied.ts == ours.ts
    next(copied)
    assert (copied.frame, ours.frame) == (5, 4)


def test_a_grown_file_can_be_unpickled(path, ours):
    data = pickle.dumps(ours)
    if path.suffix == ".xtc":
        with open(path, "ab") as file:
            file.write(path.read_bytes())
        assert pickle.loads(data).n_frames == 2 * ours.n_frames


def test_another_file_cannot_be_unpickled(path, ours):
    data = pickle.dumps(ours)
    path.write_bytes(Path(datafiles.XTC_multi_frame).read_bytes())
    with pytest.raises(FileChangedError, match=path.name):
        pickle.loads(data)


@pytest.mark.parametrize(
    "options",
    [
        {"dt": 2.5},
        {"time_offset": 0.7},
        {"dt": 0.3, "time_offset": -1.1},
        {"dt": 2, "n_atoms": None},
    ],
    ids=str,
)
def test_times_asked_for(path, options):
    ours, theirs = Reader(path, **options), READERS[path.suffix](path, **options)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    same(ours.copy()[3], theirs.copy()[3])


@pytest.mark.parametrize("sub", [[0, 1, 2], [1, 5, 8], [8, 3, 3, 0]], ids=str)
def test_sub(tmp_path, sub):
    path = shutil.copy(datafiles.XTC_multi_frame, tmp_path)
    # After the first frame, XTCReader writes all atoms into an array for the atoms of sub.
    ours, whole = Reader(path, sub=sub), XTCReader(path)
    assert ours.n_atoms == len(sub)
    for one, other in zip(ours, whole, strict=True):
        np.testing.assert_array_equal(one.positions, other.positions[sub], strict=True)
        assert one.time == other.time
    revived = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(revived[2].positions, whole[2].positions[sub], strict=True)


def test_refreshing_makes_the_index_anew(tmp_path):
    path = shutil.copy(datafiles.XTC_multi_frame, tmp_path)
    assert Reader(path).file.index_origin == "scanned"
    assert Reader(path).file.index_origin == "loaded"
    assert Reader(path, refresh_offsets=True).file.index_origin == "scanned"


def test_native_units_are_refused(path):
    with pytest.raises(UnsupportedError, match="convert_units=False"):
        Reader(path, convert_units=False)


def test_a_refusal_leaves_no_trace(path, capfd):
    for options in ({"convert_units": False}, {"n_atoms": 1}):
        with pytest.raises(PacelineError):
            Reader(path, **options)
    assert capfd.readouterr() == ("", "")


def test_atom_counts(path, ours):
    with pytest.raises(AtomCountError, match=rf"has 1 atoms, the trajectory {ours.n_atoms}"):
        Reader(path, n_atoms=1)
    assert Reader.parse_n_atoms(path) == ours.n_atoms


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.xtc"):
        Reader(tmp_path / "none.xtc")


@pytest.mark.parametrize("frames", [np.s_[:], np.s_[3:9:2], np.s_[::-2], np.s_[8:2:-1], np.s_[4:4]])
@pytest.mark.parametrize("order", [None, "fac", "caf"])
def test_timeseries(ours, theirs, frames, order):
    # Backwards, XTCReader returns uninitialised memory.
    options = {} if order is None else {"order": order}
    whole = theirs.timeseries(**options)
    axis = (order or ("afc" if ours.format == "DCD" else "fac")).index("f")
    expected = np.moveaxis(np.moveaxis(whole, axis, 0)[frames], 0, axis)
    series = ours.timeseries(start=frames.start, stop=frames.stop, step=frames.step, **options)
    np.testing.assert_array_equal(series, expected, strict=True)


def test_timeseries_is_read_in_blocks(ours, theirs, monkeypatch):
    atoms = np.array([7, 2, 2, 9])
    group, same_group = (
        MDAnalysis.Universe.empty(reader.n_atoms, trajectory=False).atoms[atoms]
        for reader in (ours, theirs)
    )
    expected = theirs.timeseries(atomgroup=same_group, order="fac")
    looked_at, read_frame = [], Reader._read_frame
    monkeypatch.setattr(
        Reader, "_read_frame", lambda self, k: looked_at.append(k) or read_frame(self, k)
    )
    found = ours.timeseries(atomgroup=group, order="fac")
    np.testing.assert_array_equal(found, expected, strict=True)
    assert looked_at == [0]  # MDAnalysis's reader ends at the same frame
    with pytest.raises(ValueError, match="permutation of 'fac'"):
        ours.timeseries(order="xyz")
    with pytest.raises(ValueError, match="at least one atom"):
        ours.timeseries(atomgroup=group[:0])


def test_transformations(ours, theirs):
    for reader in (ours, theirs):
        reader.add_transformations(translate([1, 2, 3]))
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    same(pickle.loads(pickle.dumps(ours))[2], theirs[2])


def test_writer_keeps_times(ours, theirs, path, tmp_path):
    written = []
    for reader, name in ((ours, "ours"), (theirs, "theirs")):
        written.append(tmp_path / f"{name}{path.suffix}")
        universe = MDAnalysis.Universe.empty(reader.n_atoms)
        universe.trajectory = reader
        with reader.Writer(str(written[-1])) as writer:
            for _ in reader:
                writer.write(universe)
    assert written[0].read_bytes() == written[1].read_bytes()


def test_importing_leaves_mdanalysis_alone():
    probe = """
import MDAnalysis
before = dict(MDAnalysis._READERS), dict(MDAnalysis._READER_HINTS)
import paceline, paceline.universe, paceline.mdanalysis.open_atomgroup_trajectory
assert (MDAnalysis._READERS, MDAnalysis._READER_HINTS) == before
from MDAnalysisTests.datafiles import GRO, XTC
from MDAnalysis.coordinates.core import get_reader_for
assert get_reader_for(XTC).__name__ == "XTCReader"
assert type(MDAnalysis.Universe(GRO, XTC).trajectory).__name__ == "XTCReader"
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", probe], check=True)


def test_damage_is_named_and_does_not_end_iteration_silently(path):
    reader = Reader(path)
    offset, size = reader.file.extents(np.array([3], dtype=np.uint64))
    with open(path, "r+b") as file:
        file.seek(int(offset[0]))
        file.write(b"\xff" * int(size[0]))
    visited = []
    with pytest.raises(DamagedFileError, match=rf"{path.name}.*frame 3"):
        visited.extend(ts.frame for ts in reader)
    assert visited == [0, 1, 2]
    assert reader[4].frame == 4


def test_a_damaged_second_frame_does_not_stop_opening(tmp_path):
    path = Path(shutil.copy(datafiles.XTC, tmp_path))
    expected = Reader(path).dt
    offset, _ = Reader(path).file.extents(np.array([1], dtype=np.uint64))
    with open(path, "r+b") as file:
        # The packed coordinates follow the header and the cell.
        file.seek(int(offset[0]) + 92)
        file.write(b"\xff" * 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        assert Reader(path).dt == expected


def test_a_file_that_shrinks_is_an_error(path):
    reader = Reader(path)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises((ReadError, PacelineError)):
        reader[-1]
    with pytest.raises((ReadError, PacelineError)):
        for _ in reader:
            pass


def test_a_cut_file_is_reported_at_the_users_line(tmp_path):
    path = tmp_path / "cut.xtc"
    path.write_bytes(Path(datafiles.XTC).read_bytes()[:-1000])
    with pytest.warns(PacelineWarning, match=r"frame 9 .* is cut") as caught:
        reader = Reader(path)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(reader) == 9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(reader))


def test_a_file_without_a_whole_frame(path):
    offsets, sizes = Reader(path).file.extents(np.array([0], dtype=np.uint64))
    with open(path, "r+b") as file:
        file.truncate(int(offsets[0] + sizes[0]) - 10)
    found = r"expected (at least one complete|a first) frame"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        with pytest.raises((UnsupportedError, DamagedFileError), match=rf"{path.name}.*{found}"):
            Reader(path)


def test_a_user_without_a_home(monkeypatch):
    def no_home():
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(paceline.trajectory.open.Path, "home", no_home)
    assert paceline.trajectory.open.cache_folder() is None


def test_the_working_directory_may_change(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(path.name)
    assert (reader.filename, str(reader.file.path)) == (path.name, str(path))
    monkeypatch.chdir("/")
    assert reader[3].frame == 3
    reader.file.verify()


@pytest.mark.parametrize("name", ["XTC", "TRR", "DCD", "NCDF"])
def test_two_threads_cannot_read_one_trajectory_at_the_same_time(name, monkeypatch):
    reader = Reader(getattr(datafiles, name))
    inside, left = threading.Event(), threading.Event()
    read_alone = reader._read_alone

    def slowly(frame):
        inside.set()
        assert left.wait(PATIENCE)
        return read_alone(frame)

    monkeypatch.setattr(reader, "_read_alone", slowly)
    with ThreadPoolExecutor(1) as other:
        first = other.submit(lambda: reader[0].positions.copy())
        assert inside.wait(PATIENCE)
        monkeypatch.setattr(reader, "_read_alone", read_alone)
        try:
            with pytest.raises(
                UnsupportedError, match=r"use one Universe per thread, by u\.copy\(\)$"
            ):
                reader[1]
        finally:
            left.set()
        np.testing.assert_array_equal(first.result(), Reader(getattr(datafiles, name))[0].positions)
    assert reader[1].frame == 1


def test_threads_with_copies_read_each_by_itself():
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    expected = [ts.positions.copy() for ts in universe.trajectory]

    def read(own):
        return all(np.array_equal(ts.positions, expected[ts.frame]) for ts in own.trajectory)

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(read, [universe.copy() for _ in range(3)]))
