"""Tests of trajectories split and joined by copying bytes: every frame, and only complete files."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.disks import full_disk
from helpers.trajectory_bytes import DcdVariant, dcd, plain_xtc_frame, xtc, xtc_with
from MDAnalysisTests import datafiles

import paceline
from paceline import cli, split_join
from paceline._util.launcher import INTERRUPTED
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    PacelineWarning,
    ReadError,
    UnsupportedError,
)
from paceline.mdanalysis.reader import Reader, open_file
from paceline.trajectory import copy_frames

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*the header says"),
    pytest.mark.filterwarnings("ignore:DCDReader currently:DeprecationWarning"),
]


@pytest.fixture
def water(adk_in_water, tmp_path) -> Path:
    """An XTC file of 10 frames of unequal sizes."""
    path = tmp_path / "md.xtc"
    path.write_bytes(Path(adk_in_water.trajectory).read_bytes())
    return path


def dcd_file(path: Path, n_frames: int, *, istart: int = 10, seed: int = 0, **variant) -> Path:
    """Write a DCD file of 5 atoms with random positions, a frame every 5 steps from `istart` on."""
    positions = np.random.default_rng(seed).random((n_frames, 5, 3), dtype=np.float32)
    kind = DcdVariant(**variant)
    content = bytearray(dcd(positions, kind).content)
    at = (8 if kind.wide else 4) + 8
    content[at : at + 4] = istart.to_bytes(4, "big" if kind.big_endian else "little", signed=True)
    path.write_bytes(content)
    return path


def frames_of(*paths: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions, cells and times of all frames, read by paceline."""
    readers = [Reader(str(path)) for path in paths]
    read = [(ts.positions.copy(), ts.triclinic_dimensions, ts.time) for r in readers for ts in r]
    positions, cells, times = zip(*read, strict=True)
    return np.array(positions), np.array(cells, dtype=float), np.array(times)


def assert_same_frames(whole: Path, pieces: list[Path]) -> None:
    for one, other in zip(frames_of(whole), frames_of(*pieces), strict=True):
        np.testing.assert_array_equal(one, other)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.glob(".*") if not path.name.endswith(".paceline-index")]


@pytest.mark.parametrize(
    ("how", "n_frames"),
    [
        ({"n": 1}, [10]),
        ({"n": 4}, [2, 3, 2, 3]),
        ({"n": 10}, [1] * 10),
        ({"frames": 3}, [3, 3, 3, 1]),
        ({"frames": 99}, [10]),
        ({"size": 10**9}, [10]),
    ],
)
def test_the_pieces_of_an_xtc_file_are_its_bytes(how, n_frames, water):
    pieces = paceline.split(water, **how)
    assert pieces == [water.with_name(f"md.{k:03}.xtc") for k in range(len(n_frames))]
    assert b"".join(piece.read_bytes() for piece in pieces) == water.read_bytes()
    assert [open_file(piece).n_frames for piece in pieces] == n_frames
    whole = paceline.join(pieces, water.with_name("again.xtc"))
    assert whole.read_bytes() == water.read_bytes()


def test_other_programs_read_the_pieces_of_an_xtc_file(water):
    pieces = paceline.split(water, 3)
    assert_same_frames(water, pieces)
    whole = MDAnalysis.coordinates.XTC.XTCReader(str(water))
    expected = [(ts.positions.copy(), ts.time) for ts in whole]
    readers = [MDAnalysis.coordinates.XTC.XTCReader(str(piece)) for piece in pieces]
    found = [(ts.positions.copy(), ts.time) for reader in readers for ts in reader]
    np.testing.assert_equal(found, expected)
    parts = [mdtraj.formats.XTCTrajectoryFile(str(piece)).read() for piece in pieces]
    wholes = mdtraj.formats.XTCTrajectoryFile(str(water)).read()
    for values, expected in zip(zip(*parts, strict=True), wholes, strict=True):
        np.testing.assert_array_equal(np.concatenate(values), expected)


