"""Files that other programs wrote, read by us; ours, read by them."""

import subprocess
from pathlib import Path

import chemfiles
import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.programs import needs_program

import paceline
from paceline.trajectory.open import open_file
from paceline.trajectory.reader import Reader

ENDINGS = [".xtc", ".trr", ".dcd", ".nc"]
#: Rounding of a change of units, or of XTC's integers, Å.
TOLERANCE = 2e-5
needs_gromacs = needs_program("gmx")


@pytest.fixture(scope="module")
def protein(adk_in_water, tmp_path_factory) -> tuple[str, np.ndarray, np.ndarray]:
    """A structure, positions (Å) that XTC holds exactly, and cells, of ten frames."""
    folder = tmp_path_factory.mktemp("protein")
    universe = MDAnalysis.Universe(*adk_in_water)
    atoms = universe.select_atoms("protein")
    atoms.write(folder / "protein.gro")
    positions = universe.trajectory.timeseries(atoms, order="fac")
    dimensions = np.array([ts.dimensions.copy() for ts in universe.trajectory])
    return str(folder / "protein.gro"), positions, dimensions


def read_by_us(structure: str, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions (Å), cells and times (ps) of all frames."""
    universe = paceline.Universe(structure, str(path))
    assert isinstance(universe.trajectory, Reader)
    blocks = []

    def keep(block):
        blocks.append((block.positions, block.dimensions))
        return block.times

    times = paceline.TimeSeries(keep, universe.atoms).run(backend="serial").results.timeseries
    positions, dimensions = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    return positions, dimensions, times


def write_by_us(adk_in_water, path: Path) -> None:
    universe = paceline.Universe(*adk_in_water)
    paceline.Write(universe.select_atoms("protein"), path).run()


@pytest.mark.parametrize("ending", ENDINGS)
def test_mdtraj_writes(ending, protein, tmp_path):
    structure, positions, dimensions = protein
    path = tmp_path / f"theirs{ending}"
    trajectory = mdtraj.Trajectory(positions / 10, mdtraj.load_topology(structure))
    trajectory.time = 100.0 * np.arange(10)
    trajectory.unitcell_lengths = dimensions[:, :3] / 10
    trajectory.unitcell_angles = dimensions[:, 3:]
    trajectory.save(str(path))
    found, cells, times = read_by_us(structure, path)
    np.testing.assert_allclose(found, positions, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cells, dimensions, rtol=1e-5)
    if ending != ".dcd":  # MDTraj writes no times into it
        np.testing.assert_allclose(times, trajectory.time)


@pytest.mark.parametrize("ending", ENDINGS)
def test_chemfiles_writes(ending, protein, tmp_path):
    structure, positions, dimensions = protein
    path = tmp_path / f"theirs{ending}"
    with chemfiles.Trajectory(str(path), "w") as file:
        for xyz, cell in zip(positions, dimensions, strict=True):
            frame = chemfiles.Frame()
            frame.resize(len(xyz))
            frame.positions[:] = xyz
            frame.cell = chemfiles.UnitCell(cell[:3].tolist(), cell[3:].tolist())
            file.write(frame)
    found, cells, _ = read_by_us(structure, path)
    np.testing.assert_allclose(found, positions, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cells, dimensions, rtol=1e-5)


@pytest.mark.parametrize("ending", ENDINGS)
def test_chemfiles_reads(ending, adk_in_water, protein, tmp_path):
    _, positions, dimensions = protein
    path = tmp_path / f"ours{ending}"
    write_by_us(adk_in_water, path)
    with chemfiles.Trajectory(str(path)) as file:
        assert file.nsteps == 10
        for xyz, cell in zip(positions, dimensions, strict=True):
            frame = file.read()
            np.testing.assert_allclose(frame.positions, xyz, rtol=0, atol=TOLERANCE)
            np.testing.assert_allclose(frame.cell.lengths, cell[:3], rtol=1e-5)
            np.testing.assert_allclose(frame.cell.angles, cell[3:], rtol=1e-5)


@needs_gromacs
@pytest.mark.parametrize("ending", [".xtc", ".trr"])
def test_gromacs_reads_and_writes(ending, adk_in_water, protein, tmp_path):
    structure, positions, dimensions = protein
    ours, theirs = tmp_path / f"ours{ending}", tmp_path / f"theirs{ending}"
    write_by_us(adk_in_water, ours)
    checked = subprocess.run(
        ["gmx", "check", "-f", str(ours)], capture_output=True, text=True, check=True
    )
    said = checked.stdout + checked.stderr
    assert "# Atoms  3341" in said
    assert any(line.split()[:3] == ["Coords", "10", "100"] for line in said.splitlines()), said
    subprocess.run(
        ["gmx", "trjconv", "-f", str(ours), "-s", structure, "-o", str(theirs)],
        input="0\n",
        capture_output=True,
        text=True,
        check=True,
    )
    found, cells, times = read_by_us(structure, theirs)
    np.testing.assert_allclose(found, positions, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cells, dimensions, rtol=1e-5)
    np.testing.assert_allclose(times, 100.0 * np.arange(10), atol=1e-3)


@needs_gromacs
def test_our_xtc_is_gromacs_s_but_for_the_last_bits_of_the_cell(adk_in_water, tmp_path):
    ours, theirs = tmp_path / "ours.xtc", tmp_path / "theirs.xtc"
    universe = paceline.Universe(*adk_in_water)
    paceline.Write(universe.atoms, ours).run()
    command = ["gmx", "trjconv", "-f", adk_in_water.trajectory, "-o", str(theirs)]
    command += ["-s", adk_in_water.topology]
    subprocess.run(command, input="0\n", capture_output=True, text=True, check=True)
    assert without_cells(ours) == without_cells(theirs)


def without_cells(path: Path) -> bytes:
    """An XTC file, its cells zeroed: ours went through lengths and angles, and back."""
    content = bytearray(path.read_bytes())
    core = open_file(path)
    offsets, _ = core.extents(np.arange(core.n_frames, dtype=np.uint64))
    for offset in offsets:
        content[int(offset) + 16 : int(offset) + 52] = bytes(36)
    return bytes(content)
