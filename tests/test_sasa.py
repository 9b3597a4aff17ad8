"""Tests of the solvent-accessible surface against formulas, MDTraj, and a direct computation."""

import warnings

import MDAnalysis
import mdtraj
import numpy as np
import pandas as pd
import pytest
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.buried_area import BuriedArea
from paceline.analysis.sasa import RADII, SASA
from paceline.errors import SelectionError


def spheres(tmp_path, positions, elements, cell=None):
    """Return a Universe of these atoms."""
    universe = MDAnalysis.Universe.empty(len(positions), trajectory=True)
    universe.add_TopologyAttr("elements", elements)
    universe.atoms.positions = positions
    universe.dimensions = cell
    path = str(tmp_path / "spheres.trr")
    universe.atoms.write(path)
    return paceline.Universe(universe._topology, path, format="TRR")


def areas(group, **options):
    return SASA(group, compound="atoms", **options).run(backend="serial").results.sasa


def test_one_sphere(tmp_path):
    u = spheres(tmp_path, [[1.0, 2.0, 3.0]], ["O"])
    for n_points in (1, 7, 100, 960, 2**16):
        (area,) = SASA(u, n_points=n_points, probe_radius=1.1).run(backend="serial").results.sasa
        assert area == pytest.approx(4 * np.pi * (1.52 + 1.1) ** 2, rel=1e-12)


@pytest.mark.parametrize("apart", [0.1, 0.35, 1.5, 3.0, 5.2, 7.0])
def test_two_spheres(apart, tmp_path):
    radii = np.array([1.7 + 1.4, 1.2 + 1.4])
    direction = np.array([2.0, -1.0, 3.0]) / np.sqrt(14)
    u = spheres(tmp_path, [[4, 5, 6], [4, 5, 6] + apart * direction], ["C", "H"])
    # The cap of each sphere inside the other extends from the plane of intersection to the top.
    planes = (apart**2 + radii**2 - radii[::-1] ** 2) / (2 * apart)
    caps = 2 * np.pi * radii * np.clip(radii - planes, 0, 2 * radii)
    wanted = 4 * np.pi * radii**2 - caps
    found = areas(u.atoms, n_points=10_000)[0]
    np.testing.assert_allclose(found, wanted, atol=4 * np.pi * 3.1**2 * 2e-3)
    assert (found[1] == 0) == (wanted[1] < 1e-9)


def test_equal_spheres_at_one_place_are_one(tmp_path):
    u = spheres(tmp_path, [[4.0, 5.0, 6.0]] * 3, ["C", "C", "C"])
    np.testing.assert_allclose(areas(u.atoms), [[4 * np.pi * 3.1**2, 0, 0]])


@pytest.mark.parametrize("n_points", [100, 960])
def test_counts_are_those_of_mdtraj(n_points, adk, universe):
    trajectory = mdtraj.load(adk.trajectory, top=adk.topology)[:3]
    atoms = list(trajectory.topology.atoms)
    theirs = {
        one.element.symbol: 10 * mdtraj.geometry.sasa._ATOMIC_RADII[one.element.symbol]
        for one in atoms
    }
    wanted = 100 * mdtraj.shrake_rupley(trajectory, n_sphere_points=n_points)
    analysis = SASA(universe, compound="atoms", n_points=n_points, radii=theirs)
    found = analysis.run(stop=3, backend="serial").results.sasa
    of_point = 4 * np.pi * np.array([theirs[one.element.symbol] + 1.4 for one in atoms]) ** 2
    points, theirs_points = (area / of_point * n_points for area in (found, wanted))
    np.testing.assert_allclose(points, points.round(), atol=1e-9)
    # By rounding, a point between two spheres may lie in one of them.
    off = np.abs(points - theirs_points.round())
    assert off.max() <= 1 + 1e-9
    assert off.sum() <= 1e-5 * n_points * off.size


