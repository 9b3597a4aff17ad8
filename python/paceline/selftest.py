"""Test the installed paceline on this machine, and describe paceline and machine for bug reports.

    python -m paceline.selftest

The test needs no files, and no packages beyond paceline's requirements. It creates a small system,
writes it in several formats, and compares what paceline and MDAnalysis read. Then it runs analyses
on every installed backend; the results of all backends must be bit-identical. The test takes less
than a minute.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline._core import __version__
from paceline._util.launcher import BAD_ARGUMENTS, FAILED, launched
from paceline._util.leftovers import ScratchFolder
from paceline._util.machine_and_software import (
    available_cpus,
    describe_machine,
    describe_system,
    describe_versions,
)
from paceline._util.os_calls import WINDOWS
from paceline._util.python_object_digest import digest

#: Number of residues in the chain; each has N, CA, C and O.
N_RESIDUES = 60
#: Number of frames of the test trajectory.
N_FRAMES = 64
#: Number of workers, ranks and processes on each backend.
N_WORKERS = 2
#: Environment variables that let Open MPI (4 and 5) start more ranks than there are cores.
OVERSUBSCRIBE = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
#: Time after which MPI ranks are assumed to hang, seconds.
PATIENCE = 120


class Format(NamedTuple):
    """Tested format: its file, options for writing, and maximum error of a coordinate, Å."""

    name: str
    file: str
    options: dict[str, Any]
    error: float


#: Tested formats. Errors of XTC arise because it stores coordinates rounded to 0.001 nm; those of
#: TRR and H5MD, because they store nm as float32.
FORMATS = (
    Format("XTC", "chain.xtc", {}, 0.00501),
    Format("TRR", "chain.trr", {}, 1e-5),
    Format("DCD", "chain.dcd", {}, 0.0),
    Format("NetCDF", "chain.nc", {}, 0.0),
    Format("H5MD", "chain.h5md", {}, 1e-5),
    Format("H5MD, compressed", "small.h5md", {"compress": "shuffle+gzip:1"}, 1e-5),
)
#: Analyses with their arguments, as in a file for `paceline run`. The results of their blocks are
#: merged in different ways: as rows, moments or counts.
ANALYSES: dict[str, dict[str, object]] = {
    "rmsd": {"select": "name CA"},
    "rmsf": {"select": "name CA"},
    "rdf": {"g1": "name CA", "g2": "name O", "range": (0, 30)},
    "gyration": {},
}
#: Packages that a bug report lists, in this order.
PACKAGES = ("MDAnalysis", "numpy", "h5py", "cloudpickle", "loky", "matplotlib", "tqdm")
OPTIONAL = ("distributed", "mpi4py", "mdtraj", "hdf5plugin")
#: Python script that each of the MPI ranks runs; `_ranks` starts the ranks.
SCRIPT = """
import json, sys
from paceline.selftest import digests, open_chain
print(json.dumps(digests(open_chain(sys.argv[1], sys.argv[2]))))
"""


class Failure(Exception):
    """Error of a failed test; its message describes the failure."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run all tests; return 0 if all passed, 1 if one failed, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m paceline.selftest",
        description="Test paceline on this machine: read and write each format, run analyses on "
        "each installed backend, compare their bits. Prints versions and machine for bug reports.",
        epilog="Exit status: 0 if all tests passed, 1 if one failed, 2 for wrong arguments.",
    )
    parser.parse_args(argv)
    if launched()[0] > 1:
        print("selftest: error: start it without mpirun or srun; it starts its own ranks")
        return BAD_ARGUMENTS
    describe()
    begun = time.perf_counter()
    with ScratchFolder("selftest") as folder:
        n_passed, n_failed = _run_all(Path(folder))
    print(f"\n{n_passed} passed, {n_failed} failed in {time.perf_counter() - begun:.1f} s")
    return FAILED if n_failed else 0


def describe() -> None:
    """Print versions and a description of the machine."""
    print(f"paceline {__version__} in {Path(__file__).parent}")
    print(f"system: {describe_system()}")
    print(f"machine: {describe_machine(available_cpus())}")
    print(f"packages: {describe_versions(PACKAGES)}")
    print(f"optional: {describe_versions(OPTIONAL)}\n")


def _run_all(folder: Path) -> tuple[int, int]:
    """Run the tests in an empty folder; return the numbers of passed and failed tests."""
    counts = {True: 0, False: 0}

    def test(name: str, function: Callable[..., str], *arguments: object) -> None:
        begun = time.perf_counter()
        with warnings.catch_warnings():
            # Ignore MDAnalysis's warnings about guessed masses and about fields that a format
            # lacks.
            warnings.simplefilter("ignore")
            passed, text = _outcome(function, *arguments)
        counts[passed] += 1
        seconds = f"{time.perf_counter() - begun:5.1f} s"
        print(f"{'ok    ' if passed else 'FAILED'}  {seconds}  {name}: {text}", flush=True)

    test("write", _write, folder)
    if counts[False]:
        return counts[True], counts[False]
    for format in FORMATS:
        test(f"read {format.name}", _read, folder, format)
    test("damaged file", _damage, folder)
    test("analyses", _compare_with_mdanalysis, folder)
    wanted: dict[str, str] = {}
    with contextlib.suppress(Exception):  # an earlier test has reported this failure
        wanted = digests(open_chain(folder / "chain.gro", folder / "chain.xtc"), backend="serial")
    for backend in ("threads", "processes"):
        test(f"backend {backend}", _same_bits, folder, wanted, backend)
    if WINDOWS:
        print("absent           backends dask and mpi: they are not supported on Windows")
    else:
        if _is_installed("distributed", "backend dask"):
            test("backend dask", _same_bits, folder, wanted, "dask")
        if _is_installed("mpi4py", "backend mpi"):
            test("backend mpi", _ranks, folder, wanted)
    if _is_installed("matplotlib", "figure"):
        test("figure", _figure, folder)
    return counts[True], counts[False]


