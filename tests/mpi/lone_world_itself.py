"""Script of the first rank. It imports mpi4py, and calls a function that waits for other ranks."""

from mpi4py.MPI import COMM_WORLD

COMM_WORLD.bcast(1)
