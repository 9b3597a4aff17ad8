"""H5MD files in the exact form of each program, and numbers for them."""

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

N_FRAMES, N_ATOMS = 6, 9
GROMACS_UNITS = {"position": "nm", "velocity": "nm ps-1", "force": "kJ mol-1 nm-1", "time": "ps"}
OUR_UNITS = {
    "position": "Angstrom",
    "velocity": "Angstrom ps-1",
    "force": "kJ mol-1 Angstrom-1",
    "time": "ps",
}


class Numbers(NamedTuple):
    """Content of a trajectory, in the units of its file."""

    position: np.ndarray
    velocity: np.ndarray
    force: np.ndarray
    edges: np.ndarray
    step: np.ndarray
    time: np.ndarray


def numbers(n_frames=N_FRAMES, n_atoms=N_ATOMS, seed=3) -> Numbers:
    random = np.random.default_rng(seed)
    vectors = random.normal(0, 3, (3, n_frames, n_atoms, 3))
    edges = np.eye(3) * 5 + np.tril(random.uniform(-1, 1, (n_frames, 3, 3)))
    step = 500 * np.arange(n_frames)
    return Numbers(*vectors, edges, step, step * 0.002)


def write_about(file: h5py.File, creator: str, version: Any = (1, 1)) -> None:
    about = file.create_group("h5md")
    about.attrs["version"] = np.array(version, dtype=np.int32)
    about.create_group("author").attrs["name"] = "N/A"
    about.create_group("creator").attrs["name"] = creator
    about["creator"].attrs["version"] = "1"


def write_box(particles: h5py.Group, edges: Any = None, boundary: Any = ("periodic",) * 3) -> None:
    box = particles.create_group("box")
    box.attrs["dimension"] = 3
    box.attrs["boundary"] = np.array(boundary, dtype="S8")
    if edges is not None:
        box["edges"] = edges


def write_element(
    parent: h5py.Group,
    name: str,
    values: Any,
    *,
    step: Any = None,
    time: Any = None,
    unit: str | None = None,
    time_unit: str | None = None,
    **storage: Any,
) -> h5py.Group:
    """Write a time-dependent element; `step` and `time` are numbers, or datasets to be linked."""
    group = parent.create_group(name)
    group.create_dataset("value", data=values, **storage)
    if unit is not None:
        group["value"].attrs["unit"] = unit
    for what, given in (("step", step), ("time", time)):
        if given is not None:
            group[what] = given
    if time is not None and time_unit is not None:
        group["time"].attrs["unit"] = time_unit
    return group


def write_simple(path: Path, *, units: Any = OUR_UNITS, group="atoms", **changes: Any) -> Path:
    """Write positions, velocities, forces and box vectors of all frames.

    In `changes`, "position", "velocity" and "force" may each be an array or None. `changes` may
    also contain "dtype", "boundary", and h5py's keywords for the datasets.
    """
    held = numbers()._asdict() | {k: v for k, v in changes.items() if k in Numbers._fields}
    storage = {k: v for k, v in changes.items() if k not in (*Numbers._fields, "boundary", "dtype")}
    kind = changes.get("dtype", "f4")
    with h5py.File(path, "w") as file:
        write_about(file, "h5py")
        particles = file.create_group(f"particles/{group}")
        write_box(particles, boundary=changes.get("boundary", ("periodic",) * 3))
        clock = {"step": held["step"], "time": held["time"], "time_unit": units.get("time")}
        for name in ("position", "velocity", "force"):
            if held[name] is not None:
                unit = units.get(name)
                values = np.asarray(held[name]).astype(kind)
                element = write_element(particles, name, values, unit=unit, **clock, **storage)
                clock = {what: element.get(what) for what in ("step", "time")}
        if held["edges"] is not None:
            unit = units.get("position")
            write_element(particles["box"], "edges", held["edges"], unit=unit, **clock)
    return path


