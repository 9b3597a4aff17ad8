"""Functions that `lone_world` calls. They import mpi4py, and the script does not."""

import numpy as np
from mpi4py import MPI


def place():
    """Return facts that a rank knows without communication."""
    comm = MPI.COMM_WORLD
    assert comm == MPI.COMM_WORLD
    assert comm != MPI.COMM_SELF
    assert comm != MPI.COMM_NULL
    assert comm
    assert len({comm, MPI.COMM_WORLD}) == 1
    assert MPI.COMM_SELF.allreduce(3) == 3
    return comm.Get_rank(), comm.Get_size(), comm.rank, comm.size, comm.Get_name()


def allreduce():
    MPI.COMM_WORLD.allreduce(1)


def barrier():
    MPI.COMM_WORLD.Barrier()


def split():
    MPI.COMM_WORLD.Split(0)


def receive():
    MPI.COMM_WORLD.recv(source=1)


def window():
    MPI.Win.Create(np.zeros(1), comm=MPI.COMM_WORLD)


def sum_on_ranks(block):
    MPI.COMM_WORLD.Allreduce(block.times.sum(), np.zeros(1))
    return block.times
