"""Detect atoms with several alternate locations, which an analysis would count several times."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline.contract.atoms import System, topology_attribute_of
from paceline.errors import warn
from paceline.performance.number_format import joined, many
from paceline.transform.matching import name_atom

if TYPE_CHECKING:
    from paceline.contract.analysis import Analysis


class Repeated(NamedTuple):
    """Atoms of a group that occur again at another alternate location."""

    n_atoms: int
    #: Index of a repeated atom.
    first: int
    #: Alternate locations of the atom.
    locations: list[str]
    #: Alternate locations to leave out, so that each atom occurs once.
    others: list[str]


def repeated_atoms(universe: System, indices: np.ndarray) -> Repeated | None:
    """Find atoms with equal name and residue at different locations; None if there are none."""
    attribute = topology_attribute_of(universe, "altLocs")
    all_names = topology_attribute_of(universe, "names")
    if attribute is None or all_names is None:
        return None
    indices = np.unique(indices)
    located = indices[attribute.values[indices] != ""]
    if not len(located):
        return None
    locations = attribute.values[located].astype(str)
    _, names = np.unique(all_names.values[located].astype(str), return_inverse=True)
    keys = universe.atoms.resindices[located] * len(located) + names.reshape(-1)
    _, firsts, places, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    again = locations != locations[firsts][places.reshape(-1)]
    if not again.any():
        return None
    one = int(np.argmax(counts > 1))
    of_one = sorted(set(locations[places.reshape(-1) == one].tolist()))
    others = sorted(set(locations[again].tolist()) - {min(locations[firsts].tolist())})
    return Repeated(int(again.sum()), int(located[firsts[one]]), of_one, others)


def warn_of_locations(analyses: "Sequence[Analysis]") -> None:
    """Warn of atoms at several alternate locations, which an analysis would count several times."""
    names, message = [], ""
    for analysis in analyses:
        if not analysis.needs_one_location:
            continue
        universe = analysis.atomgroup.universe
        analysis.remarks = {key: one for key, one in analysis.remarks.items() if key != "locations"}
        if (found := repeated_atoms(universe, analysis.indices)) is None:
            continue
        text = (
            f"{many(found.n_atoms, 'atom')} occur again at another alternate location, such as "
            f"{name_atom(universe.atoms[found.first])} at {joined(found.locations)}, and each "
            f"location counts: leave the others out, as by 'not altLoc {' '.join(found.others)}'"
        )
        analysis.remarks = {**analysis.remarks, "locations": text}
        names.append(analysis.name)
        message = message or text
    if names:
        warn(f"{joined(list(dict.fromkeys(names)))}: {message}")