def write_gromacs(path: Path, held: Numbers, molecules: Any = ()) -> Path:
    """Write a file like mdrun of GROMACS 2026, with velocities and forces in every second frame.

    `molecules` are (name, count, atoms), where atoms is a dictionary of arrays by property.
    """
    n_atoms = held.position.shape[1]
    text = "S32"
    with h5py.File(path, "w") as file:
        about = file.create_group("h5md")
        about.attrs["version"] = np.array([1, 1], dtype=np.int32)
        about.create_group("author").attrs["name"] = np.array(b"somebody", dtype=text)
        about.create_group("creator").attrs["name"] = np.array(b"GROMACS", dtype=text)
        about["creator"].attrs["version"] = np.array(b"2026.0", dtype=text)
        for module, version in (("gromacs", (0, 1)), ("units", (1, 0))):
            about.create_group(f"modules/{module}").attrs["version"] = np.array(version, "i4")
        about["modules/units"].attrs["system"] = np.array(b"SI", dtype=text)
        system = file.create_group("particles/system")
        box = system.create_group("box")
        box.attrs["boundary"] = np.array([b"periodic"] * 3, dtype="S9")
        box.attrs["dimension"] = np.int32(3)
        frame = {"chunks": (1, n_atoms, 3), "maxshape": (None, n_atoms, 3)}
        one = {"chunks": (1,), "maxshape": (None,), "shuffle": True, "compression": 1}
        for name, every in (("position", 1), ("velocity", 2), ("force", 2)):
            element = system.create_group(name)
            values = getattr(held, name)[::every].astype("f4")
            element.create_dataset("value", data=values, **frame)
            element["value"].attrs["unit"] = np.array(GROMACS_UNITS[name].encode(), dtype=text)
            element.create_dataset("step", data=held.step[::every], dtype="i8", **one)
            element.create_dataset("time", data=held.time[::every], dtype="f8", **one)
        edges = box.create_group("edges")
        edges.create_dataset(
            "value", data=held.edges.astype("f4"), chunks=(1, 3, 3), maxshape=(None, 3, 3)
        )
        edges["value"].attrs["unit"] = np.array(b"nm", dtype=text)
        edges["step"], edges["time"] = system["position/step"], system["position/time"]
        if molecules:
            _write_gromacs_topology(file, molecules)
    return path


def _write_gromacs_topology(file: h5py.File, molecules: Any) -> None:
    module = file.create_group("h5md/modules/gromacs_topology")
    module.attrs["version"] = np.array([0, 1], dtype=np.int32)
    module.attrs["system_name"] = np.array(b"a system", dtype="S32")
    names, counts, atoms = zip(*molecules, strict=True)
    module.attrs["molecule_block_names"] = np.array([name.encode() for name in names])
    module.attrs["molecule_block_counts"] = np.array(counts, dtype=np.int32)
    for name, of_one in dict(zip(names, atoms, strict=True)).items():
        kind = module.create_group(name)
        n_atoms = len(of_one["mass"])
        kind.attrs["particle_count"] = np.int64(n_atoms)
        kind["id"] = np.arange(1, n_atoms + 1)
        for what, width in (("mass", "f4"), ("charge", "f4"), ("species", "i4")):
            kind.create_dataset(what, data=of_one[what], dtype=width)
        kind["mass"].attrs["unit"], kind["charge"].attrs["unit"] = b"u", b"e"
        kind.create_dataset("residue_id", data=of_one["residue_id"], dtype="i4")
        for what in ("particle_name", "residue_name"):
            table = list(dict.fromkeys(of_one[what]))
            kind.create_dataset(what, data=[table.index(x) for x in of_one[what]], dtype="i4")
            kind[f"{what}_table"] = np.array([x.encode() + b"\0" for x in table])


def write_bonds(path: Path, bonds: Any) -> None:
    """Write the bonds of the whole system, like GROMACS."""
    with h5py.File(path, "a") as file:
        file["connectivity/bonds"] = np.asarray(bonds, dtype=np.int64)
        file["connectivity"].attrs["bond_count"] = np.int64(len(bonds))


