"""Tests of densities along axes: MDAnalysis's where its cell is right, and correct ones in any
cell.
"""

import warnings

import MDAnalysis
import numpy as np
import pytest
from helpers import virtual_sites
from MDAnalysis.analysis import lineardensity as theirs_module
from MDAnalysisTests.datafiles import TPR, XTC, Martini_membrane_gro, waterDCD, waterPSF

import paceline
from paceline.analysis.lineardensity import LinearDensity
from paceline.engine.worker import Worker
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

#: Conversion from cm³/mol to Å³, with MDAnalysis's Avogadro constant.
VOLUME = 6.02214129e23 * 1e-24
CELLS = {
    "cube": (40, 40, 40, 90, 90, 90),
    "rectangular": (30, 44, 57, 90, 90, 90),
    "dodecahedron": (52, 52, 52, 60, 60, 90),
    "octahedron": (50, 50, 50, 70.53, 109.47, 70.53),
    "triclinic": (60, 45, 50, 80, 100, 115),
}


def make(folder, positions, cells, grouping=3):
    """Write topology and trajectory of residues of this size, with unequal masses and charges."""
    n_atoms = positions.shape[1]
    n_residues = n_atoms // grouping
    universe = MDAnalysis.Universe.empty(
        n_atoms, n_residues, atom_resindex=np.arange(n_atoms) // grouping, trajectory=True
    )
    universe.add_TopologyAttr("masses", 1.0 + np.arange(n_atoms) % 7)
    universe.add_TopologyAttr("charges", np.arange(n_atoms) % 5 - 2.0)
    path = str(folder / "made.xtc")
    with MDAnalysis.Writer(path, n_atoms) as writer:
        for frame, cell in zip(positions, cells, strict=True):
            universe.atoms.positions = frame
            universe.dimensions = cell
            writer.write(universe.atoms)
    return universe._topology, path


