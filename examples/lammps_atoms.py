"""Pass the local atoms of LAMMPS to `paceline.snapshot.Writer.write`, in Å, ps, kJ/mol, u, e.

It works for `units real`, `metal` and `lj`; add other units here.
"""

import math
from typing import Any, NamedTuple

import numpy as np

#: Two elementary charges at 1 Å, kJ/mol.
COULOMB = 1389.35458


class Units(NamedTuple):
    """One unit of LAMMPS for each quantity, in paceline's units."""

    length: float = 1.0  # Å
    time: float = 1.0  # ps
    energy: float = 1.0  # kJ/mol
    mass: float = 1.0  # u
    charge: float = 1.0  # e


#: Units of LAMMPS by the name in its input.
UNITS = {
    "real": Units(time=0.001, energy=4.184),  # fs, kcal/mol
    "metal": Units(energy=96.48533212),  # eV
}


def lennard_jones(sigma: float, epsilon: float, mass: float) -> Units:
    """`units lj` of a liquid with σ in Å, ε in kJ/mol, mass in u; argon: 3.405, 0.996, 39.948."""
    return Units(
        length=sigma,
        time=sigma * math.sqrt(mass / (100 * epsilon)),  # 1 kJ/mol is 100 u Å²/ps²
        energy=epsilon,
        mass=mass,
        charge=math.sqrt(sigma * epsilon / COULOMB),
    )


def own_atoms(engine, names: list[str], units: Units | None = None) -> dict[str, Any]:
    """Copy the local atoms of a rank, in LAMMPS's order, so that LAMMPS may continue at once.

    `names` are those of LAMMPS's types 1, 2, …; `units` are needed for `lj`.
    """
    units = units or UNITS[engine.extract_global("units")]
    n_own = engine.extract_setting("nlocal")  # without the ghost atoms that follow

    def own(name: str, unit: float = 1) -> np.ndarray | None:
        values = engine.numpy.extract_atom(name, nelem=n_own)
        return None if values is None else values * unit

    types = engine.numpy.extract_atom("type", nelem=n_own)
    masses = own("rmass", units.mass)  # per atom, or else per type
    if masses is None:
        masses = engine.numpy.extract_atom("mass")[types] * units.mass
    step = engine.extract_global("ntimestep")
    return {
        "ids": own("id"),
        "positions": own("x", units.length),
        "velocities": own("v", units.length / units.time),
        "forces": own("f", units.energy / units.length),
        "names": np.array(["", *names])[types],
        "masses": masses,
        "charges": own("q", units.charge),
        "box": _cell(engine) * units.length,
        "step": step,
        "time": step * engine.extract_global("dt") * units.time,
    }


def _cell(engine) -> np.ndarray:
    """The three vectors of the cell, one per row."""
    low, high, xy, yz, xz, *_ = engine.extract_box()
    x, y, z = np.subtract(high, low)
    return np.array([[x, 0, 0], [xy, y, 0], [xz, yz, z]])