@pytest.mark.parametrize(
    "cell",
    [
        (30, 26, 41, 90, 90, 90),
        (33, 33, 33, 60, 60, 90),
        (25, 31, 28, 75, 100, 112),
        (7, 6, 40, 90, 90, 90),
    ],
    ids=str,
)
def test_images_in_a_cell_cover_points(cell, tmp_path):
    rng = np.random.default_rng(5)
    elements = rng.choice(["C", "H", "O", "S"], 250 if min(cell[:3]) > 9 else 12)
    vectors = triclinic_vectors(np.array(cell, dtype=np.float32)).astype(float)
    positions = (rng.uniform(-1, 2, (len(elements), 3)) @ vectors).astype(np.float32)
    u = spheres(tmp_path, positions, elements, cell)
    radii = np.array([RADII["bondi"][one] for one in elements]) + 1.4
    images = np.array(np.meshgrid(*[range(-6, 7)] * 3)).reshape(3, -1).T
    k = np.arange(100)
    height = (2 * k + 1) / 100 - 1
    turn, across = k * np.pi * (3 - np.sqrt(5)), np.sqrt(1 - height**2)
    points = np.column_stack([np.cos(turn) * across, height, np.sin(turn) * across])
    found = areas(u.atoms, n_points=100)[0] / (4 * np.pi * radii**2) * 100
    for atom in range(0, len(elements), 9):
        others = (positions[:, None] + images @ vectors).reshape(-1, 3)
        reaches = np.repeat(radii, len(images))
        apart = np.linalg.norm(others - positions[atom], axis=1)
        near = (apart < radii[atom] + reaches) & (apart > 1e-3)
        on_sphere = positions[atom] + radii[atom] * points
        gaps = np.linalg.norm(on_sphere[:, None] - others[near], axis=2) - reaches[near]
        in_doubt = (np.abs(gaps.min(axis=1)) < 1e-4).sum()
        assert abs(found[atom] - (gaps > 0).all(axis=1).sum()) <= in_doubt + 1e-9
    assert found.max() > 5


def test_a_group_alone_and_within_others(universe):
    protein, part = universe.atoms, universe.select_atoms("resid 30-60")[::-1]
    how = {"stop": 3, "backend": "serial"}
    all_of_it = SASA(protein, n_points=100, compound="atoms").run(**how).results
    within = SASA(part, surface=protein, n_points=100, compound="atoms").run(**how).results
    alone = SASA(part, n_points=100, compound="atoms").run(**how).results
    np.testing.assert_array_equal(within.sasa, all_of_it.sasa[:, part.indices])
    assert (alone.sasa >= within.sasa).all()
    assert (alone.total > within.total + 100).all()
    residues = SASA(part, surface=protein, n_points=100, compound="residues").run(**how).results
    assert residues.sasa.shape == (3, 31)
    first = universe.select_atoms("resid 30").indices
    np.testing.assert_allclose(residues.sasa[:, 0], all_of_it.sasa[:, first].sum(axis=1))
    group = SASA(part + part, surface=protein, n_points=100).run(**how).results
    np.testing.assert_allclose(group.sasa, within.total)
    np.testing.assert_array_equal(group.sasa, group.total)
    assert list(group.to_dataframe()) == ["frame", "time (ps)", "SASA (Å²)"]


def test_a_part_of_the_surface_of_some_atoms_is_that_of_mdtraj(adk, universe):
    """MDTraj computes the surface from a file that contains only the atoms with a surface."""
    trajectory = mdtraj.load(adk.trajectory, top=adk.topology)[:2]
    surface = universe.select_atoms("resid 30-120")
    theirs = mdtraj.geometry.sasa._ATOMIC_RADII
    radii = {one.element.symbol: 10 * theirs[one.element.symbol] for one in trajectory.top.atoms}
    wanted = 100 * mdtraj.shrake_rupley(trajectory.atom_slice(surface.indices), n_sphere_points=200)
    part = surface.select_atoms("resname LYS ARG")
    analysis = SASA(part, surface=surface, compound="residues", radii=radii, n_points=200)
    found = analysis.run(stop=2, backend="serial").results.sasa
    numbers = np.searchsorted(surface.indices, part.indices)
    for column, residue in zip(found.T, part.residues, strict=True):
        atoms = numbers[part.resindices == residue.resindex]
        # By rounding, a point of a sphere may lie in another sphere.
        np.testing.assert_allclose(column, wanted[:, atoms].sum(axis=1), atol=0.7)
    alone = SASA(part, radii=radii, n_points=200).run(stop=2, backend="serial").results.sasa
    assert (alone > 1.3 * found.sum(axis=1)).all()


