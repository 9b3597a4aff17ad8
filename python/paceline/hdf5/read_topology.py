"""Topologies in HDF5 files, including GROMACS's, as plain data; columns of atom properties."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.elements import SampledElement, match_rows
from paceline.hdf5.file import Array, File, Group, damaged
from paceline.hdf5.h5md_particles import Particles
from paceline.hdf5.units import factor_of

#: Group in which paceline stores labels that H5MD does not define.
LABELS = "parameters/atoms"
#: MDAnalysis's attribute for each label of atoms, and of residues, in the group `LABELS`.
_OF_ATOMS = {"name": "names", "type": "types"}
_OF_RESIDUES = {"resid": "resids", "resname": "resnames"}
#: Maximum length, bytes, of names that can be read for a range of atoms.
WIDTH = 8
#: H5MD name of each atom property that is a number and can be read for a range of atoms.
_NUMBERS = {"masses": "mass", "charges": "charge"}
#: Group of GROMACS's topology module.
GROMACS_MODULE = "h5md/modules/gromacs_topology"
#: Supported major version of GROMACS's topology module.
_MAJOR = 0
#: Prefix of the molecule names that pdb2gmx derives from chains.
_GROMACS_CHAIN = "Protein_chain_"


@dataclass(frozen=True)
class SystemTopology:
    """Atoms, residues and segments, counted from 0, under MDAnalysis's attribute names."""

    #: Known attributes among "names", "types", "elements", "ids", "masses" (u), "charges" (e),
    #: "chainIDs" and "atomic_numbers"; arrays of shape (n_atoms,).
    atoms: Mapping[str, np.ndarray]
    #: Residue index of each atom, int64, (n_atoms,).
    residue: np.ndarray
    #: Known attributes among "resids", "resnames", "moltypes", "molnums"; arrays of shape
    #: (n_residues,).
    residues: Mapping[str, np.ndarray]
    #: Segment index of each residue, int64, (n_residues,).
    segment: np.ndarray
    #: Names of segments, object, (n_segments,).
    segids: np.ndarray
    #: Indices of bonded atoms, int64, (n_bonds, 2); None if bonds are unknown.
    bonds: np.ndarray | None = None

    @classmethod
    def without_residues(
        cls, atoms: Mapping[str, np.ndarray], n_atoms: int, bonds: np.ndarray | None = None
    ) -> "SystemTopology":
        """Put all atoms into one residue and one segment, as MDAnalysis does."""
        one = np.zeros(n_atoms, dtype=np.int64)
        segids = np.array(["SYSTEM"], dtype=object)
        return cls(atoms, one, {"resids": np.ones(1, dtype=np.int64)}, one[:1], segids, bonds)

    def topology(self) -> Any:
        """Convert the atoms, residues and segments to a topology of MDAnalysis."""
        # Deferred: the process that reads files does not load MDAnalysis.
        from MDAnalysis.core import topologyattrs
        from MDAnalysis.core.topology import Topology
        from MDAnalysis.guesser.tables import SYMB2Z, Z2SYMB

        kinds = {
            "names": topologyattrs.Atomnames,
            "types": topologyattrs.Atomtypes,
            "elements": topologyattrs.Elements,
            "ids": topologyattrs.Atomids,
            "masses": topologyattrs.Masses,
            "charges": topologyattrs.Charges,
            "chainIDs": topologyattrs.ChainIDs,
            "resids": topologyattrs.Resids,
            "resnums": topologyattrs.Resnums,
            "resnames": topologyattrs.Resnames,
            "moltypes": topologyattrs.Moltypes,
            "molnums": topologyattrs.Molnums,
        }
        atoms = dict(self.atoms)
        if "atomic_numbers" in atoms:
            symbols = [Z2SYMB.get(number, "") for number in atoms.pop("atomic_numbers").tolist()]
            atoms["elements"] = np.array(symbols, dtype=object)
        if "elements" not in atoms and set(atoms.get("types", [""])) <= set(SYMB2Z):
            atoms["elements"] = atoms["types"].copy()
        residues = {**self.residues, "resnums": self.residues["resids"].copy()}
        attributes = [kinds[name](values) for name, values in {**atoms, **residues}.items()]
        attributes.append(topologyattrs.Segids(self.segids))
        if self.bonds is not None:
            attributes.append(topologyattrs.Bonds([tuple(pair) for pair in self.bonds.tolist()]))
        return Topology(
            len(self.residue),
            len(self.segment),
            len(self.segids),
            attrs=attributes,
            atom_resindex=self.residue,
            residue_segindex=self.segment,
        )


