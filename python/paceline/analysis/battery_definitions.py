"""Descriptions of batteries: default ones for the molecules of a system, and files in TOML."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from paceline._util.option_values_and_selections import (
    BEADS_OF_BACKBONE,
    BEADS_OF_LIPIDS,
    LIPIDS,
    WATER_OXYGENS,
)
from paceline.contract.analysis_declaration import Description
from paceline.contract.read_catalogue import catalogue
from paceline.contract.system_interface import System
from paceline.errors import UnsupportedError, warn
from paceline.trajectory.open import files_named
from paceline.transform.find_ligands import find_ligands

#: Kinds of molecules, and selections of some of their atoms, such as one of each residue.
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
#: Placeholder for the selection of the system's ligands, in parameters of the catalogue's analyses.
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


#: Analyses of the default battery for each kind of molecule, by the selection that finds it.
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

    A list that contains only the placeholder becomes a list of one selection per ligand. Elsewhere,
    the placeholder becomes one selection of all ligands.
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


class ReplicaFiles(NamedTuple):
    """Group of replicas: one topology, and the trajectory files of each replica."""

    topology: str
    replicas: list[list[str]]


def read_battery_file(
    path: str | os.PathLike,
) -> tuple[dict[str, Description], dict[str, ReplicaFiles]]:
    """Read descriptions of analyses, and groups of replicas if there are any, from a TOML file."""
    where = os.fspath(path)
    with open(path, "rb") as file:
        try:
            found = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UnsupportedError(f"{where}: not valid TOML: {error}") from None
    groups = found.pop("groups", {})
    for name, value in found.items():
        if not isinstance(value, dict):
            raise UnsupportedError(
                f"{where}: expected a table for each analysis, such as [rmsd], "
                f"found {name} = {value!r}"
            )
    if not isinstance(groups, dict):
        raise UnsupportedError(f"{where}: expected tables [groups.NAME], found {groups!r}")
    return found, {name: _group(f"{where}: [groups.{name}]", one) for name, one in groups.items()}


def _group(where: str, described: object) -> ReplicaFiles:
    """Check the table of a group, and return its files."""
    keys = {"topology", "trajectories"}
    if not isinstance(described, dict) or described.keys() != keys:
        raise UnsupportedError(f"{where}: expected topology and trajectories, found {described!r}")
    topology, given = described["topology"], described["trajectories"]
    given = [given] if isinstance(given, str) else given
    texts = [topology, *(given if isinstance(given, list) else [given])]
    flat = [one for text in texts for one in (text if isinstance(text, list) else [text])]
    if not all(isinstance(one, str) for one in flat) or len(texts) == 1:
        raise UnsupportedError(
            f"{where}: expected the name of a topology, and trajectories as a pattern, or a list "
            f"whose items are files or lists of files, found {described!r}"
        )
    return ReplicaFiles(topology, replicas_named(given))


def replicas_named(given: Sequence[str | Sequence[str]]) -> list[list[str]]:
    """Return the files of each replica.

    Each file that matches a pattern is a replica, and each list of files is one replica.

    Examples
    --------
    >>> replicas_named(["1.xtc", ["2a.xtc", "2b.xtc"]])
    [['1.xtc'], ['2a.xtc', '2b.xtc']]
    """
    replicas = []
    for one in given:
        if isinstance(one, str):
            replicas += [[name] for name in files_named(one)]
        else:
            replicas.append([name for part in one for name in files_named(part)])
    known: set[tuple[str, ...]] = set()
    for files in replicas:
        if (places := tuple(map(os.path.realpath, files))) in known:
            raise UnsupportedError(
                f"{' '.join(files)}: given as two replicas of a group, whose means would seem to "
                "agree: list each file only once"
            )
        known.add(places)
    return replicas


def toml_of(tables: Mapping[str, Mapping[str, object]], parent: str = "") -> str:
    """Format TOML tables whose names begin with `parent`."""
    texts = []
    for name, values in tables.items():
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        texts.append("\n".join([f"[{parent}{_key(name)}]", *lines]))
    return "\n\n".join(texts) + "\n"


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else _toml(name)


def _toml(value: object) -> str:
    """Format a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # TOML allows all escapes of JSON.
        import json

        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
