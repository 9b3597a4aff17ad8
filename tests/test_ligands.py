"""Ligands and their complexes: names, images, and what a battery computes of them."""

import re

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.lib.mdamath import triclinic_vectors

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.rms import RMSD
from paceline.errors import PacelineWarning
from paceline.transform import unwrap
from paceline.transform.ligands import complex_atoms, ligand_names

N_FRAMES = 20
CELLS = [[40, 45, 50, 90, 90, 90], [40, 40, 40, 70, 80, 75]]


def system(n_solvent=0, resname="LIG"):
    """A chain of ten residues, a ligand of six heavy atoms and two hydrogens, and a solvent."""
    sizes = [4] * 10 + [8] + [6] * n_solvent
    residues = np.repeat(np.arange(len(sizes)), sizes)
    universe = MDAnalysis.Universe.empty(
        len(residues), len(sizes), atom_resindex=residues, trajectory=True
    )
    drug = ["C1", "C2", "C3", "C4", "O1", "N1", "H1", "H2"]
    names = ["N", "CA", "C", "O"] * 10 + drug + [f"C{k}" for k in range(6)] * n_solvent
    universe.add_TopologyAttr("names", names)
    universe.add_TopologyAttr("elements", [name[0] for name in names])
    universe.add_TopologyAttr("resnames", ["ALA"] * 10 + [resname] + ["BNZ"] * n_solvent)
    universe.add_TopologyAttr("resids", np.arange(1, len(sizes) + 1))
    universe.add_TopologyAttr("masses", [1.0 if name[0] == "H" else 12.0 for name in names])
    ends = np.cumsum(sizes)[9:] - 1
    bonds = [(k, k + 1) for k in range(len(names)) if k not in ends]
    universe.add_TopologyAttr("bonds", bonds)
    return universe


def moving(leaving, cell):
    """Positions of a complex that crosses the cell; the ligand leaves it, with `leaving`, Å."""
    places = np.array([[1.2 * (k % 10), 1.3 * (k // 10), 0.4 * (k % 2)] for k in range(48)])
    places[40:] = [[1.2 * k, 9.0, 0.0] for k in range(8)]
    steps = np.linspace(0, 1, N_FRAMES)[:, None, None]
    frames = places + np.random.default_rng(3).normal(0, 0.05, (N_FRAMES, 48, 3))
    frames[:, 40:, 1] += leaving * steps[:, :, 0]
    return frames + steps * np.array([30.0, 50.0, 20.0])


@pytest.fixture(params=CELLS, ids=["right angles", "triclinic"])
def made(request, tmp_path):
    """Write a complex whose atoms are wrapped one by one; give the topology, path and positions."""

    def make(leaving=0.0):
        universe, vectors = system(), triclinic_vectors(request.param).astype(np.float64)
        whole = moving(leaving, request.param)
        wrapped = whole - np.floor(whole @ np.linalg.inv(vectors)) @ vectors
        cells = np.float32([request.param] * N_FRAMES)
        universe.load_new(wrapped.astype(np.float32), dimensions=cells)
        path = str(tmp_path / "complex.trr")
        universe.atoms.write(path, frames="all")
        return universe._topology, path, whole, vectors

    return make


def positions(universe, *steps):
    series = paceline.TimeSeries(lambda block: block.positions, universe.atoms)
    return series.run(transforms=steps).results.timeseries.astype(np.float64)


@pytest.mark.filterwarnings("ignore")
def test_a_ligand_crosses_the_cell_with_its_protein(made):
    topology, path, whole, _ = made()
    universe = paceline.Universe(topology, path)
    found = positions(universe, unwrap(together="complexes"))
    centred = [frames - frames[:, :1] for frames in (found, whole)]
    np.testing.assert_allclose(*centred, atol=1e-3)
    alone = positions(universe, unwrap())
    assert np.abs((alone - alone[:, :1]) - centred[1]).max() > 10


@pytest.mark.filterwarnings("ignore")
def test_a_ligand_that_leaves_is_not_pulled_back(made):
    """Its distance from the nearest atom of the first frame is that of the nearest image."""
    topology, path, whole, vectors = made(leaving=14.0)
    found = positions(paceline.Universe(topology, path), unwrap(together="complexes"))
    gaps = np.linalg.norm(whole[0, :40, None] - whole[0, None, 40:], axis=2)
    first, second = np.unravel_index(gaps.argmin(), gaps.shape)
    steps = found[:, 40 + second] - found[:, first]
    images = np.array([[i, j, k] for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)])
    every = np.linalg.norm(steps[:, None] + images @ vectors, axis=2)
    lengths = np.linalg.norm(steps, axis=1)
    np.testing.assert_allclose(lengths, every.min(axis=1), atol=1e-3)
    true = np.linalg.norm(whole[:, 40 + second] - whole[:, first], axis=1)
    near = true < 0.45 * np.linalg.norm(vectors, axis=1).min()
    np.testing.assert_allclose(lengths[near], true[near], atol=1e-3)
    assert lengths.max() > 12 + lengths[0] - 1
    inside = [frames[:, 40:] - frames[:, 40:41] for frames in (found, whole)]
    np.testing.assert_allclose(*inside, atol=1e-3)


def test_ligands_are_known_by_name_and_size():
    assert ligand_names(system()) == ["LIG"]
    assert ligand_names(system(n_solvent=3)) == ["LIG", "BNZ"]
    assert ligand_names(system(n_solvent=30)) == ["LIG"]
    for other in ("POPC", "SO4", "SOL", "CHL1"):
        assert ligand_names(system(resname=other)) == []
    bound = system()
    bound.add_bonds([(20, 42)])
    assert ligand_names(bound) == []
    assert len(complex_atoms(system(n_solvent=30))) == 48
    assert len(complex_atoms(MDAnalysis.Universe.empty(3, trajectory=True))) == 0


def test_the_command_line_keeps_complexes_together(made, tmp_path, run):
    topology, path, _, _ = made()
    universe = MDAnalysis.Universe(topology, path)
    structure = str(tmp_path / "complex.pdb")
    universe.atoms.write(structure, bonds="all")
    output = tmp_path / "rmsd.csv"
    given = "rmsd", structure, path, "--select", "name CA", "--group", "resname LIG", "-o", output
    code, _, err = run(*given, "--unwrap")
    assert code == 0
    said = "kept side by side, by their contacts in the first frame: 1 chain, LIG"
    assert said in err
    assert np.loadtxt(output, delimiter=",", skiprows=count_head(output))[:, 3].max() < 1
    code, _, err = run(*given, "--together", "none", "--overwrite")
    assert code == 0
    assert "unwrap kept" not in err
    assert "side by side with --together" in err
    assert np.loadtxt(output, delimiter=",", skiprows=count_head(output))[:, 3].max() > 10
    assert re.search(r"# transforms: unwrap\(\)\n", output.read_text(encoding="utf-8"))


def count_head(path):
    return sum(line.startswith(("#", "frame")) for line in path.read_text("utf-8").splitlines())


def test_batteries_keep_complexes_together(made):
    topology, path, _, _ = made()
    universe = paceline.Universe(topology, path)
    described = {"rmsd": {"select": "name CA", "groupselections": ["resname LIG"]}}
    battery = Battery(described, universe).run()
    assert battery.analyses["rmsd"].results.rmsd[:, 3].max() < 1
    apart = RMSD(universe, select="name CA", groupselections=["resname LIG"])
    with pytest.warns(PacelineWarning, match="in different images"):
        apart.run(transforms=[unwrap()])
    assert apart.results.rmsd[:, 3].max() > 10
