"""Tests of scripts from papers on parallel analysis: the same bits with and without paceline."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.mpi import MPIEXEC, environment, needs_mpi

import paceline

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
PLAIN, OURS = (), ("-m", "paceline")
ON_RANKS = [*MPIEXEC, "-n", "2"]
EVERY_RANK = (*OURS, "--every-rank")


def result(
    folder: Path, script: str, *arguments: object, how: tuple[str, ...], ranks: bool = False
) -> tuple[np.ndarray, str]:
    """Run a script of a paper; return the array that it saves, and its errors and warnings."""
    out = folder / "out.npy"
    out.unlink(missing_ok=True)
    command = [*(ON_RANKS if ranks else ()), sys.executable, *how, PAPERS / script]
    done = subprocess.run(
        list(map(str, [*command, *arguments, out])),
        cwd=folder,
        env=environment() | {"PYTHONWARNINGS": "ignore,default::UserWarning"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return np.load(out), done.stderr


@pytest.fixture(scope="module")
def of_dask(adk, tmp_path_factory):
    """Array that the script of 2017 saves without paceline, with any Dask scheduler."""
    folder = tmp_path_factory.mktemp("plain")
    return result(folder, "dask_2017.py", *adk, 2, "processes", how=PLAIN)[0]


# test_script_workers.py also starts workers of distributed.
@pytest.mark.parametrize(
    "scheduler", ["processes", pytest.param("distributed", marks=pytest.mark.full)]
)
def test_dask_of_2017(scheduler, adk, of_dask, tmp_path):
    arguments, expected = ("dask_2017.py", *adk, 2, scheduler), of_dask
    assert expected.shape == (98, 2)
    assert expected[1:, 1].all()
    found, said = result(tmp_path, *arguments, how=OURS)
    assert np.array_equal(found, expected)
    assert "of the script's own" in said


@needs_mpi
def test_ranks_of_2020(adk, tmp_path):
    pytest.importorskip("mpi4py")
    expected, _ = result(tmp_path, "mpi_2020.py", *adk, how=PLAIN)
    assert expected.shape == (98,)
    for how, ranks in ((OURS, False), (EVERY_RANK, True)):
        found, said = result(tmp_path, "mpi_2020.py", *adk, how=how, ranks=ranks)
        assert np.array_equal(found, expected)
        assert said.count("its reader opened 1 trajectory") == (2 if ranks else 1)


@needs_mpi
@pytest.mark.skipif(h5py.get_config().mpi, reason="this h5py was built with MPI")
def test_h5md_of_2021_without_an_mpi_build_of_h5py(adk, tmp_path):
    pytest.importorskip("mpi4py")
    path = tmp_path / "adk.h5md"
    paceline.Write(paceline.Universe(*adk).atoms, path).run()
    # MDAnalysis's DCD reader ignores the driver; the H5MD reader fails.
    expected, _ = result(tmp_path, "h5md_2021.py", *adk, how=PLAIN)
    for how, ranks in ((OURS, False), (EVERY_RANK, True)):
        found, said = result(tmp_path, "h5md_2021.py", adk.topology, path, how=how, ranks=ranks)
        assert np.array_equal(found, expected)
        assert said.count('driver="mpio" is not used') == 1, said
