"""Create the tree of an H5MD file: units, time axis, cell, atoms and provenance.

Callers pass an open file; `paceline.hdf5.dataset_writers` writes the field values. This module does
not read the clock, so that equal calls write equal bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from typing import Any, Self

import numpy as np

from paceline._core import __version__
from paceline._util.files import escaped
from paceline._util.machine_and_software import current_user
from paceline.contract.system_interface import (
    Atoms,
    TopologyAttribute,
    attribute_of,
    topology_attributes_of,
)
from paceline.errors import UnwritableError
from paceline.hdf5.units import OUR_UNITS, factor_of

#: Version of H5MD that files follow.
H5MD_VERSION = (1, 1)
#: Version of H5MD's units module that files follow.
UNITS_VERSION = (1, 0)
#: Name of the particles group, as in MDAnalysis.
GROUP = "trajectory"
#: Name of the H5MD element that contains each field.
ELEMENTS = {"positions": "position", "velocities": "velocity", "forces": "force"}
#: Observable that contains λ of a free-energy run; the name is MDAnalysis's.
LAMBDA = "lambda"
#: Physical quantity of each dataset that has a unit, by the name of the dataset.
QUANTITIES = {
    "position": "length",
    "velocity": "velocity",
    "force": "force",
    "edges": "length",
    "time": "time",
    "mass": "mass",
    "charge": "charge",
}

#: Labels of atoms: MDAnalysis's attribute, and paceline's name of the dataset.
_LABELS = {
    "names": "name",
    "types": "type",
    "resnames": "resname",
    "resids": "resid",
    "segids": "segid",
}
#: Maximum number of kinds of atoms, whose names must fit into an HDF5 header of 64 kB.
_MOST_KINDS = 1000
#: Filters for atom properties; for a solvated protein they save nine tenths of the bytes.
_PACKED: Mapping[str, object] = {"compression": "gzip", "shuffle": True}
#: Number of rows in a chunk of steps, times or cells, in a file to which frames are appended.
_ROWS = 512
#: Number of atoms in a chunk of an atom property.
_ATOMS = 2**16


@dataclass(frozen=True)
class AtomProperties:
    """Properties of the atoms that apply to all frames."""

    #: Number of atoms in each frame of the file.
    n_atoms: int
    #: Known values of "mass" (u) and "charge" (e).
    numbers: Mapping[str, np.ndarray] = data_field(default_factory=dict)
    #: Names in `numbers` whose values MDAnalysis guessed from the types or names of the atoms.
    guessed: tuple[str, ...] = ()
    #: Chemical elements, or atom types if the topology has no elements.
    kinds: tuple[str, ...] = ()
    #: Index into `kinds` for each atom, int32, shape (n_atoms,); empty if kinds are unknown.
    species: np.ndarray = data_field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: Known labels among "name", "type", "resname", "resid" and "segid".
    labels: Mapping[str, np.ndarray] = data_field(default_factory=dict)
    #: Indices of bonded atoms, from 0, int32, shape (n_bonds, 2).
    bonds: np.ndarray = data_field(default_factory=lambda: np.empty((0, 2), dtype=np.int32))

    @classmethod
    def of(cls, atomgroup: Atoms) -> Self:
        """Read the properties from the topology of a group, in the order of its atoms."""
        numbers = {
            name: np.asarray(values, dtype=np.float64)
            for name, plural in (("mass", "masses"), ("charge", "charges"))
            if (values := attribute_of(atomgroup, plural)) is not None
        }
        labels = {
            ours: np.asarray(values)
            for theirs, ours in _LABELS.items()
            if (values := attribute_of(atomgroup, theirs)) is not None
        }
        kinds, species = _kinds(atomgroup, labels)
        bonds, masses = topology_attributes_of(atomgroup.universe, "bonds", "masses")
        guessed = "mass" in numbers and masses is not None and masses.is_guessed
        return cls(
            n_atoms=len(atomgroup),
            numbers=numbers,
            guessed=("mass",) if guessed else (),
            kinds=kinds,
            species=species,
            labels=labels,
            bonds=_bonds_within(atomgroup.indices, bonds),
        )


@dataclass(frozen=True)
class Description:
    """Atoms and provenance of a file.

    `origin` contains texts about the provenance, such as the source, its fingerprint, the call and
    versions. `author` and `creator` contain attributes of the H5MD groups of these names. By
    default, the groups name the user and paceline.
    """

    atoms: AtomProperties
    origin: Mapping[str, str] = data_field(default_factory=dict)
    author: Mapping[str, str] = data_field(default_factory=dict)
    creator: Mapping[str, str] = data_field(default_factory=dict)


@dataclass(frozen=True)
class FrameColumns:
    """Steps, times (ps), cell vectors (Å, shape (n_frames, 3, 3)) and observables of frames."""

    steps: np.ndarray
    times: np.ndarray
    vectors: np.ndarray
    #: One value per frame for each observable, by name.
    observables: Mapping[str, Sequence[Any] | np.ndarray] = data_field(default_factory=dict)


def element_path(field: str) -> str:
    """Return the path of a field's element group."""
    return f"particles/{GROUP}/{ELEMENTS[field]}"


