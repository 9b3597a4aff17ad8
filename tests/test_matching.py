"""Tests of atoms that are taken to be the same: other order or other names warn once."""

import contextlib
import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.align import AlignTraj, AverageStructure
from paceline.analysis.contacts import Contacts
from paceline.analysis.convert import Write
from paceline.analysis.pca import PCA
from paceline.analysis.rms import RMSD
from paceline.cli import main
from paceline.errors import PacelineWarning
from paceline.trajectory.open import names_in
from paceline.transform import fit


@pytest.fixture
def chains(tmp_path):
    """Files of two chains with the same residues, and of the same atoms with the chains swapped."""
    atoms = MDAnalysis.Universe(datafiles.PSF, datafiles.PDB_small).select_atoms("name CA")[:60]
    halves = atoms[:30], atoms[30:]
    of = {"atom_resindex": np.arange(60), "residue_segindex": [0] * 30 + [1] * 30}
    made = MDAnalysis.Universe.empty(60, 60, 2, trajectory=True, **of)
    made.add_TopologyAttr("names", ["CA"] * 60)
    made.add_TopologyAttr("resnames", [*halves[0].resnames] * 2)
    made.add_TopologyAttr("resids", [*range(1, 31)] * 2)
    made.add_TopologyAttr("segids", ["A", "B"])
    made.add_TopologyAttr("chainIDs", ["A"] * 30 + ["B"] * 30)
    made.add_TopologyAttr("elements", ["C"] * 60)
    made.atoms.positions = np.concatenate([half.positions for half in halves])
    made.dimensions = [90, 90, 90, 90, 90, 90]
    paths = tmp_path / "one.pdb", tmp_path / "swapped.pdb"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.atoms.write(paths[0])
        made.atoms[[*range(30, 60), *range(30)]].write(paths[1])
    return paths


@pytest.fixture
def reordered():
    """CA of adenylate kinase, and the same atoms in reverse order."""
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    return universe, MDAnalysis.Merge(universe.select_atoms("name CA")[::-1])


