"""RMSD of an H5MD trajectory on ranks of MPI through MPI-IO, as a paper of 2021 prints it.

    mpirun -n 4 python h5md_2021.py topology trajectory out.npy

E. Jakupovic, O. Beckstein: MPI-parallel Molecular Dynamics Trajectory Analysis with the H5MD Format
in the MDAnalysis Python Package. Proc. 20th Python in Science Conf. (2021), 40-48,
https://doi.org/10.25080/majora-1b6fd038-005. The text, with this code, is under the Creative Commons
Attribution License: (c) 2021 E. Jakupovic, O. Beckstein.

Lines end in "CHANGED" where Python needs another one, and in "ADDED" where the paper leaves out what
a whole script has.
"""

# fmt: off
# ruff: noqa
import sys  # ADDED

import MDAnalysis as mda
from MDAnalysis.analysis.rms import rmsd
from mpi4py import MPI
import numpy as np

comm = MPI.COMM_WORLD
size = comm.Get_size()
rank = comm.Get_rank()

def make_balanced_slices(n_frames, n_blocks, start, stop, step):  # ADDED: what PMDA's function does
    sizes = [n_frames // n_blocks + (k < n_frames % n_blocks) for k in range(n_blocks)]  # ADDED
    ends = np.cumsum(sizes).tolist()  # ADDED
    return [slice(end - n, end, step) for end, n in zip(ends, sizes)]  # ADDED

def benchmark(topology, trajectory):
   u = mda.Universe(topology)
   u.load_new(trajectory,
              driver="mpio",
              comm=comm)
   CA = u.select_atoms("protein and name CA")
   x_ref = CA.positions.copy()
   n_frames = u.trajectory.n_frames  # ADDED

   # make_balanced_slices divides n_frames into
   # equally sized blocks and returns start:stop
   # indices for each block
   slices = make_balanced_slices(n_frames,
                                 size,
                                 start=0,
                                 stop=n_frames,
                                 step=1)
   start = slices[rank].start  # CHANGED: from here on, the text indents by one column more
   stop = slices[rank].stop
   bsize = stop - start

   # sendcounts is used for Gatherv() to know how
   # many elements are sent from each rank
   sendcounts = np.array([
       slices[i].stop - slices[i].start
       for i in range(size)])

   rmsd_array = np.empty(bsize, dtype=float)
   for i, frame in enumerate(range(start, stop)):
      ts = u.trajectory[frame]
      rmsd_array[i] = rmsd(CA.positions,
                           x_ref,
                           superposition=True)
   comm.Barrier()
   rmsd_buffer = None
   if rank == 0:
      rmsd_buffer = np.empty(n_frames,
                             dtype=float)
   comm.Gatherv(sendbuf=rmsd_array,
                recvbuf=(rmsd_buffer, sendcounts), root=0)
   return rmsd_buffer  # ADDED

found = benchmark(*sys.argv[1:3])  # ADDED
if rank == 0:  # ADDED
    np.save(sys.argv[3], found)  # ADDED