def test_a_trr_file_is_cut_and_joined(tmp_path):
    path = Path(shutil.copy(datafiles.TRR, tmp_path / "md.trr"))
    pieces = paceline.split(path, 3)
    assert b"".join(piece.read_bytes() for piece in pieces) == path.read_bytes()
    assert_same_frames(path, pieces)
    whole = MDAnalysis.coordinates.TRR.TRRReader(str(path))
    readers = [MDAnalysis.coordinates.TRR.TRRReader(str(piece)) for piece in pieces]
    for one, other in zip((ts for reader in readers for ts in reader), whole, strict=True):
        np.testing.assert_array_equal(one.velocities, other.velocities)
    parts = [mdtraj.formats.TRRTrajectoryFile(str(piece)).read()[0] for piece in pieces]
    expected, *_ = mdtraj.formats.TRRTrajectoryFile(str(path)).read()
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    again = tmp_path / "again.trr"
    with pytest.warns(PacelineWarning, match="4 of 4 frames are not later than 900 ps, where"):
        paceline.join([*pieces, pieces[2]], again)
    assert again.read_bytes() == path.read_bytes() + pieces[2].read_bytes()


def test_other_programs_read_the_pieces_of_a_dcd_file(adk, tmp_path):
    pieces = paceline.split(adk.trajectory, 7, output=tmp_path)
    assert_same_frames(Path(adk.trajectory), pieces)
    piece = MDAnalysis.coordinates.DCD.DCDReader(str(pieces[3]))
    whole = MDAnalysis.coordinates.DCD.DCDReader(adk.trajectory)
    assert piece.n_frames == 14
    for one, other in zip(piece, whole[42:56], strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)
        assert one.time == pytest.approx(other.time, rel=1e-12)
    parts = [mdtraj.formats.DCDTrajectoryFile(str(piece)).read()[0] for piece in pieces]
    expected, *_ = mdtraj.formats.DCDTrajectoryFile(adk.trajectory).read()
    np.testing.assert_array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("cell", [False, True])
def test_every_kind_of_dcd_file_is_cut_and_joined(big_endian, wide, cell, tmp_path):
    kind = {"big_endian": big_endian, "wide": wide, "cell": cell, "four_dims": cell}
    whole = dcd_file(tmp_path / "md.dcd", 11, **kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pieces = paceline.split(whole, frames=4)
        assert_same_frames(whole, pieces)
        assert [open_file(piece).times()[1][0] for piece in pieces] == [10, 30, 50]
        again = paceline.join(pieces, tmp_path / "again.dcd")
    assert again.read_bytes() == whole.read_bytes()


def test_a_size_is_kept_and_used(water, tmp_path):
    sizes = np.diff(xtc(water.read_bytes()).borders)
    limit = int(sizes[:3].sum())
    pieces = paceline.split(water, size=limit)
    assert pieces[0].stat().st_size == limit
    assert all(piece.stat().st_size <= limit for piece in pieces)
    assert len(pieces) == 4
    whole = dcd_file(tmp_path / "md.dcd", 10)
    head, frame = dcd_sizes(whole)
    assert [
        open_file(piece).n_frames for piece in paceline.split(whole, size=head + 4 * frame)
    ] == [
        4,
        4,
        2,
    ]
    with pytest.raises(ValueError, match=rf"frame 0 alone needs a file of {head + frame} bytes"):
        paceline.split(whole, size=head + frame - 1, output=tmp_path / "b.dcd")


def dcd_sizes(path: Path) -> tuple[int, int]:
    """Return the sizes of the header and of a frame of a DCD file, bytes."""
    offsets, sizes = open_file(path).extents(np.zeros(1, dtype=np.uint64))
    return int(offsets[0]), int(sizes[0])


def test_names_sort_in_the_order_of_frames(tmp_path):
    path = tmp_path / "many.xtc"
    path.write_bytes(b"".join(plain_xtc_frame(2) for _ in range(1001)))
    pieces = paceline.split(path, 1001)
    assert (pieces[0].name, pieces[-1].name) == ("many.0000.xtc", "many.1000.xtc")
    assert sorted(path.parent.glob("many.*.xtc")) == pieces
    assert temporaries(tmp_path) == []


def test_the_output_is_a_folder_or_a_name(water, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    assert paceline.split(water, 2, output=folder)[1] == folder / "md.001.xtc"
    assert paceline.split(water, 2, output=folder / "a.b.xtc")[1] == folder / "a.b.001.xtc"
    odd = water.rename(tmp_path / "md.part0002")
    assert paceline.split(odd, 2)[1] == tmp_path / "md.part0002.001.xtc"
    with pytest.raises(ValueError, match=r"nowhere: expected a folder that exists, or a name that"):
        paceline.split(odd, 2, output=tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"a.dcd: expected a name that ends in .xtc"):
        paceline.join([odd], tmp_path / "a.dcd")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        paceline.split(odd, 2, output=tmp_path / "nowhere" / "a.xtc")


@pytest.mark.filterwarnings("ignore:.*are not later")
def test_files_that_exist_are_left_alone(water):
    there = water.with_name("md.001.xtc")
    there.write_text("mine")
    before = visible(water.parent)
    with pytest.raises(FileExistsError, match=r"md.001.xtc exists: it is replaced only with"):
        paceline.split(water, 2)
    with pytest.raises(
        FileExistsError, match=r"md.001.xtc would be mistaken for one of the 1 pieces"
    ):
        paceline.split(water, 1, overwrite=True)
    with pytest.raises(FileExistsError, match="it is replaced only with"):
        paceline.join([water], there)
    assert there.read_text() == "mine"
    assert visible(water.parent) == before
    paceline.split(water, 2, overwrite=True)
    assert open_file(there).n_frames == 5
    paceline.join([water, water], there, overwrite=True)
    assert open_file(there).n_frames == 20


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "expected exactly one of n, frames and size, found 0"),
        ({"n": 2, "frames": 2}, "expected exactly one of n, frames and size, found 2"),
        ({"n": 0}, "of at least 1, found 0"),
        ({"n": 11}, "md.xtc: 10 frames cannot make 11 pieces"),
        ({"size": 100}, "frame 0 alone needs a file of"),
    ],
)
def test_what_cannot_be_cut_is_refused(how, message, water):
    with pytest.raises(ValueError, match=message):
        paceline.split(water, **how)
    assert visible(water.parent) == ["md.xtc"]


