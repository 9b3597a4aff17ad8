"""Which files this process writes: two that write one would destroy each other's frames."""

import os
import weakref

from paceline.errors import UnwritableError

#: Who writes, by the file's name without links. Who is forgotten without an end writes no more.
_WRITERS: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()


def claim(path: str, writer: object) -> None:
    """Note that a file is being written.

    Parameters
    ----------
    path : str
        The file, which need not be there.
    writer : object
        By whom.

    Raises
    ------
    UnwritableError
        Another one writes it.
    """
    name = os.path.realpath(path)
    if any(_are_same(name, other) for other in list(_WRITERS)):
        raise UnwritableError(
            f"{path}: expected a file that nobody writes, found that another writer of this "
            "program has it: close that one first"
        )
    _WRITERS[name] = writer


def release(writer: object) -> None:
    """Note that somebody writes no more.

    Parameters
    ----------
    writer : object
        Who.
    """
    for name, other in list(_WRITERS.items()):
        if other is writer:
            del _WRITERS[name]


def _are_same(name: str, other: str) -> bool:
    """Whether two names are one file's, be it by a hard link."""
    try:
        return name == other or os.path.samefile(name, other)
    except OSError:
        return False
