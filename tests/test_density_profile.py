"""Tests of density profiles along one axis: brute force, LinearDensity, and unusual cells."""

import warnings

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from MDAnalysisTests.datafiles import GRO_MEMPROT, XTC_MEMPROT, waterDCD, waterPSF
from test_cells import dump, write_xdr

import paceline
from paceline.analysis.density_profile import DensityProfile
from paceline.analysis.lineardensity import LinearDensity
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError

#: Conversion from cm³/mol to Å³, with MDAnalysis's Avogadro constant.
VOLUME = 6.02214129e23 * 1e-24
CELLS = {
    "rectangular": (30, 44, 57, 90, 90, 90),
    "octahedron": (50, 50, 50, 70.53, 109.47, 70.53),
    "triclinic": (60, 45, 50, 80, 100, 115),
}


def make(folder, positions, cells):
    """Return a Universe of atoms with masses, charges and elements."""
    n_atoms = positions.shape[1]
    made = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    made.add_TopologyAttr("masses", 1.0 + np.arange(n_atoms) % 7)
    made.add_TopologyAttr("charges", np.arange(n_atoms) % 5 - 2.0)
    made.add_TopologyAttr("elements", np.array(["H", "C", "Na"])[np.arange(n_atoms) % 3])
    path = str(folder / "made.trr")
    with MDAnalysis.Writer(path, n_atoms) as writer:
        for frame, cell in zip(positions, cells, strict=True):
            made.atoms.positions = frame
            made.dimensions = cell
            writer.write(made.atoms)
    return paceline.Universe(made._topology, path)


