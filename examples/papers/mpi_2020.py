"""RMSD of a trajectory on ranks of MPI: Algorithm 1 of a paper of 2020.

    mpirun -n 4 python mpi_2020.py topology trajectory out.npy

M. Khoshlessan, I. Paraskevakos, G. C. Fox, S. Jha, O. Beckstein: Parallel performance of molecular
dynamics trajectory analysis. Concurrency Computat. Pract. Exper. 32 (2020), e5789,
https://doi.org/10.1002/cpe.5789, preprint https://arxiv.org/abs/1907.00097. The paper prints
pseudocode, whose lines stand beside these; nothing of its supplement's code (GPL) is here.

Lines end in "CHANGED" where Python needs another one, and in "ADDED" where the paper leaves out what
a whole script has.
"""

# fmt: off
# ruff: noqa
import sys  # ADDED

import numpy as np  # ADDED
from mpi4py import MPI  # ADDED

import MDAnalysis as mda  # ADDED
from MDAnalysis.analysis.rms import rmsd  # ADDED

topology, trajectory = sys.argv[1:3]  # ADDED


def block_rmsd(topology, trajectory, ref, index, start, stop):       #  1
    u = mda.Universe(topology, trajectory)                           #  2
    g = u.atoms[index]                                               #  3
    results = np.empty(stop - start)  # ADDED
    for iframe, ts in enumerate(u.trajectory[start:stop]):           #  4
        results[iframe] = rmsd(g.positions, ref, superposition=True) #  5
    return results                                                   #  7


comm = MPI.COMM_WORLD                                                # 10
rank = comm.Get_rank()                                               # 11
u = mda.Universe(topology, trajectory)  # ADDED
core = u.select_atoms("protein and name CA")  # ADDED: the paper takes those of the core domain
index = core.indices                                                 # 12
xref0 = core.positions.copy()                                        # 13
# ADDED: input of the algorithm
starts = np.linspace(0, u.trajectory.n_frames, comm.Get_size() + 1).astype(int)  # ADDED
start, stop = int(starts[rank]), int(starts[rank + 1])  # ADDED
out = block_rmsd(topology, trajectory, xref0, index, start, stop)    # 14
counts = np.diff(starts)  # ADDED
RMSD_data = np.empty(u.trajectory.n_frames) if rank == 0 else None  # ADDED
# CHANGED: shares may differ by a frame, which Gather does not allow
comm.Gatherv(out, (RMSD_data, counts) if rank == 0 else None, root=0)  # 16

if rank == 0:  # ADDED
    np.save(sys.argv[3], RMSD_data)  # ADDED
