"""Tests of system calls: in one module of each language, and as on Windows."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import lammps_files
from MDAnalysisTests import datafiles

from paceline._util import launcher, os_calls
from paceline.backends import local_dask_cluster
from paceline.errors import UnsupportedError

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "paceline"
#: Folder of a `sitecustomize.py` that hides what Windows lacks.
WINDOWS = Path(__file__).parent / "helpers" / "windows"


def names_of_posix():
    """Return modules and calls that Windows lacks: those that the helper hides."""
    tree = ast.parse((WINDOWS / "sitecustomize.py").read_text(encoding="utf-8"))
    values = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    words = {
        name: {one.value for one in ast.walk(values[name]) if isinstance(one, ast.Constant)}
        for name in ("MODULES", "CALLS")
    }
    return words["MODULES"], words["CALLS"]


def test_one_python_module_calls_what_not_every_system_has():
    modules, calls = names_of_posix()
    assert {"fcntl", "resource"} < modules
    assert {"pread", "fork", "setitimer", "SIGKILL"} < calls
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        imported = re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)
        called = re.findall(r"\b(?:os|signal)\.(\w+)", text)
        if modules.intersection(imported) or calls.intersection(called):
            found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"_util/os_calls.py"}


def test_one_rust_module_calls_what_not_every_system_has():
    """Check that any other module only loads HDF5."""
    found = set()
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        if "tests" not in path.parts and re.search(r"\blibc::|\bos::(unix|windows|fd|linux)", code):
            found.add(path.relative_to(ROOT / "crates").as_posix())
    assert found == {
        "paceline-formats/src/os_calls.rs",
        "paceline-snapshot/src/file/h5md/library.rs",
    }


@pytest.fixture
def file(tmp_path):
    """Open an empty file."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("calls", [(), ("pread", "pwrite")], ids=["pread", "lseek"])
def test_bytes_are_read_and_written_at_offsets(file, monkeypatch, calls):
    for name in calls:
        monkeypatch.delattr(os, name)
    assert os_calls.write_at(file, b"345678", 3) == 6
    assert os_calls.write_at(file, memoryview(b"012"), 0) == 3
    assert os_calls.read_at(file, 4, 2) == b"2345"
    assert os_calls.read_at(file, 4, 7) == b"78"
    assert os_calls.read_at(file, 4, 9) == b""


def test_space_is_reserved_by_growing_where_a_file_gets_it_so(file, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(os_calls, "WINDOWS", True)
    os_calls.reserve(file, 10, 90)
    os_calls.reserve(file, 0, 50)
    assert os.fstat(file).st_size == 100


def test_what_windows_lacks_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(launcher, "WINDOWS", True)
    with pytest.raises(UnsupportedError, match="'mpi' is not supported on Windows: use"):
        launcher.world()
    monkeypatch.setattr(local_dask_cluster, "WINDOWS", True)
    with pytest.raises(
        UnsupportedError, match="'dask' cannot start a cluster on Windows: start one"
    ):
        local_dask_cluster.LocalCluster(1)


def on_windows(*command, **variables):
    """Run Python with POSIX hidden, in this process and in its workers."""
    paths = (WINDOWS, Path(__file__).parent, PACKAGE.parent, os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), **variables}
    environment["PYTHONWARNDEFAULTENCODING"] = "1"
    command = (sys.executable, "-W", "ignore", *map(str, command))
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment, check=False
    )


