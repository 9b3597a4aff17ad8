"""Tests of `python -m paceline.selftest`, with which users check an installation."""

import subprocess
import sys

import pytest
from helpers.mpi import LONGEST

from paceline import selftest


@pytest.fixture
def without(monkeypatch):
    """Make packages appear not installed."""

    def without(*packages):
        real = selftest.find_spec
        monkeypatch.setattr(
            selftest, "find_spec", lambda name: None if name in packages else real(name)
        )

    return without


def test_it_passes_and_names_what_is_absent(without, capsys):
    without("distributed", "mpi4py")
    assert selftest.main([]) == 0
    written = capsys.readouterr().out
    for line in ("paceline 0.", "system: ", "machine: ", "packages: MDAnalysis "):
        assert line in written
    assert "absent           backend dask: distributed is not installed" in written
    assert "12 passed, 0 failed" in written


def test_what_is_wrong_fails_by_name(without, capsys, monkeypatch):
    without("distributed", "mpi4py", "matplotlib")
    xtc = selftest.FORMATS[0]
    monkeypatch.setattr(selftest, "FORMATS", (xtc._replace(error=0.001), selftest.FORMATS[1]))
    digests = selftest.digests

    def other_bits(universe, **options):
        found = digests(universe, backend="serial")
        return found | ({"rmsf": "other"} if options["backend"] == "threads" else {})

    monkeypatch.setattr(selftest, "digests", other_bits)
    assert selftest.main([]) == 1
    written = capsys.readouterr().out
    assert "read XTC: positions are 0.00" in written
    assert "backend threads: other bits than with one worker in rmsf" in written
    assert "5 passed, 2 failed" in written


def test_ranks_of_mpi_do_not_run_it(monkeypatch, capsys):
    monkeypatch.setattr(selftest, "launched", lambda: (4, 0))
    assert selftest.main([]) == 2
    assert "without mpirun" in capsys.readouterr().out


@pytest.mark.full
def test_the_command_runs_every_backend(tmp_path):
    command = [sys.executable, "-m", "paceline.selftest"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=LONGEST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "backend dask: bit-identical to one worker" in done.stdout
    assert not list(tmp_path.iterdir())