def read_pairs(array: Array, n_atoms: int) -> np.ndarray:
    """Read atom pairs, counted from 0: int64, (n_pairs, 2)."""
    if array.dtype.kind not in "iu" or len(array.shape) != 2 or array.shape[1] != 2:
        found = f"{array.dtype} of shape {array.shape}"
        raise damaged(array.file.path, array.name, "pairs of atoms", found)
    pairs: np.ndarray = array.read().astype(np.int64)
    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < n_atoms:
        raise damaged(
            array.file.path,
            array.name,
            f"pairs of {n_atoms} atoms, counted from 0",
            f"{pairs.min()} to {pairs.max()}",
        )
    return pairs


def read_h5md_topology(particles: Particles) -> SystemTopology:
    """Read particle properties of an H5MD file: labels, masses, charges, species, ids, bonds.

    Time-dependent properties are read from the first frame. Without a unit, masses are taken to be
    in u, and charges in e.
    """
    labels = _labels(particles)
    atoms = {**_numbers_of_atoms(particles), **_species(particles)}
    atoms |= {theirs: labels[ours] for ours, theirs in _OF_ATOMS.items() if ours in labels}
    ids = particles.particle_ids
    if ids is not None:
        atoms["ids"] = ids.numbers
    bonds = _bonds(particles)
    if "resid" not in labels:
        return SystemTopology.without_residues(atoms, particles.n_atoms, bonds)
    return _with_residues(atoms, labels, bonds)


def _read_property(particles: Particles, name: str) -> tuple[SampledElement, np.ndarray] | None:
    """Read one value per atom of a property, in the first frame if the property depends on time.

    Returns the element and the values; None if the file has no such numbers.
    """
    element = particles.elements.find(particles.group, name, rank=1)
    if element is None or not element.n_rows or not particles.frames.n_rows:
        return None
    array = element.values
    if array.is_text or array.dtype.kind not in "fiu" or array.shape[-1:] != (particles.n_slots,):
        return None
    if element.steps is None:
        values = array.read()
    else:
        row = _row_of_first_frame(element, particles.frames)
        if row == ABSENT:
            return None
        values = array.read(slice(row, row + 1))[0]
    return (element, values[particles.slots]) if values.ndim == 1 else None


def _row_of_first_frame(element: SampledElement, frames: SampledElement) -> int:
    try:
        rows = match_rows(element, frames)
    except UnsupportedError:
        return ABSENT
    return 0 if rows is None else int(rows[0])


def _numbers_of_atoms(particles: Particles) -> dict[str, np.ndarray]:
    """Read masses (u), charges (e) and ids."""
    found = {}
    for name, theirs in (("mass", "masses"), ("charge", "charges")):
        each = _read_property(particles, name)
        if each is not None:
            found[theirs] = each[1].astype(np.float64) * _factor(each[0], name)
    each = _read_property(particles, "id")
    if each is not None and particles.particle_ids is None:
        found["ids"] = each[1].astype(np.int64)
    return found


def _factor(element: SampledElement, quantity: str) -> float:
    if element.unit is None:
        return 1.0
    try:
        return factor_of(element.unit, quantity)
    except UnsupportedError as error:
        path = element.values.file.path
        raise UnsupportedError(f"{path}: {element.name}: {error}; use a topology file") from None


