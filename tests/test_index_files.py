"""Tests of the saved index: found again, recognised by content, extended, and rebuilt."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.waiting import PATIENCE
from MDAnalysisTests import datafiles

from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

pytestmark = pytest.mark.filterwarnings("ignore:.*(is cut|the header says)")


@pytest.fixture
def path(tmp_path):
    """An XTC file of 10 frames and 1.6 MB, alone in a folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    return Path(shutil.copy(datafiles.XTC, folder / "trajectory.xtc"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache folder, which is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "paceline"


def index_of(path):
    return path.with_name(f".{path.name}.paceline-index")


def extents(trajectory):
    frames = np.arange(trajectory.n_frames, dtype=np.uint64)
    return np.array(trajectory.extents(frames))


def agrees_with_a_scan(trajectory, path):
    """Check that an index equals a scan of the whole file."""
    scanned = open_file(path, refresh=True)
    assert scanned.index_origin == "scanned"
    np.testing.assert_array_equal(extents(trajectory), extents(scanned))
    np.testing.assert_array_equal(trajectory.times(), scanned.times())
    assert trajectory.notes == scanned.notes


def test_the_index_stands_beside_the_file(path):
    first = open_file(path)
    assert first.index_origin == "scanned"
    assert Path(first.index_file) == index_of(path)
    assert sorted(path.parent.iterdir()) == [index_of(path), path]


def test_the_second_open_reads_little(path):
    open_file(path)
    second = open_file(path)
    assert second.index_origin == "loaded"
    n_bytes, n_calls = second.traffic
    assert n_bytes < 100_000
    assert n_calls < 50
    second.times()
    assert second.traffic == (n_bytes, n_calls)
    agrees_with_a_scan(second, path)


def test_an_index_takes_24_bytes_per_frame(path):
    open_file(path)
    once = index_of(path).stat().st_size
    n_frames = open_file(path).n_frames
    path.write_bytes(path.read_bytes() * 3)
    open_file(path)
    assert index_of(path).stat().st_size == once + 2 * 24 * n_frames


def test_dcd_needs_no_index(tmp_path):
    path = Path(shutil.copy(datafiles.DCD, tmp_path))
    trajectory = open_file(path)
    assert (trajectory.index_origin, trajectory.index_file) == ("computed", None)
    assert trajectory.traffic[0] < 100_000
    assert list(tmp_path.iterdir()) == [path]


def test_a_copy_keeps_its_index(path, tmp_path):
    open_file(path)
    folder = tmp_path / "archive"
    folder.mkdir()
    for file in (path, index_of(path)):
        # The modification time differs, because shutil.copy does not preserve it.
        shutil.copy(file, folder)
    copied = folder / path.name
    os.utime(copied, (1, 1))
    assert open_file(copied).index_origin == "loaded"


def test_a_touched_file_keeps_its_index(path):
    open_file(path)
    os.utime(path, (0, 0))
    assert open_file(path).index_origin == "loaded"


def test_a_grown_file_extends_its_index(path):
    whole = path.read_bytes()
    offsets, sizes = extents(open_file(path)).astype(int)
    seventh = int(offsets[7])
    path.write_bytes(whole[:seventh])
    assert open_file(path, refresh=True).n_frames == 7
    with open(path, "ab") as file:
        file.write(whole[seventh:])
    grown = open_file(path)
    assert (grown.index_origin, grown.n_frames) == ("extended", 10)
    assert grown.traffic[0] < sum(sizes[6:]) + 200_000
    assert open_file(path).index_origin == "loaded"
    agrees_with_a_scan(grown, path)


def test_a_cut_file_that_grows(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    cut = open_file(path)
    assert cut.n_frames == 9
    assert any("is cut" in note for note in cut.notes)
    path.write_bytes(whole)
    grown = open_file(path)
    assert (grown.index_origin, grown.n_frames, grown.notes) == ("extended", 10, [])


def test_a_rewritten_file_of_the_same_size_is_scanned(path):
    frames = path.read_bytes()
    offsets, sizes = extents(open_file(path)).astype(int)
    order = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]
    path.write_bytes(b"".join(frames[offsets[k] : offsets[k] + sizes[k]] for k in order))
    assert path.stat().st_size == len(frames)
    rewritten = open_file(path)
    assert rewritten.index_origin == "scanned"
    np.testing.assert_array_equal(extents(rewritten)[1], sizes[order])


def test_a_shorter_file_is_scanned(path):
    offsets, _ = extents(open_file(path)).astype(int)
    with open(path, "r+b") as file:
        file.truncate(offsets[4])
    shorter = open_file(path)
    assert (shorter.index_origin, shorter.n_frames) == ("scanned", 4)


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "another file": lambda content: b"something else entirely",
    "a changed byte": lambda content: content[:80] + bytes([content[80] ^ 1]) + content[81:],
    "zeros": lambda content: bytes(len(content)),
    "huge counts": lambda content: content[:40] + b"\xff" * 16 + content[56:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_rebuilt(path, damage):
    open_file(path)
    content = index_of(path).read_bytes()
    index_of(path).write_bytes(DAMAGES[damage](content))
    again = open_file(path)
    assert again.index_origin == "scanned"
    assert index_of(path).read_bytes() == content
    agrees_with_a_scan(again, path)


def test_damaged_times_are_read_again(path):
    expected = open_file(path).times()
    content = index_of(path).read_bytes()
    index_of(path).write_bytes(content[:-20] + b"\xff" * 20)
    np.testing.assert_array_equal(open_file(path).times(), expected)
    index_of(path).unlink()
    np.testing.assert_array_equal(open_file(path).times(), expected)


def served_from_the_cache(path, cache):
    """Check that the index is saved in the cache, and found there."""
    first = open_file(path)
    assert first.index_origin == "scanned"
    assert Path(first.index_file).parent == cache
    second = open_file(path)
    assert (second.index_origin, second.index_file) == ("loaded", first.index_file)
    assert Reader(path).n_frames == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_without_permission_to_write(path, cache):
    path.parent.chmod(0o555)
    try:
        served_from_the_cache(path, cache)
    finally:
        path.parent.chmod(0o755)


def test_a_place_that_cannot_be_written(path, cache):
    # This also stops root: the path of the index is a folder.
    index_of(path).mkdir()
    served_from_the_cache(path, cache)
    assert sorted(path.parent.iterdir()) == [index_of(path), path]


def test_two_files_of_one_name_have_their_own_places_in_the_cache(path, cache, tmp_path):
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    shutil.copy(path, other)
    for file in (path, other):
        index_of(file).mkdir()
        assert open_file(file).index_origin == "scanned"
    assert len(list(cache.iterdir())) == 2


def test_no_place_at_all(path, cache):
    index_of(path).mkdir()
    cache.parent.write_text("a file where the cache would be")
    for _ in range(2):
        trajectory = open_file(path)
        assert (trajectory.index_origin, trajectory.index_file) == ("scanned", None)
    assert Reader(path).dt == pytest.approx(100)


def test_many_processes_at_once(path):
    probe = (
        f"from paceline.trajectory.open import open_file; print(open_file({str(path)!r}).n_frames)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", probe], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert [process.communicate()[0].strip() for process in running] == [b"10"] * 4
    assert open_file(path).index_origin == "loaded"
    assert sorted(path.parent.iterdir()) == [index_of(path), path]


SCAN = """
import sys, time
from paceline import _core
def progress(done, total):
    print("scanning", flush=True)
try:
    _core.Trajectory(sys.argv[1], n_threads=2, progress=progress)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_long_scan(path):
    # After ten frames there is a hole, which a scan for the next frame would search for minutes.
    try:
        os.truncate(path, 2**40)
    except OSError as error:
        pytest.skip(f"no file with a hole of 1 TiB: {error}")
    with subprocess.Popen(
        [sys.executable, "-c", SCAN, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "scanning\n"
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        *_, last = process.communicate(timeout=PATIENCE)[0].splitlines()
        assert last == "interrupted"
    assert not index_of(path).exists()
