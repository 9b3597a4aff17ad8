"""An HDF5 file that all ranks of MPI read at once: each call is made by all, or waits for ever."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.reader import Hdf5FileSpec
from paceline.hdf5.trajectory import Hdf5File
from paceline.trajectory.source import FileReader, TrajectoryFile


@dataclass(frozen=True)
class CollectiveFileSpec:
    """A file, and who reads it together.

    Attributes
    ----------
    member : Hdf5FileSpec
        The file.
    comm : mpi4py.MPI.Comm
        The ranks.
    """

    member: Hdf5FileSpec
    comm: Any

    @property
    def path(self) -> str:
        """The file."""
        return self.member.path

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """A hand on the file, which all ranks take at once."""
        from paceline.hdf5.h5py_reader import H5pyReader

        return H5pyReader(self.member, atoms, fields, comm=self.comm)


def read_together(files: Sequence[TrajectoryFile], comm: Any) -> list[CollectiveFileSpec]:
    """Files that all ranks read at once.

    Parameters
    ----------
    files : sequence of TrajectoryFile
        HDF5 files that were opened for MPI-IO.
    comm : mpi4py.MPI.Comm
        The ranks.

    Returns
    -------
    list of CollectiveFileSpec

    Raises
    ------
    UnsupportedError
        A file is no HDF5 file, or some of its frames hold less than others, so that ranks would
        not make the same calls.
    """
    members = []
    for file in files:
        if not isinstance(file, Hdf5File):
            raise UnsupportedError(f"{file.path}: collective=True is for HDF5 files")
        for field, element in file.catalogue.elements.items():
            if element.rows is not None and (element.rows == ABSENT).any():
                raise UnsupportedError(
                    f"{file.path}: not all frames hold {field}, and ranks that read at once must "
                    "all read the same of each; leave out collective=True"
                )
        members.append(CollectiveFileSpec(file.spec, comm))
    return members
