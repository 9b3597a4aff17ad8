"""On every rank: examples of the documentation."""

import doctest

from mpi4py import MPI

from paceline.snapshot import reader, writer

for module in (reader, writer):
    tried = doctest.testmod(module)
    assert tried.attempted > 0
    assert tried.failed == 0
if MPI.COMM_WORLD.Get_rank() == 0:
    print("examples")
