"""Battery files in TOML: descriptions of analyses, and groups of replicas."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paceline.analysis.default_batteries import Description
from paceline.errors import UnsupportedError
from paceline.trajectory.open import files_named


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
