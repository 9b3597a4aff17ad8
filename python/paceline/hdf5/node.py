"""What groups and datasets of an open HDF5 file have in common."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import h5py

from paceline.hdf5.faults import asking
from paceline.hdf5.plain import plain

if TYPE_CHECKING:
    from paceline.hdf5.native import File

#: What may be read whatever the file's size: numbers that were never written have no bytes.
SMALL = 1 << 20


class Node:
    """A group or a dataset.

    Attributes
    ----------
    file : File
        Where it is.
    name : str
        Its path there, as it was reached.
    """

    def __init__(self, file: "File", name: str, h5: Any):
        self.file = file
        self.name = name
        self._h5 = h5

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Its attributes as plain Python: str, int, float, bool, lists of str, arrays of numbers.

        One that holds what none of these can say, or that is empty, is None.
        """
        with asking(self.file.path, self.name, "attributes"):
            names = list(self._h5.attrs)
        return {name: self._attribute(name) for name in names}

    def _attribute(self, name: str) -> Any:
        with asking(self.file.path, f"{self.name}, attribute {name}", "a value"):
            attribute = self._h5.attrs.get_id(name)
            n_bytes = math.prod(attribute.shape or ()) * attribute.get_type().get_size()
            if n_bytes > max(self.file.size, SMALL):
                raise ValueError(f"{n_bytes} bytes claimed, in a file of {self.file.size}")
            return plain(self._h5.attrs[name])

    @property
    def identity(self) -> tuple[int, int]:
        """The same for two names of one object."""
        with asking(self.file.path, self.name):
            info = h5py.h5o.get_info(self._h5.id)
            return info.fileno, info.addr

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.file.path}>"
