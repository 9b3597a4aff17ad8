"""A script of the first rank that itself names mpi4py, and calls what waits for the other ranks."""

from mpi4py.MPI import COMM_WORLD

COMM_WORLD.bcast(1)
