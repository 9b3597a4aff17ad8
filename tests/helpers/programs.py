"""Programs outside Python and Rust, without which a test is skipped by name."""

import shutil

import pytest


def needs_program(name: str) -> pytest.MarkDecorator:
    """Skip a test where a program is not on PATH."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not on PATH")


#: HDF5's own tools, as parameters of a test.
HDF5_TOOLS = [pytest.param(name, marks=needs_program(name)) for name in ("h5dump", "h5stat")]