def write_lammps(path: Path, held: Numbers, group="all") -> Path:
    """Write a file like LAMMPS's dump h5md: position, image, velocity, species, charge, no unit."""
    n_frames, n_atoms, _ = held.position.shape
    with h5py.File(path, "w") as file:
        about = file.create_group("h5md")
        about.attrs["version"] = np.array([1, 0], dtype=np.int32)
        about.create_group("author").attrs["name"] = np.bytes_(b"N/A")
        about.create_group("creator").attrs["name"] = np.bytes_(b"lammps")
        about["creator"].attrs["version"] = np.bytes_(b"22 Jul 2025")
        file.create_group("observables")
        file.create_group("parameters")
        particles = file.create_group(f"particles/{group}")
        box = particles.create_group("box")
        box.attrs["dimension"] = np.int32(3)
        box.attrs["boundary"] = np.array([b"periodic"] * 3, dtype="S9")
        # In ch5md, chunks divide only the first axis of a sample.
        first = 256 if n_atoms // 4 > 256 else n_atoms
        diagonals = np.diagonal(held.edges, axis1=1, axis2=2)
        clock: dict = {}
        for parent, name, values, width in (
            (particles, "position", held.position, "f8"),
            (box, "edges", diagonals, "f8"),
            (particles, "image", np.zeros_like(held.position), "i4"),
            (particles, "velocity", held.velocity, "f8"),
            (particles, "species", np.tile(1 + np.arange(n_atoms) % 2, (n_frames, 1)), "i4"),
            (particles, "charge", np.tile(np.arange(n_atoms) * 0.25, (n_frames, 1)), "f8"),
        ):
            element = parent.create_group(name)
            chunk = (1, min(first, values.shape[1]), *values.shape[2:])
            element.create_dataset(
                "value", data=values, dtype=width, chunks=chunk, maxshape=(None, *values.shape[1:])
            )
            if name in ("edges", "image"):
                element["step"], element["time"] = clock["step"], clock["time"]
                continue
            for what, kind in (("step", "i4"), ("time", "f8")):
                element.create_dataset(
                    what, data=getattr(held, what), dtype=kind, chunks=(1,), maxshape=(None,)
                )
            clock = clock or {"step": element["step"], "time": element["time"]}
    return path


def write_espresso(path: Path, held: Numbers, ids: np.ndarray, units: Any = None) -> Path:
    """Write a file like ESPResSo, whose order of atoms differs from frame to frame.

    `ids[frame]` contains the ids of the atoms in the first slots; the other slots stay empty.
    """
    units = units or {}
    n_places = max(map(len, ids))
    with h5py.File(path, "w") as file:
        about = file.create_group("h5md")
        about.attrs["version"] = np.array([1, 1], dtype=np.uint64)
        about.create_group("author").attrs["name"] = "N/A"
        about.create_group("creator").attrs["name"] = "ESPResSo"
        about["creator"].attrs["version"] = "5.0"
        atoms = file.create_group("particles/atoms")
        box = atoms.create_group("box")
        box.attrs["dimension"] = np.int32(3)
        box.attrs["boundary"] = "periodic"
        identity = atoms.create_group("id")
        identity.create_dataset("step", data=held.step, dtype="i4", chunks=(1,), maxshape=(None,))
        identity.create_dataset("time", data=held.time, dtype="f8", chunks=(1,), maxshape=(None,))
        if "time" in units:
            identity["time"].attrs["unit"] = units["time"]

        def put(element, values, kind):
            shape = (len(ids), n_places, *values.shape[2:])
            maxshape = (None, None, *values.shape[2:])
            element.create_dataset("value", shape, kind, chunks=(1, *shape[1:]), maxshape=maxshape)
            for frame, here in enumerate(ids):
                element["value"][frame, : len(here)] = values[frame][np.asarray(here)]
            if element is not identity:
                element["step"], element["time"] = identity["step"], identity["time"]

        n_atoms = held.position.shape[1]
        put(identity, np.tile(np.arange(n_atoms), (len(ids), 1)), "i4")
        put(atoms.create_group("species"), np.tile(np.arange(n_atoms) % 3, (len(ids), 1)), "i4")
        put(atoms.create_group("mass"), np.tile(1.0 + np.arange(n_atoms), (len(ids), 1)), "f8")
        for name in ("position", "velocity", "force"):
            put(atoms.create_group(name), getattr(held, name), "f8")
            if name in units:
                atoms[name]["value"].attrs["unit"] = units[name]
        edges = box.create_group("edges")
        edges["value"] = np.diagonal(held.edges, axis1=1, axis2=2)
        edges["step"], edges["time"] = identity["step"], identity["time"]
        if "position" in units:
            edges["value"].attrs["unit"] = units["position"]
    return path
