"""MDTraj's HDF5 convention: some datasets in the root group, and a topology."""

import json
from operator import itemgetter
from typing import Any

import numpy as np

from paceline._util.json_types import JsonObject
from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import COUNTED, Cells, ChunkIndex, Element
from paceline.hdf5.dataset_description import describe_dataset
from paceline.hdf5.elements import unit_of, zero_invalid_cells
from paceline.hdf5.file import Array, File, damaged
from paceline.hdf5.read_topology import SystemTopology
from paceline.hdf5.sandbox import extend_time_limit
from paceline.hdf5.units import Units

#: Units that MDTraj's convention requires, used for datasets that state none.
DEFAULT_UNITS = {"length": "nm", "time": "ps", "velocity": "nm/ps", "force": "kJ/(mol*nm)"}
#: Paceline's field, and its physical quantity, for each of MDTraj's datasets of vectors.
VECTORS = {"coordinates": ("positions", "length"), "velocities": ("velocities", "velocity")}
#: MDTraj's datasets with one number per frame.
OBSERVABLES = ("kineticEnergy", "potentialEnergy", "temperature", "alchemicalLambda")

#: CPU time that the sandbox allows for parsing one character of the topology, seconds.
_PARSE_SECONDS = 1e-6


def is_mdtraj(file: File) -> bool:
    """True if a file follows MDTraj's convention."""
    return "coordinates" in file.root and "Pande" in str(file.root.attrs.get("conventions"))


def read_chunk_index(file: File, *, units: dict[str, str]) -> ChunkIndex:
    """Index a file; frame numbers are used as steps, because the convention has no steps.

    Format: https://mdtraj.org, "MDTraj HDF5 format specification", conventions "Pande" 1.1.
    """
    known = Units(file.path, units, DEFAULT_UNITS)
    time_doubt = None
    positions = file.root["coordinates"]
    if not isinstance(positions, Array) or positions.shape[2:] != (3,):
        found = f"shape {positions.shape}" if isinstance(positions, Array) else "a group"
        raise UnsupportedError(
            f"{file.path}: coordinates: expected an array (frames, atoms, 3), found {found}"
        )
    n_frames, n_atoms, _ = positions.shape
    elements = {}
    for name, (field, quantity) in VECTORS.items():
        array = _array(file, name, (n_frames, n_atoms, 3))
        if array is not None:
            factor = known.factor(quantity, array.name, unit_of(array))
            elements[field] = Element(describe_dataset(array), factor=factor)
    times = np.arange(n_frames, dtype=np.float64)
    time = _array(file, "time", (n_frames,))
    if time is None:
        time_doubt = f"it has no times: its {COUNTED}"
    else:
        times = (time.read() * known.factor("time", time.name, unit_of(time))).astype(np.float64)
    return ChunkIndex(
        "MDTraj HDF5",
        n_frames,
        n_atoms,
        elements,
        times,
        np.arange(n_frames),
        Cells(_dimensions(file, n_frames, known)),
        facts=_facts(file, known),
        notes=known.notes,
        time_doubt=time_doubt,
    )


def _array(file: File, name: str, shape: tuple[int, ...]) -> Array | None:
    """Find a dataset of numbers; None if it is missing. Raise an error if its shape is another."""
    array = file.root.array(name)
    if array is not None and (array.shape != shape or array.dtype.kind not in "iuf"):
        raise damaged(
            file.path,
            array.name,
            f"numbers of shape {shape}, to match the coordinates",
            f"{array.dtype} of shape {array.shape}",
        )
    return array


def _dimensions(file: File, n_frames: int, units: Units) -> np.ndarray:
    lengths = _array(file, "cell_lengths", (n_frames, 3))
    angles = _array(file, "cell_angles", (n_frames, 3))
    if lengths is None or angles is None or n_frames == 0:
        return np.zeros((1, 6), dtype=np.float32)
    cells = np.concatenate([lengths.read(), angles.read()], axis=1, dtype=np.float32)
    cells[:, :3] *= np.float32(units.factor("length", lengths.name, unit_of(lengths)))
    return zero_invalid_cells(cells)


def _facts(file: File, units: Units) -> dict[str, str]:
    attrs = file.root.attrs
    program = " ".join(str(attrs.get(name) or "") for name in ("program", "programVersion"))
    facts = {
        "written by": program.strip(),
        "units": ", ".join(f"{name} {unit}" for name, unit in units.used.items()),
        "topology": "in the file" if "topology" in file.root else "",
    }
    return {name: fact for name, fact in facts.items() if fact}


def read_topology(file: File, n_atoms: int) -> SystemTopology | None:
    """Read the topology that MDTraj stores as JSON; None if the file has none."""
    array = file.root.array("topology")
    if array is None:
        return None
    texts = np.ravel(array.read())
    try:
        extend_time_limit(len(texts[0]) * _PARSE_SECONDS)
        system = _parse_topology(json.loads(texts[0]))
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
            file.path, array.name, f"{n_atoms} atoms, to match the coordinates", f"{found}"
        )
    if system.bonds is not None and not (system.bonds < n_atoms).all():
        raise damaged(file.path, array.name, f"bonds of {n_atoms} atoms", str(system.bonds.max()))
    return system


def _parse_topology(topology: JsonObject) -> SystemTopology:
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
    segids = [_segid_of(chain, k) for k, chain in enumerate(chains)]
    resids = [residue.get("resSeq", k) for k, (_, residue) in enumerate(residues)]
    bonds = np.array([bond[:2] for bond in topology.get("bonds", ())], dtype=np.uint32)
    return SystemTopology(
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


def _segid_of(chain: JsonObject, number: int) -> str:
    """Name a chain by its segment id, else by its own name, else by its number."""
    first: JsonObject = next(iter(chain["residues"]), {})
    return first.get("segmentID") or chain.get("chain_id") or str(number)


def _symbol(element: object) -> str:
    """Return the symbol of an element; empty for virtual sites."""
    return "" if element in (None, "VS") else str(element)


def _texts(texts: Any) -> np.ndarray:
    return np.array([str(text) for text in texts], dtype=object)
