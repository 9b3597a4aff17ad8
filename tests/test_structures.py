"""Tests of structure files: MDAnalysis and MDTraj read them back."""

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.disks import full_disk

import paceline
from paceline.analysis import structure_writer
from paceline.errors import PacelineWarning, UnsupportedError, UnwritableError


@pytest.fixture(scope="module")
def expected(adk_in_water):
    """Atoms of some residues of the protein, read by MDAnalysis's own reader."""
    return MDAnalysis.Universe(*adk_in_water).select_atoms("protein and resid 1-40")


@pytest.fixture
def protein(adk_in_water):
    return paceline.Universe(*adk_in_water).select_atoms("protein and resid 1-40")


@pytest.mark.parametrize("ending", [".pdb", ".ent", ".gro", ".xyz"])
def test_mdanalysis_reads_the_frames(ending, expected, protein, tmp_path, where):
    path = tmp_path / f"out{ending}"
    results = paceline.Write(protein, path).run(step=3, block_frames=1, **where).results
    assert (results.n_written, results.n_bytes) == (4, path.stat().st_size)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    for number, source in enumerate(expected.universe.trajectory[::3]):
        found = frame(path, number, tmp_path)
        np.testing.assert_allclose(
            found.atoms.positions,
            expected.positions,
            rtol=0,
            atol=0.0051 if "gro" in ending else 6e-4,
        )
        if ending != ".xyz":
            np.testing.assert_allclose(found.dimensions, source.dimensions, atol=1e-2)
            assert found.residues.resnames.tolist() == expected.residues.resnames.tolist()
            assert found.atoms.names.tolist() == expected.names.tolist()
    times = [line for line in path.read_text(encoding="utf-8").splitlines() if " t= " in line]
    assert [float(line.partition(" t= ")[2].split()[0]) for line in times] == pytest.approx(
        [0, 300, 600, 900], abs=1e-3
    )


def frame(path, number, folder):
    """Open a frame; MDAnalysis reads only the first one of a GRO file."""
    if path.suffix == ".gro":
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        size = int(lines[1]) + 3
        path = folder / "one.gro"
        path.write_text("".join(lines[number * size :][:size]), encoding="utf-8")
        number = 0
    found = MDAnalysis.Universe(str(path))
    found.trajectory[number]
    return found


def test_gro_holds_velocities(moving, tmp_path):
    universe = paceline.Universe(*moving)
    paceline.Write(universe.atoms, tmp_path / "out.gro").run(n_workers=2)
    theirs = MDAnalysis.Universe(*moving)
    seen = set()
    for number, ts in enumerate(theirs.trajectory):
        found = frame(tmp_path / "out.gro", number, tmp_path).trajectory.ts
        assert found.has_velocities == ts.has_velocities
        seen.add(ts.has_velocities)
        if ts.has_velocities:
            np.testing.assert_allclose(found.velocities, ts.velocities, atol=6e-4)
    assert seen == {True, False}


@pytest.mark.parametrize("options", [{}, {"start": 4, "step": 2}, {"frames": [7, 2]}])
@pytest.mark.parametrize("ending", [".xtc", ".dcd", ".trr"])
def test_a_structure_opens_the_trajectory(ending, options, protein, tmp_path, where):
    path, structure = tmp_path / f"out{ending}", tmp_path / "out.pdb"
    moves = [paceline.transform.wrap(compound="residues")]
    write = paceline.Write(protein, path, structure=structure)
    write.run(block_frames=2, transforms=moves, **options, **where)
    assert (write.results.structure, write.outputs) == (str(structure), (str(path), str(structure)))
    both, alone = paceline.Universe(str(structure), str(path)), MDAnalysis.Universe(str(structure))
    assert both.trajectory.n_frames == write.results.n_written
    np.testing.assert_allclose(both.atoms.positions, alone.atoms.positions, atol=0.0057)
    np.testing.assert_allclose(both.dimensions, alone.dimensions, atol=1e-2)
    assert alone.atoms.names.tolist() == protein.names.tolist()


def test_the_structure_is_of_the_first_frame_that_is_left(damaged, tmp_path):
    files, bad = damaged
    universe = paceline.Universe(*files)
    first = next(frame for frame in range(98) if frame not in bad)
    frames = [*sorted(bad)[:2], first, 97]
    path = tmp_path / "out.pdb"
    write = paceline.Write(universe.atoms, tmp_path / "out.dcd", structure=path)
    write.run(frames=frames, on_error="skip", block_frames=1, n_workers=2)
    universe.trajectory[first]
    found = MDAnalysis.Universe(str(path)).atoms.positions
    np.testing.assert_allclose(found, universe.atoms.positions, atol=6e-4)


def test_neither_file_is_there_after_an_error(tmp_path):
    path = tmp_path / "out.pdb"
    universe = MDAnalysis.Universe.empty(3, trajectory=True)
    universe.add_TopologyAttr("names", ["A", "B", "C"])
    universe.load_new(np.full((2, 3, 3), 2e4, np.float32))
    with pytest.raises(UnwritableError, match=r"out.pdb: frame 0: atom 0 is at \(20000, "):
        paceline.Write(universe.atoms, tmp_path / "out.xtc", structure=path).run()
    with pytest.raises(UnwritableError, match="stores finite coordinates from -999"):
        paceline.Write(universe.atoms, path).run()
    assert list(tmp_path.iterdir()) == []


