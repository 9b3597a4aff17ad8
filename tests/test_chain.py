"""Tests that consecutive files form one trajectory, with the same bits as one file, on every
backend.
"""

import pickle
import shutil
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import MDAnalysis
import numpy as np
import pytest
from helpers.barrier import meet
from helpers.waiting import PATIENCE
from MDAnalysisTests import datafiles

import paceline
import paceline.trajectory.open
from paceline import cli
from paceline.analysis.rms import RMSD, RMSF
from paceline.contract import source
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    FileChangedError,
    PacelineWarning,
    UnsupportedError,
)
from paceline.mdanalysis import open_on_all_ranks
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.chain import Chain
from paceline.trajectory.open import files_named, open_file, open_files

pytestmark = [
    pytest.mark.filterwarnings("ignore:DCDReader currently makes:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis"),
]

#: Numbers of frames of the parts. Their borders fall within blocks of any size.
COUNTS = [7, 1, 30, 2, 1, 1, 1, 16, 16, 1, 22]


class Parts(NamedTuple):
    """Topology, a trajectory of 98 frames at 0, 1, 2 … ps, and the same frames in parts."""

    topology: MDAnalysis.core.topology.Topology
    whole: str
    names: list[str]


@pytest.fixture(scope="module")
def calpha(adk):
    """The 214 Cα atoms of adenylate kinase, in a cell."""
    universe = MDAnalysis.Universe(*adk)
    alone = MDAnalysis.Merge(universe.select_atoms("name CA"))
    series = universe.trajectory.timeseries(universe.select_atoms("name CA"), order="fac")
    return alone.load_new(series, dimensions=[90, 90, 90, 90, 90, 90])


def write(path, universe, chosen, times):
    """Write frames, each with a given time."""
    with MDAnalysis.Writer(str(path), n_atoms=len(universe.atoms)) as writer:
        for frame, at in zip(chosen, times, strict=True):
            universe.trajectory[frame].time = at
            writer.write(universe.atoms)
    return str(path)


def cut(whole, path, first, stop):
    """Copy some frames of a file byte for byte."""
    offsets, sizes = open_file(whole).extents(np.arange(first, stop, dtype=np.uint64))
    path.write_bytes(Path(whole).read_bytes()[offsets[0] : offsets[-1] + sizes[-1]])
    return str(path)


