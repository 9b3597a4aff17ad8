"""Compare names of atoms that correspond by their order, or that occur at several locations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline.contract.system_interface import (
    Atom,
    Atoms,
    System,
    attribute_of,
    topology_attributes_of,
)
from paceline.errors import warn
from paceline.performance.number_format import joined, many

if TYPE_CHECKING:
    from paceline.contract.analysis import Analysis

#: Labels that are equal for corresponding atoms, whichever program wrote the files.
SHARED = ("names", "resnames")
#: Labels that another file may number or name differently. They are suspicious only if equal labels
#: occur in another order.
COUNTED = ("resids", "segids", "chainIDs")
#: Residue names that are equivalent: they differ by protonation or force field.
SAME_RESIDUE = {
    **dict.fromkeys(("HSD", "HSE", "HSP", "HID", "HIE", "HIP", "HISA", "HISB", "HISH"), "HIS"),
    **dict.fromkeys(("HISD", "HISE", "HIS1", "HIS2"), "HIS"),
    **dict.fromkeys(("CYX", "CYM", "CYS2", "CYSH"), "CYS"),
    **dict.fromkeys(("ASH", "ASPH", "ASPP"), "ASP"),
    **dict.fromkeys(("GLH", "GLUH", "GLUP"), "GLU"),
    **dict.fromkeys(("LYN", "LYSH", "LSN"), "LYS"),
    **dict.fromkeys(("SOL", "WAT", "TIP3", "TIP4", "TIP", "SPC", "SPCE", "TP3", "TP4"), "HOH"),
}
#: Names of backbone hydrogens in CHARMM force fields, with the equivalent names.
SAME_NAME = {"HN": "H"}

Labels = Mapping[str, np.ndarray]


def labels_of(atoms: Atoms, names: Iterable[str] = (*SHARED, *COUNTED)) -> dict[str, np.ndarray]:
    """Return those labels of atoms that the topology contains; each has shape (n_atoms,)."""
    found = {name: attribute_of(atoms, name) for name in names}
    return {name: np.asarray(values) for name, values in found.items() if values is not None}


def different_pairs(first: Labels, second: Labels) -> np.ndarray:
    """Return the numbers of atom pairs whose labels show that they are different atoms.

    Empty labels are ignored, as are labels that only one side has. The numbers are increasing.
    """
    found: list[np.ndarray] = []
    for name in SHARED:
        if name in first and name in second:
            found.append(_unequal(first[name], second[name], name))
    for name in COUNTED:
        if name in first and name in second:
            one, other = first[name], second[name]
            places = np.flatnonzero(one != other)
            if len(places) and np.array_equal(np.sort(one), np.sort(other)):
                found.append(places)
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _unequal(one: np.ndarray, other: np.ndarray, kind: str) -> np.ndarray:
    """Return the numbers of pairs whose names differ by more than naming conventions."""
    usual = _usual_name if kind == "names" else _usual_residue
    places = np.flatnonzero(one != other)
    pairs = zip(one[places], other[places], strict=True)
    differ = [bool(a and b) and usual(f"{a}") != usual(f"{b}") for a, b in pairs]
    return places[np.array(differ, bool)]


def _usual_name(name: str) -> str:
    """Return the usual form of an atom name: 1HB becomes HB1, O5* becomes O5', HN becomes H."""
    bare = name.strip().upper().replace("*", "'")
    rest = bare.lstrip("0123456789")
    bare = rest + bare[: len(bare) - len(rest)]
    return SAME_NAME.get(bare, bare)


def _usual_residue(name: str) -> str:
    """Return the PDB name for a variant of a residue: HIS for HSD."""
    bare = name.strip().upper()
    return SAME_RESIDUE.get(bare, bare)


def other_order(mobile: Atoms, fixed: Atoms, what: str) -> str | None:
    """Describe how atoms and reference atoms differ in names or residues; None if they do not.

    Both groups have equal numbers of atoms, which correspond by order. `what` is the argument that
    selected the atoms.
    """
    if mobile.universe is fixed.universe and np.array_equal(mobile.indices, fixed.indices):
        return None
    pairs = different_pairs(labels_of(mobile), labels_of(fixed))
    if not len(pairs):
        return None
    first = pairs[0]
    return (
        f"{what}: atoms are compared in their order, and {len(pairs):,} of {len(mobile):,} differ "
        f"from those of the reference in name or residue: the first is {name_atom(mobile[first])}, "
        f"there {name_atom(fixed[first])}. Bring both into one order, or choose atoms that are in "
        "the same order"
    )


def name_atom(atom: Atom) -> str:
    """Describe an atom from its topology, such as "CA of ALA 5 (index 61)"."""
    parts = [attribute_of(atom, name) for name in ("resname", "resid", "segid")]
    of = " ".join(f"{part}" for part in parts if part not in (None, ""))
    known = attribute_of(atom, "name")
    name = "an atom" if known is None else known
    return f"{name} of {of} (index {atom.index})" if of else f"{name} (index {atom.index})"


def warn_of_other_order(mobile: Atoms, fixed: Atoms, what: str) -> None:
    """Warn if atoms and reference atoms differ in names or residues."""
    message = other_order(mobile, fixed, what)
    if message is not None:
        warn(message)


def order_in_file(atoms: Atoms, of_file: Labels) -> tuple[str, bool] | None:
    """Describe how the names in a file differ from the topology's names; None if they do not.

    Returns the description, and True if the file has the topology's names in another order.
    """
    first = labels_of(atoms, of_file)
    if any(len(values) != len(atoms) for values in of_file.values()):
        return None
    pairs = different_pairs(first, of_file)
    if not len(pairs):
        return None
    n = pairs[0]
    there = " of ".join(f"{of_file[name][n]}" for name in SHARED if name in of_file)
    is_order = all(
        np.array_equal(np.sort(first[name]), np.sort(of_file[name]))
        for name in SHARED
        if name in first and name in of_file
    )
    what = "the names of the topology in another order" if is_order else "other names"
    return (
        f"its atoms have {what}: {len(pairs):,} of {len(atoms):,} differ, the first is "
        f"{name_atom(atoms[n])}, in the file {there}; positions are taken in the order of the "
        "file: use the topology that it was written with",
        is_order,
    )


class Repeated(NamedTuple):
    """Atoms of a group that occur again at another alternate location."""

    n_atoms: int
    #: Index of one of the atoms, for messages.
    first: int
    #: Alternate locations of this atom.
    locations: list[str]
    #: Alternate locations to leave out, so that each atom occurs once.
    others: list[str]


def repeated_atoms(universe: System, indices: np.ndarray) -> Repeated | None:
    """Find atoms with several alternate locations (altLoc) among `indices`; None if there are none.

    Such atoms have the same name and residue.
    """
    attribute, all_names = topology_attributes_of(universe, "altLocs", "names")
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