def values_path(field: str) -> str:
    """Return the path of a field's dataset of values."""
    return f"{element_path(field)}/value"


def property_path(name: str) -> str:
    """Return the path of an atom property's dataset."""
    return f"parameters/atoms/{name}" if name in _LABELS.values() else f"particles/{GROUP}/{name}"


def create_tree(
    h5: Any,
    fields: Sequence[str],
    description: Description,
    *,
    has_cell: bool,
    periodic: Sequence[bool] = (True, True, True),
    rows: FrameColumns | None = None,
    rounding: Mapping[str, float] | None = None,
    units: Mapping[str, str] = OUR_UNITS,
) -> None:
    """Create the tree in an open file that already contains the datasets of the fields.

    `rows` contains the data of all frames in paceline's units. Without `rows`, empty datasets are
    created for `append_frame`. `rounding` contains, for each rounded field, the number to whose
    multiples its values were rounded. `units` contains the unit in which each quantity is stored,
    in H5MD notation.
    """
    for field, step in (rounding or {}).items():
        mark_rounded(h5[values_path(field)], step)
    for field in fields:
        set_unit(h5[values_path(field)], ELEMENTS[field], units)
    first, *others = (h5[element_path(field)] for field in fields)
    _create_series(first, "step", (), "<i8", None if rows is None else rows.steps)
    times = None if rows is None else rows.times / factor_of(units["time"], "time")
    _create_series(first, "time", (), "<f8", times)
    set_unit(first["time"], "time", units)
    particles = h5[f"particles/{GROUP}"]
    box = particles.create_group("box")
    box.attrs["dimension"] = 3
    box.attrs["boundary"] = ["periodic" if has_cell and one else "none" for one in periodic]
    if has_cell:
        edges = box.create_group("edges")
        vectors = None
        if rows is not None:
            vectors = rows.vectors / factor_of(units["length"], "length")
        _create_series(edges, "value", (3, 3), "<f8", vectors)
        set_unit(edges["value"], "edges", units)
        others.append(edges)
    for other in others:
        _share_time_axis(other, first)
    _describe(h5, description)
    for name, values in rows.observables.items() if rows is not None else ():
        group = h5.create_group(f"observables/{name}")
        group["value"] = np.array(values)
        _share_time_axis(group, first)


def _create_series(
    group: Any, name: str, shape: tuple[int, ...], dtype: str, rows: np.ndarray | None
) -> None:
    """Create a dataset with one row per frame; if `rows` is None, it is empty and can grow."""
    if rows is not None:
        group[name] = rows
    else:
        group.create_dataset(
            name, shape=(0, *shape), maxshape=(None, *shape), chunks=(_ROWS, *shape), dtype=dtype
        )


def _share_time_axis(group: Any, other: Any) -> None:
    """Link an element to the steps and times of another element."""
    for name in ("step", "time"):
        group[name] = other[name]


def check_step(what: str, step: int, last: int | None) -> None:
    """Raise `UnwritableError` if a step does not exceed the last step; `what` names the frame."""
    if last is not None and step <= last:
        raise UnwritableError(
            f"{what}: expected a step after {last}, found {step}: in H5MD, steps increase from "
            "frame "
            "to frame"
        )


def append_frame(
    h5: Any, fields: Sequence[str], row: int, step: int, time: float, cell: np.ndarray | None
) -> None:
    """Append step, time (ps) and cell vectors (Å) of frame `row` to their datasets."""
    element = h5[element_path(fields[0])]
    values: list[tuple[Any, Any]] = [(element["step"], step), (element["time"], time)]
    if cell is not None:
        values.append((h5[f"particles/{GROUP}/box/edges/value"], cell))
    for dataset, value in values:
        dataset.resize(row + 1, axis=0)
        dataset[row] = value


def frame_datasets(h5: Any, fields: Sequence[str], *, has_cell: bool) -> list[Any]:
    """Return the datasets with one row per frame, in the order in which they must be extended.

    Readers count frames by the positions, so steps and times must exist before positions.
    """
    element = h5[element_path(fields[0])]
    cells = [h5[f"particles/{GROUP}/box/edges/value"]] if has_cell else []
    values = [h5[values_path(field)] for field in reversed(fields)]
    return [element["time"], element["step"], *cells, *values]


