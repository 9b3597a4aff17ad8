"""Tests of atom and residue values as B-factors, of colouring scripts, and of notebook views."""

import pickle
import sys
from types import SimpleNamespace

import MDAnalysis
import numpy as np
import pytest
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis import values_on_structure
from paceline.analysis.align import AverageStructure
from paceline.analysis.contacts import ContactMap
from paceline.analysis.order import OrderParameter
from paceline.analysis.results import Results
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.sasa import SASA
from paceline.analysis.values_on_structure import StructureValues
from paceline.errors import NotRunError, PacelineWarning, UnsupportedError


def read(path):
    universe = MDAnalysis.Universe(str(path))
    return universe, universe.atoms.tempfactors


@pytest.fixture
def rmsf(adk):
    return RMSF(paceline.Universe(*adk).select_atoms("protein"), align="name CA").run(start=3)


def test_values_of_atoms(rmsf, adk, tmp_path):
    rmsf.results.save(tmp_path / "rmsf.pdb")
    universe, found = read(tmp_path / "rmsf.pdb")
    np.testing.assert_allclose(found, rmsf.results.rmsf, atol=0.0051)
    theirs = MDAnalysis.Universe(*adk)
    theirs.trajectory[3]
    np.testing.assert_allclose(universe.atoms.positions, theirs.atoms.positions, atol=6e-4)
    text = (tmp_path / "rmsf.pdb").read_text(encoding="utf-8")
    assert "REMARK     B-FACTORS: RMSF (Å)\n" in text
    assert "REMARK     frames analysed: 95 frames, " in text
    assert max(len(line) for line in text.splitlines()) <= 80
    with pytest.raises(FileExistsError):
        rmsf.results.save(tmp_path / "rmsf.pdb")


def test_each_kind_of_values(adk, tmp_path):
    universe = paceline.Universe(*adk)
    protein = universe.select_atoms("resid 1-30")
    residues, atoms = (SASA(protein, n_points=50, compound=c) for c in ("residues", "atoms"))
    contacts = ContactMap(protein, scheme="ca", cutoff=8.0)
    average = AverageStructure(universe, select="name CA")
    order = OrderParameter(
        universe.select_atoms("resid 2-8 and name N"),
        universe.select_atoms("resid 2-8 and name HN"),
    )
    paceline.run([residues, atoms, contacts, average, order], step=20)
    mean = residues.results.sasa.mean(axis=0)
    expected = {
        residues: (protein, mean[protein.resindices]),
        atoms: (protein, atoms.results.sasa.mean(axis=0)),
        contacts: (
            protein,
            (contacts.results.frequencies.sum(axis=1) - 1)[protein.resindices],
        ),
        average: (universe.select_atoms("name CA"), average.results.rmsf),
    }
    for one, (group, values) in expected.items():
        path = tmp_path / f"{type(one).__name__}-{id(one)}.pdb"
        one.results.save(path)
        found, b_factors = read(path)
        assert found.atoms.names.tolist() == group.names.tolist()
        np.testing.assert_allclose(b_factors, values, atol=0.0051)
    np.testing.assert_allclose(found.atoms.positions, average.results.positions, atol=6e-4)
    order.results.save(tmp_path / "order.pdb")
    assert set(read(tmp_path / "order.pdb")[0].atoms.names) == {"N"}


def values_of(universe, values, title="energy (kJ/mol)"):
    atoms = universe.atoms[: len(values)]
    return StructureValues(title, atoms, np.array(values), lambda: atoms.positions)


@pytest.mark.parametrize(
    ("values", "scale", "said"),
    [
        ([1.0, 999.99, -99.99], 1, ""),
        ([1.0, 2500.0, 0.0], 0.1, "multiplied by 0.1, as a REMARK states"),
        ([1.0, -1500.0, 12.0], 0.01, "multiplied by 0.01"),
        ([0.5, 0.25, 0.001], 100, ""),
        ([-0.5, 0.25, 0.001], 1, ""),
        ([0.0, 0.0, 0.0], 1, ""),
        ([np.nan, 2.0, 3.0], 1, "1 atom without a value of energy"),
    ],
)
def test_values_are_scaled_to_fit(values, scale, said, adk, tmp_path, recwarn):
    universe = paceline.Universe(*adk)
    recwarn.clear()
    results = Results().with_values(values_of(universe, values))
    results["energy"] = values
    results.save(tmp_path / "out.pdb")
    messages = [str(one.message) for one in recwarn if one.category is PacelineWarning]
    assert [said in one for one in messages] == ([True] if said else [])
    _, found = read(tmp_path / "out.pdb")
    np.testing.assert_allclose(found, np.nan_to_num(values) * scale, atol=0.0051)
    text = (tmp_path / "out.pdb").read_text(encoding="utf-8")
    factor = "" if scale == 1 else f" times {scale:g}"
    assert f"REMARK     B-FACTORS: energy (kJ/mol){factor}\n" in text


