"""Start Python on ranks of MPI.

By default, `mpiexec` is that of the wheel `mpich`. Another MPI is selected, for example, by
PACELINE_MPIEXEC="/opt/openmpi/bin/mpirun --map-by :OVERSUBSCRIBE".
"""

import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

#: Timeout of a program on ranks, seconds. With more ranks than cores, and other tests running, a
#: program may take ten times as long as alone.
LONGEST = 1200.0
#: Programs that tests run on ranks.
SCRIPTS = Path(__file__).parents[1] / "mpi"


def find_mpiexec():
    asked = os.environ.get("PACELINE_MPIEXEC")
    beside = Path(sys.executable).parent / "mpiexec"
    return shlex.split(asked) if asked else [str(beside) if beside.exists() else "mpiexec"]


MPIEXEC = find_mpiexec()
#: Open MPI in addition to the default MPI, as installed by `make test-all`.
OPEN_MPI = [str(Path(sys.prefix, "open-mpi", "bin", "mpirun")), "--map-by", ":OVERSUBSCRIBE"]
needs_mpi = pytest.mark.skipif(
    shutil.which(MPIEXEC[0]) is None or find_spec("mpi4py") is None,
    reason="mpiexec or mpi4py is not installed",
)


def environment():
    """Return the environment of the tests, with the MPI of mpiexec."""
    changed = {
        # Waiting ranks of MPICH sleep, since they outnumber the cores.
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl": "^openib,ofi,uct,usnic",
        "OMPI_MCA_osc": "^ucx",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        # For scripts that import helpers.
        "PYTHONPATH": os.pathsep.join([str(SCRIPTS.parent), os.environ.get("PYTHONPATH", "")]),
    }
    libraries = Path(shutil.which(MPIEXEC[0])).resolve().parents[1] / "lib"
    if list(libraries.glob("libmpi.*")):
        changed["MPI4PY_LIBMPI"] = str(libraries)
    return os.environ | changed


def start(n_ranks, *arguments, **options):
    """Start Python on ranks; `options` are environment variables, None to unset one."""
    command = [*MPIEXEC, "-n", str(n_ranks), sys.executable, *map(str, arguments)]
    pipe = subprocess.PIPE
    variables = {
        name: value for name, value in (environment() | options).items() if value is not None
    }
    return subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True)


def mpirun(n_ranks, *arguments, **options):
    """Return status, output and errors of Python on this number of ranks."""
    process = start(n_ranks, *arguments, **options)
    try:
        out, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err
