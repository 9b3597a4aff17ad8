"""Warn of reference structures with molecules that are broken across their cell."""

import numpy as np

from paceline import _core
from paceline.block import cell_of
from paceline.contract.system_interface import (
    Atoms,
    System,
    attribute_of,
    positions_in,
    topology_of,
)
from paceline.errors import warn
from paceline.transform.bonds_and_compounds import known_bonds
from paceline.transform.same_image_links import find_links

#: Names of atoms that link adjacent residues: of proteins, Martini beads and nucleic acids.
CHAIN = ("CA", "BB", "P")


def warn_of_broken_frame(atoms: Atoms, frame: int, name: str) -> None:
    """Warn if a molecule of these atoms is broken in one frame.

    The trajectory's current frame stays the same.
    """
    trajectory = atoms.universe.trajectory
    current = trajectory.ts.frame
    n_frames = trajectory.n_frames
    if not -n_frames <= frame < n_frames:
        return  # reading the reference raises the error later
    if frame % n_frames == current:
        return warn_of_broken_reference(atoms, name)
    try:
        trajectory[frame]
        warn_of_broken_reference(atoms, name)
    finally:
        trajectory[current]


def warn_of_broken_reference(atoms: Atoms, name: str) -> None:
    """Warn if a molecule of these atoms is broken in the current frame of their trajectory."""
    universe, trajectory = atoms.universe, atoms.universe.trajectory
    cell, bonds = cell_of(trajectory), known_bonds(universe)
    has_cell = cell[:, :6].any() and trajectory.ts.has_positions
    if topology_of(universe) is None or not has_cell:
        return
    indices = np.unique(atoms.indices).astype(np.int64)
    if not np.isin(indices, bonds.pairs).any():
        indices = _with_chain(universe, indices)
    links = find_links(universe, bonds, [indices])
    if links is None:
        return
    none, frame = np.empty((0, 2), np.int64), trajectory.ts.frame
    given = (links.pairs, links.lengths), links.longest, [indices], none
    whole = _core.Whole(len(universe.atoms), *given)
    found = whole.look(positions_in(trajectory)[np.newaxis], cell, np.array([frame]))
    if found is None:
        return
    first, second, distance = found[1][0, 2:5]
    where = f" (frame {frame})" if trajectory.n_frames > 1 else ""
    option = " --guess-bonds" if links.guessed else ""
    warn(
        f"{trajectory.filename}{where}: a molecule of the reference is broken across its cell: "
        f"atoms {int(first)} and {int(second)} of it are {distance:.1f} Å apart; {name} needs a "
        f"whole reference: 'paceline convert -s REFERENCE -o whole.gro --unwrap{option}' writes one"
    )


def _with_chain(universe: System, indices: np.ndarray) -> np.ndarray:
    """Return the atoms of the same residues, and the chain atoms of residues between these."""
    residues = universe.atoms.resindices
    some = residues[indices]
    found = np.isin(residues, some)
    names = attribute_of(universe.atoms, "names")
    if names is not None:
        between = (residues > some.min()) & (residues < some.max())
        found |= between & np.isin(np.asarray(names, dtype=str), CHAIN)
    return np.flatnonzero(found).astype(np.int64)