def create_property(
    h5: Any, name: str, n_atoms: int, dtype: object, values: np.ndarray | None = None
) -> Any:
    """Create the dataset of an atom property, with values if they are all known."""
    dataset = h5.create_dataset(
        property_path(name),
        shape=(n_atoms,),
        dtype=dtype,
        data=values,
        chunks=(min(n_atoms, _ATOMS),),
        **_PACKED,
    )
    if name in QUANTITIES:
        set_unit(dataset, name)
    return dataset


def set_unit(dataset: Any, name: str, units: Mapping[str, str] = OUR_UNITS) -> None:
    """Store the unit of a dataset whose name is in `QUANTITIES`."""
    dataset.attrs["unit"] = units[QUANTITIES[name]]


def mark_rounded(dataset: Any, step: float) -> None:
    """Store the number, in the dataset's unit, to whose multiples values were rounded."""
    dataset.attrs["rounded_to_multiples_of"] = step


def _describe(h5: Any, description: Description) -> None:
    """Write author, program, versions, atoms and provenance to the file."""
    h5md = h5.require_group("h5md")
    h5md.attrs["version"] = np.array(H5MD_VERSION, dtype=np.int32)
    author = {"name": current_user()} | dict(description.author)
    creator = {"name": "paceline", "version": __version__} | dict(description.creator)
    for group, attributes in (("author", author), ("creator", creator)):
        h5md.create_group(group).attrs.update(attributes)
    units = h5md.create_group("modules/units")
    units.attrs["version"] = np.array(UNITS_VERSION, dtype=np.int32)
    _write_atoms(h5, description.atoms)
    origin = h5.require_group("parameters/origin")
    for name, value in description.origin.items():
        origin.create_dataset(name, data=escaped(str(value)))


def _write_atoms(h5: Any, atoms: AtomProperties) -> None:
    """Write masses, charges, species, labels and bonds."""
    h5.require_group("parameters/atoms")
    for name, dtype, values in _columns(atoms):
        dataset = create_property(h5, name, atoms.n_atoms, dtype, values)
        if name in atoms.guessed:
            dataset.attrs["guessed"] = "by MDAnalysis, from the atoms' types or names"
    if len(atoms.bonds):
        connectivity = h5.require_group("connectivity")
        bonds = connectivity.create_dataset("bonds", data=atoms.bonds, **_PACKED)
        bonds.attrs["particles_group"] = h5[f"particles/{GROUP}"].ref


def _columns(atoms: AtomProperties) -> Iterator[tuple[str, np.dtype, np.ndarray]]:
    """Yield name, dtype and values of each known property of atoms, in the stored form."""
    for name, values in atoms.numbers.items():
        yield name, values.dtype, values
    if atoms.kinds:
        # With this dtype, h5py stores integers as an enumeration, which pairs numbers and names.
        names = {kind: number for number, kind in enumerate(atoms.kinds)}
        yield "species", np.dtype(np.int32, metadata={"enum": names}), atoms.species
    for name, values in atoms.labels.items():
        stored = values if values.dtype.kind in "iu" else _encode_texts(values.astype(str))
        yield name, stored.dtype, stored


def _encode_texts(texts: np.ndarray) -> np.ndarray:
    """Encode texts in UTF-8, as NumPy strings of fixed length."""
    try:
        # For ASCII texts, this gives the same bytes as `np.char.encode` in a third of its time.
        return texts.astype(np.bytes_)
    except UnicodeEncodeError:
        return np.char.encode(texts, "utf-8")


def _kinds(
    atomgroup: Atoms, labels: Mapping[str, np.ndarray]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the kinds of atoms, and each atom's index into these names."""
    elements = attribute_of(atomgroup, "elements")
    if elements is not None and all(elements):
        each = np.asarray(elements, dtype=str)
    elif "type" in labels:
        each = labels["type"].astype(str)
    else:
        return (), np.empty(0, dtype=np.int32)
    kinds, species = np.unique(each, return_inverse=True)
    if len(kinds) > _MOST_KINDS:
        return (), np.empty(0, dtype=np.int32)
    # Names in an HDF5 enumeration cannot be empty.
    return tuple(str(kind) or "unknown" for kind in kinds), species.astype(np.int32)


def _bonds_within(indices: np.ndarray, bonds: TopologyAttribute | None) -> np.ndarray:
    """Return bonds for which both atoms are written, as indices of written atoms."""
    pairs = np.empty((0, 2), dtype=np.int64)
    if bonds is not None and len(bonds.values):
        # AtomGroup.intra_bonds would create an object for each bond: for 25,000 bonds, this takes
        # 1.2 s instead of 0.02 s.
        pairs = np.array(bonds.values, dtype=np.int64)
    place = np.full(max(indices.max(), pairs.max(initial=0)) + 1, -1, dtype=np.int32)
    place[indices[::-1]] = np.arange(len(indices), dtype=np.int32)[::-1]
    written = place[pairs]
    return written[(written >= 0).all(axis=1)]
