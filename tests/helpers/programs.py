"""External programs, without which a test is skipped by name, and HDF5's filters."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import h5py
import pytest


def needs_program(name: str) -> pytest.MarkDecorator:
    """Skip a test if a program is not on PATH."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not on PATH")


def load_filters(words: Any) -> None:
    """Register filters with HDF5 if a message names a missing one; skip the test without them."""
    if any(name in str(words) for name in ("zstd", "lz4", "32015", "32004")):
        pytest.importorskip("hdf5plugin")


@contextlib.contextmanager
def without_filters(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make HDF5 in this process have only its own filters and those of h5py."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "hdf5plugin", None)
        patch.setattr(h5py.h5z, "filter_avail", lambda number: number < 307 or number == 32000)
        yield


#: HDF5's tools, as parameters of a test.
HDF5_TOOLS = [pytest.param(name, marks=needs_program(name)) for name in ("h5dump", "h5stat")]