def _outcome(function: Callable[..., str], *arguments: object) -> tuple[bool, str]:
    """Call a test; return True if it passed, and the message that it returned or raised."""
    try:
        return True, function(*arguments)
    except Failure as failure:
        return False, str(failure)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"


def _is_installed(package: str, name: str) -> bool:
    """Return True if a package is installed; otherwise, print that the test `name` is omitted."""
    if find_spec(package) is not None:
        return True
    print(f"absent           {name}: {package} is not installed", flush=True)
    return False


def open_chain(topology: object, trajectory: object) -> Any:
    """Open files as a Universe with paceline's reader."""
    import paceline

    return paceline.Universe(str(topology), str(trajectory))


def positions() -> np.ndarray:
    """Create the chain's positions, float32, shape (frames, atoms, 3), Å.

    Every call returns the same numbers.
    """
    rng = np.random.default_rng(19)
    steps = rng.normal(size=(4 * N_RESIDUES, 3))
    chain = np.cumsum(1.5 * steps / np.linalg.norm(steps, axis=1, keepdims=True), axis=0)
    moves = np.cumsum(rng.normal(0, 0.2, (N_FRAMES, 4 * N_RESIDUES, 3)), axis=0)
    return (chain - chain.mean(axis=0) + 40 + moves).astype(np.float32)


def _write(folder: Path) -> str:
    """Write the test trajectory in every format; compare the XTC file with MDAnalysis's."""
    import MDAnalysis
    from MDAnalysis.coordinates.memory import MemoryReader

    import paceline

    universe = MDAnalysis.Universe.empty(
        4 * N_RESIDUES, N_RESIDUES, atom_resindex=np.arange(4 * N_RESIDUES) // 4, trajectory=True
    )
    universe.add_TopologyAttr("names", ["N", "CA", "C", "O"] * N_RESIDUES)
    universe.add_TopologyAttr("resnames", ["GLY"] * N_RESIDUES)
    universe.add_TopologyAttr("resids", np.arange(N_RESIDUES) + 1)
    cell = np.array([80, 80, 80, 90, 90, 90], np.float32)
    universe.load_new(positions(), format=MemoryReader, dimensions=cell, dt=2.0)
    universe.atoms.write(str(folder / "chain.gro"))
    # MDAnalysis writes an XTC and a DCD file. paceline converts the DCD file to every format; the
    # XTC file is compared with the one that paceline wrote.
    for name in ("theirs.xtc", "theirs.dcd"):
        universe.atoms.write(str(folder / name), frames="all")
    source = open_chain(folder / "chain.gro", folder / "theirs.dcd")
    for format in FORMATS:
        paceline.run(paceline.Write(source.atoms, folder / format.file, **format.options))
    if not _same_numbers(folder, "theirs.xtc", "chain.xtc"):
        raise Failure("an XTC file has other values than the file that MDAnalysis wrote")
    return f"{4 * N_RESIDUES} atoms, {N_FRAMES} frames in {len(FORMATS)} files"


def _same_numbers(folder: Path, one: str, other: str) -> bool:
    """Return True if the positions in two files are equal, bit by bit."""
    first, second = (open_chain(folder / "chain.gro", folder / name) for name in (one, other))
    pairs = zip(first.trajectory, second.trajectory, strict=True)
    return all(np.array_equal(a.positions, b.positions) for a, b in pairs)


def _read(folder: Path, format: Format) -> str:
    """Compare the positions that paceline reads from a file of this format.

    They must equal those that MDAnalysis reads, and be close to those that were written.
    """
    import MDAnalysis

    path = str(folder / format.file)
    ours = open_chain(folder / "chain.gro", path)
    theirs = MDAnalysis.Universe(str(folder / "chain.gro"), path)
    if ours.trajectory.n_frames != N_FRAMES:
        raise Failure(f"{path} has {ours.trajectory.n_frames} frames, expected {N_FRAMES}")
    largest = 0.0
    for wanted, a, b in zip(positions(), ours.trajectory, theirs.trajectory, strict=True):
        if not np.array_equal(a.positions, b.positions):
            raise Failure(f"frame {a.frame} differs from what MDAnalysis reads")
        largest = max(largest, float(np.abs(a.positions - wanted).max()))
    if largest > format.error:
        raise Failure(f"positions are {largest:g} Å off, expected at most {format.error:g} Å")
    return f"{N_FRAMES} frames, the bits that MDAnalysis reads"


