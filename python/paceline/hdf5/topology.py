"""Topologies in HDF5 files as plain data, and columns of atom properties."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.elements import SampledElement, match_rows
from paceline.hdf5.file import Array, File, damaged
from paceline.hdf5.h5md import Particles
from paceline.hdf5.units import factor_of

#: Group in which paceline stores labels that H5MD does not define.
LABELS = "parameters/atoms"
#: MDAnalysis's names of these labels.
_OF_ATOMS = {"name": "names", "type": "types"}
_OF_RESIDUES = {"resid": "resids", "resname": "resnames"}
#: Most characters of a name that is read a part at a time.
WIDTH = 8
#: H5MD's name of numbers that are read a part at a time.
_NUMBERS = {"masses": "mass", "charges": "charge"}


@dataclass(frozen=True)
class SystemTopology:
    """Atoms, residues and segments, counted from 0, by MDAnalysis's names."""

    #: (n_atoms,) each, out of "names", "types", "elements", "ids", "masses" (u), "charges" (e),
    #: "chainIDs" and "atomic_numbers".
    atoms: Mapping[str, np.ndarray]
    #: int64, (n_atoms,): residue of each atom.
    residue: np.ndarray
    #: (n_residues,) each, out of "resids", "resnames", "moltypes", "molnums".
    residues: Mapping[str, np.ndarray]
    #: int64, (n_residues,): segment of each residue.
    segment: np.ndarray
    #: object, (n_segments,).
    segids: np.ndarray
    #: int64, (n_bonds, 2); None where nothing is known of them.
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
        """Make MDAnalysis's topology."""
        # The process that reads files does not load MDAnalysis.
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
    """Read pairs of atoms, counted from 0: int64, (n_pairs, 2)."""
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
    """Read properties of particles in an H5MD file: labels, masses, charges, species, ids, bonds.

    Of properties that change the first frame counts. Masses and charges without a unit are taken to
    be in u and e.
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
    """Read one value of each of our atoms: of all times, or of the first frame."""
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
    """Read masses and charges, u and e, and ids."""
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
        raise UnsupportedError(f"{path}: {element.name}: {error}; give a topology file") from None


def _species(particles: Particles) -> dict[str, np.ndarray]:
    """Read kinds of atoms: by name where the file has names."""
    each = _read_property(particles, "species")
    if each is None:
        return {}
    element, values = each
    names = element.values.enum_names or {}
    # ZnH5MD stores numbers of species as floats.
    kinds = [int(value) if value == value // 1 else value for value in values.tolist()]
    return {"types": np.array([names.get(kind, str(kind)) for kind in kinds], dtype=object)}


def _labels(particles: Particles) -> dict[str, np.ndarray]:
    """Read names of atoms and of residues that paceline wrote."""
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
    """Read bonds, where they are of this group: its own, or the file's only one."""
    array = particles.file.root.array("connectivity/bonds")
    if array is None or particles.particle_ids is not None or not particles.is_only_one:
        return None
    return read_pairs(array, particles.n_atoms)


def _with_residues(
    atoms: dict[str, np.ndarray], labels: dict[str, np.ndarray], bonds: np.ndarray | None
) -> SystemTopology:
    """Begin residues and segments where a label changes."""
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
    """Number rows of neighbours with the same labels."""
    changes = [label[1:] != label[:-1] for label in labels]
    return np.concatenate([[0], np.cumsum(np.any(changes, axis=0))]).astype(np.int64)


class AtomRow(NamedTuple):
    """Location of one value of each atom slot, in one frame."""

    dataset: str
    #: None where the dataset has none for each frame.
    row: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class AtomColumn:
    """Location of one value of each atom slot, in all frames."""

    dataset: str
    #: int64, (n_frames,): `ABSENT` where a frame has none; None where frame k is row k.
    rows: np.ndarray | None = None
    #: True where it holds for all frames and has no rows.
    is_fixed: bool = True
    factor: float = 1.0

    def of(self, frame: int) -> AtomRow | None:
        """Locate the values of a frame; None where it has none."""
        if self.is_fixed:
            return AtomRow(self.dataset, None, self.factor)
        row = frame if self.rows is None else int(self.rows[frame])
        return None if row == ABSENT else AtomRow(self.dataset, row, self.factor)


def find_atom_columns(
    path: str, *, group: str | None = None, external: bool = False
) -> dict[str, AtomColumn]:
    """Find the properties of atoms that can be read a part at a time.

    "names" of at most 8 bytes, "masses" (u) and "charges" (e). Where atoms change their slots, only
    properties that were sampled with them.
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
    """Read values of slots `first` to `last` - 1 through HDF5's own library.

    "ids" as int64, "names" as uint8 of shape (n, 8), zeros behind the last character, all else as
    float64.
    """
    found: dict[str, np.ndarray] = {}
    slots = slice(first, last)
    # `find_atom_columns` has found them, within the file unless more was asked for.
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
