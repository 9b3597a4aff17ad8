"""Kill processes that write files at random moments (`kill -9`), check the files, and continue.

A final name may refer only to a complete file, or to the previous file. The work is then repeated
or resumed, and must give the same bits as without a kill. It removes temporary files of the killed
process where the manual promises it; other temporary files are hidden, with random extensions.
"""

import contextlib
import io
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from MDAnalysisTests.datafiles import DCD, PSF

import paceline
from helpers.mpi import SCRIPTS, start
from helpers.scans import PathLength
from helpers.waiting import PATIENCE
from paceline import checkpoint
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli import main as command_line
from paceline.errors import PacelineError
from paceline.hdf5.repack import repack
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

#: Outcomes after a kill: no file has its final name; the previous file has it; all files exist; or
#: some of several files exist.
ALLOWED = ("nothing", "as before", "whole", "some")
#: Number of kills before the next process is left to finish.
MOST_KILLS = 3
N_SNAPSHOTS = 30
SNAPSHOTS = {"HISTORY": ".HISTORY", "H5MD": ".h5md", "NetCDF": ".nc", "DCD": ".dcd"} | {
    "CONFIG": ".CONFIG"
}
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8,16}")


class Killed(NamedTuple):
    """Outcome of a killed process, or of the next process in its folder."""

    kind: str
    outcome: str
    what: str = ""


class Wrong(Exception):
    """Wrong outcome, with a description."""


class Job(NamedTuple):
    """Work to be killed."""

    #: Does the work, or the remaining part, in a folder.
    work: Callable[[Path], None]
    #: Output files.
    outputs: tuple[str, ...]
    #: Creates the input files.
    prepare: Callable[[Path], None] = lambda folder: None
    #: True if the next process removes the temporary files of a killed one.
    removes: bool = False


def _universe() -> paceline.Universe:
    return paceline.Universe(PSF, [str(DCD)] * 4)


def _convert(name: str, **options) -> Job:
    def work(folder: Path) -> None:
        writer = paceline.Write(_universe().atoms, folder / name, overwrite=True, **options)
        writer.run(n_workers=2)

    return Job(work, (name,))


def _write_h5md(folder: Path) -> None:
    universe = _universe()
    with paceline.H5MDWriter(
        folder / "a.h5md", 3341, compress="gzip:1", chunk="4x3341", overwrite=True
    ) as writer:
        for _ in universe.trajectory[:98]:
            writer.write(universe)


def _make_h5md(folder: Path) -> None:
    paceline.Write(paceline.Universe(PSF, DCD).atoms, folder / "a.h5md").run(n_workers=2)


def _repack(folder: Path) -> None:
    repack(folder / "a.h5md", chunk="8x500", compress="gzip:1", n_workers=2)


def _make_xtc(folder: Path) -> None:
    paceline.Write(_universe().atoms, folder / "md.xtc").run(n_workers=2)


def _split(folder: Path) -> None:
    for _ in range(20):
        paceline.split(folder / "md.xtc", 4, overwrite=True, n_workers=2)


def _join(folder: Path) -> None:
    for _ in range(20):
        paceline.join([folder / "md.xtc"] * 8, folder / "all.xtc", overwrite=True, n_workers=2)


def _index(folder: Path) -> None:
    for _ in range(100):
        open_file(folder / "md.xtc", refresh=True, progress=False)


def _resumable(folder: Path) -> None:
    checkpoint.INTERVAL, checkpoint.SHARE = 0.0, 0
    atoms = paceline.Universe(PSF, folder / "md.xtc").select_atoms("name CA")

    def slowly(block):
        time.sleep(0.005)
        return block.positions.mean(axis=1)

    def above(block):
        rows, places = np.nonzero(block.positions[..., 2] > 20)
        return np.bincount(rows, minlength=len(block)), block.positions[rows, places]

    analyses = [RMSD(atoms), RMSF(atoms), paceline.TimeSeries(slowly, atoms)]
    analyses += [paceline.RaggedTimeSeries(above, atoms), PathLength(atoms)]
    paceline.run(analyses, n_workers=2, checkpoint=folder / "checkpoint", block_frames=16)
    rmsd, rmsf, series, ragged, way = (one.results for one in analyses)
    arrays = rmsd.rmsd, rmsf.rmsf, series.timeseries, ragged.offsets, ragged.records, way.lengths
    new = folder / ".results.0000000000000000"
    new.write_bytes(b"".join(array.tobytes() for array in arrays))
    new.rename(folder / "results")


def _command(folder: Path) -> None:
    here = {name: str(folder / name) for name in ("md.xtc", "a.csv", "a.svg", "a.html", "saved")}
    words = ["rmsd", str(PSF), here["md.xtc"], "-o", here["a.csv"], "--overwrite"]
    words += ["--plot", here["a.svg"], "--report", here["a.html"], "--checkpoint", here["saved"]]
    with contextlib.redirect_stderr(io.StringIO()):
        assert command_line([*words, "--n-workers", "2"]) == 0


