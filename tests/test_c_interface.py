"""Programs in C and Fortran: the files equal those of Python, and bad input is refused."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.lammps_files import dump as lammps_dump
from helpers.mpi import MPIEXEC, SCRIPTS, environment, needs_mpi
from helpers.programs import needs_program
from helpers.waiting import until

pytestmark = [needs_mpi, needs_program("cargo"), needs_program("cc")]
ROOT = Path(__file__).parents[1]
CRATE = ROOT / "crates" / "paceline-c"
#: Compiler of the MPI whose mpiexec starts the tests.
MPICC = str(Path(shutil.which(MPIEXEC[0]) or MPIEXEC[0]).with_name("mpicc"))
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-ffp-contract=off")
MPIFORT = str(Path(MPICC).with_name("mpifort"))
#: HDF5 library in the wheel of h5py, so that C and Python use the same library.
HDF5 = next(Path(h5py.__file__).parents[1].glob("h5py*/**/libhdf5[-.]*"), None)
needs_hdf5 = pytest.mark.skipif(HDF5 is None, reason="h5py has no HDF5 library of its own")
needs_mpicc = pytest.mark.skipif(not os.access(MPICC, os.X_OK), reason="mpicc is not installed")


def run(*command, **options):
    made = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.fixture(scope="module")
def library():
    """Folder of the library."""
    run("cargo", "build", "--quiet", "--locked", "-p", "paceline-c", cwd=ROOT)
    return ROOT / "target" / "debug"


def links(library):
    return f"-I{CRATE / 'include'}", f"-L{library}", "-lpaceline", f"-Wl,-rpath,{library}", "-lm"


@pytest.fixture(scope="module")
def programs(library, tmp_path_factory):
    """Compiled programs of one MPI: the test and the example."""
    folder = tmp_path_factory.mktemp("programs")
    sources = SCRIPTS / "c_interface.c", CRATE / "examples" / "lennard_jones.c"
    for source in sources:
        calls = CRATE / "src" / "paceline_mpi.c"
        program = folder / source.stem
        run(MPICC, *WARNINGS, source, calls, "-o", program, *links(library))
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Files that Python wrote."""
    folder = tmp_path_factory.mktemp("python")
    for script in ("c_interface.py", "c_h5md.py"):
        assert run(sys.executable, SCRIPTS / script, folder, "ranks") == ""
    return folder


def with_hdf5(**changed):
    return environment() | {"PACELINE_HDF5": str(HDF5 or "")} | changed


def on_ranks(n_ranks, *command, **options):
    return run(*MPIEXEC, "-n", n_ranks, *command, env=with_hdf5(), timeout=300, **options)


@needs_mpicc
@needs_hdf5
@pytest.mark.parametrize("n_ranks", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 8))])
def test_files_of_c_are_python_s(n_ranks, programs, expected, tmp_path):
    (tmp_path / "text").write_text("no trajectory")
    (tmp_path / "md.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    (tmp_path / "cut.dcd").write_bytes((expected / "python.dcd").read_bytes()[:90])
    (tmp_path / "md.dump").write_text(lammps_dump())
    assert on_ranks(n_ranks, programs / "c_interface", ".", cwd=tmp_path) == "done\n"
    for name in ("CONFIG", "HISTORY", "nc", "dcd", "h5md", "h5"):
        for method in (0, 1):
            found = (tmp_path / f"{method}c.{name}").read_bytes()
            assert found == (expected / f"python.{name}").read_bytes(), (name, method)
    # Refused frames left no bytes behind.
    assert (tmp_path / "bad.HISTORY").read_bytes() == (expected / "python.HISTORY").read_bytes()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@needs_mpicc
def test_a_rank_that_fails_ends_all(programs, tmp_path):
    command = [*MPIEXEC, "-n", "2", programs / "c_interface", tmp_path, "fails"]
    made = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=300,
        cwd=tmp_path,
    )
    assert made.returncode != 0
    assert "rank 1: all_reduce of the communicator failed with 1" in made.stderr
    assert not list(tmp_path.iterdir())


