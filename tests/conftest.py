"""Trajectories that real programs wrote, each test session with copies of its own."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from MDAnalysisTests import datafiles


class System(NamedTuple):
    """A topology and a trajectory of the same atoms."""

    topology: str
    trajectory: str


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """Keep indices that cannot stand beside their file out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def adk(tmp_path_factory) -> System:
    """Adenylate kinase, 3341 atoms, 98 frames: CHARMM's PSF and DCD, no cell."""
    return _copy(tmp_path_factory.mktemp("adk"), datafiles.PSF, datafiles.DCD)


@pytest.fixture(scope="session")
def adk_in_water(tmp_path_factory) -> System:
    """Adenylate kinase in water, 47681 atoms, 10 frames: GROMACS's GRO and XTC."""
    return _copy(tmp_path_factory.mktemp("adk_in_water"), datafiles.GRO, datafiles.XTC)


def _copy(folder: Path, topology, trajectory) -> System:
    # An index would otherwise be written beside the files of the installed package.
    return System(*(str(shutil.copy(str(path), folder)) for path in (topology, trajectory)))
