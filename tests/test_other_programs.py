"""Tests that paceline reads files of other programs, and that they read paceline's files."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import chemfiles
import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.charmm_dcd import shape_matrix, write_dcd
from helpers.programs import needs_program

import paceline
from paceline.errors import PacelineError, PacelineWarning
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

EXAMPLES = Path(__file__).parents[1] / "examples"
ENDINGS = [".xtc", ".trr", ".dcd", ".nc"]
#: Rounding of a unit conversion, or of XTC's integers, Å.
TOLERANCE = 2e-5
needs_gromacs = needs_program("gmx")


@pytest.fixture(scope="module")
def protein(adk_in_water, tmp_path_factory) -> tuple[str, np.ndarray, np.ndarray]:
    """Return a structure file, and positions (Å, exact in XTC) and cells of ten frames."""
    folder = tmp_path_factory.mktemp("protein")
    universe = MDAnalysis.Universe(*adk_in_water)
    atoms = universe.select_atoms("protein")
    atoms.write(folder / "protein.gro")
    positions = universe.trajectory.timeseries(atoms, order="fac")
    dimensions = np.array([ts.dimensions.copy() for ts in universe.trajectory])
    return str(folder / "protein.gro"), positions, dimensions


def read_by_us(structure: str, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions (Å), cells and times (ps) of all frames."""
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
    if ending != ".dcd":  # MDTraj writes no times to DCD
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


#: Cells as in CHARMM, one with a shape matrix that looks like cosines.
CELLS_OF_CHARMM = [
    ((4.159, 4.159, 4.159), (105.0, 105.0, 105.0)),
    ((61.2, 61.2, 61.2), (109.4712,) * 3),
    ((35.5, 42.0, 50.25), (80.0, 95.5, 120.0)),
    ((300.0, 310.0, 320.0), (60.0, 60.0, 60.0)),
    ((30.0, 40.0, 50.0), (90.0, 90.0, 90.0)),
]


@pytest.mark.parametrize("version", [26, 36, 48])
def test_cells_of_charmms_own_files(version, tmp_path):
    cells = [shape_matrix(*cell) for cell in CELLS_OF_CHARMM]
    path = write_dcd(tmp_path / "charmm.dcd", version, cells)
    reader = Reader(path)
    with chemfiles.Trajectory(str(path)) as theirs:
        for ts, (lengths, angles) in zip(reader, CELLS_OF_CHARMM, strict=True):
            cell = theirs.read().cell
            np.testing.assert_allclose(ts.dimensions, [*lengths, *angles], rtol=1e-6)
            np.testing.assert_allclose(ts.dimensions, [*cell.lengths, *cell.angles], rtol=1e-6)


@pytest.mark.parametrize(
    ("version", "cell", "words"),
    [
        (22, (50, -0.25, 50, 0, 0, 50), "version, 22, .* lengths and angles, .* matrix it is"),
        (36, (50, 75, 50, 90, 90, 50), "version, 36, .* lengths and angles, .* matrix it is"),
        (36, (900, 75, 900, 90, 80, 900), "version, 36, .* shape matrix, .* angles it is"),
    ],
)
def test_cells_that_could_be_meant_otherwise_warn(version, cell, words, tmp_path):
    path = write_dcd(tmp_path / "charmm.dcd", version, [cell] * 3)
    with pytest.warns(PacelineWarning, match=rf"charmm\.dcd: .*{words}"):
        Reader(path)


def test_frames_are_not_copied_behind_a_head_that_means_other_cells(tmp_path):
    cell = shape_matrix((35.5, 42.0, 50.25), (80.0, 95.5, 120.0))
    paths = [write_dcd(tmp_path / f"{version}.dcd", version, [cell] * 3) for version in (24, 36)]
    with pytest.raises(PacelineError, match="unit cells"):
        paceline.join(paths, tmp_path / "both.dcd")


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
    """Return an XTC file with zero cells; paceline's cells were converted to angles and back."""
    content = bytearray(path.read_bytes())
    core = open_file(path)
    offsets, _ = core.extents(np.arange(core.n_frames, dtype=np.uint64))
    for offset in offsets:
        content[int(offset) + 16 : int(offset) + 52] = bytes(36)
    return bytes(content)


@pytest.mark.parametrize(
    "program",
    [pytest.param(name, marks=needs_program(name)) for name in ("snakemake", "nextflow")],
)
def test_workflow_programs_run_a_survey(program, adk, tmp_path, monkeypatch):
    """The rules of examples/, with names that a shell would split, and more jobs than systems."""
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    command = Path("bin", "paceline")
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m paceline "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent.absolute()}{os.pathsep}{os.environ['PATH']}")
    for name, file in zip(("adk.psf", "adk.dcd"), adk, strict=True):
        shutil.copy(file, name)
    rows = "".join(f"{name},adk.psf,adk.dcd\n" for name in "ab")
    Path("my deposit.csv").write_text(f"id,topology,trajectory\n{rows}")
    Path("battery 1.toml").write_text('[gyration]\nselect = "name CA"\n')
    files = {"catalogue": "my deposit.csv", "battery": "battery 1.toml", "tables": "my tables"}
    if program == "snakemake":
        words = [f"{key}={name}" for key, name in {**files, "shards": 3}.items()]
        run = ["snakemake", "-s", EXAMPLES / "survey.smk", "--cores", "1", "--config", *words]
    else:
        words = [word for key, name in files.items() for word in (f"--{key}", tmp_path / name)]
        run = ["nextflow", "run", EXAMPLES / "survey.nf", *words, "--shards", "3"]
    done = subprocess.run(run, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = paceline.open_survey("my tables")
    assert found.systems["id"].to_pylist() == ["a", "b"]
    assert not len(found.failures)
