"""Measure how memory, files and time of a matrix of RMSDs grow with its frames.

    python -m benchmarks matrix [--only 5000 10000 20000] [--tsv] [--tiny]

RMSDs of all pairs of frames, superposed, of the 214 Cα of adenylate kinase: those above the
diagonal in single precision. The 98 frames of MDAnalysisTests are taken again and again. Each size
is a process of its own, on one core.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.compare import options
from benchmarks.resident import Peak
from benchmarks.table import Table

#: Frames that are measured; and those to which the growth is extrapolated.
SIZES, EXTRAPOLATED = (5_000, 10_000, 20_000), 50_000
TINY = (200, 400)
#: Memory for all that a run holds.
LIMIT = 64 * 2**20
HEADINGS = ("frames", "", "anonymous MB", "in files MB", "expected MB", "CPU s", "CPU µs/pair")


def main() -> None:
    asked = options(__doc__, [str(size) for size in SIZES])
    asked.print_head()
    sizes = TINY if asked.tiny else [size for size in SIZES if asked.wants(str(size))]
    table = Table("matrix of RMSDs, max_memory=64 MiB", HEADINGS)
    found = [_measured(size) for size in sizes]
    for size, one in zip(sizes, found, strict=True):
        table.rows.append(_row(size, "measured", one))
    if len(found) > 1:
        n, last = sizes[-1], found[-1]
        # Beside positions and matrix, of n and of n² numbers, a run holds what does not grow.
        more = {
            "anonymous": last["anonymous"] - _arrays(n)[0] + _arrays(EXTRAPOLATED)[0],
            "in files": _arrays(EXTRAPOLATED)[1],
            "cpu": last["cpu"] * _pairs(EXTRAPOLATED) / _pairs(n),
        }
        table.rows.append(_row(EXTRAPOLATED, "extrapolated", more))
    asked.print_tables([table])


def _row(size: int, how: str, found: dict[str, float]) -> tuple[str, ...]:
    return (
        *(str(size), how, f"{found['anonymous'] / 1e6:.0f}", f"{found['in files'] / 1e6:.0f}"),
        *(f"{_arrays(size)[1] / 1e6:.0f}", f"{found['cpu']:.1f}"),
        f"{found['cpu'] / _pairs(size) * 1e6:.3f}",
    )


def _pairs(size: int) -> int:
    return size * (size - 1) // 2


def _arrays(size: int) -> tuple[int, int]:
    """Bytes of positions, and then of the matrix, that fit into the limit, and that do not."""
    in_memory = in_files = 0
    for n_bytes in (12 * 214 * size, 4 * _pairs(size)):
        if in_memory + n_bytes <= LIMIT:
            in_memory += n_bytes
        else:
            in_files += n_bytes
    return in_memory, in_files


def _measured(size: int) -> dict[str, float]:
    """Run one size in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_matrix", "--child", str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _child(size: int) -> None:
    """Run, and print what it took."""
    import shutil
    import tempfile

    import numpy as np
    from MDAnalysisTests.datafiles import DCD, PSF

    import paceline
    from paceline.analysis.diffusionmap import DistanceMatrix

    folder = Path(tempfile.mkdtemp())
    try:
        # An index would otherwise be written beside the installed files.
        ca = paceline.Universe(*(shutil.copy(path, folder) for path in (PSF, DCD))).select_atoms(
            "name CA"
        )
        condensed: dict[str, Any] = {"superposition": True, "condensed": True, "dtype": "float32"}
        frames = np.arange(size) % ca.universe.trajectory.n_frames
        DistanceMatrix(ca, **condensed).run(stop=10, backend="serial")  # what is loaded once
        with Peak() as peak:
            begun = time.process_time()
            one = DistanceMatrix(ca, **condensed).run(
                frames=frames, backend="serial", max_memory=LIMIT
            )
            cpu = time.process_time() - begun
        assert len(one.results.dist_matrix) == _pairs(size)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"anonymous": peak.anonymous, "in files": peak.in_files, "cpu": cpu}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(int(sys.argv[2]))
    else:
        main()
