"""The topology that GROMACS writes into its H5MD files: types of molecules, and how many of each.

/h5md/modules/gromacs_topology
    +-- version (0, 1), system_name
    +-- molecule_block_names, molecule_block_counts: kind and number of molecules of each block
    /KIND
        id, mass (u), charge (e), species (atomic number): of each particle
        particle_name, residue_name: indices into particle_name_table, residue_name_table
        residue_id: of each particle
/connectivity/bonds: pairs of particles of the whole system, counted from 0
"""

from dataclasses import dataclass

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.file import File, Group, damaged
from paceline.hdf5.topology import SystemTopology, read_pairs

#: Group of the module.
MODULE = "h5md/modules/gromacs_topology"
#: Its major version that is read.
_VERSION = 0
#: Prefix of GROMACS's names of molecules that pdb2gmx made of chains.
_CHAIN = "Protein_chain_"


@dataclass(frozen=True)
class MoleculeType:
    """One type of molecules."""

    name: str
    #: object, (n_atoms,).
    names: np.ndarray
    #: int, (n_atoms,): -1 for what is no element, as virtual sites are.
    atomic_numbers: np.ndarray
    #: float64, (n_atoms,), u and e.
    masses: np.ndarray
    charges: np.ndarray
    #: int64, (n_atoms,): residue of each atom.
    residue: np.ndarray
    #: int64 and object, (n_residues,), as in the input of GROMACS.
    resids: np.ndarray
    resnames: np.ndarray


def read_topology(file: File, n_atoms: int) -> SystemTopology | None:
    """Read the topology of GROMACS's module; None where there is none.

    Residues are numbered as in .gro files of GROMACS: a type with several residues keeps the
    numbers of its input, molecules of one residue are counted on behind the largest of them.
    Segments are the blocks of molecules, named as MDAnalysis's reader of TPR files does.
    """
    module = file.root.group(MODULE)
    if module is None:
        return None
    names, counts = _blocks(module)
    kinds = {name: _kind(module, name) for name in dict.fromkeys(names)}
    described = sum(
        int(count) * len(kinds[name].names) for name, count in zip(names, counts, strict=True)
    )
    if described != n_atoms or (counts < 0).any():
        raise UnsupportedError(
            f"{file.path}: {module.name} describes {described} atoms, the trajectory has {n_atoms}"
        )
    return _put_together([kinds[name] for name in names], counts, _bonds(file, n_atoms))


def _blocks(module: Group) -> tuple[list[str], np.ndarray]:
    """Read type and number of molecules of each block."""
    path, attrs = module.file.path, module.attrs
    version = attrs.get("version")
    if not isinstance(version, np.ndarray) or version.size < 1 or version.ravel()[0] != _VERSION:
        raise UnsupportedError(
            f"{path}: {module.name}: expected a topology of version {_VERSION}, found {version}; "
            "give a topology file"
        )
    names, counts = attrs.get("molecule_block_names"), attrs.get("molecule_block_counts")
    names = [names] if isinstance(names, str) else names or []
    counts = np.atleast_1d(np.asarray(counts))
    if not names or counts.dtype.kind not in "iu" or counts.shape != (len(names),):
        raise damaged(
            path,
            f"{module.name}, attributes molecule_block_names and molecule_block_counts",
            "a number for each name",
            f"{names!r} and {counts.tolist()!r}",
        )
    return names, counts


