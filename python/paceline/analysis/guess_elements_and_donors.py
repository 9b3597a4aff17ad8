"""Guess properties of atoms: elements, hydrogens, donors, acceptors, and water oxygens."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

from paceline.contract.system_interface import (
    Atoms,
    System,
    attribute_of,
    has_attribute,
    topology_attributes_of,
)
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.bonds_and_compounds import bonds_of
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.known_and_guessed_bonds import bond_list
from paceline.transform.masses import missing_masses_reason

#: Selection of polar hydrogens, by names and bonds.
POLAR_HYDROGENS = "name H* [1-4]H* and bonded (name N* O*)"
#: Selection of nitrogens and oxygens that can be acceptors, without ions.
POLAR_ACCEPTORS = "name O* N* and bonded all"
#: Selection of carbons with hydrogens in lipid tails, by CHARMM's names.
TAILS = (
    "resname ??PC ??PE ??PG ??PS ??PA and name C2? C2?? C3? C3?? "
    "and bonded (name H* [1-9]H* and mass 0.5 to 4.5)"
)
#: Selections of hydrogens and acceptors by bonds, independent of a force field's charges.
POLAR = {"hydrogens_sel": POLAR_HYDROGENS, "acceptors_sel": POLAR_ACCEPTORS}
#: Masses (u) that identify elements if the topology contains none; `NEAR` is the tolerance.
MASSES = {
    **{"H": 1.008, "C": 12.011, "N": 14.007, "O": 15.999, "F": 18.998, "NA": 22.990, "MG": 24.305},
    **{"P": 30.974, "S": 32.06, "CL": 35.45, "K": 39.098, "ZN": 65.38, "BR": 79.904, "I": 126.904},
}
NEAR = 0.012
#: Range of masses by which MDAnalysis identifies hydrogens, u.
LIGHT = (0.9, 1.1)
#: Mass of hydrogen without repartitioning, u.
HYDROGEN = 1.008
#: Largest mass of a hydrogen after mass repartitioning, u.
REPARTITIONED = 4.5


def unrepartitioned_masses(atoms: Atoms) -> np.ndarray:
    """Return masses of atoms, u, without hydrogen mass repartitioning.

    Hydrogens are identified by elements, or else by names and, if bonds are known, a single bond.
    """
    universe = atoms.universe
    masses = universe.atoms.masses.astype(np.float64)
    heavier = (masses >= LIGHT[1]) & (masses < REPARTITIONED)
    if not heavier.any():
        return masses[atoms.indices]
    bonds = _both_ways(universe)
    heavier &= _are_hydrogens(universe, bonds)
    if bonds is not None:
        given = bonds[heavier[bonds[:, 0]]]
        np.add.at(masses, given[:, 1], masses[given[:, 0]] - HYDROGEN)
    masses[heavier] = HYDROGEN
    return masses[atoms.indices]


def _are_hydrogens(universe: System, bonds: np.ndarray | None) -> np.ndarray:
    """Mask of hydrogens by elements, or else by names and, if bonds are known, a single bond."""
    atoms = universe.atoms
    elements = np.array(_elements(atoms), dtype=str)
    found = (elements == "H") | (elements == "D")
    if has_attribute(atoms, "names"):
        named = _mask_by_name(atoms, "H*", "[1-4]H*", "D[1-9]*")
        if bonds is not None:
            named &= np.bincount(bonds[:, 0], minlength=len(atoms)) == 1
        found |= named & (elements == "")
    return found


def _elements(atoms: Atoms) -> Sequence[str]:
    """Elements from the topology; empty texts if the topology has none."""
    found = attribute_of(atoms, "elements")
    return [""] * len(atoms) if found is None else found


def heaviest_hydrogen(atoms: Atoms) -> float:
    """Return an upper limit of the masses (u) of hydrogens; above 1.1 after repartitioning."""
    changed = unrepartitioned_masses(atoms) != atoms.masses
    changed &= atoms.masses < REPARTITIONED
    return float(atoms.masses[changed].max(initial=LIGHT[1] - 0.01)) + 0.01


def elements_of(atoms: Atoms) -> list[str]:
    """Symbols of the elements in capitals; empty if unknown."""
    found = [f"{one}".upper() for one in _elements(atoms)]
    if all(found) or not has_attribute(atoms, "masses") or missing_masses_reason(atoms):
        return found
    names, masses = list(MASSES), np.array(list(MASSES.values()))
    off = np.abs(unrepartitioned_masses(atoms)[:, None] - masses)
    nearest = off.argmin(axis=1)
    near = off.min(axis=1) <= NEAR
    guessed = [names[k] if is_near else "" for k, is_near in zip(nearest, near, strict=True)]
    return [one or guess for one, guess in zip(found, guessed, strict=True)]


def donors_of(universe: System, hydrogens: Atoms, name: str) -> Atoms:
    """Find the atom to which each hydrogen is bonded; `name` is the analysis, for errors.

    If a hydrogen is bonded to several atoms, the first one is returned.
    """
    from MDAnalysis.exceptions import NoDataError

    try:
        bonds = bonds_of(universe, name)
    except UnsupportedError:
        raise NoDataError(
            f"{name}: the topology has no bonds, which identify donors: set "
            "donors_sel=, use a topology with bonds, or guess_bonds=True (--guess-bonds)"
        ) from None
    n_atoms = len(universe.atoms)
    partners = np.full(n_atoms, n_atoms)
    for here, there in ((0, 1), (1, 0)):
        np.minimum.at(partners, bonds[:, here], bonds[:, there])
    found = partners[hydrogens.indices]
    if (found == n_atoms).any():
        lonely = hydrogens[found == n_atoms]
        raise SelectionError(
            f"{name}: {name_atom(lonely[0])}, one of {len(lonely)} hydrogens, "
            "is not bonded to any atom; set donors_sel=, use a topology with its bond, or "
            "guess_bonds=True (--guess-bonds)"
        )
    return universe.atoms[found]


def missed_hydrogens(atomgroup: Atoms, guessed: str, name: str) -> str | None:
    """Describe hydrogens that are bonded to N or O but not guessed by charge, if there are any."""
    bonds, atoms = _bonds_by_name(atomgroup.universe), atomgroup.universe.atoms
    if bonds is None:
        return None
    has_polar = np.zeros(len(atoms), bool)
    has_polar[bonds[_mask_by_name(atoms, "N*", "O*")[bonds[:, 1]], 0]] = True
    polar = atomgroup[(has_polar & _mask_by_name(atoms, "H*", "[1-4]H*"))[atomgroup.indices]]
    missed = _missed_by_guess(polar, atomgroup, guessed, polar.charges > 0.3)
    if len(missed) == 0:
        return None
    one, charge = missed[0], max(missed.charges)
    return (
        f"{name}: {len(missed):,} of {len(polar):,} hydrogens bonded to N or "
        f"O, such as {one.name} of {one.resname} {one.resid}, have charges of at most "
        f"{charge:.2f} e, as in Amber's force fields, and are not guessed (above 0.3 e): "
        f"their bonds are missed. Select hydrogens by {POLAR_HYDROGENS!r}"
    )


def missed_acceptors(atomgroup: Atoms, guessed: str, name: str) -> str | None:
    """Describe oxygens that are not guessed by charge, except those of ethers, if there are any."""
    bonds, atoms = _bonds_by_name(atomgroup.universe), atomgroup.universe.atoms
    if bonds is None:
        return None
    is_heavy = unrepartitioned_masses(atoms) > LIGHT[1]
    n_heavy = np.bincount(bonds[is_heavy[bonds[:, 1]], 0], minlength=len(atoms))
    is_bonded = np.zeros(len(atoms), bool)
    is_bonded[bonds[:, 0]] = True
    is_acceptor = _mask_by_name(atoms, "O*") & is_bonded & (n_heavy < 2)
    oxygens = atomgroup[is_acceptor[atomgroup.indices]]
    missed = _missed_by_guess(oxygens, atomgroup, guessed, oxygens.charges < -0.5)
    if len(missed) == 0:
        return None
    one, charge = missed[0], min(missed.charges)
    return (
        f"{name}: {len(missed):,} of {len(oxygens):,} oxygens, such as "
        f"{one.name} of {one.resname} {one.resid}, have charges of at least {charge:.2f} "
        "e, as in OPLS's force fields and in four-site water, and are not guessed as "
        "acceptors (below -0.5 e): their bonds are missed. Select acceptors by "
        f"acceptors_sel={POLAR_ACCEPTORS!r}"
    )


def _both_ways(universe: System) -> np.ndarray | None:
    """Return bonds in both directions, shape (n, 2); None if the topology has none."""
    found = bond_list(universe).bonds
    return None if not len(found) else np.concatenate([found, found[:, ::-1]])


def _bonds_by_name(universe: System) -> np.ndarray | None:
    """Return bonds in both directions, shape (n, 2); None if names, masses or bonds are missing."""
    needed = topology_attributes_of(universe, "names", "masses")
    return None if None in needed else _both_ways(universe)


def _mask_by_name(atoms: Atoms, *patterns: str) -> np.ndarray:
    """Mask of atoms by patterns of names; twenty times as fast as a selection."""
    names = atoms.names
    known = {name: any(fnmatchcase(name, one) for one in patterns) for name in set(names)}
    return np.fromiter(map(known.__getitem__, names), bool, len(names))


def _missed_by_guess(atoms: Atoms, atomgroup: Atoms, guessed: str, is_charged: np.ndarray) -> Atoms:
    """Return the atoms that a guess by charge leaves out; empty if all have a large charge."""
    return atoms[:0] if is_charged.all() else atoms - atomgroup.select_atoms(guessed)