def test_names_of_files_are_checked_before(adk, protein, tmp_path):
    with pytest.raises(UnsupportedError, match="these have none: use a topology"):
        paceline.Write(paceline.open(adk.trajectory), tmp_path / "out.pdb").run(stop=1)
    with pytest.raises(UnsupportedError, match=r"saved as \.pdb, .*, not '\.tpr'"):
        paceline.Write(protein, tmp_path / "out.xtc", structure=tmp_path / "out.tpr")
    with pytest.raises(UnsupportedError, match="one file for two purposes"):
        paceline.Write(protein, tmp_path / "out.pdb", structure=tmp_path / "out.pdb")
    with pytest.raises(UnsupportedError, match="CRD stores one frame, but there are 10"):
        paceline.Write(protein, tmp_path / "out.crd").run()
    (tmp_path / "old.pdb").write_text("old", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"old\.pdb exists"):
        paceline.Write(protein, tmp_path / "out.xtc", structure=tmp_path / "old.pdb")


def test_a_full_disk_leaves_neither(protein, tmp_path):
    write = paceline.Write(protein, tmp_path / "out.xtc", structure=tmp_path / "out.pdb")
    with full_disk(30_000), pytest.raises(OSError, match=r"out\.pdb"):
        write.run(backend="serial")
    assert not any("out" in path.name for path in tmp_path.iterdir())


def test_numbers_and_names_that_are_cut_are_said(tmp_path):
    n_residues = 10_000
    universe = MDAnalysis.Universe.empty(
        100_000, n_residues, atom_resindex=np.repeat(np.arange(n_residues), 10), trajectory=True
    )
    universe.add_TopologyAttr("names", np.tile([f"C{k}" for k in range(10)], n_residues))
    universe.add_TopologyAttr("resids", np.arange(1, n_residues + 1))
    universe.add_TopologyAttr("resnames", ["CHOLEST"] * n_residues)
    universe.atoms.positions = np.random.default_rng(1).uniform(0, 99, (100_000, 3))
    with pytest.warns(PacelineWarning) as said:
        paceline.Write(universe.atoms, tmp_path / "out.pdb").run()
    assert (
        "numbers of atoms above 99,999 to 5 digits and numbers of residues above 9,999 to 4 digits "
        "and names of residues such as CHOLEST to 4 letters"
    ) in str(said[0].message)
    lines = (tmp_path / "out.pdb").read_text(encoding="utf-8").splitlines()
    assert {len(line) for line in lines if line.startswith("ATOM")} == {80}
    found = MDAnalysis.Universe(str(tmp_path / "out.pdb"))
    assert (len(found.atoms), len(found.residues)) == (100_000, n_residues)
    np.testing.assert_allclose(found.atoms.positions, universe.atoms.positions, atol=6e-4)


def test_large_files_are_warned_of(adk_in_water, tmp_path, monkeypatch):
    protein = paceline.Universe(*adk_in_water).select_atoms("protein")
    monkeypatch.setattr(structure_writer, "LARGE", 10**6)
    with pytest.warns(PacelineWarning, match=r"about 2\.71 MB of text; a trajectory \(\.xtc\)"):
        paceline.Write(protein, tmp_path / "out.pdb").run()
    assert 0.9 < (tmp_path / "out.pdb").stat().st_size / 2.71e6 < 1.1


def test_bonds_and_chains_of_a_pdb(adk, tmp_path):
    universe = MDAnalysis.Universe(*adk)
    atoms = paceline.Universe(*adk).select_atoms("resid 1-20")
    paceline.Write(atoms, tmp_path / "out.pdb").run(stop=1)
    found = MDAnalysis.Universe(str(tmp_path / "out.pdb"))
    expected = universe.select_atoms("resid 1-20")
    pairs = expected.bonds.atomgroup_intersection(expected, strict=True).indices
    np.testing.assert_array_equal(
        np.unique(np.sort(found.bonds.indices), axis=0), np.unique(np.sort(pairs), axis=0)
    )
    assert set(found.atoms.chainIDs) == {"A"}
    assert mdtraj.load(str(tmp_path / "out.pdb")).n_atoms == len(atoms)


def test_atoms_may_be_in_any_order(adk, tmp_path):
    universe = paceline.Universe(*adk)
    group = universe.atoms[[700, 3, 100, 3]]
    paceline.Write(group, tmp_path / "out.pdb").run(stop=1)
    found = MDAnalysis.Universe(str(tmp_path / "out.pdb")).atoms
    assert found.names.tolist() == group.names.tolist()
    np.testing.assert_allclose(found.positions, group.positions, atol=6e-4)


def test_command_writes_a_structure(adk, tmp_path, run):
    out, structure = tmp_path / "ca.xtc", tmp_path / "ca.pdb"
    select = ["--select", "name CA", "--begin", "5"]
    status, _, err = run("convert", *adk, out, *select, "--structure", structure)
    assert status == 0
    assert f"{out}: 93 frames of 214 atoms, " in err
    assert run("info", structure, out)[0] == 0
    assert run("convert", *adk, tmp_path / "ca.gro", *select, "--step", "50")[0] == 0
    assert (tmp_path / "ca.gro").read_text(encoding="utf-8").count(" t= ") == 2
    status, _, err = run("convert", adk.trajectory, tmp_path / "all.pdb")
    assert status == 2
    assert "use a topology with names (-s)" in err
