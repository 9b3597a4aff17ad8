"""H5MD files: choose one particles group, and index the chunks of its elements."""

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from paceline.errors import DamagedFileError, ExternalFileError, MissingDataError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, COUNTED, Cells, ChunkIndex, Element
from paceline.hdf5.create_h5md_groups import LAMBDA
from paceline.hdf5.dataset_description import describe_dataset, read_series
from paceline.hdf5.elements import (
    Elements,
    SampledElement,
    first_not_rising,
    match_rows,
    read_cells,
    rows_as_frames,
)
from paceline.hdf5.file import Array, File, Group, damaged, unpacked_ratio
from paceline.hdf5.sandbox import extend_time_limit
from paceline.hdf5.units import Units, UnknownUnitError

#: Paceline's field, and its physical quantity, for each H5MD element with vectors of atoms.
VECTORS = {
    "position": ("positions", "length"),
    "velocity": ("velocities", "velocity"),
    "force": ("forces", "force"),
}
#: Units of programs whose files state only some units.
DEFAULT_UNITS = {
    "GROMACS": {"length": "nm", "time": "ps", "velocity": "nm ps-1", "force": "kJ mol-1 nm-1"}
}

#: Number of bytes of ids that are read at a time.
_PORTION = 1 << 24
#: CPU time that the sandbox allows for sorting one id, seconds.
_SORT_SECONDS = 1e-6


@dataclass(frozen=True)
class ParticleIds:
    """Ids of the atoms in each frame of a file in which the order of atoms may change."""

    element: Element
    #: Dataset of ids, which is read through h5py.
    values: Array
    #: Id of each atom that paceline reads, in paceline's order: int64, (n_atoms,), increasing.
    numbers: np.ndarray


def find_particle_ids(
    ids: SampledElement | None, frames: SampledElement, n_atoms: int, notes: list[str]
) -> ParticleIds | None:
    """Find the ids of atoms, if the order of atoms may change from frame to frame, else None.

    If the file defines a fill value for empty slots, atoms may appear and disappear. In that case
    only atoms that exist in all frames are used.
    """
    if ids is None or ids.steps is None or not ids.n_rows or not frames.n_rows:
        return None
    array, path = ids.values, ids.values.file.path
    if array.dtype.kind not in "iu" or len(array.shape) != 2 or array.shape[1] != n_atoms:
        raise UnsupportedError(
            f"{path}: {array.name}: expected whole numbers of {n_atoms} atoms, as {frames.name} "
            f"has, found {array.dtype} of shape {array.shape}"
        )
    rows = match_rows(ids, frames)
    if rows is not None and (rows == ABSENT).any():
        raise UnsupportedError(
            f"{path}: {ids.name} was sampled at other steps than {frames.name}: "
            "atoms cannot be identified in all frames"
        )
    placeholder = array.placeholder
    if placeholder is None:
        first = 0 if rows is None else int(rows[0])
        numbers = _check_distinct(array, array.read(slice(first, first + 1))[0], first)
    else:
        numbers = _find_common_ids(array, placeholder, notes)
    return ParticleIds(Element(describe_dataset(array), rows), array, numbers.astype(np.int64))


def _check_distinct(array: Array, ids: np.ndarray, row: int) -> np.ndarray:
    """Sort the ids of one frame, and check that they are distinct."""
    numbers, counts = np.unique(ids, return_counts=True)
    if len(numbers) < len(ids):
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: row {row} contains {numbers[counts.argmax()]} "
            f"{counts.max()} times: the number of atoms varies, but no fill value marks the slots "
            "without an atom"
        )
    return numbers


def _find_common_ids(array: Array, placeholder: float, notes: list[str]) -> np.ndarray:
    """Find the ids that every frame contains."""
    n_rows, n_atoms = array.shape
    step = max(1, _PORTION // (n_atoms * array.dtype.itemsize))
    common, fewest, most = None, n_atoms, 0
    last = np.empty(0)
    for begin in range(0, n_rows, step):
        extend_time_limit(_PORTION / array.dtype.itemsize * _SORT_SECONDS)
        ordered = np.sort(array.read(slice(begin, begin + step)), axis=1)
        # Check only frames whose atoms differ from those of the previous frame.
        changed = [0, *(np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1).tolist()]
        for row in changed:
            if np.array_equal(ordered[row], last):
                continue
            last = ordered[row]
            there = _check_distinct(array, last[last != placeholder], begin + row)
            fewest, most = min(fewest, len(there)), max(most, len(there))
            common = there if common is None else np.intersect1d(common, there, True)
    if common is None or len(common) == 0:
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: the number of atoms varies from {fewest} to {most}, "
            "and no atom exists in all frames"
        )
    if len(common) < most:
        notes.append(
            f"{array.name}: the number of atoms varies from {fewest} to {most}; "
            f"the {len(common)} atoms that exist in all frames are read"
        )
    return common


