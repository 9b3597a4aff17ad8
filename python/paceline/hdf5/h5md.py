"""H5MD, whoever wrote it: a group of particles, its box, and when each was sampled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5.boxes import dimensions_of
from paceline.hdf5.catalogue import ABSENT, Catalogue, Element
from paceline.hdf5.elements import Elements, Sampled, first_not_rising, rows_of
from paceline.hdf5.identities import order_of
from paceline.hdf5.library import File, Group
from paceline.hdf5.stored import dataset_of
from paceline.hdf5.units import Units

#: Vectors of atoms: our field and its quantity, by H5MD's name.
VECTORS = {
    "position": ("positions", "length"),
    "velocity": ("velocities", "velocity"),
    "force": ("forces", "force"),
}

#: Units of programs that state only some of theirs.
_USUAL = {
    "GROMACS": {
        "length": "nm",
        "time": "ps",
        "velocity": "nm ps-1",
        "force": "kJ mol-1 nm-1",
    }
}


def creator_of(root: Group) -> str:
    """The program that wrote a file.

    Parameters
    ----------
    root : Group
        Of the file.

    Returns
    -------
    str
        Empty where the file does not say.
    """
    creator = root.group("h5md/creator")
    name = None if creator is None else creator.attrs.get("name")
    return name if isinstance(name, str) else ""


def particles_of(file: File, group: str | None) -> Group:
    """The group of particles that is to be read.

    Parameters
    ----------
    file : File
        An H5MD file.
    group : str or None
        Its name; needed where there are several.

    Returns
    -------
    Group

    Raises
    ------
    UnsupportedError
        There are several and none is named, or not the one that is, or the file is of an H5MD
        that we do not know.
    """
    _refuse_other_version(file)
    particles = file.root.group("particles")
    groups = [] if particles is None else [g for g in particles.children() if isinstance(g, Group)]
    found = {g.name.rpartition("/")[2]: g for g in groups}
    if group is not None:
        group = group.removeprefix("/").removeprefix("particles/")
        if group in found:
            return found[group]
        raise UnsupportedError(
            f"{file.path}: no group of particles {group!r}; there are {_listed(found)}"
        )
    moving = {name: g for name, g in found.items() if any(vector in g for vector in VECTORS)}
    if len(moving) == 1:
        return next(iter(moving.values()))
    if not moving:
        raise MissingDataError(
            f"{file.path}: no group of particles holds {', '.join(VECTORS)}; "
            f"there are {_listed(found)}"
        )
    raise UnsupportedError(
        f"{file.path}: it has {len(moving)} groups of particles; "
        f"choose one with group=: {_listed(moving)}"
    )


def _refuse_other_version(file: File) -> None:
    about = file.root.group("h5md")
    version = None if about is None else about.attrs.get("version")
    if isinstance(version, np.ndarray) and version.size and version.ravel()[0] != 1:
        numbers = ".".join(str(number) for number in version.ravel())
        raise UnsupportedError(f"{file.path}: expected H5MD of version 1, found {numbers}")


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"


@dataclass
class _Reading:
    """What is gathered of one file on the way to its catalogue."""

    file: File
    group: Group
    elements: Elements
    units: Units
    notes: list[str] = field(default_factory=list)

    def vectors(self) -> dict[str, Sampled]:
        """Positions, velocities and forces: those that there are."""
        found = {}
        for name in VECTORS:
            element = self.elements.find(self.group, name, rank=2)
            if element is not None:
                self._refuse_no_vectors(element)
                found[name] = element
        return found

    def _refuse_no_vectors(self, element: Sampled) -> None:
        shape = element.values.shape
        wanted = 2 if element.steps is None else 3
        if len(shape) == wanted and shape[-1] == 3:
            return
        raise UnsupportedError(
            f"{self.file.path}: {element.name}: expected three components of each atom, "
            f"found an array of shape {shape}"
        )

    def n_atoms(self, vectors: dict[str, Sampled]) -> int:
        """Atoms of the group, of which all vectors must have as many."""
        first, *others = vectors.values()
        n_atoms = first.values.shape[-2]
        for other in others:
            if other.values.shape[-2] != n_atoms:
                raise UnsupportedError(
                    f"{self.file.path}: {first.name} has {n_atoms} atoms, "
                    f"{other.name} has {other.values.shape[-2]}"
                )
        return n_atoms

    def element(self, sampled: Sampled, quantity: str, frames: Sampled) -> Element:
        """An element as the frames see it."""
        rows = rows_of(sampled, frames)
        self._note_unpaired(sampled, rows, frames)
        stated = sampled.unit or (self.length_unit() if quantity == "length" else None)
        factor = self.units.factor(quantity, sampled.name, stated)
        dataset = dataset_of(sampled.values, fixed=sampled.steps is None)
        return Element(dataset, rows, factor)

    def length_unit(self) -> str | None:
        """The unit of a length that states none: of positions and box, the other's."""
        found = (self.elements.find(self.group, name, rank=2) for name in ("position", "box/edges"))
        return next((one.unit for one in found if one is not None and one.unit), None)

    def dimensions(self, edges: Sampled | None, frames: Sampled) -> np.ndarray:
        """Cells of the frames, Å and degrees."""
        box, factor = self.group.group("box"), 1.0
        if edges is not None:
            factor = self.units.factor("length", edges.name, edges.unit or self.length_unit())
        return dimensions_of(box, edges, factor, frames, self.notes)

    def _note_unpaired(self, sampled: Sampled, rows: np.ndarray | None, frames: Sampled) -> None:
        if rows is None or sampled.steps is None:
            return
        held = int((rows != ABSENT).sum())
        if held < len(rows) or held < sampled.n_rows:
            self.notes.append(
                f"{sampled.name} was sampled at other steps than {frames.name}: {held} of "
                f"{len(rows)} frames have it, {sampled.n_rows - held} of its samples are of no "
                "frame"
            )

    def times(self, frames: Sampled, others: Sequence[Sampled]) -> np.ndarray:
        """Times of the frames, ps: also another element's, where it has the same steps."""
        assert frames.steps is not None
        for one in (frames, *others):
            if one.steps is None or one.times is None:
                continue
            if np.array_equal(one.steps, frames.steps):
                units = [one.time_unit, *(other.time_unit for other in (frames, *others))]
                stated = next((unit for unit in units if unit), None)
                factor = self.units.factor("time", f"{one.name}/time", stated)
                return (one.times * factor).astype(np.float64)
        self.notes.append(
            f"{frames.name} has no times: its frames count as 1 ps apart; give dt= to say better"
        )
        return np.arange(len(frames.steps), dtype=np.float64)

    def note_steps(self, frames: Sampled) -> None:
        """Say what is odd about the steps of the frames."""
        assert frames.steps is not None
        row = first_not_rising(frames.steps)
        if not frames.has_steps:
            self.notes.append(f"{frames.name} has no steps: its frames were counted")
        elif row is not None:
            self.notes.append(
                f"{frames.name}: step {frames.steps[row]} of frame {row} comes after step "
                f"{frames.steps[row - 1]}; frames are in the order of the file"
            )