#: A program whose communicator fails; it prints the status of a call.
FAILING = """
import ctypes as c, sys
Reduce = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_int, c.c_int)
names = ("context", c.c_void_p), ("rank", c.c_int), ("size", c.c_int), ("all_to_all", c.c_void_p)
class Comm(c.Structure):
    _fields_ = [*names, ("all_reduce", Reduce), ("abort", c.c_void_p)]
comm, writer = Comm(size=1, all_reduce=Reduce(lambda *_: 1)), c.c_void_p()
call = c.CDLL(sys.argv[1]).paceline_writer_open
print(call(c.byref(comm), b"HISTORY", c.c_int64(3), None, c.byref(writer)))
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_failure_is_a_status_where_standard_error_is_full(library):
    [built] = library.glob("libpaceline.so")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", FAILING, built]
        made = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (made.returncode, made.stdout) == (0, b"6\n")


def files_of_example(program, n_ranks, folder):
    """Run the example; return the bytes of its files."""
    folder.mkdir()
    said = on_ranks(n_ranks, program, ".", cwd=folder)
    assert said == "1200 atoms, -7839.6506 kJ/mol, read 1200 at step 20\n"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@needs_mpicc
@needs_hdf5
@pytest.mark.parametrize("n_ranks", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 8))])
def test_the_example_writes_the_same_files_on_any_ranks(n_ranks, programs, tmp_path):
    one, many = (
        files_of_example(programs / "lennard_jones", n, tmp_path / str(n)) for n in (1, n_ranks)
    )
    assert sorted(one) == ["CONFIG", "HISTORY", "md.h5md", "md.nc"]
    assert [name for name in one if one[name] != many[name]] == []


@needs_mpicc
@pytest.mark.skipif(not os.access(MPIFORT, os.X_OK), reason="mpifort is not installed")
def test_the_examples_in_c_and_fortran_write_the_same_files(library, programs, tmp_path):
    calls = tmp_path / "paceline_mpi.o"
    run(MPICC, "-c", CRATE / "src" / "paceline_mpi.c", f"-I{CRATE / 'include'}", "-o", calls)
    sources = CRATE / "fortran" / "paceline.f90", CRATE / "examples" / "lennard_jones.f90"
    made = "-O2", "-ffp-contract=off", "-o", "lennard_jones"
    run(MPIFORT, *sources, calls, *made, *links(library), cwd=tmp_path)
    c, fortran = (
        files_of_example(folder / "lennard_jones", 2, tmp_path / name)
        for name, folder in (("c", programs), ("fortran", tmp_path))
    )
    assert len(c) == (3 if HDF5 is None else 4)
    assert [name for name in c if c[name] != fortran[name]] == []


@needs_hdf5
@needs_program("gfortran")
def test_files_of_fortran_are_python_s(library, expected, tmp_path):
    sources = CRATE / "fortran" / "paceline.f90", SCRIPTS / "fortran_interface.f90"
    checks = "-std=f2018", "-Wall", "-Wextra", "-Werror", "-fcheck=all", "-ffp-contract=off"
    run("gfortran", *checks, *sources, "-o", "program", *links(library), cwd=tmp_path)
    said = run(tmp_path / "program", ".", cwd=tmp_path, env=with_hdf5())
    assert said.startswith("done ")
    for found, python in (("fortran.HISTORY", "python.HISTORY"), ("fortran.h5md",) * 2):
        assert (tmp_path / found).read_bytes() == (expected / python).read_bytes(), found


@pytest.fixture(scope="module")
def h5md_program(library, tmp_path_factory):
    """Single-rank program that writes H5MD."""
    program = tmp_path_factory.mktemp("h5md") / "c_h5md"
    run("cc", *WARNINGS, SCRIPTS / "c_h5md.c", "-o", program, *links(library))
    return program


@needs_hdf5
def test_h5md_files_of_c_are_python_s_and_written_in_the_same_order(h5md_program, tmp_path):
    """The tests of crashes in tests/test_snapshot_crash_safe_file.py thus hold for C, too."""
    folders = tmp_path / "c", tmp_path / "python"
    commands = [h5md_program], [sys.executable, SCRIPTS / "c_h5md.py", "."]
    shim = tmp_path / "writes.so"
    preloaded = {}
    if sys.platform == "linux":
        run("cc", "-shared", "-fPIC", SCRIPTS / "writes.c", "-o", shim, "-ldl")
        preloaded = {"LD_PRELOAD": str(shim), "NOTES": str(tmp_path / "notes")}
    notes = []
    for folder, command in zip(folders, commands, strict=True):
        folder.mkdir()
        run(*command, cwd=folder, env=with_hdf5(**preloaded))
        if preloaded:
            notes.append((tmp_path / "notes").read_text().splitlines())
            (tmp_path / "notes").unlink()
    for name in ("long.h5md", "parts.h5", "wide.hdf5", "few.h5md"):
        one, two = ((folder / name).read_bytes() for folder in folders)
        assert one == two, name
    if preloaded:
        assert len(notes[0]) > 1000
        assert notes[0] == notes[1]


@needs_hdf5
def test_h5md_that_cannot_be_written(h5md_program, tmp_path):
    (tmp_path / "not.h5").write_text("no file of HDF5")
    for name, path, chunk in (("other", "numbers", (1, 500, 3)), ("packed", "value", (3, 500, 3))):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            group = file.create_group("particles/trajectory/position")
            group.create_dataset(path, (3, 500, 3), "<f4", chunks=chunk, maxshape=(None, 500, 3))
            group["step"] = [1, 2, 3]
            file.create_group("particles/trajectory/box")
    run(h5md_program, "refuse", cwd=tmp_path, env=with_hdf5())
    for name, steps in (("bad.h5", [0, 10, 20]), ("full.h5md", [0, 10, 20])):
        with h5py.File(tmp_path / name) as file:
            assert file["particles/trajectory/position/step"][:].tolist() == steps
            assert file["particles/trajectory/force/value"].shape == (3, 500, 3)


@needs_hdf5
def test_h5md_of_a_killed_program_has_its_frames(h5md_program, tmp_path):
    path = tmp_path / "md.h5md"
    with subprocess.Popen([h5md_program, path], env=with_hdf5()) as process:
        until(lambda: path.exists() and path.stat().st_size > 2_000_000)
        process.send_signal(signal.SIGKILL)
    with h5py.File(path) as file:
        group = file["particles/trajectory"]
        n_frames = len(group["position/value"])
        assert n_frames > 50
        assert np.array_equal(group["position/step"][:n_frames], 10 * np.arange(n_frames))
        ids, frames = np.arange(1, 501)[:, None], np.arange(n_frames)[:, None, None]
        numbers = (ids * 37 + np.arange(3) * 11 + frames * 10) % 2000
        assert np.array_equal(group["position/value"], (numbers * 0.01 - 3).astype("<f4"))
    assert [one.name for one in tmp_path.iterdir()] == ["md.h5md"]


#: Single-rank program; it prints the status and the message of a call.
CALLING = """
import ctypes as c, sys
library, opened = c.CDLL(sys.argv[1]), c.c_void_p()
library.paceline_message.restype = c.c_char_p
status = library.{}, None, c.byref(opened))
print(status, library.paceline_message().decode())
"""
OPENING = CALLING.format('paceline_writer_open(None, b"md.h5md", c.c_int64(3)')
READING = CALLING.format("paceline_reader_open(None, sys.argv[2].encode()")


@needs_hdf5
def test_h5md_of_another_file_or_shape_is_not_read(library, h5md_program, tmp_path):
    run(h5md_program, cwd=tmp_path, env=with_hdf5())
    group = "particles/trajectory"
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        file["particles"] = h5py.ExternalLink("few.h5md", "particles")
    others = {"position/time": (3, 1 << 31, 1 << 31), "box/edges/value": (3, 3)}
    for number, (name, shape) in enumerate(others.items()):
        path = shutil.copy(tmp_path / "few.h5md", tmp_path / f"{number}.h5")
        with h5py.File(path, "r+") as file:
            del file[f"{group}/{name}"]
            file[group].create_dataset(name, shape, "i8", chunks=(1,) * len(shape))
    [built] = (*library.glob("libpaceline.so"), *library.glob("libpaceline.dylib"))
    for name, words in [
        ("linked.h5", "position/time in another file"),
        ("0.h5", "position/time of shape [3, 2147483648, 2147483648]"),
        ("1.h5", "box/edges/value of shape [3, 3]"),
    ]:
        said = run(sys.executable, "-c", READING, built, tmp_path / name, env=with_hdf5())
        assert said.startswith("4 rank 0: "), said
        assert f"{name}: it has {group}/{words}" in said


VERSION = """
int H5open(void) { return 0; }
int H5get_libversion(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = %d; *c = 4; return 0; }
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "PACELINE_HDF5 names no library: "),
        ("int other;", "the library that was loaded is not HDF5; link the program with HDF5, or"),
        (VERSION % 10, "H5MD needs HDF5 1.10.5 or newer, found 1.10.4; link the program with"),
        (VERSION % 14, "the HDF5 library of version 1.14.4 has no H5free_memory; link the program"),
    ],
)
def test_hdf5_that_is_missing_or_too_old_is_named(library, source, words, tmp_path):
    name = tmp_path / "libhdf5.so"
    if source is not None:
        (tmp_path / "hdf5.c").write_text(source)
        run("cc", "-shared", "-fPIC", tmp_path / "hdf5.c", "-o", name)
    [built] = (*library.glob("libpaceline.so"), *library.glob("libpaceline.dylib"))
    changed = os.environ | {"PACELINE_HDF5": str(name)}
    said = run(sys.executable, "-c", OPENING, built, env=changed, cwd=tmp_path)
    assert said.startswith("4 rank 0: "), said
    assert words in said
    assert "md.h5md" in said


def test_a_c_plus_plus_program_reads_the_header(tmp_path):
    """Check that no word in the header is valid only in C."""
    source = tmp_path / "header.cpp"
    source.write_text("#include <paceline.h>\nint main() { return PACELINE_OK; }\n")
    run("cc", "-x", "c++", "-fsyntax-only", "-Wall", "-Werror", f"-I{CRATE / 'include'}", source)


def test_no_python_is_in_the_library(library):
    if sys.platform != "linux":
        pytest.skip("only Linux's libraries are ELF")
    names = (library / "libpaceline.so").read_bytes()
    assert b"PyObject" not in names
    assert b"MPI_Init" not in names