class Particles:
    """One particles group of an H5MD file: the chosen one, or the only one with any of `VECTORS`.

    `vectors` are the group's elements among `VECTORS`, with `n_slots` atom slots per row. `frames`
    is the element whose samples are the frames: the positions or, if positions are fixed or
    missing, the velocities or forces.
    """

    def __init__(self, file: File, group: str | None = None):
        self.file = file
        self.group = _choose_group(file, group)
        self.elements = Elements(file)
        self.notes: list[str] = []
        self.time_doubt: str | None = None
        found = {name: self.elements.find(self.group, name, rank=2) for name in VECTORS}
        self.vectors = {name: vector for name, vector in found.items() if vector is not None}
        if not self.vectors:
            raise MissingDataError(
                f"{file.path}: {self.group.name}: expected {', '.join(VECTORS)}, "
                f"found {', '.join(self.group.names()) or 'nothing'}"
            )
        self.n_slots = self._count_slots()
        self._note_room()
        moving = [vector for vector in self.vectors.values() if vector.steps is not None]
        self.frames = moving[0] if moving else _as_one_frame(next(iter(self.vectors.values())))

    def _count_slots(self) -> int:
        """Return the number of atom slots per row, which must be equal for all vectors."""
        first, *others = self.vectors.values()
        for vector in (first, *others):
            shape = vector.values.shape
            if len(shape) != (2 if vector.steps is None else 3) or shape[-1] != 3:
                raise UnsupportedError(
                    f"{self.file.path}: {vector.name}: expected three components of each atom, "
                    f"found an array of shape {shape}"
                )
        n_atoms = first.values.shape[-2]
        for other in others:
            if other.values.shape[-2] != n_atoms:
                raise UnsupportedError(
                    f"{self.file.path}: {first.name} has {n_atoms} atoms, "
                    f"{other.name} has {other.values.shape[-2]}"
                )
        if n_atoms == 0:
            raise MissingDataError(f"{self.file.path}: {first.name} has no atoms")
        # Even the most compressed file contains each atom at least once.
        if n_atoms > self.file.size * unpacked_ratio(first.values.filters):
            found = f"{n_atoms}, in a file of {self.file.size} bytes"
            raise damaged(self.file.path, first.name, "atoms that the file could hold", found)
        return n_atoms

    def _note_room(self) -> None:
        """Add a note if a program has written fewer frames than it allocated."""
        for vector in self.vectors.values():
            room = len(vector.values.shape) == 3 and vector.values.shape[0]
            if room and room > vector.n_rows:
                self.notes.append(
                    f"{vector.values.name} has space for {room} frames, but only {vector.n_rows} "
                    "have been written"
                )

    @cached_property
    def particle_ids(self) -> ParticleIds | None:
        """Ids of the atoms in each frame; None if the order of atoms is fixed."""
        ids = self.elements.find(self.group, "id", rank=1)
        return find_particle_ids(ids, self.frames, self.n_slots, self.notes)

    @property
    def is_only_one(self) -> bool:
        """True if no other group of the file has positions, velocities or forces."""
        return len(_moving(self.file)) == 1

    @property
    def n_atoms(self) -> int:
        """Number of atoms that paceline reads: those that exist in all frames."""
        return self.n_slots if self.particle_ids is None else len(self.particle_ids.numbers)

    @cached_property
    def slots(self) -> np.ndarray | slice:
        """Slots, in the first frame, of the atoms that paceline reads."""
        if self.particle_ids is None:
            return slice(None)
        ids = self.particle_ids.element
        row = 0 if ids.rows is None else int(ids.rows[0])
        numbers = self.particle_ids.values.read(slice(row, row + 1))[0]
        sorter = np.argsort(numbers, kind="stable")
        return sorter[np.searchsorted(numbers, self.particle_ids.numbers, sorter=sorter)]

    @cached_property
    def edges(self) -> SampledElement | None:
        """Edges of the box, with their samples; None if the group has none."""
        edges = self.elements.find(self.group, "box/edges", rank=2)
        return rows_as_frames(edges, self.frames.n_rows, self.notes)


def _as_one_frame(fixed: SampledElement) -> SampledElement:
    """Convert a time-independent element to a trajectory of one frame."""
    return SampledElement(fixed.name, fixed.values, np.zeros(1, dtype=np.int64), unit=fixed.unit)