def assert_equal(found, wanted, rtol=1e-12):
    """Check all results along all axes, and their types."""
    for axis in "xyz":
        ours, theirs = found.results[axis], wanted.results[axis]
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert np.asarray(ours[name]).dtype == np.asarray(value).dtype, name
            # MDAnalysis's deviations are differences of squares.
            atol = 1e-7 * np.max(theirs[name.removesuffix("_stddev")]) if "std" in name else 1e-15
            np.testing.assert_allclose(ours[name], value, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("grouping", ["atoms", "residues", "segments", "fragments"])
def test_water_in_a_cube_is_theirs(grouping):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MDAnalysis.Universe(waterPSF, waterDCD)
    ours = paceline.Universe(waterPSF, waterDCD)
    for select, binsize in (("all", 5), ("name OH2", 0.25)):
        wanted = theirs_module.LinearDensity(theirs.select_atoms(select), grouping, binsize).run()
        found = LinearDensity(ours.select_atoms(select), grouping, binsize).run()
        assert found.results.x.mass_density.any()
        assert_equal(found, wanted)


def test_virtual_sites_are_of_the_fragment_of_their_water(tmp_path):
    made, _ = virtual_sites.write_waters(tmp_path / "water.trr", virtual_sites.TIP4P)
    waters = paceline.Universe(made._topology, str(tmp_path / "water.trr")).atoms
    found, wanted = (
        LinearDensity(waters, grouping, 2.0).run(transforms=[paceline.transform.unwrap()])
        for grouping in ("fragments", "residues")
    )
    assert found.results.x.mass_density.any()
    assert_equal(found, wanted)


@pytest.mark.parametrize("grouping", ["atoms", "residues"])
@pytest.mark.parametrize("cell", ["cube", "rectangular"])
def test_atoms_out_of_the_cell_are_counted_as_theirs(cell, grouping, tmp_path):
    random = np.random.default_rng(5)
    # Positions are multiples of 0.5 Å, so that many are on the edge of a bin or of the cell.
    positions = random.integers(-80, 160, (4, 900, 3)) / 2
    if grouping == "residues":
        positions = positions + random.uniform(0.1, 0.4, positions.shape)
    files = make(tmp_path, positions, [CELLS[cell]] * 4)
    theirs, ours = MDAnalysis.Universe(*files), paceline.Universe(*files)
    wanted = theirs_module.LinearDensity(theirs.atoms[::-1], grouping, 1.0).run()
    found = LinearDensity(ours.atoms[::-1], grouping, 1.0).run()
    # MDAnalysis's volume is a product in single precision.
    assert_equal(found, wanted, rtol=1e-7)


@pytest.mark.parametrize("grouping", ["atoms", "residues", "segments"])
def test_a_group_that_changes_is_theirs(grouping, tmp_path):
    random = np.random.default_rng(10)
    # Centers are rounded differently; atoms, which may be alone, are therefore not on edges of
    # bins.
    positions = random.integers(-40, 80, (5, 300, 3)) + random.uniform(0.1, 0.9, (5, 300, 3))
    positions[2, :, 0] = -1.0  # no atom is above 20 Å
    files = make(tmp_path, positions, [CELLS["rectangular"]] * 5)
    theirs, ours = (
        kind(*files).select_atoms("prop x > 20 and not index 7", updating=True)
        for kind in (MDAnalysis.Universe, paceline.Universe)
    )
    sizes = [len(theirs) for _ in theirs.universe.trajectory]
    assert sizes[2] == 0
    assert len(set(sizes)) > 3
    # MDAnalysis has no centers of an empty group.
    frames = [0, 1, 2, 3, 4] if grouping == "atoms" else [0, 1, 3, 4]
    paceline.register()
    try:
        registered = MDAnalysis.Universe(*files).select_atoms(
            *theirs._selection_strings, updating=True
        )
        native = theirs_module.LinearDensity(registered, grouping, 1.0).run(frames=frames)
    finally:
        paceline.unregister()
    wanted = theirs_module.LinearDensity(theirs, grouping, 1.0).run(frames=frames)
    found = LinearDensity(ours, grouping, 1.0).run(frames=frames, n_workers=2)
    assert found.results.x.mass_density.any()
    assert_equal(found, wanted, rtol=1e-7)
    np.testing.assert_array_equal(native.results.x.mass_density, found.results.x.mass_density)


def test_edges_that_are_no_whole_number_of_bins(tmp_path):
    # MDAnalysis divides the volume by a rounded number of bins: 4 bins of 7 Å in 33 Å, and not 4.7.
    positions = np.random.default_rng(6).uniform(0, 33, (3, 300, 3))
    files = make(tmp_path, positions, [[33, 40, 49, 90, 90, 90]] * 3)
    theirs, ours = MDAnalysis.Universe(*files), paceline.Universe(*files)
    wanted = theirs_module.LinearDensity(theirs.atoms, binsize=7.0).run().results
    found = LinearDensity(ours.atoms, binsize=7.0).run().results
    for axis, area in (("x", 40 * 49), ("y", 33 * 49), ("z", 33 * 40)):
        assert found[axis].slice_volume == pytest.approx(7 * area, rel=1e-7)
        masses = (one[axis].mass_density * one[axis].slice_volume for one in (found, wanted))
        np.testing.assert_allclose(*masses, rtol=1e-12)
    assert wanted.x.slice_volume == pytest.approx(33 * 40 * 49 / 4, rel=1e-7)


@pytest.mark.parametrize("cell", CELLS)
def test_a_lattice_is_evenly_dense_in_any_cell(cell, tmp_path):
    """Check atoms on a lattice of the cell: every bin has the mean density, in any image."""
    n = 24
    fractions = (np.stack(np.meshgrid(*[np.arange(n)] * 3), -1).reshape(-1, 3) + 0.5) / n
    lengths = np.array(CELLS[cell][:3])
    cells = [[*(size * lengths), *CELLS[cell][3:]] for size in (1.0, 1.1, 0.93)]
    random = np.random.default_rng(7)
    vectors = [MDAnalysis.lib.mdamath.triclinic_vectors(cell) for cell in cells]
    images = random.integers(-1, 3, (3, n**3, 3))
    positions = np.stack(
        [(fractions + shift) @ one for shift, one in zip(images, vectors, strict=True)]
    )
    files = make(tmp_path, positions, cells, grouping=1)
    found = LinearDensity(paceline.Universe(*files).atoms, binsize=4.0).run().results
    volumes = [abs(np.linalg.det(one)) for one in vectors]
    universe = MDAnalysis.Universe(*files)
    mass, charge = universe.atoms.masses.sum(), universe.atoms.charges.sum()
    heights = np.mean([one.diagonal() for one in vectors], axis=0)
    for axis, height in zip("xyz", heights, strict=True):
        one = found[axis]
        width = np.diff(one.hist_bin_edges).mean()
        # In each frame, the total mass is found, in any cell.
        mean = one.mass_density.sum() * width / height
        assert mean == pytest.approx(mass * np.mean(np.reciprocal(volumes)) / VOLUME, rel=1e-5)
        mean = one.charge_density.sum() * width / height
        assert mean == pytest.approx(charge * np.mean(np.reciprocal(volumes)) / VOLUME, rel=1e-5)
        # Whole bins contain whole layers of the lattice, except one layer at each end.
        inside = one.mass_density[1 : int(height // width) - 1]
        np.testing.assert_allclose(inside, mean * mass / charge, rtol=0.6)


def test_a_growing_cell_and_its_deviation(tmp_path):
    """Check one atom of mass 1 and charge -2 in the middle of a cube of 40, and then of 50 Å."""
    sides = np.array([40.0, 50.0])
    files = make(
        tmp_path,
        np.full((2, 1, 3), 0.5) * sides[:, None, None],
        [[side, side, side, 90, 90, 90] for side in sides],
        grouping=1,
    )
    found = LinearDensity(paceline.Universe(*files).atoms, binsize=8.0).run().results
    for axis in "xyz":
        one = found[axis]
        densities = 5 / sides**3 / VOLUME
        wanted = [0, 0, densities.mean(), 0, 0]
        np.testing.assert_allclose(one.mass_density, wanted, rtol=1e-7)
        np.testing.assert_allclose(one.charge_density, -2 * np.array(wanted), rtol=1e-7)
        np.testing.assert_allclose(one.mass_density_stddev[2], densities.std(), rtol=1e-6)
        np.testing.assert_allclose(one.hist_bin_edges, np.arange(6) * 9)
        assert one.slice_volume == pytest.approx((sides**3).mean() / 5)


def test_same_bits_on_every_backend(where, tmp_path_factory):
    random = np.random.default_rng(8)
    cells = [[52 + k / 10, 52, 52, 60, 60, 90] for k in range(70)]
    positions = random.uniform(-60, 90, (70, 30, 3))
    files = make(tmp_path_factory.mktemp("bits"), positions, cells)
    for grouping in ("atoms", "residues"):
        bits = [
            [found.results[axis].mass_density_stddev.tobytes() for axis in "xyz"]
            for found in (
                LinearDensity(paceline.Universe(*files).atoms, grouping, 1.0).run(**options)
                for options in ({"backend": "serial"}, where, {"block_frames": 16})
            )
        ]
        assert bits[0] == bits[1] == bits[2]


def test_it_resumes(tmp_path, monkeypatch):
    random = np.random.default_rng(9)
    files = make(tmp_path, random.uniform(0, 50, (70, 30, 3)), [[52, 52, 52, 90, 90, 90]] * 70)

    def density(**options):
        atoms = paceline.Universe(*files).atoms
        results = LinearDensity(atoms, binsize=1.0).run(backend="serial", **options).results
        return results.y.mass_density_stddev.tobytes()

    wanted, path = density(), tmp_path / "checkpoint"
    do_block, done = Worker.run, []

    def failing(self, task):
        if len(done) == 2:
            raise KeyError("interrupted")
        done.append(task)
        return do_block(self, task)

    monkeypatch.setattr("paceline.checkpoint.INTERVAL", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        with pytest.raises(KeyError, match="interrupted"):
            density(block_frames=16, checkpoint=path)
    assert path.exists()
    assert density(checkpoint=path) == wanted


def test_what_is_touched_after_a_run(tmp_path):
    universe = paceline.Universe(TPR, XTC)
    density = LinearDensity(universe.select_atoms("name OW"), "residues", 2.0).run(stop=2)
    with pytest.warns(DeprecationWarning, match="charge_density_stddev"):
        assert density.results.x.char_std is density.results.x.charge_density_stddev
    with pytest.warns(DeprecationWarning, match="mass_density"):
        assert density.results["z"]["pos"] is density.results.z.mass_density
    assert density.nbins == len(density.results.x.mass_density) == 40
    density.results.save(tmp_path / "density.csv")
    text = (tmp_path / "density.csv").read_text()
    assert "# grouping: residues" in text
    assert "position (Å),x: mass density (g cm⁻³)," in text
    assert density.results.plot().get_ylabel() == "mass density (g cm⁻³)"
    density.results.save(tmp_path / "density.npz")
    with np.load(tmp_path / "density.npz") as saved:
        np.testing.assert_array_equal(saved["y.mass_density"], density.results.y.mass_density)


def test_registered_runs_use_it(monkeypatch):
    paceline.register()
    try:
        theirs = theirs_module.LinearDensity(MDAnalysis.Universe(TPR, XTC).atoms, binsize=5)
        theirs.run()
    finally:
        paceline.unregister()
    found = LinearDensity(paceline.Universe(TPR, XTC).atoms, binsize=5).run()
    np.testing.assert_array_equal(theirs.results.x.mass_density, found.results.x.mass_density)
    alone = theirs_module.LinearDensity(MDAnalysis.Universe(TPR, XTC).atoms, binsize=5).run(stop=1)
    assert type(theirs.results.x) is type(alone.results.x)
    assert list(theirs.results.x) == list(alone.results.x)


def test_without_charges_there_are_densities_of_mass():
    wet, universe = paceline.Universe(waterPSF, waterDCD), paceline.Universe(waterPSF, waterDCD)
    universe.del_TopologyAttr("charges")
    bare = LinearDensity(universe.atoms, binsize=5).run().results
    full = LinearDensity(wet.atoms, binsize=5).run().results
    for axis in "xyz":
        assert bare[axis].mass_density.tobytes() == full[axis].mass_density.tobytes()
        assert np.isnan(bare[axis].charge_density).all()
        assert np.isnan(bare[axis].charge_density_stddev).all()
    assert not [title for title in bare.table.columns if "charge" in title]
    kept = [title for title in full.table.columns if "charge" not in title]
    assert list(bare.table.columns) == kept


def test_unknown_masses_are_refused():
    universe = paceline.Universe(Martini_membrane_gro)
    with pytest.raises(UnsupportedError, match="LinearDensity needs masses, and those of this"):
        LinearDensity(universe.select_atoms("resname DPPC"), binsize=5)


def test_frames_that_have_no_density_are_named(tmp_path):
    universe = MDAnalysis.Universe.empty(3, trajectory=True)
    universe.add_TopologyAttr("masses", [1.0] * 3)
    universe.add_TopologyAttr("charges", [1.0] * 3)
    path = str(tmp_path / "made.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with MDAnalysis.Writer(path, 3) as writer:
            for frame in range(3):
                universe.atoms.positions = np.full((3, 3), np.nan if frame == 1 else 1.0)
                universe.dimensions = [10, 10, 10, 90, 90, 90 if frame < 2 else 179.9999]
                if frame == 1:
                    universe.atoms.positions = [[1, 1, 1], [2, np.nan, 2], [3, 3, 3]]
                writer.write(universe.atoms)
    atoms = paceline.Universe(universe._topology, path).atoms
    with pytest.raises(AnalysisError, match="frame 1: positions are not all finite"):
        LinearDensity(atoms).run()
    with pytest.raises(AnalysisError, match=r"frame 2: .* make no cell"):
        LinearDensity(atoms).run(start=2)
    LinearDensity(atoms[[0, 2]]).run(stop=2)


def test_what_has_no_density_is_refused(universe):
    with pytest.raises(UnsupportedError, match="needs a cell"):
        LinearDensity(universe.atoms)
    wet = paceline.Universe(TPR, XTC)
    with pytest.raises(SelectionError, match="no atoms"):
        LinearDensity(wet.atoms[:0])
    with pytest.raises(ValueError, match="not a valid value for grouping"):
        LinearDensity(wet.atoms, grouping="molecules")
    for binsize in (0, -1, 99, np.nan):
        with pytest.raises(ValueError, match="binsize must be above 0"):
            LinearDensity(wet.atoms, binsize=binsize)
    with pytest.raises(UnsupportedError, match="'bonded' of atoms that change"):
        LinearDensity(wet.select_atoms("bonded around 3 index 0", updating=True))
    bare = MDAnalysis.Universe.empty(3, trajectory=True)
    with pytest.raises(UnsupportedError, match="needs masses, but the topology lacks them"):
        LinearDensity(bare.atoms)
    bare.add_TopologyAttr("masses", [0.0] * 3)
    with pytest.raises(UnsupportedError, match="needs bonds"):
        LinearDensity(bare.atoms, "fragments")
    with pytest.raises(UnsupportedError, match="number 0 of the residues has no mass"):
        LinearDensity(bare.atoms, "residues")
