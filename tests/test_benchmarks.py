"""The benchmarks run: what they measure in so short a time says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("case", ["adk.dcd", "water.xtc"])
def test_the_tiny_benchmark_runs(case, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", str(tmp_path), "--tiny", "--tsv", "--only", case],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.startswith(case)]
    tools = {row[1] for row in rows}
    assert {"MDAnalysis", "MDTraj", "paceline", "paceline, 2 threads"} <= tools
