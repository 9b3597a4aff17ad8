"""Kill what writes H5MD at random moments, and look at what is left.

    python tests/helpers/kill_writers.py [moments, 50 unless said]

`paceline.H5MDWriter`, `paceline convert` and `paceline repack` in turn. Each may leave no file, or
the old one, or a whole one under the final name, and besides a temporary one.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
from MDAnalysisTests.datafiles import DCD, PSF

JOBS = ("H5MDWriter", "convert", "repack")
#: Of a compressed file, so that it takes a while.
OPTIONS = {"compress": "gzip:1", "chunk": "4x3341"}
POSITION = "particles/trajectory/position/value"
DAMAGED = "A DAMAGED FILE"


def work(job: str, path: Path) -> None:
    """What is killed, in a process of its own."""
    import paceline
    from paceline.hdf5.repack import repack

    universe = paceline.Universe(PSF, DCD)
    print("ready", flush=True)
    if job == "H5MDWriter":
        with paceline.H5MDWriter(path, 3341, **OPTIONS) as writer:
            for _ in universe.trajectory:
                writer.write(universe)
    elif job == "convert":
        paceline.Write(universe.atoms, path, **OPTIONS).run(n_workers=2)
    else:
        repack(path, chunk="contiguous", compress="none", n_workers=2)


def start(job: str, path: Path) -> subprocess.Popen:
    """The process, which has begun to write, or is about to."""
    command = [sys.executable, "-W", "ignore", __file__, job, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def what_is_left(path: Path, whole: Path) -> str:
    """In words; every number is read."""
    if not path.exists():
        return "no file"
    if path.read_bytes() == whole.read_bytes():
        return "the file of before" if path.parent.name == "repack" else "a whole file"
    try:
        with h5py.File(path) as file, h5py.File(whole) as other:
            same = np.array_equal(file[POSITION][...], other[POSITION][...])
    except (OSError, KeyError):
        return DAMAGED
    return "a whole file" if same else DAMAGED


def seconds_of(job: str, path: Path) -> float:
    """What a job takes that is left alone."""
    process, begun = start(job, path), time.monotonic()
    assert process.wait() == 0
    return time.monotonic() - begun


def survey(n: int, folder: Path, seed: int = 0) -> Iterator[tuple[str, float, str, bool]]:
    """Kill so many jobs: which one, after how many seconds, what it left, and a temporary file."""
    whole, place = folder / "whole.h5md", folder / "place"
    seconds_of("convert", whole)
    taken: dict[str, float] = {}
    random = np.random.default_rng(seed)
    for k in range(-len(JOBS), n):
        job = JOBS[k % len(JOBS)]
        path = place / job / "md.h5md"
        path.parent.mkdir(parents=True)
        if job == "repack":
            shutil.copy(whole, path)
        if k < 0:
            taken[job] = seconds_of(job, path)
        else:
            seconds = random.uniform(0, 0.8 * taken[job])
            process = start(job, path)
            time.sleep(seconds)
            process.kill()
            process.wait()
            rest = any(other != path for other in path.parent.iterdir())
            yield job, seconds, what_is_left(path, whole), rest
        shutil.rmtree(place)


def main() -> int:
    if len(sys.argv) == 3:
        work(sys.argv[1], Path(sys.argv[2]))
        return 0
    n = int(sys.argv[1]) if len(sys.argv) == 2 else 50
    found: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for job, seconds, left, rest in survey(n, Path(folder)):
            found[job, left] += 1
            print(f"{job}\t{seconds:.3f} s\t{left}{', and a temporary one' if rest else ''}")
    for (job, left), times in sorted(found.items()):
        print(f"{job}: {left}: {times} times")
    return sum(times for (_, left), times in found.items() if left == DAMAGED)


if __name__ == "__main__":
    sys.exit(main())