def catalogue_of(file: File, *, group: str | None, units: dict[str, str]) -> Catalogue:
    """What an H5MD file holds.

    Parameters
    ----------
    file : File
        An H5MD file.
    group : str or None
        Name of the group of particles, where there are several.
    units : dict
        Quantity and unit, where the file's are missing or wrong.

    Returns
    -------
    Catalogue

    Raises
    ------
    UnsupportedError, MissingDataError, DamagedFileError
        See `paceline.hdf5.dialects.catalogue_of`.

    Notes
    -----
    The frames are the samples of the positions, or, without these, of the velocities or the
    forces; all else is joined to them by step. Format: H5MD 1.1, https://www.nongnu.org/h5md.
    """
    creator = creator_of(file.root)
    reading = _Reading(
        file,
        particles_of(file, group),
        Elements(file),
        Units(file.path, units, _USUAL.get(creator)),
    )
    vectors = reading.vectors()
    if not vectors:
        raise MissingDataError(
            f"{file.path}: {reading.group.name}: expected {', '.join(VECTORS)}, "
            f"found {', '.join(reading.group.names()) or 'nothing'}"
        )
    n_atoms = reading.n_atoms(vectors)
    moving = [vector for vector in vectors.values() if vector.steps is not None]
    frames = moving[0] if moving else _one_frame(next(iter(vectors.values())))
    reading.note_steps(frames)
    found = {
        VECTORS[name][0]: reading.element(vector, VECTORS[name][1], frames)
        for name, vector in vectors.items()
    }
    edges = reading.elements.find(reading.group, "box/edges", rank=2)
    others = [*moving, edges] if edges is not None else moving
    times = reading.times(frames, others) if moving else np.zeros(1)
    dimensions = reading.dimensions(edges, frames)
    ids = reading.elements.find(reading.group, "id", rank=1)
    order = order_of(ids, frames, n_atoms, reading.notes)
    reading.units.refuse_missing()
    assert frames.steps is not None
    return Catalogue(
        "H5MD",
        len(frames.steps),
        n_atoms if order is None else len(order.numbers),
        found,
        times,
        frames.steps,
        dimensions,
        ids=None if order is None else order.element,
        id_order=None if order is None else order.numbers,
        facts=_facts(reading, creator, vectors, edges),
        notes=[*reading.notes, *reading.units.notes],
    )


def _one_frame(fixed: Sampled) -> Sampled:
    """What holds at all times, as a trajectory of one frame."""
    return Sampled(fixed.name, fixed.values, np.zeros(1, dtype=np.int64), unit=fixed.unit)


def _facts(
    reading: _Reading, creator: str, vectors: dict[str, Sampled], edges: Sampled | None
) -> dict[str, str]:
    """What `paceline info` shows."""
    passed_over = [name for name in reading.group.names() if name not in (*VECTORS, "box", "id")]
    facts = {
        "written by": creator,
        "group": reading.group.name.rpartition("/")[2],
        "units": ", ".join(f"{name} {unit}" for name, unit in reading.units.used.items()),
        "cell": _cell_in_words(edges),
        "not in the frames": ", ".join(passed_over),
    }
    for name, vector in vectors.items():
        facts[name] = "fixed" if vector.steps is None else f"{vector.n_rows} samples"
    return {name: fact for name, fact in facts.items() if fact}


def _cell_in_words(edges: Sampled | None) -> str:
    if edges is None:
        return "none"
    matrix = edges.values.shape[-2:] == (3, 3) and (edges.steps is None or edges.values.shape[2:])
    kind = "vectors" if matrix else "lengths"
    return f"{kind}, {'fixed' if edges.steps is None else f'{edges.n_rows} samples'}"
