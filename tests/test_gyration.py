"""Tests of the radius of gyration and shape against MDAnalysis, MDTraj and cases by hand."""

import warnings

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers import virtual_sites
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.gyration import Gyration
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError


def universe_of(positions, masses=None, **attributes):
    """Return a Universe of frames in memory, shape (n_frames, n_atoms, 3)."""
    positions = np.asarray(positions, dtype=np.float32)
    made = MDAnalysis.Universe.empty(positions.shape[1], **attributes)
    if masses is not None:
        made.add_TopologyAttr("masses", masses)
    return made.load_new(positions)


def run(atoms, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Gyration(atoms, **options).run(backend="serial").results


def test_unknown_masses_warn():
    """Check Martini beads, whose masses are guessed as element masses; virtual sites have none."""
    from MDAnalysisTests.datafiles import Martini_membrane_gro

    lipids = MDAnalysis.Universe(Martini_membrane_gro).select_atoms("resname DPPC")
    with pytest.raises(UnsupportedError, match="those of this coarse-grained system are not known"):
        Gyration(lipids)
    water = MDAnalysis.Universe.empty(3)
    water.add_TopologyAttr("names", ["OW", "HW1", "MW"])
    water.guess_TopologyAttrs(to_guess=["masses"])
    known = MDAnalysis.Universe.empty(3)
    known.add_TopologyAttr("masses", [1.0, 2.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        Gyration(lipids, weights=None)
        Gyration(water.atoms)
        Gyration(known.atoms)
    of_equal = run(lipids, weights=None).rg
    lipids.masses = 72.0
    np.testing.assert_allclose(run(lipids).rg, of_equal)
    universe = lipids.universe
    universe.add_TopologyAttr("masses", np.full(len(universe.atoms), 72.0))
    np.testing.assert_allclose(run(lipids).rg, of_equal)


def test_a_group_of_one_atom_is_named(adk):
    protein = paceline.Universe(*adk)
    with pytest.raises(SelectionError, match=r"the first is that of N of MET 1 4AKE \(index 0\)"):
        Gyration(protein.atoms[:1])


def test_a_dumbbell_of_two_masses():
    # Masses 3 and 1 are 4 Å apart along x, so that the center is 1 Å from the heavy one.
    found = run(universe_of([[[5, 1, 1], [9, 1, 1]]], masses=[3.0, 1.0]).atoms)
    np.testing.assert_allclose(found.rg, [np.sqrt(3.0)], rtol=1e-14)
    np.testing.assert_allclose(found.rg_components, [[0, np.sqrt(3.0), np.sqrt(3.0)]], rtol=1e-14)
    np.testing.assert_allclose(found.gyration_moments, [[0, 0, 3.0]], rtol=1e-14)
    np.testing.assert_allclose(found.asphericity, [1.0], rtol=1e-14)
    np.testing.assert_allclose(found.shape_parameter, [2.0], rtol=1e-14)
    unweighted = run(universe_of([[[5, 1, 1], [9, 1, 1]]]).atoms, weights=None)
    np.testing.assert_allclose(unweighted.rg, [2.0], rtol=1e-14)


def test_a_ring_is_oblate():
    turns = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    ring = np.column_stack([np.cos(turns), np.sin(turns), 0 * turns]) * 3
    found = run(universe_of([ring]).atoms, weights=None)
    np.testing.assert_allclose(found.rg, [3.0], rtol=1e-6)
    np.testing.assert_allclose(found.asphericity, [0.25], rtol=1e-6)
    np.testing.assert_allclose(found.shape_parameter, [-0.25], rtol=1e-6)


@pytest.mark.parametrize("selection", ["protein", "name CA", "resid 7", "backbone"])
def test_a_group_is_mdanalysis_s(selection, universe, theirs):
    group = theirs.select_atoms(selection)
    wanted = [
        (
            group.radius_of_gyration(),
            group.gyration_moments(),
            group.asphericity(),
            group.shape_parameter(),
        )
        for _ in theirs.trajectory
    ]
    found = Gyration(universe.select_atoms(selection)).run().results
    names = ("rg", "gyration_moments", "asphericity", "shape_parameter")
    for name, expected in zip(names, zip(*wanted, strict=True), strict=True):
        assert found[name].dtype == np.float64
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("compound", ["residues", "segments", "fragments"])
def test_compounds_are_mdanalysis_s_groups(compound, universe, theirs):
    both = [one.select_atoms("resid 2-40 or resid 90-110")[::-1] for one in (universe, theirs)]
    found = Gyration(both[0], compound=compound).run(stop=5).results
    groups = {
        "residues": lambda atoms: [atoms & one.atoms for one in atoms.residues],
        "segments": lambda atoms: [atoms & one.atoms for one in atoms.segments],
        "fragments": lambda atoms: [atoms & one for one in atoms.fragments],
    }[compound](both[1])
    assert found.rg.shape == (5, len(groups))
    assert found.compounds.shape == (len(groups),)
    for k, _ in enumerate(theirs.trajectory[:5]):
        moments = both[1].gyration_moments(compound=compound)
        np.testing.assert_allclose(found.gyration_moments[k], moments, rtol=1e-10, atol=1e-12)
        for name, method in (
            ("rg", "radius_of_gyration"),
            ("asphericity", "asphericity"),
            ("shape_parameter", "shape_parameter"),
        ):
            wanted = [getattr(one, method)() for one in groups]
            np.testing.assert_allclose(found[name][k], wanted, rtol=1e-10, atol=1e-12)


def test_virtual_sites_are_of_the_fragment_of_their_water(tmp_path):
    made, whole = virtual_sites.write_waters(tmp_path / "water.trr", virtual_sites.TIP4P)
    waters = paceline.Universe(made._topology, str(tmp_path / "water.trr")).atoms
    gyration = Gyration(waters, compound="fragments", weights=None)
    found = gyration.run(transforms=[paceline.transform.unwrap()]).results
    assert found.compounds.tolist() == list(range(virtual_sites.N_WATERS))
    spreads = np.sqrt(whole.reshape(len(whole), -1, 4, 3).var(axis=2).sum(axis=2))
    np.testing.assert_allclose(found.rg, spreads, rtol=1e-3)


def test_without_weights_it_is_mdtraj_s(adk_xtc):
    trajectory = mdtraj.load(adk_xtc.trajectory, top=adk_xtc.topology)
    found = Gyration(paceline.Universe(*adk_xtc).atoms, weights=None).run().results
    np.testing.assert_allclose(found.rg, 10 * mdtraj.compute_rg(trajectory), rtol=1e-5)
    moments = 100 * mdtraj.principal_moments(trajectory)
    np.testing.assert_allclose(found.gyration_moments, moments, rtol=1e-4)
    asphericity = mdtraj.relative_shape_antisotropy(trajectory)
    np.testing.assert_allclose(found.asphericity, asphericity, rtol=1e-4)


def test_components_are_gmx_gyrates(theirs, universe):
    found = Gyration(universe.atoms).run(stop=4).results.rg_components
    masses = theirs.atoms.masses
    for components, _ in zip(found, theirs.trajectory[:4], strict=True):
        squares = (theirs.atoms.positions - theirs.atoms.center_of_mass()) ** 2
        of_axes = (masses[:, None] * squares).sum(axis=0) / masses.sum()
        wanted = np.sqrt(of_axes.sum() - of_axes)
        np.testing.assert_allclose(components, wanted, rtol=1e-10)


def test_nan_stays_in_its_compound():
    random = np.random.default_rng(2)
    positions = random.random((3, 6, 3), dtype=np.float32)
    positions[1, 4, 0] = np.nan
    made = universe_of(positions, n_residues=2, atom_resindex=[0, 0, 0, 1, 1, 1])
    found = run(made.atoms, compound="residues", weights=None)
    assert np.array_equal(np.isnan(found.rg), [[False, False], [False, True], [False, False]])
    for name in ("gyration_moments", "asphericity", "shape_parameter"):
        assert np.isnan(found[name][1, 1]).all()
        assert np.isfinite(found[name][:, 0]).all()


def test_the_table_has_units(universe, tmp_path):
    results = Gyration(universe.atoms).run(stop=3).results
    frame = results.to_dataframe()
    assert list(frame)[:4] == ["frame", "time (ps)", "Rg (Å)", "Rg about x (Å)"]
    np.testing.assert_array_equal(frame["Rg about z (Å)"], results.rg_components[:, 2])
    np.testing.assert_array_equal(frame["largest moment (Å²)"], results.gyration_moments[:, 2])
    segments = Gyration(universe.atoms, compound="segments").run(stop=3).results
    assert list(segments.to_dataframe()) == ["frame", "time (ps)", "Rg of segment 0 (Å)"]
    assert results.plot().get_ylabel() == "radius of gyration (Å)"


def test_what_has_no_shape_is_refused(universe):
    ca = universe.select_atoms("name CA")
    with pytest.raises(SelectionError, match="contains no atoms"):
        Gyration(universe.select_atoms("name XYZ"))
    with pytest.raises(SelectionError, match=r"the group .* less than two atoms with a mass"):
        Gyration(ca[:1])
    with pytest.raises(SelectionError, match=r"214 of the residues .*MET.* less than two atoms"):
        Gyration(ca, compound="residues", weights=None)
    with pytest.raises(ValueError, match="'group', 'residues'"):
        Gyration(ca, compound="molecules")
    with pytest.raises(ValueError, match="weights must be None or 'mass'"):
        Gyration(ca, weights="charge")
    bare = universe_of(np.zeros((1, 3, 3)))
    with pytest.raises(UnsupportedError, match="needs masses"):
        Gyration(bare.atoms)
    with pytest.raises(UnsupportedError, match="needs bonds"):
        Gyration(bare.atoms, compound="fragments", weights=None)
    with pytest.raises(SelectionError, match="less than two atoms with a mass"):
        Gyration(universe_of(np.zeros((1, 3, 3)), masses=[0.0, 1.0, 0.0]).atoms)
    with pytest.raises(ValueError, match="masses must be finite"):
        Gyration(universe_of(np.zeros((1, 3, 3)), masses=[np.nan, 1.0, 1.0]).atoms)
    with pytest.raises(AnalysisError, match="frame 0: all atoms of compound 0 are at the same"):
        run(bare.atoms, weights=None)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((datafiles.PSF, datafiles.DCD), None),
        ((datafiles.PDB_small, datafiles.DCD), "guessed by MDAnalysis from types"),
        ((datafiles.PDB_multiframe,), "guessed by MDAnalysis from elements"),
    ],
)
@pytest.mark.parametrize("opened_by", [paceline.Universe, MDAnalysis.Universe])
def test_results_record_that_masses_are_guessed(files, expected, opened_by):
    universe = opened_by(*files)
    assert Gyration(universe.atoms).run(stop=1).record().get("masses") == expected
    universe.atoms.masses = 2 * universe.atoms.masses
    assert "masses" not in Gyration(universe.atoms).run(stop=1).record()