def _species(particles: Particles) -> dict[str, np.ndarray]:
    """Read the species of atoms, as names if the file contains names."""
    each = _read_property(particles, "species")
    if each is None:
        return {}
    element, values = each
    names = element.values.enum_names or {}
    # ZnH5MD stores species numbers as floats.
    kinds = [int(value) if value == value // 1 else value for value in values.tolist()]
    return {"types": np.array([names.get(kind, str(kind)) for kind in kinds], dtype=object)}


def _labels(particles: Particles) -> dict[str, np.ndarray]:
    """Read labels of atoms that paceline wrote, such as atom names and residue numbers."""
    group = particles.file.root.group(LABELS)
    if group is None:
        return {}
    arrays = [node for node in group.children() if isinstance(node, Array)]
    return {
        array.name.rpartition("/")[2]: array.read()[particles.slots]
        for array in arrays
        if array.shape == (particles.n_slots,)
    }


def _bonds(particles: Particles) -> np.ndarray | None:
    """Read the bonds in the file; None without bonds, with several groups, or if slots change."""
    array = particles.file.root.array("connectivity/bonds")
    if array is None or particles.particle_ids is not None or not particles.is_only_one:
        return None
    return read_pairs(array, particles.n_atoms)


def _with_residues(
    atoms: dict[str, np.ndarray], labels: dict[str, np.ndarray], bonds: np.ndarray | None
) -> SystemTopology:
    """Create a topology from labels of atoms; where they change, a residue or segment begins."""
    n_atoms = len(labels["resid"])
    segids = labels.get("segid", np.full(n_atoms, "SYSTEM", dtype=object))
    of_residues = [labels[name] for name in _OF_RESIDUES if name in labels]
    residue = _number_runs([*of_residues, segids])
    first = np.unique(residue, return_index=True)[1]
    segment = _number_runs([segids[first]])
    values = {
        theirs: labels[ours][first] for ours, theirs in _OF_RESIDUES.items() if ours in labels
    }
    names = segids[first][np.unique(segment, return_index=True)[1]]
    return SystemTopology(atoms, residue, values, segment, names, bonds)


def _number_runs(labels: list[np.ndarray]) -> np.ndarray:
    """For each row, return the number of its run of adjacent rows with equal labels, from 0."""
    changes = [label[1:] != label[:-1] for label in labels]
    return np.concatenate([[0], np.cumsum(np.any(changes, axis=0))]).astype(np.int64)


class AtomRow(NamedTuple):
    """Location in a file of an atom property in one frame: one value per atom slot."""

    dataset: str
    #: Row in the dataset; None for a time-independent dataset.
    row: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class AtomColumn:
    """Location in a file of an atom property in all frames: one value per atom slot and row."""

    dataset: str
    #: Row of each frame, int64, (n_frames,), `ABSENT` for a frame without a value. None if the row
    #: of each frame equals its number.
    rows: np.ndarray | None = None
    #: True if the column is time-independent and has no rows.
    is_fixed: bool = True
    factor: float = 1.0

    def of(self, frame: int) -> AtomRow | None:
        """Return the location of a frame's values; None if the frame has none."""
        if self.is_fixed:
            return AtomRow(self.dataset, None, self.factor)
        row = frame if self.rows is None else int(self.rows[frame])
        return None if row == ABSENT else AtomRow(self.dataset, row, self.factor)


def find_atom_columns(
    path: str, *, group: str | None = None, external: bool = False
) -> dict[str, AtomColumn]:
    """Find the atom properties that can be read for a range of atoms.

    These properties are "names" of at most 8 bytes, "masses" (u) and "charges" (e). If atoms may
    change their slots, only time-dependent properties are returned.
    """
    with File(path, external=external) as file:
        particles = Particles(file, group)
        found = {ours: _numbers(particles, name) for ours, name in _NUMBERS.items()}
        found["names"] = _names(particles)
    return {name: column for name, column in found.items() if column is not None}


def _names(particles: Particles) -> AtomColumn | None:
    labels = particles.file.root.group(LABELS)
    array = None if labels is None else labels.get("name")
    if particles.particle_ids is not None or not isinstance(array, Array):
        return None
    if array.dtype.kind != "S" or array.dtype.itemsize > WIDTH:
        return None
    return AtomColumn(array.name) if _is_readable(array, (particles.n_slots,)) else None


def _numbers(particles: Particles, name: str) -> AtomColumn | None:
    element = particles.elements.find(particles.group, name, rank=1)
    if element is None or element.values.dtype.kind not in "fiu":
        return None
    values, is_fixed = element.values, element.steps is None
    shape = (particles.n_slots,) if is_fixed else (*values.shape[:1], particles.n_slots)
    if (is_fixed and particles.particle_ids is not None) or not _is_readable(values, shape):
        return None
    try:
        factor = 1.0 if element.unit is None else factor_of(element.unit, name)
        rows = None if is_fixed else match_rows(element, particles.frames)
    except UnsupportedError:
        return None
    return AtomColumn(values.name, rows, is_fixed, factor)


def _is_readable(array: Array, shape: tuple[int, ...]) -> bool:
    array.check_size()
    array.check_filters()
    return array.shape == shape


def read_atom_rows(
    path: str, rows: Mapping[str, AtomRow], first: int, last: int
) -> dict[str, np.ndarray]:
    """Read values of slots `first` to `last` - 1 through the HDF5 library.

    Returns "ids" as int64, "names" as uint8 of shape (n, 8), padded with zeros, and other
    properties as float64.
    """
    found: dict[str, np.ndarray] = {}
    slots = slice(first, last)
    # `find_atom_columns` chose the datasets: they are in this file unless `external` was set.
    with File(path, external=True) as file:
        for name, row in rows.items():
            array = file.root[row.dataset]
            assert isinstance(array, Array)
            if row.row is None:
                part = array.part(slots)
            else:
                part = array.part(slice(row.row, row.row + 1), slots)[0]
            if name == "ids":
                found[name] = part.astype(np.int64, copy=False)
            elif name == "names":
                found[name] = _characters(array, part)
            else:
                found[name] = part.astype(np.float64, copy=False) * row.factor
    return found


def _characters(array: Array, names: np.ndarray) -> np.ndarray:
    codes = np.char.rstrip(names).astype(f"S{WIDTH}").view(np.uint8).reshape(-1, WIDTH)
    if (codes > ord("~")).any():
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: expected names in ASCII, found another character"
        )
    return codes


