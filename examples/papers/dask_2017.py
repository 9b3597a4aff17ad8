"""RMSD of a trajectory by map and reduce with Dask, as a paper of 2017 prints it.

    python dask_2017.py topology trajectory n_blocks processes|distributed out.npy

M. Khoshlessan, I. Paraskevakos, S. Jha, O. Beckstein: Parallel Analysis in MDAnalysis using the
Dask Parallel Computing Library. Proc. 16th Python in Science Conf. (2017), 64-72,
https://doi.org/10.25080/shinma-7f4c6e7-00a. The text, with this code, is under the Creative Commons
Attribution License: (c) 2017 M. Khoshlessan et al.

Lines end in "CHANGED" where today's Dask or Python needs another one, and in "ADDED" where the
paper leaves out what a whole script has. Blocks are as long as the first one: the last rows are
zeros if n_blocks does not divide the number of frames.
"""

# fmt: off
# ruff: noqa
import sys  # ADDED

import numpy as np
import MDAnalysis as mda
from MDAnalysis.analysis.rms import rmsd
from dask.delayed import delayed

def analyze_rmsd(ag, n_blocks):
    """RMSD of AtomGroup ag, parallelized n_blocks"""
    ref0 = ag.positions.copy()
    bsize = int(np.ceil(
        ag.universe.trajectory.n_frames \
        / float(n_blocks)))
    blocks = []
    for iblock in range(n_blocks):
        start, stop = iblock*bsize, (iblock+1)*bsize
        out = delayed(block_rmsd, pure=True)(
            ag.indices, ag.universe.filename,
            ag.universe.trajectory.filename,
            ref0, start, stop)
        blocks.append(out)
    return delayed(np.vstack)(blocks)

def block_rmsd(index, topology, trajectory, ref0,
               start, stop):
    u = mda.Universe(topology, trajectory)
    ag = u.atoms[index]
    out = np.zeros([stop-start, 2])
    for i, ts in enumerate(
        u.trajectory[start:stop]):
        out[i, :] = ts.time, rmsd(ag.positions, ref0,
                                center=True, superposition=True)
    return out

from dask.multiprocessing import get

if __name__ == "__main__":  # ADDED: workers import this file
    PSF, DCD, n_blocks = sys.argv[1], sys.argv[2], int(sys.argv[3])  # ADDED
    if sys.argv[4] == "distributed":  # ADDED
        from dask.distributed import Client  # ADDED
        client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)  # ADDED
        get = client.get  # ADDED

    u = mda.Universe(PSF, DCD)
    ag = u.select_atoms("protein and name CA")
    result = analyze_rmsd(ag, n_blocks)
    timeseries = result.compute(scheduler=get)  # CHANGED: was get=get, which Dask 2 removed

    np.save(sys.argv[5], timeseries)  # ADDED