@pytest.mark.parametrize(
    ("ending", "lines"),
    [
        (".pml", ["load my rmsf.pdb, my_rmsf", "spectrum b, blue_white_red, my_rmsf, minimum="]),
        (".cxc", ['open "my rmsf.pdb" name "my_rmsf"', "palette blue:white:red range "]),
        (".tcl", ["[file dirname [info script]] {my rmsf.pdb}]", "mol scaleminmax $molecule 0 "]),
    ],
)
def test_scripts_colour_a_pdb_beside_them(ending, lines, rmsf, tmp_path):
    script = tmp_path / f"my rmsf{ending}"
    rmsf.results.save(script)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([script.name, "my rmsf.pdb"])
    text = script.read_text(encoding="utf-8")
    low, high = rmsf.results.rmsf.min(), rmsf.results.rmsf.max()
    assert text.startswith(f"# RMSF (Å), from {low:.6g} (blue) to {high:.6g} (red)\n")
    assert all(line in text for line in lines)
    assert f"{low:.6g}" in text.partition("\n")[2]
    with pytest.raises(FileExistsError, match=r"my rmsf\.pdb exists"):
        rmsf.results.save(script.with_suffix(".cxc" if ending != ".cxc" else ".pml"))
    rmsf.results.save(script, overwrite=True)


def test_results_without_values(adk, tmp_path):
    universe = paceline.Universe(*adk)
    rmsd = RMSD(universe, select="name CA")
    with pytest.raises(NotRunError):
        rmsd.results.view()
    rmsd.run(stop=2)
    with pytest.raises(UnsupportedError, match=r"saved as .*, not '\.pdb'"):
        rmsd.results.save(tmp_path / "rmsd.pdb")
    with pytest.raises(UnsupportedError, match="no values of atoms or residues"):
        rmsd.results.view()
    assert SASA(universe, n_points=20).run(stop=1).results._on_structure is None


def test_values_are_pickled_with_their_structure(rmsf, tmp_path):
    again = pickle.loads(pickle.dumps(rmsf.results))
    again.save(tmp_path / "again.pdb")
    rmsf.results.save(tmp_path / "rmsf.pdb")
    first, second = (
        (tmp_path / name).read_text(encoding="utf-8") for name in ("again.pdb", "rmsf.pdb")
    )
    assert first == second


class View:
    """Record of calls of py3Dmol."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


def test_a_view_for_notebooks(rmsf, monkeypatch):
    monkeypatch.setattr(values_on_structure, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="needs py3Dmol or nglview: install one"):
        rmsf.results.view()
    monkeypatch.setitem(sys.modules, "py3Dmol", SimpleNamespace(view=View))
    monkeypatch.setattr(values_on_structure, "find_spec", lambda name: name == "py3Dmol")
    calls = {name: arguments for name, *arguments in rmsf.results.view().calls}
    text, kind = calls["addModel"]
    assert kind == "pdb"
    assert text.count("\nATOM ") == len(rmsf.results.rmsf)
    colours = calls["setStyle"][1]["cartoon"]["colorscheme"]
    found = colours["max"], colours["min"]
    assert found == pytest.approx((rmsf.results.rmsf.min(), rmsf.results.rmsf.max()))


def test_commands_write_values(adk, tmp_path, run):
    files = [*adk, "--step", "20"]
    assert run("rmsf", *files, "--align", "-o", tmp_path / "rmsf.cxc")[0] == 0
    assert len(read(tmp_path / "rmsf.pdb")[1]) == 214
    status, _, err = run("rmsf", *files, "-o", tmp_path / "rmsf.pml")
    assert (status, "rmsf.pdb exists" in err) == (2, True)
    status, _, err = run("sasa", *files, "-o", tmp_path / "sasa.pdb")
    assert (status, "use --compound residues, or atoms" in err) == (2, True)
    sasa = ["sasa", *files, "--compound", "residues", "--n-points", "20"]
    assert run(*sasa, "-o", tmp_path / "sasa.pdb")[0] == 0
    assert run("rmsd", *files, "-o", tmp_path / "rmsd.pdb")[0] == 2


def test_atoms_without_names_are_refused_before_the_run(tmp_path, run):
    status, _, err = run(
        "rmsf",
        datafiles.LAMMPSdata_mini,
        "--select",
        "all",
        "--no-align",
        "-o",
        tmp_path / "rmsf.pml",
    )
    assert (status, "use a topology with names (-s)" in err) == (2, True)
