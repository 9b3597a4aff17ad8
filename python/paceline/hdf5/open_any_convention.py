"""Detect the convention of an HDF5 file, and read its index and topology."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from paceline.errors import MissingDataError, PacelineError, UnsupportedError
from paceline.hdf5 import amber, h5md_particles, mdtraj
from paceline.hdf5.chunk_index import COUNTED, Cells, ChunkIndex, Element
from paceline.hdf5.dataset_description import describe_dataset
from paceline.hdf5.elements import unit_of
from paceline.hdf5.file import Array, File
from paceline.hdf5.read_topology import SystemTopology, read_gromacs_topology, read_h5md_topology
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.hdf5.units import Units, units_given

#: Maximum number of datasets that an error message names.
_NAMED = 8
#: Maximum number of datasets that `list_tree` lists.
_SHOWN = 60


def read_chunk_index(
    file: File,
    *,
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
    dataset: str | None = None,
) -> ChunkIndex:
    """Index a file of any convention; the options are those of `Hdf5Options`."""
    given = units_given(units)
    if dataset is not None:
        if group is not None:
            raise UnsupportedError(
                f"{file.path}: group= (--particles) and dataset= (--dataset) exclude each other"
            )
        return _index_plain_dataset(file, dataset=dataset, units=given)
    root = file.root
    if "particles" in root or "h5md" in root:
        return h5md_particles.read_chunk_index(file, group=group, units=given)
    if group is not None:
        raise UnsupportedError(
            f"{file.path}: group= (--particles) applies to H5MD files only, and this is not one"
        )
    if mdtraj.is_mdtraj(file):
        return mdtraj.read_chunk_index(file, units=given)
    if amber.is_netcdf4(root.attrs):
        if given:
            raise UnsupportedError(
                f"{file.path}: units= (--units) applies to files that do not state their units"
            )
        return amber.read_chunk_index(file)
    raise UnsupportedError(f"{file.path}: {_reading_advice(file)}")


def _index_plain_dataset(file: File, *, dataset: str, units: dict[str, str]) -> ChunkIndex:
    """Index one dataset of positions in a file of any convention; ignore times and cells."""
    array = file.root.get(dataset)
    if not isinstance(array, Array) or not _may_be_positions(array):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, Array) else "none"
        raise UnsupportedError(
            f"{file.path}: {dataset}: expected a dataset of numbers (frames, atoms, 3) or "
            f"(frames, 3 × atoms), found {found}"
        )
    known = Units(file.path, units)
    factor = known.factor("length", array.name, unit_of(array))
    known.check_missing()
    n_frames = array.shape[0]
    n_atoms = array.shape[1] if len(array.shape) == 3 else array.shape[1] // 3
    described = describe_dataset(array)
    return ChunkIndex(
        "HDF5",
        n_frames,
        n_atoms,
        {"positions": Element(described, factor=factor)},
        np.arange(n_frames, dtype=np.float64),
        np.arange(n_frames),
        Cells(np.zeros((1, 6), dtype=np.float32)),
        facts={"dataset": array.name, "units": f"length {known.used['length']}"},
        notes=known.notes,
        time_doubt=f"{array.name}: {COUNTED}",
    )


def _may_be_positions(array: Array) -> bool:
    """True for numbers of shape (frames, atoms, 3) or (frames, 3 × atoms)."""
    shape = array.shape
    if array.is_text or array.dtype.kind not in "iuf" or len(shape) not in (2, 3):
        return False
    return shape[2] == 3 if len(shape) == 3 else shape[1] % 3 == 0 and shape[1] > 0


def _reading_advice(file: File) -> str:
    """Describe how to read a file without a known convention, for an error message."""
    nodes = list(file.root.walk())
    nested = [node.name for node in nodes if node.name.endswith("/h5md")]
    if nested:
        return (
            f"its H5MD structure begins at {nested[0].removesuffix('/h5md')}, but only a "
            "structure at "
            "the root of the file is read"
        )
    names = [
        node.name.lstrip("/")
        for node in nodes
        if isinstance(node, Array) and _may_be_positions(node)
    ]
    if not names:
        return "an HDF5 file without a trajectory in the convention of H5MD, MDTraj or Amber"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        "an HDF5 file of unknown convention; to read a dataset as positions, name it "
        f"with dataset= (--dataset): {', '.join(map(repr, names[:_NAMED]))}{more}"
    )


def read_topology(
    path: str | os.PathLike, *, group: str | None = None, external: bool = False
) -> Any:
    """Read a topology for MDAnalysis from an HDF5 trajectory, in the sandbox.

    Files of GROMACS, MDTraj and paceline contain a topology. Atoms of other H5MD files get the
    properties that the file contains: masses, charges, species, ids and bonds.
    """
    return run_in_sandbox(_read_system, os.fspath(path), group=group, external=external).topology()


def names_in_file(
    path: str | os.PathLike, *, group: str | None = None, external: bool | None = False
) -> dict[str, np.ndarray]:
    """Read in the sandbox the atom names of a file, and the residue names if the file has them.

    Returns arrays of str, shape (n_atoms,), with the keys "names" and "resnames". The dict is empty
    if the file has no atom names.
    """
    path = os.fspath(path)
    try:
        system = run_in_sandbox(_read_system, path, group=group, external=bool(external))
    except (MissingDataError, UnsupportedError):
        return {}
    found = {"names": system.atoms.get("names")}
    if "resnames" in system.residues:
        found["resnames"] = system.residues["resnames"][system.residue]
    return {} if found["names"] is None else found


def _read_system(path: str, *, group: str | None, external: bool) -> SystemTopology:
    """Read the atoms of a file as plain data, without MDAnalysis."""
    with File(path, external=external) as file:
        return _choose_topology(file, group)


def _choose_topology(file: File, group: str | None) -> SystemTopology:
    coordinates = file.root.array("coordinates")
    if coordinates is not None and coordinates.shape[2:] == (3,):
        n_atoms = coordinates.shape[1]
        found = mdtraj.read_topology(file, n_atoms)
        return SystemTopology.without_residues({}, n_atoms) if found is None else found
    if "particles" not in file.root and "h5md" not in file.root:
        raise MissingDataError(
            f"{file.path}: it does not describe its atoms; name a topology file before it"
        )
    particles = h5md_particles.Particles(file, group)
    found = read_gromacs_topology(file, particles.n_atoms)
    return read_h5md_topology(particles) if found is None else found


def list_tree(path: str | os.PathLike) -> list[tuple[str, str]]:
    """List the first datasets of a file, each as its path and a text with type, shape and unit.

    References to other files that were not followed are listed at the end, if there is room.
    """
    with File(path) as file:
        return list(islice(_datasets(file), _SHOWN))


def _datasets(file: File) -> Iterator[tuple[str, str]]:
    for node in file.root.walk():
        with contextlib.suppress(PacelineError):
            if isinstance(node, Array):
                yield node.name, _describe_dataset(node)
    yield from (("not followed", what) for what in file.not_followed)


def _describe_dataset(array: Array) -> str:
    kind = "text" if array.is_text else array.dtype.name
    shape = f" of {array.shape}" if array.shape else ""
    unit = unit_of(array)
    return f"{kind}{shape}, {unit}" if unit else f"{kind}{shape}"
