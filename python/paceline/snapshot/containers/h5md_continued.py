"""An H5MD file that is to grow: whether it is laid out as ours are, and what it holds."""

from typing import Any, NamedTuple

import h5py
import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.metadata import UNITS
from paceline.hdf5.storage import ELEMENTS, GROUP
from paceline.snapshot.containers.base import Contents, Settings, refuse_other_count


class Held(NamedTuple):
    """What a file holds.

    Attributes
    ----------
    contents : Contents
        Of each frame.
    n_frames : int
        That are whole.
    last_step : int or None
        Of the last of them.
    double : bool
        Whether its numbers have 64 bits.
    """

    contents: Contents
    n_frames: int
    last_step: int | None
    double: bool


def growing(file: Any, contents: Contents) -> list[Any]:
    """Datasets that have a row a frame, in the order in which they may count another.

    Readers take the number of frames from positions, and nothing without its step and time.

    Parameters
    ----------
    file : h5py.File
        Which.
    contents : Contents
        Of each frame.

    Returns
    -------
    list of h5py.Dataset
    """
    group = file[f"particles/{GROUP}"]
    clock = group[ELEMENTS[contents.fields[0]]]
    cells = [group["box/edges/value"]] if contents.has_cell else []
    values = [group[ELEMENTS[field]]["value"] for field in reversed(contents.fields)]
    return [clock["time"], clock["step"], *cells, *values]


def understand(file: Any, settings: Settings) -> Held:
    """Find what a file holds.

    Parameters
    ----------
    file : h5py.File
        Which.
    settings : Settings
        What a user chose.

    Returns
    -------
    Held

    Raises
    ------
    AtomCountError
        It has another number of atoms.
    UnsupportedError
        It is not laid out as we would have made it.
    """
    group = file.get(f"particles/{GROUP}")
    if group is None or "position/value" not in group:
        raise unlike(settings.path, f"has no particles/{GROUP}/position/value")
    fields = tuple(field for field in ELEMENTS if ELEMENTS[field] in group)
    contents = Contents(fields, "edges" in group["box"])
    refuse_other_count(settings.path, group["position/value"].shape[1], settings.n_atoms)
    for field in fields:
        _refuse_unlike(group, ELEMENTS[field], settings)
    rows = growing(file, contents)
    n_frames = min(len(one) for one in rows)
    for one in rows:
        # A killed program may have counted a frame here and not there.
        if one.chunks is not None and len(one) > n_frames + 1:
            raise unlike(settings.path, f"has {one.name} of shape {one.shape}")
    steps = group["position/step"]
    last_step = int(steps[n_frames - 1]) if n_frames else None
    double = group["position/value"].dtype == np.dtype("<f8")
    return Held(contents, n_frames, last_step, double)


def _refuse_unlike(group: Any, name: str, settings: Settings) -> None:
    """Raise where an element is not laid out as we would have made it."""
    element, n_atoms = group[name], settings.n_atoms
    values = element["value"]
    properties = values.id.get_create_plist()
    early = properties.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
    kinds = group["position/value"].dtype, values.dtype
    for what, wrong in (
        (
            f"{values.name} in chunks of {values.chunks}",
            values.chunks is not None and (values.chunks != (1, n_atoms, 3) or not early),
        ),
        (f"{values.name} of shape {values.shape}", values.shape[1:] != (n_atoms, 3)),
        (
            f"{values.name} of type {values.dtype}",
            kinds[0] != kinds[1] or values.dtype.str not in ("<f4", "<f8"),
        ),
        (
            f"{values.name} compressed, or in another file",
            properties.get_nfilters() or properties.get_external_count(),
        ),
        (
            f"{values.name} in {values.attrs.get('unit')}",
            values.attrs.get("unit") != UNITS[name],
        ),
        (f"steps of its own for {element.name}", element["step"] != group["position/step"]),
    ):
        if wrong:
            raise unlike(settings.path, f"has {what}")


def unlike(path: str, what: str) -> UnsupportedError:
    """That a file cannot be continued.

    Parameters
    ----------
    path : str
        The file.
    what : str
        What it has that ours have not.

    Returns
    -------
    UnsupportedError
    """
    return UnsupportedError(
        f"{path} {what}, unlike the files of paceline.snapshot: it cannot be continued; write to "
        "a new file"
    )
