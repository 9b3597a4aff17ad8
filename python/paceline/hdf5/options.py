"""What a user says about an HDF5 file that it does not say itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import UnsupportedError

#: How the command line calls them.
_OPTIONS = {
    "group": "--particles",
    "units": "--units",
    "dataset": "--dataset",
    "external": "--external",
}


class LeadsOutError(UnsupportedError):
    """Part of an HDF5 file lies in another file, which is not to be opened.

    Attributes
    ----------
    what : str
        The part, and where it leads.
    """

    what = ""


@dataclass(frozen=True)
class Hdf5Options:
    """What the user said about an HDF5 file that it does not say itself.

    Attributes
    ----------
    group : str, optional
        The group of particles, where there are several.
    units : str or mapping of str to str, optional
        Of its numbers, where it has none: {"length": "nm", "time": "ps"}, or "nm, ps".
    dataset : str, optional
        That of positions, in a file of no known structure.
    driver : {"mpio"}, optional
        Through what HDF5's own library is to read it: MPI-IO.
    external : bool
        Whether links and datasets that lead into other files are followed.
    """

    group: str | None = None
    units: str | Mapping[str, str] | None = None
    dataset: str | None = None
    driver: str | None = None
    external: bool = False

    def __post_init__(self) -> None:
        if self.driver not in (None, "mpio"):
            raise UnsupportedError(
                f'driver must be "mpio", not {self.driver!r}; without one, paceline reads by itself'
            )

    @property
    def contents(self) -> dict[str, Any]:
        """What of it says which numbers are meant."""
        return {"group": self.group, "units": self.units, "dataset": self.dataset}

    def refuse_for(self, path: str) -> None:
        """Raise where a file that is no HDF5 file was asked for with any of these.

        Parameters
        ----------
        path : str
            The file.

        Raises
        ------
        UnsupportedError
            Something was said.
        """
        for name, value in vars(self).items():
            if value not in (None, False):
                option = f" ({_OPTIONS[name]})" if name in _OPTIONS else ""
                raise UnsupportedError(
                    f"{path}: {name}={option} is for HDF5 files, and this is none"
                )


NO_OPTIONS = Hdf5Options()
