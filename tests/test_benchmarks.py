"""The benchmarks run: what they measure in so short a time says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The benchmarks' data, made once."""
    return tmp_path_factory.mktemp("bench-data")


def rows(module, *arguments):
    """The table that a benchmark prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments), "--tiny", "--tsv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("case", ["adk.dcd", "water.xtc"])
def test_the_tiny_benchmark_runs(case, folder):
    table = rows("benchmarks", folder, "--only", case)
    tools = {row[1] for row in table if row[0] == case}
    assert {"MDAnalysis", "MDTraj", "paceline", "paceline, 2 threads"} <= tools


def test_the_tiny_benchmark_of_validating_runs(folder):
    table = rows("benchmarks.bench_validate", folder, "--only", "adk.dcd")
    assert [row[0] for row in table if len(row) > 1] == ["case", "adk.dcd"]
