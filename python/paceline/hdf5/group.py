"""A group of an open HDF5 file."""

import contextlib
from collections.abc import Iterator
from typing import Any

import h5py

from paceline.errors import DamagedFileError, MissingDataError
from paceline.hdf5.array import Array
from paceline.hdf5.faults import asking, damaged, reason_of
from paceline.hdf5.node import Node


class Group(Node):
    """A group: names, and what they stand for."""

    def names(self) -> list[str]:
        """Names of its links, in the order in which HDF5 gives them."""
        with asking(self.file.path, self.name, "a group"):
            return list(self._h5)

    def get(self, path: str) -> "Group | Array | None":
        """What a path from here leads to.

        Parameters
        ----------
        path : str
            Names, with "/" between.

        Returns
        -------
        Group, Array or None
            None where there is no such name.

        Raises
        ------
        DamagedFileError
            A link is there, and leads nowhere or in a circle.
        """
        node: Group | Array | None = self
        for name in filter(None, path.split("/")):
            node = node._child(name) if isinstance(node, Group) else None
        return node

    def _child(self, name: str) -> "Group | Array | None":
        where = f"{self.name.rstrip('/')}/{name}"
        with asking(self.file.path, where, "a group or a dataset"):
            link = self._h5.get(name, getlink=True)
            if link is None:
                return None
            try:
                h5 = self._h5[name]
            except (KeyError, RuntimeError, OSError) as error:
                raise damaged(
                    self.file.path, where, "a group or a dataset", _link_in_words(link, error)
                ) from error
            if isinstance(h5, h5py.Group):
                return Group(self.file, where, h5)
            return Array(self.file, where, h5) if isinstance(h5, h5py.Dataset) else None

    def __getitem__(self, path: str) -> "Group | Array":
        """What a path leads to; `MissingDataError` where it leads to nothing."""
        node = self.get(path)
        if node is None:
            raise MissingDataError(f"{self.file.path}: {self.name} has no {path!r}")
        return node

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None

    def group(self, path: str) -> "Group | None":
        """The group of a name, or None."""
        node = self.get(path)
        return node if isinstance(node, Group) else None

    def array(self, path: str) -> "Array | None":
        """The dataset of a name, or None."""
        node = self.get(path)
        return node if isinstance(node, Array) else None

    def children(self) -> Iterator["Group | Array"]:
        """What its links stand for; those that lead nowhere are left out."""
        for name in self.names():
            with contextlib.suppress(DamagedFileError):
                node = self._child(name)
                if node is not None:
                    yield node

    def walk(self) -> Iterator["Group | Array"]:
        """Everything below, each object once, whatever its links."""
        seen, waiting = {self.identity}, [self]
        while waiting:
            for node in waiting.pop().children():
                if node.identity not in seen:
                    seen.add(node.identity)
                    yield node
                    if isinstance(node, Group):
                        waiting.append(node)


def _link_in_words(link: Any, error: BaseException) -> str:
    if isinstance(link, h5py.ExternalLink):
        return f"a link to {link.path} in file {link.filename}, which cannot be followed"
    if isinstance(link, h5py.SoftLink):
        circle = "in a circle" if "too many" in str(error) else "nowhere"
        return f"a link to {link.path} that leads {circle}"
    return f"what HDF5 refuses ({reason_of(error)})"
