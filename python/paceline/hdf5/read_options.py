"""Options that say about an HDF5 file what it does not say itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import UnsupportedError

#: Names on the command line.
_OPTIONS = {
    "group": "--particles",
    "units": "--units",
    "dataset": "--dataset",
    "external": "--external",
}


class ExternalFileError(UnsupportedError):
    """Part of an HDF5 file lies in another file, which is not to be opened."""

    #: The part, and where it leads.
    what = ""


@dataclass(frozen=True)
class Hdf5Options:
    """User's options for HDF5 files."""

    #: Group of particles, where there are several.
    group: str | None = None
    #: {"length": "nm", "time": "ps"}, or "nm, ps". Of LAMMPS's dumps, which share it: "real".
    units: str | Mapping[str, str] | None = None
    #: Positions, in a file of no known convention.
    dataset: str | None = None
    #: "mpio": HDF5's own library reads it through MPI-IO.
    driver: str | None = None
    #: Links and datasets that lead into other files are followed.
    external: bool = False

    def __post_init__(self) -> None:
        if self.driver not in (None, "mpio"):
            raise UnsupportedError(
                f'driver must be "mpio", not {self.driver!r}; without one, paceline reads by itself'
            )

    @property
    def contents(self) -> dict[str, Any]:
        """Options for `paceline.hdf5.conventions.read_chunk_index`."""
        return {"group": self.group, "units": self.units, "dataset": self.dataset}

    def check_unset(self, path: str) -> None:
        """Raise `UnsupportedError` where one is set for a file that is no HDF5 file.

        Units are for some others, too, and checked where those are opened.
        """
        for name, value in vars(self).items():
            if value not in (None, False) and name != "units":
                option = f" ({_OPTIONS[name]})" if name in _OPTIONS else ""
                raise UnsupportedError(
                    f"{path}: {name}={option} is for HDF5 files, and this is none"
                )


NO_OPTIONS = Hdf5Options()