JOBS: dict[str, Job] = {
    "convert to XTC": _convert("a.xtc"),
    "convert to TRR": _convert("a.trr"),
    "convert to DCD": _convert("a.dcd"),
    "convert to NetCDF": _convert("a.nc"),
    "convert to H5MD": _convert("a.h5md"),
    "convert to H5MD, gzip": _convert("a.h5md", compress="gzip:1", chunk="4x3341"),
    "H5MDWriter": Job(_write_h5md, ("a.h5md",)),
    "repack": Job(_repack, ("a.h5md",), _make_h5md),
    "split": Job(_split, tuple(f"md.{k:03}.xtc" for k in range(4)), _make_xtc),
    "join": Job(_join, ("all.xtc",), _make_xtc),
    "index": Job(_index, (".md.xtc.paceline-index",), _make_xtc, removes=True),
    "checkpoint": Job(_resumable, ("results",), _make_xtc, removes=True),
    "command": Job(_command, ("a.csv", "a.svg", "a.html"), _make_xtc),
}
KINDS = (*JOBS, *(f"snapshots, {kind}" for kind in SNAPSHOTS))


def same_file(one: Path, other: Path) -> bool:
    """Return whether two files have equal content, ignoring times in HDF5, tables and pages."""
    if one.suffix == ".h5md":
        with contextlib.suppress(OSError, KeyError), h5py.File(one) as a, h5py.File(other) as b:
            names: list[str] = []
            b.visititems(lambda name, node: names.append(name) if hasattr(node, "dtype") else None)
            numbers = [name for name in names if not name.startswith(("h5md", "parameters/origin"))]
            return all(np.array_equal(a[name][...], b[name][...]) for name in numbers)
        return False
    if one.suffix in (".csv", ".html", ".svg"):
        texts = [path.read_text().splitlines() for path in (one, other)]
        if one.suffix == ".csv":
            first, second = ([line for line in text if line[:1] != "#"] for text in texts)
            return first == second
        return texts[0][-1] == texts[1][-1]
    return one.read_bytes() == other.read_bytes()


def _begin(work: Callable[[Path], None], folder: Path):
    """Start the work in a process, and wait until it has begun."""
    context = multiprocessing.get_context("fork")
    begun, begins = os.pipe()

    def target() -> None:
        os.setsid()
        warnings.simplefilter("ignore")
        os.write(begins, b"!")
        work(folder)

    process = context.Process(target=target)
    process.start()
    os.read(begun, 1)
    os.close(begun)
    os.close(begins)
    return process


class FileJobs:
    """Kind of job whose processes write files."""

    def __init__(self, kind: str, folder: Path):
        self.job, self.folder, self.before = JOBS[kind], folder, folder / "before"
        self.before.mkdir()
        _begin(self.job.prepare, self.before).join()
        shutil.copytree(self.before, folder, dirs_exist_ok=True)
        begun = time.monotonic()
        process = _begin(self.job.work, folder)
        process.join()
        self.seconds = time.monotonic() - begun
        missing = [name for name in self.job.outputs if not (folder / name).exists()]
        if process.exitcode or missing:
            raise RuntimeError(f"{kind}: undisturbed it ends with {process.exitcode}, {missing=}")

    def kill(self, place: Path, n_kills: int, random: np.random.Generator) -> Iterator[str]:
        """Kill processes one after another, each of which continues the work; let the last one
        finish.
        """
        shutil.copytree(self.before, place, dirs_exist_ok=True)
        for _ in range(n_kills):
            process = _begin(self.job.work, place)
            time.sleep(random.uniform(0, self.seconds))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            yield self._what_is_there(place)
        process = _begin(self.job.work, place)
        process.join(PATIENCE)
        if process.exitcode != 0:
            raise Wrong(f"the next one ends with {process.exitcode}")
        if (found := self._what_is_there(place)) != "whole":
            raise Wrong(f"the next one leaves {found}")
        self._check_left(place)

    def _what_is_there(self, place: Path) -> str:
        """Return the outcome; an incomplete output is an error."""
        there = [name for name in self.job.outputs if (place / name).exists()]
        new = [name for name in there if same_file(place / name, self.folder / name)]
        for name in set(there) - set(new):
            old = self.before / name
            if not old.exists() or not same_file(place / name, old):
                raise Wrong(f"{name} is neither whole nor as before")
        if len(new) < len(there):
            return "as before"
        return {0: "nothing", len(self.job.outputs): "whole"}.get(len(new), "some")

    def _check_left(self, place: Path) -> None:
        """Raise for unexpected files; temporary files are expected unless the job removes them."""
        known = {path.name for path in self.folder.iterdir()}
        found = {path.name for path in place.iterdir()} - known
        wrong = [name for name in found if self.job.removes or not _TEMPORARY.fullmatch(name)]
        if wrong:
            raise Wrong(f"left: {', '.join(sorted(wrong))}")


