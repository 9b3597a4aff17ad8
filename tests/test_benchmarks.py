"""The benchmarks run: what they measure in so short a time says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"paceline", "paceline, 2 threads"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of the data, made by the first benchmark."""
    return tmp_path_factory.mktemp("bench-data")


def tools_of(benchmark, case, folder):
    """Tools that have a row for this case."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", benchmark, folder),
            *("--tiny", "--tsv", "--only", case),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.startswith(case)]
    return {row[1] for row in rows}


def test_the_path_of_a_frame(folder):
    assert {"MDAnalysis", "MDTraj"} | OURS <= tools_of("path", "adk.trr", folder)


def test_conversion(folder):
    tools = tools_of("convert", "water.xtc-to-protein.xtc", folder)
    assert tools == {"MDAnalysis", "MDTraj"} | OURS


def test_transformation(folder):
    assert tools_of("transform", "unwrap-center-fit", folder) == {"MDAnalysis"} | OURS


def test_splitting(folder):
    assert {"cp", "paceline split"} <= tools_of("split", "adk.xtc", folder)


def test_validating(folder):
    assert "30" in tools_of("validate", "adk.dcd", folder)


def test_unknown_cases_are_refused(folder):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "path", folder, "--only", "adk.nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "adk.nothing" in done.stderr
