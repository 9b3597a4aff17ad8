"""Water with virtual sites, which have neither mass nor bonds, as in GROMACS's TPR files."""

import MDAnalysis
import numpy as np
from MDAnalysis.lib.distances import apply_PBC
from scipy.spatial.transform import Rotation

#: Names, masses (u), charges (e), and positions relative to the oxygen (Å), with the bisector along
#: x. Jorgensen et al. 1983, J. Chem. Phys. 79, 926, and Mahoney & Jorgensen 2000, 112, 8910.
HYDROGENS = [[0.5859, 0.7570, 0], [0.5859, -0.7570, 0]]
TIP4P = (
    ["OW", "HW1", "HW2", "MW"],
    [15.9994, 1.008, 1.008, 0],
    [0, 0.52, 0.52, -1.04],
    [[0, 0, 0], *HYDROGENS, [0.15, 0, 0]],
)
TIP5P = (
    ["OW", "HW1", "HW2", "LP1", "LP2"],
    [15.9994, 1.008, 1.008, 0, 0],
    [0, 0.241, 0.241, -0.241, -0.241],
    [[0, 0, 0], *HYDROGENS, [-0.4041, 0, 0.5715], [-0.4041, 0, -0.5715]],
)
N_WATERS = 30


def write_waters(path, model, cell=(20, 22, 24, 80, 75, 95), n_frames=40):
    """Write waters that move and rotate, with each atom wrapped separately.

    Return a Universe without coordinates, and the unwrapped positions of whole waters, shape
    (n_frames, n_atoms, 3).
    """
    names, masses, charges, places = model
    n, random = len(names), np.random.default_rng(11)
    universe = MDAnalysis.Universe.empty(
        n * N_WATERS,
        n_residues=N_WATERS,
        atom_resindex=np.repeat(np.arange(N_WATERS), n),
        trajectory=True,
    )
    for name, values in (("names", names), ("masses", masses), ("charges", charges)):
        universe.add_TopologyAttr(name, values * N_WATERS)
    universe.add_TopologyAttr("resnames", ["SOL"] * N_WATERS)
    universe.add_TopologyAttr("resids", np.arange(N_WATERS) + 1)
    universe.add_TopologyAttr(
        "bonds", [(n * k, n * k + hydrogen) for k in range(N_WATERS) for hydrogen in (1, 2)]
    )
    # Waters move by more than the cell in total, and by less than half of it per frame.
    starts, steps = random.uniform(0, 20, (N_WATERS, 3)), random.uniform(-2, 2, (N_WATERS, 3))
    turned = [Rotation.random(n_frames, random_state=k).apply for k in range(N_WATERS)]
    whole = np.empty((n_frames, N_WATERS, n, 3))
    for k, place in enumerate(np.array(places, float)):
        for water in range(N_WATERS):
            centers = starts[water] + np.arange(n_frames)[:, None] * steps[water]
            whole[:, water, k] = centers + turned[water](place)
    whole = whole.reshape(n_frames, -1, 3)
    with MDAnalysis.Writer(str(path), universe.atoms.n_atoms) as writer:
        for number, frame in enumerate(whole):
            universe.trajectory.ts.time = number
            universe.dimensions = cell
            universe.atoms.positions = apply_PBC(frame.astype(np.float32), np.float32(cell))
            writer.write(universe.atoms)
    return universe, whole