def test_files_without_frames_or_with_fixed_atoms_are_refused(tmp_path):
    empty = dcd_file(tmp_path / "empty.dcd", 0)
    fixed = dcd_file(tmp_path / "fixed.dcd", 4, n_fixed=2)
    other = dcd_file(tmp_path / "other.dcd", 4)
    output = tmp_path / "all.dcd"
    for work in (lambda: paceline.split(empty, 1), lambda: paceline.join([other, empty], output)):
        with pytest.raises(UnsupportedError, match=r"empty.dcd: it has no complete frame"):
            work()
    for work in (lambda: paceline.split(fixed, 2), lambda: paceline.join([fixed], output)):
        with pytest.raises(UnsupportedError, match=r"fixed.dcd: 2 of 5 atoms are fixed"):
            work()
    with pytest.raises(ValueError, match="no trajectories to join"):
        paceline.join([], output)
    assert visible(tmp_path) == ["empty.dcd", "fixed.dcd", "other.dcd"]
    assert temporaries(tmp_path) == []


def test_steps_beyond_a_dcd_head_are_refused(tmp_path):
    path = dcd_file(tmp_path / "long.dcd", 4, istart=2**31 - 11)
    with pytest.raises(UnsupportedError, match=r"31 bits, too few for 1 frames from step 21474836"):
        paceline.split(path, 4)
    assert visible(tmp_path) == ["long.dcd"]


