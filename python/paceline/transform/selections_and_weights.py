"""Atoms that users select: selections, pairs of groups, masses and weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

import numpy as np

from paceline._util.arguments import check_selection, one_of
from paceline.contract.system_interface import (
    Atoms,
    Selected,
    System,
    UpdatingAtoms,
    attribute_of,
)
from paceline.errors import (
    SelectionError,
    UnsupportedError,
    with_script_advice,
)
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.known_and_guessed_bonds import add_bonds_to_select
from paceline.transform.masses import masses_of


def describe(name: str, atomgroup: Selected | None, **options: object) -> str:
    """Describe a call in one line for the provenance; options that are None are left out.

    Examples
    --------
    >>> describe("center", "protein", weights="mass", point=None)
    "center('protein', weights=mass)"
    """
    words = [f"{key}={value}" for key, value in options.items() if value is not None]
    if isinstance(atomgroup, str):
        words.insert(0, repr(atomgroup))
    elif atomgroup is not None:
        indices = atomgroup.atoms.indices
        words.insert(0, f"{len(indices)} atoms, indices {indices.min()} to {indices.max()}")
    return f"{name}({', '.join(words)})"


def select(atomgroup: Selected, universe: System, name: str) -> Atoms:
    """Return the atoms for the transformation `name`: a group, or a selection in the Universe.

    Raises `SelectionError` for an empty selection, and `UnsupportedError` for atoms of another
    Universe or an UpdatingAtomGroup.
    """
    if isinstance(atomgroup, str):
        check_selection(atomgroup)
        group = universe.select_atoms(atomgroup)
    else:
        check_static(atomgroup, name)
        group = atomgroup.atoms
    if len(group) == 0:
        raise SelectionError(f"{name}: no atoms match {atomgroup!r}")
    if group.universe is not universe:
        raise UnsupportedError(
            f"{name}: its atoms belong to another Universe than the analysis; pass a selection text"
        )
    return group


def updates_itself(atomgroup: object) -> TypeGuard[UpdatingAtoms]:
    """Return True for an UpdatingAtomGroup, which alone has the attribute `is_uptodate`."""
    return hasattr(atomgroup, "is_uptodate")


def check_static(atomgroup: object, name: str, instead: str = "") -> None:
    """Raise `UnsupportedError` for an UpdatingAtomGroup, where atoms must stay the same.

    `instead` is the message's advice, up to the words "its atoms in each frame". Raises `TypeError`
    for an object that is not a group.
    """
    if attribute_of(atomgroup, "atoms") is None:
        raise TypeError(f"expected an AtomGroup or a Universe, found {atomgroup!r}")
    if updates_itself(atomgroup):
        instead = instead or "write a function for paceline.TimeSeries or Reduce, which select"
        error = UnsupportedError(
            f"{name}: an UpdatingAtomGroup changes from frame to frame, but the analysis needs the "
            "same atoms in each frame"
        )
        advice = f": use a fixed selection (updating=False), or {instead} its atoms in each frame"
        raise with_script_advice(error, advice)


def check_not_empty(atoms: Atoms, what: str) -> None:
    """Raise `SelectionError` for an empty group."""
    if len(atoms) == 0:
        raise SelectionError(f"{what} contains no atoms")


def known_weights(weights: str | None) -> str | None:
    """Return the weights; raise `ValueError` unless they are None or "mass"."""
    one_of("weights", weights, None, "mass")
    return weights


def check_masses(
    mobile: Atoms, fixed: Atoms, tolerance: float, name: str, advice: str = ""
) -> None:
    """Raise `SelectionError` if known masses of corresponding atoms differ too much."""
    masses, others = attribute_of(mobile, "masses"), attribute_of(fixed, "masses")
    if masses is None or others is None:
        return
    differing = np.flatnonzero(np.abs(masses - others) > tolerance)
    if len(differing):
        first = differing[0]
        error = SelectionError(
            f"{name}: {len(differing)} pairs of atoms differ in mass by more than {tolerance} u, "
            f"the first is {name_atom(mobile[first])} ({mobile[first].mass:.3f} u) and "
            f"{name_atom(fixed[first])} ({fixed[first].mass:.3f} u) of the reference"
        )
        raise with_script_advice(error, advice)


def pair_of_selections(select: object, what: str) -> tuple[Any, Any]:
    """Return the selections of the mobile atoms and of the reference atoms in argument `what`."""
    if isinstance(select, dict):
        if not {"mobile", "reference"} <= select.keys():
            raise KeyError(f"{what} as a dict needs the keys 'mobile' and 'reference'")
        return select["mobile"], select["reference"]
    if isinstance(select, tuple):
        if len(select) != 2:
            raise ValueError(f"{what} as a tuple is (mobile, reference), not {len(select)} items")
        return select
    if select is None or isinstance(select, str | list):
        return select, select
    raise TypeError(f"{what} must be a str, a tuple, a dict or None, not {select!r}")


def pair_of_groups(
    select: object, mobile: Atoms | System, reference: Atoms | System, what: str
) -> tuple[Atoms, Atoms]:
    """Select the mobile atoms and the reference atoms; raise if their numbers differ."""
    of_mobile, of_reference = pair_of_selections(select, what)
    # An empty reference is allowed here: the error below names both numbers.
    fixed = choose_atoms(reference, of_reference, what, least=0)
    chosen = choose_atoms(mobile, of_mobile, what), fixed
    if len(chosen[0]) != len(chosen[1]):
        raise SelectionError(
            f"{what}: {len(chosen[0])} atoms of {of_mobile!r} cannot be compared with "
            f"{len(chosen[1])} atoms of {of_reference!r} in the reference: choose atoms that "
            "both have, such as some residues"
        )
    return chosen


def choose_atoms(
    group: Atoms | System, selection: str | list[str] | None, what: str, *, least: int = 1
) -> Atoms:
    """Select atoms of a group, which is not an UpdatingAtomGroup, for the argument `what`."""
    check_static(group, what)
    texts = [selection] if isinstance(selection, str) else selection
    atoms = group.atoms if texts is None else select_atoms(group, texts, what)
    if len(atoms) < least:
        nothing = "the group has no atoms" if texts is None else f"no atoms match {selection!r}"
        raise SelectionError(f"{what}: {nothing}")
    return atoms


def select_atoms(
    group: Atoms | System, texts: list[str], what: str, *, updating: bool = False
) -> Atoms:
    """Select atoms by texts, for the argument `what`."""
    for text in texts:
        check_selection(text)
    add_bonds_to_select(group, *texts)
    with naming_lacks(what, *texts):
        return group.select_atoms(*texts, updating=updating)


@contextmanager
def naming_lacks(what: str, *texts: str) -> Iterator[None]:
    """Convert an `AttributeError` to a `SelectionError` that names the selections `texts`."""
    try:
        yield
    except AttributeError as error:
        # MDAnalysis raises this error if, for example, a topology has no residue names.
        raise SelectionError(
            f"{what}: {' and '.join(map(repr, texts))} needs an attribute that the topology lacks "
            f"({error}): use another selection, such as all, or another topology"
        ) from None


def relative_weights(atoms: Atoms, weights: object) -> np.ndarray | None:
    """Return the weights divided by their mean; None if `weights` is None."""
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "mass":
            raise TypeError(f"weights must be None, 'mass' or an array, not {weights!r}")
        weights = masses_of(atoms, "weights='mass'")
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError("weights must be None, 'mass' or a 1D array of float") from error
    if values.shape != (len(atoms),):
        raise ValueError(
            f"weights must have one number for each of {len(atoms)} atoms, not shape {values.shape}"
        )
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise ValueError("weights must be finite, none negative, and not all zero")
    return values / values.mean()
