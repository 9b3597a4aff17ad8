"""Tests of the parts of files in the page cache, and of dropping them, where supported."""

import mmap
import os
import sys

import pytest

from paceline._util import os_calls
from paceline._util.os_calls import cached_share, cached_share_of_all, drop_from_cache
from paceline.errors import UnsupportedError

#: Half the size of a file, bytes: many pages, because Linux may combine pages.
HALF = 4 << 20

needs_mincore = pytest.mark.skipif(
    os_calls._mincore() is None, reason="this system does not tell what is in memory"
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * HALF))
    return path


def dropped(path, ranges=None):
    """Drop a file from the page cache, or skip if a file system keeps all in memory."""
    drop_from_cache(path, ranges)
    if cached_share(path) == 1:
        pytest.skip("files are kept in memory here")


@needs_mincore
def test_what_was_just_written_is_in_memory(path):
    assert cached_share(path) == 1
    assert cached_share(path, [(10, 100), (HALF, HALF)]) == 1


@needs_mincore
def test_a_whole_file_is_dropped(path):
    dropped(path)  # although the file was not yet on the disk
    assert cached_share(path) == 0


@needs_mincore
def test_ranges_are_dropped_with_the_pages_they_begin_and_end_in(path):
    dropped(path, [(HALF + 10, HALF - 20)])
    assert cached_share(path, [(0, HALF)]) == 1
    assert cached_share(path, [(HALF, HALF)]) == 0
    assert cached_share(path) == 0.5


@needs_mincore
def test_files_count_by_their_size(path, tmp_path):
    large, empty = tmp_path / "large", tmp_path / "empty"
    large.write_bytes(bytes(3 * 2 * HALF))
    empty.touch()
    dropped(path)
    assert cached_share_of_all([path, large, empty]) == 0.75
    assert cached_share_of_all([empty]) is None


@needs_mincore
def test_long_files_are_looked_at_from_end_to_end(path, monkeypatch):
    dropped(path, [(0, HALF)])
    monkeypatch.setattr(os_calls, "_WINDOWS", 4)
    monkeypatch.setattr(os_calls, "_WINDOW", mmap.PAGESIZE)
    windows = os_calls._windows(2 * HALF)
    assert (len(windows), windows[0][0], sum(windows[-1])) == (4, 0, 2 * HALF)
    assert cached_share(path) == 0.5


def test_no_bytes_report_nothing(path):
    assert cached_share(path, [(2 * HALF, 10)]) is None
    assert cached_share(path, []) is None


@pytest.mark.parametrize("owned", [True, False])
@needs_mincore
def test_linux_tells_only_those_who_could_change_a_file(path, monkeypatch, owned):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user if owned else user + 1)
    assert cached_share(path) == (1 if owned else None)
    assert cached_share_of_all([path]) == cached_share(path)


def test_systems_that_cannot(path, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with pytest.raises(UnsupportedError, match="cannot drop"):
        drop_from_cache(path)
    monkeypatch.setattr(os_calls, "_mincore", lambda: None)
    assert cached_share(path) is None


def test_an_interrupt_stays_one_wherever_it_comes(path):
    """Check that an interrupt in a nested call is not replaced by another error."""

    def interrupted_at(n_lines):
        left = n_lines

        def trace(frame, event, argument):
            nonlocal left
            if frame.f_code.co_filename != os_calls.__file__:
                return None
            left -= event == "line"
            if left < 0:
                raise KeyboardInterrupt
            return trace

        return trace

    n_lines, former = 0, sys.gettrace()
    while True:
        sys.settrace(interrupted_at(n_lines))
        try:
            cached_share(path)
        except KeyboardInterrupt:
            n_lines += 1
        else:
            break
        finally:
            sys.settrace(former)
    assert n_lines > 10
