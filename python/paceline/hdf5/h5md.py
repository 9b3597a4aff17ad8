"""H5MD, whoever wrote it: what of a group of particles was sampled when, in our units."""

import numpy as np

from paceline.hdf5.cells import dimensions_of
from paceline.hdf5.chunk_index import ABSENT, COUNTED, Catalogue, Element
from paceline.hdf5.dataset import dataset_of
from paceline.hdf5.elements import Sampled, first_not_rising, rows_of
from paceline.hdf5.file import File, Group
from paceline.hdf5.particles import VECTORS, Particles
from paceline.hdf5.units import Units

#: Units of programs that state only some of theirs.
USUAL = {"GROMACS": {"length": "nm", "time": "ps", "velocity": "nm ps-1", "force": "kJ mol-1 nm-1"}}


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
        See `paceline.hdf5.conventions.catalogue_of`.

    Notes
    -----
    The frames are the samples of the positions, or, without these, of the velocities or the
    forces; all else is joined to them by step. Format: H5MD 1.1, https://www.nongnu.org/h5md.
    """
    particles = Particles(file, group)
    creator = creator_of(file.root)
    known = Units(file.path, units, USUAL.get(creator))
    frames, notes = particles.frames, particles.notes
    assert frames.steps is not None
    _note_steps(frames, notes)
    elements = {
        VECTORS[name][0]: _element(particles, vector, VECTORS[name][1], known)
        for name, vector in particles.vectors.items()
    }
    times = _times(particles, known)
    dimensions = _dimensions(particles, known)
    known.refuse_missing()
    order = particles.order
    return Catalogue(
        "H5MD",
        len(frames.steps),
        particles.n_atoms,
        elements,
        times,
        frames.steps,
        dimensions,
        ids=None if order is None else order.element,
        id_order=None if order is None else order.numbers,
        facts=_facts(particles, creator, known),
        notes=[*notes, *known.notes],
    )


def _note_steps(frames: Sampled, notes: list[str]) -> None:
    """Say what is odd about the steps of the frames."""
    assert frames.steps is not None
    row = first_not_rising(frames.steps)
    if not frames.has_steps:
        notes.append(f"{frames.name} has no steps: its frames were counted")
    elif row is not None:
        notes.append(
            f"{frames.name}: step {frames.steps[row]} of frame {row} comes after step "
            f"{frames.steps[row - 1]}; frames are in the order of the file"
        )


def _element(particles: Particles, sampled: Sampled, quantity: str, units: Units) -> Element:
    """An element as the frames see it."""
    rows = rows_of(sampled, particles.frames)
    if rows is not None and sampled.steps is not None:
        _note_unpaired(particles, sampled, rows)
    stated = sampled.unit or (_length_unit(particles) if quantity == "length" else None)
    factor = units.factor(quantity, sampled.name, stated)
    return Element(dataset_of(sampled.values, fixed=sampled.steps is None), rows, factor)


def _note_unpaired(particles: Particles, sampled: Sampled, rows: np.ndarray) -> None:
    """Say which frames lack an element, and how much of it belongs to none."""
    lacking = int((rows == ABSENT).sum())
    unused = sampled.n_rows - (len(rows) - lacking)
    told = []
    if lacking:
        told.append(f"{lacking} of {len(rows)} frames have none")
    if unused:
        told.append(f"{unused} of its {sampled.n_rows} samples are of no frame")
    if told:
        where = f"{sampled.name} was sampled at other steps than {particles.frames.name}"
        particles.notes.append(f"{where}: {', '.join(told)}")


def _length_unit(particles: Particles) -> str | None:
    """The unit of a length that states none: of positions and box, the other's."""
    found = (particles.vectors.get("position"), particles.edges)
    return next((one.unit for one in found if one is not None and one.unit), None)


def _times(particles: Particles, units: Units) -> np.ndarray:
    """Times of the frames, ps: also another element's, where it has the same steps."""
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
        particles.notes.append(f"{frames.name} has no times: its {COUNTED}")
    return np.arange(len(frames.steps), dtype=np.float64)


def _dimensions(particles: Particles, units: Units) -> np.ndarray:
    """Cells of the frames, Å and degrees."""
    edges, factor = particles.edges, 1.0
    if edges is not None:
        factor = units.factor("length", edges.name, edges.unit or _length_unit(particles))
    box = particles.group.group("box")
    return dimensions_of(box, edges, factor, particles.frames, particles.notes)


def _facts(particles: Particles, creator: str, units: Units) -> dict[str, str]:
    """What `paceline info` shows."""
    beside = [name for name in particles.group.names() if name not in (*VECTORS, "box", "id")]
    facts = {
        "written by": creator,
        "group": particles.group.name.rpartition("/")[2],
        "units": ", ".join(f"{name} {unit}" for name, unit in units.used.items()),
        "box": _box_in_words(particles.edges),
        "order of atoms": "changes, and follows id" if particles.order else "",
        "not in the frames": ", ".join(beside),
    }
    for name, vector in particles.vectors.items():
        facts[name] = "fixed" if vector.steps is None else f"{vector.n_rows} samples"
    return {name: fact for name, fact in facts.items() if fact}


def _box_in_words(edges: Sampled | None) -> str:
    if edges is None:
        return "none"
    sample = edges.values.shape if edges.steps is None else edges.values.shape[1:]
    kind = "vectors" if len(sample) == 2 else "lengths"
    return f"{kind}, {'fixed' if edges.steps is None else f'{edges.n_rows} samples'}"