class SnapshotJobs:
    """Kind of job in which two ranks write snapshots in one format."""

    def __init__(self, kind: str, folder: Path):
        self.kind = kind.partition(", ")[2]
        self.path = folder / f"md{SNAPSHOTS[self.kind]}"
        each = folder / "each"
        each.mkdir()
        process, _ = self._start(self.path, each)
        begun = time.monotonic()
        process.communicate(timeout=PATIENCE)
        self.seconds = time.monotonic() - begun
        if process.returncode:
            raise RuntimeError(f"{kind}: undisturbed it ends with {process.returncode}")
        self.whole = _read_snapshots(self.path)
        self.each = [path.read_bytes() for path in each.iterdir()]

    def _start(self, path: Path, *more: Path) -> tuple[subprocess.Popen, list[int]]:
        """Write further frames; return also the processes of the ranks."""
        words = SCRIPTS / "snapshot_series.py", path, self.kind, N_SNAPSHOTS, *more
        process = start(2, *words)
        return process, [int(process.stdout.readline().split()[1]) for _ in range(2)]

    def kill(self, place: Path, n_kills: int, random: np.random.Generator) -> Iterator[str]:
        """Kill a rank of each job; the next job continues, and the last one finishes."""
        path = place / self.path.name
        for _ in range(n_kills):
            process, ranks = self._start(path)
            time.sleep(random.uniform(0, self.seconds))
            with contextlib.suppress(ProcessLookupError):
                os.kill(ranks[random.integers(2)], signal.SIGKILL)
            said, _ = process.communicate(timeout=PATIENCE)
            announced = [int(number) for number in re.findall(r"^frame (\d+)$", said, re.MULTILINE)]
            n = self._n_whole(path, max(announced, default=-1) + 1)
            yield {0: "nothing", N_SNAPSHOTS: "whole"}.get(n, "some")
        process, _ = self._start(path)
        _, said = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise Wrong(f"the next one ends with {process.returncode}: {said[-300:]}")
        if _read_snapshots(path) != self.whole:
            raise Wrong("the file that was continued has other frames")
        if self.kind != "H5MD" and path.read_bytes() != self.path.read_bytes():
            raise Wrong("the file that was continued has other bytes")
        left = [one.name for one in place.iterdir() if one != path]
        if any(not _TEMPORARY.fullmatch(one) for one in left):
            raise Wrong(f"left: {left}")

    def _n_whole(self, path: Path, n_announced: int) -> int:
        """Return the number of readable frames; all announced frames must be complete."""
        if not path.exists():
            found: list[bytes] = []
        elif self.kind == "CONFIG":
            if path.read_bytes() not in self.each:
                raise Wrong("half a configuration has the final name")
            return N_SNAPSHOTS if path.read_bytes() == self.path.read_bytes() else 1
        else:
            try:
                found = _read_snapshots(path)
            except PacelineError as error:
                if n_announced:
                    raise Wrong(f"{n_announced} frames were written: {error}") from error
                found = []
        if len(found) < min(n_announced, 1 if self.kind == "CONFIG" else n_announced):
            raise Wrong(f"{n_announced} frames were written, {len(found)} can be read")
        if found != self.whole[: len(found)]:
            raise Wrong("a killed file has other frames")
        return len(found)


def _read_snapshots(path: Path) -> list[bytes]:
    """Return the numbers of all frames."""
    with warnings.catch_warnings(action="ignore"):
        return [
            b"".join(
                getattr(ts, name).tobytes()
                for name in ("positions", "velocities", "forces")
                if getattr(ts, f"has_{name}")
            )
            for ts in Reader(str(path))
        ]


def survey(seed: int, n: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Killed]:
    """Kill a number of processes, of all kinds in turn."""
    random = np.random.default_rng(seed)
    jobs: dict[str, FileJobs | SnapshotJobs] = {}
    done = turn = 0
    with tempfile.TemporaryDirectory(prefix="paceline-kills-") as name:
        while done < n:
            kind, turn = kinds[turn % len(kinds)], turn + 1
            if kind not in jobs:
                reference = Path(name) / f"reference-{len(jobs)}"
                reference.mkdir()
                made = SnapshotJobs if kind.startswith("snapshots") else FileJobs
                jobs[kind] = made(kind, reference)
            place = Path(name) / f"place-{done}"
            place.mkdir()
            try:
                n_kills = min(int(random.integers(1, MOST_KILLS + 1)), n - done)
                for outcome in jobs[kind].kill(place, n_kills, random):
                    yield Killed(kind, outcome)
                    done += 1
            except Wrong as error:
                yield Killed(kind, "wrong", str(error))
                done += 1
            shutil.rmtree(place)
