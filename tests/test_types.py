"""Tests that scripts of users are checked against the types of the package."""

import subprocess
import sys
from importlib.resources import files

import pytest

#: A script, and the types that a checker infers, line by line.
SCRIPT = """\
import numpy as np
import paceline
from paceline.analysis.rms import RMSD
from paceline.block import Block

def radii(block: Block) -> np.ndarray:
    reveal_type(block.positions)  # ndarray
    return np.asarray(block.positions - block.positions.mean(axis=1, keepdims=True))

u = paceline.Universe("adk.psf", "adk.dcd")
reveal_type(u)  # paceline.universe.Universe
rmsd = RMSD(u.select_atoms("name CA")).run(step=2, n_workers=2)
reveal_type(rmsd)  # paceline.analysis.rms.RMSD
reveal_type(rmsd.results)  # paceline.analysis.results.Results
reveal_type(rmsd.damaged)  # list[tuple[int, str]]
reveal_type(rmsd.timings)  # paceline.timing.Timings
series = paceline.TimeSeries(radii, u.atoms, unit="Å").run()
reveal_type(series)  # paceline.analysis.functions.TimeSeries
with paceline.register() as registration:
    reveal_type(registration)  # paceline.mdanalysis.registration.Registration
"""
MISTAKES = """\
import paceline
from paceline.analysis.rms import RMSD

rmsd = RMSD(paceline.Universe("adk.psf", "adk.dcd")).run(step=2)
paceline.run(rmsd, block_frames="ten")
paceline.TimeSeries(len, rmsd.damaged, units="Å")
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """Check a script as its author would, outside the sources of paceline."""
    folder = tmp_path_factory.mktemp("types")

    def check(script: str) -> subprocess.CompletedProcess[str]:
        (folder / "script.py").write_text(script, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", "script.py"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True)

    return check


def test_package_has_the_marker_of_types():
    assert files("paceline").joinpath("py.typed").is_file()


@pytest.mark.full
def test_types_of_results_are_revealed(check):
    checked = check(SCRIPT)
    assert checked.returncode == 0, checked.stdout
    notes = [line for line in checked.stdout.splitlines() if ": note: Revealed type" in line]
    lines = [line for line in SCRIPT.splitlines() if "reveal_type" in line]
    for line, note in zip(lines, notes, strict=True):
        _, _, expected = line.partition("  # ")
        assert expected in note, (line, note)


@pytest.mark.full
def test_mistakes_in_calls_are_found(check):
    checked = check(MISTAKES)
    assert 'script.py:5: error: Argument "block_frames"' in checked.stdout
    assert 'script.py:6: error: Unexpected keyword argument "units"' in checked.stdout