def _choose_group(file: File, group: str | None) -> Group:
    """Find the particles group with this name or, without a name, the only one with `VECTORS`."""
    _check_version(file)
    found = _groups(file)
    if group is not None:
        group = group.removeprefix("/").removeprefix("particles/")
        if group in found:
            return found[group]
        raise UnsupportedError(
            f"{file.path}: no group of particles {group!r}; there are {_list_names(found)}"
        )
    moving = _moving(file)
    if len(moving) == 1:
        return next(iter(moving.values()))
    if not moving:
        raise MissingDataError(
            f"{file.path}: no group of particles contains {', '.join(VECTORS)}; "
            f"there are {_list_names(found)}"
        )
    raise UnsupportedError(
        f"{file.path}: it has {len(moving)} groups of particles; "
        f"choose one with group= (--particles): {_list_names(moving)}"
    )


def _groups(file: File) -> dict[str, Group]:
    particles = file.root.group("particles")
    groups = [] if particles is None else [g for g in particles.children() if isinstance(g, Group)]
    return {g.name.rpartition("/")[2]: g for g in groups}


def _moving(file: File) -> dict[str, Group]:
    groups = _groups(file).items()
    return {name: group for name, group in groups if any(vector in group for vector in VECTORS)}


def _check_version(file: File) -> None:
    about = file.root.group("h5md")
    version = None if about is None else about.attrs.get("version")
    if isinstance(version, np.ndarray) and version.size and version.ravel()[0] != 1:
        numbers = ".".join(str(number) for number in version.ravel())
        raise UnsupportedError(f"{file.path}: expected H5MD of version 1, found {numbers}")