@pytest.fixture(scope="module")
def parts(calpha, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    whole = write(folder / "whole.xtc", calpha, range(98), range(98))
    stops = np.cumsum(COUNTS)
    names = [
        cut(whole, folder / f"md.part{k}.xtc", stop - count, stop)
        for k, (count, stop) in enumerate(zip(COUNTS, stops, strict=True), 1)
    ]
    return Parts(calpha._topology, whole, names)


@pytest.fixture
def copies(parts, tmp_path):
    """Copies of the parts, which tests may damage."""
    names = [shutil.copy(name, tmp_path) for name in parts.names]
    return parts._replace(names=names)


@pytest.fixture
def chained(parts):
    return paceline.Universe(parts.topology, parts.names)


@pytest.fixture
def whole(parts):
    return paceline.Universe(parts.topology, parts.whole)


def held(trajectory):
    """Return all data of the frames."""
    return [
        (ts.frame, ts.time, ts.data["step"], ts.dimensions.tolist(), ts.positions.tobytes())
        for ts in trajectory
    ]


# Same results as one file


@pytest.mark.parametrize("block_frames", [1, 32, None])
def test_same_bits_as_one_file(where, block_frames, chained, whole):
    def numbers(universe):
        analyses = [
            RMSD(universe, groupselections=["resid 1-29"]),
            RMSF(universe.atoms[::-1]),
            paceline.TimeSeries(lambda block: block.positions, universe.atoms[::3]),
        ]
        rmsd, rmsf, series = paceline.run(analyses, **where, block_frames=block_frames)
        return rmsd.results.rmsd, rmsf.results.rmsf, series.results.timeseries, rmsd.times

    for one, other in zip(numbers(chained), numbers(whole), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_frames_in_any_order(chained, whole):
    chosen = [97, 3, 40, 8, 7, 6, 3, -1, 38]
    series = [
        paceline.TimeSeries(lambda block: block.positions, universe.atoms).run(frames=chosen)
        for universe in (chained, whole)
    ]
    np.testing.assert_array_equal(*(one.results.timeseries for one in series))
    np.testing.assert_array_equal(*(one.times for one in series))


def test_the_reader_gives_the_same_frames(chained, whole):
    one, other = chained.trajectory, whole.trajectory
    assert type(one) is Reader
    assert (len(one), one.n_atoms, one.dt, one.totaltime) == (98, 214, other.dt, other.totaltime)
    assert held(one) == held(other)
    for chosen in (np.s_[::-7], np.s_[-12:], [40, 3, -1, 3], np.arange(98) % 5 == 1):
        assert held(one[chosen]) == held(other[chosen])
    for frame in (97, 0, -1, -98, 38, 37):
        assert held([one[frame]]) == held([other[frame]])
    for frame in (98, -99):
        with pytest.raises(IndexError):
            one[frame]
    np.testing.assert_array_equal(
        one.timeseries(start=5, stop=60, step=3), other.timeseries(start=5, stop=60, step=3)
    )
    np.testing.assert_array_equal(one.times(), np.arange(98.0))


def test_names(parts, chained):
    trajectory = chained.trajectory
    assert trajectory.filenames == parts.names
    trajectory[8]
    assert trajectory.filename == parts.names[2]
    assert f"{parts.names[0]} and 10 more with 98 frames" in repr(trajectory)
    assert not hasattr(trajectory, "file")
    assert RMSF(chained.atoms).run().results.provenance["trajectory"] == ", ".join(parts.names)


@pytest.mark.parametrize("options", [{"dt": 2.5}, {"time_offset": 7.0}], ids=str)
def test_times_asked_for(options, parts):
    one, other = (
        paceline.Universe(parts.topology, names, **options) for names in (parts.names, parts.whole)
    )
    assert held(one.trajectory) == held(other.trajectory)
    np.testing.assert_array_equal(one.trajectory.times(), other.trajectory.times())
    times = [RMSF(universe.atoms).run().times for universe in (one, other)]
    np.testing.assert_array_equal(*times)


def test_atoms_of_part_of_the_trajectory(parts):
    some = np.array([3, 5, 200])
    readers = [Reader(names, sub=some) for names in (parts.names, parts.whole)]
    assert held(readers[0]) == held(readers[1])
    with pytest.raises(AtomCountError, match="sub= names 3"):
        Reader(parts.names, sub=some, n_atoms=4)


def test_files_of_several_formats(calpha, parts, tmp_path):
    # The DCD writer ignores the time of the first frame.
    dcd = write(tmp_path / "more.dcd", calpha, range(10, 15), range(5))
    with pytest.warns(PacelineWarning, match="repeated"):
        mixed = paceline.Universe(parts.topology, parts.names[0], dcd)
    expected = [ts.positions.copy() for name in (parts.names[0], dcd) for ts in Reader(name)]
    assert type(mixed.trajectory) is Reader
    np.testing.assert_array_equal([ts.positions.copy() for ts in mixed.trajectory], expected)
    series = paceline.TimeSeries(lambda block: block.positions, mixed.atoms).run(backend="serial")
    np.testing.assert_array_equal(series.results.timeseries, expected)


def test_velocities_of_some_files(adk_in_water, tmp_path):
    trr = shutil.copy(datafiles.TRR, tmp_path)
    with pytest.warns(PacelineWarning, match="10 frames are repeated"):
        trajectory = Reader([adk_in_water.trajectory, trr])
    assert [ts.has_velocities for ts in trajectory] == [False] * 10 + [True] * 10
    np.testing.assert_array_equal(trajectory[13].velocities, Reader(trr)[3].velocities)


def test_what_is_not_ours_is_read_by_mdanalysis(parts, calpha, tmp_path):
    pdb = str(tmp_path / "first.pdb")
    calpha.atoms.write(pdb)
    universe = paceline.Universe(parts.topology, [pdb, parts.whole])
    assert [type(one).__name__ for one in universe.trajectory.readers] == ["PDBReader", "Reader"]
    with pytest.warns(PacelineWarning, match=r"ChainReader.*one thread"):
        RMSF(universe.atoms).run()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        RMSF(universe.atoms).run()


# Accepted arguments


@pytest.mark.parametrize("several", [False, True])
def test_patterns_are_ordered_as_people_count(several, parts):
    folder = Path(parts.whole).parent
    patterns = [str(folder / "md.part?.xtc"), folder / "md.part1[01].xtc"]
    given = patterns if several else [str(folder / "md.part*.xtc")]
    assert paceline.Universe(parts.topology, *given).trajectory.filenames == parts.names
    assert paceline.Universe(parts.topology, given).trajectory.filenames == parts.names


def test_names_with_a_format(parts):
    given = [(parts.names[0], "xtc"), parts.names[1], (parts.names[2], "XTC")]
    trajectory = paceline.Universe(parts.topology, given).trajectory
    assert (type(trajectory), trajectory.filenames) == (Reader, parts.names[:3])


def test_a_pattern_of_one_file(parts):
    pattern = parts.whole.replace("whole", "wh*")
    trajectory = paceline.Universe(parts.topology, pattern).trajectory
    assert (trajectory.filenames, trajectory.format) == ([parts.whole], "XTC")


def test_a_file_of_that_very_name_wins(parts, tmp_path):
    literal = shutil.copy(parts.whole, tmp_path / "[1].xtc")
    shutil.copy(parts.names[0], tmp_path / "1.xtc")
    assert files_named(literal) == [str(literal)]
    assert paceline.Universe(parts.topology, str(literal)).trajectory.n_frames == 98


def test_a_pattern_that_matches_nothing(parts, tmp_path):
    pattern = str(tmp_path / "md.part*.xtc")
    with pytest.raises(FileNotFoundError, match="no file matches this pattern") as caught:
        paceline.Universe(parts.topology, pattern)
    assert caught.value.filename == pattern


def test_the_command_line(parts, calpha, capsys, tmp_path):
    topology = str(tmp_path / "topology.pdb")
    calpha.trajectory[0]
    calpha.atoms.write(topology)
    pattern = str(Path(parts.whole).parent / "md.part*.xtc")
    tables = []
    for names in ([pattern], [parts.whole], [*parts.names, parts.names[-1], "--continuous"]):
        assert cli.main(["rmsd", topology, *names, "--begin", "30ps", "--end", "80ps"]) == 0
        tables.append(capsys.readouterr().out)
    assert len(tables[0].splitlines()) == 52
    assert tables[0] == tables[1] == tables[2]


def test_converting_a_pattern(parts, tmp_path):
    pattern = str(Path(parts.whole).parent / "md.part*.xtc")
    assert cli.main(["convert", pattern, str(tmp_path / "all.xtc"), "--continuous"]) == 0
    assert held(Reader(tmp_path / "all.xtc")) == held(Reader(parts.whole))


# Number of open files


@pytest.fixture
def opens(monkeypatch):
    """Counts of how often each worker opened each file."""
    counts = defaultdict(int)
    original = source._core.Reader

    def counted(path, *args, **options):
        counts[threading.get_ident(), path] += 1
        return original(path, *args, **options)

    monkeypatch.setattr(source._core, "Reader", counted)
    return counts


def test_workers_open_what_their_blocks_touch(chained, parts, opens, nothing_overdue, tmp_path):
    opens.clear()
    blocks = defaultdict(set)

    def note(block):
        blocks[threading.get_ident()].update(block.frames.tolist())
        meet(tmp_path, n_workers=3)
        return block.times

    analysis = paceline.TimeSeries(note, chained.atoms)
    analysis.run(backend="threads", n_workers=3, stop=85, block_frames=1)
    member = np.repeat(range(len(COUNTS)), COUNTS)
    touched = {
        (worker, parts.names[k]) for worker, numbers in blocks.items() for k in member[[*numbers]]
    }
    assert len(blocks) == 3
    assert set(opens) == touched
    assert set(opens.values()) == {1}
    assert parts.names[10] in {parts.names[k] for k in member[:85]}
    opens.clear()
    analysis.run(backend="serial", frames=[8, 70, 9])
    assert {path for _, path in opens} == {parts.names[2], parts.names[8]}


def test_the_reader_opens_a_file_when_it_is_needed(parts, opens):
    trajectory = Reader(parts.names)
    opens.clear()
    trajectory[0], trajectory[5], trajectory[50], trajectory[6]
    assert [path for _, path in opens] == [parts.names[7]]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_two_files_are_open_at_a_time(backend, chained):
    def count_open(block=None):
        import os

        names = []
        for number in os.listdir("/proc/self/fd"):
            try:
                names.append(os.readlink(f"/proc/self/fd/{number}"))
            except OSError:
                continue
        count = sum("md.part" in name for name in names)
        return count if block is None else np.full(len(block), count)

    before = count_open() if backend == "serial" else 0
    analysis = paceline.TimeSeries(count_open, chained.atoms)
    analysis.run(backend=backend, block_frames=1)
    assert analysis.results.timeseries.max() <= before + 2
    assert analysis.results.timeseries.min() >= 1


MANY = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import MDAnalysis
import paceline
warnings.simplefilter("error")
topology = MDAnalysis.Universe.empty(12)._topology
universe = paceline.Universe(topology, sys.argv[1], to_guess=())
assert [ts.time for ts in universe.trajectory] == list(range(1000))
for backend in ("threads", "processes"):
    series = paceline.TimeSeries(lambda block: block.times, universe.atoms)
    series.run(backend=backend, n_workers=2)
    assert series.results.timeseries.tolist() == list(range(1000))
"""


def test_a_thousand_files_and_a_small_limit(tmp_path):
    atoms = MDAnalysis.Universe.empty(12, trajectory=True)
    atoms.dimensions = [10, 10, 10, 90, 90, 90]
    frame = Path(write(tmp_path / "one.xtc", atoms, [0], [0])).read_bytes()
    for k in range(1000):
        # Number of atoms, step and time follow the magic number.
        content = frame[:8] + struct.pack(">if", k, k) + frame[16:]
        (tmp_path / f"part{k}.xtc").write_bytes(content)
    call = [sys.executable, "-c", MANY, str(tmp_path / "part*.xtc")]
    subprocess.run(call, check=True)


# Restarts


def restarted(calpha, folder, times, suffix="xtc"):
    """Write files whose frames have these times."""
    return [
        write(folder / f"run{k}.{suffix}", calpha, range(len(of_file)), of_file)
        for k, of_file in enumerate(times)
    ]


def test_repeated_frames_are_reported(calpha, tmp_path):
    names = restarted(calpha, tmp_path, [[0, 10, 20, 30, 40], [30, 40, 50], [60, 70], [70, 80]])
    with pytest.warns(PacelineWarning) as caught:
        trajectory = paceline.Universe(calpha._topology, names).trajectory
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message == (
        f"3 frames are repeated, by their times: 2 of {names[0]} at 30 to 40 ps, where {names[1]} "
        f"has begun; 1 of {names[2]} at 70 ps, where {names[3]} has begun; continuous=True "
        "(--continuous) leaves them out and orders the files by time"
    )
    assert caught[0].filename == __file__
    assert [ts.time for ts in trajectory] == [0, 10, 20, 30, 40, 30, 40, 50, 60, 70, 70, 80]


def test_one_frame_is_repeated(calpha, tmp_path):
    """Check parts as written by GROMACS, in which the next part begins with the last frame of the
    previous part.
    """
    names = restarted(calpha, tmp_path, [[0, 10], [10, 20]])
    with pytest.warns(PacelineWarning) as caught:
        paceline.Universe(calpha._topology, names)
    assert str(caught[0].message).startswith(
        f"1 frame is repeated, by its time: 1 of {names[0]} at 10 ps, where {names[1]} has begun; "
    )


def test_many_repeats_are_reported_shortly(calpha, tmp_path):
    names = restarted(calpha, tmp_path, [[k, k + 1] for k in range(9)])
    with pytest.warns(PacelineWarning, match=r"^8 frames.*; and at 5 more places; continuous="):
        Reader(names)


def test_files_in_another_order_are_reported(calpha, tmp_path):
    names = restarted(calpha, tmp_path, [[5, 6], [0, 1]])
    with pytest.warns(PacelineWarning, match=rf"{names[1]} is earlier than {names[0]}.*continuous"):
        Reader(names)


@pytest.mark.parametrize(
    ("times", "options"),
    [
        ([[0, 1, 2], [3, 4], [5]], {}),
        ([[0, 1, 2], [50, 51]], {}),
        ([[0, 1, 2], [0, 1, 2]], {"dt": 1.0}),
        ([[0, 0, 0], [0, 0, 0]], {}),
    ],
    ids=["follow", "gap", "times set", "no times"],
)
def test_nothing_is_reported_without_need(times, options, calpha, tmp_path):
    names = restarted(calpha, tmp_path, times)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Reader(names, **options)


@pytest.mark.parametrize(
    "times",
    [
        [range(10), range(8, 20), range(15, 22)],
        [range(15, 22), range(10), range(8, 20)],
        [range(10), range(3, 7), range(6, 12)],
        [range(10), range(20, 25)],
        [range(3)] * 3,
    ],
    ids=str,
)
def test_continuous_as_mdanalysis_does(times, calpha, tmp_path):
    names = restarted(calpha, tmp_path, times)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=PacelineWarning)
        ours = paceline.Universe(calpha._topology, names, continuous=True)
    theirs = MDAnalysis.Universe(calpha._topology, names, continuous=True)
    assert held(ours.trajectory) == held(theirs.trajectory)
    series = paceline.TimeSeries(lambda block: block.positions, ours.atoms).run()
    np.testing.assert_array_equal(
        series.results.timeseries, [ts.positions.copy() for ts in theirs.trajectory]
    )
    kept = np.array([ts.time for ts in theirs.trajectory])
    np.testing.assert_array_equal(series.times, kept)
    np.testing.assert_array_equal(ours.trajectory.times(), kept)
    assert ours.trajectory.filenames == list(theirs.trajectory.filenames)
    revived = pickle.loads(pickle.dumps(ours.trajectory))
    assert held(revived) == held(ours.trajectory)


def test_continuous_dcd_and_single_frames(calpha, tmp_path):
    begins = {"a": 0, "b": 5, "c": 8}
    names = []
    for name, begin in begins.items():
        names.append(str(tmp_path / f"{name}.dcd"))
        n_frames = 1 if name == "c" else 7
        with MDAnalysis.Writer(
            names[-1], n_atoms=214, dt=0.1, nsavc=1, istart=begin, step=1
        ) as writer:
            for _ in calpha.trajectory[begin : begin + n_frames]:
                writer.write(calpha.atoms)
    with pytest.warns(PacelineWarning, match=r"where no other frame exists: 3 of .*b\.dcd"):
        trajectory = Reader(names, continuous=True)
    np.testing.assert_allclose(trajectory.times(), np.arange(9) / 10, atol=1e-5)


def test_frames_that_nobody_repeats_are_named_when_left_out(calpha, tmp_path):
    names = restarted(calpha, tmp_path, [[0, 2, 4, 6], [1, 3, 5, 7]])
    with pytest.warns(
        PacelineWarning, match=rf"where no other frame exists: 3 of {names[0]}.* 2 to 6 ps"
    ):
        trajectory = Reader(names, continuous=True)
    assert trajectory.times().tolist() == [0, 1, 3, 5, 7]


@pytest.mark.parametrize(
    ("times", "suffix"),
    [
        # A run that stops just after a frame at 1 µs writes a last frame; XTC resolves 0.06 ps.
        ([[999_900, 1_000_000, 1_000_000.5], [1_000_000.5, 1_000_100]], "xtc"),
        ([[999_900, 1_000_000], [1_000_000.5, 1_000_100]], "xtc"),
        ([[999_900, 1_000_000, 1_000_000.5, 1_000_100]], "xtc"),
        ([[1_000_000, 1_000_000.0625], [1_000_000.125, 1_000_000.1875]], "xtc"),
        ([[0, 0.5, 1, 1.5, *range(100, 2000, 100), 1_000_000]], "trr"),
        ([[0, *(2.0 ** np.arange(-10, 21))]], "trr"),
        ([[0, 5], [10, 8]], "trr"),
        ([[10, 8, 6, 4]], "trr"),
        ([[0, 10, 20], [20.000001, 30]], "trr"),
    ],
    ids=str,
)
def test_continuous_keeps_one_frame_of_each_time(times, suffix, calpha, tmp_path):
    names = restarted(calpha, tmp_path, times, suffix)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        found = Reader(names, continuous=True).times()
    stored = np.unique(np.concatenate(times).astype(np.float32))
    # Times that differ by the rounding error are those of one frame: the later copy is kept.
    is_kept = np.append(np.diff(stored) > 1e-5, True)
    np.testing.assert_allclose(found, stored[is_kept], rtol=1e-7)


@pytest.mark.parametrize("times", [[[0, 5, 10], [10, 10]], [[0, 0, 0], [0, 0, 0]]], ids=str)
def test_continuous_warns_of_files_of_equal_times(times, calpha, tmp_path):
    names = restarted(calpha, tmp_path, times)
    with pytest.warns(PacelineWarning, match=rf"{names[1]}: .*all equal: all frames are kept"):
        trajectory = Reader(names, continuous=True)
    assert trajectory.times().tolist() == [*times[0], *times[1]]


def test_frames_without_a_time_are_kept(calpha, tmp_path):
    names = restarted(calpha, tmp_path, [[0, 1, 2, 3, 4], [2, 3, 4, 5]])
    offsets, _ = open_file(names[0]).extents(np.array([3], dtype=np.uint64))
    with open(names[0], "r+b") as file:
        file.seek(int(offsets[0]))
        file.write(b"\xff" * 8)
    for saved in tmp_path.glob(".*"):
        saved.unlink()
    with pytest.warns(PacelineWarning, match="damage"):
        trajectory = Reader(names, continuous=True)
    np.testing.assert_array_equal(trajectory.times(), [0, 1, np.nan, 2, 3, 4, 5])
    with pytest.raises(DamagedFileError, match=r"run0\.xtc: frame 3"):
        trajectory[2]


# Missing and damaged files


def test_a_missing_file_is_known_before_others_are_read(parts, monkeypatch):
    monkeypatch.setattr(paceline.trajectory.open, "IndexedFile", None)
    with pytest.raises(FileNotFoundError, match=r"part99\.xtc"):
        open_files([*parts.names, "part99.xtc"])
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match=r"part99\.xtc"):
        paceline.Universe(parts.topology, [*parts.names, "part99.xtc"])


def test_a_file_of_another_system(parts, calpha, tmp_path):
    other = str(tmp_path / "other.xtc")
    calpha.select_atoms("resid 1-10").write(other)
    with pytest.raises(AtomCountError, match=rf"{other}: .* 214 atoms, the trajectory 10; load"):
        paceline.Universe(parts.topology, [*parts.names, other])
    with pytest.raises(AtomCountError, match=rf"{other}: it has 10 atoms, .*part1\.xtc 214"):
        Reader([*parts.names, other])


def test_a_file_that_is_replaced_before_it_is_read(copies):
    universe = paceline.Universe(copies.topology, copies.names)
    shutil.copy(copies.names[2], copies.names[7])
    atoms = universe.atoms
    with pytest.raises(FileChangedError, match=r"part8\.xtc"):
        universe.trajectory[45]
    with pytest.raises(FileChangedError, match=r"part8\.xtc"):
        RMSF(atoms).run()
    # The damaged part is outside the requested frames.
    RMSF(atoms).run(stop=20, block_frames=1, n_workers=1)


def test_a_file_that_is_replaced_while_others_are_read(copies):
    def replace(block):
        if block.frames[0] > 90:
            shutil.copy(copies.names[2], copies.names[0])
        return block.times

    universe = paceline.Universe(copies.topology, copies.names)
    with pytest.raises(FileChangedError, match=r"part1\.xtc"):
        paceline.TimeSeries(replace, universe.atoms).run(backend="serial", block_frames=1)


def test_a_file_that_vanishes(copies):
    universe = paceline.Universe(copies.topology, copies.names)
    Path(copies.names[7]).unlink()
    with pytest.raises(FileNotFoundError, match=r"part8\.xtc"):
        RMSF(universe.atoms).run()


def test_warnings_about_a_file_end_when_it_has_grown(copies, monkeypatch):
    path = Path(copies.names[0])
    monkeypatch.chdir(path.parent)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.warns(PacelineWarning, match="is cut"):
        chain = Chain([path.name])
    assert "is cut" in chain.warnings[0]
    path.write_bytes(content)
    grown = chain.extended()
    assert (grown.n_frames, grown.warnings) == (chain.n_frames + 1, [])


def test_an_empty_file(copies):
    Path(copies.names[4]).write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"part5\.xtc.*an empty file"):
        paceline.Universe(copies.topology, copies.names)


def test_a_cut_file_loses_its_last_frame_alone(copies):
    path = Path(copies.names[2])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.warns(PacelineWarning, match=r"part3\.xtc.* is cut") as caught:
        universe = paceline.Universe(copies.topology, copies.names)
    assert len(caught) == 1
    assert universe.trajectory.times().tolist() == [k for k in range(98) if k != 37]
    analysis = RMSF(universe.atoms).run()
    assert analysis.times.tolist() == universe.trajectory.times().tolist()
    assert analysis.record()["warnings"] == f"{caught[0].message}"


@pytest.mark.filterwarnings("ignore:.*the header says 1 frames")
def test_files_without_frames_are_passed_over(calpha, tmp_path):
    names = restarted(calpha, tmp_path, [[0, 1], [0], [2, 3]], suffix="dcd")
    content = Path(names[1]).read_bytes()
    frame_bytes = open_file(names[1]).extents(np.array([0], dtype=np.uint64))[1][0]
    Path(names[1]).write_bytes(content[: -int(frame_bytes)])
    with pytest.warns(PacelineWarning, match=r"run1\.dcd: it has no complete frame"):
        trajectory = Reader(names, dt=1)
    assert (len(trajectory), trajectory.filenames) == (4, [names[0], names[2]])
    with pytest.raises(UnsupportedError, match=r"run1\.dcd: expected at least one complete frame"):
        Reader([names[1], names[1]])


def test_a_damaged_frame_is_listed_by_its_number(copies):
    offsets, sizes = open_file(copies.names[2]).extents(np.array([5], dtype=np.uint64))
    with open(copies.names[2], "r+b") as file:
        file.seek(int(offsets[0]) + 92)
        file.write(b"\xff" * int(sizes[0] - 92))
    universe = paceline.Universe(copies.topology, copies.names)
    analysis = paceline.TimeSeries(lambda block: block.positions[:, 0], universe.atoms)
    analysis.run(on_error="skip")
    [(frame, reason)] = analysis.damaged
    assert frame == 13
    assert f"{copies.names[2]}: frame 5" in reason
    assert np.flatnonzero(np.isnan(analysis.results.timeseries[:, 0])).tolist() == [13]
    with pytest.raises(DamagedFileError, match=r"part3\.xtc: frame 5"):
        analysis.run()


def test_the_first_error_ends_the_other_scans(monkeypatch, tmp_path):
    begun, ended = threading.Event(), threading.Event()

    def slow(path, *, progress, **options):
        if path.endswith("bad"):
            # A scan that has not begun is not ended, but cancelled.
            assert begun.wait(PATIENCE)
            raise DamagedFileError(path)
        begun.set()
        try:
            while True:
                progress(0, 1)
                time.sleep(0.001)
        finally:
            ended.set()

    monkeypatch.setattr(paceline.trajectory.open, "IndexedFile", slow)
    monkeypatch.setattr(paceline.trajectory.open, "available_cpus", lambda: 2)
    for name in ("bad", "slow"):
        (tmp_path / name).touch()
    with pytest.raises(DamagedFileError):
        open_files([tmp_path / "bad", tmp_path / "slow", tmp_path / "slow"])
    assert ended.is_set()


# Copies


def copies_of(thing):
    return pickle.loads(pickle.dumps(thing)), thing.copy()


def test_copies_keep_their_place(chained, whole):
    chained.trajectory[40]
    chained.trajectory.ts.positions += 1
    readers = [
        *copies_of(chained.trajectory),
        *(universe.trajectory for universe in copies_of(chained)),
    ]
    for reader in readers:
        assert reader.ts == chained.trajectory.ts
        assert reader.filename == chained.trajectory.filename
        assert reader.next().frame == 41
        assert held(reader) == held(whole.trajectory)


@pytest.mark.parametrize("member", [2, 10])
def test_a_grown_file_keeps_the_numbers_of_frames(member, copies):
    trajectory = Reader(copies.names)
    expected = held(trajectory)
    data = pickle.dumps(trajectory)
    with open(copies.names[member], "ab") as file:
        file.write(Path(copies.names[0]).read_bytes())
    revived = pickle.loads(data)
    assert len(revived) == (98 if member == 2 else 105)
    assert held(revived[:98]) == expected


def test_a_replaced_file_cannot_be_unpickled(copies):
    data = pickle.dumps(Reader(copies.names))
    shutil.copy(copies.names[2], copies.names[7])
    with pytest.raises(FileChangedError, match=r"part8\.xtc"):
        pickle.loads(data)


def test_a_sent_chain_has_its_index(monkeypatch) -> None:
    chain, made = Chain([datafiles.XTC]), []
    copy = open_on_all_ranks.SentFile.of
    monkeypatch.setattr(
        open_on_all_ranks.SentFile, "of", lambda file: made.append(file) or copy(file)
    )
    sent = pickle.loads(open_on_all_ranks.pickle_with_indexes(chain))
    assert made == list(chain.files)  # the index of a file, which may be large, is copied once
    assert type(sent.files[0]) is open_on_all_ranks.SentFile
    frames = np.arange(chain.n_frames)
    np.testing.assert_array_equal(sent.extents(frames).offsets, chain.extents(frames).offsets)
