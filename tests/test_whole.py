"""Tests of the check of every frame: broken molecules, chains in other images, missing
superposition.
"""

import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysisTests import datafiles

import paceline
from paceline import transform
from paceline.analysis.battery import Battery
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.dssp import DSSP
from paceline.analysis.pca import PCA
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF
from paceline.errors import PacelineWarning

CELL = [80.0, 84.0, 90.0, 90.0, 90.0, 90.0]
TRICLINIC = [95.0, 95.0, 95.0, 60.0, 60.0, 90.0]
#: Frames in which the protein crosses a cell face; not the first, the middle or the last.
CROSSING = [3, 4, 7, 9]


@pytest.fixture(scope="module", params=[CELL, TRICLINIC], ids=["right angles", "triclinic"])
def crossing(request, tmp_path_factory):
    """Adenylate kinase, 31 frames: its topology, the file, and the same frames made whole."""
    folder = tmp_path_factory.mktemp("crossing")
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    whole = universe.trajectory.timeseries(order="fac")[:31].astype(np.float64)
    vectors = triclinic_vectors(request.param)
    whole += vectors.sum(axis=0) / 2 - whole.mean(axis=(0, 1))
    moved = whole.copy()
    for frame in CROSSING:
        moved[frame] -= whole[frame].mean(axis=0)
        places = moved[frame] @ np.linalg.inv(vectors)
        moved[frame] -= np.floor(places) @ vectors
    universe.load_new(moved.astype(np.float32), dimensions=np.float32([request.param] * 31))
    universe.atoms.write(str(folder / "crossing.xtc"), frames="all")
    return datafiles.PSF, str(folder / "crossing.xtc"), whole


