"""Programs in C and Fortran: files equal to Python's, and what is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.lammps_files import dump as lammps_dump
from helpers.mpi import MPIEXEC, SCRIPTS, environment, needs_mpi
from helpers.programs import needs_program

pytestmark = [needs_mpi, needs_program("cargo"), needs_program("cc")]
ROOT = Path(__file__).parents[1]
CRATE = ROOT / "crates" / "paceline-c"
#: Compiler of the MPI whose mpiexec starts the tests.
MPICC = str(Path(shutil.which(MPIEXEC[0]) or MPIEXEC[0]).with_name("mpicc"))
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-ffp-contract=off")
MPIFORT = str(Path(MPICC).with_name("mpifort"))
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
    assert run(sys.executable, SCRIPTS / "c_interface.py", folder) == ""
    return folder


def on_ranks(n_ranks, *command):
    return run(*MPIEXEC, "-n", n_ranks, *command, env=environment(), timeout=300)


@needs_mpicc
@pytest.mark.parametrize("n_ranks", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 8))])
def test_files_of_c_are_python_s(n_ranks, programs, expected, tmp_path):
    (tmp_path / "text").write_text("no trajectory")
    (tmp_path / "md.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    (tmp_path / "cut.dcd").write_bytes((expected / "python.dcd").read_bytes()[:90])
    (tmp_path / "md.dump").write_text(lammps_dump())
    assert on_ranks(n_ranks, programs / "c_interface", tmp_path) == "done\n"
    for name in ("CONFIG", "HISTORY", "nc", "dcd"):
        for method in (0, 1):
            found = (tmp_path / f"{method}c.{name}").read_bytes()
            assert found == (expected / f"python.{name}").read_bytes(), (name, method)
    # Frames that were refused left nothing.
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


@needs_mpicc
def test_the_example_gives_the_same_text_on_any_ranks(programs, tmp_path):
    folders = [tmp_path / str(n_ranks) for n_ranks in (1, 2)]
    for folder in folders:
        folder.mkdir()
        said = on_ranks(int(folder.name), programs / "lennard_jones", folder)
        assert said == "1200 atoms, -7839.6506 kJ/mol, read 1200 at step 20\n"
    for name in ("HISTORY", "CONFIG"):
        one, two = ((folder / name).read_bytes() for folder in folders)
        assert one == two


@needs_mpicc
@pytest.mark.skipif(not os.access(MPIFORT, os.X_OK), reason="mpifort is not installed")
def test_the_examples_in_c_and_fortran_agree(library, programs, tmp_path):
    calls = tmp_path / "paceline_mpi.o"
    run(MPICC, "-c", CRATE / "src" / "paceline_mpi.c", f"-I{CRATE / 'include'}", "-o", calls)
    sources = CRATE / "fortran" / "paceline.f90", CRATE / "examples" / "lennard_jones.f90"
    run(MPIFORT, *sources, calls, "-o", "program", *links(library), cwd=tmp_path)
    for program in (programs / "lennard_jones", tmp_path / "program"):
        folder = tmp_path / program.name.replace("program", "fortran")
        folder.mkdir()
        assert on_ranks(2, program, folder).startswith("1200 atoms, -7839.6506 kJ/mol, read 1200")
    for name in ("HISTORY", "CONFIG"):
        one, two = ((tmp_path / kind / name).read_bytes() for kind in ("lennard_jones", "fortran"))
        assert one == two


@needs_program("gfortran")
def test_files_of_fortran_are_python_s(library, expected, tmp_path):
    sources = CRATE / "fortran" / "paceline.f90", SCRIPTS / "fortran_interface.f90"
    checks = "-std=f2018", "-Wall", "-Wextra", "-Werror", "-fcheck=all", "-ffp-contract=off"
    run("gfortran", *checks, *sources, "-o", "program", *links(library), cwd=tmp_path)
    said = run(tmp_path / "program", tmp_path)
    assert said.startswith("done ")
    found = (tmp_path / "fortran.HISTORY").read_bytes()
    assert found == (expected / "python.HISTORY").read_bytes()


def test_a_c_plus_plus_program_reads_the_header(tmp_path):
    """No word of the header is C's alone."""
    source = tmp_path / "header.cpp"
    source.write_text("#include <paceline.h>\nint main() { return PACELINE_OK; }\n")
    run("cc", "-x", "c++", "-fsyntax-only", "-Wall", "-Werror", f"-I{CRATE / 'include'}", source)


def test_no_python_is_in_the_library(library):
    if sys.platform != "linux":
        pytest.skip("only Linux's libraries are ELF")
    names = (library / "libpaceline.so").read_bytes()
    assert b"PyObject" not in names
    assert b"MPI_Init" not in names
