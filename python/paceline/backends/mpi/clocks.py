"""The clocks of several hosts, brought to that of the first rank."""

import socket
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

#: Questions asked of the first rank; that with the quickest answer counts.
QUESTIONS = 5
_CLOCK = 3
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def one_clock(comm: MPI.Intracomm) -> bool:
    """Whether all ranks read the same monotonic clock: that of one running kernel.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks; each calls it.

    Returns
    -------
    bool
    """
    own = _BOOT.read_text() if _BOOT.exists() else socket.gethostname()
    return len(set(comm.allgather(own))) == 1


def answer_clocks(comm: MPI.Intracomm) -> None:
    """Tell the time to each rank in turn; called on the first.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks, the others being in `clock_offset`.
    """
    word = np.zeros(1, dtype=np.int64)
    for rank in range(1, comm.Get_size()):
        for _ in range(QUESTIONS):
            comm.Recv([word, MPI.INT64_T], rank, _CLOCK)
            word[0] = time.monotonic_ns()
            comm.Send([word, MPI.INT64_T], rank, _CLOCK)


def clock_offset(comm: MPI.Intracomm) -> int:
    """How far the first rank's clock is ahead of this host's.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks.

    Returns
    -------
    int
        ns.
    """
    word = np.zeros(1, dtype=np.int64)
    found = []
    for _ in range(QUESTIONS):
        asked = time.monotonic_ns()
        comm.Send([word, MPI.INT64_T], 0, _CLOCK)
        comm.Recv([word, MPI.INT64_T], 0, _CLOCK)
        answered = time.monotonic_ns()
        found.append((answered - asked, int(word[0]) - (asked + answered) // 2))
    return min(found)[1]