def told(run, words):
    """Run an analysis, and return the warnings that contain some words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in caught if words in str(one.message)]


def images_differ(universe, whole, indices, frame):
    """Return true if atoms are in different images: positions differ by more than a rotation."""
    by = universe.trajectory[frame].positions[indices] - whole[frame][indices]
    return bool((np.abs(by - by[0]) > 1).any())


@pytest.mark.parametrize(
    "select",
    ["name CA", "protein", "name CA and resid 1 41 81 121 161 201", "resid 1 214 and name CA"],
)
def test_breaks_between_the_frames_that_were_looked_at_are_counted(crossing, select, where):
    topology, path, whole = crossing
    ours, theirs = (kind(topology, path) for kind in (paceline.Universe, MDAnalysis.Universe))
    atoms = ours.select_atoms(select)
    expected = [k for k in range(31) if images_differ(theirs, whole, atoms.indices, k)]
    assert set(expected) <= set(CROSSING)
    rmsd = RMSD(atoms, superposition=False)
    texts = told(lambda: rmsd.run(**where), "is broken across the cell")
    assert len(texts) == bool(expected)
    if expected:
        assert f"in {len(expected)} of 31 frames, first in frame {expected[0]}: atoms " in texts[0]
        assert rmsd.results.provenance["warnings"] == texts[0]


def test_results_of_whole_molecules_keep_their_bits(crossing):
    """Check that the bits do not depend on the check, nor on atoms decoded for it."""
    topology, path, _ = crossing
    universe = paceline.Universe(topology, path)
    ends = universe.select_atoms("name CA and resid 1 100 214")
    look = RMSD(ends, select="all", superposition=False)
    told(look.run, "broken")
    alone = paceline.TimeSeries(lambda block: block.positions, ends).run().results.timeseries
    differences = alone.astype(float) - alone[0].astype(float)
    expected = np.sqrt((differences**2).sum(axis=2).mean(axis=1))
    np.testing.assert_allclose(look.results.rmsd[:, 2], expected, rtol=1e-12)


def test_the_warning_stands_in_the_table(crossing, tmp_path):
    topology, path, _ = crossing
    rmsd = RMSD(paceline.Universe(topology, path), select="name CA")
    (text,) = told(rmsd.run, "is broken")
    rmsd.results.save(tmp_path / "rmsd.csv")
    assert f"# warnings: {text}\n" in (tmp_path / "rmsd.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("select", ["name CA", "backbone", "protein"])
def test_bonds_are_guessed_where_the_topology_has_none(crossing, select):
    topology, path, _ = crossing
    universe = paceline.Universe(topology, path)
    universe.del_TopologyAttr("bonds")
    chosen = universe.select_atoms(select)
    universe.del_TopologyAttr("resnames")  # bonds would be found by them
    rmsd = RMSD(chosen)
    (text,) = told(rmsd.run, "is broken across the cell")
    assert "in 4 of 31 frames, first in frame 3" in text
    assert "a topology that has bonds" in text
    assert "guessed from distances" in text
    # Bonds of distant atoms are not guessed.
    rmsd = RMSD(universe, select="name CA and resid 1 41 81 121 161 201")
    assert told(rmsd.run, "broken") == []
    assert (
        "could not be detected: the topology has no bonds" in (rmsd.results.provenance["warnings"])
    )


def test_water_is_not_broken_by_guesses():
    """Check that molecules of a liquid that move apart do not count as broken."""
    universe = paceline.Universe(datafiles.GRO, datafiles.XTC)
    water = universe.select_atoms("resname SOL")[:4000]
    assert told(RMSD(water, superposition=False).run, "broken") == []


def test_wrap_after_unwrap_warns(crossing):
    topology, path, _ = crossing
    rmsd = RMSD(paceline.Universe(topology, path), select="name CA")
    steps = [transform.unwrap(), transform.center("protein", point=[0, 0, 0])]
    assert told(lambda: rmsd.run(transforms=steps), "broken") == []
    (text,) = told(lambda: rmsd.run(transforms=[*steps, transform.wrap()]), "broken")
    assert "in 31 of 31 frames" in text


def test_default_dssp_needs_whole_residues(crossing):
    topology, path, whole = crossing
    universe = paceline.Universe(topology, path)
    found = DSSP(universe)
    (text,) = told(found.run, "is broken across the cell")
    assert "DSSP needs whole molecules" in text
    expected = DSSP(paceline.Universe(topology, whole.astype(np.float32))).run().results.dssp
    n_wrong = (found.results.dssp != expected).sum()
    found.run(transforms=[transform.unwrap()])
    # Positions in the file are rounded.
    assert n_wrong > 10 * (found.results.dssp != expected).sum()
    # By the rules of mkdssp, all distances are to nearest images.
    images = DSSP(universe, variant="dssp4")
    assert told(images.run, "broken") == []


@pytest.fixture(scope="module")
def turning(crossing, tmp_path_factory):
    """The whole frames; each is rotated by 7 degrees more about z than the frame before."""
    topology, _, whole = crossing
    universe = MDAnalysis.Universe(topology, whole.astype(np.float32))
    path = str(tmp_path_factory.mktemp("turning") / "turning.xtc")
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for k, _ in enumerate(universe.trajectory):
            universe.atoms.rotateby(7.0 * k, [0, 0, 1])
            writer.write(universe.atoms)
    return topology, path


@pytest.mark.parametrize("kind", [RMSF, PCA], ids=["rmsf", "pca"])
def test_atoms_that_turn_warn(turning, kind, where):
    ca = paceline.Universe(*turning).select_atoms("name CA")
    words = "move or rotate as a whole in "
    (text,) = told(lambda: kind(ca).run(**where), words)
    assert f"the atoms of {kind.__name__} {words}" in text
    number = int(text.split(words)[1].split()[0])
    # MDAnalysis uses all atoms; the check uses fewer.
    from MDAnalysis.analysis.rms import RMSD as Theirs

    theirs = MDAnalysis.Universe(*turning)
    fitted = Theirs(theirs, select="name CA").run().results.rmsd[:, 2]
    first = theirs.trajectory[0].positions[ca.indices]
    plain = [
        np.sqrt(((ts.positions[ca.indices] - first) ** 2).sum(axis=1).mean())
        for ts in theirs.trajectory
    ]
    expected = ((plain >= 2 * fitted) & (plain >= fitted + 2)).sum()
    assert abs(number - expected) <= 2
    assert told(lambda: kind(ca, align=True).run(), words) == []
    assert told(lambda: kind(ca).run(transforms=[transform.fit("name CA")]), words) == []
    still = paceline.Universe(datafiles.PSF, datafiles.DCD).select_atoms("name CA")
    assert told(kind(still).run, words) == []


def test_the_atoms_that_turn_are_named_after_others_without_positions(turning):
    topology, path = turning
    known = MDAnalysis.Universe(topology, path)
    positions = known.trajectory.timeseries(order="fac").astype(np.float32)
    positions[0, known.select_atoms("resid 1-20").indices] = np.nan
    universe = paceline.Universe(topology, positions)
    selected = {"rmsf": "resid 1-20 and name CA", "pca": "resid 30-90 and name CA"}
    battery = Battery({name: {"select": text} for name, text in selected.items()}, universe)
    (text,) = told(battery.run, "move or rotate as a whole in ")
    assert "the atoms of PCA" in text


@pytest.fixture(scope="module")
def ligand(tmp_path_factory):
    """A chain of 40 atoms, and a ligand of six atoms at its end that moves by a cell vector."""
    random = np.random.default_rng(6)
    residues = [k // 4 for k in range(40)] + [10] * 6
    universe = MDAnalysis.Universe.empty(46, 11, atom_resindex=residues)
    universe.add_TopologyAttr("names", ["N", "CA", "C", "O"] * 10 + [f"L{k}" for k in range(6)])
    universe.add_TopologyAttr("resnames", ["ALA"] * 10 + ["LIG"])
    universe.add_TopologyAttr("resids", np.arange(1, 12))
    universe.add_TopologyAttr("masses", np.full(46, 12.0))
    universe.add_TopologyAttr("bonds", [(k, k + 1) for k in range(45) if k != 39])
    places = np.array([[1.2 * (k % 10), 1.3 * (k // 10), 0.4 * (k % 2)] for k in range(46)])
    places[40:, 0] += 4
    frames = 5 + places + random.normal(0, 0.1, (25, 46, 3))
    jumps = [2, 3, 11, 24]
    frames[jumps, 40:, 0] += 40.0
    universe.load_new(
        frames.astype(np.float32), dimensions=np.float32([[40, 45, 50, 90, 90, 90]] * 25)
    )
    path = str(tmp_path_factory.mktemp("ligand") / "ligand.xtc")
    universe.atoms.write(path, frames="all")
    return universe._topology, path


def test_jumps_of_a_ligand_are_counted(ligand, where):
    universe = paceline.Universe(*ligand)
    rmsd = RMSD(universe, select="name CA", groupselections=["resname LIG"])
    steps = [transform.unwrap()]
    (text,) = told(lambda: rmsd.run(transforms=steps, **where), "in different images")
    assert "in 4 of 25 frames, first in frame 2: atom " in text
    assert "(LIG 11)" in text
    assert "(--together)" in text
    assert rmsd.results.provenance["warnings"] == text
    jumps = rmsd.results.rmsd[:, 3] > 20
    assert np.flatnonzero(jumps).tolist() == [2, 3, 11, 24]
    steps = [transform.unwrap(together="protein or resname LIG")]
    assert told(lambda: rmsd.run(transforms=steps, **where), "in different images") == []
    assert rmsd.results.rmsd[:, 3].max() < 1


def test_batteries_make_molecules_whole(crossing, tmp_path):
    topology, path, whole = crossing
    universe = paceline.Universe(topology, path)
    described = {
        "rmsd": {"select": "name CA"},
        "rmsf": {"select": "name CA"},
        "fitted": {"analysis": "rmsf", "select": "name CA", "align": True},
        "rdf": {"g1": "name CA", "g2": "name CB"},
    }
    battery = Battery(described, universe)
    assert told(battery.run, "broken") == []
    expected = RMSD(paceline.Universe(topology, whole.astype(np.float32)), select="name CA").run()
    found = battery.analyses["rmsd"]
    np.testing.assert_allclose(found.results.rmsd[:, 2], expected.results.rmsd[:, 2], atol=5e-3)
    assert found.provenance["transforms"].startswith("unwrap(")
    # Analyses that need a superposition have one, and analyses of distances ignore rotation.
    battery.run(transforms=[transform.fit("name CA")])
    done = {name: one.provenance["transforms"] for name, one in battery.analyses.items()}
    assert "fit(" in done.pop("rmsf")
    assert not any("fit(" in one for one in done.values())
    fitted = RMSF(universe.select_atoms("name CA"))
    fitted.run(transforms=[transform.unwrap(), transform.fit("name CA")])
    assert np.array_equal(battery.analyses["rmsf"].results.rmsf, fitted.results.rmsf)
    battery.save(tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "rmsf: unwrap(" in page
    (text,) = told(lambda: battery.run(unwrap=False), "broken")
    assert battery.warnings
    assert text in battery.warnings[0]


def test_bits_of_what_needs_no_whole_molecules_are_kept():
    """Check that molecules of water are not made whole if the analysis concerns only a protein."""
    universe = paceline.Universe(datafiles.TPR, datafiles.XTC)
    oxygens = "name OW"
    described = {
        "gyration": {"select": "protein"},
        "rdf": {"g1": oxygens, "g2": oxygens, "nbins": 20, "range": [0.0, 6.0]},
    }
    battery = Battery(described, universe).run(stop=2)
    water = universe.select_atoms(oxygens)
    alone = InterRDF(water, water, nbins=20, range=(0.0, 6.0)).run(stop=2)
    assert np.array_equal(battery.analyses["rdf"].results.rdf, alone.results.rdf)


def test_the_command_unwraps_by_default(crossing, tmp_path, run):
    topology, path, _ = crossing
    (tmp_path / "some.toml").write_text('[rmsd]\nselect = "name CA"\n', encoding="utf-8")
    given = "run", tmp_path / "some.toml", "-s", topology, "-f", path
    status, _, err = run(*given, "-o", tmp_path / "whole")
    assert status == 0
    assert "broken" not in err
    status, _, err = run(*given, "-o", tmp_path / "raw", "--no-unwrap")
    assert status == 0
    assert "is broken across the cell in 4 of 31 frames" in err
    status, _, err = run(*given, "-o", tmp_path / "both", "--no-unwrap", "--unwrap")
    assert status == 2
    assert "--no-unwrap contradicts --unwrap" in err


def test_a_battery_of_a_pdb_file_with_few_bonds(tmp_path, run):
    """Check a PDB file that lists only disulfides; all other bonds are found by names."""
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    for name in ("bonds", "angles", "dihedrals", "impropers"):
        universe.del_TopologyAttr(name)
    universe.add_TopologyAttr("bonds", [(10, 200)])
    universe.dimensions = [90, 90, 90, 90, 90, 90]
    path = tmp_path / "few.pdb"
    universe.atoms.write(str(path), bonds="all")
    assert "CONECT" in path.read_text()
    status, _, err = run("battery", path, path, "-o", tmp_path / "results")
    assert status == 0
    assert "bonds: 2 of the topology, 3,365 from standard residues by name" in err
    assert (tmp_path / "results" / "hbonds.csv").exists()


def test_cells_that_stand_for_none_are_left_out(tmp_path):
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    expected = paceline.Universe(datafiles.PSF, datafiles.DCD)
    path = str(tmp_path / "dummy.xtc")
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for ts in universe.trajectory[:4]:
            ts.dimensions = [1, 1, 1, 90, 90, 90]
            writer.write(universe.atoms)
    dummy = paceline.Universe(datafiles.PSF, path)
    rmsd = RMSD(dummy, select="name CA")
    with pytest.warns(PacelineWarning, match="cell of 1 × 1 × 1 Å is the placeholder"):
        rmsd.run()
    found = RMSD(expected, select="name CA").run(stop=4).results.rmsd
    np.testing.assert_allclose(rmsd.results.rmsd[:, 2], found[:, 2], atol=5e-3)
    cells = paceline.TimeSeries(lambda block: block.dimensions, dummy.atoms).run()
    assert not cells.results.timeseries.any()
    with pytest.raises(ValueError, match="no cell, which unwrap needs"):
        rmsd.run(transforms=[transform.unwrap()])
    battery = Battery({"rmsd": {"select": "name CA"}}, dummy).run()
    assert "transforms" not in battery.analyses["rmsd"].provenance


def test_a_density_of_what_turns_warns(turning):
    ca = paceline.Universe(*turning).select_atoms("name CA")
    assert len(told(DensityAnalysis(ca, delta=5.0).run, "move or rotate as a whole")) == 1
