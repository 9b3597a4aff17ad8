"""Compare names and residues of atoms that are taken for the same ones, in their order."""

from collections.abc import Iterable, Mapping

import numpy as np

from paceline.contract.atoms import Atom, Atoms, attribute_of
from paceline.errors import warn

#: Labels that corresponding atoms share, whatever programs made the files.
SHARED = ("names", "resnames")
#: Labels that files may count or name anew: only another order of the same ones is odd.
COUNTED = ("resids", "segids", "chainIDs")
#: Residues that have several names, by protonation and force field.
SAME_RESIDUE = {
    **dict.fromkeys(("HSD", "HSE", "HSP", "HID", "HIE", "HIP", "HISA", "HISB", "HISH"), "HIS"),
    **dict.fromkeys(("HISD", "HISE", "HIS1", "HIS2"), "HIS"),
    **dict.fromkeys(("CYX", "CYM", "CYS2", "CYSH"), "CYS"),
    **dict.fromkeys(("ASH", "ASPH", "ASPP"), "ASP"),
    **dict.fromkeys(("GLH", "GLUH", "GLUP"), "GLU"),
    **dict.fromkeys(("LYN", "LYSH", "LSN"), "LYS"),
    **dict.fromkeys(("SOL", "WAT", "TIP3", "TIP4", "TIP", "SPC", "SPCE", "TP3", "TP4"), "HOH"),
}
#: Hydrogens of the backbone in CHARMM's force fields.
SAME_NAME = {"HN": "H"}

Labels = Mapping[str, np.ndarray]


def labels_of(atoms: Atoms, names: Iterable[str] = (*SHARED, *COUNTED)) -> dict[str, np.ndarray]:
    """Get the labels of atoms that their topology has, shape (n_atoms,) each."""
    found = {name: attribute_of(atoms, name) for name in names}
    return {name: np.asarray(values) for name, values in found.items() if values is not None}


def different_pairs(first: Labels, second: Labels) -> np.ndarray:
    """Find pairs of atoms, of equal numbers, whose labels tell that they are not the same atoms.

    Labels that are empty, or that only one side has, tell nothing. Returns the numbers of the
    pairs, increasing.
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
    """Find pairs of names that differ in more than the way in which programs write them."""
    usual = _usual_name if kind == "names" else _usual_residue
    places = np.flatnonzero(one != other)
    pairs = zip(one[places], other[places], strict=True)
    differ = [bool(a and b) and usual(f"{a}") != usual(f"{b}") for a, b in pairs]
    return places[np.array(differ, bool)]


def _usual_name(name: str) -> str:
    """Write the name of an atom with its digits behind: 1HB as HB1."""
    bare = name.strip().upper().replace("*", "'")
    rest = bare.lstrip("0123456789")
    bare = rest + bare[: len(bare) - len(rest)]
    return SAME_NAME.get(bare, bare)


def _usual_residue(name: str) -> str:
    """Name a residue as the PDB does, where it is a variant: HSD as HIS."""
    bare = name.strip().upper()
    return SAME_RESIDUE.get(bare, bare)


def other_order(mobile: Atoms, fixed: Atoms, what: str) -> str | None:
    """Say that atoms and those of the reference differ in names or residues; None if not.

    Both groups have as many atoms, which correspond in their order; `what` is the argument that
    chose them.
    """
    if mobile.universe is fixed.universe and np.array_equal(mobile.indices, fixed.indices):
        return None
    pairs = different_pairs(labels_of(mobile), labels_of(fixed))
    if not len(pairs):
        return None
    first = pairs[0]
    return (
        f"{what}: atoms are compared in their order, and {len(pairs):,} of {len(mobile):,} differ "
        f"from those of the reference in name or residue: the first is {described(mobile[first])}, "
        f"there {described(fixed[first])}. Bring both into one order, or choose atoms that are in "
        "the same order"
    )


def described(atom: Atom) -> str:
    """Name an atom by what its topology knows, as "CA of ALA 5 (index 61)"."""
    parts = [attribute_of(atom, name) for name in ("resname", "resid", "segid")]
    of = " ".join(f"{part}" for part in parts if part not in (None, ""))
    known = attribute_of(atom, "name")
    name = "an atom" if known is None else known
    return f"{name} of {of} (index {atom.index})" if of else f"{name} (index {atom.index})"


def warn_of_other_order(mobile: Atoms, fixed: Atoms, what: str) -> None:
    """Warn where atoms and those of the reference differ in names or residues."""
    message = other_order(mobile, fixed, what)
    if message is not None:
        warn(message)


def order_in_file(atoms: Atoms, of_file: Labels) -> tuple[str, bool] | None:
    """Say that a file tells other names than the topology of the atoms that it has; None if not.

    Also returns whether both have the same names in another order.
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
        f"{described(atoms[n])}, in the file {there}; positions are taken in the order of the "
        "file: take the topology that it was written with",
        is_order,
    )