@contextlib.contextmanager
def silent():
    """Turn warnings about other names into errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*(in their order|its atoms have)", PacelineWarning)
        yield


def test_rmsd_from_the_same_atoms_in_another_order(reordered):
    universe, other = reordered
    with pytest.warns(PacelineWarning, match="214 of 214 differ .* CA of MET 1 .* CA of GLY 214"):
        rmsd = RMSD(universe, other, select="name CA")
    assert rmsd.run(stop=1).results.rmsd[0, 2] > 10
    assert "CA of GLY 214" in rmsd.results.provenance["warnings"]
    # The correct reference: the same atoms in the same order.
    right = other.atoms[::-1]
    found = RMSD(universe.select_atoms("name CA"), right, select=None)
    assert found.run(stop=1).results.rmsd[0, 2] < 1e-5
    assert "names" not in found.results.provenance.get("warnings", "")


def test_chains_that_are_swapped(chains):
    one, other = (MDAnalysis.Universe(path) for path in chains)
    with pytest.warns(PacelineWarning, match="60 of 60 differ .* 1 A .* 1 B "):
        assert RMSD(one, other).run().results.rmsd[0, 2] > 1


@pytest.mark.parametrize("analysis", ["average", "align", "fit", "contacts", "pca", "groups"])
def test_every_comparison_tells(analysis, reordered, tmp_path):
    universe, other = reordered
    ca = universe.select_atoms("name CA")

    def run():
        if analysis == "average":
            AverageStructure(universe, other, select="name CA").run(stop=2)
        elif analysis == "align":
            path = tmp_path / "fitted.xtc"
            AlignTraj(universe, other, "name CA", path, match_atoms=False).run(stop=2)
        elif analysis == "fit":
            RMSD(ca).run(stop=2, transforms=[fit("name CA", other)])
        elif analysis == "contacts":
            groups = other.atoms[:100], other.atoms[100:]
            Contacts(universe, (ca[:100], ca[100:]), groups, radius=12).run(stop=2)
        elif analysis == "groups":
            core = {"select": "name CA and resid 1-20", "groupselections": ["name CA"]}
            RMSD(universe, other, **core).run(stop=2)
        else:
            found = PCA(universe, "name CA").run(stop=5)
            found.transform(ca[::-1], stop=2)

    with pytest.warns(PacelineWarning) as caught:
        run()
    texts = {str(one.message) for one in caught}
    told = [text for text in texts if "are compared in their order" in text]
    assert len(told) == (2 if analysis in ("contacts", "groups") else 1)


def test_other_names_for_the_same_atoms_are_no_other_order():
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    protein = universe.select_atoms("protein")
    other = MDAnalysis.Merge(protein)
    names = ["H" if name == "HN" else name for name in other.atoms.names]
    other.atoms.names = [
        f"{name[-1]}{name[:-1]}" if name in ("HB1", "HB2", "HB3") else name for name in names
    ]
    residues = other.residues
    residues.resnames = ["HIS" if name.startswith("HS") else name for name in residues.resnames]
    residues.resids = residues.resids + 100
    other.segments.segids = ["A"]
    with silent():
        assert RMSD(universe, other, select="protein").run(stop=1).results.rmsd[0, 2] < 1e-5


def test_coordinates_in_another_order_than_the_topology(chains):
    made, topology = MDAnalysis.Universe(chains[0]), chains[0].with_name("topology.gro")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.atoms[::-1].write(topology)
    with pytest.warns(PacelineWarning, match=r"one.pdb: its atoms have the names .* order"):
        universe = paceline.Universe(topology, chains[0])
    analysis = RMSD(universe.atoms).run()
    assert "one.pdb: its atoms have the names" in analysis.record()["warnings"]


def test_files_of_the_same_names_are_silent(chains):
    with silent():
        paceline.Universe(datafiles.PSF, datafiles.PDB_small)
        paceline.Universe(datafiles.TPR, datafiles.GRO)
        paceline.Universe(datafiles.GRO)
        paceline.Universe(datafiles.PDB_small)
        paceline.Universe(*chains)  # the chains have the same residues, and all names are equal


@pytest.mark.parametrize(
    ("name", "n_atoms", "first"),
    [("GRO", 47681, "N"), ("PDB_multiframe", 392, "N"), ("DLP_HISTORY", 216, "K+")],
)
def test_names_in_files_are_those_that_mdanalysis_reads(name, n_atoms, first):
    path = getattr(datafiles, name)
    options = {"topology_format": "HISTORY"} if name == "DLP_HISTORY" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        atoms = MDAnalysis.Universe(path, **options, to_guess=()).atoms
    found = names_in(path)
    assert len(found["names"]) == n_atoms
    assert found["names"][0] == first
    assert found["names"].tolist() == atoms.names.tolist()
    if "resnames" in found:
        assert found["resnames"].tolist() == atoms.resnames.tolist()


def test_names_of_dl_poly_are_in_the_order_of_their_numbers():
    assert names_in(datafiles.DLP_HISTORY_order).get("names").tolist() == ["C", "B", "A"]
    assert names_in(datafiles.DLP_CONFIG_order).get("names").tolist() == ["C", "B", "A"]
    assert names_in(datafiles.XTC) == {}
    assert names_in("nowhere.gro") == {}


@pytest.mark.parametrize("kind", ["HDF5", "HISTORY"])
def test_validate_compares_a_file_with_its_topology(kind, tmp_path, capsys):
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    atoms = universe.select_atoms("name CA N")[:40]
    if kind == "HDF5":
        path = tmp_path / "md.h5md"
        paceline.run(Write(atoms, path), stop=2)
        topologies = tmp_path / "same.gro", tmp_path / "other.gro"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            atoms.write(topologies[0])
            atoms[::-1].write(topologies[1])
    else:
        path, topologies = datafiles.DLP_HISTORY, [tmp_path / "same.gro", tmp_path / "other.gro"]
        made = MDAnalysis.Universe.empty(216, trajectory=True)
        made.add_TopologyAttr("names", names_in(path)["names"])
        made.add_TopologyAttr("resnames", ["KCL"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.atoms.write(topologies[0])
            made.atoms[::-1].write(topologies[1])
    assert main(["validate", "-s", str(topologies[0]), "-f", str(path)]) == 0
    assert "names" not in capsys.readouterr().out
    assert main(["validate", "-s", str(topologies[1]), "-f", str(path)]) == 1
    assert "the names of the topology in another order" in capsys.readouterr().out