def test_radii(universe):
    calphas = universe.select_atoms("name CA")[::-1]
    how = {"stop": 1, "backend": "serial"}
    bondi = SASA(calphas).run(**how).results.sasa
    for same in ("bondi", {"c": 1.7}, np.full(214, 1.7)):
        np.testing.assert_array_equal(SASA(calphas, radii=same).run(**how).results.sasa, bondi)
    rowland = SASA(calphas, radii="rowland").run(**how).results.sasa
    assert rowland == SASA(calphas, radii=np.full(214, 1.77)).run(**how).results.sasa != bondi
    own = np.linspace(1, 2, 214)
    found = SASA(calphas, radii=own, compound="atoms").run(**how).results.sasa
    turned = SASA(calphas[::-1], radii=own[::-1], compound="atoms").run(**how).results.sasa
    np.testing.assert_array_equal(found[:, ::-1], turned)


def test_what_is_wrong_is_named(universe, adk, tmp_path):
    changed, heavy = paceline.Universe(*adk), paceline.Universe(*adk)
    changed.add_TopologyAttr("elements", ["C", "Xx"] + ["H"] * 3339)
    with pytest.raises(SelectionError, match=r"radii of Xx are unknown \(.*set radii"):
        SASA(changed)
    # Masses as after mass repartitioning, except those of the carbons, which then match no element.
    heavy.select_atoms("resid 5 and name H[AB]*").masses = 3.024
    with pytest.raises(SelectionError, match=r"atoms without an element are unknown \(CA, CB"):
        SASA(heavy)
    with pytest.raises(
        SelectionError, match=r"atoms without an element are unknown \(0, 1\): set radii"
    ):
        SASA(MDAnalysis.Universe.empty(2, trajectory=True))
    with pytest.raises(SelectionError, match="no atoms"):
        SASA(universe.atoms[:0])
    with pytest.raises(SelectionError, match="3 atoms of the group are not in surface"):
        SASA(universe.atoms[:10], surface=universe.atoms[3:])
    for wrong, message in [
        ({"n_points": 0}, "1 to 65,536"),
        ({"n_points": 9.5}, "whole number"),
        ({"probe_radius": -1}, "at least 0"),
        ({"probe_radius": np.nan}, "at least 0"),
        ({"compound": "segments"}, "'group', 'residues' or 'atoms'"),
        ({"radii": "none"}, "bondi, rowland"),
        ({"radii": [1.7]}, "each of 3341 atoms"),
        ({"radii": np.zeros(3341)}, "above 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            SASA(universe, **wrong)
    broken = spheres(tmp_path, [[1, 2, 3], [np.nan, 0, 0]], ["C", "C"])
    assert np.isnan(SASA(broken, compound="atoms").run(backend="serial").results.sasa).all()


@pytest.mark.parametrize("kind", ["CA", "given", "all atoms", "ions"])
def test_beads_with_radii_of_atoms_warn(kind, tmp_path):
    lipids = paceline.Universe(datafiles.Martini_membrane_gro).select_atoms("not name GL1 GL2")
    protein = paceline.Universe(datafiles.PSF, datafiles.PDB_small)
    atoms, options = {
        "CA": (MDAnalysis.Merge(protein.select_atoms("name CA")).atoms, {}),
        "given": (lipids.select_atoms("name C*"), {"radii": np.full(3060, 2.6)}),
        "all atoms": (protein.select_atoms("name CA"), {}),
        "ions": (paceline.Universe(datafiles.GRO).select_atoms("name NA"), {}),
    }[kind]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = SASA(atoms, n_points=10, **options)
    told = [one for one in caught if "seem to be coarse-grained" in str(one.message)]
    assert len(told) == (kind == "CA")
    assert ("beads" in found.remarks) == bool(told)


def test_beads_without_radii_are_named(tmp_path):
    beads = MDAnalysis.Universe.empty(4, 2, atom_resindex=[0, 0, 1, 1], trajectory=True)
    beads.add_TopologyAttr("names", ["BB", "SC1"] * 2)
    beads.add_TopologyAttr("resnames", ["LYS", "LEU"])
    beads.add_TopologyAttr("resids", [1, 2])
    beads.atoms.positions = 3.0 * np.arange(12).reshape(4, 3)
    words = "such as LYS 1 seem to be coarse-grained, .* radii of beads are unknown: pass an array"
    with pytest.raises(SelectionError, match=words):
        SASA(beads)
    assert SASA(beads, radii=np.full(4, 2.6)).atom_radii.tolist() == [2.6] * 4
    lipids = paceline.Universe(datafiles.Martini_membrane_gro).select_atoms("name C*")
    with pytest.raises(SelectionError, match="such as DPPC 1 seem to be coarse-grained"):
        SASA(lipids)


def test_areas_of_residues_are_mapped(adk, tmp_path, run):
    words = ["sasa", *adk, "--select", "resid 20-40", "--n-points", 20, "--end", 4]
    table, figure = tmp_path / "map.csv", tmp_path / "map.svg"
    given = [*words, "--compound", "residues", "-o", tmp_path / "sasa.npz"]
    assert run(*given, "--residues", table)[0] == 0
    assert run(*given, "--residues", figure, "--overwrite")[0] == 0
    rows = pd.read_csv(table, comment="#", float_precision="round_trip")
    np.testing.assert_array_equal(rows.iloc[:, 2:], np.load(tmp_path / "sasa.npz")["sasa"])
    assert rows.columns[2] == "ILE 20 (Å²)"
    assert "SASA (Å²)" in figure.read_text("utf-8")
    status, _, err = run(*words, "--residues", tmp_path / "b.csv")
    assert (status, "use --compound residues" in err) == (2, True)


def test_surface_of_more_atoms_than_are_reported(adk_xtc, tmp_path, run):
    table, options = tmp_path / "sasa.csv", ["-e", 3, "--n-points", 50]
    chosen = ["--select", "resname LYS", "--surface", "protein"]
    assert run("sasa", *adk_xtc, *chosen, *options, "-o", table)[0] == 0
    universe = paceline.Universe(*adk_xtc)
    lysines, protein = (universe.select_atoms(text) for text in ("resname LYS", "protein"))
    wanted = SASA(lysines, surface=protein, n_points=50).run(stop=3).results.sasa
    found = pd.read_csv(table, comment="#")["SASA (Å²)"]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    status, _, err = run("sasa", *adk_xtc, "--select", "protein", "--surface", "resname LYS")
    assert (status, "atoms of the group are not in surface" in err) == (2, True)
    status, _, err = run("sasa", *adk_xtc, "--surface", "resname LIG")
    assert (status, "no atoms match 'resname LIG'" in err) == (2, True)


def test_buried_area_is_the_sum_of_areas_less_that_of_both(adk_xtc):
    universe = paceline.Universe(*adk_xtc)
    lid, rest = universe.select_atoms("resid 122-159"), universe.select_atoms("resid 1-60")
    rest = rest[::-1]
    one = BuriedArea(lid, rest, n_points=120).run(stop=4).results
    alone = [SASA(group, n_points=120).run(stop=4).results.sasa for group in (lid, rest)]
    together = SASA(lid | rest, n_points=120).run(stop=4).results.sasa
    np.testing.assert_allclose(one.areas.T, [*alone, together], rtol=1e-12)
    np.testing.assert_allclose(one.buried, sum(alone) - together, rtol=0, atol=1e-8)
    assert one.buried.min() > 10
    in_both = SASA(lid, surface=lid | rest, n_points=120, compound="residues").run(stop=4).results
    free = SASA(lid, n_points=120, compound="residues").run(stop=4).results
    found = one.buried_of_residues[:, : len(lid.residues)]
    np.testing.assert_allclose(found, free.sasa - in_both.sasa, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.buried_of_residues.sum(axis=1), one.buried, atol=1e-8)
    assert one.resindices.tolist() == [*lid.residues.ix, *rest.residues.ix]
