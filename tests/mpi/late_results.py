"""On every rank: time during which results wait because the first rank is slow to receive them."""

import sys
import time

from mpi4py import MPI

import paceline
from paceline.engine.collect import Collected

take = Collected.add


def take_late(self, result):
    time.sleep(0.005)
    take(self, result)


Collected.add = take_late
atoms = paceline.Universe(*sys.argv[1:3]).atoms
series = paceline.TimeSeries(lambda block: block.positions, atoms)
timings = series.run(backend="mpi", block_frames=1, frames=10 * list(range(98))).timings
Collected.add = take
assert 0 < timings.t_comm <= timings.t_total
assert all(block.comm >= 0 for block in timings.blocks)
# The wait must exceed the 5 ms of a frame; otherwise nothing was late.
assert max(worker.t_comm for worker in timings.workers()) > 0.005
for worker in timings.workers():
    assert 0 <= worker.t_comm <= timings.t_total, (worker.t_comm, timings.t_total)
if MPI.COMM_WORLD.Get_rank() == 0:
    print("counted once")
