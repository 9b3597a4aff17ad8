"""Formats of snapshots: how files are told apart, what they hold, and who writes them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline import _core
from paceline.block import FIELDS, field_bits
from paceline.errors import UnsupportedError, UnwritableError
from paceline.snapshot.container import Container, Contents, Settings

if TYPE_CHECKING:
    from paceline.snapshot.local_atoms import Own

#: What Amber divides velocities by, its unit of time being 1/20.455 ps, and kJ in a kcal.
VELOCITY_SCALE, KILOJOULES = 20.455, 4.184


@dataclass(frozen=True)
class Format:
    """A format that is written.

    Attributes
    ----------
    name : str
        What users call it.
    container : callable
        Of `Settings`, what rank 0 keeps of a file.
    coding : callable
        Of fields, and of whether numbers have 64 bits, what makes bytes of atoms.
    fields : tuple of str
        What it can hold.
    in_lines : bool
        Whether names (which it must have), masses and charges stand beside the vectors.
    in_facts : bool
        Whether they stand once in the file.
    options : tuple of str
        What there is to choose, of what others have not.
    """

    name: str
    container: Callable[[Settings], Container]
    coding: Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]
    fields: tuple[str, ...] = FIELDS
    in_lines: bool = False
    in_facts: bool = False
    options: tuple[str, ...] = ()

    def refuse_title(self, title: str) -> None:
        """Raise `UnwritableError` where a file cannot have a title.

        Parameters
        ----------
        title : str
            As a user gave it.
        """
        if "\0" in title:
            raise UnwritableError(f"expected a title without zero bytes, found {title!r}")
        if self.in_lines:
            _core.dlpoly_history_head(title, 1, field_bits(FIELDS[:1]), imcon=0, n_frames=0)

    def refuse(self, path: str, own: "Own", contents: Contents) -> None:
        """Raise `UnwritableError` where atoms hold what a file cannot, or lack what it must.

        Parameters
        ----------
        path : str
            The file.
        own : Own
            Atoms of this rank.
        contents : Contents
            What they hold.
        """
        for field in contents.fields:
            if field not in self.fields:
                raise UnwritableError(
                    f"{path}: {self.name} holds {' and '.join(self.fields)}, no {field}"
                )
        if self.in_lines and own.names is None:
            raise UnwritableError(
                f"{path}: {self.name} holds a name of every atom: names must be given"
            )


def _config(settings: Settings) -> Container:
    from paceline.snapshot.text import Config

    return Config(settings)


def _history(settings: Settings) -> Container:
    from paceline.snapshot.text import History

    return History(settings)


def _h5md(settings: Settings) -> Container:
    from paceline.snapshot.h5md import H5MD

    return H5MD(settings)


def _netcdf(settings: Settings) -> Container:
    from paceline.snapshot.binary import NetCDF

    return NetCDF(settings)


def _dcd(settings: Settings) -> Container:
    from paceline.snapshot.binary import Dcd

    return Dcd(settings)


def _code(kind: Any, **options: Any) -> Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]:
    return lambda fields, double: _core.SnapshotFormat(kind, field_bits(fields), **options)


def _code_h5md(fields: tuple[str, ...], double: bool) -> "_core.SnapshotFormat":
    return _core.SnapshotFormat("arrays", field_bits(fields), dtype="<f8" if double else "<f4")


_AMBER = (1.0, 1 / VELOCITY_SCALE, 1 / KILOJOULES)
_TEXT: dict[str, Any] = {"in_lines": True, "options": ("title", "dt")}
FORMATS = {
    "CONFIG": Format("CONFIG", _config, _code("CONFIG"), **_TEXT),
    "REVCON": Format("REVCON", _config, _code("CONFIG"), **_TEXT),
    "HISTORY": Format("HISTORY", _history, _code("HISTORY"), **_TEXT),
    "H5MD": Format(
        "H5MD", _h5md, _code_h5md, in_facts=True, options=("title", "n_frames", "double")
    ),
    "NetCDF": Format("NetCDF", _netcdf, _code("arrays", factors=_AMBER, dtype=">f4")),
    "DCD": Format("DCD", _dcd, _code("DCD"), ("positions",)),
}
#: Endings of names, and words that may stand anywhere between their dots.
_ENDINGS = {".h5md": "H5MD", ".h5": "H5MD", ".hdf5": "H5MD", ".nc": "NetCDF", ".ncdf": "NetCDF"} | {
    ".dcd": "DCD"
}
_WORDS = ("CONFIG", "REVCON", "HISTORY")


def format_of(path: str | os.PathLike, name: str | None = None) -> Format:
    """The format of a file that is to be written.

    Parameters
    ----------
    path : path-like
        The file.
    name : str, optional
        What a user calls the format; by default the file's name tells.

    Returns
    -------
    Format

    Raises
    ------
    UnsupportedError
        There is no such format, or the file's name tells none.

    Examples
    --------
    >>> format_of("run/HISTORY").name, format_of("nacl.REVCON").name, format_of("md.nc").name
    ('HISTORY', 'REVCON', 'NetCDF')
    """
    if name is not None:
        for known, one in FORMATS.items():
            if known.upper() == name.upper():
                return one
        raise UnsupportedError(f"expected a format out of {', '.join(FORMATS)}, found {name!r}")
    base = os.path.basename(os.fspath(path))
    ending = _ENDINGS.get(os.path.splitext(base)[1].lower())
    if ending is not None:
        return FORMATS[ending]
    for word in base.upper().split("."):
        if word in _WORDS:
            return FORMATS[word]
    raise UnsupportedError(
        f"{os.fspath(path)}: expected a name that ends in {', '.join(_ENDINGS)} or is "
        f"{', '.join(_WORDS)}; or say format="
    )