@dataclass(frozen=True)
class MoleculeType:
    """Molecule type of a GROMACS topology, with properties of the atoms of one molecule."""

    name: str
    #: Atom names, object, (n_atoms,).
    names: np.ndarray
    #: Atomic numbers, int, (n_atoms,); -1 for particles without an element, such as virtual sites.
    atomic_numbers: np.ndarray
    #: Masses and charges, float64, (n_atoms,), u and e.
    masses: np.ndarray
    charges: np.ndarray
    #: Residue index of each atom, int64, (n_atoms,).
    residue: np.ndarray
    #: Residue numbers and names, int64 and object, (n_residues,), as in the input of GROMACS.
    resids: np.ndarray
    resnames: np.ndarray


def read_gromacs_topology(file: File, n_atoms: int) -> SystemTopology | None:
    """Read GROMACS's molecule types and numbers of molecules; None if the file has none.

    /h5md/modules/gromacs_topology
        +-- version (0, 1), system_name
        +-- molecule_block_names, molecule_block_counts: kind and number of molecules of each block
        /KIND
            id, mass (u), charge (e), species (atomic number): of each particle
            particle_name, residue_name: indices into particle_name_table, residue_name_table
            residue_id: of each particle
    /connectivity/bonds: pairs of particles of the whole system, counted from 0

    Residues are numbered as in GROMACS's .gro files. A type with several residues keeps the
    numbers of its input; molecules of one residue are numbered after the largest of these numbers.
    Segments are the blocks of molecules, with the names that MDAnalysis's TPR reader uses.
    """
    module = file.root.group(GROMACS_MODULE)
    if module is None:
        return None
    names, counts = _molecule_blocks(module)
    kinds = {name: _molecule_type(module, name) for name in dict.fromkeys(names)}
    described = sum(
        int(count) * len(kinds[name].names) for name, count in zip(names, counts, strict=True)
    )
    if described != n_atoms or (counts < 0).any():
        raise UnsupportedError(
            f"{file.path}: {module.name} describes {described} atoms, the trajectory has {n_atoms}"
        )
    return _join_molecules([kinds[name] for name in names], counts, _all_bonds(file, n_atoms))


def _molecule_blocks(module: Group) -> tuple[list[str], np.ndarray]:
    """Read type and number of molecules of each block."""
    path, attrs = module.file.path, module.attrs
    version = attrs.get("version")
    if not isinstance(version, np.ndarray) or version.size < 1 or version.ravel()[0] != _MAJOR:
        raise UnsupportedError(
            f"{path}: {module.name}: expected a topology of version {_MAJOR}, found {version}; "
            "use a topology file"
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


def _molecule_type(module: Group, name: str) -> MoleculeType:
    group = module.group(name)
    if group is None:
        raise damaged(module.file.path, module.name, f"a molecule {name!r}", "none")
    masses = _particle_numbers(group, "mass", None, "fiu").astype(np.float64)
    n_atoms = len(masses)
    resids = _particle_numbers(group, "residue_id", n_atoms, "iu").astype(np.int64)
    resnames = _particle_names(group, "residue_name", n_atoms)
    begins = (resids[1:] != resids[:-1]) | (resnames[1:] != resnames[:-1])
    residue = np.concatenate([[0], np.cumsum(begins)])[:n_atoms]
    first = np.searchsorted(residue, np.arange(residue[-1] + 1 if n_atoms else 0))
    return MoleculeType(
        name,
        _particle_names(group, "particle_name", n_atoms),
        _particle_numbers(group, "species", n_atoms, "iu"),
        masses,
        _particle_numbers(group, "charge", n_atoms, "fiu").astype(np.float64),
        residue.astype(np.int64),
        resids[first],
        resnames[first],
    )


def _particle_numbers(group: Group, name: str, n_atoms: int | None, kinds: str) -> np.ndarray:
    """Read one number for each particle."""
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


def _particle_names(group: Group, name: str, n_atoms: int) -> np.ndarray:
    """Read one name for each particle; names are stored as indices into a table."""
    places = _particle_numbers(group, name, n_atoms, "iu")
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


def _all_bonds(file: File, n_atoms: int) -> np.ndarray | None:
    array = file.root.array("connectivity/bonds")
    return None if array is None else read_pairs(array, n_atoms)


def _join_molecules(
    blocks: list[MoleculeType], counts: np.ndarray, bonds: np.ndarray | None
) -> SystemTopology:
    """Concatenate the molecules of all blocks."""

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
    chains = np.array([kind.name.removeprefix(_GROMACS_CHAIN) for kind in blocks], dtype=object)
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