@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_water_has_the_densities_of_lineardensity(axis):
    universe = paceline.Universe(waterPSF, waterDCD)
    oxygen = universe.select_atoms("name OH2")
    wanted = LinearDensity(oxygen, binsize=5).run().results[axis]
    mass = DensityProfile(oxygen, axis=axis, binsize=5).run().results
    charge = DensityProfile(oxygen, axis=axis, quantity="charge", binsize=5).run().results
    np.testing.assert_allclose(mass.density[0], wanted.mass_density, rtol=1e-6)
    np.testing.assert_allclose(charge.density[0] / VOLUME, wanted.charge_density, rtol=1e-6)
    np.testing.assert_allclose(mass.edges, wanted.hist_bin_edges, rtol=1e-6)
    deviation = mass.densities[:, 0].std(axis=0)
    np.testing.assert_allclose(deviation, wanted.mass_density_stddev, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("quantity", ["number", "mass", "charge", "electron"])
@pytest.mark.parametrize("axis", ["x", "y", "z"])
@pytest.mark.parametrize("cell", CELLS)
def test_any_cell_by_brute_force(cell, axis, quantity, tmp_path):
    """Check growing cells with atoms in any image. Each atom counts in the brick at the corner."""
    random = np.random.default_rng(6)
    cells = [[*(scale * np.array(CELLS[cell][:3])), *CELLS[cell][3:]] for scale in (1, 1.1, 0.95)]
    positions = random.uniform(-60, 120, (3, 200, 3)).astype(np.float32)
    universe = make(tmp_path, positions, cells)
    groups = {"some": universe.atoms[::3], "others": universe.atoms[50:90]}
    options = {"axis": axis, "quantity": quantity, "binsize": 4.0}
    found = DensityProfile(groups, **options).run().results
    k = "xyz".index(axis)
    atoms = universe.atoms
    weights = {
        "number": np.ones(200),
        "mass": atoms.masses / VOLUME,
        "charge": atoms.charges,
        "electron": np.array([1.0, 6.0, 11.0])[np.arange(200) % 3],
    }[quantity]
    n_bins, heights = len(found.position), []
    for row, frame in enumerate(positions.astype(float)):
        vectors = MDAnalysis.lib.mdamath.triclinic_vectors(cells[row]).astype(float)
        heights.append(vectors[k, k])
        for at in frame:
            for one in (2, 1, 0):
                while at[one] < 0:
                    at += vectors[one]
                while at[one] >= vectors[one, one]:
                    at -= vectors[one]
        volume = abs(np.linalg.det(vectors)) / n_bins
        for number, group in enumerate(groups.values()):
            some = frame[group.indices, k]
            edges = np.linspace(0, vectors[k, k], n_bins + 1)
            wanted, _ = np.histogram(some, edges, weights=weights[group.indices])
            np.testing.assert_allclose(
                found.densities[row, number], wanted / volume, atol=1e-12, rtol=1e-5
            )
    assert n_bins == round(heights[0] / 4)
    np.testing.assert_allclose(found.edges, np.linspace(0, np.mean(heights), n_bins + 1), rtol=1e-6)
    np.testing.assert_allclose(found.density, found.densities.mean(axis=0))
    assert np.isnan(found.interval).any()  # too few frames: three


def slab(folder, n_frames=6, height=40.0):
    """Two sheets 12 Å apart that drift across the boundary of the cell, and an atom above them."""
    random = np.random.default_rng(8)
    at = random.uniform(0, 20, (n_frames, 41, 3))
    drift = np.linspace(3, 90, n_frames)[:, None]
    at[:, :20, 2], at[:, 20:40, 2], at[:, 40, 2] = drift, drift + 12, drift[:, 0] + 20
    at[..., 2] %= height
    return make(folder, at, [[20, 20, height, 90, 90, 90]] * n_frames)


def test_the_origin_is_the_center_of_a_slab_that_crosses_the_border(tmp_path):
    universe = slab(tmp_path)
    universe.atoms.masses = 1.0
    sheets = universe.atoms[:40]
    groups = {"sheets": sheets, "above": universe.atoms[40:]}
    options = {"quantity": "number", "binsize": 0.8, "origin": sheets}
    found = DensityProfile(groups, **options).run().results
    assert found.edges[[0, -1]].tolist() == pytest.approx([-20, 20])
    assert found.position[np.flatnonzero(found.density[0])] == pytest.approx([-6, 6], abs=0.45)
    assert found.density[0].sum() * np.diff(found.edges)[0] * 400 == pytest.approx(40)
    assert found.position[np.flatnonzero(found.density[1])] == pytest.approx([14], abs=0.45)
    both = DensityProfile(groups, symmetrize=True, **options).run().results
    np.testing.assert_allclose(both.density, (found.density + found.density[:, ::-1]) / 2)
    assert np.flatnonzero(both.density[1]).size == 2
    text = DensityProfile(groups, **options | {"origin": "index 0:39"}).run().results
    np.testing.assert_array_equal(text.density, found.density)


def test_an_origin_without_a_center_is_noted(tmp_path):
    random = np.random.default_rng(2)
    universe = make(tmp_path, random.uniform(0, 30, (4, 2000, 3)), [[30, 30, 30, 90, 90, 90]] * 4)
    with pytest.warns(PacelineWarning, match="in 4 frames of 4 the atoms of the origin are spread"):
        DensityProfile(universe.atoms, origin=universe.atoms).run()


def argon(path, n_atoms):
    """Return the Universe of an argon trajectory."""
    made = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    made.add_TopologyAttr("masses", [39.95] * n_atoms)
    made.add_TopologyAttr("names", ["AR"] * n_atoms)
    return paceline.Universe(made._topology, path)


@pytest.mark.filterwarnings("ignore:.*times of frames are not known")
def test_a_cell_without_images_along_the_axis(tmp_path):
    """Check a LAMMPS file: positions are relative to the corner; atoms outside do not count."""
    frames = [[[5.0, 5, -9.5], [5, 5, 9.5], [5, 5, 10.5], [25, 5, 0.2]]] * 2
    bounds = [[[0, 20], [0, 20], [-10, 10]]] * 2
    for boundary in ("pp pp ff", "pp pp pp"):
        path = dump(tmp_path / f"{boundary[-1]}.lammpstrj", frames, bounds, boundary=boundary)
        run = DensityProfile(argon(path, 4).atoms, quantity="number", binsize=1)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            results = run.run().results
        lost = [one for one in found if "25 % of the atoms" in str(one.message)]
        assert len(lost) == (boundary == "pp pp ff")
        assert results.edges[[0, -1]].tolist() == pytest.approx([0, 20])
        assert results.position[results.density[0] > 0].tolist() == pytest.approx([0.5, 10.5, 19.5])
        assert results.density[0].sum() * 400 == pytest.approx(4 - len(lost))


def test_a_hexagonal_cell_that_is_rotated_about_z(tmp_path):
    """Check a cell as written by CHARMM: profiles along z are right, and others are refused."""
    vectors = np.array([[28.98, -7.76, 0], [-7.76, 28.98, 0], [0, 0, 40]])
    positions = np.random.default_rng(3).uniform(-20, 60, (50, 3))
    path = write_xdr(tmp_path / "rotated.trr", [positions], vectors)
    universe = argon(path, 50)
    found = DensityProfile(universe.atoms, quantity="number", binsize=4).run().results
    counts, _ = np.histogram(positions[:, 2] % 40, np.arange(0, 41, 4))
    volume = abs(np.linalg.det(vectors)) / 10
    np.testing.assert_allclose(found.density[0], counts / volume, rtol=1e-5)
    with pytest.raises(AnalysisError, match="frame 0: its cell is rotated: expected its first vec"):
        DensityProfile(universe.atoms, axis="x").run()


def test_same_bits_on_every_backend(where, tmp_path_factory):
    random = np.random.default_rng(8)
    cells = [[52 + k / 10, 52, 52, 60, 60, 90] for k in range(70)]
    positions = random.uniform(-60, 90, (70, 60, 3))
    universe = make(tmp_path_factory.mktemp("bits"), positions, cells)
    atoms, options = universe.atoms, {"binsize": 2.0, "origin": universe.atoms[:3]}
    bits = [
        [found.results.density.tobytes(), found.results.interval.tobytes()]
        for found in (
            DensityProfile([atoms[::2], atoms[10:30]], **options).run(**how)
            for how in ({"backend": "serial"}, where, {"block_frames": 16})
        )
    ]
    assert bits[0] == bits[1] == bits[2]


def test_what_makes_no_sense_is_refused(tmp_path):
    universe = slab(tmp_path)
    atoms = universe.atoms
    for error, match, options in (
        (ValueError, "axis must be", {"axis": "w"}),
        (ValueError, "quantity must be", {"quantity": "dipole"}),
        (ValueError, "binsize must be at most the height", {"binsize": 41}),
        (ValueError, "binsize must be a length", {"binsize": -1}),
        (UnsupportedError, "set the atoms", {"symmetrize": True}),
        (SelectionError, "no atoms match", {"origin": "index 99"}),
    ):
        with pytest.raises(error, match=match):
            DensityProfile(atoms, **options)
    for group in (atoms[:0], []):
        with pytest.raises(SelectionError, match=r"no atoms|found none"):
            DensityProfile(group)
    universe.del_TopologyAttr("charges")
    with pytest.raises(UnsupportedError, match="needs charges, but the topology has none"):
        DensityProfile(atoms, quantity="charge")
    assert DensityProfile(atoms).run().results.density.any()
    atoms[:3].elements = "Q"
    with pytest.raises(UnsupportedError, match="element of 3 atoms is unknown"):
        DensityProfile(atoms, quantity="electron")
    universe.dimensions = None
    with pytest.raises(UnsupportedError, match="needs a cell"):
        DensityProfile(atoms)


def test_a_frame_without_a_cell_is_an_error(tmp_path):
    cells = [[20, 20, 20, 90, 90, 90], None, [20, 20, 20, 90, 90, 90]]
    universe = make(tmp_path, np.full((3, 4, 3), 5.0), cells)
    with pytest.raises(AnalysisError, match="frame 1: a density needs a cell"):
        DensityProfile(universe.atoms).run()
    found = DensityProfile(universe.atoms, binsize=10).run(frames=[0, 2]).results
    assert found.density[0, 1] == 0


def test_command_draws_all_groups(run, tmp_path):
    table, figure = tmp_path / "profiles.csv", tmp_path / "profiles.svg"
    words = ["--select", "resname POPE", "--group", "name P", "--group", "protein"]
    words += ["--quantity", "number", "--origin", "resname POPE", "--symmetrize", "--binsize", 2]
    files = GRO_MEMPROT, XTC_MEMPROT
    status, _, err = run("density-profile", *files, *words, "-o", table, "--plot", figure)
    assert status == 0, err
    universe = paceline.Universe(*files)
    lipids = universe.select_atoms("resname POPE")
    groups = [lipids, universe.select_atoms("name P"), universe.select_atoms("protein")]
    options = {"quantity": "number", "binsize": 2.0, "origin": lipids, "symmetrize": True}
    wanted = DensityProfile(groups, **options).run().results
    found = pd.read_csv(table, comment="#")
    assert next(iter(found)) == "z from the origin (Å)"
    np.testing.assert_allclose(found["name P: number density (Å⁻³)"], wanted.density[1], rtol=1e-12)
    picture = figure.read_text(encoding="utf-8")
    assert all(name in picture for name in ("resname POPE", "name P", "protein"))
    status, _, err = run("density-profile", *files, "--select", "name P", "--group", "name P")
    assert status != 0
    assert "occurs twice" in err
    status, _, err = run("density-profile", *files, "--select", "name P", "--quantity", "charge")
    assert status != 0
    assert "--quantity" in err
