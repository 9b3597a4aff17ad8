"""The topology in MDTraj's HDF5 files: JSON, chains of residues of atoms."""

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from paceline.hdf5.apart import allow
from paceline.hdf5.native import File, damaged
from paceline.hdf5.system import System

#: Seconds that a character may take, at the most.
_PARSING = 1e-6


def system_of(file: File, n_atoms: int) -> System | None:
    """The atoms that an MDTraj file describes.

    Parameters
    ----------
    file : File
        An HDF5 file of MDTraj's convention.
    n_atoms : int
        Atoms of the trajectory.

    Returns
    -------
    System or None
        None where the file has no topology.

    Raises
    ------
    DamagedFileError
        It is not the JSON that MDTraj writes, or of another number of atoms.
    """
    array = file.root.array("topology")
    if array is None:
        return None
    texts = np.ravel(array.read())
    try:
        allow(len(texts[0]) * _PARSING)
        system = _of_chains(json.loads(texts[0]))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"
        raise damaged(file.path, array.name, "MDTraj's topology as JSON", reason) from error
    found = len(system.residue)
    if found != n_atoms:
        raise damaged(
            file.path, array.name, f"{n_atoms} atoms, as the coordinates have", f"{found}"
        )
    if system.bonds is not None and not (system.bonds < n_atoms).all():
        raise damaged(file.path, array.name, f"bonds of {n_atoms} atoms", str(system.bonds.max()))
    return system


def _of_chains(topology: Mapping[str, Any]) -> System:
    chains = sorted(topology["chains"], key=itemgetter("index"))
    residues = [
        (k, residue)
        for k, chain in enumerate(chains)
        for residue in sorted(chain["residues"], key=itemgetter("index"))
    ]
    atoms = [
        (k, atom)
        for k, (_, residue) in enumerate(residues)
        for atom in sorted(residue["atoms"], key=itemgetter("index"))
    ]
    segids = [_name_of(chain, k) for k, chain in enumerate(chains)]
    resids = [residue.get("resSeq", k) for k, (_, residue) in enumerate(residues)]
    bonds = np.array([bond[:2] for bond in topology.get("bonds", ())], dtype=np.uint32)
    return System(
        {
            "names": _texts(atom["name"] for _, atom in atoms),
            "elements": _texts(_symbol(atom.get("element")) for _, atom in atoms),
        },
        np.array([k for k, _ in atoms], dtype=np.int64),
        {
            "resids": np.array(resids, dtype=np.int64),
            "resnames": _texts(residue["name"] for _, residue in residues),
        },
        np.array([k for k, _ in residues], dtype=np.int64),
        _texts(segids),
        bonds.reshape(-1, 2).astype(np.int64),
    )


def _name_of(chain: Mapping[str, Any], number: int) -> str:
    """A chain's segment, else the chain's own name, else its number."""
    first: Mapping[str, Any] = next(iter(chain["residues"]), {})
    return first.get("segmentID") or chain.get("chain_id") or str(number)


def _symbol(element: Any) -> str:
    """MDTraj's virtual sites have a symbol of their own."""
    return "" if element in (None, "VS") else str(element)


def _texts(texts: Any) -> np.ndarray:
    return np.array([str(text) for text in texts], dtype=object)
