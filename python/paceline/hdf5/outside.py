"""What leads out of an HDF5 file into others: followed only where that is asked for."""

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import h5py

from paceline.hdf5.file import asking, text_of
from paceline.hdf5.options import LeadsOutError

if TYPE_CHECKING:
    from paceline.hdf5.file import File

_ASK = (
    "other files are not opened unless external=True (--external) asks for it, where you trust "
    "this one"
)


def check_link(file: "File", where: str, link: Any) -> None:
    """Raise `LeadsOutError` where an external link is not to be followed."""
    if isinstance(link, h5py.ExternalLink):
        names = [link.filename]
        _check(file, where, f"an external link to {link.path}", names, "HDF5_EXT_PREFIX")


def check_dataset(file: "File", where: str, h5: Any) -> None:
    """Raise `LeadsOutError` where a dataset's numbers lie in files that are not to be opened.

    To be called before anything else is asked of it: for its shape alone HDF5 may open others.
    """
    with asking(file.path, where, "a layout"):
        created = h5.id.get_create_plist()
        n_sources = 0
        if created.get_layout() == h5py.h5d.VIRTUAL:
            n_sources = created.get_virtual_count()
        sources = (text_of(created.get_virtual_filename(k)) for k in range(n_sources))
        n_stored = created.get_external_count()
        stored = (text_of(created.get_external(k)[0]) for k in range(n_stored))
        if n_sources:
            _check(file, where, "a virtual dataset", sources, "HDF5_VDS_PREFIX")
        if n_stored:
            _check(file, where, "a dataset with external storage", stored, "HDF5_EXTFILE_PREFIX")


def _check(file: "File", where: str, what: str, names: Any, variable: str) -> None:
    for name in names:
        other = "this file" if name == "." else name
        found = f"{where} is {what}, which leads into {other}"
        if not file.external:
            raise _refusal(file.path, found, _ASK)
        for place in _places(file.path, name, variable):
            if os.path.exists(place) and not stat.S_ISREG(os.stat(place).st_mode):
                raise _refusal(file.path, found, f"{place} is no regular file and is not opened")


def _refusal(path: str, found: str, why: str) -> LeadsOutError:
    error = LeadsOutError(f"{path}: {found}: {why}")
    error.what = found
    return error


def _places(path: str, name: str, variable: str) -> Iterator[str]:
    """Where HDF5 looks for a file that another one names."""
    folders = ["", os.path.dirname(os.path.realpath(path)), os.path.dirname(path)]
    folders += os.environ.get(variable, "").split(":")
    if name == ".":
        return
    for folder in folders:
        yield os.path.join(folder, name)
        yield os.path.join(folder, os.path.basename(name))
