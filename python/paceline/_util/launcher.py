"""Detect the launcher of this process (`mpirun`, `srun`, none), load its MPI, run a script."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from paceline._util.os_calls import WINDOWS
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from mpi4py import MPI

#: Environment variables in which launchers store the number of processes and the rank.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
#: Variable that only Open MPI's mpirun sets.
_OF_OPEN_MPI = "OMPI_COMM_WORLD_SIZE"
#: Variable that only MPICH-like mpiruns set.
_OF_MPICH = "MPI_LOCALRANKID"
#: Program that Open MPI needs even for one process without a launcher: `orted` up to version 4,
#: `prted` from version 5 on.
_DAEMONS = ("orted", "prted")
_START = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; MPI.Init_thread()"
INSTALL = (
    'install mpi4py and an MPI: pip install "paceline[mpi]" mpich, or on a cluster '
    '"paceline[mpi]" beside the MPI that its mpirun belongs to'
)
#: Exit status after an error in the script or the data.
FAILED = 1
#: Exit status after an error in the arguments.
BAD_ARGUMENTS = 2
#: Exit status after Ctrl-C.
INTERRUPTED = 130


def launched(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the number of processes launched together, and the rank of this one.

    Without a launcher, these are 1 and 0.

    Examples
    --------
    >>> launched({"PMI_SIZE": "4", "PMI_RANK": "2"})
    (4, 2)
    >>> launched({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "37003"})
    (1, 0)
    """
    for size, rank in _LAUNCHERS:
        # A shell opened by `srun --pty` is one process, whatever the size of the job step.
        if size.startswith("SLURM") and "SLURM_PTY_PORT" in environment:
            continue
        if environment.get(size, "").isdigit() and environment.get(rank, "").isdigit():
            return int(environment[size]), int(environment[rank])
    return 1, 0


def world() -> "MPI.Intracomm":
    """Return COMM_WORLD, the communicator of all processes launched together; start MPI if needed.

    Raises `UnsupportedError` on Windows, if mpi4py or MPI is missing, if MPI is installed without
    its programs, or if mpi4py uses another MPI than the launcher.
    """
    if WINDOWS:
        raise UnsupportedError(
            "backend 'mpi' is not supported on Windows: use backend='threads' or 'processes'"
        )
    try:
        import mpi4py

        # Import MPI without initializing it: the initialization of an MPI that does not match the
        # launcher may end the process.
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError if mpi4py finds no MPI library
        reason = str(error).splitlines()[0]
        raise UnsupportedError(f"backend 'mpi' cannot be used: {reason}; {INSTALL}") from None
    size, _ = launched()
    if not MPI.Is_initialized():
        library = MPI.Get_library_version()
        if size > 1 and not _is_launchers(library):
            raise _library_error(size)
        if not _is_complete(library):
            raise UnsupportedError(
                f"backend 'mpi' cannot be used: mpi4py's MPI ({_name(library)}) is installed "
                "without "
                "its programs such as mpirun, and cannot start without them; install the programs "
                "(Debian: apt install openmpi-bin), or another MPI: pip install mpich"
            )
        if library.startswith("Open MPI") and not _has_infiniband():
            # Without InfiniBand, Open MPI's UCX component would print an error for each MPI window.
            os.environ.setdefault("OMPI_MCA_osc", "^ucx")
        MPI.Init_thread()
    if size > 1 and MPI.COMM_WORLD.Get_size() == 1:
        raise _library_error(size)
    return MPI.COMM_WORLD


def _has_infiniband() -> bool:
    """True if the kernel lists an InfiniBand adapter, for which Open MPI uses UCX."""
    with suppress(OSError):
        return bool(os.listdir("/sys/class/infiniband"))
    return False


def _is_launchers(library: str) -> bool:
    """True unless variables show that the launcher belongs to another MPI than `library`."""
    is_open_mpi = library.startswith("Open MPI")
    return (_OF_MPICH if is_open_mpi else _OF_OPEN_MPI) not in os.environ


def _is_complete(library: str) -> bool:
    """Check that Open MPI can start; return True for any other MPI.

    The start is tested in a child process, because a failed start ends the process.
    """
    import shutil
    import subprocess  # imported here to keep `paceline --help` fast

    if not library.startswith("Open MPI") or any(map(shutil.which, _DAEMONS)):
        return True
    if any(name in os.environ for name in ("PMIX_RANK", *(rank for _, rank in _LAUNCHERS))):
        return True  # started by a launcher
    return not subprocess.run([sys.executable, "-c", _START], capture_output=True).returncode


def _name(library: str) -> str:
    """Return the name and version of an MPI from its library description."""
    return library.splitlines()[0].split(",")[0].strip("\0 ")


def _library_error(size: int) -> UnsupportedError:
    from mpi4py import MPI

    library = _name(MPI.Get_library_version())
    slurm = "; with srun, use --mpi=pmi2 for MPICH or Intel MPI, --mpi=pmix for Open MPI"
    return UnsupportedError(
        f"{size} processes were launched together, but mpi4py's MPI ({library}) is not the "
        "launcher's, and finds only one process; use the mpirun of that MPI, or an mpi4py built "
        "for "
        f"the launcher's MPI{slurm if 'SLURM_STEP_NUM_TASKS' in os.environ else ''}"
    )


def threads_a_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the default number of threads on a rank: the number requested from Slurm, else 1.

    Examples
    --------
    >>> threads_a_rank({"SLURM_CPUS_PER_TASK": "8"}), threads_a_rank({})
    (8, 1)
    """
    asked = environment.get("SLURM_CPUS_PER_TASK", "")
    return max(1, int(asked)) if asked.isdigit() else 1


def run_script(argv: Sequence[str], *, module: bool = False) -> int:
    """Run a script with its arguments, or a module by its name; return the exit status."""
    import runpy  # imported here to keep `paceline --help` fast

    sys.argv = list(argv)
    try:
        if module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("paceline: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BaseException as error:
        _print_from_script(error, argv[0])
        return FAILED
    return 0


def _print_from_script(error: BaseException, script: str) -> None:
    """Print the traceback of an error in a script as if Python itself had run the script."""
    import traceback

    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename != script:
        inner = inner.tb_next
    # If no line of the script has run, `inner` is None, and only the error is printed.
    traceback.print_exception(error.with_traceback(inner))