#: Formats, backends, checkpoint and index, in a folder with the given files.
PROGRAM = """
import sys
import warnings
from pathlib import Path

import numpy as np

import paceline
from paceline._util import os_calls
from paceline._util.journal import Journal
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.rms import RMSD
from paceline.errors import AnalysisError, CheckpointError, DamagedFileError
from paceline.snapshot.shared_file import Output
from paceline.trajectory.open import open_file

assert os_calls.WINDOWS and not os_calls.CAN_LIMIT
# Each file is opened as text of a stated encoding, or as bytes.
warnings.filterwarnings("error", category=EncodingWarning, module="paceline")
folder = Path(sys.argv[1])
ca = paceline.Universe(*sys.argv[2:4]).select_atoms("name CA")
ca.write(folder / "ca.gro")
wanted = [ts.positions for ts in ca.universe.trajectory[::20]]
wanted = [positions[ca.indices] for positions in wanted]

def opened(name):
    return paceline.Universe(str(folder / "ca.gro"), str(folder / name))

for name in ("ca.xtc", "ca.trr", "ca.dcd", "ca.nc", "ca.h5md"):
    for _ in range(2):  # the second replaces a file
        paceline.run(paceline.Write(ca, folder / name, overwrite=True), step=20, backend="threads")
    found = [ts.positions.copy() for ts in opened(name).trajectory]
    np.testing.assert_allclose(found, wanted, atol=0.006)
assert open_file(str(folder / "ca.xtc")).index_origin == "loaded"
for name in ("lammps.dump", "HISTORY"):
    assert open_file(str(folder / name)).n_frames > 1

results = []
for backend in ("serial", "threads", "processes"):
    universe = opened("ca.h5md")
    rmsd = RMSD(universe.atoms)
    matrix = DistanceMatrix(universe.atoms)
    paceline.run([rmsd], backend=backend)
    matrix.run(backend=backend)
    results.append((rmsd.results.rmsd.tobytes(), matrix.results.dist_matrix.tobytes()))
assert len(set(results)) == 1

def failing(block):
    if block.frames[0] >= 64 and not (folder / "mended").exists():
        raise RuntimeError("enough")
    return block.positions.mean(axis=1)

checkpoint = folder / "run.checkpoint"
paceline.checkpoint.INTERVAL = paceline.checkpoint.SHARE = 0
series = paceline.TimeSeries(failing, ca)
try:
    series.run(backend="serial", block_frames=16, checkpoint=checkpoint)
except AnalysisError:
    (folder / "mended").touch()
assert checkpoint.exists()
with Journal(checkpoint):
    try:
        series.run(backend="threads", checkpoint=checkpoint)
    except CheckpointError as error:
        assert "another run is using" in str(error)
series.run(backend="processes", block_frames=16, checkpoint=checkpoint)
assert len(series.results.timeseries) == 98 and not checkpoint.exists()
with Journal(checkpoint) as journal:
    journal.append(b"first")
    journal.rewrite([b"second", b"third"])
    journal.append(b"fourth")
    try:
        Journal(checkpoint)
    except CheckpointError:
        assert list(journal.records()) == [b"second", b"third", b"fourth"]
    journal.remove()

h5md = (folder / "ca.h5md").read_bytes()
(folder / "damaged.h5md").write_bytes(h5md[:600] + bytes(1000) + h5md[1600:])
try:
    opened("damaged.h5md")
except (DamagedFileError, OSError) as error:
    assert "damaged.h5md" in str(error)
else:
    raise AssertionError("damage was not found")

import gc
gc.collect()  # closes files of Universes that are no longer used
output = Output.new(str(folder / "ca.dcd"))
output.write(0, b"whole")
output.publish(overwrite=True)
output.write(5, b" frame")
output.close()
assert (folder / "ca.dcd").read_bytes() == b"whole frame"
left = {path.name for path in folder.iterdir() if path.name.startswith(".")}
print("left:", *sorted(name for name in left if not name.endswith("-index")))
"""


def test_files_and_backends_as_on_windows(adk, tmp_path):
    lammps_files.write(tmp_path / "lammps.dump", lammps_files.dump())
    shutil.copy(datafiles.DLP_HISTORY, tmp_path / "HISTORY")
    done = on_windows("-c", PROGRAM, tmp_path, *adk)
    assert (done.returncode, done.stdout) == (0, "left:\n"), done.stderr


COMMAND = "import sys; from paceline.cli import main; sys.exit(main())"


@pytest.mark.full
def test_commands_as_on_windows(adk, tmp_path):
    """Check standard output to a pipe that supports 256 characters."""
    psf, dcd = adk
    xtc, csv = tmp_path / "a.xtc", tmp_path / "rmsd.csv"
    for arguments in (
        ("convert", dcd, xtc),
        ("info", xtc),
        ("rmsd", psf, xtc, "--select", "name CA", "-o", csv, "--backend", "processes"),
        ("split", xtc, "-n", "3"),
        ("join", *(tmp_path / f"a.00{part}.xtc" for part in range(3)), "-o", tmp_path / "b.xtc"),
        ("advise", psf, xtc, "--for", "rmsd"),
        ("validate", xtc),
    ):
        done = on_windows("-c", COMMAND, *arguments, PYTHONIOENCODING="cp1252")
        assert done.returncode == 0, (arguments, done.stderr)
    assert csv.read_bytes().count(b"\n") > 98
    assert b"\r" not in csv.read_bytes()
    assert (tmp_path / "b.xtc").read_bytes() == xtc.read_bytes()


@pytest.mark.full
def test_the_self_test_passes_as_on_windows():
    done = on_windows("-m", "paceline.selftest")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "absent           backends dask and mpi" in done.stdout


def test_the_input_of_a_pipe_with_a_high_number():
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limits[1] < 2000:
        pytest.skip("this process may not open 2,000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2000), limits[1]))
    reader, writer = os.pipe()
    high = os.dup2(reader, 1900)  # `select.select` allows descriptors below 1,024
    try:
        assert not os_calls.has_input(high, 0)
        os.write(writer, b"1")
        assert os_calls.has_input(high, 0)
    finally:
        for one in (reader, writer, high):
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
