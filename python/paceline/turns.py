"""Readers take turns at having files open: the Universes of an ensemble may be thousands."""

import weakref
from collections import OrderedDict

from paceline.frames import OpenFiles

#: Readers that have files open at the same time.
OPEN_READERS = 16

#: Their files, those that were read last at the end.
_open: OrderedDict[int, weakref.ref[OpenFiles]] = OrderedDict()


def take_turn(files: OpenFiles) -> None:
    """Let a reader have its files open, and no more than some others.

    Parameters
    ----------
    files : OpenFiles
        Of the reader that is about to read.
    """
    _open.pop(id(files), None)
    _open[id(files)] = weakref.ref(files)
    while len(_open) > OPEN_READERS:
        _, oldest = _open.popitem(last=False)
        if (others := oldest()) is not None:
            others.let_go()
