"""A new H5MD file without frames, as ours are laid out."""

from typing import Any

import numpy as np

from paceline._core import __version__
from paceline.errors import UnwritableError
from paceline.hdf5.making import chunked, contiguous, share_clock
from paceline.hdf5.metadata import (
    UNITS,
    Atoms,
    Description,
    command_of_process,
    create_box,
    describe,
    set_unit,
)
from paceline.hdf5.storage import ELEMENTS, GROUP
from paceline.snapshot.containers.base import Contents, Settings

#: Where each kind of fact of the atoms goes, groups included.
PLACES = {
    "name": "parameters/atoms/name",
    "mass": f"particles/{GROUP}/mass",
    "charge": f"particles/{GROUP}/charge",
}
#: Rows of a chunk of steps, times and cells, and atoms of one of facts.
_ROWS, _ATOMS = 512, 2**16
#: Bytes of a chunk, at the most: HDF5 counts them in 32 bits.
_LARGEST_CHUNK = 2**32 - 1


def lay_out(file: Any, settings: Settings, contents: Contents) -> None:
    """Make all that a file has before its first frame.

    Parameters
    ----------
    file : h5py.File
        Empty.
    settings : Settings
        What a user chose.
    contents : Contents
        What all frames hold.

    Raises
    ------
    UnwritableError
        A frame is too large for a chunk.
    """
    n_atoms, n_frames = settings.n_atoms, settings.n_frames
    kind, width = ("<f8", 8) if settings.double else ("<f4", 4)
    if n_frames is None and n_atoms * 3 * width > _LARGEST_CHUNK:
        raise UnwritableError(
            f"{settings.path}: a chunk of HDF5 cannot hold {n_atoms} atoms; give n_frames, and "
            "there will be no chunks"
        )
    for field in contents.fields:
        name = f"particles/{GROUP}/{ELEMENTS[field]}/value"
        if n_frames is None:
            chunked(file, name, (0, n_atoms, 3), kind, (1, n_atoms, 3))
        else:
            contiguous(file, name, (n_frames, n_atoms, 3), kind)
        set_unit(file[name], ELEMENTS[field])
    _make_clock(file, contents)
    origin = {"program": f"paceline {__version__}", "command": command_of_process()}
    origin["call"] = "paceline.snapshot.Writer"
    if settings.title:
        origin["title"] = settings.title
    describe(file, GROUP, Description(Atoms(n_atoms), origin))


def _make_clock(file: Any, contents: Contents) -> None:
    """Make what grows by a row a frame: steps and times, which elements share, and cells."""
    particles = file[f"particles/{GROUP}"]
    first, *others = (particles[ELEMENTS[field]] for field in contents.fields)
    _growing(first, "step", (), "<i8")
    set_unit(_growing(first, "time", (), "<f8"), "time")
    box = create_box(particles, periodic=contents.has_cell)
    if contents.has_cell:
        edges = box.create_group("edges")
        set_unit(_growing(edges, "value", (3, 3), "<f8"), "edges")
        others.append(edges)
    for other in others:
        share_clock(other, first)


def _growing(group: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Make a dataset of no rows that will have one a frame."""
    return group.create_dataset(
        name, shape=(0, *shape), maxshape=(None, *shape), chunks=(_ROWS, *shape), dtype=dtype
    )


def put_facts(file: Any, n_atoms: int, first: int, facts: np.ndarray) -> None:
    """Write names, masses and charges of some atoms.

    Parameters
    ----------
    file : h5py.File
        Which.
    n_atoms : int
        Of the file.
    first : int
        The first of these atoms, counted from 0.
    facts : numpy.ndarray, shape (n,)
        Records, whose fields are those of `PLACES`.
    """
    for name in facts.dtype.names or ():
        where = PLACES[name]
        if where not in file:
            file.create_dataset(
                where,
                shape=(n_atoms,),
                dtype=facts.dtype[name],
                chunks=(min(n_atoms, _ATOMS),),
                compression="gzip",
                shuffle=True,
            )
            if name in UNITS:
                set_unit(file[where], name)
        values = facts[name]
        if name == "name":
            values = np.char.rstrip(values)
        file[where][first : first + len(facts)] = values
