"""Start Dask workers as Slurm jobs: python dask_cluster.py md.tpr md.xtc, on a login node."""

import sys

from dask_jobqueue.slurm import SLURMCluster
from distributed import Client

import paceline
from paceline.analysis.rms import RMSD

topology, trajectory = sys.argv[1:]

# One job per node, one process per core: the analysis may then hold the interpreter.
with SLURMCluster(cores=32, processes=32, memory="64 GB", walltime="01:00:00") as cluster:
    cluster.scale(jobs=2)
    with Client(cluster) as client:
        client.wait_for_workers(1)  # the others join when their jobs start
        universe = paceline.Universe(topology, trajectory)
        rmsd = RMSD(universe, select="protein and name CA").run(backend=client)

rmsd.results.save("rmsd.csv")
print(rmsd.timings)