def _kind(module: Group, name: str) -> MoleculeType:
    group = module.group(name)
    if group is None:
        raise damaged(module.file.path, module.name, f"a molecule {name!r}", "none")
    masses = _numbers(group, "mass", None, "fiu").astype(np.float64)
    n_atoms = len(masses)
    resids = _numbers(group, "residue_id", n_atoms, "iu").astype(np.int64)
    resnames = _looked_up(group, "residue_name", n_atoms)
    begins = (resids[1:] != resids[:-1]) | (resnames[1:] != resnames[:-1])
    residue = np.concatenate([[0], np.cumsum(begins)])[:n_atoms]
    first = np.searchsorted(residue, np.arange(residue[-1] + 1 if n_atoms else 0))
    return MoleculeType(
        name,
        _looked_up(group, "particle_name", n_atoms),
        _numbers(group, "species", n_atoms, "iu"),
        masses,
        _numbers(group, "charge", n_atoms, "fiu").astype(np.float64),
        residue.astype(np.int64),
        resids[first],
        resnames[first],
    )


def _numbers(group: Group, name: str, n_atoms: int | None, kinds: str) -> np.ndarray:
    """Read one number of each particle."""
    array = group.array(name)
    wanted = "one" if n_atoms is None else f"{n_atoms}"
    where = f"{group.name}/{name}"
    if array is None:
        raise damaged(group.file.path, where, f"{wanted} of each particle", "nothing")
    if (
        array.dtype.kind not in kinds
        or len(array.shape) != 1
        or n_atoms not in (None, *array.shape)
    ):
        found = f"{array.dtype} of shape {array.shape}"
        raise damaged(group.file.path, where, f"numbers of {n_atoms or 'all'} particles", found)
    return array.read()


def _looked_up(group: Group, name: str, n_atoms: int) -> np.ndarray:
    """Read names, which a table holds once each."""
    places = _numbers(group, name, n_atoms, "iu")
    table = group.array(f"{name}_table")
    if table is None or not table.is_text or len(table.shape) != 1:
        raise damaged(group.file.path, f"{group.name}/{name}_table", "names", "none")
    if len(places) and not 0 <= places.min() <= places.max() < table.shape[0]:
        raise damaged(
            group.file.path,
            f"{group.name}/{name}",
            f"places in a table of {table.shape[0]} names",
            f"{places.min()} to {places.max()}",
        )
    return table.read()[places]


def _bonds(file: File, n_atoms: int) -> np.ndarray | None:
    array = file.root.array("connectivity/bonds")
    return None if array is None else read_pairs(array, n_atoms)


def _put_together(
    blocks: list[MoleculeType], counts: np.ndarray, bonds: np.ndarray | None
) -> SystemTopology:
    """Join the molecules of all blocks, one after another."""

    def of_all(name: str) -> np.ndarray:
        parts = zip((getattr(kind, name) for kind in blocks), counts, strict=True)
        return np.concatenate([np.tile(part, count) for part, count in parts])

    n_atoms = np.array([len(kind.names) for kind in blocks])
    n_residues = np.array([len(kind.resids) for kind in blocks])
    block_of = np.repeat(np.arange(len(blocks)), counts)
    residues_of = n_residues[block_of]
    residues_before = np.cumsum(residues_of) - residues_of
    resids, alone = of_all("resids"), np.repeat(residues_of == 1, residues_of)
    resids[alone] = resids[~alone].max(initial=0) + 1 + np.arange(alone.sum())
    names = np.array([kind.name for kind in blocks], dtype=object)
    chains = np.array([kind.name.removeprefix(_CHAIN) for kind in blocks], dtype=object)
    return SystemTopology(
        {
            "ids": np.arange(1, (n_atoms * counts).sum() + 1),
            "chainIDs": np.repeat(chains, n_atoms * counts),
            **{name: of_all(name) for name in ("names", "atomic_numbers", "masses", "charges")},
        },
        of_all("residue") + np.repeat(residues_before, n_atoms[block_of]),
        {
            "resids": resids,
            "resnames": of_all("resnames"),
            "moltypes": np.repeat(names, n_residues * counts),
            "molnums": np.repeat(np.arange(len(block_of)), residues_of),
        },
        np.repeat(np.arange(len(blocks)), n_residues * counts),
        np.array([f"seg_{k}_{name}" for k, name in enumerate(names)], dtype=object),
        bonds,
    )
