"""Default batteries: analyses for the molecules of a system, and the choice of ligands."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline._util.option_values import BEADS_OF_BACKBONE, BEADS_OF_LIPIDS, LIPIDS, WATER_OXYGENS
from paceline.contract.catalogue import catalogue
from paceline.contract.system_interface import System
from paceline.errors import warn
from paceline.transform.ligands import find_ligands

#: Description of one analysis: its class, and its parameters as in Python.
Description = Mapping[str, Any]
#: Kinds of molecules, and selections that find one atom of each molecule.
SYSTEMS = {
    "protein": "protein and name CA",
    "coarse-grained protein": BEADS_OF_BACKBONE,
    "nucleic acid": "nucleic and name P",
    "membrane": LIPIDS,
    "liquid": WATER_OXYGENS,
    "ligand": "{ligand}",
    "ligand in water": "{ligand} and water",
}
#: Reasons why the battery of a coarse-grained system omits atomistic analyses, by the selection
#: that finds the beads.
LACK_OF_BEADS = {
    BEADS_OF_BACKBONE: {
        "sasa": "its radii are for atoms",
        "dssp": "it needs the atoms N, CA, C and O of the backbone",
        "ramachandran": "it needs the atoms N, CA and C of the backbone",
        "hbonds": "it needs hydrogens",
        "contact-map": "its cutoff is for atoms",
    },
    BEADS_OF_LIPIDS: {
        "order": "it needs hydrogens; 'paceline order --select-2' has P2 of bonds between beads",
    },
}
#: Placeholder for the selection of the system's ligands in the parameters of an entry.
LIGAND = SYSTEMS["ligand"]


def _default_batteries() -> dict[str, dict[str, dict[str, object]]]:
    """Collect the battery entries of all analyses by kind of molecule, in the order of `place`."""
    members = [(one, entry["name"]) for entry in catalogue().values() for one in entry["batteries"]]
    members.sort(key=lambda member: member[0]["place"])
    found: dict[str, dict[str, dict[str, object]]] = {key: {} for key in SYSTEMS.values()}
    for one, analysis in members:
        named = {} if one["name"] == analysis else {"analysis": analysis}
        found[SYSTEMS[one["system"]]][one["name"]] = named | one["parameters"]
    return found


#: Analyses of the default battery for each kind of molecule.
DEFAULTS: Mapping[str, Mapping[str, Mapping[str, object]]] = _default_batteries()


def default_descriptions(
    universe: System, ligands: Sequence[str]
) -> tuple[dict[str, Description], dict[str, str]]:
    """Describe the analyses for a system; also return the reasons why others are left out."""
    descriptions: dict[str, Description] = {}
    for selection, found in DEFAULTS.items():
        if LIGAND in selection:
            is_there = selection == LIGAND or _selects_atoms(universe, WATER_OXYGENS)
            descriptions |= insert_ligands(found, ligands) if ligands and is_there else {}
        elif _selects_atoms(universe, selection):
            descriptions |= found
    lacking = {
        name: f"the system is coarse-grained, and {reason}"
        for selection, reasons in LACK_OF_BEADS.items()
        if _selects_atoms(universe, selection)
        for name, reason in reasons.items()
        if selection == BEADS_OF_LIPIDS or name not in descriptions
    }
    return {name: one for name, one in descriptions.items() if name not in lacking}, lacking


def ligands_of(universe: System, given: str | None) -> list[str]:
    """Return selections of the given ligand, or of ligands that are found by name."""
    if given is not None:
        if given == "none":
            return []
        return [f"({given})" if " or " in given or " and " in given else given]
    if not _selects_atoms(universe, SYSTEMS["protein"]):
        return []
    found = find_ligands(universe)
    if text := found.describe():
        warn(f"{text}; ligand= (--ligand) sets others, by a selection")
    return [f"resname {name}" for name in found.taken]


def insert_ligands(value: object, ligands: Sequence[str]) -> Any:
    """Replace the placeholder `LIGAND` in parameters of entries by selections of ligands.

    In a list of only the placeholder, there is one selection per ligand; elsewhere one selection
    for all ligands.
    """
    if isinstance(value, Mapping):
        return {key: insert_ligands(one, ligands) for key, one in value.items()}
    if value == [LIGAND]:
        return [*ligands]
    if isinstance(value, list | tuple):
        return [insert_ligands(one, ligands) for one in value]
    together = " or ".join(ligands)
    if isinstance(value, str) and value != LIGAND and len(ligands) > 1:
        together = f"({together})"
    return value.replace(LIGAND, together) if isinstance(value, str) else value


def _selects_atoms(universe: System, selection: str) -> bool:
    try:
        return len(universe.select_atoms(selection)) > 0
    except AttributeError:  # topology without names or bonds
        return False