def test_the_header_of_a_killed_run_is_put_right(tmp_path):
    path = dcd_file(tmp_path / "killed.dcd", 6)
    content = bytearray(path.read_bytes())
    content[8:12] = bytes(4)
    path.write_bytes(content[:-10])
    with pytest.warns(PacelineWarning, match=r"frame 5 .* is cut"):
        whole = paceline.join([path], tmp_path / "whole.dcd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_file(whole).n_frames == 5
    assert MDAnalysis.coordinates.DCD.DCDReader(str(whole)).n_frames == 5


def test_a_cut_frame_is_left_out(water):
    content = water.read_bytes()
    water.write_bytes(content[:-1000])
    with pytest.warns(PacelineWarning, match=r"md.xtc: frame 9 .* is cut"):
        pieces = paceline.split(water, 2)
    whole = b"".join(piece.read_bytes() for piece in pieces)
    assert whole == content[: xtc(content).borders[9]]


@pytest.mark.filterwarnings("ignore:.*damaged")
def test_damage_is_not_passed_on(water, adk, tmp_path):
    file = xtc(water.read_bytes())
    bad_header = tmp_path / "header.xtc"
    bad_header.write_bytes(xtc_with(file, 4, magic=1))
    before, behind = file.without(6)
    noise = tmp_path / "noise.xtc"
    noise.write_bytes(before + bytes(5000) + behind)
    marker = tmp_path / "marker.dcd"
    content = bytearray(Path(adk.trajectory).read_bytes())
    content[len(content) - 58 * (12 * 3341 + 24)] ^= 1
    marker.write_bytes(content)
    names = visible(tmp_path)
    for path, frame in ((bad_header, 3), (noise, 5), (marker, 40)):
        for work in (
            lambda path=path: paceline.split(path, 2),
            lambda path=path: paceline.join([path], path.with_stem("all")),
        ):
            with pytest.raises(DamagedFileError, match="nothing was written: paceline c") as error:
                work()
            assert error.value.frame in (frame, frame + 1)
            assert error.value.path == str(path)
            assert f"frame {error.value.frame}, byte" in str(error.value)
    assert visible(tmp_path) == names
    assert temporaries(tmp_path) == []


def test_different_files_are_not_joined(water, tmp_path):
    output = tmp_path / "all.xtc"
    small = tmp_path / "small.xtc"
    small.write_bytes(plain_xtc_frame(3))
    with pytest.raises(UnsupportedError, match=r"md.xtc and .*small.xtc .*: atoms 47681 and 3$"):
        paceline.join([water, water, small], output)
    plain = dcd_file(tmp_path / "a.dcd", 2)
    with pytest.raises(UnsupportedError, match="format XTC and DCD; atoms 47681 and 5"):
        paceline.join([water, plain], output)
    other = dcd_file(tmp_path / "b.dcd", 2, cell=False, big_endian=True)
    with pytest.raises(UnsupportedError) as error:
        paceline.join([plain, other], tmp_path / "all.dcd")
    expected = "byte order little-endian and big-endian; unit cells there and missing"
    assert str(error.value) == f"{plain} and {other} cannot be joined: {expected}"


def test_overlapping_restarts_warn_and_are_kept(water, tmp_path):
    first, second = tmp_path / "one.xtc", tmp_path / "two.xtc"
    file = xtc(water.read_bytes())
    first.write_bytes(file.cut(file.borders[6]))
    second.write_bytes(file.content[file.borders[4] :])
    with pytest.warns(PacelineWarning) as told:
        whole = paceline.join([first, second], tmp_path / "all.xtc")
    assert [str(warning.message) for warning in told] == [
        f"{second}: 2 of 6 frames are not later than 500 ps, where {first} ends; all of them "
        "are kept: continuous=True (--continuous) leaves them out"
    ]
    assert told[0].filename == __file__
    assert whole.read_bytes() == first.read_bytes() + second.read_bytes()
    third = tmp_path / "three.xtc"
    third.write_bytes(file.content[file.borders[6] :])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paceline.join([first, third], tmp_path / "whole.xtc")
    assert (tmp_path / "whole.xtc").read_bytes() == file.content


def test_continuous_joins_without_what_restarts_repeat(water, tmp_path, monkeypatch):
    file = xtc(water.read_bytes())
    first, second = tmp_path / "one.xtc", tmp_path / "two.xtc"
    first.write_bytes(file.cut(file.borders[6]))
    second.write_bytes(file.content[file.borders[4] :])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The files may be given in any order.
        paceline.join([second, first], tmp_path / "all.xtc", continuous=True)
    assert (tmp_path / "all.xtc").read_bytes() == file.content
    monkeypatch.chdir(tmp_path)
    assert cli.main(["join", "two.xtc", "one.xtc", "--continuous", "-o", "again.xtc"]) in (0, None)
    assert (tmp_path / "again.xtc").read_bytes() == file.content


def test_continuous_leaves_out_frames_that_one_file_repeats(water, tmp_path):
    file = xtc(water.read_bytes())
    borders = file.borders
    appended = tmp_path / "appended.xtc"
    appended.write_bytes(file.content[: borders[6]] + file.content[borders[3] :])
    paceline.join([appended], tmp_path / "all.xtc", continuous=True)
    assert (tmp_path / "all.xtc").read_bytes() == file.content


def test_continuous_of_dcd_files_compares_computed_times(tmp_path):
    one = dcd_file(tmp_path / "one.dcd", 4, istart=10)
    two = dcd_file(tmp_path / "two.dcd", 3, istart=20, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = paceline.join([one, two], tmp_path / "all.dcd", continuous=True)
    found = paceline.open(whole)
    assert found.n_frames == 5
    assert found.times == pytest.approx(paceline.open([one, two], continuous=True).times)
    expected = paceline.open([one, two], continuous=True).positions()
    assert np.array_equal(found.positions(), expected)


def test_a_pattern_is_joined_as_people_count(water):
    one, two, ten = paceline.split(water, 3)
    paths = [water.parent / f"md.part{k}.xtc" for k in (1, 2, 10)]
    for piece, path in zip((one, two, ten), paths, strict=True):
        piece.rename(path)
    whole = paceline.join(str(water.parent / "md.part*.xtc"), water.parent / "whole.xtc")
    assert whole.read_bytes() == water.read_bytes()


def test_times_that_a_dcd_file_cannot_keep_warn(tmp_path):
    one = dcd_file(tmp_path / "one.dcd", 4, istart=10)
    two = dcd_file(tmp_path / "two.dcd", 3, istart=100, seed=1)
    with pytest.warns(PacelineWarning) as told:
        whole = paceline.join([one, two], tmp_path / "all.dcd")
    step = np.float64(np.float32(0.04)) * 4.888821e-2
    assert [str(warning.message) for warning in told] == [
        f"{two} begins at {100 * step:g} ps, and in {whole} its first frame is at "
        f"{30 * step:g} ps: a DCD file does not store the times of its frames"
    ]
    positions, _, times = frames_of(whole)
    np.testing.assert_array_equal(positions, frames_of(one, two)[0])
    np.testing.assert_allclose(times, step * (10 + 5 * np.arange(7)), rtol=1e-6)


class TestCopying:
    """Tests of copying by every method that a system may support."""

    CONTENT = np.random.default_rng(5).bytes(3 * 2**20 + 17)

    @pytest.fixture
    def files(self, tmp_path):
        (tmp_path / "from").write_bytes(self.CONTENT)
        (tmp_path / "to").write_bytes(b"ahead")
        with open(tmp_path / "from", "rb") as source, open(tmp_path / "to", "r+b") as target:
            yield source.fileno(), target.fileno()

    def copy(self, files, more=0):
        copier = copy_frames.Copier()
        copier.copy("from", files[0], 5, files[1], 5, len(self.CONTENT) - 5 + more)
        return copier.copied

    def copied(self, tmp_path) -> bool:
        return (tmp_path / "to").read_bytes() == b"ahead" + self.CONTENT[5:]

    @pytest.mark.parametrize("calls", [2**20, 1000 * 1000])
    def test_in_several_calls(self, calls, files, tmp_path, monkeypatch):
        monkeypatch.setattr(copy_frames, "_CALL", calls)
        assert self.copy(files) == len(self.CONTENT) - 5
        assert self.copied(tmp_path)

    @pytest.mark.parametrize("code", ["EXDEV", "ENOSYS", "EINVAL", "EOPNOTSUPP", None])
    def test_where_the_kernel_cannot(self, code, files, tmp_path, monkeypatch):
        def refuse(*operands):
            if code is None:
                return 0
            raise OSError(getattr(errno, code), "not here")

        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
        assert self.copy(files) == len(self.CONTENT) - 5
        assert self.copied(tmp_path)

    def test_where_the_system_knows_no_better(self, files, tmp_path, monkeypatch):
        monkeypatch.delattr(os, "copy_file_range", raising=False)
        self.copy(files)
        assert self.copied(tmp_path)

    def test_where_bytes_are_shifted(self, files, tmp_path):
        copy_frames.Copier().copy("from", files[0], 4, files[1], 7, 1000)
        assert (tmp_path / "to").read_bytes()[7:] == self.CONTENT[4:1004]

    def test_a_source_that_ends_too_early_has_changed(self, files):
        with pytest.raises(FileChangedError, match=f"ended at byte {len(self.CONTENT)} while"):
            self.copy(files, more=100)

    def test_a_source_that_cannot_be_read_is_named(self, files, monkeypatch):
        def fail(*operands):
            raise OSError(errno.EIO, "Input/output error")

        for name in ("copy_file_range", "pread"):
            monkeypatch.setattr(os, name, fail, raising=False)
        with pytest.raises(ReadError, match="from: cannot read at byte 5: Input/output error"):
            self.copy(files)


def test_a_full_disk_leaves_nothing_and_names_the_final_file(water, capsys):
    open_file(water)
    for argv, name in (
        (["split", str(water), "-n", "2"], r"md.00[01].xtc"),
        (["join", str(water), str(water), "-o", f"{water.parent}/all.xtc"], "all.xtc"),
    ):
        with full_disk(100_000):
            status = cli.main(argv)
        out, err = capsys.readouterr()
        assert (status, out) == (1, "")
        *_, line = err.splitlines()
        assert re.fullmatch(rf"paceline: error: {water.parent}/{name}: File too large", line)
        assert visible(water.parent) == ["md.xtc"]
        assert temporaries(water.parent) == []


def test_a_file_that_changes_meanwhile_is_an_error(water, monkeypatch):
    copy_all = split_join.copy_all

    def change(*arguments):
        copy_all(*arguments)
        content = bytearray(water.read_bytes())
        content[100] ^= 1
        water.write_bytes(content)

    monkeypatch.setattr(split_join, "copy_all", change)
    with pytest.raises(FileChangedError):
        paceline.split(water, 2)
    assert visible(water.parent) == ["md.xtc"]
    assert temporaries(water.parent) == []


def test_a_failing_rename_leaves_no_part_of_the_pieces(water, monkeypatch):
    replace = os.replace

    def fail(source, target):
        if "md.001" in str(target):
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=r"md.001.xtc"):
        paceline.split(water, 3)
    assert visible(water.parent) == ["md.xtc"]
    assert temporaries(water.parent) == []


@pytest.fixture
def slow(monkeypatch):
    """Make copying take an hour, and report when it has begun."""
    begun = threading.Event()

    def copy(*operands):
        begun.set()
        time.sleep(0.05)
        return 1

    monkeypatch.setattr(copy_frames, "copy_in_kernel", copy)
    monkeypatch.setattr(copy_frames, "_through_memory", copy)
    return begun


def test_ctrl_c_stops_at_once_and_leaves_nothing(water, slow, capsys, monkeypatch):
    # Wait until all threads exist, because a starting thread may turn the interrupt into an error.
    all_started, wait = threading.Event(), copy_frames.wait

    def waited(*arguments, **options):
        all_started.set()
        return wait(*arguments, **options)

    def interrupt():
        slow.wait()
        all_started.wait()
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(copy_frames, "wait", waited)
    for argv in (["split", str(water), "-n", "4"], ["join", *[str(water)] * 3, "-o", "all.xtc"]):
        argv = [word.replace("all.xtc", f"{water.parent}/all.xtc") for word in argv]
        slow.clear()
        all_started.clear()
        threading.Thread(target=interrupt).start()
        assert cli.main(argv) == INTERRUPTED
        assert capsys.readouterr().err.splitlines()[-1] == "paceline: interrupted"
        assert visible(water.parent) == ["md.xtc"]
        assert temporaries(water.parent) == []


@pytest.mark.usefixtures("slow")
def test_a_failure_stops_the_other_pieces(water, monkeypatch):
    slow = copy_frames._through_memory

    def fail_in_one(*operands):
        if threading.current_thread().name.endswith("_0"):
            raise DamagedFileError("frame 0 is damaged")
        return slow(*operands)

    monkeypatch.setattr(copy_frames, "copy_in_kernel", fail_in_one)
    monkeypatch.setattr(copy_frames, "_through_memory", fail_in_one)
    with pytest.raises(DamagedFileError):
        paceline.split(water, 2, n_workers=2)


@pytest.mark.parametrize("n_workers", [0, -1])
def test_copying_takes_one_worker_at_least(n_workers, water):
    message = f"n_workers must be at least 1, not {n_workers}"
    with pytest.raises(ValueError, match=message):
        paceline.split(water, 2, n_workers=n_workers)
    with pytest.raises(ValueError, match=message):
        paceline.join([water, water], water.with_name("whole.xtc"), n_workers=n_workers)
    assert visible(water.parent) == ["md.xtc"]
    assert temporaries(water.parent) == []


#: Script that prints how many calls copy bytes. Then child processes repeat the work, and each is
#: killed at a given call: "copy 3", or "name 1", the first call that gives a file its final name.
NURSERY = """
import collections, os, signal, sys, threading, time
from paceline.trajectory import copy_frames
from paceline.split_join import join, split
copy_frames._CALL = copy_frames._BUFFER = 10_000
calls, last, lock = collections.Counter(), (None, 0), threading.Lock()

def counted(kind, function):
    def count(*operands):
        with lock:
            calls[kind] += 1
            if (kind, calls[kind]) == last:
                os.write(told, b"!")
                time.sleep(3600)  # no other thread comes to its next call
        return function(*operands)
    return count

copy_frames.copy_in_kernel = counted("copy", copy_frames.copy_in_kernel)
copy_frames._through_memory = counted("copy", copy_frames._through_memory)
os.replace = counted("name", os.replace)
{work}
print(calls["copy"], flush=True)
for line in sys.stdin:
    come, told = os.pipe()
    child = os.fork()
    if child == 0:
        kind, number = line.split()
        calls.clear()
        last = kind, int(number)
        while True:
            {work}
    os.close(told)
    os.read(come, 1)
    os.close(come)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(flush=True)
"""
#: Number of copies at which each command is killed.
KILLS = 12


@pytest.mark.parametrize("what", ["split", "join"])
def test_a_killed_process_leaves_no_part_under_a_final_name(what, water):
    folder = water.parent
    content = water.read_bytes()
    pieces = paceline.split(water, 3)
    expected = {piece.name: piece.read_bytes() for piece in pieces} | {"all.xtc": content * 2}
    for piece in pieces:
        piece.unlink()
    work = {
        "split": f"split({str(water)!r}, 3, overwrite=True)",
        "join": f"join([{str(water)!r}] * 2, {str(folder / 'all.xtc')!r}, overwrite=True)",
    }
    nursery = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", NURSERY.format(work=work[what])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def n_whole() -> int:
        """Return the number of final files since the last check; each must be complete."""
        names = set(visible(folder)) - {"md.xtc"}
        for name in names:
            assert (folder / name).read_bytes() == expected[name], name
            (folder / name).unlink()
        return len(names)

    n_copies = int(nursery.stdout.readline())
    n_files = {"split": 3, "join": 1}[what]
    assert n_whole() == n_files
    assert temporaries(folder) == []
    # During the first run, and while a run replaces the output of the first.
    calls = [f"name {k}" for k in range(1, 2 * n_files + 1)]
    calls += [f"copy {k}" for k in np.linspace(1, 2 * n_copies, KILLS, dtype=int)]
    found, n_left = set(), 0
    for call in calls:
        nursery.stdin.write(f"{call}\n")
        nursery.stdin.flush()
        assert nursery.stdout.readline() == "\n"
        found.add(n_whole())
        # Files without a final name remain.
        assert len(temporaries(folder)) > n_left
        n_left = len(temporaries(folder))
    nursery.communicate()
    assert nursery.returncode == 0
    assert found == set(range(n_files + 1))


@pytest.mark.parametrize("command", ["split", "join"])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert f"examples:\n  paceline {command} " in capsys.readouterr().out


def test_the_commands(water, capsys):
    assert cli.main(["split", str(water), "-n", "3"]) == 0
    pieces = capsys.readouterr().out.split()
    assert pieces == [str(water.with_name(f"md.{k:03}.xtc")) for k in range(3)]
    output = str(water.with_name("all.xtc"))
    assert cli.main(["join", *pieces, "-o", output]) == 0
    assert capsys.readouterr() == ("", "")
    assert Path(output).read_bytes() == water.read_bytes()
    assert cli.main(["split", str(water), "--size", "1.2MB", "-o", f"{water.parent}/b.xtc"]) == 0
    assert len(capsys.readouterr().out.split()) == 2
    assert cli.main(["split", str(water), "-n", "11"]) == 2
    assert "10 frames cannot make 11 pieces" in capsys.readouterr().err
    assert cli.main(["split", datafiles.PDB_small, "-n", "2"]) == 2
    for wrong in (["-n", "2", "--frames", "2"], [], ["--size", "2 cups"], ["--size", "0"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["split", str(water), *wrong])
