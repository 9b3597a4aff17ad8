"""Tests that progress is shown only to users who wait."""

import os
import pty
import re
import subprocess
import sys
import termios
from functools import partial

import pytest
from MDAnalysisTests.datafiles import GRO, XTC

import paceline
from paceline._util import progress
from paceline._util.progress import Progress
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.rms import RMSF

#: Work of 0.6 s, by a simulated clock.
WORK = """
import sys, time
now = [1000.0]
time.time = time.monotonic = lambda: now[0]
from paceline._util import progress
progress.PATIENCE = float(sys.argv[1])
with progress.Progress(1000, show={"None": None, "False": False}[sys.argv[2]]) as bar:
    for _ in range(10):
        now[0] += 0.06
        bar.add(100)
"""


def on_terminal(patience, show):
    """Return the text on a terminal."""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    command = [sys.executable, "-c", WORK, str(patience), str(show)]
    process = subprocess.Popen(command, stderr=child)
    os.close(child)
    shown = b""
    try:
        while data := os.read(parent, 4096):
            shown += data
    except OSError:  # the error on Linux at the end of a terminal
        pass
    os.close(parent)
    assert process.wait() == 0
    return shown.decode()


def test_a_terminal_shows_a_bar_with_rate_and_time_left():
    shown = on_terminal(0.2, None)
    assert "frames/s" in shown
    assert "<00:0" in shown
    assert "/1.00k" in shown


def test_what_is_soon_over_shows_nothing():
    assert progress.PATIENCE == 2
    assert on_terminal(2, None) == ""


def test_a_bar_that_is_asked_for_is_shown_at_once(capsys):
    with Progress(20, show=True) as bar:
        bar.add(20)
    assert "100%|█" in capsys.readouterr().err


def test_nothing_is_shown_unasked():
    assert on_terminal(0, False) == ""


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_a_minute(clock, capsys):
    with Progress(1000) as bar:
        for _ in range(10):
            clock[0] += 25
            bar.add(50)
    assert capsys.readouterr().err.splitlines() == [
        "150 of 1000 frames (15.0 %), 2 frames/s, 425 s left",
        "300 of 1000 frames (30.0 %), 2 frames/s, 350 s left",
        "450 of 1000 frames (45.0 %), 2 frames/s, 275 s left",
    ]


def test_work_may_show_its_size_on_the_way(clock, capsys):
    with Progress(0, unit="byte") as bar:
        bar.set(0, 500)
        clock[0] += 100
        bar.set(400, 2000)
    assert capsys.readouterr().err == "400 of 2000 bytes (20.0 %), 4 bytes/s, 400 s left\n"


def test_each_pass_has_its_own_time_left(clock, capsys):
    """Check that the remaining time is unknown, because the next pass may be slower."""
    with Progress(1000) as bar:
        for number, seconds in ((1, 0.1), (2, 10)):
            bar.begin_pass(number, 2, 1000)
            bar.skip(100)
            for _ in range(9):
                clock[0] += 100 * seconds
                bar.add(100)
    found = capsys.readouterr().err.splitlines()
    assert found[:2] == [
        "pass 1 of 2: 700 of 1000 frames (70.0 %), 10 frames/s, 30 s left of this pass",
        "pass 2 of 2: 200 of 1000 frames (20.0 %), 0 frames/s, 8000 s left of this pass",
    ]
    assert len(found) == 10


@pytest.mark.parametrize(
    ("make", "options", "n_passes"),
    [
        (RMSF, {}, 1),
        (partial(RMSF, align=True), {}, 2),
        (DistanceMatrix, {}, 2),
        (RMSF, {"transforms": [paceline.transform.nojump()], "backend": "processes"}, 2),
    ],
)
def test_passes_of_a_run_are_counted(make, options, n_passes, capsys):
    atoms = paceline.Universe(GRO, XTC).select_atoms("name CA")
    make(atoms).run(n_workers=2, verbose=True, **options)
    shown = capsys.readouterr().err
    found = sorted(set(re.findall(r"pass \d of \d", shown)))
    assert found == ([f"pass {k} of {n_passes}" for k in (1, 2)] if n_passes > 1 else [])
    assert re.findall(r"(\d+)%[^%]*$", shown) == ["100"]
    assert "10.0/10.0" in shown


def test_a_bar_is_shown_on_request_wherever_standard_error_goes(capsys):
    with Progress(1000, show=True) as bar:
        bar.add(1000)
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert "1.00k/1.00k" in shown


def test_a_log_gets_nothing_if_nothing_is_wanted(clock, capsys):
    with Progress(1000, show=False) as bar:
        clock[0] += 100
        bar.add(50)
    assert capsys.readouterr().err == ""
