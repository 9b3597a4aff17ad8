"""Everything of an HDF5 file into another, but for some datasets that are written anew."""

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from paceline.hdf5.faults import asking
from paceline.hdf5.native import File

#: Makes a dataset anew: what there is, the group for it, and its name there.
Remake = Callable[[Any, Any, str], None]


def copy_contents(source: File, target: Any, remade: dict[str, Remake]) -> None:
    """Copy groups, datasets, attributes and links of all kinds.

    Objects with several names have them in the copy too. References to objects, which a copy by
    HDF5 would make void, lead to the copies of these.

    Parameters
    ----------
    source : File
        Open for reading.
    target : h5py.File
        Empty.
    remade : mapping of str to callable
        Of datasets, by their paths in the source, what makes them in the target instead.
    """
    copier = _Copier(source, target, remade)
    copier.copy_group(source.h5, target)
    copier.lead_references()


def copy_attributes(source: Any, target: Any) -> None:
    """Copy attributes, but for references, which are to be led elsewhere.

    Parameters
    ----------
    source, target : h5py.Group or h5py.Dataset
        The object that has them, and its copy.
    """
    for name in source.attrs:
        kind = source.attrs.get_id(name).dtype
        if not _is_reference(kind):
            target.attrs.create(name, source.attrs[name], dtype=kind)


class _Copier:
    def __init__(self, source: File, target: Any, remade: dict[str, Remake]):
        self._path, self._source, self._target = source.path, source.h5, target
        self._remade = {_identity(self._source[path]): make for path, make in remade.items()}
        #: Of each object of the source, where its copy is.
        self._copies: dict[tuple[int, int], str] = {_identity(self._source): "/"}
        self._pairs: list[tuple[Any, str]] = [(self._source, "/")]

    def copy_group(self, source: Any, target: Any) -> None:
        """Copy all that a group links to, and its attributes."""
        for name in source:
            link = source.get(name, getlink=True)
            if isinstance(link, h5py.HardLink):
                self._copy_object(source[name], target, name)
            else:
                target[name] = link
        copy_attributes(source, target)

    def _copy_object(self, found: Any, target: Any, name: str) -> None:
        identity = _identity(found)
        if identity in self._copies:
            target[name] = self._target[self._copies[identity]]
            return
        self._copies[identity] = f"{target.name.rstrip('/')}/{name}"
        self._pairs.append((found, self._copies[identity]))
        if identity in self._remade:
            self._remade[identity](found, target, name)
        elif isinstance(found, h5py.Group):
            created = found.id.get_create_plist()
            h5py.h5g.create(target.id, name.encode(), gcpl=created)
            self.copy_group(found, target[name])
        else:
            with asking(self._path, found.name):
                self._source.copy(found, target, name)

    def lead_references(self) -> None:
        """Let references lead to copies."""
        for found, copy in self._pairs:
            for name in found.attrs:
                if _is_reference(found.attrs.get_id(name).dtype):
                    led = self._led(found.attrs[name])
                    self._target[copy].attrs.create(name, led, dtype=h5py.ref_dtype)
            if isinstance(found, h5py.Dataset) and _is_reference(found.dtype):
                self._target[copy][...] = self._led(found[...])

    def _led(self, references: Any) -> Any:
        """References of the target in place of those of the source."""
        if isinstance(references, h5py.Reference):
            if not references:
                return references
            return self._target[self._copies[_identity(self._source[references])]].ref
        led = np.empty(references.shape, dtype=h5py.ref_dtype)
        for place, reference in np.ndenumerate(references):
            led[place] = self._led(reference)
        return led


def _is_reference(kind: np.dtype) -> bool:
    return h5py.check_ref_dtype(kind) is h5py.Reference


def _identity(found: Any) -> tuple[int, int]:
    """The same for all names of an object."""
    info = h5py.h5o.get_info(found.id)
    return info.fileno, info.addr