def _damage(folder: Path) -> str:
    """Damage a frame's header, and check that reading raises an error that names the frame."""
    from paceline.analysis.rms import RMSF
    from paceline.errors import DamagedFileError

    path = folder / "damaged.trr"
    data = bytearray((folder / "chain.trr").read_bytes())
    size = len(data) // N_FRAMES
    data[7 * size + 24 : 7 * size + 28] = b"\xff" * 4
    path.write_bytes(data)
    try:
        RMSF(open_chain(folder / "chain.gro", path).atoms).run(backend="serial")
    except DamagedFileError as error:
        if "frame 7" not in str(error):
            raise Failure(f"the error does not name frame 7: {error}") from None
        return "refused, with its frame and byte"
    raise Failure("a damaged frame was read without an error")


def _analyses(universe: Any) -> dict[str, Any]:
    """Create the analyses of `ANALYSES`, and one of a user's function."""
    import paceline
    from paceline.analysis.described_analyses import make_analysis

    found: dict[str, Any] = {
        name: make_analysis(name, described, universe) for name, described in ANALYSES.items()
    }
    return found | {"end to end": paceline.TimeSeries(end_to_end, universe.select_atoms("name CA"))}


def end_to_end(block: Any) -> np.ndarray:
    """Distance from the first to the last atom, Å: an example of a user's function."""
    return np.linalg.norm(block.positions[:, -1] - block.positions[:, 0], axis=1)


def digests(universe: Any, **options: Any) -> dict[str, str]:
    """Run all analyses in one pass; return a digest of each analysis's results, by name."""
    import paceline

    analyses = _analyses(universe)
    paceline.run(list(analyses.values()), progress=False, **options)
    return {name: digest(dict(one.results)) for name, one in analyses.items()}


def _compare_with_mdanalysis(folder: Path) -> str:
    """Compare RMSD and RMSF with those that MDAnalysis computes with its own reader."""
    import MDAnalysis
    from MDAnalysis.analysis import rms

    import paceline

    files = folder / "chain.gro", folder / "chain.xtc"
    analyses = _analyses(open_chain(*files))
    ours = analyses["rmsd"], analyses["rmsf"]
    paceline.run(list(ours), backend="serial", progress=False)
    ca = MDAnalysis.Universe(*map(str, files)).select_atoms("name CA")
    theirs = rms.RMSD(ca).run(), rms.RMSF(ca).run()
    pairs = {
        "RMSD": (ours[0].results.rmsd, theirs[0].results.rmsd),
        "RMSF": (ours[1].results.rmsf, theirs[1].results.rmsf),
    }
    for name, (found, expected) in pairs.items():
        if not np.allclose(found, expected, rtol=1e-5, atol=1e-5):
            raise Failure(f"{name} differs from MDAnalysis's by {np.abs(found - expected).max():g}")
    return f"{', '.join(pairs)} as in MDAnalysis"


def _same_bits(folder: Path, wanted: dict[str, str], backend: str) -> str:
    """Run all analyses on a backend, in small blocks, and compare digests with `wanted`."""
    options = {"backend": backend, "n_workers": N_WORKERS, "block_frames": 16}
    universe = open_chain(folder / "chain.gro", folder / "chain.xtc")
    return _check(wanted, digests(universe, **options))


def _ranks(folder: Path, wanted: dict[str, str]) -> str:
    """Run all analyses on MPI ranks, started by this machine's launcher; compare with `wanted`."""
    from paceline.performance.scaling_benchmark import find_launcher

    script = folder / "rank.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [*find_launcher(), "-n", str(N_WORKERS), sys.executable, "-m", "paceline.mpi"]
    command += [str(script), str(folder / "chain.gro"), str(folder / "chain.xtc")]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=os.environ | OVERSUBSCRIBE,
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"{command[0]} did not end within {PATIENCE} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != 1:
        said = (done.stderr or done.stdout).strip() or "nothing"
        raise Failure(f"{command[0]} ended with status {done.returncode} and said: {said}")
    return _check(wanted, json.loads(lines[0]))


def _check(wanted: dict[str, str], found: dict[str, str]) -> str:
    """Compare digests of results with those of a single worker."""
    if not wanted:
        raise Failure("there are no results of one worker to compare with")
    other = [name for name, value in wanted.items() if found.get(name) != value]
    if other:
        raise Failure(f"other bits than with one worker in {', '.join(other)}")
    return f"bit-identical to one worker in {len(wanted)} analyses, on {N_WORKERS} workers"


def _figure(folder: Path) -> str:
    """Compute an RMSD, and save its figure."""
    from paceline.analysis.rms import RMSD

    universe = open_chain(folder / "chain.gro", folder / "chain.xtc")
    RMSD(universe.select_atoms("name CA")).run().results.save_figure(folder / "rmsd.png")
    return f"{(folder / 'rmsd.png').stat().st_size / 1e3:.0f} kB of PNG"


if __name__ == "__main__":
    sys.exit(main())
