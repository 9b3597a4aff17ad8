"""Tests of ligands and their complexes: names, images, and what a battery computes."""

import html
import re
from dataclasses import replace

import MDAnalysis
import numpy as np
import pytest
from matplotlib.figure import Figure
from MDAnalysis.lib.mdamath import triclinic_vectors

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.battery_definitions import insert_ligands
from paceline.analysis.buried_area import BuriedArea
from paceline.analysis.figures import draw
from paceline.analysis.neighbors import NeighborList
from paceline.analysis.rms import RMSD
from paceline.analysis.saved_table_format import read_saved
from paceline.errors import PacelineWarning, SelectionError
from paceline.transform import unwrap, wrap
from paceline.transform.bonds_and_compounds import known_bonds
from paceline.transform.find_ligands import complex_atoms, ligand_names

N_FRAMES = 20
CELLS = [[40, 45, 50, 90, 90, 90], [40, 40, 40, 70, 80, 75]]


def system(n_solvent=0, resname="LIG"):
    """Return a chain of ten residues, a ligand of eight atoms (two hydrogens), and solvent."""
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
    """Return positions of a complex across the cell face; with `leaving` (Å), the ligand moves
    away.
    """
    places = np.array([[1.2 * (k % 10), 1.3 * (k // 10), 0.4 * (k % 2)] for k in range(48)])
    places[40:] = [[1.2 * k, 9.0, 0.0] for k in range(8)]
    steps = np.linspace(0, 1, N_FRAMES)[:, None, None]
    frames = places + np.random.default_rng(3).normal(0, 0.05, (N_FRAMES, 48, 3))
    frames[:, 40:, 1] += leaving * steps[:, :, 0]
    return frames + steps * np.array([30.0, 50.0, 20.0])


@pytest.fixture(params=CELLS, ids=["right angles", "triclinic"])
def made(request, tmp_path):
    """Write a complex wrapped atom by atom; return topology, path and positions."""

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
    """Check that the distance from the nearest atom of the first frame uses the nearest image."""
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
    assert ligand_names(system(n_solvent=1)) == ["LIG", "BNZ"]
    assert ligand_names(system(n_solvent=3)) == ligand_names(system(n_solvent=30)) == ["LIG"]
    for other in ("POPC", "SO4", "SOL", "CHL1", "GOL", "DMSO", "PEG", "TRS"):
        assert ligand_names(system(resname=other)) == []
    bound = system()
    bound.add_bonds([(20, 42)])
    assert ligand_names(bound) == []
    wet, bare = system(n_solvent=30), MDAnalysis.Universe.empty(3, trajectory=True)
    assert len(complex_atoms(wet, known_bonds(wet))) == 48
    wet.residues[10].resname = "POPC"
    assert len(complex_atoms(wet, known_bonds(wet))) == 40
    assert len(complex_atoms(bare, known_bonds(bare))) == 0


CHOICES = {
    "several": ("LIG", 1, "ligands: taken: 1 LIG and 1 BNZ;"),
    "solvent": ("LIG", 9, "ligands: taken: 1 LIG; not taken: 9 BNZ (a solvent);"),
    "additive": (
        "GOL",
        0,
        "ligands: taken: none; not taken: 1 GOL (a lipid or an additive by name);",
    ),
    "one": ("LIG", 0, "the ligand is resname LIG (--ligand sets another)"),
    "bulk": ("LIG", 30, "the ligand is resname LIG (--ligand sets another)"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_batteries_say_which_ligand_they_take(case, tmp_path, run_with_answer):
    resname, n_solvent, said = CHOICES[case]
    universe = system(n_solvent, resname)
    places = np.random.default_rng(1).uniform(0, 30, (len(universe.atoms), 3))
    places[:48] = moving(0, None)[0]
    universe.atoms.positions = places
    structure, output = str(tmp_path / "complex.pdb"), tmp_path / "results"
    universe.atoms.write(structure, bonds="all")
    code, _, err = run_with_answer("battery", structure, "-o", output)
    assert (code, said in err) == (0, True), err
    page = html.unescape((output / "index.html").read_text("utf-8"))
    assert (said in page) == ("taken:" in said)
    described = (output / "battery.toml").read_text("utf-8")
    each = '["resname LIG", "resname BNZ"]' if case == "several" else '["resname LIG"]'
    assert (f"groupselections = {each}" in described) == (case != "additive")
    if case == "additive":
        more = ("--ligand", "GOL", "-o", output, "--overwrite")
        code, _, err = run_with_answer("battery", structure, *more)
        assert (code, "ligands:" in err, "the ligand is" in err) == (0, False, False)
        described = (output / "battery.toml").read_text("utf-8")
        assert 'groupselections = ["group GOL"]' in described
        code, _, err = run_with_answer(
            "battery", structure, "--ligand", "resname XYZ", "-o", tmp_path / "more"
        )
        assert (code, err.count("no atoms match 'resname XYZ'")) == (2, 1)


def test_batteries_take_the_ligand_that_is_given():
    universe, plain = system(), Battery.default(system())
    assert plain.ligands == plain.descriptions["ligand-rmsd"]["groupselections"] == ["resname LIG"]
    for given, found in (("none", []), ("resname LIG and name C*", ["(resname LIG and name C*)"])):
        battery = Battery.default(universe, ligand=given)
        assert battery.ligands == found
        assert ("ligand-contacts" in battery.every) == bool(found)


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


@pytest.mark.filterwarnings("ignore")
def test_wrap_keeps_complexes_together(made, tmp_path, run):
    """Check that the centre of the complex is within the cell, and not that of each molecule."""
    topology, path, whole, vectors = made()
    universe = paceline.Universe(topology, path)
    steps = {
        "each": wrap(compound="fragments"),
        "both": wrap(compound="fragments", together="complexes"),
        "given": wrap(compound="fragments", together="name CA or resname LIG"),
    }
    found = {
        name: positions(universe, unwrap(together="complexes"), step)
        for name, step in steps.items()
    }
    expected = whole - whole[:, :1]
    assert np.abs(found["each"] - found["each"][:, :1] - expected).max() > 10
    for name in ("both", "given"):
        np.testing.assert_allclose(found[name] - found[name][:, :1], expected, atol=1e-3)
        centers = np.average(found[name], axis=1, weights=universe.atoms.masses)
        places = centers @ np.linalg.inv(vectors)
        assert places.min() > -1e-5
        assert places.max() < 1 + 1e-5
    structure, output = str(tmp_path / "complex.pdb"), tmp_path / "whole.trr"
    MDAnalysis.Universe(topology, path).atoms.write(structure, bonds="all")
    code, _, _ = run("convert", structure, path, output, "--unwrap", "--wrap")
    written = positions(paceline.Universe(structure, str(output)))
    assert code == 0
    np.testing.assert_allclose(written - written[:, :1], expected, atol=1e-3)
    given = "battery", structure, path, "--wrap", "-o", tmp_path / "results"
    assert run(*given)[0] == 0
    table = tmp_path / "results" / "ligand-rmsd.csv"
    rows = np.loadtxt(table, delimiter=",", skiprows=count_head(table))
    assert rows[:, -1].max() < 1
    with pytest.raises(ValueError, match="together requires compound='fragments', not 'atoms'"):
        wrap(together="complexes")


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


@pytest.mark.filterwarnings("ignore")
def test_the_default_battery_analyses_ligands(made, tmp_path):
    topology, path, _, _ = made(leaving=14.0)
    battery = Battery.default(paceline.Universe(topology, path))
    found = {name for name in battery.descriptions if name.startswith("ligand-")}
    assert found == {"ligand-rmsd", "ligand-contacts", "ligand-buried", "ligand-hbonds"} - {
        *battery.left_out
    }
    assert battery.descriptions["ligand-rmsd"]["groupselections"] == ["resname LIG"]
    battery.run().save(tmp_path)
    assert 'groupselections = ["resname LIG"]' in (tmp_path / "battery.toml").read_text("utf-8")
    buried = battery.analyses["ligand-buried"].results.buried
    assert buried[0] > 50
    assert buried[-1] == pytest.approx(0, abs=1e-6)
    without = Battery.default(paceline.Universe(*renamed(topology, path, "POPC")))
    assert not [name for name in without.every if name.startswith("ligand-")]


def renamed(topology, path, name):
    universe = MDAnalysis.Universe(topology.copy(), path)
    universe.select_atoms("resname LIG").residues.resnames = name
    return universe._topology, path


def test_several_ligands_are_one_selection():
    entry = {"between": ["protein", "{ligand}"], "n": 3, "select": "protein or {ligand}"}
    expected = {
        "between": ["protein", "resname A or resname B"],
        "n": 3,
        "select": "protein or (resname A or resname B)",
    }
    assert insert_ligands(entry, ["resname A", "resname B"]) == expected
    assert insert_ligands({"groupselections": ["{ligand}"]}, ["resname A", "resname B"]) == {
        "groupselections": ["resname A", "resname B"]
    }


def test_groups_that_bury_no_area_are_refused(adk_xtc):
    universe = paceline.Universe(*adk_xtc)
    atoms = universe.select_atoms("resid 1-9")
    with pytest.raises(SelectionError, match="share no atoms; they share 19 atoms"):
        BuriedArea(atoms, universe.select_atoms("resid 1"))
    with pytest.raises(SelectionError, match="they belong to two"):
        BuriedArea(atoms, paceline.Universe(*adk_xtc).select_atoms("resid 20"))


@pytest.mark.parametrize("other", [None, "resid 1-30"])
def test_timelines_are_the_frames_of_each_pair_of_residues(other, adk_xtc, monkeypatch):
    monkeypatch.setattr("paceline.analysis.neighbors.COUNTED", 100)
    universe = paceline.Universe(*adk_xtc)
    group = universe.select_atoms("resname ARG LYS and name NH* NZ or resname ASP and name OD*")
    second = None if other is None else universe.select_atoms(other)
    pairs = NeighborList(group, second, cutoff=5, exclude_same="residue").run(stop=9)
    tables = pairs.further_tables()
    often, timeline = tables["frequent"].columns, tables["timeline"].columns
    rows = np.repeat(np.arange(9), np.diff(pairs.results.offsets))
    ends = [universe.atoms.resindices[pairs.results.pairs[one]] for one in ("first", "second")]
    for k, name in enumerate(often["residues"][:20]):
        first, last = often["first"][k], often["second"][k]
        is_pair = (ends[0] == first) & (ends[1] == last)
        if other is None:
            is_pair |= (ends[1] == first) & (ends[0] == last)
        assert np.flatnonzero(timeline[name]).tolist() == np.unique(rows[is_pair]).tolist()
        assert timeline[name].mean() == often["fraction of frames"][k]


def test_timelines_are_written_and_drawn(adk_xtc, tmp_path, run):
    files = [tmp_path / name for name in ("t.csv", "t.svg")]
    for path in files:
        assert run("hbonds", *adk_xtc, "--end", 5, "--timeline", path)[0] == 0
    head, *_ = [one for one in files[0].read_text("utf-8").splitlines() if one[0] != "#"]
    first = head.split(",")[2]
    assert " … " in first
    drawn = files[1].read_text("utf-8")
    assert first in drawn
    assert "present" in drawn


@pytest.mark.parametrize("other", [None, "resid 1-30", "resid 60-100"])
def test_maps_are_the_pairs_of_each_residue(other, adk_xtc, monkeypatch):
    monkeypatch.setattr("paceline.analysis.neighbors.COUNTED", 100)
    universe = paceline.Universe(*adk_xtc)
    group = universe.select_atoms("resname ARG LYS and name NH* NZ or resname ASP and name OD*")
    second = group if other is None else universe.select_atoms(other)
    analysis = NeighborList(group, None if other is None else second, cutoff=5).run(stop=9)
    tables = analysis.further_tables()
    counts, closest = (tables[name].columns for name in ("residues", "closest"))
    found = 0
    for residue in second.residues:
        label = f"{residue.resname} {residue.resid}"
        atoms = (residue.atoms & second).indices
        pairs = analysis.results.pairs
        of_residue = np.isin(pairs["second"], atoms)
        if other is None:
            of_residue |= np.isin(pairs["first"], atoms)
        rows = np.repeat(np.arange(9), analysis.results.counts)[of_residue]
        if not len(rows):
            assert label not in counts
            continue
        found += 1
        wanted = np.bincount(rows, minlength=9)
        assert counts[label].tolist() == wanted.tolist()
        distances = pairs["distance"][of_residue]
        least = [min(distances[rows == row], default=np.nan) for row in range(9)]
        np.testing.assert_array_equal(closest[f"{label} (Å)"], least)
    assert found == len(counts) - 2 == len(closest) - 2 > 5


def test_maps_hold_the_residues_with_most_pairs(adk_xtc, monkeypatch):
    universe = paceline.Universe(*adk_xtc)
    groups = universe.select_atoms("resid 1-60"), universe.select_atoms("resid 61-214")
    every = NeighborList(*groups).run(stop=4).further_tables()["residues"]
    monkeypatch.setattr("paceline.analysis.neighbors.MOST_MAPPED", 7)
    table = NeighborList(*groups).run(stop=4).further_tables()["residues"]
    pairs = {
        name: (np.count_nonzero(every.columns[name]), every.columns[name].sum()) for name in every.y
    }
    most = sorted(pairs, key=pairs.get, reverse=True)[:7]
    assert [*table.y] == [name for name in every.y if name in most]  # in the order of the chain
    assert table.states.label == f"residue, 7 of {len(every.y)} with pairs"
    assert table.states.parts.tolist() == [*table.y]


def test_maps_are_drawn_and_drawn_again(adk_xtc, tmp_path, run):
    words = [
        "neighbors",
        *adk_xtc,
        "--end",
        5,
        "--select",
        "resid 30",
        "--select-2",
        "not resid 30",
    ]
    maps = "--residues", "--closest"
    for name in maps:
        figure, table, again = (tmp_path / f"{name}{end}" for end in (".svg", ".csv", "-2.svg"))
        given = ["--figsize", "9x9cm", "--time-unit", "fs"]
        assert run(*words, name, figure, *given)[0] == 0
        assert run(*words, name, table)[0] == 0
        assert run("plot", table, "-o", again, *given, "--title", "Near 30")[0] == 0
        drawn = figure.read_text("utf-8")
        assert "(fs)" in drawn
        label = read_saved(table).table().states.parts[0]
        for text in (label, "within 4.5 Å"):
            assert text in drawn
            assert text in again.read_text("utf-8")
        assert "Near 30" in again.read_text("utf-8")


def test_maps_of_frames_that_are_left_out_or_have_no_pairs(adk_xtc):
    universe = paceline.Universe(*adk_xtc)
    group = universe.select_atoms("resid 30"), universe.select_atoms("resid 200")
    far = NeighborList(*group).run(stop=3)
    for table in (far.further_tables()[name] for name in ("residues", "closest")):
        assert [*table.columns] == ["frame", "time (ps)"]
        draw(table, Figure().subplots())
    near = NeighborList(group[0], universe.select_atoms("resid 31")).run(stop=3)
    near._run_info = replace(near._run_info, damaged=[(1, "test")])
    counts = near.further_tables()["residues"]
    [title] = counts.y
    assert np.isnan(counts.columns[title]).tolist() == [False, True, False]
    ax = draw(counts, Figure().subplots())
    assert ax.collections[0].get_array().mask.tolist() == [[False, True, False]]
    assert ax.collections[0].get_clim()[0] == 0