def _list_names(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def creator_of(root: Group) -> str:
    """Return the name of the program that wrote a file; empty if not stated."""
    creator = root.group("h5md/creator")
    name = None if creator is None else creator.attrs.get("name")
    return name if isinstance(name, str) else ""


def read_chunk_index(file: File, *, group: str | None, units: dict[str, str]) -> ChunkIndex:
    """Index an H5MD file.

    The frames are the samples of the positions or, if positions are fixed or missing, of the
    velocities or forces.
    Samples of all other elements are assigned to frames by step. Format: H5MD 1.1,
    https://www.nongnu.org/h5md.
    """
    particles = Particles(file, group)
    creator = creator_of(file.root)
    known = Units(file.path, units, DEFAULT_UNITS.get(creator))
    frames, notes = particles.frames, particles.notes
    assert frames.steps is not None
    _note_steps(frames, notes)
    elements = _elements(particles, known)
    times = _times(particles, known)
    cells = _cells(particles, known)
    known.check_missing()
    ids = particles.particle_ids
    return ChunkIndex(
        "H5MD",
        len(frames.steps),
        particles.n_atoms,
        elements,
        times,
        frames.steps,
        cells,
        lambdas=_lambdas(particles),
        ids=None if ids is None else ids.element,
        id_order=None if ids is None else ids.numbers,
        facts=_facts(particles, creator, known),
        notes=[*notes, *known.notes],
        time_doubt=particles.time_doubt,
        is_as_stored=_is_as_stored(particles, elements, cells),
    )


def _is_as_stored(particles: Particles, elements: dict[str, Element], cells: Cells) -> bool:
    """True if each frame consists of the rows of its number; see `ChunkIndex.is_as_stored`."""
    frames, edges = particles.frames, particles.edges
    if particles.particle_ids is not None or frames.time is None:
        return False
    rows = [element.rows for element in elements.values()]
    if edges is not None:
        if not cells.dimensions.any(axis=1).all():
            return False
        # A cell that never changes is that of every row.
        rows += [match_rows(edges, frames)] if len(cells.dimensions) > 1 else []
    numbers = np.arange(frames.n_rows)
    return all(one is None or np.array_equal(one, numbers) for one in rows)


def _note_steps(frames: SampledElement, notes: list[str]) -> None:
    """Add notes on irregular steps of the frames."""
    assert frames.steps is not None
    row = first_not_rising(frames.steps)
    if not frames.has_steps:
        notes.append(f"{frames.name} has no steps: its frames were counted")
    elif row is not None:
        notes.append(
            f"{frames.name}: step {frames.steps[row]} of frame {row} comes after step "
            f"{frames.steps[row - 1]}; frames are in the order of the file"
        )


def _elements(particles: Particles, units: Units) -> dict[str, Element]:
    """Describe the elements of atoms, in the order of `VECTORS`.

    An element in unknown units is left out if an earlier element was described. Otherwise the error
    is raised.
    """
    found: dict[str, Element] = {}
    for name, vector in particles.vectors.items():
        field, quantity = VECTORS[name]
        try:
            found[field] = _describe_element(particles, vector, quantity, units)
        except UnknownUnitError as error:
            if not found:
                raise
            particles.notes.append(f"left out: {units.message_of(error)}")
    return found


def _describe_element(
    particles: Particles, sampled: SampledElement, quantity: str, units: Units
) -> Element:
    """Describe an element, and find its row for each frame."""
    rows = match_rows(sampled, particles.frames)
    if rows is not None and sampled.steps is not None:
        _note_unpaired(particles, sampled, rows)
    stated = sampled.unit or (_length_unit(particles) if quantity == "length" else None)
    factor = units.factor(quantity, sampled.name, stated)
    return Element(describe_dataset(sampled.values, fixed=sampled.steps is None), rows, factor)


def _note_unpaired(particles: Particles, sampled: SampledElement, rows: np.ndarray) -> None:
    """Add a note on frames that lack an element, and on samples that belong to no frame."""
    lacking = int((rows == ABSENT).sum())
    unused = sampled.n_rows - (len(rows) - lacking)
    found = []
    if lacking:
        found.append(f"{lacking} of {len(rows)} frames have none")
    if unused:
        found.append(f"{unused} of its {sampled.n_rows} samples belong to no frame")
    if found:
        where = f"{sampled.name} was sampled at other steps than {particles.frames.name}"
        particles.notes.append(f"{where}: {', '.join(found)}")


def _length_unit(particles: Particles) -> str | None:
    """Return the unit that positions or, if they state none, box edges state; used for both."""
    found = (particles.vectors.get("position"), particles.edges)
    return next((one.unit for one in found if one is not None and one.unit), None)


def _times(particles: Particles, units: Units) -> np.ndarray:
    """Read times of the frames, ps, from any element with the same steps.

    If there are none, return frame numbers, and set `particles.time_doubt` if there are several
    frames.
    """
    frames = particles.frames
    assert frames.steps is not None
    others = [*particles.vectors.values(), *([particles.edges] if particles.edges else [])]
    stated = next((one.time_unit for one in (frames, *others) if one.time_unit), None)
    for one in (frames, *others):
        if one.steps is None or one.times is None:
            continue
        if np.array_equal(one.steps, frames.steps):
            factor = units.factor("time", f"{one.name}/time", one.time_unit or stated)
            return (one.times * factor).astype(np.float64)
    if len(frames.steps) > 1:
        particles.time_doubt = f"{frames.name} has no times: its {COUNTED}"
    return np.arange(len(frames.steps), dtype=np.float64)


def _lambdas(particles: Particles) -> np.ndarray | None:
    """Read λ of the frames from an observable; None if any frame lacks it."""
    with contextlib.suppress(DamagedFileError, ExternalFileError):
        observable = particles.file.root.get(f"observables/{LAMBDA}")
        found = None if observable is None else particles.elements.of(observable)
        frames = particles.frames.steps
        if found is None or frames is None or found.steps is None:
            return None
        has_all = found.values.dtype.kind == "f" and found.values.shape == frames.shape
        if has_all and np.array_equal(found.steps, frames):
            return read_series(found.values).astype(np.float32)
    return None


def _cells(particles: Particles, units: Units) -> Cells:
    """Read cells of the frames from the edges of the box, and add notes on missing cells."""
    edges, factor = particles.edges, 1.0
    if edges is not None:
        factor = units.factor("length", edges.name, edges.unit or _length_unit(particles))
    box = particles.group.group("box")
    return read_cells(box, edges, factor, particles.frames, particles.notes)


def _facts(particles: Particles, creator: str, units: Units) -> dict[str, str]:
    """Collect names and values that `paceline info` prints about an H5MD file."""
    others = [name for name in particles.group.names() if name not in (*VECTORS, "box", "id")]
    facts = {
        "written by": creator,
        "group": particles.group.name.rpartition("/")[2],
        "units": ", ".join(f"{name} {unit}" for name, unit in units.used.items()),
        "box": _describe_box(particles.edges),
        "order of atoms": "changes, and follows id" if particles.particle_ids else "",
        "not in the frames": ", ".join(others),
    }
    for name, vector in particles.vectors.items():
        facts[name] = "fixed" if vector.steps is None else f"{vector.n_rows} samples"
    return {name: fact for name, fact in facts.items() if fact}


def _describe_box(edges: SampledElement | None) -> str:
    if edges is None:
        return "none"
    sample = edges.values.shape if edges.steps is None else edges.values.shape[1:]
    kind = "vectors" if len(sample) == 2 else "lengths"
    return f"{kind}, {'fixed' if edges.steps is None else f'{edges.n_rows} samples'}"
