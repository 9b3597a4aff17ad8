"""Domains of adenylate kinase, as a user of MDAnalysis writes it: nothing here is paceline's.

python domains.py topology trajectory [csv]              # by MDAnalysis
python -m paceline domains.py topology trajectory [csv]  # the same, faster
"""

import sys

import MDAnalysis as mda
import numpy as np
from MDAnalysis.analysis import contacts, rms
from MDAnalysis.analysis.hydrogenbonds import HydrogenBondAnalysis

CORE = "name CA and (resid 1-29 or resid 60-121 or resid 160-214)"
DOMAINS = {"LID": "name CA and resid 122-159", "NMP": "name CA and resid 30-59"}
ACIDIC = "resname ASP GLU and name OD* OE*"
BASIC = "resname ARG LYS and name NH* NZ"

if len(sys.argv) < 3:
    sys.exit(__doc__)
u = mda.Universe(sys.argv[1], sys.argv[2])
ca = u.select_atoms("protein and name CA")
print(f"{u.atoms.n_atoms} atoms, {u.trajectory.n_frames} frames, {len(ca)} residues")

# How far the domains move where the core is superposed, and how residues fluctuate.
rmsd = rms.RMSD(u, select=CORE, groupselections=list(DOMAINS.values())).run()
for name, values in zip(["core", *DOMAINS], rmsd.results.rmsd.T[2:], strict=True):
    print(f"RMSD of {name}: {values.mean():.4f} Å, at most {values.max():.4f} Å")
rmsf = rms.RMSF(ca).run()
for i in np.argsort(rmsf.results.rmsf)[-5:]:
    print(f"RMSF of {ca[i].resname} {ca[i].resid}: {rmsf.results.rmsf[i]:.4f} Å")

# Salt bridges of the first frame that are still there.
native = contacts.Contacts(
    u,
    select=(ACIDIC, BASIC),
    refgroup=(u.select_atoms(ACIDIC), u.select_atoms(BASIC)),
    radius=6.0,
).run()
fraction = native.results.timeseries[:, 1]
print(f"native salt bridges: {fraction.mean():.4f}, in the end {fraction[-1]:.4f}")

# Hydrogen bonds of the backbone, in each tenth frame.
bonds = HydrogenBondAnalysis(
    u,
    donors_sel="protein and name N",
    hydrogens_sel="protein and name HN H",
    acceptors_sel="protein and name O",
).run(step=10)
print(f"hydrogen bonds: {bonds.count_by_time().mean():.2f} a frame")
counted = bonds.count_by_ids()
lasting = counted[counted[:, -1] > len(bonds.frames) / 2]
print(f"in more than half of these frames: {len(lasting)}")
for donor, _, acceptor, n in lasting[np.lexsort(lasting.T)][-3:]:
    names = (f"{atom.resname}{atom.resid} {atom.name}" for atom in u.atoms[[donor, acceptor]])
    print(" to ".join(names), f"in {n / len(bonds.frames):.1%}")

# Size, and distance between the domains, in a loop of one's own.
lid, nmp = (u.select_atoms(words) for words in DOMAINS.values())
series = []
for ts in u.trajectory:
    between = lid.center_of_mass() - nmp.center_of_mass()
    series.append((ts.time, ca.radius_of_gyration(), np.linalg.norm(between)))
times, radii, openings = np.array(series).T
print(f"{times[0]:g} to {times[-1]:g} ps")
print(f"radius of gyration: {radii.mean():.4f} Å, standard deviation {radii.std():.4f} Å")
print(f"domains are {openings.min():.4f} to {openings.max():.4f} Å apart")
if len(sys.argv) > 3:
    np.savetxt(sys.argv[3], series, delimiter=",", fmt="%.4f", header="time,Rg,opening")
