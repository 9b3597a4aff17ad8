"""Masses of atoms: which are known, which MDAnalysis has guessed, and which are missing."""

from weakref import WeakKeyDictionary

import numpy as np

from paceline._util.option_values_and_selections import BEADS, NAMES_OF_BEADS
from paceline.contract.system_interface import (
    Atoms,
    System,
    attribute_of,
    topology_attributes_of,
    topology_of,
)
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import joined, many

#: Beginnings of the names of massless virtual sites in water models with four or five sites.
MASSLESS = ("MW", "EP", "LP", "OM")
#: For each topology: hash of the masses that MDAnalysis marks as guessed, and True if a script has
#: not changed them since.
_masses: WeakKeyDictionary[object, tuple[int, bool]] = WeakKeyDictionary()


def masses_of(group: Atoms, name: str) -> np.ndarray:
    """Return the masses of atoms, u; raise `UnsupportedError` if the topology has none.

    Also raises if MDAnalysis has guessed masses of Martini beads as if the beads were atoms. Warns
    of masses that MDAnalysis could not guess and has set to 0.
    """
    if (known := attribute_of(group, "masses")) is None:
        raise UnsupportedError(f"{name} needs masses, and the topology has none")
    masses: np.ndarray = known.astype(np.float64)
    if lack := missing_masses_reason(group):
        raise UnsupportedError(f"{name} needs masses, and {lack}")
    (attribute,) = topology_attributes_of(group.universe, "masses")
    if attribute is not None and attribute.is_guessed and not masses.all():
        # MDAnalysis guesses masses from one of these attributes.
        found = (attribute_of(group, kind) for kind in ("names", "types", "elements"))
        labels = next(one for one in found if one is not None)
        unknown = [str(one) for one in labels[masses == 0] if not str(one).startswith(MASSLESS)]
        if unknown:
            warn(
                f"{name} needs masses, but those of {many(len(unknown), 'atom')}, such as "
                f"{joined(list(dict.fromkeys(unknown))[:3])}, are not known: they are 0, as if "
                "these atoms did not exist; use a topology that has masses (TPR, PSF, PRMTOP, …)"
            )
    return masses


def missing_masses_reason(group: Atoms) -> str:
    """Return the reason why masses of a coarse-grained system are unknown; otherwise ""."""
    universe = group.universe
    (attribute,) = topology_attributes_of(universe, "masses")
    if attribute is None or not attribute.is_guessed:
        return ""
    names = attribute_of(universe.atoms, "names")
    if names is None or NAMES_OF_BEADS.isdisjoint(names):
        return ""
    if not any(len(_some_atoms(universe, one)) for one in BEADS):
        return ""
    guessed = _masses_of_elements(group)
    is_guessed = group.masses == guessed  # a script may have set other masses since
    if not is_guessed.any():
        return ""
    one = group[is_guessed.argmax()]
    return (
        f"those of this coarse-grained system are not known: {one.name} would have "
        f"{one.mass:.3f} u, as if it were an atom; use a topology that has masses (TPR), or set "
        "them in a script (u.add_TopologyAttr('masses', ...); most beads of Martini 2 have 72 u)"
    )


def _some_atoms(universe: System, selection: str) -> "Atoms | tuple[()]":
    try:
        return universe.select_atoms(selection)
    except AttributeError:  # the topology has no residue names, for example
        return ()


def note_on_masses(universe: System) -> str:
    """Describe masses that MDAnalysis has guessed; empty if a file or a script has given them."""
    (attribute,) = topology_attributes_of(universe, "masses")
    if attribute is None or not attribute.is_guessed:
        return ""
    topology, masses = topology_of(universe), attribute.values
    content = hash(masses.tobytes())
    known = _masses.get(topology)
    if known is None or known[0] != content:
        # Compare, because masses that a script has set since are still marked as guessed.
        is_guessed = np.array_equal(masses, _masses_of_elements(universe.atoms))
        known = _masses[topology] = content, is_guessed
    return f"guessed by MDAnalysis from {_kind_of_elements(universe.atoms)}" if known[1] else ""


def _kind_of_elements(group: Atoms) -> str:
    """Return the name of the attribute from which MDAnalysis guesses masses."""
    kinds = ("elements", "types", "names")
    return next(kind for kind in kinds if attribute_of(group, kind) is not None)


def _masses_of_elements(group: Atoms) -> np.ndarray:
    """Return the masses (u) that MDAnalysis guesses for atoms; 0 if it cannot guess them."""
    from MDAnalysis.guesser.tables import masses

    kinds = attribute_of(group, _kind_of_elements(group))
    return np.array([masses.get(f"{kind}", masses.get(f"{kind}".upper(), 0.0)) for kind in kinds])
