"""Under paceline.mpi: the share of a file that each rank read, and its read calls."""

import json
import sys

import paceline

universe = paceline.Universe(*sys.argv[1:3])
series = paceline.TimeSeries(lambda block: block.positions[:, :2], universe.atoms)
series.run(backend=paceline.backends.MPI(schedule="static"), block_frames=1)
shares = {}
for block in sorted(series.timings.blocks, key=lambda block: block.first_frame):
    pid, stop = int(block.worker.split(":")[1]), block.first_frame + block.n_frames
    first, reached, calls = shares.get(pid, (block.first_frame, block.first_frame, 0))
    assert reached == block.first_frame
    shares[pid] = first, stop, calls + block.calls
print(json.dumps([(pid, *share) for pid, share in shares.items()]))
