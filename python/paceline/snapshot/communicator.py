"""What carries bytes between ranks for the core: its trait `Communicator`, filled in by mpi4py.

Who waits looks often at first, since what comes soon should not wait for a sleeper, and then
sleeps: a rank that spins takes a core from one that works.
"""

import os
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from paceline.backends.mpi.wire import unbroken

_HOW = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
#: Seconds of looking without a sleep: what any call may take, and each byte that it moves.
_BRISK, _BRISK_BYTE = 1e-3, 1e-9
#: Part of the time waited so far that one sleep adds, and the most seconds.
_SLEEP, _LONGEST = 0.1, 1e-2
_TAG = 3


def wait(request: MPI.Request, n_bytes: int = 0) -> None:
    """Return when something is done that other ranks have a part in.

    Parameters
    ----------
    request : mpi4py.MPI.Request
        It.
    n_bytes : int
        That it moves. Some MPI move them only while somebody looks.
    """
    begun = time.perf_counter()
    brisk = _BRISK + _BRISK_BYTE * n_bytes
    while not request.Test():
        waited = time.perf_counter() - begun
        if waited < brisk:
            os.sched_yield()
        else:
            time.sleep(min(_SLEEP * waited, _LONGEST))


class Communicator:
    """One rank's end of the wires, for calls of the core.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Nobody else's while a call of the core runs.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
    rank, size : int
    """

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()

    def all_to_all(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Give one number to each rank.

        Parameters
        ----------
        numbers : ndarray of uint64, shape (size,)
            By rank.

        Returns
        -------
        ndarray of uint64, shape (size,)
            What each rank gave to this one.
        """
        received = np.empty_like(numbers)
        wait(self.comm.Ialltoall(numbers, received))
        return received

    def exchange(
        self,
        send: Any,
        send_counts: NDArray[np.uint64],
        receive: Any,
        receive_counts: NDArray[np.uint64],
    ) -> None:
        """Send bytes to each rank, and receive what each sends to this one.

        Parameters
        ----------
        send : buffer
            Those for rank 0 first.
        send_counts : ndarray of uint64, shape (size,)
            Bytes for each rank.
        receive : buffer
            Filled with those of rank 0 first.
        receive_counts : ndarray of uint64, shape (size,)
            Bytes of each rank.
        """
        n_bytes = len(send) + len(receive)
        # Nothing, of Rust's, lies at address 1, which Open MPI takes for MPI_IN_PLACE.
        sending = [send if len(send) else b"", send_counts.tolist(), MPI.BYTE]
        receiving = [
            receive if len(receive) else bytearray(),
            receive_counts.tolist(),
            MPI.BYTE,
        ]
        # Bytes that are on their way cannot be taken back: Ctrl-C ends all ranks here.
        with unbroken(self.comm):
            wait(self.comm.Ialltoallv(sending, receiving), n_bytes)

    def all_reduce(self, values: NDArray[np.uint64], how: str) -> None:
        """Combine each value with those of all ranks in its place.

        Parameters
        ----------
        values : ndarray of uint64
            This rank's; becomes the result.
        how : {'sum', 'max', 'min'}
            A sum is taken modulo 2**64.
        """
        wait(self.comm.Iallreduce(MPI.IN_PLACE, values, _HOW[how]))

    def all_gather(self, data: bytes) -> list[bytes]:
        """Give bytes to all ranks.

        Parameters
        ----------
        data : bytes
            This rank's, few.

        Returns
        -------
        list of bytes
            By rank.
        """
        sizes = np.empty(self.size, dtype=np.int64)
        wait(self.comm.Iallgather(np.array([len(data)], dtype=np.int64), sizes))
        room = bytearray(int(sizes.sum()))
        wait(self.comm.Iallgatherv([data, MPI.BYTE], [room, sizes.tolist(), MPI.BYTE]))
        ends = np.cumsum(sizes).tolist()
        return [bytes(room[first:end]) for first, end in zip([0, *ends], ends, strict=False)]

    def broadcast(self, data: bytes) -> bytes:
        """Give bytes of rank 0 to all ranks.

        Parameters
        ----------
        data : bytes
            Those of rank 0; of others nothing.

        Returns
        -------
        bytes
        """
        size = np.array([len(data)], dtype=np.int64)
        wait(self.comm.Ibcast(size))
        room = bytearray(data) if self.rank == 0 else bytearray(int(size[0]))
        wait(self.comm.Ibcast([room, MPI.BYTE]), len(room))
        return bytes(room)

    def send(self, to: int, data: Any) -> None:
        """Send bytes to a rank that waits for as many.

        Parameters
        ----------
        to : int
            The rank.
        data : buffer
            What.
        """
        with unbroken(self.comm):
            wait(self.comm.Isend([data, MPI.BYTE], to, _TAG), len(data))

    def receive(self, sender: int, data: Any) -> None:
        """Receive what a rank sends with `send`.

        Parameters
        ----------
        sender : int
            The rank.
        data : buffer
            Where to.
        """
        with unbroken(self.comm):
            wait(self.comm.Irecv([data, MPI.BYTE], sender, _TAG), len(data))

    def write_at(self, path: str, offsets: NDArray[np.uint64], size: int, data: Any) -> None:
        """Write records to their places in a file, each by a call of MPI-IO.

        Parameters
        ----------
        path : str
            All ranks open it together.
        offsets : ndarray of uint64, shape (n,)
            First byte of each record.
        size : int
            Bytes of each.
        data : buffer
            All records, one after another.
        """
        view = memoryview(data)
        file = MPI.File.Open(self.comm, path, MPI.MODE_WRONLY)
        try:
            for k, offset in enumerate(offsets.tolist()):
                file.Write_at(offset, [view[k * size : (k + 1) * size], MPI.BYTE])
        finally:
            file.Close()
